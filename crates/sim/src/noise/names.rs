//! Numbers the contexts of a window, and collects their names. A sample refers to contexts by number.

use std::collections::BTreeMap;

use attribution::KernelContext;
use lab::noise::{ContextName, Part};

use super::timeline::Piece;
use crate::accounting::Accounting;
use crate::contexts::source_name;
use crate::sent_interrupts::{SentNames, SentOnCpu};

/// The contexts that occurred, by number.
#[derive(Default)]
pub(super) struct Names<'a> {
    pub(super) list: Vec<ContextName>,
    numbers: BTreeMap<(KernelContext, Option<KernelContext>), u32>,
    /// The names of interrupts with their senders. `None`: interrupts are named without senders.
    sent: Option<SentNames<'a>>,
}

impl<'a> Names<'a> {
    pub(super) fn with_senders(sent: Option<SentNames<'a>>) -> Names<'a> {
        Names { sent, ..Names::default() }
    }

    /// Returns the part of a detour that a piece belongs to, whoever sent its interrupt. A new context gets the next number.
    /// `thread`: the loop's thread.
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

    /// Divides a piece of a detour into parts, with their lengths in ns, which add up to the piece. An interrupt from other CPUs
    /// has a part for each sender. `interrupts`: the interrupts of the piece's CPU.
    pub(super) fn parts(
        &mut self,
        piece: &Piece,
        thread: u32,
        interrupts: SentOnCpu<'_>,
        account: &Accounting,
    ) -> Vec<(Part, u64)> {
        let mut parts: Vec<(Part, u64)> = Vec::new();
        for (sent, length_ns) in interrupts.split(piece.context, piece.from_ns, piece.to_ns) {
            let names = self.sent.as_mut();
            let number = names.and_then(|names| names.number(piece.context, sent, &mut self.list));
            let part = number.map_or_else(|| self.part(piece, thread, account), Part::Context);
            match parts.last_mut() {
                Some(last) if last.0 == part => last.1 += length_ns,
                _ => parts.push((part, length_ns)),
            }
        }
        parts
    }

    /// The names of all contexts, by number, and a warning if senders share a name.
    pub(super) fn finish(mut self) -> (Vec<ContextName>, Option<String>) {
        let warning = self.sent.and_then(|sent| sent.finish(&mut self.list));
        (self.list, warning)
    }
}
