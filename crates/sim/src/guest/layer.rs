//! irqlab itself for the guest: the running program and its libraries, as files of the initramfs.
//!
//! The experiments run irqlab in the guest, too, where it makes load and stimuli. The dynamic loader of this process
//! lists the libraries that it has mapped (`dl_iterate_phdr`). In the guest they are in one directory; only the loader
//! itself is at the path that the program names.
//!
//! Only the part of each file that its program headers name is copied. The rest serves linkers and debuggers, and is
//! nine tenths of a debug build.

use std::ffi::{CStr, c_int, c_void};
use std::fs::File;
use std::io::Read;
use std::path::{Path, PathBuf};

use crate::{Result, SimError};

/// The running program, even if its file was replaced.
const PROGRAM: &str = "/proc/self/exe";
/// Maximum size of a copied part, bytes.
const FILE_BYTES_MAX: u64 = 256 << 20;
/// Maximum number of libraries; irqlab has five.
const LIBRARIES_MAX: usize = 64;
/// Size of the header of a 64-bit ELF file, and of an entry of its program headers.
const HEADER_BYTES: usize = 64;
const ENTRY_BYTES: usize = 56;
/// Type of the program header that names the loader.
const PT_INTERP: u32 = 3;
/// Maximum length of a loader's name.
const LOADER_BYTES_MAX: u64 = 4096;

#[derive(Debug)]
pub(crate) struct LayerFile {
    /// Its path in the guest, without the first slash.
    pub(crate) path: String,
    pub(crate) bytes: Vec<u8>,
}

/// Returns the running program as `irqlab/irqlab`, its libraries in `irqlab/lib`, and its loader.
///
/// Fails when a file cannot be read or is no ELF file for x86-64, or there are too many.
pub(crate) fn of_this_program() -> Result<Vec<LayerFile>> {
    let program = read_loaded(Path::new(PROGRAM))?;
    let loader = loader_of(&program)?;
    let mut files = vec![LayerFile { path: "irqlab/irqlab".to_owned(), bytes: program }];
    for library in loaded_libraries() {
        let name = library.file_name().unwrap_or_default().to_string_lossy();
        let path = match &loader {
            Some(loader) if Path::new(loader) == library => loader.trim_matches('/').to_owned(),
            _ => format!("irqlab/lib/{name}"),
        };
        if files.len() > LIBRARIES_MAX {
            return Err(SimError::data(PROGRAM, format!("over {LIBRARIES_MAX} libraries")));
        }
        files.push(LayerFile { path, bytes: read_loaded(&library)? });
    }
    // The loader's order is not specified.
    files.sort_by(|first, second| first.path.cmp(&second.path));
    Ok(files)
}

/// Returns the files that start irqlab in a root file system with another loader: `irqlab/run` and the loader of
/// `program_layer`. Empty if the layer has no loader.
pub(crate) fn for_root(program_layer: &[LayerFile]) -> Vec<LayerFile> {
    let is_outside = |file: &&LayerFile| !file.path.starts_with("irqlab/");
    let Some(loader) = program_layer.iter().find(is_outside) else { return Vec::new() };
    let name = loader.path.rsplit('/').next().unwrap_or_default();
    let path = format!("irqlab/lib/{name}");
    let run = format!("#!/bin/sh\nexec /{path} --library-path /irqlab/lib /irqlab/irqlab \"$@\"\n");
    let copy = LayerFile { path, bytes: loader.bytes.clone() };
    vec![LayerFile { path: "irqlab/run".to_owned(), bytes: run.into_bytes() }, copy]
}

/// Returns the paths of the shared objects of this process.
fn loaded_libraries() -> Vec<PathBuf> {
    /// Adds the path of a shared object to `data`, a vector of paths. Returns 0: the loader continues with the next object.
    unsafe extern "C" fn collect(
        info: *mut libc::dl_phdr_info,
        _size: usize,
        data: *mut c_void,
    ) -> c_int {
        // SAFETY: `data` is the vector that the caller below passes and borrows for the call.
        let paths = unsafe { &mut *data.cast::<Vec<PathBuf>>() };
        // SAFETY: the loader gives a valid structure whose name is a C string or null.
        let name = unsafe { (*info).dlpi_name };
        if !name.is_null() {
            // SAFETY: not null, so a C string that lives while the object is loaded.
            let name = unsafe { CStr::from_ptr(name) }.to_string_lossy().into_owned();
            paths.push(PathBuf::from(name));
        }
        0
    }
    let mut paths: Vec<PathBuf> = Vec::new();
    // SAFETY: the callback has the type that is asked for, keeps nothing, and does not unwind.
    unsafe { libc::dl_iterate_phdr(Some(collect), (&raw mut paths).cast()) };
    // The program itself has no name, and the name of the vDSO is no path.
    paths.retain(|path| path.is_absolute());
    paths.sort();
    paths.dedup();
    paths
}

fn bad(path: &Path, reason: &str) -> SimError {
    SimError::data(path.display().to_string(), reason)
}

/// Reads the part of an ELF file that is loaded. Removes the table of sections, which is not copied, from its header.
fn read_loaded(path: &Path) -> Result<Vec<u8>> {
    let mut file = File::open(path).map_err(SimError::file(path))?;
    let mut bytes = Vec::new();
    let mut read_to = |bytes: &mut Vec<u8>, length: u64| -> Result<()> {
        let missing_bytes = length.saturating_sub(bytes.len() as u64);
        (&mut file).take(missing_bytes).read_to_end(bytes).map_err(SimError::file(path))?;
        let is_complete = bytes.len() as u64 >= length;
        if is_complete { Ok(()) } else { Err(bad(path, "is cut off")) }
    };
    read_to(&mut bytes, HEADER_BYTES as u64)?;
    let table = Table::read(&bytes).ok_or_else(|| bad(path, "is not an ELF file for x86-64"))?;
    read_to(&mut bytes, table.end)?;
    let end = table.loaded_end(&bytes).filter(|end| *end <= FILE_BYTES_MAX);
    read_to(&mut bytes, end.ok_or_else(|| bad(path, "has absurd program headers"))?)?;
    without_sections(&mut bytes);
    Ok(bytes)
}

/// The place of the program headers in a file.
struct Table {
    start: usize,
    count: usize,
    /// Their end, or the end of the file's header if that is later.
    end: u64,
}

impl Table {
    /// Reads the place from a file's header. `None` if the file is not an ELF file for x86-64.
    fn read(header: &[u8]) -> Option<Table> {
        // 64 bits, little-endian; machine 62 is x86-64.
        let is_x86_64 = header.get(..6)? == b"\x7fELF\x02\x01" && word(header, 18, 2)? == 62;
        let (start, size) = (word(header, 32, 8)?, word(header, 54, 2)?);
        let count = word(header, 56, 2)?;
        if !is_x86_64 || size != ENTRY_BYTES as u64 || start > FILE_BYTES_MAX {
            return None;
        }
        let end = start + count * size;
        Some(Table { start: start as usize, count: count as usize, end: end.max(64) })
    }

    /// Returns the type, offset and length of each program header; `None` for a header that is cut off.
    fn entries<'a>(&self, bytes: &'a [u8]) -> impl Iterator<Item = Option<(u32, u64, u64)>> + 'a {
        let start = self.start;
        (0..self.count).map(move |index| {
            let entry_offset = start + index * ENTRY_BYTES;
            let kind = word(bytes, entry_offset, 4)? as u32;
            Some((kind, word(bytes, entry_offset + 8, 8)?, word(bytes, entry_offset + 32, 8)?))
        })
    }

    /// Returns the end of the last part of the file that the program headers name.
    fn loaded_end(&self, bytes: &[u8]) -> Option<u64> {
        let mut ends = self.entries(bytes).map(|entry| {
            let (_, offset, length) = entry?;
            offset.checked_add(length)
        });
        ends.try_fold(self.end, |end_max, end| Some(end_max.max(end?)))
    }
}

/// Returns the loader that a program names. `None` if it is linked statically, or the name is longer than any loader's.
fn loader_of(program: &[u8]) -> Result<Option<String>> {
    let no_loader = || bad(Path::new(PROGRAM), "names no loader");
    let table = Table::read(program).ok_or_else(no_loader)?;
    let found = table.entries(program).flatten().find(|(kind, ..)| *kind == PT_INTERP);
    let Some((_, offset, length)) = found.filter(|(.., length)| *length <= LOADER_BYTES_MAX) else {
        return Ok(None);
    };
    let end = offset.checked_add(length).ok_or_else(no_loader)?;
    let name = program.get(offset as usize..end as usize).ok_or_else(no_loader)?;
    let name = CStr::from_bytes_until_nul(name).map_err(|_| no_loader())?;
    Ok(Some(name.to_string_lossy().into_owned()))
}

/// Removes the table of sections from a header.
fn without_sections(bytes: &mut [u8]) {
    // e_shoff; e_shentsize, e_shnum, e_shstrndx.
    for field in [40..48, 58..64] {
        if let Some(field) = bytes.get_mut(field) {
            field.fill(0);
        }
    }
}

/// Reads a little-endian number of `length` bytes.
fn word(bytes: &[u8], offset: usize, length: usize) -> Option<u64> {
    let bytes = bytes.get(offset..offset.checked_add(length)?)?;
    Some(bytes.iter().rev().fold(0, |value, byte| value << 8 | u64::from(*byte)))
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::os::unix::fs::PermissionsExt;
    use std::process::Command;

    use super::*;

    #[test]
    fn a_trimmed_program_runs_with_the_copied_libraries() {
        let files = of_this_program().unwrap();
        let scratch = tempfile::tempdir().unwrap();
        for file in &files {
            let target = scratch.path().join(&file.path);
            fs::create_dir_all(target.parent().unwrap()).unwrap();
            fs::write(&target, &file.bytes).unwrap();
            fs::set_permissions(&target, fs::Permissions::from_mode(0o755)).unwrap();
        }
        let program = scratch.path().join("irqlab/irqlab");
        let output = Command::new(&program)
            .args(["--list"])
            .env("LD_LIBRARY_PATH", scratch.path().join("irqlab/lib"))
            .output()
            .unwrap();
        let text = String::from_utf8_lossy(&output.stdout);
        assert!(text.contains("a_trimmed_program_runs_with_the_copied_libraries"), "{output:?}");
        let program_bytes = fs::metadata("/proc/self/exe").unwrap().len();
        assert!(fs::metadata(&program).unwrap().len() < program_bytes);
        let has = |name: &str| files.iter().any(|file| file.path.contains(name));
        assert!(has("irqlab/lib/libc.so") && has("ld-linux"), "{files:?}", files = paths(&files));
    }

    fn paths(files: &[LayerFile]) -> Vec<&str> {
        files.iter().map(|file| file.path.as_str()).collect()
    }

    #[test]
    fn files_that_are_no_programs_are_refused() {
        let file = tempfile::NamedTempFile::new().unwrap();
        let program = fs::read("/proc/self/exe").unwrap();
        let mut absurd = program[..4096].to_vec();
        absurd[32..40].fill(0xff);
        let mut other_machine = program[..4096].to_vec();
        other_machine[18] = 3;
        for bytes in
            [&b""[..], b"#!/bin/sh\n", &program[..100], &program[..4096], &absurd, &other_machine]
        {
            fs::write(file.path(), bytes).unwrap();
            assert!(read_loaded(file.path()).is_err(), "{} bytes", bytes.len());
        }
    }

    proptest::proptest! {
        #[test]
        fn damaged_headers_are_an_error_or_bounded(changes: Vec<(u8, u8)>) {
            let mut bytes = vec![0; 400];
            bytes[..6].copy_from_slice(b"\x7fELF\x02\x01");
            (bytes[18], bytes[32], bytes[54], bytes[56]) = (62, 64, 56, 2);
            for (at, byte) in changes {
                bytes[usize::from(at)] = byte;
            }
            if let Some(table) = Table::read(&bytes) {
                let _ = table.loaded_end(&bytes);
            }
            let _ = loader_of(&bytes);
            without_sections(&mut bytes);
        }
    }
}
