//! Where the kernel keeps the counters that /proc/interrupts and /proc/softirqs print. The loaders of `handlers` and
//! `services` pass these offsets to the BPF programs.
//!
//! The gate (bpf/gate.h) reads the counters on their CPU, with interrupts off, when a window opens and closes.
//! Therefore irqlab's counts can be compared exactly with the kernel's. Reading the files before and after a window is
//! less exact. The bench checks the gate's values against the files before it uses them
//! ([`gate_agrees_with_files`](crate::handlers::agreement::gate_agrees_with_files)).

use std::ffi::OsStr;

use libbpf_rs::Btf;
use libbpf_rs::btf::types::{Composite, DataSec, MemberAttr, Struct, Typedef, Var};
use libbpf_rs::btf::{BtfType, ReferencesType};

use super::layout::{
    COUNTER_ABSENT, COUNTER_VECTORS, OFFSET_KSTAT, OFFSET_PENDING, OFFSET_PENDING_TIMERS,
    OFFSET_PREEMPT, OFFSET_RUNQUEUES, OFFSET_VECTORS, PERCPU_OFFSETS,
};

/// Fields of `irq_cpustat_t` (arch/x86/include/asm/hardirq.h), each with its label in
/// /proc/interrupts (arch/x86/kernel/irq.c, `arch_show_interrupts`). The order is that of the gate's
/// counters from [`COUNTER_VECTORS`] on.
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

/// The offsets, in each CPU's per-CPU area, of the kernel's variables that the programs read. [`OFFSET_RUNQUEUES`] and
/// the other `OFFSET_*` are the indexes. -1: this kernel has no such variable. All are -1 without BTF.
#[must_use]
pub fn offsets_in_percpu_area() -> [i32; PERCPU_OFFSETS] {
    let mut offsets = [-1; PERCPU_OFFSETS];
    let Ok(btf) = Btf::from_vmlinux() else { return offsets };
    let Some(section) = btf.type_by_name::<DataSec<'_>>(".data..percpu") else { return offsets };
    for entry in section.iter() {
        let Some(variable) = btf.type_by_id::<Var<'_>>(entry.ty) else { continue };
        let Ok(offset) = i32::try_from(entry.offset) else { continue };
        match variable.name().and_then(OsStr::to_str) {
            Some("runqueues") => offsets[OFFSET_RUNQUEUES] = offset,
            Some("kstat") => offsets[OFFSET_KSTAT] = offset,
            // From Linux 6.15 on.
            Some("__softirq_pending") => offsets[OFFSET_PENDING] = offset,
            Some("pending_timer_softirq") => offsets[OFFSET_PENDING_TIMERS] = offset,
            // Up to Linux 6.1, and from 6.15 on.
            Some("__preempt_count") => offsets[OFFSET_PREEMPT] = offset,
            // Linux 6.2 to 6.14.
            Some("pcpu_hot") => {
                let Some(hot) = btf.type_by_name::<Composite<'_>>("pcpu_hot") else { continue };
                let offset_of =
                    |name| member_offset(&btf, &hot, name).map_or(-1, |field| offset + field);
                offsets[OFFSET_PENDING] = offset_of("softirq_pending");
                offsets[OFFSET_PREEMPT] = offset_of("preempt_count");
            }
            Some("irq_stat") => {
                if let Some(field) = irq_stat_pending(&btf) {
                    offsets[OFFSET_PENDING] = offset + field;
                }
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

/// Byte offset of the mask of pending softirqs in `irq_cpustat_t`. `None` from Linux 6.2 on: the structure
/// lacks the mask there.
fn irq_stat_pending(btf: &Btf<'_>) -> Option<i32> {
    let target: BtfType<'_> = btf.type_by_name::<Typedef<'_>>("irq_cpustat_t")?.referenced_type();
    member_offset(btf, &Composite::try_from(target).ok()?, "__softirq_pending")
}

/// Byte offset of a member of a structure, also inside of its structures and unions without a name. `None` without such
/// a member, and for a bit field.
fn member_offset(btf: &Btf<'_>, composite: &Composite<'_>, name: &str) -> Option<i32> {
    composite.iter().find_map(|member| {
        let MemberAttr::Normal { offset } = member.attr else { return None };
        let offset = i32::try_from(offset / 8).ok()?;
        match member.name {
            Some(found) if !found.is_empty() => (found == OsStr::new(name)).then_some(offset),
            _ => {
                let inner = btf.type_by_id::<BtfType<'_>>(member.ty)?;
                Some(offset + member_offset(btf, &Composite::try_from(inner).ok()?, name)?)
            }
        }
    })
}

/// Whether the kernel's structure has this member.
pub(super) fn has_member(btf: &Btf<'_>, structure: &str, member: &str) -> bool {
    let found = btf.type_by_name::<Composite<'_>>(structure);
    found.is_some_and(|structure| member_offset(btf, &structure, member).is_some())
}

/// Byte offsets of the fields of `irq_cpustat_t`, in the order of [`VECTOR_COUNTERS`].
/// `None`: this kernel has no such field.
fn irq_stat_fields(btf: &Btf<'_>) -> Vec<Option<i32>> {
    let absent = vec![None; VECTOR_COUNTERS.len()];
    let Some(typedef) = btf.type_by_name::<Typedef<'_>>("irq_cpustat_t") else { return absent };
    let target: BtfType<'_> = typedef.referenced_type();
    let Ok(fields) = Struct::try_from(target) else { return absent };
    let offset_of = |field: &str| {
        let is_field = |name: &OsStr| name == OsStr::new(field);
        let member = fields.iter().find(|member| member.name.is_some_and(is_field));
        match member?.attr {
            MemberAttr::Normal { offset } => i32::try_from(offset / 8).ok(),
            MemberAttr::BitField { .. } => None,
        }
    };
    VECTOR_COUNTERS.iter().map(|(field, _)| offset_of(field)).collect()
}

/// The counter of the line `label` of /proc/interrupts, from the counters that the gate read. `None` if the label is
/// not in [`VECTOR_COUNTERS`], or this kernel lacks the counter.
#[must_use]
pub fn vector_counter(counters: &[u64], label: &str) -> Option<u64> {
    let position = VECTOR_COUNTERS.iter().position(|(_, name)| *name == label)?;
    counters.get(COUNTER_VECTORS + position).copied().filter(|&value| value != COUNTER_ABSENT)
}
