//! Contexts of the simulator as sources of the experiment.

use std::collections::BTreeMap;

use attribution::{KernelContext, PID_UNKNOWN, SYSCALL_32};
use lab::noise::{Part, SourceName};

use super::timeline::Piece;
use crate::account::Account;
use crate::handlers::convert::context_of;

/// The sources that were met, by number.
#[derive(Default)]
pub(super) struct Names {
    pub(super) list: Vec<SourceName>,
    numbers: BTreeMap<(KernelContext, Option<KernelContext>), u32>,
}

impl Names {
    /// The part that a piece is, where `thread` is the loop's.
    pub(super) fn part(&mut self, piece: &Piece, thread: u32, account: &Account) -> Part {
        if piece.is_of(thread) {
            return Part::Own;
        }
        // A system call is told apart by who makes it.
        let of = match piece.context {
            KernelContext::Unknown => return Part::Unknown,
            KernelContext::Syscall(_) => Some(piece.foot),
            _ => None,
        };
        let next = self.list.len() as u32;
        let number = *self.numbers.entry((piece.context, of)).or_insert(next);
        if number == next {
            self.list.push(name(piece, account));
        }
        Part::Source(number)
    }
}

/// What a piece is, in words.
pub(crate) fn name(piece: &Piece, account: &Account) -> SourceName {
    if let Some(context) = context_of(piece.context, account) {
        return SourceName::Context(context);
    }
    match piece.context {
        KernelContext::Idle => SourceName::Other("idle", "idle".to_owned()),
        KernelContext::Syscall(number) => {
            let bits = if number & SYSCALL_32 != 0 { " (32 bits)" } else { "" };
            let (number, task) = (number & !SYSCALL_32, task(piece.foot, account));
            SourceName::Other("syscall", format!("{number}{bits} of {task}"))
        }
        KernelContext::User(_) | KernelContext::KernelThread(_) | KernelContext::Task(_) => {
            SourceName::Task(task(piece.context, account))
        }
        other => SourceName::Other("function", account.name_of(other)),
    }
}

/// A task by its name, or its number.
fn task(foot: KernelContext, account: &Account) -> String {
    let pid = match foot {
        KernelContext::User(pid) | KernelContext::KernelThread(pid) | KernelContext::Task(pid) => {
            pid
        }
        other => return other.to_string(),
    };
    let name = account.tasks.get(&pid).filter(|name| !name.is_empty());
    match (name, pid) {
        (Some(name), _) => name.clone(),
        (None, PID_UNKNOWN) => "a task".to_owned(),
        (None, pid) => format!("task {pid}"),
    }
}
