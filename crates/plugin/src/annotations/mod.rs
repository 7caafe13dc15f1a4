//! Annotations that were asked for: what is to be done where, and what came of it.
//!
//! They are found by their address when a block is translated, and nowhere else. What only counts
//! costs a callback without a lock; all others go by way of the session.

mod actions;
mod counters;
mod list;
mod program;

pub use list::{
    ACTIONS_MAX, ANNOTATIONS_MAX, Action, Annotation, AnnotationList, CHECKPOINTS_MAX, Place,
    SPANS_MAX, VALUES_MAX,
};
pub use program::{Guest, Program, REGISTERS, STEPS_MAX, Step};

pub(crate) use actions::{AnnotationPoint, watch};
pub(crate) use counters::AnnotationCounters;
