//! Guests that QEMU runs with the plugin. Without QEMU or a kernel, the tests say so and pass.
//!
//! All tests are in one program, because the test runner then limits how many machines run at once.

mod annotations;
mod boot;
mod levels;
mod machine;
mod monitor;
mod ooo;
mod package;
mod pmu;
mod saved;
mod sums;
