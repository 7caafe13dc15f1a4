//! Everything that touches QEMU itself: its plugin API, its callbacks, and exports that it does not document.
//!
//! - `install`: the entry point, which QEMU calls when it loads the plugin. It reads the options and starts the
//!   recording.
//! - `callbacks`: the functions that QEMU calls when a vCPU starts, halts or takes an interrupt, when code is
//!   dropped, and when QEMU ends.
//! - `translate`: decodes a block when QEMU translates it, and registers callbacks for its instructions. `block` is the
//!   prepared description of a block, and `before_block` the work that is due before a block starts.
//! - `leaving`: callbacks that may leave their block before its end.
//! - `guest_access`: safe functions that access registers, read memory and register callbacks, over the declarations
//!   in `ffi`.
//! - `qemu_internals`: functions and data that QEMU exports without promising them.

pub(crate) mod before_block;
pub(crate) mod block;
pub(crate) mod callbacks;
pub(crate) mod ffi;
mod guest_access;
pub(crate) mod install;
pub(crate) mod leaving;
pub(crate) mod qemu_internals;
pub(crate) mod translate;

pub(crate) use guest_access::{
    Callbacks, INTERRUPT_FLAG, Qemu, Registers, TranslatedBlock, TranslatedInstruction,
};
