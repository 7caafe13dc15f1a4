//! Forecasts how long the machines of a command still run on the host's clock. The command prints it with the
//! progress.
//!
//! The arithmetic is pure: [`Forecast`] gets the times from its caller. An unknown time is `None`, never a guess.
//! Where the cache has host times of an earlier run ([`KeptTimes`]), they are scaled to this run. An *equal run* is
//! an earlier run of the same request: its guest did exactly the same, so its times need no scaling.

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use crate::boot::Limits;
use crate::guest_run::{MachinePhase, MachineState};
use crate::kept_times::KeptTimes;

/// The longest time that is forecast. A longer result comes from a measurement that is too short.
const TIME_MAX: Duration = Duration::from_secs(100 * 365 * 86_400);
/// Minimum host time of a machine and of an equal run, until their speeds are compared.
const SPEED_MEASURED_IN: Duration = Duration::from_secs(2);

/// The work of a machine, with the facts about its length that are known before the machine starts.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct MachineWork {
    /// Number of windows; `None` if unknown.
    pub windows: Option<u32>,
    /// Guest time of a window, ns; `None` if unknown.
    pub window_ns: Option<u64>,
    /// Guest time of the warm-up before the first window, ns; `None` if unknown.
    pub warm_up_ns: Option<u64>,
    /// The times of an earlier run, if the cache has them.
    pub kept: Option<KeptTimes>,
    /// Whether `kept` comes from an equal run.
    pub is_same_request: bool,
    /// Whether a window may end before `window_ns`, once it has measured enough.
    pub windows_end_early: bool,
    /// The limits of a request of unknown length; `None` if its length is known.
    pub limits: Option<Limits>,
    /// The guest's memory, MiB; `None` if unknown.
    pub memory_mib: Option<u32>,
}

/// A part of the remaining time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TimePart {
    /// Boot, warm-up, and everything else before the first window.
    SetUp,
    /// The windows of the machines that run now.
    Windows,
    /// Machines that have not started.
    FurtherMachines,
}

/// How long the machines still run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TimeLeft {
    pub total: Duration,
    /// The largest part of the total.
    pub dominated_by: TimePart,
}

/// A running machine, as its reports of progress show it.
#[derive(Clone, Debug)]
struct Running {
    started: Instant,
    work: MachineWork,
    state: MachineState,
    /// When the warm-up was first seen, and its guest time until then, ns.
    warm_up: Option<(Instant, u64)>,
    /// When the open window opened; `None` while none is open.
    window_opened: Option<Instant>,
    /// When the last window closed; `None` while one is open.
    window_closed: Option<Instant>,
    /// Host time of all closed windows.
    closed: Duration,
    /// The longest host time of a closed window; `None` before the first window closed.
    slowest: Option<Duration>,
}

/// Returns a multiple of a time; `None` above [`TIME_MAX`].
fn scaled(time: Duration, factor: f64) -> Option<Duration> {
    let seconds = time.as_secs_f64() * factor;
    Duration::try_from_secs_f64(seconds).ok().filter(|time| *time <= TIME_MAX)
}

/// The remaining host time of a machine.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct RemainingTime {
    set_up: Duration,
    windows: Duration,
}

impl Running {
    /// Describes a machine that starts now.
    fn new(now: Instant, work: MachineWork) -> Running {
        let state = MachineState::default();
        let (warm_up, window_opened, window_closed, closed) = (None, None, None, Duration::ZERO);
        let (started, slowest) = (now, None);
        Running { started, work, state, warm_up, window_opened, window_closed, closed, slowest }
    }

    /// Notes a reported state: when a window opens or closes, and when the warm-up starts.
    fn update(&mut self, now: Instant, state: MachineState) {
        if state.phase == MachinePhase::WarmUp {
            self.warm_up = self.warm_up.or(Some((now, state.elapsed_ns.unwrap_or(0))));
        }
        let is_open = |phase: MachinePhase| matches!(phase, MachinePhase::Window(_));
        if is_open(state.phase) && state.phase != self.state.phase {
            self.close(now);
            (self.window_opened, self.window_closed) = (Some(now), None);
        } else if !is_open(state.phase) {
            self.close(now);
        }
        self.state = state;
    }

    /// Notes the end of the open window, if one is open.
    fn close(&mut self, now: Instant) {
        if let Some(opened) = self.window_opened.take() {
            let window_time = now.saturating_duration_since(opened);
            self.window_closed = Some(now);
            self.closed += window_time;
            self.slowest = self.slowest.max(Some(window_time));
        }
    }

    /// Returns the host time of all windows, from the times of an earlier run.
    fn kept_windows(&self) -> Option<Duration> {
        let kept = self.work.kept.as_ref()?;
        if self.work.is_same_request {
            return Some(kept.windows);
        }
        let guest_ns = self.work.window_ns?.checked_mul(self.work.windows?.into())?;
        // Windows that were too short to be timed say nothing about longer windows.
        let is_timed = kept.guest_ns > 0 && !kept.windows.is_zero();
        if !is_timed {
            return None;
        }
        scaled(kept.windows, guest_ns as f64 / kept.guest_ns as f64)
    }

    /// Returns the remaining time of a machine in its warm-up, at the rate of guest time per host time so far.
    fn remaining_in_warm_up(&self, now: Instant) -> Option<RemainingTime> {
        let (seen, seen_ns) = self.warm_up?;
        let elapsed_ns = self.state.elapsed_ns?;
        let measured_ns = elapsed_ns.checked_sub(seen_ns).filter(|ns| *ns > 0)?;
        let host_per_guest = now.saturating_duration_since(seen).as_secs_f64() / measured_ns as f64;
        let host = |guest_ns: u64| scaled(Duration::from_secs(1), host_per_guest * guest_ns as f64);
        let set_up = host(self.work.warm_up_ns?.saturating_sub(elapsed_ns))?;
        let guest_ns = self.work.window_ns?.saturating_mul(self.work.windows?.into());
        let kept = self.kept_windows().filter(|_| self.work.is_same_request);
        Some(RemainingTime { set_up, windows: kept.or_else(|| host(guest_ns))? })
    }

    /// Returns the host time that the equal run spent in windows until it was where this machine is now. Finds the
    /// place by window and guest time, or by the number of windows if the equal run kept no single times. `None` before the
    /// first window and after the last.
    fn progress_in_equal_run(&self, kept: &KeptTimes) -> Option<Duration> {
        let (window, is_open) = match self.state.phase {
            MachinePhase::Window(window) => (window, true),
            MachinePhase::After(window) => (window, false),
            _ => return None,
        };
        let closed_count = window.saturating_sub(u32::from(is_open));
        if kept.single.is_empty() {
            let closed_part = f64::from(closed_count) / f64::from(kept.window_count.max(1));
            return scaled(kept.windows, closed_part.min(1.0));
        }
        let closed_windows: Duration =
            kept.single.iter().take(closed_count as usize).map(|(host, _)| *host).sum();
        let open_window = if is_open { kept.single.get(closed_count as usize) } else { None };
        let part_of_open = open_window.map_or(Duration::ZERO, |(host, guest_ns)| {
            let part = self.state.elapsed_ns.unwrap_or(0) as f64 / (*guest_ns).max(1) as f64;
            scaled(*host, part.min(1.0)).unwrap_or_default()
        });
        Some(closed_windows + part_of_open)
    }

    /// Returns the rest of the windows of an equal run, at the speed of this host now. `actual`: host time that this
    /// machine spent in windows so far.
    fn remaining_of_equal_run(&self, actual: Duration) -> Option<Duration> {
        let kept = self.work.kept.as_ref().filter(|_| self.work.is_same_request)?;
        let done = self.progress_in_equal_run(kept)?;
        let remaining = kept.windows.saturating_sub(done);
        // A ratio of short times is not reliable.
        let is_long = done >= SPEED_MEASURED_IN && actual >= SPEED_MEASURED_IN;
        let slowdown = if is_long { actual.as_secs_f64() / done.as_secs_f64() } else { 1.0 };
        scaled(remaining, slowdown)
    }

    /// Returns the remaining time of the machine; `None` while it is unknown.
    fn remaining(&self, now: Instant) -> Option<RemainingTime> {
        let elapsed = now.saturating_duration_since(self.started);
        match self.state.phase {
            MachinePhase::WarmUp if self.remaining_in_warm_up(now).is_some() => {
                self.remaining_in_warm_up(now)
            }
            MachinePhase::Boots | MachinePhase::Starts | MachinePhase::WarmUp => {
                let set_up = self.work.kept.as_ref()?.set_up.saturating_sub(elapsed);
                Some(RemainingTime { set_up, windows: self.kept_windows()? })
            }
            MachinePhase::Window(number) => {
                let windows = self.windows_left_in(number, now)?;
                Some(RemainingTime { set_up: Duration::ZERO, windows })
            }
            MachinePhase::After(number) => {
                let windows = self.windows_left_after(number, now)?;
                Some(RemainingTime { set_up: Duration::ZERO, windows })
            }
            MachinePhase::Unobserved => {
                let windows = self.kept_windows()?.saturating_sub(elapsed);
                Some(RemainingTime { set_up: Duration::ZERO, windows })
            }
            MachinePhase::Drains | MachinePhase::Analysis => Some(RemainingTime::default()),
        }
    }

    /// Returns the host time of the open window so far. 0 between windows.
    fn time_in_window(&self, now: Instant) -> Duration {
        let opened = self.window_opened;
        opened.map(|opened| now.saturating_duration_since(opened)).unwrap_or_default()
    }

    /// Returns the rest of the windows by the times of an earlier run; `None` if there are none.
    fn windows_left_by_earlier_run(&self, now: Instant) -> Option<Duration> {
        let actual = self.closed + self.time_in_window(now);
        let scaled = self.remaining_of_equal_run(actual);
        scaled.or_else(|| Some(self.kept_windows()?.saturating_sub(actual)))
    }

    /// Returns the number of windows after the window `number`; `None` if it is not known.
    fn further_windows(&self, number: u32) -> Option<u32> {
        self.work.windows.map(|count| count.saturating_sub(number))
    }

    /// Returns the rest of the windows while the window `number` is open; `None` while it is unknown.
    fn windows_left_in(&self, number: u32, now: Instant) -> Option<Duration> {
        let in_window = self.time_in_window(now);
        let part = self.state.fraction.filter(|part| *part > 0.0);
        let window_time = part.and_then(|part| scaled(in_window, part.recip()));
        let rest_of_window =
            window_time.map_or(Duration::ZERO, |window_time| window_time.saturating_sub(in_window));
        match (window_time, self.further_windows(number)) {
            // The equal run knows when each of its windows ended early.
            _ if self.work.is_same_request && self.work.windows_end_early => {
                self.windows_left_by_earlier_run(now)
            }
            _ if self.work.is_same_request => {
                Some(self.windows_left_by_earlier_run(now)?.max(rest_of_window))
            }
            // Windows differ. A window that has not opened may be as slow as the slowest one.
            (Some(window_time), Some(further)) => {
                let slowest = self.slowest.max(Some(window_time))?;
                Some(rest_of_window + scaled(slowest, further.into())?)
            }
            // The window has just opened: its rate is not known yet.
            (None, Some(further)) if self.slowest.is_some() => {
                Some(scaled(self.slowest?, f64::from(further) + 1.0)?.saturating_sub(in_window))
            }
            _ => self.windows_left_by_earlier_run(now),
        }
    }

    /// Returns the rest of the windows after the window `number` has closed; `None` while it is unknown.
    fn windows_left_after(&self, number: u32, now: Instant) -> Option<Duration> {
        let since_close = self.window_closed.map(|closed| now.saturating_duration_since(closed));
        match self.further_windows(number) {
            // The time between windows counts, too: it is as long as in the equal run.
            _ if self.work.is_same_request => Some(
                self.windows_left_by_earlier_run(now)?
                    .saturating_sub(since_close.unwrap_or_default()),
            ),
            Some(further) if self.slowest.is_some() => scaled(self.slowest?, further.into()),
            _ => self.windows_left_by_earlier_run(now),
        }
    }
}

/// The machines of a command.
#[derive(Clone, Debug)]
pub struct Forecast {
    /// Number of machines that are to run.
    planned: usize,
    /// Number of machines that run at the same time.
    at_once: usize,
    running: BTreeMap<String, Running>,
    /// Host times of the machines that have ended.
    ended: Vec<Duration>,
}

impl Default for Forecast {
    fn default() -> Forecast {
        Forecast::new(1, 1)
    }
}

impl Forecast {
    #[must_use]
    pub fn new(planned: usize, at_once: usize) -> Forecast {
        Forecast { planned, at_once, running: BTreeMap::new(), ended: Vec::new() }
    }

    /// Sets how many further machines are to run, and how many of them at the same time.
    pub fn plan(&mut self, further: usize, at_once: usize) {
        self.planned = self.ended.len() + self.running.len() + further;
        self.at_once = at_once;
    }

    /// Notes that a machine starts.
    pub fn start(&mut self, now: Instant, machine: &str, work: MachineWork) {
        self.running.insert(machine.to_owned(), Running::new(now, work));
    }

    /// Notes the state of a machine.
    pub fn update(&mut self, now: Instant, machine: &str, state: MachineState) {
        let new = || Running::new(now, MachineWork::default());
        self.running.entry(machine.to_owned()).or_insert_with(new).update(now, state);
    }

    /// Notes that a machine has ended.
    pub fn end(&mut self, now: Instant, machine: &str) {
        let running = self.running.remove(machine);
        // A machine that boots for the cache is not one of the planned machines.
        if let Some(running) = running.filter(|running| running.state.phase != MachinePhase::Boots)
        {
            self.ended.push(now.saturating_duration_since(running.started));
        }
    }

    /// Returns the number of machines that have ended, and the number of planned machines.
    #[must_use]
    pub fn machines(&self) -> (usize, usize) {
        (self.ended.len(), self.planned.max(self.ended.len() + self.running.len()))
    }

    /// Returns the names and states of the running machines.
    pub fn states(&self) -> impl Iterator<Item = (&str, MachineState)> {
        self.running.iter().map(|(name, running)| (name.as_str(), running.state))
    }

    /// Returns the instructions per second of host time in the open window of a machine; `None` in other phases.
    #[must_use]
    pub fn instruction_rate(&self, now: Instant, machine: &str) -> Option<f64> {
        let running = self.running.get(machine)?;
        let host = now.saturating_duration_since(running.window_opened?).as_secs_f64();
        let instructions = running.state.instructions.filter(|instructions| *instructions > 0)?;
        (host > 0.0).then(|| instructions as f64 / host)
    }

    /// Returns the time until a machine of unknown length reaches its limit on the host's clock, and its limits.
    /// `None` if there is no such machine, or more than one.
    #[must_use]
    pub fn limits(&self, now: Instant) -> Option<(Duration, Limits)> {
        let mut bounded = self.running.values().filter_map(|running| {
            let limits = running.work.limits?;
            let elapsed = now.saturating_duration_since(running.started);
            Some((limits.wall.saturating_sub(elapsed), limits))
        });
        let first = bounded.next();
        if bounded.next().is_some() { None } else { first }
    }

    /// Returns whether the forecast is an upper bound: a machine may end its windows early, and no equal run shows
    /// when.
    #[must_use]
    pub fn is_at_most(&self) -> bool {
        let may_end_early =
            |running: &Running| running.work.windows_end_early && !running.work.is_same_request;
        self.running.values().any(may_end_early)
    }

    /// Returns guest time per host time in the open window or the warm-up of a machine; `None` in other phases.
    #[must_use]
    pub fn rate(&self, now: Instant, machine: &str) -> Option<f64> {
        let running = self.running.get(machine)?;
        let (since, before_ns) = match running.state.phase {
            MachinePhase::WarmUp => running.warm_up?,
            _ => (running.window_opened?, 0),
        };
        let host = now.saturating_duration_since(since).as_secs_f64();
        let guest_s = running.state.elapsed_ns?.saturating_sub(before_ns) as f64 / 1e9;
        (host > 0.0 && guest_s > 0.0).then(|| guest_s / host)
    }

    /// Returns the time until the last machine has ended, if `at_once` machines run at the same time and further
    /// machines take the mean time of those so far. `None` while it is unknown.
    #[must_use]
    pub fn time_left(&self, now: Instant) -> Option<TimeLeft> {
        let remaining_times: Option<Vec<RemainingTime>> =
            self.running.values().map(|running| running.remaining(now)).collect();
        let remaining_times = remaining_times?;
        let (ended, planned) = self.machines();
        let waiting = planned.saturating_sub(ended + self.running.len());
        let run_time = |(running, rest): (&Running, &RemainingTime)| {
            now.saturating_duration_since(running.started) + rest.set_up + rest.windows
        };
        let run_times: Vec<Duration> = self
            .ended
            .iter()
            .copied()
            .chain(self.running.values().zip(&remaining_times).map(run_time))
            .collect();
        let mean_run_time = match u32::try_from(run_times.len()) {
            Ok(count @ 1..) => run_times.iter().sum::<Duration>() / count,
            _ if waiting == 0 => Duration::ZERO,
            _ => return None,
        };
        let set_up: Duration = remaining_times.iter().map(|time| time.set_up).sum();
        let windows: Duration = remaining_times.iter().map(|time| time.windows).sum();
        let further_machines = scaled(mean_run_time, waiting as f64)?;
        let at_once = self.at_once.clamp(1, (self.running.len() + waiting).max(1));
        let longest =
            remaining_times.iter().map(|time| time.set_up + time.windows).max().unwrap_or_default();
        let total = ((set_up + windows + further_machines) / at_once as u32).max(longest);
        let parts = [
            (set_up, TimePart::SetUp),
            (windows, TimePart::Windows),
            (further_machines, TimePart::FurtherMachines),
        ];
        let largest = parts.into_iter().max_by_key(|(time, _)| *time);
        let dominated_by = largest.map_or(TimePart::Windows, |(_, part)| part);
        Some(TimeLeft { total, dominated_by })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SECOND: Duration = Duration::from_secs(1);

    fn window(number: u32, fraction: f64) -> MachineState {
        let elapsed_ns = Some((fraction * 2e8) as u64);
        MachineState {
            phase: MachinePhase::Window(number),
            fraction: Some(fraction),
            elapsed_ns,
            instructions: None,
        }
    }

    fn work(windows: u32) -> MachineWork {
        MachineWork {
            windows: Some(windows),
            window_ns: Some(200_000_000),
            ..MachineWork::default()
        }
    }

    #[test]
    fn nothing_is_known_before_the_first_window_of_the_first_run() {
        let start = Instant::now();
        let mut forecast = Forecast::new(2, 1);
        forecast.start(start, "a", work(1));
        assert_eq!(forecast.time_left(start + SECOND), None);
        forecast.update(start + 2 * SECOND, "a", window(1, 0.0));
        assert_eq!(forecast.time_left(start + 3 * SECOND), None);
    }

    #[test]
    fn the_measured_part_of_a_window_gives_the_rest_and_the_machines_that_wait() {
        let start = Instant::now();
        let mut forecast = Forecast::new(3, 1);
        forecast.start(start, "a", work(1));
        forecast.update(start + 2 * SECOND, "a", window(1, 0.0));
        let now = start + 4 * SECOND;
        forecast.update(now, "a", window(1, 0.25));
        // A machine takes 2 s of set-up and 8 s of window; 6 s of the first and two more are left.
        let left = forecast.time_left(now).unwrap();
        let expected = TimeLeft { total: 26 * SECOND, dominated_by: TimePart::FurtherMachines };
        assert_eq!(left, expected);
        assert_eq!(forecast.rate(now, "a"), Some(0.05 / 2.0));
        forecast.plan(0, 1);
        let expected = TimeLeft { total: 6 * SECOND, dominated_by: TimePart::Windows };
        assert_eq!(forecast.time_left(now), Some(expected));
        forecast.end(start + 10 * SECOND, "a");
        assert_eq!(forecast.machines(), (1, 1));
    }

    #[test]
    fn the_rate_of_the_warm_up_forecasts_the_window() {
        let start = Instant::now();
        let mut forecast = Forecast::new(1, 1);
        forecast.start(start, "a", MachineWork { warm_up_ns: Some(100_000_000), ..work(1) });
        let warm_up = |ns| MachineState {
            elapsed_ns: Some(ns),
            ..MachineState::of_phase(MachinePhase::WarmUp)
        };
        forecast.update(start + 2 * SECOND, "a", warm_up(10_000_000));
        assert_eq!(forecast.time_left(start + 2 * SECOND), None);
        forecast.update(start + 4 * SECOND, "a", warm_up(30_000_000));
        // 10 ms of guest time take a second: 70 ms of warm-up and 200 ms of window are left.
        let left = forecast.time_left(start + 4 * SECOND).unwrap();
        assert_eq!((left.total.as_millis(), left.dominated_by), (27_000, TimePart::Windows));
        assert_eq!(forecast.rate(start + 4 * SECOND, "a"), Some(0.01));
    }

    #[test]
    fn machines_at_the_same_time_take_at_least_as_long_as_the_longest() {
        let start = Instant::now();
        let mut forecast = Forecast::new(2, 2);
        for (name, fraction) in [("a", 0.5), ("b", 0.1)] {
            forecast.start(start, name, work(1));
            forecast.update(start, name, window(1, 0.0));
            forecast.update(start + SECOND, name, window(1, fraction));
        }
        assert_eq!(forecast.time_left(start + SECOND).unwrap().total, 9 * SECOND);
    }

    #[test]
    fn further_windows_take_as_long_as_the_slowest_one_so_far() {
        let start = Instant::now();
        let mut forecast = Forecast::new(1, 1);
        forecast.start(start, "loops", work(3));
        forecast.update(start, "loops", window(1, 0.0));
        let state = MachineState { phase: MachinePhase::After(1), ..MachineState::default() };
        forecast.update(start + 4 * SECOND, "loops", state);
        assert_eq!(forecast.time_left(start + 5 * SECOND).unwrap().total, 8 * SECOND);
        forecast.update(start + 5 * SECOND, "loops", window(2, 0.0));
        assert_eq!(forecast.time_left(start + 5 * SECOND).unwrap().total, 8 * SECOND);
        forecast.update(start + 5 * SECOND, "loops", window(2, 0.5));
        forecast.update(start + 6 * SECOND, "loops", window(2, 0.5));
        // The second loop runs twice as fast as the first one, the third may be as slow as the first one.
        assert_eq!(forecast.time_left(start + 6 * SECOND).unwrap().total, 5 * SECOND);
        forecast.update(start + 7 * SECOND, "loops", window(3, 0.0));
        forecast.update(start + 12 * SECOND, "loops", window(3, 0.25));
        assert_eq!(forecast.time_left(start + 12 * SECOND).unwrap().total, 15 * SECOND);
    }

    #[test]
    fn a_time_that_is_too_long_to_express_is_not_known() {
        let start = Instant::now();
        let mut forecast = Forecast::new(1, 1);
        forecast.start(start, "a", work(1));
        forecast.update(start, "a", window(1, 0.0));
        forecast.update(start + 100 * SECOND, "a", window(1, 1e-19));
        assert_eq!(forecast.time_left(start + 100 * SECOND), None);
        assert_eq!(scaled(SECOND, f64::NAN), None);
        assert_eq!(scaled(SECOND, -1.0), None);
    }

    #[test]
    fn an_earlier_run_tells_the_time_before_the_first_window() {
        let kept = KeptTimes {
            set_up: 3 * SECOND,
            windows: 10 * SECOND,
            guest_ns: 100_000_000,
            window_count: 1,
            single: Vec::new(),
            request: String::new(),
        };
        let start = Instant::now();
        let left = |work| {
            let mut forecast = Forecast::new(1, 1);
            forecast.start(start, "a", work);
            forecast.time_left(start + SECOND).map(|left| (left.total, left.dominated_by))
        };
        let longer = MachineWork { kept: Some(kept.clone()), ..work(1) };
        assert_eq!(left(longer), Some((22 * SECOND, TimePart::Windows)));
        let same = MachineWork {
            kept: Some(kept.clone()),
            is_same_request: true,
            ..MachineWork::default()
        };
        assert_eq!(left(same), Some((12 * SECOND, TimePart::Windows)));
        let other = MachineWork { kept: Some(kept), ..MachineWork::default() };
        assert_eq!(left(other), None, "how long its windows are is not known");
    }

    #[test]
    fn windows_that_end_early_take_the_time_of_an_equal_run() {
        let start = Instant::now();
        let kept = KeptTimes {
            set_up: SECOND,
            windows: 10 * SECOND,
            guest_ns: 20_000_000,
            window_count: 1,
            single: vec![(10 * SECOND, 20_000_000)],
            request: String::new(),
        };
        let windows_end_early = true;
        let first = MachineWork { kept: Some(kept), windows_end_early, ..work(1) };
        let second = MachineWork { is_same_request: true, ..first.clone() };
        for (work, total, is_at_most) in [(first, 95 * SECOND, true), (second, 5 * SECOND, false)] {
            let mut forecast = Forecast::new(1, 1);
            forecast.start(start, "net", work);
            forecast.update(start, "net", window(1, 0.0));
            forecast.update(start + 5 * SECOND, "net", window(1, 0.05));
            assert_eq!(forecast.time_left(start + 5 * SECOND).unwrap().total, total);
            assert_eq!(forecast.is_at_most(), is_at_most);
        }
    }

    #[test]
    fn a_command_of_unknown_length_has_its_rate_and_its_limits() {
        let start = Instant::now();
        let mut forecast = Forecast::new(1, 1);
        let limits = Limits { wall: 60 * SECOND, guest_s: 7 };
        let work = MachineWork { limits: Some(limits), ..MachineWork::default() };
        forecast.start(start, "command", work);
        let state = |instructions| MachineState {
            phase: MachinePhase::Window(1),
            fraction: None,
            elapsed_ns: Some(1),
            instructions: Some(instructions),
        };
        forecast.update(start + SECOND, "command", state(0));
        assert_eq!(forecast.instruction_rate(start + 2 * SECOND, "command"), None);
        forecast.update(start + 5 * SECOND, "command", state(8_000_000));
        assert_eq!(forecast.instruction_rate(start + 5 * SECOND, "command"), Some(2e6));
        assert_eq!(forecast.limits(start + 5 * SECOND), Some((55 * SECOND, limits)));
        assert_eq!(forecast.time_left(start + 5 * SECOND), None);
    }

    /// A workload is checked after its window.
    #[test]
    fn the_time_after_a_window_is_that_of_the_equal_run() {
        let kept = KeptTimes {
            set_up: SECOND,
            windows: 10 * SECOND,
            guest_ns: 0,
            window_count: 1,
            single: vec![(6 * SECOND, 100)],
            request: String::new(),
        };
        let start = Instant::now();
        let mut forecast = Forecast::new(1, 1);
        let work =
            MachineWork { kept: Some(kept), is_same_request: true, ..MachineWork::default() };
        forecast.start(start, "progdev", work);
        forecast.update(start, "progdev", window(1, 0.0));
        forecast.update(start + 6 * SECOND, "progdev", window(1, 0.0));
        forecast.update(
            start + 6 * SECOND,
            "progdev",
            MachineState::of_phase(MachinePhase::After(1)),
        );
        assert_eq!(forecast.time_left(start + 7 * SECOND).unwrap().total, 3 * SECOND);
        assert_eq!(forecast.time_left(start + 20 * SECOND).unwrap().total, Duration::ZERO);
    }

    #[test]
    fn an_equal_run_tells_more_than_the_first_of_unequal_windows() {
        let kept = KeptTimes {
            set_up: SECOND,
            windows: 10 * SECOND,
            guest_ns: 600_000_000,
            window_count: 3,
            single: [2, 4, 4].map(|seconds| (seconds * SECOND, 200_000_000)).to_vec(),
            request: String::new(),
        };
        let start = Instant::now();
        let mut forecast = Forecast::new(1, 1);
        let same = MachineWork { kept: Some(kept), is_same_request: true, ..work(3) };
        forecast.start(start, "loops", same);
        forecast.update(start, "loops", window(1, 0.0));
        forecast.update(start + SECOND, "loops", window(1, 0.5));
        assert_eq!(forecast.time_left(start + SECOND).unwrap().total, 9 * SECOND);
        // The host is half as fast as in the earlier run: 4 s of 10 s are done in 8 s.
        forecast.update(start + 4 * SECOND, "loops", window(2, 0.0));
        forecast.update(start + 8 * SECOND, "loops", window(2, 0.5));
        assert_eq!(forecast.time_left(start + 8 * SECOND).unwrap().total, 12 * SECOND);
    }
}
