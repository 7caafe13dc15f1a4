//! Table `wakers`: who woke the thread in each of the worst wake-ups, step by step. Names and order of the columns, and the
//! words in their cells, are public.

use record::{Table, column};

use super::sample::WakeupSample;
use super::tables::{Worst, key_columns, no_rows, us_column};
use super::wakers::{ChainEnd, Waker};
use crate::noise::ContextName;

/// A row: a step of the chain of wakers of one of the worst wake-ups.
struct Row<'a> {
    worst: Worst<'a>,
    /// 1 for the waker of the measured thread.
    step: u64,
    waker: &'a Waker,
}

impl Row<'_> {
    /// Kind and name of a context or task. `name_index`: its index in the sample's names. `None`: there is no such name.
    fn kind_and_name(&self, name_index: u32) -> Option<(&str, String)> {
        let name = self.worst.thread.sample.names.get(name_index as usize);
        name.map(ContextName::kind_and_name)
    }

    /// Kind and name of the waker: of the interrupt or softirq that sent the wake-up, else of the task. `None`: the sample
    /// has no name for the waker.
    fn waker_kind_and_name(&self) -> Option<(&str, String)> {
        self.kind_and_name(self.waker.context.unwrap_or(self.waker.task))
    }

    /// Why the chain ends with this step. `None` if a step follows.
    fn chain_end(&self) -> Option<ChainEnd> {
        let chain = &self.worst.whole.wakers;
        let is_last = self.step == chain.len() as u64;
        if is_last { ChainEnd::of(chain, &self.worst.thread.sample.names) } else { None }
    }

    /// Time from this step's wake-up to that of the measured thread, ns.
    fn before_ns(&self) -> u64 {
        let woken_ns = self.worst.whole.wakers.first().map_or(0, |waker| waker.at_ns);
        woken_ns.saturating_sub(self.waker.at_ns)
    }
}

/// Table `wakers`: one row per step of the chain of each wake-up in table `worst`.
pub(super) fn wakers(sample: &WakeupSample) -> Table {
    let columns = key_columns().of(|row: &Row<'_>| row.worst).and([
        column("step", "1: who woke the measured thread, 2: who woke that waker, and so on.")
            .priority(89)
            .key()
            .uint(|row: &Row<'_>| row.step),
        column("kind", "Kind of the waker: task, irq, vector or softirq.")
            .priority(80)
            .text(|row: &Row<'_>| row.waker_kind_and_name().map(|(kind, _)| kind.to_owned())),
        column("name", "Name of the task, the interrupt or the softirq that sent the wake-up.")
            .shown_as("waker", 95)
            .text(|row: &Row<'_>| row.waker_kind_and_name().map(|(_, name)| name)),
        column(
            "task",
            "Name of the task that ran on the waker's CPU: the waker itself, or the task that the interrupt or the softirq \
             interrupted or in which it ran.",
        )
        .priority(70)
        .text(|row: &Row<'_>| row.kind_and_name(row.waker.task).map(|(_, name)| name)),
        column("pid", "The kernel's number of this task; 0 for the idle task.")
            .priority(75)
            .uint(|row: &Row<'_>| row.waker.pid),
        column("waker_cpu", "CPU of the waker.").priority(85).uint(|row: &Row<'_>| row.waker.cpu),
        us_column("before_ns", "Time from this wake-up to the wake-up of the measured thread; 0 for step 1.")
            .shown_as("before", 90)
            .uint(Row::before_ns),
        column(
            "chain_end",
            "Why the chain goes no further: interrupt (an interrupt, or a softirq in a task that was not woken for it), idle \
             (nobody wakes the idle task), steps (4 steps), or not seen (no event shows who woke this waker). Absent if a \
             step follows.",
        )
        .shown_as("end", 60)
        .text(|row: &Row<'_>| row.chain_end().map(ChainEnd::label)),
    ]);
    let rows = Worst::all(sample).flat_map(|worst| {
        (1..).zip(&worst.whole.wakers).map(move |(step, waker)| Row { worst, step, waker })
    });
    let doc = "Who woke the thread in each wake-up of table worst, who woke that waker, and so on: by the kernel's events at \
               the time of the wake-up.";
    columns.table("wakers", doc, rows).displayed(no_rows())
}

#[cfg(test)]
mod tests {
    use super::super::tables::tests::sample;
    use super::super::tables::worst_table;
    use super::*;

    #[test]
    fn each_worst_wake_up_has_its_chain_step_by_step() {
        let sample = sample();
        let table = wakers(&sample);
        assert_eq!(table.check_display(), Ok(()));
        assert_eq!(table.rows().len(), 2 * worst_table(&sample).rows().len());
        let cell = |row: usize, name: &str| table.get(&table.rows()[row], name).cloned();
        let number = |number: u64| Some(record::Value::from(number));
        let text = |word: &str| Some(record::Value::from(word));
        for (row, step, before_ns) in [(0, 1, 0), (1, 2, 1_000)] {
            assert_eq!(
                (cell(row, "step"), cell(row, "before_ns")),
                (number(step), number(before_ns))
            );
            assert_eq!((cell(row, "rank"), cell(row, "waker_cpu")), (number(1), number(0)));
        }
        assert_eq!([0, 1].map(|row| cell(row, "name")), [text("hog"), text("local_timer")]);
        assert_eq!([0, 1].map(|row| cell(row, "task")), [text("hog"), text("idle")]);
        assert_eq!([0, 1].map(|row| cell(row, "pid")), [number(77), number(0)]);
        assert_eq!(cell(0, "chain_end"), Some(record::Value::Absent));
        assert_eq!(cell(1, "chain_end"), text("interrupt"));
    }

    #[test]
    fn the_chain_of_a_wake_up_is_text_in_the_table_of_the_worst() {
        let worst = worst_table(&sample());
        let text = worst.get(&worst.rows()[0], "wakers").cloned();
        let expected = "hog/77 on CPU 0 < local_timer on CPU 0";
        assert_eq!(text, Some(record::Value::from(expected)));
    }
}
