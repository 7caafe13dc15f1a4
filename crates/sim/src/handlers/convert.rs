//! From the account of a machine to the samples of the experiment.

use attribution::context::{SOFTIRQS, VECTORS};
use attribution::{Context, ContextKind, KernelContext};
use lab::handlers::in_guest::GuestWindow;
use lab::handlers::{CpuWindow, EventSums, SourceSample, Timing, WindowSample};
use stats::Distribution;

use crate::account::{Account, ContextUse, CpuUse};

/// The event that is always counted.
pub(super) const INSTRUCTIONS: &str = "instructions";

/// Vectors of the system (arch/x86/include/asm/irq_vectors.h) by their names in [`VECTORS`].
const SYSTEM_VECTORS: [(u8, &str); 11] = [
    (0xec, "local_timer"),
    (0xfd, "reschedule"),
    (0xfc, "call_function"),
    (0xfb, "call_function_single"),
    (0xf6, "irq_work"),
    (0xf7, "x86_platform_ipi"),
    (0xfe, "error_apic"),
    (0xff, "spurious_apic"),
    (0xfa, "thermal_apic"),
    (0xf9, "threshold_apic"),
    (0xf4, "deferred_error_apic"),
];

const PAGE_FAULT: u8 = 14;
/// The vector of the NMI, as on the live bench.
const NMI_VECTOR: u32 = 2;

/// The sample of the first region.
///
/// # Errors
/// When there is none, or its numbers can't be trusted.
pub(super) fn sample_of(account: &Account, window: GuestWindow) -> Result<WindowSample, String> {
    if let Some(broken) = account.broken.first() {
        return Err(format!("the record of the machine is broken: {broken}"));
    }
    if !account.ended_by_guest {
        return Err("the guest did not end the record: how far it ran on is not known".to_owned());
    }
    let cpus = account.regions.first().ok_or("the window was never opened")?;
    let of_cpu = |cpu: &CpuUse| CpuWindow {
        cpu: cpu.cpu,
        start_ns: 0,
        length_ns: window.length_ns,
        abandoned: cpu.abandoned,
        overflows: cpu.overflows,
        ..CpuWindow::default()
    };
    let rows = cpus.iter().flat_map(|cpu| cpu.contexts.iter().map(|used| (cpu.cpu, used)));
    Ok(WindowSample {
        windows: cpus.iter().map(of_cpu).collect(),
        sources: rows.filter_map(|(cpu, used)| source_of(cpu, used)).collect(),
        user_cpu_ns: window.user_cpu_ns,
        load_work: window.load_work,
        stimulus_work: window.stimulus_work,
        warnings: window.warnings,
        facts: window.facts,
        ..WindowSample::default()
    })
}

/// The sample of a context; `None` for what is no source of interrupts.
fn source_of(cpu: u32, used: &ContextUse) -> Option<SourceSample> {
    Some(SourceSample {
        cpu,
        context: context_of(used.context)?,
        timing: Timing::CountOnly,
        count: used.completed,
        own: Distribution::default(),
        inclusive: Distribution::default(),
        nested_count: 0,
        special_count: 0,
        clamped_count: 0,
        abandoned_count: 0,
        shared: false,
        events: EventSums {
            spans: used.completed,
            own: vec![used.own],
            inclusive: vec![used.inclusive],
        },
    })
}

fn context_of(context: KernelContext) -> Option<Context> {
    let (kind, number, name) = match context {
        KernelContext::Interrupt(vector) => {
            let (number, name) = vector_name(vector);
            (ContextKind::Vector, number, name)
        }
        KernelContext::Softirq(number) => {
            let name = SOFTIRQS.get(usize::from(number))?;
            (ContextKind::Softirq, u32::from(number), (*name).to_owned())
        }
        KernelContext::Exception(vector) => {
            (ContextKind::Exception, u32::from(vector), exception_name(vector))
        }
        KernelContext::Nmi => (ContextKind::Nmi, NMI_VECTOR, "nmi".to_owned()),
        _ => return None,
    };
    Some(Context { kind, number, name })
}

/// A vector's number in tables and its name: the position in [`VECTORS`] of those that are there,
/// as on the live bench; else the vector itself.
fn vector_name(vector: u8) -> (u32, String) {
    let known = SYSTEM_VECTORS.iter().find(|(number, _)| *number == vector);
    let position = known.and_then(|(_, name)| VECTORS.iter().position(|other| other == name));
    match (known, position) {
        (Some((_, name)), Some(position)) => (position as u32, (*name).to_owned()),
        _ => (u32::from(vector), format!("vector {vector:#04x}")),
    }
}

fn exception_name(vector: u8) -> String {
    match vector {
        PAGE_FAULT => "page_fault".to_owned(),
        _ => format!("exception {vector}"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_system_vector_has_its_place_in_the_tables() {
        let mut names: Vec<&str> = SYSTEM_VECTORS.iter().map(|(_, name)| *name).collect();
        names.sort_unstable();
        let mut expected = VECTORS.to_vec();
        expected.sort_unstable();
        assert_eq!(names, expected);
        assert_eq!(vector_name(0xec), (0, "local_timer".to_owned()));
        assert_eq!(vector_name(0x25), (0x25, "vector 0x25".to_owned()));
    }

    fn used(context: KernelContext) -> ContextUse {
        ContextUse { context, own: 70, inclusive: 90, entries: 4, completed: 3 }
    }

    fn account() -> Account {
        let contexts = vec![
            used(KernelContext::User(7)),
            used(KernelContext::Exception(14)),
            used(KernelContext::Interrupt(0xec)),
            used(KernelContext::Softirq(3)),
        ];
        let cpu = CpuUse { contexts, overflows: 2, ..CpuUse::default() };
        Account { ended_by_guest: true, regions: vec![vec![cpu]], ..Account::default() }
    }

    #[test]
    fn sources_of_interrupts_and_no_others() {
        let window = GuestWindow { length_ns: 1000, ..GuestWindow::default() };
        let sample = sample_of(&account(), window).unwrap();
        let names: Vec<&str> = sample.sources.iter().map(|one| &*one.context.name).collect();
        assert_eq!(names, ["page_fault", "local_timer", "NET_RX"]);
        let timer = &sample.sources[1];
        assert_eq!((timer.count, timer.events.own[0], timer.events.inclusive[0]), (3, 70, 90));
        assert_eq!((sample.length_ns(), sample.lost()), (1000, 2));
    }

    #[test]
    fn what_cannot_be_trusted_is_no_sample() {
        type Change = (fn(&mut Account), &'static str);
        let changes: [Change; 3] = [
            (|account| account.broken.push("why".to_owned()), "broken: why"),
            (|account| account.ended_by_guest = false, "did not end"),
            (|account| account.regions.clear(), "never opened"),
        ];
        for (change, words) in changes {
            let mut account = account();
            change(&mut account);
            let error = sample_of(&account, GuestWindow::default()).unwrap_err();
            assert!(error.contains(words), "{error}");
        }
    }
}
