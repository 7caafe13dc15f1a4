//! A predictor of tagged tables with geometric history lengths, over a bimodal one (Seznec and
//! Michaud, "A case for (partially) TAgged GEometric history length branch prediction", 2006).

use super::counters::Counters;
use super::model::{HISTORY_MAX, TABLES_MAX, TageModel};

/// Words of the history of branches.
const WORDS: usize = HISTORY_MAX / 64;
/// After so many branches what was useful is half forgotten.
const FORGET_EVERY: u64 = 1 << 18;
/// Tagged counters have three bits: from 4 on taken.
const TAKEN: u8 = 4;

/// Whether each of the last branches was taken, the last first.
#[derive(Clone, Debug)]
struct History {
    bits: [u64; WORDS],
    newest: usize,
}

impl History {
    /// Branch `ago` branches before the next; 0 is the last.
    fn taken(&self, ago: usize) -> u64 {
        let at = (self.newest + HISTORY_MAX - ago) % HISTORY_MAX;
        self.bits[at / 64] >> (at % 64) & 1
    }

    fn push(&mut self, taken: bool) {
        self.newest = (self.newest + 1) % HISTORY_MAX;
        let (word, bit) = (self.newest / 64, self.newest % 64);
        self.bits[word] = self.bits[word] & !(1 << bit) | u64::from(taken) << bit;
    }
}

/// The last `length` branches as so many bits: the history in pieces of that width, all XORed. It is
/// kept up to date a branch at a time, whatever the length.
#[derive(Clone, Copy, Debug)]
struct Folded {
    value: u64,
    width: u32,
    /// Where the branch stands that leaves the history.
    leaves_at: u32,
}

impl Folded {
    fn new(length: u32, width: u32) -> Folded {
        Folded { value: 0, width, leaves_at: length % width }
    }

    #[inline]
    fn push(&mut self, enters: u64, leaves: u64) {
        let turned = self.value << 1 | enters;
        let turned = turned ^ leaves << self.leaves_at;
        self.value = (turned ^ turned >> self.width) & ((1 << self.width) - 1);
    }
}

#[derive(Clone, Copy, Debug, Default)]
struct Entry {
    tag: u16,
    counter: u8,
    useful: u8,
}

#[derive(Clone, Debug)]
struct Table {
    entries: Box<[Entry]>,
    length: usize,
    index: Folded,
    tag: Folded,
    tag_again: Folded,
}

impl Table {
    fn new(model: &TageModel, length: u32) -> Table {
        let index_bits = model.table_entries.ilog2();
        Table {
            // No tag is that of an empty entry: tags have their lowest bit set.
            entries: vec![Entry::default(); model.table_entries as usize].into(),
            length: length as usize,
            index: Folded::new(length, index_bits),
            tag: Folded::new(length, model.tag_bits),
            tag_again: Folded::new(length, model.tag_bits - 1),
        }
    }

    #[inline]
    fn place(&self, address: u64) -> (usize, u16) {
        let index = address ^ address >> self.index.width ^ self.index.value;
        let tag = address ^ self.tag.value ^ self.tag_again.value << 1;
        let mask = (1 << self.tag.width) - 1;
        (index as usize & (self.entries.len() - 1), (tag & mask) as u16 | 1)
    }
}

/// What a branch found.
#[derive(Clone, Copy)]
struct Found {
    table: usize,
    taken: bool,
}

#[derive(Clone, Debug)]
pub(super) struct Tage {
    base: Counters,
    tables: Box<[Table]>,
    history: History,
    /// From 8 on a new entry is not trusted, but what is behind it.
    distrust: u8,
    branches: u64,
}

/// History lengths of a model's tables, from the first to the last in geometric steps, each longer
/// than that before.
fn lengths(model: &TageModel) -> Vec<u32> {
    let steps = f64::from(model.tables - 1).max(1.0);
    let ratio = f64::from(model.history_max) / f64::from(model.history_min);
    let mut lengths: Vec<u32> = Vec::new();
    for table in 0..model.tables {
        let exact = f64::from(model.history_min) * ratio.powf(f64::from(table) / steps);
        let least = lengths.last().map_or(model.history_min, |last| last + 1);
        // Room is left for those behind.
        let most = model.history_max - (model.tables - 1 - table);
        lengths.push((exact.round() as u32).clamp(least, most));
    }
    lengths
}

impl Tage {
    pub(super) fn new(model: &TageModel) -> Tage {
        Tage {
            base: Counters::new(model.base_entries as usize),
            tables: lengths(model).iter().map(|length| Table::new(model, *length)).collect(),
            history: History { bits: [0; WORDS], newest: 0 },
            distrust: 8,
            branches: 0,
        }
    }

    /// What was foreseen, before it was learnt.
    pub(super) fn step(&mut self, address: u64, taken: bool) -> bool {
        let mut places = [(0, 0); TABLES_MAX];
        let (mut provider, mut other): (Option<Found>, Option<Found>) = (None, None);
        for (number, table) in self.tables.iter().enumerate() {
            places[number] = table.place(address);
            let entry = table.entries[places[number].0];
            if entry.tag == places[number].1 {
                other = provider;
                provider = Some(Found { table: number, taken: entry.counter >= TAKEN });
            }
        }
        let base = self.base.foresees(address);
        let behind = other.map_or(base, |found| found.taken);
        let foreseen = provider.map_or(base, |found| {
            let entry = self.tables[found.table].entries[places[found.table].0];
            if is_new(entry) && self.distrust >= 8 { behind } else { found.taken }
        });
        match provider {
            Some(found) => self.learn(found, places[found.table].0, behind, taken),
            None => self.base.learn(address, taken),
        }
        // Also where only the new entry was right: it is on its way then.
        let provided = provider.map_or(base, |found| found.taken);
        if foreseen != taken && provided != taken {
            self.allocate(provider.map_or(0, |found| found.table + 1), &places, taken);
        }
        self.remember(taken);
        foreseen
    }

    fn learn(&mut self, found: Found, index: usize, behind: bool, taken: bool) {
        let entry = &mut self.tables[found.table].entries[index];
        if found.taken != behind {
            let right = found.taken == taken;
            if is_new(*entry) {
                self.distrust = if right {
                    self.distrust.saturating_sub(1)
                } else {
                    (self.distrust + 1).min(15)
                };
            }
            entry.useful =
                if right { (entry.useful + 1).min(3) } else { entry.useful.saturating_sub(1) };
        }
        entry.counter =
            if taken { (entry.counter + 1).min(7) } else { entry.counter.saturating_sub(1) };
    }

    /// A longer history shall tell: an entry of no use in the first table that has one.
    fn allocate(&mut self, from: usize, places: &[(usize, u16); TABLES_MAX], taken: bool) {
        for (table, (index, tag)) in self.tables.iter_mut().zip(places).skip(from) {
            let entry = &mut table.entries[*index];
            if entry.useful == 0 {
                *entry = Entry { tag: *tag, counter: TAKEN - u8::from(!taken), useful: 0 };
                return;
            }
        }
        for (table, (index, _)) in self.tables.iter_mut().zip(places).skip(from) {
            table.entries[*index].useful -= 1;
        }
    }

    fn remember(&mut self, taken: bool) {
        for table in &mut self.tables {
            let leaves = self.history.taken(table.length - 1);
            for folded in [&mut table.index, &mut table.tag, &mut table.tag_again] {
                folded.push(taken.into(), leaves);
            }
        }
        self.history.push(taken);
        self.branches += 1;
        if self.branches.is_multiple_of(FORGET_EVERY) {
            let entries = self.tables.iter_mut().flat_map(|table| table.entries.iter_mut());
            entries.for_each(|entry| entry.useful >>= 1);
        }
    }
}

/// Not used yet, and of two minds.
fn is_new(entry: Entry) -> bool {
    entry.useful == 0 && (entry.counter == TAKEN || entry.counter == TAKEN - 1)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    /// The last `length` branches in pieces of `width`, all XORed.
    fn folded(branches: &[bool], length: usize, width: u32) -> u64 {
        let last = branches.iter().rev().take(length).enumerate();
        last.fold(0, |value, (ago, taken)| value ^ u64::from(*taken) << (ago as u32 % width))
    }

    proptest! {
        #[test]
        fn a_folded_history_is_the_history_in_pieces(
            branches in prop::collection::vec(any::<bool>(), 1..1500),
            length in 1u32..=1024,
            width in 1u32..17,
        ) {
            let mut history = History { bits: [0; WORDS], newest: 0 };
            let mut kept = Folded::new(length, width);
            for taken in &branches {
                kept.push(u64::from(*taken), history.taken(length as usize - 1));
                history.push(*taken);
            }
            prop_assert_eq!(kept.value, folded(&branches, length as usize, width));
        }

        #[test]
        fn histories_grow_from_the_first_to_the_last(
            tables in 1u32..17, history_min in 1u32..100, more in 0u32..900,
        ) {
            let history_max = history_min + tables - 1 + more;
            let model = TageModel {
                base_entries: 1, tables, table_entries: 2, tag_bits: 4, history_min, history_max,
            };
            let lengths = lengths(&model);
            prop_assert!(lengths.is_sorted_by(|one, next| one < next));
            prop_assert_eq!(lengths[0], history_min);
            prop_assert!(tables == 1 || lengths[lengths.len() - 1] == history_max);
        }
    }
}
