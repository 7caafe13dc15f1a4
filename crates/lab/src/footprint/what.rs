//! Levels, stimuli and methods of the experiment `footprint`. Their words are options of the command line and cells of
//! tables. The names of variants and fields are a wire format (`in_guest.rs`).

use serde::{Deserialize, Serialize};

use crate::words::words_of;

/// A cache, or a translation lookaside buffer (TLB).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
pub enum Level {
    /// First-level data cache.
    L1d,
    /// First-level instruction cache.
    L1i,
    L2,
    L3,
    /// First-level data TLB.
    Dtlb,
    /// First-level instruction TLB.
    Itlb,
}

/// The event that raises the interrupt.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
pub enum Stimulus {
    /// A timer that expires on the loop's CPU. No task waits for it.
    Timer,
    /// A function-call interrupt (IPI) that another CPU sends.
    Ipi,
    /// The completion of an asynchronous read of 16 bytes.
    Disk,
    /// Like [`Stimulus::Disk`]; in addition, an eventfd reports the completion.
    DiskEvent,
    /// The arrival of a short TCP message.
    Net,
    /// Like [`Stimulus::Net`]; in addition, a signal notifies the loop.
    NetSignal,
}

/// The two methods of the paper's Figure 1.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
pub enum Method {
    /// Fill the level, wait for the interrupt, touch all lines once.
    Basic,
    /// Touch all lines repeatedly, until the interrupt must have happened.
    Refined,
}

words_of!(Level, "level": L1d = "l1d", L1i = "l1i", L2 = "l2", L3 = "l3", Dtlb = "dtlb", Itlb = "itlb");
words_of!(Stimulus, "stimulus": Timer = "timer", Ipi = "ipi", Disk = "disk", DiskEvent = "disk-event",
    Net = "net", NetSignal = "net-signal");
words_of!(Method, "method": Basic = "basic", Refined = "refined");

impl Level {
    /// Whether instructions fill the level.
    #[must_use]
    pub fn is_code(self) -> bool {
        matches!(self, Level::L1i | Level::Itlb)
    }

    /// Whether the level holds translations of pages.
    #[must_use]
    pub fn is_tlb(self) -> bool {
        matches!(self, Level::Dtlb | Level::Itlb)
    }
}

/// Size and organization of a level.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Geometry {
    /// Size in bytes. For a TLB: its number of entries times `line_bytes`.
    pub size_bytes: u64,
    /// Size of a line. For a TLB: size of a page.
    pub line_bytes: u32,
    /// Associativity: lines in each set.
    pub ways: u32,
}

impl Geometry {
    /// Number of lines. For a TLB: number of entries.
    #[must_use]
    pub fn lines(self) -> u64 {
        self.size_bytes / u64::from(self.line_bytes.max(1))
    }

    #[must_use]
    pub fn sets(self) -> u64 {
        self.lines() / u64::from(self.ways.max(1))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn words_are_read_back() {
        for level in Level::ALL {
            assert_eq!(level.word().parse(), Ok(*level));
        }
        for stimulus in Stimulus::ALL {
            assert_eq!(stimulus.to_string().parse(), Ok(*stimulus));
        }
        assert!("l4".parse::<Level>().unwrap_err().allowed.contains("l1d, l1i"));
    }
}
