//! The costs of kernel paths on a processor (host) and on its model: rows of runs of both benches, and the tables that
//! compare them. `irqlab bench kernel` measures the runs and shows the tables.
//!
//! Users' programs read the columns of the tables: their names must not change.

use record::display::{Format, TableDisplay};
use record::{Columns, Table, Value, column};

use crate::kernels::{Comparison, error_factor};
use crate::services::{Class, PAGE_WALKS};

/// The least number of measurements on each side, in all its runs together, with which a path is compared.
pub const COUNT_MIN: u64 = 100;

/// The part of the comparison that a row belongs to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Part {
    /// Kernels of group `system`: the cost that a program sees, in cycles.
    System,
    /// Interrupt contexts, in ns.
    Handlers,
    /// Services of the kernel, in ns.
    Services,
}

impl Part {
    pub const ALL: [Part; 3] = [Part::System, Part::Handlers, Part::Services];

    /// The part's name, in tables and in `--only`.
    #[must_use]
    pub fn word(self) -> &'static str {
        match self {
            Part::System => "system",
            Part::Handlers => "handlers",
            Part::Services => "services",
        }
    }
}

/// The cost of one kernel path on both sides.
#[derive(Clone, Debug, PartialEq)]
pub struct Cost {
    pub part: Part,
    /// The condition of a handler; empty otherwise.
    pub condition: String,
    /// The kernel, interrupt context or service.
    pub name: String,
    /// The cost on the processor, in `unit`. `None` if it has no such path, or measured no time.
    pub host: Option<f64>,
    /// The cost on the model, in `unit`. `None` as for `host`.
    pub model: Option<f64>,
    /// The least and the greatest cost of several runs on the processor, whose median `host` is. `None` for a
    /// single run, and for kernels.
    pub host_range: Option<(f64, f64)>,
    pub unit: &'static str,
    /// How many were measured on the processor, in all runs together, and on the model. `None` for kernels,
    /// which are measured in windows.
    pub counts: Option<[u64; 2]>,
    /// Why the two costs cannot be compared. `None` if they can.
    pub not_compared: Option<&'static str>,
}

impl Cost {
    /// The model's cost over the processor's. `None` if they cannot be compared.
    #[must_use]
    pub fn ratio(&self) -> Option<f64> {
        let (host, model) = self.host.zip(self.model)?;
        (self.not_compared.is_none() && host > 0.0 && model > 0.0).then_some(model / host)
    }

    /// Whether the path exits to the hypervisor where the host is a virtual machine: it sets a timer, sends an interrupt
    /// to another CPU, or ends an interrupt. That is a cost of the host, not of its processor.
    #[must_use]
    pub fn leaves_to_hypervisor(&self) -> bool {
        // Six interrupt contexts by the kernel's names, then three kernels of group `system` (crate `kernels`).
        const PATHS: [&str; 9] = [
            "local_timer",
            "call_function",
            "call_function_single",
            "reschedule",
            "irq_work",
            "HRTIMER",
            "ipi",
            "timer_interrupt",
            "timer_first",
        ];
        PATHS.contains(&self.name.as_str())
    }
}

const FEW: &str = "fewer than 100 on one side";
const BELOW_LIMIT: &str = "below the detection limit of the live probes";
const ONE_SIDE: &str = "on one side only";
const NO_TIME: &str = "without a time on one side";
const OTHER_DEVICE: &str = "a device of this side";
const BATCHES: &str = "how much one of them handles is not counted on both sides";
/// Softirqs that handle as many packets or requests as have come.
const BATCHED: [&str; 3] = ["NET_RX", "NET_TX", "BLOCK"];
const OTHER_PROGRAMS: &str = "other programs on this machine used it, too";
/// Names of the page faults in the table of the live bench.
const IN_USER_MODE: &str = "in user mode";
const IN_KERNEL: &str = "in the kernel";

/// Why two costs cannot be compared. `counts` and `costs`: of the host, then of the model. `is_below_limit`: the cost
/// of the host is below the detection limit. `None` if they can.
fn flaw(counts: [u64; 2], costs: [Option<f64>; 2], is_below_limit: bool) -> Option<&'static str> {
    if counts.contains(&0) {
        return Some(ONE_SIDE);
    }
    if counts.iter().any(|count| *count < COUNT_MIN) {
        return Some(FEW);
    }
    if is_below_limit || costs.iter().flatten().any(|cost| *cost <= 0.0) {
        return Some(BELOW_LIMIT);
    }
    costs.contains(&None).then_some(NO_TIME)
}

/// The most requests on the processor for each on the model, in a run. With more, other programs made a part of them.
const REQUESTS_RATIO_MAX: f64 = 1.2;

/// The columns of a table that identify a row, count it and give its cost.
struct Shape {
    condition: Option<&'static str>,
    names: [&'static str; 2],
    count: &'static str,
    cost: &'static str,
    /// Column of whether the cost is below the detection limit.
    below_limit: Option<&'static str>,
}

const HANDLERS: Shape = Shape {
    condition: Some("condition"),
    names: ["kind", "name"],
    count: "count",
    cost: "self_mean_ns",
    below_limit: Some("self_mean_below_limit"),
};

/// Interrupt contexts between the tracepoints at which the live bench has its probes, in the simulated machine.
const PROBED_HANDLERS: Shape = Shape {
    condition: Some("condition"),
    names: ["kind", "name"],
    count: "exact_count",
    cost: "exact_self_mean_ns",
    below_limit: None,
};

const SERVICES: Shape = Shape {
    condition: None,
    names: ["class", "service"],
    count: "completed_count",
    cost: "computation_mean_ns",
    below_limit: None,
};

/// A row of one side.
struct SideRow {
    condition: String,
    /// Vector, interrupt, softirq or exception; or the class of a service.
    kind: String,
    name: String,
    count: u64,
    /// The number of runs that `count` is the sum of.
    runs: u64,
    /// Mean time of one interrupt or request, ns; with several runs, the median of their means.
    cost: Option<f64>,
    /// The least and the greatest cost of several runs, ns.
    range: Option<(f64, f64)>,
    /// Whether the cost is below the detection limit in any run.
    below_limit: bool,
}

impl SideRow {
    fn key(&self) -> (&str, &str, &str) {
        (&self.condition, &self.kind, &self.name)
    }

    /// Adds the requests of another row.
    fn add(&mut self, other: &SideRow) {
        let total = |row: &SideRow| Some(row.cost? * row.count as f64);
        let total = total(self).zip(total(other)).map(|(first, second)| first + second);
        self.count += other.count;
        self.cost = total.map(|total| total / self.count as f64);
    }
}

fn side_rows(table: &Table, shape: &Shape) -> Vec<SideRow> {
    let text = |row: &[Value], column: &str| match table.get(row, column) {
        Some(Value::Text(text)) => text.clone(),
        _ => String::new(),
    };
    let number = |row: &[Value], column: &str| table.get(row, column).and_then(Value::number);
    let of_all_cpus =
        |row: &&Vec<Value>| table.column("cpu").is_none() || text(row, "cpu") == "all";
    let rows = table.rows().iter().filter(of_all_cpus).map(|row| SideRow {
        condition: shape.condition.map(|column| text(row, column)).unwrap_or_default(),
        kind: text(row, shape.names[0]),
        name: text(row, shape.names[1]),
        count: number(row, shape.count).unwrap_or(0.0) as u64,
        cost: number(row, shape.cost),
        runs: 1,
        range: None,
        below_limit: shape
            .below_limit
            .is_some_and(|column| table.get(row, column) == Some(&Value::Bool(true))),
    });
    rows.filter(|row| row.count > 0).collect()
}

/// The costs of interrupt contexts: from tables `handlers` of runs on the processor, and from table `probes` of
/// `sim verify-probes`, which has the exact times between the same tracepoints. A device's interrupt line has another
/// device on the other side, so these rows stay alone.
#[must_use]
pub fn of_handlers(host: &[&Table], model: &Table) -> Vec<Cost> {
    let host = host.iter().map(|table| side_rows(table, &HANDLERS));
    join_sides(&middle_of_runs(host.collect()), &side_rows(model, &PROBED_HANDLERS), Part::Handlers)
}

/// The costs of services, from tables `services` of runs on the processor and of one on the model, of the same program.
/// A service begins and ends at its tracepoints on the processor, and at the kernel's entry and return on the model.
#[must_use]
pub fn of_services(host: &[&Table], model: &Table) -> Vec<Cost> {
    let rows = |table: &Table| with_faults_by_mode(side_rows(table, &SERVICES));
    let host = host.iter().map(|table| rows(table));
    join_sides(&middle_of_runs(host.collect()), &rows(model), Part::Services)
}

/// The rows of several runs as those of one: the median of the costs, and the sum of the counts.
fn middle_of_runs(runs: Vec<Vec<SideRow>>) -> Vec<SideRow> {
    let number = runs.len() as u64;
    let mut middle: Vec<SideRow> = Vec::new();
    let mut costs: Vec<Vec<f64>> = Vec::new();
    for row in runs.into_iter().flatten() {
        if let Some(index) = middle.iter().position(|earlier| earlier.key() == row.key()) {
            middle[index].count += row.count;
            middle[index].below_limit |= row.below_limit;
            costs[index].extend(row.cost);
        } else {
            costs.push(row.cost.into_iter().collect());
            middle.push(row);
        }
    }
    for (row, mut costs) in middle.iter_mut().zip(costs) {
        row.runs = number;
        costs.sort_by(f64::total_cmp);
        row.cost = stats::median::median(&costs);
        let ends = costs.first().copied().zip(costs.last().copied());
        row.range = if costs.len() > 1 { ends } else { None };
    }
    middle
}

/// Joins the kinds of faults, which only the simulated machine tells apart: those in user mode, and those in the kernel.
fn with_faults_by_mode(rows: Vec<SideRow>) -> Vec<SideRow> {
    let mut joined: Vec<SideRow> = Vec::new();
    for mut row in rows {
        if row.kind == "fault" {
            let in_kernel = row.name.ends_with("(by the kernel)") || row.name == IN_KERNEL;
            row.name = if in_kernel { IN_KERNEL } else { IN_USER_MODE }.to_owned();
        }
        match joined.iter_mut().find(|earlier| earlier.key() == row.key()) {
            Some(earlier) => earlier.add(&row),
            None => joined.push(row),
        }
    }
    joined
}

/// Joins the rows of both sides that have equal keys. The rows of the host come first, then the
/// rows that only the model has.
fn join_sides(host: &[SideRow], model: &[SideRow], part: Part) -> Vec<Cost> {
    // Part `handlers` compares interrupts between equal points, so part `services` leaves them out.
    let is_in_part = |row: &&SideRow| {
        part != Part::Services || !["interrupt", "irq", "softirq"].contains(&row.kind.as_str())
    };
    let host_costs = host.iter().filter(is_in_part).filter_map(|row| {
        // An IRQ line of the host is never joined: the line of the model with this name has another device.
        let is_partner = |candidate: &&SideRow| candidate.key() == row.key() && row.kind != "irq";
        cost_of_rows(part, Some(row), model.iter().find(is_partner))
    });
    let only_on_model = model
        .iter()
        .filter(is_in_part)
        .filter(|row| row.kind == "irq" || host.iter().all(|host_row| host_row.key() != row.key()));
    host_costs.chain(only_on_model.filter_map(|row| cost_of_rows(part, None, Some(row)))).collect()
}

/// The cost of one kernel path, from its row on each side. `None` if both sides lack it.
fn cost_of_rows(part: Part, host: Option<&SideRow>, model: Option<&SideRow>) -> Option<Cost> {
    let row = host.or(model)?;
    let costs = [host, model].map(|row| row.and_then(|row| row.cost));
    let counts = [host, model].map(|row| row.map_or(0, |row| row.count));
    let [_, model_count] = counts;
    let host_count_per_run = host.map_or(0.0, |row| row.count as f64 / row.runs as f64);
    let has_other_programs =
        part == Part::Services && host_count_per_run > REQUESTS_RATIO_MAX * model_count as f64;
    let is_below_limit = host.is_some_and(|row| row.below_limit);
    let not_compared = if row.kind == "irq" {
        Some(OTHER_DEVICE)
    } else if row.kind == "softirq" && BATCHED.contains(&row.name.as_str()) {
        Some(BATCHES)
    } else {
        flaw(counts, costs, is_below_limit).or(has_other_programs.then_some(OTHER_PROGRAMS))
    };
    let name = match part {
        Part::Services => format!("{} {}", row.kind, row.name),
        Part::System | Part::Handlers => row.name.clone(),
    };
    let [host_cost, model_cost] = costs;
    Some(Cost {
        part,
        condition: row.condition.clone(),
        name,
        host: host_cost,
        model: model_cost,
        host_range: host.and_then(|row| row.range),
        unit: "ns",
        counts: Some(counts),
        not_compared,
    })
}

/// The costs of the kernels of group `system`, from the table `kernels` of a run of `bench model`.
#[must_use]
pub fn of_system(table: &Table) -> Vec<Cost> {
    let number = |row: &[Value], column: &str| table.get(row, column).and_then(Value::number);
    let cost = |row: &Vec<Value>| {
        let Some(Value::Text(name)) = table.get(row, "kernel") else { return None };
        let (host, model) = (number(row, "host_cycles"), number(row, "model_cycles"));
        Some(Cost {
            part: Part::System,
            condition: String::new(),
            name: name.clone(),
            host,
            model,
            host_range: None,
            unit: "cycles",
            counts: None,
            not_compared: (host.is_none() || model.is_none()).then_some(NO_TIME),
        })
    };
    table.rows().iter().filter_map(cost).collect()
}

/// The share of a mode in the time of user mode and kernel, each with its page walks.
#[derive(Clone, Debug, PartialEq)]
pub struct ModeShare {
    /// Name of the mode: `user` or `kernel`.
    pub mode: String,
    /// The share on the processor, 0 to 1; with several runs, the median of their shares.
    pub host: f64,
    /// The share on the model, 0 to 1.
    pub model: f64,
}

/// Tables `modes` and `services` of a run of `services`.
#[derive(Clone, Copy, Debug)]
pub struct ModeTables<'t> {
    pub modes: &'t Table,
    pub services: &'t Table,
}

/// The shares of user mode and kernel in their time, from runs on the processor and a run on the model. `None`
/// if a run has no such time.
#[must_use]
pub fn mode_shares(hosts: &[ModeTables<'_>], model: ModeTables<'_>) -> Option<[ModeShare; 2]> {
    let model_user = model.user_share()?;
    let host_shares: Option<Vec<f64>> = hosts.iter().map(|host| host.user_share()).collect();
    let mut host_shares = host_shares?;
    host_shares.sort_by(f64::total_cmp);
    let host_user = stats::median::median(&host_shares)?;
    let share = |mode: &str, host, model| ModeShare { mode: mode.to_owned(), host, model };
    Some([share("user", host_user, model_user), share("kernel", 1.0 - host_user, 1.0 - model_user)])
}

impl ModeTables<'_> {
    /// The share of user mode in the time of user mode and kernel. A model has the time of page walks in rows of their own,
    /// a processor within the mode that caused them: they are added to their modes here.
    fn user_share(self) -> Option<f64> {
        let mode = |name| time_ratio(self.modes, |row| cell(self.modes, row, "mode") == name);
        let walks = |name| {
            time_ratio(self.services, |row| {
                cell(self.services, row, "class") == Class::PageWalk.label()
                    && cell(self.services, row, "service") == name
            })
        };
        let [user_walks, kernel_walks] = PAGE_WALKS.map(walks);
        let (user, kernel) = (mode("user") + user_walks, mode("kernel") + kernel_walks);
        (user + kernel > 0.0).then(|| user / (user + kernel))
    }
}

/// The sum of `time_ratio` over the rows that `is_wanted` accepts.
fn time_ratio(table: &Table, is_wanted: impl Fn(&[Value]) -> bool) -> f64 {
    let rows = table.rows().iter().filter(|row| is_wanted(row));
    rows.filter_map(|row| table.get(row, "time_ratio")?.number()).sum()
}

/// The text in a column, or an empty text without one.
fn cell<'t>(table: &'t Table, row: &'t [Value], column: &str) -> &'t str {
    match table.get(row, column) {
        Some(Value::Text(text)) => text,
        _ => "",
    }
}

/// The tables `kernel_parts`, `kernel_costs` and, with shares, `mode_shares`. `host_is_virtual`: the host is a virtual
/// machine, and paths that leave to its hypervisor have a summary of their own.
#[must_use]
pub fn tables(costs: &[Cost], shares: &[ModeShare], host_is_virtual: bool) -> Vec<Table> {
    let mut tables = vec![part_table(costs, host_is_virtual), cost_table(costs)];
    tables.extend((!shares.is_empty()).then(|| mode_table(shares)));
    tables
}

/// Table `kernel_parts`: how far the model is off in each part. `host_is_virtual`: as for [`tables`].
fn part_table(costs: &[Cost], host_is_virtual: bool) -> Table {
    type Row = (String, Comparison);
    let factor = |name, doc| column(name, doc).format(Format::Factor);
    let columns = Columns::all([
        column("part", "Part; without its paths that leave to the hypervisor; or these alone.")
            .key()
            .priority(100)
            .text(|(name, _): &Row| name.clone()),
        column("paths", "Kernel paths with a cost on both sides.")
            .uint(|(_, errors): &Row| errors.kernels),
        factor(
            "median_error_factor",
            "Median of the error factors: the larger of model over host and its inverse.",
        )
        .title("median")
        .cost()
        .real(|(_, errors): &Row| errors.median),
        factor("mean_error_factor", "Mean of the error factors.")
            .title("mean factor")
            .cost()
            .real(|(_, errors): &Row| errors.mean),
        factor("bias_factor", "Geometric mean of model over host; below 1, the model is too fast.")
            .title("bias")
            .real(|(_, errors): &Row| errors.bias),
        column("worst_path", "The path with the largest error factor.")
            .title("worst")
            .text(|(_, errors): &Row| errors.worst.0.clone()),
        factor("worst_ratio", "Ratio of model over host of that path.")
            .title("worst ratio")
            .real(|(_, errors): &Row| errors.worst.1),
    ]);
    type Wanted<'s> = &'s dyn Fn(&Cost) -> bool;
    let mut rows: Vec<Row> = Vec::new();
    let mut add = |name: String, wanted: Wanted<'_>| {
        let ratios = costs.iter().filter(|cost| wanted(cost));
        let ratios = ratios.filter_map(|cost| Some((cost.name.as_str(), cost.ratio()?)));
        rows.extend(Comparison::of_ratios(ratios).map(|errors| (name, errors)));
    };
    for part in Part::ALL {
        let of_part = |cost: &Cost| cost.part == part;
        let leaves = |cost: &Cost| of_part(cost) && cost.leaves_to_hypervisor();
        if !(host_is_virtual && costs.iter().any(leaves)) {
            add(part.word().to_owned(), &of_part);
            continue;
        }
        add(format!("{}, within the guest", part.word()), &|cost| of_part(cost) && !leaves(cost));
        add(format!("{}, with exits", part.word()), &leaves);
    }
    let doc = "How far the model's costs of kernel paths are from the processor's. On a host that is a virtual \
               machine, paths that set timers or send interrupts leave to its hypervisor; their rows (with exits) \
               compare the model with the processor and the hypervisor together.";
    columns.table("kernel_parts", doc, rows)
}

/// Table `kernel_costs`: a row for each path, with the costs on both sides and their ratio.
fn cost_table(costs: &[Cost]) -> Table {
    // The positions in `Cost::counts`.
    const HOST: usize = 0;
    const MODEL: usize = 1;
    let count = |name, doc, side: usize| {
        column(name, doc).detail().uint(move |cost: &Cost| cost.counts.map(|counts| counts[side]))
    };
    let columns = Columns::all([
        column("part", "Part of the comparison.").key().text(|cost: &Cost| cost.part.word().to_owned()),
        column("condition", "Condition of a handler.").key().text(|cost: &Cost| {
            (!cost.condition.is_empty()).then(|| cost.condition.clone())
        }),
        column("path", "Kernel of the suite, interrupt context, or service.")
            .key()
            .priority(100)
            .text(|cost: &Cost| cost.name.clone()),
        column("host_cost", "Cost on the processor: the figure of `bench model` for a kernel, in cycles, or the median over the runs of the mean ns of a handler's own time or a service's computation.")
            .title("host")
            .digits(4)
            .priority(90)
            .real(|cost: &Cost| cost.host),
        column("host_low_cost", "Least cost of the runs on the processor; absent for one run, and for kernels.")
            .title("least to greatest")
            .digits(4)
            .up_to("host_high_cost")
            .real(|cost: &Cost| cost.host_range.map(|(low, _)| low)),
        column("host_high_cost", "Greatest cost of the runs on the processor.")
            .detail()
            .real(|cost: &Cost| cost.host_range.map(|(_, high)| high)),
        column("model_cost", "Cost on the model, in the same unit.")
            .title("model")
            .digits(4)
            .priority(90)
            .real(|cost: &Cost| cost.model),
        column("unit", "Unit of both costs.").text(|cost: &Cost| cost.unit.to_owned()),
        column("ratio", "Model over host. Absent if they cannot be compared.")
            .format(Format::Factor)
            .priority(95)
            .real(Cost::ratio),
        column("error_factor", "The larger of the ratio and its inverse.")
            .cost()
            .detail()
            .real(|cost: &Cost| cost.ratio().map(error_factor)),
        count("host_count", "How many were measured on the processor.", HOST),
        count("model_count", "How many were measured on the model.", MODEL),
        column("leaves_to_hypervisor", "Whether the path leaves to the hypervisor where the host is a virtual machine.")
            .detail()
            .bool(Cost::leaves_to_hypervisor),
        column("not_compared", "Why the costs cannot be compared.")
            .title("not compared because")
            .text(|cost: &Cost| cost.not_compared.map(str::to_owned)),
    ]);
    let display = TableDisplay { group_by: vec!["part".to_owned()], ..TableDisplay::default() };
    let doc = "Costs of kernel paths on the processor and on its model.";
    columns.table("kernel_costs", doc, costs).displayed(display)
}

/// Table `mode_shares`: user mode and kernel mode while the services' program ran, without idle time.
fn mode_table(shares: &[ModeShare]) -> Table {
    let columns = Columns::all([
        column("mode", "User mode or kernel mode.").key().text(|row: &ModeShare| row.mode.clone()),
        column(
            "host_time_ratio",
            "Share of the time of user mode and kernel with their page walks, of all programs on the processor; with several runs, the median of their shares.",
        )
        .title("host")
        .real(|row: &ModeShare| row.host),
        column(
            "model_time_ratio",
            "Share of the time of user mode and kernel with their page walks, in the simulated machine.",
        )
        .title("model")
        .real(|row: &ModeShare| row.model),
    ]);
    columns.table(
        "mode_shares",
        "Shares of user mode and kernel mode while the program of part services ran.",
        shares,
    )
}

#[cfg(test)]
mod tests {
    use record::{Column, Kind};

    use super::*;

    fn text(text: &str) -> Value {
        Value::Text(text.to_owned())
    }

    /// A table `handlers` of these rows: name, count, mean in ns, and whether that is below the limit.
    fn handlers(rows: &[(&str, u64, f64, bool)]) -> Table {
        let columns = vec![
            Column::new("condition", Kind::Text, "."),
            Column::new("cpu", Kind::Text, "."),
            Column::new("kind", Kind::Text, "."),
            Column::new("name", Kind::Text, "."),
            Column::new("count", Kind::Uint, "."),
            Column::new("self_mean_ns", Kind::Real, "."),
            Column::new("self_mean_below_limit", Kind::Bool, "."),
        ];
        let mut table = Table::new("handlers", ".", columns);
        for (name, count, mean_ns, below_limit) in rows {
            let (mean, below) = (Value::Real(*mean_ns), Value::Bool(*below_limit));
            for cpu in ["all", "0"] {
                let names = ["high/timer", cpu, "vector", name].map(text);
                let figures = [Value::Uint(*count), mean.clone(), below.clone()];
                table.push(names.into_iter().chain(figures).collect());
            }
        }
        table
    }

    /// A table with three columns of names, a count and a mean in ns. All rows have the names `shared_names` in the
    /// first two columns. A row of `rows`: the third name, the count, the mean.
    fn table(
        name: &str,
        columns: ([&str; 3], [&str; 2]),
        shared_names: [&str; 2],
        rows: &[(&str, u64, f64)],
    ) -> Table {
        let (names, [count, mean]) = columns;
        let of_names = names.map(|name| Column::new(name, Kind::Text, "."));
        let of_figures = [Column::new(count, Kind::Uint, "."), Column::new(mean, Kind::Real, ".")];
        let mut table = Table::new(name, ".", of_names.into_iter().chain(of_figures).collect());
        for (name, count, mean_ns) in rows {
            let figures = [Value::Uint(*count), Value::Real(*mean_ns)];
            let names = [shared_names[0], shared_names[1], name].map(text);
            table.push(names.into_iter().chain(figures).collect());
        }
        table
    }

    /// A table `probes` of these rows: name, count, and mean in ns.
    fn probes(rows: &[(&str, u64, f64)]) -> Table {
        let columns = (["condition", "kind", "name"], ["exact_count", "exact_self_mean_ns"]);
        table("probes", columns, ["high/timer", "vector"], rows)
    }

    /// A table `services` with services of class `fault`: service, completed requests, mean computation in ns.
    fn fault_services(rows: &[(&str, u64, f64)]) -> Table {
        let columns = (["bench", "class", "service"], ["completed_count", "computation_mean_ns"]);
        table("services", columns, ["any", "fault"], rows)
    }

    #[test]
    fn costs_are_compared_where_both_sides_have_measured_enough() {
        let host = handlers(&[
            ("local_timer", 500, 1_000.0, false),
            ("reschedule", 500, 20.0, true),
            ("thermal", 12, 300.0, false),
            ("spurious", 200, 300.0, false),
        ]);
        let model = probes(&[
            ("local_timer", 300, 1_500.0),
            ("reschedule", 300, 90.0),
            ("thermal", 400, 300.0),
            ("error", 400, 1.0),
        ]);
        let costs = of_handlers(&[&host], &model);
        let row = |cost: &Cost| (cost.name.clone(), cost.ratio(), cost.not_compared);
        let found: Vec<_> = costs.iter().map(row).collect();
        let expected = [
            ("local_timer", Some(1.5), None),
            ("reschedule", None, Some(BELOW_LIMIT)),
            ("thermal", None, Some(FEW)),
            ("spurious", None, Some(ONE_SIDE)),
            ("error", None, Some(ONE_SIDE)),
        ];
        assert_eq!(found, expected.map(|(name, ratio, why)| (name.to_owned(), ratio, why)));
        assert_eq!(costs[0].counts, Some([500, 300]));
    }

    #[test]
    fn runs_on_the_processor_give_their_median_and_their_range() {
        let runs =
            [5_000.0, 900.0, 1_000.0].map(|mean| handlers(&[("local_timer", 50, mean, false)]));
        let costs = of_handlers(&runs.each_ref(), &probes(&[("local_timer", 200, 500.0)]));
        assert_eq!((costs[0].host, costs[0].ratio()), (Some(1_000.0), Some(0.5)));
        assert_eq!(
            (costs[0].host_range, costs[0].counts),
            (Some((900.0, 5_000.0)), Some([150, 200]))
        );
    }

    #[test]
    fn kinds_of_faults_are_joined_by_mode() {
        let host = fault_services(&[(IN_USER_MODE, 400, 500.0), (IN_KERNEL, 200, 900.0)]);
        let model = fault_services(&[
            ("demand-zero", 300, 400.0),
            ("minor", 100, 800.0),
            ("file (by the kernel)", 200, 1_000.0),
        ]);
        let costs = of_services(&[&host], &model);
        let found: Vec<_> = costs.iter().map(|cost| (cost.name.as_str(), cost.model)).collect();
        let expected =
            [("fault in user mode", Some(500.0)), ("fault in the kernel", Some(1_000.0))];
        assert_eq!(found, expected);
        assert_eq!(costs[0].counts, Some([400, 400]));
    }

    #[test]
    fn a_service_that_other_programs_used_is_not_compared() {
        let model = fault_services(&[(IN_USER_MODE, 300, 500.0)]);
        let compared = |host_count| {
            let run = fault_services(&[(IN_USER_MODE, host_count, 400.0)]);
            of_services(&[&run, &run], &model)[0].not_compared
        };
        assert_eq!((compared(350), compared(370)), (None, Some(OTHER_PROGRAMS)));
    }

    #[test]
    fn devices_and_batches_are_not_compared() {
        let side = |cost| SideRow {
            condition: "high/disk".to_owned(),
            kind: "irq".to_owned(),
            name: "virtio0-req.0".to_owned(),
            count: 500,
            runs: 1,
            cost: Some(cost),
            range: None,
            below_limit: false,
        };
        let costs = join_sides(&[side(900.0)], &[side(1_000.0)], Part::Handlers);
        let found: Vec<_> =
            costs.iter().map(|cost| (cost.host, cost.model, cost.not_compared)).collect();
        let expected =
            [(Some(900.0), None, Some(OTHER_DEVICE)), (None, Some(1_000.0), Some(OTHER_DEVICE))];
        assert_eq!(found, expected);
        let softirq =
            |cost| SideRow { kind: "softirq".into(), name: "NET_RX".into(), ..side(cost) };
        let costs = join_sides(&[softirq(900.0)], &[softirq(1_000.0)], Part::Handlers);
        assert_eq!(costs[0].not_compared, Some(BATCHES));
    }

    /// Tables `modes` (mode, share) and `services` (class, service, share) of a run.
    fn mode_tables(modes: &[(&str, f64)], services: &[(&str, &str, f64)]) -> [Table; 2] {
        let texts = |names: &[&str]| -> Vec<Column> {
            let time = std::iter::once(Column::new("time_ratio", Kind::Real, "."));
            names.iter().map(|name| Column::new(name, Kind::Text, ".")).chain(time).collect()
        };
        let mut mode_table = Table::new("modes", ".", texts(&["mode"]));
        for (mode, share) in modes {
            mode_table.push(vec![text(mode), Value::Real(*share)]);
        }
        let mut service_table = Table::new("services", ".", texts(&["class", "service"]));
        for (class, service, share) in services {
            service_table.push(vec![text(class), text(service), Value::Real(*share)]);
        }
        [mode_table, service_table]
    }

    fn tables_of_run([modes, services]: &[Table; 2]) -> ModeTables<'_> {
        ModeTables { modes, services }
    }

    fn user_shares(hosts: &[[Table; 2]], model: &[Table; 2]) -> (f64, f64) {
        let hosts: Vec<_> = hosts.iter().map(tables_of_run).collect();
        let model = tables_of_run(model);
        let [user, kernel] = mode_shares(&hosts, model).unwrap();
        assert!((user.host + kernel.host - 1.0).abs() < 1e-12);
        assert!((user.model + kernel.model - 1.0).abs() < 1e-12);
        (user.host, user.model)
    }

    #[test]
    fn page_walks_belong_to_their_modes_on_both_sides() {
        // The machines are identical. The processor's walks are within user mode.
        let host = mode_tables(&[("user", 0.3), ("kernel", 0.2), ("idle", 0.5)], &[]);
        let walks = [
            ("page walk", "of user mode", 0.05),
            ("page walk", "of the kernel", 0.01),
            ("syscall", "of user mode", 0.1),
        ];
        let modes = [("user", 0.25), ("kernel", 0.19), ("page walk", 0.06), ("idle", 0.5)];
        let (host, model) = user_shares(&[host], &mode_tables(&modes, &walks));
        assert!((host - 0.6).abs() < 1e-12 && (model - 0.6).abs() < 1e-12, "{host} {model}");
    }

    #[test]
    fn shares_are_of_user_mode_and_kernel_and_the_median_of_the_hosts() {
        let run = |user, kernel, unknown| {
            let idle = 1.0 - user - kernel - unknown;
            mode_tables(
                &[("user", user), ("kernel", kernel), ("unknown", unknown), ("idle", idle)],
                &[],
            )
        };
        // The first run is not typical.
        let hosts = [run(0.09, 0.01, 0.0), run(0.01, 0.03, 0.4), run(0.02, 0.06, 0.0)];
        assert_eq!(user_shares(&hosts, &run(0.25, 0.25, 0.0)), (0.25, 0.5));
        let idle = mode_tables(&[("idle", 1.0)], &[]);
        let idle = tables_of_run(&idle);
        assert_eq!(mode_shares(&[idle], idle), None);
    }

    #[test]
    fn exits_to_the_hypervisor_are_set_apart_on_a_virtual_host_only() {
        let host = handlers(&[("local_timer", 500, 4_000.0, false), ("other", 500, 100.0, false)]);
        let model = probes(&[("local_timer", 500, 1_000.0), ("other", 500, 110.0)]);
        let costs = of_handlers(&[&host], &model);
        let parts = |is_virtual| {
            let table = part_table(&costs, is_virtual);
            let part = |row: &Vec<Value>| table.get(row, "part").cloned();
            table.rows().iter().filter_map(part).collect::<Vec<_>>()
        };
        assert_eq!(parts(false), ["handlers"].map(text));
        assert_eq!(parts(true), ["handlers, within the guest", "handlers, with exits"].map(text));
    }
}
