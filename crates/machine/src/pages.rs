//! [`Tlb`], and where pages lie, without a search for a page that is known.
//!
//! All is forgotten by a new generation instead of a pass over the entries: what is noted of a page is
//! marked with the generation in which it was noted.

use crate::model::{Replacement, TlbModel};
use crate::tlb::Tlb;

/// Pages of the guest are not shorter. Those of a model are not either.
const GUEST_PAGE_SHIFT: u32 = 12;
const IN_GUEST_PAGE: u64 = (1 << GUEST_PAGE_SHIFT) - 1;
/// A mark is the address of a page plus the generation, which has to be less than a page. One value
/// is left out, so that nothing is [`UNMARKED`].
const GENERATIONS: u64 = IN_GUEST_PAGE;
const UNMARKED: u64 = u64::MAX;
/// Places that are found by the low bits of a page's number.
const PLACES: usize = 1024;

/// A page of the model in its TLB.
#[derive(Clone, Copy, Debug)]
struct Entry {
    mark: u64,
    /// When it was used last.
    used: u64,
}

const NEVER: Entry = Entry { mark: UNMARKED, used: 0 };

/// What is known of a page of the guest.
#[derive(Clone, Copy, Debug)]
#[repr(align(32))]
struct Place {
    mark: u64,
    /// What leads from a virtual address to the physical one, wrapping.
    distance: u64,
    /// The entry of the TLB that had it last: to be checked.
    entry: u32,
}

const NOWHERE: Place = Place { mark: UNMARKED, distance: 0, entry: 0 };

/// Outcome of [`Pages::access`].
pub(crate) struct Found {
    /// Whether the page was in the TLB.
    pub(crate) hit: bool,
    /// Its entry now.
    entry: u32,
}

/// A TLB with the hits and misses of [`Tlb`], and the translations themselves. Which of these are
/// known has no bearing on hits and misses.
#[derive(Clone, Debug)]
pub(crate) struct Pages {
    places: Box<[Place; PLACES]>,
    /// The entries of a set lie side by side, in no order. With another replacement than LRU there is
    /// one, which stays empty, so that each access goes on to `other`.
    entries: Box<[Entry]>,
    generation: u64,
    /// Address bits of a page of the model.
    page_mask: u64,
    page_shift: u32,
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
            places: Box::new([NOWHERE; PLACES]),
            entries: vec![NEVER; entries].into(),
            generation: 0,
            page_mask: !(model.page_bytes - 1),
            page_shift: model.page_bytes.ilog2(),
            ways,
            set_mask: (entries / ways) as u64 - 1,
            other,
        }
    }

    /// The physical address of `virtual_address`, if its page is known and in the entry of the TLB
    /// that had it last; that one is used. If not, [`Pages::access`] has to be asked. `now` is a number
    /// that grows from access to access.
    #[inline(always)]
    pub(crate) fn again(&mut self, virtual_address: u64, now: u64) -> Option<u64> {
        let place = &self.places[place_of(virtual_address)];
        if place.mark != virtual_address & !IN_GUEST_PAGE | self.generation {
            return None;
        }
        let entry = self.entries.get_mut(place.entry as usize)?;
        if entry.mark != virtual_address & self.page_mask | self.generation {
            return None;
        }
        entry.used = now;
        Some(virtual_address.wrapping_add(place.distance))
    }

    /// As [`Tlb::access`].
    pub(crate) fn access(&mut self, virtual_address: u64, now: u64) -> Found {
        let page = virtual_address >> self.page_shift;
        if let Some(other) = &mut self.other {
            return Found { hit: other.access(page), entry: 0 };
        }
        let first = (page & self.set_mask) as usize * self.ways;
        let set = &mut self.entries[first..first + self.ways];
        let mark = virtual_address & self.page_mask | self.generation;
        let held = set.iter().position(|entry| entry.mark == mark);
        let way = held.unwrap_or_else(|| oldest(set));
        set[way] = Entry { mark, used: now };
        Found { hit: held.is_some(), entry: (first + way) as u32 }
    }

    /// The physical address of `virtual_address`, if its page is known.
    pub(crate) fn translate(&self, virtual_address: u64) -> Option<u64> {
        let place = &self.places[place_of(virtual_address)];
        (place.mark == virtual_address & !IN_GUEST_PAGE | self.generation)
            .then(|| virtual_address.wrapping_add(place.distance))
    }

    /// Remembers where the page of an address lies, and where it was found.
    pub(crate) fn remember(&mut self, virtual_address: u64, physical: u64, found: &Found) {
        self.places[place_of(virtual_address)] = Place {
            mark: virtual_address & !IN_GUEST_PAGE | self.generation,
            distance: physical.wrapping_sub(virtual_address),
            entry: found.entry,
        };
    }

    /// Forgets all pages. Entries of older generations were used before any of this one, so they leave
    /// first, as empty ones do.
    pub(crate) fn flush(&mut self) {
        if let Some(other) = &mut self.other {
            other.flush();
        }
        self.generation += 1;
        if self.generation == GENERATIONS {
            self.entries.fill(NEVER);
            self.places.fill(NOWHERE);
            self.generation = 0;
        }
    }
}

#[inline(always)]
fn place_of(virtual_address: u64) -> usize {
    (virtual_address >> GUEST_PAGE_SHIFT) as usize % PLACES
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
