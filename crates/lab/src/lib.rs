//! The experiments: plan, bench, samples, tables. Nothing here is specific to Linux or QEMU; a
//! bench hands in samples, and the same tables come out.

#![forbid(unsafe_code)]

mod amounts;
pub mod compare;
pub mod cpu_warnings;
pub mod cpus;
pub mod experiment;
pub mod footprint;
pub mod guest_protocol;
pub mod handlers;
mod judge;
pub mod kernels;
pub mod noise;
mod published;
mod quantiles;
pub mod services;
pub mod signal;

pub use published::PublishedError;
