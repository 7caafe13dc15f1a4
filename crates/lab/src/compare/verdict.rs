//! The meaning of a difference, and how it was judged.

/// The meaning of a difference.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Verdict {
    /// A cost grew, or a benefit shrank.
    Worse,
    /// A figure changed that is neither a cost nor a benefit.
    Changed,
    /// A cost shrank, or a benefit grew.
    Better,
    /// The interval allows both that the figures are equal and that they differ.
    Undecided,
    /// The second run lacks the row, or its figure.
    Missing,
    /// The first run lacks the row, or its figure.
    Added,
    /// No difference. For figures that are not exact: the whole interval of the difference is within the margin.
    Equal,
}

impl Verdict {
    /// The verdict in the table `differences`.
    #[must_use]
    pub fn word(self) -> &'static str {
        match self {
            Verdict::Worse => "worse",
            Verdict::Changed => "changed",
            Verdict::Better => "better",
            Verdict::Undecided => "can't tell",
            Verdict::Missing => "missing",
            Verdict::Added => "added",
            Verdict::Equal => "equal",
        }
    }

    /// Whether both runs have the figure, and it differs.
    #[must_use]
    pub fn is_difference(self) -> bool {
        matches!(self, Verdict::Worse | Verdict::Changed | Verdict::Better)
    }
}

/// How a difference is judged.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Method {
    /// The runs have no noise: any difference is real.
    Exact,
    /// Judged by the 95 % intervals of both figures.
    Intervals,
    /// Judged by the differences of pairs of runs.
    Runs,
    /// A figure is only a bound. Judged by what the bounds tell, if they tell anything: see `bounds.rs`.
    Bound,
    /// Not judged: a cell has no interval.
    NoInterval,
    /// Not judged, because each side has only one run. The row takes less than [`super::CPU_SHARE_MIN_RATIO`] of CPU time,
    /// the figure is a delay of work items, or it is a quantile or a mean whose interval assumes independent values.
    OneRun,
    /// Not judged: the figures are totals over windows of different lengths.
    Windows,
    /// Not judged: only one of the runs has the figure, and the figure is not exact.
    OneSide,
}

impl Method {
    /// The method in the table `differences`. `None` if there is nothing to compare.
    #[must_use]
    pub fn word(self) -> Option<&'static str> {
        match self {
            Method::Exact => Some("exact"),
            Method::Intervals => Some("intervals"),
            Method::Runs => Some("runs"),
            Method::Bound => Some("bound"),
            Method::NoInterval => Some("no interval"),
            Method::OneRun => Some("one run"),
            Method::Windows => Some("windows differ"),
            Method::OneSide => None,
        }
    }
}
