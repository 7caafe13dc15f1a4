//! Contexts of the simulator as sources of the experiment.

use std::collections::BTreeMap;

use attribution::KernelContext;
use lab::noise::{Part, SourceName};

use super::timeline::Piece;
use crate::accounting::Accounting;
use crate::contexts::source_name;

/// The sources that were met, by number.
#[derive(Default)]
pub(super) struct Names {
    pub(super) list: Vec<SourceName>,
    numbers: BTreeMap<(KernelContext, Option<KernelContext>), u32>,
}

impl Names {
    /// The part that a piece is, where `thread` is the loop's.
    pub(super) fn part(&mut self, piece: &Piece, thread: u32, account: &Accounting) -> Part {
        if piece.is_of(thread) {
            return Part::Own;
        }
        // A system call is told apart by who makes it.
        let of = match piece.context {
            KernelContext::Unknown => return Part::Unknown,
            KernelContext::Syscall(_) => Some(piece.task),
            _ => None,
        };
        let next = self.list.len() as u32;
        let number = *self.numbers.entry((piece.context, of)).or_insert(next);
        if number == next {
            self.list.push(source_name(piece.context, piece.task, account));
        }
        Part::Source(number)
    }
}
