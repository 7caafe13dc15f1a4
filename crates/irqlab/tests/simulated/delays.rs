//! `irqlab handlers --delays`: from raise or queueing to run. Without QEMU the tests say so and pass.

use std::collections::BTreeMap;

use crate::support::{Place, can_simulate};

/// The rows of one table in CSV: the columns by name.
pub(crate) type Rows = Vec<BTreeMap<String, String>>;

/// The rows of the table whose header has the column `column`.
pub(crate) fn rows_with(csv: &str, column: &str) -> Rows {
    let fields = |line: &str| line.trim().split(',').map(str::to_owned).collect::<Vec<_>>();
    let has_column = |header: &[String]| header.iter().any(|name| name == column);
    let mut lines = csv.lines().map(fields).skip_while(|row| !has_column(row));
    let header = lines.next().unwrap_or_else(|| panic!("no column {column}: {csv}"));
    let rows = lines.take_while(|row| row.len() == header.len());
    rows.map(|row| header.iter().cloned().zip(row).collect()).collect()
}

pub(crate) fn number(columns: &BTreeMap<String, String>, name: &str) -> u64 {
    columns[name].parse().unwrap_or_else(|error| panic!("{name}: {error}: {columns:?}"))
}

/// The guest does the same with the option: all rows of table `handlers` stay as they are. Each run of a softirq has a
/// delay, except for those that were raised before the window opened.
#[test]
fn each_run_of_a_softirq_has_a_delay_and_nothing_else_changes() {
    let workspace = Place::new();
    if !can_simulate(&workspace) {
        return;
    }
    let run = |options: &[&str], table: &str| {
        let line = "handlers --on sim -q --load idle --rate high --stimulus disk -d 100ms \
                    --disk virtio-blk,latency=100us --format csv --table";
        let words = line.split_whitespace().chain([table]).chain(options.iter().copied());
        let run = workspace.run(&words.collect::<Vec<_>>());
        run.assert_code(0);
        run.out
    };
    let (with, without) = (run(&["--delays"], "handlers"), run(&[], "handlers"));
    assert_eq!(rows_with(&with, "self_mean_ns"), rows_with(&without, "self_mean_ns"));
    let delays = rows_with(&run(&["--delays"], "delays"), "delay_mean_ns");
    let handlers = rows_with(&with, "self_mean_ns");
    let is_sum = |row: &&BTreeMap<String, String>| row["cpu"] == "all";
    let softirqs = || handlers.iter().filter(is_sum).filter(|row| row["kind"] == "softirq");
    assert!(softirqs().count() > 1, "{handlers:?}");
    for softirq in softirqs() {
        let same = |row: &&BTreeMap<String, String>| {
            row["kind"] == "softirq" && row["name"] == softirq["name"]
        };
        let row = delays.iter().filter(is_sum).find(same);
        let row = row.unwrap_or_else(|| panic!("no delays of {}", softirq["name"]));
        // A span that is open at an edge of the window counts in one of the tables only.
        let (joined, unjoined) = (number(row, "count"), number(row, "unjoined_end_count"));
        let spans = number(softirq, "count");
        assert!((joined + unjoined).abs_diff(spans) <= 1, "{row:?}, {spans} spans");
        assert!(unjoined <= 1, "only a softirq raised before the window is not joined: {row:?}");
        assert_eq!(number(row, "unjoined_begin_count"), 0);
        assert!(number(row, "delay_p50_ns") <= number(row, "delay_max_ns"));
    }
    // A softirq that an interrupt raises runs at the end of that interrupt.
    let block = delays.iter().filter(is_sum).find(|row| row["name"] == "BLOCK");
    if let Some(block) = block {
        assert!(number(block, "delay_p50_ns") < 100_000, "{block:?}");
    }
    let work = delays.iter().filter(is_sum).find(|row| row["kind"] == "work").expect("work items");
    assert!(number(work, "count") > 0 && number(work, "unjoined_end_count") <= 5, "{work:?}");
}
