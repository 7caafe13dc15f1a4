//! Table `execution`: where the time goes on each machine (Figures 4.1, 4.3 and 5.1). Users' programs read the columns:
//! names and order must not change.

use lab::services::Class;
use record::{Column, Columns, Table, column};

use super::super::runs::{MachineRun, Mode, Parts, ratio};
use super::{Sides, display_by_workload, factor, percent_to_ratio, run_columns};

/// Rows of each machine: label, and the modes whose times are added up.
const ROWS: [(&str, &[Mode]); 4] = [
    ("user", &[Mode::User]),
    ("kernel", &[Mode::Kernel]),
    ("idle", &[Mode::Idle]),
    ("not idle", &[Mode::User, Mode::Kernel]),
];

/// The time of modes on a machine.
struct Row<'s> {
    run: &'s MachineRun,
    /// The first machine.
    base: Option<&'s MachineRun>,
    label: &'static str,
    /// Empty for waits for locks, which are a part of the kernel's time.
    modes: &'static [Mode],
    /// Time of these modes, or of the waits for locks.
    ticks: u64,
}

impl Row<'_> {
    /// The row's time over `total_ticks`. `None` if the total is 0.
    fn share_of(&self, total_ticks: u64) -> Option<f64> {
        ratio(self.ticks as f64, total_ticks as f64)
    }

    /// The row's share of the time that is not idle. `None` for idle and for the sum `not idle`.
    fn busy_ratio(&self) -> Option<f64> {
        let is_part = matches!(self.modes, [] | [Mode::User] | [Mode::Kernel]);
        if is_part { self.share_of(self.run.busy_ticks()) } else { None }
    }

    /// Time for the same work, over the time of all modes on the first machine. `None` on several CPUs.
    fn relative_time(&self) -> Option<f64> {
        let (run, base) = (self.run, self.base?);
        if run.cpus != 1 || self.modes.is_empty() {
            return None;
        }
        let base_seconds = base.seconds_per_user_instruction(base.sample.window_ticks)?;
        ratio(run.seconds_per_user_instruction(self.ticks)?, base_seconds)
    }

    /// Speed-up over the first machine for the same work. `None` on several CPUs,
    /// for idle time and for waits for locks.
    fn speed_up(&self) -> Option<f64> {
        let has_speed_up = !self.modes.is_empty() && !self.modes.contains(&Mode::Idle);
        if self.run.cpus != 1 || !has_speed_up {
            return None;
        }
        let ticks = |run: &MachineRun| self.modes.iter().map(|mode| run.ticks(*mode)).sum();
        speed_up(self.run, self.base?, ticks)
    }

    /// The share of one of the [`Parts`] in the row's time.
    fn part_ratio(&self, part: impl Fn(&Parts) -> u64) -> Option<f64> {
        if self.modes.is_empty() {
            return None;
        }
        let is_included = |service: &_| self.modes.iter().any(|mode| mode.includes(service));
        ratio(part(&self.run.parts(is_included)?) as f64, self.ticks as f64)
    }

    /// The paper's share of the time of all CPUs, of the time that is not idle, and of the kernel's time.
    fn published_percents(&self, sides: &Sides<'_>) -> [Option<f64>; 3] {
        let Some(published) = sides.paper.workload(&self.run.workload) else { return [None; 3] };
        let is_first = sides.paper.machines.first() == Some(&self.run.model);
        let kernel = if self.run.cpus > 1 {
            Some(published.multiprocessor_kernel_percent)
        } else {
            is_first.then_some(published.kernel_percent)
        };
        match self.modes {
            [] => [None, None, Some(published.sync_percent)],
            [Mode::User] => [None, kernel.map(|percent| 100.0 - percent), None],
            [Mode::Kernel] => [None, kernel, None],
            [Mode::Idle] if self.run.cpus == 1 => {
                [published.idle_percent.get(&self.run.model).copied(), None, None]
            }
            _ => [None; 3],
        }
    }
}

fn columns<'s>(sides: &'s Sides<'_>) -> Columns<'s, Row<'s>> {
    let published = |name: &str, title: &str, doc: &str, priority, position: usize| {
        let column = column(name, doc).title(title).priority(priority);
        column.real(move |row: &Row<'_>| {
            row.published_percents(sides)[position].map(percent_to_ratio)
        })
    };
    let part = |column: Column, title: &str, priority, part: fn(&Parts) -> u64| {
        column.title(title).priority(priority).real(move |row: &Row<'_>| row.part_ratio(part))
    };
    let mode = "user, kernel or idle; sync: the kernel's waits for locks, a part of kernel.";
    let idle = "The paper's share; only of idle time.";
    let executes = "Share of the mode's time that executes instructions.";
    let fetches = "Share of the mode's time that waits for instructions.";
    let waits = "Share of the mode's time that waits for data.";
    let pipeline = "Share of the mode's time that is lost in the pipeline.";
    run_columns().of_ref(|row: &Row<'_>| row.run).and([
        column("mode", mode).priority(99).key().text(|row: &Row<'_>| row.label),
        column("time_ratio", "Share of the time of all CPUs.")
            .title("% time")
            .priority(98)
            .real(|row: &Row<'_>| row.share_of(row.run.sample.window_ticks)),
        published("published_time_ratio", "paper", idle, 97, 0),
        column("busy_ratio", "Share of the time that is not idle.")
            .title("% busy")
            .priority(96)
            .real(|row: &Row<'_>| row.busy_ratio()),
        published("published_busy_ratio", "paper's", "The paper's figure.", 95, 1),
        column("kernel_ratio", "Share of sync in the kernel's time.")
            .title("% kernel")
            .priority(85)
            .real(|row: &Row<'_>| {
                if row.modes.is_empty() { row.share_of(row.run.ticks(Mode::Kernel)) } else { None }
            }),
        published("published_kernel_ratio", "paper's", "The paper's figure.", 84, 2),
        factor(
            "relative_time_ratio",
            "Time for the same work: the mode's time per instruction of user mode, over the time \
             of all modes per instruction of user mode on the first machine (Figure 4.3).",
        )
        .title("relative time")
        .priority(94)
        .real(|row: &Row<'_>| row.relative_time()),
        factor(
            "speed_up_ratio",
            "Speed-up over the first machine for the same work, in this mode.",
        )
        .title("speed-up")
        .priority(93)
        .real(|row: &Row<'_>| row.speed_up()),
        part(column("execution_ratio", executes), "execution", 80, |parts| parts.execution),
        part(column("fetch_stall_ratio", fetches), "I stall", 79, |parts| parts.fetch),
        part(column("data_stall_ratio", waits), "D stall", 78, |parts| parts.data),
        part(column("pipeline_stall_ratio", pipeline), "pipeline", 77, |parts| parts.pipeline),
    ])
}

/// Rows of user mode, kernel, idle, not idle, and lock waits (only on several CPUs).
pub(super) fn execution(sides: &Sides<'_>) -> Table {
    let doc = "Where the time goes: user mode, kernel, waiting for locks and idle, each divided \
               into execution and stalls, and the time for the same work on each machine. The \
               paper shows bars, and gives some numbers in its text.";
    let mut rows = Vec::new();
    for workload in sides.workloads() {
        let base = sides.machine(workload, 0);
        for run in sides.machines(workload) {
            rows.extend(ROWS.map(|(label, modes)| {
                let ticks = modes.iter().map(|mode| run.ticks(*mode)).sum();
                Row { run, base, label, modes, ticks }
            }));
            if run.cpus > 1 && run.sample.locks.is_some() {
                let ticks = run.sample.ticks(|service| service.class == Class::Lock).unwrap_or(0);
                rows.push(Row { run, base, label: "sync", modes: &[], ticks });
            }
        }
    }
    columns(sides)
        .table("execution", doc, rows)
        .displayed(display_by_workload("Execution time (Figures 4.1, 4.3, 5.1)"))
}

/// Speed-up of `run` over `base` for the same work: the ratio of their times per instruction of
/// user mode. `ticks`: the time to compare. `None` if a run has no instructions of user mode.
pub(in super::super) fn speed_up(
    run: &MachineRun,
    base: &MachineRun,
    ticks: impl Fn(&MachineRun) -> u64,
) -> Option<f64> {
    let seconds = |run: &MachineRun| run.seconds_per_user_instruction(ticks(run));
    ratio(seconds(base)?, seconds(run)?)
}
