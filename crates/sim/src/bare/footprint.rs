//! The experiment `footprint` on the machine without a kernel (`docs/bare.md`). The program fills a cache, and an
//! interrupt handler touches a known number of lines. This number is the ground truth for methods that estimate it.
//!
//! `crates/bare` parses the options of [`FootprintSettings::command_line`], and has the same limits: both sides change
//! together.

use super::{RunOutcome, run, watch};
use crate::boot::Limits;
use crate::counters::Counts;
use crate::models::Model;
use crate::qemu::Qemu;
use crate::{Cache, Result, SimError};

/// Number of counters of the guest's PMU.
pub const PMU_COUNTERS: usize = 6;
/// Maximum number of data lines, and of instruction lines, that the handler touches; equal to
/// `bare::command::LINES_MAX`.
pub const LINES_MAX: u64 = 1 << 15;
/// Maximum number of repetitions; equal to `bare::command::REPETITIONS_MAX`.
pub const REPETITIONS_MAX: u64 = 1 << 12;

/// The cache that the program fills.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Level {
    L1d,
    L1i,
    /// The program fills it with data.
    L2,
}

/// The methods of the paper `footprint-1999` (`docs/bare.md`).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Method {
    /// Fills the cache, waits, and touches all lines again.
    Basic,
    /// Touches all lines again and again while the interrupt arrives.
    Refined,
}

/// The code that displaces lines.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum By {
    /// The handler of an interrupt.
    Interrupt,
    /// The program itself displaces the same number of lines. This run calibrates the cost of a displaced
    /// line; it needs the basic method.
    Program,
}

/// The parameters of a run.
#[derive(Clone, Debug)]
pub struct FootprintSettings {
    /// The processor and the level of detail. The program fills a cache with the geometry of this model.
    pub model: Model,
    /// The cache that the program fills.
    pub level: Level,
    pub method: Method,
    pub by: By,
    /// Data lines that the handler touches, at most [`LINES_MAX`].
    pub data_lines: u64,
    /// Instruction lines that the handler touches, at most [`LINES_MAX`].
    pub code_lines: u64,
    /// Repetitions, each without and with an interrupt; 1 to [`REPETITIONS_MAX`].
    pub repetitions: u64,
    /// Passes over all lines in a repetition of the refined method; at least 2.
    pub passes: u64,
    /// Time from scheduling the interrupt to its arrival, ns.
    pub delay_ns: u64,
    /// Waiting time of the basic method, ns.
    pub wait_ns: u64,
    /// Event selects of the guest's PMU that the program reads; at most [`PMU_COUNTERS`].
    pub events: Vec<u64>,
    /// Length of a vCPU time slice, cycles. The program's clock advances in steps of this length.
    pub vcpu_slice: u64,
    /// How long the machine may run.
    pub limits: Limits,
}

/// The results of a run.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Footprints {
    /// Repetitions, alternately without and with an interrupt.
    pub repetitions: Vec<Repetition>,
    /// Memory that the handler touches in addition to its data and instruction lines.
    pub own: Own,
}

/// Physical addresses of the memory that the handler touches in addition to its data and instruction lines.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Own {
    /// The lowest address of its stack.
    pub stack: u64,
    /// Start of its instructions.
    pub code: u64,
    /// End of its instructions.
    pub code_end: u64,
    /// Start of the table that it reads.
    pub work: u64,
    /// The gate that the processor reads as it enters the handler.
    pub gate: u64,
    /// The descriptor of the code segment that the processor reads after the gate.
    pub descriptor: u64,
}

/// A repetition: what the program and the simulator measured.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Repetition {
    /// Whether an interrupt was scheduled.
    pub irq: bool,
    /// How often the handler ran.
    pub ran: u64,
    /// Time of the last pass over all lines, cycles of the program's clock (ns).
    pub touch: u64,
    /// Time from the start of the counters to their end, cycles of the program's clock (ns).
    pub all: u64,
    /// Values that the program read from its PMU; 0 for unused counters.
    pub read: [u64; PMU_COUNTERS],
    /// The simulator's counters from marker to marker, in the order of [`crate::counters::name`].
    pub exact: Counts,
}

/// Size and shape of a cache.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Geometry {
    pub bytes: u64,
    /// Size of a line, bytes.
    pub line_bytes: u64,
    pub ways: u64,
}

impl Geometry {
    /// Returns the number of lines.
    #[must_use]
    pub fn lines(self) -> u64 {
        self.bytes / self.line_bytes
    }

    /// Returns the number of sets.
    #[must_use]
    pub fn sets(self) -> u64 {
        self.lines() / self.ways
    }
}

impl FootprintSettings {
    /// Returns the geometry of the cache that the program fills. A caller refuses [`Level::L2`] for a model without an L2;
    /// here it would mean L1D.
    #[must_use]
    pub fn geometry(&self) -> Geometry {
        let model = &self.model.model;
        let cache = match self.level {
            Level::L1d => &model.l1d,
            Level::L1i => &model.l1i,
            Level::L2 => model.l2.as_ref().unwrap_or(&model.l1d),
        };
        Geometry {
            bytes: cache.size_bytes,
            line_bytes: cache.line_bytes,
            ways: u64::from(cache.ways),
        }
    }

    /// Returns the options of the program.
    fn command_line(&self) -> String {
        let Geometry { bytes, line_bytes, ways } = self.geometry();
        let displacer = if self.by == By::Program { "program" } else { "interrupt" };
        let side = if self.level == Level::L1i { "code" } else { "data" };
        let method = if self.method == Method::Basic { "basic" } else { "refined" };
        let events: String = self.events.iter().map(|event| format!(" event={event}")).collect();
        format!(
            "footprint side={side} method={method} by={displacer} data={} code={} cache={bytes} \
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

/// Runs the experiment. Returns `None` if `stop` returned true.
///
/// Fails when the machine does not run, or its output is malformed.
pub fn footprint(
    cache: &Cache,
    qemu: &Qemu,
    settings: &FootprintSettings,
    stop: &dyn Fn() -> bool,
) -> Result<Option<Footprints>> {
    let observation =
        crate::watch::Watch { vcpu_slice: settings.vcpu_slice, ..watch(Some(&settings.model)) };
    let pmu = !settings.events.is_empty();
    let outcome =
        run(cache, qemu, &observation, pmu, &settings.command_line(), settings.limits, stop)?;
    outcome.map(|run| join_footprints(&run, settings.events.len())).transpose()
}

/// Joins the program's output for each repetition with the simulator's counters of the repetition. `events`: the
/// number of counters that the program read.
fn join_footprints(run: &RunOutcome, events: usize) -> Result<Footprints> {
    let (repetitions, regions) = (&run.output.repetitions, &run.accounting.regions);
    if repetitions.len() != regions.len() {
        let reason = format!("{} repetitions in {} regions", repetitions.len(), regions.len());
        return Err(SimError::data("the record of the machine", reason));
    }
    let join = |(numbers, region): (&Vec<u64>, &crate::RegionUse)| {
        let [irq, handled, touch, all, read @ ..] = numbers.as_slice() else { return None };
        let mut counters = [0; PMU_COUNTERS];
        counters.get_mut(..read.len())?.copy_from_slice(read);
        (read.len() == events).then_some(Repetition {
            irq: *irq != 0,
            ran: *handled,
            touch: *touch,
            all: *all,
            read: counters,
            exact: region.cpus.first()?.used,
        })
    };
    let joined: Option<Vec<Repetition>> = repetitions.iter().zip(regions).map(join).collect();
    let malformed = || SimError::data("the bare machine", "a repetition is malformed");
    let [stack, code, code_end, work, gate, descriptor] = run.output.own.ok_or_else(malformed)?;
    let handler = Own { stack, code, code_end, work, gate, descriptor };
    Ok(Footprints { repetitions: joined.ok_or_else(malformed)?, own: handler })
}
