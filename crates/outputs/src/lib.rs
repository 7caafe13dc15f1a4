//! Writes the files and directories that irqlab leaves: each is complete or absent, and nothing else is changed. Also
//! collects the output of programs that irqlab starts.
//!
//! All crates write files that users name through this one, and `sim` its cache.
//!
//! # Design constraints
//! - A directory is opened once. All names in it are relative to its descriptor: the owner of a directory above cannot
//!   redirect a write.
//! - A file has no name while it is written (`O_TMPFILE`): a kill leaves nothing. If the file system cannot do that,
//!   or while a file replaces another one, it has an unpredictable temporary name. irqlab notes this name first
//!   ([`note_names_by`]), and its next start removes what a kill has left.
//! - The target is absent, or a regular file that the caller may replace. Links, FIFOs and devices are refused.

#![forbid(unsafe_code)]

mod directory;
mod file;
mod leftovers;
mod names;
mod place;
mod program;
mod reservation;

pub use directory::{MakeDirectoryError, NewDirectory};
pub use file::{NewFile, can_create_in, write};
pub use leftovers::{leftovers, remove_leftover, remove_leftovers};
pub use names::{TEMPORARY_SUFFIX, Temporary, TemporaryNote, note_names_by, temporary_name};
pub use place::{Existing, check};
pub use program::output_of_program;
pub use reservation::Reservation;
