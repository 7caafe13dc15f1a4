//! Tables of `irqlab bench` on this machine: irqlab compared with other tools, with the kernel's own counts, and with
//! its targets. `live` measures the figures and knows no table.

#![forbid(unsafe_code)]

pub mod noise_peers;
pub mod overhead;
mod spread;
pub mod storm;
pub mod trace_agreement;
