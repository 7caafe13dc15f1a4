//! The run of `sim bare footprint`, with and without `--sweep`.

use record::{Run, SCHEMA, Timestamp};
use serde_json::{Map, json};
use sim::bare::FootprintSettings;
use sim::watch::Detail;

use crate::run::made_by;

/// A run with the facts of the machine as its settings, and without tables.
pub(super) fn empty_run(started: Timestamp, qemu: &str, settings: &FootprintSettings) -> Run {
    let cache = settings.geometry();
    let detail = if settings.model.detail == Detail::Ooo { "ooo" } else { "timed" };
    let mut run_settings = Map::new();
    run_settings.extend(made_by());
    run_settings.insert("qemu".into(), json!(qemu));
    run_settings.insert("system".into(), json!("none"));
    run_settings.insert("model".into(), json!(settings.model.model.name));
    run_settings.insert("model_sha256".into(), json!(settings.model.sha256));
    run_settings.insert("detail".into(), json!(detail));
    run_settings.insert("cache_bytes".into(), json!(cache.bytes));
    run_settings.insert("line_bytes".into(), json!(cache.line_bytes));
    run_settings.insert("ways".into(), json!(cache.ways));
    run_settings.insert("vcpu_slice_cycles".into(), json!(settings.vcpu_slice));
    Run {
        schema: SCHEMA.to_owned(),
        experiment: "bare-footprint".to_owned(),
        bench: "sim".to_owned(),
        started_utc: started.to_string(),
        complete: true,
        host: Map::new(),
        settings: run_settings,
        observer: Map::new(),
        warnings: Vec::new(),
        absent: Vec::new(),
        tables: Vec::new(),
    }
}
