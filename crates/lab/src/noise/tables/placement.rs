//! Table `placement`: the slowdown of a quantum of fixed work while a handler runs, by the CPUs of loop and handler.
//! The loop `fwq` must run with tracing, and the topology must be known.

use std::collections::{BTreeMap, BTreeSet};

use record::{Absence, Columns, Format, Table, column};

use super::super::placement::{ConcurrentActivity, CpuActivity, Relation, concurrent_activity};
use super::super::sample::{CpuNoise, LoopResult, NoiseSample};
use super::super::work::Fixed;
use super::aftermath::Mean;
use super::all_rows;
use crate::cpu_warnings::cpu_list_with_noun;

const TABLE: &str = "placement";

/// A row of table `placement`: the quanta of a loop that overlap handlers on one CPU and no other activity.
struct Row {
    relation: Relation,
    handler_cpu: u32,
    cpu: u32,
    /// How much longer these quanta take than undisturbed quanta, ns.
    excess: Mean,
    /// The longest of these quanta, ns.
    longest_ns: Option<u64>,
    /// Number of quanta that overlap handlers on this CPU and also other activity.
    excluded: u64,
    /// Times of the loop's undisturbed quanta, ns.
    undisturbed: Mean,
}

fn columns<'a>() -> Columns<'a, Row> {
    let ci95 = |name: &str, mean_column: &str| {
        let doc = format!("Half width of the 95 % confidence interval of {mean_column}.");
        column(name, &doc).detail()
    };
    Columns::all([
        column(
            "relation",
            "Relation of the two CPUs: same thread, same core, other core (of one socket), other \
             socket.",
        )
        .priority(100)
        .key()
        .text(|row: &Row| row.relation.word()),
        column("handler_cpu", "CPU that interrupt handlers ran on.")
            .shown_as("handler on CPU", 95)
            .key()
            .uint(|row: &Row| row.handler_cpu),
        column("cpu", "CPU that the loop ran on.")
            .shown_as("loop on CPU", 96)
            .key()
            .uint(|row: &Row| row.cpu),
        column(
            "quantum_count",
            "Quanta that overlap a handler on handler_cpu while nothing else ran on any observed CPU, of the \
             quanta that are kept: the first 10,000 of the loop. Observed are all CPUs on sim, and on live those \
             with a loop.",
        )
        .shown_as("quanta", 80)
        .uint(|row: &Row| row.excess.count),
        column(
            "slowdown_mean_ratio",
            "Mean slowdown of the quanta: their excess over undisturbed_mean_ns, as a share of \
             the latter.",
        )
        .title("slowdown ± ci95")
        .plus_minus("slowdown_ci95_ratio")
        .priority(99)
        .real(|row: &Row| row.excess.mean / row.undisturbed.mean),
        ci95("slowdown_ci95_ratio", "slowdown_mean_ratio").real(|row: &Row| {
            row.excess.half_width.map(|half_width| half_width / row.undisturbed.mean)
        }),
        column("slowdown_max_ratio", "The slowdown of the longest quantum.")
            .shown_as("max", 85)
            .real(|row: &Row| {
                row.longest_ns.map(|longest_ns| {
                    (longest_ns as f64 - row.undisturbed.mean) / row.undisturbed.mean
                })
            }),
        column(
            "excluded_count",
            "Quanta that overlap a handler on handler_cpu and other work on any observed CPU, of the quanta that \
             are kept.",
        )
        .shown_as("excluded", 40)
        .uint(|row: &Row| row.excluded),
        column(
            "undisturbed_count",
            "Quanta of this loop during which nothing else ran on any observed CPU, of the quanta that are kept: \
             the first 10,000.",
        )
        .detail()
        .uint(|row: &Row| row.undisturbed.count),
        column("undisturbed_mean_ns", "Mean duration of the undisturbed quanta.")
            .title("undisturbed ± ci95")
            .plus_minus("undisturbed_ci95_ns")
            .format(Format::Microseconds)
            .priority(60)
            .real(|row: &Row| row.undisturbed.mean),
        ci95("undisturbed_ci95_ns", "undisturbed_mean_ns")
            .real(|row: &Row| row.undisturbed.half_width),
    ])
}

/// Table `placement`: one row per pair of CPUs, the closest pairs first. Also returns the absent relations, with
/// reasons.
pub fn placement(samples: &[NoiseSample]) -> (Table, Vec<Absence>) {
    let doc = "Slowdown of fixed work while a handler runs, by the CPUs of handler and work.";
    let mut loops = Vec::new();
    for sample in samples {
        for cpu in &sample.cpus {
            if let LoopResult::Quanta(fixed) = &cpu.result {
                loops.push((&*sample.activity, cpu, &**fixed));
            }
        }
    }
    let mut rows = Vec::new();
    for (activity, cpu, fixed) in &loops {
        let quanta = by_activity(fixed, activity);
        let Some(loop_cpu) = activity.iter().find(|candidate| candidate.place.cpu == cpu.cpu)
        else {
            continue;
        };
        for handler_cpu in *activity {
            let relation = Relation::of(loop_cpu.place, handler_cpu.place);
            rows.extend(quanta.row(relation, handler_cpu.place.cpu, cpu.cpu));
        }
    }
    rows.sort_by_key(|row| (row.relation, row.handler_cpu, row.cpu));
    let found: Vec<Relation> = rows.iter().map(|row| row.relation).collect();
    let table = columns().table(TABLE, doc, rows).displayed(all_rows());
    let mut absent = absent_relations(&loops, &found);
    if !loops.is_empty() {
        absent.extend(unobserved_cpus(samples));
    }
    (table, absent)
}

/// The online CPUs whose activity no loop observes. `None` if there are none.
fn unobserved_cpus(samples: &[NoiseSample]) -> Option<Absence> {
    let has_quanta = |sample: &&NoiseSample| {
        sample.cpus.iter().any(|cpu| matches!(cpu.result, LoopResult::Quanta(_)))
    };
    let cpus = samples.iter().filter(has_quanta).flat_map(|sample| &sample.unobserved_cpus);
    let cpus: BTreeSet<u32> = cpus.copied().collect();
    if cpus.is_empty() {
        return None;
    }
    let cpus = cpu_list_with_noun(&cpus.into_iter().collect::<Vec<u32>>());
    let reason = "no loop runs there, so irqlab does not know what did: other work on these CPUs counts as nothing, and \
                  can make undisturbed quanta longer";
    Some(Absence::new(TABLE, format!("activity of {cpus}"), reason))
}

/// Quanta of a loop by the concurrent activity.
#[derive(Debug, Default)]
struct QuantaByActivity {
    /// Times of quanta without any activity, ns.
    undisturbed: Vec<u64>,
    /// Times of quanta with handlers on one CPU and no other activity, ns, by this CPU.
    by_handler_cpu: BTreeMap<u32, Vec<u64>>,
    /// Number of quanta with handlers and other activity, by the CPU of the handlers.
    excluded: BTreeMap<u32, u64>,
}

/// Sorts the quanta of a loop by the concurrent activity. Quanta with a page fault do not count.
fn by_activity(fixed: &Fixed, activity: &[CpuActivity]) -> QuantaByActivity {
    let mut quanta = QuantaByActivity::default();
    let has_no_fault = |quantum: &&super::super::Quantum| quantum.faulted != Some(true);
    for quantum in fixed.first.iter().filter(has_no_fault) {
        match concurrent_activity(quantum, activity) {
            ConcurrentActivity::Nobody => quanta.undisturbed.push(quantum.time_ns),
            ConcurrentActivity::Handlers(cpu) => {
                quanta.by_handler_cpu.entry(cpu).or_default().push(quantum.time_ns)
            }
            ConcurrentActivity::More(cpu) => *quanta.excluded.entry(cpu).or_default() += 1,
            ConcurrentActivity::Others | ConcurrentActivity::Unknown => {}
        }
    }
    quanta
}

impl QuantaByActivity {
    /// The row of a pair of CPUs. `None` if no quantum has handlers only on `handler_cpu`, or if no quantum is
    /// undisturbed.
    fn row(&self, relation: Relation, handler_cpu: u32, cpu: u32) -> Option<Row> {
        let times = self.by_handler_cpu.get(&handler_cpu)?;
        let undisturbed = Mean::from_values(&self.undisturbed);
        let excess = Mean::from_values(times).minus(undisturbed);
        let longest_ns = times.iter().max().copied();
        let excluded = self.excluded.get(&handler_cpu).copied().unwrap_or(0);
        (undisturbed.count > 0 && undisturbed.mean > 0.0).then_some(Row {
            relation,
            handler_cpu,
            cpu,
            excess,
            longest_ns,
            excluded,
            undisturbed,
        })
    }
}

/// The relations without a row, each with the reason.
fn absent_relations(
    loops: &[(&[CpuActivity], &CpuNoise, &Fixed)],
    found: &[Relation],
) -> Vec<Absence> {
    if loops.is_empty() {
        return Vec::new();
    }
    let mut pairs = Vec::new();
    for (activity, cpu, _) in loops {
        let Some(loop_cpu) = activity.iter().find(|candidate| candidate.place.cpu == cpu.cpu)
        else {
            continue;
        };
        let relation = |handler_cpu: &CpuActivity| Relation::of(loop_cpu.place, handler_cpu.place);
        pairs.extend(activity.iter().map(relation));
    }
    if pairs.is_empty() {
        let reason = "the topology of the CPUs, or their activity, is unknown";
        return vec![Absence::new(TABLE, "all rows", reason)];
    }
    let missing = Relation::ALL.iter().filter(|relation| !found.contains(relation));
    let reason = |relation: &Relation| match (pairs.contains(relation), relation) {
        (true, _) => {
            "no quantum overlapped a handler there while nothing else ran, or no quantum was \
             undisturbed"
        }
        (false, Relation::SameThread) => "no CPU runs a loop",
        (false, Relation::SameCore) => "no two measured CPUs share a core (no SMT)",
        (false, Relation::OtherCore) => "no two measured CPUs are two cores of a socket",
        (false, Relation::OtherSocket) => "no two measured CPUs are in two sockets",
    };
    missing.map(|relation| Absence::new(TABLE, relation.word(), reason(relation))).collect()
}

#[cfg(test)]
mod tests {
    use super::super::super::placement::{BusyInterval, Place};
    use record::Value;

    use super::super::super::{Loop, Quantum};
    use super::*;

    /// A CPU with 100 quanta of 100 ns. Each tenth overlaps a handler on CPU 0 and takes `longer_ns` longer.
    fn looping(cpu: u32, longer_ns: u64) -> CpuNoise {
        let mut fixed = Fixed::default();
        for number in 0..100 {
            let overlaps_handler = number % 10 == 5;
            let time_ns = 100 + number % 2 + if overlaps_handler { longer_ns } else { 0 };
            fixed.add(Quantum::untraced(number * 1000, time_ns), 10);
        }
        CpuNoise::new(cpu, 0, 100_000, LoopResult::Quanta(Box::new(fixed)))
    }

    fn activity(cpu: u32, core: i32, has_ticks: bool) -> CpuActivity {
        let start = |number: u64| number * 1000 + 50;
        let tick = |number| BusyInterval {
            start_ns: start(number),
            end_ns: start(number) + 20,
            is_handlers: true,
        };
        let intervals =
            if has_ticks { (5..100).step_by(10).map(tick).collect() } else { Vec::new() };
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
        let relations: Vec<Value> = (0..3).map(|row| cell(row, "relation")).collect();
        assert_eq!(relations, ["same thread".into(), "same core".into(), "other core".into()]);
        assert_eq!(table.rows().len(), 3);
        for (row, slowdown) in [(0, 0.3), (1, 0.1), (2, 0.0)] {
            assert_eq!(cell(row, "handler_cpu"), 0_u64.into());
            assert_eq!(cell(row, "quantum_count"), 10_u64.into());
            assert_eq!(cell(row, "undisturbed_count"), 90_u64.into());
            let [Value::Real(mean), Value::Real(half_width), Value::Real(max)] =
                ["slowdown_mean_ratio", "slowdown_ci95_ratio", "slowdown_max_ratio"]
                    .map(|name| cell(row, name))
            else {
                panic!("{:?}", table.rows())
            };
            assert!((mean - slowdown).abs() < 0.01, "{row}: {mean}");
            assert!(half_width < 0.005, "{row}: {half_width}");
            assert!((max - slowdown).abs() < 0.01, "{row}: {max}");
        }
        let absent: Vec<&str> = absent.iter().map(|absence| absence.what.as_str()).collect();
        assert_eq!(absent, ["other socket"]);
    }

    #[test]
    fn cpus_without_a_loop_have_no_known_activity() {
        let observed = || sample(vec![looping(1, 10)], vec![activity(1, 0, true)]);
        let absences = |sample: NoiseSample| -> Vec<String> {
            let absent = placement(&[sample]).1;
            let all = absent.into_iter().map(|absence| absence.what);
            all.filter(|what| what.starts_with("activity")).collect()
        };
        let sample = NoiseSample { unobserved_cpus: vec![0, 2, 3], ..observed() };
        assert_eq!(absences(sample), ["activity of CPUs 0,2-3"]);
        assert_eq!(absences(observed()), [""; 0]);
    }

    #[test]
    fn what_is_not_there_has_its_reason() {
        assert!(placement(&[]).1.is_empty());
        let unknown = placement(&[sample(vec![looping(0, 5)], Vec::new())]);
        assert_eq!((unknown.0.rows().len(), unknown.1[0].what.as_str()), (0, "all rows"));
        let alone = placement(&[sample(vec![looping(0, 5)], vec![activity(0, 0, false)])]);
        let reasons: Vec<_> =
            alone.1.iter().map(|absence| (&*absence.what, &*absence.reason)).collect();
        assert_eq!(reasons.len(), 4);
        assert!(reasons[0].1.contains("no quantum overlapped"), "{reasons:?}");
        assert!(reasons[1].0 == "same core" && reasons[1].1.contains("no SMT"), "{reasons:?}");
    }
}
