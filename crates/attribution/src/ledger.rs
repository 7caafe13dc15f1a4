//! The counts of each context on one CPU, or of each service on all CPUs. [`crate::KernelStack`] and
//! [`crate::Services`] charge it. Invariant: the self counts of all rows add up to everything that was charged.

use std::collections::BTreeMap;

use crate::kernel_context::KernelContext;

/// Maximum number of contexts of a ledger. The counts of further contexts are charged to [`KernelContext::Unknown`].
pub const ROWS_MAX: usize = 16_384;

/// The counts of a CPU. The first count is the CPU's time in any unit, including the time that the CPU was halted. The
/// caller chooses the other counts (instructions, cycles, misses). No count decreases.
pub type Counts<const N: usize> = [u64; N];

#[inline]
pub(crate) fn add<const N: usize>(sum: &mut Counts<N>, amount: &Counts<N>) {
    for (sum, amount) in sum.iter_mut().zip(amount) {
        *sum += amount;
    }
}

/// The counts of one context.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Row<const N: usize = 1> {
    /// Counts of the context itself. Over all rows, they add up to the counts of the CPU.
    pub self_counts: Counts<N>,
    /// Counts from entry to exit, including nested contexts but without other tasks. Only spans that started
    /// and ended while the region was open are included. Counts of a recursive call of a function are included once.
    pub inclusive: Counts<N>,
    /// How often the context was entered. For a task at the bottom of a stack (user, kernel thread, task, idle): how
    /// often a task switch or a return led to it.
    pub entries: u64,
    /// Number of spans in `inclusive`.
    pub completed: u64,
}

impl<const N: usize> Default for Row<N> {
    fn default() -> Self {
        Row { self_counts: [0; N], inclusive: [0; N], entries: 0, completed: 0 }
    }
}

/// The rows of one CPU.
#[derive(Clone, Debug)]
pub struct Ledger<const N: usize = 1> {
    rows: Vec<(KernelContext, Row<N>)>,
    /// Position of each context's row in `rows`.
    positions: BTreeMap<KernelContext, usize>,
    /// See [`Ledger::refused`].
    refused: u64,
}

impl<const N: usize> Default for Ledger<N> {
    fn default() -> Self {
        Ledger { rows: Vec::new(), positions: BTreeMap::new(), refused: 0 }
    }
}

impl<const N: usize> Ledger<N> {
    /// The position of the row of `context`, for [`Ledger::charge_at`]. Makes a new row if there is room; otherwise
    /// gives the row of [`KernelContext::Unknown`].
    pub(crate) fn row_position(&mut self, context: KernelContext) -> usize {
        if let Some(position) = self.positions.get(&context) {
            return *position;
        }
        let context = if self.rows.len() < ROWS_MAX {
            context
        } else {
            self.refused += 1;
            KernelContext::Unknown
        };
        *self.positions.entry(context).or_insert_with(|| {
            self.rows.push((context, Row::default()));
            self.rows.len() - 1
        })
    }

    /// Adds `amount` to the self counts of the row at `position`.
    pub(crate) fn charge_at(&mut self, position: usize, amount: &Counts<N>) {
        if let Some((_, row)) = self.rows.get_mut(position) {
            add(&mut row.self_counts, amount);
        }
    }

    /// Adds `amount` to the self counts of `context`.
    pub fn charge(&mut self, context: KernelContext, amount: &Counts<N>) {
        let position = self.row_position(context);
        self.charge_at(position, amount);
    }

    /// Counts an entry into `context`.
    pub fn enter(&mut self, context: KernelContext) {
        let position = self.row_position(context);
        self.rows[position].1.entries += 1;
    }

    /// Counts a span of `context` that has ended. `inclusive`: the span's counts, except counts of recursive calls that
    /// the row already includes.
    pub fn complete(&mut self, context: KernelContext, inclusive: &Counts<N>) {
        let position = self.row_position(context);
        let row = &mut self.rows[position].1;
        add(&mut row.inclusive, inclusive);
        row.completed += 1;
    }

    /// The rows in the order of contexts, without contexts that were neither charged nor entered.
    pub fn rows(&self) -> impl Iterator<Item = (KernelContext, Row<N>)> + '_ {
        let is_used = |row: &Row<N>| {
            row.entries + row.completed > 0 || row.self_counts.iter().any(|amount| *amount > 0)
        };
        let rows =
            self.positions.iter().map(|(context, position)| (*context, self.rows[*position].1));
        rows.filter(move |(_, row)| is_used(row))
    }

    /// The sum of the self counts.
    #[must_use]
    pub fn total(&self) -> Counts<N> {
        let mut total = [0; N];
        for (_, row) in &self.rows {
            add(&mut total, &row.self_counts);
        }
        total
    }

    /// How often [`KernelContext::Unknown`] was charged because there was no room for a row.
    #[must_use]
    pub fn refused(&self) -> u64 {
        self.refused
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn counts_without_a_row_are_charged_to_unknown_and_stay_in_the_sum() {
        let mut ledger = Ledger::<2>::default();
        for pid in 0..ROWS_MAX as u32 + 3 {
            ledger.charge(KernelContext::User(pid), &[2, 1]);
        }
        assert_eq!(ledger.total(), [2 * (ROWS_MAX as u64 + 3), ROWS_MAX as u64 + 3]);
        assert_eq!(ledger.refused(), 3);
        let (context, row) = ledger.rows().next().unwrap();
        assert_eq!((context, row.self_counts), (KernelContext::Unknown, [6, 3]));
    }
}
