//! Table `profile`: the modes of all CPUs together over time. Figures and programs read it;
//! names and order of columns must not change.

use record::{Columns, Format, Table, TableDisplay, column};

use super::super::sample::{ProfileMode, ProfileSlot, ServicesSample};

fn columns(sample: &ServicesSample) -> Columns<'_, ProfileSlot> {
    let share = |slot: &ProfileSlot, ticks: u64| {
        let slot_ticks = slot.length_ticks.saturating_mul(u64::from(sample.cpus)).max(1);
        ticks as f64 / slot_ticks as f64
    };
    // A halted CPU neither executes nor stalls, and the ticks of idle and of unknown time do not say which part is halted.
    let share_unless_idle = move |slot: &ProfileSlot, ticks: u64| {
        let may_be_halted = matches!(slot.mode, ProfileMode::Idle | ProfileMode::Unknown);
        if may_be_halted { None } else { Some(share(slot, ticks)) }
    };
    let stalls = |slot: &ProfileSlot| {
        slot.fetch_stall_ticks + slot.data_stall_ticks + slot.pipeline_stall_ticks
    };
    Columns::all([
        column("start_ns", "Time from the opening of the window to the start of the slot.")
            .title("start")
            .format(Format::Milliseconds)
            .priority(100)
            .key()
            .real(|slot: &ProfileSlot| sample.ns_of(slot.start_ticks as f64)),
        column("length_ns", "Length of the slot.")
            .title("length")
            .format(Format::Milliseconds)
            .priority(90)
            .real(|slot: &ProfileSlot| sample.ns_of(slot.length_ticks as f64)),
        column(
            "mode",
            "user, kernel, idle, sync: the kernel waits for a lock that another context holds (with \
             --locks), or unknown. Page walks count for the mode: tables modes and services have them apart.",
        )
        .priority(99)
        .key()
        .text(|slot: &ProfileSlot| slot.mode.label()),
        column("time_ratio", "Share of the time of all CPUs in the slot, offline CPUs included.")
            .shown_as("% time", 98)
            .real(move |slot: &ProfileSlot| share(slot, slot.ticks)),
        column(
            "execution_ratio",
            "Part of time_ratio without waits for memory and losses in the pipeline. Absent for \
             idle and unknown, as are the stalls: the time of halted CPUs is neither.",
        )
        .shown_as("execution", 97)
        .real(move |slot: &ProfileSlot| {
            share_unless_idle(slot, slot.ticks.saturating_sub(stalls(slot)))
        }),
        column(
            "fetch_stall_ratio",
            "Part of time_ratio that waits for instructions. Absent for idle and unknown.",
        )
        .shown_as("I stall", 96)
        .real(move |slot: &ProfileSlot| share_unless_idle(slot, slot.fetch_stall_ticks)),
        column("data_stall_ratio", "Part of time_ratio that waits for data. Absent for idle and unknown.")
            .shown_as("D stall", 95)
            .real(move |slot: &ProfileSlot| share_unless_idle(slot, slot.data_stall_ticks)),
        column(
            "pipeline_stall_ratio",
            "Part of time_ratio that is otherwise lost in the pipeline. Absent for idle and unknown.",
        )
        .shown_as("pipeline", 94)
        .real(move |slot: &ProfileSlot| share_unless_idle(slot, slot.pipeline_stall_ticks)),
    ])
}

/// A row for each mode in each slot.
pub(in super::super) fn profile(sample: &ServicesSample) -> Table {
    let doc = "What all CPUs together did over time. The shares of a slot add up to 1. They add up \
               to less in the last slot if the window ends within it, while a CPU is offline, and \
               on a machine without a model while a CPU waits for its turn. Time that was charged \
               over several slots is spread evenly over them.";
    // Only figures and programs use this table: print no rows.
    let display = TableDisplay { rows_max: Some(0), ..TableDisplay::default() };
    columns(sample).table("profile", doc, &sample.profile).displayed(display)
}

#[cfg(test)]
mod tests {
    use super::super::tests::sample;
    use super::*;

    #[test]
    fn shares_are_of_the_slot_on_all_cpus_and_idle_does_not_execute() {
        let slot = |mode, ticks| ProfileSlot {
            mode,
            start_ticks: 500,
            length_ticks: 500,
            ticks,
            fetch_stall_ticks: 100,
            data_stall_ticks: 0,
            pipeline_stall_ticks: 50,
        };
        let profile = vec![
            slot(ProfileMode::User, 500),
            slot(ProfileMode::Kernel, 250),
            slot(ProfileMode::Idle, 250),
            slot(ProfileMode::Unknown, 250),
        ];
        let sample = ServicesSample { cpus: 2, profile, ..sample() };
        let table = super::profile(&sample);
        let cells = |column: &str| -> Vec<Option<f64>> {
            table.rows().iter().map(|row| table.get(row, column).unwrap().number()).collect()
        };
        assert_eq!(table.check_display(), Ok(()));
        assert_eq!(cells("start_ns"), [Some(500.0); 4]);
        assert_eq!(cells("time_ratio"), [Some(0.5), Some(0.25), Some(0.25), Some(0.25)]);
        assert_eq!(cells("execution_ratio"), [Some(0.35), Some(0.1), None, None]);
        assert_eq!(cells("fetch_stall_ratio"), [Some(0.1), Some(0.1), None, None]);
        assert_eq!(cells("data_stall_ratio"), [Some(0.0), Some(0.0), None, None]);
        assert_eq!(cells("pipeline_stall_ratio"), [Some(0.05), Some(0.05), None, None]);
    }

    #[test]
    fn an_offline_cpu_is_in_the_time_of_a_slot_and_in_no_share() {
        let slot = ProfileSlot {
            mode: ProfileMode::User,
            start_ticks: 0,
            length_ticks: 500,
            ticks: 500,
            fetch_stall_ticks: 0,
            data_stall_ticks: 0,
            pipeline_stall_ticks: 0,
        };
        let sample = ServicesSample { cpus: 2, profile: vec![slot], ..sample() };
        let table = super::profile(&sample);
        let shares = table.rows().iter().map(|row| table.get(row, "time_ratio").unwrap().number());
        assert_eq!(shares.collect::<Vec<_>>(), [Some(0.5)]);
        assert!(table.doc.contains("while a CPU is offline"), "{}", table.doc);
    }
}
