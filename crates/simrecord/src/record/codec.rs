//! Records to bytes and back.

use super::{
    AccessStream, AnnotationRow, BYTES, CACHES, CPUS_MAX, Check, ContextRow, Counters, CountersOf,
    Detail, End, FORMAT_VERSION, Group, Header, IrqName, KernelCount, LockCounts, MAGIC, Marker,
    MissCount, MissCurvePoint, MissKind, Notice, ProfileSlot, Record, RecordError, Region, Roi,
    SampledPart, ServiceBucket, ServiceMissKind, ServiceMisses, ServiceRow, ServiceTime,
    ServiceTotals, ServiceWait, ShadowCaches, SharedMisses, Span, StructureKind, StructureName,
    SyscallFunction, Task, Transition, Value, Values, ValuesKind,
};
use crate::counters::COUNTERS;

/// The numbers of a record.
type Words = [u64; 7];

impl Record {
    /// The bytes of the record.
    #[must_use]
    pub fn encode(&self) -> [u8; BYTES] {
        let (kind, cpu, words) = self.to_words();
        let mut bytes = [0; BYTES];
        bytes[..4].copy_from_slice(&kind.to_le_bytes());
        bytes[4..8].copy_from_slice(&cpu.to_le_bytes());
        for (to, word) in bytes[8..].chunks_exact_mut(8).zip(words) {
            to.copy_from_slice(&word.to_le_bytes());
        }
        bytes
    }

    /// The record with these bytes.
    ///
    /// # Errors
    /// Which part of them is never written.
    pub fn decode(bytes: &[u8; BYTES]) -> Result<Record, RecordError> {
        let half = |at: usize| u32::from_le_bytes(std::array::from_fn(|byte| bytes[at + byte]));
        let word =
            |at: usize| u64::from_le_bytes(std::array::from_fn(|byte| bytes[8 + 8 * at + byte]));
        let words: Words = std::array::from_fn(word);
        let (kind, cpu) = (half(0), half(4));
        let record = Record::from_words(kind, cpu, &words)?;
        // What is not written must be zero, so that a later version can use it.
        if record.encode() == *bytes { Ok(record) } else { Err(RecordError::Field(kind)) }
    }

    /// Kind, CPU and numbers.
    fn to_words(self) -> (u32, u32, Words) {
        fn of<T: Encoding>(record: &T) -> (u32, u32, Words) {
            let (cpu, words) = record.to_words();
            (T::KIND, cpu, words)
        }
        match &self {
            Record::Header(record) => of(record),
            Record::Marker(record) => of(record),
            Record::Region(record) => of(record),
            Record::Context(record) => of(record),
            Record::Task(record) => of(record),
            Record::Notice(notice, cpu, value) => of(&(*notice, *cpu, *value)),
            Record::Check(record) => of(record),
            Record::End(record) => of(record),
            Record::Counters(record) => of(record),
            Record::Span(record) => of(record),
            Record::Transition(record) => of(record),
            Record::KernelCount(record) => of(record),
            Record::IrqName(record) => of(record),
            Record::Annotation(record) => of(record),
            Record::Values(record) => of(record),
            Record::Value(record) => of(record),
            Record::ShadowCaches(record) => of(record),
            Record::MissCurvePoint(record) => of(record),
            Record::Misses(record) => of(record),
            Record::Service(record) => of(record),
            Record::ServiceBucket(record) => of(record),
            Record::ServiceWait(record) => of(record),
            Record::SyscallFunction(record) => of(record),
            Record::ServiceTotals(record) => of(record),
            Record::LockPlace(record) => of(record),
            Record::ProfileSlot(record) => of(record),
            Record::SampledPart(record) => of(record),
            Record::ServiceMisses(record) => of(record),
            Record::SharedMisses(record) => of(record),
            Record::StructureName(record) => of(record),
        }
    }

    fn from_words(kind: u32, cpu: u32, words: &Words) -> Result<Record, RecordError> {
        fn of<T: Encoding>(cpu: u32, words: &Words) -> Result<T, RecordError> {
            T::from_words(cpu, words).ok_or(RecordError::Field(T::KIND))
        }
        if kind == Header::KIND {
            if words[0] != MAGIC {
                return Err(RecordError::Magic);
            }
            let version = words[1] as u32;
            if version != FORMAT_VERSION {
                return Err(RecordError::Version(version));
            }
        } else if kind != LockCounts::KIND && cpu as usize >= CPUS_MAX {
            return Err(RecordError::Field(kind));
        }
        Ok(match kind {
            Header::KIND => Record::Header(of(cpu, words)?),
            Marker::KIND => Record::Marker(of(cpu, words)?),
            Region::KIND => Record::Region(of(cpu, words)?),
            ContextRow::KIND => Record::Context(of(cpu, words)?),
            Task::KIND => Record::Task(of(cpu, words)?),
            NoticeRecord::KIND => {
                let (notice, cpu, value) = of(cpu, words)?;
                Record::Notice(notice, cpu, value)
            }
            Check::KIND => Record::Check(of(cpu, words)?),
            End::KIND => Record::End(of(cpu, words)?),
            Counters::KIND => Record::Counters(of(cpu, words)?),
            Span::KIND => Record::Span(of(cpu, words)?),
            Transition::KIND => Record::Transition(of(cpu, words)?),
            KernelCount::KIND => Record::KernelCount(of(cpu, words)?),
            IrqName::KIND => Record::IrqName(of(cpu, words)?),
            AnnotationRow::KIND => Record::Annotation(of(cpu, words)?),
            Values::KIND => Record::Values(of(cpu, words)?),
            Value::KIND => Record::Value(of(cpu, words)?),
            ShadowCaches::KIND => Record::ShadowCaches(of(cpu, words)?),
            MissCurvePoint::KIND => Record::MissCurvePoint(of(cpu, words)?),
            MissCount::KIND => Record::Misses(of(cpu, words)?),
            ServiceRow::KIND => Record::Service(of(cpu, words)?),
            ServiceBucket::KIND => Record::ServiceBucket(of(cpu, words)?),
            ServiceWait::KIND => Record::ServiceWait(of(cpu, words)?),
            SyscallFunction::KIND => Record::SyscallFunction(of(cpu, words)?),
            ServiceTotals::KIND => Record::ServiceTotals(of(cpu, words)?),
            LockCounts::KIND => Record::LockPlace(of(cpu, words)?),
            ProfileSlot::KIND => Record::ProfileSlot(of(cpu, words)?),
            SampledPart::KIND => Record::SampledPart(of(cpu, words)?),
            ServiceMisses::KIND => Record::ServiceMisses(of(cpu, words)?),
            SharedMisses::KIND => Record::SharedMisses(of(cpu, words)?),
            StructureName::KIND => Record::StructureName(of(cpu, words)?),
            _ => return Err(RecordError::Kind(kind)),
        })
    }
}

/// How one kind of record is encoded.
///
/// Numbers that are not mentioned are zero. [`Record::decode`] encodes again what was decoded, so
/// `from_words` need not look for bits that nothing uses.
trait Encoding: Sized {
    /// The number of the kind.
    const KIND: u32;

    /// The CPU and the numbers.
    fn to_words(&self) -> (u32, Words);

    /// The record; none if a number is out of range.
    fn from_words(cpu: u32, words: &Words) -> Option<Self>;
}

fn small(word: u64) -> Option<u32> {
    u32::try_from(word).ok()
}

fn bit(set: bool, bit: u64) -> u64 {
    if set { bit } else { 0 }
}

/// Two numbers of 32 bits in one.
fn pair(high: u32, low: u32) -> u64 {
    u64::from(high) << 32 | u64::from(low)
}

/// Text as numbers of 8 bytes.
fn words_of<const WORDS: usize>(text: &[u8]) -> [u64; WORDS] {
    std::array::from_fn(|at| {
        let byte = |index: usize| text.get(8 * at + index).copied().unwrap_or(0);
        u64::from_le_bytes(std::array::from_fn(byte))
    })
}

/// Numbers of 8 bytes as text.
fn text_of<const BYTES: usize>(words: &[u64]) -> [u8; BYTES] {
    std::array::from_fn(|index| {
        words.get(index / 8).map_or(0, |word| word.to_le_bytes()[index % 8])
    })
}

/// Numbers, followed by zeros.
fn padded<const WORDS: usize>(words: [u64; WORDS]) -> Words {
    std::array::from_fn(|at| words.get(at).copied().unwrap_or(0))
}

impl Encoding for Header {
    const KIND: u32 = 1;

    fn to_words(&self) -> (u32, Words) {
        let [low, high] = words_of(&self.qemu);
        let (detail, roi) = (self.detail as u64, self.roi as u64);
        let versions = pair(self.api, FORMAT_VERSION);
        let counted = pair(self.counters, self.features);
        (self.cpus, [MAGIC, versions, roi << 8 | detail, self.vcpu_slice, low, high, counted])
    }

    fn from_words(cpus: u32, words: &Words) -> Option<Header> {
        Some(Header {
            cpus: Some(cpus).filter(|cpus| (1..=CPUS_MAX).contains(&(*cpus as usize)))?,
            api: (words[1] >> 32) as u32,
            detail: Detail::of_number(words[2] & 0xff)?,
            roi: Roi::of_number(words[2] >> 8)?,
            vcpu_slice: words[3],
            qemu: text_of(&words[4..6]),
            features: words[6] as u32,
            counters: (words[6] >> 32) as u32,
        })
    }
}

impl Encoding for Marker {
    const KIND: u32 = 2;

    fn to_words(&self) -> (u32, Words) {
        let Marker { cpu, number, argument, open, interrupts, exceptions, handled_faults } = *self;
        let number = pair(u32::from(open), number);
        (cpu, padded([number, argument, interrupts, exceptions, handled_faults]))
    }

    fn from_words(cpu: u32, words: &Words) -> Option<Marker> {
        let [number, argument, interrupts, exceptions, handled_faults, ..] = *words;
        let (open, number) = (number >> 32 & 1 != 0, number as u32);
        Some(Marker { cpu, number, argument, open, interrupts, exceptions, handled_faults })
    }
}

impl Encoding for Region {
    const KIND: u32 = 3;

    fn to_words(&self) -> (u32, Words) {
        let words = [
            u64::from(self.region),
            self.unknown_gates,
            self.unmatched_returns,
            self.abandoned,
            self.overflows,
            self.broken,
            self.opened_at,
        ];
        (self.cpu, words)
    }

    fn from_words(cpu: u32, words: &Words) -> Option<Region> {
        let [region, unknown_gates, unmatched_returns, abandoned, overflows, broken, opened_at] =
            *words;
        Some(Region {
            cpu,
            region: small(region)?,
            unknown_gates,
            unmatched_returns,
            abandoned,
            overflows,
            broken,
            opened_at,
        })
    }
}

impl Encoding for ContextRow {
    const KIND: u32 = 4;

    fn to_words(&self) -> (u32, Words) {
        let ContextRow { cpu, region, code, entries, completed } = *self;
        (cpu, padded([u64::from(region), code, entries, completed]))
    }

    fn from_words(cpu: u32, words: &Words) -> Option<ContextRow> {
        let [region, code, entries, completed, ..] = *words;
        Some(ContextRow { cpu, region: small(region)?, code, entries, completed })
    }
}

impl Encoding for Task {
    const KIND: u32 = 5;

    fn to_words(&self) -> (u32, Words) {
        let [low, high] = words_of(&self.comm);
        (0, padded([u64::from(self.pid), low, high]))
    }

    fn from_words(_: u32, words: &Words) -> Option<Task> {
        Some(Task { pid: small(words[0])?, comm: text_of(&words[1..]) })
    }
}

type NoticeRecord = (Notice, u32, u64);

impl Encoding for NoticeRecord {
    const KIND: u32 = 6;

    fn to_words(&self) -> (u32, Words) {
        let (notice, cpu, value) = *self;
        (cpu, padded([notice as u64, value]))
    }

    fn from_words(cpu: u32, words: &Words) -> Option<NoticeRecord> {
        let notice = Notice::of_number(words[0])?;
        Some((notice, cpu, words[1]))
    }
}

impl Encoding for Check {
    const KIND: u32 = 7;

    fn to_words(&self) -> (u32, Words) {
        (0, padded([self.counted, self.icount]))
    }

    fn from_words(_: u32, words: &Words) -> Option<Check> {
        Some(Check { counted: words[0], icount: words[1] })
    }
}

impl End {
    const BY_MARKER: u64 = 1;
    const TRUNCATED: u64 = 2;
    const HAS_INSTRUCTIONS: u64 = 4;
    const BY_ANNOTATION: u64 = 8;
}

impl Encoding for End {
    const KIND: u32 = 8;

    fn to_words(&self) -> (u32, Words) {
        let flags = bit(self.by_marker, End::BY_MARKER)
            | bit(self.by_annotation, End::BY_ANNOTATION)
            | bit(self.truncated, End::TRUNCATED)
            | bit(self.instructions.is_some(), End::HAS_INSTRUCTIONS);
        (0, padded([flags, self.instructions.unwrap_or(0), self.records]))
    }

    fn from_words(_: u32, words: &Words) -> Option<End> {
        let is_set = |flag: u64| words[0] & flag != 0;
        Some(End {
            by_marker: is_set(End::BY_MARKER),
            by_annotation: is_set(End::BY_ANNOTATION),
            truncated: is_set(End::TRUNCATED),
            instructions: is_set(End::HAS_INSTRUCTIONS).then_some(words[1]),
            records: words[2],
        })
    }
}

impl Encoding for Counters {
    const KIND: u32 = 9;

    fn to_words(&self) -> (u32, Words) {
        let mut words = [0; 7];
        words[0] = pair(self.of as u32, self.first);
        words[1..].copy_from_slice(&self.values);
        (self.cpu, words)
    }

    fn from_words(cpu: u32, words: &Words) -> Option<Counters> {
        let of = CountersOf::of_number(words[0] >> 32)?;
        let first = words[0] as u32;
        let [_, values @ ..] = *words;
        let beyond = COUNTERS.checked_sub(first as usize)?.min(values.len());
        let is_padded = values[beyond..].iter().all(|value| *value == 0);
        is_padded.then_some(Counters { cpu, of, first, values })
    }
}

impl Encoding for Span {
    const KIND: u32 = 10;

    fn to_words(&self) -> (u32, Words) {
        let words = [
            u64::from(self.region),
            self.code,
            self.start,
            self.self_cycles,
            self.inclusive_cycles,
            self.self_instructions,
            self.inclusive_instructions,
        ];
        (self.cpu, words)
    }

    fn from_words(cpu: u32, words: &Words) -> Option<Span> {
        Some(Span {
            cpu,
            region: small(words[0])?,
            code: words[1],
            start: words[2],
            self_cycles: words[3],
            inclusive_cycles: words[4],
            self_instructions: words[5],
            inclusive_instructions: words[6],
        })
    }
}

impl KernelCount {
    const AT_CLOSE: u64 = 1;
    const INSIDE: u64 = 2;
}

impl Encoding for KernelCount {
    const KIND: u32 = 11;

    fn to_words(&self) -> (u32, Words) {
        let flags =
            bit(self.at_close, KernelCount::AT_CLOSE) | bit(self.inside, KernelCount::INSIDE);
        (self.cpu, padded([u64::from(self.region), flags, self.code, self.value]))
    }

    fn from_words(cpu: u32, words: &Words) -> Option<KernelCount> {
        Some(KernelCount {
            cpu,
            region: small(words[0])?,
            at_close: words[1] & KernelCount::AT_CLOSE != 0,
            inside: words[1] & KernelCount::INSIDE != 0,
            code: words[2],
            value: words[3],
        })
    }
}

impl Encoding for IrqName {
    const KIND: u32 = 12;

    fn to_words(&self) -> (u32, Words) {
        let [a, b, c, d] = words_of(&self.name);
        (0, padded([u64::from(self.irq), a, b, c, d]))
    }

    fn from_words(_: u32, words: &Words) -> Option<IrqName> {
        Some(IrqName { irq: small(words[0])?, name: text_of(&words[1..]) })
    }
}

impl Encoding for AnnotationRow {
    const KIND: u32 = 13;

    fn to_words(&self) -> (u32, Words) {
        let AnnotationRow { cpu, region, annotation, hits, refused } = *self;
        (cpu, padded([u64::from(region), u64::from(annotation), hits, refused]))
    }

    fn from_words(cpu: u32, words: &Words) -> Option<AnnotationRow> {
        let [region, annotation, hits, refused, ..] = *words;
        let (region, annotation) = (small(region)?, small(annotation)?);
        Some(AnnotationRow { cpu, region, annotation, hits, refused })
    }
}

impl Encoding for Values {
    const KIND: u32 = 14;

    fn to_words(&self) -> (u32, Words) {
        let Values { cpu, region, annotation, action, kind, number } = *self;
        let [region, annotation, action] = [region, annotation, action].map(u64::from);
        (cpu, padded([region, annotation, action, kind as u64, number]))
    }

    fn from_words(cpu: u32, words: &Words) -> Option<Values> {
        Some(Values {
            cpu,
            region: small(words[0])?,
            annotation: small(words[1])?,
            action: small(words[2])?,
            kind: ValuesKind::of_number(words[3])?,
            number: words[4],
        })
    }
}

impl Value {
    const ABSENT: u64 = 0;
    const NUMBER: u64 = 1;
    const TEXT: u64 = 2;
}

impl Encoding for Value {
    const KIND: u32 = 15;

    fn to_words(&self) -> (u32, Words) {
        let words = match self {
            Value::Absent => padded([Value::ABSENT]),
            Value::Number(number) => padded([Value::NUMBER, *number]),
            Value::Text(text) => {
                let [a, b, c, d] = words_of(text);
                padded([Value::TEXT, a, b, c, d])
            }
        };
        (0, words)
    }

    fn from_words(_: u32, words: &Words) -> Option<Value> {
        Some(match words[0] {
            Value::ABSENT => Value::Absent,
            Value::NUMBER => Value::Number(words[1]),
            Value::TEXT => Value::Text(text_of(&words[1..])),
            _ => return None,
        })
    }
}

impl Encoding for ShadowCaches {
    const KIND: u32 = 16;

    fn to_words(&self) -> (u32, Words) {
        let ShadowCaches { region, model, group, counters } = *self;
        (0, padded([region, model, group as u32, counters].map(u64::from)))
    }

    fn from_words(_: u32, words: &Words) -> Option<ShadowCaches> {
        Some(ShadowCaches {
            region: small(words[0])?,
            model: small(words[1])?,
            group: Group::of_number(words[2])?,
            counters: small(words[3])?,
        })
    }
}

impl Encoding for MissCurvePoint {
    const KIND: u32 = 17;

    fn to_words(&self) -> (u32, Words) {
        let MissCurvePoint { region, group, stream, size_bytes, accesses, misses } = *self;

        let (region, group, stream) = (u64::from(region), group as u64, stream as u64);
        (0, padded([region, group, stream, size_bytes, accesses, misses]))
    }

    fn from_words(_: u32, words: &Words) -> Option<MissCurvePoint> {
        Some(MissCurvePoint {
            region: small(words[0])?,
            group: Group::of_number(words[1])?,
            stream: AccessStream::of_number(words[2])?,
            size_bytes: words[3],
            accesses: words[4],
            misses: words[5],
        })
    }
}

impl Encoding for Transition {
    const KIND: u32 = 18;

    fn to_words(&self) -> (u32, Words) {
        let Transition { cpu, region, code, task, at, cycles, tsc } = *self;
        (cpu, padded([u64::from(region), code, task, at, cycles, tsc]))
    }

    fn from_words(cpu: u32, words: &Words) -> Option<Transition> {
        let [region, code, task, at, cycles, tsc, _] = *words;
        Some(Transition { cpu, region: small(region)?, code, task, at, cycles, tsc })
    }
}

impl Encoding for MissCount {
    const KIND: u32 = 19;

    fn to_words(&self) -> (u32, Words) {
        let MissCount { region, cache, kind, key, count } = *self;
        (0, padded([region.into(), cache.into(), kind as u64, key, count]))
    }

    fn from_words(_: u32, words: &Words) -> Option<MissCount> {
        Some(MissCount {
            region: small(words[0])?,
            cache: small(words[1]).filter(|cache| (*cache as usize) < CACHES)?,
            kind: MissKind::of_number(words[2])?,
            key: words[3],
            count: words[4],
        })
    }
}

impl Encoding for ServiceRow {
    const KIND: u32 = 20;

    fn to_words(&self) -> (u32, Words) {
        let ServiceRow { region, code, requests, completed, computation, blocked, descheduled } =
            *self;
        (0, [region.into(), code, requests, completed, computation, blocked, descheduled])
    }

    fn from_words(_: u32, words: &Words) -> Option<ServiceRow> {
        let [region, code, requests, completed, computation, blocked, descheduled] = *words;
        let region = small(region)?;
        Some(ServiceRow { region, code, requests, completed, computation, blocked, descheduled })
    }
}

impl Encoding for ServiceBucket {
    const KIND: u32 = 21;

    fn to_words(&self) -> (u32, Words) {
        let ServiceBucket { region, code, time, lowest, count } = *self;
        (0, padded([region.into(), code, time as u64, lowest, count]))
    }

    fn from_words(_: u32, words: &Words) -> Option<ServiceBucket> {
        Some(ServiceBucket {
            region: small(words[0])?,
            code: words[1],
            time: ServiceTime::of_number(words[2])?,
            lowest: words[3],
            count: words[4],
        })
    }
}

impl Encoding for ServiceWait {
    const KIND: u32 = 22;

    fn to_words(&self) -> (u32, Words) {
        let ServiceWait { region, code, wait, count, blocked } = *self;
        (0, padded([region.into(), code, wait.into(), count, blocked]))
    }

    fn from_words(_: u32, words: &Words) -> Option<ServiceWait> {
        let (region, wait) = (small(words[0])?, small(words[2])?);
        Some(ServiceWait { region, code: words[1], wait, count: words[3], blocked: words[4] })
    }
}

impl Encoding for SyscallFunction {
    const KIND: u32 = 23;

    fn to_words(&self) -> (u32, Words) {
        (0, padded([self.number.into(), self.address]))
    }

    fn from_words(_: u32, words: &Words) -> Option<SyscallFunction> {
        Some(SyscallFunction { number: small(words[0])?, address: words[1] })
    }
}

impl Encoding for ProfileSlot {
    const KIND: u32 = 32;

    fn to_words(&self) -> (u32, Words) {
        let ProfileSlot { region, mode, start, length, time, .. } = *self;
        let place = u64::from(region) << 32 | u64::from(mode);
        let stalls = [self.fetch_stall, self.data_stall, self.pipeline_stall];
        (0, [place, start, length, time, stalls[0], stalls[1], stalls[2]])
    }

    fn from_words(_: u32, words: &Words) -> Option<ProfileSlot> {
        let [place, start, length, time, fetch_stall, data_stall, pipeline_stall] = *words;
        let (region, mode) = ((place >> 32) as u32, place as u32);
        let is_mode = (mode as usize) < attribution::profile::Mode::ALL.len();
        let slot = ProfileSlot {
            region,
            mode,
            start,
            length,
            time,
            fetch_stall,
            data_stall,
            pipeline_stall,
        };
        is_mode.then_some(slot)
    }
}

impl Encoding for ServiceTotals {
    const KIND: u32 = 24;

    fn to_words(&self) -> (u32, Words) {
        (0, padded([self.region.into(), self.handled_faults, self.broken]))
    }

    fn from_words(_: u32, words: &Words) -> Option<ServiceTotals> {
        let [region, handled_faults, broken, ..] = *words;
        Some(ServiceTotals { region: small(region)?, handled_faults, broken })
    }
}

impl Encoding for SampledPart {
    const KIND: u32 = 30;

    fn to_words(&self) -> (u32, Words) {
        let SampledPart { cpu, region, code, unit } = *self;
        (cpu, padded([region.into(), code, unit]))
    }

    fn from_words(cpu: u32, words: &Words) -> Option<SampledPart> {
        Some(SampledPart { cpu, region: small(words[0])?, code: words[1], unit: words[2] })
    }
}

impl Encoding for LockCounts {
    const KIND: u32 = 25;

    fn to_words(&self) -> (u32, Words) {
        let LockCounts { region, return_to, place, acquires, contended, waited, held, .. } = *self;
        let offset = self.offset.min(0xffff);
        // The service's code: its kind has room next to that of the lock, its number where others have the CPU.
        let (context, number) = ((self.code >> 32) as u32 & 0xf, self.code as u32);
        let kinds = context << 4 | self.kind & 0xf;
        let head = pair(offset << 16 | (self.structure as u32) << 8 | kinds, region);
        (number, [head, return_to, place, acquires, contended, waited, held])
    }

    fn from_words(number: u32, words: &Words) -> Option<LockCounts> {
        let [head, return_to, place, acquires, contended, waited, held] = *words;
        let (kind, region) = ((head >> 32 & 0xf) as u32, head as u32);
        attribution::LockKind::of_number(kind)?;
        let code = (head >> 36 & 0xf) << 32 | u64::from(number);
        attribution::KernelContext::from_code(code)?;
        Some(LockCounts {
            region,
            code,
            kind,
            return_to,
            structure: StructureKind::of_number(head >> 40 & 0xff)?,
            place,
            offset: (head >> 48) as u32,
            acquires,
            contended,
            waited,
            held,
        })
    }
}

impl Encoding for ServiceMisses {
    const KIND: u32 = 26;

    fn to_words(&self) -> (u32, Words) {
        let ServiceMisses { region, cache, what, class, code, structure, key, count, cycles } =
            *self;
        let kinds = pair(structure as u32, (what as u32) << 16 | class & 0xffff);
        (0, [pair(cache, region), kinds, code, key, count, cycles, 0])
    }

    fn from_words(_: u32, words: &Words) -> Option<ServiceMisses> {
        let [head, kinds, code, key, count, cycles, _] = *words;
        Some(ServiceMisses {
            region: head as u32,
            cache: Some((head >> 32) as u32).filter(|cache| (*cache as usize) < CACHES)?,
            what: ServiceMissKind::of_number(kinds >> 16 & 0xffff)?,
            class: (kinds & 0xffff) as u32,
            code,
            structure: StructureKind::of_number(kinds >> 32)?,
            key,
            count,
            cycles,
        })
    }
}

impl Encoding for SharedMisses {
    const KIND: u32 = 27;

    fn to_words(&self) -> (u32, Words) {
        let SharedMisses { region, structure, place, offset, address, code, pc, cpus, .. } = *self;
        let head = pair((structure as u32) << 16 | cpus & 0xffff, region);
        let counts = pair(self.true_sharing, self.false_sharing);
        (0, [head, place, address, code, pc, counts, offset.into()])
    }

    fn from_words(_: u32, words: &Words) -> Option<SharedMisses> {
        let [head, place, address, code, pc, counts, offset] = *words;
        Some(SharedMisses {
            region: head as u32,
            structure: StructureKind::of_number(head >> 48)?,
            place,
            offset: small(offset)?,
            address,
            code,
            pc,
            cpus: (head >> 32 & 0xffff) as u32,
            true_sharing: (counts >> 32) as u32,
            false_sharing: counts as u32,
        })
    }
}

impl Encoding for StructureName {
    const KIND: u32 = 28;

    fn to_words(&self) -> (u32, Words) {
        let [a, b, c, d] = words_of(&self.name);
        (0, [self.kind as u64, self.place, a, b, c, d, self.shared_by.into()])
    }

    fn from_words(_: u32, words: &Words) -> Option<StructureName> {
        let (kind, shared_by) = (StructureKind::of_number(words[0])?, small(words[6])?);
        Some(StructureName { kind, place: words[1], shared_by, name: text_of(&words[2..6]) })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::record::ELSEWHERE;

    #[test]
    fn misses_of_services_and_locks_round_trip() {
        let misses = ServiceMisses {
            region: 1,
            cache: 3,
            what: ServiceMissKind::Data,
            class: 6,
            code: 5 << 32 | 511,
            structure: StructureKind::OtherUser,
            key: ELSEWHERE,
            count: u64::MAX,
            cycles: 7,
        };
        let shared = SharedMisses {
            region: u32::MAX,
            structure: StructureKind::Slab,
            place: 1 << 63,
            offset: u32::MAX,
            address: 8,
            code: 2 << 32,
            pc: 16,
            cpus: 0xffff,
            true_sharing: 1,
            false_sharing: u32::MAX,
        };
        let name = StructureName {
            kind: StructureKind::File,
            place: 9,
            shared_by: u32::MAX,
            name: *b"a name of thirty-two bytes, all.",
        };
        let lock = LockCounts {
            region: 2,
            code: attribution::KernelContext::Syscall(attribution::SYSCALL_32 | 3).code(),
            kind: 5,
            return_to: 1,
            structure: StructureKind::PerCpu,
            place: 64,
            offset: 0xffff,
            acquires: 3,
            contended: 2,
            waited: 1,
            held: 0,
        };
        for record in [
            Record::ServiceMisses(misses),
            Record::SharedMisses(shared),
            Record::StructureName(name),
            Record::LockPlace(lock),
        ] {
            assert_eq!(Record::decode(&record.encode()), Ok(record));
        }
        let unknown = Record::ServiceMisses(ServiceMisses { cache: 4, ..misses });
        assert_eq!(Record::decode(&unknown.encode()), Err(RecordError::Field(26)));
    }
}
