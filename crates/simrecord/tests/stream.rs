//! The record format: records round trip, and invalid streams are refused.

use proptest::prelude::*;
use simrecord::counters::COUNTERS;
use simrecord::parsed::parse;
use simrecord::reader::{self, ReadError};
use simrecord::record::{
    AccessStream, AnnotationRow, BYTES, CACHES, COUNTERS_PER_RECORD, CPUS_MAX, Check, Completion,
    ContextRow, Counters, CountersOf, Detail, End, ExecutedBlock, FORMAT_VERSION, Group, GroupPath,
    Header, Hotplug, HotplugState, IrqName, KernelCount, Marker, MissCount, MissCurvePoint,
    MissKind, Notice, QueuedRun, Record, RecordError, Region, Roi, Sent, SentKind, ShadowCaches,
    Span, Task, TaskGroup, Transition, UserFunction, Value, Values, ValuesKind, Withheld,
};

const HEADER: Header = Header {
    cpus: 2,
    api: 7,
    detail: Detail::Count,
    roi: Roi::Always,
    vcpu_slice: 1_000,
    qemu: *b"11.1.3\0\0\0\0\0\0\0\0\0\0",
    features: 7,
    counters: 7,
};

/// Records of shadow caches and misses.
fn caches() -> impl Strategy<Value = Record> {
    prop_oneof![
        (any::<(u32, u64, u64)>(), 0..CACHES as u32, 0..MissKind::ALL.len()).prop_map(
            |((region, key, count), cache, kind)| {
                let kind = MissKind::ALL[kind];
                Record::Misses(MissCount { region, cache, kind, key, count })
            }
        ),
        (any::<(u32, u32, u32)>(), 0..Group::ALL.len()).prop_map(
            |((region, model, counters), group)| {
                let group = Group::ALL[group];
                Record::ShadowCaches(ShadowCaches { region, model, group, counters })
            }
        ),
        (any::<(u32, bool)>(), 0..Group::ALL.len(), any::<[u64; 3]>()).prop_map(
            |((region, data), group, [size_bytes, accesses, misses])| {
                let stream = if data { AccessStream::Data } else { AccessStream::Instructions };
                let group = Group::ALL[group];
                Record::MissCurvePoint(MissCurvePoint {
                    region,
                    group,
                    stream,
                    size_bytes,
                    accesses,
                    misses,
                })
            }
        ),
    ]
}

/// Records of senders.
fn senders() -> impl Strategy<Value = Record> {
    let cpu = 0..CPUS_MAX as u32;
    prop_oneof![
        (
            (cpu.clone(), cpu.clone(), 0..SentKind::ALL.len()),
            any::<(u32, [u8; 16])>(),
            (0..1_u64 << 40, 0..1_u32 << 24, prop::option::of(0..u16::MAX)),
            any::<[u64; 3]>()
        )
            .prop_map(|((cpu, target, kind), (region, comm), task, numbers)| {
                let (code, process, system_call) = task;
                let [function, call_site, tsc] = numbers;
                Record::Sent(Sent {
                    cpu,
                    region,
                    kind: SentKind::ALL[kind],
                    target,
                    function,
                    call_site,
                    code,
                    comm,
                    process,
                    system_call,
                    tsc,
                })
            }),
        (cpu, any::<(u32, u32)>(), any::<[u64; 5]>()).prop_map(
            |(cpu, (region, sent), [function, at, delay, cycles, tsc])| {
                let run = QueuedRun { cpu, region, sent, function, at, delay, cycles, tsc };
                Record::QueuedRun(run)
            }
        ),
    ]
}

fn record() -> impl Strategy<Value = Record> {
    let cpu = 0..16_u32;
    prop_oneof![
        (cpu.clone(), any::<(u32, u64, bool)>(), any::<[u64; 3]>()).prop_map(
            |(cpu, (number, argument, open), [interrupts, exceptions, handled_faults])| {
                Record::Marker(Marker {
                    cpu,
                    number,
                    argument,
                    open,
                    interrupts,
                    exceptions,
                    handled_faults,
                })
            }
        ),
        (cpu.clone(), any::<u32>(), any::<[u64; 6]>()).prop_map(|(cpu, region, words)| {
            let [unknown_gates, unmatched_returns, abandoned, overflows, broken, opened_at] = words;
            Record::Region(Region {
                cpu,
                region,
                unknown_gates,
                unmatched_returns,
                abandoned,
                overflows,
                broken,
                opened_at,
            })
        }),
        (cpu.clone(), any::<u32>(), any::<[u64; 3]>()).prop_map(
            |(cpu, region, [code, entries, completed])| {
                Record::Context(ContextRow { cpu, region, code, entries, completed })
            }
        ),
        any::<(u32, [u8; 16])>().prop_map(|(pid, comm)| Record::Task(Task { pid, comm })),
        (cpu.clone(), any::<u64>()).prop_map(|(cpu, value)| Record::Notice(
            Notice::NoIcount,
            cpu,
            value
        )),
        any::<(u64, u64)>().prop_map(|(counted, icount)| Record::Check(Check { counted, icount })),
        caches(),
        senders(),
        (cpu.clone(), 0..COUNTERS as u32, any::<[u64; COUNTERS_PER_RECORD]>()).prop_map(
            |(cpu, first, mut values)| {
                values.iter_mut().skip(COUNTERS - first as usize).for_each(|value| *value = 0);
                Record::Counters(Counters { cpu, of: CountersOf::SelfCounts, first, values })
            }
        ),
        (cpu.clone(), any::<u32>(), any::<[u64; 6]>()).prop_map(|(cpu, region, words)| {
            let [
                code,
                start,
                self_cycles,
                inclusive_cycles,
                self_instructions,
                inclusive_instructions,
            ] = words;
            Record::Span(Span {
                cpu,
                region,
                code,
                start,
                self_cycles,
                inclusive_cycles,
                self_instructions,
                inclusive_instructions,
            })
        }),
        (cpu.clone(), any::<(u32, bool, bool)>(), any::<(u64, u64)>()).prop_map(
            |(cpu, (region, at_close, inside), (code, value))| {
                Record::KernelCount(KernelCount { cpu, region, at_close, code, value, inside })
            }
        ),
        (cpu.clone(), any::<u32>(), any::<(u64, u64)>()).prop_map(
            |(cpu, region, (tsc, length))| {
                Record::Withheld(Withheld { cpu, region, tsc, length })
            }
        ),
        (cpu, any::<(u32, u64)>(), 0..HotplugState::ALL.len()).prop_map(
            |(cpu, (region, at), state)| {
                let state = HotplugState::ALL[state];
                Record::Hotplug(Hotplug { cpu, region, state, at })
            }
        ),
        (0..16_u32, any::<u32>(), any::<[u64; 3]>()).prop_map(|(cpu, region, [group, at, tsc])| {
            Record::TaskGroup(TaskGroup { cpu, region, group, at, tsc })
        }),
        (0..16_u32, any::<(u32, [u8; 16])>(), (0..1_u64 << 40, any::<[u64; 3]>())).prop_map(
            |(cpu, (region, comm), (code, [request, at, group]))| {
                Record::Completion(Completion { cpu, region, request, at, code, comm, group })
            }
        ),
        (any::<(u64, u32)>(), prop::collection::vec(any::<u8>(), 40)).prop_map(
            |((group, part), text)| {
                let text = std::array::from_fn(|byte| text[byte]);
                Record::GroupPath(GroupPath { group, part, text })
            }
        ),
        any::<(u32, [u8; 32])>().prop_map(|(irq, name)| Record::IrqName(IrqName { irq, name })),
        (any::<(u64, u32)>(), prop::collection::vec(any::<u8>(), 40)).prop_map(
            |((number, part), text)| {
                let text = std::array::from_fn(|byte| text[byte]);
                Record::UserFunction(UserFunction { number, part, text })
            }
        ),
        annotations(),
    ]
}

/// Records of annotations, and transitions.
fn annotations() -> impl Strategy<Value = Record> {
    let cpu = 0..16_u32;
    let kind = prop::sample::select(vec![ValuesKind::Count, ValuesKind::Others, ValuesKind::Hit]);
    prop_oneof![
        (cpu.clone(), any::<u32>(), any::<[u64; 5]>()).prop_map(
            |(cpu, region, [code, task, at, cycles, tsc])| {
                Record::Transition(Transition { cpu, region, code, task, at, cycles, tsc })
            }
        ),
        (cpu.clone(), any::<u32>(), any::<[u64; 6]>()).prop_map(|(cpu, region, words)| {
            let [address, tsc, cycles, instructions, l1_misses, l2_misses] = words;
            Record::ExecutedBlock(ExecutedBlock {
                cpu,
                region,
                address,
                tsc,
                cycles,
                instructions,
                l1_misses,
                l2_misses,
            })
        }),
        (cpu.clone(), any::<(u32, u32)>(), any::<(u64, u64)>()).prop_map(
            |(cpu, (region, annotation), (hits, refused))| {
                Record::Annotation(AnnotationRow { cpu, region, annotation, hits, refused })
            }
        ),
        (cpu, any::<(u32, u32, u32)>(), kind, any::<u64>()).prop_map(
            |(cpu, (region, annotation, action), kind, number)| {
                Record::Values(Values { cpu, region, annotation, action, kind, number })
            }
        ),
        Just(Record::Value(Value::Absent)),
        any::<u64>().prop_map(|number| Record::Value(Value::Number(number))),
        any::<[u8; 32]>().prop_map(|text| Record::Value(Value::Text(text))),
    ]
}

fn stream(records: &[Record]) -> Vec<u8> {
    let end = End {
        by_marker: true,
        by_annotation: false,
        truncated: false,
        instructions: Some(5),
        records: records.len() as u64 + 1,
    };
    let all = [Record::Header(HEADER)].into_iter().chain(records.iter().copied());
    all.chain([Record::End(end)]).flat_map(|record| record.encode()).collect()
}

proptest! {
    #[test]
    fn records_round_trip(records in prop::collection::vec(record(), 0..20)) {
        let read = reader::read(stream(&records).as_slice()).unwrap();
        prop_assert_eq!(read.header, HEADER);
        prop_assert_eq!(read.records, records);
    }

    /// Decoding ignores no bit: a decoded record encodes to the same bytes.
    #[test]
    fn any_bytes_are_refused_or_round_trip(
        kind in 0..40_u8,
        bytes in prop::collection::vec(any::<u8>(), BYTES..=BYTES),
        zeros in 8..BYTES,
    ) {
        let mut bytes: [u8; BYTES] = bytes.try_into().unwrap();
        bytes[..8].copy_from_slice(&[kind, 0, 0, 0, 1, 0, 0, 0]);
        bytes[zeros..].fill(0);
        if let Ok(record) = Record::decode(&bytes) {
            prop_assert_eq!(record.encode(), bytes);
        }
    }

    #[test]
    fn a_stream_that_was_cut_is_incomplete(
        records in prop::collection::vec(record(), 0..4),
        cut in any::<prop::sample::Index>(),
    ) {
        let complete = stream(&records);
        let cut = cut.index(complete.len());
        let error = reader::read(&complete[..cut]).unwrap_err();
        prop_assert!(
            matches!(error, ReadError::Incomplete(_) | ReadError::Header(0)),
            "{}", error
        );
    }
}

#[test]
fn a_stream_of_another_program_or_version_is_named() {
    let mut bytes = stream(&[]);
    let other = FORMAT_VERSION + 1;
    bytes[16..20].copy_from_slice(&other.to_le_bytes());
    let error = reader::read(bytes.as_slice()).unwrap_err();
    assert!(
        matches!(error, ReadError::Record(0, RecordError::Version(found)) if found == other),
        "{error}"
    );
    bytes[8] = b'x';
    let error = reader::read(bytes.as_slice()).unwrap_err();
    assert!(matches!(error, ReadError::Record(0, RecordError::Magic)), "{error}");
}

#[test]
fn a_name_is_all_of_its_parts_in_order() {
    let names = ["main [cc1]".to_owned(), "n".repeat(40), "long ".repeat(20), "é".repeat(30)];
    let parts = |number: usize| UserFunction::of_name(number as u64, &names[number]);
    let mut records: Vec<Record> =
        (0..names.len()).flat_map(parts).map(Record::UserFunction).collect();
    // A later snapshot has the names again.
    records.extend(records.clone());
    let parsed = parse(&reader::read(stream(&records).as_slice()).unwrap()).unwrap();
    let found: Vec<&[u8]> = parsed.user_functions.values().map(Vec::as_slice).collect();
    assert_eq!(found, names.each_ref().map(|name| name.as_bytes()));
    let second = UserFunction::of_name(1, &names[2]).nth(1).unwrap();
    let alone = stream(&[Record::UserFunction(second)]);
    assert_eq!(parse(&reader::read(alone.as_slice()).unwrap()), Err(1));
}

#[test]
fn a_second_header_and_records_after_the_end_are_refused() {
    let error = reader::read(stream(&[Record::Header(HEADER)]).as_slice()).unwrap_err();
    assert!(matches!(error, ReadError::Header(1)), "{error}");
    let twice = [stream(&[]), stream(&[])].concat();
    let error = reader::read(twice.as_slice()).unwrap_err();
    assert!(matches!(error, ReadError::End(1)), "{error}");
}
