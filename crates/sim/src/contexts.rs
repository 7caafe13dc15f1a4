//! The simulator's contexts under the names that the experiments' tables have for them.

use attribution::context::{SOFTIRQS, VECTORS};
use attribution::{Context, ContextKind, KernelContext, PID_UNKNOWN, SYSCALL_32};
use lab::noise::SourceName;

use crate::Accounting;

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

/// Returns the experiments' name of a context; none if it is neither an interrupt nor an exception.
pub(crate) fn context_of(context: KernelContext, account: &Accounting) -> Option<Context> {
    let (kind, number, name) = match context {
        KernelContext::Interrupt(vector) => {
            let (number, name) = vector_name(vector);
            (ContextKind::Vector, number, name)
        }
        KernelContext::Irq(line) => {
            let name = account.irqs.get(&line).filter(|name| !name.is_empty()).cloned();
            (ContextKind::HardIrq, line, name.unwrap_or_else(|| "(name not read)".to_owned()))
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

/// Returns the vector of a name in [`VECTORS`].
pub(crate) fn vector_of(name: &str) -> Option<u8> {
    SYSTEM_VECTORS.iter().find(|(_, known)| *known == name).map(|(vector, _)| *vector)
}

/// Returns a vector's number in tables and its name. The number is its position in [`VECTORS`], as on the
/// live bench, or the vector itself if it is not there.
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

/// Returns the name of a context for people; `task` is the task at the bottom of the stack.
pub(crate) fn source_name(
    context: KernelContext,
    task: KernelContext,
    account: &Accounting,
) -> SourceName {
    if let Some(context) = context_of(context, account) {
        return SourceName::Context(context);
    }
    match context {
        KernelContext::Idle => SourceName::Other("idle", "idle".to_owned()),
        KernelContext::Syscall(number) => {
            let bits = if number & SYSCALL_32 != 0 { " (32 bits)" } else { "" };
            let (number, task) = (number & !SYSCALL_32, task_name(task, account));
            SourceName::Other("syscall", format!("{number}{bits} of {task}"))
        }
        KernelContext::User(_) | KernelContext::KernelThread(_) | KernelContext::Task(_) => {
            SourceName::Task(task_name(context, account))
        }
        other => SourceName::Other("function", account.name_of(other)),
    }
}

/// Returns the name of a task, or its number.
fn task_name(task: KernelContext, account: &Accounting) -> String {
    let pid = match task {
        KernelContext::User(pid) | KernelContext::KernelThread(pid) | KernelContext::Task(pid) => {
            pid
        }
        other => return other.to_string(),
    };
    let name = account.tasks.get(&pid).filter(|name| !name.is_empty());
    match (name, pid) {
        (Some(name), _) => name.clone(),
        (None, PID_UNKNOWN) => "a task".to_owned(),
        (None, pid) => format!("task {pid}"),
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
}
