//! Network namespaces without a name, and the settings of their interfaces. A veth pair or the
//! cards of a simulated machine join the namespaces. Namespaces, interfaces and settings vanish
//! with the threads that hold them, so nothing has to be restored.
//!
//! Two families of netlink, [`coalescing`] and [`napi`], serve the settings of any interface.

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
