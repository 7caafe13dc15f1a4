//! Table `sampled_cycles`: cycles of contexts from sampled units, with their intervals.

use record::{Column, Kind, Table, TableDisplay, Value};
use serde_json::{Value as Json, json};
use sim::Accounting;
use sim::watch::Sampling;

use super::by_region::by_region;

/// The table; none unless the core executed sampled units only.
pub fn table(account: &Accounting) -> Option<Table> {
    if !account.is_sampled {
        return None;
    }
    let columns = vec![
        Column::new("region", Kind::Uint, "Region of interest, from 1."),
        Column::new(
            "context",
            Kind::Text,
            "What executed, with the name of the task; `all`: everything.",
        )
        .priority(100),
        Column::new(
            "self_cycles",
            Kind::Real,
            "Cycles of the context itself, estimated from the sample.",
        )
        .priority(99),
        Column::new("self_cycles_low", Kind::Real, "Lower bound of the 95 % confidence interval.")
            .priority(70),
        Column::new("self_cycles_high", Kind::Real, "Upper bound of the 95 % confidence interval.")
            .priority(70),
        Column::new(
            "interval_ratio",
            Kind::Real,
            "Half the width of the interval over self_cycles; absent with too few units for one.",
        )
        .title("interval")
        .priority(98),
        Column::new(
            "self_instructions",
            Kind::Uint,
            "Instructions of the context itself, all counted.",
        )
        .priority(90),
        Column::new("cycles_per_entry", Kind::Real, "self_cycles over the entries of the context.")
            .priority(80),
        Column::new("entry_count", Kind::Uint, "How often the context was entered.")
            .title("entries")
            .priority(75),
        Column::new("unit_count", Kind::Uint, "Sampled units in which the context executed.")
            .title("units")
            .priority(85),
        Column::new("sampled_instructions", Kind::Uint, "Instructions of the context in them.")
            .priority(40),
    ];
    let doc = "Cycles by context, from units that the core executed in detail; instructions, misses and \
               mispredictions, by which all others are predicted, are counted.";
    let display = TableDisplay {
        headline: "{context}: {self_cycles}, within {interval_ratio}".to_owned(),
        sort_by: Some("self_cycles".to_owned()),
        ..by_region()
    };
    let mut table = Table::new("sampled_cycles", doc, columns).displayed(display);
    for (region, rows) in account.sampled_cycles().iter().enumerate() {
        for row in rows {
            let (total, half_width) = (row.cycles.total, row.cycles.half_width);
            let name =
                row.context.map_or_else(|| "all".to_owned(), |context| account.name_of(context));
            let entries = row.context.map(|_| row.entries);
            let per_entry = entries.filter(|entries| *entries > 0);
            let values: Vec<Value> = vec![
                (region as u64 + 1).into(),
                name.into(),
                total.into(),
                half_width.map(|half| (total - half).max(0.0)).into(),
                half_width.map(|half| total + half).into(),
                row.relative().into(),
                row.instructions.into(),
                per_entry.map(|entries| total / entries as f64).into(),
                entries.into(),
                row.units.into(),
                row.sampled_instructions.into(),
            ];
            table.push(values);
        }
    }
    Some(table)
}

/// How the sample was taken, for the settings of a run.
pub fn setting(sampling: Option<Sampling>) -> Option<(String, Json)> {
    let Sampling { period, warming, unit, seed } = sampling?;
    let setting = json!({
        "period_instructions": period,
        "warming_instructions": warming,
        "unit_instructions": unit,
        "seed": seed,
    });
    Some(("sampling".to_owned(), setting))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn display_hints_are_about_columns_that_exist() {
        let sampled = Accounting { is_sampled: true, ..Accounting::default() };
        assert_eq!(table(&sampled).unwrap().check_display(), Ok(()));
        assert!(table(&Accounting::default()).is_none());
    }
}
