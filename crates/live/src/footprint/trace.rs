//! One repetition with the kernel's marks: who had the loop's CPU when.

use lab::footprint::trace::{Trace, TraceTimes, from_begin, spans};
use lab::footprint::{Level, Method, Missing, Source, Verdict};
use rustix::thread::gettid;

use super::bench::LiveFootprint;
use crate::bpf::BpfError;
use crate::host::Root;
use crate::clock::ClockMap;
use crate::marks::MarkProbes;

/// Repetitions until one is undisturbed.
const TRIALS: usize = 64;

/// Who says what runs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Watcher {
    /// The kernel, by probes that are there for this repetition only: they displace lines, too.
    Probes,
    /// Something outside of this machine, which needs to know only when the window was.
    Outside,
}

fn missing(error: impl std::fmt::Display) -> Missing {
    Missing { reason: format!("no trace: {error}"), remedy: None }
}

/// What was seen of a repetition.
struct Seen {
    verdict: Verdict,
    times: TraceTimes,
    clocks: ClockMap,
}

impl LiveFootprint {
    /// One repetition with the interrupt, in whose way nothing else is; after many that all have
    /// something in the way, the last one, which shows what.
    pub(super) fn traced(
        &mut self,
        (level, source, method): (Level, Source, Method),
        watcher: Watcher,
    ) -> Result<Trace, Missing> {
        let thread = gettid().as_raw_nonzero().get().cast_unsigned();
        let cpu = self.cpu();
        let probes = match watcher {
            Watcher::Probes => Some(MarkProbes::load().map_err(missing)?),
            Watcher::Outside => None,
        };
        if let Some(probes) = &probes {
            probes.announce(cpu, thread).map_err(missing)?;
        }
        let seen = self.undisturbed(method, probes.as_ref())?;
        let mut trace = Trace {
            level,
            source,
            method,
            verdict: seen.verdict,
            cpu,
            thread,
            times: seen.times,
            window_ns: 0,
            stopped_ns: (0, 0),
            spans: Vec::new(),
        };
        if let Some(probes) = &probes {
            fill(&mut trace, &seen, probes).map_err(missing)?;
        }
        Ok(trace)
    }

    fn undisturbed(
        &mut self,
        method: Method,
        probes: Option<&MarkProbes>,
    ) -> Result<Seen, Missing> {
        let mut last = Err(missing("nothing was tried"));
        for _ in 0..TRIALS {
            if let Some(probes) = probes {
                probes.take().map_err(missing)?; // those of before
            }
            let mut clocks = ClockMap::default();
            clocks.read();
            let (repetition, times) = self.once(method, true).map_err(missing)?;
            clocks.read();
            let verdict = repetition.verdict;
            last = Ok(Seen { verdict, times, clocks });
            if verdict == Verdict::Kept {
                break;
            }
        }
        last
    }
}

fn fill(trace: &mut Trace, seen: &Seen, probes: &MarkProbes) -> Result<(), BpfError> {
    probes.announce(trace.cpu, 0)?;
    let marks = probes.take()?;
    let ns = |cycles: u64| seen.clocks.ns_at(cycles).unwrap_or(0);
    let begin_ns = ns(seen.times.opened);
    let since = |cycles: u64| ns(cycles).saturating_sub(begin_ns);
    let TraceTimes { ended, resumed, stopped_cycles, .. } = seen.times;
    trace.window_ns = since(ended);
    trace.stopped_ns = (since(resumed.saturating_sub(stopped_cycles)), since(resumed));
    let names = probes.with_marks(|marks| marks.names(&Root::default()));
    trace.spans = spans(&from_begin(&marks, trace.cpu, begin_ns), &names, trace);
    Ok(())
}
