//! One repetition with the kernel's marks: which contexts ran on the loop's CPU, and when.

use lab::experiment::BenchError;
use lab::footprint::trace::{Trace, TraceTimes, from_start, spans};
use lab::footprint::{Level, Method, Stimulus, Verdict};

use super::bench::LiveFootprint;
use super::watcher::Watcher;
use crate::bpf::BpfError;
use crate::clock::ClockMap;
use crate::host::Root;
use crate::marks::{MarkProbes, loop_thread};

/// Maximum number of repetitions until one is undisturbed.
const TRIALS: usize = 64;

fn missing(error: impl Into<BenchError>) -> BenchError {
    let error = error.into();
    let remedy = error.remedy().map(str::to_owned);
    BenchError::Unavailable { reason: format!("no trace: {error}"), remedy }
}

/// A repetition between whose clock readings the kernel's marks were recorded.
struct Traced {
    verdict: Verdict,
    times: TraceTimes,
    clocks: ClockMap,
}

impl LiveFootprint {
    /// Returns one accepted treatment repetition. If many in a row are contaminated, it returns the
    /// last one, which shows what contaminates.
    pub(super) fn traced(
        &mut self,
        (level, stimulus, method): (Level, Stimulus, Method),
        watcher: Watcher,
    ) -> Result<Trace, BenchError> {
        let cpu = self.cpu();
        let probes = match watcher {
            Watcher::Probes => Some(MarkProbes::load().map_err(missing)?),
            Watcher::Outside => None,
        };
        let caller = probes.as_ref().map(MarkProbes::caller);
        let thread = loop_thread(caller.as_deref()).map_err(missing)?;
        if let Some(probes) = &probes {
            probes.announce(cpu, thread).map_err(missing)?;
        }
        let kernel_counts = self.undisturbed(method, probes.as_ref())?;
        let mut trace = Trace {
            level,
            stimulus,
            method,
            verdict: kernel_counts.verdict,
            cpu,
            thread,
            times: kernel_counts.times,
            window_ns: 0,
            stalled_ns: (0, 0),
            spans: Vec::new(),
        };
        if let Some(probes) = &probes {
            fill(&mut trace, &kernel_counts, probes).map_err(missing)?;
        }
        Ok(trace)
    }

    fn undisturbed(
        &mut self,
        method: Method,
        probes: Option<&MarkProbes>,
    ) -> Result<Traced, BenchError> {
        let mut last = Err(BenchError::unavailable("no trace: nothing was tried"));
        for _ in 0..TRIALS {
            if let Some(probes) = probes {
                probes.take().map_err(missing)?; // earlier marks
            }
            let kernel_clock = probes.map(MarkProbes::kernel_clock).unwrap_or_default();
            let mut clocks = ClockMap::new(kernel_clock);
            clocks.read();
            let (repetition, times) = self.once(method, true).map_err(missing)?;
            clocks.read();
            let verdict = repetition.verdict;
            last = Ok(Traced { verdict, times, clocks });
            if verdict == Verdict::Accepted {
                break;
            }
        }
        last
    }
}

fn fill(trace: &mut Trace, kernel_counts: &Traced, probes: &MarkProbes) -> Result<(), BpfError> {
    probes.announce(trace.cpu, 0)?;
    let marks = probes.take()?;
    let ns = |cycles: u64| kernel_counts.clocks.ns_at(cycles).unwrap_or(0);
    let start_ns = ns(kernel_counts.times.opened);
    let since = |cycles: u64| ns(cycles).saturating_sub(start_ns);
    let TraceTimes { ended, resumed, stalled_cycles, .. } = kernel_counts.times;
    trace.window_ns = since(ended);
    trace.stalled_ns = (since(resumed.saturating_sub(stalled_cycles)), since(resumed));
    let names = probes.names(&Root::default());
    trace.spans = spans(&from_start(&marks, trace.cpu, start_ns), &names, trace);
    Ok(())
}
