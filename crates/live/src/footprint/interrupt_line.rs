//! The lines of /proc/interrupts with which the kernel counts a stimulus.

/// The local timer's line.
pub const TICK: &str = "LOC";

/// The line of /proc/interrupts that counts the interrupt.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CountedAs {
    /// The line of that name.
    Line(&'static str),
    /// The numbered line of a device.
    Device,
    /// A device's line, or the line of the function call with which another CPU passes
    /// on an arriving packet.
    Arrival,
}

impl CountedAs {
    /// Whether the line with that label counts the interrupt.
    #[must_use]
    pub fn is(self, label: &str) -> bool {
        match self {
            CountedAs::Line(line) => label == line,
            CountedAs::Device => label.parse::<u32>().is_ok(),
            CountedAs::Arrival => label == "CAL" || label.parse::<u32>().is_ok(),
        }
    }
}
