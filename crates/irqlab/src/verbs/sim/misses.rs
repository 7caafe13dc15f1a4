//! Tables `misses`, `miss_evictors`, `miss_functions` and `miss_data`: misses by class, by the context
//! that had evicted the line, and by place.

use std::collections::BTreeMap;

use record::{Absence, Column, Kind, Table, Value};
use sim::{Accounting, ELSEWHERE, KernelContext, MissClass, MissCount, MissKind, Symbols};

const CACHES: [&str; 4] = ["L1I", "L1D", "L2", "L3"];
/// Maximum number of places per cache; the others are summed up.
const PLACES_MAX: usize = 50;

/// Bit of a class's key: user mode missed.
pub(in crate::verbs) const BY_USER: u64 = 1 << 8;

/// Why there are no tables: where contexts are not known, all misses would be the kernel's.
pub fn absent(account: &Accounting) -> Option<Absence> {
    (!account.has_contexts).then(|| Absence {
        table: "misses".to_owned(),
        what: "misses by class and by evicting context".to_owned(),
        reason: "this kernel has no symbols (CONFIG_KALLSYMS)".to_owned(),
        remedy: None,
    })
}

/// The tables, if misses were classified and contexts are known.
pub fn tables(account: &Accounting, symbols: Option<&Symbols>) -> Vec<Table> {
    if account.misses.is_empty() || !account.has_contexts {
        return Vec::new();
    }
    let function = |code: u64| code_name(code, account, symbols);
    let data = |address: u64| data_name(address, symbols);
    vec![
        classes(account),
        evictors(account),
        places("miss_functions", "function", counts_of_kind(account, MissKind::Code), &function),
        places("miss_data", "data", counts_of_kind(account, MissKind::Data), &data),
    ]
}

/// A warning when there were too many places to keep.
pub fn warning(account: &Accounting) -> Option<String> {
    let not_kept = counts_of_kind(account, MissKind::NotKept).map(|miss_count| miss_count.count);
    let not_kept = not_kept.fold(0, u64::saturating_add);
    (not_kept > 0).then(|| {
        format!("{not_kept} misses are not attributed to a function or data: too many places")
    })
}

fn counts_of_kind(account: &Accounting, sort: MissKind) -> impl Iterator<Item = &MissCount> {
    account.misses.iter().filter(move |miss_count| miss_count.kind == sort)
}

/// The name of the cache.
pub(in crate::verbs) fn cache(miss_count: &MissCount) -> &'static str {
    CACHES.get(miss_count.cache as usize).copied().unwrap_or("")
}

/// The class in the key of [`MissKind::Class`].
pub(in crate::verbs) fn class(key: u64) -> &'static str {
    match MissClass::ALL.get((key & (BY_USER - 1)) as usize) {
        Some(MissClass::Cold) => "cold",
        Some(MissClass::SameSelf) => "self",
        Some(MissClass::Other) => "other",
        Some(MissClass::TrueSharing) => "true sharing",
        Some(MissClass::FalseSharing) => "false sharing",
        Some(MissClass::Device) => "device",
        Some(MissClass::Untracked) | None => "untracked",
    }
}

/// Number of misses of a kind in each region and cache.
fn sums(account: &Accounting, sort: MissKind) -> BTreeMap<(u32, u32), u64> {
    let mut sums = BTreeMap::new();
    for miss_count in counts_of_kind(account, sort) {
        let sum: &mut u64 = sums.entry((miss_count.region, miss_count.cache)).or_default();
        *sum = sum.saturating_add(miss_count.count);
    }
    sums
}

fn ratio(count: u64, sums: &BTreeMap<(u32, u32), u64>, miss_count: &MissCount) -> Value {
    let sum = sums.get(&(miss_count.region, miss_count.cache)).copied().unwrap_or(0);
    (sum > 0).then(|| count as f64 / sum as f64).into()
}

fn columns(more: &[(&str, Kind, &str)]) -> Vec<Column> {
    let first = [
        ("region", Kind::Uint, "Region of interest, from 1."),
        ("cache", Kind::Text, "Level of cache; all CPUs together."),
    ];
    let all = first.iter().chain(more);
    all.map(|(name, kind, doc)| Column::new(name, *kind, doc)).collect()
}

fn classes(account: &Accounting) -> Table {
    let columns = columns(&[
        ("mode", Kind::Text, "Processor mode of the access: user or kernel."),
        (
            "class",
            Kind::Text,
            "cold: first access in the region. self, other: the line had been evicted by one of the same \
             (the kernel, that process) or of another. true sharing, false sharing: another core had \
             written the accessed bytes, or other bytes of the coherence granule. device: a device had. \
             untracked: unknown.",
        ),
        ("misses", Kind::Uint, "Misses of this class."),
        ("share_ratio", Kind::Real, "misses over all misses of the cache."),
    ]);
    let doc = "Misses by class, without those of page-table walks and prefetches.";
    let mut table = Table::new("misses", doc, columns);
    let sums = sums(account, MissKind::Class);
    for miss_count in counts_of_kind(account, MissKind::Class) {
        let mode = if miss_count.key & BY_USER != 0 { "user" } else { "kernel" };
        table.push(vec![
            u64::from(miss_count.region).into(),
            cache(miss_count).into(),
            mode.into(),
            class(miss_count.key).into(),
            miss_count.count.into(),
            ratio(miss_count.count, &sums, miss_count),
        ]);
    }
    table
}

fn evictors(account: &Accounting) -> Table {
    let columns = columns(&[
        (
            "evicted_by",
            Kind::Text,
            "Context that had evicted the missed line: user, an interrupt, or the kernel.",
        ),
        ("misses", Kind::Uint, "Misses of such lines."),
        ("share_ratio", Kind::Real, "misses over all misses of the cache."),
    ]);
    let doc = "Misses by the context that had evicted the line, and how many of them a fully associative \
               cache of the same size would have avoided.";
    let mut table = Table::new("miss_evictors", doc, columns);
    let sums = sums(account, MissKind::Class);
    let ways = counts_of_kind(account, MissKind::Associativity);
    for miss_count in counts_of_kind(account, MissKind::Evictor).chain(ways) {
        let who = match (miss_count.kind, miss_count.key) {
            (MissKind::Associativity, 0) => "all: capacity".to_owned(),
            (MissKind::Associativity, _) => "all: conflict".to_owned(),
            (_, code) => match KernelContext::from_code(code) {
                Some(KernelContext::User(_)) => "user".to_owned(),
                Some(KernelContext::Unknown) | None => "kernel outside of interrupts".to_owned(),
                Some(context) => account.name_of(context),
            },
        };
        table.push(vec![
            u64::from(miss_count.region).into(),
            cache(miss_count).into(),
            who.into(),
            miss_count.count.into(),
            ratio(miss_count.count, &sums, miss_count),
        ]);
    }
    table
}

/// Misses by place, the most frequent places of each cache first.
fn places<'a>(
    name: &str,
    title: &str,
    counts: impl Iterator<Item = &'a MissCount>,
    named: &dyn Fn(u64) -> String,
) -> Table {
    let columns = columns(&[
        (title, Kind::Text, "Place of the access."),
        ("misses", Kind::Uint, "Misses there."),
        ("share_ratio", Kind::Real, "misses over all misses of the cache with a known place."),
    ]);
    let doc = "Misses by place: the most frequent places of each cache.";
    let mut table = Table::new(name, doc, columns);
    let mut of_caches: BTreeMap<(u32, u32), BTreeMap<String, u64>> = BTreeMap::new();
    for miss_count in counts {
        let name = if miss_count.key == ELSEWHERE {
            "elsewhere".to_owned()
        } else {
            named(miss_count.key)
        };
        let of_cache = of_caches.entry((miss_count.region, miss_count.cache)).or_default();
        let sum = of_cache.entry(name).or_default();
        *sum = sum.saturating_add(miss_count.count);
    }
    for ((region, cache), places) in of_caches {
        let sum = places.values().fold(0_u64, |sum, count| sum.saturating_add(*count));
        let mut places: Vec<_> = places.into_iter().collect();
        places.sort_by_key(|(_, count)| std::cmp::Reverse(*count));
        let remainder = places.iter().skip(PLACES_MAX).map(|(_, count)| *count);
        let remainder = remainder.fold(0, u64::saturating_add);
        places.truncate(PLACES_MAX);
        places.extend((remainder > 0).then(|| ("all other places".to_owned(), remainder)));
        for (place, count) in places {
            table.push(vec![
                u64::from(region).into(),
                CACHES.get(cache as usize).copied().unwrap_or("").into(),
                place.into(),
                count.into(),
                (count as f64 / sum as f64).into(),
            ]);
        }
    }
    table
}

/// The upper half of addresses is the kernel's.
fn is_kernel(address: u64) -> bool {
    address >> 63 == 1
}

/// The function at an address of the kernel, or of the number of a function of a user program.
fn code_name(code: u64, account: &Accounting, symbols: Option<&Symbols>) -> String {
    if !is_kernel(code) {
        return account.user_function(code).to_owned();
    }
    symbols.map_or_else(|| "kernel".to_owned(), |symbols| symbols.code_name(code))
}

/// Data of the kernel's image and of modules by symbol, all else by the part of Linux's map that it lies in
/// (Documentation/arch/x86/x86_64/mm.rst, four levels).
fn data_name(address: u64, symbols: Option<&Symbols>) -> String {
    let part = match address {
        0..0x8000_0000_0000 => "user mode",
        0xffff_8880_0000_0000..0xffff_c880_0000_0000 => "all memory: slabs, pages, per-CPU data",
        0xffff_c900_0000_0000..0xffff_e900_0000_0000 => "vmalloc: stacks of tasks, and more",
        0xffff_ea00_0000_0000..0xffff_eb00_0000_0000 => "struct page",
        0xffff_fe00_0000_0000..0xffff_fe80_0000_0000 => "CPU entry area",
        0xffff_ffff_8000_0000.. => {
            let name = symbols.map(|symbols| symbols.data_name(address));
            return name.unwrap_or_else(|| "kernel".to_owned());
        }
        _ => "elsewhere in the kernel",
    };
    part.to_owned()
}

#[cfg(test)]
mod tests {
    use sim::UNKNOWN_FUNCTION;

    use super::*;

    fn account() -> Accounting {
        let miss = |cache, kind, key, count| MissCount { region: 1, cache, kind, key, count };
        let timer = KernelContext::Interrupt(0xec).code();
        Accounting {
            has_contexts: true,
            misses: vec![
                miss(1, MissKind::Class, 0, 10),
                miss(1, MissKind::Class, BY_USER | 2, 30),
                miss(1, MissKind::Evictor, timer, 25),
                miss(1, MissKind::Associativity, 1, 5),
                miss(1, MissKind::Code, 1, 20),
                miss(1, MissKind::Code, UNKNOWN_FUNCTION, 10),
                miss(1, MissKind::Code, 0xffff_ffff_8100_0010, 8),
                miss(1, MissKind::Code, ELSEWHERE, 2),
                miss(1, MissKind::Data, 0xffff_ea00_0000_0040, 40),
            ],
            user_functions: [(1, "main [cc1]".to_owned())].into(),
            ..Accounting::default()
        }
    }

    #[test]
    fn misses_have_a_class_an_evictor_and_a_place() {
        let symbols =
            Symbols::parse(b"ffffffff81000000 T do_it\nffffffff81000100 T next\n").unwrap();
        let tables = tables(&account(), Some(&symbols));
        let cells = |table: usize, column: usize| -> Vec<Value> {
            tables[table].rows().iter().map(|row| row[column].clone()).collect()
        };
        assert_eq!(cells(0, 2), ["kernel".into(), "user".into()]);
        assert_eq!(cells(0, 3), ["cold".into(), "other".into()]);
        assert_eq!(cells(0, 5), [0.25.into(), 0.75.into()]);
        assert_eq!(cells(1, 2), ["interrupt 0xec".into(), "all: conflict".into()]);
        let functions = ["main [cc1]", "[unknown]", "do_it", "elsewhere"];
        assert_eq!(cells(2, 2), functions.map(Value::from));
        assert_eq!(cells(3, 2), ["struct page".into()]);
        assert_eq!(warning(&account()), None);
        assert!(absent(&account()).is_none());
    }

    #[test]
    fn without_contexts_nobody_is_blamed() {
        let account = Accounting { has_contexts: false, ..account() };
        assert!(super::tables(&account, None).is_empty());
        assert!(absent(&account).unwrap().reason.contains("no symbols"));
    }

    #[test]
    fn what_was_not_asked_for_has_no_tables() {
        assert!(super::tables(&Accounting::default(), None).is_empty());
    }
}
