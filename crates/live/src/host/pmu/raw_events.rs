//! Events that have no name in the kernel, with their encodings by processor: vendor, family, model and kind of core.
//! `encoding` looks them up. To add an event or a model, extend [`RAW_EVENTS`].
//!
//! Models give the same event different numbers: UOPS_ISSUED is 0Eh on Skylake, 0Eh with another mask on Atom cores,
//! and AEh on Golden Cove. Therefore an event is defined only for the models that its source lists.
//!
//! Sources: for Intel the event files of github.com/intel/perfmon, which its `mapfile.csv` assigns
//! to models (November 2026); for AMD the event files and `mapfile.csv` of
//! tools/perf/pmu-events/arch/x86 in Linux, which come from AMD's Processor Programming References.

/// The cores of a processor that have an event.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Cores {
    /// All cores of a processor with one kind of cores.
    Uniform,
    /// Performance cores of a hybrid processor (PMU `cpu_core`).
    Performance,
    /// Efficient cores of a hybrid processor (PMUs `cpu_atom` and `cpu_lowpower`).
    Efficient,
}

/// Some models of a processor family.
#[derive(Clone, Copy, Debug)]
enum Models {
    Listed(&'static [u32]),
    /// First and last of each range.
    Ranges(&'static [(u32, u32)]),
}

impl Models {
    fn contain(self, model: u32) -> bool {
        match self {
            Models::Listed(models) => models.contains(&model),
            Models::Ranges(ranges) => {
                ranges.iter().any(|(first, last)| (*first..=*last).contains(&model))
            }
        }
    }
}

/// The encoding of an event on some processors.
#[derive(Debug)]
pub(super) struct Definition {
    vendor: &'static str,
    family: u32,
    models: Models,
    cores: Cores,
    /// The names of the event's fields (`format/`), with their values.
    pub(super) fields: &'static [(&'static str, u64)],
}

/// An event that has the same meaning on different processors, with its definitions.
#[derive(Debug)]
pub(super) struct RawEvent {
    pub(super) name: &'static str,
    definitions: &'static [Definition],
}

const INTEL: &str = "GenuineIntel";
const AMD: &str = "AuthenticAMD";

/// Core processors from Nehalem to Broadwell and Ice Lake: their UOPS_ISSUED.ANY is 0Eh, mask 01h.
const NEHALEM_TO_ROCKET_LAKE: &[u32] = &[
    0x1a, 0x1e, 0x1f, 0x2e, 0x25, 0x2c, 0x2f, // Nehalem, Westmere
    0x2a, 0x2d, 0x3a, 0x3e, // Sandy Bridge, Ivy Bridge
    0x3c, 0x3f, 0x45, 0x46, 0x3d, 0x47, 0x4f, 0x56, // Haswell, Broadwell
    0x4e, 0x5e, 0x8e, 0x9e, 0xa5, 0xa6, 0x55, // Skylake to Comet Lake and Cascade Lake
    0x6a, 0x6c, 0x7d, 0x7e, 0x8c, 0x8d, 0xa7, // Ice Lake, Tiger Lake, Rocket Lake
];
/// Goldmont, Goldmont Plus, Tremont, and processors of Atom cores alone up to Clearwater Forest.
const ATOM: &[u32] = &[0x5c, 0x5f, 0x7a, 0x86, 0x96, 0x9c, 0xbe, 0xaf, 0xb6, 0xdd];
/// Sapphire, Emerald and Granite Rapids.
const GOLDEN_COVE_SERVERS: &[u32] = &[0x8f, 0xcf, 0xad, 0xae];
/// Alder Lake to Panther Lake.
const HYBRID: &[u32] =
    &[0x97, 0x9a, 0xb7, 0xba, 0xbf, 0xaa, 0xac, 0xb5, 0xbd, 0xc5, 0xc6, 0xcc, 0xd5, 0xe5];
/// Haswell to Emerald and Granite Rapids, except Ice Lake's servers, whose event
/// file has no such sum.
const WITH_L2_MISSES: &[u32] = &[
    0x3c, 0x3f, 0x45, 0x46, 0x3d, 0x47, 0x4f, 0x56, 0x4e, 0x5e, 0x8e, 0x9e, 0xa5, 0xa6, 0x55, 0x7d,
    0x7e, 0x8c, 0x8d, 0xa7, 0x8f, 0xcf, 0xad, 0xae,
];
/// Zen 2 within family 17h, as ranges of models (bsp_init_amd in arch/x86/kernel/cpu/amd.c).
const ZEN_2: Models = Models::Ranges(&[(0x30, 0x4f), (0x60, 0x7f), (0x90, 0x91), (0xa0, 0xaf)]);
/// Zen 4 within family 19h.
const ZEN_4: Models = Models::Ranges(&[(0x10, 0x1f), (0x60, 0xaf)]);
/// Zen 5 within family 1Ah.
const ZEN_5: Models = Models::Ranges(&[(0x00, 0x0f), (0x20, 0x2f), (0x40, 0x4f), (0x70, 0x7f)]);

const fn intel(
    models: &'static [u32],
    cores: Cores,
    fields: &'static [(&'static str, u64)],
) -> Definition {
    Definition { vendor: INTEL, family: 6, models: Models::Listed(models), cores, fields }
}

const fn amd(family: u32, models: Models, fields: &'static [(&'static str, u64)]) -> Definition {
    Definition { vendor: AMD, family, models, cores: Cores::Uniform, fields }
}

/// The raw events that irqlab knows.
pub(super) const RAW_EVENTS: [RawEvent; 3] = [
    // Micro-operations that the allocator issues to the scheduler: UOPS_ISSUED.ANY.
    RawEvent {
        name: "issued",
        definitions: &[
            intel(NEHALEM_TO_ROCKET_LAKE, Cores::Uniform, &[("event", 0x0e), ("umask", 0x01)]),
            intel(ATOM, Cores::Uniform, &[("event", 0x0e), ("umask", 0x00)]),
            intel(GOLDEN_COVE_SERVERS, Cores::Uniform, &[("event", 0xae), ("umask", 0x01)]),
            intel(HYBRID, Cores::Performance, &[("event", 0xae), ("umask", 0x01)]),
            intel(HYBRID, Cores::Efficient, &[("event", 0x0e), ("umask", 0x00)]),
        ],
    },
    // Macro-operations that are dispatched: de_dis_uops_from_decoder (Zen 2), de_src_op_disp.all
    // (from Zen 4). Zen 1 and Zen 3 have no such event there.
    RawEvent {
        name: "dispatched",
        definitions: &[
            amd(0x17, ZEN_2, &[("event", 0xaa), ("umask", 0xff)]),
            amd(0x19, ZEN_4, &[("event", 0xaa), ("umask", 0x07)]),
            amd(0x1a, ZEN_5, &[("event", 0xaa), ("umask", 0x07)]),
        ],
    },
    // Requests that miss the L2: L2_RQSTS.MISS.
    RawEvent {
        name: "l2-misses",
        definitions: &[
            intel(WITH_L2_MISSES, Cores::Uniform, &[("event", 0x24), ("umask", 0x3f)]),
            intel(HYBRID, Cores::Performance, &[("event", 0x24), ("umask", 0x3f)]),
        ],
    },
];

impl RawEvent {
    /// The definition for cores of this kind of the processor (vendor, family, model).
    pub(super) fn definition(
        &self,
        (vendor, family, model): (&str, u32, u32),
        cores: Cores,
    ) -> Option<&'static Definition> {
        self.definitions.iter().find(|definition| {
            definition.vendor == vendor
                && definition.family == family
                && definition.cores == cores
                && definition.models.contain(model)
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_processor_has_two_definitions_of_a_name() {
        for event in &RAW_EVENTS {
            for definition in event.definitions {
                for model in (0..=0xff).filter(|model| definition.models.contain(*model)) {
                    let same = event.definitions.iter().filter(|other| {
                        (other.vendor, other.family, other.cores)
                            == (definition.vendor, definition.family, definition.cores)
                            && other.models.contain(model)
                    });
                    assert_eq!(same.count(), 1, "{} on model {model:#x}", event.name);
                }
            }
        }
    }
}
