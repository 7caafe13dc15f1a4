//! The tables of `noise`, computed from the samples. `experiment.rs` puts them into the report. Names and order of the
//! columns, and the words in their cells, are public.

mod aftermath;
mod causes;
mod injected;
mod longest;
mod lost_time;
mod noise;
mod periods;
mod placement;
mod quanta;
mod single;
mod spectrum;
mod tick;

pub(super) use aftermath::{aftermath, aftermath_absent};
pub(super) use causes::causes;
pub(super) use injected::injected;
pub(super) use longest::{longest, longest_parts, marked_detours};
pub(super) use lost_time::lost_time;
pub(super) use noise::{noise, sizes, sizes_by_cause};
pub(super) use periods::periods;
pub(super) use placement::placement;
pub(super) use quanta::{ftq, fwq};
pub(super) use single::{detours, repetitions, slots};
pub(super) use spectrum::spectrum;
pub(super) use tick::tick;

use record::limits::ROWS_MAX;
use record::{Columns, TableDisplay, column};

use super::ledger::GapLedger;
use super::sample::{CpuNoise, LoopResult, NoiseSample, kind_and_name};

/// A detour loop on one CPU, with the sample of its window.
#[derive(Clone, Copy)]
struct DetourLoop<'a> {
    sample: &'a NoiseSample,
    cpu: &'a CpuNoise,
    ledger: &'a GapLedger,
}

impl<'a> DetourLoop<'a> {
    /// The detour loops of all samples.
    fn all(samples: &'a [NoiseSample]) -> impl Iterator<Item = DetourLoop<'a>> {
        samples.iter().flat_map(|sample| {
            let detour_loop = move |cpu: &'a CpuNoise| match &cpu.result {
                LoopResult::Gaps(ledger) => Some(DetourLoop { sample, cpu, ledger }),
                LoopResult::Quanta(_) | LoopResult::Slots(_) => None,
            };
            sample.cpus.iter().filter_map(detour_loop)
        })
    }

    /// A time from the opening of the window, which is the same for all CPUs, ns.
    fn since_opening_ns(&self, time_ns: u64) -> u64 {
        time_ns.saturating_sub(self.sample.opened_ns())
    }
}

/// The detour loops of the samples: only the traced loops, or all loops if no loop was traced.
fn detour_loops(samples: &[NoiseSample]) -> Vec<DetourLoop<'_>> {
    let is_traced = |detour_loop: &DetourLoop<'_>| detour_loop.sample.traced.is_some();
    let traced: Vec<_> = DetourLoop::all(samples).filter(is_traced).collect();
    if traced.is_empty() { DetourLoop::all(samples).collect() } else { traced }
}

fn cpu_column<'a>(priority: u8) -> Columns<'a, u32> {
    column("cpu", "CPU that the loop ran on.").priority(priority).key().uint(|cpu: &u32| *cpu)
}

/// The event that ended the window of a loop on a CPU.
fn ended_by_column<'a>() -> Columns<'a, &'static str> {
    column(
        "ended_by",
        "What ended the window: `length` (-d or --repetitions), `enough` (--until), `stop` (a request to stop, or a \
         limit), `threshold` (--on-threshold), or `migration`: the kernel moved the loop to another CPU.",
    )
    .shown_as("ended by", 35)
    .text(|ended_by: &&'static str| *ended_by)
}

/// The value of [`ended_by_column`].
fn ended_by(sample: &NoiseSample, cpu: &CpuNoise) -> &'static str {
    if cpu.left {
        "migration"
    } else if sample.had_enough {
        "enough"
    } else if sample.interrupted {
        "stop"
    } else if sample.ended_by_threshold {
        "threshold"
    } else {
        "length"
    }
}

/// Display hints of a table that shows every row.
pub(super) fn all_rows() -> TableDisplay {
    TableDisplay { rows_max: Some(ROWS_MAX), ..TableDisplay::default() }
}

/// A note of a table: how a simulated bench executes user mode. Live runs lack the setting, and do not show the note.
const USER_MODE_NOTE: &str = "user mode {settings.user_mode}";
/// When windows ended before their time, as a note of a table; runs whose windows last their time lack the setting.
const UNTIL_NOTE: &str = "windows may end early, at {settings.until} of the self times of interrupts, not of these \
                          columns (--until)";

/// Like [`UNTIL_NOTE`], for the loops `fwq` and `ftq`.
const QUANTA_UNTIL_NOTE: &str = "windows may end early, at {settings.until_of_quanta} (--until)";

/// Display hints of the tables `fwq` and `ftq`: all rows, with the note on user mode.
fn quanta_rows() -> TableDisplay {
    let notes = [USER_MODE_NOTE, QUANTA_UNTIL_NOTE].map(str::to_owned).to_vec();
    TableDisplay { notes, ..all_rows() }
}

/// Display hints of a table of single events. A terminal shows none of its rows: only pictures and programs use them.
pub(super) fn no_rows() -> TableDisplay {
    TableDisplay { rows_max: Some(0), ..TableDisplay::default() }
}

/// `part` as a share of `total`. `None` if the total is 0.
fn ratio(part: u64, total: u64) -> Option<f64> {
    (total > 0).then(|| part as f64 / total as f64)
}

/// `count` per second. `None` if `length_ns` is 0.
fn rate_hz(count: u64, length_ns: u64) -> Option<f64> {
    (length_ns > 0).then(|| count as f64 * 1e9 / length_ns as f64)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn display_hints_are_about_columns_that_exist() {
        let tables = [
            aftermath(&[]),
            causes(&[]),
            detours(&[]),
            ftq(&[]),
            fwq(&[]),
            injected(&[]),
            longest(&[]),
            longest_parts(&[]),
            lost_time(&[]),
            noise(&[]),
            periods(&[]),
            placement(&[]).0,
            repetitions(&[]),
            sizes(&[]),
            sizes_by_cause(&[]),
            slots(&[]),
            spectrum(&[]),
        ];
        for table in tables {
            assert_eq!(table.check_display(), Ok(()), "{}", table.name);
        }
    }
}
