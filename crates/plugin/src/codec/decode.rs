//! Numbers to records. Encoding the result again tells whether anything was left over.

use super::{
    ABSENT, AMOUNTS_OF, AT_CLOSE, BESIDE, BY_ANNOTATION, BY_MARKER, CHECK, CONTEXT, CURVE, END,
    HEADER, INSIDE, IRQ_NAME, KERNEL_COUNT, MARKER, MISSES, NOTE, NOTICE, NUMBER, OPEN, REGION,
    SPAN, TASK, TEXT, TOTAL, TRUNCATED, TURN, VALUE, VALUES, text_of,
};
use crate::counters::COUNTERS;
use crate::misses::CACHES;
use crate::notes::Value;
use crate::options::{CPUS_MAX, Detail, Roi};
use crate::record::{
    Amounts, AmountsOf, Beside, Check, ContextRow, Curve, End, FORMAT_VERSION, Group, Header,
    IrqName, KernelCount, MAGIC, Marker, MissCount, MissSort, NoteRow, Notice, Record, RecordError,
    Region, Span, Stream, Task, Turn, Values, ValuesSort,
};

pub(super) fn record(kind: u32, cpu: u32, words: &[u64; 7]) -> Result<Record, RecordError> {
    let wrong = RecordError::Field(kind);
    let small = |word: u64| u32::try_from(word).map_err(|_| wrong);
    if kind != HEADER && cpu as usize >= CPUS_MAX {
        return Err(wrong);
    }
    Ok(match kind {
        HEADER => Record::Header(header(cpu, words)?),
        MARKER => Record::Marker(Marker {
            cpu,
            number: words[0] as u32,
            open: words[0] >> 32 & OPEN != 0,
            argument: words[1],
            interrupts: words[2],
            exceptions: words[3],
        }),
        REGION => Record::Region(region(cpu, small(words[0])?, words)),
        CONTEXT => Record::Context(ContextRow {
            cpu,
            region: small(words[0])?,
            code: words[1],
            entries: words[2],
            completed: words[3],
        }),
        TASK => Record::Task(Task { pid: small(words[0])?, comm: text_of(&words[1..]) }),
        NOTICE => Record::Notice(Notice::of(words[0]).ok_or(wrong)?, cpu, words[1]),
        CHECK => Record::Check(Check { counted: words[0], icount: words[1] }),
        END => Record::End(End {
            by_marker: words[0] & BY_MARKER != 0,
            by_annotation: words[0] & BY_ANNOTATION != 0,
            truncated: words[0] & TRUNCATED != 0,
            instructions: (words[0] & TOTAL != 0).then_some(words[1]),
            records: words[2],
        }),
        AMOUNTS_OF => Record::Amounts(amounts(cpu, words).ok_or(wrong)?),
        SPAN => Record::Span(span(cpu, small(words[0])?, words)),
        TURN => Record::Turn(Turn {
            cpu,
            region: small(words[0])?,
            code: words[1],
            foot: words[2],
            at: words[3],
            cycles: words[4],
            tsc: words[5],
        }),
        KERNEL_COUNT => Record::KernelCount(KernelCount {
            cpu,
            region: small(words[0])?,
            at_close: words[1] & AT_CLOSE != 0,
            inside: words[1] & INSIDE != 0,
            code: words[2],
            value: words[3],
        }),
        IRQ_NAME => Record::IrqName(IrqName { irq: small(words[0])?, name: text_of(&words[1..]) }),
        NOTE => Record::Note(NoteRow {
            cpu,
            region: small(words[0])?,
            note: small(words[1])?,
            hits: words[2],
            refused: words[3],
        }),
        VALUES => Record::Values(values(cpu, words).ok_or(wrong)?),
        VALUE => Record::Value(value(words).ok_or(wrong)?),
        BESIDE => Record::Beside(beside(words).ok_or(wrong)?),
        CURVE => Record::Curve(curve(words).ok_or(wrong)?),
        MISSES => Record::Misses(misses(words).ok_or(wrong)?),
        _ => return Err(RecordError::Kind(kind)),
    })
}

fn header(cpus: u32, words: &[u64; 7]) -> Result<Header, RecordError> {
    let wrong = RecordError::Field(HEADER);
    if words[0] != MAGIC {
        return Err(RecordError::Magic);
    }
    let version = words[1] as u32;
    if version != FORMAT_VERSION {
        return Err(RecordError::Version(version));
    }
    if cpus == 0 || cpus as usize > CPUS_MAX {
        return Err(wrong);
    }
    Ok(Header {
        cpus,
        api: (words[1] >> 32) as u32,
        detail: match words[2] & 0xff {
            0 => Detail::Fast,
            1 => Detail::Count,
            2 => Detail::Timed,
            3 => Detail::Ooo,
            _ => return Err(wrong),
        },
        roi: match words[2] >> 8 {
            0 => Roi::Marker,
            1 => Roi::Always,
            _ => return Err(wrong),
        },
        quantum: words[3],
        qemu: text_of(&words[4..6]),
        features: words[6] as u32,
        counters: (words[6] >> 32) as u32,
    })
}

fn region(cpu: u32, region: u32, words: &[u64; 7]) -> Region {
    Region {
        cpu,
        region,
        unknown_gates: words[1],
        unmatched_returns: words[2],
        abandoned: words[3],
        overflows: words[4],
        broken: words[5],
        opened_at: words[6],
    }
}

fn amounts(cpu: u32, words: &[u64; 7]) -> Option<Amounts> {
    let of = match words[0] >> 32 {
        0 => AmountsOf::Marker,
        1 => AmountsOf::Region,
        2 => AmountsOf::Own,
        3 => AmountsOf::Inclusive,
        4 => AmountsOf::Beside,
        _ => return None,
    };
    let first = words[0] as u32;
    let mut values = [0; crate::record::AMOUNTS];
    values.copy_from_slice(&words[1..]);
    let beyond = COUNTERS.checked_sub(first as usize)?.min(values.len());
    values[beyond..].iter().all(|value| *value == 0).then_some(Amounts { cpu, of, first, values })
}

fn group(word: u64) -> Option<Group> {
    Group::ALL.into_iter().find(|group| *group as u64 == word)
}

fn beside(words: &[u64; 7]) -> Option<Beside> {
    Some(Beside {
        region: u32::try_from(words[0]).ok()?,
        model: u32::try_from(words[1]).ok()?,
        group: group(words[2])?,
        counters: u32::try_from(words[3]).ok()?,
    })
}

fn curve(words: &[u64; 7]) -> Option<Curve> {
    let streams = [Stream::Instructions, Stream::Data];
    Some(Curve {
        region: u32::try_from(words[0]).ok()?,
        group: group(words[1])?,
        stream: streams.into_iter().find(|stream| *stream as u64 == words[2])?,
        size_bytes: words[3],
        accesses: words[4],
        misses: words[5],
    })
}

fn misses(words: &[u64; 7]) -> Option<MissCount> {
    Some(MissCount {
        region: u32::try_from(words[0]).ok()?,
        cache: u32::try_from(words[1]).ok().filter(|cache| *cache < CACHES.len() as u32)?,
        sort: MissSort::ALL.into_iter().find(|sort| *sort as u64 == words[2])?,
        key: words[3],
        count: words[4],
    })
}

fn values(cpu: u32, words: &[u64; 7]) -> Option<Values> {
    Some(Values {
        cpu,
        region: u32::try_from(words[0]).ok()?,
        note: u32::try_from(words[1]).ok()?,
        deed: u32::try_from(words[2]).ok()?,
        sort: match words[3] {
            0 => ValuesSort::Count,
            1 => ValuesSort::Others,
            2 => ValuesSort::Hit,
            _ => return None,
        },
        number: words[4],
    })
}

fn value(words: &[u64; 7]) -> Option<Value> {
    Some(match words[0] {
        ABSENT => Value::Absent,
        NUMBER => Value::Number(words[1]),
        TEXT => Value::Text(text_of(&words[1..])),
        _ => return None,
    })
}

fn span(cpu: u32, region: u32, words: &[u64; 7]) -> Span {
    Span {
        cpu,
        region,
        code: words[1],
        began: words[2],
        own_cycles: words[3],
        inclusive_cycles: words[4],
        own_instructions: words[5],
        inclusive_instructions: words[6],
    }
}
