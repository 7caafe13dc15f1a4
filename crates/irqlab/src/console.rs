//! The terminal: results go to stdout; messages, progress and errors go to stderr.
//!
//! Every verb prints through this file. Experiments of `lab` report their steps to [`ProgressLine`], and `sim` reports
//! its machines to [`MachineLines`]. Messages and progress are escaped here; a caller escapes its results itself.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::io::{self, BufWriter, IsTerminal, Write};
use std::sync::{Arc, LazyLock, Mutex, OnceLock, PoisonError};
use std::time::{Duration, Instant};

use anyhow::Context;
use clap::ValueEnum;
use indicatif::{MultiProgress, ProgressBar, ProgressDrawTarget, ProgressState, ProgressStyle};
use lab::experiment::{Progress, Step};
use live::spawn::spawn_thread;
use report::{LongText, escape};
use sim::boot::Limits;
use sim::forecast::{Forecast, MachineWork, TimePart};
use sim::{EarlyReason, MachinePhase, MachineProgress, MachineState, PlannedMachines};

/// Help heading of the options that every verb has.
pub const GLOBAL: &str = "Global options";

/// When to use colours.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, ValueEnum)]
pub enum Color {
    /// On a terminal, unless NO_COLOR is set and not empty
    #[default]
    Auto,
    /// Always, also in files and pipes
    Always,
    /// Never, not even on a terminal
    Never,
}

/// Options that every verb has.
#[derive(Clone, Copy, Debug, Default, clap::Args)]
#[command(next_help_heading = GLOBAL)]
pub struct ConsoleArgs {
    /// Print neither messages nor progress on stderr; errors are printed
    #[arg(short, long, global = true, conflicts_with = "verbose")]
    quiet: bool,
    /// Print more on stderr: each step with its time, and details of the run
    #[arg(short, long, global = true)]
    verbose: bool,
    /// When to use colours
    #[arg(long, global = true, value_enum, value_name = "WHEN", default_value_t)]
    color: Color,
}

static CONSOLE: OnceLock<ConsoleArgs> = OnceLock::new();
/// The progress lines on the terminal.
static LINES: LazyLock<MultiProgress> =
    LazyLock::new(|| MultiProgress::with_draw_target(ProgressDrawTarget::stderr_with_hz(2)));

/// Sets the console options. Call it once, before anything is printed.
pub fn set_up(args: ConsoleArgs) {
    let _ = CONSOLE.set(args);
}

fn options() -> ConsoleArgs {
    CONSOLE.get().copied().unwrap_or_default()
}

/// Prints a message on stderr, unless `-q` was given.
pub fn say(text: &str) {
    if !options().quiet {
        print_message(text);
    }
}

/// Whether `-v` was given.
pub fn is_verbose() -> bool {
    options().verbose && !options().quiet
}

/// Prints a message on stderr only if `-v` was given.
pub fn say_more(text: &str) {
    if is_verbose() {
        print_message(text);
    }
}

/// Prints an error or a warning on stderr, even with `-q`.
pub fn warn(text: &str) {
    print_message(&format!("irqlab: {text}"));
}

/// Prints an escaped message on stderr, above the progress lines.
fn print_message(text: &str) {
    above_progress(|| to_stderr(&format!("{}\n", escape::lines(text))));
}

/// Writes to stderr. A failure, as on a full disk, is ignored: there is no other place to report it.
pub fn to_stderr(text: &str) {
    let _ = io::stderr().write_all(text.as_bytes());
}

/// Hides the progress lines while `print` prints something else.
pub fn above_progress<T>(print: impl FnOnce() -> T) -> T {
    LINES.suspend(print)
}

/// Writes results to stdout. Escapes nothing. A closed pipe is not an error.
///
/// Fails when stdout cannot be written, as on a full disk.
pub fn print(text: &str) -> anyhow::Result<()> {
    print_bytes(text.as_bytes()).map(drop)
}

/// Like [`print()`], for any bytes. Returns `false` if the reader has closed the pipe.
///
/// Fails as [`print()`] does.
pub fn print_bytes(bytes: &[u8]) -> anyhow::Result<bool> {
    let mut out = io::stdout().lock();
    match out.write_all(bytes).and_then(|()| out.flush()) {
        Err(error) if error.kind() == io::ErrorKind::BrokenPipe => Ok(false),
        written => written.map(|()| true).context("cannot write to standard output"),
    }
}

/// Lets `write` write to stdout through a buffer. Ends early, without an error, if the reader has closed the pipe.
///
/// Fails when stdout cannot be written, and with the errors of `write`.
pub fn print_by(write: impl FnOnce(&mut dyn Write) -> io::Result<()>) -> anyhow::Result<()> {
    let mut out = BufWriter::new(io::stdout().lock());
    let written = write(&mut out).and_then(|()| out.flush());
    // Discards the rest of the buffer. Dropping `out` would write the rest again and ignore the error.
    let (_, _) = out.into_parts();
    match written {
        Err(error) if error.kind() == io::ErrorKind::BrokenPipe => Ok(()),
        Err(error) if error.get_ref().is_some_and(|inner| inner.is::<record::ReadError>()) => {
            Err(anyhow::Error::new(error))
        }
        written => written.context("cannot write to standard output"),
    }
}

pub fn has_color() -> bool {
    let no_color = std::env::var_os("NO_COLOR").is_some_and(|value| !value.is_empty());
    is_colored(options().color, io::stdout().is_terminal(), no_color)
}

/// Decides whether to print colours. `no_color`: whether NO_COLOR (no-color.org) is set and not empty.
fn is_colored(color: Color, is_terminal: bool, no_color: bool) -> bool {
    match color {
        Color::Auto => is_terminal && !no_color,
        Color::Always => true,
        Color::Never => false,
    }
}

/// Width of the output in columns: the terminal's width, else `COLUMNS`, else 120. Texts are not cut if that is neither the
/// width of a terminal nor the user's.
pub fn width() -> (u16, LongText) {
    let stdout = io::stdout();
    let from_terminal = || rustix::termios::tcgetwinsize(&stdout).ok().map(|size| size.ws_col);
    let from_environment = || std::env::var("COLUMNS").ok()?.parse().ok();
    let width = if stdout.is_terminal() { from_terminal() } else { None };
    match width.filter(|width| *width > 0).or_else(from_environment) {
        Some(width) => (width, LongText::Fitted),
        None => (120, LongText::Whole),
    }
}

/// How often a progress line is drawn.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Redraw {
    EverySecond,
    /// Only at the start of each step, because drawing in between would disturb the measurement.
    EachStep,
}

/// A progress line on a terminal: the step, and an estimate of the time left. Dropping the line removes it.
pub struct ProgressLine {
    state: Arc<Mutex<StepProgress>>,
    bar: Option<ProgressBar>,
    redraw: Redraw,
}

/// The progress of a measurement, from which [`StepProgress::time_left`] estimates the time left.
#[derive(Debug)]
struct StepProgress {
    started: Instant,
    step_started: Instant,
    /// Number of steps that have ended.
    steps_done: usize,
    step_count: usize,
    /// Finished part of the current step, 0 to 1.
    fraction: f64,
    /// Planned length of each step, or `None` if the plan states none.
    expected: Option<Duration>,
}

impl StepProgress {
    /// No step has started. `step_count`: 0 if the number of steps is not known yet.
    fn new(step_count: usize) -> StepProgress {
        let now = Instant::now();
        StepProgress {
            started: now,
            step_started: now,
            steps_done: 0,
            step_count,
            fraction: 0.0,
            expected: None,
        }
    }

    /// The time until the last step ends, or `None` while nothing shows the length of a step.
    ///
    /// The length of a step is the planned length. Without a plan, it is the extrapolated length of the current step,
    /// or else the mean length of the ended steps.
    fn time_left(&self, now: Instant) -> Option<Duration> {
        let in_step = now.saturating_duration_since(self.step_started);
        let before_step = self.step_started.saturating_duration_since(self.started);
        let step_length = match (self.expected, u32::try_from(self.steps_done)) {
            (Some(expected), _) => expected,
            _ if self.fraction > 0.0 => {
                Duration::try_from_secs_f64(in_step.as_secs_f64() / self.fraction).ok()?
            }
            (None, Ok(steps_done @ 1..)) => before_step / steps_done,
            _ => return None,
        };
        let steps_left = u32::try_from(self.step_count.saturating_sub(self.steps_done)).ok()?;
        Some(step_length.checked_mul(steps_left)?.saturating_sub(in_step))
    }
}

impl ProgressLine {
    /// A progress line without steps. [`ProgressLine::step`] or [`Progress::start`] sets them.
    pub fn new(redraw: Redraw) -> ProgressLine {
        let state = Arc::new(Mutex::new(StepProgress::new(0)));
        let bar = shows_progress().then(|| time_left_bar(Arc::clone(&state)));
        ProgressLine { state, bar, redraw }
    }

    /// Starts the step `number` of `count`, counted from 1. The steps before it have ended.
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
        *state = StepProgress {
            started,
            step_started: now,
            steps_done: step.number.saturating_sub(1),
            step_count: step.count,
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

/// A line on the terminal with its message, the time since its start, and the time left by the estimate in `state`.
fn time_left_bar(state: Arc<Mutex<StepProgress>>) -> ProgressBar {
    let write_time_left = move |_: &ProgressState, text: &mut dyn std::fmt::Write| {
        let state = state.lock().unwrap_or_else(PoisonError::into_inner);
        let _ = match state.time_left(Instant::now()) {
            Some(time) => write!(text, "about {} left", rounded(time)),
            None => write!(text, "time left not known yet"),
        };
    };
    let style = ProgressStyle::with_template("{msg}  ({elapsed}, {time_left})");
    let style = style
        .unwrap_or_else(|_| ProgressStyle::default_spinner())
        .with_key("time_left", write_time_left);
    let bar = LINES.add(ProgressBar::no_length());
    bar.set_style(style);
    bar
}

/// Starts a thread that redraws a line every second until the line is finished.
///
/// Does not use the thread that indicatif offers: indicatif panics where the kernel refuses a thread.
fn redraw_every_second(bar: &ProgressBar) {
    let bar = bar.downgrade();
    let redraw = move || {
        while let Some(bar) = bar.upgrade().filter(|bar| !bar.is_finished()) {
            bar.tick();
            drop(bar);
            std::thread::sleep(Duration::from_secs(1));
        }
    };
    // If the kernel refuses the thread, the line still changes at each step.
    let _ = spawn_thread("progress", redraw);
}

fn shows_progress() -> bool {
    !options().quiet && io::stderr().is_terminal()
}

/// Progress on stderr while simulated machines run: a line for each machine, and a forecast for all of them.
#[derive(Default)]
pub struct MachineLines {
    lines: Mutex<BTreeMap<String, MachineLine>>,
    forecast: Mutex<ForecastLine>,
}

/// The verbs `sim boot` and `sim workload`, as [`PlannedMachines`] names them.
pub const BOOT: &str = "sim boot";
pub const WORKLOAD: &str = "sim workload";
/// When the first forecast is printed, after the start of the first machine.
const FIRST_FORECAST: Duration = Duration::from_secs(4);
/// Time between two forecasts where stderr is no terminal.
const NEXT_FORECAST: Duration = Duration::from_secs(10);

/// The forecast of all machines of a command: a line that changes on a terminal, else a new line each time.
#[derive(Default)]
struct ForecastLine {
    experiment: &'static str,
    forecast: Forecast,
    /// When the next forecast is due; `None` before the first machine.
    due: Option<Instant>,
    bar: Option<ProgressBar>,
    /// Whether a machine ends early. The forecast would still count its remaining work, so it is no longer shown.
    ends_early: bool,
}

impl ForecastLine {
    /// Prints the forecast if it is due.
    fn show(&mut self) {
        let now = Instant::now();
        let due = *self.due.get_or_insert(now + FIRST_FORECAST);
        if now < due || self.ends_early {
            return;
        }
        let text = forecast_text(&self.forecast, now, self.experiment);
        if shows_progress() {
            self.bar.get_or_insert_with(message_bar).set_message(escape::plain(&text));
            self.due = Some(now + Duration::from_secs(1));
        } else {
            say(&text);
            self.due = Some(now + NEXT_FORECAST);
        }
    }

    /// Removes the line while no machine runs.
    fn pause(&mut self) {
        if let Some(bar) = self.bar.take() {
            bar.finish_and_clear();
        }
    }
}

/// A line on the terminal with only its message.
fn message_bar() -> ProgressBar {
    let bar = LINES.add(ProgressBar::no_length());
    let style = ProgressStyle::with_template("{msg}");
    bar.set_style(style.unwrap_or_else(|_| ProgressStyle::default_spinner()));
    bar
}

/// The forecast in words: the time left, its largest part, the option that shortens this part, and the phase of each
/// machine.
fn forecast_text(forecast: &Forecast, now: Instant, experiment: &str) -> String {
    let mut text = match forecast.time_left(now) {
        Some(time_left) => {
            let qualifier = if forecast.is_at_most() { "at most" } else { "about" };
            let mut text = format!("forecast: {qualifier} {} left", rounded(time_left.total));
            let part = match time_left.dominated_by {
                TimePart::SetUp => "set-up",
                TimePart::Windows if experiment == BOOT => "the command",
                TimePart::Windows if experiment == WORKLOAD => "the workload",
                TimePart::Windows => "windows",
                TimePart::FurtherMachines => "further machines",
            };
            if time_left.total >= Duration::from_secs(1) {
                let _ = write!(text, ", mostly {part}");
                if let Some(option) = option_that_shortens(experiment, time_left.dominated_by) {
                    let _ = write!(text, " (less with {option})");
                }
            }
            text
        }
        None => {
            let reason = reason_for_no_forecast(forecast);
            let mut text = format!("forecast: time left not known yet ({reason})");
            if let Some((host, Limits { guest_s, .. })) = forecast.limits(now) {
                let host = rounded(host);
                let _ = write!(
                    text,
                    "; at most {host} (--limit), and {guest_s} s of guest time (--guest-limit)"
                );
            }
            text
        }
    };
    let (ended, planned) = forecast.machines();
    if planned > 1 {
        let _ = write!(text, "; {ended} of {planned} machines done");
    }
    for (machine, state) in forecast.states() {
        let _ = write!(text, "; {machine}: {}", phase_text(state.phase));
        let Some(elapsed_ns) = state.elapsed_ns else { continue };
        let elapsed_ms = elapsed_ns as f64 / 1e6;
        let _ = write!(text, ", {elapsed_ms:.1} ms of guest time done");
        if let Some(fraction) = state.fraction.filter(|fraction| *fraction > 0.0) {
            let _ = write!(text, ", {:.1} ms left", elapsed_ms / fraction - elapsed_ms);
        }
        if let Some(rate) = forecast.rate(now, machine) {
            let _ = write!(text, ", {:.3} ms/s", rate * 1e3);
        }
        // A window with a known fraction has a known length in guest time, which says more than instructions.
        if state.fraction.is_some() {
            continue;
        }
        let rate = forecast.instruction_rate(now, machine);
        if let Some((instructions, rate)) = state.instructions.zip(rate) {
            let (done, rate) = (instructions as f64 / 1e6, rate / 1e6);
            let _ = write!(text, ", {done:.1} M instructions done, {rate:.1} M/s");
        }
    }
    text
}

/// The reason why the time left is not known yet.
fn reason_for_no_forecast(forecast: &Forecast) -> &'static str {
    let has_phase = |phase: MachinePhase| forecast.states().any(|(_, state)| state.phase == phase);
    let is_timed = forecast.states().any(|(_, state)| state.fraction.is_some());
    if has_phase(MachinePhase::Boots) {
        "the machine boots once; the cache keeps it"
    } else if has_phase(MachinePhase::Unobserved) {
        "the cache has no times of the same run"
    } else if has_phase(MachinePhase::Starts) {
        "a window is not open yet, and the cache has no times of an earlier run"
    } else if is_timed {
        "the rate of the guest is not measured yet"
    } else {
        "the guest decides when it ends, and the cache has no times of the same run"
    }
}

/// The option that shortens this part of an experiment, or `None` if no option does.
fn option_that_shortens(experiment: &str, part: TimePart) -> Option<&'static str> {
    match (experiment, part) {
        ("handlers" | "signal run", TimePart::Windows) => Some("a shorter -d"),
        ("noise", TimePart::Windows) => Some("a shorter -d, or fewer --loop"),
        ("footprint", TimePart::Windows) => Some("fewer --level, --stimulus or --repetitions"),
        ("services", TimePart::Windows) => Some("a shorter command, or a smaller --until"),
        (BOOT, TimePart::Windows) => Some("a shorter command"),
        (BOOT, TimePart::SetUp) => Some("--from a checkpoint"),
        ("handlers" | "noise", TimePart::SetUp) => Some("a shorter --warm-up"),
        ("handlers", TimePart::FurtherMachines) => {
            Some("fewer --load, --rate or --stimulus, or more -j")
        }
        ("noise", TimePart::FurtherMachines) => Some("fewer --loop, or more -j"),
        ("signal run", TimePart::FurtherMachines) => {
            Some("fewer --schemes, --rates or --repetitions, or more -j")
        }
        _ => None,
    }
}

/// The progress line of one machine: its phase, and an estimate of the time until the phase ends.
struct MachineLine {
    bar: Option<ProgressBar>,
    state: Arc<Mutex<StepProgress>>,
    phase: Option<MachinePhase>,
}

impl MachineLine {
    fn new() -> MachineLine {
        let state = Arc::new(Mutex::new(StepProgress::new(1)));
        let bar = shows_progress().then(|| time_left_bar(Arc::clone(&state)));
        if let Some(bar) = &bar {
            redraw_every_second(bar);
        }
        MachineLine { bar, state, phase: None }
    }
}

impl MachineLines {
    /// Shows the phase of a machine in its line.
    fn show_phase(&self, machine: &str, state: MachineState) {
        let MachineState { phase, fraction, .. } = state;
        let mut lines = self.lines.lock().unwrap_or_else(PoisonError::into_inner);
        let line = lines.entry(machine.to_owned()).or_insert_with(MachineLine::new);
        if line.phase != Some(phase) {
            line.phase = Some(phase);
            // Earlier phases do not predict the length of this phase.
            *line.state.lock().unwrap_or_else(PoisonError::into_inner) = StepProgress::new(1);
            say_more(&format!("{machine}: {}", phase_text(phase)));
        }
        line.state.lock().unwrap_or_else(PoisonError::into_inner).fraction =
            fraction.unwrap_or(0.0);
        if let Some(bar) = &line.bar {
            let percent =
                fraction.map(|part| format!(", {:.0} %", part * 100.0)).unwrap_or_default();
            let text = format!("{machine}: {}{percent}", phase_text(phase));
            bar.set_message(escape::plain(&text));
        }
    }
}

impl MachineProgress for MachineLines {
    fn plan(&self, machines: PlannedMachines) {
        let mut line = self.forecast.lock().unwrap_or_else(PoisonError::into_inner);
        line.experiment = machines.experiment;
        line.ends_early = false;
        line.forecast.plan(machines.count, machines.at_once);
    }

    fn start(&self, machine: &str, work: MachineWork) {
        let mut line = self.forecast.lock().unwrap_or_else(PoisonError::into_inner);
        line.forecast.start(Instant::now(), machine, work);
    }

    fn update(&self, machine: &str, state: MachineState) {
        // An unobserved machine reports nothing but its console, so it gets no line.
        if state.phase != MachinePhase::Unobserved {
            self.show_phase(machine, state);
        }
        let mut line = self.forecast.lock().unwrap_or_else(PoisonError::into_inner);
        line.forecast.update(Instant::now(), machine, state);
        line.show();
    }

    fn ends_early(&self, machine: &str, phase: MachinePhase, reason: EarlyReason) {
        let cause = match reason {
            EarlyReason::Stopped => "stopping",
            EarlyReason::HostLimit | EarlyReason::GuestLimit => "the time limit is reached",
        };
        let consequence = match phase {
            MachinePhase::Boots
            | MachinePhase::Unobserved
            | MachinePhase::Starts
            | MachinePhase::WarmUp => "it has measured nothing yet",
            MachinePhase::Window(_)
            | MachinePhase::After(_)
            | MachinePhase::Drains
            | MachinePhase::Analysis => {
                "what it has measured is kept (a second Ctrl-C or signal ends irqlab at once, and \
                 keeps nothing)"
            }
        };
        let mut forecast_line = self.forecast.lock().unwrap_or_else(PoisonError::into_inner);
        forecast_line.ends_early = true;
        forecast_line.pause();
        drop(forecast_line);
        say(&format!("{machine}: {cause} ({}); {consequence}", phase_text(phase)));
    }

    fn done(&self, machine: &str) {
        let mut forecast_line = self.forecast.lock().unwrap_or_else(PoisonError::into_inner);
        forecast_line.forecast.end(Instant::now(), machine);
        if forecast_line.forecast.states().next().is_none() {
            forecast_line.pause();
        }
        drop(forecast_line);
        let line = self.lines.lock().unwrap_or_else(PoisonError::into_inner).remove(machine);
        if let Some(bar) = line.and_then(|line| line.bar) {
            bar.finish_and_clear();
        }
    }
}

/// The phase of a simulated machine, for its progress line.
fn phase_text(phase: MachinePhase) -> String {
    match phase {
        MachinePhase::Boots => "booting".to_owned(),
        MachinePhase::Unobserved => "running".to_owned(),
        MachinePhase::Starts => "preparing the first window".to_owned(),
        MachinePhase::WarmUp => "warming up".to_owned(),
        MachinePhase::Window(number) => format!("window {number}"),
        MachinePhase::After(number) => format!("after window {number}"),
        MachinePhase::Drains => "ending".to_owned(),
        MachinePhase::Analysis => "reading the record".to_owned(),
    }
}

/// Formats an estimate with few digits, as in `12 s`, `30 min` or `2 h`.
pub fn rounded(time: Duration) -> String {
    let mut text = String::new();
    let seconds = time.as_secs_f64().ceil();
    let _ = match seconds {
        ..600.0 => write!(text, "{seconds} s"),
        ..6000.0 => write!(text, "{:.0} min", seconds / 60.0),
        _ => write!(text, "{:.0} h", seconds / 3600.0),
    };
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_option_overrides_no_color_which_overrides_the_terminal() {
        assert!(is_colored(Color::Auto, true, false));
        assert!(!is_colored(Color::Auto, true, true) && !is_colored(Color::Auto, false, false));
        assert!(is_colored(Color::Always, false, true) && !is_colored(Color::Never, true, false));
    }

    #[test]
    fn the_time_left_follows_from_the_plan_or_from_earlier_steps() {
        let second = Duration::from_secs(1);
        let started = Instant::now();
        let mut estimate = StepProgress {
            started,
            step_started: started,
            steps_done: 0,
            step_count: 4,
            fraction: 0.0,
            expected: None,
        };
        assert_eq!(estimate.time_left(started + second), None);
        estimate.fraction = 0.5;
        assert_eq!(estimate.time_left(started + second), Some(7 * second));
        estimate.expected = Some(10 * second);
        assert_eq!(estimate.time_left(started + second), Some(39 * second));
        (estimate.expected, estimate.fraction, estimate.steps_done) = (None, 0.0, 2);
        estimate.step_started = started + 12 * second;
        assert_eq!(estimate.time_left(started + 13 * second), Some(11 * second));
        assert_eq!(estimate.time_left(started + 99 * second), Some(Duration::ZERO));
    }

    #[test]
    fn estimates_are_rounded() {
        let text = |seconds| rounded(Duration::from_secs_f64(seconds));
        assert_eq!([text(1.2), text(1500.0), text(7200.0)], ["2 s", "25 min", "2 h"]);
    }

    #[test]
    fn a_forecast_names_the_time_its_largest_part_and_the_option_that_shortens_it() {
        let start = Instant::now();
        let second = Duration::from_secs(1);
        let mut forecast = Forecast::new(1, 1);
        forecast.plan(2, 1);
        let work = MachineWork { windows: Some(1), ..MachineWork::default() };
        forecast.start(start, "idle/low/net", work);
        let text = |forecast: &Forecast| forecast_text(forecast, start + 10 * second, "handlers");
        assert_eq!(
            text(&forecast),
            "forecast: time left not known yet (a window is not open yet, and the cache has no times of an \
             earlier run); 0 of 2 machines done; idle/low/net: preparing the first window"
        );
        let window = |fraction| MachineState {
            phase: MachinePhase::Window(1),
            fraction: Some(fraction),
            elapsed_ns: Some((fraction * 2e8) as u64),
            instructions: None,
        };
        forecast.update(start + 5 * second, "idle/low/net", window(0.0));
        forecast.update(start + 10 * second, "idle/low/net", window(0.25));
        assert_eq!(
            text(&forecast),
            "forecast: about 40 s left, mostly further machines (less with fewer --load, --rate or --stimulus, \
             or more -j); 0 of 2 machines done; idle/low/net: window 1, 50.0 ms of guest time done, 150.0 ms \
             left, 10.000 ms/s"
        );
        forecast.plan(0, 1);
        let alone =
            "forecast: about 15 s left, mostly windows (less with a shorter -d); idle/low/net: ";
        assert!(text(&forecast).starts_with(alone), "{}", text(&forecast));
        forecast.end(start + 10 * second, "idle/low/net");
        forecast.plan(1, 1);
        let limits = Some(Limits { wall: 1800 * second, guest_s: 600 });
        forecast.start(start, "command", MachineWork { limits, ..MachineWork::default() });
        let state = |instructions| MachineState {
            phase: MachinePhase::Window(1),
            fraction: None,
            elapsed_ns: Some(1_500_000),
            instructions: Some(instructions),
        };
        forecast.update(start + 5 * second, "command", state(0));
        forecast.update(start + 10 * second, "command", state(12_300_000));
        assert_eq!(
            text(&forecast),
            "forecast: time left not known yet (the guest decides when it ends, and the cache has no times of \
             the same run); at most 30 min (--limit), and 600 s of guest time (--guest-limit); 1 of 2 machines \
             done; command: window 1, 1.5 ms of guest time done, 0.300 ms/s, 12.3 M instructions done, 2.5 M/s"
        );
    }
}
