//! Each field of `[core]` changes a count of some program, or the model refuses it: no field is silently without effect.
//!
//! The program executes each kind of instruction, with many dependences, accesses and branches. Each numeric or boolean
//! field of a model gets other values, one at a time.

use std::collections::BTreeSet;

use machine::SystemModel;
use machine::core::{
    Access, AnyCore, CoreCounts, CoreModel, ExecutedBlock, Instruction, Layout, MultithreadedCore,
    Operation, Register, SingleThreadCore, Special, StringOperation, Template, Unit,
};
use machine::predict::BranchKind;
use machine::{PhysicalAddress, VirtualAddress};
use toml::{Table, Value};

use crate::presets::ALL;
use crate::support::{FAR, Waits, register, span};

/// Random numbers, the same in each test (xorshift64: Marsaglia 2003).
struct Random(u64);

impl Random {
    fn below(&mut self, limit: u64) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        (self.0 >> 20) % limit
    }

    fn choose<T: Copy>(&mut self, list: &[T]) -> T {
        list[self.below(list.len() as u64) as usize]
    }
}

const UNITS: [Unit; 12] = [
    Unit::Integer,
    Unit::Multiply,
    Unit::Divide,
    Unit::FloatAdd,
    Unit::FloatMultiply,
    Unit::FloatDivide,
    Unit::Vector,
    Unit::Shuffle,
    Unit::Shift,
    Unit::Select,
    Unit::Integer,
    Unit::FloatAdd,
];

const OPERATIONS: [(Unit, Operation); 38] = [
    (Unit::Shift, Operation::LeaThree),
    (Unit::Integer, Operation::BitCount),
    (Unit::Integer, Operation::BitScan),
    (Unit::Integer, Operation::BitDeposit),
    (Unit::Integer, Operation::Crc32),
    (Unit::Divide, Operation::Divide32),
    (Unit::FloatMultiply, Operation::FloatMultiplyOnly),
    (Unit::FloatDivide, Operation::FloatRoot),
    (Unit::FloatAdd, Operation::Convert),
    (Unit::Shuffle, Operation::Cross),
    (Unit::Shuffle, Operation::Aes),
    (Unit::Shuffle, Operation::Sha),
    (Unit::Integer, Operation::LeaScaled),
    (Unit::FloatAdd, Operation::FloatFlags),
    (Unit::Integer, Operation::PopulationCount),
    (Unit::Integer, Operation::ByteSwap),
    (Unit::Integer, Operation::DoubleShift),
    (Unit::FloatMultiply, Operation::VectorMultiply),
    (Unit::Integer, Operation::Logic),
    (Unit::Shuffle, Operation::StringCompare),
    (Unit::Vector, Operation::ByteSum),
    (Unit::FloatMultiply, Operation::DotProduct),
    (Unit::FloatMultiply, Operation::DotProductDouble),
    (Unit::FloatAdd, Operation::HorizontalAdd),
    (Unit::FloatAdd, Operation::FloatCompare),
    (Unit::FloatAdd, Operation::VectorConvert),
    (Unit::FloatAdd, Operation::Round),
    (Unit::FloatMultiply, Operation::Reciprocal),
    (Unit::FloatMultiply, Operation::VectorMultiply32),
    (Unit::Vector, Operation::VectorTest),
    (Unit::Shuffle, Operation::LaneMove),
    (Unit::Shuffle, Operation::LanePermute),
    (Unit::Shuffle, Operation::LaneWiden),
    (Unit::Vector, Operation::VectorCompare64),
    (Unit::Shuffle, Operation::AesKey),
    (Unit::Shuffle, Operation::ShaMessage),
    (Unit::Shuffle, Operation::SimpleShuffle),
    (Unit::Vector, Operation::VariableBlend),
];

const SPECIALS: [Special; 22] = [
    Special::Microcode,
    Special::ReadClock,
    Special::ReadMsr,
    Special::ExtendedControl,
    Special::SwapGs,
    Special::WriteFlags,
    Special::Direction,
    Special::Pause,
    Special::StoreFence,
    Special::FlushLine,
    Special::Atomic,
    Special::Barrier,
    Special::Fence,
    Special::ReadClockOrdered,
    Special::SystemCall,
    Special::SystemReturn,
    Special::Serialise,
    Special::WriteControl,
    Special::WriteMsr,
    Special::InvalidatePage,
    Special::Port,
    Special::InterruptReturn,
];

/// How an instruction accesses memory, for the addresses of its executions.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Touches {
    Nothing,
    /// One of a few places, which stores and loads share. Some places overlap, or cross lines or pages.
    Shared,
    /// A new line each time, which waits.
    Far,
    /// 32 bytes, in two accesses.
    Wide,
    Device,
}

#[derive(Clone, Copy)]
struct Step {
    instruction: Instruction,
    touches: Touches,
}

/// A few registers, so that most instructions depend on recent ones.
fn any_register(random: &mut Random, is_vector: bool) -> Register {
    let number = random.below(5) as u8;
    if is_vector { Register::vector(number) } else { register(number.into()) }
}

fn operation(random: &mut Random) -> Instruction {
    let (instruction, unit) = if random.below(2) == 0 {
        let (unit, operation) = random.choose(&OPERATIONS);
        (Instruction::of_unit(unit).as_operation(operation), unit)
    } else {
        let unit = random.choose(&UNITS);
        (Instruction::of_unit(unit), unit)
    };
    let is_vector =
        !matches!(unit, Unit::Integer | Unit::Multiply | Unit::Divide | Unit::Shift | Unit::Select);
    let to = any_register(random, is_vector);
    let from = any_register(random, is_vector);
    match random.below(8) {
        0 if unit == Unit::Integer => {
            instruction.reading(&[from]).writing(&[to, Register::FLAGS]).fusible()
        }
        1 if unit == Unit::Integer => {
            instruction.reading(&[to]).writing(&[to, Register::FLAGS_BUT_CARRY]).adding_constant()
        }
        2 if unit == Unit::Integer => instruction.reading(&[from]).writing(&[to]).moving_register(),
        3 if unit == Unit::Integer => instruction.writing(&[to, Register::FLAGS]).zeroing(),
        _ if unit == Unit::Select => instruction.reading(&[to, Register::FLAGS]).writing(&[to]),
        _ => instruction.reading(&[to, from]).writing(&[to]).with_bytes(random.below(9) as u8 + 2),
    }
}

/// Independent operations of one unit, which the number of units limits.
fn burst(random: &mut Random) -> Vec<Step> {
    let unit = random.choose(&UNITS);
    let operation = |number: u8| {
        let instruction = Instruction::of_unit(unit).writing(&[Register::vector(10 + number)]);
        Step { instruction, touches: Touches::Nothing }
    };
    (0_u8..8).map(operation).collect()
}

fn access(random: &mut Random) -> Step {
    let address = [any_register(random, false)];
    let is_vector = random.below(3) == 0;
    let value = [any_register(random, is_vector)];
    let mut instruction = match random.below(5) {
        0 | 1 => Instruction::nothing(4).storing(&address).reading(&value),
        2 => Instruction::of_unit(Unit::Integer).loading(&address).storing(&address),
        _ => Instruction::nothing(4).loading(&address).writing(&value),
    };
    if is_vector {
        instruction = instruction.loading_vector();
    } else {
        instruction = instruction.with_address_form(random.choose(&[2, 2, 6, 10]));
    }
    if random.below(3) == 0 {
        instruction = instruction.with_scaled_index();
    }
    if random.below(6) == 0 {
        instruction = instruction.moving(&[Register::STACK_POINTER]).moving_stack();
    }
    let touches = match random.below(12) {
        0 | 1 => Touches::Far,
        2..=6 if is_vector => Touches::Wide,
        7 if random.below(4) == 0 => Touches::Device,
        _ => Touches::Shared,
    };
    if random.below(20) == 0 && instruction.stores() && !instruction.loads() {
        instruction = instruction.streaming();
    }
    Step { instruction, touches }
}

fn special(random: &mut Random) -> Step {
    let special = random.choose(&SPECIALS);
    let address = [any_register(random, false)];
    let (instruction, touches) = match special {
        Special::Atomic => {
            let update = Instruction::of_unit(Unit::Integer).loading(&address).storing(&address);
            (update, Touches::Shared)
        }
        Special::StoreFence | Special::FlushLine => {
            (Instruction::nothing(4).storing(&[]), Touches::Nothing)
        }
        Special::Barrier => (Instruction::nothing(4), Touches::Nothing),
        _ => (Instruction::of_unit(Unit::Integer).writing(&address), Touches::Nothing),
    };
    Step { instruction: instruction.doing(special), touches }
}

/// More than the first level of the BTB of `zen3` holds.
const BLOCKS: u64 = 1_300;

struct Block {
    template: Template,
    steps: Vec<Step>,
    target: VirtualAddress,
    fall_through: VirtualAddress,
    kind: Option<BranchKind>,
}

fn strings(random: &mut Random) -> Step {
    let operation = random.choose(&[
        StringOperation::Copy,
        StringOperation::Fill,
        StringOperation::Load,
        StringOperation::Compare,
        StringOperation::Scan,
    ]);
    let [source, destination] = [[register(6)], [register(7)]];
    let instruction = Instruction::nothing(2);
    let instruction = match operation {
        StringOperation::Copy => instruction.loading(&source).storing(&destination),
        StringOperation::Fill => instruction.storing(&destination),
        StringOperation::Load => instruction.loading(&source),
        StringOperation::Compare => instruction
            .loading(&source)
            .loading(&destination)
            .reading(&[Register::FLAGS])
            .writing(&[Register::FLAGS]),
        StringOperation::Scan => instruction
            .loading(&destination)
            .reading(&[Register::FLAGS])
            .writing(&[Register::FLAGS]),
    };
    Step { instruction: instruction.repeating(operation), touches: Touches::Shared }
}

fn block(layout: Layout, random: &mut Random, number: u64) -> Block {
    let address = 0x40_0000 + number * 0x6e;
    let kind = random.choose(&[
        Some(BranchKind::Conditional),
        Some(BranchKind::Conditional),
        Some(BranchKind::Conditional),
        Some(BranchKind::Jump),
        Some(BranchKind::Call),
        Some(BranchKind::Return),
        Some(BranchKind::IndirectJump),
        None,
    ]);
    let mut steps: Vec<Step> = Vec::new();
    let is_string = number.is_multiple_of(10);
    if is_string {
        steps.push(strings(random));
    } else {
        for _ in 0..=random.below(10) {
            steps.push(match random.below(60) {
                0 => special(random),
                1..=21 => access(random),
                _ => Step { instruction: operation(random), touches: Touches::Nothing },
            });
        }
        if number % 5 == 1 {
            steps.extend(burst(random));
        }
    }
    let kind = kind.filter(|_| !is_string);
    if let Some(kind) = kind {
        let branch = Instruction::of_unit(Unit::Branch).branching(kind);
        let instruction = match kind {
            BranchKind::Conditional => branch.reading(&[Register::FLAGS_BUT_CARRY]),
            BranchKind::IndirectJump => branch.reading(&[any_register(random, false)]),
            _ => branch,
        };
        steps.push(Step { instruction, touches: Touches::Nothing });
    }
    let instructions: Vec<Instruction> = steps.iter().map(|step| step.instruction).collect();
    let bytes: u32 = instructions.iter().map(|instruction| u32::from(instruction.bytes())).sum();
    let target = VirtualAddress(0x40_0000 + random.below(BLOCKS) * 0x6e);
    let span = span(address, bytes);
    Block {
        template: Template::new(layout, (span, None), &instructions, Some(target)),
        steps,
        target,
        fall_through: VirtualAddress(address).plus(bytes.into()),
        kind,
    }
}

/// The accesses of the next execution of a step.
fn accesses_of(step: &Step, number: usize, random: &mut Random, far: &mut u64) -> Vec<Access> {
    let access = |address: u64, bytes: u8, write: bool, is_device: bool| Access {
        virtual_address: VirtualAddress(address),
        physical: (!is_device).then_some(PhysicalAddress(address)),
        instruction: number as u16,
        bytes,
        write,
    };
    let shared = random.choose(&[0u64, 0, 4, 0x38, 0x3c, 0x7c, 0x1000, 0xffc, 0x2000]);
    let kinds = [(step.instruction.loads(), false), (step.instruction.stores(), true)];
    let made = kinds.into_iter().filter(|(is_made, _)| *is_made).map(|(_, write)| write);
    let mut accesses = Vec::new();
    for write in made {
        match step.touches {
            Touches::Nothing => {}
            Touches::Shared => {
                let address = 0x10_0000 + shared;
                let in_page = (0x1000 - (address & 0xfff)).min(8);
                accesses.push(access(address, in_page as u8, write, false));
                if in_page < 8 {
                    accesses.push(access(address + in_page, 8 - in_page as u8, write, false));
                }
            }
            Touches::Far => {
                *far += 64;
                accesses.push(access(FAR + *far, 8, write, false));
            }
            Touches::Wide => {
                let address = 0x10_0000 + shared / 64 * 64;
                accesses.push(access(address, 16, write, false));
                accesses.push(access(address + 16, 16, write, false));
            }
            Touches::Device => accesses.push(access(0x7000_0000, 4, write, true)),
        }
    }
    accesses
}

/// Runs the program of `seed` on a core of the model. `run` executes a block.
fn play(
    layout: Layout,
    seed: u64,
    mut run: impl FnMut(&Template, &ExecutedBlock<'_>, &mut Waits, bool),
) {
    let mut random = Random(seed);
    let blocks: Vec<Block> = (0..BLOCKS).map(|number| block(layout, &mut random, number)).collect();
    let mut waits = Waits { far_cycles: 300, fetch_cycles: 25, ..Waits::default() };
    let (mut far, mut current) = (0, 0);
    let mut callers = Vec::new();
    for execution in 0..5_000_u64 {
        let block = &blocks[current];
        let is_string = block.steps[0].touches == Touches::Shared && block.steps.len() == 1;
        let repetitions = if is_string { random.choose(&[1, 5, 40, 200]) } else { 1 };
        let first = random.below(4) * 8;
        // Most branches have a short pattern, others are random.
        let is_taken = match block.kind {
            Some(BranchKind::Conditional) if current.is_multiple_of(3) => random.below(2) == 0,
            Some(BranchKind::Conditional) => !(execution / 3 + current as u64).is_multiple_of(3),
            Some(_) => true,
            None => false,
        };
        let next = if is_taken { block.target } else { block.fall_through };
        let indirect_target = blocks[random.choose(&[3, 3, 3, 17, 40])].template.address();
        let next = match block.kind {
            Some(BranchKind::Return) => callers.pop().unwrap_or(indirect_target),
            Some(BranchKind::IndirectJump) => indirect_target,
            _ => next,
        };
        if block.kind == Some(BranchKind::Call) {
            callers.push(block.fall_through);
        }
        for repetition in 0..repetitions {
            let mut accesses = Vec::new();
            for (number, step) in block.steps.iter().enumerate() {
                accesses.extend(accesses_of(step, number, &mut random, &mut far));
            }
            if is_string {
                let element_bytes = if current.is_multiple_of(20) { 1 } else { 8 };
                for access in &mut accesses {
                    let offset = if access.write { 0x1008 } else { 0 };
                    let address = 0x20_0000 + offset + first + repetition * element_bytes;
                    access.virtual_address = VirtualAddress(address);
                    access.physical = Some(PhysicalAddress(address));
                    access.bytes = element_bytes as u8;
                }
            }
            let instructions = block.template.len() as u32;
            let executed = ExecutedBlock { instructions, accesses: &accesses, next };
            run(&block.template, &executed, &mut waits, execution % 97 == 96);
        }
        current = match random.below(3) {
            0 => current,
            1 => (current + 1) % blocks.len(),
            _ => random.below(blocks.len() as u64) as usize,
        };
    }
}

/// The counts of each thread after all programs.
fn counts(model: &CoreModel) -> Vec<CoreCounts> {
    let layout = model.layout(64);
    let mut counts = Vec::new();
    for seed in [88_172_645_463_325_252, 0x1234_5678_9abc_def1] {
        if let Some(mut core) = MultithreadedCore::new(model) {
            play(layout, seed, |block, executed, waits, is_interrupted| {
                for thread in 0..core.threads() {
                    core.run(thread, block, executed, waits);
                    if is_interrupted {
                        core.interrupt(thread);
                    }
                }
                core.advance();
            });
            core.drain();
            counts.extend((0..core.threads()).map(|thread| core.counts(thread)));
        } else {
            let mut core = AnyCore::new(model, 64).expect("one thread");
            play(layout, seed, |block, executed, waits, is_interrupted| {
                core.run(block, executed, waits);
                if is_interrupted {
                    core.interrupt();
                }
            });
            counts.push(core.counts());
        }
    }
    counts
}

/// All numbers and booleans of a table, by their paths.
fn leaves(table: &Table, path: &[String], found: &mut Vec<(Vec<String>, Value)>) {
    for (key, value) in table {
        let path = [path, std::slice::from_ref(key)].concat();
        match value {
            Value::Table(table) => leaves(table, &path, found),
            Value::Integer(_) | Value::Boolean(_) => found.push((path, value.clone())),
            _ => {}
        }
    }
}

fn with_value(table: &Table, path: &[String], value: Value) -> Table {
    let mut changed = table.clone();
    match path {
        [key] => {
            changed.insert(key.clone(), value);
        }
        [key, rest @ ..] => {
            let inner = changed[key].as_table().expect("a path of the table");
            let inner = with_value(inner, rest, value);
            changed.insert(key.clone(), Value::Table(inner));
        }
        [] => {}
    }
    changed
}

fn other_values(value: &Value) -> Vec<Value> {
    match value {
        Value::Boolean(flag) => vec![Value::Boolean(!flag)],
        Value::Integer(number) => {
            let smaller = [64, 16, 8, 4, 2].map(|divisor| number / divisor);
            let others = [number - 1, number * 3 / 4, number + 1, number * 2, number + 40];
            let numbers = smaller.into_iter().chain(others);
            numbers.filter(|other| other != number).map(Value::Integer).collect()
        }
        _ => Vec::new(),
    }
}

/// The core of a machine whose text is a table. `None`: the model is refused.
fn core_of(table: &Table) -> Option<CoreModel> {
    let core: CoreModel = table.clone().try_into().ok()?;
    core.check("core").is_ok().then_some(core)
}

fn kind_of(model: &CoreModel) -> &'static str {
    match (&model.window, model.threads) {
        (Some(_), _) => "out of order",
        (None, Some(_)) => "threads",
        (None, None) => "in order",
    }
}

/// Fields that change no count of this test, by kind of core, with the reason.
const EXCEPTIONS: &[(&str, &str, &str)] = &[
    (
        "threads",
        "data.mshrs",
        "the number of combining buffers, which are a part of the memory system",
    ),
    (
        "out of order",
        "predictor.direction.tage.long_table_entries",
        "the program has too few branches to fill these tables",
    ),
];

/// A field is silent if it has no effect on any core of its kind that accepts other values.
#[test]
fn each_field_of_each_kind_of_core_changes_a_count_or_is_refused() {
    let (mut silent, mut effective) = (BTreeSet::new(), BTreeSet::new());
    for (name, text) in ALL {
        assert!(SystemModel::parse(text).is_ok(), "{name}");
        let machine: Table = text.parse().expect("a TOML file");
        let table = machine["core"].as_table().expect("each has one");
        let model = core_of(table).expect("a good model");
        let mut fields = Vec::new();
        leaves(table, &[], &mut fields);
        fields.retain(|(path, _)| !effective.contains(&(kind_of(&model), path.join("."))));
        let expected = counts(&model);
        for (path, value) in fields {
            let mut accepted = other_values(&value)
                .into_iter()
                .filter_map(|other| core_of(&with_value(table, &path, other)))
                .peekable();
            if accepted.peek().is_none() {
                continue;
            }
            let field = (kind_of(&model), path.join("."));
            if accepted.any(|changed| counts(&changed) != expected) {
                silent.remove(&field);
                effective.insert(field);
            } else {
                silent.insert(field);
            }
        }
    }
    let known = |(kind, field, _): &(&'static str, &str, &str)| (*kind, (*field).to_owned());
    assert_eq!(silent, EXCEPTIONS.iter().map(known).collect());
}
