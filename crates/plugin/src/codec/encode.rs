//! Records to numbers.

use super::{
    ABSENT, AMOUNTS_OF, AT_CLOSE, BESIDE, BY_ANNOTATION, BY_MARKER, CHECK, CONTEXT, CURVE, END,
    HEADER, INSIDE, IRQ_NAME, KERNEL_COUNT, MARKER, MISSES, NOTE, NOTICE, NUMBER, OPEN, REGION,
    SPAN, TASK, TEXT, TOTAL, TRUNCATED, TURN, VALUE, VALUES, words_of,
};
use crate::notes::Value;
use crate::options::{Detail, Roi};
use crate::record::{
    Amounts, Beside, ContextRow, Curve, End, FORMAT_VERSION, Header, IrqName, KernelCount, MAGIC,
    Marker, MissCount, NoteRow, Record, Region, Span, Turn, Values,
};

type Words = (u32, u32, [u64; 7]);

/// Kind, CPU and numbers.
pub(super) fn words(record: &Record) -> Words {
    match record {
        Record::Header(header) => header_words(header),
        Record::Marker(marker) => marker_words(marker),
        Record::Region(region) => region_words(region),
        Record::Context(row) => context_words(row),
        Record::Task(task) => {
            let [low, high] = words_of(&task.comm);
            (TASK, 0, [u64::from(task.pid), low, high, 0, 0, 0, 0])
        }
        Record::Notice(notice, cpu, value) => {
            (NOTICE, *cpu, [*notice as u64, *value, 0, 0, 0, 0, 0])
        }
        Record::Check(check) => (CHECK, 0, [check.counted, check.icount, 0, 0, 0, 0, 0]),
        Record::End(end) => end_words(end),
        Record::Amounts(amounts) => amounts_words(amounts),
        Record::Span(span) => span_words(span),
        Record::Turn(turn) => {
            let Turn { cpu, region, code, foot, at, cycles, tsc } = *turn;
            (TURN, cpu, [u64::from(region), code, foot, at, cycles, tsc, 0])
        }
        Record::KernelCount(count) => kernel_count_words(count),
        Record::IrqName(name) => irq_name_words(name),
        Record::Note(row) => {
            let NoteRow { cpu, region, note, hits, refused } = *row;
            (NOTE, cpu, [u64::from(region), u64::from(note), hits, refused, 0, 0, 0])
        }
        Record::Values(values) => values_words(values),
        Record::Value(value) => value_words(value),
        Record::Beside(beside) => {
            let Beside { region, model, group, counters } = *beside;
            let numbers = [region, model, group as u32, counters].map(u64::from);
            let [region, model, group, counters] = numbers;
            (BESIDE, 0, [region, model, group, counters, 0, 0, 0])
        }
        Record::Curve(curve) => {
            let Curve { region, group, stream, size_bytes, accesses, misses } = *curve;
            let (region, group, stream) = (u64::from(region), group as u64, stream as u64);
            (CURVE, 0, [region, group, stream, size_bytes, accesses, misses, 0])
        }
        Record::Misses(misses) => {
            let MissCount { region, cache, sort, key, count } = *misses;
            (MISSES, 0, [region.into(), cache.into(), sort as u64, key, count, 0, 0])
        }
    }
}

fn bit(set: bool, bit: u64) -> u64 {
    if set { bit } else { 0 }
}

fn header_words(header: &Header) -> Words {
    let [low, high] = words_of(&header.qemu);
    let detail = match header.detail {
        Detail::Fast => 0,
        Detail::Count => 1,
        Detail::Timed => 2,
        Detail::Ooo => 3,
    };
    let roi = match header.roi {
        Roi::Marker => 0,
        Roi::Always => 1,
    };
    let versions = u64::from(header.api) << 32 | u64::from(FORMAT_VERSION);
    let how = roi << 8 | detail;
    let what = u64::from(header.counters) << 32 | u64::from(header.features);
    (HEADER, header.cpus, [MAGIC, versions, how, header.quantum, low, high, what])
}

fn marker_words(marker: &Marker) -> Words {
    let number = u64::from(marker.number) | bit(marker.open, OPEN) << 32;
    let Marker { cpu, argument, interrupts, exceptions, .. } = *marker;
    (MARKER, cpu, [number, argument, interrupts, exceptions, 0, 0, 0])
}

fn region_words(region: &Region) -> Words {
    let words = [
        u64::from(region.region),
        region.unknown_gates,
        region.unmatched_returns,
        region.abandoned,
        region.overflows,
        region.broken,
        region.opened_at,
    ];
    (REGION, region.cpu, words)
}

fn context_words(row: &ContextRow) -> Words {
    (CONTEXT, row.cpu, [u64::from(row.region), row.code, row.entries, row.completed, 0, 0, 0])
}

fn end_words(end: &End) -> Words {
    let flags = bit(end.by_marker, BY_MARKER)
        | bit(end.by_annotation, BY_ANNOTATION)
        | bit(end.truncated, TRUNCATED)
        | bit(end.instructions.is_some(), TOTAL);
    (END, 0, [flags, end.instructions.unwrap_or(0), end.records, 0, 0, 0, 0])
}

fn amounts_words(amounts: &Amounts) -> Words {
    let mut words = [0; 7];
    words[0] = (amounts.of as u64) << 32 | u64::from(amounts.first);
    words[1..].copy_from_slice(&amounts.values);
    (AMOUNTS_OF, amounts.cpu, words)
}

fn span_words(span: &Span) -> Words {
    let words = [
        u64::from(span.region),
        span.code,
        span.began,
        span.own_cycles,
        span.inclusive_cycles,
        span.own_instructions,
        span.inclusive_instructions,
    ];
    (SPAN, span.cpu, words)
}

fn kernel_count_words(count: &KernelCount) -> Words {
    let flags = bit(count.at_close, AT_CLOSE) | bit(count.inside, INSIDE);
    let KernelCount { cpu, region, code, value, .. } = *count;
    (KERNEL_COUNT, cpu, [u64::from(region), flags, code, value, 0, 0, 0])
}

fn values_words(values: &Values) -> Words {
    let Values { cpu, region, note, deed, sort, number } = *values;
    let (region, note, deed) = (u64::from(region), u64::from(note), u64::from(deed));
    (VALUES, cpu, [region, note, deed, sort as u64, number, 0, 0])
}

fn value_words(value: &Value) -> Words {
    let words = match value {
        Value::Absent => [ABSENT, 0, 0, 0, 0, 0, 0],
        Value::Number(number) => [NUMBER, *number, 0, 0, 0, 0, 0],
        Value::Text(text) => {
            let [a, b, c, d] = words_of(text);
            [TEXT, a, b, c, d, 0, 0]
        }
    };
    (VALUE, 0, words)
}

fn irq_name_words(name: &IrqName) -> Words {
    let [a, b, c, d] = words_of(&name.name);
    (IRQ_NAME, 0, [u64::from(name.irq), a, b, c, d, 0, 0])
}
