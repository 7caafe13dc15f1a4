//! Table `aftermath`: the direct cost of an interruption to a quantum of work, and its indirect cost
//! (cache and TLB pollution).

use std::collections::BTreeMap;

use record::{Absence, Column, Kind, Table, Value};
use stats::interval::{from_moments, order_95, t_95};

use super::super::sample::{LoopResult, NoiseSample, QuantumCycles};
use super::super::split::Part;
use super::{all_rows, column, cpu_column, ratio, words};

fn columns() -> Vec<Column> {
    use Kind::{Bool, Real, Text, Uint};
    let ci95 = |name: &str, of: &str| {
        column(name, Real, &format!("Half width of the 95 % confidence interval of {of}.")).detail()
    };
    vec![
        cpu_column().priority(90),
        column("kind", Text, "Kind of the context that interrupted the quantum (the first, if nested).")
            .priority(70),
        column("name", Text, "Name of that context.").title("cause").priority(101),
        column("context_switch", Bool, "Whether another task ran meanwhile.")
            .title("switch")
            .priority(40),
        column("quantum_count", Uint, "Quanta that were interrupted exactly once, by this cause.")
            .title("quanta")
            .priority(80),
        column(
            "direct_mean_cycles",
            Real,
            "Direct cost: cycles that other contexts executed within these quanta, mean.",
        )
        .title("direct ± ci95")
        .plus_minus("direct_ci95_cycles")
        .priority(98),
        ci95("direct_ci95_cycles", "direct_mean_cycles"),
        column("direct_p50_cycles", Uint, "Median of the direct cost.").detail(),
        column(
            "indirect_mean_cycles",
            Real,
            "Indirect cost (cache and TLB pollution): cycles of the loop itself in these quanta minus \
             undisturbed_mean_cycles.",
        )
        .title("indirect ± ci95")
        .plus_minus("indirect_ci95_cycles")
        .priority(99),
        ci95("indirect_ci95_cycles", "indirect_mean_cycles"),
        column("indirect_p50_cycles", Real, "Median of the indirect cost.").title("p50").priority(55),
        column(
            "indirect_p50_ci95_low_cycles",
            Real,
            "Lower end of the 95 % confidence interval of that median.",
        )
        .detail(),
        column(
            "indirect_p50_ci95_high_cycles",
            Real,
            "Upper end of the 95 % confidence interval of that median.",
        )
        .detail(),
        column("indirect_over_direct_ratio", Real, "indirect_mean_cycles over direct_mean_cycles.")
            .title("indirect/direct")
            .priority(45),
        column(
            "next_quantum_mean_cycles",
            Real,
            "Indirect cost that remains in the quantum after each of these.",
        )
        .title("next quantum ± ci95")
        .plus_minus("next_quantum_ci95_cycles")
        .priority(48),
        ci95("next_quantum_ci95_cycles", "next_quantum_mean_cycles"),
        column(
            "undisturbed_count",
            Uint,
            "Quanta of this CPU that were not interrupted, and whose predecessor was not.",
        )
        .detail(),
        column("undisturbed_mean_cycles", Real, "Mean cycles of these quanta.")
            .title("undisturbed")
            .priority(58),
        ci95("undisturbed_ci95_cycles", "undisturbed_mean_cycles"),
    ]
}

/// One row per CPU and cause; no rows from a bench that does not see every cycle.
pub fn aftermath(samples: &[NoiseSample]) -> Table {
    let doc = "Direct and indirect cost of one interruption to a quantum of fixed work. Indirect cost: \
               the work itself runs slower afterwards, with colder caches and TLBs. In cycles of the \
               model; without a model, in instructions.";
    let mut table = Table::new("aftermath", doc, columns()).displayed(all_rows());
    for sample in samples {
        for cpu in &sample.cpus {
            let LoopResult::Quanta(fixed) = &cpu.result else { continue };
            let Some(still) = undisturbed(&fixed.cycles) else { continue };
            for ((first, switched), hit) in by_cause(&fixed.cycles) {
                let [kind, name] = words(first, &sample.names);
                let mut row = vec![u64::from(cpu.cpu).into(), kind, name, switched.into()];
                row.extend(hit.cells(&still));
                table.push(row);
            }
        }
    }
    table
}

/// Why the table has no rows for the quanta that were measured.
pub fn aftermath_absent(samples: &[NoiseSample]) -> Vec<Absence> {
    let mut absent: Vec<Absence> = Vec::new();
    for cpu in samples.iter().flat_map(|sample| &sample.cpus) {
        let LoopResult::Quanta(fixed) = &cpu.result else { continue };
        let reason = if fixed.cycles.is_empty() {
            "only a bench that sees each cycle (--on sim) counts the cycles of each quantum"
        } else if undisturbed(&fixed.cycles).is_none() {
            "each quantum, or the one before it, was interrupted: shorter ones may not be (--quantum)"
        } else if by_cause(&fixed.cycles).is_empty() {
            "no quantum was interrupted exactly once: more of them may be (--repetitions)"
        } else {
            continue;
        };
        let what = "indirect cost of each cause, in cycles".to_owned();
        let (table, reason) = ("aftermath".to_owned(), reason.to_owned());
        let absence = Absence { table, what, reason, remedy: None };
        if !absent.contains(&absence) {
            absent.push(absence);
        }
    }
    absent
}

/// A mean with the half width of its interval, from a number of values.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(super) struct Mean {
    pub(super) count: u64,
    pub(super) mean: f64,
    pub(super) half_width: Option<f64>,
}

impl Mean {
    pub(super) fn of(values: &[u64]) -> Mean {
        let sum: u64 = values.iter().sum();
        let squares = values.iter().map(|value| u128::from(*value).pow(2)).sum();
        let count = values.len() as u64;
        let half_width = from_moments(count, sum, squares).map(|interval| interval.half_width);
        Mean { count, mean: sum as f64 / count.max(1) as f64, half_width }
    }

    /// The standard error, if it is known.
    fn error(self) -> Option<f64> {
        Some(self.half_width? / t_95(self.count.checked_sub(1)?)?)
    }

    /// This mean minus `other`, which is independent (Welch, with the smaller degrees of freedom of
    /// the two, so that the interval is not too narrow).
    pub(super) fn beyond(self, other: Mean) -> Mean {
        let errors = self.error().zip(other.error());
        let half_width = errors.and_then(|(one, two)| {
            let t = t_95(self.count.min(other.count).checked_sub(1)?)?;
            Some(t * one.hypot(two))
        });
        Mean { count: self.count, mean: self.mean - other.mean, half_width }
    }
}

/// Quanta that were not interrupted, whose predecessor was not, nor the time between the two.
fn undisturbed(quanta: &[QuantumCycles]) -> Option<Mean> {
    let still: Vec<u64> = quanta
        .windows(2)
        .filter(|two| two[0].departures == 0 && two[1].departures + two[1].departures_before == 0)
        .map(|two| two[1].own)
        .collect();
    (!still.is_empty()).then(|| Mean::of(&still))
}

/// The cycles of the quanta that one cause interrupted.
#[derive(Debug, Default)]
struct Hit {
    taken: Vec<u64>,
    own: Vec<u64>,
    next: Vec<u64>,
}

/// Quanta that were interrupted once, by the first context and whether another task ran.
fn by_cause(quanta: &[QuantumCycles]) -> BTreeMap<(Part, bool), Hit> {
    let mut hits: BTreeMap<(Part, bool), Hit> = BTreeMap::new();
    for (at, quantum) in quanta.iter().enumerate() {
        let Some(first) = quantum.first.filter(|_| quantum.departures == 1) else { continue };
        let hit = hits.entry((first, quantum.switched)).or_default();
        hit.taken.push(quantum.taken);
        hit.own.push(quantum.own);
        let next = quanta.get(at + 1);
        let next = next.filter(|next| next.departures + next.departures_before == 0);
        hit.next.extend(next.map(|next| next.own));
    }
    hits
}

impl Hit {
    /// The cells that follow the cause.
    fn cells(mut self, still: &Mean) -> Vec<Value> {
        let (direct, own) = (Mean::of(&self.taken), Mean::of(&self.own));
        let indirect = own.beyond(*still);
        let next = (!self.next.is_empty()).then(|| Mean::of(&self.next).beyond(*still));
        self.taken.sort_unstable();
        self.own.sort_unstable();
        let beyond = |own: u64| own as f64 - still.mean;
        let median = order_95(self.own.len());
        let end = |end: fn((usize, usize)) -> usize| -> Value {
            median.map(|ends| beyond(self.own[end(ends)])).into()
        };
        let middle = (self.own.len().max(1) - 1) / 2;
        let ends = [end(|ends| ends.0), end(|ends| ends.1)];
        let mut cells: Vec<Value> = vec![
            (self.own.len() as u64).into(),
            direct.mean.into(),
            direct.half_width.into(),
            self.taken.get(middle).copied().into(),
            indirect.mean.into(),
            indirect.half_width.into(),
            self.own.get(middle).map(|own| beyond(*own)).into(),
        ];
        cells.extend(ends);
        cells.push(match direct.mean > 0.0 {
            true => (indirect.mean / direct.mean).into(),
            false => ratio(0, 0),
        });
        cells.extend([
            next.map(|next| next.mean).into(),
            next.and_then(|next| next.half_width).into(),
            still.count.into(),
            still.mean.into(),
            still.half_width.into(),
        ]);
        cells
    }
}

#[cfg(test)]
mod tests {
    use super::*;

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
            // The aftermath of the one before, which is no undisturbed one.
            quanta.push(quantum(1010, 0, 0));
        }
        quanta.push(quantum(9000, 100, 2));
        let still = undisturbed(&quanta).unwrap();
        assert_eq!((still.count, still.mean), (19, 1000.0));
        let hits = by_cause(&quanta);
        let hit = &hits[&(Part::Context(0), false)];
        assert_eq!((hits.len(), hit.own.len(), hit.next.len()), (1, 10, 10));
        let indirect = Mean::of(&hit.own).beyond(Mean::of(&[1000; 20]));
        assert!((indirect.mean - 200.5).abs() < 1e-9, "{indirect:?}");
        assert!(indirect.half_width.unwrap() < 1.0, "{indirect:?}");
    }

    #[test]
    fn without_undisturbed_quanta_there_is_nothing_to_compare_with() {
        assert_eq!(undisturbed(&[quantum(1, 1, 1), quantum(1, 1, 1)]), None);
        assert_eq!(undisturbed(&[]), None);
    }
}
