//! The CPUs that each device interrupt may use, and the CPUs that it uses, from /proc/irq. `handlers` estimates from
//! them how many contexts each CPU has; `marks` takes the names of IRQ lines from here.

use serde::Serialize;

use super::cpu_list::parse_cpu_list;
use super::root::Root;

/// A device interrupt, its handlers and its CPUs.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct IrqAffinity {
    pub number: u32,
    /// Names of the interrupt's handlers, from /sys/kernel/irq (where names contain no comma).
    /// Empty if no handler is installed.
    pub actions: Vec<String>,
    /// CPUs that the interrupt may use (`smp_affinity_list`); `None` if unknown.
    pub allowed: Option<Vec<u32>>,
    /// CPUs programmed into the interrupt controller (`effective_affinity_list`), which only
    /// root can read; `None` if unknown.
    pub effective: Option<Vec<u32>>,
}

/// All interrupts of /proc/irq, in the order of their numbers; `None` without that directory.
#[must_use]
pub fn irq_affinities(root: &Root) -> Option<Vec<IrqAffinity>> {
    let names = root.names("proc/irq")?;
    let mut numbers: Vec<u32> = names.iter().filter_map(|name| name.parse().ok()).collect();
    numbers.sort_unstable();
    let affinities = numbers.into_iter().map(|number| {
        let cpus_in = |name: &str| {
            let list = root.text(format!("proc/irq/{number}/{name}"))?;
            parse_cpu_list(&list).ok().filter(|cpus| !cpus.is_empty())
        };
        IrqAffinity {
            number,
            actions: actions(root, number),
            allowed: cpus_in("smp_affinity_list"),
            effective: cpus_in("effective_affinity_list"),
        }
    });
    Some(affinities.collect())
}

/// Names of an interrupt's handlers.
fn actions(root: &Root, number: u32) -> Vec<String> {
    let Some(text) = root.word(format!("sys/kernel/irq/{number}/actions")) else {
        // Without /sys/kernel/irq: in /proc/irq/N, each handler has a directory with its name.
        let entries = root.names(format!("proc/irq/{number}")).unwrap_or_default();
        let is_directory = |name: &String| root.path(format!("proc/irq/{number}/{name}")).is_dir();
        return entries.into_iter().filter(is_directory).collect();
    };
    text.split(',').map(str::trim).filter(|name| !name.is_empty()).map(str::to_owned).collect()
}

#[cfg(test)]
mod tests {
    use super::super::root::plant;
    use super::*;

    #[test]
    fn affinities_from_a_fake_root() {
        let directory = tempfile::tempdir().unwrap();
        let root = Root::new(directory.path());
        assert_eq!(irq_affinities(&root), None);
        let write_file = |path: &str, text: &str| plant(directory.path(), path, text);
        write_file("proc/irq/default_smp_affinity", "3");
        write_file("proc/irq/16/smp_affinity_list", "0-1\n");
        write_file("proc/irq/16/effective_affinity_list", "1\n");
        write_file("sys/kernel/irq/16/actions", "ehci_hcd:usb1,i801_smbus\n");
        write_file("proc/irq/4/ttyS0/x", "");
        write_file("proc/irq/4/effective_affinity_list", "\n");
        let irqs = irq_affinities(&root).unwrap();
        assert_eq!(irqs.iter().map(|irq| irq.number).collect::<Vec<_>>(), [4, 16]);
        assert_eq!(irqs[0].actions, ["ttyS0"]);
        assert_eq!(irqs[0].effective, None);
        assert_eq!(irqs[1].actions, ["ehci_hcd:usb1", "i801_smbus"]);
        assert_eq!(irqs[1].allowed, Some(vec![0, 1]));
        assert_eq!(irqs[1].effective, Some(vec![1]));
    }
}
