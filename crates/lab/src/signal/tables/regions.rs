//! Table `regions`: the scheme that keeps a bound of the latency with the least CPU use, by event rate.

use record::{Column, Kind, Table, TableDisplay};
use signalling::{Region, Statistic};

use super::columns::column;

fn columns() -> Vec<Column> {
    vec![
        column("rate_hz", Kind::Uint, "Events per second.").shown_as("rate", 100),
        column("scheme", Kind::Text, "The scheme that keeps the bound with the least CPU use.")
            .priority(99),
        column(
            "bound_from_ns",
            Kind::Real,
            "Smallest bound that the scheme keeps: its own latency.",
        )
        .title("bound")
        .up_to("bound_to_ns")
        .priority(98),
        column(
            "bound_to_ns",
            Kind::Real,
            "Bound at which another scheme starts to need less CPU; absent if there is none.",
        )
        .detail(),
        column("cpu_ratio", Kind::Real, "CPU use of the scheme.").shown_as("CPU", 97),
        column("statistic", Kind::Text, "Statistic of the latency that the bound limits.")
            .priority(50),
        column(
            "method",
            Kind::Text,
            "How latency and CPU use were computed: closed-form, or simulation.",
        )
        .priority(60),
    ]
}

/// The table of regions. `statistic` is the statistic of the latency that the bound limits. The terminal shows no
/// rows: people read the figure, programs read the rows.
#[must_use]
pub fn region_table(regions: &[Region], statistic: Statistic) -> Table {
    let doc = "By event rate and bound of the latency: the scheme that keeps the bound with the \
               least CPU use, by the model.";
    let display = TableDisplay {
        title: "the cheapest scheme by rate and bound".to_owned(),
        rows_max: Some(0),
        ..TableDisplay::default()
    };
    let mut table = Table::new("regions", doc, columns()).displayed(display);
    for region in regions {
        table.push(vec![
            region.rate_hz.into(),
            region.scheme.to_string().into(),
            region.from_ns.into(),
            region.to_ns.into(),
            region.cpu_ratio.into(),
            statistic.label().into(),
            region.method.label().into(),
        ]);
    }
    table
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_table_can_be_shown() {
        assert_eq!(region_table(&[], Statistic::Mean).check_display(), Ok(()));
    }
}
