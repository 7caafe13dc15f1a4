//! Table `periods`: the periods of detours, and of the work lost in quanta of fixed time. `stats::periodicity` finds
//! them. Users' programs read the columns: names and order must not change.

use std::collections::BTreeMap;

use record::{Columns, Format, Table, column};
use stats::periodicity::{Event, Period, Search, periods as periods_in};

use super::super::ledger::Detour;
use super::super::sample::{LoopResult, NoiseSample};
use super::super::split::Part;
use super::super::work::Slots;
use super::{DetourLoop, all_rows, cpu_column, detour_loops, kind_and_name, ratio};

/// Maximum number of events in a search.
const EVENTS_MAX: usize = 1 << 14;
/// Shortest period of the search, ns.
const PERIOD_NS_MIN: u64 = 250_000;
/// Longest period of a candidate, ns. Slower clocks are found by their harmonics.
const PERIOD_NS_MAX: u64 = 200_000_000;
/// A quantum of fixed time is an event if the quantum with the most work has more work by at least this share of the work
/// without interference.
const LOST_WORK_RATIO_MIN: f64 = 0.05;
/// Two periods are harmonics if their ratio differs from an integer by less than this fraction.
const HARMONIC_TOLERANCE: f64 = 1e-3;

/// A period in the detours of a trigger, or in the quanta of a CPU.
struct Row<'a> {
    sample: &'a NoiseSample,
    cpu: u32,
    /// As in the column `method`.
    method: &'static str,
    /// The trigger of the detours. `None` for quanta, and without tracing.
    trigger: Option<Part>,
    period: Period,
    /// Share of the CPU that the locked events took. `None` if the search had no length.
    cpu_ratio: Option<f64>,
}

impl Row<'_> {
    /// Kind and name of the trigger. `None` without a trigger, and for a context without a name.
    fn trigger_kind_and_name(&self) -> Option<(&str, String)> {
        kind_and_name(self.trigger?, &self.sample.names)
    }

    /// The largest effect of the clock's rate error on the period, ns. `None` if the error is unknown.
    fn clock_error_ns(&self) -> Option<f64> {
        self.sample.clock_rate_error.map(|error| error * self.period.period_ns)
    }
}

fn columns<'a>() -> Columns<'a, Row<'a>> {
    Columns::all([
        cpu_column(90).of(|row: &Row<'_>| row.cpu),
        column(
            "method",
            "phases: from the start times of detours; spectrum: from the work lost in quanta of \
             fixed time, which is counted in units of about 1/64 of a quantum.",
        )
        .priority(60)
        .text(|row: &Row<'_>| row.method),
        column(
            "trigger_kind",
            "Kind of the context that started the detours; unattributed: no kernel event.",
        )
        .shown_as("kind", 70)
        .text(|row: &Row<'_>| row.trigger_kind_and_name().map(|(kind, _)| kind.to_owned())),
        column(
            "trigger_name",
            "Name of the context that started the detours; absent for quanta, and for untraced \
             detours.",
        )
        .shown_as("trigger", 100)
        .text(|row: &Row<'_>| row.trigger_kind_and_name().map(|(_, name)| name)),
        column("frequency_hz", "Frequency of the events.")
            .priority(95)
            .real(|row: &Row<'_>| 1e9 / row.period.period_ns),
        column("period_ns", "Period of the events.")
            .title("period ±")
            .plus_minus("period_uncertainty_ns")
            // Five digits: the period is known more precisely than the time of an event.
            .digits(5)
            .format(Format::Milliseconds)
            .priority(99)
            .real(|row: &Row<'_>| row.period.period_ns),
        column(
            "period_uncertainty_ns",
            "Bound on the period's error: period_ci95_ns plus period_clock_error_ns; absent if \
             the clock's error is unknown.",
        )
        .detail()
        .real(|row: &Row<'_>| {
            row.clock_error_ns().map(|clock_ns| row.period.half_width_ns + clock_ns)
        }),
        column(
            "period_ci95_ns",
            "Statistical error: half width of the period's 95 % confidence interval on this clock.",
        )
        .detail()
        .real(|row: &Row<'_>| row.period.half_width_ns),
        column(
            "period_clock_error_ns",
            "Systematic error of the period: the largest effect of the error of the clock's rate \
                         (settings.windows.clock_rate_error_ppm).",
        )
        .detail()
        .real(|row: &Row<'_>| row.clock_error_ns()),
        column(
            "mean_resultant_length",
            "Mean resultant length R of the phases of all events of this trigger: 0 uniform, 1 \
             identical.",
        )
        .shown_as("R", 85)
        .real(|row: &Row<'_>| row.period.mean_resultant_length),
        column(
            "p_value",
            "Probability of such an R by chance, corrected for the frequencies searched.",
        )
        .detail()
        .real(|row: &Row<'_>| row.period.p_value),
        column(
            "searched_event_count",
            "Events in the search: all events except the locked events of the trigger's rows \
             above. A search covers at most 16,384 events, and of detours at most 8.192 s from the first \
             event.",
        )
        .shown_as("events", 40)
        .uint(|row: &Row<'_>| row.period.searched as u64),
        column("phase_locked_count", "Searched events that follow the period.")
            .shown_as("locked", 50)
            .uint(|row: &Row<'_>| row.period.locked.len() as u64),
        column(
            "phase_locked_cpu_ratio",
            "Share of the CPU that the locked events took, over the time of the search.",
        )
        .shown_as("CPU", 80)
        .real(|row: &Row<'_>| row.cpu_ratio),
    ])
}

/// Table `periods`: one row per period in the detours of each trigger, and in the quanta of fixed time of each CPU.
pub fn periods(samples: &[NoiseSample]) -> Table {
    let mut rows = Vec::new();
    for DetourLoop { sample, cpu, ledger } in detour_loops(samples) {
        for (trigger, detours) in by_trigger(&ledger.first, sample.traced.is_some()) {
            rows.extend(detour_periods(&detours).into_iter().map(|(period, cpu_ratio)| Row {
                sample,
                cpu: cpu.cpu,
                method: "phases",
                trigger,
                period,
                cpu_ratio,
            }));
        }
    }
    for sample in samples {
        for cpu in &sample.cpus {
            let LoopResult::Slots(slots) = &cpu.result else { continue };
            rows.extend(slot_periods(slots).into_iter().map(|(period, cpu_ratio)| Row {
                sample,
                cpu: cpu.cpu,
                method: "spectrum",
                trigger: None,
                period,
                cpu_ratio: Some(cpu_ratio),
            }));
        }
    }
    let doc =
        "Periods in the detours, by their trigger, and in the work lost in quanta of fixed time.";
    columns().table("periods", doc, rows).displayed(all_rows())
}

/// Groups detours by their trigger. Detours without a named part have the trigger [`Part::NoEvent`]. Without tracing,
/// all detours are in one group. A group has at most [`EVENTS_MAX`] detours.
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

/// The periods of detours, each with the share of the CPU that its locked detours took.
fn detour_periods(detours: &[Detour]) -> Vec<(Period, Option<f64>)> {
    let events: Vec<Event> =
        detours.iter().map(|detour| Event { at_ns: detour.gap.start_ns, weight: 1.0 }).collect();
    let search = Search {
        period_ns_min: PERIOD_NS_MIN,
        period_ns_max: PERIOD_NS_MAX,
        periods_max: 3,
        resultant_length_min: 0.3,
        p_value_max: 1e-6,
    };
    let Some(first_ns) = detours.iter().map(|detour| detour.gap.start_ns).min() else {
        return Vec::new();
    };
    let is_covered =
        |detour: &&Detour| detour.gap.start_ns.saturating_sub(first_ns) < search.covered_ns();
    let end_ns = detours.iter().filter(is_covered).map(|detour| detour.gap.end_ns).max();
    let searched_ns = end_ns.map_or(0, |end_ns| end_ns.saturating_sub(first_ns));
    let with_cpu_ratio = |period: Period| {
        let locked_ns = period.locked.iter().map(|&position| detours[position].gap.length_ns());
        let cpu_ratio = ratio(locked_ns.sum(), searched_ns);
        (period, cpu_ratio)
    };
    let mut found: Vec<Period> = Vec::new();
    for period in periods_in(&events, &search) {
        // Detours outside a clock's window, such as very late ones, can still follow its harmonics.
        let is_harmonic_of = |known: &Period| is_multiple(known.period_ns, period.period_ns);
        if !found.iter().any(is_harmonic_of) {
            found.push(period);
        }
    }
    found.into_iter().map(with_cpu_ratio).collect()
}

/// The periods of lost work, each with the share of the CPU that its locked quanta lost. The weight of a quantum is its
/// work that the quantum with the most work has more, as a share of the work without interference.
fn slot_periods(slots: &Slots) -> Vec<(Period, f64)> {
    let possible_work = slots.possible_work() as f64;
    let lost_ratio = |work: u64| slots.work_max.saturating_sub(work) as f64 / possible_work;
    let events: Vec<Event> = slots
        .first
        .iter()
        .enumerate()
        // Another task took a quantum without any work. Its lost share is unknown.
        .filter(|(_, work)| **work > 0 && lost_ratio(**work) >= LOST_WORK_RATIO_MIN)
        .map(|(position, work)| Event {
            at_ns: slots.start_ns(position as u64),
            weight: lost_ratio(*work),
        })
        .take(EVENTS_MAX)
        .collect();
    let search = Search {
        period_ns_min: PERIOD_NS_MIN.max(slots.start_ns(4)),
        period_ns_max: PERIOD_NS_MAX,
        periods_max: 3,
        resultant_length_min: 0.1,
        p_value_max: 1e-6,
    };
    let Some(last) = events.last() else { return Vec::new() };
    let searched_slots = (last.at_ns as f64 / slots.slot_length_ns.max(1.0)).round() + 1.0;
    let mut found: Vec<(Period, f64)> = Vec::new();
    for period in periods_in(&events, &search) {
        // The shape of the lost work around an event causes harmonics, which are no clocks of their own.
        if found.iter().any(|(known, _)| is_harmonic(known.period_ns, period.period_ns)) {
            continue;
        }
        let lost_slots: f64 = period.locked.iter().map(|&position| events[position].weight).sum();
        found.push((period, lost_slots / searched_slots));
    }
    found
}

/// Whether one period is nearly a multiple of the other.
fn is_harmonic(first_ns: f64, second_ns: f64) -> bool {
    is_multiple(first_ns.max(second_ns), first_ns.min(second_ns))
}

/// Whether a period is nearly `harmonic_ns` or a multiple of it, as the period of a clock whose harmonic has `harmonic_ns`.
fn is_multiple(period_ns: f64, harmonic_ns: f64) -> bool {
    let ratio = period_ns / harmonic_ns;
    ratio.round() >= 1.0 && (ratio - ratio.round()).abs() < HARMONIC_TOLERANCE * ratio
}

#[cfg(test)]
mod tests {
    use super::super::super::split::{Class, Gap};
    use super::*;

    /// The detours of a tick of 250 Hz that takes 10 µs, in a window of `seconds`.
    fn ticks(seconds: u64) -> Vec<Detour> {
        let detour = |number: u64| {
            // Each tick comes up to 2 µs late.
            let start_ns = 5_000_000 + number * 4_000_000 + number * 7_919 % 2_000;
            let gap = Gap { start_ns, end_ns: start_ns + 10_000 };
            Detour {
                gap,
                trigger: Some(Part::NoEvent),
                main: None,
                by_class_ns: [0; Class::ALL.len()],
            }
        };
        (0..seconds * 250).map(detour).collect()
    }

    #[test]
    fn a_tick_in_a_window_of_any_length_is_found_once_with_its_share_of_the_cpu() {
        for seconds in [1, 8, 9, 20, 60] {
            let found = detour_periods(&ticks(seconds));
            let [(period, cpu_ratio)] = &found[..] else { panic!("{seconds} s: {found:?}") };
            assert!((period.period_ns - 4_000_000.0).abs() < 100.0, "{period:?}");
            // The search covers 8.192 s: 2,048 ticks.
            assert_eq!(period.locked.len() as u64, (seconds * 250).min(2_048), "{seconds} s");
            let error = cpu_ratio.unwrap() / 0.0025 - 1.0;
            assert!(error.abs() < 0.01, "{seconds} s: {cpu_ratio:?}");
        }
    }

    #[test]
    fn a_harmonic_is_no_row_of_its_own_but_a_slower_clock_is() {
        // A quarter of the ticks, at random, is 1 ms late: these follow a clock of 4 ms with another phase.
        let mut random = stats::Random::new(3);
        let late = |mut detour: Detour| {
            let late_ns = if random.unit() < 0.25 { 1_000_000 } else { 0 };
            detour.gap.start_ns += late_ns;
            detour.gap.end_ns += late_ns;
            detour
        };
        let detours: Vec<Detour> = ticks(8).into_iter().map(late).collect();
        let found = detour_periods(&detours);
        let [(period, _)] = &found[..] else { panic!("{found:?}") };
        assert!((period.period_ns - 4_000_000.0).abs() < 100.0, "{period:?}");
        assert!(is_multiple(100e6, 4e6) && is_multiple(4e6, 4e6) && !is_multiple(4e6, 100e6));
    }

    #[test]
    fn detours_after_the_covered_time_change_nothing() {
        let search = |detours: &[Detour]| {
            let found = detour_periods(detours);
            found.into_iter().map(|(period, ratio)| (period.locked, ratio)).collect::<Vec<_>>()
        };
        let mut detours = ticks(8);
        let alone = search(&detours);
        let later = ticks(60).split_off(60 * 250 - 100);
        detours.extend(later);
        assert_eq!(search(&detours), alone);
    }
}
