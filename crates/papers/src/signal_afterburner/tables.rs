//! The paper's figures and the measured ones, row by row.

use lab::signal::{RoundTripWindow, Samples};
use record::{Column, Format, Kind, Table, TableDisplay, Value};

use super::measured::{Measured, max, mean, min};
use super::published::Published;

fn column(name: &str, kind: Kind, doc: &str) -> Column {
    Column::new(name, kind, doc)
}

fn throughput_columns() -> Vec<Column> {
    use Kind::{Real, Text, Uint};
    let ratio = |name: &str, doc: &str| column(name, Real, doc).format(Format::Factor);
    vec![
        column("table", Uint, "Number of the paper's table.").format(Format::Identifier),
        column("title", Text, "What the paper measured.").priority(10),
        column("load", Text, "What else runs on the receiving CPU.").priority(95),
        column("socket_buffer_bytes", Uint, "Size of the socket buffers.")
            .title("socket buffer")
            .priority(99),
        column("paper_scheme", Text, "The paper's name of the scheme.")
            .title("paper's")
            .priority(100),
        column("scheme", Text, "The scheme that was measured.").priority(80),
        column("published_mbit_per_s", Real, "The paper's figure, Mbit/s.")
            .title("paper Mbit/s")
            .priority(97),
        column("measured_mbit_per_s", Real, "Measured here, Mbit/s; absent if not measured.")
            .title("here Mbit/s")
            .plus_minus("measured_ci95_mbit_per_s")
            .priority(98),
        column(
            "measured_ci95_mbit_per_s",
            Real,
            "Half width of the 95 % confidence interval of measured_mbit_per_s over the \
             repetitions.",
        )
        .detail(),
        ratio(
            "published_to_interrupt_ratio",
            "The paper's figure over its figure with interrupts.",
        )
        .title("paper / interrupt")
        .priority(96),
        ratio(
            "measured_to_interrupt_ratio",
            "The measured figure over the measured figure with interrupts.",
        )
        .title("here / interrupt")
        .priority(96),
    ]
}

/// The rows of Tables 1 to 3 next to measured figures.
#[must_use]
pub fn throughput(paper: &Published, samples: &Samples) -> Table {
    let doc = "TCP throughput by scheme and size of the socket buffers, published and measured.";
    let display = TableDisplay {
        title: "Tables 1 to 3 of the paper".to_owned(),
        group_by: vec!["table".to_owned()],
        ..TableDisplay::default()
    };
    let mut table = Table::new("paper", doc, throughput_columns()).displayed(display);
    let measured = Measured { samples };
    for published in &paper.tables {
        for (bytes, figures) in &published.rows {
            let measured_rate = |scheme| measured.mbit_per_s(published.load, scheme, *bytes).ok();
            let interrupt = measured_rate(published.schemes[0].1);
            for ((name, scheme), figure) in published.schemes.iter().zip(figures) {
                let found = measured_rate(*scheme);
                let ratio =
                    found.zip(interrupt).map(|(found, interrupt)| found.mean / interrupt.mean);
                table.push(vec![
                    u64::from(published.number).into(),
                    published.title.as_str().into(),
                    published.load.word().into(),
                    (*bytes).into(),
                    name.as_str().into(),
                    scheme.to_string().into(),
                    (*figure).into(),
                    found.map(|figure| figure.mean).into(),
                    found.map(|figure| figure.half_width).into(),
                    (figure / figures[0]).into(),
                    ratio.into(),
                ]);
            }
        }
    }
    table
}

fn round_trip_columns() -> Vec<Column> {
    let mut columns = vec![
        column("scheme", Kind::Text, "The scheme.").priority(100),
        column("bulk", Kind::Bool, "Whether a bulk transfer ran in the meantime.").priority(99),
    ];
    for (prefix, title, doc) in
        [("published", "paper", "published"), ("measured", "here", "measured, load idle")]
    {
        for word in ["min", "mean", "max"] {
            let doc = format!("The {word} of the round trips, {doc}.");
            columns.push(
                column(&format!("{prefix}_{word}_ns"), Kind::Real, &doc)
                    .title(&format!("{title} {word}"))
                    .format(Format::Milliseconds),
            );
        }
    }
    columns
}

/// The round trips of section 8.3 next to measured figures.
#[must_use]
pub fn round_trips(paper: &Published, samples: &Samples) -> Table {
    let doc = "Round trips of ICMP echo with 4 KB, published and measured.";
    let mut table = Table::new("paper_round_trips", doc, round_trip_columns());
    let measured = Measured { samples };
    for published in &paper.round_trips {
        let figures: [fn(&RoundTripWindow) -> Option<f64>; 3] = [min, mean, max];
        let measured_figures = figures
            .map(|figure| measured.round_trip_ns(published.scheme, published.bulk, figure).ok());
        let mut row: Vec<Value> = vec![published.scheme.to_string().into(), published.bulk.into()];
        row.extend(published.ns.map(Value::from));
        row.extend(measured_figures.map(|figure| Value::from(figure.map(|figure| figure.mean))));
        table.push(row);
    }
    table
}
