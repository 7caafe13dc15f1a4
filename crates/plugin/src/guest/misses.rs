//! Counts cache misses at the level `ooo`: why lines miss, which context evicted them, and which code and
//! data they belong to. [`Processors`](crate::models::processors::Processors) has one [`Misses`] once a
//! region opens that records misses.
//!
//! The memory system keeps single misses. They are collected here before the context of a vCPU changes,
//! and where rows are written.

use std::collections::BTreeMap;

use attribution::KernelContext;
use machine::VirtualAddress;
use machine::memory::{
    CacheName, ClassifierConfig, Context, LocationCounts, MemorySystem, Miss, MissClass,
};

use crate::guest::memory_context::service_of;
use crate::guest::service_misses::{EndedFault, Executing, ServiceMisses};
use crate::guest::structures::Guest;
use crate::guest::tracker::is_kernel;
use crate::guest::user_functions::CodePages;
use simrecord::record::{ELSEWHERE, MissCount, MissKind, Record, UNKNOWN_FUNCTION};

/// Caches, in the order of [`MissCount::cache`].
const CACHES: [CacheName; simrecord::record::CACHES] =
    [CacheName::L1i, CacheName::L1d, CacheName::L2, CacheName::L3];
/// The most single misses that the memory system keeps between two collections. At least each timer tick causes a
/// collection, and there are fewer misses in between.
const MISSES_KEPT_MAX: usize = 1 << 20;
/// The most locations of a cache's misses that are counted separately, in code and in data each.
const LOCATIONS_MAX: usize = 1 << 17;
/// The most locations of a cache's misses that are written. Further locations, the least frequent, are summed.
const LOCATIONS_WRITTEN_MAX: usize = 32_768;
/// The code address of accesses that the processor itself makes when it enters a handler.
const NO_INSTRUCTION: u64 = 0;
/// Data is counted by pieces of this many bytes.
const DATA_BYTES: u64 = 64;

/// The misses of all caches in the open region.
pub(crate) struct Misses {
    /// Misses of each cache by code.
    code: [LocationCounts; 4],
    /// Misses of each cache by data.
    data: [LocationCounts; 4],
    /// Misses that the memory system did not keep, because there were too many.
    not_kept: u64,
    /// The misses of services. `None`: services are not recorded.
    services: Option<ServiceMisses>,
}

impl Misses {
    /// Starts to classify the misses of a memory system, from zero. `with_services`: whether to count by service, too.
    pub(crate) fn begin(system: &mut MemorySystem, with_services: bool) -> Misses {
        system.classify_misses(ClassifierConfig {
            misses_kept: MISSES_KEPT_MAX,
            shadow_caches: true,
            ..ClassifierConfig::default()
        });
        Misses::new(with_services.then(ServiceMisses::default))
    }

    fn new(services: Option<ServiceMisses>) -> Misses {
        let locations = || std::array::from_fn(|_| LocationCounts::new(LOCATIONS_MAX));
        Misses { code: locations(), data: locations(), not_kept: 0, services }
    }

    /// Sets what a vCPU executes from now on. `ended`: the page faults that have ended. Collect earlier misses before.
    pub(crate) fn execute(
        &mut self,
        cpu: usize,
        next: Executing,
        ended: impl Iterator<Item = EndedFault>,
    ) {
        if let Some(services) = &mut self.services {
            services.execute(cpu, next, ended);
        }
    }

    pub(crate) fn service_rows(&self, region: u32) -> Vec<Record> {
        self.services.as_ref().map_or_else(Vec::new, |services| services.rows(region))
    }

    /// Counts the misses since the last call, by their locations.
    pub(crate) fn collect(&mut self, system: &mut MemorySystem, guest: &mut Guest<'_>) {
        let (mut misses, not_kept) = system.take_misses();
        self.not_kept += not_kept;
        number_user_functions(&mut misses, guest);
        if let Some(services) = &mut self.services {
            services.add(&misses, guest);
        }
        misses.iter().for_each(|miss| self.count(miss));
    }

    /// Counts a miss by the instruction's location, and by that of the data if it is no fetch.
    fn count(&mut self, miss: &Miss) {
        let Miss { cache, pc, virtual_address, is_fetch, .. } = *miss;
        self.code[cache as usize].add(pc.0);
        if !is_fetch {
            self.data[cache as usize].add(virtual_address.0 / DATA_BYTES * DATA_BYTES);
        }
    }

    /// The rows of the region so far, without the rows of services.
    pub(crate) fn rows(&self, system: &MemorySystem, region: u32) -> Vec<MissCount> {
        let mut rows = Vec::new();
        for (cache, name) in (0..).zip(CACHES) {
            let mut push_row = |kind, key, count| {
                if count > 0 {
                    rows.push(MissCount { region, cache, kind, key, count });
                }
            };
            let counts = system.class_counts(name);
            for (mode, classes) in (0_u64..).zip(counts.by_mode) {
                for (class, count) in MissClass::ALL.into_iter().zip(classes) {
                    push_row(MissKind::Class, mode << 8 | class as u64, count);
                }
            }
            push_row(MissKind::Associativity, 0, counts.capacity);
            push_row(MissKind::Associativity, 1, counts.conflict);
            for (code, count) in evictors(&counts.evicted_by) {
                push_row(MissKind::Evictor, code, count);
            }
            for (kind, locations) in [(MissKind::Code, &self.code), (MissKind::Data, &self.data)] {
                let sorted = locations[cache as usize].most_frequent_first();
                let (frequent, rare) = sorted.split_at(sorted.len().min(LOCATIONS_WRITTEN_MAX));
                frequent.iter().for_each(|counted| push_row(kind, counted.location, counted.count));
                let rare_count: u64 = rare.iter().map(|counted| counted.count).sum();
                push_row(kind, ELSEWHERE, rare_count + locations[cache as usize].overflow_count());
            }
        }
        rows.extend((self.not_kept > 0).then_some(MissCount {
            region,
            cache: 0,
            kind: MissKind::NotKept,
            key: 0,
            count: self.not_kept,
        }));
        rows
    }
}

/// Replaces the code addresses of user programs in `misses` by the numbers of their functions.
fn number_user_functions(misses: &mut [Miss], guest: &mut Guest<'_>) {
    let mut pages = CodePages::default();
    for miss in misses.iter_mut().filter(|miss| !is_kernel(miss.pc.0)) {
        miss.pc = VirtualAddress(match miss.code_physical {
            _ if miss.pc.0 == NO_INSTRUCTION => guest.structures.user_functions.handler_entry(),
            Some(physical) => guest.user_function(physical, &mut pages),
            None => UNKNOWN_FUNCTION,
        });
    }
}

/// How many lines each context evicted, by the context's code. Each interrupt has its own code. User mode of all tasks
/// has one code, and the rest of the kernel has the code of [`KernelContext::Unknown`].
fn evictors(evictions: &[(Context, u64)]) -> BTreeMap<u64, u64> {
    let mut sums = BTreeMap::new();
    for (context, count) in evictions {
        let code = match KernelContext::from_code(service_of(*context)) {
            Some(KernelContext::User(_)) => KernelContext::User(0).code(),
            Some(interrupt) if is_interrupt(interrupt) => interrupt.code(),
            _ => KernelContext::Unknown.code(),
        };
        *sums.entry(code).or_insert(0) += count;
    }
    sums
}

fn is_interrupt(context: KernelContext) -> bool {
    matches!(
        context,
        KernelContext::Interrupt(_)
            | KernelContext::Irq(_)
            | KernelContext::Softirq(_)
            | KernelContext::Nmi
    )
}

#[cfg(test)]
mod tests {
    use attribution::{PID_UNKNOWN, SYSCALL_32};
    use machine::PhysicalAddress;
    use machine::memory::{Mode, SupplyingLevel};

    use super::*;
    use crate::guest::memory_context::context_of;

    #[test]
    fn interrupts_keep_their_names_on_the_way_through_the_memory() {
        for context in [
            KernelContext::Interrupt(0xec),
            KernelContext::Irq(25),
            KernelContext::Softirq(3),
            KernelContext::Nmi,
        ] {
            let known = context_of(context, Some(42));
            assert_eq!(evictors(&[(known, 7)]), BTreeMap::from([(context.code(), 7)]));
        }
        let user = context_of(KernelContext::User(42), None);
        assert_eq!((user.mode, user.process), (Mode::User, 42));
        let both = [(user, 1), (context_of(KernelContext::User(43), None), 2)];
        assert_eq!(evictors(&both), BTreeMap::from([(KernelContext::User(0).code(), 3)]));
        // All other kernel contexts count together if services are not recorded.
        let call = context_of(KernelContext::Syscall(3 | SYSCALL_32), Some(42));
        let unknown = BTreeMap::from([(KernelContext::Unknown.code(), 1)]);
        assert_eq!(evictors(&[(call, 1)]), unknown);
        assert_eq!(service_of(call), KernelContext::Syscall(3 | SYSCALL_32).code());
        assert_eq!(service_of(user), KernelContext::User(PID_UNKNOWN).code());
    }

    #[test]
    fn a_missed_instruction_is_no_missed_data() {
        let miss = |cache, is_fetch| Miss {
            cpu: 0,
            cache,
            pc: VirtualAddress(0x1000),
            code_physical: None,
            virtual_address: VirtualAddress(0x2010),
            physical: PhysicalAddress(0x2010),
            class: MissClass::Cold,
            evicted_by: None,
            is_conflict: None,
            is_fetch,
            supplier: SupplyingLevel::Memory,
            wait_cycles: 100,
        };
        let mut misses = Misses::new(None);
        for cache in [CacheName::L1i, CacheName::L2, CacheName::L3] {
            misses.count(&miss(cache, true));
        }
        misses.count(&miss(CacheName::L2, false));
        let total = |counts: &LocationCounts| -> u64 {
            counts.most_frequent_first().iter().map(|counted| counted.count).sum()
        };
        assert_eq!(misses.code.each_ref().map(total), [1, 0, 2, 1]);
        assert_eq!(misses.data.each_ref().map(total), [0, 0, 1, 0]);
        assert_eq!(misses.data[CacheName::L2 as usize].most_frequent_first()[0].location, 0x2000);
    }
}
