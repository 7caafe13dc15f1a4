//! Converts the rows of senders in the BPF maps (`bpf/senders.h`) to the samples of the experiment (`lab::handlers`), and
//! names their functions, call sites and contexts.

use std::collections::{BTreeMap, BTreeSet};

use attribution::context::{SOFTIRQS, VECTORS};
use attribution::key::ContextKey;
use attribution::{Context, ContextKind};
use lab::handlers::sample::SpanOverhead;
use lab::handlers::{
    CallType, ContextStats, Sender, SenderCounts, SenderEvent, SenderKey, SenderMethod, SenderStats,
};

use crate::bpf::layout::{
    KEY_NONE, SENDER_CALL, SENDER_HARDIRQ, SENDER_IPI, SENDER_IPI_TO_SEVERAL, SENDER_OTHERS,
    SENDER_RUN, SENDER_SOFTIRQ, SenderKey as RawKey, SenderRow,
};
use crate::host::{KernelFunctions, Root};

/// The callback that the kernel names for the interrupt of queued function calls.
const QUEUED_CALLS_CALLBACK: &str = "generic_smp_call_function_single_interrupt";

/// The kernel functions that the rows of senders name.
pub(super) struct SenderFunctions {
    functions: KernelFunctions,
    /// The functions that contain the call sites.
    call_sites: KernelFunctions,
    /// How many addresses have no known name.
    pub(super) unnamed: usize,
}

impl SenderFunctions {
    /// Finds the names in /proc/kallsyms.
    pub(super) fn find(root: &Root, rows: &[(RawKey, SenderRow)]) -> SenderFunctions {
        let addresses = |address: fn(&RawKey) -> u64| -> BTreeSet<u64> {
            rows.iter().map(|(key, _)| address(key)).filter(|address| *address != 0).collect()
        };
        let (called, call_sites) = (addresses(|key| key.function), addresses(|key| key.call_site));
        let functions = KernelFunctions::find(root, &called);
        let around = KernelFunctions::find_around(root, &call_sites);
        let unnamed = functions.unnamed(&called) + around.unnamed(&call_sites);
        SenderFunctions { functions, call_sites: around, unnamed }
    }
}

/// The time that a pair of probes adds to a run, and its error, ns.
#[derive(Clone, Copy, Debug)]
pub(super) struct RunOverhead {
    mean_ns: u64,
    error_ns: u64,
}

impl RunOverhead {
    /// The overhead of the spans of the function call vectors in this window, which the probes have learned. Functions are
    /// called in them. Without such spans: the overhead `warm_ns` in warm caches.
    pub(super) fn of_window(contexts: &[ContextStats], warm_ns: u64) -> RunOverhead {
        let is_call = |context: &&ContextStats| {
            context.context.kind == ContextKind::Vector
                && context.context.name.starts_with("call_function")
        };
        let (spans, total_ns) =
            contexts.iter().filter(is_call).fold((0, 0), |(spans, ns), stats| {
                (spans + stats.count, ns + stats.probe_overhead_total_ns)
            });
        let mean_ns = if spans > 0 { total_ns as f64 / spans as f64 } else { warm_ns as f64 };
        let error_ns = SpanOverhead { mean_ns, warm_ns: warm_ns as f64 }.half_width_95_ns();
        RunOverhead { mean_ns: mean_ns.round() as u64, error_ns: error_ns.ceil() as u64 }
    }
}

/// The senders in `rows`. Rows with equal names are one sender. `irq_name` returns the name of an IRQ line's actions.
pub(super) fn senders_of(
    rows: &[(RawKey, SenderRow)],
    functions: &SenderFunctions,
    overhead: RunOverhead,
    irq_name: impl Fn(u32) -> String,
) -> Vec<SenderStats> {
    let mut by_key: BTreeMap<SenderKey, SenderCounts> = BTreeMap::new();
    for (key, row) in rows.iter().filter(|(_, row)| row.count + row.runs + row.unfinished > 0) {
        let Some(key) = key_of(key, functions, &irq_name) else { continue };
        by_key.entry(key).or_default().add(&counts_of(row, overhead));
    }
    by_key
        .into_iter()
        .map(|(key, counts)| SenderStats { key, counts, method: SenderMethod::Probes })
        .collect()
}

/// The key of a row in the tables, from its key in the BPF map. `None` for an event that this version does not know.
/// The kernel names an interrupt only by its callback: none is `reschedule`, and that of queued calls is
/// `call_function`. If the callback has no name, the vector is not known.
fn key_of(
    key: &RawKey,
    functions: &SenderFunctions,
    irq_name: impl Fn(u32) -> String,
) -> Option<SenderKey> {
    let named = |names: &KernelFunctions, address: u64| (address != 0).then(|| names.name(address));
    let callback = named(&functions.functions, key.function);
    let call = |call_type| Some((SenderEvent::Call(call_type), callback.clone()));
    let (event, function) = match key.event {
        SENDER_CALL => call(CallType::Asynchronous)?,
        event if event == SENDER_CALL + 1 => call(CallType::Synchronous)?,
        event if event == SENDER_CALL + 2 => call(CallType::IrqWork)?,
        event if event == SENDER_CALL + 3 => call(CallType::WakeUp)?,
        SENDER_IPI | SENDER_IPI_TO_SEVERAL if key.context == SENDER_OTHERS => {
            (SenderEvent::Interrupt(None), None)
        }
        SENDER_IPI | SENDER_IPI_TO_SEVERAL => match callback {
            None => (SenderEvent::Interrupt(Some("reschedule")), None),
            Some(name) if name == QUEUED_CALLS_CALLBACK => {
                let is_single = key.event == SENDER_IPI;
                let vector = if is_single { "call_function_single" } else { "call_function" };
                (SenderEvent::Interrupt(Some(vector)), None)
            }
            // The address has no name: it may be either of the two vectors for calls.
            Some(name) if name.starts_with("0x") => (SenderEvent::Interrupt(None), Some(name)),
            Some(name) => (SenderEvent::Interrupt(Some("irq_work")), Some(name)),
        },
        SENDER_RUN => (SenderEvent::UnjoinedRun, callback),
        _ => return None,
    };
    let sender = sender_of(key, irq_name);
    let call_site = named(&functions.call_sites, key.call_site);
    Some(SenderKey { event, function, sender, call_site })
}

fn sender_of(key: &RawKey, irq_name: impl Fn(u32) -> String) -> Sender {
    match key.context {
        KEY_NONE => {
            let end = key.task.iter().position(|byte| *byte == 0).unwrap_or(key.task.len());
            return Sender::Task(String::from_utf8_lossy(&key.task[..end]).into_owned());
        }
        SENDER_OTHERS => return Sender::Others,
        SENDER_HARDIRQ => return Sender::UnknownInterrupt("interrupt"),
        SENDER_SOFTIRQ => return Sender::UnknownInterrupt("softirq"),
        _ => {}
    }
    let interrupt = |kind, number, name: &str| {
        Sender::Interrupt(Context { kind, number, name: name.to_owned() })
    };
    match ContextKey::from_key(key.context) {
        Some(ContextKey::Vector(number)) => VECTORS
            .get(number as usize)
            .map_or(Sender::Unknown, |name| interrupt(ContextKind::Vector, number, name)),
        Some(ContextKey::Softirq(number)) => SOFTIRQS
            .get(number as usize)
            .map_or(Sender::Unknown, |name| interrupt(ContextKind::Softirq, number, name)),
        Some(ContextKey::Irq(irq)) => {
            interrupt(ContextKind::HardIrq, irq, &format!("{irq} {}", irq_name(irq)))
        }
        _ => Sender::Unknown,
    }
}

fn counts_of(row: &SenderRow, overhead: RunOverhead) -> SenderCounts {
    SenderCounts {
        count: row.count,
        run_count: row.runs,
        unfinished_count: row.unfinished,
        handled_count: 0,
        run_total_ns: row.run_ns.cast_signed() - (row.runs * overhead.mean_ns).cast_signed(),
        overhead_mean_ns: overhead.mean_ns,
        overhead_error_ns: overhead.error_ns,
        run_max_ns: row.run_max_ns.saturating_sub(overhead.mean_ns),
        delay_total_ns: row.delay_ns,
        delay_max_ns: row.delay_max_ns,
        completion_total_ns: row.completion_ns,
        completion_max_ns: row.completion_max_ns,
        sender_cpus: cpus_of(&row.sender_cpus),
        target_cpus: cpus_of(&row.target_cpus),
    }
}

/// The CPUs whose bits are set.
fn cpus_of(words: &[u64]) -> Vec<u32> {
    let is_set = |cpu: &u32| words[*cpu as usize / 64] >> (cpu % 64) & 1 == 1;
    (0..words.len() as u32 * 64).filter(is_set).collect()
}

/// How many programs ran for these rows.
pub(super) fn probe_runs(rows: &[(RawKey, SenderRow)]) -> u64 {
    rows.iter().map(|(_, row)| row.count + 2 * row.runs + row.unfinished).sum()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::bpf::layout::{KEY_SOFTIRQ, KEY_VECTOR};
    use crate::host::plant;
    use zerocopy::FromZeros;

    fn row(event: u32, context: u32, function: u64, count: u64) -> (RawKey, SenderRow) {
        let mut key = RawKey::new_zeroed();
        (key.event, key.context, key.function, key.call_site) = (event, context, function, 0x2015);
        key.task[..4].copy_from_slice(b"make");
        let mut counts = SenderRow::new_zeroed();
        (counts.count, counts.runs, counts.run_ns) = (count, count, 50 * count);
        counts.sender_cpus[1] = 1 << 3;
        (key, counts)
    }

    #[test]
    fn rows_have_the_names_of_their_functions_and_vectors() {
        let directory = tempfile::tempdir().unwrap();
        let text = "1000 t generic_smp_call_function_single_interrupt\n\
                    1100 t ipi_mb\n2000 t membarrier_global\n2100 t later\n";
        plant(directory.path(), "proc/kallsyms", text);
        let root = Root::new(directory.path());
        let rows = [
            row(SENDER_CALL + 1, KEY_NONE, 0x1100, 10),
            row(SENDER_IPI, KEY_VECTOR, 0x1000, 2),
            row(SENDER_IPI_TO_SEVERAL, KEY_SOFTIRQ + 7, 0x1000, 3),
            row(SENDER_IPI, SENDER_HARDIRQ, 0, 4),
            row(SENDER_IPI, SENDER_OTHERS, 0, 5),
            row(SENDER_IPI, KEY_NONE, 0x1100, 6),
            row(SENDER_IPI, KEY_NONE, 0x9999, 7),
            row(SENDER_CALL, KEY_NONE, 0x1100, 0),
        ];
        let functions = SenderFunctions::find(&root, &rows);
        assert_eq!(functions.unnamed, 1);
        let overhead = RunOverhead { mean_ns: 20, error_ns: 5 };
        let senders = senders_of(&rows, &functions, overhead, |_| String::new());
        assert_eq!(senders.len(), 7, "a row without events is not shown");
        let found =
            |count: u64| senders.iter().find(|sender| sender.counts.count == count).unwrap();
        let call = found(10);
        assert_eq!(call.key.event, SenderEvent::Call(CallType::Synchronous));
        assert_eq!(call.key.function.as_deref(), Some("ipi_mb"));
        assert_eq!(call.key.call_site.as_deref(), Some("membarrier_global"));
        assert_eq!(call.key.sender, Sender::Task("make".to_owned()));
        assert_eq!((call.counts.run_total_ns, &*call.counts.sender_cpus), (300, &[67][..]));
        let event = |count| (found(count).key.event.clone(), found(count).key.sender.name());
        let interrupt = SenderEvent::Interrupt;
        assert_eq!(event(2), (interrupt(Some("call_function_single")), "local_timer"));
        assert_eq!(event(3), (interrupt(Some("call_function")), "SCHED"));
        assert_eq!(event(4), (interrupt(Some("reschedule")), "(not known)"));
        assert_eq!(event(5), (interrupt(None), "(other senders)"));
        assert_eq!(event(6), (interrupt(Some("irq_work")), "make"));
        assert_eq!(event(7), (interrupt(None), "make"));
    }
}
