//! [`Interface`] and [`Identity`]: finds a network interface by its name, and identifies it later. A name does not
//! identify an interface: another one may have it in another network namespace, or later.
//!
//! The journal stores an [`Identity`] on disk (as JSON, whose keys are this structure's fields), and finds the
//! interface again to restore its settings ([`Identity::find`]). If the interface is in another network namespace, the
//! error says how to enter that namespace.

use std::collections::BTreeSet;
use std::fmt;
use std::io;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use rustix::net::netdevice::{index_to_name, name_to_index};
use rustix::net::{AddressFamily, SocketFlags, SocketType, socket_with};
use serde::{Deserialize, Serialize};

use crate::host::Root;

/// Longest name of an interface (IFNAMSIZ), without the final NUL.
const NAME_BYTES_MAX: usize = 15;

/// Identifies an interface while it exists. Only number and namespace count; the name may change.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Identity {
    /// The interface's name when it was found.
    pub name: String,
    /// The interface's number. A namespace never gives a number again.
    pub index: u32,
    /// Device and inode of the interface's network namespace.
    pub namespace: (u64, u64),
}

/// An interface in the calling thread's network namespace.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Interface {
    identity: Identity,
    /// The interface's present name.
    name: String,
}

/// Why an interface was not found.
#[derive(Debug, thiserror::Error)]
pub enum NotFound {
    /// No interface has that name.
    #[error("there is no such network interface (there are: {})", names.join(", "))]
    NoSuchName { names: Vec<String> },
    /// `/sys` shows the settings of another network namespace.
    #[error(
        "/sys shows the interfaces of another network namespace (mount -t sysfs sysfs /sys in this one, \
         as ip netns exec does)"
    )]
    OtherSysfs,
    /// `/proc` cannot be read, or no socket can be opened.
    #[error("the network namespace: {0}")]
    Failed(#[from] io::Error),
}

/// The error for an interface in another network namespace. Its settings cannot be reached from this one.
#[derive(Debug)]
struct Elsewhere {
    interface: Identity,
    entrance: Entrance,
}

/// How to enter a network namespace.
#[derive(Clone, Debug, PartialEq, Eq)]
enum Entrance {
    /// The name that ip-netns(8) gave the namespace.
    Name(String),
    /// The number of a process in the namespace.
    Process(String),
    /// The path where the namespace is mounted.
    Mount(String),
    /// Unknown: a process that this one cannot see may be in the namespace.
    Unknown,
}

impl fmt::Display for Elsewhere {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Identity { name, namespace, .. } = &self.interface;
        let inode = namespace.1;
        write!(f, "{name} is in network namespace {inode} (to restore it, run irqlab there")?;
        // A sysfs shows the namespace of the process that mounted it, so the command mounts it again.
        let undo_with_sysfs = "unshare -m sh -c 'mount -t sysfs sysfs /sys; irqlab signal undo'";
        match &self.entrance {
            Entrance::Name(name) => write!(f, ": ip netns exec {name} irqlab signal undo)"),
            Entrance::Process(pid) => write!(f, ": nsenter -t {pid} -n {undo_with_sysfs})"),
            Entrance::Mount(path) => write!(f, ": nsenter --net={path} {undo_with_sysfs})"),
            Entrance::Unknown => write!(
                f,
                "; if the namespace has ended, its settings have: run irqlab signal undo as root, outside of \
                 containers)"
            ),
        }
    }
}

impl std::error::Error for Elsewhere {}

/// Whether an error says that the interface is in another network namespace.
pub(crate) fn is_elsewhere(error: &io::Error) -> bool {
    error.get_ref().is_some_and(|inner| inner.is::<Elsewhere>())
}

impl Interface {
    /// Finds the interface with that name in the calling thread's network namespace.
    ///
    /// Fails if there is no such interface, or `/sys` shows another namespace.
    pub fn find(name: &str) -> Result<Interface, NotFound> {
        let root = Root::default();
        let no_such_name =
            || NotFound::NoSuchName { names: root.names("sys/class/net").unwrap_or_default() };
        let is_valid_name = !name.is_empty()
            && name.len() <= NAME_BYTES_MAX
            && !name.starts_with('.')
            && !name
                .contains(|sign: char| sign == '/' || sign.is_whitespace() || sign.is_control());
        if !is_valid_name {
            return Err(no_such_name());
        }
        let index = match name_to_index(socket()?, name) {
            Ok(index) => index,
            // The name belongs to an interface of another namespace, which cannot be set from here.
            Err(_) if index_in_sysfs(&root, name).is_some() => return Err(NotFound::OtherSysfs),
            Err(_) => return Err(no_such_name()),
        };
        if index_in_sysfs(&root, name) != Some(index) {
            return Err(NotFound::OtherSysfs);
        }
        let identity = Identity { name: name.to_owned(), index, namespace: own_namespace()? };
        Ok(Interface { identity, name: name.to_owned() })
    }

    /// The properties that identify the interface later.
    #[must_use]
    pub fn identity(&self) -> &Identity {
        &self.identity
    }

    /// The interface's present name.
    #[must_use]
    pub fn name(&self) -> &str {
        &self.name
    }

    /// The interface's number.
    #[must_use]
    pub fn index(&self) -> u32 {
        self.identity.index
    }
}

impl Identity {
    /// Finds the interface under its present name. `None` if it no longer exists; then
    /// its settings do not exist either.
    ///
    /// Fails if the interface is in another network namespace. [`is_elsewhere`] recognises this error.
    pub(crate) fn find(&self) -> io::Result<Option<Interface>> {
        if own_namespace()? != self.namespace {
            return match find_entrance(self.namespace) {
                Some(entrance) => {
                    Err(io::Error::other(Elsewhere { interface: self.clone(), entrance }))
                }
                None => Ok(None),
            };
        }
        let Ok(name) = index_to_name(socket()?, self.index) else { return Ok(None) };
        if index_in_sysfs(&Root::default(), &name) != Some(self.index) {
            return Err(io::Error::other(NotFound::OtherSysfs));
        }
        Ok(Some(Interface { identity: self.clone(), name }))
    }
}

fn socket() -> io::Result<std::os::fd::OwnedFd> {
    Ok(socket_with(AddressFamily::INET, SocketType::DGRAM, SocketFlags::CLOEXEC, None)?)
}

/// The number of the interface with this name in /sys, which may show another network namespace.
fn index_in_sysfs(root: &Root, name: &str) -> Option<u32> {
    root.word(format!("sys/class/net/{name}/ifindex"))?.parse().ok()
}

/// Device and inode of the namespace that a file in /proc or a mount stands for.
fn namespace_at(path: &std::path::Path) -> io::Result<(u64, u64)> {
    let data = std::fs::metadata(path)?;
    Ok((data.dev(), data.ino()))
}

/// The network namespace of the calling thread.
fn own_namespace() -> io::Result<(u64, u64)> {
    namespace_at("/proc/thread-self/ns/net".as_ref())
}

/// Finds out how to enter a network namespace. `None` if the namespace has ended, with its interfaces and
/// their settings. That is certain only if this process sees all processes of the machine, and no name,
/// process or mount keeps the namespace.
fn find_entrance(namespace: (u64, u64)) -> Option<Entrance> {
    let is_wanted = |path: &Path| Ok(namespace_at(path)? == namespace);
    let mut named = paths_in(Path::new("/run/netns"));
    if let Some(path) = named.find(|path| is_wanted(path).unwrap_or(false)) {
        return Some(Entrance::Name(last_name(&path)));
    }
    let is_root = rustix::process::geteuid().is_root();
    let mut sees_all_processes = crate::host::in_first_pid_namespace();
    // An error hides nothing if the process has ended. If not even root may look into a process, the
    // process belongs to the machine itself, such as its first process.
    let hides_nothing = |error: &io::Error| is_root || has_ended(error);
    let mut mount_namespaces = BTreeSet::new();
    let is_process = |path: &PathBuf| path.join("ns").exists();
    for process in paths_in(Path::new("/proc")).filter(is_process) {
        let tasks = paths_in(&process.join("task"));
        for path in tasks.map(|task| task.join("ns/net")) {
            match is_wanted(&path) {
                Ok(true) => return Some(Entrance::Process(last_name(&process))),
                Ok(false) => {}
                Err(error) => sees_all_processes &= hides_nothing(&error),
            }
        }
        match namespace_at(&process.join("ns/mnt")) {
            // The mounts of this mount namespace were searched already.
            Ok(mounts) if !mount_namespaces.insert(mounts) => continue,
            Ok(_) => {}
            Err(error) => {
                sees_all_processes &= hides_nothing(&error);
                continue;
            }
        }
        if let Some(path) = mount_of(&process, namespace.1) {
            return Some(Entrance::Mount(path));
        }
    }
    (!sees_all_processes).then_some(Entrance::Unknown)
}

/// Whether an error means that the process or thread has ended.
fn has_ended(error: &io::Error) -> bool {
    error.kind() == io::ErrorKind::NotFound || error.raw_os_error() == Some(libc::ESRCH)
}

/// The path at which a network namespace is mounted in the mount namespace of `process` (a directory of
/// /proc). `None` if it is not mounted there. A line of its mountinfo is `43 24 0:4 net:[4026532281]
/// /run/netns/blue rw shared:5 - nsfs nsfs rw`.
fn mount_of(process: &Path, inode: u64) -> Option<String> {
    let mounts = std::fs::read_to_string(process.join("mountinfo")).ok()?;
    let root = format!("net:[{inode}]");
    let path = mounts.lines().find_map(|line| {
        let mut fields = line.split(' ').skip(3);
        (fields.next() == Some(&root)).then(|| fields.next()).flatten()
    })?;
    Some(format!("{}/root{path}", process.display()))
}

/// The paths of the entries of a directory; none if it cannot be read.
fn paths_in(directory: &Path) -> impl Iterator<Item = PathBuf> + use<> {
    std::fs::read_dir(directory).into_iter().flatten().flatten().map(|entry| entry.path())
}

fn last_name(path: &Path) -> String {
    path.file_name().unwrap_or_default().to_string_lossy().into_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_interface_that_is_none_is_refused_with_those_there_are() {
        for name in ["irqlab-no", "", "..", "a/b", "lo ", "lo\n", "longer-than-fifteen"] {
            let error = Interface::find(name).unwrap_err().to_string();
            assert!(error.contains("there is no such network interface (there are: "), "{error}");
        }
        let found = Interface::find("lo").unwrap();
        assert_eq!(found.identity().find().unwrap().as_ref(), Some(&found));
        // No interface ever had this number, so the interface does not exist.
        let gone = Identity { index: u32::MAX / 2, ..found.identity().clone() };
        assert_eq!(gone.find().unwrap(), None);
        // A namespace without processes has ended too, if all processes are visible.
        let gone = Identity { namespace: (0, 1), ..found.identity().clone() };
        let sees_all =
            rustix::process::geteuid().is_root() && crate::host::in_first_pid_namespace();
        match gone.find() {
            Ok(found) => assert!(found.is_none() && sees_all),
            Err(error) => assert!(is_elsewhere(&error) && !sees_all, "{error}"),
        }
    }
}
