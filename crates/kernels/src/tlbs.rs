//! Kernels of group `tlbs`: translation of addresses, by the number of pages. Each is a chain of loads, one per 4 KiB
//! of memory (`caches::chase_of_pages`).

use crate::caches::chase_of_pages;
use crate::memory::Kind;
use crate::{Group, Kernel};

/// The kernels with a chain of loads, one from each page of 4 KiB (or each 4 KiB in pages of 2 MiB), by number of pages.
pub(crate) fn kernels() -> Vec<Kernel> {
    use Kind::{Large, Small};
    let list = [
        ("pages_16", 16, Small, false),
        ("pages_32", 32, Small, false),
        ("pages_48", 48, Small, false),
        ("pages_64", 64, Small, false),
        ("pages_80", 80, Small, false),
        ("pages_96", 96, Small, false),
        ("pages_112", 112, Small, false),
        ("pages_128", 128, Small, false),
        ("pages_256", 256, Small, false),
        ("pages_512", 512, Small, false),
        ("pages_1024", 1024, Small, false),
        ("pages_2048", 2048, Small, true),
        ("pages_4096", 4096, Small, true),
        ("pages_16384", 16_384, Small, true),
        ("pages_1024_2m", 1024, Large, false),
        ("pages_4096_2m", 4096, Large, true),
    ];
    let kernel = |(name, pages, kind, is_shared): (&'static str, usize, Kind, bool)| {
        let about = match kind {
            Large => "Loads in a chain, one from each 4 KiB, in pages of 2 MiB.",
            _ => "Loads in a chain, one from each page of 4 KiB.",
        };
        let make = move || chase_of_pages(pages, kind);
        let kernel = Kernel::new(Group::Tlbs, (name, "load", about), make);
        if is_shared { kernel.shared() } else { kernel }
    };
    list.map(kernel).into()
}
