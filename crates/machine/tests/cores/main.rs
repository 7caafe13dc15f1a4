//! Cores: timing contracts, properties on random programs, and the cores of real machines.

mod contracts;
mod decoding;
mod emerald_rapids;
mod fast_paths;
mod field_effects;
mod flags;
mod in_order;
mod instruction_latencies;
mod kernels;
mod late_lines;
mod machines;
mod modified_code;
mod parts;
mod presets;
mod properties;
mod schema;
mod sharing;
mod streams;
mod support;
mod threads;
mod warming;
