//! The Rust side of `bpf/shared.h`: change both together. Sizes are checked against the loaded
//! object's maps, so a mismatch is an error at start, never a wrong number.

use std::collections::BTreeMap;

use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout};

/// Deepest nesting that a CPU's stack follows (`DEPTH_MAX`).
pub const DEPTH_MAX: usize = 16;
/// Most PMU events in one pass (`EVENTS_MAX`).
pub const EVENTS_MAX: usize = 8;
/// Batches a row keeps (`BATCHES`).
pub const BATCHES: usize = 64;
/// Kernel counters read by the gate (`KERNEL_COUNTERS`).
pub const KERNEL_COUNTERS: usize = 32;
/// Key of the first vector; the number is the position in `attribution::context::VECTORS`.
pub const KEY_VECTOR: u32 = 1;
/// Key of softirq 0.
pub const KEY_SOFTIRQ: u32 = 32;
/// Key of the NMI handlers.
pub const KEY_NMI: u32 = 48;
/// Key of page faults from user mode.
pub const KEY_FAULT_USER: u32 = 49;
/// Key of page faults from kernel mode.
pub const KEY_FAULT_KERNEL: u32 = 50;
/// Key of the spans that calibration makes.
pub const KEY_BENCH: u32 = 51;
/// Key of all NAPI instances; the row's `object` tells them apart.
pub const KEY_NAPI: u32 = 52;
/// Key of IRQ 0.
pub const KEY_IRQ: u32 = 64;
/// IRQ numbers that are followed.
pub const IRQS_MAX: usize = 4096;
/// Keys in all.
pub const KEYS: usize = KEY_IRQ as usize + IRQS_MAX;
/// Added to a key for the spans without work behind its own, in place (`KEY_AGAIN`).
pub const KEY_AGAIN: u32 = KEYS as u32 / 2;
/// Most rows of a CPU, with the one that stands for none (`SLOT_BITS`).
pub const SLOTS_MAX: u32 = 1 << SLOT_BITS;
/// Bits of a key's row in its place, below those of what is inside.
const SLOT_BITS: u32 = 7;
/// Bits of what is inside of its spans, below those of a cold way in (`INSIDE_BITS`).
const INSIDE_BITS: u32 = 14;
/// A cold way in is kept in 2^this ns (`WAY_IN_SHIFT`).
const WAY_IN_SHIFT: u32 = 2;

/// At most 2^-this of a span is subtracted for a cold way in (`WAY_IN_SHARE`).
pub const WAY_IN_SHARE: u32 = 3;

/// Value of a kernel counter that this kernel does not have.
pub const COUNTER_ABSENT: u64 = u64::MAX;
/// Position of the sum of device interrupts among the kernel counters.
pub const COUNTER_DEVICES: usize = 16;
/// Position of the first vector's counter.
pub const COUNTER_VECTORS: usize = 17;

/// Offsets into a CPU's area of kernel variables (`PERCPU_OFFSETS`).
pub const PERCPU_OFFSETS: usize = 16;

/// `struct config`: constants that the verifier folds into the programs.
#[derive(Clone, Copy, Debug, Default, FromBytes, IntoBytes, Immutable, KnownLayout)]
#[repr(C)]
pub struct Config {
    /// What a probe pair adds to each event inside its own span.
    pub inside_events: [u64; EVENTS_MAX],
    /// Rows per CPU.
    pub slots: u32,
    /// PMU events read at entry and exit.
    pub events: u32,
    /// Possible CPUs.
    pub cpus: u32,
    /// Padding.
    pub unused: u32,
    /// Where the gate finds the run queue, the softirq counters and the vector counters in a CPU's
    /// area; negative: not known. See [`super::kernel_counters`].
    pub percpu_offsets: [i32; PERCPU_OFFSETS],
}

/// What a probe pair adds inside its own span.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct InsideSpan {
    /// Always, ns; at most 16,383 are subtracted.
    pub always_ns: u64,
    /// Where the span has cooled the way into the program at its exit, ns; at most 8,188, and an
    /// eighth of the span, are subtracted.
    pub way_in_ns: u64,
}

impl InsideSpan {
    fn place(self) -> u32 {
        let fits = |value: u64, bits: u32| value.min((1 << bits) - 1) as u32;
        let way_in = fits(self.way_in_ns >> WAY_IN_SHIFT, u32::BITS - SLOT_BITS - INSIDE_BITS);
        (way_in << INSIDE_BITS | fits(self.always_ns, INSIDE_BITS)) << SLOT_BITS
    }
}

/// What a probe pair adds inside its own span, by what the span is for.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Inside {
    /// In spans of these keys.
    pub of_keys: BTreeMap<u32, InsideSpan>,
    /// In those of other vectors.
    pub vector: InsideSpan,
    /// In those of other softirqs.
    pub softirq: InsideSpan,
    /// In those of other device IRQs.
    pub irq: InsideSpan,
}

impl Inside {
    /// The same in all contexts, ns.
    #[must_use]
    pub fn same(ns: u64) -> Self {
        let inside = InsideSpan { always_ns: ns, way_in_ns: 0 };
        Inside { vector: inside, softirq: inside, irq: inside, of_keys: BTreeMap::new() }
    }

    /// In spans of a key.
    #[must_use]
    pub fn of(&self, key: u32) -> InsideSpan {
        let of_sort = match key {
            key if key >= KEY_IRQ => self.irq,
            key if key >= KEY_SOFTIRQ => self.softirq,
            _ => self.vector,
        };
        self.of_keys.get(&key).copied().unwrap_or(of_sort)
    }

    /// The value of `cpu_states` of a CPU that has seen nothing yet.
    #[must_use]
    pub fn fresh_state(&self) -> Vec<u8> {
        let mut bytes = vec![0; size_of::<CpuState>()];
        bytes.extend((0..KEYS as u32).flat_map(|key| self.of(key).place().to_ne_bytes()));
        bytes
    }
}

/// `struct frame`: an open span.
#[derive(Clone, Copy, Debug, FromBytes, IntoBytes, Immutable, KnownLayout)]
#[repr(C)]
pub struct Frame {
    /// What it is for.
    pub key: u32,
    /// Spans closed inside.
    pub descendants: u32,
    /// When it began.
    pub start_ns: u64,
    /// Time of the spans inside, and what our programs added beside them.
    pub nested_ns: u64,
    /// What our programs took inside, those of the spans inside among them.
    pub probes_ns: u64,
}

/// `struct cpu_state`, without the table of places at its end.
#[derive(Clone, Copy, Debug, FromBytes, IntoBytes, Immutable, KnownLayout)]
#[repr(C)]
pub struct CpuState {
    /// The window is open.
    pub armed: u32,
    /// Open spans.
    pub depth: u32,
    /// Rows claimed.
    pub slots_used: u32,
    /// Padding.
    pub unused: u32,
    /// When the window opened, `CLOCK_MONOTONIC`.
    pub armed_ns: u64,
    /// When it closed.
    pub disarmed_ns: u64,
    /// Exits without an entry.
    pub unmatched_exits: u64,
    /// Entries whose exit was not seen.
    pub abandoned: u64,
    /// Entries that found the stack full.
    pub overflows: u64,
    /// Spans that found no row.
    pub unattributed: u64,
    /// The stack.
    pub frames: [Frame; DEPTH_MAX],
    /// The kernel's own counters as the window opened.
    pub kernel_armed: [u64; KERNEL_COUNTERS],
    /// And as it closed.
    pub kernel_disarmed: [u64; KERNEL_COUNTERS],
}

/// `struct batch`.
#[derive(Clone, Copy, Debug, FromBytes, IntoBytes, Immutable, KnownLayout)]
#[repr(C)]
pub struct BatchCell {
    /// Values in the batch.
    pub count: u64,
    /// Their sum.
    pub sum: u64,
}

/// `struct row`: one source on one CPU.
#[derive(Clone, Copy, Debug, FromBytes, IntoBytes, Immutable, KnownLayout)]
#[repr(C)]
pub struct Row {
    /// What it is for.
    pub key: u32,
    /// A batch is 2^this ns long.
    pub batch_shift: u32,
    /// The kernel's object, as an opaque number.
    pub object: u64,
    /// Spans, polls or faults.
    pub count: u64,
    /// Sum of self times, or of packets.
    pub sum: u64,
    /// Sum of squares, low word.
    pub squares_low: u64,
    /// Sum of squares, high word.
    pub squares_high: u64,
    /// Largest value.
    pub max: u64,
    /// When it came.
    pub max_at_ns: u64,
    /// Spans with spans inside.
    pub nested_count: u64,
    /// Inclusive less self time of those.
    pub nested_extra: u64,
    /// Largest inclusive time of those.
    pub nested_max: u64,
    /// When it came.
    pub nested_max_at_ns: u64,
    /// Spans shorter than the probes' own cost.
    pub clamped: u64,
    /// Interrupts not this device's, or polls that used up their budget.
    pub special: u64,
    /// Entries whose exit was not seen.
    pub abandoned: u64,
    /// NAPI id.
    pub number: u32,
    /// An action after the first of its line.
    pub shared: u32,
    /// Name as read in the kernel, NUL-terminated; empty when not read.
    pub name: [u8; 32],
    /// Sums of event deltas of self.
    pub event_self: [u64; EVENTS_MAX],
    /// Sums of event deltas, inclusive.
    pub event_inclusive: [u64; EVENTS_MAX],
    /// Spans that these sums are of.
    pub event_spans: u64,
    /// Batches in time.
    pub batches: [BatchCell; BATCHES],
    /// Histogram of spans with nothing inside.
    pub flat: [u64; stats::histogram::SLOTS],
    /// Self times of the others.
    pub nested_self: [u64; stats::histogram::SLOTS],
    /// Inclusive times of the others.
    pub nested_inclusive: [u64; stats::histogram::SLOTS],
}

/// `struct pmu_frames` is only cleared, never read but for its last words.
pub const PMU_FRAMES_BYTES: usize = DEPTH_MAX * (3 * EVENTS_MAX + 1) * 8 + PMU_TAIL_BYTES;
/// The last words of `struct pmu_frames`: failed reads, last error, multiplexed and
/// disturbed spans.
pub const PMU_TAIL_BYTES: usize = 32;
/// Size of the value of `cpu_states`.
pub const CPU_STATE_BYTES: usize = size_of::<CpuState>() + KEYS * 4;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn structures_have_no_hidden_padding() {
        assert_eq!(size_of::<Config>(), 16 + EVENTS_MAX * 8 + PERCPU_OFFSETS * 4);
        assert_eq!(size_of::<Frame>(), 32);
        assert_eq!(size_of::<CpuState>(), 16 + 6 * 8 + 16 * 32 + 2 * 32 * 8);
        assert_eq!(CPU_STATE_BYTES % 8, 0);
        assert_eq!(Inside::default().fresh_state().len(), CPU_STATE_BYTES);
        assert_eq!(size_of::<Row>() % 8, 0);
    }
}
