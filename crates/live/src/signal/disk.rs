//! The NVMe disk of the rig `nvme`: finds it, opens it for reading, and says which schemes it has.

use std::fs::File;
use std::io;
use std::os::unix::fs::OpenOptionsExt;
use std::sync::Arc;

use lab::experiment::BenchError;
use lab::signal::Rig;
use lab::signal::in_guest::DEVICE_IRQS;
use serde_json::{Map, Value as Json, json};
use signalling::Scheme;

use crate::host::Root;

/// Bytes of a read: a multiple of the disk's logical blocks. A disk with larger blocks is refused.
pub const READ_BYTES: u64 = 4096;
/// Bytes of a sector of the size in sysfs, for every disk (Documentation/ABI/stable/sysfs-block).
const SECTOR_BYTES: u64 = 512;

/// A disk of this machine.
#[derive(Debug)]
pub struct Disk {
    /// Its name in /sys/block.
    name: String,
    file: File,
    /// Number of blocks of [`READ_BYTES`].
    blocks: u64,
    /// Whether the driver has a queue without interrupts, whose completions are polled for.
    has_poll_queue: bool,
    /// Interrupt lines of the disk's controller; `None` if sysfs does not list them.
    irqs: Option<Arc<[u32]>>,
    /// Whether this machine is simulated. Then the simulator can hold back completions.
    is_simulated: bool,
}

/// Whether `name` is an NVMe disk as programs open it, as in `nvme0n1`. The paths of a disk with several controllers
/// (`nvme0c0n1`) have no device file.
fn is_nvme_disk(name: &str) -> bool {
    let is_number = |text: &str| !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit());
    let numbers = name.strip_prefix("nvme").and_then(|numbers| numbers.split_once('n'));
    numbers.is_some_and(|(controller, disk)| is_number(controller) && is_number(disk))
}

impl Disk {
    /// Opens the first NVMe disk for reading. `is_simulated`: a simulator observes this machine.
    ///
    /// Fails with [`BenchError::NothingMeasurable`] if there is no NVMe disk, if its blocks are larger than a read, or if
    /// the system refuses to open the disk.
    pub fn open(root: &Root, is_simulated: bool) -> Result<Disk, BenchError> {
        let nothing = |reason: String, remedy: &str| BenchError::NothingMeasurable {
            reason,
            remedy: Some(remedy.to_owned()),
        };
        let names = root.names("sys/block").unwrap_or_default();
        let name = names.into_iter().find(|name| is_nvme_disk(name)).ok_or_else(|| {
            let remedy = "irqlab signal run --rig nvme --on sim:zen3";
            nothing("this machine has no NVMe disk".to_owned(), remedy)
        })?;
        let device = format!("/dev/{name}");
        let sectors = root.number::<u64>(format!("sys/block/{name}/size")).unwrap_or(0);
        let blocks = sectors.saturating_mul(SECTOR_BYTES) / READ_BYTES;
        if blocks == 0 {
            let reason = format!("{device} is smaller than a read of {READ_BYTES} bytes");
            return Err(nothing(reason, "use a disk that has a size (lsblk)"));
        }
        let logical_block =
            root.number::<u64>(format!("sys/block/{name}/queue/logical_block_size"));
        if let Some(bytes) = logical_block.filter(|bytes| *bytes > READ_BYTES) {
            let reason =
                format!("{device} has blocks of {bytes} bytes, and a read has {READ_BYTES} bytes");
            return Err(nothing(
                reason,
                "format the disk with blocks of at most 4 KiB (nvme format)",
            ));
        }
        let mut options = File::options();
        options.read(true).custom_flags(libc::O_DIRECT);
        let file = options.open(root.path(&device)).map_err(|error| {
            let is_refused = error.kind() == io::ErrorKind::PermissionDenied;
            BenchError::NothingMeasurable {
                reason: format!("cannot open {device} with O_DIRECT: {error}"),
                remedy: is_refused.then(|| "run irqlab as root".to_owned()),
            }
        })?;
        let has_poll_queue = root.number(format!("sys/block/{name}/queue/io_poll")) == Some(1_u32);
        let irqs = root.names(format!("sys/block/{name}/device/device/msi_irqs"));
        let irqs: Option<Arc<[u32]>> =
            irqs.map(|irqs| irqs.iter().filter_map(|irq| irq.parse().ok()).collect());
        let irqs = irqs.filter(|irqs| !irqs.is_empty());
        Ok(Disk { name, file, blocks, has_poll_queue, irqs, is_simulated })
    }

    /// Its device file, as in `/dev/nvme0n1`.
    pub fn device(&self) -> String {
        format!("/dev/{}", self.name)
    }

    pub fn file(&self) -> &File {
        &self.file
    }

    /// Number of blocks of [`READ_BYTES`], at least 1.
    pub fn blocks(&self) -> u64 {
        self.blocks
    }

    /// The kernel's numbers of the disk's interrupts; `None` if they are unknown.
    pub fn irqs(&self) -> Option<Arc<[u32]>> {
        self.irqs.clone()
    }

    /// Checks that this disk has a scheme of the rig.
    ///
    /// Fails with [`BenchError::Unavailable`] if the disk or the rig lacks the scheme.
    pub fn check(&self, scheme: Scheme) -> Result<(), BenchError> {
        Rig::Nvme.check(scheme)?;
        let unavailable = |reason: String, remedy: String| {
            Err(BenchError::Unavailable { reason, remedy: Some(remedy) })
        };
        let device = format!("/dev/{}", self.name);
        if scheme.is_by_polling() && !self.has_poll_queue {
            let remedy = "load nvme with poll_queues=1, or boot with nvme.poll_queues=1";
            return unavailable(format!("{device} has no poll queue"), remedy.to_owned());
        }
        if matches!(scheme, Scheme::Coalesced { .. }) && !self.is_simulated {
            return unavailable(
                format!("irqlab does not change the interrupt coalescing of {device}"),
                format!("irqlab signal run --rig nvme --on sim:zen3 --schemes {scheme}"),
            );
        }
        Ok(())
    }

    /// Facts of the run: the disk, and what it can do. A simulator takes the interrupt lines out.
    pub fn facts(&self) -> Map<String, Json> {
        let mut facts = Map::from_iter([
            ("disk".to_owned(), json!(format!("/dev/{}", self.name))),
            ("disk_bytes".to_owned(), json!(self.blocks * READ_BYTES)),
            ("disk_has_poll_queue".to_owned(), json!(self.has_poll_queue)),
            ("read_bytes".to_owned(), json!(READ_BYTES)),
        ]);
        if self.is_simulated {
            facts.extend(self.irqs.iter().map(|irqs| (DEVICE_IRQS.to_owned(), json!(irqs[..]))));
        }
        facts
    }
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;

    /// A machine with an NVMe disk of 1 MiB, with or without a poll queue.
    fn machine(directory: &std::path::Path, io_poll: &str) -> Root {
        let block = directory.join("sys/block/nvme0n1");
        fs::create_dir_all(block.join("queue")).unwrap();
        fs::create_dir_all(block.join("device/device/msi_irqs")).unwrap();
        fs::create_dir_all(directory.join("sys/block/nvme0c0n1")).unwrap();
        fs::create_dir_all(directory.join("dev")).unwrap();
        fs::write(block.join("size"), "2048\n").unwrap();
        fs::write(block.join("queue/io_poll"), io_poll).unwrap();
        for irq in ["24", "25"] {
            fs::write(block.join("device/device/msi_irqs").join(irq), "msix\n").unwrap();
        }
        fs::write(directory.join("dev/nvme0n1"), [0; 4096]).unwrap();
        Root::new(directory)
    }

    #[test]
    fn a_disk_without_a_poll_queue_refuses_to_poll() {
        let directory = tempfile::tempdir_in(".").unwrap();
        let disk = Disk::open(&machine(directory.path(), "0\n"), false).unwrap();
        assert_eq!((disk.blocks(), disk.irqs().as_deref()), (256, Some(&[24, 25][..])));
        assert_eq!(disk.facts().get(DEVICE_IRQS), None);
        let check = |scheme: &str| disk.check(scheme.parse().unwrap());
        assert_eq!(check("interrupt"), Ok(()));
        for (scheme, words) in [
            ("poll", "/dev/nvme0n1 has no poll queue"),
            ("spin", "has no poll queue"),
            ("coalesced:8,1ms", "does not change the interrupt coalescing"),
            ("drain", "takes all completions"),
        ] {
            let error = check(scheme).unwrap_err().to_string();
            assert!(error.contains(words), "{error}");
        }
        let simulated = Disk::open(&machine(directory.path(), "1\n"), true).unwrap();
        for scheme in ["poll", "spin", "yield", "coalesced:8,1ms"] {
            assert_eq!(simulated.check(scheme.parse().unwrap()), Ok(()));
        }
        assert_eq!(simulated.facts()[DEVICE_IRQS], json!([24, 25]));
    }

    #[test]
    fn a_disk_with_blocks_larger_than_a_read_is_refused() {
        let directory = tempfile::tempdir_in(".").unwrap();
        let root = machine(directory.path(), "0\n");
        let block_size = directory.path().join("sys/block/nvme0n1/queue/logical_block_size");
        fs::write(&block_size, "16384\n").unwrap();
        let error = Disk::open(&root, false).unwrap_err().to_string();
        assert!(error.contains("blocks of 16384 bytes"), "{error}");
        fs::write(&block_size, "4096\n").unwrap();
        assert!(Disk::open(&root, false).is_ok());
    }

    #[test]
    fn a_disk_without_interrupt_lines_has_unknown_interrupts() {
        let directory = tempfile::tempdir_in(".").unwrap();
        let root = machine(directory.path(), "0\n");
        for irq in ["24", "25"] {
            let path = directory.path().join("sys/block/nvme0n1/device/device/msi_irqs").join(irq);
            fs::remove_file(path).unwrap();
        }
        assert_eq!(Disk::open(&root, false).unwrap().irqs(), None);
    }

    #[test]
    fn a_machine_without_a_disk_is_refused() {
        let directory = tempfile::tempdir().unwrap();
        let error = Disk::open(&Root::new(directory.path()), false).unwrap_err();
        assert_eq!(error.to_string(), "this machine has no NVMe disk");
        assert!(is_nvme_disk("nvme12n3"));
        for other in ["nvme0c0n1", "nvme0", "nvmen1", "nvme0n1p1", "sda", "nvme0n"] {
            assert!(!is_nvme_disk(other), "{other}");
        }
    }
}
