//! Settings of interfaces that are files in the sysfs of their network namespace.

use std::io;

use rustix::thread::{UnshareFlags, unshare_unsafe};

/// The sysfs of the calling thread's network namespace. Only this thread sees it, and it
/// vanishes with the thread.
pub struct PrivateSysfs(());

impl PrivateSysfs {
    /// Mounts the sysfs at /sys, for this thread alone.
    ///
    /// Fails without CAP_SYS_ADMIN over the namespace.
    pub fn mount() -> io::Result<PrivateSysfs> {
        // SAFETY: only this thread's view of mounts changes; no descriptor is unshared.
        unsafe { unshare_unsafe(UnshareFlags::NEWNS) }?;
        let mount = |source: &std::ffi::CStr, at: &std::ffi::CStr, flags: libc::c_ulong| {
            // SAFETY: terminated strings that outlive the call; no data is given.
            let result = unsafe {
                libc::mount(source.as_ptr(), at.as_ptr(), source.as_ptr(), flags, std::ptr::null())
            };
            if result < 0 { Err(io::Error::last_os_error()) } else { Ok(()) }
        };
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

/// Writes one CPU in the kernel's form of masks: words of 32 bits in
/// hexadecimal, the highest first.
pub fn mask(cpu: u32) -> String {
    let mut parts = vec![format!("{:x}", 1_u32 << (cpu % 32))];
    parts.extend((0..cpu / 32).map(|_| "00000000".to_owned()));
    parts.join(",")
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
