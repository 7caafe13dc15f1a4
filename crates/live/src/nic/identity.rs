//! Which interface: one of the same name may be another one, in another network namespace, or later.

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

/// What stays the same while an interface lives: it may get another name.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Identity {
    /// Its name when it was found.
    pub name: String,
    /// Its number, which its namespace gives once.
    pub index: u32,
    /// Device and inode of its network namespace.
    pub namespace: (u64, u64),
}

/// An interface of the network namespace in which the calling thread is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Interface {
    identity: Identity,
    /// Its name now.
    name: String,
}

/// Why there is no such interface.
#[derive(Debug, thiserror::Error)]
pub enum NotFound {
    /// None has that name.
    #[error("there is no such network interface (there are: {})", names.join(", "))]
    NoSuchName { names: Vec<String> },
    /// The settings in `/sys` are those of another network namespace.
    #[error(
        "/sys shows the interfaces of another network namespace (mount -t sysfs sysfs /sys in this one, \
         as ip netns exec does)"
    )]
    OtherSysfs,
    /// `/proc` cannot be read, or no socket be opened.
    #[error("the network namespace: {0}")]
    Failed(#[from] io::Error),
}

/// What says that an interface is in another network namespace, from which it cannot be set.
#[derive(Debug)]
struct Elsewhere {
    interface: Identity,
    way_in: WayIn,
}

/// How to enter a network namespace.
#[derive(Clone, Debug, PartialEq, Eq)]
enum WayIn {
    /// By the name that ip-netns(8) has given it.
    Name(String),
    Process(String),
    /// A file system mount keeps it.
    Mount(String),
    /// Unknown: there may be processes that this one cannot see.
    Unseen,
}

impl fmt::Display for Elsewhere {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Identity { name, namespace, .. } = &self.interface;
        let inode = namespace.1;
        write!(f, "{name} is in network namespace {inode} (to restore it, run irqlab there")?;
        // The settings in /sys are those of the namespace in which it was mounted.
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
    /// The interface of that name in the calling thread's network namespace.
    ///
    /// # Errors
    /// Where there is none, or `/sys` is that of another namespace.
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
            // The name is of another namespace's interface, which cannot be set from here.
            Err(_) if in_sysfs(&root, name).is_some() => return Err(NotFound::OtherSysfs),
            Err(_) => return Err(none()),
        };
        if in_sysfs(&root, name) != Some(index) {
            return Err(NotFound::OtherSysfs);
        }
        let identity = Identity { name: name.to_owned(), index, namespace: own_namespace()? };
        Ok(Interface { identity, name: name.to_owned() })
    }

    /// What it is recognised by later.
    #[must_use]
    pub fn identity(&self) -> &Identity {
        &self.identity
    }

    /// Its name now.
    #[must_use]
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Its number.
    #[must_use]
    pub fn index(&self) -> u32 {
        self.identity.index
    }
}

impl Identity {
    /// The interface, wherever its name led meanwhile; absent when it is gone, and its settings with it.
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

/// How to enter a network namespace; `None` where it has ended, with its interfaces and their settings: it has
/// no name, no process and no mount keeps it, and all processes can be seen from here.
fn way_in(namespace: (u64, u64)) -> Option<WayIn> {
    let is_it = |path: &Path| Ok(namespace_at(path)? == namespace);
    if let Some(path) = names(Path::new("/run/netns")).find(|path| is_it(path).unwrap_or(false)) {
        let name = path.file_name().unwrap_or_default().to_string_lossy();
        return Some(WayIn::Name(name.into_owned()));
    }
    let is_root = rustix::process::geteuid().is_root();
    let mut are_all_seen = crate::host::in_first_pid_namespace();
    // A process that not even root may look into is one of the machine itself, as its first one may be.
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

/// Whether an error says that the process or thread has ended.
fn has_ended(error: &io::Error) -> bool {
    error.kind() == io::ErrorKind::NotFound || error.raw_os_error() == Some(libc::ESRCH)
}

/// The path in a process's file system at which a network namespace is mounted, as in
/// `43 24 0:4 net:[4026532281] /run/netns/blue rw shared:5 - nsfs nsfs rw`.
fn mount_of(process: &Path, inode: u64) -> Option<String> {
    let mounts = std::fs::read_to_string(process.join("mountinfo")).ok()?;
    let root = format!("net:[{inode}]");
    let path = mounts.lines().find_map(|line| {
        let mut words = line.split(' ').skip(3);
        (words.next() == Some(&root)).then(|| words.next()).flatten()
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
        // Its number was never given: it is gone.
        let gone = Identity { index: u32::MAX / 2, ..found.identity().clone() };
        assert_eq!(gone.find().unwrap(), None);
        // A namespace that nobody is in is gone, too, if all processes can be seen.
        let gone = Identity { namespace: (0, 1), ..found.identity().clone() };
        let sees_all =
            rustix::process::geteuid().is_root() && crate::host::in_first_pid_namespace();
        match gone.find() {
            Ok(found) => assert!(found.is_none() && sees_all),
            Err(error) => assert!(is_elsewhere(&error) && !sees_all, "{error}"),
        }
    }
}
