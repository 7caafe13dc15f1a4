//! Measures the kernels of the validation suite on this machine and in a simulated machine, for `bench model` and
//! `machines fit`, and reads cycles that were kept. The suite is in the crate `kernels`, its samples are in `lab::kernels`.

use std::cell::{Cell, RefCell};

use lab::kernels::fit::{Conditions, condition_warnings};
use lab::kernels::in_guest::KernelsRequest;
use lab::kernels::{Kept, KernelSample, Processor};
use live::host::{Root, cpu_facts, rate_facts};
use live::kernels::{
    KernelsObserver, counter_flaw, measure, measure_in_processes, steal_ns, this_processor,
};
use live::spawn::spawn_thread;
use live::threads::pin;
use live::window::Stop;
use serde_json::{Map, Value, json};
use sim::forecast::MachineWork;
use sim::kernels::SimKernels;
use sim::measured;

use crate::console::{ProgressLine, Redraw};
use crate::helpers::in_guest;
use crate::options::Usage;
use crate::run::with_remedy_for_rights;
use crate::simulated::Simulated;

/// Approximate length of a window, cycles.
pub const WINDOW_CYCLES: u64 = 20_000;
/// Windows of each kernel in the simulated machine. Few are enough: only interrupts make its windows differ.
pub const MODEL_WINDOWS: u32 = 5;

/// Results of the kernels on this machine.
#[derive(Debug)]
pub struct Host {
    /// A sample of each kernel.
    pub samples: Vec<KernelSample>,
    /// The processor and its name, or `None` if the machine does not report it.
    pub processor: Option<(Processor, String)>,
    /// Warnings for the reader of the run.
    pub warnings: Vec<String>,
    /// Time during the measurement that the hypervisor took from the CPU, ns.
    pub steal_ns: Option<u64>,
    /// The conditions that limit what a fit can determine.
    pub conditions: Conditions,
}

/// Passes requests to stop to the measurement. Shows its progress, and keeps the quietest ratio that it reports.
struct Observer<'s> {
    stop: &'s Stop,
    /// See [`Conditions::quietest_duration_ratio`].
    quietest_duration_ratio: Cell<Option<f64>>,
    progress: RefCell<ProgressLine>,
}

impl KernelsObserver for Observer<'_> {
    fn stop_requested(&self) -> bool {
        self.stop.is_requested()
    }

    fn next(&self, number: usize, count: usize, name: &str) {
        self.progress.borrow_mut().step(number, count, name);
    }

    fn quietest(&self, ratio: f64) {
        self.quietest_duration_ratio.set(Some(ratio));
    }
}

/// Measures the kernels named in `only`, or all kernels if `only` is empty, on a CPU of this machine. Each kernel has
/// `windows` windows in each of `processes` processes.
///
/// Fails when nothing can be measured.
pub fn measure_host(
    only: &[String],
    (windows, processes): (u32, u32),
    cpu: u32,
    stop: &Stop,
) -> anyhow::Result<Host> {
    let request = KernelsRequest {
        only: only.to_vec(),
        windows,
        window_cycles: WINDOW_CYCLES,
        cpu,
        processes,
    };
    let stolen_before = steal_ns(cpu);
    let root = Root::default();
    let rate_before = rate_facts(&root, cpu);
    let observer = Observer {
        stop,
        quietest_duration_ratio: Cell::new(None),
        progress: RefCell::new(ProgressLine::new(Redraw::EachStep)),
    };
    let samples = match processes {
        1 => measure(&request, &observer),
        _ => measure_in_processes(&request, &observer, in_guest::program),
    };
    let samples = samples.map_err(with_remedy_for_rights)?;
    let quietest_duration_ratio = observer.quietest_duration_ratio.get();
    drop(observer);
    let throttled = rate_facts(&root, cpu).throttled.zip(rate_before.throttled);
    let conditions = Conditions {
        counter_flaw: counter_flaw().map(str::to_owned),
        is_virtual: is_virtual(&root),
        quietest_duration_ratio,
        throttled: throttled.map(|(after, before)| after.saturating_sub(before)),
        rate_ratio: core_hz(cpu)
            .zip(rate_before.highest_hz)
            .map(|(hz, highest)| hz / highest as f64),
    };
    let steal_ns =
        steal_ns(cpu).zip(stolen_before).map(|(after, before)| after.saturating_sub(before));
    let mut warnings = Vec::new();
    if let Some(flaw) = counter_flaw() {
        warnings.push(format!(
            "the time-stamp counter {flaw}: cycles are right only if the core kept, during each window, the \
             rate that the chains of additions before and after the window measured"
        ));
    }
    warnings.extend(disturbance_warning(&samples));
    warnings.extend(condition_warnings(&samples, &conditions));
    Ok(Host { samples, processor: this_processor(), warnings, steal_ns, conditions })
}

/// Reads kept data: cycles of a processor, measured earlier. `name`: of a built-in data set, or a file.
pub fn read_kept(name: &str) -> anyhow::Result<Kept> {
    let text = measured::text(name).map_err(|error| Usage(error.to_string()))?;
    Ok(Kept::parse(&text).map_err(|error| Usage(format!("{name}: {error}")))?)
}

/// The settings of a run that says where its kept data come from.
pub fn kept_settings(kept: &Kept) -> Map<String, Value> {
    let settings = [
        ("measured_on", json!(kept.cpu)),
        ("measured_cpuid", json!(kept.processor.to_string())),
        ("measured_date", json!(kept.date)),
    ];
    settings.map(|(name, value)| (name.to_owned(), value)).into_iter().collect()
}

/// Whether the processor reports a hypervisor (CPUID).
fn is_virtual(root: &Root) -> bool {
    cpu_facts(root).model.hypervisor_flag == Some(true)
}

/// A warning if more windows were disturbed than counted.
fn disturbance_warning(samples: &[KernelSample]) -> Option<String> {
    let figures = samples.iter().filter_map(|sample| sample.figures.as_ref().ok());
    let (counted, rate, sibling) = figures.fold((0, 0, 0), |(counted, rate, sibling), figures| {
        let [changed, busy] =
            [figures.rate_changed, figures.sibling_busy].map(Option::unwrap_or_default);
        (counted + figures.windows.unwrap_or_default(), rate + changed, sibling + busy)
    });
    let disturbed = rate + sibling;
    (disturbed > counted).then(|| {
        format!(
            "{disturbed} windows were disturbed and only {counted} counted: in {sibling} the SMT sibling was \
             busy or something else ran, in {rate} the core's clock rate changed (choose a CPU on a quiet \
             core with -c)"
        )
    })
}

/// Measures the kernels named in `only`, or all kernels if `only` is empty, in a simulated machine. `label` names the
/// machine in progress lines. Returns `None` if the user asked to stop.
///
/// Fails when the machine cannot be started, or when it fails.
pub fn measure_model(
    machine: &Simulated,
    label: &str,
    only: &[String],
    processes: u32,
) -> anyhow::Result<Option<SimKernels>> {
    Ok(sim::kernels::measure(&machine.guest, label, model_request(only, processes))?)
}

/// Returns the work of the machine that [`measure_model`] starts with these arguments. Starts no machine.
///
/// Fails if the request cannot be written.
pub fn plan_model(
    machine: &Simulated,
    label: &str,
    only: &[String],
    processes: u32,
) -> anyhow::Result<MachineWork> {
    Ok(sim::kernels::planned(&machine.guest, label, model_request(only, processes))?)
}

fn model_request(only: &[String], processes: u32) -> KernelsRequest {
    KernelsRequest {
        only: only.to_vec(),
        windows: MODEL_WINDOWS,
        window_cycles: WINDOW_CYCLES,
        cpu: 0,
        processes,
    }
}

/// The clock rate of a CPU's core, Hz: the highest rate in a short measurement. Cores of a hybrid processor have different
/// rates. `None` without a time-stamp counter, or if this process may not run on the CPU.
pub fn core_hz(cpu: u32) -> Option<f64> {
    let measure = move || {
        pin(cpu).ok()?;
        let ticks_per_cycle = live::clock::core_cycle()?;
        Some(live::clock::ClockResolution::measure()?.hz / ticks_per_cycle)
    };
    spawn_thread("core clock", measure).ok()?.join().ok()?
}

/// An absence for each kernel without cycles. `side` names the machine in its text, as in `in the model`.
pub(crate) fn absences(
    samples: &[KernelSample],
    side: &str,
) -> Vec<(String, String, Option<String>)> {
    let absence = |kernel: &KernelSample| {
        let reason = kernel.figures.as_ref().err()?;
        Some((format!("{}/{} {side}", kernel.group, kernel.name), reason.clone(), None))
    };
    samples.iter().filter_map(absence).collect()
}
