//! Records of caches beside: what other machines' caches would have missed.

/// For whom caches beside are asked.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Group {
    /// User mode.
    User = 0,
    /// The kernel, but for the idle task.
    Kernel = 1,
    /// The idle task, without the interrupts that it takes.
    Idle = 2,
}

impl Group {
    /// All of them, in the order of their numbers.
    pub const ALL: [Group; 3] = [Group::User, Group::Kernel, Group::Idle];
}

/// What is asked for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Stream {
    /// Lines of instructions.
    Instructions = 0,
    /// Loads and stores.
    Data = 1,
}

/// A row of caches beside, of all CPUs together.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Beside {
    /// The region.
    pub region: u32,
    /// Which of the models, from 0 in the order in which they were asked for.
    pub model: u32,
    /// For whom.
    pub group: Group,
    /// Bit N is set if counter N is one that these caches have.
    pub counters: u32,
}

/// A point of a curve: a fully associative cache under LRU, of all CPUs together.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Curve {
    /// The region.
    pub region: u32,
    /// For whom.
    pub group: Group,
    /// What is asked for.
    pub stream: Stream,
    /// The size of the cache.
    pub size_bytes: u64,
    /// How often it was asked.
    pub accesses: u64,
    /// How often it had not what was asked for.
    pub misses: u64,
}
