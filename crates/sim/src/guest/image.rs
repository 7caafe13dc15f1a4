//! Makes the guest's initramfs: the first process, busybox if it was downloaded, and modules.
//!
//! Equal content gives equal bytes: files are in a fixed order, with times of zero and numbered inodes. Keep this: the
//! hash of the bytes is the image's name in the cache, and part of the key of each saved machine.

use std::collections::BTreeSet;
use std::io::Write;
use std::path::{Path, PathBuf};

use cpio::newc::{Builder, trailer};

use crate::guest::kernel::Kernel;
use crate::guest::layer::{self, LayerFile};
use crate::guest::modules::{self, Module, RootModules};
use crate::regular_file::read_bounded;
use crate::{Cache, Result, SimError, setup};

/// The guest's first process from the build script; empty if it could not be built.
const GUEST: &[u8] = include_bytes!(concat!(env!("OUT_DIR"), "/guest"));
/// Why the first process could not be built.
const GUEST_MISSING: &str = include_str!(concat!(env!("OUT_DIR"), "/guest-missing"));

const BUSYBOX_BYTES_MAX: u64 = 64 << 20;

/// Names a directory whose files `init`, `irqlab` and `bare` replace the guest's first process, the guest's
/// irqlab and the program of the bare machine. Two builds of irqlab then measure the same guest, address by
/// address, so that their exact counts can be compared: code of another build is at other addresses and
/// misses other cache lines.
const FROZEN_GUEST_VARIABLE: &str = "IRQLAB_FROZEN_GUEST";
const FROZEN_BYTES_MAX: u64 = 256 << 20;

/// Returns a file of the frozen guest, if the user names a directory that has it.
pub(crate) fn frozen(name: &str) -> Result<Option<Vec<u8>>> {
    let Some(directory) = std::env::var_os(FROZEN_GUEST_VARIABLE) else { return Ok(None) };
    let path = Path::new(&directory).join(name);
    if !path.try_exists().map_err(SimError::file(&path))? {
        return Ok(None);
    }
    read_bounded(&path, FROZEN_BYTES_MAX).map(Some)
}

const DIRECTORY: u32 = 0o040_755;
const PROGRAM: u32 = 0o100_755;
const FILE: u32 = 0o100_644;
const CHARACTER_DEVICE: u32 = 0o020_600;

/// Optional content of an image.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Tools {
    /// Nothing.
    #[default]
    None,
    /// The running irqlab, with its libraries.
    Irqlab,
    /// Files for a root file system: its modules, and `/irqlab/mark`.
    Root,
    /// Both. In the root file system, `/irqlab/run` starts irqlab with its own libc.
    RootAndIrqlab,
}

impl Tools {
    /// Adds the files for a root file system.
    #[must_use]
    pub fn with_root(self) -> Tools {
        if self.has_irqlab() { Tools::RootAndIrqlab } else { Tools::Root }
    }

    fn has_irqlab(self) -> bool {
        matches!(self, Tools::Irqlab | Tools::RootAndIrqlab)
    }

    fn has_root(self) -> bool {
        matches!(self, Tools::Root | Tools::RootAndIrqlab)
    }

    fn root_modules(self) -> RootModules {
        if self.has_root() { RootModules::Included } else { RootModules::LeftOut }
    }
}

/// An initramfs.
#[derive(Clone, Debug)]
pub struct Image {
    /// The file, in the cache.
    pub path: PathBuf,
    /// SHA-256 of the file, in hexadecimal.
    pub sha256: String,
    /// Modules, in the guest's order of loading.
    pub modules: Vec<String>,
    /// Whether it contains a shell.
    pub has_busybox: bool,
    /// Bytes of the file.
    pub bytes: u64,
}

/// Makes the image for a kernel; its name in the cache is the hash of its content.
///
/// Fails when modules or the tools cannot be read, or this irqlab was built without a guest
/// program.
pub fn build(cache: &Cache, kernel: &Kernel, tools: Tools) -> Result<Image> {
    if GUEST.is_empty() {
        return Err(SimError::Missing {
            what: format!("this irqlab has no program for the guest: {GUEST_MISSING}"),
            remedy: "build irqlab on x86-64 Linux with a static libc".to_owned(),
        });
    }
    let modules = kernel.modules.as_deref();
    let modules = modules.map(|directory| modules::in_order(directory, tools.root_modules()));
    let modules = modules.transpose()?.unwrap_or_default();
    let busybox = setup::busybox(cache);
    let busybox = busybox.map(|path| read_bounded(&path, BUSYBOX_BYTES_MAX)).transpose()?;
    let mut layer = if tools.has_irqlab() { layer::of_this_program()? } else { Vec::new() };
    if let (Some(program), Some(file)) =
        (frozen("irqlab")?, layer.iter_mut().find(|file| file.path == "irqlab/irqlab"))
    {
        file.bytes = program;
    }
    let init = frozen("init")?;
    let init = init.as_deref().unwrap_or(GUEST);
    if tools.has_root() {
        layer.extend(layer::for_root(&layer));
        layer.push(LayerFile { path: "irqlab/mark".to_owned(), bytes: init.to_vec() });
    }
    let archive = pack(&modules, init, busybox.as_deref(), &layer)
        .map_err(|error| SimError::data("initramfs", error.to_string()))?;
    let (path, sha256) = cache.keyed("image", ".cpio", &archive)?;
    Ok(Image {
        path,
        sha256,
        modules: modules.into_iter().map(|module| module.name).collect(),
        has_busybox: busybox.is_some(),
        bytes: archive.len() as u64,
    })
}

/// Writes the archive. `layer`: files of [`Tools`], after the guest's own files.
fn pack(
    modules: &[Module],
    init: &[u8],
    busybox: Option<&[u8]>,
    layer: &[LayerFile],
) -> std::io::Result<Vec<u8>> {
    let mut archive = Archive { bytes: Vec::new(), inode: 0 };
    for directory in ["bin", "dev", "irqlab", "proc", "root", "run", "sys", "tmp"] {
        archive.add(directory, DIRECTORY, &[], None)?;
    }
    // The kernel opens the console for the first process, before devtmpfs is mounted.
    archive.add("dev/console", CHARACTER_DEVICE, &[], Some((5, 1)))?;
    archive.add("init", PROGRAM, init, None)?;
    if let Some(busybox) = busybox {
        archive.add("bin/busybox", PROGRAM, busybox, None)?;
    }
    let mut load_order = String::new();
    for module in modules {
        archive.add(&format!("irqlab/{}.ko", module.name), FILE, &module.bytes, None)?;
        load_order += &format!("{}.ko\n", module.name);
    }
    archive.add("irqlab/modules", FILE, load_order.as_bytes(), None)?;
    for directory in directories(layer) {
        archive.add(&directory, DIRECTORY, &[], None)?;
    }
    for file in layer {
        archive.add(&file.path, PROGRAM, &file.bytes, None)?;
    }
    trailer(archive.bytes)
}

/// Returns the directories that the files of a layer need in addition to `irqlab`, each before the directories in it.
fn directories(layer: &[LayerFile]) -> BTreeSet<String> {
    let ancestors = layer.iter().flat_map(|file| Path::new(&file.path).ancestors().skip(1));
    let names = ancestors.map(|path| path.to_string_lossy().into_owned());
    names.filter(|name| !name.is_empty() && name != "irqlab").collect()
}

/// A cpio archive that is being written.
struct Archive {
    bytes: Vec<u8>,
    /// Number of the last entry.
    inode: u32,
}

impl Archive {
    /// Adds an entry. `device`: the major and minor number of a device node.
    fn add(
        &mut self,
        name: &str,
        mode: u32,
        content: &[u8],
        device: Option<(u32, u32)>,
    ) -> std::io::Result<()> {
        self.inode += 1;
        let mut entry = Builder::new(name).ino(self.inode).mode(mode).nlink(1).mtime(0);
        if let Some((major, minor)) = device {
            entry = entry.rdev_major(major).rdev_minor(minor);
        }
        let size = u32::try_from(content.len()).map_err(std::io::Error::other)?;
        let mut writer = entry.write(&mut self.bytes, size);
        writer.write_all(content)?;
        writer.finish().map(drop)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_same_content_gives_the_same_bytes() {
        let modules = || vec![Module { name: "virtio".to_owned(), bytes: b"\x7fELF".to_vec() }];
        let first = pack(&modules(), GUEST, Some(b"busybox"), &[]).unwrap();
        assert_eq!(first, pack(&modules(), GUEST, Some(b"busybox"), &[]).unwrap());
        assert_ne!(first, pack(&modules(), GUEST, None, &[]).unwrap());
        assert!(first.starts_with(b"070701") && first.len().is_multiple_of(4));
        let text = String::from_utf8_lossy(&first);
        // From the end: the program inside has such names too.
        let position = |name: &str| text.rfind(name).unwrap_or_else(|| panic!("{name}"));
        assert!(position("dev/console\0") < position("irqlab/virtio.ko\0"));
        assert!(position("irqlab/virtio.ko\0") < position("irqlab/modules\0"));
    }

    #[test]
    fn a_layer_brings_its_directories() {
        let file = |path: &str| LayerFile { path: path.to_owned(), bytes: b"x".to_vec() };
        let layer = [file("irqlab/lib/libc.so.6"), file("lib64/ld.so"), file("irqlab/irqlab")];
        assert_eq!(Vec::from_iter(directories(&layer)), ["irqlab/lib", "lib64"]);
        let packed = pack(&[], GUEST, None, &layer).unwrap();
        let text = String::from_utf8_lossy(&packed);
        let position = |name: &str| text.rfind(name).unwrap_or_else(|| panic!("{name}"));
        assert!(position("lib64\0") < position("lib64/ld.so\0"));
    }

    #[test]
    fn the_guest_has_the_markers_that_the_plugin_looks_for() {
        if GUEST.is_empty() {
            return needs::not_run(needs::Need::Qemu, GUEST_MISSING);
        }
        let marker = simrecord::marker::BYTES;
        let marks = GUEST.windows(marker.len()).filter(|bytes| *bytes == marker).count();
        assert!(marks >= 3, "{marks} markers: one to open, close and end each");
    }
}
