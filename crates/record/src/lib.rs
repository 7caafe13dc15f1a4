//! The run directory and its schema. The only place that knows the file format.

pub mod run;
pub mod table;

pub use run::{Absence, Run, SCHEMA};
pub use table::{Column, Kind, Table, Value};
