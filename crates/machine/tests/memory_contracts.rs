//! Timing contracts of the memory system: synthetic streams whose cycles can be computed by hand.
//! The contracts have numbers: a change can name the contracts that it affects.

use machine::core::{Access as CoreAccess, AccessMode, Instruction, Layout, Memory, Template};
use machine::memory::{
    Access, CacheName, ClassifierConfig, Context, GlobalPages, MemoryPort, MemorySystem, MissClass,
    Mode, PageSize, SupplyingLevel, TlbFlush,
};
use machine::schema::set;
use machine::system_model::{Prefetch, Walk, WritePolicy};
use machine::{AccessKind, CodeSpan, Cycle, PhysicalAddress, SystemModel, VirtualAddress};

const ZEN3: &str = include_str!("../../../machines/zen3.toml");
const R4400: &str = include_str!("../../../machines/r4400-1994.toml");
const SMP8: &str = include_str!("../../../machines/r4400-smp8.toml");
const P4: &str = include_str!("../../../machines/p4-1700.toml");
const P3: &str = include_str!("../../../machines/p3-600.toml");
const ULTRA1: &str = include_str!("../../../machines/ultra-1.toml");
const A55: &str = include_str!("../../../machines/cortex-a55.toml");
const T1: &str = include_str!("../../../machines/t1.toml");

/// A model without the features that hide latencies.
fn plain(text: &str) -> SystemModel {
    let mut model = SystemModel::parse(text).unwrap();
    for level in [&mut model.l1i, &mut model.l1d].into_iter().chain(&mut model.l2) {
        level.prefetch = Prefetch::None;
    }
    model.walk = Walk::Fixed;
    model.walk_entries = 0;
    model
}

fn load(cpu: usize, address: u64, start: u64) -> Access {
    Access {
        cpu,
        kind: AccessKind::Load,
        virtual_address: VirtualAddress(address),
        physical: PhysicalAddress(address),
        bytes: 8,
        pc: VirtualAddress(0x40_0000),
        page: PageSize::Huge,
        start: Cycle(start),
    }
}

fn store(cpu: usize, address: u64, start: u64) -> Access {
    Access { kind: AccessKind::Store, ..load(cpu, address, start) }
}

/// The wait of each step of a warm pointer chase through the lines of `line_bytes` of `bytes`.
fn chase(model: &SystemModel, bytes: u64, line_bytes: u64) -> u64 {
    let mut system = MemorySystem::new(model, 1);
    let addresses: Vec<u64> = (0..bytes).step_by(line_bytes as usize).collect();
    let mut waits = Vec::new();
    for _ in 0..3 {
        waits =
            addresses.iter().map(|address| system.access_blocking(&load(0, *address, 0))).collect();
    }
    assert!(waits.iter().all(|wait| *wait == waits[0]), "each step waits as long");
    waits[0]
}

#[test]
fn m1_a_pointer_chase_takes_the_latency_of_the_level_it_fits_into() {
    for text in [ZEN3, R4400] {
        let mut model = plain(text);
        (model.tlb_miss_cycles, model.memory_line_cycles) = (0, 0);
        if let Some(l3) = &mut model.l3 {
            // Smaller, so that it takes less time to fill.
            l3.size_bytes = 2 << 20;
        }
        let (l1, l2) = (&model.l1d, model.l2.as_ref().unwrap());
        assert_eq!(chase(&model, l1.size_bytes, l1.line_bytes), 0);
        // Twice the size of a cache misses it each time with LRU.
        assert_eq!(chase(&model, 2 * l1.size_bytes, l1.line_bytes), model.l2_hit_cycles.unwrap());
        assert_eq!(chase(&model, l2.size_bytes, l2.line_bytes), model.l2_hit_cycles.unwrap());
        let next = model.l3_hit_cycles.unwrap_or(model.memory_cycles);
        assert_eq!(chase(&model, 2 * l2.size_bytes, l2.line_bytes), next);
        if let Some(l3) = &model.l3 {
            assert_eq!(chase(&model, l3.size_bytes, 64), next);
            assert_eq!(chase(&model, 2 * l3.size_bytes, 64), model.memory_cycles);
        }
    }
}

#[test]
fn without_a_second_level_memory_supplies_what_the_first_misses_and_takes_its_dirty_lines() {
    for write in [WritePolicy::Back, WritePolicy::Through] {
        let mut model = plain(R4400);
        (model.tlb_miss_cycles, model.memory_line_cycles, model.l1d.write) = (0, 0, write);
        (model.l2, model.l2_hit_cycles) = (None, None);
        let l1 = &model.l1d;
        assert_eq!(chase(&model, l1.size_bytes, l1.line_bytes), 0);
        assert_eq!(chase(&model, 2 * l1.size_bytes, l1.line_bytes), model.memory_cycles);
        let mut system = MemorySystem::new(&model, 1);
        let lines = 2 * l1.size_bytes / l1.line_bytes;
        for number in 0..lines {
            let response = system.access(&store(0, number * l1.line_bytes, 1000 * number));
            assert_eq!(response.supplier, SupplyingLevel::Memory, "{write:?}");
        }
        let counts = system.counts(0);
        assert_eq!((counts.basic.l2_data_misses, counts.memory_reads), (0, lines));
        // A write-back L1D still holds as many lines as it can, and a write-through one sent each store on.
        let held = l1.size_bytes / l1.line_bytes;
        let written = if write == WritePolicy::Back { lines - held } else { lines };
        assert_eq!(counts.memory_writes, written, "{write:?}");
    }
}

#[test]
fn m2_a_stride_over_sets_keeps_as_many_lines_as_there_are_ways() {
    let model = plain(ZEN3);
    let way_bytes = model.l1d.size_bytes / u64::from(model.l1d.ways);
    for lines in 1..=16u64 {
        let mut system = MemorySystem::new(&model, 1);
        for _ in 0..3 {
            (0..lines).for_each(|n| {
                system.access_blocking(&load(0, n * way_bytes, 0));
            });
        }
        let before = system.counts(0).basic.l1d_load_misses;
        (0..lines).for_each(|n| {
            system.access_blocking(&load(0, n * way_bytes, 0));
        });
        let misses = system.counts(0).basic.l1d_load_misses - before;
        assert_eq!(misses, if lines <= 8 { 0 } else { lines }, "{lines} lines of a set");
    }
}

#[test]
fn m3_misses_overlap_up_to_the_registers_and_take_turns_beyond() {
    for mshrs in [1u64, 4, 10] {
        let mut model = plain(ZEN3);
        (model.l1d.mshrs, model.memory_line_cycles) = (mshrs as u32, 0);
        let memory = model.memory_cycles;
        let mut system = MemorySystem::new(&model, 1);
        // Translates the page before the timed accesses.
        system.access(&load(0, 1 << 29, 0));
        let start = 10_000;
        for n in 0..40u64 {
            let answer = system.access(&load(0, n * 4096, start));
            let expected = start + (n / mshrs + 1) * memory;
            assert_eq!(
                (answer.ready_at.0, answer.supplier),
                (expected, SupplyingLevel::Memory),
                "{n}"
            );
        }
    }
}

#[test]
fn m4_a_second_miss_of_a_line_waits_for_the_first() {
    let model = plain(ZEN3);
    let mut system = MemorySystem::new(&model, 1);
    system.access(&load(0, 1 << 29, 0));
    let first = system.access(&load(0, 0, 1000)).ready_at.0;
    assert_eq!(first, 1000 + model.memory_cycles);
    assert_eq!(system.access(&load(0, 8, 1100)).ready_at.0, first);
    assert_eq!(system.access(&load(0, 8, first + 5)).ready_at.0, first + 5);
    assert_eq!(system.counts(0).memory_reads, 2);
}

#[test]
fn m5_the_way_to_memory_limits_the_bandwidth() {
    let mut model = plain(ZEN3);
    (model.memory_line_cycles, model.l1d.mshrs) = (50, 64);
    let mut system = MemorySystem::new(&model, 1);
    system.access(&load(0, 1 << 29, 0));
    for n in 0..30u64 {
        let ready = system.access(&load(0, n * 64, 5000)).ready_at.0;
        assert_eq!(ready, 5000 + n * 50 + model.memory_cycles, "{n}");
    }
    assert_eq!(system.counts(0).bus_wait_cycles, (0..30).map(|n| n * 50).sum::<u64>());
}

#[test]
fn m6_tlbs_reach_as_far_as_their_entries() {
    // 64 entries; pages of 4 KiB, each with a line in another set.
    let mut model = plain(ZEN3);
    model.tlb_miss_cycles = 33;
    let wait = |pages: u64, page: PageSize, shift: u32, model: &SystemModel| {
        let mut system = MemorySystem::new(model, 1);
        let mut total = 0;
        for _ in 0..4 {
            let each =
                (0..pages).map(|n| Access { page, ..load(0, (n << shift) | (n % 64 * 64), 0) });
            total = each.map(|access| system.access_blocking(&access)).sum();
        }
        total / pages
    };
    assert_eq!(wait(64, PageSize::Small, 12, &model), 0);
    let stlb_hit_cycles = model.stlb_hit_cycles.unwrap();
    // 65 pages in a cycle miss each time with LRU; the second TLB holds them.
    assert_eq!(wait(65, PageSize::Small, 12, &model), stlb_hit_cycles);
    assert_eq!(wait(64, PageSize::Large, 21, &model), 0);
    // The second TLB holds pages of 1 GiB as pages of 2 MiB; here all of them share a set.
    assert_eq!(wait(65, PageSize::Huge, 30, &model), stlb_hit_cycles + 33);
    model.stlb = None;
    assert_eq!(wait(65, PageSize::Small, 12, &model), 33);
}

#[test]
fn m7_a_walk_loads_a_table_for_each_level() {
    let mut model = plain(ZEN3);
    (model.walk, model.memory_line_cycles) = (Walk::Caches, 0);
    let cold = model.stlb_hit_cycles.unwrap() + model.memory_cycles;
    let table = model.l1_hit_cycles + model.memory_cycles;
    for (page, levels) in [(PageSize::Small, 4), (PageSize::Large, 3), (PageSize::Huge, 2)] {
        let mut system = MemorySystem::new(&model, 1);
        let first = Access { page, ..load(0, 0x7123_4567_8000, 0) };
        let first = Access { physical: PhysicalAddress(0x8000), ..first };
        assert_eq!(system.access_blocking(&first), cold + levels * table, "{page:?}");
        assert_eq!(system.counts(0).walk_loads, levels);
    }
    // The next page's entry lies in the same line; with a page walk cache it is one load.
    for (entries, loads) in [(0, 4), (16, 1)] {
        model.walk_entries = entries;
        let mut system = MemorySystem::new(&model, 1);
        system.access_blocking(&Access { page: PageSize::Small, ..load(0, 0x10_0000, 0) });
        let next = Access { page: PageSize::Small, ..load(0, 0x10_1000, 0) };
        let hits = loads * model.l1_hit_cycles;
        assert_eq!(system.access_blocking(&next), cold + hits, "{entries} entries");
        assert_eq!(system.counts(0).walk_loads, 4 + loads);
    }
}

#[test]
fn m8_coherence_takes_its_time_by_case() {
    let mut model = plain(&set(SMP8, &["cache_to_cache_cycles=70"]).unwrap());
    model.upgrade_cycles = Some(30);
    let (memory, l2) = (model.memory_cycles, model.l2_hit_cycles.unwrap());
    let mut system = MemorySystem::new(&model, 8);
    for cpu in 0..8 {
        // A load of another granule translates the page.
        system.access_blocking(&load(cpu, 0x4800 + 128 * cpu as u64, 0));
    }
    let address = 0x4000;
    // No core holds the granule: memory supplies it. With three states, memory also supplies further readers.
    assert_eq!(system.access_blocking(&load(0, address, 0)), memory);
    assert_eq!(system.access_blocking(&load(1, address, 0)), memory);
    // With three states, even the only holder needs an upgrade to write.
    assert_eq!(system.access_blocking(&store(0, address, 0)), 30);
    assert_eq!(system.access_blocking(&store(0, address + 8, 0)), 0);
    // Core 1 lost the granule, and gets it from the writer, core 0. The writer keeps it for reading.
    assert_eq!(system.access_blocking(&load(1, address, 0)), 70);
    assert_eq!(system.access_blocking(&load(0, address, 0)), 0);
    // Core 1 got all 128 bytes: the granule's other line of L1 hits L2.
    assert_eq!(system.access_blocking(&load(1, address + 64, 0)), l2);
    // Core 2 writes without holding the granule: it invalidates the readers, and memory supplies the granule.
    assert_eq!(system.access_blocking(&store(2, address, 0)), memory);
    // Core 3 invalidates the previous writer, whose cache supplies the granule.
    assert_eq!(system.access_blocking(&store(3, address, 0)), 70);
    let counts: Vec<_> = (0..4).map(|cpu| system.counts(cpu)).collect();
    assert_eq!(counts.iter().map(|counts| counts.upgrades).collect::<Vec<_>>(), [1, 0, 0, 0]);
    assert_eq!(counts.iter().map(|counts| counts.cache_to_cache).collect::<Vec<_>>(), [0, 1, 0, 1]);
    // Each core that lost the granule lost lines of L1D and of L2. Core 1 had two lines of L1D.
    assert_eq!(counts.iter().map(|counts| counts.invalidated).collect::<Vec<_>>(), [2, 5, 2, 0]);
    // The only holder of a granule invalidates no other copy: it needs the right to write, but the upgrade counts
    // nothing.
    assert_eq!(system.access_blocking(&load(4, address + 0x100, 0)), memory);
    assert_eq!(system.access_blocking(&store(4, address + 0x100, 0)), 30);
    assert_eq!(system.counts(4).upgrades, 0);
    // With four states, the only holder writes without an upgrade.
    let mut system = MemorySystem::new(&plain(ZEN3), 8);
    system.access_blocking(&load(0, address, 0));
    assert_eq!((system.access_blocking(&store(0, address, 0)), system.counts(0).upgrades), (0, 0));
}

#[test]
fn m8_only_misses_of_fetches_and_data_count_as_supplied_by_another_core() {
    let mut model = plain(ZEN3);
    model.l1d.prefetch = Prefetch::NextLine;
    model.walk = Walk::Caches;
    let small = |access: Access| Access { page: PageSize::Small, ..access };
    let mut system = MemorySystem::new(&model, 2);
    for line in 0..8 {
        system.access_blocking(&small(store(0, 0x10_0000 + 64 * line, 0)));
    }
    // Core 0 also supplies the entries of the page tables, and the next line.
    let supplier = system.access(&small(load(1, 0x10_0000, 0))).supplier;
    let counts = system.counts(1);
    assert_eq!(supplier, SupplyingLevel::OtherCore);
    assert_eq!((counts.walk_loads, counts.prefetches), (4, 1));
    assert_eq!((counts.cache_to_cache, counts.memory_reads), (1, 0));
}

#[test]
fn m9_true_and_false_sharing_are_told_apart() {
    let mut system = MemorySystem::new(&plain(SMP8), 2);
    system.classify_misses(ClassifierConfig::default());
    let sharing = |system: &MemorySystem| {
        let counts = system.class_counts(CacheName::L1d);
        (
            counts.misses_of_class(MissClass::TrueSharing),
            counts.misses_of_class(MissClass::FalseSharing),
        )
    };
    let address = 0x8000;
    system.access_blocking(&load(0, address, 0));
    system.access_blocking(&store(1, address, 0));
    // Core 0 reads the word that core 1 wrote.
    system.access_blocking(&load(0, address, 0));
    assert_eq!(sharing(&system), (1, 0));
    // Core 1 writes the adjacent word.
    system.access_blocking(&store(1, address + 8, 0));
    system.access_blocking(&load(0, address, 0));
    assert_eq!(sharing(&system), (1, 1));
    // Core 1 takes the line with a write of the adjacent word. While it holds the line, it also writes the
    // word that core 0 reads later.
    system.access_blocking(&store(1, address + 8, 0));
    system.access_blocking(&store(1, address, 0));
    system.access_blocking(&load(0, address, 0));
    assert_eq!(sharing(&system), (2, 1));
    // A write to another line of L1 in the same 128 bytes of L2 is false sharing, too.
    system.access_blocking(&load(0, address + 16, 0));
    system.access_blocking(&store(1, address + 64, 0));
    system.access_blocking(&load(0, address + 16, 0));
    assert_eq!(sharing(&system), (2, 2));
}

#[test]
fn m10_misses_are_charged_to_who_evicted() {
    let mut system = MemorySystem::new(&plain(R4400), 1);
    system.classify_misses(ClassifierConfig {
        shadow_caches: true,
        misses_kept: 100,
        ..ClassifierConfig::default()
    });
    let context = |mode, process, service| Context { mode, process, service };
    let a = context(Mode::User, 1, None);
    let b = context(Mode::User, 2, None);
    let kernel = context(Mode::Kernel, 1, None);
    let tick = context(Mode::Kernel, 1, Some(236));
    // Three lines that share a set of L1D, which has two ways.
    let line = |n: u64| n << 13;
    let mut touch = |context, n| {
        system.set_context(0, context);
        system.access_blocking(&load(0, line(n), 0));
    };
    touch(a, 0); // cold
    touch(a, 1); // cold
    touch(a, 2); // cold, evicts 0
    touch(a, 0); // USER-self, evicts 1
    touch(b, 1); // USER-other: a's line, and b asks for it; evicts 2
    touch(kernel, 2); // KERN-other, evicts 0
    touch(tick, 3); // cold, evicts 1
    touch(kernel, 1); // KERN-self: the kernel did, in an interrupt; evicts 2
    touch(a, 2); // USER-other
    let counts = system.class_counts(CacheName::L1d);
    assert_eq!(counts.by_mode[Mode::Kernel as usize], [1, 1, 1, 0, 0, 0, 0]);
    assert_eq!(counts.by_mode[Mode::User as usize], [3, 1, 2, 0, 0, 0, 0]);
    assert_eq!(counts.evicted_by_service(236), 1);
    // 16 KiB have room for all of them: the misses are conflicts.
    assert_eq!((counts.conflict, counts.capacity), (5, 0));
    let (misses, more) = system.take_misses();
    let of_l1d: Vec<_> = misses.iter().filter(|miss| miss.cache == CacheName::L1d).collect();
    assert_eq!((of_l1d.len(), more), (9, 0));
    assert_eq!((of_l1d[7].evicted_by, of_l1d[7].physical.0), (Some(tick), line(1)));
}

#[test]
fn m10_lines_from_before_the_classification_are_conflicts_or_capacity_as_all_others() {
    // Three lines that share a set of L1D, which has two ways; and as many lines as it holds.
    let line = |n: u64| n << 13;
    let start = || {
        let mut system = MemorySystem::new(&plain(R4400), 1);
        system.access_blocking(&load(0, line(0), 0));
        system.access_blocking(&load(0, line(1), 0));
        system.classify_misses(ClassifierConfig {
            shadow_caches: true,
            ..ClassifierConfig::default()
        });
        system
    };
    let counts = |system: &MemorySystem| {
        let counts = system.class_counts(CacheName::L1d);
        (counts.conflict, counts.capacity)
    };
    let mut system = start();
    system.access_blocking(&load(0, line(2), 0)); // cold, evicts 0
    system.access_blocking(&load(0, line(0), 0)); // 16 KiB have room for it
    assert_eq!(counts(&system), (1, 0));
    let mut system = start();
    for n in 0..1024 {
        system.access_blocking(&load(0, line(16) + 16 * n, 0));
    }
    system.access_blocking(&load(0, line(0), 0));
    assert_eq!(counts(&system), (0, 1));
}

#[test]
fn m11_a_trace_cache_holds_code_by_entry() {
    let mut system = MemorySystem::new(&plain(P4), 1);
    let mut fetch = |address: u64, bytes: u32| {
        let access = Access { kind: AccessKind::Fetch, bytes, ..load(0, address, 0) };
        let before = system.counts(0).basic.l1i_misses;
        system.access_blocking(&access);
        system.counts(0).basic.l1i_misses - before
    };
    // 40 bytes from an entry point are three traces; from another entry point they are other
    // traces.
    assert_eq!(fetch(0x1004, 40), 3);
    assert_eq!(fetch(0x2000, 16), 1);
    assert_eq!(fetch(0x1004, 40), 0);
    assert_eq!(fetch(0x1005, 40), 3);
    assert_eq!(fetch(0x1014, 16), 0);
}

#[test]
fn m12_prefetchers_hide_what_they_foresee() {
    let mut model = plain(ZEN3);
    model.l1d.prefetch = Prefetch::NextLine;
    let misses = |model: &SystemModel, step: u64| {
        let mut system = MemorySystem::new(model, 1);
        (0..64).for_each(|n| {
            system.access_blocking(&load(0, n * step, 0));
        });
        let counts = system.counts(0);
        (counts.basic.l1d_load_misses, counts.prefetches_used)
    };
    // All lines of a page: only the first misses.
    assert_eq!(misses(&model, 64), (1, 63));
    assert_eq!(misses(&model, 128), (64, 0));
    // A stride is known from its third step on, and prefetches stay in the page.
    model.l1d.prefetch = Prefetch::Stride;
    let (missed, used) = misses(&model, 256);
    assert_eq!(missed + used, 64);
    assert_eq!(missed, 4 + 3);
}

#[test]
fn m13_a_fixed_stream_counts_the_same_for_ever() {
    let mut model = SystemModel::parse(ZEN3).unwrap();
    (model.l1d.replacement, model.cpus) = (machine::Replacement::Random, 4);
    let mut system = MemorySystem::new(&model, 4);
    system.classify_misses(ClassifierConfig::default());
    let mut state = 1u64;
    for n in 0..200_000u64 {
        state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
        let reach = if n % 3 == 0 { 1 << 23 } else { 1 << 15 };
        let address = ((state >> 33) % reach) & !7;
        let kind =
            [AccessKind::Load, AccessKind::Store, AccessKind::Fetch][(state >> 61) as usize % 3];
        let cpu = (n / 100 % 4) as usize;
        let access = Access { kind, page: PageSize::Small, ..load(cpu, address, 0) };
        system.access_blocking(&access);
    }
    let sum = |count: fn(&machine::memory::CpuCounts) -> u64| -> u64 {
        (0..4).map(|cpu| count(&system.counts(cpu))).sum()
    };
    let counts = [
        sum(|counts| counts.basic.cycles),
        sum(|counts| counts.basic.l1d_load_misses + counts.basic.l1d_store_misses),
        sum(|counts| counts.memory_reads),
        sum(|counts| counts.cache_to_cache),
        sum(|counts| counts.upgrades),
        sum(|counts| counts.prefetches_used),
        system.class_counts(CacheName::L1d).misses_of_class(MissClass::TrueSharing),
    ];
    assert_eq!(counts, [27_915_654, 119_586, 57_135, 51_811, 17_868, 58, 10_021]);
    assert_eq!(system.verify(), Ok(()));
}

#[test]
fn m14_a_second_pass_over_more_than_a_cache_holds_misses_for_capacity() {
    // 4 MiB, stored twice: far more than L1 and L2, and lines fill the sets evenly. Write-backs and
    // prefetches come between the look-up of a line and the classification of its miss.
    for (text, prefetches) in [(ZEN3, false), (ZEN3, true), (R4400, false), (P3, false)] {
        let model = if prefetches { SystemModel::parse(text).unwrap() } else { plain(text) };
        let mut system = MemorySystem::new(&model, 1);
        system.classify_misses(ClassifierConfig {
            shadow_caches: true,
            ..ClassifierConfig::default()
        });
        for _ in 0..2 {
            for address in (0..4 << 20).step_by(8) {
                system.access_blocking(&store(0, address, 0));
            }
        }
        for name in [CacheName::L1d, CacheName::L2] {
            let counts = system.class_counts(name);
            let again = counts.misses_of_class(MissClass::SameSelf);
            assert!(again > 0, "{}: {name:?}", model.name);
            assert_eq!(
                (counts.capacity, counts.conflict),
                (again, 0),
                "{}, prefetches {prefetches}: {name:?}",
                model.name
            );
        }
    }
}

#[test]
fn m15_lines_of_one_set_that_there_is_room_for_miss_for_conflict() {
    // Dirty lines in one set of L1D and of L2: twice the ways of L2.
    for text in [ZEN3, R4400, P3] {
        let model = plain(text);
        let mut system = MemorySystem::new(&model, 1);
        system.classify_misses(ClassifierConfig {
            shadow_caches: true,
            ..ClassifierConfig::default()
        });
        let ways = u64::from(model.l2.as_ref().unwrap().ways.max(model.l1d.ways));
        let apart = model.l2.as_ref().unwrap().size_bytes;
        for _ in 0..5 {
            (0..2 * ways).for_each(|n| {
                system.access_blocking(&store(0, n * apart, 0));
            });
        }
        let counts = system.class_counts(CacheName::L2);
        assert_eq!((counts.capacity, counts.conflict), (0, 8 * ways), "{}", model.name);
    }
}

#[test]
fn m16_a_locked_read_modify_write_is_one_request_for_ownership() {
    let (model, at) = (plain(ZEN3), 0x4000);
    let other = model.cache_to_cache_cycles.unwrap();
    let upgrade = model.upgrade_cycles.unwrap();
    let mut system = MemorySystem::new(&model, 4);
    for cpu in 0..4 {
        system.access_blocking(&load(cpu, 0x4800, 0));
    }
    // A locked load takes the line from its writer, with the right to write.
    let mut locked = |cpu: usize| {
        let read = Access { kind: AccessKind::LoadLocked, ..load(cpu, at, 0) };
        system.access_blocking(&read) + system.access_blocking(&store(cpu, at, 0))
    };
    locked(0);
    assert_eq!([1, 0, 2, 2].map(&mut locked), [other, other, other, 0]);
    assert_eq!(system.counts(1).upgrades + system.counts(0).upgrades, 0);
    // For a line that others only read, a locked load requests only the ownership.
    system.access_blocking(&load(0, at, 0));
    system.access_blocking(&load(1, at, 0));
    let read = Access { kind: AccessKind::LoadLocked, ..load(0, at, 0) };
    assert_eq!(system.access_blocking(&read), upgrade);
    assert_eq!(system.access_blocking(&store(0, at, 0)), 0);
    assert_eq!((system.counts(0).upgrades, system.verify()), (1, Ok(())));
}

/// Kernel addresses, all of whose pages are global.
const KERNEL: u64 = 0xffff_8880_0000_0000;

#[test]
fn m17_a_flush_drops_what_it_names_and_nothing_else() {
    let mut model = plain(ZEN3);
    (model.walk, model.walk_entries) = (Walk::Caches, 64);
    let mut system = MemorySystem::new(&model, 2);
    // Whether pages of the first processor miss both TLBs, and what a walk loads: a user page, the
    // page after it, and a page of the kernel.
    let mut misses = |changes: &[(Option<u16>, Option<TlbFlush>)]| {
        for (space, flush) in changes.iter().copied() {
            space.into_iter().for_each(|space| {
                system.set_address_space(0, space, PhysicalAddress(0x1000 * u64::from(space)));
            });
            flush.into_iter().for_each(|flush| system.flush_tlbs(0, flush));
        }
        [0x1000, 0x2000, KERNEL].map(|address| {
            let before = (system.counts(0).basic.dtlb_misses, system.counts(0).walk_loads);
            let access = Access { page: PageSize::Small, ..load(0, address, 0) };
            let access = Access { physical: PhysicalAddress(address & 0xffff_ffff), ..access };
            system.access_blocking(&access);
            let after = system.counts(0);
            (after.basic.dtlb_misses - before.0, after.walk_loads - before.1)
        })
    };
    let (hit, near, far) = ((0, 0), (1, 1), (1, 4));
    assert_eq!(misses(&[]), [far, near, far]);
    assert_eq!(misses(&[]), [hit, hit, hit]);
    // A write of cr3 without PCIDs: the kernel's page is global.
    assert_eq!(misses(&[(None, Some(TlbFlush::Space(0)))]), [far, near, hit]);
    // With PCIDs: another address space misses, and the translations of the first address space stay.
    assert_eq!(misses(&[(Some(5), None)]), [far, near, hit]);
    assert_eq!(misses(&[(Some(0), None)]), [hit, hit, hit]);
    assert_eq!(misses(&[(None, Some(TlbFlush::Space(5)))]), [hit, hit, hit]);
    assert_eq!(misses(&[(Some(5), None)]), [far, near, hit]);
    assert_eq!(misses(&[(Some(0), None)]), [hit, hit, hit]);
    // `invlpg` drops a page, and all tables of the address space from the page walk cache.
    let page = |address, space, global| {
        let virtual_address = VirtualAddress(address);
        (None, Some(TlbFlush::Page { virtual_address, space, global }))
    };
    assert_eq!(misses(&[page(0x1fff, 0, true)]), [far, hit, hit]);
    assert_eq!(misses(&[page(KERNEL, 0, true)]), [hit, hit, far]);
    assert_eq!(misses(&[page(KERNEL, 0, false), page(0x2000, 5, true)]), [hit, hit, hit]);
    assert_eq!(misses(&[(None, Some(TlbFlush::NonGlobal))]), [far, near, hit]);
    assert_eq!(misses(&[(None, Some(TlbFlush::All))]), [far, near, far]);
    // Entries in page tables of two processes lie in different lines.
    let mut system = MemorySystem::new(&model, 1);
    let read = Access { page: PageSize::Small, ..load(0, 0x1000, 0) };
    system.access_blocking(&read);
    system.set_address_space(0, 0, PhysicalAddress(0x7000));
    system.flush_tlbs(0, TlbFlush::Space(0));
    let wait = system.access_blocking(&read);
    assert!(wait > 4 * model.memory_cycles, "{wait}");
}

#[test]
fn with_isolated_page_tables_a_write_of_cr3_keeps_only_the_kernels_entry() {
    let mut system = MemorySystem::new(&plain(ZEN3), 1);
    let entry_code = 0xffff_ffff_81a0_0000;
    let pages = [KERNEL, entry_code, 0xffff_fe00_0000_0000];
    let misses_after_flush = |system: &mut MemorySystem| {
        system.flush_tlbs(0, TlbFlush::Space(0));
        pages.map(|address| {
            let before = system.counts(0).basic.dtlb_misses;
            system.access_blocking(&Access { page: PageSize::Small, ..load(0, address, 0) });
            system.counts(0).basic.dtlb_misses - before
        })
    };
    assert_eq!(misses_after_flush(&mut system), [1, 1, 1]);
    assert_eq!(misses_after_flush(&mut system), [0, 0, 0]);
    // The change itself drops everything.
    let isolated = GlobalPages::isolated(entry_code..entry_code + 0x2000);
    system.set_global_pages(0, isolated);
    assert_eq!(misses_after_flush(&mut system), [1, 1, 1]);
    assert_eq!(misses_after_flush(&mut system), [1, 0, 0]);
    system.set_global_pages(0, isolated);
    assert_eq!(misses_after_flush(&mut system), [1, 0, 0], "no change");
}

#[test]
fn m18_a_prefetched_line_arrives_when_memory_delivers_it() {
    let mut model = plain(ZEN3);
    (model.memory_line_cycles, model.l1d.prefetch) = (0, Prefetch::NextLine);
    model.l1i.prefetch = Prefetch::NextLine;
    let memory = model.memory_cycles;
    for kind in [AccessKind::Load, AccessKind::Fetch] {
        let request = |address, now| Access { kind, ..load(0, address, now) };
        let mut system = MemorySystem::new(&model, 1);
        // Translates the page before the timed accesses.
        system.access(&request(1 << 29, 0));
        // The next line is requested with the first one, not when that has arrived.
        assert_eq!(system.access(&request(0, 1000)).ready_at.0, 1000 + memory, "{kind:?}");
        let late = system.access(&request(64, 1100));
        assert_eq!((late.ready_at.0, late.under_way), (1000 + memory, true), "{kind:?}");
        // Its own prefetch started at its use.
        let next = system.access(&request(128, 1200));
        assert_eq!((next.ready_at.0, next.under_way), (1100 + memory, true), "{kind:?}");
        let there = system.access(&request(192, 5000));
        assert_eq!((there.ready_at.0, there.under_way), (5000, false), "{kind:?}");
    }
    // Into L2, too: the line that L2 prefetched with the first one comes from L2, but not earlier
    // than it gets there.
    let mut model = plain(ZEN3);
    model.memory_line_cycles = 0;
    model.l2.as_mut().unwrap().prefetch = Prefetch::NextLine;
    model.l2.as_mut().unwrap().prefetch_distance = 1;
    let mut system = MemorySystem::new(&model, 1);
    system.access(&load(0, 1 << 29, 0));
    system.access(&load(0, 0, 1000));
    assert_eq!(system.access(&load(0, 64, 1100)).ready_at.0, 1000 + memory);
    assert_eq!(system.access(&load(0, 128, 5000)).ready_at.0, 5000 + model.l2_hit_cycles.unwrap());
}

#[test]
fn m19_a_line_occupies_the_way_from_its_level() {
    let mut model = plain(ZEN3);
    model.l2.as_mut().unwrap().line_cycles = 5;
    let mut system = MemorySystem::new(&model, 1);
    let lines = 600;
    for n in 0..lines {
        system.access_blocking(&load(0, n * 64, 0));
    }
    for n in 0..20 {
        let response = system.access(&load(0, n * 64, 1_000_000));
        assert_eq!(response.supplier, SupplyingLevel::L2);
        let expected = 1_000_000 + n * 5 + model.l2_hit_cycles.unwrap();
        assert_eq!(response.ready_at.0, expected, "{n}");
    }
}

#[test]
fn m20_walks_wait_for_a_walker_and_for_lines_under_way() {
    let mut model = plain(ZEN3);
    (model.walk, model.memory_line_cycles, model.stlb) = (Walk::Caches, 0, None);
    (model.l1d.mshrs, model.tlb_miss_cycles) = (64, 0);
    let table = model.l1_hit_cycles + model.memory_cycles;
    // Pages of 1 GiB, 512 GiB apart: each walk loads two tables, which are in lines of their own.
    let translated = |walkers, at: fn(u64) -> u64| {
        model.walkers = walkers;
        let mut system = MemorySystem::new(&model, 1);
        let address = |n| Access { physical: PhysicalAddress(64 * n), ..load(0, at(n), 1_000) };
        [0, 1, 2, 3].map(|n| system.access(&address(n)).translation_cycles)
    };
    let mut translated = translated;
    let apart = |n| n << 42;
    assert_eq!(translated(0, apart), [2 * table; 4]);
    assert_eq!(translated(2, apart), [2 * table, 2 * table, 4 * table, 4 * table]);
    // Entries of adjacent pages lie in one line: the second walk waits for it, too, and does not
    // find it in L1 at once.
    let adjacent = |n| n << 30;
    assert_eq!(translated(0, adjacent), [2 * table; 4]);
    // A second access to a page waits for its translation.
    let same = |_| 1 << 30;
    assert_eq!(translated(0, same), [2 * table; 4]);
}

#[test]
fn m21_accesses_to_devices_come_one_after_the_other_and_stores_are_posted() {
    let mut model = plain(ZEN3);
    model.device_read_cycles = Some(1_000);
    let mut ready = |write_cycles| {
        model.device_write_cycles = write_cycles;
        let mut system = MemorySystem::new(&model, 2);
        // Translates the page before the timed accesses.
        for cpu in 0..2 {
            system.access(&load(cpu, 0x20_0000, 0));
        }
        let mut access = |access: Access| system.access_device(&access).ready_at.0;
        [
            access(load(0, 0xfee0_0000 & 0xf_ffff, 10_000)),
            access(load(0, 0x10_0008, 10_000)), // the same line
            access(store(0, 0x10_0010, 10_100)),
            access(store(0, 0x10_0018, 12_100)),
            access(load(0, 0x10_0000, 12_100)),
            access(load(1, 0x10_0000, 12_100)), // another processor
        ]
    };
    assert_eq!(ready(Some(20)), [11_000, 12_000, 12_000, 12_100, 13_120, 13_100]);
    // A bus that does not post them.
    assert_eq!(ready(None), [11_000, 12_000, 13_000, 14_000, 15_000, 13_100]);
}

#[test]
fn m22_a_load_from_the_local_apic_does_not_leave_the_core() {
    let mut model = plain(ZEN3);
    model.device_read_cycles = Some(1_000);
    model.local_device_cycles = Some(80);
    let mut system = MemorySystem::new(&model, 1);
    system.access(&load(0, 0x20_0000, 0));
    let mut wait = |address, now| system.access_device(&load(0, address, now)).ready_at.0 - now;
    assert_eq!([wait(0x10_0000, 5_000), wait(0x11_0020, 10_000)], [1_000, 1_000]);
    system.set_local_device_page(VirtualAddress(0x11_0000));
    let mut wait = |address, now| system.access_device(&load(0, address, now)).ready_at.0 - now;
    assert_eq!([wait(0x10_0000, 15_000), wait(0x11_0020, 20_000)], [1_000, 80]);
}

#[test]
fn m23_a_flushed_line_comes_from_memory_again() {
    let model = plain(ZEN3);
    let memory = model.memory_cycles;
    let mut system = MemorySystem::new(&model, 2);
    let load_at = |system: &mut MemorySystem, cpu| system.access_blocking(&load(cpu, 0x4000, 0));
    load_at(&mut system, 0);
    system.access_blocking(&store(0, 0x4000, 0));
    assert_eq!(load_at(&mut system, 0), 0);
    // `clwb`: written to memory, and kept.
    system.flush_line(1, PhysicalAddress(0x4008), true);
    assert_eq!((system.counts(1).memory_writes, load_at(&mut system, 0)), (1, 0));
    assert_eq!(system.dirty_copies(PhysicalAddress(0x4000)), []);
    // `clflush`, by another processor, of a line that is dirty again.
    system.access_blocking(&store(0, 0x4000, 0));
    system.flush_line(1, PhysicalAddress(0x4008), false);
    assert_eq!(
        (system.counts(1).memory_writes, system.holds(0, PhysicalAddress(0x4000))),
        (2, false)
    );
    assert_eq!(system.verify(), Ok(()));
    assert_eq!(load_at(&mut system, 0), memory);
}

#[test]
fn m24_stores_around_the_caches_are_combined_by_line() {
    let model = plain(ZEN3);
    let memory = model.memory_cycles;
    let mut system = MemorySystem::new(&model, 1);
    system.access_blocking(&load(0, 0x4000, 0));
    let mut around = |address: u64, now: u64| {
        let access = CoreAccess {
            virtual_address: VirtualAddress(address),
            physical: Some(PhysicalAddress(address)),
            instruction: 0,
            bytes: 8,
            write: true,
        };
        let page = PageSize::Huge;
        MemoryPort { system: &mut system, cpu: 0, code: None, pc: VirtualAddress::default(), page }
            .access(&access, AccessMode::StoreAround, Cycle(now))
    };
    // The eighth completes the line, which no store waits for but one to the same line.
    let first: Vec<u64> = (0..8).map(|part| around(0x4000 + 8 * part, 10_000)).collect();
    assert_eq!(first, [0; 8]);
    assert_eq!(around(0x8000, 10_000), 0);
    assert_eq!(around(0x4000, 10_100), memory - 100);
    assert_eq!(around(0x4000, 10_100 + memory), 0);
    // The cache has lost the line, and memory got it once.
    assert_eq!(
        (system.holds(0, PhysicalAddress(0x4000)), system.counts(0).memory_writes),
        (false, 1)
    );
}

#[test]
fn m25_a_store_to_code_drops_it_from_l1i() {
    let model = plain(ZEN3);
    let mut system = MemorySystem::new(&model, 2);
    let fetch = |cpu| Access { kind: AccessKind::Fetch, ..load(cpu, 0x4000, 0) };
    let conflicting = |cpu| Access { kind: AccessKind::Fetch, ..load(cpu, 0x9000, 0) };
    let misses = |system: &MemorySystem| [0, 1].map(|cpu| system.counts(cpu).basic.l1i_misses);
    for cpu in [0, 1] {
        system.access_blocking(&fetch(cpu));
        system.access_blocking(&conflicting(cpu));
        system.access_blocking(&fetch(cpu));
    }
    assert_eq!(misses(&system), [2, 2]);
    system.code_written(0, PhysicalAddress(0x4010), 4);
    assert_eq!(system.verify(), Ok(()));
    for cpu in [0, 1] {
        system.access_blocking(&conflicting(cpu));
        system.access_blocking(&fetch(cpu));
    }
    assert_eq!(misses(&system), [3, 3]);
}

#[test]
fn m26_a_miss_has_the_address_of_its_instruction() {
    let span = |virtual_address, physical, bytes| CodeSpan {
        virtual_address: VirtualAddress(virtual_address),
        physical: PhysicalAddress(physical),
        bytes,
    };
    let spans = (span(0x40_0ffe, 0x9_0ffe, 2), Some(span(0x40_1000, 0x3_1000, 10)));
    let layout = Layout { line_shift: 6, ..Layout::default() };
    let instructions = [3, 7, 2].map(Instruction::nothing);
    let block = Template::new(layout, spans, &instructions, None);
    let mut system = MemorySystem::new(&plain(ZEN3), 1);
    system.classify_misses(ClassifierConfig { misses_kept: 10, ..ClassifierConfig::default() });
    for (number, instruction) in [(0, 0), (1, 2), (2, 1), (3, 9)] {
        let address = 0x10_0000 + number * 0x1000;
        let access = CoreAccess {
            virtual_address: VirtualAddress(address),
            physical: Some(PhysicalAddress(address)),
            instruction,
            bytes: 8,
            write: false,
        };
        let page = PageSize::Huge;
        MemoryPort {
            system: &mut system,
            cpu: 0,
            code: Some(&block),
            pc: VirtualAddress::default(),
            page,
        }
        .access(&access, AccessMode::Load, Cycle(1_000 * number));
    }
    let misses = system.take_misses().0.into_iter().filter(|miss| miss.cache == CacheName::L1d);
    let places: Vec<(u64, Option<u64>)> =
        misses.map(|miss| (miss.pc.0, miss.code_physical.map(|code| code.0))).collect();
    // The last access belongs to no instruction of the block: it has the block's address.
    let expected = [
        (0x40_0ffe, Some(0x9_0ffe)),
        (0x40_1008, Some(0x3_1008)),
        (0x40_1001, Some(0x3_1001)),
        (0x40_0ffe, None),
    ];
    assert_eq!(places, expected);
    // A line that starts in another function is fetched for an instruction in the middle of the line.
    let page = PageSize::Huge;
    let mut port = MemoryPort {
        system: &mut system,
        cpu: 0,
        code: Some(&block),
        pc: VirtualAddress::default(),
        page,
    };
    port.set_fetched_instruction(VirtualAddress(0x40_1020), PhysicalAddress(0x3_1020));
    port.fetch(VirtualAddress(0x40_1000), PhysicalAddress(0x3_1000), Cycle(10_000));
    let misses = system.take_misses().0;
    let fetched = misses.iter().find(|miss| miss.cache == CacheName::L1i).unwrap();
    assert_eq!(
        (fetched.pc, fetched.code_physical),
        (VirtualAddress(0x40_1020), Some(PhysicalAddress(0x3_1020)))
    );
    assert_eq!(fetched.physical, PhysicalAddress(0x3_1000));
}

#[test]
fn m27_a_nested_walk_translates_the_place_of_each_entry() {
    let text = set(ZEN3, &["l1d.prefetch=none", "l2.prefetch=none"]).unwrap();
    // Loads of page tables for a page of the guest, for the next page, and for the first page again
    // after a flush of all translations of the guest.
    let loads = |changes: &[&str]| {
        let model = SystemModel::parse(&set(&text, changes).unwrap()).unwrap();
        let mut system = MemorySystem::new(&model, 1);
        [(0x1000, false), (0x2000, false), (0x1000, true)].map(|(address, flushes)| {
            if flushes {
                system.flush_tlbs(0, TlbFlush::All);
            }
            let before = system.counts(0).walk_loads;
            system.access_blocking(&Access { page: PageSize::Small, ..load(0, address, 0) });
            system.counts(0).walk_loads - before
        })
    };
    assert_eq!(loads(&[]), [4, 1, 4]);
    // Four tables of the guest and the page, each by four tables: AMD64 manual, volume 2, 15.25.
    // The hypervisor's upper tables and the places of the guest's tables are at hand afterwards.
    assert_eq!(loads(&["nested.page=4KiB"]), [24, 2, 5]);
    assert_eq!(loads(&["nested.page=2MiB"]), [19, 2, 5]);
    // Without a nested TLB, the places of the guest's tables are looked up each time.
    assert_eq!(loads(&["nested.entries=0"]), [24, 3, 9]);
    let error = set(R4400, &["nested.page=4KiB"]).unwrap_err().to_string();
    assert!(error.contains("nested.page: has no effect without walk"), "{error}");
    let error = set(ZEN3, &["nested.page=8KiB"]).unwrap_err().to_string();
    assert!(error.contains("nested.page: allowed: \"4 KiB\""), "{error}");
}

#[test]
fn m28_a_tlb_holds_a_large_page_in_parts_of_the_hypervisors_pages() {
    let text = set(ZEN3, &["l1d.prefetch=none", "l2.prefetch=none"]).unwrap();
    let misses = |changes: &[&str]| {
        let model = SystemModel::parse(&set(&text, changes).unwrap()).unwrap();
        let mut system = MemorySystem::new(&model, 1);
        let mut miss = |address| {
            let before = system.counts(0).basic.dtlb_misses;
            system.access_blocking(&Access { page: PageSize::Large, ..load(0, address, 0) });
            system.counts(0).basic.dtlb_misses - before
        };
        let first = [0, 0x1000, 0x40_0000].map(&mut miss);
        // `invlpg` of any address drops all parts of the page, and no other page.
        let flush =
            TlbFlush::Page { virtual_address: VirtualAddress(0x1f_f000), space: 0, global: true };
        system.flush_tlbs(0, flush);
        let mut miss = |address| {
            let before = system.counts(0).basic.dtlb_misses;
            system.access_blocking(&Access { page: PageSize::Large, ..load(0, address, 0) });
            system.counts(0).basic.dtlb_misses - before
        };
        (first, [0, 0x1000, 0x40_0000].map(&mut miss))
    };
    assert_eq!(misses(&["nested.page=2MiB"]), ([1, 0, 1], [1, 0, 0]));
    assert_eq!(misses(&["nested.page=4KiB"]), ([1, 1, 1], [1, 1, 0]));
}

/// A processor that has executed much, and stands, takes no room from the prefetches of one that has just started.
#[test]
fn m29_prefetches_of_a_processor_have_room_whatever_others_do() {
    let text = set(ZEN3, &["l2.shared=true", "l2.prefetch_buffers=4"]).unwrap();
    let prefetched = |before: u64| {
        let mut system = MemorySystem::new(&SystemModel::parse(&text).unwrap(), 2);
        for line in 0..before {
            system.access_blocking(&load(0, line * 64, 0));
        }
        for line in 0..2_000 {
            system.access_blocking(&load(1, (1 << 24) + line * 64, 0));
        }
        system.counts(1).prefetches
    };
    let alone = prefetched(0);
    assert!(alone > 1_000, "{alone}");
    assert_eq!(prefetched(5_000), alone);
}

#[test]
fn m30_a_flushed_line_leaves_no_part_of_what_a_longer_line_included() {
    for text in [ULTRA1, T1] {
        let mut system = MemorySystem::new(&SystemModel::parse(text).unwrap(), 1);
        for part in 0..16 {
            system.access_blocking(&load(0, 0x4000 + part * 16, 0));
        }
        system.flush_line(0, PhysicalAddress(0x4000), false);
        assert_eq!(system.verify(), Ok(()));
    }
}

/// Page walks of zen3 fill entries of 2 MiB and 1 GiB, those of cortex-a55 entries of 4 KiB in the first TLB.
#[test]
fn m31_an_access_to_another_part_of_a_large_page_waits_for_the_walk_of_the_page() {
    for (text, page, next_part) in [
        (ZEN3, PageSize::Large, 0x1000),
        (ZEN3, PageSize::Huge, 0x20_0000),
        (A55, PageSize::Large, 0x1000),
    ] {
        let mut model = plain(text);
        (model.walk, model.memory_line_cycles) = (Walk::Caches, 0);
        let mut system = MemorySystem::new(&model, 1);
        let mut access = |address, start| {
            let access = Access { page, ..load(0, address, start) };
            system.access(&access).translation_cycles
        };
        let walk_cycles = access(0x4000_0000, 1_000);
        assert!(walk_cycles > model.memory_cycles, "{} {page:?}", model.name);
        // A start that is later by 100 waits for the rest of the walk.
        assert_eq!(access(0x4000_0000 + next_part, 1_100), walk_cycles - 100, "{}", model.name);
        let known = access(0x4000_0000 + 2 * next_part, 100_000);
        let is_known_to_first = text == ZEN3;
        let expected = if is_known_to_first { 0 } else { model.stlb_hit_cycles.unwrap() };
        assert_eq!(known, expected, "{} {page:?}", model.name);
    }
}

#[test]
fn m32_a_hit_on_the_fast_path_waits_for_the_walk_of_its_large_page() {
    let mut model = plain(ZEN3);
    (model.walk, model.memory_line_cycles) = (Walk::Caches, 0);
    let mut system = MemorySystem::new(&model, 1);
    let access = |address| Access { page: PageSize::Large, ..load(0, address, 100_000) };
    // The line is in L1D, and the translation of its page is dropped.
    system.access(&Access { start: Cycle::START, ..access(0x4000_1000) });
    system.flush_tlbs(0, TlbFlush::All);
    let walk_cycles = system.access(&access(0x4000_0000)).translation_cycles;
    let page = PageSize::Large;
    let pc = VirtualAddress::default();
    let mut port = MemoryPort { system: &mut system, cpu: 0, code: None, pc, page };
    let hit = CoreAccess {
        virtual_address: VirtualAddress(0x4000_1000),
        physical: Some(PhysicalAddress(0x4000_1000)),
        instruction: 0,
        bytes: 8,
        write: false,
    };
    let mut waited = |now| port.hit_wait_cycles(&hit, (false, Cycle(now)), |_| page);
    assert_eq!(waited(100_000), Some(walk_cycles));
    assert_eq!(waited(100_000 + walk_cycles), Some(0));
}

/// A non-temporal store of 8 bytes on processor 0 at `now`. Returns its wait.
fn store_around(system: &mut MemorySystem, address: u64, now: u64) -> u64 {
    let access = CoreAccess {
        virtual_address: VirtualAddress(address),
        physical: Some(PhysicalAddress(address)),
        instruction: 0,
        bytes: 8,
        write: true,
    };
    let (page, pc) = (PageSize::Huge, VirtualAddress::default());
    MemoryPort { system, cpu: 0, code: None, pc, page }.access(
        &access,
        AccessMode::StoreAround,
        Cycle(now),
    )
}

#[test]
fn m33_stores_around_the_caches_are_combined_by_the_longest_line() {
    for (text, line_bytes) in [(R4400, 128), (T1, 64), (P4, 128), (ZEN3, 64), (ULTRA1, 64)] {
        let mut system = MemorySystem::new(&plain(text), 1);
        let written: Vec<u64> = (0..2 * line_bytes)
            .step_by(8)
            .map(|offset| {
                store_around(&mut system, 0x4000 + offset, 10_000);
                system.counts(0).memory_writes
            })
            .collect();
        let stores_per_line = line_bytes as usize / 8;
        assert_eq!(written.iter().filter(|writes| **writes == 0).count(), stores_per_line - 1);
        assert_eq!(written.last(), Some(&2), "{line_bytes}");
    }
}

#[test]
fn m34_caches_drop_a_combined_line_that_was_loaded_meanwhile() {
    let model = plain(ZEN3);
    let memory = model.memory_cycles;
    let mut system = MemorySystem::new(&model, 1);
    for offset in (0..64).step_by(8) {
        system.access_blocking(&load(0, 0x4000 + offset, 0));
        store_around(&mut system, 0x4000 + offset, 10_000);
    }
    assert!(!system.holds(0, PhysicalAddress(0x4000)));
    assert_eq!(system.access_blocking(&load(0, 0x4000, 0)), memory);
    assert_eq!(system.counts(0).memory_writes, 1);
    // An incomplete line, whose buffer another line takes. A zen3 has at most 64 buffers.
    store_around(&mut system, 0x8000, 10_000);
    system.access_blocking(&load(0, 0x8000, 0));
    for line in 1..=64 {
        store_around(&mut system, 0x8000 + 64 * line, 10_000);
    }
    assert!(!system.holds(0, PhysicalAddress(0x8000)));
    assert_eq!(system.verify(), Ok(()));
}

#[test]
fn m35_a_core_does_not_wait_for_a_store_that_is_written_through() {
    let mut model = plain(T1);
    model.upgrade_cycles = Some(30);
    // The first four threads share a core.
    let mut system = MemorySystem::new(&model, 8);
    for cpu in [0, 4] {
        system.access_blocking(&load(cpu, 0x4000, 0));
    }
    let store_hits = store(0, 0x4000, 0);
    assert_eq!(system.access_blocking(&store_hits), 0);
    assert_eq!((system.holds(1, PhysicalAddress(0x4000)), system.counts(0).upgrades), (false, 1));
    // A locked load waits for the right to write.
    system.access_blocking(&load(4, 0x4000, 0));
    let locked = Access { kind: AccessKind::LoadLocked, ..load(4, 0x4000, 0) };
    assert_eq!(system.access_blocking(&locked), 30);
}

#[test]
fn m36_an_access_to_two_sub_blocks_fills_both() {
    let model = plain(ULTRA1);
    let mut system = MemorySystem::new(&model, 1);
    let mut misses = |address: u64, bytes: u32| {
        let before = system.counts(0).basic.l1d_load_misses;
        system.access_blocking(&Access { bytes, ..load(0, address, 0) });
        system.counts(0).basic.l1d_load_misses - before
    };
    // Lines of 32 bytes with two sub-blocks.
    assert_eq!((misses(0x4008, 16), misses(0x4000, 8), misses(0x4010, 8)), (1, 0, 0));
    assert_eq!((misses(0x8000, 8), misses(0x800c, 8), misses(0x8010, 8)), (1, 1, 0));
}

#[test]
fn m37_dma_and_flushes_reach_traces_and_the_last_fetch() {
    for (text, other_line) in [(P4, 64), (ZEN3, 0)] {
        let model = plain(text);
        let fetch = |address| Access { kind: AccessKind::Fetch, ..load(0, address, 0) };
        let drops: [fn(&mut MemorySystem); 3] = [
            |system| system.dma_write(PhysicalAddress(0x4010), 4),
            |system| system.dma_write(PhysicalAddress(0), 1 << 40),
            |system| {
                system.flush_line(0, PhysicalAddress(0x4010), false);
            },
        ];
        for (number, drop_lines) in drops.into_iter().enumerate() {
            let mut system = MemorySystem::new(&model, 1);
            let misses = |system: &mut MemorySystem, address| {
                let before = system.counts(0).basic.l1i_misses;
                system.access_blocking(&fetch(address));
                system.counts(0).basic.l1i_misses - before
            };
            let name = &model.name;
            assert_eq!([0x4000, 0x4000].map(|address| misses(&mut system, address)), [1, 0]);
            drop_lines(&mut system);
            assert_eq!(misses(&mut system, 0x4000), 1, "{name}: {number}");
            // A line of L2 has two lines of code.
            misses(&mut system, 0x4000 + other_line);
            drop_lines(&mut system);
            let expected = if number == 0 && other_line > 0 { 0 } else { 1 };
            assert_eq!(misses(&mut system, 0x4000 + other_line), expected, "{name}: {number}");
            assert_eq!(system.verify(), Ok(()));
        }
    }
    // With this rule caches keep lines that a device writes.
    let text = set(P4, &["dma=update"]).unwrap();
    let mut system = MemorySystem::new(&plain(&text), 1);
    let fetch = Access { kind: AccessKind::Fetch, ..load(0, 0x4000, 0) };
    system.access_blocking(&fetch);
    system.dma_write(PhysicalAddress(0x4000), 64);
    system.access_blocking(&fetch);
    assert_eq!(system.counts(0).basic.l1i_misses, 1);
}

#[test]
fn m38_a_flush_returns_the_memory_of_the_longest_line() {
    for (text, line_bytes) in [(ZEN3, 64), (P4, 128)] {
        let mut system = MemorySystem::new(&plain(text), 1);
        let flushed = system.flush_line(0, PhysicalAddress(0x40f0), false);
        let start = 0x4100 - line_bytes;
        assert_eq!(flushed, PhysicalAddress(start)..PhysicalAddress(0x4100));
    }
}

#[test]
fn m39_a_store_that_misses_and_does_not_allocate_is_true_sharing() {
    let mut system = MemorySystem::new(&plain(T1), 8);
    system.classify_misses(ClassifierConfig::default());
    let sharing = |system: &MemorySystem| {
        let counts = system.class_counts(CacheName::L1d);
        (
            counts.misses_of_class(MissClass::TrueSharing),
            counts.misses_of_class(MissClass::FalseSharing),
        )
    };
    let address = 0x8000;
    // Core 0 loads. Core 1 takes the right to write with a store to another part, and then stores to the loaded part.
    // L1D of core 1 takes no line.
    system.access_blocking(&load(0, address, 0));
    system.access_blocking(&store(4, address + 8, 0));
    system.access_blocking(&store(4, address, 0));
    system.access_blocking(&load(0, address, 0));
    assert_eq!(sharing(&system), (1, 0));
    system.access_blocking(&store(4, address + 8, 0));
    system.access_blocking(&load(0, address, 0));
    assert_eq!(sharing(&system), (1, 1));
}
