//! Where the text of a guest goes: the output of its command, as it was written, and its console.

use std::cell::{Cell, RefCell};
use std::io::{self, Write};
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use anyhow::{Context, bail};
use outputs::NewFile;
use sim::{GuestText, Stream};

use crate::console;
use crate::output_file::{self, ForceArgs};

/// Where the console goes.
pub enum ConsoleOutput {
    /// Nowhere.
    Dropped,
    /// To stderr. A failure is ignored: the console is no result there.
    Stderr,
    /// To stdout, as in a shell.
    Stdout,
    /// To a file, which gets its name by [`TextOutput::finish`].
    File { path: PathBuf, file: Box<RefCell<NewFile>>, failure: Cell<Option<io::Error>> },
}

impl ConsoleOutput {
    /// The console goes to a new file at `path`.
    ///
    /// Fails when the file cannot be written, or exists and may not be replaced.
    pub fn file(path: &Path, force: ForceArgs) -> anyhow::Result<ConsoleOutput> {
        let file = Box::new(RefCell::new(output_file::create(path, force)?));
        Ok(ConsoleOutput::File { path: path.to_owned(), file, failure: Cell::new(None) })
    }
}

/// Writes the text of a guest, above the progress lines.
pub struct TextOutput {
    console: ConsoleOutput,
    /// Whether stdout is for results. Then the command's output goes to stderr.
    has_results: bool,
    /// The first error of stdout. Afterwards nothing is written there.
    failure: RefCell<Option<io::Error>>,
}

impl TextOutput {
    /// `has_results`: whether stdout is for results, so that the command's output goes to stderr.
    pub fn new(console: ConsoleOutput, has_results: bool) -> TextOutput {
        TextOutput { console, has_results, failure: RefCell::new(None) }
    }

    /// The console on stdout, for a shell.
    pub fn to_terminal() -> TextOutput {
        TextOutput::new(ConsoleOutput::Stdout, false)
    }

    /// Passes bytes on, and keeps the first error.
    pub fn write(&self, text: GuestText<'_>) {
        match (text.stream, &self.console) {
            (Stream::Console, ConsoleOutput::Dropped) => {}
            (Stream::Console, ConsoleOutput::File { file, failure, .. }) => {
                let write = || file.borrow_mut().write_all(text.bytes).err();
                let error = failure.take().or_else(write);
                failure.set(error);
            }
            (Stream::Console, ConsoleOutput::Stdout) => self.to_stdout(text.bytes),
            (Stream::Stdout, _) if !self.has_results => self.to_stdout(text.bytes),
            (Stream::Console | Stream::Stdout | Stream::Stderr, _) => {
                // Results do not depend on stderr, so its failure is ignored.
                let _ = console::above_progress(|| io::stderr().write_all(text.bytes));
            }
        }
    }

    fn to_stdout(&self, bytes: &[u8]) {
        if self.has_failed() {
            return;
        }
        let written = console::above_progress(|| {
            let mut out = io::stdout().lock();
            out.write_all(bytes).and_then(|()| out.flush())
        });
        *self.failure.borrow_mut() = written.err();
    }

    /// Whether stdout could not be written.
    pub fn has_failed(&self) -> bool {
        self.failure.borrow().is_some()
    }

    /// Takes the error of stdout. Returns the exit code of irqlab if the reader of stdout closed the pipe, and `None`
    /// if stdout could be written.
    ///
    /// Fails when stdout could not be written for another reason.
    pub fn end(&self) -> anyhow::Result<Option<ExitCode>> {
        match self.failure.take() {
            None => Ok(None),
            Some(error) if error.kind() == io::ErrorKind::BrokenPipe => Ok(Some(ExitCode::SUCCESS)),
            Some(error) => Err(error).context("cannot write to standard output"),
        }
    }

    /// Gives the file of the console its name, after the machine has ended. Does nothing for a console elsewhere.
    ///
    /// Fails when the console could not be written to the file, or the file cannot get its name. Then there is no file.
    pub fn finish(self) -> anyhow::Result<()> {
        let ConsoleOutput::File { path, file, failure } = self.console else { return Ok(()) };
        let finished = failure.into_inner().map_or_else(|| file.into_inner().finish(), Err);
        if let Err(error) = finished {
            bail!("cannot write {}: {error}", path.display());
        }
        Ok(())
    }
}
