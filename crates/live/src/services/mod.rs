//! `services` on this machine.

pub mod in_guest;
