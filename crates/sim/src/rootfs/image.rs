//! Makes the disk image of a root file system from the merged archive: ext4, by a private `mke2fs`.
//!
//! The host's `mke2fs` is not used, because the bytes of an image depend on its version, and the version of
//! Debian 12 reads no archive. An image from a directory would have the order of the host's file system, and the
//! host's times.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use super::EPOCH_S;
use super::archive::Extent;
use crate::process::output;
use crate::setup::apt::Apt;
use crate::{Cache, Progress, Result, SimError};

/// The packages of `mke2fs` and their release.
const PACKAGES: [&str; 2] = ["e2fsprogs", "libarchive13t64"];
const RELEASE: &str = "trixie";
/// Directory of the unpacked packages in the cache.
const DIRECTORY: &str = "e2fsprogs-root-1";
/// File in this directory with the version of `mke2fs`.
const VERSION: &str = "irqlab-version";

const BLOCK_BYTES: u64 = 4096;
/// Space for ext4's own structures, in addition to files and inodes: this part of their blocks, and some blocks.
const OVERHEAD_PART: u64 = 16;
const OVERHEAD_BLOCKS: u64 = 4096;
/// Inodes in addition to the files: ext4 reserves some.
const INODES_SPARE: u64 = 256;
const INODE_BYTES: u64 = 256;
/// Fixed identities, which `mke2fs` would choose at random.
const UUID: &str = "69727131-6162-4000-8000-726f6f746673";
const HASH_SEED: &str = "69727131-6162-4000-8000-686173680000";
/// No journal, because the image is mounted read-only. No check sums, so a kernel with ext4 as a module needs no
/// other module.
const FEATURES: &str = "^has_journal,^resize_inode,^metadata_csum,^orphan_file";

/// The unpacked packages that make images.
#[derive(Debug)]
pub(super) struct Tools {
    root: PathBuf,
    version: String,
}

impl Tools {
    /// Returns the version of the program, on which the bytes of an image depend.
    pub(super) fn version(&self) -> &str {
        &self.version
    }
}

/// Returns the tools; downloads them unless the cache has them.
pub(super) fn tools(cache: &Cache, progress: Progress) -> Result<Tools> {
    let root = cache.directory(DIRECTORY, progress, |staging| {
        let state = staging.join("apt");
        let apt = Apt::new(&state, progress)?;
        let package = apt.package(PACKAGES[0], RELEASE)?;
        progress(&format!("fetching {} {} (6 MB)", package.name, package.version));
        apt.install(RELEASE, &PACKAGES, staging)?;
        let version = staging.join(VERSION);
        fs::write(&version, &package.version).map_err(SimError::file(&version))?;
        crate::cache::remove_directory(&state)
    })?;
    let version = root.join(VERSION);
    let version = fs::read_to_string(&version).map_err(SimError::file(&version))?;
    Ok(Tools { root, version })
}

/// Makes an image of an archive, and removes the archive.
pub(super) fn make(tools: &Tools, extent: &Extent, image: &Path) -> Result<()> {
    let inodes = extent.entries + INODES_SPARE;
    let blocks = extent.content_blocks(BLOCK_BYTES) + inodes * INODE_BYTES / BLOCK_BYTES;
    let blocks = blocks + blocks / OVERHEAD_PART + OVERHEAD_BLOCKS;
    let libraries = tools.root.join("usr/lib/x86_64-linux-gnu");
    // The private dynamic loader runs mke2fs, which needs its own libc.
    let mut command = Command::new(tools.root.join("usr/lib64/ld-linux-x86-64.so.2"));
    command.arg("--library-path").arg(&libraries).arg(tools.root.join("usr/sbin/mke2fs"));
    // mke2fs uses its built-in defaults, not the host's configuration.
    command.env("MKE2FS_CONFIG", "/dev/null").env("MKE2FS_DEVICE_SECTSIZE", "512");
    for clock in ["E2FSPROGS_FAKE_TIME", "SOURCE_DATE_EPOCH"] {
        command.env(clock, EPOCH_S.to_string());
    }
    let features = format!(
        "none,filetype,extent,dir_index,sparse_super,large_file,huge_file,dir_nlink,extra_isize,64bit,flex_bg,{FEATURES}"
    );
    let fixed =
        format!("hash_seed={HASH_SEED},lazy_itable_init=0,root_owner=0:0,root_perms=755,nodiscard");
    command.args(["-q", "-F", "-t", "ext4", "-m", "0", "-O", &features, "-E", &fixed]);
    command.args(["-b", &BLOCK_BYTES.to_string(), "-I", &INODE_BYTES.to_string()]);
    command.args(["-N", &inodes.to_string(), "-U", UUID, "-L", "irqlab"]);
    command.arg("-d").arg(&extent.archive).arg(image).arg(blocks.to_string());
    output(&mut command)?;
    fs::remove_file(&extent.archive).map_err(SimError::file(&extent.archive))
}
