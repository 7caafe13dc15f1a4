//! TAGE: tagged tables with geometric history lengths over a bimodal table (Seznec and Michaud,
//! "A case for (partially) TAgged GEometric history length branch prediction", 2006). Used by the models of recent
//! processors for each conditional branch, so it is on the hot path: folds of several widths share one word.

use super::PredictedDirection;
use super::counters::Counters;
use super::model::{HISTORY_MAX, TABLES_MAX, TageModel};

/// Number of branches after which all usefulness counters are halved.
const FORGET_EVERY: u64 = 1 << 18;
/// Tagged counters have three bits: a branch is predicted taken from 4 on.
const TAKEN: u8 = 4;

/// Whether each of the last branches was taken. A byte for each branch, to read one without a shift.
#[derive(Clone, Debug)]
struct History {
    /// A ring buffer of outcomes.
    taken: [bool; HISTORY_MAX],
    /// The index of the most recent branch.
    newest: usize,
}

impl History {
    fn new() -> History {
        History { taken: [false; HISTORY_MAX], newest: 0 }
    }

    /// The outcome, 0 or 1, of the branch that came `ago` branches before the most recent branch. `ago` is less than
    /// [`HISTORY_MAX`].
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

/// Where each of three numbers starts in a word. At least one free bit follows each: it receives the carry of a shift.
const SHIFTS: [u32; 3] = [0, 21, 38];
/// The lowest bit of each number.
const LOWEST: u64 = 1 << SHIFTS[0] | 1 << SHIFTS[1] | 1 << SHIFTS[2];

/// Folded histories of several lengths. To fold a history to some width, cut it into pieces of that width and XOR them.
/// Each length has one word with its folds to three widths, and is updated in constant time per branch.
#[derive(Clone, Debug)]
struct Folded {
    /// The words, one for each table.
    values: [u64; TABLES_MAX],
    /// For each word, the bit in each number that the branch that leaves the history affects.
    leaving_bits: [u64; TABLES_MAX],
    /// For each word, the length of its history minus one.
    last: [u16; TABLES_MAX],
    widths: [u32; 3],
    /// The bits of the three numbers.
    mask: u64,
}

impl Folded {
    fn new(lengths: &[u32], widths: [u32; 3]) -> Folded {
        let mask = widths.iter().zip(SHIFTS).map(|(width, shift)| ((1 << width) - 1) << shift);
        let mut folded = Folded {
            values: [0; TABLES_MAX],
            leaving_bits: [0; TABLES_MAX],
            last: [0; TABLES_MAX],
            widths,
            mask: mask.sum(),
        };
        for (table, length) in lengths.iter().enumerate() {
            let numbers = widths.iter().zip(SHIFTS);
            folded.leaving_bits[table] =
                numbers.map(|(width, shift)| 1 << (length % width) << shift).sum();
            folded.last[table] = (length - 1) as u16;
        }
        folded
    }

    /// Enters a branch into the folds of the first `tables` tables. `history` does not contain the branch yet.
    #[inline(always)]
    fn push(&mut self, tables: usize, history: &History, taken: bool) {
        // `wrapping_neg` turns 1 into all bits, and 0 into none.
        let entering = LOWEST & u64::from(taken).wrapping_neg();
        let [first, second, third] = self.widths;
        for table in 0..tables.min(TABLES_MAX) {
            let leaving =
                self.leaving_bits[table] & history.taken(self.last[table].into()).wrapping_neg();
            let shifted = (self.values[table] << 1 | entering) ^ leaving;
            // A bit that is shifted out of a number comes in again at the number's other end.
            let carries = (shifted >> first & 1 << SHIFTS[0])
                ^ (shifted >> second & 1 << SHIFTS[1])
                ^ (shifted >> third & 1 << SHIFTS[2]);
            self.values[table] = (shifted ^ carries) & self.mask;
        }
    }
}

/// An entry of a tagged table.
#[derive(Clone, Copy, Debug, Default)]
struct Entry {
    tag: u16,
    /// 0 to 7; see [`TAKEN`].
    counter: u8,
    /// 0 to 3. An entry with 0 may be replaced.
    useful: u8,
}

/// A tagged table that has an entry for a branch, and the entry's prediction.
#[derive(Clone, Copy)]
struct Found {
    /// Number of the table, from 0.
    table: usize,
    taken: bool,
}

#[derive(Clone, Debug)]
pub(super) struct Tage {
    base: Counters,
    /// For each counter of `base`, whether a branch that uses it was ever taken. Empty if all branches enter the
    /// history.
    was_taken: Box<[bool]>,
    /// The entries of all tables, one table after the other. The lowest bit of a tag is always set, so an empty entry
    /// never hits.
    entries: Box<[Entry]>,
    tables: usize,
    /// For each table, the mask of its indices.
    index_masks: [u32; TABLES_MAX],
    /// How many entries are allocated at a time.
    allocated: u32,
    learns_weak: bool,
    folded: Folded,
    history: History,
    /// A counter, 0 to 15. From 8 on, the alternate prediction replaces the prediction of a new entry.
    use_alternate: u8,
    /// Number of branches so far.
    branches: u64,
}

/// The history lengths of a model's tables: in geometric steps from the first to the last. Each exceeds the previous
/// length by at least one.
fn lengths(model: &TageModel) -> Vec<u32> {
    let steps = f64::from(model.tables - 1).max(1.0);
    let ratio = f64::from(model.history_max) / f64::from(model.history_min);
    let mut lengths: Vec<u32> = Vec::new();
    for table in 0..model.tables {
        let exact = f64::from(model.history_min) * ratio.powf(f64::from(table) / steps);
        let length_min = lengths.last().map_or(model.history_min, |last| last + 1);
        // Each later table needs a longer history, up to the maximum.
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
        let was_taken_entries =
            if model.history_of_taken { model.base_entries as usize } else { 0 };
        Tage {
            base: Counters::new(model.base_entries as usize),
            was_taken: vec![false; was_taken_entries].into(),
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

    /// The number of tables. `TABLES` is that number, as a constant for the compiler, unless it is [`TABLES_MAX`].
    #[inline(always)]
    fn table_count<const TABLES: usize>(&self) -> usize {
        if TABLES < TABLES_MAX { TABLES } else { self.tables }
    }

    /// For each table, the index of an address's entry in [`Tage::entries`], and the tag that the entry must have.
    #[inline(always)]
    fn entry_keys<const TABLES: usize>(&self, address: u64) -> [(usize, u16); TABLES] {
        let mut keys = [(0, 0); TABLES];
        let widths = self.folded.widths;
        let address_index = address ^ address >> widths[0];
        let (tag_mask, table_entries) = ((1 << widths[1]) - 1, 1 << widths[0]);
        let mut first = 0;
        let values = self.folded.values.iter().zip(&self.index_masks);
        for ((value, mask), key) in values.zip(&mut keys).take(self.table_count::<TABLES>()) {
            let number = |number: usize| value >> SHIFTS[number];
            let index = (address_index ^ number(0)) as u32 & mask;
            let tag = (address ^ number(1) ^ number(2) << 1) & tag_mask;
            *key = (first + index as usize, tag as u16 | 1);
            first += table_entries;
        }
        keys
    }

    /// Trains the predictor. Returns its earlier prediction. It overrules if the bimodal table, which is faster,
    /// predicted the other direction.
    pub(super) fn step(&mut self, address: u64, taken: bool) -> PredictedDirection {
        // The compiler unrolls loops over a constant number of tables.
        match self.tables {
            4 => self.step_in::<4>(address, taken),
            5 => self.step_in::<5>(address, taken),
            6 => self.step_in::<6>(address, taken),
            7 => self.step_in::<7>(address, taken),
            _ => self.step_in::<TABLES_MAX>(address, taken),
        }
    }

    /// [`Tage::step`] for a constant number of tables: see [`Tage::table_count`].
    #[inline(always)]
    fn step_in<const TABLES: usize>(&mut self, address: u64, taken: bool) -> PredictedDirection {
        if let Some(was_taken) = was_ever_taken(&mut self.was_taken, address)
            && !*was_taken
        {
            // The branch was never taken before: it is unknown.
            *was_taken = taken;
            if taken {
                self.base.learn(address, true);
                self.remember::<TABLES>(true);
            }
            return PredictedDirection { is_taken: false, is_overruling: false };
        }
        let keys = self.entry_keys::<TABLES>(address);
        // A bit for each table that hits.
        let mut known = 0u32;
        for (table, (index, tag)) in keys.iter().enumerate().take(self.table_count::<TABLES>()) {
            known |= u32::from(self.entries[*index].tag == *tag) << table;
        }
        // The longest history among the tables that hit.
        let longest = |known: u32| {
            let table = known.checked_ilog2()? as usize;
            let taken = self.entries[keys[table].0].counter >= TAKEN;
            Some(Found { table, taken })
        };
        let provider = longest(known);
        let second = provider.and_then(|provider| longest(known & !(1 << provider.table)));
        let base = self.base.predicts_taken(address);
        let alternate = second.map_or(base, |found| found.taken);
        let predicted = provider.map_or(base, |found| {
            let entry = self.entries[keys[found.table].0];
            if is_new(entry) && self.use_alternate >= 8 { alternate } else { found.taken }
        });
        let is_weak = self.learns_weak
            && match provider {
                Some(found) => is_weak(self.entries[keys[found.table].0]),
                None => self.base.is_weak(address),
            };
        match provider {
            Some(found) => self.learn(found, keys[found.table].0, alternate, taken),
            None => self.base.learn(address, taken),
        }
        // No allocation if the provider was right but new, and therefore not used: it is being trained.
        let provided = provider.map_or(base, |found| found.taken);
        if is_weak || predicted != taken && provided != taken {
            self.allocate(provider.map_or(0, |found| found.table + 1), &keys, taken);
        }
        self.remember::<TABLES>(taken);
        PredictedDirection { is_taken: predicted, is_overruling: predicted != base }
    }

    /// Trains the entry that provided the prediction. `alternate`: the prediction without that entry.
    fn learn(&mut self, found: Found, index: usize, alternate: bool, taken: bool) {
        let entry = &mut self.entries[index];
        if found.taken != alternate {
            let is_right = found.taken == taken;
            if is_new(*entry) {
                self.use_alternate = if is_right {
                    self.use_alternate.saturating_sub(1)
                } else {
                    (self.use_alternate + 1).min(15)
                };
            }
            entry.useful =
                if is_right { (entry.useful + 1).min(3) } else { entry.useful.saturating_sub(1) };
        }
        entry.counter =
            if taken { (entry.counter + 1).min(7) } else { entry.counter.saturating_sub(1) };
    }

    /// Allocates entries in the tables from `first_table` on, the shortest histories first, where entries are not
    /// useful. If all are useful, makes them less useful.
    #[inline(never)]
    fn allocate(&mut self, first_table: usize, keys: &[(usize, u16)], taken: bool) {
        let longer_keys = &keys[first_table..self.tables];
        let mut remaining = self.allocated;
        for (index, tag) in longer_keys {
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
            for (index, _) in longer_keys {
                self.entries[*index].useful -= 1;
            }
        }
    }

    /// Enters a branch into the history. Forgets some usefulness from time to time.
    #[inline(always)]
    fn remember<const TABLES: usize>(&mut self, taken: bool) {
        let tables = self.table_count::<TABLES>();
        self.folded.push(tables, &self.history, taken);
        self.history.push(taken);
        self.branches += 1;
        if self.branches.is_multiple_of(FORGET_EVERY) {
            self.entries.iter_mut().for_each(|entry| entry.useful >>= 1);
        }
    }
}

/// Whether a branch at an address was ever taken. `None` if the model does not need that.
#[inline(always)]
fn was_ever_taken(was_taken: &mut [bool], address: u64) -> Option<&mut bool> {
    let index_mask = was_taken.len().checked_sub(1)?;
    was_taken.get_mut(address as usize & index_mask)
}

/// Whether a single outcome against an entry's prediction would change it.
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
                let value = incremental.values[1] >> SHIFTS[number] & ((1 << width) - 1);
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
