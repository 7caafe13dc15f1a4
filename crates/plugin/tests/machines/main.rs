//! Guests that QEMU runs with the plugin. Without QEMU or a kernel, the tests say so and pass.
//!
//! One program, so that as many machines run at once as there are processors.

mod annotations;
mod boot;
mod machine;
mod monitor;
mod ooo;
mod package;
mod pmu;
mod saved;
mod sums;
