//! The outcome of a lookup: a list of steps that say what an access found in caches and TLBs.
//!
//! [`Tags`](super::tags::Tags) look up an access and write its [`Outcome`]. [`Times`](super::times::Times) apply the
//! steps in their order to compute how long the access waits. Nothing flows back: hits do not depend on times. A new
//! step needs its effect in `times`.

use super::translation::ThreadPage;
use crate::address::LineAddress;

/// A step of an access. Steps are pushed in the order of their effects on times.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Step {
    /// The access continues with its next line, which starts when the line before is ready.
    NextLine,

    /// The first TLB for data has the entry that holds this page. Its translation may still be under way.
    Page(ThreadPage),
    /// The first TLB missed, and the second TLB is looked up.
    SecondTlb,
    /// The second TLB has the entry that holds this page. Its translation may still be under way.
    SecondTlbHit(ThreadPage),
    /// The TLBs missed. The following steps up to `EndWalk` load page table entries.
    StartWalk,
    /// A page table entry is loaded from this line of L1D. The line may still be under way.
    TableHit(LineAddress),
    EndWalk {
        is_fetch: bool,
    },
    /// The walk fills the entry of the second TLB that holds this page: a page of `1 << held_shift` bytes.
    IntoSecondTlb {
        page: ThreadPage,
        held_shift: u8,
    },
    /// The translation of this page of data is complete. Later accesses to the whole entry of the first TLB wait for
    /// the translation. The entry is a page of `1 << held_shift` bytes.
    Translated {
        page: ThreadPage,
        held_shift: u8,
    },

    /// L1D holds the line, which may still be under way.
    Hit(LineAddress),
    /// L1I holds the line, which may still be under way.
    CodeHit(LineAddress),
    /// The access is ready when it is translated. Later steps of combining buffers may delay it.
    Posted,
    /// L1D holds the line, and the core waits for the right to write it.
    Upgrade,

    /// A fill starts; it lasts until the matching `Filled`.
    Fill(FillStart),
    /// A level below L1 supplies the line of the fill. `level`: 0 for L2. `line` counts lines of the level's own size.
    FromLevel {
        level: u8,
        line: LineAddress,
    },
    /// Another core supplies the line of the fill.
    FromCore,
    /// Memory supplies the line of the fill, over the bus.
    FromMemory {
        is_prefetch: bool,
    },
    /// The fill waits for the right to write the line.
    FillUpgrade,
    /// The fill also fills a level below L1. `level` and `line` are as for `FromLevel`.
    IntoLevel {
        level: u8,
        line: LineAddress,
    },
    /// The fill ends: the line, or the access, is ready as [`FillEnd`] says.
    Filled(FillEnd),
    /// The line of the last fill goes into L1D for a load or store. It takes an MSHR until it is filled.
    IntoL1d(LineAddress),
    /// A line is written to memory. Its transfer starts no earlier than the processor's last fill, even if an earlier
    /// access made that fill.
    WriteBack,
    /// The kept misses of the classifier with numbers `first` to before `end` belong to the current line. They get its
    /// wait.
    Missed {
        first: u32,
        end: u32,
    },

    /// A load or store of a device. `is_local`: of the local APIC.
    Device {
        is_local: bool,
        is_store: bool,
    },
    /// A non-temporal store joins the line of the combining buffer with this number.
    Combine(u8),
    /// A line gets a combining buffer. `writes`: the buffer's previous line was incomplete and is written now.
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
    /// When the access started, even if it is not translated yet.
    Asked,
    /// When L1D was looked up for a page table entry.
    TableMissed,
    /// With the enclosing fill.
    WithOuter,
}

/// The waiter for a fill.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum FillEnd {
    /// The load or store.
    Access,
    /// The fetch, and later fetches of this line of L1I.
    Code(LineAddress),
    /// The page walk, and later accesses to this line of L1D.
    Walk(LineAddress),
    /// Only later accesses to this line, which is prefetched into L1D.
    DataPrefetch(LineAddress),
    /// Only later fetches of this line, which is prefetched into L1I.
    CodePrefetch(LineAddress),
    /// Nothing in L1: the fill ends in levels below.
    Below,
}

/// The steps of the last access.
#[derive(Clone, Debug, Default)]
pub(super) struct Outcome {
    /// Empty for the common case: a hit that waits at most for its line and its page, if they are under way.
    steps: Vec<Step>,
}

impl Outcome {
    pub(super) fn steps(&self) -> &[Step] {
        &self.steps
    }

    /// Starts the steps of an access.
    #[inline]
    pub(super) fn start(&mut self) {
        self.steps.clear();
    }

    #[inline]
    pub(super) fn push(&mut self, step: Step) {
        self.steps.push(step);
    }

    /// Ends the steps of an access. The steps of a common hit are dropped: `times` has a faster path for them.
    #[inline]
    pub(super) fn end(&mut self) {
        if is_hit_at_once(&self.steps) {
            self.steps.clear();
        }
    }
}

/// Whether an access with these steps can wait only for its line and its page.
fn is_hit_at_once(steps: &[Step]) -> bool {
    matches!(steps, [Step::Page(_), Step::Hit(_)] | [Step::CodeHit(_)])
}
