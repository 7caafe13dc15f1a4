//! Names the simulator's counters as perf names the same events, so that both benches have equal columns.

use simrecord::counters::{COUNTERS, CYCLES, INSTRUCTIONS, TIME, name};

/// The plugin's names, and perf's names for the same events. A counter that is not here keeps the plugin's name.
const PERF_NAMES: [(&str, &str); 10] = [
    ("fetches", "L1-icache-loads"),
    ("l1i_misses", "L1-icache-load-misses"),
    ("itlb_misses", "iTLB-load-misses"),
    ("loads", "L1-dcache-loads"),
    ("l1d_load_misses", "L1-dcache-load-misses"),
    ("stores", "L1-dcache-stores"),
    ("l1d_store_misses", "L1-dcache-store-misses"),
    ("branch_misses", "branch-misses"),
    ("fetch_stall_cycles", "stalled-cycles-frontend"),
    ("data_stall_cycles", "stalled-cycles-backend"),
];

/// An event: its name, and the number of its counter in [`simrecord::counters`].
pub(super) type Event = (&'static str, usize);

/// Returns the events that are counted. `counters`: mask of the model's counters, or `None` without a model.
pub(super) fn known(counters: Option<u32>) -> Vec<Event> {
    let counted = |counter: &usize| match *counter {
        TIME => false,
        INSTRUCTIONS => true,
        // Without a model a cycle is an instruction.
        counter => counters.is_some_and(|mask| mask >> counter & 1 == 1),
    };
    let named_event = |counter: usize| {
        let plugin_name = name(counter)?;
        let perf = PERF_NAMES.iter().find(|(known, _)| *known == plugin_name);
        Some((perf.map_or(plugin_name, |(_, perf)| *perf), counter))
    };
    let order = [INSTRUCTIONS, CYCLES].into_iter().chain(0..COUNTERS);
    let mut events: Vec<Event> = order.filter(counted).filter_map(named_event).collect();
    // Instructions and cycles come first; they are dropped where they come again.
    let mut seen = [false; COUNTERS];
    events.retain(|(_, counter)| !std::mem::replace(&mut seen[*counter], true));
    events
}

/// Returns the requested events that are counted, and the names of the requested events that are not counted.
/// An empty request means all events; the name `none` means no events.
pub(super) fn choose(requested: &[String], counters: Option<u32>) -> (Vec<Event>, Vec<String>) {
    let known = known(counters);
    if requested.is_empty() {
        return (known, Vec::new());
    }
    if requested.iter().any(|name| name == "none") {
        return (Vec::new(), Vec::new());
    }
    let find = |name: &str| known.iter().find(|(known, _)| *known == name).copied();
    let found = requested.iter().filter_map(|name| find(name)).collect();
    (found, requested.iter().filter(|name| find(name).is_none()).cloned().collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A model with all counters.
    const ALL: Option<u32> = Some((1 << COUNTERS) - 1);

    #[test]
    fn names_are_those_of_perf_where_it_has_one() {
        let all = known(ALL);
        assert_eq!(all[..2], [("instructions", INSTRUCTIONS), ("cycles", CYCLES)]);
        assert_eq!(all.len(), COUNTERS - 1, "all but time, each once: {all:?}");
        for (own, perf) in PERF_NAMES {
            assert!(all.iter().any(|(name, _)| *name == perf), "{own}");
            assert!(!all.iter().any(|(name, _)| *name == own), "{own}");
        }
        assert_eq!(known(None), [("instructions", INSTRUCTIONS)]);
    }

    #[test]
    fn events_that_are_not_counted_are_returned() {
        let choose = |wanted: &[&str], counters| {
            choose(&wanted.iter().map(|name| (*name).to_owned()).collect::<Vec<_>>(), counters)
        };
        let (found, others) = choose(&["cycles", "instructions", "faults"], None);
        assert_eq!(found, [("instructions", INSTRUCTIONS)]);
        assert_eq!(others, ["cycles", "faults"]);
        assert_eq!(choose(&["instructions", "none"], ALL), (Vec::new(), Vec::new()));
        assert_eq!(choose(&[], ALL).0.len(), COUNTERS - 1);
    }
}
