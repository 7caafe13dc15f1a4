//! The lines of /proc/interrupts in which the kernel counts the interrupts of a stimulus.

/// The local timer's line.
pub const TICK: &str = "LOC";

/// The lines of /proc/interrupts that may count the interrupt of a stimulus.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CountedAs {
    /// The line with this label.
    Line(&'static str),
    /// Any numbered line: a device's interrupt.
    Device,
    /// A numbered line, or the line of function calls (`CAL`): another CPU may take the device's interrupt and steer
    /// the packet to this CPU.
    Arrival,
}

impl CountedAs {
    /// Whether the line with this label counts the interrupt.
    #[must_use]
    pub fn is(self, label: &str) -> bool {
        match self {
            CountedAs::Line(line) => label == line,
            CountedAs::Device => label.parse::<u32>().is_ok(),
            CountedAs::Arrival => label == "CAL" || label.parse::<u32>().is_ok(),
        }
    }
}
