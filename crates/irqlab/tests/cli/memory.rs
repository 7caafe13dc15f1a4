//! Tables that are small on disk and large in memory. Output for programs is written row by row. Other output needs
//! the table in memory, and irqlab limits the size of tables in memory. The tests limit irqlab's address space.

use std::process::{Command, Stdio};

use record::{Column, Kind, Run, SCHEMA, Table, write_run};

use crate::support::{CommandOutput, Place};

/// Number of rows, and bytes of text in each row. Together they exceed irqlab's limit on tables in memory.
const ROWS: usize = 2_500;
const TEXT_BYTES: usize = 60_000;
/// Limit on irqlab's address space: a little more than its program, its libraries and its threads take.
const ADDRESS_SPACE_KIB: u32 = 450_000;

/// Writes a run whose table takes some kilobytes in its file, and 150 MB in memory.
fn large_run(workspace: &Place) {
    let columns = vec![
        Column::new("name", Kind::Text, "").key().priority(100),
        Column::new("count", Kind::Uint, "").priority(50),
    ];
    let mut table = Table::new("rows", "", columns);
    let text = "x".repeat(TEXT_BYTES);
    for row in 0..ROWS {
        table.push(vec![text.as_str().into(), (row as u64).into()]);
    }
    let run = Run {
        schema: SCHEMA.to_owned(),
        experiment: "handlers".to_owned(),
        bench: "live".to_owned(),
        started_utc: "2026-11-26T00:00:00Z".to_owned(),
        complete: true,
        host: serde_json::Map::new(),
        settings: serde_json::Map::new(),
        observer: serde_json::Map::new(),
        warnings: Vec::new(),
        absent: Vec::new(),
        tables: vec![table],
    };
    let directory = workspace.path().join("large");
    write_run(&run, &[], &directory).expect("a run");
    let file = directory.join("tables/rows.parquet").metadata().expect("a table");
    assert!(file.len() < 1 << 20, "{} bytes", file.len());
}

/// irqlab with [`ADDRESS_SPACE_KIB`].
fn limited(workspace: &Place, arguments: &str) -> Command {
    let mut command = Command::new("sh");
    let limit = format!("ulimit -v {ADDRESS_SPACE_KIB} && exec \"$0\" \"$@\"");
    command.args(["-c", &limit, env!("CARGO_BIN_EXE_irqlab")]).args(arguments.split_whitespace());
    command.current_dir(workspace.path());
    command
}

#[test]
fn output_for_programs_needs_memory_for_one_row_only() {
    let workspace = Place::new();
    large_run(&workspace);
    for (arguments, bytes_min) in [
        ("show large --json", ROWS * TEXT_BYTES),
        ("show large --format csv", ROWS * TEXT_BYTES),
        ("show large --table rows --json", ROWS * TEXT_BYTES),
        ("show large --columns", 10),
    ] {
        let mut child = limited(&workspace, arguments)
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .expect("a shell");
        let mut out = child.stdout.take().expect("its output");
        let printed = std::io::copy(&mut out, &mut std::io::sink()).expect("what it prints");
        let ended = child.wait_with_output().expect("its end");
        let says = String::from_utf8_lossy(&ended.stderr);
        assert!(ended.status.success(), "{arguments}: {}: {says}", ended.status);
        assert!(printed >= bytes_min as u64, "{arguments}: {printed} bytes");
    }
}

#[test]
fn a_table_that_does_not_fit_in_memory_is_refused_with_an_alternative() {
    let workspace = Place::new();
    large_run(&workspace);
    for arguments in [
        "show large",
        "show large --format markdown",
        "compare large large",
        "report large large -o page.html",
        "export large --format openmetrics",
    ] {
        let ended = CommandOutput::of(&mut limited(&workspace, arguments));
        assert!(ended.err.contains("more than the memory limit"), "{arguments}: {}", ended.err);
        ended.assert_code(1).assert_says("--format csv writes a table row by row");
    }
}
