//! Table `sampled_cycles`: cycles of contexts, estimated from the units that the core executed in detail, with
//! confidence intervals. A run with `--detail sampled` has it.

use record::{Columns, IntervalColumns, Table, TableDisplay, column};
use sim::{Accounting, SampledCycles};

use crate::REPETITIONS_COUNT;
use crate::regions::{by_region, region_column};

/// Returns the table; `None` unless the core executed only sampled units in detail.
#[must_use]
pub fn table(accounting: &Accounting) -> Option<Table> {
    if !accounting.is_sampled {
        return None;
    }
    /// The region, from 1, and the cycles of a context in it.
    type Row<'a> = (u32, &'a SampledCycles);
    let regions = accounting.sampled_cycles();
    let name_of = |sampled: &SampledCycles| {
        sampled.context.map_or_else(|| "all".to_owned(), |context| accounting.name_of(context))
    };
    let bounds = |sampled: &SampledCycles| {
        let (total, half_width) = (sampled.cycles.total, sampled.cycles.half_width?);
        Some(((total - half_width).max(0.0), total + half_width))
    };
    // The sum of all contexts has no entries.
    let entries = |sampled: &SampledCycles| sampled.context.map(|_| sampled.entries);
    let columns = Columns::all([
        region_column().of_ref(|(region, _): &Row<'_>| region),
        column("context", "What executed, with the name of the task; `all`: everything.")
            .priority(100)
            .key()
            .text(|(_, sampled): &Row<'_>| name_of(sampled)),
        column("self_cycles", "Cycles of the context itself, estimated from the sample.")
            .interval(IntervalColumns::bounds("self_cycles_low", "self_cycles_high"))
            .priority(99)
            .cost()
            .real(|(_, sampled): &Row<'_>| sampled.cycles.total),
        column("self_cycles_low", "Lower bound of the 95 % confidence interval.")
            .priority(70)
            .real(|(_, sampled): &Row<'_>| bounds(sampled).map(|(low, _)| low)),
        column("self_cycles_high", "Upper bound of the 95 % confidence interval.")
            .priority(70)
            .real(|(_, sampled): &Row<'_>| bounds(sampled).map(|(_, high)| high)),
        column(
            "interval_ratio",
            "Half the width of the interval over self_cycles; absent with too few units for \
             one.",
        )
        .shown_as("interval", 98)
        .real(|(_, sampled): &Row<'_>| sampled.relative()),
        column(
            "self_instructions",
            &format!("Instructions of the context itself, all counted. {REPETITIONS_COUNT}"),
        )
        .priority(90)
        .uint(|(_, sampled): &Row<'_>| sampled.instructions),
        column("cycles_per_entry", "self_cycles over the entries of the context.")
            .priority(80)
            .real(|(_, sampled): &Row<'_>| {
                entries(sampled)
                    .filter(|entries| *entries > 0)
                    .map(|entries| sampled.cycles.total / entries as f64)
            }),
        column("entry_count", "How often the context was entered.")
            .shown_as("entries", 75)
            .uint(|(_, sampled): &Row<'_>| entries(sampled)),
        column("unit_count", "Sampled units in which the context executed.")
            .shown_as("units", 85)
            .uint(|(_, sampled): &Row<'_>| sampled.units),
        column(
            "sampled_instructions",
            "Instructions of the context in the sampled units; counted as self_instructions are.",
        )
        .priority(40)
        .uint(|(_, sampled): &Row<'_>| sampled.sampled_instructions),
    ]);
    let doc = "Cycles by context, from units that the core executed in detail; instructions, \
             misses and mispredictions, by which all others are predicted, are counted.";
    let display = TableDisplay {
        headline: "{context}: {self_cycles}, within {interval_ratio}".to_owned(),
        sort_by: Some("self_cycles".to_owned()),
        ..by_region()
    };
    let rows = (1..)
        .zip(&regions)
        .flat_map(|(region, sampled)| sampled.iter().map(move |sampled| (region, sampled)));
    Some(columns.table("sampled_cycles", doc, rows).displayed(display))
}

/// Returns a warning if the intervals of the table do not describe other executions of the same command.
#[must_use]
pub fn warning(accounting: &Accounting) -> Option<String> {
    (accounting.is_sampled && accounting.cpus > 1).then(|| {
        "sampled_cycles: with several vCPUs, the intervals describe this execution only; estimated times order the vCPUs \
         differently from --detail ooo, whose cycles were in 86 % of the intervals, not in 95 %"
            .to_owned()
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_sample_of_several_vcpus_has_a_warning() {
        let warning_with = |cpus: u32, is_sampled: bool| {
            warning(&Accounting { cpus, is_sampled, ..Accounting::default() })
        };
        assert!(warning_with(2, true).is_some_and(|text| text.contains("this execution only")));
        assert_eq!((warning_with(1, true), warning_with(2, false)), (None, None));
    }

    #[test]
    fn display_hints_are_about_columns_that_exist() {
        let sampled = Accounting { is_sampled: true, ..Accounting::default() };
        let table_of_run = table(&sampled).unwrap();
        assert_eq!(table_of_run.check_display(), Ok(()));
        assert_eq!(crate::regions::key_names(&table_of_run), ["region", "context"]);
        assert!(table(&Accounting::default()).is_none());
    }
}
