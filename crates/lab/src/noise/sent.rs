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

/// Largest number of combinations of process, CPU, function and system call by which the live bench tells senders apart.
pub const COMBINATIONS_MAX: u32 = 4096;

/// How many interrupts the causes `from other senders` have.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct OtherSenders {
    /// Their senders came after [`SENDERS_MAX`] other ones.
    pub beyond_names: u64,
    /// The sender's combination came after [`COMBINATIONS_MAX`] other ones. The sender may have a cause of its own.
    pub beyond_combinations: u64,
}

impl OtherSenders {
    /// The interrupts since an earlier reading.
    #[must_use]
    pub fn since(self, earlier: OtherSenders) -> OtherSenders {
        OtherSenders {
            beyond_names: self.beyond_names.saturating_sub(earlier.beyond_names),
            beyond_combinations: self
                .beyond_combinations
                .saturating_sub(earlier.beyond_combinations),
        }
    }

    /// A warning that says how many interrupts have no sender's name, and why. `None` if all have one.
    #[must_use]
    pub fn warning(self) -> Option<String> {
        let OtherSenders { beyond_names, beyond_combinations } = self;
        let names = format!("a run tells at most {SENDERS_MAX} senders apart ({beyond_names})");
        let combinations = format!(
            "the kernel's table of {COMBINATIONS_MAX} combinations of process, CPU, function and system call was full \
             ({beyond_combinations}): the other causes lack interrupts of processes that sent their first one later"
        );
        let reasons = match (beyond_names, beyond_combinations) {
            (0, 0) => return None,
            (_, 0) => names,
            (0, _) => combinations,
            (_, _) => format!("{names}, and {combinations}"),
        };
        let count = beyond_names.saturating_add(beyond_combinations);
        Some(format!("{count} interrupts have the cause `from other senders`: {reasons}"))
    }
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
    fn a_warning_says_why_interrupts_have_no_name_of_a_sender() {
        let warning = |beyond_names, beyond_combinations| {
            OtherSenders { beyond_names, beyond_combinations }.warning().unwrap_or_default()
        };
        assert_eq!(warning(0, 0), "");
        let names = "7 interrupts have the cause `from other senders`: a run tells at most 64 senders apart (7)";
        assert_eq!(warning(7, 0), names);
        assert!(
            warning(0, 9).contains(
                "4096 combinations of process, CPU, function and system call was full (9)"
            )
        );
        assert!(
            warning(7, 9).starts_with("16 interrupts") && warning(7, 9).contains("(7), and the")
        );
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
