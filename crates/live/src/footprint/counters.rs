//! Misses of a level in user mode and in kernel mode, counted by the processor's PMU. `bench.rs` starts the counters
//! directly before a window, and stops them directly after it.

use std::fs::File;
use std::io::{self, Read};
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};

use lab::footprint::Level;
use perf_event_open_sys as perf;
use perf_event_open_sys::bindings as b;
use touch_loop::MissCounter;

use crate::host::{Encoding, EventCatalogue, Root};

/// The counters of both modes for one thread. They are one group (`user` leads it), so they count the same intervals.
#[derive(Debug)]
pub struct Counters {
    user: File,
    kernel: File,
}

/// Numbers of misses in one interval.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Misses {
    /// In user mode: lines that the loop missed.
    pub user: u64,
    /// In kernel mode: lines that interrupt handlers and system calls missed.
    pub kernel: u64,
}

/// The event that counts a level's misses on `cpu`. The error is a reason.
fn event(root: &Root, level: Level, cpu: u32) -> Result<Encoding, String> {
    let catalogue = EventCatalogue::read(root);
    let name = match level {
        Level::L1d => "L1-dcache-load-misses",
        Level::L1i => "L1-icache-load-misses",
        // On x86 these events count page walks (arch/x86/events): misses of the second level, too. The loop fills the
        // first level, and most entries that it loses are still in the second.
        Level::Dtlb | Level::Itlb if catalogue.is_amd() || catalogue.is_intel() => {
            return Err(
                "the kernel's event counts page walks, not misses of the first level".to_owned()
            );
        }
        Level::Dtlb => "dTLB-load-misses",
        Level::Itlb => "iTLB-load-misses",
        // The kernel's cache-misses count L2 misses on AMD (arch/x86/events/amd/core.c), last-level
        // misses on Intel (an architectural event, SDM volume 3), and L1D misses on Arm.
        Level::L2 if catalogue.is_amd() => "cache-misses",
        Level::L2 => "l2-misses",
        Level::L3 if catalogue.is_intel() => "cache-misses",
        Level::L3 => return Err("no counter of this processor counts its misses".to_owned()),
    };
    let encodings = catalogue.encodings(name, &[cpu]).map_err(|absence| absence.reason)?;
    encodings.into_iter().next().ok_or_else(|| "no counter counts its misses".to_owned())
}

/// Opens a counter of user mode, or else of kernel mode. `leader`: the group's leader; `None` opens the leader.
fn open(event: &Encoding, in_user_mode: bool, leader: Option<&File>) -> io::Result<File> {
    let mut attributes = event.attributes();
    attributes.set_disabled(u64::from(leader.is_none()));
    attributes.set_pinned(u64::from(leader.is_none()));
    attributes.set_exclude_kernel(in_user_mode.into());
    attributes.set_exclude_user((!in_user_mode).into());
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
    /// Opens the counters of the calling thread, stopped. The thread must run on `cpu`.
    ///
    /// The error is a reason: no PMU, no rights, no such event, no free counter.
    pub fn open(root: &Root, level: Level, cpu: u32) -> Result<Self, String> {
        let event = event(root, level, cpu)?;
        let describe = |error: io::Error| format!("perf_event_open: {error}");
        let user = open(&event, true, None).map_err(describe)?;
        let kernel = open(&event, false, Some(&user)).map_err(describe)?;
        let mut counters = Counters { user, kernel };
        counters.start().map_err(describe)?;
        match counters.stop() {
            Ok(_) => Ok(counters),
            Err(error) => Err(format!("the counters do not count: {error}")),
        }
    }

    /// Starts counting from 0.
    ///
    /// Fails if the kernel refuses.
    #[inline(always)]
    pub fn start(&mut self) -> io::Result<()> {
        let file = self.user.as_raw_fd();
        let group = b::PERF_IOC_FLAG_GROUP;
        // SAFETY: the descriptor is that of a group's leader, and the requests take no pointer.
        let is_started =
            unsafe { perf::ioctls::RESET(file, group) >= 0 && perf::ioctls::ENABLE(file, 0) >= 0 };
        if is_started { Ok(()) } else { Err(io::Error::last_os_error()) }
    }

    /// Stops counting and returns the counts.
    ///
    /// Fails if the kernel refuses, or gave the counters to another user meanwhile.
    #[inline(always)]
    pub fn stop(&mut self) -> io::Result<Misses> {
        // SAFETY: as in `start`.
        if unsafe { perf::ioctls::DISABLE(self.user.as_raw_fd(), 0) } < 0 {
            return Err(io::Error::last_os_error());
        }
        Ok(Misses { user: value(&mut self.user)?, kernel: value(&mut self.kernel)? })
    }
}

impl MissCounter for Counters {
    fn start(&mut self) -> io::Result<()> {
        Counters::start(self)
    }

    fn stop(&mut self) -> io::Result<u64> {
        Counters::stop(self).map(|misses| misses.user)
    }
}

/// The count of an event.
fn value(event: &mut File) -> io::Result<u64> {
    let mut bytes = [0; 8];
    // If a pinned group has lost its counters, the read returns an end of file, which is an error here.
    event.read_exact(&mut bytes)?;
    Ok(u64::from_ne_bytes(bytes))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::host::plant_machine;

    #[test]
    fn misses_of_a_level_are_counted_by_events_of_this_processor_or_not_at_all() {
        let encoded = |machine: &str, level, cpu| {
            let (_directory, root) = plant_machine(machine, &[]);
            event(&root, level, cpu).map(|event| (event.kind, event.words[0]))
        };
        let last_level = (b::PERF_TYPE_HARDWARE, u64::from(b::PERF_COUNT_HW_CACHE_MISSES));
        let l2_misses = Ok((b::PERF_TYPE_RAW, 0x3f24));
        assert_eq!(encoded("intel-skylake-server", Level::L2, 0), l2_misses);
        assert_eq!(encoded("intel-sapphire-rapids", Level::L2, 0), l2_misses);
        assert_eq!(encoded("intel-alder-lake", Level::L2, 0), l2_misses);
        assert_eq!(encoded("intel-sapphire-rapids", Level::L3, 0), Ok(last_level));
        for machine in ["amd-zen1", "amd-zen2", "amd-zen3", "amd-zen4", "hygon-dhyana"] {
            assert_eq!(encoded(machine, Level::L2, 0), Ok(last_level), "{machine}");
            assert!(encoded(machine, Level::L3, 0).is_err(), "{machine}");
        }
        for (machine, cpu) in [
            ("intel-ice-lake-server", 0),
            ("intel-avoton", 0),
            ("intel-alder-lake", 16),
            ("arm-neoverse-n1", 0),
        ] {
            let reason = encoded(machine, Level::L2, cpu).unwrap_err();
            assert!(reason.contains("knows no such event"), "{machine}: {reason}");
        }
        assert!(encoded("arm-neoverse-n1", Level::L3, 0).is_err());
        let efficient = encoded("intel-alder-lake", Level::L1d, 16);
        assert_eq!(efficient, Ok((b::PERF_TYPE_HW_CACHE, 10 << 32 | 0x10000)));
    }

    #[test]
    fn without_counters_there_is_a_reason_and_with_them_they_count() {
        let root = Root::default();
        match Counters::open(&root, Level::L1d, 0) {
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
