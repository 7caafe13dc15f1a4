//! The fast paths of functional warming against lookups one by one: whatever a machine does, its state, its counts and
//! its later times are equal.

use std::ops::Range;

use machine::core::{
    Access, AccessMode, ExecutedBlock, Instruction, Memory, OutOfOrderCore, PlainAccesses,
    Register, SingleThreadCore, Special, StringOperation, Template, Unit, WaitParts,
};
use machine::memory::{
    ClassifierConfig, CpuCounts, LinuxPort, MemoryPort, MemorySystem, PageSize, TlbFlush,
    without_mshr_limit,
};
use machine::predict::BranchKind;
use machine::system_model::Index;
use machine::{CodeSpan, Cycle, PhysicalAddress, SystemModel, VirtualAddress};
use proptest::prelude::*;

/// Each machine that irqlab ships.
const MACHINES: [&str; 19] = [
    include_str!("../../../machines/cortex-a55.toml"),
    include_str!("../../../machines/emerald-rapids.toml"),
    include_str!("../../../machines/golden-cove.toml"),
    include_str!("../../../machines/neoverse-n1.toml"),
    include_str!("../../../machines/next-1998.toml"),
    include_str!("../../../machines/origin-200.toml"),
    include_str!("../../../machines/p2-333.toml"),
    include_str!("../../../machines/p2-450.toml"),
    include_str!("../../../machines/p3-1266.toml"),
    include_str!("../../../machines/p3-600.toml"),
    include_str!("../../../machines/p4-1700.toml"),
    include_str!("../../../machines/p4-1800.toml"),
    include_str!("../../../machines/r10000-1996.toml"),
    include_str!("../../../machines/r4400-1994.toml"),
    include_str!("../../../machines/r4400-smp8.toml"),
    include_str!("../../../machines/t1.toml"),
    include_str!("../../../machines/ultra-1.toml"),
    include_str!("../../../machines/zen3.toml"),
    include_str!("../../../machines/zen4.toml"),
];
const ZEN3: usize = 17;
const ZEN4: usize = 18;

/// A memory that looks up each access on the general path.
struct OneByOne<'s>(MemoryPort<'s>);

impl OneByOne<'_> {
    fn set_page(&mut self, virtual_address: VirtualAddress) {
        self.0.page = PageSize::in_linux(virtual_address);
    }
}

impl Memory for OneByOne<'_> {
    fn look_up_fetch(&mut self, virtual_address: VirtualAddress, physical: PhysicalAddress) {
        self.set_page(virtual_address);
        self.0.look_up_fetch(virtual_address, physical);
    }

    fn look_up(&mut self, access: &Access, mode: AccessMode) {
        self.set_page(access.virtual_address);
        self.0.look_up(access, mode);
    }

    fn fetch(
        &mut self,
        virtual_address: VirtualAddress,
        physical: PhysicalAddress,
        now: Cycle,
    ) -> u64 {
        self.set_page(virtual_address);
        self.0.fetch(virtual_address, physical, now)
    }

    fn set_fetched_instruction(
        &mut self,
        virtual_address: VirtualAddress,
        physical: PhysicalAddress,
    ) {
        self.0.set_fetched_instruction(virtual_address, physical);
    }

    fn access(&mut self, access: &Access, mode: AccessMode, now: Cycle) -> u64 {
        self.set_page(access.virtual_address);
        self.0.access(access, mode, now)
    }

    fn last_wait(&self) -> WaitParts {
        self.0.last_wait()
    }
}

/// Where data and code lie: pages of the user's and of the kernel's half, in lines that share sets.
fn place(number: u64) -> VirtualAddress {
    const BASES: [u64; 4] =
        [0x40_0000, 0x7fff_ffff_0000, 0xffff_8880_0010_0000, 0xffff_c900_0000_0000];
    let (page, in_page) = (number / 32, number % 32 * 0x88 % 0x1000);
    VirtualAddress(BASES[(page % 4) as usize] + page / 4 * 0x5000 + in_page)
}

/// The physical address of a virtual one. Some pages are shared.
fn physical(address: VirtualAddress) -> PhysicalAddress {
    let page = address.0 >> 12;
    PhysicalAddress((page ^ page >> 19 ^ page >> 24) % 61 * 0x1000 + (address.0 & 0xfff))
}

/// Numbers of places whose physical pages have several virtual pages, which differ in the lowest two bits of the page's
/// number. A cache that virtual addresses index may hold a line of such a page twice.
fn aliases() -> Vec<u64> {
    const PAGES: u64 = 125;
    let page_of = |page: u64| place(page * 32).0 >> 12;
    let has_alias = |page: &u64| {
        (0..PAGES).any(|other| {
            physical(place(page * 32)).0 >> 12 == physical(place(other * 32)).0 >> 12
                && page_of(*page) % 4 != page_of(other) % 4
        })
    };
    let pages = (0..PAGES).filter(has_alias).take(12);
    pages.flat_map(|page| (0..4).map(move |line| page * 32 + line)).collect()
}

/// Numbers of places in pairs of pages with the same physical page. In the first page of a pair, virtual and physical
/// addresses select the same set of a cache whose ways have four pages, and in the second page they select different sets.
fn pairs_of_pages() -> Vec<[u64; 2]> {
    const PAGES: u64 = 125;
    let pages = |number: u64| (place(number * 32).0 >> 12, physical(place(number * 32)).0 >> 12);
    let is_same_set = |number: &u64| pages(*number).0 % 4 == pages(*number).1 % 4;
    let first = (0..PAGES).filter(is_same_set);
    let pair = |number: u64| {
        let alias =
            (0..PAGES).find(|alias| pages(*alias).1 == pages(number).1 && !is_same_set(alias))?;
        Some([number * 32, alias * 32])
    };
    first.filter_map(pair).take(2).collect()
}

/// The memory accesses of an instruction.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Kind {
    Operation,
    Load,
    Store,
    Update,
    Locked,
    Around,
    Wide,
}

impl Kind {
    fn instruction(self) -> Instruction {
        let address = [Register::general(3)];
        match self {
            Kind::Operation => Instruction::of_unit(Unit::Integer),
            Kind::Load => Instruction::nothing(4).loading(&address),
            Kind::Store => Instruction::nothing(4).storing(&address),
            Kind::Update => Instruction::of_unit(Unit::Integer).loading(&address).storing(&address),
            Kind::Locked => {
                let update =
                    Instruction::of_unit(Unit::Integer).loading(&address).storing(&address);
                update.doing(Special::Atomic)
            }
            Kind::Around => Instruction::nothing(4).storing(&address).streaming(),
            Kind::Wide => Instruction::nothing(6).loading(&address).loading_vector(),
        }
    }

    /// Its accesses: bytes, and whether it stores.
    fn accesses(self) -> &'static [(u8, bool)] {
        match self {
            Kind::Operation => &[],
            Kind::Load => &[(8, false)],
            Kind::Store | Kind::Around => &[(4, true)],
            Kind::Update | Kind::Locked => &[(8, false), (8, true)],
            Kind::Wide => &[(8, false), (8, false)],
        }
    }
}

fn kind() -> impl Strategy<Value = Kind> {
    prop_oneof![
        2 => Just(Kind::Operation),
        6 => Just(Kind::Load),
        4 => Just(Kind::Store),
        1 => prop::sample::select(&[Kind::Update, Kind::Locked, Kind::Wide][..]),
        1 => Just(Kind::Around),
    ]
}

#[derive(Clone, Debug)]
struct Code {
    place: u64,
    kinds: Vec<Kind>,
    /// The block is a single repetition of this operation instead.
    repeated: Option<StringOperation>,
    /// Bytes that each execution adds to the addresses. Prefetchers follow this stride. 0: addresses are random.
    stride: u64,
}

impl Code {
    fn template(&self, core: &OutOfOrderCoreModel<'_>) -> Template {
        let branch = Instruction::of_unit(Unit::Branch).branching(BranchKind::Conditional);
        let instructions: Vec<Instruction> = match self.repeated {
            Some(operation) => {
                let address = [Register::general(7)];
                let stores = operation == StringOperation::Fill;
                let instruction = Instruction::nothing(2);
                let instruction = if stores {
                    instruction.storing(&address)
                } else {
                    instruction.loading(&address).storing(&address)
                };
                vec![instruction.repeating(operation)]
            }
            None => {
                let own = self.kinds.iter().map(|kind| kind.instruction());
                own.chain([branch]).collect()
            }
        };
        let bytes = instructions.iter().map(|instruction| u32::from(instruction.bytes())).sum();
        let virtual_address = place(self.place);
        let in_first = (0x1000 - (virtual_address.0 & 0xfff)).min(u64::from(bytes)) as u32;
        let span = |virtual_address, bytes| CodeSpan {
            virtual_address,
            physical: physical(virtual_address),
            bytes,
        };
        let second = (in_first < bytes)
            .then(|| span(virtual_address.plus(in_first.into()), bytes - in_first));
        let target = Some(virtual_address);
        Template::new(
            core.layout(),
            (span(virtual_address, in_first), second),
            &instructions,
            target,
        )
    }

    /// The accesses of execution `run`. `data`: where each access goes.
    fn accesses(&self, run: u64, data: &[(u64, u8)], devices: bool) -> Vec<Access> {
        let update = [(8, false), (8, true)];
        let each = match self.repeated {
            Some(StringOperation::Fill) => vec![(0, &update[1..])],
            Some(_) => vec![(0, &update[..])],
            None => self.kinds.iter().map(|kind| kind.accesses()).enumerate().collect(),
        };
        let mut data = data.iter().cycle();
        let mut accesses = Vec::new();
        for (number, made) in each {
            let Some((chosen, offset)) = data.next() else { break };
            // A stream starts at one place, whatever was chosen.
            let mut address = match self.stride {
                0 => place(*chosen).plus(u64::from(*offset)),
                stride => place(33 + self.place % 2).plus(run * stride % 0x2000),
            };
            let first = address;
            for (bytes, write) in made {
                if *write {
                    address = first;
                }
                let in_page = (0x1000 - (address.0 & 0xfff)).min(u64::from(*bytes));
                let parts =
                    [(address, in_page), (address.plus(in_page), u64::from(*bytes) - in_page)];
                for (virtual_address, bytes) in parts.into_iter().filter(|part| part.1 > 0) {
                    accesses.push(Access {
                        virtual_address,
                        physical: (!devices || *chosen % 16 != 5)
                            .then(|| physical(virtual_address)),
                        instruction: number as u16,
                        bytes: bytes as u8,
                        write: *write,
                    });
                }
                address = address.plus(u64::from(*bytes));
            }
        }
        accesses
    }
}

/// The model of the cores, and the line size of their code.
struct OutOfOrderCoreModel<'m> {
    core: &'m machine::core::CoreModel,
    code_line_bytes: u64,
}

impl OutOfOrderCoreModel<'_> {
    fn layout(&self) -> machine::core::Layout {
        self.core.layout(self.code_line_bytes)
    }
}

#[derive(Clone, Debug)]
enum Step {
    /// A processor executes a part of a block.
    Run {
        cpu: usize,
        code: usize,
        data: Vec<(u64, u8)>,
        part: (u8, u8),
        taken: bool,
        detail: bool,
        devices: bool,
    },
    Interrupt {
        cpu: usize,
    },
    DeviceWrites {
        place: u64,
        bytes: u64,
    },
    DeviceReads {
        place: u64,
    },
    FlushLine {
        cpu: usize,
        place: u64,
        keeps: bool,
    },
    FlushTlbs {
        cpu: usize,
        flush: TlbFlush,
    },
    Space {
        cpu: usize,
        space: u16,
    },
}

fn number() -> impl Strategy<Value = u64> {
    prop_oneof![
        8 => 0u64..24,
        4 => 0u64..320,
        6 => prop::sample::select(aliases()),
        1 => 0u64..4000
    ]
}

fn step() -> impl Strategy<Value = Step> {
    let data = prop::collection::vec((number(), 0u8..40), 1..6);
    let run = (0usize..4, 0usize..8, data, (0u8..12, 0u8..24), any::<bool>(), 0u8..10, 0u8..20);
    let run = run.prop_map(|(cpu, code, data, part, taken, detail, devices)| Step::Run {
        cpu,
        code,
        data,
        part,
        taken,
        detail: detail == 0,
        devices: devices == 0,
    });
    let flush = prop_oneof![
        Just(TlbFlush::All),
        Just(TlbFlush::NonGlobal),
        (0u16..3).prop_map(TlbFlush::Space),
        (number(), 0u16..3, any::<bool>()).prop_map(|(number, space, global)| TlbFlush::Page {
            virtual_address: place(number),
            space,
            global
        }),
    ];
    prop_oneof![
        80 => run,
        1 => (0usize..4).prop_map(|cpu| Step::Interrupt { cpu }),
        2 => (number(), 1u64..3000).prop_map(|(place, bytes)| Step::DeviceWrites { place, bytes }),
        1 => number().prop_map(|place| Step::DeviceReads { place }),
        1 => (0usize..4, number(), any::<bool>())
            .prop_map(|(cpu, place, keeps)| Step::FlushLine { cpu, place, keeps }),
        1 => (0usize..4, flush).prop_map(|(cpu, flush)| Step::FlushTlbs { cpu, flush }),
        1 => (0usize..4, 0u16..3).prop_map(|(cpu, space)| Step::Space { cpu, space }),
    ]
}

/// A machine whose processors warm blocks, on the fast paths or one by one.
struct Machine {
    cores: Vec<OutOfOrderCore>,
    system: MemorySystem,
    is_fast: bool,
}

impl Machine {
    fn run(
        &mut self,
        cpu: usize,
        (range, block): (Range<usize>, &Template),
        executed: &ExecutedBlock<'_>,
        detail: bool,
    ) -> u32 {
        let Machine { cores, system, is_fast } = self;
        let pc = VirtualAddress::default();
        let port = MemoryPort { system, cpu, code: Some(block), pc, page: PageSize::Small };
        let core = &mut cores[cpu];
        if *is_fast {
            let mut port = LinuxPort { port, skew_cycles: 0 };
            if detail {
                core.run_from(range.start, block, executed, &mut port);
                return 0;
            }
            return core.warm_from(range.start, block, executed, &mut port).slots;
        }
        let mut port = OneByOne(port);
        if detail {
            core.run_slowly_from(range.start, block, executed, &mut port);
            return 0;
        }
        core.warm_from(range.start, block, executed, &mut port).slots
    }

    /// All counts and the time of each processor.
    fn observed(&mut self) -> Vec<(CpuCounts, u64, machine::core::CoreCounts)> {
        let Machine { cores, system, .. } = self;
        let each = cores.iter().enumerate();
        each.map(|(cpu, core)| (system.counts(cpu), system.latency_cycles(cpu), core.counts()))
            .collect()
    }
}

/// Executes steps on two machines of a model: one on the fast paths, the other without. A model without an out-of-order
/// core gets the core of `zen3`. `classify`: whether misses are classified.
fn compare(
    (model, cpus, classify): (&SystemModel, usize, bool),
    codes: &[Code],
    steps: &[Step],
) -> Result<(), TestCaseError> {
    let zen = SystemModel::parse(MACHINES[ZEN3]).expect("a model");
    let own = model.core.as_ref().filter(|core| OutOfOrderCore::new(core, 64).is_some());
    let core = own.or(zen.core.as_ref()).expect("a core");
    let parts = OutOfOrderCoreModel { core, code_line_bytes: model.l1i.line_bytes };
    let templates: Vec<Template> = codes.iter().map(|code| code.template(&parts)).collect();
    let new_core =
        || OutOfOrderCore::new(core, model.l1d.line_bytes).expect("an out-of-order core");
    let machine = |is_fast| {
        let mut system = MemorySystem::new(&without_mshr_limit(model), cpus as u32);
        if classify {
            system.classify_misses(ClassifierConfig::default());
        }
        Machine { cores: (0..cpus).map(|_| new_core()).collect(), system, is_fast }
    };
    let mut machines = [machine(true), machine(false)];
    let mut runs = vec![0; codes.len()];
    for step in steps {
        if let Step::Run { code, .. } = step {
            runs[code % codes.len()] += 1;
        }
        let mut slots = [0; 2];
        for (machine, slots) in machines.iter_mut().zip(&mut slots) {
            match step {
                Step::Run { cpu, code, data, part, taken, detail, devices } => {
                    let number = code % codes.len();
                    let (code, block, run) = (&codes[number], &templates[number], runs[number]);
                    // Most parts are the whole block.
                    let length = block.len();
                    let end = if part.1 < 4 { usize::from(part.1) % length + 1 } else { length };
                    let first = if part.0 < 3 { usize::from(part.0) % end } else { 0 };
                    let mut accesses = code.accesses(run, data, *devices);
                    accesses.retain(|access| usize::from(access.instruction) < end);
                    accesses.retain(|access| usize::from(access.instruction) >= first);
                    let bytes = if *taken { 0 } else { 64 };
                    let next = block.address().plus(bytes);
                    let instructions = end as u32;
                    let executed = ExecutedBlock { instructions, accesses: &accesses, next };
                    *slots = machine.run(cpu % cpus, (first..end, block), &executed, *detail);
                }
                Step::Interrupt { cpu } => machine.cores[cpu % cpus].interrupt(),
                Step::DeviceWrites { place: number, bytes } => {
                    machine.system.dma_write(physical(place(*number)), *bytes);
                }
                Step::DeviceReads { place: number } => {
                    machine.system.dma_read(physical(place(*number)), 512);
                }
                Step::FlushLine { cpu, place: number, keeps } => {
                    let physical = physical(place(*number));
                    let flushed = machine.system.flush_line(cpu % cpus, physical, *keeps);
                    machine.cores.iter_mut().for_each(|core| core.forget_code(flushed.clone()));
                }
                Step::FlushTlbs { cpu, flush } => {
                    machine.cores[cpu % cpus].flush_translations();
                    machine.system.flush_tlbs(cpu % cpus, *flush);
                }
                Step::Space { cpu, space } => {
                    machine.cores[cpu % cpus].flush_translations();
                    let tables = PhysicalAddress(0x10_0000 + u64::from(*space) * 0x1000);
                    machine.system.set_address_space(cpu % cpus, *space, tables);
                }
            }
        }
        prop_assert_eq!(slots[0], slots[1], "{:?}", step);
        let [fast, one_by_one] = &mut machines;
        prop_assert_eq!(fast.observed(), one_by_one.observed(), "{} after {:?}", model.name, step);
    }
    Ok(())
}

fn codes() -> impl Strategy<Value = Vec<Code>> {
    let repeated = prop::option::weighted(
        0.15,
        prop::sample::select(&[StringOperation::Copy, StringOperation::Fill][..]),
    );
    let stride = prop_oneof![2 => Just(0u64), 1 => prop::sample::select(&[8u64, 32, 64, 128][..])];
    let code = (number(), prop::collection::vec(kind(), 1..24), repeated, stride);
    let code =
        code.prop_map(|(place, kinds, repeated, stride)| Code { place, kinds, repeated, stride });
    prop::collection::vec(code, 1..8)
}

/// Blocks of two lines or more in pages with the same physical page.
fn codes_in_pairs_of_pages() -> impl Strategy<Value = Vec<Code>> {
    let number = (prop::sample::select(pairs_of_pages()), 0usize..2, 0u64..3);
    let number = number.prop_map(|(pages, page, line)| pages[page] + line);
    let block = (number, prop::collection::vec(kind(), 17..24));
    let block =
        block.prop_map(|(number, kinds)| Code { place: number, kinds, repeated: None, stride: 0 });
    prop::collection::vec(block, 4..8)
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(120))]

    #[test]
    fn warming_on_fast_paths_equals_lookups_one_by_one(
        which in 0..MACHINES.len(),
        cpus in 1usize..4,
        classify in prop::bool::weighted(0.2),
        codes in codes(),
        steps in prop::collection::vec(step(), 1..250),
    ) {
        let model = SystemModel::parse(MACHINES[which]).expect("a model");
        compare((&model, cpus, classify), &codes, &steps)?;
    }

    /// Caches and TLBs are small, so accesses often evict lines and pages.
    #[test]
    fn warming_of_small_caches_on_fast_paths_equals_lookups_one_by_one(
        which in 0..MACHINES.len(),
        cpus in 1usize..4,
        codes in codes(),
        steps in prop::collection::vec(step(), 1..250),
    ) {
        let mut model = SystemModel::parse(MACHINES[which]).expect("a model");
        for level in [&mut model.l1i, &mut model.l1d] {
            level.size_bytes = level.line_bytes * u64::from(level.ways) * 4;
            level.ways = level.ways.min(2);
            level.size_bytes = level.line_bytes * u64::from(level.ways) * 4;
        }
        model.dtlb.entries = 4;
        model.dtlb.ways = None;
        compare((&model, cpus, false), &codes, &steps)?;
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(120))]

    #[test]
    fn warming_of_a_virtually_indexed_l1i_on_fast_paths_equals_lookups_one_by_one(
        which in 0..MACHINES.len(),
        codes in codes_in_pairs_of_pages(),
        steps in prop::collection::vec(step(), 1..250),
    ) {
        let mut model = with_large_ways(which);
        model.l1i.index = Index::Virtual;
        compare((&model, 1, false), &codes, &steps)?;
    }

    #[test]
    fn warming_of_a_virtually_indexed_l1d_on_fast_paths_equals_lookups_one_by_one(
        which in 0..MACHINES.len(),
        codes in codes(),
        steps in prop::collection::vec(step(), 1..250),
    ) {
        let mut model = with_large_ways(which);
        model.l1d.index = Index::Virtual;
        compare((&model, 1, false), &codes, &steps)?;
    }
}

/// A machine with an L1I and an L1D whose ways are larger than a page, so that virtual and physical addresses may select
/// different sets. A line of a page with several virtual addresses is in the set of the address that filled it.
fn with_large_ways(machine: usize) -> SystemModel {
    let mut model = SystemModel::parse(MACHINES[machine]).expect("a model");
    for level in [&mut model.l1i, &mut model.l1d] {
        level.ways = 2;
        level.size_bytes = 2 * 0x4000;
        level.index = Index::Physical;
    }
    model
}

/// A port that counts the accesses that pass the filter and those that do not.
struct CountingPort<'s> {
    port: LinuxPort<'s>,
    passed: &'s mut usize,
    looked_up: &'s mut usize,
}

impl Memory for CountingPort<'_> {
    fn look_up_fetch(&mut self, virtual_address: VirtualAddress, physical: PhysicalAddress) {
        self.port.look_up_fetch(virtual_address, physical);
    }

    fn look_up(&mut self, access: &Access, mode: AccessMode) {
        *self.looked_up += 1;
        self.port.look_up(access, mode);
    }

    fn filter(&mut self, accesses: &[Access], plain: &PlainAccesses) -> usize {
        let passed = self.port.filter(accesses, plain);
        *self.passed += passed;
        passed
    }

    fn fetch(
        &mut self,
        virtual_address: VirtualAddress,
        physical: PhysicalAddress,
        now: Cycle,
    ) -> u64 {
        self.port.fetch(virtual_address, physical, now)
    }

    fn access(&mut self, access: &Access, mode: AccessMode, now: Cycle) -> u64 {
        self.port.access(access, mode, now)
    }
}

/// The first load misses, and the first store makes the line dirty. All other accesses pass the filter.
#[test]
fn accesses_of_a_warm_line_pass_the_filter_and_are_counted() {
    let model = SystemModel::parse(MACHINES[ZEN4]).expect("a model");
    let kinds = vec![Kind::Load, Kind::Store, Kind::Load];
    let code = Code { place: 0, kinds, repeated: None, stride: 0 };
    let core = model.core.as_ref().expect("a core");
    let block = code.template(&OutOfOrderCoreModel { core, code_line_bytes: 64 });
    let accesses = code.accesses(0, &[(40, 0)], false);
    let mut core = OutOfOrderCore::new(core, 64).expect("an out-of-order core");
    let mut system = MemorySystem::new(&without_mshr_limit(&model), 1);
    let (mut passed, mut looked_up) = (0, 0);
    for _ in 0..100 {
        let pc = VirtualAddress::default();
        let port = MemoryPort {
            system: &mut system,
            cpu: 0,
            code: Some(&block),
            pc,
            page: PageSize::Small,
        };
        let port = LinuxPort { port, skew_cycles: 0 };
        let mut port = CountingPort { port, passed: &mut passed, looked_up: &mut looked_up };
        let executed =
            ExecutedBlock { instructions: 4, accesses: &accesses, next: block.address() };
        core.warm_from(0, &block, &executed, &mut port);
    }
    let counts = system.counts(0).basic;
    assert_eq!((passed, looked_up), (298, 2));
    assert_eq!((counts.loads, counts.stores), (200, 100));
    assert_eq!((counts.l1d_load_misses, counts.l1d_store_misses), (1, 0));
}
