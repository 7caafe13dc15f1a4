//! Machines that run in QEMU. They need a QEMU that fits and the guest's files (`irqlab sim setup`, or a
//! machine that can fetch Debian's packages); without them, the tests say so and pass.
//!
//! All tests are one program, which runs one machine per processor at the same time.

mod annotations;
mod bare;
mod devices;
mod faults;
mod identity;
mod machine;
mod parts;
mod pmu;
mod ready;
mod saved_on_the_way;
mod watch;
mod workloads;
