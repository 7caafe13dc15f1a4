//! `irqlab bench chase`: compares the latencies of this machine's caches with the latencies of models.

use std::process::ExitCode;

use live::host::{Root, last_level_cache_bytes};
use live::selfbench::chase::{ChaseSettings, Chased, chase_order, measure};
use machine::SystemModel;
use machine::core::chase_cycles;
use machine::memory::PageSize;
use record::{Kind, Table, Value};
use serde_json::{Map, json};
use sim::models;

use super::{Measured, columns, open, run_of};
use crate::console;
use crate::options::{OptionalResultArgs, Usage, one_cpu, usable_cpus};
use crate::run::with_remedy_for_rights;

const KIB: u64 = 1 << 10;
/// The two smallest sizes. Each further size is twice the size before the last: 8, 12, 16, 24 KiB and so on.
const FIRST: [u64; 2] = [8 * KIB, 12 * KIB];
/// Assumed line size. The lines of every modelled L1 data cache have this size or divide it.
const LINE_BYTES: u64 = 64;
/// How often a model goes through the memory before it is timed.
const WARM_ROUNDS: u32 = 2;

/// Compare the latencies of this machine's caches with the latencies of models
#[derive(Debug, clap::Args)]
pub struct ChaseArgs {
    /// The CPU to measure: exactly one [default: the last usable CPU]
    #[arg(short = 'c', long, alias = "cpu", value_name = "LIST")]
    cpus: Option<String>,
    /// Models to compare with, by name or file
    #[arg(long, value_delimiter = ',', value_name = "LIST")]
    model: Vec<String>,
    /// Change a field of the models, as in l2.size=1MiB; may be repeated
    #[arg(long, value_name = "FIELD=VALUE", requires = "model")]
    set: Vec<String>,
    /// Largest size of the memory, MiB
    #[arg(long, default_value_t = 64, value_parser = clap::value_parser!(u64).range(1..=1024), value_name = "MIB")]
    most: u64,
    /// Number of rounds of each size
    #[arg(long, default_value_t = 21, value_parser = clap::value_parser!(u64).range(6..=1000), value_name = "N")]
    rounds: u64,
    #[command(flatten)]
    results: OptionalResultArgs,
}

pub fn run(args: &ChaseArgs) -> anyhow::Result<ExitCode> {
    let list = args.cpus.as_deref();
    let cpu = one_cpu(list, &usable_cpus(list)?)?;
    let model = |name: &String| models::changed(name, &args.set).map(|(_, model)| model);
    let models: Vec<SystemModel> = args
        .model
        .iter()
        .map(model)
        .collect::<Result<_, _>>()
        .map_err(|error| Usage(error.to_string()))?;
    let open = open(&args.results)?;
    let settings = ChaseSettings {
        cpu,
        sizes: sizes(args.most << 20),
        line_bytes: LINE_BYTES,
        rounds: args.rounds as usize,
    };
    let progress = |bytes: u64| console::say_more(&format!("{} KiB", bytes / KIB));
    let chased = measure(&settings, &progress).map_err(with_remedy_for_rights)?;
    let mut result = measured(&settings, &models, &chased);
    result.settings.insert("set".into(), json!(args.set));
    open.finish(&run_of("bench-chase", open.started(), result), &[])
}

/// The sizes from [`FIRST`] up to `size_max`, bytes.
fn sizes(size_max: u64) -> Vec<u64> {
    let doubled = (0..64).flat_map(|shift| FIRST.map(|first| first.checked_shl(shift)));
    doubled.map_while(|size| size.filter(|size| *size <= size_max)).collect()
}

fn measured(settings: &ChaseSettings, models: &[SystemModel], chased: &[Chased]) -> Measured {
    let mut run_settings = Map::new();
    run_settings.insert("cpu".into(), json!(settings.cpu));
    run_settings.insert("rounds".into(), json!(settings.rounds));
    run_settings.insert("line_bytes".into(), json!(settings.line_bytes));
    let names: Vec<&str> = models.iter().map(|model| model.name.as_str()).collect();
    run_settings.insert("models".into(), json!(names));
    let cache_bytes = last_level_cache_bytes(&Root::default());
    run_settings.insert("last_level_cache_bytes".into(), json!(cache_bytes));
    let mut observer = Map::new();
    let method = "median of rounds; a round times dependent additions, a cycle each, then dependent \
                  loads from the lines in a shuffled order; the ratio of both times is in cycles";
    observer.insert("method".into(), json!(method));
    let has_no_chase =
        |model: &&SystemModel| chase_cycles(model, &[0], PageSize::Small, 0).is_none();
    let absent = models.iter().filter(has_no_chase).map(|model| {
        let reason = "the model has no core, or a core that threads share".to_owned();
        (format!("model {}", model.name), reason, None)
    });
    Measured {
        settings: run_settings,
        observer,
        absent: absent.collect(),
        tables: vec![table(settings, models, chased)],
        ..Measured::default()
    }
}

fn table(settings: &ChaseSettings, models: &[SystemModel], chased: &[Chased]) -> Table {
    let columns = columns(&[
        ("working_set_bytes", Kind::Uint, "Size of the memory that is traversed."),
        ("machine", Kind::Text, "host (this machine), or the name of a model."),
        ("pages", Kind::Text, "Size of the memory's pages."),
        ("load_cycles", Kind::Real, "Load-to-use latency, in cycles of the core."),
        (
            "load_ci95_low_cycles",
            Kind::Real,
            "Lower end of the 95 % confidence interval of the rounds' median.",
        ),
        ("load_ci95_high_cycles", Kind::Real, "Upper end of the interval."),
        ("load_ns", Kind::Real, "Load-to-use latency, as time."),
        ("over_host_ratio", Kind::Real, "The model's cycles over the host's."),
    ]);
    let doc = "Latency of dependent loads (pointer chasing), by the size of the memory.";
    let mut table = Table::new("chase", doc, columns);
    for host in chased {
        let (low, high) = host.cycles_95.unzip();
        let host_row: [Value; 8] = [
            host.bytes.into(),
            "host".into(),
            host.pages.word().into(),
            host.load_cycles.into(),
            low.into(),
            high.into(),
            host.load_ns.into(),
            Value::Absent,
        ];
        table.push(host_row.to_vec());
        let model_rows = models.iter().filter_map(|model| model_row(settings, model, host));
        model_rows.for_each(|row| table.push(row));
    }
    table
}

/// The row of a model: the host's chase, in pages of the same size. `None` if the model cannot run it.
fn model_row(settings: &ChaseSettings, model: &SystemModel, host: &Chased) -> Option<Vec<Value>> {
    let page = match host.pages {
        live::selfbench::chase::Pages::Small => PageSize::Small,
        _ => PageSize::Large,
    };
    let order = chase_order(host.bytes, settings.line_bytes);
    let addresses: Vec<u64> = order.iter().map(|line| line * settings.line_bytes).collect();
    let cycles = chase_cycles(model, &addresses, page, WARM_ROUNDS)?;
    let cycles = cycles as f64 / addresses.len() as f64;
    let ns = cycles * 1e9 / model.clock_hz as f64;
    Some(vec![
        host.bytes.into(),
        model.name.as_str().into(),
        host.pages.word().into(),
        cycles.into(),
        Value::Absent,
        Value::Absent,
        ns.into(),
        host.load_cycles.map(|host| cycles / host).into(),
    ])
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_grow_by_a_half_and_a_third() {
        let kib: Vec<u64> = sizes(64 * KIB).iter().map(|size| size / KIB).collect();
        assert_eq!(kib, [8, 12, 16, 24, 32, 48, 64]);
    }

    #[test]
    fn a_model_has_its_published_latencies() {
        let (_, model) = models::changed("zen3", &[]).unwrap();
        let settings =
            ChaseSettings { cpu: 0, sizes: Vec::new(), line_bytes: LINE_BYTES, rounds: 6 };
        let host = Chased {
            bytes: 16 * KIB,
            pages: live::selfbench::chase::Pages::Transparent,
            load_ns: Some(1.0),
            load_cycles: Some(8.0),
            cycles_95: None,
        };
        let row = model_row(&settings, &model, &host).unwrap();
        assert_eq!((&row[1], &row[7]), (&Value::from("zen3"), &Value::from(0.5)));
    }
}
