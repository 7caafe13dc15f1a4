//! The program's command line, such as `noise loop=fwq quantum=100000 ...`. `sim::bare` on the host writes it, so names
//! and values are a protocol. An error is a line that the host prints.

use crate::ring::WAYS_MAX;

/// The loops of `noise`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Loop {
    /// Fixed work quantum: records the start and the end of each quantum of work.
    Fwq,
    /// Fixed time quantum: counts the work in each quantum of time.
    Ftq,
    /// Reads the clock in a loop.
    Detour,
}

/// The instructions of an iteration.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Body {
    /// A chain of additions: each needs the result of the previous one.
    Add,
    /// Independent multiplications and rotations.
    Alu,
    /// Dependent loads. The size of the memory decides which cache serves them.
    Walk,
    /// Branches that cannot be predicted.
    Branch,
}

/// The parameters of `noise`. Times are cycles of the time-stamp counter.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Noise {
    pub looping: Loop,
    pub body: Body,
    /// Size of the memory that the body `walk` uses, bytes: `WALK_BYTES_MIN` to [`BYTES_MAX`].
    pub bytes: u64,
    /// Length of a quantum of work, or of a slot; at least 1. Required, although the detour loop ignores it.
    pub quantum: u64,
    /// Iterations of the body in a quantum. 0: the number that takes `quantum` cycles.
    pub iterations: u64,
    /// Quanta or slots, 1 to [`RECORDS_MAX`]. Required, although the detour loop ignores it.
    pub repetitions: u64,
    /// Length of the window of the detour loop.
    pub window: u64,
    /// Gaps longer than this are detours.
    pub threshold: u64,
    /// Quanta that run before the window, without a record.
    pub warm_up: u64,
}

/// The cache that is filled.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Side {
    /// A data cache, by a pointer chase.
    Data,
    /// An instruction cache, by a routine of forward jumps.
    Code,
}

/// The two methods of the paper's Figure 1.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Method {
    /// Fills the cache, waits, and touches all lines again.
    Basic,
    /// Touches all lines all the time.
    Refined,
}

/// The code that displaces lines.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum By {
    /// The handler of an interrupt.
    Interrupt,
    /// The program itself, which touches equally many lines: a calibration of the cost of a displaced line.
    Program,
}

/// The parameters of `footprint`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Footprint {
    /// Data lines that the handler touches, up to [`LINES_MAX`].
    pub data: u64,
    /// Instruction lines that the handler touches, up to [`LINES_MAX`].
    pub code: u64,
    /// Size of the cache that is filled, bytes: a multiple of `line * ways`, from 4 lines to [`CACHE_BYTES_MAX`].
    pub cache: u64,
    /// Size of a cache line, bytes: a power of two from 16 to 256.
    pub line: u64,
    /// Ways of the cache, 1 to [`WAYS_MAX`].
    pub ways: u64,
    pub by: By,
    pub side: Side,
    pub method: Method,
    /// Number of repetitions with an interrupt, and also the number of repetitions without: 1 to [`REPETITIONS_MAX`].
    pub repetitions: u64,
    /// Passes over all lines in a repetition of the refined method, 2 to 2^20: the first, those while the interrupt
    /// comes, and the last.
    pub passes: u64,
    /// Time from scheduling the interrupt to its arrival, in steps of the local APIC's timer (ns here): 1 to 2^32 - 1.
    pub delay: u64,
    /// Waiting time of the basic method, cycles of the time-stamp counter.
    pub wait: u64,
    /// Event selects of the performance counters to read; 0 for none.
    pub events: [u64; COUNTERS],
}

/// Number of performance counters of the guest's processor.
pub const COUNTERS: usize = 6;
/// Maximum number of data lines, and of instruction lines, that a handler touches.
pub const LINES_MAX: u64 = 1 << 15;
/// Maximum size of the cache that is filled, bytes.
pub const CACHE_BYTES_MAX: u64 = 64 << 20;
/// Maximum number of repetitions.
pub const REPETITIONS_MAX: u64 = 1 << 12;

/// The program that the command line names, with its values.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Program {
    /// A loop without interrupts.
    Noise(Noise),
    /// A cache, and an interrupt handler that displaces a known number of lines.
    Footprint(Footprint),
}

/// A parsed command line.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Command {
    pub program: Program,
}

/// Maximum number of quanta, slots or detours of a window.
pub const RECORDS_MAX: u64 = 1 << 17;
/// Maximum size of the memory of the body `walk`, bytes.
pub const BYTES_MAX: u64 = 256 << 20;
/// Minimum size of the memory of the body `walk`, bytes: a ring of two lines.
const WALK_BYTES_MIN: u64 = 128;

impl Command {
    /// Parses a command line: a program, then `name=value` in any order. [`Noise`] and [`Footprint`] say
    /// which values are required.
    ///
    /// Fails if the command is malformed, or a value is out of range. The error is a message for the host.
    pub fn parse(line: &[u8]) -> Result<Command, &'static str> {
        let line = core::str::from_utf8(line).map_err(|_| "error command-line")?;
        let mut arguments = line.split_ascii_whitespace();
        match arguments.next() {
            Some("noise") => parse_noise(arguments)
                .map(|parameters| Command { program: Program::Noise(parameters) }),
            Some("footprint") => parse_footprint(arguments)
                .map(|parameters| Command { program: Program::Footprint(parameters) }),
            _ => Err("error program"),
        }
    }
}

/// A missing word is `fwq` or `add`, a missing number is 0. `quantum` and `repetitions` are therefore required.
fn parse_noise<'a>(arguments: impl Iterator<Item = &'a str>) -> Result<Noise, &'static str> {
    let mut parameters = Noise {
        looping: Loop::Fwq,
        body: Body::Add,
        bytes: 0,
        quantum: 0,
        iterations: 0,
        repetitions: 0,
        window: 0,
        threshold: 0,
        warm_up: 0,
    };
    for argument in arguments {
        let (name, value) = argument.split_once('=').ok_or("error word")?;
        let number = || value.parse::<u64>().map_err(|_| "error number");
        match (name, value) {
            ("loop", "fwq") => parameters.looping = Loop::Fwq,
            ("loop", "ftq") => parameters.looping = Loop::Ftq,
            ("loop", "detour") => parameters.looping = Loop::Detour,
            ("body", "add") => parameters.body = Body::Add,
            ("body", "alu") => parameters.body = Body::Alu,
            ("body", "branch") => parameters.body = Body::Branch,
            ("body", "walk") => parameters.body = Body::Walk,
            ("bytes", _) => parameters.bytes = number()?,
            ("quantum", _) => parameters.quantum = number()?,
            ("iterations", _) => parameters.iterations = number()?,
            ("repetitions", _) => parameters.repetitions = number()?,
            ("window", _) => parameters.window = number()?,
            ("threshold", _) => parameters.threshold = number()?,
            ("warm_up", _) => parameters.warm_up = number()?,
            _ => return Err("error word"),
        }
    }
    let is_in_range = (1..=RECORDS_MAX).contains(&parameters.repetitions)
        && parameters.bytes <= BYTES_MAX
        && parameters.quantum > 0
        && (parameters.body != Body::Walk || parameters.bytes >= WALK_BYTES_MIN);
    is_in_range.then_some(parameters).ok_or("error range")
}

/// A missing value has the default below. `cache`, `line`, `repetitions` and `delay` have none: 0 is out of range.
fn parse_footprint<'a>(
    arguments: impl Iterator<Item = &'a str>,
) -> Result<Footprint, &'static str> {
    let mut parameters = Footprint {
        data: 0,
        code: 0,
        cache: 0,
        line: 0,
        ways: 1,
        by: By::Interrupt,
        side: Side::Data,
        method: Method::Refined,
        repetitions: 0,
        passes: 4,
        delay: 0,
        wait: 0,
        events: [0; COUNTERS],
    };
    let mut event_count = 0;
    for argument in arguments {
        let (name, value) = argument.split_once('=').ok_or("error word")?;
        let number = || value.parse::<u64>().map_err(|_| "error number");
        match (name, value) {
            ("side", "data") => parameters.side = Side::Data,
            ("side", "code") => parameters.side = Side::Code,
            ("method", "basic") => parameters.method = Method::Basic,
            ("method", "refined") => parameters.method = Method::Refined,
            ("by", "interrupt") => parameters.by = By::Interrupt,
            ("by", "program") => parameters.by = By::Program,
            ("ways", _) => parameters.ways = number()?,
            ("data", _) => parameters.data = number()?,
            ("code", _) => parameters.code = number()?,
            ("cache", _) => parameters.cache = number()?,
            ("line", _) => parameters.line = number()?,
            ("repetitions", _) => parameters.repetitions = number()?,
            ("passes", _) => parameters.passes = number()?,
            ("delay", _) => parameters.delay = number()?,
            ("wait", _) => parameters.wait = number()?,
            // This argument is repeated: the n-th `event` is for the n-th counter.
            ("event", _) => {
                *parameters.events.get_mut(event_count).ok_or("error events")? = number()?;
                event_count += 1;
            }
            _ => return Err("error word"),
        }
    }
    let is_line = parameters.line.is_power_of_two() && (16..=256).contains(&parameters.line);
    let is_in_range = is_line
        && parameters.data <= LINES_MAX
        && parameters.code <= LINES_MAX
        && parameters.cache >= 4 * parameters.line
        && parameters.cache <= CACHE_BYTES_MAX
        && (1..=WAYS_MAX as u64).contains(&parameters.ways)
        && parameters.cache.is_multiple_of(parameters.line * parameters.ways)
        && (1..=REPETITIONS_MAX).contains(&parameters.repetitions)
        && (2..=1 << 20).contains(&parameters.passes)
        && (1..=u64::from(u32::MAX)).contains(&parameters.delay);
    is_in_range.then_some(parameters).ok_or("error range")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_command_line_is_parsed() {
        let line =
            b"noise loop=detour body=walk bytes=4096 quantum=7 repetitions=3 window=9 threshold=1";
        let Ok(Command { program: Program::Noise(order) }) = Command::parse(line) else {
            panic!("refused");
        };
        assert_eq!((order.looping, order.body, order.bytes), (Loop::Detour, Body::Walk, 4096));
        assert_eq!((order.repetitions, order.window, order.iterations), (3, 9, 0));
    }

    #[test]
    fn nonsense_is_refused() {
        for line in [
            "",
            "footprints",
            "noise",
            "noise loop=hoop",
            "noise quantum",
            "noise quantum=-1 repetitions=1",
            "noise quantum=1 repetitions=131073",
            "noise quantum=1 repetitions=1 body=walk bytes=64",
            "noise quantum=1 repetitions=1 bytes=999999999999",
        ] {
            assert!(Command::parse(line.as_bytes()).is_err(), "{line}");
        }
        assert!(Command::parse(b"noise \xff").is_err());
        let good = "footprint cache=16384 line=32 repetitions=2 delay=5";
        assert!(Command::parse(good.as_bytes()).is_ok());
        for more in [
            "data=32769",
            "line=48",
            "line=8",
            "ways=0",
            "ways=65",
            "ways=3",
            "cache=64",
            "passes=1",
            "delay=0",
            "event=x",
        ] {
            assert!(Command::parse(format!("{good} {more}").as_bytes()).is_err(), "{more}");
        }
        let events = " event=1".repeat(COUNTERS + 1);
        assert!(Command::parse(format!("{good}{events}").as_bytes()).is_err());
    }
}
