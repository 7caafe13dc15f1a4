//! System calls and instructions that the standard library does not wrap: all `unsafe` of this
//! program.

use std::ffi::CString;
use std::fs::File;
use std::io;
use std::os::fd::AsRawFd;
use std::os::unix::fs::FileExt;
use std::os::unix::process::CommandExt;
use std::process::Command;

const PAGE_BYTES: usize = 4096;
/// /proc/PID/pagemap: bit 63 means "present", bits 0 to 54 are the page frame number.
const PAGE_PRESENT: u64 = 1 << 63;
const PAGE_FRAME: u64 = (1 << 55) - 1;

fn checked(result: libc::c_int) -> io::Result<()> {
    if result < 0 { Err(io::Error::last_os_error()) } else { Ok(()) }
}

/// Mounts a file system that has no device; creates the mount point if needed.
pub fn mount(kind: &str, place: &str) -> io::Result<()> {
    let _ = std::fs::create_dir(place);
    let kind = CString::new(kind)?;
    let place = CString::new(place)?;
    // SAFETY: both strings end in NUL and outlive the call; no data is passed.
    checked(unsafe {
        libc::mount(kind.as_ptr(), place.as_ptr(), kind.as_ptr(), 0, std::ptr::null())
    })
}

/// How a file system is mounted.
#[derive(Clone, Copy)]
pub struct Mount<'a> {
    /// A device, a directory for [`Flag::Bind`], or a name.
    pub source: &'a str,
    /// The type of the file system; empty for [`Flag::Bind`].
    pub kind: &'a str,
    /// The mount point, which is created if needed.
    pub place: &'a str,
    pub flag: Flag,
    /// Options of the file system.
    pub options: &'a str,
}

/// A property of a mount.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum Flag {
    /// Reading does not write times.
    NoAtime,
    /// A file system of this type that nothing can be written to.
    ReadOnly,
    /// The directory `source` and what is mounted below it, at another place.
    Bind,
}

/// Mounts a file system.
pub fn mount_as(mount: Mount<'_>) -> io::Result<()> {
    let flags = match mount.flag {
        Flag::NoAtime => libc::MS_NOATIME,
        Flag::ReadOnly => libc::MS_RDONLY | libc::MS_NOATIME,
        Flag::Bind => libc::MS_BIND | libc::MS_REC,
    };
    std::fs::create_dir_all(mount.place)?;
    let [source, kind, place, options] =
        [mount.source, mount.kind, mount.place, mount.options].map(CString::new);
    let (source, kind, place, options) = (source?, kind?, place?, options?);
    // SAFETY: all strings end in NUL and outlive the call; options of these file systems are text.
    checked(unsafe {
        let options = options.as_ptr().cast();
        libc::mount(source.as_ptr(), place.as_ptr(), kind.as_ptr(), flags, options)
    })
}

/// Has a program run with `root` as its root directory.
pub fn enter_root(command: &mut Command, root: &str) -> io::Result<()> {
    let root = CString::new(root)?;
    // SAFETY: between fork and exec only system calls are made, on strings that were made before.
    unsafe {
        command.pre_exec(move || {
            checked(libc::chroot(root.as_ptr()))?;
            checked(libc::chdir(c"/".as_ptr()))
        });
    }
    Ok(())
}

/// Loads a kernel module from its file.
pub fn load_module(file: &File) -> io::Result<()> {
    // SAFETY: the descriptor is open, the parameters are an empty C string.
    let result =
        unsafe { libc::syscall(libc::SYS_finit_module, file.as_raw_fd(), c"".as_ptr(), 0) };
    checked(result as libc::c_int)
}

/// Powers the machine off, or resets it if it cannot be powered off (the host ends it then).
pub fn power_off() -> ! {
    loop {
        // SAFETY: reboot(2) takes no pointers; both calls are safe in a signal handler.
        unsafe {
            libc::reboot(libc::RB_POWER_OFF);
            libc::reboot(libc::RB_AUTOBOOT);
        }
    }
}

/// Writes without buffers or locks, for signal handlers. Output that cannot be written is lost.
pub fn write_raw(fd: i32, bytes: &[u8]) {
    // SAFETY: the buffer is valid for its length.
    unsafe { libc::write(fd, bytes.as_ptr().cast(), bytes.len()) };
}

/// Calls `handler` after `seconds`; it must not allocate or lock.
pub fn on_alarm(seconds: u32, handler: extern "C" fn(i32)) -> io::Result<()> {
    // SAFETY: all-zero is a valid sigaction (no flags, empty mask).
    let mut action: libc::sigaction = unsafe { std::mem::zeroed() };
    action.sa_sigaction = handler as *const () as libc::sighandler_t;
    // SAFETY: the handler has the signature that a handler without SA_SIGINFO has, and lives as
    // long as the program.
    checked(unsafe { libc::sigaction(libc::SIGALRM, &raw const action, std::ptr::null_mut()) })?;
    // SAFETY: no pointers.
    unsafe { libc::alarm(seconds) };
    Ok(())
}

/// Makes a terminal pass bytes unchanged, without echo.
pub fn make_raw(port: &File) -> io::Result<()> {
    // SAFETY: all-zero is a valid termios to be overwritten.
    let mut settings: libc::termios = unsafe { std::mem::zeroed() };
    // SAFETY: the descriptor is open, `settings` is valid for the calls.
    unsafe {
        checked(libc::tcgetattr(port.as_raw_fd(), &raw mut settings))?;
        libc::cfmakeraw(&raw mut settings);
        checked(libc::tcsetattr(port.as_raw_fd(), libc::TCSANOW, &raw const settings))
    }
}

/// Waits until a terminal has sent everything.
pub fn drain(port: &impl AsRawFd) {
    // SAFETY: no pointers; fails harmlessly when the descriptor is no terminal.
    unsafe { libc::tcdrain(port.as_raw_fd()) };
}

/// Gives a program the console as its controlling terminal, so that Ctrl-C reaches it.
pub fn give_terminal(command: &mut Command) {
    // SAFETY: between fork and exec only system calls are made.
    unsafe {
        command.pre_exec(|| {
            checked(libc::setsid())?;
            let console = libc::open(c"/dev/ttyS0".as_ptr(), libc::O_RDWR);
            // Without a serial console the shell has no job control.
            if console >= 0 {
                libc::ioctl(console, libc::TIOCSCTTY, 0);
                for fd in 0..3 {
                    checked(libc::dup2(console, fd))?;
                }
            }
            Ok(())
        });
    }
}

/// Returns the resolution of the coarse clocks, which is the length of a tick, ns.
pub fn coarse_resolution_ns() -> Option<u64> {
    let mut resolution = libc::timespec { tv_sec: 0, tv_nsec: 0 };
    // SAFETY: the pointer is valid for the call.
    let result = unsafe { libc::clock_getres(libc::CLOCK_MONOTONIC_COARSE, &raw mut resolution) };
    u64::try_from(resolution.tv_nsec).ok().filter(|&ns| result == 0 && ns > 0)
}

/// Returns the number of CPUs that are online.
pub fn cpus_online() -> i64 {
    // SAFETY: no pointers.
    unsafe { libc::sysconf(libc::_SC_NPROCESSORS_ONLN) }
}

/// Memory whose physical addresses are known.
pub struct Window {
    start: *mut u8,
    len: usize,
}

impl Window {
    /// Maps `len` bytes, a multiple of the page size, all of them present; in huge pages where the
    /// kernel has them.
    pub fn new(len: usize) -> io::Result<Window> {
        let access = libc::PROT_READ | libc::PROT_WRITE;
        let kind = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS;
        // SAFETY: a new private mapping; nothing else refers to it.
        let start = unsafe { libc::mmap(std::ptr::null_mut(), len, access, kind, -1, 0) };
        if start == libc::MAP_FAILED {
            return Err(io::Error::last_os_error());
        }
        // SAFETY: the range is the mapping just made. Failing only means smaller pages.
        unsafe { libc::madvise(start, len, libc::MADV_HUGEPAGE) };
        let mut window = Window { start: start.cast(), len };
        window.bytes().fill(0xff);
        // SAFETY: as above.
        checked(unsafe { libc::mlock(start, len) })?;
        Ok(window)
    }

    /// The memory.
    pub fn bytes(&mut self) -> &mut [u8] {
        // SAFETY: the mapping lives until the process ends, and `self` is borrowed exclusively.
        unsafe { std::slice::from_raw_parts_mut(self.start, self.len) }
    }

    /// Returns the pieces of physical memory of the window, in its order: address and bytes.
    pub fn physical_runs(&self) -> io::Result<Vec<(u64, usize)>> {
        let pages = self.len / PAGE_BYTES;
        let mut map = vec![0; pages * 8];
        let first = (self.start as usize / PAGE_BYTES) as u64;
        File::open("/proc/self/pagemap")?.read_exact_at(&mut map, first * 8)?;
        let mut runs: Vec<(u64, usize)> = Vec::new();
        for entry in map.chunks_exact(8) {
            let entry = entry.try_into().map_or(0, u64::from_le_bytes);
            let address = (entry & PAGE_FRAME) * PAGE_BYTES as u64;
            if entry & PAGE_PRESENT == 0 || address == 0 {
                return Err(io::Error::other("the kernel hides physical addresses"));
            }
            match runs.last_mut() {
                Some((start, bytes)) if *start + *bytes as u64 == address => *bytes += PAGE_BYTES,
                _ => runs.push((address, PAGE_BYTES)),
            }
        }
        Ok(runs)
    }
}
