//! The request to run the threads of `wakeup` in a guest, and the response with their raw records. `sim` sends the
//! request to the irqlab in the guest, which runs the threads with the code of the live bench, without probes.
//! `sim/src/wakeup` joins the records with the contexts that the simulator saw.
//!
//! The names of variants and fields, and the text of records, are the wire format. The checks of the response do not
//! trust the guest.

use serde::{Deserialize, Serialize};

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
    /// The CPU of the wakers. `None` with [`WakeBy::Timer`].
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
}

/// An item of the response.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum WakeupItem {
    /// A thread has run. Its records follow.
    Thread(ThreadRun),
    /// Some records of the last thread, as [`crate::noise::in_guest::pieces`] writes them: due time (with a waker: when
    /// it sent the wake-up) and time of the thread's reading by CLOCK_MONOTONIC, ns, and the time-stamp counter after this
    /// reading.
    Records(String),
    /// A warning about the load or the stimulus.
    Warning(String),
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

/// A thread with its records.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct GuestThread {
    pub run: ThreadRun,
    /// Due time, time of the reading, time-stamp counter: see [`WakeupItem::Records`].
    pub records: Vec<[u64; 3]>,
}

/// The response to a [`WakeupRequest`].
#[derive(Debug, Default)]
pub struct WakeupResponse {
    /// The threads that ran, in order.
    pub threads: Vec<GuestThread>,
    /// Warnings about the load and the stimulus.
    pub warnings: Vec<String>,
}

impl Response for WakeupResponse {
    type Item = WakeupItem;

    fn add(&mut self, item: WakeupItem) -> Result<(), String> {
        match item {
            WakeupItem::Thread(run) => self.threads.push(GuestThread { run, records: Vec::new() }),
            WakeupItem::Warning(text) => self.warnings.push(text),
            WakeupItem::Records(text) => {
                let last = self.threads.last_mut().ok_or("it has records without a thread")?;
                read_piece(&text, &mut last.records).ok_or("it has invalid records")?;
            }
        }
        if self.threads.len() > THREADS_MAX || self.warnings.len() > THREADS_MAX {
            return Err(format!("it has more than {THREADS_MAX} threads or warnings"));
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
            let late = thread.records.iter().map(|[due, woke, _]| woke - due);
            late.chain(counts).chain(of_waker).all(|number| number <= NUMBER_MAX)
        };
        if self.threads.iter().all(is_bounded) {
            Ok(())
        } else {
            Err(format!("it has times or counts above {NUMBER_MAX}"))
        }
    }
}

/// Whether the wake-ups do not overlap, by both clocks. The counter's reading is inexact by some ns.
fn is_in_order(records: &[[u64; 3]]) -> bool {
    const INEXACT_NS: u64 = 1_000;
    let follows = |pair: &[[u64; 3]]| {
        let [[_, woke_before, counter_before], [due, woke, counter]] = [pair[0], pair[1]];
        let due_on_counter = counter.saturating_sub(woke.saturating_sub(due));
        woke_before <= due && counter_before <= due_on_counter.saturating_add(INEXACT_NS)
    };
    records.iter().all(|[due, woke, _]| due <= woke) && records.windows(2).all(follows)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::guest_protocol::{decode, encode};
    use crate::noise::in_guest::pieces;
    use proptest::prelude::*;

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
        let mut items = vec![WakeupItem::Thread(run(0)), WakeupItem::Thread(run(1))];
        items.extend(pieces(&records).into_iter().map(WakeupItem::Records));
        let response = response_of(items).unwrap();
        assert!(response.threads[0].records.is_empty());
        assert_eq!(response.threads[1], GuestThread { run: run(1), records });
    }

    #[test]
    fn records_that_do_not_fit_are_refused() {
        let records = |list: &[[u64; 3]]| WakeupItem::Records(pieces(list).concat());
        let thread = || WakeupItem::Thread(run(0));
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
            let _ = response_of(vec![WakeupItem::Thread(run(0)), WakeupItem::Records(text)]);
        }
    }
}
