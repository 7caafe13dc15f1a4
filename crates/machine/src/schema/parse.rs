//! Parses the text of a file into a [`SystemModel`]: the fields, their ranges and defaults.

use toml::de::DeTable;

use super::check::GUEST_PAGES_BYTES;
use super::reader::{Reader, line_of};
use super::units::{BYTES, HZ};
use super::{TEXT_BYTES_MAX, check};
use crate::core::CoreModel;
use crate::model::{
    CACHE_BYTES_MAX, CacheModel, LINE_BYTES_MIN, ModelError, Replacement, TLB_ENTRIES_MAX,
    TlbModel, WAYS_MAX,
};
use crate::processor::ProcessorRange;
use crate::system_model::{
    Dma, Inclusion, Index, Latencies, LevelModel, NestedModel, Prefetch, Protocol, SystemModel,
    TlbLevel, Walk, WritePolicy,
};

/// The longest latency of a model, cycles.
const CYCLES_MAX: u64 = 1_000_000;
/// The longest line of a cache, bytes.
const LINE_BYTES_MAX: u64 = 4096;
/// The most processors: a set of cores is one word.
pub(super) const CPUS_MAX: u64 = 64;
/// The most misses under way at the same time.
const MSHRS_MAX: u64 = 64;
/// The longest distance of a prefetch: the lines of 64 bytes in a page.
const PREFETCH_DISTANCE_MAX: u64 = 64;
/// The most prefetches under way at the same time.
const PREFETCH_BUFFERS_MAX: u64 = 256;
/// Where a model does not say it.
const PREFETCH_BUFFERS: u64 = 16;
/// The most entries of a page walk cache.
const WALK_ENTRIES_MAX: u64 = 4096;

/// Entries of a nested TLB in models without that field: the best number of Bhargava et al., "Accelerating
/// Two-Dimensional Page Walks for Virtualized Systems" (ASPLOS 2008).
const NESTED_ENTRIES: u64 = 16;
/// Maximum number of processor ranges of a model.
const PROCESSORS_MAX: usize = 16;
/// The most page walkers of a core.
const WALKERS_MAX: u64 = 64;

type Parsed<T> = Result<T, ModelError>;

const REPLACEMENTS: &[(&str, Replacement)] = &[
    ("lru", Replacement::Lru),
    ("tree-plru", Replacement::TreePlru),
    ("random", Replacement::Random),
];
const INCLUSIONS: &[(&str, Inclusion)] = &[
    ("inclusive", Inclusion::Inclusive),
    ("exclusive", Inclusion::Exclusive),
    ("non-inclusive", Inclusion::NonInclusive),
];

const DMA: [(&str, Dma); 3] =
    [("invalidate", Dma::Invalidate), ("update", Dma::Update), ("allocate", Dma::Allocate)];
/// Ways for lines of devices in models without that field: the ways of Intel's processors, unless firmware
/// changes them (Farshin et al., "Reexamining Direct Cache Access", USENIX ATC 2020).
const DMA_WAYS: u64 = 2;

pub(super) fn parse(text: &str) -> Parsed<SystemModel> {
    if text.len() > TEXT_BYTES_MAX {
        return Err(ModelError::new("", format!("a model of over {TEXT_BYTES_MAX} bytes")));
    }
    let file = DeTable::parse(text).map_err(|error| ModelError {
        line: error.span().map(|span| line_of(text, span.start)),
        field: String::new(),
        problem: error.message().trim_end().replace('\n', "; "),
    })?;
    let reader = Reader::new(text, &file);
    let model = system(&reader)?;
    reader.done()?;
    check::check(&model, &reader)?;
    Ok(model)
}

fn system(file: &Reader<'_>) -> Parsed<SystemModel> {
    let needed =
        |field| move |value: Option<_>| value.ok_or_else(|| file.fail(field, "is missing"));
    let l3 = outer(file, "l3")?;
    let stlb = tlb(file, "stlb")?;
    let latencies = latencies(file, l3.is_some(), stlb.is_some())?;
    Ok(SystemModel {
        name: file.short_text("name").and_then(needed("name"))?,
        about: file.short_text("about")?.unwrap_or_default(),
        processors: processors(file)?,
        clock_hz: file
            .quantity("clock", "hz", HZ, 1_000_000..=100_000_000_000)?
            .ok_or_else(|| file.fail("clock", "is missing; allowed: \"1 MHz\" to \"100 GHz\""))?,
        cpus: file.integer("cpus", 1..=CPUS_MAX)?.unwrap_or(1) as u32,
        threads_per_core: file.integer("threads_per_core", 1..=CPUS_MAX)?.unwrap_or(1) as u32,
        core: core(file)?,
        instruction_cycles: file.integer("instruction_cycles", 1..=CYCLES_MAX)?.unwrap_or(1),
        l1i: l1i(file)?,
        l1d: l1d(file)?,
        l2: outer(file, "l2")?.ok_or_else(|| file.fail("l2", "is missing"))?,
        l3,
        itlb: tlb(file, "itlb")?.ok_or_else(|| file.fail("itlb", "is missing"))?,
        itlb_large: tlb(file, "itlb_large")?,
        dtlb: tlb(file, "dtlb")?.ok_or_else(|| file.fail("dtlb", "is missing"))?,
        dtlb_large: tlb(file, "dtlb_large")?,
        stlb,
        walk: file
            .choice("walk", &[("fixed", Walk::Fixed), ("caches", Walk::Caches)])?
            .unwrap_or_default(),
        walk_entries: file.integer("walk_entries", 0..=WALK_ENTRIES_MAX)?.unwrap_or(0) as u32,
        walkers: file.integer("walkers", 0..=WALKERS_MAX)?.unwrap_or(0) as u32,
        nested: nested(file)?,
        latencies,
        protocol: file
            .choice("protocol", &[("msi", Protocol::Msi), ("mesi", Protocol::Mesi)])?
            .unwrap_or_default(),
        dma: file.choice("dma", &DMA)?.unwrap_or_default(),
        dma_ways: file.integer("dma_ways", 1..=WAYS_MAX.into())?.unwrap_or(DMA_WAYS) as u32,
    })
}

fn nested(file: &Reader<'_>) -> Parsed<Option<NestedModel>> {
    let Some(table) = file.table("nested")? else { return Ok(None) };
    let page_bytes = table.quantity("page", "bytes", BYTES, 4 << 10..=1 << 30)?.unwrap_or(4096);
    if !GUEST_PAGES_BYTES.contains(&page_bytes) {
        return Err(table.fail("page", "allowed: \"4 KiB\", \"2 MiB\", \"1 GiB\""));
    }
    let entries = table.integer("entries", 0..=WALK_ENTRIES_MAX)?.unwrap_or(NESTED_ENTRIES) as u32;
    table.done()?;
    Ok(Some(NestedModel { page_bytes, entries }))
}

fn processors(file: &Reader<'_>) -> Parsed<Vec<ProcessorRange>> {
    let texts = file.texts("cpuid", PROCESSORS_MAX)?.unwrap_or_default();
    let problem = "allowed: \"VENDOR FAMILY MODEL\" or \"VENDOR FAMILY FIRST-LAST\", as \
                   \"AuthenticAMD 25 0-15\"";
    let range = |text: &String| {
        ProcessorRange::parse(text)
            .ok_or_else(|| file.fail("cpuid", format!("{text:?}; {problem}")))
    };
    texts.iter().map(range).collect()
}

fn core(file: &Reader<'_>) -> Parsed<Option<CoreModel>> {
    let core: Option<CoreModel> = file.foreign("core")?;
    if let Some(core) = &core {
        core.check("core").map_err(|error| file.locate_path(error))?;
    }
    Ok(core)
}

/// Latencies of a level that the model does not have are refused as unknown.
fn latencies(file: &Reader<'_>, l3: bool, stlb: bool) -> Parsed<Latencies> {
    let range = 0..=CYCLES_MAX;
    let memory_cycles = file.needed("memory_cycles", range.clone())?;
    let or_memory = |field| Ok(file.integer(field, 0..=CYCLES_MAX)?.unwrap_or(memory_cycles));
    let needed_if =
        |there: bool, field| if there { file.needed(field, 0..=CYCLES_MAX) } else { Ok(0) };
    Ok(Latencies {
        l1_hit_cycles: file.integer("l1_hit_cycles", 1..=CYCLES_MAX)?.unwrap_or(1),
        l2_hit_cycles: file.needed("l2_hit_cycles", range.clone())?,
        l3_hit_cycles: needed_if(l3, "l3_hit_cycles")?,
        memory_cycles,
        memory_write_cycles: file.integer("memory_write_cycles", range.clone())?,
        memory_line_cycles: file.integer("memory_line_cycles", range.clone())?.unwrap_or(0),
        cache_to_cache_cycles: or_memory("cache_to_cache_cycles")?,
        upgrade_cycles: or_memory("upgrade_cycles")?,
        device_read_cycles: file.integer("device_read_cycles", range.clone())?,
        local_device_cycles: file.integer("local_device_cycles", range.clone())?,
        device_write_cycles: file.integer("device_write_cycles", 0..=CYCLES_MAX)?,
        stlb_hit_cycles: needed_if(stlb, "stlb_hit_cycles")?,
        tlb_miss_cycles: file.needed("tlb_miss_cycles", range)?,
    })
}

fn l1i(file: &Reader<'_>) -> Parsed<LevelModel> {
    let table = file.table("l1i")?.ok_or_else(|| file.fail("l1i", "is missing"))?;
    let level = LevelModel {
        index: index(&table)?,
        prefetch: next_line(&table)?,
        trace: table.flag("trace")?.unwrap_or(false),
        ..plain("l1i", &table)?
    };
    table.done()?;
    Ok(level)
}

fn l1d(file: &Reader<'_>) -> Parsed<LevelModel> {
    let table = file.table("l1d")?.ok_or_else(|| file.fail("l1d", "is missing"))?;
    let basis = plain("l1d", &table)?;
    let line_bytes = basis.cache.line_bytes;
    let write =
        table.choice("write", &[("back", WritePolicy::Back), ("through", WritePolicy::Through)])?;
    let prefetches =
        [("none", Prefetch::None), ("next-line", Prefetch::NextLine), ("stride", Prefetch::Stride)];
    let level = LevelModel {
        write: write.unwrap_or_default(),
        allocate: table.flag("allocate")?.unwrap_or(true),
        index: index(&table)?,
        sub_block_bytes: table
            .quantity("sub_block", "bytes", BYTES, LINE_BYTES_MIN..=line_bytes)?
            .unwrap_or(line_bytes),
        mshrs: table.integer("mshrs", 1..=MSHRS_MAX)?.unwrap_or(1) as u32,
        prefetch: table.choice("prefetch", &prefetches)?.unwrap_or_default(),
        ..basis
    };
    let parts = line_bytes / level.sub_block_bytes;
    if !level.sub_block_bytes.is_power_of_two() || parts > 64 {
        let problem = "is no power of two, or less than a 64th of a line";
        return Err(table.fail("sub_block", problem));
    }
    table.done()?;
    Ok(level)
}

fn outer(file: &Reader<'_>, name: &str) -> Parsed<Option<LevelModel>> {
    let Some(table) = file.table(name)? else { return Ok(None) };
    let level = LevelModel {
        prefetch: table.choice("prefetch", &OUTER_PREFETCHES)?.unwrap_or_default(),
        line_cycles: table.integer("line_cycles", 0..=CYCLES_MAX)?.unwrap_or(0),
        inclusion: table.choice("inclusion", INCLUSIONS)?.unwrap_or_default(),
        shared: table.flag("shared")?.unwrap_or(false),
        ..plain(name, &table)?
    };
    table.done()?;
    Ok(Some(level))
}

fn index(table: &Reader<'_>) -> Parsed<Index> {
    let choices = [("physical", Index::Physical), ("virtual", Index::Virtual)];
    Ok(table.choice("index", &choices)?.unwrap_or_default())
}

const OUTER_PREFETCHES: [(&str, Prefetch); 3] =
    [("none", Prefetch::None), ("next-line", Prefetch::NextLine), ("stream", Prefetch::Stream)];

fn next_line(table: &Reader<'_>) -> Parsed<Prefetch> {
    let choices = [("none", Prefetch::None), ("next-line", Prefetch::NextLine)];
    Ok(table.choice("prefetch", &choices)?.unwrap_or_default())
}

/// The geometry that all caches have.
fn plain(name: &str, table: &Reader<'_>) -> Parsed<LevelModel> {
    let size = table.quantity("size", "bytes", BYTES, LINE_BYTES_MIN..=CACHE_BYTES_MAX)?;
    let line = table.quantity("line", "bytes", BYTES, LINE_BYTES_MIN..=LINE_BYTES_MAX)?;
    let cache = CacheModel {
        size_bytes: size.ok_or_else(|| table.fail("size", "is missing; as size = \"16 KiB\""))?,
        ways: table.needed("ways", 1..=WAYS_MAX.into())? as u32,
        line_bytes: line.ok_or_else(|| table.fail("line", "is missing; as line = \"64 B\""))?,
        replacement: table.choice("replacement", REPLACEMENTS)?.unwrap_or_default(),
    };
    cache.check(name).map_err(|error| table.locate(error))?;
    Ok(LevelModel {
        sub_block_bytes: cache.line_bytes,
        cache,
        write: WritePolicy::Back,
        allocate: true,
        index: Index::Physical,
        mshrs: 1,
        prefetch: Prefetch::None,
        prefetch_distance: table
            .integer("prefetch_distance", 1..=PREFETCH_DISTANCE_MAX)?
            .unwrap_or(1) as u32,
        code_prefetch_distance: table
            .integer("code_prefetch_distance", 1..=PREFETCH_DISTANCE_MAX)?
            .map(|lines| lines as u32),
        prefetch_buffers: table
            .integer("prefetch_buffers", 1..=PREFETCH_BUFFERS_MAX)?
            .unwrap_or(PREFETCH_BUFFERS) as u32,
        line_cycles: 0,
        inclusion: Inclusion::NonInclusive,
        shared: false,
        trace: false,
    })
}

fn tlb(file: &Reader<'_>, name: &str) -> Parsed<Option<TlbLevel>> {
    let Some(table) = file.table(name)? else { return Ok(None) };
    let entries = table.needed("entries", 1..=TLB_ENTRIES_MAX.into())? as u32;
    let page = table.quantity("page", "bytes", BYTES, 4 << 10..=1 << 30)?;
    let pages_bytes = match (table.sizes("pages")?, page) {
        (Some(_), Some(_)) => {
            return Err(table.fail("pages", "is given together with page; allowed: one of them"));
        }
        (Some(sizes), None) => sizes,
        (None, page) => vec![page.unwrap_or(4096)],
    };
    if !check::is_page_list(&pages_bytes) {
        let problem = "allowed: some of \"4 KiB\", \"2 MiB\", \"1 GiB\", in this order";
        return Err(table.fail("pages", problem));
    }
    let tlb = TlbModel {
        entries,
        // Without a number of ways, the TLB is fully associative.
        ways: table.integer("ways", 1..=WAYS_MAX.into())?.unwrap_or(entries.into()) as u32,
        page_bytes: pages_bytes[0],
        replacement: table.choice("replacement", REPLACEMENTS)?.unwrap_or_default(),
    };
    tlb.check(name).map_err(|error| table.locate(error))?;
    table.done()?;
    Ok(Some(TlbLevel { tlb, pages_bytes }))
}
