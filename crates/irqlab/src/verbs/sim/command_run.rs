//! The run of a command on a machine: its progress and forecast, and its times for later forecasts.

use std::process::ExitCode;
use std::time::Duration;

use sim::boot::Limits;
use sim::{Cache, GuestProgress, MachineProgress, MachineTimes, PlannedMachines, TimedMachine};

use crate::console::MachineLines;
use crate::simulated::print_plan;

/// A machine that runs a command or a workload.
pub struct CommandRun {
    cache: Cache,
    verb: &'static str,
    /// Its name for the user.
    label: String,
    times: MachineTimes,
    lines: MachineLines,
}

impl CommandRun {
    /// The machine is about to start. `verb`: [`crate::console::BOOT`] or [`crate::console::WORKLOAD`]. `label`: the
    /// machine's name for the user.
    pub fn new(
        timed: &TimedMachine<'_>,
        verb: &'static str,
        label: String,
        request: &str,
        limits: Limits,
    ) -> CommandRun {
        let times = MachineTimes::of_command(timed, verb, request, limits);
        CommandRun {
            cache: timed.cache.clone(),
            verb,
            label,
            times,
            lines: MachineLines::default(),
        }
    }

    /// Prints how long it takes by the times of an equal earlier run.
    ///
    /// Fails when stdout cannot be written.
    pub fn print_plan(&self) -> anyhow::Result<ExitCode> {
        print_plan(1, &[(self.label.clone(), self.times.work())])
    }

    /// Shows that the machine runs.
    pub fn start(&self) {
        self.lines.plan(PlannedMachines { experiment: self.verb, count: 1, at_once: 1 });
        self.lines.start(&self.label, self.times.work());
    }

    /// Shows and measures how far the machine is. `progress`: `None` if it is not observed.
    pub fn observe(&self, progress: Option<GuestProgress>) {
        self.lines.update(&self.label, self.times.observe_command(progress));
    }

    /// The machine has ended.
    pub fn done(&self) {
        self.lines.done(&self.label);
    }

    /// Keeps the times of a machine that has executed all of its command. `ran`: host time from its start to its end.
    pub fn keep(&self, ran: Duration) {
        self.times.keep(&self.cache, ran);
    }
}
