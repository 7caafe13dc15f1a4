//! What an access found in caches and TLBs, for the computation of its time.
//!
//! [`Tags`](super::tags::Tags) look an access up, and write its [`Outcome`]. [`Times`](super::times::Times) read it, and
//! say how long the access waits. Nothing flows back: what hits does not depend on times.

use super::translation::ThreadPage;
use crate::address::LineAddress;

/// A step of an access, in the order of their effects on what accesses wait for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Step {
    /// The next line of the access; it starts when the line before is ready.
    NextLine,

    /// The first TLB for data has this page.
    Page(ThreadPage),
    /// The first TLB missed; the second is looked up.
    SecondTlb,
    /// The TLBs missed.
    StartWalk,
    /// The page table entry in this line of L1D is loaded, which is there, or under way.
    TableHit(LineAddress),
    EndWalk {
        is_fetch: bool,
    },
    /// This page of data was translated.
    Translated(ThreadPage),

    /// L1D has the line.
    Hit(LineAddress),
    /// L1I has the line.
    CodeHit(LineAddress),
    /// The access is ready when it is translated. Later steps of combining buffers may delay it.
    Posted,
    /// L1D has the line; the core waits for the right to write it.
    Upgrade,

    /// A fill starts.
    Fill(FillStart),
    /// A level below L1, 0 for L2, supplies the line that is filled. `line` is in the level's line size.
    FromLevel {
        level: u8,
        line: LineAddress,
    },
    FromCore,
    FromMemory {
        is_prefetch: bool,
    },
    /// The fill waits for the right to write the line.
    FillUpgrade,
    /// The line that is filled comes into a level below L1, 0 for L2. `line` is in the level's line size.
    IntoLevel {
        level: u8,
        line: LineAddress,
    },
    /// The fill is over.
    Filled(FillEnd),
    /// L1D takes the line that was filled last, for a load or store, and an MSHR until it is filled.
    IntoL1d(LineAddress),
    /// A line is written to memory. Its transfer starts no earlier than the processor's last fill, of this access or of
    /// an earlier one.
    WriteBack,
    /// The misses of these numbers, among those that are classified and kept, are of the current line.
    Missed {
        first: u32,
        end: u32,
    },

    Device {
        is_local: bool,
        is_store: bool,
    },
    /// A non-temporal store joins the line of a combining buffer.
    Combine(u8),
    /// A line gets a combining buffer. `writes`: the buffer's line before was not complete and is written now.
    OpenCombining {
        buffer: u8,
        writes: bool,
    },
    /// The line of a combining buffer is complete and is written.
    CloseCombining(u8),
}

/// When a fill starts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum FillStart {
    /// When the access is translated.
    Translated,
    /// When an MSHR is free for the access.
    FreeMshr,
    /// When the access was made, translated or not.
    Asked,
    /// When L1D was looked up for a page table entry.
    TableMissed,
    /// With the fill that it is a part of.
    WithOuter,
}

/// Where a fill ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum FillEnd {
    /// In the access, which waits for it.
    Access,
    /// In L1I, which waits for this line.
    Code(LineAddress),
    /// In a page walk, which waits for this line of L1D.
    Walk(LineAddress),
    /// In L1D, which this line was prefetched into.
    DataPrefetch(LineAddress),
    /// In L1I, which this line was prefetched into.
    CodePrefetch(LineAddress),
    /// In levels below L1.
    Below,
}

/// What the last access has found.
#[derive(Clone, Debug, Default)]
pub(super) struct Outcome {
    /// Empty for a hit at once, which waits only for its line and its page, if they are under way.
    steps: Vec<Step>,
}

impl Outcome {
    pub(super) fn steps(&self) -> &[Step] {
        &self.steps
    }

    /// An access starts.
    #[inline]
    pub(super) fn start(&mut self) {
        self.steps.clear();
    }

    #[inline]
    pub(super) fn push(&mut self, step: Step) {
        self.steps.push(step);
    }

    /// The access is over.
    #[inline]
    pub(super) fn end(&mut self) {
        if is_hit_at_once(&self.steps) {
            self.steps.clear();
        }
    }
}

/// Whether an access of these steps waits for nothing but lines and pages that are under way.
fn is_hit_at_once(steps: &[Step]) -> bool {
    matches!(steps, [Step::Page(_), Step::Hit(_)] | [Step::CodeHit(_)])
}
