//! How the plan is measured, and what is reported.

use record::Absence;
use stats::Random;

use super::bench::{FootprintBench, SeriesBench};
use super::estimate::{REPETITIONS_MIN, Stopping, accepted, excess, user_misses};
use super::plan::Plan;
use super::samples::Samples;
use super::series::{Ready, Series};
use super::trace::Trace;
use super::what::{Level, Method, Stimulus};
use super::{contexts, sums, tables, trace};
use crate::experiment::{BenchError, Experiment, Measured, Progress, Report, Steps};

/// Repetitions of treatment and of control between two checks of the interval.
const BATCH: usize = 8;

impl Experiment for Plan {
    const NAME: &'static str = "footprint";
    type Bench = dyn FootprintBench;
    type Samples = Samples;

    fn measure(
        &self,
        bench: &mut Self::Bench,
        progress: &mut dyn Progress,
    ) -> Result<Measured<Samples>, BenchError> {
        bench.measure(self, progress)
    }

    fn report(&self, samples: &Samples) -> Report {
        let all = &samples.series;
        let mut absent: Vec<Absence> = samples.traces.iter().filter_map(disturbed).collect();
        let mut tables = vec![
            tables::footprint(all, samples.clock_hz, &mut absent),
            tables::curves(all),
            sums::sums(all),
            contexts::modes(all, &samples.windows),
            contexts::by_context(all, &samples.windows),
            trace::table(&samples.traces),
        ];
        tables.retain(|table| !table.rows().is_empty());
        Report { tables, absent, ..Report::default() }
    }
}

/// A traced repetition that does not count.
fn disturbed(trace: &Trace) -> Option<Absence> {
    let why = trace.verdict.against()?;
    Some(Absence {
        table: "footprint".to_owned(),
        what: format!("trace of {}, {}, undisturbed", trace.level, trace.stimulus),
        reason: format!("no repetition was undisturbed; of the one that is shown: {why}"),
        remedy: None,
    })
}

/// Measures every series of the plan. Repetitions with and without the interrupt follow each other in
/// random order in small balanced batches, so that slow changes affect both alike, and periodic ones too.
///
/// # Errors
/// Where nothing can be measured.
pub fn measure_series(
    plan: &Plan,
    bench: &mut dyn SeriesBench,
    progress: &mut dyn Progress,
) -> Result<Measured<Samples>, BenchError> {
    let rounds = plan.rounds.max(1);
    let pairs = plan.levels.len() * plan.stimuli.len();
    let mut steps = Steps::new(rounds * pairs * plan.methods.len(), progress);
    let mut measured = Measured::<Samples>::default();
    measured.samples.clock_hz = bench.clock_hz();
    let mut order = Random::new(plan.seed);
    let mut done = 0;
    for round in 1..=rounds {
        for &level in &plan.levels {
            for &stimulus in &plan.stimuli {
                if bench.stop_requested() {
                    break;
                }
                let mut part =
                    Part { plan, round, level, stimulus, steps: &mut steps, order: &mut order };
                part.measure(bench, &mut measured)?;
                done += plan.methods.len();
                steps.skip_to(done);
            }
        }
        bench.forget();
    }
    measured.complete &= !bench.stop_requested();
    Ok(measured)
}

/// The series of one level and stimulus, in one round.
struct Part<'a, 'b> {
    plan: &'a Plan,
    round: usize,
    level: Level,
    stimulus: Stimulus,
    steps: &'a mut Steps<'b>,
    order: &'a mut Random,
}

/// A balanced batch in random order: with the interrupt or without, and how many in a row. The first of a
/// series is with it: a control window ends where a treatment window did.
fn random_order(order: &mut Random, number: usize, is_first: bool) -> Vec<(bool, usize)> {
    let mut all = [vec![true; number], vec![false; number]].concat();
    let (start, rest) = all.split_at_mut(usize::from(is_first && number > 0));
    debug_assert!(start.iter().all(|treatment| *treatment), "treatments come first");
    order.shuffle(rest);
    all.chunk_by(|one, next| one == next).map(|run| (run[0], run.len())).collect()
}

impl Part<'_, '_> {
    fn label(&self) -> String {
        format!("{}, {}", self.level, self.stimulus)
    }

    fn measure(
        &mut self,
        bench: &mut dyn SeriesBench,
        measured: &mut Measured<Samples>,
    ) -> Result<(), BenchError> {
        let (table, plan) = (Plan::NAME, self.plan);
        let ready = match bench.ready(self.level, self.stimulus) {
            Ok(ready) => ready,
            Err(error) => return measured.part_failed(table, self.label(), error),
        };
        for &method in &plan.methods {
            let mut label = format!("{}, {method}", self.label());
            if plan.rounds > 1 {
                label += &format!(", round {}", self.round);
            }
            self.steps.start(bench, label.clone());
            let (one, broke) = self.series(bench, method, &ready);
            // What was measured before it broke stays, if that is enough.
            let least = one.treatment.len().min(one.control.len());
            let is_first = (broke.is_none() || least >= REPETITIONS_MIN)
                && measured.samples.add(one, plan.rounds > 1);
            if let Some(error) = broke {
                bench.forget(); // what broke is not used again
                return measured.part_failed(table, label, error);
            }
            if plan.trace && is_first {
                match bench.trace(self.stimulus, method) {
                    Ok(trace) => measured.samples.traces.push(trace),
                    Err(error) => {
                        let what = format!("trace of {}", self.label());
                        measured.part_failed(table, what, error)?;
                    }
                }
            }
        }
        Ok(())
    }

    /// Repeats until it is enough. With an error it is what was measured until then.
    fn series(
        &mut self,
        bench: &mut dyn SeriesBench,
        method: Method,
        ready: &Ready,
    ) -> (Series, Option<BenchError>) {
        let Part { level, stimulus, .. } = *self;
        let mut series = Series {
            level,
            stimulus,
            method,
            ready: ready.clone(),
            treatment: Vec::new(),
            control: Vec::new(),
            rounds: Vec::new(),
        };
        let broke = self.repeat(bench, &mut series).err();
        (series, broke)
    }

    fn repeat(
        &mut self,
        bench: &mut dyn SeriesBench,
        series: &mut Series,
    ) -> Result<(), BenchError> {
        let Series { method, ready, treatment, control, .. } = series;
        let most = (self.plan.repetitions_max / self.plan.rounds.max(1)).max(REPETITIONS_MIN);
        let mut stopping = Stopping::default();
        while treatment.len() < most && !bench.stop_requested() {
            let number = BATCH.min(most - treatment.len());
            for (is_treatment, number) in random_order(self.order, number, treatment.is_empty()) {
                let some = bench.repeat(*method, is_treatment, number)?;
                if is_treatment { &mut *treatment } else { &mut *control }.extend(some);
            }
            let value = if ready.start_misses.is_some() { user_misses } else { excess };
            if stopping.is_enough(&accepted(treatment, value), &accepted(control, value)) {
                break;
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn batches_are_balanced_and_in_random_order() {
        let mut random = Random::new(1);
        let mut led_by_treatment = 0;
        for turn in 0..1_000 {
            let runs = random_order(&mut random, BATCH, turn == 0);
            let number = |of: bool| -> usize {
                runs.iter().filter(|run| run.0 == of).map(|run| run.1).sum()
            };
            assert_eq!((number(true), number(false)), (BATCH, BATCH));
            assert!(turn > 0 || runs[0].0, "the first has no control before a treatment");
            led_by_treatment += usize::from(runs[0].0);
        }
        assert!((450..550).contains(&led_by_treatment), "{led_by_treatment}");
        let same = |seed| random_order(&mut Random::new(seed), BATCH, false);
        assert_eq!(same(5), same(5));
        assert_ne!(same(5), same(6));
    }
}
