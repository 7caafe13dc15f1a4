//! Fuzz targets for readers of a run directory: of its manifest, of the Parquet file of a table, and of the
//! comparison of two runs. Each prints what it reads, in every format.

use std::cell::RefCell;
use std::fs;
use std::path::Path;

use lab::compare::Plan;
use record::{Run, SCHEMA, read_run, write_run};
use report::TerminalOptions;
use serde_json::{Map, Value as Json, json};

use crate::scratch;
use crate::seeds::sample_run;

/// A directory with a sample run. Each thread has its own, and each input replaces some of its files.
struct RunDirectory {
    parent: tempfile::TempDir,
    /// The manifest of the sample; `parquet` changes it.
    manifest: Map<String, Json>,
}

impl RunDirectory {
    fn new() -> RunDirectory {
        let parent = scratch();
        write_run(&sample_run(), &[], &parent.path().join("run")).expect("the sample is written");
        let text = fs::read(parent.path().join("run/manifest.json")).expect("a manifest");
        let manifest = serde_json::from_slice(&text).expect("a manifest is JSON");
        RunDirectory { parent, manifest }
    }

    fn path(&self) -> std::path::PathBuf {
        self.parent.path().join("run")
    }

    fn write(&self, name: &str, bytes: &[u8]) {
        fs::write(self.path().join(name), bytes).expect("memory for a file");
    }
}

thread_local! {
    static MANIFEST: RefCell<RunDirectory> = RefCell::new(RunDirectory::new());
    static PARQUET: RefCell<RunDirectory> = RefCell::new(RunDirectory::new());
}

/// Reads any bytes as `manifest.json`, with the tables of a valid run.
pub(crate) fn manifest(bytes: &[u8]) {
    MANIFEST.with_borrow(|directory| {
        directory.write("manifest.json", bytes);
        show(&directory.path());
    });
}

/// Reads any bytes as the Parquet file of a table. The manifest has the file's size and checksum, so the reader
/// decodes it. The first byte of the input is the number of rows in the manifest.
pub(crate) fn parquet(bytes: &[u8]) {
    let Some((rows, file)) = bytes.split_first() else { return };
    PARQUET.with_borrow_mut(|directory| {
        let mut table = Map::new();
        table.insert("rows".to_owned(), json!(rows));
        table.insert("bytes".to_owned(), json!(file.len()));
        table.insert("crc32".to_owned(), json!(crc32(file)));
        let entry = directory.manifest["tables"][0].as_object_mut().expect("a table");
        entry.append(&mut table);
        let text = serde_json::to_vec(&directory.manifest).expect("JSON");
        directory.write("manifest.json", &text);
        directory.write("tables/handlers.parquet", file);
        show(&directory.path());
    });
}

/// CRC-32 (IEEE), as the manifest has it. This is not the code under test, but a second implementation, bit by bit.
fn crc32(bytes: &[u8]) -> u32 {
    let step = |crc: u32, _| (crc >> 1) ^ (0xedb8_8320 & (crc & 1).wrapping_neg());
    let byte = |crc: u32, byte: &u8| (0..8).fold(crc ^ u32::from(*byte), step);
    !bytes.iter().fold(!0, byte)
}

/// Reads a run and, if it is valid, prints it in every format.
fn show(directory: &Path) {
    let Ok(run) = read_run(directory) else { return };
    assert_eq!(run.schema, SCHEMA);
    for (width, all_rows) in [(None, true), (Some(80), false), (Some(1), true)] {
        let options = TerminalOptions { width, all_rows, ..TerminalOptions::default() };
        assert_printable(&report::terminal(&run, options));
    }
    assert_printable(&report::markdown_run(&run));
    for table in &run.tables {
        assert_printable(&report::markdown(table));
        assert_printable(&report::csv(table, report::CsvRows::All, report::CsvText::Guarded));
        assert_printable(&report::csv_omissions(&run, table, 0));
    }
    let document: Json = serde_json::from_str(&report::json(&run)).expect("JSON of a run is JSON");
    assert_eq!(document["schema"], SCHEMA);
    for picture in report::pictures(&run).expect("pictures are drawn or left out") {
        let _ = picture;
    }
}

/// Panics if a text for people has a control character other than a line feed. It could steer a terminal.
fn assert_printable(text: &str) {
    let control = text.chars().find(|character| character.is_control() && *character != '\n');
    assert_eq!(control, None, "in {text:?}");
}

/// Compares two runs whose cells are the input's bytes, and tests the comparison's rules with the first run. The
/// first 32 bytes of the input are the rules.
pub(crate) fn compare(bytes: &[u8]) {
    let (rule, cells) = bytes.split_at(bytes.len().min(32));
    let Ok(rules) = std::str::from_utf8(rule) else { return };
    let rules: Vec<_> = rules.lines().filter_map(|line| line.parse().ok()).collect();
    let (base, new) = cells.split_at(cells.len() / 2);
    let (base, new) = (run_of(base), run_of(new));
    let plan = Plan { all_rows: true, margin_ratio: 0.01, rules };
    if let Ok(comparison) = lab::compare::compare(&base, &new, &plan) {
        let (tables, _) = lab::compare::tables(&comparison, &[], lab::compare::Listed::All);
        tables.iter().for_each(|table| assert_printable(&report::markdown(table)));
    }
    let _ = lab::compare::self_test(&base, &plan);
}

/// The sample run with rows from bytes. Each cell takes 8 bytes, and an incomplete last row is left out.
fn run_of(bytes: &[u8]) -> Run {
    let mut run = sample_run();
    let table = &mut run.tables[0];
    let columns = table.columns.clone();
    let mut rows = record::Table::new("handlers", "Rows.", columns.clone());
    for row in bytes.chunks_exact(columns.len() * 8) {
        let cells = row.as_chunks::<8>().0.iter().zip(&columns);
        rows.push(cells.map(|(bytes, column)| cell(*bytes, column.kind)).collect());
    }
    *table = rows;
    run
}

/// A value of this kind with these bytes. All ones stand for a value that is absent.
fn cell(bytes: [u8; 8], kind: record::Kind) -> record::Value {
    let number = u64::from_le_bytes(bytes);
    match kind {
        _ if number == u64::MAX => record::Value::Absent,
        record::Kind::Bool => record::Value::Bool(number & 1 == 1),
        record::Kind::Uint => record::Value::Uint(number),
        record::Kind::Int => record::Value::Int(number.cast_signed()),
        record::Kind::Real => record::Value::real(f64::from_bits(number)),
        record::Kind::Text => String::from_utf8_lossy(&bytes).into_owned().into(),
    }
}
