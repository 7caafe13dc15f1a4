//! `irqlab bench sim`: how fast the simulated machine is on real programs, at each level of detail.

mod args;
mod levels;
mod speed;
mod works;

use std::process::ExitCode;
use std::time::Duration;

use ::sim::boot::{self, Limits};
use ::sim::checkpoint::{self, Start};
use ::sim::counters::INSTRUCTIONS;
use ::sim::kernel::Flavour;
use ::sim::qemu::Qemu;
use ::sim::watch::{self, KernelFiles, Recording, Roi, Watch};
use ::sim::{Accounting, Cache, Instrumentation, Machine, children_cpu_ns, kernel, qemu};
use clap::ValueEnum;
use live::window::Stop;
use serde_json::{Map, json};

pub use self::args::SimBenchArgs;
use self::levels::{Level, levels};
use self::speed::{Cell, Times};
use self::works::{Maker, Work, WorkName};
use super::{Measured, open, run_of};
use crate::console::{self, ProgressLine, Redraw};
use crate::run::stop_on_signals;
use crate::simulated::workload_limits;

/// How often the slowest levels run a work, at the most: they have most of the bench's time.
const SLOW_ROUNDS_MAX: u32 = 3;
/// Host time for one machine.
const WALL: Duration = Duration::from_secs(1_800);
/// Guest time for one machine.
const GUEST: Duration = Duration::from_secs(1_800);

/// What all levels share.
struct Bench {
    cache: Cache,
    qemu: Qemu,
    kernel_files: KernelFiles,
    limits: Limits,
    stop: Stop,
}

/// Measures and prints.
pub fn run(args: &SimBenchArgs) -> anyhow::Result<ExitCode> {
    let open = open(&args.results)?;
    let cache = Cache::from_environment()?;
    let levels = levels(&cache, args)?;
    let qemu = qemu::find(&cache)?;
    let kernel = kernel::debian(&cache, Flavour::Cloud, &console::say)?;
    let kernel_files = watch::kernel_files(&cache, &qemu, &kernel, &console::say)?;
    let limits = workload_limits(Some(WALL), Some(GUEST));
    let stop = stop_on_signals()?;
    let maker = Maker {
        cache: &cache,
        qemu: &qemu,
        kernel: &kernel,
        vcpus: args.vcpus,
        loops: args.loops,
        limits,
        stop: &stop,
    };
    let all = WorkName::value_variants().iter().copied();
    let chosen = all.filter(|name| args.work.is_empty() || args.work.contains(name));
    let works: Vec<Work> = chosen.map(|name| maker.make(name)).collect::<anyhow::Result<_>>()?;
    let bench = Bench { cache: cache.clone(), qemu: qemu.clone(), kernel_files, limits, stop };
    let rounds = if args.quick { 1 } else { args.rounds };
    let mut cells: Vec<Cell> = works
        .iter()
        .flat_map(|work| (0..levels.len()).map(|level| Cell::new(work.name, level)))
        .collect();
    let (mut progress, mut step) = (ProgressLine::new(Redraw::EachStep), 0);
    let steps = cells.len() * rounds as usize;
    // Interleaved, so that other load of the host affects all levels.
    for round in 0..rounds {
        for cell in &mut cells {
            let level = &levels[cell.level];
            let Some(work) = works.iter().find(|work| work.name == cell.work) else { continue };
            step += 1;
            if bench.stop.is_requested() {
                break;
            }
            progress.step(step, steps, &format!("{}, {}", cell.work.text(), level.name));
            let rounds_max = match work.name {
                WorkName::Boot => u32::from(!args.quick),
                _ => SLOW_ROUNDS_MAX,
            };
            let skips = level.is_slow() && round >= rounds_max;
            if skips || cell.failed.is_some() {
                continue;
            }
            match bench.measure(work, level) {
                Ok(Some(times)) => cell.add(times),
                Ok(None) => {}
                Err(error) => cell.failed = Some(format!("{error:#}")),
            }
        }
    }
    drop(progress);
    let mut settings = Map::new();
    settings.insert("rounds".into(), json!(rounds));
    settings.insert("loops".into(), json!(args.loops));
    settings.insert("cpus".into(), json!(args.vcpus));
    settings.insert("qemu".into(), json!(qemu.version_text));
    settings.insert("method".into(), json!(speed::METHOD));
    let works = works.iter().map(|work| (work.name.text().to_owned(), json!(work.request)));
    settings.insert("works".into(), works.collect::<Map<_, _>>().into());
    let measured = Measured {
        settings,
        absent: speed::absent(&cells, &levels),
        tables: vec![speed::table(&cells, &levels)],
        interrupted: bench.stop.is_requested(),
        ..Measured::default()
    };
    open.finish(&run_of("bench-sim", open.started(), measured), &[])
}

impl Bench {
    /// Runs a work once, and once what does nothing on the same machine; `None` when it was stopped.
    fn measure(&self, work: &Work, level: &Level) -> anyhow::Result<Option<Times>> {
        let Some(mut times) = self.once(work, &work.request, level)? else { return Ok(None) };
        if let Some(request) = &work.idle_request {
            let Some(idle) = self.once(work, request, level)? else { return Ok(None) };
            times.cpu_ns = times.cpu_ns.saturating_sub(idle.cpu_ns);
            times.wall_ns = times.wall_ns.saturating_sub(idle.wall_ns);
        }
        Ok(Some(times))
    }

    fn once(&self, work: &Work, request: &str, level: &Level) -> anyhow::Result<Option<Times>> {
        let machine = Machine { timing: level.timing, ..work.machine.clone() };
        let boots = matches!(work.start, Start::Boot);
        let watch = level.watch.clone().map(|watch| match boots {
            true => Watch { roi: Roi::Always, start_fast: false, ..watch },
            false => watch,
        });
        let recording = watch.map(|watch| {
            Recording::new(&self.cache, &self.qemu, &machine, &self.kernel_files, &watch, None)
        });
        let recording = recording.transpose()?;
        let mut more =
            recording.as_ref().map_or_else(Instrumentation::default, Recording::instrumentation);
        if let Some(plugin) = &level.plugin {
            more.load(plugin);
        }
        let before_ns = children_cpu_ns();
        let (start, limits) = (&work.start, self.limits);
        let mut vm =
            checkpoint::start(&self.cache, &self.qemu, &machine, start, request, limits, more)?;
        let stop = || self.stop.is_requested();
        let exit = boot::follow_unless(&mut vm, limits, &mut |_| {}, &stop)?;
        drop(vm);
        let Some(exit) = exit else { return Ok(None) };
        anyhow::ensure!(exit.status == 0, "the guest ended with status {}", exit.status);
        let cpu_ns = children_cpu_ns().saturating_sub(before_ns);
        let wall_ns = u64::try_from(exit.wall.as_nanos()).unwrap_or(u64::MAX);
        let accounting = recording.map(Recording::accounting).transpose()?;
        let instructions = accounting.as_ref().and_then(instructions_of);
        Ok(Some(Times { cpu_ns, wall_ns, instructions }))
    }
}

/// Instructions of all regions of interest and CPUs; none where none were counted.
fn instructions_of(accounting: &Accounting) -> Option<u64> {
    let cpus = accounting.regions.iter().flat_map(|region| &region.cpus);
    Some(cpus.map(|cpu| cpu.used[INSTRUCTIONS]).sum()).filter(|sum| *sum > 0)
}
