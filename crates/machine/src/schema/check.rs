//! Checks of a model's parts against each other, after [`parse`](super::parse) has checked each field by itself.
//! Errors name the field as the text spells it, and its allowed values, because users read them.

use crate::core::CoreModel;
use crate::model::ModelError;
use crate::system_model::{
    CYCLES_MAX, Dma, Inclusion, Index, LevelModel, Prefetch, SystemModel, Walk, WritePolicy,
};

/// A guest's tick may spend a second divided by this on its exits: 1 ms. Debian's kernels tick every 4 ms.
const TICKS_PER_SECOND: u64 = 1000;
/// Maximum number of processor ranges of a model.
const PROCESSORS_MAX: usize = 16;

/// Refuses a model whose parts do not fit together. The first problem is the error.
pub(super) fn check(model: &SystemModel) -> Result<(), ModelError> {
    if model.processors.len() > PROCESSORS_MAX {
        return refuse("cpuid", format!("allowed: up to {PROCESSORS_MAX} ranges"));
    }
    if let Some(core) = &model.core {
        core.check("core")?;
    }
    check_identity(model)?;
    check_geometries(model)?;
    check_foreign_fields(model)?;
    check_latency("l2", model.l2.is_some(), model.l2_hit_cycles)?;
    check_latency("l3", model.l3.is_some(), model.l3_hit_cycles)?;
    check_latency("stlb", model.stlb.is_some(), model.stlb_hit_cycles)?;
    check_threads(model)?;
    if let Some(core) = &model.core {
        check_load_latency(model, core)?;
    }
    check_levels(model)?;
    check_trace_cache(model)?;
    check_walk(model)?;
    check_host_exits(model)?;
    check_dma(model)?;
    check_tlbs(model)
}

/// Checks that the register that tells of bugs is shown if its content is given, and only then: a register that is shown
/// without a content says that the processor has all bugs.
fn check_identity(model: &SystemModel) -> Result<(), ModelError> {
    let Some(identity) = &model.identity else { return Ok(()) };
    let is_shown = identity.shown.iter().any(|name| name == "arch-capabilities");
    if is_shown != identity.arch_capabilities.is_some() {
        return refuse(
            "identity.arch_capabilities",
            "and \"arch-capabilities\" in identity.shown need each other",
        );
    }
    match identity.hidden.iter().find(|name| identity.shown.contains(name)) {
        Some(name) => {
            refuse("identity.hidden", format!("has {name:?}, which identity.shown has, too"))
        }
        None => Ok(()),
    }
}

/// Checks that threads divide processors, and that the core has as many threads.
fn check_threads(model: &SystemModel) -> Result<(), ModelError> {
    if !model.cpus.is_multiple_of(model.threads_per_core) {
        let problem = format!("does not divide cpus, {}", model.cpus);
        return refuse("threads_per_core", problem);
    }
    if let Some(core) = &model.core {
        let threads = core.threads.unwrap_or(1);
        if threads != model.threads_per_core {
            let problem = format!(
                "{} differs from core.threads, {threads}; allowed: equal values",
                model.threads_per_core
            );
            return refuse("threads_per_core", problem);
        }
    }
    Ok(())
}

/// Checks that the core and the memory system agree on the latency of an L1 hit.
fn check_load_latency(model: &SystemModel, core: &CoreModel) -> Result<(), ModelError> {
    let (load, hit) = (core.units.load.latency_cycles, model.l1_hit_cycles);
    if u64::from(load) != hit {
        let problem = format!(
            "{hit} differs from core.units.load.latency_cycles, {load}; allowed: equal values"
        );
        return refuse("l1_hit_cycles", problem);
    }
    Ok(())
}

/// Checks each level below L1 against the level above.
fn check_levels(model: &SystemModel) -> Result<(), ModelError> {
    let l1 = [("l1i", &model.l1i), ("l1d", &model.l1d)];
    let Some(l2) = &model.l2 else {
        return match model.l3 {
            Some(_) => refuse("l3", "is only for machines with l2"),
            None => Ok(()),
        };
    };
    check_level("l2", l2, &l1)?;
    if let Some(l3) = &model.l3 {
        check_level("l3", l3, &[("l2", l2)])?;
        if l2.shared && !l3.shared {
            return refuse("l3.shared", "false below a shared l2; allowed: true");
        }
    }
    Ok(())
}

fn check_trace_cache(model: &SystemModel) -> Result<(), ModelError> {
    let code = &model.l1i;
    if code.trace && (code.index == Index::Virtual || code.prefetch != Prefetch::None) {
        let problem = "is set together with index or prefetch, which a trace cache does not have";
        return refuse("l1i.trace", problem);
    }
    Ok(())
}

/// Refuses fields of page walks in a model whose TLB misses take a fixed time.
fn check_walk(model: &SystemModel) -> Result<(), ModelError> {
    if model.walk == Walk::Fixed && model.walk_entries > 0 {
        return refuse("walk_entries", "has no effect without walk = \"caches\"");
    }
    if model.walk == Walk::Fixed && model.walkers > 0 {
        return refuse("walkers", "has no effect without walk = \"caches\"");
    }
    if model.walk == Walk::Fixed && model.nested.is_some() {
        return refuse("nested.page", "has no effect without walk = \"caches\"");
    }
    Ok(())
}

/// Refuses exits to a hypervisor that no core executes, whose costs are not all stated, or that leave the guest no time
/// between its ticks.
fn check_host_exits(model: &SystemModel) -> Result<(), ModelError> {
    let Some(stated) = model.host_exits.filter(|exits| exits.applied) else { return Ok(()) };
    if model.core.is_none() || model.threads_per_core > 1 {
        return refuse("host_exits.applied", "true needs a core of one thread; allowed: false");
    }
    let Some(exits) = stated.costs() else {
        let problem = "true needs all costs: cpuid_cycles, timer_cycles, ipi_cycles, interrupt_cycles; `irqlab \
                       machines fit` on a virtual machine measures them";
        return refuse("host_exits.applied", problem);
    };
    let tick_cycles = exits.timer_cycles + exits.interrupt_cycles;
    if tick_cycles > model.clock_hz / TICKS_PER_SECOND {
        let problem = format!(
            "{} and host_exits.interrupt_cycles {}: a tick takes more than {} ms by exits alone; allowed: a \
             sum of {} cycles",
            exits.timer_cycles,
            exits.interrupt_cycles,
            1000 / TICKS_PER_SECOND,
            model.clock_hz / TICKS_PER_SECOND
        );
        return refuse("host_exits.timer_cycles", problem);
    }
    Ok(())
}

/// Checks that a machine of a model can have `cores` cores. Devices can allocate lines only in a level that all cores
/// share.
pub(super) fn check_cores(model: &SystemModel, cores: u32) -> Result<(), ModelError> {
    let Some(last) = model.outer().last() else {
        return match model.dma {
            Dma::Allocate => refuse("dma", "\"allocate\" without a level below L1"),
            Dma::Invalidate | Dma::Update => Ok(()),
        };
    };
    if model.dma == Dma::Allocate && !last.shared && cores > 1 {
        let problem = "\"allocate\" with a last level that the cores do not share";
        return refuse("dma", problem);
    }
    Ok(())
}

/// With `dma = "allocate"`: checks that there is a level below L1, that all cores share the last level, and that it
/// has `dma_ways` ways or more.
fn check_dma(model: &SystemModel) -> Result<(), ModelError> {
    check_cores(model, model.cores())?;
    match model.outer().last() {
        Some(last) if model.dma == Dma::Allocate && model.dma_ways > last.ways => {
            let problem = format!("{}; allowed: 1..={}", model.dma_ways, last.ways);
            refuse("dma_ways", problem)
        }
        _ => Ok(()),
    }
}

/// Checks that the lines of a level are not shorter than the lines of the levels above, and that an inclusive level is
/// large enough.
fn check_level(
    name: &str,
    level: &LevelModel,
    levels_above: &[(&str, &LevelModel)],
) -> Result<(), ModelError> {
    for (name_above, level_above) in levels_above {
        let (line, line_above) = (level.line_bytes, level_above.line_bytes);
        let is_exclusive = level.inclusion == Inclusion::Exclusive;
        if line < line_above || is_exclusive && line != line_above {
            let allowed = if is_exclusive { "" } else { " or more" };
            let problem =
                format!("{line} under lines of {name_above}; allowed: {line_above}{allowed}");
            return refuse(format!("{name}.line"), problem);
        }
        let (size, size_above) = (level.size_bytes, level_above.size_bytes);
        let is_inclusive = level.inclusion == Inclusion::Inclusive;
        if is_inclusive && size < size_above && !level_above.trace {
            let problem = format!(
                "{size}, and {name_above} that it includes has {size_above}; allowed: that or more"
            );
            return refuse(format!("{name}.size"), problem);
        }
    }
    Ok(())
}

/// Checks the page sizes of TLBs against each other.
fn check_tlbs(model: &SystemModel) -> Result<(), ModelError> {
    let pairs = [
        ("itlb_large", &model.itlb, &model.itlb_large),
        ("dtlb_large", &model.dtlb, &model.dtlb_large),
    ];
    for (name, small, large) in pairs {
        let Some(large) = large else { continue };
        let has_small_pages = large.pages_bytes.iter().any(|size| small.pages_bytes.contains(size));
        if has_small_pages || large.pages_bytes[0] < small.pages_bytes[0] {
            let problem =
                "has a page size of the small TLB, or a smaller one; allowed: larger sizes";
            return refuse(format!("{name}.pages"), problem);
        }
    }
    for (name, first) in [("itlb", &model.itlb), ("dtlb", &model.dtlb)] {
        if let Some(stlb) = &model.stlb
            && stlb.pages_bytes[0] != first.pages_bytes[0]
        {
            let problem = format!("its smallest page is not that of {name}; allowed: equal pages");
            return refuse("stlb.pages", problem);
        }
    }
    Ok(())
}

/// Checks the geometry of each cache and TLB.
fn check_geometries(model: &SystemModel) -> Result<(), ModelError> {
    for (name, level) in caches(model) {
        match name {
            "l3" => level.cache().check_sliced(name)?,
            _ => level.cache().check(name)?,
        }
        let fill_bytes = level.fill_bytes();
        let is_part = fill_bytes.is_power_of_two() && fill_bytes <= level.line_bytes;
        if !is_part || level.line_bytes / fill_bytes > 64 {
            let problem = "is no power of two, longer than a line, or less than a 64th of a line";
            return refuse(format!("{name}.sub_block"), problem);
        }
    }
    let tlbs = [
        ("itlb", Some(&model.itlb)),
        ("itlb_large", model.itlb_large.as_ref()),
        ("dtlb", Some(&model.dtlb)),
        ("dtlb_large", model.dtlb_large.as_ref()),
        ("stlb", model.stlb.as_ref()),
    ];
    tlbs.into_iter()
        .try_for_each(|(name, level)| level.map_or(Ok(()), |level| level.tlb().check(name)))
}

/// All caches of a model, each with its name in the text.
fn caches(model: &SystemModel) -> impl Iterator<Item = (&'static str, &LevelModel)> {
    let outer = ["l2", "l3"].into_iter().zip(model.outer());
    [("l1i", &model.l1i), ("l1d", &model.l1d)].into_iter().chain(outer)
}

/// A field that not all caches have, or a value of a field that not all caches may have.
struct RestrictedField {
    name: &'static str,
    /// The restricted value. `None`: the whole field is restricted.
    value: Option<&'static str>,
    /// Whether a cache has the field with another value than its default, or has the restricted value.
    is_set: fn(&LevelModel) -> bool,
    /// The caches that may have the field or value.
    caches: &'static [&'static str],
}

const RESTRICTED_FIELDS: [RestrictedField; 11] = {
    const fn field(
        name: &'static str,
        caches: &'static [&'static str],
        is_set: fn(&LevelModel) -> bool,
    ) -> RestrictedField {
        RestrictedField { name, value: None, is_set, caches }
    }
    const L1I: &[&str] = &["l1i"];
    const L1D: &[&str] = &["l1d"];
    const L1: &[&str] = &["l1i", "l1d"];
    const OUTER: &[&str] = &["l2", "l3"];
    [
        field("write", L1D, |level| level.write != WritePolicy::Back),
        field("allocate", L1D, |level| !level.allocate),
        field("sub_block", L1D, |level| level.sub_block_bytes.is_some()),
        field("mshrs", L1D, |level| level.mshrs != 1),
        field("trace", L1I, |level| level.trace),
        field("index", L1, |level| level.index != Index::Physical),
        RestrictedField {
            value: Some("\"stride\""),
            ..field("prefetch", L1D, |level| level.prefetch == Prefetch::Stride)
        },
        RestrictedField {
            value: Some("\"stream\""),
            ..field("prefetch", OUTER, |level| level.prefetch == Prefetch::Stream)
        },
        field("line_cycles", OUTER, |level| level.line_cycles > 0),
        field("inclusion", OUTER, |level| level.inclusion != Inclusion::NonInclusive),
        field("shared", OUTER, |level| level.shared),
    ]
};

/// Refuses a field, or a value, that this kind of cache cannot have. A field with its default value passes: after parsing, it
/// cannot be told from an absent one.
fn check_foreign_fields(model: &SystemModel) -> Result<(), ModelError> {
    for (cache, level) in caches(model) {
        for RestrictedField { name, value, is_set, caches } in &RESTRICTED_FIELDS {
            if is_set(level) && !caches.contains(&cache) {
                let value = value.map(|value| format!("{value} ")).unwrap_or_default();
                let problem = format!("{value}is only for {}", caches.join(", "));
                return refuse(format!("{cache}.{name}"), problem);
            }
        }
    }
    Ok(())
}

/// Checks that `LEVEL_hit_cycles` is given if, and only if, the model has that level.
fn check_latency(level: &str, has_level: bool, latency: Option<u64>) -> Result<(), ModelError> {
    let problem = match (has_level, latency) {
        (true, None) => format!("is missing; allowed: 0..={CYCLES_MAX}"),
        (false, Some(_)) => format!("is only for machines with {level}"),
        _ => return Ok(()),
    };
    refuse(format!("{level}_hit_cycles"), problem)
}

fn refuse(field: impl Into<String>, problem: impl Into<String>) -> Result<(), ModelError> {
    Err(ModelError::new(field, problem))
}
