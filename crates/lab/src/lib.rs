//! The experiments: plan, bench, samples, tables. This crate knows neither Linux nor QEMU. Each bench reports the
//! same samples, and each experiment makes the same tables from the samples of any bench.

#![forbid(unsafe_code)]

mod amounts;
pub mod compare;
pub mod cpu_warnings;
pub mod cpus;
pub mod experiment;
pub mod footprint;
pub mod guest_protocol;
pub mod handlers;
pub mod kernels;
pub mod noise;
mod quantiles;
pub mod services;
pub mod signal;
pub mod targets;
pub mod words;
