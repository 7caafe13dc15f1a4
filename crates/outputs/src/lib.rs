//! Files and directories that irqlab leaves: each is whole or absent, and nothing else is touched. And what programs
//! write that irqlab starts.
//!
//! # Design constraints
//! - A directory is opened once. All names in it are relative to its descriptor, so that whoever owns a
//!   directory above cannot lead a write elsewhere.
//! - A file has no name while it is written (`O_TMPFILE`), so that a kill leaves nothing. Where the file system
//!   cannot do that, and while a file replaces another one, it has an unpredictable name.
//!   That name is noted first ([`note_names_by`]): a later start removes the file that a kill leaves.
//! - The target is absent, or a regular file that the caller may replace. Links, FIFOs and devices are refused.

#![forbid(unsafe_code)]

mod directory;
mod file;
mod leftovers;
mod names;
mod place;
mod program;

pub use directory::{MakeDirectoryError, NewDirectory};
pub use file::{NewFile, can_create_in, write};
pub use leftovers::{leftovers, remove_leftover, remove_leftovers};
pub use names::{TEMPORARY_SUFFIX, Temporary, TemporaryNote, note_names_by, temporary_name};
pub use place::{Existing, check};
pub use program::output_of_program;
