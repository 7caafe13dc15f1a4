//! An interrupt with its sender on another CPU. `noise` and `wakeup` name causes by it.

use attribution::Context;

use crate::cpu_warnings::format_cpu_list;

/// Largest number of senders that a run tells apart. All others of a vector share a cause.
pub const SENDERS_MAX: usize = 64;

/// An interrupt that another CPU sent. Senders with equal interrupt, name and reason are one cause, so a cause may have
/// several processes and CPUs.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SentInterrupt {
    pub context: Context,
    pub sender: InterruptSender,
}

/// The sender of an interrupt.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum InterruptSender {
    Known {
        /// Name of the task, or of the interrupt or softirq that sent it.
        name: String,
        processes: Processes,
        /// Why, as in `membarrier`: the called function, the system call, or both. `None` if neither is known.
        reason: Option<String>,
        /// The CPUs that sent it.
        cpus: Vec<u32>,
    },
    /// The senders beyond [`SENDERS_MAX`].
    Others,
}

/// The processes of the tasks of a sender.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Processes {
    /// An interrupt or the idle task sent.
    None,
    /// The kernel's number of the process.
    One(u32),
    Several,
}

impl SentInterrupt {
    /// The name of the cause, which is the same in all runs of the same programs:
    /// `call_function_single from dotnet (membarrier)`.
    #[must_use]
    pub fn name(&self) -> String {
        match &self.sender {
            InterruptSender::Known { name, reason, .. } => {
                format!("{} from {name}{}", self.context.name, in_brackets(reason.as_deref()))
            }
            InterruptSender::Others => format!("{} from other senders", self.context.name),
        }
    }

    /// The name with process and CPUs: `call_function_single from dotnet[812] (membarrier) on CPU 0`.
    #[must_use]
    pub fn label(&self) -> String {
        let InterruptSender::Known { name, processes, reason, cpus } = &self.sender else {
            return self.name();
        };
        let process = match processes {
            Processes::None => String::new(),
            Processes::One(process) => format!("[{process}]"),
            Processes::Several => "[several]".to_owned(),
        };
        let reason = in_brackets(reason.as_deref());
        let plural = if cpus.len() == 1 { "" } else { "s" };
        let cpus = format_cpu_list(cpus);
        format!("{} from {name}{process}{reason} on CPU{plural} {cpus}", self.context.name)
    }
}

fn in_brackets(reason: Option<&str>) -> String {
    reason.map(|reason| format!(" ({reason})")).unwrap_or_default()
}

/// The purpose of a kernel function that one CPU asks another one to call; the function's name if this
/// version knows no purpose.
#[must_use]
pub fn purpose(function: &str) -> &str {
    match function.split('.').next().unwrap_or(function) {
        "ipi_mb" | "ipi_sync_core" | "ipi_rseq" | "ipi_sync_rq_state" => "membarrier",
        "flush_tlb_func" | "do_flush_tlb_all" | "do_kernel_range_flush" => "TLB flush",
        "sched_ttwu_pending" => "wake-up",
        _ => function,
    }
}

/// The reason of an interrupt: the purpose of the called function, and the sender's system call.
#[must_use]
pub fn reason(function: Option<&str>, system_call: Option<&str>) -> Option<String> {
    match (function.map(purpose), system_call) {
        (Some(purpose), Some(call)) if purpose != call => Some(format!("{purpose} in {call}")),
        (purpose, call) => purpose.or(call).map(str::to_owned),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use attribution::ContextKind;

    fn sent(processes: Processes, reason: Option<&str>, cpus: &[u32]) -> SentInterrupt {
        let name = "call_function".to_owned();
        SentInterrupt {
            context: Context { kind: ContextKind::Vector, number: 5, name },
            sender: InterruptSender::Known {
                name: "dotnet".to_owned(),
                processes,
                reason: reason.map(str::to_owned),
                cpus: cpus.to_vec(),
            },
        }
    }

    #[test]
    fn a_sender_is_named_with_its_process_its_reason_and_its_cpus() {
        let one = sent(Processes::One(812), Some("membarrier"), &[0]);
        assert_eq!(one.label(), "call_function from dotnet[812] (membarrier) on CPU 0");
        assert_eq!(one.name(), "call_function from dotnet (membarrier)");
        let several = sent(Processes::Several, Some("TLB flush in munmap"), &[0, 2, 3]);
        let label = "call_function from dotnet[several] (TLB flush in munmap) on CPUs 0,2-3";
        assert_eq!(several.label(), label);
        assert_eq!(sent(Processes::None, None, &[1]).label(), "call_function from dotnet on CPU 1");
        let others = SentInterrupt { sender: InterruptSender::Others, ..one };
        assert_eq!(others.label(), "call_function from other senders");
        assert_eq!(others.label(), others.name());
    }

    #[test]
    fn a_reason_names_the_purpose_and_the_system_call_once() {
        let in_words = |function, call| reason(function, call);
        assert_eq!(in_words(Some("ipi_mb"), Some("membarrier")).as_deref(), Some("membarrier"));
        let flush = in_words(Some("flush_tlb_func.constprop.0"), Some("munmap"));
        assert_eq!(flush.as_deref(), Some("TLB flush in munmap"));
        assert_eq!(in_words(Some("do_sync_core"), None).as_deref(), Some("do_sync_core"));
        assert_eq!(in_words(None, Some("futex")).as_deref(), Some("futex"));
        assert_eq!(in_words(None, None), None);
    }
}
