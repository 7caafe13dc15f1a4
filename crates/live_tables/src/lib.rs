//! Tables of `irqlab bench` on this machine: irqlab compared with other tools, with the kernel's own counts, and with
//! its targets. `live::selfbench` measures the figures and knows no tables. The verb `bench` measures, calls `tables`
//! of one module here, and prints and records the result.
//!
//! Names, units and order of columns are public. Functions are pure.

#![forbid(unsafe_code)]

pub mod noise_peers;
pub mod overhead;
mod spread;
pub mod storm;
pub mod trace_agreement;
