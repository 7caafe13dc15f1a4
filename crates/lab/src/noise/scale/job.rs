//! Computes the slowdown of a job of compute phases and barriers: the rows of table `scale`.

use stats::barrier::{Delays, Node, Piece, Resamples};

use super::delays::delays;
use super::trace::{GRANULARITY_NS, ScaleError, Trace};

/// Minimum number of compute phases that fit into the loop's own time of each trace.
const PHASES_MIN: u64 = 10;
/// If the nodes together spend less than the measured time divided by this number from one barrier to the next, the
/// largest delay is known. Otherwise, the result is a lower bound.
const ABOVE_MIN: u64 = 10;
/// Like [`ABOVE_MIN`], for the 99th percentile of the largest delay: one in 100 of the largest delays exceeds it.
const ABOVE_P99_MIN: u64 = 100 * ABOVE_MIN;
/// If half of the lost time is that of fewer detours, intervals have no upper end.
const DETOURS_MIN: usize = 10;

/// The job that the caller asks for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Job {
    /// Numbers of nodes, each at least 1.
    pub nodes: Vec<u64>,
    /// Work between two barriers, ns. Each lies within [`GRANULARITY_NS`].
    pub granularities_ns: Vec<u64>,
    /// Latency of a message, ns.
    pub latency_ns: u64,
    /// Contexts whose detours are left out, one at a time, in further rows. A context is its name, or its kind and name.
    pub without: Vec<String>,
    /// Determines the resamples of the bootstrap, and the times of detours with [`super::Arrivals::Random`].
    pub seed: u64,
}

/// The delays of a job with one granularity and number of nodes: a row of table `scale`.
#[derive(Clone, Debug, PartialEq)]
pub struct Row {
    /// Work between two barriers, ns.
    pub granularity_ns: u64,
    pub nodes: u64,
    /// The context whose detours are left out.
    pub without: Option<String>,
    /// Whether all nodes have their detours at the same times.
    pub coscheduled: bool,
    /// Time of the barrier, ns.
    pub barrier_ns: u64,
    /// Mean delay of the slowest node, ns.
    pub delay_ns: f64,
    /// Median of the delay of the slowest node, ns.
    pub delay_p50_ns: f64,
    /// 99th percentile of the delay of the slowest node, ns. `None` if fewer than 10 measured phases are expected to
    /// exceed it.
    pub delay_p99_ns: Option<f64>,
    /// Mean delay over the time of a compute phase and a barrier without detours.
    pub slowdown_ratio: f64,
    /// The 95 % interval of the slowdown. Its upper end is `None` if the largest delay is not known, or if few detours
    /// took most of the lost time.
    pub interval: Option<(f64, Option<f64>)>,
    /// Whether delays above all measured delays would matter, or detours were lost. If so, all figures are lower bounds.
    pub is_lower_bound: bool,
}

/// The rows of a job, sorted by granularity, coscheduling and number of nodes. Each node is any CPU of the traces, with
/// equal probability.
///
/// Fails with [`ScaleError::Granularity`] if a trace is too short for a granularity.
pub fn scale(traces: &[Trace], job: &Job) -> Result<Vec<Row>, ScaleError> {
    let shortest_ns = traces.iter().map(|trace| trace.own_ns).min().unwrap_or(0);
    let max_ns = (shortest_ns / PHASES_MIN).min(*GRANULARITY_NS.end());
    let has_losses = traces.iter().any(|trace| trace.lost > 0);
    let mut rows = Vec::new();
    for &granularity_ns in &job.granularities_ns {
        if !GRANULARITY_NS.contains(&granularity_ns) || granularity_ns > max_ns {
            return Err(ScaleError::Granularity { granularity_ns, max_ns });
        }
        let pieces: Vec<Vec<Piece>> =
            traces.iter().map(|trace| delays(trace, granularity_ns, traces.len())).collect();
        let Some(delays) = Delays::new(&pieces) else { continue };
        let measured = Measured {
            node: delays.of_a_node(),
            resamples: delays.resamples(job.seed),
            granularity_ns,
            own_ns: traces.iter().map(|trace| trace.own_ns).sum(),
            has_losses,
            has_few_detours: has_few_detours(traces),
        };
        for coscheduled in [false, true] {
            let nodes = job.nodes.iter();
            rows.extend(nodes.map(|&nodes| measured.row(nodes, coscheduled, job.latency_ns)));
        }
    }
    Ok(rows)
}

/// What is known from the traces about compute phases of one granularity.
struct Measured {
    node: Node,
    /// For intervals; `None` if the traces are too short for them.
    resamples: Option<Resamples>,
    granularity_ns: u64,
    /// The time of all traces without detours.
    own_ns: u64,
    has_losses: bool,
    /// See [`has_few_detours`].
    has_few_detours: bool,
}

impl Measured {
    /// The row of a job with this number of nodes. `coscheduled`: all nodes have their detours at the same times.
    /// `latency_ns`: one message of the barrier. The delay is a lower bound if longer detours than the measured ones
    /// are likely, and then has no upper end of an interval and no 99th percentile.
    fn row(&self, nodes: u64, coscheduled: bool, latency_ns: u64) -> Row {
        // Coscheduled nodes all have the delay of one node.
        let draws = if coscheduled { 1 } else { nodes };
        let barrier_ns = u64::from(barrier_rounds(nodes)).saturating_mul(latency_ns);
        let undisturbed_ns = (self.granularity_ns + barrier_ns) as f64;
        let slowest = self.node.slowest(draws, barrier_ns);
        // All nodes together spend this time from one barrier to the next. Detours that are longer than all measured ones
        // matter if it is long in comparison with the measured time.
        let spent_ns = draws as f64 * (undisturbed_ns + slowest.mean());
        let is_rare = |above_min: u64| spent_ns > self.own_ns as f64 / above_min as f64;
        let is_lower_bound = self.has_losses || is_rare(ABOVE_MIN);
        let has_upper_end = !is_lower_bound && !self.has_few_detours;
        let interval = self
            .resamples
            .as_ref()
            .and_then(|resamples| resamples.interval(draws, barrier_ns, slowest.mean()));
        Row {
            granularity_ns: self.granularity_ns,
            nodes,
            without: None,
            coscheduled,
            barrier_ns,
            delay_ns: slowest.mean(),
            delay_p50_ns: slowest.quantile(0.5),
            delay_p99_ns: (!is_rare(ABOVE_P99_MIN)).then(|| slowest.quantile(0.99)),
            slowdown_ratio: slowest.mean() / undisturbed_ns,
            interval: interval.map(|(low, high)| {
                (low / undisturbed_ns, has_upper_end.then_some(high / undisturbed_ns))
            }),
            is_lower_bound,
        }
    }
}

/// Whether fewer than [`DETOURS_MIN`] detours took half of the time of all detours. The bootstrap's interval is too narrow
/// then.
pub(super) fn has_few_detours(traces: &[Trace]) -> bool {
    let lengths =
        || traces.iter().flat_map(|trace| &trace.detours).map(|(_, length_ns)| *length_ns);
    let mut longest: Vec<u64> = lengths().collect();
    longest.sort_unstable_by_key(|length_ns| std::cmp::Reverse(*length_ns));
    let of_longest: u128 = longest.iter().take(DETOURS_MIN - 1).map(|ns| u128::from(*ns)).sum();
    let of_all: u128 = lengths().map(u128::from).sum();
    of_all > 0 && of_longest * 2 >= of_all
}

/// Number of rounds of a dissemination barrier: log2 of the number of nodes, rounded up.
#[must_use]
fn barrier_rounds(nodes: u64) -> u32 {
    nodes.max(1).next_power_of_two().trailing_zeros()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rounds_double_what_is_reached() {
        let rounds: Vec<u32> = [1, 2, 3, 64, 65, 1 << 20].map(barrier_rounds).to_vec();
        assert_eq!(rounds, [0, 1, 2, 6, 7, 20]);
    }
}
