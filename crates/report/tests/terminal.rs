//! What people see on terminals of several widths.

mod common;

use proptest::prelude::*;
use record::{Column, Kind, Table, Value};
use report::{TerminalOptions, terminal};
use unicode_width::UnicodeWidthStr;

fn at_width(width: u16) -> TerminalOptions {
    TerminalOptions { width: Some(width), ..TerminalOptions::default() }
}

#[test]
fn handlers_at_80_columns() {
    let expected = "\
handlers on live, 2026-11-21T07:50:41Z
host: Some CPU (family 26, model 2); CPUs 0-1 online; guest of KVM; Linux 6.12
x86_64; 250 Hz tick; no PMU

warning: the machine is virtual: the host can take its CPUs away

handlers: what each source of interrupts cost; times are self times, without
what was nested inside
condition idle/low/disk
kind     source                count     mean ± ci95      p99      max    share
irq      36 virtio1-req.0      6,000  1.28 ± 0.03 µs  2.56 µs  14.2 µs  0.013 %
vector   LOC                  15,011     920 ± 18 ns  1.84 µs  3.40 ms  0.023 %

condition idle/high/disk
kind     source                count     mean ± ci95      p99      max    share
irq      36 virtio1-req.0  1,234,567  1.19 ± 0.02 µs  2.38 µs  28.0 µs   2.45 %
softirq  BLOCK             1,234,560  2.35 ± 0.05 µs  4.69 µs  99.1 µs   4.83 %
method: live bench; tp_btf probes at entry and exit; CPUs 0-1; CLOCK_MONOTONIC;
± half of the mean's 95 % interval over N = count spans, by batch means;
85.0 ns, or what it is in place, subtracted from each span for the probes;
quantiles within 6.25 %, max and total exact
not shown: rate, p50, p90, p99.9, total, incl mean; 1 row per CPU; see
irqlab show RUN handlers --format csv

observer: 212 ns added per span; 85.0 ns per span inside the measured time;
1,255,578 events; 20.9 k/s; 0.440 % of CPU time; no events lost

not measured
  handlers: self_mean_cycles, instructions: no PMU in this machine
  handlers: net: may not make a veth pair
    sudo setcap cap_net_admin+ep irqlab
";
    let run = common::run(vec![common::handlers()]);
    assert_eq!(terminal(&run, at_width(80)), expected);
}

/// The line of headings at that width.
fn headings(table: Table, options: TerminalOptions) -> String {
    let text = terminal(&common::run(vec![table]), options);
    let title = text.lines().position(|line| line.starts_with("condition idle/low/disk")).unwrap();
    let line = text.lines().nth(title + 1).unwrap();
    line.split_whitespace().collect::<Vec<_>>().join(" ")
}

#[test]
fn columns_go_by_value_and_come_with_width() {
    for (width, expected) in [
        (60, "kind source mean ± ci95 p99 max"),
        (80, "kind source count mean ± ci95 p99 max share"),
        (100, "kind source count rate mean ± ci95 p50 p99 max share"),
        (120, "kind source count rate mean ± ci95 p50 p99 max total share incl mean"),
        (200, "kind source count rate mean ± ci95 p50 p90 p99 p99.9 max total share incl mean"),
    ] {
        assert_eq!(headings(common::handlers(), at_width(width)), expected);
    }
}

#[test]
fn all_rows_come_with_their_cpu() {
    let options = TerminalOptions { all_rows: true, ..at_width(80) };
    let expected = "kind source cpu count mean ± ci95 p99 max";
    assert_eq!(headings(common::handlers(), options.clone()), expected);
    let text = terminal(&common::run(vec![common::handlers()]), options);
    assert!(text.contains("\nirq      36 virtio1-req.0  0        6,000  1.28"), "{text}");
    assert!(!text.contains("per CPU"));
}

#[test]
fn other_tables_lose_columns_from_the_right() {
    let mut table = common::handlers();
    table.name = "other".to_owned();
    let expected = "\
other: One row per source and CPU.
condition       cpu  kind     number  name               count      rate
idle/low/disk   all  irq          36  virtio1-req.0      6,000    100 /s
idle/low/disk   0    irq          36  virtio1-req.0      6,000    100 /s
idle/low/disk   all  vector      236  LOC               15,011    250 /s
idle/high/disk  all  irq          36  virtio1-req.0  1,234,567  20.6 k/s
idle/high/disk  all  softirq       4  BLOCK          1,234,560  20.6 k/s
not shown: self_mean, self_mean_ci95, interval_method, self_p50, self_p90,
self_p99, self_p999, self_max, self_max_at, self_total, self_share, incl_mean,
incl_max; see irqlab show RUN other --format csv
";
    let text = terminal(&common::run(vec![table]), at_width(80));
    assert!(text.contains(expected), "{text}");
}

#[test]
fn long_tables_end_with_what_is_left_out() {
    let mut table = Table::new("gaps", "One row per gap.", vec![Column::new("n", Kind::Uint, "")]);
    (0..101_u64).for_each(|n| table.push(vec![n.into()]));
    let run = common::run(vec![table, Table::new("none", "Nothing.", Vec::new())]);
    let text = terminal(&run, TerminalOptions::default());
    let end = "\n99\nnot shown: 1 row more; see irqlab show RUN gaps\n";
    assert!(text.contains(end), "{text}");
    assert!(!text.contains("none: Nothing."), "an empty table has nothing to say: {text}");
    let all = terminal(&run, TerminalOptions { all_rows: true, ..TerminalOptions::default() });
    assert!(all.contains("\n100\n") && !all.contains("not shown"), "{all}");
    assert!(all.contains("\nnone: Nothing.\n(no rows)\n"), "{all}");
}

#[test]
fn warnings_come_before_any_number_and_a_cut_run_is_one() {
    let mut run = common::run(Vec::new());
    run.complete = false;
    run.host.clear();
    let start = "\
handlers on live, 2026-11-21T07:50:41Z

warning: the run was cut short: the tables hold what was measured until then
warning: the machine is virtual: the host can take its CPUs away
";
    let text = terminal(&run, at_width(80));
    assert!(text.starts_with(start), "{text}");
}

#[test]
fn the_observer_says_what_it_knows() {
    let mut run = common::run(Vec::new());
    run.observer.retain(|key, _| key == "added_ns_per_span");
    run.observer.insert("events_lost".to_owned(), 1_234.into());
    run.observer.insert("cpu_share_ratio".to_owned(), Value::Absent.to_json());
    let text = terminal(&run, at_width(80));
    assert!(text.contains("\nobserver: 212 ns added per span; 1,234 events LOST\n"), "{text}");
    run.observer.clear();
    assert!(!terminal(&run, at_width(80)).contains("observer"));
}

/// Condition, line, counted, exact, least, most, edge, agrees.
type AgreementRow =
    (&'static str, &'static str, Option<u64>, Option<u64>, [Option<u64>; 2], Option<bool>);

fn agreement(rows: &[AgreementRow]) -> Table {
    let mut columns: Vec<Column> =
        ["condition", "line"].iter().map(|name| Column::new(name, Kind::Text, "")).collect();
    let counts = ["counted", "kernel_exact", "kernel_min", "kernel_max", "edge_max"];
    columns.extend(counts.iter().map(|name| Column::new(name, Kind::Uint, "")));
    columns.push(Column::new("agrees", Kind::Bool, ""));
    let mut table = Table::new("agreement", "A row per counter.", columns);
    for (condition, line, counted, exact, [least, most], agrees) in rows {
        table.push(vec![
            (*condition).into(),
            (*line).into(),
            (*counted).into(),
            (*exact).into(),
            (*least).into(),
            (*most).into(),
            1.into(),
            (*agrees).into(),
        ]);
    }
    table
}

#[test]
fn of_the_agreement_only_what_differs_is_shown_after_a_line_in_words() {
    let none = [None; 2];
    let table = agreement(&[
        ("as found", "LOC", Some(100), Some(100), none, Some(true)),
        ("as found", "RCU", Some(99), Some(100), none, Some(true)),
        ("as found", "36", Some(7), None, [Some(7), Some(9)], Some(true)),
        ("as found", "SCHED", Some(1_000), Some(1_004), none, Some(false)),
        ("as found", "37", Some(12), None, [Some(7), Some(9)], Some(false)),
        ("as found", "TLB", None, Some(5), none, None),
    ]);
    let expected = "
agreement: 3 of 5 counters agree with the kernel's own: 1 to the last one, 2
within what the window's edges leave open; 2 differ (in all, 0.415 % of what it
counted):
condition  line   counted  kernel  difference  edges allow
as found   SCHED    1,000   1,004          -4            1
as found   37          12  7 to 9          +3            1
not shown: 4 rows in agreement or without a probe; see
irqlab show 'my runs/1' agreement
";
    let options = TerminalOptions { run_dir: Some("my runs/1".to_owned()), ..at_width(80) };
    let text = terminal(&common::run(vec![table.clone()]), options);
    assert!(text.contains(expected), "{text}");
    let all = TerminalOptions { all_rows: true, ..at_width(80) };
    let text = terminal(&common::run(vec![table]), all);
    assert!(text.contains("as found   TLB          –       5           –"), "{text}");
}

#[test]
fn an_agreement_without_exception_is_one_line() {
    let row = ("as found", "LOC", Some(100), Some(100), [None; 2], Some(true));
    let text = terminal(&common::run(vec![agreement(&[row])]), TerminalOptions::default());
    let expected = "
agreement: the one counter that moved agrees with the kernel's own: 1 to the last one
not shown: 1 row in agreement or without a probe; see irqlab show RUN agreement
";
    assert!(text.contains(expected), "{text}");
    let text = terminal(
        &common::run(vec![agreement(&[("c", "TLB", None, Some(1), [None; 2], None)])]),
        TerminalOptions::default(),
    );
    assert!(text.contains("none of the kernel's counters could be compared"), "{text}");
}

#[test]
fn columns_without_a_value_are_left_out() {
    let columns = [("condition", Kind::Text), ("kind", Kind::Text), ("number", Kind::Uint)];
    let more = [("name", Kind::Text), ("ipc_ratio", Kind::Real), ("l1i_miss_ratio", Kind::Real)];
    let columns = columns.iter().chain(&more).map(|(name, kind)| Column::new(name, *kind, ""));
    let mut table = Table::new("ratios", "Ratios.", columns.collect());
    let keys: [Value; 4] = ["as found".into(), "softirq".into(), 1.into(), "TIMER".into()];
    table.push([&keys[..], &[1.5.into(), Value::Absent]].concat());
    let text = terminal(&common::run(vec![table]), TerminalOptions::default());
    assert!(text.contains("kind     source   IPC\nsoftirq  TIMER   1.50\n"), "{text}");
}

#[test]
fn nothing_from_a_run_reaches_the_terminal_as_a_command() {
    let hostile = "\u{1b}[2J\u{9b}31m\r\n\u{202e}x";
    let mut table = Table::new(hostile, hostile, vec![Column::new(hostile, Kind::Text, hostile)]);
    table.push(vec![hostile.into()]);
    let mut run = common::run(vec![table]);
    run.experiment = hostile.to_owned();
    run.warnings = vec![hostile.to_owned()];
    run.started_utc = hostile.to_owned();
    for key in ["cpu_model", "kernel", "arch", "cpus_online", "hypervisor"] {
        run.host.insert(key.to_owned(), hostile.into());
    }
    for key in ["attachment", "clock", "cpus"] {
        run.settings.insert(key.to_owned(), hostile.into());
    }
    let mut handlers = common::handlers();
    handlers.doc = hostile.to_owned();
    run.tables.push(handlers);
    for absence in &mut run.absent {
        absence.what = hostile.to_owned();
        absence.table = hostile.to_owned();
        absence.reason = hostile.to_owned();
        absence.remedy = Some(hostile.to_owned());
    }
    let hostile_dir = TerminalOptions { run_dir: Some(hostile.to_owned()), ..at_width(60) };
    for text in [terminal(&run, hostile_dir), report::markdown_run(&run)] {
        let is_active = |c: char| (c.is_control() && c != '\n') || c == '\u{202e}';
        assert!(!text.contains(is_active), "{text:?}");
    }
    let text = terminal(&run, TerminalOptions::default());
    assert!(text.contains("\n\\u{1b}[2J\\u{9b}31m\\r\\n\\u{202e}x\n"), "{text}");
}

#[test]
fn colours_are_for_whole_lines() {
    let run = common::run(vec![common::handlers()]);
    let coloured = terminal(&run, TerminalOptions { color: true, ..at_width(80) });
    assert!(coloured.contains("\n\u{1b}[33mwarning: "), "{coloured:?}");
    for line in coloured.lines() {
        let starts = line.matches("\u{1b}[").count();
        assert!(starts == 0 || (starts == 2 && line.ends_with("\u{1b}[0m")), "{line:?}");
    }
    let mut plain = coloured;
    for code in ["\u{1b}[33m", "\u{1b}[1m", "\u{1b}[2m", "\u{1b}[0m"] {
        plain = plain.replace(code, "");
    }
    assert_eq!(plain, terminal(&run, at_width(80)));
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::default() })]

    /// From 40 columns on; below, commands to copy are longer than a line.
    #[test]
    fn lines_of_tables_fit(width in 40..220_u16, all_rows: bool, name in "\\PC{0,60}") {
        let mut table = common::handlers();
        let mut row = table.rows()[0].clone();
        row[4] = name.as_str().into();
        row[0] = format!("{name}/low").into();
        table.push(row);
        let mut other = table.clone();
        other.name = "other".to_owned();
        let options = TerminalOptions { all_rows, ..at_width(width) };
        let text = terminal(&common::run(vec![table, other]), options);
        for line in text.lines() {
            prop_assert!(line.width() <= width.into(), "{}", line);
        }
    }
}

#[test]
fn the_narrowest_terminal_gets_one_column() {
    let run = common::run(vec![common::handlers()]);
    assert!(terminal(&run, at_width(0)).contains("\n…\n"));
    assert!(terminal(&run, at_width(6)).contains("\n36 vi…\n"));
}
