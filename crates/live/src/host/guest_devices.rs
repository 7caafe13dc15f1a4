//! Finds the devices that every simulated machine of irqlab has. The guest's irqlab uses them for stimuli.

use std::path::PathBuf;

use super::Root;

/// Whether this machine has the two network cards that a simulated machine connects back to back.
#[must_use]
pub fn has_paired_cards(root: &Root) -> bool {
    ["eth0", "eth1"].iter().all(|name| root.exists(format!("sys/class/net/{name}/device")))
}

/// The path of the first disk, by name, that has a device, unlike `loop0`. Nothing else uses the disk, because
/// simulated machines keep their file systems in memory.
#[must_use]
pub fn first_disk(root: &Root) -> Option<PathBuf> {
    let names = root.names("sys/block")?;
    let name = names.iter().find(|name| root.exists(format!("sys/block/{name}/device")))?;
    Some(PathBuf::from("/dev").join(name))
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;

    #[test]
    fn the_first_real_disk_by_name() {
        let directory = tempfile::tempdir().unwrap();
        let root = Root::new(directory.path());
        assert_eq!(first_disk(&root), None);
        for name in ["loop0", "vdb/device", "vda/device"] {
            fs::create_dir_all(directory.path().join("sys/block").join(name)).unwrap();
        }
        assert_eq!(first_disk(&root).unwrap(), PathBuf::from("/dev/vda"));
    }
}
