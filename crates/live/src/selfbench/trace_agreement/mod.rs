//! Compares irqlab's times with the kernel's own trace of the *same* interrupts (`irqlab bench trace-agreement`).
//!
//! # Method
//! Three trace instances, G, H and I, record `irq_handler_entry` and `irq_handler_exit` into their
//! ring buffers, in the clock that irqlab reads. irqlab's probes (B) are on the same two
//! tracepoints at the same time. A tracepoint calls its probes in the order of their attachment.
//! That order puts the handler's work W innermost:
//!
//! ```text
//!    entry:  G   B   H   I      W      exit:  H   I   B   G
//!            │   │   │   └──────────────────┘   │   │   │    between
//!            │   │   ├───┘                  ├───┘   │   │    entry gap, exit gap
//!            │   └──────────────────────────────────┘   │    what irqlab counts
//!            ├───────┘                          ├───────┘    entry bracket, exit bracket
//! ```
//!
//! Two neighbouring time stamps are one run of a trace probe apart: the end of the first probe, and the start of the
//! second. A bracket also contains one run of irqlab's programs. Therefore each interrupt shows the cost of the probes
//! in the cache state of its time:
//!
//! - `between` contains W, the end of I's entry probe and the start of H's exit probe. One end and
//!   one start make one probe, whose cost is the mean of the two gaps. W by trace = between -
//!   (entry gap + exit gap) / 2.
//! - irqlab's span contains W, both trace probes at both ends, and a part of irqlab's probes. The calibration
//!   subtracts this part, as in every measurement. W by irqlab = span - 2 (entry gap + exit gap).
//! - The brackets minus the gaps are the cost of irqlab's two programs in situ. The programs learn
//!   this overhead, as in every measurement ([`crate::probe_overhead`]). Calibration in a warm loop
//!   alone gives a second W by irqlab.
//!
//! G is needed for the brackets, and to warm up the code of the trace probes before H and I. The
//! method assumes that the probes of H and I cost the same, and that the starts of entry and exit
//! probes cost the same. Errors in irqlab's subtraction are visible, because they are in its W and
//! not in the trace's W.
//!
//! # The same interrupts
//! irqlab aggregates in the kernel and keeps no record of each interrupt, and the test adds none.
//! But irqlab's window opens and closes on each CPU between two interrupts (the gate runs there
//! with interrupts off), and irqlab has the times of both edges by the clock of the trace. The handler runs
//! of the trace in that window are matched individually in the three instances, by time and line.
//! They are the runs that irqlab counted, and the counts must be equal.
//!
//! There is one exception: a kernel may not call BPF programs in threads of PID 1
//! (docs/handlers.md, "Counted by the kernel, never handed to BPF"). The trace has the
//! thread of each interrupt, so these interrupts are counted separately, and left out if
//! irqlab did not see them.
//!
//! Windows without any trace alternate with these windows, and measure the handler's time alone.

mod buffer;
mod matching;
mod windows;

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::time::Duration;

use lab::experiment::BenchError;

use super::failed;
use crate::bpf::Flavour;
use crate::probe_overhead::{CALLS, calibrate};
use crate::stimulus::{Helper, Rate, Report, Running, Stimulus, StimulusSettings, start};
use crate::window::Stop;
use windows::Windows;

/// Longest window. The trace buffers have room for the interrupts of a fast disk in this time.
pub const WINDOW_MAX: Duration = Duration::from_secs(3);

/// Configuration of the comparison.
#[derive(Clone, Debug)]
pub struct TraceAgreementSettings {
    /// CPUs on which interrupts are compared.
    pub cpus: Vec<u32>,
    /// Number of windows with the trace, and also the number of windows without it.
    pub rounds: u32,
    /// Length of a window, up to [`WINDOW_MAX`].
    pub window: Duration,
    /// File or block device to read instead of a scratch file.
    pub disk_file: Option<PathBuf>,
    /// The program that runs the stimulus; `None`: the running program.
    pub helper: Option<PathBuf>,
}

/// Handler runs in the trace, in irqlab's window. Times are sums over all runs, ns.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct TraceSums {
    /// Number of handler runs.
    pub count: u64,
    /// From H's entry to H's exit, which is the span in the trace that users see.
    pub span: u64,
    /// From I's entry to H's exit.
    pub between: u64,
    /// From H's entry to I's entry, and from H's exit to I's exit.
    pub gaps: u64,
    /// From G's entry to H's entry, and from I's exit to G's exit.
    pub brackets: u64,
}

/// The sums of one IRQ line over all CPUs. Times are sums over all interrupts, ns.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct LineSums {
    pub name: String,
    /// Number of interrupts that irqlab counted.
    pub counted: u64,
    /// Spans of the counted interrupts, with the probe overhead subtracted.
    pub span: u64,
    /// Subtracted overhead of irqlab's probes inside the spans.
    pub probe_overhead: u64,
    /// Number of spans shorter than the probe overhead.
    pub clamped: u64,
    /// The sums of the same interrupts in the trace.
    pub trace: TraceSums,
    /// Number of interrupts in the trace that came in threads of PID 1. During them the kernel
    /// called no program of irqlab.
    pub undelivered: u64,
    /// Number of interrupts in the windows without trace.
    pub alone_counted: u64,
    /// Spans of the interrupts in the windows without trace.
    pub alone_span: u64,
}

/// The mean; NaN without a count.
fn mean(sum: u64, count: u64) -> f64 {
    if count == 0 { f64::NAN } else { sum as f64 / count as f64 }
}

impl TraceSums {
    /// Mean time of a trace probe's runs at entry and at exit together, ns.
    #[must_use]
    pub fn gaps_ns(&self) -> f64 {
        mean(self.gaps, self.count)
    }

    /// Mean work of the handler according to the kernel's trace, ns.
    #[must_use]
    pub fn work_ns(&self) -> f64 {
        mean(self.between, self.count) - self.gaps_ns() / 2.0
    }

    fn add(&mut self, other: &TraceSums) {
        self.count += other.count;
        self.span += other.span;
        self.between += other.between;
        self.gaps += other.gaps;
        self.brackets += other.brackets;
    }

    /// Mean time of irqlab's two programs together, in situ, ns.
    #[must_use]
    pub fn pair_ns(&self) -> f64 {
        mean(self.brackets, self.count) - self.gaps_ns()
    }
}

impl LineSums {
    /// Mean work of the handler according to irqlab, ns.
    #[must_use]
    pub fn work_ns(&self) -> f64 {
        mean(self.span, self.counted) - 2.0 * self.trace.gaps_ns()
    }

    /// Mean overhead of irqlab's probes that was subtracted from a span, ns.
    #[must_use]
    pub fn probe_overhead_ns(&self) -> f64 {
        mean(self.probe_overhead, self.counted)
    }

    /// The work according to irqlab, divided by the work according to the trace.
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
        self.probe_overhead += other.probe_overhead;
        self.clamped += other.clamped;
        self.trace.add(&other.trace);
        self.undelivered += other.undelivered;
        self.alone_counted += other.alone_counted;
        self.alone_span += other.alone_span;
    }
}

/// The comparison of the handlers' times.
#[derive(Clone, Debug, Default)]
pub struct TraceAgreement {
    /// All rounds together, by IRQ line.
    pub lines: BTreeMap<u32, LineSums>,
    /// Each round separately, by IRQ line.
    pub rounds: Vec<BTreeMap<u32, LineSums>>,
    /// Probe overhead inside a span in the warm loop, ns.
    pub probe_overhead_in_span_ns: u64,
    /// Total probe overhead in the warm loop, ns.
    pub probe_overhead_ns: u64,
    /// Number of events that irqlab lost.
    pub lost: u64,
    /// The disk stimulus's statistics. It ran before, between and after the windows, too.
    pub disk: Report,
    /// Warnings of the stimulus.
    pub warnings: Vec<String>,
    /// Whether the user stopped the comparison early.
    pub interrupted: bool,
}

impl TraceAgreement {
    /// Mean work of the handler according to irqlab, ns, with the overhead of the warm loop subtracted instead of the
    /// overhead learned in situ.
    #[must_use]
    pub fn work_by_loop_ns(&self, line: &LineSums) -> f64 {
        line.work_ns() + line.probe_overhead_ns() - self.probe_overhead_in_span_ns as f64
    }
}

/// Raises interrupts with the disk stimulus, and compares their times. Calls `progress` before each round.
///
/// Fails with [`BenchError::Unavailable`] or [`BenchError::NothingMeasurable`] if there is no disk,
/// no trace or no BPF here.
pub fn measure(
    settings: &TraceAgreementSettings,
    stop: &Stop,
    progress: &mut dyn FnMut(u32),
) -> Result<TraceAgreement, BenchError> {
    let cpu = *settings.cpus.first().ok_or_else(|| failed("the bench", "no CPU to watch"))?;
    let flavour = Flavour::of_this_kernel();
    let calibration = calibrate(flavour, cpu, None, CALLS, stop)?;
    let window = settings.window.min(WINDOW_MAX);
    let windows = Windows::new(&settings.cpus, window, flavour, &calibration)?;
    let mut disk = start_disk(settings)?;
    let mut result = TraceAgreement {
        probe_overhead_in_span_ns: calibration.in_span_ns,
        probe_overhead_ns: calibration.total_ns,
        ..TraceAgreement::default()
    };
    for round in 0..settings.rounds {
        if stop.is_requested() {
            result.interrupted = true;
            break;
        }
        progress(round);
        let mut lines = windows.with_trace()?;
        windows.without_trace(&mut lines)?;
        disk.check()?;
        for (irq, line) in &lines {
            result.lines.entry(*irq).or_default().add(line);
        }
        result.rounds.push(lines);
    }
    let report = disk.stop()?;
    result.warnings.extend(report.all_warnings());
    result.disk = report;
    result.lost = windows.lost()?;
    Ok(result)
}

fn start_disk(settings: &TraceAgreementSettings) -> Result<Running, BenchError> {
    let helper = match &settings.helper {
        Some(program) => Helper::new(program),
        None => Helper::current_exe().map_err(|error| failed("finding this program", error))?,
    };
    let mut stimulus = StimulusSettings::new(Stimulus::Disk, Rate::High, settings.cpus.clone());
    stimulus.disk_file.clone_from(&settings.disk_file);
    Ok(start(&stimulus, &helper)?)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_example_of_the_method() {
        // W = 1000. A trace probe takes 30 before its time stamp and 70 after it. irqlab's
        // programs take 200 in situ, 100 inside the span and 100 outside. The calibration
        // subtracted 50, so 50 remain.
        let trace = TraceSums {
            count: 2,
            span: 2 * (1000 + 200),
            between: 2 * (1000 + 70 + 30),
            gaps: 2 * 200,
            brackets: 2 * (200 + 200),
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
