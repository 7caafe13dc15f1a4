//! Tables `misses`, `miss_evictors`, `miss_functions`, `miss_data`, `miss_stalls` and `shared_lines`: what
//! services missed in caches, and why.

use std::collections::BTreeMap;

use record::{Column, Format, Kind, Table, TableDisplay, Value};

use super::super::class::Class;
use super::super::counters::{DATA_STALL, FETCH_STALL, INSTRUCTIONS};
use super::super::misses::{CLASSES, MissPart, MissSample, ServiceName};
use super::super::sample::{ServiceStats, ServicesSample};
use super::{key_columns, key_values, ratio};

/// Places of each service and cache that have rows of their own.
const PLACES_MAX: usize = 20;
/// Rows of lines that CPUs share.
const SHARED_MAX: usize = 200;

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
        "The line had been evicted by the same: the kernel, or that process.",
        "The line had been evicted by another: the kernel, or another process.",
        "Another CPU had written the bytes.",
        "Another CPU had written other bytes of the line.",
        "A device had written the line since it was last cached.",
        "Misses of which the reason was not kept.",
    ];
    let column = |(class, doc): (&str, &str)| {
        let title = class.replace('_', " ");
        uint(&format!("{class}_count"), doc).title(&title).priority(80)
    };
    let [a, b, c, d, e, f, g] = std::array::from_fn(|at| column((CLASSES[at], docs[at])));
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
        places("miss_functions", "function", &misses.functions),
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
        uint("capacity_count", "Misses of evicted lines that a fully associative cache of the same size would have had, too.")
            .title("capacity")
            .priority(60),
        uint("conflict_count", "Misses of evicted lines that it would not have had: too few ways.")
            .title("conflict")
            .priority(59),
    ]);
    let doc = "Cache misses of each service by class.";
    let mut table = Table::new("misses", doc, columns).displayed(by_count());
    let mut sums: BTreeMap<&str, u64> = BTreeMap::new();
    for one in &misses.rows {
        *sums.entry(&one.cache).or_default() += one.classes.iter().sum::<u64>();
    }
    for one in &misses.rows {
        let count: u64 = one.classes.iter().sum();
        let instructions = find(sample, &one.service)
            .and_then(|service| sample.count(service, INSTRUCTIONS))
            .filter(|instructions| *instructions > 0);
        let per_kilo = instructions.map(|number| count as f64 * 1e3 / number as f64);
        let mut row = keys(&one.service, &one.cache);
        row.extend([
            count.into(),
            ratio(Some(count), sums.get(one.cache.as_str()).copied()).into(),
            per_kilo.into(),
        ]);
        row.extend(one.classes.iter().map(|count| Value::from(*count)));
        row.extend([one.capacity.into(), one.conflict.into()]);
        table.push(row);
    }
    table
}

fn find<'a>(sample: &'a ServicesSample, of: &ServiceName) -> Option<&'a ServiceStats> {
    let is_it = |one: &&ServiceStats| one.class == of.class && one.name == of.name;
    sample.services.iter().find(is_it)
}

/// One row for each service, instructions and data, and level.
fn stalls(sample: &ServicesSample, misses: &MissSample) -> Table {
    let mut columns = key_columns().to_vec();
    columns.extend([
        text("access", "instruction or data.").priority(99).key(),
        text("level", "What supplied the line: L2, L3, other core (its cache), memory; or page walk: the translation.")
            .priority(98)
            .key(),
        uint("miss_count", "Misses of L1 that it supplied; absent for page walks.")
            .title("misses")
            .priority(85),
        real("wait_mean_ns", "How long a line took from when its translation was known, mean.")
            .title("each")
            .format(Format::Nanoseconds)
            .priority(80),
        real(
            "stall_total_ns",
            "Time that the service waited. A core that waits for nothing else waits for all of it; another one \
             hides a part, and then the stalls of instructions and of data are divided as the times that lines \
             took.",
        )
        .title("stall")
        .format(Format::Milliseconds)
        .cost()
        .priority(95),
        real("stall_ratio", "The same over the time of the service, with its page walks.")
            .title("% of service")
            .priority(90),
    ]);
    let doc = "What services wait for: memory stalls by level, for instructions and for data.";
    let display =
        TableDisplay { sort_by: Some("stall_total_ns".to_owned()), ..TableDisplay::default() };
    let mut table = Table::new("miss_stalls", doc, columns).displayed(display);
    for service in &sample.services {
        let whole = service.self_ticks.map(|own| own + service.page_walks().unwrap_or(0));
        for (is_fetch, counter, access) in
            [(true, FETCH_STALL, "instruction"), (false, DATA_STALL, "data")]
        {
            let is_it = |one: &&super::super::misses::MissWait| {
                (one.service.class, one.service.name.as_str()) == (service.class, &*service.name)
                    && one.is_fetch == is_fetch
            };
            let waits: Vec<_> = misses.waits.iter().filter(is_it).collect();
            let waited: u64 = waits.iter().map(|one| one.wait_ticks).sum();
            let stalled = sample.count(service, counter).unwrap_or(0);
            let mut push = |level: &str, count: Option<u64>, each: Option<f64>, stall: f64| {
                let mut row = key_values(service.class, &service.name).to_vec();
                let share = whole.filter(|whole| *whole > 0).map(|whole| stall / whole as f64);
                row.extend([
                    access.into(),
                    level.into(),
                    count.into(),
                    each.map(|ticks| sample.ns_of(ticks)).into(),
                    sample.ns_of(stall).into(),
                    share.into(),
                ]);
                table.push(row);
            };
            for one in &waits {
                let each = one.wait_ticks as f64 / one.count.max(1) as f64;
                let share = one.wait_ticks as f64 / waited.max(1) as f64;
                push(&one.level, Some(one.count), Some(each), stalled as f64 * share);
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
    places("miss_evictors", "evicted_by", &misses.evictors)
}

/// One row for each service, cache and place, the most frequent ones of each service and cache.
fn places(name: &str, what: &str, parts: &[MissPart]) -> Table {
    let (doc, of) = match what {
        "function" => ("Cache misses of each service by function.", "Function that missed."),
        _ => (
            "Cache misses of evicted lines, by what had evicted them.",
            "Service that had evicted the line; user for all of user mode.",
        ),
    };
    let mut columns = keys_with_cache();
    columns.extend([
        text(what, of).priority(98).key(),
        uint("miss_count", "Misses.").title("misses").cost().priority(95),
        real("share_ratio", "Share of the rows of the service and cache.")
            .title("% of service")
            .priority(90),
    ]);
    let mut table = Table::new(name, doc, columns).displayed(by_count());
    let mut of_each: BTreeMap<(&ServiceName, &str), Vec<&MissPart>> = BTreeMap::new();
    for one in parts {
        of_each.entry((&one.service, &one.cache)).or_default().push(one);
    }
    for ((service, cache), mut parts) in of_each {
        parts.sort_by_key(|one| (std::cmp::Reverse(one.count), &one.by));
        let sum: u64 = parts.iter().map(|one| one.count).sum();
        let rest: u64 = parts.iter().skip(PLACES_MAX).map(|one| one.count).sum();
        let own = parts.iter().take(PLACES_MAX).map(|one| (one.by.as_str(), one.count));
        for (by, count) in own.chain((rest > 0).then_some(("all others", rest))) {
            let mut row = keys(service, cache);
            row.extend([by.into(), count.into(), ratio(Some(count), Some(sum)).into()]);
            table.push(row);
        }
    }
    table
}

/// One row for each service, cache and structure, the most frequent ones of each service and cache.
fn data(misses: &MissSample) -> Table {
    let mut columns = keys_with_cache();
    columns.extend([
        text(
            "kind",
            "What the data is: slab, variable, per-CPU variable, stack, anonymous memory, file, page table, page \
             array (struct page), vmalloc, reserved at boot, kernel page, entry area, other user memory, unknown.",
        )
        .priority(97)
        .key(),
        text(
            "structure",
            "Which: the slab cache, the symbol, the task of a stack or of anonymous memory, the file system of a \
             page; absent where it is not known.",
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
    let mut of_each: BTreeMap<_, Vec<_>> = BTreeMap::new();
    for one in &misses.data {
        of_each.entry((&one.service, &one.cache)).or_default().push(one);
    }
    for ((service, cache), mut all) in of_each {
        let count = |classes: &[u64; CLASSES.len()]| classes.iter().sum::<u64>();
        all.sort_by_key(|one| {
            (std::cmp::Reverse(count(&one.classes)), one.kind.clone(), one.structure.clone())
        });
        let sum: u64 = all.iter().map(|one| count(&one.classes)).sum();
        let mut rest = [0; CLASSES.len()];
        for one in all.iter().skip(PLACES_MAX) {
            rest.iter_mut().zip(&one.classes).for_each(|(rest, more)| *rest += more);
        }
        let own = all.iter().take(PLACES_MAX);
        let own = own.map(|one| (one.kind.as_str(), one.structure.clone(), one.classes));
        let rest = (count(&rest) > 0).then_some(("all others", None, rest));
        for (kind, structure, classes) in own.chain(rest) {
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

/// One row for each place of the code and 8 bytes of a line that CPUs share; the lines with the most misses
/// first.
fn shared(misses: &MissSample) -> Table {
    let columns = vec![
        uint("line", "Number of the line, the one with the most misses first.").priority(96).key(),
        text(
            "structure",
            "What the bytes belong to: a symbol, or a structure with its member or the distance from its start.",
        )
        .priority(100)
        .key(),
        text("kind", "Kind of structure: see miss_data.").priority(70).key(),
        text("address", "Virtual address of the 8 bytes that were missed.").priority(85).key(),
        key_columns()[0].clone(),
        key_columns()[1].clone(),
        text("function", "Function that missed.").priority(95).key(),
        text("cpus", "CPUs that missed.").priority(90),
        uint("miss_count", "Misses of L1D.").title("misses").cost().priority(94),
        uint("true_sharing_count", "Those because another CPU had written these bytes.")
            .title("true sharing")
            .priority(92),
        uint("false_sharing_count", "Those because another CPU had written other bytes of the line.")
            .title("false sharing")
            .priority(93),
    ];
    let doc = "Lines that CPUs take from each other: who misses them, and which of their bytes.";
    let display = TableDisplay {
        headline: "most shared: {structure}, {function}, {miss_count} misses".to_owned(),
        ..TableDisplay::default()
    };
    let mut table = Table::new("shared_lines", doc, columns).displayed(display);
    let line_bytes = misses.line_bytes.max(8);
    let mut lines: BTreeMap<u64, Vec<_>> = BTreeMap::new();
    for one in &misses.shared {
        lines.entry(one.address / line_bytes).or_default().push(one);
    }
    let count = |one: &super::super::misses::SharedLine| one.true_sharing + one.false_sharing;
    let mut lines: Vec<_> = lines.into_iter().collect();
    lines.sort_by_key(|(line, all)| {
        (std::cmp::Reverse(all.iter().map(|one| count(one)).sum::<u64>()), *line)
    });
    let mut rows = 0;
    for (number, (_, mut all)) in (1_u64..).zip(lines) {
        all.sort_by_key(|one| {
            (std::cmp::Reverse(count(one)), one.address, one.function.clone(), one.service.clone())
        });
        if rows + all.len() > SHARED_MAX && rows > 0 {
            break;
        }
        rows += all.len();
        for one in all {
            let cpus: Vec<String> = (0..u32::BITS)
                .filter(|cpu| one.cpus >> cpu & 1 == 1)
                .map(|cpu| cpu.to_string())
                .collect();
            table.push(vec![
                number.into(),
                one.structure.clone().into(),
                one.kind.as_str().into(),
                format!("{:#x}", one.address).into(),
                one.service.class.label().into(),
                one.service.name.as_str().into(),
                one.function.as_str().into(),
                cpus.join(",").into(),
                count(one).into(),
                one.true_sharing.into(),
                one.false_sharing.into(),
            ]);
        }
    }
    table
}
