//! The findings of `footprint-1999` as claims about misses, judged on every
//! simulated model and on the published figures.

use lab::footprint::contexts::Mode;
use lab::footprint::estimate::Mean;
use lab::footprint::{Level, Method, Stimulus};
use record::Table;

use super::published::{Count, Paper};
use super::tables::{ModelRun, SeriesKey, display_by_model};
use crate::judge::{
    CLOSE_RATIO, Claim, Figure, Figures, FindingsTable, Known, Selection, Side, Test, Unit,
    exactly, half_benefit_ratio,
};

/// The disk stimuli: a read without a notification, and a read whose completion an eventfd reports.
const READS: [Stimulus; 2] = [Stimulus::Disk, Stimulus::DiskEvent];
const STIMULI: [Stimulus; 3] = [Stimulus::Disk, Stimulus::DiskEvent, Stimulus::Net];
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
    command: "irqlab reproduce footprint-1999",
    interval_option: Some("--repetitions 100"),
    has_models: true,
    ..FindingsTable::SIMULATED
};

/// A figure that claims compare: misses of the loop per interrupt.
#[derive(Clone, Copy)]
enum Cell<'a> {
    /// In short windows, by the refined method. The text is a change of the model, or `None` for the unchanged model.
    Short(&'a ModelRun, Option<&'a str>, Level, Stimulus),
    /// In long windows, in L1D.
    Long(&'a ModelRun, Stimulus, Method),
}

impl Figures<Cell<'_>> for Paper {
    fn unit(&self, _cell: &Cell<'_>) -> Unit {
        Unit::named(" misses")
    }

    fn measured(&self, cell: &Cell<'_>) -> Known {
        let misses = match *cell {
            Cell::Short(run, change, level, stimulus) => {
                let method = Method::Refined;
                let key = SeriesKey { long: false, change, level, stimulus, method };
                run.beyond(key, Mode::User, true)
            }
            Cell::Long(run, stimulus, method) => run.long_effect(stimulus, method),
        };
        misses.map(Figure::from)
    }

    fn is_in_paper(&self, cell: &Cell<'_>) -> bool {
        match cell {
            Cell::Short(run, None, ..) | Cell::Long(run, ..) => {
                self.machines.contains_key(&run.model)
            }
            // The paper did not measure changed machines.
            Cell::Short(_, Some(_), ..) => false,
        }
    }

    fn published(&self, cell: &Cell<'_>) -> Option<Known> {
        let (Cell::Short(run, ..) | Cell::Long(run, ..)) = *cell;
        self.machines.get(&run.model)?;
        let misses = |level, stimulus, method, count| {
            let misses = self.figure(&run.model, level, stimulus, (method, Mode::User, count));
            misses.map(f64::from).ok_or_else(|| "the paper has no figure".to_owned())
        };
        let effect = |stimulus, method| {
            // Both disk stimuli share one row without the interrupt.
            let with = misses(Level::L1d, stimulus, method, Count::With)?;
            Ok(with - misses(Level::L1d, Stimulus::Disk, method, Count::Without)?)
        };
        let published = match *cell {
            // The paper did not measure changed machines.
            Cell::Short(_, Some(_), ..) => return None,
            Cell::Short(_, None, level, stimulus) => {
                misses(level, stimulus, Method::Refined, Count::Beyond)
            }
            Cell::Long(_, stimulus, method) => effect(stimulus, method),
        };
        Some(published.map(exactly))
    }
}

/// The claims about one model.
fn claims(run: &ModelRun) -> Vec<Claim<Cell<'_>>> {
    let short = |level, stimulus| Side::Cell(Cell::Short(run, None, level, stimulus));
    // Section 4: in windows of 25 ms, the basic method cannot show the effect of a disk interrupt. The effect of the
    // clock's interrupts masks it.
    let method_findings = READS.into_iter().flat_map(|stimulus| {
        let sides = || {
            [Method::Refined, Method::Basic]
                .map(|method| Side::Cell(Cell::Long(run, stimulus, method)))
        };
        let subject = format!("l1d, {stimulus}, long windows");
        [
            Claim::new(
                "refined beats basic: spread",
                subject.as_str(),
                "half width / effect by refined < half width / effect by basic",
                Test::Narrower,
                sides(),
            ),
            Claim::new(
                "refined beats basic: effect",
                subject.as_str(),
                "effect by refined > effect by basic",
                Test::Greater,
                sides(),
            ),
        ]
    });
    // Section 4.2: a network interrupt displaces more lines than a disk interrupt.
    let devices = LEVELS.into_iter().map(|level| {
        Claim::new(
            "network > disk",
            format!("{level}, user"),
            "net > disk",
            Test::Greater,
            [short(level, Stimulus::Net), short(level, Stimulus::Disk)],
        )
    });
    // Section 4.1: both L1 caches together and the L2 cache lose about the same number of lines.
    let level_findings = STIMULI.into_iter().map(|stimulus| {
        Claim::new(
            "L1I + L1D close to L2",
            format!("{stimulus}, user"),
            format!("L1D + L1I within {:.0} % of L2", CLOSE_RATIO * 100.0),
            Test::Close,
            LEVELS.map(|level| short(level, stimulus)),
        )
    });
    let changes = run.parts.iter().filter_map(|part| part.change.as_deref());
    let lines = changes.flat_map(|change| {
        [Stimulus::Disk, Stimulus::Net]
            .map(|stimulus| longer_lines_in_one_model(run, change, stimulus))
    });
    let claims = method_findings.chain(devices).chain(level_findings).chain(lines);
    claims.map(|claim| Claim { model: Some(run.model.clone()), ..claim }).collect()
}

/// Section 4.1 on one model: compares its L2 cache with the L2 cache of another line length.
fn longer_lines_in_one_model<'a>(
    run: &'a ModelRun,
    change: &'a str,
    stimulus: Stimulus,
) -> Claim<Cell<'a>> {
    let line_bytes = |change| {
        let (level, method) = (Level::L2, Method::Refined);
        let series = run.series(SeriesKey { long: false, change, level, stimulus, method });
        series.ok().map(|(series, _)| series.ready.geometry.line_bytes)
    };
    let (lengths, factor, changes) = match (line_bytes(None), line_bytes(Some(change))) {
        (Some(unchanged), Some(changed)) => {
            let (max, min) = (unchanged.max(changed), unchanged.min(changed));
            let changes =
                if unchanged > changed { [None, Some(change)] } else { [Some(change), None] };
            let factor = f64::from(max) / f64::from(min.max(1));
            (format!("{max} B and {min} B"), Some(factor), changes)
        }
        // A line length is unknown: the claim is not judged, and the first missing side gives the reason.
        (None, _) => (change.to_owned(), None, [None, Some(change)]),
        (_, None) => (change.to_owned(), None, [Some(change), None]),
    };
    let claim = match factor {
        Some(factor) => {
            let times = if factor == 2.0 { "twice".to_owned() } else { format!("{factor} times") };
            format!(
                "misses with lines of {times} the length > {} of the misses with the shorter lines",
                half_benefit_ratio(factor)
            )
        }
        None => "longer lines do not reduce misses".to_owned(),
    };
    Claim::new(
        NO_BENEFIT,
        format!("l2, {stimulus}, lines of {lengths}"),
        claim,
        // Without both lengths, a side is missing, and no factor counts.
        Test::NoBenefit(factor.unwrap_or(1.0)),
        changes.map(|change| Side::Cell(Cell::Short(run, change, Level::L2, stimulus))),
    )
}

const NO_BENEFIT: &str = "no benefit from longer lines";

/// Section 4.1 as in the paper: compares its two machines, whose L2 lines differ by a factor of 2.
fn longer_lines_between_models(runs: &[ModelRun]) -> Vec<Claim<Cell<'_>>> {
    let run = |model: &str| runs.iter().find(|run| run.model == model);
    let (Some(long), Some(short)) = (run("origin-200"), run("ultra-1")) else { return Vec::new() };
    let claim = |stimulus| Claim {
        model: Some("origin-200, ultra-1".to_owned()),
        ..Claim::new(
            NO_BENEFIT,
            format!("l2, {stimulus}, lines of 128 B and 64 B"),
            format!("misses of origin-200 > {} of the misses of ultra-1", half_benefit_ratio(2.0)),
            Test::NoBenefit(2.0),
            [long, short].map(|run| Side::Cell(Cell::Short(run, None, Level::L2, stimulus))),
        )
    };
    STIMULI.map(claim).into()
}

/// Table `findings`: all findings, for all runs.
#[must_use]
pub fn findings(paper: &Paper, runs: &[ModelRun], selection: Selection) -> Table {
    let mut all_claims: Vec<Claim<Cell<'_>>> = runs.iter().flat_map(claims).collect();
    all_claims.extend(longer_lines_between_models(runs));
    TABLE.judge(all_claims, paper, selection).displayed(display_by_model())
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
        let paper = Paper::built_in().unwrap();
        let table = findings(&paper, &[run("origin-200")], Selection::Part);
        assert_eq!(table.check_display(), Ok(()));
        assert_eq!(verdicts(&table, "network > disk"), ["holds", "holds", "not judged"]);
        let close = verdicts(&table, "L1I + L1D close to L2");
        assert_eq!(close, ["holds", "not judged", "not judged"]);
        let spread = verdicts(&table, "refined beats basic: spread");
        assert_eq!(spread, ["not judged", "not judged"]);
        let l2 = table.rows().iter().find(|row| row[2] == Value::from("l2, user")).unwrap();
        assert_eq!(l2[9], Value::from("no time"));
    }

    #[test]
    fn methods_and_lengths_of_lines_are_compared_on_one_model() {
        let mut run = run("origin-200");
        let effect = |method, misses: u64| Series {
            method,
            ..counted(Level::L1d, Stimulus::Disk, misses + 10, 10)
        };
        let long = part(vec![effect(Method::Refined, 60), effect(Method::Basic, 30)]);
        let mut longer_lines = counted(Level::L2, Stimulus::Disk, 90, 10);
        longer_lines.ready.geometry.line_bytes = 64;
        let change = Some("l2.line=64B".to_owned());
        run.parts
            .extend([Part { long: true, ..long }, Part { change, ..part(vec![longer_lines]) }]);
        let table = findings(&Paper::built_in().unwrap(), &[run], Selection::Part);
        for name in ["refined beats basic: spread", "refined beats basic: effect"] {
            assert_eq!(verdicts(&table, name), ["holds", "not judged"], "{name}");
        }
        // 80 of 95 misses remain with lines of twice the length.
        assert_eq!(verdicts(&table, "no benefit from longer lines"), ["holds", "not judged"]);
    }

    #[test]
    fn the_claim_about_longer_lines_has_the_factor_of_the_lengths() {
        // The unchanged model has lines of 32 B.
        for (line_bytes, expected) in [
            (
                64,
                "misses with lines of twice the length > 0.75 of the misses with the shorter lines",
            ),
            (
                128,
                "misses with lines of 4 times the length > 0.625 of the misses with the shorter lines",
            ),
            (
                16,
                "misses with lines of twice the length > 0.75 of the misses with the shorter lines",
            ),
        ] {
            let mut run = run("origin-200");
            let mut changed = counted(Level::L2, Stimulus::Disk, 80, 10);
            changed.ready.geometry.line_bytes = line_bytes;
            let change = Some("l2.line".to_owned());
            run.parts.push(Part { change, ..part(vec![changed]) });
            let table = findings(&Paper::built_in().unwrap(), &[run], Selection::Part);
            let claims: Vec<String> = table
                .rows()
                .iter()
                .filter(|row| row[0] == Value::from("no benefit from longer lines"))
                .map(|row| row[3].to_json().as_str().unwrap().to_owned())
                .collect();
            // The network has no series of the L2 cache.
            assert_eq!(claims, [expected, "longer lines do not reduce misses"]);
        }
    }

    /// The published figures support exactly the findings that the paper states.
    #[test]
    fn the_published_figures_are_judged_as_in_the_paper() {
        let paper = Paper::built_in().unwrap();
        let table = findings(&paper, &[run("origin-200"), run("ultra-1")], Selection::Part);
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
        let paper = Paper::built_in().unwrap();
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
