//! The models of processors and caches that a recording uses. Guest time can follow the model of the level `timed` or
//! `ooo`. Shadow caches only count.
//!
//! - `recording_models`: all models of a recording, from reading their files to writing their counts.
//! - The level `ooo`: `processors` has all processors, `cores` their cores, and `pipeline` the block that each vCPU is
//!   executing. `template` prepares a block for a core when QEMU translates the block.
//! - `sampling`: the instructions that a core executes in detail, where only some are.
//! - `shadow_caches`: caches of other machines and of all sizes at the level `count`.
//! - Addresses: `physical` asks QEMU for physical addresses, and `pages` caches the answers. `translations` decodes the
//!   instructions that change translations, and `translation_points` registers callbacks for these instructions.
//!   `isolation` finds out which of the kernel's pages are global.
//! - Accesses that no callback reports: `accesses` describes them, and `entry` finds the accesses at the entry of a
//!   handler.
//! - Output: `counters` fills the vector of counters from a model's counts, and `block_trace` writes a trace of
//!   execution.

pub(crate) mod accesses;
pub(crate) mod block_trace;
pub(crate) mod cores;
pub(crate) mod counters;
pub(crate) mod entry;
pub(crate) mod isolation;
pub(crate) mod pages;
pub(crate) mod physical;
pub(crate) mod pipeline;
pub(crate) mod processors;
mod recording_models;
pub(crate) mod sampling;
pub(crate) mod shadow_caches;
pub(crate) mod template;
pub(crate) mod translation_points;
pub(crate) mod translations;

pub(crate) use recording_models::Models;
