//! Kernels of group `system`: system calls, page faults, context switches, signals and interrupts.
//!
//! Kernels of a single thread are here, `pairs` has kernels of two threads, and `interrupts` has kernels with timers
//! and other CPUs. The caller has pinned the measured thread to a CPU.

mod interrupts;
mod pairs;

use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};
use std::ptr;

use crate::{Body, Executed, Group, Kernel, Made, Rounds};

/// A kernel of this group.
fn kernel(
    (name, unit, about): (&'static str, &'static str, &'static str),
    make: impl Fn() -> Made + 'static,
) -> Kernel {
    Kernel::new(Group::System, (name, unit, about), make)
}

pub(crate) fn kernels() -> Vec<Kernel> {
    let kernels = [calls(), memory(), pairs::kernels(), interrupts::kernels()];
    kernels.into_iter().flatten().collect()
}

/// The body of a kernel that calls a function `times` times per window.
struct Repeated<F> {
    times: u64,
    call: F,
}

impl<F: FnMut()> Body for Repeated<F> {
    fn run(&mut self, rounds: u64) -> Executed {
        (0..rounds).for_each(|_| (self.call)());
        Executed::whole(rounds)
    }

    fn rounds(&self) -> Rounds {
        Rounds::Fixed(self.times)
    }
}

/// Makes the body of a kernel that calls `call` `times` times per window.
fn repeated(times: u64, call: impl FnMut() + 'static) -> Made {
    Ok(Box::new(Repeated { times, call }))
}

/// The result of the C library's function `name`, or its error if the result is negative.
fn checked(name: &str, result: i64) -> Result<i64, String> {
    match result {
        0.. => Ok(result),
        _ => Err(format!("{name}: {}", std::io::Error::last_os_error())),
    }
}

/// Executes a system call with up to three arguments, without the C library's code around it. A negative result is an
/// error number.
#[inline(always)]
fn syscall(number: libc::c_long, [first, second, third]: [usize; 3]) -> i64 {
    let mut result = number;
    // SAFETY: callers pass calls whose arguments are numbers, descriptors or memory that they own; what the
    // kernel changes is declared.
    unsafe {
        std::arch::asm!(
            "syscall",
            inout("rax") result,
            in("rdi") first,
            in("rsi") second,
            in("rdx") third,
            out("rcx") _,
            out("r11") _,
            options(nostack),
        );
    }
    result
}

/// Takes ownership of a file descriptor that function `name` has just returned, or returns the function's error.
fn owned(name: &str, descriptor: i64) -> Result<OwnedFd, String> {
    let descriptor = checked(name, descriptor)? as i32;
    // SAFETY: the kernel has just returned it, and nothing else refers to it.
    Ok(unsafe { OwnedFd::from_raw_fd(descriptor) })
}

/// Opens a file.
fn opened(path: &'static std::ffi::CStr, flags: i32) -> Result<OwnedFd, String> {
    // SAFETY: the path ends with a zero byte.
    owned("open", unsafe { libc::open(path.as_ptr(), flags | libc::O_CLOEXEC) }.into())
}

fn start_thread(
    body: impl FnOnce() + Send + 'static,
) -> Result<std::thread::JoinHandle<()>, String> {
    let started = std::thread::Builder::new().spawn(body);
    started.map_err(|error| format!("starting a thread failed: {error}"))
}

/// Makes a pipe. Returns the end for reading and the end for writing.
fn pipe() -> Result<(OwnedFd, OwnedFd), String> {
    let mut ends = [0; 2];
    // SAFETY: there is room for two descriptors.
    checked("pipe", unsafe { libc::pipe2(ends.as_mut_ptr(), libc::O_CLOEXEC) }.into())?;
    Ok((owned("pipe", ends[0].into())?, owned("pipe", ends[1].into())?))
}

/// Kernels of system calls, signals, processes and threads.
fn calls() -> Vec<Kernel> {
    let call = "call";
    vec![
        kernel(("getppid", call, "A system call that does next to nothing."), || {
            repeated(100, || {
                syscall(libc::SYS_getppid, [0; 3]);
            })
        }),
        kernel(("invalid_call", call, "A system call that the kernel does not have."), || {
            repeated(100, || {
                syscall(0x7fff, [0; 3]);
            })
        }),
        kernel(("clock_call", call, "clock_gettime(2) by a system call."), || {
            let mut time = [0_u64; 2];
            repeated(50, move || {
                let address = time.as_mut_ptr() as usize;
                syscall(libc::SYS_clock_gettime, [libc::CLOCK_MONOTONIC as usize, address, 0]);
            })
        }),
        kernel(("read_zero_4k", call, "4 KiB read from /dev/zero."), || {
            let (file, mut page) = (opened(c"/dev/zero", libc::O_RDONLY)?, vec![0_u8; 4096]);
            repeated(50, move || {
                let address = page.as_mut_ptr() as usize;
                syscall(libc::SYS_read, [file.as_raw_fd() as usize, address, 4096]);
            })
        }),
        kernel(("write_null_4k", call, "4 KiB written to /dev/null."), || {
            let (file, page) = (opened(c"/dev/null", libc::O_WRONLY)?, vec![0_u8; 4096]);
            repeated(50, move || {
                syscall(libc::SYS_write, [file.as_raw_fd() as usize, page.as_ptr() as usize, 4096]);
            })
        }),
        kernel(("open_close", call, "/dev/null opened and closed."), || {
            opened(c"/dev/null", libc::O_RDONLY)?;
            repeated(20, || drop(opened(c"/dev/null", libc::O_RDONLY)))
        }),
        kernel(("stat", call, "The status of a file."), || {
            let mut status = [0_u64; 32];
            repeated(20, move || {
                let address = status.as_mut_ptr() as usize;
                syscall(libc::SYS_stat, [c"/dev/null".as_ptr() as usize, address, 0]);
            })
        }),
        kernel(
            ("sched_yield", call, "The processor offered to other threads; there are none."),
            || {
                repeated(50, || {
                    syscall(libc::SYS_sched_yield, [0; 3]);
                })
            },
        ),
        kernel(
            ("pipe_4k", call, "4 KiB written into a pipe and read from it, by one thread."),
            || {
                let ((reader, writer), mut page) = (pipe()?, vec![0_u8; 4096]);
                repeated(20, move || {
                    let memory = page.as_mut_ptr() as usize;
                    syscall(libc::SYS_write, [writer.as_raw_fd() as usize, memory, 4096]);
                    syscall(libc::SYS_read, [reader.as_raw_fd() as usize, memory, 4096]);
                })
            },
        ),
        kernel(("eventfd", call, "An event written and read, by one thread."), || {
            // SAFETY: creates a descriptor.
            let event = owned("eventfd", unsafe { libc::eventfd(0, libc::EFD_CLOEXEC) }.into())?;
            let mut value = 1_u64;
            repeated(40, move || {
                let (event, memory) = (event.as_raw_fd() as usize, (&raw mut value) as usize);
                syscall(libc::SYS_write, [event, memory, 8]);
                syscall(libc::SYS_read, [event, memory, 8]);
            })
        }),
        kernel(("futex_wake", call, "A wake-up of a futex that nobody waits for."), || {
            let word = Box::new(0_u32);
            repeated(50, move || {
                let word = (&raw const *word) as usize;
                syscall(
                    libc::SYS_futex,
                    [word, (libc::FUTEX_WAKE | libc::FUTEX_PRIVATE_FLAG) as usize, 1],
                );
            })
        }),
        kernel(
            ("signal", "signal", "A signal sent by a thread to itself, with its handler."),
            || {
                pairs::handle_signal()?;
                repeated(20, || {
                    // SAFETY: the handler is set, and does nothing.
                    unsafe { libc::raise(libc::SIGUSR2) };
                })
            },
        ),
        kernel(
            ("fork_wait", "process", "A process made, which ends at once, and waited for."),
            || {
                repeated(2, || {
                    // SAFETY: the child calls nothing but _exit.
                    let child = unsafe { libc::fork() };
                    if child == 0 {
                        // SAFETY: ends the child and does nothing else.
                        unsafe { libc::_exit(0) };
                    }
                    // SAFETY: waits for the child that was just made.
                    unsafe { libc::waitpid(child, ptr::null_mut(), 0) };
                })
            },
        ),
        kernel(("thread", "thread", "A thread made, which ends at once, and waited for."), || {
            repeated(4, || drop(std::thread::spawn(|| ()).join()))
        }),
    ]
}

/// Size of the memory of [`Fresh`].
const FRESH_BYTES: usize = 1 << 20;

/// The body of a kernel that touches pages of memory for the first time. Each window has new memory without pages.
struct Fresh {
    /// The memory, or `MAP_FAILED`.
    map: *mut libc::c_void,
    /// Whether stores touch the pages, or loads.
    is_written: bool,
}

impl Fresh {
    /// Maps new memory without pages. `MAP_FAILED` if the system refuses.
    fn map() -> *mut libc::c_void {
        let protection = libc::PROT_READ | libc::PROT_WRITE;
        let flags = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS;
        // SAFETY: a new map affects no other memory; the advice changes no content.
        unsafe {
            let map = libc::mmap(ptr::null_mut(), FRESH_BYTES, protection, flags, -1, 0);
            if map != libc::MAP_FAILED {
                libc::madvise(map, FRESH_BYTES, libc::MADV_NOHUGEPAGE);
            }
            map
        }
    }

    fn unmap(&mut self) {
        if self.map != libc::MAP_FAILED {
            // SAFETY: this value owns the map.
            unsafe { libc::munmap(self.map, FRESH_BYTES) };
        }
    }
}

impl Body for Fresh {
    fn prepare(&mut self) {
        self.unmap();
        self.map = Fresh::map();
    }

    fn run(&mut self, rounds: u64) -> Executed {
        if self.map == libc::MAP_FAILED {
            return Executed::whole(0);
        }
        for page in 0..(rounds as usize).min(FRESH_BYTES / 4096) {
            let byte = self.map.cast::<u8>().wrapping_add(page * 4096);
            // SAFETY: the byte is within the map.
            unsafe {
                if self.is_written {
                    byte.write_volatile(1);
                } else {
                    byte.read_volatile();
                }
            }
        }
        Executed::whole(rounds)
    }

    fn rounds(&self) -> Rounds {
        Rounds::Fixed(128)
    }
}

impl Drop for Fresh {
    fn drop(&mut self) {
        self.unmap();
    }
}

/// Kernels of page faults and mappings.
fn memory() -> Vec<Kernel> {
    let fresh = |is_written| -> Made { Ok(Box::new(Fresh { map: Fresh::map(), is_written })) };
    vec![
        kernel(("page_fault", "page", "The first store to a page of memory."), move || fresh(true)),
        kernel(("page_fault_read", "page", "The first load of a page of memory."), move || {
            fresh(false)
        }),
        kernel(("map_unmap", "call", "A page mapped and unmapped."), || {
            repeated(20, || {
                let flags = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS;
                // SAFETY: a new map affects no other memory, and is unmapped.
                unsafe {
                    let page = libc::mmap(ptr::null_mut(), 4096, libc::PROT_READ, flags, -1, 0);
                    libc::munmap(page, 4096);
                }
            })
        }),
        kernel(
            ("protect", "call", "The protection of a page that is there changed and restored."),
            || {
                let mut page = crate::memory::Pages::small(4096)?;
                repeated(20, move || {
                    page.bytes_mut()[0] = 1;
                    let address = page.base().as_ptr().cast();
                    // SAFETY: the page is this kernel's, and is writable again before it is written.
                    unsafe {
                        libc::mprotect(address, 4096, libc::PROT_READ);
                        libc::mprotect(address, 4096, libc::PROT_READ | libc::PROT_WRITE);
                    }
                })
            },
        ),
    ]
}
