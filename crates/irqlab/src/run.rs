//! What all verbs that measure have in common: the output directory is opened before anything is
//! measured; the run is printed, recorded with its attachments, and its place is named; outcomes and
//! errors become exit codes.

use std::io::{self, Write};
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;

use anyhow::{Context, bail};
use lab::experiment::{self, BenchError, Experiment, Outcome, RunContext};
use live::host::{Root, diagnose, diagnosis, host_facts};
use live::selfbench::tracefs::{self, Tracefs};
use live::window::Stop;
use record::{Attachment, InMemory, Rows, Run, Table, Timestamp, WriteError};
use report::{CsvRows, CsvText, TerminalOptions};
use serde_json::{Map, Value as Json};
use signal_hook::consts::{SIGHUP, SIGINT, SIGQUIT, SIGTERM};
use sim::SimError;

use crate::console::{self, ProgressLine, Redraw};
use crate::options::{Format, FormatArgs, OptionalResultArgs, ResultArgs, Usage};

/// Exit code of an error.
const FAILED: u8 = 1;
/// Exit code of a mistake in what was typed.
const USAGE: u8 = 2;
/// Exit code when runs that should be the same differ.
pub const DIFFERS: u8 = 3;
/// Exit code when nothing can be measured here.
const NOTHING_MEASURABLE: u8 = 4;
/// Exit code when a simulated machine reached the limit on its time, as that of `timeout`.
const STATUS_LIMIT: u8 = sim::boot::STATUS_LIMIT;
/// Exit code of a run that is whole but for events that were lost.
const EVENTS_LOST: u8 = 5;

/// The error message of a run that was stopped before it had results.
pub const STOPPED: &str = "stopped before anything was measured; nothing was written";

/// Prints a list of what irqlab knows, which is no run: as text or as one JSON array.
pub fn print_list(format: Format, text: &str, rows: Vec<Json>) -> anyhow::Result<ExitCode> {
    match format {
        Format::Table => console::print(text)?,
        Format::Json => console::print(&format!("{:#}\n", Json::Array(rows)))?,
        Format::Csv | Format::Markdown => {
            bail!(Usage("a list is printed as text or with --json".to_owned()));
        }
    }
    Ok(ExitCode::SUCCESS)
}

/// Where runs are written unless `--out` is given.
const RUNS: &str = "irqlab-runs";
/// Names that are tried for a run's directory while others take them.
const NAMES_MAX: u32 = 100;

/// Prints an error with its causes; gives its exit code.
pub fn failure(error: &anyhow::Error) -> ExitCode {
    for cause in error.chain() {
        match (cause.downcast_ref::<BenchError>(), cause.downcast_ref::<SimError>()) {
            (
                Some(
                    BenchError::NothingMeasurable { reason, remedy }
                    | BenchError::Unavailable { reason, remedy },
                ),
                _,
            ) => return nothing(reason, remedy.as_deref()),
            (_, Some(SimError::Missing { what, remedy })) => return nothing(what, Some(remedy)),
            _ => {}
        }
        if let Some(NothingSet { reason, remedy }) = cause.downcast_ref() {
            return impossible(&format!("nothing is set: {reason}"), remedy.as_deref());
        }
    }
    console::warn(&with_causes(error));
    let is_limit = |cause: &(dyn std::error::Error + 'static)| {
        matches!(cause.downcast_ref(), Some(BenchError::TimeLimit(_)))
            || matches!(cause.downcast_ref(), Some(SimError::TimeLimit { .. }))
    };
    if error.chain().any(is_limit) {
        return ExitCode::from(STATUS_LIMIT);
    }
    let is_usage = |cause: &(dyn std::error::Error + 'static)| {
        cause.is::<Usage>() || matches!(cause.downcast_ref(), Some(SimError::Invalid(_)))
    };
    ExitCode::from(if error.chain().any(is_usage) { USAGE } else { FAILED })
}

/// The error and its causes; a cause that the words before it end in is not printed twice.
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

/// What was to be set cannot be set here: exit code 4.
#[derive(Debug, thiserror::Error)]
#[error("nothing is set: {reason}")]
pub struct NothingSet {
    /// Why.
    pub reason: String,
    /// The command that unlocks it, where there is one.
    pub remedy: Option<String>,
}

/// Says why nothing can be measured, and what unlocks it.
fn nothing(reason: &str, remedy: Option<&str>) -> ExitCode {
    impossible(&format!("nothing can be measured: {reason}"), remedy)
}

fn impossible(what: &str, remedy: Option<&str>) -> ExitCode {
    console::warn(what);
    if let Some(remedy) = remedy {
        console::to_stderr(&format!("to unlock it:\n  {}\n", report::escape::plain(remedy)));
    }
    ExitCode::from(NOTHING_MEASURABLE)
}

/// The remedy of a bench that is unavailable, or the one for missing rights.
pub fn with_remedy_for_rights(error: BenchError) -> BenchError {
    match error {
        BenchError::Unavailable { reason, remedy }
        | BenchError::NothingMeasurable { reason, remedy } => {
            let remedy = remedy.or_else(|| unlock(diagnosis::RIGHTS));
            BenchError::NothingMeasurable { reason, remedy }
        }
        error => error,
    }
}

/// The line that unlocks a subject of `irqlab doctor` on this machine.
fn unlock(subject: &str) -> Option<String> {
    let findings = diagnose(&host_facts(&Root::default()));
    findings.into_iter().find(|finding| finding.subject == subject)?.unlock
}

/// A stop that Ctrl-C, Ctrl-\, SIGTERM and the terminal's hang-up request; a second one ends the program at
/// once. A hang-up that is ignored, as under nohup(1), stays ignored.
pub fn stop_on_signals() -> anyhow::Result<Stop> {
    let stop = Stop::new().context("cannot create a pipe")?;
    let was_requested = Arc::new(AtomicBool::new(false));
    let ends = [SIGINT, SIGQUIT, SIGTERM];
    let hang_up = (!is_ignored(SIGHUP)).then_some(SIGHUP);
    for signal in ends.into_iter().chain(hang_up) {
        let writer = stop.writer().context("cannot create a pipe")?;
        signal_hook::flag::register_conditional_default(signal, Arc::clone(&was_requested))
            .and_then(|_| signal_hook::flag::register(signal, Arc::clone(&was_requested)))
            .and_then(|_| signal_hook::low_level::pipe::register(signal, writer))
            .context("cannot handle signals")?;
    }
    Ok(stop)
}

/// Whether this process was started with a signal ignored (SigIgn in proc_pid_status(5)).
fn is_ignored(signal: i32) -> bool {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let ignored = status.lines().find_map(|line| line.strip_prefix("SigIgn:"));
    let mask = ignored.and_then(|mask| u64::from_str_radix(mask.trim(), 16).ok()).unwrap_or(0);
    mask >> (signal - 1) & 1 == 1
}

/// Undoes what earlier runs changed that were killed, and says so.
pub fn restore_after_killed_runs() {
    let mut messages = live::journal::replay_dead();
    if let Ok(tracefs) = Tracefs::find() {
        messages.extend(tracefs::remove_leftovers(&tracefs));
    }
    for directory in [Path::new(RUNS), &std::env::temp_dir()] {
        let removed = outputs::remove_leftovers(directory).into_iter();
        messages.extend(removed.map(|path| format!("removed {}", path.display())));
    }
    for message in messages {
        console::say(&format!("left by a run that was killed: {message}"));
    }
}

/// A run that can be written: its directory has been tried.
pub struct OpenRun {
    directory: Option<PathBuf>,
    /// What the directory is named for, where its name was not given by the user.
    default_name: Option<String>,
    printing: FormatArgs,
    started: Timestamp,
    main_table: Option<String>,
    /// Directories created for the run. Those that are still empty at the end are removed.
    created: Vec<PathBuf>,
}

impl Drop for OpenRun {
    fn drop(&mut self) {
        for directory in &self.created {
            // With a run in it, of this process or another, it is not empty, and stays.
            let _ = std::fs::remove_dir(directory);
        }
    }
}

impl OpenRun {
    /// A run that is recorded, in `--out` or in a new directory of `irqlab-runs`.
    ///
    /// # Errors
    /// When nothing can be written there: better now than after the minutes of measuring.
    pub fn new(verb: &str, results: &ResultArgs) -> anyhow::Result<OpenRun> {
        let started = record::now();
        let in_runs = || record::default_dir(Path::new(RUNS), verb, started);
        let directory = results.out.clone().unwrap_or_else(in_runs);
        let mut open = OpenRun::open(Some(directory), &results.printing, started)?;
        open.default_name = results.out.is_none().then(|| verb.to_owned());
        Ok(open)
    }

    /// A run that is recorded where `--out` was given, and printed in any case.
    ///
    /// # Errors
    /// As [`OpenRun::new`].
    pub fn if_asked(results: &OptionalResultArgs) -> anyhow::Result<OpenRun> {
        OpenRun::open(results.out.clone(), &results.printing, record::now())
    }

    fn open(
        directory: Option<PathBuf>,
        printing: &FormatArgs,
        started: Timestamp,
    ) -> anyhow::Result<OpenRun> {
        let created = directory.as_deref().map(try_directory).transpose()?.unwrap_or_default();
        let (printing, main_table, default_name) = (printing.clone(), None, None);
        Ok(OpenRun { directory, default_name, printing, started, main_table, created })
    }

    /// Chooses the table that CSV prints, unless another one is asked for [default: the first].
    pub fn set_main_table(&mut self, name: &str) {
        self.main_table = Some(name.to_owned());
    }

    /// When the run started.
    pub fn started(&self) -> Timestamp {
        self.started
    }

    /// The directory that the run will have; `RUN` where none was asked for.
    pub fn directory(&self) -> &Path {
        self.directory.as_deref().unwrap_or(Path::new("RUN"))
    }

    /// What is known of the run before anything is measured.
    pub fn context(&self, host: Map<String, Json>, mut settings: Map<String, Json>) -> RunContext {
        settings.extend(command_line());
        RunContext { started_utc: self.started.to_string(), host, settings }
    }

    /// Measures a plan, and finishes the run with what `attachments` makes of it.
    ///
    /// # Errors
    /// When nothing was measured, or as [`OpenRun::finish`].
    pub fn measure<E: Experiment>(
        &self,
        plan: &E,
        context: RunContext,
        bench: &mut E::Bench,
        redraw: Redraw,
        attachments: impl FnOnce(&Run, &E::Samples) -> Vec<Attachment>,
    ) -> anyhow::Result<(ExitCode, Box<Run>)> {
        let mut progress = ProgressLine::new(redraw);
        let outcome = experiment::run(plan, context, bench, &mut progress);
        drop(progress);
        match outcome? {
            Outcome::Run { run, samples } => {
                let exit = self.finish(&run, &attachments(&run, &samples))?;
                Ok((exit, run))
            }
            Outcome::NothingMeasurable { reason, remedy } => {
                bail!(BenchError::NothingMeasurable { reason, remedy })
            }
            Outcome::Stopped => bail!(STOPPED),
        }
    }

    /// Prints the run, records it with its attachments, and says where it is.
    ///
    /// # Errors
    /// When nothing was measured, or the run can be neither printed nor recorded.
    pub fn finish(&self, run: &Run, attachments: &[Attachment]) -> anyhow::Result<ExitCode> {
        if run.tables.iter().all(|table| table.rows().is_empty()) {
            return nothing_measured(run);
        }
        // Recorded first, because the tables name the directory; and printed also where it cannot be recorded.
        let recorded = self.record(run, attachments);
        let directory = recorded.as_ref().ok().and_then(Option::as_deref);
        let printed = self.print(run, directory.unwrap_or(self.directory()));
        if let Some(directory) = recorded? {
            say_where(&directory, attachments);
        }
        printed?;
        Ok(self.exit_code(run))
    }

    fn print(&self, run: &Run, directory: &Path) -> anyhow::Result<()> {
        let main_table = self.main_table.as_deref();
        console::print(&text(run, directory, &self.printing, main_table)?)
    }

    /// Records the run. Returns its directory: a run that started in the same second may have taken the name
    /// that was free then.
    fn record(&self, run: &Run, attachments: &[Attachment]) -> anyhow::Result<Option<PathBuf>> {
        let Some(mut directory) = self.directory.clone() else { return Ok(None) };
        let mut written = record::write_run(run, attachments, &directory);
        for _ in 0..NAMES_MAX {
            let (Err(WriteError::Exists { .. }), Some(verb)) = (&written, &self.default_name)
            else {
                break;
            };
            directory = record::default_dir(Path::new(RUNS), verb, self.started);
            written = record::write_run(run, attachments, &directory);
        }
        written.context("the results above are not recorded (--out writes elsewhere)")?;
        Ok(Some(directory))
    }

    /// The exit code of a run that is printed and recorded.
    fn exit_code(&self, run: &Run) -> ExitCode {
        let number = |map: &Map<String, Json>, key: &str| {
            map.get(key).and_then(Json::as_u64).filter(|number| *number > 0)
        };
        if number(&run.settings, "broken").is_some() {
            console::warn("broken: do not use these tables (see the warnings)");
            return ExitCode::from(FAILED);
        }
        let lost = number(&run.observer, "events_lost");
        if let Some(lost) = lost {
            console::warn(&format!("{lost} events were lost: counts are too low by that much"));
        }
        if let Some(limit) = run.settings.get(experiment::TIME_LIMIT).and_then(Json::as_str) {
            console::warn(limit);
            return ExitCode::from(STATUS_LIMIT);
        }
        match command_status(run) {
            Some(status @ 1..) => ExitCode::from(status),
            _ if lost.is_some() => ExitCode::from(EVENTS_LOST),
            _ => ExitCode::SUCCESS,
        }
    }
}

/// The setting that holds the command that made the run.
pub const COMMAND_LINE: &str = "command_line";

/// Options that say how a run is made or where it goes, and not what it is: with their value, and without.
const NOT_OF_THE_RUN: [(&[&str], bool); 8] = [
    (&["--out"], true),
    (&["-j", "--jobs"], true),
    (&["--color"], true),
    (&["--format"], true),
    (&["--table"], true),
    (&["-q", "--quiet", "-v", "--verbose"], false),
    (&["--json", "--all"], false),
    (&["--force"], false),
];

/// Says where a run is.
fn say_where(directory: &Path, attachments: &[Attachment]) {
    let directory = directory.display();
    for attachment in attachments {
        console::say(&format!("{}: {directory}/{0}", attachment.name));
    }
    let more = "the same again, other tables and formats: irqlab show";
    console::say(&format!("run: {directory}  ({more} {directory})"));
}

/// The command that makes a run like this one, as a setting of it. The program goes by its name: where it lies
/// is of no use elsewhere.
pub fn command_line() -> Option<(String, Json)> {
    let words = std::env::args_os().skip(1).map(|word| word.to_string_lossy().into_owned());
    let words = ["irqlab".to_owned()].into_iter().chain(of_the_run(words));
    let words: Vec<String> = words.collect();
    let line = shlex::try_join(words.iter().map(String::as_str)).ok()?;
    Some((COMMAND_LINE.to_owned(), line.into()))
}

/// The words without those options; what is after `--` is another program's.
fn of_the_run(words: impl Iterator<Item = String>) -> Vec<String> {
    let (mut kept, mut is_value, mut is_theirs) = (Vec::new(), false, false);
    for word in words {
        if std::mem::take(&mut is_value) {
            continue;
        }
        is_theirs |= word == "--";
        let name = word.split('=').next().unwrap_or(&word);
        let found = NOT_OF_THE_RUN.iter().find(|(names, _)| names.contains(&name) && !is_theirs);
        match found {
            Some((_, has_value)) => is_value = *has_value && name == word,
            None => kept.push(word),
        }
    }
    kept
}

/// Says why a run has no rows: it was stopped, or everything in it is absent for a reason.
fn nothing_measured(run: &Run) -> anyhow::Result<ExitCode> {
    if run.absent.is_empty() {
        bail!(STOPPED);
    }
    let reasons = run.absent.iter().map(|one| format!("{}: {}", one.what, one.reason));
    let remedy = run.absent.iter().find_map(|one| one.remedy.as_deref());
    Ok(nothing(&reasons.collect::<Vec<_>>().join("; "), remedy))
}

/// The exit status of the command that was measured, as a shell gives it.
fn command_status(run: &Run) -> Option<u8> {
    let conditions = run.settings.get("conditions")?.as_object()?;
    let status = conditions.values().find_map(|one| one.get("command_status")?.as_u64())?;
    Some(u8::try_from(status).unwrap_or(FAILED))
}

/// Creates what is missing above the directory, and tries whether one can be created there; gives
/// what was created.
fn try_directory(directory: &Path) -> anyhow::Result<Vec<PathBuf>> {
    if directory.symlink_metadata().is_ok() {
        let directory = directory.display();
        bail!(Usage(format!("{directory} exists already; a run never replaces one (--out)")));
    }
    let parent = match directory.parent() {
        Some(parent) if parent != Path::new("") => parent,
        _ => Path::new("."),
    };
    for removed in record::remove_leftovers(parent) {
        let removed = removed.display();
        console::say(&format!("removed what a killed run had half written: {removed}"));
    }
    let missing = parent.ancestors().filter(|dir| !dir.as_os_str().is_empty() && !dir.exists());
    let missing: Vec<PathBuf> = missing.map(Path::to_owned).collect();
    let tried = std::fs::create_dir_all(parent).and_then(|()| outputs::can_create_in(parent));
    if let Err(error) = tried {
        missing.iter().for_each(|dir| drop(std::fs::remove_dir(dir)));
        let parent = parent.display();
        bail!(Usage(format!("cannot write runs into {parent}: {error} (--out writes elsewhere)")));
    }
    Ok(missing)
}

/// A run, which is (or will be) in `directory`, as the options ask for it; as CSV, its main table or
/// the first.
///
/// # Errors
/// When it has no table of the name that was asked for.
pub fn text(
    run: &Run,
    directory: &Path,
    printing: &FormatArgs,
    main_table: Option<&str>,
) -> anyhow::Result<String> {
    let all_rows = printing.all || printing.table.is_some();
    let one;
    let selected = match &printing.table {
        Some(name) => {
            one = run.with_tables(vec![table(run, name)?.clone()]);
            &one
        }
        None => run,
    };
    Ok(match printing.format() {
        Format::Table => report::terminal(selected, terminal_options(directory, all_rows)),
        Format::Json => report::json(selected),
        Format::Csv => {
            let mut text = Vec::new();
            write_csv(&mut text, selected, &InMemory, (main_table, printing.all))?;
            String::from_utf8_lossy(&text).into_owned()
        }
        Format::Markdown => match &selected.tables[..] {
            [only] if printing.table.is_some() => report::markdown(only),
            _ => report::markdown_run(selected),
        },
    })
}

/// The table of that name.
///
/// # Errors
/// When there is none.
pub fn table<'a>(run: &'a Run, name: &str) -> Result<&'a Table, Usage> {
    run.table(name).ok_or_else(|| {
        let names: Vec<&str> = run.tables.iter().map(|table| table.name.as_str()).collect();
        Usage(format!("no table {name:?} in this run; it has: {}", names.join(", ")))
    })
}

/// Writes one table as CSV, row by row. What the format has no room for is named on stderr.
///
/// # Errors
/// Those of the writer, and of the rows.
pub fn write_csv(
    out: &mut dyn Write,
    run: &Run,
    rows: &dyn Rows,
    (main_table, all_rows): (Option<&str>, bool),
) -> io::Result<()> {
    let tables = || run.tables.iter().filter(|table| table.row_count() > 0);
    let main = main_table.and_then(|name| tables().find(|table| table.name == name));
    let Some(main) = main.or_else(|| tables().next()) else { return Ok(()) };
    let which = if all_rows { CsvRows::All } else { CsvRows::Sums };
    let left_out = report::write_csv(out, main, rows, (which, CsvText::Guarded))?;
    let omissions = report::csv_omissions(run, main, left_out);
    if !omissions.is_empty() {
        console::say(&format!("csv: table {}; left out: {omissions}", main.name));
    }
    Ok(())
}

fn terminal_options(directory: &Path, all_rows: bool) -> TerminalOptions {
    TerminalOptions {
        width: Some(console::width()),
        color: console::has_color(),
        all_rows,
        run_dir: Some(directory.display().to_string()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_command_line_is_what_makes_the_run() {
        let of = |line: &str| of_the_run(line.split(' ').map(str::to_owned)).join(" ");
        assert_eq!(of("noise --out a -c 1 -q --jobs=2 -j 3 --json -d 1s"), "noise -c 1 -d 1s");
        assert_eq!(
            of("handlers --on sim -- make -j 4 --out x"),
            "handlers --on sim -- make -j 4 --out x"
        );
    }
}
