//! One repetition, as a bench reports it. The names of variants and fields are a wire format (`in_guest.rs`).

use serde::{Deserialize, Serialize};

/// Whether a repetition counts, or why it does not. The verdict comes from the kernel's counts of interrupts, context
/// switches and page faults. The measured extra time does not influence the verdict.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
pub enum Verdict {
    /// The repetition counts. In a treatment repetition, exactly one interrupt came while the loop touched lines. In
    /// a control repetition, no interrupt came.
    Accepted,
    /// The interrupt did not come while the loop touched lines (the paper's low outliers).
    NotInterrupted,
    /// The interrupt was due while the loop touched lines, but was too short for the loop to detect.
    Unseen,
    /// Other interrupts came, too (the paper's high outliers).
    Contaminated,
    /// The loop was switched out, or had a page fault.
    Switched,
    /// The loop was stalled without an interrupt of this kernel, by the host or the firmware.
    Paused,
}

impl Verdict {
    pub const ALL: [Verdict; 6] = [
        Verdict::Accepted,
        Verdict::NotInterrupted,
        Verdict::Unseen,
        Verdict::Contaminated,
        Verdict::Switched,
        Verdict::Paused,
    ];

    /// Why a repetition with this verdict does not count, in words. `None` if it counts.
    #[must_use]
    pub fn against(self) -> Option<&'static str> {
        Some(match self {
            Verdict::Accepted => return None,
            Verdict::NotInterrupted => "the interrupt did not come while lines were touched",
            Verdict::Unseen => "the interrupt was too short to be seen",
            Verdict::Contaminated => "other interrupts came, too",
            Verdict::Switched => "the loop was switched out, or had a page fault",
            Verdict::Paused => "the loop was stalled without an interrupt",
        })
    }
}

/// One repetition. Its cycles are periods of the clock with the frequency [`super::Samples::clock_hz`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Repetition {
    pub verdict: Verdict,
    /// Duration of the pass over all lines after the interrupt, minus the duration of a pass before the interrupt,
    /// cycles. The clock's resolution can make the difference negative. `None` if the repetition was not timed.
    pub excess_cycles: Option<i64>,
    /// How long the interrupt stalled the loop, without the usual time of the interrupted chunk, cycles.
    pub stalled_cycles: Option<u64>,
    /// Misses in user mode in the window. `None` without counters.
    pub user_misses: Option<u64>,
    /// Misses in kernel mode in the window. `None` without counters.
    pub kernel_misses: Option<u64>,
    /// Number of the window among all windows of the bench, from 0. `None` unless a simulator observes the windows.
    pub window: Option<u32>,
}
