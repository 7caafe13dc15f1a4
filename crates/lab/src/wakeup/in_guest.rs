//! The request to run the threads of `wakeup` in a guest, and the response with their raw records. `sim` sends the
//! request to the irqlab in the guest, which runs the threads with the code of the live bench: without probes, or with
//! the whole live bench, to check it. `sim/src/wakeup` joins the records with the contexts that the simulator saw.
//!
//! The names of variants and fields, and the text of records, are the wire format. The checks of the
//! response do not trust the guest.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use super::split::{Part, Running, Stage};
use crate::guest_protocol::response::Response;
use crate::handlers::Condition;
use crate::noise::in_guest::read_piece;
use crate::wakeup::WakeBy;

/// Maximum number of wake-ups of a thread.
pub use crate::noise::in_guest::RECORDS_MAX;
/// Maximum lateness, length of a window (both in ns) and count in a response. Sums over all records do not overflow.
const NUMBER_MAX: u64 = 1 << 40;
/// Maximum number of threads in a response.
const THREADS_MAX: usize = 4096;

/// Threads to run on CPUs of the guest. Times are on the guest's clock.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct WakeupRequest {
    /// The CPUs that run a thread. `None` for all CPUs of the guest.
    pub cpus: Option<Vec<u32>>,
    /// Time between two due times of a thread, ns.
    pub period_ns: u64,
    /// Length of the window, ns.
    pub duration_ns: u64,
    /// How long the threads run before the window, ns.
    pub warm_up_ns: u64,
    /// The scheduling class of the threads, as on the command line.
    pub policy: String,
    /// How the threads or their wakers sleep, as on the command line.
    pub wait: String,
    /// What wakes the threads.
    pub wake_by: WakeBy,
    /// The CPU of the wakers. `None` without wakers.
    pub waker_cpu: Option<u32>,
    /// Whether all threads are due at the same time.
    pub aligned: bool,
    /// The load and the stimulus that run beside the threads; [`Condition::Ambient`]: none.
    pub condition: Condition,
    /// The time between two operations of the stimulus at the low rate, ns.
    pub low_interval_ns: u64,
    /// Seed of the phases of load, stimulus, window and due times against each other and the kernel's ticks. `None`:
    /// everything starts as soon as it can.
    pub seed: Option<u64>,
    /// Whether the live bench measures, too: with probes, and its parts of each wake-up in the response.
    pub probed: bool,
    /// Whether a thread of a higher priority takes each CPU for 100 to 500 us about every 5.5 ms; only with `probed`.
    pub has_hog: bool,
}

/// An item of the response.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum WakeupItem {
    /// A thread has run. Its records follow.
    Thread(Box<ThreadRun>),
    /// Some records of the last thread, as [`crate::noise::in_guest::pieces`] writes them: due time (with a waker: when
    /// it sent the wake-up; with a disk: when the read began) and time of the thread's reading by CLOCK_MONOTONIC, ns,
    /// and the time-stamp counter after this reading.
    Records(String),
    /// A warning about the load, the stimulus or the live bench.
    Warning(String),
    /// What the live bench measured, before the first thread.
    Probed(ProbedWindow),
    /// Some parts of the wake-ups of the last thread, as [`part_record`] and
    /// [`crate::noise::in_guest::pieces`] write them.
    Parts(String),
}

/// What the live bench measured in the guest, without the parts of wake-ups.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct ProbedWindow {
    /// Kind and name of each context and task, by the number in parts.
    pub names: Vec<(String, String)>,
    /// Number of the kernel's events that found no room.
    pub lost_events: u64,
    /// Number of wake-ups whose parts do not add up to the lateness.
    pub unbalanced: u64,
}

/// A part of a wake-up as a record of three numbers: the due time, the due time plus the length of the part, both
/// in ns, and stage and cause.
#[must_use]
pub fn part_record(due_ns: u64, part: Part, length_ns: u64) -> [u64; 3] {
    let stage = STAGES.iter().position(|stage| *stage == part.stage).unwrap_or(0) as u64;
    let (kind, number) = match part.running {
        Running::Context(number) => (0, number),
        Running::Task(number) => (1, number),
        Running::Thread => (2, 0),
        Running::Waker => (3, 0),
        Running::Unknown => (4, 0),
    };
    [due_ns, due_ns.saturating_add(length_ns), stage | kind << 2 | u64::from(number) << 5]
}

const STAGES: [Stage; 4] = [Stage::Expiry, Stage::Waking, Stage::Scheduling, Stage::Return];

/// Due time, part and length of a record of [`part_record`]. `None` if it is invalid.
fn part_of(&[due_ns, end_ns, code]: &[u64; 3]) -> Option<(u64, Part, u64)> {
    let stage = *STAGES.get(usize::try_from(code & 3).ok()?)?;
    let number = u32::try_from(code >> 5).ok()?;
    let running = match code >> 2 & 7 {
        0 => Running::Context(number),
        1 => Running::Task(number),
        2 => Running::Thread,
        3 => Running::Waker,
        4 => Running::Unknown,
        _ => return None,
    };
    let length_ns = end_ns.checked_sub(due_ns).filter(|length_ns| *length_ns <= NUMBER_MAX)?;
    Some((due_ns, Part { stage, running }, length_ns))
}

/// A thread on one CPU.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ThreadRun {
    pub cpu: u32,
    /// The kernel's number of the thread.
    pub thread: u32,
    /// The thread's scheduling class.
    pub scheduler: String,
    /// Why the thread has not the class of the request; `None` if it has.
    pub refused_policy: Option<String>,
    /// Why the guest's memory is not locked; `None` if it is.
    pub unlocked_memory: Option<String>,
    /// When the window opened by CLOCK_MONOTONIC, ns.
    pub start_ns: u64,
    /// Length of the window, ns.
    pub window_ns: u64,
    /// Number of periods in the window that were over before the thread ran again.
    pub missed: u64,
    /// The thread that wakes this one; `None` if a timer does.
    pub waker: Option<WakerRun>,
    /// The disk that wakes the thread; `None` if something else does.
    pub disk: Option<DiskRun>,
    /// Number of wake-ups that were dropped because the buffer was full.
    pub lost: u64,
    /// Page faults of the thread in the window, if the kernel reports them.
    pub page_faults: Option<u64>,
    /// Whether a request to stop ended the thread.
    pub interrupted: bool,
}

/// The waker of a thread.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct WakerRun {
    pub cpu: u32,
    /// The kernel's number of the waker.
    pub thread: u32,
    /// The waker's scheduling class.
    pub scheduler: String,
    /// Why the waker has not the class of the request; `None` if it has.
    pub refused_policy: Option<String>,
    /// Number of periods in the window in which the waker sent nothing, because it was late itself.
    pub missed: u64,
    /// Number of wake-ups in the window that found the thread not yet asleep.
    pub not_asleep: u64,
}

/// The disk that wakes a thread.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct DiskRun {
    /// The disk's device file, as in `/dev/vda`.
    pub device: String,
    /// The kernel's numbers of the disk's interrupts.
    pub irqs: Vec<u32>,
    /// Number of reads in the window that were over before the thread slept.
    pub not_asleep: u64,
}

/// A thread with its records.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct GuestThread {
    pub run: ThreadRun,
    /// Due time, time of the reading, time-stamp counter: see [`WakeupItem::Records`].
    pub records: Vec<[u64; 3]>,
    /// The parts that the live bench measured, as [`part_record`] writes them. Empty without probes.
    pub part_records: Vec<[u64; 3]>,
}

impl GuestThread {
    /// The measured parts of each wake-up in the order of time, by the due time.
    #[must_use]
    pub fn parts(&self) -> BTreeMap<u64, Vec<(Part, u64)>> {
        let mut wakeups: BTreeMap<u64, Vec<(Part, u64)>> = BTreeMap::new();
        for (due_ns, part, length_ns) in self.part_records.iter().filter_map(part_of) {
            wakeups.entry(due_ns).or_default().push((part, length_ns));
        }
        wakeups
    }
}

/// The response to a [`WakeupRequest`].
#[derive(Debug, Default)]
pub struct WakeupResponse {
    /// The threads that ran, in order.
    pub threads: Vec<GuestThread>,
    /// Warnings about the load, the stimulus and the live bench.
    pub warnings: Vec<String>,
    /// What the live bench measured. `None` if it did not measure.
    pub probed: Option<ProbedWindow>,
}

impl Response for WakeupResponse {
    type Item = WakeupItem;

    fn add(&mut self, item: WakeupItem) -> Result<(), String> {
        match item {
            WakeupItem::Thread(run) => {
                self.threads.push(GuestThread {
                    run: *run,
                    records: Vec::new(),
                    part_records: Vec::new(),
                });
            }
            WakeupItem::Probed(_) if self.probed.is_some() => {
                return Err("it has two measurements of the live bench".to_owned());
            }
            WakeupItem::Probed(window) => self.probed = Some(window),
            WakeupItem::Parts(text) => {
                let last = self.threads.last_mut().ok_or("it has parts without a thread")?;
                let first = last.part_records.len();
                read_piece(&text, &mut last.part_records).ok_or("it has invalid parts")?;
                if last.part_records[first..].iter().any(|record| part_of(record).is_none()) {
                    return Err("it has invalid parts".to_owned());
                }
            }
            WakeupItem::Warning(text) => self.warnings.push(text),
            WakeupItem::Records(text) => {
                let last = self.threads.last_mut().ok_or("it has records without a thread")?;
                read_piece(&text, &mut last.records).ok_or("it has invalid records")?;
            }
        }
        let names = self.probed.as_ref().map_or(0, |probed| probed.names.len());
        if [self.threads.len(), self.warnings.len(), names].iter().any(|count| *count > THREADS_MAX)
        {
            return Err(format!("it has more than {THREADS_MAX} threads, warnings or names"));
        }
        Ok(())
    }

    fn check(&self) -> Result<(), String> {
        if !self.threads.iter().all(|thread| is_in_order(&thread.records)) {
            return Err("it has records out of order".to_owned());
        }
        let is_bounded = |thread: &GuestThread| {
            let counts = [thread.run.missed, thread.run.lost, thread.run.window_ns];
            let of_waker =
                thread.run.waker.iter().flat_map(|waker| [waker.missed, waker.not_asleep]);
            let of_disk = thread.run.disk.iter().map(|disk| disk.not_asleep);
            let late = thread.records.iter().map(|[due, woke, _]| woke - due);
            late.chain(counts).chain(of_waker).chain(of_disk).all(|number| number <= NUMBER_MAX)
        };
        if self.threads.iter().all(is_bounded) {
            Ok(())
        } else {
            Err(format!("it has times or counts above {NUMBER_MAX}"))
        }
    }
}

/// Whether the wake-ups do not overlap by the clock, and the counter advances. The counter's reading is inexact: a task may
/// take the CPU between it and the clock's.
fn is_in_order(records: &[[u64; 3]]) -> bool {
    let follows = |pair: &[[u64; 3]]| {
        let [[_, woke_before, counter_before], [due, _, counter]] = [pair[0], pair[1]];
        woke_before <= due && counter_before <= counter
    };
    records.iter().all(|[due, woke, _]| due <= woke) && records.windows(2).all(follows)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::guest_protocol::{decode, encode};
    use crate::noise::in_guest::pieces;
    use proptest::prelude::*;

    fn thread_item(cpu: u32) -> WakeupItem {
        WakeupItem::Thread(Box::new(run(cpu)))
    }

    fn run(cpu: u32) -> ThreadRun {
        ThreadRun {
            cpu,
            thread: 7,
            scheduler: "SCHED_FIFO 95".to_owned(),
            refused_policy: None,
            unlocked_memory: None,
            start_ns: 10,
            window_ns: 90,
            missed: 1,
            waker: None,
            disk: None,
            lost: 0,
            page_faults: None,
            interrupted: false,
        }
    }

    fn response_of(items: Vec<WakeupItem>) -> Result<WakeupResponse, String> {
        let lines = encode::<WakeupItem>(Ok(items));
        decode(lines.iter().map(String::as_str)).map_err(|error| error.to_string())
    }

    #[test]
    fn threads_come_back_with_their_records() {
        let records = vec![[20, 25, 1_000], [30, 31, 1_010]];
        let mut items = vec![thread_item(0), thread_item(1)];
        items.extend(pieces(&records).into_iter().map(WakeupItem::Records));
        let response = response_of(items).unwrap();
        assert!(response.threads[0].records.is_empty());
        let expected = GuestThread { run: run(1), records, part_records: Vec::new() };
        assert_eq!(response.threads[1], expected);
    }

    #[test]
    fn parts_of_the_live_bench_come_back_by_their_due_time() {
        let part = |stage, running| Part { stage, running };
        let first = vec![
            (part(Stage::Expiry, Running::Task(399)), 3_000),
            (part(Stage::Scheduling, Running::Context(2)), 1 << 33),
        ];
        let second = vec![
            (part(Stage::Return, Running::Thread), 1),
            (part(Stage::Waking, Running::Waker), 7),
            (part(Stage::Expiry, Running::Unknown), 0),
        ];
        let records: Vec<[u64; 3]> = [(20_000_u64, &first), (30_000, &second)]
            .into_iter()
            .flat_map(|(due, parts)| {
                parts.iter().map(move |(part, ns)| part_record(due, *part, *ns))
            })
            .collect();
        let probed =
            ProbedWindow { names: vec![("task".into(), "idle".into())], ..Default::default() };
        let mut items = vec![WakeupItem::Probed(probed.clone()), thread_item(0)];
        items.extend(pieces(&records).into_iter().map(WakeupItem::Parts));
        let response = response_of(items.clone()).unwrap();
        let parts = response.threads[0].parts();
        assert_eq!(parts.into_iter().collect::<Vec<_>>(), [(20_000, first), (30_000, second)]);
        assert_eq!(response.probed, Some(probed));
        assert!(response_of([&items[..], &items[..1]].concat()).is_err(), "two measurements");
        for wrong in [[5, 4, 0], [5, 6, 5 << 2], [5, 6, 1 << 41], [5, 6 + (1 << 41), 0]] {
            let parts = WakeupItem::Parts(pieces(&[wrong]).concat());
            assert!(response_of(vec![thread_item(0), parts]).is_err(), "{wrong:?}");
        }
    }

    #[test]
    fn records_that_do_not_fit_are_refused() {
        let records = |list: &[[u64; 3]]| WakeupItem::Records(pieces(list).concat());
        let thread = || thread_item(0);
        assert!(response_of(vec![records(&[[1, 2, 3]])]).is_err());
        assert!(response_of(vec![thread(), records(&[[5, 4, 3]])]).is_err());
        assert!(response_of(vec![thread(), records(&[[5, 6, 3], [5, 8, 9]])]).is_err());
        assert!(response_of(vec![thread(), records(&[[5, 6, 9_000], [7, 8, 2]])]).is_err());
        assert!(response_of(vec![thread(), records(&[[5, 9, 3], [7, 10, 5_000]])]).is_err());
        assert!(response_of(vec![thread(), records(&[[5, 5 + (1 << 41), 3]])]).is_err());
        assert!(response_of(vec![thread(), WakeupItem::Records("1 2;".to_owned())]).is_err());
    }

    proptest! {
        #[test]
        fn any_text_is_a_response_or_refused(text in ".{0,200}") {
            let _ = response_of(vec![thread_item(0), WakeupItem::Records(text)]);
        }
    }
}
