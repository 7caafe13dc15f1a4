//! The processor that a model is fitted to: this machine's processor, measured now, or one that was measured earlier and
//! whose data were kept.

use anyhow::bail;
use lab::kernels::fit::Conditions;
use lab::kernels::{Kept, KernelSample, Processor};
use live::host::{CacheFacts, HostFacts, Root, cache_facts, run_host_block};
use live::kernels::selected;
use live::window::Stop;
use serde_json::{Map, Value, json};

use crate::console;
use crate::kernels::{kept_settings, measure_host};
use crate::options::Usage;
use crate::run::STOPPED;

/// The processor that a model is fitted to: cycles of kernels on it, and known facts about it.
pub(super) struct ReferenceProcessor {
    pub(super) processor: Processor,
    /// The processor's name.
    pub(super) cpu: String,
    pub(super) samples: Vec<KernelSample>,
    pub(super) conditions: Conditions,
    /// Facts that the machine states about itself. `None` with kept data.
    pub(super) facts: Option<MeasuredMachine>,
    /// Settings and warnings for the run.
    pub(super) settings: Map<String, Value>,
    pub(super) warnings: Vec<String>,
    /// See [`crate::kernels::Host::steal_ns`].
    pub(super) steal_ns: Option<u64>,
}

/// A machine and its CPU that was measured.
pub(super) struct MeasuredMachine {
    pub(super) host: HostFacts,
    pub(super) cpu: u32,
    /// The caches of the CPU. Other cores of a hybrid processor have other caches.
    pub(super) caches: Vec<CacheFacts>,
}

impl MeasuredMachine {
    /// The CPU `cpu` of the machine `host`, whose files are below `root`.
    pub(super) fn new(host: HostFacts, root: &Root, cpu: u32) -> MeasuredMachine {
        MeasuredMachine { caches: cache_facts(root, &[cpu]), host, cpu }
    }
}

impl ReferenceProcessor {
    /// This machine's processor: measures its kernels.
    ///
    /// Each kernel has `windows` windows. Fails when nothing can be measured, or when a stop is requested.
    pub(super) fn measure(
        windows: u32,
        (processor, cpu): (Processor, u32),
        facts: HostFacts,
        stop: &Stop,
    ) -> anyhow::Result<ReferenceProcessor> {
        console::say("measuring this machine");
        let host = measure_host(&[], (windows, 1), cpu, stop)?;
        if stop.is_requested() {
            bail!(STOPPED);
        }
        let settings = Map::from_iter([("windows".to_owned(), json!(windows))]);
        Ok(ReferenceProcessor {
            processor,
            cpu: host.processor.map_or_else(String::new, |(_, name)| name),
            samples: host.samples,
            conditions: host.conditions,
            facts: Some(MeasuredMachine::new(facts, &Root::default(), cpu)),
            settings,
            warnings: host.warnings,
            steal_ns: host.steal_ns,
        })
    }

    /// The run's facts about the machine that was measured. Kept data knows only the processor's name.
    pub(super) fn host_block(&self) -> Map<String, Value> {
        match &self.facts {
            Some(facts) => run_host_block(&facts.host),
            None => Map::from_iter([("cpu_model".to_owned(), json!(self.cpu))]),
        }
    }

    /// The processor of kept data, with all its kernels. Kept data tells only whether the machine was virtual; unknown
    /// counts as not virtual. The other conditions have their defaults.
    pub(super) fn from_kept(kept: Kept) -> anyhow::Result<ReferenceProcessor> {
        // The empty selection selects all kernels, and has no word that could name none.
        let all_kernels = selected(&[]).map_err(Usage)?;
        let samples = kept.samples(&all_kernels);
        let conditions =
            Conditions { is_virtual: kept.is_virtual == Some(true), ..Conditions::default() };
        Ok(ReferenceProcessor {
            samples,
            conditions,
            facts: None,
            settings: kept_settings(&kept),
            warnings: Vec::new(),
            steal_ns: None,
            processor: kept.processor,
            cpu: kept.cpu,
        })
    }
}
