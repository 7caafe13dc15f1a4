//! How a receiver of packets waits, and the settings of its sockets. The rigs with packets (`packets.rs`,
//! `card.rs`) use it.

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

/// Longest sleep of a receiver before it checks whether the sender has ended.
pub const LOOK_AGAIN: Duration = Duration::from_millis(20);
/// Size of the receiver's socket buffer: room for all packets of a window, even if the receiver is slow.
const RECEIVE_BUFFER_BYTES: usize = 8 << 20;
/// The time in a packet that is not an event.
pub const NO_EVENT: u64 = u64::MAX;
/// Bytes of an event's packet; the first eight are its time.
pub const EVENT_BYTES: usize = 64;

const SO_BUSY_POLL: libc::c_int = 46;
/// Socket option: the CPU that handled the socket's last packet.
pub const SO_INCOMING_CPU: libc::c_int = 49;
/// Socket option: the NAPI instance of the socket's last packet; 0 if the packet bypassed NAPI.
pub const SO_INCOMING_NAPI_ID: libc::c_int = 56;
const SO_PREFER_BUSY_POLL: libc::c_int = 69;
const SO_BUSY_POLL_BUDGET: libc::c_int = 70;
/// Most packets of one busy poll: NAPI_POLL_WEIGHT.
const BUSY_POLL_BUDGET: u16 = 64;
/// `EPIOCSPARAMS` (`linux/eventpoll.h`, Linux 6.9): _IOW(0x8a, 1, struct epoll_params).
const SET_EPOLL: u64 = 0x4008_8a01;

/// How a receiver waits.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Wait {
    /// Sleeps in the kernel until a packet arrives.
    Sleep,
    /// Polls in the kernel for this number of microseconds, and then sleeps.
    PollThenSleep(u32),
    /// Waits in epoll_wait(2), which polls for this number of microseconds. Interrupts are
    /// suspended while it polls and while packets are handled
    /// (Documentation/networking/napi.rst, IRQ suspension).
    PollSuspended(u32),
    /// Polls without end.
    Poll,
    /// Polls without end, and yields the CPU after each poll without a packet.
    PollAndYield,
}

impl Wait {
    /// Whether the receiver never blocks.
    pub fn polls(self) -> bool {
        matches!(self, Wait::Poll | Wait::PollAndYield)
    }

    /// Sets the options of a socket that this way of waiting needs.
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

    /// Waits for a packet and returns its length. `None`: no packet arrived before the socket's timeout, or the
    /// one poll found none.
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

/// Reads a socket option whose value is an integer.
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

/// Restricts a socket to one interface, for sending and receiving.
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

/// Gives a socket a buffer of [`RECEIVE_BUFFER_BYTES`], or of the largest allowed size, and the read timeout
/// [`LOOK_AGAIN`].
pub fn prepare(socket: &UdpSocket) -> io::Result<()> {
    sockopt::set_socket_recv_buffer_size_force(socket, RECEIVE_BUFFER_BYTES)
        .or_else(|_| sockopt::set_socket_recv_buffer_size(socket, RECEIVE_BUFFER_BYTES))?;
    socket.set_read_timeout(Some(LOOK_AGAIN))
}

/// Receives the packets of events. The first eight bytes of a packet are the time at which its event was due.
pub struct PacketReceiver {
    pub socket: UdpSocket,
    pub wait: Wait,
    /// Length of an event's packet. Packets of other lengths are ignored.
    pub bytes: usize,
}

impl PacketReceiver {
    /// Handles a packet if it carries an event.
    fn handle(&self, packet: &[u8], events: &mut Events<'_>) {
        if packet.len() == self.bytes
            && let Some(time) = packet.first_chunk().copied().map(u64::from_ne_bytes)
            && time != NO_EVENT
        {
            events.handle(time);
        }
    }

    /// Like [`Receiver::receive`], for [`Wait::PollSuspended`]: waits in epoll_wait(2), then receives all packets
    /// that have arrived.
    fn receive_by_epoll(&self, us: u32, events: &mut Events<'_>) -> io::Result<()> {
        let epoll = Epoll::watching(&self.socket, us)?;
        let mut packet = vec![0; self.bytes + 1];
        while !events.is_closed() {
            if !epoll.wait()? {
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
            return self.receive_by_epoll(us, events);
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

/// The kernel's `struct epoll_params`: the layout must not change.
#[repr(C)]
struct EpollParameters {
    busy_poll_us: u32,
    busy_poll_budget: u16,
    prefer_busy_poll: u8,
    padding: u8,
}

/// An epoll instance that polls the NAPI instance of one socket, with interrupts suspended.
struct Epoll(OwnedFd);

impl Epoll {
    /// `us`: how long a wait polls.
    fn watching(socket: &UdpSocket, us: u32) -> io::Result<Epoll> {
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

    /// Whether a packet arrived within [`LOOK_AGAIN`].
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

/// Checks that the kernel lets epoll_wait(2) poll with interrupts suspended (`EPIOCSPARAMS`).
///
/// Fails with the kernel's error before Linux 6.9.
pub fn can_suspend() -> io::Result<()> {
    let socket = UdpSocket::bind("0.0.0.0:0")?;
    Epoll::watching(&socket, 1).map(|_| ())
}
