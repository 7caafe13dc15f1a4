//! Two unnamed network namespaces. A veth pair joins them, or two cards of a simulated machine that
//! are connected back to back.

use std::ffi::CString;
use std::fs::File;
use std::io;
use std::net::Ipv4Addr;
use std::os::fd::{AsFd, AsRawFd};
use std::thread::sleep;
use std::time::{Duration, Instant};

use lab::experiment::BenchError;
use rustix::thread::{LinkNameSpaceType, UnshareFlags, move_into_link_name_space, unshare_unsafe};
use serde_json::{Map, Value as Json, json};

use super::cards::{CARDS, identity_of};
use super::ethtool::{Ethtool, GRO, GSO, TSO};
use super::rtnetlink::Rtnetlink;

/// The far end's address. It is from a documentation network, and exists only in these namespaces.
pub const ADDRESS_FAR: Ipv4Addr = Ipv4Addr::new(192, 0, 2, 2);
/// The near end's address.
pub const ADDRESS_NEAR: Ipv4Addr = Ipv4Addr::new(192, 0, 2, 1);
const PREFIX: u8 = 30;
/// Name of the near end of a veth pair.
pub const NEAR: &str = "irqlab-near";
/// Name of the far end of a veth pair.
pub const FAR: &str = "irqlab-far";
/// Longest time that cards take to return from namespaces that have ended.
const RETURN_MAX: Duration = Duration::from_secs(5);

/// The far namespace. The near namespace is the one of the thread that called [`Pair::create`], and
/// of the threads that it starts. Both vanish with the process, because neither has a name.
pub struct Pair {
    far: File,
    near_offloads: Offloads,
    far_offloads: Offloads,
    /// Names of the near and the far end.
    names: [&'static str; 2],
    /// PCI device and driver of the near and the far end; `None` for an end that is not a card.
    cards: [Option<(String, String)>; 2],
}

/// Offloads in force at one end after irqlab has set them.
#[derive(Clone, Copy)]
struct Offloads {
    tso: bool,
    gso: bool,
    gro: bool,
}

impl Pair {
    /// Moves the calling thread, which must be the only one, into a new network namespace. A veth
    /// pair joins it to another new one.
    pub fn create() -> Result<Self, BenchError> {
        Self::join([NEAR, FAR], |_, far| {
            Rtnetlink::open()
                .and_then(|netlink| netlink.create_veth(NEAR, FAR, far.as_raw_fd()))
                .map_err(|error| no_veth(&error))
        })
    }

    /// Like [`Pair::create`], with the two cards of a simulated machine as the ends. The cards
    /// return to their first namespace when the namespaces end.
    pub fn of_cards() -> Result<Self, BenchError> {
        let home = open_namespace()?;
        let cards = CARDS.map(index_of_returned);
        let cannot = |error: io::Error| failed(format!("the cards: {error}"));
        let [near_card, far_card] = cards;
        let (near_card, far_card) = (near_card.map_err(cannot)?, far_card.map_err(cannot)?);
        // Reads the identities first, because cards in other namespaces are not visible here.
        let identities = CARDS.map(identity_of);
        let pair = Self::join(CARDS, move |near, far| {
            enter(&home)?;
            Rtnetlink::open()
                .and_then(|netlink| {
                    netlink.move_to(near_card, near.as_raw_fd())?;
                    netlink.move_to(far_card, far.as_raw_fd())
                })
                .map_err(cannot)
        })?;
        Ok(Pair { cards: identities, ..pair })
    }

    /// Creates both namespaces. `connect` moves the two ends, with these names, into them.
    fn join(
        names: [&'static str; 2],
        connect: impl FnOnce(&File, &File) -> Result<(), BenchError>,
    ) -> Result<Self, BenchError> {
        leave_network()?;
        silence_ipv6();
        let far = open_namespace()?;
        // The far end's namespace is ready, so the near one follows. A process that may create the
        // first may also create the second.
        unshare_network().map_err(|error| refused(&error))?;
        silence_ipv6();
        let near = open_namespace()?;
        connect(&near, &far)?;
        let broken = |name: &str, error: io::Error| {
            failed(format!("setting up the interface {name}: {error}"))
        };
        let [near_name, far_name] = names;
        enter(&far)?;
        let far_offloads =
            configure(far_name, ADDRESS_FAR).map_err(|error| broken(far_name, error))?;
        enter(&near)?;
        let near_offloads =
            configure(near_name, ADDRESS_NEAR).map_err(|error| broken(near_name, error))?;
        Ok(Pair { far, near_offloads, far_offloads, names, cards: [None, None] })
    }

    /// Names of the near and the far interface.
    #[must_use]
    pub fn names(&self) -> [&'static str; 2] {
        self.names
    }

    /// Moves the calling thread into the far namespace.
    pub fn enter_far(&self) -> Result<(), BenchError> {
        enter(&self.far)
    }

    /// Interfaces, addresses and offloads; for cards also the PCI device and the driver.
    #[must_use]
    pub fn facts(&self) -> Map<String, Json> {
        let end = |index: usize, address: Ipv4Addr, offloads: Offloads| {
            let mut end = json!({
                "name": self.names[index], "address": address.to_string(),
                "tso": offloads.tso, "gso": offloads.gso, "gro": offloads.gro,
            });
            if let Some((pci, driver)) = &self.cards[index] {
                (end["pci"], end["driver"]) = (json!(pci), json!(driver));
            }
            end
        };
        let ends =
            [end(0, ADDRESS_NEAR, self.near_offloads), end(1, ADDRESS_FAR, self.far_offloads)];
        Map::from_iter([("interfaces".to_owned(), json!(ends))])
    }
}

/// Moves the thread into a new network namespace; without the right to do so, into a new
/// user namespace as well.
fn leave_network() -> Result<(), BenchError> {
    match unshare_network() {
        Err(error) if error.raw_os_error() == Some(libc::EPERM) => {
            // SAFETY: the caller is the only thread, and nothing here depends on the user
            // namespace or on a shared file descriptor table.
            unsafe { unshare_unsafe(UnshareFlags::NEWUSER | UnshareFlags::NEWNET) }
                .map_err(|error| refused(&error.into()))
        }
        other => other.map_err(|error| refused(&error)),
    }
}

fn unshare_network() -> io::Result<()> {
    // SAFETY: only the network namespace of the calling thread changes; no descriptor is unshared.
    unsafe { unshare_unsafe(UnshareFlags::NEWNET) }.map_err(io::Error::from)
}

fn open_namespace() -> Result<File, BenchError> {
    let path = "/proc/thread-self/ns/net";
    File::open(path)
        .map_err(|error| unavailable(format!("{path} cannot be opened: {error}"), "mount /proc"))
}

fn enter(namespace: &File) -> Result<(), BenchError> {
    move_into_link_name_space(namespace.as_fd(), Some(LinkNameSpaceType::Network))
        .map_err(|error| failed(format!("setns: {error}")))
}

/// Switches IPv6 off, which would send neighbour and router discovery into the measurement. Ignores
/// errors: a kernel without IPv6 has no such files.
fn silence_ipv6() {
    for which in ["all", "default"] {
        let path = format!("/proc/sys/net/ipv6/conf/{which}/disable_ipv6");
        let _ = std::fs::write(path, "1");
    }
}

/// Sets up one end. A veth receives through NAPI only with the sender's TSO off *and* the
/// receiver's GRO on; either alone bypasses NAPI silently. Both ends send (data, acknowledgements).
/// A card keeps its driver's offloads.
fn configure(name: &str, address: Ipv4Addr) -> io::Result<Offloads> {
    let netlink = Rtnetlink::open()?;
    let ethtool = Ethtool::open()?;
    let index = index_of(name)?;
    if !CARDS.contains(&name) {
        ethtool.set(name, TSO, false)?;
        ethtool.set(name, GRO, true)?;
    }
    netlink.add_address(index, address, PREFIX)?;
    netlink.set_up(index)?;
    Ok(Offloads {
        tso: ethtool.get(name, TSO)?,
        gso: ethtool.get(name, GSO)?,
        gro: ethtool.get(name, GRO)?,
    })
}

/// Like [`index_of`], for a card that may still be returning from another namespace.
fn index_of_returned(name: &str) -> io::Result<u32> {
    let start = Instant::now();
    loop {
        match index_of(name) {
            Err(_) if start.elapsed() < RETURN_MAX => sleep(Duration::from_millis(10)),
            other => return other,
        }
    }
}

/// The number of an interface in the calling thread's network namespace.
pub fn index_of(name: &str) -> io::Result<u32> {
    let name = CString::new(name).map_err(io::Error::other)?;
    // SAFETY: a terminated string that lives until the call returns.
    match unsafe { libc::if_nametoindex(name.as_ptr()) } {
        0 => Err(io::Error::last_os_error()),
        index => Ok(index),
    }
}

fn failed(message: String) -> BenchError {
    BenchError::Failed(message)
}

fn unavailable(reason: String, remedy: &str) -> BenchError {
    BenchError::Unavailable { reason, remedy: Some(remedy.to_owned()) }
}

fn refused(error: &io::Error) -> BenchError {
    unavailable(
        format!("a network namespace is refused: {error}"),
        "run as root (CAP_SYS_ADMIN and CAP_NET_ADMIN), allow user namespaces \
         (sysctl -w user.max_user_namespaces=1000), or measure a real NIC with --peer HOST",
    )
}

fn no_veth(error: &io::Error) -> BenchError {
    unavailable(
        format!("a veth pair cannot be made: {error}"),
        "load the driver (modprobe veth), or measure a real NIC with --peer HOST",
    )
}
