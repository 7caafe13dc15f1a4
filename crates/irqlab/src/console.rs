//! The terminal: results on stdout; news, progress and errors on stderr.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::io::{self, BufWriter, IsTerminal, Write};
use std::sync::{Arc, LazyLock, Mutex, OnceLock, PoisonError};
use std::time::{Duration, Instant};

use anyhow::Context;
use clap::ValueEnum;
use indicatif::{MultiProgress, ProgressBar, ProgressDrawTarget, ProgressState, ProgressStyle};
use lab::experiment::{Progress, Step};
use report::escape;
use sim::{MachinePhase, MachineProgress};

/// When to use colours.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, ValueEnum)]
pub enum Color {
    /// On a terminal, unless NO_COLOR is set and not empty
    #[default]
    Auto,
    /// Also into files and pipes
    Always,
    /// Nowhere
    Never,
}

/// Options that every verb has.
#[derive(Clone, Copy, Debug, Default, clap::Args)]
pub struct ConsoleArgs {
    /// Print no news and no progress on stderr
    #[arg(short, long, global = true, conflicts_with = "verbose")]
    quiet: bool,
    /// Print more on stderr: each step with its time, and what a run is made of
    #[arg(short, long, global = true)]
    verbose: bool,
    /// When to use colours
    #[arg(long, global = true, value_enum, value_name = "WHEN", default_value_t)]
    color: Color,
}

static CONSOLE: OnceLock<ConsoleArgs> = OnceLock::new();
/// The lines of progress that are on the terminal.
static LINES: LazyLock<MultiProgress> =
    LazyLock::new(|| MultiProgress::with_draw_target(ProgressDrawTarget::stderr_with_hz(2)));

/// Puts the options in force, once and before anything is printed.
pub fn set_up(args: ConsoleArgs) {
    let _ = CONSOLE.set(args);
}

fn options() -> ConsoleArgs {
    CONSOLE.get().copied().unwrap_or_default()
}

/// Prints a line of news on stderr, unless `-q` was given.
pub fn say(text: &str) {
    if !options().quiet {
        line(text);
    }
}

/// Prints a line on stderr where `-v` was given.
pub fn say_more(text: &str) {
    if options().verbose && !options().quiet {
        line(text);
    }
}

/// Prints what must be read, whatever the options.
pub fn warn(text: &str) {
    line(&format!("irqlab: {text}"));
}

fn line(text: &str) {
    above_progress(|| to_stderr(&format!("{}\n", escape::lines(text))));
}

/// Writes to stderr. A failure, as on a full disk, is ignored: there is no other place to report it.
pub fn to_stderr(text: &str) {
    let _ = io::stderr().write_all(text.as_bytes());
}

/// Takes the lines of progress off the terminal while something else is printed.
pub fn above_progress<T>(print: impl FnOnce() -> T) -> T {
    LINES.suspend(print)
}

/// Writes results to stdout. A closed pipe is no error.
///
/// # Errors
/// When stdout cannot be written, as on a full disk.
pub fn print(text: &str) -> anyhow::Result<()> {
    print_bytes(text.as_bytes()).map(drop)
}

/// As [`print()`], also for what is no text. Returns whether somebody still reads it.
///
/// # Errors
/// As [`print()`].
pub fn print_bytes(bytes: &[u8]) -> anyhow::Result<bool> {
    let mut out = io::stdout().lock();
    match out.write_all(bytes).and_then(|()| out.flush()) {
        Err(error) if error.kind() == io::ErrorKind::BrokenPipe => Ok(false),
        written => written.map(|()| true).context("cannot write to standard output"),
    }
}

/// Prints on standard output what `write` writes; it ends early where nobody reads any more.
///
/// # Errors
/// When it cannot be written, and those of `write`.
pub fn print_by(write: impl FnOnce(&mut dyn Write) -> io::Result<()>) -> anyhow::Result<()> {
    let mut out = BufWriter::new(io::stdout().lock());
    let written = write(&mut out).and_then(|()| out.flush());
    // What is left of the buffer is written when it is dropped; there is nobody to tell of an error then.
    let (_, _) = out.into_parts();
    match written {
        Err(error) if error.kind() == io::ErrorKind::BrokenPipe => Ok(()),
        Err(error) if error.get_ref().is_some_and(|inner| inner.is::<record::ReadError>()) => {
            Err(anyhow::Error::new(error))
        }
        written => written.context("cannot write to standard output"),
    }
}

/// Whether stdout gets colours.
pub fn has_color() -> bool {
    let no_color = std::env::var_os("NO_COLOR").is_some_and(|value| !value.is_empty());
    is_colored(options().color, io::stdout().is_terminal(), no_color)
}

/// NO_COLOR (no-color.org) counts where it is set and not empty; the option overrides it.
fn is_colored(color: Color, is_terminal: bool, no_color: bool) -> bool {
    match color {
        Color::Auto => is_terminal && !no_color,
        Color::Always => true,
        Color::Never => false,
    }
}

/// Columns of the terminal, of `COLUMNS`, or 120.
pub fn width() -> u16 {
    let stdout = io::stdout();
    let from_terminal = || rustix::termios::tcgetwinsize(&stdout).ok().map(|size| size.ws_col);
    let from_environment = || std::env::var("COLUMNS").ok()?.parse().ok();
    let width = if stdout.is_terminal() { from_terminal() } else { None };
    width.filter(|width| *width > 0).or_else(from_environment).unwrap_or(120)
}

/// How often the line of progress is drawn.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Redraw {
    /// Each second.
    EverySecond,
    /// At the start of each step: drawing in between would disturb what is measured.
    EachStep,
}

/// A line of progress on a terminal: the step, and an estimate of the time left. It goes when dropped.
pub struct ProgressLine {
    state: Arc<Mutex<Estimate>>,
    bar: Option<ProgressBar>,
    redraw: Redraw,
}

/// What the time left is estimated from.
#[derive(Debug)]
struct Estimate {
    started: Instant,
    step_started: Instant,
    /// Steps that have ended.
    done: usize,
    /// All steps.
    count: usize,
    /// The part of the current step that is done.
    fraction: f64,
    /// How long a step takes, where that is known before.
    expected: Option<Duration>,
}

impl Estimate {
    /// No step of this number is done yet.
    fn of_steps(count: usize) -> Estimate {
        let now = Instant::now();
        Estimate { started: now, step_started: now, done: 0, count, fraction: 0.0, expected: None }
    }

    fn left(&self, now: Instant) -> Option<Duration> {
        let of_step = now.saturating_duration_since(self.step_started);
        let before = self.step_started.saturating_duration_since(self.started);
        let step = match (self.expected, u32::try_from(self.done)) {
            (Some(expected), _) => expected,
            _ if self.fraction > 0.0 => of_step.div_f64(self.fraction),
            (None, Ok(done @ 1..)) => before / done,
            _ => return None,
        };
        let steps = u32::try_from(self.count.saturating_sub(self.done)).ok()?;
        Some((step * steps).saturating_sub(of_step))
    }
}

impl ProgressLine {
    /// The line of a run whose steps are not known yet.
    pub fn new(redraw: Redraw) -> ProgressLine {
        let state = Arc::new(Mutex::new(Estimate::of_steps(0)));
        let bar = shows_progress().then(|| bar(Arc::clone(&state)));
        ProgressLine { state, bar, redraw }
    }

    /// Says that the step `number` of `count` starts, from 1; the ones before have ended.
    pub fn step(&mut self, number: usize, count: usize, label: &str) {
        let expected = None;
        self.start(&Step { number, count, label: label.to_owned(), expected });
    }
}

impl Progress for ProgressLine {
    fn start(&mut self, step: &Step) {
        let now = Instant::now();
        let text = format!("[{}/{}] {}", step.number, step.count, step.label);
        let mut state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        let started = state.started;
        *state = Estimate {
            started,
            step_started: now,
            done: step.number.saturating_sub(1),
            count: step.count,
            fraction: 0.0,
            expected: step.expected,
        };
        drop(state);
        let elapsed = now.saturating_duration_since(started).as_secs_f64();
        say_more(&format!("{elapsed:8.1} s  {text}"));
        let Some(bar) = &self.bar else { return };
        bar.set_message(escape::plain(&text));
        if self.redraw == Redraw::EverySecond {
            redraw_every_second(bar);
        }
        bar.tick();
    }

    fn advance(&mut self, fraction: f64) {
        self.state.lock().unwrap_or_else(PoisonError::into_inner).fraction = fraction;
    }
}

impl Drop for ProgressLine {
    fn drop(&mut self) {
        if let Some(bar) = &self.bar {
            bar.finish_and_clear();
        }
    }
}

fn bar(state: Arc<Mutex<Estimate>>) -> ProgressBar {
    let left = move |_: &ProgressState, text: &mut dyn std::fmt::Write| {
        let state = state.lock().unwrap_or_else(PoisonError::into_inner);
        let _ = match state.left(Instant::now()) {
            Some(left) => write!(text, "about {} left", rounded(left)),
            None => write!(text, "time left not known yet"),
        };
    };
    let style = ProgressStyle::with_template("{msg}  ({elapsed}, {left})");
    let style = style.unwrap_or_else(|_| ProgressStyle::default_spinner()).with_key("left", left);
    let bar = LINES.add(ProgressBar::no_length());
    bar.set_style(style);
    bar
}

/// Redraws a line every second, where the process may have another thread: the line's own code panics if not.
fn redraw_every_second(bar: &ProgressBar) {
    let may_start = std::thread::Builder::new().spawn(|| ()).map(std::thread::JoinHandle::join);
    if may_start.is_ok_and(|ended| ended.is_ok()) {
        bar.enable_steady_tick(Duration::from_secs(1));
    }
}

fn shows_progress() -> bool {
    !options().quiet && io::stderr().is_terminal()
}

/// A line of progress for each simulated machine that runs.
#[derive(Default)]
pub struct MachineLines {
    lines: Mutex<BTreeMap<String, MachineLine>>,
}

struct MachineLine {
    bar: Option<ProgressBar>,
    state: Arc<Mutex<Estimate>>,
    phase: Option<MachinePhase>,
}

impl MachineLine {
    fn new() -> MachineLine {
        let state = Arc::new(Mutex::new(Estimate::of_steps(1)));
        let bar = shows_progress().then(|| bar(Arc::clone(&state)));
        if let Some(bar) = &bar {
            redraw_every_second(bar);
        }
        MachineLine { bar, state, phase: None }
    }
}

impl MachineProgress for MachineLines {
    fn update(&self, machine: &str, phase: MachinePhase, fraction: Option<f64>) {
        let mut lines = self.lines.lock().unwrap_or_else(PoisonError::into_inner);
        let line = lines.entry(machine.to_owned()).or_insert_with(MachineLine::new);
        if line.phase != Some(phase) {
            line.phase = Some(phase);
            // The time that the phases before took says nothing of this one.
            *line.state.lock().unwrap_or_else(PoisonError::into_inner) = Estimate::of_steps(1);
            say_more(&format!("{machine}: {}", phase_words(phase)));
        }
        line.state.lock().unwrap_or_else(PoisonError::into_inner).fraction =
            fraction.unwrap_or(0.0);
        if let Some(bar) = &line.bar {
            let part = fraction.map(|part| format!(", {:.0} %", part * 100.0)).unwrap_or_default();
            let text = format!("{machine}: {}{part}", phase_words(phase));
            bar.set_message(escape::plain(&text));
        }
    }

    fn done(&self, machine: &str) {
        let line = self.lines.lock().unwrap_or_else(PoisonError::into_inner).remove(machine);
        if let Some(bar) = line.and_then(|line| line.bar) {
            bar.finish_and_clear();
        }
    }
}

fn phase_words(phase: MachinePhase) -> String {
    match phase {
        MachinePhase::Boots => "boots".to_owned(),
        MachinePhase::Starts => "on the way to the window".to_owned(),
        MachinePhase::Window(number) => format!("window {number}"),
        MachinePhase::Drains => "ends".to_owned(),
        MachinePhase::Analysis => "its record is read".to_owned(),
    }
}

/// `12 s`, `3 min`, `2 h`: an estimate is no more exact than that.
fn rounded(time: Duration) -> String {
    let mut text = String::new();
    let seconds = time.as_secs_f64().ceil();
    let _ = match seconds {
        ..100.0 => write!(text, "{seconds} s"),
        ..6000.0 => write!(text, "{:.0} min", seconds / 60.0),
        _ => write!(text, "{:.0} h", seconds / 3600.0),
    };
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_option_comes_before_no_color_and_that_before_the_terminal() {
        assert!(is_colored(Color::Auto, true, false));
        assert!(!is_colored(Color::Auto, true, true) && !is_colored(Color::Auto, false, false));
        assert!(is_colored(Color::Always, false, true) && !is_colored(Color::Never, true, false));
    }

    #[test]
    fn the_time_left_is_planned_or_taken_from_the_steps_before() {
        let second = Duration::from_secs(1);
        let started = Instant::now();
        let mut estimate = Estimate {
            started,
            step_started: started,
            done: 0,
            count: 4,
            fraction: 0.0,
            expected: None,
        };
        assert_eq!(estimate.left(started + second), None);
        estimate.fraction = 0.5;
        assert_eq!(estimate.left(started + second), Some(7 * second));
        estimate.expected = Some(10 * second);
        assert_eq!(estimate.left(started + second), Some(39 * second));
        (estimate.expected, estimate.fraction, estimate.done) = (None, 0.0, 2);
        estimate.step_started = started + 12 * second;
        assert_eq!(estimate.left(started + 13 * second), Some(11 * second));
        assert_eq!(estimate.left(started + 99 * second), Some(Duration::ZERO));
    }

    #[test]
    fn estimates_are_rounded() {
        let text = |seconds| rounded(Duration::from_secs_f64(seconds));
        assert_eq!([text(1.2), text(150.0), text(7200.0)], ["2 s", "2 min", "2 h"]);
    }
}
