//! Disks and network cards of the simulated machine: their options, QEMU's arguments for them, and the files with the
//! contents of disks, which are opened for a run and saved for a checkpoint.
//!
//! Each disk consists of three of QEMU's block nodes: the data (`diskN-data`), a node at which the plugin
//! delays requests (`diskN-delay`), and the raw disk that the guest sees (`diskN`). The latency is not part
//! of the guest's devices, so a checkpoint can be restored with any latency.

use std::fs::{self, File};
use std::io;
use std::ops::Range;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd, RawFd};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::str::FromStr;

use machine::drive::DriveModel;
use plugin_interface::options::{COALESCED_MAX, DiskTime};
use rustix::fs::{Mode, OFlags, SeekFrom};
use rustix::io::Errno;
use serde::{Deserialize, Serialize};

use crate::cache::known_file::{self, Identity};
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
        path: PathBuf,
        /// Its size, a multiple of 512.
        bytes: u64,
        /// SHA-256 of its content.
        sha256: String,
        /// Identity of the file when the hash was computed; `None` if the file may have changed unnoticed.
        #[serde(skip)]
        known: Option<Identity>,
    },
    /// The content of a file that the guest cannot write, and that machines share.
    ReadOnly {
        path: PathBuf,
        /// Its size, a multiple of 512.
        bytes: u64,
        /// SHA-256 of its content.
        sha256: String,
        /// As in [`Backing::File`].
        #[serde(skip)]
        known: Option<Identity>,
    },
    /// Zeros at first; the guest can write it. Each run starts with zeros.
    Scratch {
        /// Its size, a multiple of 512.
        bytes: u64,
    },
}

/// When a disk reports completions that wait for one another.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Coalescing {
    /// Completions that wait until all are reported: 1 to [`COALESCED_MAX`].
    pub count: u32,
    /// The longest time that a completion waits, ns of guest time: at most [`LATENCY_NS_MAX`].
    pub delay_ns: u64,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Disk {
    /// Its hardware.
    pub model: DiskModel,
    /// Its content.
    pub backing: Backing,
    /// Time from a request to its completion, in nanoseconds of guest time: 0 to [`LATENCY_NS_MAX`]. The
    /// plugin delays requests accordingly.
    pub latency_ns: u64,
    /// How completions wait for one another after the latency. `None`: each is reported at once. Like the latency, it is
    /// not part of the guest's devices.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub coalescing: Option<Coalescing>,
    /// The drive whose time requests take instead.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub drive: Option<DriveModel>,
}

/// Model of the two network cards of a machine, which are joined back to back.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum NicModel {
    /// virtio-net on PCI.
    VirtioNet,
    /// Intel 82540EM.
    E1000,
    /// Intel 82545EM. Unlike for the 82540EM, Linux can set its minimum time between two interrupts
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

    /// Returns its name in options.
    pub(super) fn word(self) -> &'static str {
        word_of(&DiskModel::ALL, self)
    }

    /// Returns the PCI device of the disk in the guest: `VENDOR:DEVICE` in hexadecimal.
    pub(super) fn pci(self) -> &'static str {
        match self {
            DiskModel::VirtioBlk => "1af4:1001",
            DiskModel::Nvme => "1b36:0010",
            DiskModel::Ahci => "8086:2922",
            DiskModel::Ide => "8086:7010",
            DiskModel::Lsi => "1000:0012",
        }
    }

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

    /// Returns its name in options.
    pub(super) fn word(self) -> &'static str {
        word_of(&NicModel::ALL, self)
    }

    /// Returns the PCI device of each card, in the format of [`DiskModel::pci`].
    pub(crate) fn pci(self) -> &'static str {
        match self {
            NicModel::VirtioNet => "1af4:1000",
            NicModel::E1000 => "8086:100e",
            NicModel::E1000Throttled => "8086:100f",
            NicModel::Rtl8139 => "10ec:8139",
        }
    }

    /// Returns QEMU's arguments for the pair, which are `eth0` and `eth1` in the guest.
    pub(crate) fn arguments(self) -> Vec<String> {
        let card = match self {
            NicModel::VirtioNet => "virtio-net-pci,ioeventfd=off",
            NicModel::E1000 => "e1000",
            NicModel::E1000Throttled => "e1000-82545em",
            NicModel::Rtl8139 => "rtl8139",
        };
        let card_arguments = |index: usize| {
            // Without a ROM: the guest does not boot from it.
            let device = format!("{card},netdev=net{index},mac=52:54:00:00:00:0{index},romfile=");
            let port = format!("hubport,hubid=0,id=net{index}");
            ["-netdev".to_owned(), port, "-device".to_owned(), device]
        };
        (0..2).flat_map(card_arguments).collect()
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
    let value_of_name =
        all.iter().find(|(_, candidate)| *candidate == name).map(|(value, _)| *value);
    let names = || all.iter().map(|(_, name)| *name).collect::<Vec<_>>().join(", ");
    value_of_name.ok_or_else(|| format!("{name:?}: allowed: {}", names()))
}

/// Returns the name of a value.
fn word_of<T: PartialEq>(all: &[(T, &'static str)], value: T) -> &'static str {
    all.iter().find(|(known, _)| *known == value).map_or("", |(_, word)| word)
}

impl Backing {
    /// Makes a disk with the content of a file.
    ///
    /// Fails when it cannot be read, is empty, or is not a whole number of sectors.
    pub fn of_file(path: &Path) -> Result<Backing> {
        let data = fs::metadata(path).map_err(SimError::file(path))?;
        let (bytes, known) = (data.len(), Identity::of_unchanged(&data));
        check_size(bytes).map_err(|reason| SimError::data(path.display().to_string(), reason))?;
        let sha256 = match Cache::from_environment() {
            Ok(cache) => known_file::hash_of(&cache, path)?,
            Err(_) => hash::of_file(path)?,
        };
        Ok(Backing::File { path: path.to_owned(), bytes, sha256, known })
    }

    /// Like [`Backing::of_file`], for a file with a known hash that the guest cannot write.
    ///
    /// Fails when it cannot be read, or has another content.
    pub(crate) fn read_only(cache: &Cache, path: &Path, sha256: &str) -> Result<Backing> {
        let data = fs::metadata(path).map_err(SimError::file(path))?;
        let (bytes, known) = (data.len(), Identity::of_unchanged(&data));
        if known_file::hash_of(cache, path)? != sha256 {
            return Err(SimError::data(path.display().to_string(), "is damaged"));
        }
        let (path, sha256) = (path.to_owned(), sha256.to_owned());
        Ok(Backing::ReadOnly { path, bytes, sha256, known })
    }

    fn bytes(&self) -> u64 {
        match self {
            Backing::Null { bytes }
            | Backing::File { bytes, .. }
            | Backing::ReadOnly { bytes, .. }
            | Backing::Scratch { bytes } => *bytes,
        }
    }

    /// Whether the guest can change the content.
    fn is_writable(&self) -> bool {
        matches!(self, Backing::File { .. } | Backing::Scratch { .. })
    }
}

/// Checks the size of a disk.
fn check_size(bytes: u64) -> std::result::Result<(), String> {
    let is_allowed =
        (SECTOR_BYTES..=DISK_BYTES_MAX).contains(&bytes) && bytes.is_multiple_of(SECTOR_BYTES);
    let allowed = || format!("{bytes} bytes; a disk has a multiple of 512, at most 16T");
    if is_allowed { Ok(()) } else { Err(allowed()) }
}

impl Disk {
    /// Returns QEMU's arguments for disk `index`: its three block nodes, from the data up, and its device.
    pub(crate) fn arguments(&self, index: usize) -> Vec<String> {
        let data = match &self.backing {
            Backing::Null { bytes } => format!("null-co,size={bytes},read-zeroes=on"),
            _ => format!("file,filename={}", file_name(index)),
        };
        let access = match &self.backing {
            Backing::ReadOnly { .. } => ",read-only=on",
            _ => "",
        };
        let nodes = [
            format!("driver={data},node-name=disk{index}-data{access}"),
            format!("driver=blkdebug,node-name=disk{index}-delay,image=disk{index}-data{access}"),
            format!("driver=raw,node-name=disk{index},file=disk{index}-delay{access}"),
        ];
        let node_arguments = nodes.into_iter().flat_map(|node| ["-blockdev".to_owned(), node]);
        let devices = self.model.arguments(index).into_iter();
        node_arguments.chain(devices.flat_map(|device| ["-device".to_owned(), device])).collect()
    }

    /// Describes the disk as the guest sees it, for [`Machine::device_set`](super::Machine::device_set). Without the
    /// time of requests.
    pub(crate) fn key_text(&self, index: usize) -> String {
        let content = match &self.backing {
            Backing::Null { bytes } => format!("{bytes} bytes of nothing"),
            Backing::File { bytes, sha256, .. } => {
                format!("{bytes} bytes of content {}", hash::key(sha256))
            }
            Backing::ReadOnly { bytes, sha256, .. } => {
                format!("{bytes} bytes of content {}, read-only", hash::key(sha256))
            }
            Backing::Scratch { bytes } => format!("{bytes} bytes, writable"),
        };
        format!("{}: {content}", self.model.arguments(index).join(" "))
    }

    /// The value of `--disk` that makes such a disk, without the time of its requests and without the path of its file.
    pub(super) fn option(&self) -> String {
        let model = self.model.word();
        match &self.backing {
            Backing::Null { bytes } if *bytes == DISK_BYTES_DEFAULT => model.to_owned(),
            Backing::Null { bytes } => format!("{model},size={bytes}"),
            Backing::Scratch { bytes } => format!("{model},scratch={bytes}"),
            Backing::File { .. } | Backing::ReadOnly { .. } => format!("{model},file=FILE"),
        }
    }

    /// Fails if the time that requests take is not allowed.
    pub(super) fn check_time(&self) -> std::result::Result<(), String> {
        if self.latency_ns > LATENCY_NS_MAX {
            return Err("latency of a disk: allowed: 0 to 1 s".to_owned());
        }
        if let Some(Coalescing { count, delay_ns }) = self.coalescing
            && (self.drive.is_some()
                || !(1..=COALESCED_MAX).contains(&count)
                || delay_ns > LATENCY_NS_MAX)
        {
            return Err(format!(
                "coalescing of a disk: allowed: 1 to {COALESCED_MAX} completions, 0 to 1 s, and no drive="
            ));
        }
        let Some(drive) = self.drive else { return Ok(()) };
        if self.latency_ns > 0 {
            return Err(
                "a disk has a latency or a drive: give one of latency= and drive=".to_owned()
            );
        }
        let (bytes, bytes_max) = (self.backing.bytes(), DriveModel::BYTES);
        if bytes > bytes_max {
            return Err(format!(
                "a disk of {bytes} bytes does not fit on drive {drive}: at most {bytes_max} (size=1310M)"
            ));
        }
        Ok(())
    }

    /// Describes the disk at this index to the plugin.
    pub(crate) fn for_plugin(&self, index: usize) -> plugin_interface::options::Disk {
        let node = format!("disk{index}");
        let latency_ns = self.latency_ns;
        let time = match (self.drive, self.coalescing) {
            (Some(drive), _) => DiskTime::Drive(drive),
            (None, Some(Coalescing { count, delay_ns })) => {
                DiskTime::Coalesced { latency_ns, count, delay_ns }
            }
            (None, None) => DiskTime::Latency(latency_ns),
        };
        plugin_interface::options::Disk { node, time }
    }

    /// Opens the file of the disk. A writable disk gets a copy without a name, which ends with its last user. `None` for a
    /// disk without content. `saved`: the content from a checkpoint, instead of the content that the disk names.
    ///
    /// Fails if a file of the disk has changed since it was examined.
    fn open_file(&self, index: usize, saved: Option<&Path>) -> Result<Option<OwnedFd>> {
        let directory = std::env::temp_dir();
        let error_in = |action: String| {
            move |source: io::Error| {
                SimError::data(format!("disk {index}: {action}"), source.to_string())
            }
        };
        let copying =
            |path: &Path| format!("copying {} to {}", path.display(), directory.display());
        let file = match (&self.backing, saved) {
            (Backing::Null { .. }, _) => return Ok(None),
            (Backing::ReadOnly { path, sha256, known, .. }, _) => {
                open_unchanged(path, sha256, *known)
                    .map_err(error_in(format!("opening {}", path.display())))
            }
            (Backing::File { bytes, .. } | Backing::Scratch { bytes }, Some(saved)) => {
                copy_of(saved, *bytes, &directory).map_err(error_in(copying(saved)))
            }
            (Backing::File { path, bytes, sha256, known }, None) => {
                copy_unchanged(path, *bytes, &directory, sha256, *known)
                    .map_err(error_in(copying(path)))
            }
            (Backing::Scratch { bytes }, None) => scratch(*bytes, &directory)
                .map_err(error_in(format!("making {bytes} bytes in {}", directory.display()))),
        };
        file.map(Some)
    }
}

/// Error for a file that has changed since its examination.
const HAS_CHANGED: &str = "it has changed since it was examined";

/// Opens a file for reading. Fails if its content no longer has the hash `sha256`. Does not compute the hash if the
/// file still has the identity `known` of its examination; `None` always computes it.
fn open_unchanged(path: &Path, sha256: &str, known: Option<Identity>) -> io::Result<OwnedFd> {
    let file = File::open(path)?;
    let has_known_identity = known.is_some() && Identity::of_unchanged(&file.metadata()?) == known;
    if !has_known_identity && hash::of_open_file(&file)? != sha256 {
        return Err(io::Error::other(HAS_CHANGED));
    }
    Ok(file.into())
}

/// Like [`copy_of`]. Fails if the copy's content does not have the hash `sha256`. Does not compute the hash if the file
/// has the identity `known` of its examination before and after the copy; `None` always computes it.
fn copy_unchanged(
    path: &Path,
    bytes: u64,
    directory: &Path,
    sha256: &str,
    known: Option<Identity>,
) -> io::Result<OwnedFd> {
    let identity = || Ok::<_, io::Error>(Identity::of_unchanged(&fs::metadata(path)?));
    let identity_before = identity()?;
    let copy = copy_of(path, bytes, directory)?;
    let has_known_identity = known.is_some() && identity_before == known && identity()? == known;
    if has_known_identity {
        return Ok(copy);
    }
    let copy = File::from(copy);
    if hash::of_open_file(&copy)? != sha256 {
        return Err(io::Error::other(HAS_CHANGED));
    }
    Ok(copy.into())
}

/// Creates a file of zeros without a name.
fn scratch(bytes: u64, directory: &Path) -> io::Result<OwnedFd> {
    let file = unnamed(directory)?;
    rustix::fs::ftruncate(&file, bytes)?;
    Ok(file)
}

/// Creates an empty file without a name (`O_TMPFILE`): it ends with its last descriptor. Programs that this process
/// executes do not inherit the descriptor, unless they ask for it as QEMU does.
fn unnamed(directory: &Path) -> io::Result<OwnedFd> {
    let mode = Mode::from_raw_mode(0o600);
    Ok(rustix::fs::open(directory, OFlags::TMPFILE | OFlags::RDWR | OFlags::CLOEXEC, mode)?)
}

/// Copies a file of `bytes` bytes to a file without a name. Shares the blocks if the file system can; otherwise copies
/// everything but the holes.
fn copy_of(path: &Path, bytes: u64, directory: &Path) -> io::Result<OwnedFd> {
    let source = File::open(path)?;
    if source.metadata()?.len() != bytes {
        return Err(io::Error::other(HAS_CHANGED));
    }
    let copy = unnamed(directory)?;
    copy_content(&source, &copy, bytes)?;
    Ok(copy)
}

/// Copies the first `bytes` bytes of a file to an empty file. Shares the blocks if the file system can.
fn copy_content(source: &impl AsFd, target: &impl AsFd, bytes: u64) -> io::Result<()> {
    let (source, target) = (source.as_fd(), target.as_fd());
    if rustix::fs::ioctl_ficlone(target, source).is_err() {
        rustix::fs::ftruncate(target, bytes)?;
        let mut offset = 0;
        while let Some(data) = next_data(source, offset, bytes)? {
            copy_range(source, target, data.clone())?;
            offset = data.end;
        }
    }
    Ok(())
}

/// Returns the next range of a file with data, not a hole, from `offset` on; `None` if there is none before `bytes`. The
/// range ends at `bytes` at the latest.
fn next_data(file: BorrowedFd<'_>, offset: u64, bytes: u64) -> io::Result<Option<Range<u64>>> {
    let seek = |position| -> io::Result<Option<u64>> {
        match rustix::fs::seek(file, position) {
            // There is no more data.
            Err(Errno::NXIO) => Ok(None),
            position => Ok(Some(position?)),
        }
    };
    if offset >= bytes {
        return Ok(None);
    }
    let Some(data_start) = seek(SeekFrom::Data(offset))? else { return Ok(None) };
    let hole_start = seek(SeekFrom::Hole(data_start))?.unwrap_or(bytes).min(bytes);
    Ok((data_start < hole_start).then_some(data_start..hole_start))
}

/// Copies a range by copy_file_range(2), or by a buffer where the kernel cannot do that.
fn copy_range(source: BorrowedFd<'_>, target: BorrowedFd<'_>, range: Range<u64>) -> io::Result<()> {
    let (mut read_at, mut write_at) = (range.start, range.start);
    while read_at < range.end {
        let length_max = usize::try_from(range.end - read_at).unwrap_or(usize::MAX).min(COPY_BYTES);
        let copied = rustix::fs::copy_file_range(
            source,
            Some(&mut read_at),
            target,
            Some(&mut write_at),
            length_max,
        );
        match copied {
            Ok(0) => return Err(io::ErrorKind::UnexpectedEof.into()),
            // Another file system, or a kernel before 5.3.
            Err(Errno::XDEV | Errno::INVAL | Errno::OPNOTSUPP | Errno::NOSYS) => {
                return copy_by_buffer(source, target, read_at..range.end);
            }
            count => drop(count?),
        }
    }
    Ok(())
}

/// Copies a range by read and write, through a buffer.
fn copy_by_buffer(
    source: BorrowedFd<'_>,
    target: BorrowedFd<'_>,
    mut range: Range<u64>,
) -> io::Result<()> {
    let mut buffer = vec![0; COPY_BYTES];
    while range.start < range.end {
        let length_max =
            buffer.len().min(usize::try_from(range.end - range.start).unwrap_or(usize::MAX));
        let count = rustix::io::pread(source, &mut buffer[..length_max], range.start)?;
        if count == 0 {
            return Err(io::ErrorKind::UnexpectedEof.into());
        }
        let mut written = 0;
        while written < count {
            let offset = range.start + written as u64;
            written += rustix::io::pwrite(target, &buffer[written..count], offset)?;
        }
        range.start += count as u64;
    }
    Ok(())
}

/// Returns the name of the file of disk `index` in QEMU.
fn file_name(index: usize) -> String {
    format!("/dev/fdset/{}", fd_set(index))
}

/// Returns QEMU's number for the descriptor of disk `index`.
fn fd_set(index: usize) -> usize {
    index + 1
}

/// The open file of a disk, which QEMU inherits.
#[derive(Debug)]
pub(crate) struct DiskFile {
    index: usize,
    is_writable: bool,
    file: OwnedFd,
}

impl AsRawFd for DiskFile {
    fn as_raw_fd(&self) -> RawFd {
        self.file.as_raw_fd()
    }
}

/// Opens the files of disks, and adds them to the arguments of QEMU (`command`). The caller must let QEMU inherit the
/// returned files under their numbers, and keep them open until QEMU has started. A disk without content
/// ([`Backing::Null`]) has no file. Writable disks start with the content in the directory `saved`, if there is one.
pub(crate) fn hand_over(
    disks: &[Disk],
    saved: Option<&Path>,
    command: &mut Command,
) -> Result<Vec<DiskFile>> {
    let mut files = Vec::new();
    for (index, disk) in disks.iter().enumerate() {
        let is_writable = disk.backing.is_writable();
        let saved_file = saved.map(|directory| directory.join(saved_name(index)));
        if let Some(file) = disk.open_file(index, saved_file.as_deref())? {
            let (number, set) = (file.as_raw_fd(), fd_set(index));
            command.arg("-add-fd").arg(format!("fd={number},set={set}"));
            files.push(DiskFile { index, is_writable, file });
        }
    }
    Ok(files)
}

/// Returns the name of the file of a checkpoint with the content of disk `index`.
pub(crate) fn saved_name(index: usize) -> String {
    format!("disk{index}")
}

/// Returns the names of the files with the contents of disks that a checkpoint of a machine has.
pub(crate) fn saved_names(disks: &[Disk]) -> impl Iterator<Item = String> {
    let disks = disks.iter().enumerate();
    disks.filter(|(_, disk)| disk.backing.is_writable()).map(|(index, _)| saved_name(index))
}

/// Saves what the guest has written, in a directory. The machine is stopped: all requests have ended.
pub(crate) fn save(files: &[DiskFile], staging: &Path) -> Result<()> {
    for disk in files.iter().filter(|disk| disk.is_writable) {
        let target = staging.join(saved_name(disk.index));
        let copied = File::create(&target).and_then(|file| {
            let bytes = rustix::fs::fstat(&disk.file)?.st_size;
            copy_content(&disk.file, &file, u64::try_from(bytes).unwrap_or(0))
        });
        copied.map_err(SimError::file(&target))?;
    }
    Ok(())
}

impl FromStr for Disk {
    type Err = String;

    /// Parses an argument of `--disk`: `virtio-blk`, `nvme,size=64M`, `ahci,file=disk.raw,latency=100us`,
    /// `virtio-blk,scratch=1G`. A file is examined, which reads all of it.
    fn from_str(text: &str) -> std::result::Result<Disk, String> {
        let (model, options) = text.split_once(',').unwrap_or((text, ""));
        let mut disk = Disk {
            model: by_name(&DiskModel::ALL, model)?,
            backing: Backing::Null { bytes: DISK_BYTES_DEFAULT },
            latency_ns: 0,
            coalescing: None,
            drive: None,
        };
        for option in options.split(',').filter(|option| !option.is_empty()) {
            match option.split_once('=') {
                Some(("size", size)) => {
                    let bytes = disk_bytes(size).ok_or("size: as in 512M or 1G")?;
                    check_size(bytes)?;
                    disk.backing = Backing::Null { bytes };
                }
                Some(("scratch", size)) => {
                    let bytes = disk_bytes(size).ok_or("scratch: as in 512M or 1G")?;
                    check_size(bytes)?;
                    disk.backing = Backing::Scratch { bytes };
                }
                Some(("file", path)) => {
                    let backing = Backing::of_file(Path::new(path));
                    disk.backing = backing.map_err(|error| error.to_string())?;
                }
                Some(("latency", latency)) => {
                    let units = [("ns", 1), ("us", 1_000), ("ms", 1_000_000), ("s", 1_000_000_000)];
                    let latency = scaled(latency, &units).filter(|ns| *ns <= LATENCY_NS_MAX);
                    disk.latency_ns = latency.ok_or("latency: 0ns to 1s, as in 100us or 1ms")?;
                }
                Some(("drive", drive)) => disk.drive = Some(drive.parse()?),
                _ => {
                    let allowed = "size=, scratch=, file=, latency=, drive=";
                    return Err(format!("{option:?}: allowed: {allowed}"));
                }
            }
        }
        disk.check_time()?;
        Ok(disk)
    }
}

/// Parses a size of a disk, such as `512M`. `None` if it is none.
fn disk_bytes(text: &str) -> Option<u64> {
    scaled(text, &[("M", 1 << 20), ("G", 1 << 30), ("K", 1 << 10), ("", 1)])
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
        let for_plugin = disk.for_plugin(2);
        assert_eq!(for_plugin.node, "disk2");
        assert_eq!(for_plugin.time, DiskTime::Latency(100_000));
        let coalescing = Some(Coalescing { count: 8, delay_ns: 9 });
        let coalesced = Disk { coalescing, ..disk.clone() };
        assert_eq!(coalesced.for_plugin(0).time.to_string(), "100000+8+9");
        assert_eq!(coalesced.key_text(0), disk.key_text(0));
        let too_many = Some(Coalescing { count: 257, delay_ns: 9 });
        assert!(Disk { coalescing: too_many, ..disk.clone() }.check_time().is_err());
        let old: Disk = "lsi,drive=hp97560-4x".parse().unwrap();
        assert_eq!(old.for_plugin(0).time.to_string(), "hp97560-4x");
        for text in ["nvme", "nvme,size=1048576", "lsi,scratch=1048576"] {
            assert_eq!(text.parse::<Disk>().unwrap().option(), text);
        }
        let plain: Disk = "virtio-blk".parse().unwrap();
        assert_eq!((plain.latency_ns, plain.model), (0, DiskModel::VirtioBlk));
        for (text, words) in [
            ("floppy", "virtio-blk, nvme, ahci, ide, lsi"),
            ("nvme,size=1", "multiple of 512"),
            ("nvme,size=1.5G", "as in"),
            ("nvme,size=99999999999G", "as in"),
            ("nvme,latency=2s", "1s"),
            ("nvme,latency=5", "as in"),
            ("lsi,drive=rz58", "hp97560"),
            ("lsi,drive=hp97560,latency=1ms", "one of"),
            ("lsi,drive=hp97560,size=2G", "at most"),
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
        let fast = disk("lsi");
        for slow in [disk("lsi,latency=1ms"), disk("lsi,drive=hp97560")] {
            assert_eq!(fast.key_text(0), slow.key_text(0));
            assert_eq!(fast.arguments(0), slow.arguments(0));
        }
        assert_ne!(fast.key_text(0), disk("lsi,size=1M").key_text(0));
        assert_ne!(fast.key_text(0), fast.key_text(1));
    }

    #[test]
    fn other_programs_do_not_inherit_the_files_of_disks() {
        let scratch = tempfile::tempdir().unwrap();
        let path = scratch.path().join("disk");
        fs::write(&path, [7; 1024]).unwrap();
        let machine_disks = ["ahci,scratch=1M".to_owned(), format!("ahci,file={}", path.display())];
        let mut disks = machine_disks.map(|text| text.parse::<Disk>().unwrap()).to_vec();
        let Backing::File { path, bytes, sha256, known } = disks[1].backing.clone() else {
            panic!()
        };
        let backing = Backing::ReadOnly { path, bytes, sha256, known };
        disks.push(Disk { backing, ..disks[0].clone() });
        let files = hand_over(&disks, None, &mut Command::new("true")).unwrap();
        assert_eq!(files.len(), 3);
        for DiskFile { index, file, .. } in &files {
            let flags = rustix::io::fcntl_getfd(file).unwrap();
            assert!(flags.contains(rustix::io::FdFlags::CLOEXEC), "disk {index}");
        }
    }

    #[test]
    fn the_guest_gets_a_copy_of_a_file() {
        use std::io::{Read, Seek};
        let scratch = tempfile::tempdir().unwrap();
        let path = scratch.path().join("disk");
        fs::write(&path, [7; 1024]).unwrap();
        let disk: Disk = format!("ahci,file={}", path.display()).parse().unwrap();
        assert!(disk.arguments(0).iter().any(|word| word.contains("/dev/fdset/1")));
        let mut copy = File::from(disk.open_file(0, None).unwrap().unwrap());
        let mut content = Vec::new();
        copy.rewind().unwrap();
        copy.read_to_end(&mut content).unwrap();
        assert_eq!(content, [7; 1024]);
        // With holes, and to another file system.
        let holes = File::create(&path).unwrap();
        // Another content of the same size is noticed, however soon.
        holes.set_len(1024).unwrap();
        assert!(disk.open_file(0, None).unwrap_err().to_string().contains("has changed"));
        holes.set_len(1 << 20).unwrap();
        rustix::io::pwrite(&holes, &[5; 4096], 512 << 10).unwrap();
        let mut expected = vec![0; 1 << 20];
        expected[512 << 10..][..4096].fill(5);
        for place in [scratch.path(), Path::new("/dev/shm")] {
            let mut copy = File::from(copy_of(&path, 1 << 20, place).unwrap());
            let mut content = Vec::new();
            copy.read_to_end(&mut content).unwrap();
            assert!(content == expected, "{}", place.display());
        }
        fs::write(&path, [7; 512]).unwrap();
        assert!(disk.open_file(0, None).unwrap_err().to_string().contains("has changed"));
        fs::write(&path, [7; 511]).unwrap();
        assert!(Backing::of_file(&path).is_err());
    }
}
