//! The kinds of the kernel's locks. The numbers are in the record, and the labels are in tables.

/// A kind of lock, and for reader-writer locks the side that is taken.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[repr(u8)]
pub enum LockKind {
    Spin = 0,
    /// A spinning reader-writer lock, taken to read.
    SpinRead = 1,
    /// A spinning reader-writer lock, taken to write.
    SpinWrite = 2,
    Mutex = 3,
    /// A reader-writer semaphore, taken to read.
    SemaphoreRead = 4,
    /// A reader-writer semaphore, taken to write.
    SemaphoreWrite = 5,
}

impl LockKind {
    /// All kinds, by their numbers.
    pub const ALL: [LockKind; 6] = [
        LockKind::Spin,
        LockKind::SpinRead,
        LockKind::SpinWrite,
        LockKind::Mutex,
        LockKind::SemaphoreRead,
        LockKind::SemaphoreWrite,
    ];

    /// The kind in tables.
    #[must_use]
    pub fn label(self) -> &'static str {
        match self {
            LockKind::Spin => "spin lock",
            LockKind::SpinRead => "rwlock read",
            LockKind::SpinWrite => "rwlock write",
            LockKind::Mutex => "mutex",
            LockKind::SemaphoreRead => "rwsem read",
            LockKind::SemaphoreWrite => "rwsem write",
        }
    }

    /// The kind with this number, or `None` if no kind has it.
    #[must_use]
    pub fn of_number(number: u32) -> Option<LockKind> {
        LockKind::ALL.get(number as usize).copied()
    }

    /// Whether several tasks can hold the lock at the same time.
    pub(crate) fn is_shared(self) -> bool {
        matches!(self, LockKind::SpinRead | LockKind::SemaphoreRead)
    }

    /// Whether a task that waits for the lock may leave the CPU.
    #[must_use]
    pub fn sleeps(self) -> bool {
        !matches!(self, LockKind::Spin | LockKind::SpinRead | LockKind::SpinWrite)
    }
}
