//! Encodes records as bytes, and decodes them. The bytes are public: see [`super`].
//!
//! The table `encodings!` has a row for each record that holds one field per word. `packed.rs` encodes the records that
//! pack several fields into a word. To add a record: a type and a variant of [`Record`], an encoding, and a row in
//! `variants!`.

mod packed;

use super::{
    AccessStream, AnnotationRow, BYTES, CACHES, CPUS_MAX, Check, Completion, ContextRow, Counters,
    Delay, DelayEvents, End, ExecutedBlock, FORMAT_VERSION, Group, GroupPath, Header, Hotplug,
    HotplugState, IrqName, KernelCount, LockCounts, MAGIC, Marker, MissCount, MissCurvePoint,
    MissKind, ProfileSlot, QueuedRun, Record, RecordError, Region, SampledPart, Sent,
    ServiceBucket, ServiceMisses, ServiceRow, ServiceTime, ServiceTotals, ServiceWait,
    ShadowCaches, SharedMisses, Span, StructureKind, StructureName, SyscallFunction, Task,
    TaskGroup, Transition, UserFunction, Value, Values, ValuesKind, Withheld,
};
use packed::NoticeRecord;

/// The numbers of a record, after its kind and CPU.
type Words = [u64; 7];

/// A value that takes whole words of a record.
trait Field: Sized {
    const WORDS: usize;

    /// Writes the value to the first [`Field::WORDS`] of `words`.
    fn put(&self, words: &mut [u64]);

    /// Decodes the first [`Field::WORDS`] of `words`, or returns `None` if no value has these words.
    fn get(words: &[u64]) -> Option<Self>;
}

impl Field for u64 {
    const WORDS: usize = 1;

    fn put(&self, words: &mut [u64]) {
        words[0] = *self;
    }

    fn get(words: &[u64]) -> Option<u64> {
        Some(words[0])
    }
}

impl Field for u32 {
    const WORDS: usize = 1;

    fn put(&self, words: &mut [u64]) {
        words[0] = u64::from(*self);
    }

    fn get(words: &[u64]) -> Option<u32> {
        u32::try_from(words[0]).ok()
    }
}

/// Text, eight bytes to a word.
impl<const TEXT_BYTES: usize> Field for [u8; TEXT_BYTES] {
    const WORDS: usize = TEXT_BYTES / 8;

    fn put(&self, words: &mut [u64]) {
        let (chunks, _) = self.as_chunks::<8>();
        for (word, bytes) in words.iter_mut().zip(chunks) {
            *word = u64::from_le_bytes(*bytes);
        }
    }

    fn get(words: &[u64]) -> Option<Self> {
        Some(std::array::from_fn(|byte| words[byte / 8].to_le_bytes()[byte % 8]))
    }
}

/// Implements [`Field`] for enumerations: the word holds the variant's number.
macro_rules! numbered_fields {
    ($($name:ident),*) => {$(
        impl Field for $name {
            const WORDS: usize = 1;

            fn put(&self, words: &mut [u64]) {
                words[0] = *self as u64;
            }

            fn get(words: &[u64]) -> Option<$name> {
                $name::from_number(words[0])
            }
        }
    )*};
}

numbered_fields!(
    AccessStream,
    DelayEvents,
    Group,
    HotplugState,
    MissKind,
    ServiceTime,
    StructureKind,
    ValuesKind
);

/// The encoding of one kind of record. Words without a field are zero.
///
/// `from_words` ignores bits without a field: [`Record::decode`] encodes the decoded record again, and compares bytes.
trait Encoding: Sized {
    /// The number of the kind of record.
    const KIND: u32;

    /// The CPU, or 0 if the record has none, and the words after it.
    fn to_words(&self) -> (u32, Words);

    /// The record, or `None` if a number is out of range.
    fn from_words(cpu: u32, words: &Words) -> Option<Self>;
}

/// Implements [`Encoding`] for records that hold one field per word, or text. A row has the number of the kind, the
/// type, `[cpu]` if the record has a CPU, and the fields in the order of their words. A validity condition may follow.
macro_rules! encodings {
    ($($kind:literal $type:ident [$($cpu:ident)?] ($($field:ident)*) $(if $condition:expr)?;)*) => {$(
        impl Encoding for $type {
            const KIND: u32 = $kind;

            fn to_words(&self) -> (u32, Words) {
                let cpu = 0 $(+ self.$cpu)?;
                let mut words = [0; 7];
                let mut free = &mut words[..];
                $(free = put(&self.$field, free);)*
                let _ = free;
                (cpu, words)
            }

            fn from_words(_cpu: u32, words: &Words) -> Option<$type> {
                let mut unread = &words[..];
                let record = $type { $($cpu: _cpu,)? $($field: get(&mut unread)?,)* };
                $(
                    let condition: fn(&$type) -> bool = $condition;
                    if !condition(&record) {
                        return None;
                    }
                )?
                Some(record)
            }
        }
    )*};
}

/// Writes a field to the start of `free`, and returns the words after the field.
fn put<'a, F: Field>(field: &F, free: &'a mut [u64]) -> &'a mut [u64] {
    let (field_words, free) = free.split_at_mut(F::WORDS);
    field.put(field_words);
    free
}

/// Reads a field from the start of `unread`, and removes its words from `unread`.
fn get<F: Field>(unread: &mut &[u64]) -> Option<F> {
    let (field_words, remaining) = unread.split_at(F::WORDS);
    *unread = remaining;
    F::get(field_words)
}

encodings! {
    3 Region [cpu] (region unknown_gates unmatched_returns abandoned overflows broken opened_at);
    4 ContextRow [cpu] (region code entries completed);
    5 Task [] (pid comm);
    7 Check [] (counted icount);
    10 Span [cpu] (region code start self_cycles inclusive_cycles self_instructions inclusive_instructions);
    12 IrqName [] (irq name);
    13 AnnotationRow [cpu] (region annotation hits refused);
    14 Values [cpu] (region annotation action kind number);
    16 ShadowCaches [] (region model group counters);
    17 MissCurvePoint [] (region group stream size_bytes accesses misses);
    18 Transition [cpu] (region code task at cycles tsc);
    19 MissCount [] (region cache kind key count) if |misses| (misses.cache as usize) < CACHES;
    20 ServiceRow [] (region code requests completed computation blocked descheduled);
    21 ServiceBucket [] (region code time lowest count);
    22 ServiceWait [] (region code wait count blocked);
    23 SyscallFunction [] (number address);
    24 ServiceTotals [] (region handled_faults broken);
    28 StructureName [] (kind place name shared_by);
    30 SampledPart [cpu] (region code unit);
    33 Hotplug [cpu] (region state at);
    34 UserFunction [] (number part text);
    36 Delay [cpu] (region code events at cycles);
    38 QueuedRun [cpu] (region sent function at delay cycles tsc);
    35 ExecutedBlock [cpu] (region address tsc cycles instructions l1_misses l2_misses);
    39 Withheld [cpu] (region tsc length);
    40 TaskGroup [cpu] (region group at tsc);
    41 GroupPath [] (group part text);
    42 Completion [cpu] (region request at code comm group);
}

/// Maps the variants of [`Record`] to their types. `Record::Notice` has no row, because it has three values.
macro_rules! variants {
    ($($variant:ident($type:ident),)*) => {
        /// The kind, the CPU, and the words after them.
        fn to_words(record: &Record) -> (u32, u32, Words) {
            fn encoded<T: Encoding>(record: &T) -> (u32, u32, Words) {
                let (cpu, words) = record.to_words();
                (T::KIND, cpu, words)
            }
            match record {
                $(Record::$variant(record) => encoded(record),)*
                Record::Notice(notice, cpu, value) => encoded(&NoticeRecord(*notice, *cpu, *value)),
            }
        }

        fn from_words(kind: u32, cpu: u32, words: &Words) -> Result<Record, RecordError> {
            fn decoded<T: Encoding>(cpu: u32, words: &Words) -> Result<T, RecordError> {
                T::from_words(cpu, words).ok_or(RecordError::Field(T::KIND))
            }
            Ok(match kind {
                $($type::KIND => Record::$variant(decoded(cpu, words)?),)*
                NoticeRecord::KIND => {
                    let NoticeRecord(notice, cpu, value) = decoded(cpu, words)?;
                    Record::Notice(notice, cpu, value)
                }
                _ => return Err(RecordError::Kind(kind)),
            })
        }
    };
}

variants! {
    Header(Header),
    Marker(Marker),
    Region(Region),
    Context(ContextRow),
    Task(Task),
    Check(Check),
    End(End),
    Counters(Counters),
    Span(Span),
    Delay(Delay),
    Sent(Sent),
    QueuedRun(QueuedRun),
    Transition(Transition),
    KernelCount(KernelCount),
    IrqName(IrqName),
    Annotation(AnnotationRow),
    Values(Values),
    Value(Value),
    ShadowCaches(ShadowCaches),
    MissCurvePoint(MissCurvePoint),
    Misses(MissCount),
    Service(ServiceRow),
    ServiceBucket(ServiceBucket),
    ServiceWait(ServiceWait),
    SyscallFunction(SyscallFunction),
    ServiceTotals(ServiceTotals),
    LockPlace(LockCounts),
    ProfileSlot(ProfileSlot),
    SampledPart(SampledPart),
    ServiceMisses(ServiceMisses),
    SharedMisses(SharedMisses),
    StructureName(StructureName),
    Hotplug(Hotplug),
    UserFunction(UserFunction),
    ExecutedBlock(ExecutedBlock),
    Withheld(Withheld),
    TaskGroup(TaskGroup),
    GroupPath(GroupPath),
    Completion(Completion),
}

impl Record {
    /// The bytes of the record.
    #[must_use]
    pub fn encode(&self) -> [u8; BYTES] {
        let (kind, cpu, words) = to_words(self);
        let mut bytes = [0; BYTES];
        bytes[..4].copy_from_slice(&kind.to_le_bytes());
        bytes[4..8].copy_from_slice(&cpu.to_le_bytes());
        for (chunk, word) in bytes[8..].chunks_exact_mut(8).zip(words) {
            chunk.copy_from_slice(&word.to_le_bytes());
        }
        bytes
    }

    /// Decodes the bytes of a record.
    ///
    /// Fails if the plugin never writes these bytes. The error names the wrong part.
    pub fn decode(bytes: &[u8; BYTES]) -> Result<Record, RecordError> {
        let half =
            |start: usize| u32::from_le_bytes(std::array::from_fn(|byte| bytes[start + byte]));
        let word = |number: usize| {
            u64::from_le_bytes(std::array::from_fn(|byte| bytes[8 + 8 * number + byte]))
        };
        let words: Words = std::array::from_fn(word);
        let (kind, cpu) = (half(0), half(4));
        check_head(kind, cpu, &words)?;
        let record = from_words(kind, cpu, &words)?;
        // Unused bits must be zero, so that a later version can use them.
        if record.encode() == *bytes { Ok(record) } else { Err(RecordError::Field(kind)) }
    }
}

/// Checks the magic number and the version of a header, and the CPU of other records.
///
/// A record of [`LockCounts`] is not checked: another number takes the place of its CPU.
fn check_head(kind: u32, cpu: u32, words: &Words) -> Result<(), RecordError> {
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
    Ok(())
}
