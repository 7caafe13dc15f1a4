//! The time of a load whose address is the value of the load before it, by the amount of memory: the
//! latencies of this machine's caches, for comparison with a model.

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

/// Dependent additions, from which the core's clock is computed.
const ADDITIONS: u64 = 1 << 20;
/// Loads of a round, at least.
const LOADS: u64 = 1 << 18;
/// Seed of the order of the lines.
const SEED: u64 = 1;

/// A chase through memory of one size.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Chased {
    pub bytes: u64,
    pub pages: Pages,
    /// A load, ns: median of the rounds; absent without any.
    pub load_ns: Option<f64>,
    /// The same in cycles of the core: a load over an addition that depends on the one before, both
    /// of the same round. Absent where additions are not timed (another processor than x86).
    pub load_cycles: Option<f64>,
    /// Where the median of the cycles lies with 95 % and more; absent with fewer than six rounds.
    pub cycles_95: Option<(f64, f64)>,
}

/// Configuration.
#[derive(Clone, Debug)]
pub struct ChaseSettings {
    pub cpu: u32,
    /// Bytes of each chase, multiples of a line.
    pub sizes: Vec<u64>,
    pub line_bytes: u64,
    /// Rounds of each.
    pub rounds: usize,
}

/// The lines of `bytes` of memory, each once, in an order that no prefetcher sees: their numbers.
#[must_use]
pub fn chase_order(bytes: u64, line_bytes: u64) -> Vec<u64> {
    let mut order: Vec<u64> = (0..bytes / line_bytes.max(1)).collect();
    Random::new(SEED).shuffle(&mut order);
    order
}

/// Chases through all sizes on one CPU; `progress` gets each size.
///
/// # Errors
/// When the CPU is not available, or there is no memory.
pub fn measure(
    settings: &ChaseSettings,
    progress: &dyn Fn(u64),
) -> Result<Vec<Chased>, BenchError> {
    pin(settings.cpu).map_err(|error| failed("pinning", error))?;
    let largest_bytes = settings.sizes.iter().copied().max().unwrap_or(0);
    available_memory(&Root::default())
        .check("the largest ring", largest_bytes)
        .map_err(|shortage| failed("getting memory", shortage))?;
    let each = settings.sizes.iter().map(|bytes| {
        progress(*bytes);
        chase(*bytes, settings)
    });
    each.collect()
}

fn chase(bytes: u64, settings: &ChaseSettings) -> Result<Chased, BenchError> {
    let order = chase_order(bytes, settings.line_bytes);
    let ring = Ring::new(bytes, settings.line_bytes, &order)
        .map_err(|error| failed("getting memory", error))?;
    let loads = (order.len() as u64).max(LOADS);
    let mut at = ring.walk(ring.start, order.len() as u64);
    let (mut ns, mut cycles) = (Vec::new(), Vec::new());
    for _ in 0..settings.rounds {
        let addition_ns = addition_ns();
        let start = Instant::now();
        at = ring.walk(at, loads);
        let load_ns = start.elapsed().as_nanos() as f64 / loads as f64;
        ns.push(load_ns);
        cycles.extend(addition_ns.map(|addition| load_ns / addition));
    }
    check_pinned(settings.cpu).map_err(|error| failed("chasing", error))?;
    ns.sort_by(f64::total_cmp);
    cycles.sort_by(f64::total_cmp);
    let between = order_95(cycles.len()).map(|(low, high)| (cycles[low], cycles[high]));
    Ok(Chased {
        bytes,
        pages: ring.region.pages,
        load_ns: ns.get(ns.len() / 2).copied(),
        load_cycles: cycles.get(cycles.len() / 2).copied(),
        cycles_95: between,
    })
}

/// Lines each of which holds the address of the next.
struct Ring {
    region: Region,
    start: *const u8,
}

impl Ring {
    fn new(bytes: u64, line_bytes: u64, order: &[u64]) -> std::io::Result<Ring> {
        let mut region = Region::new(usize::try_from(bytes).unwrap_or(usize::MAX))?;
        let base = region.base() as usize;
        let place = |index: usize| (order[index % order.len()] * line_bytes) as usize;
        let memory = region.bytes_mut();
        for index in 0..order.len() {
            let next = (base + place(index + 1)).to_ne_bytes();
            memory[place(index)..][..next.len()].copy_from_slice(&next);
        }
        Ok(Ring { start: (base + place(0)) as *const u8, region })
    }

    /// Continues from `at`; returns the last address.
    #[inline(never)]
    fn walk(&self, mut at: *const u8, loads: u64) -> *const u8 {
        for _ in 0..loads {
            // SAFETY: `at` is a line of the ring, and each holds the address of the next: `new` wrote
            // them, and nothing writes after it. The region lives as long as `self`. Volatile, so that
            // the compiler keeps each read.
            at = unsafe { at.cast::<*const u8>().read_volatile() };
        }
        at
    }
}

/// The time of a dependent addition: one cycle of the core. Absent where none are written for this
/// processor.
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
        let mut at = ring.start;
        for _ in 0..1024 {
            assert!(seen.insert(at as usize));
            at = ring.walk(at, 1);
        }
        assert_eq!(at, ring.start);
    }

    #[test]
    fn each_size_has_its_times() {
        let cpus = rustix::thread::sched_getaffinity(None).unwrap();
        let cpu = (0..1024).find(|cpu| cpus.is_set(*cpu)).unwrap() as u32;
        let sizes = vec![8 << 10, 1 << 20];
        let settings = ChaseSettings { cpu, sizes: sizes.clone(), line_bytes: 64, rounds: 7 };
        let chased = measure(&settings, &|_| ()).unwrap();
        rustix::thread::sched_setaffinity(None, &cpus).unwrap();
        assert_eq!(chased.iter().map(|one| one.bytes).collect::<Vec<_>>(), sizes);
        for one in chased {
            assert!(one.load_ns > Some(0.0), "{one:?}");
            let between = one.cycles_95.map(|(low, high)| low..=high);
            assert!(between.is_none_or(|it| it.contains(&one.load_cycles.unwrap())), "{one:?}");
        }
    }
}
