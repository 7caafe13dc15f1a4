//! The option `--on-threshold`: what to do at a detour that is too long, or when a thread is too late.
//!
//! The window ends first, so no action costs time in it. With `continue` the window goes on, and a thread on irqlab's own
//! CPUs performs the actions.

use std::os::fd::OwnedFd;
use std::process::ExitCode;
use std::str::FromStr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Sender, channel};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use anyhow::bail;
use lab::experiment::BenchError;
use live::spawn::spawn_thread;
use live::threshold::{LargestCause, OnThreshold, OverThreshold, ThresholdWatch, Thresholds};
use live::window::{HeldCommand, is_program};
use rustix::process::{Pid, PidfdFlags, Signal, pidfd_open, pidfd_send_signal, test_kill_process};

use crate::console;
use crate::options::{Usage, any_duration, ns};
use crate::run::DIFFERS;

/// Longest time of a command of `run=`.
const COMMAND_TIME_MAX: Duration = Duration::from_secs(60);
/// Length of the flight record of `trace` without `--flight-record`.
const TRACE_LENGTH: Duration = Duration::from_secs(5);
/// Interval at which irqlab looks whether such a command has ended.
const COMMAND_POLL: Duration = Duration::from_millis(10);
/// The signals that `signal=` knows.
const SIGNALS: [(&str, Signal); 8] = [
    ("TERM", Signal::TERM),
    ("INT", Signal::INT),
    ("HUP", Signal::HUP),
    ("QUIT", Signal::QUIT),
    ("KILL", Signal::KILL),
    ("STOP", Signal::STOP),
    ("USR1", Signal::USR1),
    ("USR2", Signal::USR2),
];

/// The value of `--on-threshold`: `TIME:ACTION`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Threshold {
    length_ns: u64,
    action: Action,
}

#[derive(Clone, Debug, PartialEq, Eq)]
enum Action {
    /// Only ends the window.
    Stop,
    /// The window goes on; only `stop` ends it.
    Continue,
    /// Keeps the flight record. Ends the window, unless it goes on.
    Trace,
    /// Executes a command, without a shell.
    Run(Vec<String>),
    Signal(Signal, Pid),
}

impl FromStr for Threshold {
    type Err = String;

    fn from_str(text: &str) -> Result<Threshold, String> {
        let allowed = || {
            "allowed: TIME:stop, TIME:trace, TIME:continue, TIME:run=COMMAND or TIME:signal=NAME,PID, as in \
             200us:stop"
                .to_owned()
        };
        let (time, action) = text.split_once(':').ok_or_else(allowed)?;
        let length_ns = ns(any_duration(time)?);
        let action = match action.split_once('=') {
            None if action == "stop" => Action::Stop,
            None if action == "continue" => Action::Continue,
            None if action == "trace" => Action::Trace,
            Some(("run", command)) => {
                let words: Vec<String> = command.split_whitespace().map(str::to_owned).collect();
                if words.is_empty() {
                    return Err(allowed());
                }
                Action::Run(words)
            }
            Some(("signal", target)) => {
                let (name, pid) = target.split_once(',').ok_or_else(allowed)?;
                let signal = SIGNALS.into_iter().find(|(known, _)| *known == name);
                let names = SIGNALS.map(|(known, _)| known).join(", ");
                let (_, signal) = signal.ok_or_else(|| format!("allowed signals: {names}"))?;
                let pid = pid.parse().ok().filter(|pid| *pid > 1).and_then(Pid::from_raw);
                Action::Signal(signal, pid.ok_or_else(allowed)?)
            }
            _ => return Err(allowed()),
        };
        if length_ns == 0 { Err(allowed()) } else { Ok(Threshold { length_ns, action }) }
    }
}

impl Threshold {
    /// The lengths from which on the bench counts, acts and ends the window. `None` without thresholds.
    pub fn lengths(thresholds: &[Threshold]) -> Option<Thresholds> {
        let shortest = |is_wanted: fn(&Action) -> bool| {
            let wanted = thresholds.iter().filter(|threshold| is_wanted(&threshold.action));
            wanted.map(|threshold| threshold.length_ns).min()
        };
        let counted_ns = shortest(|_| true)?;
        let goes_on = shortest(|action| *action == Action::Continue).is_some();
        let is_performed = |action: &Action| matches!(action, Action::Run(_) | Action::Signal(..));
        Some(if goes_on {
            let stop_ns = shortest(|action| *action == Action::Stop);
            Thresholds {
                counted_ns,
                stop_ns,
                act_within_ns: shortest(is_performed),
                keep_record_ns: shortest(|action| *action == Action::Trace),
            }
        } else {
            Thresholds {
                counted_ns,
                stop_ns: Some(counted_ns),
                act_within_ns: None,
                keep_record_ns: None,
            }
        })
    }

    /// Whether an action is `trace`, which keeps a flight record.
    fn has_trace(thresholds: &[Threshold]) -> bool {
        thresholds.iter().any(|threshold| threshold.action == Action::Trace)
    }

    /// Length of the flight record, ns: `asked`, or [`TRACE_LENGTH`] if an action is `trace`. `None`: nothing is recorded.
    pub fn flight_record_ns(thresholds: &[Threshold], asked: Option<Duration>) -> Option<u64> {
        let length = asked.or_else(|| Threshold::has_trace(thresholds).then_some(TRACE_LENGTH));
        length.map(ns)
    }

    /// Refuses the action `trace` without the kernel's events.
    pub fn check_traced(thresholds: &[Threshold], no_trace: bool) -> Result<(), Usage> {
        if no_trace && Threshold::has_trace(thresholds) {
            let reason =
                "--on-threshold TIME:trace keeps the kernel's events, which --no-trace leaves out";
            return Err(Usage(reason.to_owned()));
        }
        Ok(())
    }

    /// Prepares the actions before the measurement, and watches for lengths that reach the thresholds.
    ///
    /// Fails if a command is not found, or a process does not exist or may not get signals.
    pub fn watch(thresholds: &[Threshold]) -> anyhow::Result<ThresholdWatch> {
        let actions = prepare(thresholds)?;
        let Some(lengths) = Threshold::lengths(thresholds) else {
            return Ok(ThresholdWatch::default());
        };
        let on_threshold: OnThreshold = if lengths.act_within_ns.is_some() {
            let mut performer =
                Performer { actions: Arc::new(actions), thread: None, ends: Arc::default() };
            Box::new(move |over| performer.perform(over.clone()))
        } else {
            Box::new(move |over| perform(&actions, over))
        };
        Ok(ThresholdWatch::new(lengths, on_threshold))
    }
}

/// Says which detour or wake-up (`what`, a clause) was the worst over the threshold. Returns the exit code of the verb:
/// `exit` unless that is a success.
pub fn conclude(what: &str, over: &OverThreshold, ended_window: bool, exit: ExitCode) -> ExitCode {
    let cause = over.cause.as_ref().map_or(String::new(), in_words);
    let outcome = if ended_window {
        "the window ended"
    } else {
        "the longest over the threshold; the window went on"
    };
    console::warn(&format!("{what}{cause}: {outcome} (--on-threshold)"));
    if exit == ExitCode::SUCCESS { ExitCode::from(DIFFERS) } else { exit }
}

/// The largest cause of a detour or wake-up, with its time, as the end of a clause.
fn in_words(cause: &LargestCause) -> String {
    format!(", {} ns of it: {}", cause.length_ns, cause.text)
}

/// An action that is ready to be performed. A process is held by a descriptor, so no later process of its number gets the
/// signal.
enum PreparedAction {
    Run(Vec<String>),
    Signal(Signal, OwnedFd),
}

/// The actions with the lengths that they need, ns.
type PreparedActions = Vec<(u64, PreparedAction)>;

/// Prepares the actions before the measurement.
///
/// Fails if a command is not found, or a process does not exist or may not get signals.
fn prepare(thresholds: &[Threshold]) -> anyhow::Result<PreparedActions> {
    let mut prepared = Vec::new();
    for threshold in thresholds {
        let action = match &threshold.action {
            Action::Stop | Action::Continue | Action::Trace => continue,
            Action::Run(words) if is_program(&words[0]) => PreparedAction::Run(words.clone()),
            Action::Run(words) => {
                bail!(Usage(format!("--on-threshold: there is no program {:?}", words[0])))
            }
            Action::Signal(signal, pid) => {
                let process = test_kill_process(*pid)
                    .and_then(|()| pidfd_open(*pid, PidfdFlags::empty()))
                    .map_err(|error| {
                        let pid = pid.as_raw_nonzero();
                        Usage(format!("--on-threshold: process {pid}: {error}"))
                    })?;
                PreparedAction::Signal(*signal, process)
            }
        };
        prepared.push((threshold.length_ns, action));
    }
    Ok(prepared)
}

/// Performs the actions of all thresholds that the length reaches. Actions that fail are a warning.
fn perform(actions: &PreparedActions, over: &OverThreshold) {
    for (_, action) in actions.iter().filter(|(length_ns, _)| over.length_ns >= *length_ns) {
        let done = match action {
            PreparedAction::Run(words) => run(words, over),
            PreparedAction::Signal(signal, process) => {
                pidfd_send_signal(process, *signal).map_err(|error| error.to_string())
            }
        };
        if let Err(error) = done {
            console::warn(&format!("--on-threshold: {error}"));
        }
    }
}

/// Performs actions in a thread of its own while the window goes on, one after the other. Dropping the performer waits
/// for the end of the running action. Actions that still wait are not performed, and a warning gives their number.
struct Performer {
    actions: Arc<PreparedActions>,
    /// Started at the first action, so that it inherits the CPUs of irqlab's own thread in the window.
    thread: Option<(Sender<OverThreshold>, JoinHandle<()>)>,
    /// Set when the run ends.
    ends: Arc<AtomicBool>,
}

impl Performer {
    fn perform(&mut self, over: OverThreshold) {
        if self.thread.is_none() {
            let (sender, receiver) = channel();
            let actions = Arc::clone(&self.actions);
            let ends = Arc::clone(&self.ends);
            let body = move || {
                let mut left_out = 0;
                for over in receiver {
                    if ends.load(Ordering::Relaxed) {
                        left_out += 1;
                    } else {
                        perform(&actions, &over);
                    }
                }
                if left_out > 0 {
                    console::warn(&format!(
                        "--on-threshold: the run ended before the actions of {left_out} more"
                    ));
                }
            };
            match spawn_thread("irqlab-actions", body) {
                Ok(handle) => self.thread = Some((sender, handle)),
                Err(error) => console::warn(&format!("--on-threshold: {error}")),
            }
        }
        if let Some((sender, _)) = &self.thread {
            let _ = sender.send(over); // Fails only if the thread has died.
        }
    }
}

impl Drop for Performer {
    fn drop(&mut self) {
        if let Some((sender, handle)) = self.thread.take() {
            self.ends.store(true, Ordering::Relaxed);
            drop(sender);
            let _ = handle.join();
        }
    }
}

/// Executes a command after its placeholders were replaced, and waits for its end.
fn run(words: &[String], over: &OverThreshold) -> Result<(), String> {
    let command: Vec<String> = words.iter().map(|word| replaced(word, over)).collect();
    execute(&command, || false)
}

/// Executes a command, without a shell, and waits for its end. Sends it SIGTERM after [`COMMAND_TIME_MAX`], and when
/// `is_over` returns `true`.
///
/// Fails with the reason if the command cannot start or does not succeed.
pub fn execute(words: &[String], is_over: impl Fn() -> bool) -> Result<(), String> {
    let start = || {
        let running = HeldCommand::new(words, true)?.release()?;
        running.wait_for_start()?;
        Ok::<_, BenchError>(running)
    };
    let mut running = start().map_err(|error| error.to_string())?;
    let deadline = Instant::now() + COMMAND_TIME_MAX;
    while Instant::now() < deadline {
        match running.status().map_err(|error| error.to_string())? {
            Some(status) if status.success() => return Ok(()),
            Some(status) => return Err(format!("{}: {status}", words[0])),
            None if is_over() => {
                return Err(format!("{} gets SIGTERM, because irqlab ends", words[0]));
            }
            None => std::thread::sleep(COMMAND_POLL),
        }
    }
    // Dropping it sends the signal.
    Err(format!("{} ran for {COMMAND_TIME_MAX:?}, and gets SIGTERM", words[0]))
}

/// Replaces `{cpu}`, `{latency_ns}` and `{cause}` in a word of a command.
fn replaced(word: &str, over: &OverThreshold) -> String {
    word.replace("{cpu}", &over.cpu.to_string())
        .replace("{latency_ns}", &over.length_ns.to_string())
        .replace("{cause}", over.cause.as_ref().map_or("unknown", |cause| &cause.text))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_threshold_has_a_time_and_an_action() {
        let parse = |text: &str| text.parse::<Threshold>();
        let stop = parse("200us:stop").unwrap();
        assert_eq!((stop.length_ns, &stop.action), (200_000, &Action::Stop));
        let run = parse("1ms:run=echo {cpu} at:{latency_ns}").unwrap();
        let command = ["echo", "{cpu}", "at:{latency_ns}"].map(str::to_owned).to_vec();
        assert_eq!(run.action, Action::Run(command));
        let pid = Pid::from_raw(77).unwrap();
        assert_eq!(parse("1ms:signal=USR1,77").unwrap().action, Action::Signal(Signal::USR1, pid));
        for nonsense in [
            "",
            "1ms",
            "stop",
            "0us:stop",
            "1ms:go",
            "1ms:run=",
            "1ms:signal=TERM",
            "1ms:signal=TERM,0",
            "1ms:signal=TERM,-1",
            "1ms:signal=NONE,77",
            "x:stop",
        ] {
            assert!(parse(nonsense).is_err(), "{nonsense}");
        }
    }

    #[test]
    fn only_continue_lets_the_window_go_on() {
        let lengths = |texts: &[&str]| {
            let parsed: Vec<Threshold> = texts.iter().map(|text| text.parse().unwrap()).collect();
            Threshold::lengths(&parsed)
        };
        assert_eq!(lengths(&[]), None);
        let counted = Thresholds {
            counted_ns: 50_000,
            stop_ns: None,
            act_within_ns: None,
            keep_record_ns: None,
        };
        let ends = Thresholds { counted_ns: 200_000, stop_ns: Some(200_000), ..counted };
        assert_eq!(lengths(&["1ms:stop", "200us:run=true"]), Some(ends));
        assert_eq!(lengths(&["1ms:stop", "200us:trace"]), Some(ends));
        let kept = Thresholds { keep_record_ns: Some(70_000), ..counted };
        assert_eq!(lengths(&["50us:continue", "70us:trace"]), Some(kept));
        assert_eq!(lengths(&["50us:continue"]), Some(counted));
        let acts = Thresholds { stop_ns: Some(9_000_000), act_within_ns: Some(80_000), ..counted };
        assert_eq!(lengths(&["9ms:stop", "50us:continue", "80us:run=true"]), Some(acts));
    }

    /// The cause has a program's name, which anyone may choose. It stays one argument.
    #[test]
    fn placeholders_are_replaced_within_their_word() {
        let cause = LargestCause { text: "task a b; rm {cpu}".to_owned(), length_ns: 2 };
        assert_eq!(in_words(&cause), ", 2 ns of it: task a b; rm {cpu}");
        let over = OverThreshold { cpu: 3, length_ns: 5, cause: Some(cause) };
        assert_eq!(replaced("cpu={cpu},{latency_ns}", &over), "cpu=3,5");
        assert_eq!(replaced("{cause}", &over), "task a b; rm {cpu}");
    }
}
