//! A separate tracefs instance: a ring buffer with its own events, clock and CPUs, which does not affect the tracing of
//! others.
//!
//! An instance outlives the process that created it. Therefore its name contains the PID, and the process holds a lock
//! on its directory. [`remove_leftovers`] removes an instance if its process has ended and its lock is free. The lock
//! is necessary because a PID has no meaning in another PID namespace.
//!
//! If tracefs is not mounted, it is mounted without a mount point: the file system exists as long as a descriptor.

use std::ffi::CStr;
use std::fs::{self, File};
use std::io;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use lab::experiment::BenchError;

use super::failed;

const TRACEFS_MAGIC: u64 = 0x7472_6163;
const USUAL_PLACES: [&str; 2] = ["/sys/kernel/tracing", "/sys/kernel/debug/tracing"];
const OUR_PREFIX: &str = "irqlab-";
/// Number of attempts to remove an instance that somebody is reading.
const REMOVAL_TRIES: u32 = 20;

/// Number of the next instance of this process.
static NEXT_NUMBER: AtomicU32 = AtomicU32::new(0);

/// The tracing file system.
#[derive(Debug)]
pub struct Tracefs {
    /// The file system's root. Without a mount point it is `/proc/self/fd/N`, which is valid only in this process while
    /// `mount` is open.
    path: PathBuf,
    /// The descriptor of a file system without a mount point.
    mount: Option<Arc<OwnedFd>>,
}

impl Tracefs {
    /// Finds the mounted file system, or mounts it without a mount point.
    ///
    /// Fails with [`BenchError::Unavailable`] if the kernel has no tracefs or refuses it.
    pub fn find() -> Result<Self, BenchError> {
        let is_tracefs = |path: &&str| {
            rustix::fs::statfs(*path).is_ok_and(|found| found.f_type as u64 == TRACEFS_MAGIC)
        };
        if let Some(path) = USUAL_PLACES.into_iter().find(is_tracefs) {
            return Ok(Tracefs { path: PathBuf::from(path), mount: None });
        }
        Tracefs::mount_detached()
    }

    /// Mounts tracefs without a mount point.
    fn mount_detached() -> Result<Self, BenchError> {
        let mount = mount_detached(c"tracefs").map_err(|error| BenchError::Unavailable {
            reason: format!("the kernel's trace events are unavailable: {error}"),
            remedy: Some("mount -t tracefs tracefs /sys/kernel/tracing".to_owned()),
        })?;
        let path = PathBuf::from(format!("/proc/self/fd/{}", mount.as_raw_fd()));
        Ok(Tracefs { path, mount: Some(Arc::new(mount)) })
    }

    fn instances(&self) -> PathBuf {
        self.path.join("instances")
    }
}

/// Mounts a file system of the type `kind` without a mount point (fsopen(2), fsconfig(2), fsmount(2)). The mount
/// vanishes with the returned descriptor.
fn mount_detached(kind: &CStr) -> io::Result<OwnedFd> {
    let owned = |result: i64| match i32::try_from(result) {
        // SAFETY: the kernel has just returned this descriptor, and nobody else knows it.
        Ok(fd) if fd >= 0 => Ok(unsafe { OwnedFd::from_raw_fd(fd) }),
        _ => Err(io::Error::last_os_error()),
    };
    // SAFETY: the name is a C string that outlives the call; the flag is FSOPEN_CLOEXEC.
    let context = owned(unsafe { libc::syscall(libc::SYS_fsopen, kind.as_ptr(), 1) })?;
    let fd = context.as_raw_fd();
    let null: *const libc::c_char = std::ptr::null();
    // SAFETY: FSCONFIG_CMD_CREATE (6) takes neither key nor value; the descriptor is open.
    if unsafe { libc::syscall(libc::SYS_fsconfig, fd, 6, null, null, 0) } != 0 {
        return Err(io::Error::last_os_error());
    }
    // SAFETY: no pointers; the descriptor is open and the flag is FSMOUNT_CLOEXEC.
    owned(unsafe { libc::syscall(libc::SYS_fsmount, fd, 1, 0) })
}

/// Removes the instances of processes that have ended. Returns a message for each.
#[must_use]
pub fn remove_leftovers(tracefs: &Tracefs) -> Vec<String> {
    let Ok(entries) = fs::read_dir(tracefs.instances()) else { return Vec::new() };
    let names = entries.flatten().filter_map(|entry| entry.file_name().into_string().ok());
    let mut messages = Vec::new();
    for name in names {
        let Some(pid) = pid_of_name(&name) else { continue };
        let path = tracefs.instances().join(&name);
        let is_free = File::open(&path).is_ok_and(|directory| directory.try_lock().is_ok());
        if is_free && !Path::new(&format!("/proc/{pid}")).exists() {
            messages.push(match remove_instance(&path) {
                Ok(()) => format!("removed the trace instance {name}"),
                Err(error) => format!("the trace instance {name} remains: {error}"),
            });
        }
    }
    messages
}

/// The PID in an instance's name; `None` if the instance is not irqlab's.
fn pid_of_name(name: &str) -> Option<u32> {
    name.strip_prefix(OUR_PREFIX)?.split_once('-')?.0.parse().ok()
}

/// Removes an instance. Tries again while somebody reads it.
fn remove_instance(path: &Path) -> io::Result<()> {
    let mut tries = 1;
    loop {
        match fs::remove_dir(path) {
            Err(error) if error.kind() == io::ErrorKind::ResourceBusy && tries < REMOVAL_TRIES => {
                tries += 1;
                std::thread::sleep(Duration::from_millis(10));
            }
            result => return result,
        }
    }
}

/// A trace instance. Dropping this removes it.
#[derive(Debug)]
pub struct Instance {
    path: PathBuf,
    _lock: Option<File>,
    /// Keeps a file system without a mount point mounted.
    _mount: Option<Arc<OwnedFd>>,
}

impl Instance {
    /// Creates an instance without events, with the clock that BPF programs read and
    /// `kib_per_cpu` KiB of buffer.
    ///
    /// Fails if the kernel refuses.
    pub fn create(tracefs: &Tracefs, kib_per_cpu: u32) -> Result<Self, BenchError> {
        let number = NEXT_NUMBER.fetch_add(1, Ordering::Relaxed);
        let name = format!("{OUR_PREFIX}{}-{number}", std::process::id());
        let path = tracefs.instances().join(&name);
        fs::create_dir(&path)
            .map_err(|error| failed(&format!("making the trace instance {name}"), error))?;
        let lock = File::open(&path).ok().filter(|directory| directory.try_lock().is_ok());
        let instance = Instance { path, _lock: lock, _mount: tracefs.mount.clone() };
        instance.write("buffer_size_kb", &kib_per_cpu.to_string())?;
        instance.write("trace_clock", "mono")?;
        Ok(instance)
    }

    /// Restricts the recording to `cpu`.
    ///
    /// Fails if the kernel refuses.
    pub fn only_cpu(&self, cpu: u32) -> Result<(), BenchError> {
        let mut mask = vec![0u32; cpu as usize / 32 + 1];
        mask[cpu as usize / 32] = 1 << (cpu % 32);
        let parts: Vec<String> = mask.iter().rev().map(|word| format!("{word:08x}")).collect();
        self.write("tracing_cpumask", &parts.join(","))
    }

    /// Switches an event such as `irq/irq_handler_entry` on or off.
    ///
    /// Fails if the kernel has no such event or refuses.
    pub fn set_event(&self, event: &str, is_enabled: bool) -> Result<(), BenchError> {
        self.write(&format!("events/{event}/enable"), if is_enabled { "1" } else { "0" })
    }

    /// Writes one of the instance's files.
    ///
    /// Fails if the kernel refuses.
    pub fn write(&self, file: &str, text: &str) -> Result<(), BenchError> {
        fs::write(self.path.join(file), text)
            .map_err(|error| failed(&format!("writing {text} to trace file {file}"), error))
    }

    /// Reads one of the instance's files.
    ///
    /// Fails if there is no such file, or the kernel refuses.
    pub fn read(&self, file: &str) -> Result<String, BenchError> {
        fs::read_to_string(self.path.join(file))
            .map_err(|error| failed(&format!("reading trace file {file}"), error))
    }

    /// The path of one of the instance's files.
    #[must_use]
    pub fn path(&self, file: &str) -> PathBuf {
        self.path.join(file)
    }
}

impl Drop for Instance {
    fn drop(&mut self) {
        // If this fails, the next start removes the instance.
        let _ = remove_instance(&self.path);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// An instance's files can be read, and it is removed, also if its file
    /// system is dropped first.
    #[test]
    fn an_instance_keeps_its_file_system() {
        let made = Tracefs::mount_detached().and_then(|tracefs| Instance::create(&tracefs, 64));
        let instance = match made {
            Ok(instance) => instance,
            Err(error) => return needs::not_run(needs::Need::Tracefs, error),
        };
        assert!(instance.read("trace_clock").unwrap().contains("[mono]"));
        let name = instance.path.file_name().unwrap().to_owned();
        drop(instance);
        let tracefs = Tracefs::mount_detached().unwrap();
        assert!(!tracefs.instances().join(name).exists());
    }

    #[test]
    fn names_of_ours_and_of_others() {
        assert_eq!(pid_of_name("irqlab-12-0"), Some(12));
        for other in ["irqlab-12", "irqlab-x-1", "other-12-0", "irqlab--1", ""] {
            assert_eq!(pid_of_name(other), None, "{other}");
        }
    }
}
