//! Computes the slowdown of a job of compute phases and barriers: the rows of table `scale`.

use stats::barrier::{Delays, Node, Piece, interval_of_resamples};

use super::delays::delays;
use super::trace::{GRANULARITY_NS, ScaleError, Trace};

/// Minimum number of compute phases that fit into the loop's own time of each trace.
const PHASES_MIN: u64 = 10;
/// The largest of n draws is known only if at least this number of measured phases is expected to exceed it. Otherwise,
/// the result is a lower bound.
const ABOVE_MIN: u64 = 10;
/// Like [`ABOVE_MIN`], for the 99th percentile of the largest delay: one in 100 of the largest delays exceeds it.
const ABOVE_P99_MIN: u64 = 100 * ABOVE_MIN;

/// The job that the caller asks for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Job {
    /// Numbers of nodes, each at least 1.
    pub nodes: Vec<u64>,
    /// Work between two barriers, ns. Each lies within [`GRANULARITY_NS`].
    pub granularities_ns: Vec<u64>,
    /// Latency of a message, ns.
    pub latency_ns: u64,
    /// Determines the resamples of the bootstrap, and the times of detours with [`super::Arrivals::Random`].
    pub seed: u64,
}

/// The delays of a job with one granularity and number of nodes: a row of table `scale`.
#[derive(Clone, Debug, PartialEq)]
pub struct Row {
    /// Work between two barriers, ns.
    pub granularity_ns: u64,
    pub nodes: u64,
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
    /// The 95 % interval of the slowdown. Its upper end is `None` if the largest delay is not known.
    pub interval: Option<(f64, Option<f64>)>,
    /// Whether delays above all measured delays would matter, or detours were lost. If so, all figures are lower bounds.
    pub is_lower_bound: bool,
}

/// The rows of a job, sorted by granularity, coscheduling and number of nodes. The job's nodes consist of the CPUs of
/// the traces in equal shares.
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
        let mut pieces: Vec<Piece> = Vec::new();
        for trace in traces {
            // Each trace has its own blocks.
            let first_block = pieces.iter().map(|piece| piece.block + 1).max().unwrap_or(0);
            pieces.extend(delays(trace, granularity_ns, traces.len(), first_block));
        }
        let Some(delays) = Delays::new(&pieces) else { continue };
        let measured = Measured {
            node: delays.of_a_node(),
            resamples: delays.resamples(job.seed),
            granularity_ns,
            phases: traces.iter().map(|trace| trace.own_ns / granularity_ns).sum(),
            has_losses,
        };
        for coscheduled in [false, true] {
            let nodes = job.nodes.iter();
            rows.extend(nodes.map(|&nodes| measured.row(nodes, coscheduled, job.latency_ns)));
        }
    }
    Ok(rows)
}

/// What the traces say of a compute phase of one granularity.
struct Measured {
    node: Node,
    /// For intervals; `None` if the traces are too short for them.
    resamples: Option<Vec<Node>>,
    granularity_ns: u64,
    /// Number of compute phases that fit into the traces.
    phases: u64,
    has_losses: bool,
}

impl Measured {
    fn row(&self, nodes: u64, coscheduled: bool, latency_ns: u64) -> Row {
        // Coscheduled nodes all have the delay of one node.
        let draws = if coscheduled { 1 } else { nodes };
        let barrier_ns = u64::from(barrier_rounds(nodes)).saturating_mul(latency_ns);
        let undisturbed_ns = (self.granularity_ns + barrier_ns) as f64;
        let slowest = self.node.slowest(draws, barrier_ns);
        let is_lower_bound = self.has_losses || draws > self.phases / ABOVE_MIN;
        let means = self.resamples.as_ref().map(|resamples| {
            resamples.iter().map(|node| node.slowest(draws, barrier_ns).mean()).collect()
        });
        let has_p99 = draws <= self.phases / ABOVE_P99_MIN;
        Row {
            granularity_ns: self.granularity_ns,
            nodes,
            coscheduled,
            barrier_ns,
            delay_ns: slowest.mean(),
            delay_p50_ns: slowest.quantile(0.5),
            delay_p99_ns: has_p99.then(|| slowest.quantile(0.99)),
            slowdown_ratio: slowest.mean() / undisturbed_ns,
            interval: means.and_then(interval_of_resamples).map(|(low, high)| {
                (low / undisturbed_ns, (!is_lower_bound).then_some(high / undisturbed_ns))
            }),
            is_lower_bound,
        }
    }
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
