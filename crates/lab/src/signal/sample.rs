//! What a bench measures: windows, each with one scheme, one load and one workload.

use serde::{Deserialize, Serialize};
use signalling::Scheme;
use stats::Distribution;

use super::text::{distribution_text, scheme_text};
use crate::experiment;

/// What else runs on the receiving CPU.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Load {
    /// `idle`: nothing.
    Idle,
    /// `background`: a CPU-bound job of the lowest priority (SCHED_IDLE). What it achieves is what
    /// signalling and handling leave over.
    Background,
    /// `busy`: a CPU-bound job of the same priority as the receiver, as in section 8.2 of the paper.
    Busy,
}

impl Load {
    pub const ALL: [Load; 3] = [Load::Idle, Load::Background, Load::Busy];

    /// Its name on the command line and in tables.
    #[must_use]
    pub fn word(self) -> &'static str {
        match self {
            Load::Idle => "idle",
            Load::Background => "background",
            Load::Busy => "busy",
        }
    }
}

/// What the CPU-bound job achieved, and what it achieves without events.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Leftover {
    /// Iterations in the window.
    pub iterations: u64,
    /// CPU time that the job had in the window, ns.
    pub job_ns: u64,
    /// Iterations in the control: just before, with the receiver asleep.
    pub control_iterations: u64,
    /// Length of the control, ns.
    pub control_ns: u64,
    /// CPU time that the job had in the control, ns: less than all of it where other work ran, or the
    /// host of a virtual machine took the CPU.
    pub control_job_ns: u64,
}

/// Times that a simulator counted, cycle by cycle: those in which the receiving CPU executed anything but
/// its idle task and the CPU-bound job.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct CountedUse {
    /// In the window, ns.
    pub busy_ns: u64,
    /// Length of the window as it was counted, ns.
    pub window_ns: u64,
    /// In the control: just before, with the receiver asleep, ns.
    pub control_busy_ns: u64,
    /// Length of the control, ns.
    pub control_ns: u64,
}

/// What the receiving CPU did in a window.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Activity {
    /// Length of the window, ns.
    pub window_ns: u64,
    /// CPU time of the receiver's thread, ns.
    pub receiver_ns: u64,
    /// CPU time of the CPU's threads for softirqs (ksoftirqd) and of NAPI's thread where it has one, ns;
    /// absent where none was found.
    pub softirq_thread_ns: Option<u64>,
    /// Context switches of the receiver's thread.
    pub switches: Option<u64>,
    /// Interrupts of all kinds on the CPU (`/proc/interrupts`).
    pub interrupts: Option<u64>,
    /// NET_RX softirqs on the CPU (`/proc/softirqs`).
    pub net_rx: Option<u64>,
    /// NAPI polls on the CPU, by the tracepoint `napi_poll`.
    pub polls: Option<u64>,
    /// How often handling was signalled: wake-ups of the receiver, clock ticks, NAPI polls that found
    /// something. Absent where nothing counts it.
    pub signals: Option<u64>,
    /// Interrupts of the receiving card; absent where there is none, or nothing counts them.
    pub card_interrupts: Option<u64>,
    /// What the CPU-bound job achieved; absent without one.
    pub leftover: Option<Leftover>,
    /// The kernel's number of the job's thread; absent without one.
    pub job_thread: Option<u32>,
    /// What a simulator counted; absent on a machine that nothing observes from outside.
    pub counted: Option<CountedUse>,
}

impl Activity {
    /// CPU time of all threads that belong to the measurement, ns, with the interrupts that came while they
    /// ran. What is missing to the window is idle time, other work, and time that the host took.
    fn threads_ns(&self, leftover: Leftover) -> u64 {
        leftover.job_ns + self.receiver_ns + self.softirq_thread_ns.unwrap_or(0)
    }

    /// The part of the CPU's time that was left over: the job's rate, as a part of its rate without events.
    /// Both rates are per CPU time of the measurement's threads, so that what others or the host took
    /// counts for neither side. Chance can make it larger than 1. Absent without a job, or where the
    /// control shows no progress.
    ///
    /// Where a simulator counted, it is the job's and the idle task's part of the time, as a part of the
    /// same in the control: exact, and with any load.
    #[must_use]
    pub fn leftover_ratio(&self) -> Option<f64> {
        if let Some(counted) = self.counted {
            let left = |busy: u64, of: u64| (of > 0).then(|| 1.0 - busy as f64 / of as f64);
            let control = left(counted.control_busy_ns, counted.control_ns)?;
            let window = left(counted.busy_ns, counted.window_ns)?;
            return (control > 0.0).then(|| window / control);
        }
        let leftover = self.leftover?;
        let rate = |iterations: u64, ns: u64| (ns > 0).then(|| iterations as f64 / ns as f64);
        let control = rate(leftover.control_iterations, leftover.control_job_ns)?;
        let window = rate(leftover.iterations, self.threads_ns(leftover))?;
        (control > 0.0).then(|| window / control)
    }

    /// The part of the CPU's time that signalling and handling took. Absent where nothing tells: a job of
    /// the receiver's own priority shares the CPU with it, and without a job nothing shows what is left
    /// over, unless a simulator counted.
    #[must_use]
    pub fn cpu_ratio(&self, load: Load) -> Option<f64> {
        let is_known = self.counted.is_some() || load == Load::Background;
        Some(1.0 - self.leftover_ratio().filter(|_| is_known)?)
    }

    /// The part of the window and of its control, whichever is smaller, in which the CPU was given to the
    /// measurement's threads. Absent without a job.
    #[must_use]
    pub fn available_ratio(&self) -> Option<f64> {
        let leftover = self.leftover?;
        let part = |ns: u64, of: u64| (of > 0).then(|| ns as f64 / of as f64);
        let control = part(leftover.control_job_ns, leftover.control_ns)?;
        Some(control.min(part(self.threads_ns(leftover), self.window_ns)?))
    }
}

/// Part of a window that the measurement's threads must have had the CPU.
const AVAILABLE_MIN: f64 = 0.97;
/// Part of the mean latency, and time in ns, that the sender may be late on average.
const LATE_RATIO: f64 = 0.1;
const LATE_NS: f64 = 1_000.0;

/// A point of the sweep over event rates.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct RatePoint {
    /// How the receiver learns of events.
    #[serde(with = "scheme_text")]
    pub scheme: Scheme,
    /// What else runs there.
    pub load: Load,
    /// Events per second, on average; Poisson arrivals.
    pub rate_hz: u64,
}

/// A window of the sweep over event rates.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct RateWindow {
    /// What was measured.
    pub point: RatePoint,
    /// Events that were due.
    pub offered: u64,
    /// Events that were handled.
    pub delivered: u64,
    /// Events that found the ring or the socket's buffer full.
    pub dropped: u64,
    /// Time from when an event was due until it was handled, ns: a late sender hides nothing
    /// (no coordinated omission).
    #[serde(with = "distribution_text")]
    pub latency: Distribution,
    /// How late the sender was, ns. It is part of the latency.
    #[serde(with = "distribution_text")]
    pub lateness: Distribution,
    /// What the receiving CPU did.
    pub activity: Activity,
}

impl RateWindow {
    /// Why the window is contaminated: something else had one of the two CPUs for a part of it.
    #[must_use]
    pub fn contamination(&self) -> Option<&'static str> {
        // Nothing but the guest runs on a simulated CPU.
        let is_shared = self.activity.counted.is_none();
        let available = self.activity.available_ratio().filter(|_| is_shared);
        if available.is_some_and(|part| part < AVAILABLE_MIN) {
            return Some("other work, or the host, had the receiving CPU");
        }
        let limit = (LATE_RATIO * self.latency.mean()?).max(LATE_NS);
        (self.lateness.mean()? > limit).then_some("the sender was late")
    }
}

/// A point of the sweep over socket buffers.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct TransferPoint {
    /// How the receiver learns of packets.
    #[serde(with = "scheme_text")]
    pub scheme: Scheme,
    /// What else runs there.
    pub load: Load,
    /// Size of the sending and of the receiving socket's buffer, bytes.
    pub socket_buffer_bytes: u64,
}

/// A window of bulk transfer.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct TransferWindow {
    /// What was measured.
    pub point: TransferPoint,
    /// Bytes received.
    pub bytes: u64,
    /// What the receiving CPU did.
    pub activity: Activity,
}

/// A point of the round-trip measurement.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct RoundTripPoint {
    /// How the receiver learns of packets.
    #[serde(with = "scheme_text")]
    pub scheme: Scheme,
    /// What else runs there.
    pub load: Load,
    /// Requests per second, on average; Poisson arrivals.
    pub rate_hz: u64,
    /// Whether a bulk transfer to the same receiver runs meanwhile.
    pub bulk: bool,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct RoundTripWindow {
    /// What was measured.
    pub point: RoundTripPoint,
    /// Requests that were due.
    pub sent: u64,
    /// Time from when a request was due until its answer was received, ns.
    #[serde(with = "distribution_text")]
    pub round_trip: Distribution,
    /// What the receiving CPU did.
    pub activity: Activity,
}

/// All windows.
#[derive(Clone, Debug, Default)]
pub struct Samples {
    /// The sweep over event rates.
    pub rates: Vec<RateWindow>,
    /// The sweep over socket buffers.
    pub transfers: Vec<TransferWindow>,
    pub round_trips: Vec<RoundTripWindow>,
}

impl experiment::Samples for Samples {
    fn is_empty(&self) -> bool {
        self.rates.is_empty() && self.transfers.is_empty() && self.round_trips.is_empty()
    }
}
