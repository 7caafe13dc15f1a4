//! Installs missing programs and kernels from Debian's packages into the cache. `irqlab sim setup` calls [`setup`];
//! [`crate::kernel::debian`] downloads a kernel when a machine first needs it.

pub(crate) mod apt;
mod mirror;

use std::fmt;
use std::fs;
use std::path::{Path, PathBuf};

use apt::{Apt, Package};
use serde::{Deserialize, Serialize};

use crate::cache::remove_directory;
use crate::qemu::{self, Qemu};
use crate::regular_file::first_with_prefix;
use crate::regular_file::read_bounded;
use crate::{Cache, Progress, Result, SimError, hash};

/// The release of the guest's kernel and tools.
const GUEST_RELEASE: &str = "bookworm";

/// Directory of the guest's tools in the cache.
const TOOLS: &str = "guest-tools-1";

const MANIFEST: &str = "irqlab.json";
const MANIFEST_BYTES_MAX: u64 = 64 * 1024;

/// A Debian kernel.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Flavour {
    /// For virtual machines: boots fast, and has few drivers.
    Cloud,
    /// With all drivers: e1000, AHCI, SCSI.
    Full,
    /// With all drivers, and PREEMPT_RT.
    Rt,
}

impl fmt::Display for Flavour {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.write_str(match self {
            Flavour::Cloud => "cloud",
            Flavour::Full => "full",
            Flavour::Rt => "rt",
        })
    }
}

/// Returns the package that depends on the current kernel of a flavour.
fn meta_package(flavour: Flavour) -> &'static str {
    match flavour {
        Flavour::Cloud => "linux-image-cloud-amd64",
        Flavour::Full => "linux-image-amd64",
        Flavour::Rt => "linux-image-rt-amd64",
    }
}

/// The description of an installed package, in its directory.
#[derive(Debug, Serialize, Deserialize)]
struct Manifest {
    package: String,
    version: String,
    /// SHA-256 of a kernel's image, as it was unpacked; absent for other packages.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    image_sha256: Option<String>,
}

/// Returns the path of the guest's busybox, if it was downloaded.
pub(crate) fn busybox(cache: &Cache) -> Option<PathBuf> {
    let path = cache.path(TOOLS).join("bin/busybox");
    path.is_file().then_some(path)
}

/// Returns the directory of the latest downloaded Debian kernel of a flavour.
pub(crate) fn kernel_root(cache: &Cache, flavour: Flavour) -> Option<PathBuf> {
    let name = fs::read_to_string(cache.path(&pointer(flavour))).ok()?;
    let name = name.trim();
    let is_name = name.starts_with("kernel-") && !name.contains('/');
    Some(cache.path(name)).filter(|path| is_name && path.is_dir())
}

/// Returns the name of the file that holds the cache entry of the latest kernel.
fn pointer(flavour: Flavour) -> String {
    format!("kernel-{flavour}.latest")
}

/// Returns whether the guest's kernel and tools are installed.
#[must_use]
pub fn has_guest_files(cache: &Cache, flavour: Flavour) -> bool {
    busybox(cache).is_some() && kernel_root(cache, flavour).is_some()
}

/// Installs a private QEMU unless a supported QEMU is found, and downloads a kernel and the guest's tools
/// unless they are installed. `again` installs everything again, to update it.
///
/// Fails when Debian's packages cannot be downloaded or unpacked; the error names the missing part
/// and the remedy.
pub fn setup(cache: &Cache, flavour: Flavour, again: bool, progress: Progress) -> Result<Qemu> {
    let has_qemu = !again && qemu::find(cache).is_ok();
    if !(has_qemu && has_guest_files(cache, flavour)) || again {
        let _lock = cache.lock("setup", progress)?;
        // Another process may have installed it in the meantime.
        let has_qemu = !again && qemu::find(cache).is_ok();
        if !(has_qemu && !again && has_guest_files(cache, flavour)) {
            install_missing(cache, flavour, !has_qemu, again, progress)?;
        }
    }
    qemu::find(cache)
}

/// Downloads a kernel and the guest's tools unless they are installed. Returns the kernel's directory.
pub(crate) fn guest_files(cache: &Cache, flavour: Flavour, progress: Progress) -> Result<PathBuf> {
    if !has_guest_files(cache, flavour) {
        let _lock = cache.lock("setup", progress)?;
        if !has_guest_files(cache, flavour) {
            install_missing(cache, flavour, false, false, progress)?;
        }
    }
    kernel_root(cache, flavour)
        .ok_or_else(|| SimError::data(format!("kernel {flavour}"), "vanished from the cache"))
}

/// Installs what is missing, or everything if `again`. The caller holds the lock `setup`: it protects the private
/// state of apt, which is removed afterwards.
fn install_missing(
    cache: &Cache,
    flavour: Flavour,
    with_qemu: bool,
    again: bool,
    progress: Progress,
) -> Result<()> {
    let state = cache.path("apt.aside");
    let result = remove_directory(&state).and_then(|()| {
        let apt = Apt::new(&state, progress)?;
        if with_qemu {
            install_qemu(cache, &apt, again, progress)?;
        }
        if again || kernel_root(cache, flavour).is_none() {
            install_kernel(cache, &apt, flavour, progress)?;
        }
        if again || busybox(cache).is_none() {
            let package = apt.package("busybox-static", GUEST_RELEASE)?;
            progress(&format!("fetching {} {}", package.name, package.version));
            cache.replace_directory(TOOLS, progress, |staging| {
                apt.unpack(&package, staging)?;
                write_package_manifest(staging, &package)
            })?;
        }
        Ok(())
    });
    result.and(remove_directory(&state))
}

/// Installs the private QEMU, unless it has the current version already.
fn install_qemu(cache: &Cache, apt: &Apt, again: bool, progress: Progress) -> Result<()> {
    let package = apt.package(qemu::PACKAGES[0], qemu::RELEASE)?;
    let qemu_root = qemu::private_root(cache);
    if !again && manifest(&qemu_root).is_some_and(|manifest| manifest.version == package.version) {
        return Ok(());
    }
    progress(&format!("fetching QEMU {} (40 MB, 190 MB on disk)", package.version));
    let name = qemu_root.file_name().unwrap_or_default().to_string_lossy().into_owned();
    cache.replace_directory(&name, progress, |staging| {
        apt.install(qemu::RELEASE, &qemu::PACKAGES, staging)?;
        write_package_manifest(staging, &package)
    })?;
    Ok(())
}

/// Downloads the current kernel of a flavour, and makes it the latest one.
fn install_kernel(cache: &Cache, apt: &Apt, flavour: Flavour, progress: Progress) -> Result<()> {
    let meta = apt.package(meta_package(flavour), GUEST_RELEASE)?;
    let name = meta.dependency("linux-image-").ok_or_else(|| {
        SimError::data(format!("package {}", meta.name), "depends on no kernel image")
    })?;
    let package = apt.package(name, GUEST_RELEASE)?;
    let directory = format!("kernel-{}_{}", package.name, package.version);
    let directory: String =
        directory.chars().map(|sign| if sign == '/' { '_' } else { sign }).collect();
    progress(&format!("fetching {} {}", package.name, package.version));
    cache.directory(&directory, progress, |staging| {
        apt.unpack(&package, staging)?;
        write_package_manifest(staging, &package)?;
        add_image_hash(staging)
    })?;
    cache.file(&pointer(flavour), directory.as_bytes()).map(drop)
}

/// Describes the package that was unpacked into a directory.
fn write_package_manifest(directory: &Path, package: &Package) -> Result<()> {
    let (package, version) = (package.name.clone(), package.version.clone());
    write_manifest(directory, &Manifest { package, version, image_sha256: None })
}

/// Adds the hash of the image of an unpacked kernel to its description.
fn add_image_hash(directory: &Path) -> Result<()> {
    let Some(mut manifest) = manifest(directory) else { return Ok(()) };
    let image = first_with_prefix(&directory.join("boot"), "vmlinuz-")?;
    manifest.image_sha256 = Some(hash::of_file(&image)?);
    write_manifest(directory, &manifest)
}

/// Returns the SHA-256 that the image of an installed kernel had when it was unpacked; `None` if unknown.
pub(crate) fn image_sha256(root: &Path) -> Option<String> {
    manifest(root)?.image_sha256
}

/// Replaces a kernel that is damaged in the cache.
pub(crate) fn replace_kernel(
    cache: &Cache,
    flavour: Flavour,
    root: &Path,
    progress: Progress,
) -> Result<()> {
    let _lock = cache.lock("setup", progress)?;
    remove_directory(root)?;
    install_missing(cache, flavour, false, false, progress)
}

fn write_manifest(directory: &Path, manifest: &Manifest) -> Result<()> {
    let path = directory.join(MANIFEST);
    let text = serde_json::to_string_pretty(manifest)
        .map_err(|error| SimError::data(MANIFEST, error.to_string()))?;
    fs::write(&path, text + "\n").map_err(SimError::file(&path))
}

/// Reads the description of the package in a directory; `None` if there is none, or it is damaged.
fn manifest(directory: &Path) -> Option<Manifest> {
    serde_json::from_slice(&read_bounded(&directory.join(MANIFEST), MANIFEST_BYTES_MAX).ok()?).ok()
}
