//! Translates the plugin's contexts to the names in the tables of the experiments. Both benches must use the same
//! names, so that their tables can be compared.

use attribution::context::{SOFTIRQS, SYSTEM_VECTORS, position_of_vector};
use attribution::{Context, ContextKind, KernelContext, PID_UNKNOWN, SYSCALL_32};
use lab::noise::ContextName;

use crate::{Accounting, Symbols};

const PAGE_FAULT: u8 = 14;
/// The upper half of the addresses of the kernel's code and its modules.
const KERNEL_CODE: u64 = 0xffff_ffff_0000_0000;
/// The vector of the NMI, as on the live bench.
const NMI_VECTOR: u32 = 2;

/// Returns the name of a context in tables; `None` if it is neither an interrupt nor an exception.
pub(crate) fn context_of(context: KernelContext, accounting: &Accounting) -> Option<Context> {
    let (kind, number, name) = match context {
        KernelContext::Interrupt(vector) => {
            let (number, name) = vector_name(vector);
            (ContextKind::Vector, number, name)
        }
        KernelContext::Irq(line) => {
            let name = accounting.irqs.get(&line).filter(|name| !name.is_empty()).cloned();
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

/// Returns the live bench's name for a function that a timer, a work item, a tasklet or RCU calls; `None` for all other
/// contexts. Without `symbols`, the name is the function's address.
pub(crate) fn callback_of(context: KernelContext, symbols: Option<&Symbols>) -> Option<Context> {
    let KernelContext::Callback(kind, function) = context else { return None };
    let address = KERNEL_CODE | u64::from(function);
    let name = match symbols {
        Some(symbols) => symbols.code_name(address),
        None => format!("{address:#x}"),
    };
    Some(Context { kind, number: 0, name })
}

/// Returns the live bench's name for the thread of an IRQ line; `None` for all other contexts.
pub(crate) fn irq_thread_of(context: KernelContext, accounting: &Accounting) -> Option<Context> {
    let KernelContext::KernelThread(pid) = context else { return None };
    let (line, action) = accounting.tasks.get(&pid)?.strip_prefix("irq/")?.split_once('-')?;
    Some(Context {
        kind: ContextKind::IrqThread,
        number: line.parse().ok()?,
        name: action.to_owned(),
    })
}

/// Returns a vector's number in tables and its name. The number is the position of a system vector,
/// as on the live bench, and the vector itself otherwise.
fn vector_name(vector: u8) -> (u32, String) {
    match position_of_vector(vector) {
        Some(position) => (position as u32, SYSTEM_VECTORS[position].name.to_owned()),
        None => (u32::from(vector), format!("vector {vector:#04x}")),
    }
}

/// Returns the name of an exception in tables.
fn exception_name(vector: u8) -> String {
    match vector {
        PAGE_FAULT => "page_fault".to_owned(),
        _ => format!("exception {vector}"),
    }
}

/// Returns the name of any context in tables. `task`: the task at the bottom of the stack, whose system call it may
/// be.
pub(crate) fn source_name(
    context: KernelContext,
    task: KernelContext,
    accounting: &Accounting,
) -> ContextName {
    if let Some(context) = context_of(context, accounting) {
        return ContextName::Context(context);
    }
    match context {
        KernelContext::Idle => ContextName::Other("idle", "idle".to_owned()),
        KernelContext::Syscall(number) => {
            let bits = if number & SYSCALL_32 != 0 { " (32 bits)" } else { "" };
            let (number, task) = (number & !SYSCALL_32, task_name(task, accounting));
            ContextName::Other("syscall", format!("{number}{bits} of {task}"))
        }
        KernelContext::User(_) | KernelContext::KernelThread(_) | KernelContext::Task(_) => {
            ContextName::Task(task_name(context, accounting))
        }
        other => ContextName::Other("function", accounting.name_of(other)),
    }
}

/// Returns the name of a task, or its number.
fn task_name(task: KernelContext, accounting: &Accounting) -> String {
    let pid = match task {
        KernelContext::User(pid) | KernelContext::KernelThread(pid) | KernelContext::Task(pid) => {
            pid
        }
        other => return other.to_string(),
    };
    let name = accounting.tasks.get(&pid).filter(|name| !name.is_empty());
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
        assert_eq!(vector_name(0xec), (0, "local_timer".to_owned()));
        assert_eq!(vector_name(0x25), (0x25, "vector 0x25".to_owned()));
    }

    #[test]
    fn the_scheduler_at_the_end_of_an_interrupt_is_a_cause_of_its_own() {
        let task = KernelContext::User(7);
        let name = source_name(KernelContext::Scheduler, task, &Accounting::default());
        assert_eq!(name, ContextName::Other("function", "scheduler".to_owned()));
    }
}
