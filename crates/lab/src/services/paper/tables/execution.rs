//! Where the time goes on each machine: Figures 4.1, 4.3 and 5.1.

use record::{Column, Table, TableDisplay, Value};

use super::super::super::class::Class;
use super::super::runs::{MachineRun, Mode, ratio};
use super::{Sides, factor, model_column, of_percent, real, text, workload_column};

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
        part("published_time_ratio", "paper", "The paper's share, which it has of idle time.").priority(97),
        part("busy_ratio", "% busy", "Share of the time that is not idle.").priority(96),
        part("published_busy_ratio", "paper's", "The paper's figure of it.").priority(95),
        part("kernel_ratio", "% kernel", "Share of sync in the kernel's time.").priority(85),
        part("published_kernel_ratio", "paper's", "The paper's figure of it.").priority(84),
        factor(
            "relative_time_ratio",
            "Time for each instruction of user mode, over that of all modes on the first machine: how long the \
             same work takes (Figure 4.3).",
        )
        .title("relative time")
        .priority(94),
        factor("speed_up_ratio", "How many times as fast the same work is as on the first machine, in this mode.")
            .title("speed-up")
            .priority(93),
        part("execution_ratio", "execution", "Share of the mode's time in which the processor executes.")
            .priority(80),
        part("fetch_stall_ratio", "I stall", "Share in which it waits for instructions.").priority(79),
        part("data_stall_ratio", "D stall", "Share in which it waits for data.").priority(78),
        part("pipeline_stall_ratio", "pipeline", "Share that is lost in the pipeline.").priority(77),
    ]
}

/// Rows of user, kernel, idle, what waits for locks on several CPUs, and of all that is not idle.
pub(super) fn execution(sides: &Sides<'_>) -> Table {
    let doc = "Where the time goes: user mode, kernel, waiting for locks, idle, each divided into execution and \
               stalls; and how long the same work takes on each machine. The paper has bars for it, and some \
               numbers in words.";
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

/// Time for the same work, over that of all modes on the first machine.
fn relative(run: &MachineRun, base: Option<&MachineRun>, ticks: u64) -> Option<f64> {
    let base = base.filter(|_| run.cpus == 1)?;
    let whole = base.seconds_per_user_instruction(base.sample.window_ticks)?;
    ratio(run.seconds_per_user_instruction(ticks)?, whole)
}

/// How many times as fast as the first machine.
pub(in super::super) fn speed_up(
    run: &MachineRun,
    base: &MachineRun,
    ticks: impl Fn(&MachineRun) -> u64,
) -> Option<f64> {
    let seconds = |run: &MachineRun| run.seconds_per_user_instruction(ticks(run));
    ratio(seconds(base)?, seconds(run)?)
}

fn shares(run: &MachineRun, ticks: u64, of: impl Fn(Mode) -> bool) -> [Value; 4] {
    let parts =
        run.parts(|service| Mode::ALL.into_iter().any(|mode| of(mode) && mode.holds(service)));
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
    let is_ours = |name: &String| *name == run.model;
    let is_first_or_multi = sides.paper.machines.first().is_some_and(is_ours) || run.cpus > 1;
    let kernel_percent = published.filter(|_| is_first_or_multi).map(|of| match run.cpus {
        1 => of.kernel_percent,
        _ => of.multiprocessor_kernel_percent,
    });
    let idle_percent = published.and_then(|of| of.idle_percent.get(&run.model).copied());
    let (time, busy) = match mode {
        Mode::User => (None, kernel_percent.map(|percent| 100.0 - percent)),
        Mode::Kernel => (None, kernel_percent),
        Mode::Idle => (idle_percent.filter(|_| run.cpus == 1), None),
    };
    let busy_ratio =
        (mode != Mode::Idle).then(|| ratio(ticks as f64, run.busy_ticks() as f64)).flatten();
    let faster = base.filter(|_| run.cpus == 1 && mode != Mode::Idle);
    let mut row: Vec<Value> = vec![
        run.workload.as_str().into(),
        run.model.as_str().into(),
        mode.word().into(),
        ratio(ticks as f64, run.sample.window_ticks as f64).into(),
        time.map(of_percent).into(),
        busy_ratio.into(),
        busy.map(of_percent).into(),
        Value::Absent,
        Value::Absent,
        relative(run, base, ticks).into(),
        faster.and_then(|base| speed_up(run, base, |one| one.ticks(mode))).into(),
    ];
    row.extend(shares(run, ticks, |one| one == mode));
    row
}

/// All that is not idle.
fn busy(run: &MachineRun, base: Option<&MachineRun>) -> Vec<Value> {
    let ticks = run.busy_ticks();
    let faster = base.filter(|_| run.cpus == 1);
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
        faster.and_then(|base| speed_up(run, base, MachineRun::busy_ticks)).into(),
    ];
    row.extend(shares(run, ticks, |mode| mode != Mode::Idle));
    row
}

/// Waits for locks, a part of the kernel's time; none on one CPU, or where they were not watched.
fn sync(sides: &Sides<'_>, run: &MachineRun) -> Option<Vec<Value>> {
    let is_watched = run.cpus > 1 && run.sample.locks.is_some();
    let waits = run.sample.ticks(|service| service.class == Class::Lock);
    let ticks = is_watched.then(|| waits.unwrap_or(0))?;
    let published = sides.paper.workload(&run.workload).map(|of| of_percent(of.sync_percent));
    let mut row: Vec<Value> = vec![
        run.workload.as_str().into(),
        run.model.as_str().into(),
        "sync".into(),
        ratio(ticks as f64, run.sample.window_ticks as f64).into(),
        Value::Absent,
        ratio(ticks as f64, run.busy_ticks() as f64).into(),
        Value::Absent,
        ratio(ticks as f64, run.ticks(Mode::Kernel) as f64).into(),
        published.into(),
    ];
    row.resize(COLUMNS, Value::Absent);
    Some(row)
}
