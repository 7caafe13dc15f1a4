//! The windows that a bench measures for `signal run`, each with one scheme, one load and one workload. Tables and
//! shares of CPU time are computed from them. The names of variants and fields are a wire format (`in_guest.rs`).

use serde::{Deserialize, Serialize};
use signalling::{KEEPS_UP_RATIO, Scheme};
use stats::Distribution;

use super::text::{distribution_text, scheme_text};
use crate::experiment;

/// The competing load on the receiving CPU.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Load {
    /// `idle`: no competing load.
    Idle,
    /// `background`: a CPU-bound job of the lowest priority (SCHED_IDLE). The progress of the job shows how much CPU
    /// time signalling and handling do not use.
    Background,
    /// `busy`: a CPU-bound job of the same priority as the receiver, as in section 8.2 of the paper.
    Busy,
}

impl Load {
    pub const ALL: [Load; 3] = [Load::Idle, Load::Background, Load::Busy];

    /// The load's name on the command line and in tables.
    #[must_use]
    pub fn word(self) -> &'static str {
        match self {
            Load::Idle => "idle",
            Load::Background => "background",
            Load::Busy => "busy",
        }
    }
}

/// Progress of the CPU-bound job in the window, and in a control without events.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Leftover {
    /// Iterations in the window.
    pub iterations: u64,
    /// CPU time that the job had in the window, ns.
    pub job_ns: u64,
    /// Iterations in the control: just before the window, with the receiver asleep.
    pub control_iterations: u64,
    /// Length of the control, ns.
    pub control_ns: u64,
    /// CPU time that the job had in the control, ns. Less than `control_ns` if other work ran, or if the host of a
    /// virtual machine took the CPU.
    pub control_job_ns: u64,
}

/// Busy times that a simulator counted by cycles. The receiving CPU is busy while it executes anything but its idle
/// task and the CPU-bound job.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct CountedUse {
    /// Busy time in the window, ns.
    pub busy_ns: u64,
    /// Length of the window by the simulator's count, ns.
    pub window_ns: u64,
    /// Busy time in the control just before the window, with the receiver asleep, ns.
    pub control_busy_ns: u64,
    /// Length of the control, ns.
    pub control_ns: u64,
}

impl CountedUse {
    /// Whether more than ticks ran in the control, so that it shows no idle machine.
    fn control_is_busy(&self) -> bool {
        self.control_busy_ns as f64 > CONTROL_BUSY_RATIO_MAX * self.control_ns as f64
    }
}

/// Activity of the receiving CPU in a window.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Activity {
    /// Length of the window, ns.
    pub window_ns: u64,
    /// CPU time of the receiver's thread, ns.
    pub receiver_ns: u64,
    /// CPU time of the CPU's ksoftirqd and NAPI thread, ns. `None` if neither thread was found.
    pub softirq_thread_ns: Option<u64>,
    /// Context switches of the receiver's thread.
    pub switches: Option<u64>,
    /// Interrupts of all kinds on the CPU (`/proc/interrupts`).
    pub interrupts: Option<u64>,
    /// NET_RX softirqs on the CPU (`/proc/softirqs`).
    pub net_rx: Option<u64>,
    /// NAPI polls on the CPU, by the tracepoint `napi_poll`.
    pub polls: Option<u64>,
    /// How often handling was signalled: wake-ups of the receiver, clock ticks, or NAPI polls that found work.
    /// `None` if nothing counts the signals.
    pub signals: Option<u64>,
    /// Interrupts of the receiving card. `None` without a card, or if nothing counts them.
    pub card_interrupts: Option<u64>,
    /// Interrupts of the disk, on all CPUs. `None` without a disk, or if nothing counts them.
    pub disk_interrupts: Option<u64>,
    /// Progress of the CPU-bound job. `None` without a job.
    pub leftover: Option<Leftover>,
    /// The kernel's number of the job's thread. `None` without a job.
    pub job_thread: Option<u32>,
    /// Busy times that a simulator counted. `None` on a real machine.
    pub counted: Option<CountedUse>,
}

impl Activity {
    /// CPU time of all threads of the measurement, ns. It includes interrupts that came while they ran. The rest of the
    /// window is idle time, other work, and time that the host took.
    fn threads_ns(&self, leftover: Leftover) -> u64 {
        leftover.job_ns + self.receiver_ns + self.softirq_thread_ns.unwrap_or(0)
    }

    /// The share of the CPU's time that was left over for other work: the job's rate in the window over its rate in the
    /// control, without events.
    ///
    /// Both rates are per CPU time of the measurement's threads. Therefore, time that other work or the host took does
    /// not matter. The ratio can exceed 1 by chance. `None` without a job, or if the control shows no progress.
    ///
    /// With a simulator's counts, the ratio is exact for any load: the time share of the job and the idle task in the
    /// window, over their time share in the control. `None` if the guest's kernel had work of its own in the control:
    /// then the control shows no idle machine, and the CPU use could be negative.
    #[must_use]
    pub fn leftover_ratio(&self) -> Option<f64> {
        if let Some(counted) = self.counted {
            if counted.control_is_busy() {
                return None;
            }
            let leftover = |busy_ns: u64, length_ns: u64| {
                (length_ns > 0).then(|| 1.0 - busy_ns as f64 / length_ns as f64)
            };
            let control = leftover(counted.control_busy_ns, counted.control_ns)?;
            let window = leftover(counted.busy_ns, counted.window_ns)?;
            return (control > 0.0).then(|| window / control);
        }
        let leftover = self.leftover?;
        let rate = |iterations: u64, ns: u64| (ns > 0).then(|| iterations as f64 / ns as f64);
        let control = rate(leftover.control_iterations, leftover.control_job_ns)?;
        let window = rate(leftover.iterations, self.threads_ns(leftover))?;
        (control > 0.0).then(|| window / control)
    }

    /// The share of the CPU's time that signalling and handling took.
    ///
    /// Only a simulator's counts or the load `background` show this share. Otherwise `None`: a job of the receiver's
    /// own priority shares the CPU with the receiver, and without a job nothing measures the leftover time.
    #[must_use]
    pub fn cpu_ratio(&self, load: Load) -> Option<f64> {
        if self.counted.is_none() && load != Load::Background {
            return None;
        }
        Some(1.0 - self.leftover_ratio()?)
    }

    /// The smaller of two shares of time in which the measurement's threads had the CPU: in the window, and in its
    /// control. `None` without a job.
    #[must_use]
    pub fn available_ratio(&self) -> Option<f64> {
        let leftover = self.leftover?;
        let share = |ns: u64, length_ns: u64| (length_ns > 0).then(|| ns as f64 / length_ns as f64);
        let control = share(leftover.control_job_ns, leftover.control_ns)?;
        Some(control.min(share(self.threads_ns(leftover), self.window_ns)?))
    }
}

/// Why a window of a simulated machine has no CPU use.
pub(super) const BUSY_CONTROL: &str =
    "work of the guest's kernel had the receiving CPU in the control";
/// Maximum busy share of the control in an uncontaminated window of a simulated machine. Ticks take 2 % on slow models.
const CONTROL_BUSY_RATIO_MAX: f64 = 0.1;
/// Minimum of [`Activity::available_ratio`] in an uncontaminated window.
const AVAILABLE_RATIO_MIN: f64 = 0.97;
// In an uncontaminated window, the sender's mean lateness is at most the larger of two limits: `LATE_RATIO` of the mean
// latency, and `LATE_NS`. In an overloaded window, the mean time between two events replaces the mean latency.
const LATE_RATIO: f64 = 0.1;
const LATE_NS: f64 = 1_000.0;
/// Maximum share of the events that a scheme which keeps up may leave unhandled at the end of a window.
const EVENTS_UNDER_WAY_RATIO_MAX: f64 = 0.25;

/// A point of the sweep over event rates.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct RatePoint {
    /// How the receiver learns of events.
    #[serde(with = "scheme_text")]
    pub scheme: Scheme,
    /// The competing load on the receiving CPU.
    pub load: Load,
    /// Events per second, on average; Poisson arrivals.
    pub rate_hz: u64,
}

/// A window of the sweep over event rates.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct RateWindow {
    pub point: RatePoint,
    /// Events that were due.
    pub offered: u64,
    /// Events that were handled within the window.
    pub delivered: u64,
    /// Events that found the ring or the socket's buffer full.
    pub dropped: u64,
    /// Time from when an event was due until it was handled, ns. A late sender does not hide latency (no coordinated
    /// omission).
    #[serde(with = "distribution_text")]
    pub latency: Distribution,
    /// Lateness of the sender: how long after its due time an event was sent, ns. The latency includes the lateness.
    #[serde(with = "distribution_text")]
    pub lateness: Distribution,
    pub activity: Activity,
}

impl RateWindow {
    /// Events that were neither handled within the window nor dropped. They waited when the window ended.
    #[must_use]
    pub fn backlog(&self) -> u64 {
        self.offered.saturating_sub(self.delivered).saturating_sub(self.dropped)
    }

    /// Whether the receiver did not keep up: it handled less than [`KEEPS_UP_RATIO`] of the events within the window.
    /// Then the latencies are those of events that were not dropped, many of them handled after the window.
    ///
    /// The backlog of a receiver that keeps up counts as handled: see `backlog_without_overload`.
    #[must_use]
    pub fn is_overloaded(&self) -> bool {
        let backlog = (self.backlog() as f64).min(self.backlog_without_overload());
        self.delivered as f64 + backlog < KEEPS_UP_RATIO * self.offered as f64
    }

    /// Whether the scheme's clock has fewer than four periods in the window. Events that wait for the clock can then be
    /// mistaken for overload.
    #[must_use]
    pub fn is_short_for_scheme(&self) -> bool {
        match self.point.scheme {
            Scheme::Clocked { period_ns: delay_ns }
            | Scheme::Deferred { delay_ns }
            | Scheme::Coalesced { delay_ns, .. } => {
                self.activity.window_ns < delay_ns.saturating_mul(4)
            }
            _ => false,
        }
    }

    /// Maximum backlog of a receiver that keeps up: events that came shortly before the end of the window.
    fn backlog_without_overload(&self) -> f64 {
        waiting_without_overload(
            self.point.scheme,
            self.offered,
            self.activity.window_ns,
            &self.latency,
        )
    }

    /// The reason why the window is contaminated, or `None` if it is not. In a contaminated window, other work had one
    /// of the two CPUs for a part of the time.
    #[must_use]
    pub fn contamination(&self) -> Option<&'static str> {
        // Nothing but the guest runs on a simulated CPU, so its CPU is always available. The guest's kernel may have
        // work of its own: in the control, the leftover time would be too small, and the CPU use in the window too.
        if self.activity.counted.is_some_and(|counted| counted.control_is_busy()) {
            return Some(BUSY_CONTROL);
        }
        let is_shared = self.activity.counted.is_none();
        let available = self.activity.available_ratio();
        if is_shared && available.is_some_and(|share| share < AVAILABLE_RATIO_MIN) {
            return Some("other work, or the host, had the receiving CPU");
        }
        // The latency of an overloaded window grows with its length, so it would excuse any lateness.
        let time_scale_ns = if self.is_overloaded() {
            self.activity.window_ns as f64 / self.offered as f64
        } else {
            self.latency.mean()?
        };
        let limit_ns = (LATE_RATIO * time_scale_ns).max(LATE_NS);
        (self.lateness.mean()? > limit_ns).then_some("the sender was late")
    }
}

/// Whether a scheme does not keep up at a point: at least half of the point's windows are overloaded. Of three and more
/// windows, a pause of the host at the end of one makes no overload.
#[must_use]
pub fn is_mostly_overloaded(overloaded_count: usize, window_count: usize) -> bool {
    overloaded_count > 0 && 2 * overloaded_count >= window_count
}

/// Maximum number of events of a window that wait at its end although the receiver keeps up: events that came shortly
/// before the end. `latency` has the latencies of the window.
///
/// The scheme delays events, and the smallest latency passes before any event is handled. Arrivals vary by chance,
/// so three standard deviations and one event are added.
fn waiting_without_overload(
    scheme: Scheme,
    offered: u64,
    window_ns: u64,
    latency: &Distribution,
) -> f64 {
    let offered = offered as f64;
    let events_in = |ns: u64| match window_ns {
        0 => 0.0,
        _ => offered * ns as f64 / window_ns as f64,
    };
    let delayed_by_scheme = match scheme {
        Scheme::Clocked { period_ns: delay_ns } | Scheme::Deferred { delay_ns } => {
            events_in(delay_ns)
        }
        Scheme::Coalesced { count, delay_ns } => events_in(delay_ns).min(f64::from(count)),
        Scheme::Interrupt
        | Scheme::Drain { .. }
        | Scheme::Spin
        | Scheme::SpinYield
        | Scheme::Poll
        | Scheme::Hybrid { .. } => 0.0,
    };
    let latency_min_ns = latency.histogram.filled().next().map_or(0, |(low, ..)| low);
    let under_way =
        (delayed_by_scheme + events_in(latency_min_ns)).min(EVENTS_UNDER_WAY_RATIO_MAX * offered);
    under_way + 3.0 * under_way.sqrt() + 1.0
}

/// A point of the sweep over socket buffers.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct TransferPoint {
    /// How the receiver learns of packets.
    #[serde(with = "scheme_text")]
    pub scheme: Scheme,
    /// The competing load on the receiving CPU.
    pub load: Load,
    /// Size of the sending and of the receiving socket's buffer, bytes.
    pub socket_buffer_bytes: u64,
}

/// A window of bulk transfer.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct TransferWindow {
    pub point: TransferPoint,
    /// Number of received bytes.
    pub bytes: u64,
    pub activity: Activity,
}

/// A point of the round-trip measurement.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct RoundTripPoint {
    /// How the receiver learns of packets.
    #[serde(with = "scheme_text")]
    pub scheme: Scheme,
    /// The competing load on the receiving CPU.
    pub load: Load,
    /// Requests per second, on average; Poisson arrivals.
    pub rate_hz: u64,
    /// Whether a bulk transfer to the same receiver runs in the meantime.
    pub bulk: bool,
}

/// A window of round trips.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct RoundTripWindow {
    pub point: RoundTripPoint,
    /// Requests that were due.
    pub sent: u64,
    /// Time from when a request was due until its answer was received, ns.
    #[serde(with = "distribution_text")]
    pub round_trip: Distribution,
    pub activity: Activity,
}

impl RoundTripWindow {
    /// Requests without an answer: lost, or still under way when the bench stopped waiting.
    #[must_use]
    pub fn unanswered(&self) -> u64 {
        self.sent.saturating_sub(self.round_trip.count)
    }

    /// Number of lost requests: the unanswered requests minus those under way at the end of a window without overload.
    #[must_use]
    pub fn lost(&self) -> u64 {
        self.unanswered().saturating_sub(self.under_way_without_overload().ceil() as u64)
    }

    /// Maximum number of requests that are under way at the end of a window without overload.
    fn under_way_without_overload(&self) -> f64 {
        waiting_without_overload(
            self.point.scheme,
            self.sent,
            self.activity.window_ns,
            &self.round_trip,
        )
    }

    /// Whether less than [`KEEPS_UP_RATIO`] of the requests were answered. Then the round trips are those of the
    /// answered requests alone, and their mean and quantiles say nothing about the others.
    ///
    /// Requests that are under way at the end of a window without overload count as answered.
    #[must_use]
    pub fn is_overloaded(&self) -> bool {
        let under_way = (self.unanswered() as f64).min(self.under_way_without_overload());
        self.round_trip.count as f64 + under_way < KEEPS_UP_RATIO * self.sent as f64
    }
}

/// All windows of an experiment.
#[derive(Clone, Debug, Default)]
pub struct Samples {
    /// The sweep over event rates.
    pub rates: Vec<RateWindow>,
    /// The sweep over socket buffers.
    pub transfers: Vec<TransferWindow>,
    pub round_trips: Vec<RoundTripWindow>,
    /// Whether the CPU time of threads leaves out interrupts
    /// ([`SignalBench::thread_clocks_exclude_interrupts`](super::SignalBench)). The windows then have no
    /// [`Leftover`]: the progress of the job per CPU time does not show what interrupts took.
    pub thread_clocks_exclude_interrupts: bool,
}

impl experiment::Samples for Samples {
    fn is_empty(&self) -> bool {
        self.rates.is_empty() && self.transfers.is_empty() && self.round_trips.is_empty()
    }
}

#[cfg(test)]
mod tests {
    use signalling::Scheme;

    use super::*;

    #[test]
    fn a_control_in_which_the_guest_works_is_contaminated() {
        let window = |control_busy_ns| RateWindow {
            point: RatePoint { scheme: Scheme::Spin, load: Load::Background, rate_hz: 1_000 },
            offered: 0,
            delivered: 0,
            dropped: 0,
            latency: Distribution::default(),
            lateness: Distribution::default(),
            activity: Activity {
                counted: Some(CountedUse {
                    busy_ns: 1_000_000,
                    window_ns: 10_000_000,
                    control_busy_ns,
                    control_ns: 3_000_000,
                }),
                ..Activity::default()
            },
        };
        // The CPU use would be 1 - 0.9 / 0.54: below zero.
        let busy = window(1_380_000);
        assert_eq!(busy.activity.cpu_ratio(Load::Background), None);
        assert!(busy.contamination().is_some_and(|reason| reason.contains("in the control")));
        assert_eq!(window(60_000).contamination(), None);
        assert!(window(60_000).activity.cpu_ratio(Load::Background).is_some());
    }

    /// A window of 200 ms. All events have one latency and one lateness.
    fn window(
        scheme: &str,
        (offered, delivered, dropped): (u64, u64, u64),
        (latency_ns, lateness_ns): (u64, u64),
    ) -> RateWindow {
        let distribution = |value_ns| {
            let mut distribution = Distribution::default();
            distribution.record(value_ns, 1);
            distribution
        };
        let scheme = scheme.parse().unwrap();
        RateWindow {
            point: RatePoint { scheme, load: Load::Idle, rate_hz: offered * 5 },
            offered,
            delivered,
            dropped,
            latency: distribution(latency_ns),
            lateness: distribution(lateness_ns),
            activity: Activity { window_ns: 200_000_000, ..Activity::default() },
        }
    }

    #[test]
    fn a_window_that_handles_less_than_it_is_offered_is_overloaded() {
        let is_overloaded = |scheme, counts| window(scheme, counts, (20_000, 0)).is_overloaded();
        assert!(is_overloaded("interrupt", (4_000, 2_120, 0)));
        assert!(is_overloaded("interrupt", (4_000, 3_900, 0)));
        assert!(is_overloaded("spin", (4_000, 3_900, 100)));
        assert!(!is_overloaded("interrupt", (4_000, 3_990, 0)));
        // One event of few is under way when the window ends.
        assert!(!is_overloaded("interrupt", (10, 9, 0)));
        // A clock of 10 ms leaves up to a twentieth of the events of 200 ms.
        assert!(!is_overloaded("clocked:10ms", (4_000, 3_810, 0)));
        assert!(is_overloaded("clocked:10ms", (4_000, 3_500, 0)));
        assert!(is_overloaded("coalesced:8,10ms", (4_000, 3_810, 0)));
        // The window ends before the first tick.
        assert!(is_overloaded("clocked:1s", (4_000, 0, 0)));
        // An event under way to a distant peer for 10 ms is no backlog.
        assert!(!window("drain", (4_000, 3_800, 0), (10_000_000, 0)).is_overloaded());
        assert_eq!(window("interrupt", (4_000, 2_000, 500), (20_000, 0)).backlog(), 1_500);
    }

    #[test]
    fn the_latency_of_overload_does_not_excuse_a_late_sender() {
        let times_ns = (20_000_000, 100_000);
        // The latency is that of a slow scheme, and the lateness is a small part of the latency.
        let slow = window("clocked:20ms", (4_000, 4_000, 0), times_ns);
        assert_eq!(slow.contamination(), None);
        let overloaded = window("interrupt", (4_000, 500, 0), times_ns);
        assert_eq!(overloaded.contamination(), Some("the sender was late"));
        // A tenth of the time between two events, 50 us.
        let punctual = window("interrupt", (4_000, 500, 0), (20_000_000, 4_000));
        assert_eq!(punctual.contamination(), None);
    }
}
