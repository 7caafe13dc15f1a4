//! [`Pair`]: two unnamed network namespaces, joined by a veth pair or by two cards of a simulated machine that are
//! connected back to back. Packets between both ends pass through the kernel as packets of another machine would.
//!
//! The network stimuli and `signal::packets` create a pair in a helper process or thread. The calling thread and the
//! threads that it starts are in the near namespace; a thread of the far end calls [`Pair::enter_far`].

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

/// The far end's address. It is from a network for documentation, and exists only in these namespaces.
pub const ADDRESS_FAR: Ipv4Addr = Ipv4Addr::new(192, 0, 2, 2);
/// The near end's address.
pub const ADDRESS_NEAR: Ipv4Addr = Ipv4Addr::new(192, 0, 2, 1);
/// Bits of the network's prefix: both addresses are in one network.
const PREFIX_BITS: u8 = 30;
/// Name of the near end of a veth pair.
pub const NEAR: &str = "irqlab-near";
/// Name of the far end of a veth pair.
pub const FAR: &str = "irqlab-far";
/// Longest time that cards take to return from namespaces that have ended.
const RETURN_MAX: Duration = Duration::from_secs(5);

/// The far namespace, and facts about both ends. The near namespace is that of the thread that called [`Pair::create`].
/// Both vanish with the process, because neither has a name.
pub struct Pair {
    far: File,
    near_offloads: Offloads,
    far_offloads: Offloads,
    /// Names of the near and the far end.
    names: [&'static str; 2],
    /// PCI device and driver of the near and the far end; `None` for an end that is not a card.
    cards: [Option<(String, String)>; 2],
}

/// Whether offloads are on at one end, after irqlab has set them.
#[derive(Clone, Copy)]
struct Offloads {
    tso: bool,
    gso: bool,
    gro: bool,
}

impl Pair {
    /// Moves the calling thread, which must be the only one, into a new network namespace. A veth pair joins this
    /// namespace to a second new one.
    ///
    /// Fails with [`BenchError::Unavailable`] without the rights, or without the veth driver.
    pub fn create() -> Result<Self, BenchError> {
        Self::join([NEAR, FAR], |_, far| {
            Rtnetlink::open()
                .and_then(|netlink| netlink.create_veth(NEAR, FAR, far.as_raw_fd()))
                .map_err(|error| no_veth(&error))
        })
    }

    /// Like [`Pair::create`], but moves the two cards of a simulated machine into the namespaces. The kernel moves the
    /// cards back when the namespaces end.
    pub fn of_cards() -> Result<Self, BenchError> {
        let first_namespace = open_namespace()?;
        let cards = CARDS.map(index_of_returned);
        let card_error = |error: io::Error| failed(format!("the cards: {error}"));
        let [near_card, far_card] = cards;
        let (near_card, far_card) = (near_card.map_err(card_error)?, far_card.map_err(card_error)?);
        // Reads the identities first, because cards in other namespaces are not visible here.
        let identities = CARDS.map(identity_of);
        let pair = Self::join(CARDS, move |near, far| {
            // The cards can only be moved from the namespace that has them.
            enter(&first_namespace)?;
            Rtnetlink::open()
                .and_then(|netlink| {
                    netlink.move_to(near_card, near.as_raw_fd())?;
                    netlink.move_to(far_card, far.as_raw_fd())
                })
                .map_err(card_error)
        })?;
        Ok(Pair { cards: identities, ..pair })
    }

    /// Creates both namespaces, and sets up the interfaces with these names, near and far, in them. `connect(near,
    /// far)` must put the interfaces into the namespaces. It runs in the near namespace, and may leave it. Afterwards,
    /// the calling thread is in the near namespace. The pair has no `cards` yet.
    ///
    /// Fails with [`BenchError::Unavailable`] without the rights. After a failure, the thread may be in any of the
    /// namespaces.
    fn join(
        names: [&'static str; 2],
        connect: impl FnOnce(&File, &File) -> Result<(), BenchError>,
    ) -> Result<Self, BenchError> {
        enter_new_network()?;
        silence_ipv6();
        let far = open_namespace()?;
        // The far end's namespace is ready; the near one follows. This thread now has the right to
        // create namespaces, if necessary in its new user namespace.
        unshare_network().map_err(|error| refused(&error))?;
        silence_ipv6();
        let near = open_namespace()?;
        connect(&near, &far)?;
        let setup_error = |name: &str, error: io::Error| {
            failed(format!("setting up the interface {name}: {error}"))
        };
        let [near_name, far_name] = names;
        enter(&far)?;
        let far_offloads =
            configure(far_name, ADDRESS_FAR).map_err(|error| setup_error(far_name, error))?;
        enter(&near)?;
        let near_offloads =
            configure(near_name, ADDRESS_NEAR).map_err(|error| setup_error(near_name, error))?;
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

    /// Facts for a run, whose keys are public: interfaces, addresses and offloads; for
    /// cards also PCI device and driver.
    #[must_use]
    pub fn facts(&self) -> Map<String, Json> {
        let facts_of_end = |index: usize, address: Ipv4Addr, offloads: Offloads| {
            let mut end = json!({
                "name": self.names[index], "address": address.to_string(),
                "tso": offloads.tso, "gso": offloads.gso, "gro": offloads.gro,
            });
            if let Some((pci, driver)) = &self.cards[index] {
                (end["pci"], end["driver"]) = (json!(pci), json!(driver));
            }
            end
        };
        let ends = [
            facts_of_end(0, ADDRESS_NEAR, self.near_offloads),
            facts_of_end(1, ADDRESS_FAR, self.far_offloads),
        ];
        Map::from_iter([("interfaces".to_owned(), json!(ends))])
    }
}

/// Moves the thread into a new network namespace. Without the right to create one, also moves it into a new user
/// namespace, in which it has that right.
fn enter_new_network() -> Result<(), BenchError> {
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

/// Opens the network namespace of the calling thread.
fn open_namespace() -> Result<File, BenchError> {
    let path = "/proc/thread-self/ns/net";
    File::open(path)
        .map_err(|error| unavailable(format!("{path} cannot be opened: {error}"), "mount /proc"))
}

/// Moves the calling thread into a network namespace.
fn enter(namespace: &File) -> Result<(), BenchError> {
    move_into_link_name_space(namespace.as_fd(), Some(LinkNameSpaceType::Network))
        .map_err(|error| failed(format!("setns: {error}")))
}

/// Switches IPv6 off in the calling thread's namespace, because its neighbour and router discovery would send packets
/// during the measurement. Ignores errors: a kernel without IPv6 has no such files.
fn silence_ipv6() {
    for scope in ["all", "default"] {
        let path = format!("/proc/sys/net/ipv6/conf/{scope}/disable_ipv6");
        let _ = std::fs::write(path, "1");
    }
}

/// Gives an end its address and its offloads, and sets it up. A veth receives through NAPI only if the sender's TSO is
/// off *and* the receiver's GRO is on. Both are set at both ends, because both send (data, acknowledgements). A card
/// keeps its driver's offloads.
fn configure(name: &str, address: Ipv4Addr) -> io::Result<Offloads> {
    let netlink = Rtnetlink::open()?;
    let ethtool = Ethtool::open()?;
    let index = index_of(name)?;
    if !CARDS.contains(&name) {
        ethtool.set(name, TSO, false)?;
        ethtool.set(name, GRO, true)?;
    }
    netlink.add_address(index, address, PREFIX_BITS)?;
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
///
/// Fails if there is no interface with this name.
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

/// The error of a refused network namespace, with remedies.
fn refused(error: &io::Error) -> BenchError {
    unavailable(
        format!("a network namespace is refused: {error}"),
        "run as root (CAP_SYS_ADMIN and CAP_NET_ADMIN), allow user namespaces \
         (sysctl -w user.max_user_namespaces=1000), or measure a real NIC with --peer HOST",
    )
}

/// The error of a veth pair that could not be created, with remedies.
fn no_veth(error: &io::Error) -> BenchError {
    unavailable(
        format!("a veth pair cannot be made: {error}"),
        "load the driver (modprobe veth), or measure a real NIC with --peer HOST",
    )
}
