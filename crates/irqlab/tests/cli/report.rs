//! `irqlab report`: the page of runs, in a file and in a browser. Runs may come from anybody.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use crate::support::{CommandOutput, Place, alone, can_measure, can_simulate, check_refused};
use record::{Column, Kind, Run, SCHEMA, Table, TableDisplay, write_run};
use serde_json::{Map, Value as Json, json};

/// Maximum size of a usual run's page in bytes.
const PAGE_MAX: usize = 3_000_000;
/// Names that a hostile device, process or host could choose.
const HOSTILE: [&str; 6] = [
    "<script>window.hostile = 1</script>",
    "\"><img src=x onerror=\"window.hostile = 2\">",
    "</style></table></svg><svg onload='window.hostile = 3'>",
    "{{7*7}} | `rm -rf` *b* [x](javascript:window.hostile=4) &lt; &#60;",
    "\u{1b}[2J\u{202e}gpj.exe\u{200b}\u{0}\r\n",
    "virtio1-req.0\u{fffd}\u{fffe} \u{1f600} 漢字 a\u{301}",
];

/// Writes a computed run, which needs no rights.
fn model(workspace: &Place, name: &str, event_cost: &str) {
    let arguments =
        "signal model --schemes interrupt,spin,clocked:1ms --rates 10k,100k -q --event-cost";
    let mut arguments: Vec<&str> = arguments.split_whitespace().collect();
    arguments.extend([event_cost, "--out", name]);
    workspace.run(&arguments).assert_code(0);
}

fn page(workspace: &Place, name: &str) -> String {
    fs::read_to_string(workspace.path().join(name)).expect("a page")
}

/// A run of `handlers` with hostile texts. Each name is a row.
fn run_with_names(names: &[&str]) -> Run {
    let text = |name: &str| Column::new(name, Kind::Text, HOSTILE[0]);
    let key = |name: &str| text(name).key();
    let number = |name: &str, kind| Column::new(name, kind, HOSTILE[1]);
    let columns = vec![
        key("condition"),
        key("cpu"),
        key("kind"),
        number("number", Kind::Uint).key(),
        key("name"),
        number("count", Kind::Uint),
        number("rate_hz", Kind::Real),
        number("self_mean_ns", Kind::Real).cost().title(HOSTILE[2]),
        number("self_mean_ci95_ns", Kind::Real),
        number("self_p50_ns", Kind::Uint),
        number("self_max_ns", Kind::Uint),
        number("self_total_ns", Kind::Uint),
        number("self_cpu_ratio", Kind::Real),
    ];
    let mut table = Table::new("handlers", HOSTILE[0], columns).displayed(TableDisplay {
        title: HOSTILE[1].to_owned(),
        headline: "largest: {kind} {name}".to_owned(),
        group_by: vec!["condition".to_owned()],
        sort_by: Some("self_total_ns".to_owned()),
        notes: vec!["by {settings.by}".to_owned()],
        ..TableDisplay::default()
    });
    for (position, name) in names.iter().enumerate() {
        let size = position as u64 + 1;
        table.push(vec![
            (*name).into(),
            "all".into(),
            (*name).into(),
            size.into(),
            (*name).into(),
            (100 * size).into(),
            (50.0 * size as f64).into(),
            1000.0.into(),
            20.0.into(),
            900_u64.into(),
            (5000 * size).into(),
            (100_000 * size).into(),
            (0.001 * size as f64).into(),
        ]);
    }
    let map = |key: &str, value: Json| Map::from_iter([(key.to_owned(), value)]);
    Run {
        schema: SCHEMA.to_owned(),
        experiment: "handlers".to_owned(),
        bench: "live".to_owned(),
        started_utc: "2026-11-23T12:00:00Z".to_owned(),
        complete: false,
        host: map("cpu_model", names.first().copied().unwrap_or("none").into()),
        settings: map("by", HOSTILE[3].into()),
        observer: Map::new(),
        warnings: names.iter().map(|name| (*name).to_owned()).collect(),
        absent: vec![record::Absence {
            table: "handlers".to_owned(),
            what: HOSTILE[4].to_owned(),
            reason: HOSTILE[0].to_owned(),
            remedy: Some(HOSTILE[1].to_owned()),
        }],
        tables: vec![table],
    }
}

fn write(workspace: &Place, name: &str, run: &Run) {
    write_run(run, &[], &workspace.path().join(name)).expect("a run");
}

fn edit_manifest(workspace: &Place, run: &str, edit: impl Fn(&mut Json)) {
    let path = workspace.path().join(run).join("manifest.json");
    let mut manifest: Json = serde_json::from_slice(&fs::read(&path).unwrap()).unwrap();
    edit(&mut manifest);
    fs::write(path, manifest.to_string()).unwrap();
}

#[test]
fn a_page_is_one_file_that_loads_nothing() {
    let workspace = Place::new();
    model(&workspace, "run", "1us");
    workspace.run(&["report", "run", "-o", "a.html"]).assert_code(0).assert_says("report: a.html");
    let text = page(&workspace, "a.html");
    assert!(text.starts_with("<!DOCTYPE html>") && text.ends_with("</html>"), "{text:.80}");
    assert!(text.len() < PAGE_MAX, "{}", text.len());
    let loads = ["src=", "@import", "url(http", "<link", "<iframe", "fetch(", "XMLHttpRequest"];
    for load in loads {
        assert!(!text.contains(load), "{load}");
    }
    assert!(text.contains("default-src 'none'") && text.contains("<h2 id=\"answers-title\">"));
    assert!(text.contains("irqlab show run model"), "the command of a table");
    assert!(text.contains("irqlab signal model --schemes"), "the command of the run");
    let again = workspace.run(&["report", "run", "-o", "a.html"]);
    again
        .assert_code(2)
        .assert_says("cannot write a.html: it exists already (--force replaces it)");
    workspace.run(&["report", "run", "-o", "a.html", "--force"]).assert_code(0);
    assert!(page(&workspace, "a.html") == text, "the same, to the byte");
    let printed = workspace.run(&["report", "run", "-o", "-"]);
    assert!(printed.assert_code(0).out == text);
    assert_eq!(workspace.names(), ["a.html", "run"], "nothing else is left");
    check_refused(&["report", "-o", "a.html"], "required arguments were not provided");
    check_refused(&["report", "run"], "--output <FILE>");
}

#[test]
fn several_runs_are_compared_with_the_first() {
    let workspace = Place::new();
    model(&workspace, "base", "1us");
    model(&workspace, "new", "1.1us");
    write(&workspace, "other", &run_with_names(&["disk"]));
    workspace.run(&["report", "base", "new", "other", "-o", "a.html"]).assert_code(0);
    let text = page(&workspace, "a.html");
    for expected in [
        "Run 1 (base): base",
        "Run 2: new",
        "Run 2 compared with run 1",
        "irqlab compare base new",
        "id=\"change-2-changes\"",
        "id=\"picture-1-cpu\"",
        "id=\"picture-2-cpu\"",
    ] {
        assert!(text.contains(expected), "{expected}");
    }
    assert!(!text.contains("Run 3 compared"), "of another experiment");
    let differences = workspace.run(&["compare", "base", "new", "--json"]).json();
    let worse = crate::support::rows(&differences, "differences").iter();
    let worse = worse.filter(|row| row["verdict"] == "worse").count();
    assert!(worse > 0 && text.contains(&format!("{worse} worse")), "{worse}");
}

#[test]
fn names_of_any_origin_are_text() {
    let workspace = Place::new();
    write(&workspace, "run", &run_with_names(&HOSTILE));
    let ended = workspace.run(&["report", "run", "-o", "a.html"]);
    ended.assert_code(0);
    let text = page(&workspace, "a.html");
    assert!(text.contains("cut short"), "a killed measurement is marked");
    for markup in ["<script>window", "<img", "<svg onload", "</style></table>"] {
        assert!(!text.contains(markup), "{markup}");
    }
    assert_eq!(text.matches("<script>").count(), 1, "its own");
    let is_active = |character: char| {
        (character.is_control() && character != '\n')
            || matches!(character, '\u{202a}'..='\u{202e}' | '\u{200b}' | '\u{fffe}')
    };
    let found = text.chars().find(|character| is_active(*character));
    assert_eq!(found, None, "characters that a browser acts on");
    assert!(text.contains("&lt;script&gt;window.hostile") && text.contains("漢字"));
}

#[test]
fn a_damaged_run_is_an_error_with_a_reason() {
    let workspace = Place::new();
    let fails = |says: &str| {
        let ended = workspace.run(&["report", "run", "-o", "a.html"]);
        ended.assert_code(1).assert_says(says);
        assert!(!workspace.path().join("a.html").exists(), "half a page");
    };
    fails("cannot read run/manifest.json");
    // A process that was killed while it wrote leaves an empty directory.
    fs::create_dir(workspace.path().join("run")).unwrap();
    fails("cannot read run/manifest.json");
    fs::remove_dir(workspace.path().join("run")).unwrap();
    write(&workspace, "run", &run_with_names(&["disk"]));
    let table = workspace.path().join("run/tables/handlers.parquet");
    let intact = fs::read(&table).unwrap();
    fs::write(&table, &intact[..intact.len() / 2]).unwrap();
    fails("run/tables/handlers.parquet: fewer bytes than the");
    let mut damaged = intact.clone();
    damaged[intact.len() / 2] ^= 0xff;
    fs::write(&table, &damaged).unwrap();
    fails("damaged: its checksum is not the manifest's");
    fs::write(&table, &intact).unwrap();
    edit_manifest(&workspace, "run", |manifest| manifest["schema"] = "irqlab.run/9".into());
    fails("schema \"irqlab.run/9\"; this version reads irqlab.run/2");
}

#[test]
fn another_hosts_run_and_one_without_rows_have_pages() {
    let workspace = Place::new();
    write(&workspace, "here", &run_with_names(&["disk"]));
    write(&workspace, "there", &run_with_names(&["disk"]));
    edit_manifest(&workspace, "there", |manifest| {
        manifest["host"] =
            json!({"cpu_model": "Another CPU", "kernel": "4.19.0", "arch": "aarch64"});
    });
    workspace.run(&["report", "here", "there", "-o", "a.html"]).assert_code(0);
    let text = page(&workspace, "a.html");
    assert!(text.contains("Another CPU; Linux 4.19.0 aarch64"), "the host of the run");
    assert!(text.contains("the host's cpu_model differs"), "a warning");
    write(&workspace, "empty", &run_with_names(&[]));
    workspace.run(&["report", "empty", "-o", "b.html"]).assert_code(0);
    let text = page(&workspace, "b.html");
    assert!(text.contains("This run has no rows.") && text.contains("No single figure"), "{text}");
    workspace.run(&["report", "here", "empty", "-o", "c.html"]).assert_code(0);
}

/// The directory of the modules that drive a browser (tools/setup.sh). Returns `None`, and prints the missing parts,
/// if there is no browser.
fn browser() -> Option<PathBuf> {
    let cache = std::env::var_os("XDG_CACHE_HOME").map(PathBuf::from);
    let cache = cache.or_else(|| Some(PathBuf::from(std::env::var_os("HOME")?).join(".cache")));
    let modules = std::env::var_os("IRQLAB_BROWSER_MODULES").map(PathBuf::from);
    let modules = modules.or_else(|| Some(cache?.join("irqlab/tools/browser")));
    let is_there = |path: &Path| path.join("node_modules/playwright-core").exists();
    let found = modules.filter(|path| is_there(path));
    let has_node = Command::new("node").arg("--version").output().is_ok();
    let has_chromium = Path::new("/usr/bin/chromium").exists();
    if found.is_none() || !has_node || !has_chromium {
        needs::not_run(needs::Need::Browser, "node, chromium or playwright-core is not installed");
        return None;
    }
    found
}

#[test]
fn a_browser_shows_the_page_and_its_controls_work() {
    let Some(modules) = browser() else { return };
    let workspace = Place::new();
    model(&workspace, "base", "1us");
    model(&workspace, "new", "1.1us");
    write(&workspace, "hostile", &run_with_names(&HOSTILE));
    let mut pages = vec![("model", vec!["base"]), ("changes", vec!["base", "new"])];
    pages.push(("hostile", vec!["hostile"]));
    {
        let _alone = alone();
        if can_measure() {
            let arguments = "handlers -q -d 300ms --events none --histograms --out handlers";
            workspace.run(&arguments.split_whitespace().collect::<Vec<_>>()).assert_code(0);
            workspace.run(&["noise", "-q", "-d", "300ms", "--out", "noise"]);
            pages.push(("handlers", vec!["handlers"]));
            workspace.run(&["services", "-q", "--out", "services", "--", "ls", "/"]).assert_code(0);
            pages.push(("services", vec!["services"]));
            if workspace.path().join("noise").exists() {
                pages.push(("noise", vec!["noise"]));
            }
        }
    }
    if can_simulate(&workspace) {
        let arguments = "handlers -q --on sim:r4400-1994 -d 200ms --out simulated";
        let ended = workspace.run(&arguments.split_whitespace().collect::<Vec<_>>());
        // This irqlab was built without the guest's programs.
        match ended.code {
            Some(4) => needs::not_run(needs::Need::Qemu, &ended.err),
            _ => {
                ended.assert_code(0);
                pages.push(("simulated", vec!["simulated"]));
            }
        }
    }
    let mut files = Vec::new();
    for (name, runs) in &pages {
        let file = format!("{name}.html");
        workspace.run(&[&["report"][..], runs, &["-o", &file]].concat()).assert_code(0);
        assert!(page(&workspace, &file).len() < PAGE_MAX, "{file}");
        files.push(file);
    }
    // The screenshots are kept for people.
    let screenshots = Path::new(env!("CARGO_TARGET_TMPDIR")).join("report-screenshots");
    let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../tools/browser/report.mjs");
    let mut node = Command::new("node");
    node.arg(script).arg(modules).arg(&screenshots).args(&files).current_dir(workspace.path());
    let ended = CommandOutput::of(&mut node);
    assert_eq!(ended.code, Some(0), "{}\n{}", ended.out, ended.err);
    assert_eq!(ended.out.lines().count(), pages.len(), "{}", ended.out);
    for line in ended.out.lines() {
        let page: Json = serde_json::from_str(line).expect("a line for each page");
        assert_eq!(page["violations"], 0, "{page}");
        // Bars have no axis to zoom.
        let has_zoom =
            !["hostile", "simulated", "services"].contains(&page["page"].as_str().unwrap());
        assert!(!has_zoom || page["zoomed"].as_u64() > Some(0), "{page}");
    }
}
