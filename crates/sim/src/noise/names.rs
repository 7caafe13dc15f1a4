//! Numbers the contexts of a window, and collects their names. A sample refers to contexts by number.

use std::collections::BTreeMap;

use attribution::KernelContext;
use lab::noise::{ContextName, Part};

use super::timeline::Piece;
use crate::accounting::Accounting;
use crate::contexts::source_name;

/// The contexts that occurred, by number.
#[derive(Default)]
pub(super) struct Names {
    pub(super) list: Vec<ContextName>,
    numbers: BTreeMap<(KernelContext, Option<KernelContext>), u32>,
}

impl Names {
    /// Returns the part of a detour that a piece belongs to. A new context gets the next number. `thread`: the loop's
    /// thread.
    pub(super) fn part(&mut self, piece: &Piece, thread: u32, account: &Accounting) -> Part {
        if piece.is_of(thread) {
            return Part::Own;
        }
        // System calls are distinguished by the task that makes them.
        let task = match piece.context {
            KernelContext::Unknown => return Part::Unknown,
            KernelContext::Syscall(_) => Some(piece.task),
            _ => None,
        };
        let next = self.list.len() as u32;
        let number = *self.numbers.entry((piece.context, task)).or_insert(next);
        if number == next {
            self.list.push(source_name(piece.context, piece.task, account));
        }
        Part::Context(number)
    }
}
