//! Table `periods`: what comes by a clock.

use std::collections::BTreeMap;

use record::{Kind, Table, Value};
use stats::periodicity::{Event, Period, Search, periods as periods_in};

use super::super::ledger::Detour;
use super::super::sample::{NoiseSample, Slots, Work};
use super::super::split::Part;
use super::{column, cpu_column, ledgers, ratio, words};

/// Most events of one source that are searched.
const EVENTS_MAX: usize = 1 << 14;
/// The shortest period looked for in detours, ns.
const PERIOD_NS_MIN: u64 = 250_000;
const PERIOD_NS_MAX: u64 = 200_000_000;
/// Less than this part of the most work missing in a slot is no event.
const MISSING_MIN: f64 = 0.05;
/// How near to a whole number the ratio of two frequencies makes one a harmonic of the other.
const HARMONIC: f64 = 1e-3;

/// One row a period, of the detours of each trigger, and of the slots.
pub fn periods(samples: &[NoiseSample]) -> Table {
    use Kind::{Real, Text, Uint};
    let columns = vec![
        cpu_column(),
        column("method", Text, "phases: of detours; spectrum: of the work missing in slots."),
        column("kind", Text, "Detours of which trigger: kind; host: without any kernel event."),
        column("name", Text, "And name; absent for slots and when nobody watched."),
        column("frequency_hz", Real, "Events per second of the clock."),
        column("period_ns", Real, "Its period."),
        column("period_ci95_ns", Real, "Half width of the period's 95 % interval."),
        column(
            "concentration_ratio",
            Real,
            "R: how close together the phases of all events of this trigger lie: 0 even, 1 the same.",
        ),
        column(
            "chance_ratio",
            Real,
            "How likely such an R is by chance at any frequency searched.",
        ),
        column(
            "event_count",
            Uint,
            "Events that were searched: those that keep to no period in a row above.",
        ),
        column("locked_count", Uint, "Those that keep to the clock."),
        column("locked_cpu_ratio", Real, "Time in these, over the time searched."),
    ];
    let doc = "Periods found in the detours, by what set them off, and in the work of the slots.";
    let mut table = Table::new("periods", doc, columns);
    for (sample, cpu, ledger) in ledgers(samples) {
        for (trigger, detours) in by_trigger(&ledger.first, sample.traced.is_some()) {
            let source = match trigger {
                Some(part) => words(part, &sample.names),
                None => [Value::Absent, Value::Absent],
            };
            of_detours(&mut table, cpu.cpu, &source, &detours);
        }
    }
    for sample in samples {
        for cpu in &sample.cpus {
            if let Work::Slots(slots) = &cpu.work {
                of_slots(&mut table, cpu.cpu, slots);
            }
        }
    }
    table
}

/// Detours by what set them off; all of them together when nobody watched.
fn by_trigger(detours: &[Detour], watched: bool) -> BTreeMap<Option<Part>, Vec<Detour>> {
    let mut groups: BTreeMap<Option<Part>, Vec<Detour>> = BTreeMap::new();
    for detour in detours {
        let trigger = watched.then(|| detour.trigger.unwrap_or(Part::NoEvent));
        let group = groups.entry(trigger).or_default();
        if group.len() < EVENTS_MAX {
            group.push(*detour);
        }
    }
    groups
}

fn of_detours(table: &mut Table, cpu: u32, source: &[Value; 2], detours: &[Detour]) {
    let events: Vec<Event> =
        detours.iter().map(|one| Event { at_ns: one.gap.start_ns, weight: 1.0 }).collect();
    let search = Search {
        period_ns_min: PERIOD_NS_MIN,
        period_ns_max: PERIOD_NS_MAX,
        periods_max: 3,
        concentration_ratio_min: 0.3,
        chance_max: 1e-6,
    };
    let (Some(first), Some(last)) = (detours.first(), detours.last()) else { return };
    let searched_ns = last.gap.end_ns.saturating_sub(first.gap.start_ns);
    for period in periods_in(&events, &search) {
        let locked_ns: u64 = period.locked.iter().map(|&at| detours[at].gap.length_ns()).sum();
        push(table, cpu, "phases", source, &period, ratio(locked_ns, searched_ns));
    }
}

fn of_slots(table: &mut Table, cpu: u32, slots: &Slots) {
    let most = slots.work_max as f64;
    let missing = |work: u64| 1.0 - work as f64 / most;
    let events: Vec<Event> = slots
        .first
        .iter()
        .enumerate()
        // A slot without any work was lost to another task: how much of it, nobody knows.
        .filter(|(_, work)| **work > 0 && missing(**work) >= MISSING_MIN)
        .map(|(at, work)| Event { at_ns: at as u64 * slots.slot_ns, weight: missing(*work) })
        .take(EVENTS_MAX)
        .collect();
    let search = Search {
        period_ns_min: PERIOD_NS_MIN.max(4 * slots.slot_ns),
        period_ns_max: PERIOD_NS_MAX,
        periods_max: 3,
        concentration_ratio_min: 0.1,
        chance_max: 1e-6,
    };
    let Some(last) = events.last() else { return };
    let searched = (last.at_ns / slots.slot_ns.max(1) + 1) as f64;
    let mut found: Vec<f64> = Vec::new();
    for period in periods_in(&events, &search) {
        // What a slot misses has a shape, and a shape has harmonics.
        if found.iter().any(|other| is_harmonic(*other, period.period_ns)) {
            continue;
        }
        found.push(period.period_ns);
        let locked: f64 = period.locked.iter().map(|&at| events[at].weight).sum();
        let share = Value::real(locked / searched);
        let source = [Value::Absent, Value::Absent];
        push(table, cpu, "spectrum", &source, &period, share);
    }
}

fn is_harmonic(a_ns: f64, b_ns: f64) -> bool {
    let ratio = (a_ns / b_ns).max(b_ns / a_ns);
    (ratio - ratio.round()).abs() < HARMONIC * ratio
}

fn push(
    table: &mut Table,
    cpu: u32,
    method: &str,
    source: &[Value; 2],
    period: &Period,
    share: Value,
) {
    let [kind, name] = source.clone();
    table.push(vec![
        u64::from(cpu).into(),
        method.into(),
        kind,
        name,
        Value::real(1e9 / period.period_ns),
        Value::real(period.period_ns),
        Value::real(period.half_width_ns),
        Value::real(period.concentration_ratio),
        Value::real(period.chance_ratio),
        (period.searched as u64).into(),
        (period.locked.len() as u64).into(),
        share,
    ]);
}
