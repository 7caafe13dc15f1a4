//! A traced repetition: which contexts ran on the loop's CPU, and when. The kernel's marks come from BPF probes; on a
//! simulated machine the simulator records the contexts, and only the times come from here.

use lab::experiment::BenchError;
use lab::footprint::trace::{Trace, TraceTimes, from_start, spans};
use lab::footprint::{Level, Method, Stimulus, Verdict};

use super::bench::LiveFootprint;
use super::watcher::Watcher;
use crate::bpf::BpfError;
use crate::clock::ClockMap;
use crate::host::Root;
use crate::marks::{MarkProbes, loop_thread};

/// Most repetitions until one is accepted.
const TRIALS: usize = 64;

fn missing(error: impl Into<BenchError>) -> BenchError {
    let error = error.into();
    let remedy = error.remedy().map(str::to_owned);
    BenchError::Unavailable { reason: format!("no trace: {error}"), remedy }
}

/// A repetition, and the relation of the loop's clock to the clock of the kernel's marks during it.
struct Traced {
    verdict: Verdict,
    times: TraceTimes,
    clocks: ClockMap,
}

impl LiveFootprint {
    /// Traces an accepted treatment repetition. If [`TRIALS`] repetitions in a row are not accepted, returns the
    /// last one, which shows the disturbance.
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
        let traced = self.repeat_until_accepted(method, probes.as_ref())?;
        let mut trace = Trace {
            level,
            stimulus,
            method,
            verdict: traced.verdict,
            cpu,
            thread,
            times: traced.times,
            window_ns: 0,
            stalled_ns: (0, 0),
            spans: Vec::new(),
        };
        if let Some(probes) = &probes {
            add_marks(&mut trace, &traced, probes).map_err(missing)?;
        }
        Ok(trace)
    }

    fn repeat_until_accepted(
        &mut self,
        method: Method,
        probes: Option<&MarkProbes>,
    ) -> Result<Traced, BenchError> {
        let mut last = Err(BenchError::unavailable("no trace: nothing was tried"));
        for _ in 0..TRIALS {
            if let Some(probes) = probes {
                probes.take().map_err(missing)?; // Discards earlier marks.
            }
            let kernel_clock = probes.map(MarkProbes::kernel_clock).unwrap_or_default();
            let mut clocks = ClockMap::new(kernel_clock);
            clocks.read();
            let (repetition, times) = self.run_repetition(method, true).map_err(missing)?;
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

/// Adds the recorded marks to a trace: the spans of contexts, and the times in ns since the window's start.
fn add_marks(trace: &mut Trace, traced: &Traced, probes: &MarkProbes) -> Result<(), BpfError> {
    probes.announce(trace.cpu, 0)?; // Ends the recording.
    let marks = probes.take()?;
    let ns = |cycles: u64| traced.clocks.ns_at(cycles).unwrap_or(0);
    let start_ns = ns(traced.times.opened);
    let since_start = |cycles: u64| ns(cycles).saturating_sub(start_ns);
    let TraceTimes { ended, resumed, stalled_cycles, .. } = traced.times;
    trace.window_ns = since_start(ended);
    trace.stalled_ns = (since_start(resumed.saturating_sub(stalled_cycles)), since_start(resumed));
    let names = probes.names(&Root::default());
    trace.spans = spans(&from_start(&marks, trace.cpu, start_ns), &names, trace);
    Ok(())
}
