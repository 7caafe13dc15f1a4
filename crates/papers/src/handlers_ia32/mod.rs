//! The paper `handlers-ia32`: its published figures compared with simulated figures, and its findings judged on both.

mod findings;
mod interrupt;
mod published;
mod tables;

pub use findings::findings;
pub use interrupt::ModelRun;
pub use published::Paper;
pub use tables::paper;
