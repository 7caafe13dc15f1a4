//! The findings of `noise-t1` as claims about the peaks of a loop, judged on the
//! simulated machine and on the published figures.

use lab::noise::Relation;
use record::Table;

use super::peaks::{PARTS, PEAK_RATIO, PlacedRun};
use super::published::{Paper, PaperRow, Tick};
use crate::judge::{
    Claim, Figures, FindingsTable, Known, Reason, Selection, Side, Test, Unit, exactly,
};

/// Model of the paper's machine.
pub const MODEL: &str = "t1";

/// A run without peaks refutes peaks of the tick only if it is at least this number of ticks long.
const TICKS_MIN: usize = PARTS;

const TABLE: FindingsTable = FindingsTable {
    subject: "Subject of the finding: the CPUs that the tick interrupts, and the placement of the \
         loop.",
    ratio: ("simulated_ratio", "The ratio of both sides of the claim on the simulated machine."),
    evidence: "Both sides, with the half widths of their 95 % confidence intervals; slowdowns as shares of a quantum. \
         Without peaks, the length of the run stands for their period, which is longer.",
    ..FindingsTable::SIMULATED
};

/// A figure that claims compare, of the loop at one placement.
enum Cell {
    /// Slowdown of the longest quanta: the mean of the maxima of several parts of the run.
    PartMaxRatio(Tick, Relation),
    /// Slowdown of the longest quantum of the run.
    MaxRatio(Tick, Relation),
    /// Mean slowdown of the peaks, or 0 without peaks.
    MeanRatio(Tick, Relation),
    /// The largest slowdown that a quantum can have without being a peak.
    LimitRatio(Tick, Relation),
    /// Period of the peaks, ns. Without peaks, the length of the run: the period, if there is one, is longer.
    PeriodNs(Tick, Relation),
}

/// The published and the measured figures.
struct Sides<'a> {
    paper: &'a Paper,
    runs: &'a [PlacedRun],
    /// Model of the simulated machine.
    model: &'a str,
    /// Period of the simulated machine's tick, ns.
    tick_ns: f64,
}

impl Figures<Cell> for Sides<'_> {
    fn unit(&self, cell: &Cell) -> Unit {
        match cell {
            Cell::PartMaxRatio(..)
            | Cell::MaxRatio(..)
            | Cell::MeanRatio(..)
            | Cell::LimitRatio(..) => Unit::PERCENT,
            Cell::PeriodNs(..) => Unit::MICROSECONDS,
        }
    }

    fn measured_figure(&self, cell: &Cell) -> Known {
        let peaks = |tick, placement| {
            let run = self.runs.iter().find(|run| (run.tick, run.placement) == (tick, placement));
            let run = run.ok_or_else(|| Reason::not_measured("", ""))?;
            Ok((run.peaks()?, run.step_ns as f64))
        };
        match *cell {
            Cell::PartMaxRatio(tick, placement) => {
                peaks(tick, placement).map(|(peaks, _)| peaks.part_max)
            }
            Cell::MaxRatio(tick, placement) => {
                peaks(tick, placement).map(|(peaks, _)| exactly(peaks.max_ratio))
            }
            Cell::MeanRatio(tick, placement) => {
                peaks(tick, placement).map(|(peaks, _)| peaks.mean.unwrap_or_default())
            }
            Cell::LimitRatio(tick, placement) => peaks(tick, placement)
                .map(|(peaks, step_ns)| exactly(PEAK_RATIO + step_ns / peaks.median_ns)),
            Cell::PeriodNs(tick, placement) => {
                let (peaks, _) = peaks(tick, placement)?;
                let is_long = peaks.length_ns >= TICKS_MIN as f64 * self.tick_ns;
                match peaks.period_ns {
                    Some(period) => Ok(period),
                    None if peaks.count > 0 => Err("the peaks have no period".into()),
                    None if is_long => Ok(exactly(peaks.length_ns)),
                    None => {
                        Err(format!("no peaks, in a run shorter than {TICKS_MIN} ticks").into())
                    }
                }
            }
        }
    }

    fn is_in_paper(&self, _cell: &Cell) -> bool {
        self.model == MODEL
    }

    /// The paper's limit of a slowdown, or its figure for the absence of peaks. `None` for the periods of peaks.
    fn published(&self, cell: &Cell) -> Option<Known> {
        match *cell {
            Cell::PartMaxRatio(tick, placement)
            | Cell::MaxRatio(tick, placement)
            | Cell::MeanRatio(tick, placement) => {
                let mut rows = self.paper.rows.iter();
                let row = rows.find(|row| (row.tick, row.placement) == (tick, placement))?;
                Some(published_slowdown(row))
            }
            Cell::LimitRatio(..) => Some(Ok(exactly(PEAK_RATIO))),
            Cell::PeriodNs(..) => None,
        }
    }
}

/// The slowdown of the longest quanta in a row of the paper, or why it is no figure.
fn published_slowdown(row: &PaperRow) -> Known {
    match (row.slowdown_min_ratio, row.slowdown_max_ratio) {
        (None, Some(0.0)) => Ok(exactly(0.0)),
        (Some(limit), _) => {
            Err(format!("the paper has a limit: over {:.0} %", limit * 100.0).into())
        }
        (None, Some(limit)) => {
            Err(format!("the paper has a limit: up to {:.0} %", limit * 100.0).into())
        }
        (None, None) => Err("the paper has no figure".into()),
    }
}

/// The sides of a claim about the longest quanta: the mean of the maxima of parts of the run, the run's maximum, and the
/// limit.
fn maximum_and(limit: Side<Cell>, tick: Tick, placement: Relation) -> [Side<Cell>; 3] {
    let part_max = Side::Cell(Cell::PartMaxRatio(tick, placement));
    [part_max, Side::Cell(Cell::MaxRatio(tick, placement)), limit]
}

/// The claims about the limits that the paper states for its rows.
fn limits(paper: &Paper) -> Vec<Claim<Cell>> {
    let mut claims = Vec::new();
    for row in &paper.rows {
        let subject = format!("{}, {}", row.tick.word(), row.placement.word());
        let limit = |ratio: f64| (format!("{:.0} %", ratio * 100.0), Side::Number(ratio));
        if let Some((text, limit)) = row.slowdown_min_ratio.map(limit) {
            claims.push(Claim::new(
                "a tick on its own hardware thread costs some repetitions a fifth and more",
                subject.as_str(),
                format!("slowdown of the longest quanta > {text}"),
                Test::MaximumAbove,
                maximum_and(limit, row.tick, row.placement),
            ));
        }
        if let Some((text, limit)) = row.slowdown_max_ratio.filter(|ratio| *ratio > 0.0).map(limit)
        {
            claims.push(Claim::new(
                "the tick of one CPU costs a loop on its core at most what it costs in the paper",
                subject.as_str(),
                format!("slowdown of the longest quanta < {text}"),
                Test::MaximumBelow,
                maximum_and(limit, row.tick, row.placement),
            ));
        }
    }
    claims
}

/// All claims of the paper. `tick_ns`: the period of the simulated machine's tick.
fn claims(paper: &Paper, tick_ns: f64) -> Vec<Claim<Cell>> {
    use Relation::{OtherCore, SameCore, SameThread};
    let subject =
        |tick: Tick, placement: Relation| format!("{}, {}", tick.word(), placement.word());
    // Under Linux, each hardware thread has the peaks of its own tick.
    let peaks_with_own_tick = [SameThread, SameCore, OtherCore].map(|placement| {
        Claim::new(
            "with a tick on every CPU, peaks come with the tick wherever the loop runs",
            subject(Tick::EveryCpu, placement),
            "period of the peaks = period of the tick, within 10 %",
            Test::Close,
            [Side::Cell(Cell::PeriodNs(Tick::EveryCpu, placement)), Side::Number(tick_ns)],
        )
    });
    let closer = [[SameThread, SameCore], [SameCore, OtherCore]].map(|pair| {
        let [closer, farther] = pair.map(Relation::word);
        Claim::new(
            "the more a loop shares with the tick's CPU, the larger the peaks",
            format!("{}; {closer} and {farther}", Tick::OneCpu.word()),
            "mean slowdown of the peaks: closer > farther",
            Test::Greater,
            pair.map(|placement| Side::Cell(Cell::MeanRatio(Tick::OneCpu, placement))),
        )
    });
    let no_peaks = [
        ("with a tick on one CPU, a loop on another core has no peaks", Tick::OneCpu, OtherCore),
        ("without an operating system there are no peaks", Tick::None, SameThread),
    ]
    .map(|(finding, tick, placement)| {
        Claim::new(
            finding,
            subject(tick, placement),
            "slowdown of the longest quanta < 0.1 % and a step of the clock",
            Test::MaximumBelow,
            maximum_and(Side::Cell(Cell::LimitRatio(tick, placement)), tick, placement),
        )
    });
    peaks_with_own_tick.into_iter().chain(limits(paper)).chain(closer).chain(no_peaks).collect()
}

/// Table `findings`: all findings. `model` and `tick_ns`: the simulated machine's model and the period of its tick.
#[must_use]
pub fn findings(
    paper: &Paper,
    runs: &[PlacedRun],
    (model, tick_ns): (&str, f64),
    selection: Selection,
) -> Table {
    let sides = Sides { paper, runs, model, tick_ns };
    TABLE.judge(claims(paper, tick_ns), &sides, selection)
}

#[cfg(test)]
mod tests {
    use lab::noise::{CpuNoise, Fixed, Loop, LoopResult, NoiseSample, Quantum};
    use record::Value;

    use super::super::tables::paper;
    use super::*;

    /// The paper's machine with a tick of 250 Hz.
    const T1: (&str, f64) = (MODEL, 4e6);

    /// A run of 1,000 quanta of 100 us. Quanta with a tick of 250 Hz take `longer_ns` longer.
    fn run(tick: Tick, placement: Relation, longer_ns: u64) -> PlacedRun {
        run_with(tick, placement, 1_000, |at_ns| {
            let next_tick = at_ns / 4_000_000 * 4_000_000 + 4_000_000;
            if next_tick <= at_ns + 100_000 { longer_ns } else { 0 }
        })
    }

    /// A run of 1,000 quanta of 100 us. The longest quanta of its fifths take 1 us longer per percent.
    fn run_with_maxima(tick: Tick, placement: Relation, percent: [f64; 5]) -> PlacedRun {
        let mut number = 0;
        run_with(tick, placement, 1_000, |_| {
            number += 1;
            if number % 200 == 50 { (percent[number / 200] * 1e3) as u64 } else { 0 }
        })
    }

    /// A run of quanta of 100 us. `longer_ns`: how much longer the quantum with this start takes.
    fn run_with(
        tick: Tick,
        placement: Relation,
        quanta: u64,
        mut longer_ns: impl FnMut(u64) -> u64,
    ) -> PlacedRun {
        let (mut fixed, mut at_ns) = (Fixed::default(), 0);
        for _ in 0..quanta {
            let time_ns = 100_000 + longer_ns(at_ns);
            let quantum = Quantum::untraced(at_ns, time_ns);
            fixed.add(quantum, 1_000);
            at_ns += time_ns;
        }
        let sample = NoiseSample::in_exact_clock(
            Loop::Fwq,
            vec![CpuNoise::new(0, 0, at_ns, LoopResult::Quanta(Box::new(fixed)))],
        );
        PlacedRun { tick, placement, cpu: 0, step_ns: 0, sample: Ok(sample) }
    }

    /// The cells of a column of table `findings` in the rows of a finding and a subject.
    fn column_of(table: &Table, finding: &str, subject: &str, column: &str) -> Vec<Value> {
        let is_about = |row: &&Vec<Value>| {
            table.get(row, "finding") == Some(&Value::from(finding))
                && table.get(row, "subject") == Some(&Value::from(subject))
        };
        let rows = table.rows().iter().filter(is_about);
        rows.map(|row| table.get(row, column).unwrap().clone()).collect()
    }

    fn verdicts(runs: &[PlacedRun]) -> Vec<[String; 2]> {
        let table = findings(&Paper::built_in().unwrap(), runs, T1, Selection::Part);
        let text = |row: &[Value], column: &str| match table.get(row, column) {
            Some(Value::Text(text)) => text.to_string(),
            _ => String::new(),
        };
        let both = |row: &Vec<Value>| ["verdict", "published_verdict"].map(|name| text(row, name));
        table.rows().iter().map(both).collect()
    }

    fn as_the_paper() -> Vec<PlacedRun> {
        use Relation::{OtherCore, SameCore, SameThread};
        let every_cpu = |placement| run(Tick::EveryCpu, placement, 22_000);
        let one_cpu = |placement, longer_ns| run(Tick::OneCpu, placement, longer_ns);
        vec![
            every_cpu(SameThread),
            every_cpu(SameCore),
            every_cpu(OtherCore),
            one_cpu(SameThread, 28_000),
            one_cpu(SameCore, 9_000),
            one_cpu(OtherCore, 0),
            run(Tick::None, SameThread, 0),
        ]
    }

    #[test]
    fn a_machine_like_the_papers_has_all_of_its_findings() {
        let all = verdicts(&as_the_paper());
        assert!(all.iter().all(|[simulated, _]| simulated == "holds"), "{all:?}");
        let published: Vec<&str> = all.iter().map(|[_, published]| published.as_str()).collect();
        // The paper's "over 20 %" and "up to 10 %" are limits, not figures.
        let none = "not judged";
        let expected = ["", "", "", none, none, none, none, none, none, none, "holds", "holds"];
        assert_eq!(published, expected);
    }

    #[test]
    fn the_papers_text_says_what_a_limit_of_it_leaves_open() {
        let agreements = |runs: &[PlacedRun]| {
            let table = findings(&Paper::built_in().unwrap(), runs, T1, Selection::Part);
            let agreement = |row: &Vec<Value>| table.get(row, "agreement").cloned();
            table.rows().iter().map(agreement).collect::<Vec<_>>()
        };
        let mut runs = as_the_paper();
        assert_eq!(agreements(&runs)[3], Some("agrees".into()));
        runs[0] = run(Tick::EveryCpu, Relation::SameThread, 18_000);
        assert_eq!(agreements(&runs)[3], Some("disagrees".into()));
        // "Over 20 %" holds on every hardware thread, and "up to 10 %" is an upper limit.
        runs[2] = run(Tick::EveryCpu, Relation::OtherCore, 18_000);
        runs[4] = run(Tick::OneCpu, Relation::SameCore, 5_000);
        let expected = ["disagrees", "agrees", "disagrees", "agrees", "agrees"];
        assert_eq!(agreements(&runs)[3..8], expected.map(|agreement| Some(agreement.into())));
        runs[4] = run(Tick::OneCpu, Relation::SameCore, 12_000);
        assert_eq!(agreements(&runs)[7], Some("disagrees".into()));
    }

    #[test]
    fn golden() {
        let (published, runs) = (Paper::built_in().unwrap(), as_the_paper());
        let findings = findings(&published, &runs, T1, Selection::All);
        crate::golden::check("noise_t1", &[findings, paper(&published, &runs)]);
    }

    #[test]
    fn another_machine_has_not() {
        let mut runs = as_the_paper();
        runs[1] = run(Tick::EveryCpu, Relation::SameCore, 0);
        runs[5] = run(Tick::OneCpu, Relation::OtherCore, 15_000);
        runs[6].sample = Err("no simulator".to_owned());
        let all: Vec<String> =
            verdicts(&runs).into_iter().map(|[simulated, _]| simulated).collect();
        let expected = [
            // The period of the peaks, with each CPU's own tick. The second run has no peaks in 25 ticks.
            "holds",
            "fails",
            "holds",
            // Over 20 % on each hardware thread.
            "holds",
            "fails",
            "holds",
            // Up to 30 and up to 10 %.
            "holds",
            "holds",
            // Closer and farther; no peaks.
            "holds",
            "fails",
            "fails",
            "not judged",
        ];
        assert_eq!(all, expected);
    }

    /// No verdict contradicts the run's maximum.
    #[test]
    fn a_limit_is_judged_by_the_runs_maximum_too() {
        use Relation::{OtherCore, SameThread};
        let reason =
            "the run's maximum is above the limit, but the mean of the maxima of its parts is not";
        let up_to_30 =
            "the tick of one CPU costs a loop on its core at most what it costs in the paper";
        let over_20 = "a tick on its own hardware thread costs some repetitions a fifth and more";
        let no_peaks = "with a tick on one CPU, a loop on another core has no peaks";
        let undecided = ["not judged", "can't tell", reason];
        for (tick, placement, maxima, finding, expected) in [
            (Tick::OneCpu, SameThread, [20.0, 20.0, 20.0, 20.0, 31.9], up_to_30, undecided),
            (Tick::EveryCpu, SameThread, [15.0, 15.0, 15.0, 15.0, 21.1], over_20, undecided),
            (
                Tick::OneCpu,
                OtherCore,
                [0.0, 0.0, 68.0, 0.0, 0.0],
                no_peaks,
                ["fails", "disagrees", "-"],
            ),
        ] {
            let runs = [run_with_maxima(tick, placement, maxima)];
            let table = findings(&Paper::built_in().unwrap(), &runs, T1, Selection::Part);
            let subject = format!("{}, {}", tick.word(), placement.word());
            let expected = expected.map(|text| match text {
                "-" => Value::Absent,
                text => Value::from(text),
            });
            let cells = ["verdict", "agreement", "reason"]
                .map(|column| column_of(&table, finding, &subject, column).remove(0));
            assert_eq!(cells, expected, "{finding}");
        }
    }

    #[test]
    fn peaks_that_never_come_do_not_come_with_the_tick() {
        let finding = "with a tick on every CPU, peaks come with the tick wherever the loop runs";
        let judged = |run: PlacedRun| {
            let table = findings(&Paper::built_in().unwrap(), &[run], T1, Selection::Part);
            ["verdict", "agreement", "reason"]
                .map(|column| column_of(&table, finding, "every CPU, same core", column).remove(0))
        };
        let same_core = |quanta, longer_ns: fn(u64) -> u64| {
            judged(run_with(Tick::EveryCpu, Relation::SameCore, quanta, longer_ns))
        };
        let fails = ["fails".into(), "disagrees".into(), Value::Absent];
        assert_eq!(same_core(1_000, |_| 0), fails);
        let undecided = |reason: &str| ["not judged".into(), "can't tell".into(), reason.into()];
        // A run of 15 ms.
        assert_eq!(same_core(150, |_| 0), undecided("no peaks, in a run shorter than 5 ticks"));
        let single = |at_ns| if at_ns == 5_000_000 { 20_000 } else { 0 };
        assert_eq!(same_core(1_000, single), undecided("the peaks have no period"));
    }

    #[test]
    fn a_machine_that_the_paper_does_not_have_agrees_with_nothing() {
        let paper = Paper::built_in().unwrap();
        let table = findings(&paper, &as_the_paper(), ("t2", 4e6), Selection::Part);
        let mut agreements = table.rows().iter().map(|row| table.get(row, "agreement"));
        assert!(agreements.all(|agreement| agreement == Some(&Value::Absent)));
    }

    #[test]
    fn a_finding_that_is_not_judged_says_what_to_type() {
        let table = findings(&Paper::built_in().unwrap(), &[], T1, Selection::Part);
        let reason = |row: &Vec<Value>| table.get(row, "reason").cloned();
        let expected = Value::from("not measured: the same command, run to its end, measures all");
        let reasons: Vec<_> = table.rows().iter().map(reason).collect();
        assert!(reasons.contains(&Some(expected)), "{reasons:?}");
        // Who has typed that is not told to type it.
        let all = findings(&Paper::built_in().unwrap(), &[], T1, Selection::All);
        let reasons: Vec<_> =
            all.rows().iter().map(|row| all.get(row, "reason").cloned()).collect();
        assert!(!format!("{reasons:?}").contains("measures all"), "{reasons:?}");
        let expected =
            Value::from("not measured, although all was asked for: see the warnings and absences");
        assert!(reasons.contains(&Some(expected)), "{reasons:?}");
        let kept = table.columns.iter().filter(|column| column.display.priority > 100);
        assert_eq!(
            kept.map(|column| &column.name).collect::<Vec<_>>(),
            ["claim", "verdict", "reason", "agreement"]
        );
    }

    #[test]
    fn the_table_has_the_papers_rows_with_what_was_measured() {
        let table = paper(&Paper::built_in().unwrap(), &as_the_paper()[3..5]);
        let cell =
            |row: usize, column: &str| table.get(&table.rows()[row], column).unwrap().clone();
        assert_eq!(table.rows().len(), 7);
        assert_eq!(cell(0, "reason"), "not measured".into());
        let Value::Real(slowdown) = cell(3, "slowdown_max_ratio") else { panic!("no maximum") };
        assert!((slowdown - 0.28).abs() < 1e-9, "{slowdown}");
        let Value::Real(period) = cell(3, "period_ns") else { panic!("no period") };
        assert!((period - 4e6).abs() < 0.1e6, "{period}");
        assert_eq!(cell(3, "peak_count"), cell(4, "peak_count"));
        assert_eq!(cell(4, "published_slowdown_max_ratio"), 0.1.into());
        assert_eq!(cell(0, "published_slowdown_min_ratio"), 0.2.into());
        assert_eq!(cell(0, "published_slowdown_max_ratio"), Value::Absent);
    }
}
