//! Identifies an interface. A different interface may have the same name, in another
//! network namespace or later.

use std::collections::BTreeSet;
use std::fmt;
use std::io;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use rustix::net::netdevice::{index_to_name, name_to_index};
use rustix::net::{AddressFamily, SocketFlags, SocketType, socket_with};
use serde::{Deserialize, Serialize};

use crate::host::Root;

/// Longest name of an interface, without the byte 0 (IFNAMSIZ).
const NAME_BYTES_MAX: usize = 15;

/// The properties that an interface keeps while it lives, although its name may change.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Identity {
    /// The interface's name when it was found.
    pub name: String,
    /// The interface's number. A namespace gives each number only once.
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

/// The error for an interface in another network namespace, from which it cannot be set.
#[derive(Debug)]
struct Elsewhere {
    interface: Identity,
    way_in: WayIn,
}

/// A way to enter a network namespace.
#[derive(Clone, Debug, PartialEq, Eq)]
enum WayIn {
    /// Through the name that ip-netns(8) gave the namespace.
    Name(String),
    Process(String),
    /// Through the mounted file at this path.
    Mount(String),
    /// Unknown, because there may be processes that this one cannot see.
    Unseen,
}

impl fmt::Display for Elsewhere {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Identity { name, namespace, .. } = &self.interface;
        let inode = namespace.1;
        write!(f, "{name} is in network namespace {inode} (to restore it, run irqlab there")?;
        // /sys shows the settings of the namespace that mounted it, so the command mounts it again.
        let mounted = "unshare -m sh -c 'mount -t sysfs sysfs /sys; irqlab signal undo'";
        match &self.way_in {
            WayIn::Name(name) => write!(f, ": ip netns exec {name} irqlab signal undo)"),
            WayIn::Process(pid) => write!(f, ": nsenter -t {pid} -n {mounted})"),
            WayIn::Mount(path) => write!(f, ": nsenter --net={path} {mounted})"),
            WayIn::Unseen => write!(
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
        let none =
            || NotFound::NoSuchName { names: root.names("sys/class/net").unwrap_or_default() };
        let is_name = !name.is_empty()
            && name.len() <= NAME_BYTES_MAX
            && !name.starts_with('.')
            && !name
                .contains(|sign: char| sign == '/' || sign.is_whitespace() || sign.is_control());
        if !is_name {
            return Err(none());
        }
        let index = match name_to_index(socket()?, name) {
            Ok(index) => index,
            // The name belongs to an interface of another namespace, which cannot be set from here.
            Err(_) if in_sysfs(&root, name).is_some() => return Err(NotFound::OtherSysfs),
            Err(_) => return Err(none()),
        };
        if in_sysfs(&root, name) != Some(index) {
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
    /// Finds the interface under its present name. `None` if it no longer exists, and
    /// its settings with it.
    pub(crate) fn find(&self) -> io::Result<Option<Interface>> {
        if own_namespace()? != self.namespace {
            return match way_in(self.namespace) {
                Some(way_in) => {
                    Err(io::Error::other(Elsewhere { interface: self.clone(), way_in }))
                }
                None => Ok(None),
            };
        }
        let Ok(name) = index_to_name(socket()?, self.index) else { return Ok(None) };
        if in_sysfs(&Root::default(), &name) != Some(self.index) {
            return Err(io::Error::other(NotFound::OtherSysfs));
        }
        Ok(Some(Interface { identity: self.clone(), name }))
    }
}

fn socket() -> io::Result<std::os::fd::OwnedFd> {
    Ok(socket_with(AddressFamily::INET, SocketType::DGRAM, SocketFlags::CLOEXEC, None)?)
}

fn in_sysfs(root: &Root, name: &str) -> Option<u32> {
    root.word(format!("sys/class/net/{name}/ifindex"))?.parse().ok()
}

fn namespace_at(path: &std::path::Path) -> io::Result<(u64, u64)> {
    let data = std::fs::metadata(path)?;
    Ok((data.dev(), data.ino()))
}

fn own_namespace() -> io::Result<(u64, u64)> {
    namespace_at("/proc/thread-self/ns/net".as_ref())
}

/// Finds a way to enter a network namespace. `None` if the namespace has ended, with its interfaces
/// and their settings: all processes are visible from here, and neither a name, nor a process, nor
/// a mount keeps the namespace.
fn way_in(namespace: (u64, u64)) -> Option<WayIn> {
    let is_it = |path: &Path| Ok(namespace_at(path)? == namespace);
    if let Some(path) = names(Path::new("/run/netns")).find(|path| is_it(path).unwrap_or(false)) {
        let name = path.file_name().unwrap_or_default().to_string_lossy();
        return Some(WayIn::Name(name.into_owned()));
    }
    let is_root = rustix::process::geteuid().is_root();
    let mut are_all_seen = crate::host::in_first_pid_namespace();
    // If not even root may look into a process, it belongs to the machine itself,
    // such as its first process.
    let tells_nothing = |error: &io::Error| is_root || has_ended(error);
    let mut mount_namespaces = BTreeSet::new();
    let is_process = |path: &PathBuf| path.join("ns").exists();
    for process in names(Path::new("/proc")).filter(is_process) {
        let tasks = names(&process.join("task"));
        for path in tasks.map(|task| task.join("ns/net")) {
            match is_it(&path) {
                Ok(true) => return Some(WayIn::Process(last_name(&process))),
                Ok(false) => {}
                Err(error) => are_all_seen &= tells_nothing(&error),
            }
        }
        match namespace_at(&process.join("ns/mnt")) {
            Ok(mounts) if !mount_namespaces.insert(mounts) => continue,
            Ok(_) => {}
            Err(error) => {
                are_all_seen &= tells_nothing(&error);
                continue;
            }
        }
        if let Some(path) = mount_of(&process, namespace.1) {
            return Some(WayIn::Mount(path));
        }
    }
    (!are_all_seen).then_some(WayIn::Unseen)
}

/// Whether an error means that the process or thread has ended.
fn has_ended(error: &io::Error) -> bool {
    error.kind() == io::ErrorKind::NotFound || error.raw_os_error() == Some(libc::ESRCH)
}

/// The path in a process's file system at which a network namespace is mounted. Such a line is `43
/// 24 0:4 net:[4026532281] /run/netns/blue rw shared:5 - nsfs nsfs rw`.
fn mount_of(process: &Path, inode: u64) -> Option<String> {
    let mounts = std::fs::read_to_string(process.join("mountinfo")).ok()?;
    let root = format!("net:[{inode}]");
    let path = mounts.lines().find_map(|line| {
        let mut fields = line.split(' ').skip(3);
        (fields.next() == Some(&root)).then(|| fields.next()).flatten()
    })?;
    Some(format!("{}/root{path}", process.display()))
}

fn names(directory: &Path) -> impl Iterator<Item = PathBuf> + use<> {
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
