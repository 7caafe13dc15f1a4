//! Table `profile`: what the CPUs did over time.

use record::{Column, Format, Kind, Table, TableDisplay, Value};

use super::super::sample::{ProfileSlot, ServicesSample};

fn columns() -> Vec<Column> {
    let real = |name: &str, doc: &str| Column::new(name, Kind::Real, doc);
    vec![
        real("start_ns", "Time from the opening of the window to the start of the slot.")
            .title("start")
            .format(Format::Milliseconds)
            .priority(100)
            .key(),
        real("length_ns", "Length of the slot.")
            .title("length")
            .format(Format::Milliseconds)
            .priority(90),
        Column::new(
            "mode",
            Kind::Text,
            "user, kernel, idle, or sync: the kernel waits for a lock that another context holds \
             (with --locks).",
        )
        .priority(99)
        .key(),
        real("time_ratio", "Share of the time of all CPUs in the slot.")
            .title("% time")
            .priority(98),
        real(
            "execution_ratio",
            "Part of time_ratio without waits for memory and losses in the pipeline.",
        )
        .title("execution")
        .priority(97),
        real("fetch_stall_ratio", "Part of time_ratio that waits for instructions.")
            .title("I stall")
            .priority(96),
        real("data_stall_ratio", "Part of time_ratio that waits for data.")
            .title("D stall")
            .priority(95),
        real("pipeline_stall_ratio", "Part of time_ratio that is otherwise lost in the pipeline.")
            .title("pipeline")
            .priority(94),
    ]
}

/// A row for each mode in each slot.
pub(in super::super) fn profile(sample: &ServicesSample) -> Table {
    let doc = "What all CPUs together did over time. The shares of a slot add up to 1, except in \
               the last slot if the window ends within it. Time that was charged over several \
               slots is spread evenly over them.";
    // Only figures and programs use this table: print no rows.
    let display = TableDisplay { rows_max: Some(0), ..TableDisplay::default() };
    let mut table = Table::new("profile", doc, columns()).displayed(display);
    for slot in &sample.profile {
        table.push(row(sample, slot));
    }
    table
}

fn row(sample: &ServicesSample, slot: &ProfileSlot) -> Vec<Value> {
    let slot_ticks = slot.length_ticks.saturating_mul(u64::from(sample.cpus)).max(1) as f64;
    let share = |ticks: u64| Value::from(ticks as f64 / slot_ticks);
    let stalls = slot.fetch_stall_ticks + slot.data_stall_ticks + slot.pipeline_stall_ticks;
    vec![
        sample.ns_of(slot.start_ticks as f64).into(),
        sample.ns_of(slot.length_ticks as f64).into(),
        slot.mode.label().into(),
        share(slot.ticks),
        share(slot.ticks.saturating_sub(stalls)),
        share(slot.fetch_stall_ticks),
        share(slot.data_stall_ticks),
        share(slot.pipeline_stall_ticks),
    ]
}

#[cfg(test)]
mod tests {
    use super::super::super::sample::ProfileMode;
    use super::super::tests::sample;
    use super::*;

    #[test]
    fn shares_are_of_the_slot_on_all_cpus() {
        let slot = |mode, ticks| ProfileSlot {
            mode,
            start_ticks: 500,
            length_ticks: 500,
            ticks,
            fetch_stall_ticks: 100,
            data_stall_ticks: 0,
            pipeline_stall_ticks: 50,
        };
        let profile = vec![slot(ProfileMode::User, 750), slot(ProfileMode::Kernel, 250)];
        let sample = ServicesSample { cpus: 2, profile, ..sample() };
        let table = super::profile(&sample);
        let cells = |column: &str| -> Vec<Option<f64>> {
            table.rows().iter().map(|row| table.get(row, column).unwrap().number()).collect()
        };
        assert_eq!(table.check_display(), Ok(()));
        assert_eq!(cells("start_ns"), [Some(500.0), Some(500.0)]);
        assert_eq!(cells("time_ratio"), [Some(0.75), Some(0.25)]);
        assert_eq!(cells("execution_ratio"), [Some(0.6), Some(0.1)]);
    }
}
