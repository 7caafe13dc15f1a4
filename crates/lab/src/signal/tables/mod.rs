//! The tables of `signal run`, computed from the samples. `experiment.rs` puts them into the report.

mod columns;
mod fit;
mod point;
mod rates;
mod regions;
mod round_trips;
mod throughput;

use record::{Absence, Table};

use super::plan::Plan;
use super::rig::Rig;
use super::sample::Samples;

pub(super) use fit::cost_table;
pub(super) use regions::region_table;

/// Name of the table of the sweep over event rates.
pub(super) const RATES: &str = "rates";
/// Name of the table of the sweep over socket buffers.
pub(super) const THROUGHPUT: &str = "throughput";
/// Name of the table of round trips.
pub(super) const ROUND_TRIPS: &str = "round_trips";

/// All tables, the most important first, and the absences: columns that the tables lack.
pub(super) fn all(plan: &Plan, samples: &Samples) -> (Vec<Table>, Vec<Absence>) {
    let points = point::points(&samples.rates);
    let (model, absent) = match plan.rig {
        Rig::Nvme => fit::Model::of_a_device(&points),
        _ => fit::Model::fitted(&points),
    };
    let mut tables = vec![
        rates::rates(&points, &model),
        throughput::throughput(plan, &samples.transfers),
        round_trips::round_trips(&samples.round_trips),
    ];
    if plan.rig != Rig::Nvme {
        tables.extend([
            fit::costs(&model),
            fit::crossovers(&points, &model),
            fit::curves(&points, &model),
            fit::regions(&points, &model),
        ]);
    }
    (tables, absent)
}

/// Warnings for the reader of the numbers.
pub(super) fn warnings(samples: &Samples) -> Vec<String> {
    rates::warnings(&samples.rates)
}

#[cfg(test)]
mod tests {
    use signalling::Scheme;
    use stats::Distribution;

    use super::super::sample::{Activity, Leftover, Load, RatePoint, RateWindow};
    use super::*;

    /// Windows of two schemes at three rates, with measured CPU use.
    fn windows() -> Vec<RateWindow> {
        let mut latency = Distribution::default();
        latency.record(90_000, 1);
        let window = |scheme: &str, rate_hz: u64, iterations: u64| RateWindow {
            point: RatePoint {
                scheme: scheme.parse::<Scheme>().unwrap(),
                load: Load::Background,
                rate_hz,
            },
            offered: rate_hz,
            delivered: rate_hz,
            dropped: 0,
            latency: latency.clone(),
            lateness: Distribution::default(),
            activity: Activity {
                window_ns: 1_000_000_000,
                leftover: Some(Leftover {
                    iterations,
                    control_iterations: 1_000,
                    control_ns: 1_000_000_000,
                    control_job_ns: 1_000_000_000,
                    job_ns: 1_000_000_000,
                }),
                ..Activity::default()
            },
        };
        let rows = [(1_000, 990, 980), (5_000, 950, 940), (20_000, 800, 900)];
        let windows = |(rate_hz, interrupt, spin)| {
            [window("interrupt", rate_hz, interrupt), window("coalesced:8,100us", rate_hz, spin)]
        };
        rows.into_iter().flat_map(windows).collect()
    }

    #[test]
    fn the_cost_model_is_not_fitted_to_reads_of_a_disk() {
        let plan = |rig| Plan {
            rig,
            parts: Vec::new(),
            schemes: Vec::new(),
            loads: Vec::new(),
            rates_hz: Vec::new(),
            request_rate_hz: 0,
            socket_buffers_bytes: Vec::new(),
            repetitions: 1,
            seed: 0,
        };
        let samples = Samples { rates: windows(), ..Samples::default() };
        let rows = |tables: &[Table], name: &str| {
            tables.iter().find(|table| table.name == name).map_or(0, |table| table.rows().len())
        };
        let (threads, absent) = all(&plan(Rig::Threads), &samples);
        assert_eq!(absent.len(), 0);
        assert!(rows(&threads, "costs") > 0 && rows(&threads, "crossovers") > 0);
        let (nvme, absent) = all(&plan(Rig::Nvme), &samples);
        assert_eq!(absent.len(), 1);
        assert_eq!(absent[0].reason, "the cost model has no time of a device");
        for name in ["costs", "crossovers", "curves", "regions"] {
            assert_eq!(rows(&nvme, name), 0, "{name}");
        }
        let rates = nvme.iter().find(|table| table.name == RATES).unwrap();
        assert_eq!(rates.rows().len(), 6);
        for row in rates.rows() {
            let predicted = rates.get(row, "predicted_cpu_ratio");
            assert!(matches!(predicted, None | Some(record::Value::Absent)), "{predicted:?}");
        }
    }
}
