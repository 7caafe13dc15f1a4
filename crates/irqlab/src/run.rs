//! The steps that all measuring verbs share: from the output directory to the exit code.
//!
//! An [`OpenRun`] checks its directory before a verb measures. Afterwards it prints and records the run, and names the
//! directory. [`failure`] turns errors into exit codes; docs and tests quote the codes.

use std::io::{self, Write};
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;

use anyhow::{Context, bail};
use lab::experiment::{self, BenchError, Experiment, Outcome, RunContext};
use lab::flight_table;
use live::host::remedy_for_tracing_rights;
use live::selfbench::tracefs::{self, Tracefs};
use live::window::Stop;
use outputs::{MakeDirectoryError, Reservation};
use record::{Absence, Attachment, InMemory, Rows, Run, Table, Timestamp, WriteError, keys};
use report::{CsvRows, CsvText, TerminalOptions};
use serde_json::{Map, Value as Json};
use signal_hook::consts::{SIGHUP, SIGINT, SIGQUIT, SIGTERM};
use sim::SimError;

use crate::console::{self, ProgressLine, Redraw};
use crate::options::{Format, FormatArgs, OptionalResultArgs, ResultArgs, Usage};

/// Exit code of an error.
const FAILED: u8 = 1;
/// Exit code of a wrong command line.
const USAGE: u8 = 2;
/// Exit code when runs that should be equal differ.
pub const DIFFERS: u8 = 3;
/// Exit code when nothing can be measured here.
const NOTHING_MEASURABLE: u8 = 4;
/// Exit code when a simulated machine or the command reached its time limit. timeout(1) uses the same code.
pub const STATUS_LIMIT: u8 = sim::boot::STATUS_LIMIT;
/// Exit code of a complete run that lost events.
pub const EVENTS_LOST: u8 = 5;
/// Exit codes with which irqlab has recorded a whole run: done, a threshold was reached, events were lost.
pub const RECORDED_CODES: [i32; 3] = [0, DIFFERS as i32, EVENTS_LOST as i32];

/// Error message when a run is stopped before it has results.
pub const STOPPED: &str = "stopped before anything was measured; nothing was written";

/// Prints a list that is not a run, such as the names of workloads: as text or as one JSON array.
pub fn print_list(format: Format, text: &str, rows: Vec<Json>) -> anyhow::Result<ExitCode> {
    match format {
        Format::Table => console::print(text)?,
        Format::Json => console::print(&format!("{:#}\n", Json::Array(rows)))?,
        Format::Csv | Format::Markdown => {
            bail!(Usage("a list can only be printed as text or with --json".to_owned()));
        }
    }
    Ok(ExitCode::SUCCESS)
}

/// Directory of the runs without `--out`.
const RUNS: &str = "irqlab-runs";
/// How often a run gets a new directory name because another program took its name.
const NAMES_MAX: usize = 100;

/// Prints an error with its causes, and returns its exit code.
pub fn failure(error: &anyhow::Error) -> ExitCode {
    for cause in error.chain() {
        match (cause.downcast_ref::<BenchError>(), cause.downcast_ref::<SimError>()) {
            (
                Some(
                    BenchError::NothingMeasurable { reason, remedy }
                    | BenchError::Unavailable { reason, remedy },
                ),
                _,
            ) => return report_nothing_measurable(reason, remedy.as_deref()),
            (_, Some(SimError::Missing { what, remedy })) => {
                return report_nothing_measurable(what, Some(remedy));
            }
            _ => {}
        }
        if let Some(NothingSet { reason, remedy }) = cause.downcast_ref() {
            return report_impossible(
                &format!("no setting was changed: {reason}"),
                remedy.as_deref(),
            );
        }
    }
    console::warn(&with_causes(error));
    if is_time_limit(error) {
        return ExitCode::from(STATUS_LIMIT);
    }
    let is_usage = |cause: &(dyn std::error::Error + 'static)| {
        cause.is::<Usage>() || matches!(cause.downcast_ref(), Some(SimError::Invalid(_)))
    };
    ExitCode::from(if error.chain().any(is_usage) { USAGE } else { FAILED })
}

/// Whether a simulated machine or the command reached its time limit.
pub fn is_time_limit(error: &anyhow::Error) -> bool {
    error.chain().any(|cause| {
        matches!(cause.downcast_ref(), Some(BenchError::TimeLimit(_)))
            || matches!(cause.downcast_ref(), Some(SimError::TimeLimit { .. }))
    })
}

/// The error and its causes, joined by colons. Skips a cause if the text already ends with it.
fn with_causes(error: &anyhow::Error) -> String {
    let mut message = String::new();
    for cause in error.chain().map(ToString::to_string) {
        if message.is_empty() {
            message = cause;
        } else if !message.ends_with(&cause) {
            message = format!("{message}: {cause}");
        }
    }
    message
}

/// The requested settings cannot be changed on this machine: exit code 4.
#[derive(Debug, thiserror::Error)]
#[error("no setting was changed: {reason}")]
pub struct NothingSet {
    pub reason: String,
    /// The command that makes the change possible, if there is one.
    pub remedy: Option<String>,
}

/// Says why nothing can be measured, and which command makes it possible.
fn report_nothing_measurable(reason: &str, remedy: Option<&str>) -> ExitCode {
    report_impossible(&format!("nothing can be measured: {reason}"), remedy)
}

fn report_impossible(message: &str, remedy: Option<&str>) -> ExitCode {
    console::warn(message);
    if let Some(remedy) = remedy {
        console::to_stderr(&format!("to unlock it:\n  {}\n", report::escape::plain(remedy)));
    }
    ExitCode::from(NOTHING_MEASURABLE)
}

/// Turns an unavailable bench into [`BenchError::NothingMeasurable`]. An error without a remedy gets the remedy for
/// missing rights, if rights are missing.
pub fn with_remedy_for_rights(error: BenchError) -> BenchError {
    match error {
        BenchError::Unavailable { reason, remedy }
        | BenchError::NothingMeasurable { reason, remedy } => {
            let remedy = remedy.or_else(remedy_for_tracing_rights);
            BenchError::NothingMeasurable { reason, remedy }
        }
        error => error,
    }
}

/// Returns a stop that Ctrl-C, Ctrl-\, SIGTERM and a hang-up of the terminal request. A second signal ends the
/// program at once. If the process ignores hang-ups, as under nohup(1), it continues to ignore them.
pub fn stop_on_signals() -> anyhow::Result<Stop> {
    let stop = Stop::new().context("cannot create a pipe")?;
    let was_requested = Arc::new(AtomicBool::new(false));
    let stop_signals = [SIGINT, SIGQUIT, SIGTERM];
    let hang_up = (!is_ignored(SIGHUP)).then_some(SIGHUP);
    for signal in stop_signals.into_iter().chain(hang_up) {
        let writer = stop.writer().context("cannot create a pipe")?;
        // The handlers run in this order. The first signal tests the flag while it is still clear. Therefore only a
        // second signal has the default effect.
        signal_hook::flag::register_conditional_default(signal, Arc::clone(&was_requested))
            .and_then(|_| signal_hook::flag::register(signal, Arc::clone(&was_requested)))
            .and_then(|_| signal_hook::low_level::pipe::register(signal, writer))
            .context("cannot install signal handlers")?;
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

/// Undoes the changes that killed runs left behind, and prints what it undid.
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
        console::say(&format!("leftovers of a killed run: {message}"));
    }
}

/// A run that is about to be measured. Its output directory can be written: this has been checked.
pub struct OpenRun {
    directory: Option<PathBuf>,
    /// The verb in the directory's name, or `None` if the user named the directory.
    default_name: Option<String>,
    printing: FormatArgs,
    started: Timestamp,
    main_table: Option<String>,
    /// Parents of the run's directory that did not exist before. Dropping the run removes the empty ones.
    created: Vec<PathBuf>,
    /// Keeps other runs from the directory's name. `None` if the run is not recorded.
    reservation: Option<Reservation>,
}

impl Drop for OpenRun {
    fn drop(&mut self) {
        for directory in &self.created {
            // Fails for a directory with a run in it, because that is not empty. So the directory stays.
            let _ = std::fs::remove_dir(directory);
        }
    }
}

impl OpenRun {
    /// Opens a run that is recorded in `--out`, or in a new directory of `irqlab-runs`.
    ///
    /// Fails when the directory cannot be written. The user learns this before the measurement, not
    /// after it.
    pub fn new(verb: &str, results: &ResultArgs) -> anyhow::Result<OpenRun> {
        let started = record::now();
        let Some(directory) = &results.out else {
            return OpenRun::with_default_name(verb, &results.printing, started);
        };
        OpenRun::open(Some(directory), &results.printing, started)
    }

    /// Opens a run that is always printed, and recorded only with `--out`.
    ///
    /// Fails as [`OpenRun::new`] does.
    pub fn if_asked(results: &OptionalResultArgs) -> anyhow::Result<OpenRun> {
        OpenRun::open(results.out.as_deref(), &results.printing, record::now())
    }

    /// How the results are printed.
    pub fn format(&self) -> Format {
        self.printing.format()
    }

    /// Opens a run in a directory that the user named.
    fn open(
        directory: Option<&Path>,
        printing: &FormatArgs,
        started: Timestamp,
    ) -> anyhow::Result<OpenRun> {
        let mut open = OpenRun {
            directory: directory.map(Path::to_owned),
            default_name: None,
            printing: printing.clone(),
            started,
            main_table: None,
            created: Vec::new(),
            reservation: None,
        };
        if let Some(directory) = directory {
            refuse_existing(directory)?;
            open.created = make_parent(directory)?;
            open.reservation = reserve(directory)?;
            if open.reservation.is_none() {
                let directory = directory.display();
                bail!(Usage(format!(
                    "another irqlab is going to write {directory} (name another with --out)"
                )));
            }
        }
        Ok(open)
    }

    /// Opens a run in the first directory of [`RUNS`] that neither exists nor is reserved by a run that started in the
    /// same second.
    fn with_default_name(
        verb: &str,
        printing: &FormatArgs,
        started: Timestamp,
    ) -> anyhow::Result<OpenRun> {
        let mut open = OpenRun::open(None, printing, started)?;
        open.default_name = Some(verb.to_owned());
        let mut directories = record::default_dirs(Path::new(RUNS), verb, started).peekable();
        if let Some(first) = directories.peek() {
            open.created = make_parent(first)?;
        }
        if let Some((directory, reservation)) = reserve_first_free(directories)? {
            (open.directory, open.reservation) = (Some(directory), Some(reservation));
        }
        Ok(open)
    }

    /// Chooses the table that CSV prints without `--table`. Default: the first table with rows.
    pub fn set_main_table(&mut self, name: &str) {
        self.main_table = Some(name.to_owned());
    }

    pub fn started(&self) -> Timestamp {
        self.started
    }

    /// The directory that the run will have, or `RUN` if the run is not recorded.
    pub fn directory(&self) -> &Path {
        self.directory.as_deref().unwrap_or(Path::new("RUN"))
    }

    /// The start time, the host, and the settings with the command line added.
    pub fn context(&self, host: Map<String, Json>, mut settings: Map<String, Json>) -> RunContext {
        settings.extend(command_line());
        let started_utc = self.started.to_string();
        RunContext { started_utc, host, settings, tables: Vec::new() }
    }

    /// Measures a plan on a bench, then finishes the run with the files that `attachments` returns.
    ///
    /// Fails when nothing was measured, and as [`OpenRun::finish`] does.
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

    /// Prints the run, records it with its attachments, and names its directory. Returns the exit code.
    ///
    /// Fails when nothing was measured, or when the run cannot be printed or recorded. A failure of one of the two
    /// does not prevent the other.
    pub fn finish(&self, run: &Run, attachments: &[Attachment]) -> anyhow::Result<ExitCode> {
        if run.tables.iter().all(|table| table.rows().is_empty()) {
            return nothing_measured(run);
        }
        // Recording comes first, because the printed tables name the directory. Printing happens even if it fails.
        let recorded = self.record(run, attachments);
        let printed = self.print(run, recorded.as_ref().ok().and_then(Option::as_deref));
        if let Some(directory) = recorded? {
            name_files(&directory, attachments);
        }
        printed?;
        Ok(self.exit_code(run))
    }

    fn print(&self, run: &Run, directory: Option<&Path>) -> anyhow::Result<()> {
        let main_table = self.main_table.as_deref();
        console::print(&text(run, directory, &self.printing, main_table)?)
    }

    /// Records the run and returns its directory, or `None` if the run is not to be recorded. If the system refuses the
    /// whole run, as on a full disk, records it without its flight record, which is by far its largest table.
    fn record(&self, run: &Run, attachments: &[Attachment]) -> anyhow::Result<Option<PathBuf>> {
        let Some(directory) = self.directory.clone() else { return Ok(None) };
        let recorded = match self.write(run, attachments, directory.clone()) {
            Err(error @ WriteError::Io { .. }) => match without_flight_record(run, &error) {
                Some(smaller) => self.write(&smaller, attachments, directory),
                None => Err(error),
            },
            recorded => recorded,
        };
        let directory = recorded
            .context("the results above are not recorded (name another directory with --out)")?;
        Ok(Some(directory))
    }

    /// Writes the run, and returns its directory. The directory gets a new name if another program took its name in
    /// the meantime.
    fn write(
        &self,
        run: &Run,
        attachments: &[Attachment],
        mut directory: PathBuf,
    ) -> Result<PathBuf, WriteError> {
        let mut written = record::write_run(run, attachments, &directory);
        let verb = self.default_name.as_deref();
        let others = verb
            .map(|verb| record::default_dirs(Path::new(RUNS), verb, self.started).take(NAMES_MAX));
        for other in others.into_iter().flatten() {
            if !matches!(written, Err(WriteError::Exists { .. })) {
                break;
            }
            written = record::write_run(run, attachments, &other);
            directory = other;
        }
        written.map(|()| directory)
    }

    /// Returns the exit code of a run that was printed and recorded, and warns if the run is not fully usable. The first that
    /// applies counts: a broken run, a time limit, the status of the measured command, lost events.
    fn exit_code(&self, run: &Run) -> ExitCode {
        let positive_number = |map: &Map<String, Json>, key: &str| {
            map.get(key).and_then(Json::as_u64).filter(|number| *number > 0)
        };
        if positive_number(&run.settings, keys::BROKEN_COUNT).is_some() {
            console::warn("this run is broken: do not use its tables (see its warnings)");
            return ExitCode::from(FAILED);
        }
        let lost = positive_number(&run.observer, keys::EVENTS_LOST_COUNT);
        if let Some(lost) = lost {
            console::warn(&format!("{lost} events were lost, so the counts are too low"));
        }
        let lost_wakeups = positive_number(&run.observer, keys::WAKEUPS_LOST_COUNT);
        if let Some(lost) = lost_wakeups {
            console::warn(&format!("{lost} wake-ups were lost, so the counts are too low"));
        }
        let time_limit_message = run.settings.get(keys::TIME_LIMIT).and_then(Json::as_str);
        if let Some(time_limit_message) = time_limit_message {
            console::warn(time_limit_message);
            return ExitCode::from(STATUS_LIMIT);
        }
        match command_status(run) {
            Some(status @ 1..) => ExitCode::from(status),
            _ if lost.is_some() || lost_wakeups.is_some() => ExitCode::from(EVENTS_LOST),
            _ => ExitCode::SUCCESS,
        }
    }
}

/// Options that do not change the results of a run, in groups. The flag: whether they take a value.
const OUTPUT_OPTIONS: [(&[&str], bool); 8] = [
    (&["--out"], true),
    (&["-j", "--jobs"], true),
    (&["--color"], true),
    (&["--format"], true),
    (&["--table"], true),
    (&["-q", "--quiet", "-v", "--verbose"], false),
    (&["--json", "--all"], false),
    (&["--force"], false),
];

/// A copy of the run without the flight record, and a warning. `None` if the run has no flight record. `error`: why the run
/// with it could not be written.
fn without_flight_record(run: &Run, error: &WriteError) -> Option<Run> {
    let is_record = |table: &Table| table.name == flight_table::NAME;
    run.tables.iter().find(|table| is_record(table))?;
    let tables = run.tables.iter().filter(|table| !is_record(table)).cloned().collect();
    let mut smaller = run.with_tables(tables);
    smaller.absent.push(Absence::new(flight_table::NAME, "all rows", error.to_string()));
    console::warn(&format!("the flight record is not recorded: {error}"));
    Some(smaller)
}

/// Prints where the run and its attachments are.
fn name_files(directory: &Path, attachments: &[Attachment]) {
    let directory = directory.display();
    for attachment in attachments {
        console::say(&format!("{}: {directory}/{0}", attachment.name));
    }
    let more = "to print it again, or other tables and formats: irqlab show";
    console::say(&format!("run: {directory}  ({more} {directory})"));
}

/// The setting with the command line that repeats this run, or `None` if a word cannot be quoted. It names the program
/// `irqlab` without a path, because the path is useless on another machine.
pub fn command_line() -> Option<(String, Json)> {
    let arguments = std::env::args_os().skip(1).map(|word| word.to_string_lossy().into_owned());
    let program = ["irqlab".to_owned()].into_iter();
    let command: Vec<String> = program.chain(without_output_options(arguments)).collect();
    let line = shlex::try_join(command.iter().map(String::as_str)).ok()?;
    Some((keys::COMMAND_LINE.to_owned(), line.into()))
}

/// The settings that say what made a run: the version, and the command line that repeats it.
pub fn made_by() -> impl Iterator<Item = (String, Json)> {
    [("version".to_owned(), crate::VERSION.into())].into_iter().chain(command_line())
}

/// Removes [`OUTPUT_OPTIONS`] and their values. Arguments after `--` stay: they belong to the measured command.
pub fn without_output_options(arguments: impl Iterator<Item = String>) -> Vec<String> {
    let (mut kept, mut skips_value, mut is_after_dashes) = (Vec::new(), false, false);
    for argument in arguments {
        if std::mem::take(&mut skips_value) {
            continue;
        }
        is_after_dashes |= argument == "--";
        let name = argument.split('=').next().unwrap_or(&argument);
        // In `-j3` the value follows the letter.
        let letter = argument.get(..2).filter(|letter| !letter.ends_with('-'));
        let is_named = |names: &[&str], has_value: bool| {
            names.contains(&name)
                || has_value && letter.is_some_and(|letter| names.contains(&letter))
        };
        let option = OUTPUT_OPTIONS
            .iter()
            .find(|(names, has_value)| is_named(names, *has_value) && !is_after_dashes);
        match option {
            // In `--out=a` the value is part of the argument; in `--out a` it is the next argument.
            Some((_, has_value)) => skips_value = *has_value && name == argument,
            None => kept.push(argument),
        }
    }
    kept
}

/// Reports a run without rows. Its parts are absent for the reasons that it lists, or it was stopped if it lists none.
fn nothing_measured(run: &Run) -> anyhow::Result<ExitCode> {
    if run.absent.is_empty() {
        bail!(STOPPED);
    }
    let reasons = run.absent.iter().map(|absence| format!("{}: {}", absence.what, absence.reason));
    let remedy = run.absent.iter().find_map(|absence| absence.remedy.as_deref());
    Ok(report_nothing_measurable(&reasons.collect::<Vec<_>>().join("; "), remedy))
}

/// The exit status of the measured command, as a shell reports it: of several conditions, that of the first whose command failed.
/// `None` if no condition had a command.
fn command_status(run: &Run) -> Option<u8> {
    let conditions = run.settings.get(keys::CONDITIONS)?.as_object()?;
    let statuses: Vec<u64> = conditions
        .values()
        .filter_map(|condition| condition.get(keys::COMMAND_STATUS)?.as_u64())
        .collect();
    let is_failure = |status: &&u64| **status != 0;
    let status = statuses.iter().find(is_failure).or(statuses.first())?;
    Some(u8::try_from(*status).unwrap_or(FAILED))
}

/// Fails when `directory` exists already, or when there can be no directory of this name: it may be too long.
fn refuse_existing(directory: &Path) -> anyhow::Result<()> {
    let error = match directory.symlink_metadata() {
        Ok(_) => {
            let directory = directory.display();
            bail!(Usage(format!(
                "{directory} exists already, and a run never replaces a directory (name another with --out)"
            )));
        }
        Err(error) => error,
    };
    // The parent is looked at later.
    if matches!(error.kind(), io::ErrorKind::NotFound | io::ErrorKind::NotADirectory) {
        return Ok(());
    }
    bail!(cannot_write(directory, &error))
}

/// Reserves the name of a run's directory. `None` if another run has reserved it.
///
/// Fails when `directory` exists, or the system refuses.
fn reserve(directory: &Path) -> anyhow::Result<Option<Reservation>> {
    Reservation::new(directory)
        .map_err(|error| cannot_write(directory, &io::Error::from(error)).into())
}

/// Reserves the first of the directories that neither exists nor is reserved. `None` if there is none.
///
/// Fails when the system refuses. A directory that comes into being meanwhile is no failure: its run had reserved it.
fn reserve_first_free(
    directories: impl Iterator<Item = PathBuf>,
) -> anyhow::Result<Option<(PathBuf, Reservation)>> {
    for directory in directories {
        match Reservation::new(&directory) {
            Ok(Some(reservation)) => return Ok(Some((directory, reservation))),
            Ok(None) | Err(MakeDirectoryError::Exists) => {}
            Err(error) => bail!(cannot_write(&directory, &io::Error::from(error))),
        }
    }
    Ok(None)
}

fn cannot_write(directory: &Path, error: &io::Error) -> Usage {
    let directory = directory.display();
    Usage(format!("cannot write a run to {directory}: {error} (name another with --out)"))
}

/// Creates the missing parents of `directory`, and returns them, the innermost first.
///
/// Fails when a parent cannot be created or written.
fn make_parent(directory: &Path) -> anyhow::Result<Vec<PathBuf>> {
    let parent = match directory.parent() {
        Some(parent) if parent != Path::new("") => parent,
        _ => Path::new("."),
    };
    for removed in record::remove_leftovers(parent) {
        let removed = removed.display();
        console::say(&format!("removed {removed}, which a killed run left incomplete"));
    }
    let missing = parent
        .ancestors()
        .filter(|ancestor| !ancestor.as_os_str().is_empty() && !ancestor.exists());
    let missing: Vec<PathBuf> = missing.map(Path::to_owned).collect();
    let writable = std::fs::create_dir_all(parent).and_then(|()| outputs::can_create_in(parent));
    if let Err(error) = writable {
        missing.iter().for_each(|ancestor| drop(std::fs::remove_dir(ancestor)));
        let parent = parent.display();
        bail!(Usage(format!(
            "cannot write runs into {parent}: {error} (name another directory with --out)"
        )));
    }
    Ok(missing)
}

/// Renders a run as the options `printing` ask. `directory`: where the run is, or `None` if it is not kept. CSV has
/// only one table: `main_table`, or the first table with rows.
///
/// Fails when the run has no table with the requested name.
pub fn text(
    run: &Run,
    directory: Option<&Path>,
    printing: &FormatArgs,
    main_table: Option<&str>,
) -> anyhow::Result<String> {
    let all_rows = printing.all || printing.table.is_some();
    let single_table;
    let selected = match &printing.table {
        Some(name) => {
            single_table = run.with_tables(vec![table(run, name)?.clone()]);
            &single_table
        }
        None => run,
    };
    Ok(match printing.format() {
        Format::Table => report::terminal(selected, terminal_options(directory, all_rows)),
        Format::Json => report::json(selected),
        Format::Csv => {
            let mut text = Vec::new();
            let selection = CsvSelection { main_table, all_rows: printing.all };
            write_csv(&mut text, selected, &InMemory, selection)?;
            String::from_utf8_lossy(&text).into_owned()
        }
        Format::Markdown => match &selected.tables[..] {
            [only] if printing.table.is_some() => report::markdown(only),
            _ => report::markdown_run(selected),
        },
    })
}

/// The table with this name.
///
/// Fails when the run has no such table. The error lists the tables that it has.
pub fn table<'a>(run: &'a Run, name: &str) -> Result<&'a Table, Usage> {
    run.table(name).ok_or_else(|| {
        let names: Vec<&str> = run.tables.iter().map(|table| table.name.as_str()).collect();
        Usage(format!("no table {name:?} in this run; it has: {}", names.join(", ")))
    })
}

/// What [`write_csv`] writes of a run.
#[derive(Clone, Copy, Debug)]
pub struct CsvSelection<'a> {
    /// The table, if it has rows. Otherwise the first table with rows is written.
    pub main_table: Option<&'a str>,
    /// Whether to write all rows, including the rows of single CPUs.
    pub all_rows: bool,
}

/// Writes one table as CSV, row by row. Names on stderr the tables and rows that it leaves out.
///
/// Fails when `out` cannot be written or `rows` cannot be read.
pub fn write_csv(
    out: &mut dyn Write,
    run: &Run,
    rows: &dyn Rows,
    selection: CsvSelection<'_>,
) -> io::Result<()> {
    let tables = || run.tables.iter().filter(|table| table.row_count() > 0);
    let CsvSelection { main_table, all_rows } = selection;
    let main = main_table.and_then(|name| tables().find(|table| table.name == name));
    let Some(main) = main.or_else(|| tables().next()) else { return Ok(()) };
    let csv_rows = if all_rows { CsvRows::All } else { CsvRows::Sums };
    let left_out = report::write_csv(out, main, rows, (csv_rows, CsvText::Guarded))?;
    let omissions = report::csv_omissions(run, main, left_out);
    if !omissions.is_empty() {
        console::say(&format!("csv: table {}; left out: {omissions}", main.name));
    }
    Ok(())
}

/// Options for printing on this terminal. `directory`: where the run is, or `None` if it is not kept.
pub fn terminal_options(directory: Option<&Path>, all_rows: bool) -> TerminalOptions {
    let (width, long_text) = console::width();
    TerminalOptions {
        width: Some(width),
        long_text,
        color: console::has_color(),
        all_rows,
        run_dir: directory.map(|directory| directory.display().to_string()),
        whole_command: None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_run_takes_the_first_name_that_no_other_run_has() {
        let parent = tempfile::tempdir().unwrap();
        let directories = ["made", "reserved", "free"].map(|name| parent.path().join(name));
        // A run had reserved this name, and has finished since the name was chosen.
        std::fs::create_dir(&directories[0]).unwrap();
        let _other = Reservation::new(&directories[1]).unwrap().unwrap();
        let found = reserve_first_free(directories.iter().cloned()).unwrap();
        assert_eq!(found.map(|(directory, _)| directory), Some(directories[2].clone()));
    }

    #[test]
    fn the_exit_code_is_that_of_the_first_command_that_failed() {
        let status = |statuses: &[u64]| {
            let conditions = statuses.iter().enumerate().map(|(index, status)| {
                (index.to_string(), serde_json::json!({ "command_status": status }))
            });
            let settings =
                Map::from_iter([("conditions".to_owned(), Json::Object(conditions.collect()))]);
            let run = Run {
                schema: record::SCHEMA.to_owned(),
                experiment: "handlers".to_owned(),
                bench: "live".to_owned(),
                started_utc: String::new(),
                complete: true,
                host: Map::new(),
                settings,
                observer: Map::new(),
                warnings: Vec::new(),
                absent: Vec::new(),
                tables: Vec::new(),
            };
            command_status(&run)
        };
        assert_eq!(status(&[]), None);
        assert_eq!(status(&[0, 0]), Some(0));
        assert_eq!(status(&[0, 3, 4]), Some(3));
    }

    #[test]
    fn a_recorded_command_line_has_no_output_options() {
        let recorded =
            |line: &str| without_output_options(line.split(' ').map(str::to_owned)).join(" ");
        let line = "noise --out a -c 1 -q --jobs=2 -j 3 -j3 --json -d 1s";
        assert_eq!(recorded(line), "noise -c 1 -d 1s");
        assert_eq!(
            recorded("handlers --on sim -- make -j 4 --out x"),
            "handlers --on sim -- make -j 4 --out x"
        );
    }
}
