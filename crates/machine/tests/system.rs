//! The memory system of any machine: against the two-level reference, and against the invariants of every hierarchy.

use machine::core::{Access as CoreAccess, AccessMode, Memory};
use machine::memory::{
    Access, CacheName, ClassifierConfig, Context, MemoryPort, MemorySystem, MissClass, Mode,
    PageSize, SupplyingLevel, TlbFlush, without_mshr_limit,
};
use machine::system_model::{
    Dma, Inclusion, Index, LevelModel, Prefetch, Protocol, Walk, WritePolicy,
};
use machine::{AccessKind, Cycle, PhysicalAddress, Replacement, SystemModel, VirtualAddress};
use proptest::prelude::*;

const R4400: &str = include_str!("../../../machines/r4400-1994.toml");
const ZEN3: &str = include_str!("../../../machines/zen3.toml");

fn access(cpu: usize, kind: AccessKind, address: u64, bytes: u32) -> Access {
    Access {
        cpu,
        kind,
        virtual_address: VirtualAddress(address),
        physical: PhysicalAddress(address),
        bytes,
        pc: VirtualAddress(0x1000),
        page: PageSize::Small,
        start: Cycle::START,
    }
}

fn kind() -> impl Strategy<Value = AccessKind> {
    prop::sample::select(&[AccessKind::Fetch, AccessKind::Load, AccessKind::Store][..])
}

fn replacement() -> impl Strategy<Value = Replacement> {
    prop::sample::select(&[Replacement::Lru, Replacement::TreePlru, Replacement::Random][..])
}

/// Any machine with small caches, of which up to two levels are below L1.
fn any_machine() -> impl Strategy<Value = SystemModel> {
    let contents = &[Inclusion::Inclusive, Inclusion::Exclusive, Inclusion::NonInclusive][..];
    let flags = prop::array::uniform7(any::<bool>());
    let inclusion = (prop::sample::select(contents), prop::sample::select(contents));
    let prefetch =
        prop::sample::select(&[Prefetch::None, Prefetch::NextLine, Prefetch::Stride][..]);
    (flags, inclusion, replacement(), (prefetch, 1u32..4), 0u32..3, 1u32..5, 0u32..3).prop_map(
        |(flags, (l2, l3), replacement, (prefetch, distance), ways, mshrs, outer_levels)| {
            let mut model = SystemModel::parse(ZEN3).unwrap();
            let level = |ways: u32, sets, inclusion, shared| LevelModel {
                size_bytes: u64::from(ways) * sets * 64,
                ways,
                line_bytes: 64,
                replacement,
                write: WritePolicy::Back,
                allocate: true,
                index: Index::Physical,
                sub_block_bytes: None,
                mshrs: 1,
                prefetch: Prefetch::None,
                prefetch_distance: 1,
                code_prefetch_distance: (distance > 2).then_some(1),
                prefetch_buffers: 16,
                line_cycles: distance.into(),
                inclusion,
                shared,
                trace: false,
            };
            let [through, around, parts, virtual_index, shared, msi, next] = flags;
            let l2_prefetch = match (next, distance) {
                (false, 1) => Prefetch::None,
                (false, _) => Prefetch::Stream,
                (true, _) => Prefetch::NextLine,
            };
            model.l1i = level(1 << ways, 4, Inclusion::NonInclusive, false);
            model.l1d = LevelModel {
                write: if through { WritePolicy::Through } else { WritePolicy::Back },
                allocate: !around,
                sub_block_bytes: parts.then_some(16),
                index: if virtual_index { Index::Virtual } else { Index::Physical },
                mshrs,
                prefetch,
                prefetch_distance: distance,
                ..level(
                    1 << ways,
                    if virtual_index { 256 } else { 4 },
                    Inclusion::NonInclusive,
                    false,
                )
            };
            let l2 = LevelModel {
                prefetch: l2_prefetch,
                prefetch_distance: distance,
                ..level(4, if virtual_index { 512 } else { 8 }, l2, shared && outer_levels == 1)
            };
            model.l2 = (outer_levels > 0).then_some(l2);
            model.l3 = (outer_levels > 1)
                .then(|| level(8, if virtual_index { 512 } else { 16 }, l3, shared));
            model.protocol = if msi { Protocol::Msi } else { Protocol::Mesi };
            model
        },
    )
}

#[derive(Clone, Debug)]
enum Event {
    Access { cpu: usize, kind: AccessKind, address: u64, bytes: u32 },
    Writes { address: u64, bytes: u64 },
    Reads { address: u64, bytes: u64 },
    Flush { cpu: usize, flush: TlbFlush },
    Space { cpu: usize, space: u16 },
    Context { cpu: usize, process: u32, user: bool },
    Line { cpu: usize, address: u64, keeps: bool },
    Code { cpu: usize, address: u64, bytes: u64 },
}

fn flush() -> impl Strategy<Value = TlbFlush> {
    let page = (0u64..16384, 0u16..4, any::<bool>()).prop_map(|(address, space, global)| {
        let virtual_address = VirtualAddress(address);
        TlbFlush::Page { virtual_address, space, global }
    });
    let space = (0u16..4).prop_map(TlbFlush::Space);
    prop_oneof![Just(TlbFlush::All), Just(TlbFlush::NonGlobal), space, page]
}

fn event() -> impl Strategy<Value = Event> {
    // Few lines, so that processors share them.
    let address = || prop_oneof![0u64..1024, 0u64..16384];
    prop_oneof![
        40 => (0usize..8, kind(), address(), 1u32..9).prop_map(|(cpu, kind, address, bytes)| {
            Event::Access { cpu, kind, address: address & !7, bytes }
        }),
        1 => (address(), 1u64..300).prop_map(|(address, bytes)| Event::Writes { address, bytes }),
        1 => (address(), 1u64..300).prop_map(|(address, bytes)| Event::Reads { address, bytes }),
        1 => (0usize..8, flush()).prop_map(|(cpu, flush)| Event::Flush { cpu, flush }),
        1 => (0usize..8, 0u16..4).prop_map(|(cpu, space)| Event::Space { cpu, space }),
        1 => (0usize..8, 0u32..3, any::<bool>())
            .prop_map(|(cpu, process, user)| Event::Context { cpu, process, user }),
        1 => (0usize..8, address(), any::<bool>())
            .prop_map(|(cpu, address, keeps)| Event::Line { cpu, address, keeps }),
        1 => (0usize..8, address(), 1u64..9)
            .prop_map(|(cpu, address, bytes)| Event::Code { cpu, address, bytes }),
    ]
}

fn play(system: &mut MemorySystem, event: &Event) {
    match *event {
        Event::Access { cpu, kind, address, bytes } => {
            system.access_blocking(&access(cpu, kind, address, bytes));
        }
        Event::Writes { address, bytes } => system.dma_write(PhysicalAddress(address), bytes),
        Event::Reads { address, bytes } => system.dma_read(PhysicalAddress(address), bytes),
        Event::Flush { cpu, flush } => system.flush_tlbs(cpu, flush),
        Event::Space { cpu, space } => {
            system.set_address_space(cpu, space, PhysicalAddress(u64::from(space) << 12));
        }
        Event::Context { cpu, process, user } => {
            let mode = if user { Mode::User } else { Mode::Kernel };
            system.set_context(cpu, Context { mode, process, service: None });
        }
        Event::Line { cpu, address, keeps } => {
            system.flush_line(cpu, PhysicalAddress(address), keeps);
        }
        Event::Code { cpu, address, bytes } => {
            system.code_written(cpu, PhysicalAddress(address), bytes)
        }
    }
}

proptest! {
    /// After each access, a core that may write a line is its only holder, inclusive levels hold the lines
    /// of the levels above, and the directory knows the lines of each core. Eight processors may share four
    /// cores, and devices write.
    #[test]
    fn there_is_one_writer_at_most_and_inclusion_holds(
        model in any_machine(),
        threads in prop::sample::select(&[1u32, 2][..]),
        watched in any::<bool>(),
        events in prop::collection::vec(event(), 1..160),
    ) {
        let model = SystemModel { threads_per_core: threads, ..model };
        let mut system = MemorySystem::new(&model, 8);
        if watched {
            system.classify_misses(ClassifierConfig { shadow_caches: true, ..ClassifierConfig::default() });
        }
        for event in &events {
            play(&mut system, event);
            prop_assert_eq!(system.verify(), Ok(()));
        }
    }

    /// Classes add up to the misses that are counted without them, and classification changes no count.
    #[test]
    fn classes_add_up_and_watching_changes_nothing(
        model in any_machine(),
        events in prop::collection::vec(event(), 1..300),
    ) {
        let mut plain = MemorySystem::new(&model, 8);
        let mut watched = MemorySystem::new(&model, 8);
        watched.classify_misses(ClassifierConfig { shadow_caches: true, misses_kept: 1 << 20, ..ClassifierConfig::default() });
        for event in &events {
            play(&mut plain, event);
            play(&mut watched, event);
        }
        let sum = |count: fn(&machine::Counts) -> u64| -> u64 {
            (0..8).map(|cpu| count(&watched.counts(cpu).basic)).sum()
        };
        for cpu in 0..8 {
            prop_assert_eq!(plain.counts(cpu), watched.counts(cpu));
        }
        let l1i = watched.class_counts(CacheName::L1i);
        let l1d = watched.class_counts(CacheName::L1d);
        prop_assert_eq!(l1i.total(), sum(|counts| counts.l1i_misses));
        prop_assert_eq!(l1d.total(), sum(|counts| counts.l1d_load_misses + counts.l1d_store_misses));
        for counts in [&l1i, &l1d] {
            let replaced = counts.misses_of_class(MissClass::SameSelf) + counts.misses_of_class(MissClass::Other);
            prop_assert_eq!(counts.capacity + counts.conflict, replaced);
            let evictions: u64 = counts.evicted_by.iter().map(|(_, number)| number).sum();
            prop_assert_eq!(evictions, replaced);
            prop_assert_eq!(counts.misses_of_class(MissClass::Untracked), 0);
        }
        let l2 = watched.class_counts(CacheName::L2);
        if model.l1d.write == WritePolicy::Back {
            prop_assert_eq!(l2.total(), sum(|counts| counts.l2_fetch_misses + counts.l2_data_misses));
        }
        let all = [CacheName::L1i, CacheName::L1d, CacheName::L2, CacheName::L3];
        let total: u64 = all.iter().map(|name| watched.class_counts(*name).total()).sum();
        prop_assert_eq!(watched.take_misses().0.len() as u64, total);
    }
}

/// The naive reference of sub-blocks and virtual indexing: a list for each set.
#[derive(Default)]
struct Naive {
    /// Lines with their valid parts, the most recently used first.
    sets: std::collections::HashMap<u64, Vec<(u64, u64)>>,
}

impl Naive {
    /// Returns whether a part of a line is in, and fills it if not.
    fn access(&mut self, set: u64, line: u64, part: u64, ways: usize) -> bool {
        for (other, lines) in &mut self.sets {
            if *other != set {
                lines.retain(|(held, _)| *held != line);
            }
        }
        let lines = self.sets.entry(set).or_default();
        let (parts, hit) = match lines.iter().position(|(held, _)| *held == line) {
            Some(at) => {
                let parts = lines.remove(at).1;
                (parts | 1 << part, parts >> part & 1 == 1)
            }
            None => (1 << part, false),
        };
        lines.insert(0, (line, parts));
        lines.truncate(ways);
        hit
    }
}

proptest! {
    #[test]
    fn parts_and_virtual_sets_miss_as_a_naive_cache_does(
        ways in 1u32..4,
        part_log in 4u32..7,
        loads in prop::collection::vec((0u64..8, 0u64..4, 0u64..64), 1..300),
    ) {
        let mut model = SystemModel::parse(R4400).unwrap();
        // Sets of four pages: two bits of the virtual page number select a set.
        (model.l1d.ways, model.l1d.line_bytes) = (ways, 64);
        model.l1d.size_bytes = u64::from(ways) * 256 * 64;
        model.l1d.replacement = Replacement::Lru;
        model.l1d.index = Index::Virtual;
        model.l1d.sub_block_bytes = Some(1 << part_log);
        let mut system = MemorySystem::new(&model, 1);
        let mut naive = Naive::default();
        let mut misses = 0;
        for (virtual_page, frame, eighth) in loads {
            let offset = eighth * 64 % 4096 + eighth % 8 * 8;
            let mut load = access(0, AccessKind::Load, virtual_page << 12 | offset, 8);
            load.physical = PhysicalAddress(frame << 12 | offset);
            system.access_blocking(&load);
            let set = load.virtual_address.block_number(6) & 255;
            let part = load.physical.offset_in_block(6) >> part_log;
            misses += u64::from(!naive.access(set, load.physical.line(6).0, part, ways as usize));
            prop_assert_eq!(system.counts(0).basic.l1d_load_misses, misses);
        }
    }
}

#[test]
fn devices_drop_or_update_lines() {
    let mut model = SystemModel::parse(ZEN3).unwrap();
    for (dma, misses) in [(Dma::Invalidate, 2), (Dma::Update, 1)] {
        model.dma = dma;
        model.l1d.prefetch = Prefetch::None;
        model.l2.as_mut().unwrap().prefetch = Prefetch::None;
        let mut system = MemorySystem::new(&model, 2);
        system.classify_misses(ClassifierConfig::default());
        system.access_blocking(&access(0, AccessKind::Store, 0x10_0000, 8));
        system.dma_read(PhysicalAddress(0x10_0000), 64);
        // L1D holds it dirty; the inclusive L2 holds it clean.
        assert_eq!(system.dma_counts().supplied, 1);
        system.dma_write(PhysicalAddress(0x10_0010), 4);
        system.access_blocking(&access(0, AccessKind::Load, 0x10_0000, 8));
        let counts = system.counts(0).basic;
        assert_eq!(counts.l1d_load_misses + counts.l1d_store_misses, misses);
        let devices = system.class_counts(CacheName::L1d).misses_of_class(MissClass::Device);
        assert_eq!(devices, misses - 1);
        let counts = system.dma_counts();
        assert_eq!((counts.dropped, counts.updated), if misses == 2 { (2, 0) } else { (0, 2) });
        assert_eq!(system.verify(), Ok(()));
    }
}

#[test]
fn what_a_device_writes_is_missed_for_that_reason_also_where_it_was_evicted_before() {
    let model = SystemModel::parse(R4400).unwrap();
    let mut system = MemorySystem::new(&model, 1);
    system.classify_misses(ClassifierConfig::default());
    let read = |system: &mut MemorySystem| {
        // A buffer of 4 KiB, and then other lines that fill the caches.
        for at in (0..4096).chain(1 << 24..(1 << 24) + (2 << 20)).step_by(16) {
            system.access_blocking(&access(0, AccessKind::Load, at, 4));
        }
    };
    let misses_of = |system: &MemorySystem, class| {
        [CacheName::L1d, CacheName::L2].map(|name| system.class_counts(name).misses_of_class(class))
    };
    read(&mut system);
    system.dma_write(PhysicalAddress(0), 4096);
    // A line that was never read misses as a cold line, although a device wrote it.
    system.dma_write(PhysicalAddress(1 << 30), 4096);
    system.access_blocking(&access(0, AccessKind::Load, 1 << 30, 4));
    assert_eq!(misses_of(&system, MissClass::Device), [0, 0]);
    read(&mut system);
    assert_eq!(misses_of(&system, MissClass::Device), [4096 / 16, 4096 / 128]);
}

/// An exclusive L3 does not fill a line that L2 takes. A write of a device to a line that L2 holds still is the reason for
/// L3's next miss of that line.
#[test]
fn an_exclusive_level_misses_what_a_device_wrote_while_the_level_above_held_it() {
    let quiet = ["l1d.prefetch=none", "l2.prefetch=none"];
    let fixed = ["walk=fixed", "walk_entries=0", "walkers=0"];
    let small = ["l3.size=64KiB", "l2.size=32KiB", "l3.inclusion=exclusive"];
    let text = machine::schema::set(ZEN3, &[&quiet[..], &fixed, &small].concat()).unwrap();
    let mut system = MemorySystem::new(&SystemModel::parse(&text).unwrap(), 2);
    system.classify_misses(ClassifierConfig::default());
    let load = |system: &mut MemorySystem, at| {
        let before = system.counts(0).memory_reads;
        system.access_blocking(&access(0, AccessKind::Load, at, 8));
        system.counts(0).memory_reads - before
    };
    let misses =
        |system: &MemorySystem, class| system.class_counts(CacheName::L3).misses_of_class(class);
    let buffer = 1 << 30;
    // L2 takes the line from memory.
    assert_eq!(load(&mut system, buffer), 1);
    assert_eq!(misses(&system, MissClass::Cold), 1);
    system.dma_write(PhysicalAddress(buffer), 64);
    assert_eq!(load(&mut system, buffer), 1);
    assert_eq!(misses(&system, MissClass::Device), 1);
    // L2 evicts the line to L3, and takes it back.
    for at in (0x10_0000..0x10_0000 + (64 << 10)).step_by(64) {
        load(&mut system, at);
    }
    assert_eq!(load(&mut system, buffer), 0);
    system.dma_write(PhysicalAddress(buffer), 64);
    assert_eq!(load(&mut system, buffer), 1);
    assert_eq!(misses(&system, MissClass::Device), 2);
    // A flush removes the line from L2, so it does not reach L3.
    system.flush_line(0, PhysicalAddress(buffer), false);
    assert_eq!(load(&mut system, buffer), 1);
    assert_eq!(misses(&system, MissClass::SameSelf), 1);
    assert_eq!(misses(&system, MissClass::Cold), 1 + 1024);
    assert_eq!(system.verify(), Ok(()));
}

#[test]
fn devices_allocate_in_a_few_ways_of_the_last_level() {
    let set = |changes: &[&str]| {
        SystemModel::parse(&machine::schema::set(ZEN3, changes).unwrap()).unwrap()
    };
    let quiet = ["dma=allocate", "l1d.prefetch=none", "l2.prefetch=none"];
    let fixed = ["walk=fixed", "walk_entries=0", "walkers=0"];
    for inclusion in ["inclusive", "non-inclusive", "exclusive"] {
        let inclusion = format!("l3.inclusion={inclusion}");
        // 64 sets of 16 ways.
        let small = ["l3.size=64KiB", "l2.size=32KiB", inclusion.as_str()];
        let model = set(&[&quiet[..], &fixed, &small].concat());
        let mut system = MemorySystem::new(&model, 2);
        system.classify_misses(ClassifierConfig::default());
        let load = |system: &mut MemorySystem, at| {
            let before = system.counts(0);
            system.access_blocking(&access(0, AccessKind::Load, at, 8));
            system.counts(0).memory_reads - before.memory_reads
        };
        load(&mut system, 1 << 30);
        load(&mut system, (1 << 30) + 64);
        system.dma_write(PhysicalAddress(1 << 30), 64);
        // The last level had it, or took it; L1D and L2 dropped theirs.
        assert_eq!(load(&mut system, 1 << 30), 0, "{inclusion}");
        assert_eq!(
            system.class_counts(CacheName::L1d).misses_of_class(MissClass::Device),
            1,
            "{inclusion}"
        );
        // Two ways of 64 sets: the first lines made room for the last ones.
        system.dma_write(PhysicalAddress(0x10_0000), 3 * 64 * 64);
        assert_eq!(load(&mut system, 0x10_0000), 1, "{inclusion}");
        assert_eq!(load(&mut system, 0x10_0000 + 2 * 64 * 64), 0, "{inclusion}");
        let counts = system.dma_counts();
        assert!(counts.allocated >= 3 * 64 && counts.written_back >= 64, "{counts:?}");
        assert_eq!(system.verify(), Ok(()), "{inclusion}");
    }
    let error = machine::schema::set(ZEN3, &["dma=allocate", "dma_ways=17"]).unwrap_err();
    assert!(error.to_string().contains("dma_ways: 17; allowed: 1..=16"), "{error}");
    let error = machine::schema::set(ZEN3, &["dma=allocate", "l3.shared=false"]).unwrap_err();
    assert!(error.to_string().contains("a last level that the cores do not share"), "{error}");
    // A machine with more processors than the model has more cores.
    let one_core = ["dma=allocate", "l3.shared=false", "cpus=1"];
    let text = machine::schema::set(ZEN3, &one_core).unwrap();
    let model = SystemModel::parse(&text).unwrap();
    assert_eq!(model.check_cpus(1), Ok(()));
    let error = model.check_cpus(2).unwrap_err();
    assert!(error.to_string().contains("a last level that the cores do not share"), "{error}");
}

#[test]
fn what_has_no_room_for_notes_is_untracked() {
    let model = SystemModel::parse(R4400).unwrap();
    let mut system = MemorySystem::new(&model, 1);
    system
        .classify_misses(ClassifierConfig { history_bytes: 10_000, ..ClassifierConfig::default() });
    for n in 0..10_000u64 {
        system.access_blocking(&access(0, AccessKind::Load, n * 4096, 8));
    }
    let counts = system.class_counts(CacheName::L1d);
    assert_eq!(counts.total(), 10_000);
    let (cold, untracked) =
        (counts.misses_of_class(MissClass::Cold), counts.misses_of_class(MissClass::Untracked));
    assert!(cold > 0 && untracked > 9_000, "{cold} {untracked}");
}

#[test]
fn places_are_bounded() {
    let mut places = machine::memory::LocationCounts::new(2);
    for place in [7, 5, 7, 9, 9, 7] {
        places.add(place);
    }
    let sorted =
        places.most_frequent_first().into_iter().map(|place| (place.location, place.count));
    assert_eq!((sorted.collect(), places.overflow_count()), (vec![(7, 3), (5, 1)], 2));
}

/// Each machine that irqlab ships, with its number of processors.
#[allow(clippy::disallowed_methods, reason = "the models that irqlab ships are files")]
#[test]
fn what_must_hold_holds_of_each_model() {
    let folder = concat!(env!("CARGO_MANIFEST_DIR"), "/../../machines");
    for entry in std::fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        // `measured` is a directory of data.
        if path.is_dir() {
            continue;
        }
        let text = std::fs::read_to_string(path).unwrap();
        let model = SystemModel::parse(&text).unwrap();
        let mut system = MemorySystem::new(&model, model.cpus);
        system.classify_misses(ClassifierConfig::default());
        let mut state = 1u64;
        for n in 0..30_000u64 {
            state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
            let reach = if n.is_multiple_of(8) { 1 << 24 } else { 1 << 14 };
            let kinds = [AccessKind::Load, AccessKind::Store, AccessKind::Fetch];
            let (cpu, kind) = (state >> 58, kinds[(state >> 40) as usize % 3]);
            let address = ((state >> 20) % reach) & !7;
            system.access_blocking(&access(cpu as usize % model.cpus as usize, kind, address, 8));
        }
        assert_eq!(system.verify(), Ok(()), "{}", model.name);
        let classes = system.class_counts(CacheName::L1d).total();
        let counted = (0..system.cpus()).map(|cpu| system.counts(cpu).basic);
        let misses: u64 = counted.map(|basic| basic.l1d_load_misses + basic.l1d_store_misses).sum();
        assert_eq!(classes, misses, "{}", model.name);
    }
}

/// Lines that the line oracle follows.
const ORACLE_LINES: u64 = 40;

/// The dirty copies of all lines of the oracle.
fn dirty_lines(system: &MemorySystem) -> Vec<Vec<(CacheName, usize)>> {
    (0..ORACLE_LINES).map(|line| system.dirty_copies(PhysicalAddress(line * 64))).collect()
}

fn memory_writes(system: &MemorySystem) -> u64 {
    (0..system.cpus()).map(|cpu| system.counts(cpu).memory_writes).sum()
}

proptest! {
    /// A line oracle. The dirty copy of a line holds the last write. A load has to get the line from the
    /// dirty copy, or from a later copy with the same content. A line without a dirty copy was written to
    /// memory, or overwritten by a device.
    #[test]
    fn each_read_sees_the_last_write_and_no_dirty_line_is_lost(
        model in any_machine(),
        threads in prop::sample::select(&[1u32, 2][..]),
        steps in prop::collection::vec(
            (0usize..8, kind(), 0..ORACLE_LINES * 8, 0u32..30, 1u64..200), 1..250
        ),
    ) {
        // A walk, which comes before the load of an access, may evict the line.
        let (walk, walk_entries, walkers) = (Walk::Fixed, 0, 0);
        let model =
            SystemModel { threads_per_core: threads, walk, walk_entries, walkers, ..model };
        let shared_l2 = model.l2.as_ref().is_some_and(|l2| l2.shared);
        let mut system = MemorySystem::new(&model, 8);
        let mut before = dirty_lines(&system);
        for (step, (cpu, kind, word, what, bytes)) in steps.into_iter().enumerate() {
            let (address, core) = (word * 8, cpu / threads as usize);
            let line = (address / 64) as usize;
            let writes = memory_writes(&system);
            let mut overwritten = 0..0;
            if what == 0 {
                system.dma_write(PhysicalAddress(address), bytes);
                overwritten = line..((address + bytes - 1) / 64 + 1) as usize;
            } else {
                let start = Cycle(step as u64 * 500);
                let access = Access { start, ..access(cpu, kind, address, 8) };
                let supplier = system.access(&access).supplier;
                if kind == AccessKind::Load {
                    // How far from the core the last write is.
                    let private = |name| name == CacheName::L1d || name == CacheName::L2 && !shared_l2;
                    let far = before[line].iter().map(|(name, number)| match name {
                        name if private(*name) && *number != core => 4,
                        CacheName::L1d | CacheName::L1i => 1,
                        CacheName::L2 => 2,
                        CacheName::L3 => 3,
                    });
                    let from = match supplier {
                        SupplyingLevel::L1 => 1,
                        SupplyingLevel::L2 => 2,
                        SupplyingLevel::L3 => 3,
                        SupplyingLevel::OtherCore => 4,
                        SupplyingLevel::Memory => 5,
                    };
                    let nearest = far.clone().min();
                    if far.max() == Some(4) {
                        prop_assert_eq!(from, 4, "another core had {:#x}", address);
                    } else if let Some(nearest) = nearest {
                        // Another part of a line that is filled in parts may be dirty.
                        let in_parts = nearest == 1 && model.l1d.fill_bytes() < 64;
                        let is_seen = from <= nearest || from == 4 || in_parts;
                        prop_assert!(is_seen, "stale {:#x}: {} from {}", address, nearest, from);
                    }
                }
            }
            let after = dirty_lines(&system);
            let mut gone = 0;
            for (line, copies) in after.iter().enumerate() {
                let of_core = |name: &CacheName| *name == CacheName::L1d;
                let dirty_cores = copies.iter().filter(|(name, _)| of_core(name)).count();
                prop_assert!(dirty_cores <= 1, "two cores wrote line {}", line);
                let was_lost = !before[line].is_empty() && copies.is_empty();
                gone += u64::from(was_lost && !overwritten.contains(&line));
            }
            let written = memory_writes(&system) - writes;
            prop_assert!(written >= gone, "{} lines lost, {} written", gone, written);
            before = after;
        }
    }
}

/// A randomly drawn access to a memory port.
#[derive(Clone, Debug)]
struct PortStep {
    cpu: usize,
    kind: AccessKind,
    /// One of a few hundred places, in pages far from each other.
    place: u64,
    bytes: u8,
    /// How much later than the last one, or earlier by a few cycles, as out of order.
    later_cycles: i64,
    what: u32,
}

fn port_step() -> impl Strategy<Value = PortStep> {
    let numbers = (0usize..2, kind(), 0u64..200, 1u8..33, -8i64..60, 0u32..40);
    numbers.prop_map(|(cpu, kind, place, bytes, later_cycles, what)| PortStep {
        cpu,
        kind,
        place,
        bytes,
        later_cycles,
        what,
    })
}

proptest! {
    /// The fast path of a hit has the observable effects of the general path.
    #[test]
    fn what_hits_at_once_has_the_effect_of_an_access(
        model in any_machine(),
        mshr_limit: bool,
        steps in prop::collection::vec(port_step(), 1..400),
    ) {
        let model = if mshr_limit { model } else { without_mshr_limit(&model) };
        let mut general = MemorySystem::new(&model, 2);
        let mut short = general.clone();
        let mut now = 1_000i64;
        for PortStep { cpu, kind, place, bytes, later_cycles, what } in steps {
            now += later_cycles;
            // Seven pages, of all sizes, which they keep; in each a few lines, and accesses across them.
            let in_page = ((place / 7) << 5) & 0xfff;
            let address = ((place % 7) << 22) + in_page + u64::from(bytes % 3);
            let page = [PageSize::Small, PageSize::Large, PageSize::Huge][(place % 7 % 3) as usize];
            match what {
                0 => {
                    general.dma_write(PhysicalAddress(address), 64);
                    short.dma_write(PhysicalAddress(address), 64);
                }
                1 => {
                    general.flush_tlbs(cpu, TlbFlush::NonGlobal);
                    short.flush_tlbs(cpu, TlbFlush::NonGlobal);
                }
                _ => {}
            }
            let access = CoreAccess {
                virtual_address: VirtualAddress(address),
                physical: (what != 2).then_some(PhysicalAddress(address)),
                instruction: 0,
                bytes,
                write: kind == AccessKind::Store,
            };
            let port = |system| MemoryPort { system, cpu, code: None, pc: VirtualAddress(0x1000), page };
            let now = Cycle(now as u64);
            let step = |port: &mut MemoryPort<'_>| {
                let wait = match kind {
                    AccessKind::Fetch => port.fetch(VirtualAddress(address), PhysicalAddress(address), now),
                    AccessKind::Store => port.access(&access, AccessMode::Store, now),
                    _ if what == 3 => port.access(&access, AccessMode::LoadLocked, now),
                    _ => port.access(&access, AccessMode::Load, now),
                };
                // The parts of no wait are not known, nor are those of a fetch.
                (wait, (wait > 0 && kind != AccessKind::Fetch).then(|| port.last_wait()))
            };
            let expected = step(&mut port(&mut general));
            let mut port = port(&mut short);
            let may_be_short = kind != AccessKind::Fetch && (what != 3 || access.write);
            let wait = if may_be_short {
                port.hit_wait_cycles(&access, (access.write, now), |_| page)
            } else {
                None
            };
            let got = match wait {
                Some(wait) => (wait, (wait > 0).then(|| port.last_wait())),
                None => step(&mut port),
            };
            prop_assert_eq!(got, expected, "{:?} at {:?}, at once: {:?}", access, now, wait);
            prop_assert_eq!(short.counts(cpu), general.counts(cpu), "{:?}", access);
        }
    }
}

#[test]
fn loads_and_stores_of_a_warm_line_hit_at_once() {
    let mut system = MemorySystem::new(&SystemModel::parse(ZEN3).unwrap(), 1);
    let mut port = MemoryPort {
        system: &mut system,
        cpu: 0,
        code: None,
        pc: VirtualAddress::default(),
        page: PageSize::Small,
    };
    let access = |address, write| CoreAccess {
        virtual_address: VirtualAddress(address),
        physical: Some(PhysicalAddress(address)),
        instruction: 0,
        bytes: 8,
        write,
    };
    let mut at_once = |address, write, now| {
        let access = access(address, write);
        let wait = port.hit_wait_cycles(&access, (write, now), |_| PageSize::Small);
        if wait.is_none() {
            let how = if write { AccessMode::Store } else { AccessMode::Load };
            port.access(&access, how, now);
        }
        wait
    };
    // A page and a line that are not there, then there but under way, then there; another page between.
    let loads = [(0x5000, 0), (0x5008, 1), (0x9000, 5_000), (0x5008, 9_000), (0x9008, 9_001)];
    let loads = loads.map(|(address, now)| at_once(address, false, Cycle(now)));
    assert!(matches!(loads, [None, Some(1..), None, Some(0), Some(0)]), "{loads:?}");
    let stores = [(0x5000, 10_000), (0x5008, 10_001), (0x5000, 10_002)];
    let stores = stores.map(|(address, now)| at_once(address, true, Cycle(now)));
    assert_eq!(stores, [None, Some(0), Some(0)], "the first one marks the line as written");
}
