//! The two network cards of a simulated machine, which are connected back to back: their identity, their interrupts,
//! and the CPUs of the interrupts. Runs in the guest; [`irqs_of`] also serves `signal` on a card of the real machine.

use std::fs;
use std::io;
use std::path::Path;

use serde_json::{Map, Value as Json, json};

/// Names of the cards in the guest's kernel.
pub(super) const CARDS: [&str; 2] = ["eth0", "eth1"];

/// Numbers of the interrupts of the two cards. Look them up before the cards move to other namespaces, because sysfs
/// does not show the cards afterwards.
pub struct CardIrqs {
    near: Vec<u32>,
    far: Vec<u32>,
}

impl CardIrqs {
    /// Looks up the interrupts in the caller's namespace.
    ///
    /// Fails if both cards have an interrupt in common.
    pub fn find() -> Result<CardIrqs, String> {
        let [near, far] = CARDS.map(irqs_of);
        match near.iter().find(|irq| far.contains(irq)) {
            Some(shared) => Err(format!("both cards interrupt by the line {shared}")),
            None => Ok(CardIrqs { near, far }),
        }
    }

    /// Interrupts of the near card.
    #[must_use]
    pub fn near_irqs(&self) -> &[u32] {
        &self.near
    }

    /// Directs the interrupts of the near card to `near_cpu`, and the far card's to `far_cpu`. Nothing restores
    /// the affinities, because the simulated machine ends with its experiment.
    ///
    /// Fails if the kernel refuses.
    pub fn direct(&self, near_cpu: u32, far_cpu: u32) -> io::Result<()> {
        direct(&self.near, near_cpu).and_then(|()| direct(&self.far, far_cpu))
    }
}

/// Numbers of a card's message-signalled interrupts or, if it has none, the number of its interrupt line
/// (Documentation/ABI/testing/sysfs-bus-pci: irq, msi_irqs). Empty for a card in another namespace.
pub fn irqs_of(card: &str) -> Vec<u32> {
    let Ok(device) = fs::canonicalize(format!("/sys/class/net/{card}/device")) else {
        return Vec::new();
    };
    pci_device_of(&device).map(irqs_at).unwrap_or_default()
}

/// The PCI device of a card, which raises its interrupts: the card's device itself, or its parent for a virtio device.
fn pci_device_of(device: &Path) -> Option<&Path> {
    let is_pci = |device: &&Path| device.join("irq").exists();
    device.ancestors().take(2).find(is_pci)
}

/// The cards as facts of a run: names, PCI devices and drivers, in the format of [`super::Pair::facts`].
#[must_use]
pub fn card_facts() -> Map<String, Json> {
    let card = |name: &str| match identity_of(name) {
        Some((pci, driver)) => json!({ "name": name, "pci": pci, "driver": driver }),
        None => json!({ "name": name }),
    };
    Map::from_iter([("interfaces".to_owned(), json!(CARDS.map(card)))])
}

/// Identity of a card: `VENDOR:DEVICE` of its PCI device in hexadecimal, and its driver. `None`
/// without PCI device or driver, as for interfaces that exist only in software.
pub(super) fn identity_of(card: &str) -> Option<(String, String)> {
    identity_at(&fs::canonicalize(format!("/sys/class/net/{card}/device")).ok()?)
}

/// Like [`identity_of`], from the directory of the card's device. The driver is the device's own, also for a virtio
/// device. `None` if the card has no driver or no PCI device, or its files cannot be read.
fn identity_at(device: &Path) -> Option<(String, String)> {
    let driver = fs::read_link(device.join("driver")).ok()?;
    let pci = pci_device_of(device)?;
    let hex_digits = |file: &str| {
        let text = fs::read_to_string(pci.join(file)).ok()?;
        Some(text.trim().trim_start_matches("0x").to_owned())
    };
    let driver = driver.file_name()?.to_string_lossy().into_owned();
    Some((format!("{}:{}", hex_digits("vendor")?, hex_digits("device")?), driver))
}

/// Numbers of the interrupts of a PCI device.
fn irqs_at(device: &Path) -> Vec<u32> {
    let entries = fs::read_dir(device.join("msi_irqs")).into_iter().flatten().flatten();
    let numbers = entries.filter_map(|entry| entry.file_name().to_str()?.parse().ok());
    let message_irqs: Vec<u32> = numbers.collect();
    if !message_irqs.is_empty() {
        return message_irqs;
    }
    let line = fs::read_to_string(device.join("irq")).ok();
    line.and_then(|line| line.trim().parse().ok()).filter(|line| *line > 0).into_iter().collect()
}

fn direct(irqs: &[u32], cpu: u32) -> io::Result<()> {
    irqs.iter().try_for_each(|irq| {
        fs::write(format!("/proc/irq/{irq}/smp_affinity_list"), cpu.to_string())
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_card_is_its_pci_device_with_the_driver_that_makes_the_interface() {
        let pci = tempfile::tempdir().unwrap();
        let virtio = pci.path().join("virtio0");
        fs::create_dir(&virtio).unwrap();
        fs::write(pci.path().join("irq"), "11\n").unwrap();
        fs::write(pci.path().join("vendor"), "0x1af4\n").unwrap();
        fs::write(pci.path().join("device"), "0x1000\n").unwrap();
        assert_eq!(identity_at(&virtio), None);
        std::os::unix::fs::symlink("/sys/bus/virtio/drivers/virtio_net", virtio.join("driver"))
            .unwrap();
        let identity = ("1af4:1000".to_owned(), "virtio_net".to_owned());
        assert_eq!(identity_at(&virtio), Some(identity));
    }

    #[test]
    fn messages_come_before_the_line() {
        let device = tempfile::tempdir().unwrap();
        assert!(irqs_at(device.path()).is_empty());
        fs::write(device.path().join("irq"), "0\n").unwrap();
        assert!(irqs_at(device.path()).is_empty());
        fs::write(device.path().join("irq"), "11\n").unwrap();
        assert_eq!(irqs_at(device.path()), [11]);
        fs::create_dir(device.path().join("msi_irqs")).unwrap();
        fs::write(device.path().join("msi_irqs/24"), "msix\n").unwrap();
        assert_eq!(irqs_at(device.path()), [24]);
    }
}
