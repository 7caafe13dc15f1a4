//! CSV, JSON and Markdown.

mod common;

use record::{Column, Kind, Table, Value};
use report::{CsvRows, CsvText, csv_omissions, json, markdown, markdown_run};

fn csv(table: &Table, all_rows: bool) -> String {
    report::csv(table, if all_rows { CsvRows::All } else { CsvRows::Sums }, CsvText::Guarded)
}

fn small() -> Table {
    let columns = vec![
        Column::new("name", Kind::Text, "Name."),
        Column::new("count", Kind::Uint, "Count."),
        Column::new("mean_ns", Kind::Real, "Mean."),
        Column::new("change", Kind::Int, "Change."),
        Column::new("shared", Kind::Bool, "Shared."),
    ];
    let mut table = Table::new("small", "A row per thing.", columns);
    let row = |name: &str, count, mean, change, shared: bool| {
        vec![name.into(), Value::Uint(count), Value::Real(mean), Value::Int(change), shared.into()]
    };
    table.push(row("a,b \"c\"", u64::MAX, 0.1, i64::MIN, true));
    table.push(row("x|<y>&\n\u{1b}[31m", 1_500, 1e300, -2, false));
    table.push(vec![Value::Absent; 5]);
    table
}

#[test]
fn csv_has_every_digit_and_empty_fields_for_what_is_absent() {
    let expected = "\
name,count,mean_ns,change,shared
\"a,b \"\"c\"\"\",18446744073709551615,0.1,-9223372036854775808,true
x|<y>&\\n\\u{1b}[31m,1500,1e300,-2,false
,,,,
";
    assert_eq!(
        csv(&small(), false),
        expected.replace("1e300", &Value::Real(1e300).to_json().to_string())
    );
    assert_eq!(csv(&Table::new("t", "", vec![Column::new("x", Kind::Text, "")]), false), "x\n");
}

#[test]
fn csv_has_no_text_that_a_spreadsheet_would_compute() {
    let columns = vec![
        Column::new("=name", Kind::Text, ""),
        Column::new("change", Kind::Int, ""),
        Column::new("mean_ns", Kind::Real, ""),
    ];
    let mut table = Table::new("t", "", columns);
    for name in ["=cmd|' /C calc'!A0", "+1+2", "-1.5", "-x", "@SUM(A1)", "a=b", "\t=1", "'=1", ""] {
        table.push(vec![name.into(), Value::Int(-2), Value::Real(-0.5)]);
    }
    let lines = |text| {
        let csv = report::csv(&table, CsvRows::All, text);
        csv.lines().map(str::to_owned).collect::<Vec<_>>()
    };
    let guarded = lines(CsvText::Guarded);
    let expected = [
        "'=cmd|' /C calc'!A0,-2,-0.5",
        "'+1+2,-2,-0.5",
        "-1.5,-2,-0.5",
        "'-x,-2,-0.5",
        "'@SUM(A1),-2,-0.5",
        "a=b,-2,-0.5",
        "\\t=1,-2,-0.5",
        "'=1,-2,-0.5",
        ",-2,-0.5",
    ];
    assert_eq!(guarded[1..], expected);
    assert_eq!(lines(CsvText::Exact)[1..3], ["=cmd|' /C calc'!A0,-2,-0.5", "+1+2,-2,-0.5"]);
}

#[test]
fn json_that_is_written_row_by_row_is_the_whole_document() {
    let empty = Table::new("empty", "", vec![Column::new("x", Kind::Text, "")]);
    let mut bare = Table::new("bare", "", Vec::new());
    bare.push(Vec::new());
    for tables in [vec![], vec![empty.clone()], vec![small(), empty, bare, common::handlers()]] {
        let run = common::run(tables);
        let document = format!("{:#}\n", run.to_json());
        assert_eq!(json(&run).replace("\\u001b", "\u{1b}"), document.replace("\\u001b", "\u{1b}"));
    }
}

#[test]
fn json_is_the_document_of_the_run_and_safe_to_print() {
    let mut table = small();
    table.push(vec!["\u{9b}\u{202e}".into(), 1.into(), 1.0.into(), Value::Int(1), true.into()]);
    let run = common::run(vec![table]);
    let text = json(&run);
    assert!(text.starts_with("{\n  \"schema\": \"irqlab.run/2\",\n  \"experiment\""), "{text}");
    assert!(text.ends_with("}\n"));
    assert!(text.contains(r#""name": "\u009b\u202e""#), "{text}");
    assert_eq!(serde_json::from_str::<serde_json::Value>(&text).unwrap(), run.to_json());
}

#[test]
fn markdown_escapes_what_would_be_markup() {
    let expected = "\
| name | count | mean (s) | change | shared |
| --- | ---: | ---: | ---: | --- |
| a,b \"c\" | 18,446,744,073,709,551,615 | &lt;0.001 | -9,223,372,036,854,775,808 | yes |
| x\\|&lt;y&gt;&amp;\\\\n\\\\u{1b}\\[31m | 1,500 | 1.00e291 | -2 | no |
| – | – | – | – | – |
";
    assert_eq!(markdown(&small()), expected);
}

#[test]
fn csv_has_sums_or_parts_and_says_what_it_leaves_out() {
    let run = common::run(vec![common::handlers(), small()]);
    let handlers = &run.tables[0];
    let lines = |all| csv(handlers, all).lines().count();
    assert_eq!((lines(false), lines(true)), (5, 6));
    assert_eq!(
        csv_omissions(&run, handlers, 1),
        "1 row per CPU (--all prints them); table small (--table small prints it)"
    );
    assert_eq!(csv_omissions(&common::run(vec![small()]), &small(), 0), "");
}

#[test]
fn markdown_of_a_run_has_what_is_shown_of_each_table() {
    let text = markdown_run(&common::run(vec![common::handlers()]));
    let start = "\
# handlers on live, 2026-11-21T07:50:41Z

Host: Some CPU (family 26, model 2); CPUs 0-1 online; guest of KVM; Linux 6.12 x86_64; 250 Hz \
tick; no PMU.

- **the machine is virtual: the host can take its CPUs away**

## handlers

what each interrupt handler costs

**condition idle/low/disk**

largest: vector LOC, 0.023 % of CPU time, 0.920 µs × 15,011

| kind | name | count | rate (/s) | mean ± ci95 (µs) | p50 (µs) |";
    assert!(text.starts_with(start), "{text}");
    let row = "\n| vector | LOC | 15,011 | 250 | 0.920 ± 0.018 | 0.828 |";
    assert!(text.contains(row), "{text}");
    let end = "
Not shown: 1 row per CPU.

method: live bench; tp_btf probes at entry and exit; CPUs 0-1; 85.0 ns subtracted from each span

Observer: probe overhead 212 ns per span, 85.0 ns of it within the span; 1,255,578 events; \
20.9 k/s; 0.440 % of CPU time; no events lost.

## Not measured

- handlers: self_mean_tsc_cycles, instructions: no PMU in this machine
- handlers: net: may not make a veth pair: `sudo setcap cap_net_admin+ep irqlab`
";
    assert!(text.ends_with(end), "{text}");
}
