//! Warns of interrupt storms: a line whose handlers take much of a CPU, without a stimulus of irqlab.

use std::collections::BTreeMap;

use attribution::ContextKind;

use super::condition::Condition;
use super::sample::WindowSample;

/// Share of a CPU from which on a line is a storm.
const STORM_CPU_RATIO: f64 = 0.2;

/// A line on a CPU.
#[derive(Default)]
struct Line {
    names: Vec<String>,
    count: u64,
    /// Self time of all its handlers, ns.
    self_ns: u64,
}

/// A warning for each line that took [`STORM_CPU_RATIO`] of a CPU or more.
pub(super) fn warnings(condition: Condition, window: &WindowSample) -> Vec<String> {
    if matches!(condition, Condition::Made { .. }) {
        return Vec::new();
    }
    let mut lines: BTreeMap<(u32, u32), Line> = BTreeMap::new();
    for stats in window.contexts.iter().filter(|stats| stats.context.kind == ContextKind::HardIrq) {
        let line = lines.entry((stats.context.number, stats.cpu)).or_default();
        line.names.push(stats.context.name.clone());
        // Each action of a shared line runs for each of its interrupts.
        line.count = line.count.max(stats.count);
        line.self_ns = line.self_ns.saturating_add_signed(stats.self_total_ns());
    }
    let of_line = |((number, cpu), line): ((u32, u32), Line)| {
        let length_ns = window.windows.iter().find(|window| window.cpu == cpu)?.length_ns;
        let (share, seconds) = (line.self_ns as f64 / length_ns as f64, length_ns as f64 / 1e9);
        (length_ns > 0 && share >= STORM_CPU_RATIO).then(|| {
            format!(
                "{}: irq {number} ({}) took {:.0} % of CPU {cpu}, at {:.0} interrupts per second: an interrupt storm?",
                condition.label(),
                line.names.join(", "),
                share * 100.0,
                line.count as f64 / seconds,
            )
        })
    };
    lines.into_iter().filter_map(of_line).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::handlers::condition::{Load, Rate, Stimulus};
    use crate::handlers::sample::{ContextStats, CpuWindow, Timing};
    use attribution::Context;

    fn action(cpu: u32, name: &str, self_ns: u64) -> ContextStats {
        let context = Context { kind: ContextKind::HardIrq, number: 9, name: name.to_owned() };
        let mut stats = ContextStats::new(cpu, context, Timing::Probes, 1);
        stats.own.record(self_ns, 0);
        stats
    }

    #[test]
    fn a_line_that_takes_a_fifth_of_a_cpu_is_a_storm() {
        let of_cpu = |cpu| CpuWindow { cpu, length_ns: 1_000_000, ..CpuWindow::default() };
        let window = WindowSample {
            windows: vec![of_cpu(0), of_cpu(1)],
            contexts: vec![
                action(0, "a", 120_000),
                action(0, "b", 80_000),
                action(1, "a", 199_000),
            ],
            ..WindowSample::default()
        };
        let text = "ambient: irq 9 (a, b) took 20 % of CPU 0, at 1000 interrupts per second: an interrupt storm?";
        assert_eq!(warnings(Condition::Ambient, &window), [text]);
        let (load, rate, stimulus) = (Load::Idle, Rate::High, Stimulus::Disk);
        assert!(warnings(Condition::Made { load, rate, stimulus }, &window).is_empty());
    }
}
