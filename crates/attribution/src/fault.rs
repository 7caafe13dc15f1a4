//! Kinds of page faults, by the functions of the kernel that a fault reaches. The plugin classifies them; the numbers
//! are in the record, and the labels are in tables.

/// The kind of a page fault. A fault starts as [`FaultKind::Unclassified`]. A function that the fault reaches can only
/// raise its kind. The order of the variants is from the least to the most specific kind.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[repr(u8)]
pub enum FaultKind {
    /// The fault reached no function of the other kinds. An example is a fault at a kernel address.
    #[default]
    Unclassified = 0,
    /// First access to a page of memory that maps no file: the kernel maps a page of zeros.
    DemandZero = 1,
    /// The page is in memory: the kernel maps it without reading. It is a page of a file, a page that the kernel wants to
    /// swap out, or a page that the kernel is moving to another address.
    Minor = 2,
    /// The page is mapped and the access is allowed. The fault only updates bits of the page table entry, or another
    /// CPU has mapped the page in the meantime.
    Spurious = 3,
    /// A write to a write-protected page without other users: the kernel makes the page writable.
    Protection = 4,
    /// A write to a shared page: the kernel copies the page.
    CopyOnWrite = 5,
    /// The page of the file is not in memory: the kernel reads it.
    File = 6,
    /// The kernel reads the page from swap.
    Swap = 7,
    /// The access is not allowed: the task gets a signal, or its system call an error.
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

    /// The kind in tables.
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

    /// The kind with this number, or `None` if no kind has it.
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
