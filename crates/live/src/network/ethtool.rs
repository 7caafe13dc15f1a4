//! Offloads of an interface (TSO, GSO, GRO), read and set by the ethtool ioctl. Users are the ends of a
//! [`Pair`](super::Pair), and the setting `gro` of `nic`.

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

#[repr(C)]
struct EthtoolValue {
    command: u32,
    data: u32,
}

/// Access to ethtool in the network namespace of the thread that opened it.
pub struct Ethtool(OwnedFd);

impl Ethtool {
    pub fn open() -> io::Result<Self> {
        let kind = SocketType::DGRAM;
        Ok(Ethtool(socket_with(AddressFamily::INET, kind, SocketFlags::CLOEXEC, None)?))
    }

    /// Whether an offload is on.
    pub fn get(&self, interface: &str, offload: Offload) -> io::Result<bool> {
        self.call(interface, EthtoolValue { command: offload.get, data: 0 }).map(|data| data != 0)
    }

    pub fn set(&self, interface: &str, offload: Offload, on: bool) -> io::Result<()> {
        self.call(interface, EthtoolValue { command: offload.set, data: on.into() }).map(|_| ())
    }

    /// Executes a command of ethtool, and returns the data that the kernel wrote.
    ///
    /// Fails with the kernel's error, or if the interface's name is too long.
    fn call(&self, interface: &str, mut value: EthtoolValue) -> io::Result<u32> {
        // SAFETY: all-zero is a valid ifreq.
        let mut request: libc::ifreq = unsafe { std::mem::zeroed() };
        // The last byte stays 0, because the name must end with NUL.
        let name_bytes_max = request.ifr_name.len() - 1;
        if interface.len() > name_bytes_max {
            return Err(io::ErrorKind::InvalidInput.into());
        }
        for (slot, byte) in request.ifr_name.iter_mut().zip(interface.bytes()) {
            *slot = byte as libc::c_char;
        }
        request.ifr_ifru.ifru_data = (&raw mut value).cast();
        // SAFETY: `request` is a valid ifreq with a terminated name, and its data pointer leads to
        // an ethtool_value that lives until the call returns; these commands touch nothing else.
        let result = unsafe {
            libc::ioctl(self.0.as_raw_fd(), SIOCETHTOOL as libc::Ioctl, &raw mut request)
        };
        if result < 0 { Err(io::Error::last_os_error()) } else { Ok(value.data) }
    }
}
