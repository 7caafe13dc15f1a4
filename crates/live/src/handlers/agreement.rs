//! Compares the probes' counts with the kernel's.

use attribution::context::{SOFTIRQS, VECTORS};
use lab::handlers::Agreement;

use crate::bpf::kernel_counters::{VECTOR_COUNTERS, vector_counter};
use crate::bpf::layout::{
    COUNTER_ABSENT, COUNTER_DEVICES, CpuState, KEY_IRQ, KEY_SOFTIRQ, KEY_VECTOR, Row,
};
use crate::host::Root;
use crate::host::interrupts::{Interrupts, read_interrupts, read_softirqs};

/// /proc/interrupts and /proc/softirqs at one moment.
#[derive(Clone, Debug, Default)]
pub struct Files {
    interrupts: Interrupts,
    softirqs: Interrupts,
}

impl Files {
    /// Reads both files; an unreadable file gives no bounds.
    #[must_use]
    pub fn read(root: &Root) -> Self {
        Files {
            interrupts: read_interrupts(root).unwrap_or_default(),
            softirqs: read_softirqs(root).unwrap_or_default(),
        }
    }
}

/// The files around the two edges of a window.
#[derive(Clone, Debug, Default)]
pub struct Bracket {
    /// Before the first gate opened.
    pub before: Files,
    /// After the last gate opened.
    pub opened: Files,
    /// Before the first gate closed.
    pub closing: Files,
    /// After the last gate closed.
    pub after: Files,
}

/// The vectors that a line of /proc/interrupts counts (arch/x86/kernel/{irq,smp}.c,
/// kernel/apic/apic.c: each counts where its tracepoint fires).
const LINES_OF_VECTORS: [(&str, &[&str]); 9] = [
    ("LOC", &["local_timer"]),
    ("RES", &["reschedule"]),
    ("CAL", &["call_function", "call_function_single"]),
    ("IWI", &["irq_work"]),
    ("PLT", &["x86_platform_ipi"]),
    ("SPU", &["spurious_apic"]),
    ("TRM", &["thermal_apic"]),
    ("THR", &["threshold_apic"]),
    ("DFR", &["deferred_error_apic"]),
];

/// The kernel counts a softirq just before its tracepoint fires, with interrupts on: a gate may come in
/// between, at each edge.
const SOFTIRQ_EDGE_MAX: u64 = 1;

/// The counts of one CPU.
pub struct CpuCounts<'a> {
    /// The CPU.
    pub cpu: u32,
    /// Its state after the window.
    pub state: &'a CpuState,
    /// Its rows.
    pub rows: Vec<&'a Row>,
    /// Keys for which there is a probe.
    pub has_probe: &'a dyn Fn(u32) -> bool,
}

impl CpuCounts<'_> {
    /// Entries of a key in the window: spans that closed, were abandoned, or are still open.
    fn entries(&self, key: u32, with_shared: bool) -> u64 {
        let rows =
            self.rows.iter().filter(|row| row.key == key && (with_shared || row.shared == 0));
        let depth = (self.state.depth as usize).min(self.state.frames.len());
        let open = self.state.frames[..depth].iter().filter(|frame| frame.key == key).count();
        rows.map(|row| row.count + row.abandoned).sum::<u64>() + open as u64
    }

    fn counted(&self, keys: &[u32]) -> Option<u64> {
        let all = keys.iter().all(|key| (self.has_probe)(*key));
        all.then(|| keys.iter().map(|key| self.entries(*key, false)).sum())
    }

    /// The kernel's counter over the window; 32 bits wide in the kernel but for device interrupts.
    fn exact(&self, at: usize) -> Option<u64> {
        let (first, last) = (self.state.kernel_armed[at], self.state.kernel_disarmed[at]);
        if first == COUNTER_ABSENT || last == COUNTER_ABSENT {
            return None;
        }
        if at == COUNTER_DEVICES {
            return Some(last.wrapping_sub(first));
        }
        Some(u64::from((last as u32).wrapping_sub(first as u32)))
    }
}

/// Minimum and maximum count of a line on a CPU that the files allow.
fn bounds(
    bracket: &Bracket,
    pick: fn(&Files) -> &Interrupts,
    line: &str,
    cpu: u32,
) -> [Option<u64>; 2] {
    let at = |files: &Files| pick(files).count(line, cpu);
    let difference = |last: &Files, first: &Files| {
        let (last, first) = (at(last)?, at(first).unwrap_or(0));
        Some(u64::from((last as u32).wrapping_sub(first as u32)))
    };
    [difference(&bracket.closing, &bracket.opened), difference(&bracket.after, &bracket.before)]
}

/// Whether the kernel's counters as the gate read them lie between the files' readings around it. If
/// not, the counters are elsewhere, and their values must not be used.
#[must_use]
pub fn gate_agrees_with_files(cpu: u32, state: &CpuState, bracket: &Bracket) -> bool {
    let between =
        |value: Option<u64>, first: Option<u64>, last: Option<u64>| match (value, first, last) {
            (Some(value), Some(first), Some(last)) => {
                (value as u32).wrapping_sub(first as u32)
                    <= (last as u32).wrapping_sub(first as u32)
            }
            _ => true,
        };
    let line = |files: &Files, label: &str| files.interrupts.count(label, cpu);
    let softirq = |files: &Files, label: &str| files.softirqs.count(label, cpu);
    let edges = [
        (&state.kernel_armed, &bracket.before, &bracket.opened),
        (&state.kernel_disarmed, &bracket.closing, &bracket.after),
    ];
    edges.iter().all(|(counters, first, last)| {
        let vectors = VECTOR_COUNTERS.iter().all(|(_, label)| {
            between(vector_counter(*counters, label), line(first, label), line(last, label))
        });
        let softirqs = SOFTIRQS.iter().enumerate().all(|(at, label)| {
            let value = Some(counters[at]).filter(|value| *value != COUNTER_ABSENT);
            between(value, softirq(first, label), softirq(last, label))
        });
        vectors && softirqs
    })
}

/// Every line of both files for one CPU, and the sum of its device interrupts.
#[must_use]
pub fn compare(counts: &CpuCounts<'_>, bracket: &Bracket, use_exact: bool) -> Vec<Agreement> {
    let cpu = counts.cpu;
    let exact = |at: usize| counts.exact(at).filter(|_| use_exact);
    let interrupts = |line: &str| bounds(bracket, |files| &files.interrupts, line, cpu);
    let mut lines = Vec::new();
    let mut add = |line: &str,
                   name: &str,
                   counted,
                   kernel_exact,
                   [least, most]: [Option<u64>; 2],
                   edge_max| {
        lines.push(Agreement {
            cpu,
            line: line.to_owned(),
            name: name.to_owned(),
            counted,
            kernel_exact,
            kernel_min: least,
            kernel_max: most,
            edge_max,
        });
    };
    let irqs: Vec<u32> =
        bracket.after.interrupts.lines.iter().filter_map(|line| line.number).collect();
    let irq_keys: Vec<u32> = irqs.iter().map(|irq| KEY_IRQ + irq).collect();
    add(
        "devices",
        "all IRQ lines",
        counts.counted(&irq_keys),
        exact(COUNTER_DEVICES),
        [None; 2],
        0,
    );
    for line in &bracket.after.interrupts.lines {
        let Some(irq) = line.number else { continue };
        let counted = counts.counted(&[KEY_IRQ + irq]);
        add(&line.label, &line.actions.join(","), counted, None, interrupts(&line.label), 0);
    }
    for (_, label) in VECTOR_COUNTERS {
        let vectors = LINES_OF_VECTORS.iter().find(|(line, _)| *line == label);
        let keys = |names: &[&str]| -> Vec<u32> {
            let position = |name: &&str| VECTORS.iter().position(|vector| vector == name);
            names.iter().filter_map(position).map(|at| KEY_VECTOR + at as u32).collect()
        };
        let counted = vectors.and_then(|(_, names)| counts.counted(&keys(names)));
        let name = vectors.map_or(String::new(), |(_, names)| names.join(", "));
        let at = VECTOR_COUNTERS.iter().position(|(_, name)| *name == label);
        let kernel = at.and_then(|at| exact(crate::bpf::layout::COUNTER_VECTORS + at));
        add(label, &name, counted, kernel, interrupts(label), 0);
    }
    for (number, name) in SOFTIRQS.iter().enumerate() {
        let counted = counts.counted(&[KEY_SOFTIRQ + number as u32]);
        let files = bounds(bracket, |files| &files.softirqs, name, cpu);
        add(name, "softirq", counted, exact(number), files, SOFTIRQ_EDGE_MAX);
    }
    lines
}
