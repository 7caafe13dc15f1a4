//! A run as a tar archive of known length: written by the irqlab of a host, and read by the irqlab that collects.
//!
//! The reader allows only the files that a run can have ([`record::is_run_file`]), each once and as a regular file. So no
//! path of the archive leaves its directory. Number and sizes are limited before anything is written.

use std::collections::BTreeSet;
use std::fs::{self, File};
use std::io::{self, ErrorKind, Read, Write};
use std::path::Path;

use outputs::NewDirectory;
use sha2::{Digest, Sha256};

use crate::error::{FleetError, making};

/// Maximum number of files in a run: its manifest, 64 tables and some pictures.
pub const FILES_MAX: usize = 256;
/// Name of the directory of tables in a run.
const TABLES: &str = "tables";
/// Size of a block of a tar archive, bytes.
const BLOCK_BYTES: u64 = 512;
/// Blocks of zeros at the end of a tar archive.
const END_BLOCKS: u64 = 2;
/// Size of reads, bytes.
const READ_BYTES: usize = 64 << 10;

/// A file of a run, in the archive.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ArchiveFile {
    /// Path below the run directory.
    pub path: String,
    pub bytes: u64,
}

/// Lists the files of a run directory, sorted by path. Leaves out files that no run has.
///
/// Fails if a directory of the run cannot be read, or if the run has more than [`FILES_MAX`] files.
pub fn files_of_run(run: &Path) -> io::Result<Vec<ArchiveFile>> {
    let mut files = Vec::new();
    for (prefix, directory) in [("", run.to_owned()), ("tables/", run.join(TABLES))] {
        for entry in fs::read_dir(directory)? {
            let entry = entry?;
            let Ok(name) = entry.file_name().into_string() else { continue };
            let path = format!("{prefix}{name}");
            let metadata = entry.metadata()?;
            if metadata.is_file() && record::is_run_file(&path) {
                files.push(ArchiveFile { path, bytes: metadata.len() });
            }
        }
    }
    if files.len() > FILES_MAX {
        return Err(io::Error::other(format!("the run has more than {FILES_MAX} files")));
    }
    files.sort_by(|first, second| first.path.cmp(&second.path));
    Ok(files)
}

/// Length of the archive with these files, bytes.
#[must_use]
pub fn archive_bytes(files: &[ArchiveFile]) -> u64 {
    let blocks = files.iter().map(|file| 1 + file.bytes.div_ceil(BLOCK_BYTES));
    (blocks.sum::<u64>() + END_BLOCKS) * BLOCK_BYTES
}

/// Writes the archive with these files of a run directory. Returns its SHA-256 in hexadecimal.
///
/// Fails if a file cannot be read or has changed its size, or if `writer` fails.
pub fn send_run(run: &Path, files: &[ArchiveFile], writer: &mut dyn Write) -> io::Result<String> {
    let mut hashing = Hashing { inner: writer, digest: Sha256::new() };
    let mut builder = tar::Builder::new(&mut hashing);
    for ArchiveFile { path, bytes } in files {
        let mut header = tar::Header::new_ustar();
        header.set_path(path)?;
        header.set_size(*bytes);
        header.set_mode(0o644);
        header.set_entry_type(tar::EntryType::Regular);
        header.set_cksum();
        let file = File::open(run.join(path))?;
        let mut content = file.take(*bytes);
        builder.append(&header, &mut content)?;
        if content.limit() > 0 {
            return Err(io::Error::other(format!("{path} has become shorter")));
        }
    }
    builder.finish()?;
    drop(builder);
    Ok(hexadecimal(&hashing.digest.finalize()))
}

/// Receives an archive of `bytes` bytes into the directory `name` of a new directory. Returns its SHA-256 in
/// hexadecimal, which the caller compares.
///
/// Fails with [`FleetError::Host`] if the archive is cut or contains something else than the files of a run, and with
/// [`FleetError::Io`] if this machine cannot write it.
pub fn receive_run(
    reader: &mut dyn Read,
    bytes: u64,
    directory: &NewDirectory,
    name: &str,
) -> Result<String, FleetError> {
    let target = directory.hidden_path().join(name);
    directory.create_directory(name).map_err(making(&target))?;
    let tables = format!("{name}/{TABLES}");
    directory.create_directory(&tables).map_err(making(&target))?;
    let mut hashing = Hashing { inner: reader.take(bytes), digest: Sha256::new() };
    receive_files(&mut hashing, directory, name, &target)?;
    // The rest of the archive is its end, which belongs to the checksum.
    io::copy(&mut hashing, &mut io::sink()).map_err(refused)?;
    if hashing.inner.limit() > 0 {
        return Err(FleetError::Host("the archive of the run is cut".to_owned()));
    }
    for made in [tables.as_str(), name] {
        directory.synchronise(made).map_err(making(&target))?;
    }
    Ok(hexadecimal(&hashing.digest.finalize()))
}

fn receive_files(
    reader: &mut dyn Read,
    directory: &NewDirectory,
    name: &str,
    target: &Path,
) -> Result<(), FleetError> {
    let mut archive = tar::Archive::new(reader);
    let mut paths = BTreeSet::new();
    // Raw entries: the content of an entry never becomes a name.
    for entry in archive.entries().map_err(refused)?.raw(true) {
        let mut entry = entry.map_err(refused)?;
        let path = checked_path(&entry)?;
        if !paths.insert(path.clone()) {
            return Err(FleetError::Host(format!("the archive has {path} twice")));
        }
        if paths.len() > FILES_MAX {
            return Err(FleetError::Host(format!("the archive has more than {FILES_MAX} files")));
        }
        let bytes = entry.size();
        let written = format!("{name}/{path}");
        let file = directory.create_file(&written).map_err(making(&target.join(&path)))?;
        let received = copy(&mut entry, &file, &target.join(&path))?;
        if received != bytes {
            return Err(FleetError::Host(format!("the archive of the run is cut in {path}")));
        }
    }
    Ok(())
}

/// The path of an entry below the run directory, if a run can have this file.
fn checked_path(entry: &tar::Entry<'_, &mut dyn Read>) -> Result<String, FleetError> {
    let path_bytes = entry.path_bytes();
    let path = String::from_utf8_lossy(&path_bytes);
    let kind = entry.header().entry_type();
    if kind != tar::EntryType::Regular {
        return Err(FleetError::Host(format!(
            "the archive has {path:?} of type {kind:?}; only regular files are allowed"
        )));
    }
    if !record::is_run_file(&path) {
        return Err(FleetError::Host(format!(
            "the archive has {path:?}, which is no file of a run"
        )));
    }
    Ok(path.into_owned())
}

/// Copies an entry to a file, and makes it durable. Returns its length.
fn copy(entry: &mut dyn Read, mut file: &File, path: &Path) -> Result<u64, FleetError> {
    let mut buffer = vec![0; READ_BYTES];
    let mut bytes = 0;
    loop {
        let count = match entry.read(&mut buffer) {
            Ok(0) => break,
            Ok(count) => count,
            Err(error) if error.kind() == ErrorKind::Interrupted => continue,
            Err(error) => return Err(refused(error)),
        };
        file.write_all(&buffer[..count]).map_err(FleetError::writing(path))?;
        bytes += count as u64;
    }
    file.sync_all().map_err(FleetError::writing(path))?;
    Ok(bytes)
}

fn refused(error: io::Error) -> FleetError {
    FleetError::Host(format!("the archive of the run cannot be read: {error}"))
}

/// Computes the SHA-256 of everything that is read or written.
struct Hashing<T> {
    inner: T,
    digest: Sha256,
}

impl<W: Write> Write for Hashing<W> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let count = self.inner.write(bytes)?;
        self.digest.update(&bytes[..count]);
        Ok(count)
    }

    fn flush(&mut self) -> io::Result<()> {
        self.inner.flush()
    }
}

impl<R: Read> Read for Hashing<R> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let count = self.inner.read(buffer)?;
        self.digest.update(&buffer[..count]);
        Ok(count)
    }
}

fn hexadecimal(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A directory that looks like a run, with a link and a file that no run has.
    fn run_directory() -> tempfile::TempDir {
        let run = tempfile::tempdir().unwrap();
        fs::create_dir(run.path().join("tables")).unwrap();
        fs::write(run.path().join("manifest.json"), "{}").unwrap();
        fs::write(run.path().join("tables/noise.parquet"), vec![7; 100_000]).unwrap();
        fs::write(run.path().join("noise.svg"), "").unwrap();
        fs::write(run.path().join(".hidden"), "no").unwrap();
        std::os::unix::fs::symlink("/etc/passwd", run.path().join("link.svg")).unwrap();
        run
    }

    fn archive_of(run: &Path) -> (Vec<u8>, String) {
        let files = files_of_run(run).unwrap();
        let mut bytes = Vec::new();
        let sha256 = send_run(run, &files, &mut bytes).unwrap();
        assert_eq!(bytes.len() as u64, archive_bytes(&files));
        (bytes, sha256)
    }

    fn receive(archive: &[u8], bytes: u64) -> Result<(tempfile::TempDir, String), FleetError> {
        let parent = tempfile::tempdir().unwrap();
        let directory = NewDirectory::create(&parent.path().join("host")).unwrap();
        let received = receive_run(&mut { archive }, bytes, &directory, "run");
        match received {
            Ok(sha256) => {
                directory.finish().unwrap();
                Ok((parent, sha256))
            }
            Err(error) => {
                drop(directory);
                assert_eq!(fs::read_dir(parent.path()).unwrap().count(), 0, "nothing is left");
                Err(error)
            }
        }
    }

    /// An archive with one entry of this name and type. The name is written as it is.
    fn archive_with(path: &str, kind: tar::EntryType, size: u64) -> Vec<u8> {
        let mut header = tar::Header::new_ustar();
        header.as_ustar_mut().unwrap().name[..path.len()].copy_from_slice(path.as_bytes());
        header.set_size(size);
        header.set_entry_type(kind);
        header.set_cksum();
        let mut bytes = header.as_bytes().to_vec();
        bytes.resize(512 * 4, 0);
        bytes
    }

    #[test]
    fn a_run_arrives_as_it_was_sent() {
        let run = run_directory();
        let (archive, sha256) = archive_of(run.path());
        let (parent, received) = receive(&archive, archive.len() as u64).unwrap();
        assert_eq!(received, sha256);
        let arrived = parent.path().join("host/run");
        let files = files_of_run(&arrived).unwrap();
        let paths: Vec<&str> = files.iter().map(|file| file.path.as_str()).collect();
        assert_eq!(paths, ["manifest.json", "noise.svg", "tables/noise.parquet"]);
        assert_eq!(fs::read(arrived.join("tables/noise.parquet")).unwrap(), vec![7; 100_000]);
    }

    #[test]
    fn other_bytes_have_another_checksum() {
        let run = run_directory();
        let (mut archive, sha256) = archive_of(run.path());
        let last = archive.len() - 1;
        archive[last] ^= 1;
        let (_parent, received) = receive(&archive, archive.len() as u64).unwrap();
        assert_ne!(received, sha256, "the end of the archive counts, too");
    }

    #[test]
    fn a_cut_archive_is_refused_at_each_length() {
        let run = run_directory();
        let (archive, _) = archive_of(run.path());
        for length in (0..archive.len()).step_by(509) {
            let error = receive(&archive[..length], archive.len() as u64).unwrap_err();
            assert!(matches!(&error, FleetError::Host(_)), "{length}: {error}");
        }
    }

    #[test]
    fn names_and_types_that_no_run_has_are_refused() {
        use tar::EntryType as Kind;
        for path in ["../x", "/etc/x", "tables/../x.parquet", "tables/x", "a/b.parquet", ".x", ""] {
            let archive = archive_with(path, Kind::Regular, 3);
            let error = receive(&archive, archive.len() as u64).unwrap_err().to_string();
            assert!(error.contains("no file of a run"), "{path:?}: {error}");
        }
        let kinds = [Kind::Symlink, Kind::Link, Kind::Directory, Kind::Fifo, Kind::Char];
        for kind in kinds.into_iter().chain([Kind::GNULongName, Kind::XHeader, Kind::GNUSparse]) {
            let archive = archive_with("manifest.json", kind, 3);
            let error = receive(&archive, archive.len() as u64).unwrap_err().to_string();
            assert!(error.contains("only regular files"), "{kind:?}: {error}");
        }
        let twice = archive_with("manifest.json", Kind::Regular, 3)[..1024].repeat(2);
        let error = receive(&twice, twice.len() as u64).unwrap_err().to_string();
        assert!(error.contains("twice"), "{error}");
    }

    #[test]
    fn an_entry_cannot_be_longer_than_the_archive() {
        let archive = archive_with("manifest.json", tar::EntryType::Regular, 1 << 40);
        let error = receive(&archive, archive.len() as u64).unwrap_err();
        assert!(matches!(&error, FleetError::Host(_)), "{error}");
    }
}
