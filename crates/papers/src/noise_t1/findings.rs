//! The findings of `noise-t1` as claims about the peaks of a loop, judged on the
//! simulated machine and on the published figures.

use lab::noise::Relation;
use record::Table;

use super::peaks::{PEAK_RATIO, PlacedRun};
use super::published::{Paper, PaperRow, Tick};
use crate::judge::{
    Claim, Figures, FindingsTable, Known, Reason, Selection, Side, Test, Unit, exactly,
};

const TABLE: FindingsTable = FindingsTable {
    subject: "Subject of the finding: the CPUs that the tick interrupts, and the placement of the \
         loop.",
    ratio: ("simulated_ratio", "The ratio of both sides of the claim on the simulated machine."),
    evidence: "Both sides, with the half widths of their 95 % confidence intervals; slowdowns as shares of a quantum.",
    command: "irqlab reproduce noise-t1",
    ..FindingsTable::SIMULATED
};

/// A figure that claims compare, of the loop at one placement.
enum Cell {
    /// Slowdown of the longest quanta: the mean of the maxima of several parts of the run.
    MaxRatio(Tick, Relation),
    /// Mean slowdown of the peaks, or 0 without peaks.
    MeanRatio(Tick, Relation),
    /// The largest slowdown that a quantum can have without being a peak.
    LimitRatio(Tick, Relation),
    /// Period of the peaks, ns.
    PeriodNs(Tick, Relation),
}

/// The published and the measured figures.
struct Sides<'a> {
    paper: &'a Paper,
    runs: &'a [PlacedRun],
}

impl Figures<Cell> for Sides<'_> {
    fn unit(&self, cell: &Cell) -> Unit {
        match cell {
            Cell::MaxRatio(..) | Cell::MeanRatio(..) | Cell::LimitRatio(..) => Unit::PERCENT,
            Cell::PeriodNs(..) => Unit::MICROSECONDS,
        }
    }

    fn measured(&self, cell: &Cell) -> Known {
        let peaks = |tick, placement| {
            let run = self.runs.iter().find(|run| (run.tick, run.placement) == (tick, placement));
            let run = run.ok_or_else(|| Reason::not_measured("", ""))?;
            Ok((run.peaks()?, run.step_ns as f64))
        };
        match *cell {
            Cell::MaxRatio(tick, placement) => {
                peaks(tick, placement).map(|(peaks, _)| peaks.part_max)
            }
            Cell::MeanRatio(tick, placement) => {
                peaks(tick, placement).map(|(peaks, _)| peaks.mean.unwrap_or_default())
            }
            Cell::LimitRatio(tick, placement) => peaks(tick, placement)
                .map(|(peaks, step_ns)| exactly(PEAK_RATIO + step_ns / peaks.median_ns)),
            Cell::PeriodNs(tick, placement) => {
                peaks(tick, placement)?.0.period_ns.ok_or_else(|| "no period".into())
            }
        }
    }

    /// The paper has limits of the slowdowns. Only the absence of peaks is a figure.
    fn published(&self, cell: &Cell) -> Option<Known> {
        match *cell {
            Cell::MaxRatio(tick, placement) | Cell::MeanRatio(tick, placement) => {
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

/// The claims about the limits that the paper states for its rows.
fn limits(paper: &Paper) -> Vec<Claim<Cell>> {
    let mut claims = Vec::new();
    for row in &paper.rows {
        let longest = || Side::Cell(Cell::MaxRatio(row.tick, row.placement));
        let subject = format!("{}, {}", row.tick.word(), row.placement.word());
        let limit = |ratio: f64| (format!("{:.0} %", ratio * 100.0), Side::Number(ratio));
        if let Some((text, limit)) = row.slowdown_min_ratio.map(limit) {
            claims.push(Claim::new(
                "a tick on its own hardware thread costs some repetitions a fifth and more",
                subject.as_str(),
                format!("slowdown of the longest quanta > {text}"),
                Test::Greater,
                [longest(), limit],
            ));
        }
        if let Some((text, limit)) = row.slowdown_max_ratio.filter(|ratio| *ratio > 0.0).map(limit)
        {
            claims.push(Claim::new(
                "the tick of one CPU costs a loop on its core at most what it costs in the paper",
                subject.as_str(),
                format!("slowdown of the longest quanta < {text}"),
                Test::Greater,
                [limit, longest()],
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
            [
                Side::Cell(Cell::PeriodNs(Tick::EveryCpu, placement)),
                Side::Number(0.0),
                Side::Number(tick_ns),
            ],
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
            Test::Greater,
            [
                Side::Cell(Cell::LimitRatio(tick, placement)),
                Side::Cell(Cell::MaxRatio(tick, placement)),
            ],
        )
    });
    peaks_with_own_tick.into_iter().chain(limits(paper)).chain(closer).chain(no_peaks).collect()
}

/// Table `findings`: all findings. `tick_ns`: the period of the simulated machine's tick.
#[must_use]
pub fn findings(paper: &Paper, runs: &[PlacedRun], tick_ns: f64, selection: Selection) -> Table {
    TABLE.judge(claims(paper, tick_ns), &Sides { paper, runs }, selection)
}

#[cfg(test)]
mod tests {
    use lab::noise::{CpuNoise, Fixed, Loop, LoopResult, NoiseSample, Quantum};
    use record::Value;

    use super::super::tables::paper;
    use super::*;

    /// A run of 1,000 quanta of 100 us. Quanta with a tick of 250 Hz take `longer_ns` longer.
    fn run(tick: Tick, placement: Relation, longer_ns: u64) -> PlacedRun {
        let (mut fixed, mut at_ns) = (Fixed::default(), 0);
        for _ in 0..1_000 {
            let next_tick = at_ns / 4_000_000 * 4_000_000 + 4_000_000;
            let time_ns = 100_000 + if next_tick <= at_ns + 100_000 { longer_ns } else { 0 };
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

    fn verdicts(runs: &[PlacedRun]) -> Vec<[String; 2]> {
        let table = findings(&Paper::built_in().unwrap(), runs, 4e6, Selection::Part);
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
            let table = findings(&Paper::built_in().unwrap(), runs, 4e6, Selection::Part);
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
        let findings = findings(&published, &runs, 4e6, Selection::All);
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
            // The period of the peaks, with each CPU's own tick.
            "holds",
            "not judged",
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

    #[test]
    fn a_finding_that_is_not_judged_says_what_to_type() {
        let table = findings(&Paper::built_in().unwrap(), &[], 4e6, Selection::Part);
        let reason = |row: &Vec<Value>| table.get(row, "reason").cloned();
        let expected = Value::from("not measured: irqlab reproduce noise-t1 measures all");
        let reasons: Vec<_> = table.rows().iter().map(reason).collect();
        assert!(reasons.contains(&Some(expected)), "{reasons:?}");
        // Who has typed that is not told to type it.
        let all = findings(&Paper::built_in().unwrap(), &[], 4e6, Selection::All);
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
