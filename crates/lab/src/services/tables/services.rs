//! Table `services`: the time, requests and stalls of each service.

use record::limits::ROWS_MAX;
use record::{Column, Format, Kind, Table, TableDisplay, Value};
use stats::Distribution;

use super::super::counters::{CYCLES, DATA_STALL, FETCH_STALL, INSTRUCTIONS};
use super::super::sample::{ServiceStats, ServicesSample, Times, Undelivered};
use super::{is_kernel, key_columns, key_values, ratio};
use crate::quantiles::{interval_columns, interval_link};

/// Quantiles: suffix of the column, and share in units of 1/100,000.
const QUANTILES: [(&str, u32); 2] = [("p50", 50_000), ("p99", 99_000)];

fn real(name: &str, doc: &str) -> Column {
    Column::new(name, Kind::Real, doc)
}

fn uint(name: &str, doc: &str) -> Column {
    Column::new(name, Kind::Uint, doc)
}

fn columns(sample: &ServicesSample) -> Vec<Column> {
    let mut columns = key_columns().to_vec();
    columns.extend([
        real(
            "kernel_ratio",
            "Share of the kernel's time: self_total_ns over that of all rows but user, page walk \
             and idle.",
        )
        .title("% kernel")
        .priority(97),
        real("time_ratio", "Share of the time of all CPUs.").title("% time").priority(96),
        real(
            "self_total_ns",
            "Time of the service itself: without interrupts, faults, other services, other tasks \
             and page walks.",
        )
        .title("time")
        .format(Format::Milliseconds)
        .priority(80),
        uint(
            "self_total_cycles",
            "self_total_ns in cycles; the rows add up exactly to the time of all CPUs.",
        )
        .detail(),
        real(
            "page_walk_total_ns",
            "Time of page walks for the service; self_total_ns does not include it, the rows of \
             class page walk do.",
        )
        .title("walks")
        .format(Format::Milliseconds)
        .priority(40),
        uint(
            "request_count",
            "Requests that started in the window; in rows of class page walk: page walks.",
        )
        .title("requests")
        .priority(95),
        real("request_rate_hz", "Requests per second of the window.").title("rate").priority(60),
    ]);
    columns.extend(undelivered_columns(sample));
    columns.extend([
        uint(
            "completed_count",
            "Requests that started and completed in the window. Means and quantiles are over \
             these.",
        )
        .detail(),
        real(
            "computation_mean_ns",
            "Mean time of the service itself in a completed request, page walks included.",
        )
        .title("computation")
        .format(Format::Microseconds)
        .cost()
        .priority(94),
        real(
            "latency_mean_ns",
            "Mean time from start to end of a request: computation, nested, blocked and \
             descheduled together.",
        )
        .title("latency")
        .format(Format::Microseconds)
        .cost()
        .priority(93),
        real(
            "nested_mean_ns",
            "Mean time of interrupts, faults and other services during a request, on its task.",
        )
        .title("nested")
        .format(Format::Microseconds)
        .priority(50),
        real(
            "blocked_mean_ns",
            "Mean time per request that the task was blocked, until its wake-up.",
        )
        .title("blocked")
        .format(Format::Microseconds)
        .priority(88),
        real(
            "descheduled_mean_ns",
            "Mean time per request that the task was runnable but did not run.",
        )
        .title("descheduled")
        .format(Format::Microseconds)
        .priority(87),
    ]);
    for (prefix, what) in [("latency", "latency"), ("computation", "computation")] {
        for (suffix, share) in QUANTILES {
            let percent = f64::from(share) / 1e3;
            let doc = format!(
                "{percent} % of the completed requests had at most this {what}; exact within \
                 1/16; absent where fewer than one request is expected above it."
            );
            let column = uint(&format!("{prefix}_{suffix}_ns"), &doc);
            let interval = interval_columns(&column.name);
            let column = column.interval(interval_link(&format!("{prefix}_{suffix}_ns")));
            let column = column.format(Format::Microseconds);
            let is_shown = (prefix, suffix) == ("latency", "p99");
            columns.push(if is_shown { column.title("p99").priority(70) } else { column.detail() });
            columns.extend(interval);
        }
    }
    columns.extend([
        real("cpi_ratio", "Cycles per instruction.")
            .title("CPI")
            .format(Format::Factor)
            .priority(92),
        real(
            "fetch_mcpi_ratio",
            "Cycles that the processor waited for instructions, per instruction.",
        )
        .title("i-MCPI")
        .format(Format::Factor)
        .priority(91),
        real("data_mcpi_ratio", "Cycles that the processor waited for data, per instruction.")
            .title("d-MCPI")
            .format(Format::Factor)
            .priority(90),
        real(
            "fetch_stall_ratio",
            "This service's waits for instructions, as a share of all memory stalls of the kernel.",
        )
        .title("% stall (I)")
        .priority(65),
        real(
            "data_stall_ratio",
            "This service's waits for data, as a share of all memory stalls of the kernel.",
        )
        .title("% stall (D)")
        .priority(64),
    ]);
    for name in &sample.counters {
        let doc = format!("{name} of the service itself, by the model.");
        columns.push(uint(&format!("self_{name}"), &doc).detail());
    }
    columns
}

/// What the rows may lack, on a bench to which the kernel may not hand all interrupts. People see it where a row lacks
/// something.
fn undelivered_columns(sample: &ServicesSample) -> Vec<Column> {
    if sample.undelivered.is_empty() {
        return Vec::new();
    }
    let count = uint(
        "undelivered_max_count",
        "At most how many requests the kernel counted and did not hand to the probes: they are in no other column. \
         The kernel counts both function calls together; each of those rows may lack all that is missing. Absent \
         where the kernel has no counter.",
    )
    .title("undelivered ≤");
    let is_incomplete = sample.undelivered.iter().any(|one| one.is_beyond_edges);
    let ratio = real(
        "undelivered_max_ratio",
        "undelivered_max_count as a share of itself and request_count: times, means and quantiles are of the others.",
    );
    vec![if is_incomplete { count.priority(90) } else { count.detail() }, ratio.detail()]
}

/// One row for each service, including user mode and idle.
pub(in super::super) fn services(sample: &ServicesSample) -> Table {
    let doc = "What each service of the kernel took. The times of the services themselves, user \
               mode and idle add up to the time of all CPUs.";
    let display = TableDisplay {
        headline: "largest: {service}, {time_ratio} of the time".to_owned(),
        sort_by: Some("self_total_ns".to_owned()),
        rows_max: Some(ROWS_MAX),
        ..TableDisplay::default()
    };
    let mut table = Table::new("services", doc, columns(sample)).displayed(display);
    for service in &sample.services {
        table.push(row(sample, service));
    }
    table
}

fn row(sample: &ServicesSample, service: &ServiceStats) -> Vec<Value> {
    let mut row: Vec<Value> = key_values(service.class, &service.name).to_vec();
    let ticks = service.self_ticks;
    let kernel = service.class.is_kernel().then(|| ratio(ticks, sample.ticks(is_kernel))).flatten();
    let seconds = sample.window_ns as f64 / 1e9;
    let rate =
        if seconds > 0.0 { service.requests.map(|count| count as f64 / seconds) } else { None };
    row.extend([
        kernel.into(),
        ratio(ticks, Some(sample.window_ticks)).into(),
        ticks.map(|ticks| sample.ns_of(ticks as f64)).into(),
        if sample.has_cycles() { ticks.into() } else { Value::Absent },
        service.page_walks().map(|ticks| sample.ns_of(ticks as f64)).into(),
        service.requests.into(),
        rate.into(),
    ]);
    if !sample.undelivered.is_empty() {
        let mut undelivered = sample.undelivered.iter();
        let is_of_row =
            |one: &&Undelivered| one.class == service.class && one.service == service.name;
        let max = undelivered.find(is_of_row).map(|one| one.max);
        let all = max.zip(service.requests).map(|(max, requests)| max.saturating_add(requests));
        row.extend([max.into(), ratio(max, all.filter(|all| *all > 0)).into()]);
    }
    row.push(service.times.as_ref().map(|times| times.latency.count).into());
    row.extend(means(sample, service.times.as_ref()));
    let times = service.times.as_ref();
    row.extend(quantiles(sample, times.map(|times| &times.latency)));
    row.extend(quantiles(sample, times.and_then(|times| times.computation.as_ref())));
    let count = |name| sample.count(service, name);
    let per_instruction = |name| ratio(count(name), count(INSTRUCTIONS));
    let stalls = sample.sum(FETCH_STALL, is_kernel).zip(sample.sum(DATA_STALL, is_kernel));
    let stalls = stalls.map(|(fetch, data)| fetch + data);
    let share_of_stalls =
        |name| if service.class.is_kernel() { ratio(count(name), stalls) } else { None };
    row.extend([
        per_instruction(CYCLES).into(),
        per_instruction(FETCH_STALL).into(),
        per_instruction(DATA_STALL).into(),
        share_of_stalls(FETCH_STALL).into(),
        share_of_stalls(DATA_STALL).into(),
    ]);
    row.extend(service.counters.iter().map(|count| Value::from(*count)));
    row
}

/// Means of computation, latency, nested services, blocked time and descheduled time.
fn means(sample: &ServicesSample, times: Option<&Times>) -> [Value; 5] {
    let count = times.map_or(0, |times| times.latency.count);
    let mean = |sum: Option<u64>| -> Value {
        if count == 0 {
            return Value::Absent;
        }
        sum.map(|sum| sample.ns_of(sum as f64 / count as f64)).into()
    };
    let latency = times.map(|times| times.latency.sum);
    let computation = times.and_then(|times| times.computation_ticks);
    let blocked = times.and_then(|times| times.blocked_ticks);
    let descheduled = times.and_then(|times| times.descheduled_ticks);
    let off_cpu = blocked.unwrap_or(0) + descheduled.unwrap_or(0);
    let nested = || latency?.checked_sub(computation? + off_cpu);
    [mean(computation), mean(latency), mean(nested()), mean(blocked), mean(descheduled)]
}

fn quantiles(sample: &ServicesSample, distribution: Option<&Distribution>) -> Vec<Value> {
    let ns = |ticks: Option<u64>| -> Value { ticks.map(|ticks| sample.whole_ns(ticks)).into() };
    let with_interval = |(_, share): (&str, u32)| match distribution {
        Some(distribution) => {
            let (low, high) = distribution.quantile_interval(share);
            [ns(distribution.quantile(share)), ns(low), ns(high)]
        }
        None => [Value::Absent, Value::Absent, Value::Absent],
    };
    QUANTILES.into_iter().flat_map(with_interval).collect()
}

#[cfg(test)]
mod tests {
    use super::super::super::class::Class;
    use super::super::tests::sample;
    use super::*;

    fn number(table: &Table, row: usize, column: &str) -> Option<f64> {
        table.get(&table.rows()[row], column).and_then(Value::number)
    }

    #[test]
    fn shares_are_of_the_kernel_and_of_all_time() {
        let table = services(&sample());
        assert_eq!(number(&table, 1, "kernel_ratio"), Some(1.0));
        assert_eq!(number(&table, 1, "time_ratio"), Some(0.31));
        // User mode and idle are no part of the kernel's time.
        assert_eq!(number(&table, 0, "kernel_ratio"), None);
        let shares: f64 = (0..3).filter_map(|row| number(&table, row, "time_ratio")).sum();
        assert!((shares - 1.0).abs() < 1e-12);
    }

    #[test]
    fn rows_have_what_the_kernel_may_not_have_handed_over() {
        let name = "undelivered_max_count";
        assert!(services(&sample()).column(name).is_none(), "a bench that sees all");
        let lacks = |is_beyond_edges| {
            let (class, service) = (Class::Syscall, "read".to_owned());
            let undelivered = vec![Undelivered { class, service, max: 1, is_beyond_edges }];
            services(&ServicesSample { undelivered, ..sample() })
        };
        let table = lacks(true);
        assert_eq!((number(&table, 0, name), number(&table, 1, name)), (None, Some(1.0)));
        assert_eq!(number(&table, 1, "undelivered_max_ratio"), Some(0.25));
        assert_eq!(number(&table, 1, "completed_count"), Some(2.0));
        let is_shown = |table: &Table| {
            let column = table.column(name).unwrap();
            table.columns[column].display.priority > 0
        };
        assert!(is_shown(&table) && !is_shown(&lacks(false)));
    }

    #[test]
    fn a_latency_is_the_sum_of_its_parts() {
        let table = services(&sample());
        let mean = |name: &str| number(&table, 1, &format!("{name}_mean_ns")).unwrap();
        assert_eq!(mean("latency"), 400.0);
        let parts = ["computation", "nested", "blocked", "descheduled"].map(mean);
        assert_eq!(parts, [150.0, 20.0, 200.0, 30.0]);
        assert_eq!(parts.iter().sum::<f64>(), mean("latency"));
    }

    #[test]
    fn stalls_are_per_instruction_and_of_the_kernel() {
        let table = services(&sample());
        assert_eq!(number(&table, 1, "cpi_ratio"), Some(3.1));
        assert_eq!(number(&table, 1, "fetch_mcpi_ratio"), Some(0.5));
        assert_eq!(number(&table, 1, "data_stall_ratio"), Some(110.0 / 160.0));
        assert_eq!(number(&table, 0, "data_stall_ratio"), None);
    }
}
