//! The run of an experiment without an operating system.

use record::{Run, SCHEMA, Timestamp};
use serde_json::{Map, json};
use sim::bare::FootprintSettings;
use sim::watch::Detail;

/// A run of this kind, with the facts of the machine.
pub(super) fn empty_run(started: Timestamp, qemu: &str, settings: &FootprintSettings) -> Run {
    let cache = settings.geometry();
    let detail = if settings.model.detail == Detail::Ooo { "ooo" } else { "timed" };
    let mut of = Map::new();
    of.insert("version".into(), json!(env!("CARGO_PKG_VERSION")));
    of.insert("qemu".into(), json!(qemu));
    of.insert("system".into(), json!("none"));
    of.insert("model".into(), json!(settings.model.model.name));
    of.insert("model_sha256".into(), json!(settings.model.sha256));
    of.insert("detail".into(), json!(detail));
    of.insert("cache_bytes".into(), json!(cache.bytes));
    of.insert("line_bytes".into(), json!(cache.line_bytes));
    of.insert("ways".into(), json!(cache.ways));
    of.insert("vcpu_slice_cycles".into(), json!(settings.vcpu_slice));
    Run {
        schema: SCHEMA.to_owned(),
        experiment: "bare-footprint".to_owned(),
        bench: "sim".to_owned(),
        started_utc: started.to_string(),
        complete: true,
        host: Map::new(),
        settings: of,
        observer: Map::new(),
        warnings: Vec::new(),
        absent: Vec::new(),
        tables: Vec::new(),
    }
}
