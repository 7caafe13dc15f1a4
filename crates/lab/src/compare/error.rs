//! Why runs cannot be compared.

/// Why two runs cannot be compared.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum CompareError {
    /// The runs are of different experiments. Fields: the first run's experiment, and a different one.
    #[error("the first run is of {0}, the second of {1} (compare runs of one experiment)")]
    Experiments(String, String),
    /// The sides have different numbers of runs. Fields: first side, second side.
    #[error(
        "the first side has {0} runs and the second {1}: runs are compared in pairs, in the order of their start \
         (give as many on both sides)"
    )]
    RunCounts(usize, usize),
    /// The runs of one side have one condition each, and not the same. Fields: the side, and two conditions.
    #[error(
        "the runs of the {0} side have different conditions, {1} and {2}: their figures are of different things (give runs \
         of one condition)"
    )]
    Conditions(&'static str, String, String),
    /// Too few runs to show how much runs differ.
    #[error(
        "{0} runs on each side are too few to tell how much runs differ (take 3 at least, better 8; or one)"
    )]
    FewRuns(usize),
    /// No figure can be compared.
    #[error("no figure of the first run is comparable (see irqlab show RUN --columns)")]
    Nothing,
    /// A rule covers no cell: a gate that checks nothing must not pass. Fields: the rule, and the reason.
    #[error("rule {0:?} is about no figure of the first run{1}")]
    NoCell(String, String),
    /// The second run lacks all cells of a rule: a gate that checks nothing must not pass.
    #[error(
        "rule {0:?}: the second run has none of its figures (was a row renamed, or not measured?)"
    )]
    AllMissing(String),
    /// All cells of a rule are totals over windows of different lengths. Fields: the rule, and an example.
    #[error(
        "rule {0:?} is about totals over windows of different lengths ({1}): a longer window has a larger total (name a \
         rate, a share of CPU time or a mean, such as rate_hz, self_cpu_ratio or self_mean_ns)"
    )]
    Windows(String, String),
    /// All cells of a rule are only bounds that tell no change. Fields: the rule, and an example.
    #[error(
        "rule {0:?} is about figures that are only bounds ({1}): they do not tell whether it holds (choose a figure that is \
         measured; irqlab show RUN marks bounds with ≤, ≥ or <)"
    )]
    Bounds(String, String),
    /// No cell of a rule can be judged.
    #[error(
        "rule {0:?}: none of its figures has an interval (measure longer, give several runs on each side, with different \
         seeds if they are simulated, or choose a figure that has one, such as a mean)"
    )]
    NoInterval(String),
}
