//! What each context has used on one CPU, in the unit of the caller's count (instructions, cycles).

use std::collections::BTreeMap;

use crate::kernel_context::KernelContext;

/// The most contexts a ledger tells apart; what more there are is charged to
/// [`KernelContext::Unknown`].
pub const ROWS_MAX: usize = 16_384;

/// What one context has used.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Row {
    /// Used by the context itself. The sum over all rows is what the CPU has executed.
    pub own: u64,
    /// Used from entry to exit, with what was nested inside but without other tasks, over spans
    /// that began and ended while counting.
    pub inclusive: u64,
    /// Times the context was entered. For the context at the foot of a stack (user, kernel thread,
    /// task, idle): times it came to be there, by a switch or a return.
    pub entries: u64,
    /// Spans in `inclusive`.
    pub completed: u64,
}

/// The rows of one CPU.
#[derive(Clone, Debug, Default)]
pub struct Ledger {
    rows: BTreeMap<KernelContext, Row>,
    refused: u64,
}

impl Ledger {
    /// Adds `amount` to what `context` has used itself.
    pub fn charge(&mut self, context: KernelContext, amount: u64) {
        if amount > 0 {
            self.row(context).own += amount;
        }
    }

    /// Counts an entry into `context`.
    pub fn enter(&mut self, context: KernelContext) {
        self.row(context).entries += 1;
    }

    /// Counts a span of `context` that has ended.
    pub fn complete(&mut self, context: KernelContext, inclusive: u64) {
        let row = self.row(context);
        row.inclusive += inclusive;
        row.completed += 1;
    }

    /// The rows in the order of contexts.
    pub fn rows(&self) -> impl Iterator<Item = (KernelContext, Row)> + '_ {
        self.rows.iter().map(|(context, row)| (*context, *row))
    }

    /// What all contexts have used themselves.
    #[must_use]
    pub fn total(&self) -> u64 {
        self.rows.values().map(|row| row.own).sum()
    }

    /// Entries and charges that went to [`KernelContext::Unknown`] for want of a row.
    #[must_use]
    pub fn refused(&self) -> u64 {
        self.refused
    }

    fn row(&mut self, context: KernelContext) -> &mut Row {
        let known = self.rows.contains_key(&context);
        let context = if known || self.rows.len() < ROWS_MAX {
            context
        } else {
            self.refused += 1;
            KernelContext::Unknown
        };
        self.rows.entry(context).or_default()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_has_no_row_of_its_own_is_unknown_and_still_in_the_sum() {
        let mut ledger = Ledger::default();
        for pid in 0..ROWS_MAX as u32 + 3 {
            ledger.charge(KernelContext::User(pid), 2);
        }
        assert_eq!(ledger.total(), 2 * (ROWS_MAX as u64 + 3));
        assert_eq!(ledger.refused(), 3);
        assert_eq!(
            ledger.rows().next(),
            Some((KernelContext::Unknown, Row { own: 6, ..Row::default() }))
        );
    }
}
