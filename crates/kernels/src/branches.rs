//! Kernels of group `branches`: prediction of conditional branches, indirect jumps, calls and returns.
//!
//! Loops with fixed instructions use `straight`. Others read the direction or target of each branch from a pattern in
//! memory.

use std::arch::{asm, naked_asm};

use stats::Random;

use crate::memory::Pages;
use crate::straight::{kernel, straight};
use crate::{Body, Executed, Group, Kernel, Rounds};

/// Maximum length of a pattern. A byte is one iteration.
const PATTERN_BYTES: usize = 64 << 10;
/// Predictors need many windows to learn a pattern of this or a longer period: a window goes through it only once.
const LONG_PERIOD: usize = 16 << 10;
/// Seed of all patterns.
const SEED: u64 = 1;

/// The kernels of branches: straight code first, then loops over patterns of directions and targets.
pub(crate) fn kernels() -> Vec<Kernel> {
    let straight_code = [
        ("taken_loop", "A loop of a subtraction and a taken branch.", straight!(1 x 1, "", "")),
        ("jump_next", "Jumps to the next 16 bytes.", straight!(1 x 64, "jmp 3f; .p2align 4; 3:")),
        (
            "not_taken",
            "Conditional branches that are never taken.",
            straight!(1 x 64, "cmp rax, rax", "jc 2b"),
        ),
        (
            "not_taken_two",
            "A comparison and a conditional branch that is never taken.",
            straight!(1 x 64, "", "cmp rax, r10; je 2b"),
        ),
        (
            "call_return",
            "A call and a return.",
            straight!(1 x 1, "", "call 3f; jmp 4f; 3:; ret; 4:"),
        ),
    ];
    let straight_kernels = straight_code
        .map(|(name, about, code)| kernel(Group::Branches, (name, "branch", about), code));
    straight_kernels.into_iter().chain(patterns()).chain(indirect()).chain(calls()).collect()
}

/// The values of a pattern's bytes.
#[derive(Clone, Copy, Debug)]
enum Values {
    Constant(u8),
    /// 0 and 1 in turn.
    Alternating,
    /// Random values below this. They repeat after each period, in all windows.
    Random(u8),
    /// From 0 up to below this, again and again.
    Counting(u8),
    /// Random values below this, drawn anew for each window.
    Fresh(u8),
}

/// Bytes that give the branches of a loop. The period is a power of two, so that a mask can wrap the index.
struct Pattern {
    memory: Pages,
    period: usize,
    values: Values,
    random: Random,
}

impl Pattern {
    fn new(period: usize, values: Values) -> Result<Pattern, String> {
        let random = Random::new(SEED);
        let mut pattern = Pattern { memory: Pages::small(PATTERN_BYTES)?, period, values, random };
        pattern.fill();
        Ok(pattern)
    }

    /// Writes a period of the pattern.
    fn fill(&mut self) {
        let (values, random) = (self.values, &mut self.random);
        for (index, byte) in self.memory.bytes_mut()[..self.period].iter_mut().enumerate() {
            *byte = match values {
                Values::Constant(value) => value,
                Values::Alternating => index as u8 & 1,
                Values::Counting(below) => (index % usize::from(below)) as u8,
                Values::Random(below) | Values::Fresh(below) => {
                    (random.below(u64::from(below))) as u8
                }
            };
        }
    }

    /// Draws new values before a window if the pattern is [`Values::Fresh`].
    fn refresh(&mut self) {
        if matches!(self.values, Values::Fresh(_)) {
            self.fill();
        }
    }
}

/// Conditional branches that follow patterns.
fn patterns() -> Vec<Kernel> {
    let list = [
        ("branch_never", 16, Values::Constant(0)),
        ("branch_always", 16, Values::Constant(1)),
        ("branch_alternating", 16, Values::Alternating),
        ("branch_period_16", 16, Values::Random(2)),
        ("branch_period_64", 64, Values::Random(2)),
        ("branch_period_256", 256, Values::Random(2)),
        ("branch_period_1024", 1024, Values::Random(2)),
        ("branch_period_4096", 4096, Values::Random(2)),
        ("branch_random", PATTERN_BYTES, Values::Fresh(2)),
    ];
    let about = "A loop with a branch that follows a pattern of this name.";
    let kernel = |(name, period, values): (&'static str, usize, Values)| {
        let make = move || {
            Ok(Box::new(Branch { pattern: Pattern::new(period, values)? }) as Box<dyn Body>)
        };
        Kernel::new(Group::Branches, (name, "iteration", about), make)
    };
    let long = kernel(("branch_period_16384", LONG_PERIOD, Values::Random(2))).learning();
    list.map(kernel).into_iter().chain([long]).collect()
}

/// The body of a loop whose branch follows a pattern: taken if the byte is 0.
struct Branch {
    pattern: Pattern,
}

impl Body for Branch {
    fn prepare(&mut self) {
        self.pattern.refresh();
    }

    fn run(&mut self, rounds: u64) -> Executed {
        // SAFETY: reads bytes of the pattern, whose period is a power of two; registers are declared.
        unsafe {
            asm!(
                "xor {at:e}, {at:e}",
                ".p2align 6",
                "2:",
                "movzx {value:e}, byte ptr [{pattern} + {at}]",
                "inc {at}",
                "and {at}, {mask}",
                "test {value:e}, {value:e}",
                "jz 3f",
                "add {sum}, 1",
                "3:",
                "dec {rounds}",
                "jnz 2b",
                pattern = in(reg) self.pattern.memory.base().as_ptr(),
                mask = in(reg) self.pattern.period - 1,
                at = out(reg) _,
                value = out(reg) _,
                sum = inout(reg) 0_u64 => _,
                rounds = inout(reg) rounds.max(1) => _,
                options(readonly, nostack),
            );
        }
        Executed::whole(rounds.max(1))
    }

    fn rounds(&self) -> Rounds {
        match self.pattern.values {
            Values::Random(_) if self.pattern.period >= LONG_PERIOD => {
                Rounds::Fixed(self.pattern.period as u64)
            }
            _ => Rounds::AsFit,
        }
    }
}

/// Indirect jumps to a number of targets, in turn or at random.
fn indirect() -> Vec<Kernel> {
    let list = [
        ("indirect_1", Values::Constant(0)),
        ("indirect_4_in_turn", Values::Counting(4)),
        ("indirect_16_in_turn", Values::Counting(16)),
        ("indirect_4_random", Values::Fresh(4)),
        ("indirect_16_random", Values::Fresh(16)),
    ];
    let about = "A loop with an indirect jump to a number of targets.";
    let kernel = |(name, values): (&'static str, Values)| {
        let make = move || {
            Ok(Box::new(Indirect { pattern: Pattern::new(PATTERN_BYTES, values)? })
                as Box<dyn Body>)
        };
        Kernel::new(Group::Branches, (name, "iteration", about), make)
    };
    list.map(kernel).into()
}

/// The body of a loop with an indirect jump whose targets follow a pattern.
struct Indirect {
    pattern: Pattern,
}

/// Executes `rounds` iterations of a loop with an indirect jump. Each byte of the pattern is the number of a target,
/// from 0 to 15. `mask` is the pattern's length less 1.
#[unsafe(naked)]
unsafe extern "sysv64" fn indirect_loop(_rounds: u64, _pattern: *const u8, _mask: u64) {
    naked_asm!(
        "xor ecx, ecx",
        "lea r9, [rip + 3f]",
        ".p2align 6",
        "2:",
        "movzx eax, byte ptr [rsi + rcx]",
        "inc rcx",
        "and rcx, rdx",
        "shl eax, 4",
        "add rax, r9",
        "jmp rax",
        ".p2align 6",
        "3:",
        ".rept 16",
        "add r8, 1",
        "jmp 4f",
        ".p2align 4",
        ".endr",
        "4:",
        "dec rdi",
        "jnz 2b",
        "ret",
    )
}

impl Body for Indirect {
    fn prepare(&mut self) {
        self.pattern.refresh();
    }

    fn run(&mut self, rounds: u64) -> Executed {
        let pattern = self.pattern.memory.base().as_ptr();
        // SAFETY: the mask selects only bytes of the pattern, and each byte is the number of a target.
        unsafe { indirect_loop(rounds.max(1), pattern, self.pattern.period as u64 - 1) };
        Executed::whole(rounds.max(1))
    }
}

/// Calls a function `rounds` times that calls another one, and so on, `depth` functions deep. `depth`: at most 64.
#[unsafe(naked)]
unsafe extern "sysv64" fn nested_calls(_rounds: u64, _depth: u64) {
    naked_asm!(
        // The functions are 16 bytes apart, and the last one is at label 5. The first is `depth` times 16 bytes
        // earlier.
        "lea rax, [rip + 5f]",
        "shl rsi, 4",
        "sub rax, rsi",
        ".p2align 6",
        "2:",
        "call rax",
        "dec rdi",
        "jnz 2b",
        "ret",
        ".p2align 6",
        ".rept 64",
        "call 3f",
        "add r8, 1",
        "ret",
        ".p2align 4",
        "3:",
        ".endr",
        "5:",
        "ret",
    )
}

/// The body of a loop of nested calls.
struct Calls {
    depth: u64,
}

impl Body for Calls {
    fn run(&mut self, rounds: u64) -> Executed {
        // SAFETY: it changes registers that a function may change, and 64 return addresses of stack.
        unsafe { nested_calls(rounds.max(1), self.depth) };
        Executed::whole(rounds.max(1) * (self.depth + 1))
    }
}

/// Nested calls, more or fewer than a return stack has entries.
fn calls() -> Vec<Kernel> {
    let about = "A call and a return, with a number of nested calls.";
    let list = [("calls_8", 8), ("calls_20", 20), ("calls_40", 40), ("calls_60", 60)];
    let kernel = |(name, depth): (&'static str, u64)| {
        let make = move || Ok(Box::new(Calls { depth }) as Box<dyn Body>);
        Kernel::new(Group::Branches, (name, "call and return", about), make)
    };
    list.map(kernel).into()
}
