//! A window of events at a rate. Each rig implements [`Sender`] and [`Receiver`]; [`measure`] drives both on
//! the threads of a [`WindowSetup`], and measures latency from the time at which an event was due. A rig whose
//! receiver starts the events itself follows a [`Schedule`], and runs by [`measure_schedule`].

use std::io;

use lab::signal::{RatePoint, RateWindow};
use stats::Distribution;

use super::arrivals::{Arrivals, now_ns, spin_until};
use super::window::{Sent, SharedCounts, WindowOutcome, WindowSetup};
use lab::experiment::BenchError;

/// The first tenth of a window is warm-up: the latencies of its events are not recorded. Counts of events include
/// the warm-up.
const WARM_UP_PART: u64 = 10;

/// The sending half of a rig. All calls come from the sender's thread.
pub trait Sender {
    /// Sends an event that carries `due_ns`, which may have the bit [`WARM`]. `now_ns`: the present time. Both are ns
    /// of CLOCK_MONOTONIC. Returns false if the rig has no room for the event, which is then lost.
    ///
    /// Fails if the rig cannot send.
    fn send(&mut self, due_ns: u64, now_ns: u64) -> io::Result<bool>;

    /// Called again and again while the next event is not due.
    fn meanwhile(&mut self, _now_ns: u64) {}
}

/// The receiving half of a rig.
pub trait Receiver {
    /// Receives until `events` is closed, and passes the time of each event to `events`.
    ///
    /// Fails if the rig cannot receive.
    fn receive(&mut self, events: &mut Events<'_>) -> io::Result<()>;
}

/// Handles the events that a [`Receiver`] receives: does their work, and records their latencies.
pub struct Events<'a> {
    shared: &'a SharedCounts,
    /// Work for each event: dependent additions.
    work_additions: u64,
    latency: Distribution,
}

impl Events<'_> {
    /// Handles the event that carries `due_ns`.
    pub fn handle(&mut self, due_ns: u64) {
        super::work::work(self.work_additions);
        if due_ns & WARM == 0 {
            let now = now_ns();
            self.latency.record(now.saturating_sub(due_ns), now);
        }
        self.shared.handled(1);
    }

    /// Counts one signal to the receiver.
    pub fn signalled(&self) {
        self.shared.signalled();
    }

    /// Whether no more events will come.
    pub fn is_closed(&self) -> bool {
        self.shared.is_closed()
    }
}

/// Bit of an event's time that marks an event of the warm-up. CLOCK_MONOTONIC takes centuries to reach this bit.
const WARM: u64 = 1 << 63;

/// The configuration of a window of events at a rate.
pub struct EventStream {
    pub setup: WindowSetup,
    /// Scheme, load and rate.
    pub point: RatePoint,
    /// Seed of the times at which events are due.
    pub seed: u64,
    /// Dependent additions that the receiver executes for each event.
    pub work_additions: u64,
}

/// When the events of a window are due.
#[derive(Clone, Copy, Debug)]
pub struct Schedule {
    /// Times at which the window opens and closes, ns of CLOCK_MONOTONIC.
    start_ns: u64,
    end_ns: u64,
    rate_hz: u64,
    seed: u64,
}

/// The time at which an event is due.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Due {
    /// ns of CLOCK_MONOTONIC.
    pub ns: u64,
    /// Whether the latency is recorded: the event is not part of the warm-up.
    is_measured: bool,
}

impl Due {
    /// The time as an event carries it: see [`Events::handle`].
    pub fn carried(self) -> u64 {
        if self.is_measured { self.ns } else { self.ns | WARM }
    }
}

impl Schedule {
    /// The events of the window, in order. Equal schedules have equal events.
    pub fn events(self) -> impl Iterator<Item = Due> {
        let warm_ns = self.start_ns + self.end_ns.saturating_sub(self.start_ns) / WARM_UP_PART;
        let mut arrivals = Arrivals::new(self.start_ns, self.rate_hz, self.seed);
        std::iter::from_fn(move || {
            let ns = arrivals.next_ns();
            (ns <= self.end_ns).then_some(Due { ns, is_measured: ns >= warm_ns })
        })
    }
}

/// Measures the window. [`WindowSetup::run`] describes `enter` and `wake`.
///
/// Has the errors of [`WindowSetup::run`].
pub fn measure(
    stream: &EventStream,
    enter: impl FnOnce() -> Result<(), BenchError> + Send,
    mut sender: impl Sender + Send,
    receiver: impl Receiver + Send,
    wake: impl Fn() + Sync,
) -> Result<RateWindow, BenchError> {
    let send = |schedule: Schedule| {
        let mut lateness = Distribution::default();
        let (mut offered, mut sent) = (0, 0);
        for due in schedule.events() {
            let now = spin_until(due.ns, |now| sender.meanwhile(now));
            if due.is_measured {
                lateness.record(now - due.ns, now);
            }
            offered += 1;
            sent += u64::from(sender.send(due.carried(), now)?);
        }
        spin_until(schedule.end_ns, |now| sender.meanwhile(now));
        Ok(Sent { number: sent, result: (offered, lateness) })
    };
    run(stream, enter, send, receiver, wake)
}

/// Measures a window in which the receiver starts the events itself. `open` passes the schedule to the receiver. No sender
/// can be late, so there is no lateness. [`WindowSetup::run`] describes `wake`.
///
/// Has the errors of [`WindowSetup::run`].
pub fn measure_schedule(
    stream: &EventStream,
    open: impl FnOnce(Schedule) -> io::Result<()> + Send,
    receiver: impl Receiver + Send,
    wake: impl Fn() + Sync,
) -> Result<RateWindow, BenchError> {
    let send = |schedule: Schedule| {
        open(schedule)?;
        let offered = schedule.events().count() as u64;
        spin_until(schedule.end_ns, |_| {});
        Ok(Sent { number: offered, result: (offered, Distribution::default()) })
    };
    run(stream, || Ok(()), send, receiver, wake)
}

/// Runs the window's threads. `send` returns the number of events that were due, and the sender's lateness.
fn run(
    stream: &EventStream,
    enter: impl FnOnce() -> Result<(), BenchError> + Send,
    send: impl FnOnce(Schedule) -> io::Result<Sent<(u64, Distribution)>> + Send,
    mut receiver: impl Receiver + Send,
    wake: impl Fn() + Sync,
) -> Result<RateWindow, BenchError> {
    let EventStream { setup, point, seed, work_additions } = stream;
    let send = |_: &SharedCounts, end_ns: u64| {
        send(Schedule { start_ns: now_ns(), end_ns, rate_hz: point.rate_hz, seed: *seed })
    };
    let receive = |shared: &SharedCounts| {
        let mut events =
            Events { shared, work_additions: *work_additions, latency: Distribution::default() };
        receiver.receive(&mut events)?;
        Ok(events.latency)
    };
    let WindowOutcome {
        sender: (offered, lateness),
        receiver: latency,
        handled,
        handled_in_all,
        activity,
    } = setup.run(enter, send, receive, wake)?;
    Ok(RateWindow {
        point: *point,
        offered,
        delivered: handled,
        dropped: offered.saturating_sub(handled_in_all),
        latency,
        lateness,
        activity,
    })
}
