//! Table `regions`: the scheme that keeps a bound of the latency with the least CPU use, by event rate and bound. The
//! report draws a picture from it. Measured runs (`fit.rs`), `signal model` and `signal advise` have this table.

use record::{Columns, Table, TableDisplay, column};
use signalling::{Region, Statistic};

fn columns<'a>(statistic: Statistic) -> Columns<'a, Region> {
    Columns::all([
        column("rate_hz", "Events per second.")
            .shown_as("rate", 100)
            .uint(|region: &Region| region.rate_hz),
        column("scheme", "The scheme that keeps the bound with the least CPU use.")
            .priority(99)
            .text(|region: &Region| region.scheme.to_string()),
        column(
            "bound_from_ns",
            "Smallest bound that the scheme keeps: its own latency. For a simulated latency, the upper end of its 95 % \
             interval.",
        )
        .title("bound")
        .up_to("bound_to_ns")
        .priority(98)
        .real(|region: &Region| region.from_ns),
        column(
            "bound_to_ns",
            "Bound at which another scheme starts to need less CPU; absent if there is none.",
        )
        .detail()
        .real(|region: &Region| region.to_ns),
        column("cpu_ratio", "CPU use of the scheme.")
            .shown_as("CPU", 97)
            .real(|region: &Region| region.cpu_ratio),
        column("statistic", "Statistic of the latency that the bound limits.")
            .priority(50)
            .text(move |_: &Region| statistic.label()),
        column("method", "How latency and CPU use were computed: closed-form, or simulation.")
            .priority(60)
            .text(|region: &Region| region.method.label()),
    ])
}

/// Table `regions`. `statistic` is the statistic of the latency that the bound limits. The terminal shows no rows:
/// people look at the picture, and programs read the rows.
#[must_use]
pub fn region_table(regions: &[Region], statistic: Statistic) -> Table {
    let doc = "By event rate and bound of the latency: the scheme that keeps the bound with the \
               least CPU use, by the model.";
    let display = TableDisplay {
        title: "the cheapest scheme by rate and bound".to_owned(),
        rows_max: Some(0),
        ..TableDisplay::default()
    };
    columns(statistic).table("regions", doc, regions).displayed(display)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_table_can_be_shown() {
        assert_eq!(region_table(&[], Statistic::Mean).check_display(), Ok(()));
    }
}
