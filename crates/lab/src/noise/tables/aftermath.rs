//! Table `aftermath`: what an interruption costs a quantum of work, directly and afterwards.

use std::collections::BTreeMap;

use record::{Column, Kind, Table, Value};
use stats::interval::{from_moments, order_95, t_95};

use super::super::sample::{NoiseSample, QuantumCycles, Work};
use super::super::split::Part;
use super::{column, cpu_column, ratio, words};

fn columns() -> Vec<Column> {
    use Kind::{Bool, Real, Text, Uint};
    vec![
        cpu_column(),
        column("kind", Text, "Quanta that were interrupted once, by what came first: kind."),
        column("name", Text, "And name."),
        column("switched", Bool, "Whether another task ran then."),
        column("quantum_count", Uint, "How many quanta."),
        column("direct_mean_cycles", Real, "Cycles that others used in them."),
        column("direct_ci95_cycles", Real, "Half width of the mean's 95 % interval."),
        column("direct_p50_cycles", Uint, "Median."),
        column(
            "indirect_mean_cycles",
            Real,
            "The aftermath: cycles that the loop itself used more than undisturbed_cycles.",
        ),
        column("indirect_ci95_cycles", Real, "Half width of the mean's 95 % interval."),
        column("indirect_p50_cycles", Real, "Median."),
        column("indirect_p50_low_cycles", Real, "Lower end of the median's 95 % interval."),
        column("indirect_p50_high_cycles", Real, "Upper end."),
        column("indirect_ratio", Real, "indirect_mean_cycles over direct_mean_cycles."),
        column("next_mean_cycles", Real, "The same as indirect, of the quantum behind each."),
        column("next_ci95_cycles", Real, "Half width of the mean's 95 % interval."),
        column("undisturbed_count", Uint, "Quanta of this CPU before and in which nobody came."),
        column("undisturbed_cycles", Real, "What these took, mean."),
        column("undisturbed_ci95_cycles", Real, "Half width of the mean's 95 % interval."),
    ]
}

/// One row a CPU and cause. Only of a bench that sees every cycle: else it has no rows.
pub fn aftermath(samples: &[NoiseSample]) -> Table {
    let doc = "What being interrupted costs the fixed work: directly, and afterwards by colder caches. \
               Cycles of the model; without one, instructions.";
    let mut table = Table::new("aftermath", doc, columns());
    for sample in samples {
        for cpu in &sample.cpus {
            let Work::Quanta(fixed) = &cpu.work else { continue };
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

/// A mean with the half width of its interval, of so many values.
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

    /// The standard error, as far as it is known.
    fn error(self) -> Option<f64> {
        Some(self.half_width? / t_95(self.count.checked_sub(1)?)?)
    }

    /// By how much it is more than `other`; both are independent (Welch, with the fewer degrees of
    /// freedom of the two, which makes the interval no narrower than it is).
    pub(super) fn beyond(self, other: Mean) -> Mean {
        let errors = self.error().zip(other.error());
        let half_width = errors.and_then(|(one, two)| {
            let t = t_95(self.count.min(other.count).checked_sub(1)?)?;
            Some(t * one.hypot(two))
        });
        Mean { count: self.count, mean: self.mean - other.mean, half_width }
    }
}

/// Quanta in which nobody came, nor in the one before or between the two.
fn undisturbed(quanta: &[QuantumCycles]) -> Option<Mean> {
    let still: Vec<u64> = quanta
        .windows(2)
        .filter(|two| two[0].departures == 0 && two[1].departures + two[1].departures_before == 0)
        .map(|two| two[1].own)
        .collect();
    (!still.is_empty()).then(|| Mean::of(&still))
}

/// What quanta of one cause used.
#[derive(Debug, Default)]
struct Hit {
    taken: Vec<u64>,
    own: Vec<u64>,
    next: Vec<u64>,
}

/// Quanta that were interrupted once, by who came first and whether another task ran.
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
    /// The cells behind the cause.
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
        let first = (departures > 0).then_some(Part::Source(0));
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
        let hit = &hits[&(Part::Source(0), false)];
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
