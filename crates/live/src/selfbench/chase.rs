//! A pointer chase: times loads that depend on each other, because each load's address is the value of the previous
//! load. Over the size of the memory, the times show the latencies of this machine's caches. `irqlab bench model`
//! compares them with a model.

use std::time::Instant;

use lab::experiment::BenchError;
use stats::Random;
use stats::interval::order_95;
pub use touch_loop::memory::Pages;
use touch_loop::memory::Region;

use super::failed;
use crate::clock::dependent_additions;
use crate::host::{Root, available_memory};
use crate::threads::{check_pinned, pin};

/// Number of dependent additions from which the core's clock is computed.
const ADDITIONS: u64 = 1 << 20;
/// Smallest number of loads in a round.
const LOADS: u64 = 1 << 18;
/// Seed of the order of the lines.
const SEED: u64 = 1;

/// A chase through memory of one size.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Chased {
    pub bytes: u64,
    pub pages: Pages,
    /// Time of a load, ns: median of the rounds. `None` without rounds.
    pub load_ns: Option<f64>,
    /// Time of a load in cycles of the core: divided by the time of a dependent addition in its round; median of the
    /// rounds. `None` if additions cannot be timed (processors other than x86).
    pub load_cycles: Option<f64>,
    /// The 95 % interval of the median of the cycles; `None` with fewer than six rounds.
    pub cycles_95: Option<(f64, f64)>,
}

/// Configuration of a chase.
#[derive(Clone, Debug)]
pub struct ChaseSettings {
    pub cpu: u32,
    /// Bytes of memory of each chase, multiples of a line.
    pub sizes: Vec<u64>,
    pub line_bytes: u64,
    /// Number of rounds for each size.
    pub rounds: usize,
}

/// Numbers of the lines in `bytes` of memory, each once, in an order that no prefetcher predicts.
#[must_use]
pub fn chase_order(bytes: u64, line_bytes: u64) -> Vec<u64> {
    let mut order: Vec<u64> = (0..bytes / line_bytes.max(1)).collect();
    Random::new(SEED).shuffle(&mut order);
    order
}

/// Chases through all sizes on one CPU. Passes each size to `progress`.
///
/// Fails if the CPU is not available, or there is not enough memory.
pub fn measure(
    settings: &ChaseSettings,
    progress: &dyn Fn(u64),
) -> Result<Vec<Chased>, BenchError> {
    pin(settings.cpu).map_err(|error| failed("pinning", error))?;
    let largest_bytes = settings.sizes.iter().copied().max().unwrap_or(0);
    available_memory(&Root::default())
        .check("the largest ring", largest_bytes)
        .map_err(|shortage| failed("getting memory", shortage))?;
    let results = settings.sizes.iter().map(|bytes| {
        progress(*bytes);
        chase(*bytes, settings)
    });
    results.collect()
}

/// Chases through memory of one size.
fn chase(bytes: u64, settings: &ChaseSettings) -> Result<Chased, BenchError> {
    let order = chase_order(bytes, settings.line_bytes);
    let ring = Ring::new(bytes, settings.line_bytes, &order)
        .map_err(|error| failed("getting memory", error))?;
    let loads = (order.len() as u64).max(LOADS);
    // One walk through the whole ring fills the caches.
    let mut line = ring.walk(ring.start, order.len() as u64);
    let (mut ns, mut cycles) = (Vec::new(), Vec::new());
    for _ in 0..settings.rounds {
        let addition_ns = addition_ns();
        let start = Instant::now();
        line = ring.walk(line, loads);
        let load_ns = start.elapsed().as_nanos() as f64 / loads as f64;
        ns.push(load_ns);
        cycles.extend(addition_ns.map(|addition| load_ns / addition));
    }
    check_pinned(settings.cpu).map_err(|error| failed("chasing", error))?;
    ns.sort_by(f64::total_cmp);
    cycles.sort_by(f64::total_cmp);
    let cycles_95 = order_95(cycles.len()).map(|(low, high)| (cycles[low], cycles[high]));
    Ok(Chased {
        bytes,
        pages: ring.region.pages,
        load_ns: ns.get(ns.len() / 2).copied(),
        load_cycles: cycles.get(cycles.len() / 2).copied(),
        cycles_95,
    })
}

/// Memory whose lines each contain the address of the next one.
struct Ring {
    region: Region,
    start: *const u8,
}

impl Ring {
    fn new(bytes: u64, line_bytes: u64, order: &[u64]) -> std::io::Result<Ring> {
        let mut region = Region::new(usize::try_from(bytes).unwrap_or(usize::MAX))?;
        let base = region.base() as usize;
        let offset = |index: usize| (order[index % order.len()] * line_bytes) as usize;
        let memory = region.bytes_mut();
        for index in 0..order.len() {
            let next = (base + offset(index + 1)).to_ne_bytes();
            memory[offset(index)..][..next.len()].copy_from_slice(&next);
        }
        Ok(Ring { start: (base + offset(0)) as *const u8, region })
    }

    /// Follows `loads` addresses, starting at `line`. Returns the last address.
    #[inline(never)]
    fn walk(&self, mut line: *const u8, loads: u64) -> *const u8 {
        for _ in 0..loads {
            // SAFETY: `line` is a line of the ring. `new` wrote the address of the next line into
            // each line, and nothing writes later. The region lives until `self` is dropped. The
            // read is volatile so that the compiler keeps it.
            line = unsafe { line.cast::<*const u8>().read_volatile() };
        }
        line
    }
}

/// The time of a dependent addition, ns, which is one cycle of the core. `None` on processors other than x86.
fn addition_ns() -> Option<f64> {
    let start = Instant::now();
    dependent_additions(ADDITIONS).then(|| start.elapsed().as_nanos() as f64 / ADDITIONS as f64)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_ring_leads_through_all_its_lines_and_back() {
        let order = chase_order(64 << 10, 64);
        assert_eq!(order.len(), 1024);
        let ring = Ring::new(64 << 10, 64, &order).unwrap();
        let mut seen = std::collections::BTreeSet::new();
        let mut line = ring.start;
        for _ in 0..1024 {
            assert!(seen.insert(line as usize));
            line = ring.walk(line, 1);
        }
        assert_eq!(line, ring.start);
    }

    #[test]
    fn each_size_has_its_times() {
        let cpus = rustix::thread::sched_getaffinity(None).unwrap();
        let cpu = (0..1024).find(|cpu| cpus.is_set(*cpu)).unwrap() as u32;
        let sizes = vec![8 << 10, 1 << 20];
        let settings = ChaseSettings { cpu, sizes: sizes.clone(), line_bytes: 64, rounds: 7 };
        let chased = measure(&settings, &|_| ()).unwrap();
        rustix::thread::sched_setaffinity(None, &cpus).unwrap();
        assert_eq!(chased.iter().map(|chase| chase.bytes).collect::<Vec<_>>(), sizes);
        for chase in chased {
            assert!(chase.load_ns > Some(0.0), "{chase:?}");
            let between = chase.cycles_95.map(|(low, high)| low..=high);
            assert!(
                between.is_none_or(|range| range.contains(&chase.load_cycles.unwrap())),
                "{chase:?}"
            );
        }
    }
}
