//! The paper's findings, each judged by the simulated machines and by the published figures.

use record::Table;

use super::published::{Paper, ServiceRow};
use super::runs::{MachineRun, Mode, Stream, ratio};
use super::tables::{
    Sides, hidden_ratio, on_machines, per_kinstruction, size_of, speed_up, stall_per_instruction,
};
use crate::judge::{Figure, Finding, FindingsTable, Judged, Known, exactly, finding, greater};

const TABLE: FindingsTable = FindingsTable {
    subject: "What the finding is about: a workload, and a machine, a mode or a cache.",
    evidence: "Both sides. The simulation gives the same numbers each time, so that they have no \
         intervals.",
    ..FindingsTable::SIMULATED
};

/// A share that changes by less than this fraction counts as unchanged.
const UNCHANGED_FRACTION: f64 = 0.10;
/// Two speed-ups count as alike if they differ by less than this factor.
const ALIKE_FACTOR: f64 = 1.5;
/// The factor of one order of magnitude.
const MAGNITUDE: f64 = 10.0;
/// Services with a smaller share of the kernel's time are not judged.
const KERNEL_RATIO_MIN: f64 = 0.01;
/// Minimum number of services for a statement about most services.
const SERVICES_MIN: usize = 3;
/// Minimum number of misses of a class for a statement about their change.
const MISSES_MIN: u64 = 100;

// Classes of misses by the context that had evicted the line.
const SELF: &[&str] = &["self"];
const OTHER: &[&str] = &["other"];
/// Classes of misses because another core had written the line.
const COHERENCE: &[&str] = &["true sharing", "false sharing"];

fn known(number: Option<f64>, why: &str) -> Known {
    number.map(exactly).ok_or_else(|| why.to_owned())
}

const NOT_MEASURED: &str = "not measured";
const NO_FIGURE: &str = "the paper has no figure";

impl Sides<'_> {
    /// A figure of a workload on the machine at position `number` of the paper's order.
    fn figure(
        &self,
        workload: &str,
        number: usize,
        figure: impl Fn(&MachineRun) -> Option<f64>,
    ) -> Known {
        let run = self.machine(workload, number).ok_or_else(|| NOT_MEASURED.to_owned())?;
        known(figure(run), "the run has no figure")
    }

    fn name(&self, number: usize) -> &str {
        self.paper.machines.get(number).map_or("", String::as_str)
    }

    /// Section 4.2: workloads that wait for a disk.
    fn idle(&self, workload: &str) -> Vec<Finding> {
        let published = |number: usize| {
            let published = self.paper.workload(workload);
            let percents = published.map(|published| &published.idle_percent);
            known(percents.and_then(|percents| percents.get(self.name(number)).copied()), NO_FIGURE)
        };
        let waits = self
            .paper
            .workload(workload)
            .is_some_and(|published| published.idle_percent.values().any(|percent| *percent > 0.0));
        let steps = if waits { &[(0, 1), (1, 2)][..] } else { &[] };
        let judge_step = |&(slow, fast): &(usize, usize)| {
            let both = [published(fast), published(slow)];
            let has_figures = both.iter().all(Result::is_ok);
            let [more, less] = both;
            finding(
                "waiting for the disk takes a larger share on a faster processor",
                format!("{workload}, {} and {}", self.name(slow), self.name(fast)),
                "idle share: faster > slower",
                greater(
                    self.figure(workload, fast, MachineRun::idle_ratio),
                    self.figure(workload, slow, MachineRun::idle_ratio),
                ),
                has_figures.then(|| greater(more, less)),
            )
        };
        steps.iter().map(judge_step).collect()
    }

    /// Section 4.2: memory stays a bottleneck, but does not get worse.
    fn stalls(&self, workload: &str) -> Vec<Finding> {
        let kernel = |run: &MachineRun| run.stall_ratio(Mode::Kernel);
        let simulated = |number| self.figure(workload, number, kernel);
        // Table 4.8 has stalls by service on the first and the third machine.
        let published = |machine: StallMachine| {
            known(published_stalls(self.paper, workload, machine), NO_FIGURE)
        };
        let scaled = |share: Known, factor: f64| -> Known {
            share.map(|share| exactly(share.mean * factor))
        };
        let subject = || format!("{workload}, kernel, {} and {}", self.name(0), self.name(2));
        vec![
            finding(
                "the kernel waits for memory in more than half of its time",
                format!("{workload}, {}", self.name(0)),
                "share of memory stalls in the kernel's time > 0.5",
                greater(simulated(0), Ok(exactly(0.5))),
                Some(greater(published(StallMachine::First), Ok(exactly(0.5)))),
            ),
            finding(
                "the share of memory stalls does not grow on faster machines",
                subject(),
                "share of memory stalls: 1994 x 1.1 > 1998",
                greater(scaled(simulated(0), 1.0 + UNCHANGED_FRACTION), simulated(2)),
                Some(greater(
                    scaled(published(StallMachine::First), 1.0 + UNCHANGED_FRACTION),
                    published(StallMachine::Last),
                )),
            ),
            finding(
                "the share of memory stalls does not shrink on faster machines",
                subject(),
                "share of memory stalls: 1998 > 1994 x 0.9",
                greater(simulated(2), scaled(simulated(0), 1.0 - UNCHANGED_FRACTION)),
                Some(greater(
                    published(StallMachine::Last),
                    scaled(published(StallMachine::First), 1.0 - UNCHANGED_FRACTION),
                )),
            ),
        ]
    }

    /// Section 4.2: user and kernel code speed up alike, and by more than the clock.
    fn speed_ups(&self, workload: &str) -> Vec<Finding> {
        let mut all = Vec::new();
        for number in [1, 2] {
            let base = self.machine(workload, 0);
            let faster = |ticks: fn(&MachineRun) -> u64| {
                self.figure(workload, number, |run| speed_up(run, base?, ticks))
            };
            let clock = self.figure(workload, number, |run| {
                ratio(run.sample.ticks_hz as f64, base?.sample.ticks_hz as f64)
            });
            let published = self.paper.workload(workload);
            let published = published.map(|published| published.speed_up[number - 1]);
            let clock_there = known([1.0, 2.5].get(number - 1).copied(), NO_FIGURE);
            let subject = format!("{workload}, {}", self.name(number));
            all.push(finding(
                "without idle time, machines become faster than their clocks",
                subject.clone(),
                "speed-up of the time that is not idle > ratio of the clocks",
                greater(faster(MachineRun::busy_ticks), clock),
                Some(greater(known(published, NO_FIGURE), clock_there)),
            ));
            all.push(finding(
                "kernel and user mode become faster alike",
                subject,
                "speed-ups of user mode and kernel: larger / smaller < 1.5",
                alike(faster(|run| run.ticks(Mode::User)), faster(|run| run.ticks(Mode::Kernel))),
                None,
            ));
        }
        all
    }

    /// Section 4.3: the stalls that the out-of-order core hides.
    fn hidden(&self, workload: &str) -> Vec<Finding> {
        let mut all = Vec::new();
        for number in [1, 2] {
            let hides = |stream: Stream| -> Known {
                let in_order = self.in_order(workload, self.name(number));
                self.figure(workload, number, |run| {
                    let stall = |run| stall_per_instruction(run, Mode::Kernel, stream);
                    hidden_ratio(stall(run)?, stall(in_order?)?)
                })
            };
            all.push(finding(
                "an out-of-order core hides waits for instructions, too",
                format!("{workload}, kernel, {}", self.name(number)),
                "hidden share of the waits for instructions > 0",
                greater(hides(Stream::Instructions), Ok(exactly(0.0))),
                None,
            ));
            let levels = "an out-of-order core's waits are not divided by level: misses overlap";
            all.push(finding(
                "an out-of-order core hides more of the first level's misses than of the second's",
                format!("{workload}, kernel, {}", self.name(number)),
                "hidden share: L1 > L2",
                greater(Err(levels.to_owned()), Err(levels.to_owned())),
                None,
            ));
        }
        all
    }

    /// Section 4.4: the misses that larger caches remove.
    fn larger_caches(&self, workload: &str) -> Vec<Finding> {
        let runs = self.cache_sizes(workload, false);
        let mut all = Vec::new();
        for cache in ["L1I", "L1D"] {
            for is_user in [false, true] {
                let mode = if is_user { "user" } else { "kernel" };
                let remaining = |classes| remaining_ratio(&runs, cache, is_user, classes);
                let sizes = sizes(&runs, cache);
                all.push(finding(
                    "a larger cache removes more of the misses on own lines than of those that \
                     others cause",
                    format!("{workload}, {cache}{sizes}, {mode}"),
                    "remaining misses per instruction: other > self",
                    greater(remaining(OTHER), remaining(SELF)),
                    None,
                ));
            }
        }
        all
    }

    /// Section 5.2: the misses that larger caches do not remove.
    fn coherence(&self, workload: &str) -> Vec<Finding> {
        let runs = self.cache_sizes(workload, true);
        let remaining = |classes| remaining_ratio(&runs, "L2", false, classes);
        let subject = || format!("{workload}, L2{}, kernel", sizes(&runs, "L2"));
        vec![
            finding(
                "coherence misses do not fall with the size of the cache",
                subject(),
                "remaining coherence misses per instruction > 0.9",
                greater(remaining(COHERENCE), Ok(exactly(1.0 - UNCHANGED_FRACTION))),
                None,
            ),
            finding(
                "other misses do",
                subject(),
                "remaining misses per instruction: coherence > self and other",
                greater(remaining(COHERENCE), remaining(&["self", "other"])),
                None,
            ),
        ]
    }

    /// Section 4.5 and Table 4.8: services speed up differently.
    fn services(&self, workload: &str) -> Vec<Finding> {
        let rows: Vec<&ServiceRow> = self.paper.services(workload).collect();
        let judge_spread = |time: &'static str, name: &'static str, is_latency: bool| {
            let simulated = rows.iter().filter_map(|row| {
                let [first, _, last] = on_machines(self, workload, row.matching_services()).ok()?;
                let (first, last) = (first?, last?);
                let is_large = first.kernel_ratio()? >= KERNEL_RATIO_MIN;
                if !is_large {
                    return None;
                }
                if is_latency {
                    ratio(first.latency_ns()?, last.latency_ns()?)
                } else {
                    ratio(first.computation_ns()?, last.computation_ns()?)
                }
            });
            let published = rows.iter().map(|row| {
                let speed_ups = if is_latency { row.latency_speed_up } else { row.speed_up };
                speed_ups[1]
            });
            finding(
                name,
                format!("{workload}, {time}, {} and {}", self.name(0), self.name(2)),
                "largest speed-up of a service / smallest > 10",
                greater(spread(simulated.collect()), Ok(exactly(MAGNITUDE))),
                Some(greater(spread(published.collect()), Ok(exactly(MAGNITUDE)))),
            )
        };
        vec![
            judge_spread(
                "computation",
                "speed-ups of services differ by an order of magnitude",
                false,
            ),
            judge_spread("latency", "speed-ups of services differ by an order of magnitude", true),
        ]
    }

    /// Section 5: one CPU and eight CPUs.
    fn on_eight_cpus(&self, workload: &str) -> Vec<Finding> {
        let multi = self.multiprocessor(workload);
        let on_eight = |figure: fn(&MachineRun) -> Option<f64>| -> Known {
            known(figure(multi.ok_or_else(|| NOT_MEASURED.to_owned())?), "the run has no figure")
        };
        let published = self.paper.workload(workload);
        let published_figure = |figure: fn(&super::published::Workload) -> f64| {
            known(published.map(figure), NO_FIGURE)
        };
        let rows = || self.paper.slowdowns(workload);
        let simulated_slowdowns: Vec<f64> = rows()
            .filter_map(|row| {
                let services = row.matching_services()?;
                let eight = multi?.joined(&services)?;
                let single = self.machine(workload, 0)?.joined(&services)?;
                let slowdown = ratio(eight.computation_ns()?, single.computation_ns()?)?;
                (eight.kernel_ratio()? >= KERNEL_RATIO_MIN).then_some(slowdown)
            })
            .collect();
        let slower = |slowdowns: Vec<f64>| -> Known {
            if slowdowns.len() < SERVICES_MIN {
                return Err(format!("fewer than {SERVICES_MIN} services were measured on both"));
            }
            let count = slowdowns.iter().filter(|slowdown| **slowdown > 1.0).count();
            known(ratio(count as f64, slowdowns.len() as f64), "")
        };
        let published_slowdowns: Vec<f64> =
            rows().map(|row| 1.0 + row.slowdown_percent / 100.0).collect();
        vec![
            finding(
                "most services take more time on eight CPUs",
                workload.to_owned(),
                "part of the services that are slower > 0.5",
                greater(slower(simulated_slowdowns), Ok(exactly(0.5))),
                Some(greater(slower(published_slowdowns), Ok(exactly(0.5)))),
            ),
            finding(
                "the kernel's share of the time that is not idle grows on eight CPUs",
                workload.to_owned(),
                "kernel's share: eight CPUs > one",
                greater(
                    on_eight(MachineRun::kernel_ratio),
                    self.figure(workload, 0, MachineRun::kernel_ratio),
                ),
                Some(greater(
                    published_figure(|published| published.multiprocessor_kernel_percent),
                    published_figure(|published| published.kernel_percent),
                )),
            ),
            finding(
                "idle time grows on eight CPUs",
                workload.to_owned(),
                "idle share: eight CPUs > one",
                greater(
                    on_eight(MachineRun::idle_ratio),
                    self.figure(workload, 0, MachineRun::idle_ratio),
                ),
                None,
            ),
        ]
    }
}

/// A machine whose stalls by service are in Table 4.8.
#[derive(Clone, Copy)]
enum StallMachine {
    First,
    Last,
}

/// Share of memory stalls in the time of the listed services, weighted by their shares of the kernel's time.
fn published_stalls(paper: &Paper, workload: &str, machine: StallMachine) -> Option<f64> {
    // The table has kernel shares of three machines, and stalls of the first and the last.
    let (kernel_position, stall_position) = match machine {
        StallMachine::First => (0, 0),
        StallMachine::Last => (2, 1),
    };
    let (mut stall_percent, mut listed_percent) = (0.0, 0.0);
    for row in paper.services(workload) {
        let kernel_percent = row.kernel_percent[kernel_position];
        let mcpi = row.fetch_mcpi[stall_position] + row.data_mcpi[stall_position];
        stall_percent += kernel_percent * mcpi / row.cpi[stall_position];
        listed_percent += kernel_percent;
    }
    ratio(stall_percent, listed_percent)
}

/// Whether two factors differ by less than [`ALIKE_FACTOR`].
fn alike(first: Known, second: Known) -> Judged {
    let factor = first.and_then(|first| {
        let second = second?;
        let factor = (first.mean / second.mean).max(second.mean / first.mean);
        known(Some(factor).filter(|factor| factor.is_finite()), "a speed-up of nothing")
    });
    greater(Ok(exactly(ALIKE_FACTOR)), factor)
}

/// The largest number over the smallest.
fn spread(numbers: Vec<f64>) -> Known {
    if numbers.len() < SERVICES_MIN {
        return Err(format!("fewer than {SERVICES_MIN} services were measured on both"));
    }
    let largest = numbers.iter().copied().fold(0.0, f64::max);
    let smallest = numbers.iter().copied().fold(f64::INFINITY, f64::min);
    known(ratio(largest, smallest), "a speed-up of nothing")
}

/// Misses per instruction with the largest cache, over misses per instruction with the smallest.
fn remaining_ratio(runs: &[&MachineRun], cache: &str, is_user: bool, classes: &[&str]) -> Known {
    let (Some(small), Some(large)) = (runs.first(), runs.last()) else {
        return Err(NOT_MEASURED.to_owned());
    };
    if runs.len() < 2 {
        return Err("only one size was measured".to_owned());
    }
    if small.misses_of(cache, is_user, classes) < MISSES_MIN {
        return Err(format!("fewer than {MISSES_MIN} misses in the smallest cache"));
    }
    let rate = |run| per_kinstruction(run, cache, is_user, classes);
    let remaining = rate(large).zip(rate(small)).and_then(|(large, small)| ratio(large, small));
    remaining.map(|mean| Figure { mean, half_width: 0.0 }).ok_or_else(|| NOT_MEASURED.to_owned())
}

fn sizes(runs: &[&MachineRun], cache: &str) -> String {
    let kib = |run: &&MachineRun| size_of(run, cache).map(|bytes| bytes >> 10);
    let ends = runs.first().and_then(kib).zip(runs.last().and_then(kib));
    ends.map_or_else(String::new, |(small, large)| format!(" of {small} and {large} KiB"))
}

#[must_use]
pub fn findings(paper: &Paper, runs: &[MachineRun]) -> Table {
    let sides = Sides { paper, runs };
    let mut all = Vec::new();
    for workload in sides.workloads() {
        all.extend(sides.idle(workload));
        all.extend(sides.stalls(workload));
        all.extend(sides.speed_ups(workload));
        all.extend(sides.hidden(workload));
        all.extend(sides.larger_caches(workload));
        all.extend(sides.services(workload));
        all.extend(sides.on_eight_cpus(workload));
        all.extend(sides.coherence(workload));
    }
    TABLE.of(all)
}
