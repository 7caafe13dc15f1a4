//! Table `rates`: rate and CPU time of each context in the interval between two readings; table `delays`: how long work
//! waited. `irqlab watch` prints them for programs. Users' programs read the columns: names and order must not change.

use record::{Columns, Format, RowFilter, Table, TableDisplay, column};

use super::super::delay_rates::DelayRates;
use super::super::delays::DELAYS;
use super::super::rates::{ContextRates, Rates};
use super::delays::awake_column;
use super::{context_columns, cpu_column};

fn columns<'a>() -> Columns<'a, ContextRates> {
    let time = |name, doc| column(name, doc).format(Format::Microseconds).cost();
    let mean = time(
        "self_mean_ns",
        "Mean self time of a span; the probe overhead within the span is subtracted.",
    )
    .shown_as("mean", 80)
    // The error of the overhead does not show how means change from interval to interval, so comparisons must not use it.
    .plus_minus_error("probe_overhead_mean_ci95_ns")
    .below_limit("self_mean_below_limit");
    Columns::all([
        cpu_column().of_ref(|rates: &ContextRates| &rates.cpu),
        context_columns().of_ref(|rates: &ContextRates| &rates.context),
        column("count", "Spans that ended in the interval, polls, or faults.")
            .priority(60)
            .uint(|rates: &ContextRates| rates.count),
        column("rate_hz", "count per second.")
            .priority(90)
            .real(|rates: &ContextRates| rates.rate_hz),
        column(
            "self_cpu_ratio",
            "Share of the CPU time of the row's CPUs: self time, without nested spans. count times self_mean_ns; below \
             the detection limit if that is.",
        )
        .shown_as("CPU", 85)
        .cpu_share()
        .plus_minus_error("self_cpu_error_ratio")
        .below_limit("self_mean_below_limit")
        .real(|rates: &ContextRates| rates.times.map(|times| times.cpu_ratio)),
        mean.real(|rates: &ContextRates| rates.times.and_then(|times| times.mean_ns)),
        time(
            "self_p99_ns",
            "99 % of the spans took at most this time; exact within 1/16; absent with fewer \
             than 100 spans.",
        )
        .shown_as("p99", 50)
        .uint(|rates: &ContextRates| rates.times.and_then(|times| times.p99_ns)),
        time(
            "self_max_ns",
            "The longest span of the interval: exact if no earlier span of the window was \
             longer, otherwise at most 1/16 too long.",
        )
        .shown_as("max", 75)
        .uint(|rates: &ContextRates| rates.times.and_then(|times| times.max_ns)),
        time("self_max_since_open_ns", "The longest span since the window opened; exact.")
            .detail()
            .uint(|rates: &ContextRates| rates.times.and_then(|times| times.max_since_open_ns)),
        column(
            "self_cpu_error_ratio",
            "Half width of the 95 % confidence interval of the probe overhead that was subtracted from the spans, of the CPU \
             time of the row's CPUs: the error of self_cpu_ratio.",
        )
        .detail()
        .real(|rates: &ContextRates| rates.times.and_then(|times| times.cpu_error_ratio)),
        column(
            "probe_overhead_mean_ci95_ns",
            "Half width of the 95 % confidence interval of the probe overhead that was subtracted from a \
             span: the error of self_mean_ns.",
        )
        .detail()
        .real(|rates: &ContextRates| rates.times.and_then(|times| times.overhead_error_ns)),
        column(
            "self_mean_below_limit",
            "Whether self_mean_ns is below the detection limit, probe_overhead_mean_ci95_ns. The sum of both \
             is an upper bound.",
        )
        .detail()
        .bool(|rates: &ContextRates| {
            let times = rates.times.filter(|times| times.overhead_error_ns.is_some())?;
            Some(times.mean_bound_ns().is_some())
        }),
    ])
}

fn delay_columns<'a>() -> Columns<'a, DelayRates> {
    let time = |name, doc| column(name, doc).format(Format::Microseconds).cost();
    Columns::all([
        cpu_column().of_ref(|delays: &DelayRates| &delays.cpu),
        context_columns().of_ref(|delays: &DelayRates| &delays.context),
        column("count", "Delays that ended in the interval, on the row's CPU.")
            .priority(60)
            .uint(|delays: &DelayRates| delays.count),
        column("rate_hz", "count per second.")
            .priority(70)
            .real(|delays: &DelayRates| delays.rate_hz),
        time("delay_mean_ns", "Mean delay. Nothing is subtracted for probes.")
            .shown_as("mean", 90)
            .real(|delays: &DelayRates| delays.mean_ns),
        time(
            "delay_p99_ns",
            "99th percentile of the delays; within 1/16; absent below 100 delays.",
        )
        .shown_as("p99", 80)
        .uint(|delays: &DelayRates| delays.p99_ns),
        time(
            "delay_max_ns",
            "The longest delay of the interval: exact if no earlier delay of the window was longer, otherwise at most \
             1/16 too long.",
        )
        .shown_as("max", 85)
        .uint(|delays: &DelayRates| delays.max_ns),
        time("delay_max_since_open_ns", "The longest delay since the window opened; exact.")
            .detail()
            .uint(|delays: &DelayRates| delays.max_since_open_ns),
        column(
            "unjoined_end_count",
            "Runs without a delay: no event in the window that can be joined to the run began it. No other column \
             includes them.",
        )
        .shown_as("unjoined", 50)
        .uint(|delays: &DelayRates| delays.unjoined_end_count),
        column("begins", "The event that begins the delay.")
            .detail()
            .text(|delays: &DelayRates| delays.method.begins),
        column("ends", "The event that ends the delay.")
            .detail()
            .text(|delays: &DelayRates| delays.method.ends),
        awake_column().of(|delays: &DelayRates| delays.awake_count),
    ])
}

impl Rates {
    /// Table `delays`: a row for each kind of work that ran in the interval, on all CPUs together and on each CPU. `None`
    /// if delays are not measured.
    #[must_use]
    pub fn delay_table(&self) -> Option<Table> {
        let ran = |delays: &&DelayRates| {
            delays.count > 0 || delays.unjoined_end_count > 0 || delays.awake_count > Some(0)
        };
        let rows = self.delays.as_ref()?.iter().filter(ran);
        let doc = "One row per softirq, thread, and function of work items and timers that ran in the interval, and CPU, and \
                   one for the sum over the CPUs (`all`).";
        let display = TableDisplay {
            title: "time that softirqs, work items, timers and threads of interrupts wait for their run"
                .to_owned(),
            sort_by: Some("count".to_owned()),
            filter: Some(RowFilter::sums_over_cpus()),
            rows_max: Some(record::limits::ROWS_MAX),
            ..TableDisplay::default()
        };
        Some(delay_columns().table(DELAYS, doc, rows).displayed(display))
    }

    /// Table `rates`: a row for each context that occurred in the interval, on all CPUs together and on each CPU.
    #[must_use]
    pub fn table(&self) -> Table {
        let doc = "One row per interrupt context that came in the interval, and CPU, and one for the \
             sum over the CPUs (`all`).";
        let display = TableDisplay {
            title: "rate and CPU time of each interrupt context in the interval".to_owned(),
            headline: "largest: {kind} {name}, {self_cpu_ratio} of CPU time, {rate_hz}".to_owned(),
            sort_by: Some("self_cpu_ratio".to_owned()),
            filter: Some(RowFilter::sums_over_cpus()),
            rows_max: Some(record::limits::ROWS_MAX),
            notes: vec![
                "±: the error of the subtracted probe overhead. How much single spans differ is not in it."
                    .to_owned(),
            ],
            ..TableDisplay::default()
        };
        let occurred = self.contexts.iter().filter(|context| context.count > 0);
        columns().table("rates", doc, occurred).displayed(display)
    }
}
