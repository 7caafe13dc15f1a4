//! `irqlab affinity --apply` and `--undo`: move interrupt lines, and give them their former CPUs.

use std::process::ExitCode;

use anyhow::{Context, bail};
use lab::affinity::{AppliedChange, Placement};
use live::irq_lines::{IrqLine, LineRefusal, Session, has_rights};
use live::journal::{self, JournalError};

use crate::console;
use crate::run::NothingSet;

/// Remedy for missing rights to move lines.
const RIGHTS: &str =
    "run it as root (the files in /proc/irq are root's, and /proc must be writable)";

/// The outcome of moving lines.
pub struct Applied {
    /// The lines of the plan, by number.
    pub changes: Vec<(u32, AppliedChange)>,
    pub moved_count: usize,
    pub warnings: Vec<String>,
}

/// Checks that this process may move lines.
///
/// Fails with [`NothingSet`] if it may not.
pub fn check_rights(lines: &[IrqLine]) -> anyhow::Result<()> {
    has_rights(lines.iter().map(|line| line.affinity.number)).map_err(|error| {
        let reason = format!("the CPUs of interrupt lines cannot be set: {error}");
        NothingSet { reason, remedy: Some(RIGHTS.to_owned()) }.into()
    })
}

/// Moves the lines of a plan. The lines stay moved after irqlab has ended: the journal keeps their former CPUs. A line that
/// the kernel refuses to move stays where it is.
///
/// Fails if the former CPUs cannot be journalled, or another irqlab moves a line. Then all lines are as before.
pub fn apply(placements: &[Placement]) -> anyhow::Result<Applied> {
    let nothing_set = |error: &JournalError| {
        let remedy = match error {
            JournalError::Busy { .. } => None,
            _ => Some(RIGHTS.to_owned()),
        };
        NothingSet { reason: error.to_string(), remedy }
    };
    let mut session = Session::open().map_err(|error| nothing_set(&error))?;
    let mut changes = Vec::new();
    for placement in placements {
        let Some(cpu) = placement.target else { continue };
        let change = match session.move_line(placement.irq, cpu) {
            Ok(()) => AppliedChange::Done,
            Err(LineRefusal::Journal(error)) => bail!(nothing_set(&error)),
            Err(error) => AppliedChange::Refused(error.to_string()),
        };
        changes.push((placement.irq, change));
    }
    let restored = session.restoration_warnings().iter();
    let warnings = restored.map(|change| format!("leftovers of a killed run: {change}")).collect();
    let moved_count = session.moved_count();
    session.keep("the CPUs of interrupt lines").context("no line was moved")?;
    Ok(Applied { changes, moved_count, warnings })
}

/// Gives the lines that `--apply` moved their former CPUs, and prints which.
pub fn undo() -> anyhow::Result<ExitCode> {
    let undone = journal::undo_kept_interrupts();
    for setting in &undone.restored {
        console::print(&format!("restored {}\n", report::escape::plain(setting)))?;
    }
    for failure in &undone.failed {
        console::warn(failure);
    }
    if !undone.failed.is_empty() {
        bail!("not everything was restored ({RIGHTS})");
    }
    if undone.journals == 0 {
        let others = journal::kept_by_others();
        if !others.is_empty() {
            let reason = format!("the changes were made by {}", others.join(", "));
            let remedy = Some("sudo irqlab affinity --undo".to_owned());
            bail!(NothingSet { reason, remedy });
        }
        console::print("there is nothing to restore\n")?;
    } else if undone.restored.is_empty() {
        console::print("the lines have their former CPUs already, or are gone\n")?;
    }
    Ok(ExitCode::SUCCESS)
}
