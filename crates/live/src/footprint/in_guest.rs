//! The experiment inside a simulated machine, by the code of the live bench.

use std::time::Duration;

use lab::experiment::{Bench, BenchError, BenchFacts, Measured, Step};
use lab::footprint::in_guest::{FootprintLine, FootprintOrder, lines};
use lab::footprint::{FootprintBench, Samples};

use super::bench::{FootprintSettings, LiveFootprint};
use super::stimulus::FarEnd;
use super::trace::Watcher;
use crate::host::{Root, first_disk, has_paired_cards, parse_cpu_list};
use crate::window::{Stop, WindowEdge};

/// Carries out the order; what came of it, in lines, with the end as the last. `mark` is called where
/// counters start and stop.
#[must_use]
pub fn carry_out(order: &FootprintOrder, mark: fn(WindowEdge)) -> Vec<FootprintLine> {
    match run(order, mark) {
        Ok((facts, measured)) => lines(measured, facts),
        Err(BenchError::Failed(reason)) => vec![FootprintLine::Failed(reason)],
        Err(
            BenchError::Unavailable { reason, .. } | BenchError::NothingMeasurable { reason, .. },
        ) => vec![FootprintLine::Unavailable(reason)],
    }
}

fn run(
    order: &FootprintOrder,
    mark: fn(WindowEdge),
) -> Result<(BenchFacts, Measured<Samples>), BenchError> {
    let root = Root::default();
    let online = root.text("sys/devices/system/cpu/online").unwrap_or_default();
    let settings = FootprintSettings {
        cpu: order.cpu,
        others: parse_cpu_list(online.trim()).unwrap_or_default(),
        by_hand: order.geometry.iter().copied().collect(),
        window: Duration::from_nanos(order.window_ns),
        // What the guest has of a file system lies in memory.
        device: first_disk(&root),
        far: if has_paired_cards(&root) { FarEnd::Cards } else { FarEnd::Veth },
        move_irq: true,
        is_virtual: false,
        seed: order.seed,
        watcher: Watcher::Outside,
        counters_only: order.counters_only,
        ticks: order.ticks,
        mark: Some(mark),
        stop: Stop::new().map_err(|error| BenchError::Failed(error.to_string()))?,
    };
    let mut bench = LiveFootprint::new(settings)?;
    let measured = bench.measure(&order.plan, &mut |_: &Step| {})?;
    Ok((bench.facts(), measured))
}
