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
    services_use: &ServicesUse,
    names: &Names<'_>,
    model: Option<&Model>,
) -> Option<MissSample> {
    if services_use.misses.is_empty() {
        return None;
    }
    Some(MissSample {
        rows: rows(services_use, names),
        evictors: keyed(services_use, names, ServiceMissKind::Evictor, |misses| {
            name_unless_elsewhere(misses, |key| names.evictor(key))
        }),
        functions: keyed(services_use, names, ServiceMissKind::Code, |misses| {
            name_unless_elsewhere(misses, |key| names.function(key))
        }),
        data: keyed(services_use, names, ServiceMissKind::Data, |misses| {
            let (kind, name) = names.structure(misses.structure, misses.key, None);
            StructureName { kind: kind.to_owned(), name }
        }),
        waits: waits(services_use, names),
        shared: shared_lines(services_use, names),
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
    services_use: &ServicesUse,
    kind: ServiceMissKind,
) -> impl Iterator<Item = &ServiceMisses> {
    services_use.misses.iter().filter(move |misses| misses.what == kind)
}

/// The class and name of the service with a code.
fn service(code: u64, names: &Names<'_>) -> ServiceName {
    let service = KernelContext::from_code(code).unwrap_or(KernelContext::Unknown);
    let (class, name) = names.class_and_name(service);
    ServiceName { class, name }
}

/// The name of the cache of a row.
fn cache(misses: &ServiceMisses) -> &'static str {
    CACHE_NAMES.get(misses.cache as usize).copied().unwrap_or("")
}

/// Misses of a service in a cache.
#[derive(Default)]
struct ClassSums {
    by_class: [u64; CLASSES.len()],
    /// Misses that are not divided, capacity misses, and conflict misses.
    by_conflict: [u64; 3],
}

/// Returns the misses by service, cache and class.
fn rows(services_use: &ServicesUse, names: &Names<'_>) -> Vec<MissRow> {
    let mut sums: BTreeMap<_, ClassSums> = BTreeMap::new();
    for misses in misses_of_kind(services_use, ServiceMissKind::Class) {
        let key = (service(misses.code, names), misses.cache, cache(misses));
        let sums_of_row = sums.entry(key).or_default();
        if let Some(count) = sums_of_row.by_class.get_mut(misses.class as usize) {
            *count += misses.count;
        }
        if let Some(count) = sums_of_row.by_conflict.get_mut(misses.key as usize) {
            *count += misses.count;
        }
    }
    let row = |((service, _, cache), row_sums): ((_, _, &str), ClassSums)| {
        let [_, capacity, conflict] = row_sums.by_conflict;
        MissRow { service, cache: cache.to_owned(), classes: row_sums.by_class, capacity, conflict }
    };
    sums.into_iter().map(row).collect()
}

/// Returns the misses of one kind by service, cache, second key and class.
fn keyed<Key: Ord>(
    services_use: &ServicesUse,
    names: &Names<'_>,
    kind: ServiceMissKind,
    second_key: impl Fn(&ServiceMisses) -> Key,
) -> Vec<KeyedMisses<Key>> {
    let mut sums: BTreeMap<_, [u64; CLASSES.len()]> = BTreeMap::new();
    for misses in misses_of_kind(services_use, kind) {
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
fn waits(services_use: &ServicesUse, names: &Names<'_>) -> Vec<MissWait> {
    let mut sums: BTreeMap<_, (u64, u64)> = BTreeMap::new();
    for misses in misses_of_kind(services_use, ServiceMissKind::Wait) {
        let key = (service(misses.code, names), misses.cache == L1I, misses.key);
        let (count, cycles) = sums.entry(key).or_default();
        *count += misses.count;
        *cycles += misses.cycles;
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

/// Returns the misses of lines that other CPUs had written, by address, service, structure and function. Bit N of `cpus`
/// is set if CPU N missed.
fn shared_lines(services_use: &ServicesUse, names: &Names<'_>) -> Vec<SharedLine> {
    let mut sums: BTreeMap<_, (u32, u64, u64)> = BTreeMap::new();
    for misses in &services_use.shared {
        let (kind, structure) =
            names.structure(misses.structure, misses.place, Some(misses.offset));
        let is_elsewhere = misses.address == ELSEWHERE;
        let function =
            if is_elsewhere { "elsewhere".to_owned() } else { names.function(misses.pc) };
        let address = (!is_elsewhere).then_some(misses.address);
        let key = (address, service(misses.code, names), kind, structure, function);
        let (cpus, true_sharing, false_sharing) = sums.entry(key).or_default();
        *cpus |= misses.cpus;
        *true_sharing += u64::from(misses.true_sharing);
        *false_sharing += u64::from(misses.false_sharing);
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
