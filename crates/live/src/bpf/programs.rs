//! Chooses the probes whose tracepoints this kernel has, and says what is
//! absent without the others.

use attribution::context::VECTORS;

use super::{Flavour, known_tracepoints};

/// The programs that one context needs.
struct Need {
    /// The context, as results name it.
    what: String,
    /// Tracepoint and program, in the order of attachment: exits first, so that no entry is counted
    /// whose exit cannot be.
    programs: Vec<(String, String)>,
}

/// The program that closes the window of a CPU when the kernel takes that CPU offline.
pub const CPU_LEAVES: &str = "cpu_leaves";
pub const HOTPLUG_TRACEPOINT: &str = "cpuhp_enter";

/// The program at task switches.
const THREADS: &str = "switched";

/// The programs to load, and the contexts that cannot be measured.
#[derive(Debug, Default)]
pub struct Chosen {
    /// Program names, in the order of attachment.
    pub programs: Vec<String>,
    /// Contexts that cannot be measured, each with the reason.
    pub absent: Vec<(String, String)>,
}

fn needs() -> Vec<Need> {
    let pair = |context: &str, tracepoint: &str| Need {
        what: context.to_owned(),
        programs: vec![
            (format!("{tracepoint}_exit"), format!("{tracepoint}_out")),
            (format!("{tracepoint}_entry"), format!("{tracepoint}_in")),
        ],
    };
    let single = |context: &str, tracepoint: &str, program: &str| Need {
        what: context.to_owned(),
        programs: vec![(tracepoint.to_owned(), program.to_owned())],
    };
    let mut needs = vec![pair("device IRQs", "irq_handler"), pair("softirqs", "softirq")];
    needs.extend(VECTORS.iter().map(|vector| pair(&format!("vector {vector}"), vector)));
    needs.extend([
        single("threads of device IRQs", "sched_switch", THREADS),
        single("napi", "napi_poll", "napi_polled"),
        single("nmi", "nmi_handler", "nmi_handled"),
        single("page_fault_user", "page_fault_user", "page_fault_of_user"),
        single("page_fault_kernel", "page_fault_kernel", "page_fault_of_kernel"),
    ]);
    needs
}

/// Chooses the programs whose tracepoints the kernel has. Without BTF this is unknown: then all are
/// chosen, and attaching those without a tracepoint fails. Task switches are frequent, so their
/// program is chosen only on a machine whose IRQ lines have threads.
#[must_use]
pub fn choose(flavour: Flavour, has_irq_threads: bool) -> Chosen {
    let needs = needs();
    let names: Vec<&str> =
        needs.iter().flat_map(|need| need.programs.iter().map(|(name, _)| name.as_str())).collect();
    let known = match flavour {
        Flavour::Btf => known_tracepoints(&names),
        Flavour::Raw => None,
    };
    let mut chosen = Chosen::default();
    for need in &needs {
        let lacks = |tracepoint: &str| {
            known.as_ref().is_some_and(|known| known.get(tracepoint) == Some(&false))
        };
        if need.programs.iter().any(|(_, program)| program == THREADS) {
            let reason = match (has_irq_threads, flavour) {
                (false, _) => Some("no IRQ line of this machine has a thread"),
                (true, Flavour::Raw) => Some("this kernel has no type information"),
                (true, Flavour::Btf) => None,
            };
            if let Some(reason) = reason {
                chosen.absent.push((need.what.clone(), reason.to_owned()));
                continue;
            }
        }
        match need.programs.iter().find(|(tracepoint, _)| lacks(tracepoint)) {
            Some(_) => {
                let reason = "this kernel has no tracepoints for them".to_owned();
                chosen.absent.push((need.what.clone(), reason));
            }
            None => {
                chosen.programs.extend(need.programs.iter().map(|(_, program)| program.clone()))
            }
        }
    }
    chosen
}

/// The program that runs after the program of `entry` at the same tracepoint, and that tracepoint.
/// The first program claims a frame for the span. The second one, which also serves the exit, opens
/// the span (bpf/handlers.bpf.c).
#[must_use]
pub fn follower(entry: &str) -> Option<(String, String)> {
    match entry {
        "open_now" => Some(("start_now".to_owned(), "sys_enter".to_owned())),
        "syscall_in" => Some(("syscall_out".to_owned(), "sys_enter".to_owned())),
        _ => {
            let context = entry.strip_suffix("_in")?;
            Some((format!("{context}_out"), format!("{context}_entry")))
        }
    }
}

/// The context that cannot be measured without `program`.
#[must_use]
pub fn context_of_program(program: &str) -> String {
    needs()
        .into_iter()
        .find(|need| need.programs.iter().any(|(_, name)| name == program))
        .map_or_else(|| program.to_owned(), |need| need.what)
}
