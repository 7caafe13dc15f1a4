//! The tables of `irqlab affinity`: `affinity`, one row per interrupt line, and `affinity_cpus`, one row per CPU. Users'
//! programs read the columns: names and order must not change.

use record::{Columns, Format, Keep, RowFilter, Table, TableDisplay, column};

use super::costs::Load;

/// Whether a CPU takes interrupt lines.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum CpuRole {
    TakesLines,
    /// Why it takes none, such as `isolated (isolcpus)`.
    TakesNone(String),
}

/// The kernel's answer to a move.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum AppliedChange {
    /// The mask is in force.
    Done,
    /// The mask was refused, with the reason.
    Refused(String),
}

impl AppliedChange {
    fn text(&self) -> String {
        match self {
            AppliedChange::Done => "yes".to_owned(),
            AppliedChange::Refused(reason) => format!("no: {reason}"),
        }
    }
}

/// A line, its costs, its present place and its place in the plan.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct LineReport {
    pub irq: u32,
    /// The names of its handlers.
    pub name: String,
    /// Time of its handlers and threads.
    pub handlers: Load,
    /// Its part of the softirq NET_RX.
    pub softirq: Load,
    /// The CPUs that it may use, as a list; `None` if unknown.
    pub allowed: Option<String>,
    /// The CPU that the interrupt controller has, as a list; `None` if unknown.
    pub effective: Option<String>,
    /// The CPU that the plan gives it; `None`: it stays.
    pub target: Option<u32>,
    pub reason: String,
    /// Why the plan counts some CPUs as near to its device, or as users of its data; empty if it counts none.
    pub near: String,
    /// `None` without `--apply`, and for lines that stay.
    pub applied: Option<AppliedChange>,
    /// CPUs that it may use, CPU that the controller has, and cost, after the change. `None` without `--apply`.
    pub after: Option<LineAfter>,
}

/// A line in the second measurement.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct LineAfter {
    pub allowed: Option<String>,
    pub effective: Option<String>,
    pub cost: Load,
}

impl LineReport {
    fn cost(&self) -> Load {
        [self.handlers, self.softirq].into_iter().sum()
    }
}

/// A CPU, its interrupt time before, in the plan, and after.
#[derive(Clone, Debug, PartialEq)]
pub struct CpuReport {
    pub cpu: u32,
    pub role: CpuRole,
    /// Time that no line can take away.
    pub fixed_ns_per_s: f64,
    pub before: Load,
    pub predicted_ns_per_s: f64,
    /// The second measurement; `None` without `--apply`.
    pub after: Option<Load>,
}

/// The lines and the CPUs of one call of `irqlab affinity`.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct AffinityReport {
    pub lines: Vec<LineReport>,
    pub cpus: Vec<CpuReport>,
}

impl AffinityReport {
    /// Whether a second measurement followed a change.
    fn is_measured_again(&self) -> bool {
        self.cpus.iter().any(|cpu| cpu.after.is_some())
    }

    /// The load of the busiest CPU, and its part of all interrupt time: before, predicted and after. `None` without that
    /// measurement, or without any interrupt time.
    #[must_use]
    pub fn busiest(&self) -> [Option<Busiest>; 3] {
        let loads = |load: fn(&CpuReport) -> Option<f64>| -> Option<Vec<f64>> {
            self.cpus.iter().map(load).collect()
        };
        [
            loads(|cpu| Some(cpu.before.ns_per_s)),
            loads(|cpu| Some(cpu.predicted_ns_per_s)),
            loads(|cpu| cpu.after.map(|load| load.ns_per_s)),
        ]
        .map(|loads| {
            let loads = loads?;
            let largest = loads.iter().copied().fold(0.0, f64::max);
            let sum: f64 = loads.iter().sum();
            (sum > 0.0).then(|| Busiest { load_ratio: largest / 1e9, share_ratio: largest / sum })
        })
    }
}

/// The busiest CPU by interrupt time.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Busiest {
    /// Its interrupt time as a part of its time.
    pub load_ratio: f64,
    /// Its part of the interrupt time of all CPUs.
    pub share_ratio: f64,
}

/// The priority of a column that only `--apply` fills.
fn priority(is_measured_again: bool, priority: u8) -> u8 {
    if is_measured_again { priority } else { 0 }
}

fn line_columns<'a>(is_measured_again: bool) -> Columns<'a, LineReport> {
    let after = |shown| priority(is_measured_again, shown);
    let half_width = "Upper bound of the half width of the 95 % confidence interval of";
    Columns::all([
        column("irq", "Number of the interrupt line.")
            .shown_as("IRQ", 100)
            .format(Format::Identifier)
            .key()
            .uint(|line: &LineReport| line.irq),
        column("name", "Names of the line's handlers.")
            .priority(95)
            .key()
            .text(|line: &LineReport| line.name.clone()),
        column("cost_ratio", "Cost of the line: handler_ratio plus softirq_ratio, of one CPU's time.")
            .shown_as("cost", 99)
            .cost()
            .plus_minus("cost_ci95_ratio")
            .below_limit("cost_below_limit")
            .real(|line: &LineReport| line.cost().ratio()),
        column(
            "cost_ci95_ratio",
            &format!("{half_width} cost_ratio. It lacks the error of the estimate in softirq_ratio."),
        )
            .detail()
            .real(|line: &LineReport| line.cost().ci95_ratio()),
        column("handler_ratio", "Self time of the line's handlers and threads, of one CPU's time.")
            .detail()
            .cost()
            .real(|line: &LineReport| line.handlers.ratio()),
        column(
            "softirq_ratio",
            "The line's part of the softirq NET_RX, of one CPU's time. An estimate: the softirq's time on a CPU is \
             divided among devices by polls and packets, and among a device's lines by calls of their handlers.",
        )
        .detail()
        .cost()
        .real(|line: &LineReport| line.softirq.ratio()),
        column("allowed_cpus", "CPUs that the line may use now (smp_affinity_list).")
            .shown_as("may use", 60)
            .text(|line: &LineReport| line.allowed.clone()),
        column(
            "effective_cpus",
            "CPU to which the interrupt controller sends the line now (effective_affinity_list); absent where the \
             kernel does not tell, or this user may not read it.",
        )
        .shown_as("runs on", 90)
        .text(|line: &LineReport| line.effective.clone()),
        column("planned_cpu", "CPU to which the plan moves the line; absent if it stays.")
            .shown_as("move to", 98)
            .format(Format::Identifier)
            .uint(|line: &LineReport| line.target),
        column("reason", "Why the line moves or stays.")
            .priority(80)
            .uncut()
            .text(|line: &LineReport| line.reason.clone()),
        column("near", "CPUs that the plan counts as near to the device or to the users of its data, with the source.")
            .detail()
            .text(|line: &LineReport| (!line.near.is_empty()).then(|| line.near.clone())),
        column("applied", "Whether --apply changed the line; no has the reason.")
            .priority(after(85))
            .text(|line: &LineReport| line.applied.as_ref().map(AppliedChange::text)),
        column("allowed_after_cpus", "CPUs that the line may use after the second measurement.")
            .detail()
            .text(|line: &LineReport| line.after.as_ref()?.allowed.clone()),
        column("effective_after_cpus", "CPU of the interrupt controller after the second measurement.")
            .shown_as("ran on", after(84))
            .text(|line: &LineReport| line.after.as_ref()?.effective.clone()),
        column("cost_after_ratio", "cost_ratio in the second measurement.")
            .shown_as("cost after", after(97))
            .cost()
            .plus_minus("cost_after_ci95_ratio")
            .below_limit("cost_after_below_limit")
            .real(|line: &LineReport| Some(line.after.as_ref()?.cost.ratio())),
        column("cost_after_ci95_ratio", &format!("{half_width} cost_after_ratio, as cost_ci95_ratio."))
            .detail()
            .real(|line: &LineReport| Some(line.after.as_ref()?.cost.ci95_ratio())),
        column("is_listed", "Whether the line had interrupts in a window, or moves.").detail().bool(
            |line: &LineReport| {
                let cost_after = line.after.as_ref().map(|after| after.cost).unwrap_or_default();
                let had_interrupts = line.cost().had_interrupts() || cost_after.had_interrupts();
                had_interrupts || line.target.is_some()
            },
        ),
        column(
            "cost_below_limit",
            "Whether all times in cost_ratio are below the detection limit: cost_ratio plus cost_ci95_ratio is then an upper \
             bound of the cost.",
        )
        .detail()
        .bool(|line: &LineReport| line.cost().is_below_limit()),
        column("cost_after_below_limit", "cost_below_limit in the second measurement.")
            .detail()
            .bool(|line: &LineReport| Some(line.after.as_ref()?.cost.is_below_limit())),
    ])
}

/// Table `affinity`: one row per interrupt line.
#[must_use]
pub fn affinity_table(report: &AffinityReport) -> Table {
    let doc = "One row per device interrupt line with a handler: its cost, where it runs, and where the plan puts it.";
    let display = TableDisplay {
        title: "interrupt lines by measured cost".to_owned(),
        sort_by: Some("cost_ratio".to_owned()),
        filter: Some(RowFilter {
            column: "is_listed".to_owned(),
            keep: Keep::Bool(true),
            others: "of lines without an interrupt in the window".to_owned(),
        }),
        notes: vec![
            "cost: self time of the handlers and threads, and an estimated part of NET_RX, of one CPU's time; \
             {settings.cost_source}"
                .to_owned(),
            "a line moves off a CPU that takes no lines; or to its device's NUMA node or for balance, if that gains \
             {settings.materiality_ratio} of a CPU"
                .to_owned(),
        ],
        ..TableDisplay::default()
    };
    line_columns(report.is_measured_again())
        .table("affinity", doc, &report.lines)
        .displayed(display)
}

fn cpu_columns<'a>(report: &AffinityReport) -> Columns<'a, (CpuReport, [f64; 3])> {
    let after = |shown| priority(report.is_measured_again(), shown);
    let share = |number: usize| {
        move |(_, sums): &(CpuReport, [f64; 3]), load: f64| {
            (sums[number] > 0.0).then(|| load / sums[number])
        }
    };
    let [share_before, share_predicted, share_after] = [share(0), share(1), share(2)];
    Columns::all([
        column("cpu", "CPU number.")
            .shown_as("CPU", 100)
            .format(Format::Identifier)
            .key()
            .uint(|(cpu, _): &(CpuReport, [f64; 3])| cpu.cpu),
        column("role", "Whether the CPU takes lines, or why it takes none.").priority(60).text(
            |(cpu, _): &(CpuReport, [f64; 3])| match &cpu.role {
                CpuRole::TakesLines => "takes lines".to_owned(),
                CpuRole::TakesNone(reason) => reason.clone(),
            },
        ),
        column(
            "fixed_ratio",
            "Interrupt time that no line can take away, of the CPU's time: local timer, interrupts from other CPUs, \
             softirqs that belong to no line, and lines that cannot be moved.",
        )
        .shown_as("fixed", 70)
        .real(|(cpu, _): &(CpuReport, [f64; 3])| cpu.fixed_ns_per_s / 1e9),
        column("before_ratio", "All interrupt time, of the CPU's time, as measured.")
            .shown_as("before", 99)
            .cost()
            .plus_minus("before_ci95_ratio")
            .below_limit("before_below_limit")
            .real(|(cpu, _): &(CpuReport, [f64; 3])| cpu.before.ratio()),
        column(
            "before_ci95_ratio",
            "Upper bound of the half width of the 95 % confidence interval of before_ratio.",
        )
        .detail()
        .real(|(cpu, _): &(CpuReport, [f64; 3])| cpu.before.ci95_ratio()),
        column(
            "predicted_ratio",
            "before_ratio less the measured cost of lines that leave, plus the measured cost of lines that arrive.",
        )
        .shown_as("predicted", 98)
        .cost()
        .real(|(cpu, _): &(CpuReport, [f64; 3])| cpu.predicted_ns_per_s / 1e9),
        column("after_ratio", "All interrupt time in the second measurement, of the CPU's time.")
            .shown_as("measured after", after(97))
            .cost()
            .plus_minus("after_ci95_ratio")
            .below_limit("after_below_limit")
            .real(|(cpu, _): &(CpuReport, [f64; 3])| Some(cpu.after?.ratio())),
        column(
            "after_ci95_ratio",
            "Upper bound of the half width of the 95 % confidence interval of after_ratio.",
        )
        .detail()
        .real(|(cpu, _): &(CpuReport, [f64; 3])| Some(cpu.after?.ci95_ratio())),
        column("share_before_ratio", "The CPU's part of the interrupt time of all CPUs, as measured.")
            .shown_as("share before", 50)
            .real(move |row: &(CpuReport, [f64; 3])| share_before(row, row.0.before.ns_per_s)),
        column("share_predicted_ratio", "The CPU's predicted part of the interrupt time of all CPUs.")
            .shown_as("share predicted", 49)
            .real(move |row: &(CpuReport, [f64; 3])| {
                share_predicted(row, row.0.predicted_ns_per_s)
            }),
        column(
            "share_after_ratio",
            "The CPU's part of the interrupt time of all CPUs in the second measurement.",
        )
        .shown_as("share after", after(48))
        .real(move |row: &(CpuReport, [f64; 3])| share_after(row, row.0.after?.ns_per_s)),
        column(
            "before_below_limit",
            "Whether all times in before_ratio are below the detection limit: before_ratio plus before_ci95_ratio is then an \
             upper bound.",
        )
        .detail()
        .bool(|(cpu, _): &(CpuReport, [f64; 3])| cpu.before.is_below_limit()),
        column("after_below_limit", "before_below_limit in the second measurement.")
            .detail()
            .bool(|(cpu, _): &(CpuReport, [f64; 3])| Some(cpu.after?.is_below_limit())),
    ])
}

/// Table `affinity_cpus`: one row per online CPU.
#[must_use]
pub fn affinity_cpu_table(report: &AffinityReport) -> Table {
    let doc = "One row per online CPU: its interrupt time as measured, as the plan predicts it, and with --apply as \
               measured again.";
    let sum = |load: fn(&CpuReport) -> f64| report.cpus.iter().map(load).sum::<f64>();
    let sums = [
        sum(|cpu| cpu.before.ns_per_s),
        sum(|cpu| cpu.predicted_ns_per_s),
        sum(|cpu| cpu.after.map_or(0.0, |load| load.ns_per_s)),
    ];
    let display = TableDisplay {
        title: "interrupt time of each CPU, of its time".to_owned(),
        notes: vec![
            "busiest CPU: {settings.busiest_before_ratio} before, {settings.busiest_predicted_ratio} predicted"
                .to_owned(),
            "busiest CPU in the second measurement: {settings.busiest_after_ratio}".to_owned(),
            "fixed: local timer, interrupts from other CPUs and other time that belongs to no movable line; the \
             prediction assumes that a line costs as much on its new CPU"
                .to_owned(),
        ],
        ..TableDisplay::default()
    };
    let rows: Vec<(CpuReport, [f64; 3])> =
        report.cpus.iter().map(|cpu| (cpu.clone(), sums)).collect();
    cpu_columns(report).table("affinity_cpus", doc, &rows).displayed(display)
}

#[cfg(test)]
mod tests {
    use record::Value;

    use super::super::costs::Evidence;
    use super::*;

    fn load(ns_per_s: f64) -> Load {
        let evidence = Evidence::Measured;
        Load { ns_per_s, ci95_ns_per_s: ns_per_s / 10.0, evidence }
    }

    fn report(after: [Option<f64>; 2]) -> AffinityReport {
        let cpu = |cpu, before, predicted_ns_per_s, after: Option<f64>| CpuReport {
            cpu,
            role: CpuRole::TakesLines,
            fixed_ns_per_s: 0.0,
            before: load(before),
            predicted_ns_per_s,
            after: after.map(load),
        };
        let lines = vec![LineReport {
            irq: 36,
            handlers: load(2e8),
            softirq: load(1e8),
            target: Some(1),
            ..LineReport::default()
        }];
        let cpus = vec![cpu(0, 6e8, 3e8, after[0]), cpu(1, 2e8, 5e8, after[1])];
        AffinityReport { lines, cpus }
    }

    fn cell(table: &Table, row: usize, column: &str) -> Option<f64> {
        table.get(&table.rows()[row], column).and_then(Value::number)
    }

    #[test]
    fn display_hints_name_existing_columns() {
        for report in [AffinityReport::default(), report([None; 2]), report([Some(1.0); 2])] {
            assert_eq!(affinity_table(&report).check_display(), Ok(()));
            assert_eq!(affinity_cpu_table(&report).check_display(), Ok(()));
        }
    }

    #[test]
    fn the_cost_of_a_line_is_the_sum_of_its_parts() {
        let table = affinity_table(&report([None; 2]));
        let cost = cell(&table, 0, "cost_ratio").unwrap();
        assert!((cost - 0.3).abs() < 1e-9, "{cost}");
        assert_eq!(cell(&table, 0, "cost_after_ratio"), None, "not measured again: absent");
    }

    /// Its handlers are below the detection limit, so that their measured time is 0.
    #[test]
    fn a_line_with_interrupts_below_the_limit_is_listed_with_its_upper_bound() {
        let handlers =
            Load { ns_per_s: 0.0, ci95_ns_per_s: 7_058.0, evidence: Evidence::BelowLimit };
        let line = |handlers| LineReport { handlers, ..LineReport::default() };
        let lines = vec![line(handlers), line(Load::default())];
        let table = affinity_table(&AffinityReport { lines, ..AffinityReport::default() });
        let flags = |column: &str| {
            [0, 1].map(|row| table.get(&table.rows()[row], column).cloned().unwrap())
        };
        let expected = [Value::Bool(true), Value::Bool(false)];
        assert_eq!(flags("is_listed"), expected);
        assert_eq!(flags("cost_below_limit"), expected);
        assert_eq!(cell(&table, 0, "cost_ci95_ratio"), Some(7_058.0 / 1e9));
        let cost = table.columns.iter().find(|column| column.name == "cost_ratio").unwrap();
        assert_eq!(cost.display.below_limit.as_deref(), Some("cost_below_limit"));
    }

    #[test]
    fn the_busiest_cpu_is_compared_before_predicted_and_after() {
        let parts = |after| {
            report(after).busiest().map(|busiest| {
                busiest.map(|busiest| (busiest.load_ratio * 100.0, busiest.share_ratio * 100.0))
            })
        };
        let [before, predicted, after] = parts([None; 2]);
        assert_eq!((before, predicted, after), (Some((60.0, 75.0)), Some((50.0, 62.5)), None));
        assert_eq!(parts([Some(4e8), Some(4e8)])[2], Some((40.0, 50.0)));
        let table = affinity_cpu_table(&report([Some(4e8), Some(4e8)]));
        assert_eq!(cell(&table, 0, "share_before_ratio"), Some(0.75));
        assert_eq!(cell(&table, 1, "share_after_ratio"), Some(0.5));
        let idle = AffinityReport { cpus: Vec::new(), ..report([None; 2]) };
        assert_eq!(idle.busiest(), [None; 3], "absent, not zero");
    }
}
