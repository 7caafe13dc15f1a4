//! The disk that measured threads read with `--wake-by disk`: a file or a block device, with the disk's interrupts.

use std::fs::File;
use std::io;
use std::os::fd::AsFd;
use std::os::unix::fs::{FileTypeExt, MetadataExt};
use std::path::Path;

use lab::experiment::BenchError;
use rustix::io::Errno;
use zerocopy::{FromBytes, IntoBytes};

use crate::host::{Root, disk_irqs, irq_affinities, online_cpus};
use crate::stimulus::{default_scratch_dir, direct_file, scratch_file};

/// Bytes of a read, which every disk with blocks of up to 4 KiB accepts with `O_DIRECT`.
const READ_BYTES: u64 = 4096;
/// Size of the scratch file.
const SCRATCH_BYTES: u64 = 16 << 20;
/// A disk with more interrupts than this has one for each CPU or group of CPUs.
const SHARED_IRQS_MAX: usize = 16;
const REMEDY: &str = "--disk-file with a block device, or with a file on ext4 or XFS on a disk";

/// A buffer for a read with `O_DIRECT`.
#[derive(FromBytes, IntoBytes)]
#[repr(C, align(4096))]
pub(super) struct ReadBuffer([u8; READ_BYTES as usize]);

impl ReadBuffer {
    pub(super) fn new() -> Box<ReadBuffer> {
        Box::new(ReadBuffer([0; READ_BYTES as usize]))
    }
}

/// A file or a block device, open for reads that bypass the page cache.
#[derive(Debug)]
pub struct DiskFile {
    file: File,
    /// Path or description of the file.
    pub place: String,
    /// Number of blocks of a read's length, at least 1.
    pub blocks: u64,
    /// The kernel's numbers of the disk's interrupts.
    pub irqs: Vec<u32>,
}

impl DiskFile {
    /// Opens `path` for reading, or makes a scratch file without a name on a disk.
    ///
    /// Fails if it is not on a disk whose interrupts are known, or cannot be read.
    pub fn open(root: &Root, path: Option<&Path>) -> Result<DiskFile, BenchError> {
        let refused = |(reason, remedy): (String, String)| BenchError::NothingMeasurable {
            reason,
            remedy: Some(remedy),
        };
        let (file, place, bytes) = match path {
            Some(path) => {
                let (file, bytes) = direct_file(path).map_err(refused)?;
                (file, path.display().to_string(), bytes)
            }
            None => {
                let directory = default_scratch_dir();
                let file = scratch_file(&directory, SCRATCH_BYTES).map_err(refused)?;
                let place = format!("an unnamed file in {}", directory.display());
                (file, place, SCRATCH_BYTES)
            }
        };
        let cannot = |reason: String| refused((reason, REMEDY.to_owned()));
        let metadata =
            file.metadata().map_err(|error| cannot(format!("cannot read {place}: {error}")))?;
        let is_device = metadata.file_type().is_block_device();
        let number = if is_device { metadata.rdev() } else { metadata.dev() };
        let (major, minor) = (rustix::fs::major(number), rustix::fs::minor(number));
        let irqs = disk_irqs(root, major, minor).ok_or_else(|| {
            cannot(format!(
                "{place}: no disk with interrupts belongs to it (device {major}:{minor})"
            ))
        })?;
        let blocks = bytes / READ_BYTES;
        if blocks == 0 {
            return Err(cannot(format!("{place} is shorter than a read of {READ_BYTES} bytes")));
        }
        let disk = DiskFile { file, place, blocks, irqs };
        disk.read(0, &mut ReadBuffer::new())
            .map_err(|error| cannot(format!("cannot read {}: {error}", disk.place)))?;
        Ok(disk)
    }

    /// Reads a block below [`DiskFile::blocks`], and waits for it.
    ///
    /// Fails if the disk does, and at the end of a file that has become shorter.
    #[inline]
    pub(super) fn read(&self, block: u64, buffer: &mut ReadBuffer) -> io::Result<()> {
        loop {
            let bytes = buffer.as_mut_bytes();
            match rustix::io::pread(self.file.as_fd(), bytes, block * READ_BYTES) {
                Err(Errno::INTR) => {}
                Ok(0) => return Err(io::ErrorKind::UnexpectedEof.into()),
                result => return Ok(result.map(drop)?),
            }
        }
    }

    /// Returns the CPUs that the disk may interrupt at reads of threads on the CPUs `measured`, sorted.
    pub fn interrupted_cpus(&self, root: &Root, measured: &[u32]) -> Vec<u32> {
        let affinities = irq_affinities(root).unwrap_or_default();
        let mut lines: Vec<_> =
            affinities.iter().filter(|line| self.irqs.contains(&line.number)).collect();
        if lines.len() > SHARED_IRQS_MAX {
            // The kernel chooses the interrupt by the CPU that starts the read.
            lines.retain(|line| {
                let allowed = line.allowed.as_deref();
                allowed.is_none_or(|cpus| cpus.iter().any(|cpu| measured.contains(cpu)))
            });
        }
        let all = || online_cpus(root).unwrap_or_default();
        let mut cpus: Vec<u32> =
            lines.iter().flat_map(|line| line.effective.clone().unwrap_or_else(all)).collect();
        cpus.sort_unstable();
        cpus.dedup();
        cpus
    }
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;

    fn refusal(path: &Path) -> (String, String) {
        match DiskFile::open(&Root::default(), Some(path)) {
            Err(BenchError::NothingMeasurable { reason, remedy: Some(remedy) }) => (reason, remedy),
            other => panic!("{other:?}"),
        }
    }

    #[test]
    fn files_without_a_disk_are_refused_with_a_remedy() {
        let memory = tempfile::tempdir_in("/dev/shm").unwrap();
        let file = memory.path().join("file");
        fs::write(&file, [0; 8192]).unwrap();
        for (path, expected) in [
            (file.as_path(), "is on tmpfs, which is memory"),
            (Path::new("/no/such/file"), "cannot read /no/such/file"),
            (Path::new("/dev/null"), "neither a file nor a block device"),
        ] {
            let (reason, remedy) = refusal(path);
            assert!(reason.contains(expected), "{reason}");
            assert!(remedy.contains("--disk-file"), "{remedy}");
        }
    }

    /// A machine whose disk has 40 interrupts for 40 CPUs, or one that comes to CPU 3.
    #[test]
    fn only_cpus_of_interrupts_that_reads_can_raise_are_watched() {
        let directory = tempfile::tempdir().unwrap();
        let lines = directory.path().join("proc/irq");
        for irq in 0..40 {
            let line = lines.join((100 + irq).to_string());
            fs::create_dir_all(&line).unwrap();
            fs::write(line.join("smp_affinity_list"), format!("{irq}\n")).unwrap();
            fs::write(line.join("effective_affinity_list"), format!("{irq}\n")).unwrap();
        }
        let root = Root::new(directory.path());
        let disk = |irqs: Vec<u32>| DiskFile {
            file: File::open("/dev/null").unwrap(),
            place: String::new(),
            blocks: 1,
            irqs,
        };
        assert_eq!(disk((100..140).collect()).interrupted_cpus(&root, &[5, 7]), [5, 7]);
        assert_eq!(disk(vec![103]).interrupted_cpus(&root, &[0]), [3]);
    }
}
