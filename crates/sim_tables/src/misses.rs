//! Tables `misses`, `miss_evictors`, `miss_functions` and `miss_data`: misses by class, by the context that had
//! evicted the line, and by place (function or data). A run with `--misses` has them. Column names and their order
//! are public.

use std::collections::BTreeMap;

use record::{Absence, Columns, Table, column};
use sim::{
    Accounting, CACHE_NAMES, ELSEWHERE, KernelContext, MissClass, MissCount, MissKind, Symbols,
};

use crate::regions::region_column;

/// Maximum number of places per region and cache; one row sums up all others.
const PLACES_MAX: usize = 50;

/// Bit in [`MissCount::key`] of the kind [`MissKind::Class`]: user mode made the access. The lower bits are the class.
const BY_USER: u64 = 1 << 8;

/// Returns why there are no tables; `None` if there are. Without known contexts, all misses would be the kernel's.
#[must_use]
pub fn absent(accounting: &Accounting) -> Option<Absence> {
    (!accounting.has_contexts).then(|| {
        let classes = "misses by class and by evicting context";
        Absence::new("misses", classes, "this kernel has no symbols (CONFIG_KALLSYMS)")
    })
}

/// Returns the tables; none if misses were not classified, or contexts are not known.
#[must_use]
pub fn tables(accounting: &Accounting, symbols: Option<&Symbols>) -> Vec<Table> {
    if accounting.misses.is_empty() || !accounting.has_contexts {
        return Vec::new();
    }
    let function = |code: u64| code_name(code, accounting, symbols);
    let data = |address: u64| data_name(address, symbols);
    vec![
        classes(accounting),
        evictors(accounting),
        places("miss_functions", "function", counts_of_kind(accounting, MissKind::Code), &function),
        places("miss_data", "data", counts_of_kind(accounting, MissKind::Data), &data),
    ]
}

/// Returns a warning if the plugin could not keep all places.
#[must_use]
pub fn warning(accounting: &Accounting) -> Option<String> {
    let not_kept = counts_of_kind(accounting, MissKind::NotKept).map(|miss_count| miss_count.count);
    let not_kept = not_kept.fold(0, u64::saturating_add);
    (not_kept > 0).then(|| {
        format!("{not_kept} misses are not attributed to a function or data: too many places")
    })
}

fn counts_of_kind(accounting: &Accounting, kind: MissKind) -> impl Iterator<Item = &MissCount> {
    accounting.misses.iter().filter(move |miss_count| miss_count.kind == kind)
}

/// Returns the name of the cache that missed.
#[must_use]
pub fn cache_name(miss_count: &MissCount) -> &'static str {
    CACHE_NAMES.get(miss_count.cache as usize).copied().unwrap_or("")
}

/// Returns whether user mode made misses of the kind [`MissKind::Class`].
#[must_use]
pub fn is_by_user(miss_count: &MissCount) -> bool {
    miss_count.key & BY_USER != 0
}

/// Returns the class of misses of the kind [`MissKind::Class`], as the table names it.
#[must_use]
pub fn class_name(miss_count: &MissCount) -> &'static str {
    match MissClass::ALL.get((miss_count.key & (BY_USER - 1)) as usize) {
        Some(MissClass::Cold) => "cold",
        Some(MissClass::SameSelf) => "self",
        Some(MissClass::Other) => "other",
        Some(MissClass::TrueSharing) => "true sharing",
        Some(MissClass::FalseSharing) => "false sharing",
        Some(MissClass::Device) => "device",
        Some(MissClass::Untracked) | None => "untracked",
    }
}

/// Returns the number of misses of a kind by region and cache.
fn sums(accounting: &Accounting, kind: MissKind) -> BTreeMap<(u32, u32), u64> {
    let mut sums = BTreeMap::new();
    for miss_count in counts_of_kind(accounting, kind) {
        let sum: &mut u64 = sums.entry((miss_count.region, miss_count.cache)).or_default();
        *sum = sum.saturating_add(miss_count.count);
    }
    sums
}

/// Returns the share of a count in all misses of its region and cache. `sums`: these misses.
fn ratio(sums: &BTreeMap<(u32, u32), u64>, miss_count: &MissCount) -> Option<f64> {
    let sum = sums.get(&(miss_count.region, miss_count.cache)).copied().filter(|sum| *sum > 0)?;
    Some(miss_count.count as f64 / sum as f64)
}

/// Returns the columns of the region and the cache.
fn key_columns<'a>() -> Columns<'a, (u32, u32)> {
    Columns::all([
        region_column().of_ref(|(region, _): &(u32, u32)| region),
        column("cache", "Level of cache; all CPUs together.").key().text(
            |(_, cache): &(u32, u32)| CACHE_NAMES.get(*cache as usize).copied().unwrap_or(""),
        ),
    ])
}

/// Returns the table `misses`.
fn classes(accounting: &Accounting) -> Table {
    let sums = sums(accounting, MissKind::Class);
    let key = |miss_count: &MissCount| (miss_count.region, miss_count.cache);
    let columns = key_columns().of(key).and([
        column("mode", "Processor mode of the access: user or kernel.").key().text(
            |miss_count: &MissCount| {
                if is_by_user(miss_count) { "user" } else { "kernel" }
            },
        ),
        column(
            "class",
            "cold: first access in the region. self, other: the line had been evicted by one \
             of the same (the kernel, that process) or of another. true sharing, false \
             sharing: another core had written the accessed bytes, or other bytes of the \
             coherence granule. device: a device had. untracked: unknown.",
        )
        .key()
        .text(class_name),
        column("misses", "Misses of this class.").uint(|miss_count: &MissCount| miss_count.count),
        column("share_ratio", "misses over all misses of the cache.")
            .real(|miss_count: &MissCount| ratio(&sums, miss_count)),
    ]);
    let doc = "Misses by class, without those of page-table walks and prefetches.";
    columns.table("misses", doc, counts_of_kind(accounting, MissKind::Class))
}

/// Names the evicting context. For [`MissKind::Associativity`]: whether a fully associative cache of the same size
/// would have missed, too (capacity) or not (conflict).
fn evictor(accounting: &Accounting, miss_count: &MissCount) -> String {
    match (miss_count.kind, miss_count.key) {
        (MissKind::Associativity, 0) => "all: capacity".to_owned(),
        (MissKind::Associativity, _) => "all: conflict".to_owned(),
        (_, code) => match KernelContext::from_code(code) {
            Some(KernelContext::User(_)) => "user".to_owned(),
            Some(KernelContext::Unknown) | None => "kernel outside of interrupts".to_owned(),
            Some(context) => accounting.name_of(context),
        },
    }
}

/// Returns the table `miss_evictors`.
fn evictors(accounting: &Accounting) -> Table {
    let sums = sums(accounting, MissKind::Class);
    let key = |miss_count: &MissCount| (miss_count.region, miss_count.cache);
    let columns = key_columns().of(key).and([
        column(
            "evicted_by",
            "Context that had evicted the missed line: user, an interrupt, or the kernel.",
        )
        .key()
        .text(|miss_count: &MissCount| evictor(accounting, miss_count)),
        column("misses", "Misses of such lines.").uint(|miss_count: &MissCount| miss_count.count),
        column("share_ratio", "misses over all misses of the cache.")
            .real(|miss_count: &MissCount| ratio(&sums, miss_count)),
    ]);
    let associativity = counts_of_kind(accounting, MissKind::Associativity);
    let rows = counts_of_kind(accounting, MissKind::Evictor).chain(associativity);
    let doc = "Misses by the context that had evicted the line, and how many of them a fully \
             associative cache of the same size would have avoided.";
    columns.table("miss_evictors", doc, rows)
}

/// A function or a line of data, with its misses in a cache.
struct Place {
    region: u32,
    cache: u32,
    name: String,
    count: u64,
    /// Misses of all places of the cache.
    sum: u64,
}

/// Returns a table of misses by place, the most frequent places of each cache first. `name_of` names a place by its
/// key; places with the same name are one row.
fn places<'a>(
    name: &str,
    title: &str,
    counts: impl Iterator<Item = &'a MissCount>,
    name_of: &dyn Fn(u64) -> String,
) -> Table {
    let columns = key_columns().of(|row: &Place| (row.region, row.cache)).and([
        column(title, "Place of the access.").key().text(|row: &Place| row.name.clone()),
        column("misses", "Misses there.").uint(|row: &Place| row.count),
        column("share_ratio", "misses over all misses of the cache with a known place.")
            .real(|row: &Place| row.count as f64 / row.sum as f64),
    ]);
    let mut rows = Vec::new();
    let mut places_by_cache: BTreeMap<(u32, u32), BTreeMap<String, u64>> = BTreeMap::new();
    for miss_count in counts {
        let name = if miss_count.key == ELSEWHERE {
            "elsewhere".to_owned()
        } else {
            name_of(miss_count.key)
        };
        let places = places_by_cache.entry((miss_count.region, miss_count.cache)).or_default();
        let sum = places.entry(name).or_default();
        *sum = sum.saturating_add(miss_count.count);
    }
    for ((region, cache), places) in places_by_cache {
        let sum = places.values().fold(0_u64, |sum, count| sum.saturating_add(*count));
        let mut places: Vec<_> = places.into_iter().collect();
        places.sort_by_key(|(_, count)| std::cmp::Reverse(*count));
        let remainder = places.iter().skip(PLACES_MAX).map(|(_, count)| *count);
        let remainder = remainder.fold(0, u64::saturating_add);
        places.truncate(PLACES_MAX);
        places.extend((remainder > 0).then(|| ("all other places".to_owned(), remainder)));
        rows.extend(places.into_iter().map(|(name, count)| Place {
            region,
            cache,
            name,
            count,
            sum,
        }));
    }
    let doc = "Misses by place: the most frequent places of each cache.";
    columns.table(name, doc, rows)
}

/// Returns whether an address is the kernel's, which has the upper half of all addresses.
fn is_kernel(address: u64) -> bool {
    address >> 63 == 1
}

/// Returns the name of a function. `code`: an address of the kernel, or the number of a function of a user program.
fn code_name(code: u64, accounting: &Accounting, symbols: Option<&Symbols>) -> String {
    if !is_kernel(code) {
        return accounting.user_function(code).to_owned();
    }
    symbols.map_or_else(|| "kernel".to_owned(), |symbols| symbols.code_name(code))
}

/// Returns the name of data: the symbol in the kernel's image and in modules, elsewhere the part of Linux's memory map
/// (Documentation/arch/x86/x86_64/mm.rst, four levels of page tables).
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
    use record::Value;
    use sim::UNKNOWN_FUNCTION;

    use super::*;

    fn accounting() -> Accounting {
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
        let tables = tables(&accounting(), Some(&symbols));
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
        let keys = |table: usize| crate::regions::key_names(&tables[table]);
        assert_eq!(keys(0), ["region", "cache", "mode", "class"]);
        assert_eq!(keys(1), ["region", "cache", "evicted_by"]);
        assert_eq!([keys(2)[2], keys(3)[2]], ["function", "data"]);
        assert_eq!(warning(&accounting()), None);
        assert!(absent(&accounting()).is_none());
    }

    #[test]
    fn without_contexts_nobody_is_blamed() {
        let accounting = Accounting { has_contexts: false, ..accounting() };
        assert!(super::tables(&accounting, None).is_empty());
        assert!(absent(&accounting).unwrap().reason.contains("no symbols"));
    }

    #[test]
    fn what_was_not_asked_for_has_no_tables() {
        assert!(super::tables(&Accounting::default(), None).is_empty());
    }
}
