//! `--dry-run` on simulated machines: prints what each machine would measure, and how long it would take by the times of
//! earlier runs, for people or as JSON. `irqlab sweep` reads the JSON of its tasks.

use std::fmt::Write as _;
use std::process::ExitCode;
use std::time::Instant;

use serde::{Deserialize, Serialize};
use sim::boot::Limits;
use sim::forecast::{Forecast, MachineWork};
use sim::parallel::Jobs;

use crate::console;
use crate::options::Format;

/// The document of `--dry-run --json`.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct DryRun {
    pub machines: Vec<DryMachine>,
    /// How many of the machines would run at the same time.
    pub at_once: usize,
}

/// A machine that a command would run.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct DryMachine {
    pub label: String,
    /// Host time of the machine, by the times of earlier runs, seconds. `None`: no such run is known.
    pub host_time_s: Option<f64>,
    /// Whether `host_time_s` is an upper bound: the machine may end its windows early.
    pub is_upper_bound: bool,
    /// Host memory of the machine with QEMU's own, MiB. `None`: unknown.
    pub host_memory_mib: Option<u64>,
}

/// Prints for `--dry-run` what each machine of an experiment would measure, and how long it would take. `at_once`: how many
/// of the machines run at the same time.
///
/// Fails when stdout cannot be written.
pub fn print_plan(
    format: Format,
    at_once: usize,
    machines: &[(String, MachineWork)],
) -> anyhow::Result<ExitCode> {
    let text = match format {
        Format::Json => {
            let document = serde_json::to_string_pretty(&document(at_once, machines))?;
            document + "\n"
        }
        _ => text(at_once, machines),
    };
    console::print(&text)?;
    Ok(ExitCode::SUCCESS)
}

/// The forecast of machines that have not started.
fn forecast(at_once: usize, machines: &[(String, MachineWork)], now: Instant) -> Forecast {
    let mut forecast = Forecast::new(machines.len(), at_once);
    for (number, (_, work)) in machines.iter().enumerate() {
        forecast.start(now, &number.to_string(), work.clone());
    }
    forecast
}

fn document(at_once: usize, machines: &[(String, MachineWork)]) -> DryRun {
    let now = Instant::now();
    let machine = |machine: &(String, MachineWork)| {
        let forecast = forecast(1, std::slice::from_ref(machine), now);
        let (label, work) = machine;
        DryMachine {
            label: label.clone(),
            host_time_s: forecast.time_left(now).map(|left| left.total.as_secs_f64()),
            is_upper_bound: forecast.is_at_most(),
            host_memory_mib: work.memory_mib.map(Jobs::needed_mib),
        }
    };
    DryRun { machines: machines.iter().map(machine).collect(), at_once }
}

fn text(at_once: usize, machines: &[(String, MachineWork)]) -> String {
    let now = Instant::now();
    let time_text = |machines: &[(String, MachineWork)]| {
        let forecast = forecast(at_once, machines, now);
        match forecast.time_left(now) {
            Some(time_left) if forecast.is_at_most() => {
                format!("at most {}", console::rounded(time_left.total))
            }
            Some(time_left) => format!("about {}", console::rounded(time_left.total)),
            None => "not known, because the cache has no times of an earlier run".to_owned(),
        }
    };
    let mut text = String::new();
    for (number, (label, work)) in machines.iter().enumerate() {
        let _ = write!(text, "{label}: ");
        let ms = |ns: u64| ns as f64 / 1e6;
        if let Some(ns) = work.warm_up_ns {
            let _ = write!(text, "warm-up of {} ms, ", ms(ns));
        }
        let _ = match (work.windows, work.window_ns) {
            (Some(count), Some(ns)) => {
                let qualifier = if work.windows_end_early { "at most " } else { "" };
                write!(text, "windows: {count}, of {qualifier}{} ms each", ms(ns))
            }
            (Some(count), None) => {
                write!(text, "windows: {count}, until the command or the repetitions end")
            }
            (None, _) if work.limits.is_some() => write!(text, "until it ends"),
            (None, _) => write!(text, "windows: as many as the guest needs"),
        };
        let _ = write!(text, "; time: {}", time_text(&machines[number..=number]));
        if let Some(Limits { wall, guest_s }) = work.limits {
            let wall = console::rounded(wall);
            let _ = write!(
                text,
                "; at most {wall} (--limit), and {guest_s} s of guest time (--guest-limit)"
            );
        }
        text.push('\n');
    }
    if machines.len() > 1 || machines.iter().all(|(_, work)| work.limits.is_none()) {
        let _ = writeln!(text, "all, {at_once} at the same time: {}", time_text(machines));
    }
    text
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use sim::KeptTimes;

    use super::*;

    #[test]
    fn a_time_that_is_unknown_is_null_in_the_document() {
        let kept = KeptTimes {
            set_up: Duration::from_secs(1),
            windows: Duration::from_secs(2),
            guest_ns: 1,
            window_count: 1,
            single: Vec::new(),
            request: String::new(),
        };
        let known = MachineWork {
            kept: Some(kept),
            is_same_request: true,
            memory_mib: Some(512),
            ..MachineWork::default()
        };
        let machines = [("a".to_owned(), known), ("b".to_owned(), MachineWork::default())];
        let text = serde_json::to_string(&document(2, &machines)).unwrap();
        let read: DryRun = serde_json::from_str(&text).unwrap();
        assert_eq!(read.machines[0].host_time_s, Some(3.0));
        assert_eq!(read.machines[0].host_memory_mib, Some(Jobs::needed_mib(512)));
        assert_eq!((read.machines[1].host_time_s, read.machines[1].host_memory_mib), (None, None));
        assert!(text.contains("\"host_time_s\":null"), "{text}");
    }
}
