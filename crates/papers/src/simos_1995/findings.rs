//! The findings of `simos-1995` as claims about machines, judged on the simulated
//! machines and on the published figures.

use std::collections::BTreeMap;

use lab::services::misses::{CLASSES, MissSample, StructureName};
use record::Table;

use super::published::{ModePercent, Paper, SlowdownRow};
use super::runs::{MachineRun, Mode, Stream, ratio};
use super::tables::{
    Sides, hidden_ratio, per_kinstruction, size_of, speed_up, stall_per_instruction,
};
use crate::judge::{
    CLOSE_RATIO, Claim, Figures, FindingsTable, Known, Reason, Selection, Side, Test, Unit,
    exactly, rounded,
};

const TABLE: FindingsTable = FindingsTable {
    subject: "What the finding is about: a workload, and a machine, a mode or a cache.",
    evidence: "Both sides. The simulation gives the same numbers each time, so that they have no \
         intervals.",
    ..FindingsTable::SIMULATED
};

/// Workloads with claims of their own.
const PROGDEV: &str = "progdev";
const DATABASE: &str = "database";

/// A service takes more time only above this factor. Figures have no intervals here, so that a smaller difference is not
/// material.
const SLOWER_FACTOR: f64 = 1.05;
/// A share that changes by less than this fraction counts as unchanged.
const UNCHANGED_FRACTION: f64 = 0.10;
/// Two speed-ups count as equal if they differ by less than this factor.
const ALIKE_FACTOR: f64 = 1.5;
/// Services with a smaller share of the kernel's time are not judged.
const KERNEL_RATIO_MIN: f64 = 0.01;
/// Minimum number of services for a statement about most services.
const SERVICES_MIN: usize = 3;
/// Minimum number of misses of a class for a statement about their change.
const MISSES_MIN: u64 = 100;

/// Class of misses on lines that the same context had evicted.
const SELF: &[&str] = &["self"];
/// Class of misses on lines that another context had evicted.
const OTHER: &[&str] = &["other"];
/// Classes of misses because another core had written the line.
const COHERENCE: &[&str] = &["true sharing", "false sharing"];

/// A part of the kernel's coherence misses is large if it exceeds this share.
const LARGE_RATIO: f64 = 0.1;
/// Kinds and names of the structures that stand for the paper's process table, user areas and kernel stacks. A kind
/// without a name includes all of its structures.
const PROCESS_STRUCTURES: [(&str, Option<&str>); 5] = [
    ("stack", None),
    ("slab", Some("task_struct")),
    ("slab", Some("signal_cache")),
    ("slab", Some("sighand_cache")),
    ("slab", Some("files_cache")),
];

const NO_FIGURE: &str = "the paper has no figure";
/// Why the claim about faster disks is not judged.
const NO_FAST_DISK: &str = "the command has no machine whose disk is 100 times faster";
/// Why the claims about Table 2.1 are not judged.
const NO_REAL_MACHINE: &str = "the command measures no real machine: irqlab bench kernel compares this machine with the \
                               model of its processor";

/// The number as a figure without an error, or `reason` if there is none.
fn known_or(number: Option<f64>, reason: &str) -> Known {
    number.map(exactly).ok_or_else(|| reason.into())
}

/// A machine of the paper.
#[derive(Clone, Copy, PartialEq)]
enum Machine {
    /// The uniprocessor at this position in the paper's order, from 0.
    Uniprocessor(usize),
    Multiprocessor,
}

/// Selects the misses of a cache in one mode on one kind of machine.
#[derive(Clone, Copy)]
struct Misses {
    cache: &'static str,
    /// Whether user mode misses. If not, the kernel.
    is_user: bool,
    /// Whether the machine is the multiprocessor. If not, a uniprocessor.
    is_multi: bool,
}

/// Misses of the kernel in the multiprocessor's L2.
const SHARED_L2: Misses = Misses { cache: "L2", is_user: false, is_multi: true };

/// A quantity of a workload. A number is the position of a uniprocessor in the paper's order, from 0.
#[derive(Clone, Copy)]
enum Quantity {
    IdleRatio(Machine),
    /// The kernel's share of the time that is not idle.
    KernelRatio(Machine),
    /// Share of memory stalls in the kernel's time.
    StallRatio(usize),
    /// Speed-up of the time that is not idle.
    SpeedUp(usize),
    /// Clock frequency over the first machine's clock frequency.
    ClockRatio(usize),
    /// The speed-ups of user mode and of the kernel: the larger over the smaller.
    SpeedUpDifference(usize),
    /// Hidden share of the kernel's waits for instructions.
    HiddenFetches(usize),
    /// Hidden share of the misses of one level.
    HiddenLevel,
    /// Misses per instruction of these classes with the largest cache, over misses per instruction with the smallest.
    RemainingMisses(Misses, &'static [&'static str]),
    /// Share of the services that take more time on the multiprocessor.
    SlowerServices,
    /// Share of the coherence line with the most misses in the kernel's coherence misses of L1D.
    LargestLine,
    /// Share of process descriptors and kernel stacks in the kernel's coherence misses of L2.
    ProcessStructures,
    /// Ratio of the kernel's memory stalls with a disk that is 100 times faster.
    StallsWithFastDisk,
    /// A share of Table 2.1: of the simulated machine, or of the real machine.
    Validation(ModeShare, Source),
}

/// A share of Table 2.1.
#[derive(Clone, Copy)]
enum ModeShare {
    KernelTime,
    UserTime,
    IdleTime,
    KernelMisses,
}

impl ModeShare {
    const ALL: [ModeShare; 4] =
        [ModeShare::KernelTime, ModeShare::UserTime, ModeShare::IdleTime, ModeShare::KernelMisses];

    fn label(self) -> &'static str {
        match self {
            ModeShare::KernelTime => "kernel time",
            ModeShare::UserTime => "user time",
            ModeShare::IdleTime => "idle time",
            ModeShare::KernelMisses => "misses in kernel mode",
        }
    }

    fn published_percent(self, percents: ModePercent) -> f64 {
        match self {
            ModeShare::KernelTime => percents.kernel_percent,
            ModeShare::UserTime => percents.user_percent,
            ModeShare::IdleTime => percents.idle_percent,
            ModeShare::KernelMisses => percents.kernel_miss_percent,
        }
    }
}

/// The machine of a share of Table 2.1.
#[derive(Clone, Copy)]
enum Source {
    Simulated,
    BusMonitor,
}

/// A figure that claims compare.
struct Cell<'a> {
    workload: &'a str,
    quantity: Quantity,
}

impl Figures<Cell<'_>> for Sides<'_> {
    fn unit(&self, cell: &Cell<'_>) -> Unit {
        match cell.quantity {
            Quantity::IdleRatio(_)
            | Quantity::KernelRatio(_)
            | Quantity::StallRatio(_)
            | Quantity::HiddenFetches(_)
            | Quantity::HiddenLevel
            | Quantity::RemainingMisses(..)
            | Quantity::SlowerServices
            | Quantity::LargestLine
            | Quantity::ProcessStructures
            | Quantity::Validation(..) => Unit::PERCENT,
            Quantity::SpeedUp(_)
            | Quantity::ClockRatio(_)
            | Quantity::SpeedUpDifference(_)
            | Quantity::StallsWithFastDisk => Unit::RATIO,
        }
    }

    /// The figure on the simulated machines. An error says which part of the command has not measured it, or why the
    /// command cannot measure it.
    fn measured_figure(&self, &Cell { workload, quantity }: &Cell<'_>) -> Known {
        let parts_missing = |parts| parts_not_measured(workload, parts);
        let machines_missing = || parts_missing("machines");
        let figure = |machine, quantity: &dyn Fn(&MachineRun) -> Option<f64>| {
            let run = match machine {
                Machine::Uniprocessor(position) => self.machine(workload, position),
                Machine::Multiprocessor => self.multiprocessor(workload),
            };
            known_or(quantity(run.ok_or_else(machines_missing)?), "the run has no figure")
        };
        let uniprocessor = |position, quantity: &dyn Fn(&MachineRun) -> Option<f64>| {
            figure(Machine::Uniprocessor(position), quantity)
        };
        let first_machine = self.machine(workload, 0);
        let speed_up_over_first = |position, ticks: fn(&MachineRun) -> u64| {
            let first_machine = first_machine.ok_or_else(machines_missing)?;
            uniprocessor(position, &|run| speed_up(run, first_machine, ticks))
        };
        match quantity {
            Quantity::IdleRatio(machine) => figure(machine, &MachineRun::idle_ratio),
            Quantity::KernelRatio(machine) => figure(machine, &MachineRun::kernel_ratio),
            Quantity::StallRatio(position) => {
                uniprocessor(position, &|run| run.stall_ratio(Mode::Kernel))
            }
            Quantity::SpeedUp(position) => speed_up_over_first(position, MachineRun::busy_ticks),
            Quantity::ClockRatio(position) => {
                let first_machine = first_machine.ok_or_else(machines_missing)?;
                uniprocessor(position, &|run| {
                    ratio(run.sample.ticks_hz as f64, first_machine.sample.ticks_hz as f64)
                })
            }
            Quantity::SpeedUpDifference(position) => {
                let user = speed_up_over_first(position, |run| run.ticks(Mode::User))?;
                let kernel = speed_up_over_first(position, |run| run.ticks(Mode::Kernel))?;
                let factor = (user.mean / kernel.mean).max(kernel.mean / user.mean);
                known_or(factor.is_finite().then_some(factor), "a speed-up of nothing")
            }
            Quantity::HiddenFetches(position) => {
                let in_order_run = self
                    .in_order(workload, self.name(position))
                    .ok_or_else(|| parts_missing("machines,in-order"))?;
                let stall = |run: &MachineRun| {
                    stall_per_instruction(run, Mode::Kernel, Stream::Instructions)
                };
                uniprocessor(position, &|run| hidden_ratio(stall(run)?, stall(in_order_run)?))
            }
            Quantity::HiddenLevel => {
                Err("an out-of-order core's waits are not divided by level: misses overlap".into())
            }
            Quantity::RemainingMisses(misses, classes) => {
                let runs_by_size = self.cache_sizes(workload, misses.is_multi);
                let (Some(small), Some(large)) = (runs_by_size.first(), runs_by_size.last()) else {
                    return Err(parts_missing("caches"));
                };
                if runs_by_size.len() < 2 {
                    return Err("only one size was measured".into());
                }
                remaining_ratio([small, large], misses, classes)
            }
            Quantity::SlowerServices => {
                let machines = self.machine(workload, 0).zip(self.multiprocessor(workload));
                machines.ok_or_else(machines_missing)?;
                slower_share(self.slowdowns(workload))
            }
            Quantity::LargestLine | Quantity::ProcessStructures => {
                let runs_by_size = self.cache_sizes(workload, true);
                let run = runs_by_size.first().ok_or_else(|| parts_missing("caches"))?;
                let misses = run.sample.misses.as_ref();
                let misses = misses.ok_or_else(|| Reason::from("misses were not classified"))?;
                match quantity {
                    Quantity::LargestLine => largest_line_ratio(misses),
                    _ => process_structures_ratio(misses),
                }
            }
            Quantity::StallsWithFastDisk => Err(NO_FAST_DISK.into()),
            Quantity::Validation(..) => Err(NO_REAL_MACHINE.into()),
        }
    }

    fn is_in_paper(&self, cell: &Cell<'_>) -> bool {
        self.paper.workload(cell.workload).is_some()
    }

    /// The figure of the paper. `None` for a quantity that the paper does not state.
    fn published(&self, &Cell { workload, quantity }: &Cell<'_>) -> Option<Known> {
        let paper_workload = self.paper.workload(workload);
        let figure = match quantity {
            Quantity::IdleRatio(Machine::Uniprocessor(position)) => {
                let percent = paper_workload?.idle_percent.get(self.name(position))?;
                return Some(Ok(exactly(percent / 100.0)));
            }
            Quantity::KernelRatio(Machine::Uniprocessor(_)) => {
                paper_workload.map(|paper_workload| paper_workload.kernel_percent / 100.0)
            }
            Quantity::KernelRatio(Machine::Multiprocessor) => paper_workload
                .map(|paper_workload| paper_workload.multiprocessor_kernel_percent / 100.0),
            // Table 4.8 has stalls by service on the first and the third machine.
            Quantity::StallRatio(position) => published_stalls(self.paper, workload, position),
            Quantity::SpeedUp(position) => {
                paper_workload.map(|paper_workload| paper_workload.speed_up[position - 1])
            }
            // The clocks of the second and the third machine over the first machine's clock.
            Quantity::ClockRatio(position) => [1.0, 2.5].get(position - 1).copied(),
            Quantity::SlowerServices => {
                let slowdowns =
                    self.paper.slowdowns(workload).filter_map(|row| row.slowdown_percent);
                return Some(slower_share(
                    slowdowns.map(|percent| 1.0 + percent / 100.0).collect(),
                ));
            }
            Quantity::LargestLine => paper_workload
                .and_then(|paper_workload| paper_workload.one_line_percent)
                .map(|percent| percent / 100.0),
            Quantity::ProcessStructures => paper_workload
                .and_then(|paper_workload| paper_workload.process_structures_percent)
                .map(|percent| percent / 100.0),
            Quantity::Validation(share, source) => {
                let validation = self.paper.validation;
                let percents = match source {
                    Source::Simulated => validation.simulated,
                    Source::BusMonitor => validation.measured,
                };
                let share = share.published_percent(percents) / 100.0;
                return Some(Ok(rounded(share, validation.step_percent / 100.0)));
            }
            _ => return None,
        };
        Some(known_or(figure, NO_FIGURE))
    }
}

impl<'r> Sides<'r> {
    /// The model of the uniprocessor at this position in the paper's order.
    fn name(&self, position: usize) -> &str {
        self.paper.machines.get(position).map_or("", String::as_str)
    }

    /// For each service: its computation on the multiprocessor over its computation on the first machine. Leaves out
    /// services with a small share of the kernel's time.
    fn slowdowns(&self, workload: &str) -> Vec<f64> {
        let slowdown = |row: &SlowdownRow| {
            let services = row.matching_services()?;
            let multi = self.multiprocessor(workload)?.join_services(&services)?;
            let single = self.machine(workload, 0)?.join_services(&services)?;
            let slowdown = ratio(multi.computation_ns()?, single.computation_ns()?)?;
            (multi.kernel_ratio()? >= KERNEL_RATIO_MIN).then_some(slowdown)
        };
        self.paper.slowdowns(workload).filter_map(slowdown).collect()
    }

    /// The claims about a workload, in the order of the paper.
    fn claims<'a>(&self, workload: &'a str) -> Vec<Claim<Cell<'a>>> {
        let mut claims = self.claims_about_processors(workload);
        claims.extend(self.claims_about_hidden_stalls(workload));
        claims.extend(self.claims_about_larger_caches(workload));
        claims.extend(self.claims_about_eight_cpus(workload));
        claims.extend(self.claims_about_coherence(workload));
        claims.extend(not_judged(workload));
        claims
    }

    /// Section 4.2: faster uniprocessors.
    fn claims_about_processors<'a>(&self, workload: &'a str) -> Vec<Claim<Cell<'a>>> {
        use Quantity::{ClockRatio, IdleRatio, SpeedUp, SpeedUpDifference, StallRatio};
        let cell = |quantity| Cell { workload, quantity };
        let side = |quantity| Side::Cell(cell(quantity));
        let mut claims = Vec::new();
        // Workloads that wait for a disk.
        let idle_percent = self.paper.workload(workload).map(|published| &published.idle_percent);
        if idle_percent.is_some_and(|percent| percent.values().any(|percent| *percent > 0.0)) {
            for (slow, fast) in [(0, 1), (1, 2)] {
                claims.push(greater(
                    "waiting for the disk takes a larger share on a faster processor",
                    format!("{workload}, {} and {}", self.name(slow), self.name(fast)),
                    "idle share: faster > slower",
                    [fast, slow].map(|position| side(IdleRatio(Machine::Uniprocessor(position)))),
                ));
            }
        }
        // Memory stays a bottleneck, but does not get worse.
        claims.push(greater(
            "the kernel waits for memory in more than half of its time",
            format!("{workload}, {}", self.name(0)),
            "share of memory stalls in the kernel's time > 0.5",
            [side(StallRatio(0)), Side::Number(0.5)],
        ));
        claims.push(greater(
            "the share of memory stalls does not grow on faster machines",
            format!("{workload}, kernel, {} and {}", self.name(0), self.name(2)),
            "share of memory stalls: 1994 x 1.1 > 1998",
            [Side::Times(1.0 + UNCHANGED_FRACTION, cell(StallRatio(0))), side(StallRatio(2))],
        ));
        // User and kernel code speed up alike, and by more than the clock.
        for position in [1, 2] {
            let subject = format!("{workload}, {}", self.name(position));
            claims.push(greater(
                "without idle time, machines become faster than their clocks",
                subject.clone(),
                "speed-up of the time that is not idle > ratio of the clocks",
                [side(SpeedUp(position)), side(ClockRatio(position))],
            ));
            claims.push(greater(
                "kernel and user mode become faster alike",
                subject,
                "speed-ups of user mode and kernel: larger / smaller < 1.5",
                [Side::Number(ALIKE_FACTOR), side(SpeedUpDifference(position))],
            ));
        }
        claims
    }

    /// Section 4.3: the stalls that the out-of-order core hides.
    fn claims_about_hidden_stalls<'a>(&self, workload: &'a str) -> Vec<Claim<Cell<'a>>> {
        use Quantity::{HiddenFetches, HiddenLevel};
        let side = |quantity| Side::Cell(Cell { workload, quantity });
        let mut claims = Vec::new();
        for position in [1, 2] {
            let subject = format!("{workload}, kernel, {}", self.name(position));
            claims.push(Claim::new(
                "an out-of-order core hides waits for instructions, too",
                subject.clone(),
                "hidden share of the waits for instructions > 0",
                Test::PositiveShare,
                [side(HiddenFetches(position))],
            ));
            claims.push(greater(
                "an out-of-order core hides more of the first level's misses than of the second's",
                subject,
                "hidden share: L1 > L2",
                [side(HiddenLevel), side(HiddenLevel)],
            ));
        }
        claims
    }

    /// Section 4.4: the misses that larger caches remove.
    fn claims_about_larger_caches<'a>(&self, workload: &'a str) -> Vec<Claim<Cell<'a>>> {
        let side = |quantity| Side::Cell(Cell { workload, quantity });
        let mut claims = Vec::new();
        for cache in ["L1I", "L1D"] {
            for is_user in [false, true] {
                let misses = Misses { cache, is_user, is_multi: false };
                let mode = if is_user { "user" } else { "kernel" };
                claims.push(greater(
                    "a larger cache removes more of the misses on own lines than of those that \
                     others cause",
                    format!("{workload}, {cache}{}, {mode}", self.sizes(workload, misses)),
                    "remaining misses per instruction: other > self",
                    [OTHER, SELF].map(|classes| side(Quantity::RemainingMisses(misses, classes))),
                ));
            }
        }
        claims
    }

    /// Section 5: one CPU and eight CPUs.
    fn claims_about_eight_cpus<'a>(&self, workload: &'a str) -> Vec<Claim<Cell<'a>>> {
        use Quantity::{IdleRatio, KernelRatio, SlowerServices};
        let side = |quantity| Side::Cell(Cell { workload, quantity });
        let mut claims = Vec::new();
        claims.push(greater(
            "most services take more time on eight CPUs",
            workload.to_owned(),
            "part of the services that are slower by 5 % and more > 0.5",
            [side(SlowerServices), Side::Number(0.5)],
        ));
        let eight_and_one = [Machine::Multiprocessor, Machine::Uniprocessor(0)];
        // Section 5.1: in the database it falls, because eight CPUs compute more for a transaction.
        if workload == DATABASE {
            claims.push(greater(
                "the kernel's share of the time that is not idle falls on eight CPUs",
                workload.to_owned(),
                "kernel's share: one CPU > eight",
                [Machine::Uniprocessor(0), Machine::Multiprocessor]
                    .map(|machine| side(KernelRatio(machine))),
            ));
        } else {
            claims.push(greater(
                "the kernel's share of the time that is not idle grows on eight CPUs",
                workload.to_owned(),
                "kernel's share: eight CPUs > one",
                eight_and_one.map(|machine| side(KernelRatio(machine))),
            ));
        }
        claims.push(greater(
            "idle time grows on eight CPUs",
            workload.to_owned(),
            "idle share: eight CPUs > one",
            eight_and_one.map(|machine| side(IdleRatio(machine))),
        ));
        claims
    }

    /// Sections 5.2 and 5.3: the misses that larger caches do not remove, and where coherence misses come from.
    fn claims_about_coherence<'a>(&self, workload: &'a str) -> Vec<Claim<Cell<'a>>> {
        use Quantity::{LargestLine, ProcessStructures, RemainingMisses};
        let side = |quantity| Side::Cell(Cell { workload, quantity });
        let mut claims = Vec::new();
        let subject = format!("{workload}, L2{}, kernel", self.sizes(workload, SHARED_L2));
        let remaining_misses = |classes| side(RemainingMisses(SHARED_L2, classes));
        claims.push(greater(
            "coherence misses do not fall with the size of the cache",
            subject.clone(),
            "remaining coherence misses per instruction > 0.9",
            [remaining_misses(COHERENCE), Side::Number(1.0 - UNCHANGED_FRACTION)],
        ));
        claims.push(greater(
            "other misses do",
            subject,
            "remaining misses per instruction: coherence > self and other",
            [remaining_misses(COHERENCE), remaining_misses(&["self", "other"])],
        ));
        // The paper has one figure on the origin for each of two workloads. Its line holds `memlock` and 22 other
        // variables, so it must be a line of L2, not of L1D.
        let origin = match workload {
            PROGDEV => {
                Some(("a single line has many of the kernel's coherence misses", LargestLine))
            }
            DATABASE => Some((
                "process table, user areas and kernel stacks have many of the kernel's coherence misses",
                ProcessStructures,
            )),
            _ => None,
        };
        if let Some((finding, quantity)) = origin {
            let line_size = match quantity {
                LargestLine => self.coherence_line_size(workload),
                _ => String::new(),
            };
            claims.push(greater(
                finding,
                format!("{workload}, eight CPUs{line_size}"),
                "share of the kernel's coherence misses > 0.1",
                [side(quantity), Side::Number(LARGE_RATIO)],
            ));
        }
        claims
    }

    /// The length of a coherence line of the multiprocessor, as a part of a claim's subject. Empty if misses were not
    /// classified.
    fn coherence_line_size(&self, workload: &str) -> String {
        let runs = self.cache_sizes(workload, true);
        let misses = runs.first().and_then(|run| run.sample.misses.as_ref());
        let line_bytes = misses.map(|misses| misses.line_bytes).filter(|bytes| *bytes > 0);
        line_bytes.map_or_else(String::new, |bytes| format!(", lines of {bytes} B"))
    }

    /// The smallest and the largest size of a cache, as a part of a claim's subject. Empty if no sizes were measured.
    fn sizes(&self, workload: &str, misses: Misses) -> String {
        let runs = self.cache_sizes(workload, misses.is_multi);
        let kib = |run: &&MachineRun| size_of(run, misses.cache).map(|bytes| bytes >> 10);
        let smallest_and_largest = runs.first().and_then(kib).zip(runs.last().and_then(kib));
        smallest_and_largest
            .map_or_else(String::new, |(small, large)| format!(" of {small} and {large} KiB"))
    }
}

/// A claim that the first of two sides is greater.
fn greater<'a>(
    finding: &'static str,
    subject: String,
    claim: &str,
    sides: [Side<Cell<'a>>; 2],
) -> Claim<Cell<'a>> {
    Claim::new(finding, subject, claim, Test::Greater, sides)
}

/// Claims of the paper that the command cannot judge: each has its reason.
fn not_judged(workload: &str) -> Vec<Claim<Cell<'_>>> {
    let side = |quantity| Side::Cell(Cell { workload, quantity });
    let mut claims = Vec::new();
    // Section 4.2, footnote 2.
    if [PROGDEV, DATABASE].contains(&workload) {
        claims.push(Claim::new(
            "a faster disk leaves the memory stalls as they are",
            workload,
            format!(
                "stalls with a disk 100 times faster within {:.0} % of the others",
                CLOSE_RATIO * 100.0
            ),
            Test::Close,
            [side(Quantity::StallsWithFastDisk), Side::Number(1.0)],
        ));
    }
    // Table 2.1, of a parallel compilation.
    if workload == PROGDEV {
        claims.extend(ModeShare::ALL.map(|share| {
            Claim::new(
                "the simulated machine behaves like the real one",
                format!("{workload}, {}", share.label()),
                format!("simulated share within {:.0} % of the real one", CLOSE_RATIO * 100.0),
                Test::Close,
                [
                    side(Quantity::Validation(share, Source::Simulated)),
                    side(Quantity::Validation(share, Source::BusMonitor)),
                ],
            )
        }));
    }
    claims
}

/// The largest share of a single coherence line in the kernel's coherence misses of L1D. Misses of all lines of L1D in a
/// coherence line count together.
fn largest_line_ratio(misses: &MissSample) -> Known {
    let line_bytes = misses.line_bytes.max(1);
    let mut by_line: BTreeMap<u64, u64> = BTreeMap::new();
    let mut all_misses = 0;
    for bytes in misses.shared.iter().filter(|bytes| bytes.service.class.is_kernel()) {
        let count = bytes.true_sharing + bytes.false_sharing;
        all_misses += count;
        if let Some(address) = bytes.address {
            *by_line.entry(address / line_bytes).or_default() += count;
        }
    }
    let largest = by_line.values().copied().max().unwrap_or(0);
    share_of_misses(largest, all_misses)
}

/// The share of [`PROCESS_STRUCTURES`] in the kernel's coherence misses of L2.
fn process_structures_ratio(misses: &MissSample) -> Known {
    let (mut process_misses, mut all_misses) = (0, 0);
    for row in misses.data.iter().filter(|row| row.cache == "L2" && row.service.class.is_kernel()) {
        let counts = CLASSES.iter().zip(row.classes);
        let sharing = counts.filter(|(class, _)| class.ends_with("_sharing"));
        let count: u64 = sharing.map(|(_, count)| count).sum();
        let StructureName { kind, name } = &row.key;
        let is_of_process = PROCESS_STRUCTURES.iter().any(|(listed_kind, listed_name)| {
            kind == listed_kind
                && listed_name.is_none_or(|listed_name| name.as_deref() == Some(listed_name))
        });
        all_misses += count;
        process_misses += if is_of_process { count } else { 0 };
    }
    share_of_misses(process_misses, all_misses)
}

/// A share of coherence misses. An error if there are too few.
fn share_of_misses(part: u64, all: u64) -> Known {
    if all < MISSES_MIN {
        return Err(format!("fewer than {MISSES_MIN} coherence misses of the kernel").into());
    }
    known_or(ratio(part as f64, all as f64), "the run has no figure")
}

/// The reason for a figure of a workload whose machines belong to these parts of the command.
fn parts_not_measured(workload: &str, parts: &str) -> Reason {
    Reason::not_measured("", format!("--workload {workload} --parts {parts}"))
}

/// The share of the slowdowns that are above [`SLOWER_FACTOR`].
fn slower_share(slowdowns: Vec<f64>) -> Known {
    if slowdowns.len() < SERVICES_MIN {
        return Err(
            format!("fewer than {SERVICES_MIN} services were measured on both machines").into()
        );
    }
    let count = slowdowns.iter().filter(|slowdown| **slowdown > SLOWER_FACTOR).count();
    known_or(ratio(count as f64, slowdowns.len() as f64), "")
}

/// Share of memory stalls in the time of the services in Table 4.8, weighted by their shares of the kernel's time.
/// `None` for the second machine: the table has no stalls on it.
fn published_stalls(paper: &Paper, workload: &str, position: usize) -> Option<f64> {
    let stall_position = [Some(0), None, Some(1)][position]?;
    let (mut stall_percent, mut listed_percent) = (0.0, 0.0);
    for row in paper.services(workload) {
        let kernel_percent = row.kernel_percent[position];
        let mcpi = row.fetch_mcpi[stall_position] + row.data_mcpi[stall_position];
        stall_percent += kernel_percent * mcpi / row.cpi[stall_position];
        listed_percent += kernel_percent;
    }
    ratio(stall_percent, listed_percent)
}

/// Misses per instruction with the largest cache, over misses per instruction with the smallest.
fn remaining_ratio([small, large]: [&MachineRun; 2], misses: Misses, classes: &[&str]) -> Known {
    let Misses { cache, is_user, .. } = misses;
    if small.class_misses(cache, is_user, classes) < MISSES_MIN {
        return Err(format!("fewer than {MISSES_MIN} misses in the smallest cache").into());
    }
    let rate = |run| per_kinstruction(run, cache, is_user, classes);
    let remaining = rate(large).zip(rate(small)).and_then(|(large, small)| ratio(large, small));
    known_or(remaining, "the run has no figure")
}

/// Table `findings`: all findings about all measured workloads.
#[must_use]
pub fn findings(paper: &Paper, runs: &[MachineRun], selection: Selection) -> Table {
    let sides = Sides { paper, runs };
    let claims = sides.workloads().into_iter().flat_map(|workload| sides.claims(workload));
    TABLE.judge(claims.collect(), &sides, selection)
}
