//! Runs the kernels of the validation suite of processor models on this machine. A kernel is a short loop of machine
//! code whose cycles a model must predict (crate `kernels`).
//!
//! `irqlab bench model` and `machines fit` measure the real machine with [`measure`] or [`measure_in_processes`]. In a
//! simulated machine, the guest's irqlab calls [`execute`]. Both return a [`KernelSample`] for each kernel.

mod mix;
mod processes;

use std::process::Command;

pub use kernels::COMPILED;
use kernels::{Group, Kernel};
use lab::experiment::BenchError;
use lab::kernels::in_guest::KernelsRequest;
use lab::kernels::{Figures, KernelSample, Processor, Statistics};
pub use mix::execute_mix;
pub use processes::measure_in_processes;

use crate::host::{Root, cpu_facts, steal_facts};
use crate::threads::{check_pinned, pin};
use crate::window::{BenchPhase, WindowEdge};

/// Observes a measurement: the command shows progress, and a simulated machine marks phases and windows.
pub trait KernelsObserver {
    /// Whether the user asked to stop.
    fn stop_requested(&self) -> bool {
        false
    }

    /// Called before each kernel, with its number from 1, the number of kernels, and its name. With several processes,
    /// called before each process instead.
    fn next(&self, _number: usize, _count: usize, _name: &str) {}

    /// Called at the start of each phase.
    fn at_phase(&self, _phase: BenchPhase) {}

    /// Called before the first and after the last window of a kernel.
    fn at_edge(&self, _edge: WindowEdge) {}

    /// Called at the end with [`kernels::Clock::quietest_duration_ratio`]. Not called if the core's rate never stopped changing.
    fn quietest(&self, _ratio: f64) {}
}

/// Tells the simulator of this machine about phases and windows.
struct SimulatorMarks {
    at_edge: fn(WindowEdge),
    at_phase: fn(BenchPhase),
}

impl KernelsObserver for SimulatorMarks {
    fn at_phase(&self, phase: BenchPhase) {
        (self.at_phase)(phase);
    }

    fn at_edge(&self, edge: WindowEdge) {
        (self.at_edge)(edge);
    }
}

/// Executes a request inside a simulated machine, and tells the simulator about phases and windows.
/// `program`: as for [`measure_in_processes`].
///
/// Fails as [`measure`] or [`measure_in_processes`] does.
pub fn execute(
    request: &KernelsRequest,
    at_edge: fn(WindowEdge),
    at_phase: fn(BenchPhase),
    program: impl Fn() -> Command,
) -> Result<Vec<KernelSample>, BenchError> {
    let marks = SimulatorMarks { at_edge, at_phase };
    match request.processes {
        0 | 1 => measure(request, &marks),
        _ => measure_in_processes(request, &marks, program),
    }
}

/// Lists the kernels that the words `only` select, all if there are none, without measuring them.
///
/// Fails if a word of the selection names no kernel and no group. The message lists the groups.
pub fn selected(only: &[String]) -> Result<Vec<KernelSample>, String> {
    let selected = select(only)?;
    Ok(selected
        .iter()
        .map(|kernel| sample(kernel, Err("it was not measured".to_owned())))
        .collect())
}

fn select(only: &[String]) -> Result<Vec<Kernel>, String> {
    let all = kernels::all();
    let names_nothing = |word: &&String| !all.iter().any(|kernel| kernel.is_selected(word));
    if let Some(word) = only.iter().find(names_nothing) {
        let groups = Group::ALL.map(Group::word).join(", ");
        return Err(format!("{word:?} names no kernel and no group; groups: {groups} (--list)"));
    }
    let is_selected =
        |kernel: &Kernel| only.is_empty() || only.iter().any(|word| kernel.is_selected(word));
    Ok(all.into_iter().filter(is_selected).collect())
}

fn sample(kernel: &Kernel, figures: Result<Figures, String>) -> KernelSample {
    KernelSample {
        name: kernel.name.to_owned(),
        group: kernel.group.word().to_owned(),
        unit: kernel.unit.to_owned(),
        about: kernel.about.to_owned(),
        shared: kernel.shared,
        figures,
    }
}

/// Measures the kernels of a request in this process, one after the other, pinned to the request's CPU. After a request
/// to stop, returns the kernels measured so far.
///
/// Fails if nothing can be measured: no such CPU, or no counter.
#[cfg(target_arch = "x86_64")]
pub fn measure(
    request: &KernelsRequest,
    observer: &dyn KernelsObserver,
) -> Result<Vec<KernelSample>, BenchError> {
    use kernels::{Clock, Effort};
    let selected = select(&request.only).map_err(BenchError::Failed)?;
    pin(request.cpu).map_err(|error| BenchError::Failed(error.to_string()))?;
    let no_counter = |_| BenchError::NothingMeasurable {
        reason: "the time-stamp counter does not count".to_owned(),
        remedy: None,
    };
    observer.at_phase(BenchPhase::Measurement);
    let mut clock = Clock::new().map_err(no_counter)?;
    let effort = Effort {
        windows: request.windows.max(1) as usize,
        window_cycles: request.window_cycles.max(1000),
    };
    let mut samples = Vec::new();
    for (index, kernel) in selected.iter().enumerate() {
        if observer.stop_requested() {
            break;
        }
        observer.next(index + 1, selected.len(), kernel.name);
        // `kernels::measure` calls this with true before it prepares the kernel, and with false
        // before the first window.
        let at_set_up = |is_set_up: bool| {
            if is_set_up {
                observer.at_phase(BenchPhase::SetUp);
            } else {
                observer.at_phase(BenchPhase::Measurement);
                observer.at_edge(WindowEdge::Open);
            }
        };
        let measured = kernels::measure(kernel, &mut clock, effort, &at_set_up);
        observer.at_edge(WindowEdge::Close);
        check_pinned(request.cpu).map_err(|error| BenchError::Failed(error.to_string()))?;
        let figures = measured.map(|sample| Figures {
            cycles: sample.cycles,
            low_cycles: sample.low_cycles,
            cycles_95: sample.cycles_95,
            statistics: Statistics::of_windows(sample.windows),
            processes: Some(1),
            windows: Some(sample.windows as u64),
            rate_changed: Some(sample.disturbed.rate as u64),
            sibling_busy: Some(sample.disturbed.sibling as u64),
        });
        samples.push(self::sample(kernel, figures));
    }
    if let Some(ratio) = clock.quietest_duration_ratio() {
        observer.quietest(ratio);
    }
    Ok(samples)
}

/// Measures nothing, because the kernels are x86-64 code.
///
/// Fails with [`BenchError::NothingMeasurable`].
#[cfg(not(target_arch = "x86_64"))]
pub fn measure(
    _request: &KernelsRequest,
    _observer: &dyn KernelsObserver,
) -> Result<Vec<KernelSample>, BenchError> {
    Err(BenchError::NothingMeasurable {
        reason: "kernels are written for x86-64 alone".to_owned(),
        remedy: None,
    })
}

/// This machine's processor and its name; `None` if CPUID does not say.
#[must_use]
pub fn this_processor() -> Option<(Processor, String)> {
    let model = cpu_facts(&Root::default()).model;
    let processor = Processor { vendor: model.vendor?, family: model.family?, model: model.model? };
    Some((processor, model.name.unwrap_or_default()))
}

/// Why the time-stamp counter of this machine cannot measure cycles; `None` if it can.
#[must_use]
pub fn counter_flaw() -> Option<&'static str> {
    cpu_facts(&Root::default()).model.tsc_flaw()
}

/// Time since boot during which the hypervisor did not run a CPU that wanted to run, ns. `None` if it is not reported.
#[must_use]
pub fn steal_ns(cpu: u32) -> Option<u64> {
    let facts = steal_facts(&Root::default());
    let steal = facts.per_cpu.iter().find(|steal| steal.cpu == cpu)?;
    Some(steal.steal_ticks?.saturating_mul(facts.tick_ns?))
}

#[cfg(all(test, target_arch = "x86_64"))]
mod tests {
    use super::*;

    struct Nobody;

    impl KernelsObserver for Nobody {}

    #[test]
    fn what_is_selected_is_measured() {
        let cpus = rustix::thread::sched_getaffinity(None).unwrap();
        let cpu = (0..1024).find(|cpu| cpus.is_set(*cpu)).unwrap() as u32;
        let only = ["add_chain", "loads-stores/loads_6"].map(str::to_owned).to_vec();
        let request = KernelsRequest { only, windows: 3, window_cycles: 5_000, cpu, processes: 1 };
        let samples = measure(&request, &Nobody).unwrap();
        rustix::thread::sched_setaffinity(None, &cpus).unwrap();
        let names: Vec<&str> = samples.iter().map(|sample| sample.name.as_str()).collect();
        assert_eq!(names, ["add_chain", "loads_6"]);
        for sample in samples {
            // On a busy machine too few windows may be undisturbed, and the sample then says so.
            match &sample.figures {
                Ok(figures) => assert!(figures.are_possible(), "{sample:?}"),
                Err(why) => assert!(why.contains("were undisturbed"), "{why}"),
            }
        }
    }

    /// Golden Cove adds small constants while it renames registers. A chain of such additions made
    /// its rate seem five times as high.
    #[test]
    fn both_clocks_of_the_core_have_its_rate() {
        let by_kernels = kernels::Clock::new().unwrap().cycles_per_tick();
        let ratio = by_kernels * crate::clock::core_cycle().unwrap();
        assert!((0.5..2.0).contains(&ratio), "{ratio}");
    }

    #[test]
    fn what_names_nothing_is_refused() {
        let error = selected(&["add".to_owned()]).unwrap_err();
        assert!(error.contains("arithmetic, loads-stores"), "{error}");
    }
}
