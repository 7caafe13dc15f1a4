//! The paper's findings, each judged by the simulated machine and by the published figures.

use lab::noise::Relation;
use record::Table;

use super::peaks::PlacedRun;
use super::published::{Paper, Tick};
use crate::judge::{Finding, FindingsTable, Known, close, exactly, finding, greater};

const TABLE: FindingsTable = FindingsTable {
    subject: "Subject of the finding: the CPUs that the tick interrupts, and the placement of the \
         loop.",
    ratio: ("simulated_ratio", "The ratio of both sides of the claim on the simulated machine."),
    evidence: "Both sides, with the half widths of their 95 % confidence intervals: ns, or parts of a \
         quantum.",
    ..FindingsTable::SIMULATED
};

/// Minimum slowdown of the longest quanta with a tick on their own hardware thread (section 3).
const SAME_THREAD_RATIO: f64 = 0.2;

struct Sides<'a> {
    paper: &'a Paper,
    runs: &'a [PlacedRun],
    /// Period of the tick of the simulated machine, ns.
    tick_ns: f64,
}

impl Sides<'_> {
    fn figure(&self, tick: Tick, placement: Relation, figure: fn(&PlacedRun) -> Known) -> Known {
        let found = self.runs.iter().find(|run| (run.tick, run.placement) == (tick, placement));
        figure(found.ok_or_else(|| "not measured".to_owned())?)
    }

    /// The paper's slowdown of the longest quanta.
    fn published(&self, tick: Tick, placement: Relation) -> Known {
        let mut rows = self.paper.rows.iter();
        let row = rows.find(|row| (row.tick, row.placement) == (tick, placement));
        let ratio = row.and_then(|row| row.slowdown_max_ratio);
        ratio.map(exactly).ok_or_else(|| "the paper has no figure".to_owned())
    }

    /// Under Linux, each hardware thread has the peaks of its own tick.
    fn on_every_cpu(&self) -> Vec<Finding> {
        let placements = [Relation::SameThread, Relation::SameCore, Relation::OtherCore];
        let judge = |placement: Relation| {
            let period = self.figure(Tick::EveryCpu, placement, PlacedRun::period_ns);
            finding(
                "with a tick on every CPU, peaks come with the tick wherever the loop runs",
                subject(Tick::EveryCpu, placement),
                "period of the peaks = period of the tick, within 10 %",
                close([period, Ok(exactly(0.0))], Ok(exactly(self.tick_ns))),
                None,
            )
        };
        placements.into_iter().map(judge).collect()
    }

    fn same_thread(&self, tick: Tick) -> Finding {
        let limit = || Ok(exactly(SAME_THREAD_RATIO));
        let placement = Relation::SameThread;
        finding(
            "a tick on its own hardware thread costs a repetition a fifth and more",
            subject(tick, placement),
            "slowdown of the longest quantum > 0.2",
            greater(self.figure(tick, placement, PlacedRun::max_ratio), limit()),
            Some(greater(self.published(tick, placement), limit())),
        )
    }

    /// Peaks are larger if the loop is closer to the tick.
    fn closer(&self, closer: Relation, farther: Relation) -> Finding {
        let simulated = |placement| self.figure(Tick::OneCpu, placement, PlacedRun::mean_ratio);
        let published = |placement| self.published(Tick::OneCpu, placement);
        finding(
            "the more a loop shares with the tick's CPU, the larger the peaks",
            format!("{}; {} and {}", Tick::OneCpu.word(), closer.word(), farther.word()),
            "mean slowdown of the peaks: closer > farther",
            greater(simulated(closer), simulated(farther)),
            Some(greater(published(closer), published(farther))),
        )
    }

    fn no_peaks(&self, name: &'static str, tick: Tick, placement: Relation) -> Finding {
        let limit = self.figure(tick, placement, PlacedRun::limit_ratio);
        finding(
            name,
            subject(tick, placement),
            "slowdown of the longest quantum < 0.1 % and a step of the clock",
            greater(limit.clone(), self.figure(tick, placement, PlacedRun::max_ratio)),
            Some(greater(Ok(exactly(super::peaks::PEAK_RATIO)), self.published(tick, placement))),
        )
    }
}

fn subject(tick: Tick, placement: Relation) -> String {
    format!("{}, {}", tick.word(), placement.word())
}

/// All findings. `tick_ns` is the period of the simulated machine's tick.
#[must_use]
pub fn findings(paper: &Paper, runs: &[PlacedRun], tick_ns: f64) -> Table {
    let sides = Sides { paper, runs, tick_ns };
    let mut all = sides.on_every_cpu();
    all.push(sides.same_thread(Tick::EveryCpu));
    all.push(sides.same_thread(Tick::OneCpu));
    all.push(sides.closer(Relation::SameThread, Relation::SameCore));
    all.push(sides.closer(Relation::SameCore, Relation::OtherCore));
    let on_other_core = "with a tick on one CPU, a loop on another core has no peaks";
    all.push(sides.no_peaks(on_other_core, Tick::OneCpu, Relation::OtherCore));
    let without_tick = "without an operating system there are no peaks";
    all.push(sides.no_peaks(without_tick, Tick::None, Relation::SameThread));
    TABLE.of(all)
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
            let quantum =
                Quantum { start_ns: at_ns, time_ns, named_ns: None, main: None, faulted: None };
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
        let table = findings(&Paper::noise_t1().unwrap(), runs, 4e6);
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
            one_cpu(SameThread, 30_000),
            one_cpu(SameCore, 10_000),
            one_cpu(OtherCore, 0),
            run(Tick::None, SameThread, 0),
        ]
    }

    #[test]
    fn a_machine_like_the_papers_has_all_of_its_findings() {
        let all = verdicts(&as_the_paper());
        assert!(all.iter().all(|[simulated, _]| simulated == "holds"), "{all:?}");
        let published: Vec<&str> = all.iter().map(|[_, published]| published.as_str()).collect();
        // The paper has "over 20 %" for Linux, which equals the limit.
        let expected = ["", "", "", "not judged", "holds", "holds", "holds", "holds", "holds"];
        assert_eq!(published, expected);
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
            "holds",
            "not judged",
            "holds",
            "holds",
            "holds",
            "holds",
            "fails",
            "fails",
            "not judged",
        ];
        assert_eq!(all, expected);
    }

    #[test]
    fn the_table_has_the_papers_rows_with_what_was_measured() {
        let table = paper(&Paper::noise_t1().unwrap(), &as_the_paper()[3..5]);
        let cell =
            |row: usize, column: &str| table.get(&table.rows()[row], column).unwrap().clone();
        assert_eq!(table.rows().len(), 7);
        assert_eq!(cell(0, "reason"), "not measured".into());
        let Value::Real(slowdown) = cell(3, "slowdown_max_ratio") else { panic!("no maximum") };
        assert!((slowdown - 0.3).abs() < 1e-9, "{slowdown}");
        let Value::Real(period) = cell(3, "period_ns") else { panic!("no period") };
        assert!((period - 4e6).abs() < 0.1e6, "{period}");
        assert_eq!(cell(3, "peak_count"), cell(4, "peak_count"));
        assert_eq!(cell(4, "published_slowdown_max_ratio"), 0.1.into());
    }
}
