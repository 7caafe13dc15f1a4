//! [`Interface`] and [`Identity`]: finds a network interface by its name, and identifies it later. A name does not
//! identify an interface: another one may have it in another network namespace, or later.
//!
//! The journal stores an [`Identity`] on disk (as JSON, whose keys are this structure's fields), and finds the
//! interface again to restore its settings ([`Identity::find`]). If the interface is in another network namespace, the
//! error says how to enter that namespace.

use std::collections::BTreeSet;
use std::fmt;
use std::io;
use std::os::fd::{AsRawFd, OwnedFd};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use rustix::io::Errno;
use rustix::net::netdevice::{index_to_name, name_to_index};
use rustix::net::{AddressFamily, SocketFlags, SocketType, socket_with};
use rustix::thread::{CapabilitySet, capabilities};
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
    /// Device and inode of the interface's network namespace. A later namespace may have the inode of one that has ended.
    pub namespace: (u64, u64),
    /// The number of the namespace, which the kernel gives to no later one. `None` before Linux 5.14.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub namespace_cookie: Option<u64>,
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
    /// `/proc` cannot be read, no socket can be opened, or the kernel does not state an interface's name.
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
    /// A file that stands for the namespace: a mount, or a process's descriptor.
    File(String),
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
            Entrance::File(path) => write!(f, ": nsenter --net={path} {undo_with_sysfs})"),
            Entrance::Unknown => write!(
                f,
                "; if the namespace has ended, its settings have: run irqlab signal undo as root, outside of \
                 containers)"
            ),
        }
    }
}

impl std::error::Error for Elsewhere {}

/// Whether the interface of an error of [`Identity::find`] may still exist, with its settings: it is in another network
/// namespace, or nothing can be found out about it now.
pub(crate) fn may_still_exist(error: &io::Error) -> bool {
    error.get_ref().is_some_and(|inner| inner.is::<Elsewhere>() || inner.is::<NotFound>())
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
        let identity = Identity {
            name: name.to_owned(),
            index,
            namespace: own_namespace()?,
            namespace_cookie: own_cookie()?,
        };
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
    /// Fails if the interface is in another network namespace, or if it is unknown whether it exists.
    /// [`may_still_exist`] recognises these errors.
    pub(crate) fn find(&self) -> io::Result<Option<Interface>> {
        let unknown = |error: io::Error| io::Error::other(NotFound::Failed(error));
        if own_namespace().map_err(unknown)? != self.namespace {
            return match find_entrance(self.namespace) {
                Some(entrance) => {
                    Err(io::Error::other(Elsewhere { interface: self.clone(), entrance }))
                }
                None => Ok(None),
            };
        }
        // Another namespace has the inode now: that of the interface has ended, and its settings with it.
        let own_cookie = own_cookie().map_err(unknown)?;
        if own_cookie.zip(self.namespace_cookie).is_some_and(|(own, wanted)| own != wanted) {
            return Ok(None);
        }
        let name = match index_to_name(socket().map_err(unknown)?, self.index) {
            Ok(name) => name,
            Err(Errno::NODEV | Errno::NXIO) => return Ok(None),
            // The interface may exist: its name may have bytes that are not UTF-8.
            Err(error) => {
                let error = io::Error::from(error);
                let message = format!("the name of interface {}: {error}", self.index);
                return Err(unknown(io::Error::new(error.kind(), message)));
            }
        };
        if index_in_sysfs(&Root::default(), &name) != Some(self.index) {
            return Err(io::Error::other(NotFound::OtherSysfs));
        }
        Ok(Some(Interface { identity: self.clone(), name }))
    }
}

fn socket() -> io::Result<OwnedFd> {
    Ok(socket_with(AddressFamily::INET, SocketType::DGRAM, SocketFlags::CLOEXEC, None)?)
}

/// The number of the calling thread's network namespace (`SO_NETNS_COOKIE`). `None` before Linux 5.14.
///
/// Fails if no socket can be opened.
fn own_cookie() -> io::Result<Option<u64>> {
    let socket = socket()?;
    let mut cookie = 0_u64;
    let mut bytes = size_of::<u64>() as libc::socklen_t;
    // SAFETY: the kernel writes at most `bytes` bytes to `cookie`, and the length that it wrote to `bytes`.
    let result = unsafe {
        libc::getsockopt(
            socket.as_raw_fd(),
            libc::SOL_SOCKET,
            libc::SO_NETNS_COOKIE,
            (&raw mut cookie).cast(),
            &raw mut bytes,
        )
    };
    Ok((result == 0).then_some(cookie))
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
/// their settings. That is certain only if this process may look into all processes of the machine, and no name,
/// process, descriptor or mount keeps the namespace.
fn find_entrance(namespace: (u64, u64)) -> Option<Entrance> {
    let is_wanted = |path: &Path| Ok(namespace_at(path)? == namespace);
    let mut named = paths_in(Path::new("/run/netns")).unwrap_or_default().into_iter();
    if let Some(path) = named.find(|path| is_wanted(path).unwrap_or(false)) {
        return Some(Entrance::Name(last_name(&path)));
    }
    let Ok(entries_of_proc) = paths_in(Path::new("/proc")) else { return Some(Entrance::Unknown) };
    let mut sees_everything = may_see_all_processes();
    let mut mount_namespaces = BTreeSet::new();
    let mut descriptor = None;
    // Leaves out `self` and `thread-self`: in a command for the user they would mean another process.
    let is_process = |path: &PathBuf| last_name(path).parse::<u32>().is_ok();
    for process in entries_of_proc.into_iter().filter(is_process) {
        let mut look = Look { hides_nothing: true };
        for task in look.at(paths_in(&process.join("task"))).unwrap_or_default() {
            if look.at(is_wanted(&task.join("ns/net"))) == Some(true) {
                return Some(Entrance::Process(last_name(&process)));
            }
        }
        if descriptor.is_none() {
            descriptor = look.at(descriptor_of(&process, namespace.1)).flatten();
        }
        let mount_namespace = look.at(namespace_at(&process.join("ns/mnt")));
        // Processes in the same mount namespace have the same mounts.
        if let Some(mount_namespace) = mount_namespace
            && !mount_namespaces.contains(&mount_namespace)
        {
            match look.at(mount_of(&process, namespace.1)) {
                Some(Some(path)) => return Some(Entrance::File(path)),
                Some(None) => _ = mount_namespaces.insert(mount_namespace),
                None => {} // the next process shows the mounts
            }
        }
        sees_everything &= look.hides_nothing;
    }
    match descriptor {
        Some(path) => Some(Entrance::File(path)),
        None => (!sees_everything).then_some(Entrance::Unknown),
    }
}

/// Whether /proc lists all processes of the machine, and this process has the right to look into them. Without
/// CAP_SYS_PTRACE on the whole machine, a process with more rights refuses the look, also if this process is root, as in
/// a container. A /proc that was mounted with `hidepid` does not even list such a process.
fn may_see_all_processes() -> bool {
    let may_trace =
        capabilities(None).is_ok_and(|sets| sets.effective.contains(CapabilitySet::SYS_PTRACE));
    may_trace && crate::host::in_first_user_namespace() && crate::host::in_first_pid_namespace()
}

/// Looks into a process, and remembers whether it refused.
struct Look {
    /// Whether each look succeeded, or failed because the process has ended.
    hides_nothing: bool,
}

impl Look {
    /// The result of a look, or `None` if it failed.
    fn at<T>(&mut self, result: io::Result<T>) -> Option<T> {
        self.hides_nothing &= result.as_ref().err().is_none_or(has_ended);
        result.ok()
    }
}

/// Whether an error means that the process or thread has ended.
fn has_ended(error: &io::Error) -> bool {
    error.kind() == io::ErrorKind::NotFound || error.raw_os_error() == Some(libc::ESRCH)
}

/// The path of a descriptor with which `process` (a directory of /proc) keeps a network namespace. `None` if it
/// has none.
///
/// Fails if the process refuses a look at its descriptors.
fn descriptor_of(process: &Path, inode: u64) -> io::Result<Option<String>> {
    let wanted = PathBuf::from(format!("net:[{inode}]"));
    for path in paths_in(&process.join("fd"))? {
        match std::fs::read_link(&path) {
            Ok(target) if target == wanted => return Ok(Some(path.display().to_string())),
            Ok(_) => {}
            Err(error) if has_ended(&error) => {} // it was closed meanwhile
            Err(error) => return Err(error),
        }
    }
    Ok(None)
}

/// The path at which a network namespace is mounted in the mount namespace of `process` (a directory of
/// /proc). `None` if it is not mounted there. A line of its mountinfo is `43 24 0:4 net:[4026532281]
/// /run/netns/blue rw shared:5 - nsfs nsfs rw`.
///
/// Fails if the mountinfo cannot be read.
fn mount_of(process: &Path, inode: u64) -> io::Result<Option<String>> {
    let mounts = match std::fs::read(process.join("mountinfo")) {
        // The process has ended, and its parent has not read its status yet.
        Err(error) if error.raw_os_error() == Some(libc::EINVAL) => {
            return Err(io::ErrorKind::NotFound.into());
        }
        other => other?,
    };
    let root = format!("net:[{inode}]");
    let path = String::from_utf8_lossy(&mounts).lines().find_map(|line| {
        let mut fields = line.split(' ').skip(3);
        (fields.next() == Some(&root)).then(|| fields.next().map(str::to_owned)).flatten()
    });
    Ok(path.map(|path| format!("{}/root{path}", process.display())))
}

/// The paths of the entries of a directory.
fn paths_in(directory: &Path) -> io::Result<Vec<PathBuf>> {
    std::fs::read_dir(directory)?.map(|entry| Ok(entry?.path())).collect()
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
        let refuses = |process: &PathBuf| {
            let look = namespace_at(&process.join("ns/net"));
            look.is_err_and(|error| error.kind() == io::ErrorKind::PermissionDenied)
        };
        let sees_all =
            may_see_all_processes() && !paths_in(Path::new("/proc")).unwrap().iter().any(refuses);
        match gone.find() {
            Ok(found) => assert!(found.is_none() && sees_all),
            Err(error) => assert!(may_still_exist(&error) && !sees_all, "{error}"),
        }
    }

    /// Moves the calling thread into a new network namespace. Returns the namespace; `None` without the rights.
    fn enter_new_network() -> Option<(u64, u64)> {
        use rustix::thread::{UnshareFlags, unshare_unsafe};
        // SAFETY: only the network namespace of this thread changes.
        match unsafe { unshare_unsafe(UnshareFlags::NEWNET) } {
            Ok(()) => Some(own_namespace().unwrap()),
            Err(error) => {
                needs::not_run(needs::Need::Namespaces, error);
                None
            }
        }
    }

    /// An identity whose interface is in `namespace`.
    fn identity_in(namespace: (u64, u64)) -> Identity {
        Identity { name: "lo".to_owned(), index: 1, namespace, namespace_cookie: None }
    }

    /// Linux gives the inode of a namespace that has ended to a new one. Its interfaces are others.
    #[test]
    fn an_interface_of_a_namespace_that_has_ended_is_not_one_of_a_later_namespace() {
        let identity = |namespace_cookie| Identity {
            namespace_cookie,
            ..identity_in(own_namespace().unwrap())
        };
        let own_cookie = own_cookie().unwrap();
        assert!(identity(own_cookie).find().unwrap().is_some());
        // Journals of earlier versions have no cookie.
        assert!(identity(None).find().unwrap().is_some());
        let Some(cookie) = own_cookie else {
            return needs::not_run(needs::Need::Other, "SO_NETNS_COOKIE, which Linux 5.14 has");
        };
        assert!(identity(Some(cookie + 1)).find().unwrap().is_none());
        let entered = std::thread::spawn(|| enter_new_network().map(|_| super::own_cookie()));
        let Some(other) = entered.join().unwrap() else { return };
        assert_ne!(other.unwrap(), Some(cookie));
    }

    /// Root in a container that sees the host's processes has no CAP_SYS_PTRACE.
    #[test]
    fn a_namespace_whose_processes_refuse_a_look_is_not_taken_for_ended() {
        if !may_see_all_processes() {
            return needs::not_run(needs::Need::Root, "CAP_SYS_PTRACE, to give it up");
        }
        let mut sleep = std::process::Command::new("unshare");
        let mut sleep = sleep.args(["--net", "sleep", "1000"]).spawn().unwrap();
        let path = PathBuf::from(format!("/proc/{}/ns/net", sleep.id()));
        let namespace = loop {
            let namespace = namespace_at(&path).unwrap();
            if namespace != own_namespace().unwrap() {
                break Some(namespace);
            }
            if sleep.try_wait().unwrap().is_some() {
                break None;
            }
            std::thread::sleep(std::time::Duration::from_millis(1));
        };
        let Some(namespace) = namespace else {
            return needs::not_run(needs::Need::Namespaces, "unshare --net");
        };
        let identity = identity_in(namespace);
        let with_right = identity.find();
        let without_right = std::thread::spawn(move || {
            let mut sets = capabilities(None).unwrap();
            sets.effective.remove(CapabilitySet::SYS_PTRACE);
            rustix::thread::set_capabilities(None, sets).unwrap();
            identity.find()
        });
        let without_right = without_right.join().unwrap();
        sleep.kill().unwrap();
        sleep.wait().unwrap();
        let (with_right, without_right) = (with_right.unwrap_err(), without_right.unwrap_err());
        assert!(with_right.to_string().contains(": nsenter -t "), "{with_right}");
        assert!(may_still_exist(&without_right), "{without_right}");
        assert!(without_right.to_string().contains("; if the namespace has ended"));
    }

    #[test]
    fn a_namespace_that_only_a_descriptor_keeps_is_found() {
        let enter =
            || Some((enter_new_network()?, std::fs::File::open("/proc/thread-self/ns/net")));
        let Some((namespace, file)) = std::thread::spawn(enter).join().unwrap() else { return };
        let file = file.unwrap();
        let error = identity_in(namespace).find().unwrap_err();
        let path = format!(": nsenter --net=/proc/{}/fd/", std::process::id());
        assert!(may_still_exist(&error) && error.to_string().contains(&path), "{error}");
        drop(file);
    }

    /// The kernel allows a name of any bytes, and rustix refuses one that is not UTF-8.
    #[test]
    fn an_interface_whose_name_is_unknown_is_not_taken_for_gone() {
        use std::os::unix::ffi::OsStrExt;
        let body = || {
            if enter_new_network().is_none() {
                return;
            }
            let _sysfs = match crate::network::PrivateSysfs::mount() {
                Ok(sysfs) => sysfs,
                Err(error) => return needs::not_run(needs::Need::Namespaces, error),
            };
            let rename = |old_name: &[u8], new_name: &[u8]| {
                let names = [old_name, b"name", new_name].map(std::ffi::OsStr::from_bytes);
                let mut ip = std::process::Command::new("ip");
                ip.args(["link", "set", "dev"]).args(names).status().unwrap().success()
            };
            let found = Interface::find("lo").unwrap();
            assert!(rename(b"lo", b"\xff"));
            let error = found.identity().find().unwrap_err();
            assert!(may_still_exist(&error), "{error}");
            assert!(error.to_string().contains("the name of interface 1: "), "{error}");
            assert!(rename(b"\xff", b"lo"));
            assert_eq!(found.identity().find().unwrap(), Some(found));
        };
        std::thread::spawn(body).join().unwrap();
    }
}
