//! The published figures of `simos-1995`, from its data file. Names of fields are the keys of that file.

use std::collections::BTreeMap;

use lab::services::{Class, ServiceStats};
use serde::Deserialize;

use crate::published::{PublishedError, at_most, read, short, short_text};

/// The data file of the paper `simos-1995`.
const TEXT: &str = include_str!("../../../../papers/simos-1995.toml");

const WORKLOADS_MAX: usize = 8;
const ROWS_MAX: usize = 64;
const NAMES_MAX: usize = 8;
/// Maximum number in the paper. Its largest number is the instructions per second of eight processors.
const NUMBER_MAX: f64 = 1e10;

/// The figures in the tables and the text of a paper.
#[derive(Clone, Debug, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Paper {
    #[allow(dead_code)] // only for readers of the file
    name: String,
    #[serde(deserialize_with = "short_text")]
    pub title: String,
    /// The models of its uniprocessors, by year.
    pub machines: [String; 3],
    /// The model of its multiprocessor.
    pub multiprocessor: String,
    /// Shares of the time in user mode, kernel and idle (Table 2.1).
    pub validation: Validation,
    workload: Vec<Workload>,
    event_rates: EventRates,
    uniprocessor_services: Rows<ServiceRow, OtherServices>,
    multiprocessor_services: Rows<SlowdownRow, OtherSlowdowns>,
}

/// Shares of the time on the simulated and on the real machine (Table 2.1).
#[derive(Clone, Copy, Debug, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Validation {
    /// The step in which the paper prints the shares, percent.
    pub step_percent: f64,
    /// The shares that the paper's simulator gives.
    pub simulated: ModePercent,
    /// The shares that a bus monitor measured on the real machine.
    pub measured: ModePercent,
}

/// Percentages of the time in each mode.
#[derive(Clone, Copy, Debug, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ModePercent {
    pub kernel_percent: f64,
    pub user_percent: f64,
    pub idle_percent: f64,
    /// The part of all misses that are in kernel mode.
    pub kernel_miss_percent: f64,
}

/// Figures of a workload in the paper's text.
#[derive(Clone, Debug, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Workload {
    pub(super) name: String,
    /// The kernel's share of the time that is not idle, on the first machine.
    pub(super) kernel_percent: f64,
    /// The kernel's share of the time that is not idle, on the multiprocessor.
    pub(super) multiprocessor_kernel_percent: f64,
    /// Idle share of the time, by model.
    pub(super) idle_percent: BTreeMap<String, f64>,
    /// Speed-ups of the time that is not idle, on the second and the third machine.
    pub(super) speed_up: [f64; 2],
    /// Share of lock waits in the kernel's time on the multiprocessor.
    pub(super) sync_percent: f64,
    /// Share of waits for instructions in the kernel's memory stalls, on the first and the last machine.
    pub(super) fetch_stall_percent: Option<[f64; 2]>,
    /// Share of one line in the kernel's coherence misses on the multiprocessor.
    pub(super) one_line_percent: Option<f64>,
    /// Share of process table, user areas and kernel stacks in the kernel's coherence misses on the multiprocessor.
    pub(super) process_structures_percent: Option<f64>,
}

/// Events per second, by event and workload.
#[derive(Clone, Debug, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
struct EventRates {
    uniprocessor: BTreeMap<String, BTreeMap<String, f64>>,
    multiprocessor: BTreeMap<String, BTreeMap<String, f64>>,
}

/// The rows of a table.
#[derive(Clone, Debug, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
struct Rows<Row, Other> {
    rows: Vec<Row>,
    /// The rows of all services that have no row of their own, one for each workload.
    other: Vec<Other>,
}

/// A service on the uniprocessors: a row of Table 4.8. Pairs of speed-ups belong to the second and the third machine.
/// All other pairs belong to the first and the third machine. `class` and `names` select the matching services here.
#[derive(Clone, Debug, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct ServiceRow {
    pub(super) workload: String,
    pub(super) service: String,
    class: Option<String>,
    #[serde(default)]
    names: Vec<String>,
    pub(super) kernel_percent: [f64; 3],
    pub(super) computation_us: f64,
    pub(super) speed_up: [f64; 2],
    pub(super) cpi: [f64; 2],
    pub(super) fetch_mcpi: [f64; 2],
    pub(super) data_mcpi: [f64; 2],
    /// Shares of the service's waits for instructions and for data in all stalls of the kernel.
    pub(super) fetch_stall_percent: [f64; 2],
    pub(super) data_stall_percent: [f64; 2],
    pub(super) latency_us: f64,
    pub(super) latency_speed_up: [f64; 2],
    pub(super) rate_hz: f64,
    pub(super) cold_percent: f64,
}

/// All services of a workload without a row of their own in Table 4.8.
#[derive(Clone, Debug, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct OtherServices {
    workload: String,
    pub(super) kernel_percent: [f64; 3],
    pub(super) fetch_stall_percent: [f64; 2],
    pub(super) data_stall_percent: [f64; 2],
    pub(super) cold_percent: f64,
}

/// All services of a workload without a row of their own in Table 5.4.
#[derive(Clone, Debug, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct OtherSlowdowns {
    workload: String,
    /// Share of the kernel's time on the multiprocessor and on the uniprocessor.
    pub(super) kernel_percent: [f64; 2],
}

/// A service on the multiprocessor: a row of Table 5.4.
#[derive(Clone, Debug, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct SlowdownRow {
    pub(super) workload: String,
    pub(super) service: String,
    class: Option<String>,
    #[serde(default)]
    names: Vec<String>,
    /// Share of the kernel's time on the multiprocessor and on the uniprocessor.
    pub(super) kernel_percent: [f64; 2],
    pub(super) computation_us: f64,
    /// `None` for a service that the paper's uniprocessor does not have.
    pub(super) slowdown_percent: Option<f64>,
    /// Shares of the service's time: instructions, spin locks, coherence, upgrades, instruction cache, data cache.
    pub(super) parts_percent: [f64; 6],
    pub(super) latency_us: f64,
    pub(super) latency_slowdown_percent: Option<f64>,
    pub(super) blocked_us: Option<f64>,
    pub(super) descheduled_us: Option<f64>,
    pub(super) rate_hz: f64,
    pub(super) lock_acquires: f64,
    pub(super) coherence_misses: f64,
}

/// The services of the measured kernel that correspond to one service of the paper.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct MatchingServices<'a> {
    class: &'a str,
    names: &'a [String],
}

impl MatchingServices<'_> {
    /// Whether `service` matches.
    pub(super) fn includes(&self, service: &ServiceStats) -> bool {
        self.has_name(service.class, &service.name)
    }

    /// Whether a service of this class and name matches.
    fn has_name(&self, class: Class, name: &str) -> bool {
        class.label() == self.class && self.names.iter().any(|pattern| name_matches(pattern, name))
    }

    /// The class and the names, as a table shows them.
    pub(super) fn label(&self) -> String {
        format!("{} {}", self.class, self.names.join(", "))
    }
}

/// Whether a name matches a pattern, in which `*` stands for any text.
pub(super) fn name_matches(pattern: &str, name: &str) -> bool {
    let Some((start, rest)) = pattern.split_once('*') else { return name == pattern };
    name.strip_prefix(start).is_some_and(|tail| {
        let mut ends = tail.char_indices().map(|(index, _)| index).chain([tail.len()]);
        ends.any(|index| name_matches(rest, &tail[index..]))
    })
}

fn matching_services<'a>(
    class: Option<&'a String>,
    names: &'a [String],
) -> Option<MatchingServices<'a>> {
    class.map(|class| MatchingServices { class, names })
}

impl ServiceRow {
    /// The services of the measured kernel that correspond to this row, or `None` if there are none.
    pub(super) fn matching_services(&self) -> Option<MatchingServices<'_>> {
        matching_services(self.class.as_ref(), &self.names)
    }
}

impl SlowdownRow {
    /// The services of the measured kernel that correspond to this row, or `None` if there are none.
    pub(super) fn matching_services(&self) -> Option<MatchingServices<'_>> {
        matching_services(self.class.as_ref(), &self.names)
    }
}

impl Paper {
    /// Reads the figures that are built into the program.
    ///
    /// Fails if the text is not TOML, is too long, or has a number that is negative or too large for the paper.
    pub fn built_in() -> Result<Paper, PublishedError> {
        Paper::parse(TEXT)
    }

    /// Parses the paper's figures.
    ///
    /// Fails if the text is no such document, has too many rows, or has a figure that is negative or not finite.
    fn parse(text: &str) -> Result<Paper, PublishedError> {
        let paper: Paper = read(text)?;
        at_most(paper.workload.len(), WORKLOADS_MAX, "workloads")?;
        at_most(paper.uniprocessor_services.rows.len(), ROWS_MAX, "services")?;
        at_most(paper.multiprocessor_services.rows.len(), ROWS_MAX, "services")?;
        at_most(paper.uniprocessor_services.other.len(), WORKLOADS_MAX, "rows of other services")?;
        at_most(
            paper.multiprocessor_services.other.len(),
            WORKLOADS_MAX,
            "rows of other services",
        )?;
        for row in &paper.uniprocessor_services.rows {
            let arrays = [&row.kernel_percent[..], &row.speed_up, &row.cpi, &row.fetch_mcpi];
            let more_arrays = [&row.data_mcpi[..], &row.latency_speed_up];
            let stalls = [&row.fetch_stall_percent[..], &row.data_stall_percent];
            let arrays = arrays.into_iter().chain(more_arrays).chain(stalls).flatten();
            let scalars = [row.computation_us, row.latency_us, row.rate_hz, row.cold_percent];
            check(&row.service, &row.names, arrays.chain(&scalars))?;
        }
        for row in &paper.multiprocessor_services.rows {
            let arrays = row.kernel_percent.iter().chain(&row.parts_percent);
            let scalars = [row.computation_us, row.latency_us, row.rate_hz, row.coherence_misses];
            check(&row.service, &row.names, arrays.chain(&scalars))?;
        }
        for row in &paper.uniprocessor_services.other {
            let arrays = [&row.kernel_percent[..], &row.fetch_stall_percent];
            let numbers = arrays.into_iter().chain([&row.data_stall_percent[..]]).flatten();
            check(&row.workload, &[], numbers.chain([&row.cold_percent]))?;
        }
        for row in &paper.multiprocessor_services.other {
            check(&row.workload, &[], row.kernel_percent.iter())?;
        }
        let rates = &paper.event_rates;
        for (event, rates) in rates.uniprocessor.iter().chain(&rates.multiprocessor) {
            check(event, &[], rates.values())?;
        }
        Ok(paper)
    }

    /// Names of the workloads, in the paper's order.
    pub fn workloads(&self) -> impl Iterator<Item = &str> {
        self.workload.iter().map(|workload| workload.name.as_str())
    }

    pub(super) fn workload(&self, name: &str) -> Option<&Workload> {
        self.workload.iter().find(|workload| workload.name == name)
    }

    /// Events per second of the first machine, or of the multiprocessor. `None` if the paper has no such rate.
    pub(super) fn event_rate(&self, event: &str, workload: &str, is_multi: bool) -> Option<f64> {
        let rates = if is_multi {
            &self.event_rates.multiprocessor
        } else {
            &self.event_rates.uniprocessor
        };
        rates.get(event)?.get(workload).copied()
    }

    /// The rows of a workload in Table 4.8.
    pub(super) fn services(&self, workload: &str) -> impl Iterator<Item = &ServiceRow> {
        self.uniprocessor_services.rows.iter().filter(move |row| row.workload == workload)
    }

    /// The row of a workload's other services in Table 4.8.
    pub(super) fn other_services(&self, workload: &str) -> Option<&OtherServices> {
        self.uniprocessor_services.other.iter().find(|row| row.workload == workload)
    }

    /// The row of a workload's other services in Table 5.4.
    pub(super) fn other_slowdowns(&self, workload: &str) -> Option<&OtherSlowdowns> {
        self.multiprocessor_services.other.iter().find(|row| row.workload == workload)
    }

    /// The rows of a workload in Table 5.4.
    pub(super) fn slowdowns(&self, workload: &str) -> impl Iterator<Item = &SlowdownRow> {
        self.multiprocessor_services.rows.iter().filter(move |row| row.workload == workload)
    }
}

/// Checks a row: its name, its list of names, and that its numbers are in range.
fn check<'a>(
    name: &str,
    names: &[String],
    numbers: impl Iterator<Item = &'a f64>,
) -> Result<(), PublishedError> {
    short(name.to_owned())?;
    at_most(names.len(), NAMES_MAX, "names")?;
    for number in numbers {
        if !(0.0..=NUMBER_MAX).contains(number) {
            return Err(
                PublishedError::new("a number outside the range of this table").in_part(name)
            );
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_paper_is_read() {
        let paper = Paper::built_in().unwrap();
        assert_eq!(paper.workloads().collect::<Vec<_>>(), ["progdev", "database", "engineering"]);
        let count =
            |workload| (paper.services(workload).count(), paper.slowdowns(workload).count());
        assert_eq!(["progdev", "database", "engineering"].map(count), [(15, 15), (15, 17), (7, 7)]);
        let first = paper.services("progdev").next().unwrap();
        assert_eq!((first.service.as_str(), first.speed_up), ("DEMAND ZERO", [3.3, 5.1]));
        let validation = paper.validation;
        let misses =
            [validation.simulated, validation.measured].map(|part| part.kernel_miss_percent);
        assert_eq!(misses, [52.0, 49.0]);
        assert_eq!(paper.event_rate("system_calls", "database", false), Some(4632.0));
        assert_eq!(paper.event_rate("process_creations", "database", false), None);
    }

    /// In Tables 4.8 and 5.4, the listed services and the others make up the kernel's time.
    #[test]
    fn the_rows_of_a_workload_make_up_the_kernels_time() {
        let paper = Paper::built_in().unwrap();
        for workload in paper.workloads() {
            let other = paper.other_services(workload).unwrap();
            for (position, percent) in other.kernel_percent.into_iter().enumerate() {
                let listed: f64 =
                    paper.services(workload).map(|row| row.kernel_percent[position]).sum();
                assert!((listed + percent - 100.0).abs() < 2.0, "{workload}, {position}: {listed}");
            }
            let other = paper.other_slowdowns(workload).unwrap();
            let listed: f64 = paper.slowdowns(workload).map(|row| row.kernel_percent[0]).sum();
            assert!((listed + other.kernel_percent[0] - 100.0).abs() < 2.0, "{workload}: {listed}");
        }
    }

    /// Table 4.8: the stalls of a service follow from its share of the kernel's time and its stalls per cycle.
    #[test]
    fn the_shares_of_stalls_agree_with_the_stalls_per_instruction() {
        let paper = Paper::built_in().unwrap();
        // The table's shares add up to 66 and 58 % in `engineering`.
        for (workload, sums) in
            [("progdev", [99.0, 97.0]), ("database", [96.0, 93.0]), ("engineering", [66.0, 58.0])]
        {
            let other = paper.other_services(workload).unwrap();
            for (pair, position) in [0, 2].into_iter().enumerate() {
                let stalls = |row: &ServiceRow, mcpi: [f64; 2]| {
                    row.kernel_percent[position] * mcpi[pair] / row.cpi[pair]
                };
                let all: f64 = paper
                    .services(workload)
                    .map(|row| stalls(row, row.fetch_mcpi) + stalls(row, row.data_mcpi))
                    .sum();
                let mut listed = 0.0;
                for row in paper.services(workload) {
                    for (percent, mcpi) in [
                        (row.fetch_stall_percent, row.fetch_mcpi),
                        (row.data_stall_percent, row.data_mcpi),
                    ] {
                        listed += percent[pair];
                        let others =
                            other.fetch_stall_percent[pair] + other.data_stall_percent[pair];
                        let computed = (sums[pair] - others) * stalls(row, mcpi) / all;
                        let distance = (percent[pair] - computed).abs();
                        assert!(distance < 1.5, "{}: {} {computed}", row.service, percent[pair]);
                    }
                }
                let sum = listed + other.fetch_stall_percent[pair] + other.data_stall_percent[pair];
                assert_eq!(sum, sums[pair], "{workload}");
            }
        }
    }

    #[test]
    fn a_service_of_the_paper_has_names_here() {
        let paper = Paper::built_in().unwrap();
        let row = |name| paper.services("database").find(|row| row.service == name).unwrap();
        let select = row("select").matching_services().unwrap();
        assert!(select.has_name(Class::Syscall, "epoll_wait"));
        assert!(!select.has_name(Class::Fault, "epoll_wait"));
        let disk = row("DISK INT").matching_services().unwrap();
        assert!(
            ["virtio2-req.0", "virtio10-req.7"].iter().all(|irq| disk.has_name(Class::Irq, irq))
        );
        // Network cards, the generator of random numbers and the balloon are no disks.
        for irq in ["virtio0-input.0", "virtio0-output.0", "virtio1-input", "virtio3-reporting"] {
            assert!(!disk.has_name(Class::Irq, irq), "{irq}");
        }
        assert!(row("UTLB").matching_services().unwrap().has_name(Class::PageWalk, "of user mode"));
        assert_eq!(row("DBL_FAULT").matching_services(), None);
    }

    #[test]
    fn nonsense_is_refused() {
        let change = |from: &str, to: &str| {
            assert!(TEXT.contains(from), "{from}");
            Paper::parse(&TEXT.replacen(from, to, 1)).unwrap_err().to_string()
        };
        assert!(change("cold_percent = 54.0", "cold_percent = -1.0").contains("DEMAND ZERO"));
        assert!(change("cold_percent = 54.0", "warm_percent = 1.0").contains("warm_percent"));
        assert!(change("speed_up = [3.0, 7.4]", "speed_up = [3.0]").contains("length"));
    }
}
