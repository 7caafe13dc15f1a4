//! Sampled simulation (`--detail sampled`) of `sim boot` and `sim workload`: the options, and the decision whether to
//! run again with more units. A unit is the stretch of instructions that is measured in each sampling period.

use anyhow::bail;
use sim::models::{Model, SAMPLE_PERIOD};
use sim::watch::{PERIOD_MAX, Sampling};
use sim::{Accounting, SampledCycles, WARMING_ERROR};

use crate::console;
use crate::options::Usage;

/// Largest share of instructions that is simulated in detail. Beyond it, `--detail ooo` is the better choice.
const DETAIL_MAX: f64 = 0.5;
/// The target applies to the total and to each context with at least this share of the cycles.
const SHARE_MIN: f64 = 0.1;
/// Factor on the computed number of units, because the variance of the last run is only an estimate.
const MARGIN: f64 = 1.2;
/// Factor on the number of units if the last run had too few units for an interval.
const MORE_UNITS: f64 = 10.0;
/// Largest number of runs.
const RUNS_MAX: u32 = 4;

/// Options of `--detail sampled`.
#[derive(Clone, Copy, Debug, clap::Args)]
pub struct SampleArgs {
    /// With --detail sampled: the largest half width of the 95 % interval of the cycles, in percent of their
    /// number. It applies to the total and to each context with a tenth of the cycles; irqlab repeats the run
    /// with more units until all are within it [default: 2%]
    #[arg(long, value_name = "PERCENT", value_parser = target)]
    target: Option<f64>,
    /// With --detail sampled: the first run measures one unit in each N instructions [default: 100000]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u64).range(2_000..=PERIOD_MAX))]
    sample_period: Option<u64>,
    /// With --detail sampled: seed of the random positions of the units [default: 1]
    #[arg(long, value_name = "N")]
    sample_seed: Option<u64>,
}

/// Parses the value of `--target`: a ratio, from percent.
fn target(text: &str) -> Result<f64, String> {
    let number = text.strip_suffix('%').and_then(|number| number.trim().parse::<f64>().ok());
    // More than the warming error of half a percent, which every interval contains for any number of units.
    let fits = |percent: &f64| (0.6..=50.0).contains(percent);
    number
        .filter(fits)
        .map(|percent| percent / 100.0)
        .ok_or_else(|| "must be 0.6% to 50%".to_owned())
}

impl SampleArgs {
    /// The sampling of the first run, or `None` without `--detail sampled`.
    ///
    /// Fails when an option of sampling is given without `--detail sampled`, or the model has no
    /// out-of-order core.
    pub fn first_sampling(
        &self,
        model: Option<&Model>,
        is_sampled: bool,
    ) -> anyhow::Result<Option<Sampling>> {
        let has_options =
            self.target.is_some() || self.sample_period.is_some() || self.sample_seed.is_some();
        let model = if is_sampled { model } else { None };
        let Some(model) = model else {
            if has_options {
                let text = "--target, --sample-period and --sample-seed need --detail sampled";
                bail!(Usage(text.to_owned()));
            }
            return Ok(None);
        };
        let sampling = model.sampling(self.sample_period.unwrap_or(SAMPLE_PERIOD))?;
        Ok(Some(Sampling { seed: self.sample_seed.unwrap_or(1), ..sampling }))
    }

    /// The sampling of the next run, or `None` if the target is reached or out of reach. Prints the widest interval
    /// and the decision. `run`: how many runs have ended. `account`: the record of the last of them.
    pub fn next_sampling(
        &self,
        last: Sampling,
        run: u32,
        account: &Accounting,
    ) -> Option<Sampling> {
        let regions = account.sampled_cycles();
        let widest_interval = if regions.is_empty() {
            None
        } else {
            regions
                .iter()
                .map(|rows| widest(rows))
                .try_fold(0.0_f64, |widest, interval| Some(widest.max(interval?)))
        };
        let target = self.target.unwrap_or(0.02);
        let percent = |ratio: f64| format!("{:.2} %", 100.0 * ratio);
        let text = match widest_interval {
            Some(interval) => format!("widest 95 % interval: ±{}", percent(interval)),
            None => "too few units for an interval".to_owned(),
        };
        let text = format!("{text}, one unit per {} instructions", last.period);
        if widest_interval.is_some_and(|interval| interval <= target) {
            console::say(&format!("{text}; the target of {} is reached", percent(target)));
            return None;
        }
        // The sampling error shrinks with more units; the warming error does not.
        let sampling_variance = |interval: f64| interval.powi(2) - WARMING_ERROR.powi(2);
        let factor = widest_interval.map_or(MORE_UNITS, |interval| {
            sampling_variance(interval) / sampling_variance(target) * MARGIN
        });
        let shortest_period = (last.warming + last.unit) as f64 / DETAIL_MAX;
        let period = (last.period as f64 / factor).max(shortest_period) as u64;
        if run >= RUNS_MAX || period >= last.period {
            let target = percent(target);
            console::warn(&format!(
                "{text}; the target of {target} is not reached (--detail ooo simulates everything)"
            ));
            return None;
        }
        console::say(&format!("{text}; repeating with one unit per {period}"));
        Some(Sampling { period, ..last })
    }
}

/// The widest relative interval among a region's rows with at least [`SHARE_MIN`] of its cycles: the target applies to
/// such rows. `None` if a row with so large a share has no interval.
fn widest(rows: &[SampledCycles]) -> Option<f64> {
    let all = rows.iter().find(|row| row.context.is_none())?;
    let has_target = |row: &&SampledCycles| row.cycles.total >= SHARE_MIN * all.cycles.total;
    rows.iter()
        .filter(has_target)
        .map(SampledCycles::relative)
        .try_fold(0.0_f64, |widest, relative| Some(widest.max(relative?)))
}

#[cfg(test)]
mod tests {
    use sim::KernelContext;
    use stats::regression::TotalEstimate;

    use super::*;

    fn row(context: Option<KernelContext>, total: f64, half_width: Option<f64>) -> SampledCycles {
        let cycles = TotalEstimate { total, half_width };
        let (instructions, entries, units, sampled_instructions) = (1, 1, 9, 1);
        SampledCycles { context, instructions, entries, cycles, units, sampled_instructions }
    }

    #[test]
    fn the_target_applies_to_contexts_with_a_tenth_of_the_cycles() {
        let (user, idle) = (Some(KernelContext::User(1)), Some(KernelContext::Idle));
        let all = row(None, 100.0, Some(1.0));
        let rows = [all, row(user, 80.0, Some(2.0)), row(idle, 5.0, Some(4.0))];
        assert_eq!(widest(&rows), Some(0.025));
        assert_eq!(widest(&[all, row(user, 80.0, None)]), None);
    }

    #[test]
    fn targets_are_percentages() {
        assert_eq!(target("2%"), Ok(0.02));
        for wrong in ["2", "0%", "0.5%", "90%", "x%", ""] {
            assert!(target(wrong).is_err(), "{wrong}");
        }
    }
}
