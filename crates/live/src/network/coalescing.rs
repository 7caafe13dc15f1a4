//! Interrupt coalescing of a network card, read and set through ethtool's netlink family (Linux 5.7;
//! `linux/ethtool_netlink.h`). `nic` uses it for the machine's cards, and `signal::packets` for a simulated machine's.

use std::io;

use super::genetlink::{Attribute, Family};

/// Name of the family, its commands, and the attributes of their messages.
const FAMILY: &str = "ethtool";
const COALESCE_GET: u8 = 19;
const COALESCE_SET: u8 = 20;
const HEADER: u16 = 1;
const HEADER_DEVICE_INDEX: u16 = 1;
const RX_USECS: u16 = 2;
const RX_FRAMES: u16 = 3;
const ADAPTIVE_RX: u16 = 11;

/// When a card interrupts for received packets. A setting that its driver lacks is `None`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Coalescing {
    /// `adaptive-rx`: the driver chooses the other two settings.
    pub adaptive: Option<bool>,
    /// `rx-usecs`: longest time from a packet to the interrupt, us.
    pub delay_us: Option<u32>,
    /// `rx-frames`: number of packets after which the card interrupts.
    pub frames: Option<u32>,
}

/// Reads the settings in force of the interface with this index; all are `None` for a driver
/// without coalescing. Needs no rights.
///
/// Fails if the interface no longer exists, or the kernel has no such family.
pub fn read(index: u32) -> io::Result<Coalescing> {
    let answers = match Family::open(FAMILY)?.request(COALESCE_GET, &[header(index)]) {
        Err(error) if error.raw_os_error() == Some(libc::EOPNOTSUPP) => {
            return Ok(Coalescing::default());
        }
        other => other?,
    };
    let number = |kind: u16| answers.iter().find_map(|answer| answer.number(kind));
    let number_u32 = |kind: u16| number(kind).and_then(|number| u32::try_from(number).ok());
    Ok(Coalescing {
        adaptive: number(ADAPTIVE_RX).map(|number| number != 0),
        delay_us: number_u32(RX_USECS),
        frames: number_u32(RX_FRAMES),
    })
}

/// Sets the settings that are `Some` in `wanted`, in one request.
///
/// Fails without CAP_NET_ADMIN, or if the driver lacks a setting or refuses a value.
pub fn write(index: u32, wanted: &Coalescing) -> io::Result<()> {
    let attributes = [
        Some(header(index)),
        wanted.adaptive.map(|value| Attribute::flag(ADAPTIVE_RX, value)),
        wanted.delay_us.map(|value| Attribute::number(RX_USECS, value)),
        wanted.frames.map(|value| Attribute::number(RX_FRAMES, value)),
    ];
    let attributes: Vec<Attribute> = attributes.into_iter().flatten().collect();
    Family::open(FAMILY)?.request(COALESCE_SET, &attributes).map(|_| ())
}

/// The attribute that names the interface.
fn header(index: u32) -> Attribute {
    Attribute::nested(HEADER, &[Attribute::number(HEADER_DEVICE_INDEX, index)])
}
