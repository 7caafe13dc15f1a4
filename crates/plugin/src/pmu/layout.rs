//! The registers of a vendor's PMU: their numbers, and what their bits mean. [`super::core`] has the counters.
//!
//! - AMD: core performance counter extensions, six counters (APM volume 2, 13.2).
//! - Intel: version 2 of architectural performance monitoring, eight general counters and three fixed ones (SDM volume
//!   3, chapter 20). Versions above 2, PEBS, LBR and full-width writes are not announced, so that kernels do not use
//!   them.

use machine::identity::Vendor;
use plugin_interface::options::CpuidLeaf;

use super::events::{Event, event_of};

/// The width of a counter in bits.
pub(super) const WIDTH: u32 = 48;
/// The value of a counter whose bits are all set.
pub(super) const VALUE_MASK: u64 = (1 << WIDTH) - 1;

/// Bits of an event select. Both vendors have the same bits, apart from the last two.
pub(super) const USER: u64 = 1 << 16;
pub(super) const SYSTEM: u64 = 1 << 17;
pub(super) const EDGE: u64 = 1 << 18;
pub(super) const INTERRUPT: u64 = 1 << 20;
pub(super) const ENABLE: u64 = 1 << 22;
pub(super) const INVERT: u64 = 1 << 23;
pub(super) const COUNTER_MASK: u64 = 0xff << 24;
/// Only AMD has these two bits. Intel reserves them.
pub(super) const GUEST_ONLY: u64 = 1 << 40;
pub(super) const HOST_ONLY: u64 = 1 << 41;

/// Counters of AMD's core performance counter extensions.
const AMD_COUNTERS: usize = 6;
/// AMD: the first event select of the four counters that all processors have.
const AMD_SELECT_LEGACY: u64 = 0xc001_0000;
/// AMD: the first counter of the four counters that all processors have.
const AMD_VALUE_LEGACY: u64 = 0xc001_0004;
const AMD_COUNTERS_LEGACY: u64 = 4;
/// AMD: the first register of the extensions. Event selects and counters alternate from here.
const AMD_EXTENDED: u64 = 0xc001_0200;

/// General counters of Intel's Golden Cove.
const INTEL_COUNTERS: usize = 8;
/// Event selects of the events that Intel's fixed counters count.
const INTEL_FIXED: [u64; 3] = [0x00c0, 0x003c, 0x013c];
/// Linux's number for the event of Intel's fixed counter 3, which these PMUs do not have. Linux 6.1 assumes that Alder
/// Lake has this counter.
pub(super) const SLOTS: u64 = 0x0400;
/// IA32_PMC0.
const INTEL_VALUE: u64 = 0xc1;
/// IA32_PERFEVTSEL0.
const INTEL_SELECT: u64 = 0x186;
/// IA32_FIXED_CTR0.
const INTEL_FIXED_VALUE: u64 = 0x309;
/// IA32_FIXED_CTR_CTRL.
const INTEL_FIXED_CONTROL: u64 = 0x38d;
/// IA32_PERF_GLOBAL_STATUS.
const INTEL_GLOBAL_STATUS: u64 = 0x38e;
/// IA32_PERF_GLOBAL_CTRL.
const INTEL_GLOBAL_CONTROL: u64 = 0x38f;
/// IA32_PERF_GLOBAL_OVF_CTRL.
const INTEL_GLOBAL_RESET: u64 = 0x390;
/// The bit of a counter's number that makes `rdpmc` read a fixed counter.
const INTEL_READS_FIXED: u64 = 1 << 30;
/// The leaf of `cpuid` that describes the PMU.
const INTEL_LEAF: u32 = 0xa;
/// Architectural events that the leaf has a bit for. All of them are available.
const INTEL_EVENTS: u32 = 7;

/// A field of IA32_FIXED_CTR_CTRL, which has four bits for each fixed counter.
const FIXED_FIELD_BITS: usize = 4;
/// Bits of such a field.
const FIXED_SYSTEM: u64 = 1 << 0;
const FIXED_USER: u64 = 1 << 1;
const FIXED_INTERRUPT: u64 = 1 << 3;

/// A register of a PMU. Numbers of counters count the general counters first, and then the fixed ones.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum PmuRegister {
    /// The event select of a general counter.
    Select(usize),
    /// The value of a counter.
    Value(usize),
    /// Enables the fixed counters.
    FixedControl,
    /// Says which counters have overflowed.
    GlobalStatus,
    /// Enables counters in addition to their event selects.
    GlobalControl,
    /// Clears bits of the global status.
    GlobalReset,
}

/// The registers of a vendor's PMU.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct RegisterLayout {
    vendor: Vendor,
}

impl RegisterLayout {
    pub(crate) const fn of_vendor(vendor: Vendor) -> RegisterLayout {
        RegisterLayout { vendor }
    }

    /// The word for the vendor, as in the option `pmu=`.
    pub(crate) fn word(self) -> &'static str {
        match self.vendor {
            Vendor::Amd => "amd",
            Vendor::Intel => "intel",
        }
    }

    pub(super) fn general_counters(self) -> usize {
        match self.vendor {
            Vendor::Amd => AMD_COUNTERS,
            Vendor::Intel => INTEL_COUNTERS,
        }
    }

    /// For each fixed counter, the bits of an event select that identify its event.
    pub(super) fn fixed_events(self) -> &'static [u64] {
        match self.vendor {
            Vendor::Amd => &[],
            Vendor::Intel => &INTEL_FIXED,
        }
    }

    /// The number of all counters.
    pub(crate) fn counters(self) -> usize {
        self.general_counters() + self.fixed_events().len()
    }

    /// Whether the PMU has registers that enable all counters and say which have overflowed.
    pub(super) fn has_global_registers(self) -> bool {
        self.vendor == Vendor::Intel
    }

    /// Whether the announcement of the counters is a bit that QEMU's own answer of `cpuid` lacks. If not,
    /// [`RegisterLayout::cpuid_leaf`] announces them.
    pub(super) fn is_announced_by_a_bit(self) -> bool {
        self.vendor == Vendor::Amd
    }

    /// The leaf of `cpuid` that describes the PMU. `None` for processors that are not Intel's.
    pub(crate) fn cpuid_leaf(self) -> Option<CpuidLeaf> {
        const VERSION: u32 = 2;
        let counters = self.general_counters() as u32;
        let fixed = self.fixed_events().len() as u32;
        (self.vendor == Vendor::Intel).then_some(CpuidLeaf {
            leaf: INTEL_LEAF,
            subleaf: None,
            eax: VERSION | counters << 8 | WIDTH << 16 | INTEL_EVENTS << 24,
            ebx: 0,
            ecx: 0,
            edx: fixed | WIDTH << 5,
        })
    }

    /// The PMU's register that is the model-specific register `number`. `None` for other registers.
    pub(super) fn register_of_msr(self, number: u64) -> Option<PmuRegister> {
        let index_from = |first: u64, count: usize| {
            let index = number.checked_sub(first).filter(|index| *index < count as u64);
            index.map(|index| index as usize)
        };
        let (select, value) = (PmuRegister::Select, PmuRegister::Value);
        match self.vendor {
            Vendor::Amd => {
                let legacy = AMD_COUNTERS_LEGACY as usize;
                let extended = |index: usize| {
                    if index % 2 == 1 { value(index / 2) } else { select(index / 2) }
                };
                index_from(AMD_SELECT_LEGACY, legacy)
                    .map(select)
                    .or_else(|| index_from(AMD_VALUE_LEGACY, legacy).map(value))
                    .or_else(|| index_from(AMD_EXTENDED, 2 * AMD_COUNTERS).map(extended))
            }
            Vendor::Intel => match number {
                INTEL_FIXED_CONTROL => Some(PmuRegister::FixedControl),
                INTEL_GLOBAL_STATUS => Some(PmuRegister::GlobalStatus),
                INTEL_GLOBAL_CONTROL => Some(PmuRegister::GlobalControl),
                INTEL_GLOBAL_RESET => Some(PmuRegister::GlobalReset),
                _ => index_from(INTEL_SELECT, INTEL_COUNTERS)
                    .map(select)
                    .or_else(|| index_from(INTEL_VALUE, INTEL_COUNTERS).map(value))
                    .or_else(|| {
                        let fixed = index_from(INTEL_FIXED_VALUE, INTEL_FIXED.len())?;
                        Some(value(INTEL_COUNTERS + fixed))
                    }),
            },
        }
    }

    /// The counter that `rdpmc` reads if `ecx` is `number`. `None`: there is no such counter.
    pub(super) fn register_of_rdpmc(self, number: u64) -> Option<PmuRegister> {
        let (first, count, index) = match self.vendor {
            Vendor::Intel if number & INTEL_READS_FIXED != 0 => {
                (INTEL_COUNTERS, INTEL_FIXED.len(), number & !INTEL_READS_FIXED)
            }
            _ => (0, self.general_counters(), number),
        };
        (index < count as u64).then_some(PmuRegister::Value(first + index as usize))
    }

    /// The event that an event select selects. `None`: the plugin does not know the event.
    pub(super) fn event_of_select(self, select: u64) -> Option<Event> {
        // Conditions on the number of events per cycle are not emulated.
        if select & (COUNTER_MASK | INVERT | EDGE) != 0 {
            return None;
        }
        // Only AMD has further bits of an event's number.
        let high = match self.vendor {
            Vendor::Amd => (select >> 24) as u16 & 0xf00,
            Vendor::Intel => 0,
        };
        event_of(self.vendor, (select & 0xff) as u16 | high, (select >> 8) as u8)
    }

    /// Whether a value of the control of fixed counters enables the counter of [`SLOTS`].
    pub(super) fn enables_slots(self, control: u64) -> bool {
        let field = control >> (FIXED_FIELD_BITS * INTEL_FIXED.len());
        field & (FIXED_SYSTEM | FIXED_USER) != 0
    }

    /// The value that a counter has after a write of `written`.
    pub(super) fn value_after_write(self, index: usize, written: u64) -> u64 {
        // Without full-width writes, IA32_PMC extends the sign of the lower half.
        let extends_sign = self.vendor == Vendor::Intel && index < INTEL_COUNTERS;
        let value =
            if extends_sign { i64::from(written as u32 as i32).cast_unsigned() } else { written };
        value & VALUE_MASK
    }

    /// The bit of a counter in the global registers.
    pub(super) fn global_bit(self, index: usize) -> u64 {
        const FIXED_SHIFT: usize = 32;
        let general = self.general_counters();
        let shift = if index < general { index } else { FIXED_SHIFT + index - general };
        1 << shift
    }
}

/// The event select of a fixed counter that counts `event` and is controlled by the field `index` of
/// IA32_FIXED_CTR_CTRL.
pub(super) fn select_of_fixed(event: u64, index: usize, control: u64) -> u64 {
    let field = control >> (FIXED_FIELD_BITS * index);
    let bit = |field_bit: u64, select_bit: u64| if field & field_bit != 0 { select_bit } else { 0 };
    let enable = bit(FIXED_SYSTEM | FIXED_USER, ENABLE);
    event
        | bit(FIXED_SYSTEM, SYSTEM)
        | bit(FIXED_USER, USER)
        | bit(FIXED_INTERRUPT, INTERRUPT)
        | enable
}

/// The bits of IA32_FIXED_CTR_CTRL for a fixed counter: the inverse of [`select_of_fixed`].
pub(super) fn control_of_fixed(select: u64, index: usize) -> u64 {
    let bit =
        |select_bit: u64, field_bit: u64| if select & select_bit != 0 { field_bit } else { 0 };
    let field = bit(SYSTEM, FIXED_SYSTEM) | bit(USER, FIXED_USER) | bit(INTERRUPT, FIXED_INTERRUPT);
    field << (FIXED_FIELD_BITS * index)
}

#[cfg(test)]
mod tests {
    use super::PmuRegister::{
        FixedControl, GlobalControl, GlobalReset, GlobalStatus, Select, Value,
    };
    use super::*;

    const AMD: RegisterLayout = RegisterLayout::of_vendor(Vendor::Amd);
    const INTEL: RegisterLayout = RegisterLayout::of_vendor(Vendor::Intel);

    #[test]
    fn the_registers_of_both_ranges_of_amd_are_the_same_counters() {
        for (number, register) in [
            (0xc001_0000, Some(Select(0))),
            (0xc001_0003, Some(Select(3))),
            (0xc001_0004, Some(Value(0))),
            (0xc001_0007, Some(Value(3))),
            (0xc001_0008, None),
            (0xc001_01ff, None),
            (0xc001_0200, Some(Select(0))),
            (0xc001_0201, Some(Value(0))),
            (0xc001_020a, Some(Select(5))),
            (0xc001_020b, Some(Value(5))),
            (0xc001_020c, None),
            (0x10, None),
            (0x186, None),
            (0x38f, None),
        ] {
            assert_eq!(AMD.register_of_msr(number), register, "{number:#x}");
        }
    }

    #[test]
    fn intels_registers_are_where_the_manual_has_them() {
        for (number, register) in [
            (0xc0, None),
            (0xc1, Some(Value(0))),
            (0xc8, Some(Value(7))),
            (0xc9, None),
            (0x185, None),
            (0x186, Some(Select(0))),
            (0x18d, Some(Select(7))),
            (0x18e, None),
            (0x309, Some(Value(8))),
            (0x30b, Some(Value(10))),
            (0x30c, None), // slots
            (0x345, None), // IA32_PERF_CAPABILITIES
            (0x38d, Some(FixedControl)),
            (0x38e, Some(GlobalStatus)),
            (0x38f, Some(GlobalControl)),
            (0x390, Some(GlobalReset)),
            (0x3f1, None), // IA32_PEBS_ENABLE
            (0x4c1, None), // IA32_A_PMC0
            (0xc001_0200, None),
        ] {
            assert_eq!(INTEL.register_of_msr(number), register, "{number:#x}");
        }
    }

    #[test]
    fn rdpmc_reads_fixed_counters_of_intel_by_bit_30() {
        for (layout, number, register) in [
            (AMD, 5, Some(Value(5))),
            (AMD, 6, None),
            (AMD, 1 << 30, None),
            (INTEL, 7, Some(Value(7))),
            (INTEL, 8, None),
            (INTEL, 1 << 30, Some(Value(8))),
            (INTEL, 1 << 30 | 2, Some(Value(10))),
            (INTEL, 1 << 30 | 3, None),
            (INTEL, 1 << 31, None),
        ] {
            assert_eq!(layout.register_of_rdpmc(number), register, "{number:#x}");
        }
    }

    #[test]
    fn the_leaf_announces_version_2_and_all_counters() {
        let leaf = INTEL.cpuid_leaf().unwrap();
        assert_eq!((leaf.leaf, leaf.eax), (0xa, 0x0730_0802));
        assert_eq!((leaf.ebx, leaf.ecx, leaf.edx), (0, 0, 48 << 5 | 3));
        assert_eq!(AMD.cpuid_leaf(), None);
    }

    #[test]
    fn a_field_of_the_fixed_control_is_an_event_select() {
        let select = select_of_fixed(0x3c, 1, 0xb0);
        assert_eq!(select, 0x3c | USER | SYSTEM | INTERRUPT | ENABLE);
        assert_eq!(select_of_fixed(0x3c, 0, 0xb0), 0x3c);
        for field in [0, 1, 2, 3, 8, 9, 0xa, 0xb] {
            let control = field << 8;
            assert_eq!(control_of_fixed(select_of_fixed(0xc0, 2, control), 2), control);
        }
    }

    #[test]
    fn intels_general_counters_are_written_in_32_bits() {
        assert_eq!(INTEL.value_after_write(0, 0x8000_0000), 0xffff_8000_0000);
        assert_eq!(INTEL.value_after_write(7, 0xffff_7fff_ffff), 0x7fff_ffff);
        assert_eq!(INTEL.value_after_write(8, 0x8000_0000), 0x8000_0000);
        assert_eq!(AMD.value_after_write(0, u64::MAX), VALUE_MASK);
    }

    #[test]
    fn only_amd_has_events_of_twelve_bits() {
        let select = 0xf << 32 | 0x02;
        assert_eq!(AMD.event_of_select(select), Some(Event::L1dLoadMisses));
        assert_eq!(INTEL.event_of_select(select), None);
        assert_eq!(INTEL.event_of_select(0x02fe), Some(Event::L1dLoadMisses));
        assert_eq!(INTEL.event_of_select(0x02fe | EDGE), None);
    }
}
