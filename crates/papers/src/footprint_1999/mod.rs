//! The paper `footprint-1999`: its published figures compared with simulated figures, and its findings judged on both.

mod findings;
mod published;
mod tables;

pub use findings::findings;
pub use published::Paper;
pub use tables::{ModelRun, Part, paper};
