//! `irqlab bench sim`: how fast the simulated machine is, at each level of detail.

use std::process::ExitCode;
use std::time::Duration;

use ::sim::boot::{self, Limits};
use ::sim::image::Tools;
use ::sim::kernel::Flavour;
use ::sim::qemu::Qemu;
use ::sim::watch::{self, Detail, KernelFiles, Recording, Roi, Watch};
use ::sim::{
    Cache, Instrumentation, Machine, Timing, children_cpu_ns, image, kernel, models, qemu,
};
use record::{Kind, Table, Value};
use serde_json::{Map, json};

use super::{Measured, columns, open, run_of};
use crate::console::{self, ProgressLine, Redraw};
use crate::options::{OptionalResultArgs, Usage};

/// The two workloads: the machine boots, runs a command that does nothing, and ends; and what the
/// guest's loop adds to that.
const WORKLOADS: [&str; 2] = ["boot", "loop"];
/// What the guest's shell does in a round: processes, files, pipes, sorting and hashing.
const ROUND: &str =
    "seq 1 20000 | sort -r | md5sum; cat /proc/*/stat | wc; ls -lR /sys/kernel | md5sum";

/// How fast is the simulated machine?
#[derive(Debug, clap::Args)]
pub struct SimBenchArgs {
    /// CPUs of the simulated machine, 1 to 16
    #[arg(long, default_value_t = 1, value_name = "N",
          value_parser = clap::value_parser!(u32).range(1..=16))]
    vcpus: u32,
    /// Rounds of the guest's loop
    #[arg(long, default_value_t = 10, value_parser = clap::value_parser!(u32).range(1..=10_000))]
    work: u32,
    /// How often each level is measured; the minimum time counts
    #[arg(long, default_value_t = 3, value_parser = clap::value_parser!(u32).range(1..=100))]
    rounds: u32,
    /// Models for the level timed, by name or file
    #[arg(long, value_delimiter = ',', value_name = "LIST", default_value = "r4400-1994")]
    model: Vec<String>,
    /// Models for the level ooo, by name or file
    #[arg(long, value_delimiter = ',', value_name = "LIST", default_value = "r10000-1996,zen3")]
    ooo: Vec<String>,
    #[command(flatten)]
    results: OptionalResultArgs,
}

/// A way to run the machine.
struct Level {
    name: String,
    timing: Timing,
    watch: Option<Watch>,
    /// Least CPU time of QEMU without the loop and with it, ns.
    min_ns: [Option<u64>; 2],
    /// Instructions without the loop and with it, where they were counted.
    instructions: [Option<u64>; 2],
}

/// What all levels share.
struct Bench {
    cache: Cache,
    qemu: Qemu,
    machine: Machine,
    kernel_files: KernelFiles,
}

/// Measures and prints.
pub fn run(args: &SimBenchArgs) -> anyhow::Result<ExitCode> {
    let open = open(&args.results)?;
    let cache = Cache::from_environment()?;
    let qemu = qemu::find(&cache)?;
    let kernel = kernel::debian(&cache, Flavour::Cloud, &console::say)?;
    let mut machine = Machine::new(&kernel, &image::build(&cache, &kernel, Tools::None)?);
    machine.cpus = args.vcpus;
    machine.check()?;
    let kernel_files = watch::kernel_files(&cache, &qemu, &kernel, &console::say)?;
    let mut levels = levels(&cache, args)?;
    let bench = Bench { cache, qemu, machine, kernel_files };
    // Interleaved, so that other load of the host affects all levels.
    let steps = levels.len() * args.rounds as usize;
    let (mut progress, mut step) = (ProgressLine::new(Redraw::EachStep), 0);
    for _ in 0..args.rounds {
        for level in &mut levels {
            step += 1;
            progress.step(step, steps, &level.name);
            for (at, work) in [0, args.work].into_iter().enumerate() {
                bench.measure(level, at, work)?;
            }
        }
    }
    let mut settings = Map::new();
    settings.insert("work".into(), json!(args.work));
    settings.insert("rounds".into(), json!(args.rounds));
    settings.insert("cpus".into(), json!(args.vcpus));
    settings.insert("guest_loop".into(), json!(ROUND));
    settings.insert("qemu".into(), json!(bench.qemu.version_text));
    drop(progress);
    let measured = Measured { settings, tables: vec![table(&levels)], ..Measured::default() };
    open.finish(&run_of("bench-sim", open.started(), measured), &[])
}

fn levels(cache: &Cache, args: &SimBenchArgs) -> anyhow::Result<Vec<Level>> {
    let (icount, host) = (Timing::Instructions { shift: 0 }, Timing::HostClock);
    let level = |name: String, timing, watch| Level {
        name,
        timing,
        watch,
        min_ns: [None; 2],
        instructions: [None; 2],
    };
    let of = |detail| Some(Watch { detail, roi: Roi::Always, ..Watch::default() });
    let mut levels = vec![
        level("TCG".to_owned(), host, None),
        level("TCG+icount".to_owned(), icount, None),
        level("fast".to_owned(), icount, of(Detail::Fast)),
        level("count".to_owned(), icount, of(Detail::Count)),
    ];
    let timed = args.model.iter().map(|name| (Detail::Timed, "timed", name));
    let ooo = args.ooo.iter().map(|name| (Detail::Ooo, "ooo", name));
    for (detail, word, name) in timed.chain(ooo) {
        let model = models::find(cache, name, &[], detail);
        let model = Some(model.map_err(|error| Usage(error.to_string()))?);
        let watch = Watch { detail, model, roi: Roi::Always, ..Watch::default() };
        levels.push(level(format!("{word}, {name}"), icount, Some(watch.clone())));
        if detail == Detail::Timed {
            levels.push(level(format!("{word}, {name}, free running"), host, Some(watch)));
        }
    }
    Ok(levels)
}

impl Bench {
    fn measure(&self, level: &mut Level, at: usize, work: u32) -> anyhow::Result<()> {
        let machine = Machine { timing: level.timing, ..self.machine.clone() };
        let order =
            format!("run:i=0; while [ $i -lt {work} ]; do {ROUND}; i=$((i+1)); done >/dev/null");
        let recording = level.watch.as_ref().map(|watch| {
            Recording::new(&self.cache, &self.qemu, &machine, &self.kernel_files, watch, None)
        });
        let recording = recording.transpose()?;
        let more =
            recording.as_ref().map_or_else(Instrumentation::default, Recording::instrumentation);
        let limits = Limits { wall: Duration::from_secs(1_800), guest_s: 1_700 };
        let before = children_cpu_ns();
        let mut vm = boot::start_with(&self.qemu, &machine, &order, limits, more)?;
        let exit = boot::follow(&mut vm, limits, &mut |_| {})?;
        drop(vm);
        anyhow::ensure!(exit.status == 0, "{}: the guest ended with {}", level.name, exit.status);
        let used = children_cpu_ns().saturating_sub(before);
        level.min_ns[at] = Some(level.min_ns[at].map_or(used, |min| min.min(used)));
        if let Some(recording) = recording {
            level.instructions[at] = recording.accounting()?.instructions;
        }
        Ok(())
    }
}

impl Level {
    /// CPU time of a workload.
    fn ns(&self, workload: usize) -> Option<u64> {
        of_workload(self.min_ns, workload)
    }

    fn instructions(&self, workload: usize) -> Option<u64> {
        of_workload(self.instructions, workload)
    }
}

/// What a workload took: the first alone, the second in addition to the first.
fn of_workload(measured: [Option<u64>; 2], workload: usize) -> Option<u64> {
    match workload {
        0 => measured[0],
        _ => measured[1]?.checked_sub(measured[0]?),
    }
}

fn table(levels: &[Level]) -> Table {
    let doc = "Speed of the simulated machine at each level of detail.";
    let columns = columns(&[
        ("workload", Kind::Text, "boot: power-on to power-off; loop: what the guest's loop adds."),
        ("level", Kind::Text, "Level of detail of the simulation."),
        ("cpu_time_min_ns", Kind::Uint, "CPU time of QEMU, minimum of the rounds."),
        (
            "instructions",
            Kind::Uint,
            "Instructions of the guest; where a level does not count them, those of `count`.",
        ),
        ("mips", Kind::Real, "Millions of guest instructions per second of CPU time."),
        ("over_tcg_ratio", Kind::Real, "CPU time per instruction over that of TCG."),
        ("over_icount_ratio", Kind::Real, "CPU time per instruction over that of TCG+icount."),
    ]);
    let mut table = Table::new("speed", doc, columns);
    for workload in 0..WORKLOADS.len() {
        add_workload(&mut table, levels, workload);
    }
    table
}

fn add_workload(table: &mut Table, levels: &[Level], workload: usize) {
    let counted = levels.iter().filter(|level| level.name == "count");
    let plain = counted.filter_map(|level| level.instructions(workload)).next();
    let instructions = |level: &Level| level.instructions(workload).or(plain);
    let per = |level: &Level| {
        let count = instructions(level).filter(|count| *count > 0)?;
        Some(level.ns(workload)? as f64 / count as f64)
    };
    let base = |name: &str| levels.iter().find(|level| level.name == name).and_then(per);
    let (tcg, icount) = (base("TCG"), base("TCG+icount"));
    for level in levels {
        let over = |base: Option<f64>| per(level).zip(base).map(|(ns, base)| ns / base);
        let row: Vec<Value> = vec![
            WORKLOADS[workload].into(),
            level.name.as_str().into(),
            level.ns(workload).into(),
            instructions(level).into(),
            per(level).map(|ns| 1e3 / ns).into(),
            over(tcg).into(),
            over(icount).into(),
        ];
        table.push(row);
    }
}
