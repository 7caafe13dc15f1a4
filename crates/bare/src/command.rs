//! What the program is to do: words of its command line, `noise loop=fwq quantum=100000 ...`.

use crate::ring::WAYS_MAX;

/// What the loops of `noise` do.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Loop {
    /// Fixed work.
    Fwq,
    /// Fixed time.
    Ftq,
    /// The clock alone.
    Detour,
}

/// The work of a turn: the bodies of the live loops.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Body {
    /// Additions that wait for one another.
    Add,
    /// Multiplications and rotations that do not wait.
    Alu,
    /// Loads; of which memory, is a matter of its size.
    Walk,
    /// Branches that cannot be predicted.
    Branch,
}

/// What `noise` is to do. Times are cycles of the time-stamp counter.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Noise {
    /// Which loop.
    pub looping: Loop,
    /// What it does in a turn.
    pub body: Body,
    /// Memory that the body walks through, bytes.
    pub bytes: u64,
    /// Length of a quantum of work, or of a slot.
    pub quantum: u64,
    /// Turns of the body in a quantum; 0: as many as take `quantum`.
    pub turns: u64,
    /// Quanta or slots, 1 to [`RECORDS_MAX`].
    pub repetitions: u64,
    /// Length of the window of the detour loop.
    pub window: u64,
    /// Gaps longer than this are detours.
    pub threshold: u64,
    /// Quanta before those that count.
    pub warm_up: u64,
}

/// Which cache is filled, and by what.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Side {
    /// With data, by a chase of pointers.
    Data,
    /// With instructions, by a routine of forward branches.
    Code,
}

/// The paper's Figure 1.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Method {
    /// Fill, wait, touch again.
    Basic,
    /// Touch all the time.
    Refined,
}

/// What displaces lines.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum By {
    /// The handler of an interrupt.
    Interrupt,
    /// The program itself, by as many lines: what a displaced line costs.
    Program,
}

/// What `footprint` is to do.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Footprint {
    /// Data lines that the handler touches.
    pub data: u64,
    /// Instruction lines that it touches.
    pub code: u64,
    /// Size of the cache that is filled, bytes.
    pub cache: u64,
    /// Its line, bytes: a power of two from 16 to 256.
    pub line: u64,
    /// Lines of a set, 1 to [`WAYS_MAX`].
    pub ways: u64,
    /// What displaces.
    pub by: By,
    /// With what it is filled.
    pub side: Side,
    /// In which way.
    pub method: Method,
    /// Repetitions with an interrupt, and as many without.
    pub repetitions: u64,
    /// Times that all lines are touched in a repetition of the refined method.
    pub passes: u64,
    /// When the interrupt comes, in steps of the local APIC's timer (ns here) after it is scheduled.
    pub delay: u64,
    /// How long the basic method waits, cycles of the time-stamp counter.
    pub wait: u64,
    /// Whether to read performance counters: event selects, 0 for none.
    pub events: [u64; COUNTERS],
}

/// Performance counters of the guest's processor.
pub const COUNTERS: usize = 6;
/// Most lines that a handler touches, of a kind.
pub const LINES_MAX: u64 = 1 << 15;
/// Largest cache that is filled, bytes.
pub const CACHE_BYTES_MAX: u64 = 64 << 20;
/// Most repetitions.
pub const REPETITIONS_MAX: u64 = 1 << 12;

/// What was asked for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Program {
    /// A loop that nobody disturbs.
    Noise(Noise),
    /// A cache that an interrupt handler of known size disturbs.
    Footprint(Footprint),
}

/// A command line, read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Command {
    /// What to run.
    pub program: Program,
}

/// Most quanta, slots or detours of a window.
pub const RECORDS_MAX: u64 = 1 << 17;
/// Most memory that is walked through, bytes.
pub const BYTES_MAX: u64 = 256 << 20;

impl Command {
    /// Reads a command line: a program, then `name=value` in any order; what is not named is 0, or
    /// the first of its kind.
    ///
    /// # Errors
    /// Words for the host, when it is none.
    pub fn parse(line: &[u8]) -> Result<Command, &'static str> {
        let line = core::str::from_utf8(line).map_err(|_| "error command-line")?;
        // What the firmware or the loader may put before is not ours.
        let mut words = line.split_ascii_whitespace();
        match words.next() {
            Some("noise") => noise(words).map(|order| Command { program: Program::Noise(order) }),
            Some("footprint") => {
                footprint(words).map(|order| Command { program: Program::Footprint(order) })
            }
            _ => Err("error program"),
        }
    }
}

fn noise<'a>(words: impl Iterator<Item = &'a str>) -> Result<Noise, &'static str> {
    let mut order = Noise {
        looping: Loop::Fwq,
        body: Body::Add,
        bytes: 0,
        quantum: 0,
        turns: 0,
        repetitions: 0,
        window: 0,
        threshold: 0,
        warm_up: 0,
    };
    for word in words {
        let (name, value) = word.split_once('=').ok_or("error word")?;
        let number = || value.parse::<u64>().map_err(|_| "error number");
        match (name, value) {
            ("loop", "fwq") => order.looping = Loop::Fwq,
            ("loop", "ftq") => order.looping = Loop::Ftq,
            ("loop", "detour") => order.looping = Loop::Detour,
            ("body", "add") => order.body = Body::Add,
            ("body", "alu") => order.body = Body::Alu,
            ("body", "branch") => order.body = Body::Branch,
            ("body", "walk") => order.body = Body::Walk,
            ("bytes", _) => order.bytes = number()?,
            ("quantum", _) => order.quantum = number()?,
            ("turns", _) => order.turns = number()?,
            ("repetitions", _) => order.repetitions = number()?,
            ("window", _) => order.window = number()?,
            ("threshold", _) => order.threshold = number()?,
            ("warm_up", _) => order.warm_up = number()?,
            _ => return Err("error word"),
        }
    }
    let is_right = (1..=RECORDS_MAX).contains(&order.repetitions)
        && order.bytes <= BYTES_MAX
        && order.quantum > 0
        && (order.body != Body::Walk || order.bytes >= 128);
    is_right.then_some(order).ok_or("error range")
}

fn footprint<'a>(words: impl Iterator<Item = &'a str>) -> Result<Footprint, &'static str> {
    let mut order = Footprint {
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
    let mut named = 0;
    for word in words {
        let (name, value) = word.split_once('=').ok_or("error word")?;
        let number = || value.parse::<u64>().map_err(|_| "error number");
        match (name, value) {
            ("side", "data") => order.side = Side::Data,
            ("side", "code") => order.side = Side::Code,
            ("method", "basic") => order.method = Method::Basic,
            ("method", "refined") => order.method = Method::Refined,
            ("by", "interrupt") => order.by = By::Interrupt,
            ("by", "program") => order.by = By::Program,
            ("ways", _) => order.ways = number()?,
            ("data", _) => order.data = number()?,
            ("code", _) => order.code = number()?,
            ("cache", _) => order.cache = number()?,
            ("line", _) => order.line = number()?,
            ("repetitions", _) => order.repetitions = number()?,
            ("passes", _) => order.passes = number()?,
            ("delay", _) => order.delay = number()?,
            ("wait", _) => order.wait = number()?,
            // One word for each counter, in order.
            ("event", _) => {
                *order.events.get_mut(named).ok_or("error events")? = number()?;
                named += 1;
            }
            _ => return Err("error word"),
        }
    }
    let is_line = order.line.is_power_of_two() && (16..=256).contains(&order.line);
    let is_right = is_line
        && order.data <= LINES_MAX
        && order.code <= LINES_MAX
        && order.cache >= 4 * order.line
        && order.cache <= CACHE_BYTES_MAX
        && (1..=WAYS_MAX as u64).contains(&order.ways)
        && order.cache.is_multiple_of(order.line * order.ways)
        && (1..=REPETITIONS_MAX).contains(&order.repetitions)
        && (2..=1 << 20).contains(&order.passes)
        && (1..=u64::from(u32::MAX)).contains(&order.delay);
    is_right.then_some(order).ok_or("error range")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_is_read() {
        let line =
            b"noise loop=detour body=walk bytes=4096 quantum=7 repetitions=3 window=9 threshold=1";
        let Ok(Command { program: Program::Noise(order) }) = Command::parse(line) else {
            panic!("refused");
        };
        assert_eq!((order.looping, order.body, order.bytes), (Loop::Detour, Body::Walk, 4096));
        assert_eq!((order.repetitions, order.window, order.turns), (3, 9, 0));
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
