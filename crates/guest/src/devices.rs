//! The disks and network interfaces that the kernel has made of the machine's devices. The host compares them
//! with those that it gave the machine: a kernel that lacks a driver says nothing.

use std::fs;
use std::path::Path;
use std::thread;
use std::time::Duration;

use crate::facts::quoted;

/// Maximum time that drivers may take to make disks and interfaces once their modules are loaded.
const SETTLE_MAX: Duration = Duration::from_secs(2);
const SETTLE_STEP: Duration = Duration::from_millis(10);

/// A disk or a network interface.
#[derive(Debug, PartialEq, Eq)]
pub struct Device {
    name: String,
    /// `VENDOR:DEVICE` of the PCI device that it is part of.
    pci: String,
    /// The driver of that device, or of its child that is nearest to the disk or interface.
    driver: String,
}

impl Device {
    /// Returns it as a JSON object.
    pub fn to_json(&self) -> String {
        let [name, pci, driver] = [&self.name, &self.pci, &self.driver].map(|text| quoted(text));
        format!(r#"{{"name":{name},"pci":{pci},"driver":{driver}}}"#)
    }
}

/// Waits until there are `count` devices, if they come, and returns all.
pub fn settled(count: usize) -> Vec<Device> {
    let mut waited = Duration::ZERO;
    loop {
        let found = found(Path::new("/sys"));
        if found.len() >= count || waited >= SETTLE_MAX {
            return found;
        }
        thread::sleep(SETTLE_STEP);
        waited += SETTLE_STEP;
    }
}

/// Returns those of PCI devices, by name. What is only software (loop, lo, veth) is no device.
fn found(sys: &Path) -> Vec<Device> {
    let mut found = Vec::new();
    for class in ["block", "class/net"] {
        for entry in fs::read_dir(sys.join(class)).into_iter().flatten().flatten() {
            let name = entry.file_name().to_string_lossy().into_owned();
            let device = fs::canonicalize(entry.path().join("device"));
            found.extend(device.ok().and_then(|path| device_at(name, &path)));
        }
    }
    found.sort_by(|a, b| a.name.cmp(&b.name));
    found
}

/// Returns the device of a directory of /sys/devices, if that lies below a PCI device with a driver.
fn device_at(name: String, path: &Path) -> Option<Device> {
    let is_pci = |at: &&Path| link_name(&at.join("subsystem")).as_deref() == Some("pci");
    let pci = path.ancestors().find(is_pci)?;
    let id = |file: &str| {
        let text = fs::read_to_string(pci.join(file)).ok()?;
        Some(text.trim().trim_start_matches("0x").to_owned())
    };
    // Of a disk on a controller the driver of the controller; of a virtio device that of the device.
    let is_virtio = |at: &&Path| link_name(&at.join("subsystem")).as_deref() == Some("virtio");
    let of = path.ancestors().find(is_virtio).unwrap_or(pci);
    let driver = link_name(&of.join("driver"))?;
    Some(Device { name, pci: format!("{}:{}", id("vendor")?, id("device")?), driver })
}

/// Returns the last part of the place that a symbolic link names.
fn link_name(path: &Path) -> Option<String> {
    Some(fs::read_link(path).ok()?.file_name()?.to_string_lossy().into_owned())
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::symlink;

    use super::*;

    /// A directory below `devices` with a subsystem and a driver.
    fn device(sys: &Path, path: &str, subsystem: &str, driver: Option<&str>) {
        let at = sys.join("devices").join(path);
        fs::create_dir_all(&at).unwrap();
        symlink(format!("/sys/bus/{subsystem}"), at.join("subsystem")).unwrap();
        if let Some(driver) = driver {
            symlink(format!("/sys/drivers/{driver}"), at.join("driver")).unwrap();
        }
    }

    fn id(sys: &Path, path: &str, vendor: &str, device: &str) {
        let at = sys.join("devices").join(path);
        fs::write(at.join("vendor"), format!("0x{vendor}\n")).unwrap();
        fs::write(at.join("device"), format!("0x{device}\n")).unwrap();
    }

    fn node(sys: &Path, class: &str, name: &str, device: &str) {
        let at = sys.join(class).join(name);
        fs::create_dir_all(&at).unwrap();
        symlink(sys.join("devices").join(device), at.join("device")).unwrap();
    }

    #[test]
    fn devices_are_told_by_their_pci_device_and_its_driver() {
        let place = std::env::temp_dir().join(format!("irqlab-sys-{}", std::process::id()));
        let sys = place.as_path();
        device(sys, "pci0/2", "pci", Some("virtio-pci"));
        id(sys, "pci0/2", "1af4", "1000");
        device(sys, "pci0/2/virtio0", "virtio", Some("virtio_net"));
        id(sys, "pci0/2/virtio0", "1af4", "0001");
        node(sys, "class/net", "eth0", "pci0/2/virtio0");
        device(sys, "pci0/3", "pci", Some("ahci"));
        id(sys, "pci0/3", "8086", "2922");
        device(sys, "pci0/3/target/0:0:0:0", "scsi", Some("sd"));
        node(sys, "block", "sda", "pci0/3/target/0:0:0:0");
        // One without a driver, and software.
        device(sys, "pci0/4", "pci", None);
        id(sys, "pci0/4", "8086", "100e");
        node(sys, "class/net", "eth1", "pci0/4");
        fs::create_dir_all(sys.join("class/net/lo")).unwrap();
        let found: Vec<String> = found(sys).iter().map(Device::to_json).collect();
        fs::remove_dir_all(sys).unwrap();
        assert_eq!(
            found,
            [
                r#"{"name":"eth0","pci":"1af4:1000","driver":"virtio_net"}"#,
                r#"{"name":"sda","pci":"8086:2922","driver":"ahci"}"#,
            ]
        );
    }
}
