//! [`Session`]: moves interrupt lines, with a journal. Dropping the session restores all of them. [`Session::keep`]
//! leaves them in place until [`crate::journal::undo_kept_interrupts`] restores their former CPUs.
//!
//! Each former list of CPUs is in the journal before a line is moved. After a kill, the next start of irqlab restores
//! what the journal contains.

use std::io;
use std::path::PathBuf;

use crate::journal::{Journal, JournalError, Resource};

/// Lines that are moved. Dropping it moves them back, the last one first.
#[derive(Debug)]
pub struct Session {
    journal: Journal,
    /// Number of lines that were moved.
    moved: usize,
    restored: Vec<String>,
}

/// Why a line was not moved. The lines that were moved before it are still moved.
#[derive(Debug, thiserror::Error)]
pub enum LineRefusal {
    /// The line no longer exists.
    #[error("the line no longer exists")]
    Vanished,
    /// The kernel refuses to move the line.
    #[error("the kernel refuses ({0})")]
    Refused(io::Error),
    /// The former CPUs could not be journalled, so the line was not moved.
    #[error(transparent)]
    Journal(#[from] JournalError),
}

impl Session {
    /// Opens a session without changes.
    ///
    /// Fails if no journal can be written.
    pub fn open() -> Result<Session, JournalError> {
        Ok(Session { journal: Journal::open()?, moved: 0, restored: Vec::new() })
    }

    /// A message for each line that a killed process left moved, and that this session restored first.
    #[must_use]
    pub fn restoration_warnings(&self) -> &[String] {
        &self.restored
    }

    /// Number of lines that were moved.
    #[must_use]
    pub fn moved_count(&self) -> usize {
        self.moved
    }

    /// Moves a line to one CPU.
    ///
    /// Fails if the line is gone, another irqlab moves it, or the kernel refuses. Then the line is as before.
    pub fn move_line(&mut self, irq: u32, cpu: u32) -> Result<(), LineRefusal> {
        let path = PathBuf::from(format!("/proc/irq/{irq}/smp_affinity_list"));
        self.restored.extend(self.journal.lock(Resource::setting(&path))?);
        let former = std::fs::read_to_string(&path).map_err(refusal)?;
        self.journal.will_write(&path, former.trim())?;
        if let Err(error) = std::fs::write(&path, cpu.to_string()) {
            // A refused write changed nothing, so there is nothing to undo.
            self.journal.forget(&path)?;
            return Err(refusal(error));
        }
        self.moved += 1;
        Ok(())
    }

    /// Ends the session and leaves the lines in place. `what` describes the change for a reader.
    ///
    /// Fails if the journal cannot be written. Then all lines are moved back.
    pub fn keep(self, what: &str) -> Result<(), JournalError> {
        self.journal.keep_interrupts(what)
    }
}

fn refusal(error: io::Error) -> LineRefusal {
    match error.kind() {
        io::ErrorKind::NotFound => LineRefusal::Vanished,
        _ => LineRefusal::Refused(error),
    }
}
