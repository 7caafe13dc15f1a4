//! The channel through which a waker wakes its measured thread: a private futex, an eventfd or a pair of UDP sockets,
//! and the times at which the waker sent its signals.

use std::io;
use std::net::{Ipv4Addr, UdpSocket};
use std::os::fd::OwnedFd;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};

use lab::wakeup::WakeBy;
use rustix::event::{EventfdFlags, eventfd};
use rustix::io::Errno;
use rustix::thread::futex;

use crate::clock::monotonic_ns;
use crate::ring::Ring;

/// How many signals may wait for the measured thread with their times. If there are more, only their number is known.
const SIGNALS_MAX: usize = 1_024;

/// What the measured thread sleeps on.
enum Sleep {
    /// The number of signals so far.
    Futex(AtomicU32),
    Eventfd(OwnedFd),
    Packets(PacketPair),
}

/// Two UDP sockets of the loopback interface, each connected to the other: nobody else can send a packet to them.
struct PacketPair {
    sender: UdpSocket,
    receiver: UdpSocket,
}

impl PacketPair {
    /// Fails if the loopback interface is down.
    fn new() -> io::Result<PacketPair> {
        let [sender, receiver] = [(); 2].map(|()| UdpSocket::bind((Ipv4Addr::LOCALHOST, 0)));
        let (sender, receiver) = (sender?, receiver?);
        sender.connect(receiver.local_addr()?)?;
        receiver.connect(sender.local_addr()?)?;
        Ok(PacketPair { sender, receiver })
    }
}

/// Signals that the measured thread takes together.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct TakenSignals {
    /// Due time of the waker for the first signal, ns.
    pub(super) due_ns: u64,
    /// When the waker sent the first signal, ns.
    pub(super) sent_ns: u64,
    /// Number of the later signals that were due in the window.
    pub(super) later: u64,
    /// When the waker sent the last signal, ns.
    pub(super) last_sent_ns: u64,
}

/// A channel from one waker to one measured thread.
pub(super) struct WakeChannel {
    sleep: Sleep,
    /// The signals that the measured thread has not taken: due time of the waker, and the time at which it sent the signal.
    signals: Ring,
    is_closed: AtomicBool,
}

impl WakeChannel {
    /// Fails if the kernel has no eventfd left, or if the loopback interface is down.
    pub(super) fn new(wake_by: WakeBy) -> io::Result<WakeChannel> {
        let sleep = match wake_by {
            WakeBy::Eventfd => Sleep::Eventfd(eventfd(0, EventfdFlags::CLOEXEC)?),
            WakeBy::Packet => Sleep::Packets(PacketPair::new()?),
            WakeBy::Futex | WakeBy::Timer | WakeBy::Disk => Sleep::Futex(AtomicU32::new(0)),
        };
        let (signals, is_closed) = (Ring::new(SIGNALS_MAX), AtomicBool::new(false));
        Ok(WakeChannel { sleep, signals, is_closed })
    }

    /// Reads the clock, and wakes the measured thread directly after that. Only the waker may call this.
    ///
    /// Fails if the kernel refuses.
    #[inline]
    pub(super) fn send(&self, due_ns: u64) -> io::Result<()> {
        let sent_ns = monotonic_ns();
        self.signals.push([due_ns, sent_ns, 0]);
        self.wake()
    }

    #[inline]
    fn wake(&self) -> io::Result<()> {
        match &self.sleep {
            Sleep::Futex(count) => {
                count.fetch_add(1, Ordering::Release);
                futex::wake(count, futex::Flags::PRIVATE, 1)?;
            }
            Sleep::Eventfd(event) => {
                rustix::io::write(event, &1_u64.to_ne_bytes())?;
            }
            Sleep::Packets(PacketPair { sender, .. }) => {
                sender.send(&1_u64.to_ne_bytes())?;
            }
        }
        Ok(())
    }

    /// Sleeps until there is a signal. `signals_seen`: the futex's number of signals at the last call, at first 0. Only
    /// the measured thread may call this.
    ///
    /// Fails if the kernel refuses.
    #[inline]
    pub(super) fn wait(&self, signals_seen: &mut u32) -> io::Result<()> {
        match &self.sleep {
            Sleep::Futex(count) => loop {
                let signals = count.load(Ordering::Acquire);
                if signals != *signals_seen {
                    *signals_seen = signals;
                    return Ok(());
                }
                match futex::wait(count, futex::Flags::PRIVATE, signals, None) {
                    Ok(()) | Err(Errno::AGAIN | Errno::INTR) => {}
                    Err(error) => return Err(error.into()),
                }
            },
            Sleep::Eventfd(event) => {
                let mut signals = [0; 8];
                loop {
                    match rustix::io::read(event, &mut signals) {
                        Err(Errno::INTR) => {}
                        result => return Ok(result.map(drop)?),
                    }
                }
            }
            Sleep::Packets(PacketPair { receiver, .. }) => {
                let mut packet = [0; 8];
                loop {
                    match receiver.recv(&mut packet) {
                        Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                        result => return result.map(drop),
                    }
                }
            }
        }
    }

    /// Takes all signals. `None` if there is none. `window_ns`: start of the window. Only the measured
    /// thread may call this function.
    pub(super) fn take(&self, window_ns: u64) -> Option<TakenSignals> {
        let mut taken: Option<TakenSignals> = None;
        self.signals.drain(|[due_ns, sent_ns, _]| match &mut taken {
            None => {
                taken = Some(TakenSignals { due_ns, sent_ns, later: 0, last_sent_ns: sent_ns });
            }
            Some(taken) => {
                taken.later += u64::from(due_ns >= window_ns);
                taken.last_sent_ns = sent_ns;
            }
        });
        taken
    }

    /// Number of signals so far that found no room in the channel. They woke the thread, but their times are unknown.
    pub(super) fn untimed(&self) -> u64 {
        self.signals.lost()
    }

    pub(super) fn is_closed(&self) -> bool {
        self.is_closed.load(Ordering::Acquire)
    }

    /// Closes the channel when the result is dropped, also if the thread that holds it panics.
    pub(super) fn closing(&self) -> Closing<'_> {
        Closing(self)
    }
}

/// Closes a channel when it is dropped. Wakes the measured thread, which then ends.
pub(super) struct Closing<'a>(&'a WakeChannel);

impl Drop for Closing<'_> {
    fn drop(&mut self) {
        self.0.is_closed.store(true, Ordering::Release);
        let _ = self.0.wake(); // A full eventfd wakes the thread, too.
        // A packet may be dropped on its way.
        if let Sleep::Packets(PacketPair { receiver, .. }) = &self.0.sleep {
            let _ = rustix::net::shutdown(receiver, rustix::net::Shutdown::Both);
        }
    }
}
