//! Measures one kernel: its cycles per unit are the median of many windows, with a confidence interval.
//!
//! A window is one timed run of the kernel's body (`timing::Clock::time`). A window does not count if the core's rate
//! changed, or if the probes around it show that something else used the core. The caller pins the thread to a CPU.

use std::time::{Duration, Instant};

use stats::interval::order_95;
use stats::median::median;

use crate::timing::{Clock, RATE_CHANGE_MAX, Timed};
use crate::{Body, Executed, Kernel, Rounds};

/// A window does not count if a probe before or after took longer or shorter than on a quiet core by this factor. The
/// sibling (the core's other hardware thread) was then busy, or something else ran.
const PROBE_RATIO_MAX: f64 = 1.1;
/// Measuring a kernel ends after this time, even with too few windows that count. The time is long because a sibling
/// that another guest uses is idle for only a few milliseconds at a time.
const TIME_MAX: Duration = Duration::from_millis(1500);
/// [`TIME_MAX`] ends nothing before this multiple of the requested windows was tried.
const TRIES_MIN: usize = 4;
/// A kernel with fewer windows that count is an error. With a busy sibling, millions of windows are tried, and a few
/// count by coincidence: the chains before and after were interrupted for equal times.
const WINDOWS_MIN: usize = 3;
/// Windows before the measurement, to warm up caches and predictors.
const WARM_UP_WINDOWS: usize = 2;
/// Warm-up, in cycles, of a kernel that predictors need many windows to learn ([`Kernel::learns`]). A simulated machine
/// measures only a few windows, so learning must end before them. (`compress` takes 230,000 to 330,000 cycles at first
/// on an Emerald Rapids, and 105,000 after 60 windows.)
const LEARNING_CYCLES: f64 = 6e6;
/// The warm-up ends after this number of windows, even before [`LEARNING_CYCLES`].
const LEARNING_WINDOWS_MAX: usize = 200;

/// How much is measured.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Effort {
    /// How many windows must count.
    pub windows: usize,
    /// About how many cycles a window takes, for a kernel with [`Rounds::AsFit`].
    pub window_cycles: u64,
}

/// How many windows of a kernel did not count, by the reason.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Disturbance {
    /// The core's rate changed.
    pub rate: usize,
    /// The sibling was busy, or something else ran.
    pub sibling: usize,
}

/// The measurement of a kernel.
#[derive(Clone, Debug, PartialEq)]
pub struct Sample {
    /// Cycles of the core per unit: the median of the windows.
    pub cycles: f64,
    /// Cycles per unit, the tenth percentile of the windows. Other guests disturb fast windows less.
    pub low_cycles: f64,
    /// The interval that contains the median with a confidence of at least 95 %. `None` with fewer than six windows.
    pub cycles_95: Option<(f64, f64)>,
    /// Windows that counted.
    pub windows: usize,
    /// Windows that did not count.
    pub disturbed: Disturbance,
}

/// Measures a kernel. Calls `at_set_up` with true before it builds the kernel's body, and with false afterwards.
///
/// The error says why the kernel cannot run here, or that too few windows were undisturbed.
pub fn measure(
    kernel: &Kernel,
    clock: &mut Clock,
    effort: Effort,
    at_set_up: &dyn Fn(bool),
) -> Result<Sample, String> {
    at_set_up(true);
    let made = kernel.make();
    at_set_up(false);
    let mut body = made?;
    let rounds = rounds(body.as_mut(), clock, effort.window_cycles);
    warm_up(kernel.learns, body.as_mut(), clock, rounds);
    let (mut unit_cycles, mut disturbed) = (Vec::new(), Disturbance::default());
    let started = Instant::now();
    for attempt in 0_usize.. {
        let (executed, timed) = window(body.as_mut(), clock, rounds);
        if executed.units == 0.0 {
            return Err("nothing of it was executed: the system refused a call".to_owned());
        }
        match timed {
            Timed { rate_change, .. } if rate_change > RATE_CHANGE_MAX => disturbed.rate += 1,
            Timed { probe_ratio, .. } if probe_ratio > PROBE_RATIO_MAX => disturbed.sibling += 1,
            _ if executed.was_disturbed => disturbed.sibling += 1,
            _ => unit_cycles.push(timed.cycles / executed.units),
        }
        let is_late = attempt > effort.windows * TRIES_MIN && started.elapsed() > TIME_MAX;
        if unit_cycles.len() == effort.windows || is_late {
            break;
        }
    }
    unit_cycles.sort_by(f64::total_cmp);
    let counted = unit_cycles.len();
    if counted < WINDOWS_MIN.min(effort.windows) {
        let Disturbance { rate, sibling } = disturbed;
        return Err(format!(
            "of {} windows {counted} were undisturbed: in {rate} the core's rate changed, in {sibling} its \
             sibling or something else ran",
            counted + rate + sibling
        ));
    }
    Ok(Sample {
        cycles: median(&unit_cycles).ok_or("no windows were asked for")?,
        low_cycles: unit_cycles[unit_cycles.len() / 10],
        cycles_95: order_95(unit_cycles.len())
            .map(|(low, high)| (unit_cycles[low], unit_cycles[high])),
        windows: unit_cycles.len(),
        disturbed,
    })
}

/// Executes the windows of the warm-up.
fn warm_up(learns: bool, body: &mut dyn Body, clock: &mut Clock, rounds: u64) {
    let (cycles_min, windows_max) =
        if learns { (LEARNING_CYCLES, LEARNING_WINDOWS_MAX) } else { (0.0, WARM_UP_WINDOWS) };
    let mut cycles = 0.0;
    for number in 0..windows_max {
        if number >= WARM_UP_WINDOWS && cycles >= cycles_min {
            break;
        }
        cycles += window(body, clock, rounds).1.cycles;
    }
}

/// Prepares and times one window.
fn window(body: &mut dyn Body, clock: &mut Clock, rounds: u64) -> (Executed, Timed) {
    body.prepare();
    clock.time(|| {
        let executed = body.run(rounds);
        (executed, executed.ticks)
    })
}

/// How many rounds a window has: the kernel's fixed number, or the number that takes about `window_cycles`. Trial
/// windows with few rounds show how long a round takes.
fn rounds(body: &mut dyn Body, clock: &mut Clock, window_cycles: u64) -> u64 {
    const TRIAL_ROUNDS: u64 = 4;
    match body.rounds() {
        Rounds::Fixed(rounds) => rounds,
        Rounds::AsFit => {
            let shortest = (0..3).map(|_| window(body, clock, TRIAL_ROUNDS).1.cycles);
            let shortest = shortest.fold(f64::INFINITY, f64::min).max(1.0);
            (window_cycles as f64 * TRIAL_ROUNDS as f64 / shortest).round().clamp(1.0, 1e7) as u64
        }
    }
}
