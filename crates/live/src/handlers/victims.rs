//! Victims and causes of interrupts: chooses the constants of the BPF programs (`bpf/victims.h`), and converts their cells
//! to samples of the experiment (`lab::handlers`).

use std::collections::{BTreeMap, HashSet};

use attribution::context::{SOFTIRQS, VECTORS};
use attribution::key::ContextKey;
use attribution::{Context, ContextKind};
use lab::experiment::Absence;
use lab::handlers::{
    Cgroup, ContextStats, Party, VICTIMS, VictimStats, Victims, VictimsBy, has_victim,
    unmeasured_of_victims,
};
use libbpf_rs::Btf;
use libbpf_rs::btf::types::Enum;

use super::settings::LiveSettings;
use crate::bpf::Flavour;
use crate::bpf::layout::{
    Config, PARTY_CGROUP, PARTY_IDLE, PARTY_OTHERS, PARTY_TASK, Party as RawParty,
    VICTIMS_BY_CGROUP, VICTIMS_BY_TASK, VictimCell, VictimKey,
};
use crate::bpf::programs::{
    CALL_QUEUE_PROGRAM, CALL_START_PROGRAM, INTERRUPT_PROGRAM, REQUEST_PROGRAM, SOCKET_PROGRAM,
    choose_causes,
};
use crate::host::Root;
use crate::host::cgroup::{CgroupPaths, Hierarchy};

/// How a bench names victims and causes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Naming {
    Task,
    Cgroup(Hierarchy),
}

impl Naming {
    /// The naming that the settings ask for.
    ///
    /// Fails with the reason why this kernel does not name victims.
    pub(super) fn choose(
        by: VictimsBy,
        flavour: Flavour,
        root: &Root,
    ) -> Result<Naming, &'static str> {
        match (flavour, by) {
            (Flavour::Raw, _) => Err("this kernel has no type information"),
            (Flavour::Btf, VictimsBy::Task) => Ok(Naming::Task),
            (Flavour::Btf, VictimsBy::Cgroup) => {
                let hierarchy = Hierarchy::of_this_machine(root);
                hierarchy.map(Naming::Cgroup).ok_or("this kernel has no control groups")
            }
        }
    }

    /// The constants of the programs.
    ///
    /// Fails if the kernel's type information does not have the hierarchy's controller.
    pub(super) fn config(self, victim_cells_max: u32) -> Result<Config, &'static str> {
        let (victims, cgroup_subsystem) = match self {
            Naming::Task => (VICTIMS_BY_TASK, -1),
            Naming::Cgroup(hierarchy) => {
                let position = match hierarchy.subsystem() {
                    None => Some(-1),
                    Some(name) => position_of_subsystem(&name),
                };
                let unknown = "this kernel's type information does not list its controllers";
                (VICTIMS_BY_CGROUP, position.ok_or(unknown)?)
            }
        };
        Ok(Config { victims, cgroup_subsystem, victim_cells_max, ..Config::default() })
    }

    /// The key of victims and causes, in words for the table.
    pub(super) fn label(self) -> String {
        match self {
            Naming::Task => "name of the task".to_owned(),
            Naming::Cgroup(hierarchy) => format!("control group: {}", hierarchy.label()),
        }
    }

    /// How the causes of a context are found by the attached `programs`, in words for the table. `None`: they are not.
    fn cause_method(context: &Context, programs: &[String]) -> Option<&'static str> {
        let (needed, method): (&[&str], _) = match (context.kind, &*context.name) {
            (ContextKind::Vector, "call_function" | "call_function_single") => (
                &[CALL_QUEUE_PROGRAM, CALL_START_PROGRAM],
                "senders of the function calls in the span (csd_queue_cpu, csd_function_entry), by their number",
            ),
            (ContextKind::Vector, "reschedule") => (
                &[INTERRUPT_PROGRAM],
                "the sender of the interrupt (ipi_send_cpu), if there is one only",
            ),
            (ContextKind::Softirq, "NET_RX") => (
                &[SOCKET_PROGRAM],
                "groups of the sockets that receive (sk_data_ready), by their deliveries among the packets: a lower bound",
            ),
            (ContextKind::Softirq, "BLOCK") | (ContextKind::HardIrq, _) => (
                &[REQUEST_PROGRAM],
                "groups of the requests that complete in the span (block_rq_complete), by their number",
            ),
            _ => return None,
        };
        let is_attached = |program: &&str| programs.iter().any(|attached| attached == program);
        needed.iter().all(is_attached).then_some(method)
    }

    /// Why the causes that this program finds have no names as victims have; `None` if they do.
    pub(super) fn why_causes_are_unknown(self, program: &str) -> Option<&'static str> {
        let Naming::Cgroup(hierarchy) = self else {
            return Some("requests and sockets name control groups, not tasks (--by cgroup)");
        };
        if !hierarchy.has_groups_of_sockets() {
            Some("requests and sockets name groups of other hierarchies: blkio and version 2")
        } else if program == REQUEST_PROGRAM && !hierarchy.has_groups_of_block_requests() {
            Some("requests name groups of another hierarchy: blkio of version 1")
        } else {
            None
        }
    }
}

/// Programs and constants for victims and causes. Empty by default: victims are not measured.
#[derive(Debug, Default)]
pub(super) struct ChosenVictims {
    /// How victims are named; `None` if they are not measured.
    pub(super) naming: Option<Naming>,
    /// The constants of the programs.
    pub(super) config: Config,
    /// The programs that find causes, in the order of attachment.
    pub(super) programs: Vec<String>,
    pub(super) absent: Vec<Absence>,
}

impl ChosenVictims {
    /// Chooses what the settings ask for and this kernel has.
    pub(super) fn choose(settings: &LiveSettings, flavour: Flavour, root: &Root) -> ChosenVictims {
        let Some(by) = settings.victims else { return ChosenVictims::default() };
        let named = Naming::choose(by, flavour, root)
            .and_then(|naming| Ok((naming, naming.config(settings.victim_cells_max)?)));
        let (naming, config) = match named {
            Ok(named) => named,
            Err(reason) => {
                let absent = vec![Absence::new(VICTIMS, "victims and causes", reason)];
                return ChosenVictims { absent, ..ChosenVictims::default() };
            }
        };
        let causes = choose_causes(flavour, |program| naming.why_causes_are_unknown(program));
        let absent = causes.absent.into_iter();
        let absent = absent.map(|(subject, reason)| Absence::new(VICTIMS, subject, reason));
        ChosenVictims {
            naming: Some(naming),
            config,
            programs: causes.programs,
            absent: absent.chain(unmeasured_of_victims()).collect(),
        }
    }
}

/// The position of a controller in the kernel's `enum cgroup_subsys_id`.
pub(crate) fn position_of_subsystem(name: &str) -> Option<i32> {
    let btf = Btf::from_vmlinux().ok()?;
    let positions = btf.type_by_name::<Enum<'_>>("cgroup_subsys_id")?;
    let found = positions.iter().find(|member| member.name.is_some_and(|found| found == name))?;
    i32::try_from(found.value).ok()
}

/// The victims and causes in the cells. `contexts`: the rows of the same window, which name the IRQ lines. `programs`: those
/// that were attached in the window.
pub(super) fn victims_of(
    cells: &[(VictimKey, VictimCell)],
    naming: Naming,
    contexts: &[ContextStats],
    programs: &[String],
    root: &Root,
) -> Victims {
    let used = || cells.iter().filter(|(_, cell)| cell.count > 0);
    let parties = used().flat_map(|(key, _)| [&key.victim, &key.cause]);
    let ids: HashSet<u64> =
        parties.filter(|party| party.kind == PARTY_CGROUP).map(|party| party.id[0]).collect();
    let names = match naming {
        Naming::Task => CgroupPaths::default(),
        Naming::Cgroup(hierarchy) => hierarchy.paths_of_groups(root, &ids),
    };
    // Names may be equal although their bytes are not.
    let mut sums: BTreeMap<(Party, Party, Option<Context>), (u64, u64)> = BTreeMap::new();
    for (key, cell) in used() {
        let context = context_of(key.context, contexts);
        let of_parties = (party_of(&key.victim, &names), party_of(&key.cause, &names), context);
        let (count, self_ns) = sums.entry(of_parties).or_default();
        *count += cell.count;
        *self_ns += cell.self_ns;
    }
    let rows = sums.into_iter().map(|((victim, cause, context), (count, self_total_ns))| {
        let cause_method =
            context.as_ref().and_then(|context| Naming::cause_method(context, programs));
        VictimStats { victim, cause, context, count, self_total_ns, cause_method }
    });
    Victims { by: naming.label(), rows: rows.collect() }
}

fn party_of(party: &RawParty, names: &CgroupPaths) -> Party {
    match party.kind {
        PARTY_IDLE => Party::Idle,
        PARTY_OTHERS => Party::Others,
        PARTY_TASK => {
            let bytes: Vec<u8> = party.id.iter().flat_map(|word| word.to_ne_bytes()).collect();
            let end = bytes.iter().position(|byte| *byte == 0).unwrap_or(bytes.len());
            Party::Task(String::from_utf8_lossy(&bytes[..end]).into_owned())
        }
        PARTY_CGROUP => {
            let id = party.id[0];
            let path = names.path(id).map(str::to_owned);
            Party::Cgroup(Cgroup::new(id, path, names.why_no_path()))
        }
        _ => Party::Unknown,
    }
}

/// The context of a key, with the name that it has in `contexts`. All functions of a kind are one context. `None` for the
/// key of all other contexts.
fn context_of(key: u32, contexts: &[ContextStats]) -> Option<Context> {
    let (kind, number, name) = match ContextKey::from_key(key)? {
        ContextKey::Vector(number) => (ContextKind::Vector, number, VECTORS.get(number as usize)?),
        ContextKey::Softirq(number) => {
            (ContextKind::Softirq, number, SOFTIRQS.get(number as usize)?)
        }
        ContextKey::Callback(kind) => (kind, 0, &"(all)"),
        ContextKey::Irq(number) => {
            let named = contexts
                .iter()
                .map(|stats| &stats.context)
                .find(|context| context.kind == ContextKind::HardIrq && context.number == number);
            return named.cloned();
        }
        _ => return None,
    };
    Some(Context { kind, number, name: (*name).to_owned() })
}

/// A warning if the times of the victims and of the contexts do not add up to the same sum. Both have 0 for spans shorter
/// than the probe overhead.
pub(super) fn warning_of_sums(victims: &Victims, contexts: &[ContextStats]) -> Option<String> {
    let of_victims: u64 = victims.rows.iter().map(|row| row.self_total_ns).sum();
    let spans = contexts.iter().filter(|stats| has_victim(stats.context.kind));
    let of_contexts: u64 = spans.map(|stats| stats.own.sum).sum();
    (of_victims != of_contexts).then(|| {
        format!(
            "table victims has {of_victims} ns in all, and the spans of table handlers have {of_contexts} ns"
        )
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_context_has_a_cause_method_if_the_programs_of_its_causes_are_attached() {
        let method = |kind, name: &str, programs: &[&str]| {
            let context = Context { kind, number: 0, name: name.to_owned() };
            let programs: Vec<String> =
                programs.iter().map(|program| (*program).to_owned()).collect();
            Naming::cause_method(&context, &programs)
        };
        let calls = (ContextKind::Vector, "call_function_single");
        assert_eq!(method(calls.0, calls.1, &[CALL_QUEUE_PROGRAM]), None);
        let both = [CALL_QUEUE_PROGRAM, CALL_START_PROGRAM];
        assert!(method(calls.0, calls.1, &both).is_some());
        assert_eq!(method(ContextKind::Vector, "local_timer", &both), None);
        assert_eq!(method(ContextKind::Vector, "reschedule", &both), None);
        assert!(method(ContextKind::Vector, "reschedule", &[INTERRUPT_PROGRAM]).is_some());
        assert_eq!(method(ContextKind::Softirq, "NET_RX", &[REQUEST_PROGRAM]), None);
        let packets = method(ContextKind::Softirq, "NET_RX", &[SOCKET_PROGRAM]);
        assert!(packets.is_some_and(|method| method.contains("lower bound")));
        assert!(method(ContextKind::HardIrq, "nvme0q1", &[REQUEST_PROGRAM]).is_some());
    }
}
