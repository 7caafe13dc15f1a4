//! The paper's findings, each checked on every model and on the published figures.

use lab::footprint::contexts::Mode;
use lab::footprint::estimate::Mean;
use lab::footprint::{Level, Method, Stimulus};
use record::Table;

use super::published::{Count, Paper};
use super::tables::{ModelRun, SeriesKey, by_model};
use crate::judge::{
    CLOSE_RATIO, Figure, Finding, FindingsTable, Judged, Known, close, exactly, greater, half_way,
    narrower, no_benefit,
};

/// The disk stimuli: a read without a notification, and a read whose completion an eventfd reports.
const READS: [Stimulus; 2] = [Stimulus::Disk, Stimulus::DiskEvent];
const LEVELS: [Level; 3] = [Level::L1d, Level::L1i, Level::L2];

impl From<Mean> for Figure {
    fn from(Mean { mean, half_width, .. }: Mean) -> Figure {
        Figure { mean, half_width }
    }
}

const TABLE: FindingsTable = FindingsTable {
    subject: "What the finding is about: level, stimulus, mode.",
    ratio: ("simulated_ratio", "The ratio of both sides of the claim on the simulated machine."),
    evidence: "The misses of that ratio, with the half widths of their 95 % confidence intervals.",
    priorities: (70, 90),
    has_models: true,
    ..FindingsTable::SIMULATED
};

/// The run of one model, and the paper's figures.
struct Comparison<'a> {
    run: &'a ModelRun,
    paper: &'a Paper,
}

impl Comparison<'_> {
    fn simulated(&self, change: Option<&str>, level: Level, stimulus: Stimulus) -> Known {
        let key = SeriesKey { long: false, change, level, stimulus, method: Method::Refined };
        self.run.beyond(key, Mode::User, true).map(Figure::from)
    }

    fn published(&self, level: Level, stimulus: Stimulus) -> Known {
        let key = (Method::Refined, Mode::User, Count::Beyond);
        figure(self.paper, &self.run.model, level, stimulus, key)
    }

    /// Returns `judged` if the paper measured this machine.
    fn if_published(&self, judged: Judged) -> Option<Judged> {
        self.paper.machines.contains_key(&self.run.model).then_some(judged)
    }

    fn finding(
        &self,
        name: &'static str,
        subject: String,
        claim: String,
        measured: Judged,
    ) -> Finding {
        let model = Some(self.run.model.clone());
        Finding { name, model, subject, claim, measured, published: None }
    }
}

fn figure(
    paper: &Paper,
    model: &str,
    level: Level,
    stimulus: Stimulus,
    key: (Method, Mode, Count),
) -> Known {
    paper
        .figure(model, level, stimulus, key)
        .map(|number| exactly(f64::from(number)))
        .ok_or_else(|| "the paper has no figure".to_owned())
}

/// Table `findings`: all findings, for all runs.
#[must_use]
pub fn statements(paper: &Paper, runs: &[ModelRun]) -> Table {
    let mut all = Vec::new();
    for run in runs {
        let comparison = Comparison { run, paper };
        all.extend(refined_beats_basic(&comparison));
        all.extend(network_over_disk(&comparison));
        all.extend(l1_sum_close_to_l2(&comparison));
        all.extend(longer_lines_in_one_model(&comparison));
    }
    all.extend(longer_lines_between_models(paper, runs));
    TABLE.of(all).displayed(by_model())
}

/// Section 4: in windows of 25 ms, the basic method cannot show the effect of a disk interrupt. The effect of the
/// clock's interrupts masks it.
fn refined_beats_basic(comparison: &Comparison<'_>) -> Vec<Finding> {
    let effect = |stimulus, method| comparison.run.long_effect(stimulus, method).map(Figure::from);
    let published = |stimulus, method| {
        let misses = |stimulus, count| {
            let key = (method, Mode::User, count);
            figure(comparison.paper, &comparison.run.model, Level::L1d, stimulus, key)
        };
        // Both disk stimuli share one row without the interrupt.
        let with = misses(stimulus, Count::With)?;
        let without = misses(Stimulus::Disk, Count::Without)?;
        Ok(exactly(with.mean - without.mean))
    };
    let mut all = Vec::new();
    for stimulus in READS {
        let (refined, basic) = (effect(stimulus, Method::Refined), effect(stimulus, Method::Basic));
        let claim = "half width / effect by refined < half width / effect by basic".to_owned();
        let judged = narrower(refined.clone(), basic.clone());
        let subject = format!("l1d, {stimulus}, long windows");
        all.push(comparison.finding("refined beats basic: spread", subject.clone(), claim, judged));
        let claim = "effect by refined > effect by basic".to_owned();
        let judged = greater(refined, basic);
        let paper =
            greater(published(stimulus, Method::Refined), published(stimulus, Method::Basic));
        let finding = comparison.finding("refined beats basic: effect", subject, claim, judged);
        all.push(Finding { published: comparison.if_published(paper), ..finding });
    }
    all
}

/// Section 4.2: a network interrupt displaces more lines than a disk interrupt.
fn network_over_disk(comparison: &Comparison<'_>) -> Vec<Finding> {
    let finding = |level: Level| {
        let judged = greater(
            comparison.simulated(None, level, Stimulus::Net),
            comparison.simulated(None, level, Stimulus::Disk),
        );
        let paper = greater(
            comparison.published(level, Stimulus::Net),
            comparison.published(level, Stimulus::Disk),
        );
        let claim = "net > disk".to_owned();
        let subject = format!("{level}, user");
        let finding = comparison.finding("network > disk", subject, claim, judged);
        Finding { published: comparison.if_published(paper), ..finding }
    };
    LEVELS.into_iter().map(finding).collect()
}

/// Section 4.1: both L1 caches together and the L2 cache lose about the same number of lines.
fn l1_sum_close_to_l2(comparison: &Comparison<'_>) -> Vec<Finding> {
    let finding = |stimulus: Stimulus| {
        let [l1d, l1i, l2] = LEVELS.map(|level| comparison.simulated(None, level, stimulus));
        let [paper_l1d, paper_l1i, paper_l2] =
            LEVELS.map(|level| comparison.published(level, stimulus));
        let claim = format!("L1D + L1I within {:.0} % of L2", CLOSE_RATIO * 100.0);
        let judged = close([l1d, l1i], l2);
        let subject = format!("{stimulus}, user");
        let finding = comparison.finding("L1I + L1D close to L2", subject, claim, judged);
        let published = comparison.if_published(close([paper_l1d, paper_l1i], paper_l2));
        Finding { published, ..finding }
    };
    [Stimulus::Disk, Stimulus::DiskEvent, Stimulus::Net].into_iter().map(finding).collect()
}

/// Section 4.1 on one model: compares its L2 cache with the L2 cache of another line length.
fn longer_lines_in_one_model(comparison: &Comparison<'_>) -> Vec<Finding> {
    let changes: Vec<&str> =
        comparison.run.parts.iter().filter_map(|part| part.change.as_deref()).collect();
    let line_bytes = |change, stimulus| {
        let key =
            SeriesKey { long: false, change, level: Level::L2, stimulus, method: Method::Refined };
        comparison.run.series(key).map(|(series, _)| series.ready.geometry.line_bytes)
    };
    let mut all = Vec::new();
    for change in changes {
        for stimulus in [Stimulus::Disk, Stimulus::Net] {
            let lengths = line_bytes(None, stimulus)
                .and_then(|unchanged| Ok((unchanged, line_bytes(Some(change), stimulus)?)));
            let (judged, lengths) = match lengths {
                Err(why) => (no_benefit(Err(why.clone()), Err(why), 2.0), change.to_owned()),
                Ok((unchanged, changed)) => {
                    let (long, short) = if unchanged > changed {
                        (None, Some(change))
                    } else {
                        (Some(change), None)
                    };
                    let misses = |change| comparison.simulated(change, Level::L2, stimulus);
                    let (max, min) = (unchanged.max(changed), unchanged.min(changed));
                    let factor = f64::from(max) / f64::from(min.max(1));
                    let judged = no_benefit(misses(long), misses(short), factor);
                    (judged, format!("{max} B and {min} B"))
                }
            };
            let claim = format!(
                "misses with lines of twice the length > {} of the misses with the shorter lines",
                half_way(2.0)
            );
            let subject = format!("l2, {stimulus}, lines of {lengths}");
            all.push(comparison.finding("no benefit from longer lines", subject, claim, judged));
        }
    }
    all
}

/// Section 4.1 as in the paper: compares its two machines, whose L2 lines differ by a factor of 2.
fn longer_lines_between_models(paper: &Paper, runs: &[ModelRun]) -> Vec<Finding> {
    let comparison = |model: &str| {
        let run = runs.iter().find(|run| run.model == model)?;
        Some(Comparison { run, paper })
    };
    let (Some(long), Some(short)) = (comparison("origin-200"), comparison("ultra-1")) else {
        return Vec::new();
    };
    let finding = |stimulus: Stimulus| {
        let simulated = |model: &Comparison<'_>| model.simulated(None, Level::L2, stimulus);
        let published = |model: &Comparison<'_>| model.published(Level::L2, stimulus);
        Finding {
            name: "no benefit from longer lines",
            model: Some("origin-200, ultra-1".to_owned()),
            subject: format!("l2, {stimulus}, lines of 128 B and 64 B"),
            claim: format!("misses of origin-200 > {} of the misses of ultra-1", half_way(2.0)),
            measured: no_benefit(simulated(&long), simulated(&short), 2.0),
            published: Some(no_benefit(published(&long), published(&short), 2.0)),
        }
    };
    [Stimulus::Disk, Stimulus::DiskEvent, Stimulus::Net].into_iter().map(finding).collect()
}

#[cfg(test)]
mod tests {
    use lab::experiment::Measured;
    use lab::footprint::{Geometry, Ready, Repetition, Samples, Series, Verdict};
    use record::Value;

    use super::super::tables::{Part, paper as tables};
    use super::*;

    /// A series of 21 treatment and 21 control repetitions. Their user misses have these means, as deviations of -1, 0
    /// and 1 alternate.
    fn counted(level: Level, stimulus: Stimulus, treatment: u64, control: u64) -> Series {
        let around = |mean: u64| {
            let repetition = |number: u64| Repetition {
                verdict: Verdict::Accepted,
                excess_cycles: None,
                stalled_cycles: None,
                user_misses: Some(mean + number % 3 - 1),
                kernel_misses: Some(mean / 2),
                window: None,
            };
            (0..21).map(repetition).collect()
        };
        Series {
            level,
            stimulus,
            method: Method::Refined,
            ready: Ready {
                geometry: Geometry { size_bytes: 8192, line_bytes: 32, ways: 2 },
                pages: "4 KiB".to_owned(),
                raised_by: "a test".to_owned(),
                curve: None,
                pass_cycles: 500,
                chunk_lines: 1,
                start_misses: Some(7),
            },
            treatment: around(treatment),
            control: around(control),
            rounds: Vec::new(),
        }
    }

    fn part(series: Vec<Series>) -> Part {
        let measured = Measured::new(Samples { series, ..Samples::default() });
        Part { long: false, change: None, measured }
    }

    /// The disk displaces 40 L1d, 60 L1i and 95 L2 lines. The network displaces twice the L1 lines, and has no series
    /// of the L2 cache.
    fn run(model: &str) -> ModelRun {
        let series = |level, stimulus, misses: u64| counted(level, stimulus, misses + 10, 10);
        let all = vec![
            series(Level::L1d, Stimulus::Disk, 40),
            series(Level::L1i, Stimulus::Disk, 60),
            series(Level::L2, Stimulus::Disk, 95),
            series(Level::L1d, Stimulus::Net, 80),
            series(Level::L1i, Stimulus::Net, 120),
        ];
        let left_out = vec![(Some(Level::L2), "no time".to_owned())];
        ModelRun { model: model.to_owned(), parts: vec![part(all)], left_out }
    }

    fn verdicts(table: &Table, name: &str) -> Vec<String> {
        let rows = table.rows().iter().filter(|row| row[0] == Value::from(name));
        rows.map(|row| row[4].to_json().as_str().unwrap().to_owned()).collect()
    }

    #[test]
    fn a_finding_without_its_series_is_not_judged() {
        let paper = Paper::footprint_1999().unwrap();
        let table = statements(&paper, &[run("origin-200")]);
        assert_eq!(table.check_display(), Ok(()));
        assert_eq!(verdicts(&table, "network > disk"), ["holds", "holds", "not judged"]);
        let close = verdicts(&table, "L1I + L1D close to L2");
        assert_eq!(close, ["holds", "not judged", "not judged"]);
        let spread = verdicts(&table, "refined beats basic: spread");
        assert_eq!(spread, ["not judged", "not judged"]);
        let l2 = table.rows().iter().find(|row| row[2] == Value::from("l2, user")).unwrap();
        assert_eq!(l2[9], Value::from("no time"));
    }

    /// The published figures support exactly the findings that the paper states.
    #[test]
    fn the_published_figures_are_judged_as_in_the_paper() {
        let paper = Paper::footprint_1999().unwrap();
        let table = statements(&paper, &[run("origin-200"), run("ultra-1")]);
        let verdicts = |name: &str, model: &str| -> Vec<String> {
            let (name, model) = (Value::from(name), Value::from(model));
            let rows = table.rows().iter().filter(|row| row[0] == name && row[1] == model);
            rows.filter_map(|row| Some(row[7].to_json().as_str()?.to_owned())).collect()
        };
        let holds = |count| vec!["holds".to_owned(); count];
        for model in ["origin-200", "ultra-1"] {
            assert_eq!(verdicts("network > disk", model), holds(3), "{model}");
        }
        assert_eq!(verdicts("refined beats basic: effect", "origin-200"), holds(2));
        let close = "L1I + L1D close to L2";
        assert_eq!(verdicts(close, "origin-200"), ["holds", "holds", "fails"]);
        assert_eq!(verdicts(close, "ultra-1"), ["fails"; 3]);
        assert_eq!(verdicts("no benefit from longer lines", "origin-200, ultra-1"), holds(3));
    }

    #[test]
    fn simulated_figures_are_compared_with_the_published_ones() {
        let paper = Paper::footprint_1999().unwrap();
        let mut absent = Vec::new();
        let table = tables(&paper, &[run("origin-200"), run("zen3")], &mut absent);
        assert_eq!(table.check_display(), Ok(()));
        // Both models have all rows. Only ultra-1 has no rows of the exception mode.
        assert_eq!(table.rows().len(), 2 * (3 + 6 + 6 + 6 + 6 + 3 + 3 + 3));
        let misses = |model: &str, number: u64, row_name: &str, mode: &str| {
            let row = table.rows().iter().find(|row| {
                row[0] == Value::from(model)
                    && row[1] == Value::Uint(number)
                    && row[5] == Value::from(row_name)
                    && row[4] == Value::from(mode)
            });
            let row = row.unwrap();
            (row[8].clone(), row[11].clone(), row[12].clone())
        };
        let (simulated, published, ratio) = misses("origin-200", 4, "no signal", "user");
        assert_eq!((simulated, published), (Value::Real(40.0), Value::Uint(104)));
        assert_eq!(ratio, Value::Real(40.0 / 104.0));
        let (simulated, published, ratio) = misses("zen3", 4, "no signal", "user");
        assert_eq!(
            (simulated, published, ratio),
            (Value::Real(40.0), Value::Absent, Value::Absent)
        );
        // No simulator observed these series: misses in exception mode are absent, with a reason.
        assert_eq!(misses("zen3", 4, "no signal", "exception").0, Value::Absent);
        assert!(absent.iter().any(|absence| absence.what.contains("zen3, table 9")));
    }
}
