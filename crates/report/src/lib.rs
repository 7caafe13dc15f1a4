//! Reports of a run: terminal tables, Markdown, CSV, JSON, pictures, an HTML page, and other programs' formats.
//!
//! The only input is a [`record::Run`], and the crate does no IO of its own: any host can report a run of another
//! host. The run contains the display hints of its tables ([`record::display`]). Only the pictures and some formats
//! know single experiments. Text in a run may come from a device or a guest, so output for people has escaped control
//! characters ([`escape`]).

#![forbid(unsafe_code)]

mod bound;
mod displaced;
pub mod escape;
mod exchange;
mod export;
mod grid;
pub mod human;
mod late_cause;
mod markdown;
mod page;
mod picture;
mod row;
mod schemes;
mod terminal;
mod winner;
mod words;

pub use bound::{Bound, bound};
pub use exchange::{
    Buckets, Exposition, Family, Folded, Labels, MetricKind, Metrics, RunMetrics, Unexported,
    folded, hlog, metrics, perfetto, weights,
};
pub use export::{CsvRows, CsvText, csv, csv_omissions, json, json_line, write_csv, write_json};
pub use grid::LongText;
pub use markdown::{markdown, markdown_run};
pub use page::{Comparison, Entry, FleetPage, SweepPage, fleet_page, page, sweep_page};
pub use picture::{
    Picture, SweepAxis, SweepFigures, SweepPoint, Undrawn, needed, pictures, repetitions_svg,
};
pub use terminal::{TerminalOptions, terminal};
pub use winner::{Extreme, Figure, candidates};
pub use words::shell_word;
