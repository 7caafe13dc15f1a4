//! What a bench hands in.

use serde::{Deserialize, Serialize};

/// Whether a repetition counts, and why not. Known from counts of the kernel, not guessed from the
/// value.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
pub enum Verdict {
    /// It counts: the one interrupt came while lines were touched; in a control repetition, none did.
    Accepted,
    /// The interrupt did not come, or not while lines were touched (the paper's low outliers).
    NotInterrupted,
    /// Other interrupts came as well (the paper's high outliers).
    Contaminated,
    /// The loop was switched out, or had a page fault.
    Switched,
    /// The loop was stalled without an interrupt of this kernel, by the host or the firmware.
    Paused,
}

impl Verdict {
    /// All of them.
    pub const ALL: [Verdict; 5] = [
        Verdict::Accepted,
        Verdict::NotInterrupted,
        Verdict::Contaminated,
        Verdict::Switched,
        Verdict::Paused,
    ];

    /// Why it does not count, in words; `None` where it does.
    #[must_use]
    pub fn against(self) -> Option<&'static str> {
        Some(match self {
            Verdict::Accepted => return None,
            Verdict::NotInterrupted => "the interrupt did not come while lines were touched",
            Verdict::Contaminated => "other interrupts came, too",
            Verdict::Switched => "the loop was switched out, or had a page fault",
            Verdict::Paused => "the loop was stalled without an interrupt",
        })
    }
}

/// One repetition. Cycles are those of the clock whose frequency is [`super::Samples::clock_hz`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Repetition {
    /// Whether it counts.
    pub verdict: Verdict,
    /// How much longer touching all lines took after the interrupt than before it, cycles; can be
    /// negative by the clock's resolution.
    pub excess_cycles: Option<i64>,
    /// How long the interrupt stalled the loop, cycles.
    pub stalled_cycles: Option<u64>,
    /// Misses in user mode, from the first fill to the end.
    pub user_misses: Option<u64>,
    /// Misses in kernel mode.
    pub kernel_misses: Option<u64>,
    /// Its number among all windows of the bench, where something watches from outside.
    pub window: Option<u32>,
}
