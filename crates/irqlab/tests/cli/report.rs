//! `irqlab report`: the page of runs of any origin, in a file and in a browser.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use crate::support::{CommandOutput, Place, alone, can_measure, can_simulate, check_refused};
use record::{Column, Kind, Run, SCHEMA, Table, TableDisplay, write_run};
use serde_json::{Map, Value as Json, json};

/// Largest page of a usual run, bytes.
const PAGE_MAX: usize = 3_000_000;
/// Names that a device, a process or another host may have chosen.
const HOSTILE: [&str; 6] = [
    "<script>window.hostile = 1</script>",
    "\"><img src=x onerror=\"window.hostile = 2\">",
    "</style></table></svg><svg onload='window.hostile = 3'>",
    "{{7*7}} | `rm -rf` *b* [x](javascript:window.hostile=4) &lt; &#60;",
    "\u{1b}[2J\u{202e}gpj.exe\u{200b}\u{0}\r\n",
    "virtio1-req.0\u{fffd}\u{fffe} \u{1f600} 漢字 a\u{301}",
];

/// A computed run, which needs no rights.
fn model(place: &Place, name: &str, event_cost: &str) {
    let words =
        "signal model --schemes interrupt,spin,clocked:1ms --rates 10k,100k -q --event-cost";
    let mut words: Vec<&str> = words.split_whitespace().collect();
    words.extend([event_cost, "--out", name]);
    place.run(&words).assert_code(0);
}

fn page(place: &Place, name: &str) -> String {
    fs::read_to_string(place.path().join(name)).expect("a page")
}

/// A run of `handlers` with these names in each of its texts.
fn run_of(names: &[&str]) -> Run {
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
    for (at, name) in names.iter().enumerate() {
        let size = at as u64 + 1;
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

fn write(place: &Place, name: &str, run: &Run) {
    write_run(run, &[], &place.path().join(name)).expect("a run");
}

fn edit_manifest(place: &Place, run: &str, edit: impl Fn(&mut Json)) {
    let path = place.path().join(run).join("manifest.json");
    let mut manifest: Json = serde_json::from_slice(&fs::read(&path).unwrap()).unwrap();
    edit(&mut manifest);
    fs::write(path, manifest.to_string()).unwrap();
}

#[test]
fn a_page_is_one_file_that_loads_nothing() {
    let place = Place::new();
    model(&place, "run", "1us");
    place.run(&["report", "run", "-o", "a.html"]).assert_code(0).assert_says("report: a.html");
    let text = page(&place, "a.html");
    assert!(text.starts_with("<!DOCTYPE html>") && text.ends_with("</html>"), "{text:.80}");
    assert!(text.len() < PAGE_MAX, "{}", text.len());
    let loads = ["src=", "@import", "url(http", "<link", "<iframe", "fetch(", "XMLHttpRequest"];
    for one in loads {
        assert!(!text.contains(one), "{one}");
    }
    assert!(text.contains("default-src 'none'") && text.contains("<h2 id=\"answers-title\">"));
    assert!(text.contains("irqlab show run model"), "the command of a table");
    assert!(text.contains("irqlab signal model --schemes"), "the command of the run");
    let again = place.run(&["report", "run", "-o", "a.html"]);
    again
        .assert_code(2)
        .assert_says("cannot write a.html: it exists already (--force replaces it)");
    place.run(&["report", "run", "-o", "a.html", "--force"]).assert_code(0);
    assert!(page(&place, "a.html") == text, "the same, to the byte");
    let printed = place.run(&["report", "run", "-o", "-"]);
    assert!(printed.assert_code(0).out == text);
    assert_eq!(place.names(), ["a.html", "run"], "nothing else is left");
    check_refused(&["report", "-o", "a.html"], "required arguments were not provided");
    check_refused(&["report", "run"], "--output <FILE>");
}

#[test]
fn several_runs_are_compared_with_the_first() {
    let place = Place::new();
    model(&place, "base", "1us");
    model(&place, "new", "1.1us");
    write(&place, "other", &run_of(&["disk"]));
    place.run(&["report", "base", "new", "other", "-o", "a.html"]).assert_code(0);
    let text = page(&place, "a.html");
    for words in [
        "Run 1 (base): base",
        "Run 2: new",
        "Run 2 compared with run 1",
        "irqlab compare base new",
        "id=\"change-2-changes\"",
        "id=\"picture-1-cpu\"",
        "id=\"picture-2-cpu\"",
    ] {
        assert!(text.contains(words), "{words}");
    }
    assert!(!text.contains("Run 3 compared"), "of another experiment");
    let differences = place.run(&["compare", "base", "new", "--json"]).json();
    let worse = crate::support::rows(&differences, "differences").iter();
    let worse = worse.filter(|row| row["verdict"] == "worse").count();
    assert!(worse > 0 && text.contains(&format!("{worse} worse")), "{worse}");
}

#[test]
fn names_of_any_origin_are_text() {
    let place = Place::new();
    write(&place, "run", &run_of(&HOSTILE));
    let ended = place.run(&["report", "run", "-o", "a.html"]);
    ended.assert_code(0);
    let text = page(&place, "a.html");
    assert!(text.contains("cut short"), "what a killed measurement left says so");
    for markup in ["<script>window", "<img", "<svg onload", "</style></table>"] {
        assert!(!text.contains(markup), "{markup}");
    }
    assert_eq!(text.matches("<script>").count(), 1, "its own");
    let active = |one: char| {
        (one.is_control() && one != '\n')
            || matches!(one, '\u{202a}'..='\u{202e}' | '\u{200b}' | '\u{fffe}')
    };
    let found = text.chars().find(|one| active(*one));
    assert_eq!(found, None, "characters that a browser acts on");
    assert!(text.contains("&lt;script&gt;window.hostile") && text.contains("漢字"));
}

#[test]
fn what_is_no_sound_run_is_an_error_that_says_why() {
    let place = Place::new();
    let fails = |says: &str| {
        let ended = place.run(&["report", "run", "-o", "a.html"]);
        ended.assert_code(1).assert_says(says);
        assert!(!place.path().join("a.html").exists(), "half a page");
    };
    fails("cannot read run/manifest.json");
    // What a process that was killed while it wrote left.
    fs::create_dir(place.path().join("run")).unwrap();
    fails("cannot read run/manifest.json");
    fs::remove_dir(place.path().join("run")).unwrap();
    write(&place, "run", &run_of(&["disk"]));
    let table = place.path().join("run/tables/handlers.parquet");
    let whole = fs::read(&table).unwrap();
    fs::write(&table, &whole[..whole.len() / 2]).unwrap();
    fails("run/tables/handlers.parquet: fewer bytes than the");
    let mut damaged = whole.clone();
    damaged[whole.len() / 2] ^= 0xff;
    fs::write(&table, &damaged).unwrap();
    fails("damaged: its checksum is not the manifest's");
    fs::write(&table, &whole).unwrap();
    edit_manifest(&place, "run", |manifest| manifest["schema"] = "irqlab.run/9".into());
    fails("schema \"irqlab.run/9\"; this version reads irqlab.run/2");
}

#[test]
fn another_hosts_run_and_one_without_rows_have_pages() {
    let place = Place::new();
    write(&place, "here", &run_of(&["disk"]));
    write(&place, "there", &run_of(&["disk"]));
    edit_manifest(&place, "there", |manifest| {
        manifest["host"] =
            json!({"cpu_model": "Another CPU", "kernel": "4.19.0", "arch": "aarch64"});
    });
    place.run(&["report", "here", "there", "-o", "a.html"]).assert_code(0);
    let text = page(&place, "a.html");
    assert!(text.contains("Another CPU; Linux 4.19.0 aarch64"), "the host of the run");
    assert!(text.contains("the host's cpu_model differs"), "a warning");
    write(&place, "empty", &run_of(&[]));
    place.run(&["report", "empty", "-o", "b.html"]).assert_code(0);
    let text = page(&place, "b.html");
    assert!(text.contains("This run has no rows.") && text.contains("No single figure"), "{text}");
    place.run(&["report", "here", "empty", "-o", "c.html"]).assert_code(0);
}

/// Where what drives a browser is installed (tools/setup.sh); else says what is missing.
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
fn a_browser_shows_it_and_its_controls_work() {
    let Some(modules) = browser() else { return };
    let place = Place::new();
    model(&place, "base", "1us");
    model(&place, "new", "1.1us");
    write(&place, "hostile", &run_of(&HOSTILE));
    let mut pages = vec![("model", vec!["base"]), ("changes", vec!["base", "new"])];
    pages.push(("hostile", vec!["hostile"]));
    {
        let _alone = alone();
        if can_measure() {
            let words = "handlers -q -d 300ms --events none --histograms --out handlers";
            place.run(&words.split_whitespace().collect::<Vec<_>>()).assert_code(0);
            place.run(&["noise", "-q", "-d", "300ms", "--out", "noise"]);
            pages.push(("handlers", vec!["handlers"]));
            place.run(&["services", "-q", "--out", "services", "--", "ls", "/"]).assert_code(0);
            pages.push(("services", vec!["services"]));
            if place.path().join("noise").exists() {
                pages.push(("noise", vec!["noise"]));
            }
        }
    }
    if can_simulate(&place) {
        let words = "handlers -q --on sim:r4400-1994 -d 200ms --out simulated";
        let ended = place.run(&words.split_whitespace().collect::<Vec<_>>());
        // A program without the guest's parts.
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
        place.run(&[&["report"][..], runs, &["-o", &file]].concat()).assert_code(0);
        assert!(page(&place, &file).len() < PAGE_MAX, "{file}");
        files.push(file);
    }
    // Kept, to be looked at.
    let screenshots = Path::new(env!("CARGO_TARGET_TMPDIR")).join("report-screenshots");
    let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../tools/browser/report.mjs");
    let mut node = Command::new("node");
    node.arg(script).arg(modules).arg(&screenshots).args(&files).current_dir(place.path());
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
