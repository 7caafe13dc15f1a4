//! Table `placement`: how much longer a quantum takes while a handler runs, by the handler's CPU.

use std::collections::BTreeMap;

use record::{Absence, Column, Format, Kind, Table, Value};

use super::super::placement::{ConcurrentActivity, CpuActivity, Relation, concurrent_activity};
use super::super::sample::{CpuNoise, Fixed, LoopResult, NoiseSample};
use super::aftermath::Mean;
use super::{all_rows, column};

const TABLE: &str = "placement";

fn columns() -> Vec<Column> {
    use Kind::{Real, Text, Uint};
    let ci95 = |name: &str, of: &str| {
        column(name, Real, &format!("Half width of the 95 % confidence interval of {of}.")).detail()
    };
    vec![
        column(
            "relation",
            Text,
            "What the two CPUs share: same thread, same core, other core (of one socket), other socket.",
        )
        .priority(100),
        column("handler_cpu", Uint, "CPU that interrupt handlers ran on.")
            .title("handler on CPU")
            .priority(95),
        column("cpu", Uint, "CPU that the loop ran on.").title("loop on CPU").priority(96),
        column(
            "quantum_count",
            Uint,
            "Quanta that overlap a handler on handler_cpu while nothing else ran on any CPU.",
        )
        .title("quanta")
        .priority(80),
        column(
            "slowdown_mean_ratio",
            Real,
            "How much longer these quanta take than undisturbed_mean_ns, as a share of it; mean.",
        )
        .title("slowdown ± ci95")
        .plus_minus("slowdown_ci95_ratio")
        .priority(99),
        ci95("slowdown_ci95_ratio", "slowdown_mean_ratio"),
        column("slowdown_max_ratio", Real, "The slowdown of the longest of these quanta.")
            .title("max")
            .priority(85),
        column(
            "excluded_count",
            Uint,
            "Quanta that overlap a handler on handler_cpu and also something else, on any CPU.",
        )
        .title("excluded")
        .priority(40),
        column(
            "undisturbed_count",
            Uint,
            "Quanta of this loop during which nothing else ran on any CPU.",
        )
        .detail(),
        column("undisturbed_mean_ns", Real, "Mean duration of these quanta.")
            .title("undisturbed ± ci95")
            .plus_minus("undisturbed_ci95_ns")
            .format(Format::Microseconds)
            .priority(60),
        ci95("undisturbed_ci95_ns", "undisturbed_mean_ns"),
    ]
}

/// One row per pair of CPUs, those that share most first; and the relations without a row.
pub fn placement(samples: &[NoiseSample]) -> (Table, Vec<Absence>) {
    let doc =
        "How much longer the fixed work takes while a handler runs, by where handler and work are.";
    let mut table = Table::new(TABLE, doc, columns()).displayed(all_rows());
    let mut of_loops = Vec::new();
    for sample in samples {
        for cpu in &sample.cpus {
            if let LoopResult::Quanta(fixed) = &cpu.result {
                of_loops.push((&*sample.activity, cpu, &**fixed));
            }
        }
    }
    let mut rows = Vec::new();
    for (activity, cpu, fixed) in &of_loops {
        let hits = hits(fixed, activity);
        for other in *activity {
            let place = activity.iter().find(|one| one.place.cpu == cpu.cpu).map(|one| one.place);
            let Some(place) = place else { continue };
            let relation = Relation::of(place, other.place);
            if let Some(cells) = hits.cells(other.place.cpu) {
                rows.push((relation, other.place.cpu, cpu.cpu, cells));
            }
        }
    }
    rows.sort_by_key(|row| (row.0, row.1, row.2));
    let found: Vec<Relation> = rows.iter().map(|row| row.0).collect();
    for (relation, handler_cpu, cpu, cells) in rows {
        let mut row: Vec<Value> =
            vec![relation.word().into(), u64::from(handler_cpu).into(), u64::from(cpu).into()];
        row.extend(cells);
        table.push(row);
    }
    (table, absent(&of_loops, &found))
}

/// Quanta of a loop, by the concurrent activity.
#[derive(Debug, Default)]
struct Hits {
    undisturbed: Vec<u64>,
    by_cpu: BTreeMap<u32, Vec<u64>>,
    left_out: BTreeMap<u32, u64>,
}

/// A quantum that ended on another CPU, or had a page fault, does not count.
fn hits(fixed: &Fixed, activity: &[CpuActivity]) -> Hits {
    let mut hits = Hits::default();
    let is_sound = |one: &&super::super::Quantum| !one.migrated && one.faulted != Some(true);
    for quantum in fixed.first.iter().filter(is_sound) {
        match concurrent_activity(quantum, activity) {
            ConcurrentActivity::Nobody => hits.undisturbed.push(quantum.time_ns),
            ConcurrentActivity::Handlers(cpu) => {
                hits.by_cpu.entry(cpu).or_default().push(quantum.time_ns)
            }
            ConcurrentActivity::More(cpu) => *hits.left_out.entry(cpu).or_default() += 1,
            ConcurrentActivity::Others | ConcurrentActivity::Unknown => {}
        }
    }
    hits
}

impl Hits {
    /// The cells that follow the two CPUs; none when no handler ran there alone, or one always did.
    fn cells(&self, handler_cpu: u32) -> Option<Vec<Value>> {
        let times = self.by_cpu.get(&handler_cpu)?;
        let still = Mean::of(&self.undisturbed);
        if still.count == 0 || still.mean <= 0.0 {
            return None;
        }
        let beyond = Mean::of(times).beyond(still);
        let most = times.iter().max().map(|most| (*most as f64 - still.mean) / still.mean);
        Some(vec![
            beyond.count.into(),
            (beyond.mean / still.mean).into(),
            beyond.half_width.map(|half| half / still.mean).into(),
            most.into(),
            self.left_out.get(&handler_cpu).copied().unwrap_or(0).into(),
            still.count.into(),
            still.mean.into(),
            still.half_width.into(),
        ])
    }
}

/// The relations without a row, each with the reason.
fn absent(of_loops: &[(&[CpuActivity], &CpuNoise, &Fixed)], found: &[Relation]) -> Vec<Absence> {
    if of_loops.is_empty() {
        return Vec::new();
    }
    let absence = |what: &str, reason: &str| Absence {
        table: TABLE.to_owned(),
        what: what.to_owned(),
        reason: reason.to_owned(),
        remedy: None,
    };
    let mut pairs = Vec::new();
    for (activity, cpu, _) in of_loops {
        let Some(loops) = activity.iter().find(|one| one.place.cpu == cpu.cpu) else { continue };
        pairs.extend(activity.iter().map(|other| Relation::of(loops.place, other.place)));
    }
    if pairs.is_empty() {
        let reason = "the topology of the CPUs, or what ran on them, is unknown";
        return vec![absence("all rows", reason)];
    }
    let is_there = |one: &&Relation| !found.contains(one);
    let missing = Relation::ALL.iter().filter(is_there);
    let reason = |one: &Relation| match (pairs.contains(one), one) {
        (true, _) => "no quantum overlapped a handler there while nothing else ran, or all did",
        (false, Relation::SameThread) => "no CPU runs a loop",
        (false, Relation::SameCore) => "no two measured CPUs share a core (no SMT)",
        (false, Relation::OtherCore) => "no two measured CPUs are two cores of a socket",
        (false, Relation::OtherSocket) => "no two measured CPUs are in two sockets",
    };
    missing.map(|one| absence(one.word(), reason(one))).collect()
}

#[cfg(test)]
mod tests {
    use super::super::super::placement::{BusyInterval, Place};
    use super::super::super::{Loop, Quantum};
    use super::*;

    /// 100 quanta of 100 ns on a CPU; each tenth overlaps a handler on CPU 0 and takes `longer_ns` longer.
    fn looping(cpu: u32, longer_ns: u64) -> CpuNoise {
        let mut fixed = Fixed::default();
        for number in 0..100 {
            let hit = number % 10 == 5;
            let quantum = Quantum {
                start_ns: number * 1000,
                time_ns: 100 + number % 2 + if hit { longer_ns } else { 0 },
                named_ns: None,
                main: None,
                faulted: None,
                migrated: false,
            };
            fixed.add(quantum, 10);
        }
        CpuNoise::new(cpu, 0, 100_000, LoopResult::Quanta(Box::new(fixed)))
    }

    fn activity(cpu: u32, core: i32, ticks: bool) -> CpuActivity {
        let start = |number: u64| number * 1000 + 50;
        let tick = |number| BusyInterval {
            start_ns: start(number),
            end_ns: start(number) + 20,
            is_handlers: true,
        };
        let intervals = (5..100).step_by(10).filter(|_| ticks).map(tick).collect();
        CpuActivity { place: Place { cpu, core, socket: 0 }, intervals, until_ns: None }
    }

    fn sample(cpus: Vec<CpuNoise>, activity: Vec<CpuActivity>) -> NoiseSample {
        NoiseSample { activity, ..NoiseSample::in_exact_clock(Loop::Fwq, cpus) }
    }

    #[test]
    fn a_slowdown_is_that_of_quanta_with_a_handler_by_where_it_runs() {
        let cpus = vec![looping(0, 30), looping(1, 10), looping(4, 0)];
        let activity = vec![activity(0, 0, true), activity(1, 0, false), activity(4, 1, false)];
        let (table, absent) = placement(&[sample(cpus, activity)]);
        let cell =
            |row: usize, column: &str| table.get(&table.rows()[row], column).unwrap().clone();
        let words: Vec<Value> = (0..3).map(|row| cell(row, "relation")).collect();
        assert_eq!(words, ["same thread".into(), "same core".into(), "other core".into()]);
        assert_eq!(table.rows().len(), 3);
        for (row, slowdown) in [(0, 0.3), (1, 0.1), (2, 0.0)] {
            assert_eq!(cell(row, "handler_cpu"), 0_u64.into());
            assert_eq!(cell(row, "quantum_count"), 10_u64.into());
            assert_eq!(cell(row, "undisturbed_count"), 90_u64.into());
            let [Value::Real(mean), Value::Real(half), Value::Real(most)] =
                ["slowdown_mean_ratio", "slowdown_ci95_ratio", "slowdown_max_ratio"]
                    .map(|name| cell(row, name))
            else {
                panic!("{:?}", table.rows())
            };
            assert!((mean - slowdown).abs() < 0.01 && half < 0.005, "{row}: {mean} {half}");
            assert!((most - slowdown).abs() < 0.01, "{row}: {most}");
        }
        let absent: Vec<&str> = absent.iter().map(|one| one.what.as_str()).collect();
        assert_eq!(absent, ["other socket"]);
    }

    #[test]
    fn what_is_not_there_has_its_reason() {
        assert!(placement(&[]).1.is_empty());
        let unknown = placement(&[sample(vec![looping(0, 5)], Vec::new())]);
        assert_eq!((unknown.0.rows().len(), unknown.1[0].what.as_str()), (0, "all rows"));
        let alone = placement(&[sample(vec![looping(0, 5)], vec![activity(0, 0, false)])]);
        let reasons: Vec<_> = alone.1.iter().map(|one| (&*one.what, &*one.reason)).collect();
        assert_eq!(reasons.len(), 4);
        assert!(reasons[0].1.contains("no quantum overlapped"), "{reasons:?}");
        assert!(reasons[1].0 == "same core" && reasons[1].1.contains("no SMT"), "{reasons:?}");
    }
}
