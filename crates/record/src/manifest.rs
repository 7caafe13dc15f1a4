//! `manifest.json`: the whole run except the rows of its tables. Names of fields are the keys of the file, and their
//! order is the order in the file: both are part of the schema (`docs/schema.md`).

use serde::{Deserialize, Serialize};
use serde_json::{Map, Value as Json};

use crate::display::TableDisplay;
use crate::interval::link_by_names;
use crate::run::{Absence, Run};
use crate::table::Column;

/// Name of the manifest in a run directory.
pub(crate) const FILE: &str = "manifest.json";

/// Name of the directory of tables in a run directory.
pub(crate) const TABLES: &str = "tables";

/// End of the name of a table's file.
pub(crate) const TABLE_SUFFIX: &str = ".parquet";

/// The content of `manifest.json`.
#[derive(Serialize, Deserialize)]
pub(crate) struct Manifest {
    pub schema: String,
    pub experiment: String,
    pub bench: String,
    pub started_utc: String,
    pub complete: bool,
    pub host: Map<String, Json>,
    pub settings: Map<String, Json>,
    pub observer: Map<String, Json>,
    pub warnings: Vec<String>,
    pub absent: Vec<Absence>,
    /// Whether a column with an interval links to the columns that hold the
    /// interval. False for runs of earlier versions.
    #[serde(rename = "links", default)]
    pub has_links: bool,
    pub tables: Vec<TableEntry>,
    /// The files of the run directory that are not tables.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub attachments: Vec<AttachmentEntry>,
}

/// The only field that is read from a manifest of unknown version.
#[derive(Deserialize)]
pub(crate) struct SchemaOnly {
    pub schema: String,
}

/// A file that is not a table, such as a picture or a trace. `bytes` and `crc32` are its size and its CRC-32.
#[derive(Serialize, Deserialize)]
pub(crate) struct AttachmentEntry {
    /// The name of the file in the run directory.
    pub file: String,
    pub bytes: u64,
    pub crc32: u32,
}

/// The description of a table, and of its file.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) struct TableEntry {
    pub name: String,
    pub doc: String,
    /// The path of the file in the run directory. `bytes` and `crc32` are its size and its CRC-32.
    pub file: String,
    pub bytes: u64,
    pub crc32: u32,
    pub rows: u64,
    #[serde(default, skip_serializing_if = "TableDisplay::is_default")]
    pub display: TableDisplay,
    pub columns: Vec<Column>,
}

impl TableEntry {
    /// The entry of a file that no manifest describes: its size and checksum are not checked.
    pub fn unchecked(name: String, rows: u64, columns: Vec<Column>) -> TableEntry {
        let (file, display) = (String::new(), TableDisplay::default());
        TableEntry { name, doc: String::new(), file, bytes: 0, crc32: 0, rows, display, columns }
    }
}

/// The path of a table's file in the run directory.
pub(crate) fn table_file(name: &str) -> String {
    format!("{TABLES}/{name}{TABLE_SUFFIX}")
}

impl Manifest {
    /// The manifest of a run, with the entries of its files.
    pub fn new(run: &Run, tables: Vec<TableEntry>, attachments: Vec<AttachmentEntry>) -> Self {
        Manifest {
            schema: run.schema.clone(),
            experiment: run.experiment.clone(),
            bench: run.bench.clone(),
            started_utc: run.started_utc.clone(),
            complete: run.complete,
            host: run.host.clone(),
            settings: run.settings.clone(),
            observer: run.observer.clone(),
            warnings: run.warnings.clone(),
            absent: run.absent.clone(),
            has_links: true,
            tables,
            attachments,
        }
    }

    /// Links the columns of a run of an earlier version by their names.
    pub fn link_columns(&mut self) {
        if !self.has_links {
            self.tables.iter_mut().for_each(|table| link_by_names(&mut table.columns));
            self.has_links = true;
        }
    }

    /// The run without its tables, and the tables' entries.
    pub fn into_run(self) -> (Run, Vec<TableEntry>) {
        let run = Run {
            schema: self.schema,
            experiment: self.experiment,
            bench: self.bench,
            started_utc: self.started_utc,
            complete: self.complete,
            host: self.host,
            settings: self.settings,
            observer: self.observer,
            warnings: self.warnings,
            absent: self.absent,
            tables: Vec::new(),
        };
        (run, self.tables)
    }
}
