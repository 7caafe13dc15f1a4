//! Lists the disks and network interfaces that the kernel has found, for the message `facts`. The host compares the
//! list with the devices of the machine: a device without a driver is missing from it.

use std::fs;
use std::path::Path;
use std::thread;
use std::time::Duration;

use crate::facts::quoted;

/// Maximum time to wait for disks and interfaces after modules are loaded.
const SETTLE_MAX: Duration = Duration::from_secs(2);
const SETTLE_STEP: Duration = Duration::from_millis(10);

/// A disk or a network interface.
#[derive(Debug, PartialEq, Eq)]
pub struct Device {
    name: String,
    /// `VENDOR:DEVICE` of the PCI device that contains this device.
    pci: String,
    /// The driver of the PCI device. For a virtio device, the driver of the virtio device.
    driver: String,
}

impl Device {
    /// Returns the device as a JSON object.
    pub fn to_json(&self) -> String {
        let [name, pci, driver] = [&self.name, &self.pci, &self.driver].map(|text| quoted(text));
        format!(r#"{{"name":{name},"pci":{pci},"driver":{driver}}}"#)
    }
}

/// Waits until there are `count` devices, but not longer than [`SETTLE_MAX`]. Returns all devices.
pub fn settled(count: usize) -> Vec<Device> {
    let mut waited = Duration::ZERO;
    loop {
        let devices = pci_devices(Path::new("/sys"));
        if devices.len() >= count || waited >= SETTLE_MAX {
            return devices;
        }
        thread::sleep(SETTLE_STEP);
        waited += SETTLE_STEP;
    }
}

/// Returns the disks and interfaces of PCI devices, sorted by name. Software devices (loop, lo, veth) are left
/// out.
fn pci_devices(sys: &Path) -> Vec<Device> {
    let mut devices = Vec::new();
    for class in ["block", "class/net"] {
        for entry in fs::read_dir(sys.join(class)).into_iter().flatten().flatten() {
            let name = entry.file_name().to_string_lossy().into_owned();
            let device = fs::canonicalize(entry.path().join("device"));
            devices.extend(device.ok().and_then(|path| device_at(name, &path)));
        }
    }
    devices.sort_by(|first, second| first.name.cmp(&second.name));
    devices
}

/// Returns the device of a directory in /sys/devices, or `None` if the directory is not below a PCI device with
/// a driver.
fn device_at(name: String, path: &Path) -> Option<Device> {
    let has_subsystem = |directory: &Path, subsystem: &str| {
        link_name(&directory.join("subsystem")).as_deref() == Some(subsystem)
    };
    let pci = path.ancestors().find(|directory| has_subsystem(directory, "pci"))?;
    let id = |file: &str| {
        let text = fs::read_to_string(pci.join(file)).ok()?;
        Some(text.trim().trim_start_matches("0x").to_owned())
    };
    // A disk on a controller gets the controller's driver. A virtio device has a driver itself.
    let virtio = path.ancestors().find(|directory| has_subsystem(directory, "virtio"));
    let driver = link_name(&virtio.unwrap_or(pci).join("driver"))?;
    Some(Device { name, pci: format!("{}:{}", id("vendor")?, id("device")?), driver })
}

/// Returns the last component of a symbolic link's target.
fn link_name(path: &Path) -> Option<String> {
    Some(fs::read_link(path).ok()?.file_name()?.to_string_lossy().into_owned())
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::symlink;

    use super::*;

    /// A directory below `devices` with a subsystem and a driver.
    fn device(sys: &Path, path: &str, subsystem: &str, driver: Option<&str>) {
        let directory = sys.join("devices").join(path);
        fs::create_dir_all(&directory).unwrap();
        symlink(format!("/sys/bus/{subsystem}"), directory.join("subsystem")).unwrap();
        if let Some(driver) = driver {
            symlink(format!("/sys/drivers/{driver}"), directory.join("driver")).unwrap();
        }
    }

    fn id(sys: &Path, path: &str, vendor: &str, device: &str) {
        let directory = sys.join("devices").join(path);
        fs::write(directory.join("vendor"), format!("0x{vendor}\n")).unwrap();
        fs::write(directory.join("device"), format!("0x{device}\n")).unwrap();
    }

    fn node(sys: &Path, class: &str, name: &str, device: &str) {
        let directory = sys.join(class).join(name);
        fs::create_dir_all(&directory).unwrap();
        symlink(sys.join("devices").join(device), directory.join("device")).unwrap();
    }

    #[test]
    fn devices_have_the_ids_and_the_driver_of_their_pci_device() {
        let directory = std::env::temp_dir().join(format!("irqlab-sys-{}", std::process::id()));
        let sys = directory.as_path();
        device(sys, "pci0/2", "pci", Some("virtio-pci"));
        id(sys, "pci0/2", "1af4", "1000");
        device(sys, "pci0/2/virtio0", "virtio", Some("virtio_net"));
        id(sys, "pci0/2/virtio0", "1af4", "0001");
        node(sys, "class/net", "eth0", "pci0/2/virtio0");
        device(sys, "pci0/3", "pci", Some("ahci"));
        id(sys, "pci0/3", "8086", "2922");
        device(sys, "pci0/3/target/0:0:0:0", "scsi", Some("sd"));
        node(sys, "block", "sda", "pci0/3/target/0:0:0:0");
        // A device without a driver, and a software device.
        device(sys, "pci0/4", "pci", None);
        id(sys, "pci0/4", "8086", "100e");
        node(sys, "class/net", "eth1", "pci0/4");
        fs::create_dir_all(sys.join("class/net/lo")).unwrap();
        let devices: Vec<String> = pci_devices(sys).iter().map(Device::to_json).collect();
        fs::remove_dir_all(sys).unwrap();
        assert_eq!(
            devices,
            [
                r#"{"name":"eth0","pci":"1af4:1000","driver":"virtio_net"}"#,
                r#"{"name":"sda","pci":"8086:2922","driver":"ahci"}"#,
            ]
        );
    }
}
