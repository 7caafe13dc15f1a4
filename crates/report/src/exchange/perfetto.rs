//! A run's events in time as a trace for Perfetto (<https://ui.perfetto.dev>), in its protobuf format. `irqlab export
//! --format perfetto` and `footprint --trace` write it.
//!
//! The messages below are the subset of `perfetto_trace.proto` for tracks, slices, flows and counters. Their field numbers
//! come from that file and must not change.

use std::collections::{BTreeMap, BTreeSet};

use prost::Message;
use record::{Run, Table, Value};

use super::{Unexported, timeline};
use crate::escape;
use crate::row::Row;

/// Maximum number of characters of a name. Names come from a kernel or a guest.
const NAME_CHARS_MAX: usize = 80;
/// Number of the sequence of packets. The trace has only one sequence.
const SEQUENCE: u32 = 1;

/// Field number of the packets in `perfetto.protos.Trace`.
const PACKET_TAG: u32 = 1;

/// `perfetto.protos.Trace`.
#[cfg(test)]
#[derive(Clone, PartialEq, Message)]
struct TraceFile {
    #[prost(message, repeated, tag = "1")]
    packet: Vec<TracePacket>,
}

#[derive(Clone, PartialEq, Message)]
struct TracePacket {
    /// In ns, from the start of the trace.
    #[prost(uint64, optional, tag = "8")]
    timestamp: Option<u64>,
    #[prost(uint32, optional, tag = "10")]
    trusted_packet_sequence_id: Option<u32>,
    #[prost(message, optional, tag = "11")]
    track_event: Option<TrackEvent>,
    /// Bit 0: the state of the sequence starts with this packet.
    #[prost(uint32, optional, tag = "13")]
    sequence_flags: Option<u32>,
    #[prost(message, optional, tag = "60")]
    track_descriptor: Option<TrackDescriptor>,
}

#[derive(Clone, PartialEq, Message)]
struct TrackDescriptor {
    #[prost(uint64, optional, tag = "1")]
    uuid: Option<u64>,
    #[prost(string, optional, tag = "2")]
    name: Option<String>,
    #[prost(uint64, optional, tag = "5")]
    parent_uuid: Option<u64>,
    #[prost(message, optional, tag = "8")]
    counter: Option<CounterDescriptor>,
    /// How child tracks are ordered. [`EXPLICIT_ORDER`]: by `sibling_order_rank`.
    #[prost(int32, optional, tag = "11")]
    child_ordering: Option<i32>,
    #[prost(int32, optional, tag = "12")]
    sibling_order_rank: Option<i32>,
}

#[derive(Clone, PartialEq, Message)]
struct CounterDescriptor {
    #[prost(string, optional, tag = "6")]
    unit_name: Option<String>,
}

#[derive(Clone, PartialEq, Message)]
struct TrackEvent {
    #[prost(message, repeated, tag = "4")]
    debug_annotations: Vec<DebugAnnotation>,
    /// [`SLICE_BEGIN`]: a slice starts. [`SLICE_END`]: the innermost slice ends. [`COUNTER`]: the value of a counter.
    #[prost(int32, optional, tag = "9")]
    kind: Option<i32>,
    #[prost(uint64, optional, tag = "11")]
    track_uuid: Option<u64>,
    #[prost(string, repeated, tag = "22")]
    categories: Vec<String>,
    #[prost(string, optional, tag = "23")]
    name: Option<String>,
    #[prost(int64, optional, tag = "30")]
    counter_value: Option<i64>,
    /// The arrows that start at this slice.
    #[prost(fixed64, repeated, packed = "false", tag = "47")]
    flow_ids: Vec<u64>,
    /// The arrows that end at this slice.
    #[prost(fixed64, repeated, packed = "false", tag = "48")]
    terminating_flow_ids: Vec<u64>,
}

#[derive(Clone, PartialEq, Message)]
struct DebugAnnotation {
    #[prost(uint64, optional, tag = "3")]
    uint_value: Option<u64>,
    #[prost(string, optional, tag = "6")]
    string_value: Option<String>,
    #[prost(string, optional, tag = "10")]
    name: Option<String>,
}

const SLICE_BEGIN: i32 = 1;
const SLICE_END: i32 = 2;
const COUNTER: i32 = 4;
const EXPLICIT_ORDER: i32 = 3;

/// A row of the viewer: slices one after the other or within one another, or the values of a counter.
#[derive(Clone, Debug, Default, PartialEq)]
pub(super) struct Track {
    pub(super) name: String,
    /// In any order.
    pub(super) slices: Vec<Slice>,
    /// A counter's values and their times, ns.
    pub(super) values: Vec<(u64, i64)>,
    /// The unit of a counter, which has no slices. `None` for a track of slices.
    pub(super) unit: Option<&'static str>,
}

/// An interval of time. Times are in ns from the start of its group.
#[derive(Clone, Debug, Default, PartialEq)]
pub(super) struct Slice {
    pub(super) name: String,
    /// The kind of context, for which the viewer can search.
    pub(super) kind: String,
    pub(super) from_ns: u64,
    pub(super) length_ns: u64,
    /// Further numbers, each with a name.
    pub(super) details: Vec<(&'static str, u64)>,
    /// The arrow that starts at this slice, by its number in the trace.
    pub(super) starts_flow: Option<u64>,
    /// The arrows that end at this slice.
    pub(super) ends_flows: Vec<u64>,
}

/// Rows that are drawn together. All groups start at time 0 of the viewer.
#[derive(Clone, Debug, Default, PartialEq)]
pub(super) struct Group {
    /// Name of the group, such as a CPU.
    pub(super) name: String,
    /// The rows, from above.
    pub(super) tracks: Vec<Track>,
}

/// The trace of a run: a group of tracks for each CPU and window, a track for each context.
///
/// Fails when the run has no table with single events in time.
pub fn perfetto(run: &Run) -> Result<Vec<u8>, Unexported> {
    let groups_of =
        |name: &str, make: fn(&Table) -> Vec<Group>| run.table(name).map(make).unwrap_or_default();
    let groups = [
        groups_of("trace", context_trace),
        groups_of("flight_record", flight_record),
        groups_of("timeline", timeline::groups),
        groups_of("worst", worst_wakeups),
        run.table("detours").map(|table| sampled_detours(run, table)).unwrap_or_default(),
        groups_of("longest", |table| {
            slices_of_detours(table, &|_| "the longest detours".to_owned())
        }),
        groups_of("longest_parts", longest_parts),
        groups_of("worst_parts", worst_parts),
        run.table("fwq_quanta").map(|table| fixed_work(run, table)).unwrap_or_default(),
        groups_of("ftq_quanta", fixed_time),
    ]
    .concat();
    if groups.is_empty() {
        return Err(Unexported(format!(
            "a run of {} has only sums, no single events with a time (noise, wakeup, handlers --trace and footprint --trace have them)",
            escape::plain(&run.experiment)
        )));
    }
    Ok(encode(&groups))
}

/// A text or a whole number of a row. Empty if there is neither.
pub(super) fn text(row: &Row<'_>, column: &str) -> String {
    match row.get(column) {
        Value::Text(text) => text.clone(),
        Value::Uint(number) => number.to_string(),
        _ => String::new(),
    }
}

pub(super) fn uint(row: &Row<'_>, column: &str) -> Option<u64> {
    match row.get(column) {
        Value::Uint(number) => Some(*number),
        _ => None,
    }
}

/// Makes a slice of each row, and sorts the slices into groups and tracks by the names that `group` and `track` return.
/// Groups and tracks are in the order in which they first appear. Leaves out rows for which `slice` returns `None`.
fn group_slices(
    table: &Table,
    group: impl Fn(&Row<'_>) -> String,
    track: impl Fn(&Row<'_>) -> String,
    slice: impl Fn(&Row<'_>) -> Option<Slice>,
) -> Vec<Group> {
    let mut groups: Vec<Group> = Vec::new();
    // Indices of the groups, and of the tracks in their groups.
    let mut group_indices: BTreeMap<String, usize> = BTreeMap::new();
    let mut track_indices: BTreeMap<(usize, String), usize> = BTreeMap::new();
    for values in table.rows() {
        let row = Row::new(table, values);
        let Some(slice) = slice(&row) else { continue };
        let group_index = *group_indices.entry(group(&row)).or_insert_with_key(|name| {
            groups.push(Group { name: name.clone(), tracks: Vec::new() });
            groups.len() - 1
        });
        let tracks = &mut groups[group_index].tracks;
        let track_key = (group_index, track(&row));
        let track_index = *track_indices.entry(track_key).or_insert_with_key(|(_, name)| {
            tracks.push(Track { name: name.clone(), ..Track::default() });
            tracks.len() - 1
        });
        tracks[track_index].slices.push(slice);
    }
    groups
}

/// `footprint --trace`: the contexts of each CPU in a repetition of each series.
fn context_trace(table: &Table) -> Vec<Group> {
    let group = |row: &Row<'_>| {
        let series = ["level", "stimulus", "method"].map(|column| text(row, column)).join(", ");
        match row.get("not_accepted") {
            Value::Text(reason) => format!("{series} (not accepted: {reason})"),
            _ => series,
        }
    };
    let track = |row: &Row<'_>| match uint(row, "cpu") {
        Some(cpu) => format!("CPU {cpu}"),
        None => "by the loop's clock".to_owned(),
    };
    group_slices(table, group, track, |row| {
        Some(Slice {
            name: text(row, "name"),
            kind: text(row, "kind"),
            from_ns: uint(row, "start_ns")?,
            length_ns: uint(row, "length_ns")?,
            ..Slice::default()
        })
    })
}

/// Kinds of intervals in table `flight_record` that are measured times. They overlap with what the CPU ran.
const MEASURED_KINDS: [&str; 2] = ["detour", "late wake-up"];

/// The last seconds of each CPU: what it ran, wake-ups of measured threads as arrows, and what was measured.
fn flight_record(table: &Table) -> Vec<Group> {
    let arrows = Arrows::of_wake_ups(table);
    let sends = Sends::in_table(table, arrows.ends.len() as u64);
    let group = |row: &Row<'_>| format!("CPU {}: flight record", text(row, "cpu"));
    let track = |row: &Row<'_>| {
        let kind = text(row, "kind");
        if MEASURED_KINDS.contains(&kind.as_str()) { kind } else { "contexts".to_owned() }
    };
    group_slices(table, group, track, |row| {
        let kind = text(row, "kind");
        let (cpu, start_ns) = cpu_and_start(row)?;
        let arrow = |arrows: &BTreeMap<(u64, u64), u64>, end_kind: &str| {
            if kind == end_kind { arrows.get(&(cpu, start_ns)).copied() } else { None }
        };
        Some(Slice {
            name: text(row, "name"),
            from_ns: start_ns,
            length_ns: uint(row, "length_ns")?,
            details: details(row, &["woken_cpu", "target_cpu"]),
            starts_flow: arrow(&arrows.starts, "wake-up").or_else(|| sends.start_at(row)),
            ends_flows: match &*kind {
                "thread" => arrow(&arrows.ends, "thread").into_iter().collect(),
                VECTOR => sends.ends.get(&(cpu, start_ns)).cloned().unwrap_or_default(),
                _ => Vec::new(),
            },
            kind,
        })
    })
}

/// CPU and start of a row.
fn cpu_and_start(row: &Row<'_>) -> Option<(u64, u64)> {
    uint(row, "cpu").zip(uint(row, "start_ns"))
}

/// Arrows from one slice to another. Keys are the CPU and the start of a slice, values the numbers of arrows.
#[derive(Default)]
struct Arrows {
    starts: BTreeMap<(u64, u64), u64>,
    ends: BTreeMap<(u64, u64), u64>,
}

impl Arrows {
    /// An arrow from each wake-up to the next time at which the woken CPU runs the measured thread.
    fn of_wake_ups(table: &Table) -> Arrows {
        let rows = || table.rows().iter().map(|values| Row::new(table, values));
        let is_thread = |row: &Row<'_>| text(row, "kind") == "thread";
        let thread_starts: BTreeSet<(u64, u64)> =
            rows().filter(is_thread).filter_map(|row| cpu_and_start(&row)).collect();
        let mut arrows = Arrows::default();
        for row in rows() {
            let (Some(woken_cpu), Some((cpu, start_ns))) =
                (uint(&row, "woken_cpu"), cpu_and_start(&row))
            else {
                continue;
            };
            let later_on_woken_cpu = (woken_cpu, start_ns)..=(woken_cpu, u64::MAX);
            let Some(thread_start) = thread_starts.range(later_on_woken_cpu).next() else {
                continue;
            };
            // A thread that is woken twice before it runs has one arrow.
            if !arrows.ends.contains_key(thread_start) {
                let number = arrows.ends.len() as u64 + 1;
                arrows.starts.insert((cpu, start_ns), number);
                arrows.ends.insert(*thread_start, number);
            }
        }
        arrows
    }
}

/// Kind of interrupts, which serve what other CPUs have sent.
const VECTOR: &str = "vector";

/// CPU and time of a row `send`, with the CPU and time at which it is served.
type Send = [u64; 4];

/// Arrows from a call or interrupt that a CPU sends to the interrupt that serves it on another CPU. Several arrows may end at an interrupt.
struct Sends {
    starts: BTreeMap<Send, u64>,
    /// The arrows that end at an interrupt, by its CPU and its start.
    ends: BTreeMap<(u64, u64), Vec<u64>>,
}

impl Sends {
    /// Numbers arrows after `last_number`. A call or interrupt that no recorded interrupt serves has no arrow.
    fn in_table(table: &Table, last_number: u64) -> Sends {
        let rows = || table.rows().iter().map(|values| Row::new(table, values));
        let vectors = rows().filter(|row| text(row, "kind") == VECTOR);
        let lengths: BTreeMap<(u64, u64), u64> =
            vectors.filter_map(|row| cpu_and_start(&row).zip(uint(&row, "length_ns"))).collect();
        let (mut starts, mut ends) = (BTreeMap::new(), BTreeMap::<_, Vec<u64>>::new());
        for send in rows().filter_map(|row| send_of(&row)) {
            let [_, _, target_cpu, served_ns] = send;
            let until_served = (target_cpu, 0)..=(target_cpu, served_ns);
            let serving = lengths.range(until_served).next_back();
            let serving = serving.filter(|((_, start_ns), length)| start_ns + *length >= served_ns);
            if let Some((interrupt, _)) = serving {
                let number = last_number + starts.len() as u64 + 1;
                if starts.insert(send, number).is_none() {
                    ends.entry(*interrupt).or_default().push(number);
                }
            }
        }
        Sends { starts, ends }
    }

    fn start_at(&self, row: &Row<'_>) -> Option<u64> {
        self.starts.get(&send_of(row)?).copied()
    }
}

/// The content of a row `send`. `None` for other rows.
fn send_of(row: &Row<'_>) -> Option<Send> {
    let (cpu, start_ns) = cpu_and_start(row)?;
    let (target_cpu, served_ns) = uint(row, "target_cpu").zip(uint(row, "served_ns"))?;
    Some([cpu, start_ns, target_cpu, served_ns])
}

/// `wakeup`: the worst wake-ups of each CPU, from their due times on.
fn worst_wakeups(table: &Table) -> Vec<Group> {
    group_slices(
        table,
        |row| format!("CPU {}: the worst wake-ups", text(row, "cpu")),
        |_| "late".to_owned(),
        |row| {
            Some(Slice {
                name: text(row, "largest_name"),
                kind: text(row, "largest_kind"),
                from_ns: uint(row, "due_ns")?,
                length_ns: uint(row, "late_ns")?,
                details: details(row, &["rank", "largest_ns"]),
                ..Slice::default()
            })
        },
    )
}

/// `wakeup`: the parts of the worst wake-ups, on a track for each stage. Leaves out sums of parts, which have no start.
fn worst_parts(table: &Table) -> Vec<Group> {
    group_slices(
        table,
        |row| format!("CPU {}: parts of the worst wake-ups", text(row, "cpu")),
        |row| text(row, "stage"),
        |row| {
            Some(Slice {
                name: text(row, "name"),
                kind: text(row, "kind"),
                from_ns: uint(row, "start_ns")?,
                length_ns: uint(row, "length_ns")?,
                details: details(row, &["rank"]),
                ..Slice::default()
            })
        },
    )
}

/// The numbers of a row in these columns, with the columns' names. Leaves out absent numbers.
pub(super) fn details(row: &Row<'_>, columns: &[&'static str]) -> Vec<(&'static str, u64)> {
    columns.iter().filter_map(|column| Some((*column, uint(row, column)?))).collect()
}

/// `noise`: the detours of table `detours`. If the run has more detours of a CPU than the table, the CPU's heading says
/// so.
fn sampled_detours(run: &Run, table: &Table) -> Vec<Group> {
    let rows_of = |table: &Table, cpu: &str| -> Vec<Option<u64>> {
        let rows = table.rows().iter().map(|values| Row::new(table, values));
        rows.filter(|row| text(row, "cpu") == cpu).map(|row| uint(&row, "detour_count")).collect()
    };
    slices_of_detours(table, &|cpu| {
        let shown = rows_of(table, cpu).len() as u64;
        let counts = run.table("noise").map(|noise| rows_of(noise, cpu)).unwrap_or_default();
        match counts.into_iter().flatten().max() {
            Some(all) if all > shown => format!("an even sample of the detours, {shown} of {all}"),
            _ => "detours".to_owned(),
        }
    })
}

/// `noise`: each detour on the track of its largest cause. `heading`: what the detours of a CPU are.
fn slices_of_detours(table: &Table, heading: &dyn Fn(&str) -> String) -> Vec<Group> {
    let kind = |row: &Row<'_>| text(row, "largest_kind");
    let track = |row: &Row<'_>| match kind(row).as_str() {
        // All tasks share one track, because their number has no limit.
        "task" => "task".to_owned(),
        kind => format!("{kind} {}", text(row, "largest_name")),
    };
    let mut headings: BTreeMap<String, String> = BTreeMap::new();
    for values in table.rows() {
        let cpu = text(&Row::new(table, values), "cpu");
        headings.entry(cpu).or_insert_with_key(|cpu| heading(cpu));
    }
    let group = |row: &Row<'_>| {
        let cpu = text(row, "cpu");
        format!("CPU {cpu}: {}", headings[&cpu])
    };
    let mut groups = group_slices(table, group, track, |row| {
        Some(Slice {
            name: text(row, "largest_name"),
            kind: kind(row),
            from_ns: uint(row, "start_ns")?,
            length_ns: uint(row, "length_ns")?,
            details: details(
                row,
                &[
                    "attributed_ns",
                    "entry_exit_ns",
                    "unattributed_ns",
                    "remainder_ns",
                    "indirect_ns",
                ],
            ),
            ..Slice::default()
        })
    });
    groups.iter_mut().for_each(|group| group.tracks.sort_by(|a, b| a.name.cmp(&b.name)));
    groups
}

/// `noise`: the parts of the longest detours. Leaves out sums of parts, which have no start.
fn longest_parts(table: &Table) -> Vec<Group> {
    group_slices(
        table,
        |row| format!("CPU {}: parts of the longest detours", text(row, "cpu")),
        |_| "parts".to_owned(),
        |row| {
            Some(Slice {
                name: text(row, "name"),
                kind: text(row, "kind"),
                from_ns: uint(row, "start_ns")?,
                length_ns: uint(row, "length_ns")?,
                details: details(row, &["rank"]),
                ..Slice::default()
            })
        },
    )
}

/// `noise`: quanta of fixed work. Their lengths differ, because interrupts lengthen them. If the run has more quanta of
/// a CPU than the table, the CPU's heading says so.
fn fixed_work(run: &Run, table: &Table) -> Vec<Group> {
    let mut kept_counts: BTreeMap<String, u64> = BTreeMap::new();
    for values in table.rows() {
        *kept_counts.entry(text(&Row::new(table, values), "cpu")).or_default() += 1;
    }
    let mut quantum_counts: BTreeMap<String, u64> = BTreeMap::new();
    if let Some(fwq) = run.table("fwq") {
        for values in fwq.rows() {
            let row = Row::new(fwq, values);
            let count = quantum_counts.entry(text(&row, "cpu")).or_default();
            *count = count.saturating_add(uint(&row, "quantum_count").unwrap_or(0));
        }
    }
    let group = |row: &Row<'_>| {
        let cpu = text(row, "cpu");
        let kept_count = kept_counts.get(&cpu).copied().unwrap_or(0);
        match quantum_counts.get(&cpu) {
            Some(quantum_count) if *quantum_count > kept_count => {
                format!(
                    "CPU {cpu}: fixed work (FWQ), the first {kept_count} of {quantum_count} quanta"
                )
            }
            _ => format!("CPU {cpu}: fixed work (FWQ)"),
        }
    };
    group_slices(
        table,
        group,
        |_| "quanta".to_owned(),
        |row| {
            let largest = [text(row, "largest_kind"), text(row, "largest_name")].join(" ");
            let name = match uint(row, "attributed_ns") {
                None => "fwq quantum, cause not known".to_owned(),
                Some(0) => "no kernel event".to_owned(),
                Some(_) => largest,
            };
            Some(Slice {
                name,
                kind: "quantum".to_owned(),
                from_ns: uint(row, "start_ns")?,
                length_ns: uint(row, "duration_ns")?,
                details: details(row, &["attributed_ns"]),
                ..Slice::default()
            })
        },
    )
}

/// `noise`: the work done in each quantum of fixed time. It is counted in whole units of work.
fn fixed_time(table: &Table) -> Vec<Group> {
    let mut by_cpu: BTreeMap<u64, Vec<(u64, i64)>> = BTreeMap::new();
    for values in table.rows() {
        let row = Row::new(table, values);
        let figures = (uint(&row, "cpu"), uint(&row, "start_ns"), uint(&row, "work_iterations"));
        if let (Some(cpu), Some(start_ns), Some(iterations)) = figures {
            let iterations = i64::try_from(iterations).unwrap_or(i64::MAX);
            by_cpu.entry(cpu).or_default().push((start_ns, iterations));
        }
    }
    let group = |(cpu, values)| Group {
        name: format!("CPU {cpu}: fixed time (FTQ)"),
        tracks: vec![Track {
            name: "work in each quantum".to_owned(),
            values,
            unit: Some("units of work"),
            ..Track::default()
        }],
    };
    by_cpu.into_iter().map(group).collect()
}

/// A name that a viewer can show: without control characters, and not too long.
fn printable(name: &str) -> String {
    escape::plain(name).chars().take(NAME_CHARS_MAX).collect()
}

/// The groups as a protobuf file. Each group is a parent track; each track in it is one track for each of its lanes.
///
/// A trace is a sequence of packets, so they are encoded one by one: a run may have millions of them.
fn encode(groups: &[Group]) -> Vec<u8> {
    let mut file = Vec::new();
    let mut is_first = true;
    let mut push = |packet: TracePacket| {
        let sequence_flags = std::mem::take(&mut is_first).then_some(1);
        let packet =
            TracePacket { trusted_packet_sequence_id: Some(SEQUENCE), sequence_flags, ..packet };
        prost::encoding::message::encode(PACKET_TAG, &packet, &mut file);
    };
    let mut last_uuid = 0_u64;
    let mut new_uuid = || {
        last_uuid += 1;
        last_uuid
    };
    let mut moments = Vec::new();
    for (group, rank) in groups.iter().zip(1..) {
        let parent = new_uuid();
        push(packet_of(TrackDescriptor {
            uuid: Some(parent),
            name: Some(printable(&group.name)),
            child_ordering: Some(EXPLICIT_ORDER),
            sibling_order_rank: Some(rank),
            ..TrackDescriptor::default()
        }));
        for (track, rank) in group.tracks.iter().zip(1..) {
            let mut track_lanes = divide_into_lanes(&track.slices);
            // A counter has no lane, and needs one track.
            track_lanes.resize_with(track_lanes.len().max(1), Vec::new);
            for lane in track_lanes {
                let id = new_uuid();
                push(packet_of(TrackDescriptor {
                    uuid: Some(id),
                    name: Some(printable(&track.name)),
                    parent_uuid: Some(parent),
                    counter: track
                        .unit
                        .map(|unit| CounterDescriptor { unit_name: Some(unit.into()) }),
                    sibling_order_rank: Some(rank),
                    ..TrackDescriptor::default()
                }));
                let values =
                    track.values.iter().map(|(time_ns, value)| (*time_ns, Moment::Value(*value)));
                let edges = lane.into_iter().map(|edge| (edge.time_ns(), Moment::Edge(edge)));
                moments.extend(edges.chain(values).map(|(time_ns, moment)| (time_ns, id, moment)));
            }
        }
    }
    // The sort must be stable: moments at one time stay in the order of their track, where an end precedes a start.
    moments.sort_by_key(|(time_ns, ..)| *time_ns);
    for (time_ns, track, moment) in moments {
        let event = TrackEvent { track_uuid: Some(track), ..moment.event() };
        push(TracePacket {
            timestamp: Some(time_ns),
            track_event: Some(event),
            ..TracePacket::default()
        });
    }
    file
}

/// The packet that describes a track.
fn packet_of(track: TrackDescriptor) -> TracePacket {
    TracePacket { track_descriptor: Some(track), ..TracePacket::default() }
}

/// The start or the end of a slice in a lane.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Edge<'a> {
    Start(&'a Slice),
    /// The time of the end, ns.
    End(u64),
}

impl Edge<'_> {
    fn time_ns(&self) -> u64 {
        match self {
            Edge::Start(slice) => slice.from_ns,
            Edge::End(end_ns) => *end_ns,
        }
    }
}

/// An event of a track, at a time.
enum Moment<'a> {
    Edge(Edge<'a>),
    /// A counter has this value from now on.
    Value(i64),
}

impl Moment<'_> {
    /// The event, without its track.
    fn event(&self) -> TrackEvent {
        match self {
            Moment::Value(value) => TrackEvent {
                kind: Some(COUNTER),
                counter_value: Some(*value),
                ..TrackEvent::default()
            },
            Moment::Edge(Edge::End(_)) => {
                TrackEvent { kind: Some(SLICE_END), ..TrackEvent::default() }
            }
            Moment::Edge(Edge::Start(slice)) => {
                let annotation = |(name, value): &(&str, u64)| DebugAnnotation {
                    name: Some((*name).to_owned()),
                    uint_value: Some(*value),
                    string_value: None,
                };
                TrackEvent {
                    kind: Some(SLICE_BEGIN),
                    name: Some(printable(&slice.name)),
                    categories: vec![printable(&slice.kind)],
                    debug_annotations: slice.details.iter().map(annotation).collect(),
                    flow_ids: slice.starts_flow.into_iter().collect(),
                    terminating_flow_ids: slice.ends_flows.clone(),
                    ..TrackEvent::default()
                }
            }
        }
    }
}

/// A lane of a track, up to the current slice.
#[derive(Default)]
struct Lane<'a> {
    edges: Vec<Edge<'a>>,
    /// When the slices end that have not ended, ns; the innermost last.
    open_ends: Vec<u64>,
}

/// The edges of slices in order of time, divided into lanes. Two slices of a lane are apart, or one contains the other,
/// because Perfetto can show only such slices on one track.
fn divide_into_lanes(slices: &[Slice]) -> Vec<Vec<Edge<'_>>> {
    let mut ordered: Vec<&Slice> = slices.iter().collect();
    ordered.sort_by_key(|slice| (slice.from_ns, u64::MAX - slice.length_ns));
    let mut lanes: Vec<Lane<'_>> = Vec::new();
    for slice in ordered {
        let end_ns = slice.from_ns.saturating_add(slice.length_ns);
        for lane in &mut lanes {
            while let Some(ended_ns) = lane.open_ends.pop_if(|end_ns| *end_ns <= slice.from_ns) {
                lane.edges.push(Edge::End(ended_ns));
            }
        }
        let fits =
            |lane: &Lane<'_>| lane.open_ends.last().is_none_or(|outer_end| end_ns <= *outer_end);
        let index = lanes.iter().position(fits).unwrap_or_else(|| {
            lanes.push(Lane::default());
            lanes.len() - 1
        });
        lanes[index].edges.push(Edge::Start(slice));
        lanes[index].open_ends.push(end_ns);
    }
    for lane in &mut lanes {
        lane.edges.extend(lane.open_ends.drain(..).rev().map(Edge::End));
    }
    lanes.into_iter().map(|lane| lane.edges).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::picture::tests::{run_of, table};
    use proptest::prelude::*;
    use record::Kind::{Text, Uint};

    fn slice(name: &str, from_ns: u64, length_ns: u64) -> Slice {
        Slice { name: name.to_owned(), from_ns, length_ns, ..Slice::default() }
    }

    /// The slices of each track as a viewer finds them, in the order of their ends: depth, name, start, end.
    fn read(bytes: &[u8]) -> BTreeMap<u64, Vec<(usize, String, u64, u64)>> {
        let file = TraceFile::decode(bytes).unwrap();
        let (mut open, mut found) = (BTreeMap::<u64, Vec<_>>::new(), BTreeMap::<_, Vec<_>>::new());
        let mut last = 0;
        for packet in file.packet {
            let Some(event) = packet.track_event else { continue };
            let (at, track) = (packet.timestamp.unwrap(), event.track_uuid.unwrap());
            assert!(at >= last, "in order");
            last = at;
            let stack = open.entry(track).or_default();
            if event.kind == Some(SLICE_BEGIN) {
                stack.push((event.name.unwrap(), at));
            } else {
                let (name, from) = stack.pop().expect("an end has its start");
                found.entry(track).or_default().push((stack.len(), name, from, at));
            }
        }
        assert!(open.values().all(Vec::is_empty), "a start has its end");
        found
    }

    /// A trace with one group of these slices.
    fn encoded(slices: Vec<Slice>) -> Vec<u8> {
        let track = Track { slices, ..Track::default() };
        encode(&[Group { name: "g".to_owned(), tracks: vec![track] }])
    }

    #[test]
    fn nested_consecutive_and_empty_slices_are_on_one_track() {
        let outer = slice("outer", 0, 10);
        let bytes = encoded(vec![slice("b", 4, 6), slice("a", 1, 3), outer, slice("empty", 10, 0)]);
        let tracks = read(&bytes);
        let expected = [(1, "a", 1, 4), (1, "b", 4, 10), (0, "outer", 0, 10), (0, "empty", 10, 10)];
        let expected = expected.map(|(depth, name, from, to)| (depth, name.to_owned(), from, to));
        assert_eq!(tracks.into_values().collect::<Vec<_>>(), [expected.to_vec()]);
    }

    #[test]
    fn slices_that_overlap_are_on_two_tracks() {
        let tracks = read(&encoded(vec![slice("a", 0, 10), slice("b", 5, 10)]));
        assert_eq!(tracks.len(), 2);
    }

    #[test]
    fn a_sample_of_the_detours_is_called_a_sample() {
        let columns = [("cpu", Uint), ("start_ns", Uint), ("length_ns", Uint)];
        let rows = vec![vec![0.into(), 1.into(), 5.into()], vec![1.into(), 1.into(), 5.into()]];
        let counts = vec![vec![0.into(), 45_000.into()], vec![1.into(), 1.into()]];
        let noise = table("noise", &[("cpu", Uint), ("detour_count", Uint)], counts);
        let run = run_of(vec![table("detours", &columns, rows), noise]);
        let file = TraceFile::decode(perfetto(&run).unwrap().as_slice()).unwrap();
        let tracks = file.packet.iter().filter_map(|packet| packet.track_descriptor.clone());
        let names: Vec<String> = tracks.map(|track| track.name.unwrap()).collect();
        assert_eq!(names[0], "CPU 0: an even sample of the detours, 1 of 45000");
        assert!(names.iter().any(|name| name == "CPU 1: detours"), "{names:?}");
    }

    #[test]
    fn a_detour_is_on_the_track_of_its_cause_and_work_is_a_counter() {
        let columns = [
            ("cpu", Uint),
            ("start_ns", Uint),
            ("length_ns", Uint),
            ("largest_kind", Text),
            ("largest_name", Text),
            ("attributed_ns", Uint),
        ];
        let row = |cpu: u64, start: u64, kind: &str, name: &str| {
            vec![cpu.into(), start.into(), 5.into(), kind.into(), name.into(), 4.into()]
        };
        let rows = vec![
            row(0, 100, "softirq", "RCU"),
            row(0, 200, "task", "one"),
            row(0, 300, "task", "two"),
            row(1, 10, "softirq", "RCU"),
        ];
        let work = vec![vec![0.into(), 0.into(), 77.into()]];
        let quanta = [("cpu", Uint), ("start_ns", Uint), ("work_iterations", Uint)];
        let run =
            run_of(vec![table("detours", &columns, rows), table("ftq_quanta", &quanta, work)]);
        let file = TraceFile::decode(perfetto(&run).unwrap().as_slice()).unwrap();
        let tracks = file.packet.iter().filter_map(|packet| packet.track_descriptor.clone());
        let names: Vec<String> = tracks.map(|track| track.name.unwrap()).collect();
        let expected = [
            "CPU 0: detours",
            "softirq RCU",
            "task",
            "CPU 1: detours",
            "softirq RCU",
            "CPU 0: fixed time (FTQ)",
            "work in each quantum",
        ];
        assert_eq!(names, expected);
        let events = || file.packet.iter().filter_map(|packet| packet.track_event.as_ref());
        assert_eq!(events().filter_map(|event| event.counter_value).collect::<Vec<_>>(), [77]);
        let first = events().find(|event| event.kind == Some(SLICE_BEGIN)).unwrap();
        assert_eq!(first.debug_annotations[0].uint_value, Some(4));
    }

    #[test]
    fn a_quantum_without_tracing_has_no_cause_and_the_first_quanta_are_called_so() {
        let columns = ["cpu", "start_ns", "duration_ns", "attributed_ns"].map(|name| (name, Uint));
        let row = |start: u64, attributed_ns: record::Value| {
            vec![0_u64.into(), start.into(), 5_u64.into(), attributed_ns]
        };
        let rows = vec![row(0, record::Value::Absent), row(10, 0_u64.into())];
        let counts = vec![vec![0_u64.into(), 7_u64.into()]];
        let fwq = table("fwq", &[("cpu", Uint), ("quantum_count", Uint)], counts);
        let run = run_of(vec![table("fwq_quanta", &columns, rows), fwq]);
        let bytes = perfetto(&run).unwrap();
        let names: Vec<String> =
            read(&bytes).into_values().flatten().map(|(_, name, ..)| name).collect();
        assert_eq!(names, ["fwq quantum, cause not known", "no kernel event"]);
        let file = TraceFile::decode(bytes.as_slice()).unwrap();
        let tracks = file.packet.iter().filter_map(|packet| packet.track_descriptor.clone());
        let headings: Vec<String> = tracks.map(|track| track.name.unwrap()).collect();
        assert_eq!(headings[0], "CPU 0: fixed work (FWQ), the first 2 of 7 quanta");
    }

    #[test]
    fn a_flight_record_has_contexts_arrows_and_what_was_measured() {
        let columns = [
            ("cpu", Uint),
            ("start_ns", Uint),
            ("length_ns", Uint),
            ("kind", Text),
            ("name", Text),
            ("woken_cpu", Uint),
        ];
        let row = |cpu: u64, start: u64, length: u64, kind: &str, woken: Option<u64>| {
            vec![cpu.into(), start.into(), length.into(), kind.into(), "n".into(), woken.into()]
        };
        let rows = vec![
            row(0, 0, 100, "task", None),
            row(0, 10, 30, "vector", None),
            row(0, 20, 0, "wake-up", Some(1)),
            row(0, 25, 0, "wake-up", Some(1)), // The thread has not run since the first one.
            row(0, 90, 0, "wake-up", Some(1)), // It does not run again in the record.
            row(1, 0, 60, "task", None),
            row(1, 60, 40, "thread", None),
            row(1, 15, 50, "late wake-up", None),
        ];
        let run = run_of(vec![table("flight_record", &columns, rows)]);
        let file = TraceFile::decode(perfetto(&run).unwrap().as_slice()).unwrap();
        let tracks = file.packet.iter().filter_map(|packet| packet.track_descriptor.clone());
        let names: Vec<String> = tracks.map(|track| track.name.unwrap()).collect();
        let cpus = ["CPU 0: flight record", "contexts", "CPU 1: flight record", "contexts"];
        assert_eq!(names, [&cpus[..], &["late wake-up"]].concat());
        let times = |flows: fn(&TrackEvent) -> &Vec<u64>| {
            let packets = file.packet.iter();
            let event =
                |packet: &TracePacket| Some((packet.timestamp?, packet.track_event.clone()?));
            let with_flow = packets.filter_map(event).filter(|(_, event)| !flows(event).is_empty());
            with_flow.map(|(time_ns, event)| (time_ns, flows(&event).clone())).collect::<Vec<_>>()
        };
        assert_eq!(times(|event| &event.flow_ids), [(20, vec![1])]);
        assert_eq!(times(|event| &event.terminating_flow_ids), [(60, vec![1])]);
    }

    #[test]
    fn a_send_in_a_flight_record_has_an_arrow_to_the_interrupt_that_serves_it() {
        let columns = [
            ("cpu", Uint),
            ("start_ns", Uint),
            ("length_ns", Uint),
            ("kind", Text),
            ("name", Text),
            ("target_cpu", Uint),
            ("served_ns", Uint),
        ];
        let row = |cpu: u64, start: u64, length: u64, kind: &str, served: Option<u64>| {
            let target = served.map(|_| 1_u64);
            let name = "n".into();
            let (target, served) = (target.into(), served.into());
            vec![cpu.into(), start.into(), length.into(), kind.into(), name, target, served]
        };
        let rows = vec![
            row(1, 40, 20, "vector", None),
            row(1, 70, 10, "vector", None),
            row(0, 30, 0, "send", Some(45)),
            row(2, 35, 0, "send", Some(50)),
            row(0, 75, 0, "send", Some(85)), // No recorded interrupt serves it.
        ];
        let run = run_of(vec![table("flight_record", &columns, rows)]);
        let file = TraceFile::decode(perfetto(&run).unwrap().as_slice()).unwrap();
        let events = file.packet.iter().filter_map(|packet| packet.track_event.clone());
        let (mut starts, mut ends) = (Vec::new(), Vec::new());
        for event in events {
            starts.extend(event.flow_ids);
            ends.extend(event.terminating_flow_ids);
        }
        assert_eq!((starts.len(), &starts), (2, &ends), "{starts:?}");
    }

    #[test]
    fn the_worst_wake_ups_start_at_their_due_times() {
        let columns = [("cpu", Uint), ("rank", Uint), ("late_ns", Uint), ("due_ns", Uint)];
        let wakeups = vec![vec![1.into(), 1.into(), 30.into(), 500.into()]];
        let parts = [
            ("cpu", Uint),
            ("rank", Uint),
            ("start_ns", Uint),
            ("length_ns", Uint),
            ("stage", Text),
        ];
        let part = |start: record::Value, length: u64, stage: &str| {
            vec![1.into(), 1.into(), start, length.into(), stage.into()]
        };
        let rows = vec![
            part(500.into(), 10, "expiry"),
            part(510.into(), 20, "scheduling"),
            part(record::Value::Absent, 7, "return"),
        ];
        let run =
            run_of(vec![table("worst", &columns, wakeups), table("worst_parts", &parts, rows)]);
        let bytes = perfetto(&run).unwrap();
        let found: Vec<_> = read(&bytes).into_values().flatten().collect();
        let times: Vec<_> = found.iter().map(|(_, _, from, to)| (*from, *to)).collect();
        assert_eq!(times, [(500, 530), (500, 510), (510, 530)]);
    }

    #[test]
    fn a_run_of_sums_says_who_has_events() {
        let error = perfetto(&run_of(vec![])).unwrap_err().to_string();
        assert!(error.contains("footprint --trace"), "{error}");
    }

    proptest! {
        #[test]
        fn any_slices_are_a_trace_in_which_every_one_is_found(
            slices in prop::collection::vec((".{0,100}", 0u64..50, 0u64..20), 0..30),
        ) {
            let slices: Vec<Slice> =
                slices.iter().map(|(name, from, length)| slice(name, *from, *length)).collect();
            let mut expected: Vec<(String, u64, u64)> = slices
                .iter()
                .map(|slice| (printable(&slice.name), slice.from_ns, slice.from_ns + slice.length_ns))
                .collect();
            let mut found: Vec<(String, u64, u64)> = read(&encoded(slices))
                .into_values()
                .flatten()
                .map(|(_, name, from, to)| (name, from, to))
                .collect();
            expected.sort();
            found.sort();
            prop_assert!(found.iter().all(|(name, ..)| !name.chars().any(char::is_control)));
            prop_assert_eq!(found, expected);
        }
    }
}
