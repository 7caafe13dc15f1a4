//! Checks the long delays of wake-ups one by one: does the live bench find each, under the right cause, and at the right length?
//! A table of `irqlab sim verify-probes --experiment wakeup`, next to those of `probe_check`. Users' programs read the
//! columns: names and order must not change.

use std::collections::BTreeMap;

use record::limits::ROWS_MAX;
use record::{Columns, Format, Table, TableDisplay, column};

use super::probe_check::{Cause, ConditionCheck, ERROR_MAX, PROBE_COSTS_MIN};
use super::tables::Class;

/// The cause of a delay: the class, and kind and name of what ran. All stages together: one delay may last over several.
type DelayCause = (Class, (String, String));

/// The classes that others bring about: work that runs before the thread. The classes of the thread's own way are no delays.
const DELAYING: [Class; 2] = [Class::Interrupts, Class::Tasks];

/// The delays of one cause.
#[derive(Clone, Debug, Default, PartialEq)]
struct Delays {
    /// Lengths of the delays, ns, by the simulator: shortest, longest, sum.
    exact_ns: (u64, u64, u64),
    count: u64,
    /// Delays whose cause is also the largest one by the live bench.
    found: u64,
    /// Found delays whose lengths differ by at most [`ERROR_MAX`].
    within: u64,
    /// Largest relative error of a length.
    error_ratio_max: f64,
    /// Delays that only the live bench has.
    invented: u64,
}

impl Delays {
    fn add(&mut self, exact_ns: u64, measured_ns: u64, is_found: bool) {
        let (shortest, longest, sum) = self.exact_ns;
        let shortest = if self.count == 0 { exact_ns } else { shortest.min(exact_ns) };
        self.exact_ns = (shortest, longest.max(exact_ns), sum + exact_ns);
        self.count += 1;
        let error_ratio = measured_ns.abs_diff(exact_ns) as f64 / exact_ns.max(1) as f64;
        self.found += u64::from(is_found);
        self.within += u64::from(is_found && error_ratio <= ERROR_MAX);
        self.error_ratio_max = self.error_ratio_max.max(error_ratio);
    }
}

/// The time of each delaying cause in a wake-up, ns.
fn times<'a>(parts: impl Iterator<Item = (&'a Cause, u64)>) -> BTreeMap<DelayCause, u64> {
    let mut times = BTreeMap::new();
    for (cause, length_ns) in parts.filter(|(cause, _)| DELAYING.contains(&cause.class)) {
        *times.entry((cause.class, cause.running.clone())).or_default() += length_ns;
    }
    times
}

fn largest(times: &BTreeMap<DelayCause, u64>) -> Option<(&DelayCause, u64)> {
    times.iter().max_by_key(|(_, ns)| **ns).map(|(cause, ns)| (cause, *ns))
}

/// The delays of a condition by cause. A wake-up has a delay if its largest delaying cause lasts at least
/// [`PROBE_COSTS_MIN`] calls of a probe.
fn delays(check: &ConditionCheck) -> BTreeMap<DelayCause, Delays> {
    let least_ns = check.probe_cost_ns().unwrap_or(0.0) * PROBE_COSTS_MIN;
    let mut delays: BTreeMap<DelayCause, Delays> = BTreeMap::new();
    for (exact, measured) in check.joined_wakeups() {
        let exact = times(exact.parts.iter().map(|part| (&part.cause, part.length_ns)));
        let Some((cause, exact_ns)) = largest(&exact) else { continue };
        if (exact_ns as f64) < least_ns {
            continue;
        }
        let measured = times(measured.iter().map(|part| (&part.cause, part.length_ns)));
        let is_found = largest(&measured).is_some_and(|(found, _)| found == cause);
        let measured_ns = measured.get(cause).copied().unwrap_or(0);
        delays.entry(cause.clone()).or_default().add(exact_ns, measured_ns, is_found);
    }
    for cause in invented_delays(check, least_ns) {
        delays.entry(cause).or_default().invented += 1;
    }
    delays
}

/// The causes of delays that only the live bench has, one for each wake-up and cause. Such a delay lasts at least `least_ns` longer
/// than the exact time of its cause, which is no delay.
fn invented_delays(check: &ConditionCheck, least_ns: f64) -> Vec<DelayCause> {
    let mut invented = Vec::new();
    for (exact, measured) in check.joined_wakeups() {
        let exact = times(exact.parts.iter().map(|part| (&part.cause, part.length_ns)));
        let measured = times(measured.iter().map(|part| (&part.cause, part.length_ns)));
        for (cause, measured_ns) in measured {
            let exact_ns = exact.get(&cause).copied().unwrap_or(0);
            let excess_ns = measured_ns.saturating_sub(exact_ns);
            if (exact_ns as f64) < least_ns && excess_ns > 0 && excess_ns as f64 >= least_ns {
                invented.push(cause);
            }
        }
    }
    invented
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
        column("class", "Class of the delay: interrupts or tasks.")
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
            "Wake-ups whose longest delay this is, by the simulator, in all stages together. A delay lasts at least ten times \
             the mean time of a call of a probe.",
        )
        .shown_as("delays", 98)
        .uint(|row: &Row<'_>| row.delays.count),
        column("found_count", "Wake-ups of wakeup_count whose longest delay has the same cause by the live bench.")
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
    ]);
    let display = TableDisplay {
        group_by: vec!["condition".to_owned()],
        rows_max: Some(ROWS_MAX),
        ..TableDisplay::default()
    };
    let doc = "The long delays of single wake-ups by interrupts and tasks: whether the live bench finds each, under the right \
               cause, and its length.";
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
        let exact = parts(0).map(|(cause, length_ns)| ExactPart { cause, length_ns, probes_ns: 0 });
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
        add_wakeup(&mut check, [0, 0], [300_000, 300_000]);
        add_wakeup(&mut check, [1_000, 1_000], [1_900, 1_900]);
        let table = delays_table(&[check]);
        assert_eq!(table.check_display(), Ok(()));
        let row = |row: usize| {
            ["wakeup_count", "found_count", "within_count", "exact_min_ns", "exact_max_ns"]
                .map(|column| table.get(&table.rows()[row], column).cloned().unwrap())
        };
        let counts = |counts: [u64; 5]| counts.map(Value::from);
        assert_eq!(row(0), counts([3, 2, 1, 8_000, 10_000]), "the storm");
        assert_eq!(row(1), counts([1, 1, 1, 300_000, 300_000]), "the hog");
        assert_eq!(table.rows().len(), 2);
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
