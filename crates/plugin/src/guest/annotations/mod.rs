//! Annotations: actions at places of the guest, and the counts and values that they record.
//!
//! An annotation at an address is looked up when its block is translated, and nowhere else. One
//! that only counts costs a callback without a lock; the others lock the session.

mod actions;
mod counters;
mod list;
mod program;

pub use list::{
    ACTIONS_MAX, ANNOTATIONS_MAX, Action, Annotation, AnnotationList, CHECKPOINTS_MAX, Place,
    SPANS_MAX, VALUES_MAX,
};
pub use program::{Guest, Program, REGISTERS, STEPS_MAX, Step};

pub(crate) use actions::{hit_event, hit_marker, watch};
pub(crate) use counters::AnnotationCounters;
