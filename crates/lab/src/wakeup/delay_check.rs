//! Checks the long delays of wake-ups one by one: does the live bench find each, under the right cause, and at the right length?
//! A delay is the time of a cause in a wake-up that lasts at least ten calls of a probe. A wake-up may have several.
//! A table of `irqlab sim verify-probes --experiment wakeup`, next to those of `probe_check`. Users' programs read the
//! columns: names and order must not change.
//!
//! The host delays a wake-up if it withholds the CPU when the timer is due. The live bench cannot tell the host from other
//! reasons for a late timer. It has one part for all of them, `late timer`: the host took between nothing and this part.

use std::collections::BTreeMap;

use record::limits::ROWS_MAX;
use record::{Columns, Format, Table, TableDisplay, column};

use super::class::Class;
use super::probe_check::{Cause, ConditionCheck, ERROR_MAX, ExactWakeup, PROBE_COSTS_MIN};

/// The cause of a delay: the class, and kind and name of what ran. All stages together: one delay may last over several.
type DelayCause = (Class, (String, String));

/// The classes that others bring about: work that runs before the thread. The classes of the thread's own way are no delays.
const DELAYING: [Class; 2] = [Class::Interrupts, Class::Tasks];
/// Kind and name of a late timer because of the host.
const HOST: (&str, &str) = ("host", "withheld CPU");

/// The delays of one cause.
#[derive(Clone, Debug, Default, PartialEq)]
struct Delays {
    /// Lengths of the delays, ns, by the simulator: shortest, longest, sum.
    exact_ns: (u64, u64, u64),
    count: u64,
    /// Delays whose cause the live bench has in the same wake-up.
    found: u64,
    /// Delays that are the longest of their wake-up, by the simulator.
    longest: u64,
    /// Longest delays that are the longest by the live bench, too.
    longest_found: u64,
    /// Found delays whose lengths differ by at most [`ERROR_MAX`].
    within: u64,
    /// Largest relative error of a length.
    error_ratio_max: f64,
    /// Delays that only the live bench has.
    invented: u64,
    /// Time of the host in the delays, ns, by the simulator.
    host_ns: u64,
    /// Found delays that the live bench has at least at the length of the host's withheld time.
    host_contained: u64,
}

/// A delay, by the simulator and by the live bench.
#[derive(Clone, Copy, Debug)]
struct Delay {
    exact_ns: u64,
    measured_ns: u64,
    /// Time of the host in the delay, by the simulator.
    host_ns: u64,
    /// Whether it is the longest delay of its wake-up, by the simulator and by the live bench.
    is_longest: [bool; 2],
}

impl Delays {
    fn add(&mut self, delay: Delay) {
        let Delay { exact_ns, measured_ns, host_ns, is_longest } = delay;
        let is_found = measured_ns > 0;
        let (shortest, longest, sum) = self.exact_ns;
        let shortest = if self.count == 0 { exact_ns } else { shortest.min(exact_ns) };
        self.exact_ns = (shortest, longest.max(exact_ns), sum + exact_ns);
        self.count += 1;
        let error_ratio = measured_ns.abs_diff(exact_ns) as f64 / exact_ns.max(1) as f64;
        self.found += u64::from(is_found);
        self.longest += u64::from(is_longest[0]);
        self.longest_found += u64::from(is_longest == [true, true]);
        self.within += u64::from(is_found && error_ratio <= ERROR_MAX);
        self.error_ratio_max = self.error_ratio_max.max(error_ratio);
        self.host_ns += host_ns;
        self.host_contained += u64::from(is_found && host_ns > 0 && host_ns <= measured_ns);
    }
}

/// Whether the host withheld the CPU of a wake-up while its timer was late.
fn is_late_by_host(wakeup: &ExactWakeup) -> bool {
    wakeup.parts.iter().any(|part| part.cause.class == Class::LateTimer && part.host_ns > 0)
}

/// The delaying cause of a part. `None`: the part is no delay. A late timer is one only if the host made it late.
fn delay_cause(cause: &Cause, is_late_by_host: bool) -> Option<DelayCause> {
    match cause.class {
        Class::LateTimer if is_late_by_host => {
            Some((Class::LateTimer, (HOST.0.to_owned(), HOST.1.to_owned())))
        }
        class if DELAYING.contains(&class) => Some((class, cause.running.clone())),
        _ => None,
    }
}

/// The time of each delaying cause in a wake-up, ns.
fn times<'a>(
    parts: impl Iterator<Item = (&'a Cause, u64)>,
    is_late_by_host: bool,
) -> BTreeMap<DelayCause, u64> {
    let mut times = BTreeMap::new();
    for (cause, length_ns) in parts {
        if let Some(cause) = delay_cause(cause, is_late_by_host) {
            *times.entry(cause).or_default() += length_ns;
        }
    }
    times
}

fn longest(times: &BTreeMap<DelayCause, u64>) -> Option<&DelayCause> {
    times.iter().max_by_key(|(_, ns)| **ns).map(|(cause, _)| cause)
}

/// The delays of a condition by cause.
fn delays(check: &ConditionCheck) -> BTreeMap<DelayCause, Delays> {
    let least_ns = check.probe_cost_ns().unwrap_or(0.0) * PROBE_COSTS_MIN;
    let mut delays: BTreeMap<DelayCause, Delays> = BTreeMap::new();
    for (exact, measured) in check.joined_wakeups() {
        let is_late_by_host = is_late_by_host(exact);
        let parts = &exact.parts;
        let exact = parts.iter().map(|part| (&part.cause, part.length_ns));
        let exact = times(exact, is_late_by_host);
        let measured = measured.iter().map(|part| (&part.cause, part.length_ns));
        let measured = times(measured, is_late_by_host);
        let host = times(parts.iter().map(|part| (&part.cause, part.host_ns)), is_late_by_host);
        let is_longest = |cause| [&exact, &measured].map(|times| longest(times) == Some(cause));
        for (cause, &exact_ns) in exact.iter().filter(|(_, ns)| **ns as f64 >= least_ns) {
            delays.entry(cause.clone()).or_default().add(Delay {
                exact_ns,
                measured_ns: measured.get(cause).copied().unwrap_or(0),
                host_ns: host.get(cause).copied().unwrap_or(0),
                is_longest: is_longest(cause),
            });
        }
        for (cause, &measured_ns) in &measured {
            let exact_ns = exact.get(cause).copied().unwrap_or(0);
            let excess_ns = measured_ns.saturating_sub(exact_ns) as f64;
            if (exact_ns as f64) < least_ns && excess_ns >= least_ns {
                delays.entry(cause.clone()).or_default().invented += 1;
            }
        }
    }
    delays
}

/// Table `delays`: one row per condition and cause.
#[must_use]
pub fn delays_table(checks: &[ConditionCheck]) -> Table {
    struct Row<'a> {
        condition: &'a str,
        cause: DelayCause,
        delays: Delays,
    }
    let rows = checks.iter().flat_map(|check| {
        let rows = delays(check).into_iter();
        rows.map(|(cause, delays)| Row { condition: &check.condition, cause, delays })
    });
    let us = |name: &str, doc: &str| column(name, doc).format(Format::Microseconds);
    let columns = Columns::all([
        column("condition", "Condition: load/rate/stimulus.")
            .text(|row: &Row<'_>| row.condition.to_owned()),
        column("class", "Class of the delay: interrupts or tasks; late timer, if the host withheld the CPU (--withhold).")
            .priority(100)
            .text(|row: &Row<'_>| row.cause.0.label()),
        column("kind", "Kind of what ran.")
            .priority(85)
            .text(|row: &Row<'_>| row.cause.1.0.clone()),
        column("name", "Name of what ran.")
            .priority(99)
            .text(|row: &Row<'_>| row.cause.1.1.clone()),
        column(
            "wakeup_count",
            "Wake-ups with a delay of this cause, by the simulator, in all stages together. A delay lasts at least ten times \
             the mean time of a call of a probe.",
        )
        .shown_as("delays", 98)
        .uint(|row: &Row<'_>| row.delays.count),
        column("found_count", "Delays of wakeup_count whose cause the live bench has in the same wake-up.")
            .shown_as("found", 97)
            .uint(|row: &Row<'_>| row.delays.found),
        column("within_count", "Found delays whose lengths by both sides differ by at most 5 %.")
            .shown_as("within 5 %", 96)
            .uint(|row: &Row<'_>| row.delays.within),
        column(
            "measured_only_count",
            "Wake-ups in which only the live bench has a delay of this cause: it is longer than the exact time of the cause by at \
             least ten times the mean time of a call of a probe, and the exact time is no delay.",
        )
        .shown_as("only measured", 94)
        .uint(|row: &Row<'_>| row.delays.invented),
        column("longest_count", "Delays of wakeup_count that are the longest of their wake-up, by the simulator.")
            .shown_as("longest of all", 84)
            .uint(|row: &Row<'_>| row.delays.longest),
        column("longest_found_count", "Delays of longest_count that are the longest by the live bench, too.")
            .shown_as("found as longest", 83)
            .uint(|row: &Row<'_>| row.delays.longest_found),
        us("exact_min_ns", "Shortest delay, by the simulator. Absent if it has no delay of this cause.")
            .shown_as("shortest", 80)
            .uint(|row: &Row<'_>| (row.delays.count > 0).then_some(row.delays.exact_ns.0)),
        us("exact_mean_ns", "Mean delay, by the simulator.")
            .shown_as("mean", 81)
            .real(|row: &Row<'_>| {
                let Delays { exact_ns, count, .. } = row.delays;
                (count > 0).then(|| exact_ns.2 as f64 / count as f64)
            }),
        us("exact_max_ns", "Longest delay, by the simulator.")
            .shown_as("longest", 82)
            .uint(|row: &Row<'_>| (row.delays.count > 0).then_some(row.delays.exact_ns.1)),
        column("error_ratio_max", "Largest difference of both lengths of a delay, over the exact one.")
            .shown_as("largest error", 95)
            .real(|row: &Row<'_>| (row.delays.count > 0).then_some(row.delays.error_ratio_max)),
        us(
            "host_mean_ns",
            "Mean withheld time in a delay (--withhold), by the simulator. Absent if the host never withheld the CPU.",
        )
        .shown_as("host in it", 79)
        .real(|row: &Row<'_>| {
            let Delays { host_ns, count, .. } = row.delays;
            (host_ns > 0).then(|| host_ns as f64 / count.max(1) as f64)
        }),
        column(
            "host_contained_count",
            "Found delays whose time of the host is at most the length by the live bench. Absent if the host never withheld \
             the CPU.",
        )
        .shown_as("contain host", 94)
        .uint(|row: &Row<'_>| (row.delays.host_ns > 0).then_some(row.delays.host_contained)),
    ]);
    let display = TableDisplay {
        group_by: vec!["condition".to_owned()],
        rows_max: Some(ROWS_MAX),
        ..TableDisplay::default()
    };
    let doc = "The long delays of single wake-ups by interrupts, tasks and the host: whether the live bench finds each, under \
               the right cause, and its length.";
    columns.table("delays", doc, rows).displayed(display)
}

#[cfg(test)]
mod tests {
    use record::Value;

    use super::super::probe_check::{ExactPart, ExactWakeup, MeasuredPart};
    use super::super::split::Stage;
    use super::*;

    fn cause(class: Class, stage: Stage, name: &str) -> Cause {
        Cause { class, stage, running: ("vector".to_owned(), name.to_owned()) }
    }

    /// A wake-up that two stages of a storm delay. `storm_ns` and `hog_ns`: by the simulator and by the live bench.
    fn add_wakeup(check: &mut ConditionCheck, storm_ns: [u64; 2], hog_ns: [u64; 2]) {
        let due_ns = check.exact.len() as u64;
        let parts = |side: usize| {
            [
                (cause(Class::LateTimer, Stage::Expiry, "idle"), 90_000),
                (cause(Class::Interrupts, Stage::Expiry, "storm"), storm_ns[side] / 2),
                (cause(Class::Interrupts, Stage::Scheduling, "storm"), storm_ns[side] / 2),
                (cause(Class::Tasks, Stage::Scheduling, "hog"), hog_ns[side]),
            ]
        };
        let exact = parts(0).map(|(cause, length_ns)| ExactPart {
            cause,
            length_ns,
            probes_ns: 0,
            host_ns: 0,
        });
        let measured = parts(1).map(|(cause, length_ns)| MeasuredPart { cause, length_ns });
        check.exact.push(ExactWakeup {
            cpu: 0,
            due_ns,
            late_ns: exact.iter().map(|part| part.length_ns).sum(),
            parts: exact.to_vec(),
            instants: Vec::new(),
        });
        check.measured.insert((0, due_ns), measured.to_vec());
    }

    /// A probe takes 200 ns, so a delay lasts at least 2,000 ns.
    #[test]
    fn each_delay_is_found_under_its_cause_and_at_its_length_or_not() {
        let mut check = ConditionCheck { probe_calls: (10, 2_000.0), ..ConditionCheck::default() };
        add_wakeup(&mut check, [8_000, 8_400], [7_000, 7_000]);
        add_wakeup(&mut check, [8_000, 8_402], [7_000, 7_000]);
        add_wakeup(&mut check, [10_000, 10_000], [9_000, 11_000]);
        add_wakeup(&mut check, [5_000, 0], [300_000, 300_000]);
        add_wakeup(&mut check, [1_000, 1_000], [1_900, 1_900]);
        let table = delays_table(&[check]);
        assert_eq!(table.check_display(), Ok(()));
        let row = |row: usize| {
            let counts = ["wakeup_count", "found_count", "within_count", "longest_count"];
            let further = ["longest_found_count", "exact_min_ns", "exact_max_ns"];
            let cell = |column| table.get(&table.rows()[row], column).cloned().unwrap();
            counts.into_iter().chain(further).map(cell).collect::<Vec<Value>>()
        };
        let values = |values: [u64; 7]| values.map(Value::from).to_vec();
        assert_eq!(row(0), values([4, 3, 2, 3, 2, 5_000, 10_000]), "the storm");
        assert_eq!(row(1), values([4, 4, 3, 1, 1, 7_000, 300_000]), "the hog");
        assert_eq!(table.rows().len(), 2);
        let host = ["host_mean_ns", "host_contained_count"];
        let cells = host.map(|column| table.get(&table.rows()[0], column).cloned().unwrap());
        assert_eq!(cells, [Value::Absent, Value::Absent]);
    }

    /// The late timer of each wake-up lasts for 90,000 ns on both sides.
    #[test]
    fn a_late_timer_is_a_delay_where_the_host_made_it_late() {
        let mut check = ConditionCheck { probe_calls: (10, 2_000.0), ..ConditionCheck::default() };
        for (host_ns, measured_ns) in
            [(88_000, 90_000), (89_000, 94_501), (80_000, 79_000), (80_000, 100)]
        {
            add_wakeup(&mut check, [8_000, 8_000], [7_000, 7_000]);
            let wakeup = check.exact.last_mut().unwrap();
            wakeup.parts[0].host_ns = host_ns;
            check.measured.get_mut(&(0, wakeup.due_ns)).unwrap()[0].length_ns = measured_ns;
        }
        add_wakeup(&mut check, [8_000, 8_000], [7_000, 7_000]);
        let table = delays_table(&[check]);
        let row = |row: usize| {
            let texts = ["class", "name"];
            let counts = ["wakeup_count", "within_count", "longest_count"];
            let further = ["longest_found_count", "host_contained_count"];
            let columns = texts.into_iter().chain(counts).chain(further);
            let cells = columns.map(|name| table.get(&table.rows()[row], name).cloned().unwrap());
            cells.collect::<Vec<Value>>()
        };
        let texts = ["late timer", "withheld CPU"].map(Value::from);
        let counts = [4_u64, 1, 4, 3, 2].map(Value::from);
        assert_eq!(row(0), [&texts[..], &counts[..]].concat());
        assert_eq!(row(1)[2], 5_u64.into(), "the storm");
        assert_eq!(table.rows().len(), 3, "a late timer without the host is no delay");
    }

    /// The live bench has the hog's delay under the storm's name. The second storm is a little too long.
    #[test]
    fn a_delay_that_only_the_live_bench_has_is_counted() {
        let mut check = ConditionCheck { probe_calls: (10, 2_000.0), ..ConditionCheck::default() };
        add_wakeup(&mut check, [0, 300_000], [1_000, 1_000]);
        add_wakeup(&mut check, [1_500, 3_400], [0, 0]);
        let table = delays_table(&[check]);
        let [row] = table.rows() else { panic!("{:?}", table.rows()) };
        let cells = ["name", "wakeup_count", "measured_only_count", "exact_min_ns"]
            .map(|column| table.get(row, column).cloned().unwrap());
        let expected = ["storm".into(), 0_u64.into(), 1_u64.into(), Value::Absent];
        assert_eq!(cells, expected);
    }
}
