//! The cost of each interrupt line on each CPU, from the tables of a run of `handlers`.
//!
//! The cost of a line is the self time of its handlers and of its threads. The lines of a network device also have the
//! time of the softirq NET_RX, which polls the device on the CPU of its interrupt: the softirq's time on a CPU is
//! divided among the devices by their polls and packets there, and the time of a device among its lines by the calls of
//! their handlers there. All other time of interrupts is fixed: no line can take it to another CPU.

use std::collections::BTreeMap;

use record::{Run, Table, Value, keys};

/// Kinds of contexts whose time is interrupt time of a CPU. Exceptions belong to the program; work items run in
/// threads, which the scheduler places.
const INTERRUPT_KINDS: [&str; 9] =
    ["irq", "irq_thread", "vector", "softirq", "nmi", "hrtimer", "timer", "tasklet", "rcu"];

/// Interrupt time in ns of CPU time per second, and its confidence interval.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Load {
    pub ns_per_s: f64,
    /// Half width of the 95 % confidence interval. Sums of loads add the half widths, which is an upper bound. A context
    /// with too few batches for an interval adds its whole time. A context below the detection limit adds the distance to
    /// the upper end of its time.
    pub ci95_ns_per_s: f64,
    pub evidence: Evidence,
}

/// How well the run shows a load. A sum has the strongest evidence among its parts.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub enum Evidence {
    /// No interrupt came: the load is 0.
    #[default]
    NoInterrupt,
    /// All contexts are below the detection limit: of the load, only the upper end of the interval is known.
    BelowLimit,
    Measured,
}

impl Load {
    fn add(&mut self, other: Load) {
        self.ns_per_s += other.ns_per_s;
        self.ci95_ns_per_s += other.ci95_ns_per_s;
        self.evidence = self.evidence.max(other.evidence);
    }

    fn part(self, ratio: f64) -> Load {
        Load {
            ns_per_s: self.ns_per_s * ratio,
            ci95_ns_per_s: self.ci95_ns_per_s * ratio,
            evidence: self.evidence,
        }
    }

    #[must_use]
    pub fn is_below_limit(self) -> bool {
        self.evidence == Evidence::BelowLimit
    }

    #[must_use]
    pub fn had_interrupts(self) -> bool {
        self.evidence > Evidence::NoInterrupt
    }

    /// As a part of a CPU's time.
    #[must_use]
    pub fn ratio(self) -> f64 {
        self.ns_per_s / 1e9
    }

    #[must_use]
    pub fn ci95_ratio(self) -> f64 {
        self.ci95_ns_per_s / 1e9
    }

    /// Rounded, for the planner.
    #[must_use]
    pub fn rounded_ns_per_s(self) -> u64 {
        self.ns_per_s.max(0.0).round() as u64
    }
}

impl std::iter::Sum for Load {
    fn sum<I: Iterator<Item = Load>>(loads: I) -> Load {
        let mut sum = Load::default();
        loads.for_each(|load| sum.add(load));
        sum
    }
}

/// The lines of each network device: by the name of its interface, the numbers of its IRQ lines.
pub type DeviceLines = BTreeMap<String, Vec<u32>>;

/// The costs in one window.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Costs {
    /// The CPUs that the run measured.
    pub cpus: Vec<u32>,
    /// Time of each line's handlers and threads, by number and CPU.
    pub handlers: BTreeMap<(u32, u32), Load>,
    /// Time of the softirq NET_RX that belongs to each line, by number and CPU.
    pub softirqs: BTreeMap<(u32, u32), Load>,
    /// The devices that NET_RX polled on each CPU, if they are several.
    pub shared_softirqs: BTreeMap<u32, Vec<String>>,
    /// All interrupt time of each measured CPU.
    pub totals: BTreeMap<u32, Load>,
    /// The names of each line's handlers in the run.
    pub names: BTreeMap<u32, Vec<String>>,
}

/// Why a run has no costs of lines.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum CostsError {
    #[error("it is a run of {0} (name a run of irqlab handlers)")]
    OtherExperiment(String),
    #[error("it was not measured on a live bench")]
    NotLive,
    #[error("it lacks {0}")]
    Lacks(&'static str),
    #[error("it has {0} conditions, and the costs must come from one")]
    SeveralConditions(usize),
}

/// A row of a table, by the names of its columns.
struct Row<'a> {
    table: &'a Table,
    row: &'a [Value],
}

impl<'a> Row<'a> {
    fn text(&self, column: &str) -> &'a str {
        match self.table.get(self.row, column) {
            Some(Value::Text(text)) => text,
            _ => "",
        }
    }

    fn number(&self, column: &str) -> Option<f64> {
        self.table.get(self.row, column).and_then(Value::number)
    }

    /// The CPU of the row; `None` for a sum over CPUs.
    fn cpu(&self) -> Option<u32> {
        self.text("cpu").parse().ok()
    }

    fn irq(&self) -> u32 {
        self.number("number").unwrap_or(0.0) as u32
    }

    fn load(&self) -> Load {
        let share = self.number("self_cpu_ratio").unwrap_or(0.0).max(0.0);
        let ns_per_s = share * 1e9;
        let flag = self.table.get(self.row, "self_mean_below_limit");
        if flag == Some(&Value::Bool(true)) {
            let ci95_ns_per_s = (self.upper_end_ns_per_s() - ns_per_s).max(0.0);
            return Load { ns_per_s, ci95_ns_per_s, evidence: Evidence::BelowLimit };
        }
        let half_width = self.number("self_cpu_ci95_ratio").unwrap_or(share);
        let has_interrupts = self.number("count").is_some_and(|count| count > 0.0);
        let evidence = if has_interrupts { Evidence::Measured } else { Evidence::NoInterrupt };
        Load { ns_per_s, ci95_ns_per_s: half_width * 1e9, evidence }
    }

    /// Upper end of the time of a context below the detection limit. Without an interval of its mean, the interval of the probe
    /// overhead bounds the time in the window.
    fn upper_end_ns_per_s(&self) -> f64 {
        let mean_ns = self.number("self_mean_ns").unwrap_or(0.0);
        let mean_max_ns = match self.number("self_mean_ci95_ns") {
            Some(half_width_ns) => mean_ns + half_width_ns,
            None => mean_ns.max(0.0) + self.number("probe_overhead_mean_ci95_ns").unwrap_or(0.0),
        };
        mean_max_ns.max(0.0) * self.number("rate_hz").unwrap_or(0.0)
    }
}

/// The rows of single CPUs.
fn rows(table: &Table) -> impl Iterator<Item = (u32, Row<'_>)> {
    let rows = table.rows().iter().map(move |row| Row { table, row });
    rows.filter_map(|row| Some((row.cpu()?, row)))
}

impl Costs {
    /// Reads the costs from a run of `handlers` with one condition. `devices`: the lines of network devices now.
    ///
    /// Fails if the run has another experiment or bench, lacks a table, or has several conditions.
    pub fn of_run(run: &Run, devices: &DeviceLines) -> Result<Costs, CostsError> {
        if run.experiment != "handlers" {
            return Err(CostsError::OtherExperiment(run.experiment.clone()));
        }
        if run.bench != "live" {
            return Err(CostsError::NotLive);
        }
        let handlers = run.table("handlers").ok_or(CostsError::Lacks("the table handlers"))?;
        let conditions = run.settings.get(keys::CONDITIONS).and_then(|found| found.as_object());
        match conditions.map_or(0, serde_json::Map::len) {
            1 => {}
            0 => return Err(CostsError::Lacks("a measured condition")),
            count => return Err(CostsError::SeveralConditions(count)),
        }
        let mut costs = Costs { cpus: measured_cpus(run)?, ..Costs::default() };
        costs.totals = costs.cpus.iter().map(|cpu| (*cpu, Load::default())).collect();
        // The keys are a line's number and a CPU.
        let mut calls: BTreeMap<(u32, u32), f64> = BTreeMap::new();
        let mut net_rx: BTreeMap<u32, Load> = BTreeMap::new();
        for (cpu, row) in rows(handlers) {
            let (kind, name, load) = (row.text("kind"), row.text("name"), row.load());
            if INTERRUPT_KINDS.contains(&kind) {
                costs.totals.entry(cpu).or_default().add(load);
            }
            if ["irq", "irq_thread"].contains(&kind) {
                costs.handlers.entry((row.irq(), cpu)).or_default().add(load);
            }
            if kind == "irq" {
                // Each action of a shared line has a row, and is called for each interrupt of the line.
                let line_calls = calls.entry((row.irq(), cpu)).or_default();
                *line_calls = line_calls.max(row.number("count").unwrap_or(0.0));
                let names = costs.names.entry(row.irq()).or_default();
                if !names.iter().any(|known| known == name) {
                    names.push(name.to_owned());
                }
            }
            if kind == "softirq" && name == "NET_RX" {
                net_rx.insert(cpu, load);
            }
        }
        let polls = run.table("napi").map(polls_by_cpu).unwrap_or_default();
        costs.softirqs = softirqs_of_lines(&net_rx, &polls, devices, &calls);
        let several = polls.iter().filter(|(_, polls)| polls.len() > 1);
        costs.shared_softirqs =
            several.map(|(cpu, polls)| (*cpu, polls.keys().cloned().collect())).collect();
        Ok(costs)
    }

    /// The cost of a line on a CPU.
    #[must_use]
    pub fn of_line(&self, irq: u32, cpu: u32) -> Load {
        let parts = [&self.handlers, &self.softirqs];
        parts.into_iter().filter_map(|loads| loads.get(&(irq, cpu)).copied()).sum()
    }

    /// The time of a line on all CPUs: of its handlers and threads, and of its softirq.
    #[must_use]
    pub fn parts_of_line(&self, irq: u32) -> [Load; 2] {
        [&self.handlers, &self.softirqs]
            .map(|loads| self.cpus.iter().filter_map(|cpu| loads.get(&(irq, *cpu)).copied()).sum())
    }

    /// The interrupt time of a CPU without these lines.
    #[must_use]
    pub fn fixed(&self, cpu: u32, lines: impl IntoIterator<Item = u32>) -> f64 {
        let moving: f64 = lines.into_iter().map(|irq| self.of_line(irq, cpu).ns_per_s).sum::<f64>();
        let total = self.totals.get(&cpu).copied().unwrap_or_default();
        (total.ns_per_s - moving).max(0.0)
    }
}

/// The CPUs that the run measured, from its settings.
fn measured_cpus(run: &Run) -> Result<Vec<u32>, CostsError> {
    let lacks = CostsError::Lacks("the list of measured CPUs");
    let list = run.settings.get("cpus").and_then(|cpus| cpus.as_str()).ok_or(lacks.clone())?;
    let mut cpus = Vec::new();
    for part in list.split(',') {
        let (first, last) = part.split_once('-').unwrap_or((part, part));
        let ends = first.trim().parse::<u32>().ok().zip(last.trim().parse::<u32>().ok());
        match ends {
            Some((first, last)) if first <= last && last - first < CPUS_MAX => {
                cpus.extend(first..=last);
            }
            _ => return Err(lacks),
        }
    }
    Ok(cpus)
}

/// Largest number of CPUs of a machine; a limit for text that may come from another program.
const CPUS_MAX: u32 = 1 << 16;

/// Polls plus packets by CPU and device. A poll without a packet costs time, too.
fn polls_by_cpu(napi: &Table) -> BTreeMap<u32, BTreeMap<String, f64>> {
    let mut polls: BTreeMap<u32, BTreeMap<String, f64>> = BTreeMap::new();
    for (cpu, row) in rows(napi) {
        let weight: f64 =
            ["poll_count", "packet_count"].iter().filter_map(|column| row.number(column)).sum();
        *polls.entry(cpu).or_default().entry(row.text("name").to_owned()).or_default() += weight;
    }
    polls
}

/// Divides the time of NET_RX on each CPU among the lines of network devices.
fn softirqs_of_lines(
    net_rx: &BTreeMap<u32, Load>,
    polls: &BTreeMap<u32, BTreeMap<String, f64>>,
    devices: &DeviceLines,
    calls: &BTreeMap<(u32, u32), f64>,
) -> BTreeMap<(u32, u32), Load> {
    let mut softirqs: BTreeMap<(u32, u32), Load> = BTreeMap::new();
    for (cpu, load) in net_rx {
        let Some(polls) = polls.get(cpu) else { continue };
        let all_polls: f64 = polls.values().sum();
        for (device, weight) in polls {
            let lines = devices.get(device).map(Vec::as_slice).unwrap_or_default();
            let calls_of = |irq: u32| calls.get(&(irq, *cpu)).copied().unwrap_or(0.0);
            let all_calls: f64 = lines.iter().map(|irq| calls_of(*irq)).sum();
            for irq in lines.iter().filter(|irq| calls_of(**irq) > 0.0) {
                let ratio = weight / all_polls * (calls_of(*irq) / all_calls);
                softirqs.entry((*irq, *cpu)).or_default().add(load.part(ratio));
            }
        }
    }
    softirqs
}

#[cfg(test)]
mod tests {
    use record::{SCHEMA, column};
    use serde_json::{Map, json};

    use super::*;

    type HandlersRow = (&'static str, &'static str, u64, &'static str, u64, f64);
    type NapiRow = (&'static str, &'static str, u64, u64);

    pub(super) fn run(handlers: &[HandlersRow], napi: &[NapiRow]) -> Run {
        let columns = record::Columns::all([
            column("cpu", "").text(|row: &HandlersRow| row.0),
            column("kind", "").text(|row: &HandlersRow| row.1),
            column("number", "").uint(|row: &HandlersRow| row.2),
            column("name", "").text(|row: &HandlersRow| row.3),
            column("count", "").uint(|row: &HandlersRow| row.4),
            column("self_cpu_ratio", "").real(|row: &HandlersRow| row.5),
        ]);
        let napi_columns = record::Columns::all([
            column("cpu", "").text(|row: &NapiRow| row.0),
            column("name", "").text(|row: &NapiRow| row.1),
            column("poll_count", "").uint(|row: &NapiRow| row.2),
            column("packet_count", "").uint(|row: &NapiRow| row.3),
        ]);
        let settings = json!({"cpus": "0-1", "conditions": {"ambient": {}}});
        Run {
            schema: SCHEMA.to_owned(),
            experiment: "handlers".to_owned(),
            bench: "live".to_owned(),
            started_utc: String::new(),
            complete: true,
            host: Map::new(),
            settings: settings.as_object().unwrap().clone(),
            observer: Map::new(),
            warnings: Vec::new(),
            absent: Vec::new(),
            tables: vec![
                columns.table("handlers", "", handlers),
                napi_columns.table("napi", "", napi),
            ],
        }
    }

    #[test]
    fn a_network_line_has_its_part_of_the_softirq() {
        let rows: [HandlersRow; 6] = [
            ("all", "irq", 30, "eth0-rx", 30, 0.9),
            ("0", "irq", 30, "eth0-rx", 30, 0.01),
            ("0", "irq", 31, "eth0-tx", 10, 0.02),
            ("0", "irq", 32, "disk", 10, 0.03),
            ("0", "softirq", 3, "NET_RX", 50, 0.08),
            ("0", "exception", 14, "page_fault", 50, 0.5),
        ];
        let polls: [NapiRow; 3] = [("all", "eth0", 9, 9), ("0", "eth0", 10, 20), ("0", "lo", 4, 6)];
        let devices = DeviceLines::from([("eth0".to_owned(), vec![30, 31])]);
        let costs = Costs::of_run(&run(&rows, &polls), &devices).unwrap();
        let ns = |irq| costs.of_line(irq, 0).ns_per_s.round();
        // 3 of 4 polls and packets are eth0's. Line 30 has 3 of 4 calls.
        assert_eq!([30, 31, 32].map(ns), [55e6, 35e6, 30e6]);
        assert_eq!(costs.totals[&0].ns_per_s.round(), 140e6, "without exceptions");
        assert_eq!(costs.fixed(0, [30, 31, 32]).round(), 20e6);
        assert_eq!(costs.shared_softirqs[&0], ["eth0", "lo"]);
        assert_eq!(costs.totals[&1], Load::default(), "measured: no interrupt");
        assert_eq!(costs.names[&32], ["disk"]);
        assert_eq!(costs.parts_of_line(31).map(|load| load.ns_per_s.round()), [20e6, 15e6]);
        // Without an interval, the whole time is uncertain.
        assert_eq!(costs.of_line(32, 0).ci95_ns_per_s.round(), 30e6);
    }

    /// Line 41 had 8 interrupts in a second, whose mean is below the detection limit.
    #[test]
    fn a_line_below_the_detection_limit_costs_at_most_the_upper_end_of_its_interval() {
        let line = |number: u64, mean_ns: f64, half_width_ns: Option<f64>| {
            [Some(number as f64), Some(mean_ns), half_width_ns]
        };
        let rows = [
            line(41, -490.75, Some(1_373.0)),
            line(42, 30.0, Some(70.0)),
            line(43, -20.0, None),
            line(44, -20.0, Some(10.0)),
        ];
        let number = |index: usize| move |row: &[Option<f64>; 3]| row[index];
        let columns = record::Columns::all([
            column("cpu", "").text(|_: &[Option<f64>; 3]| "0"),
            column("kind", "").text(|_: &[Option<f64>; 3]| "irq"),
            column("number", "").uint(|row: &[Option<f64>; 3]| row[0].map(|irq| irq as u64)),
            column("name", "").text(|_: &[Option<f64>; 3]| "rx"),
            column("count", "").uint(|_: &[Option<f64>; 3]| 8_u64),
            column("rate_hz", "").real(|_: &[Option<f64>; 3]| 8.0),
            column("self_mean_ns", "").real(number(1)),
            column("self_mean_ci95_ns", "").real(number(2)),
            column("probe_overhead_mean_ci95_ns", "").real(|_: &[Option<f64>; 3]| 50.0),
            column("self_mean_below_limit", "").bool(|_: &[Option<f64>; 3]| true),
            column("self_cpu_ratio", "")
                .real(|row: &[Option<f64>; 3]| row[1].map(|mean_ns| mean_ns.max(0.0) * 8.0 / 1e9)),
        ]);
        let mut run = run(&[], &[]);
        run.tables[0] = columns.table("handlers", "", rows);
        let costs = Costs::of_run(&run, &DeviceLines::new()).unwrap();
        let loads = [41, 42, 43, 44].map(|irq| costs.of_line(irq, 0));
        let rounded = |ns: f64| (ns * 100.0).round() / 100.0;
        let upper_ends = loads.map(|load| rounded(load.ns_per_s + load.ci95_ns_per_s));
        assert_eq!(upper_ends, [7_058.0, 800.0, 400.0, 0.0]);
        assert_eq!(loads.map(|load| rounded(load.ns_per_s)), [0.0, 240.0, 0.0, 0.0]);
        assert!(loads.iter().all(|load| load.is_below_limit() && load.had_interrupts()));
        // The total of the CPU contains the lines.
        let total = costs.totals[&0];
        assert_eq!(rounded(total.ns_per_s + total.ci95_ns_per_s), 8_258.0);
        assert!(total.is_below_limit());
        let measured = Load { evidence: Evidence::Measured, ..Load::default() };
        assert!(![total, measured].into_iter().sum::<Load>().is_below_limit());
    }

    #[test]
    fn an_interrupt_of_a_shared_line_is_one_call_of_the_line() {
        let rows: [HandlersRow; 4] = [
            ("0", "irq", 30, "eth0", 30, 0.0),
            ("0", "irq", 30, "usb", 30, 0.0),
            ("0", "irq", 31, "eth0-tx", 10, 0.0),
            ("0", "softirq", 3, "NET_RX", 50, 0.08),
        ];
        let devices = DeviceLines::from([("eth0".to_owned(), vec![30, 31])]);
        let costs = Costs::of_run(&run(&rows, &[("0", "eth0", 10, 20)]), &devices).unwrap();
        let ns = |irq| costs.of_line(irq, 0).ns_per_s.round();
        assert_eq!([30, 31].map(ns), [60e6, 20e6], "line 30 has 3 of 4 calls");
    }

    #[test]
    fn runs_without_costs_of_lines_are_refused() {
        let good = run(&[], &[]);
        let error = |change: fn(&mut Run)| {
            let mut bad = good.clone();
            change(&mut bad);
            Costs::of_run(&bad, &DeviceLines::new()).unwrap_err().to_string()
        };
        assert!(Costs::of_run(&good, &DeviceLines::new()).is_ok());
        assert!(error(|run| run.experiment = "noise".to_owned()).contains("a run of noise"));
        assert!(error(|run| run.bench = "sim".to_owned()).contains("live"));
        assert!(error(|run| run.tables.clear()).contains("lacks the table handlers"));
        let two = |run: &mut Run| {
            run.settings.insert("conditions".into(), json!({"a": {}, "b": {}}));
        };
        assert!(error(two).contains("2 conditions"));
        for cpus in ["x", "", "3-1", "0-4294967295"] {
            let mut bad = good.clone();
            bad.settings.insert("cpus".into(), json!(cpus));
            assert!(Costs::of_run(&bad, &DeviceLines::new()).is_err(), "{cpus:?}");
        }
    }
}
