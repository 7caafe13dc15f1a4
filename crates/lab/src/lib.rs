//! The experiments: plan, bench, samples, tables. Nothing here is specific to Linux or QEMU; a
//! bench hands in samples, and the same tables come out.

pub mod footprint;
pub mod handlers;
pub mod noise;
