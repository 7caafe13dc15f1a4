//! IRQ lines of the guest: their numbers, their names and the kernel's own counts, read from the guest's memory. The
//! [`Tracker`](super::tracker::Tracker) asks for numbers at interrupts; rows of regions need names and counts.

use std::collections::BTreeMap;

use attribution::KernelContext;
use attribution::context::{SOFTIRQS, vector_named};

use crate::guest::memory::GuestMemory;
use crate::qemu::Qemu;
use plugin_interface::symbols::{KernelCountSymbols, Offsets};
use simrecord::record::IRQ_NAME_BYTES;

/// The most lines that are remembered.
const LINES_MAX: usize = 4_096;

/// A remembered line, as it was at its first interrupt.
#[derive(Clone, Copy, Debug)]
struct Line {
    /// The address of its `irq_desc`.
    irq_desc: u64,
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
    /// The number of the line whose `irq_desc` is at the address `irq_desc`. `None` if the number cannot be read.
    ///
    /// Reads the number at each interrupt, because the kernel can use the memory of a freed line for another one. Reads the
    /// rest at the line's first interrupt, and remembers the line as of then. Lines beyond [`LINES_MAX`] are read at each
    /// interrupt.
    pub(crate) fn line_number(
        &mut self,
        irq_desc: u64,
        offsets: &Offsets,
        memory: &mut impl GuestMemory,
    ) -> Option<u32> {
        let number = memory.half_word_at(irq_desc.wrapping_add(offsets.irq?))?;
        let number_before = self.numbers.get(&irq_desc).copied();
        if number_before == Some(number) {
            return Some(number);
        }
        // The counts of the line that was here are freed, too.
        if let Some(freed) = number_before.and_then(|before| self.lines.get_mut(&before))
            && freed.irq_desc == irq_desc
        {
            freed.counts = None;
        }
        let mut word = |base: u64, offset: u64| memory.word_at(base.wrapping_add(offset));
        let action = offsets.action.and_then(|offset| word(irq_desc, offset));
        let text = action.zip(offsets.action_name);
        let text = text.and_then(|(action, offset)| word(action, offset));
        let counts = offsets.irq_counts.and_then(|offset| word(irq_desc, offset));
        let name = text.and_then(|text| memory.bytes_at::<IRQ_NAME_BYTES>(text));
        let has_room = self.numbers.len() < LINES_MAX || number_before.is_some();
        if has_room && (self.lines.len() < LINES_MAX || self.lines.contains_key(&number)) {
            let name = name.map_or([0; IRQ_NAME_BYTES], up_to_zero);
            self.numbers.insert(irq_desc, number);
            self.lines.insert(number, Line { irq_desc, name, counts });
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::guest::memory::tests::TestMemory;

    const OFFSETS: &str = "irq_desc.irq_data.irq 4\nirq_desc.action 8\nirq_desc.kstat_irqs 16\n\
                           irqaction.name 0\n";

    /// Writes the description of a line at `irq_desc`, with its action and its name behind it.
    fn write_line(memory: &mut TestMemory, irq_desc: u64, number: u32, name: &[u8], counts: u64) {
        let (action, text) = (irq_desc + 0x100, irq_desc + 0x200);
        memory.write(irq_desc + 4, &number.to_le_bytes());
        memory.write(irq_desc + 8, &action.to_le_bytes());
        memory.write(irq_desc + 16, &counts.to_le_bytes());
        memory.write(action, &text.to_le_bytes());
        let mut padded = [0; IRQ_NAME_BYTES];
        padded[..name.len()].copy_from_slice(name);
        memory.write(text, &padded);
    }

    /// The kernel frees the description of a line, for example when a driver is removed, and allocates another one there.
    #[test]
    fn a_line_at_the_address_of_a_freed_one_is_another_line() {
        let offsets = Offsets::parse(OFFSETS).unwrap();
        let (mut lines, mut memory) = (IrqLines::default(), TestMemory::default());
        write_line(&mut memory, 0x1000, 24, b"nvme0q0", 0x40);
        assert_eq!(lines.line_number(0x1000, &offsets, &mut memory), Some(24));
        write_line(&mut memory, 0x1000, 31, b"eth0", 0x50);
        for _ in 0..2 {
            assert_eq!(lines.line_number(0x1000, &offsets, &mut memory), Some(31));
        }
        let names: Vec<_> = lines.names().collect();
        assert_eq!((names[0].0, &names[0].1[..8]), (24, &b"nvme0q0\0"[..]));
        assert_eq!((names[1].0, &names[1].1[..5]), (31, &b"eth0\0"[..]));
        let counts = |lines: &IrqLines| [24, 31].map(|number| lines.lines[&number].counts);
        assert_eq!(counts(&lines), [None, Some(0x50)]);
        // The first number comes back elsewhere, with another name and other counts.
        write_line(&mut memory, 0x2000, 24, b"nvme1q0", 0x60);
        assert_eq!(lines.line_number(0x2000, &offsets, &mut memory), Some(24));
        assert_eq!(counts(&lines), [Some(0x60), Some(0x50)]);
        assert_eq!(&lines.names().next().unwrap().1[..7], b"nvme1q0");
        assert_eq!(lines.line_number(0x3000, &offsets, &mut memory), None);
    }
}
