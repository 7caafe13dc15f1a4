//! Which interface: one of the same name may be another one, in another network namespace, or later.

use std::fmt;
use std::io;
use std::os::unix::fs::MetadataExt;

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
    NoSuchName {
        /// Names that there are.
        names: Vec<String>,
    },
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
struct Elsewhere(Identity);

impl fmt::Display for Elsewhere {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Identity { name, namespace, .. } = &self.0;
        let inode = namespace.1;
        write!(f, "{name} is in network namespace {inode} (run irqlab in that one to restore it)")
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
            return match lives(self.namespace) {
                true => Err(io::Error::other(Elsewhere(self.clone()))),
                false => Ok(None),
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

/// Whether a process is in that namespace, or ip-netns(8) has given it a name. One that nobody is in and
/// that has no name ends, with its interfaces and their settings.
fn lives(namespace: (u64, u64)) -> bool {
    let entries = |at: &str| std::fs::read_dir(at).into_iter().flatten().flatten();
    let processes = entries("/proc").map(|entry| entry.path().join("ns/net"));
    let named = entries("/run/netns").map(|entry| entry.path());
    processes.chain(named).any(|path| namespace_at(&path).is_ok_and(|found| found == namespace))
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
        // A namespace that nobody is in is gone, too.
        let gone = Identity { namespace: (0, 1), ..found.identity().clone() };
        assert_eq!(gone.find().unwrap(), None);
    }
}
