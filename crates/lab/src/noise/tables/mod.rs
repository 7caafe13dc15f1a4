//! The tables of the experiment, from the samples.

mod aftermath;
mod causes;
mod injected;
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
pub(super) use noise::{noise, sizes};
pub(super) use periods::periods;
pub(super) use placement::placement;
pub(super) use quanta::{ftq, fwq};
pub(super) use single::{detours, repetitions, slots};
pub(super) use spectrum::spectrum;
pub(super) use tick::tick;

use record::limits::ROWS_MAX;
use record::{Column, Kind, TableDisplay, Value};

use super::ledger::GapLedger;
use super::sample::{ContextName, CpuNoise, LoopResult, NoiseSample};
use super::split::Part;

/// The detour loops of the samples: only the traced loops, or all loops if none was traced.
fn ledgers<'a>(samples: &'a [NoiseSample]) -> Vec<(&'a NoiseSample, &'a CpuNoise, &'a GapLedger)> {
    let all = || {
        samples.iter().flat_map(|sample| {
            let gaps = move |cpu: &'a CpuNoise| match &cpu.result {
                LoopResult::Gaps(ledger) => Some((sample, cpu, &**ledger)),
                LoopResult::Quanta(_) | LoopResult::Slots(_) => None,
            };
            sample.cpus.iter().filter_map(gaps)
        })
    };
    let traced: Vec<_> = all().filter(|(sample, _, _)| sample.traced.is_some()).collect();
    if traced.is_empty() { all().collect() } else { traced }
}

/// Kind and name of the cause of a part of a detour.
fn kind_and_name(part: Part, names: &[ContextName]) -> [Value; 2] {
    let fixed = |kind: &str, name: &str| [kind.into(), name.into()];
    match part {
        Part::Context(number) => match names.get(number as usize) {
            Some(ContextName::Context(context)) => {
                let name = match context.kind {
                    attribution::ContextKind::HardIrq => {
                        format!("{} {}", context.number, context.name)
                    }
                    _ => context.name.clone(),
                };
                [context.kind.label().into(), name.into()]
            }
            Some(ContextName::Task(name)) => fixed("task", name),
            Some(ContextName::Other(kind, name)) => fixed(kind, name),
            None => [Value::Absent, Value::Absent],
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

fn kind_and_name_or_absent(part: Option<Part>, names: &[ContextName]) -> [Value; 2] {
    part.map_or([Value::Absent, Value::Absent], |part| kind_and_name(part, names))
}

pub(super) fn column(name: &str, kind: Kind, doc: &str) -> Column {
    Column::new(name, kind, doc)
}

fn cpu_column() -> Column {
    column("cpu", Kind::Uint, "CPU that the loop ran on.").priority(100).key()
}

/// Display hints of a table that shows every row.
pub(super) fn all_rows() -> TableDisplay {
    TableDisplay { rows_max: Some(ROWS_MAX), ..TableDisplay::default() }
}

/// Display hints of a table of single events that shows no rows: only figures and programs use it.
fn no_rows() -> TableDisplay {
    TableDisplay { rows_max: Some(0), ..TableDisplay::default() }
}

fn ratio(part: u64, whole: u64) -> Value {
    (whole > 0).then(|| part as f64 / whole as f64).into()
}

fn rate_hz(count: u64, length_ns: u64) -> Value {
    (length_ns > 0).then(|| count as f64 * 1e9 / length_ns as f64).into()
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
            noise(&[]),
            periods(&[]),
            placement(&[]).0,
            repetitions(&[]),
            sizes(&[]),
            slots(&[]),
            spectrum(&[]),
        ];
        for table in tables {
            assert_eq!(table.check_display(), Ok(()), "{}", table.name);
        }
    }
}
