//! Checks of a model's parts against each other.

use super::reader::Reader;
use crate::model::ModelError;
use crate::system_model::{Dma, Inclusion, Index, LevelModel, Prefetch, SystemModel, Walk};

/// Page sizes of the guest, bytes.
pub(crate) const GUEST_PAGES_BYTES: [u64; 3] = [4 << 10, 2 << 20, 1 << 30];

/// Whether a TLB can hold pages of these sizes: a single power of two, or sizes of the guest's pages, the smallest
/// first.
pub(super) fn is_page_list(sizes: &[u64]) -> bool {
    match sizes {
        [] => false,
        [size] => size.is_power_of_two(),
        sizes => {
            sizes.iter().all(|size| GUEST_PAGES_BYTES.contains(size))
                && sizes.windows(2).all(|pair| pair[0] < pair[1])
        }
    }
}

pub(super) fn check(model: &SystemModel, file: &Reader<'_>) -> Result<(), ModelError> {
    if !model.cpus.is_multiple_of(model.threads_per_core) {
        let problem = format!("does not divide cpus, {}", model.cpus);
        return Err(file.fail("threads_per_core", problem));
    }
    if let Some(core) = &model.core {
        let threads = core.threads.unwrap_or(1);
        if threads != model.threads_per_core {
            let problem = format!(
                "{} with core.threads of {threads}; allowed: the same",
                model.threads_per_core
            );
            return Err(file.fail("threads_per_core", problem));
        }
        let (load, hit) = (core.units.load.latency_cycles, model.latencies.l1_hit_cycles);
        if u64::from(load) != hit {
            let problem =
                format!("{hit} with core.units.load.latency_cycles of {load}; allowed: the same");
            return Err(file.fail("l1_hit_cycles", problem));
        }
    }
    let l1 = [("l1i", &model.l1i), ("l1d", &model.l1d)];
    level(file, "l2", &model.l2, &l1)?;
    if let Some(l3) = &model.l3 {
        level(file, "l3", l3, &[("l2", &model.l2)])?;
        if model.l2.shared && !l3.shared {
            return Err(inside(file, "l3", "shared", "false below a shared l2; allowed: true"));
        }
    }
    let code = &model.l1i;
    if code.trace && (code.index == Index::Virtual || code.prefetch != Prefetch::None) {
        let problem = "is set together with index or prefetch, which a trace cache does not have";
        return Err(inside(file, "l1i", "trace", problem));
    }
    if model.walk == Walk::Fixed && model.walk_entries > 0 {
        return Err(file.fail("walk_entries", "has no effect without walk = \"caches\""));
    }
    if model.walk == Walk::Fixed && model.walkers > 0 {
        return Err(file.fail("walkers", "has no effect without walk = \"caches\""));
    }
    if model.walk == Walk::Fixed && model.nested.is_some() {
        return Err(inside(file, "nested", "page", "has no effect without walk = \"caches\""));
    }
    if model.dma == Dma::Allocate {
        let last = model.l3.as_ref().unwrap_or(&model.l2);
        if !last.shared && model.cores() > 1 {
            let problem = "\"allocate\" with a last level that the cores do not share";
            return Err(file.fail("dma", problem));
        }
        if model.dma_ways > last.cache.ways {
            let problem = format!("{}; allowed: 1..={}", model.dma_ways, last.cache.ways);
            return Err(file.fail("dma_ways", problem));
        }
    }
    tlbs(model, file)
}

fn level(
    file: &Reader<'_>,
    name: &str,
    level: &LevelModel,
    above: &[(&str, &LevelModel)],
) -> Result<(), ModelError> {
    for (other_name, other) in above {
        let (line, other_line) = (level.cache.line_bytes, other.cache.line_bytes);
        let exclusive = level.inclusion == Inclusion::Exclusive;
        if line < other_line || exclusive && line != other_line {
            let allowed = if exclusive { "" } else { " or more" };
            let problem =
                format!("{line} under lines of {other_name}; allowed: {other_line}{allowed}");
            return Err(inside(file, name, "line", problem));
        }
        let (size, least) = (level.cache.size_bytes, other.cache.size_bytes);
        if level.inclusion == Inclusion::Inclusive && size < least && !other.trace {
            let problem = format!(
                "{size}, and {other_name} that it includes has {least}; allowed: that or more"
            );
            return Err(inside(file, name, "size", problem));
        }
    }
    Ok(())
}

fn tlbs(model: &SystemModel, file: &Reader<'_>) -> Result<(), ModelError> {
    let pairs = [
        ("itlb_large", &model.itlb, &model.itlb_large),
        ("dtlb_large", &model.dtlb, &model.dtlb_large),
    ];
    for (name, small, large) in pairs {
        let Some(large) = large else { continue };
        let again = large.pages_bytes.iter().any(|size| small.pages_bytes.contains(size));
        if again || large.pages_bytes[0] < small.pages_bytes[0] {
            let problem = "a size that the small TLB has, or below; allowed: larger ones";
            return Err(inside(file, name, "pages", problem));
        }
    }
    for (name, first) in [("itlb", &model.itlb), ("dtlb", &model.dtlb)] {
        if let Some(stlb) = &model.stlb
            && stlb.pages_bytes[0] != first.pages_bytes[0]
        {
            let problem = format!("its smallest page is not that of {name}; allowed: the same");
            return Err(inside(file, "stlb", "pages", problem));
        }
    }
    Ok(())
}

/// An error in a field of a table.
fn inside(
    file: &Reader<'_>,
    table: &str,
    field: &str,
    problem: impl std::fmt::Display,
) -> ModelError {
    match file.table(table) {
        Ok(Some(reader)) => reader.fail(field, problem),
        _ => file.fail(table, problem),
    }
}
