//! [`OpenWindow`]: a window that is read while it stays open, for `irqlab watch`.
//!
//! Only the BPF programs write the maps with the counts. Reading the maps therefore stops nothing, and costs the
//! measured spans nothing but CPU time.
//!
//! A CPU may count a span while its row is read. Some sums then include the span and others do not; the next reading
//! includes it in all sums. No span is lost or counted twice, because readings are totals since the window opened, and
//! callers subtract them.

use lab::experiment::BenchError;
use lab::handlers::WindowSample;

use super::bench::{LiveBench, own_cpu_ns};
use super::window_cpus::WindowCpus;
use crate::bpf::CallerProgram;
use crate::bpf::layout::CpuState;
use crate::host::Root;
use crate::probe_overhead::events::EventOverheadsByCore;
use crate::window::{ThrottlingWindow, WindowEdge, set_windows};

/// The timing pass of a bench, with its window open on every measured CPU. Dropping this closes the
/// gates and detaches the programs.
pub struct OpenWindow {
    bench: LiveBench,
    /// A BPF program that reads the kernel's clock.
    caller: CallerProgram,
    cpus: WindowCpus,
    /// Number of missed events when the window opened.
    missed_before: u64,
    own_cpu_before_ns: u64,
    throttling: ThrottlingWindow,
}

impl OpenWindow {
    /// Attaches the timing probes and opens the window. In the window the probes learn their
    /// overhead on times; until then the warm loop's overhead is subtracted.
    ///
    /// Fails if the kernel refuses.
    pub fn open(mut bench: LiveBench) -> Result<Self, BenchError> {
        let caller = CallerProgram::load()?;
        bench.attach_only(0)?;
        let timing = &bench.passes[0];
        let overheads = |cpu| timing.warm_on(cpu).overheads();
        timing.probes.clear_for_each(overheads)?;
        let missed_before = timing.probes.misses()?;
        let mut cpus = WindowCpus::online_now(&Root::default(), &bench.settings.cpus);
        let offline = set_windows(&timing.probes, &cpus.measured, WindowEdge::Open)?;
        cpus.never_opened(&offline);
        let throttling = ThrottlingWindow::open(&Root::default());
        let own_cpu_before_ns = own_cpu_ns();
        Ok(OpenWindow { bench, caller, cpus, missed_before, own_cpu_before_ns, throttling })
    }

    /// The bench, for its facts and the overhead of its probes.
    #[must_use]
    pub fn bench(&self) -> &LiveBench {
        &self.bench
    }

    /// Returns the counts since the window opened, with the facts of a CPU quota. `agreement` is empty, because the
    /// kernel's counters are compared only at the end of a window.
    ///
    /// Fails if the kernel refuses.
    pub fn read(&self) -> Result<WindowSample, BenchError> {
        let timing = &self.bench.passes[0];
        let mut states = timing.probes.states()?;
        // Time stamps in the states are from the kernel's clock. In a time namespace, the clock of this process
        // differs from it.
        let now_ns = self.caller.see()?.at_ns;
        let is_open = |state: &&mut CpuState| state.armed != 0;
        states.iter_mut().filter(is_open).for_each(|state| state.disarmed_ns = now_ns);
        let rows = timing.probes.rows_of(&states)?;
        let missed = timing.probes.misses()?;
        let mut sample = WindowSample {
            missed: missed.saturating_sub(self.missed_before),
            user_cpu_ns: Some(own_cpu_ns().saturating_sub(self.own_cpu_before_ns)),
            ..WindowSample::default()
        };
        let no_events = EventOverheadsByCore::default();
        self.cpus.describe(&Root::default(), &states, &mut sample);
        self.throttling.add_facts(&Root::default(), &mut sample.facts);
        let counts = (&states[..], &rows[..]);
        self.bench.add_counts(timing, &no_events, counts, &self.cpus.measured, &mut sample);
        Ok(sample)
    }
}

impl Drop for OpenWindow {
    fn drop(&mut self) {
        let timing = &self.bench.passes[0];
        // An error is a CPU that went offline, which has no gate. Its programs are detached nevertheless.
        let _ = set_windows(&timing.probes, &self.cpus.measured, WindowEdge::Close);
        self.bench.passes.iter_mut().for_each(|pass| pass.detach());
    }
}
