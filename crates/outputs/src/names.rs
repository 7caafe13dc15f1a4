//! Temporary names of files and directories. They are unpredictable, and irqlab notes them before they exist.

use std::any::Any;
use std::hash::{BuildHasher, Hasher, RandomState};
use std::io;
use std::path::Path;
use std::sync::OnceLock;

/// Start of the temporary name of a file. irqlab's journal removes only files whose names start with it: both
/// prefixes must stay equal.
const FILE_PREFIX: &str = "irqlab-";
/// End of the temporary name of a file.
pub const TEMPORARY_SUFFIX: &str = ".part";

/// The note of a temporary name. It is dropped when the name is gone.
pub type TemporaryNote = Box<dyn Any + Send + Sync>;

/// The kind of entry that has a temporary name.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Temporary {
    /// A file, whose name [`temporary_name`] made.
    File,
    /// A directory, which [`crate::remove_leftover`] removes.
    Directory,
}

/// Notes a temporary name in a journal.
type NoteName = fn(&Path, Temporary) -> io::Result<TemporaryNote>;
static NOTE_NAME: OnceLock<NoteName> = OnceLock::new();

/// Sets the function that notes each temporary name before the name exists. The note is dropped after the name is
/// gone. Only the first call has an effect.
pub fn note_names_by(note_name: NoteName) {
    let _ = NOTE_NAME.set(note_name);
}

/// Notes a name. `None` if it cannot be noted; the name is used nevertheless, and a kill then leaves it.
pub(crate) fn note(path: &Path, temporary: Temporary) -> Option<TemporaryNote> {
    NOTE_NAME.get().and_then(|note_name| note_name(path, temporary).ok())
}

/// Returns a number that nobody can predict.
pub(crate) fn unpredictable() -> u64 {
    // The keys of a `RandomState` come from the system's source of random numbers.
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
