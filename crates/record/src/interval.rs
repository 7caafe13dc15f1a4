//! Links from a column to the columns with the uncertainty of its figures. `compare` and the terminal find intervals by
//! these links. Names of fields and variants are keys of the manifest.

use serde::{Deserialize, Serialize};

use crate::display::Combine;
use crate::table::{Column, Role};

/// The columns with the 95 % confidence interval of a column's figures, by name.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct IntervalColumns {
    pub ends: Ends,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub freedom: Option<Freedom>,
    /// The column with the standard deviation between windows that slow changes of the machine cause.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub drift: Option<String>,
    /// The columns with the ends of the 99.99 % interval.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub wide: Option<Bounds>,
    /// The column that says, in a word, how the interval was computed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub method: Option<String>,
}

/// The columns with the ends of an interval.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Ends {
    /// Half of the interval's width.
    HalfWidth(String),
    Bounds(Bounds),
}

/// The columns with the lower and the upper end of an interval.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Bounds {
    pub low: String,
    pub high: String,
}

/// The column with the degrees of freedom of an interval.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Freedom {
    Degrees(String),
    /// The number of repetitions, which is one more than the degrees of freedom.
    Repetitions(String),
}

impl Bounds {
    fn new(low: &str, high: &str) -> Bounds {
        Bounds { low: low.to_owned(), high: high.to_owned() }
    }
}

impl IntervalColumns {
    fn new(ends: Ends) -> IntervalColumns {
        IntervalColumns { ends, freedom: None, drift: None, wide: None, method: None }
    }

    /// An interval around the figure: the column of half its width.
    #[must_use]
    pub fn half_width(column: &str) -> IntervalColumns {
        IntervalColumns::new(Ends::HalfWidth(column.to_owned()))
    }

    /// An interval with two ends: the columns of its lower and upper end.
    #[must_use]
    pub fn bounds(low: &str, high: &str) -> IntervalColumns {
        IntervalColumns::new(Ends::Bounds(Bounds::new(low, high)))
    }

    /// Names the column with the degrees of freedom.
    #[must_use]
    pub fn degrees_of_freedom(mut self, column: &str) -> IntervalColumns {
        self.freedom = Some(Freedom::Degrees(column.to_owned()));
        self
    }

    /// Names the column with the number of repetitions, in place of the degrees of freedom.
    #[must_use]
    pub fn repetitions(mut self, column: &str) -> IntervalColumns {
        self.freedom = Some(Freedom::Repetitions(column.to_owned()));
        self
    }

    /// Names the column with the standard deviation between windows.
    #[must_use]
    pub fn drift(mut self, column: &str) -> IntervalColumns {
        self.drift = Some(column.to_owned());
        self
    }

    /// Names the columns with the ends of the 99.99 % interval.
    #[must_use]
    pub fn wide_bounds(mut self, low: &str, high: &str) -> IntervalColumns {
        self.wide = Some(Bounds::new(low, high));
        self
    }

    /// Names the column that says how the interval was computed.
    #[must_use]
    pub fn method(mut self, column: &str) -> IntervalColumns {
        self.method = Some(column.to_owned());
        self
    }

    /// The names of all linked columns.
    #[must_use]
    pub fn columns(&self) -> Vec<&str> {
        let IntervalColumns { ends, freedom, drift, wide, method } = self;
        let mut columns = Vec::new();
        match ends {
            Ends::HalfWidth(half_width) => columns.push(half_width),
            Ends::Bounds(Bounds { low, high }) => columns.extend([low, high]),
        }
        if let Some(Freedom::Degrees(column) | Freedom::Repetitions(column)) = freedom {
            columns.push(column);
        }
        columns.extend(wide.iter().flat_map(|Bounds { low, high }| [low, high]));
        columns.extend(drift.iter().chain(method));
        columns.into_iter().map(String::as_str).collect()
    }
}

impl Column {
    /// Links the column to the columns that hold its interval.
    #[must_use]
    pub fn interval(mut self, interval: IntervalColumns) -> Column {
        self.interval = Some(interval);
        self
    }

    /// Marks the column as a cost: the share of CPU time that a row took.
    #[must_use]
    pub fn cpu_share(mut self) -> Column {
        self.is_cpu_share = true;
        self.cost()
    }
}

/// Units that a column's name may end in; the longest first.
const UNITS: [&str; 7] = ["_cycles", "_bytes", "_ratio", "_lines", "_ns", "_hz", ""];

/// Links the columns of a table by their names, for runs of versions that recorded no links. For example, the half
/// width of `self_mean_ns` is the column `self_mean_ci95_ns`.
pub(crate) fn link_by_names(columns: &mut [Column]) {
    let names: Vec<String> = columns.iter().map(|column| column.name.clone()).collect();
    for column in columns.iter_mut().filter(|column| column.role != Role::Key) {
        column.interval = interval_by_names(column, &names);
    }
    let is_share =
        |column: &&mut Column| column.role == Role::Cost && column.name.ends_with("cpu_ratio");
    if let Some(share) = columns.iter_mut().find(is_share) {
        share.is_cpu_share = true;
    }
}

/// The interval of `column` by the naming rules of earlier versions, among the columns `names`. `None` if the table has
/// no interval for this column.
fn interval_by_names(column: &Column, names: &[String]) -> Option<IntervalColumns> {
    let unit = UNITS.into_iter().find(|unit| column.name.ends_with(unit)).unwrap_or("");
    let stem = column.name.strip_suffix(unit).unwrap_or(&column.name);
    let existing = |name: String| names.contains(&name).then_some(name);
    let companion = |suffix: &str| existing(format!("{stem}_{suffix}{unit}"));
    let bounds = |interval: &str| {
        let low = companion(&format!("{interval}_low"))?;
        Some(Bounds { low, high: companion(&format!("{interval}_high"))? })
    };
    let combined = match &column.display.combine {
        Some(Combine::PlusMinus(half_width)) => existing(half_width.clone()),
        _ => None,
    };
    let ends = combined
        .map(Ends::HalfWidth)
        .or_else(|| bounds("ci95").map(Ends::Bounds))
        .or_else(|| companion("ci95").map(Ends::HalfWidth))?;
    let freedom = existing(format!("{stem}_ci95_dof")).map(Freedom::Degrees);
    let freedom = freedom.or_else(|| existing("repetitions".to_owned()).map(Freedom::Repetitions));
    let (drift, wide) = (companion("drift"), bounds("ci9999"));
    let method = existing(format!("{stem}_ci95_method"));
    let quantile_method = || match &ends {
        Ends::Bounds(_) => existing("quantiles_ci95_method".to_owned()),
        Ends::HalfWidth(_) => None,
    };
    let method = method.or_else(quantile_method);
    Some(IntervalColumns { ends, freedom, drift, wide, method })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::table::Kind;

    #[test]
    fn earlier_runs_are_linked_by_names() {
        let figure = |name: &str| Column::new(name, Kind::Real, "");
        let half_width = |column: &str| Some(IntervalColumns::half_width(column));
        let names = [
            "rate_hz",
            "rate_ci95_hz",
            "rate_ci95_dof",
            "rate_drift_hz",
            "rate_ci95_method",
            "p99_ns",
            "p99_ci95_low_ns",
            "p99_ci95_high_ns",
            "p99_ci9999_low_ns",
            "p99_ci9999_high_ns",
            "median_ns",
            "self_cpu_ratio",
        ];
        let mut columns: Vec<Column> = names.map(figure).to_vec();
        columns.extend([figure("mean").plus_minus("median_ns"), figure("cpu_ratio").cost()]);
        columns.iter_mut().for_each(|column| column.interval = None);
        link_by_names(&mut columns);
        let links_of = |name: &str| {
            let column = columns.iter().find(|column| column.name == name).unwrap();
            (column.interval.clone(), column.is_cpu_share)
        };
        let rate = half_width("rate_ci95_hz").map(|interval| {
            interval
                .degrees_of_freedom("rate_ci95_dof")
                .drift("rate_drift_hz")
                .method("rate_ci95_method")
        });
        let p99 = IntervalColumns::bounds("p99_ci95_low_ns", "p99_ci95_high_ns");
        let p99 = p99.wide_bounds("p99_ci9999_low_ns", "p99_ci9999_high_ns");
        assert_eq!(links_of("rate_hz"), (rate, false));
        assert_eq!(links_of("p99_ns"), (Some(p99), false));
        assert_eq!(links_of("mean"), (half_width("median_ns"), false));
        assert_eq!(links_of("median_ns"), (None, false));
        assert_eq!(links_of("self_cpu_ratio"), (None, false), "no cost");
        assert_eq!(links_of("cpu_ratio"), (None, true));
        // The number of repetitions is in the degrees of freedom of all intervals without their own.
        columns.push(figure("repetitions"));
        link_by_names(&mut columns);
        let mean = columns.iter().find(|column| column.name == "mean").unwrap();
        let by_repetitions =
            half_width("median_ns").map(|interval| interval.repetitions("repetitions"));
        assert_eq!(mean.interval, by_repetitions);
    }
}
