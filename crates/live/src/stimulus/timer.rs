//! The timer stimulus: high-resolution timers that expire on the measured CPUs. At the low rate a sleeping thread on each
//! CPU sets them. At the high rate perf's sampling timer sets them, or the sleeping threads if the kernel refuses perf.

use std::io;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};
use std::time::{Duration, Instant};

use perf_event_open_sys::bindings::{
    PERF_COUNT_SW_CPU_CLOCK, PERF_FLAG_FD_CLOEXEC, PERF_TYPE_SOFTWARE, perf_event_attr,
};
use perf_event_open_sys::ioctls;
use rustix::thread::set_current_timer_slack;

use super::error::WorkerError;
use super::facts::{Facts, facts};
use super::system::{Ticker, other_cpu};
use super::worker_pool::{Worker, WorkerPool};
use super::{Rate, StimulusSettings};
use crate::host::interrupts::{increase, read_interrupts};
use crate::host::{Root, is_online};

/// Longest and shortest interval between two refreshes, which set the sampling period again. [`start_sampling`] says
/// why.
const REFRESH_INTERVAL_MAX: Duration = Duration::from_millis(32);
const REFRESH_INTERVAL_MIN: Duration = Duration::from_millis(1);
/// Duration of the trial of a refresh interval.
const REFRESH_TRIAL: Duration = Duration::from_millis(100);

/// Starts the timers at the rate of the settings. Returns facts about the method.
///
/// Fails if a worker cannot be started.
pub(super) fn start(
    settings: &StimulusSettings,
    pool: &mut WorkerPool,
) -> Result<Facts, WorkerError> {
    match settings.rate {
        Rate::Low => start_sleepers(settings, pool, settings.low_interval),
        Rate::High => match open_clock_events(settings) {
            Ok(events) => start_sampling(settings, pool, events),
            Err(error) => {
                let mut facts = start_sleepers(settings, pool, settings.timer_period)?;
                facts.extend(facts! {
                    "method_reason": format!("perf_event_open of cpu-clock: {error}"),
                });
                Ok(facts)
            }
        },
    }
}

/// Starts a thread on each measured CPU that sleeps to each multiple of `interval`. Counts one operation per sleep.
///
/// Fails if a thread cannot be started. The threads that run by then stay in `pool`.
fn start_sleepers(
    settings: &StimulusSettings,
    pool: &mut WorkerPool,
    interval: Duration,
) -> Result<Facts, WorkerError> {
    for &cpu in &settings.cpus {
        pool.spawn("timer", Some(cpu), move |worker| sleep_loop(worker, interval))?;
    }
    let interval_ns = interval.as_nanos() as u64;
    Ok(facts! { "stimulus": "timer", "method": "clock_nanosleep", "interval_ns": interval_ns })
}

/// The main function of a sleeping thread: sleeps to the next multiple of `interval` until stopped. The kernel sets a
/// timer for each sleep.
fn sleep_loop(worker: &Worker, interval: Duration) -> Result<(), WorkerError> {
    // The default timer slack of 50 us would delay the timers. If the change fails, only the rate suffers.
    let _ = set_current_timer_slack(std::num::NonZeroU64::new(1));
    let mut ticker = Ticker::new(interval);
    worker.report_ready(Facts::new());
    while !worker.is_stopped() {
        worker.sleep_to_next(&mut ticker);
        worker.count(1, 0);
    }
    Ok(())
}

/// Starts a worker that keeps perf's `cpu-clock` running on each measured CPU. Its sampling timer interrupts at a fixed
/// period. There is no buffer for samples, and no thread of irqlab on the measured CPUs. `events`: the open events
/// ([`open_clock_events`]). An operation is one period of one event.
///
/// perf throttles an event after a number of samples without a scheduler tick, and an idle CPU has
/// no tick. Setting the period again (a *refresh*) lifts the throttle, and costs one function-call IPI.
/// Before the stimulus counts as running, trials determine how often this is necessary. In some
/// kernels an event's counted time shows that it was throttled. In others, such as Linux 6.1, this time
/// advances during a throttle, and only the missing interrupts show it.
fn start_sampling(
    settings: &StimulusSettings,
    pool: &mut WorkerPool,
    events: Vec<OwnedFd>,
) -> Result<Facts, WorkerError> {
    let period_ns = settings.timer_period.as_nanos() as u64;
    let clocks = ClockEvents { events, cpus: settings.cpus.clone(), period_ns };
    pool.spawn("timer", other_cpu(settings), move |worker| {
        let refresh = find_refresh_interval(&clocks)?;
        let before_ns = clocks.total_ns()?;
        worker.report_ready(facts! {
            "refresh_interval_ns": refresh.interval.as_nanos() as u64,
            "throttled": refresh.is_throttled,
        });
        let parts = refresh_loop(worker, &clocks, refresh.interval)?;
        if let Some(warning) = parts.warning() {
            worker.warn(warning);
        }
        worker.count(clocks.total_ns()?.saturating_sub(before_ns) / period_ns, 0);
        Ok(())
    })?;
    Ok(facts! { "stimulus": "timer", "method": "perf cpu-clock", "interval_ns": period_ns })
}

/// Parts of a window, of [`REFRESH_TRIAL`] or a little more, in which throttles were looked for.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct CheckedParts {
    /// All parts that began with the shortest refresh interval.
    count: u64,
    /// The parts of `count` in which an event was throttled.
    throttled_count: u64,
}

impl CheckedParts {
    /// The warning if the shortest refresh interval was too long in some parts. `None` if it was short enough
    /// everywhere.
    fn warning(self) -> Option<String> {
        (self.throttled_count > 0).then(|| {
            format!(
                "the kernel throttled the timer events although irqlab set their period again every {} ms, in {} of {} \
                 parts of the window: fewer timer interrupts came than there are operations",
                REFRESH_INTERVAL_MIN.as_millis(),
                self.throttled_count,
                self.count
            )
        })
    }
}

/// Refreshes the events until stopped. Halves the interval after an event was throttled, for instance because a CPU
/// that was busy at the start became idle. Returns whether the shortest interval sufficed.
fn refresh_loop(
    worker: &Worker,
    clocks: &ClockEvents,
    mut interval: Duration,
) -> Result<CheckedParts, WorkerError> {
    let mut ticker = Ticker::new(interval);
    let mut parts = CheckedParts::default();
    let mut start = ClockReadings::take(clocks)?;
    while !worker.is_stopped() {
        worker.sleep_to_next(&mut ticker);
        clocks.set_period()?;
        if start.time.elapsed() < REFRESH_TRIAL {
            continue;
        }
        let end = ClockReadings::take(clocks)?;
        let is_throttled = start.was_throttled_until(&end, clocks);
        if interval <= REFRESH_INTERVAL_MIN {
            parts.count += 1;
            parts.throttled_count += u64::from(is_throttled);
        } else if is_throttled {
            interval /= 2;
            ticker = Ticker::new(interval);
        }
        start = end;
    }
    Ok(parts)
}

/// The result of the trials of refresh intervals.
struct RefreshInterval {
    interval: Duration,
    /// Whether an event was throttled although `interval` is the shortest one.
    is_throttled: bool,
}

/// Finds by trials the longest refresh interval at which no event is throttled for a significant time.
fn find_refresh_interval(clocks: &ClockEvents) -> Result<RefreshInterval, WorkerError> {
    let mut interval = REFRESH_INTERVAL_MAX;
    loop {
        clocks.set_period()?;
        let start = ClockReadings::take(clocks)?;
        while start.time.elapsed() < REFRESH_TRIAL {
            std::thread::sleep(interval);
            clocks.set_period()?;
        }
        let is_throttled = start.was_throttled_until(&ClockReadings::take(clocks)?, clocks);
        if !is_throttled || interval <= REFRESH_INTERVAL_MIN {
            return Ok(RefreshInterval { interval, is_throttled });
        }
        interval /= 2;
    }
}

/// Readings of the events at one moment. Two readings show whether events were throttled in between.
struct ClockReadings {
    time: Instant,
    /// Time during which each event has counted.
    counted_ns: Vec<u64>,
    /// Local timer interrupts of each event's CPU. `None` if the CPU is offline, or the kernel
    /// does not report them.
    interrupts: Vec<Option<u64>>,
    /// Whether each event's CPU is online.
    is_online: Vec<bool>,
}

impl ClockReadings {
    fn take(clocks: &ClockEvents) -> Result<Self, WorkerError> {
        let (counted_ns, interrupts) = (clocks.counted_ns()?, clocks.interrupts());
        let is_online = clocks.cpus.iter().map(|cpu| is_online(&Root::default(), *cpu)).collect();
        Ok(ClockReadings { time: Instant::now(), counted_ns, interrupts, is_online })
    }

    /// Whether the events together were stopped for more than a twentieth of the time between the two readings, or one
    /// event lacks a tenth of its interrupts. Events of offline CPUs do not count: they stop for another reason.
    fn was_throttled_until(&self, end: &ClockReadings, clocks: &ClockEvents) -> bool {
        let elapsed_ns = (end.time - self.time).as_nanos() as u64;
        let interrupts_min = elapsed_ns / clocks.period_ns / 10 * 9;
        let is_online = |index: &usize| self.is_online[*index] && end.is_online[*index];
        let online: Vec<usize> = (0..clocks.events.len()).filter(is_online).collect();
        let lacks_interrupts = online.iter().any(|&index| {
            let counts = end.interrupts[index].zip(self.interrupts[index]);
            let interrupts = counts.and_then(|(after, before)| increase(before, after));
            interrupts.is_some_and(|interrupts| interrupts < interrupts_min)
        });
        let counted =
            |index: &usize| end.counted_ns[*index].saturating_sub(self.counted_ns[*index]);
        let counted_ns: u64 = online.iter().map(counted).sum();
        lacks_interrupts || counted_ns < elapsed_ns * online.len() as u64 / 20 * 19
    }
}

/// The open perf events, one on each measured CPU.
struct ClockEvents {
    /// In the order of `cpus`.
    events: Vec<OwnedFd>,
    cpus: Vec<u32>,
    /// The sampling period.
    period_ns: u64,
}

impl ClockEvents {
    /// Sets the sampling period of all events, which also lifts a throttle.
    fn set_period(&self) -> Result<(), WorkerError> {
        for event in &self.events {
            // The kernel takes a pointer to the period. The bindings declare it as a u64.
            let address = &raw const self.period_ns as u64;
            // SAFETY: the kernel reads a u64 at this address, which is valid until the call
            // returns.
            if unsafe { ioctls::PERIOD(event.as_raw_fd(), address) } < 0 {
                let error = io::Error::last_os_error();
                return Err(WorkerError::failed(format!("setting a perf event's period: {error}")));
            }
        }
        Ok(())
    }

    /// Time during which the events have counted, ns, summed over the CPUs.
    fn total_ns(&self) -> Result<u64, WorkerError> {
        Ok(self.counted_ns()?.iter().sum())
    }

    /// Time during which each event has counted, ns.
    fn counted_ns(&self) -> Result<Vec<u64>, WorkerError> {
        let mut counted_ns = Vec::new();
        for event in &self.events {
            let mut bytes = [0; 8];
            let count = rustix::io::read(event, &mut bytes).map_err(|e| {
                WorkerError::failed(format!("reading perf event {}: {e}", event.as_raw_fd()))
            })?;
            if count != bytes.len() {
                return Err(WorkerError::failed("a perf event gave no count"));
            }
            counted_ns.push(u64::from_ne_bytes(bytes));
        }
        Ok(counted_ns)
    }

    /// Local timer interrupts of each CPU since boot.
    fn interrupts(&self) -> Vec<Option<u64>> {
        let counts = read_interrupts(&Root::default());
        let timer_interrupts = |cpu: &u32| counts.as_ref()?.count("LOC", *cpu);
        self.cpus.iter().map(timer_interrupts).collect()
    }
}

/// Opens and starts `cpu-clock` on each measured CPU, in the order of the settings.
///
/// Fails with the kernel's error, for instance without the rights.
fn open_clock_events(settings: &StimulusSettings) -> io::Result<Vec<OwnedFd>> {
    let period_ns = settings.timer_period.as_nanos() as u64;
    settings.cpus.iter().map(|&cpu| open_clock_event(cpu, period_ns)).collect()
}

/// Opens and starts `cpu-clock` on `cpu` for all processes.
fn open_clock_event(cpu: u32, period_ns: u64) -> io::Result<OwnedFd> {
    let cpu = i32::try_from(cpu).map_err(io::Error::other)?;
    let mut attr = perf_event_attr {
        type_: PERF_TYPE_SOFTWARE,
        size: std::mem::size_of::<perf_event_attr>() as u32,
        config: u64::from(PERF_COUNT_SW_CPU_CLOCK),
        ..Default::default()
    };
    attr.__bindgen_anon_1.sample_period = period_ns;
    // SAFETY: `attr` is a valid perf_event_attr whose size field is its size; the kernel reads it
    // (and may write the size field) and keeps no pointer to it.
    let fd = unsafe {
        perf_event_open_sys::perf_event_open(
            &mut attr,
            -1,
            cpu,
            -1,
            u64::from(PERF_FLAG_FD_CLOEXEC) as _,
        )
    };
    if fd < 0 {
        return Err(io::Error::last_os_error());
    }
    // SAFETY: the kernel has just returned this descriptor, and nobody else owns it.
    Ok(unsafe { OwnedFd::from_raw_fd(fd) })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_throttle_at_the_shortest_interval_is_warned_of() {
        let parts = |throttled_count| CheckedParts { count: 20, throttled_count };
        assert_eq!(parts(0).warning(), None);
        assert!(parts(3).warning().unwrap().contains("in 3 of 20 parts"));
    }

    #[test]
    fn a_throttle_shows_in_the_events_time_or_in_the_interrupts() {
        let event = || OwnedFd::from(std::fs::File::open("/dev/null").unwrap());
        let events = vec![event(), event()];
        let clocks = ClockEvents { events, cpus: vec![0, 1], period_ns: 50_000 };
        let start = Instant::now();
        let window = |ms: u64, counted_ms: u64, interrupts| ClockReadings {
            time: start + Duration::from_millis(ms),
            // Each of the two CPUs has half of the time.
            counted_ns: vec![counted_ms * 500_000; 2],
            interrupts,
            is_online: vec![true, true],
        };
        let before = window(0, 8, vec![Some(1_000), Some(5)]);
        let throttled = |counted_ms: u64, interrupts: [Option<u64>; 2]| {
            let interrupts = Vec::from(interrupts);
            before.was_throttled_until(&window(100, 8 + counted_ms, interrupts), &clocks)
        };
        // Two CPUs, 2,000 expirations each.
        let all = [Some(3_000), Some(2_030)];
        assert!(!throttled(200, all));
        assert!(!throttled(200, [None, None]));
        assert!(throttled(150, all));
        assert!(throttled(200, [Some(3_025), Some(1_435)]), "one of them");
        // The second CPU went offline, and its event stopped.
        let mut end = window(100, 208, vec![Some(3_000), None]);
        end.counted_ns[1] = before.counted_ns[1];
        assert!(before.was_throttled_until(&end, &clocks));
        end.is_online[1] = false;
        assert!(!before.was_throttled_until(&end, &clocks));
    }
}
