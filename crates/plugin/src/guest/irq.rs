//! IRQ lines of the guest: their numbers, their names and the kernel's own counts, read from the guest's memory. The
//! [`Tracker`](super::tracker::Tracker) asks for numbers at interrupts; rows of regions need names and counts.

use std::collections::BTreeMap;

use attribution::KernelContext;
use attribution::context::{SOFTIRQS, vector_named};

use crate::qemu::Qemu;
use plugin_interface::symbols::{KernelCountSymbols, Offsets};
use simrecord::record::IRQ_NAME_BYTES;

/// The most lines that are remembered.
const LINES_MAX: usize = 4_096;

/// A remembered line, as it was at its first interrupt.
#[derive(Clone, Copy, Debug)]
struct Line {
    /// Zeros after its end; all zeros if it could not be read.
    name: [u8; IRQ_NAME_BYTES],
    /// The offset of the line's counts in each CPU's per-CPU area. `None`: it could not be read.
    counts: Option<u64>,
}

/// The IRQ lines that have interrupted a CPU.
#[derive(Debug, Default)]
pub(crate) struct IrqLines {
    /// Numbers by the address of the kernel's `irq_desc`.
    numbers: BTreeMap<u64, u32>,
    /// Lines by their numbers.
    lines: BTreeMap<u32, Line>,
}

impl IrqLines {
    /// The number of the line whose `irq_desc` is at the address `irq_desc`. `None` if the number cannot be read. Reads
    /// the guest's memory at the line's first interrupt, and remembers the line as of then. Lines beyond [`LINES_MAX`]
    /// are read at each interrupt.
    pub(crate) fn line_number(
        &mut self,
        irq_desc: u64,
        offsets: &Offsets,
        qemu: &mut Qemu,
    ) -> Option<u32> {
        if let Some(number) = self.numbers.get(&irq_desc) {
            return Some(*number);
        }
        let word = |qemu: &mut Qemu, base: u64, offset: u64| {
            qemu.memory(base.wrapping_add(offset)).map(u64::from_le_bytes)
        };
        let number = qemu.memory(irq_desc.wrapping_add(offsets.irq?)).map(u32::from_le_bytes)?;
        let action = offsets.action.and_then(|offset| word(qemu, irq_desc, offset));
        let name = action.zip(offsets.action_name).and_then(|(action, offset)| {
            let text = word(qemu, action, offset)?;
            qemu.memory::<IRQ_NAME_BYTES>(text)
        });
        let counts = offsets.irq_counts.and_then(|offset| word(qemu, irq_desc, offset));
        if self.lines.len() < LINES_MAX {
            let name = name.map_or([0; IRQ_NAME_BYTES], up_to_zero);
            self.numbers.insert(irq_desc, number);
            self.lines.insert(number, Line { name, counts });
        }
        Some(number)
    }

    /// The numbers and names of all known lines.
    pub(crate) fn names(&self) -> impl Iterator<Item = (u32, [u8; IRQ_NAME_BYTES])> + '_ {
        self.lines.iter().map(|(number, line)| (*number, line.name))
    }

    /// The kernel's own counts of interrupts, softirqs and IRQ lines on `cpu`. Counts that cannot be read are left out.
    pub(crate) fn kernel_counts(
        &self,
        cpu: u32,
        symbols: &KernelCountSymbols,
        offsets: &Offsets,
        qemu: &mut Qemu,
    ) -> Vec<(KernelContext, u32)> {
        let entry = symbols.areas.wrapping_add(8 * u64::from(cpu));
        let Some(area) = qemu.memory(entry).map(u64::from_le_bytes) else { return Vec::new() };
        let mut counts = Vec::new();
        let mut add_count = |context, area_offset: Option<u64>| {
            let count = area_offset.and_then(|offset| qemu.memory(area.wrapping_add(offset)));
            counts.extend(count.map(|count| (context, u32::from_le_bytes(count))));
        };
        // The kernel counts both kinds of function call IPIs together. The lower vector gets the count.
        let vectors = [
            ("local_timer", offsets.timer_count),
            ("reschedule", offsets.reschedule_count),
            ("call_function_single", offsets.call_count),
            ("irq_work", offsets.irq_work_count),
        ];
        for (name, offset) in vectors {
            let Some(vector) = vector_named(name) else { continue };
            let area_offset = symbols.irq_stat.zip(offset).map(|(base, offset)| base + offset);
            add_count(KernelContext::Interrupt(vector), area_offset);
        }
        for softirq in 0..SOFTIRQS.len() as u8 {
            let base = symbols.kstat.zip(offsets.softirq_counts);
            let area_offset = base.map(|(base, offset)| base + offset + 4 * u64::from(softirq));
            add_count(KernelContext::Softirq(softirq), area_offset);
        }
        for (number, line) in &self.lines {
            add_count(KernelContext::Irq(*number), line.counts);
        }
        counts
    }
}

/// Replaces everything after the first zero by zeros.
fn up_to_zero(mut text: [u8; IRQ_NAME_BYTES]) -> [u8; IRQ_NAME_BYTES] {
    let end = text.iter().position(|byte| *byte == 0).unwrap_or(text.len());
    text[end..].fill(0);
    text
}
