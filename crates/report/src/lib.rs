//! Terminal tables, Markdown, CSV and JSON from a run.
//!
//! Reads a [`record::Run`] and nothing else, and does no IO: a run made on another host is
//! reported anywhere. How a table looks is part of the run ([`record::display`]): this crate knows
//! no experiment, except for the pictures. Text in a run may come from a device or a guest; what is
//! written for people has its control characters neutralised ([`escape`]).

#![forbid(unsafe_code)]

pub mod escape;
mod exchange;
mod export;
mod grid;
pub mod human;
mod markdown;
mod page;
mod picture;
mod row;
mod terminal;
mod winner;
mod words;

pub use exchange::{
    Buckets, Exposition, Family, Folded, Labels, MetricKind, Metrics, RunMetrics, Unexported,
    folded, hlog, metrics, perfetto, weights,
};
pub use export::{CsvRows, CsvText, csv, csv_omissions, json, json_line, write_csv, write_json};
pub use markdown::{markdown, markdown_run};
pub use page::{Changes, Entry, page};
pub use picture::{Picture, Undrawn, needed, pictures, repetitions_svg};
pub use terminal::{TerminalOptions, terminal};
