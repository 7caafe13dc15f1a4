//! Encodes an event, given by its name, for perf_event_open(2) on this machine: [`EventCatalogue::encodings`].
//!
//! A hybrid processor has a PMU for each kind of core, and the same event has another encoding for each of them.
//! Therefore an event has a list of [`Encoding`]s, each with the CPUs on which it is valid.

use perf_event_open_sys::bindings;

use super::format::{ConfigWords, Formats};
use super::raw_events::{Cores, RAW_EVENTS, RawEvent};
use super::{EventKind, general_events};
use crate::host::cpu::cpu_model;
use crate::host::{CpuModel, Root, format_cpu_list, parse_cpu_list};

const DEVICES: &str = "sys/bus/event_source/devices";

/// An event in the form that perf_event_open(2) takes, on some CPUs.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Encoding {
    /// `type` of `perf_event_attr`.
    pub kind: u32,
    /// `config`, `config1` and `config2`.
    pub words: ConfigWords,
    /// Whether a PMU of the cores counts the event. Only such a PMU can exclude modes of the processor.
    pub is_core: bool,
    /// The CPUs on which this encoding is valid; `None` for all.
    cpus: Option<Vec<u32>>,
}

impl Encoding {
    /// Whether this encoding is valid on `cpu`.
    #[must_use]
    pub fn serves(&self, cpu: u32) -> bool {
        self.cpus.as_ref().is_none_or(|cpus| cpus.contains(&cpu))
    }

    /// The attributes that name the event; all others are zero.
    #[must_use]
    pub fn attributes(&self) -> bindings::perf_event_attr {
        let mut attributes = bindings::perf_event_attr {
            type_: self.kind,
            size: size_of::<bindings::perf_event_attr>() as u32,
            config: self.words[0],
            ..bindings::perf_event_attr::default()
        };
        attributes.__bindgen_anon_3.config1 = self.words[1];
        attributes.__bindgen_anon_4.config2 = self.words[2];
        attributes
    }
}

/// Why an event is absent.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct EventAbsence {
    /// The reason, as a clause.
    pub reason: String,
    /// Whether rights, the kernel or the hypervisor withhold the event, so that a remedy may exist.
    /// If false, this processor has no such event.
    pub is_withheld: bool,
}

impl EventAbsence {
    /// The absence of an event that this processor does not have.
    fn of_processor(reason: impl Into<String>) -> Self {
        EventAbsence { reason: reason.into(), is_withheld: false }
    }

    /// The absence of an event that the processor has, but the kernel does not open.
    #[must_use]
    pub fn withheld(reason: impl Into<String>) -> Self {
        EventAbsence { reason: reason.into(), is_withheld: true }
    }
}

/// A PMU that counts events in the cores of some CPUs.
#[derive(Clone, Debug)]
struct CorePmu {
    /// Name of the PMU's directory, such as `cpu`, `cpu_atom`, `armv8_pmuv3_0`.
    name: String,
    /// `type` of `perf_event_attr`.
    kind: u32,
    /// The CPUs that the PMU serves; `None` for all.
    cpus: Option<Vec<u32>>,
    formats: Formats,
}

/// The CPUs that the PMU's directory lists; `None` without a list.
fn cpus_of(root: &Root, pmu: &str) -> Option<Vec<u32>> {
    parse_cpu_list(&root.text(format!("{DEVICES}/{pmu}/cpus"))?).ok()
}

/// PMUs that serve the cores of some CPUs only, each with its CPUs: `cpu_core` and `cpu_atom` on
/// hybrid processors (arch/x86/events/intel/core.c), one for each kind of core on Arm. A processor
/// of Intel or AMD with one kind of core has `cpu`, without a list.
#[must_use]
pub fn pmus_of_some_cpus(root: &Root) -> Vec<(String, Vec<u32>)> {
    let names = root.names(DEVICES).unwrap_or_default().into_iter();
    names.filter_map(|name| cpus_of(root, &name).map(|cpus| (name, cpus))).collect()
}

impl CorePmu {
    /// Reads the PMU `name`; `None` if it does not count in cores. The PMU of an x86 processor with one kind of core is
    /// `cpu`. Other PMUs of cores are recognised by their file `cpus` (perf uses the same rule).
    fn read(root: &Root, name: String) -> Option<CorePmu> {
        let device = format!("{DEVICES}/{name}");
        let cpus = cpus_of(root, &name);
        if cpus.is_none() && name != "cpu" {
            return None;
        }
        let kind = root.number(format!("{device}/type"))?;
        let formats = Formats::read(root, &device);
        Some(CorePmu { name, kind, cpus, formats })
    }

    fn serves(&self, cpu: u32) -> bool {
        self.cpus.as_ref().is_none_or(|cpus| cpus.contains(&cpu))
    }

    /// The kind of cores that the PMU serves.
    fn cores(&self) -> Cores {
        match self.name.as_str() {
            "cpu_core" => Cores::Performance,
            "cpu_atom" | "cpu_lowpower" => Cores::Efficient,
            _ => Cores::Uniform,
        }
    }

    fn encoding(&self, words: ConfigWords) -> Encoding {
        Encoding { kind: self.kind, words, is_core: true, cpus: self.cpus.clone() }
    }
}

/// The events of one machine by name.
#[derive(Clone, Debug)]
pub struct EventCatalogue {
    root: Root,
    processor: CpuModel,
    pmus: Vec<CorePmu>,
}

impl EventCatalogue {
    /// Reads the processor's model and the PMUs of its cores below `root`.
    #[must_use]
    pub fn read(root: &Root) -> Self {
        let names = root.names(DEVICES).into_iter().flatten();
        EventCatalogue {
            root: root.clone(),
            processor: cpu_model(root),
            pmus: names.filter_map(|name| CorePmu::read(root, name)).collect(),
        }
    }

    /// Selects CPUs on which it suffices to try an event: one of `cpus` for each PMU that serves some of them. Without
    /// a PMU, selects the first CPU.
    #[must_use]
    pub fn one_cpu_per_pmu(&self, cpus: &[u32]) -> Vec<u32> {
        let first = |pmu: &CorePmu| cpus.iter().copied().find(|cpu| pmu.serves(*cpu));
        let firsts: Vec<u32> = self.pmus.iter().filter_map(first).collect();
        if firsts.is_empty() { cpus.iter().copied().take(1).collect() } else { firsts }
    }

    /// Whether this processor has AMD's events. Hygon's processors have AMD's design.
    #[must_use]
    pub fn is_amd(&self) -> bool {
        matches!(self.processor.vendor.as_deref(), Some("AuthenticAMD" | "HygonGenuine"))
    }

    /// Whether this is an Intel processor.
    #[must_use]
    pub fn is_intel(&self) -> bool {
        self.processor.vendor.as_deref() == Some("GenuineIntel")
    }

    /// Encodes the event `name` on `cpus`, once for each PMU that serves some of them. Names are:
    /// - a hardware, cache or software event of `perf list`;
    /// - `issued`, `dispatched` or `l2-misses`, which irqlab defines for some processors;
    /// - `PMU/EVENT/`, an event that the kernel describes in sysfs;
    /// - `rHEX`, the event's numbers in the processor's manual.
    ///
    /// The error is the reason why the event is absent. An event that some of `cpus` cannot count is absent.
    pub fn encodings(&self, name: &str, cpus: &[u32]) -> Result<Vec<Encoding>, EventAbsence> {
        let unknown = || EventAbsence::of_processor(UNKNOWN_EVENT);
        let encodings =
            if let Some(event) = general_events().iter().find(|event| event.name == name) {
                match event.kind {
                    EventKind::Hardware | EventKind::Cache => {
                        self.general(event.pmu, event.config, cpus)
                    }
                    EventKind::Software | EventKind::Msr => {
                        vec![Encoding {
                            kind: event.pmu,
                            words: [event.config, 0, 0],
                            is_core: false,
                            cpus: None,
                        }]
                    }
                }
            } else if let Some(event) = RAW_EVENTS.iter().find(|event| event.name == name) {
                self.raw(event, cpus)?
            } else if let Some(config) = name.strip_prefix('r').and_then(parse_hex) {
                self.by_number(config, cpus)?
            } else {
                let (pmu, event) = split_sysfs_name(name).ok_or_else(unknown)?;
                vec![self.sysfs_event(pmu, event)?]
            };
        match cpus.iter().find(|cpu| !encodings.iter().any(|encoding| encoding.serves(**cpu))) {
            Some(cpu) => Err(EventAbsence::of_processor(format!("nothing counts it on CPU {cpu}"))),
            None => Ok(encodings),
        }
    }

    /// The PMUs that serve at least one of `cpus`.
    fn serving<'a>(&'a self, cpus: &'a [u32]) -> impl Iterator<Item = &'a CorePmu> {
        self.pmus.iter().filter(|pmu| cpus.iter().any(|cpu| pmu.serves(*cpu)))
    }

    /// Encodes a general hardware or cache event. On hybrid x86, the upper half of `config` must name
    /// the PMU (PERF_PMU_TYPE_SHIFT in the kernel's header perf_event.h). Otherwise the kernel uses only
    /// the PMU of the performance cores.
    fn general(&self, kind: u32, config: u64, cpus: &[u32]) -> Vec<Encoding> {
        // On hybrid x86, the PMU of the performance cores has the type PERF_TYPE_RAW. On Arm no PMU has
        // this type, and one encoding serves all cores.
        let is_hybrid_x86 = self.pmus.iter().any(|pmu| pmu.kind == bindings::PERF_TYPE_RAW);
        if self.pmus.len() < 2 || !is_hybrid_x86 {
            return vec![Encoding { kind, words: [config, 0, 0], is_core: true, cpus: None }];
        }
        let encoding_for = |pmu: &CorePmu| Encoding {
            kind,
            ..pmu.encoding([config | u64::from(pmu.kind) << bindings::PERF_PMU_TYPE_SHIFT, 0, 0])
        };
        self.serving(cpus).map(encoding_for).collect()
    }

    /// Encodes an event that irqlab defines ([`RAW_EVENTS`]).
    fn raw(&self, event: &RawEvent, cpus: &[u32]) -> Result<Vec<Encoding>, EventAbsence> {
        if self.pmus.is_empty() {
            return Err(EventAbsence::withheld("this kernel found no counters in the cores"));
        }
        let encode = |pmu: &CorePmu| {
            let model = &self.processor;
            let signature = (model.vendor.as_deref().unwrap_or(""), model.family, model.model);
            let definition = match signature {
                (vendor, Some(family), Some(model)) => {
                    event.definition((vendor, family, model), pmu.cores())
                }
                _ => None,
            };
            let undefined = || EventAbsence::of_processor(self.why_undefined(event, pmu));
            let config_words = pmu.formats.compose(definition.ok_or_else(undefined)?.fields);
            config_words.map(|words| pmu.encoding(words)).map_err(EventAbsence::of_processor)
        };
        self.serving(cpus).map(encode).collect()
    }

    /// Why irqlab has no definition of an event for the cores of a PMU.
    fn why_undefined(&self, event: &RawEvent, pmu: &CorePmu) -> String {
        if event.name == "issued" && self.is_amd() {
            return "AMD's processors count operations that are dispatched or retired, not those that \
                    are issued (--events dispatched)"
                .to_owned();
        }
        let model = &self.processor;
        let hex =
            |number: Option<u32>| number.map_or("?".to_owned(), |number| format!("{number:X}h"));
        let processor = match (&model.vendor, model.family) {
            (Some(vendor), Some(_)) => {
                format!("{vendor} family {} model {}", hex(model.family), hex(model.model))
            }
            _ => model.name.clone().unwrap_or_else(|| "an unknown processor".to_owned()),
        };
        format!("irqlab knows no such event of {processor}, PMU {}", pmu.name)
    }

    /// Encodes an event by the number in the processor's manual, for a PMU of one kind of cores.
    ///
    /// Fails if `cpus` have cores of several kinds, because a number means another event on each kind.
    fn by_number(&self, config: u64, cpus: &[u32]) -> Result<Vec<Encoding>, EventAbsence> {
        let serving: Vec<&CorePmu> = self.serving(cpus).collect();
        match &serving[..] {
            [] => Ok(vec![Encoding {
                kind: bindings::PERF_TYPE_RAW,
                words: [config, 0, 0],
                is_core: true,
                cpus: None,
            }]),
            [pmu] => Ok(vec![pmu.encoding([config, 0, 0])]),
            several => {
                let describe = |pmu: &&CorePmu| {
                    format!(
                        "{} ({})",
                        pmu.name,
                        format_cpu_list(pmu.cpus.as_deref().unwrap_or(&[]))
                    )
                };
                let descriptions: Vec<String> = several.iter().map(describe).collect();
                Err(EventAbsence::of_processor(format!(
                    "a number means different events on cores of different kinds, here {} (-c)",
                    descriptions.join(" and ")
                )))
            }
        }
    }

    /// Encodes an event that the kernel describes in sysfs, by the fields of its PMU.
    pub(super) fn sysfs_event(&self, pmu: &str, event: &str) -> Result<Encoding, EventAbsence> {
        let device = format!("{DEVICES}/{pmu}");
        let unknown = || EventAbsence::of_processor(UNKNOWN_EVENT);
        let kind = self.root.number(format!("{device}/type")).ok_or_else(unknown)?;
        let terms = self.root.word(format!("{device}/events/{event}")).ok_or_else(unknown)?;
        let config_words = Formats::read(&self.root, &device).compose_terms(&terms);
        let config_words = config_words.map_err(EventAbsence::of_processor)?;
        let core_pmu = self.pmus.iter().find(|candidate| candidate.name == pmu);
        Ok(match core_pmu {
            Some(core_pmu) => core_pmu.encoding(config_words),
            None => Encoding { kind, words: config_words, is_core: false, cpus: None },
        })
    }
}

/// The reason for the absence of an event with an unknown name.
pub const UNKNOWN_EVENT: &str = "this machine has no events of these names";

fn parse_hex(digits: &str) -> Option<u64> {
    u64::from_str_radix(digits, 16).ok()
}

/// Splits `PMU/EVENT/` into its two names; `None` for other forms. The names become parts of a path, so they may
/// contain neither a slash nor a dot.
fn split_sysfs_name(name: &str) -> Option<(&str, &str)> {
    let (pmu, event) = name.strip_suffix('/')?.split_once('/')?;
    let is_name = |part: &str| !part.is_empty() && !part.contains(['/', '.']);
    (is_name(pmu) && is_name(event)).then_some((pmu, event))
}
