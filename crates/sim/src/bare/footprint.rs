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

/// What to measure.
#[derive(Clone, Debug)]
pub struct FootprintSettings {
    /// The processor; its caches say what is filled.
    pub model: Model,
    /// Which cache.
    pub level: Level,
    /// In which way.
    pub method: Method,
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

impl FootprintSettings {
    /// Size and line of the cache that is filled, bytes.
    #[must_use]
    pub fn geometry(&self) -> (u64, u64) {
        let model = &self.model.model;
        let cache = match self.level {
            Level::L1d => &model.l1d,
            Level::L1i => &model.l1i,
            Level::L2 => &model.l2,
        };
        (cache.cache.size_bytes, cache.cache.line_bytes)
    }

    fn command_line(&self) -> String {
        let (cache, line) = self.geometry();
        let side = if self.level == Level::L1i { "code" } else { "data" };
        let method = if self.method == Method::Basic { "basic" } else { "refined" };
        let events: String = self.events.iter().map(|event| format!(" event={event}")).collect();
        format!(
            "footprint side={side} method={method} data={} code={} cache={cache} line={line} \
             repetitions={} passes={} delay={} wait={}{events}",
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
) -> Result<Option<Vec<Repetition>>> {
    let how = crate::watch::Watch { quantum: settings.quantum, ..watch(Some(&settings.model)) };
    let pmu = !settings.events.is_empty();
    let ran = run(cache, qemu, &how, pmu, &settings.command_line(), settings.limits, stop)?;
    ran.map(|ran| joined(&ran, settings.events.len())).transpose()
}

/// What the program said of each repetition with what the simulator counted in it.
fn joined(ran: &Ran, events: usize) -> Result<Vec<Repetition>> {
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
    joined.ok_or_else(|| SimError::data("the bare machine", "a repetition is not understood"))
}
