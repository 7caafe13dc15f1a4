//! Compares the disks and network cards that the guest's kernel found with the machine's own. A device
//! without a driver is silently absent in the guest, and a measurement would use another device.

use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

use super::Machine;
use super::devices::NicModel;
use crate::SimError;

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
            remedy: "use --flavour full, Debian's kernel with all drivers; with --kernel, one with this \
                     driver built in, or with it among the modules of --modules"
                .to_owned(),
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
