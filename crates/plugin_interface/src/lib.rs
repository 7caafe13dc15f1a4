//! The options and files that `sim` gives the plugin. `sim` prints each as text, and the plugin parses the text.
//!
//! - [`options`]: the plugin's options. Some name files with the following parts.
//! - [`annotations`]: actions at places of the guest.
//! - [`symbols`]: the functions and structures of the guest's kernel that the plugin uses, and their meanings.
//! - [`sampling`]: which instructions a core executes in detail.
//! - [`until`]: when a window ends before its time.
//!
//! The plugin answers with a record, whose format is the crate `simrecord`.

#![forbid(unsafe_code)]

pub mod annotations;
pub mod options;
pub mod sampling;
pub mod symbols;
pub mod until;
