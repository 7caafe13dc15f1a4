//! Table `rates`: rate and CPU time of each context in the interval between two readings.

use record::{Column, Format, Kind, RowFilter, Table, TableDisplay, Value};

use super::super::rates::{ContextRates, Rates};
use super::{context_columns, context_values};

fn columns() -> Vec<Column> {
    let doc = "CPU number, or `all` for the sum over the measured CPUs.";
    let mut columns = vec![Column::new("cpu", Kind::Text, doc).priority(95).key()];
    columns.extend(context_columns());
    let time = |name, kind, doc| Column::new(name, kind, doc).format(Format::Microseconds).cost();
    columns.extend([
        Column::new("count", Kind::Uint, "Spans that ended in the interval, polls, or faults.")
            .priority(60),
        Column::new("rate_hz", Kind::Real, "count per second.").priority(90),
        Column::new(
            "self_cpu_ratio",
            Kind::Real,
            "Share of the CPU time of the row's CPUs: self time, without nested spans.",
        )
        .title("CPU")
        .priority(85)
        .cpu_share(),
        time(
            "self_mean_ns",
            Kind::Real,
            "Mean self time of a span; the probe overhead within the span is subtracted.",
        )
        .title("mean")
        .priority(80),
        time(
            "self_p99_ns",
            Kind::Uint,
            "99 % of the spans took at most this time; exact within 1/16; absent with fewer than 100 spans.",
        )
        .title("p99")
        .priority(50),
        time(
            "self_max_ns",
            Kind::Uint,
            "The longest span of the interval: exact if no earlier span of the window was longer, otherwise at \
             most 1/16 too long.",
        )
        .title("max")
        .priority(75),
        time(
            "self_max_since_open_ns",
            Kind::Uint,
            "The longest span since the window opened; exact.",
        )
        .detail(),
    ]);
    columns
}

impl Rates {
    /// Table `rates`: a row for each context that came, on all CPUs together and on each CPU.
    #[must_use]
    pub fn table(&self) -> Table {
        let doc = "One row per interrupt context that came in the interval, and CPU, and one for the sum over \
                   the CPUs (`all`).";
        let display = TableDisplay {
            title: "rate and CPU time of each interrupt context in the interval".to_owned(),
            headline: "largest: {kind} {name}, {self_cpu_ratio} of CPU time, {rate_hz}".to_owned(),
            sort_by: Some("self_cpu_ratio".to_owned()),
            filter: Some(RowFilter::sums_over_cpus()),
            rows_max: Some(record::limits::ROWS_MAX),
            ..TableDisplay::default()
        };
        let mut table = Table::new("rates", doc, columns()).displayed(display);
        let came = self.contexts.iter().filter(|context| context.count > 0);
        came.for_each(|context| table.push(row(context)));
        table
    }
}

fn row(rates: &ContextRates) -> Vec<Value> {
    let cpu = rates.cpu.map_or_else(|| "all".to_owned(), |cpu| cpu.to_string());
    let mut row: Vec<Value> = vec![cpu.into()];
    row.extend(context_values(&rates.context));
    row.extend([
        rates.count.into(),
        rates.rate_hz.into(),
        rates.times.map(|times| times.cpu_ratio).into(),
        rates.times.and_then(|times| times.mean_ns).into(),
        rates.times.and_then(|times| times.p99_ns).into(),
        rates.times.and_then(|times| times.max_ns).into(),
        rates.times.and_then(|times| times.max_since_open_ns).into(),
    ]);
    row
}
