//! The findings of `footprint-1999` as claims about misses, judged on every
//! simulated model and on the published figures.

use lab::footprint::contexts::Mode;
use lab::footprint::estimate::Mean;
use lab::footprint::{Level, Method, Stimulus};
use record::Table;

use super::published::{Count, Paper};
use super::tables::{ModelRun, SeriesKey, display_by_model};
use crate::judge::{
    CLOSE_RATIO, Claim, Figure, Figures, FindingsTable, Known, Reason, Selection, Side, Test, Unit,
    exactly, half_benefit_ratio,
};

/// Section 4.2: on the Origin 200, a network interrupt displaces more than this factor as many L1 lines as a disk
/// interrupt.
const NETWORK_FACTOR: f64 = 4.0;
/// Section 4.1: the smallest and the largest footprint of a disk interrupt in a cache, KiB.
const FOOTPRINTS_KIB: [(Level, [u32; 2]); 2] = [(Level::L1d, [3, 4]), (Level::L1i, [10, 13])];

/// The disk stimuli: a read without a notification, and a read whose completion an eventfd reports.
const READS: [Stimulus; 2] = [Stimulus::Disk, Stimulus::DiskEvent];
const LEVELS: [Level; 3] = [Level::L1d, Level::L1i, Level::L2];

impl From<Mean> for Figure {
    fn from(Mean { mean, half_width, .. }: Mean) -> Figure {
        Figure::from_measurement(mean, half_width)
    }
}

const TABLE: FindingsTable = FindingsTable {
    subject: "What the finding is about: level, stimulus, mode.",
    ratio: ("simulated_ratio", "The ratio of both sides of the claim on the simulated machine."),
    evidence: "The misses of that ratio, with the half widths of their 95 % confidence intervals.",
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
    /// [`Cell::Short`] of the unchanged model, in bytes.
    Bytes(&'a ModelRun, Level, Stimulus),
    /// [`Cell::Short`] of the unchanged model, in L1D and L1I together.
    BothL1(&'a ModelRun, Stimulus),
    /// Entries of the data TLB that an interrupt evicts.
    TlbEntries(&'a ModelRun),
}

impl<'a> Cell<'a> {
    /// The measurements of the model, and the change of the model, if there is one.
    fn run_and_change(self) -> (&'a ModelRun, Option<&'a str>) {
        match self {
            Cell::Short(run, change, ..) => (run, change),
            Cell::Long(run, ..)
            | Cell::Bytes(run, ..)
            | Cell::BothL1(run, _)
            | Cell::TlbEntries(run) => (run, None),
        }
    }
}

impl Figures<Cell<'_>> for Paper {
    fn unit(&self, cell: &Cell<'_>) -> Unit {
        match cell {
            Cell::Short(..) | Cell::Long(..) | Cell::BothL1(..) => Unit::without_factor(" misses"),
            Cell::Bytes(..) => Unit::KIBIBYTES,
            Cell::TlbEntries(_) => Unit::without_factor(" entries"),
        }
    }

    /// The misses on the simulated model. An error says why there is no figure.
    fn measured_figure(&self, cell: &Cell<'_>) -> Known {
        // Short windows, by the refined method.
        let short_key = |change, level, stimulus| {
            let method = Method::Refined;
            SeriesKey { long: false, change, level, stimulus, method }
        };
        match *cell {
            Cell::Short(run, change, level, stimulus) => {
                run.beyond(short_key(change, level, stimulus), Mode::User, true).map(Figure::from)
            }
            Cell::Long(run, stimulus, method) => {
                run.long_effect(stimulus, method).map(Figure::from)
            }
            Cell::Bytes(run, level, stimulus) => {
                let (series, _) = run.series(short_key(None, level, stimulus))?;
                let line_bytes = f64::from(series.ready.geometry.line_bytes);
                Ok(self
                    .measured_figure(&Cell::Short(run, None, level, stimulus))?
                    .times(line_bytes))
            }
            Cell::BothL1(run, stimulus) => {
                let lines = |level| self.measured_figure(&Cell::Short(run, None, level, stimulus));
                Ok(lines(Level::L1d)?.plus(lines(Level::L1i)?))
            }
            Cell::TlbEntries(run) => {
                let command =
                    format!("irqlab footprint --on sim:{} --level dtlb measures it", run.model);
                Err(format!("this paper's command measures no TLB: {command}").into())
            }
        }
    }

    fn is_in_paper(&self, cell: &Cell<'_>) -> bool {
        // The paper did not measure changed machines.
        let (run, change) = cell.run_and_change();
        change.is_none() && self.machines.contains_key(&run.model)
    }

    /// The command caps the repetitions of long windows.
    fn has_interval_option(&self, cell: &Cell<'_>) -> bool {
        !matches!(cell, Cell::Long(..))
    }

    /// The figure of the paper. `None` for a cell that the paper does not state.
    fn published(&self, cell: &Cell<'_>) -> Option<Known> {
        if !self.is_in_paper(cell) {
            return None;
        }
        let (run, _) = cell.run_and_change();
        let paper_misses = |level, stimulus, method, count| -> Result<f64, Reason> {
            let count = self.figure(&run.model, level, stimulus, (method, Mode::User, count));
            count.map(f64::from).ok_or_else(|| "the paper has no figure".into())
        };
        let beyond =
            |level, stimulus| paper_misses(level, stimulus, Method::Refined, Count::Beyond);
        let effect = |stimulus, method| -> Result<f64, Reason> {
            // Both disk stimuli share one row without the interrupt.
            let with = paper_misses(Level::L1d, stimulus, method, Count::With)?;
            Ok(with - paper_misses(Level::L1d, Stimulus::Disk, method, Count::Without)?)
        };
        let figure = match *cell {
            Cell::Short(_, _, level, stimulus) => beyond(level, stimulus),
            Cell::Long(_, stimulus, method) => effect(stimulus, method),
            Cell::Bytes(run, level, stimulus) => {
                let line_bytes = self.machines.get(&run.model)?.line_bytes(level)?;
                beyond(level, stimulus).map(|misses| misses * f64::from(line_bytes))
            }
            Cell::BothL1(_, stimulus) => {
                beyond(Level::L1d, stimulus).and_then(|l1d| Ok(l1d + beyond(Level::L1i, stimulus)?))
            }
            // Section 3.3: its kernel lies in a single entry, which never leaves the TLB. It has no counts.
            Cell::TlbEntries(_) => return None,
        };
        Some(figure.map(exactly))
    }
}

/// The claims about one model.
fn claims_about_model(run: &ModelRun) -> Vec<Claim<Cell<'_>>> {
    // Section 4: in windows of 25 ms, the basic method cannot show the effect of a disk interrupt. The effect of the
    // clock's interrupts masks it.
    let method_findings = READS.into_iter().map(|stimulus| {
        Claim::new(
            "refined beats basic: effect",
            format!("l1d, {stimulus}, long windows"),
            "effect by refined > effect by basic",
            Test::Greater,
            [Method::Refined, Method::Basic]
                .map(|method| Side::Cell(Cell::Long(run, stimulus, method))),
        )
    });
    let changes = run.parts.iter().filter_map(|part| part.change.as_deref());
    let line_claims = changes.flat_map(|change| {
        [Stimulus::Disk, Stimulus::Net].map(|stimulus| longer_lines_claim(run, change, stimulus))
    });
    let all_claims = method_findings
        .chain(claims_between_devices(run))
        .chain(claims_between_levels(run))
        .chain(footprint_claims(run))
        .chain(line_claims);
    all_claims.map(|claim| Claim { model: Some(run.model.clone()), ..claim }).collect()
}

/// Section 4.2: a network interrupt displaces more lines than a disk interrupt. In L1I, the paper's machines differ: the
/// lines are the same on the Ultra-1, and more than four times as many on the Origin 200.
fn claims_between_devices(run: &ModelRun) -> Vec<Claim<Cell<'_>>> {
    let net_and_disk = |level| {
        [Stimulus::Net, Stimulus::Disk].map(|stimulus| Cell::Short(run, None, level, stimulus))
    };
    let mut claims = Vec::new();
    for level in LEVELS {
        let subject = format!("{level}, user");
        let [net, disk] = net_and_disk(level);
        if run.model == "ultra-1" && level == Level::L1i {
            claims.push(Claim::new(
                "L1I: network close to disk",
                subject,
                format!("net within {:.0} % of disk", CLOSE_RATIO * 100.0),
                Test::Close,
                [Side::Cell(net), Side::Cell(disk)],
            ));
            continue;
        }
        let sides = [net, disk].map(Side::Cell);
        let net_claim =
            Claim::new("network > disk", subject.as_str(), "net > disk", Test::Greater, sides);
        claims.push(net_claim);
        if run.model == "origin-200" && level != Level::L2 {
            claims.push(Claim::new(
                "network > 4 x disk",
                subject,
                format!("net > {NETWORK_FACTOR} x disk"),
                Test::Greater,
                [Side::Cell(net), Side::Times(NETWORK_FACTOR, disk)],
            ));
        }
    }
    claims
}

/// Section 4.1: both L1 caches together and the L2 cache lose about the same number of lines to a disk interrupt. On the
/// Ultra-1, whose L2 is small, both L1 caches lose more.
fn claims_between_levels(run: &ModelRun) -> Vec<Claim<Cell<'_>>> {
    let lines = |level, stimulus| Side::Cell(Cell::Short(run, None, level, stimulus));
    let claim = |stimulus| {
        let subject = format!("{stimulus}, user");
        if run.model == "ultra-1" {
            let sides = [Side::Cell(Cell::BothL1(run, stimulus)), lines(Level::L2, stimulus)];
            let claim = "L1D + L1I > L2";
            Claim::new("L1I + L1D more than L2", subject, claim, Test::Greater, sides)
        } else {
            Claim::new(
                "L1I + L1D close to L2",
                subject,
                format!("L1D + L1I within {:.0} % of L2", CLOSE_RATIO * 100.0),
                Test::Close,
                LEVELS.map(|level| lines(level, stimulus)),
            )
        }
    };
    READS.map(claim).into()
}

/// Section 4.1: the size of a disk interrupt's footprint in each L1 cache. Section 3.3: the Origin's kernel evicts nothing
/// from the TLB.
fn footprint_claims(run: &ModelRun) -> Vec<Claim<Cell<'_>>> {
    let footprint = |(level, [low, high]): (Level, [u32; 2])| {
        READS.map(|stimulus| {
            Claim::new(
                "footprint of a disk interrupt",
                format!("{level}, {stimulus}, user"),
                format!("about {low} to {high} KiB"),
                Test::AboutWithin,
                [
                    Side::Cell(Cell::Bytes(run, level, stimulus)),
                    Side::Number(f64::from(low) * 1024.0),
                    Side::Number(f64::from(high) * 1024.0),
                ],
            )
        })
    };
    let mut claims: Vec<Claim<Cell<'_>>> = FOOTPRINTS_KIB.into_iter().flat_map(footprint).collect();
    claims.extend((run.model == "origin-200").then(|| {
        Claim::new(
            "an interrupt evicts nothing from the TLB",
            "dtlb, user",
            "evicted entries < 1",
            Test::Greater,
            [Side::Number(1.0), Side::Cell(Cell::TlbEntries(run))],
        )
    }));
    claims
}

/// Section 4.1 on one model: compares its L2 cache with that of `change`, which has another line length. The first side is the
/// cache with the longer lines.
fn longer_lines_claim<'a>(
    run: &'a ModelRun,
    change: &'a str,
    stimulus: Stimulus,
) -> Claim<Cell<'a>> {
    let line_bytes_of = |change| {
        let (level, method) = (Level::L2, Method::Refined);
        let series = run.series(SeriesKey { long: false, change, level, stimulus, method });
        series.ok().map(|(series, _)| series.ready.geometry.line_bytes)
    };
    let (lengths, factor, changes) = match (line_bytes_of(None), line_bytes_of(Some(change))) {
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
    READS.map(claim).into()
}

/// Table `findings`: all findings, for all runs.
#[must_use]
pub fn findings(paper: &Paper, runs: &[ModelRun], selection: Selection) -> Table {
    let mut all_claims: Vec<Claim<Cell<'_>>> = runs.iter().flat_map(claims_about_model).collect();
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

    /// The published figures of a machine as measured series, with controls around 10 misses.
    fn as_published(paper: &Paper, model: &str) -> ModelRun {
        let misses = |level, stimulus, mode| {
            let figure = (Method::Refined, mode, Count::Beyond);
            paper.figure(model, level, stimulus, figure).map(|misses| u64::from(misses) + 10)
        };
        let mut short = Vec::new();
        for level in LEVELS {
            for stimulus in [Stimulus::Disk, Stimulus::DiskEvent, Stimulus::Net] {
                let Some(user) = misses(level, stimulus, Mode::User) else { continue };
                let mut series = counted(level, stimulus, user, 10);
                let line_bytes = paper.machines[model].line_bytes(level).unwrap_or(128);
                series.ready.geometry.line_bytes = line_bytes;
                let kernel = misses(level, stimulus, Mode::Kernel);
                series
                    .treatment
                    .iter_mut()
                    .for_each(|repetition| repetition.kernel_misses = kernel);
                series
                    .control
                    .iter_mut()
                    .for_each(|repetition| repetition.kernel_misses = Some(10));
                short.push(series);
            }
        }
        let mut parts = vec![part(short)];
        if paper.has_long_windows_of(model) {
            let mut long = Vec::new();
            for method in [Method::Refined, Method::Basic] {
                for stimulus in READS {
                    let figure = |stimulus, count| {
                        let figure = (method, Mode::User, count);
                        paper.figure(model, Level::L1d, stimulus, figure).unwrap().into()
                    };
                    let with = figure(stimulus, Count::With);
                    let without = figure(Stimulus::Disk, Count::Without);
                    long.push(Series { method, ..counted(Level::L1d, stimulus, with, without) });
                }
            }
            parts.push(Part { long: true, ..part(long) });
        }
        ModelRun { model: model.to_owned(), parts, left_out: Vec::new() }
    }

    /// Machines that measure the published figures agree with the paper, wherever a claim is judged.
    #[test]
    fn golden() {
        let paper = Paper::built_in().unwrap();
        let runs = ["origin-200", "ultra-1"].map(|model| as_published(&paper, model));
        let findings = findings(&paper, &runs, Selection::All);
        let agreement = |row: &Vec<Value>| findings.get(row, "agreement").cloned();
        let agreements: Vec<_> = findings.rows().iter().map(agreement).collect();
        assert!(!agreements.contains(&Some("disagrees".into())), "{agreements:?}");
        let table = tables(&paper, &runs, &mut Vec::new());
        crate::golden::check("footprint_1999", &[findings, table]);
    }

    #[test]
    fn a_finding_without_its_series_is_not_judged() {
        let paper = Paper::built_in().unwrap();
        let table = findings(&paper, &[run("origin-200")], Selection::Part);
        assert_eq!(table.check_display(), Ok(()));
        assert_eq!(verdicts(&table, "network > disk"), ["holds", "holds", "not judged"]);
        assert_eq!(verdicts(&table, "L1I + L1D close to L2"), ["holds", "not judged"]);
        let effect = verdicts(&table, "refined beats basic: effect");
        assert_eq!(effect, ["not judged", "not judged"]);
        let l2 = table.rows().iter().find(|row| row[2] == Value::from("l2, user")).unwrap();
        assert_eq!(l2[9], Value::from("no time"));
    }

    #[test]
    fn a_footprint_in_bytes_has_the_lines_of_the_measured_cache() {
        let paper = Paper::built_in().unwrap();
        let table = findings(&paper, &[run("origin-200")], Selection::Part);
        let name = "footprint of a disk interrupt";
        // 40 and 60 lines of 32 bytes.
        assert_eq!(verdicts(&table, name), ["fails", "not judged", "fails", "not judged"]);
        let row = table.rows().iter().find(|row| row[0] == Value::from(name)).unwrap();
        let evidence = table.get(row, "evidence").unwrap().to_json();
        let evidence = evidence.as_str().unwrap();
        assert!(evidence.starts_with("1.25 ± 0.02 KiB; 3.00 KiB to 4.00 KiB"), "{evidence}");
        let published = Value::from("3.25 KiB; 3.00 KiB to 4.00 KiB");
        assert_eq!(table.get(row, "published_evidence"), Some(&published));
        // The reason names the command that measures what this command does not.
        let tlb = "an interrupt evicts nothing from the TLB";
        let row = table.rows().iter().find(|row| row[0] == Value::from(tlb)).unwrap();
        let reason = table.get(row, "reason").unwrap().to_json();
        assert!(reason.as_str().unwrap().contains("irqlab footprint --on sim:origin-200"));
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
        assert_eq!(verdicts(&table, "refined beats basic: effect"), ["holds", "not judged"]);
        // 80 of 95 misses remain with lines of twice the length.
        assert_eq!(verdicts(&table, "no benefit from longer lines"), ["holds", "not judged"]);
    }

    /// The command measures long windows at most 24 times.
    #[test]
    fn a_reason_about_long_windows_does_not_advise_more_repetitions() {
        let mut run = run("origin-200");
        let effect = |method| Series { method, ..counted(Level::L1d, Stimulus::Disk, 40, 10) };
        let long = part(vec![effect(Method::Refined), effect(Method::Basic)]);
        run.parts.push(Part { long: true, ..long });
        // The sum of the first level's lines is 90 % of the lines of the L2 cache.
        run.parts[0].measured.samples.series[2] = counted(Level::L2, Stimulus::Disk, 121, 10);
        let table = findings(&Paper::built_in().unwrap(), &[run], Selection::Part);
        let reason = |name: &str| {
            let row = table.rows().iter().find(|row| row[0] == Value::from(name)).unwrap();
            table.get(row, "reason").unwrap().to_json().as_str().unwrap().to_owned()
        };
        assert_eq!(reason("refined beats basic: effect"), "the intervals overlap");
        assert!(reason("L1I + L1D close to L2").contains("with --repetitions 100"));
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

    /// The published figures support the findings that the paper states, or are within 5 % of a claim's limit.
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
        let and_near_limit = |count| [holds(count), vec!["not judged".to_owned()]].concat();
        assert_eq!(verdicts("network > disk", "origin-200"), holds(3));
        assert_eq!(verdicts("network > disk", "ultra-1"), holds(2));
        assert_eq!(verdicts("network > 4 x disk", "origin-200"), holds(2));
        // 427 lines are 1.06 times 402 lines; the limit is 1.1.
        assert_eq!(verdicts("L1I: network close to disk", "ultra-1"), and_near_limit(0));
        let footprint = "footprint of a disk interrupt";
        assert_eq!(verdicts(footprint, "origin-200"), holds(4));
        // 13.9 KiB; the limit is 1.1 times 13 KiB.
        assert_eq!(verdicts(footprint, "ultra-1"), and_near_limit(3));
        assert_eq!(verdicts("refined beats basic: effect", "origin-200"), holds(2));
        let close = "L1I + L1D close to L2";
        // 273 lines are 0.92 of 298 lines; the limit is 0.9.
        assert_eq!(verdicts(close, "origin-200"), ["not judged", "holds"]);
        assert_eq!(verdicts("L1I + L1D more than L2", "ultra-1"), holds(2));
        assert_eq!(verdicts("no benefit from longer lines", "origin-200, ultra-1"), holds(2));
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
