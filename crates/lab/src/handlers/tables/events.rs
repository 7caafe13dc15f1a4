//! Tables `events` and `ratios`: PMU events of each context, and ratios of them.

use std::collections::BTreeMap;

use attribution::Context;
use record::{Column, Kind, Table, Value};

use super::super::bench::{Pass, ProbeOverhead};
use super::super::experiment::ConditionSamples;
use super::super::sample::ContextStats;
use super::{condition_column, context_columns, context_values, display, groups};

/// Mean events per span of one context, each with the pass that counted it, by event name.
type Means = BTreeMap<String, (usize, f64)>;

/// One row per context and event, over all CPUs.
pub fn events(measured: &[ConditionSamples], passes: &[Pass], probes: &ProbeOverhead) -> Table {
    let mut columns = vec![condition_column()];
    columns.extend(context_columns());
    columns.extend([
        Column::new("event", Kind::Text, "PMU event, by its name in perf.").priority(95),
        Column::new(
            "pass",
            Kind::Uint,
            "Pass in which the event was counted; each pass is a window of its own.",
        )
        .priority(20),
        Column::new("span_count", Kind::Uint, "Spans whose counters were read at entry and exit.")
            .title("spans")
            .priority(70),
        Column::new(
            "self_total",
            Kind::Uint,
            "Events of the spans without those of nested spans, read overhead included.",
        )
        .priority(30),
        Column::new(
            "inclusive_total",
            Kind::Uint,
            "Events of the spans with those of nested spans, read overhead included.",
        )
        .detail(),
        Column::new(
            "read_overhead_mean",
            Kind::Real,
            "Events that reading the counters adds to a span, measured in this run.",
        )
        .title("read overhead")
        .priority(50),
        Column::new(
            "self_mean",
            Kind::Real,
            "Mean events per span: self_total over span_count, minus read_overhead_mean; negative where that \
             exceeds what was counted.",
        )
        .title("mean per span")
        .priority(90),
    ]);
    let doc = "PMU events of each context, all CPUs together.";
    let display =
        display("PMU events of each context, all CPUs together; means without the read overhead");
    let mut table = Table::new("events", doc, columns).displayed(display);
    for one in measured {
        for (pass, window) in &one.events {
            for group in groups(window).iter().filter(|group| group.cpu.is_none()) {
                for (at, event) in passes[*pass].events.iter().enumerate() {
                    let sum = |pick: fn(&super::super::EventSums) -> &Vec<u64>| -> u64 {
                        group.samples.iter().filter_map(|s| pick(&s.events).get(at)).sum()
                    };
                    let spans: u64 = group.samples.iter().map(|s| s.events.spans).sum();
                    if spans == 0 {
                        continue;
                    }
                    let own = sum(|events| &events.own);
                    let overhead = overhead(probes, *pass, at, &group.samples);
                    let mut row: Vec<Value> = vec![one.condition.label().into()];
                    row.extend(context_values(group.context));
                    row.extend([
                        event.clone().into(),
                        (*pass as u64).into(),
                        spans.into(),
                        own.into(),
                        sum(|events| &events.inclusive).into(),
                        overhead.into(),
                        mean(own, spans, overhead).into(),
                    ]);
                    table.push(row);
                }
            }
        }
    }
    table
}

/// Events that reading the counters adds to a span of these.
fn overhead(
    probes: &ProbeOverhead,
    pass: usize,
    event: usize,
    samples: &[&ContextStats],
) -> Option<f64> {
    let of_all = probes.events.get(pass).and_then(|pass| pass.get(event).copied());
    let spans: u64 = samples.iter().map(|sample| sample.events.spans).sum();
    let added = samples.iter().map(|sample| sample.events.added(event, of_all));
    (spans > 0).then(|| added.sum::<Option<f64>>().map(|added| added / spans as f64)).flatten()
}

fn mean(sum: u64, spans: u64, overhead: Option<f64>) -> Option<f64> {
    (spans > 0).then(|| sum as f64 / spans as f64 - overhead.unwrap_or(0.0))
}

/// Derived metrics: name, title, numerator, denominator, doc (paper, sections 4.3 to 4.6).
const RATIOS: [(&str, &str, &str, &str, &str); 8] = [
    ("instructions_per_cycle", "IPC", "instructions", "cycles", "Instructions per cycle."),
    (
        "retired_ratio",
        "retired",
        "instructions",
        "issued",
        "Retired instructions over issued micro-operations (Intel).",
    ),
    (
        "branch_miss_ratio",
        "branch miss",
        "branch-misses",
        "branches",
        "Mispredicted branches over retired branches.",
    ),
    (
        "l1i_miss_ratio",
        "L1I miss",
        "L1-icache-load-misses",
        "L1-icache-loads",
        "L1 instruction cache misses over accesses.",
    ),
    (
        "l1d_miss_ratio",
        "L1D miss",
        "L1-dcache-load-misses",
        "L1-dcache-loads",
        "L1 data cache misses over accesses.",
    ),
    (
        "llc_miss_ratio",
        "LLC miss",
        "LLC-load-misses",
        "LLC-loads",
        "Last-level cache misses over accesses.",
    ),
    (
        "dtlb_miss_ratio",
        "D-TLB miss",
        "dTLB-load-misses",
        "dTLB-loads",
        "Data TLB misses over accesses.",
    ),
    (
        "itlb_miss_ratio",
        "I-TLB miss",
        "iTLB-load-misses",
        "iTLB-loads",
        "Instruction TLB misses over accesses.",
    ),
];

/// One row per context: the ratios of which both events were counted.
pub fn ratios(measured: &[ConditionSamples], passes: &[Pass], probes: &ProbeOverhead) -> Table {
    let mut columns = vec![condition_column()];
    columns.extend(context_columns());
    let column = |(at, (name, title, _, _, doc)): (u8, &(&str, &str, &str, &str, &str))| {
        Column::new(name, Kind::Real, doc).title(title).priority(90 - at)
    };
    columns.extend((0..).zip(&RATIOS).map(column));
    columns.push(
        Column::new(
            "two_window_ratios",
            Kind::Text,
            "Ratios whose numerator and denominator were counted in different windows, so in different spans.",
        )
        .detail(),
    );
    let doc = "Ratios of mean events per span, all CPUs together.";
    let mut table = Table::new("ratios", doc, columns).displayed(display(""));
    for one in measured {
        let mut sources: BTreeMap<&Context, Means> = BTreeMap::new();
        for (pass, window) in &one.events {
            for group in groups(window).into_iter().filter(|group| group.cpu.is_none()) {
                let spans: u64 = group.samples.iter().map(|s| s.events.spans).sum();
                for (at, event) in passes[*pass].events.iter().enumerate() {
                    let own = group.samples.iter().filter_map(|s| s.events.own.get(at)).sum();
                    let overhead = overhead(probes, *pass, at, &group.samples);
                    if let Some(mean) = mean(own, spans, overhead) {
                        sources
                            .entry(group.context)
                            .or_default()
                            .insert(event.clone(), (*pass, mean));
                    }
                }
            }
        }
        for (context, means) in sources {
            let ratios = RATIOS.map(|(_, _, top, bottom, _)| ratio(&means, top, bottom));
            if ratios.iter().all(Option::is_none) {
                continue; // none of these ratios' events were asked for
            }
            let mut row: Vec<Value> = vec![one.condition.label().into()];
            row.extend(context_values(context));
            row.extend(ratios.map(Value::from));
            let of_two =
                RATIOS.iter().filter(|(_, _, top, bottom, _)| of_two_windows(&means, top, bottom));
            let of_two: Vec<&str> = of_two.map(|(name, ..)| *name).collect();
            row.push(Some(of_two.join(" ")).filter(|names| !names.is_empty()).into());
            table.push(row);
        }
    }
    table
}

fn ratio(means: &Means, top: &str, bottom: &str) -> Option<f64> {
    let (_, whole) = means.get(bottom).copied().filter(|(_, whole)| *whole > 0.0)?;
    Some(means.get(top)?.1 / whole)
}

fn of_two_windows(means: &Means, top: &str, bottom: &str) -> bool {
    means.get(top).zip(means.get(bottom)).is_some_and(|(top, bottom)| top.0 != bottom.0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_mean_below_what_reading_adds_is_negative() {
        assert_eq!(mean(100, 10, Some(12.5)), Some(-2.5));
        assert_eq!(mean(100, 10, None), Some(10.0));
        assert_eq!(mean(0, 0, None), None);
    }

    #[test]
    fn a_ratio_says_whether_its_events_are_of_one_window() {
        let means: Means = [("a", (1, 6.0)), ("b", (1, 3.0)), ("c", (2, 4.0)), ("zero", (2, 0.0))]
            .map(|(name, mean)| (name.to_owned(), mean))
            .into();
        assert_eq!((ratio(&means, "a", "b"), of_two_windows(&means, "a", "b")), (Some(2.0), false));
        assert_eq!((ratio(&means, "a", "c"), of_two_windows(&means, "a", "c")), (Some(1.5), true));
        assert_eq!(ratio(&means, "a", "zero"), None);
        assert_eq!((ratio(&means, "a", "d"), of_two_windows(&means, "a", "d")), (None, false));
    }
}
