//! Names of services, and of the functions and data that their misses are attributed to.

use attribution::{KernelContext, SYSCALL_32, kernel_function};
use lab::services::Class;

use crate::accounting::ServicesUse;
use crate::btf::Btf;
use crate::contexts::context_of;
use crate::{Accounting, Symbols};

/// How the functions of system calls are named.
const PREFIXES: [&str; 3] = ["__x64_sys_", "__do_sys_", "sys_"];

/// Sources of the names of services and structures.
pub(super) struct Names<'a> {
    pub(super) account: &'a Accounting,
    pub(super) used: &'a ServicesUse,
    pub(super) symbols: Option<&'a Symbols>,
    pub(super) btf: Option<&'a Btf>,
}

impl Names<'_> {
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
            KernelContext::Task(_) => return (Class::Other, "start of a task".to_owned()),
            KernelContext::Syscall(number) => return (Class::Syscall, self.syscall(number)),
            KernelContext::KernelThread(pid) => {
                let name = self.account.tasks.get(&pid).filter(|name| !name.is_empty());
                let name = name.cloned().unwrap_or_else(|| format!("thread {pid}"));
                return (Class::KernelThread, name);
            }
            KernelContext::Exception(_) => Class::Exception,
            KernelContext::Interrupt(_) | KernelContext::Nmi => Class::Interrupt,
            KernelContext::Irq(_) => Class::Irq,
            KernelContext::Softirq(_) => Class::Softirq,
            _ => Class::Other,
        };
        let name = context_of(service, self.account).map(|context| context.name);
        (class, name.unwrap_or_else(|| service.to_string()))
    }

    /// The name of a system call: of the function in the kernel's table, without its prefix.
    pub(super) fn syscall(&self, number: u32) -> String {
        let plain = number & !SYSCALL_32;
        if number & SYSCALL_32 != 0 {
            return format!("{plain} (32 bits)");
        }
        let address = self.used.functions.get(&plain);
        let symbol = address.and_then(|address| self.symbols?.at(*address));
        let name = symbol.filter(|found| found.1 == 0).and_then(|(symbol, _)| {
            let (name, _) = kernel_function::split(&symbol.name);
            PREFIXES.iter().find_map(|prefix| name.strip_prefix(prefix)).map(str::to_owned)
        });
        name.unwrap_or_else(|| plain.to_string())
    }
}
