//! The software that runs in the guest: its tasks and contexts, its services, its structures and symbols, and what a
//! recording does at places of it.

pub mod annotations;
pub(crate) mod irq;
pub(crate) mod markers;
pub(crate) mod memory_context;
pub mod misses;
pub(crate) mod region_rows;
pub(crate) mod regions;
pub(crate) mod service_misses;
pub(crate) mod service_sums;
pub(crate) mod services;
pub(crate) mod spans;
pub(crate) mod structures;
pub mod symbols;
pub(crate) mod tracker;
pub mod user_functions;
