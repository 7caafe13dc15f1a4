//! The inputs that fuzzing starts from.
//!
//! `fuzz/corpus/TARGET` has the text inputs of a target, and the inputs that once broke a reader. A file `*.hex` has
//! bytes as hexadecimal digits. This file makes binary inputs, if the code under test can write them.

use std::fs;
use std::path::Path;

use lab::experiment::{BenchError, BenchFacts, Measured};
use record::{Absence, Column, Format, Kind, Run, SCHEMA, Table, TableDisplay, Value, write_run};
use serde::Serialize;
use serde_json::{Map, json};
use simrecord::record::{
    BYTES, Check, ContextRow, Detail, End, Header, Marker, Record, Region, Roi, Task, UserFunction,
};

use crate::scratch;

/// The symbols of a kernel, with the names that [`sample_btf`] describes.
pub(crate) const KALLSYMS: &str = include_str!("../../../fuzz/corpus/kallsyms/kernel.txt");

/// The types of a kernel: `task_struct`, `entity`, and the function `do_open`.
pub(crate) fn sample_btf() -> Vec<u8> {
    from_hex(include_str!("../../../fuzz/corpus/btf/task.hex")).expect("hexadecimal digits")
}

/// The inputs that fuzzing of this target starts from, always in the same order.
///
/// # Panics
/// When a file of the corpus cannot be read.
#[must_use]
pub fn seeds(target: &str) -> Vec<Vec<u8>> {
    let directory = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../fuzz/corpus").join(target);
    let mut paths: Vec<_> = fs::read_dir(&directory).into_iter().flatten().flatten().collect();
    paths.sort_by_key(fs::DirEntry::path);
    let mut inputs: Vec<Vec<u8>> = Vec::new();
    for path in paths.iter().map(fs::DirEntry::path) {
        let bytes = fs::read(&path).expect("a file of the corpus");
        let is_hex = path.extension().is_some_and(|extension| extension == "hex");
        let text = String::from_utf8_lossy(&bytes);
        inputs.push(if is_hex {
            from_hex(&text).expect("hexadecimal digits")
        } else {
            bytes.clone()
        });
    }
    inputs.extend(encoded_inputs(target));
    inputs
}

/// The inputs of this target that code of irqlab encodes.
fn encoded_inputs(target: &str) -> Vec<Vec<u8>> {
    match target {
        "manifest" => vec![written("manifest.json")],
        "parquet" => {
            let rows = sample_run().tables[0].rows().len() as u8;
            vec![[vec![rows], written("tables/handlers.parquet")].concat()]
        }
        "compare" => {
            let rule = format!("{:32}", "handlers.mean_ns>+2%\nhandlers>1");
            vec![[rule.into_bytes(), (0..=255).cycle().take(5 * 8 * 6).collect()].concat()]
        }
        "machine_model" => {
            let text = |name| sim::models::text(name).expect("a model").into_bytes();
            ["zen3", "r4400-smp8", "t1", "golden-cove"].map(text).to_vec()
        }
        "kernel_image" => vec![[vec![0; 0x202], b"HdrS".to_vec(), vec![0; 64]].concat()],
        "plugin_record" => vec![plugin_record()],
        "guest_response" => {
            let window = lab::handlers::in_guest::GuestWindow::default();
            vec![
                response(Ok(lab::handlers::in_guest::items(window))),
                response(Ok(lab::footprint::in_guest::items(
                    Measured::default(),
                    BenchFacts::default(),
                ))),
                response::<u64>(Err(BenchError::Failed("no probes".to_owned()))),
            ]
        }
        _ => Vec::new(),
    }
}

/// A guest's response, as the lines that the guest prints.
fn response<T: Serialize>(response: Result<Vec<T>, BenchError>) -> Vec<u8> {
    lab::guest_protocol::encode(response).join("\n").into_bytes()
}

/// The contents of a file of the sample run, as crate `record` writes it.
fn written(file: &str) -> Vec<u8> {
    let parent = scratch();
    let directory = parent.path().join("run");
    write_run(&sample_run(), &[], &directory).expect("the sample is written");
    fs::read(directory.join(file)).expect("a file of the sample")
}

/// A run with each kind of column, hints for its display, and texts that a printer must escape.
pub(crate) fn sample_run() -> Run {
    let columns = vec![
        Column::new("name", Kind::Text, "Name."),
        Column::new("count", Kind::Uint, "Number.").detail(),
        Column::new("difference_ns", Kind::Int, "Difference."),
        Column::new("mean_ns", Kind::Real, "Mean.")
            .title("mean")
            .plus_minus("difference_ns")
            .format(Format::Microseconds),
        Column::new("shared", Kind::Bool, "Shared."),
    ];
    let display = TableDisplay {
        title: "costs".to_owned(),
        headline: "largest: {name}, {mean_ns}".to_owned(),
        group_by: vec!["shared".to_owned()],
        sort_by: Some("mean_ns".to_owned()),
        rows_max: Some(2),
        notes: vec!["seed {settings.seed}".to_owned()],
        ..TableDisplay::default()
    };
    let mut table = Table::new("handlers", "One row per context.", columns).displayed(display);
    for (name, count) in [("disk|`<b>`", 0), ("\u{1b}[31m\u{202e}\n", u64::MAX), ("", 7)] {
        let difference = Value::Int(-(count as i64));
        table.push(vec![name.into(), count.into(), difference, Value::Real(0.5), true.into()]);
    }
    table.push(vec![Value::Absent; 5]);
    Run {
        schema: SCHEMA.to_owned(),
        experiment: "handlers".to_owned(),
        bench: "live".to_owned(),
        started_utc: "2026-11-21T07:50:41Z".to_owned(),
        complete: true,
        host: Map::from_iter([("kernel".to_owned(), json!("6.12.0"))]),
        settings: Map::from_iter([("seed".to_owned(), json!(1))]),
        observer: Map::from_iter([("events_lost".to_owned(), json!(0))]),
        warnings: vec!["a virtual machine".to_owned()],
        absent: vec![Absence::new("handlers", "cycles", "no PMU")],
        tables: vec![table],
    }
}

/// A short record of the plugin that has many kinds of entries.
fn plugin_record() -> Vec<u8> {
    let region = Region {
        cpu: 0,
        region: 1,
        unknown_gates: 0,
        unmatched_returns: 0,
        abandoned: 0,
        overflows: 0,
        broken: 0,
        opened_at: 9,
    };
    let marker = Marker {
        cpu: 0,
        number: 17,
        argument: 3,
        open: true,
        interrupts: 2,
        exceptions: 1,
        handled_faults: 4,
    };
    let header = Header {
        cpus: 1,
        api: 7,
        detail: Detail::Count,
        roi: Roi::Marker,
        vcpu_slice: 1000,
        qemu: *b"11.1.3\0\0\0\0\0\0\0\0\0\0",
        features: 0,
        counters: 0,
    };
    let mut records = vec![
        Record::Header(header),
        Record::Task(Task { pid: 1, comm: *b"init\0\0\0\0\0\0\0\0\0\0\0\0" }),
        Record::Marker(marker),
        Record::Region(region),
        Record::Context(ContextRow { cpu: 0, region: 1, code: 0, entries: 5, completed: 5 }),
        Record::Check(Check { counted: 100, icount: 100 }),
    ];
    records.extend(UserFunction::of_name(1, "main [cc1]").map(Record::UserFunction));
    let end = End {
        by_marker: true,
        by_annotation: false,
        truncated: false,
        instructions: None,
        records: 0,
    };
    records.push(Record::End(End { records: records.len() as u64, ..end }));
    let encoded: Vec<[u8; BYTES]> = records.iter().map(Record::encode).collect();
    encoded.concat()
}

/// The bytes of hexadecimal digits with any white space. `None` for another character or an odd number of digits.
fn from_hex(text: &str) -> Option<Vec<u8>> {
    let digits: Vec<u32> = text
        .chars()
        .filter(|character| !character.is_whitespace())
        .map(|character| character.to_digit(16))
        .collect::<Option<_>>()?;
    let (pairs, rest) = digits.as_chunks::<2>();
    rest.is_empty().then(|| pairs.iter().map(|[high, low]| (high << 4 | low) as u8).collect())
}
