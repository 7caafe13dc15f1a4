//! The `host` block of a run: the facts about the machine that a reader of the numbers must know. Its keys
//! are part of the format of a run.

use lab::kernel_options;
use lab::keys;
use serde_json::{Map, Value, json};

use super::HostFacts;
use super::cgroup::CpuQuota;
use super::cpu_list::format_cpu_list;

/// Selects the facts that go into every run. Absent facts are left out. Nothing in the block names
/// the machine's owner: no host name, no command line.
#[must_use]
pub fn run_host_block(facts: &HostFacts) -> Map<String, Value> {
    let mut block = Map::new();
    let mut put = |name: &str, value: Value| {
        let is_absent = value.is_null() || value == json!([]);
        if !is_absent {
            block.insert(name.to_owned(), value);
        }
    };
    let list = |cpus: &Option<Vec<u32>>| cpus.as_deref().map(format_cpu_list);
    put(keys::KERNEL, json!(facts.kernel.release));
    put("arch", json!(facts.kernel.arch));
    put("cpu_vendor", json!(facts.cpu.model.vendor));
    put(keys::CPU_MODEL, json!(facts.cpu.model.name));
    put("cpu_family", json!(facts.cpu.model.family));
    put("cpu_model_number", json!(facts.cpu.model.model));
    put("cpu_stepping", json!(facts.cpu.model.stepping));
    put("microcode", json!(facts.cpu.model.microcode));
    put("cpus_online", json!(list(&facts.cpu.online)));
    if facts.limits.cpus_allowed != facts.cpu.online {
        put("cpus_allowed", json!(list(&facts.limits.cpus_allowed)));
    }
    let limits = &facts.limits.cgroup;
    put("memory_limit_bytes", json!(limits.memory.as_ref().map(|memory| memory.limit_bytes)));
    put("cpu_quota_cpus", json!(limits.cpu.as_ref().map(CpuQuota::cpus)));
    let unknown = limits.unknown.iter().map(|limit| limit.controller);
    put("cgroup_limits_unknown", json!(unknown.collect::<Vec<_>>()));
    put("packages", json!(facts.cpu.packages()));
    put("cores", json!(facts.cpu.cores()));
    put("numa_nodes", json!(facts.cpu.nodes()));
    put("caches", json!(facts.caches));
    put("memory_bytes", json!(facts.memory.total_bytes));
    put("clock_source", json!(facts.clock.source));
    put("tsc_khz", json!(facts.clock.tsc_khz));
    put("constant_tsc", json!(facts.cpu.model.constant_tsc));
    put("nonstop_tsc", json!(facts.cpu.model.nonstop_tsc));
    put(keys::VIRTUALIZED, json!(facts.hypervisor.present));
    put("hypervisor", json!(facts.hypervisor.name));
    put(keys::HZ, json!(facts.kernel.hz));
    put("nohz_full", json!(list(&facts.kernel.nohz_full)));
    put("isolcpus", json!(list(&facts.kernel.isolated)));
    put("rcu_nocbs", json!(facts.kernel.rcu_nocbs));
    put("governors", json!(facts.cpu.governors()));
    put("idle_driver", json!(facts.cpu.idle_driver));
    put("preemption_built", json!(facts.kernel.preemption.built));
    put("preemption", json!(facts.kernel.preemption.running));
    put("realtime", json!(facts.kernel.preemption.realtime));
    put("irq_time_accounting", json!(facts.kernel.irq_time_accounting));
    put(kernel_options::FACT, json!(facts.kernel.costly_options));
    put("boot_options", json!(facts.kernel.boot_options));
    put(keys::PMU, json!(facts.pmu.counts()));
    put("pmu_counters", json!(facts.pmu.counters_in_group));
    put("pmu_general_counters", json!(facts.pmu.general_counters_in_group));
    put("steal_ticks", json!(facts.steal.steal_ticks()));
    put("steal_ratio", json!(facts.steal.steal_ratio()));
    block
}

#[cfg(test)]
mod tests {
    use super::super::KernelFacts;
    use super::*;

    #[test]
    fn absent_facts_are_left_out_and_empty_lists_of_cpus_stay() {
        assert!(run_host_block(&HostFacts::default()).is_empty());
        let kernel = KernelFacts {
            hz: Some(1000),
            isolated: Some(vec![]),
            nohz_full: Some(vec![2, 3]),
            ..KernelFacts::default()
        };
        let block = run_host_block(&HostFacts { kernel, ..HostFacts::default() });
        assert_eq!(block["hz"], 1000);
        assert_eq!(block["isolcpus"], "", "known: none");
        assert_eq!(block["nohz_full"], "2-3");
        assert!(!block.contains_key("hypervisor"));
    }
}
