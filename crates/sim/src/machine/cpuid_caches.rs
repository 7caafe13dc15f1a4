//! The leaves of `cpuid` that describe a model's caches. The C library chooses its string routines by them, and the
//! kernel which CPUs share a cache.

use machine::SystemModel;
use machine::identity::Vendor;
use machine::system_model::{Inclusion, LevelModel};
use plugin_interface::options::CpuidLeaf;

/// Leaf 2 of recent Intel processors: caches are in leaf 4 (descriptor FFH), TLBs in leaf 18H (FEH), and lines are
/// prefetched in 64 bytes (F0H); the low byte is always 1 (Intel SDM, volume 2, CPUID).
const SEE_LEAF_4: CpuidLeaf =
    CpuidLeaf { leaf: 2, subleaf: None, eax: 0x00fe_ff01, ebx: 0xf0, ecx: 0, edx: 0 };
/// The leaf with a subleaf for each cache, on processors of Intel.
const INTEL_CACHES: u32 = 4;
/// Like [`INTEL_CACHES`], on processors of AMD with the feature TOPOEXT (AMD64 manual, volume 3, appendix E.4.15).
const AMD_CACHES: u32 = 0x8000_001d;
/// L1 on processors of AMD (AMD64 manual, volume 3, appendix E.4.4).
const AMD_FIRST_CACHES: u32 = 0x8000_0005;
/// L2 and L3 on processors of AMD (appendix E.4.5). Processors of Intel state L2 there.
const AMD_OUTER_CACHES: u32 = 0x8000_0006;

/// The kinds of caches, as bits 4 to 0 of `eax` number them.
#[derive(Clone, Copy)]
enum Kind {
    Data = 1,
    Instructions = 2,
    Unified = 3,
}

/// The leaves for a model, in a machine of `cpus` CPUs.
pub(super) fn leaves(model: &SystemModel, vendor: Vendor, cpus: u32) -> Vec<CpuidLeaf> {
    match vendor {
        Vendor::Intel => {
            let l2 = CpuidLeaf { edx: 0, ..outer_caches(model) };
            let others = [SEE_LEAF_4, l2].into_iter();
            others.chain(each_cache(INTEL_CACHES, model, cpus)).collect()
        }
        Vendor::Amd => {
            let others = [first_caches(model), outer_caches(model)];
            each_cache(AMD_CACHES, model, cpus).into_iter().chain(others).collect()
        }
    }
}

/// A subleaf for each cache, and one without a cache that ends them.
fn each_cache(leaf: u32, model: &SystemModel, cpus: u32) -> Vec<CpuidLeaf> {
    let l1 = [(Kind::Data, 1, &model.l1d), (Kind::Instructions, 1, &model.l1i)].into_iter();
    let outer = (2..).zip(model.outer());
    let caches = l1.chain(outer.map(|(level, cache)| (Kind::Unified, level, cache)));
    let threads = model.threads_per_core;
    let mut leaves: Vec<CpuidLeaf> = (0..)
        .zip(caches)
        .map(|(subleaf, (kind, level, cache))| {
            let sharing = if cache.shared { cpus.max(threads) } else { threads };
            let mut answer = cache_of(leaf, subleaf, (kind, level, cache), sharing);
            if leaf == INTEL_CACHES {
                // The number of cores of the package, as a power of two, less one.
                answer.eax |= ((cpus / threads).max(1).next_power_of_two() - 1).min(63) << 26;
            }
            answer
        })
        .collect();
    let subleaf = Some(leaves.len() as u32);
    leaves.push(CpuidLeaf { leaf, subleaf, eax: 0, ebx: 0, ecx: 0, edx: 0 });
    leaves
}

/// A cache, as leaf 4 of Intel and leaf 8000001DH of AMD describe it. `sharing`: how many CPUs share it.
fn cache_of(
    leaf: u32,
    subleaf: u32,
    (kind, level, cache): (Kind, u32, &LevelModel),
    sharing: u32,
) -> CpuidLeaf {
    const SELF_INITIALISING: u32 = 1 << 8;
    const INCLUSIVE: u32 = 1 << 1;
    let eax = kind as u32 | level << 5 | SELF_INITIALISING | (sharing.max(1) - 1) << 14;
    let line_bytes = cache.line_bytes as u32;
    CpuidLeaf {
        leaf,
        subleaf: Some(subleaf),
        eax,
        // Lines are not divided into partitions.
        ebx: (line_bytes - 1) | (cache.ways - 1) << 22,
        ecx: cache.cache().sets() as u32 - 1,
        edx: if cache.inclusion == Inclusion::Inclusive { INCLUSIVE } else { 0 },
    }
}

/// The sizes of L1 in AMD's older format. Its TLB fields are zero, as in [`outer_caches`].
fn first_caches(model: &SystemModel) -> CpuidLeaf {
    let described = |cache: &LevelModel| {
        const ONE_LINE_PER_TAG: u32 = 1 << 8;
        let kib = u32::try_from((cache.size_bytes >> 10).min(0xff)).unwrap_or(0);
        (cache.line_bytes as u32 & 0xff) | ONE_LINE_PER_TAG | cache.ways << 16 | kib << 24
    };
    let (ecx, edx) = (described(&model.l1d), described(&model.l1i));
    CpuidLeaf { leaf: AMD_FIRST_CACHES, subleaf: None, eax: 0, ebx: 0, ecx, edx }
}

/// The sizes of L2 and L3 in AMD's older format. Its TLB fields are zero: Linux only prints them.
fn outer_caches(model: &SystemModel) -> CpuidLeaf {
    let lines = |cache: &LevelModel| {
        const ONE_LINE_PER_TAG: u32 = 1 << 8;
        (cache.line_bytes as u32 & 0xff) | ONE_LINE_PER_TAG | associativity(cache.ways) << 12
    };
    let size = |cache: &LevelModel, unit_bytes: u64, max: u64| {
        u32::try_from((cache.size_bytes / unit_bytes).min(max)).unwrap_or(0)
    };
    CpuidLeaf {
        leaf: AMD_OUTER_CACHES,
        subleaf: None,
        eax: 0,
        ebx: 0,
        ecx: model.l2.as_ref().map_or(0, |l2| lines(l2) | size(l2, 1 << 10, 0xffff) << 16),
        edx: model.l3.as_ref().map_or(0, |l3| lines(l3) | size(l3, 512 << 10, 0x3fff) << 18),
    }
}

/// The code of an associativity in leaf 80000006H. 9: leaf 8000001DH has it.
fn associativity(ways: u32) -> u32 {
    match ways {
        1 | 2 => ways,
        4 => 4,
        8 => 6,
        16 => 8,
        32 => 0xa,
        48 => 0xb,
        64 => 0xc,
        96 => 0xd,
        128 => 0xe,
        _ => 9,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::models;

    fn leaves_of(name: &str, vendor: Vendor, cpus: u32) -> Vec<CpuidLeaf> {
        let (_, model) = models::with_changes(name, &[]).unwrap();
        leaves(&model, vendor, cpus)
    }

    /// Size in bytes, level, and CPUs that share it, as software computes them.
    fn read(leaf: CpuidLeaf) -> (u64, u32, u32) {
        let ways = (leaf.ebx >> 22) + 1;
        let line = (leaf.ebx & 0xfff) + 1;
        let bytes = u64::from(ways) * u64::from(line) * u64::from(leaf.ecx + 1);
        (bytes, leaf.eax >> 5 & 7, (leaf.eax >> 14 & 0xfff) + 1)
    }

    #[test]
    fn software_reads_the_sizes_of_the_model() {
        let zen4 = leaves_of("zen4", Vendor::Amd, 2);
        let caches: Vec<_> = zen4.iter().take(4).copied().map(read).collect();
        let expected = [(32 << 10, 1, 1), (32 << 10, 1, 1), (1 << 20, 2, 1), (32 << 20, 3, 2)];
        assert_eq!(caches, expected);
        assert_eq!(zen4[4].eax, 0, "no further cache");
        let (first, outer) = (zen4[5], zen4[6]);
        assert_eq!((first.ecx >> 24, first.ecx >> 16 & 0xff, first.edx >> 24), (32, 8, 32));
        assert_eq!((outer.leaf, outer.ecx >> 16, outer.edx >> 18), (0x8000_0006, 1024, 64));
        let intel = leaves_of("emerald-rapids", Vendor::Intel, 1);
        assert_eq!(intel[0].leaf, 2);
        assert_eq!((intel[1].leaf, intel[1].ecx >> 16, intel[1].edx), (0x8000_0006, 2048, 0));
        assert_eq!(read(intel[2]), (48 << 10, 1, 1));
        assert_eq!(read(intel[4]), (2 << 20, 2, 1));
    }
}
