//! Compares the probes' counts with the kernel's own, which come from two sources: /proc/interrupts and /proc/softirqs,
//! read around each edge of a window, give bounds; the counters that the BPF gates read at the edges are exact.
//!
//! `bench.rs` calls [`compare`] for each CPU after a window. `selfbench` uses the readings of the files.

use std::collections::BTreeSet;

use attribution::context::{SOFTIRQS, VECTORS};
use lab::handlers::{ALL_DEVICES, Agreement};

use crate::bpf::kernel_counters::{VECTOR_COUNTERS, vector_counter};
use crate::bpf::layout::{
    COUNTER_ABSENT, COUNTER_DEVICES, CpuState, KEY_IRQ, KEY_SOFTIRQ, KEY_VECTOR, Row,
};
use crate::host::interrupts::{InterruptLine, Interrupts, read_interrupts, read_softirqs};
use crate::host::{Root, irq_threads};

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

    /// Whether an interrupt of some line has several handlers.
    pub(crate) fn has_shared_actions(&self) -> bool {
        self.interrupts.lines.iter().any(|line| line.actions.len() > 1)
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

/// The vectors that a line of /proc/interrupts counts. The kernel counts each where its tracepoint
/// fires (arch/x86/kernel/{irq,smp}.c, kernel/apic/apic.c).
pub(crate) const LINES_OF_VECTORS: [(&str, &[&str]); 9] = [
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

/// Largest difference of a softirq's counts that is no error. The kernel counts a softirq just before its tracepoint
/// fires, with interrupts on, so a gate may open or close in between.
pub(crate) const SOFTIRQ_EDGE_MAX: u64 = 1;

/// The probes' counts on one CPU after a window.
pub struct CpuCounts<'a> {
    pub cpu: u32,
    /// The CPU's state after the window.
    pub state: &'a CpuState,
    pub rows: Vec<&'a Row>,
    /// Whether a key has a probe.
    pub has_probe: &'a dyn Fn(u32) -> bool,
    /// IRQ lines of nested threaded interrupts ([`nested_threaded_lines`]).
    pub nested_threaded: &'a BTreeSet<u32>,
}

impl CpuCounts<'_> {
    /// Entries of a key in the window: spans that closed, were abandoned, or are open. `includes_shared`: also counts
    /// rows of further handlers of a shared IRQ line, which the kernel counts once.
    fn entries(&self, key: u32, includes_shared: bool) -> u64 {
        let rows =
            self.rows.iter().filter(|row| row.key == key && (includes_shared || row.shared == 0));
        let depth = (self.state.depth as usize).min(self.state.frames.len());
        let open = self.state.frames[..depth].iter().filter(|frame| frame.key == key).count();
        rows.map(|row| row.count + row.abandoned).sum::<u64>() + open as u64
    }

    /// Entries of all keys together. `None` if a key has no probe. `shared`: the keys of IRQ lines with several handlers.
    fn counted_entries(&self, keys: &[u32], shared: &BTreeSet<u32>) -> Option<u64> {
        let all_have_probes = keys.iter().all(|key| (self.has_probe)(*key));
        // A line that is not shared may have had one handler after another.
        let entries = |key: &u32| self.entries(*key, !shared.contains(key));
        all_have_probes.then(|| keys.iter().map(entries).sum())
    }

    /// The increase of a kernel counter over the window, as the gates read it. `None` if a gate could not read the
    /// counter. The kernel's counter of device interrupts has 64 bits, all others have 32 bits.
    fn exact(&self, counter: usize) -> Option<u64> {
        let (first, last) = (self.state.kernel_armed[counter], self.state.kernel_disarmed[counter]);
        if first == COUNTER_ABSENT || last == COUNTER_ABSENT {
            return None;
        }
        if counter == COUNTER_DEVICES {
            return Some(last.wrapping_sub(first));
        }
        Some(u64::from((last as u32).wrapping_sub(first as u32)))
    }
}

/// Parts of the names of interrupt controllers that interrupt a CPU directly, on x86 and Arm.
const CONTROLLERS_OF_CPUS: [&str; 8] =
    ["APIC", "MSI", "PIC", "HPET", "DMAR", "GIC", "xen", "Hyper-V"];

/// The IRQ lines of nested threaded interrupts, for instance of a GPIO expander on an I2C bus. The thread of the
/// controller's IRQ line calls their handlers (kernel/irq/chip.c, `handle_nested_irq`). The kernel counts these
/// interrupts, but no tracepoint fires for them.
///
/// debugfs says which lines are nested. Without debugfs, a line counts as nested if its controller does not interrupt a
/// CPU directly and the line has no IRQ thread. The result matters only for lines whose interrupts the probes do not see.
#[must_use]
pub fn nested_threaded_lines(root: &Root, files: &Bracket) -> BTreeSet<u32> {
    let threads: BTreeSet<u32> = irq_threads(root).iter().map(|thread| thread.irq).collect();
    let is_nested = |line: &&InterruptLine| {
        let Some(irq) = line.number else { return false };
        if line.actions.is_empty() {
            return false;
        }
        if let Some(text) = root.text(format!("sys/kernel/debug/irq/irqs/{irq}")) {
            return text.contains("_IRQ_NESTED_THREAD");
        }
        let controller = line.description.split_whitespace().next().unwrap_or_default();
        let interrupts_cpu = CONTROLLERS_OF_CPUS.iter().any(|word| controller.contains(word));
        !controller.is_empty() && !interrupts_cpu && !threads.contains(&irq)
    };
    let lines = files.after.interrupts.lines.iter();
    lines.filter(is_nested).filter_map(|line| line.number).collect()
}

/// Upper bound of the nested threaded interrupts that the kernel counted between two readings of the files. `None` if the
/// kernel freed such a line meanwhile, whose counts are lost then.
pub(crate) fn nested_threaded_max(root: &Root, [before, after]: [&Files; 2]) -> Option<u64> {
    let lines_of = |files: &Files| {
        let bracket = Bracket { after: files.clone(), ..Bracket::default() };
        nested_threaded_lines(root, &bracket)
    };
    let nested = lines_of(after);
    let renewed = after.interrupts.renewed_lines(&before.interrupts);
    if renewed.iter().any(|irq| nested.contains(irq) || lines_of(before).contains(irq)) {
        return None;
    }
    let increase = after.interrupts.since(&before.interrupts);
    let is_nested = |line: &&InterruptLine| line.number.is_some_and(|irq| nested.contains(&irq));
    Some(increase.lines.iter().filter(is_nested).map(InterruptLine::total).sum())
}

/// Minimum and maximum of the kernel's count of a line on a CPU in the window, by the readings around its edges. `pick`
/// chooses the file. `None`: the later reading lacks the line. A line that only the earlier reading lacks is new, and
/// counts from 0. If the kernel made an IRQ line again, its counts until then are lost, and there is no maximum.
fn bounds(
    bracket: &Bracket,
    pick: fn(&Files) -> &Interrupts,
    line: &str,
    cpu: u32,
) -> [Option<u64>; 2] {
    let increase = |later: &Files, earlier: &Files| pick(later).increase(pick(earlier), line, cpu);
    let is_renewed = pick(&bracket.after).is_renewed(pick(&bracket.before), line);
    let max = if is_renewed { None } else { increase(&bracket.after, &bracket.before) };
    [increase(&bracket.closing, &bracket.opened), max]
}

/// Whether the kernel's counters that a gate read when it opened and closed a window on a CPU lie between the readings
/// of the files before and after the window. If not, the gate read other memory, and its values must not be used.
#[must_use]
pub(crate) fn counters_agree_with_files(
    cpu: u32,
    [opened, closed]: [&[u64]; 2],
    [before, after]: [&Files; 2],
) -> bool {
    let is_between = |counters: &[u64], index: usize, first: Option<u64>, last: Option<u64>| {
        let value = counters.get(index).copied().filter(|value| *value != COUNTER_ABSENT);
        match (value, first, last) {
            (Some(value), Some(first), Some(last)) => {
                (value as u32).wrapping_sub(first as u32)
                    <= (last as u32).wrapping_sub(first as u32)
            }
            _ => true,
        }
    };
    let vectors = VECTOR_COUNTERS.iter().enumerate().map(|(number, (_, label))| {
        let count = |files: &Files| files.interrupts.count(label, cpu);
        (crate::bpf::layout::COUNTER_VECTORS + number, count(before), count(after))
    });
    let softirqs = SOFTIRQS.iter().enumerate().map(|(number, label)| {
        let count = |files: &Files| files.softirqs.count(label, cpu);
        (number, count(before), count(after))
    });
    let mut lines = vectors.chain(softirqs);
    lines.all(|(index, first, last)| {
        [opened, closed].into_iter().all(|counters| is_between(counters, index, first, last))
    })
}

/// Whether the kernel's counters that the gates read lie between the readings of the files around each gate. If not, a
/// gate read other memory, and its values must not be used.
#[must_use]
pub fn gate_agrees_with_files(cpu: u32, state: &CpuState, bracket: &Bracket) -> bool {
    let is_between =
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
    // A CPU that went offline closed its window earlier than the readings around the window's end.
    let checked_edges = if state.went_offline != 0 { 1 } else { edges.len() };
    edges[..checked_edges].iter().all(|(counters, first, last)| {
        let vectors_agree = VECTOR_COUNTERS.iter().all(|(_, label)| {
            is_between(vector_counter(*counters, label), line(first, label), line(last, label))
        });
        let softirqs_agree = SOFTIRQS.iter().enumerate().all(|(number, label)| {
            let value = Some(counters[number]).filter(|value| *value != COUNTER_ABSENT);
            is_between(value, softirq(first, label), softirq(last, label))
        });
        vectors_agree && softirqs_agree
    })
}

/// The keys of IRQ lines that had several handlers at the same time, before the window or after it.
fn shared_keys(bracket: &Bracket) -> BTreeSet<u32> {
    let lines =
        [&bracket.before, &bracket.after].into_iter().flat_map(|files| &files.interrupts.lines);
    let shared = lines.filter(|line| line.actions.len() > 1);
    shared.filter_map(|line| line.number).map(|irq| KEY_IRQ + irq).collect()
}

/// Compares the counts of one CPU: the sum of its device interrupts, then each IRQ line, each vector with a counter,
/// and each softirq. `use_exact`: the gates' counters are valid.
#[must_use]
pub fn compare(counts: &CpuCounts<'_>, bracket: &Bracket, use_exact: bool) -> Vec<Agreement> {
    let cpu = counts.cpu;
    let exact = |counter: usize| if use_exact { counts.exact(counter) } else { None };
    // A CPU that went offline closed its window, with interrupts on, before the files were read.
    let closed_early = counts.state.went_offline != 0;
    let bounds_of = |pick, line: &str| {
        let [min, max] = bounds(bracket, pick, line, cpu);
        [if closed_early { None } else { min }, max]
    };
    let interrupts = |line: &str| bounds_of(|files: &Files| &files.interrupts, line);
    let mut lines = Vec::new();
    let mut add =
        |line: &str, name: &str, counted, kernel_exact, [min, max]: [Option<u64>; 2], edge_max| {
            lines.push(Agreement {
                cpu,
                line: line.to_owned(),
                name: name.to_owned(),
                counted,
                kernel_exact,
                kernel_min: min,
                kernel_max: max,
                edge_max: edge_max + u64::from(closed_early),
            });
        };
    let irqs: Vec<u32> =
        bracket.after.interrupts.lines.iter().filter_map(|line| line.number).collect();
    let irq_keys: Vec<u32> = irqs.iter().map(|irq| KEY_IRQ + irq).collect();
    let shared = shared_keys(bracket);
    // Nested threaded interrupts count in the kernel's sum, but no probe sees them. If a CPU or a line vanished, their number
    // is unknown, and the sum cannot be compared.
    let is_unseen = |irq: u32| {
        counts.nested_threaded.contains(&irq) && counts.entries(KEY_IRQ + irq, true) == 0
    };
    let unseen = irqs.iter().filter(|irq| is_unseen(**irq));
    let unseen_max: Option<u64> = unseen.map(|irq| interrupts(&irq.to_string())[1]).sum();
    add(
        ALL_DEVICES,
        "all IRQ lines",
        counts.counted_entries(&irq_keys, &shared),
        unseen_max.and_then(|_| exact(COUNTER_DEVICES)),
        [None; 2],
        unseen_max.unwrap_or(0),
    );
    for line in &bracket.after.interrupts.lines {
        let Some(irq) = line.number else { continue };
        let counted =
            if is_unseen(irq) { None } else { counts.counted_entries(&[KEY_IRQ + irq], &shared) };
        add(&line.label, &line.actions.join(","), counted, None, interrupts(&line.label), 0);
    }
    for (_, label) in VECTOR_COUNTERS {
        let vectors = LINES_OF_VECTORS.iter().find(|(line, _)| *line == label);
        let keys = |names: &[&str]| -> Vec<u32> {
            let position = |name: &&str| VECTORS.iter().position(|vector| vector == name);
            names.iter().filter_map(position).map(|vector| KEY_VECTOR + vector as u32).collect()
        };
        let counted = vectors.and_then(|(_, names)| counts.counted_entries(&keys(names), &shared));
        let name = vectors.map_or(String::new(), |(_, names)| names.join(", "));
        let counter = VECTOR_COUNTERS.iter().position(|(_, name)| *name == label);
        let kernel =
            counter.and_then(|counter| exact(crate::bpf::layout::COUNTER_VECTORS + counter));
        add(label, &name, counted, kernel, interrupts(label), 0);
    }
    for (number, name) in SOFTIRQS.iter().enumerate() {
        let counted = counts.counted_entries(&[KEY_SOFTIRQ + number as u32], &shared);
        let files = bounds_of(|files: &Files| &files.softirqs, name);
        add(name, "softirq", counted, exact(number), files, SOFTIRQ_EDGE_MAX);
    }
    lines
}

#[cfg(test)]
mod tests {
    use zerocopy::FromZeros;

    use super::*;
    use crate::host::interrupts::parse_interrupts;
    use crate::host::plant;

    const LINES: &str = "           CPU0
 36:  {irq}  PCI-MSIX-0000:00:02.0   1-edge      nvme0q1
 90:  {nested}  pca953x   3-edge      key
 91:  7  pca953x   4-edge
 92:  {threaded}  pca953x   5-edge      lid
";

    fn files(irq: u64, nested: u64, threaded: u64) -> Files {
        let text = LINES.replace("{irq}", &irq.to_string());
        let text = text.replace("{nested}", &nested.to_string());
        let text = text.replace("{threaded}", &threaded.to_string());
        Files { interrupts: parse_interrupts(&text), ..Files::default() }
    }

    /// The kernel counts 100 interrupts of a disk, and 20 nested interrupts that the probes do not see.
    #[test]
    fn nested_threaded_interrupts_are_not_undelivered() {
        let directory = tempfile::tempdir().unwrap();
        let write_file = |path: &str, text: &str| plant(directory.path(), path, text);
        write_file("proc/60/comm", "irq/92-lid\n");
        write_file("proc/60/cmdline", "");
        let root = Root::new(directory.path());
        let bracket = Bracket {
            before: files(0, 0, 0),
            opened: files(0, 0, 0),
            closing: files(100, 20, 0),
            after: files(100, 20, 0),
        };
        let mut state = CpuState::new_zeroed();
        state.kernel_disarmed[COUNTER_DEVICES] = 120;
        let mut row = Row::new_zeroed();
        (row.key, row.count) = (KEY_IRQ + 36, 100);
        let undelivered = |nested_threaded: &BTreeSet<u32>| {
            let has_probe = &|key| key >= KEY_IRQ;
            let counts =
                CpuCounts { cpu: 0, state: &state, rows: vec![&row], has_probe, nested_threaded };
            let agreement = compare(&counts, &bracket, true);
            let counted = |label: &str| {
                agreement.iter().find(|line| line.line == label).and_then(|line| line.counted)
            };
            let lines = ["36", "90", "92"].map(counted);
            let sample = lab::handlers::WindowSample { agreement, ..Default::default() };
            (sample.undelivered(), lines)
        };
        assert_eq!(undelivered(&BTreeSet::new()).0, Some(20), "without nested lines");
        let nested = nested_threaded_lines(&root, &bracket);
        assert_eq!(nested, BTreeSet::from([90]));
        assert_eq!(undelivered(&nested), (Some(0), [Some(100), None, Some(0)]));
        // debugfs takes precedence: it says that line 90 is not nested.
        write_file(
            "sys/kernel/debug/irq/irqs/90",
            "handler:  handle_edge_irq\nstatus:   0x00000403\n",
        );
        assert_eq!(nested_threaded_lines(&root, &bracket), BTreeSet::new());
        write_file(
            "sys/kernel/debug/irq/irqs/90",
            "status:   0x00008000\n            _IRQ_NESTED_THREAD\n",
        );
        assert_eq!(nested_threaded_lines(&root, &bracket), BTreeSet::from([90]));
    }

    /// The disk's CPU goes offline after 100 interrupts, comes back and has 50 more. The files do
    /// not show the count at the time when it went offline.
    #[test]
    fn the_files_do_not_bound_the_counts_of_a_cpu_that_went_offline() {
        let bracket = Bracket {
            before: files(0, 0, 0),
            opened: files(0, 0, 0),
            closing: files(150, 0, 0),
            after: files(150, 0, 0),
        };
        let mut state = CpuState::new_zeroed();
        state.kernel_disarmed[COUNTER_DEVICES] = 101;
        let mut row = Row::new_zeroed();
        (row.key, row.count) = (KEY_IRQ + 36, 100);
        let lines = |state: &CpuState| {
            let counts = CpuCounts {
                cpu: 0,
                state,
                rows: vec![&row],
                has_probe: &|key| key >= KEY_IRQ,
                nested_threaded: &BTreeSet::new(),
            };
            let lines = compare(&counts, &bracket, true);
            let line = |label: &str| lines.iter().find(|line| line.line == label).cloned().unwrap();
            (line("devices"), line("36"))
        };
        assert_eq!(lines(&state).1.kernel_min, Some(150));
        state.went_offline = 1;
        let (devices, irq) = lines(&state);
        assert_eq!((irq.kernel_min, irq.kernel_max, irq.edge_max), (None, Some(150), 1));
        let sample = lab::handlers::WindowSample { agreement: vec![devices], ..Default::default() };
        assert_eq!(sample.undelivered(), Some(0), "one may come while the counters are read");
    }
    /// The drivers of the disk and the key are bound again in the window, so the kernel makes their lines again. The old
    /// lines had counts of 1000 and 50.
    #[test]
    fn a_line_that_is_made_again_has_no_maximum() {
        let bracket = Bracket {
            before: files(1000, 50, 0),
            opened: files(1001, 50, 0),
            closing: files(12, 3, 4),
            after: files(13, 3, 4),
        };
        let mut state = CpuState::new_zeroed();
        state.kernel_disarmed[COUNTER_DEVICES] = 40;
        let has_probe = &|key| key >= KEY_IRQ;
        let lines = |nested_threaded: &BTreeSet<u32>| {
            let rows = Vec::new();
            let counts = CpuCounts { cpu: 0, state: &state, rows, has_probe, nested_threaded };
            let lines = compare(&counts, &bracket, true);
            ["devices", "36", "92"]
                .map(|label| lines.iter().find(|line| line.line == label).cloned().unwrap())
        };
        let [devices, disk, lid] = lines(&BTreeSet::new());
        assert_eq!((disk.kernel_min, disk.kernel_max), (Some(12), None));
        assert_eq!((lid.kernel_min, lid.kernel_max), (Some(4), Some(4)));
        assert_eq!(devices.kernel_exact, Some(40));
        let [devices, ..] = lines(&BTreeSet::from([90]));
        assert_eq!(devices.kernel_exact, None, "how many were nested is unknown");
        let directory = tempfile::tempdir().unwrap();
        let root = Root::new(directory.path());
        assert_eq!(nested_threaded_max(&root, [&bracket.before, &bracket.after]), None);
        assert_eq!(nested_threaded_max(&root, [&bracket.before, &bracket.opened]), Some(0));
    }

    /// The disk's driver requests its line again in the window. The second action counts in a row of its own, which
    /// on a line with two actions at the same time would count each interrupt twice.
    #[test]
    fn a_handler_that_follows_another_on_its_line_counts_in_the_line() {
        let counted = |actions: &str| {
            let text = LINES.replace("nvme0q1", actions);
            let parsed = parse_interrupts(&text.replace("{irq}", "150"));
            let files = Files { interrupts: parsed, ..Files::default() };
            let bracket = Bracket { after: files, ..Bracket::default() };
            let (mut first, mut second) = (Row::new_zeroed(), Row::new_zeroed());
            (first.key, first.count) = (KEY_IRQ + 36, 100);
            (second.key, second.count, second.shared) = (KEY_IRQ + 36, 50, 1);
            let counts = CpuCounts {
                cpu: 0,
                state: &CpuState::new_zeroed(),
                rows: vec![&first, &second],
                has_probe: &|key| key >= KEY_IRQ,
                nested_threaded: &BTreeSet::new(),
            };
            let lines = compare(&counts, &bracket, false);
            lines.iter().find(|line| line.line == "36").and_then(|line| line.counted)
        };
        assert_eq!(counted("nvme0q1"), Some(150));
        assert_eq!(counted("nvme0q1, eth0"), Some(100));
    }
}
