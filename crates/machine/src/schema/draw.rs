//! A model as text for people: `irqlab machines NAME` prints it. Every text here is output that users read.

use std::fmt::Write as _;

use super::units::{frequency_text, size_text};
use crate::core::CoreModel;
use crate::identity::IdentityModel;
use crate::model::Replacement;
use crate::predict::DirectionModel;
use crate::system_model::{
    Dma, HostExitsModel, Inclusion, Index, LevelModel, Prefetch, Protocol, SystemModel, TlbLevel,
    Walk, WritePolicy,
};

/// Width of the description of a level, in characters.
const WIDTH: usize = 56;

/// Draws the hierarchy: the properties of each level, and the latency of a load that it serves.
#[must_use]
pub fn draw(model: &SystemModel) -> String {
    let mut text = format!("{}: {}\n", model.name, model.about);
    let threads = match model.threads_per_core {
        1 => String::new(),
        threads => format!(" of {threads} threads"),
    };
    let cores = model.cores();
    let core = if cores == 1 { "core" } else { "cores" };
    let _ = writeln!(
        text,
        "\n{cores} {core}{threads}, {}, {} a plain instruction",
        frequency_text(model.clock_hz),
        cycles(model.instruction_cycles)
    );
    if let Some(core) = &model.core {
        text += &core_text(core);
    }
    let l1_latency = latency(model, 0);
    text += &row(0, "L1I", &level(&model.l1i, false), &l1_latency);
    text += &row(0, "L1D", &level(&model.l1d, false), &l1_latency);
    let latencies = [model.l2_hit_cycles, model.l3_hit_cycles].map(Option::unwrap_or_default);
    for ((depth, name), (outer, cycles)) in
        (1..).zip(["L2", "L3"]).zip(model.outer().zip(latencies))
    {
        text += &row(depth, name, &level(outer, true), &latency(model, cycles));
    }
    let depth = 1 + model.outer().count();
    text += &row(depth, "memory", &memory(model), &latency(model, model.memory_cycles));
    text += "\n";
    for (name, tlb) in tlbs(model) {
        let _ = writeln!(text, "{name:<11}{tlb}");
    }
    let _ = writeln!(text, "{:<11}{}", "TLB miss", walk(model));
    if let Some(exits) = model.host_exits {
        let _ = writeln!(text, "{:<11}{}", "exits", host_exits(exits));
    }
    if model.cpus > 1 {
        let _ = writeln!(text, "{:<11}{}", "coherence", coherence(model));
    }
    let dma = match model.dma {
        Dma::Invalidate => "drop the lines that they write from caches".to_owned(),
        Dma::Update => "write into lines that caches hold".to_owned(),
        Dma::Allocate => format!("write into {} ways of the last level", model.dma_ways),
    };
    let _ = writeln!(text, "{:<11}{dma}", "devices");
    let _ = writeln!(text, "{:<11}{}", "the guest", identity(model));
    text
}

/// The processor that the guest sees.
fn identity(model: &SystemModel) -> String {
    model.identity.as_ref().map_or_else(
        || "sees an x86-64 processor without mitigations".to_owned(),
        |identity| {
            let IdentityModel { family, model, stepping, like, .. } = identity;
            format!(
                "can see family {family}, model {model}, stepping {stepping}, like QEMU's {like} (--identity model)"
            )
        },
    )
}

/// How a core executes: a line with its order, width and branch predictor.
fn core_text(core: &CoreModel) -> String {
    let order = match (&core.window, core.threads) {
        (Some(window), _) => format!("out of order, {} in flight", window.reorder_entries),
        (None, Some(threads)) => format!("in order, {threads} threads, one per cycle"),
        (None, None) if core.data.blocking => "in order, waits for each miss".to_owned(),
        (None, None) => "in order".to_owned(),
    };
    let predictor = match &core.predictor.direction {
        DirectionModel::Taken => "all taken",
        DirectionModel::NotTaken => "none taken",
        DirectionModel::BackwardTaken => "backward taken",
        DirectionModel::Bimodal(_) => "bimodal",
        DirectionModel::Gshare(_) => "gshare",
        DirectionModel::Tournament(_) => "tournament",
        DirectionModel::TwoLevel(_) => "two-level",
        DirectionModel::Tage(_) => "TAGE",
    };
    format!(
        "{order}, {} wide; branches {predictor}, {} if mispredicted\n",
        core.width,
        cycles(core.front.mispredict_cycles.into())
    )
}

fn cycles(number: u64) -> String {
    if number == 1 { "1 cycle".to_owned() } else { format!("{number} cycles") }
}

/// The row of a level. Levels farther from the core have a greater `depth`, and are indented more.
fn row(depth: usize, name: &str, properties: &str, latency: &str) -> String {
    let branch = if depth == 0 { String::new() } else { format!("{}└ ", "  ".repeat(depth - 1)) };
    let name = format!("{branch}{name}");
    // A property that does not fit goes to the next line.
    let mut lines = vec![String::new()];
    for property in properties.split_inclusive(", ") {
        let fits = |line: &&mut String| {
            line.chars().count() + property.trim_end().chars().count() <= WIDTH
        };
        match lines.last_mut().filter(fits) {
            Some(line) => line.push_str(property),
            None => lines.push(property.to_owned()),
        }
    }
    let first = lines[0].trim_end();
    let mut text = format!("{name:<13} {first:<WIDTH$} {latency}\n");
    for line in &lines[1..] {
        text += &format!("{:<13} {}\n", "", line.trim_end());
    }
    text
}

/// The latency of a load that takes `wait` cycles more than an L1 hit, in cycles and nanoseconds.
fn latency(model: &SystemModel, wait: u64) -> String {
    let total = model.l1_hit_cycles + wait;
    let tenths_of_ns = u128::from(total) * 10_000_000_000 / u128::from(model.clock_hz);
    format!("{total:>5} cycles {:>5}.{} ns", tenths_of_ns / 10, tenths_of_ns % 10)
}

/// The properties of a cache. `is_outer`: it is a level below L1.
fn level(level: &LevelModel, is_outer: bool) -> String {
    let mut properties = vec![
        size_text(level.size_bytes),
        format!("{} {}", level.ways, if level.ways == 1 { "way" } else { "ways" }),
        format!("lines of {}", size_text(level.line_bytes)),
    ];
    let mut add_if =
        |condition: bool, property: &str| properties.extend(condition.then(|| property.to_owned()));
    add_if(level.replacement == Replacement::TreePlru, "tree-plru");
    add_if(level.replacement == Replacement::Random, "random");
    add_if(level.trace, "by entry (trace)");
    add_if(level.write == WritePolicy::Through, "write-through");
    add_if(!level.allocate, "no allocation");
    add_if(level.index == Index::Virtual, "virtual index");
    add_if(level.prefetch == Prefetch::NextLine, "prefetches the next line");
    add_if(level.prefetch == Prefetch::Stride, "prefetches strides");
    add_if(level.prefetch == Prefetch::Stream, "prefetches streams");
    add_if(level.inclusion == Inclusion::Inclusive, "inclusive");
    add_if(level.inclusion == Inclusion::Exclusive, "exclusive");
    add_if(is_outer && level.shared, "shared");
    if level.fill_bytes() != level.line_bytes {
        properties.push(format!("in parts of {}", size_text(level.fill_bytes())));
    }
    if level.mshrs > 1 {
        properties.push(format!("{} misses at once", level.mshrs));
    }
    properties.join(", ")
}

/// The bandwidth of the memory bus.
fn memory(model: &SystemModel) -> String {
    match model.memory_line_cycles {
        0 => "any number of lines at once".to_owned(),
        line => {
            let outermost = model.outer().last().unwrap_or(&model.l1d).line_bytes;
            let bytes = u128::from(outermost) * u128::from(model.clock_hz) / u128::from(line);
            format!("a line every {}: {} MB/s", cycles(line), bytes / 1_000_000)
        }
    }
}

fn tlbs(model: &SystemModel) -> Vec<(&'static str, String)> {
    let all = [
        ("ITLB", Some(&model.itlb)),
        ("ITLB large", model.itlb_large.as_ref()),
        ("DTLB", Some(&model.dtlb)),
        ("DTLB large", model.dtlb_large.as_ref()),
        ("STLB", model.stlb.as_ref()),
    ];
    let second = match model.stlb_hit_cycles.unwrap_or(0) {
        0 => String::new(),
        wait => format!(", {} more", cycles(wait)),
    };
    let describe = |name: &str, level: &TlbLevel| {
        format!("{}{}", tlb(level), if name == "STLB" { &second } else { "" })
    };
    all.iter().filter_map(|(name, level)| Some((*name, describe(name, (*level)?)))).collect()
}

fn tlb(level: &TlbLevel) -> String {
    let tlb = level.tlb();
    let ways = match tlb.ways {
        ways if ways == tlb.entries => "fully associative".to_owned(),
        ways => format!("{ways} ways"),
    };
    let pages: Vec<_> = level.pages_bytes.iter().map(|size| size_text(*size)).collect();
    let random = if tlb.replacement == Replacement::Random { ", random" } else { "" };
    format!("{} entries, {ways}, pages of {}{random}", tlb.entries, pages.join(", "))
}

/// How a TLB miss is served.
fn walk(model: &SystemModel) -> String {
    let fixed = cycles(model.tlb_miss_cycles);
    let walk = match (model.walk, model.walk_entries) {
        (Walk::Fixed, _) => fixed,
        (Walk::Caches, 0) => format!("{fixed}, and loads of the tables through the caches"),
        (Walk::Caches, entries) => {
            format!("{fixed}, and loads of the tables, with a walk cache of {entries} upper tables")
        }
    };
    match &model.nested {
        None => walk,
        Some(nested) => format!(
            "{walk}; nested, in pages of {}, {} entries",
            size_text(nested.page_bytes),
            nested.entries
        ),
    }
}

/// The costs of exits to a hypervisor, and whether the simulated machine has such exits.
fn host_exits(exits: HostExitsModel) -> String {
    let note = if exits.applied { "" } else { "; not applied" };
    let cost = |stated: Option<u64>| stated.map_or("not stated".to_owned(), cycles);
    format!(
        "to the hypervisor: cpuid {}, timer {}, IPI {}, interrupt {}{note}",
        cost(exits.cpuid_cycles),
        cost(exits.timer_cycles),
        cost(exits.ipi_cycles),
        cost(exits.interrupt_cycles)
    )
}

fn coherence(model: &SystemModel) -> String {
    let protocol = match model.protocol {
        Protocol::Msi => "invalid, shared, dirty (MSI)",
        Protocol::Mesi => "MESI",
    };
    format!(
        "{protocol}; from another core {}, upgrade {}",
        cycles(model.or_memory(model.cache_to_cache_cycles)),
        cycles(model.or_memory(model.upgrade_cycles))
    )
}
