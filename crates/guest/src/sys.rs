//! Safe functions over system calls that the standard library does not wrap, for all files of the guest's first process
//! (`/init`). All its unsafe code is here and in `ports.rs` and `faults.rs`.

use std::ffi::CString;
use std::fs::File;
use std::io;
use std::os::fd::AsRawFd;
use std::os::unix::fs::FileExt;
use std::os::unix::process::CommandExt;
use std::process::Command;

const PAGE_BYTES: usize = 4096;
/// Bit of an entry of /proc/PID/pagemap: the page is present.
const PAGE_PRESENT: u64 = 1 << 63;
/// Bits of an entry of /proc/PID/pagemap with the page frame number.
const PAGE_FRAME: u64 = (1 << 55) - 1;

/// The error of a system call that has returned a negative number.
fn checked(result: libc::c_int) -> io::Result<()> {
    if result < 0 { Err(io::Error::last_os_error()) } else { Ok(()) }
}

/// Mounts a file system that needs no device. Creates the mount point if needed.
pub fn mount(kind: &str, mount_point: &str) -> io::Result<()> {
    let _ = std::fs::create_dir(mount_point);
    let kind = CString::new(kind)?;
    let mount_point = CString::new(mount_point)?;
    // SAFETY: both strings end in NUL and outlive the call; no data is passed.
    checked(unsafe {
        libc::mount(kind.as_ptr(), mount_point.as_ptr(), kind.as_ptr(), 0, std::ptr::null())
    })
}

/// The arguments of [`mount_as`].
#[derive(Clone, Copy)]
pub struct Mount<'a> {
    /// A device, a directory for [`Flag::Bind`], or a name.
    pub source: &'a str,
    /// The type of the file system; empty for [`Flag::Bind`].
    pub kind: &'a str,
    /// The directory is created if needed.
    pub mount_point: &'a str,
    pub flag: Flag,
    /// Options of the file system.
    pub options: &'a str,
}

/// A property of a mount.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum Flag {
    /// Reading a file does not change its access time.
    NoAtime,
    /// Nothing can be written, not even access times.
    ReadOnly,
    /// The directory `source` and the mounts below it appear at the mount point, too.
    Bind,
}

/// Mounts a file system with a flag and options.
pub fn mount_as(mount: Mount<'_>) -> io::Result<()> {
    let flags = match mount.flag {
        Flag::NoAtime => libc::MS_NOATIME,
        Flag::ReadOnly => libc::MS_RDONLY | libc::MS_NOATIME,
        Flag::Bind => libc::MS_BIND | libc::MS_REC,
    };
    std::fs::create_dir_all(mount.mount_point)?;
    let [source, kind, mount_point, options] =
        [mount.source, mount.kind, mount.mount_point, mount.options].map(CString::new);
    let (source, kind, mount_point, options) = (source?, kind?, mount_point?, options?);
    // SAFETY: all strings end in NUL and outlive the call. The options are text for every mounted file system.
    checked(unsafe {
        let options = options.as_ptr().cast();
        libc::mount(source.as_ptr(), mount_point.as_ptr(), kind.as_ptr(), flags, options)
    })
}

/// Makes a program run with `root` as its root directory.
pub fn enter_root(command: &mut Command, root: &str) -> io::Result<()> {
    let root = CString::new(root)?;
    // SAFETY: between fork and exec the closure only makes system calls. Its strings exist before the fork.
    unsafe {
        command.pre_exec(move || {
            checked(libc::chroot(root.as_ptr()))?;
            checked(libc::chdir(c"/".as_ptr()))
        });
    }
    Ok(())
}

/// Loads a kernel module from its file, without parameters.
pub fn load_module(file: &File) -> io::Result<()> {
    // SAFETY: the descriptor is open, the parameters are an empty C string.
    let result =
        unsafe { libc::syscall(libc::SYS_finit_module, file.as_raw_fd(), c"".as_ptr(), 0) };
    checked(result as libc::c_int)
}

/// Powers the machine off. If that fails, resets the machine, and the host ends it.
pub fn power_off() -> ! {
    loop {
        // SAFETY: reboot(2) takes no pointers; both calls are safe in a signal handler.
        unsafe {
            libc::reboot(libc::RB_POWER_OFF);
            libc::reboot(libc::RB_AUTOBOOT);
        }
    }
}

/// Writes to a descriptor without buffers or locks, as signal handlers need. Errors are ignored.
pub fn write_raw(fd: i32, bytes: &[u8]) {
    // SAFETY: the buffer is valid for its length.
    unsafe { libc::write(fd, bytes.as_ptr().cast(), bytes.len()) };
}

/// The result of [`wait_for_input`]: whether each descriptor has input.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Input {
    pub is_first: bool,
    pub is_second: bool,
}

impl Input {
    /// Whether no descriptor has input, because the time was over.
    pub fn is_none(self) -> bool {
        !self.is_first && !self.is_second
    }
}

/// Waits until one of two descriptors has input, or its last writer has closed it. Waits at most `timeout_ms`, or
/// without limit if it is negative. A negative descriptor never has input.
pub fn wait_for_input(first: i32, second: i32, timeout_ms: i32) -> Input {
    let polled = |fd| libc::pollfd { fd, events: libc::POLLIN, revents: 0 };
    let mut fds = [polled(first), polled(second)];
    loop {
        // SAFETY: the array is valid for its length.
        if unsafe { libc::poll(fds.as_mut_ptr(), 2, timeout_ms) } >= 0 {
            return Input { is_first: fds[0].revents != 0, is_second: fds[1].revents != 0 };
        }
    }
}

/// Asks a process to end, by SIGTERM.
pub fn terminate(process: u32) {
    // SAFETY: no pointers. The process has not been waited for, so the number is its own.
    unsafe { libc::kill(process as libc::pid_t, libc::SIGTERM) };
}

/// Calls `handler` after `seconds`. It runs as a signal handler, so it must not allocate or lock.
pub fn on_alarm(seconds: u32, handler: extern "C" fn(i32)) -> io::Result<()> {
    // SAFETY: all-zero is a valid sigaction (no flags, empty mask).
    let mut action: libc::sigaction = unsafe { std::mem::zeroed() };
    action.sa_sigaction = handler as *const () as libc::sighandler_t;
    // SAFETY: without SA_SIGINFO, a handler takes the signal's number as this one does. The handler is a function
    // of the program.
    checked(unsafe { libc::sigaction(libc::SIGALRM, &raw const action, std::ptr::null_mut()) })?;
    // SAFETY: no pointers.
    unsafe { libc::alarm(seconds) };
    Ok(())
}

/// Makes a serial port pass bytes unchanged, without echo.
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

/// Waits until a terminal has sent all its output.
pub fn drain(port: &impl AsRawFd) {
    // SAFETY: no pointers; fails harmlessly when the descriptor is no terminal.
    unsafe { libc::tcdrain(port.as_raw_fd()) };
}

/// Gives a program the console as its controlling terminal, so that Ctrl-C reaches it.
pub fn give_terminal(command: &mut Command) {
    // SAFETY: between fork and exec the closure only makes system calls.
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

/// Returns the resolution of the coarse clocks in ns, which is the length of a tick. `None` if it is unknown.
pub fn coarse_resolution_ns() -> Option<u64> {
    let mut resolution = libc::timespec { tv_sec: 0, tv_nsec: 0 };
    // SAFETY: the pointer is valid for the call.
    let result = unsafe { libc::clock_getres(libc::CLOCK_MONOTONIC_COARSE, &raw mut resolution) };
    u64::try_from(resolution.tv_nsec).ok().filter(|&ns| result == 0 && ns > 0)
}

pub fn cpus_online() -> i64 {
    // SAFETY: no pointers.
    unsafe { libc::sysconf(libc::_SC_NPROCESSORS_ONLN) }
}

/// Locked memory whose physical addresses are known. It is never unmapped.
pub struct Window {
    start: *mut u8,
    len: usize,
}

impl Window {
    /// Maps `len` bytes, a multiple of the page size. All pages are present and stay at their physical addresses. They
    /// are huge pages if the kernel has them.
    pub fn new(len: usize) -> io::Result<Window> {
        let access = libc::PROT_READ | libc::PROT_WRITE;
        let kind = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS;
        // SAFETY: makes a new private mapping.
        let start = unsafe { libc::mmap(std::ptr::null_mut(), len, access, kind, -1, 0) };
        if start == libc::MAP_FAILED {
            return Err(io::Error::last_os_error());
        }
        // SAFETY: the range is the mapping just made. Failing only means smaller pages.
        unsafe { libc::madvise(start, len, libc::MADV_HUGEPAGE) };
        let mut window = Window { start: start.cast(), len };
        window.bytes().fill(0xff);
        // SAFETY: the range is the mapping just made.
        checked(unsafe { libc::mlock(start, len) })?;
        Ok(window)
    }

    pub fn bytes(&mut self) -> &mut [u8] {
        // SAFETY: the mapping lives until the process ends, and `self` is borrowed exclusively.
        unsafe { std::slice::from_raw_parts_mut(self.start, self.len) }
    }

    /// Returns the contiguous runs of physical memory in the order of the window: address and length in bytes.
    pub fn physical_runs(&self) -> io::Result<Vec<(u64, usize)>> {
        let page_count = self.len / PAGE_BYTES;
        let mut map = vec![0; page_count * 8];
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
