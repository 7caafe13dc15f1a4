//! A program for the simulated machine that runs without a kernel, so that nothing interrupts its measurements. It
//! contains the noise loops, and a version of `footprint`; `irqlab sim bare` starts it.
//!
//! QEMU starts it directly (PVH: an ELF note names the 32-bit entry). It reads its command line, writes its
//! results as lines to the first serial port (`sim::bare` reads them), and powers the machine off. The words of the
//! command line and of the results are a protocol with `sim::bare`.
//!
//! Without the feature `freestanding` it is an ordinary program that prints an error, with the same modules
//! for tests.
#![cfg_attr(feature = "freestanding", no_std, no_main)]

#[cfg(feature = "freestanding")]
mod addresses;
#[cfg(feature = "freestanding")]
mod boot;
#[cfg(any(test, feature = "freestanding"))]
mod command;
#[cfg(feature = "freestanding")]
mod cpu;
#[cfg(feature = "freestanding")]
mod fill;
#[cfg(feature = "freestanding")]
mod footprint;
#[cfg(feature = "freestanding")]
mod interrupts;
#[cfg(feature = "freestanding")]
mod noise;
#[cfg(any(test, feature = "freestanding"))]
mod ring;
#[cfg(feature = "freestanding")]
mod routine;
#[cfg(feature = "freestanding")]
mod serial;

#[cfg(not(feature = "freestanding"))]
fn main() {
    eprintln!("bare: this is a program for a machine without a kernel; start `irqlab sim bare`");
    std::process::exit(2);
}
