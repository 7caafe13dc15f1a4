//! What a core asks of the memory, and what it is told of the accesses of a block.

/// An access to memory that an instruction has made. It lies in one page: one that lies in two is two
/// accesses.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Access {
    /// Virtual address of its first byte.
    pub virtual_address: u64,
    /// Physical address of its first byte; absent for a device.
    pub physical: Option<u64>,
    /// Which instruction of its block made it.
    pub instruction: u16,
    /// Length, bytes.
    pub bytes: u8,
    /// Whether it stores.
    pub write: bool,
}

/// Caches, TLBs and memory behind a core. Each access comes once, in the order of the program. Cycles
/// are when it begins; they may fall from one access to the next where a core executes out of order.
///
/// What is returned is how long an access waits beyond one that hits the first level, in cycles: zero
/// for a hit. A line that was asked for may be taken as there for those that come later, as the
/// core knows until when it waits for a line.
pub trait Memory {
    /// A line of instructions is fetched. Both addresses are those of its first byte.
    fn fetch(&mut self, virtual_address: u64, physical: u64, now_cycles: u64) -> u64;

    /// A load, of one line or more.
    fn load(&mut self, access: &Access, now_cycles: u64) -> u64;

    /// A store, of one line or more.
    fn store(&mut self, access: &Access, now_cycles: u64) -> u64;
}
