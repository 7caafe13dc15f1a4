//! The geometry of the levels: size, ways and line size of caches and TLBs. It comes from /sys, from CPUID, or from the
//! user (`--geometry`).

use std::collections::BTreeMap;

use lab::experiment::BenchError;
use lab::footprint::{Geometry, Level};

use crate::host::{CacheFacts, Root, cache_facts};

const PAGE_BYTES: u32 = 4096;
/// Most lines of a level.
const LINES_MAX: u64 = 1 << 24;

/// Geometries from the user: size, ways and line size of a cache (`l1d=48KiB:12:64`), or entries and ways of a TLB
/// (`dtlb=64:64`).
pub type ByHand = BTreeMap<Level, Geometry>;

/// Parses a value of `--geometry`. The error is a message with the expected form.
pub fn parse(text: &str) -> Result<(Level, Geometry), String> {
    let form = "expected LEVEL=SIZE:WAYS:LINE as in l1d=48KiB:12:64, or dtlb=ENTRIES:WAYS";
    let (level, numbers) = text.split_once('=').ok_or(form)?;
    let level: Level = level.parse()?;
    let parts: Vec<u64> =
        numbers.split(':').map(number).collect::<Option<_>>().ok_or_else(|| form.to_owned())?;
    let geometry = match (level.is_tlb(), &parts[..]) {
        // A TLB counts as a cache whose lines are pages.
        (true, [entries, ways]) => from_parts(entries * u64::from(PAGE_BYTES), *ways, PAGE_BYTES),
        (false, [size, ways, line]) => from_parts(*size, *ways, u32::try_from(*line).unwrap_or(0)),
        _ => return Err(form.to_owned()),
    };
    geometry.map(|geometry| (level, geometry)).map_err(|reason| format!("{text}: {reason}"))
}

/// `48KiB`, `2MiB` or a plain number; `None` above 2^40.
fn number(text: &str) -> Option<u64> {
    let (digits, unit) = match text {
        _ if text.ends_with("KiB") => (&text[..text.len() - 3], 1 << 10),
        _ if text.ends_with("MiB") => (&text[..text.len() - 3], 1 << 20),
        _ => (text, 1),
    };
    digits.parse::<u64>().ok()?.checked_mul(unit).filter(|bytes| *bytes <= 1 << 40)
}

/// Checks that the numbers describe whole sets. The error is a reason.
fn from_parts(size_bytes: u64, ways: u64, line_bytes: u32) -> Result<Geometry, String> {
    let lines = size_bytes / u64::from(line_bytes.max(1));
    if !line_bytes.is_power_of_two() || !(16..=PAGE_BYTES).contains(&line_bytes) {
        return Err("a line has 16 to 4096 bytes, a power of two".to_owned());
    }
    if lines == 0 || lines > LINES_MAX || !size_bytes.is_multiple_of(u64::from(line_bytes)) {
        return Err(format!("a level has 1 to {LINES_MAX} whole lines"));
    }
    if ways == 0 || !lines.is_multiple_of(ways) {
        return Err(format!("{lines} lines are not whole sets of {ways} ways"));
    }
    let ways = u32::try_from(ways).map_err(|_| "too many ways".to_owned())?;
    Ok(Geometry { size_bytes, line_bytes, ways })
}

/// The geometry of a level of `cpu`: the user's, else the machine's. The thread must run on `cpu`, because the
/// processor describes the TLBs of the CPU that asks.
///
/// Fails if the user gives none and the machine reports none.
pub fn geometry(
    root: &Root,
    cpu: u32,
    level: Level,
    by_hand: &ByHand,
) -> Result<Geometry, BenchError> {
    let found = match by_hand.get(&level) {
        Some(geometry) => Some(*geometry),
        None if level.is_tlb() => root.is_live().then(|| tlb::entries(level)).flatten(),
        None => cache(&cache_facts(root, &[cpu]), level),
    };
    found.ok_or_else(|| BenchError::Unavailable {
        reason: format!("the size of {level} is not known here"),
        remedy: Some(if level.is_tlb() {
            format!("--geometry {level}=ENTRIES:WAYS")
        } else {
            format!("--geometry {level}=SIZE:WAYS:LINE, as in l1d=48KiB:12:64")
        }),
    })
}

/// The geometry of a cache from /sys. `None` for TLBs, and if /sys lacks a number.
fn cache(facts: &[CacheFacts], level: Level) -> Option<Geometry> {
    let (number, kind) = match level {
        Level::L1d => (1, "Data"),
        Level::L1i => (1, "Instruction"),
        Level::L2 => (2, "Unified"),
        Level::L3 => (3, "Unified"),
        Level::Dtlb | Level::Itlb => return None,
    };
    let cache = facts.iter().find(|cache| cache.level == number && cache.kind == kind)?;
    from_parts(cache.size_bytes?, cache.ways?, u32::try_from(cache.line_bytes?).ok()?).ok()
}

/// First-level TLBs for pages of 4 KiB, by CPUID.
#[cfg(target_arch = "x86_64")]
mod tlb {
    use std::arch::x86_64::{__cpuid, __cpuid_count, CpuidResult};

    use super::{Geometry, Level, PAGE_BYTES, from_parts};

    /// The result of a CPUID leaf and sub-leaf; `None` if the processor does not have the leaf.
    #[allow(unused_unsafe)] // `__cpuid` is an unsafe function up to Rust 1.93
    fn leaf(number: u32, sub: u32) -> Option<CpuidResult> {
        // SAFETY: CPUID is part of every x86-64 processor and has no effect but its result.
        let (number_max, result) =
            unsafe { (__cpuid(number & 0x8000_0000).eax, __cpuid_count(number, sub)) };
        (number <= number_max).then_some(result)
    }

    fn geometry(entries: u32, ways: u32) -> Option<Geometry> {
        let size_bytes = u64::from(entries) * u64::from(PAGE_BYTES);
        from_parts(size_bytes, u64::from(ways), PAGE_BYTES).ok()
    }

    pub(super) fn entries(level: Level) -> Option<Geometry> {
        amd_tlb(level).or_else(|| intel_tlb(level))
    }

    /// Leaf 8000_0005h (AMD APM vol. 3, E.4.4): EBX has both TLBs for 4 KiB. `None` if the leaf is absent or states no
    /// TLB.
    fn amd_tlb(level: Level) -> Option<Geometry> {
        let shift = if level == Level::Dtlb { 16 } else { 0 };
        let word = leaf(0x8000_0005, 0)?.ebx >> shift;
        let (entries, ways) = (word & 0xff, word >> 8 & 0xff);
        match ways {
            0xff => geometry(entries, entries), // fully associative
            ways => geometry(entries, ways),
        }
    }

    /// Leaf 18h (Intel SDM vol. 2A, CPUID): a sub-leaf for each TLB. EDX bits 4:0 are its type (1 data, 2 instruction,
    /// 4 load-only), bits 7:5 its level; EBX bit 0: it holds pages of 4 KiB. `None` if the leaf is absent or states no
    /// such TLB.
    fn intel_tlb(level: Level) -> Option<Geometry> {
        let sub_max = leaf(0x18, 0)?.eax.min(64);
        let kind = if level == Level::Dtlb { 1 } else { 2 };
        let found = (0..=sub_max).filter_map(|sub| leaf(0x18, sub)).find(|buffer| {
            let is_kind = buffer.edx & 0x1f == kind || (kind == 1 && buffer.edx & 0x1f == 4);
            is_kind && buffer.edx >> 5 & 7 == 1 && buffer.ebx & 1 == 1
        })?;
        let (ways, sets) = (found.ebx >> 16, found.ecx);
        geometry(ways.checked_mul(sets)?, ways)
    }
}

#[cfg(not(target_arch = "x86_64"))]
mod tlb {
    use super::{Geometry, Level};

    pub(super) fn entries(_level: Level) -> Option<Geometry> {
        None
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn geometries_by_hand() {
        let (level, geometry) = parse("l1d=48KiB:12:64").unwrap();
        assert_eq!((level, geometry.lines(), geometry.sets()), (Level::L1d, 768, 64));
        let (level, geometry) = parse("dtlb=64:64").unwrap();
        assert_eq!((level, geometry.lines(), geometry.sets()), (Level::Dtlb, 64, 1));
        for nonsense in [
            "l1d",
            "l1d=",
            "l1d=48KiB",
            "l1d=48KiB:0:64",
            "l1d=48KiB:7:64",
            "l1d=0:1:64",
            "l9=1:1:64",
            "l1d=48KiB:12:63",
            "l1d=99999999MiB:1:64",
            "dtlb=64:64:64",
            "dtlb=-1:1",
            "l1d=1:1:64",
        ] {
            assert!(parse(nonsense).is_err(), "{nonsense}");
        }
    }

    #[test]
    fn an_unknown_size_is_missing_with_a_remedy() {
        let empty = tempfile::tempdir().unwrap();
        let root = Root::new(empty.path());
        let missing = geometry(&root, 0, Level::L2, &ByHand::new()).unwrap_err();
        assert!(missing.remedy().unwrap().contains("--geometry l2="));
        let by_hand = ByHand::from([parse("l2=1MiB:16:64").unwrap()]);
        assert_eq!(geometry(&root, 0, Level::L2, &by_hand).unwrap().lines(), 16384);
    }
}
