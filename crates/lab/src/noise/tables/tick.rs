//! Table `tick`: the direct and indirect cost of the timer tick on each CPU. The loop `fwq`, with tracing, measures the
//! costs; the rate of the tick comes from the detour loop if that loop was traced, too.

use record::{Absence, Columns, Table, TableDisplay, column};

use super::super::loops::Loop;
use super::super::quantum::Quantum;
use super::super::sample::{ContextName, CpuNoise, Fixed, LoopResult, NoiseSample};
use super::super::split::Part;
use super::aftermath::Mean;
use super::{DetourLoop, all_rows, cpu_column, detour_loops};
use crate::cpu_warnings::cpus_in_words;

const TABLE: &str = "tick";
/// The kernel's name for the interrupt of the tick.
const TICK: &str = "local_timer";

/// A row of table `tick`: rate and cost of the ticks on one CPU.
struct Row {
    cpu: u32,
    rate_hz: Option<f64>,
    cost: Cost,
}

impl Row {
    /// Share of the CPU that ticks cost. `None` if their rate is unknown.
    fn cpu_ratio(&self) -> Option<f64> {
        Some(self.rate_hz? * (self.cost.direct.mean + self.cost.indirect.mean) / 1e9)
    }
}

fn columns<'a>() -> Columns<'a, Row> {
    Columns::all([
        cpu_column(100).of(|row: &Row| row.cpu),
        column("tick_rate_hz", "Timer interrupts per second.")
            .shown_as("ticks", 99)
            .real(|row: &Row| row.rate_hz),
        column(
            "direct_mean_ns",
            "Direct cost of a tick: mean time of kernel contexts in an interrupted quantum.",
        )
        .title("direct ± ci95")
        .plus_minus("direct_ci95_ns")
        .priority(98)
        .real(|row: &Row| row.cost.direct.mean),
        column("direct_ci95_ns", "Half width of the 95 % confidence interval.")
            .detail()
            .real(|row: &Row| row.cost.direct.half_width),
        column(
            "indirect_mean_ns",
            "Indirect cost of a tick: mean excess of an interrupted quantum over an undisturbed \
             quantum, without the direct cost. It consists of kernel entry and exit, and cache \
             and TLB pollution.",
        )
        .title("indirect ± ci95")
        .plus_minus("indirect_ci95_ns")
        .priority(97)
        .real(|row: &Row| row.cost.indirect.mean),
        column("indirect_ci95_ns", "Half width of the 95 % confidence interval.")
            .detail()
            .real(|row: &Row| row.cost.indirect.half_width),
        column(
            "tick_cpu_ratio",
            "Share of the CPU that ticks cost: tick_rate_hz times the sum of both costs.",
        )
        .shown_as("of the CPU", 96)
        .real(|row: &Row| row.cpu_ratio()),
        column("quantum_count", "Quanta of fixed work (fwq) that ticks interrupted.")
            .shown_as("quanta", 60)
            .uint(|row: &Row| row.cost.direct.count),
        column("undisturbed_count", "Quanta that nothing interrupted.")
            .shown_as("undisturbed", 50)
            .uint(|row: &Row| row.cost.undisturbed_count),
    ])
}

/// Table `tick`: a row for each CPU on which the cost of the tick is known. Also returns the reasons for the other
/// CPUs.
pub fn tick(samples: &[NoiseSample]) -> (Table, Vec<Absence>) {
    let doc = "Direct and indirect cost of the timer tick to a program.";
    let display = TableDisplay {
        headline: "the tick costs a program on CPU {cpu}: {tick_rate_hz} × ({direct_mean_ns} \
                   direct + {indirect_mean_ns} indirect) = {tick_cpu_ratio} of the CPU"
            .to_owned(),
        ..all_rows()
    };
    let table = |rows: Vec<Row>| columns().table(TABLE, doc, rows).displayed(display);
    let fwq = || samples.iter().filter(|sample| sample.looping == Loop::Fwq);
    let subject = "the cost of the tick to a program";
    if fwq().next().is_none() {
        let reason = "the loop fwq did not run";
        let absence = Absence::new(TABLE, subject, reason).with_remedy(Some("--loop fwq"));
        return (table(Vec::new()), vec![absence]);
    }
    if fwq().all(|sample| sample.traced.is_none()) {
        let reason = "the times of the tick are unknown: the loop fwq ran without probes";
        return (table(Vec::new()), vec![Absence::new(TABLE, subject, reason)]);
    }
    // CPUs without a row, by the reason.
    let mut absent: Vec<(&str, Vec<u32>)> = Vec::new();
    let mut rows = Vec::new();
    for sample in fwq().filter(|sample| sample.traced.is_some()) {
        for cpu in &sample.cpus {
            let LoopResult::Quanta(fixed) = &cpu.result else { continue };
            match cost(fixed, sample) {
                Ok(cost) => {
                    let rate_hz = rate_hz(samples, sample, cpu);
                    rows.push(Row { cpu: cpu.cpu, rate_hz, cost });
                }
                Err(reason) => match absent.iter_mut().find(|(known, _)| *known == reason) {
                    Some((_, cpus)) => cpus.push(cpu.cpu),
                    None => absent.push((reason, vec![cpu.cpu])),
                },
            }
        }
    }
    let to_absence = |(reason, cpus): (&str, Vec<u32>)| {
        Absence::new(TABLE, format!("{subject} on {}", cpus_in_words(&cpus)), reason)
    };
    (table(rows), absent.into_iter().map(to_absence).collect())
}

/// Whether a part of a window is the interrupt of the tick.
fn is_tick(part: Part, sample: &NoiseSample) -> bool {
    let Part::Context(number) = part else { return false };
    let name = sample.names.get(number as usize);
    matches!(name, Some(ContextName::Context(context)) if context.name == TICK)
}

/// Ticks per second on the CPU of `fwq_cpu`. If the detour loop was traced on this CPU, counts the detours that contain
/// a tick. Otherwise counts the quanta that a tick interrupted.
fn rate_hz(samples: &[NoiseSample], fwq: &NoiseSample, fwq_cpu: &CpuNoise) -> Option<f64> {
    let per_second =
        |count: u64, window_ns: u64| (window_ns > 0).then(|| count as f64 * 1e9 / window_ns as f64);
    for DetourLoop { sample, cpu, ledger } in detour_loops(samples) {
        if cpu.cpu == fwq_cpu.cpu && sample.traced.is_some() {
            let ticks = ledger.parts.iter().filter(|(part, _)| is_tick(**part, sample));
            return per_second(ticks.map(|(_, times)| times.count).sum(), cpu.window_ns);
        }
    }
    let LoopResult::Quanta(fixed) = &fwq_cpu.result else { return None };
    let has_tick = |quantum: &&Quantum| quantum.main.is_some_and(|main| is_tick(main, fwq));
    let ticks = fixed.first.iter().filter(has_tick);
    // A long window keeps only its first quanta.
    let kept_ns = fixed.first.iter().map(|quantum| quantum.time_ns).sum();
    per_second(ticks.count() as u64, kept_ns)
}

/// The cost of a tick, ns.
struct Cost {
    /// Time of kernel contexts in an interrupted quantum.
    direct: Mean,
    /// The loop's own time in an interrupted quantum, minus the time of an undisturbed quantum.
    indirect: Mean,
    undisturbed_count: u64,
}

/// Compares quanta that a tick interrupted with undisturbed quanta. The error says why the cost is unknown.
fn cost(fixed: &Fixed, sample: &NoiseSample) -> Result<Cost, &'static str> {
    let has_no_fault = |quantum: &&Quantum| quantum.faulted != Some(true);
    let (mut direct, mut own, mut undisturbed) = (Vec::new(), Vec::new(), Vec::new());
    for quantum in fixed.first.iter().filter(has_no_fault) {
        match (quantum.named_ns, quantum.main) {
            (Some(0), _) => undisturbed.push(quantum.time_ns),
            (Some(taken_ns), Some(main)) if is_tick(main, sample) => {
                direct.push(taken_ns);
                own.push(quantum.time_ns.saturating_sub(taken_ns));
            }
            _ => {}
        }
    }
    if direct.is_empty() {
        return Err("no quantum was interrupted by the tick (try a longer window, -d)");
    }
    if undisturbed.is_empty() {
        return Err("every quantum was interrupted (try a shorter --quantum)");
    }
    let undisturbed = Mean::from_values(&undisturbed);
    Ok(Cost {
        direct: Mean::from_values(&direct),
        indirect: Mean::from_values(&own).minus(undisturbed),
        undisturbed_count: undisturbed.count,
    })
}

#[cfg(test)]
mod tests {
    use attribution::{Context, ContextKind};

    use super::*;

    fn sample() -> NoiseSample {
        let context = Context { kind: ContextKind::Vector, number: 236, name: TICK.to_owned() };
        NoiseSample {
            names: vec![ContextName::Context(context), ContextName::Task("other".to_owned())],
            ..NoiseSample::in_exact_clock(Loop::Fwq, Vec::new())
        }
    }

    fn quantum(time_ns: u64, named_ns: u64, main: Option<u32>) -> Quantum {
        let main = main.map(Part::Context);
        let faulted = Some(false);
        Quantum { start_ns: 0, time_ns, named_ns: Some(named_ns), main, faulted }
    }

    #[test]
    fn the_cost_is_what_a_quantum_with_a_tick_takes_longer() {
        let mut fixed = Fixed::default();
        for round in 0..10 {
            fixed.first.push(quantum(100_000, 0, None));
            fixed.first.push(quantum(103_500 + round % 2, 3_000, Some(0)));
            fixed.first.push(quantum(150_000, 50_000, Some(1)));
        }
        let cost = cost(&fixed, &sample()).unwrap();
        assert_eq!((cost.direct.count, cost.undisturbed_count), (10, 10));
        assert_eq!(cost.direct.mean, 3_000.0);
        assert!((cost.indirect.mean - 500.5).abs() < 1e-6, "{:?}", cost.indirect);
    }

    #[test]
    fn what_lacks_has_a_reason() {
        let cost = |quanta: &[Quantum]| {
            let fixed = Fixed { first: quanta.to_vec(), ..Fixed::default() };
            super::cost(&fixed, &sample()).err().unwrap_or_default()
        };
        assert!(cost(&[quantum(100, 0, None)]).contains("no quantum was interrupted by the tick"));
        assert!(cost(&[quantum(100, 10, Some(0))]).contains("every quantum was interrupted"));
        let (table, absent) = tick(&[]);
        assert!(table.rows().is_empty() && absent[0].reason == "the loop fwq did not run");
        let (_, absent) = tick(&[sample()]);
        assert!(absent[0].reason.contains("without probes"), "{absent:?}");
    }
}
