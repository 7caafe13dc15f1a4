//! Compares what the levels of detail count for the same guest, by context. Guest time advances by instructions at each
//! level, so that the guest executes the same instructions.

use std::fs;
use std::path::Path;

use crate::machine::Machine;
use crate::ooo::{Used, find, loops, model, record_of};
use simrecord::counters::{COUNTERS, CYCLES, Counts, INSTRUCTIONS, name};
use simrecord::parsed;
use simrecord::reader::{self, Stream};
use simrecord::record::Group;

/// The pages of the guest's third loop. It stores once to each, so it has as many page faults.
const PAGES: u64 = 400;

fn stream_of(machine: &Machine, options: &str, name: &str) -> Stream {
    let request = format!("measure pages={PAGES}");
    reader::read(record_of(&request, machine, 1, options, name).as_slice()).unwrap()
}

/// The guest's three loops at a level: stores with a stride, loads with a stride, page faults.
fn loops_at(machine: &Machine, level: &str, model: &Path) -> [Used; 3] {
    let options = format!("detail={level},time=uniform,model={}", model.display());
    loops(&stream_of(machine, &options, level)).try_into().unwrap()
}

/// The counts of shadow caches in user mode, in each of the guest's loops.
fn shadow_loops(machine: &Machine, models: &[&Path]) -> Vec<[Counts; 3]> {
    let also: Vec<String> = models.iter().map(|path| format!(",also={}", path.display())).collect();
    let stream = stream_of(machine, &format!("detail=count{}", also.concat()), "shadow");
    assert_eq!(loops(&stream).len(), 3, "the guest has three loops");
    let parsed = parsed::parse(&stream).unwrap();
    let counts_of = |model: u32| {
        let rows = parsed.shadow_caches.iter();
        let rows = rows.filter(|row| (row.caches.model, row.caches.group) == (model, Group::User));
        // One row for each snapshot, and one for the end. There is a snapshot at both ends of a loop.
        let rows: Vec<Counts> = rows.map(|row| row.counts).collect();
        assert_eq!(rows.len(), 7);
        std::array::from_fn(|position| difference(&rows[2 * position], &rows[2 * position + 1]))
    };
    (0..models.len() as u32).map(counts_of).collect()
}

fn difference(before: &Counts, after: &Counts) -> Counts {
    std::array::from_fn(|counter| after[counter] - before[counter])
}

fn count(counts: &Counts, wanted: &str) -> u64 {
    counts[(0..COUNTERS).find(|counter| name(*counter) == Some(wanted)).unwrap()]
}

/// A copy of a machine's model without the prefetcher of L1D.
fn without_prefetcher(machine: &Machine, of: &str) -> std::path::PathBuf {
    let text = fs::read_to_string(model(of)).unwrap();
    let changed = text.replacen("prefetch = \"stride\"", "prefetch = \"none\"", 1);
    assert_ne!(text, changed, "{of} has a stride prefetcher");
    let path = machine.path("no-prefetcher.toml");
    fs::write(&path, changed).unwrap();
    path
}

/// A stride prefetcher finds its stride by the address of the instruction, in shadow caches as in a core.
#[test]
fn shadow_caches_prefetch_strides_as_a_core_does() {
    let Some(machine) = find() else { return };
    let (zen4, plain) = (model("zen4"), without_prefetcher(&machine, "zen4"));
    let core = loops_at(&machine, "ooo", &zen4);
    let [shadow, shadow_plain] = &shadow_loops(&machine, &[&zen4, &plain])[..] else {
        panic!("two models")
    };
    for (position, counter) in ["l1d_store_misses", "l1d_load_misses"].into_iter().enumerate() {
        let misses_of = |counts: &Counts| count(counts, counter);
        let (core, accesses) = (misses_of(&core[position].counts), core[position].size);
        let [shadow, plain] = [shadow, shadow_plain].map(|loops| misses_of(&loops[position]));
        println!(
            "{counter}: {core} core, {shadow} shadow, {plain} without a prefetcher, {accesses}"
        );
        assert!(plain > accesses * 9 / 10, "{counter}: the array is larger than L1D");
        assert!(core < accesses / 4 && shadow < accesses / 4, "{counter}: the prefetcher works");
        assert!(shadow.abs_diff(core) < accesses / 20, "{counter}: {shadow}, a core has {core}");
    }
}

/// The counts of a context do not depend on the level, on a model whose levels agree about all contexts together. The
/// loads of an interrupt's entry and of `iret` belong to the handler.
#[test]
fn all_levels_charge_the_same_context() {
    let Some(machine) = find() else { return };
    let r4400 = model("r4400-1994");
    let [timed, ooo] = ["timed", "ooo"].map(|level| loops_at(&machine, level, &r4400));
    let shadow = shadow_loops(&machine, &[&r4400]).remove(0);
    for (timed, ooo) in timed.iter().zip(&ooo) {
        for (timed, ooo) in [(&timed.counts, &ooo.counts), (&timed.kernel, &ooo.kernel)] {
            assert_eq!(timed[INSTRUCTIONS], ooo[INSTRUCTIONS], "the guest executes the same");
            for name in ["loads", "stores"] {
                assert_eq!(count(timed, name), count(ooo, name), "{name}");
            }
            let counters =
                ["l1i_misses", "l1d_load_misses", "l1d_store_misses", "itlb_misses", "dtlb_misses"];
            for name in counters {
                let (timed, ooo) = (count(timed, name), count(ooo, name));
                assert!(timed.abs_diff(ooo) <= 10 + timed / 50, "{name}: {timed} and {ooo}");
            }
            let (timed, ooo) = (timed[CYCLES], ooo[CYCLES]);
            assert!(timed.abs_diff(ooo) <= 100 + timed / 50, "cycles: {timed} and {ooo}");
        }
    }
    // The third loop has a page fault for each store, and loads nothing.
    let faults = &timed[2];
    assert_eq!(faults.size, PAGES);
    assert!(count(&faults.kernel, "loads") > 100 * PAGES, "the kernel handles faults");
    for (level, counts) in
        [("timed", &faults.counts), ("ooo", &ooo[2].counts), ("shadow", &shadow[2])]
    {
        let (loads, stores) = (count(counts, "loads"), count(counts, "stores"));
        assert!(loads < PAGES / 4, "{level}: {loads} loads of user mode");
        assert!(
            (PAGES..PAGES + PAGES / 4).contains(&stores),
            "{level}: {stores} stores of user mode"
        );
    }
}
