//! The fields of a fitted model that the machine or kept data state: its identity, clock, caches. `set_tlb` adds the first TLB,
//! whose end several kernels show together.

use std::ops::Range;
use std::path::Path;

use lab::kernels::fit::{FirstTlb, Fitted, first_tlb, preset_kept};
use lab::kernels::{KernelSample, Processor};
use live::host::{CacheFacts, HostFacts};
use machine::SystemModel;
use machine::identity::TITLE_BYTES_MAX;
use sim::mitigations;

use super::draft::{Draft, stated};
use super::reference::ReferenceProcessor;
use crate::kernels::core_hz;

/// Largest number of ways of a model's TLB.
const WAYS_MAX: u32 = 64;

/// Sets family and model that the guest sees. Returns whether it did: the preset must show the guest a processor of this vendor.
fn set_signature(draft: &mut Draft, processor: &Processor) -> bool {
    let identity = SystemModel::parse(&draft.text).ok().and_then(|model| model.identity);
    let is_of_vendor =
        identity.is_some_and(|identity| identity.vendor.signature() == processor.vendor);
    if is_of_vendor {
        draft.set(stated("identity.family", processor.family.to_string(), "CPUID"));
        draft.set(stated("identity.model", processor.model.to_string(), "CPUID"));
    }
    is_of_vendor
}

/// Sets what the guest sees of the processor: this one's signature and name, and what its kernel does about bugs. Features
/// stay the preset's. Does nothing if the preset shows the guest no processor.
fn set_identity(draft: &mut Draft, facts: &HostFacts, processor: &Processor) {
    if !set_signature(draft, processor) {
        return;
    }
    let cpu = &facts.cpu.model;
    if let Some(stepping) = cpu.stepping {
        draft.set(stated("identity.stepping", stepping.to_string(), "CPUID"));
    }
    if let Some(microcode) = cpu.microcode.as_deref().filter(|revision| revision.starts_with("0x"))
    {
        draft.set(stated("identity.microcode", microcode.to_owned(), "/proc/cpuinfo"));
    }
    let title: String = cpu.name.as_deref().unwrap_or("this processor").replace(',', " ");
    let title: String =
        title.chars().filter(|c| matches!(c, ' '..='~')).take(TITLE_BYTES_MAX).collect();
    draft.set(stated("identity.title", format!("{title:?}"), "/proc/cpuinfo"));
    for (bug, statement) in mitigations::statements(Path::new(mitigations::DIRECTORY)) {
        let field = format!("identity.mitigations.{bug}");
        draft.set(stated(&field, format!("{statement:?}"), "this machine's kernel"));
    }
}

/// Sets clock, number of CPUs, caches and identity from known facts about the processor.
pub(super) fn set_from_facts(draft: &mut Draft, reference: &ReferenceProcessor) {
    let ReferenceProcessor { processor, cpu, .. } = reference;
    draft.set(stated("cpuid", format!("[\"{processor}\"]"), "CPUID"));
    let Some(facts) = &reference.facts else {
        let about = format!("{}, fitted to kept data", cpu.replace('"', ""));
        draft.set(stated("about", format!("{about:?}"), "kept data"));
        set_signature(draft, processor);
        let caches = ["l1d", "l1i", "l2", "l3"];
        let geometry = ["size", "ways", "line"];
        let geometries =
            caches.iter().flat_map(|cache| geometry.map(|size| format!("{cache}.{size}")));
        for field in ["clock".to_owned(), "cpus".to_owned()].into_iter().chain(geometries) {
            draft.set(preset_kept(&field, "kept data do not state it"));
        }
        return;
    };
    let host = &facts.host;
    let name = host.cpu.model.name.as_deref().unwrap_or("unknown processor");
    let about = format!("{} (family {}), fitted", name.replace('"', ""), processor.family);
    draft.set(stated("about", format!("{about:?}"), "/proc/cpuinfo"));
    match core_hz(facts.cpu) {
        Some(hz) => {
            let text = format!("\"{} MHz\"", (hz / 1e6).round());
            draft.set(stated("clock", text, "dependent additions by the time-stamp counter"));
        }
        None => draft.set(preset_kept("clock", "the time-stamp counter has no frequency")),
    }
    set_identity(draft, host, processor);
    let cpus = host.cpu.online.as_ref().map_or(1, Vec::len).clamp(1, 64);
    draft.set(stated("cpus", cpus.to_string(), "CPUs online"));
    set_caches(draft, &facts.caches);
}

/// Sets the caches of the CPU that was measured.
fn set_caches(draft: &mut Draft, caches: &[CacheFacts]) {
    for (level, kind, table) in
        [(1, "Data", "l1d"), (1, "Instruction", "l1i"), (2, "Unified", "l2"), (3, "Unified", "l3")]
    {
        let cache = caches.iter().find(|cache| cache.level == level && cache.kind == kind);
        match cache.map(|cache| geometry(cache, table)) {
            Some(Some(fields)) => draft.set_together(fields),
            _ => draft.set(preset_kept(&format!("{table}.size"), "the machine does not state it")),
        }
    }
}

/// The fields of a cache in the model's table `table` (`l1d`, `l1i`, `l2` or `l3`); `None` if the machine does not state
/// all of them. They may be invalid, as 0 ways are (fully associative): `Draft::set_together` then sets none.
fn geometry(cache: &CacheFacts, table: &str) -> Option<Vec<Fitted>> {
    let method = "stated by CPUID (sysfs)";
    let (size, ways, line) = (cache.size_bytes?, cache.ways?, cache.line_bytes?);
    Some(vec![
        stated(&format!("{table}.size"), format!("\"{} KiB\"", size >> 10), method),
        stated(&format!("{table}.ways"), ways.to_string(), method),
        stated(&format!("{table}.line"), format!("\"{line} B\""), method),
    ])
}

/// Whether the draft's number of entries of the first data TLB is one of the possible numbers.
fn is_possible(draft: &Draft, entries: &Range<u32>) -> bool {
    let number = draft.number("dtlb.entries").and_then(|number| u32::try_from(number).ok());
    number.is_some_and(|number| entries.contains(&number))
}

/// Sets the entries and ways of the first TLB for data, if the kernels show where that TLB ends.
pub(super) fn set_tlb(draft: &mut Draft, host: &[KernelSample]) {
    match first_tlb(host) {
        Some(FirstTlb { entries, method }) if is_possible(draft, &entries) => {
            let reason = format!("{method}: the preset's number is between them");
            draft.set(preset_kept("dtlb.entries", &reason));
        }
        Some(FirstTlb { entries, method }) => {
            // Nothing tells which of the possible numbers is right.
            let method = format!("{method}: at least these entries");
            let entries = entries.start;
            // A model's TLB has at most `WAYS_MAX` ways, so a larger TLB gets two or four sets.
            let sets = [1, 2, 4]
                .into_iter()
                .find(|sets| entries.is_multiple_of(*sets) && entries / sets <= WAYS_MAX);
            let ways = entries / sets.unwrap_or(1);
            draft.set_together(vec![
                stated("dtlb.entries", entries.to_string(), &method),
                stated("dtlb.ways", ways.to_string(), "the fewest sets that a model can have"),
            ]);
        }
        None => {
            draft.set(preset_kept("dtlb.entries", "no chase of pages shows where the TLB ends"))
        }
    }
}

#[cfg(test)]
mod tests {
    use std::fs;

    use live::host::Root;
    use sim::models;

    use super::super::reference::MeasuredMachine;
    use super::*;

    /// A hybrid processor: CPU 0 is a performance core, CPU 16 an efficiency core.
    #[test]
    fn the_caches_are_those_of_the_measured_cpu() {
        let directory = tempfile::tempdir().unwrap();
        for (cpu, caches) in [(0, ["48K", "32K", "1280K"]), (16, ["32K", "64K", "2048K"])] {
            let kinds = [("1", "Data", "8"), ("1", "Instruction", "8"), ("2", "Unified", "16")];
            for (index, (size, (level, kind, ways))) in caches.into_iter().zip(kinds).enumerate() {
                let cache = format!("sys/devices/system/cpu/cpu{cpu}/cache/index{index}");
                let cache = directory.path().join(cache);
                fs::create_dir_all(&cache).unwrap();
                for (name, text) in [
                    ("level", level),
                    ("type", kind),
                    ("size", size),
                    (
                        "ways_of_associativity",
                        if size == "48K" {
                            "12"
                        } else if size == "1280K" {
                            "10"
                        } else {
                            ways
                        },
                    ),
                    ("coherency_line_size", "64"),
                ] {
                    fs::write(cache.join(name), text).unwrap();
                }
            }
        }
        let kib = |cpu: u32| {
            let root = Root::new(directory.path());
            let text = models::text("emerald-rapids").unwrap();
            let mut draft = Draft { text, fitted: Vec::new(), undetermined: Vec::new() };
            set_caches(&mut draft, &MeasuredMachine::new(HostFacts::default(), &root, cpu).caches);
            ["l1d.size", "l1i.size", "l2.size"].map(|field| {
                let fitted = draft.fitted.iter().find(|fitted| fitted.field == field).unwrap();
                fitted.value.clone().unwrap_or_else(|| format!("{fitted:?}"))
            })
        };
        assert_eq!(kib(0), ["\"48 KiB\"", "\"32 KiB\"", "\"1280 KiB\""]);
        assert_eq!(kib(16), ["\"32 KiB\"", "\"64 KiB\"", "\"2048 KiB\""]);
    }

    /// Zen 4 has 72 entries. Its kept data have chases through 64 and through 80 pages.
    #[test]
    fn a_number_of_tlb_entries_that_the_chases_allow_stays() {
        let kept = crate::kernels::read_kept("zen4").unwrap();
        let samples = kept.samples(&live::kernels::selected(&[]).unwrap());
        let entries_after = |entries: u32| {
            let set = [format!("dtlb.entries={entries}"), format!("dtlb.ways={}", entries / 2)];
            let set: Vec<&str> = set.iter().map(String::as_str).collect();
            let text = machine::schema::set(&models::text("zen4").unwrap(), &set).unwrap();
            let mut draft = Draft { text, fitted: Vec::new(), undetermined: Vec::new() };
            set_tlb(&mut draft, &samples);
            draft.number("dtlb.entries")
        };
        assert_eq!([72, 64, 128].map(entries_after), [Some(72), Some(64), Some(64)]);
    }
}
