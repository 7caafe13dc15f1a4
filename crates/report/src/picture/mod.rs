//! Pictures of a run, as SVG, a panel for each CPU.

mod frame;
mod repetitions;
mod sizes;
mod spectrum;

use record::Run;

pub use repetitions::repetitions_svg;
pub use sizes::sizes_svg;
pub use spectrum::spectrum_svg;

/// All pictures that the run has tables for: file name and content.
#[must_use]
pub fn pictures(run: &Run) -> Vec<(&'static str, String)> {
    let all = [
        ("repetitions.svg", repetitions_svg(run)),
        ("sizes.svg", sizes_svg(run)),
        ("spectrum.svg", spectrum_svg(run)),
    ];
    all.into_iter().filter_map(|(name, svg)| Some((name, svg?))).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use record::{Column, Kind, Table};
    use serde_json::Map;

    /// A run with a table of numbers, and one of detours of CPU 1: length and largest cause.
    pub(super) fn run_of(
        columns: &[&str],
        name: &str,
        numbers: &[&[u64]],
        detours: &[(u64, Option<&str>)],
    ) -> Run {
        let uint = |name: &str| Column::new(name, Kind::Uint, "For a test.");
        let text = Column::new("largest_name", Kind::Text, "For a test.");
        let mut table =
            Table::new(name, "For a test.", columns.iter().map(|name| uint(name)).collect());
        for row in numbers {
            table.push(row.iter().map(|number| (*number).into()).collect());
        }
        let mut singles =
            Table::new("detours", "For a test.", vec![uint("cpu"), uint("length_ns"), text]);
        for &(length_ns, cause) in detours {
            singles.push(vec![1_u64.into(), length_ns.into(), cause.into()]);
        }
        Run {
            schema: record::SCHEMA.to_owned(),
            experiment: "noise".to_owned(),
            bench: "live".to_owned(),
            started_utc: String::new(),
            complete: true,
            host: Map::new(),
            settings: Map::new(),
            observer: Map::new(),
            warnings: vec![],
            absent: vec![],
            tables: vec![table, singles],
        }
    }

    #[test]
    fn a_run_has_the_pictures_that_it_has_tables_for() {
        let columns = ["cpu", "bucket_min_ns", "bucket_max_ns", "detour_count"];
        let run = run_of(&columns, "detour_histogram", &[&[1, 1000, 1063, 9]], &[(1020, None)]);
        let names: Vec<&str> = pictures(&run).into_iter().map(|(name, _)| name).collect();
        assert_eq!(names, ["sizes.svg"]);
    }
}
