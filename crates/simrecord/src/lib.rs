//! What the plugin and its readers agree on: the record of a simulated machine, and the markers by
//! which a guest structures it.
//!
//! - [`marker`]: the instruction that a guest executes, and the numbers it carries. This module
//!   alone needs neither `std` nor another crate; guests use the crate without the feature
//!   `record`.
//! - [`record`]: the records, and how they are encoded. docs/plugin.md describes the format.
//! - [`counters`]: the vector of counters of each vCPU, in the order in which records hold it.
//! - [`reader`]: reads a stream of records, with bounds.
//! - [`difference`]: where two streams start to differ.
//! - [`parsed`]: a stream as regions with their contexts and counters.
//! - [`progress`]: how far a guest is, for a display.
//! - [`messages`]: what the plugin prints for `sim` to read.
//!
//! The plugin writes the stream inside QEMU, `sim` reads it.

#![cfg_attr(not(feature = "record"), no_std)]

pub mod marker;

#[cfg(feature = "record")]
pub mod counters;
#[cfg(feature = "record")]
pub mod difference;
#[cfg(feature = "record")]
pub mod messages;
#[cfg(feature = "record")]
pub mod parsed;
#[cfg(feature = "record")]
pub mod progress;
#[cfg(feature = "record")]
pub mod reader;
#[cfg(feature = "record")]
pub mod record;
