//! The device of an interrupt line, its NUMA node, and the CPUs in the masks of its network queues (`rps_cpus`,
//! `xps_cpus`).

use std::collections::BTreeMap;
use std::path::PathBuf;

use crate::host::{IrqAffinity, Root, parse_cpu_list, parse_cpu_mask};

/// CPUs that are near to a line, and the source of this fact.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NearbyCpus {
    pub cpus: Vec<u32>,
    /// In words, such as `NUMA node 1 of 0000:00:03.0`.
    pub source: String,
}

/// A device's directory below the root, without the leading slash.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Device {
    directory: String,
}

/// The PCI devices by the numbers of their interrupts: the numbers in `msi_irqs`, or the line in `irq` if there are none
/// (Documentation/ABI/testing/sysfs-bus-pci). A line that several devices share is not among them.
pub(super) fn pci_devices(root: &Root) -> BTreeMap<u32, Device> {
    const PCI: &str = "sys/bus/pci/devices";
    let mut devices_by_number: BTreeMap<u32, Vec<Device>> = BTreeMap::new();
    for name in root.names(PCI).unwrap_or_default() {
        let device = Device { directory: format!("{PCI}/{name}") };
        let message_numbers =
            root.names(format!("{}/msi_irqs", device.directory)).unwrap_or_default();
        let mut numbers: Vec<u32> =
            message_numbers.iter().filter_map(|name| name.parse().ok()).collect();
        if numbers.is_empty() {
            // 0: the device has no line.
            let line: Option<u32> = root.number(format!("{}/irq", device.directory));
            numbers.extend(line.filter(|line| *line > 0));
        }
        for number in numbers {
            devices_by_number.entry(number).or_default().push(device.clone());
        }
    }
    let with_one_device = devices_by_number.into_iter().filter_map(|(number, devices)| {
        let [device] = <[Device; 1]>::try_from(devices).ok()?;
        Some((number, device))
    });
    with_one_device.collect()
}

/// The device of a line: the PCI device that alone has the line's number; else the virtio device, or the interface, whose
/// name is the start of the handler's name (`virtio0-input.0`, `eth0-rx-1`). `None` if the handlers' names lead to no
/// device or to several.
pub(super) fn of_line(
    root: &Root,
    devices: &BTreeMap<u32, Device>,
    line: &IrqAffinity,
) -> Option<Device> {
    if let Some(device) = devices.get(&line.number) {
        return Some(device.clone());
    }
    let mut named = line.actions.iter().filter_map(|action| {
        let name = action.split('-').next().filter(|name| !name.is_empty())?;
        let paths =
            [format!("sys/bus/virtio/devices/{name}"), format!("sys/class/net/{name}/device")];
        let directory = paths.into_iter().find(|path| root.exists(path))?;
        Some(Device { directory })
    });
    let first = named.next()?;
    named.all(|other| other == first).then_some(first)
}

impl Device {
    /// The network interface of the device, or of the virtio device on it. `None` if it has none, or several.
    pub(super) fn interface(&self, root: &Root) -> Option<String> {
        let on_virtio = root.names(&self.directory).unwrap_or_default().into_iter();
        let on_virtio = on_virtio
            .filter(|name| name.starts_with("virtio"))
            .map(|name| format!("{}/{name}/net", self.directory));
        let places = [format!("{}/net", self.directory)].into_iter().chain(on_virtio);
        let mut interfaces = places.flat_map(|path| root.names(path).unwrap_or_default());
        let interface = interfaces.next()?;
        interfaces.next().is_none().then_some(interface)
    }

    /// The online CPUs of the device's NUMA node. `None` if the device names no node, or the node has all online CPUs.
    pub(super) fn node(&self, root: &Root, online: &[u32]) -> Option<NearbyCpus> {
        let node: u32 = root.number(format!("{}/numa_node", self.directory))?;
        let list = root.text(format!("sys/devices/system/node/node{node}/cpulist"))?;
        let mut cpus = parse_cpu_list(&list).ok()?;
        cpus.retain(|cpu| online.contains(cpu));
        let is_everywhere = online.iter().all(|cpu| cpus.contains(cpu));
        let name = PathBuf::from(&self.directory);
        let name = name.file_name()?.to_string_lossy().into_owned();
        let source = format!("NUMA node {node} of {name}");
        (!cpus.is_empty() && !is_everywhere).then_some(NearbyCpus { cpus, source })
    }
}

/// The CPUs in `rps_cpus` and `xps_cpus` of the queue that a line serves; of all queues, if the handler's name has no
/// queue's number. `None` if they name no CPU. RPS processes received packets there; XPS has senders there.
pub(super) fn users(root: &Root, interface: &str, actions: &[String]) -> Option<NearbyCpus> {
    let directory = format!("sys/class/net/{interface}/queues");
    let queues = root.names(&directory)?;
    let number = actions.iter().find_map(|action| {
        let digits = action.len() - action.trim_end_matches(|c: char| c.is_ascii_digit()).len();
        action[action.len() - digits..].parse::<u32>().ok()
    });
    let has_same_number = |queue: &&String| {
        let of_queue = queue.rsplit('-').next().and_then(|text| text.parse::<u32>().ok());
        number.is_some() && of_queue == number
    };
    let same_number: Vec<&String> = queues.iter().filter(has_same_number).collect();
    let chosen = if same_number.is_empty() { queues.iter().collect() } else { same_number };
    let (mut cpus, mut sources) = (Vec::new(), Vec::new());
    for queue in chosen {
        for file in ["rps_cpus", "xps_cpus"] {
            let mask = root.word(format!("{directory}/{queue}/{file}"));
            let Some(named) = mask.and_then(|mask| parse_cpu_mask(&mask)) else { continue };
            if !named.is_empty() {
                cpus.extend(named);
                sources.push(format!("{file} of {interface} {queue}"));
            }
        }
    }
    cpus.sort_unstable();
    cpus.dedup();
    (!cpus.is_empty()).then(|| NearbyCpus { cpus, source: sources.join(", ") })
}
