//! What goes to the terminal, and the exit codes.

use std::io::{self, IsTerminal, Write};
use std::path::Path;
use std::process::ExitCode;

use anyhow::Context;
use record::{Run, Table};
use report::TerminalOptions;

use crate::args::{Format, Usage};

/// Exit code of an error.
const FAILED: u8 = 1;
/// Exit code of an error in what was typed.
const USAGE: u8 = 2;
/// Exit code when nothing can be measured here.
const NOTHING_MEASURABLE: u8 = 4;

/// Prints an error with its causes; usage errors end in 2, others in 1.
pub fn failure(error: &anyhow::Error) -> ExitCode {
    eprintln!("irqlab: {}", report::escape::lines(&with_causes(error)));
    let usage = error.downcast_ref::<Usage>().is_some();
    ExitCode::from(if usage { USAGE } else { FAILED })
}

/// The error and its causes; a cause that the words before it end in is not said twice.
fn with_causes(error: &anyhow::Error) -> String {
    let mut words = String::new();
    for cause in error.chain().map(ToString::to_string) {
        if words.is_empty() {
            words = cause;
        } else if !words.ends_with(&cause) {
            words = format!("{words}: {cause}");
        }
    }
    words
}

/// Says why nothing can be measured, and what unlocks it.
pub fn nothing(reason: &str, remedy: Option<&str>) -> ExitCode {
    eprintln!("irqlab: nothing can be measured: {}", report::escape::lines(reason));
    if let Some(remedy) = remedy {
        eprintln!("to unlock it:\n  {}", report::escape::plain(remedy));
    }
    ExitCode::from(NOTHING_MEASURABLE)
}

/// A line of progress or news, on stderr.
pub fn say(quiet: bool, text: &str) {
    if !quiet {
        eprintln!("{}", report::escape::plain(text));
    }
}

/// Whether progress should be shown.
pub fn shows_progress(quiet: bool) -> bool {
    !quiet && io::stderr().is_terminal()
}

/// Writes results to stdout; a reader that has seen enough is no error.
///
/// # Errors
/// When stdout cannot be written, as on a full disk.
pub fn print(text: &str) -> anyhow::Result<()> {
    let mut out = io::stdout().lock();
    match out.write_all(text.as_bytes()).and_then(|()| out.flush()) {
        Err(error) if error.kind() == io::ErrorKind::BrokenPipe => Ok(()),
        written => written.context("cannot write to standard output"),
    }
}

/// The whole run, which is (or will be) in `directory`; in CSV the one table that the format has
/// room for.
pub fn run_text(
    run: &Run,
    directory: &Path,
    format: Format,
    main_table: &str,
    all_rows: bool,
) -> String {
    match format {
        Format::Table => report::terminal(run, terminal_options(directory, all_rows)),
        Format::Json => report::json(run),
        Format::Csv => run.table(main_table).map(report::csv).unwrap_or_default(),
        Format::Markdown => report::markdown_run(run),
    }
}

/// One table.
pub fn table_text(run: &Run, directory: &Path, table: &Table, format: Format) -> String {
    let alone = Run { tables: vec![table.clone()], ..run.clone() };
    match format {
        Format::Table => report::terminal(&alone, terminal_options(directory, true)),
        Format::Json => report::json(&alone),
        Format::Csv => report::csv(table),
        Format::Markdown => report::markdown(table),
    }
}

fn terminal_options(directory: &Path, all_rows: bool) -> TerminalOptions {
    let stdout = io::stdout();
    let is_terminal = stdout.is_terminal();
    let from_terminal = || rustix::termios::tcgetwinsize(&stdout).ok().map(|size| size.ws_col);
    let from_environment = || std::env::var("COLUMNS").ok()?.parse().ok();
    let width = if is_terminal { from_terminal().filter(|width| *width > 0) } else { None };
    TerminalOptions {
        width: width.or_else(from_environment).or(Some(120)),
        color: is_terminal && std::env::var_os("NO_COLOR").is_none(),
        all_rows,
        run_dir: Some(directory.display().to_string()),
    }
}
