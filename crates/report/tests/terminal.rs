//! The output on terminals of several widths.

mod common;

use proptest::prelude::*;
use record::{Column, Keep, Kind, RowFilter, Table, TableDisplay, Value};
use report::{LongText, TerminalOptions, terminal};
use unicode_width::UnicodeWidthStr;

fn at_width(width: u16) -> TerminalOptions {
    let run_dir = Some("RUN".to_owned());
    TerminalOptions { width: Some(width), run_dir, ..TerminalOptions::default() }
}

#[test]
fn handlers_at_80_columns() {
    let expected = "\
handlers on live, 2026-11-21T07:50:41Z
host: Some CPU (family 26, model 2); CPUs 0-1 online; guest of KVM; Linux 6.12
x86_64; 250 Hz tick; no PMU

warning: the machine is virtual: the host can take its CPUs away

handlers: what each interrupt handler costs
condition idle/low/disk
largest: vector LOC, 0.023 % of CPU time, 0.920 µs × 15,011
kind     name                  count    mean ± ci95    p50   p99    max    CPU
                                                 µs     µs    µs     µs      %
vector   LOC                  15,011  0.920 ± 0.018  0.828  1.84  3,400  0.023
irq      36 virtio1-req.0      6,000    1.28 ± 0.03   1.15  2.56   14.2  0.013

condition idle/high/disk
largest: softirq BLOCK, 4.83 % of CPU time, 2.35 µs × 1,234,560
kind     name                  count    mean ± ci95    p50   p99    max    CPU
                                                 µs     µs    µs     µs      %
softirq  BLOCK             1,234,560    2.35 ± 0.05   2.11  4.69   99.1   4.83
irq      36 virtio1-req.0  1,234,567    1.19 ± 0.02   1.07  2.38   28.0   2.45
method: live bench; tp_btf probes at entry and exit; CPUs 0-1; 85.0 ns
subtracted from each span
not shown: rate, p90, total; 6 more columns; 1 row per CPU; see
irqlab show RUN handlers --format csv --all

observer: probe overhead 212 ns per span, 85.0 ns of it within the span;
1,255,578 events; 20.9 k/s; 0.440 % of CPU time; no events lost

not measured
  handlers: self_mean_tsc_cycles, instructions: no PMU in this machine
  handlers: net: may not make a veth pair
    sudo setcap cap_net_admin+ep irqlab
";
    let run = common::run(vec![common::handlers()]);
    assert_eq!(terminal(&run, at_width(80)), expected);
}

#[test]
fn rows_of_zeros_are_left_out_unless_all_are_zeros() {
    let text = |rows: &[(&str, u64)], all_rows: bool| {
        let columns =
            vec![Column::new("name", Kind::Text, "").key(), Column::new("count", Kind::Uint, "")];
        let mut table = Table::new("misses", "", columns);
        rows.iter().for_each(|(name, count)| table.push(vec![(*name).into(), (*count).into()]));
        let options = TerminalOptions { all_rows, ..at_width(80) };
        terminal(&common::run(vec![table]), options)
    };
    let mixed = text(&[("BLOCK", 7), ("TIMER", 0)], false);
    assert!(mixed.contains("BLOCK") && !mixed.contains("TIMER"), "{mixed}");
    assert!(mixed.contains("1 row of zeros"), "{mixed}");
    assert!(text(&[("BLOCK", 7), ("TIMER", 0)], true).contains("TIMER"));
    assert!(text(&[("lost", 0)], false).contains("lost"));
}

#[test]
fn a_narrow_terminal_drops_columns_rather_than_a_part_of_an_uncut_text() {
    let name = "idle/high/timer all vector 0 local_timer";
    let columns = vec![
        Column::new("row", Kind::Text, "").priority(98).uncut(),
        Column::new("note", Kind::Text, "").priority(10),
    ];
    let mut table = Table::new("differences", "", columns);
    table.push(vec![name.into(), "a note of more than twenty characters".into()]);
    let text = terminal(&common::run(vec![table]), at_width(50));
    assert!(text.contains(name) && !text.contains("a note"), "{text}");
}

#[test]
fn a_column_without_values_goes_before_one_that_has_some() {
    let columns = vec![
        Column::new("cpu", Kind::Uint, "").priority(90),
        Column::new("over_threshold", Kind::Text, "").priority(80),
        Column::new("unattributed", Kind::Text, "").priority(10),
    ];
    let mut table = Table::new("noise", "", columns);
    table.push(vec![1_u64.into(), record::Value::Absent, "169 ms".into()]);
    let text = terminal(&common::run(vec![table.clone()]), at_width(20));
    let words = text.split_whitespace().collect::<Vec<_>>().join(" ");
    assert!(words.contains("169 ms") && words.contains("not shown: over threshold"), "{text}");
    let wide = terminal(&common::run(vec![table]), at_width(80));
    assert!(wide.lines().any(|line| line.contains("over threshold  unattributed")), "{wide}");
}

#[test]
fn a_wrapped_text_is_whole_at_any_width() {
    let reason = "a figure has no interval: irqlab reproduce signal-afterburner --repetitions 10 gives it one";
    let columns = vec![
        Column::new("claim", Kind::Text, "").wrapped(),
        Column::new("verdict", Kind::Text, ""),
        Column::new("reason", Kind::Text, "").wrapped(),
    ];
    let mut table = Table::new("findings", "", columns);
    table.push(vec!["signals are cheap".into(), "not judged".into(), reason.into()]);
    for width in [60, 80, 200] {
        let text = terminal(&common::run(vec![table.clone()]), at_width(width));
        let words = |text: &str| text.split_whitespace().map(str::to_owned).collect::<Vec<_>>();
        let printed = words(&text);
        assert!(words(reason).iter().all(|word| printed.contains(word)), "{text}");
    }
    let options = TerminalOptions { long_text: LongText::Whole, ..at_width(80) };
    let in_pipe = terminal(&common::run(vec![table.clone()]), options);
    assert!(in_pipe.contains(reason), "{in_pipe}");
    let text = terminal(&common::run(vec![table]), at_width(80));
    let expected = "
claim             verdict     reason
signals are       not judged  a figure has no interval: irqlab reproduce
cheap                         signal-afterburner --repetitions 10 gives it one
";
    assert!(text.contains(expected), "{text}");
}

#[test]
fn a_name_is_whole_in_a_pipe() {
    let name = "a_kernel_function_with_a_name_of_more_than_thirty_characters.isra.0";
    let mut table = Table::new(
        "miss_functions",
        "",
        vec![Column::new("function", Kind::Text, ""), Column::new("misses", Kind::Uint, "")],
    );
    table.push(vec![name.into(), 5_u64.into()]);
    let text = |long_text| {
        let options = TerminalOptions { long_text, ..at_width(120) };
        terminal(&common::run(vec![table.clone()]), options)
    };
    assert!(text(LongText::Whole).contains(name));
    assert!(!text(LongText::Fitted).contains(name));
}

/// The line of headings on a terminal of some width.
fn headings(table: Table, options: TerminalOptions) -> String {
    let text = terminal(&common::run(vec![table]), options);
    let title = text.lines().position(|line| line.starts_with("largest: ")).unwrap();
    let line = text.lines().nth(title + 1).unwrap();
    line.split_whitespace().collect::<Vec<_>>().join(" ")
}

#[test]
fn columns_go_by_priority_and_come_with_width() {
    for (width, expected) in [
        (60, "kind name mean ± ci95 p99 max"),
        (80, "kind name count mean ± ci95 p50 p99 max CPU"),
        (100, "kind name count rate mean ± ci95 p50 p90 p99 max total CPU"),
    ] {
        assert_eq!(headings(common::handlers(), at_width(width)), expected);
    }
}

#[test]
fn all_rows_come_with_their_cpu() {
    let options = TerminalOptions { all_rows: true, ..at_width(80) };
    let expected = "cpu kind name count mean ± ci95 p99 max CPU";
    assert_eq!(headings(common::handlers(), options.clone()), expected);
    let text = terminal(&common::run(vec![common::handlers()]), options);
    assert!(text.contains("\n0    irq      36 virtio1-req.0      6,000"), "{text}");
    assert!(!text.contains("per CPU"));
}

#[test]
fn the_largest_rows_come_first_and_those_without_a_number_last() {
    let mut table = common::handlers();
    let mut row = table.rows()[2].clone();
    row[4] = "counted only".into();
    row[16] = Value::Absent;
    let rows = table.rows().to_vec();
    table = Table::new(&table.name, &table.doc, table.columns.clone()).displayed(table.display);
    table.push(row);
    rows.into_iter().for_each(|row| table.push(row));
    let text = terminal(&common::run(vec![table]), at_width(200));
    let line_of = |name: &str| text.lines().position(|line| line.contains(name)).unwrap();
    assert!(line_of(" LOC ") < line_of("36 virtio1-req.0"), "{text}");
    assert!(line_of("36 virtio1-req.0") < line_of("counted only"), "{text}");
}

#[test]
fn tables_without_hints_lose_columns_from_the_right() {
    let columns = common::handlers().columns.into_iter();
    let plain = columns.map(|column| Column::new(&column.name, column.kind, &column.doc)).collect();
    let mut table = Table::new("other", "One row per context and CPU.", plain);
    common::handlers().rows().iter().for_each(|row| table.push(row.clone()));
    let expected = "\
other: One row per context and CPU.
condition       cpu  kind     number  name               count    rate
                                                                    /s
idle/low/disk   all  irq          36  virtio1-req.0      6,000     100
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
    let end = "\n99\nnot shown: 1 row more; this run is not kept: with --out DIR, irqlab show DIR gaps --all prints them\n";
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
    run.observer.retain(|key, _| key == "probe_overhead_ns");
    run.observer.insert("events_lost".to_owned(), 1_234.into());
    run.observer.insert("cpu_share_ratio".to_owned(), Value::Absent.to_json());
    run.observer.insert("kernel_memory_bytes".to_owned(), 1_804_768.into());
    let text = terminal(&run, at_width(80));
    assert!(
        text.contains(" 212 ns per span; 1.72 MiB of kernel memory; 1,234\nevents LOST\n"),
        "{text}"
    );
    run.observer.clear();
    assert!(!terminal(&run, at_width(80)).contains("observer"));
    for (lost, says) in [(1, "1 wake-up LOST"), (1_234, "1,234 wake-ups LOST")] {
        run.observer.insert("wakeups_lost".to_owned(), lost.into());
        let text = terminal(&run, at_width(80));
        assert!(text.contains(&format!("observer: {says}\n")), "{text}");
    }
}

#[test]
fn a_filter_hides_rows_and_says_so() {
    let columns = vec![
        Column::new("line", Kind::Text, ""),
        Column::new("agrees", Kind::Bool, ""),
        Column::new("share_ratio", Kind::Real, ""),
    ];
    let mut table = Table::new("agreement", "A row per counter.", columns);
    for (line, agrees, share) in
        [("LOC", Some(true), Some(0.5)), ("SCHED", Some(false), Some(0.0001)), ("TLB", None, None)]
    {
        table.push(vec![line.into(), agrees.into(), share.into()]);
    }
    let filtered = |column: &str, keep: Keep| {
        let (column, others) = (column.to_owned(), "left out".to_owned());
        let filter = Some(RowFilter { column, keep, others });
        let table = table.clone().displayed(TableDisplay { filter, ..TableDisplay::default() });
        let options =
            TerminalOptions { run_dir: Some("my runs/1".to_owned()), ..TerminalOptions::default() };
        terminal(&common::run(vec![table]), options)
    };
    let expected = "
line   share
           %
SCHED  0.010
not shown: 2 rows left out; see irqlab show 'my runs/1' agreement --all
";
    let text = filtered("agrees", Keep::Bool(false));
    assert!(text.contains(expected), "{text}");
    // Unknown values count as above the limit.
    let expected = "
line  agrees  share
                  %
LOC   yes      50.0
TLB   –           –
not shown: 1 row left out; see irqlab show 'my runs/1' agreement --all
";
    let text = filtered("share_ratio", Keep::AtLeast(0.001));
    assert!(text.contains(expected), "{text}");
}

#[test]
fn a_run_has_the_same_columns_whatever_was_measured() {
    let columns = vec![
        Column::new("name", Kind::Text, ""),
        Column::new("l1i_miss_ratio", Kind::Real, "").title("L1I miss"),
    ];
    let mut table = Table::new("ratios", "Ratios.", columns);
    table.push(vec!["TIMER".into(), Value::Absent]);
    let text = terminal(&common::run(vec![table]), TerminalOptions::default());
    assert!(text.contains("name   L1I miss\n              %\nTIMER         –\n"), "{text}");
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

    /// Widths start at 43 columns: on narrower terminals, commands to copy are longer than a line.
    #[test]
    fn lines_of_tables_fit(width in 43..220_u16, all_rows: bool, name in "\\PC{0,60}") {
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

#[test]
fn no_table_floods_the_terminal_unless_all_rows_are_asked_for() {
    let mut table = Table::new("spans", "Spans.", vec![Column::new("count", Kind::Uint, ".")]);
    table.display.rows_max = Some(record::limits::ROWS_MAX);
    (0..10_003_u64).for_each(|count| table.push(vec![count.into()]));
    let run = common::run(vec![table]);
    let lines = |options| terminal(&run, options).lines().count();
    let text = terminal(&run, TerminalOptions::default());
    assert!(text.contains("not shown: 3 rows more; this run is not kept"), "{text:.300}");
    let all = TerminalOptions { all_rows: true, ..TerminalOptions::default() };
    // The note takes a line.
    assert_eq!(lines(all) + 1, lines(TerminalOptions::default()) + 3);
}
