//! A finding of a paper as a statement of numbers: whether it holds here; and the table of all of them.

use std::fmt;

use record::{Column, Format, Kind, Table, Value};

/// Two counts are close when their ratio is no farther from 1. The paper calls 273 and 298, 286 and
/// 300 "almost equal".
pub(crate) const CLOSE_RATIO: f64 = 0.10;

/// The verdict on a statement.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Verdict {
    Holds,
    /// It does not.
    Fails,
    /// It cannot be judged, for this reason.
    NotJudged(String),
}

impl Verdict {
    fn of(holds: bool) -> Verdict {
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

/// A number with the verdict that follows from it.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Judged {
    /// The number that decides, if there is one.
    pub(crate) number: Option<f64>,
    /// The numbers that it is made of, in words.
    pub(crate) numbers: String,
    pub(crate) verdict: Verdict,
}

/// A finding about one subject, judged by what was measured and by the published figures.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Finding {
    /// The paper's finding, in words.
    pub(crate) name: &'static str,
    /// Model of the simulated machine; the same for all findings of a table, present or not.
    pub(crate) model: Option<String>,
    /// What it is about.
    pub(crate) subject: String,
    /// What must be true for it to hold.
    pub(crate) claim: String,
    pub(crate) measured: Judged,
    /// By the published figures; absent if the paper has none for it.
    pub(crate) published: Option<Judged>,
}

/// A finding that is of no single model.
pub(crate) fn finding(
    name: &'static str,
    subject: impl Into<String>,
    claim: &str,
    measured: Judged,
    published: Option<Judged>,
) -> Finding {
    let (subject, claim) = (subject.into(), claim.to_owned());
    Finding { name, model: None, subject, claim, measured, published }
}

/// What differs between the tables of findings of two papers.
pub(crate) struct FindingsTable {
    /// What a row is.
    pub(crate) doc: &'static str,
    /// Documentation of the column `subject`.
    pub(crate) subject: &'static str,
    /// Name and documentation of the ratio that was measured.
    pub(crate) ratio: (&'static str, &'static str),
    /// Documentation of the column `evidence`.
    pub(crate) evidence: &'static str,
    /// Priorities of the columns `claim` and `evidence`; 0: a detail.
    pub(crate) priorities: (u8, u8),
    pub(crate) has_models: bool,
}

impl FindingsTable {
    /// A paper's findings, judged on simulated machines. `subject` and `evidence` are the paper's own.
    pub(crate) const SIMULATED: FindingsTable = FindingsTable {
        doc: "The paper's findings as claims about numbers, judged by the simulated and by the published figures.",
        subject: "What the finding is about.",
        ratio: (
            "simulated_ratio",
            "The ratio of both sides of the claim on the simulated machines.",
        ),
        evidence: "Both sides.",
        priorities: (90, 70),
        has_models: false,
    };

    /// The table `findings`, a row for each.
    pub(crate) fn of(&self, findings: Vec<Finding>) -> Table {
        let mut table = Table::new("findings", self.doc, self.columns());
        for one in findings {
            let why = match &one.measured.verdict {
                Verdict::NotJudged(why) => Some(why.clone()),
                Verdict::Holds | Verdict::Fails => None,
            };
            let published = one.published.as_ref();
            let mut row: Vec<Value> = vec![one.name.into()];
            row.extend(self.has_models.then(|| one.model.into()));
            row.extend([
                one.subject.into(),
                one.claim.into(),
                one.measured.verdict.to_string().into(),
                one.measured.number.into(),
                Some(one.measured.numbers).filter(|words| !words.is_empty()).into(),
                published.map(|judged| judged.verdict.to_string()).into(),
                published.and_then(|judged| judged.number).into(),
                why.into(),
            ]);
            table.push(row);
        }
        table
    }

    fn columns(&self) -> Vec<Column> {
        let text = |name: &str, doc: &str| Column::new(name, Kind::Text, doc);
        let ratio =
            |name: &str, doc: &str| Column::new(name, Kind::Real, doc).format(Format::Factor);
        let model = text("model", "Model of the simulated machine.").key();
        let mut columns = vec![text("finding", "The paper's finding.").priority(100).key()];
        columns.extend(self.has_models.then_some(model));
        columns.extend([
            text("subject", self.subject).priority(99).key(),
            text("claim", "What must be true for the finding to hold.")
                .priority(self.priorities.0)
                .key(),
            text("verdict", "holds, fails, or not judged.").priority(98),
            ratio(self.ratio.0, self.ratio.1).title("ratio").priority(97),
            text("evidence", self.evidence).priority(self.priorities.1),
            text("published_verdict", "Verdict of the published figures.")
                .title("published")
                .priority(96),
            ratio("published_ratio", "The same ratio of the published figures.").priority(95),
            text("reason", "Why the finding is not judged.").priority(60),
        ]);
        columns
    }
}

/// A measured or published number.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(crate) struct Figure {
    /// The number.
    pub(crate) mean: f64,
    /// Half the width of its 95 % interval; 0 of a published number, which has none; infinite of one that has
    /// none, because it was measured once or in too few batches.
    pub(crate) half_width: f64,
}

/// What was measured, or why it was not.
pub(crate) type Known = Result<Figure, String>;

impl Judged {
    fn not(why: String) -> Judged {
        Judged { number: None, numbers: String::new(), verdict: Verdict::NotJudged(why) }
    }
}

fn words(mean: Figure) -> String {
    // Three digits of small numbers; a tenth of others.
    let size = if mean.mean == 0.0 { 1.0 } else { mean.mean.abs().max(1e-6) };
    let decimals = (2.0 - size.log10().floor()).max(1.0) as usize;
    match mean.half_width.is_finite() {
        true => format!("{:.decimals$} ± {:.decimals$}", mean.mean, mean.half_width),
        false => format!("{:.decimals$} (no interval)", mean.mean),
    }
}

/// A figure without an interval, as a published one is.
pub(crate) fn exactly(number: f64) -> Figure {
    Figure { mean: number, half_width: 0.0 }
}

/// `more` is more than `less`, beyond both intervals.
pub(crate) fn greater(more: Known, less: Known) -> Judged {
    let (more, less) = match (more, less) {
        (Ok(more), Ok(less)) => (more, less),
        (Err(why), _) | (_, Err(why)) => return Judged::not(why),
    };
    let numbers = format!("{} and {}", words(more), words(less));
    let number = (less.mean > 0.0).then(|| more.mean / less.mean);
    let apart = (more.mean - less.mean).abs() - more.half_width - less.half_width;
    let verdict = match apart > 0.0 {
        true => Verdict::of(more.mean > less.mean),
        false if apart.is_infinite() => Verdict::NotJudged("a figure has no interval".to_owned()),
        false => Verdict::NotJudged("their intervals overlap".to_owned()),
    };
    Judged { number, numbers, verdict }
}

/// The interval of the refined method is narrower, relative to its mean.
pub(crate) fn narrower(refined: Known, basic: Known) -> Judged {
    let (refined, basic) = match (refined, basic) {
        (Ok(refined), Ok(basic)) => (refined, basic),
        (Err(why), _) | (_, Err(why)) => return Judged::not(why),
    };
    let part = |mean: Figure| mean.half_width / mean.mean.abs();
    let numbers = format!("refined {}, basic {}", words(refined), words(basic));
    let (refined, basic) = (part(refined), part(basic));
    if refined.is_nan() || basic.is_nan() {
        return Judged::not(format!("both are nothing: {numbers}"));
    }
    let number = Some(basic / refined).filter(|ratio| ratio.is_finite());
    Judged { number, numbers, verdict: Verdict::of(refined < basic) }
}

/// `one` and `other` are one count, but for [`CLOSE_RATIO`].
pub(crate) fn close(parts: [Known; 2], whole: Known) -> Judged {
    let [one, other] = parts;
    let (one, other, whole) = match (one, other, whole) {
        (Ok(one), Ok(other), Ok(whole)) => (one, other, whole),
        (Err(why), ..) | (_, Err(why), _) | (.., Err(why)) => return Judged::not(why),
    };
    let ratio = (one.mean + other.mean) / whole.mean;
    let numbers = format!("{} and {}; {}", words(one), words(other), words(whole));
    if !ratio.is_finite() {
        return Judged::not(format!("nothing to compare with: {numbers}"));
    }
    let verdict = Verdict::of((ratio - 1.0).abs() <= CLOSE_RATIO);
    Judged { number: Some(ratio), numbers, verdict }
}

/// Judges whether lines that are `factor` times as long do not reduce misses. The full benefit is a ratio
/// of 1 / `factor`; there is none if the ratio is nearer to 1 than to that.
pub(crate) fn no_benefit(long: Known, short: Known, factor: f64) -> Judged {
    let (long, short) = match (long, short) {
        (Ok(long), Ok(short)) => (long, short),
        (Err(why), _) | (_, Err(why)) => return Judged::not(why),
    };
    let ratio = long.mean / short.mean;
    let numbers = format!("{} and {}", words(long), words(short));
    if !ratio.is_finite() || factor <= 1.0 {
        return Judged::not(format!("nothing to compare: {numbers}"));
    }
    let verdict = Verdict::of(ratio > half_way(factor));
    Judged { number: Some(ratio), numbers, verdict }
}

/// Between no benefit, 1, and all of it.
pub(crate) fn half_way(factor: f64) -> f64 {
    (1.0 + 1.0 / factor) / 2.0
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn mean(mean: f64, half_width: f64) -> Known {
        Ok(Figure { mean, half_width })
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
    fn what_is_not_known_is_not_judged() {
        let none = Verdict::NotJudged("no L2".to_owned());
        assert_eq!(greater(mean(1.0, 0.1), not_measured()).verdict, none);
        assert_eq!(narrower(not_measured(), mean(1.0, 0.1)).verdict, none);
        assert_eq!(close([mean(1.0, 0.1), not_measured()], mean(2.0, 0.1)).verdict, none);
        assert_eq!(close([mean(1.0, 0.1), mean(1.0, 0.1)], not_measured()).verdict, none);
        assert_eq!(no_benefit(not_measured(), not_measured(), 2.0).verdict, none);
        let nothing = close([mean(0.0, 0.0), mean(0.0, 0.0)], mean(0.0, 0.0)).verdict;
        assert!(matches!(nothing, Verdict::NotJudged(_)));
        let nothing = narrower(mean(0.0, 0.0), mean(0.0, 0.0)).verdict;
        assert!(matches!(nothing, Verdict::NotJudged(_)));
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
        let of = |whole| close([mean(104.0, 1.0), mean(169.0, 1.0)], mean(whole, 1.0)).verdict;
        assert_eq!((of(298.0), of(350.0)), (Verdict::Holds, Verdict::Fails));
        let of = |long, factor| no_benefit(mean(long, 1.0), mean(100.0, 1.0), factor).verdict;
        assert_eq!((of(80.0, 2.0), of(70.0, 2.0)), (Verdict::Holds, Verdict::Fails));
        assert_eq!((of(70.0, 4.0), of(60.0, 4.0)), (Verdict::Holds, Verdict::Fails));
    }

    proptest! {
        #[test]
        fn more_and_less_never_both_hold(
            a in 0.0..1e4_f64, b in 0.0..1e4_f64, wide in 0.0..100.0_f64,
        ) {
            let one = greater(mean(a, wide), mean(b, wide)).verdict;
            let other = greater(mean(b, wide), mean(a, wide)).verdict;
            let turned = match one {
                Verdict::Holds => Verdict::Fails,
                Verdict::Fails => Verdict::Holds,
                not => not,
            };
            prop_assert_eq!(turned, other);
        }
    }
}
