//! The encodings of records that pack several fields into a word. Each `to_words` and its `from_words` must stay
//! inverse to each other, and the bits must not change without a new format version.

use super::{Encoding, Field, Words};
use crate::counters::COUNTERS;
use crate::record::{
    CACHES, CPUS_MAX, Counters, CountersOf, Detail, End, FORMAT_VERSION, Header, KernelCount,
    LockCounts, MAGIC, Marker, Notice, ProfileSlot, Roi, Sent, SentKind, ServiceMissKind,
    ServiceMisses, SharedMisses, StructureKind, TEXT_BYTES_MAX, Value,
};

/// Packs two numbers of 32 bits.
fn pair(high: u32, low: u32) -> u64 {
    u64::from(high) << 32 | u64::from(low)
}

/// `bit` if `is_set`, otherwise 0.
fn bit(is_set: bool, bit: u64) -> u64 {
    if is_set { bit } else { 0 }
}

/// `words`, followed by zeros.
fn padded<const WORDS: usize>(words: [u64; WORDS]) -> Words {
    std::array::from_fn(|position| words.get(position).copied().unwrap_or(0))
}

/// A warning, its CPU, and its value.
pub(super) struct NoticeRecord(pub Notice, pub u32, pub u64);

impl Encoding for NoticeRecord {
    const KIND: u32 = 6;

    fn to_words(&self) -> (u32, Words) {
        let NoticeRecord(notice, cpu, value) = *self;
        (cpu, padded([notice as u64, value]))
    }

    fn from_words(cpu: u32, words: &Words) -> Option<NoticeRecord> {
        let notice = Notice::from_number(words[0])?;
        Some(NoticeRecord(notice, cpu, words[1]))
    }
}

impl Encoding for Header {
    const KIND: u32 = 1;

    fn to_words(&self) -> (u32, Words) {
        let levels = (self.roi as u64) << 8 | self.detail as u64;
        let versions = pair(self.api, FORMAT_VERSION);
        let counted = pair(self.counters, self.features);
        let mut words = [MAGIC, versions, levels, self.vcpu_slice, 0, 0, counted];
        self.qemu.put(&mut words[4..6]);
        (self.cpus, words)
    }

    fn from_words(cpus: u32, words: &Words) -> Option<Header> {
        Some(Header {
            cpus: (1..=CPUS_MAX).contains(&(cpus as usize)).then_some(cpus)?,
            api: (words[1] >> 32) as u32,
            detail: Detail::from_number(words[2] & 0xff)?,
            roi: Roi::from_number(words[2] >> 8)?,
            vcpu_slice: words[3],
            qemu: <[u8; 16]>::get(&words[4..6])?,
            features: words[6] as u32,
            counters: (words[6] >> 32) as u32,
        })
    }
}

/// The bits of a sender's word from this one on have its process. The lower ones have the code of its
/// context, whose kind has 8 bits.
const PROCESS_SHIFT: u32 = 40;

impl Encoding for Sent {
    const KIND: u32 = 37;

    fn to_words(&self) -> (u32, Words) {
        let Sent { cpu, region, kind, target, function, call_site, code, comm, tsc, .. } = *self;
        // 0: no system call.
        let call = self.system_call.map_or(0, |call| u32::from(call) + 1);
        let place = pair(region, call << 16 | target << 8 | kind as u32);
        let sender = u64::from(self.process) << PROCESS_SHIFT | code;
        let mut words = [place, function, call_site, sender, 0, 0, tsc];
        comm.put(&mut words[4..6]);
        (cpu, words)
    }

    fn from_words(cpu: u32, words: &Words) -> Option<Sent> {
        let [place, function, call_site, sender, _, _, tsc] = *words;
        let target = place as u32 >> 8 & 0xff;
        let call = (place as u32 >> 16).checked_sub(1);
        Some(Sent {
            cpu,
            region: (place >> 32) as u32,
            kind: SentKind::from_number(place & 0xff)?,
            target: ((target as usize) < CPUS_MAX).then_some(target)?,
            function,
            call_site,
            code: sender & ((1 << PROCESS_SHIFT) - 1),
            comm: <[u8; 16]>::get(&words[4..6])?,
            process: (sender >> PROCESS_SHIFT) as u32,
            system_call: call.and_then(|call| u16::try_from(call).ok()),
            tsc,
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
        let owner = CountersOf::from_number(words[0] >> 32)?;
        let first = words[0] as u32;
        let [_, values @ ..] = *words;
        let beyond = COUNTERS.checked_sub(first as usize)?.min(values.len());
        let is_padded = values[beyond..].iter().all(|value| *value == 0);
        is_padded.then_some(Counters { cpu, of: owner, first, values })
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
            region: u32::get(&words[0..1])?,
            at_close: words[1] & KernelCount::AT_CLOSE != 0,
            inside: words[1] & KernelCount::INSIDE != 0,
            code: words[2],
            value: words[3],
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
                let mut words = padded([Value::TEXT]);
                text.put(&mut words[1..]);
                words
            }
        };
        (0, words)
    }

    fn from_words(_: u32, words: &Words) -> Option<Value> {
        Some(match words[0] {
            Value::ABSENT => Value::Absent,
            Value::NUMBER => Value::Number(words[1]),
            Value::TEXT => Value::Text(<[u8; TEXT_BYTES_MAX]>::get(&words[1..])?),
            _ => return None,
        })
    }
}

impl Encoding for LockCounts {
    const KIND: u32 = 25;

    fn to_words(&self) -> (u32, Words) {
        let LockCounts { region, return_to, place, acquires, waited, held, .. } = *self;
        let [contended, releases] =
            [self.contended, self.releases].map(|count| count.min(u32::MAX.into()) as u32);
        let offset = self.offset.min(0xffff);
        // The kind of the service's context shares a byte with the kind of the lock: four bits for each, which all
        // kinds fit. The number of the context is where other records have their CPU.
        let (context, number) = ((self.code >> 32) as u32 & 0xf, self.code as u32);
        let kinds = context << 4 | self.kind & 0xf;
        let head = pair(offset << 16 | (self.structure as u32) << 8 | kinds, region);
        (number, [head, return_to, place, acquires, pair(releases, contended), waited, held])
    }

    fn from_words(number: u32, words: &Words) -> Option<LockCounts> {
        let [head, return_to, place, acquires, counts, waited, held] = *words;
        let (kind, region) = ((head >> 32 & 0xf) as u32, head as u32);
        attribution::LockKind::of_number(kind)?;
        let code = (head >> 36 & 0xf) << 32 | u64::from(number);
        attribution::KernelContext::from_code(code)?;
        Some(LockCounts {
            region,
            code,
            kind,
            return_to,
            structure: StructureKind::from_number(head >> 40 & 0xff)?,
            place,
            offset: (head >> 48) as u32,
            acquires,
            contended: u64::from(counts as u32),
            releases: counts >> 32,
            waited,
            held,
        })
    }
}

impl Encoding for ProfileSlot {
    const KIND: u32 = 32;

    fn to_words(&self) -> (u32, Words) {
        let ProfileSlot { region, mode, start, length, time, .. } = *self;
        let head = u64::from(region) << 32 | u64::from(mode);
        let stalls = [self.fetch_stall, self.data_stall, self.pipeline_stall];
        (0, [head, start, length, time, stalls[0], stalls[1], stalls[2]])
    }

    fn from_words(_: u32, words: &Words) -> Option<ProfileSlot> {
        let [head, start, length, time, fetch_stall, data_stall, pipeline_stall] = *words;
        let (region, mode) = ((head >> 32) as u32, head as u32);
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
            what: ServiceMissKind::from_number(kinds >> 16 & 0xffff)?,
            class: (kinds & 0xffff) as u32,
            code,
            structure: StructureKind::from_number(kinds >> 32)?,
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
            structure: StructureKind::from_number(head >> 48)?,
            place,
            offset: u32::get(&[offset])?,
            address,
            code,
            pc,
            cpus: (head >> 32 & 0xffff) as u32,
            true_sharing: (counts >> 32) as u32,
            false_sharing: counts as u32,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::record::{ELSEWHERE, Record, RecordError, StructureName};

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
            releases: u32::MAX.into(),
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
