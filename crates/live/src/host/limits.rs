//! Limits that give this process less than the machine has: fewer CPUs, limits of control groups, namespaces.

use serde::Serialize;

use super::cgroup::{CgroupLimits, cgroup_limits};
use super::cpu_list::parse_cpu_list;
use super::namespaces::{NamespaceFacts, namespaces};
use super::process_cpus::process_cpus;
use super::root::Root;

/// The limits of this process.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct LimitFacts {
    /// The CPUs that this process may use by default ([`process_cpus`]).
    pub cpus_allowed: Option<Vec<u32>>,
    pub cgroup: CgroupLimits,
    pub namespaces: NamespaceFacts,
}

/// Reads the limits of this process.
#[must_use]
pub fn limit_facts(root: &Root) -> LimitFacts {
    let cpus_allowed = if root.is_live() {
        Some(process_cpus().started_with.clone())
    } else {
        allowed_by_status(&root.text("proc/self/status").unwrap_or_default())
    };
    LimitFacts { cpus_allowed, cgroup: cgroup_limits(root), namespaces: namespaces(root) }
}

/// The allowed CPUs in the text of /proc/self/status.
fn allowed_by_status(status: &str) -> Option<Vec<u32>> {
    let line = status.lines().find_map(|line| line.strip_prefix("Cpus_allowed_list:"))?;
    parse_cpu_list(line.trim()).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn allowed_cpus_are_a_line_of_the_status() {
        let status = "Cpus_allowed:\t2\nCpus_allowed_list:\t1,4-5\nMems_allowed_list:\t0\n";
        assert_eq!(allowed_by_status(status), Some(vec![1, 4, 5]));
        assert_eq!(allowed_by_status("Cpus_allowed:\t2\n"), None);
    }
}
