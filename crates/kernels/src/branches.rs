//! Prediction of branches, targets and returns.

use std::arch::{asm, naked_asm};

use stats::Random;

use crate::memory::Pages;
use crate::straight::{kernel, straight};
use crate::{Body, Executed, Group, Kernel, Rounds};

/// Bytes of a pattern, at most.
const PATTERN_BYTES: usize = 64 << 10;
/// Predictors learn a pattern of this or a longer period for many windows: a window goes through it only once.
const LONG_PERIOD: usize = 16 << 10;
/// Seed of all patterns.
const SEED: u64 = 1;

pub(crate) fn kernels() -> Vec<Kernel> {
    let straight = [
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
    let straight =
        straight.map(|(name, about, of)| kernel(Group::Branches, (name, "branch", about), of));
    straight.into_iter().chain(patterns()).chain(indirect()).chain(calls()).collect()
}

/// The meaning of a byte of a pattern.
#[derive(Clone, Copy, Debug)]
enum Of {
    Constant(u8),
    Alternating,
    /// Random values below this, the same in each period.
    Random(u8),
    /// Counting up to below this.
    Counting(u8),
    /// Random values below this, other ones in each window.
    Fresh(u8),
}

/// A pattern with a period of N bytes.
struct Pattern {
    memory: Pages,
    period: usize,
    of: Of,
    random: Random,
}

impl Pattern {
    fn new(period: usize, of: Of) -> Result<Pattern, String> {
        let random = Random::new(SEED);
        let mut pattern = Pattern { memory: Pages::small(PATTERN_BYTES)?, period, of, random };
        pattern.fill();
        Ok(pattern)
    }

    fn fill(&mut self) {
        let (of, random) = (self.of, &mut self.random);
        for (at, byte) in self.memory.bytes_mut()[..self.period].iter_mut().enumerate() {
            *byte = match of {
                Of::Constant(value) => value,
                Of::Alternating => at as u8 & 1,
                Of::Counting(below) => (at % usize::from(below)) as u8,
                Of::Random(below) | Of::Fresh(below) => (random.below(u64::from(below))) as u8,
            };
        }
    }

    fn refresh(&mut self) {
        if matches!(self.of, Of::Fresh(_)) {
            self.fill();
        }
    }
}

fn patterns() -> Vec<Kernel> {
    let list = [
        ("branch_never", 16, Of::Constant(0)),
        ("branch_always", 16, Of::Constant(1)),
        ("branch_alternating", 16, Of::Alternating),
        ("branch_period_16", 16, Of::Random(2)),
        ("branch_period_64", 64, Of::Random(2)),
        ("branch_period_256", 256, Of::Random(2)),
        ("branch_period_1024", 1024, Of::Random(2)),
        ("branch_period_4096", 4096, Of::Random(2)),
        ("branch_random", PATTERN_BYTES, Of::Fresh(2)),
    ];
    let about = "A loop with a branch that follows a pattern of this name.";
    let kernel = |(name, period, of): (&'static str, usize, Of)| {
        let make =
            move || Ok(Box::new(Branch { pattern: Pattern::new(period, of)? }) as Box<dyn Body>);
        Kernel::new(Group::Branches, (name, "iteration", about), make)
    };
    let long = kernel(("branch_period_16384", LONG_PERIOD, Of::Random(2))).learning();
    list.map(kernel).into_iter().chain([long]).collect()
}

/// A branch that follows a pattern.
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
        match self.pattern.of {
            Of::Random(_) if self.pattern.period >= LONG_PERIOD => {
                Rounds::Fixed(self.pattern.period as u64)
            }
            _ => Rounds::AsFit,
        }
    }
}

fn indirect() -> Vec<Kernel> {
    let list = [
        ("indirect_1", Of::Constant(0)),
        ("indirect_4_in_turn", Of::Counting(4)),
        ("indirect_16_in_turn", Of::Counting(16)),
        ("indirect_4_random", Of::Fresh(4)),
        ("indirect_16_random", Of::Fresh(16)),
    ];
    let about = "A loop with an indirect jump to a number of targets.";
    let kernel = |(name, of): (&'static str, Of)| {
        let make = move || {
            Ok(Box::new(Indirect { pattern: Pattern::new(PATTERN_BYTES, of)? }) as Box<dyn Body>)
        };
        Kernel::new(Group::Branches, (name, "iteration", about), make)
    };
    list.map(kernel).into()
}

/// An indirect jump whose targets follow a pattern.
struct Indirect {
    pattern: Pattern,
}

/// `rdi` iterations of an indirect jump; the target is given by the bytes at `rsi`, below 16, and repeats after
/// `rdx` + 1 of them.
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

/// `rdi` calls of a function that calls another one, and so on, `rsi` deep.
#[unsafe(naked)]
unsafe extern "sysv64" fn nested_calls(_rounds: u64, _depth: u64) {
    naked_asm!(
        // The functions are 16 bytes apart; the last one is at 5.
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

/// Calls that are nested so deep.
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

fn calls() -> Vec<Kernel> {
    let about = "A call and a return, with a number of nested calls.";
    let list = [("calls_8", 8), ("calls_20", 20), ("calls_40", 40), ("calls_60", 60)];
    let kernel = |(name, depth): (&'static str, u64)| {
        let make = move || Ok(Box::new(Calls { depth }) as Box<dyn Body>);
        Kernel::new(Group::Branches, (name, "call and return", about), make)
    };
    list.map(kernel).into()
}
