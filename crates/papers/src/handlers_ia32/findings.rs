//! The findings of `handlers-ia32` as claims about means over machines and conditions. They are judged on simulated
//! machines, and on the paper's figures if the paper has numbers for them.

use lab::handlers::{Load, Rate, Stimulus};
use record::Table;

use super::interrupt::ModelRun;
use super::published::{Family, Paper, PaperMachine};
use super::tables::{Quantity, STIMULI, conditions};
use crate::judge::{
    Claim, Figure, Figures, FindingsTable, Known, Reason, Selection, Side, Test, Unit,
    WITHOUT_MODELS, exactly,
};

const TABLE: FindingsTable = FindingsTable {
    subject: "What the finding is about: stimulus, load, machines.",
    evidence: "Both sides, with the half widths of their 95 % confidence intervals.",
    has_models: true,
    command: WITHOUT_MODELS,
    interval_option: Some("-d 1s"),
    ..FindingsTable::SIMULATED
};

/// Why claims that compare with SPEC95 are not judged.
const NO_SPEC95: &str = "the paper has no figures of SPEC95: they are in its reference [3] alone";

/// Section 4.3: interrupts execute at least this factor fewer instructions per cycle than SPEC95, and at most
/// [`SPEC95_FACTOR_MAX`].
const SPEC95_FACTOR_MIN: f64 = 5.0;
const SPEC95_FACTOR_MAX: f64 = 20.0;
/// Section 4.4: smallest and largest share of the decoded instructions that do not complete.
const LOST_RATIOS: [f64; 2] = [0.15, 0.30];

/// Section 4.5: the misprediction ratio is "not significantly higher" than in SPEC95. A ratio of both below this limit
/// counts as that.
const NOT_HIGHER_FACTOR: f64 = 1.1;

/// Section 4.1: a Pentium 4 takes at least this factor more cycles than a Pentium II or III.
const CYCLES_FACTOR: f64 = 2.0;

/// A figure that claims compare.
#[derive(Clone)]
enum Cell<'a> {
    /// The mean of a machine over conditions.
    Mean(Quantity, &'a ModelRun, Vec<(Load, Rate, Stimulus)>),
    /// The mean over all machines of a family of a machine's mean over conditions.
    FamilyMean(Quantity, FamilyRuns<'a>, Vec<(Load, Rate, Stimulus)>),
    /// Decoded instructions that do not complete, as a share of all decoded instructions.
    LostInstructions,
    /// The ratio of interrupts' and SPEC95's figures on a Pentium Pro.
    ComparedWithSpec95,
}

/// The runs of a family's machines.
#[derive(Clone)]
struct FamilyRuns<'a> {
    /// In the order of measurement.
    simulated: Vec<&'a ModelRun>,
    /// The models of the paper's machines without a run, of all families: a claim compares both families.
    missing: Vec<String>,
}

type Claims<'a> = Vec<Claim<Cell<'a>>>;

impl Figures<Cell<'_>> for Paper {
    fn unit(&self, cell: &Cell<'_>) -> Unit {
        match cell {
            Cell::Mean(quantity, ..) | Cell::FamilyMean(quantity, ..) => quantity.unit(),
            Cell::LostInstructions => Unit::PERCENT,
            Cell::ComparedWithSpec95 => Unit::RATIO,
        }
    }

    fn measured_figure(&self, cell: &Cell<'_>) -> Known {
        match cell {
            Cell::Mean(quantity, run, conditions) => machine_mean(*quantity, run, conditions),
            // The mean of some machines is not the mean of their family.
            Cell::FamilyMean(_, FamilyRuns { missing, .. }, _) if !missing.is_empty() => {
                Err(Reason::not_measured(&missing.join(", "), ""))
            }
            Cell::FamilyMean(quantity, FamilyRuns { simulated, .. }, conditions) => {
                mean_of(simulated.iter().map(|run| machine_mean(*quantity, run, conditions)))
            }
            Cell::LostInstructions => Err("the simulated cores execute no wrong path".into()),
            Cell::ComparedWithSpec95 => Err(NO_SPEC95.into()),
        }
    }

    fn is_in_paper(&self, cell: &Cell<'_>) -> bool {
        match cell {
            Cell::Mean(_, run, _) => self.machine(&run.model).is_some(),
            Cell::FamilyMean(..) | Cell::LostInstructions | Cell::ComparedWithSpec95 => true,
        }
    }

    /// The paper's number for a single machine and condition. `None` for means over several of them: the paper has none.
    fn published(&self, cell: &Cell<'_>) -> Option<Known> {
        let Cell::Mean(quantity, run, conditions) = cell else { return None };
        let &[condition] = &conditions[..] else { return None };
        quantity.published(self, &run.model, condition).map(|ratio| Ok(exactly(ratio)))
    }
}

/// The mean of a machine over conditions.
fn machine_mean(
    quantity: Quantity,
    run: &ModelRun,
    conditions: &[(Load, Rate, Stimulus)],
) -> Known {
    mean_of(conditions.iter().map(|condition| run.figure(quantity, *condition)))
}

/// The mean of several figures from different windows, with independent errors.
fn mean_of(figures: impl IntoIterator<Item = Known>) -> Known {
    let figures = figures.into_iter().collect::<Result<Vec<Figure>, Reason>>()?;
    if figures.is_empty() {
        return Err(Reason::not_measured("", ""));
    }
    let count = figures.len() as f64;
    let half_width = figures.iter().map(|figure| figure.half_width.powi(2)).sum::<f64>().sqrt();
    let sum = figures.iter().map(|figure| figure.mean).sum::<f64>();
    Ok(Figure::from_measurement(sum / count, half_width / count))
}

/// The runs of a family.
fn family_runs<'a>(paper: &Paper, runs: &'a [ModelRun], family: Family) -> FamilyRuns<'a> {
    let is_in_family =
        |run: &&ModelRun| paper.machine(&run.model).is_some_and(|machine| machine.family == family);
    let has_no_run = |machine: &&PaperMachine| runs.iter().all(|run| run.model != machine.model);
    let missing = paper.machines.iter().filter(has_no_run);
    FamilyRuns {
        simulated: runs.iter().filter(is_in_family).collect(),
        missing: missing.map(|machine| machine.model.clone()).collect(),
    }
}

/// The run of the paper's fastest Pentium III. `None` if it was not simulated: a slower machine does not stand in for
/// it.
fn fastest_pentium_3<'a>(paper: &Paper, runs: &'a [ModelRun]) -> Option<&'a ModelRun> {
    let mut by_clock = paper.machines.iter().rev();
    let fastest = by_clock.find(|machine| machine.family == Family::P6)?;
    runs.iter().find(|run| run.model == fastest.model)
}

/// Pairs of simulated machines with neighbouring clock frequencies, the slower machine first. `family`: only machines
/// of this family; `None` for all machines.
fn neighbours<'a>(
    paper: &Paper,
    runs: &'a [ModelRun],
    family: Option<Family>,
) -> Vec<[&'a ModelRun; 2]> {
    let machines = paper.machines.iter();
    let machines = machines.filter(|machine| family.is_none_or(|family| machine.family == family));
    let runs: Vec<&ModelRun> =
        machines.filter_map(|machine| runs.iter().find(|run| run.model == machine.model)).collect();
    runs.windows(2).map(|pair| [pair[0], pair[1]]).collect()
}

/// The claim that a quantity's mean over all conditions of a stimulus is greater on the first machine.
fn between_two<'a>(
    finding: &'static str,
    claim: &str,
    stimulus: Stimulus,
    quantity: Quantity,
    [first, second]: [&'a ModelRun; 2],
) -> Claim<Cell<'a>> {
    let side = |run| Side::Cell(Cell::Mean(quantity, run, conditions(stimulus)));
    Claim::new(
        finding,
        format!("{stimulus}, {} and {}", first.model, second.model),
        claim,
        Test::Greater,
        [first, second].map(side),
    )
}

/// Sections 4.1, 4.2, 4.5: Pentium 4 compared with Pentium II and III.
fn between_families<'a>(paper: &Paper, runs: &'a [ModelRun], stimulus: Stimulus) -> Claims<'a> {
    let family = |family| family_runs(paper, runs, family);
    let mean =
        |quantity, machines| Cell::FamilyMean(quantity, family(machines), conditions(stimulus));
    let mut claims = vec![
        Claim::new(
            "a Pentium 4 takes twice the cycles",
            stimulus.word(),
            "mean cycles of Pentium 4 > 2 x mean cycles of Pentium II and III",
            Test::Greater,
            [
                Side::Cell(mean(Quantity::Cycles, Family::P4)),
                Side::Times(CYCLES_FACTOR, mean(Quantity::Cycles, Family::P6)),
            ],
        ),
        Claim::new(
            "a Pentium 4 predicts branches worse",
            stimulus.word(),
            "mean misprediction ratio: Pentium 4 > Pentium II and III",
            Test::Greater,
            [Family::P4, Family::P6]
                .map(|machines| Side::Cell(mean(Quantity::BranchMisses, machines))),
        ),
    ];
    if let Some(fastest) = fastest_pentium_3(paper, runs) {
        claims.extend(family(Family::P4).simulated.into_iter().map(|run| {
            between_two(
                "the fastest Pentium III beats a Pentium 4",
                "time of the Pentium 4 > time of the Pentium III",
                stimulus,
                Quantity::Time,
                [run, fastest],
            )
        }));
    }
    claims
}

/// Sections 4.2 and 4.3: effects of a faster clock.
fn between_clocks<'a>(paper: &Paper, runs: &'a [ModelRun], stimulus: Stimulus) -> Claims<'a> {
    let shorter = neighbours(paper, runs, Some(Family::P6)).into_iter().map(|pair| {
        between_two(
            "a faster clock makes interrupts shorter",
            "time with the slower clock > time with the faster clock",
            stimulus,
            Quantity::Time,
            pair,
        )
    });
    let slower = neighbours(paper, runs, None).into_iter().map(|pair| {
        between_two(
            "a faster clock lowers instructions per cycle",
            "IPC with the slower clock > IPC with the faster clock",
            stimulus,
            Quantity::InstructionsPerCycle,
            pair,
        )
    });
    shorter.chain(slower).collect()
}

/// Sections 4.1, 4.3, 4.5, 4.6: the conditions of one machine compared.
fn between_conditions<'a>(paper: &Paper, run: &'a ModelRun) -> Claims<'a> {
    use Load::{Busy, Idle};
    use Quantity::{BranchMisses, Cycles, InstructionsPerCycle, L1dMisses};
    use Rate::{High, Low};
    let mean = |quantity, conditions| Side::Cell(Cell::Mean(quantity, run, conditions));
    let mut claims = vec![Claim::new(
        "a network interrupt costs more than a disk interrupt",
        "all conditions",
        "mean cycles, net > disk",
        Test::Greater,
        [Stimulus::Net, Stimulus::Disk].map(|stimulus| mean(Cycles, conditions(stimulus))),
    )];
    let is_p4 = paper.machine(&run.model).is_some_and(|machine| machine.family == Family::P4);
    for &load in Load::ALL {
        let net_sides = |quantity, rates: [Rate; 2]| {
            rates.map(|rate| mean(quantity, vec![(load, rate, Stimulus::Net)]))
        };
        claims.push(Claim::new(
            "frequent network interrupts have more instructions per cycle",
            format!("net, {load}"),
            "IPC at the high rate > IPC at the low rate",
            Test::Greater,
            net_sides(InstructionsPerCycle, [High, Low]),
        ));
        claims.extend(is_p4.then(|| {
            Claim::new(
                "a Pentium 4 predicts frequent network interrupts well",
                format!("net, {load}"),
                "misprediction ratio at the low rate > ratio at the high rate",
                Test::Greater,
                net_sides(BranchMisses, [Low, High]),
            )
        }));
    }
    for stimulus in STIMULI {
        for (finding, claim, higher) in [
            ("load raises data misses", "L1D miss ratio, busy/low > idle/low", (Busy, Low)),
            (
                "a high rate raises data misses on an idle machine",
                "L1D miss ratio, idle/high > idle/low",
                (Idle, High),
            ),
        ] {
            let sides = [higher, (Idle, Low)]
                .map(|(load, rate)| mean(L1dMisses, vec![(load, rate, stimulus)]));
            claims.push(Claim::new(finding, stimulus.word(), claim, Test::Greater, sides));
        }
    }
    claims.into_iter().map(|claim| Claim { model: Some(run.model.clone()), ..claim }).collect()
}

/// Claims of the paper that cannot be judged: each has its reason.
fn not_judged<'a>() -> Claims<'a> {
    let within = |finding, claim, cell, [low, high]: [f64; 2]| {
        let sides = [Side::Cell(cell), Side::Number(low), Side::Number(high)];
        Claim::new(finding, "all machines", claim, Test::AboutWithin, sides)
    };
    vec![
        // Section 4.4.
        within(
            "15 to 30 % of the decoded instructions do not complete",
            "share of lost instructions about 15 to 30 %",
            Cell::LostInstructions,
            LOST_RATIOS,
        ),
        // Section 4.3.
        within(
            "interrupts execute fewer instructions per cycle than SPEC95",
            "IPC of SPEC95 / IPC of interrupts about 5 to 20",
            Cell::ComparedWithSpec95,
            [SPEC95_FACTOR_MIN, SPEC95_FACTOR_MAX],
        ),
        // Section 4.5.
        Claim::new(
            "branches are predicted about as well as in SPEC95, or better",
            "all machines",
            format!("misprediction ratio of interrupts / of SPEC95 < {NOT_HIGHER_FACTOR}"),
            Test::Greater,
            [Side::Number(NOT_HIGHER_FACTOR), Side::Cell(Cell::ComparedWithSpec95)],
        ),
    ]
}

/// Table `findings`: all findings.
#[must_use]
pub fn findings(paper: &Paper, runs: &[ModelRun], selection: Selection) -> Table {
    let mut claims = Vec::new();
    claims.extend(STIMULI.into_iter().flat_map(|stimulus| between_families(paper, runs, stimulus)));
    claims.extend(STIMULI.into_iter().flat_map(|stimulus| between_clocks(paper, runs, stimulus)));
    claims.extend(runs.iter().flat_map(|run| between_conditions(paper, run)));
    claims.extend(not_judged());
    TABLE.judge(claims, paper, selection)
}

#[cfg(test)]
mod tests {
    use attribution::{Context, ContextKind};
    use lab::experiment::{Absence, Measured};
    use lab::handlers::{
        Condition, ConditionSamples, ContextStats, EventSums, Pass, Samples, Timing, WindowSample,
    };
    use record::Value;
    use stats::{Batches, JointBatch};

    use super::super::published::L1MissRatios;
    use super::super::tables::paper;
    use super::*;

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
    /// Number of batches of a window. Each has one span.
    const SPANS: u64 = 16;

    /// A context whose spans take alternately `cycles` and `cycles + 2`.
    fn context(kind: ContextKind, name: &str, cycles: u64) -> ContextStats {
        context_with(kind, name, |index| {
            let cycles = (cycles + index % 2 * 2) as i64;
            vec![cycles, cycles / 4, 100, 5, 200, 10, 60, 40, 3, 1]
        })
    }

    /// A context whose spans have these counts of [`EVENTS`], by the index of the span.
    fn context_with(
        kind: ContextKind,
        name: &str,
        counts: impl Fn(u64) -> Vec<i64>,
    ) -> ContextStats {
        let cell = |index: u64| JointBatch { count: 1, sums: counts(index) };
        let cells: Vec<JointBatch> = (0..SPANS).map(cell).collect();
        let total = |event: usize| cells.iter().map(|cell| cell.sums[event] as u64).sum();
        let totals: Vec<u64> = (0..EVENTS.len()).map(total).collect();
        let context = Context { kind, number: 0, name: name.to_owned() };
        ContextStats {
            events: EventSums {
                spans: SPANS,
                inclusive: totals.clone(),
                own: totals,
                batches: Batches { shift: 20, cells },
                ..EventSums::default()
            },
            ..ContextStats::new(0, context, Timing::Simulator, SPANS)
        }
    }

    /// A run whose device interrupts take `cycles` in total. The timer's contexts do not belong to the device.
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
        let samples_of = |condition| ConditionSamples {
            condition,
            timing: window(),
            events: vec![(1, window())],
        };
        let events = EVENTS.map(str::to_owned).to_vec();
        let samples = Samples {
            conditions: Condition::combinations(Load::ALL, Rate::ALL, &STIMULI)
                .into_iter()
                .map(samples_of)
                .collect(),
            passes: vec![Pass::default(), Pass { events }],
            ..Samples::default()
        };
        ModelRun { model: model.to_owned(), clock_hz, measured: Measured::new(samples) }
    }

    fn verdicts(runs: &[ModelRun], name: &str) -> Vec<(String, String)> {
        let table = findings(&Paper::built_in().unwrap(), runs, Selection::Part);
        let text = |row: &[Value], column: &str| match table.get(row, column) {
            Some(Value::Text(text)) => text.to_string(),
            _ => String::new(),
        };
        let rows = table.rows().iter().filter(|row| text(row, "finding") == name);
        rows.map(|row| (text(row, "verdict"), text(row, "published_verdict"))).collect()
    }

    #[test]
    fn an_interrupt_includes_its_entry_its_handler_and_its_softirqs() {
        let run = run("p2-333", 333_000_000, 4_000);
        let condition = (Load::Idle, Rate::Low, Stimulus::Disk);
        // Half of the spans of each of the three contexts take 2 cycles more: on average 3 in total.
        let cycles = run.figure(Quantity::Cycles, condition).unwrap();
        assert_eq!(cycles.mean, 4_003.0);
        assert!(cycles.half_width.is_finite() && cycles.half_width < 10.0, "{cycles:?}");
        let (load, rate, stimulus) = condition;
        assert_eq!(run.interrupts(load, rate, stimulus).unwrap().count, SPANS);
        let ns = run.figure(Quantity::Time, condition).unwrap().mean;
        assert!((ns - 4_003.0 / 0.333).abs() < 1e-6, "{ns}");
        assert_eq!(run.figure(Quantity::L1dMisses, condition).unwrap().mean, 0.04);
    }

    #[test]
    fn machines_are_compared_by_cycles_and_by_time() {
        let twice = "a Pentium 4 takes twice the cycles";
        let beats = "the fastest Pentium III beats a Pentium 4";
        let both = |cycles| {
            let runs = all_machines(10_000, cycles);
            // The first stimulus, and the faster Pentium 4.
            [twice, beats].map(|name| {
                let verdicts = verdicts(&runs, name);
                verdicts[verdicts.len() / STIMULI.len() - 1].0.clone()
            })
        };
        assert_eq!(both(30_000), ["holds", "holds"]);
        assert_eq!(both(15_000), ["fails", "holds"]);
        assert_eq!(both(12_000), ["fails", "fails"]);
    }

    /// A run of each of the paper's machines: of Pentium II and III with `p6_cycles` for an interrupt, of Pentium 4 with
    /// `p4_cycles`.
    fn all_machines(p6_cycles: u64, p4_cycles: u64) -> Vec<ModelRun> {
        let paper = Paper::built_in().unwrap();
        let machine_run = |(machine, mhz): (&PaperMachine, u64)| {
            let cycles = if machine.family == Family::P4 { p4_cycles } else { p6_cycles };
            run(&machine.model, mhz * 1_000_000, cycles)
        };
        paper.machines.iter().zip([333, 450, 600, 1_266, 1_700, 1_800]).map(machine_run).collect()
    }

    #[test]
    fn a_family_without_all_of_its_machines_is_not_judged_and_the_missing_machines_are_named() {
        let all = all_machines(10_000, 30_000);
        let models: Vec<String> = all.iter().map(|run| run.model.clone()).collect();
        let missing = [1, 2, 3, 5].map(|position: usize| models[position].as_str()).join(", ");
        let mut some = all_machines(10_000, 30_000);
        some.retain(|run| run.model == models[0] || run.model == models[4]);
        for finding in ["a Pentium 4 takes twice the cycles", "a Pentium 4 predicts branches worse"]
        {
            let reasons = |selection| {
                let table = findings(&Paper::built_in().unwrap(), &some, selection);
                let is_about =
                    |row: &&Vec<Value>| table.get(row, "finding") == Some(&Value::from(finding));
                let rows = table.rows().iter().filter(is_about);
                let columns = |row: &Vec<Value>| {
                    ["verdict", "reason"].map(|name| table.get(row, name).unwrap().clone())
                };
                rows.map(columns).collect::<Vec<_>>()
            };
            let reason = format!("{}: not measured: {WITHOUT_MODELS} measures all", missing);
            let expected = ["not judged", &reason].map(Value::from);
            assert_eq!(reasons(Selection::Part), vec![expected; STIMULI.len()]);
            // A model that was asked for has failed.
            let failed = format!(
                "{}: not measured, although all was asked for: see the warnings and absences",
                missing
            );
            let expected = ["not judged", &failed].map(Value::from);
            assert_eq!(reasons(Selection::All), vec![expected; STIMULI.len()]);
        }
    }

    #[test]
    fn the_fastest_pentium_3_is_the_same_in_any_order_of_the_models() {
        let beats = "the fastest Pentium III beats a Pentium 4";
        let subjects = |runs: &[ModelRun]| -> Vec<String> {
            let table = findings(&Paper::built_in().unwrap(), runs, Selection::Part);
            let is_about =
                |row: &&Vec<Value>| table.get(row, "finding") == Some(&Value::from(beats));
            let subject = |row: &Vec<Value>| match table.get(row, "subject") {
                Some(Value::Text(text)) => text.to_string(),
                other => panic!("{other:?}"),
            };
            table.rows().iter().filter(is_about).map(subject).collect()
        };
        let fast = || run("p3-1266", 1_266_000_000, 10_000);
        let slow = || run("p2-333", 333_000_000, 4_000);
        let pentium_4 = || run("p4-1800", 1_800_000_000, 30_000);
        let expected = STIMULI.map(|stimulus| format!("{stimulus}, p4-1800 and p3-1266"));
        assert_eq!(subjects(&[slow(), fast(), pentium_4()]), expected);
        assert_eq!(subjects(&[fast(), slow(), pentium_4()]), expected);
        // A Pentium II does not stand in for it.
        assert!(subjects(&[slow(), pentium_4()]).is_empty());
    }

    #[test]
    fn published_ratios_are_judged_like_simulated_ratios() {
        let runs = [run("p2-450", 450_000_000, 4_000), run("p3-600", 600_000_000, 4_000)];
        // Table 2, P2-450: net 4.246 to 3.792 %, disk 1.063 to 7.635 %. The simulated ratios are equal.
        let verdicts = verdicts(&runs, "load raises data misses");
        let published: Vec<&str> =
            verdicts.iter().map(|(_, published)| published.as_str()).collect();
        assert_eq!(published, ["fails", "holds", "", ""]);
        assert!(verdicts.iter().all(|(simulated, _)| simulated == "not judged"));
    }

    /// A run whose interrupts are as the paper says: sections 4.1 to 4.6 for cycles, IPC and branches, and Table 2 for
    /// misses of the first level (that of `p3-1266` where the paper has none). `position`: of the machine in the order
    /// of the clocks.
    fn as_published(published: &Paper, position: u64, clock_hz: u64) -> ModelRun {
        let machine = &published.machines[position as usize];
        let is_p4 = machine.family == Family::P4;
        let mut run = run(&machine.model, clock_hz, 0);
        for samples in &mut run.measured.samples.conditions {
            let Condition::Made { load, rate, stimulus } = samples.condition else { continue };
            let condition = (load, rate, stimulus);
            let L1MissRatios { l1i, l1d } = [&machine.model, "p3-1266"]
                .into_iter()
                .find_map(|model| published.miss_ratios(model, condition))
                .unwrap();
            let is_net = stimulus == Stimulus::Net;
            let is_frequent = rate == Rate::High;
            let cycles = if is_net { 20_000 } else { 10_000 } * if is_p4 { 4 } else { 1 };
            // A faster clock lowers IPC by a tenth; frequent network interrupts raise it.
            let per_mille = 300 - 30 * position + if is_net && is_frequent { 100 } else { 0 };
            let branch_misses = match (is_p4, is_net && is_frequent) {
                (false, _) => 50,
                (true, true) => 80,
                (true, false) => 120,
            };
            let accesses = 100_000;
            let misses = |ratio: f64| (ratio * accesses as f64) as i64;
            let counts = [
                cycles,
                cycles * per_mille as i64 / 1_000,
                1_000,
                branch_misses,
                accesses,
                misses(l1i),
                accesses - 40_000,
                40_000,
                misses(l1d),
                0,
            ];
            let context = context_with(ContextKind::Vector, "vector 0x27", |index| {
                counts.map(|count| count + (index % 2 * 2) as i64).to_vec()
            });
            samples.events =
                vec![(1, WindowSample { contexts: vec![context], ..WindowSample::default() })];
        }
        run
    }

    /// Machines as in the paper agree with it, wherever a claim is judged.
    #[test]
    fn golden() {
        let published = Paper::built_in().unwrap();
        let runs: Vec<ModelRun> = [333, 450, 600, 1_266, 1_700, 1_800]
            .into_iter()
            .zip(0..)
            .map(|(mhz, position)| as_published(&published, position, mhz * 1_000_000))
            .collect();
        let findings = findings(&published, &runs, Selection::All);
        let agreement = |row: &Vec<Value>| findings.get(row, "agreement").cloned();
        let agreements: Vec<_> = findings.rows().iter().map(agreement).collect();
        assert!(!agreements.contains(&Some("disagrees".into())), "{agreements:?}");
        crate::golden::check("handlers_ia32", &[findings, paper(&published, &runs)]);
    }

    #[test]
    fn claims_that_cannot_be_judged_have_their_reasons() {
        let runs = [run("p3-1266", 1_266_000_000, 10_000)];
        let table = findings(&Paper::built_in().unwrap(), &runs, Selection::All);
        let is_about_all =
            |row: &&Vec<Value>| table.get(row, "subject") == Some(&Value::from("all machines"));
        let rows: Vec<_> = table.rows().iter().filter(is_about_all).collect();
        let column = |name: &str| -> Vec<_> {
            rows.iter().map(|row| table.get(row, name).unwrap().clone()).collect()
        };
        assert_eq!(column("verdict"), vec![Value::from("not judged"); 3]);
        assert_eq!(column("agreement"), vec![Value::from("can't tell"); 3]);
        assert_eq!(column("published_verdict"), vec![Value::Absent; 3]);
        let reasons = ["the simulated cores execute no wrong path", NO_SPEC95, NO_SPEC95];
        assert_eq!(column("reason"), reasons.map(Value::from));
    }

    #[test]
    fn branches_may_be_predicted_better_than_in_spec95() {
        let claims = not_judged();
        let branches = claims.iter().find(|claim| claim.finding.contains("branches")).unwrap();
        // The ratio has an upper limit, and no lower one.
        assert_eq!(branches.test, Test::Greater);
        assert!(matches!(
            branches.sides[..],
            [Side::Number(1.1), Side::Cell(Cell::ComparedWithSpec95)]
        ));
    }

    #[test]
    fn a_machine_that_the_paper_does_not_have_agrees_with_nothing() {
        let runs = [run("p2-450", 450_000_000, 4_000), run("zen3", 3_400_000_000, 4_000)];
        let table = findings(&Paper::built_in().unwrap(), &runs, Selection::Part);
        let agreements = |model: &str| -> Vec<Value> {
            let is_of_model =
                |row: &&Vec<Value>| table.get(row, "model") == Some(&Value::from(model));
            let rows = table.rows().iter().filter(is_of_model);
            rows.map(|row| table.get(row, "agreement").unwrap().clone()).collect()
        };
        assert!(!agreements("p2-450").contains(&Value::Absent));
        let other = agreements("zen3");
        assert!(
            !other.is_empty() && other.iter().all(|value| *value == Value::Absent),
            "{other:?}"
        );
    }

    #[test]
    fn a_condition_that_was_not_measured_has_its_reason() {
        let mut run = run("p2-450", 450_000_000, 4_000);
        let missing =
            Condition::Made { load: Load::Idle, rate: Rate::Low, stimulus: Stimulus::Net };
        run.measured.samples.conditions.retain(|samples| samples.condition != missing);
        run.measured.absent.push(Absence::new("handlers", missing.label(), "no card"));
        let table = paper(&Paper::built_in().unwrap(), &[run]);
        let row = &table.rows()[0];
        assert_eq!(table.get(row, "reason"), Some(&Value::from("no card")));
        assert_eq!(table.get(row, "cycles"), Some(&Value::Absent));
        // The row still has the published figures.
        assert_eq!(table.get(row, "published_l1d_miss_ratio"), Some(&Value::from(4.246 / 100.0)));
    }
}
