//! Checkpoints of a machine on its way, saved where an annotation asked for it.
//!
//! The guest is in the middle of what it does, and a restored one goes on with that: it gets no other
//! order.

use std::fs::File;
use std::io::{Read, Seek, SeekFrom};

use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::{Checkpoint, MONITOR_TIMEOUT, describe, directory, pmu, refused, save};
use crate::devices::Backing;
use crate::held::Held;
use crate::machine::Machine;
use crate::qemu::Qemu;
use crate::{Cache, Progress, Result, SimError, Vm};

/// The order for a machine that was saved on its way.
pub const GO_ON: &str = "go-on";
/// The longest text of counters that is kept.
const COUNTERS_BYTES_MAX: u64 = 1 << 16;

/// What a machine did when it was saved.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Going {
    /// The order in the firmware: the guest may still be about to read it.
    order: String,
    /// Whether the guest's command had begun, and with it the region of interest.
    pub in_region: bool,
}

impl Checkpoint {
    /// The order with which it is restored, if it is to be restored with `order`.
    pub(super) fn order(&self, name: &str, order: &str) -> Result<String> {
        match (&self.going, order == GO_ON) {
            (Some(going), true) => Ok(going.order.clone()),
            (None, false) => Ok(order.to_owned()),
            (Some(_), false) => Err(refused(
                name,
                format!(
                    "was saved by an annotation, in the middle of what it did, and goes on with \
                     that: irqlab sim boot --from {name}, without a command"
                ),
            )),
            (None, true) => Err(refused(name, "waits for a command".to_owned())),
        }
    }
}

/// Saves a machine where annotations hold it.
pub struct Saver<'a> {
    /// The cache.
    pub cache: &'a Cache,
    /// The machine's QEMU.
    pub qemu: &'a Qemu,
    /// The machine.
    pub machine: &'a Machine,
    /// Names, by number.
    pub names: &'a [String],
    /// Where the plugin writes what the guest's counters hold, if there are some.
    pub counters: Option<&'a File>,
}

impl Saver<'_> {
    /// Saves the machine, which is held, and lets it go on.
    ///
    /// # Errors
    /// When the state cannot be written, or the machine does not go on.
    pub fn save(&self, vm: &mut Vm, held: Held, progress: Progress) -> Result<()> {
        let name = self.names.get(held.number as usize);
        let name = name.ok_or_else(|| vm.failure("it is held for a checkpoint without a name"))?;
        let mut made = None;
        self.cache.replace_directory(&directory(name), progress, |aside| {
            save(vm, &aside.join(super::STATE))?;
            if let Some(counters) = self.counters {
                pmu::keep(aside, &text(counters)?)?;
            }
            let order = vm.started_with().1.to_owned();
            let going = Going { order, in_region: held.in_region };
            made = Some(describe(aside, self.qemu, self.machine, vm, (None, Some(going)))?);
            Ok(())
        })?;
        vm.command("cont", &Value::Null, MONITOR_TIMEOUT)?;
        let mib = made.map_or(0, |made| made.state_bytes) >> 20;
        progress(&format!("checkpoint {name}: {mib} MiB"));
        Ok(())
    }
}

/// That a machine can be saved on its way.
///
/// # Errors
/// When a part of it is not in its state: the content of disks.
pub(crate) fn check_can_be_saved(machine: &Machine) -> Result<()> {
    if machine.disks.iter().any(|disk| matches!(disk.backing, Backing::File { .. })) {
        let reason = "what the guest has written to a disk of a file is no part of a checkpoint";
        return Err(SimError::Invalid(format!("{reason}: none can be saved on its way")));
    }
    Ok(())
}

fn text(mut file: &File) -> Result<String> {
    let mut text = String::new();
    let read = file.seek(SeekFrom::Start(0));
    let read = read.and_then(|_| file.take(COUNTERS_BYTES_MAX).read_to_string(&mut text));
    read.map_err(SimError::system("reading the guest's counters"))?;
    Ok(text)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::machine::tests::machine;

    #[test]
    fn a_machine_on_its_way_gets_no_other_order() {
        let mut checkpoint: Checkpoint = serde_json::from_value(serde_json::json!({
            "schema": "x", "qemu": "x", "machine": machine(), "command_line": "",
            "report": null, "state_bytes": 1,
        }))
        .unwrap();
        assert_eq!(checkpoint.order("a", "run:ls").unwrap(), "run:ls");
        assert!(checkpoint.order("a", GO_ON).unwrap_err().to_string().contains("waits for"));
        checkpoint.going = Some(Going { order: "none".to_owned(), in_region: true });
        assert_eq!(checkpoint.order("a", GO_ON).unwrap(), "none");
        let error = checkpoint.order("a", "run:ls").unwrap_err().to_string();
        assert!(error.contains("without a command"), "{error}");
    }

    #[test]
    fn disks_of_files_are_refused() {
        let mut machine = machine();
        machine.disks = vec!["virtio-blk,latency=1us".parse().unwrap()];
        assert!(check_can_be_saved(&machine).is_ok());
        let path = "/a/disk".into();
        machine.disks[0].backing = Backing::File { path, bytes: 512, sha256: String::new() };
        assert!(check_can_be_saved(&machine).unwrap_err().to_string().contains("no part of"));
    }
}
