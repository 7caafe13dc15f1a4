//! The measured thread of a CPU. It sleeps until a due time, reads the clock, and writes both times to a ring, with the
//! time-stamp counter, which the simulator knows.
//!
//! After each wake-up the next due time is a whole number of periods later, and after the clock's reading. A thread that
//! is late by several periods therefore has one wake-up, and counts the others as missed.
//!
//! If the thread has a waker (`waker.rs`), it waits for the waker's signals instead, and the due time is the time at which
//! the waker sent the signal. If the thread has a disk (`disk.rs`), it reads the disk at each due time, and its record has the
//! time at which the read begins.

use std::io;
use std::sync::Arc;
use std::sync::mpsc::{Receiver, Sender, channel};
use std::thread::JoinHandle;

use super::channel::{TakenSignals, WakeChannel};
use super::disk::{DiskFile, ReadBuffer};
use super::schedule::{MissedPeriods, Schedule};
use super::settings::{Policy, Wait, WakerPlace};
use super::sleeper::DueTimes;
use super::thread_class::{apply_policy, timer_slack_now_ns};
use super::waker::{Waker, WakerConfig, WakerOutcome};
use crate::bpf::CallerProgram;
use crate::clock::{monotonic_ns, now};
use crate::marks::loop_thread;
use crate::ring::Ring;
use crate::spawn::{no_thread, spawn_thread};
use crate::threads::{ThreadCounts, is_pinned_to, pin, runs_on};
use lab::experiment::BenchError;
use stats::Random;

/// Configuration of a thread.
#[derive(Clone, Debug)]
pub struct ThreadConfig {
    pub cpu: u32,
    pub policy: Policy,
    pub wait: Wait,
    pub period_ns: u64,
    /// Capacity of the ring, in wake-ups.
    pub ring_records: usize,
    /// The thread that wakes this one. `None` without a waker.
    pub waker: Option<WakerPlace>,
    /// The disk that wakes this thread. `None` without a disk.
    pub disk: Option<Arc<DiskFile>>,
}

/// The result that a thread returns.
#[derive(Clone, Copy, Debug)]
pub struct ThreadOutcome {
    /// Number of periods in the window that were over before the thread ran again. With a waker: number of its signals
    /// that came before the thread had run after an earlier one.
    pub missed: u64,
    /// Number of periods in the window without a signal, because the waker was late itself. 0 without a waker.
    pub waker_missed: u64,
    /// Page faults and context switches of the thread in the window.
    pub counts: Option<ThreadCounts>,
    /// Whether the thread stayed on its CPU.
    pub stay: Stay,
    /// Whether the thread ended before its schedule's end.
    pub ended_early: bool,
    /// How late the kernel may let the timers of the thread or its waker expire, ns. 0 in a real-time class.
    pub timer_slack_ns: u64,
    /// The outcome of the waker. `None` if the thread has none.
    pub waker: Option<WakerOutcome>,
    /// Number of signals in the window that found the thread not yet asleep, or of reads that were over before it slept.
    pub not_asleep: u64,
    /// The periods that a thread without a waker left out.
    left_out: Option<MissedPeriods>,
    /// When the waker sent the last signal that the thread took, ns, and what became of the signal.
    last_signal: Option<(u64, SignalFate)>,
}

/// What a signal of a waker did.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum SignalFate {
    /// The signal woke the thread.
    Wakeup,
    /// The signal came before the thread had run after an earlier signal.
    Missed,
    /// The thread was not asleep yet.
    NotAsleep,
}

/// Whether a thread stayed on its CPU.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Stay {
    ToTheEnd,
    /// It left the CPU within the window, and ended then. Its records are from its CPU.
    UntilItLeft,
    /// It may have left and come back: its records may be from another CPU.
    Unknown,
}

/// A thread that waits for its schedule, or runs.
pub struct MeasuredThread {
    pub cpu: u32,
    pub ring: Arc<Ring>,
    /// The thread's number in marks.
    pub number: u32,
    /// The thread's scheduling class.
    pub policy: Policy,
    /// Why this is not the class of the configuration; `None` if it is.
    pub policy_error: Option<String>,
    /// The thread that wakes this one. `None` if a timer does.
    pub waker: Option<Waker>,
    schedule_sender: Sender<Schedule>,
    handle: JoinHandle<Option<io::Result<ThreadOutcome>>>,
}

/// The report of a thread that is ready: the thread's number in marks, and why the thread does not have the scheduling
/// class of its configuration. `None`: it has this class.
type Ready = Result<(u32, Option<String>), BenchError>;

impl MeasuredThread {
    /// Starts the thread, and waits until it is pinned.
    ///
    /// Fails if the thread may not run on its CPU.
    pub fn start(
        config: ThreadConfig,
        caller: Option<Arc<CallerProgram>>,
    ) -> Result<MeasuredThread, BenchError> {
        let ring = Arc::new(Ring::new(config.ring_records));
        let no_channel = |error: io::Error| match error.kind() {
            io::ErrorKind::AddrNotAvailable => BenchError::Unavailable {
                reason: format!("packets to this machine itself: {error}"),
                remedy: Some("ip link set lo up".to_owned()),
            },
            _ => BenchError::Failed(format!("a channel from the waker: {error}")),
        };
        let from_waker = config.waker.map(|place| WakeChannel::new(place.wake_by)).transpose();
        let from_waker = from_waker.map_err(no_channel)?.map(Arc::new);
        let waker = config.waker.zip(from_waker.clone()).map(|(place, to_thread)| {
            let ThreadConfig { wait, period_ns, .. } = config;
            let WakerPlace { cpu, policy, .. } = place;
            let waker_config = WakerConfig { cpu, policy, wait, period_ns };
            Waker::start(waker_config, to_thread, Arc::clone(&ring))
        });
        let waker = waker.transpose()?;
        let (ready_sender, ready_receiver) = channel();
        let (schedule_sender, schedule_receiver) = channel();
        let (cpu, config_policy, thread_ring) = (config.cpu, config.policy, Arc::clone(&ring));
        let body = move || {
            let from_waker = from_waker.as_deref();
            let (caller, ring) = (caller.as_deref(), &thread_ring);
            run_measured_thread(
                &config,
                caller,
                from_waker,
                ring,
                &ready_sender,
                &schedule_receiver,
            )
        };
        let handle = spawn_thread("irqlab-wakeup", body).map_err(no_thread)?;
        match ready_receiver.recv() {
            Ok(Ok((number, policy_error))) => {
                let policy = if policy_error.is_some() { Policy::Other } else { config_policy };
                Ok(MeasuredThread {
                    cpu,
                    ring,
                    number,
                    policy,
                    policy_error,
                    waker,
                    schedule_sender,
                    handle,
                })
            }
            Ok(Err(error)) => Err(error),
            Err(_) => Err(BenchError::Failed(format!("the thread on CPU {cpu} died"))),
        }
    }

    /// Lets the thread run. If the thread has died, [`MeasuredThread::join`] reports that.
    pub fn begin(&self, schedule: Schedule) {
        let _ = self.schedule_sender.send(schedule);
        if let Some(waker) = &self.waker {
            waker.begin(schedule);
        }
    }

    /// Whether the thread and its waker have ended.
    pub fn is_over(&self) -> bool {
        self.handle.is_finished() && self.waker.as_ref().is_none_or(Waker::is_over)
    }

    /// Waits for the end of the thread. `stopped_ns`: the end of the window, if a request to stop ended it. Counts are of
    /// periods that were due before the end, and of signals that were sent before it.
    ///
    /// Fails if the thread died, or could not sleep.
    pub fn join(self, stopped_ns: Option<u64>) -> Result<(Arc<Ring>, ThreadOutcome), BenchError> {
        let cpu = self.cpu;
        let died = || BenchError::Failed(format!("the thread on CPU {cpu} died"));
        let outcome = self.handle.join().ok().flatten().ok_or_else(died)?;
        let failed = |error| BenchError::Failed(format!("the thread on CPU {cpu}: {error}"));
        let mut outcome = outcome.map_err(failed)?;
        if let Some(left_out) = outcome.left_out {
            outcome.missed = left_out.count(stopped_ns);
        }
        if let Some(waker) = self.waker {
            let waker = waker.join()?;
            outcome.waker_missed = waker.missed.count(stopped_ns);
            if outcome.stay == Stay::ToTheEnd {
                outcome.missed += waker.untimed;
            }
            outcome.leave_out_last_signal(stopped_ns);
            outcome.ended_early |= waker.ended_early;
            outcome.timer_slack_ns = waker.timer_slack_ns;
            outcome.waker = Some(waker);
        }
        Ok((self.ring, outcome))
    }
}

impl ThreadOutcome {
    /// Leaves out the last signal if the waker sent it after the window. A waker that sees a request to
    /// stop sends no further signal.
    fn leave_out_last_signal(&mut self, stopped_ns: Option<u64>) {
        let Some((sent_ns, fate)) = self.last_signal else { return };
        if stopped_ns.is_none_or(|stopped_ns| sent_ns < stopped_ns) {
            return;
        }
        match fate {
            SignalFate::Wakeup => {} // The observer drops its record.
            SignalFate::Missed => self.missed -= 1,
            SignalFate::NotAsleep => self.not_asleep -= 1,
        }
    }
}

/// The body of the measured thread: pins it, reports on `ready_sender`, waits for its schedule, and measures.
///
/// `caller`: the BPF program that finds the thread's number in marks. `from_waker`: the channel of the thread's waker; a
/// thread with a waker does not use its disk. Returns `None` if nobody receives the report or sends a schedule, because
/// the [`MeasuredThread`] was dropped or never made.
fn run_measured_thread(
    config: &ThreadConfig,
    caller: Option<&CallerProgram>,
    from_waker: Option<&WakeChannel>,
    ring: &Ring,
    ready_sender: &Sender<Ready>,
    schedule_receiver: &Receiver<Schedule>,
) -> Option<io::Result<ThreadOutcome>> {
    let pinned = pin(config.cpu).map_err(|error| BenchError::Unavailable {
        reason: error.to_string(),
        remedy: Some("-c with CPUs of this process's cpuset".to_owned()),
    });
    let policy_error = apply_policy(config.policy);
    let ready = pinned.and_then(|()| Ok((loop_thread(caller)?, policy_error)));
    ready_sender.send(ready).ok()?;
    let schedule = schedule_receiver.recv().ok()?;
    Some(match (from_waker, &config.disk) {
        (Some(from_waker), _) => run_with_waker(config, schedule, from_waker, ring),
        (None, Some(disk)) => run_with_disk(config, schedule, disk, ring),
        (None, None) => run_with_timer(config, schedule, ring),
    })
}

/// Sleeps and wakes until the schedule's end, or until the observer asks for the end.
fn run_with_timer(
    config: &ThreadConfig,
    schedule: Schedule,
    ring: &Ring,
) -> io::Result<ThreadOutcome> {
    let mut due_times = DueTimes::new(schedule, config.period_ns, config.wait)?;
    let mut recorder = Recorder::new(config, ring);
    while let Some(due_ns) = due_times.sleep(ring)? {
        let (woke_ns, counter) = read_clocks();
        if !recorder.stays() {
            break;
        }
        if due_times.is_in_window() {
            recorder.record([due_ns, woke_ns, counter]);
        }
        // The thread's own work counts, too: a due time that is over by now would have no sleep.
        due_times.advance(ring);
    }
    let outcome = recorder.outcome();
    let ended_early = due_times.is_before_end();
    Ok(ThreadOutcome { left_out: Some(due_times.missed), ended_early, ..outcome })
}

/// Sleeps until each due time and then reads a random block of the disk, until the schedule's end, or until the
/// observer asks for the end.
///
/// Fails if a read does.
fn run_with_disk(
    config: &ThreadConfig,
    schedule: Schedule,
    disk: &DiskFile,
    ring: &Ring,
) -> io::Result<ThreadOutcome> {
    let mut due_times = DueTimes::new(schedule, config.period_ns, config.wait)?;
    let mut recorder = Recorder::new(config, ring);
    let (mut buffer, mut random) = (ReadBuffer::new(), Random::new(u64::from(config.cpu)));
    let mut not_asleep = 0;
    while due_times.sleep(ring)?.is_some() {
        if !recorder.stays() {
            break;
        }
        let block = random.below(disk.blocks);
        let sleeps_before = sleeps();
        let began_ns = monotonic_ns();
        disk.read(block, &mut buffer)?;
        let (woke_ns, counter) = read_clocks();
        let has_slept = sleeps() != sleeps_before;
        if !recorder.stays() {
            break;
        }
        if due_times.is_in_window() && has_slept {
            recorder.record([began_ns, woke_ns, counter]);
        } else if due_times.is_in_window() {
            not_asleep += 1;
        }
        due_times.advance(ring);
    }
    let outcome = recorder.outcome();
    let ended_early = due_times.is_before_end();
    Ok(ThreadOutcome { left_out: Some(due_times.missed), ended_early, not_asleep, ..outcome })
}

/// Waits for the signals of the waker until it closes the channel.
fn run_with_waker(
    config: &ThreadConfig,
    schedule: Schedule,
    from_waker: &WakeChannel,
    ring: &Ring,
) -> io::Result<ThreadOutcome> {
    let _closing = from_waker.closing();
    let mut recorder = Recorder::new(config, ring);
    let mut signals = SignalCounts::new(schedule);
    let mut signals_seen = 0;
    while !from_waker.is_closed() {
        // The kernel counts a switch if the thread really slept: not if its waker was faster.
        let sleeps_before = sleeps();
        from_waker.wait(&mut signals_seen)?;
        let (woke_ns, counter) = read_clocks();
        let has_slept = sleeps() != sleeps_before;
        if !recorder.stays() {
            break;
        }
        // `None` if an earlier wake-up has taken the signal, or the channel is closed.
        let Some(taken) = from_waker.take(schedule.window_ns) else { continue };
        if let Some(sent_ns) = signals.add(taken, woke_ns, has_slept) {
            recorder.record([sent_ns, woke_ns, counter]);
        }
    }
    // A waker may send its last signal and close the channel before the thread sleeps again. The signals to a thread that
    // has left its CPU are not counted.
    if recorder.stays()
        && let Some(taken) = from_waker.take(schedule.window_ns)
    {
        signals.add(taken, monotonic_ns(), false);
    }
    let SignalCounts { missed, not_asleep, last, .. } = signals;
    Ok(ThreadOutcome { missed, not_asleep, last_signal: last, ..recorder.outcome() })
}

/// Counts the signals of a waker that its thread took.
struct SignalCounts {
    window_ns: u64,
    /// Signals in the window that came before the thread had run after an earlier one.
    missed: u64,
    /// Signals in the window that found the thread not yet asleep.
    not_asleep: u64,
    /// When the thread last ran after a signal, ns.
    last_woke_ns: u64,
    /// When the last signal was sent, ns, and what became of it. `None` if it was due before the window.
    last: Option<(u64, SignalFate)>,
}

impl SignalCounts {
    fn new(schedule: Schedule) -> SignalCounts {
        let window_ns = schedule.window_ns;
        SignalCounts { window_ns, missed: 0, not_asleep: 0, last_woke_ns: 0, last: None }
    }

    /// Adds the signals that the thread took when it ran at `woke_ns`. Returns when the first one was sent if this is a
    /// wake-up in the window. `has_slept`: whether the thread slept since it last ran.
    fn add(&mut self, taken: TakenSignals, woke_ns: u64, has_slept: bool) -> Option<u64> {
        let TakenSignals { due_ns, sent_ns, later, last_sent_ns } = taken;
        // A waker that loses its CPU between its reading of the clock and its system call may find the thread asleep that
        // was awake at the time of the reading.
        let was_asleep = self.last_woke_ns < sent_ns && sent_ns <= woke_ns;
        self.last_woke_ns = woke_ns;
        self.missed += later;
        let is_wakeup = has_slept && was_asleep;
        let is_in_window = due_ns >= self.window_ns;
        self.last = match later {
            0 if !is_in_window => None,
            0 if is_wakeup => Some((last_sent_ns, SignalFate::Wakeup)),
            0 => Some((last_sent_ns, SignalFate::NotAsleep)),
            _ => Some((last_sent_ns, SignalFate::Missed)),
        };
        self.not_asleep += u64::from(is_in_window && !is_wakeup);
        (is_in_window && is_wakeup).then_some(sent_ns)
    }
}

/// Number of times this thread gave up its CPU in order to sleep. `None` if the kernel does not count it.
fn sleeps() -> Option<u64> {
    ThreadCounts::now().map(|counts| counts.sleeps)
}

/// Writes the wake-ups of this thread into the ring, and notices if the thread leaves its CPU.
struct Recorder<'a> {
    cpu: u32,
    ring: &'a Ring,
    /// The kernel's counts at the first wake-up in the window.
    before: Option<ThreadCounts>,
    stay: Stay,
}

impl<'a> Recorder<'a> {
    fn new(config: &ThreadConfig, ring: &'a Ring) -> Recorder<'a> {
        Recorder { cpu: config.cpu, ring, before: None, stay: Stay::ToTheEnd }
    }

    /// Whether the thread still runs on its CPU.
    fn stays(&mut self) -> bool {
        if !runs_on(self.cpu) {
            self.stay = Stay::UntilItLeft;
        }
        self.stay == Stay::ToTheEnd
    }

    fn record(&mut self, record: [u64; 3]) {
        self.ring.push(record);
        self.before = self.before.or_else(ThreadCounts::now);
    }

    /// The outcome of the thread, as if it had a schedule without missed periods.
    fn outcome(self) -> ThreadOutcome {
        let has_stayed = self.stay != Stay::ToTheEnd || is_pinned_to(self.cpu);
        ThreadOutcome {
            missed: 0,
            waker_missed: 0,
            counts: ThreadCounts::now().zip(self.before).map(|(now, before)| now.since(before)),
            stay: if has_stayed { self.stay } else { Stay::Unknown },
            ended_early: self.stay == Stay::UntilItLeft,
            timer_slack_ns: timer_slack_now_ns(),
            waker: None,
            not_asleep: 0,
            left_out: None,
            last_signal: None,
        }
    }
}

/// CLOCK_MONOTONIC, ns, and the time-stamp counter at the middle of its reading.
#[inline]
fn read_clocks() -> (u64, u64) {
    let before = now();
    let ns = monotonic_ns();
    (ns, before + now().saturating_sub(before) / 2)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::host::process_cpus;
    use lab::wakeup::WakeBy;

    const PERIOD_NS: u64 = 1_000_000;

    /// Runs a thread with this schedule, whose times are relative to now.
    fn run_thread(wait: Wait, times: [i64; 3]) -> (Vec<[u64; 3]>, ThreadOutcome) {
        run_thread_with(wait, None, times)
    }

    fn config(cpu: u32, waker: Option<WakerPlace>) -> ThreadConfig {
        ThreadConfig {
            cpu,
            policy: Policy::Other,
            wait: Wait::Nanosleep,
            period_ns: PERIOD_NS,
            ring_records: 1_024,
            waker,
            disk: None,
        }
    }

    fn run_thread_with(
        wait: Wait,
        waker: Option<WakerPlace>,
        [first_due, window, end]: [i64; 3],
    ) -> (Vec<[u64; 3]>, ThreadOutcome) {
        let config = ThreadConfig { wait, ..config(process_cpus().permitted[0], waker) };
        let thread = MeasuredThread::start(config, None).unwrap();
        let now_ns = monotonic_ns();
        let at = |relative: i64| now_ns.saturating_add_signed(relative);
        let schedule =
            Schedule { first_due_ns: at(first_due), window_ns: at(window), end_ns: at(end) };
        thread.begin(schedule);
        let (ring, outcome) = thread.join(None).unwrap();
        let mut records = Vec::new();
        ring.drain(|record| records.push(record));
        (records, outcome)
    }

    #[test]
    fn every_period_of_the_window_has_a_wake_up_or_was_missed() {
        for wait in [Wait::Nanosleep, Wait::TimerFd] {
            let (records, outcome) = run_thread(wait, [5_000_000, 7_500_000, 60_000_000]);
            assert_eq!(outcome.stay, Stay::ToTheEnd, "{wait:?}");
            assert!(records.iter().all(|[due, woke, _]| woke >= due), "{wait:?}");
            // Due at 8, 9, ... 59 ms.
            assert_eq!(records.len() as u64 + outcome.missed, 52, "{wait:?}");
        }
    }

    /// The thread counts what it takes, and the waker what it leaves out. On a CPU of its own, and on that of the thread.
    #[test]
    fn every_period_of_a_waker_is_a_wake_up_or_has_a_reason_why_not() {
        let cpus = &process_cpus().permitted;
        for wake_by in [WakeBy::Futex, WakeBy::Eventfd, WakeBy::Packet] {
            for cpu in [cpus[0], cpus[cpus.len() - 1]] {
                let waker = WakerPlace { cpu, policy: Policy::Idle, wake_by };
                let times = [5_000_000, 7_500_000, 60_000_000];
                let (records, outcome) = run_thread_with(Wait::Nanosleep, Some(waker), times);
                assert_eq!(outcome.stay, Stay::ToTheEnd, "{waker:?}");
                assert!(records.iter().all(|[sent, woke, _]| woke >= sent), "{waker:?}");
                let taken = records.len() as u64 + outcome.not_asleep;
                assert_eq!(
                    taken + outcome.missed + outcome.waker_missed,
                    52,
                    "{waker:?} {outcome:?}"
                );
            }
        }
    }

    /// The waker was late by 3 s at its first due time. It sends one signal for all due times that were over.
    #[test]
    fn periods_that_a_late_waker_leaves_out_are_counted() {
        let cpu = process_cpus().permitted[0];
        let waker = WakerPlace { cpu, policy: Policy::Other, wake_by: WakeBy::Futex };
        let second = 1_000_000_000;
        let times = [-3 * second, -3 * second, -second];
        let (records, outcome) = run_thread_with(Wait::Nanosleep, Some(waker), times);
        let taken = records.len() as u64 + outcome.not_asleep + outcome.missed;
        assert_eq!((taken, outcome.waker_missed), (1, 1_999));
        // The waker's lateness of 3 s is not that of the thread.
        assert!(records.iter().all(|[sent, woke, _]| woke - sent < second as u64), "{records:?}");
    }

    fn signals(dues_and_sent: &[[u64; 2]], window_ns: u64) -> TakenSignals {
        let ([due_ns, sent_ns], later) = (dues_and_sent[0], &dues_and_sent[1..]);
        let later_in_window = later.iter().filter(|[due_ns, _]| *due_ns >= window_ns).count();
        let last_sent_ns = dues_and_sent.last().unwrap()[1];
        TakenSignals { due_ns, sent_ns, later: later_in_window as u64, last_sent_ns }
    }

    /// The window opens at 100 ns.
    #[test]
    fn each_signal_of_the_window_has_one_fate() {
        let schedule = Schedule { first_due_ns: 0, window_ns: 100, end_ns: u64::MAX };
        let mut counts = SignalCounts::new(schedule);
        let mut add = |dues_and_sent: &[[u64; 2]], woke_ns, has_slept| {
            let recorded = counts.add(signals(dues_and_sent, 100), woke_ns, has_slept);
            (recorded, counts.missed, counts.not_asleep, counts.last.map(|(_, fate)| fate))
        };
        assert_eq!(add(&[[50, 51]], 60, true), (None, 0, 0, None), "in the warm-up");
        let late = add(&[[90, 91], [100, 101]], 102, true);
        assert_eq!(late, (None, 1, 0, Some(SignalFate::Missed)), "the wake-up is in the warm-up");
        let usual = add(&[[110, 111]], 112, true);
        assert_eq!(usual, (Some(111), 1, 0, Some(SignalFate::Wakeup)));
        let early = add(&[[120, 121]], 122, false);
        assert_eq!(early, (None, 1, 1, Some(SignalFate::NotAsleep)));
        // Sent before the thread last ran.
        assert_eq!(add(&[[130, 121]], 132, true).2, 2);
        let several = add(&[[140, 141], [150, 151], [160, 161]], 165, true);
        assert_eq!(several, (Some(141), 3, 2, Some(SignalFate::Missed)));
    }

    #[test]
    fn a_signal_after_the_window_is_not_counted() {
        let outcome = |fate| {
            let mut outcome = Recorder::new(&config(0, None), &Ring::new(1)).outcome();
            (outcome.missed, outcome.not_asleep) = (3, 2);
            outcome.last_signal = Some((1_000, fate));
            outcome
        };
        let counts = |fate, stopped_ns| {
            let mut outcome = outcome(fate);
            outcome.leave_out_last_signal(stopped_ns);
            (outcome.missed, outcome.not_asleep)
        };
        for fate in [SignalFate::Missed, SignalFate::NotAsleep, SignalFate::Wakeup] {
            assert_eq!((counts(fate, None), counts(fate, Some(1_001))), ((3, 2), (3, 2)));
        }
        assert_eq!(counts(SignalFate::Missed, Some(1_000)), (2, 2));
        assert_eq!(counts(SignalFate::NotAsleep, Some(1_000)), (3, 1));
        assert_eq!(counts(SignalFate::Wakeup, Some(1_000)), (3, 2));
    }

    /// A waker that sends its last signal to a busy thread closes the channel before the thread sleeps again.
    #[test]
    fn signals_that_the_thread_did_not_wait_for_are_not_missed() {
        let channel = WakeChannel::new(WakeBy::Futex).unwrap();
        channel.send(100).unwrap();
        channel.send(200).unwrap();
        drop(channel.closing());
        let schedule = Schedule { first_due_ns: 0, window_ns: 0, end_ns: u64::MAX };
        let cpu = process_cpus().permitted[0];
        let on_its_cpu = || {
            pin(cpu).unwrap();
            run_with_waker(&config(cpu, None), schedule, &channel, &Ring::new(16)).unwrap()
        };
        let outcome = std::thread::scope(|scope| scope.spawn(on_its_cpu).join().unwrap());
        assert_eq!((outcome.not_asleep, outcome.missed), (1, 1));
    }

    /// The CPU of the thread goes offline, and the kernel moves the thread: the signal that woke it there is no missed one.
    #[test]
    fn signals_to_a_thread_that_left_its_cpu_are_not_missed() {
        let channel = WakeChannel::new(WakeBy::Futex).unwrap();
        channel.send(100).unwrap();
        channel.send(200).unwrap();
        let schedule = Schedule { first_due_ns: 0, window_ns: 0, end_ns: u64::MAX };
        let elsewhere = config(u32::MAX, None);
        let outcome = run_with_waker(&elsewhere, schedule, &channel, &Ring::new(16)).unwrap();
        assert_eq!(outcome.stay, Stay::UntilItLeft);
        assert_eq!((outcome.not_asleep, outcome.missed), (0, 0));
    }

    /// As after SIGSTOP: the thread is late by 3 s at its first due time, before, in and beyond the window.
    #[test]
    fn periods_that_are_over_are_missed_in_the_window_only() {
        let second = 1_000_000_000;
        let (records, outcome) =
            run_thread(Wait::Nanosleep, [-3 * second, -2 * second, 20_000_000]);
        assert!(records.len() <= 20, "the first one was in the warm-up: {}", records.len());
        assert_eq!(records.len() as u64 + outcome.missed, 2_020);
        let (records, outcome) = run_thread(Wait::Nanosleep, [-3 * second, -3 * second, -second]);
        assert!(records[0][1] - records[0][0] >= 3 * second as u64, "{records:?}");
        assert_eq!((records.len(), outcome.missed), (1, 1_999));
    }

    #[test]
    fn a_sleeping_thread_sees_a_request_to_stop() {
        let cpu = process_cpus().permitted[0];
        let period_ns = 1_000_000_000_000;
        let (policy, wait) = (Policy::Other, Wait::Nanosleep);
        let config = ThreadConfig {
            cpu,
            policy,
            wait,
            period_ns,
            ring_records: 16,
            waker: None,
            disk: None,
        };
        let thread = MeasuredThread::start(config, None).unwrap();
        let first_due_ns = monotonic_ns() + period_ns;
        thread.begin(Schedule { first_due_ns, window_ns: 0, end_ns: u64::MAX });
        thread.ring.stop();
        let (_, outcome) = thread.join(None).unwrap();
        assert_eq!(outcome.missed, 0);
    }
}
