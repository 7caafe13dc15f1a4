//! Converts the cache misses of services to the sample's misses. Record rows that get the same names are summed up.
//! `convert` calls it.

use std::collections::BTreeMap;

use attribution::KernelContext;
use lab::services::misses::{
    CLASSES, KeyedMisses, MissRow, MissSample, MissWait, ServiceName, SharedLine, StructureName,
};
use machine::SystemModel;
use simrecord::record::{ELSEWHERE, ServiceMissKind, ServiceMisses};

use super::names::Names;
use crate::accounting::{CACHE_NAMES, ServicesUse};
use crate::models::Model;

/// Position of the instruction cache in [`CACHE_NAMES`].
const L1I: u32 = 0;
/// Suppliers of lines, in the order of the levels in the model.
const LEVELS: [&str; 5] = ["L1", "L2", "L3", "other core", "memory"];

/// Returns the misses of a region; `None` if they were not recorded.
pub(super) fn sample(
    used: &ServicesUse,
    names: &Names<'_>,
    model: Option<&Model>,
) -> Option<MissSample> {
    if used.misses.is_empty() {
        return None;
    }
    Some(MissSample {
        rows: rows(used, names),
        evictors: keyed(used, names, ServiceMissKind::Evictor, |misses| {
            name_unless_elsewhere(misses, |key| names.evictor(key))
        }),
        functions: keyed(used, names, ServiceMissKind::Code, |misses| {
            name_unless_elsewhere(misses, |key| names.function(key))
        }),
        data: keyed(used, names, ServiceMissKind::Data, |misses| {
            let (kind, name) = names.structure(misses.structure, misses.key, None);
            StructureName { kind: kind.to_owned(), name }
        }),
        waits: waits(used, names),
        shared: shared_lines(used, names),
        line_bytes: model.map_or(0, |model| coherence_line_bytes(&model.model)),
    })
}

/// Returns the length of a coherence line: the longest line of a private cache. A store takes all of it from the other
/// CPUs, which then miss each of its lines of L1D.
fn coherence_line_bytes(model: &SystemModel) -> u64 {
    let private = model.outer().take_while(|level| !level.shared).map(|level| level.line_bytes);
    private.fold(model.l1i.line_bytes.max(model.l1d.line_bytes), u64::max)
}

/// Returns the rows of the record of one kind.
fn misses_of_kind(
    used: &ServicesUse,
    kind: ServiceMissKind,
) -> impl Iterator<Item = &ServiceMisses> {
    used.misses.iter().filter(move |misses| misses.what == kind)
}

fn service(code: u64, names: &Names<'_>) -> ServiceName {
    let service = KernelContext::from_code(code).unwrap_or(KernelContext::Unknown);
    let (class, name) = names.class_and_name(service);
    ServiceName { class, name }
}

fn cache(misses: &ServiceMisses) -> &'static str {
    CACHE_NAMES.get(misses.cache as usize).copied().unwrap_or("")
}

/// Returns the misses by service, cache and class.
fn rows(used: &ServicesUse, names: &Names<'_>) -> Vec<MissRow> {
    let mut sums: BTreeMap<_, ([u64; CLASSES.len()], [u64; 3])> = BTreeMap::new();
    for misses in misses_of_kind(used, ServiceMissKind::Class) {
        let sum =
            sums.entry((service(misses.code, names), misses.cache, cache(misses))).or_default();
        if let Some(count) = sum.0.get_mut(misses.class as usize) {
            *count += misses.count;
        }
        if let Some(count) = sum.1.get_mut(misses.key as usize) {
            *count += misses.count;
        }
    }
    type Sums = ([u64; CLASSES.len()], [u64; 3]);
    let row = |((service, _, cache), (classes, [_, capacity, conflict])): ((_, _, &str), Sums)| {
        MissRow { service, cache: cache.to_owned(), classes, capacity, conflict }
    };
    sums.into_iter().map(row).collect()
}

/// Returns the misses of one kind by service, cache, second key and class.
fn keyed<Key: Ord>(
    used: &ServicesUse,
    names: &Names<'_>,
    kind: ServiceMissKind,
    second_key: impl Fn(&ServiceMisses) -> Key,
) -> Vec<KeyedMisses<Key>> {
    let mut sums: BTreeMap<_, [u64; CLASSES.len()]> = BTreeMap::new();
    for misses in misses_of_kind(used, kind) {
        let key = (service(misses.code, names), misses.cache, cache(misses), second_key(misses));
        if let Some(count) = sums.entry(key).or_default().get_mut(misses.class as usize) {
            *count += misses.count;
        }
    }
    let part = |((service, _, cache, key), classes): ((_, _, &str, _), _)| KeyedMisses {
        service,
        cache: cache.to_owned(),
        key,
        classes,
    };
    sums.into_iter().map(part).collect()
}

/// Returns the name of an evictor or a function, or the name of the rows that have no own key.
fn name_unless_elsewhere(misses: &ServiceMisses, name: impl Fn(u64) -> String) -> String {
    if misses.key == ELSEWHERE { "elsewhere".to_owned() } else { name(misses.key) }
}

/// Returns the waits by service, kind of access and supplying level.
fn waits(used: &ServicesUse, names: &Names<'_>) -> Vec<MissWait> {
    let mut sums: BTreeMap<_, (u64, u64)> = BTreeMap::new();
    for misses in misses_of_kind(used, ServiceMissKind::Wait) {
        let key = (service(misses.code, names), misses.cache == L1I, misses.key);
        let sum = sums.entry(key).or_default();
        *sum = (sum.0 + misses.count, sum.1 + misses.cycles);
    }
    let row = |((service, is_fetch, level), (count, wait_ticks)): ((_, _, u64), _)| MissWait {
        service,
        is_fetch,
        level: LEVELS.get(level as usize).copied().unwrap_or("").to_owned(),
        count,
        wait_ticks,
    };
    sums.into_iter().map(row).collect()
}

/// Returns the misses of lines that other CPUs had written.
fn shared_lines(used: &ServicesUse, names: &Names<'_>) -> Vec<SharedLine> {
    let mut sums: BTreeMap<_, (u32, u64, u64)> = BTreeMap::new();
    for misses in &used.shared {
        let (kind, structure) =
            names.structure(misses.structure, misses.place, Some(misses.offset));
        let is_elsewhere = misses.address == ELSEWHERE;
        let function =
            if is_elsewhere { "elsewhere".to_owned() } else { names.function(misses.pc) };
        let address = (!is_elsewhere).then_some(misses.address);
        let key = (address, service(misses.code, names), kind, structure, function);
        let sum = sums.entry(key).or_default();
        sum.0 |= misses.cpus;
        sum.1 += u64::from(misses.true_sharing);
        sum.2 += u64::from(misses.false_sharing);
    }
    let row = |((address, service, kind, structure, function), sum): ((_, _, &str, _, _), _)| {
        let (cpus, true_sharing, false_sharing) = sum;
        let kind = kind.to_owned();
        SharedLine {
            service,
            kind,
            structure,
            address,
            function,
            cpus,
            true_sharing,
            false_sharing,
        }
    };
    sums.into_iter().map(row).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_coherence_line_is_the_longest_private_line() {
        let bytes = |text: &str| coherence_line_bytes(&SystemModel::parse(text).unwrap());
        // L1D has lines of 16 bytes, and each CPU has an L2 with lines of 128 bytes.
        let smp = include_str!("../../../../machines/r4400-smp8.toml");
        assert_eq!(bytes(smp), 128);
        // The CPUs share this L2, so that they take lines of L1 from each other.
        let shared_l2 = smp.replace("[l2]", "[l2]\nshared = true\n");
        assert_eq!(bytes(&shared_l2), 16);
    }
}
