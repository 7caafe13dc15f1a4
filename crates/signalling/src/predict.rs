//! Closed forms: CPU use, throughput and latency of a scheme at a rate, for Poisson arrivals in a stable
//! system. `evaluate.rs` asks them before it simulates; `fit.rs` fits their costs to measurements.
//!
//! All latencies come from one theorem, the decomposition of Fuhrmann and Cooper (Stochastic
//! decompositions in the M/G/1 queue with generalized vacations, Operations Research 33, 1985). The
//! server handles events until there are none (exhaustive service). Then the server is away (a *vacation*)
//! until a time that does not depend on later arrivals. The mean number of events in the system is the sum
//! of two means: the mean of the M/G/1 queue (Pollaczek and Khinchine; Kleinrock, Queueing Systems I, 5.6),
//! and the mean at a random time of a vacation. By Little's law the mean latency is
//!
//! ```text
//! fixed + E[S] + lambda E[S²] / (2 (1 - rho)) + N_v / lambda,   rho = lambda E[S]
//! ```
//!
//! where S is the service time of an event, lambda the rate, N_v the mean number of events that wait at a
//! random time of a vacation, and fixed a constant delay of each event. The schemes differ in S and in the
//! vacation. C is the cost of an interrupt or tick, alpha the time to handle an event, L the latency of a
//! wake-up, P the cost of a poll, and Y that of a yield:
//!
//! | scheme | S | vacation |
//! |---|---|---|
//! | interrupt | C + alpha | until an event comes, and the wake-up latency L |
//! | drain | alpha | until an event comes, L and C: M/G/1 with setup (Takagi, Queueing Analysis 1, 2.3) |
//! | spin | alpha | empty polls, each P: multiple vacations (Takagi 2.2) |
//! | yield | alpha | empty polls, each P + Y and what others do meanwhile |
//! | clocked | alpha | until the next tick, and C |
//! | deferred | alpha | the delay, L and C, again and again: multiple vacations |
//! | coalesced | alpha | until `count` events came or the delay is over, L and C: N-policy with a time limit |
//! | hybrid, threshold 1 | alpha | empty polls until one finds an event, or after `suspend_ns` as drain |
//!
//! A vacation whose length V does not depend on the events that arrive in it has
//! N_v / lambda = E[V²] / (2 E[V]).
//!
//! *Clocked* ticks keep their period, so the vacation is the part of the period that handling leaves:
//! V = period - B + C. B is the time that the CPU is busy after a tick: C, and the time to handle the events
//! that arrived in the last vacation and those that arrive meanwhile. The mean of V is (1 - rho) times the
//! period (plus the variation of C). If one vacation is longer than the mean by x, the next is shorter by a x
//! on average, with a = rho / (1 - rho): this gives the variance of V. As rho approaches one half, short and
//! long vacations alternate more and more. Above one half there is no closed form, nor where handling could
//! last until the next tick: the event simulation answers then.

use crate::costs::{Costs, Times};
use crate::scheme::Scheme;

/// The events, and the users' work that competes for the CPU.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Workload {
    /// Events per second, 1 to 1,000,000,000; Poisson arrivals.
    pub rate_hz: u64,
    /// Slots of the ring that holds waiting events.
    pub ring: u32,
    /// Time slice of users' work, ns. Users' work always wants the CPU, at a lower priority than interrupts. A spinning
    /// handler and users' work alternate in time slices of this length. `None`: there is no users' work.
    pub user_slice_ns: Option<u64>,
}

/// Quantiles of the latency, ns; `None` where no formula or simulation computes them.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Quantiles {
    pub p50_ns: Option<u64>,
    pub p99_ns: Option<u64>,
    /// The 99.9th percentile.
    pub p999_ns: Option<u64>,
}

/// The figures of a scheme at a rate.
#[derive(Clone, Debug, PartialEq)]
pub struct Prediction {
    /// Part of the CPU's time that signalling and handling take, 0 to 1. Empty polls count as signalling.
    pub utilisation_ratio: f64,
    /// Events handled per second.
    pub throughput_hz: f64,
    /// Interrupts, or clock ticks, per second.
    pub interrupts_hz: f64,
    /// Polls per second that found nothing.
    pub empty_polls_hz: f64,
    /// Events handled per interrupt or tick. `None`: there were no interrupts or ticks.
    pub events_per_interrupt: Option<f64>,
    /// Mean time from an event's arrival until it is done, ns. `None`: no event was handled.
    pub latency_mean_ns: Option<f64>,
    /// Quantiles of the time from an event's arrival until it is done.
    pub latency: Quantiles,
    /// Part of the CPU's time that remains for other work.
    pub leftover_ratio: f64,
    /// Events per second from which on the scheme cannot keep up, however large the ring is. `None` with an application
    /// or a quota, for which no formula is known.
    pub capacity_hz: Option<f64>,
    /// Part of the events that were lost because the ring or the application's queue was full. `None` in closed forms.
    /// They assume an infinite ring, and hold only if less than about one event in a million would be lost.
    pub drops_ratio: Option<f64>,
}

/// Why there is no closed form.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
pub enum NoPrediction {
    /// More events arrive than the scheme can handle, so the latency grows without limit.
    #[error(
        "cannot predict {rate_hz} events/s: the scheme handles at most {limit_hz:.0} events/s (choose \
         a lower rate or another scheme, or simulate it: events are lost)"
    )]
    CapacityExceeded {
        /// Requested rate, events per second.
        rate_hz: u64,
        /// The scheme's capacity, events per second.
        limit_hz: f64,
    },
    /// The scheme keeps up, but no formula is known that holds for it here.
    #[error("no closed form: {reason} (simulate it)")]
    NoClosedForm {
        /// The assumption that does not hold.
        reason: &'static str,
    },
}

/// Events per second from which on the scheme cannot keep up. It is 1 / (C + alpha) for an interrupt per
/// event, and (1 - C / period) / alpha for a clock (paper, sections 4 and 5). Most other schemes do nothing but
/// handling under load: 1 / alpha. 0 where the ticks alone take all of the CPU's time.
#[must_use]
pub fn capacity_hz(scheme: Scheme, costs: &Costs, user_slice_ns: Option<u64>) -> f64 {
    capacity(scheme, &Means::new(costs), user_slice_ns)
}

/// As [`capacity_hz`], from the mean costs.
pub(crate) fn capacity(scheme: Scheme, means: &Means, user_slice_ns: Option<u64>) -> f64 {
    let Means { interrupt_ns, event_ns, poll_ns, .. } = means.for_scheme(scheme);
    1e9 * match scheme {
        Scheme::Interrupt => 1.0 / (interrupt_ns + event_ns),
        Scheme::Drain { budget } => 1.0 / (event_ns + poll_ns / f64::from(budget)),
        // A spinning handler has every other time slice.
        Scheme::Spin if user_slice_ns.is_some() => 0.5 / event_ns,
        Scheme::Clocked { period_ns } => {
            (1.0 - interrupt_ns / period_ns as f64).max(0.0) / event_ns
        }
        Scheme::Spin
        | Scheme::SpinYield
        | Scheme::Poll
        | Scheme::Deferred { .. }
        | Scheme::Coalesced { .. }
        | Scheme::Hybrid { .. } => 1.0 / event_ns,
    }
}

/// The moments of [`Costs`] that the forms use.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Means {
    pub interrupt_ns: f64,
    pub interrupt_variance_ns2: f64,
    /// Mean (ns) and variance (ns²) of the cost of a tick. `None`: a tick has the cost of an interrupt.
    pub tick: Option<(f64, f64)>,
    pub event_ns: f64,
    pub event_variance_ns2: f64,
    pub poll_ns: f64,
    pub yield_ns: f64,
    pub wake_ns: f64,
    pub fixed_ns: f64,
}

impl Means {
    /// Costs of almost 0, at which every scheme keeps up with any rate.
    pub(crate) const FREE: Means = Means {
        interrupt_ns: 0.0,
        interrupt_variance_ns2: 0.0,
        tick: None,
        event_ns: 1e-6,
        event_variance_ns2: 0.0,
        poll_ns: 0.0,
        yield_ns: 0.0,
        wake_ns: 0.0,
        fixed_ns: 0.0,
    };

    pub(crate) fn new(costs: &Costs) -> Means {
        Means {
            interrupt_ns: costs.interrupt.mean_ns(),
            interrupt_variance_ns2: costs.interrupt.variance_ns2(),
            tick: costs.tick.as_ref().map(|tick| (tick.mean_ns(), tick.variance_ns2())),
            event_ns: costs.event.mean_ns(),
            event_variance_ns2: costs.event.variance_ns2(),
            poll_ns: costs.poll_ns as f64,
            yield_ns: costs.yield_ns as f64,
            wake_ns: costs.wake_ns as f64,
            fixed_ns: costs.fixed_ns as f64,
        }
    }

    /// The means for one scheme: `interrupt_ns` is the cost of a tick if a timer makes the CPU look.
    pub(crate) fn for_scheme(&self, scheme: Scheme) -> Means {
        match self.tick {
            Some((interrupt_ns, interrupt_variance_ns2)) if scheme.is_by_clock() => {
                Means { interrupt_ns, interrupt_variance_ns2, tick: None, ..*self }
            }
            _ => *self,
        }
    }
}

/// The figures of a closed form.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Form {
    pub utilisation_ratio: f64,
    /// Interrupts or ticks per ns.
    pub interrupts_per_ns: f64,
    /// Polls per ns that find no event.
    pub empty_polls_per_ns: f64,
    /// Mean latency, ns; or why no closed form has it.
    pub latency_ns: Result<f64, &'static str>,
}

/// A vacation as the decomposition needs it: means per vacation.
struct Vacation {
    /// Mean length, ns.
    length_ns: f64,
    /// Mean of the number of waiting events, integrated over the vacation, ns; or why it is not known.
    waiting_ns: Result<f64, &'static str>,
    /// Interrupts or ticks. Each costs C, the cost of an interrupt.
    interrupts: f64,
    /// Mean number of polls that find no event.
    empty_polls: f64,
    /// CPU time of polling, ns: neither an interrupt's nor available to others.
    spent_ns: f64,
}

/// Predicts what a scheme does at a rate, by its closed form.
///
/// Fails with [`NoPrediction::CapacityExceeded`] where the rate is at or above the capacity, and with
/// [`NoPrediction::NoClosedForm`] where an assumption of the closed form does not hold.
pub fn predict(
    scheme: Scheme,
    costs: &Costs,
    workload: &Workload,
) -> Result<Prediction, NoPrediction> {
    let limit_hz = capacity_hz(scheme, costs, workload.user_slice_ns);
    if workload.rate_hz as f64 >= limit_hz {
        return Err(NoPrediction::CapacityExceeded { rate_hz: workload.rate_hz, limit_hz });
    }
    let rate_per_ns = workload.rate_hz as f64 / 1e9;
    let no_form = |reason| NoPrediction::NoClosedForm { reason };
    let slice_ns = workload.user_slice_ns;
    let form = closed_form(scheme, &Means::new(costs), rate_per_ns, Some(workload.ring), slice_ns)
        .map_err(no_form)?;
    Ok(Prediction {
        utilisation_ratio: form.utilisation_ratio,
        throughput_hz: workload.rate_hz as f64,
        interrupts_hz: form.interrupts_per_ns * 1e9,
        empty_polls_hz: form.empty_polls_per_ns * 1e9,
        events_per_interrupt: (form.interrupts_per_ns > 0.0)
            .then(|| rate_per_ns / form.interrupts_per_ns),
        latency_mean_ns: Some(form.latency_ns.map_err(no_form)?),
        latency: quantiles(scheme, costs, rate_per_ns),
        leftover_ratio: 1.0 - form.utilisation_ratio,
        capacity_hz: Some(limit_hz),
        drops_ratio: None,
    })
}

/// The closed form of a scheme at `rate_per_ns` events per ns, which must be below the scheme's capacity.
/// `ring`: its slots; `None` is an infinite ring. The error is the assumption that does not hold.
pub(crate) fn closed_form(
    scheme: Scheme,
    means: &Means,
    rate_per_ns: f64,
    ring: Option<u32>,
    user_slice_ns: Option<u64>,
) -> Result<Form, &'static str> {
    let means = &means.for_scheme(scheme);
    let has_interrupt_per_event = scheme == Scheme::Interrupt;
    let mut service_ns = means.event_ns;
    let mut variance_ns2 = means.event_variance_ns2;
    if has_interrupt_per_event {
        service_ns += means.interrupt_ns;
        variance_ns2 += means.interrupt_variance_ns2;
    }
    let service_square_ns2 = service_ns * service_ns + variance_ns2;
    let load = rate_per_ns * service_ns;
    let queue_ns = rate_per_ns * service_square_ns2 / (2.0 * (1.0 - load));
    let vacation = vacation_of(scheme, means, user_slice_ns, rate_per_ns, service_square_ns2)?;
    // Vacations take the part 1 - load of the time, so this is their number per ns.
    let vacations_per_ns = (1.0 - load) / vacation.length_ns;
    let interrupts_per_ns =
        if has_interrupt_per_event { rate_per_ns } else { vacations_per_ns * vacation.interrupts };
    // With an interrupt per event, the service contains the interrupts already.
    let interrupt_load =
        if has_interrupt_per_event { 0.0 } else { interrupts_per_ns * means.interrupt_ns };
    let latency = |waiting_ns: f64| {
        let waiting_events = waiting_ns / vacation.length_ns;
        check_ring(ring, rate_per_ns * queue_ns, waiting_events)?;
        Ok(means.fixed_ns + service_ns + queue_ns + waiting_events / rate_per_ns)
    };
    Ok(Form {
        utilisation_ratio: (load + interrupt_load + vacations_per_ns * vacation.spent_ns).min(1.0),
        interrupts_per_ns,
        empty_polls_per_ns: vacations_per_ns * vacation.empty_polls,
        latency_ns: vacation.waiting_ns.and_then(latency),
    })
}

/// The vacation of a scheme at `rate` events per ns; see the table at the head of this file. The error is the
/// assumption that does not hold.
fn vacation_of(
    scheme: Scheme,
    means: &Means,
    user_slice_ns: Option<u64>,
    rate_per_ns: f64,
    service_square_ns2: f64,
) -> Result<Vacation, &'static str> {
    let Means { wake_ns, poll_ns, event_ns, .. } = *means;
    // From the device's or timer's signal to the handling of the first event.
    let setup_ns = wake_ns + means.interrupt_ns;
    let setup_square_ns2 = setup_ns * setup_ns + means.interrupt_variance_ns2;
    let with_interrupt = |length_ns: f64, waiting_ns: f64| Vacation {
        length_ns,
        waiting_ns: Ok(waiting_ns),
        interrupts: 1.0,
        empty_polls: 0.0,
        spent_ns: 0.0,
    };
    // A vacation of three parts: until the first event, from the first event to the interrupt, and the setup.
    let until_event = |interrupt_delay: &InterruptDelay, setup_ns: f64, setup_square_ns2: f64| {
        let waiting_ns = interrupt_delay.waiting_ns
            + interrupt_delay.events * setup_ns
            + rate_per_ns * setup_square_ns2 / 2.0;
        with_interrupt(1.0 / rate_per_ns + interrupt_delay.length_ns + setup_ns, waiting_ns)
    };
    // A vacation whose length does not depend on arrivals. An empty one is followed by another.
    let independent_of_arrivals =
        |length_ns: f64, square_ns2: f64| with_interrupt(length_ns, rate_per_ns * square_ns2 / 2.0);
    let polls = |length_ns: f64, spent_ns: f64| Vacation {
        interrupts: 0.0,
        empty_polls: (-rate_per_ns * length_ns).exp(),
        spent_ns,
        ..independent_of_arrivals(length_ns, length_ns * length_ns)
    };
    Ok(match scheme {
        Scheme::Interrupt => until_event(&InterruptDelay::NONE, wake_ns, wake_ns * wake_ns),
        Scheme::Drain { budget } => {
            // The form ignores the budget's empty polls. It holds if few interrupts reach the budget, or if
            // the polls cost little. The widest distribution of events per interrupt is geometric: with 8
            // times the mean as budget, at most e^-8 of the interrupts reach it.
            let events = (1.0 + rate_per_ns * setup_ns) / (1.0 - rate_per_ns * event_ns);
            let rarely_reaches_budget = events * 8.0 < f64::from(budget);
            if !rarely_reaches_budget
                && poll_ns > 0.01 * (1.0 - rate_per_ns * event_ns) * f64::from(budget) * event_ns
            {
                return Err("the budget reschedules the handler too often");
            }
            until_event(&InterruptDelay::NONE, setup_ns, setup_square_ns2)
        }
        Scheme::Spin if user_slice_ns.is_some() => {
            return Err("a spinning handler shares the CPU by time slices");
        }
        Scheme::Spin => polls(poll_ns, poll_ns),
        Scheme::Poll => return Err("the time from a request to its completion is not a cost"),
        Scheme::SpinYield => {
            let spent_ns = poll_ns + means.yield_ns;
            polls(spent_ns + user_slice_ns.unwrap_or(0) as f64, spent_ns)
        }
        Scheme::Clocked { period_ns } => {
            clocked_vacation(means, rate_per_ns, period_ns as f64, service_square_ns2)
        }
        Scheme::Deferred { delay_ns } => {
            let length_ns = delay_ns as f64 + setup_ns;
            independent_of_arrivals(length_ns, length_ns * length_ns + means.interrupt_variance_ns2)
        }
        Scheme::Coalesced { count, delay_ns } => {
            let interrupt_delay = InterruptDelay::coalesced(count, rate_per_ns, delay_ns as f64);
            until_event(&interrupt_delay, setup_ns, setup_square_ns2)
        }
        Scheme::Hybrid { threshold: 1, suspend_ns } => {
            let polls_max = (suspend_ns as f64 / poll_ns).ceil();
            // Probabilities that a poll finds nothing, and that all polls find nothing.
            let empty_probability = (-rate_per_ns * poll_ns).exp();
            let all_empty_probability = empty_probability.powf(polls_max);
            let polls = (1.0 - all_empty_probability) / (1.0 - empty_probability);
            // After the last empty poll the CPU waits for an interrupt, as with `drain`.
            let idle = until_event(&InterruptDelay::NONE, setup_ns, setup_square_ns2);
            let polling_ns = polls * rate_per_ns * poll_ns * poll_ns / 2.0;
            Vacation {
                length_ns: polls * poll_ns + all_empty_probability * idle.length_ns,
                waiting_ns: idle
                    .waiting_ns
                    .map(|idle_ns| polling_ns + all_empty_probability * idle_ns),
                interrupts: all_empty_probability,
                empty_polls: polls - (1.0 - all_empty_probability),
                spent_ns: polls * poll_ns,
            }
        }
        Scheme::Hybrid { .. } => {
            return Err("whether a hybrid with a threshold polls depends on each burst");
        }
    })
}

/// The time from the first event of a vacation to the device's interrupt.
struct InterruptDelay {
    /// Mean length, ns.
    length_ns: f64,
    /// Mean of the number of waiting events, integrated over this time, ns.
    waiting_ns: f64,
    /// Mean number of events that wait at the interrupt.
    events: f64,
}

impl InterruptDelay {
    /// The first event interrupts at once.
    const NONE: InterruptDelay = InterruptDelay { length_ns: 0.0, waiting_ns: 0.0, events: 1.0 };

    /// The device interrupts when `count` events wait, or `delay_ns` after the first event arrived. `rate_per_ns`: events
    /// per ns, Poisson arrivals.
    fn coalesced(count: u32, rate_per_ns: f64, delay_ns: f64) -> InterruptDelay {
        // While j further events wait, the mean time is P(more than j arrive in the delay) / rate.
        let mean = rate_per_ns * delay_ns;
        // The Poisson probabilities of exactly, and of more than, `more_events` arrivals in the delay.
        // The first is kept as a logarithm: exp(-mean) is 0 in floating point from a mean of 745 on.
        let mut log_probability = -mean;
        let mut probability_of_more = 1.0 - log_probability.exp();
        let (mut length_ns, mut waiting_ns) = (0.0, 0.0);
        for more_events in 0..u64::from(count.saturating_sub(1)) {
            length_ns += probability_of_more / rate_per_ns;
            waiting_ns += (more_events + 1) as f64 * probability_of_more / rate_per_ns;
            log_probability += (mean / (more_events + 1) as f64).ln();
            probability_of_more = (probability_of_more - log_probability.exp()).max(0.0);
            if probability_of_more < 1e-15 && more_events as f64 > mean {
                break;
            }
        }
        InterruptDelay { length_ns, waiting_ns, events: 1.0 + rate_per_ns * length_ns }
    }
}

/// The vacation between clock ticks, see the head of this file. Its length holds at any load below capacity,
/// `waiting_ns` only under the conditions checked here.
fn clocked_vacation(
    means: &Means,
    rate_per_ns: f64,
    period_ns: f64,
    service_square_ns2: f64,
) -> Vacation {
    let load = rate_per_ns * means.event_ns;
    // `a` of the head: how much of a vacation's deviation returns, negated, in the next one.
    let feedback = load / (1.0 - load);
    let busy_square_ns2 = service_square_ns2 / (1.0 - load).powi(3);
    let length_ns = period_ns * (1.0 - load);
    let tick_variance_ns2 = means.interrupt_variance_ns2;
    let away_variance_ns2 = (rate_per_ns * length_ns * busy_square_ns2
        + (1.0 + feedback).powi(2) * tick_variance_ns2)
        / (1.0 - feedback * feedback);
    let busy_ns = means.interrupt_ns + load * period_ns;
    let square_ns2 = length_ns * length_ns + away_variance_ns2 + tick_variance_ns2;
    let waiting_ns = if feedback > 0.7 {
        Err("long and short waits alternate where handling takes over 40 % of the time")
    } else if busy_ns + 4.0 * away_variance_ns2.sqrt() > period_ns {
        Err("handling after one tick could last until the next")
    } else {
        Ok(rate_per_ns * square_ns2 / 2.0)
    };
    Vacation { length_ns, waiting_ns, interrupts: 1.0, empty_polls: 0.0, spent_ns: 0.0 }
}

/// Fails if more than about one event in a million could be lost because the ring is full: the closed forms
/// assume an infinite ring. `queued` is the mean number of waiting events in the M/G/1 queue without vacations,
/// and `waiting` the mean number at a random time of a vacation.
fn check_ring(ring: Option<u32>, queued: f64, waiting: f64) -> Result<(), &'static str> {
    // At the end of a vacation of fixed length, the number of events has a Poisson distribution, whose mean is
    // twice the mean over the vacation. It exceeds the mean by six standard deviations in less than one of a
    // million vacations. The number in the queue exceeds n with a probability of about e^-(n / (1 + queued))
    // (Kleinrock I, 5.6), and e^-14 is less than one in a million.
    let events_in_vacation = 2.0 * waiting;
    let slots_needed = events_in_vacation + 6.0 * events_in_vacation.sqrt() + 14.0 * (1.0 + queued);
    if ring.is_some_and(|ring| slots_needed > f64::from(ring)) {
        return Err("the ring could overflow");
    }
    Ok(())
}

/// Quantiles where the latency is exponentially distributed: M/M/1 (Kleinrock I, 3.2). That is an interrupt
/// per event with C = 0, no wake-up latency and exponential alpha. All `None` elsewhere.
fn quantiles(scheme: Scheme, costs: &Costs, rate_per_ns: f64) -> Quantiles {
    let (Scheme::Interrupt, Times::Constant(0), Times::Exponential { mean_ns }, 0) =
        (scheme, costs.signal(scheme), &costs.event, costs.wake_ns)
    else {
        return Quantiles::default();
    };
    let latency_mean_ns = 1.0 / (1.0 / *mean_ns as f64 - rate_per_ns);
    // The latency that this part of the events exceeds.
    let latency_exceeded_by =
        |part: f64| Some(costs.fixed_ns + (-latency_mean_ns * part.ln()).round() as u64);
    Quantiles {
        p50_ns: latency_exceeded_by(0.5),
        p99_ns: latency_exceeded_by(0.01),
        p999_ns: latency_exceeded_by(0.001),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::costs::Times;

    const fn at_rate(rate_hz: u64) -> Workload {
        Workload { rate_hz, ring: 1 << 20, user_slice_ns: None }
    }

    fn is_near(value: f64, expected: f64) -> bool {
        (value / expected - 1.0).abs() < 1e-9
    }

    #[test]
    fn capacities_are_those_of_the_paper() {
        let costs = Costs::constant(4_000, 1_000);
        let limit = |scheme: &str| capacity_hz(scheme.parse().unwrap(), &costs, None);
        assert!(is_near(limit("interrupt"), 200_000.0));
        assert!(is_near(limit("clocked:1ms"), 996_000.0));
        assert!(is_near(limit("clocked:8us"), 500_000.0));
        assert_eq!(limit("clocked:4us"), 0.0);
        assert!(is_near(limit("spin"), 1e6));
        let error = predict(Scheme::Interrupt, &costs, &at_rate(200_000)).unwrap_err();
        assert_eq!(error, NoPrediction::CapacityExceeded { rate_hz: 200_000, limit_hz: 200_000.0 });
        assert!(error.to_string().contains("at most 200000 events/s"), "{error}");
    }

    #[test]
    fn overheads_are_those_of_the_paper() {
        let costs = Costs::constant(4_000, 1_000);
        let interrupt = predict(Scheme::Interrupt, &costs, &at_rate(100_000)).unwrap();
        assert!(
            is_near(interrupt.utilisation_ratio, 0.5)
                && is_near(interrupt.interrupts_hz, 100_000.0)
        );
        // beta C + lambda alpha = 1000 * 4 us + 100,000 * 1 us.
        let clocked = Scheme::Clocked { period_ns: 1_000_000 };
        let clocked = predict(clocked, &costs, &at_rate(100_000)).unwrap();
        assert!(is_near(clocked.utilisation_ratio, 0.104), "{clocked:?}");
        assert!(is_near(clocked.events_per_interrupt.unwrap(), 100.0));
    }

    #[test]
    fn the_textbooks_queues_are_special_cases() {
        // M/M/1 at half load: the mean is 1 / (mu - lambda), and the median is ln 2 times the mean.
        let exponential =
            Costs { event: Times::Exponential { mean_ns: 1_000 }, ..Costs::constant(0, 1) };
        let mm1 = predict(Scheme::Interrupt, &exponential, &at_rate(500_000)).unwrap();
        assert!(is_near(mm1.latency_mean_ns.unwrap(), 2_000.0));
        assert_eq!(mm1.latency.p50_ns, Some(1_386));
        // M/D/1: the wait is half of M/M/1's.
        let md1 =
            predict(Scheme::Interrupt, &Costs::constant(0, 1_000), &at_rate(500_000)).unwrap();
        assert!(is_near(md1.latency_mean_ns.unwrap(), 1_500.0));
        assert_eq!(md1.latency, Quantiles::default());
        // Multiple vacations: half of one more.
        let deferred = Scheme::Deferred { delay_ns: 50_000 };
        let away = predict(deferred, &Costs::constant(0, 1_000), &at_rate(500_000)).unwrap();
        assert!(is_near(away.latency_mean_ns.unwrap(), 26_500.0));
        // Coalescing to one event is an interrupt and draining.
        let costs = Costs { wake_ns: 3_000, ..Costs::constant(4_000, 1_000) };
        let drain = predict(Scheme::Drain { budget: 10_000 }, &costs, &at_rate(300_000)).unwrap();
        let single = Scheme::Coalesced { count: 1, delay_ns: 100 };
        let single = predict(single, &costs, &at_rate(300_000)).unwrap();
        assert_eq!(drain, Prediction { capacity_hz: drain.capacity_hz, ..single });
        // N-policy without a time limit: (N - 1) / 2 lambda more (Heyman 1968).
        let eight = Scheme::Coalesced { count: 8, delay_ns: 10_000_000_000 };
        let eight = predict(eight, &Costs::constant(0, 1_000), &at_rate(100_000)).unwrap();
        let queue = 1_000.0 + 100.0 / 1.8;
        assert!(is_near(eight.latency_mean_ns.unwrap(), queue + 7.0 / 2.0 * 1e4), "{eight:?}");
    }

    #[test]
    fn a_delay_of_many_events_is_no_longer_than_its_time_limit() {
        // A vacation ends with the delay, because 2,000 events take twice as long: an event waits half of the delay.
        for (rate_hz, mean) in [(600_000, 600.0), (700_000, 700.0), (1_000_000, 1_000.0)] {
            let delay = InterruptDelay::coalesced(2_000, rate_hz as f64 / 1e9, 1e6);
            assert!(is_near(delay.events, mean + 1.0), "{}", delay.events);
            assert!((delay.length_ns / 1e6 - 1.0).abs() < 1e-9, "{}", delay.length_ns);
        }
        let scheme = Scheme::Coalesced { count: 2_000, delay_ns: 1_000_000 };
        let costs = Costs::constant(0, 100);
        let latency_ns =
            predict(scheme, &costs, &at_rate(1_000_000)).unwrap().latency_mean_ns.unwrap();
        assert!((latency_ns / 500_000.0 - 1.0).abs() < 0.01, "{latency_ns}");
    }

    #[test]
    fn where_a_form_does_not_hold_there_is_none() {
        let costs = Costs::constant(4_000, 1_000);
        let form = |scheme: &str, workload: Workload| {
            predict(scheme.parse().unwrap(), &costs, &workload).map_err(|error| error.to_string())
        };
        for (scheme, workload, reason) in [
            ("hybrid:8,20us", at_rate(10_000), "threshold"),
            ("clocked:1ms", at_rate(500_000), "alternate"),
            ("clocked:8us", at_rate(300_000), "until the next"),
            ("clocked:1ms", Workload { ring: 64, ..at_rate(100_000) }, "overflow"),
            ("spin", Workload { user_slice_ns: Some(1_000_000), ..at_rate(1_000) }, "time slices"),
            ("drain:1", at_rate(10_000), "budget"),
        ] {
            let error = form(scheme, workload).unwrap_err();
            assert!(error.contains(reason), "{scheme}: {error}");
        }
        assert!(form("clocked:1ms", at_rate(100_000)).is_ok());
    }
}
