//! CPUs that the user keeps from other work, and the sources of this fact.

use std::collections::BTreeMap;

use crate::host::{Root, kernel_facts, parse_cpu_list};

/// Deepest level of control groups that is searched.
const DEPTH_MAX: usize = 8;
/// Largest number of control groups that are searched.
const GROUPS_MAX: usize = 10_000;
/// Where version 2 of control groups is mounted.
const MOUNTS: [&str; 2] = ["sys/fs/cgroup", "sys/fs/cgroup/unified"];

/// The isolated CPUs, with the sources of each, such as `isolcpus`.
pub type IsolatedCpus = BTreeMap<u32, Vec<&'static str>>;

/// The CPUs that `isolcpus=`, `nohz_full=` or an isolated cpuset partition isolates. Finds the partitions of the control
/// groups that this process sees.
#[must_use]
pub fn isolated_cpus(root: &Root) -> IsolatedCpus {
    let kernel = kernel_facts(root);
    let mut isolated = IsolatedCpus::new();
    let mut add = |cpus: Vec<u32>, source: &'static str| {
        for cpu in cpus {
            let sources = isolated.entry(cpu).or_default();
            if !sources.contains(&source) {
                sources.push(source);
            }
        }
    };
    add(kernel.isolated.unwrap_or_default(), "isolcpus");
    add(kernel.nohz_full.unwrap_or_default(), "nohz_full");
    for mount in MOUNTS {
        let listed = root.text(format!("{mount}/cpuset.cpus.isolated"));
        match listed.and_then(|list| parse_cpu_list(&list).ok()) {
            Some(cpus) => add(cpus, "cpuset partition"),
            // Before Linux 6.7, only the partitions themselves say that they are isolated.
            None => add(cpus_of_partitions(root, mount), "cpuset partition"),
        }
    }
    isolated
}

/// The CPUs of the isolated partitions below a mount point.
fn cpus_of_partitions(root: &Root, mount: &str) -> Vec<u32> {
    if !root.exists(format!("{mount}/cgroup.controllers")) {
        return Vec::new();
    }
    let (mut cpus, mut groups) = (Vec::new(), vec![(mount.to_owned(), 0)]);
    let mut count = 0;
    while let Some((group, depth)) = groups.pop() {
        count += 1;
        if count > GROUPS_MAX {
            break;
        }
        if root.word(format!("{group}/cpuset.cpus.partition")).as_deref() == Some("isolated") {
            let list = root.text(format!("{group}/cpuset.cpus.effective")).unwrap_or_default();
            cpus.extend(parse_cpu_list(&list).unwrap_or_default());
        }
        if depth < DEPTH_MAX {
            let names = root.names(&group).unwrap_or_default().into_iter();
            let paths = names.map(|name| format!("{group}/{name}"));
            groups.extend(
                paths.filter(|path| root.path(path).is_dir()).map(|path| (path, depth + 1)),
            );
        }
    }
    cpus
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::host::plant;

    #[test]
    fn isolated_cpus_have_their_sources() {
        let directory = tempfile::tempdir().unwrap();
        let root = Root::new(directory.path());
        assert_eq!(isolated_cpus(&root), IsolatedCpus::new());
        let write = |path: &str, text: &str| plant(directory.path(), path, text);
        write("sys/devices/system/cpu/isolated", "2-3\n");
        write("sys/devices/system/cpu/nohz_full", "3\n");
        write("sys/fs/cgroup/cgroup.controllers", "cpuset\n");
        write("sys/fs/cgroup/a/b/cpuset.cpus.partition", "isolated\n");
        write("sys/fs/cgroup/a/b/cpuset.cpus.effective", "5\n");
        write("sys/fs/cgroup/c/cpuset.cpus.partition", "isolated invalid (x)\n");
        write("sys/fs/cgroup/c/cpuset.cpus.effective", "6\n");
        let found = isolated_cpus(&root);
        assert_eq!(found.keys().copied().collect::<Vec<_>>(), [2, 3, 5]);
        assert_eq!(found[&3], ["isolcpus", "nohz_full"]);
        assert_eq!(found[&5], ["cpuset partition"]);
        write("sys/fs/cgroup/cpuset.cpus.isolated", "7\n");
        assert!(isolated_cpus(&root).contains_key(&7));
    }
}
