//! Tables `misses`, `miss_evictors`, `miss_functions`, `miss_data`, `miss_stalls` and `shared_lines`: cache
//! misses of services, and their causes. `services` and `handlers` report them. Users' programs read the
//! columns: names and order must not change.

use std::collections::BTreeMap;

use record::{Column, Columns, Format, Table, TableDisplay, column};

use super::super::class::Class;
use super::super::counters::{DATA_STALL, FETCH_STALL, INSTRUCTIONS};
use super::super::misses::{
    CLASSES, KeyedMisses, MissRow, MissSample, MissWait, ServiceName, SharedLine, StructureName,
};
use super::super::sample::{ServiceStats, ServicesSample};
use super::{key_columns, ratio};

/// Maximum number of rows for each service and cache; a last row sums the others.
const GROUP_ROWS_MAX: usize = 1_000;
/// Maximum number of rows of the table `shared_lines`; the first line has all of its rows. A last row sums the others.
const SHARED_ROWS_MAX: usize = 200;

/// A service and a cache.
type ServiceCache = (ServiceName, String);

/// The columns that name a service and a cache.
fn service_cache_columns<'a>() -> Columns<'a, ServiceCache> {
    key_columns().of_ref(|(service, _): &ServiceCache| service).and([column(
        "cache",
        "Level of cache: L1I, L1D, L2 or L3; all CPUs together.",
    )
    .priority(99)
    .key()
    .text(|(_, cache): &ServiceCache| cache.clone())])
}

/// The columns of the misses by class, in the order of [`CLASSES`].
fn class_columns<'a>() -> Columns<'a, [u64; CLASSES.len()]> {
    let docs = [
        "First use of the line in the window.",
        "The context that misses had evicted the line: the kernel, or the same process.",
        "Another context had evicted the line: the kernel, or another process.",
        "Another CPU had written the bytes.",
        "Another CPU had written other bytes of the line.",
        "A device had written the line since it was last cached.",
        "The cause of the miss is not known.",
    ];
    Columns::all(CLASSES.into_iter().zip(docs).enumerate().map(|(index, (class, doc))| {
        // Sharing needs two CPUs, but every machine has devices.
        let priority = match class {
            "device" => 81,
            "untracked" => 20,
            _ => 80,
        };
        column(&format!("{class}_count"), doc)
            .shown_as(&class.replace('_', " "), priority)
            .uint(move |counts: &[u64; CLASSES.len()]| counts[index])
    }))
}

/// Display hints of a table that is sorted by its misses.
fn sorted_by_misses() -> TableDisplay {
    TableDisplay { sort_by: Some("miss_count".to_owned()), ..TableDisplay::default() }
}

/// All tables of misses.
pub(in super::super) fn misses(sample: &ServicesSample, misses: &MissSample) -> Vec<Table> {
    vec![
        classes(sample, misses),
        stalls(sample, misses),
        evictors(misses),
        functions(misses),
        data(misses),
        shared_lines_table(misses),
    ]
}

/// One row for each service and cache.
fn classes(sample: &ServicesSample, misses: &MissSample) -> Table {
    let mut cache_misses: BTreeMap<&str, u64> = BTreeMap::new();
    for row in &misses.rows {
        *cache_misses.entry(&row.cache).or_default() += miss_count(&row.classes);
    }
    let per_kilo_instruction = |row: &MissRow| {
        let instructions = sample.count(service_stats(sample, &row.service)?, INSTRUCTIONS)?;
        (instructions > 0).then(|| miss_count(&row.classes) as f64 * 1e3 / instructions as f64)
    };
    let columns = Columns::all([
        service_cache_columns().of(|row: &MissRow| (row.service.clone(), row.cache.clone())),
        column(
            "miss_count",
            "Misses of fetches, loads and stores; without page walks and prefetches.",
        )
        .title("misses")
        .cost()
        .priority(95)
        .uint(|row: &MissRow| miss_count(&row.classes)),
        column("share_ratio", "Share of the misses of the cache.").shown_as("% of cache", 90).real(
            |row: &MissRow| {
                let cache_misses = cache_misses.get(row.cache.as_str()).copied();
                ratio(Some(miss_count(&row.classes)), cache_misses)
            },
        ),
        column("per_kilo_instruction_ratio", "Misses per 1,000 instructions of the service.")
            .title("per 1,000 instr.")
            .format(Format::Factor)
            .priority(85)
            .real(|row: &MissRow| per_kilo_instruction(row)),
        class_columns().of_ref(|row: &MissRow| &row.classes),
        column(
            "capacity_count",
            "Misses of evicted lines that a fully associative cache of the same size would have, \
             too.",
        )
        .shown_as("capacity", 60)
        .uint(|row: &MissRow| row.capacity),
        column(
            "conflict_count",
            "Misses of evicted lines that a fully associative cache would not have: too few ways.",
        )
        .shown_as("conflict", 59)
        .uint(|row: &MissRow| row.conflict),
    ]);
    let doc = "Cache misses of each service by class.";
    columns.table("misses", doc, &misses.rows).displayed(sorted_by_misses())
}

/// The misses of all classes together.
fn miss_count(classes: &[u64; CLASSES.len()]) -> u64 {
    classes.iter().sum()
}

/// The statistics of the service with this name.
fn service_stats<'a>(sample: &'a ServicesSample, name: &ServiceName) -> Option<&'a ServiceStats> {
    let is_named = |stats: &&ServiceStats| stats.class == name.class && stats.name == name.name;
    sample.services.iter().find(is_named)
}

/// The stalls of a service for one kind of access, because of one level.
struct Stalls<'a> {
    service: &'a ServiceStats,
    /// `instruction` or `data`.
    access: &'static str,
    /// The supplier of the lines, `page walk`, or `other` if the misses have no known level.
    level: &'a str,
    /// Misses of L1; `None` for page walks and `other`.
    count: Option<u64>,
    mean_wait_ticks: Option<f64>,
    stall_ticks: f64,
}

impl Stalls<'_> {
    /// The stalls over the time of the service with its page walks. `None` if that time is 0 or unknown.
    fn stall_ratio(&self) -> Option<f64> {
        let ticks = self.service.self_ticks? + self.service.page_walks().unwrap_or(0);
        (ticks > 0).then(|| self.stall_ticks / ticks as f64)
    }
}

/// One row for each service, kind of access (instructions or data) and level.
fn stalls(sample: &ServicesSample, misses: &MissSample) -> Table {
    let columns = key_columns().of(|row: &Stalls<'_>| row.service.service_name()).and([
        column("access", "instruction or data.")
            .priority(99)
            .key()
            .text(|row: &Stalls<'_>| row.access),
        column(
            "level",
            "Supplier of the line: L2, L3, other core (its cache) or memory. page walk: the wait \
             for the translation.",
        )
        .priority(98)
        .key()
        .text(|row: &Stalls<'_>| row.level.to_owned()),
        column("miss_count", "Misses of L1 that this level supplied; absent for page walks.")
            .shown_as("misses", 85)
            .uint(|row: &Stalls<'_>| row.count),
        column(
            "wait_mean_ns",
            "Mean time until the line arrived, from when its translation was known.",
        )
        .title("each")
        .format(Format::Nanoseconds)
        .priority(80)
        .real(|row: &Stalls<'_>| row.mean_wait_ticks.map(|ticks| sample.ns_of(ticks))),
        column(
            "stall_total_ns",
            "Time that the service waited. A core that waits for each miss waits for the whole \
             time of the line. Other cores hide a part; their stalls are divided among levels in \
             proportion to the times of the lines.",
        )
        .title("stall")
        .format(Format::Milliseconds)
        .cost()
        .priority(95)
        .real(|row: &Stalls<'_>| sample.ns_of(row.stall_ticks)),
        column(
            "stall_ratio",
            "stall_total_ns over the time of the service including its page walks.",
        )
        .shown_as("% of service", 90)
        .real(|row: &Stalls<'_>| row.stall_ratio()),
    ]);
    let doc = "Memory stalls of services by the level that supplies the line, for instructions \
               and for data.";
    let display =
        TableDisplay { sort_by: Some("stall_total_ns".to_owned()), ..TableDisplay::default() };
    let mut rows = Vec::new();
    // The counter has the stalls of all levels together. They are divided by the
    // time that the lines of each level took.
    for service in &sample.services {
        for (is_fetch, counter, access) in
            [(true, FETCH_STALL, "instruction"), (false, DATA_STALL, "data")]
        {
            let is_included = |wait: &&MissWait| {
                (wait.service.class, wait.service.name.as_str()) == (service.class, &*service.name)
                    && wait.is_fetch == is_fetch
            };
            let waits: Vec<_> = misses.waits.iter().filter(is_included).collect();
            let waited: u64 = waits.iter().map(|wait| wait.wait_ticks).sum();
            let stalled = sample.count(service, counter).unwrap_or(0);
            let mut push = |level, count, mean_wait_ticks, stall_ticks| {
                rows.push(Stalls { service, access, level, count, mean_wait_ticks, stall_ticks });
            };
            for wait in &waits {
                let mean = wait.wait_ticks as f64 / wait.count.max(1) as f64;
                let share = wait.wait_ticks as f64 / waited.max(1) as f64;
                push(&wait.level, Some(wait.count), Some(mean), stalled as f64 * share);
            }
            if waited == 0 && stalled > 0 && service.class != Class::PageWalk {
                push("other", None, None, stalled as f64);
            }
            let walks = service.page_walk_ticks.map(|walks| walks[usize::from(!is_fetch)]);
            if let Some(walks) = walks.filter(|ticks| *ticks > 0) {
                push("page walk", None, None, walks as f64);
            }
        }
    }
    columns.table("miss_stalls", doc, rows).displayed(display)
}

/// Table `miss_evictors`: misses of evicted lines by the service that had evicted the line. The class says little here:
/// it tells only whether the evictor is the service's own context.
fn evictors(misses: &MissSample) -> Table {
    let doc = "Cache misses of evicted lines, by the evictor.";
    let evictor = column("evicted_by", "Service that had evicted the line; user: user mode.");
    let columns = keyed_columns([named_key(evictor)]);
    columns.table("miss_evictors", doc, keyed_rows(&misses.evictors)).displayed(sorted_by_misses())
}

/// Table `miss_functions`: misses by the function that missed.
fn functions(misses: &MissSample) -> Table {
    let doc = "Cache misses of each service by function, with their classes.";
    let function = column("function", "Function that missed.");
    let columns = keyed_columns([named_key(function)])
        .and([class_columns().of_ref(|row: &KeyedRow<'_, String>| &row.classes)]);
    columns
        .table("miss_functions", doc, keyed_rows(&misses.functions))
        .displayed(sorted_by_misses())
}

/// Table `miss_data`: misses by the data structure in the line.
fn data(misses: &MissSample) -> Table {
    type Row<'a> = KeyedRow<'a, StructureName>;
    let keys = [
        column(
            "kind",
            "Kind of data: slab, variable, per-CPU variable, stack, anonymous memory, file, page \
             table, page array (struct page), vmalloc, reserved at boot, kernel page, entry area, \
             other user memory, unknown.",
        )
        .priority(97)
        .key()
        .text(|row: &Row<'_>| row.key.map_or(ALL_OTHERS, |structure| &structure.kind).to_owned()),
        column(
            "structure",
            "The slab cache, the symbol, the task of a stack or of anonymous memory, or the file \
             system of a page; absent if it is not known.",
        )
        .priority(98)
        .key()
        .text(|row: &Row<'_>| row.key.and_then(|structure| structure.name.clone())),
    ];
    let columns = keyed_columns(keys).and([class_columns().of_ref(|row: &Row<'_>| &row.classes)]);
    let doc = "Cache misses of loads and stores by the data structure that the line belongs to.";
    columns.table("miss_data", doc, keyed_rows(&misses.data)).displayed(sorted_by_misses())
}

/// The second key of the row that sums the rows without a row of their own.
const ALL_OTHERS: &str = "all others";

/// Misses of a service in a cache with one second key.
struct KeyedRow<'a, Key> {
    service_cache: ServiceCache,
    /// `None` in the row that sums all further keys.
    key: Option<&'a Key>,
    classes: [u64; CLASSES.len()],
    /// All misses of the service in the cache.
    sum: u64,
}

/// The columns of a table by a second key: service, cache, the second key, misses and their share.
fn keyed_columns<'a, Key: 'a, const COUNT: usize>(
    keys: [Columns<'a, KeyedRow<'a, Key>>; COUNT],
) -> Columns<'a, KeyedRow<'a, Key>> {
    let numbers = [
        column("miss_count", "Misses.")
            .title("misses")
            .cost()
            .priority(95)
            .uint(|row: &KeyedRow<'_, Key>| miss_count(&row.classes)),
        column("share_ratio", "Share of the rows of the service and cache.")
            .shown_as("% of service", 90)
            .real(|row: &KeyedRow<'_, Key>| ratio(Some(miss_count(&row.classes)), Some(row.sum))),
    ];
    service_cache_columns()
        .of_ref(|row: &KeyedRow<'_, Key>| &row.service_cache)
        .and(keys)
        .and(numbers)
}

/// A column of a second key that is a name.
fn named_key<'a>(key_column: Column) -> Columns<'a, KeyedRow<'a, String>> {
    let name = |row: &KeyedRow<'_, String>| row.key.map_or(ALL_OTHERS, String::as_str).to_owned();
    key_column.priority(98).key().text(name)
}

/// One row for each service, cache and second key. Each service and cache has the keys with the most misses, and a last
/// row that sums the others.
fn keyed_rows<Key: Ord>(parts: &[KeyedMisses<Key>]) -> Vec<KeyedRow<'_, Key>> {
    let mut groups: BTreeMap<(&ServiceName, &str), Vec<&KeyedMisses<Key>>> = BTreeMap::new();
    for part in parts {
        groups.entry((&part.service, &part.cache)).or_default().push(part);
    }
    let mut rows = Vec::new();
    for ((service, cache), mut group) in groups {
        group.sort_by_key(|part| (std::cmp::Reverse(miss_count(&part.classes)), &part.key));
        let sum = group.iter().map(|part| miss_count(&part.classes)).sum();
        let mut others = [0; CLASSES.len()];
        for part in group.iter().skip(GROUP_ROWS_MAX) {
            others.iter_mut().zip(&part.classes).for_each(|(others, count)| *others += count);
        }
        let largest = group.iter().take(GROUP_ROWS_MAX).map(|part| (Some(&part.key), part.classes));
        let others = (miss_count(&others) > 0).then_some((None, others));
        for (key, classes) in largest.chain(others) {
            let service_cache = (service.clone(), cache.to_owned());
            rows.push(KeyedRow { service_cache, key, classes, sum });
        }
    }
    rows
}

/// A row of the table `shared_lines`.
struct SharedRow<'a> {
    /// The number of the line. `None` in the row that sums all further lines.
    line: Option<u64>,
    /// The bytes and the function that missed them. `None` in the row that sums all further lines.
    bytes: Option<&'a SharedLine>,
    /// A bit mask of the CPUs that missed.
    cpus: u32,
    true_sharing: u64,
    false_sharing: u64,
}

impl SharedRow<'_> {
    /// Misses of both kinds together.
    fn miss_count(&self) -> u64 {
        self.true_sharing + self.false_sharing
    }

    /// Adds the misses of other bytes to the row.
    fn add(&mut self, bytes: &SharedLine) {
        self.cpus |= bytes.cpus;
        self.true_sharing += bytes.true_sharing;
        self.false_sharing += bytes.false_sharing;
    }
}

/// The columns of table `shared_lines`: the lines with the most coherence misses, divided by the bytes and functions
/// that miss. Where `bytes` is absent, the row is the sum of the lines without rows of their own.
fn shared_columns<'a>() -> Columns<'a, SharedRow<'a>> {
    type Row<'r> = SharedRow<'r>;
    let structure = |row: &Row<'_>| match row.bytes {
        Some(bytes) => bytes.structure.clone(),
        None => Some(ALL_OTHERS.to_owned()),
    };
    Columns::all([
        column(
            "line",
            "Number of the line; line 1 has the most misses. Virtual addresses tell lines apart: \
             equal user addresses of several processes are one line.",
        )
        .priority(96)
        .key()
        .uint(|row: &Row<'_>| row.line),
        column(
            "structure",
            "Owner of the bytes: a symbol, or a structure with a member or offset. all others: \
             the sum of the lines without rows of their own.",
        )
        .priority(100)
        .key()
        .text(structure),
        column("kind", "Kind of structure: see miss_data.")
            .priority(70)
            .key()
            .text(|row: &Row<'_>| row.bytes.map(|bytes| bytes.kind.clone())),
        column("address", "Virtual address of the 8 bytes that were missed.")
            .priority(85)
            .key()
            .text(|row: &Row<'_>| Some(format!("{:#x}", row.bytes?.address?))),
        key_columns().of_optional(|row: &Row<'_>| row.bytes.map(|bytes| &bytes.service)),
        column("function", "Function that missed.")
            .priority(95)
            .key()
            .text(|row: &Row<'_>| row.bytes.map(|bytes| bytes.function.clone())),
        column("cpus", "CPUs that missed.").priority(90).text(|row: &Row<'_>| cpu_list(row.cpus)),
        column("miss_count", "Misses of L1D.")
            .title("misses")
            .cost()
            .priority(94)
            .uint(|row: &Row<'_>| row.miss_count()),
        column("true_sharing_count", "Misses because another CPU had written these bytes.")
            .shown_as("true sharing", 92)
            .uint(|row: &Row<'_>| row.true_sharing),
        column(
            "false_sharing_count",
            "Misses because another CPU had written other bytes of the line.",
        )
        .shown_as("false sharing", 93)
        .uint(|row: &Row<'_>| row.false_sharing),
    ])
}

/// One row for each function and 8 bytes of a line that CPUs share. The lines with the most misses come first. A last
/// row sums the lines without rows of their own.
fn shared_lines_table(misses: &MissSample) -> Table {
    let doc = "Lines that CPUs take from each other, with the bytes and the functions that miss.";
    let display = TableDisplay {
        headline: "most shared: {structure}, {function}, {miss_count} misses".to_owned(),
        ..TableDisplay::default()
    };
    let sharing = |bytes: &SharedLine| bytes.true_sharing + bytes.false_sharing;
    let line_bytes = misses.line_bytes.max(8);
    let mut others =
        SharedRow { line: None, bytes: None, cpus: 0, true_sharing: 0, false_sharing: 0 };
    let mut lines: BTreeMap<u64, Vec<_>> = BTreeMap::new();
    for bytes in &misses.shared {
        match bytes.address {
            Some(address) => lines.entry(address / line_bytes).or_default().push(bytes),
            None => others.add(bytes),
        }
    }
    let mut lines: Vec<_> = lines.into_iter().collect();
    lines.sort_by_key(|(line, line_bytes)| {
        (std::cmp::Reverse(line_bytes.iter().map(|bytes| sharing(bytes)).sum::<u64>()), *line)
    });
    let mut rows: Vec<SharedRow<'_>> = Vec::new();
    let mut is_full = false;
    for (number, (_, mut line)) in (1_u64..).zip(lines) {
        is_full |= !rows.is_empty() && rows.len() + line.len() > SHARED_ROWS_MAX;
        if is_full {
            line.into_iter().for_each(|bytes| others.add(bytes));
            continue;
        }
        line.sort_by_key(|bytes| {
            (
                std::cmp::Reverse(sharing(bytes)),
                bytes.address,
                bytes.function.clone(),
                bytes.service.clone(),
            )
        });
        rows.extend(line.into_iter().map(|bytes| SharedRow {
            line: Some(number),
            bytes: Some(bytes),
            cpus: bytes.cpus,
            true_sharing: bytes.true_sharing,
            false_sharing: bytes.false_sharing,
        }));
    }
    rows.extend((others.miss_count() > 0).then_some(others));
    shared_columns().table("shared_lines", doc, rows).displayed(display)
}

/// The numbers of the CPUs in a bit mask.
fn cpu_list(mask: u32) -> String {
    let cpus = (0..u32::BITS).filter(|cpu| mask >> cpu & 1 == 1);
    cpus.map(|cpu| cpu.to_string()).collect::<Vec<_>>().join(",")
}

#[cfg(test)]
mod tests {
    use record::Value;

    use super::*;

    #[test]
    fn the_last_row_of_shared_lines_sums_the_lines_without_rows() {
        // 150 lines of 16 bytes, with two rows each. The rows of 100 lines fit.
        let bytes = |number: u64| SharedLine {
            service: ServiceName { class: Class::Syscall, name: "read".to_owned() },
            kind: "slab".to_owned(),
            structure: Some("file.f_pos".to_owned()),
            address: Some(8 * number),
            function: "vfs_read".to_owned(),
            cpus: 1_u32 << (number % 2),
            true_sharing: 1,
            false_sharing: 2,
        };
        let sample = MissSample {
            shared: (0..300).map(bytes).collect(),
            line_bytes: 16,
            ..MissSample::default()
        };
        let table = shared_lines_table(&sample);
        assert_eq!(table.rows().len(), SHARED_ROWS_MAX + 1);
        assert_eq!(table.check_display(), Ok(()));
        let others = &table.rows()[SHARED_ROWS_MAX];
        let cell = |name: &str| table.get(others, name).unwrap().clone();
        assert_eq!(cell("structure"), Value::from(ALL_OTHERS));
        assert_eq!(cell("cpus"), Value::from("0,1"));
        for name in ["line", "kind", "address", "class", "service", "function"] {
            assert_eq!(cell(name), Value::Absent, "{name}");
        }
        let counts = ["miss_count", "true_sharing_count", "false_sharing_count"].map(cell);
        assert_eq!(counts, [300, 100, 200].map(Value::Uint));
        // Without further lines there is no such row.
        let mut sample = MissSample { shared: (0..200).map(bytes).collect(), ..sample };
        assert_eq!(shared_lines_table(&sample).rows().len(), SHARED_ROWS_MAX);
        // Misses whose bytes were not recorded belong to the others, however many they are.
        sample.shared.push(SharedLine { address: None, true_sharing: 1_000, ..bytes(0) });
        let table = shared_lines_table(&sample);
        let others = &table.rows()[SHARED_ROWS_MAX];
        assert_eq!(table.get(others, "structure"), Some(&Value::from(ALL_OTHERS)));
        assert_eq!(table.get(others, "miss_count"), Some(&Value::Uint(1_002)));
    }

    #[test]
    fn misses_of_devices_are_dropped_after_those_of_sharing() {
        let table = class_columns().table("misses", "", [[0; CLASSES.len()]]);
        let priority = |name: &str| table.columns[table.column(name).unwrap()].display.priority;
        assert!(priority("device_count") > priority("true_sharing_count"));
        assert!(priority("device_count") > priority("untracked_count"));
    }
}
