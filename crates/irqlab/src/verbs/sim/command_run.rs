//! The run of a command or workload on a machine. Shows progress and a forecast on the terminal, and keeps the times of
//! the run in the cache, for the forecasts of later runs. `sim boot` and `sim workload` use it.

use std::process::ExitCode;
use std::time::Duration;

use sim::boot::Limits;
use sim::{Cache, GuestProgress, MachineProgress, MachineTimes, PlannedMachines, TimedMachine};

use crate::console::MachineLines;
use crate::dry_run::print_plan;
use crate::options::Format;

/// A machine that runs a command or a workload.
pub struct CommandRun {
    cache: Cache,
    verb: &'static str,
    /// Name of the machine in progress lines.
    label: String,
    times: MachineTimes,
    lines: MachineLines,
}

impl CommandRun {
    /// The run of a machine that has not started yet. `verb`: [`crate::console::BOOT`] or [`crate::console::WORKLOAD`].
    /// `label`: name of the machine in progress lines.
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

    /// Prints how long the run would take by the times of an equal earlier run.
    ///
    /// Fails when stdout cannot be written.
    pub fn print_plan(&self, format: Format) -> anyhow::Result<ExitCode> {
        print_plan(format, 1, &[(self.label.clone(), self.times.work())])
    }

    /// Starts the progress lines, when the machine starts.
    pub fn start(&self) {
        self.lines.plan(PlannedMachines { experiment: self.verb, count: 1, at_once: 1 });
        self.lines.start(&self.label, self.times.work());
    }

    /// Updates the progress lines and the measured times. `progress`: `None` if the plugin does not observe the
    /// machine.
    pub fn observe(&self, progress: Option<GuestProgress>) {
        self.lines.update(&self.label, self.times.observe_command(progress));
    }

    /// Removes the progress lines, when the machine has ended.
    pub fn done(&self) {
        self.lines.done(&self.label);
    }

    /// Keeps the times of a machine that has executed its whole command. `host_time`: from its start to its end.
    pub fn keep(&self, host_time: Duration) {
        self.times.keep(&self.cache, host_time);
    }
}
