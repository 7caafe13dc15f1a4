//! A limit on the exit latency of the idle states that the kernel may use, for the time of a measurement.

use std::fs::{File, OpenOptions};
use std::io::{self, Write};

/// The device of the limit (Documentation/power/pm_qos_interface.rst).
const DEVICE: &str = "/dev/cpu_dma_latency";

/// A limit. The kernel removes it when this value is dropped, or the process ends.
pub struct IdleStateLimit {
    _request: File,
}

impl IdleStateLimit {
    /// Requests that no idle state of any CPU takes longer than this to leave, us. 0: the CPUs poll.
    ///
    /// Fails without the device, or without the right to write to it.
    pub fn request(exit_max_us: u32) -> io::Result<IdleStateLimit> {
        let mut request = OpenOptions::new().write(true).open(DEVICE)?;
        request.write_all(&exit_max_us.cast_signed().to_ne_bytes())?;
        Ok(IdleStateLimit { _request: request })
    }
}
