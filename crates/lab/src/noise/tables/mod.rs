//! The tables of the experiment, from the samples.

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
pub(super) use longest::{longest, longest_parts};
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
use super::sample::{ContextName, CpuNoise, LoopResult, NoiseSample};
use super::split::Part;

/// A detour loop, and the window in which it ran.
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
}

/// The detour loops of the samples: only the traced loops, or all loops if none was traced.
fn detour_loops(samples: &[NoiseSample]) -> Vec<DetourLoop<'_>> {
    let is_traced = |detour_loop: &DetourLoop<'_>| detour_loop.sample.traced.is_some();
    let traced: Vec<_> = DetourLoop::all(samples).filter(is_traced).collect();
    if traced.is_empty() { DetourLoop::all(samples).collect() } else { traced }
}

/// Kind and name of the cause of a part of a detour.
fn kind_and_name(part: Part, names: &[ContextName]) -> Option<(&str, String)> {
    let fixed = |kind: &'static str, name: &str| Some((kind, name.to_owned()));
    match part {
        Part::Context(number) => match names.get(number as usize) {
            Some(ContextName::Context(context)) => {
                let name = match context.kind {
                    attribution::ContextKind::HardIrq => {
                        format!("{} {}", context.number, context.name)
                    }
                    _ => context.name.clone(),
                };
                Some((context.kind.label(), name))
            }
            Some(ContextName::Task(name)) => fixed("task", name),
            Some(ContextName::Other(kind, name)) => Some((kind, name.clone())),
            None => None,
        },
        Part::Fault => fixed("exception", "page fault of the loop"),
        Part::Entry => fixed("entry/exit", "kernel entry"),
        Part::Exit => fixed("entry/exit", "kernel exit"),
        Part::NoEvent => fixed("unattributed", "no kernel event"),
        Part::Late => fixed("unattributed", "before the first event"),
        Part::Between => fixed("remainder", "between two events"),
        Part::Tail => fixed("remainder", "after the last event"),
        Part::Own => fixed("indirect", "the loop itself"),
        Part::Unknown => fixed("remainder", "unknown"),
    }
}

fn cpu_column<'a>(priority: u8) -> Columns<'a, u32> {
    column("cpu", "CPU that the loop ran on.").priority(priority).key().uint(|cpu: &u32| *cpu)
}

/// What ended the window of a loop on a CPU.
fn ended_by_column<'a>() -> Columns<'a, &'static str> {
    column(
        "ended_by",
        "What ended the window: `length` (-d or --repetitions), `enough` (--until), `stop` (a request to stop, or a \
         limit), or `migration`: the kernel moved the loop to another CPU.",
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
    } else {
        "length"
    }
}

/// Display hints of a table that shows every row.
pub(super) fn all_rows() -> TableDisplay {
    TableDisplay { rows_max: Some(ROWS_MAX), ..TableDisplay::default() }
}

/// How a simulated bench executes user mode, as a note of a table; live runs lack the setting.
const USER_MODE_NOTE: &str = "user mode {settings.user_mode}";

/// Display hints of a table of the loops of quanta: all rows.
fn quanta_rows() -> TableDisplay {
    TableDisplay { notes: vec![USER_MODE_NOTE.to_owned()], ..all_rows() }
}

/// Display hints of a table of single events that shows no rows: only figures and programs use it.
fn no_rows() -> TableDisplay {
    TableDisplay { rows_max: Some(0), ..TableDisplay::default() }
}

fn ratio(part: u64, whole: u64) -> Option<f64> {
    (whole > 0).then(|| part as f64 / whole as f64)
}

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
