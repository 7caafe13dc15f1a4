//! The options and files that the crate `sim` passes to the QEMU plugin. `sim` prints each as text, and the plugin
//! parses the text. Both directions are here, so that they cannot differ.
//!
//! - [`options`]: the plugin's options. Some name files with the following parts.
//! - [`annotations`]: actions at places of the guest.
//! - [`symbols`]: the functions and structures of the guest's kernel that the plugin uses, and their meanings.
//! - [`sampling`]: which instructions a core executes in detail.
//! - [`until`]: when a window ends before its time.
//!
//! The plugin writes a record, whose format is in the crate `simrecord`.

#![forbid(unsafe_code)]

pub mod annotations;
pub mod options;
pub mod sampling;
pub mod symbols;
pub mod until;
