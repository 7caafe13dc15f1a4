//! The plan of the experiment `services`: measures one window on a bench, and reports its tables. The command
//! (`irqlab/src/verbs`) makes the plan, and chooses the bench.

use record::keys;
use serde_json::{Map, json};

use super::bench::ServicesBench;
use super::sample::ServicesSample;
use super::tables;
use crate::cpu_warnings::CpuWarnings;
use crate::experiment::{Bench, BenchError, Experiment, Measured, Progress, Report, Steps};
use crate::timeline;

/// Options of the measurement. The bench already knows the command.
#[derive(Clone, Debug, Default)]
pub struct Plan {
    /// Whether to report the buckets of the histograms, too.
    pub histograms: bool,
}

#[derive(Debug, Default)]
pub struct Samples {
    /// The measured window, or `None` if the user asked to stop before the window opened.
    pub window: Option<ServicesSample>,
}

impl crate::experiment::Samples for Samples {
    fn is_empty(&self) -> bool {
        self.window.is_none()
    }
}

impl Experiment for Plan {
    const NAME: &'static str = "services";
    type Bench = dyn ServicesBench;
    type Samples = Samples;

    fn measure(
        &self,
        bench: &mut Self::Bench,
        progress: &mut dyn Progress,
    ) -> Result<Measured<Samples>, BenchError> {
        let mut measured = Measured::<Samples>::default();
        let mut steps = Steps::new(1, progress);
        if bench.stop_requested() {
            measured.complete = false;
            return Ok(measured);
        }
        steps.start(bench as &dyn Bench, "command".to_owned());
        match bench.measure() {
            Ok(window) => {
                let is_complete =
                    |window: &ServicesSample| !window.interrupted && !window.lacks_cpus;
                measured.complete = window.as_ref().is_some_and(is_complete);
                if let Some(window) = window.as_ref().filter(|window| window.interrupted) {
                    let ms = window.window_ns as f64 / 1e6;
                    measured.left_out(format!("the command after {ms:.1} ms of its window"));
                }
                measured.samples.window = window;
            }
            Err(error) => measured.part_failed(Self::NAME, "command".to_owned(), error)?,
        }
        Ok(measured)
    }

    fn report(&self, samples: &Samples) -> Report {
        let Some(window) = &samples.window else { return Report::default() };
        let mut tables = vec![
            tables::services(window),
            tables::modes(window),
            tables::waits(window),
            tables::agreement(window),
        ];
        tables.extend(tables::cpu_times(window));
        tables.extend((!window.profile.is_empty()).then(|| tables::profile(window)));
        if let Some(locks) = &window.locks {
            tables.extend([tables::locks(window, locks), tables::service_locks(window, locks)]);
            tables.extend(tables::cgroup_locks(window, locks));
        }
        tables.extend(super::miss_tables(window));
        if self.histograms {
            tables.push(tables::histograms(window));
        }
        let mut facts = window.facts.clone();
        let mut warnings = window.warnings.clone();
        if let Some(timeline) = &window.timeline {
            tables.push(timeline::table::table([("command", &**timeline)]));
            facts.extend(timeline.facts());
            warnings.extend(timeline.warnings());
        }
        let command = ("command".to_owned(), json!(facts));
        let settings = Map::from_iter([
            (keys::CONDITIONS.to_owned(), json!(Map::from_iter([command]))),
            (keys::MEASURED_WINDOW_NS.to_owned(), json!(window.window_ns)),
        ]);
        let mut cpu_warnings = CpuWarnings::default();
        window.cpu_warnings.iter().cloned().for_each(|warning| cpu_warnings.add("", warning));
        Report {
            tables,
            settings,
            observer: window.observer.clone(),
            warnings: cpu_warnings
                .lines()
                .into_iter()
                .chain(warnings)
                .chain(tables::unknown_time(window))
                .collect(),
            absent: tables::absent_columns(window),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::tables::tests::sample;
    use super::*;

    #[test]
    fn a_run_states_the_length_of_its_window() {
        let window = ServicesSample { window_ns: 545_000_000, ..sample() };
        let report = Plan::default().report(&Samples { window: Some(window) });
        assert_eq!(report.settings[keys::MEASURED_WINDOW_NS], json!(545_000_000_u64));
    }
}
