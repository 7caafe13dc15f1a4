//! The guest: its kernel, its initramfs, and the kernel's symbols and types.

pub mod btf;
pub mod image;
pub mod kernel;
mod layer;
mod modules;
pub(crate) mod symbols;
