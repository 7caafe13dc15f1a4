//! `cargo xtask bench sim`: measures the speed of the simulated machine on real programs, at each level of detail.
//!
//! A work (`works`) at a level (`levels`) is a cell of the table (`speed`). The bench measures each cell several times,
//! until the budget of host time is used up (`rounds`). With `--waits`, `waits` does another measurement instead.

mod args;
mod levels;
mod rounds;
mod speed;
mod waits;
mod works;

use std::collections::HashMap;
use std::process::ExitCode;
use std::time::{Duration, Instant};

use ::sim::boot::{self, Limits};
use ::sim::checkpoint::{self, Start};
use ::sim::counters::INSTRUCTIONS;
use ::sim::kernel::Flavour;
use ::sim::qemu::Qemu;
use ::sim::watch::{self, KernelFiles, Recording, Roi, Watch};
use ::sim::{Accounting, Cache, Instrumentation, Machine, children_cpu_ns, kernel, qemu};
use clap::ValueEnum;
use live::window::Stop;
use serde_json::{Map, Value as Json};

pub use self::args::SimArgs;
use self::levels::{Level, levels};
use self::rounds::Progress;
use self::speed::{Cell, Times};
use self::works::{Maker, Work, WorkName};
use super::{say, stop_on_signals};
use crate::results::Results;

/// Maximum number of rounds of a work at the slowest levels, which take most of the bench's time.
const SLOW_ROUNDS_MAX: u32 = 3;
/// Default budget of host time for all measurements. The command then takes at most 20 minutes.
const BUDGET: Duration = Duration::from_secs(17 * 60);
/// Default budget with `--quick`. The command then takes at most 4 minutes.
const BUDGET_QUICK: Duration = Duration::from_secs(225);
/// Limits on the host time and the guest time of each machine.
const LIMITS: Limits = Limits { wall: Duration::from_secs(1_800), guest_s: 1_800 };

/// The tools that all measurements need, and the request to stop.
struct Bench {
    cache: Cache,
    qemu: Qemu,
    kernel_files: KernelFiles,
    stop: Stop,
}

pub fn run(args: &SimArgs) -> anyhow::Result<ExitCode> {
    if args.waits.waits {
        return waits::run(args);
    }
    let mut results = Results::start("sim", &args.printing)?;
    let cache = Cache::from_environment()?;
    let levels = levels(&cache, args)?;
    let qemu = qemu::find(&cache)?;
    let kernel = kernel::debian(&cache, Flavour::Cloud, &say)?;
    let kernel_files = watch::kernel_files(&cache, &qemu, &kernel, &say)?;
    let stop = stop_on_signals()?;
    let maker = Maker {
        cache: &cache,
        qemu: &qemu,
        kernel: &kernel,
        vcpus: args.vcpus,
        loops: args.loops,
        stop: &stop,
    };
    let names = WorkName::value_variants().iter().copied();
    let chosen = names.filter(|name| args.work.is_empty() || args.work.contains(name));
    let works: Vec<Work> = chosen.map(|name| maker.make(name)).collect::<anyhow::Result<_>>()?;
    let bench = Bench { cache: cache.clone(), qemu: qemu.clone(), kernel_files, stop };
    let budget = args.budget.unwrap_or(if args.quick { BUDGET_QUICK } else { BUDGET });
    let pairs =
        works.iter().flat_map(|work| levels.iter().enumerate().map(move |level| (work, level)));
    let cells = pairs.map(|(work, (position, level))| {
        Cell::new(work.name, position, rounds_wanted(args, work.name, level))
    });
    let mut cells: Vec<Cell> = cells.collect();
    let series = Series { bench: &bench, works: &works, levels: &levels };
    series.measure_all(&mut cells, budget);
    results.setting("rounds", if args.quick { 1 } else { args.rounds });
    results.setting("budget_s", budget.as_secs_f64());
    results.setting("loops", args.loops);
    results.setting("cpus", args.vcpus);
    results.setting("qemu", qemu.version_text.clone());
    results.setting("method", speed::METHOD);
    let works = works.iter().map(|work| (work.name.text().to_owned(), work.request.clone().into()));
    results.setting("works", Json::Object(works.collect::<Map<_, _>>()));
    speed::warning(&cells, &levels, budget).into_iter().for_each(|text| results.warn(text));
    for (cell, reason) in speed::absent_cells(&cells, &levels) {
        results.record_absence("speed", cell, reason);
    }
    results.table(speed::table(&cells, &levels));
    if bench.stop.is_requested() {
        results.interrupted();
    }
    results.finish(&args.printing)
}

/// How often to measure a work at a level, if the budget suffices.
fn rounds_wanted(args: &SimArgs, work: WorkName, level: &Level) -> u32 {
    let rounds_max = match (level.is_slow(), work, args.quick) {
        (true, WorkName::Boot, true) => 0,
        (true, WorkName::Boot, false) => 1,
        (true, ..) => SLOW_ROUNDS_MAX,
        (false, ..) => u32::MAX,
    };
    rounds_max.min(if args.quick { 1 } else { args.rounds })
}

/// Times of machines without work in one round, by work and by index of the level.
type IdleTimes = HashMap<(WorkName, usize), Times>;

/// Measures all works at all levels.
struct Series<'a> {
    bench: &'a Bench,
    works: &'a [Work],
    levels: &'a [Level],
}

impl Series<'_> {
    /// Measures each cell as often as wanted, or as often as the budget permits.
    fn measure_all(&self, cells: &mut [Cell], budget: Duration) {
        let started = Instant::now();
        let remaining = || budget.saturating_sub(started.elapsed());
        self.measure_first(cells, &remaining);
        loop {
            let states: Vec<Progress> = cells.iter().map(progress_of).collect();
            let planned = rounds::plan(&states, remaining());
            let needs_more = |cell: &usize| planned[*cell] > cells[*cell].rounds();
            let chosen: Vec<usize> = (0..cells.len()).filter(needs_more).collect();
            if chosen.is_empty() || self.bench.stop.is_requested() {
                return;
            }
            // The levels take turns, so that other load of the host affects all of them.
            self.measure_each(cells, &chosen, |_, _| true);
        }
    }

    /// Measures the first round: all works at the fast levels, then each work at the slow levels, shortest work first.
    fn measure_first(&self, cells: &mut [Cell], remaining: &impl Fn() -> Duration) {
        let (mut slow, fast): (Vec<usize>, Vec<usize>) = (0..cells.len())
            .filter(|index| cells[*index].wanted > 0)
            .partition(|index| self.levels[cells[*index].level].is_slow());
        self.measure_each(cells, &fast, |_, _| !remaining().is_zero());
        slow.sort_by_key(|index| self.fast_cost(cells, cells[*index].work));
        self.measure_each(cells, &slow, |cells, cell| {
            let is_measured = |peer: &&Cell| peer.level == cell.level && peer.rounds() > 0;
            let measured = cells.iter().filter(is_measured);
            let costs = measured.map(|peer| (peer.cost, self.fast_cost(cells, peer.work)));
            rounds::expected(costs, self.fast_cost(cells, cell.work)) < remaining()
        });
    }

    /// Host time of one round of a work at all fast levels.
    fn fast_cost(&self, cells: &[Cell], work: WorkName) -> Duration {
        let fast = |cell: &&Cell| cell.work == work && !self.levels[cell.level].is_slow();
        cells.iter().filter(fast).map(|cell| cell.cost).sum()
    }

    /// Measures each chosen cell once. If `permits` refuses a cell or the cell fails, it is absent from then on.
    fn measure_each(
        &self,
        cells: &mut [Cell],
        chosen: &[usize],
        permits: impl Fn(&[Cell], &Cell) -> bool,
    ) {
        let mut idle = IdleTimes::new();
        for (step, index) in chosen.iter().enumerate() {
            if self.bench.stop.is_requested() {
                return;
            }
            let (name, level) = (cells[*index].work, cells[*index].level);
            if cells[*index].absent.is_some() {
                continue;
            }
            if !permits(cells, &cells[*index]) {
                cells[*index].absent =
                    Some("not run: the budget of host time was used up (--budget)".to_owned());
                continue;
            }
            let Some(work) = self.works.iter().find(|work| work.name == name) else { continue };
            let (count, level_name) = (chosen.len(), &self.levels[level].name);
            say(&format!("[{}/{count}] {}, {level_name}", step + 1, name.text()));
            let started = Instant::now();
            match self.bench.measure(work, (level, &self.levels[level]), &mut idle) {
                Ok(Some(times)) => cells[*index].add(times),
                Ok(None) => {}
                Err(error) => cells[*index].absent = Some(format!("{error:#}")),
            }
            cells[*index].cost = started.elapsed();
        }
    }
}

/// The cell's progress, for the plan of rounds. A cell that is absent gets no further rounds.
fn progress_of(cell: &Cell) -> Progress {
    let wanted = if cell.absent.is_some() { 0 } else { cell.wanted };
    Progress { done: cell.rounds(), wanted, cost: cell.cost }
}

impl Bench {
    /// Runs a work once. Subtracts the times of its machine without work, which it takes from `idle` or measures and
    /// keeps there. `number` is the index of the level. Returns `None` if the user stopped the bench.
    fn measure(
        &self,
        work: &Work,
        (number, level): (usize, &Level),
        idle: &mut IdleTimes,
    ) -> anyhow::Result<Option<Times>> {
        let Some(mut times) = self.run_once(work, &work.request, level)? else { return Ok(None) };
        if let Some(request) = &work.idle_request {
            let key = (work.name.with_same_machine(), number);
            if let std::collections::hash_map::Entry::Vacant(entry) = idle.entry(key) {
                let Some(idle) = self.run_once(work, request, level)? else { return Ok(None) };
                entry.insert(idle);
            }
            let idle = idle[&key];
            times.cpu_ns = times.cpu_ns.saturating_sub(idle.cpu_ns);
            times.wall_ns = times.wall_ns.saturating_sub(idle.wall_ns);
        }
        Ok(Some(times))
    }

    /// Starts the work's machine, executes a request in it, and measures QEMU. `None` if the user stopped the bench.
    fn run_once(&self, work: &Work, request: &str, level: &Level) -> anyhow::Result<Option<Times>> {
        let machine = Machine { timing: level.timing, ..work.machine.clone() };
        let is_boot = matches!(work.start, Start::Boot);
        let watch = level.watch.clone().map(|watch| {
            if is_boot { Watch { roi: Roi::Always, start_fast: false, ..watch } } else { watch }
        });
        let recording = watch.map(|watch| {
            Recording::new(&self.cache, &self.qemu, &machine, &self.kernel_files, &watch, None)
        });
        let recording = recording.transpose()?;
        let mut instrumentation =
            recording.as_ref().map_or_else(Instrumentation::default, Recording::instrumentation);
        if let Some(plugin) = &level.plugin {
            instrumentation.load(plugin);
        }
        let before_ns = children_cpu_ns();
        let (start, limits) = (&work.start, LIMITS);
        let mut vm = checkpoint::start(
            &self.cache,
            &self.qemu,
            &machine,
            start,
            request,
            limits,
            instrumentation,
        )?;
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

/// Number of instructions in all regions of interest and on all CPUs; `None` if they were not counted.
fn instructions_of(accounting: &Accounting) -> Option<u64> {
    let cpus = accounting.regions.iter().flat_map(|region| &region.cpus);
    let sum: u64 = cpus.map(|cpu| cpu.used[INSTRUCTIONS]).sum();
    (sum > 0).then_some(sum)
}
