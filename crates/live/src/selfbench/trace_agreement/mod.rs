//! Does irqlab tell the truth? The kernel's own trace of the *same* interrupts says.
//!
//! # Method
//! Three trace instances, G, H and I, record `irq_handler_entry` and `irq_handler_exit` into their
//! ring buffers, in the clock that irqlab reads, while irqlab's probes (B) are on the same two
//! tracepoints. The probes of a tracepoint run in the order in which they were attached, and that
//! is chosen such that the handler's work W is innermost:
//!
//! ```text
//!    entry:  G   B   H   I      W      exit:  H   I   B   G
//!            │   │   │   └──────────────────┘   │   │   │    between
//!            │   │   ├───┘                  ├───┘   │   │    entry gap, exit gap
//!            │   └──────────────────────────────────┘   │    what irqlab counts
//!            ├───────┘                          ├───────┘    entry stretch, exit stretch
//! ```
//!
//! From one time stamp to the next lies exactly one run of a trace probe (the end of one's, the
//! begin of the other's), and in the stretches one run of irqlab's programs besides. So each
//! interrupt itself tells what the probes cost, in the caches as they are at that moment:
//!
//! - `between` holds W, the end of I's entry probe and the begin of H's exit probe. One end and
//!   one begin are one probe: the mean of the two gaps. W by trace = between - (entry gap + exit
//!   gap) / 2.
//! - irqlab's span holds W, both trace probes at both ends, and that part of its own probes which
//!   its calibration subtracts, as in every measurement. W by irqlab = span - 2 (entry gap + exit
//!   gap).
//! - The stretches less the gaps are what irqlab's two programs cost in place. WarmOverhead measures
//!   them in a hot loop, where they are cheaper: what they cost inside a span beyond that remains
//!   in the W by irqlab.
//! - How much that is, other windows of the run tell, in which a span without any work in it is
//!   opened and closed at the handlers' entry. With its length subtracted instead of what
//!   calibration says, there is a second W by irqlab, "in place".
//!
//! G is there for the stretches, and to warm up the code of the trace probes before H and I.
//! What this takes for granted: H's probe costs what I's does, and the begin of an entry probe what
//! the begin of an exit probe does. Errors of irqlab's calibration are not hidden: they are in its
//! first W and not in the trace's.
//!
//! # The same interrupts
//! irqlab aggregates in the kernel and keeps no record of each interrupt; that is what is tested,
//! so nothing is added to it. But its window opens and closes on each CPU between two interrupts
//! (the gate runs there with interrupts off) and says when by the same clock. So the handler runs
//! in the trace that lie in that window, matched in the three instances one by one by time and
//! line, are the ones that irqlab counted, and the counts must be equal, to the last one.
//!
//! There is one exception: a kernel may not call BPF programs in threads of PID 1 (docs/handlers.md,
//! "Counted by the kernel, never handed to BPF"). The trace says in which thread each interrupt
//! came, so these are counted apart, and left out when irqlab did not see them.
//!
//! Between such windows there are others without any trace, for what the handler takes alone.

mod buffer;
mod matching;
mod windows;

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::time::Duration;

use lab::experiment::BenchError;

use super::{bpf_error, failed, stimulus_error};
use crate::bpf::Flavour;
use crate::probe_overhead::calibrate;
use crate::stimulus::{Helper, Rate, Running, Source, StimulusSettings, start};
use crate::window::Stop;
use windows::Windows;

/// Longest window: the buffers hold what a fast disk raises in it.
pub const WINDOW_MAX: Duration = Duration::from_secs(3);

/// How to measure.
#[derive(Clone, Debug)]
pub struct TraceAgreementSettings {
    /// CPUs to watch.
    pub cpus: Vec<u32>,
    /// Windows with the trace, and as many without.
    pub rounds: u32,
    /// Length of a window, up to [`WINDOW_MAX`].
    pub window: Duration,
    /// File or block device to read instead of a scratch file.
    pub disk_file: Option<PathBuf>,
    /// The program that serves the stimulus; by default this one.
    pub helper: Option<PathBuf>,
}

/// Handler runs in the trace, in irqlab's window. Sums in ns.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct TraceSums {
    /// Runs.
    pub count: u64,
    /// From H's entry to H's exit: the trace as its users see it.
    pub span: u64,
    /// From I's entry to H's exit.
    pub between: u64,
    /// From H's entry to I's, and from H's exit to I's.
    pub gaps: u64,
    /// From G's entry to H's, and from I's exit to G's.
    pub stretches: u64,
}

/// What was seen of one line, all CPUs together. Sums in ns.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct LineSums {
    /// The action's name.
    pub name: String,
    /// Interrupts that irqlab counted.
    pub counted: u64,
    /// Its spans, what it adds inside already subtracted.
    pub span: u64,
    /// Spans that were shorter than that.
    pub clamped: u64,
    /// The trace of these interrupts.
    pub trace: TraceSums,
    /// Interrupts in the trace that came in threads of PID 1 and that irqlab was not told of.
    pub undelivered: u64,
    /// Interrupts counted in the windows without trace.
    pub alone_counted: u64,
    /// Their spans.
    pub alone_span: u64,
}

fn mean(sum: u64, count: u64) -> f64 {
    if count == 0 { f64::NAN } else { sum as f64 / count as f64 }
}

impl TraceSums {
    /// A trace probe's run at entry and at exit together, ns.
    #[must_use]
    pub fn gaps_ns(&self) -> f64 {
        mean(self.gaps, self.count)
    }

    /// The handler's work by the kernel's trace, ns.
    #[must_use]
    pub fn work_ns(&self) -> f64 {
        mean(self.between, self.count) - self.gaps_ns() / 2.0
    }

    fn add(&mut self, other: &TraceSums) {
        self.count += other.count;
        self.span += other.span;
        self.between += other.between;
        self.gaps += other.gaps;
        self.stretches += other.stretches;
    }

    /// irqlab's two programs together, in place, ns.
    #[must_use]
    pub fn pair_ns(&self) -> f64 {
        mean(self.stretches, self.count) - self.gaps_ns()
    }
}

impl LineSums {
    /// The handler's work by irqlab, ns.
    #[must_use]
    pub fn work_ns(&self) -> f64 {
        mean(self.span, self.counted) - 2.0 * self.trace.gaps_ns()
    }

    /// What irqlab says over what the trace says.
    #[must_use]
    pub fn ratio(&self) -> f64 {
        self.work_ns() / self.trace.work_ns()
    }

    fn add(&mut self, other: &LineSums) {
        if self.name.is_empty() {
            self.name.clone_from(&other.name);
        }
        self.counted += other.counted;
        self.span += other.span;
        self.clamped += other.clamped;
        self.trace.add(&other.trace);
        self.undelivered += other.undelivered;
        self.alone_counted += other.alone_counted;
        self.alone_span += other.alone_span;
    }
}

/// What came of it.
#[derive(Clone, Debug, Default)]
pub struct TraceAgreement {
    /// All rounds together, by line.
    pub lines: BTreeMap<u32, LineSums>,
    /// Each round by itself.
    pub rounds: Vec<BTreeMap<u32, LineSums>>,
    /// What irqlab's calibration says its pair adds inside a span, ns; subtracted.
    pub inside_ns: u64,
    /// And in all, ns.
    pub added_ns: u64,
    /// Zero-work spans at the handlers' entry: number, and sum in ns.
    pub zero_work: (u64, u64),
    /// Events that irqlab lost.
    pub lost: u64,
    /// Whether it was cut short.
    pub interrupted: bool,
}

impl TraceAgreement {
    /// What irqlab's pair adds inside a span, measured in place, ns.
    #[must_use]
    pub fn inside_in_place_ns(&self) -> f64 {
        mean(self.zero_work.1, self.zero_work.0)
    }

    /// The handler's work by irqlab with that subtracted instead of what calibration says, ns.
    #[must_use]
    pub fn work_in_place_ns(&self, line: &LineSums) -> f64 {
        line.work_ns() + self.inside_ns as f64 - self.inside_in_place_ns()
    }
}

/// Reads the disk and compares.
///
/// # Errors
/// [`BenchError::Unavailable`] or [`BenchError::NothingMeasurable`] when there is no disk, no trace
/// or no BPF to be had here.
pub fn measure(
    settings: &TraceAgreementSettings,
    stop: &Stop,
    progress: &mut dyn FnMut(u32),
) -> Result<TraceAgreement, BenchError> {
    let cpu = *settings.cpus.first().ok_or_else(|| failed("the bench", "no CPU to watch"))?;
    let flavour = Flavour::of_this_kernel();
    let calibration = calibrate(flavour, cpu, None).map_err(bpf_error)?;
    let window = settings.window.min(WINDOW_MAX);
    let windows = Windows::new(&settings.cpus, window, flavour, &calibration)?;
    let mut disk = start_disk(settings)?;
    let mut result = TraceAgreement {
        inside_ns: calibration.in_span_ns,
        added_ns: calibration.total_ns,
        ..TraceAgreement::default()
    };
    for round in 0..settings.rounds {
        if stop.is_requested() {
            result.interrupted = true;
            break;
        }
        progress(round);
        let mut lines = windows.with_trace()?;
        windows.alone(&mut lines)?;
        let (spans, ns) = windows.zero_work()?;
        result.zero_work.0 += spans;
        result.zero_work.1 += ns;
        disk.check().map_err(stimulus_error)?;
        for (irq, line) in &lines {
            result.lines.entry(*irq).or_default().add(line);
        }
        result.rounds.push(lines);
    }
    disk.stop().map_err(stimulus_error)?;
    result.lost = windows.lost()?;
    Ok(result)
}

fn start_disk(settings: &TraceAgreementSettings) -> Result<Running, BenchError> {
    let helper = match &settings.helper {
        Some(program) => Helper::new(program),
        None => Helper::current_exe().map_err(|error| failed("finding this program", error))?,
    };
    let mut stimulus = StimulusSettings::new(Source::Disk, Rate::High, settings.cpus.clone());
    stimulus.disk_file.clone_from(&settings.disk_file);
    start(&stimulus, &helper).map_err(stimulus_error)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_example_of_the_method() {
        // W = 1000. A trace probe takes 30 before its time stamp and 70 after. irqlab's programs
        // take 200 in place, 100 of it inside the span; calibration subtracted 50, so 50 remain.
        let trace = TraceSums {
            count: 2,
            span: 2 * (1000 + 200),
            between: 2 * (1000 + 70 + 30),
            gaps: 2 * 200,
            stretches: 2 * (200 + 200),
        };
        let line =
            LineSums { counted: 2, span: 2 * (1000 + 4 * 100 + 50), trace, ..LineSums::default() };
        assert_eq!((trace.work_ns(), trace.pair_ns()), (1000.0, 200.0));
        assert_eq!((line.work_ns(), line.ratio()), (1050.0, 1.05));
    }

    #[test]
    fn nothing_seen_is_no_number() {
        assert!(LineSums::default().ratio().is_nan());
    }
}
