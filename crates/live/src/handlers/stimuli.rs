//! Creates the condition of a window: its load and its stimulus, each a process of `crate::stimulus`. The live bench
//! and `in_guest.rs` use it.

use std::time::Duration;

use lab::experiment::BenchError;
use lab::handlers::sample::StimulusStats;
use lab::handlers::{Condition, Load, Rate, Stimulus};
use serde_json::{Map, Value as Json};

use super::settings::LiveSettings;
use crate::stimulus::{Helper, LoadSettings, Report, Running, StimulusSettings, start, start_load};

/// The processes that create a condition.
#[derive(Default)]
pub struct Stimuli {
    load: Option<Running>,
    stimulus: Option<Running>,
}

/// Statistics of load and stimulus after they have stopped.
#[derive(Default)]
pub struct FinishedStimuli {
    pub load: Option<StimulusStats>,
    pub stimulus: Option<StimulusStats>,
    /// Errors when they stopped.
    pub warnings: Vec<String>,
}

fn stimulus_stats(report: &Report) -> StimulusStats {
    StimulusStats {
        operations: report.operations,
        bytes: report.bytes,
        errors: report.errors,
        elapsed_ns: report.elapsed_ns,
    }
}

impl Stimuli {
    /// Starts the condition's load and stimulus, and returns when they run.
    ///
    /// Fails with [`BenchError::Unavailable`] when this machine does not support them.
    pub fn start(
        condition: Condition,
        settings: &LiveSettings,
        last_level_cache_bytes: Option<u64>,
    ) -> Result<Self, BenchError> {
        let Condition::Made { load, rate, stimulus } = condition else {
            return Ok(Stimuli::default());
        };
        let helper = match &settings.helper {
            Some(program) => Helper::new(program),
            None => Helper::current_exe().map_err(|error| BenchError::Failed(error.to_string()))?,
        };
        let mut stimuli = Stimuli::default();
        if load == Load::Busy {
            let load = LoadSettings {
                cpus: settings.cpus.clone(),
                region_bytes: None,
                last_level_cache_bytes,
            };
            stimuli.load = Some(start_load(&load, &helper)?);
        }
        let stimulus = stimulus_settings(stimulus, rate, settings);
        stimuli.stimulus = Some(start(&stimulus, &helper)?);
        Ok(stimuli)
    }

    /// The settings in effect, as facts `load` and `stimulus` of the run.
    #[must_use]
    pub fn facts(&self) -> Map<String, Json> {
        let facts_of = |name: &str, running: &Option<Running>| {
            running.as_ref().map(|process| (name.to_owned(), Json::Object(process.facts().clone())))
        };
        facts_of("load", &self.load)
            .into_iter()
            .chain(facts_of("stimulus", &self.stimulus))
            .collect()
    }

    /// Checks that load and stimulus still run.
    ///
    /// Fails with [`BenchError::Failed`] with the error of the process that died.
    pub fn check(&mut self) -> Result<(), BenchError> {
        let mut running = self.load.iter_mut().chain(self.stimulus.iter_mut());
        Ok(running.try_for_each(Running::check)?)
    }

    /// Stops the stimulus, then the load. Errors become warnings.
    #[must_use]
    pub fn stop(self) -> FinishedStimuli {
        let mut warnings = Vec::new();
        let mut stop = |running: Option<Running>| match running?.stop() {
            Ok(report) => {
                warnings.extend(report.all_warnings());
                Some(stimulus_stats(&report))
            }
            Err(error) => {
                warnings.push(error.to_string());
                None
            }
        };
        let (stimulus, load) = (stop(self.stimulus), stop(self.load));
        FinishedStimuli { load, stimulus, warnings }
    }
}

fn stimulus_settings(stimulus: Stimulus, rate: Rate, settings: &LiveSettings) -> StimulusSettings {
    let mut stimulus = StimulusSettings::new(stimulus, rate, settings.cpus.clone());
    stimulus.housekeeping.clone_from(&settings.housekeeping);
    stimulus.peer.clone_from(&settings.peer);
    stimulus.cards = settings.cards;
    stimulus.disk_file.clone_from(&settings.disk_file);
    if let Some(interval) = settings.low_interval {
        stimulus.low_interval = Duration::max(interval, Duration::from_micros(100));
    }
    stimulus
}
