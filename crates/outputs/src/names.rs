//! Temporary names: nobody can predict them, and they are noted before they exist.

use std::any::Any;
use std::hash::{BuildHasher, Hasher, RandomState};
use std::io;
use std::path::Path;
use std::sync::OnceLock;

/// Start of the temporary name of a file. A journal of irqlab removes files whose names start like this.
const FILE_PREFIX: &str = "irqlab-";
/// End of the temporary name of a file.
pub const TEMPORARY_SUFFIX: &str = ".part";

/// Notes a temporary name until the name is gone.
pub type TemporaryNote = Box<dyn Any + Send + Sync>;

/// The kind of entry that has a temporary name.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Temporary {
    /// A file, whose name [`temporary_name`] made.
    File,
    /// A directory, which [`crate::remove_leftover`] removes.
    Directory,
}

type Notes = fn(&Path, Temporary) -> io::Result<TemporaryNote>;
static NOTES: OnceLock<Notes> = OnceLock::new();

/// Has each temporary name noted before it exists. The name is gone before its note is dropped. The first
/// caller's function stays.
pub fn note_names_by(notes: Notes) {
    let _ = NOTES.set(notes);
}

/// Notes a name. A name that cannot be noted is used nevertheless: a kill leaves it then.
pub(crate) fn note(path: &Path, temporary: Temporary) -> Option<TemporaryNote> {
    NOTES.get().and_then(|notes| notes(path, temporary).ok())
}

/// Returns a number that nobody can predict.
pub(crate) fn unpredictable() -> u64 {
    // Its keys come from the system's source of random numbers.
    RandomState::new().build_hasher().finish()
}

/// Returns a temporary name for a file, which nobody can predict.
#[must_use]
pub fn temporary_name() -> String {
    format!("{FILE_PREFIX}{:016x}{TEMPORARY_SUFFIX}", unpredictable())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_differ() {
        let mut names: Vec<_> = (0..100).map(|_| temporary_name()).collect();
        names.sort();
        names.dedup();
        assert_eq!(names.len(), 100);
    }
}
