//! The interrupt lines of this machine for `irqlab affinity`: which can be moved, which CPUs are near their devices, and
//! which CPUs may take them. [`Session`] moves lines, with a journal.

mod device;
mod isolation;
mod mobility;
mod session;

use std::collections::BTreeMap;

pub use device::NearbyCpus;
pub use isolation::{IsolatedCpus, isolated_cpus};
pub use mobility::{Mobility, has_rights};
pub use session::{LineRefusal, Session};

use crate::host::{IrqAffinity, Root, irq_affinities};

/// A line with at least one handler.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct IrqLine {
    pub affinity: IrqAffinity,
    pub mobility: Mobility,
    /// The network interface of the line's device, if it is in this network namespace.
    pub interface: Option<String>,
    /// The CPUs of the device's NUMA node; `None` if the machine does not name a node, or the node has all CPUs.
    pub node: Option<NearbyCpus>,
    /// The CPUs that the settings of the interface's queue name; `None` if the settings name no CPU.
    pub users: Option<NearbyCpus>,
}

/// The lines that have a handler, in the order of their numbers; `None` without /proc/irq. `online`: the online CPUs.
#[must_use]
pub fn irq_lines(root: &Root, online: &[u32]) -> Option<Vec<IrqLine>> {
    let devices = device::pci_devices(root);
    let with_handlers = irq_affinities(root)?.into_iter().filter(|irq| !irq.actions.is_empty());
    let lines = with_handlers.map(|affinity| {
        let device = device::of_line(root, &devices, &affinity);
        let interface = device.as_ref().and_then(|device| device.interface(root));
        let users =
            interface.as_ref().and_then(|name| device::users(root, name, &affinity.actions));
        IrqLine {
            mobility: mobility::of_line(root, affinity.number),
            node: device.and_then(|device| device.node(root, online)),
            interface,
            users,
            affinity,
        }
    });
    Some(lines.collect())
}

/// The lines of each network interface.
#[must_use]
pub fn lines_of_interfaces(lines: &[IrqLine]) -> BTreeMap<String, Vec<u32>> {
    let mut interfaces: BTreeMap<String, Vec<u32>> = BTreeMap::new();
    for line in lines {
        if let Some(name) = &line.interface {
            interfaces.entry(name.clone()).or_default().push(line.affinity.number);
        }
    }
    interfaces
}

/// The processes named `irqbalance`, which move interrupts on their own. Kernel threads do not count.
#[must_use]
pub fn irqbalance_processes(root: &Root) -> Vec<u32> {
    let names = root.names("proc").unwrap_or_default();
    let processes = names.iter().filter_map(|name| name.parse::<u32>().ok());
    let is_irqbalance = |process: &u32| {
        root.word(format!("proc/{process}/comm")).as_deref() == Some("irqbalance")
            && root.word(format!("proc/{process}/cmdline")).is_some()
    };
    let mut processes: Vec<u32> = processes.filter(is_irqbalance).collect();
    processes.sort_unstable();
    processes
}

/// The identity of this boot; `None` if the kernel has none. A run of this boot was measured on this machine.
#[must_use]
pub fn boot_id(root: &Root) -> Option<String> {
    root.word("proc/sys/kernel/random/boot_id")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::host::plant;

    #[test]
    fn lines_know_their_device_and_irqbalance_is_found_by_name() {
        let directory = tempfile::tempdir().unwrap();
        let root = Root::new(directory.path());
        assert_eq!(irq_lines(&root, &[0, 1]), None);
        let write = |path: &str, text: &str| plant(directory.path(), path, text);
        write("proc/irq/24/smp_affinity_list", "0-3\n");
        write("proc/irq/25/smp_affinity_list", "0-3\n");
        write("sys/kernel/irq/24/actions", "eth0-rx-1\n");
        write("sys/kernel/irq/25/actions", "\n");
        let pci = "sys/bus/pci/devices/0000:00:03.0";
        write(&format!("{pci}/msi_irqs/24"), "msix\n");
        write(&format!("{pci}/numa_node"), "1\n");
        write(&format!("{pci}/net/eth0/x"), "");
        write("sys/devices/system/node/node1/cpulist", "2-3\n");
        write("sys/class/net/eth0/queues/rx-0/rps_cpus", "00000001\n");
        write("sys/class/net/eth0/queues/rx-1/rps_cpus", "0000000c\n");
        let lines = irq_lines(&root, &[0, 1, 2, 3]).unwrap();
        let [line] = &lines[..] else { panic!("a line without a handler: {lines:?}") };
        assert_eq!(line.interface.as_deref(), Some("eth0"));
        assert_eq!(line.node.as_ref().map(|near| &near.cpus[..]), Some(&[2, 3][..]));
        let users = line.users.as_ref().unwrap();
        assert_eq!((&users.cpus[..], &users.source[..]), (&[2, 3][..], "rps_cpus of eth0 rx-1"));
        assert_eq!(irq_lines(&root, &[2, 3]).unwrap()[0].node, None, "the node has all CPUs");
        assert_eq!(lines_of_interfaces(&lines)["eth0"], [24]);
        for (process, name, command) in [
            ("7", "irqbalance", "/usr/sbin/irqbalance\0"),
            ("8", "irqbalance", ""),
            ("9", "x", "y"),
        ] {
            write(&format!("proc/{process}/comm"), &format!("{name}\n"));
            write(&format!("proc/{process}/cmdline"), command);
        }
        assert_eq!(irqbalance_processes(&root), [7]);
    }

    #[test]
    fn a_line_of_several_devices_has_the_device_that_its_handlers_name() {
        let directory = tempfile::tempdir().unwrap();
        let root = Root::new(directory.path());
        let write = |path: &str, text: &str| plant(directory.path(), path, text);
        for number in [10, 11, 12] {
            write(&format!("proc/irq/{number}/smp_affinity_list"), "0-1\n");
        }
        write("sys/kernel/irq/10/actions", "eth1\n");
        write("sys/kernel/irq/11/actions", "eth0,ehci_hcd\n");
        write("sys/kernel/irq/12/actions", "eth0,eth1\n");
        let pci = "sys/bus/pci/devices";
        for (name, line) in [("03", 11), ("04", 11), ("05", 12), ("06", 12), ("07", 10)] {
            write(&format!("{pci}/0000:00:{name}.0/irq"), &format!("{line}\n"));
        }
        // The only interface of a PCI device on line 11 is not the one of the last device on it.
        for (interface, device) in [("eth0", "03"), ("eth1", "07")] {
            write(&format!("{pci}/0000:00:{device}.0/net/{interface}/x"), "");
            write(&format!("sys/class/net/{interface}/device/net/{interface}/x"), "");
        }
        let lines = irq_lines(&root, &[0, 1]).unwrap();
        let interfaces: Vec<_> = lines.iter().map(|line| line.interface.as_deref()).collect();
        assert_eq!(interfaces, [Some("eth1"), Some("eth0"), None]);
    }
}
