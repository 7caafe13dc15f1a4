//! `cargo xtask bench chase`: compares the latencies of this machine's caches with the latencies of models.

use std::process::ExitCode;

use anyhow::Context;
use live::host::{Root, last_level_cache_bytes, process_cpus};
use live::selfbench::chase::{ChaseSettings, Chased, chase_order, measure};
use machine::SystemModel;
use machine::core::chase_cycles;
use machine::memory::PageSize;
use record::{Kind, Table, Value};
use sim::models;

use super::{columns, say};
use crate::results::{PrintArgs, Results};

const KIB: u64 = 1 << 10;
/// The two smallest sizes. Each further size is twice the size before the last: 8, 12, 16, 24 KiB and so on.
const FIRST: [u64; 2] = [8 * KIB, 12 * KIB];
/// Assumed line size. The lines of every modelled L1 data cache have this size or divide it.
const LINE_BYTES: u64 = 64;
/// How often a model goes through the memory before it is timed.
const WARM_ROUNDS: u32 = 2;
/// How the latencies are measured.
const METHOD: &str = "median of rounds; a round times dependent additions, a cycle each, then dependent \
    loads from the lines in a shuffled order; the ratio of both times is in cycles";

#[derive(Debug, clap::Args)]
pub struct ChaseArgs {
    /// The CPU to measure [default: the last usable CPU]
    #[arg(short, long, value_name = "CPU")]
    cpu: Option<u32>,
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
    printing: PrintArgs,
}

pub fn run(args: &ChaseArgs) -> anyhow::Result<ExitCode> {
    results(args)?.finish(&args.printing)
}

fn results(args: &ChaseArgs) -> anyhow::Result<Results> {
    let usable = || process_cpus().started_with.last().copied();
    let cpu = args.cpu.or_else(usable).context("this process may use no CPU")?;
    let model = |name: &String| models::changed(name, &args.set).map(|(_, model)| model);
    let models = args.model.iter().map(model).collect::<Result<Vec<SystemModel>, _>>()?;
    let mut results = Results::start("chase", &args.printing)?;
    let settings = ChaseSettings {
        cpu,
        sizes: sizes(args.most << 20),
        line_bytes: LINE_BYTES,
        rounds: args.rounds as usize,
    };
    let chased = measure(&settings, &|bytes| say(&format!("{} KiB", bytes / KIB)))?;
    results.setting("cpu", cpu);
    results.setting("rounds", args.rounds);
    results.setting("line_bytes", LINE_BYTES);
    results.setting("models", args.model.clone());
    results.setting("set", args.set.clone());
    results.setting("last_level_cache_bytes", last_level_cache_bytes(&Root::default()));
    results.setting("method", METHOD);
    for model in &models {
        if chase_cycles(model, &[0], PageSize::Small, 0).is_none() {
            let reason = "the model has no core, or a core that threads share".to_owned();
            results.absent("chase", format!("model {}", model.name), reason);
        }
    }
    results.table(table(&settings, &models, &chased));
    Ok(results)
}

/// The sizes from [`FIRST`] up to `size_max`, bytes.
fn sizes(size_max: u64) -> Vec<u64> {
    let doubled = (0..64).flat_map(|shift| FIRST.map(|first| first.checked_shl(shift)));
    doubled.map_while(|size| size.filter(|size| *size <= size_max)).collect()
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
    use clap::Parser;

    use super::*;

    #[derive(Parser)]
    struct Command {
        #[command(flatten)]
        args: ChaseArgs,
    }

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

    #[test]
    fn this_machine_and_each_model_with_a_core_have_a_row_of_each_size() {
        let arguments = ["chase", "--rounds", "6", "--most", "1", "--model", "zen3,t1"];
        let results = results(&Command::parse_from(arguments).args).unwrap();
        let table = &results.run().tables[0];
        let rows = |name: &str| -> Vec<&Vec<Value>> {
            table.rows().iter().filter(|row| row[1] == Value::from(name)).collect()
        };
        assert_eq!(["host", "zen3", "t1"].map(|name| rows(name).len()), [15, 15, 0]);
        assert_eq!(results.run().absent[0].what, "model t1");
        let number = |row: &Vec<Value>, name| table.get(row, name).and_then(Value::number);
        assert!(rows("host").iter().all(|row| number(row, "load_ns") > Some(0.0)));
        // The figures of the model are exact: 4 cycles in L1, 12 in L2.
        let cycles = |bytes: u64| {
            let row = rows("zen3").into_iter().find(|row| row[0] == Value::from(bytes));
            number(row.unwrap(), "load_cycles").map(f64::round)
        };
        assert_eq!([cycles(16 * KIB), cycles(128 * KIB)], [Some(4.0), Some(12.0)]);
    }
}
