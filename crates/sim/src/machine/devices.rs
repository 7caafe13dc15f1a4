//! Disks and network cards of the simulated machine, as QEMU's arguments.
//!
//! Each disk consists of three of QEMU's block nodes: the data (`diskN-data`), a node at which the plugin
//! delays requests (`diskN-delay`), and the raw disk that the guest sees (`diskN`). The latency is not part
//! of the guest's devices, so a checkpoint can be restored with any latency.

use std::fs::{self, File};
use std::io;
use std::ops::Range;
use std::os::fd::{AsRawFd, OwnedFd};
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::str::FromStr;

use rustix::fs::{Mode, OFlags, SeekFrom};
use rustix::io::Errno;
use serde::{Deserialize, Serialize};

use crate::{Cache, Result, SimError, hash};

/// Maximum number of disks.
pub const DISKS_MAX: usize = 4;
/// Default size of a disk, bytes.
pub const DISK_BYTES_DEFAULT: u64 = 1 << 30;
/// Maximum latency of a disk: one second. A driver gives up after 30.
pub const LATENCY_NS_MAX: u64 = 1_000_000_000;
const SECTOR_BYTES: u64 = 512;
const DISK_BYTES_MAX: u64 = 1 << 44;
/// Bytes of a disk that are copied at once.
const COPY_BYTES: usize = 1 << 20;

/// The hardware of a disk.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum DiskModel {
    /// virtio-blk on PCI.
    VirtioBlk,
    /// An NVMe controller with one namespace.
    Nvme,
    /// A SATA disk on an AHCI controller (ICH9).
    Ahci,
    /// An IDE disk on the machine's built-in PIIX3.
    Ide,
    /// A SCSI disk on an LSI 53C895A.
    Lsi,
}

/// The content of a disk.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Backing {
    /// Zeros; writes are discarded.
    Null {
        /// Its size, a multiple of 512.
        bytes: u64,
    },
    /// The content of a file. The guest works on a temporary copy, so each run starts with the same content.
    File {
        /// The file.
        path: PathBuf,
        /// Its size, a multiple of 512.
        bytes: u64,
        /// SHA-256 of its content.
        sha256: String,
    },
}

/// A disk.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Disk {
    /// Its hardware.
    pub model: DiskModel,
    /// Its content.
    pub backing: Backing,
    /// Time from a request to its completion, in nanoseconds of guest time: 0 to [`LATENCY_NS_MAX`]. The
    /// plugin delays requests accordingly.
    pub latency_ns: u64,
}

/// Two network cards of one machine, joined back to back.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum NicModel {
    /// virtio-net on PCI.
    VirtioNet,
    /// Intel 82540EM.
    E1000,
    /// Intel 82545EM: the same, and Linux can set the time that it keeps between two interrupts
    /// (e1000_ethtool.c, `e1000_set_coalesce`).
    #[serde(rename = "e1000-82545em")]
    E1000Throttled,
    /// Realtek 8139C+.
    Rtl8139,
}

impl DiskModel {
    const ALL: [(DiskModel, &'static str); 5] = [
        (DiskModel::VirtioBlk, "virtio-blk"),
        (DiskModel::Nvme, "nvme"),
        (DiskModel::Ahci, "ahci"),
        (DiskModel::Ide, "ide"),
        (DiskModel::Lsi, "lsi"),
    ];

    /// Returns the `-device` arguments of disk `index`. The thread of the vCPU handles doorbells itself
    /// (no `ioeventfd`), so that no other thread has to wake up.
    fn arguments(self, index: usize) -> Vec<String> {
        match self {
            DiskModel::VirtioBlk => {
                vec![format!("virtio-blk-pci,drive=disk{index},ioeventfd=off")]
            }
            DiskModel::Nvme => vec![format!("nvme,drive=disk{index},serial=irqlab{index}")],
            DiskModel::Ahci => vec![
                format!("ich9-ahci,id=ahci{index}"),
                format!("ide-hd,drive=disk{index},bus=ahci{index}.0"),
            ],
            // Two channels, each with two disks.
            DiskModel::Ide => {
                let (channel, unit) = (index / 2, index % 2);
                vec![format!("ide-hd,drive=disk{index},bus=ide.{channel},unit={unit}")]
            }
            DiskModel::Lsi => vec![
                format!("lsi53c895a,id=lsi{index}"),
                format!("scsi-hd,drive=disk{index},bus=lsi{index}.0"),
            ],
        }
    }
}

impl NicModel {
    const ALL: [(NicModel, &'static str); 4] = [
        (NicModel::VirtioNet, "virtio-net"),
        (NicModel::E1000, "e1000"),
        (NicModel::E1000Throttled, "e1000-82545em"),
        (NicModel::Rtl8139, "rtl8139"),
    ];

    /// Returns QEMU's arguments for the pair, which are `eth0` and `eth1` in the guest.
    pub(crate) fn arguments(self) -> Vec<String> {
        let card = match self {
            NicModel::VirtioNet => "virtio-net-pci,ioeventfd=off",
            NicModel::E1000 => "e1000",
            NicModel::E1000Throttled => "e1000-82545em",
            NicModel::Rtl8139 => "rtl8139",
        };
        let of_card = |index: usize| {
            // Without a ROM: the guest does not boot from it.
            let device = format!("{card},netdev=net{index},mac=52:54:00:00:00:0{index},romfile=");
            let port = format!("hubport,hubid=0,id=net{index}");
            ["-netdev".to_owned(), port, "-device".to_owned(), device]
        };
        (0..2).flat_map(of_card).collect()
    }
}

impl FromStr for NicModel {
    type Err = String;

    fn from_str(name: &str) -> std::result::Result<NicModel, String> {
        by_name(&NicModel::ALL, name)
    }
}

/// Returns the value of a name; the error lists all names.
fn by_name<T: Copy>(all: &[(T, &str)], name: &str) -> std::result::Result<T, String> {
    let found = all.iter().find(|(_, known)| *known == name).map(|(value, _)| *value);
    let names = || all.iter().map(|(_, name)| *name).collect::<Vec<_>>().join(", ");
    found.ok_or_else(|| format!("{name:?}: allowed: {}", names()))
}

impl Backing {
    /// Makes a disk with the content of a file.
    ///
    /// # Errors
    /// When it cannot be read, is empty, or is not a whole number of sectors.
    pub fn of_file(path: &Path) -> Result<Backing> {
        let bytes = fs::metadata(path).map_err(SimError::file(path))?.len();
        check_size(bytes).map_err(|reason| SimError::data(path.display().to_string(), reason))?;
        let sha256 = match Cache::from_environment() {
            Ok(cache) => hash::of_known_file(&cache, path)?,
            Err(_) => hash::of_file(path)?,
        };
        Ok(Backing::File { path: path.to_owned(), bytes, sha256 })
    }
}

fn check_size(bytes: u64) -> std::result::Result<(), String> {
    let fits =
        (SECTOR_BYTES..=DISK_BYTES_MAX).contains(&bytes) && bytes.is_multiple_of(SECTOR_BYTES);
    let allowed = || format!("{bytes} bytes; a disk has a multiple of 512, at most 16T");
    fits.then_some(()).ok_or_else(allowed)
}

impl Disk {
    /// Returns QEMU's arguments for disk `index`.
    pub(crate) fn arguments(&self, index: usize) -> Vec<String> {
        let data = match &self.backing {
            Backing::Null { bytes } => format!("null-co,size={bytes},read-zeroes=on"),
            Backing::File { .. } => format!("file,filename={}", copy_name(index)),
        };
        let nodes = [
            format!("driver={data},node-name=disk{index}-data"),
            format!("driver=blkdebug,node-name=disk{index}-delay,image=disk{index}-data"),
            format!("driver=raw,node-name=disk{index},file=disk{index}-delay"),
        ];
        let nodes = nodes.into_iter().flat_map(|node| ["-blockdev".to_owned(), node]);
        let devices = self.model.arguments(index).into_iter();
        nodes.chain(devices.flat_map(|device| ["-device".to_owned(), device])).collect()
    }

    /// Describes what the guest can see of the disk.
    pub(crate) fn described(&self, index: usize) -> String {
        let content = match &self.backing {
            Backing::Null { bytes } => format!("{bytes} bytes of nothing"),
            Backing::File { bytes, sha256, .. } => {
                format!("{bytes} bytes of content {}", hash::key(sha256))
            }
        };
        format!("{}: {content}", self.model.arguments(index).join(" "))
    }

    /// Returns the plugin's option for disk `index`: `NODE:LATENCY_NS`.
    pub(crate) fn plugin_option(&self, index: usize) -> String {
        format!("disk{index}:{}", self.latency_ns)
    }

    /// Makes the copy of the file that the guest works on. It has no name and ends with its last user.
    fn copy(&self, index: usize) -> Result<Option<OwnedFd>> {
        let Backing::File { path, bytes, .. } = &self.backing else { return Ok(None) };
        let place = std::env::temp_dir();
        copy_of(path, *bytes, &place).map(Some).map_err(|source| {
            let what = format!("disk {index}: copying {} to {}", path.display(), place.display());
            SimError::data(what, source.to_string())
        })
    }
}

/// Copies a file of so many bytes to a file without a name: by sharing its blocks where the file system can
/// do that, else what is not a hole.
fn copy_of(path: &Path, bytes: u64, place: &Path) -> io::Result<OwnedFd> {
    let from = File::open(path)?;
    if from.metadata()?.len() != bytes {
        return Err(io::Error::other("it has changed since it was examined"));
    }
    let mode = Mode::from_raw_mode(0o600);
    let copy = rustix::fs::open(place, OFlags::TMPFILE | OFlags::RDWR, mode)?;
    if rustix::fs::ioctl_ficlone(&copy, &from).is_err() {
        rustix::fs::ftruncate(&copy, bytes)?;
        let mut at = 0;
        while let Some(data) = next_data(&from, at, bytes)? {
            copy_range(&from, &copy, data.clone())?;
            at = data.end;
        }
    }
    Ok(copy)
}

/// Returns the next range of a file, from `at`, that is no hole.
fn next_data(file: &File, at: u64, bytes: u64) -> io::Result<Option<Range<u64>>> {
    let seek = |to| -> io::Result<Option<u64>> {
        match rustix::fs::seek(file, to) {
            // There is no more data.
            Err(Errno::NXIO) => Ok(None),
            found => Ok(Some(found?)),
        }
    };
    if at >= bytes {
        return Ok(None);
    }
    let Some(start) = seek(SeekFrom::Data(at))? else { return Ok(None) };
    let end = seek(SeekFrom::Hole(start))?.unwrap_or(bytes).min(bytes);
    Ok((start < end).then_some(start..end))
}

/// Copies a range within the kernel.
fn copy_range(from: &File, to: &OwnedFd, range: Range<u64>) -> io::Result<()> {
    let (mut read_at, mut write_at) = (range.start, range.start);
    while read_at < range.end {
        let length = usize::try_from(range.end - read_at).unwrap_or(usize::MAX).min(COPY_BYTES);
        let copied =
            rustix::fs::copy_file_range(from, Some(&mut read_at), to, Some(&mut write_at), length);
        match copied {
            Ok(0) => return Err(io::ErrorKind::UnexpectedEof.into()),
            // Another file system, or a kernel before 5.3.
            Err(Errno::XDEV | Errno::INVAL | Errno::OPNOTSUPP | Errno::NOSYS) => {
                return copy_by_buffer(from, to, read_at..range.end);
            }
            done => drop(done?),
        }
    }
    Ok(())
}

fn copy_by_buffer(from: &File, to: &OwnedFd, mut range: Range<u64>) -> io::Result<()> {
    let mut buffer = vec![0; COPY_BYTES];
    while range.start < range.end {
        let length =
            buffer.len().min(usize::try_from(range.end - range.start).unwrap_or(usize::MAX));
        let count = from.read_at(&mut buffer[..length], range.start)?;
        if count == 0 {
            return Err(io::ErrorKind::UnexpectedEof.into());
        }
        let mut written = 0;
        while written < count {
            let at = range.start + written as u64;
            written += rustix::io::pwrite(to, &buffer[written..count], at)?;
        }
        range.start += count as u64;
    }
    Ok(())
}

/// Returns the name by which QEMU opens the copy of disk `index`.
fn copy_name(index: usize) -> String {
    format!("/dev/fdset/{}", fd_set(index))
}

/// Returns QEMU's number for the descriptor of disk `index`.
fn fd_set(index: usize) -> usize {
    index + 1
}

/// Passes the copies of files to QEMU, which must inherit the returned descriptors.
pub(crate) fn hand_over(disks: &[Disk], command: &mut Command) -> Result<Vec<OwnedFd>> {
    let mut copies = Vec::new();
    for (index, disk) in disks.iter().enumerate() {
        if let Some(copy) = disk.copy(index)? {
            let (number, set) = (copy.as_raw_fd(), fd_set(index));
            command.arg("-add-fd").arg(format!("fd={number},set={set}"));
            copies.push(copy);
        }
    }
    Ok(copies)
}

impl FromStr for Disk {
    type Err = String;

    /// `virtio-blk`, `nvme,size=64M`, `ahci,file=disk.raw,latency=100us`.
    fn from_str(text: &str) -> std::result::Result<Disk, String> {
        let (model, rest) = text.split_once(',').unwrap_or((text, ""));
        let mut disk = Disk {
            model: by_name(&DiskModel::ALL, model)?,
            backing: Backing::Null { bytes: DISK_BYTES_DEFAULT },
            latency_ns: 0,
        };
        for option in rest.split(',').filter(|option| !option.is_empty()) {
            match option.split_once('=') {
                Some(("size", size)) => {
                    let units = [("M", 1 << 20), ("G", 1 << 30), ("K", 1 << 10), ("", 1)];
                    let bytes = scaled(size, &units).ok_or("size: as in 512M or 1G")?;
                    check_size(bytes)?;
                    disk.backing = Backing::Null { bytes };
                }
                Some(("file", path)) => {
                    let made = Backing::of_file(Path::new(path));
                    disk.backing = made.map_err(|error| error.to_string())?;
                }
                Some(("latency", latency)) => {
                    let units = [("ns", 1), ("us", 1_000), ("ms", 1_000_000), ("s", 1_000_000_000)];
                    let latency = scaled(latency, &units).filter(|ns| *ns <= LATENCY_NS_MAX);
                    disk.latency_ns = latency.ok_or("latency: 0ns to 1s, as in 100us or 1ms")?;
                }
                _ => return Err(format!("{option:?}: allowed: size=, file=, latency=")),
            }
        }
        Ok(disk)
    }
}

/// Parses a whole number with a unit.
fn scaled(text: &str, units: &[(&str, u64)]) -> Option<u64> {
    let digits = text.find(|sign: char| !sign.is_ascii_digit()).unwrap_or(text.len());
    let (number, unit) = text.split_at(digits);
    let (_, scale) = units.iter().find(|(name, _)| *name == unit)?;
    number.parse::<u64>().ok()?.checked_mul(*scale)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_disk_is_parsed() {
        let disk: Disk = "nvme,size=64M,latency=100us".parse().unwrap();
        assert_eq!(disk.model, DiskModel::Nvme);
        assert_eq!(disk.backing, Backing::Null { bytes: 64 << 20 });
        assert_eq!(disk.latency_ns, 100_000);
        assert_eq!(disk.plugin_option(2), "disk2:100000");
        let plain: Disk = "virtio-blk".parse().unwrap();
        assert_eq!((plain.latency_ns, plain.model), (0, DiskModel::VirtioBlk));
        for (text, words) in [
            ("floppy", "virtio-blk, nvme, ahci, ide, lsi"),
            ("nvme,size=1", "multiple of 512"),
            ("nvme,size=1.5G", "as in"),
            ("nvme,size=99999999999G", "as in"),
            ("nvme,latency=2s", "1s"),
            ("nvme,latency=5", "as in"),
            ("nvme,spam=1", "allowed"),
            ("nvme,file=/nowhere/disk", "/nowhere/disk"),
        ] {
            let error = text.parse::<Disk>().unwrap_err();
            assert!(error.contains(words), "{text}: {error}");
        }
    }

    #[test]
    fn a_latency_is_not_part_of_the_device() {
        let disk = |text: &str| text.parse::<Disk>().unwrap();
        let (fast, slow) = (disk("lsi"), disk("lsi,latency=1ms"));
        assert_eq!(fast.described(0), slow.described(0));
        assert_eq!(fast.arguments(0), slow.arguments(0));
        assert_ne!(fast.described(0), disk("lsi,size=1M").described(0));
        assert_ne!(fast.described(0), fast.described(1));
    }

    #[test]
    fn the_guest_gets_a_copy_of_a_file() {
        use std::io::{Read, Seek};
        let scratch = tempfile::tempdir().unwrap();
        let path = scratch.path().join("disk");
        fs::write(&path, [7; 1024]).unwrap();
        let disk: Disk = format!("ahci,file={}", path.display()).parse().unwrap();
        assert!(disk.arguments(0).iter().any(|word| word.contains("/dev/fdset/1")));
        let mut copy = File::from(disk.copy(0).unwrap().unwrap());
        let mut content = Vec::new();
        copy.rewind().unwrap();
        copy.read_to_end(&mut content).unwrap();
        assert_eq!(content, [7; 1024]);
        // With holes, and to another file system.
        let holes = File::create(&path).unwrap();
        holes.set_len(1 << 20).unwrap();
        holes.write_all_at(&[5; 4096], 512 << 10).unwrap();
        let mut expected = vec![0; 1 << 20];
        expected[512 << 10..][..4096].fill(5);
        for place in [scratch.path(), Path::new("/dev/shm")] {
            let mut copy = File::from(copy_of(&path, 1 << 20, place).unwrap());
            let mut content = Vec::new();
            copy.read_to_end(&mut content).unwrap();
            assert!(content == expected, "{}", place.display());
        }
        fs::write(&path, [7; 512]).unwrap();
        assert!(disk.copy(0).unwrap_err().to_string().contains("has changed"));
        fs::write(&path, [7; 511]).unwrap();
        assert!(Backing::of_file(&path).is_err());
    }
}
