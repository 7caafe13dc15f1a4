//! The tables of the experiment `handlers`: pure functions from samples to tables. This module has the columns and the
//! grouping that several tables share. Users' programs read the columns: names and order must not change.

mod agreement;
mod conditions;
mod delays;
mod events;
mod handlers;
mod histograms;
mod misses;
mod napi;
mod rates;
mod senders;
mod victims;

pub(super) use agreement::agreement;
pub(super) use conditions::conditions;
pub(super) use delays::delays;
pub(super) use events::{events, ratios};
pub(crate) use handlers::handlers;
pub(super) use histograms::histograms;
pub(super) use misses::misses;
pub(super) use napi::napi;
pub(super) use senders::senders;
pub(super) use victims::victims;

use attribution::Context;
use record::limits::ROWS_MAX;
use record::{Columns, Format, TableDisplay, column};

use super::sample::{ContextStats, CpuWindow, WindowSample};
use super::samples::ConditionSamples;

/// A row of a context in a condition, on one CPU or on all CPUs.
struct GroupRow<'a> {
    condition: String,
    group: Group<'a>,
}

/// The columns that identify a row: condition, CPU and context.
fn key_columns<'a>() -> Columns<'a, GroupRow<'a>> {
    Columns::all([
        condition_column(50).of_ref(|row: &GroupRow<'_>| &row.condition),
        cpu_column().of(|row: &GroupRow<'_>| row.group.cpu),
        context_columns().of_ref(|row: &GroupRow<'_>| row.group.context),
    ])
}

/// The column of the label of a condition.
fn condition_column<'a>(priority: u8) -> Columns<'a, String> {
    let doc = "Condition: load/rate/stimulus, `ambient` (no load, no stimulus) or `command`.";
    column("condition", doc).priority(priority).key().text(String::clone)
}

/// The column of the CPU; `None` stands for all CPUs.
fn cpu_column<'a>() -> Columns<'a, Option<u32>> {
    column("cpu", "CPU number, or `all` for the sum over the measured CPUs.")
        .priority(95)
        .key()
        .text(|cpu: &Option<u32>| cpu.map_or_else(|| "all".to_owned(), |cpu| cpu.to_string()))
}

/// The columns that identify a context.
fn context_columns<'a>() -> Columns<'a, Context> {
    Columns::all([
        column(
            "kind",
            "Kind of context: irq, irq_thread, vector, softirq, napi, nmi or exception; with --callbacks also hrtimer, \
             timer, work, tasklet and rcu.",
        )
        .priority(75)
        .key()
        .text(|context: &Context| context.kind.label()),
        column("number", "IRQ number, index of the vector, softirq number or NAPI id.")
            .detail()
            .key()
            .uint(|context: &Context| context.number),
        column("name", "Name that the kernel gives to the action, vector, softirq, device or function.")
            .prefixed("number", "kind", "irq")
            .priority(100)
            .key()
            .text(|context: &Context| context.name.clone()),
    ])
}

/// Display hints that all tables with a row per context share.
fn display(title: &str) -> TableDisplay {
    TableDisplay {
        title: title.to_owned(),
        group_by: vec!["condition".to_owned()],
        rows_max: Some(ROWS_MAX),
        ..TableDisplay::default()
    }
}

/// The statistics of one context, on one CPU or on all CPUs together.
struct Group<'a> {
    context: &'a Context,
    /// `None`: all measured CPUs.
    cpu: Option<u32>,
    samples: Vec<&'a ContextStats>,
    /// Sum of the window's lengths over these CPUs, ns.
    cpu_time_ns: u64,
    /// Mean length of the window on these CPUs, ns.
    length_ns: u64,
    /// When the first CPU went offline, since its window opened, ns. `None` if all CPUs stayed online.
    offline_after_ns: Option<u64>,
    /// The start of the window on each measured CPU, by the clock of the peaks.
    starts: Vec<(u32, Option<u64>)>,
}

impl Group<'_> {
    /// End of the longest span, ns since the window opened on the span's CPU. `None` if that start is unknown.
    fn peak_at_ns(&self, peak: impl Fn(&ContextStats) -> stats::Peak) -> Option<u64> {
        let longest = self.samples.iter().max_by_key(|sample| peak(sample))?;
        let start = self.starts.iter().find(|(cpu, _)| *cpu == longest.cpu)?.1?;
        Some(peak(longest).at.saturating_sub(start))
    }
}

/// The groups of a window: for each context, all CPUs together and then each CPU.
fn groups(window: &WindowSample) -> Vec<Group<'_>> {
    let mut contexts: Vec<&Context> = window.contexts.iter().map(|stats| &stats.context).collect();
    contexts.sort_unstable();
    contexts.dedup();
    let starts: Vec<(u32, Option<u64>)> =
        window.windows.iter().map(|cpu| (cpu.cpu, cpu.start_ns)).collect();
    let mut groups = Vec::new();
    for context in contexts {
        let context_stats = || window.contexts.iter().filter(|stats| stats.context == *context);
        groups.push(Group {
            context,
            cpu: None,
            samples: context_stats().collect(),
            cpu_time_ns: window.cpu_time_ns(),
            length_ns: window.length_ns(),
            offline_after_ns: window.windows.iter().filter_map(offline_after_ns).min(),
            starts: starts.clone(),
        });
        for cpu in &window.windows {
            let samples: Vec<_> = context_stats().filter(|stats| stats.cpu == cpu.cpu).collect();
            if !samples.is_empty() {
                groups.push(Group {
                    context,
                    cpu: Some(cpu.cpu),
                    samples,
                    cpu_time_ns: cpu.length_ns,
                    length_ns: cpu.length_ns,
                    offline_after_ns: offline_after_ns(cpu),
                    starts: starts.clone(),
                });
            }
        }
    }
    groups
}

/// The groups of the timing windows of all conditions.
fn group_rows(measured: &[ConditionSamples]) -> impl Iterator<Item = GroupRow<'_>> {
    measured.iter().flat_map(|condition| {
        groups(&condition.timing)
            .into_iter()
            .map(|group| GroupRow { condition: condition.condition.label(), group })
    })
}

/// When the CPU went offline, ns since its window opened. `None` if it stayed online.
fn offline_after_ns(window: &CpuWindow) -> Option<u64> {
    window.went_offline.then_some(window.length_ns)
}

/// The column with the time when a row's CPU went offline. The terminal shows it only if a CPU went offline.
fn offline_column<'a>(measured: &[ConditionSamples]) -> Columns<'a, GroupRow<'a>> {
    let doc = "When the CPU went offline, since its window opened: the row covers the time until then. On `all`: \
               when the first CPU went offline. Absent where every CPU of the row stayed online.";
    let column = column("offline_after_ns", doc).title("offline after").format(Format::Seconds);
    let mut windows = measured.iter().flat_map(|condition| &condition.timing.windows);
    let went_offline = windows.any(|window| window.went_offline);
    let column = if went_offline { column.priority(92) } else { column.detail() };
    column.uint(|row: &GroupRow<'_>| row.group.offline_after_ns)
}

/// `count` per second of `length_ns`. `None` if the length is 0.
fn rate_hz(count: u64, length_ns: u64) -> Option<f64> {
    (length_ns > 0).then(|| count as f64 * 1e9 / length_ns as f64)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn display_hints_name_existing_columns() {
        let overhead = super::super::bench::ProbeOverhead::default();
        let tables = [
            agreement(&[]),
            conditions(&[]),
            delays(&[]),
            events(&[], &[], &overhead),
            ratios(&[], &[], &overhead),
            handlers(&[], &overhead),
            histograms(&[]),
            napi(&[]),
            senders(&[]),
            victims(&[]),
            super::super::Rates::default().table(),
        ];
        for table in tables {
            assert_eq!(table.check_display(), Ok(()), "{}", table.name);
        }
    }
}
