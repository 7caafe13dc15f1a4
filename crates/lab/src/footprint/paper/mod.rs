//! The tables of the paper `footprint-1999`, its figures compared with the
//! simulated ones, and its findings as statements.

mod claims;
mod published;
mod tables;

pub use claims::statements;
pub use published::{Count, Paper, PaperRow, PaperTable, TEXT};
pub use tables::{ModelRun, Part, paper};
