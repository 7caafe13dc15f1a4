//! Table `throughput`: TCP throughput by the size of the socket buffers (Tables 1 to 3 of the paper).

use record::{Column, Kind, Table, Value};

use super::super::plan::Plan;
use super::super::sample::TransferWindow;
use super::THROUGHPUT;
use super::columns::{
    Values, activity_columns, activity_values, ci95, column, grouped, grouped_by_load, key_columns,
    over_repetitions, per_second,
};

fn columns() -> Vec<Column> {
    let mut columns = key_columns();
    columns.extend([
        column(
            "socket_buffer_bytes",
            Kind::Uint,
            "Size that SO_SNDBUF and SO_RCVBUF requested at both ends. Linux reserves twice this \
             size, and has its own minimum.",
        )
        .shown_as("socket buffer", 98)
        .key(),
        column("repetitions", Kind::Uint, "Windows that were measured.").detail(),
        column("throughput_bytes_per_second", Kind::Real, "Bytes received per second.")
            .title("throughput")
            .interval(over_repetitions("throughput_ci95_bytes_per_second"))
            .plus_minus("throughput_ci95_bytes_per_second")
            .priority(97)
            .benefit(),
        ci95("throughput_ci95_bytes_per_second", "throughput_bytes_per_second"),
    ]);
    columns.extend(activity_columns());
    columns
}

/// One row for each load, scheme and size.
pub(super) fn throughput(plan: &Plan, windows: &[TransferWindow]) -> Table {
    let doc = "TCP throughput by the size of the socket buffers, messages of 32 KiB.";
    let notes = vec!["Each window is a connection of its own.".to_owned()];
    let mut table =
        Table::new(THROUGHPUT, doc, columns()).displayed(grouped_by_load("Throughput", notes));
    let key = |window: &TransferWindow| {
        let scheme = plan.schemes.iter().position(|scheme| *scheme == window.point.scheme);
        (window.point.load, window.point.socket_buffer_bytes, scheme)
    };
    for ((load, bytes, _), windows) in grouped(windows, key) {
        let rate =
            Values::from_windows(&windows, |window| per_second(window.bytes, &window.activity));
        let mut row: Vec<Value> = vec![
            load.word().into(),
            windows[0].point.scheme.to_string().into(),
            bytes.into(),
            (windows.len() as u64).into(),
            rate.mean().into(),
            rate.half_width().into(),
        ];
        row.extend(activity_values(&windows, load, |window| &window.activity));
        table.push(row);
    }
    table
}
