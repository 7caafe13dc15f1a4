//! Reserves the name of a directory while its content is still being measured.

use std::hash::{DefaultHasher, Hasher};
use std::io::{self, ErrorKind};
use std::os::linux::net::SocketAddrExt;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::net::{SocketAddr, UnixDatagram};
use std::path::Path;

use crate::directory::{MakeDirectoryError, refuse_existing};
use crate::place::Place;

/// A name that no other process of irqlab takes. Dropping it gives the name free. If another thread is just starting a program,
/// the name is free after that program's `exec`.
///
/// It is an abstract address of a Unix socket, made from the parent directory's inode and the name: nothing is on disk, and the
/// kernel removes the address when the process ends, also when it is killed. A process in another network namespace
/// does not see the address; [`crate::NewDirectory::finish`] refuses to replace its directory nevertheless.
#[derive(Debug)]
pub struct Reservation {
    /// `None` where this process must not make sockets: then the name is not reserved.
    _socket: Option<UnixDatagram>,
}

impl Reservation {
    /// Reserves the name of `path`, whose parent must exist. `None` if another process has reserved it.
    ///
    /// Fails when something of that name exists, or the system refuses: the name may be too long.
    pub fn new(path: &Path) -> Result<Option<Reservation>, MakeDirectoryError> {
        let failed = |source| MakeDirectoryError::Io { path: path.to_owned(), source };
        let target = Place::open(path).map_err(failed)?;
        refuse_existing(&target, path)?;
        let socket = match UnixDatagram::bind_addr(&address(&target).map_err(failed)?) {
            Err(error) if error.kind() == ErrorKind::AddrInUse => return Ok(None),
            bound => bound.ok(),
        };
        // A process that had reserved the name may have finished its directory since the first check.
        refuse_existing(&target, path)?;
        Ok(Some(Reservation { _socket: socket }))
    }
}

/// The address that stands for a name in a directory. It is equal in all processes, whatever path they give.
fn address(place: &Place) -> io::Result<SocketAddr> {
    let directory = rustix::fs::fstat(&place.directory)?;
    let mut hasher = DefaultHasher::new();
    hasher.write(place.name.as_bytes());
    let (device, inode, name) = (directory.st_dev, directory.st_ino, hasher.finish());
    SocketAddr::from_abstract_name(format!("irqlab-output-{device:x}-{inode:x}-{name:016x}"))
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;

    #[test]
    fn a_name_is_reserved_once_at_a_time() {
        let parent = tempfile::tempdir().unwrap();
        let path = parent.path().join("run");
        let first = Reservation::new(&path).unwrap().unwrap();
        assert!(Reservation::new(&path).unwrap().is_none());
        let same_place = parent.path().join("./run");
        assert!(Reservation::new(&same_place).unwrap().is_none());
        assert!(Reservation::new(&parent.path().join("run-2")).unwrap().is_some());
        drop(first);
        assert!(Reservation::new(&path).unwrap().is_some());
        assert_eq!(fs::read_dir(&parent).unwrap().count(), 0);
    }

    #[test]
    fn a_name_that_exists_or_is_too_long_is_refused() {
        let parent = tempfile::tempdir().unwrap();
        let exists = Reservation::new(parent.path());
        assert!(matches!(exists, Err(MakeDirectoryError::Exists)), "{exists:?}");
        let too_long = Reservation::new(&parent.path().join("x".repeat(256)));
        assert!(matches!(too_long, Err(MakeDirectoryError::Io { .. })), "{too_long:?}");
    }
}
