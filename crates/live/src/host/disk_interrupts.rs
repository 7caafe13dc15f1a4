//! The interrupt lines of a block device, by its device number.

use std::fs::canonicalize;
use std::path::Path;

use super::Root;

/// Most devices that one device is made of, and most levels of such devices.
const PARTS_MAX: usize = 64;
const LEVELS_MAX: usize = 8;

/// The kernel's numbers of the interrupts of a block device, or of the devices that it is made of (device mapper,
/// RAID), sorted. `None` if no device has such a number, as for a file system without a device of its own, or if sysfs
/// does not list its interrupts.
#[must_use]
pub fn disk_irqs(root: &Root, major: u32, minor: u32) -> Option<Vec<u32>> {
    let device = canonicalize(root.path(format!("sys/dev/block/{major}:{minor}"))).ok()?;
    let mut irqs = irqs_of(root, &device, LEVELS_MAX);
    irqs.sort_unstable();
    irqs.dedup();
    (!irqs.is_empty()).then_some(irqs)
}

/// The interrupts of the block device with this directory in sysfs.
fn irqs_of(root: &Root, device: &Path, levels: usize) -> Vec<u32> {
    let parts = std::fs::read_dir(device.join("slaves")).into_iter().flatten().take(PARTS_MAX);
    let parts: Vec<_> = parts.filter_map(|part| canonicalize(part.ok()?.path()).ok()).collect();
    if !parts.is_empty() && levels > 0 {
        return parts.iter().flat_map(|part| irqs_of(root, part, levels - 1)).collect();
    }
    // The controller is the next device above that has interrupts.
    let end = root.path("sys");
    let end = canonicalize(&end).unwrap_or(end);
    let above = device.ancestors().take_while(|directory| *directory != end);
    above.map(lines_of).find(|irqs| !irqs.is_empty()).unwrap_or_default()
}

/// Returns the interrupts of a device on a bus: its message-signalled interrupts, or its line if it has none.
fn lines_of(device: &Path) -> Vec<u32> {
    let messages = std::fs::read_dir(device.join("msi_irqs")).into_iter().flatten();
    let messages: Vec<u32> =
        messages.filter_map(|irq| irq.ok()?.file_name().to_str()?.parse().ok()).collect();
    if !messages.is_empty() {
        return messages;
    }
    let line = std::fs::read_to_string(device.join("irq")).ok();
    line.and_then(|line| line.trim().parse().ok()).filter(|irq| *irq > 0).into_iter().collect()
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::os::unix::fs::symlink;

    use super::*;

    #[test]
    fn a_disk_has_the_interrupts_of_its_controller_and_a_made_device_those_of_its_disks() {
        let directory = tempfile::tempdir().unwrap();
        let sys = directory.path().join("sys");
        let make = |path: &str| fs::create_dir_all(sys.join(path)).unwrap();
        let write = |path: &str, text: &str| fs::write(sys.join(path), text).unwrap();
        let (virtio, ide) = ("devices/pci0/02.0", "devices/pci0/01.1");
        make("dev/block");
        make(&format!("{virtio}/virtio1/block/vda/vda1"));
        make(&format!("{virtio}/msi_irqs"));
        for irq in ["36", "35"] {
            write(&format!("{virtio}/msi_irqs/{irq}"), "msix\n");
        }
        write(&format!("{virtio}/irq"), "10\n");
        make(&format!("{ide}/ata1/block/sda"));
        write(&format!("{ide}/irq"), "14\n");
        make("devices/virtual/block/dm-0/slaves");
        make("devices/virtual/block/loop0");
        let (vda1, sda) =
            (format!("{virtio}/virtio1/block/vda/vda1"), format!("{ide}/ata1/block/sda"));
        for (number, device) in [
            ("254:1", vda1.as_str()),
            ("8:0", sda.as_str()),
            ("253:0", "devices/virtual/block/dm-0"),
            ("7:0", "devices/virtual/block/loop0"),
        ] {
            symlink(sys.join(device), sys.join("dev/block").join(number)).unwrap();
        }
        for (name, device) in [("vda1", &vda1), ("sda", &sda)] {
            let slaves = sys.join("devices/virtual/block/dm-0/slaves");
            symlink(sys.join(device), slaves.join(name)).unwrap();
        }
        let root = Root::new(directory.path());
        let irqs = |major, minor| disk_irqs(&root, major, minor);
        assert_eq!(irqs(254, 1), Some(vec![35, 36]));
        assert_eq!(irqs(8, 0), Some(vec![14]));
        assert_eq!(irqs(253, 0), Some(vec![14, 35, 36]));
        assert_eq!(irqs(7, 0), None, "a device without hardware");
        assert_eq!(irqs(0, 31), None, "a file system without a device");
    }
}
