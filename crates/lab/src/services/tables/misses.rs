//! Tables `misses`, `miss_evictors`, `miss_functions`, `miss_data`, `miss_stalls` and `shared_lines`: cache misses
//! of services, and their causes.

use std::collections::BTreeMap;

use record::{Column, Format, Kind, Table, TableDisplay, Value};

use super::super::class::Class;
use super::super::counters::{DATA_STALL, FETCH_STALL, INSTRUCTIONS};
use super::super::misses::{CLASSES, MissPart, MissSample, ServiceName};
use super::super::sample::{ServiceStats, ServicesSample};
use super::{key_columns, key_values, ratio};

/// Maximum number of rows for each service and cache; a last row sums the others.
const GROUP_ROWS_MAX: usize = 20;
/// Maximum number of rows of the table `shared_lines`.
const SHARED_ROWS_MAX: usize = 200;

fn uint(name: &str, doc: &str) -> Column {
    Column::new(name, Kind::Uint, doc)
}

fn real(name: &str, doc: &str) -> Column {
    Column::new(name, Kind::Real, doc)
}

fn text(name: &str, doc: &str) -> Column {
    Column::new(name, Kind::Text, doc)
}

fn cache_column() -> Column {
    text("cache", "Level of cache: L1I, L1D, L2 or L3; all CPUs together.").priority(99).key()
}

fn keys_with_cache() -> Vec<Column> {
    let mut columns = key_columns().to_vec();
    columns.push(cache_column());
    columns
}

fn class_columns() -> [Column; CLASSES.len()] {
    let docs = [
        "First use of the line in the window.",
        "The context that misses had evicted the line: the kernel, or the same process.",
        "Another context had evicted the line: the kernel, or another process.",
        "Another CPU had written the bytes.",
        "Another CPU had written other bytes of the line.",
        "A device had written the line since it was last cached.",
        "The cause of the miss is not known.",
    ];
    let column = |(class, doc): (&str, &str)| {
        let title = class.replace('_', " ");
        uint(&format!("{class}_count"), doc).title(&title).priority(80)
    };
    let [a, b, c, d, e, f, g] =
        std::array::from_fn(|position| column((CLASSES[position], docs[position])));
    [a, b, c, d, e, f.priority(30), g.priority(20)]
}

fn by_count() -> TableDisplay {
    TableDisplay { sort_by: Some("miss_count".to_owned()), ..TableDisplay::default() }
}

fn keys(service: &ServiceName, cache: &str) -> Vec<Value> {
    let mut row = key_values(service.class, &service.name).to_vec();
    row.push(cache.into());
    row
}

/// All tables of misses.
pub(in super::super) fn misses(sample: &ServicesSample, misses: &MissSample) -> Vec<Table> {
    vec![
        classes(sample, misses),
        stalls(sample, misses),
        evictors(misses),
        by_second_key("miss_functions", "function", &misses.functions),
        data(misses),
        shared(misses),
    ]
}

/// One row for each service and cache.
fn classes(sample: &ServicesSample, misses: &MissSample) -> Table {
    let mut columns = keys_with_cache();
    columns.extend([
        uint(
            "miss_count",
            "Misses of fetches, loads and stores; without page walks and prefetches.",
        )
        .title("misses")
        .cost()
        .priority(95),
        real("share_ratio", "Share of the misses of the cache.").title("% of cache").priority(90),
        real("per_kilo_instruction_ratio", "Misses per 1,000 instructions of the service.")
            .title("per 1,000 instr.")
            .format(Format::Factor)
            .priority(85),
    ]);
    columns.extend(class_columns());
    columns.extend([
        uint(
            "capacity_count",
            "Misses of evicted lines that a fully associative cache of the same size would have, \
             too.",
        )
        .title("capacity")
        .priority(60),
        uint(
            "conflict_count",
            "Misses of evicted lines that a fully associative cache would not have: too few ways.",
        )
        .title("conflict")
        .priority(59),
    ]);
    let doc = "Cache misses of each service by class.";
    let mut table = Table::new("misses", doc, columns).displayed(by_count());
    let mut sums: BTreeMap<&str, u64> = BTreeMap::new();
    for misses in &misses.rows {
        *sums.entry(&misses.cache).or_default() += misses.classes.iter().sum::<u64>();
    }
    for misses in &misses.rows {
        let count: u64 = misses.classes.iter().sum();
        let instructions = find(sample, &misses.service)
            .and_then(|service| sample.count(service, INSTRUCTIONS))
            .filter(|instructions| *instructions > 0);
        let per_kilo = instructions.map(|number| count as f64 * 1e3 / number as f64);
        let mut row = keys(&misses.service, &misses.cache);
        row.extend([
            count.into(),
            ratio(Some(count), sums.get(misses.cache.as_str()).copied()).into(),
            per_kilo.into(),
        ]);
        row.extend(misses.classes.iter().map(|count| Value::from(*count)));
        row.extend([misses.capacity.into(), misses.conflict.into()]);
        table.push(row);
    }
    table
}

fn find<'a>(sample: &'a ServicesSample, name: &ServiceName) -> Option<&'a ServiceStats> {
    let is_named = |stats: &&ServiceStats| stats.class == name.class && stats.name == name.name;
    sample.services.iter().find(is_named)
}

/// One row for each service, kind of access (instructions or data) and level.
fn stalls(sample: &ServicesSample, misses: &MissSample) -> Table {
    let mut columns = key_columns().to_vec();
    columns.extend([
        text("access", "instruction or data.").priority(99).key(),
        text(
            "level",
            "Supplier of the line: L2, L3, other core (its cache) or memory. page walk: the wait \
             for the translation.",
        )
        .priority(98)
        .key(),
        uint("miss_count", "Misses of L1 that this level supplied; absent for page walks.")
            .title("misses")
            .priority(85),
        real(
            "wait_mean_ns",
            "Mean time until the line arrived, from when its translation was known.",
        )
        .title("each")
        .format(Format::Nanoseconds)
        .priority(80),
        real(
            "stall_total_ns",
            "Time that the service waited. A core that waits for each miss waits for the whole \
             time of the line. Other cores hide a part; their stalls are divided among levels in \
             proportion to the times of the lines.",
        )
        .title("stall")
        .format(Format::Milliseconds)
        .cost()
        .priority(95),
        real(
            "stall_ratio",
            "stall_total_ns over the time of the service including its page walks.",
        )
        .title("% of service")
        .priority(90),
    ]);
    let doc = "Memory stalls of services by the level that supplies the line, for instructions \
               and for data.";
    let display =
        TableDisplay { sort_by: Some("stall_total_ns".to_owned()), ..TableDisplay::default() };
    let mut table = Table::new("miss_stalls", doc, columns).displayed(display);
    for service in &sample.services {
        let service_ticks =
            service.self_ticks.map(|ticks| ticks + service.page_walks().unwrap_or(0));
        for (is_fetch, counter, access) in
            [(true, FETCH_STALL, "instruction"), (false, DATA_STALL, "data")]
        {
            let is_included = |wait: &&super::super::misses::MissWait| {
                (wait.service.class, wait.service.name.as_str()) == (service.class, &*service.name)
                    && wait.is_fetch == is_fetch
            };
            let waits: Vec<_> = misses.waits.iter().filter(is_included).collect();
            let waited: u64 = waits.iter().map(|wait| wait.wait_ticks).sum();
            let stalled = sample.count(service, counter).unwrap_or(0);
            let mut push = |level: &str, count: Option<u64>, mean_wait: Option<f64>, stall: f64| {
                let mut row = key_values(service.class, &service.name).to_vec();
                let share =
                    service_ticks.filter(|ticks| *ticks > 0).map(|ticks| stall / ticks as f64);
                row.extend([
                    access.into(),
                    level.into(),
                    count.into(),
                    mean_wait.map(|ticks| sample.ns_of(ticks)).into(),
                    sample.ns_of(stall).into(),
                    share.into(),
                ]);
                table.push(row);
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
    table
}

fn evictors(misses: &MissSample) -> Table {
    by_second_key("miss_evictors", "evicted_by", &misses.evictors)
}

/// One row for each service, cache and evictor or function: the most frequent of each service and cache.
fn by_second_key(name: &str, key_column: &str, parts: &[MissPart]) -> Table {
    let (doc, key_doc) = match key_column {
        "function" => ("Cache misses of each service by function.", "Function that missed."),
        _ => (
            "Cache misses of evicted lines, by the evictor.",
            "Service that had evicted the line; user: user mode.",
        ),
    };
    let mut columns = keys_with_cache();
    columns.extend([
        text(key_column, key_doc).priority(98).key(),
        uint("miss_count", "Misses.").title("misses").cost().priority(95),
        real("share_ratio", "Share of the rows of the service and cache.")
            .title("% of service")
            .priority(90),
    ]);
    let mut table = Table::new(name, doc, columns).displayed(by_count());
    let mut groups: BTreeMap<(&ServiceName, &str), Vec<&MissPart>> = BTreeMap::new();
    for part in parts {
        groups.entry((&part.service, &part.cache)).or_default().push(part);
    }
    for ((service, cache), mut parts) in groups {
        parts.sort_by_key(|part| (std::cmp::Reverse(part.count), &part.by));
        let sum: u64 = parts.iter().map(|part| part.count).sum();
        let others: u64 = parts.iter().skip(GROUP_ROWS_MAX).map(|part| part.count).sum();
        let largest = parts.iter().take(GROUP_ROWS_MAX).map(|part| (part.by.as_str(), part.count));
        for (second_key, count) in largest.chain((others > 0).then_some(("all others", others))) {
            let mut row = keys(service, cache);
            row.extend([second_key.into(), count.into(), ratio(Some(count), Some(sum)).into()]);
            table.push(row);
        }
    }
    table
}

/// One row for each service, cache and structure: the most frequent structures of each service and cache.
fn data(misses: &MissSample) -> Table {
    let mut columns = keys_with_cache();
    columns.extend([
        text(
            "kind",
            "Kind of data: slab, variable, per-CPU variable, stack, anonymous memory, file, page \
             table, page array (struct page), vmalloc, reserved at boot, kernel page, entry area, \
             other user memory, unknown.",
        )
        .priority(97)
        .key(),
        text(
            "structure",
            "The slab cache, the symbol, the task of a stack or of anonymous memory, or the file \
             system of a page; absent if it is not known.",
        )
        .priority(98)
        .key(),
        uint("miss_count", "Misses.").title("misses").cost().priority(95),
        real("share_ratio", "Share of the rows of the service and cache.")
            .title("% of service")
            .priority(90),
    ]);
    columns.extend(class_columns());
    let doc = "Cache misses of loads and stores by the data structure that the line belongs to.";
    let mut table = Table::new("miss_data", doc, columns).displayed(by_count());
    let mut groups: BTreeMap<_, Vec<_>> = BTreeMap::new();
    for misses in &misses.data {
        groups.entry((&misses.service, &misses.cache)).or_default().push(misses);
    }
    for ((service, cache), mut group) in groups {
        let count = |classes: &[u64; CLASSES.len()]| classes.iter().sum::<u64>();
        group.sort_by_key(|misses| {
            (
                std::cmp::Reverse(count(&misses.classes)),
                misses.kind.clone(),
                misses.structure.clone(),
            )
        });
        let sum: u64 = group.iter().map(|misses| count(&misses.classes)).sum();
        let mut others = [0; CLASSES.len()];
        for misses in group.iter().skip(GROUP_ROWS_MAX) {
            others.iter_mut().zip(&misses.classes).for_each(|(others, count)| *others += count);
        }
        let largest = group.iter().take(GROUP_ROWS_MAX);
        let largest =
            largest.map(|misses| (misses.kind.as_str(), misses.structure.clone(), misses.classes));
        let others = (count(&others) > 0).then_some(("all others", None, others));
        for (kind, structure, classes) in largest.chain(others) {
            let mut row = keys(service, cache);
            row.extend([
                kind.into(),
                structure.into(),
                count(&classes).into(),
                ratio(Some(count(&classes)), Some(sum)).into(),
            ]);
            row.extend(classes.iter().map(|count| Value::from(*count)));
            table.push(row);
        }
    }
    table
}

/// One row for each function and 8 bytes of a line that CPUs share. The lines with the most misses come first.
fn shared(misses: &MissSample) -> Table {
    let columns = vec![
        uint("line", "Number of the line; line 1 has the most misses.").priority(96).key(),
        text("structure", "Owner of the bytes: a symbol, or a structure with a member or offset.")
            .priority(100)
            .key(),
        text("kind", "Kind of structure: see miss_data.").priority(70).key(),
        text("address", "Virtual address of the 8 bytes that were missed.").priority(85).key(),
        key_columns()[0].clone(),
        key_columns()[1].clone(),
        text("function", "Function that missed.").priority(95).key(),
        text("cpus", "CPUs that missed.").priority(90),
        uint("miss_count", "Misses of L1D.").title("misses").cost().priority(94),
        uint("true_sharing_count", "Misses because another CPU had written these bytes.")
            .title("true sharing")
            .priority(92),
        uint(
            "false_sharing_count",
            "Misses because another CPU had written other bytes of the line.",
        )
        .title("false sharing")
        .priority(93),
    ];
    let doc = "Lines that CPUs take from each other, with the bytes and the functions that miss.";
    let display = TableDisplay {
        headline: "most shared: {structure}, {function}, {miss_count} misses".to_owned(),
        ..TableDisplay::default()
    };
    let mut table = Table::new("shared_lines", doc, columns).displayed(display);
    let line_bytes = misses.line_bytes.max(8);
    let mut lines: BTreeMap<u64, Vec<_>> = BTreeMap::new();
    for bytes in &misses.shared {
        lines.entry(bytes.address / line_bytes).or_default().push(bytes);
    }
    let count = |bytes: &super::super::misses::SharedLine| bytes.true_sharing + bytes.false_sharing;
    let mut lines: Vec<_> = lines.into_iter().collect();
    lines.sort_by_key(|(line, missed)| {
        (std::cmp::Reverse(missed.iter().map(|bytes| count(bytes)).sum::<u64>()), *line)
    });
    let mut rows = 0;
    for (number, (_, mut line)) in (1_u64..).zip(lines) {
        line.sort_by_key(|bytes| {
            (
                std::cmp::Reverse(count(bytes)),
                bytes.address,
                bytes.function.clone(),
                bytes.service.clone(),
            )
        });
        if rows + line.len() > SHARED_ROWS_MAX && rows > 0 {
            break;
        }
        rows += line.len();
        for bytes in line {
            let cpus: Vec<String> = (0..u32::BITS)
                .filter(|cpu| bytes.cpus >> cpu & 1 == 1)
                .map(|cpu| cpu.to_string())
                .collect();
            table.push(vec![
                number.into(),
                bytes.structure.clone().into(),
                bytes.kind.as_str().into(),
                format!("{:#x}", bytes.address).into(),
                bytes.service.class.label().into(),
                bytes.service.name.as_str().into(),
                bytes.function.as_str().into(),
                cpus.join(",").into(),
                count(bytes).into(),
                bytes.true_sharing.into(),
                bytes.false_sharing.into(),
            ]);
        }
    }
    table
}
