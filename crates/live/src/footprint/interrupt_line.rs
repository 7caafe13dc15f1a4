//! The lines of /proc/interrupts that count the interrupts of a stimulus: all lines that may count them, and the lines that
//! a trial found.

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
    /// Whether several devices have such lines.
    #[must_use]
    pub fn is_shared_with_other_devices(self) -> bool {
        !matches!(self, CountedAs::Line(_))
    }
}

/// The labels of the lines that count a stimulus's interrupts of the loop's CPU. At least one.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StimulusLines(Vec<String>);

impl StimulusLines {
    /// `None` without a label.
    #[must_use]
    pub fn new(labels: impl IntoIterator<Item = String>) -> Option<StimulusLines> {
        let labels: Vec<String> = labels.into_iter().collect();
        (!labels.is_empty()).then_some(StimulusLines(labels))
    }

    /// Whether the line with this label is one of them.
    #[must_use]
    pub fn contain(&self, label: &str) -> bool {
        self.0.iter().any(|line| line == label)
    }

    /// Whether the local timer's line is one of them. This line also counts ticks.
    #[must_use]
    pub fn count_ticks(&self) -> bool {
        self.contain(TICK)
    }
}
