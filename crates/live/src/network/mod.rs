//! Network namespaces without a name, joined by a veth pair or by the cards of a simulated machine, and
//! the settings of their interfaces. Namespaces, interfaces and settings vanish with the threads that hold
//! them: nothing has to be restored. And two families of netlink, [`coalescing`] and [`napi`], for the settings of any
//! interface.

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
pub use sysfs::{PrivateSysfs, mask};
