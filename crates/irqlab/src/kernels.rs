//! Kernels of the validation suite, measured on this machine and in a simulated one: what `bench model`
//! and `machines fit` have in common.

use std::cell::{Cell, RefCell};

use lab::kernels::fit::Conditions;
use lab::kernels::in_guest::KernelsRequest;
use lab::kernels::{KernelSample, Processor};
use live::host::{Root, cpu_facts, rate_facts};
use live::kernels::{
    KernelsObserver, counter_flaw, measure, measure_in_processes, steal_ns, this_processor,
};
use live::window::Stop;
use sim::kernels::SimKernels;

use crate::console::{ProgressLine, Redraw};
use crate::run::with_remedy_for_rights;
use crate::simulated::Simulated;
use crate::verbs::in_guest;

/// About how long a window is, cycles.
pub const WINDOW_CYCLES: u64 = 20_000;
/// Windows of each kernel in the simulated machine, which repeats itself but for what interrupts it.
pub const MODEL_WINDOWS: u32 = 5;

/// What was measured on this machine.
#[derive(Debug)]
pub struct Host {
    /// A sample of each kernel.
    pub samples: Vec<KernelSample>,
    /// Its processor and that one's name.
    pub processor: Option<(Processor, String)>,
    /// What a reader must know.
    pub warnings: Vec<String>,
    /// Time that the hypervisor took from the CPU meanwhile, ns.
    pub steal_ns: Option<u64>,
    /// The conditions that limit what a fit can determine.
    pub conditions: Conditions,
}

struct Observer<'s> {
    stop: &'s Stop,
    quietest_ratio: Cell<Option<f64>>,
    line: RefCell<ProgressLine>,
}

impl KernelsObserver for Observer<'_> {
    fn stop_requested(&self) -> bool {
        self.stop.is_requested()
    }

    fn next(&self, number: usize, count: usize, name: &str) {
        self.line.borrow_mut().step(number, count, name);
    }

    fn quietest(&self, ratio: f64) {
        self.quietest_ratio.set(Some(ratio));
    }
}

/// Measures kernels on a CPU of this machine, so many windows of each in so many processes.
///
/// # Errors
/// Where nothing can be measured.
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
        quietest_ratio: Cell::new(None),
        line: RefCell::new(ProgressLine::new(Redraw::EachStep)),
    };
    let samples = match processes {
        1 => measure(&request, &observer),
        _ => measure_in_processes(&request, &observer, in_guest::program),
    };
    let samples = samples.map_err(with_remedy_for_rights)?;
    let quietest_ratio = observer.quietest_ratio.get();
    drop(observer);
    let throttled = rate_facts(&root, cpu).throttled.zip(rate_before.throttled);
    let conditions = Conditions {
        counter_flaw: counter_flaw().map(str::to_owned),
        is_virtual: is_virtual(&root),
        quietest_ratio,
        throttled: throttled.map(|(now, then)| now.saturating_sub(then)),
        rate_ratio: core_hz().zip(rate_before.highest_hz).map(|(hz, most)| hz / most as f64),
    };
    let steal_ns = steal_ns(cpu).zip(stolen_before).map(|(now, then)| now.saturating_sub(then));
    let mut warnings = Vec::new();
    if let Some(flaw) = counter_flaw() {
        warnings.push(format!(
            "the time-stamp counter {flaw}: cycles hold as far as the chains of additions before and \
             after each window saw the same rate"
        ));
    }
    warnings.extend(disturbance(&samples));
    Ok(Host { samples, processor: this_processor(), warnings, steal_ns, conditions })
}

/// Whether the processor says that it is a virtual one.
fn is_virtual(root: &Root) -> bool {
    cpu_facts(root).model.hypervisor_flag == Some(true)
}

/// What to say where many windows were disturbed.
fn disturbance(samples: &[KernelSample]) -> Option<String> {
    let figures = || samples.iter().filter_map(|one| one.figures.as_ref().ok());
    let (counted, rate, sibling) = figures().fold((0, 0, 0), |(counted, rate, sibling), one| {
        (counted + one.windows, rate + one.rate_changed, sibling + one.sibling_busy)
    });
    let disturbed = rate + sibling;
    (disturbed > counted).then(|| {
        format!(
            "{disturbed} windows were disturbed and {counted} counted: in {sibling} the sibling was busy or \
             something else ran, in {rate} the core's rate changed (-c: a CPU whose core is quiet)"
        )
    })
}

/// Measures kernels in a simulated machine; none if the user asked to stop.
///
/// # Errors
/// When the machine cannot be started, or breaks.
pub fn measure_model(
    machine: &Simulated,
    label: &str,
    only: &[String],
    processes: u32,
) -> anyhow::Result<Option<SimKernels>> {
    let request = KernelsRequest {
        only: only.to_vec(),
        windows: MODEL_WINDOWS,
        window_cycles: WINDOW_CYCLES,
        cpu: 0,
        processes,
    };
    Ok(sim::kernels::measure(&machine.guest, label, request)?)
}

/// The clock of this thread's core, Hz, at the highest rate that a short measurement sees; absent without a
/// counter.
pub fn core_hz() -> Option<f64> {
    let ticks = live::clock::core_cycle()?;
    Some(live::clock::ClockResolution::measure()?.hz / ticks)
}
