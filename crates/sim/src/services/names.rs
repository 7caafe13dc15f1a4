//! Names of services, and of the functions and data that their misses are attributed to.

use attribution::{KernelContext, SYSCALL_32, kernel_function};
use lab::services::{Class, syscall_name};

use crate::accounting::ServicesUse;
use crate::btf::Btf;
use crate::contexts::context_of;
use crate::{Accounting, Symbols};

/// Prefixes of the functions of system calls.
const PREFIXES: [&str; 3] = ["__x64_sys_", "__do_sys_", "sys_"];

/// The name of the kernel's work in tasks whose entry into the kernel was not seen.
const UNSEEN_ENTRY: &str = "kernel entry not seen";

/// Sources of the names of services and structures.
pub(super) struct Names<'a> {
    pub(super) accounting: &'a Accounting,
    pub(super) used: &'a ServicesUse,
    pub(super) symbols: Option<&'a Symbols>,
    pub(super) btf: Option<&'a Btf>,
}

impl Names<'_> {
    /// Returns the class and the name of a service. Tasks in user mode share one name.
    pub(super) fn class_and_name(&self, service: KernelContext) -> (Class, String) {
        if let KernelContext::Fault(kind) = service {
            return (Class::Fault, kind.label().to_owned());
        }
        if let KernelContext::KernelFault(kind) = service {
            return (Class::Fault, format!("{} (by the kernel)", kind.label()));
        }
        let class = match service {
            KernelContext::User(_) => return (Class::User, "user".to_owned()),
            KernelContext::Idle => return (Class::Idle, "idle".to_owned()),
            KernelContext::Scheduler => return (Class::Scheduler, "schedule".to_owned()),
            KernelContext::LockWait(kind) => {
                return (Class::Lock, format!("{} (wait)", kind.label()));
            }
            // A new task on its way to user mode, or a task that was in the kernel when irqlab began to follow it.
            KernelContext::Task(_) => return (Class::Other, UNSEEN_ENTRY.to_owned()),
            KernelContext::Exit => return (Class::Other, "exit of a killed task".to_owned()),
            KernelContext::Syscall(number) => return (Class::Syscall, self.syscall(number)),
            KernelContext::KernelThread(pid) => {
                let name = self.accounting.tasks.get(&pid).filter(|name| !name.is_empty());
                let name = name.cloned().unwrap_or_else(|| format!("thread {pid}"));
                return (Class::KernelThread, name);
            }
            KernelContext::Exception(_) => Class::Exception,
            KernelContext::Interrupt(_) | KernelContext::Nmi => Class::Interrupt,
            KernelContext::Irq(_) => Class::Irq,
            KernelContext::Softirq(_) => Class::Softirq,
            KernelContext::Unknown => Class::Unknown,
            _ => Class::Other,
        };
        let name = context_of(service, self.accounting).map(|context| context.name);
        (class, name.unwrap_or_else(|| service.to_string()))
    }

    /// Returns the name of a system call; if it has none, that of its function, without the prefix. Without
    /// symbols it is the number.
    pub(super) fn syscall(&self, number: u32) -> String {
        let table_number = number & !SYSCALL_32;
        if number & SYSCALL_32 != 0 {
            return format!("{table_number} (32 bits)");
        }
        let known = syscall_name(table_number as usize);
        if known.parse::<u32>().is_err() {
            return known;
        }
        let address = self.used.functions.get(&table_number);
        let symbol = address.and_then(|address| self.symbols?.symbol_at(*address));
        let name = symbol.filter(|(_, distance)| *distance == 0).and_then(|(symbol, _)| {
            let (name, _) = kernel_function::split(&symbol.name);
            PREFIXES.iter().find_map(|prefix| name.strip_prefix(prefix)).map(str::to_owned)
        });
        name.unwrap_or(known)
    }
}
