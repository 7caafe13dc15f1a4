//! The rig in user space: a ring between two threads, with an eventfd, a clock, or neither.

use std::hint::spin_loop;
use std::io;
use std::os::fd::OwnedFd;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use lab::experiment::BenchError;
use lab::signal::RateWindow;
use rustix::event::{EventfdFlags, eventfd};
use rustix::thread::{ClockId, Timespec, clock_nanosleep_absolute};
use signalling::Scheme;

use super::arrivals::now_ns;
use super::events::{self, Events, Receiver, Sender, Stream};

/// Slots of the ring, a power of two.
pub const RING_SLOTS: u64 = 4096;

/// A thread that announces its sleep has given up its CPU within this time: about 1 us for
/// a system call and a context switch. A signal before that would find it awake, and cost
/// less than an interrupt.
const RETURN_NS: u64 = 2_000;

/// An index on a separate cache line.
#[repr(align(128))]
#[derive(Default)]
struct Index(AtomicU64);

/// A ring of times with one writer and one reader.
struct Ring {
    slots: Vec<AtomicU64>,
    head: Index,
    tail: Index,
    /// Whether the receiver sleeps, or is about to sleep. Then the sender wakes it.
    asleep: AtomicBool,
    /// Time since which the receiver sleeps, for [`Scheme::Interrupt`], ns of CLOCK_MONOTONIC.
    /// 0: it does not sleep.
    asleep_since_ns: AtomicU64,
    event: OwnedFd,
}

impl Ring {
    fn new() -> io::Result<Ring> {
        Ok(Ring {
            slots: (0..RING_SLOTS).map(|_| AtomicU64::new(0)).collect(),
            head: Index::default(),
            tail: Index::default(),
            asleep: AtomicBool::new(false),
            asleep_since_ns: AtomicU64::new(0),
            event: eventfd(0, EventfdFlags::CLOEXEC)?,
        })
    }

    fn push(&self, time: u64) -> bool {
        let head = self.head.0.load(Ordering::Relaxed);
        if head - self.tail.0.load(Ordering::Acquire) >= RING_SLOTS {
            return false;
        }
        self.slots[(head % RING_SLOTS) as usize].store(time, Ordering::Relaxed);
        // Sequentially consistent, like the flag `asleep`. Therefore either the receiver sees this
        // event before it sleeps, or the sender sees that the receiver sleeps.
        self.head.0.store(head + 1, Ordering::SeqCst);
        true
    }

    fn pop(&self) -> Option<u64> {
        let tail = self.tail.0.load(Ordering::Relaxed);
        if tail == self.head.0.load(Ordering::SeqCst) {
            return None;
        }
        let time = self.slots[(tail % RING_SLOTS) as usize].load(Ordering::Relaxed);
        self.tail.0.store(tail + 1, Ordering::Release);
        Some(time)
    }

    fn is_empty(&self) -> bool {
        self.head.0.load(Ordering::SeqCst) == self.tail.0.load(Ordering::SeqCst)
    }

    /// Raises an interrupt like the line of a device that has events: after the last event is
    /// handled and the CPU has returned to the interrupted code.
    fn raise_when_returned(&self, now_ns: u64) -> io::Result<()> {
        let since_ns = self.asleep_since_ns.load(Ordering::SeqCst);
        if since_ns == 0 || now_ns < since_ns + RETURN_NS || self.is_empty() {
            return Ok(());
        }
        self.asleep_since_ns.store(0, Ordering::SeqCst);
        self.signal()
    }

    fn signal(&self) -> io::Result<()> {
        rustix::io::write(&self.event, &1_u64.to_ne_bytes())?;
        Ok(())
    }

    /// Sleeps until a signal. Returns at once if there is a signal already.
    fn wait(&self) -> io::Result<()> {
        rustix::io::read(&self.event, &mut [0; 8])?;
        Ok(())
    }
}

struct RingSender<'a> {
    ring: &'a Ring,
    scheme: Scheme,
    /// For [`Scheme::Coalesced`]: events since the last signal, and the time of the first of them.
    waiting: u32,
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
                if self.ring.asleep.swap(false, Ordering::SeqCst) {
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
            Scheme::Spin | Scheme::SpinYield | Scheme::Clocked { .. } | Scheme::Deferred { .. } => {
            }
        }
        Ok(true)
    }

    fn meanwhile(&mut self, now_ns: u64) {
        // Ignores errors: an eventfd whose counter is full contains a signal already.
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

    /// Sleeps after each event, even if there are more.
    fn by_each_signal(&self, events: &mut Events<'_>) -> io::Result<()> {
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

    fn by_signal(&self, events: &mut Events<'_>) -> io::Result<()> {
        while !events.is_closed() {
            self.ring.wait()?;
            events.signalled();
            self.drain(events);
        }
        Ok(())
    }

    /// Sleeps if there is no event. After a signal that brought `threshold` events or more, spins
    /// until none came for `suspend_ns`.
    fn by_signal_when_asleep(
        &self,
        events: &mut Events<'_>,
        spinning: Option<(u32, u64)>,
    ) -> io::Result<()> {
        while !events.is_closed() {
            self.ring.asleep.store(true, Ordering::SeqCst);
            if self.ring.is_empty() {
                self.ring.wait()?;
                events.signalled();
            }
            self.ring.asleep.store(false, Ordering::SeqCst);
            let handled = self.drain(events);
            if let Some((threshold, suspend_ns)) = spinning
                && handled >= threshold
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

    fn by_spinning(&self, events: &mut Events<'_>, pause: impl Fn()) {
        while !events.is_closed() {
            if self.drain(events) == 0 {
                pause();
            }
        }
    }

    /// Handles events at each tick of a clock. With `restart`, the next tick is one period after
    /// the end of handling, and otherwise one period after the last tick.
    fn by_clock(&self, events: &mut Events<'_>, period_ns: u64, restart: bool) {
        let mut tick = now_ns();
        while !events.is_closed() {
            tick += period_ns;
            let next_tick = Timespec {
                tv_sec: (tick / 1_000_000_000) as i64,
                tv_nsec: (tick % 1_000_000_000) as i64,
            };
            // A signal ends the sleep early. Then the ring is checked once more than necessary.
            let _ = clock_nanosleep_absolute(ClockId::Monotonic, &next_tick);
            events.signalled();
            self.drain(events);
            let now = now_ns();
            if restart {
                tick = now;
            } else if now > tick + period_ns {
                tick += (now - tick) / period_ns * period_ns; // missed ticks do not come later
            }
        }
    }
}

impl Receiver for RingReceiver<'_> {
    fn receive(&mut self, events: &mut Events<'_>) -> io::Result<()> {
        match self.scheme {
            Scheme::Interrupt => self.by_each_signal(events)?,
            Scheme::Drain { .. } => self.by_signal_when_asleep(events, None)?,
            Scheme::Hybrid { threshold, suspend_ns } => {
                self.by_signal_when_asleep(events, Some((threshold, suspend_ns)))?;
            }
            Scheme::Coalesced { .. } => self.by_signal(events)?,
            Scheme::Spin => self.by_spinning(events, spin_loop),
            Scheme::SpinYield => self.by_spinning(events, rustix::thread::sched_yield),
            Scheme::Clocked { period_ns } => self.by_clock(events, period_ns, false),
            Scheme::Deferred { delay_ns } => self.by_clock(events, delay_ns, true),
        }
        self.drain(events);
        Ok(())
    }
}

/// Measures a window of events at a rate.
///
/// Fails if a thread cannot be pinned, or the process has no free descriptors.
pub fn rate_window(stream: &Stream) -> Result<RateWindow, BenchError> {
    let scheme = stream.point.scheme;
    let ring = Ring::new().map_err(|error| BenchError::Failed(format!("eventfd: {error}")))?;
    let sender = RingSender { ring: &ring, scheme, waiting: 0, since_ns: 0 };
    let receiver = RingReceiver { ring: &ring, scheme };
    let wake = || {
        let _ = ring.signal();
    };
    events::measure(stream, || Ok(()), sender, receiver, wake)
}
