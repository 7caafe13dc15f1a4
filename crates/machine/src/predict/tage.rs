//! TAGE: tagged tables with geometric history lengths over a bimodal table (Seznec and Michaud,
//! "A case for (partially) TAgged GEometric history length branch prediction", 2006).

use super::PredictedDirection;
use super::counters::Counters;
use super::model::{HISTORY_MAX, TABLES_MAX, TageModel};

/// Number of branches after which all usefulness counters are halved.
const FORGET_EVERY: u64 = 1 << 18;
/// Tagged counters have three bits: a branch is predicted taken from 4 on.
const TAKEN: u8 = 4;

/// Whether each of the last branches was taken: a byte each, which is found without a shift.
#[derive(Clone, Debug)]
struct History {
    taken: [bool; HISTORY_MAX],
    newest: usize,
}

impl History {
    fn new() -> History {
        History { taken: [false; HISTORY_MAX], newest: 0 }
    }

    /// The outcome of the branch that came `ago` branches, less than [`HISTORY_MAX`], before the most
    /// recent one.
    #[inline(always)]
    fn taken(&self, ago: usize) -> u64 {
        u64::from(self.taken[self.newest.wrapping_sub(ago) % HISTORY_MAX])
    }

    #[inline(always)]
    fn push(&mut self, taken: bool) {
        self.newest = (self.newest + 1) % HISTORY_MAX;
        self.taken[self.newest] = taken;
    }
}

/// Where each of three numbers starts in a word, with at least one bit between them.
const PLACES: [u32; 3] = [0, 21, 38];
/// The lowest bit of each number.
const LOWEST: u64 = 1 << PLACES[0] | 1 << PLACES[1] | 1 << PLACES[2];

/// Folded histories of several lengths: a history is cut into pieces of some width, which are
/// XORed. Each length has one word with its folds of three widths, and is updated in constant time
/// per branch.
#[derive(Clone, Debug)]
struct Folded {
    /// The words, one for each table.
    values: [u64; TABLES_MAX],
    /// For each, the bit in each number of the branch that leaves the history.
    leaves: [u64; TABLES_MAX],
    /// For each, the length of its history less one.
    last: [u16; TABLES_MAX],
    widths: [u32; 3],
    mask: u64,
}

impl Folded {
    fn new(lengths: &[u32], widths: [u32; 3]) -> Folded {
        let mask = widths.iter().zip(PLACES).map(|(width, place)| ((1 << width) - 1) << place);
        let mut folded = Folded {
            values: [0; TABLES_MAX],
            leaves: [0; TABLES_MAX],
            last: [0; TABLES_MAX],
            widths,
            mask: mask.sum(),
        };
        for (at, length) in lengths.iter().enumerate() {
            let places = widths.iter().zip(PLACES);
            folded.leaves[at] = places.map(|(width, place)| 1 << (length % width) << place).sum();
            folded.last[at] = (length - 1) as u16;
        }
        folded
    }

    /// Enters a branch into the folds of the first `number` lengths.
    #[inline(always)]
    fn push(&mut self, number: usize, history: &History, taken: bool) {
        let enters = LOWEST & u64::from(taken).wrapping_neg();
        let [first, second, third] = self.widths;
        for at in 0..number.min(TABLES_MAX) {
            let leaves = self.leaves[at] & history.taken(self.last[at].into()).wrapping_neg();
            let turned = (self.values[at] << 1 | enters) ^ leaves;
            // Bits that are shifted out of a number come in again at its other end.
            let out = (turned >> first & 1 << PLACES[0])
                ^ (turned >> second & 1 << PLACES[1])
                ^ (turned >> third & 1 << PLACES[2]);
            self.values[at] = (turned ^ out) & self.mask;
        }
    }
}

#[derive(Clone, Copy, Debug, Default)]
struct Entry {
    tag: u16,
    counter: u8,
    useful: u8,
}

/// The result of looking a branch up in the tagged tables.
#[derive(Clone, Copy)]
struct Found {
    table: usize,
    taken: bool,
}

#[derive(Clone, Debug)]
pub(super) struct Tage {
    base: Counters,
    /// For each counter of the base whether a branch that uses it was taken; empty where all branches enter
    /// the history.
    was_taken: Box<[bool]>,
    /// The entries of all tables, one table after the other. Tags have their lowest bit set, which
    /// no empty entry has.
    entries: Box<[Entry]>,
    tables: usize,
    /// For each table the bits of an index.
    index_masks: [u32; TABLES_MAX],
    /// How many entries are allocated at a time.
    allocated: u32,
    learns_weak: bool,
    folded: Folded,
    history: History,
    /// From 8 on, the alternate prediction is used in place of a new entry's.
    use_alternate: u8,
    branches: u64,
}

/// The history lengths of a model's tables, in geometric steps from the first to the last, and each
/// at least one longer than the one before.
fn lengths(model: &TageModel) -> Vec<u32> {
    let steps = f64::from(model.tables - 1).max(1.0);
    let ratio = f64::from(model.history_max) / f64::from(model.history_min);
    let mut lengths: Vec<u32> = Vec::new();
    for table in 0..model.tables {
        let exact = f64::from(model.history_min) * ratio.powf(f64::from(table) / steps);
        let length_min = lengths.last().map_or(model.history_min, |last| last + 1);
        // Leaves room for the lengths that follow.
        let length_max = model.history_max - (model.tables - 1 - table);
        lengths.push((exact.round() as u32).clamp(length_min, length_max));
    }
    lengths
}

impl Tage {
    pub(super) fn new(model: &TageModel) -> Tage {
        let (tables, table_entries) = (model.tables as usize, model.table_entries as usize);
        let widths = [model.table_entries.ilog2(), model.tag_bits, model.tag_bits - 1];
        let long = model.long_table_entries.unwrap_or(model.table_entries);
        let entries_of =
            |table| if table < tables.div_ceil(2) { model.table_entries } else { long };
        let knows = if model.history_of_taken { model.base_entries as usize } else { 0 };
        Tage {
            base: Counters::new(model.base_entries as usize),
            was_taken: vec![false; knows].into(),
            entries: vec![Entry::default(); tables * table_entries].into(),
            tables,
            index_masks: std::array::from_fn(|table| entries_of(table) - 1),
            allocated: model.allocated,
            learns_weak: model.learns_weak,
            folded: Folded::new(&lengths(model), widths),
            history: History::new(),
            use_alternate: 8,
            branches: 0,
        }
    }

    /// The number of tables, which is `TABLES` if that is less than the most: then a constant.
    #[inline(always)]
    fn known<const TABLES: usize>(&self) -> usize {
        if TABLES < TABLES_MAX { TABLES } else { self.tables }
    }

    /// For each of the `TABLES` tables, the index of an address's entry and its tag.
    #[inline(always)]
    fn places<const TABLES: usize>(&self, address: u64) -> [(usize, u16); TABLES] {
        let mut places = [(0, 0); TABLES];
        let widths = self.folded.widths;
        let address_index = address ^ address >> widths[0];
        let (tag_mask, table_entries) = ((1 << widths[1]) - 1, 1 << widths[0]);
        let mut first = 0;
        let values = self.folded.values.iter().zip(&self.index_masks);
        for ((value, mask), place) in values.zip(&mut places).take(self.known::<TABLES>()) {
            let number = |number: usize| value >> PLACES[number];
            let index = (address_index ^ number(0)) as u32 & mask;
            let tag = (address ^ number(1) ^ number(2) << 1) & tag_mask;
            *place = (first + index as usize, tag as u16 | 1);
            first += table_entries;
        }
        places
    }

    /// Trains the predictor. Returns the prediction before that. The faster prediction is that of the bimodal table.
    pub(super) fn step(&mut self, address: u64, taken: bool) -> PredictedDirection {
        // Loops over a known number of tables are unrolled.
        match self.tables {
            4 => self.step_in::<4>(address, taken),
            5 => self.step_in::<5>(address, taken),
            6 => self.step_in::<6>(address, taken),
            7 => self.step_in::<7>(address, taken),
            _ => self.step_in::<TABLES_MAX>(address, taken),
        }
    }

    /// [`Tage::step`] with a limit on the number of tables.
    #[inline(always)]
    fn step_in<const TABLES: usize>(&mut self, address: u64, taken: bool) -> PredictedDirection {
        if let Some(was_taken) = known_branch(&mut self.was_taken, address)
            && !*was_taken
        {
            // Nothing knew of the branch.
            *was_taken = taken;
            if taken {
                self.base.learn(address, true);
                self.remember::<TABLES>(true);
            }
            return PredictedDirection { is_taken: false, is_overruling: false };
        }
        let places = self.places::<TABLES>(address);
        // A bit for each table that hits.
        let mut known = 0u32;
        for (number, (at, tag)) in places.iter().enumerate().take(self.known::<TABLES>()) {
            known |= u32::from(self.entries[*at].tag == *tag) << number;
        }
        let found = |known: u32| {
            let table = known.checked_ilog2()? as usize;
            let taken = self.entries[places[table].0].counter >= TAKEN;
            Some(Found { table, taken })
        };
        let provider = found(known);
        let second = provider.and_then(|provider| found(known & !(1 << provider.table)));
        let base = self.base.predicts(address);
        let alternate = second.map_or(base, |found| found.taken);
        let predicted = provider.map_or(base, |found| {
            let entry = self.entries[places[found.table].0];
            if is_new(entry) && self.use_alternate >= 8 { alternate } else { found.taken }
        });
        let is_weak = self.learns_weak
            && match provider {
                Some(found) => is_weak(self.entries[places[found.table].0]),
                None => self.base.is_weak(address),
            };
        match provider {
            Some(found) => self.learn(found, places[found.table].0, alternate, taken),
            None => self.base.learn(address, taken),
        }
        // Even if only the new entry was right: it is being trained then.
        let provided = provider.map_or(base, |found| found.taken);
        if is_weak || predicted != taken && provided != taken {
            self.allocate(provider.map_or(0, |found| found.table + 1), &places, taken);
        }
        self.remember::<TABLES>(taken);
        PredictedDirection { is_taken: predicted, is_overruling: predicted != base }
    }

    fn learn(&mut self, found: Found, index: usize, alternate: bool, taken: bool) {
        let entry = &mut self.entries[index];
        if found.taken != alternate {
            let right = found.taken == taken;
            if is_new(*entry) {
                self.use_alternate = if right {
                    self.use_alternate.saturating_sub(1)
                } else {
                    (self.use_alternate + 1).min(15)
                };
            }
            entry.useful =
                if right { (entry.useful + 1).min(3) } else { entry.useful.saturating_sub(1) };
        }
        entry.counter =
            if taken { (entry.counter + 1).min(7) } else { entry.counter.saturating_sub(1) };
    }

    /// Allocates entries with longer histories, in the first tables whose entries are not useful.
    #[inline(never)]
    fn allocate(&mut self, from: usize, places: &[(usize, u16)], taken: bool) {
        let of_longer = &places[from..self.tables];
        let mut remaining = self.allocated;
        for (index, tag) in of_longer {
            let entry = &mut self.entries[*index];
            if entry.useful == 0 {
                *entry = Entry { tag: *tag, counter: TAKEN - u8::from(!taken), useful: 0 };
                remaining -= 1;
                if remaining == 0 {
                    return;
                }
            }
        }
        if remaining == self.allocated {
            for (at, _) in of_longer {
                self.entries[*at].useful -= 1;
            }
        }
    }

    #[inline(always)]
    fn remember<const TABLES: usize>(&mut self, taken: bool) {
        let tables = self.known::<TABLES>();
        self.folded.push(tables, &self.history, taken);
        self.history.push(taken);
        self.branches += 1;
        if self.branches.is_multiple_of(FORGET_EVERY) {
            self.entries.iter_mut().for_each(|entry| entry.useful >>= 1);
        }
    }
}

/// Whether the branch at an address was taken before; none if that is not kept.
#[inline(always)]
fn known_branch(was_taken: &mut [bool], address: u64) -> Option<&mut bool> {
    let last = was_taken.len().checked_sub(1)?;
    was_taken.get_mut(address as usize & last)
}

/// Whether the next other outcome changes an entry's prediction.
fn is_weak(entry: Entry) -> bool {
    entry.counter == TAKEN || entry.counter == TAKEN - 1
}

/// Whether an entry is new: not useful yet, and with a weak counter.
fn is_new(entry: Entry) -> bool {
    entry.useful == 0 && is_weak(entry)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::predict::DirectionModel;
    use proptest::prelude::*;

    /// The last `length` branches in pieces of `width`, XORed.
    fn folded(branches: &[bool], length: usize, width: u32) -> u64 {
        let last = branches.iter().rev().take(length).enumerate();
        last.fold(0, |value, (ago, taken)| value ^ u64::from(*taken) << (ago as u32 % width))
    }

    /// Random directions, the same in each test (xorshift64: Marsaglia 2003).
    fn random() -> impl FnMut() -> bool {
        let mut state = 88_172_645_463_325_252_u64;
        move || {
            state ^= state << 13;
            state ^= state >> 7;
            state ^= state << 17;
            state >> 33 & 1 == 1
        }
    }

    /// Per mille of mispredictions in passes 2, 3 and 10 over a pattern of random directions of one branch,
    /// each followed by branches that are always taken.
    fn learning(model: &TageModel, length: usize, fillers: u64) -> [usize; 3] {
        let mut random = random();
        let pattern: Vec<bool> = (0..length).map(|_| random()).collect();
        let mut tage = Tage::new(model);
        let mut wrong = [0; 10];
        for wrong in &mut wrong {
            for taken in &pattern {
                *wrong += usize::from(tage.step(0x4000, *taken).is_taken != *taken);
                (0..fillers).for_each(|filler| {
                    tage.step(0x4010 + 16 * filler, true);
                });
            }
        }
        [wrong[1], wrong[2], wrong[9]].map(|wrong| wrong * 1000 / length)
    }

    /// That of machines/zen4.toml.
    fn zen4() -> TageModel {
        let text = include_str!("../../../../machines/zen4.toml");
        let core = crate::SystemModel::parse(text).unwrap().core.unwrap();
        match core.predictor.direction {
            DirectionModel::Tage(model) => model,
            other => panic!("{other:?}"),
        }
    }

    /// Measured on a Zen 4 (docs/validation.md): after one pass nearly all of a pattern is known, and histories
    /// end between 340 and 528 branches.
    #[test]
    fn a_pattern_is_learned_as_fast_as_a_zen_4_learns_it() {
        let [second, third, last] = learning(&zen4(), 4096, 1);
        assert!(second < 130 && third < 40 && last < 5, "{second} {third} {last}");
        let one_at_a_time = TageModel { allocated: 1, learns_weak: false, ..zen4() };
        assert!(learning(&one_at_a_time, 4096, 1)[1] > 60);
        assert!(learning(&zen4(), 256, 33)[2] < 50);
        assert!(learning(&zen4(), 256, 65)[2] > 250);
    }

    #[test]
    fn branches_that_are_never_taken_are_not_in_the_history() {
        let rate = |history_of_taken| {
            let model = TageModel { history_of_taken, ..zen4() };
            let (mut tage, mut random) = (Tage::new(&model), random());
            let mut wrong = 0;
            for round in 0..30_000 {
                let taken = random();
                tage.step(0x4000, taken);
                (0..450).for_each(|filler| {
                    tage.step(0x4010 + 16 * filler, false);
                });
                // It goes as the first one of the round did.
                let missed = tage.step(0x8000, taken).is_taken != taken;
                wrong += u32::from(missed && round >= 28_000);
            }
            wrong
        };
        let (of_taken, of_all) = (rate(true), rate(false));
        assert!(of_taken < 20 && of_all > 500, "{of_taken} {of_all} of 2000");
    }

    proptest! {
        #[test]
        fn a_folded_history_is_the_history_in_pieces(
            branches in prop::collection::vec(any::<bool>(), 1..1500),
            length in 1u32..=1024,
            widths in (1u32..21, 4u32..17, 3u32..16),
        ) {
            let widths = [widths.0, widths.1, widths.2];
            let mut history = History::new();
            let mut incremental = Folded::new(&[1, length], widths);
            for taken in &branches {
                incremental.push(2, &history, *taken);
                history.push(*taken);
            }
            for (number, width) in widths.into_iter().enumerate() {
                let value = incremental.values[1] >> PLACES[number] & ((1 << width) - 1);
                prop_assert_eq!(value, folded(&branches, length as usize, width));
            }
        }

        #[test]
        fn histories_grow_from_the_first_to_the_last(
            tables in 1u32..17, history_min in 1u32..100, more in 0u32..900,
        ) {
            let history_max = history_min + tables - 1 + more;
            let model = TageModel {
                base_entries: 1, tables, table_entries: 2, long_table_entries: None, tag_bits: 4,
                history_min, history_max, history_of_taken: false, allocated: 1, learns_weak: false,
            };
            let lengths = lengths(&model);
            prop_assert!(lengths.is_sorted_by(|length, next| length < next));
            prop_assert_eq!(lengths[0], history_min);
            prop_assert!(tables == 1 || lengths[lengths.len() - 1] == history_max);
        }
    }
}
