//! Table `aftermath`: the direct cost and the indirect cost (cache and TLB pollution) of an interruption to a quantum
//! of work. Only a bench that sees every cycle, the simulated one, counts the cycles of quanta. Table `tick` has the
//! costs on the live bench. [`Mean`] serves both tables and `placement`. Users' programs read the columns: names and
//! order must not change.

use std::collections::BTreeMap;

use record::{Absence, Columns, IntervalColumns, Table, column};
use stats::interval::{from_moments, order_95, t_95};

use super::super::sample::{LoopResult, NoiseSample};
use super::super::split::Part;
use super::super::work::QuantumCycles;
use super::{all_rows, cpu_column, kind_and_name};
use crate::cpus::add_once;

/// The quanta of a CPU that one cause interrupted.
struct Row<'a> {
    cpu: u32,
    sample: &'a NoiseSample,
    /// The first context that took the CPU.
    first: Part,
    /// Whether another task ran in the quantum.
    switched: bool,
    /// Cycles of the CPU's undisturbed quanta.
    undisturbed: Mean,
    costs: Costs,
}

fn columns<'a>() -> Columns<'a, Row<'a>> {
    let ci95 = |name: &str, mean_column: &str| {
        let doc = format!("Half width of the 95 % confidence interval of {mean_column}.");
        column(name, &doc).detail()
    };
    Columns::all([
        cpu_column(90).of(|row: &Row<'_>| row.cpu),
        column(
            "kind",
            "Kind of the context that interrupted the quantum (the first, if several are nested).",
        )
        .priority(70)
        .text(|row: &Row<'_>| {
            kind_and_name(row.first, &row.sample.names).map(|(kind, _)| kind.to_owned())
        }),
        column("name", "Name of the context that interrupted the quantum.")
            .shown_as("cause", 101)
            .text(|row: &Row<'_>| {
                kind_and_name(row.first, &row.sample.names).map(|(_, name)| name)
            }),
        column("context_switch", "Whether another task ran in the quantum.")
            .shown_as("switch", 40)
            .bool(|row: &Row<'_>| row.switched),
        column("quantum_count", "Quanta that were interrupted exactly once, by this cause.")
            .shown_as("quanta", 80)
            .uint(|row: &Row<'_>| row.costs.count),
        column(
            "direct_mean_cycles",
            "Direct cost: mean cycles that other contexts executed in a quantum.",
        )
        .title("direct ± ci95")
        .plus_minus("direct_ci95_cycles")
        .priority(98)
        .real(|row: &Row<'_>| row.costs.direct.mean),
        ci95("direct_ci95_cycles", "direct_mean_cycles")
            .real(|row: &Row<'_>| row.costs.direct.half_width),
        column("direct_p50_cycles", "Median of the direct cost.")
            .detail()
            .uint(|row: &Row<'_>| row.costs.direct_p50),
        column(
            "indirect_mean_cycles",
            "Indirect cost (cache and TLB pollution): mean cycles of the loop itself in these \
             quanta minus undisturbed_mean_cycles.",
        )
        .title("indirect ± ci95")
        .plus_minus("indirect_ci95_cycles")
        .priority(99)
        .real(|row: &Row<'_>| row.costs.indirect.mean),
        ci95("indirect_ci95_cycles", "indirect_mean_cycles")
            .real(|row: &Row<'_>| row.costs.indirect.half_width),
        column("indirect_p50_cycles", "Median of the indirect cost.")
            .interval(IntervalColumns::bounds(
                "indirect_p50_ci95_low_cycles",
                "indirect_p50_ci95_high_cycles",
            ))
            .shown_as("p50", 55)
            .real(|row: &Row<'_>| row.costs.indirect_p50),
        column(
            "indirect_p50_ci95_low_cycles",
            "Lower end of the 95 % confidence interval of indirect_p50_cycles.",
        )
        .detail()
        .real(|row: &Row<'_>| row.costs.indirect_p50_interval.map(|(low, _)| low)),
        column(
            "indirect_p50_ci95_high_cycles",
            "Upper end of the 95 % confidence interval of indirect_p50_cycles.",
        )
        .detail()
        .real(|row: &Row<'_>| row.costs.indirect_p50_interval.map(|(_, high)| high)),
        column("indirect_over_direct_ratio", "indirect_mean_cycles over direct_mean_cycles.")
            .shown_as("indirect/direct", 45)
            .real(|row: &Row<'_>| {
                (row.costs.direct.mean > 0.0)
                    .then(|| row.costs.indirect.mean / row.costs.direct.mean)
            }),
        column(
            "next_quantum_mean_cycles",
            "Mean indirect cost in the quantum after an interrupted quantum.",
        )
        .title("next quantum ± ci95")
        .plus_minus("next_quantum_ci95_cycles")
        .priority(48)
        .real(|row: &Row<'_>| row.costs.next.map(|next| next.mean)),
        ci95("next_quantum_ci95_cycles", "next_quantum_mean_cycles")
            .real(|row: &Row<'_>| row.costs.next.and_then(|next| next.half_width)),
        column(
            "undisturbed_count",
            "Undisturbed quanta of this CPU: neither the quantum nor its predecessor was \
             interrupted.",
        )
        .detail()
        .uint(|row: &Row<'_>| row.undisturbed.count),
        column("undisturbed_mean_cycles", "Mean cycles of the undisturbed quanta.")
            .shown_as("undisturbed", 58)
            .real(|row: &Row<'_>| row.undisturbed.mean),
        ci95("undisturbed_ci95_cycles", "undisturbed_mean_cycles")
            .real(|row: &Row<'_>| row.undisturbed.half_width),
    ])
}

/// Table `aftermath`: one row per CPU and cause. No rows unless the bench sees every cycle.
pub fn aftermath(samples: &[NoiseSample]) -> Table {
    let doc = "Direct and indirect cost of one interruption to a quantum of fixed work. Indirect \
               cost: the work itself runs slower afterwards, because caches and TLBs are colder. \
               In cycles of the model; without a model, in instructions.";
    let mut rows = Vec::new();
    for sample in samples {
        for cpu in &sample.cpus {
            let LoopResult::Quanta(fixed) = &cpu.result else { continue };
            let Some(undisturbed) = undisturbed(&fixed.cycles) else { continue };
            rows.extend(by_cause(&fixed.cycles).into_iter().map(|(cause, interrupted)| {
                let (first, switched) = cause;
                let costs = interrupted.costs(&undisturbed);
                Row { cpu: cpu.cpu, sample, first, switched, undisturbed, costs }
            }));
        }
    }
    columns().table("aftermath", doc, rows).displayed(all_rows())
}

/// The reasons why the table has no rows for measured quanta.
pub fn aftermath_absent(samples: &[NoiseSample]) -> Vec<Absence> {
    let mut absent: Vec<Absence> = Vec::new();
    for cpu in samples.iter().flat_map(|sample| &sample.cpus) {
        let LoopResult::Quanta(fixed) = &cpu.result else { continue };
        let reason = if fixed.cycles.is_empty() {
            "only a bench that sees each cycle (--on sim) counts the cycles of each quantum"
        } else if undisturbed(&fixed.cycles).is_none() {
            "no quantum was undisturbed: each one or its predecessor was interrupted (try a \
             shorter --quantum)"
        } else if by_cause(&fixed.cycles).is_empty() {
            "no quantum was interrupted exactly once (try more --repetitions)"
        } else {
            continue;
        };
        let cost = "indirect cost of each cause, in cycles";
        add_once(&mut absent, [Absence::new("aftermath", cost, reason)]);
    }
    absent
}

/// The mean of `count` values, with the half width of its 95 % interval.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(super) struct Mean {
    pub(super) count: u64,
    pub(super) mean: f64,
    /// `None` with fewer than two values.
    pub(super) half_width: Option<f64>,
}

impl Mean {
    pub(super) fn from_values(values: &[u64]) -> Mean {
        let sum: u64 = values.iter().sum();
        let squares = values.iter().map(|value| u128::from(*value).pow(2)).sum();
        let count = values.len() as u64;
        let half_width = from_moments(count, sum, squares).map(|interval| interval.half_width);
        Mean { count, mean: sum as f64 / count.max(1) as f64, half_width }
    }

    /// The standard error, or `None` if the interval is unknown.
    fn error(self) -> Option<f64> {
        Some(self.half_width? / t_95(self.count.checked_sub(1)?)?)
    }

    /// This mean minus the independent mean `baseline` (Welch). The smaller sample determines the degrees of freedom,
    /// so the interval is not too narrow. The result keeps the count of this mean.
    pub(super) fn minus(self, baseline: Mean) -> Mean {
        let errors = self.error().zip(baseline.error());
        let half_width = errors.and_then(|(error, baseline_error)| {
            let t = t_95(self.count.min(baseline.count).checked_sub(1)?)?;
            Some(t * error.hypot(baseline_error))
        });
        Mean { count: self.count, mean: self.mean - baseline.mean, half_width }
    }
}

/// Mean cycles of undisturbed quanta. A quantum is undisturbed if neither the quantum, nor its predecessor, nor the
/// time between both was interrupted. `None` without an undisturbed quantum.
fn undisturbed(quanta: &[QuantumCycles]) -> Option<Mean> {
    let cycles: Vec<u64> = quanta
        .windows(2)
        .filter(|pair| {
            pair[0].departures == 0 && pair[1].departures + pair[1].departures_before == 0
        })
        .map(|pair| pair[1].own)
        .collect();
    (!cycles.is_empty()).then(|| Mean::from_values(&cycles))
}

/// Cycles of the quanta that one cause interrupted.
#[derive(Debug, Default)]
struct InterruptedQuanta {
    /// Cycles of other contexts in each quantum.
    taken: Vec<u64>,
    /// The loop's own cycles in each quantum.
    own: Vec<u64>,
    /// The loop's own cycles in each following quantum that was not interrupted.
    next: Vec<u64>,
}

/// Quanta with exactly one interruption, by their cause: the first context, and whether another task ran.
fn by_cause(quanta: &[QuantumCycles]) -> BTreeMap<(Part, bool), InterruptedQuanta> {
    let mut causes: BTreeMap<(Part, bool), InterruptedQuanta> = BTreeMap::new();
    for (position, quantum) in quanta.iter().enumerate() {
        let (Some(first), 1) = (quantum.first, quantum.departures) else { continue };
        let interrupted = causes.entry((first, quantum.switched)).or_default();
        interrupted.taken.push(quantum.taken);
        interrupted.own.push(quantum.own);
        let next = quanta.get(position + 1);
        let next = next.filter(|next| next.departures + next.departures_before == 0);
        interrupted.next.extend(next.map(|next| next.own));
    }
    causes
}

/// The costs of an interruption, cycles.
struct Costs {
    count: u64,
    direct: Mean,
    direct_p50: Option<u64>,
    indirect: Mean,
    indirect_p50: Option<f64>,
    indirect_p50_interval: Option<(f64, f64)>,
    /// The indirect cost in the following quanta.
    next: Option<Mean>,
}

impl InterruptedQuanta {
    fn costs(mut self, undisturbed: &Mean) -> Costs {
        let direct = Mean::from_values(&self.taken);
        let indirect = Mean::from_values(&self.own).minus(*undisturbed);
        let next =
            (!self.next.is_empty()).then(|| Mean::from_values(&self.next).minus(*undisturbed));
        self.taken.sort_unstable();
        self.own.sort_unstable();
        let excess = |position: usize| Some(*self.own.get(position)? as f64 - undisturbed.mean);
        // Position of the median; with an even number, of the lower of the middle two.
        let middle = (self.own.len().max(1) - 1) / 2;
        Costs {
            count: self.own.len() as u64,
            direct,
            direct_p50: self.taken.get(middle).copied(),
            indirect,
            indirect_p50: excess(middle),
            indirect_p50_interval: order_95(self.own.len())
                .and_then(|(low, high)| excess(low).zip(excess(high))),
            next,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A quantum with `own` cycles of the loop, `taken` cycles of other contexts, and this number of interruptions.
    fn quantum(own: u64, taken: u64, departures: u64) -> QuantumCycles {
        let first = (departures > 0).then_some(Part::Context(0));
        QuantumCycles { own, taken, departures, departures_before: 0, first, switched: false }
    }

    #[test]
    fn the_aftermath_is_what_the_loop_takes_more_than_undisturbed() {
        let mut quanta = Vec::new();
        for round in 0..10 {
            quanta.extend([quantum(1000, 0, 0), quantum(1000, 0, 0)]);
            quanta.push(quantum(1200 + round % 2, 5000, 1));
            // This quantum is slower because of its predecessor. It is not undisturbed.
            quanta.push(quantum(1010, 0, 0));
        }
        quanta.push(quantum(9000, 100, 2));
        let undisturbed = undisturbed(&quanta).unwrap();
        assert_eq!((undisturbed.count, undisturbed.mean), (19, 1000.0));
        let causes = by_cause(&quanta);
        let interrupted = &causes[&(Part::Context(0), false)];
        assert_eq!((causes.len(), interrupted.own.len(), interrupted.next.len()), (1, 10, 10));
        let indirect = Mean::from_values(&interrupted.own).minus(Mean::from_values(&[1000; 20]));
        assert!((indirect.mean - 200.5).abs() < 1e-9, "{indirect:?}");
        assert!(indirect.half_width.unwrap() < 1.0, "{indirect:?}");
    }

    #[test]
    fn quanta_that_are_all_interrupted_or_absent_have_no_undisturbed_mean() {
        let interrupted = quantum(1000, 5000, 1);
        assert_eq!(undisturbed(&[interrupted, interrupted]), None);
        assert_eq!(undisturbed(&[]), None);
    }
}
