//! The root file system of commands: a read-only disk with a writable overlay in memory. Without a disk, commands run
//! in the initramfs. `main` mounts it before the request; `work` and `shell` enter it for each command.

use std::os::unix::fs::symlink;
use std::path::Path;
use std::process::Command;

use crate::program::{self, BUSYBOX, ROOT_SHELL};
use crate::sys::{self, Flag, Mount};

/// Mount point of the disk.
const LOWER: &str = "/run/irqlab/lower";
/// Mount point of the memory that takes changes.
const UPPER: &str = "/run/irqlab/upper";
/// Mount point of the root file system. This directory is the root directory of commands.
const MOUNT_POINT: &str = "/run/irqlab/root";
/// Search path of programs in the root file system.
const PATH: &str = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin:/irqlab";

/// The root file system of commands.
#[derive(Debug)]
pub struct Root {
    is_mounted: bool,
}

impl Root {
    /// Mounts the root file system of `disk`. Without a disk, commands run in the initramfs.
    pub fn mount(disk: Option<&str>) -> Result<Root, String> {
        let Some(disk) = disk else { return Ok(Root { is_mounted: false }) };
        let (upper, work) = (format!("{UPPER}/changes"), format!("{UPPER}/work"));
        let layers = format!("lowerdir={LOWER},upperdir={upper},workdir={work}");
        let path_in_root = |path: &str| format!("{MOUNT_POINT}{path}");
        mount(disk, "ext4", LOWER, Flag::ReadOnly, "")?;
        // The limit gives an error to a command that writes more than the memory can hold.
        mount("upper", "tmpfs", UPPER, Flag::NoAtime, "mode=0755,size=90%")?;
        for directory in [&upper, &work] {
            std::fs::create_dir(directory).map_err(|error| format!("{directory}: {error}"))?;
        }
        mount("root", "overlay", MOUNT_POINT, Flag::NoAtime, &layers)?;
        // Programs expect these in /dev.
        mount("devpts", "devpts", "/dev/pts", Flag::NoAtime, "mode=0620,ptmxmode=0666")?;
        mount("shm", "tmpfs", "/dev/shm", Flag::NoAtime, "mode=1777")?;
        let links = [
            ("/proc/self/fd", "/dev/fd"),
            ("/proc/self/fd/0", "/dev/stdin"),
            ("/proc/self/fd/1", "/dev/stdout"),
            ("/proc/self/fd/2", "/dev/stderr"),
        ];
        for (target, link) in links {
            symlink(target, link).map_err(|error| format!("{link}: {error}"))?;
        }
        for directory in ["/proc", "/sys", "/dev", "/irqlab"] {
            mount(directory, "", &path_in_root(directory), Flag::Bind, "")?;
        }
        mount("tmp", "tmpfs", &path_in_root("/tmp"), Flag::NoAtime, "mode=1777")?;
        mount("run", "tmpfs", &path_in_root("/run"), Flag::NoAtime, "mode=0755")?;
        // The shell may be an absolute symbolic link, which is valid only inside the root. So this does not follow the
        // link.
        if Path::new(&path_in_root(ROOT_SHELL)).symlink_metadata().is_err() {
            return Err(format!("the root file system on {disk} has no {ROOT_SHELL}"));
        }
        bring_up_loopback();
        Ok(Root { is_mounted: true })
    }

    pub fn is_mounted(&self) -> bool {
        self.is_mounted
    }

    /// Makes a program run in the root file system.
    pub fn enter(&self, process: &mut Command) {
        process.env("PATH", PATH).env("HOME", "/root");
        // Fails only for a path with a zero byte, which this path does not have.
        let _ = sys::enter_root(process, MOUNT_POINT);
    }
}

/// Like [`sys::mount_as`], with an error that names source and mount point.
fn mount(
    source: &str,
    kind: &str,
    mount_point: &str,
    flag: Flag,
    options: &str,
) -> Result<(), String> {
    sys::mount_as(Mount { source, kind, mount_point, flag, options })
        .map_err(|error| format!("cannot mount {source} on {mount_point}: {error}"))
}

/// Brings up the loopback interface, over which programs talk to each other. Without busybox the interface stays
/// down, and only programs that need it fail.
fn bring_up_loopback() {
    if program::has_busybox() {
        let mut process = Command::new(BUSYBOX);
        process.args(["ifconfig", "lo", "up"]);
        program::status_of(process);
    }
}
