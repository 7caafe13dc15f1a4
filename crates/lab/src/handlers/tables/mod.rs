//! The tables of the experiment, from the windows.

mod agreement;
mod conditions;
mod events;
mod handlers;
mod histograms;
mod napi;

pub(super) use agreement::agreement;
pub(super) use conditions::conditions;
pub(super) use events::{events, ratios};
pub(super) use handlers::handlers;
pub(super) use histograms::histograms;
pub(super) use napi::napi;

use attribution::Context;
use record::{Column, Kind, Value};

use super::sample::{SourceSample, WindowSample};

/// The columns that say which source of which condition on which CPU a row is of.
fn key_columns() -> Vec<Column> {
    let mut columns = vec![
        Column::new(
            "condition",
            Kind::Text,
            "Condition: load/rate/source, `as found` or `command`.",
        ),
        Column::new("cpu", Kind::Text, "CPU number, or `all` for the sum over the measured CPUs."),
    ];
    columns.extend(context_columns());
    columns
}

fn context_columns() -> Vec<Column> {
    vec![
        Column::new("kind", Kind::Text, "irq, vector, softirq, napi, nmi or exception."),
        Column::new("number", Kind::Uint, "IRQ line, vector position, softirq number or NAPI id."),
        Column::new(
            "name",
            Kind::Text,
            "Action, vector, softirq or device, as the kernel names it.",
        ),
    ]
}

fn key_values(condition: &str, group: &Group<'_>) -> Vec<Value> {
    let cpu = group.cpu.map_or_else(|| "all".to_owned(), |cpu| cpu.to_string());
    let mut values = vec![condition.into(), cpu.into()];
    values.extend(context_values(group.context));
    values
}

fn context_values(context: &Context) -> [Value; 3] {
    [context.kind.label().into(), u64::from(context.number).into(), context.name.clone().into()]
}

/// The samples of one source: of one CPU, or of all of them.
struct Group<'a> {
    context: &'a Context,
    /// `None`: all measured CPUs.
    cpu: Option<u32>,
    samples: Vec<&'a SourceSample>,
    /// Open time of these CPUs together, ns.
    cpu_time_ns: u64,
    /// Open time of the window, ns.
    length_ns: u64,
    /// When it opened on each CPU.
    starts: Vec<(u32, Option<u64>)>,
}

impl Group<'_> {
    /// Time since the window opened on the CPU of the sample that holds the peak.
    fn peak_at_ns(&self, peak: impl Fn(&SourceSample) -> stats::Peak) -> Option<u64> {
        let top = self.samples.iter().max_by_key(|sample| peak(sample))?;
        let start = self.starts.iter().find(|(cpu, _)| *cpu == top.cpu)?.1?;
        Some(peak(top).at.saturating_sub(start))
    }
}

/// Every source of a window, summed over its CPUs and then CPU by CPU, in table order.
fn groups(window: &WindowSample) -> Vec<Group<'_>> {
    let mut contexts: Vec<&Context> = window.sources.iter().map(|source| &source.context).collect();
    contexts.sort_unstable();
    contexts.dedup();
    let starts: Vec<(u32, Option<u64>)> =
        window.windows.iter().map(|w| (w.cpu, w.start_ns)).collect();
    let mut groups = Vec::new();
    for context in contexts {
        let of_context = || window.sources.iter().filter(|source| source.context == *context);
        groups.push(Group {
            context,
            cpu: None,
            samples: of_context().collect(),
            cpu_time_ns: window.cpu_time_ns(),
            length_ns: window.length_ns(),
            starts: starts.clone(),
        });
        for cpu in &window.windows {
            let samples: Vec<_> = of_context().filter(|source| source.cpu == cpu.cpu).collect();
            if !samples.is_empty() {
                groups.push(Group {
                    context,
                    cpu: Some(cpu.cpu),
                    samples,
                    cpu_time_ns: cpu.length_ns,
                    length_ns: cpu.length_ns,
                    starts: starts.clone(),
                });
            }
        }
    }
    groups
}

/// `count` per second of `length_ns`.
fn rate_hz(count: u64, length_ns: u64) -> Option<f64> {
    (length_ns > 0).then(|| count as f64 * 1e9 / length_ns as f64)
}
