//! A synthetic program: functions of blocks that loop, branch and call others. Each block has its
//! own accesses. The path through the blocks determines the accesses, as in real code.

use machine::{CodeBlock, CodeSpan, PhysicalAddress, VirtualAddress};

/// The approximate number of blocks in a run.
const STEPS: usize = 200_000;
const FUNCTIONS: usize = 200;
const BLOCKS_OF_FUNCTION: usize = 12;
/// Functions that the outermost loop calls.
const ENTRIES: u64 = 24;
const DEPTH_MAX: u64 = 6;
const CODE: u64 = 0xffff_ffff_8100_0000;
const STACK: u64 = 0xffff_c900_0001_0000;
const OBJECTS: u64 = 0xffff_8880_0100_0000;
const ARRAY: u64 = 0xffff_8880_0200_0000;
const ANYWHERE: u64 = 0xffff_8880_0300_0000;

/// Marsaglia's xorshift: the same program each time.
struct Random(u64);

impl Random {
    fn below(&mut self, limit: u64) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        (self.0 >> 11) % limit
    }

    /// Small numbers more often than large ones.
    fn skewed(&mut self, limit: u64) -> u64 {
        let product = self.below(limit) * self.below(limit) / limit;
        product * self.below(limit) / limit
    }
}

/// Where a block's access goes.
#[derive(Clone, Copy)]
enum Place {
    /// A word of the function's frame.
    Frame(u64),
    /// A word of the object that the function works on.
    Object(u64),
    /// The next word of an array.
    Array,
    /// One of many pages, in one of ten executions; otherwise a word of the frame.
    Anywhere,
}

/// The block that executes next.
#[derive(Clone, Copy)]
enum Next {
    Follows,
    /// The block after the next, in one of ten executions.
    Skips,
    /// A number of blocks back, a number of times.
    Loops(usize, u32),
    Calls(usize),
}

struct Body {
    accesses: Vec<(Place, bool)>,
    next: Next,
}

/// An execution of a block, with the accesses up to `accesses_end`.
pub struct Step {
    pub block: usize,
    pub accesses_end: usize,
}

/// A program with the steps and accesses of one run.
pub struct Program {
    pub blocks: Vec<CodeBlock>,
    pub steps: Vec<Step>,
    /// Address, and whether it is written.
    pub accesses: Vec<(u64, bool)>,
    /// Instructions of the run.
    pub instructions: u64,
    bodies: Vec<Body>,
    random: Random,
    /// How many objects there are, of 256 bytes each.
    objects: u64,
    array: u64,
}

/// Any translation will do.
pub fn physical(address: VirtualAddress) -> Option<PhysicalAddress> {
    let frame = address.page().wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 44;
    Some(PhysicalAddress(frame << 12 | address.offset_in_page()))
}

/// Consecutive blocks of 3 to 7 instructions of 4 bytes.
fn blocks(line_shift: u32, random: &mut Random) -> Vec<CodeBlock> {
    let mut address = CODE;
    let mut block = |_| {
        let instructions = 3 + random.below(5) as u32;
        let bytes = instructions * 4;
        let in_page = (4096 - address % 4096).min(bytes.into()) as u32;
        let span = |address, bytes| {
            let virtual_address = VirtualAddress(address);
            let physical = physical(virtual_address).unwrap_or_default();
            CodeSpan { virtual_address, physical, bytes }
        };
        let first = span(address, in_page);
        let second = span(address + u64::from(in_page), bytes - in_page);
        address += u64::from(bytes);
        CodeBlock::new(line_shift, instructions, first, (second.bytes > 0).then_some(second))
    };
    (0..FUNCTIONS * BLOCKS_OF_FUNCTION).map(&mut block).collect()
}

fn body(random: &mut Random) -> Body {
    let access = |random: &mut Random| match random.below(100) {
        0..50 => Place::Frame(random.below(12) * 8),
        50..86 => Place::Object(random.below(16) * 8),
        86..98 => Place::Array,
        _ => Place::Anywhere,
    };
    let number = random.below(5);
    let next = match random.below(100) {
        0..20 => Next::Skips,
        20..32 => Next::Loops(random.below(3) as usize, 2 + random.below(6) as u32),
        32..44 => Next::Calls(random.below(FUNCTIONS as u64) as usize),
        _ => Next::Follows,
    };
    let accesses = (0..number).map(|_| (access(random), random.below(10) < 3)).collect();
    Body { accesses, next }
}

impl Program {
    /// Builds the program for a line size and a number of `objects`, and runs it.
    pub fn new(line_shift: u32, objects: u64) -> Program {
        let mut random = Random(0x1234_5678_9abc_def1);
        let blocks = blocks(line_shift, &mut random);
        let bodies = blocks.iter().map(|_| body(&mut random)).collect();
        let mut program = Program {
            blocks,
            steps: Vec::new(),
            accesses: Vec::new(),
            instructions: 0,
            bodies,
            random,
            objects,
            array: 0,
        };
        while program.steps.len() < STEPS {
            let entry = program.random.skewed(ENTRIES) as usize;
            program.call(entry, 0);
        }
        program
    }

    fn call(&mut self, function: usize, depth: u64) {
        let object = OBJECTS + self.random.skewed(self.objects) * 256;
        let mut loops = [0; BLOCKS_OF_FUNCTION];
        let mut index = 0;
        while index < BLOCKS_OF_FUNCTION && self.steps.len() < STEPS {
            let block = function * BLOCKS_OF_FUNCTION + index;
            self.step(block, STACK - depth * 128, object);
            index = match self.bodies[block].next {
                Next::Skips if self.random.below(10) == 0 => index + 2,
                Next::Loops(back, times) if loops[index] < times => {
                    loops[index] += 1;
                    index.saturating_sub(back)
                }
                Next::Calls(callee) if depth < DEPTH_MAX => {
                    self.call(callee, depth + 1);
                    index + 1
                }
                _ => index + 1,
            };
        }
    }

    fn step(&mut self, block: usize, frame: u64, object: u64) {
        for (place, write) in &self.bodies[block].accesses {
            let address = match place {
                Place::Frame(offset) => frame + offset,
                Place::Object(offset) => object + offset,
                Place::Array => {
                    self.array = (self.array + 8) % (1 << 18);
                    ARRAY + self.array
                }
                Place::Anywhere if self.random.below(10) > 0 => frame,
                Place::Anywhere => {
                    ANYWHERE + self.random.skewed(1 << 10) * 4096 + self.random.below(512) * 8
                }
            };
            self.accesses.push((address, *write));
        }
        self.instructions += u64::from(self.blocks[block].instructions());
        self.steps.push(Step { block, accesses_end: self.accesses.len() });
    }
}
