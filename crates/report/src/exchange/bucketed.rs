//! Reads the histograms of a run from its tables, for the formats `hlog` and `metrics`.
//!
//! A table of histograms has a row for each filled bucket. The bounds of the bucket are in the columns `bucket_min` and
//! `bucket_max`, or `low` and `high`. Their names have a unit as suffix if all values of the column have one unit. A
//! further column holds the count.

use std::collections::BTreeMap;

use record::{Kind, Run, Table, Value};

use crate::row::Row;

/// A bucket; both bounds are included.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Bucket {
    pub min: u64,
    pub max: u64,
    /// Number of values in the bucket.
    pub count: u64,
}

/// One histogram of a table.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Histogram {
    /// The measured quantity; empty where the table has only one.
    pub quantity: String,
    /// The columns that identify the histogram and their values, in the table's order. Absent values are left out.
    pub labels: Vec<(String, String)>,
    /// The filled buckets, from below.
    pub buckets: Vec<Bucket>,
}

/// A table whose rows are buckets of histograms.
#[derive(Clone, Debug)]
pub(super) struct Bucketed<'a> {
    pub table: &'a Table,
    /// The table's histograms, in the order of their first rows.
    pub histograms: Vec<Histogram>,
}

/// The tables of a run whose rows are buckets.
pub(super) fn bucketed_tables(run: &Run) -> Vec<Bucketed<'_>> {
    run.tables.iter().filter_map(histograms_of).collect()
}

/// The histograms of a table, or `None` if its rows are not buckets.
pub(super) fn histograms_of(table: &Table) -> Option<Bucketed<'_>> {
    let column = |prefix: &str, kind| {
        let has_kind =
            |column: &&record::Column| column.kind == kind && column.name.starts_with(prefix);
        table.columns.iter().find(has_kind).map(|column| column.name.as_str())
    };
    let bounds = [("bucket_min", "bucket_max"), ("low_", "high_")];
    let both_columns = |(min, max)| column(min, Kind::Uint).zip(column(max, Kind::Uint));
    let (min, max) = bounds.into_iter().find_map(both_columns)?;
    let is_count =
        |column: &&record::Column| column.kind == Kind::Uint && column.name.ends_with("count");
    let count = &table.columns.iter().find(is_count)?.name;
    let names = table.columns.iter().map(|column| column.name.as_str());
    let label_names: Vec<&str> =
        names.filter(|name| ![min, max, count.as_str(), "quantity"].contains(name)).collect();
    let mut histograms: Vec<Histogram> = Vec::new();
    let mut indices = BTreeMap::new();
    for values in table.rows() {
        let row = Row::new(table, values);
        let number = |column: &str| match row.get(column) {
            record::Value::Uint(number) => Some(*number),
            _ => None,
        };
        let (Some(min), Some(max), Some(count)) = (number(min), number(max), number(count)) else {
            continue;
        };
        let labels = label_names.iter().map(|name| ((*name).to_owned(), label(row.get(name))));
        let labels: Vec<(String, String)> = labels.filter(|(_, value)| !value.is_empty()).collect();
        let quantity = label(row.get("quantity"));
        let index = *indices.entry((quantity.clone(), labels.clone())).or_insert_with(|| {
            histograms.push(Histogram { quantity, labels, buckets: Vec::new() });
            histograms.len() - 1
        });
        histograms[index].buckets.push(Bucket { min, max: max.max(min), count });
    }
    histograms.iter_mut().for_each(|histogram| histogram.buckets.sort_unstable());
    Some(Bucketed { table, histograms })
}

/// Whether a quantity is a time in ns: by the names of the columns, or because it is a self or inclusive time.
pub(super) fn is_time(table: &Table, quantity: &str) -> bool {
    let ns_bounds = ["bucket_max_ns", "high_ns"];
    let has_ns_bounds =
        table.columns.iter().any(|column| ns_bounds.contains(&column.name.as_str()));
    has_ns_bounds || ["self", "inclusive"].contains(&quantity)
}

/// A value as the value of a label. An absent value is empty, which means in metrics that there is no such label.
pub(super) fn label(value: &Value) -> String {
    match value {
        Value::Absent => String::new(),
        Value::Bool(value) => value.to_string(),
        Value::Uint(value) => value.to_string(),
        Value::Int(value) => value.to_string(),
        Value::Real(value) => value.to_string(),
        Value::Text(text) => text.clone(),
    }
}
