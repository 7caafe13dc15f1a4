//! Runs the experiment inside a simulated machine, with the live bench. The guest's irqlab calls [`execute`] for a
//! request of `sim`.

use std::time::Duration;

use lab::experiment::{Bench, BenchError, Step};
use lab::footprint::in_guest::{FootprintItem, FootprintRequest, NETWORK, items};
use lab::footprint::{FootprintBench, Stimulus};
use serde_json::Value as Json;

use super::bench::{FootprintSettings, LiveFootprint};
use super::stimulus::FarEnd;
use super::watcher::Watcher;
use crate::host::{Root, first_disk, has_paired_cards, parse_cpu_list};
use crate::network::card_facts;
use crate::window::{Stop, WindowEdge};

/// Measures the series of a request. `mark` is called where counters start and stop. After a stop request, the items
/// contain the series that were measured until then.
///
/// Fails if nothing can be measured.
pub fn execute(
    request: &FootprintRequest,
    mark: fn(WindowEdge),
    stop: &Stop,
) -> Result<Vec<FootprintItem>, BenchError> {
    let root = Root::default();
    let online = root.text("sys/devices/system/cpu/online").unwrap_or_default();
    let settings = FootprintSettings {
        cpu: request.cpu,
        others: parse_cpu_list(online.trim()).unwrap_or_default(),
        by_hand: request.geometry.iter().copied().collect(),
        window_max: Duration::from_nanos(request.window_ns),
        // The guest's file systems are in memory, so the disk stimuli read the device.
        device: first_disk(&root),
        far: if has_paired_cards(&root) { FarEnd::Cards } else { FarEnd::Veth },
        move_irq: true,
        is_virtual: false,
        seed: request.seed,
        watcher: Watcher::Outside,
        counters_only: request.counters_only,
        allows_ticks: request.ticks,
        mark: Some(mark),
        stop: stop.clone(),
    };
    // Reads the cards' facts first: during the measurement the cards are in other namespaces.
    let cards = (settings.far == FarEnd::Cards).then(card_facts);
    let is_network = |stimulus: &Stimulus| matches!(stimulus, Stimulus::Net | Stimulus::NetSignal);
    let uses_net = request.plan.stimuli.iter().any(is_network);
    let mut bench = LiveFootprint::new(settings)?;
    let measured = bench.measure(&request.plan, &mut |_: &Step| {})?;
    let mut facts = bench.facts();
    if uses_net && let Some(cards) = cards {
        facts.settings.insert(NETWORK.to_owned(), Json::Object(cards));
    }
    Ok(items(measured, facts))
}
