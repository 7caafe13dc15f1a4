//! The kernel entry latency, measured without any influence of a host.
//!
//! An exception enters the kernel by the same path as an interrupt. A page fault is an exception
//! that a program can raise itself and that no host intercepts. The entry latency is the time from
//! the clock reading before the access to the kernel's first event. It includes the probe's work
//! before the time stamp.

use std::hint::black_box;

use lab::noise::What;
use rustix::thread::{sched_getaffinity, sched_setaffinity};

use crate::bpf::BpfError;
use crate::clock::{ClockMap, now};
use crate::marks::{MarkProbes, loop_thread};
use crate::threads::{is_pinned_to, pin};

/// Number of pages that are touched for the first time.
const PAGES: usize = 512;
const PAGE_BYTES: usize = 4096;
/// Smallest number of faults from which a latency is computed.
const FAULTS_MIN: usize = 16;

/// The 90th percentile of the entry latency, ns; `None` with too few faults.
///
/// Fails if the kernel refuses to deliver the marks.
pub fn entry_latency_ns(probes: &MarkProbes, cpu: u32) -> Result<Option<u64>, BpfError> {
    let mut clocks = ClockMap::new(probes.kernel_clock());
    clocks.read();
    let touched = touch(probes, cpu)?;
    clocks.read();
    let mut faults: Vec<u64> = probes
        .take()?
        .into_iter()
        .filter(|(on, mark)| *on == cpu && mark.what == What::Fault)
        .map(|(_, mark)| mark.at_ns)
        .collect();
    faults.sort_unstable();
    let times: Vec<u64> = touched.iter().filter_map(|&cycles| clocks.ns_at(cycles)).collect();
    let mut latencies: Vec<u64> = times
        .windows(2)
        .filter_map(|pair| {
            let next = faults.get(faults.partition_point(|fault| *fault < pair[0]))?;
            (*next < pair[1]).then(|| next - pair[0])
        })
        .collect();
    latencies.sort_unstable();
    Ok((latencies.len() >= FAULTS_MIN).then(|| latencies[latencies.len() * 9 / 10]))
}

/// Touches new pages on `cpu`, and restores this thread's affinity. Returns when it touched each
/// page, cycles; empty if the CPU went offline meanwhile.
fn touch(probes: &MarkProbes, cpu: u32) -> Result<Vec<u64>, BpfError> {
    let allowed = sched_getaffinity(None).ok();
    if allowed.is_none() || pin(cpu).is_err() {
        return Ok(Vec::new());
    }
    let thread = loop_thread(Some(&probes.caller()))?;
    let mut touched = vec![1_u64; PAGES];
    // The kernel has not allocated these zeroed pages yet.
    let mut fresh = vec![0_u8; PAGES * PAGE_BYTES];
    probes.announce(cpu, thread)?;
    for (page, touched_at) in fresh.chunks_exact_mut(PAGE_BYTES).zip(&mut touched) {
        *touched_at = now();
        page[0] = black_box(1);
    }
    black_box(&fresh);
    let stayed = is_pinned_to(cpu);
    let ended = probes.announce(cpu, 0);
    if let Some(allowed) = allowed {
        let _ = sched_setaffinity(None, &allowed); // the same mask was valid a moment ago
    }
    ended.map(|()| if stayed { touched } else { Vec::new() })
}
