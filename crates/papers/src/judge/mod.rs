//! Findings of a paper. A paper's module `findings` states each finding as a [`Claim`] about figures; [`FindingsTable`]
//! judges all claims on the measured and on the published figures, and makes the table `findings`. Users' programs read
//! its columns: names and order must not change.

mod figure;
mod reason;
mod verdict;

use record::{Columns, Format, Table, column};

pub(crate) use self::figure::{Figure, Known, Unit, exactly, figure_columns, rounded};
use self::reason::Command;
pub(crate) use self::reason::Reason;
pub(crate) use self::verdict::{CLOSE_RATIO, Test, half_benefit_ratio};
use self::verdict::{Judged, Verdict};

/// Priority of the columns that a narrow terminal drops last: without them a verdict says nothing.
const NEVER_DROPPED: u8 = 101;

/// The figures that claims compare, each named by a cell.
pub(crate) trait Figures<Cell> {
    /// Unit of a cell's figures. All sides of a claim have one unit.
    fn unit(&self, cell: &Cell) -> Unit;

    /// The measured figure, or the reason why it is missing.
    fn measured_figure(&self, cell: &Cell) -> Known;

    /// The paper's figure, or the reason why it is missing. `None`: claims about this
    /// cell are not judged on published figures.
    fn published(&self, cell: &Cell) -> Option<Known>;

    /// The measurements that [`Figures::measured`] leaves out, and why. `None` if it uses all.
    fn remark(&self, _cell: &Cell) -> Option<String> {
        None
    }

    /// Whether the paper has the machine of the cell.
    fn is_in_paper(&self, cell: &Cell) -> bool;

    /// Whether the option [`FindingsTable::interval_option`] makes the interval of the measured figure narrower.
    fn has_interval_option(&self, _cell: &Cell) -> bool {
        true
    }
}

/// A side of a claim.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum Side<Cell> {
    Cell(Cell),
    /// The cell's figure times a factor, which is not negative.
    Times(f64, Cell),
    Number(f64),
}

impl<Cell> Side<Cell> {
    fn cell(&self) -> Option<&Cell> {
        match self {
            Side::Cell(cell) | Side::Times(_, cell) => Some(cell),
            Side::Number(_) => None,
        }
    }

    /// The figure of the side, computed from the figure of its cell. `None` or an error of
    /// the cell is the result for the side, too.
    fn figure(&self, cell_figure: impl Fn(&Cell) -> Option<Known>) -> Option<Known> {
        match self {
            Side::Cell(cell) => cell_figure(cell),
            Side::Times(factor, cell) => {
                Some(cell_figure(cell)?.map(|figure| figure.times(*factor)))
            }
            Side::Number(number) => Some(Ok(exactly(*number))),
        }
    }
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
        let published = judge(&|cell| figures.published(cell));
        (judge(&|cell| Some(figures.measured_figure(cell))).expect("measured cells"), published)
    }
}

/// A claim with its verdicts on the measured and on the published figures.
struct Finding<Cell> {
    claim: Claim<Cell>,
    measured: Judged,
    /// `None` if the claim is not judged on published figures.
    published: Option<Judged>,
    /// What the measured figures leave out, see [`Figures::remark`].
    remarks: Vec<String>,
    /// Whether the paper has the machines of the claim.
    is_in_paper: bool,
    /// Whether the command's option for narrower intervals makes all intervals of the claim narrower.
    has_interval_option: bool,
}

impl<Cell> Finding<Cell> {
    /// The measured figures of both sides, and what they leave out. `None` if a figure is missing.
    fn evidence(&self) -> Option<String> {
        let numbers = self.measured.has_figures().then(|| self.measured.numbers.clone());
        let parts: Vec<String> = [numbers?].into_iter().chain(self.remarks.clone()).collect();
        Some(parts.join("; "))
    }

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

    /// Why the paper's figures do not decide the claim. `None` if they do, or if the paper has no figures.
    fn why_paper_is_undecided(&self) -> Option<String> {
        let published = self.published.as_ref().filter(|published| published.has_figures())?;
        match &published.verdict {
            Verdict::NotJudged(reason) => Some(format!("in the paper, {}", reason.text())),
            Verdict::Holds | Verdict::Fails => None,
        }
    }
}

/// How much of a paper's machines, workloads and parts the user asked for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Selection {
    All,
    /// Options left some out.
    Part,
}

/// The command for a figure that only a stop of the run has left out.
pub(crate) const RUN_TO_ITS_END: &str = "the same command, run to its end,";
/// The command for a figure of a machine that the option `--models` has left out.
pub(crate) const WITHOUT_MODELS: &str = "the same command without --models";

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
    /// The command that measures a figure that an option has left out, or that was not measured before the run was
    /// stopped.
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
        command: RUN_TO_ITS_END,
        interval_option: None,
        has_models: false,
    };

    /// Table `findings`: one row per claim. `selection`: what the user asked for. If that was everything, no
    /// remark advises to ask for everything.
    pub(crate) fn judge<Cell>(
        self,
        claims: Vec<Claim<Cell>>,
        figures: &impl Figures<Cell>,
        selection: Selection,
    ) -> Table {
        let rows = claims.into_iter().map(|claim| {
            let (measured, published) = claim.judge(figures);
            let mut cells = claim.sides.iter().filter_map(Side::cell);
            let is_in_paper = cells.clone().all(|cell| figures.is_in_paper(cell));
            let remarks = cells.clone().filter_map(|cell| figures.remark(cell)).collect();
            let has_interval_option = cells.all(|cell| figures.has_interval_option(cell));
            Finding { claim, measured, published, remarks, is_in_paper, has_interval_option }
        });
        self.columns(selection).table("findings", self.doc, rows)
    }

    fn columns<'a, Cell: 'a>(self, selection: Selection) -> Columns<'a, Finding<Cell>> {
        type Row<Cell> = Finding<Cell>;
        let FindingsTable { command: measuring_all, interval_option, .. } = self;
        let command = Command { measuring_all, interval_option, selection };
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
                column("evidence", self.evidence)
                    .priority(98)
                    .wrapped()
                    .text(|row: &Row<Cell>| row.evidence()),
                column("published_verdict", "Verdict of the published figures.")
                    .title("published")
                    .priority(96)
                    .text(|row: &Row<Cell>| Some(row.published.as_ref()?.verdict.to_string())),
                ratio("published_ratio", "The same ratio of the published figures.")
                    .priority(95)
                    .real(|row: &Row<Cell>| row.published.as_ref()?.number),
                column(
                    "reason",
                    "Why the finding is not judged, and what to type to have it judged; or why the paper's figures do not \
                     decide it.",
                )
                .priority(NEVER_DROPPED)
                .wrapped()
                .text(move |row: &Row<Cell>| match &row.measured.verdict {
                    Verdict::NotJudged(reason) => {
                        let interval_option =
                            command.interval_option.filter(|_| row.has_interval_option);
                        Some(reason.with_remedy(Command { interval_option, ..command }))
                    }
                    Verdict::Holds | Verdict::Fails => row.why_paper_is_undecided(),
                }),
                column(
                    "agreement",
                    "agrees: the measured figures give the verdict of the published ones; where the paper has no \
                     figures, its text says that the claim holds. can't tell: the claim is not judged, by the measured \
                     figures or by the paper's. Absent for a machine that the paper does not have.",
                )
                .priority(NEVER_DROPPED + 1)
                .text(|row: &Row<Cell>| row.agreement()),
                column(
                    "published_evidence",
                    "The paper's figures of both sides; or why they decide nothing.",
                )
                .detail()
                .wrapped()
                .text(|row: &Row<Cell>| Some(row.published.as_ref()?.in_words())),
            ],
        )
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_finding_agrees_if_both_verdicts_are_the_same() {
        let claim = || Claim::<()>::new("", "", "", Test::Greater, []);
        let judged = |verdict| Judged { number: None, numbers: String::new(), verdict };
        let agreement = |measured, published: Option<Verdict>, is_in_paper| {
            let (measured, published) = (judged(measured), published.map(judged));
            Finding {
                claim: claim(),
                measured,
                published,
                remarks: Vec::new(),
                is_in_paper,
                has_interval_option: true,
            }
            .agreement()
        };
        let unknown = || Verdict::NotJudged("".into());
        assert_eq!(agreement(Verdict::Fails, Some(Verdict::Fails), true), Some("agrees"));
        assert_eq!(agreement(Verdict::Holds, Some(Verdict::Fails), true), Some("disagrees"));
        // The paper's text states what it has no figures for.
        for published in [None, Some(unknown())] {
            assert_eq!(agreement(Verdict::Holds, published.clone(), true), Some("agrees"));
            assert_eq!(agreement(Verdict::Fails, published, true), Some("disagrees"));
        }
        // The paper's figures do not decide the claim: they are equal, or nearly so.
        for second in [5.0, 5.1] {
            let sides = [exactly(5.0), exactly(second)].into();
            let undecided = Test::Greater.judge(Ok(sides), Unit::RATIO);
            for measured in [Verdict::Holds, Verdict::Fails, unknown()] {
                let (measured, published) = (judged(measured), Some(undecided.clone()));
                let finding = Finding {
                    claim: claim(),
                    measured,
                    published,
                    remarks: Vec::new(),
                    is_in_paper: true,
                    has_interval_option: true,
                };
                assert_eq!(finding.agreement(), Some("can't tell"));
            }
        }
        assert_eq!(agreement(unknown(), Some(Verdict::Holds), true), Some("can't tell"));
        assert_eq!(agreement(Verdict::Holds, None, false), None);
    }
}
