//! The costs of signalling in runs: read from tables of other runs, and written as settings. The verbs of `signal` take
//! costs from runs of `handlers` and of `signal fit`.

use record::{Run, Table, Value, keys};
use serde_json::{Map, Value as Json, json};
use signalling::{COST_MAX_NS, Costs, Empirical, Fit, TimeText, Times};

/// A context of a run of `handlers`. Columns that the table lacks are empty.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Context {
    kind: String,
    number: String,
    name: String,
}

impl Context {
    fn of_row(table: &Table, row: &[Value]) -> Context {
        let text = |column: &str| match table.get(row, column) {
            Some(Value::Text(text)) => text.clone(),
            Some(Value::Uint(number)) => number.to_string(),
            _ => String::new(),
        };
        Context { kind: text("kind"), number: text("number"), name: text("name") }
    }

    /// Whether `text` means this context: `NAME`, `KIND NAME` or `KIND NUMBER NAME`. Names can contain spaces.
    fn has_name(&self, text: &str) -> bool {
        let Context { kind, number, name } = self;
        text == name
            || text == format!("{kind} {name}")
            || text == format!("{kind} {number} {name}")
    }

    /// The shortest name that [`Context::has_name`] accepts and no other of the `contexts` has.
    fn unique_name(&self, contexts: &[Context]) -> String {
        let Context { kind, number, name } = self;
        let names = [name.clone(), format!("{kind} {name}")];
        let is_unique =
            |text: &String| contexts.iter().filter(|context| context.has_name(text)).count() == 1;
        let unique = names.into_iter().find(is_unique);
        unique.unwrap_or_else(|| format!("{kind} {number} {name}"))
    }
}

/// The mean self time of a context over all conditions of a run, from table `handlers`.
#[derive(Default)]
struct MeanTime {
    /// Spans that have a mean.
    count: f64,
    /// Sums over these spans, ns: of their self times, of the half widths of their intervals, and of the errors of the
    /// subtracted probe overhead.
    total_ns: f64,
    half_widths_ns: f64,
    overhead_errors_ns: f64,
}

impl MeanTime {
    /// `None` if the table has no mean of the context.
    fn of_context(table: &Table, context: &Context) -> Option<MeanTime> {
        let mut time = MeanTime::default();
        for row in table.rows() {
            let number = |column: &str| table.get(row, column).and_then(Value::number);
            let is_sum = table.get(row, "cpu").is_none_or(|cpu| *cpu == Value::from("all"));
            if !is_sum || Context::of_row(table, row) != *context {
                continue;
            }
            let Some((count, mean_ns)) = number("count").zip(number("self_mean_ns")) else {
                continue;
            };
            let sum = |column: &str| count * number(column).unwrap_or(0.0);
            time.count += count;
            time.total_ns += count * mean_ns;
            time.half_widths_ns += sum("self_mean_ci95_ns");
            time.overhead_errors_ns += sum("probe_overhead_mean_ci95_ns");
        }
        (time.count > 0.0).then_some(time)
    }

    /// The mean, ns. Fails if it is below the detection limit, by the rule of column `self_mean_below_limit`.
    fn above_limit_ns(&self) -> Result<f64, String> {
        let mean_ns = self.total_ns / self.count;
        // Without an error of an overhead, nothing was subtracted, and there is no limit.
        if self.overhead_errors_ns == 0.0 || self.total_ns > self.overhead_errors_ns {
            return Ok(mean_ns);
        }
        let high_ns = mean_ns + self.half_widths_ns / self.count;
        let bound = if self.half_widths_ns > 0.0 && high_ns > 0.0 {
            format!(", at most {high_ns:.1} ns")
        } else {
            String::new()
        };
        Err(format!(
            "its mean is below the detection limit{bound} (give a time instead, or a context with longer handlers)"
        ))
    }
}

/// The distribution of self times of a context in a run of `handlers`, over all conditions. `name`: `NAME`,
/// `KIND NAME` or `KIND NUMBER NAME`, as in `eth0`, `irq eth0` and `irq 33 eth0`.
///
/// The histogram has spans that are shorter than the subtracted overhead as 0, and the others with the error of a bucket. So
/// its times are multiplied by a factor that gives them the mean of table `handlers`.
///
/// Fails if the run has no histogram of these times, several contexts have the name, or the mean is
/// below the detection limit.
pub fn self_times(run: &Run, name: &str) -> Result<Times, String> {
    let cannot = |reason: &str| format!("cannot take the times of {name:?} from the run: {reason}");
    let table = run.table("histograms");
    let table = table.ok_or_else(|| {
        cannot("it has no table histograms (give a run of irqlab handlers --histograms)")
    })?;
    // All contexts with self times, each with its buckets.
    let mut contexts: Vec<Context> = Vec::new();
    let mut buckets: Vec<Vec<(u64, u64, u64)>> = Vec::new();
    for row in table.rows() {
        let value = |column: &str| table.get(row, column);
        let context = Context::of_row(table, row);
        if value("quantity") != Some(&Value::from("self")) || context.name.is_empty() {
            continue;
        }
        let found = contexts.iter().position(|known| *known == context);
        let position = found.unwrap_or_else(|| {
            contexts.push(context);
            buckets.push(Vec::new());
            contexts.len() - 1
        });
        let bucket = (value("bucket_min"), value("bucket_max"), value("count"));
        if let (Some(Value::Uint(low)), Some(Value::Uint(high)), Some(Value::Uint(count))) = bucket
        {
            buckets[position].push((*low, *high, *count));
        }
    }
    let list = |positions: &[usize]| {
        let names: Vec<String> =
            positions.iter().map(|&position| contexts[position].unique_name(&contexts)).collect();
        names.join(", ")
    };
    let matches = |position: &usize| contexts[*position].has_name(name);
    let matching: Vec<usize> = (0..contexts.len()).filter(matches).collect();
    match matching[..] {
        [] => {
            let all: Vec<usize> = (0..contexts.len()).collect();
            Err(cannot(&format!("it has times of: {}", list(&all))))
        }
        [position] => {
            let empirical = Empirical::from_buckets(&buckets[position]);
            let empirical = empirical.ok_or_else(|| cannot("the context has no times"))?;
            let handlers = run.table("handlers");
            let handlers = handlers.ok_or_else(|| cannot("it has no table handlers"))?;
            let mean = MeanTime::of_context(handlers, &contexts[position])
                .ok_or_else(|| cannot("its table handlers has no mean of the context"))?;
            let mean_ns = mean.above_limit_ns().map_err(|reason| cannot(&reason))?;
            let times = Times::Empirical(empirical.clone());
            let histogram_mean_ns = times.mean_ns();
            Ok(if histogram_mean_ns > 0.0 {
                Times::Empirical(empirical.scaled_by(mean_ns / histogram_mean_ns))
            } else {
                times
            })
        }
        _ => Err(cannot(&format!(
            "several contexts have this name (give one of: {})",
            list(&matching)
        ))),
    }
}

/// Costs that a fit may leave undetermined, each with the value that is assumed instead.
const COSTS_WITH_DEFAULTS: [(&str, &str); 4] =
    [("tick", "that of an interrupt"), ("yield", "0"), ("wake", "0"), ("fixed", "0")];

/// A warning that names the costs for which `is_known` is false. `None` if all are known.
fn undetermined_costs(is_known: impl Fn(&str) -> bool) -> Option<String> {
    let unknown = COSTS_WITH_DEFAULTS.iter().filter(|(cost, _)| !is_known(cost));
    let unknown: Vec<String> =
        unknown.map(|(cost, default)| format!("{cost} (taken as {default})")).collect();
    (!unknown.is_empty()).then(|| {
        format!(
            "not determined by the fit: {}: schemes that have such costs look cheaper or faster than they are (fit rows \
             of these schemes, too)",
            unknown.join(", ")
        )
    })
}

/// Costs from a fit, for the model.
#[derive(Clone, Debug, PartialEq)]
pub struct FittedCosts {
    /// The values that explain the rows best.
    pub costs: Costs,
    /// All costs at the lower ends of their 95 % intervals, and all at the upper ends. A cost without an interval has its
    /// value. Empty if no cost has an interval.
    pub ends: Vec<Costs>,
    /// Costs that the fit does not determine, costs without an interval, and doubts of the rows.
    pub warnings: Vec<String>,
}

/// A cost of a fit: its value and its 95 % interval, ns.
type ValueAndInterval = (f64, Option<(f64, f64)>);

/// The names of the costs that a fit can determine.
const FITTED_COSTS: [&str; 6] = ["interrupt", "tick", "event", "yield", "wake", "fixed"];

impl FittedCosts {
    #[must_use]
    pub fn from_fit(fit: &Fit) -> FittedCosts {
        let estimate = |cost: &str| {
            let estimate = fit.estimate(&format!("{cost}_ns"))?;
            Some((estimate.value_ns, estimate.interval_ns))
        };
        FittedCosts::new(fit.costs(), estimate)
    }

    /// `costs` with the intervals that `estimate` returns by the name of a cost. `None`: the fit does not determine it.
    fn new(costs: Costs, estimate: impl Fn(&str) -> Option<ValueAndInterval>) -> FittedCosts {
        let interval = |cost: &str| estimate(cost).and_then(|(_, interval)| interval);
        let without_interval: Vec<&str> = FITTED_COSTS
            .into_iter()
            .filter(|cost| matches!(estimate(cost), Some((_, None))))
            .collect();
        let mut warnings = Vec::from_iter(undetermined_costs(|cost| estimate(cost).is_some()));
        if !without_interval.is_empty() {
            warnings.push(format!(
                "the fit has no interval of {}, which the rows explain best with 0: all limits are judged with this \
                 value alone",
                without_interval.join(", ")
            ));
        }
        let has_interval = FITTED_COSTS.iter().any(|cost| interval(cost).is_some());
        let ends = if has_interval {
            [|(low, _): (f64, f64)| low, |(_, high): (f64, f64)| high]
                .map(|end| costs_at(&costs, |cost| interval(cost).map(end)))
                .to_vec()
        } else {
            Vec::new()
        };
        FittedCosts { costs, ends, warnings }
    }
}

/// The costs with the values that `value_ns` returns by the name of a cost, ns. `None`: the cost stays.
fn costs_at(costs: &Costs, value_ns: impl Fn(&str) -> Option<f64>) -> Costs {
    let rounded = |cost: &str| value_ns(cost).map(|ns| (ns.round() as u64).min(COST_MAX_NS));
    let times =
        |cost: &str, times: &Times| rounded(cost).map_or_else(|| times.clone(), Times::Constant);
    Costs {
        interrupt: times("interrupt", &costs.interrupt),
        tick: costs.tick.as_ref().map(|tick| times("tick", tick)),
        event: rounded("event")
            .map_or_else(|| costs.event.clone(), |ns| Times::Constant(ns.max(1))),
        poll_ns: costs.poll_ns,
        yield_ns: rounded("yield").unwrap_or(costs.yield_ns),
        wake_ns: rounded("wake").unwrap_or(costs.wake_ns),
        fixed_ns: rounded("fixed").unwrap_or(costs.fixed_ns),
    }
}

/// The costs of a run with table `costs`, such as a run of `signal fit`. The costs of an interrupt and of an event are
/// required; the others have defaults. The warnings include the run's warnings of contaminated rows, and of rows
/// whose CPU use the fit left out.
///
/// Fails if the table lacks a cost, or the costs are out of range.
pub fn costs_of_run(run: &Run) -> Result<FittedCosts, String> {
    let table = run.table("costs");
    let estimate = |cost: &str| -> Option<ValueAndInterval> {
        let table = table?;
        let has_cost =
            |row: &&Vec<Value>| table.get(row, "cost") == Some(&Value::Text(cost.to_owned()));
        let row = table.rows().iter().find(has_cost)?;
        let number = |column: &str| match table.get(row, column)? {
            Value::Real(ns) if *ns >= 0.0 => Some(*ns),
            _ => None,
        };
        let interval_ns = number("ci95_low_ns").zip(number("ci95_high_ns"));
        Some((number("value_ns")?, interval_ns))
    };
    let value = |cost: &str| estimate(cost).map(|(ns, _)| ns.round() as u64);
    let required = |cost: &str| {
        let missing = || format!("the run's table costs has no {cost} (give a run of signal fit)");
        value(cost).ok_or_else(missing)
    };
    let costs = Costs {
        interrupt: Times::Constant(required("interrupt")?),
        tick: value("tick").map(Times::Constant),
        event: Times::Constant(required("event")?.max(1)),
        poll_ns: value("poll").unwrap_or(100).max(1),
        yield_ns: value("yield").unwrap_or(0),
        wake_ns: value("wake").unwrap_or(0),
        fixed_ns: value("fixed").unwrap_or(0),
    };
    costs.check().map_err(|error| error.to_string())?;
    let mut fitted = FittedCosts::new(costs, estimate);
    let is_about_rows = |warning: &&String| {
        [keys::ONLY_CONTAMINATED_WINDOWS, keys::NEGATIVE_CPU_USE]
            .into_iter()
            .any(|part| warning.contains(part))
    };
    let of_run = |warning: &String| format!("the run of the costs warns: {warning}");
    fitted.warnings.extend(run.warnings.iter().filter(is_about_rows).map(of_run));
    Ok(fitted)
}

/// The costs as settings of a run. The keys are public.
#[must_use]
pub fn cost_settings(costs: &Costs) -> Map<String, Json> {
    Map::from_iter([
        ("interrupt_cost".to_owned(), json!(times_in_words(&costs.interrupt))),
        ("tick_cost".to_owned(), json!(costs.tick.as_ref().map(times_in_words))),
        ("event_cost".to_owned(), json!(times_in_words(&costs.event))),
        ("poll_cost_ns".to_owned(), json!(costs.poll_ns)),
        ("yield_cost_ns".to_owned(), json!(costs.yield_ns)),
        ("wake_latency_ns".to_owned(), json!(costs.wake_ns)),
        ("fixed_latency_ns".to_owned(), json!(costs.fixed_ns)),
    ])
}

fn times_in_words(times: &Times) -> String {
    match times {
        Times::Constant(ns) => TimeText(*ns).to_string(),
        Times::Exponential { mean_ns } => format!("exponential:{}", TimeText(*mean_ns)),
        Times::Empirical(_) => {
            let deviation_ns = times.variance_ns2().sqrt();
            format!(
                "measured: mean {:.1}ns, standard deviation {deviation_ns:.1}ns",
                times.mean_ns()
            )
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use record::{Column, Kind, SCHEMA};

    /// The kind, number and name of `KIND NUMBER NAME`.
    fn context_cells(context: &str) -> [Value; 3] {
        let [kind, number, name] = context.splitn(3, ' ').collect::<Vec<_>>()[..] else {
            panic!("{context}")
        };
        [kind.into(), number.parse::<u64>().unwrap().into(), name.into()]
    }

    /// Table `handlers` with a context, count, and mean, ns, in each row. The half width of each mean is 200 ns, and the error
    /// of the overhead is 100 ns.
    fn handlers(rows: &[(&str, u64, f64)]) -> Table {
        let columns = vec![
            Column::new("cpu", Kind::Text, "Text."),
            Column::new("kind", Kind::Text, "Text."),
            Column::new("number", Kind::Uint, "Number."),
            Column::new("name", Kind::Text, "Text."),
            Column::new("count", Kind::Uint, "Number."),
            Column::new("self_mean_ns", Kind::Real, "Number."),
            Column::new("self_mean_ci95_ns", Kind::Real, "Number."),
            Column::new("probe_overhead_mean_ci95_ns", Kind::Real, "Number."),
        ];
        let mut table = Table::new("handlers", "Contexts.", columns);
        for &(context, count, mean_ns) in rows {
            for (cpu, mean_ns) in [("all", mean_ns), ("0", 1e9)] {
                let figures = [count.into(), mean_ns.into(), 200.0.into(), 100.0.into()];
                let cells = [Value::from(cpu)].into_iter().chain(context_cells(context));
                table.push(cells.chain(figures).collect());
            }
        }
        table
    }

    /// A run with the columns of the table `histograms` that `self_times` reads.
    /// A context is `KIND NUMBER NAME`. Table `handlers` has its mean by the middles of the buckets.
    fn run(rows: &[(&str, &str, u64, u64, u64)]) -> Run {
        let text = |name: &str| Column::new(name, Kind::Text, "Text.");
        let uint = |name: &str| Column::new(name, Kind::Uint, "Number.");
        let columns = vec![
            text("kind"),
            uint("number"),
            text("name"),
            text("quantity"),
            uint("bucket_min"),
            uint("bucket_max"),
            uint("count"),
        ];
        let mut table = Table::new("histograms", "Buckets.", columns);
        for &(context, quantity, low, high, count) in rows {
            let figures = [quantity.into(), low.into(), high.into(), count.into()];
            table.push(context_cells(context).into_iter().chain(figures).collect());
        }
        let means: Vec<(&str, u64, f64)> = rows
            .iter()
            .filter(|(_, quantity, ..)| *quantity == "self")
            .map(|&(context, _, low, high, count)| {
                (context, count, f64::midpoint(low as f64, high as f64))
            })
            .collect();
        Run {
            schema: SCHEMA.to_owned(),
            experiment: "handlers".to_owned(),
            bench: "live".to_owned(),
            started_utc: String::new(),
            complete: true,
            host: Map::new(),
            settings: Map::new(),
            observer: Map::new(),
            warnings: Vec::new(),
            absent: Vec::new(),
            tables: vec![table, handlers(&means)],
        }
    }

    /// A run of `signal fit` with table `costs`: cost, value, and interval, ns.
    fn fit_run(rows: &[(&str, ValueAndInterval)]) -> Run {
        let real = |name: &str| Column::new(name, Kind::Real, "Number.");
        let columns = vec![
            Column::new("cost", Kind::Text, "Text."),
            real("value_ns"),
            real("ci95_low_ns"),
            real("ci95_high_ns"),
        ];
        let mut table = Table::new("costs", "Costs.", columns);
        for (cost, (value_ns, interval_ns)) in rows {
            let end = |end: Option<f64>| end.map_or(Value::Absent, Value::Real);
            table.push(vec![
                (*cost).into(),
                Value::Real(*value_ns),
                end(interval_ns.map(|(low, _)| low)),
                end(interval_ns.map(|(_, high)| high)),
            ]);
        }
        Run { tables: vec![table], ..run(&[]) }
    }

    #[test]
    fn costs_of_a_fit_have_their_intervals() {
        let run = fit_run(&[
            ("interrupt", (0.0, None)),
            ("event", (41_300.0, Some((0.0, 98_000.0)))),
            ("fixed", (22_200_000.0, Some((5_080_000.0, 39_400_000.0)))),
            ("poll", (100.0, None)),
        ]);
        let FittedCosts { costs, ends, warnings } = costs_of_run(&run).unwrap();
        let costs_of =
            |event_ns, fixed_ns| Costs { fixed_ns, yield_ns: 0, ..Costs::constant(0, event_ns) };
        assert_eq!(costs, costs_of(41_300, 22_200_000));
        assert_eq!(ends, [costs_of(1, 5_080_000), costs_of(98_000, 39_400_000)]);
        let [undetermined, without_interval] = &warnings[..] else { panic!("{warnings:?}") };
        assert!(undetermined.contains("wake (taken as 0)"), "{undetermined}");
        assert!(without_interval.contains("no interval of interrupt,"), "{without_interval}");
    }

    #[test]
    fn a_warning_about_contaminated_rows_comes_with_the_costs() {
        let interval = Some((1.0, 2.0));
        let mut run = fit_run(&[("interrupt", (1.5, interval)), ("event", (1.5, interval))]);
        run.warnings
            .push(format!("9 of 9 rows of table rates {}", keys::ONLY_CONTAMINATED_WINDOWS));
        run.warnings.push(format!("2 of 9 rows {}, by chance", keys::NEGATIVE_CPU_USE));
        let warnings = costs_of_run(&run).unwrap().warnings;
        let [.., windows, negative] = &warnings[..] else { panic!("{warnings:?}") };
        assert!(windows.starts_with("the run of the costs warns: 9 of 9 rows"), "{windows}");
        assert!(negative.starts_with("the run of the costs warns: 2 of 9 rows"), "{negative}");
    }

    #[test]
    fn the_self_times_of_a_context_are_taken_over_all_conditions() {
        let run = run(&[
            ("irq 9 disk", "self", 150, 150, 3),
            ("irq 9 disk", "inclusive", 9_000, 9_000, 5),
            ("irq 10 net", "self", 700, 700, 1),
            ("irq 9 disk", "self", 250, 250, 1),
        ]);
        assert_eq!(self_times(&run, "disk").unwrap().mean_ns(), 175.0);
        let error = self_times(&run, "usb").unwrap_err();
        assert!(error.contains("it has times of: disk, net"), "{error}");
        let without = Run { tables: Vec::new(), ..run };
        assert!(self_times(&without, "disk").unwrap_err().contains("--histograms"));
    }

    /// 22 of 25 spans were shorter than the overhead, so they are 0 in the histogram.
    #[test]
    fn times_below_the_detection_limit_are_no_cost() {
        let spans =
            [("vector 253 resched", "self", 0, 0, 22), ("vector 253 resched", "self", 100, 108, 3)];
        let error = |means: &[(&str, u64, f64)]| {
            let mut run = run(&spans);
            run.tables[1] = handlers(means);
            self_times(&run, "resched").map(|times| times.mean_ns()).unwrap_err()
        };
        let below = "cannot take the times of \"resched\" from the run: its mean is below the detection limit";
        let found = error(&[("vector 253 resched", 25, -150.0)]);
        assert!(found.starts_with(&format!("{below}, at most 50.0 ns (give a time")), "{found}");
        // No time is negative, so this end is no bound.
        let found = error(&[("vector 253 resched", 25, -494.0)]);
        assert!(found.starts_with(&format!("{below} (give a time")), "{found}");
        // One of two conditions is above the limit, both together are below it.
        let two = [("vector 253 resched", 5, 120.0), ("vector 253 resched", 20, 20.0)];
        assert!(error(&two).starts_with(below));
        let found = error(&[("irq 9 disk", 25, 900.0)]);
        assert!(found.ends_with("its table handlers has no mean of the context"), "{found}");
    }

    #[test]
    fn times_have_the_mean_of_the_spans_and_not_that_of_the_histogram() {
        let mut run =
            run(&[("irq 9 disk", "self", 0, 0, 10), ("irq 9 disk", "self", 400, 400, 10)]);
        // The short spans took -20 ns in the mean: the overhead that was subtracted varies.
        run.tables[1] = handlers(&[("irq 9 disk", 5, 100.0), ("irq 9 disk", 15, 220.0)]);
        let times = self_times(&run, "disk").unwrap();
        assert_eq!(times.mean_ns(), 190.0);
        let Times::Empirical(_) = &times else { panic!("{times:?}") };
        assert_eq!(times.variance_ns2().sqrt().round(), 190.0, "scaled with the mean");
    }

    #[test]
    fn contexts_with_the_same_name_are_not_mixed() {
        let run = run(&[
            ("irq 33 eth0", "self", 150, 150, 1),
            ("irq_thread 33 eth0", "self", 9_000, 9_000, 1),
            ("irq 34 virtio input", "self", 300, 300, 1),
            ("irq 35 virtio input", "self", 500, 500, 1),
        ]);
        let mean_ns = |name: &str| self_times(&run, name).map(|times| times.mean_ns());
        let error = mean_ns("eth0").unwrap_err();
        assert!(error.ends_with("(give one of: irq eth0, irq_thread eth0)"), "{error}");
        assert_eq!(mean_ns("irq eth0"), Ok(150.0));
        assert_eq!(mean_ns("irq_thread eth0"), Ok(9_000.0));
        let error = mean_ns("irq virtio input").unwrap_err();
        assert!(
            error.ends_with("(give one of: irq 34 virtio input, irq 35 virtio input)"),
            "{error}"
        );
        assert_eq!(mean_ns("irq 35 virtio input"), Ok(500.0));
    }
}
