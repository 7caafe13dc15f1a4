//! Kernel modules for the image, in the order of their loading.
//!
//! [`super::image`] packs them, and the guest's first process loads them in this order. The order follows from the
//! dependencies that each module names (`depends=` in its `.modinfo`). In another order the kernel refuses modules,
//! and for example a disk is silently absent.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use crate::regular_file::{read_all, read_bounded};
use crate::{Result, SimError, process};

/// Modules that a guest may need. If a kernel has no such module, the driver is built in or absent.
const WANTED: [&str; 11] = [
    "virtio_pci",
    "virtio_blk",
    "virtio_net",
    "nvme",
    "ahci",
    "ata_piix",
    "sym53c8xx",
    "sd_mod",
    "e1000",
    "8139cp",
    "veth",
];

/// Modules that a guest with a root file system needs, too.
const WANTED_BY_ROOT: [&str; 2] = ["ext4", "overlay"];

/// Whether [`in_order`] returns the modules of [`WANTED_BY_ROOT`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum RootModules {
    Included,
    LeftOut,
}

/// Maximum size of a module, unpacked, bytes.
const MODULE_BYTES_MAX: u64 = 64 << 20;
/// Maximum number of files below a modules directory; a full Debian kernel has 4,300.
const FILES_MAX: usize = 200_000;
/// Maximum depth of directories below it.
const DEPTH_MAX: usize = 16;
/// Maximum number of modules in an image.
const MODULES_MAX: usize = 256;

/// A module of the image.
#[derive(Debug)]
pub(crate) struct Module {
    /// Its name, with `_` instead of `-`.
    pub(crate) name: String,
    /// The ELF object.
    pub(crate) bytes: Vec<u8>,
}

/// Returns the modules of [`WANTED`] below a directory, and those of [`WANTED_BY_ROOT`] if asked for, each after its dependencies.
pub(crate) fn in_order(directory: &Path, root_modules: RootModules) -> Result<Vec<Module>> {
    let mut files = BTreeMap::new();
    let mut count = 0;
    collect(directory, 0, &mut count, &mut files)?;
    let mut modules = Vec::new();
    let by_root: &[&str] = match root_modules {
        RootModules::Included => &WANTED_BY_ROOT,
        RootModules::LeftOut => &[],
    };
    for name in WANTED.iter().chain(by_root) {
        add(name, &files, &mut modules, 0)?;
    }
    Ok(modules)
}

/// Adds a module to `modules` after its dependencies, unless it is there. Ignores a name without a file: that driver
/// is built in or absent.
fn add(
    name: &str,
    files: &BTreeMap<String, PathBuf>,
    modules: &mut Vec<Module>,
    depth: usize,
) -> Result<()> {
    let Some(path) = files.get(name) else { return Ok(()) };
    if modules.iter().any(|module| module.name == name) {
        return Ok(());
    }
    if depth > DEPTH_MAX || modules.len() >= MODULES_MAX {
        let reason = "its dependencies form a circle, or are too many";
        return Err(SimError::data(format!("module {name}"), reason));
    }
    let bytes = unpack(path)?;
    for needed in depends(&bytes) {
        add(&needed, files, modules, depth + 1)?;
    }
    modules.push(Module { name: name.to_owned(), bytes });
    Ok(())
}

/// Returns the names that a module depends on.
fn depends(module: &[u8]) -> Vec<String> {
    const KEY: &[u8] = b"\0depends=";
    let Some(start) = module.windows(KEY.len()).position(|window| window == KEY) else {
        return Vec::new();
    };
    let value = &module[start + KEY.len()..];
    let value = &value[..value.iter().position(|&byte| byte == 0).unwrap_or(0)];
    let value = String::from_utf8_lossy(value).into_owned();
    value.split(',').filter(|name| !name.is_empty()).map(normalized).collect()
}

/// Returns the name under which the kernel knows a module.
fn normalized(name: &str) -> String {
    name.replace('-', "_")
}

/// Collects the module files below a directory, by module name. `count` is the number of entries seen so far.
fn collect(
    directory: &Path,
    depth: usize,
    count: &mut usize,
    files: &mut BTreeMap<String, PathBuf>,
) -> Result<()> {
    for entry in fs::read_dir(directory).map_err(SimError::file(directory))?.flatten() {
        *count += 1;
        if depth > DEPTH_MAX || *count > FILES_MAX {
            let reason = "too many files for a directory of modules";
            return Err(SimError::data(directory.display().to_string(), reason));
        }
        // Symbolic links (`build`, `source`) are not followed.
        let Ok(kind) = entry.file_type() else { continue };
        let name = entry.file_name().to_string_lossy().into_owned();
        if kind.is_dir() {
            collect(&entry.path(), depth + 1, count, files)?;
        } else if kind.is_file()
            && let Some((name, "" | ".xz" | ".gz" | ".zst")) = name.rsplit_once(".ko")
        {
            files.insert(normalized(name), entry.path());
        }
    }
    Ok(())
}

/// Reads the ELF object of a module.
fn unpack(path: &Path) -> Result<Vec<u8>> {
    let extension = path.extension().and_then(|extension| extension.to_str()).unwrap_or_default();
    let bytes = match extension {
        "gz" => {
            let packed = read_bounded(path, MODULE_BYTES_MAX)?;
            let unpacked = flate2::read::GzDecoder::new(&packed[..]);
            read_all(unpacked, MODULE_BYTES_MAX).map_err(SimError::file(path))?
        }
        "xz" => process::output(Command::new("xz").args(["--decompress", "--stdout"]).arg(path))?,
        "zst" => process::output(Command::new("zstd").args(["-d", "-q", "--stdout"]).arg(path))?,
        _ => read_bounded(path, MODULE_BYTES_MAX)?,
    };
    if bytes.len() as u64 > MODULE_BYTES_MAX {
        let reason = format!("over {MODULE_BYTES_MAX} bytes");
        return Err(SimError::data(path.display().to_string(), reason));
    }
    if !bytes.starts_with(b"\x7fELF") {
        return Err(SimError::data(path.display().to_string(), "is not a kernel module"));
    }
    Ok(bytes)
}

#[cfg(test)]
mod tests {
    use std::io::{self, Read, Write};

    use super::*;

    fn write(directory: &Path, name: &str, depends: &str) {
        let module = format!("\x7fELF...\0license=GPL\0depends={depends}\0name=x\0");
        fs::write(directory.join(name), module).unwrap();
    }

    fn names(directory: &Path) -> Vec<String> {
        in_order(directory, RootModules::LeftOut)
            .unwrap()
            .into_iter()
            .map(|module| module.name)
            .collect()
    }

    #[test]
    fn a_module_comes_after_its_dependencies() {
        let scratch = tempfile::tempdir().unwrap();
        let deep = scratch.path().join("6.1/kernel/drivers");
        fs::create_dir_all(&deep).unwrap();
        write(&deep, "virtio.ko", "");
        write(&deep, "virtio-ring.ko", "virtio");
        write(&deep, "virtio_blk.ko", "virtio,virtio-ring,built_in");
        write(&deep, "virtio_pci.ko", "virtio_ring,virtio");
        write(&deep, "unwanted.ko", "");
        assert_eq!(names(scratch.path()), ["virtio", "virtio_ring", "virtio_pci", "virtio_blk"]);
    }

    #[test]
    fn packed_modules_and_files_that_are_none() {
        let scratch = tempfile::tempdir().unwrap();
        write(scratch.path(), "nvme.ko", "");
        let packed = Command::new("gzip").arg(scratch.path().join("nvme.ko")).status();
        assert!(packed.unwrap().success());
        assert_eq!(names(scratch.path()), ["nvme"]);
        fs::write(scratch.path().join("ahci.ko"), "no ELF").unwrap();
        assert!(in_order(scratch.path(), RootModules::LeftOut).is_err());
    }

    #[test]
    fn a_packed_module_that_is_too_large_is_refused() {
        let scratch = tempfile::tempdir().unwrap();
        let path = scratch.path().join("nvme.ko.gz");
        let file = fs::File::create(&path).unwrap();
        let mut packed = flate2::write::GzEncoder::new(file, flate2::Compression::fast());
        packed.write_all(b"\x7fELF").unwrap();
        let zeros = io::repeat(0).take(MODULE_BYTES_MAX - 3);
        io::copy(&mut { zeros }, &mut packed).unwrap();
        packed.finish().unwrap();
        let error = in_order(scratch.path(), RootModules::LeftOut).unwrap_err().to_string();
        assert!(error.contains("nvme.ko.gz: over 67108864 bytes"), "{error}");
    }

    #[test]
    fn a_circle_ends() {
        let scratch = tempfile::tempdir().unwrap();
        write(scratch.path(), "nvme.ko", "ring");
        write(scratch.path(), "ring.ko", "nvme");
        assert!(in_order(scratch.path(), RootModules::LeftOut).is_err());
    }
}
