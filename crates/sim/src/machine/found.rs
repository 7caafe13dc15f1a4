//! Compares the disks and network cards that the guest's kernel found with the machine's own. A device
//! without a driver is silently absent in the guest, and a measurement would use another device.

use std::collections::BTreeMap;

use lab::kernel_options;
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

use super::Machine;
use super::devices::NicModel;
use crate::SimError;
use crate::guest::kernel::Kernel;

/// A disk or a network interface of the guest.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct FoundDevice {
    /// Its name in the guest.
    pub name: String,
    /// `VENDOR:DEVICE` of its PCI device, in hexadecimal.
    pub pci: String,
    pub driver: String,
}

/// A disk or network card of the machine.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct RequestedDevice {
    /// Its name in options.
    word: &'static str,
    /// `disk` or `network card`, for messages.
    kind: &'static str,
    /// `VENDOR:DEVICE` of its PCI device, in hexadecimal.
    pci: &'static str,
}

/// The remedy if the guest's kernel has no driver for a device.
const DRIVER_REMEDY: &str = "use --flavour full, Debian's kernel with all drivers; with --kernel, one with this driver \
                             built in, or with it among the modules of --modules";

/// The option of the kernel's configuration for the driver of a disk or card. `None` if several drivers may suit it.
fn driver_option(word: &str) -> Option<&'static str> {
    Some(match word {
        "virtio-blk" => "VIRTIO_BLK",
        "nvme" => "BLK_DEV_NVME",
        "ahci" => "SATA_AHCI",
        "ide" => "ATA_PIIX",
        "lsi" => "SCSI_SYM53C8XX_2",
        "virtio-net" => "VIRTIO_NET",
        "e1000" | "e1000-82545em" => "E1000",
        "rtl8139" => "8139CP",
        _ => return None,
    })
}

impl Machine {
    /// Checks that the kernel's configuration has a driver for each disk and card. A missing configuration passes.
    ///
    /// Fails with [`SimError::Missing`], which names the first one without a driver.
    pub fn check_drivers(&self, kernel: &Kernel) -> Result<(), SimError> {
        let Some(path) = &kernel.config else { return Ok(()) };
        // The guest reports what it found, too, so a configuration that cannot be read does no harm.
        let Ok(text) = std::fs::read_to_string(path) else { return Ok(()) };
        RequestedDevices::from_machine(self).check_options(&kernel_options::parse(&text))
    }
}

/// Disks and network cards of a machine.
#[derive(Clone, Debug, Default)]
pub(crate) struct RequestedDevices(Vec<RequestedDevice>);

impl RequestedDevices {
    /// Lists the disks and cards of a machine.
    pub(crate) fn from_machine(machine: &Machine) -> RequestedDevices {
        let disks = machine.disks.iter().map(|disk| RequestedDevice {
            word: disk.model.word(),
            kind: "disk",
            pci: disk.model.pci(),
        });
        let card = |nics: NicModel| RequestedDevice {
            word: nics.word(),
            kind: "network card",
            pci: nics.pci(),
        };
        let cards = machine.nics.into_iter().flat_map(|nics| [card(nics); 2]);
        RequestedDevices(disks.chain(cards).collect())
    }

    /// Checks that a kernel with these options has a driver for each disk and card, before the machine boots.
    ///
    /// Fails with [`SimError::Missing`], which names the first one without a driver.
    fn check_options(&self, options: &BTreeMap<String, String>) -> Result<(), SimError> {
        let has_driver = |requested: &&RequestedDevice| {
            driver_option(requested.word).is_none_or(|option| options.contains_key(option))
        };
        // Every kernel of a simulated machine has PCI. A text without PCI is no complete configuration.
        if !options.contains_key("PCI") {
            return Ok(());
        }
        let Some(absent) = self.0.iter().find(|requested| !has_driver(requested)) else {
            return Ok(());
        };
        let RequestedDevice { word, kind, .. } = absent;
        let option = driver_option(word).unwrap_or_default();
        Err(SimError::Missing {
            what: format!(
                "the machine has the {kind} {word}, and its kernel has no driver for it (CONFIG_{option} is not set)"
            ),
            remedy: DRIVER_REMEDY.to_owned(),
        })
    }

    pub(crate) fn count(&self) -> usize {
        self.0.len()
    }

    /// Checks that the guest has found all disks and cards of the machine.
    ///
    /// Fails with [`SimError::Missing`], which names the first one that the guest does not have.
    pub(crate) fn check(
        &self,
        found: &[FoundDevice],
        modules_failed: &[String],
    ) -> Result<(), SimError> {
        let found_count = |requested: &RequestedDevice| {
            found.iter().filter(|device| device.pci == requested.pci).count()
        };
        let requested_count = |requested: &RequestedDevice| {
            self.0.iter().filter(|candidate| candidate.pci == requested.pci).count()
        };
        // A machine may have several devices of a kind: each must be found.
        let is_absent =
            |requested: &&RequestedDevice| found_count(requested) < requested_count(requested);
        let Some(absent) = self.0.iter().find(is_absent) else {
            return Ok(());
        };
        let RequestedDevice { word, kind, pci } = absent;
        let failed = match modules_failed {
            [] => String::new(),
            all => format!("; it refused the modules {}", all.join(", ")),
        };
        Err(SimError::Missing {
            what: format!(
                "the machine has the {kind} {word} (PCI device {pci}), and the guest does not find it: its \
                 kernel has no driver that works for it{failed}"
            ),
            remedy: DRIVER_REMEDY.to_owned(),
        })
    }
}

/// Checks that the interfaces between which a guest sent packets, as it reports them, are the machine's cards.
///
/// Fails when they are not; the error names the measured interfaces.
pub(crate) fn check_cards(cards: NicModel, reported: &Map<String, Value>) -> Result<(), String> {
    let interfaces = reported.get("interfaces").and_then(Value::as_array);
    let interfaces = interfaces.map(Vec::as_slice).unwrap_or_default();
    let is_card =
        |interface: &Value| interface.get("pci").and_then(Value::as_str) == Some(cards.pci());
    if !interfaces.is_empty() && interfaces.iter().all(is_card) {
        return Ok(());
    }
    let names = interfaces.iter().map(|interface| {
        match (interface["name"].as_str(), interface["driver"].as_str()) {
            (Some(name), Some(driver)) => format!("{name} (driver {driver})"),
            (name, _) => name.unwrap_or("an unknown interface").to_owned(),
        }
    });
    let names: Vec<String> = names.collect();
    let names = if names.is_empty() { "interfaces unknown".to_owned() } else { names.join(", ") };
    Err(format!("the guest measured {names}, not the cards {} of the machine", cards.word()))
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::machine::tests::machine;

    fn found(name: &str, pci: &str, driver: &str) -> FoundDevice {
        let [name, pci, driver] = [name, pci, driver].map(str::to_owned);
        FoundDevice { name, pci, driver }
    }

    #[test]
    fn a_device_without_a_driver_is_refused_by_the_configuration() {
        let mut machine = crate::machine::tests::machine();
        machine.nics = "e1000".parse().ok();
        machine.disks = vec!["virtio-blk".parse().unwrap()];
        let check = |config: &str| {
            RequestedDevices::from_machine(&machine).check_options(&kernel_options::parse(config))
        };
        let cloud = "CONFIG_PCI=y\nCONFIG_VIRTIO_BLK=m\n# CONFIG_E1000 is not set\n";
        let error = check(cloud).unwrap_err().to_string();
        assert!(
            error.contains("network card e1000") && error.contains("--flavour full"),
            "{error}"
        );
        assert!(check("CONFIG_PCI=y\nCONFIG_VIRTIO_BLK=m\nCONFIG_E1000=m\n").is_ok());
        // This is no whole configuration.
        assert!(check("CONFIG_VIRTIO_BLK=m\n").is_ok());
        let mut machine = crate::machine::tests::machine();
        machine.disks = vec!["ide".parse().unwrap()];
        let options = kernel_options::parse("CONFIG_PCI=y\n# CONFIG_ATA_PIIX is not set\n");
        let error = RequestedDevices::from_machine(&machine).check_options(&options).unwrap_err();
        assert!(error.to_string().contains("CONFIG_ATA_PIIX is not set"), "{error}");
    }

    #[test]
    fn a_device_without_a_driver_is_named_with_a_remedy() {
        let mut machine = machine();
        machine.nics = "e1000".parse().ok();
        machine.disks = vec!["ahci".parse().unwrap(), "ide".parse().unwrap()];
        let requested = RequestedDevices::from_machine(&machine);
        assert_eq!(requested.count(), 4);
        let mut all = vec![
            found("sda", "8086:2922", "ahci"),
            found("sdb", "8086:7010", "ata_piix"),
            found("eth0", "8086:100e", "e1000"),
            found("eth1", "8086:100e", "e1000"),
        ];
        assert!(requested.check(&all, &[]).is_ok());
        for (words, absent) in
            [("network card e1000 (PCI device 8086:100e)", 3), ("disk ide", 1), ("disk ahci", 0)]
        {
            all.remove(absent);
            let error = requested.check(&all, &["e1000".to_owned()]).unwrap_err().to_string();
            assert!(error.contains(words) && error.contains("--flavour full"), "{error}");
            assert!(error.contains("refused the modules e1000"), "{error}");
        }
        assert!(
            RequestedDevices::from_machine(&crate::machine::tests::machine())
                .check(&[], &[])
                .is_ok()
        );
    }

    #[test]
    fn packets_went_over_the_cards_or_the_result_is_refused() {
        let cards: NicModel = "e1000".parse().unwrap();
        let check = |interfaces: Value| {
            check_cards(cards, &Map::from_iter([("interfaces".to_owned(), interfaces)]))
        };
        let interface =
            |name: &str, pci: &str| json!({ "name": name, "pci": pci, "driver": "e1000" });
        assert_eq!(
            check(json!([interface("eth0", "8086:100e"), interface("eth1", "8086:100e")])),
            Ok(())
        );
        let mixed = check(json!([interface("eth0", "8086:100e"), interface("eth1", "1af4:1000")]));
        assert!(mixed.unwrap_err().contains("not the cards e1000"));
        let veth = check(json!([{ "name": "irqlab-near" }, { "name": "irqlab-far" }]));
        assert!(veth.unwrap_err().contains("measured irqlab-near, irqlab-far"));
        assert!(check(json!([])).unwrap_err().contains("unknown"));
        assert!(check_cards(cards, &Map::new()).is_err());
    }
}
