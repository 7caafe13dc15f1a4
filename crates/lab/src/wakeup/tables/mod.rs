//! The tables of `wakeup`, computed from the samples. `experiment.rs` puts them into the report. Names and order of the
//! columns, and the words in their cells, are public. Here is what several tables use.

mod causes;
mod lateness;
mod search;
#[cfg(test)]
pub(super) mod tests;
mod worst;

use record::limits::ROWS_MAX;
use record::{Column, Columns, Format, TableDisplay, column};
use stats::Distribution;

use super::class::Class;
use super::disk::DiskReads;
use super::sample::{CpuWakeups, WakeupSample};
pub(super) use causes::causes;
pub(super) use lateness::{distribution, wakeup};
pub(super) use search::{seeds, worst_case, worst_functions};
pub(super) use worst::{Worst, key_columns, late_wake_ups, worst_parts, worst_table};

/// How many of the worst wake-ups of a run the terminal shows.
const SHOWN: u64 = 10;

/// The thread of a CPU, with the sample of its window.
#[derive(Clone, Copy)]
pub(super) struct Thread<'a> {
    pub(super) sample: &'a WakeupSample,
    cpu: &'a CpuWakeups,
}

impl<'a> Thread<'a> {
    fn all(sample: &'a WakeupSample) -> impl Iterator<Item = Thread<'a>> {
        sample.cpus.iter().map(move |cpu| Thread { sample, cpu })
    }

    fn lateness(&self) -> &'a Distribution {
        &self.cpu.ledger.late
    }

    /// The reads of the disk. `None` if no disk wakes the thread.
    fn reads(&self) -> Option<&'a DiskReads> {
        self.cpu.disk.map(|_| &self.cpu.ledger.reads)
    }

    /// Whether the sample has causes, and a thread can have time of this class.
    fn has_class(&self, class: Class) -> bool {
        self.sample.events.is_some() && class.can_occur(self.cpu.is_woken_by_timer())
    }

    /// Share of a class in the lateness of all wake-ups. `None` without tracing, without lateness, or for
    /// a class that cannot occur.
    fn class_ratio(&self, class: Class) -> Option<f64> {
        if !self.has_class(class) {
            return None;
        }
        let parts = self.cpu.ledger.parts.iter();
        let of_class =
            parts.filter(|(part, _)| Class::of_part(**part, &self.sample.names) == class);
        ratio(of_class.map(|(_, times)| times.sum).sum(), self.lateness().sum)
    }
}

/// `part` as a share of `total`. `None` if the total is 0.
fn ratio(part: u64, total: u64) -> Option<f64> {
    (total > 0).then(|| part as f64 / total as f64)
}

fn cpu_column<'a>() -> Columns<'a, u32> {
    column("cpu", "CPU that the thread ran on.").priority(100).key().uint(|cpu: &u32| *cpu)
}

pub(super) fn us_column(name: &str, doc: &str) -> Column {
    column(name, doc).format(Format::Microseconds)
}

/// Display hints of a table that shows every row.
fn all_rows() -> TableDisplay {
    TableDisplay { rows_max: Some(ROWS_MAX), ..TableDisplay::default() }
}

/// Display hints of a table for pictures and programs: a terminal shows no row of it.
pub(super) fn no_rows() -> TableDisplay {
    TableDisplay { rows_max: Some(0), ..TableDisplay::default() }
}
