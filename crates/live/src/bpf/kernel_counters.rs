//! Where the kernel keeps the counters that /proc/interrupts and /proc/softirqs print.
//!
//! The gate reads them on the CPU itself, with interrupts off, at the instant at which a window
//! opens or closes. So a window's counts can be compared exactly with the kernel's, which reading
//! the files before and after does not allow. The bench checks the gate's values against the files
//! before it uses them
//! ([`gate_agrees_with_files`](crate::handlers::agreement::gate_agrees_with_files)).

use std::ffi::OsStr;

use libbpf_rs::Btf;
use libbpf_rs::btf::types::{DataSec, MemberAttr, Struct, Typedef, Var};
use libbpf_rs::btf::{BtfType, ReferencesType};

use super::layout::{
    COUNTER_ABSENT, COUNTER_VECTORS, OFFSET_KSTAT, OFFSET_RUNQUEUES, OFFSET_VECTORS, PERCPU_OFFSETS,
};

/// Field of `irq_cpustat_t` (arch/x86/include/asm/hardirq.h) and its label in /proc/interrupts
/// (arch/x86/kernel/irq.c, `arch_show_interrupts`).
pub const VECTOR_COUNTERS: [(&str, &str); PERCPU_OFFSETS - OFFSET_VECTORS] = [
    ("apic_timer_irqs", "LOC"),
    ("irq_resched_count", "RES"),
    ("irq_call_count", "CAL"),
    ("apic_irq_work_irqs", "IWI"),
    ("x86_platform_ipis", "PLT"),
    ("irq_spurious_count", "SPU"),
    ("irq_thermal_count", "TRM"),
    ("irq_threshold_count", "THR"),
    ("irq_deferred_error_count", "DFR"),
    ("irq_hv_callback_count", "HYP"),
    ("apic_perf_irqs", "PMI"),
    ("irq_tlb_count", "TLB"),
    ("__nmi_count", "NMI"),
    ("icr_read_retry_count", "RTR"),
];

/// The offsets for [`super::layout::Config::percpu_offsets`]; all negative without BTF.
#[must_use]
pub fn percpu_offsets() -> [i32; PERCPU_OFFSETS] {
    let mut offsets = [-1; PERCPU_OFFSETS];
    let Ok(btf) = Btf::from_vmlinux() else { return offsets };
    let Some(area) = btf.type_by_name::<DataSec<'_>>(".data..percpu") else { return offsets };
    for info in area.iter() {
        let Some(variable) = btf.type_by_id::<Var<'_>>(info.ty) else { continue };
        let Ok(offset) = i32::try_from(info.offset) else { continue };
        match variable.name().and_then(OsStr::to_str) {
            Some("runqueues") => offsets[OFFSET_RUNQUEUES] = offset,
            Some("kstat") => offsets[OFFSET_KSTAT] = offset,
            Some("irq_stat") => {
                let fields = irq_stat_fields(&btf);
                for (position, field) in fields.into_iter().enumerate() {
                    offsets[OFFSET_VECTORS + position] = field.map_or(-1, |field| offset + field);
                }
            }
            _ => {}
        }
    }
    offsets
}

/// Byte offsets of the fields of `irq_cpustat_t`, in the order of [`VECTOR_COUNTERS`].
fn irq_stat_fields(btf: &Btf<'_>) -> Vec<Option<i32>> {
    let absent = vec![None; VECTOR_COUNTERS.len()];
    let Some(typedef) = btf.type_by_name::<Typedef<'_>>("irq_cpustat_t") else { return absent };
    let target: BtfType<'_> = typedef.referenced_type();
    let Ok(fields) = Struct::try_from(target) else { return absent };
    let offset_of = |wanted: &str| {
        let member = fields.iter().find(|m| m.name.is_some_and(|name| name == OsStr::new(wanted)));
        match member?.attr {
            MemberAttr::Normal { offset } => i32::try_from(offset / 8).ok(),
            MemberAttr::BitField { .. } => None,
        }
    };
    VECTOR_COUNTERS.iter().map(|(field, _)| offset_of(field)).collect()
}

/// The counter of the line `label` of /proc/interrupts, from the counters that the gate read.
#[must_use]
pub fn vector_counter(counters: &[u64], label: &str) -> Option<u64> {
    let position = VECTOR_COUNTERS.iter().position(|(_, name)| *name == label)?;
    counters.get(COUNTER_VECTORS + position).copied().filter(|&value| value != COUNTER_ABSENT)
}
