//! The event simulation: one CPU, one ring, event by event. `evaluate.rs` calls it where no closed form holds.
//!
//! One CPU does one thing at a time, so the simulation needs no event calendar. It advances the CPU's time
//! step by step, and before each look at the ring it admits the events that have arrived. Time is in whole ns.
//!
//! The handler has the priority of an interrupt; with `spin` and `yield` it is a thread. The application, if
//! there is one, gets the CPU time that the handler leaves, and users' work gets the rest. The handler passes
//! events to the [`Application`] through a second, finite queue: the model of receive livelock (Mogul and
//! Ramakrishnan, Eliminating receive livelock in an interrupt-driven kernel, ACM TOCS 15, 1997).
//!
//! Invariant: the same [`Simulation`] gives the same [`Simulated`], to the last ns.

use std::collections::VecDeque;

use stats::histogram::slot_of;
use stats::interval::{Batches, Interval, IntervalMethod, ratio_from_batches, t_95};
use stats::sections::Sections;
use stats::{Distribution, Random};

use crate::arrivals::{Arrivals, SCALED_EVENTS_MIN, Source, TraceError};
use crate::costs::{Costs, CostsError, Times};
use crate::evaluate::{IntervalEnds, SimulatedIntervals};
use crate::predict::{Prediction, Quantiles, capacity_hz};
use crate::scheme::Scheme;

/// Most events of a simulation.
pub const EVENTS_MAX: u64 = 10_000_000_000;
/// Time slice of an application that shares the CPU with a polling thread, ns, where
/// [`Simulation::user_slice_ns`] sets none.
pub const APPLICATION_SLICE_NS: u64 = 1_000_000;
/// Number of empty looks before an event that are simulated one by one, where looks vary in length.
const LOOKS_SIMULATED: u64 = 16;
/// Maximum number of batches of events. The intervals of the simulated figures come from the batches' means.
const BATCHES: u64 = 64;
/// If none of n independent events is lost, the 95 % interval of the lost part ends at this number over n (exact
/// binomial interval).
const ZERO_LOSS_EVENTS: f64 = 3.7;
/// Assumed number of events that are lost together when the ring overflows, for simulations without a lost event.
const LOSS_CLUSTER_EVENTS: f64 = 16.0;

/// A simulation with fewer bursts than this has no intervals.
const BURSTS_MIN: u64 = 20;

/// The consumer of the events, at the priority of users: it takes them from the handler.
#[derive(Clone, Debug, PartialEq)]
pub struct Application {
    /// CPU time of the application per event.
    pub event: Times,
    /// Size of the application's queue, events; from 1. An event that finds the queue full is lost, after the
    /// handler has spent its CPU time on it.
    pub queue: u32,
}

/// The parameters of a simulation.
#[derive(Clone, Debug, PartialEq)]
pub struct Simulation<'a> {
    /// How the CPU learns of events.
    pub scheme: Scheme,
    pub costs: Costs,
    pub arrivals: Arrivals<'a>,
    /// Events per second, 1 to 1,000,000,000. Ignored with a trace, which has its own rate.
    pub rate_hz: u64,
    /// Slots of the ring, 1 to 2^24. An event that finds the ring full is lost.
    pub ring: u32,
    /// Time slice of users' work next to a polling thread, ns; from 1,000. Users' work always wants the CPU.
    /// `None`: there is no users' work.
    pub user_slice_ns: Option<u64>,
    /// `None`: an event is done when the handler has handled it.
    pub application: Option<Application>,
    /// Number of events after which the handler gives the CPU to others. `clocked` gives it until the next tick. In all
    /// other schemes that drain the ring, others get the CPU for the time that the handler had it, like a kernel thread
    /// of the same priority. `hybrid` also does so after each round of polls. No effect on `interrupt`, `spin` and
    /// `yield`.
    pub quota: Option<u32>,
    /// Events to simulate, 1 to [`EVENTS_MAX`]; a trace may have fewer.
    pub events: u64,
    /// Events before counting starts; less than `events`.
    pub warm_up: u64,
    pub seed: u64,
}

/// Why parameters cannot be simulated.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum SimulationError {
    #[error(transparent)]
    Costs(#[from] CostsError),
    #[error(transparent)]
    Trace(#[from] TraceError),
    /// The scheme polls only while a request is under way, and the simulation has events without requests.
    #[error(
        "cannot simulate {0}: the model has no requests whose completion could be polled for (give spin)"
    )]
    NoRequests(Scheme),
    /// Any other value is out of its range.
    #[error("cannot simulate: {what} is {value} (give {allowed})")]
    Range { what: &'static str, value: u64, allowed: &'static str },
}

/// Counts and times of a simulation after its warm-up.
#[derive(Clone, Debug, PartialEq)]
pub struct Simulated {
    /// Simulated time after the warm-up, ns.
    pub duration_ns: u64,
    /// Events that arrived, with the lost ones.
    pub arrived: u64,
    /// Events that the handler handled.
    pub handled: u64,
    /// Events that were done: handled by the application if there is one, else by the handler.
    pub delivered: u64,
    /// Events lost because the ring was full.
    pub ring_drops: u64,
    /// Events lost because the application's queue was full.
    pub queue_drops: u64,
    /// Interrupts or clock ticks.
    pub interrupts: u64,
    /// Polls that found nothing.
    pub empty_polls: u64,
    /// CPU time of signalling and handling, ns.
    pub handler_ns: u64,
    pub application_ns: u64,
    /// CPU time that neither the handler nor the application used, ns.
    pub leftover_ns: u64,
    /// Time from an event's arrival until it was done, ns; includes [`Costs::fixed_ns`].
    pub latency: Distribution,
    /// Maximum number of events that waited for the handler or the application: while the first half of the events
    /// arrived, and while the second half did.
    waiting_max_by_half: [u64; 2],
    /// The smallest latency, ns; `u64::MAX` without a latency.
    latency_min_ns: u64,
    /// The counts up to the last arrival. `None` until the last arrival. Without a warm-up, only a trace has them: it
    /// starts with an arrival. `None` also if none of a trace's events was done before the last arrival.
    until_last_arrival: Option<Counts>,
    /// Totals at the start of counting, and after each batch of arrivals.
    totals: Vec<Totals>,
    /// Whether the mean rate of the arrivals is exact ([`Source::new`]).
    is_rate_exact: bool,
    /// Mean time from the start of a burst to the next. `None` without bursts.
    burst_period_ns: Option<u64>,
    /// Whether long queues become rare at least exponentially with their length: neither bursts nor measured costs.
    has_short_tails: bool,
    /// Places for waiting events: in the ring, or in the application's queue if this is smaller.
    places_min: u64,
    /// As [`Prediction::capacity_hz`].
    capacity_hz: Option<f64>,
}

/// The counts and times since the start of counting from which rates and shares of time follow.
#[derive(Clone, Copy, Debug, PartialEq)]
struct Counts {
    duration_ns: u64,
    handled: u64,
    delivered: u64,
    interrupts: u64,
    empty_polls: u64,
    handler_ns: u64,
    leftover_ns: u64,
}

/// Totals since the start of counting, at a batch's end.
#[derive(Clone, Copy, Debug, PartialEq)]
struct Totals {
    /// Time since the start of the simulation, ns.
    now_ns: u64,
    handler_ns: u64,
    lost: u64,
}

/// The share of a batch of arrivals in the [`Totals`].
struct BatchDifference {
    duration_ns: f64,
    /// CPU time of the handler, ns.
    handler_ns: f64,
    /// Number of lost events.
    lost: f64,
}

/// A simulation with fewer events cannot tell whether the scheme keeps up.
const KEEPING_UP_EVENTS_MIN: u64 = 1_000;
/// Fewer waiting events than this part of all of them may be the chance of arrivals.
const WAITING_PART: u64 = 50;

impl Simulated {
    /// All counts and times 0, for counting from `now_ns` on.
    fn empty(simulation: &Simulation, now_ns: u64) -> Simulated {
        let Simulation { scheme, ref costs, user_slice_ns, .. } = *simulation;
        let has_formula = simulation.application.is_none() && simulation.quota.is_none();
        let queue = simulation.application.as_ref().map(|application| application.queue);
        Simulated {
            duration_ns: 0,
            arrived: 0,
            handled: 0,
            delivered: 0,
            ring_drops: 0,
            queue_drops: 0,
            interrupts: 0,
            empty_polls: 0,
            handler_ns: 0,
            application_ns: 0,
            leftover_ns: 0,
            latency: Distribution::default(),
            waiting_max_by_half: [0; 2],
            latency_min_ns: u64::MAX,
            until_last_arrival: None,
            totals: vec![Totals { now_ns, handler_ns: 0, lost: 0 }],
            is_rate_exact: simulation.arrivals == Arrivals::Poisson
                && simulation.events.saturating_sub(simulation.warm_up) >= SCALED_EVENTS_MIN,
            burst_period_ns: match simulation.arrivals {
                Arrivals::Bursty { on_ns, off_ns } => Some(on_ns.saturating_add(off_ns)),
                _ => None,
            },
            has_short_tails: !matches!(simulation.arrivals, Arrivals::Bursty { .. })
                && !costs.are_measured()
                && !simulation
                    .application
                    .as_ref()
                    .is_some_and(|application| matches!(application.event, Times::Empirical(_))),
            places_min: queue.unwrap_or(simulation.ring).min(simulation.ring).into(),
            capacity_hz: has_formula.then(|| capacity_hz(scheme, costs, user_slice_ns)),
        }
    }

    /// The present counts, after counting for `duration_ns`.
    fn counts(&self, duration_ns: u64) -> Counts {
        let Simulated {
            handled, delivered, interrupts, empty_polls, handler_ns, leftover_ns, ..
        } = *self;
        Counts { duration_ns, handled, delivered, interrupts, empty_polls, handler_ns, leftover_ns }
    }

    /// Whether the number of waiting events grows: its maximum in the second half is more than one and a half times that in
    /// the first half, and more than a fiftieth of all events. `false` with too few events to tell.
    #[must_use]
    pub fn fell_behind(&self) -> bool {
        let [first_half_max, second_half_max] = self.waiting_max_by_half;
        self.arrived >= KEEPING_UP_EVENTS_MIN
            && second_half_max > first_half_max + first_half_max / 2
            && second_half_max > self.arrived / WAITING_PART
    }

    /// The figures that a closed form also has, and the drops.
    #[must_use]
    pub fn prediction(&self) -> Prediction {
        // Counting starts at an arrival, with the events that wait then. If it also ends at an arrival, the events that
        // wait at both ends cancel out on average. At the simulation's end, no event waits.
        let counts = self.until_last_arrival.filter(|counts| counts.duration_ns > 0);
        let counts = counts.unwrap_or_else(|| self.counts(self.duration_ns));
        let time_ns = counts.duration_ns.max(1) as f64;
        let per_second = |count: u64| count as f64 * 1e9 / time_ns;
        Prediction {
            utilisation_ratio: counts.handler_ns as f64 / time_ns,
            throughput_hz: per_second(counts.delivered),
            interrupts_hz: per_second(counts.interrupts),
            empty_polls_hz: per_second(counts.empty_polls),
            events_per_interrupt: (counts.interrupts > 0)
                .then(|| counts.handled as f64 / counts.interrupts as f64),
            latency_mean_ns: self.latency.mean(),
            latency: Quantiles {
                p50_ns: self.quantile_ns(50_000),
                p99_ns: self.quantile_ns(99_000),
                p999_ns: self.quantile_ns(99_900),
            },
            leftover_ratio: counts.leftover_ns as f64 / time_ns,
            capacity_hz: self.capacity_hz,
            drops_ratio: (self.arrived > 0).then(|| self.lost() as f64 / self.arrived as f64),
        }
    }

    /// The 95 % intervals of the figures of [`Simulated::prediction`].
    #[must_use]
    pub fn intervals(&self) -> SimulatedIntervals {
        let has_few_bursts = self.has_few_bursts();
        let unless_few_bursts =
            |ends: IntervalEnds| if has_few_bursts { IntervalEnds::default() } else { ends };
        SimulatedIntervals {
            p50_ns: unless_few_bursts(self.quantile_interval_ns(50_000)),
            p99_ns: unless_few_bursts(self.quantile_interval_ns(99_000)),
            p999_ns: unless_few_bursts(self.quantile_interval_ns(99_900)),
            cpu_half_width_ratio: if has_few_bursts { None } else { self.cpu_half_width_ratio() },
            lost_ratio: unless_few_bursts(self.lost_ratio_interval()),
        }
    }

    /// Half the width of the 95 % interval of the mean latency, ns. `None` if even long batches correlate, or have few
    /// bursts: the interval would be too narrow.
    #[must_use]
    pub fn latency_half_width_ns(&self) -> Option<f64> {
        let interval = self.latency.interval().filter(is_reliable)?;
        if self.has_few_bursts() { None } else { Some(interval.half_width) }
    }

    /// Whether all counted events are of a few bursts. Batches within one burst do not show how bursts differ.
    fn has_few_bursts(&self) -> bool {
        self.burst_period_ns
            .is_some_and(|period_ns| self.duration_ns < BURSTS_MIN.saturating_mul(period_ns))
    }

    /// The quantile at `per_100k` of 100,000 latencies, ns: within 1/32 of the exact quantile, and neither below the
    /// smallest nor above the largest latency. `None` if there are too few latencies.
    fn quantile_ns(&self, per_100k: u32) -> Option<u64> {
        self.latency.quantile(per_100k).map(|ns| ns.max(self.latency_min_ns))
    }

    /// The 95 % interval of a quantile. It contains the whole buckets of the histogram at both ends, so it also covers
    /// the histogram's error. The batches account for the correlation of latencies. There is no upper end if even long
    /// batches correlate: the simulation is then too short to bound rare long latencies.
    fn quantile_interval_ns(&self, per_100k: u32) -> IntervalEnds {
        let inflation = self.latency.quantile_inflation(per_100k);
        let (low_ns, high_ns) = self.latency.quantile_interval_by(per_100k, inflation);
        let is_too_short = inflation.is_some_and(|inflation| inflation.is_correlated);
        IntervalEnds {
            low: low_ns.map(|ns| ns.max(self.latency_min_ns) as f64),
            high: high_ns.filter(|_| !is_too_short).map(|ns| ns as f64),
        }
    }

    /// Number of lost events.
    fn lost(&self) -> u64 {
        self.ring_drops + self.queue_drops
    }

    /// The totals at each batch's end without those at the end of the batch before it.
    fn batch_differences(&self) -> Vec<BatchDifference> {
        let difference = |pair: &[Totals]| {
            let [start, end] = [pair[0], pair[1]];
            BatchDifference {
                duration_ns: (end.now_ns - start.now_ns) as f64,
                handler_ns: (end.handler_ns - start.handler_ns) as f64,
                lost: (end.lost - start.lost) as f64,
            }
        };
        self.totals.windows(2).map(difference).collect()
    }

    /// Half the width of the 95 % interval of the CPU use. `None` with too few batches.
    ///
    /// All batches have the same number of arrivals. If the mean rate of all arrivals is exact, batches of different
    /// durations add no error to the CPU use. The regression of the handler's time on the duration removes this part of
    /// the spread (a control variate: Law and Kelton, Simulation Modeling and Analysis, ch. 11).
    fn cpu_half_width_ratio(&self) -> Option<f64> {
        let batches = self.batch_differences();
        let mean = |value: fn(&BatchDifference) -> f64| {
            batches.iter().map(value).sum::<f64>() / batches.len() as f64
        };
        let mean_duration_ns = mean(|batch| batch.duration_ns);
        let mean_handler_ns = mean(|batch| batch.handler_ns);
        // The deviations from the means: x of the duration, y of the handler's time.
        let deviations = batches.iter().map(|batch| {
            (batch.duration_ns - mean_duration_ns, batch.handler_ns - mean_handler_ns)
        });
        let (sum_of_squares, sum_of_products) = deviations
            .clone()
            .fold((0.0, 0.0), |(squares, products), (x, y)| (squares + x * x, products + x * y));
        let slope = if sum_of_squares > 0.0 { sum_of_products / sum_of_squares } else { 0.0 };
        let pairs: Vec<(f64, f64)> = if self.is_rate_exact {
            let residuals = deviations.map(|(x, y)| y - slope * x);
            residuals.map(|residual| (mean_handler_ns + residual, mean_duration_ns)).collect()
        } else {
            batches.iter().map(|batch| (batch.handler_ns, batch.duration_ns)).collect()
        };
        ratio_from_batches(&pairs).map(|interval| interval.half_width)
    }

    /// The 95 % interval of the part of the events that is lost. The interval has no upper end if the batches do not bound
    /// the part: they correlate, or no whole batch has a loss.
    fn lost_ratio_interval(&self) -> IntervalEnds {
        let arrived = self.arrived.max(1) as f64;
        if self.lost() == 0 {
            // The chance of a longer queue falls at least exponentially with its length. If half of the places were
            // never needed, the loss is negligible. A rare long burst or handling is another matter.
            let is_far_from_full = self.has_short_tails
                && 2 * self.waiting_max_by_half[0].max(self.waiting_max_by_half[1])
                    <= self.places_min;
            let high = LOSS_CLUSTER_EVENTS * ZERO_LOSS_EVENTS / arrived;
            return IntervalEnds {
                low: Some(0.0),
                high: Some(if is_far_from_full { 0.0 } else { high }),
            };
        }
        let ratio = self.lost() as f64 / arrived;
        let batches = self.batch_differences();
        let arrived_per_batch = arrived / batches.len().max(1) as f64;
        let pairs: Vec<(f64, f64)> =
            batches.iter().map(|batch| (batch.lost, arrived_per_batch)).collect();
        let half_width = ratio_from_batches(&pairs).filter(is_reliable).and_then(|interval| {
            // Losses in few batches have few degrees of freedom.
            let batches_with_loss = batches.iter().filter(|batch| batch.lost > 0.0).count() as u64;
            // All losses are after the last whole batch.
            if batches_with_loss == 0 {
                return None;
            }
            let degrees_of_freedom =
                interval.degrees_of_freedom.min(batches_with_loss.saturating_sub(1).max(1));
            Some(
                interval.half_width * t_95(degrees_of_freedom)?
                    / t_95(interval.degrees_of_freedom)?,
            )
        });
        IntervalEnds {
            low: Some(half_width.map_or(0.0, |half_width| (ratio - half_width).max(0.0))),
            high: half_width.map(|half_width| ratio + half_width),
        }
    }
}

/// Whether an interval from batches is no narrower than it should be.
fn is_reliable(interval: &Interval) -> bool {
    interval.method != IntervalMethod::BatchMeansCorrelated
}

impl Simulation<'_> {
    /// Checks the ranges given at the fields. The error names the first value that is out of its range.
    pub fn check(&self) -> Result<(), SimulationError> {
        self.costs.check()?;
        self.arrivals.trace_rate_hz()?;
        if self.scheme == Scheme::Poll {
            return Err(SimulationError::NoRequests(self.scheme));
        }
        if let Some(application) = &self.application {
            Costs { event: application.event.clone(), ..self.costs.clone() }.check()?;
        }
        let queue = self.application.as_ref().map_or(1, |application| application.queue);
        let (on_ns, off_ns) = match self.arrivals {
            Arrivals::Bursty { on_ns, off_ns } => (on_ns, off_ns),
            _ => (1, 0),
        };
        let slots = "1 to 16777216";
        for (quantity, value, allowed, range) in [
            ("the rate", self.rate_hz, "1 to 1000000000 events/s", 1..=1_000_000_000),
            ("the ring", self.ring.into(), slots, 1..=1 << 24),
            ("the application's queue", queue.into(), slots, 1..=1 << 24),
            ("the number of events", self.events, "1 to 10000000000", 1..=EVENTS_MAX),
            (
                "the warm-up",
                self.warm_up,
                "less than the events",
                0..=self.events.saturating_sub(1),
            ),
            ("the quota", self.quota.unwrap_or(1).into(), "1 or more", 1..=u64::from(u32::MAX)),
            (
                "the time slice",
                self.user_slice_ns.unwrap_or(1_000),
                "1us to 10s",
                1_000..=10_000_000_000,
            ),
            ("the length of a burst", on_ns, "1ns to 1000s", 1..=1_000_000_000_000),
            ("the time between bursts", off_ns, "0 to 1000s", 0..=1_000_000_000_000),
        ] {
            if !range.contains(&value) {
                return Err(SimulationError::Range { what: quantity, value, allowed });
            }
        }
        Ok(())
    }
}

/// Runs the simulation to its end.
///
/// Fails when a value is out of the range given at its field.
pub fn simulate(simulation: &Simulation) -> Result<Simulated, SimulationError> {
    simulation.check()?;
    let mut cpu = Cpu::new(simulation);
    match simulation.scheme {
        Scheme::Interrupt => cpu.run_interrupt(),
        Scheme::Drain { budget } => cpu.run_drain(budget),
        Scheme::Spin => cpu.run_spin(),
        Scheme::SpinYield => cpu.run_spin_yield(),
        Scheme::Poll => return Err(SimulationError::NoRequests(Scheme::Poll)), // `check` refused it
        Scheme::Clocked { period_ns } => cpu.run_clocked(period_ns),
        Scheme::Deferred { delay_ns } => cpu.run_deferred(delay_ns),
        Scheme::Coalesced { count, delay_ns } => cpu.run_coalesced(count, delay_ns),
        Scheme::Hybrid { threshold, suspend_ns } => cpu.run_hybrid(threshold, suspend_ns),
    }
    Ok(cpu.result())
}

/// The device's ring: arrival times of the events that wait, first in, first out.
struct Ring {
    /// Arrival times, ns. The length is a power of 2, so that `mask` wraps an index around.
    slots: Vec<u64>,
    mask: usize,
    /// Slot of the event that has waited longest.
    first: usize,
    /// Number of events that wait.
    waiting: usize,
    /// Most events that may wait; up to `slots.len()`.
    waiting_max: usize,
}

impl Ring {
    fn new(waiting_max: u32) -> Ring {
        let slot_count = (waiting_max as usize).next_power_of_two();
        let (slots, mask) = (vec![0; slot_count], slot_count - 1);
        Ring { slots, mask, first: 0, waiting: 0, waiting_max: waiting_max as usize }
    }

    /// Adds an event. Returns false if the ring is full.
    #[inline]
    fn push(&mut self, arrival_ns: u64) -> bool {
        if self.waiting == self.waiting_max {
            return false;
        }
        self.slots[(self.first + self.waiting) & self.mask] = arrival_ns;
        self.waiting += 1;
        true
    }

    /// Removes the event that has waited longest, and returns its arrival time. The ring must not be empty.
    #[inline]
    fn pop(&mut self) -> u64 {
        let arrival_ns = self.slots[self.first & self.mask];
        self.first = (self.first + 1) & self.mask;
        self.waiting -= 1;
        arrival_ns
    }
}

/// The state of a simulation. Each scheme is a method that runs it until all events are handled.
struct Cpu<'a> {
    simulation: &'a Simulation<'a>,
    source: Source<'a>,
    /// Random numbers for costs, independent of the arrivals.
    random: Random,
    /// Time since the start of the simulation, ns.
    now_ns: u64,
    /// Time of the next arrival, ns; `u64::MAX` after the last.
    next_arrival_ns: u64,
    ring: Ring,
    /// Arrival times of events that wait for the application.
    queue: VecDeque<u64>,
    /// CPU time that the application still needs for the first event of its queue, ns. `None`: it has not started.
    event_remaining_ns: Option<u64>,
    /// Events that arrived since the start, including the warm-up.
    arrived: u64,
    /// End of the warm-up, ns; 0 before. Counting starts here.
    counting_start_ns: u64,
    /// Events in the ring at the end of the warm-up. They arrived before, so they are not among the arrivals that count.
    warm_up_waiting: u64,
    /// The result: counts since `counting_start_ns`. Only `result` sets its `duration_ns` and batches.
    simulated: Simulated,
    /// Latencies since `counting_start_ns`, for the interval of the mean.
    batches: Batches,
    /// Histograms of the latencies since `counting_start_ns`, for the intervals of quantiles.
    sections: Sections,
}

impl<'a> Cpu<'a> {
    fn new(simulation: &'a Simulation<'a>) -> Cpu<'a> {
        let mut source = Source::new(
            simulation.arrivals,
            simulation.rate_hz,
            simulation.events,
            simulation.warm_up,
            simulation.seed,
        );
        let next_arrival_ns = source.next();
        let counted_events = simulation.events - simulation.warm_up;
        Cpu {
            simulation,
            source,
            // Another seed than the arrivals have, so that costs and gaps are independent.
            random: Random::new(!simulation.seed),
            now_ns: 0,
            next_arrival_ns,
            ring: Ring::new(simulation.ring),
            queue: VecDeque::new(),
            event_remaining_ns: None,
            arrived: 0,
            counting_start_ns: 0,
            warm_up_waiting: 0,
            simulated: Simulated::empty(simulation, 0),
            batches: Batches::covering(counted_events, BATCHES),
            sections: Sections::covering(counted_events, BATCHES),
        }
    }

    /// Finishes the counts and histograms. Call it after the run of the scheme.
    fn result(mut self) -> Simulated {
        self.simulated.duration_ns = self.now_ns - self.counting_start_ns;
        self.simulated.latency.batches = self.batches;
        self.simulated.latency.sections = self.sections;
        self.simulated
    }

    /// Puts the events that have arrived by `now_ns` into the ring, or drops them if the ring is full. Starts counting at
    /// the end of the warm-up, and keeps the counts up to the last arrival.
    #[inline]
    fn admit(&mut self) {
        while self.next_arrival_ns <= self.now_ns {
            self.arrived += 1;
            self.simulated.arrived += 1;
            if !self.ring.push(self.next_arrival_ns) {
                self.simulated.ring_drops += 1;
            }
            let simulation = self.simulation;
            let first_half_end = simulation.warm_up + (simulation.events - simulation.warm_up) / 2;
            let waiting = self.ring.waiting as u64 + self.queue.len() as u64;
            let waiting_max =
                &mut self.simulated.waiting_max_by_half[usize::from(self.arrived > first_half_end)];
            *waiting_max = waiting.max(*waiting_max);
            if self.arrived == self.simulation.warm_up {
                self.start_counting();
            }
            self.end_batch();
            self.next_arrival_ns = self.source.next();
            let is_trace = matches!(self.simulation.arrivals, Arrivals::Trace(_));
            let starts_at_arrival =
                self.simulation.warm_up > 0 || (is_trace && self.simulated.delivered > 0);
            if self.next_arrival_ns == u64::MAX && starts_at_arrival {
                let counts = self.simulated.counts(self.now_ns - self.counting_start_ns);
                self.simulated.until_last_arrival = Some(counts);
            }
        }
    }

    /// Ends the warm-up: discards all counts, and starts new ones with the last arrival of the warm-up.
    #[cold]
    fn start_counting(&mut self) {
        self.counting_start_ns = self.now_ns;
        self.warm_up_waiting = self.ring.waiting as u64;
        self.simulated = Simulated::empty(self.simulation, self.now_ns);
        let counted_events = self.simulation.events - self.simulation.warm_up;
        self.batches = Batches::covering(counted_events, BATCHES);
        self.sections = Sections::covering(counted_events, BATCHES);
    }

    /// Stores the totals if the last arrival was the last one of a batch.
    #[inline]
    fn end_batch(&mut self) {
        let arrived = self.simulated.arrived;
        if arrived > 0 && arrived & ((1 << self.batches.shift) - 1) == 0 {
            self.simulated.totals.push(Totals {
                now_ns: self.now_ns,
                handler_ns: self.simulated.handler_ns,
                lost: self.simulated.lost(),
            });
        }
    }

    /// Whether no event waits in the ring and none will arrive.
    fn is_over(&self) -> bool {
        self.next_arrival_ns == u64::MAX && self.ring.waiting == 0
    }

    /// The handler uses the CPU for `ns`.
    #[inline]
    fn spend(&mut self, ns: u64) {
        self.now_ns += ns;
        self.simulated.handler_ns += ns;
    }

    /// Takes an interrupt or a tick: spends its CPU time and counts it.
    #[inline]
    fn take_interrupt(&mut self) {
        let ns = self.simulation.costs.signal(self.simulation.scheme).draw(&mut self.random);
        self.spend(ns);
        self.simulated.interrupts += 1;
    }

    /// Handles the first event of the ring. The event is then done, or waits for the application.
    #[inline]
    fn handle(&mut self) {
        let arrival_ns = self.ring.pop();
        let ns = self.simulation.costs.event.draw(&mut self.random);
        self.spend(ns);
        self.simulated.handled += 1;
        match &self.simulation.application {
            None => self.deliver(arrival_ns),
            Some(application) if self.queue.len() < application.queue as usize => {
                self.queue.push_back(arrival_ns);
            }
            // The ring is first in, first out: the events of the warm-up leave it first.
            Some(_) if self.simulated.handled <= self.warm_up_waiting => {}
            Some(_) => self.simulated.queue_drops += 1,
        }
    }

    /// Records the latency of an event that is done now.
    #[inline]
    fn deliver(&mut self, arrival_ns: u64) {
        let latency_ns = self.now_ns - arrival_ns + self.simulation.costs.fixed_ns;
        let index = self.simulated.delivered;
        self.simulated.delivered += 1;
        self.simulated.latency.record(latency_ns, self.now_ns);
        self.simulated.latency_min_ns = latency_ns.min(self.simulated.latency_min_ns);
        self.batches.record(latency_ns, index);
        let last_section = self.sections.cells.len() - 1;
        let section = ((index >> self.sections.shift) as usize).min(last_section);
        self.sections.cells[section].record(slot_of(latency_ns));
    }

    /// The handler leaves the CPU to the application, then to users' work, until `until_ns`. Does nothing if
    /// `until_ns` is in the past.
    #[inline]
    fn leave_until(&mut self, until_ns: u64) {
        if self.simulation.application.is_some() {
            self.run_application_until(until_ns);
        }
        self.simulated.leftover_ns += until_ns.saturating_sub(self.now_ns);
        self.now_ns = self.now_ns.max(until_ns);
    }

    /// The application works until `until_ns`, or until its queue is empty.
    fn run_application_until(&mut self, until_ns: u64) {
        let Some(application) = &self.simulation.application else { return };
        while self.now_ns < until_ns && !self.queue.is_empty() {
            let random = &mut self.random;
            let remaining_ns =
                self.event_remaining_ns.take().unwrap_or_else(|| application.event.draw(random));
            let work_ns = remaining_ns.min(until_ns - self.now_ns);
            self.now_ns += work_ns;
            self.simulated.application_ns += work_ns;
            if work_ns < remaining_ns {
                self.event_remaining_ns = Some(remaining_ns - work_ns);
            } else if let Some(arrival_ns) = self.queue.pop_front() {
                self.deliver(arrival_ns);
            }
        }
    }

    /// Whether users' work or the application wants the CPU next to a polling thread.
    fn is_shared(&self) -> bool {
        self.simulation.user_slice_ns.is_some() || !self.queue.is_empty()
    }

    /// Leaves the CPU to others for `ns`. Without users' work, takes it back earlier if the application's queue
    /// becomes empty.
    fn share(&mut self, ns: u64) {
        if self.simulation.user_slice_ns.is_some() {
            self.leave_until(self.now_ns + ns);
        } else {
            self.run_application_until(self.now_ns + ns);
        }
    }

    /// If the ring is empty, leaves the CPU to others until an event arrives and the wake-up latency is over.
    /// Returns false if no event waits and none will arrive.
    #[inline]
    fn wait_for_event(&mut self) -> bool {
        self.admit();
        if self.ring.waiting == 0 {
            if self.next_arrival_ns == u64::MAX {
                return false;
            }
            self.leave_until(self.next_arrival_ns + self.simulation.costs.wake_ns);
            self.admit();
        }
        true
    }

    /// Runs [`Scheme::Interrupt`]: each event that waits gets an interrupt of its own.
    fn run_interrupt(&mut self) {
        while self.wait_for_event() {
            self.take_interrupt();
            self.admit();
            self.handle();
        }
    }

    /// Handles events until the ring is empty, and returns their number. After each `budget` events the handler spends an
    /// empty poll; after each quota of events, others get the CPU for as long as the handler had it.
    #[inline]
    fn drain_ring(&mut self, budget: Option<u32>) -> u64 {
        let (mut handled, mut budget_used, mut quota_used) = (0, 0, 0);
        let mut turn_start_ns = self.now_ns;
        loop {
            self.admit();
            if self.ring.waiting == 0 {
                return handled;
            }
            if budget == Some(budget_used) {
                self.spend(self.simulation.costs.poll_ns);
                budget_used = 0;
                self.admit();
            }
            if self.simulation.quota == Some(quota_used) {
                self.share(self.now_ns - turn_start_ns);
                (turn_start_ns, quota_used) = (self.now_ns, 0);
                self.admit();
            }
            self.handle();
            handled += 1;
            budget_used += 1;
            quota_used += 1;
        }
    }

    /// Runs [`Scheme::Drain`]: after an interrupt, the CPU handles events until the ring is empty.
    fn run_drain(&mut self, budget: u32) {
        while self.wait_for_event() {
            self.take_interrupt();
            self.drain_ring(Some(budget));
        }
    }

    /// How many periods of `length_ns` without an event end before the next arrival, so that a scheme can skip them in one step.
    /// 0 while the application has work, because its progress must be simulated.
    fn empty_periods(&self, length_ns: u64) -> u64 {
        if self.next_arrival_ns == u64::MAX || !self.queue.is_empty() {
            return 0;
        }
        self.next_arrival_ns.saturating_sub(self.now_ns + 1) / length_ns.max(1)
    }

    /// Runs [`Scheme::Deferred`]: the CPU looks at the ring each time a timer of `delay_ns` expires, and the timer starts again
    /// once the ring is empty.
    fn run_deferred(&mut self, delay_ns: u64) {
        let look_cost = self.simulation.costs.signal(self.simulation.scheme);
        let time_between_looks_ns = delay_ns + self.simulation.costs.wake_ns;
        // Empty looks are skipped in one step; each costs the mean. If the cost varies, the last looks before the event are
        // simulated one by one, because their costs decide which look finds the event.
        let look_ns = look_cost.mean_ns().round() as u64;
        let looks_simulated =
            if matches!(look_cost, Times::Constant(_)) { 0 } else { LOOKS_SIMULATED };
        while !self.is_over() {
            self.admit();
            if self.ring.waiting == 0 {
                let empty_looks = self
                    .empty_periods(time_between_looks_ns + look_ns)
                    .saturating_sub(looks_simulated);
                self.simulated.leftover_ns += empty_looks * time_between_looks_ns;
                self.simulated.interrupts += empty_looks;
                self.now_ns += empty_looks * time_between_looks_ns;
                self.spend(empty_looks * look_ns);
            }
            self.leave_until(self.now_ns + time_between_looks_ns);
            self.take_interrupt();
            self.drain_ring(None);
        }
    }

    /// Runs [`Scheme::Clocked`]: at each tick, the CPU handles events until the ring is empty. The ticks keep their period.
    fn run_clocked(&mut self, period_ns: u64) {
        let tick_cost_ns = (self.simulation.costs.signal(self.simulation.scheme).mean_ns().round()
            as u64)
            .min(period_ns);
        let mut next_tick_ns = period_ns;
        while !self.is_over() {
            self.admit();
            if self.ring.waiting == 0
                && self.now_ns < next_tick_ns
                && self.next_arrival_ns > next_tick_ns
            {
                // Empty ticks are skipped, like empty deferred looks. The next arrival is after the last skipped tick.
                self.leave_until(next_tick_ns);
                let empty_ticks = self.empty_periods(period_ns);
                self.simulated.interrupts += empty_ticks;
                self.spend(empty_ticks * tick_cost_ns);
                next_tick_ns += empty_ticks * period_ns;
                self.leave_until(next_tick_ns);
            }
            self.leave_until(next_tick_ns);
            self.take_tick(&mut next_tick_ns, period_ns);
            let mut handled = 0;
            loop {
                self.admit();
                if self.ring.waiting == 0 || self.simulation.quota == Some(handled) {
                    break;
                }
                if self.now_ns >= next_tick_ns {
                    self.take_tick(&mut next_tick_ns, period_ns);
                    handled = 0;
                    self.admit();
                }
                self.handle();
                handled += 1;
            }
        }
    }

    /// Takes the clock tick that was due at `due_ns`, and sets `due_ns` to the next tick. If several ticks were due during
    /// this one, the last stays pending, and the others are lost.
    fn take_tick(&mut self, due_ns: &mut u64, period_ns: u64) {
        self.take_interrupt();
        let periods_late = self.now_ns.saturating_sub(*due_ns) / period_ns;
        *due_ns += periods_late.max(1) * period_ns;
    }

    /// Runs [`Scheme::Coalesced`]: the device interrupts when `count` events wait, or `delay_ns` after the first of them came.
    fn run_coalesced(&mut self, count: u32, delay_ns: u64) {
        while !self.is_over() {
            self.admit();
            if self.ring.waiting == 0 {
                self.leave_until(self.next_arrival_ns);
                let deadline_ns = self.now_ns + delay_ns;
                self.admit();
                while self.ring.waiting < count as usize && self.next_arrival_ns < deadline_ns {
                    self.leave_until(self.next_arrival_ns);
                    self.admit();
                }
                if self.ring.waiting < count as usize {
                    self.leave_until(deadline_ns);
                }
                self.leave_until(self.now_ns + self.simulation.costs.wake_ns);
            }
            self.take_interrupt();
            self.drain_ring(None);
        }
    }

    /// Runs [`Scheme::Hybrid`]: after an interrupt with `threshold` events or more, the CPU polls until no event has come for
    /// `suspend_ns`.
    fn run_hybrid(&mut self, threshold: u32, suspend_ns: u64) {
        let poll_ns = self.simulation.costs.poll_ns;
        let polls_max = suspend_ns.div_ceil(poll_ns);
        while self.wait_for_event() {
            self.take_interrupt();
            let mut is_polling = self.drain_ring(None) >= u64::from(threshold);
            while is_polling {
                let polling_start_ns = self.now_ns;
                is_polling = self.poll(polls_max, poll_ns);
                if self.simulation.quota.is_some() {
                    self.share(self.now_ns - polling_start_ns);
                }
                self.drain_ring(None);
            }
        }
    }

    /// Polls an empty ring until an event has arrived, at most `polls_max` times. Returns whether one has. The
    /// caller limits `polls_max` where no event will arrive.
    fn poll(&mut self, polls_max: u64, poll_ns: u64) -> bool {
        let polls_needed =
            self.next_arrival_ns.saturating_sub(self.now_ns).div_ceil(poll_ns).max(1);
        let polls = polls_needed.min(polls_max);
        self.spend(polls * poll_ns);
        let has_event = self.next_arrival_ns <= self.now_ns;
        self.simulated.empty_polls += polls - u64::from(has_event);
        has_event
    }

    /// Time slice of a polling thread and of its competitors, ns.
    fn slice_ns(&self) -> u64 {
        self.simulation.user_slice_ns.unwrap_or(APPLICATION_SLICE_NS)
    }

    /// Runs [`Scheme::Spin`]: the CPU polls all the time. While users' work or the application wants the CPU,
    /// it gets every second time slice.
    fn run_spin(&mut self) {
        let (poll_ns, slice_ns) = (self.simulation.costs.poll_ns, self.slice_ns());
        let mut slice_end_ns = slice_ns;
        while !self.is_over() {
            self.admit();
            let is_shared = self.is_shared();
            if self.ring.waiting > 0 {
                self.handle();
            } else if is_shared {
                self.poll(
                    slice_end_ns.saturating_sub(self.now_ns).div_ceil(poll_ns).max(1),
                    poll_ns,
                );
            } else {
                self.poll(u64::MAX, poll_ns);
            }
            if self.now_ns >= slice_end_ns {
                if is_shared {
                    self.share(slice_ns);
                }
                slice_end_ns = self.now_ns + slice_ns;
            }
        }
    }

    /// Runs [`Scheme::SpinYield`]: the CPU yields after each look that finds nothing. Rounds of look and time slice without
    /// an arrival are skipped in one step.
    fn run_spin_yield(&mut self) {
        let Costs { poll_ns, yield_ns, .. } = self.simulation.costs;
        let look_ns = yield_ns + poll_ns;
        while !self.is_over() {
            self.admit();
            if self.ring.waiting > 0 {
                self.handle();
                continue;
            }
            if !self.is_shared() {
                self.poll(u64::MAX, look_ns);
                continue;
            }
            if let Some(slice_ns) = self.simulation.user_slice_ns {
                let empty_rounds = self.empty_periods(look_ns + slice_ns);
                self.simulated.leftover_ns += empty_rounds * slice_ns;
                self.simulated.empty_polls += empty_rounds;
                self.now_ns += empty_rounds * slice_ns;
                self.spend(empty_rounds * look_ns);
            }
            self.spend(yield_ns);
            self.share(self.slice_ns());
            self.spend(poll_ns);
            self.simulated.empty_polls += u64::from(self.next_arrival_ns > self.now_ns);
        }
    }
}
