//! Table `periods`: the periods of detours.

use std::collections::BTreeMap;

use record::{Format, Kind, Table, Value};
use stats::periodicity::{Event, Period, Search, periods as periods_in};

use super::super::ledger::Detour;
use super::super::sample::{LoopResult, NoiseSample, Slots};
use super::super::split::Part;
use super::{all_rows, column, cpu_column, kind_and_name, ledgers, ratio};

/// Maximum number of events of a trigger in the search.
const EVENTS_MAX: usize = 1 << 14;
/// Shortest period of the search, ns.
const PERIOD_NS_MIN: u64 = 250_000;
const PERIOD_NS_MAX: u64 = 200_000_000;
/// A quantum is an event if it lost at least this share of the maximum work.
const MISSING_MIN: f64 = 0.05;
/// Two periods are harmonics if their ratio differs from an integer by less than this fraction.
const HARMONIC: f64 = 1e-3;

/// One row per period in the detours of each trigger, and in the quanta of fixed time.
pub fn periods(samples: &[NoiseSample]) -> Table {
    use Kind::{Real, Text, Uint};
    let columns = vec![
        cpu_column().priority(90),
        column(
            "method",
            Text,
            "phases: from the start times of detours; spectrum: from the work lost in quanta of \
             fixed time.",
        )
        .priority(60),
        column(
            "trigger_kind",
            Text,
            "Kind of the context that started the detours; unattributed: no kernel event.",
        )
        .title("kind")
        .priority(70),
        column(
            "trigger_name",
            Text,
            "Name of the context that started the detours; absent for quanta, and for untraced \
             detours.",
        )
        .title("trigger")
        .priority(100),
        column("frequency_hz", Real, "Frequency of the events.").priority(95),
        column("period_ns", Real, "Period of the events.")
            .title("period ±")
            .plus_minus("period_uncertainty_ns")
            // Five digits: the period is known more precisely than the time of an event.
            .digits(5)
            .format(Format::Milliseconds)
            .priority(99),
        column(
            "period_uncertainty_ns",
            Real,
            "Bound on the period's error: period_ci95_ns plus period_clock_error_ns; absent if \
             the clock's error is unknown.",
        )
        .detail(),
        column(
            "period_ci95_ns",
            Real,
            "Statistical error: half width of the period's 95 % confidence interval on this clock.",
        )
        .detail(),
        column(
            "period_clock_error_ns",
            Real,
            "Systematic error of the period: the largest effect of the error of the clock's rate \
                         (settings.windows.clock_rate_error_ppm).",
        )
        .detail(),
        column(
            "mean_resultant_length",
            Real,
            "Mean resultant length R of the phases of all events of this trigger: 0 uniform, 1 \
             identical.",
        )
        .title("R")
        .priority(85),
        column(
            "p_value",
            Real,
            "Probability of such an R by chance, corrected for the frequencies searched.",
        )
        .detail(),
        column(
            "searched_event_count",
            Uint,
            "Events in the search: all events except the locked events of the trigger's rows \
             above.",
        )
        .title("events")
        .priority(40),
        column("phase_locked_count", Uint, "Events that follow the period.")
            .title("locked")
            .priority(50),
        column(
            "phase_locked_cpu_ratio",
            Real,
            "Share of the CPU that the locked events took, over the time of the search.",
        )
        .title("CPU")
        .priority(80),
    ];
    let doc =
        "Periods in the detours, by their trigger, and in the work lost in quanta of fixed time.";
    let mut table = Table::new("periods", doc, columns).displayed(all_rows());
    for (sample, cpu, ledger) in ledgers(samples) {
        for (trigger, detours) in by_trigger(&ledger.first, sample.traced.is_some()) {
            let source = match trigger {
                Some(part) => kind_and_name(part, &sample.names),
                None => [Value::Absent, Value::Absent],
            };
            push_detour_periods(&mut table, (cpu.cpu, sample.clock_rate_error), &source, &detours);
        }
    }
    for sample in samples {
        for cpu in &sample.cpus {
            if let LoopResult::Slots(slots) = &cpu.result {
                push_slot_periods(&mut table, (cpu.cpu, sample.clock_rate_error), slots);
            }
        }
    }
    table
}

/// Detours by their trigger. Without tracing, all detours are in one group.
fn by_trigger(detours: &[Detour], is_traced: bool) -> BTreeMap<Option<Part>, Vec<Detour>> {
    let mut groups: BTreeMap<Option<Part>, Vec<Detour>> = BTreeMap::new();
    for detour in detours {
        let trigger = is_traced.then(|| detour.trigger.unwrap_or(Part::NoEvent));
        let group = groups.entry(trigger).or_default();
        if group.len() < EVENTS_MAX {
            group.push(*detour);
        }
    }
    groups
}

/// A CPU, and the bound on the relative error of its clock's rate.
type CpuAndClock = (u32, Option<f64>);

fn push_detour_periods(
    table: &mut Table,
    cpu: CpuAndClock,
    source: &[Value; 2],
    detours: &[Detour],
) {
    let events: Vec<Event> =
        detours.iter().map(|detour| Event { at_ns: detour.gap.start_ns, weight: 1.0 }).collect();
    let search = Search {
        period_ns_min: PERIOD_NS_MIN,
        period_ns_max: PERIOD_NS_MAX,
        periods_max: 3,
        resultant_length_min: 0.3,
        p_value_max: 1e-6,
    };
    let (Some(first), Some(last)) = (detours.first(), detours.last()) else { return };
    let searched_ns = last.gap.end_ns.saturating_sub(first.gap.start_ns);
    for period in periods_in(&events, &search) {
        let locked = period.locked.iter().map(|&position| detours[position].gap.length_ns());
        push(table, cpu, "phases", source, &period, ratio(locked.sum(), searched_ns));
    }
}

fn push_slot_periods(table: &mut Table, cpu: CpuAndClock, slots: &Slots) {
    let work_max = slots.work_max as f64;
    let missing = |work: u64| 1.0 - work as f64 / work_max;
    let events: Vec<Event> = slots
        .first
        .iter()
        .enumerate()
        // A quantum without any work was lost to another task. The lost share is unknown.
        .filter(|(_, work)| **work > 0 && missing(**work) >= MISSING_MIN)
        .map(|(position, work)| Event {
            at_ns: position as u64 * slots.slot_ns,
            weight: missing(*work),
        })
        .take(EVENTS_MAX)
        .collect();
    let search = Search {
        period_ns_min: PERIOD_NS_MIN.max(4 * slots.slot_ns),
        period_ns_max: PERIOD_NS_MAX,
        periods_max: 3,
        resultant_length_min: 0.1,
        p_value_max: 1e-6,
    };
    let Some(last) = events.last() else { return };
    let searched = (last.at_ns / slots.slot_ns.max(1) + 1) as f64;
    let mut found: Vec<f64> = Vec::new();
    for period in periods_in(&events, &search) {
        // The shape of the lost work around an event causes harmonics: skip them.
        if found.iter().any(|found_ns| is_harmonic(*found_ns, period.period_ns)) {
            continue;
        }
        found.push(period.period_ns);
        let locked: f64 = period.locked.iter().map(|&position| events[position].weight).sum();
        let share = Value::real(locked / searched);
        let source = [Value::Absent, Value::Absent];
        push(table, cpu, "spectrum", &source, &period, share);
    }
}

fn is_harmonic(first_ns: f64, second_ns: f64) -> bool {
    let ratio = (first_ns / second_ns).max(second_ns / first_ns);
    (ratio - ratio.round()).abs() < HARMONIC * ratio
}

fn push(
    table: &mut Table,
    (cpu, clock_rate_error): CpuAndClock,
    method: &str,
    source: &[Value; 2],
    period: &Period,
    share: Value,
) {
    let [kind, name] = source.clone();
    let clock_ns = clock_rate_error.map(|error| error * period.period_ns);
    table.push(vec![
        u64::from(cpu).into(),
        method.into(),
        kind,
        name,
        Value::real(1e9 / period.period_ns),
        Value::real(period.period_ns),
        clock_ns.map(|clock_ns| period.half_width_ns + clock_ns).into(),
        Value::real(period.half_width_ns),
        clock_ns.into(),
        Value::real(period.mean_resultant_length),
        Value::real(period.p_value),
        (period.searched as u64).into(),
        (period.locked.len() as u64).into(),
        share,
    ]);
}
