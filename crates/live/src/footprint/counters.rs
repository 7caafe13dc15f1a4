//! Misses of a level in user mode and in kernel mode, by the processor's counters.

use std::fs::File;
use std::io::{self, Read};
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};

use lab::footprint::Level;
use perf_event_open_sys as perf;
use perf_event_open_sys::bindings as b;

use crate::host::Root;

/// The counters of both modes, for this thread, in one group: they count the same intervals.
#[derive(Debug)]
pub struct Counters {
    user: File,
    kernel: File,
}

/// Counted misses.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Misses {
    /// In user mode: lines that the loop missed.
    pub user: u64,
    /// In kernel mode, during interrupts and system calls: misses of the handler.
    pub kernel: u64,
}

fn cache(cache: b::perf_hw_cache_id) -> (u32, u64) {
    let read = u64::from(b::PERF_COUNT_HW_CACHE_OP_READ) << 8;
    let miss = u64::from(b::PERF_COUNT_HW_CACHE_RESULT_MISS) << 16;
    (b::PERF_TYPE_HW_CACHE, u64::from(cache) | read | miss)
}

/// The type and config of `perf_event_attr` that count a level's misses; `None` where no event does.
fn event(root: &Root, level: Level) -> Option<(u32, u64)> {
    let text = root.text_up_to("proc/cpuinfo", 64 << 10)?;
    let is_amd = text.lines().any(|line| line.starts_with("vendor_id") && line.contains("AMD"));
    Some(match level {
        Level::L1d => cache(b::PERF_COUNT_HW_CACHE_L1D),
        Level::L1i => cache(b::PERF_COUNT_HW_CACHE_L1I),
        Level::Dtlb => cache(b::PERF_COUNT_HW_CACHE_DTLB),
        Level::Itlb => cache(b::PERF_COUNT_HW_CACHE_ITLB),
        // AMD: the kernel's cache-misses are those of L2 (PMCx064, umask 09h; events/amd/core.c).
        Level::L2 if is_amd => (b::PERF_TYPE_HARDWARE, u64::from(b::PERF_COUNT_HW_CACHE_MISSES)),
        // Intel: L2_RQSTS.MISS (event 24h, umask 3Fh; SDM vol. 3, Haswell to Alder Lake).
        Level::L2 => (b::PERF_TYPE_RAW, 0x3f24),
        Level::L3 if is_amd => return None, // a PMU of its own counts the L3
        Level::L3 => (b::PERF_TYPE_HARDWARE, u64::from(b::PERF_COUNT_HW_CACHE_MISSES)),
    })
}

fn open((kind, config): (u32, u64), user: bool, leader: Option<&File>) -> io::Result<File> {
    let mut attributes = b::perf_event_attr {
        type_: kind,
        size: size_of::<b::perf_event_attr>() as u32,
        config,
        ..b::perf_event_attr::default()
    };
    attributes.set_disabled(u64::from(leader.is_none()));
    attributes.set_pinned(u64::from(leader.is_none()));
    attributes.set_exclude_kernel(user.into());
    attributes.set_exclude_user((!user).into());
    attributes.set_exclude_hv(1);
    let group = leader.map_or(-1, AsRawFd::as_raw_fd);
    let flags = b::PERF_FLAG_FD_CLOEXEC.into();
    // SAFETY: `attributes` is initialised and as large as its size says, and outlives the call; a
    // counting event has no other effect on this process.
    let descriptor = unsafe { perf::perf_event_open(&raw mut attributes, 0, -1, group, flags) };
    if descriptor < 0 {
        return Err(io::Error::last_os_error());
    }
    // SAFETY: the kernel has just returned this descriptor, which nobody else owns.
    Ok(unsafe { OwnedFd::from_raw_fd(descriptor) }.into())
}

impl Counters {
    /// Opens the counters of the calling thread, stopped.
    ///
    /// # Errors
    /// The reason: no PMU, no rights, no such event, no free counter.
    pub fn open(root: &Root, level: Level) -> Result<Self, String> {
        let event = event(root, level).ok_or("no counter of this processor counts its misses")?;
        let words = |error: io::Error| format!("perf_event_open: {error}");
        let user = open(event, true, None).map_err(words)?;
        let kernel = open(event, false, Some(&user)).map_err(words)?;
        let mut counters = Counters { user, kernel };
        counters.start().map_err(words)?;
        match counters.stop() {
            Ok(_) => Ok(counters),
            Err(error) => Err(format!("the counters do not count: {error}")),
        }
    }

    /// Starts counting from 0.
    ///
    /// # Errors
    /// When the kernel refuses.
    #[inline(always)]
    pub fn start(&mut self) -> io::Result<()> {
        let file = self.user.as_raw_fd();
        let group = b::PERF_IOC_FLAG_GROUP;
        // SAFETY: the descriptor is that of a group's leader, and the requests take no pointer.
        let done =
            unsafe { perf::ioctls::RESET(file, group) >= 0 && perf::ioctls::ENABLE(file, 0) >= 0 };
        if done { Ok(()) } else { Err(io::Error::last_os_error()) }
    }

    /// Stops counting and returns the counts.
    ///
    /// # Errors
    /// When the kernel refuses, or another user took the counters.
    #[inline(always)]
    pub fn stop(&mut self) -> io::Result<Misses> {
        // SAFETY: as in `start`.
        if unsafe { perf::ioctls::DISABLE(self.user.as_raw_fd(), 0) } < 0 {
            return Err(io::Error::last_os_error());
        }
        Ok(Misses { user: value(&mut self.user)?, kernel: value(&mut self.kernel)? })
    }
}

fn value(event: &mut File) -> io::Result<u64> {
    let mut bytes = [0; 8];
    // A pinned group that lost its counters reads as an end of file.
    event.read_exact(&mut bytes)?;
    Ok(u64::from_ne_bytes(bytes))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn without_counters_there_is_a_reason_and_with_them_they_count() {
        let root = Root::default();
        match Counters::open(&root, Level::L1d) {
            Err(reason) => {
                assert!(!reason.is_empty());
                needs::not_run(needs::Need::Pmu, reason);
            }
            Ok(mut counters) => {
                let mut memory = vec![1_u8; 8 << 20];
                counters.start().unwrap();
                memory.iter_mut().step_by(64).for_each(|byte| *byte += 1);
                std::hint::black_box(&memory);
                let misses = counters.stop().unwrap();
                assert!(misses.user > 1000, "{misses:?}");
            }
        }
    }
}
