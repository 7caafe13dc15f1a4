//! Offloads and interrupt throttle of an interface, by the ethtool ioctl.

use std::io;
use std::os::fd::{AsRawFd, OwnedFd};

use rustix::net::{AddressFamily, SocketFlags, SocketType, socket_with};

const SIOCETHTOOL: u32 = 0x8946;

/// An offload and its pair of commands (`linux/ethtool.h`).
#[derive(Debug, Clone, Copy)]
pub struct Offload {
    get: u32,
    set: u32,
}

/// TCP segmentation by the device.
pub const TSO: Offload = Offload { get: 0x1e, set: 0x1f };
/// Segmentation by the kernel just before the driver.
pub const GSO: Offload = Offload { get: 0x23, set: 0x24 };
/// Merging of received packets; on a veth it also switches NAPI on.
pub const GRO: Offload = Offload { get: 0x2b, set: 0x2c };

/// `struct ethtool_value`.
#[repr(C)]
struct EthtoolValue {
    command: u32,
    data: u32,
}

/// `ETHTOOL_GCOALESCE` and `ETHTOOL_SCOALESCE`.
const GET_COALESCE: u32 = 0x0e;
const SET_COALESCE: u32 = 0x0f;

/// `struct ethtool_coalesce`: the command and 22 settings, of which the first is `rx_coalesce_usecs`.
#[repr(C)]
struct EthtoolCoalesce {
    command: u32,
    rx_usecs: u32,
    others: [u32; 21],
}

/// The ethtool of the namespace in which the thread was when it was opened.
pub struct Ethtool(OwnedFd);

impl Ethtool {
    pub fn open() -> io::Result<Self> {
        let kind = SocketType::DGRAM;
        Ok(Ethtool(socket_with(AddressFamily::INET, kind, SocketFlags::CLOEXEC, None)?))
    }

    pub fn get(&self, interface: &str, offload: Offload) -> io::Result<bool> {
        self.call(interface, EthtoolValue { command: offload.get, data: 0 }).map(|data| data != 0)
    }

    pub fn set(&self, interface: &str, offload: Offload, on: bool) -> io::Result<()> {
        self.call(interface, EthtoolValue { command: offload.set, data: on.into() }).map(|_| ())
    }

    /// Sets `rx-usecs`: as the driver reads it, the time between two interrupts, or that from a packet to
    /// its interrupt.
    ///
    /// # Errors
    /// When the driver has no such setting, or refuses the value.
    pub fn set_rx_usecs(&self, interface: &str, us: u32) -> io::Result<()> {
        let mut coalesce = EthtoolCoalesce { command: GET_COALESCE, rx_usecs: 0, others: [0; 21] };
        self.ioctl(interface, &mut coalesce)?;
        (coalesce.command, coalesce.rx_usecs) = (SET_COALESCE, us);
        self.ioctl(interface, &mut coalesce)
    }

    fn call(&self, interface: &str, mut value: EthtoolValue) -> io::Result<u32> {
        self.ioctl(interface, &mut value).map(|()| value.data)
    }

    /// `value` is the structure of the command with which it starts.
    fn ioctl<T: Command>(&self, interface: &str, value: &mut T) -> io::Result<()> {
        // SAFETY: all-zero is a valid ifreq.
        let mut request: libc::ifreq = unsafe { std::mem::zeroed() };
        // The last byte stays 0: the name must end.
        let room = request.ifr_name.len() - 1;
        if interface.len() > room {
            return Err(io::ErrorKind::InvalidInput.into());
        }
        for (slot, byte) in request.ifr_name.iter_mut().zip(interface.bytes()) {
            *slot = byte as libc::c_char;
        }
        request.ifr_ifru.ifru_data = std::ptr::from_mut(value).cast();
        // SAFETY: `request` is a valid ifreq with a terminated name, and its data pointer leads to
        // the structure of the command (see `Command`), which lives until the call returns.
        let result = unsafe {
            libc::ioctl(self.0.as_raw_fd(), SIOCETHTOOL as libc::Ioctl, &raw mut request)
        };
        if result < 0 { Err(io::Error::last_os_error()) } else { Ok(()) }
    }
}

/// A structure of ethtool's commands. Its type determines which commands it may hold, and the kernel reads
/// and writes no more than the structure.
trait Command {}

impl Command for EthtoolValue {}
impl Command for EthtoolCoalesce {}
