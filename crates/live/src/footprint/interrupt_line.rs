//! The lines of /proc/interrupts by which the kernel counts a stimulus.

/// The local timer's line.
pub const TICK: &str = "LOC";

/// The line of /proc/interrupts that counts the interrupt.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CountedAs {
    /// The line of that name.
    Line(&'static str),
    /// The numbered line of a device.
    Device,
    /// A device's line, or the function call by which another CPU passes on an arriving packet.
    Arrival,
}

impl CountedAs {
    /// Whether it is the line of that label.
    #[must_use]
    pub fn is(self, label: &str) -> bool {
        match self {
            CountedAs::Line(line) => label == line,
            CountedAs::Device => label.parse::<u32>().is_ok(),
            CountedAs::Arrival => label == "CAL" || label.parse::<u32>().is_ok(),
        }
    }
}
