//! One file a verb.

pub mod bench;
pub mod doctor;
pub mod handlers;
pub mod show;
pub mod stimulus;
