//! Annotations that were asked for: what is to be done where, and what came of it.
//!
//! They are found by their address when a block is translated, and nowhere else. What only counts
//! costs a callback without a lock; all others go by way of the session.

mod acting;
mod list;
mod program;
mod tally;

pub use list::{
    CHECKPOINTS_MAX, DEEDS_MAX, Deed, NOTES_MAX, Note, Notes, Place, SPANS_MAX, VALUES_MAX,
};
pub use program::{Guest, Program, REGISTERS, STEPS_MAX, Step};

pub(crate) use acting::{NotePoint, watch};
pub(crate) use tally::Tally;
