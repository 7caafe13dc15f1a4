//! The figures and the table of the paper `handlers-ia32`, compared with the simulated ones, and its findings
//! as statements.

mod findings;
mod interrupt;
mod published;
mod tables;

pub use findings::findings;
pub use interrupt::ModelRun;
pub use published::{Family, Paper, PaperMachine};
pub use tables::paper;
