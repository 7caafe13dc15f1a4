//! The caches, from `/sys/devices/system/cpu/cpuN/cache`: facts of the machine, and the size that the working sets of
//! loads and stimuli must exceed.

use std::collections::BTreeMap;

use serde::Serialize;

use super::cpu_list::parse_cpu_list;
use super::root::Root;

/// No processor has more caches per CPU than this.
const CACHE_INDEX_MAX: u32 = 32;

/// A kind of cache, and its number of instances in the machine.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct CacheFacts {
    /// The level: 1 is closest to the core.
    pub level: u32,
    /// `Data`, `Instruction` or `Unified`.
    pub kind: String,
    /// Size of one instance.
    pub size_bytes: Option<u64>,
    pub line_bytes: Option<u64>,
    /// Ways of associativity; 0 means fully associative.
    pub ways: Option<u64>,
    /// The largest number of CPUs that share one instance.
    pub shared_by_cpus: Option<u32>,
    /// Number of instances over the online CPUs.
    pub instances: Option<u32>,
}

/// The caches of the CPUs `online`: each kind and size once, in the order of levels. A size is that of one instance,
/// while `lscpu` prints the sum of all instances.
#[must_use]
pub fn cache_facts(root: &Root, online: &[u32]) -> Vec<CacheFacts> {
    let mut kinds: BTreeMap<(u32, String, Option<u64>), Instances> = BTreeMap::new();
    for cpu in online {
        for index in 0..CACHE_INDEX_MAX {
            let directory = format!("sys/devices/system/cpu/cpu{cpu}/cache/index{index}");
            let Some(level) = root.number(format!("{directory}/level")) else { break };
            let kind = root.word(format!("{directory}/type")).unwrap_or_default();
            let size = root.word(format!("{directory}/size")).and_then(|word| parse_size(&word));
            let entry = kinds.entry((level, kind, size)).or_insert_with(|| Instances {
                line_bytes: root.number(format!("{directory}/coherency_line_size")),
                ways: root.number(format!("{directory}/ways_of_associativity")),
                sharers: Vec::new(),
            });
            let sharers = root.text(format!("{directory}/shared_cpu_list"));
            entry.sharers.push(sharers.and_then(|list| parse_cpu_list(&list).ok()));
        }
    }
    let facts = kinds.into_iter().map(|((level, kind, size_bytes), instances)| {
        // CPUs with equal lists of sharers share an instance.
        let sharers: Option<Vec<Vec<u32>>> = instances.sharers.into_iter().collect();
        let instance_cpus = sharers.map(|mut lists| {
            lists.sort_unstable();
            lists.dedup();
            lists
        });
        let as_u32 = |count: usize| u32::try_from(count).ok();
        CacheFacts {
            level,
            kind,
            size_bytes,
            line_bytes: instances.line_bytes,
            ways: instances.ways,
            shared_by_cpus: instance_cpus
                .as_ref()
                .and_then(|lists| as_u32(lists.iter().map(Vec::len).max()?)),
            instances: instance_cpus.as_ref().and_then(|lists| as_u32(lists.len())),
        }
    });
    facts.collect()
}

/// All instances of a kind of cache.
struct Instances {
    line_bytes: Option<u64>,
    ways: Option<u64>,
    /// For each CPU, the CPUs that share its instance; `None` if unknown.
    sharers: Vec<Option<Vec<u32>>>,
}

/// Size in bytes of the largest cache of the highest level. A working set must exceed it to reach
/// memory. `None` if no size is known.
#[must_use]
pub fn last_level_cache_bytes(caches: &[CacheFacts]) -> Option<u64> {
    let data = caches.iter().filter(|cache| cache.kind != "Instruction");
    let sized = data.filter_map(|cache| Some((cache.level, cache.size_bytes?)));
    sized.max().map(|(_, bytes)| bytes)
}

/// Parses `32768K`, `1M`, `2G` or `512` to bytes; `None` for 0, another form, or more than 64 bits.
fn parse_size(word: &str) -> Option<u64> {
    let (digits, shift) = match word.as_bytes().last()? {
        b'K' => (&word[..word.len() - 1], 10),
        b'M' => (&word[..word.len() - 1], 20),
        b'G' => (&word[..word.len() - 1], 30),
        _ => (word, 0),
    };
    let number: u64 = digits.parse().ok()?;
    number.checked_mul(1 << shift).filter(|bytes| *bytes > 0)
}

#[cfg(test)]
mod tests {
    use super::super::root::plant;
    use super::*;

    #[test]
    fn kinds_of_caches_have_their_instances_and_the_cpus_that_share_one() {
        let directory = tempfile::tempdir().unwrap();
        for cpu in 0..4u32 {
            let only_this_cpu = cpu.to_string();
            let shared = if cpu < 2 { "0-1" } else { "2-3" };
            let caches = [
                ("1", "Data", "48K", &only_this_cpu[..]),
                ("1", "Instruction", "32K", &only_this_cpu),
                ("3", "Unified", "32768K", shared),
            ];
            for (index, (level, kind, size, sharers)) in caches.into_iter().enumerate() {
                let base = format!("sys/devices/system/cpu/cpu{cpu}/cache/index{index}");
                for (name, text) in
                    [("level", level), ("type", kind), ("size", size), ("shared_cpu_list", sharers)]
                {
                    plant(directory.path(), &format!("{base}/{name}"), text);
                }
            }
        }
        let caches = cache_facts(&Root::new(directory.path()), &[0, 1, 2, 3]);
        assert_eq!(caches.len(), 3);
        assert_eq!((caches[0].instances, caches[0].shared_by_cpus), (Some(4), Some(1)));
        assert_eq!((caches[2].instances, caches[2].shared_by_cpus), (Some(2), Some(2)));
        assert_eq!(last_level_cache_bytes(&caches), Some(32 << 20));
        assert_eq!(last_level_cache_bytes(&[]), None);
    }

    #[test]
    fn sizes_are_parsed_to_bytes_and_zero_or_another_text_is_unknown() {
        assert_eq!(parse_size("48K"), Some(49_152));
        assert_eq!(parse_size("1M"), Some(1 << 20));
        for nothing in ["0K", "K", "", "-1K", "99999999999999999999K", "18446744073709551615G"] {
            assert_eq!(parse_size(nothing), None, "{nothing}");
        }
    }
}
