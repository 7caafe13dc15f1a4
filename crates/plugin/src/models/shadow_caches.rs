//! Shadow caches, at the level `count`: caches of other machines, and caches of all sizes, that see the same accesses.
//! They count the misses that these caches would have, and do not affect time.
//!
//! `cpu/shadow_caches.rs` passes each block and access to the one [`ShadowCacheModels`], in the vCPUs' thread.

use machine::memory::{
    Access, GlobalPages, MemorySystem, PageSize, StackDistances, TlbFlush, without_mshr_limit,
};
use machine::{
    AccessKind, CodeSpan, Cycle, Instructions, LineAddress, LineRange, PhysicalAddress,
    SystemModel, VirtualAddress,
};

use crate::models::accesses::{ProcessorAccess, Write};
use crate::models::counters::put_memory_counts;
use crate::models::pages::Pages;
use crate::models::translations::{self, Change};
use simrecord::counters::{COUNTERS, Counts, mask_of};
use simrecord::record::{AccessStream, Group, MissCurvePoint, ShadowCaches};

/// The virtual and the physical address of an access.
type Addresses = (VirtualAddress, PhysicalAddress);

/// The address that accesses of no instruction have in place of the instruction's, as at the level `ooo`.
const NO_INSTRUCTION: VirtualAddress = VirtualAddress(0);

/// The line size of the caches of all sizes, in bytes.
pub const CURVE_LINE_BYTES: u64 = 64;
/// Sizes of the miss curve, as powers of two: 1 KiB to 1 GiB.
const SIZES: std::ops::RangeInclusive<u32> = 10..=30;
const GROUPS: usize = Group::ALL.len();
/// Buckets of stack distances: one for each number of bits from 0 to 64, and one for first accesses to a line.
const BUCKETS: usize = 66;
/// The bucket of first accesses.
const COLD: usize = BUCKETS - 1;

/// The caches of one model, and their counts by group of contexts.
struct Hierarchy {
    system: MemorySystem,
    /// The counters that these caches have: [`ShadowCaches::counters`].
    counters: u32,
    sums: [Counts; GROUPS],
    /// The counts of each vCPU when they were added to `sums` last.
    added: Vec<Counts>,
}

/// Stack distances of a stream of accesses, by group of contexts.
struct Distances {
    stack: StackDistances,
    /// The line of the last access.
    last_line: LineAddress,
    buckets: [[u64; BUCKETS]; GROUPS],
}

struct Vcpu {
    /// The group that the vCPU executes.
    group: Group,
    pages: Pages,
    /// Executed instructions. They serve as the clock of shadow caches.
    instructions: Instructions,
}

pub(crate) struct ShadowCacheModels {
    hierarchies: Vec<Hierarchy>,
    /// For each CPU, the distances of its instructions and of its data. Empty without miss curves.
    curves: Vec<[Distances; 2]>,
    vcpus: Vec<Vcpu>,
}

impl ShadowCacheModels {
    /// Makes the caches of the models, and caches of all sizes if `curves`.
    pub(crate) fn new(models: &[SystemModel], curves: bool, cpus: u32) -> ShadowCacheModels {
        let hierarchy = |model: &SystemModel| Hierarchy {
            system: MemorySystem::new(&without_mshr_limit(model), cpus),
            counters: mask_of(model, cpus),
            sums: [[0; COUNTERS]; GROUPS],
            added: vec![[0; COUNTERS]; cpus as usize],
        };
        let distances = || Distances {
            stack: StackDistances::new(CURVE_LINE_BYTES),
            last_line: LineAddress(u64::MAX),
            buckets: [[0; BUCKETS]; GROUPS],
        };
        let vcpu = || Vcpu {
            group: Group::Kernel,
            pages: Pages::new(),
            instructions: Instructions::default(),
        };
        ShadowCacheModels {
            hierarchies: models.iter().map(hierarchy).collect(),
            curves: (0..if curves { cpus } else { 0 })
                .map(|_| [distances(), distances()])
                .collect(),
            vcpus: (0..cpus).map(|_| vcpu()).collect(),
        }
    }

    /// A block with this number of instructions starts in `group`. Fetches its code, which lies at `spans`.
    #[inline]
    pub(crate) fn block(
        &mut self,
        cpu: usize,
        group: Group,
        instructions: Instructions,
        spans: (CodeSpan, Option<CodeSpan>),
    ) {
        if self.vcpus[cpu].group != group {
            self.change_group(cpu, group);
        }
        for span in [Some(spans.0), spans.1].into_iter().flatten() {
            let addresses = (span.virtual_address, span.physical);
            self.request(cpu, AccessKind::Fetch, span.virtual_address, addresses, span.bytes);
        }
        self.vcpus[cpu].instructions += instructions;
    }

    /// The instruction at `pc` has loaded or stored `bytes` bytes within one page.
    #[inline]
    pub(crate) fn data(
        &mut self,
        cpu: usize,
        write: bool,
        pc: VirtualAddress,
        addresses: Addresses,
        bytes: u32,
    ) {
        self.request(cpu, data_kind(write), pc, addresses, bytes);
    }

    /// Makes the accesses with which the vCPU itself enters a handler of the kernel. They count for the kernel, not for the
    /// group that the handler has interrupted.
    pub(crate) fn enter_handler(&mut self, cpu: usize, accesses: &[ProcessorAccess]) {
        if self.vcpus[cpu].group != Group::Kernel {
            self.change_group(cpu, Group::Kernel);
        }
        for access in accesses {
            let addresses = (access.virtual_address, access.physical);
            self.data(cpu, access.write, NO_INSTRUCTION, addresses, access.bytes.into());
        }
    }

    /// The instruction at `pc` has accessed a device.
    pub(crate) fn device(
        &mut self,
        cpu: usize,
        write: bool,
        pc: VirtualAddress,
        virtual_address: VirtualAddress,
    ) {
        let addresses = (virtual_address, PhysicalAddress::default());
        let access = self.access(cpu, data_kind(write), pc, addresses, 1);
        for hierarchy in &mut self.hierarchies {
            hierarchy.system.access_device(&access);
        }
    }

    /// Memory was written by a device, or by a store of `cpu` to a page with code.
    pub(crate) fn observe_write(&mut self, cpu: usize, write: Write) {
        for hierarchy in &mut self.hierarchies {
            if write.by_device {
                hierarchy.system.dma_write(write.physical, write.bytes);
            } else {
                hierarchy.system.code_written(cpu, write.physical, write.bytes);
            }
        }
    }

    /// The physical addresses of the pages that a vCPU used last.
    pub(crate) fn pages(&mut self, cpu: usize) -> &mut Pages {
        &mut self.vcpus[cpu].pages
    }

    /// Drops all address translations of a vCPU.
    pub(crate) fn forget_translations(&mut self, cpu: usize) {
        self.change_translations(cpu, Change { flush: Some(TlbFlush::All), space: None });
    }

    /// Sets a vCPU's pages that stay over a write of cr3. Call it before such a write changes translations.
    pub(crate) fn set_global_pages(&mut self, cpu: usize, pages: GlobalPages) {
        for hierarchy in &mut self.hierarchies {
            hierarchy.system.set_global_pages(cpu, pages);
        }
    }

    /// Passes a change of a vCPU's address translations on to the caches.
    pub(crate) fn change_translations(&mut self, cpu: usize, change: Change) {
        self.vcpus[cpu].pages.change(change);
        for hierarchy in &mut self.hierarchies {
            translations::apply(change, &mut hierarchy.system, cpu);
        }
    }

    /// An access by the instruction at `pc`, as the memory system takes it. Executed instructions serve as its time.
    fn access(
        &self,
        cpu: usize,
        kind: AccessKind,
        pc: VirtualAddress,
        (virtual_address, physical): Addresses,
        bytes: u32,
    ) -> Access {
        let page = PageSize::in_linux(virtual_address);
        let start = Cycle(self.vcpus[cpu].instructions.0);
        Access { cpu, kind, virtual_address, physical, bytes: bytes.max(1), pc, page, start }
    }

    /// Passes an access to the caches of all models, and to the caches of all sizes.
    fn request(
        &mut self,
        cpu: usize,
        kind: AccessKind,
        pc: VirtualAddress,
        addresses: Addresses,
        bytes: u32,
    ) {
        let access = self.access(cpu, kind, pc, addresses, bytes);
        for hierarchy in &mut self.hierarchies {
            hierarchy.system.access(&access);
        }
        if let Some(curves) = self.curves.get_mut(cpu) {
            let group = self.vcpus[cpu].group;
            let stream = usize::from(kind != AccessKind::Fetch);
            curves[stream].access(group, addresses.1, bytes.max(1).into());
        }
    }

    #[cold]
    fn change_group(&mut self, cpu: usize, group: Group) {
        self.synchronise(cpu);
        self.vcpus[cpu].group = group;
    }

    /// Adds the counts of a vCPU's caches since the last call to the sums of its group.
    fn synchronise(&mut self, cpu: usize) {
        let group = self.vcpus[cpu].group;
        for hierarchy in &mut self.hierarchies {
            let mut now = [0; COUNTERS];
            put_memory_counts(&hierarchy.system.counts(cpu), &mut now);
            let added = &mut hierarchy.added[cpu];
            for (counter, sum) in hierarchy.sums[group as usize].iter_mut().enumerate() {
                *sum += now[counter] - added[counter];
            }
            *added = now;
        }
    }

    /// Sets all counts to zero, because a region opens. Caches keep their content.
    pub(crate) fn open_region(&mut self) {
        (0..self.vcpus.len()).for_each(|cpu| self.synchronise(cpu));
        self.hierarchies.iter_mut().for_each(|hierarchy| hierarchy.sums = [[0; COUNTERS]; GROUPS]);
        for distances in self.curves.iter_mut().flatten() {
            distances.buckets = [[0; BUCKETS]; GROUPS];
        }
    }

    /// The counts of each model's caches in the region so far.
    pub(crate) fn rows(&mut self, region: u32) -> Vec<(ShadowCaches, Counts)> {
        (0..self.vcpus.len()).for_each(|cpu| self.synchronise(cpu));
        let models = self.hierarchies.iter().zip(0..);
        let rows = models.flat_map(|(hierarchy, model)| {
            let row = move |group: Group| {
                let counters = hierarchy.counters;
                let record = ShadowCaches { region, model, group, counters };
                (record, hierarchy.sums[group as usize])
            };
            Group::ALL.map(row)
        });
        rows.collect()
    }

    /// The misses of caches of all sizes in the region so far, added up over the CPUs: each CPU has a cache of its own.
    pub(crate) fn points(&self, region: u32) -> Vec<MissCurvePoint> {
        let mut points = Vec::new();
        if self.curves.is_empty() {
            return points;
        }
        for (position, stream) in
            [AccessStream::Instructions, AccessStream::Data].into_iter().enumerate()
        {
            for group in Group::ALL {
                points.extend(SIZES.map(|size| {
                    let (mut accesses, mut misses) = (0, 0);
                    for curves in &self.curves {
                        let cpu_misses = curves[position].misses(group, size);
                        accesses += cpu_misses.accesses;
                        misses += cpu_misses.misses;
                    }
                    let size_bytes = 1 << size;
                    MissCurvePoint { region, group, stream, size_bytes, accesses, misses }
                }));
            }
        }
        points
    }
}

fn data_kind(write: bool) -> AccessKind {
    if write { AccessKind::Store } else { AccessKind::Load }
}

/// The accesses and misses of a cache of one size.
struct MissesOfSize {
    accesses: u64,
    misses: u64,
}

impl Distances {
    /// Counts an access to each of its lines.
    fn access(&mut self, group: Group, physical: PhysicalAddress, bytes: u64) {
        let shift = CURVE_LINE_BYTES.ilog2();
        for line in LineRange::touched_by(physical, bytes, shift) {
            let bucket = if line == self.last_line {
                0
            } else {
                let distance = self.stack.access(PhysicalAddress::of_line(line, shift));
                distance.map_or(COLD, |distance| (u64::BITS - distance.leading_zeros()) as usize)
            };
            self.last_line = line;
            self.buckets[group as usize][bucket] += 1;
        }
    }

    /// The misses of a cache of `2^size` bytes: accesses at a stack distance greater than its number of lines.
    fn misses(&self, group: Group, size: u32) -> MissesOfSize {
        let buckets = &self.buckets[group as usize];
        let lines = size - CURVE_LINE_BYTES.ilog2();
        let near = &buckets[..=lines as usize];
        let accesses: u64 = buckets.iter().sum();
        MissesOfSize { accesses, misses: accesses - near.iter().sum::<u64>() }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_cache_misses_what_is_farther_away_than_it_has_lines() {
        let model = SystemModel::parse(include_str!("../../../../machines/zen3.toml")).unwrap();
        let mut shadow_caches = ShadowCacheModels::new(&[model], true, 1);
        shadow_caches.open_region();
        // 32 lines, 2 KiB, round and round.
        for _ in 0..10 {
            (0..32).for_each(|line| {
                let addresses = (VirtualAddress(line * 64), PhysicalAddress(line * 64));
                shadow_caches.data(0, false, VirtualAddress(0x40), addresses, 8);
            });
        }
        let point = |size_bytes| {
            let points = shadow_caches.points(1).into_iter();
            let mut of_kernel = points
                .filter(|point| point.group == Group::Kernel && point.stream == AccessStream::Data);
            of_kernel.find(|point| point.size_bytes == size_bytes).unwrap()
        };
        assert_eq!((point(1024).accesses, point(1024).misses), (320, 320));
        assert_eq!((point(2048).accesses, point(2048).misses), (320, 32));
        // A fetch in user mode counts for that group alone.
        let (virtual_address, physical) = (VirtualAddress(0x1000), PhysicalAddress(0x1000));
        let span = CodeSpan { virtual_address, physical, bytes: 4 };
        shadow_caches.block(0, Group::User, Instructions(1), (span, None));
        let rows = shadow_caches.rows(1);
        let counts_of = |group: Group| rows.iter().find(|(row, _)| row.group == group).unwrap().1;
        let [loads, fetches] = ["loads", "fetches"]
            .map(|wanted| (0..COUNTERS).find(|id| simrecord::counters::name(*id) == Some(wanted)));
        assert_eq!(counts_of(Group::Kernel)[loads.unwrap()], 320);
        let user = counts_of(Group::User);
        assert_eq!((user[loads.unwrap()], user[fetches.unwrap()]), (0, 1));
    }

    #[test]
    fn each_cpu_has_a_cache_of_each_size() {
        let mut shadow_caches = ShadowCacheModels::new(&[], true, 2);
        shadow_caches.open_region();
        // 16 lines of each CPU, 1 KiB, round and round.
        for round in 0..10 * 16 {
            for cpu in 0..2 {
                let address = (cpu as u64 * 16 + round % 16) * 64;
                let addresses = (VirtualAddress(address), PhysicalAddress(address));
                shadow_caches.data(cpu, false, VirtualAddress(0x40), addresses, 8);
            }
        }
        let points = shadow_caches.points(1);
        let smallest = points.iter().find(|point| point.accesses > 0).unwrap();
        assert_eq!(smallest.size_bytes, 1024);
        assert_eq!((smallest.accesses, smallest.misses), (320, 32));
    }

    fn count(shadow_caches: &mut ShadowCacheModels, group: Group, name: &str) -> u64 {
        let rows = shadow_caches.rows(1);
        let counts = rows.iter().find(|(row, _)| row.group == group).unwrap().1;
        counts[(0..COUNTERS).find(|id| simrecord::counters::name(*id) == Some(name)).unwrap()]
    }

    /// The prefetcher of zen3's L1D knows an instruction by its address.
    #[test]
    fn strides_of_one_instruction_are_prefetched() {
        let misses_of = |instruction_of: fn(u64) -> u64| {
            let model = SystemModel::parse(include_str!("../../../../machines/zen3.toml")).unwrap();
            let mut shadow_caches = ShadowCacheModels::new(&[model], false, 1);
            shadow_caches.open_region();
            (0..1_000).for_each(|line| {
                let address = 0x10_0000 + line * 64;
                let addresses = (VirtualAddress(address), PhysicalAddress(address));
                let pc = VirtualAddress(instruction_of(line));
                shadow_caches.data(0, false, pc, addresses, 8);
                shadow_caches.vcpus[0].instructions += Instructions(100);
            });
            count(&mut shadow_caches, Group::Kernel, "l1d_load_misses")
        };
        let (of_one, of_many) = (misses_of(|_| 0x40), misses_of(|line| line * 64));
        assert_eq!(of_many, 1_000, "no instruction has a stride");
        assert!(of_one < 200, "{of_one} misses");
    }

    #[test]
    fn accesses_of_an_entry_count_for_the_kernel() {
        let model = SystemModel::parse(include_str!("../../../../machines/zen3.toml")).unwrap();
        let mut shadow_caches = ShadowCacheModels::new(&[model], false, 1);
        shadow_caches.open_region();
        let (virtual_address, physical) = (VirtualAddress(0x1000), PhysicalAddress(0x1000));
        let span = CodeSpan { virtual_address, physical, bytes: 4 };
        shadow_caches.block(0, Group::User, Instructions(1), (span, None));
        let gate = ProcessorAccess {
            virtual_address: VirtualAddress(0x2000),
            physical: PhysicalAddress(0x2000),
            bytes: 8,
            write: false,
            depends_on_previous: false,
        };
        shadow_caches.enter_handler(0, &[gate]);
        let loads =
            [Group::User, Group::Kernel].map(|group| count(&mut shadow_caches, group, "loads"));
        assert_eq!(loads, [0, 1]);
    }
}
