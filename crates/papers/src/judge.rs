//! Findings of a paper. A paper's module `findings` states each finding as a [`Claim`] about figures; [`FindingsTable`]
//! judges all claims on the measured and on the published figures, and makes the table `findings`. Users' programs read
//! its columns: names and order must not change.

use std::fmt;

use record::{Column, Columns, Format, Table, column};

/// Two counts are close if their ratio differs from 1 by at most this number. The paper `footprint-1999` calls 273 and
/// 298, and 286 and 300, "almost equal".
pub(crate) const CLOSE_RATIO: f64 = 0.10;

/// Priority of the columns that a narrow terminal drops last: without them a verdict says nothing.
const NEVER_DROPPED: u8 = 101;

/// End of the reason why a finding is not judged if its figures were left out, by options or because the run was stopped.
pub(crate) const NOT_MEASURED: &str = "not measured";

/// Why a finding is not judged if a figure was measured once or in too few batches.
const NO_INTERVAL: &str = "a figure has no interval";

/// Why a finding is not judged if its figures do not differ by more than their intervals.
const OVERLAP: &str = "the intervals overlap";

/// Why a finding is not judged if two figures without an error are equal.
const EQUAL: &str = "the figures are equal";

/// Why a finding about a ratio is not judged if the ratio may be on both sides of its limit.
const ACROSS_LIMIT: &str = "the ratio's interval crosses the limit";

/// The verdict on a finding.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Verdict {
    Holds,
    Fails,
    /// The finding cannot be judged, for this reason.
    NotJudged(String),
}

impl Verdict {
    fn from_bool(holds: bool) -> Verdict {
        if holds { Verdict::Holds } else { Verdict::Fails }
    }
}

impl fmt::Display for Verdict {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.write_str(match self {
            Verdict::Holds => "holds",
            Verdict::Fails => "fails",
            Verdict::NotJudged(_) => "not judged",
        })
    }
}

/// A verdict, with the numbers that decide it.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Judged {
    /// The ratio of the sides that decides the verdict. `None` if it cannot be computed.
    pub(crate) number: Option<f64>,
    /// The figures of the claim's sides, as text. Empty only if a figure is missing.
    pub(crate) numbers: String,
    pub(crate) verdict: Verdict,
}

/// A measured or published number.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(crate) struct Figure {
    pub(crate) mean: f64,
    /// Half the width of the 95 % confidence interval. 0 for a published number. Infinite for a number that was
    /// measured once or in too few batches.
    pub(crate) half_width: f64,
}

/// A figure, or the reason for a missing figure.
pub(crate) type Known = Result<Figure, String>;

/// A number without an error, such as a published figure.
pub(crate) fn exactly(number: f64) -> Figure {
    Figure { mean: number, half_width: 0.0 }
}

/// Unit of a figure in the column `evidence`.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Unit {
    /// Printed after the number. Empty for a plain ratio.
    label: &'static str,
    /// The printed number over the figure.
    factor: f64,
}

impl Unit {
    /// A ratio that is no share, such as a speed-up.
    pub(crate) const RATIO: Unit = Unit { label: "", factor: 1.0 };
    /// A share, 0 to 1.
    pub(crate) const PERCENT: Unit = Unit { label: " %", factor: 100.0 };
    /// A time in ns.
    pub(crate) const MICROSECONDS: Unit = Unit { label: " µs", factor: 1e-3 };

    /// The unit of the figure itself. `label` begins with a space.
    pub(crate) const fn named(label: &'static str) -> Unit {
        Unit { label, factor: 1.0 }
    }
}

/// The figures that claims compare, each named by a cell.
pub(crate) trait Figures<Cell> {
    /// Unit of a cell's figures. All sides of a claim have one unit.
    fn unit(&self, cell: &Cell) -> Unit;

    /// The measured figure, or the reason why it is missing.
    fn measured(&self, cell: &Cell) -> Known;

    /// The paper's figure, or the reason why it is missing. `None`: claims about this
    /// cell are not judged on published figures.
    fn published(&self, cell: &Cell) -> Option<Known>;

    /// Whether the paper has the machine of the cell.
    fn is_in_paper(&self, _cell: &Cell) -> bool {
        true
    }
}

/// A side of a claim.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum Side<Cell> {
    Cell(Cell),
    /// The cell's figure times a factor, which is not negative.
    Times(f64, Cell),
    /// The cell's figure plus a number.
    Plus(f64, Cell),
    Number(f64),
}

impl<Cell> Side<Cell> {
    fn cell(&self) -> Option<&Cell> {
        match self {
            Side::Cell(cell) | Side::Times(_, cell) | Side::Plus(_, cell) => Some(cell),
            Side::Number(_) => None,
        }
    }

    /// The figure of the side, computed from the figure of its cell. `None` or an error of
    /// the cell is the result for the side, too.
    fn figure(&self, cell_figure: impl Fn(&Cell) -> Option<Known>) -> Option<Known> {
        let changed =
            |cell, change: &dyn Fn(Figure) -> Figure| Some(cell_figure(cell)?.map(change));
        match self {
            Side::Cell(cell) => cell_figure(cell),
            Side::Times(factor, cell) => changed(cell, &|Figure { mean, half_width }| Figure {
                mean: mean * factor,
                half_width: half_width * factor,
            }),
            Side::Plus(addend, cell) => {
                changed(cell, &|figure| Figure { mean: figure.mean + addend, ..figure })
            }
            Side::Number(number) => Some(Ok(exactly(*number))),
        }
    }
}

/// The test of a claim: what its sides must fulfil for the claim to hold.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) enum Test {
    /// The first side is greater than the second. Not judged if their intervals overlap.
    Greater,
    /// The first side's interval is narrower than the second's, each relative to its mean. The first side is by the
    /// refined method, the second by the basic method. Not judged on published figures: they have no intervals.
    Narrower,
    /// The sum of the first two sides differs from the third by at most [`CLOSE_RATIO`]. Not judged if the interval of
    /// the ratio crosses that limit, or if a side is negative.
    Close,
    /// Cache lines that are longer by this factor do not reduce misses. The first side has the longer
    /// lines. With the full benefit, the ratio of the sides is 1 / factor. The test holds if the
    /// ratio is nearer to 1 than to 1 / factor. Not judged if the intervals of the first side and of the limit overlap, or
    /// if a side is negative.
    NoBenefit(f64),
}

/// A claim of a paper about one subject: a row of a table of claims.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Claim<Cell> {
    /// The paper's finding, in words.
    pub(crate) finding: &'static str,
    /// Model of the simulated machine. In one table, all claims have a model or none has.
    pub(crate) model: Option<String>,
    /// Subject of the finding, such as level and stimulus.
    pub(crate) subject: String,
    /// The claim that must be true for the finding to hold.
    pub(crate) claim: String,
    pub(crate) test: Test,
    /// The figures that the test compares.
    pub(crate) sides: Vec<Side<Cell>>,
}

impl<Cell> Claim<Cell> {
    /// A claim without a model.
    pub(crate) fn new(
        finding: &'static str,
        subject: impl Into<String>,
        claim: impl Into<String>,
        test: Test,
        sides: impl Into<Vec<Side<Cell>>>,
    ) -> Claim<Cell> {
        let (subject, claim, sides) = (subject.into(), claim.into(), sides.into());
        Claim { finding, model: None, subject, claim, test, sides }
    }

    /// The verdicts on the measured and on the published figures. The second is `None` if the
    /// claim is not judged on published figures.
    fn judge(&self, figures: &impl Figures<Cell>) -> (Judged, Option<Judged>) {
        let first_cell = self.sides.iter().find_map(Side::cell);
        let unit = first_cell.map_or(Unit::RATIO, |cell| figures.unit(cell));
        let judge = |cell_figure: &dyn Fn(&Cell) -> Option<Known>| {
            let sides = self.sides.iter().map(|side| side.figure(cell_figure));
            let sides: Vec<Known> = sides.collect::<Option<_>>()?;
            Some(self.test.judge(sides.into_iter().collect(), unit))
        };
        let published = match self.test {
            Test::Narrower => None,
            _ => judge(&|cell| figures.published(cell)),
        };
        (judge(&|cell| Some(figures.measured(cell))).expect("measured cells"), published)
    }
}

/// A claim with its verdicts on the measured and on the published figures.
struct Finding<Cell> {
    claim: Claim<Cell>,
    measured: Judged,
    /// `None` if the claim is not judged on published figures.
    published: Option<Judged>,
    /// Whether the paper has the machines of the claim.
    is_in_paper: bool,
}

impl<Cell> Finding<Cell> {
    /// Whether the measured verdict is that of the paper. `None` for a machine that the paper does not have.
    fn agreement(&self) -> Option<&'static str> {
        if !self.is_in_paper {
            return None;
        }
        let holds = |verdict: &Verdict| match verdict {
            Verdict::Holds => Some(true),
            Verdict::Fails => Some(false),
            Verdict::NotJudged(_) => None,
        };
        // Where the paper has no figures for a claim, its text says that the claim holds.
        let published = match &self.published {
            None => Some(true),
            Some(judged) => {
                holds(&judged.verdict).or_else(|| (!judged.has_figures()).then_some(true))
            }
        };
        let verdicts = holds(&self.measured.verdict).zip(published);
        Some(match verdicts {
            None => "can't tell",
            Some((measured, published)) if measured == published => "agrees",
            Some(_) => "disagrees",
        })
    }
}

/// How much of a paper's machines, workloads and parts the user asked for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Selection {
    All,
    /// Options left some out.
    Part,
}

/// The parts of the table `findings` that differ between papers.
#[derive(Clone, Copy)]
pub(crate) struct FindingsTable {
    /// Documentation of the table.
    pub(crate) doc: &'static str,
    /// Documentation of the column `subject`.
    pub(crate) subject: &'static str,
    /// Name and documentation of the column with the measured ratio.
    pub(crate) ratio: (&'static str, &'static str),
    /// Documentation of the column `evidence`.
    pub(crate) evidence: &'static str,
    /// The command that measures everything that the findings need.
    pub(crate) command: &'static str,
    /// The option of that command that gives more figures an interval and makes intervals narrower. `None` if the
    /// command has no such option.
    pub(crate) interval_option: Option<&'static str>,
    /// Whether the table has the column `model`.
    pub(crate) has_models: bool,
}

impl FindingsTable {
    /// The table of findings that are judged on simulated machines. A paper should replace `subject` and `evidence`.
    pub(crate) const SIMULATED: FindingsTable = FindingsTable {
        doc: "The paper's findings as claims about numbers, judged by the simulated and by the published figures.",
        subject: "What the finding is about.",
        ratio: (
            "simulated_ratio",
            "The ratio of both sides of the claim on the simulated machines.",
        ),
        evidence: "Both sides.",
        command: "irqlab reproduce PAPER",
        interval_option: None,
        has_models: false,
    };

    /// Table `findings`: one row per claim. `selection`: what the user asked for. Who has asked for all is not told to
    /// ask for all.
    pub(crate) fn judge<Cell>(
        self,
        claims: Vec<Claim<Cell>>,
        figures: &impl Figures<Cell>,
        selection: Selection,
    ) -> Table {
        let rows = claims.into_iter().map(|claim| {
            let (measured, published) = claim.judge(figures);
            let mut cells = claim.sides.iter().filter_map(Side::cell);
            let is_in_paper = cells.all(|cell| figures.is_in_paper(cell));
            Finding { claim, measured, published, is_in_paper }
        });
        self.columns(selection).table("findings", self.doc, rows)
    }

    fn columns<'a, Cell: 'a>(self, selection: Selection) -> Columns<'a, Finding<Cell>> {
        type Row<Cell> = Finding<Cell>;
        let ratio = |name: &str, doc: &str| column(name, doc).format(Format::Factor);
        let model = column("model", "Model of the simulated machine.")
            .key()
            .text(|row: &Row<Cell>| row.claim.model.clone());
        let finding = column("finding", "The paper's finding.").priority(100).wrapped().key();
        finding.text(|row: &Row<Cell>| row.claim.finding).and(self.has_models.then_some(model)).and(
            [
                column("subject", self.subject)
                    .priority(99)
                    .wrapped()
                    .key()
                    .text(|row: &Row<Cell>| row.claim.subject.clone()),
                column("claim", "The claim that must be true for the finding to hold.")
                    .priority(NEVER_DROPPED)
                    .wrapped()
                    .key()
                    .text(|row: &Row<Cell>| row.claim.claim.clone()),
                column("verdict", "holds, fails, or not judged.")
                    .priority(NEVER_DROPPED + 1)
                    .text(|row: &Row<Cell>| row.measured.verdict.to_string()),
                ratio(self.ratio.0, self.ratio.1)
                    .title("ratio")
                    .priority(97)
                    .real(|row: &Row<Cell>| row.measured.number),
                column("evidence", self.evidence).priority(98).wrapped().text(
                    |row: &Row<Cell>| {
                        let numbers = &row.measured.numbers;
                        (!numbers.is_empty()).then(|| numbers.clone())
                    },
                ),
                column("published_verdict", "Verdict of the published figures.")
                    .title("published")
                    .priority(96)
                    .text(|row: &Row<Cell>| Some(row.published.as_ref()?.verdict.to_string())),
                ratio("published_ratio", "The same ratio of the published figures.")
                    .priority(95)
                    .real(|row: &Row<Cell>| row.published.as_ref()?.number),
                column(
                    "reason",
                    "Why the finding is not judged, and what to type to have it judged.",
                )
                .priority(NEVER_DROPPED)
                .wrapped()
                .text(move |row: &Row<Cell>| match &row.measured.verdict {
                    Verdict::NotJudged(reason) if reason.ends_with(NOT_MEASURED) => {
                        Some(match selection {
                            Selection::Part => format!("{reason}: {} measures all", self.command),
                            Selection::All => {
                                format!("{reason}, although all was asked for: see the warnings and absences")
                            }
                        })
                    }
                    Verdict::NotJudged(reason) => {
                        let effect = match reason.as_str() {
                            NO_INTERVAL => "gives it one",
                            OVERLAP => "narrows them",
                            ACROSS_LIMIT => "narrows it",
                            _ => "",
                        };
                        Some(match self.interval_option {
                            Some(option) if !effect.is_empty() => {
                                format!("{reason}: {} {option} {effect}", self.command)
                            }
                            _ => reason.clone(),
                        })
                    }
                    Verdict::Holds | Verdict::Fails => None,
                }),
                column(
                    "agreement",
                    "agrees: the measured figures give the verdict of the published ones; where the paper has no \
                     figures, its text says that the claim holds. can't tell: the claim is not judged, by the measured \
                     figures or by the paper's. Absent for a machine that the paper does not have.",
                )
                .priority(NEVER_DROPPED + 1)
                .text(|row: &Row<Cell>| row.agreement()),
            ],
        )
    }
}

/// The columns of a figure. `mean`: the column of its mean. `half_width`: the name of the detail column with the half
/// width of its interval. `source`: the end of that column's description.
pub(crate) fn figure_columns<'a>(
    mean: Column,
    half_width: &str,
    source: &str,
) -> Columns<'a, Option<Figure>> {
    let doc = format!("Half width of the 95 % confidence interval of {}{source}.", mean.name);
    Columns::all([
        mean.plus_minus(half_width).real(|figure: &Option<Figure>| Some(figure.as_ref()?.mean)),
        column(half_width, &doc)
            .detail()
            .real(|figure: &Option<Figure>| Some(figure.as_ref()?.half_width)),
    ])
}

impl Judged {
    /// A claim that cannot be judged because a figure is missing.
    fn without_figures(reason: String) -> Judged {
        Judged { number: None, numbers: String::new(), verdict: Verdict::NotJudged(reason) }
    }

    /// A claim that cannot be judged by its figures, which `numbers` lists.
    fn unusable(reason: &str, numbers: String) -> Judged {
        Judged { number: None, numbers, verdict: Verdict::NotJudged(reason.to_owned()) }
    }

    /// Whether all sides of the claim have a figure.
    fn has_figures(&self) -> bool {
        !self.numbers.is_empty()
    }
}

/// The figure with its interval and unit, as text. It has at least three significant digits and one decimal place.
fn figure_text(figure: Figure, unit: Unit) -> String {
    let label = unit.label;
    let figure =
        Figure { mean: figure.mean * unit.factor, half_width: figure.half_width * unit.factor };
    let size = if figure.mean == 0.0 { 1.0 } else { figure.mean.abs().max(1e-6) };
    let decimals = (2.0 - size.log10().floor()).max(1.0) as usize;
    if figure.half_width.is_finite() {
        format!("{:.decimals$} ± {:.decimals$}{label}", figure.mean, figure.half_width)
    } else {
        format!("{:.decimals$}{label} (no interval)", figure.mean)
    }
}

impl Test {
    /// Judges the figures of the sides. `unit`: for their text.
    ///
    /// # Panics
    /// If the claim does not have exactly the sides that the test compares.
    fn judge(self, sides: Result<Vec<Figure>, String>, unit: Unit) -> Judged {
        let figure_text = |figure| figure_text(figure, unit);
        let sides = match sides {
            Ok(sides) => sides,
            Err(reason) => return Judged::without_figures(reason),
        };
        let pair_text =
            |first, second| format!("{} and {}", figure_text(first), figure_text(second));
        match (self, sides[..].as_ref()) {
            (Test::Greater, &[first, second]) => {
                let number = (second.mean > 0.0).then(|| first.mean / second.mean);
                Judged {
                    number,
                    numbers: pair_text(first, second),
                    verdict: greater(first, second),
                }
            }
            (Test::Narrower, &[refined, basic]) => {
                let relative_half_width = |figure: Figure| figure.half_width / figure.mean.abs();
                let numbers =
                    format!("refined {}, basic {}", figure_text(refined), figure_text(basic));
                let (refined, basic) = (relative_half_width(refined), relative_half_width(basic));
                if refined.is_nan() || basic.is_nan() {
                    return Judged::unusable("a figure is 0 ± 0", numbers);
                }
                let number = Some(basic / refined).filter(|ratio| ratio.is_finite());
                Judged { number, numbers, verdict: Verdict::from_bool(refined < basic) }
            }
            (Test::Close, &[first, second, total]) => {
                let numbers = format!("{}; {}", pair_text(first, second), figure_text(total));
                if first.mean < 0.0 || second.mean < 0.0 || total.mean < 0.0 {
                    return Judged::unusable(NEGATIVE, numbers);
                }
                let sum = Figure {
                    mean: first.mean + second.mean,
                    half_width: first.half_width.hypot(second.half_width),
                };
                let ratio = sum.mean / total.mean;
                if !ratio.is_finite() {
                    return Judged::unusable(NOTHING, numbers);
                }
                // The first-order error of the ratio of independent figures (delta method).
                let half_width = sum.half_width.hypot(ratio * total.half_width) / total.mean;
                Judged { number: Some(ratio), numbers, verdict: close(ratio, half_width) }
            }
            (Test::NoBenefit(factor), &[long, short]) => {
                let numbers = pair_text(long, short);
                if long.mean < 0.0 || short.mean < 0.0 {
                    return Judged::unusable(NEGATIVE, numbers);
                }
                let ratio = long.mean / short.mean;
                if !ratio.is_finite() || factor <= 1.0 {
                    return Judged::unusable(NOTHING, numbers);
                }
                let limit = half_benefit_ratio(factor);
                let limit =
                    Figure { mean: limit * short.mean, half_width: limit * short.half_width };
                Judged { number: Some(ratio), numbers, verdict: greater(long, limit) }
            }
            _ => panic!("{self:?} of {} sides", sides.len()),
        }
    }
}

/// Why a finding is not judged if a figure that cannot be negative is negative.
const NEGATIVE: &str = "a figure is negative: the effect is below its error";

/// Why a finding is not judged if its figures are 0.
const NOTHING: &str = "nothing to compare: the figures are 0";

/// Whether the first figure is greater. Not judged if the intervals overlap.
fn greater(first: Figure, second: Figure) -> Verdict {
    // The distance between the intervals; negative if they overlap.
    let gap = (first.mean - second.mean).abs() - first.half_width - second.half_width;
    let has_error = first.half_width > 0.0 || second.half_width > 0.0;
    if gap > 0.0 {
        Verdict::from_bool(first.mean > second.mean)
    } else if gap.is_infinite() {
        Verdict::NotJudged(NO_INTERVAL.to_owned())
    } else if has_error {
        Verdict::NotJudged(OVERLAP.to_owned())
    } else {
        Verdict::NotJudged(EQUAL.to_owned())
    }
}

/// Whether a ratio with an interval of this half width differs from 1 by at most [`CLOSE_RATIO`]. Not judged if the
/// interval crosses that limit.
fn close(ratio: f64, half_width: f64) -> Verdict {
    let distance = (ratio - 1.0).abs();
    if distance + half_width <= CLOSE_RATIO {
        Verdict::Holds
    } else if distance - half_width > CLOSE_RATIO {
        Verdict::Fails
    } else if half_width.is_infinite() {
        Verdict::NotJudged(NO_INTERVAL.to_owned())
    } else {
        Verdict::NotJudged(ACROSS_LIMIT.to_owned())
    }
}

/// The ratio of misses half way between no benefit of longer lines (1) and the full benefit (1 / `factor`).
pub(crate) fn half_benefit_ratio(factor: f64) -> f64 {
    (1.0 + 1.0 / factor) / 2.0
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn greater(left: Known, right: Known) -> Judged {
        Test::Greater.judge([left, right].into_iter().collect(), Unit::RATIO)
    }

    fn narrower(refined: Known, basic: Known) -> Judged {
        Test::Narrower.judge([refined, basic].into_iter().collect(), Unit::RATIO)
    }

    fn close([first, second]: [Known; 2], whole: Known) -> Judged {
        Test::Close.judge([first, second, whole].into_iter().collect(), Unit::RATIO)
    }

    fn no_benefit(long: Known, short: Known, factor: f64) -> Judged {
        Test::NoBenefit(factor).judge([long, short].into_iter().collect(), Unit::RATIO)
    }

    fn mean(mean: f64, half_width: f64) -> Known {
        Ok(Figure { mean, half_width })
    }

    #[test]
    fn figures_are_printed_with_their_units() {
        let sides = || [mean(1_250_000.0, 5_000.0), mean(2e6, 0.0)].into_iter().collect();
        let text = |unit| Test::Greater.judge(sides(), unit).numbers;
        assert_eq!(text(Unit::MICROSECONDS), "1250.0 ± 5.0 µs and 2000.0 ± 0.0 µs");
        let share = [mean(0.261, 0.002), mean(0.2, 0.0)].into_iter().collect();
        let share = Test::Greater.judge(share, Unit::PERCENT).numbers;
        assert_eq!(share, "26.1 ± 0.2 % and 20.0 ± 0.0 %");
    }

    #[test]
    fn a_finding_agrees_if_both_verdicts_are_the_same() {
        let claim = || Claim::<()>::new("", "", "", Test::Greater, []);
        let judged = |verdict| Judged { number: None, numbers: String::new(), verdict };
        let agreement = |measured, published: Option<Verdict>, is_in_paper| {
            let (measured, published) = (judged(measured), published.map(judged));
            Finding { claim: claim(), measured, published, is_in_paper }.agreement()
        };
        let unknown = || Verdict::NotJudged(String::new());
        assert_eq!(agreement(Verdict::Fails, Some(Verdict::Fails), true), Some("agrees"));
        assert_eq!(agreement(Verdict::Holds, Some(Verdict::Fails), true), Some("disagrees"));
        // The paper's text states what it has no figures for.
        for published in [None, Some(unknown())] {
            assert_eq!(agreement(Verdict::Holds, published.clone(), true), Some("agrees"));
            assert_eq!(agreement(Verdict::Fails, published, true), Some("disagrees"));
        }
        // The paper's figures do not decide the claim.
        let equal = greater(mean(5.0, 0.0), mean(5.0, 0.0));
        assert_eq!(equal.verdict, Verdict::NotJudged("the figures are equal".to_owned()));
        for measured in [Verdict::Holds, Verdict::Fails, unknown()] {
            let (measured, published) = (judged(measured), Some(equal.clone()));
            let finding = Finding { claim: claim(), measured, published, is_in_paper: true };
            assert_eq!(finding.agreement(), Some("can't tell"));
        }
        assert_eq!(agreement(unknown(), Some(Verdict::Holds), true), Some("can't tell"));
        assert_eq!(agreement(Verdict::Holds, None, false), None);
    }

    fn not_measured() -> Known {
        Err("no L2".to_owned())
    }

    #[test]
    fn a_figure_that_was_measured_once_is_not_judged() {
        let once = Figure { mean: 12.5, half_width: f64::INFINITY };
        let judged = greater(Ok(once), Ok(exactly(2.0)));
        let why = "a figure has no interval".to_owned();
        assert_eq!((judged.number, judged.verdict), (Some(6.25), Verdict::NotJudged(why)));
        assert_eq!(judged.numbers, "12.5 (no interval) and 2.00 ± 0.00");
    }

    #[test]
    fn an_unknown_figure_is_not_judged() {
        let unknown = Verdict::NotJudged("no L2".to_owned());
        assert_eq!(greater(mean(1.0, 0.1), not_measured()).verdict, unknown);
        assert_eq!(narrower(not_measured(), mean(1.0, 0.1)).verdict, unknown);
        assert_eq!(close([mean(1.0, 0.1), not_measured()], mean(2.0, 0.1)).verdict, unknown);
        assert_eq!(close([mean(1.0, 0.1), mean(1.0, 0.1)], not_measured()).verdict, unknown);
        assert_eq!(no_benefit(not_measured(), not_measured(), 2.0).verdict, unknown);
        let zeros = close([mean(0.0, 0.0), mean(0.0, 0.0)], mean(0.0, 0.0)).verdict;
        assert!(matches!(zeros, Verdict::NotJudged(_)));
        let zeros = narrower(mean(0.0, 0.0), mean(0.0, 0.0)).verdict;
        assert!(matches!(zeros, Verdict::NotJudged(_)));
    }

    #[test]
    fn numbers_decide() {
        assert_eq!(greater(mean(30.0, 2.0), mean(20.0, 2.0)).verdict, Verdict::Holds);
        assert_eq!(greater(mean(20.0, 2.0), mean(30.0, 2.0)).verdict, Verdict::Fails);
        let overlap = greater(mean(30.0, 6.0), mean(20.0, 6.0)).verdict;
        assert!(matches!(overlap, Verdict::NotJudged(_)));
        let judged = narrower(mean(104.0, 5.0), mean(17.0, 30.0));
        assert_eq!(judged.verdict, Verdict::Holds);
        assert!(judged.number.is_some_and(|ratio| ratio > 36.0 && ratio < 37.0));
        assert_eq!(narrower(mean(17.0, 30.0), mean(104.0, 5.0)).verdict, Verdict::Fails);
        let close_to =
            |whole| close([mean(104.0, 1.0), mean(169.0, 1.0)], mean(whole, 1.0)).verdict;
        assert_eq!((close_to(298.0), close_to(350.0)), (Verdict::Holds, Verdict::Fails));
        let without_benefit =
            |long, factor| no_benefit(mean(long, 1.0), mean(100.0, 1.0), factor).verdict;
        let twice = (without_benefit(80.0, 2.0), without_benefit(70.0, 2.0));
        assert_eq!(twice, (Verdict::Holds, Verdict::Fails));
        let four_times = (without_benefit(70.0, 4.0), without_benefit(60.0, 4.0));
        assert_eq!(four_times, (Verdict::Holds, Verdict::Fails));
    }

    #[test]
    fn a_ratio_at_its_limit_is_judged_beyond_its_interval_alone() {
        let across = || Verdict::NotJudged(ACROSS_LIMIT.to_owned());
        let verdict = |first, second, total| close([first, second], total).verdict;
        // The interval of 0.98 ± 0.88 contains the limit of 10 %, though both intervals are wide.
        assert_eq!(verdict(mean(60.0, 40.0), mean(38.0, 30.0), mean(100.0, 50.0)), across());
        // The half widths of the ratio: 5 / 100 for the sum, 0.98 * 4 / 100 for the total, 0.0635 for both.
        let within = |first| verdict(mean(first, 3.0), mean(38.0, 4.0), mean(100.0, 4.0));
        assert_eq!(within(60.0), Verdict::Holds);
        assert_eq!(within(57.0), across());
        assert_eq!(within(47.0), across());
        assert_eq!(within(45.0), Verdict::Fails);
        let once = mean(38.0, f64::INFINITY);
        let unknown = Verdict::NotJudged(NO_INTERVAL.to_owned());
        assert_eq!(verdict(mean(60.0, 3.0), once.clone(), mean(100.0, 4.0)), unknown);
        // Lines of twice the length: 80 of 100 misses remain, and the limit is 75.
        let without_benefit =
            |half_width| no_benefit(mean(80.0, half_width), mean(100.0, half_width), 2.0).verdict;
        assert_eq!(without_benefit(2.0), Verdict::Holds);
        assert_eq!(without_benefit(4.0), Verdict::NotJudged(OVERLAP.to_owned()));
        assert_eq!(no_benefit(once, mean(100.0, 1.0), 2.0).verdict, unknown);
    }

    #[test]
    fn negative_effects_have_no_ratio() {
        let negative = || Verdict::NotJudged(NEGATIVE.to_owned());
        assert_eq!(no_benefit(mean(-5.0, 0.1), mean(-3.0, 0.1), 2.0).verdict, negative());
        assert_eq!(no_benefit(mean(-5.0, 0.1), mean(3.0, 0.1), 2.0).verdict, negative());
        let exact = |number| mean(number, 0.0);
        assert_eq!(close([exact(-1.0), exact(-2.0)], exact(-3.0)).verdict, negative());
        assert_eq!(close([exact(5.0), exact(-2.0)], exact(3.0)).verdict, negative());
        assert_eq!(close([exact(5.0), exact(0.0)], exact(5.0)).verdict, Verdict::Holds);
        let judged = no_benefit(exact(0.0), exact(0.0), 2.0);
        assert_eq!(judged.verdict, Verdict::NotJudged(NOTHING.to_owned()));
        assert_eq!(judged.numbers, "0.00 ± 0.00 and 0.00 ± 0.00");
    }

    proptest! {
        #[test]
        fn greater_and_its_converse_never_both_hold(
            left in 0.0..1e4_f64, right in 0.0..1e4_f64, half_width in 0.0..100.0_f64,
        ) {
            let verdict = greater(mean(left, half_width), mean(right, half_width)).verdict;
            let converse = greater(mean(right, half_width), mean(left, half_width)).verdict;
            let expected = match verdict {
                Verdict::Holds => Verdict::Fails,
                Verdict::Fails => Verdict::Holds,
                not_judged => not_judged,
            };
            prop_assert_eq!(converse, expected);
        }
    }
}
