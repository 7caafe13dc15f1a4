//! Any table is read as it was written.

mod common;

use proptest::collection::{btree_set, vec};
use proptest::option;
use proptest::prelude::*;
use record::{Column, Kind, Run, Table, Value, read_run, write_run};

fn value(kind: Kind) -> BoxedStrategy<Value> {
    let some = match kind {
        Kind::Bool => any::<bool>().prop_map(Value::Bool).boxed(),
        Kind::Uint => any::<u64>().prop_map(Value::Uint).boxed(),
        Kind::Int => any::<i64>().prop_map(Value::Int).boxed(),
        Kind::Real => any::<f64>().prop_map(Value::real).boxed(),
        Kind::Text => any::<String>().prop_map(Value::Text).boxed(),
    };
    option::of(some).prop_map(|value| value.unwrap_or(Value::Absent)).boxed()
}

fn kind() -> impl Strategy<Value = Kind> {
    prop::sample::select(Kind::ALL.to_vec())
}

fn columns() -> impl Strategy<Value = Vec<Column>> {
    let names = btree_set("[a-z0-9_]{1,8}", 1..8).prop_map(Vec::from_iter).prop_shuffle();
    names.prop_flat_map(|names| {
        let kinds = vec((kind(), any::<String>()), names.len());
        kinds.prop_map(move |kinds| {
            let columns = names.iter().zip(kinds);
            columns.map(|(name, (kind, doc))| Column::new(name, kind, &doc)).collect()
        })
    })
}

fn table(name: String) -> impl Strategy<Value = Table> {
    (columns(), any::<String>()).prop_flat_map(move |(columns, doc)| {
        let row: Vec<_> = columns.iter().map(|column| value(column.kind)).collect();
        let empty = Table::new(&name, &doc, columns);
        vec(row, 0..40).prop_map(move |rows| {
            let mut table = empty.clone();
            rows.into_iter().for_each(|row| table.push(row));
            table
        })
    })
}

fn run() -> impl Strategy<Value = Run> {
    let names = btree_set("[a-z0-9_]{1,8}", 0..4);
    let tables = names.prop_flat_map(|names| names.into_iter().map(table).collect::<Vec<_>>());
    (tables, any::<bool>(), vec(any::<String>(), 0..3)).prop_map(|(tables, complete, warnings)| {
        Run { tables, complete, warnings, ..common::sample() }
    })
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    #[test]
    fn what_is_written_is_read(run in run()) {
        let parent = tempfile::tempdir().unwrap();
        let dir = parent.path().join("run");
        write_run(&run, &[], &dir).unwrap();
        prop_assert_eq!(read_run(&dir).unwrap(), run);
    }
}

#[test]
fn many_rows_make_several_row_groups() {
    let mut table = Table::new("t", "", vec![Column::new("n", Kind::Uint, "")]);
    let rows = (1 << 20) + 3_u64;
    (0..rows).for_each(|n| table.push(vec![if n % 3 == 0 { Value::Absent } else { n.into() }]));
    let run = Run { tables: vec![table], ..common::sample() };
    let parent = tempfile::tempdir().unwrap();
    let dir = parent.path().join("run");
    write_run(&run, &[], &dir).unwrap();
    assert!(read_run(&dir).unwrap() == run);
}
