//! The paper's findings, each checked on every model and on the published figures.

use record::Table;

use super::super::contexts::Mode;
use super::super::estimate::Mean;
use super::super::what::{Level, Method, Stimulus};
use super::published::{Count, Paper};
use super::tables::{ModelRun, Which, by_model};
use crate::judge::{
    CLOSE_RATIO, Figure, Finding, FindingsTable, Judged, Known, close, exactly, greater, half_way,
    narrower, no_benefit,
};

/// Reads of a disk whose completion nobody awaits, and whose completion an eventfd reports.
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

/// One model, and the paper's figures for it.
struct Asked<'a> {
    run: &'a ModelRun,
    paper: &'a Paper,
}

impl Asked<'_> {
    fn simulated(&self, change: Option<&str>, level: Level, stimulus: Stimulus) -> Known {
        let which = Which { long: false, change, level, stimulus, method: Method::Refined };
        self.run.beyond(which, Mode::User, true).map(Figure::from)
    }

    fn published(&self, level: Level, stimulus: Stimulus) -> Known {
        let what = (Method::Refined, Mode::User, Count::Beyond);
        figure(self.paper, &self.run.model, level, stimulus, what)
    }

    /// Returns the judgement of the published figures, if there are any of this machine.
    fn if_published(&self, judged: Judged) -> Option<Judged> {
        self.paper.machines.contains_key(&self.run.model).then_some(judged)
    }

    fn statement(
        &self,
        name: &'static str,
        of: String,
        claim: String,
        simulated: Judged,
    ) -> Finding {
        let model = self.run.model.clone();
        let model = Some(model);
        Finding { name, model, subject: of, claim, measured: simulated, published: None }
    }
}

fn figure(
    paper: &Paper,
    model: &str,
    level: Level,
    stimulus: Stimulus,
    what: (Method, Mode, Count),
) -> Known {
    let found = paper.figure(model, level, stimulus, what);
    found
        .map(|number| exactly(f64::from(number)))
        .ok_or_else(|| "the paper has no figure".to_owned())
}

/// All statements.
#[must_use]
pub fn statements(paper: &Paper, runs: &[ModelRun]) -> Table {
    let mut all = Vec::new();
    for run in runs {
        let asked = Asked { run, paper };
        all.extend(refined_beats_basic(&asked));
        all.extend(network_over_disk(&asked));
        all.extend(sum_is_l2(&asked));
        all.extend(longer_lines(&asked));
    }
    all.extend(longer_lines_between(paper, runs));
    TABLE.of(all).displayed(by_model())
}

/// Section 4: over 25 ms, the clock's effect masks the disk's in the basic method.
fn refined_beats_basic(asked: &Asked<'_>) -> Vec<Finding> {
    let effect = |stimulus, method| asked.run.long_effect(stimulus, method).map(Figure::from);
    let published = |stimulus, method| {
        let of = |stimulus, count| {
            figure(asked.paper, &asked.run.model, Level::L1d, stimulus, (method, Mode::User, count))
        };
        // The idle row is one for both reads.
        let (with, without) = (of(stimulus, Count::With)?, of(Stimulus::Disk, Count::Without)?);
        Ok(exactly(with.mean - without.mean))
    };
    let mut all = Vec::new();
    for stimulus in READS {
        let (refined, basic) = (effect(stimulus, Method::Refined), effect(stimulus, Method::Basic));
        let claim = "refined ± over its effect < basic ± over its effect".to_owned();
        let judged = narrower(refined.clone(), basic.clone());
        let of = format!("l1d, {stimulus}, long windows");
        all.push(asked.statement("refined beats basic: spread", of.clone(), claim, judged));
        let claim = "effect by refined > effect by basic".to_owned();
        let judged = greater(refined, basic);
        let paper =
            greater(published(stimulus, Method::Refined), published(stimulus, Method::Basic));
        let one = asked.statement("refined beats basic: effect", of, claim, judged);
        all.push(Finding { published: asked.if_published(paper), ..one });
    }
    all
}

/// Section 4.2.
fn network_over_disk(asked: &Asked<'_>) -> Vec<Finding> {
    let one = |level: Level| {
        let judged = greater(
            asked.simulated(None, level, Stimulus::Net),
            asked.simulated(None, level, Stimulus::Disk),
        );
        let paper =
            greater(asked.published(level, Stimulus::Net), asked.published(level, Stimulus::Disk));
        let claim = "net > disk".to_owned();
        let one = asked.statement("network > disk", format!("{level}, user"), claim, judged);
        Finding { published: asked.if_published(paper), ..one }
    };
    LEVELS.into_iter().map(one).collect()
}

/// Section 4.1.
fn sum_is_l2(asked: &Asked<'_>) -> Vec<Finding> {
    let one = |stimulus: Stimulus| {
        let [l1d, l1i, l2] = LEVELS.map(|level| asked.simulated(None, level, stimulus));
        let [paper_l1d, paper_l1i, paper_l2] = LEVELS.map(|level| asked.published(level, stimulus));
        let claim = format!("L1D + L1I within {:.0} % of L2", CLOSE_RATIO * 100.0);
        let judged = close([l1d, l1i], l2);
        let one =
            asked.statement("L1I + L1D close to L2", format!("{stimulus}, user"), claim, judged);
        Finding { published: asked.if_published(close([paper_l1d, paper_l1i], paper_l2)), ..one }
    };
    [Stimulus::Disk, Stimulus::DiskEvent, Stimulus::Net].into_iter().map(one).collect()
}

/// Section 4.1, on one machine: the same L2 with lines of another length.
fn longer_lines(asked: &Asked<'_>) -> Vec<Finding> {
    let changes: Vec<&str> =
        asked.run.parts.iter().filter_map(|part| part.change.as_deref()).collect();
    let line = |change, stimulus| {
        let which =
            Which { long: false, change, level: Level::L2, stimulus, method: Method::Refined };
        asked.run.series(which).map(|(series, _)| series.ready.geometry.line_bytes)
    };
    let mut all = Vec::new();
    for change in changes {
        for stimulus in [Stimulus::Disk, Stimulus::Net] {
            let lengths =
                line(None, stimulus).and_then(|as_is| Ok((as_is, line(Some(change), stimulus)?)));
            let (as_is, changed) = (Ok(None), Ok(Some(change)));
            let (judged, of) = match lengths {
                Err(why) => (no_benefit(Err(why.clone()), Err(why), 2.0), change.to_owned()),
                Ok((one, other)) => {
                    let (long, short) =
                        if one > other { (as_is, changed) } else { (changed, as_is) };
                    let known = |change: Result<Option<&str>, String>| {
                        change.and_then(|change| asked.simulated(change, Level::L2, stimulus))
                    };
                    let (max, min) = (one.max(other), one.min(other));
                    let factor = f64::from(max) / f64::from(min.max(1));
                    (no_benefit(known(long), known(short), factor), format!("{max} B and {min} B"))
                }
            };
            let claim =
                format!("misses with lines of twice the length > {} of those", half_way(2.0));
            let of = format!("l2, {stimulus}, lines of {of}");
            all.push(asked.statement("no benefit from longer lines", of, claim, judged));
        }
    }
    all
}

/// The same, as the paper had it: its two machines, whose lines differ by 2.
fn longer_lines_between(paper: &Paper, runs: &[ModelRun]) -> Vec<Finding> {
    let of = |model: &str| runs.iter().find(|run| run.model == model);
    let (Some(long), Some(short)) = (of("origin-200"), of("ultra-1")) else { return Vec::new() };
    let (long, short) = (Asked { run: long, paper }, Asked { run: short, paper });
    let one = |stimulus: Stimulus| {
        let known = |asked: &Asked<'_>| asked.simulated(None, Level::L2, stimulus);
        let paper = |asked: &Asked<'_>| asked.published(Level::L2, stimulus);
        Finding {
            name: "no benefit from longer lines",
            model: Some("origin-200, ultra-1".to_owned()),
            subject: format!("l2, {stimulus}, lines of 128 B and 64 B"),
            claim: format!("misses of the first > {} of the second's", half_way(2.0)),
            measured: no_benefit(known(&long), known(&short), 2.0),
            published: Some(no_benefit(paper(&long), paper(&short), 2.0)),
        }
    };
    [Stimulus::Disk, Stimulus::DiskEvent, Stimulus::Net].into_iter().map(one).collect()
}

#[cfg(test)]
mod tests {
    use record::Value;

    use super::super::super::samples::Samples;
    use super::super::super::series::Series;
    use super::super::tables::{Part, paper as tables};
    use super::*;
    use crate::experiment::Measured;
    use crate::footprint::tests::counted;

    fn part(series: Vec<Series>) -> Part {
        let measured = Measured::new(Samples { series, ..Samples::default() });
        Part { long: false, change: None, measured }
    }

    /// L1d 40, L1i 60 and L2 95 for the disk; twice as much for the network, without L2.
    fn run(model: &str) -> ModelRun {
        let of =
            |level, stimulus, misses: u64| Series { level, stimulus, ..counted(misses + 10, 10) };
        let series = vec![
            of(Level::L1d, Stimulus::Disk, 40),
            of(Level::L1i, Stimulus::Disk, 60),
            of(Level::L2, Stimulus::Disk, 95),
            of(Level::L1d, Stimulus::Net, 80),
            of(Level::L1i, Stimulus::Net, 120),
        ];
        let left_out = vec![(Some(Level::L2), "no time".to_owned())];
        ModelRun { model: model.to_owned(), parts: vec![part(series)], left_out }
    }

    fn verdicts(table: &Table, name: &str) -> Vec<String> {
        let rows = table.rows().iter().filter(|row| row[0] == Value::from(name));
        rows.map(|row| row[4].to_json().as_str().unwrap().to_owned()).collect()
    }

    #[test]
    fn findings_are_asked_of_what_there_is() {
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

    /// By the published figures, all findings hold where the paper says so, and nowhere else.
    #[test]
    fn the_published_figures_are_judged_as_the_paper_does() {
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
        // No exception mode of ultra-1; all rows of the others.
        assert_eq!(table.rows().len(), 2 * (3 + 6 + 6 + 6 + 6 + 3 + 3 + 3));
        let of = |model: &str, number: u64, what: &str, mode: &str| {
            let row = table.rows().iter().find(|row| {
                row[0] == Value::from(model)
                    && row[1] == Value::Uint(number)
                    && row[5] == Value::from(what)
                    && row[4] == Value::from(mode)
            });
            let row = row.unwrap();
            (row[8].clone(), row[11].clone(), row[12].clone())
        };
        let (simulated, published, ratio) = of("origin-200", 4, "no signal", "user");
        assert_eq!((simulated, published), (Value::Real(40.0), Value::Uint(104)));
        assert_eq!(ratio, Value::Real(40.0 / 104.0));
        let (simulated, published, ratio) = of("zen3", 4, "no signal", "user");
        assert_eq!(
            (simulated, published, ratio),
            (Value::Real(40.0), Value::Absent, Value::Absent)
        );
        // No simulator observed it: no exception mode, with the reason.
        assert_eq!(of("zen3", 4, "no signal", "exception").0, Value::Absent);
        assert!(absent.iter().any(|one| one.what.contains("zen3, table 9")));
    }
}
