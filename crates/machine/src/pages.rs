//! [`Tlb`] and the translations themselves, without a search where a page is known.
//!
//! Both are emptied by a new generation instead of a pass over their entries: what is noted of a page
//! is marked with the generation in which it was noted.

use crate::model::{Replacement, TlbModel};
use crate::tlb::Tlb;

/// Mark of an entry that never held a page.
const EMPTY: u64 = u64::MAX;
/// A page is at least 1 KiB, so ten bits of a word are free beside its number.
const GENERATION_BITS: u32 = 10;
/// One less than fits, so that no mark is [`EMPTY`].
const GENERATIONS: u64 = (1 << GENERATION_BITS) - 1;
/// Places that are found by the low bits of a page's number.
const PLACES: usize = 1024;

/// Marks a page with the generation it is of.
#[inline(always)]
fn mark(page: u64, generation: u64) -> u64 {
    page << GENERATION_BITS | generation
}

#[inline(always)]
fn place(page: u64) -> usize {
    page as usize % PLACES
}

#[derive(Clone, Copy, Debug)]
struct Entry {
    mark: u64,
    /// When it was used last.
    used: u64,
}

const NEVER: Entry = Entry { mark: EMPTY, used: 0 };

/// A TLB with the hits and misses of [`Tlb`].
#[derive(Clone, Debug)]
pub(crate) struct Pages {
    /// Which entry a page was seen in last, at the place of the page: to be checked.
    hints: Box<[u16; PLACES]>,
    /// The entries of a set lie side by side, in no order. With another replacement than LRU there is
    /// one, which stays empty, so that each access goes on to `other`.
    entries: Box<[Entry]>,
    generation: u64,
    ways: usize,
    set_mask: u64,
    /// Replacement by order of use is the only fast one.
    other: Option<Tlb>,
}

impl Pages {
    /// An empty TLB of a model that was accepted.
    pub(crate) fn new(model: &TlbModel) -> Self {
        let other = (model.replacement != Replacement::Lru).then(|| Tlb::new(model));
        let (entries, ways) = match other {
            Some(_) => (1, 1),
            None => (model.entries as usize, model.ways as usize),
        };
        Pages {
            hints: Box::new([0; PLACES]),
            entries: vec![NEVER; entries].into(),
            generation: 0,
            ways,
            set_mask: (entries / ways) as u64 - 1,
            other,
        }
    }

    /// Whether `page` is where it was seen last; if so it is used. If not, [`Pages::access`] has to be
    /// asked. `now` is a number that grows with each access.
    #[inline(always)]
    pub(crate) fn again(&mut self, page: u64, now: u64) -> bool {
        let hint = usize::from(self.hints[place(page)]);
        match self.entries.get_mut(hint) {
            Some(entry) if entry.mark == mark(page, self.generation) => {
                entry.used = now;
                true
            }
            _ => false,
        }
    }

    /// As [`Tlb::access`].
    #[inline(never)]
    pub(crate) fn access(&mut self, page: u64, now: u64) -> bool {
        if let Some(other) = &mut self.other {
            return other.access(page);
        }
        let first = (page & self.set_mask) as usize * self.ways;
        let set = &mut self.entries[first..first + self.ways];
        let mark = mark(page, self.generation);
        let held = set.iter().position(|entry| entry.mark == mark);
        let way = held.unwrap_or_else(|| oldest(set));
        set[way] = Entry { mark, used: now };
        // A model has at most 2^16 entries.
        self.hints[place(page)] = (first + way) as u16;
        held.is_some()
    }

    /// Forgets all pages. Those of older generations were used before any of this one, so they leave
    /// first, as empty entries do.
    pub(crate) fn flush(&mut self) {
        if let Some(other) = &mut self.other {
            other.flush();
        }
        self.generation += 1;
        if self.generation == GENERATIONS {
            self.entries.fill(NEVER);
            self.generation = 0;
        }
    }
}

/// The entry of `set` that was not used for longest.
fn oldest(set: &[Entry]) -> usize {
    let (mut oldest, mut used) = (0, u64::MAX);
    for (at, entry) in set.iter().enumerate() {
        if entry.used < used {
            (oldest, used) = (at, entry.used);
        }
    }
    oldest
}

/// Pages of the guest are not shorter, so that an address is translated with its page.
const GUEST_PAGE_SHIFT: u32 = 12;
const IN_PAGE: u64 = (1 << GUEST_PAGE_SHIFT) - 1;

#[derive(Clone, Copy, Debug)]
struct Translation {
    mark: u64,
    /// Physical address of the page.
    physical: u64,
}

const NO_TRANSLATION: Translation = Translation { mark: EMPTY, physical: 0 };

/// Where pages of the guest lie. Which are remembered has no bearing on any count.
#[derive(Clone, Debug)]
pub(crate) struct Translations {
    places: Box<[Translation; PLACES]>,
    generation: u64,
}

impl Translations {
    /// Knows nothing.
    pub(crate) fn new() -> Self {
        Translations { places: Box::new([NO_TRANSLATION; PLACES]), generation: 0 }
    }

    /// The physical address of `virtual_address`, if its page is known.
    #[inline(always)]
    pub(crate) fn get(&self, virtual_address: u64) -> Option<u64> {
        let page = virtual_address >> GUEST_PAGE_SHIFT;
        let known = &self.places[place(page)];
        (known.mark == mark(page, self.generation))
            .then(|| known.physical | virtual_address & IN_PAGE)
    }

    /// Remembers the page of an address.
    pub(crate) fn put(&mut self, virtual_address: u64, physical: u64) {
        let page = virtual_address >> GUEST_PAGE_SHIFT;
        self.places[place(page)] =
            Translation { mark: mark(page, self.generation), physical: physical & !IN_PAGE };
    }

    /// Forgets all.
    pub(crate) fn flush(&mut self) {
        self.generation += 1;
        if self.generation == GENERATIONS {
            self.places.fill(NO_TRANSLATION);
            self.generation = 0;
        }
    }
}
