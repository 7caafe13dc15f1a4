//! Build options of a kernel that change what its paths cost: system calls, page faults, switches, interrupts. Two runs whose
//! kernels differ in them compare more than processors.

use std::collections::BTreeMap;

use serde_json::{Map, Value};

/// Name of the fact in the block `host` of a run: the list of [`costly`].
pub const FACT: &str = "kernel_options";

/// The options, without `CONFIG_`. Sources: the help texts in Linux's Kconfig files, which name the cost, and for each group
/// the code that it adds to a path. Mitigations of processors are not among them: a run has a table of its own for these.
const COSTLY: [&str; 51] = [
    // The tick, and preemption points.
    "HZ",
    "NO_HZ_FULL",
    "PREEMPT",
    "PREEMPT_DYNAMIC",
    "PREEMPT_LAZY",
    "PREEMPT_NONE",
    "PREEMPT_RT",
    "PREEMPT_VOLUNTARY",
    // Accounting at each entry, exit and switch.
    "CONTEXT_TRACKING_USER",
    "IRQ_TIME_ACCOUNTING",
    "MEMCG",
    "NUMA_BALANCING",
    "PARAVIRT_TIME_ACCOUNTING",
    "PSI",
    "PSI_DEFAULT_DISABLED",
    "RT_GROUP_SCHED",
    "SCHEDSTATS",
    "SCHED_AUTOGROUP",
    "SCHED_CLASS_EXT",
    "TASKSTATS",
    "TASK_DELAY_ACCT",
    "VIRT_CPU_ACCOUNTING_GEN",
    // Hardening: stacks, pages and objects cleared or checked.
    "CFI_CLANG",
    "FORTIFY_SOURCE",
    "HARDENED_USERCOPY",
    "INIT_ON_ALLOC_DEFAULT_ON",
    "INIT_ON_FREE_DEFAULT_ON",
    "INIT_STACK_ALL_PATTERN",
    "INIT_STACK_ALL_ZERO",
    "LIST_HARDENED",
    "RANDOMIZE_KSTACK_OFFSET_DEFAULT",
    "SLAB_FREELIST_HARDENED",
    "SLAB_FREELIST_RANDOM",
    "STACKPROTECTOR_STRONG",
    "ZERO_CALL_USED_REGS",
    // Security modules and auditing at each call.
    "AUDITSYSCALL",
    "BPF_LSM",
    "DEFAULT_SECURITY_APPARMOR",
    "DEFAULT_SECURITY_SELINUX",
    "IMA",
    // Debugging.
    "DEBUG_LIST",
    "DEBUG_PAGEALLOC",
    "DEBUG_PREEMPT",
    "DEBUG_VM",
    "FUNCTION_TRACER",
    "KASAN",
    "KCSAN",
    "KFENCE",
    "PROVE_LOCKING",
    "SLUB_DEBUG_ON",
    "UBSAN",
];

/// Parses a configuration: the value of `HZ` is `250` after the line `CONFIG_HZ=250`. Options that are not set are absent.
#[must_use]
pub fn parse(text: &str) -> BTreeMap<String, String> {
    let options = text.lines().filter_map(|line| line.strip_prefix("CONFIG_")?.split_once('='));
    options.map(|(name, value)| (name.to_owned(), value.trim_matches('"').to_owned())).collect()
}

/// The costly options that are set: `PSI`, or `HZ=250` for an option that is no switch.
#[must_use]
pub fn costly(options: &BTreeMap<String, String>) -> Vec<String> {
    let set = |name: &&str| {
        let value = options.get(*name)?;
        Some(if value == "y" { (*name).to_owned() } else { format!("{name}={value}") })
    };
    COSTLY.iter().filter_map(set).collect()
}

/// A sentence about the options in which two kernels differ, by the blocks `host` of their runs. `places` says where each is,
/// as in `in the guest`. `None` if the options are equal, or not known of both.
#[must_use]
pub fn difference(places: [&str; 2], [first, second]: [&Map<String, Value>; 2]) -> Option<String> {
    let [first_alone, second_alone] = differing(first.get(FACT), second.get(FACT))?;
    let list = |options: &[String]| match options {
        [] => "none".to_owned(),
        _ => options.join(", "),
    };
    Some(format!(
        "the kernels are built with other options that change what their paths cost: {} {}, {} {}",
        list(&first_alone),
        places[0],
        list(&second_alone),
        places[1]
    ))
}

/// The options that only one of two lists of [`costly`] has. `None` if the lists are equal, or one is absent.
fn differing(first: Option<&Value>, second: Option<&Value>) -> Option<[Vec<String>; 2]> {
    let list = |value: &Value| -> Option<Vec<String>> {
        let options = value.as_array()?.iter().filter_map(Value::as_str);
        Some(options.map(str::to_owned).collect())
    };
    let (first, second) = (list(first?)?, list(second?)?);
    let only_in = |options: &[String], others: &[String]| -> Vec<String> {
        options.iter().filter(|option| !others.contains(option)).cloned().collect()
    };
    let lists = [only_in(&first, &second), only_in(&second, &first)];
    lists.iter().any(|list| !list.is_empty()).then_some(lists)
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn costly_options_are_those_that_are_set() {
        let text = "# CONFIG_PSI is not set\nCONFIG_HZ=1000\nCONFIG_SECURITY=y\nCONFIG_KFENCE=y\n\
                    CONFIG_DEFAULT_HOSTNAME=\"(none)\"\n";
        assert_eq!(costly(&parse(text)), ["HZ=1000", "KFENCE"]);
        assert_eq!(parse(text)["DEFAULT_HOSTNAME"], "(none)");
        let mut sorted = COSTLY.to_vec();
        sorted.sort_unstable();
        sorted.dedup();
        assert_eq!(sorted.len(), COSTLY.len(), "an option stands twice");
    }

    #[test]
    fn options_that_only_one_kernel_has_are_named_on_its_side() {
        let (host, guest) = (json!(["HZ=1000", "PSI"]), json!(["HZ=250", "PSI", "KFENCE"]));
        let lists = differing(Some(&host), Some(&guest)).unwrap();
        assert_eq!(lists, [vec!["HZ=1000".to_owned()], vec!["HZ=250".into(), "KFENCE".into()]]);
        assert_eq!(differing(Some(&host), Some(&host)), None);
        assert_eq!(differing(Some(&host), None), None);
        assert_eq!(differing(Some(&json!("PSI")), Some(&host)), None);
        let block = |options: &Value| Map::from_iter([(FACT.to_owned(), options.clone())]);
        let sentence = difference(["here", "there"], [&block(&host), &block(&json!(["PSI"]))]);
        assert!(sentence.unwrap().ends_with("cost: HZ=1000 here, none there"));
    }
}
