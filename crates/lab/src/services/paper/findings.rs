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
    evidence: "Both sides. The simulation gives the same numbers each time, so that they have no intervals.",
    ..FindingsTable::SIMULATED
};

/// A share that changes by less than this part of itself stays the same.
const SAME: f64 = 0.10;
/// Relative importance stays the same: within this factor.
const ALIKE_FACTOR: f64 = 1.5;
/// What an order of magnitude is.
const MAGNITUDE: f64 = 10.0;
/// A service with less of the kernel's time is not judged.
const KERNEL_RATIO_MIN: f64 = 0.01;
/// Services that a statement about most of them needs.
const SERVICES_MIN: usize = 3;
/// Misses of a class below which their change says nothing.
const MISSES_MIN: u64 = 100;

/// Classes of misses by the context that had evicted the line.
const SELF: &[&str] = &["self"];
const OTHER: &[&str] = &["other"];
/// Another core had written it.
const COHERENCE: &[&str] = &["true sharing", "false sharing"];

fn known(number: Option<f64>, why: &str) -> Known {
    number.map(exactly).ok_or_else(|| why.to_owned())
}

const NOT_MEASURED: &str = "not measured";
const NO_FIGURE: &str = "the paper has no figure";

impl Sides<'_> {
    /// A number of a workload on a machine, by its place in the paper's order.
    fn ask(
        &self,
        workload: &str,
        number: usize,
        ask: impl Fn(&MachineRun) -> Option<f64>,
    ) -> Known {
        let run = self.machine(workload, number).ok_or_else(|| NOT_MEASURED.to_owned())?;
        known(ask(run), "the run has no figure")
    }

    fn name(&self, number: usize) -> &str {
        self.paper.machines.get(number).map_or("", String::as_str)
    }

    /// Section 4.2: workloads that wait for a disk.
    fn idle(&self, workload: &str) -> Vec<Finding> {
        let published = |number: usize| {
            let of = self.paper.workload(workload);
            known(of.and_then(|of| of.idle_percent.get(self.name(number)).copied()), NO_FIGURE)
        };
        let waits = self
            .paper
            .workload(workload)
            .is_some_and(|of| of.idle_percent.values().any(|percent| *percent > 0.0));
        let steps = if waits { &[(0, 1), (1, 2)][..] } else { &[] };
        let one = |&(slow, fast): &(usize, usize)| {
            let both = [published(fast), published(slow)];
            let has_figures = both.iter().all(Result::is_ok);
            let [more, less] = both;
            finding(
                "waiting for the disk takes a larger share on a faster processor",
                format!("{workload}, {} and {}", self.name(slow), self.name(fast)),
                "idle share: faster > slower",
                greater(
                    self.ask(workload, fast, MachineRun::idle_ratio),
                    self.ask(workload, slow, MachineRun::idle_ratio),
                ),
                has_figures.then(|| greater(more, less)),
            )
        };
        steps.iter().map(one).collect()
    }

    /// Section 4.2: the memory stays a bottleneck, but does not become a worse one.
    fn stalls(&self, workload: &str) -> Vec<Finding> {
        let kernel = |run: &MachineRun| run.stall_ratio(Mode::Kernel);
        let here = |number| self.ask(workload, number, kernel);
        // Table 4.8 has stalls by service on the first and the third machine.
        let there = |at: usize| known(published_stalls(self.paper, workload, at), NO_FIGURE);
        let scaled = |share: Known, factor: f64| -> Known {
            share.map(|share| exactly(share.mean * factor))
        };
        let subject = || format!("{workload}, kernel, {} and {}", self.name(0), self.name(2));
        vec![
            finding(
                "the kernel waits for memory in more than half of its time",
                format!("{workload}, {}", self.name(0)),
                "share of memory stalls in the kernel's time > 0.5",
                greater(here(0), Ok(exactly(0.5))),
                Some(greater(there(0), Ok(exactly(0.5)))),
            ),
            finding(
                "the share of memory stalls does not grow on faster machines",
                subject(),
                "share of memory stalls: 1994 x 1.1 > 1998",
                greater(scaled(here(0), 1.0 + SAME), here(2)),
                Some(greater(scaled(there(0), 1.0 + SAME), there(1))),
            ),
            finding(
                "the share of memory stalls does not shrink on faster machines",
                subject(),
                "share of memory stalls: 1998 > 1994 x 0.9",
                greater(here(2), scaled(here(0), 1.0 - SAME)),
                Some(greater(there(1), scaled(there(0), 1.0 - SAME))),
            ),
        ]
    }

    /// Section 4.2: user and kernel code gain alike, and more than the clock.
    fn speed_ups(&self, workload: &str) -> Vec<Finding> {
        let mut all = Vec::new();
        for number in [1, 2] {
            let base = self.machine(workload, 0);
            let faster = |ticks: fn(&MachineRun) -> u64| {
                self.ask(workload, number, |run| speed_up(run, base?, ticks))
            };
            let clock = self.ask(workload, number, |run| {
                ratio(run.sample.ticks_hz as f64, base?.sample.ticks_hz as f64)
            });
            let published = self.paper.workload(workload).map(|of| of.speed_up[number - 1]);
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

    /// Section 4.3: what the out-of-order core hides.
    fn hidden(&self, workload: &str) -> Vec<Finding> {
        let mut all = Vec::new();
        for number in [1, 2] {
            let hides = |stream: Stream| -> Known {
                let in_order = self.in_order(workload, self.name(number));
                self.ask(workload, number, |run| {
                    let of = |run| stall_per_instruction(run, Mode::Kernel, stream);
                    hidden_ratio(of(run)?, of(in_order?)?)
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

    /// Section 4.4: what larger caches remove.
    fn larger_caches(&self, workload: &str) -> Vec<Finding> {
        let runs = self.cache_sizes(workload, false);
        let mut all = Vec::new();
        for cache in ["L1I", "L1D"] {
            for is_user in [false, true] {
                let mode = if is_user { "user" } else { "kernel" };
                let left = |classes| left_of(&runs, cache, is_user, classes);
                let sizes = sizes(&runs, cache);
                all.push(finding(
                    "a larger cache removes more of the misses on own lines than of those that others cause",
                    format!("{workload}, {cache}{sizes}, {mode}"),
                    "what is left of misses per instruction: other > self",
                    greater(left(OTHER), left(SELF)),
                    None,
                ));
            }
        }
        all
    }

    /// Section 5.2: what they do not remove.
    fn coherence(&self, workload: &str) -> Vec<Finding> {
        let runs = self.cache_sizes(workload, true);
        let left = |classes| left_of(&runs, "L2", false, classes);
        let subject = || format!("{workload}, L2{}, kernel", sizes(&runs, "L2"));
        vec![
            finding(
                "coherence misses do not fall with the size of the cache",
                subject(),
                "what is left of coherence misses per instruction > 0.9",
                greater(left(COHERENCE), Ok(exactly(1.0 - SAME))),
                None,
            ),
            finding(
                "other misses do",
                subject(),
                "what is left per instruction: coherence > self and other",
                greater(left(COHERENCE), left(&["self", "other"])),
                None,
            ),
        ]
    }

    /// Section 4.5 and Table 4.8: services gain differently.
    fn services(&self, workload: &str) -> Vec<Finding> {
        let rows: Vec<&ServiceRow> = self.paper.services(workload).collect();
        let one = |what: &'static str, name: &'static str, is_latency: bool| {
            let here = rows.iter().filter_map(|row| {
                let [first, _, last] = on_machines(self, workload, row.here()).ok()?;
                let (first, last) = (first?, last?);
                let is_large = first.kernel_ratio()? >= KERNEL_RATIO_MIN;
                let both = match is_latency {
                    true => (first.latency_ns()?, last.latency_ns()?),
                    false => (first.computation_ns()?, last.computation_ns()?),
                };
                ratio(both.0, both.1).filter(|_| is_large)
            });
            let there = rows.iter().map(|row| match is_latency {
                true => row.latency_speed_up[1],
                false => row.speed_up[1],
            });
            finding(
                name,
                format!("{workload}, {what}, {} and {}", self.name(0), self.name(2)),
                "largest speed-up of a service / smallest > 10",
                greater(spread(here.collect()), Ok(exactly(MAGNITUDE))),
                Some(greater(spread(there.collect()), Ok(exactly(MAGNITUDE)))),
            )
        };
        vec![
            one("computation", "speed-ups of services differ by an order of magnitude", false),
            one("latency", "speed-ups of services differ by an order of magnitude", true),
        ]
    }

    /// Section 5: eight CPUs.
    fn on_eight_cpus(&self, workload: &str) -> Vec<Finding> {
        let multi = self.multiprocessor(workload);
        let on_eight = |ask: fn(&MachineRun) -> Option<f64>| -> Known {
            known(ask(multi.ok_or_else(|| NOT_MEASURED.to_owned())?), "the run has no figure")
        };
        let published = self.paper.workload(workload);
        let there =
            |ask: fn(&super::published::Workload) -> f64| known(published.map(ask), NO_FIGURE);
        let rows = || self.paper.slowdowns(workload);
        let here: Vec<f64> = rows()
            .filter_map(|row| {
                let of = row.here()?;
                let (eight, one) = (multi?.joined(&of)?, self.machine(workload, 0)?.joined(&of)?);
                let slowdown = ratio(eight.computation_ns()?, one.computation_ns()?)?;
                (eight.kernel_ratio()? >= KERNEL_RATIO_MIN).then_some(slowdown)
            })
            .collect();
        let slower = |all: Vec<f64>| -> Known {
            let count = all.iter().filter(|slowdown| **slowdown > 1.0).count();
            match all.len() < SERVICES_MIN {
                true => Err(format!("fewer than {SERVICES_MIN} services were measured on both")),
                false => known(ratio(count as f64, all.len() as f64), ""),
            }
        };
        let all_there: Vec<f64> = rows().map(|row| 1.0 + row.slowdown_percent / 100.0).collect();
        vec![
            finding(
                "most services take more time on eight CPUs",
                workload.to_owned(),
                "part of the services that are slower > 0.5",
                greater(slower(here), Ok(exactly(0.5))),
                Some(greater(slower(all_there), Ok(exactly(0.5)))),
            ),
            finding(
                "the kernel's share of the time that is not idle grows on eight CPUs",
                workload.to_owned(),
                "kernel's share: eight CPUs > one",
                greater(
                    on_eight(MachineRun::kernel_ratio),
                    self.ask(workload, 0, MachineRun::kernel_ratio),
                ),
                Some(greater(
                    there(|of| of.multiprocessor_kernel_percent),
                    there(|of| of.kernel_percent),
                )),
            ),
            finding(
                "idle time grows on eight CPUs",
                workload.to_owned(),
                "idle share: eight CPUs > one",
                greater(
                    on_eight(MachineRun::idle_ratio),
                    self.ask(workload, 0, MachineRun::idle_ratio),
                ),
                None,
            ),
        ]
    }
}

/// Share of the stalls in the time of the listed services, weighted by their parts of the kernel's time; `at`: of
/// the first machine or the last.
fn published_stalls(paper: &Paper, workload: &str, at: usize) -> Option<f64> {
    let (mut stalls, mut whole) = (0.0, 0.0);
    for row in paper.services(workload) {
        let kernel = row.kernel_percent[if at == 0 { 0 } else { 2 }];
        stalls += kernel * (row.fetch_mcpi[at] + row.data_mcpi[at]) / row.cpi[at];
        whole += kernel;
    }
    ratio(stalls, whole)
}

/// Whether two factors differ by less than [`ALIKE_FACTOR`].
fn alike(one: Known, other: Known) -> Judged {
    let factor = one.and_then(|one| {
        let other = other?;
        let factor = (one.mean / other.mean).max(other.mean / one.mean);
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

/// What is left of misses per instruction in the largest cache, of those in the smallest.
fn left_of(runs: &[&MachineRun], cache: &str, is_user: bool, classes: &[&str]) -> Known {
    let (Some(small), Some(large)) = (runs.first(), runs.last()) else {
        return Err(NOT_MEASURED.to_owned());
    };
    if runs.len() < 2 {
        return Err("one size alone was measured".to_owned());
    }
    if small.misses_of(cache, is_user, classes) < MISSES_MIN {
        return Err(format!("fewer than {MISSES_MIN} misses in the smallest cache"));
    }
    let rate = |run| per_kinstruction(run, cache, is_user, classes);
    let left = rate(large).zip(rate(small)).and_then(|(large, small)| ratio(large, small));
    left.map(|mean| Figure { mean, half_width: 0.0 }).ok_or_else(|| NOT_MEASURED.to_owned())
}

fn sizes(runs: &[&MachineRun], cache: &str) -> String {
    let kib = |run: &&MachineRun| size_of(run, cache).map(|bytes| bytes >> 10);
    let ends = runs.first().and_then(kib).zip(runs.last().and_then(kib));
    ends.map_or_else(String::new, |(small, large)| format!(" of {small} and {large} KiB"))
}

/// All findings.
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
