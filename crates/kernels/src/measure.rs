//! A kernel's cycles: the median of windows that nothing disturbed, with its interval.

use std::time::{Duration, Instant};

use stats::interval::order_95;
use stats::median::median;

use crate::timing::{Clock, RATE_CHANGE_MAX, Timed};
use crate::{Body, Executed, Kernel, Rounds};

/// A window around which additions in four chains, or NOPs, took longer or shorter than on a quiet core by this factor
/// is not counted: the sibling was busy, or something else ran.
const PROBE_RATIO_MAX: f64 = 1.1;
/// Measuring a kernel ends after this time, but not before this multiple of the requested windows was tried. A sibling
/// that another guest uses is idle for some milliseconds at a time.
const TIME_MAX: Duration = Duration::from_millis(1500);
const TRIES_MIN: usize = 4;
/// With fewer windows a kernel is not reported. With a busy sibling millions of windows are tried, and a few are
/// accepted by coincidence: the chains before and after were interrupted for the same time.
const WINDOWS_MIN: usize = 3;
/// Windows before the first one that counts.
const WARM_UP_WINDOWS: usize = 2;
/// Warm-up of a kernel that predictors learn for many windows: this number of cycles, and at most
/// `LEARNING_WINDOWS_MAX` windows. Learning is then over on a processor, where many windows count, and in a
/// simulated machine, where few count. (`compress` takes 230,000 to 330,000 cycles at first on an Emerald Rapids,
/// and 105,000 after 60 windows.)
const LEARNING_CYCLES: f64 = 6e6;
const LEARNING_WINDOWS_MAX: usize = 200;

/// How much is measured.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Effort {
    pub windows: usize,
    /// About how many cycles a window takes, where a kernel does not determine it itself.
    pub window_cycles: u64,
}

/// Why windows of a kernel were not counted.
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
    /// Cycles of the core for a unit: the median of the windows.
    pub cycles: f64,
    /// The tenth percentile of the windows: other guests disturb these windows less.
    pub low_cycles: f64,
    /// Where the median lies with 95 % and more; absent with fewer than six windows.
    pub cycles_95: Option<(f64, f64)>,
    /// Windows that counted.
    pub windows: usize,
    /// Windows that did not.
    pub disturbed: Disturbance,
}

/// Measures a kernel. `at_set_up` is called with true before and with false after what only prepares.
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
    let (mut cycles, mut disturbed) = (Vec::new(), Disturbance::default());
    let started = Instant::now();
    for attempt in 0_usize.. {
        let (executed, timed) = window(body.as_mut(), clock, rounds);
        match timed {
            Timed { rate_change, .. } if rate_change > RATE_CHANGE_MAX => disturbed.rate += 1,
            Timed { probe_ratio, .. } if probe_ratio > PROBE_RATIO_MAX => disturbed.sibling += 1,
            _ => cycles.push(timed.cycles / executed.units),
        }
        let is_late = attempt > effort.windows * TRIES_MIN && started.elapsed() > TIME_MAX;
        if cycles.len() == effort.windows || is_late {
            break;
        }
    }
    cycles.sort_by(f64::total_cmp);
    let counted = cycles.len();
    if counted < WINDOWS_MIN.min(effort.windows) {
        let Disturbance { rate, sibling } = disturbed;
        return Err(format!(
            "of {} windows {counted} were undisturbed: in {rate} the core's rate changed, in {sibling} its \
             sibling or something else ran",
            counted + rate + sibling
        ));
    }
    Ok(Sample {
        cycles: median(&cycles).ok_or("no windows were asked for")?,
        low_cycles: cycles[cycles.len() / 10],
        cycles_95: order_95(cycles.len()).map(|(low, high)| (cycles[low], cycles[high])),
        windows: cycles.len(),
        disturbed,
    })
}

/// Executes windows that do not count.
fn warm_up(learns: bool, body: &mut dyn Body, clock: &mut Clock, rounds: u64) {
    let (least_cycles, most) =
        if learns { (LEARNING_CYCLES, LEARNING_WINDOWS_MAX) } else { (0.0, WARM_UP_WINDOWS) };
    let mut cycles = 0.0;
    for number in 0..most {
        if number >= WARM_UP_WINDOWS && cycles >= least_cycles {
            break;
        }
        cycles += window(body, clock, rounds).1.cycles;
    }
}

fn window(body: &mut dyn Body, clock: &mut Clock, rounds: u64) -> (Executed, Timed) {
    body.prepare();
    clock.time(|| {
        let executed = body.run(rounds);
        (executed, executed.ticks)
    })
}

/// How many rounds fill a window, by a short one.
fn rounds(body: &mut dyn Body, clock: &mut Clock, window_cycles: u64) -> u64 {
    const TRIED: u64 = 4;
    match body.rounds() {
        Rounds::Fixed(rounds) => rounds,
        Rounds::AsFit => {
            let shortest = (0..3).map(|_| window(body, clock, TRIED).1.cycles);
            let shortest = shortest.fold(f64::INFINITY, f64::min).max(1.0);
            (window_cycles as f64 * TRIED as f64 / shortest).round().clamp(1.0, 1e7) as u64
        }
    }
}
