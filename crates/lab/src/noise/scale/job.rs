//! The job: compute phases and barriers.

use stats::Extremes;

use super::delays::delays;
use super::trace::{GRANULARITY_NS, ScaleError, Trace};

/// Minimum number of compute phases in a window.
const PHASES_MIN: u64 = 10;
/// The largest of n draws is known when this number of the phases measured is expected above it.
const ABOVE_MIN: u64 = 10;

/// What is asked for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Job {
    /// Numbers of nodes, from 1.
    pub nodes: Vec<u64>,
    /// Work between two barriers, ns; within [`GRANULARITY_NS`].
    pub granularities_ns: Vec<u64>,
    /// Time of a message, ns.
    pub latency_ns: u64,
    /// Chooses resamples, and times of detours where they are drawn.
    pub seed: u64,
}

/// What a job of some size takes.
#[derive(Clone, Debug, PartialEq)]
pub struct Row {
    /// Work between two barriers, ns.
    pub granularity_ns: u64,
    pub nodes: u64,
    /// Whether the detours of all nodes come at the same times.
    pub coscheduled: bool,
    /// Time of the barrier, ns.
    pub barrier_ns: u64,
    /// Mean delay of the slowest node, ns.
    pub delay_ns: f64,
    /// Delay that half of the compute phases do not exceed, and that 99 of 100 do not, ns.
    pub delay_quantiles_ns: [f64; 2],
    /// How much longer compute phase and barrier take.
    pub slowdown_ratio: f64,
    /// Its 95 % interval; the upper end is absent when the largest delay is not known.
    pub interval: Option<(f64, Option<f64>)>,
    /// Whether larger delays than any measured would count, so that all figures are least ones.
    pub is_least: bool,
}

/// The rows of a job: by granularity, co-scheduled or not, by number of nodes. Nodes are CPUs of the
/// traces, each as often as any other.
///
/// # Errors
/// [`ScaleError::Granularity`] for a granularity that a trace is too short for.
pub fn scale(traces: &[Trace], job: &Job) -> Result<Vec<Row>, ScaleError> {
    let shortest_ns = traces.iter().map(|trace| trace.own_ns).min().unwrap_or(0);
    let max_ns = (shortest_ns / PHASES_MIN).min(*GRANULARITY_NS.end());
    let mut rows = Vec::new();
    for &granularity_ns in &job.granularities_ns {
        if !GRANULARITY_NS.contains(&granularity_ns) || granularity_ns > max_ns {
            return Err(ScaleError::Granularity { granularity_ns, max_ns });
        }
        let mut pieces = Vec::new();
        for trace in traces {
            let first = pieces.iter().map(|piece: &stats::Piece| piece.block + 1).max();
            pieces.extend(delays(trace, granularity_ns, first.unwrap_or(0)));
        }
        let Some(delays) = Extremes::with_one_of_steps(&pieces) else { continue };
        let phases: u64 = traces.iter().map(|trace| trace.own_ns / granularity_ns).sum();
        for coscheduled in [false, true] {
            for &nodes in &job.nodes {
                let drawn = if coscheduled { 1 } else { nodes };
                let is_least = drawn > phases / ABOVE_MIN;
                let row = row(&delays, granularity_ns, (nodes, drawn), is_least, job);
                rows.push(Row { coscheduled, ..row });
            }
        }
    }
    Ok(rows)
}

fn row(
    delays: &Extremes,
    granularity_ns: u64,
    (nodes, drawn): (u64, u64),
    is_least: bool,
    job: &Job,
) -> Row {
    let barrier_ns = u64::from(rounds(nodes)).saturating_mul(job.latency_ns);
    let alone_ns = (granularity_ns + barrier_ns) as f64;
    let delay_ns = delays.mean_of_largest(drawn);
    Row {
        granularity_ns,
        nodes,
        coscheduled: false,
        barrier_ns,
        delay_ns,
        delay_quantiles_ns: [0.5, 0.99].map(|chance| delays.quantile_of_largest(drawn, chance)),
        slowdown_ratio: delay_ns / alone_ns,
        interval: delays
            .interval_of_largest(drawn, job.seed)
            .map(|(low, high)| (low / alone_ns, (!is_least).then_some(high / alone_ns))),
        is_least,
    }
}

/// Rounds of a dissemination barrier: log2, rounded up.
#[must_use]
fn rounds(nodes: u64) -> u32 {
    nodes.max(1).next_power_of_two().trailing_zeros()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rounds_double_what_is_reached() {
        let rounds: Vec<u32> = [1, 2, 3, 64, 65, 1 << 20].map(rounds).to_vec();
        assert_eq!(rounds, [0, 1, 2, 6, 7, 20]);
    }
}
