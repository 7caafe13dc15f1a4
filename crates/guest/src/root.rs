//! The root file system of commands: a disk, mounted read-only, and a writable overlay in memory.

use std::os::unix::fs::symlink;
use std::path::Path;
use std::process::Command;

use crate::program::{self, BUSYBOX, ROOT_SHELL};
use crate::sys::{self, Flag, Mount};

const LOWER: &str = "/run/irqlab/lower";
const UPPER: &str = "/run/irqlab/upper";
/// Where the root file system is, before a command makes it its root.
const PLACE: &str = "/run/irqlab/root";
/// Where its programs are.
const PATH: &str = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin:/irqlab";

/// The root file system of commands.
#[derive(Debug)]
pub struct Root {
    is_mounted: bool,
}

impl Root {
    /// Mounts the root file system of a disk, if there is one.
    pub fn mount(disk: Option<&str>) -> Result<Root, String> {
        let Some(disk) = disk else { return Ok(Root { is_mounted: false }) };
        let (upper, work) = (format!("{UPPER}/changes"), format!("{UPPER}/work"));
        let layers = format!("lowerdir={LOWER},upperdir={upper},workdir={work}");
        let at = |place: &str| format!("{PLACE}{place}");
        mount(disk, "ext4", LOWER, Flag::ReadOnly, "")?;
        // The limit is the machine's memory. A command that writes more gets an error.
        mount("upper", "tmpfs", UPPER, Flag::NoAtime, "mode=0755,size=90%")?;
        for directory in [&upper, &work] {
            std::fs::create_dir(directory).map_err(|error| format!("{directory}: {error}"))?;
        }
        mount("root", "overlay", PLACE, Flag::NoAtime, &layers)?;
        // Programs expect these in /dev.
        mount("devpts", "devpts", "/dev/pts", Flag::NoAtime, "mode=0620,ptmxmode=0666")?;
        mount("shm", "tmpfs", "/dev/shm", Flag::NoAtime, "mode=1777")?;
        let links = [("/proc/self/fd", "/dev/fd"), ("/proc/self/fd/0", "/dev/stdin")];
        let more = [("/proc/self/fd/1", "/dev/stdout"), ("/proc/self/fd/2", "/dev/stderr")];
        for (target, link) in links.into_iter().chain(more) {
            symlink(target, link).map_err(|error| format!("{link}: {error}"))?;
        }
        for place in ["/proc", "/sys", "/dev", "/irqlab"] {
            mount(place, "", &at(place), Flag::Bind, "")?;
        }
        mount("tmp", "tmpfs", &at("/tmp"), Flag::NoAtime, "mode=1777")?;
        mount("run", "tmpfs", &at("/run"), Flag::NoAtime, "mode=0755")?;
        // Not followed: an absolute link is one inside.
        if Path::new(&at(ROOT_SHELL)).symlink_metadata().is_err() {
            return Err(format!("the root file system on {disk} has no {ROOT_SHELL}"));
        }
        bring_up_loopback();
        Ok(Root { is_mounted: true })
    }

    pub fn is_mounted(&self) -> bool {
        self.is_mounted
    }

    /// Has a program run in it.
    pub fn enter(&self, process: &mut Command) {
        process.env("PATH", PATH).env("HOME", "/root");
        // The path has no NUL, which alone could fail.
        let _ = sys::enter_root(process, PLACE);
    }
}

fn mount(source: &str, kind: &str, place: &str, flag: Flag, options: &str) -> Result<(), String> {
    sys::mount_as(Mount { source, kind, place, flag, options })
        .map_err(|error| format!("cannot mount {source} on {place}: {error}"))
}

/// Programs talk to themselves over the loopback interface.
fn bring_up_loopback() {
    if program::has_busybox() {
        let mut process = Command::new(BUSYBOX);
        process.args(["ifconfig", "lo", "up"]);
        program::status_of(process);
    }
}
