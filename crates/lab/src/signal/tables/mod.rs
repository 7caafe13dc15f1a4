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
    let (model, absent) = fit::Model::fitted(&points);
    let tables = vec![
        rates::rates(&points, &model),
        throughput::throughput(plan, &samples.transfers),
        round_trips::round_trips(&samples.round_trips),
        fit::costs(&model),
        fit::crossovers(&points, &model),
        fit::curves(&points, &model),
        fit::regions(&points, &model),
    ];
    (tables, absent)
}

/// Warnings for the reader of the numbers.
pub(super) fn warnings(samples: &Samples) -> Vec<String> {
    rates::warnings(&samples.rates)
}
