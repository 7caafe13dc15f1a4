//! Pairs of network namespaces without a name ([`Pair`]), for stimuli and for `signal` over packets. A veth pair or the
//! two cards of a simulated machine join them. Namespaces, interfaces and settings vanish with the threads that hold
//! them, so nothing needs to be restored.
//!
//! [`coalescing`] and [`napi`] (two netlink families) and [`ethtool`] read and set the settings of any interface. `nic`
//! uses them for the machine's own interfaces.

mod cards;
pub mod coalescing;
pub mod ethtool;
mod genetlink;
mod icmp;
pub mod napi;
mod pair;
mod rtnetlink;
mod sysfs;

pub use cards::{CardIrqs, card_facts, irqs_of};
pub use icmp::{EchoSocket, ICMP_HEADER_BYTES, echo_request};
pub use pair::{ADDRESS_FAR, ADDRESS_NEAR, NEAR, Pair, index_of};
pub use rtnetlink::Rtnetlink;
pub use sysfs::{PrivateSysfs, mask};
