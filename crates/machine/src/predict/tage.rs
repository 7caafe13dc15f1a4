//! TAGE: tagged tables with geometric history lengths over a bimodal table (Seznec and Michaud,
//! "A case for (partially) TAgged GEometric history length branch prediction", 2006). Used by the models of recent
//! processors for each conditional branch, so it is on the hot path: all tables' folds are updated in vector registers.

use super::PredictedDirection;
use super::counters::Counters;
use super::model::{HISTORY_MAX, TABLES_MAX, TageModel};

/// Number of branches after which all usefulness counters are halved.
const FORGET_EVERY: u64 = 1 << 18;
/// Tagged counters have three bits: a branch is predicted taken from 4 on.
const TAKEN: u8 = 4;

/// Whether each of the last branches was taken.
#[derive(Clone, Debug)]
struct History {
    /// A ring buffer of outcomes: -1 if the branch was taken, else 0.
    taken: [i16; HISTORY_MAX],
    /// The index of the most recent branch.
    newest: usize,
}

impl History {
    fn new() -> History {
        History { taken: [0; HISTORY_MAX], newest: 0 }
    }

    /// -1 if the branch that came `ago` branches before the most recent branch was taken, else 0. `ago` is less than
    /// [`HISTORY_MAX`].
    #[inline(always)]
    fn taken_mask(&self, ago: usize) -> i16 {
        self.taken[self.newest.wrapping_sub(ago) % HISTORY_MAX]
    }

    #[inline(always)]
    fn push(&mut self, taken: bool) {
        self.newest = (self.newest + 1) % HISTORY_MAX;
        self.taken[self.newest] = -i16::from(taken);
    }
}

/// A number that holds a fold for indices.
pub(super) trait Number: Copy + std::fmt::Debug {
    const ZERO: Self;
    /// Maximum width of a fold, in bits.
    const WIDTH_MAX: u32;

    /// A number that is less than `1 << WIDTH_MAX`.
    fn from_bits(bits: u32) -> Self;

    /// The fold after a branch. `mask` has the bits of a fold. `leaving`: -1 if the branch that leaves the history was
    /// taken, else 0; it affects `leaving_bit`.
    fn pushed(self, mask: Self, leaving_bit: Self, leaving: i16, taken: bool) -> Self;

    /// The index that a fold and the bits of an address give.
    fn index(self, address: u64, mask: Self) -> Self;

    fn to_usize(self) -> usize;
}

macro_rules! number {
    ($number:ty) => {
        impl Number for $number {
            const ZERO: Self = 0;
            const WIDTH_MAX: u32 = <$number>::BITS - 1;

            fn from_bits(bits: u32) -> Self {
                bits as $number
            }

            #[inline(always)]
            fn pushed(self, mask: Self, leaving_bit: Self, leaving: i16, taken: bool) -> Self {
                // The highest bit is shifted out, and comes in again at the other end. No number is negative, so this
                // comparison is one vector instruction.
                let carry = <$number>::from(self > mask >> 1);
                let leaving = leaving_bit & <$number>::from(leaving);
                self << 1 & mask ^ <$number>::from(taken) ^ carry ^ leaving
            }

            #[inline(always)]
            fn index(self, address: u64, mask: Self) -> Self {
                (address as $number ^ self) & mask
            }

            #[inline(always)]
            fn to_usize(self) -> usize {
                self as usize
            }
        }
    };
}

number!(i16);
number!(i32);

/// The histories of all tables, folded to the width of an index. To fold a history to some width, cut it into pieces of
/// that width and XOR them.
///
/// Loops over tables have a constant length and equal steps, and each table has its own constants. So the compiler makes
/// a few vector instructions of a loop.
#[derive(Clone, Debug)]
struct IndexFolds<T> {
    /// The fold of each table's history.
    values: [T; TABLES_MAX],
    /// For each table, the bit of the fold that the branch that leaves the history affects.
    leaving_bits: [T; TABLES_MAX],
    /// For each table, the bits of a fold.
    masks: [T; TABLES_MAX],
}

impl<T: Number> IndexFolds<T> {
    /// `width` is at most [`Number::WIDTH_MAX`].
    fn new(lengths: &[u32], width: u32) -> Self {
        let mut leaving_bits = [T::ZERO; TABLES_MAX];
        for (bit, length) in leaving_bits.iter_mut().zip(lengths) {
            *bit = T::from_bits(1 << (length % width));
        }
        let masks = [T::from_bits((1 << width) - 1); TABLES_MAX];
        IndexFolds { values: [T::ZERO; TABLES_MAX], leaving_bits, masks }
    }

    /// Enters a branch into the folds of the first `LANES` tables. `leaving`: for each table -1 if the branch that
    /// leaves the history was taken, else 0.
    #[inline(always)]
    fn push<const LANES: usize>(&mut self, leaving: &[i16; LANES], taken: bool) {
        for (lane, leaving) in leaving.iter().enumerate() {
            let (mask, bit) = (self.masks[lane], self.leaving_bits[lane]);
            self.values[lane] = self.values[lane].pushed(mask, bit, *leaving, taken);
        }
    }
}

/// The histories of all tables, folded to the width of a tag. A fold has the highest bits of its number; the bits below
/// are 0. So two folds that differ by a bit in width are aligned as a tag needs them, and a bit below the tag is free for a
/// mark of used entries.
#[derive(Clone, Debug)]
struct TagFolds {
    values: [i16; TABLES_MAX],
    leaving_bits: [i16; TABLES_MAX],
    /// For each table, the lowest bit of a fold.
    lowest: [i16; TABLES_MAX],
}

impl TagFolds {
    /// `width` is 1 to 15: a tag needs one bit below it, the mark of a used entry.
    fn new(lengths: &[u32], width: u32) -> TagFolds {
        let lowest = 1 << (u16::BITS - width);
        let mut leaving_bits = [0; TABLES_MAX];
        for (bit, length) in leaving_bits.iter_mut().zip(lengths) {
            *bit = lowest << (length % width);
        }
        TagFolds { values: [0; TABLES_MAX], leaving_bits, lowest: [lowest; TABLES_MAX] }
    }

    /// Enters a branch into all histories. `leaving`: for each table, -1 if the branch that leaves its history was taken.
    #[inline(always)]
    fn push<const LANES: usize>(&mut self, leaving: &[i16; LANES], taken: bool) {
        let entering = -i16::from(taken);
        for (lane, leaving) in leaving.iter().enumerate() {
            let fold = self.values[lane];
            let carry_and_entering = (fold >> (i16::BITS - 1) ^ entering) & self.lowest[lane];
            self.values[lane] = fold << 1 ^ carry_and_entering ^ self.leaving_bits[lane] & leaving;
        }
    }
}

/// Folded histories of several lengths, each to three widths: for the index of a table's entry, and two for its tag.
#[derive(Clone, Debug)]
struct Folded<T> {
    index: IndexFolds<T>,
    tags: [TagFolds; 2],
    /// For each table, the length of its history minus one.
    last: [u16; TABLES_MAX],
    index_width: u32,
}

impl<T: Number> Folded<T> {
    /// `widths`: of the folds for indices and for tags.
    fn new(lengths: &[u32], [index_width, first, second]: [u32; 3]) -> Self {
        let mut last = [0; TABLES_MAX];
        for (last, length) in last.iter_mut().zip(lengths) {
            *last = (length - 1) as u16;
        }
        let tags = [first, second].map(|width| TagFolds::new(lengths, width));
        Folded { index: IndexFolds::new(lengths, index_width), tags, last, index_width }
    }

    /// Enters a branch into the folds of the first `LANES` tables. `history` does not contain the branch yet.
    #[inline(always)]
    fn push<const LANES: usize>(&mut self, history: &History, taken: bool) {
        let leaving = std::array::from_fn(|table| history.taken_mask(self.last[table].into()));
        self.index.push::<LANES>(&leaving, taken);
        self.tags[0].push::<LANES>(&leaving, taken);
        self.tags[1].push::<LANES>(&leaving, taken);
    }
}

/// An entry of a tagged table.
#[derive(Clone, Copy, Debug, Default)]
struct Entry {
    tag: i16,
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

/// The entries of an address, one in each table: the index in [`Tables::entries`], and the tag that the entry must have.
struct EntryKeys<T, const LANES: usize> {
    /// The index of each entry in its table.
    indices: [T; LANES],
    tags: [i16; LANES],
    table_entries: usize,
}

impl<T: Number, const LANES: usize> EntryKeys<T, LANES> {
    /// The index of the entry in a table, and its tag.
    #[inline(always)]
    fn key(&self, table: usize) -> (usize, i16) {
        let lane = table % LANES;
        (self.indices[lane].to_usize() + lane * self.table_entries, self.tags[lane])
    }
}

/// A predictor with TAGE. Most models have indices of at most 15 bits, which take fewer vector registers.
#[derive(Clone, Debug)]
pub(super) enum Tage {
    Narrow(Tables<i16>),
    Wide(Tables<i32>),
}

impl Tage {
    pub(super) fn new(model: &TageModel) -> Tage {
        if model.table_entries.ilog2() <= <i16 as Number>::WIDTH_MAX {
            Tage::Narrow(Tables::new(model))
        } else {
            Tage::Wide(Tables::new(model))
        }
    }

    /// Trains the predictor. Returns its earlier prediction. It overrules if the bimodal table, which is faster,
    /// predicted the other direction.
    pub(super) fn step(&mut self, address: u64, taken: bool) -> PredictedDirection {
        // The compiler unrolls loops over a constant number of tables.
        match self {
            Tage::Narrow(narrow) => match narrow.tables {
                4 => narrow.step_in::<4, 8>(address, taken),
                5 => narrow.step_in::<5, 8>(address, taken),
                6 => narrow.step_in::<6, 8>(address, taken),
                7 => narrow.step_in::<7, 8>(address, taken),
                _ => narrow.step_in::<TABLES_MAX, TABLES_MAX>(address, taken),
            },
            Tage::Wide(wide) => wide.step_in::<TABLES_MAX, TABLES_MAX>(address, taken),
        }
    }
}

/// The tables of TAGE, with the history and the folds of its pieces.
#[derive(Clone, Debug)]
pub(super) struct Tables<T> {
    base: Counters,
    /// For each counter of `base`, whether a branch that uses it was ever taken. Empty if all branches enter the
    /// history.
    was_taken: Box<[bool]>,
    /// The entries of all tables, one table after the other. The bit below a tag is always set in a used entry, so an
    /// empty entry never hits.
    entries: Box<[Entry]>,
    tables: usize,
    /// For each table, the mask of its indices.
    index_masks: [T; TABLES_MAX],
    table_entries: usize,
    /// How many entries are allocated at a time.
    allocated: u32,
    learns_weak: bool,
    folded: Folded<T>,
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

impl<T: Number> Tables<T> {
    /// The model's indices have at most [`Number::WIDTH_MAX`] bits.
    fn new(model: &TageModel) -> Self {
        let (tables, table_entries) = (model.tables as usize, model.table_entries as usize);
        let widths = [model.table_entries.ilog2(), model.tag_bits, model.tag_bits - 1];
        let long = model.long_table_entries.unwrap_or(model.table_entries);
        let entries_of =
            |table| if table < tables.div_ceil(2) { model.table_entries } else { long };
        let was_taken_entries =
            if model.history_of_taken { model.base_entries as usize } else { 0 };
        Tables {
            base: Counters::new(model.base_entries as usize),
            was_taken: vec![false; was_taken_entries].into(),
            entries: vec![Entry::default(); tables * table_entries].into(),
            tables,
            index_masks: std::array::from_fn(|table| T::from_bits(entries_of(table) - 1)),
            table_entries,
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

    /// The entries that an address has in the tables.
    #[inline(always)]
    fn entry_keys<const LANES: usize>(&self, address: u64) -> EntryKeys<T, LANES> {
        let Folded { index, tags: [first, second], index_width, .. } = &self.folded;
        let address_index = address ^ address >> index_width;
        let address_tag = (address as i16).wrapping_mul(first.lowest[0]);
        EntryKeys {
            indices: std::array::from_fn(|lane| {
                index.values[lane].index(address_index, self.index_masks[lane])
            }),
            tags: std::array::from_fn(|lane| {
                address_tag ^ first.values[lane] ^ second.values[lane] | first.lowest[lane] >> 1
            }),
            table_entries: self.table_entries,
        }
    }

    /// [`Tage::step`] for a constant number of tables: see [`Tables::table_count`]. `LANES` is at least that number.
    #[inline(always)]
    fn step_in<const TABLES: usize, const LANES: usize>(
        &mut self,
        address: u64,
        taken: bool,
    ) -> PredictedDirection {
        if let Some(was_taken) = was_ever_taken(&mut self.was_taken, address)
            && !*was_taken
        {
            // The branch was never taken before: it is unknown.
            *was_taken = taken;
            if taken {
                self.base.learn(address, true);
                self.remember::<LANES>(true);
            }
            return PredictedDirection { is_taken: false, is_overruling: false };
        }
        let keys = self.entry_keys::<LANES>(address);
        // A bit for each table that hits.
        let mut known = 0u32;
        for table in 0..self.table_count::<TABLES>() {
            let (index, tag) = keys.key(table);
            known |= u32::from(self.entries[index].tag == tag) << table;
        }
        // The longest history among the tables that hit.
        let longest = |known: u32| {
            let table = known.checked_ilog2()? as usize;
            let taken = self.entries[keys.key(table).0].counter >= TAKEN;
            Some(Found { table, taken })
        };
        let provider = longest(known);
        let second = provider.and_then(|provider| longest(known & !(1 << provider.table)));
        let base = self.base.predicts_taken(address);
        let alternate = second.map_or(base, |found| found.taken);
        let predicted = provider.map_or(base, |found| {
            let entry = self.entries[keys.key(found.table).0];
            if is_new(entry) && self.use_alternate >= 8 { alternate } else { found.taken }
        });
        let is_weak = self.learns_weak
            && match provider {
                Some(found) => is_weak(self.entries[keys.key(found.table).0]),
                None => self.base.is_weak(address),
            };
        match provider {
            Some(found) => self.learn(found, keys.key(found.table).0, alternate, taken),
            None => self.base.learn(address, taken),
        }
        // No allocation if the provider was right but new, and therefore not used: it is being trained.
        let provided = provider.map_or(base, |found| found.taken);
        if is_weak || predicted != taken && provided != taken {
            self.allocate(provider.map_or(0, |found| found.table + 1), &keys, taken);
        }
        self.remember::<LANES>(taken);
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
    fn allocate<const LANES: usize>(
        &mut self,
        first_table: usize,
        keys: &EntryKeys<T, LANES>,
        taken: bool,
    ) {
        let mut remaining = self.allocated;
        for table in first_table..self.tables {
            let (index, tag) = keys.key(table);
            let entry = &mut self.entries[index];
            if entry.useful == 0 {
                *entry = Entry { tag, counter: TAKEN - u8::from(!taken), useful: 0 };
                remaining -= 1;
                if remaining == 0 {
                    return;
                }
            }
        }
        if remaining == self.allocated {
            for table in first_table..self.tables {
                self.entries[keys.key(table).0].useful -= 1;
            }
        }
    }

    /// Enters a branch into the history. Forgets some usefulness from time to time.
    #[inline(always)]
    fn remember<const LANES: usize>(&mut self, taken: bool) {
        self.folded.push::<LANES>(&self.history, taken);
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

    /// The folds of a history of some length to three widths after some branches.
    fn folds_of<T: Number>(branches: &[bool], length: u32, widths: [u32; 3]) -> [u64; 3] {
        let mut history = History::new();
        let mut incremental = Folded::<T>::new(&[1, length], widths);
        for taken in branches {
            incremental.push::<2>(&history, *taken);
            history.push(*taken);
        }
        let Folded { index, tags, .. } = incremental;
        let [first, second] = tags.map(|fold| {
            let [value, lowest] = [fold.values[1], fold.lowest[1]].map(|bits| bits as u16);
            u64::from(value / lowest)
        });
        [index.values[1].to_usize() as u64, first, second]
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
    fn all_bits_of_a_tag_distinguish_addresses() {
        for tag_bits in [4, 12, 15] {
            let tables = Tables::<i16>::new(&TageModel { tag_bits, ..zen4() });
            let tag = |address| tables.entry_keys::<TABLES_MAX>(address).key(0).1;
            let tags: std::collections::BTreeSet<i16> = (0..1 << tag_bits).map(tag).collect();
            assert_eq!(tags.len(), 1 << tag_bits, "{tag_bits} bits");
            assert!(!tags.contains(&Entry::default().tag), "an empty entry hits: {tag_bits} bits");
        }
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
            let narrow = [widths.0.min(15), widths.1, widths.2];
            let values = folds_of::<i16>(&branches, length, narrow);
            prop_assert_eq!(values, narrow.map(|width| folded(&branches, length as usize, width)));
            let wide = [widths.0, widths.1, widths.2];
            let values = folds_of::<i32>(&branches, length, wide);
            prop_assert_eq!(values, wide.map(|width| folded(&branches, length as usize, width)));
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
