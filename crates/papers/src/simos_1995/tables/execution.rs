//! Where the time goes on each machine: Figures 4.1, 4.3 and 5.1.

use lab::services::Class;
use record::{Column, Table, TableDisplay, Value};

use super::super::runs::{MachineRun, Mode, ratio};
use super::{Sides, factor, model_column, percent_to_ratio, real, text, workload_column};

const COLUMNS: usize = 15;

fn columns() -> Vec<Column> {
    let part = |name: &str, title: &str, doc: &str| real(name, doc).title(title);
    vec![
        workload_column(),
        model_column(),
        text("mode", "user, kernel or idle; sync: the kernel's waits for locks, a part of kernel.")
            .priority(99)
            .key(),
        part("time_ratio", "% time", "Share of the time of all CPUs.").priority(98),
        part("published_time_ratio", "paper", "The paper's share; only of idle time.").priority(97),
        part("busy_ratio", "% busy", "Share of the time that is not idle.").priority(96),
        part("published_busy_ratio", "paper's", "The paper's figure.").priority(95),
        part("kernel_ratio", "% kernel", "Share of sync in the kernel's time.").priority(85),
        part("published_kernel_ratio", "paper's", "The paper's figure.").priority(84),
        factor(
            "relative_time_ratio",
            "Time for the same work: the mode's time per instruction of user mode, over the time \
             of all modes per instruction of user mode on the first machine (Figure 4.3).",
        )
        .title("relative time")
        .priority(94),
        factor(
            "speed_up_ratio",
            "Speed-up over the first machine for the same work, in this mode.",
        )
        .title("speed-up")
        .priority(93),
        part(
            "execution_ratio",
            "execution",
            "Share of the mode's time that executes instructions.",
        )
        .priority(80),
        part(
            "fetch_stall_ratio",
            "I stall",
            "Share of the mode's time that waits for instructions.",
        )
        .priority(79),
        part("data_stall_ratio", "D stall", "Share of the mode's time that waits for data.")
            .priority(78),
        part(
            "pipeline_stall_ratio",
            "pipeline",
            "Share of the mode's time that is lost in the pipeline.",
        )
        .priority(77),
    ]
}

/// Rows of user mode, kernel, idle, not idle, and lock waits (only on several CPUs).
pub(super) fn execution(sides: &Sides<'_>) -> Table {
    let doc = "Where the time goes: user mode, kernel, waiting for locks and idle, each divided \
               into execution and stalls, and the time for the same work on each machine. The \
               paper shows bars, and gives some numbers in its text.";
    let display = TableDisplay {
        title: "Execution time (Figures 4.1, 4.3, 5.1)".to_owned(),
        group_by: vec!["workload".to_owned()],
        ..TableDisplay::default()
    };
    let mut table = Table::new("execution", doc, columns()).displayed(display);
    for workload in sides.workloads() {
        let base = sides.machine(workload, 0);
        for run in sides.machines(workload) {
            for mode in Mode::ALL {
                table.push(row(sides, run, base, mode));
            }
            table.push(busy(run, base));
            if let Some(row) = sync(sides, run) {
                table.push(row);
            }
        }
    }
    table
}

/// `ticks` for the same work, over the time of all modes on the first machine. `None` on several CPUs.
fn relative(run: &MachineRun, base: Option<&MachineRun>, ticks: u64) -> Option<f64> {
    if run.cpus != 1 {
        return None;
    }
    let base = base?;
    let base_seconds = base.seconds_per_user_instruction(base.sample.window_ticks)?;
    ratio(run.seconds_per_user_instruction(ticks)?, base_seconds)
}

/// Speed-up over the first machine for the same work.
pub(in super::super) fn speed_up(
    run: &MachineRun,
    base: &MachineRun,
    ticks: impl Fn(&MachineRun) -> u64,
) -> Option<f64> {
    let seconds = |run: &MachineRun| run.seconds_per_user_instruction(ticks(run));
    ratio(seconds(base)?, seconds(run)?)
}

fn shares(run: &MachineRun, ticks: u64, is_included: impl Fn(Mode) -> bool) -> [Value; 4] {
    let included = Mode::ALL.into_iter().filter(|mode| is_included(*mode));
    let parts = run.parts(|service| included.clone().any(|mode| mode.holds(service)));
    let share = |part: u64| -> Value { ratio(part as f64, ticks as f64).into() };
    match parts {
        Some(parts) => {
            [share(parts.execution), share(parts.fetch), share(parts.data), share(parts.pipeline)]
        }
        None => [Value::Absent, Value::Absent, Value::Absent, Value::Absent],
    }
}

fn row(sides: &Sides<'_>, run: &MachineRun, base: Option<&MachineRun>, mode: Mode) -> Vec<Value> {
    let ticks = run.ticks(mode);
    let published = sides.paper.workload(&run.workload);
    let is_first = sides.paper.machines.first().is_some_and(|model| *model == run.model);
    let kernel_percent = if run.cpus > 1 {
        published.map(|published| published.multiprocessor_kernel_percent)
    } else if is_first {
        published.map(|published| published.kernel_percent)
    } else {
        None
    };
    let idle_percents = published.map(|published| &published.idle_percent);
    let idle_percent = idle_percents.and_then(|percents| percents.get(&run.model).copied());
    let (time, busy) = match mode {
        Mode::User => (None, kernel_percent.map(|percent| 100.0 - percent)),
        Mode::Kernel => (None, kernel_percent),
        Mode::Idle => (if run.cpus == 1 { idle_percent } else { None }, None),
    };
    let busy_ratio =
        (mode != Mode::Idle).then(|| ratio(ticks as f64, run.busy_ticks() as f64)).flatten();
    let speed_up_base = if run.cpus == 1 && mode != Mode::Idle { base } else { None };
    let mut row: Vec<Value> = vec![
        run.workload.as_str().into(),
        run.model.as_str().into(),
        mode.label().into(),
        ratio(ticks as f64, run.sample.window_ticks as f64).into(),
        time.map(percent_to_ratio).into(),
        busy_ratio.into(),
        busy.map(percent_to_ratio).into(),
        Value::Absent,
        Value::Absent,
        relative(run, base, ticks).into(),
        speed_up_base.and_then(|base| speed_up(run, base, |run| run.ticks(mode))).into(),
    ];
    row.extend(shares(run, ticks, |candidate| candidate == mode));
    row
}

/// The row of all time that is not idle.
fn busy(run: &MachineRun, base: Option<&MachineRun>) -> Vec<Value> {
    let ticks = run.busy_ticks();
    let speed_up_base = if run.cpus == 1 { base } else { None };
    let mut row: Vec<Value> = vec![
        run.workload.as_str().into(),
        run.model.as_str().into(),
        "not idle".into(),
        ratio(ticks as f64, run.sample.window_ticks as f64).into(),
        Value::Absent,
        Value::Absent,
        Value::Absent,
        Value::Absent,
        Value::Absent,
        relative(run, base, ticks).into(),
        speed_up_base.and_then(|base| speed_up(run, base, MachineRun::busy_ticks)).into(),
    ];
    row.extend(shares(run, ticks, |mode| mode != Mode::Idle));
    row
}

/// The row of lock waits, which are a part of the kernel's time. `None` on one CPU, or if locks were not measured.
fn sync(sides: &Sides<'_>, run: &MachineRun) -> Option<Vec<Value>> {
    let is_measured = run.cpus > 1 && run.sample.locks.is_some();
    let waits = run.sample.ticks(|service| service.class == Class::Lock);
    let ticks = is_measured.then(|| waits.unwrap_or(0))?;
    let published = sides.paper.workload(&run.workload);
    let sync_ratio = published.map(|published| percent_to_ratio(published.sync_percent));
    let mut row: Vec<Value> = vec![
        run.workload.as_str().into(),
        run.model.as_str().into(),
        "sync".into(),
        ratio(ticks as f64, run.sample.window_ticks as f64).into(),
        Value::Absent,
        ratio(ticks as f64, run.busy_ticks() as f64).into(),
        Value::Absent,
        ratio(ticks as f64, run.ticks(Mode::Kernel) as f64).into(),
        sync_ratio.into(),
    ];
    row.resize(COLUMNS, Value::Absent);
    Some(row)
}
