//! Sends and receives events at a rate.

use std::io;

use lab::signal::{RatePoint, RateWindow};
use stats::Distribution;

use super::arrivals::{Arrivals, now_ns, spin_until};
use super::window::{Desk, Frame, Outcome, Sent};
use lab::experiment::BenchError;

/// Events in the first 1 / this of a window are not in the latency.
const WARM_UP_PART: u64 = 10;

/// The sending half of a rig.
pub trait Sender {
    /// Sends an event with its time. Returns false if there is no room for it.
    ///
    /// Fails if the rig cannot send.
    fn send(&mut self, due_ns: u64, now_ns: u64) -> io::Result<bool>;

    /// Called while the next event is not due.
    fn meanwhile(&mut self, _now_ns: u64) {}
}

/// The receiving half of a rig.
pub trait Receiver {
    /// Receives until the desk is closed and no event waits. Passes each event's time to `events`.
    ///
    /// Fails if the rig cannot receive.
    fn receive(&mut self, events: &mut Events<'_>) -> io::Result<()>;
}

/// Takes the events from the receiver.
pub struct Events<'a> {
    desk: &'a Desk,
    work_additions: u64,
    latency: Distribution,
}

impl Events<'_> {
    /// Handles the event that was due at `due_ns`.
    pub fn handle(&mut self, due_ns: u64) {
        super::work::work(self.work_additions);
        if due_ns & WARM == 0 {
            let now = now_ns();
            self.latency.record(now.saturating_sub(due_ns), now);
        }
        self.desk.handled(1);
    }

    /// Counts one signal to the receiver.
    pub fn signalled(&self) {
        self.desk.signalled();
    }

    /// Whether no more events will come.
    pub fn is_closed(&self) -> bool {
        self.desk.is_closed()
    }
}

/// Bit that marks an event of the warm-up. CLOCK_MONOTONIC does not reach it for centuries.
const WARM: u64 = 1 << 63;

/// A window of events at a rate.
pub struct Stream {
    /// The fields that all windows have, whatever is sent.
    pub frame: Frame,
    /// Scheme, load and rate.
    pub point: RatePoint,
    /// Seed of the times at which events are due.
    pub seed: u64,
    /// Dependent additions that the receiver executes for each event.
    pub work_additions: u64,
}

/// Measures the window. [`Frame::run`] describes `enter` and `wake`.
///
/// Has the errors of [`Frame::run`].
pub fn measure(
    stream: &Stream,
    enter: impl FnOnce() -> Result<(), BenchError> + Send,
    mut sender: impl Sender + Send,
    mut receiver: impl Receiver + Send,
    wake: impl Fn() + Sync,
) -> Result<RateWindow, BenchError> {
    let Stream { frame, point, seed, work_additions } = stream;
    let send = |_: &Desk, end_ns: u64| {
        let start_ns = now_ns();
        let from_ns = start_ns + end_ns.saturating_sub(start_ns) / WARM_UP_PART;
        let mut arrivals = Arrivals::new(start_ns, point.rate_hz, *seed);
        let mut lateness = Distribution::default();
        let (mut offered, mut sent) = (0, 0);
        loop {
            let due = arrivals.next_ns();
            if due > end_ns {
                spin_until(end_ns, |now| sender.meanwhile(now));
                return Ok(Sent { number: sent, result: (offered, lateness) });
            }
            let now = spin_until(due, |now| sender.meanwhile(now));
            let is_measured = due >= from_ns;
            if is_measured {
                lateness.record(now - due, now);
            }
            offered += 1;
            sent += u64::from(sender.send(if is_measured { due } else { due | WARM }, now)?);
        }
    };
    let receive = |desk: &Desk| {
        let mut events =
            Events { desk, work_additions: *work_additions, latency: Distribution::default() };
        receiver.receive(&mut events)?;
        Ok(events.latency)
    };
    let Outcome {
        sender: (offered, lateness),
        receiver: latency,
        handled,
        handled_in_all,
        activity,
    } = frame.run(enter, send, receive, wake)?;
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
