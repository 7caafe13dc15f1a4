//! The tables of the experiment `services`, from the sample of one window. This module has the
//! columns and sums that several tables share.

mod absent;
mod agreement;
mod cpu_times;
mod histograms;
mod locks;
mod misses;
mod modes;
mod profile;
mod services;
mod waits;

pub(super) use absent::absent_columns;
pub(super) use agreement::agreement;
pub(super) use cpu_times::cpu_times;
pub(super) use histograms::histograms;
pub(super) use locks::{cgroup_locks, locks, service_locks};
pub(super) use misses::misses;
pub(super) use modes::modes;
pub(super) use profile::profile;
pub(super) use services::{services, unknown_time};
pub(super) use waits::waits;

use record::{Columns, column};

use super::counters::CYCLES;
use super::misses::ServiceName;
use super::sample::{ServiceStats, ServicesSample};

/// The columns that name a service.
fn key_columns<'a>() -> Columns<'a, ServiceName> {
    let class = "Kind of service: syscall, fault, exception, interrupt, irq, softirq, scheduler, \
                 lock, kernel thread, other; user, page walk, unknown (the kernel's or user mode's), probes (irqlab's own) \
                 and idle complete the sum.";
    Columns::all([
        column("class", class)
            .priority(98)
            .key()
            .text(|service: &ServiceName| service.class.label()),
        column("service", "The service, as the kernel spells it.")
            .priority(100)
            .key()
            .text(|service: &ServiceName| service.name.clone()),
    ])
}

impl ServiceStats {
    fn service_name(&self) -> ServiceName {
        ServiceName { class: self.class, name: self.name.clone() }
    }
}

impl ServicesSample {
    /// The counter `name` of a service, or `None` if the bench does not have the counter.
    #[must_use]
    pub fn count(&self, service: &ServiceStats, name: &str) -> Option<u64> {
        service.counters.get(self.counter(name)?).copied()
    }

    /// The sum of the counter `name` over the included services, or `None` if the bench does not have the counter.
    #[must_use]
    pub fn sum(&self, name: &str, is_included: impl Fn(&ServiceStats) -> bool) -> Option<u64> {
        self.counter(name)?;
        let services = self.services.iter().filter(|service| is_included(service));
        services.map(|service| self.count(service, name)).sum()
    }

    /// Total time of the included services, in ticks. `None` if no included service has a known time.
    #[must_use]
    pub fn ticks(&self, is_included: impl Fn(&ServiceStats) -> bool) -> Option<u64> {
        let services = self.services.iter().filter(|service| is_included(service));
        let ticks: Vec<u64> = services.filter_map(|service| service.self_ticks).collect();
        (!ticks.is_empty()).then(|| ticks.iter().sum())
    }

    /// Ticks in nanoseconds, rounded.
    fn whole_ns(&self, ticks: u64) -> u64 {
        self.ns_of(ticks as f64).round() as u64
    }

    /// Whether ticks are the cycles of a model.
    fn has_cycles(&self) -> bool {
        self.counter(CYCLES).is_some()
    }
}

/// `part / total`, or `None` if either is unknown or the total is 0.
fn ratio(part: Option<u64>, total: Option<u64>) -> Option<f64> {
    let (part, total) = (part?, total?);
    (total > 0).then(|| part as f64 / total as f64)
}

fn is_kernel(service: &ServiceStats) -> bool {
    service.class.is_kernel()
}

#[cfg(test)]
pub(super) mod tests {
    use super::super::counters::{DATA_STALL, FETCH_STALL, INSTRUCTIONS};
    use record::Value;
    use stats::Distribution;

    use super::super::class::Class;
    use super::*;
    use crate::handlers::Cgroup;
    use crate::services::misses::{
        KeyedMisses, MissRow, MissSample, MissWait, SharedLine, StructureName,
    };
    use crate::services::sample::{Agreement, LockMethod, LockStats, LockWaiter, Times, WaitStats};

    /// Two system calls, user mode and idle on one CPU of 1 GHz for 1,000 ticks.
    pub(in super::super) fn sample() -> ServicesSample {
        let mut latency = Distribution::default();
        let mut computation = Distribution::default();
        for (request, service) in [(300, 100), (500, 200)] {
            latency.record(request, 0);
            computation.record(service, 0);
        }
        let service = |class, name: &str, ticks, counters: [u64; 4]| ServiceStats {
            class,
            name: name.to_owned(),
            self_ticks: Some(ticks),
            page_walk_ticks: None,
            requests: None,
            times: None,
            counters: counters.to_vec(),
        };
        let read = ServiceStats {
            requests: Some(3),
            times: Some(Times {
                latency,
                computation: Some(computation),
                computation_ticks: Some(300),
                blocked_ticks: Some(400),
                descheduled_ticks: Some(60),
                unseen: None,
            }),
            ..service(Class::Syscall, "read", 310, [310, 100, 50, 110])
        };
        ServicesSample {
            window_ticks: 1_000,
            window_ns: 1_000,
            cpus: 1,
            ticks_hz: 1_000_000_000,
            counters: [CYCLES, INSTRUCTIONS, FETCH_STALL, DATA_STALL].map(str::to_owned).to_vec(),
            services: vec![
                service(Class::User, "user", 500, [500, 400, 0, 100]),
                read,
                service(Class::Idle, "idle", 190, [10, 10, 0, 0]),
            ],
            waits: vec![WaitStats {
                class: Class::Syscall,
                service: "read".to_owned(),
                wait: Some("pipe: data".to_owned()),
                count: 2,
                blocked_ticks: 400,
            }],
            agreement: vec![Agreement {
                what: "page faults".to_owned(),
                counted: 7,
                kernel: Some(7),
                source: "/proc/vmstat".to_owned(),
                edge_max: 0,
            }],
            ..ServicesSample::default()
        }
    }

    /// Cache misses of `read` in [`sample`].
    fn missed() -> MissSample {
        let service = || ServiceName { class: Class::Syscall, name: "read".to_owned() };
        let by_name = |evictor_or_function: &str, self_count| KeyedMisses {
            service: service(),
            cache: "L1D".to_owned(),
            key: evictor_or_function.to_owned(),
            classes: [0, self_count, 0, 0, 0, 0, 0],
        };
        let wait = |level: &str, count, wait_ticks| MissWait {
            service: service(),
            is_fetch: false,
            level: level.to_owned(),
            count,
            wait_ticks,
        };
        let classes = [4, 1, 0, 0, 2, 0, 0];
        let row = MissRow {
            service: service(),
            cache: "L1D".to_owned(),
            classes,
            capacity: 1,
            conflict: 0,
        };
        let data = KeyedMisses {
            service: service(),
            cache: "L1D".to_owned(),
            key: StructureName { kind: "slab".to_owned(), name: Some("filp".to_owned()) },
            classes,
        };
        let line = |address, false_sharing| SharedLine {
            service: service(),
            kind: "slab".to_owned(),
            structure: Some("file.f_pos".to_owned()),
            address: Some(address),
            function: "vfs_read".to_owned(),
            cpus: 0b11,
            true_sharing: 0,
            false_sharing,
        };
        MissSample {
            rows: vec![row],
            evictors: vec![by_name("user", 1)],
            functions: (0..1_030).map(|rank| by_name(&format!("f{rank}"), 2_000 - rank)).collect(),
            data: vec![data],
            waits: vec![wait("L2", 4, 60), wait("memory", 3, 140)],
            shared: vec![line(0x1000, 2), line(0x2000, 7), line(0x1008, 1)],
            line_bytes: 64,
        }
    }

    #[test]
    fn stalls_are_divided_by_level_and_the_most_shared_line_comes_first() {
        let tables = misses(&sample(), &missed());
        let find = |name: &str| tables.iter().find(|table| table.name == name).unwrap();
        let numbers = |name: &str, column: &str| -> Vec<Option<f64>> {
            let table = find(name);
            let cell = |row: &Vec<Value>| table.get(row, column).and_then(Value::number);
            table.rows().iter().map(cell).collect()
        };
        // 110 cycles of data stalls of `read`; user mode's 100 have no misses.
        let read_rows = find("miss_stalls").rows().iter().filter(|row| row[1] == "read".into());
        let stalls: Vec<f64> = read_rows.filter_map(|row| row[6].number()).collect();
        assert_eq!(stalls.iter().sum::<f64>(), 160.0);
        assert!(stalls.contains(&33.0) && stalls.contains(&77.0), "{stalls:?}");
        assert_eq!(numbers("shared_lines", "line"), [Some(1.0), Some(2.0), Some(2.0)]);
        assert_eq!(numbers("shared_lines", "miss_count"), [Some(7.0), Some(2.0), Some(1.0)]);
        let functions = numbers("miss_functions", "miss_count");
        let sum: f64 = functions.iter().flatten().sum();
        assert_eq!((functions.len(), sum), (1_001, 1_530_065.0));
        assert_eq!(numbers("miss_functions", "self_count"), functions);
        assert_eq!(numbers("misses", "per_kilo_instruction_ratio"), [Some(70.0)]);
    }

    #[test]
    fn shares_of_the_kernel_name_every_class_that_they_leave_out() {
        let table = services(&sample());
        let doc = &table.columns[table.column("kernel_ratio").unwrap()].doc;
        let all = [
            Class::User,
            Class::PageWalk,
            Class::Unknown,
            Class::Probes,
            Class::Idle,
            Class::Syscall,
            Class::Lock,
            Class::KernelThread,
            Class::Other,
        ];
        for class in all {
            let is_named = doc.contains(class.label());
            assert_eq!(is_named, !class.is_kernel(), "{}: {doc}", class.label());
        }
    }

    #[test]
    fn much_unknown_time_has_a_warning() {
        let warning = |unknown_ticks| {
            let mut sample = sample();
            let kernel = ServiceStats {
                class: Class::Syscall,
                self_ticks: Some(30),
                ..sample.services[0].clone()
            };
            let unknown = ServiceStats {
                class: Class::Unknown,
                self_ticks: Some(unknown_ticks),
                ..kernel.clone()
            };
            sample.services = vec![kernel, unknown];
            unknown_time(&sample)
        };
        assert_eq!(warning(0), None);
        let share = "70.0 % of the time that may be the kernel's has no known service, so a share of 30.0 % to 100 %";
        assert!(warning(70).is_some_and(|warning| warning.contains(share)));
    }

    /// A lock of a simulated machine.
    fn lock_of_calls() -> LockStats {
        LockStats {
            class: Class::Syscall,
            service: "write".to_owned(),
            waiter: None,
            kind: "mutex".to_owned(),
            spins: false,
            place: "pipe_write+0x10".to_owned(),
            lock: None,
            method: LockMethod::Calls,
            acquires: Some(3),
            contended: 1,
            interrupted: None,
            unfinished: None,
            waited_ticks: 50,
            waited_max_ticks: None,
            spun_ticks: None,
            releases: Some(2),
            held_ticks: Some(70),
        }
    }

    /// A lock of a live machine: only its waits are seen.
    fn lock_of_waits(id: u64, waits: [u64; 3], times: [u64; 3]) -> LockStats {
        let cgroup = Cgroup { id, path: Some(format!("/{id}")), container: None, no_path: "" };
        let [contended, interrupted, unfinished] = waits;
        let [waited_ticks, waited_max, spun] = times;
        LockStats {
            waiter: Some(LockWaiter::Cgroup(cgroup)),
            method: LockMethod::WaitsByCaller,
            acquires: None,
            contended,
            interrupted: Some(interrupted),
            unfinished: Some(unfinished),
            waited_ticks,
            waited_max_ticks: Some(waited_max),
            spun_ticks: Some(spun),
            releases: None,
            held_ticks: None,
            ..lock_of_calls()
        }
    }

    fn cells<const N: usize>(table: &record::Table, row: usize, names: [&str; N]) -> [Value; N] {
        names.map(|name| table.get(&table.rows()[row], name).unwrap().clone())
    }

    #[test]
    fn held_times_are_absent_if_no_release_was_seen() {
        let held = |releases, held_ticks| {
            let lock = LockStats { releases, held_ticks, ..lock_of_calls() };
            cells(&locks(&sample(), &[lock]), 0, ["release_count", "held_total_ns", "held_mean_ns"])
        };
        assert_eq!(held(Some(0), Some(0)), [0_u64.into(), Value::Absent, Value::Absent]);
        assert_eq!(held(Some(2), Some(70)), [2_u64.into(), Value::Real(70.0), Value::Real(35.0)]);
        assert_eq!(held(Some(2), None), [2_u64.into(), Value::Absent, Value::Absent]);
        assert_eq!(held(None, None), [Value::Absent, Value::Absent, Value::Absent]);
    }

    #[test]
    fn waits_of_a_live_machine_add_up_and_what_is_not_seen_is_absent() {
        let waits =
            [lock_of_waits(1, [2, 1, 0], [300, 200, 10]), lock_of_waits(2, [1, 0, 1], [60, 60, 0])];
        let by_place = locks(&sample(), &waits);
        assert_eq!(by_place.rows().len(), 1);
        let counts = ["contended_count", "interrupted_count", "unfinished_count"];
        assert_eq!(cells(&by_place, 0, counts), [3_u64, 1, 1].map(Value::from));
        let times = ["waited_total_ns", "waited_mean_ns", "waited_max_ns", "spinning_total_ns"];
        assert_eq!(cells(&by_place, 0, times), [360.0, 120.0, 200.0, 10.0].map(Value::Real));
        let unseen = ["acquire_count", "contended_ratio", "release_count", "held_total_ns"];
        assert_eq!(cells(&by_place, 0, unseen), unseen.map(|_| Value::Absent));
        let by_service = service_locks(&sample(), &waits);
        let names = ["lock", "place", "acquires_per_request"];
        let expected = [Value::Absent, "pipe_write+0x10".into(), Value::Absent];
        assert_eq!(cells(&by_service, 0, names), expected);
        let by_group = cgroup_locks(&sample(), &waits).unwrap();
        let of_group = |row| cells(&by_group, row, ["cgroup", "contended_count"]);
        assert_eq!(of_group(0), ["/1".into(), 2_u64.into()]);
        assert_eq!(of_group(1), ["/2".into(), 1_u64.into()]);
        assert!(cgroup_locks(&sample(), &[lock_of_calls()]).is_none());
    }

    #[test]
    fn a_wait_that_never_ended_has_no_times() {
        let table = locks(&sample(), &[lock_of_waits(1, [0, 0, 1], [0, 0, 0])]);
        let times = ["waited_mean_ns", "waited_max_ns"];
        assert_eq!(cells(&table, 0, times), [Value::Absent, Value::Absent]);
        assert_eq!(cells(&table, 0, ["unfinished_count"]), [1_u64.into()]);
    }

    #[test]
    fn display_hints_are_about_columns_that_exist() {
        let sample = sample();
        let waited = [lock_of_waits(1, [1, 0, 0], [5, 5, 5])];
        let called = [lock_of_calls()];
        for table in [
            services(&sample),
            modes(&sample),
            waits(&sample),
            agreement(&sample),
            histograms(&sample),
            locks(&sample, &called),
            service_locks(&sample, &called),
            locks(&sample, &waited),
            service_locks(&sample, &waited),
            cgroup_locks(&sample, &waited).unwrap(),
        ]
        .into_iter()
        .chain(misses(&sample, &missed()))
        {
            assert_eq!(table.check_display(), Ok(()), "{}", table.name);
            assert!(!table.rows().is_empty(), "{}", table.name);
        }
    }
}
