//! The option `--on-threshold`: what to do when a thread is too late.
//!
//! The window ends first, so no action costs time in it.

use std::os::fd::OwnedFd;
use std::str::FromStr;
use std::time::{Duration, Instant};

use anyhow::bail;
use lab::experiment::BenchError;
use live::wakeup::OverThreshold;
use live::window::{HeldCommand, is_program};
use rustix::process::{Pid, PidfdFlags, Signal, pidfd_open, pidfd_send_signal, test_kill_process};

use crate::console;
use crate::options::{Usage, any_duration, ns};

/// Longest time of a command of `run=`.
const COMMAND_TIME_MAX: Duration = Duration::from_secs(60);
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
    pub late_ns: u64,
    action: Action,
}

#[derive(Clone, Debug, PartialEq, Eq)]
enum Action {
    /// Only ends the window.
    Stop,
    /// Executes a command, without a shell.
    Run(Vec<String>),
    Signal(Signal, Pid),
}

impl FromStr for Threshold {
    type Err = String;

    fn from_str(text: &str) -> Result<Threshold, String> {
        let allowed = || {
            "allowed: TIME:stop, TIME:run=COMMAND or TIME:signal=NAME,PID, as in 200us:stop"
                .to_owned()
        };
        let (time, action) = text.split_once(':').ok_or_else(allowed)?;
        let late_ns = ns(any_duration(time)?);
        let action = match action.split_once('=') {
            None if action == "stop" => Action::Stop,
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
        if late_ns == 0 { Err(allowed()) } else { Ok(Threshold { late_ns, action }) }
    }
}

/// The lateness that ends the window: the smallest of all thresholds.
pub fn smallest_ns(thresholds: &[Threshold]) -> Option<u64> {
    thresholds.iter().map(|threshold| threshold.late_ns).min()
}

/// Actions that are ready to be performed. A process is held by a descriptor, so no later process of its number gets the
/// signal.
pub struct Prepared(Vec<(u64, PreparedAction)>);

enum PreparedAction {
    Stop,
    Run(Vec<String>),
    Signal(Signal, OwnedFd),
}

/// Prepares the actions before the measurement.
///
/// Fails if a command is not found, or a process does not exist or may not get signals.
pub fn prepare(thresholds: &[Threshold]) -> anyhow::Result<Prepared> {
    let prepared = thresholds.iter().map(|threshold| {
        let action = match &threshold.action {
            Action::Stop => PreparedAction::Stop,
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
        Ok((threshold.late_ns, action))
    });
    Ok(Prepared(prepared.collect::<anyhow::Result<_>>()?))
}

/// Performs the actions of all thresholds that the wake-up exceeded. Actions that fail are a warning.
pub fn perform(Prepared(prepared): Prepared, over: &OverThreshold) {
    for (_, action) in prepared.into_iter().filter(|(late_ns, _)| over.late_ns >= *late_ns) {
        let done = match action {
            PreparedAction::Stop => Ok(()),
            PreparedAction::Run(words) => run(&words, over),
            PreparedAction::Signal(signal, process) => {
                pidfd_send_signal(&process, signal).map_err(|error| error.to_string())
            }
        };
        if let Err(error) = done {
            console::warn(&format!("--on-threshold: {error}"));
        }
    }
}

/// Executes a command after its placeholders were replaced, and waits for its end. Sends it SIGTERM after
/// [`COMMAND_TIME_MAX`].
fn run(words: &[String], over: &OverThreshold) -> Result<(), String> {
    let words: Vec<String> = words.iter().map(|word| replaced(word, over)).collect();
    let start = || {
        let running = HeldCommand::new(&words, true)?.release()?;
        running.wait_for_start()?;
        Ok::<_, BenchError>(running)
    };
    let mut running = start().map_err(|error| error.to_string())?;
    let deadline = Instant::now() + COMMAND_TIME_MAX;
    while Instant::now() < deadline {
        match running.status().map_err(|error| error.to_string())? {
            Some(status) if status.success() => return Ok(()),
            Some(status) => return Err(format!("{}: {status}", words[0])),
            None => std::thread::sleep(COMMAND_POLL),
        }
    }
    // Dropping it sends the signal.
    Err(format!("{} ran for {COMMAND_TIME_MAX:?}, and gets SIGTERM", words[0]))
}

/// Replaces `{cpu}`, `{latency_ns}` and `{cause}` in a word of a command.
fn replaced(word: &str, over: &OverThreshold) -> String {
    word.replace("{cpu}", &over.cpu.to_string())
        .replace("{latency_ns}", &over.late_ns.to_string())
        .replace("{cause}", over.cause.as_deref().unwrap_or("unknown"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_threshold_has_a_time_and_an_action() {
        let parse = |text: &str| text.parse::<Threshold>();
        let stop = parse("200us:stop").unwrap();
        assert_eq!((stop.late_ns, &stop.action), (200_000, &Action::Stop));
        let run = parse("1ms:run=echo {cpu} at:{latency_ns}").unwrap();
        let words = ["echo", "{cpu}", "at:{latency_ns}"].map(str::to_owned).to_vec();
        assert_eq!(run.action, Action::Run(words));
        let pid = Pid::from_raw(77).unwrap();
        assert_eq!(parse("1ms:signal=USR1,77").unwrap().action, Action::Signal(Signal::USR1, pid));
        assert_eq!(smallest_ns(&[run, stop]), Some(200_000));
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

    /// The cause has a program's name, which anyone may choose. It stays one argument.
    #[test]
    fn placeholders_are_replaced_within_their_word() {
        let cause = Some("task a b; rm {cpu}".to_owned());
        let over = OverThreshold { cpu: 3, late_ns: 5, cause };
        assert_eq!(replaced("cpu={cpu},{latency_ns}", &over), "cpu=3,5");
        assert_eq!(replaced("{cause}", &over), "task a b; rm {cpu}");
    }
}
