//! The kernel entry latency: how much time passes before the kernel's first mark. `bench.rs` measures it once, and the
//! attribution of gaps uses it.
//!
//! It is measured with page faults: a program can raise them itself, and they enter the kernel by the same path as an
//! interrupt. No host intercepts them, so a hypervisor has no influence. The latency is the time from the clock
//! reading before the access to the mark of the fault. It includes the probe's work before the time stamp.

use std::hint::black_box;

use lab::noise::What;
use rustix::thread::sched_setaffinity;

use crate::bpf::BpfError;
use crate::clock::{ClockMap, now};
use crate::marks::{MarkProbes, loop_thread};
use crate::threads::{affinity, is_pinned_to, pin};

/// Number of pages that are touched for the first time.
const PAGES: usize = 512;
const PAGE_BYTES: usize = 4096;
/// Smallest number of faults from which a latency is computed.
const FAULTS_MIN: usize = 16;

/// The 90th percentile of the entry latency on `cpu`, ns: in one of 10 cases, the kernel takes longer. `None` with less
/// than [`FAULTS_MIN`] faults.
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
        .filter(|(mark_cpu, mark)| *mark_cpu == cpu && mark.what == What::Fault)
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

/// Touches new pages on `cpu`, and restores this thread's affinity. Returns the time at which each page was touched,
/// cycles. Empty if the thread could not be pinned, or the CPU went offline meanwhile.
fn touch(probes: &MarkProbes, cpu: u32) -> Result<Vec<u64>, BpfError> {
    let allowed = affinity(None).ok();
    if allowed.is_none() || pin(cpu).is_err() {
        return Ok(Vec::new());
    }
    let thread = loop_thread(Some(&probes.caller()))?;
    let mut touched = vec![1_u64; PAGES];
    // The kernel allocates these zeroed pages at the first access.
    let mut new_pages = vec![0_u8; PAGES * PAGE_BYTES];
    probes.announce(cpu, thread)?;
    for (page, touched_at) in new_pages.chunks_exact_mut(PAGE_BYTES).zip(&mut touched) {
        *touched_at = now();
        page[0] = black_box(1);
    }
    black_box(&new_pages);
    let stayed_on_cpu = is_pinned_to(cpu);
    let ended = probes.announce(cpu, 0);
    if let Some(allowed) = allowed {
        let _ = sched_setaffinity(None, &allowed); // This mask was valid before.
    }
    ended.map(|()| if stayed_on_cpu { touched } else { Vec::new() })
}
