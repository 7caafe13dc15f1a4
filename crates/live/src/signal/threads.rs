//! The rig `threads`, in user space: a ring between two threads, with an eventfd, a clock, or neither. A write to
//! the eventfd plays the interrupt: its IPI wakes the receiver's CPU.
//!
//! The interrupts of `interrupt`, `drain` and `hybrid` depend on whether the receiver sleeps. The order of the
//! atomic accesses in [`Ring`] guarantees that no event is forgotten; see [`Ring::push`].

use std::hint::spin_loop;
use std::io;
use std::os::fd::OwnedFd;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use lab::experiment::BenchError;
use lab::signal::{RateWindow, Rig};
use rustix::event::{EventfdFlags, eventfd};
use signalling::Scheme;

use super::arrivals::{now_ns, sleep_until};
use super::events::{self, EventStream, Events, Receiver, Sender};

/// Slots of the ring, a power of two.
pub const RING_SLOTS: u64 = 4096;

/// Time after which a thread that has announced its sleep surely sleeps: a system call and a context switch take
/// about 1 us. An earlier signal would find the thread awake, and cost less than an interrupt.
const RETURN_NS: u64 = 2_000;

/// A ring index on a separate cache line. It only grows; modulo [`RING_SLOTS`] it is a slot.
#[repr(align(128))]
#[derive(Default)]
struct Index(AtomicU64);

/// A ring of the times at which events were due, with one writer and one reader.
struct Ring {
    slots: Vec<AtomicU64>,
    /// Index of the next event to write; only the sender writes it.
    head: Index,
    /// Index of the next event to read; only the receiver writes it.
    tail: Index,
    /// Whether the receiver sleeps, or is about to sleep, so that the sender must wake it.
    is_asleep: AtomicBool,
    /// For [`Scheme::Interrupt`]: time since which the receiver sleeps, ns of CLOCK_MONOTONIC.
    /// 0: the receiver does not sleep, or the sender has signalled already.
    asleep_since_ns: AtomicU64,
    /// The eventfd on which the receiver sleeps.
    event: OwnedFd,
}

impl Ring {
    fn new() -> io::Result<Ring> {
        Ok(Ring {
            slots: (0..RING_SLOTS).map(|_| AtomicU64::new(0)).collect(),
            head: Index::default(),
            tail: Index::default(),
            is_asleep: AtomicBool::new(false),
            asleep_since_ns: AtomicU64::new(0),
            event: eventfd(0, EventfdFlags::CLOEXEC)?,
        })
    }

    /// Adds an event. Returns false if the ring is full.
    fn push(&self, due_ns: u64) -> bool {
        let head = self.head.0.load(Ordering::Relaxed);
        if head - self.tail.0.load(Ordering::Acquire) >= RING_SLOTS {
            return false;
        }
        self.slots[(head % RING_SLOTS) as usize].store(due_ns, Ordering::Relaxed);
        // Sequentially consistent, like `is_asleep`. Therefore either the receiver sees this
        // event before it sleeps, or the sender sees that the receiver sleeps.
        self.head.0.store(head + 1, Ordering::SeqCst);
        true
    }

    /// Removes the oldest event, and returns its time; `None` if the ring is empty.
    fn pop(&self) -> Option<u64> {
        let tail = self.tail.0.load(Ordering::Relaxed);
        if tail == self.head.0.load(Ordering::SeqCst) {
            return None;
        }
        let due_ns = self.slots[(tail % RING_SLOTS) as usize].load(Ordering::Relaxed);
        self.tail.0.store(tail + 1, Ordering::Release);
        Some(due_ns)
    }

    fn is_empty(&self) -> bool {
        self.head.0.load(Ordering::SeqCst) == self.tail.0.load(Ordering::SeqCst)
    }

    /// Signals if an event waits and the receiver surely sleeps. This models a device that holds its interrupt line
    /// while it has events: the CPU is interrupted again once its handler has returned. `now_ns`: CLOCK_MONOTONIC.
    fn raise_when_returned(&self, now_ns: u64) -> io::Result<()> {
        let since_ns = self.asleep_since_ns.load(Ordering::SeqCst);
        if since_ns == 0 || now_ns < since_ns + RETURN_NS || self.is_empty() {
            return Ok(());
        }
        self.asleep_since_ns.store(0, Ordering::SeqCst);
        self.signal()
    }

    /// Wakes the receiver.
    fn signal(&self) -> io::Result<()> {
        rustix::io::write(&self.event, &1_u64.to_ne_bytes())?;
        Ok(())
    }

    /// Sleeps until a signal. Returns at once if a signal has come since the last wait.
    fn wait(&self) -> io::Result<()> {
        rustix::io::read(&self.event, &mut [0; 8])?;
        Ok(())
    }
}

/// The sender's half of the rig. It decides when an event needs a signal, by the scheme.
struct RingSender<'a> {
    ring: &'a Ring,
    scheme: Scheme,
    /// For [`Scheme::Coalesced`]: events since the last signal.
    waiting: u32,
    /// Time at which the first of the `waiting` events was sent, ns of CLOCK_MONOTONIC.
    since_ns: u64,
}

impl Sender for RingSender<'_> {
    fn send(&mut self, due_ns: u64, now_ns: u64) -> io::Result<bool> {
        if !self.ring.push(due_ns) {
            return Ok(false);
        }
        match self.scheme {
            Scheme::Interrupt => self.ring.raise_when_returned(now_ns)?,
            Scheme::Drain { .. } | Scheme::Hybrid { .. } => {
                if self.ring.is_asleep.swap(false, Ordering::SeqCst) {
                    self.ring.signal()?;
                }
            }
            Scheme::Coalesced { count, .. } => {
                if self.waiting == 0 {
                    self.since_ns = now_ns;
                }
                self.waiting += 1;
                if self.waiting >= count {
                    self.waiting = 0;
                    self.ring.signal()?;
                }
            }
            // No signal: the receiver polls, or its clock wakes it. `Rig::check` has refused `poll`.
            Scheme::Spin
            | Scheme::SpinYield
            | Scheme::Poll
            | Scheme::Clocked { .. }
            | Scheme::Deferred { .. } => {}
        }
        Ok(true)
    }

    fn meanwhile(&mut self, now_ns: u64) {
        // Errors are ignored: an eventfd whose counter is full contains a signal already.
        match self.scheme {
            Scheme::Interrupt => {
                let _ = self.ring.raise_when_returned(now_ns);
            }
            Scheme::Coalesced { delay_ns, .. }
                if self.waiting > 0 && now_ns - self.since_ns >= delay_ns =>
            {
                self.waiting = 0;
                let _ = self.ring.signal();
            }
            _ => {}
        }
    }
}

/// When a clock ticks again.
#[derive(Clone, Copy, PartialEq, Eq)]
enum NextTick {
    /// One period after the last tick was due.
    AfterLastTick,
    /// One period after the end of handling.
    AfterHandling,
}

struct RingReceiver<'a> {
    ring: &'a Ring,
    scheme: Scheme,
}

impl RingReceiver<'_> {
    /// Handles all events in the ring. Returns their number.
    fn drain(&self, events: &mut Events<'_>) -> u32 {
        let mut handled = 0;
        while let Some(due) = self.ring.pop() {
            events.handle(due);
            handled += 1;
        }
        handled
    }

    /// `interrupt`: handles one event per signal, and sleeps after it even if more events wait.
    fn receive_one_per_signal(&self, events: &mut Events<'_>) -> io::Result<()> {
        while !events.is_closed() {
            self.ring.asleep_since_ns.store(now_ns(), Ordering::SeqCst);
            self.ring.wait()?;
            if let Some(due) = self.ring.pop() {
                events.signalled();
                events.handle(due);
            }
        }
        Ok(())
    }

    /// `coalesced`: handles all events after each signal.
    fn receive_all_per_signal(&self, events: &mut Events<'_>) -> io::Result<()> {
        while !events.is_closed() {
            self.ring.wait()?;
            events.signalled();
            self.drain(events);
        }
        Ok(())
    }

    /// `drain` and `hybrid`: sleeps only if the ring is empty. `spinning`: for `hybrid` only.
    fn receive_until_empty(
        &self,
        events: &mut Events<'_>,
        spinning: Option<Spinning>,
    ) -> io::Result<()> {
        while !events.is_closed() {
            // Announces the sleep before the check: an event in between finds the announcement, and signals.
            self.ring.is_asleep.store(true, Ordering::SeqCst);
            if self.ring.is_empty() {
                self.ring.wait()?;
                events.signalled();
            }
            self.ring.is_asleep.store(false, Ordering::SeqCst);
            let handled = self.drain(events);
            if let Some(Spinning { threshold_events, suspend_ns }) = spinning
                && handled >= threshold_events
            {
                let mut last = now_ns();
                while now_ns() - last < suspend_ns && !events.is_closed() {
                    if self.drain(events) > 0 {
                        last = now_ns();
                    }
                    spin_loop();
                }
            }
        }
        Ok(())
    }

    /// `spin` and `yield`: polls the ring, and calls `pause` after each poll that finds nothing.
    fn receive_by_spinning(&self, events: &mut Events<'_>, pause: impl Fn()) {
        while !events.is_closed() {
            if self.drain(events) == 0 {
                pause();
            }
        }
    }

    /// `clocked` and `deferred`: handles all events at each tick of a clock.
    fn receive_by_clock(&self, events: &mut Events<'_>, period_ns: u64, next_tick: NextTick) {
        let mut tick = now_ns();
        while !events.is_closed() {
            tick += period_ns;
            // A sleep that ends early only checks the ring once more than necessary.
            sleep_until(tick);
            events.signalled();
            self.drain(events);
            let now = now_ns();
            if next_tick == NextTick::AfterHandling {
                tick = now;
            } else if now > tick + period_ns {
                // Missed ticks are lost.
                tick += (now - tick) / period_ns * period_ns;
            }
        }
    }
}

/// When a receiver of the scheme `hybrid` spins before it sleeps again.
#[derive(Clone, Copy, Debug)]
struct Spinning {
    /// Spins after a signal that brought at least this number of events.
    threshold_events: u32,
    /// Spins until no event came for this time.
    suspend_ns: u64,
}

impl Receiver for RingReceiver<'_> {
    fn receive(&mut self, events: &mut Events<'_>) -> io::Result<()> {
        match self.scheme {
            Scheme::Interrupt => self.receive_one_per_signal(events)?,
            Scheme::Drain { .. } => self.receive_until_empty(events, None)?,
            Scheme::Hybrid { threshold, suspend_ns } => {
                let spinning = Spinning { threshold_events: threshold, suspend_ns };
                self.receive_until_empty(events, Some(spinning))?;
            }
            Scheme::Coalesced { .. } => self.receive_all_per_signal(events)?,
            Scheme::Spin => self.receive_by_spinning(events, spin_loop),
            // `Rig::check` has refused it before.
            Scheme::Poll => return Err(io::Error::other("the scheme poll needs a disk")),
            Scheme::SpinYield => self.receive_by_spinning(events, rustix::thread::sched_yield),
            Scheme::Clocked { period_ns } => {
                self.receive_by_clock(events, period_ns, NextTick::AfterLastTick);
            }
            Scheme::Deferred { delay_ns } => {
                self.receive_by_clock(events, delay_ns, NextTick::AfterHandling);
            }
        }
        // Events that arrived since the last look.
        self.drain(events);
        Ok(())
    }
}

/// Measures a window of events at a rate.
///
/// Fails if the rig lacks the scheme, a thread cannot be pinned, or the process has no free file descriptors.
pub fn rate_window(stream: &EventStream) -> Result<RateWindow, BenchError> {
    let scheme = stream.point.scheme;
    Rig::Threads.check(scheme)?;
    let ring = Ring::new().map_err(|error| BenchError::Failed(format!("eventfd: {error}")))?;
    let sender = RingSender { ring: &ring, scheme, waiting: 0, since_ns: 0 };
    let receiver = RingReceiver { ring: &ring, scheme };
    let wake = || {
        let _ = ring.signal();
    };
    events::measure(stream, || Ok(()), sender, receiver, wake)
}
