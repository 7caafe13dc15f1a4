//! Tables `shadow_caches` and `miss_curves`: the misses that the caches of other models, and caches of all sizes,
//! would have had with the accesses of this run.

use record::{Columns, Table, column};
use sim::counters::{COUNTERS, is_of_memory, name};
use sim::{AccessStream, Accounting, Group, MissCurvePoint, ShadowCacheUse};

use crate::regions::region_column;

/// Returns the column of the accessing context.
fn context_column<'a>() -> Columns<'a, Group> {
    let doc = "user, kernel, or idle (the idle task without its interrupts).";
    column("context", doc).key().text(|group: &Group| match group {
        Group::User => "user",
        Group::Kernel => "kernel",
        Group::Idle => "idle",
    })
}

/// Returns the tables that have rows. `models`: names of the models of the shadow caches.
#[must_use]
pub fn tables(models: &[String], accounting: &Accounting) -> Vec<Table> {
    let caches = (!accounting.shadow_caches.is_empty()).then(|| caches(models, accounting));
    let curves = (!accounting.miss_curves.is_empty()).then(|| curves(accounting));
    caches.into_iter().chain(curves).collect()
}

fn stream_name(stream: AccessStream) -> &'static str {
    match stream {
        AccessStream::Instructions => "instructions",
        AccessStream::Data => "data",
    }
}

/// Returns the table `shadow_caches`.
fn caches(models: &[String], accounting: &Accounting) -> Table {
    let counters = (0..COUNTERS).filter(|counter| is_of_memory(*counter)).filter_map(|counter| {
        let name = name(counter)?;
        let doc = format!("{name} of all CPUs; absent where the model has no such level.");
        Some(column(name, &doc).uint(move |row: &ShadowCacheUse| row.counts[counter]))
    });
    let columns = Columns::all([
        region_column().of_ref(|row: &ShadowCacheUse| &row.region),
        column("model", "Model whose caches these are.").key().text(|row: &ShadowCacheUse| {
            models.get(row.model as usize).map_or("", String::as_str).to_owned()
        }),
        context_column().of_ref(|row: &ShadowCacheUse| &row.group),
    ])
    .and(counters);
    let doc = "Misses that the caches of other models would have had with the same accesses. fetches, loads and stores \
               are those of this run, an access for each block and each repetition of a string instruction. A core of \
               the model makes fewer if it caches decoded instructions or executes strings by the line.";
    columns.table("shadow_caches", doc, &accounting.shadow_caches)
}

/// Returns the table `miss_curves`.
fn curves(accounting: &Accounting) -> Table {
    let columns = Columns::all([
        region_column().of_ref(|point: &MissCurvePoint| &point.region),
        context_column().of_ref(|point: &MissCurvePoint| &point.group),
        column("stream", "Accesses to instructions or to data.")
            .key()
            .text(|point: &MissCurvePoint| stream_name(point.stream)),
        column("cache_bytes", "Size of the cache.")
            .key()
            .uint(|point: &MissCurvePoint| point.size_bytes),
        column("accesses", "Accesses to lines of 64 bytes.")
            .uint(|point: &MissCurvePoint| point.accesses),
        column("misses", "Accesses that miss in a cache of that size.")
            .uint(|point: &MissCurvePoint| point.misses),
        column("miss_ratio", "misses over accesses.").real(|point: &MissCurvePoint| {
            (point.accesses > 0).then(|| point.misses as f64 / point.accesses as f64)
        }),
    ]);
    let doc = "Miss curves: misses of fully associative LRU caches, by their size. Each CPU has a cache of its own; rows are \
               sums over the CPUs. Writes of other CPUs and of devices remove no lines.";
    columns.table("miss_curves", doc, &accounting.miss_curves)
}

#[cfg(test)]
mod tests {
    use record::Value;

    use super::*;

    #[test]
    fn a_cache_without_accesses_has_no_miss_ratio() {
        let point = |accesses, misses| MissCurvePoint {
            region: 1,
            group: Group::Idle,
            stream: AccessStream::Data,
            size_bytes: 4096,
            accesses,
            misses,
        };
        let miss_curves = vec![point(8, 2), point(0, 0)];
        let accounting = Accounting { miss_curves, ..Accounting::default() };
        let [table] = &tables(&[], &accounting)[..] else { panic!("no shadow caches") };
        let keys = crate::regions::key_names(table);
        assert_eq!(keys, ["region", "context", "stream", "cache_bytes"]);
        let ratio = |row: usize| table.get(&table.rows()[row], "miss_ratio").cloned();
        assert_eq!([ratio(0), ratio(1)], [Some(Value::Real(0.25)), Some(Value::Absent)]);
    }
}
