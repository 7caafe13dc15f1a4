//! The programs that compute the values that annotations record. A program is a short list of steps without jumps,
//! which starts from a register, a constant or a per-CPU address. `sim` makes programs, and the plugin runs them.
//!
//! `parse` and `Display` of each type must stay inverse to each other.

use std::fmt;

use simrecord::record::{TEXT_BYTES_MAX, Value};

/// The most steps of a program.
pub const STEPS_MAX: usize = 32;
/// Registers that a program can start with, by QEMU's names.
pub const REGISTERS: [&str; 22] = [
    "rax", "rbx", "rcx", "rdx", "rsi", "rdi", "rbp", "rsp", "r8", "r9", "r10", "r11", "r12", "r13",
    "r14", "r15", "fs_base", "gs_base", "cr0", "cr2", "cr3", "cr4",
];

/// A step of a program. It computes a number from the number of the previous step.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Step {
    /// The register at this position of [`REGISTERS`]. Only as the first step.
    Register(u8),
    /// A number. Only as the first step.
    Constant(u64),
    /// The address at this offset in the kernel's per-CPU area of the running CPU. Only as the first step.
    PerCpu(u64),
    /// Adds this number, modulo 2^64.
    Add(u64),
    /// Takes the number as an address, and loads this number of bytes there: 1, 2, 4 or 8, little-endian.
    Load(u8),
    /// Extracts bits. The fields are the lowest bit and the number of bits.
    Bits(u8, u8),
    /// Sign-extends a number of this many bits.
    Sign(u8),
    /// Takes the number as an address, and reads the text there up to a zero byte, at most this many bytes. Only last.
    Text(u8),
}

/// The guest's state that programs read.
pub trait Guest {
    /// The register at this position of [`REGISTERS`].
    fn register(&mut self, position: usize) -> Option<u64>;
    /// The address of the running CPU's per-CPU area.
    fn per_cpu(&mut self) -> Option<u64>;
    /// Copies memory at `address` to `buffer`. Returns whether the whole range is mapped.
    fn read(&mut self, address: u64, buffer: &mut [u8]) -> bool;
}

impl Step {
    fn is_first(self) -> bool {
        matches!(self, Step::Register(_) | Step::Constant(_) | Step::PerCpu(_))
    }

    /// Parses the text form of a step, which `Display` writes.
    fn parse(word: &str) -> Option<Step> {
        let (name, argument) = word.split_once(':')?;
        let hex = |text: &str| u64::from_str_radix(text, 16).ok();
        let small =
            |text: &str, max: u8| text.parse().ok().filter(|number| (1..=max).contains(number));
        Some(match name {
            "reg" => Step::Register(REGISTERS.iter().position(|known| *known == argument)? as u8),
            "const" => Step::Constant(hex(argument)?),
            "percpu" => Step::PerCpu(hex(argument)?),
            "add" => Step::Add(hex(argument)?),
            "load" => Step::Load(small(argument, 8).filter(|bytes| bytes.is_power_of_two())?),
            "bits" => {
                let (first, count) = argument.split_once('+')?;
                let first = first.parse().ok().filter(|first| *first < 64)?;
                Step::Bits(first, small(count, 64)?)
            }
            "sign" => Step::Sign(small(argument, 64)?),
            "text" => Step::Text(small(argument, TEXT_BYTES_MAX as u8)?),
            _ => return None,
        })
    }
}

impl fmt::Display for Step {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        match *self {
            Step::Register(position) => {
                write!(out, "reg:{}", REGISTERS.get(usize::from(position)).unwrap_or(&"none"))
            }
            Step::Constant(number) => write!(out, "const:{number:x}"),
            Step::PerCpu(offset) => write!(out, "percpu:{offset:x}"),
            Step::Add(number) => write!(out, "add:{number:x}"),
            Step::Load(bytes) => write!(out, "load:{bytes}"),
            Step::Bits(first, count) => write!(out, "bits:{first}+{count}"),
            Step::Sign(bits) => write!(out, "sign:{bits}"),
            Step::Text(bytes) => write!(out, "text:{bytes}"),
        }
    }
}

/// The steps that compute a value. Register, constant and per-CPU address come first only; a text comes last only.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Program(Vec<Step>);

impl Program {
    /// Makes a program from steps. `None` if there are no steps or too many, or their order is wrong.
    #[must_use]
    pub fn new(steps: Vec<Step>) -> Option<Program> {
        let (first, later_steps) = steps.split_first()?;
        let texts_before_last =
            steps.iter().rev().skip(1).any(|step| matches!(step, Step::Text(_)));
        let fits = first.is_first()
            && !later_steps.iter().any(|step| step.is_first())
            && !texts_before_last
            && steps.len() <= STEPS_MAX;
        fits.then_some(Program(steps))
    }

    /// Parses the text form of a program, which `Display` writes. `None` for other text.
    #[must_use]
    pub fn parse(text: &str) -> Option<Program> {
        let steps = text.split_ascii_whitespace().take(STEPS_MAX + 1);
        Program::new(steps.map(Step::parse).collect::<Option<_>>()?)
    }

    /// Computes the value from the guest's current state. [`Value::Absent`] if a register or memory cannot be read.
    pub fn run(&self, guest: &mut impl Guest) -> Value {
        let mut number = 0;
        for step in &self.0 {
            if let Step::Text(bytes) = step {
                return text(guest, number, usize::from(*bytes));
            }
            match apply(*step, number, guest) {
                Some(next) => number = next,
                None => return Value::Absent,
            }
        }
        Value::Number(number)
    }
}

impl fmt::Display for Program {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (position, step) in self.0.iter().enumerate() {
            write!(out, "{}{step}", if position > 0 { " " } else { "" })?;
        }
        Ok(())
    }
}

/// The number after `step`. `number`: the number before it.
fn apply(step: Step, number: u64, guest: &mut impl Guest) -> Option<u64> {
    Some(match step {
        Step::Register(position) => guest.register(usize::from(position))?,
        Step::Constant(constant) => constant,
        Step::PerCpu(offset) => guest.per_cpu()?.wrapping_add(offset),
        Step::Add(amount) => number.wrapping_add(amount),
        Step::Load(bytes) => {
            let mut word = [0; 8];
            let loaded = &mut word[..usize::from(bytes).min(8)];
            guest.read(number, loaded).then(|| u64::from_le_bytes(word))?
        }
        Step::Bits(first, count) => {
            let shifted = number.checked_shr(first.into()).unwrap_or(0);
            shifted & u64::MAX.checked_shr(64 - u32::from(count.clamp(1, 64))).unwrap_or(0)
        }
        Step::Sign(bits) => {
            let above = 64 - u32::from(bits.clamp(1, 64));
            ((number << above).cast_signed() >> above).cast_unsigned()
        }
        Step::Text(_) => return None,
    })
}

/// Reads a text of at most `bytes` bytes. It may reach into the next page, which is read only if the text does not end
/// in the first page: the next page may not be mapped.
fn text(guest: &mut impl Guest, address: u64, bytes: usize) -> Value {
    const PAGE_BYTES: u64 = 4_096;
    let mut text = [0; TEXT_BYTES_MAX];
    let bytes = bytes.min(TEXT_BYTES_MAX);
    let in_page = (PAGE_BYTES - address % PAGE_BYTES).min(bytes as u64) as usize;
    if !guest.read(address, &mut text[..in_page]) {
        return Value::Absent;
    }
    let ends = text[..in_page].contains(&0);
    if !ends && in_page < bytes {
        let (next_page, rest) = (address.wrapping_add(in_page as u64), &mut text[in_page..bytes]);
        if !guest.read(next_page, rest) {
            rest.fill(0);
        }
    }
    let end = text.iter().position(|byte| *byte == 0).unwrap_or(TEXT_BYTES_MAX);
    text[end..].fill(0);
    Value::Text(text)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    /// 256 bytes at 0x1f80 that count up, over the border of two pages; the second may be absent.
    struct Memory {
        has_second_page: bool,
        reads: usize,
    }

    const START: u64 = 0x1f80;

    impl Guest for Memory {
        fn register(&mut self, position: usize) -> Option<u64> {
            (position != 9).then_some(START + position as u64)
        }

        fn per_cpu(&mut self) -> Option<u64> {
            Some(START)
        }

        fn read(&mut self, address: u64, to: &mut [u8]) -> bool {
            self.reads += 1;
            let end = if self.has_second_page { START + 256 } else { 0x2000 };
            let there = (START..end).contains(&address)
                && address.checked_add(to.len() as u64).is_some_and(|after| after <= end);
            if there {
                (address - START..).zip(to).for_each(|(offset, byte)| *byte = offset as u8);
            }
            there
        }
    }

    /// Runs a program in a memory of two pages.
    fn run(text: &str) -> Value {
        Program::parse(text).unwrap().run(&mut Memory { has_second_page: true, reads: 0 })
    }

    fn run_without_second_page(text: &str) -> Value {
        Program::parse(text).unwrap().run(&mut Memory { has_second_page: false, reads: 0 })
    }

    #[test]
    fn steps_do_what_they_say() {
        assert_eq!(run("reg:rax add:10 load:2"), Value::Number(0x1110));
        assert_eq!(run("percpu:4 load:4"), Value::Number(0x0706_0504));
        assert_eq!(run("const:f5 bits:4+4"), Value::Number(0xf));
        assert_eq!(run("const:f5 sign:8"), Value::Number(u64::MAX - 10));
        assert_eq!(run("const:75 sign:8 add:ffffffffffffffff"), Value::Number(0x74));
        assert_eq!(run("reg:r9"), Value::Absent);
        assert_eq!(run("const:0 load:8"), Value::Absent);
    }

    #[test]
    fn a_text_goes_on_in_the_next_page_until_its_size_a_zero_or_the_end_of_memory() {
        // The next page is absent.
        let Value::Text(text) = run_without_second_page("const:1ffe text:8") else { panic!() };
        assert_eq!(text[..4], [0x7e, 0x7f, 0, 0]);
        // The size ends the text in the next page.
        let Value::Text(text) = run("const:1ffe text:4") else { panic!() };
        assert_eq!(text[..5], [0x7e, 0x7f, 0x80, 0x81, 0]);
        // The text starts outside of memory.
        assert_eq!(run_without_second_page("const:2000 text:8"), Value::Absent);
        // The first byte is zero.
        assert_eq!(run(&format!("const:{START:x} text:8")), Value::Text([0; 32]));
    }

    #[test]
    fn other_orders_of_steps_are_refused() {
        for text in [
            "",
            "load:8",
            "reg:rip",
            "reg:rax reg:rbx",
            "reg:rax text:8 add:1",
            "reg:rax load:3",
            "reg:rax load:16",
            "reg:rax text:33",
            "reg:rax bits:64+1",
            "reg:rax bits:0+0",
            "const:x",
        ] {
            assert_eq!(Program::parse(text), None, "{text}");
        }
        let long = "reg:rax".to_owned() + &" add:1".repeat(STEPS_MAX);
        assert_eq!(Program::parse(&long), None);
    }

    fn step() -> impl Strategy<Value = Step> {
        prop_oneof![
            any::<u64>().prop_map(Step::Add),
            (0..4_u32).prop_map(|power| Step::Load(1 << power)),
            (0..64_u8, 1..=64_u8).prop_map(|(first, count)| Step::Bits(first, count)),
            (1..=64_u8).prop_map(Step::Sign),
        ]
    }

    fn program() -> impl Strategy<Value = Program> {
        let first = prop_oneof![
            (0..REGISTERS.len() as u8).prop_map(Step::Register),
            (0..0x3000_u64).prop_map(Step::Constant),
            (0..0x100_u64).prop_map(Step::PerCpu),
        ];
        let last = prop::option::of((1..=32_u8).prop_map(Step::Text));
        (first, prop::collection::vec(step(), 0..STEPS_MAX - 1), last).prop_map(
            |(first, middle, last)| {
                Program::new([first].into_iter().chain(middle).chain(last).collect()).unwrap()
            },
        )
    }

    proptest! {
        #[test]
        fn programs_end_after_as_many_reads_as_steps_and_go_to_text_and_back(program in program()) {
            let mut memory = Memory { has_second_page: true, reads: 0 };
            program.run(&mut memory);
            prop_assert!(memory.reads <= STEPS_MAX + 1);
            prop_assert_eq!(Program::parse(&program.to_string()), Some(program));
        }

        #[test]
        fn other_text_never_panics(text in "[a-z0-9:+ ]{0,60}") {
            if let Some(program) = Program::parse(&text) {
                program.run(&mut Memory { has_second_page: false, reads: 0 });
            }
        }
    }
}
