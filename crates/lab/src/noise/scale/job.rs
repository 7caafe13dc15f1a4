//! Computes the slowdown of a job of compute phases and barriers: the rows of table `scale`.

use stats::Extremes;

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
        let mut pieces = Vec::new();
        for trace in traces {
            // Each trace has its own blocks.
            let first_block = pieces.iter().map(|piece: &stats::Piece| piece.block + 1).max();
            pieces.extend(delays(trace, granularity_ns, first_block.unwrap_or(0)));
        }
        let Some(delays) = Extremes::with_one_of_steps(&pieces) else { continue };
        let phases: u64 = traces.iter().map(|trace| trace.own_ns / granularity_ns).sum();
        for coscheduled in [false, true] {
            for &nodes in &job.nodes {
                // Coscheduled nodes all have the delay of one node.
                let draws = if coscheduled { 1 } else { nodes };
                let is_lower_bound = has_losses || draws > phases / ABOVE_MIN;
                let row = row(&delays, granularity_ns, (nodes, draws), is_lower_bound, job);
                let has_p99 = draws <= phases / ABOVE_P99_MIN;
                let delay_p99_ns = if has_p99 { row.delay_p99_ns } else { None };
                rows.push(Row { coscheduled, delay_p99_ns, ..row });
            }
        }
    }
    Ok(rows)
}

/// The row for the largest of `draws` independent delays. The caller sets `coscheduled`, and removes an unknown
/// `delay_p99_ns`.
fn row(
    delays: &Extremes,
    granularity_ns: u64,
    (nodes, draws): (u64, u64),
    is_lower_bound: bool,
    job: &Job,
) -> Row {
    let barrier_ns = u64::from(barrier_rounds(nodes)).saturating_mul(job.latency_ns);
    let undisturbed_ns = (granularity_ns + barrier_ns) as f64;
    let delay_ns = delays.mean_of_largest(draws);
    Row {
        granularity_ns,
        nodes,
        coscheduled: false,
        barrier_ns,
        delay_ns,
        delay_p50_ns: delays.quantile_of_largest(draws, 0.5),
        delay_p99_ns: Some(delays.quantile_of_largest(draws, 0.99)),
        slowdown_ratio: delay_ns / undisturbed_ns,
        interval: delays.interval_of_largest(draws, job.seed).map(|(low, high)| {
            (low / undisturbed_ns, (!is_lower_bound).then_some(high / undisturbed_ns))
        }),
        is_lower_bound,
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
