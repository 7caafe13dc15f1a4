//! What is measured, and how: levels, stimuli, methods.

use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Serialize};

/// A cache, or a translation buffer.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
pub enum Level {
    /// First-level data cache.
    L1d,
    /// First-level instruction cache.
    L1i,
    /// Second-level cache.
    L2,
    /// Third-level cache.
    L3,
    /// Data translation buffer, first level.
    Dtlb,
    /// Instruction translation buffer, first level.
    Itlb,
}

/// What raises the interrupt.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
pub enum Stimulus {
    /// A timer that expires on the loop's CPU, with nobody waiting for it.
    Timer,
    /// A function-call interrupt from another CPU.
    Ipi,
    /// An asynchronous read of 16 bytes that completes.
    Disk,
    /// The same, and an eventfd reports the completion.
    DiskEvent,
    /// A short TCP message that comes in.
    Net,
    /// The same, and a signal notifies the loop.
    NetSignal,
}

/// The two methods of the paper's Figure 1.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
pub enum Method {
    /// Fill, wait, touch once more.
    Basic,
    /// Touch all lines repeatedly until the interrupt must have happened.
    Refined,
}

macro_rules! words {
    ($of:ident, $what:literal: $($variant:ident = $word:literal),+ $(,)?) => {
        impl $of {
            /// All of them.
            pub const ALL: &'static [$of] = &[$($of::$variant),+];

            /// As it is typed, and as the tables have it.
            #[must_use]
            pub fn word(self) -> &'static str {
                match self { $($of::$variant => $word),+ }
            }
        }

        impl fmt::Display for $of {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str(self.word())
            }
        }

        impl FromStr for $of {
            type Err = String;

            fn from_str(text: &str) -> Result<Self, String> {
                let found = Self::ALL.iter().find(|one| one.word() == text);
                found.copied().ok_or_else(|| {
                    let words: Vec<&str> = Self::ALL.iter().map(|one| one.word()).collect();
                    format!("no such {}; there are {}", $what, words.join(", "))
                })
            }
        }
    };
}

words!(Level, "level": L1d = "l1d", L1i = "l1i", L2 = "l2", L3 = "l3", Dtlb = "dtlb", Itlb = "itlb");
words!(Stimulus, "stimulus": Timer = "timer", Ipi = "ipi", Disk = "disk", DiskEvent = "disk-event",
    Net = "net", NetSignal = "net-signal");
words!(Method, "method": Basic = "basic", Refined = "refined");

impl Level {
    /// Whether instructions fill it.
    #[must_use]
    pub fn is_code(self) -> bool {
        matches!(self, Level::L1i | Level::Itlb)
    }

    /// Whether it holds translations of pages.
    #[must_use]
    pub fn is_tlb(self) -> bool {
        matches!(self, Level::Dtlb | Level::Itlb)
    }
}

/// How large a level is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Geometry {
    /// Size in bytes; of a TLB: its entries times `line_bytes`.
    pub size_bytes: u64,
    /// A line; of a TLB: a page.
    pub line_bytes: u32,
    /// Lines of a set.
    pub ways: u32,
}

impl Geometry {
    /// Lines, or entries.
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
        assert!("l4".parse::<Level>().unwrap_err().contains("l1d, l1i"));
    }
}
