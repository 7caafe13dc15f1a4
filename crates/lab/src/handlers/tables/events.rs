//! Tables `events` and `ratios`: what the PMU counted in each source, and what follows from it.

use std::collections::BTreeMap;

use attribution::Context;
use record::{Column, Kind, Table, Value};

use super::super::bench::{BenchFacts, Pass};
use super::super::experiment::Measured;
use super::super::sample::SourceSample;
use super::{context_columns, context_values, groups};

/// Mean events per span of one source, by event name.
type Means = BTreeMap<String, f64>;

/// One row a source and event, over all CPUs.
pub fn events(measured: &[Measured], passes: &[Pass], facts: &BenchFacts) -> Table {
    let mut columns = vec![Column::new("condition", Kind::Text, "Condition.")];
    columns.extend(context_columns());
    columns.extend([
        Column::new("event", Kind::Text, "Event, as perf names it."),
        Column::new(
            "pass",
            Kind::Uint,
            "Pass in which it was counted; a pass is a window of its own.",
        ),
        Column::new("span_count", Kind::Uint, "Spans whose events were read at entry and exit."),
        Column::new(
            "self_sum",
            Kind::Uint,
            "Sum over the spans less the spans nested in them, as read.",
        ),
        Column::new("incl_sum", Kind::Uint, "Sum over the spans, as read."),
        Column::new(
            "read_overhead_per_span",
            Kind::Real,
            "What reading adds to a span, measured in this run.",
        ),
        Column::new(
            "self_mean",
            Kind::Real,
            "Mean per span, the overhead subtracted; not below 0.",
        ),
    ]);
    let mut table = Table::new("events", "PMU events of each source, all CPUs together.", columns);
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
                    let overhead = overhead(facts, *pass, at, &group.samples);
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

/// What reading adds to a span of these.
fn overhead(
    facts: &BenchFacts,
    pass: usize,
    event: usize,
    samples: &[&SourceSample],
) -> Option<f64> {
    let of_all = facts.event_overheads.get(pass).and_then(|pass| pass.get(event).copied());
    let spans: u64 = samples.iter().map(|sample| sample.events.spans).sum();
    let added = samples.iter().map(|sample| sample.events.added(event, of_all));
    (spans > 0).then(|| added.sum::<Option<f64>>().map(|added| added / spans as f64)).flatten()
}

fn mean(sum: u64, spans: u64, overhead: Option<f64>) -> Option<f64> {
    (spans > 0).then(|| (sum as f64 / spans as f64 - overhead.unwrap_or(0.0)).max(0.0))
}

/// Derived metrics: name, numerator, denominator, doc (paper, sections 4.3 to 4.6).
const RATIOS: [(&str, &str, &str, &str); 8] = [
    ("ipc_ratio", "instructions", "cycles", "Instructions per cycle."),
    ("completion_ratio", "instructions", "issued", "Retired over issued or decoded operations."),
    ("branch_miss_ratio", "branch-misses", "branches", "Mispredicted over retired branches."),
    ("l1i_miss_ratio", "L1-icache-load-misses", "L1-icache-loads", "L1I misses over accesses."),
    ("l1d_miss_ratio", "L1-dcache-load-misses", "L1-dcache-loads", "L1D misses over accesses."),
    ("llc_miss_ratio", "LLC-load-misses", "LLC-loads", "Last-level misses over accesses."),
    ("dtlb_miss_ratio", "dTLB-load-misses", "dTLB-loads", "D-TLB misses over accesses."),
    ("itlb_miss_ratio", "iTLB-load-misses", "iTLB-loads", "I-TLB misses over accesses."),
];

/// One row a source: the ratios whose both events were counted.
pub fn ratios(measured: &[Measured], passes: &[Pass], facts: &BenchFacts) -> Table {
    let mut columns = vec![Column::new("condition", Kind::Text, "Condition.")];
    columns.extend(context_columns());
    columns.extend(RATIOS.iter().map(|(name, _, _, doc)| Column::new(name, Kind::Real, doc)));
    let mut table =
        Table::new("ratios", "Ratios of mean events per span, all CPUs together.", columns);
    for one in measured {
        let mut sources: BTreeMap<&Context, Means> = BTreeMap::new();
        for (pass, window) in &one.events {
            for group in groups(window).into_iter().filter(|group| group.cpu.is_none()) {
                let spans: u64 = group.samples.iter().map(|s| s.events.spans).sum();
                for (at, event) in passes[*pass].events.iter().enumerate() {
                    let own = group.samples.iter().filter_map(|s| s.events.own.get(at)).sum();
                    let overhead = overhead(facts, *pass, at, &group.samples);
                    if let Some(mean) = mean(own, spans, overhead) {
                        sources.entry(group.context).or_default().insert(event.clone(), mean);
                    }
                }
            }
        }
        for (context, means) in sources {
            let ratios = RATIOS.map(|(_, top, bottom, _)| ratio(&means, top, bottom));
            if ratios.iter().all(Option::is_none) {
                continue; // other events than a ratio's were asked for
            }
            let mut row: Vec<Value> = vec![one.condition.label().into()];
            row.extend(context_values(context));
            row.extend(ratios.map(Value::from));
            table.push(row);
        }
    }
    table
}

fn ratio(means: &Means, top: &str, bottom: &str) -> Option<f64> {
    let whole = means.get(bottom).copied().filter(|whole| *whole > 0.0)?;
    Some(means.get(top)? / whole)
}
