//! Table `senders`: who asks other CPUs to call functions, or sends them interrupts. Users' programs read the columns:
//! names and order must not change.

use record::{Columns, Format, Table, TableDisplay, column};

use super::super::samples::ConditionSamples;
use super::super::senders::{
    SENDERS, SenderCounts, SenderEvent, SenderKey, SenderMethod, SenderStats,
};
use super::{condition_column, display, rate_hz};
use crate::cpu_warnings::format_cpu_list;

/// A sender in a condition.
struct Row<'a> {
    condition: String,
    key: &'a SenderKey,
    counts: &'a SenderCounts,
    method: SenderMethod,
    /// Mean length of the window on the measured CPUs, ns.
    window_ns: u64,
    /// Sum of the window's lengths over the measured CPUs, ns.
    cpu_time_ns: u64,
}

impl Row<'_> {
    fn is_call(&self) -> bool {
        matches!(self.key.event, SenderEvent::Call(_))
    }

    fn has_runs(&self) -> bool {
        self.counts.run_count > 0
    }

    /// An overhead that was subtracted from the runs, or its error. `None` where nothing is subtracted.
    fn overhead(&self, overhead: impl Fn(&SenderCounts) -> u64) -> Option<u64> {
        let has_overhead = self.has_runs() && self.method == SenderMethod::Probes;
        has_overhead.then(|| overhead(self.counts))
    }

    fn run_mean_ns(&self) -> Option<f64> {
        let SenderCounts { run_total_ns, run_count, .. } = self.counts;
        self.has_runs().then(|| *run_total_ns as f64 / *run_count as f64)
    }

    fn run_total_ns(&self) -> u64 {
        self.counts.run_total_ns.try_into().unwrap_or(0)
    }

    /// How many calls or interrupts are joined to their run or start on the target. `None` for rows that are never joined.
    fn joined_count(&self) -> Option<u64> {
        self.key.event.joined_count_of(self.counts, self.method)
    }

    /// A delay of the joined calls or interrupts, from a time and their number; `None` without joined ones.
    fn of_joined<T>(&self, delay: impl Fn(&SenderCounts, u64) -> T) -> Option<T> {
        let joined_count = self.joined_count().filter(|count| *count > 0)?;
        Some(delay(self.counts, joined_count))
    }

    /// A time of the joined runs of calls; `None` without such runs.
    fn of_joined_runs<T>(&self, time: impl Fn(&SenderCounts) -> T) -> Option<T> {
        (self.is_call() && self.has_runs()).then(|| time(self.counts))
    }

    /// A time of the joined runs of calls whose sender waits.
    fn of_awaited_runs<T>(&self, time: impl Fn(&SenderCounts) -> T) -> Option<T> {
        let is_awaited = matches!(self.key.event, SenderEvent::Call(call) if call.is_synchronous());
        if is_awaited { self.of_joined_runs(time) } else { None }
    }
}

fn mean(total: u64, count: u64) -> f64 {
    total as f64 / count as f64
}

/// CPUs as in `0-3,8`; `None` if there are none.
fn cpu_list(cpus: &[u32]) -> Option<String> {
    (!cpus.is_empty()).then(|| format_cpu_list(cpus))
}

/// The columns that identify a row: condition, kind, name, callback, sender and call site.
fn key_columns<'a>() -> Columns<'a, Row<'a>> {
    Columns::all([
        condition_column(50).of_ref(|row: &Row<'_>| &row.condition),
        column(
            "kind",
            "call: a function call that the sender queues for another CPU; interrupt: an interrupt that the sender \
             sends; run: a function that a CPU called, and whose sender is not known.",
        )
        .priority(90)
        .key()
        .text(|row: &Row<'_>| row.key.event.label()),
        column(
            "name",
            "Of a call or run: the function that the target calls. Of an interrupt: its vector, which is reschedule, \
             call_function_single, call_function (to several CPUs at once) or irq_work. The interrupt for a queued call \
             has a row of its own, and is sent only if no other call waits there.",
        )
        .priority(100)
        .key()
        .text(|row: &Row<'_>| match row.key.event {
            SenderEvent::Interrupt(vector) => Some(vector.unwrap_or("(not known)").to_owned()),
            _ => row.key.function.clone(),
        }),
        column(
            "callback",
            "Of the interrupts irq_work and (not known): the function that the kernel names for the interrupt.",
        )
        .detail()
        .key()
        .text(|row: &Row<'_>| match row.key.event {
            SenderEvent::Interrupt(_) => row.key.function.clone(),
            _ => None,
        }),
        column(
            "sender_kind",
            "Where the sender's code runs: task, irq, vector or softirq; interrupt, if the entry of that interrupt was not \
             seen. Absent if it is not known.",
        )
        .priority(75)
        .key()
        .text(|row: &Row<'_>| row.key.sender.kind()),
        column(
            "sender",
            "Name of the task, interrupt or softirq that sends. An interrupt that wakes a task is the sender, not the \
             task that it interrupts.",
        )
        .priority(98)
        .key()
        .text(|row: &Row<'_>| row.key.sender.name().to_owned()),
        column("call_site", "The kernel function that sends.")
            .priority(95)
            .key()
            .text(|row: &Row<'_>| row.key.call_site.clone()),
        column(
            "waits",
            "Whether the sender of a call waits until the function has returned on the target.",
        )
        .detail()
        .key()
        .bool(|row: &Row<'_>| match row.key.event {
            SenderEvent::Call(call) => Some(call.is_synchronous()),
            _ => None,
        }),
    ])
}

fn columns<'a>() -> Columns<'a, Row<'a>> {
    let waits = "The sender waits at least so long for this target.";
    Columns::all([
        key_columns(),
        column(
            "count",
            "Calls or interrupts to measured CPUs, from any CPU; one for each target. Of a run: the runs.",
        )
        .priority(99)
        .uint(|row: &Row<'_>| row.key.event.count_of(row.counts)),
        column("rate_hz", "count per second.").shown_as("rate", 96).real(|row: &Row<'_>| {
            rate_hz(row.key.event.count_of(row.counts), row.window_ns)
        }),
        column(
            "run_mean_ns",
            "Mean time of the function on the target, from its runs that are joined to the calls. The probes' overhead \
             is subtracted.",
        )
        .shown_as("run mean", 97)
        .format(Format::Microseconds)
        .cost()
        .plus_minus_error("run_mean_error_ns")
        .below_limit("run_mean_below_limit")
        .real(Row::run_mean_ns),
        column(
            "run_mean_error_ns",
            "Error of the subtracted overhead. It is no confidence interval of the mean. Absent where nothing is \
             subtracted.",
        )
        .detail()
        .uint(|row: &Row<'_>| row.overhead(|counts| counts.overhead_error_ns)),
        column(
            "run_mean_below_limit",
            "Whether run_mean_ns is below the detection limit, run_mean_error_ns. It may then be negative.",
        )
        .detail()
        .bool(|row: &Row<'_>| {
            let error_ns = row.overhead(|counts| counts.overhead_error_ns)?;
            row.run_mean_ns().map(|mean| mean <= error_ns as f64)
        }),
        column(
            "probe_overhead_mean_ns",
            "The overhead that is subtracted from each run: that of a span of vector call_function_single in this \
             window, or in warm caches if there was none. Absent where nothing is subtracted.",
        )
        .detail()
        .uint(|row: &Row<'_>| row.overhead(|counts| counts.overhead_mean_ns)),
        column("run_max_ns", "The longest run.")
            .shown_as("max", 70)
            .format(Format::Microseconds)
            .cost()
            .uint(|row: &Row<'_>| row.has_runs().then_some(row.counts.run_max_ns)),
        column("run_total_ns", "Sum of the times of these runs; 0 if it would be negative.")
            .shown_as("run total", 84)
            .format(Format::Milliseconds)
            .cost()
            .below_limit("run_mean_below_limit")
            .uint(|row: &Row<'_>| row.has_runs().then_some(row.run_total_ns())),
        column("run_cpu_ratio", "run_total_ns over the open time of all measured CPUs.")
            .shown_as("CPU", 86)
            .cost()
            .below_limit("run_mean_below_limit")
            .real(|row: &Row<'_>| {
                let is_known = row.has_runs() && row.cpu_time_ns > 0;
                is_known.then(|| mean(row.run_total_ns(), row.cpu_time_ns))
            }),
        column(
            "delay_mean_ns",
            "Mean time from the queueing of the call to the start of the function; of a reschedule interrupt, from the \
             sending to the entry on the target. Nothing is subtracted for probes.",
        )
        .shown_as("delay", 80)
        .format(Format::Microseconds)
        .cost()
        .real(|row: &Row<'_>| row.of_joined(|counts, joined| mean(counts.delay_total_ns, joined))),
        column("delay_max_ns", "The longest such time.")
            .detail()
            .format(Format::Microseconds)
            .cost()
            .uint(|row: &Row<'_>| row.of_joined(|counts, _| counts.delay_max_ns)),
        column(
            "completion_mean_ns",
            &format!("Mean time from the queueing of the call to the end of the function. {waits} Absent if the sender \
             does not wait. Nothing is subtracted for probes."),
        )
        .shown_as("wait", 79)
        .format(Format::Microseconds)
        .cost()
        .real(|row: &Row<'_>| row.of_awaited_runs(|c| mean(c.completion_total_ns, c.run_count))),
        column("completion_max_ns", "The longest such time.")
            .detail()
            .format(Format::Microseconds)
            .cost()
            .uint(|row: &Row<'_>| row.of_awaited_runs(|counts| counts.completion_max_ns)),
        column(
            "joined_count",
            "Calls to which a run with its end is joined. All times of the row are of these. Of reschedule interrupts of a \
             simulated machine: those that are joined to the interrupt that the target took.",
        )
        .detail()
        .uint(|row: &Row<'_>| row.joined_count()),
        column(
            "unjoined_count",
            "Calls without such a run: the function had not returned when the window closed, its events were not seen \
             or are not certain to be of this call, or the kernel has no event for it (irq_work, and wake-ups that one \
             run does together). Or reschedule interrupts that the target had not taken when the window closed.",
        )
        .shown_as("unjoined", 60)
        .uint(|row: &Row<'_>| Some(row.counts.count.saturating_sub(row.joined_count()?))),
        column("unfinished_count", "Runs whose end was not seen. No time includes them.")
            .detail()
            .uint(|row: &Row<'_>| row.counts.unfinished_count),
        column("sender_cpus", "CPUs that sent.")
            .priority(40)
            .text(|row: &Row<'_>| cpu_list(&row.counts.sender_cpus)),
        column("target_cpus", "Measured CPUs that the calls or interrupts were sent to.")
            .priority(41)
            .text(|row: &Row<'_>| cpu_list(&row.counts.target_cpus)),
        column("method", "The events of which the row is made.")
            .detail()
            .text(|row: &Row<'_>| row.key.event.method(row.method)),
    ])
}

fn rows_of(condition: &ConditionSamples) -> impl Iterator<Item = Row<'_>> {
    let timing = &condition.timing;
    let (window_ns, cpu_time_ns) = (timing.length_ns(), timing.cpu_time_ns());
    let rows = timing.senders.iter().flatten();
    rows.map(move |SenderStats { key, counts, method }| Row {
        condition: condition.condition.label(),
        key,
        counts,
        method: *method,
        window_ns,
        cpu_time_ns,
    })
}

/// Table `senders`: one row for each sender, over all CPUs.
pub fn senders(measured: &[ConditionSamples]) -> Table {
    let doc = "One row per kind, function or vector, sender and call site, over all CPUs: function calls queued for measured \
               CPUs, interrupts sent to them, and functions that they called without a known sender. Rows of kind call and \
               of kind interrupt describe the same events at two places: their counts do not add up.";
    let display = TableDisplay {
        sort_by: Some("count".to_owned()),
        notes: vec![
            "calls and the interrupts for them have rows of their own; unjoined: calls without a run that is certain to \
             be theirs, in no time of the row"
                .to_owned(),
        ],
        ..display("who sends function calls and interrupts to other CPUs, and the cost of the functions there")
    };
    columns().table(SENDERS, doc, measured.iter().flat_map(rows_of)).displayed(display)
}

#[cfg(test)]
mod tests {
    use record::Value;

    use super::super::super::condition::Condition;
    use super::super::super::sample::{CpuWindow, WindowSample};
    use super::super::super::senders::{CallType, Sender};
    use super::*;

    fn stats(event: SenderEvent, counts: SenderCounts) -> SenderStats {
        let key = SenderKey {
            event,
            function: Some("flush_tlb_func".to_owned()),
            sender: Sender::Task("munmapper".to_owned()),
            call_site: Some("on_each_cpu_cond_mask".to_owned()),
        };
        SenderStats { key, counts, method: SenderMethod::Probes }
    }

    #[test]
    fn simulated_reschedule_interrupts_are_joined_and_have_no_run() {
        let counts = SenderCounts {
            count: 3,
            handled_count: 2,
            delay_total_ns: 40,
            delay_max_ns: 30,
            ..SenderCounts::default()
        };
        let reschedule = stats(SenderEvent::Interrupt(Some("reschedule")), counts.clone());
        let senders = [
            SenderStats { method: SenderMethod::Simulator, ..reschedule.clone() },
            // The live bench does not join them.
            SenderStats {
                counts: SenderCounts { handled_count: 0, count: 3, ..SenderCounts::default() },
                ..reschedule
            },
        ];
        let timing = WindowSample { senders: Some(senders.to_vec()), ..WindowSample::default() };
        let condition = Condition::Ambient;
        let table = senders_of(&[ConditionSamples { condition, timing, events: Vec::new() }]);
        let cells = |column: &str| -> Vec<Option<f64>> {
            let cell = |row: &Vec<Value>| table.get(row, column).and_then(Value::number);
            table.rows().iter().map(cell).collect()
        };
        assert_eq!(cells("joined_count"), [Some(2.0), None]);
        assert_eq!(cells("unjoined_count"), [Some(1.0), None]);
        assert_eq!(cells("delay_mean_ns"), [Some(20.0), None]);
        assert_eq!(cells("delay_max_ns"), [Some(30.0), None]);
        for column in ["run_mean_ns", "run_total_ns", "completion_mean_ns"] {
            assert_eq!(cells(column), [None, None], "{column}");
        }
    }

    #[test]
    fn a_row_has_only_the_times_that_its_events_have() {
        let runs = SenderCounts {
            count: 5,
            run_count: 4,
            run_total_ns: 400,
            overhead_error_ns: 3,
            delay_total_ns: 40,
            completion_total_ns: 4_000,
            sender_cpus: vec![0, 1, 2, 9],
            ..SenderCounts::default()
        };
        let senders = [
            stats(SenderEvent::Call(CallType::Synchronous), runs.clone()),
            stats(SenderEvent::Call(CallType::Asynchronous), runs.clone()),
            stats(
                SenderEvent::Interrupt(Some("reschedule")),
                SenderCounts { count: 7, ..SenderCounts::default() },
            ),
            stats(SenderEvent::UnjoinedRun, SenderCounts { count: 0, ..runs }),
        ];
        let window = CpuWindow { length_ns: 1_000_000_000, ..CpuWindow::default() };
        let timing = WindowSample {
            senders: Some(senders.to_vec()),
            windows: vec![window],
            ..WindowSample::default()
        };
        let condition = Condition::Ambient;
        let table = senders_of(&[ConditionSamples { condition, timing, events: Vec::new() }]);
        let cells = |column: &str| -> Vec<Option<f64>> {
            let cell = |row: &Vec<Value>| table.get(row, column).and_then(Value::number);
            table.rows().iter().map(cell).collect()
        };
        assert_eq!(cells("count"), [Some(5.0), Some(5.0), Some(7.0), Some(4.0)]);
        assert_eq!(cells("rate_hz"), [Some(5.0), Some(5.0), Some(7.0), Some(4.0)]);
        assert_eq!(cells("run_mean_ns"), [Some(100.0), Some(100.0), None, Some(100.0)]);
        assert_eq!(cells("run_mean_error_ns"), [Some(3.0), Some(3.0), None, Some(3.0)]);
        assert_eq!(cells("delay_mean_ns"), [Some(10.0), Some(10.0), None, None]);
        assert_eq!(cells("completion_mean_ns"), [Some(1_000.0), None, None, None]);
        assert_eq!(cells("unjoined_count"), [Some(1.0), Some(1.0), None, None]);
        let first = &table.rows()[0];
        assert_eq!(table.get(first, "sender_cpus"), Some(&Value::Text("0-2,9".into())));
        for name in ["run_mean_ns", "run_total_ns", "run_cpu_ratio"] {
            let column = &table.columns[table.column(name).unwrap()];
            assert_eq!(
                column.display.below_limit.as_deref(),
                Some("run_mean_below_limit"),
                "{name}"
            );
        }
    }

    fn senders_of(measured: &[ConditionSamples]) -> Table {
        senders(measured)
    }
}
