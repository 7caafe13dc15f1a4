//! Names the simulator's counters as perf names the same events, so that both benches have equal columns.

use simrecord::counters::{COUNTERS, CYCLES, INSTRUCTIONS, STLB_MISSES, TIME, name};

/// The plugin's names, and perf's names for the same events. A counter that is not here keeps the plugin's name, and so
/// does `itlb_misses` of a model with a second TLB level.
const PERF_NAMES: [(&str, &str); 10] = [
    ("fetches", "L1-icache-loads"),
    ("l1i_misses", "L1-icache-load-misses"),
    (ITLB_MISSES, "iTLB-load-misses"),
    ("loads", "L1-dcache-loads"),
    ("l1d_load_misses", "L1-dcache-load-misses"),
    ("stores", "L1-dcache-stores"),
    ("l1d_store_misses", "L1-dcache-store-misses"),
    ("branch_misses", "branch-misses"),
    ("fetch_stall_cycles", "stalled-cycles-frontend"),
    ("data_stall_cycles", "stalled-cycles-backend"),
];

/// Misses of the first level of the TLB for instructions.
const ITLB_MISSES: &str = "itlb_misses";

/// An event: its name, and the number of its counter in [`simrecord::counters`].
pub(super) type Event = (&'static str, usize);

/// Returns the events that are counted. `counters`: mask of the model's counters, or `None` without a model.
pub(super) fn counted_events(counters: Option<u32>) -> Vec<Event> {
    let counted = |counter: &usize| match *counter {
        TIME => false,
        INSTRUCTIONS => true,
        // Without a model a cycle is an instruction.
        counter => counters.is_some_and(|mask| mask >> counter & 1 == 1),
    };
    // perf's event counts page walks. With a second level, `itlb_misses` also counts misses that this level serves, and
    // `stlb_misses` counts the walks for data, too: no counter has the walks for instructions alone.
    let has_second_tlb_level = counters.is_some_and(|mask| mask >> STLB_MISSES & 1 == 1);
    let named_event = |counter: usize| {
        let plugin_name = name(counter)?;
        let is_perf_event = !(has_second_tlb_level && plugin_name == ITLB_MISSES);
        let perf = PERF_NAMES.iter().find(|(known, _)| is_perf_event && *known == plugin_name);
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
    let known = counted_events(counters);
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
    /// A model with all counters but those of a second TLB level.
    const ONE_TLB_LEVEL: Option<u32> = Some(((1 << COUNTERS) - 1) & !(1 << STLB_MISSES));

    #[test]
    fn names_are_those_of_perf_where_it_has_one() {
        let all = counted_events(ALL);
        assert_eq!(all[..2], [("instructions", INSTRUCTIONS), ("cycles", CYCLES)]);
        assert_eq!(all.len(), COUNTERS - 1, "all but time, each once: {all:?}");
        let one_tlb_level = counted_events(ONE_TLB_LEVEL);
        for (plugin_name, perf) in PERF_NAMES {
            assert!(one_tlb_level.iter().any(|(name, _)| *name == perf), "{perf}");
            assert!(!one_tlb_level.iter().any(|(name, _)| *name == plugin_name), "{plugin_name}");
        }
        assert_eq!(counted_events(None), [("instructions", INSTRUCTIONS)]);
    }

    #[test]
    fn misses_of_the_first_of_two_tlb_levels_are_not_page_walks() {
        let has_event =
            |counters, event: &str| counted_events(counters).iter().any(|(name, _)| *name == event);
        assert!(has_event(ONE_TLB_LEVEL, "iTLB-load-misses"));
        assert!(!has_event(ALL, "iTLB-load-misses"));
        assert!(has_event(ALL, ITLB_MISSES) && has_event(ALL, "L1-icache-load-misses"));
        let requested = ["iTLB-load-misses".to_owned()];
        assert_eq!(choose(&requested, ALL), (Vec::new(), requested.to_vec()));
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
