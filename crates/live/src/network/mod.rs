//! Network namespaces without a name, joined by a veth pair or by the cards of a simulated machine, and
//! the settings of their interfaces. Namespaces, interfaces and settings vanish with the threads that hold
//! them: nothing has to be restored.

mod cards;
mod ethtool;
mod icmp;
mod pair;
mod rtnetlink;
mod sysfs;

pub use cards::CardIrqs;
pub use ethtool::Ethtool;
pub use icmp::{EchoSocket, ICMP_HEADER_BYTES, echo_request};
pub use pair::{ADDRESS_FAR, ADDRESS_NEAR, NEAR, Pair};
pub use sysfs::PrivateSysfs;
