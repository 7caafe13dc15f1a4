//! How a receiver of packets waits, and what its sockets are set to.

use std::io;
use std::net::UdpSocket;
use std::os::fd::{AsFd, AsRawFd, OwnedFd};
use std::time::Duration;

use rustix::buffer::spare_capacity;
use rustix::event::{Timespec, epoll};
use rustix::io::Errno;
use rustix::net::sockopt;
use rustix::net::{RecvFlags, recv};

use super::events::{Events, Receiver};

/// How long a receiver sleeps at most before it looks whether anything comes any more.
pub const LOOK_AGAIN: Duration = Duration::from_millis(20);
/// The receiver's buffer: more than a window's worth of a slow reader's packets.
const RECEIVE_BUFFER_BYTES: usize = 8 << 20;
/// The time of a packet that is no event.
pub const NO_EVENT: u64 = u64::MAX;
/// Bytes of an event's packet; the first eight are its time.
pub const EVENT_BYTES: usize = 64;

const SO_BUSY_POLL: libc::c_int = 46;
/// The CPU that handled the socket's last packet.
pub const SO_INCOMING_CPU: libc::c_int = 49;
/// The NAPI instance of its last packet; 0 where none had a part.
pub const SO_INCOMING_NAPI_ID: libc::c_int = 56;
const SO_PREFER_BUSY_POLL: libc::c_int = 69;
const SO_BUSY_POLL_BUDGET: libc::c_int = 70;
/// Packets of one busy poll: NAPI_POLL_WEIGHT.
const BUSY_POLL_BUDGET: u16 = 64;
/// `EPIOCSPARAMS` (`linux/eventpoll.h`, Linux 6.9): _IOW(0x8a, 1, struct epoll_params).
const SET_EPOLL: u64 = 0x4008_8a01;

/// How a receiver waits.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Wait {
    /// In the kernel, for a packet.
    Sleep,
    /// In the kernel, after polling for this number of microseconds.
    PollThenSleep(u32),
    /// In epoll_wait(2), which polls for this number of microseconds; interrupts are suspended meanwhile, and while
    /// packets are handled (Documentation/networking/napi.rst, IRQ suspension).
    PollSuspended(u32),
    /// By polling without end.
    Poll,
    /// The same, and yielding the CPU when there is nothing.
    PollAndYield,
}

impl Wait {
    /// Whether the receiver never blocks.
    pub fn polls(self) -> bool {
        matches!(self, Wait::Poll | Wait::PollAndYield)
    }

    /// Sets a socket so that its owner waits like this.
    pub fn set(self, socket: &impl AsFd) -> io::Result<()> {
        match self {
            Wait::Sleep | Wait::PollSuspended(_) => Ok(()),
            Wait::PollThenSleep(us) => set_socket_option(socket, SO_BUSY_POLL, to_int(us)),
            Wait::Poll | Wait::PollAndYield => {
                set_socket_option(socket, SO_BUSY_POLL, 1)?;
                set_socket_option(socket, SO_PREFER_BUSY_POLL, 1)?;
                set_socket_option(socket, SO_BUSY_POLL_BUDGET, BUSY_POLL_BUDGET.into())
            }
        }
    }

    /// Receives a packet; `None` after a time without one.
    pub fn receive(self, socket: &impl AsFd, buffer: &mut [u8]) -> io::Result<Option<usize>> {
        let flags = if self.polls() { RecvFlags::DONTWAIT } else { RecvFlags::empty() };
        match recv(socket, buffer, flags) {
            Ok((_, length)) => Ok(Some(length)),
            Err(Errno::AGAIN | Errno::INTR) => {
                if self == Wait::PollAndYield {
                    rustix::thread::sched_yield();
                }
                Ok(None)
            }
            Err(error) => Err(error.into()),
        }
    }
}

fn to_int(us: u32) -> libc::c_int {
    us.min(i32::MAX as u32) as libc::c_int
}

/// Reads a number of a socket.
pub fn socket_option(socket: &impl AsFd, option: libc::c_int) -> io::Result<libc::c_int> {
    let mut value: libc::c_int = 0;
    let mut length = size_of::<libc::c_int>() as libc::socklen_t;
    // SAFETY: `value` and `length` are valid for writes of their sizes until the call returns.
    let result = unsafe {
        let file = socket.as_fd().as_raw_fd();
        libc::getsockopt(file, libc::SOL_SOCKET, option, (&raw mut value).cast(), &raw mut length)
    };
    if result < 0 { Err(io::Error::last_os_error()) } else { Ok(value) }
}

fn set_socket_option(
    socket: &impl AsFd,
    option: libc::c_int,
    value: libc::c_int,
) -> io::Result<()> {
    // SAFETY: `value` is valid for reads of its size until the call returns.
    let result = unsafe {
        libc::setsockopt(
            socket.as_fd().as_raw_fd(),
            libc::SOL_SOCKET,
            option,
            (&raw const value).cast(),
            size_of::<libc::c_int>() as libc::socklen_t,
        )
    };
    if result < 0 { Err(io::Error::last_os_error()) } else { Ok(()) }
}

/// Lets a socket send and receive by one interface alone.
pub fn bind_to_interface(socket: &impl AsFd, name: &str) -> io::Result<()> {
    // SAFETY: the name's bytes are valid for reads until the call returns.
    let result = unsafe {
        libc::setsockopt(
            socket.as_fd().as_raw_fd(),
            libc::SOL_SOCKET,
            libc::SO_BINDTODEVICE,
            name.as_ptr().cast(),
            name.len() as libc::socklen_t,
        )
    };
    if result < 0 { Err(io::Error::last_os_error()) } else { Ok(()) }
}

/// Gives a socket room for a window's packets, and a timeout.
pub fn prepare(socket: &UdpSocket) -> io::Result<()> {
    sockopt::set_socket_recv_buffer_size_force(socket, RECEIVE_BUFFER_BYTES)
        .or_else(|_| sockopt::set_socket_recv_buffer_size(socket, RECEIVE_BUFFER_BYTES))?;
    socket.set_read_timeout(Some(LOOK_AGAIN))
}

/// Receives the packets of events. Their first eight bytes are a time.
pub struct PacketReceiver {
    /// Where they come from.
    pub socket: UdpSocket,
    pub wait: Wait,
    pub bytes: usize,
}

impl PacketReceiver {
    /// Handles a packet, if it is an event's.
    fn handle(&self, packet: &[u8], events: &mut Events<'_>) {
        if packet.len() == self.bytes
            && let Some(time) = packet.first_chunk().copied().map(u64::from_ne_bytes)
            && time != NO_EVENT
        {
            events.handle(time);
        }
    }

    /// Waits in epoll_wait(2), and then receives what there is.
    fn by_epoll(&self, us: u32, events: &mut Events<'_>) -> io::Result<()> {
        let polled = Epoll::of(&self.socket, us)?;
        let mut packet = vec![0; self.bytes + 1];
        while !events.is_closed() {
            if !polled.wait()? {
                continue;
            }
            loop {
                match recv(&self.socket, &mut packet[..], RecvFlags::DONTWAIT) {
                    Ok((_, length)) => self.handle(&packet[..length.min(packet.len())], events),
                    Err(Errno::AGAIN) => break,
                    Err(Errno::INTR) => {}
                    Err(error) => return Err(error.into()),
                }
            }
        }
        Ok(())
    }
}

impl Receiver for PacketReceiver {
    fn receive(&mut self, events: &mut Events<'_>) -> io::Result<()> {
        if let Wait::PollSuspended(us) = self.wait {
            return self.by_epoll(us, events);
        }
        let mut packet = vec![0; self.bytes + 1];
        while !events.is_closed() {
            if let Some(length) = self.wait.receive(&self.socket, &mut packet)? {
                self.handle(&packet[..length.min(packet.len())], events);
            }
        }
        Ok(())
    }
}

/// `struct epoll_params`.
#[repr(C)]
struct EpollParameters {
    busy_poll_us: u32,
    busy_poll_budget: u16,
    prefer_busy_poll: u8,
    padding: u8,
}

/// An epoll instance of one socket, which polls its NAPI instance with interrupts suspended.
struct Epoll(OwnedFd);

impl Epoll {
    fn of(socket: &UdpSocket, us: u32) -> io::Result<Epoll> {
        let instance = epoll::create(epoll::CreateFlags::CLOEXEC)?;
        let parameters = EpollParameters {
            busy_poll_us: us,
            busy_poll_budget: BUSY_POLL_BUDGET,
            prefer_busy_poll: 1,
            padding: 0,
        };
        // SAFETY: `parameters` is a whole epoll_params that outlives the call, which only reads it.
        let result = unsafe {
            libc::ioctl(instance.as_raw_fd(), SET_EPOLL as libc::Ioctl, &raw const parameters)
        };
        if result < 0 {
            return Err(io::Error::last_os_error());
        }
        epoll::add(&instance, socket, epoll::EventData::new_u64(0), epoll::EventFlags::IN)?;
        Ok(Epoll(instance))
    }

    /// Whether something came before it was time to look again.
    fn wait(&self) -> io::Result<bool> {
        let timeout = Timespec { tv_sec: 0, tv_nsec: LOOK_AGAIN.subsec_nanos().into() };
        let mut found = Vec::with_capacity(1);
        match epoll::wait(&self.0, spare_capacity(&mut found), Some(&timeout)) {
            Ok(number) => Ok(number > 0),
            Err(Errno::INTR) => Ok(false),
            Err(error) => Err(error.into()),
        }
    }
}

/// Whether the kernel lets epoll_wait(2) poll with interrupts suspended: `EPIOCSPARAMS`.
///
/// # Errors
/// The kernel's, where it does not (before Linux 6.9).
pub fn can_suspend() -> io::Result<()> {
    let socket = UdpSocket::bind("0.0.0.0:0")?;
    Epoll::of(&socket, 1).map(|_| ())
}
