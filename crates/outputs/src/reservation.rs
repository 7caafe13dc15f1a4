//! Reserves the name of a directory while its content is still being measured.

use std::ffi::OsString;
use std::fs::File;
use std::path::Path;

use rustix::fs::AtFlags;

use crate::directory::{MakeDirectoryError, open_new, refuse_existing};
use crate::leftovers::{remove_leftover, reservation_name};
use crate::names::{self, Temporary, TemporaryNote};
use crate::place::Place;

/// Maximum number of attempts to reserve a name while other processes remove what killed ones left.
const TRIES: u32 = 8;

/// A name that no other process of irqlab takes: a hidden empty directory next to it, with a lock. Dropping it gives
/// the name free.
///
/// On a file system without locks, another process may remove the hidden directory. Then the name is reserved no
/// longer, and [`crate::NewDirectory::finish`] still refuses to replace a directory.
pub struct Reservation {
    place: Place,
    hidden: OsString,
    /// The hidden directory, with its lock.
    _directory: File,
    note: Option<TemporaryNote>,
}

impl std::fmt::Debug for Reservation {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        formatter.debug_tuple("Reservation").field(&self.place).finish()
    }
}

impl Reservation {
    /// Reserves the name of `path`, whose parent must exist. `None` if another process has reserved it.
    ///
    /// Fails when something of that name exists, or the system refuses: the name may be too long.
    pub fn new(path: &Path) -> Result<Option<Reservation>, MakeDirectoryError> {
        let failed = |source| MakeDirectoryError::Io { path: path.to_owned(), source };
        let place = Place::open(path).map_err(failed)?;
        refuse_existing(&place, path)?;
        let hidden = reservation_name(&place.name);
        let note = names::note(&place.path(&hidden), Temporary::Directory);
        for _ in 0..TRIES {
            if let Some(_directory) = open_new(&place, &hidden).map_err(failed)? {
                let reservation = Reservation { place, hidden, _directory, note };
                // A process that had reserved the name may have finished its directory since the first check.
                refuse_existing(&reservation.place, path)?;
                return Ok(Some(reservation));
            }
            let is_leftover = remove_leftover(&place.directory_path, &hidden).map_err(failed)?;
            if !is_leftover && place.path(&hidden).symlink_metadata().is_ok() {
                return Ok(None);
            }
        }
        Ok(None)
    }
}

impl Drop for Reservation {
    fn drop(&mut self) {
        // An error leaves an empty hidden directory, which the next start removes.
        let _ = rustix::fs::unlinkat(&self.place.directory, &self.hidden, AtFlags::REMOVEDIR);
        // A kill before this line leaves the note, and the next start removes the directory.
        self.note.take();
    }
}

#[cfg(test)]
mod tests {
    use std::ffi::OsStr;
    use std::fs;

    use super::*;

    #[test]
    fn a_name_is_reserved_once_at_a_time() {
        let parent = tempfile::tempdir().unwrap();
        let path = parent.path().join("run");
        let first = Reservation::new(&path).unwrap().unwrap();
        assert!(Reservation::new(&path).unwrap().is_none());
        assert!(Reservation::new(&parent.path().join("run-2")).unwrap().is_some());
        drop(first);
        assert!(Reservation::new(&path).unwrap().is_some());
        assert_eq!(fs::read_dir(&parent).unwrap().count(), 0);
    }

    #[test]
    fn what_a_killed_process_reserved_is_free() {
        let parent = tempfile::tempdir().unwrap();
        let path = parent.path().join("run");
        fs::create_dir(parent.path().join(reservation_name(OsStr::new("run")))).unwrap();
        assert!(Reservation::new(&path).unwrap().is_some());
    }

    #[test]
    fn long_names_with_the_same_start_are_reserved_apart() {
        let parent = tempfile::tempdir().unwrap();
        let path = |end: char| parent.path().join(format!("{}{end}", "x".repeat(250)));
        let first = Reservation::new(&path('a')).unwrap();
        assert!(first.is_some() && Reservation::new(&path('b')).unwrap().is_some());
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
