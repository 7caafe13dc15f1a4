//! `cargo xtask bench chase`: compares the latencies of this machine's caches with the latencies of models.
//!
//! A chase is a chain of dependent loads (pointer chasing) through memory of a given size. The bench times it on the
//! host (`live::selfbench::chase`), and computes its cycles on each model.

use std::process::ExitCode;

use anyhow::Context;
use live::host::{Root, last_level_cache_bytes, process_cpus};
use live::selfbench::chase::{ChaseSettings, Chased, Pages, chase_order, measure};
use machine::SystemModel;
use machine::core::chase_cycles;
use machine::memory::PageSize;
use record::{Columns, IntervalColumns, Table, column};
use sim::models;

use super::say;
use crate::results::{PrintArgs, Results};

const KIB: u64 = 1 << 10;
/// The two smallest sizes. Doubling both again and again gives all sizes: 8, 12, 16, 24 KiB and so on.
const SMALLEST_SIZES: [u64; 2] = [8 * KIB, 12 * KIB];
/// Assumed size of a cache line. It is a multiple of the line size of every modelled L1 data cache.
const LINE_BYTES: u64 = 64;
/// How often a model goes through the memory before the round that counts.
const WARM_ROUNDS: u32 = 2;
/// How the latencies are measured: a setting of the results.
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

/// Measures this machine, computes the models, and returns the results.
fn results(args: &ChaseArgs) -> anyhow::Result<Results> {
    let last_cpu = || process_cpus().started_with.last().copied();
    let cpu = args.cpu.or_else(last_cpu).context("this process may use no CPU")?;
    let model = |name: &String| models::with_changes(name, &args.set).map(|(_, model)| model);
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
            results.record_absence("chase", format!("model {}", model.name), reason);
        }
    }
    results.table(table(&settings, &models, &chased));
    Ok(results)
}

/// The sizes from [`SMALLEST_SIZES`] up to `size_max`, in bytes and in order.
fn sizes(size_max: u64) -> Vec<u64> {
    let doubled = (0..64).flat_map(|shift| SMALLEST_SIZES.map(|size| size.checked_shl(shift)));
    doubled.map_while(|size| size.filter(|size| *size <= size_max)).collect()
}

/// A row of the table: the latency of the host or of a model, for one size.
struct Latency<'a> {
    /// The host's measurement for this size.
    host: &'a Chased,
    /// The model. `None` in the row of the host.
    model: Option<&'a SystemModel>,
    cycles: Option<f64>,
    ns: Option<f64>,
}

impl Latency<'_> {
    /// The 95 % interval of the host's cycles. The figures of a model are exact.
    fn cycles_95(&self) -> Option<(f64, f64)> {
        if self.model.is_none() { self.host.cycles_95 } else { None }
    }

    /// The model's cycles divided by the host's. `None` in the row of the host.
    fn over_host(&self) -> Option<f64> {
        self.model?;
        Some(self.cycles? / self.host.load_cycles?)
    }
}

/// Table `chase`: for each size a row of the host, then a row for each model. The names of columns are public.
fn table(settings: &ChaseSettings, models: &[SystemModel], chased: &[Chased]) -> Table {
    let [low, high] = ["load_ci95_low_cycles", "load_ci95_high_cycles"];
    let columns = Columns::all([
        column("working_set_bytes", "Size of the memory that is traversed.")
            .uint(|row: &Latency<'_>| row.host.bytes),
        column("machine", "host (this machine), or the name of a model.").text(
            |row: &Latency<'_>| row.model.map_or("host", |model| model.name.as_str()).to_owned(),
        ),
        column("pages", "Size of the memory's pages.")
            .text(|row: &Latency<'_>| row.host.pages.word()),
        column("load_cycles", "Load-to-use latency, in cycles of the core.")
            .interval(IntervalColumns::bounds(low, high))
            .real(|row: &Latency<'_>| row.cycles),
        column(low, "Lower end of the 95 % confidence interval of the rounds' median.")
            .real(|row: &Latency<'_>| row.cycles_95().map(|(low, _)| low)),
        column(high, "Upper end of the interval.")
            .real(|row: &Latency<'_>| row.cycles_95().map(|(_, high)| high)),
        column("load_ns", "Load-to-use latency, as time.").real(|row: &Latency<'_>| row.ns),
        column("over_host_ratio", "The model's cycles over the host's.").real(Latency::over_host),
    ]);
    let rows = chased.iter().flat_map(|host| {
        let measured = Latency { host, model: None, cycles: host.load_cycles, ns: host.load_ns };
        let modelled = models.iter().filter_map(|model| latency_of_model(settings, model, host));
        std::iter::once(measured).chain(modelled)
    });
    let doc = "Latency of dependent loads (pointer chasing), by the size of the memory.";
    columns.table("chase", doc, rows)
}

/// The latency of a model for the host's chase, in pages of equal size. `None` if the model cannot run it.
fn latency_of_model<'a>(
    settings: &ChaseSettings,
    model: &'a SystemModel,
    host: &'a Chased,
) -> Option<Latency<'a>> {
    let page = match host.pages {
        Pages::Small => PageSize::Small,
        _ => PageSize::Large,
    };
    let order = chase_order(host.bytes, settings.line_bytes);
    let addresses: Vec<u64> = order.iter().map(|line| line * settings.line_bytes).collect();
    let cycles = chase_cycles(model, &addresses, page, WARM_ROUNDS)?;
    let cycles = cycles as f64 / addresses.len() as f64;
    let ns = cycles * 1e9 / model.clock_hz as f64;
    Some(Latency { host, model: Some(model), cycles: Some(cycles), ns: Some(ns) })
}

#[cfg(test)]
mod tests {
    use clap::Parser;
    use record::Value;

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
        let (_, model) = models::with_changes("zen3", &[]).unwrap();
        let settings =
            ChaseSettings { cpu: 0, sizes: Vec::new(), line_bytes: LINE_BYTES, rounds: 6 };
        let host = Chased {
            bytes: 16 * KIB,
            pages: Pages::Transparent,
            load_ns: Some(1.0),
            load_cycles: Some(8.0),
            cycles_95: None,
        };
        let table = table(&settings, &[model], &[host]);
        let cell = |name: &str| table.get(&table.rows()[1], name).cloned();
        assert_eq!(cell("machine"), Some(Value::from("zen3")));
        assert_eq!(cell("over_host_ratio"), Some(Value::from(0.5)));
        assert_eq!(table.check_display(), Ok(()));
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
