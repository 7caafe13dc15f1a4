//! What each context has used on one CPU, in the caller's counts.

use std::collections::BTreeMap;

use crate::kernel_context::KernelContext;

/// The most contexts a ledger tells apart; what more there are is charged to
/// [`KernelContext::Unknown`].
pub const ROWS_MAX: usize = 16_384;

/// What a CPU has counted. The first is its time, in any unit, with the time it was halted; the
/// others are what the caller likes (instructions, cycles, misses). None of them decreases.
pub type Counts<const N: usize> = [u64; N];

/// Adds to each count.
#[inline]
pub(crate) fn add<const N: usize>(to: &mut Counts<N>, amount: &Counts<N>) {
    for (to, amount) in to.iter_mut().zip(amount) {
        *to += amount;
    }
}

/// What one context has used.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Row<const N: usize = 1> {
    /// Used by the context itself. The sum over all rows is what the CPU has used.
    pub own: Counts<N>,
    /// Used from entry to exit, with what was nested inside but without other tasks, over spans
    /// that began and ended while counting.
    pub inclusive: Counts<N>,
    /// Times the context was entered. For the context at the foot of a stack (user, kernel thread,
    /// task, idle): times it came to be there, by a switch or a return.
    pub entries: u64,
    /// Spans in `inclusive`.
    pub completed: u64,
}

impl<const N: usize> Default for Row<N> {
    fn default() -> Self {
        Row { own: [0; N], inclusive: [0; N], entries: 0, completed: 0 }
    }
}

/// The rows of one CPU.
#[derive(Clone, Debug)]
pub struct Ledger<const N: usize = 1> {
    rows: Vec<(KernelContext, Row<N>)>,
    places: BTreeMap<KernelContext, usize>,
    refused: u64,
}

impl<const N: usize> Default for Ledger<N> {
    fn default() -> Self {
        Ledger { rows: Vec::new(), places: BTreeMap::new(), refused: 0 }
    }
}

impl<const N: usize> Ledger<N> {
    /// Where the row of `context` is, for [`Ledger::charge_at`].
    pub(crate) fn place(&mut self, context: KernelContext) -> usize {
        if let Some(place) = self.places.get(&context) {
            return *place;
        }
        let context = if self.rows.len() < ROWS_MAX {
            context
        } else {
            self.refused += 1;
            KernelContext::Unknown
        };
        *self.places.entry(context).or_insert_with(|| {
            self.rows.push((context, Row::default()));
            self.rows.len() - 1
        })
    }

    /// Adds `amount` to what the context at `place` has used itself.
    pub(crate) fn charge_at(&mut self, place: usize, amount: &Counts<N>) {
        if let Some((_, row)) = self.rows.get_mut(place) {
            add(&mut row.own, amount);
        }
    }

    /// Adds `amount` to what `context` has used itself.
    pub fn charge(&mut self, context: KernelContext, amount: &Counts<N>) {
        let place = self.place(context);
        self.charge_at(place, amount);
    }

    /// Counts an entry into `context`.
    pub fn enter(&mut self, context: KernelContext) {
        let place = self.place(context);
        self.rows[place].1.entries += 1;
    }

    /// Counts a span of `context` that has ended.
    pub fn complete(&mut self, context: KernelContext, inclusive: &Counts<N>) {
        let place = self.place(context);
        let row = &mut self.rows[place].1;
        add(&mut row.inclusive, inclusive);
        row.completed += 1;
    }

    /// The rows in the order of contexts; those that nothing was charged to or entered are left out.
    pub fn rows(&self) -> impl Iterator<Item = (KernelContext, Row<N>)> + '_ {
        let used = |row: &Row<N>| {
            row.entries + row.completed > 0 || row.own.iter().any(|amount| *amount > 0)
        };
        let rows = self.places.iter().map(|(context, place)| (*context, self.rows[*place].1));
        rows.filter(move |(_, row)| used(row))
    }

    /// What all contexts have used themselves.
    #[must_use]
    pub fn total(&self) -> Counts<N> {
        let mut total = [0; N];
        for (_, row) in &self.rows {
            add(&mut total, &row.own);
        }
        total
    }

    /// Times that [`KernelContext::Unknown`] was used for want of a row.
    #[must_use]
    pub fn refused(&self) -> u64 {
        self.refused
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_has_no_row_of_its_own_is_unknown_and_still_in_the_sum() {
        let mut ledger = Ledger::<2>::default();
        for pid in 0..ROWS_MAX as u32 + 3 {
            ledger.charge(KernelContext::User(pid), &[2, 1]);
        }
        assert_eq!(ledger.total(), [2 * (ROWS_MAX as u64 + 3), ROWS_MAX as u64 + 3]);
        assert_eq!(ledger.refused(), 3);
        let (context, row) = ledger.rows().next().unwrap();
        assert_eq!((context, row.own), (KernelContext::Unknown, [6, 3]));
    }
}
