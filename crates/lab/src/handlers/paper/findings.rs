//! The paper's findings, each judged by the simulated machines and, where the paper has numbers, by its own.

use record::Table;

use super::super::condition::{Load, Rate, Stimulus};
use super::interrupt::ModelRun;
use super::published::{Family, Paper};
use super::tables::{Quantity, STIMULI};
use crate::judge::{Figure, Finding, FindingsTable, Judged, Known, exactly, greater};

const TABLE: FindingsTable = FindingsTable {
    subject: "What the finding is about: stimulus, load, machines.",
    evidence: "Both sides, with the half widths of their 95 % confidence intervals: cycles, ns, or ratios.",
    has_models: true,
    ..FindingsTable::SIMULATED
};

/// A Pentium 4 takes this many times the cycles of a Pentium II or III (section 4.1).
const CYCLES_FACTOR: f64 = 2.0;

/// The mean of several figures, each of a window of its own.
fn mean_of(figures: impl IntoIterator<Item = Known>) -> Known {
    let all = figures.into_iter().collect::<Result<Vec<Figure>, String>>()?;
    if all.is_empty() {
        return Err("not measured".to_owned());
    }
    let count = all.len() as f64;
    let half_width = all.iter().map(|figure| figure.half_width.powi(2)).sum::<f64>().sqrt();
    let mean = all.iter().map(|figure| figure.mean).sum::<f64>();
    Ok(Figure { mean: mean / count, half_width: half_width / count })
}

/// Both loads with both rates.
fn conditions() -> impl Iterator<Item = (Load, Rate)> {
    Load::ALL.iter().flat_map(|load| Rate::ALL.iter().map(|rate| (*load, *rate)))
}

/// A figure of a condition; which one, the caller says.
type Ask<'a> = dyn Fn(&ModelRun, (Load, Rate, Stimulus)) -> Known + 'a;

/// The mean of a figure over the four conditions of a stimulus.
fn over_conditions(run: &ModelRun, stimulus: Stimulus, ask: &Ask<'_>) -> Known {
    mean_of(conditions().map(|(load, rate)| ask(run, (load, rate, stimulus))))
}

struct Sides<'a> {
    paper: &'a Paper,
    runs: &'a [ModelRun],
}

impl Sides<'_> {
    fn run(&self, model: &str) -> Option<&ModelRun> {
        self.runs.iter().find(|run| run.model == model)
    }

    fn of_family(&self, family: Family) -> impl Iterator<Item = &ModelRun> {
        let is_of = move |run: &&ModelRun| {
            self.paper.machine(&run.model).is_some_and(|machine| machine.family == family)
        };
        self.runs.iter().filter(is_of)
    }

    /// The mean of a figure over a family and over the conditions of a stimulus.
    fn family_mean(&self, family: Family, stimulus: Stimulus, ask: &Ask<'_>) -> Known {
        mean_of(self.of_family(family).map(|run| over_conditions(run, stimulus, ask)))
    }

    /// Neighbours by their clocks, the slower one first, of those machines that were simulated.
    fn neighbours(&self, family: Option<Family>) -> Vec<(&ModelRun, &ModelRun)> {
        let machines = self.paper.machines.iter();
        let of = machines.filter(|machine| family.is_none_or(|family| machine.family == family));
        let runs: Vec<&ModelRun> = of.filter_map(|machine| self.run(&machine.model)).collect();
        runs.windows(2).map(|pair| (pair[0], pair[1])).collect()
    }

    /// Sections 4.1, 4.2, 4.5: Pentium 4 compared with Pentium II and III.
    fn families(&self) -> Vec<Finding> {
        let cycles: &Ask<'_> = &|run, of| run.figure(Quantity::Cycles, of);
        let branches: &Ask<'_> = &|run, of| run.figure(Quantity::BranchMisses, of);
        let time: &Ask<'_> = &ModelRun::time_ns;
        let mut all = Vec::new();
        for stimulus in STIMULI {
            let family = |family, ask| self.family_mean(family, stimulus, ask);
            all.push(finding(
                "a Pentium 4 takes twice the cycles",
                stimulus.word(),
                "mean cycles of Pentium 4 > 2 x those of Pentium II and III",
                greater(
                    family(Family::P4, cycles),
                    times(family(Family::P6, cycles), CYCLES_FACTOR),
                ),
            ));
            all.push(finding(
                "a Pentium 4 predicts branches worse",
                stimulus.word(),
                "mean misprediction ratio of Pentium 4 > that of Pentium II and III",
                greater(family(Family::P4, branches), family(Family::P6, branches)),
            ));
            let Some(fastest) = self.of_family(Family::P6).last() else { continue };
            for run in self.of_family(Family::P4) {
                all.push(finding(
                    "the fastest Pentium III beats a Pentium 4",
                    format!("{stimulus}, {} and {}", run.model, fastest.model),
                    "time of the Pentium 4 > that of the Pentium III",
                    greater(
                        over_conditions(run, stimulus, time),
                        over_conditions(fastest, stimulus, time),
                    ),
                ));
            }
        }
        all
    }

    /// Sections 4.2 and 4.3: a faster clock.
    fn clocks(&self) -> Vec<Finding> {
        let ipc: &Ask<'_> = &|run, of| run.figure(Quantity::InstructionsPerCycle, of);
        let mut all = Vec::new();
        for stimulus in STIMULI {
            let mean = |run, ask: &Ask<'_>| over_conditions(run, stimulus, ask);
            for (slower, faster) in self.neighbours(Some(Family::P6)) {
                all.push(finding(
                    "a faster clock makes interrupts shorter",
                    format!("{stimulus}, {} and {}", slower.model, faster.model),
                    "time with the slower clock > with the faster one",
                    greater(mean(slower, &ModelRun::time_ns), mean(faster, &ModelRun::time_ns)),
                ));
            }
            for (slower, faster) in self.neighbours(None) {
                all.push(finding(
                    "a faster clock lowers instructions per cycle",
                    format!("{stimulus}, {} and {}", slower.model, faster.model),
                    "IPC with the slower clock > with the faster one",
                    greater(mean(slower, ipc), mean(faster, ipc)),
                ));
            }
        }
        all
    }

    /// Sections 4.1, 4.3, 4.5, 4.6: conditions of one machine.
    fn of_one(&self, run: &ModelRun) -> Vec<Finding> {
        let ask = |quantity, of| run.figure(quantity, of);
        let cycles: &Ask<'_> = &|run, of| run.figure(Quantity::Cycles, of);
        let mean = |stimulus| over_conditions(run, stimulus, cycles);
        let mut all = vec![finding(
            "a network interrupt costs more than one of a disk",
            "all conditions",
            "mean cycles, net > disk",
            greater(mean(Stimulus::Net), mean(Stimulus::Disk)),
        )];
        let is_p4 = self.paper.machine(&run.model).is_some_and(|it| it.family == Family::P4);
        for &load in Load::ALL {
            let net = |quantity, rate| ask(quantity, (load, rate, Stimulus::Net));
            all.push(finding(
                "frequent network interrupts have more instructions per cycle",
                format!("net, {load}"),
                "IPC at the high rate > at the low one",
                greater(
                    net(Quantity::InstructionsPerCycle, Rate::High),
                    net(Quantity::InstructionsPerCycle, Rate::Low),
                ),
            ));
            if is_p4 {
                all.push(finding(
                    "a Pentium 4 predicts frequent network interrupts well",
                    format!("net, {load}"),
                    "misprediction ratio at the low rate > at the high one",
                    greater(
                        net(Quantity::BranchMisses, Rate::Low),
                        net(Quantity::BranchMisses, Rate::High),
                    ),
                ));
            }
        }
        for stimulus in STIMULI {
            let quiet = (Load::Idle, Rate::Low, stimulus);
            all.push(self.data_misses(
                run,
                "load raises data misses",
                "L1D miss ratio, busy/low > idle/low",
                ((Load::Busy, Rate::Low, stimulus), quiet),
            ));
            all.push(self.data_misses(
                run,
                "a high rate raises data misses on an idle machine",
                "L1D miss ratio, idle/high > idle/low",
                ((Load::Idle, Rate::High, stimulus), quiet),
            ));
        }
        for one in &mut all {
            one.model = Some(run.model.clone());
        }
        all
    }

    fn data_misses(
        &self,
        run: &ModelRun,
        name: &'static str,
        claim: &str,
        (more, less): ((Load, Rate, Stimulus), (Load, Rate, Stimulus)),
    ) -> Finding {
        let quantity = Quantity::L1dMisses;
        let published = |of| quantity.published(self.paper, &run.model, of).map(exactly);
        let both = published(more).zip(published(less));
        Finding {
            published: both.map(|(more, less)| greater(Ok(more), Ok(less))),
            ..finding(
                name,
                less.2.word(),
                claim,
                greater(run.figure(quantity, more), run.figure(quantity, less)),
            )
        }
    }
}

fn times(figure: Known, factor: f64) -> Known {
    figure
        .map(|figure| Figure { mean: figure.mean * factor, half_width: figure.half_width * factor })
}

fn finding(
    name: &'static str,
    subject: impl Into<String>,
    claim: &str,
    measured: Judged,
) -> Finding {
    let (subject, claim) = (subject.into(), claim.to_owned());
    Finding { name, model: None, subject, claim, measured, published: None }
}

/// All findings. That 15 to 30 % of the decoded instructions do not complete (section 4.4) is not judged:
/// the simulated cores execute no wrong path.
#[must_use]
pub fn findings(paper: &Paper, runs: &[ModelRun]) -> Table {
    let sides = Sides { paper, runs };
    let mut all = sides.families();
    all.extend(sides.clocks());
    all.extend(runs.iter().flat_map(|run| sides.of_one(run)));
    let wrong_path = "the simulated cores execute no wrong path".to_owned();
    all.push(finding(
        "15 to 30 % of the decoded instructions do not complete",
        "all machines",
        "completion rate in 0.70 to 0.85",
        greater(Err(wrong_path.clone()), Err(wrong_path)),
    ));
    TABLE.of(all)
}

#[cfg(test)]
mod tests {
    use attribution::{Context, ContextKind};
    use record::Value;
    use stats::{Batches, JointBatch};

    use super::super::super::bench::Pass;
    use super::super::super::condition::Condition;
    use super::super::super::sample::{ContextStats, EventSums, Timing, WindowSample};
    use super::super::super::samples::{ConditionSamples, Samples};
    use super::super::tables::paper;
    use super::*;
    use crate::experiment::{Absence, Measured};

    const EVENTS: [&str; 10] = [
        "cycles",
        "instructions",
        "branches",
        "branch-misses",
        "L1-icache-loads",
        "L1-icache-load-misses",
        "L1-dcache-loads",
        "L1-dcache-stores",
        "L1-dcache-load-misses",
        "L1-dcache-store-misses",
    ];
    /// Batches of a window, with one span each.
    const SPANS: u64 = 16;

    /// A context in which each span takes `cycles`, 2 more in every other one.
    fn context(kind: ContextKind, name: &str, cycles: u64) -> ContextStats {
        let of =
            |cycles: u64| -> Vec<u64> { vec![cycles, cycles / 4, 100, 5, 200, 10, 60, 40, 3, 1] };
        let cell = |at: u64| {
            let sums = of(cycles + at % 2 * 2).into_iter().map(|sum| sum as i64).collect();
            JointBatch { count: 1, sums }
        };
        let cells: Vec<JointBatch> = (0..SPANS).map(cell).collect();
        let total = |at: usize| cells.iter().map(|cell| cell.sums[at] as u64).sum();
        let own: Vec<u64> = (0..EVENTS.len()).map(total).collect();
        let context = Context { kind, number: 0, name: name.to_owned() };
        ContextStats {
            events: EventSums {
                spans: SPANS,
                inclusive: own.clone(),
                own,
                batches: Batches { shift: 20, cells },
                ..EventSums::default()
            },
            ..ContextStats::new(0, context, Timing::Simulator, SPANS)
        }
    }

    /// Interrupts that take `cycles` in all; the timer's are none of the device's.
    fn run(model: &str, clock_hz: u64, cycles: u64) -> ModelRun {
        let window = || WindowSample {
            contexts: vec![
                context(ContextKind::Vector, "local_timer", 70_000),
                context(ContextKind::Vector, "vector 0x27", cycles / 2),
                context(ContextKind::HardIrq, "ata_piix", cycles / 4),
                context(ContextKind::Softirq, "BLOCK", cycles / 4),
                context(ContextKind::Softirq, "TIMER", 90_000),
            ],
            ..WindowSample::default()
        };
        let of = |condition| ConditionSamples {
            condition,
            timing: window(),
            events: vec![(1, window())],
        };
        let events = EVENTS.map(str::to_owned).to_vec();
        let samples = Samples {
            conditions: Condition::combinations(Load::ALL, Rate::ALL, &STIMULI)
                .into_iter()
                .map(of)
                .collect(),
            passes: vec![Pass::default(), Pass { events }],
            ..Samples::default()
        };
        ModelRun { model: model.to_owned(), clock_hz, measured: Measured::new(samples) }
    }

    fn verdicts(runs: &[ModelRun], name: &str) -> Vec<(String, String)> {
        let table = findings(&Paper::handlers_ia32().unwrap(), runs);
        let text = |row: &[Value], column: &str| match table.get(row, column) {
            Some(Value::Text(text)) => text.to_string(),
            _ => String::new(),
        };
        let rows = table.rows().iter().filter(|row| text(row, "finding") == name);
        rows.map(|row| (text(row, "verdict"), text(row, "published_verdict"))).collect()
    }

    #[test]
    fn an_interrupt_is_its_entry_its_handler_and_its_softirqs() {
        let run = run("p2-333", 333_000_000, 4_000);
        let of = (Load::Idle, Rate::Low, Stimulus::Disk);
        // Three contexts, in half of whose spans there are 2 cycles more: 3 on average.
        let cycles = run.figure(Quantity::Cycles, of).unwrap();
        assert_eq!(cycles.mean, 4_003.0);
        assert!(cycles.half_width.is_finite() && cycles.half_width < 10.0, "{cycles:?}");
        assert_eq!(run.interrupts(of.0, of.1, of.2).unwrap().count, SPANS);
        let ns = run.time_ns(of).unwrap().mean;
        assert!((ns - 4_003.0 / 0.333).abs() < 1e-6, "{ns}");
        assert_eq!(run.figure(Quantity::L1dMisses, of).unwrap().mean, 0.04);
    }

    #[test]
    fn machines_are_compared_by_cycles_and_by_time() {
        let slow = run("p3-1266", 1_266_000_000, 10_000);
        let of = |cycles| [run("p4-1800", 1_800_000_000, cycles)];
        let twice = "a Pentium 4 takes twice the cycles";
        let beats = "the fastest Pentium III beats a Pentium 4";
        let both = |cycles| {
            let [fast] = of(cycles);
            let runs = [run("p3-1266", 1_266_000_000, 10_000), fast];
            [twice, beats].map(|name| verdicts(&runs, name)[0].0.clone())
        };
        assert_eq!(both(30_000), ["holds", "holds"]);
        assert_eq!(both(15_000), ["fails", "holds"]);
        assert_eq!(both(12_000), ["fails", "fails"]);
        // Without a machine of the other kind there is nothing to compare.
        assert_eq!(verdicts(&[slow], twice)[0].0, "not judged");
    }

    #[test]
    fn published_ratios_are_judged_alike() {
        let runs = [run("p2-450", 450_000_000, 4_000), run("p3-600", 600_000_000, 4_000)];
        // Table 2, P2-450: net 4.246 to 3.792 %, disk 1.063 to 7.635 %. The simulated ratios are equal.
        let all = verdicts(&runs, "load raises data misses");
        let published: Vec<&str> = all.iter().map(|(_, published)| published.as_str()).collect();
        assert_eq!(published, ["fails", "holds", "", ""]);
        assert!(all.iter().all(|(simulated, _)| simulated == "not judged"));
    }

    #[test]
    fn a_condition_that_was_not_measured_has_its_reason() {
        let mut one = run("p2-450", 450_000_000, 4_000);
        let label = Condition::Made { load: Load::Idle, rate: Rate::Low, stimulus: Stimulus::Net };
        one.measured.samples.conditions.retain(|sample| sample.condition != label);
        one.measured.absent.push(Absence {
            table: "handlers".to_owned(),
            what: label.label(),
            reason: "no card".to_owned(),
            remedy: None,
        });
        let table = paper(&Paper::handlers_ia32().unwrap(), &[one]);
        let row = &table.rows()[0];
        assert_eq!(table.get(row, "reason"), Some(&Value::from("no card")));
        assert_eq!(table.get(row, "cycles"), Some(&Value::Absent));
        // The published figures are there all the same.
        assert_eq!(table.get(row, "published_l1d_miss_ratio"), Some(&Value::from(4.246 / 100.0)));
    }
}
