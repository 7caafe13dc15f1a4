//! Tables `shadow_caches` and `miss_curves`: what the caches of other models, and caches of all sizes,
//! would have missed.

use record::{Column, Kind, Table, Value};
use sim::counters::{COUNTERS, is_of_memory, name};
use sim::{AccessStream, Accounting, Group};

fn group(group: Group) -> &'static str {
    match group {
        Group::User => "user",
        Group::Kernel => "kernel",
        Group::Idle => "idle",
    }
}

/// The tables that have rows. `models`: names of the models of the shadow caches.
pub fn tables(models: &[String], account: &Accounting) -> Vec<Table> {
    let caches = (!account.shadow_caches.is_empty()).then(|| caches(models, account));
    let curves = (!account.miss_curves.is_empty()).then(|| curves(account));
    caches.into_iter().chain(curves).collect()
}

fn caches(models: &[String], account: &Accounting) -> Table {
    let columns = [
        ("region", Kind::Uint, "Region of interest, from 1."),
        ("model", Kind::Text, "Model whose caches these are."),
        ("context", Kind::Text, "user, kernel, or idle (the idle task without its interrupts)."),
    ];
    let mut columns = columns.map(|(name, kind, doc)| Column::new(name, kind, doc)).to_vec();
    let counters: Vec<usize> = (0..COUNTERS).filter(|counter| is_of_memory(*counter)).collect();
    for name in counters.iter().filter_map(|counter| name(*counter)) {
        let doc = format!("{name} of all CPUs; absent where the model has no such level.");
        columns.push(Column::new(name, Kind::Uint, &doc));
    }
    let doc = "Misses that the caches of other models would have had with the same accesses.";
    let mut table = Table::new("shadow_caches", doc, columns);
    for row in &account.shadow_caches {
        let model = models.get(row.model as usize).map_or("", String::as_str);
        let mut cells: Vec<Value> =
            vec![u64::from(row.region).into(), model.into(), group(row.group).into()];
        cells.extend(counters.iter().map(|counter| Value::from(row.counts[*counter])));
        table.push(cells);
    }
    table
}

fn curves(account: &Accounting) -> Table {
    let columns = [
        ("region", Kind::Uint, "Region of interest, from 1."),
        ("context", Kind::Text, "user, kernel, or idle (the idle task without its interrupts)."),
        ("stream", Kind::Text, "Accesses to instructions or to data."),
        ("cache_bytes", Kind::Uint, "Size of the cache."),
        ("accesses", Kind::Uint, "Accesses to lines of 64 bytes."),
        ("misses", Kind::Uint, "Accesses that miss in a cache of that size."),
        ("miss_ratio", Kind::Real, "misses over accesses."),
    ];
    let columns = columns.map(|(name, kind, doc)| Column::new(name, kind, doc)).to_vec();
    let doc = "Miss curves: misses of fully associative LRU caches, by their size.";
    let mut table = Table::new("miss_curves", doc, columns);
    for point in &account.miss_curves {
        let stream = match point.stream {
            AccessStream::Instructions => "instructions",
            AccessStream::Data => "data",
        };
        let ratio = (point.accesses > 0).then(|| point.misses as f64 / point.accesses as f64);
        table.push(vec![
            u64::from(point.region).into(),
            group(point.group).into(),
            stream.into(),
            point.size_bytes.into(),
            point.accesses.into(),
            point.misses.into(),
            ratio.into(),
        ]);
    }
    table
}
