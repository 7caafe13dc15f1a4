//! A cache that is filled, and an interrupt whose handler touches a known number of lines: the ground
//! truth for methods that find that number from outside (`docs/bare.md`).

use super::{Ran, run, watch};
use crate::boot::Limits;
use crate::counters::Counts;
use crate::models::Model;
use crate::qemu::Qemu;
use crate::{Cache, Result, SimError};

/// Counters of the guest's PMU.
pub const PMU_COUNTERS: usize = 6;
/// Most lines that the handler touches, of a kind; as `bare::command::LINES_MAX`.
pub const LINES_MAX: u64 = 1 << 15;
/// Most repetitions; as `bare::command::REPETITIONS_MAX`.
pub const REPETITIONS_MAX: u64 = 1 << 12;

/// The cache that is filled.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Level {
    /// L1, with data.
    L1d,
    /// L1, with instructions.
    L1i,
    /// L2, with data.
    L2,
}

/// The paper's methods.
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
    /// The program itself, with as many lines: what a displaced line costs. Basic method only.
    Program,
}

/// What to measure.
#[derive(Clone, Debug)]
pub struct FootprintSettings {
    /// The processor, and the level of detail; its caches say what is filled.
    pub model: Model,
    /// Which cache.
    pub level: Level,
    /// In which way.
    pub method: Method,
    /// What displaces.
    pub by: By,
    /// Data lines that the handler touches, at most [`LINES_MAX`].
    pub data_lines: u64,
    /// Instruction lines that it touches, at most [`LINES_MAX`].
    pub code_lines: u64,
    /// Repetitions, each without and with an interrupt; 1 to [`REPETITIONS_MAX`].
    pub repetitions: u64,
    /// Times that all lines are touched in a repetition of the refined method; at least 2.
    pub passes: u64,
    /// When the interrupt comes after it is scheduled, ns.
    pub delay_ns: u64,
    /// How long the basic method waits, ns.
    pub wait_ns: u64,
    /// Event selects of the guest's PMU that the program reads; at most [`PMU_COUNTERS`].
    pub events: Vec<u64>,
    /// Cycles of a slice: the steps in which the program's clock shows the model's time.
    pub quantum: u64,
    /// How long the machine may run.
    pub limits: Limits,
}

/// What a run says.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Footprints {
    /// In turns: without an interrupt, and with it.
    pub repetitions: Vec<Repetition>,
    /// What the handler touches besides what it is told.
    pub own: Own,
}

/// What the handler touches of its own: physical addresses, bytes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Own {
    /// The least address of its stack.
    pub stack: u64,
    /// Begin of its instructions.
    pub code: u64,
    /// Their end.
    pub code_end: u64,
    /// Begin of the table that it reads.
    pub work: u64,
}

/// One repetition.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Repetition {
    /// Whether an interrupt was scheduled.
    pub irq: bool,
    /// How often the handler ran.
    pub ran: u64,
    /// What the last touch of all lines took, cycles of the program's clock (ns).
    pub touch: u64,
    /// From the start of the counters to their end, the same.
    pub all: u64,
    /// What the program read of its PMU.
    pub read: [u64; PMU_COUNTERS],
    /// What the simulator counted from marker to marker, in the order of [`crate::counters::name`].
    pub exact: Counts,
}

/// Size of a cache.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Geometry {
    /// All of it, bytes.
    pub bytes: u64,
    /// A line, bytes.
    pub line_bytes: u64,
    /// Lines of a set.
    pub ways: u64,
}

impl Geometry {
    /// Lines in all.
    #[must_use]
    pub fn lines(self) -> u64 {
        self.bytes / self.line_bytes
    }

    /// Sets.
    #[must_use]
    pub fn sets(self) -> u64 {
        self.lines() / self.ways
    }
}

impl FootprintSettings {
    /// The cache that is filled.
    #[must_use]
    pub fn geometry(&self) -> Geometry {
        let model = &self.model.model;
        let cache = match self.level {
            Level::L1d => &model.l1d,
            Level::L1i => &model.l1i,
            Level::L2 => &model.l2,
        };
        let cache = &cache.cache;
        Geometry {
            bytes: cache.size_bytes,
            line_bytes: cache.line_bytes,
            ways: u64::from(cache.ways),
        }
    }

    fn command_line(&self) -> String {
        let Geometry { bytes, line_bytes, ways } = self.geometry();
        let by = if self.by == By::Program { "program" } else { "interrupt" };
        let side = if self.level == Level::L1i { "code" } else { "data" };
        let method = if self.method == Method::Basic { "basic" } else { "refined" };
        let events: String = self.events.iter().map(|event| format!(" event={event}")).collect();
        format!(
            "footprint side={side} method={method} by={by} data={} code={} cache={bytes} \
             line={line_bytes} ways={ways} repetitions={} passes={} delay={} wait={}{events}",
            self.data_lines,
            self.code_lines,
            self.repetitions,
            self.passes,
            self.delay_ns,
            self.wait_ns
        )
    }
}

/// Runs it; none when `stop` says that it is not wanted.
///
/// # Errors
/// When the machine does not run, or says what it should not.
pub fn footprint(
    cache: &Cache,
    qemu: &Qemu,
    settings: &FootprintSettings,
    stop: &dyn Fn() -> bool,
) -> Result<Option<Footprints>> {
    let how = crate::watch::Watch { quantum: settings.quantum, ..watch(Some(&settings.model)) };
    let pmu = !settings.events.is_empty();
    let ran = run(cache, qemu, &how, pmu, &settings.command_line(), settings.limits, stop)?;
    ran.map(|ran| joined(&ran, settings.events.len())).transpose()
}

/// What the program said of each repetition with what the simulator counted in it.
fn joined(ran: &Ran, events: usize) -> Result<Footprints> {
    let (said, regions) = (&ran.said.repetitions, &ran.account.regions);
    if said.len() != regions.len() {
        let what = format!("{} repetitions in {} regions", said.len(), regions.len());
        return Err(SimError::data("the record of the machine", what));
    }
    let join = |(numbers, region): (&Vec<u64>, &crate::RegionUse)| {
        let [irq, happened, touch, all, read @ ..] = numbers.as_slice() else { return None };
        let mut counters = [0; PMU_COUNTERS];
        counters.get_mut(..read.len())?.copy_from_slice(read);
        (read.len() == events).then_some(Repetition {
            irq: *irq != 0,
            ran: *happened,
            touch: *touch,
            all: *all,
            read: counters,
            exact: region.cpus.first()?.used,
        })
    };
    let joined: Option<Vec<Repetition>> = said.iter().zip(regions).map(join).collect();
    let not_understood = || SimError::data("the bare machine", "a repetition is not understood");
    let [stack, code, code_end, work] = ran.said.own.ok_or_else(not_understood)?;
    let own = Own { stack, code, code_end, work };
    Ok(Footprints { repetitions: joined.ok_or_else(not_understood)?, own })
}
