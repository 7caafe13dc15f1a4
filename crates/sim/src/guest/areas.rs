//! Address ranges that a kernel's symbols cover, for [`super::symbols`].
//!
//! A list of symbols has the start of each symbol, but not its size. Without these areas, an address beyond the last
//! symbol of the kernel, as in a module's code, would get the name of that symbol.

use std::ops::RangeInclusive;

use super::symbols::Symbol;

/// Where x86-64 Linux has modules and BPF programs. The range covers kernels with and without address randomisation
/// (Documentation/arch/x86/x86_64/mm.rst).
pub(super) const MODULES: RangeInclusive<u64> = 0xffff_ffff_a000_0000..=0xffff_ffff_feff_ffff;
/// Assumed length of the last symbol of an area with an unknown end, bytes.
const LAST_BYTES: u64 = 4_096;
/// Symbols at the start and the end of the kernel's image.
const IMAGE: (&str, &str) = ("_text", "_end");
/// Symbols at the starts and ends of the image's parts with code. Kernels that list functions only have no [`IMAGE`].
const PARTS: [(&str, &str); 2] = [("_stext", "_etext"), ("_sinittext", "_einittext")];
/// Symbols at the start and the end of the per-CPU variables.
const PER_CPU: (&str, &str) = ("__per_cpu_start", "__per_cpu_end");

/// A range of addresses.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Area {
    /// The first address.
    pub(crate) start: u64,
    /// The address after the last.
    pub(crate) end: u64,
    /// The module that has the area; `None` for an area of the kernel itself.
    pub(crate) module: Option<String>,
}

/// Returns the areas of a kernel, and of the modules in its list of symbols.
pub(super) fn of_kernel(table: &[Symbol]) -> Vec<Area> {
    let kernel_symbols = || table.iter().filter(|symbol| symbol.module.is_none());
    let between = |(start, end): (&str, &str)| {
        let find = |name: &str| {
            kernel_symbols().find(|symbol| symbol.name == name).map(|symbol| symbol.address)
        };
        let (start, end) = (find(start)?, find(end)?);
        (start < end).then_some(Area { start, end, module: None })
    };
    let image: Vec<Area> = match between(IMAGE) {
        Some(image) => vec![image],
        None => PARTS.into_iter().filter_map(between).collect(),
    };
    let mut areas = if image.is_empty() { around(kernel_symbols(), None) } else { image };
    // Per-CPU symbols are offsets below the image, or addresses in it: then the image has them.
    let is_below = |per_cpu: &Area| areas.iter().all(|area| area.start >= per_cpu.end);
    let per_cpu = between(PER_CPU).filter(is_below);
    areas.extend(per_cpu);
    let mut modules: Vec<&String> =
        table.iter().filter_map(|symbol| symbol.module.as_ref()).collect();
    modules.sort_unstable();
    modules.dedup();
    for module in modules {
        let module_symbols = table.iter().filter(|symbol| symbol.module.as_ref() == Some(module));
        areas.extend(around(module_symbols, Some(module)));
    }
    areas
}

/// Returns the area from the lowest symbol to [`LAST_BYTES`] after the highest; empty if there are no symbols.
fn around<'a>(symbols: impl Iterator<Item = &'a Symbol>, module: Option<&String>) -> Vec<Area> {
    let bounds = symbols.map(|symbol| symbol.address).fold(None, |bounds, address| {
        let (first, last) = bounds.unwrap_or((address, address));
        Some((address.min(first), address.max(last)))
    });
    let area = bounds.map(|(start, last): (u64, u64)| Area {
        start,
        end: last.saturating_add(LAST_BYTES),
        module: module.cloned(),
    });
    area.into_iter().collect()
}
