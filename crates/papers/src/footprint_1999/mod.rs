//! The paper `footprint-1999`: its published figures compared with simulated ones, and its findings judged on
//! both.

mod claims;
mod published;
mod tables;

pub use claims::statements;
pub use published::{Count, Paper, PaperRow, PaperTable, TEXT};
pub use tables::{ModelRun, Part, paper};
