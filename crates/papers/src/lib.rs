//! Papers: published figures next to measured figures, and a paper's findings judged on both. Each paper of
//! `papers/*.toml` has a module, which `irqlab reproduce PAPER` calls after it has measured. This crate uses the
//! experiments' samples; no experiment knows a paper.

#![forbid(unsafe_code)]

pub mod footprint_1999;
#[cfg(test)]
mod golden;
pub mod handlers_ia32;
mod judge;
pub mod noise_t1;
mod published;
pub mod signal_afterburner;
pub mod simos_1995;

pub use judge::Selection;
pub use published::PublishedError;
