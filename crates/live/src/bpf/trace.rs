//! The single events that the BPF programs keep (`bpf/trace.h`): sizes the map for a given memory, gives each measured CPU
//! its range, and reads the events after a window.

use libbpf_rs::{MapCore, MapFlags, OpenObject};
use zerocopy::{FromBytes, FromZeros, IntoBytes};

use super::BpfError;
use super::layout::{TraceCpu, TraceEvent};
use super::object::{Probes, failure, too_short};

/// The ranges of the measured CPUs in the map of events.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TraceLayout {
    cpus: Vec<u32>,
    /// Number of events of a CPU.
    events_max: u32,
}

/// The events of a CPU in a window.
#[derive(Clone, Debug)]
pub struct TracedCpu {
    pub cpu: u32,
    /// The kept events, the oldest first.
    pub events: Vec<TraceEvent>,
    /// Number of earlier events, which had no room.
    pub lost: u64,
    /// Number of events whose writing was timed.
    pub timed: u64,
    /// Time of writing these events, ns.
    pub timed_ns: u64,
}

impl TraceLayout {
    /// Gives each CPU the same part of `bytes`, and room for one event at least.
    #[must_use]
    pub fn new(cpus: &[u32], bytes: u64) -> TraceLayout {
        let events = bytes / size_of::<TraceEvent>() as u64 / cpus.len().max(1) as u64;
        let events_max = u32::try_from(events.max(1)).unwrap_or(u32::MAX);
        TraceLayout { cpus: cpus.to_vec(), events_max }
    }

    fn entries(&self) -> u32 {
        self.events_max.saturating_mul(self.cpus.len() as u32).max(1)
    }

    /// Sizes the map of events of an object that is not loaded yet.
    pub(super) fn configure(&self, open: &mut OpenObject) -> Result<(), BpfError> {
        let mut maps = open.maps_mut();
        let Some(mut map) = maps.find(|map| map.name() == "trace_events") else {
            return Err(too_short("trace_events"));
        };
        map.set_max_entries(self.entries()).map_err(|error| failure("sizing a map", &error))
    }

    /// Forgets all events. Writes the range of each CPU into its state.
    pub(super) fn clear(&self, probes: &Probes) -> Result<(), BpfError> {
        let possible = probes.read_per_cpu("trace_cpus", 0)?.len() as u32;
        let state = |cpu: u32| {
            let mut state = TraceCpu::new_zeroed();
            if let Some(position) = self.cpus.iter().position(|measured| *measured == cpu) {
                state.base = position as u32 * self.events_max;
                state.events_max = self.events_max;
            }
            state.as_bytes().to_vec()
        };
        probes.write_each("trace_cpus", &(0..possible).map(state).collect::<Vec<_>>())
    }

    /// Reads the events of each CPU.
    pub(super) fn read(&self, probes: &Probes) -> Result<Vec<TracedCpu>, BpfError> {
        let states = probes.read_per_cpu("trace_cpus", 0)?;
        let read = |cpu: &u32| {
            let bytes = states.get(*cpu as usize).ok_or_else(|| too_short("trace_cpus"))?;
            let state = TraceCpu::read_from_bytes(bytes).map_err(|_| too_short("trace_cpus"))?;
            let kept = state.written.min(u64::from(self.events_max)) as u32;
            let mut events = read_range(probes, state.base, kept)?;
            if state.written > u64::from(self.events_max) {
                // The next event would replace the oldest one.
                let oldest = (state.written % u64::from(self.events_max)) as usize;
                events.rotate_left(oldest);
            }
            let lost = state.written - u64::from(kept);
            let (timed, timed_ns) = (state.timed, state.timed_ns);
            Ok(TracedCpu { cpu: *cpu, events, lost, timed, timed_ns })
        };
        self.cpus.iter().map(read).collect()
    }
}

/// Reads `count` events from the entry `first` on.
fn read_range(probes: &Probes, first: u32, count: u32) -> Result<Vec<TraceEvent>, BpfError> {
    let map = probes.map("trace_events")?;
    let mut events = Vec::with_capacity(count as usize);
    for index in first..first + count {
        let bytes = map
            .lookup(index.as_bytes(), MapFlags::ANY)
            .map_err(|error| failure("reading trace_events", &error))?
            .ok_or_else(|| too_short("trace_events"))?;
        let event = TraceEvent::read_from_bytes(&bytes).map_err(|_| too_short("trace_events"))?;
        events.push(event);
    }
    Ok(events)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn memory_is_divided_among_the_cpus() {
        let event = size_of::<TraceEvent>() as u64;
        let layout = TraceLayout::new(&[0, 3, 5], 10 * event + 7);
        assert_eq!((layout.events_max, layout.entries()), (3, 9));
        assert_eq!(TraceLayout::new(&[0, 1], 1).entries(), 2);
        assert_eq!(event, lab::timeline::EVENT_BYTES);
    }
}
