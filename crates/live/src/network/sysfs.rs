//! [`PrivateSysfs`]: the sysfs of a thread's new network namespace, whose files are settings of the interfaces there.
//! Stimuli and `signal` use it for the ends of a [`Pair`](super::Pair).

use std::io;

use rustix::thread::{UnshareFlags, unshare_unsafe};

/// The sysfs of the calling thread's network namespace, mounted at /sys. Only this thread sees the mount, which
/// vanishes with the thread.
pub struct PrivateSysfs(());

impl PrivateSysfs {
    /// Mounts the sysfs at /sys, for this thread alone.
    ///
    /// Fails without CAP_SYS_ADMIN over the namespace.
    pub fn mount() -> io::Result<PrivateSysfs> {
        // A sysfs shows the network namespace of the thread that mounted it, so this thread mounts its own.
        // SAFETY: only this thread's view of mounts changes; no descriptor is unshared.
        unsafe { unshare_unsafe(UnshareFlags::NEWNS) }?;
        // The source's name also is the type of the file system, which matters only for sysfs.
        let mount = |source: &std::ffi::CStr, target: &std::ffi::CStr, flags: libc::c_ulong| {
            // SAFETY: terminated strings that outlive the call; no data is passed.
            let result = unsafe {
                libc::mount(
                    source.as_ptr(),
                    target.as_ptr(),
                    source.as_ptr(),
                    flags,
                    std::ptr::null(),
                )
            };
            if result < 0 { Err(io::Error::last_os_error()) } else { Ok(()) }
        };
        // Private, so that the next mount does not appear in the machine's other mount namespaces.
        mount(c"none", c"/", libc::MS_REC | libc::MS_PRIVATE)?;
        mount(c"sysfs", c"/sys", libc::MS_NOSUID | libc::MS_NODEV | libc::MS_NOEXEC)?;
        Ok(PrivateSysfs(()))
    }

    /// Writes an attribute of an interface, such as `gro_flush_timeout`.
    ///
    /// Fails if the kernel has no such attribute, or refuses the value.
    pub fn set(&self, interface: &str, attribute: &str, value: &str) -> io::Result<()> {
        std::fs::write(format!("/sys/class/net/{interface}/{attribute}"), value)
    }

    /// Steers the packets that arrive at an interface's first queue to `cpu` (receive packet
    /// steering, Documentation/networking/scaling.rst).
    ///
    /// Fails if the kernel lacks CONFIG_RPS.
    pub fn steer(&self, interface: &str, cpu: u32) -> io::Result<()> {
        self.set(interface, "queues/rx-0/rps_cpus", &mask(cpu))
    }
}

/// The mask of one CPU in the kernel's format: words of 32 bits in hexadecimal, the highest first.
pub fn mask(cpu: u32) -> String {
    let mut words = vec![format!("{:x}", 1_u32 << (cpu % 32))];
    words.extend((0..cpu / 32).map(|_| "00000000".to_owned()));
    words.join(",")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn masks_are_as_the_kernel_reads_them() {
        assert_eq!(mask(0), "1");
        assert_eq!(mask(5), "20");
        assert_eq!(mask(32), "1,00000000");
        assert_eq!(mask(70), "40,00000000,00000000");
    }
}
