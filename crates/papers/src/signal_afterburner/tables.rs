//! The figures of `signal-afterburner` and the measured figures, row by row. Users' programs read the
//! columns: names and order must not change.

use lab::signal::Samples;
use record::{Columns, Format, Table, TableDisplay, column};
use signalling::Scheme;

use super::measured::{Measured, RoundTrips};
use super::published::{Paper, PublishedRoundTrip, PublishedTable};
use crate::judge::{Figure, figure_columns};

/// A figure of a published table.
struct Throughput<'s> {
    table: &'s PublishedTable,
    socket_buffer_bytes: u64,
    /// The paper's name of the scheme, and the scheme that was measured.
    paper_scheme: &'s str,
    scheme: Scheme,
    published: f64,
    /// The paper's figure for interrupts with the same socket buffers. The first column of each table has it.
    published_interrupt: f64,
    measured: Option<Figure>,
    measured_interrupt: Option<Figure>,
}

/// The columns that compare each throughput of the paper with the one measured here.
fn throughput_columns<'s>() -> Columns<'s, Throughput<'s>> {
    type Row<'s> = Throughput<'s>;
    let ratio = |name: &str, doc: &str| column(name, doc).format(Format::Factor).priority(96);
    let measured_doc = "Measured here, Mbit/s; absent if not measured.";
    Columns::all([
        column("table", "Number of the paper's table.")
            .format(Format::Identifier)
            .uint(|row: &Row<'_>| row.table.number),
        column("title", "What the paper measured.")
            .priority(10)
            .text(|row: &Row<'_>| row.table.title.clone()),
        column("load", "What else runs on the receiving CPU.")
            .priority(95)
            .text(|row: &Row<'_>| row.table.load.word()),
        column("socket_buffer_bytes", "Size of the socket buffers.")
            .title("socket buffer")
            .priority(99)
            .uint(|row: &Row<'_>| row.socket_buffer_bytes),
        column("paper_scheme", "The paper's name of the scheme.")
            .title("paper's")
            .priority(100)
            .text(|row: &Row<'_>| row.paper_scheme.to_owned()),
        column("scheme", "The scheme that was measured.")
            .priority(80)
            .text(|row: &Row<'_>| row.scheme.to_string()),
        column("published_mbit_per_s", "The paper's figure, Mbit/s.")
            .title("paper Mbit/s")
            .priority(97)
            .real(|row: &Row<'_>| row.published),
        figure_columns(
            column("measured_mbit_per_s", measured_doc).title("here Mbit/s").priority(98),
            "measured_ci95_mbit_per_s",
            " over the repetitions",
        )
        .of(|row: &Row<'_>| row.measured),
        ratio(
            "published_to_interrupt_ratio",
            "The paper's figure over its figure with interrupts.",
        )
        .title("paper / interrupt")
        .real(|row: &Row<'_>| row.published / row.published_interrupt),
        ratio(
            "measured_to_interrupt_ratio",
            "The measured figure over the measured figure with interrupts.",
        )
        .title("here / interrupt")
        .real(|row: &Row<'_>| Some(row.measured?.mean / row.measured_interrupt?.mean)),
    ])
}

/// The rows of Tables 1 to 3 next to measured figures.
#[must_use]
pub fn throughput(paper: &Paper, samples: &Samples) -> Table {
    let measured = Measured { samples };
    let mut rows = Vec::new();
    for table in &paper.tables {
        for (bytes, figures) in &table.rows {
            let mean = |scheme| measured.mbit_per_s(table.load, scheme, *bytes).ok();
            let [(_, interrupt_scheme), ..] = &table.schemes[..] else { continue };
            let cells = table.schemes.iter().zip(figures);
            rows.extend(cells.map(|((paper_scheme, scheme), figure)| Throughput {
                table,
                socket_buffer_bytes: *bytes,
                paper_scheme,
                scheme: *scheme,
                published: *figure,
                published_interrupt: figures[0],
                measured: mean(*scheme),
                measured_interrupt: mean(*interrupt_scheme),
            }));
        }
    }
    let doc = "TCP throughput by scheme and size of the socket buffers, published and measured.";
    throughput_columns().table("paper", doc, rows).displayed(TableDisplay {
        title: "Tables 1 to 3 of the paper".to_owned(),
        group_by: vec!["table".to_owned()],
        ..TableDisplay::default()
    })
}

/// A statistic of the round trips.
struct Statistic {
    /// The word in the columns' names.
    word: &'static str,
    /// The end of the description of the measured column.
    source: &'static str,
    measured_ns: fn(&RoundTrips<'_>) -> Option<f64>,
}

/// The statistics in the order of the paper's figures. Minimum and maximum are those of all repetitions together, as in
/// the paper and in the table `round_trips`: their means would be nearer to the mean.
const STATISTICS: [Statistic; 3] = [
    Statistic {
        word: "min",
        source: "measured, load idle: the lower end of the bucket of the shortest, exact within 1/16",
        measured_ns: |round_trips| round_trips.min_ns(),
    },
    Statistic {
        word: "mean",
        source: "measured, load idle: mean of the repetitions that answer the requests; absent if at least half of them do \
                 not",
        measured_ns: |round_trips| Some(round_trips.mean_ns().ok()?.mean),
    },
    Statistic {
        word: "max",
        source: "measured, load idle: the longest of all repetitions that answer the requests; absent if at least half of \
                 them do not",
        measured_ns: |round_trips| round_trips.max_ns(),
    },
];

/// The round trips of section 8.3 next to measured figures.
#[must_use]
pub fn round_trips(paper: &Paper, samples: &Samples) -> Table {
    type Row = PublishedRoundTrip;
    let measured = Measured { samples };
    let statistics = || STATISTICS.iter().enumerate();
    let time_column = |statistic: &str, prefix: &str, title: &str, source: &str| {
        let doc = format!("The {statistic} of the round trips, {source}.");
        column(&format!("{prefix}_{statistic}_ns"), &doc)
            .title(&format!("{title} {statistic}"))
            .format(Format::Milliseconds)
    };
    let keys = [
        column("scheme", "The scheme.").priority(100).text(|row: &Row| row.scheme.to_string()),
        column("bulk", "Whether a bulk transfer ran in the meantime.")
            .priority(99)
            .bool(|row: &Row| row.bulk),
    ];
    let published = statistics().map(|(position, statistic)| {
        time_column(statistic.word, "published", "paper", "published")
            .real(move |row: &Row| row.ns[position])
    });
    let here = statistics().map(|(_, statistic)| {
        time_column(statistic.word, "measured", "here", statistic.source).real(move |row: &Row| {
            (statistic.measured_ns)(&measured.round_trips(row.scheme, row.bulk))
        })
    });
    let doc = "Round trips of ICMP echo with 4 KB, published and measured.";
    Columns::all(keys).and(published).and(here).table("paper_round_trips", doc, &paper.round_trips)
}
