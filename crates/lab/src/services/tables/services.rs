//! Table `services`: the time, requests and stalls of each service. Users' programs read the
//! columns: names and order must not change.

use record::limits::ROWS_MAX;
use record::{Columns, Format, Table, TableDisplay, column};
use stats::Distribution;

use super::super::class::Class;
use super::super::counters::{CYCLES, DATA_STALL, FETCH_STALL, INSTRUCTIONS};
use super::super::sample::{ServiceStats, ServicesSample, Times, Undelivered};
use super::modes::REPETITIONS_COUNT;
use super::{is_kernel, key_columns, ratio};
use crate::quantiles::{interval_columns, interval_link};

/// Quantiles: suffix of the column, and share in units of 1/100,000.
const QUANTILES: [(&str, u32); 2] = [("p50", 50_000), ("p99", 99_000)];

/// A note of the table: how much of a workload was measured. Runs that measure a whole command or workload lack the setting,
/// and do not show the note.
const UNTIL_NOTE: &str =
    "of a longer workload only the first part was measured, up to {settings.until} (--until)";

/// More unknown time than this ratio of the kernel's and the unknown time has a warning.
const UNKNOWN_RATIO: f64 = 0.01;

/// A warning if much time may be the kernel's or not: `kernel_ratio` is over the known time of the kernel only. `None`
/// with little unknown time.
pub(in super::super) fn unknown_time(sample: &ServicesSample) -> Option<String> {
    let unknown = sample.ticks(|service| service.class == Class::Unknown)?;
    let known = sample.ticks(is_kernel).unwrap_or(0);
    let share = ratio(Some(unknown), Some(known + unknown))?;
    (share > UNKNOWN_RATIO).then(|| {
        format!(
            "kernel_ratio is over the time of known services: {:.1} % of the time that may be the kernel's has no known \
             service, so a share of {:.1} % to 100 % of all of the kernel's time is shown as 100 %",
            100.0 * share,
            100.0 * (1.0 - share)
        )
    })
}

fn columns(sample: &ServicesSample) -> Columns<'_, ServiceStats> {
    let kernel_ticks = sample.ticks(is_kernel);
    let share_of_kernel = move |service: &ServiceStats| {
        if service.class.is_kernel() { ratio(service.self_ticks, kernel_ticks) } else { None }
    };
    let ns = |ticks: Option<u64>| ticks.map(|ticks| sample.ns_of(ticks as f64));
    let seconds = sample.window_ns as f64 / 1e9;
    let rate_hz = move |service: &ServiceStats| {
        let requests = service.requests?;
        (seconds > 0.0).then(|| requests as f64 / seconds)
    };
    let mean_ns = |service: &ServiceStats, ticks: fn(&Times) -> Option<u64>| {
        let times = service.times.as_ref().filter(|times| times.latency.count > 0)?;
        Some(sample.ns_of(ticks(times)? as f64 / times.latency.count as f64))
    };
    let per_instruction = |service: &ServiceStats, counter| {
        ratio(sample.count(service, counter), sample.count(service, INSTRUCTIONS))
    };
    let stalls = sample.sum(FETCH_STALL, is_kernel).zip(sample.sum(DATA_STALL, is_kernel));
    let kernel_stalls = stalls.map(|(fetch, data)| fetch + data);
    let share_of_stalls = move |service: &ServiceStats, counter| {
        if service.class.is_kernel() {
            ratio(sample.count(service, counter), kernel_stalls)
        } else {
            None
        }
    };
    let counters = sample.counters.iter().enumerate().map(|(index, name)| {
        let mut doc = format!("{name} of the service itself, by the model.");
        if name == INSTRUCTIONS {
            doc = format!("{doc} {REPETITIONS_COUNT}");
        }
        column(&format!("self_{name}"), &doc)
            .detail()
            .uint(move |service: &ServiceStats| service.counters[index])
    });
    Columns::all([
        key_columns().of(ServiceStats::service_name),
        column(
            "kernel_ratio",
            "Share of the kernel's time: self_total_ns over that of all rows but user, page walk, \
             unknown, probes and idle. Absent in these rows.",
        )
        .shown_as("% kernel", 97)
        .real(move |service: &ServiceStats| share_of_kernel(service)),
        column("time_ratio", "Share of the time of all CPUs.")
            .shown_as("% time", 96)
            .real(|service: &ServiceStats| ratio(service.self_ticks, Some(sample.window_ticks))),
        column(
            "self_total_ns",
            "Time of the service itself: without interrupts, faults, other services, other tasks \
             and page walks.",
        )
        .title("time")
        .format(Format::Milliseconds)
        .priority(80)
        .real(move |service: &ServiceStats| ns(service.self_ticks)),
        column(
            "self_total_cycles",
            "self_total_ns in cycles; the rows add up exactly to the time of all CPUs.",
        )
        .detail()
        .uint(
            |service: &ServiceStats| {
                if sample.has_cycles() { service.self_ticks } else { None }
            },
        ),
        column(
            "page_walk_total_ns",
            "Time of page walks for the service; self_total_ns does not include it, the rows of \
             class page walk do.",
        )
        .title("walks")
        .format(Format::Milliseconds)
        .priority(40)
        .real(move |service: &ServiceStats| ns(service.page_walks())),
        column(
            "request_count",
            "Requests that started in the window; in rows of class page walk: page walks.",
        )
        .shown_as("requests", 95)
        .uint(|service: &ServiceStats| service.requests),
        column("request_rate_hz", "Requests per second of the window.")
            .shown_as("rate", 60)
            .real(move |service: &ServiceStats| rate_hz(service)),
        undelivered_columns(sample),
        column(
            "completed_count",
            "Requests that started and completed in the window, without those of unseen_count. Means and quantiles are \
             over these.",
        )
        .detail()
        .uint(|service: &ServiceStats| service.times.as_ref().map(|times| times.latency.count)),
        unseen_columns(sample),
        column(
            "computation_mean_ns",
            "Mean time of the service itself in a completed request, page walks included.",
        )
        .title("computation")
        .format(Format::Microseconds)
        .cost()
        .priority(94)
        .real(move |service: &ServiceStats| mean_ns(service, |times| times.computation_ticks)),
        column(
            "latency_mean_ns",
            "Mean time from start to end of a request: computation, nested, blocked and \
             descheduled together.",
        )
        .title("latency")
        .format(Format::Microseconds)
        .cost()
        .priority(93)
        .real(move |service: &ServiceStats| mean_ns(service, |times| Some(times.latency.sum))),
        column(
            "nested_mean_ns",
            "Mean time of interrupts, faults and other services during a request, on its task.",
        )
        .title("nested")
        .format(Format::Microseconds)
        .priority(50)
        .real(move |service: &ServiceStats| mean_ns(service, nested_ticks)),
        column(
            "blocked_mean_ns",
            "Mean time per request that the task was blocked, until its wake-up.",
        )
        .title("blocked")
        .format(Format::Microseconds)
        .priority(88)
        .real(move |service: &ServiceStats| mean_ns(service, |times| times.blocked_ticks)),
        column(
            "descheduled_mean_ns",
            "Mean time per request that the task was runnable but did not run.",
        )
        .title("descheduled")
        .format(Format::Microseconds)
        .priority(87)
        .real(move |service: &ServiceStats| mean_ns(service, |times| times.descheduled_ticks)),
        quantile_columns(sample, "latency").of_optional(|service: &ServiceStats| {
            service.times.as_ref().map(|times| &times.latency)
        }),
        quantile_columns(sample, "computation")
            .of_optional(|service: &ServiceStats| service.times.as_ref()?.computation.as_ref()),
        column("cpi_ratio", &format!("Cycles per instruction. {REPETITIONS_COUNT}"))
            .title("CPI")
            .format(Format::Factor)
            .priority(92)
            .real(move |service: &ServiceStats| per_instruction(service, CYCLES)),
        column(
            "fetch_mcpi_ratio",
            "Cycles that the processor waited for instructions, per instruction. Instructions are those of cpi_ratio.",
        )
        .title("i-MCPI")
        .format(Format::Factor)
        .priority(91)
        .real(move |service: &ServiceStats| per_instruction(service, FETCH_STALL)),
        column(
            "data_mcpi_ratio",
            "Cycles that the processor waited for data, per instruction. Instructions are those of cpi_ratio.",
        )
            .title("d-MCPI")
            .format(Format::Factor)
            .priority(90)
            .real(move |service: &ServiceStats| per_instruction(service, DATA_STALL)),
        column(
            "fetch_stall_ratio",
            "This service's waits for instructions, as a share of all memory stalls of the kernel.",
        )
        .shown_as("% stall (I)", 65)
        .real(move |service: &ServiceStats| share_of_stalls(service, FETCH_STALL)),
        column(
            "data_stall_ratio",
            "This service's waits for data, as a share of all memory stalls of the kernel.",
        )
        .shown_as("% stall (D)", 64)
        .real(move |service: &ServiceStats| share_of_stalls(service, DATA_STALL)),
    ])
    .and(counters)
}

/// Ticks of nested services: the rest of the latency after computation, blocked and descheduled time. `None` if the
/// computation is unknown.
fn nested_ticks(times: &Times) -> Option<u64> {
    let off_cpu = times.blocked_ticks.unwrap_or(0) + times.descheduled_ticks.unwrap_or(0);
    times.latency.sum.checked_sub(times.computation_ticks? + off_cpu)
}

/// The columns of the quantiles of a time, each with its interval. `time`: `latency` or `computation`.
fn quantile_columns<'a>(sample: &'a ServicesSample, time: &str) -> Columns<'a, Distribution> {
    let ns = |ticks: Option<u64>| ticks.map(|ticks| sample.whole_ns(ticks));
    Columns::all(QUANTILES.into_iter().flat_map(|(suffix, share)| {
        let percent = f64::from(share) / 1e3;
        let doc = format!(
            "{percent} % of the completed requests had at most this {time}; exact within \
             1/16; absent where fewer than one request is expected above it."
        );
        let name = format!("{time}_{suffix}_ns");
        let quantile =
            column(&name, &doc).interval(interval_link(&name)).format(Format::Microseconds);
        let is_shown = name == "latency_p99_ns";
        let quantile = if is_shown { quantile.shown_as("p99", 70) } else { quantile.detail() };
        let interval = interval_columns(&name).of(move |distribution: &Distribution| {
            let (low, high) = distribution.quantile_interval(share);
            (ns(low), ns(high))
        });
        let value = move |distribution: &Distribution| ns(distribution.quantile(share));
        [quantile.uint(value), interval]
    }))
}

/// The column with requests without times. Only benches that can miss a switch have it.
fn unseen_columns(sample: &ServicesSample) -> Columns<'_, ServiceStats> {
    let unseen = |service: &ServiceStats| service.times.as_ref()?.unseen;
    if sample.services.iter().all(|service| unseen(service).is_none()) {
        return Columns::all([]);
    }
    let doc = "Completed requests whose times are not known, because a switch of their task was not handed to BPF programs.";
    column("unseen_count", doc).detail().uint(unseen)
}

/// The columns of the requests that a row may lack. Only the live bench has them: its kernel may not call a probe for
/// each interrupt. The terminal shows them only if requests are missing.
fn undelivered_columns(sample: &ServicesSample) -> Columns<'_, ServiceStats> {
    if sample.undelivered.is_empty() {
        return Columns::all([]);
    }
    let count = column(
        "undelivered_max_count",
        "At most how many requests the kernel counted and did not hand to the probes: they are in no other column. \
         The kernel counts both function calls together; each of those rows may lack all that is missing. Absent \
         where the kernel has no counter.",
    )
    .title("undelivered ≤");
    let is_incomplete = sample.undelivered.iter().any(|undelivered| undelivered.is_beyond_edges);
    let share = column(
        "undelivered_max_ratio",
        "undelivered_max_count as a share of itself and request_count: times, means and quantiles are of the others.",
    );
    let count = if is_incomplete { count.priority(90) } else { count.detail() };
    let max = |service: &ServiceStats| {
        let mut undelivered = sample.undelivered.iter();
        let is_same_service =
            |row: &&Undelivered| row.class == service.class && row.service == service.name;
        undelivered.find(is_same_service).map(|row| row.max)
    };
    let max_ratio = move |service: &ServiceStats| {
        let requests_max = max(service)?.saturating_add(service.requests?);
        ratio(max(service), Some(requests_max))
    };
    Columns::all([count.uint(max), share.detail().real(max_ratio)])
}

/// One row for each service, including user mode and idle.
pub(in super::super) fn services(sample: &ServicesSample) -> Table {
    let doc = "What each service of the kernel took. The times of the services themselves, user \
               mode and idle add up to the time of all CPUs.";
    let display = TableDisplay {
        headline: "largest: {service}, {time_ratio} of the time".to_owned(),
        sort_by: Some("self_total_ns".to_owned()),
        rows_max: Some(ROWS_MAX),
        notes: vec![UNTIL_NOTE.to_owned()],
        ..TableDisplay::default()
    };
    columns(sample).table("services", doc, &sample.services).displayed(display)
}

#[cfg(test)]
mod tests {
    use record::Value;

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
