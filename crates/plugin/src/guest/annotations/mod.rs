//! Annotations: actions at places of the guest that the user chooses (`--annotate`), and the counts and values that
//! they record. The crate `plugin_interface` defines their text form.
//!
//! An annotation at an address is looked up only when its block is translated. If it only counts, it costs a callback
//! without a lock. All other annotations lock the session.

mod actions;
mod counters;

pub(crate) use actions::{hit_event, hit_marker, watch};
pub(crate) use counters::AnnotationCounters;
