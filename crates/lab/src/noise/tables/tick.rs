//! Table `tick`: the direct and indirect cost of the timer tick on each CPU. The loop `fwq`, with tracing, measures both:
//! quanta that only one interrupt of the local timer interrupted are compared with quanta that nothing interrupted.
//!
//! The kernel's events do not say whether an interrupt of the local timer runs the tick or expires a program's timer. So the
//! interrupts count as ticks only if their rate is that of the tick.

use attribution::ContextKind;
use record::{Absence, Columns, Table, TableDisplay, column};

use super::super::loops::Loop;
use super::super::quantum::Quantum;
use super::super::sample::{ContextName, LoopResult, NoiseSample};
use super::super::work::Fixed;
use super::aftermath::Mean;
use super::{all_rows, cpu_column};
use crate::cpu_warnings::cpu_list_with_noun;

const TABLE: &str = "tick";
/// The kernel's name for the interrupt of the local timer, in which ticks run.
const LOCAL_TIMER: &str = "local_timer";
/// If the rate of the local timer's interrupts exceeds the kernel's tick rate by more than this part, or falls below it, they
/// are not the ticks of the whole window.
const RATE_DIFFERENCE_MAX: f64 = 0.1;

/// A row of table `tick`: rate and cost of the ticks on one CPU.
struct Row {
    cpu: u32,
    /// Interrupts of the local timer that interrupted the loop, per second.
    timer_rate_hz: Option<f64>,
    /// Rate of the tick by the kernel's configuration.
    tick_hz: Option<f64>,
    cost: Cost,
}

impl Row {
    /// The rate of the local timer's interrupts over that of the tick. `None` if one of them is unknown.
    fn relative_rate(&self) -> Option<f64> {
        Some(self.timer_rate_hz? / self.tick_hz?)
    }

    /// Ticks per second, or the most that there can be. `None` if a rate is unknown.
    fn tick_rate_hz(&self) -> Option<f64> {
        Some(self.timer_rate_hz?.min(self.tick_hz?))
    }

    /// Whether there may be fewer ticks than [`Row::tick_rate_hz`].
    fn is_upper_bound(&self) -> Option<bool> {
        Some((self.relative_rate()? - 1.0).abs() > RATE_DIFFERENCE_MAX)
    }

    /// Whether timers of programs expired in interrupts of the local timer.
    fn has_other_timers(&self) -> bool {
        self.relative_rate().is_some_and(|rate| rate > 1.0 + RATE_DIFFERENCE_MAX)
    }

    /// Share of the CPU that interrupts at this rate cost.
    fn cpu_ratio(&self, rate_hz: f64) -> f64 {
        rate_hz * (self.cost.direct.mean + self.cost.indirect.mean) / 1e9
    }

    /// Share of the CPU that ticks cost. `None` if their rate is unknown, or other timers are in the costs.
    fn tick_cpu_ratio(&self) -> Option<f64> {
        let rate_hz = self.tick_rate_hz().filter(|_| !self.has_other_timers());
        rate_hz.map(|rate_hz| self.cpu_ratio(rate_hz))
    }

    /// Why the share of the CPU that ticks cost is absent. `None` if it is not.
    fn absence(&self) -> Option<Absence> {
        if self.timer_rate_hz.is_none() || self.tick_cpu_ratio().is_some() {
            return None;
        }
        let subject = format!("the share of the CPU that the tick costs on CPU {}", self.cpu);
        let Some((timer_rate_hz, tick_hz)) = self.timer_rate_hz.zip(self.tick_hz) else {
            return Some(Absence::new(TABLE, subject, "the rate of the kernel's tick is unknown"));
        };
        let reason = format!(
            "{timer_rate_hz:.0} interrupts of the local timer came per second, at most {tick_hz:.0} of them ticks: the \
             others are timers of programs, and the costs are those of both"
        );
        let absence = Absence::new(TABLE, subject, reason);
        Some(
            absence
                .with_remedy(Some("measure without programs that sleep or set timers on this CPU")),
        )
    }
}

fn columns<'a>() -> Columns<'a, Row> {
    Columns::all([
        cpu_column(100).of(|row: &Row| row.cpu),
        column(
            "tick_rate_hz",
            "Ticks per second of the window of the loop fwq: the interrupts of the local timer while the loop had the CPU, \
             and no more than the kernel's tick rate. An upper bound where is_upper_bound holds.",
        )
        .bound("is_upper_bound", "≤")
        .shown_as("ticks", 99)
        .real(|row: &Row| row.tick_rate_hz()),
        column(
            "direct_mean_ns",
            "Direct cost of an interrupt of the local timer: its mean time, with its softirqs, in a quantum that it \
             alone interrupted. It is that of a tick unless timer_rate_hz exceeds tick_rate_hz.",
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
            "Indirect cost of an interrupt of the local timer: mean excess of such a quantum over an \
             undisturbed quantum, without the direct cost. It consists of kernel entry and exit, and cache and TLB \
             pollution.",
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
            "Share of the CPU that ticks cost: tick_rate_hz times the sum of both costs. An upper bound where \
             is_upper_bound holds. Absent if timers of programs expired, too: the costs are then those of both.",
        )
        .bound("is_upper_bound", "≤")
        .shown_as("of the CPU", 96)
        .real(|row: &Row| row.tick_cpu_ratio()),
        column(
            "timer_rate_hz",
            "Interrupts of the local timer while the loop had the CPU, per second of the window: ticks, and expired timers \
             of programs.",
        )
        .shown_as("timer interrupts", 70)
        .real(|row: &Row| row.timer_rate_hz),
        column(
            "timer_cpu_ratio",
            "Share of the CPU that all these interrupts cost: timer_rate_hz times the sum of both costs.",
        )
        .shown_as("all of the CPU", 65)
        .real(|row: &Row| row.timer_rate_hz.map(|rate_hz| row.cpu_ratio(rate_hz))),
        column(
            "is_upper_bound",
            "Whether there may be fewer ticks than tick_rate_hz: timer_rate_hz differs from the kernel's tick rate by more \
             than a tenth, and the kernel does not say which of the interrupts are ticks.",
        )
        .detail()
        .bool(|row: &Row| row.is_upper_bound()),
        column(
            "quantum_count",
            "Quanta of fixed work (fwq) that only one interrupt of the local timer interrupted, of the quanta that are kept: \
             the first 10,000.",
        )
        .shown_as("quanta", 60)
        .uint(|row: &Row| row.cost.direct.count),
        column(
            "undisturbed_count",
            "Quanta that nothing interrupted, of the quanta that are kept: the first 10,000.",
        )
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
    if fwq().all(|sample| sample.cpus.is_empty()) {
        let reason = "no window of the loop fwq was measured";
        return (table(Vec::new()), vec![Absence::new(TABLE, subject, reason)]);
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
                    let per_second = |count: u64| count as f64 * 1e9 / cpu.window_ns as f64;
                    let has_window = cpu.window_ns > 0;
                    let timer_rate_hz =
                        if has_window { cpu.timer_count.map(per_second) } else { None };
                    rows.push(Row { cpu: cpu.cpu, timer_rate_hz, tick_hz: sample.tick_hz, cost });
                }
                Err(reason) => match absent.iter_mut().find(|(known, _)| *known == reason) {
                    Some((_, cpus)) => cpus.push(cpu.cpu),
                    None => absent.push((reason, vec![cpu.cpu])),
                },
            }
        }
    }
    let to_absence = |(reason, cpus): (&str, Vec<u32>)| {
        Absence::new(TABLE, format!("{subject} on {}", cpu_list_with_noun(&cpus)), reason)
    };
    let mut absences: Vec<Absence> = absent.into_iter().map(to_absence).collect();
    absences.extend(rows.iter().filter_map(Row::absence));
    (table(rows), absences)
}

impl ContextName {
    /// Whether the context is the interrupt of the local timer: the tick, or the expiry of other timers.
    #[must_use]
    pub fn is_local_timer(&self) -> bool {
        matches!(self, ContextName::Context(context) if context.name == LOCAL_TIMER)
    }

    fn is_softirq(&self) -> bool {
        matches!(self, ContextName::Context(context) if context.kind == ContextKind::Softirq)
    }
}

/// Whether one interrupt of the local timer and its softirqs alone interrupted a quantum. `entered`: the contexts that started in
/// the quantum.
fn is_of_one_timer(entered: &[u32], names: &[ContextName]) -> bool {
    let name = |number: &u32| names.get(*number as usize);
    match entered {
        [first, others @ ..] => {
            name(first).is_some_and(ContextName::is_local_timer)
                && others.iter().all(|number| name(number).is_some_and(ContextName::is_softirq))
        }
        [] => false,
    }
}

/// The cost of a tick, ns.
struct Cost {
    /// Time of kernel contexts in a quantum that only one tick interrupted.
    direct: Mean,
    /// The loop's own time in such a quantum, minus the time of an undisturbed quantum.
    indirect: Mean,
    undisturbed_count: u64,
}

/// Compares quanta that only one tick interrupted with undisturbed quanta. The error says why the cost is unknown.
fn cost(fixed: &Fixed, sample: &NoiseSample) -> Result<Cost, &'static str> {
    let has_no_fault = |quantum: &&Quantum| quantum.faulted != Some(true);
    let (mut direct, mut own, mut undisturbed) = (Vec::new(), Vec::new(), Vec::new());
    for quantum in fixed.first.iter().filter(has_no_fault) {
        match (quantum.attributed_ns, &quantum.entered) {
            (Some(0), _) => undisturbed.push(quantum.time_ns),
            (Some(taken_ns), Some(entered)) if is_of_one_timer(entered, &sample.names) => {
                direct.push(taken_ns);
                own.push(quantum.time_ns.saturating_sub(taken_ns));
            }
            _ => {}
        }
    }
    if direct.is_empty() {
        return Err("no quantum was interrupted by one tick alone (try a longer window, -d, or a \
                    shorter --quantum)");
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
    use attribution::Context;

    use super::super::super::sample::CpuNoise;
    use super::super::super::split::Part;
    use super::*;

    const TICK_NUMBER: u32 = 0;
    const SOFTIRQ: u32 = 1;
    const OTHER_INTERRUPT: u32 = 2;

    fn sample(cpus: Vec<CpuNoise>) -> NoiseSample {
        let context = |kind, number, name: &str| {
            ContextName::Context(Context { kind, number, name: name.to_owned() })
        };
        NoiseSample {
            names: vec![
                context(ContextKind::Vector, 236, LOCAL_TIMER),
                context(ContextKind::Softirq, 9, "RCU"),
                context(ContextKind::Vector, 253, "reschedule"),
            ],
            ..NoiseSample::in_exact_clock(Loop::Fwq, cpus)
        }
    }

    /// A quantum in which these contexts started and took `taken_ns` in all.
    fn quantum(time_ns: u64, taken_ns: u64, entered: &[u32]) -> Quantum {
        let mut quantum = Quantum { faulted: Some(false), ..Quantum::untraced(0, time_ns) };
        quantum.attribute(
            &mut [(Part::Context(TICK_NUMBER), taken_ns)],
            Some(entered.iter().copied()),
        );
        quantum
    }

    #[test]
    fn the_cost_is_what_a_quantum_with_one_tick_takes_longer() {
        let mut fixed = Fixed::default();
        for round in 0..10 {
            fixed.first.push(quantum(100_000, 0, &[]));
            let time_ns = 103_500 + round % 2;
            fixed.first.push(quantum(time_ns, 3_000, &[TICK_NUMBER, SOFTIRQ, SOFTIRQ]));
            // Not the cost of one tick.
            for entered in [
                &[OTHER_INTERRUPT][..],
                &[OTHER_INTERRUPT, TICK_NUMBER],
                &[TICK_NUMBER, TICK_NUMBER],
                &[TICK_NUMBER, SOFTIRQ, TICK_NUMBER],
            ] {
                fixed.first.push(quantum(150_000, 9_000, entered));
            }
            // Another task ran after the tick.
            let with_task = Quantum { entered: None, ..quantum(150_000, 9_000, &[TICK_NUMBER]) };
            fixed.first.push(with_task);
        }
        let cost = cost(&fixed, &sample(Vec::new())).unwrap();
        assert_eq!((cost.direct.count, cost.undisturbed_count), (10, 10));
        assert_eq!(cost.direct.mean, 3_000.0);
        assert!((cost.indirect.mean - 500.5).abs() < 1e-6, "{:?}", cost.indirect);
    }

    /// Table `tick` of a CPU with this number of local timer interrupts in 2 s, and the absences.
    fn tick_of(timer_count: Option<u64>, tick_hz: Option<f64>) -> (Table, Vec<Absence>) {
        let first = vec![quantum(100, 0, &[]), quantum(18_480, 9_420, &[TICK_NUMBER])];
        let fixed = LoopResult::Quanta(Box::new(Fixed { first, ..Fixed::default() }));
        let cpu = CpuNoise { timer_count, ..CpuNoise::new(1, 0, 2_000_000_000, fixed) };
        let traced = Some(super::super::super::sample::Traced::default());
        tick(&[NoiseSample { traced, tick_hz, ..sample(vec![cpu]) }])
    }

    #[test]
    fn the_rate_is_that_of_the_tick_and_no_more_than_the_kernels() {
        let cells = |timer_count, tick_hz| {
            let (table, absent) = tick_of(timer_count, tick_hz);
            let cell = |name: &str| table.get(&table.rows()[0], name).cloned().unwrap();
            let cells = ["tick_rate_hz", "is_upper_bound", "timer_rate_hz"].map(cell);
            let has_ratio = cell("tick_cpu_ratio") != record::Value::Absent;
            (cells, has_ratio, absent.iter().map(|absence| absence.reason.clone()).collect())
        };
        let absent = || record::Value::Absent;
        let expected = |rate: f64, is_bound: bool, timers: f64, has_ratio: bool| {
            ([rate.into(), is_bound.into(), timers.into()], has_ratio, Vec::<String>::new())
        };
        assert_eq!(cells(Some(500), Some(250.0)), expected(250.0, false, 250.0, true));
        // The loop had the CPU for half of the time, or another program's timers expired.
        assert_eq!(cells(Some(250), Some(250.0)), expected(125.0, true, 125.0, true));
        let (rates, has_ratio, reasons) = cells(Some(2_256), Some(250.0));
        assert_eq!((&rates, has_ratio), (&expected(250.0, true, 1_128.0, false).0, false));
        assert!(
            reasons[0]
                .starts_with("1128 interrupts of the local timer came per second, at most 250")
        );
        let (rates, has_ratio, reasons) = cells(Some(500), None);
        assert_eq!((rates, has_ratio), ([absent(), absent(), 250.0.into()], false));
        assert_eq!(reasons, ["the rate of the kernel's tick is unknown"]);
        assert_eq!(cells(None, Some(250.0)), ([absent(), absent(), absent()], false, vec![]));
    }

    #[test]
    fn what_lacks_has_a_reason() {
        let cost = |quanta: &[Quantum]| {
            let fixed = Fixed { first: quanta.to_vec(), ..Fixed::default() };
            super::cost(&fixed, &sample(Vec::new())).err().unwrap_or_default()
        };
        assert!(cost(&[quantum(100, 0, &[])]).contains("no quantum was interrupted by one tick"));
        let interrupted = quantum(100, 10, &[TICK_NUMBER]);
        assert!(cost(&[interrupted]).contains("every quantum was interrupted"));
        let (table, absent) = tick(&[]);
        assert!(table.rows().is_empty() && absent[0].reason == "the loop fwq did not run");
        let (_, absent) = tick(&[sample(Vec::new())]);
        assert_eq!(absent[0].reason, "no window of the loop fwq was measured");
        let quanta = LoopResult::Quanta(Box::default());
        let (_, absent) = tick(&[sample(vec![CpuNoise::new(1, 0, 2_000_000_000, quanta)])]);
        assert!(absent[0].reason.contains("without probes"), "{absent:?}");
    }
}
