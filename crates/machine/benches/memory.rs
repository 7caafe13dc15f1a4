//! Throughput of the memory system: accesses per second, where all accesses hit L1, or some
//! miss.
//!
//! `cargo bench -p machine --bench memory [NAME]`. Times are CPU times of this process, the best of
//! five. Other processes slow it down, but their time is not counted.

#![allow(
    clippy::disallowed_macros,
    clippy::disallowed_methods,
    clippy::disallowed_types,
    reason = "a program that measures the pure crate: it reads files and the clock, and prints"
)]

use std::hint::black_box;

use machine::memory::{Access, ClassifierConfig, MemorySystem, PageSize};
use machine::{AccessKind, Cycle, PhysicalAddress, SystemModel, VirtualAddress};

const ZEN3: &str = include_str!("../../../machines/zen3.toml");
const SMP8: &str = include_str!("../../../machines/r4400-smp8.toml");
/// The stream itself fits the host's caches.
const STREAM: usize = 1 << 12;
const ROUNDS: usize = 1 << 10;

/// Loads and stores of 8 bytes, two to one, in `bytes` of memory; `local` of 16 stay within 256
/// bytes of where they were.
fn stream(bytes: u64, local: u64, cpus: usize) -> Vec<Access> {
    let mut state = 0x9e37_79b9_7f4a_7c15u64;
    let mut position = 0;
    let mut next = |limit: u64| {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        (state >> 11) % limit
    };
    let access = |n: usize| {
        let near = next(16) < local;
        position = if near { (position & !0xff) | (next(32) * 8) } else { next(bytes / 8) * 8 };
        position %= bytes;
        Access {
            cpu: n / 1000 % cpus,
            kind: if n.is_multiple_of(3) { AccessKind::Store } else { AccessKind::Load },
            virtual_address: VirtualAddress(position),
            physical: PhysicalAddress(position),
            bytes: 8,
            pc: VirtualAddress(0x1000),
            page: PageSize::Small,
            start: Cycle::START,
        }
    };
    (0..STREAM).map(access).collect()
}

fn cpu_seconds() -> f64 {
    let text = std::fs::read_to_string("/proc/self/schedstat").expect("a Linux");
    let ns = text.split(' ').next().and_then(|first| first.parse::<u64>().ok());
    ns.expect("nanoseconds first") as f64 / 1e9
}

fn bench(name: &str, mut system: MemorySystem, accesses: &[Access]) {
    let wanted = std::env::args().skip(1).find(|argument| !argument.starts_with('-'));
    if wanted.is_some_and(|wanted| !name.contains(&wanted)) {
        return;
    }
    let mut best = 0.0f64;
    for _ in 0..5 {
        let before = cpu_seconds();
        for _ in 0..ROUNDS {
            for access in accesses {
                black_box(system.access_blocking(access));
            }
        }
        let number = (ROUNDS * accesses.len()) as f64;
        best = best.max(number / (cpu_seconds() - before) / 1e6);
    }
    let counts = system.counts(0).basic;
    let all = (counts.loads + counts.stores) as f64;
    let missed = (counts.l1d_load_misses + counts.l1d_store_misses) as f64 / all;
    println!("{name:<44} {best:>7.1} M accesses/s  {:>5.1} % L1 misses", 100.0 * missed);
}

fn main() {
    let zen3 = SystemModel::parse(ZEN3).expect("a model that is tested");
    let smp8 = SystemModel::parse(SMP8).expect("a model that is tested");
    let watched = |mut system: MemorySystem, shadow_caches: bool| {
        system.classify_misses(ClassifierConfig { shadow_caches, ..ClassifierConfig::default() });
        system
    };
    let hits = stream(24 << 10, 14, 1);
    bench("zen3, 1 CPU, L1 hits", MemorySystem::new(&zen3, 1), &hits);
    bench(
        "zen3, 1 CPU, L1 hits anywhere in 24 KiB",
        MemorySystem::new(&zen3, 1),
        &stream(24 << 10, 0, 1),
    );
    let mixed = stream(1 << 20, 14, 1);
    bench("zen3, 1 CPU, 1 MiB, mostly local", MemorySystem::new(&zen3, 1), &mixed);
    bench("zen3, 1 CPU, 1 MiB, classes", watched(MemorySystem::new(&zen3, 1), false), &mixed);
    bench(
        "zen3, 1 CPU, 1 MiB, classes and shadow caches",
        watched(MemorySystem::new(&zen3, 1), true),
        &mixed,
    );
    let shared = stream(1 << 16, 14, 8);
    bench("r4400-smp8, 8 CPUs, 64 KiB shared", MemorySystem::new(&smp8, 8), &shared);
    bench("r4400-smp8, 8 CPUs, classes", watched(MemorySystem::new(&smp8, 8), false), &shared);
}
