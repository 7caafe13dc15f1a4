//! Table `throughput`: TCP throughput by the size of the socket buffers (Tables 1 to 3 of the paper). Names and order
//! of the columns are public.

use record::{Columns, Table, column};

use super::super::plan::Plan;
use super::super::sample::{Load, TransferWindow};
use super::THROUGHPUT;
use super::columns::{
    Activities, Values, activity_columns, ci95, grouped, grouped_by_load, key_columns,
    over_repetitions, per_second,
};

/// A row: all windows with one load, scheme and size of the socket buffers.
struct Row<'w> {
    load: Load,
    socket_buffer_bytes: u64,
    windows: Vec<&'w TransferWindow>,
}

impl Row<'_> {
    /// Bytes received per second in each window.
    fn throughput(&self) -> Values {
        Values::from_windows(&self.windows, |window| per_second(window.bytes, &window.activity))
    }
}

fn columns<'a>() -> Columns<'a, Row<'a>> {
    Columns::all([
        key_columns().of(|row: &Row<'_>| (row.load, row.windows[0].point.scheme)),
        column(
            "socket_buffer_bytes",
            "Size that SO_SNDBUF and SO_RCVBUF requested at both ends. Linux reserves twice this \
             size, and has its own minimum.",
        )
        .shown_as("socket buffer", 98)
        .key()
        .uint(|row: &Row<'_>| row.socket_buffer_bytes),
        column("repetitions", "Number of measured windows.")
            .detail()
            .uint(|row: &Row<'_>| row.windows.len()),
        column("throughput_bytes_per_second", "Bytes received per second.")
            .title("throughput")
            .interval(over_repetitions("throughput_ci95_bytes_per_second"))
            .plus_minus("throughput_ci95_bytes_per_second")
            .priority(97)
            .benefit()
            .real(|row: &Row<'_>| row.throughput().mean()),
        ci95("throughput_ci95_bytes_per_second", "throughput_bytes_per_second")
            .real(|row: &Row<'_>| row.throughput().half_width()),
        activity_columns().of(|row: &Row<'_>| Activities {
            load: row.load,
            windows: row.windows.iter().map(|window| &window.activity).collect(),
        }),
    ])
}

/// Table `throughput`: one row for each load, size of the socket buffers, and scheme.
pub(super) fn throughput(plan: &Plan, windows: &[TransferWindow]) -> Table {
    let doc = "TCP throughput by the size of the socket buffers, messages of 32 KiB.";
    let notes = vec!["Each window is a connection of its own.".to_owned()];
    let key = |window: &TransferWindow| {
        // Sorts schemes as in the plan.
        let scheme = plan.schemes.iter().position(|scheme| *scheme == window.point.scheme);
        (window.point.load, window.point.socket_buffer_bytes, scheme)
    };
    let rows =
        grouped(windows, key).into_iter().map(|((load, socket_buffer_bytes, _), windows)| Row {
            load,
            socket_buffer_bytes,
            windows,
        });
    columns().table(THROUGHPUT, doc, rows).displayed(grouped_by_load("Throughput", notes))
}
