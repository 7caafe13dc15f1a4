//! The bench that is this machine.

pub mod bpf;
pub mod footprint;
pub mod handlers;
pub mod host;
pub mod journal;
pub mod noise;
pub mod selfbench;
pub mod stimulus;
