//! Kinds of page faults, by the functions of the kernel that a fault reaches.

/// The kind of a page fault. A fault starts as [`FaultKind::Unclassified`], and a function
/// that it reaches can only raise its kind: the order is from the least to the most specific.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[repr(u8)]
pub enum FaultKind {
    /// The fault reached none of the functions below, such as a fault in the kernel's own addresses.
    #[default]
    Unclassified = 0,
    /// Memory that maps no file gets its first page, filled with zeros.
    DemandZero = 1,
    /// A page of a file that is in memory is mapped: no read waits.
    Minor = 2,
    /// The page is there and may be accessed: the fault only updates bits of the entry, or another CPU
    /// has mapped it meanwhile.
    Spurious = 3,
    /// A write to a page that is write-protected and has no other user: it becomes writable.
    Protection = 4,
    /// A write to a page that others share: it is copied.
    CopyOnWrite = 5,
    /// A page of a file is not in memory: it is read.
    File = 6,
    /// A page comes back from swap.
    Swap = 7,
    /// No access to this address is allowed: a signal, or an error of the system call.
    BadAddress = 8,
}

impl FaultKind {
    /// All kinds, by their numbers.
    pub const ALL: [FaultKind; 9] = [
        FaultKind::Unclassified,
        FaultKind::DemandZero,
        FaultKind::Minor,
        FaultKind::Spurious,
        FaultKind::Protection,
        FaultKind::CopyOnWrite,
        FaultKind::File,
        FaultKind::Swap,
        FaultKind::BadAddress,
    ];

    /// The name in tables.
    #[must_use]
    pub fn label(self) -> &'static str {
        match self {
            FaultKind::Unclassified => "other",
            FaultKind::DemandZero => "demand-zero",
            FaultKind::Minor => "minor",
            FaultKind::Spurious => "spurious",
            FaultKind::Protection => "protection",
            FaultKind::CopyOnWrite => "copy-on-write",
            FaultKind::File => "file",
            FaultKind::Swap => "swap",
            FaultKind::BadAddress => "bad address",
        }
    }

    #[must_use]
    pub fn of_number(number: u32) -> Option<FaultKind> {
        FaultKind::ALL.get(number as usize).copied()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_are_positions() {
        for (number, kind) in (0..).zip(FaultKind::ALL) {
            assert_eq!((kind as u32, FaultKind::of_number(number)), (number, Some(kind)));
        }
        assert_eq!(FaultKind::of_number(9), None);
    }
}
