//! Misses of each service: by class and evictor, by code and data, and how long they took.
//!
//! A miss belongs to the service that is on top of its CPU's stack. What a page fault is turns out
//! while it is handled: its misses wait for its end.

use attribution::KernelContext;
use machine::memory::{CacheName, Miss, MissClass};
use machine::{PhysicalAddress, VirtualAddress};
use rustc_hash::FxHashMap;
use simrecord::record::{
    CPUS_MAX, ELSEWHERE, Record, ServiceMissKind, ServiceMisses as Row, SharedMisses, StructureKind,
};

use crate::guest::memory_context::service_of;
use crate::guest::structures::{Guest, Located, Structure};
use crate::guest::tracker::is_kernel;

/// Rows of one kind that are counted separately.
const ROOM: usize = 1 << 18;
/// Rows of one kind that are written, the most frequent.
const WRITTEN: usize = 1 << 16;
/// The most misses that wait for the end of faults.
const PENDING_MAX: usize = 1 << 18;
/// Code is counted by pieces of this many bytes. Functions start at multiples of this size.
const CODE_BYTES: u64 = 16;
/// Data that CPUs share is counted by pieces of this many bytes.
const SHARED_BYTES: u64 = 8;

/// The context of a CPU, for its misses.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Executing {
    /// The code of the service.
    pub(crate) code: u64,
    /// The task in whose page fault it is, and how many frames are below that.
    pub(crate) fault: Option<(u64, usize)>,
    /// The process id of the task.
    pub(crate) pid: u32,
    /// The task: the address of its description.
    pub(crate) task: u64,
}

/// A page fault of the task that ran until now has ended.
#[derive(Clone, Copy, Debug)]
pub(crate) struct EndedFault {
    pub(crate) service: KernelContext,
    pub(crate) depth: usize,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
struct Key {
    cache: u32,
    code: u64,
    what: ServiceMissKind,
    class: u32,
    structure: StructureKind,
    key: u64,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
struct SharedKey {
    code: u64,
    structure: Structure,
    offset: u32,
    address: u64,
    pc: u64,
}

#[derive(Clone, Copy, Debug, Default)]
struct Shared {
    cpus: u32,
    true_sharing: u32,
    false_sharing: u32,
}

/// Misses, and the cycles that they waited.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Sums {
    count: u64,
    cycles: u64,
}

impl Sums {
    fn add(&mut self, more: Sums) {
        self.count += more.count;
        self.cycles += more.cycles;
    }
}

/// The structure that a missed address lies in.
#[derive(Clone, Copy, Debug)]
struct LocatedMiss {
    virtual_address: VirtualAddress,
    physical: PhysicalAddress,
    located: Located,
}

/// A miss with the facts that were known when it happened.
#[derive(Clone, Copy, Debug)]
struct Noted {
    miss: Miss,
    located: Option<Located>,
}

/// The misses of services in the region that is open.
#[derive(Debug, Default)]
pub(crate) struct ServiceMisses {
    executing: [Executing; CPUS_MAX],
    /// Few rows, by class, evictor and level.
    few: FxHashMap<Key, Sums>,
    /// Rows by code, and by data.
    code: FxHashMap<Key, Sums>,
    data: FxHashMap<Key, Sums>,
    shared: FxHashMap<SharedKey, Shared>,
    /// Misses by the task and the number of frames below the fault.
    pending: FxHashMap<(u64, usize), Vec<Noted>>,
    pending_count: usize,
    /// The last miss. One access may miss several caches, and is located once.
    last: Option<LocatedMiss>,
}

impl ServiceMisses {
    /// Counts misses for what their CPUs have been executing.
    pub(crate) fn add(&mut self, misses: &[Miss], guest: &mut Guest<'_>) {
        self.last = None;
        for miss in misses {
            let located = (!miss.is_fetch).then(|| self.locate(miss, guest));
            let Some(executing) = self.executing.get(miss.cpu).copied() else { continue };
            let noted = Noted { miss: *miss, located };
            match executing.fault {
                Some(fault) if self.pending_count < PENDING_MAX => {
                    self.pending.entry(fault).or_default().push(noted);
                    self.pending_count += 1;
                }
                _ => self.count(executing.code, &noted),
            }
        }
    }

    fn locate(&mut self, miss: &Miss, guest: &mut Guest<'_>) -> Located {
        let Miss { virtual_address, physical, .. } = *miss;
        if let Some(last) = self.last
            && last.virtual_address == virtual_address
            && last.physical == physical
        {
            return last.located;
        }
        let pid = self.executing.get(miss.cpu).map_or(0, |executing| executing.pid);
        let located = guest.locate(virtual_address.0, Some(physical.0), pid);
        self.last = Some(LocatedMiss { virtual_address, physical, located });
        located
    }

    /// Another service is on top of a CPU's stack, and faults of the task that ran until now have
    /// ended.
    pub(crate) fn execute(
        &mut self,
        cpu: usize,
        next: Executing,
        ended: impl Iterator<Item = EndedFault>,
    ) {
        let Some(now) = self.executing.get_mut(cpu) else { return };
        let task = std::mem::replace(now, next).task;
        for EndedFault { service, depth } in ended {
            let Some(misses) = self.pending.remove(&(task, depth)) else { continue };
            self.pending_count -= misses.len();
            let code = service.of_all_tasks().code();
            misses.iter().for_each(|noted| self.count(code, noted));
        }
    }

    fn count(&mut self, code: u64, noted: &Noted) {
        let Noted { miss, located } = noted;
        let (cache, class) = (miss.cache as u32, miss.class as u32);
        let plain = Key {
            cache,
            code,
            what: ServiceMissKind::Class,
            class: 0,
            structure: StructureKind::Unknown,
            key: 0,
        };
        let key = match miss.is_conflict {
            None => 0,
            Some(false) => 1,
            Some(true) => 2,
        };
        count(&mut self.few, Key { class, key, ..plain }, 0);
        if let Some(by) = miss.evicted_by {
            let key = service_of(by);
            count(&mut self.few, Key { what: ServiceMissKind::Evictor, key, ..plain }, 0);
        }
        if matches!(miss.cache, CacheName::L1i | CacheName::L1d) {
            let key = miss.supplier as u64;
            let key = Key { what: ServiceMissKind::Wait, key, ..plain };
            count(&mut self.few, key, miss.wait_cycles);
        }
        let key = code_key(miss.pc.0);
        count(&mut self.code, Key { what: ServiceMissKind::Code, key, ..plain }, 0);
        let Some(located) = located else { return };
        let Structure { kind: structure, place: key } = located.structure;
        let data = Key { what: ServiceMissKind::Data, class, structure, key, ..plain };
        count(&mut self.data, data, 0);
        if miss.cache == CacheName::L1d {
            self.count_shared(code, miss, located);
        }
    }

    fn count_shared(&mut self, code: u64, miss: &Miss, located: &Located) {
        let is_true = match miss.class {
            MissClass::TrueSharing => true,
            MissClass::FalseSharing => false,
            _ => return,
        };
        let within = (miss.virtual_address.0 % SHARED_BYTES) as u32;
        let key = SharedKey {
            code,
            structure: located.structure,
            offset: located.offset.saturating_sub(within),
            address: miss.virtual_address.0 - u64::from(within),
            pc: code_key(miss.pc.0),
        };
        if self.shared.len() < ROOM || self.shared.contains_key(&key) {
            let counts = self.shared.entry(key).or_default();
            counts.cpus |= 1 << miss.cpu;
            let count = if is_true { &mut counts.true_sharing } else { &mut counts.false_sharing };
            *count = count.saturating_add(1);
        }
    }

    pub(crate) fn rows(&self, region: u32) -> Vec<Record> {
        // A fault that has not ended counts as the kind that is known so far.
        let mut open = ServiceMisses {
            few: self.few.clone(),
            code: self.code.clone(),
            data: self.data.clone(),
            shared: self.shared.clone(),
            ..ServiceMisses::default()
        };
        let mut pending: Vec<_> = self.pending.iter().collect();
        pending.sort_by_key(|(fault, _)| **fault);
        for (fault, misses) in pending {
            let handles_fault = |executing: &&Executing| executing.fault == Some(*fault);
            let code = self.executing.iter().find(handles_fault).map(|executing| executing.code);
            let unknown = KernelContext::Fault(attribution::FaultKind::Unclassified).code();
            misses.iter().for_each(|noted| open.count(code.unwrap_or(unknown), noted));
        }
        let mut rows = Vec::new();
        for counts in [&open.few, &open.code, &open.data] {
            rows.extend(most_frequent(counts).into_iter().map(|(key, Sums { count, cycles })| {
                let Key { cache, code, what, class, structure, key } = key;
                Record::ServiceMisses(Row {
                    region,
                    cache,
                    what,
                    class,
                    code,
                    structure,
                    key,
                    count,
                    cycles,
                })
            }));
        }
        let mut shared: Vec<_> = open.shared.into_iter().collect();
        let missed =
            |counts: &Shared| u64::from(counts.true_sharing) + u64::from(counts.false_sharing);
        shared.sort_by_key(|(key, counts)| (std::cmp::Reverse(missed(counts)), *key));
        rows.extend(shared.into_iter().take(WRITTEN).map(|(key, counts)| {
            let SharedKey { code, structure, offset, address, pc } = key;
            let Shared { cpus, true_sharing, false_sharing } = counts;
            Record::SharedMisses(SharedMisses {
                region,
                structure: structure.kind,
                place: structure.place,
                offset,
                address,
                code,
                pc,
                cpus,
                true_sharing,
                false_sharing,
            })
        }));
        rows
    }
}

/// The key of code: an address of the kernel is rounded, the number of a user program's function is not.
fn code_key(code: u64) -> u64 {
    if is_kernel(code) { code & !(CODE_BYTES - 1) } else { code }
}

/// Counts a miss; where there is no room for its row, as one elsewhere.
fn count(counts: &mut FxHashMap<Key, Sums>, key: Key, cycles: u64) {
    let is_full = counts.len() >= ROOM && !counts.contains_key(&key);
    let key = if is_full { elsewhere(key) } else { key };
    counts.entry(key).or_default().add(Sums { count: 1, cycles });
}

fn elsewhere(key: Key) -> Key {
    Key { structure: StructureKind::Unknown, key: ELSEWHERE, ..key }
}

/// The most frequent rows, and the sums of the others.
fn most_frequent(counts: &FxHashMap<Key, Sums>) -> Vec<(Key, Sums)> {
    let mut rows: Vec<_> = counts.iter().map(|(key, count)| (*key, *count)).collect();
    rows.sort_by_key(|(key, sums)| (std::cmp::Reverse(sums.count), *key));
    let rare = rows.split_off(rows.len().min(WRITTEN));
    let mut sums = std::collections::BTreeMap::<Key, Sums>::new();
    for (key, more) in rare {
        sums.entry(elsewhere(key)).or_default().add(more);
    }
    for (key, sum) in &mut rows {
        if let Some(more) = sums.remove(key) {
            sum.add(more);
        }
    }
    rows.extend(sums);
    rows
}

#[cfg(test)]
mod tests {
    use super::*;

    fn key(number: u64) -> Key {
        Key {
            cache: 1,
            code: 7,
            what: ServiceMissKind::Data,
            class: 0,
            structure: StructureKind::Slab,
            key: number,
        }
    }

    #[test]
    fn what_has_no_row_is_elsewhere_and_sums_stay() {
        let mut counts = FxHashMap::default();
        let more = 5;
        for number in 0..(ROOM + more) as u64 {
            count(&mut counts, key(number), 2);
        }
        let expected = Sums { count: more as u64, cycles: 2 * more as u64 };
        assert_eq!(counts[&elsewhere(key(0))], expected);
        let rows = most_frequent(&counts);
        let sum: u64 = rows.iter().map(|row| row.1.count).sum();
        assert_eq!((sum, rows.len()), ((ROOM + more) as u64, WRITTEN));
        assert_eq!(rows[0].0, elsewhere(key(0)));
    }
}
