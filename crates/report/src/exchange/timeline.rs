//! Table `timeline` (`handlers --trace`) as tracks: for each CPU nested contexts, gaps and counters.

use std::collections::BTreeMap;

use record::Table;

use super::perfetto::{Group, Slice, Track, details, text, uint};
use crate::row::Row;

/// Kinds of rows that are the begin of an arrow.
const REQUESTS: [&str; 3] = ["raise", "call", "send"];
/// Kinds of interrupts, whose rate is a counter.
const INTERRUPTS: [&str; 2] = ["vector", "nmi"];
/// Kind of a device's handler.
const DEVICE: &str = "irq";
/// Largest number of values of a rate.
const RATE_VALUES_MAX: u64 = 200;
/// Shortest interval of a rate.
const RATE_INTERVAL_MIN_NS: u64 = 1_000_000;
const NS_PER_S: u64 = 1_000_000_000;

/// The tracks of each condition and CPU.
pub(super) fn groups(table: &Table) -> Vec<Group> {
    let rows = || table.rows().iter().map(|values| Row::new(table, values));
    let mut arrow_ends: BTreeMap<u64, Vec<u64>> = BTreeMap::new();
    for row in rows() {
        if let Some((event, target)) = uint(&row, "event").zip(uint(&row, "to_event")) {
            arrow_ends.entry(target).or_default().push(event);
        }
    }
    let mut cpus: BTreeMap<(String, u64), CpuTracks> = BTreeMap::new();
    let mut conditions: Vec<String> = Vec::new();
    for row in rows() {
        let condition = text(&row, "condition");
        if !conditions.contains(&condition) {
            conditions.push(condition.clone());
        }
        let Some(cpu) = uint(&row, "cpu") else { continue };
        cpus.entry((condition, cpu)).or_default().add(&row, &arrow_ends);
    }
    // The conditions stay in the order of their measurement.
    let position = |condition: &String| conditions.iter().position(|known| known == condition);
    let mut cpus: Vec<_> = cpus.into_iter().collect();
    cpus.sort_by_key(|((condition, cpu), _)| (position(condition), *cpu));
    let group = |((condition, cpu), tracks): ((String, u64), CpuTracks)| Group {
        name: format!("CPU {cpu}: timeline, {condition}"),
        tracks: tracks.into_tracks(),
    };
    cpus.into_iter().map(group).collect()
}

/// Events and counters of one CPU.
#[derive(Default)]
struct CpuTracks {
    contexts: Vec<Slice>,
    lost: Vec<Slice>,
    runnable: Vec<(u64, i64)>,
    /// Starts of interrupts, ns.
    interrupts: Vec<u64>,
    /// When the last interrupt with a vector ended, ns.
    interrupted_until_ns: u64,
    /// The action of each line whose handler came first, by the line's number. An interrupt of a shared line
    /// calls all actions of the line.
    first_actions: BTreeMap<u64, String>,
    end_ns: u64,
}

impl CpuTracks {
    fn add(&mut self, row: &Row<'_>, arrow_ends: &BTreeMap<u64, Vec<u64>>) {
        let times = uint(row, "start_ns").zip(uint(row, "length_ns")).zip(uint(row, "event"));
        let Some(((from_ns, length_ns), event)) = times else { return };
        let kind = text(row, "kind");
        self.end_ns = self.end_ns.max(from_ns.saturating_add(length_ns));
        if let Some(count) = uint(row, "runnable_count") {
            self.runnable.push((from_ns, i64::try_from(count).unwrap_or(i64::MAX)));
        }
        let is_interrupt = INTERRUPTS.contains(&&*kind);
        if is_interrupt {
            self.interrupted_until_ns = from_ns.saturating_add(length_ns);
        }
        // A device's handler within its vector is the same interrupt. Its vector has no row on the live bench.
        if is_interrupt
            || (kind == DEVICE && from_ns >= self.interrupted_until_ns && self.is_first_action(row))
        {
            self.interrupts.push(from_ns);
        }
        let slice = Slice {
            name: if REQUESTS.contains(&&*kind) {
                format!("{kind} {}", text(row, "name"))
            } else {
                text(row, "name")
            },
            from_ns,
            length_ns,
            details: details(row, &["self_ns", "number", "count"]),
            starts_flow: uint(row, "to_event").map(|_| event),
            ends_flows: arrow_ends.get(&event).cloned().unwrap_or_default(),
            kind,
        };
        let slices = if slice.kind == "lost" { &mut self.lost } else { &mut self.contexts };
        slices.push(slice);
    }

    /// Whether the handler of the row is the first action of its line on this CPU.
    fn is_first_action(&mut self, row: &Row<'_>) -> bool {
        let Some(line) = uint(row, "number") else { return true };
        let name = text(row, "name");
        *self.first_actions.entry(line).or_insert_with(|| name.clone()) == name
    }

    fn into_tracks(self) -> Vec<Track> {
        let rate = self.rate();
        let slices =
            |name: &str, slices| Track { name: name.to_owned(), slices, ..Track::default() };
        let counter = |name: &str, values, unit| Track {
            name: name.to_owned(),
            values,
            unit: Some(unit),
            ..Track::default()
        };
        let tracks = [
            slices("contexts", self.contexts),
            slices("not complete", self.lost),
            counter("interrupts per second", rate, "1/s"),
            counter("runnable tasks", self.runnable, "tasks"),
        ];
        let has_events = |track: &Track| !track.slices.is_empty() || !track.values.is_empty();
        tracks.into_iter().filter(has_events).collect()
    }

    /// The rate of interrupts in intervals of the same length, from where the events are complete.
    fn rate(&self) -> Vec<(u64, i64)> {
        if self.interrupts.is_empty() {
            return Vec::new();
        }
        let lost_until_ns = self.lost.iter().map(|slice| slice.length_ns).max().unwrap_or(0);
        let length_ns = self.end_ns.saturating_sub(lost_until_ns);
        let interval_ns = (length_ns / RATE_VALUES_MAX).max(RATE_INTERVAL_MIN_NS);
        // The last interval is not complete, so it has no rate.
        let mut counts = vec![0_u64; (length_ns / interval_ns) as usize];
        for start_ns in &self.interrupts {
            if let Some(since_ns) = start_ns.checked_sub(lost_until_ns)
                && let Some(count) = counts.get_mut((since_ns / interval_ns) as usize)
            {
                *count += 1;
            }
        }
        let value = |(interval, count): (u64, u64)| {
            let rate = u128::from(count) * u128::from(NS_PER_S) / u128::from(interval_ns);
            (lost_until_ns + interval * interval_ns, i64::try_from(rate).unwrap_or(i64::MAX))
        };
        (0..).zip(counts).map(value).collect()
    }
}

#[cfg(test)]
mod tests {
    use record::Kind::{Text, Uint};
    use record::Value;

    use super::*;
    use crate::picture::tests::table;

    #[test]
    fn contexts_nest_on_a_track_of_their_cpu_with_arrows_and_counters() {
        let columns = [
            ("condition", Text),
            ("event", Uint),
            ("cpu", Uint),
            ("start_ns", Uint),
            ("length_ns", Uint),
            ("self_ns", Uint),
            ("kind", Text),
            ("name", Text),
            ("runnable_count", Uint),
            ("to_event", Uint),
        ];
        let row = |event: u64, cpu: u64, times: (u64, u64), kind: &str, links: [Option<u64>; 2]| {
            let self_ns = (kind == "vector").then_some(7_u64);
            let numbers = [event.into(), cpu.into(), times.0.into(), times.1.into()];
            let names = [self_ns.into(), kind.into(), "n".into()];
            [vec!["idle".into()], numbers.to_vec(), names.to_vec(), links.map(Value::from).to_vec()]
                .concat()
        };
        let rows = vec![
            row(1, 1, (0, 9_000_000), "task", [Some(2), None]),
            row(2, 1, (2_000_000, 100), "vector", [None, None]),
            row(3, 1, (2_000_010, 50), "irq", [None, None]),
            row(4, 1, (3_000_000, 50), "irq", [None, None]),
            row(5, 0, (1_000_000, 0), "send", [None, Some(2)]),
            row(6, 0, (1_500_000, 0), "call", [None, Some(2)]),
            row(7, 1, (0, 1_000_000), "lost", [None, None]),
        ];
        let groups = groups(&table("timeline", &columns, rows));
        let names =
            |group: &Group| group.tracks.iter().map(|track| track.name.clone()).collect::<Vec<_>>();
        assert_eq!(
            (&*groups[0].name, names(&groups[0])),
            ("CPU 0: timeline, idle", vec!["contexts".to_owned()])
        );
        let expected = ["contexts", "not complete", "interrupts per second", "runnable tasks"];
        assert_eq!(names(&groups[1]), expected);
        let [contexts, _, rate, runnable] = &groups[1].tracks[..] else { panic!("{groups:?}") };
        assert_eq!(contexts.slices[1].ends_flows, [5, 6]);
        assert_eq!(contexts.slices[1].details, [("self_ns", 7)]);
        let sender = &groups[0].tracks[0].slices[0];
        assert_eq!((sender.starts_flow, &*sender.name), (Some(5), "send n"));
        // The handler within the vector is no other interrupt. The rate starts after the gap.
        let counts: Vec<_> = rate.values.iter().filter(|(_, value)| *value > 0).collect();
        assert_eq!(counts, [&(2_000_000, 1_000), &(3_000_000, 1_000)]);
        assert_eq!(rate.values[0], (1_000_000, 0));
        // The trace ends with a complete interval: an incomplete one has no rate.
        assert_eq!(rate.values.last(), Some(&(8_000_000, 0)));
        assert_eq!(runnable.values, [(0, 2)]);
    }

    #[test]
    fn an_interrupt_of_a_shared_line_counts_once() {
        let columns = [
            ("condition", Text),
            ("event", Uint),
            ("cpu", Uint),
            ("start_ns", Uint),
            ("length_ns", Uint),
            ("kind", Text),
            ("number", Uint),
            ("name", Text),
        ];
        let row = |event: u64, start_ns: u64, kind: &str, number: u64, name: &str| {
            let times = [event.into(), 0_u64.into(), start_ns.into(), 50_u64.into()];
            let context = [kind.into(), number.into(), name.into()];
            [vec!["idle".into()], times.to_vec(), context.to_vec()].concat()
        };
        let irq = |event: u64, start_ns: u64, line: u64, name: &str| {
            row(event, start_ns, "irq", line, name)
        };
        let rows = vec![
            // Two interrupts of line 9 with two actions, and one of another line in the second millisecond.
            irq(1, 1_000, 9, "acpi"),
            irq(2, 1_060, 9, "i801"),
            irq(3, 500_000, 9, "acpi"),
            irq(4, 500_060, 9, "i801"),
            irq(5, 1_500_000, 10, "i801"),
            row(6, 4_000_000, "task", 0, "t"),
        ];
        let groups = groups(&table("timeline", &columns, rows));
        let mut tracks = groups[0].tracks.iter();
        let rate = tracks.find(|track| track.name == "interrupts per second").unwrap();
        let values: Vec<i64> = rate.values.iter().map(|(_, value)| *value).collect();
        assert_eq!(values, [2_000, 1_000, 0, 0]);
    }
}
