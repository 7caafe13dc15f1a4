//! The interface between the QEMU plugin and its readers: the record of a simulated machine, and the markers that a
//! guest puts into the record. The plugin writes the stream of records inside QEMU, and `sim` reads it.
//!
//! - [`marker`]: the instruction that a guest executes, and its numbers. This module needs neither `std` nor another
//!   crate, because guests use it: they build the crate without the feature `record`, which all other modules need.
//! - [`record`]: the records, and how they are encoded. docs/plugin.md describes the format.
//! - [`counters`]: the vector of counters of each vCPU, in the order of the records.
//! - [`reader`]: reads a stream of records, with bounds.
//! - [`difference`]: finds the first difference of two streams.
//! - [`parsed`]: parses a stream into regions with their contexts and counters.
//! - [`progress`]: the progress of a running guest, for a display.
//! - [`messages`]: messages that the plugin prints for `sim` to read.

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
