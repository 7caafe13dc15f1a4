//! The fast path equals the general memory system: the same cycles, misses and stalls after each
//! operation, for any model that both run and any sequence of blocks, accesses and flushes.

use machine::memory::{Access, GlobalPages, MemorySystem, PageSize, TlbFlush};
use machine::system_model::Dma;
use machine::{
    AccessKind, BlockingMachine, BlockingModel, CacheModel, CodeBlock, CodeSpan, Counts, Cycle,
    Instructions, PhysicalAddress, Replacement, SystemModel, TlbModel, VirtualAddress,
};
use proptest::prelude::*;

/// An operation of a stream. Addresses are in few pages, so that they recur.
#[derive(Clone, Debug)]
enum Operation {
    /// A block at an address, with its bytes and instructions.
    Block {
        address: u64,
        bytes: u32,
        instructions: u32,
    },
    /// The guest left the previous block early: this number of 256ths of the block did not execute.
    Uncount(u8),
    Data {
        address: u64,
        bytes: u64,
        write: bool,
    },
    /// New page tables, several times.
    Flush(u16, TlbFlush),
    /// A device writes memory that an address maps to, as code or as data.
    Device {
        address: u64,
        bytes: u64,
        code: bool,
    },
    /// The processor flushes the line of an address.
    FlushLine(u64),
    /// The kernel isolates its page tables, or stops to do so.
    SetGlobalPages(GlobalPages),
}

const GUEST_PAGE_BYTES: u64 = 4096;
/// The largest page that [`tlb`] makes.
const TLB_PAGE_BYTES_MAX: u64 = 1 << 15;

/// Page tables that change with each flush. Some pages belong to devices and hold no code.
#[derive(Clone, Copy)]
struct PageTables {
    flushes: u64,
}

impl PageTables {
    fn code(self, address: u64) -> u64 {
        // Different pages may map to the same frame, but not within the largest page of a TLB.
        let page = address / TLB_PAGE_BYTES_MAX;
        let frame = (page ^ self.flushes).wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 61;
        frame * TLB_PAGE_BYTES_MAX + address % TLB_PAGE_BYTES_MAX
    }

    fn data(self, address: u64) -> Option<u64> {
        let device = (address / GUEST_PAGE_BYTES + self.flushes).is_multiple_of(16);
        (!device).then(|| self.code(address))
    }
}

fn replacement() -> impl Strategy<Value = Replacement> {
    prop_oneof![
        4 => Just(Replacement::Lru),
        1 => Just(Replacement::TreePlru),
        1 => Just(Replacement::Random),
    ]
}

/// Valid combinations of ways and replacement.
fn associativity() -> impl Strategy<Value = (u32, Replacement)> {
    let ways = prop_oneof![
        3 => prop::sample::select(&[1u32, 2, 4, 8, 16][..]), 1 => 1u32..20, 1 => Just(32)
    ];
    (ways, replacement()).prop_map(|(ways, replacement)| match replacement {
        Replacement::TreePlru => (ways.next_power_of_two(), replacement),
        _ => (ways, replacement),
    })
}

fn cache(line_logs: std::ops::Range<u32>) -> impl Strategy<Value = CacheModel> {
    (line_logs, 0u32..6, associativity()).prop_map(|(line_log, sets_log, (ways, replacement))| {
        let line_bytes = 1 << line_log;
        let size_bytes = (line_bytes * u64::from(ways)) << sets_log;
        CacheModel { size_bytes, ways, line_bytes, replacement }
    })
}

fn tlb() -> impl Strategy<Value = TlbModel> {
    let page_log = prop_oneof![4 => Just(12u32), 1 => 12u32..16];
    (page_log, 0u32..3, associativity()).prop_map(|(page_log, sets_log, (ways, replacement))| {
        TlbModel { entries: ways << sets_log, ways, page_bytes: 1 << page_log, replacement }
    })
}

fn model() -> impl Strategy<Value = BlockingModel> {
    let caches = (cache(3..8), cache(2..8), cache(7..10));
    (caches, tlb(), tlb(), [1u64..4, 0..20, 0..300, 0..50], prop::bool::weighted(0.2)).prop_map(
        |((l1i, l1d, l2), itlb, dtlb, cycles, update)| BlockingModel {
            name: "any".to_owned(),
            clock_hz: 1_000_000_000,
            instruction_cycles: cycles[0],
            l1i,
            l1d,
            l2,
            itlb,
            dtlb,
            l2_hit_cycles: cycles[1],
            memory_cycles: cycles[2],
            tlb_miss_cycles: cycles[3],
            dma: if update { Dma::Update } else { Dma::Invalidate },
        },
    )
}

/// Addresses in few pages: adjacent ones, and pages with the same slot in the fast lookup.
fn address() -> impl Strategy<Value = u64> {
    let base = prop_oneof![
        Just(0u64),
        Just(0x7fff_f000_0000),
        Just(0xffff_ffff_8100_0000),
        Just(0xffff_8000_0000_0000)
    ];
    let page = prop_oneof![6 => 0u64..6, 2 => 0u64..40, 1 => (0u64..5).prop_map(|n| n * 1024)];
    let offset = prop_oneof![4 => 0u64..256, 3 => 0u64..4096, 1 => 4080u64..4096];
    (base, page, offset).prop_map(|(base, page, offset)| base + page * GUEST_PAGE_BYTES + offset)
}

fn flush() -> impl Strategy<Value = TlbFlush> {
    let of_page = (address(), any::<bool>()).prop_map(|(address, global)| TlbFlush::Page {
        virtual_address: VirtualAddress(address),
        space: 0,
        global,
    });
    prop_oneof![
        2 => Just(TlbFlush::All),
        1 => Just(TlbFlush::NonGlobal),
        2 => Just(TlbFlush::Space(0)),
        2 => of_page,
    ]
}

/// `isolated`: the first page of 2 MiB of the tested kernel addresses is global. Otherwise all of them are.
fn global_pages(isolated: bool) -> GlobalPages {
    let start = 0xffff_ffff_8000_0000;
    if isolated { GlobalPages::isolated(start..start + 1) } else { GlobalPages::KernelHalf }
}

fn operation() -> impl Strategy<Value = Operation> {
    prop_oneof![
        30 => (address(), 1u32..120, 1u32..20).prop_map(|(address, bytes, instructions)| {
            Operation::Block { address, bytes, instructions }
        }),
        3 => any::<u8>().prop_map(Operation::Uncount),
        60 => (address(), 1u64..65, any::<bool>())
            .prop_map(|(address, bytes, write)| Operation::Data { address, bytes, write }),
        4 => (prop_oneof![4 => Just(1u16), 1 => 1u16..9000], flush())
            .prop_map(|(times, what)| Operation::Flush(times, what)),
        6 => (address(), 1u64..2000, any::<bool>())
            .prop_map(|(address, bytes, code)| Operation::Device { address, bytes, code }),
        4 => address().prop_map(Operation::FlushLine),
        1 => any::<bool>().prop_map(|isolated| Operation::SetGlobalPages(global_pages(isolated))),
    ]
}

/// Streams mostly repeat earlier operations.
fn stream() -> impl Strategy<Value = Vec<Operation>> {
    prop::collection::vec(operation(), 1..60).prop_flat_map(|distinct| {
        let again = prop::sample::select(distinct.clone());
        prop::collection::vec(prop_oneof![3 => again, 1 => operation()], 1..400)
    })
}

/// The model for the general memory system.
fn general(model: &BlockingModel) -> SystemModel {
    let mut system = SystemModel::parse(R4400).expect("a good model");
    system.name.clone_from(&model.name);
    (system.clock_hz, system.instruction_cycles) = (model.clock_hz, model.instruction_cycles);
    let levels = [&mut system.l1i, &mut system.l1d].into_iter().chain(&mut system.l2);
    for (level, cache) in levels.zip([&model.l1i, &model.l1d, &model.l2]) {
        (level.size_bytes, level.ways) = (cache.size_bytes, cache.ways);
        (level.line_bytes, level.replacement) = (cache.line_bytes, cache.replacement);
        level.sub_block_bytes = None;
    }
    for (level, tlb) in [(&mut system.itlb, &model.itlb), (&mut system.dtlb, &model.dtlb)] {
        (level.entries, level.ways) = (tlb.entries, Some(tlb.ways));
        (level.replacement, level.pages_bytes) = (tlb.replacement, vec![tlb.page_bytes]);
    }
    system.l2_hit_cycles = Some(model.l2_hit_cycles);
    system.memory_cycles = model.memory_cycles;
    system.tlb_miss_cycles = model.tlb_miss_cycles;
    system.dma = model.dma;
    assert_eq!(system.blocking().as_ref(), Ok(model));
    system
}

struct Pair {
    system: MemorySystem,
    fast: BlockingMachine,
    tables: PageTables,
    /// Instructions of the last block that can still be uncounted.
    executed: u32,
    /// All instructions that were uncounted.
    uncounted: u64,
    instruction_cycles: u64,
}

impl Pair {
    fn new(model: &BlockingModel) -> Pair {
        Pair {
            system: MemorySystem::new(&general(model), 1),
            fast: BlockingMachine::new(model),
            tables: PageTables { flushes: 0 },
            executed: 0,
            uncounted: 0,
            instruction_cycles: model.instruction_cycles,
        }
    }

    fn apply(&mut self, operation: &Operation) {
        match *operation {
            Operation::Block { address, bytes, instructions } => {
                self.block(address, bytes, instructions);
            }
            Operation::Uncount(part) => {
                let number = self.executed * u32::from(part) / 255;
                self.executed -= number;
                self.uncounted += u64::from(number);
                self.fast.uncount_instructions(number);
            }
            Operation::Data { address, bytes, write } => self.data(address, bytes, write),
            Operation::Flush(times, what) => {
                for _ in 0..times {
                    self.system.flush_tlbs(0, what);
                    self.fast.flush_tlbs(what);
                }
                self.tables.flushes += u64::from(times);
            }
            Operation::SetGlobalPages(pages) => {
                self.system.set_global_pages(0, pages);
                self.fast.set_global_pages(pages);
            }
            Operation::Device { address, bytes, code } => {
                let data = self.tables.data(address);
                let physical = if code { Some(self.tables.code(address)) } else { data };
                if let Some(physical) = physical {
                    self.system.dma_write(PhysicalAddress(physical), bytes);
                    self.fast.dma_write(PhysicalAddress(physical), bytes);
                }
            }
            Operation::FlushLine(address) => {
                if let Some(physical) = self.tables.data(address) {
                    self.system.flush_line(0, PhysicalAddress(physical), false);
                    self.fast.flush_line(PhysicalAddress(physical));
                }
            }
        }
    }

    /// The counts of the general system, without the instructions that did not execute.
    fn expected(&self) -> Counts {
        let counts = self.system.counts(0).basic;
        Counts {
            instructions: counts.instructions - self.uncounted,
            cycles: counts.cycles - self.uncounted * self.instruction_cycles,
            ..counts
        }
    }

    fn access(
        &self,
        kind: AccessKind,
        virtual_address: VirtualAddress,
        physical: PhysicalAddress,
        bytes: u32,
    ) -> Access {
        let page = PageSize::Small;
        let pc = VirtualAddress::default();
        Access { cpu: 0, kind, virtual_address, physical, bytes, pc, page, start: Cycle::START }
    }

    fn block(&mut self, address: u64, bytes: u32, instructions: u32) {
        self.system.execute(0, Instructions::from(instructions));
        let in_page = (GUEST_PAGE_BYTES - address % GUEST_PAGE_BYTES).min(bytes.into()) as u32;
        let span = |address: u64, bytes: u32| CodeSpan {
            virtual_address: VirtualAddress(address),
            physical: PhysicalAddress(self.tables.code(address)),
            bytes,
        };
        let second = span(address + u64::from(in_page), bytes - in_page);
        let second = (second.bytes > 0).then_some(second);
        let first = span(address, in_page);
        for CodeSpan { virtual_address, physical, bytes } in [Some(first), second].iter().flatten()
        {
            let fetch = self.access(AccessKind::Fetch, *virtual_address, *physical, *bytes);
            self.system.access_blocking(&fetch);
        }
        let shift = self.fast.fetch_line_shift();
        self.fast.execute_block(&CodeBlock::new(shift, instructions, first, second));
        self.executed = instructions;
    }

    fn data(&mut self, address: u64, bytes: u64, write: bool) {
        let address = VirtualAddress(address);
        let lines: Vec<VirtualAddress> = self.fast.data_lines(address, bytes).collect();
        assert_eq!(self.fast.crosses(address, bytes), lines.len() > 1);
        let is_fast = if write {
            self.fast.store_fast(address, bytes)
        } else {
            self.fast.load_fast(address, bytes)
        };
        assert!(!is_fast || lines.len() == 1);
        for line in lines {
            let physical = self.tables.data(line.0).map(PhysicalAddress);
            let kind = if write { AccessKind::Store } else { AccessKind::Load };
            let access = self.access(kind, line, physical.unwrap_or_default(), 1);
            match physical {
                Some(_) => self.system.access_blocking(&access),
                None => self.system.access_device_blocking(&access),
            };
            let translate = |asked: VirtualAddress| {
                assert_eq!(asked, line);
                physical
            };
            if is_fast {
                continue;
            }
            if write {
                self.fast.store(line, translate);
            } else {
                self.fast.load(line, translate);
            }
        }
    }
}

fn hold_equal(model: &BlockingModel, operations: &[Operation]) -> Result<(), TestCaseError> {
    prop_assert_eq!(model.check(), Ok(()));
    let mut pair = Pair::new(model);
    for (at, operation) in operations.iter().enumerate() {
        pair.apply(operation);
        let expected = pair.expected();
        prop_assert_eq!(pair.fast.counts(), expected, "after operation {}: {:?}", at, operation);
        prop_assert_eq!(pair.fast.cycles(), expected.cycles);
    }
    Ok(())
}

const R4400: &str = include_str!("../../../machines/r4400-1994.toml");

fn r4400() -> BlockingModel {
    BlockingModel::parse(R4400).expect("a good model")
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(400))]

    #[test]
    fn any_model_counts_what_the_memory_system_counts(model in model(), operations in stream()) {
        hold_equal(&model, &operations)?;
    }

    #[test]
    fn the_1994_model_counts_what_the_memory_system_counts(operations in stream()) {
        hold_equal(&r4400(), &operations)?;
    }
}

#[test]
fn each_line_of_an_access_has_an_address() {
    // The lines have 16 bytes.
    let machine = BlockingMachine::new(&r4400());
    let lines = |address, bytes| {
        let lines = machine.data_lines(VirtualAddress(address), bytes);
        lines.map(|line| line.0).collect::<Vec<_>>()
    };
    let crosses = |address, bytes| machine.crosses(VirtualAddress(address), bytes);
    assert_eq!((lines(8, 8), lines(8, 9), lines(15, 18)), (vec![8], vec![8, 16], vec![15, 16, 32]));
    assert_eq!(lines(u64::MAX, 2), [u64::MAX, 0]);
    assert!(crosses(u64::MAX, 2) && !crosses(8, 8) && crosses(8, 9));
}

#[test]
fn a_known_page_is_not_asked_for_until_a_flush() {
    let mut machine = BlockingMachine::new(&r4400());
    let mut asked = Vec::new();
    for round in 0..3 {
        // More pages than the data TLB has.
        for page in 0..100 {
            machine.load(VirtualAddress(page << 12), |address| {
                asked.push((round, address.0));
                Some(PhysicalAddress(address.0))
            });
        }
        if round == 1 {
            machine.flush_tlbs(TlbFlush::All);
        }
    }
    let expected = |round| (0..100).map(move |page| (round, page << 12));
    assert_eq!(asked, expected(0).chain(expected(2)).collect::<Vec<_>>());
    assert_eq!(machine.counts().dtlb_misses, 300);
}

#[test]
fn a_page_stays_forgotten_however_many_flushes_later() {
    let mut machine = BlockingMachine::new(&r4400());
    let (virtual_address, physical) = (VirtualAddress(0x1000), PhysicalAddress(0x1000));
    let span = CodeSpan { virtual_address, physical, bytes: 8 };
    let block = CodeBlock::new(machine.fetch_line_shift(), 2, span, None);
    let mut asked = 0;
    // Numbers of flushes around which the counter of a few bits wraps.
    for flushes in [1, 255, 256, 1023, 1024, 2047, 2048, 4094, 4095, 4096, 65_535, 65_536] {
        let before = (machine.counts(), asked);
        for _ in 0..2 {
            machine.execute_block(&block);
            machine.load(VirtualAddress(0x2000), |address| {
                asked += 1;
                Some(PhysicalAddress(address.0))
            });
        }
        let region = machine.counts().since(&before.0);
        assert_eq!((region.itlb_misses, region.dtlb_misses), (1, 1), "before {flushes} flushes");
        assert_eq!(asked, before.1 + 1);
        (0..flushes).for_each(|_| machine.flush_tlbs(TlbFlush::All));
    }
}

#[test]
fn a_device_waits_for_memory_and_leaves_the_caches_alone() {
    let mut machine = BlockingMachine::new(&r4400());
    machine.load(VirtualAddress(0x1000), |address| Some(PhysicalAddress(address.0)));
    let before = machine.counts();
    machine.load(VirtualAddress(0xfee0_0000), |_| None);
    machine.store(VirtualAddress(0xfee0_0010), |_| None);
    let region = machine.counts().since(&before);
    assert_eq!((region.loads, region.stores, region.device_accesses), (1, 1, 2));
    // One of the two missed the TLB.
    assert_eq!((region.dtlb_misses, region.data_stall_cycles), (1, 10 + 2 * 100));
    assert_eq!((region.l1d_load_misses, region.l1d_store_misses), (0, 0));
}
