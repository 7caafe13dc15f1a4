//! The software of the guest: its kernel, its initramfs, and the kernel's symbols and types.

mod areas;
pub mod btf;
mod elf;
pub mod image;
pub mod kernel;
mod layer;
pub(crate) mod loaded;
mod modules;
pub(crate) mod symbols;
