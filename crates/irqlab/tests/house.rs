//! The house rules that a program can check. Each rule says why it is there; each is also tried on
//! files that break it, so that a rule which cannot fail is found out.

#[path = "house/text.rs"]
mod text;

use std::fs;
use std::path::Path;

use text::{bare, begins_function, dependencies, function_lines, has_word, links};

/// Most lines of a file and of a function.
const FILE_LINES_MAX: usize = 400;
const FUNCTION_LINES_MAX: usize = 70;
const MAIN_LINES_MAX: usize = 60;

/// Which of our crates a crate may use. `irqlab`, the command, may use all; none uses it.
const MAY_USE: [(&str, &[&str]); 13] = [
    ("attribution", &[]),
    ("stats", &[]),
    ("machine", &[]),
    ("guest", &[]),
    ("loop_bodies", &[]),
    ("bare", &["loop_bodies"]),
    ("plugin", &["attribution", "machine"]),
    ("record", &[]),
    ("report", &["record"]),
    ("lab", &["attribution", "record", "stats"]),
    ("live", &["attribution", "lab", "loop_bodies", "stats"]),
    ("sim", &["attribution", "lab", "machine", "plugin", "stats"]),
    ("irqlab", &["attribution", "lab", "live", "machine", "record", "report", "sim", "stats"]),
];
const PURE: [&str; 4] = ["attribution", "lab", "machine", "stats"];

/// A file of the house: its path from the root, with its text.
struct File {
    path: String,
    text: String,
}

impl File {
    fn is_rust(&self) -> bool {
        self.path.ends_with(".rs")
    }

    fn is_c(&self) -> bool {
        self.path.ends_with(".c") || self.path.ends_with(".h")
    }

    /// The crate that it belongs to.
    fn krate(&self) -> Option<&str> {
        self.path.strip_prefix("crates/")?.split('/').next()
    }

    /// Its lines, numbered, without comments and the contents of literals.
    fn code(&self) -> Vec<(usize, String)> {
        bare(&self.text).lines().enumerate().map(|(at, line)| (at + 1, line.to_owned())).collect()
    }
}

/// What the walk does not enter: products, and what is not ours.
const NOT_OURS: [&str; 4] = [".git", "target", "irqlab-runs", "book"];

fn collect(root: &Path, under: &Path, files: &mut Vec<File>) {
    for entry in fs::read_dir(under).unwrap().flatten() {
        let path = entry.path();
        let name = entry.file_name();
        if entry.file_type().unwrap().is_dir() {
            if !NOT_OURS.iter().any(|other| name == *other) {
                collect(root, &path, files);
            }
        } else if let Ok(bytes) = fs::read(&path) {
            let path = path.strip_prefix(root).unwrap().to_string_lossy().into_owned();
            files.push(File { path, text: String::from_utf8_lossy(&bytes).into_owned() });
        }
    }
}

fn house() -> Vec<File> {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).ancestors().nth(2).unwrap();
    let mut files = Vec::new();
    collect(root, root, &mut files);
    assert!(files.len() > 100, "the walk found {} files only", files.len());
    files
}

/// Holds a rule against the house, after seeing it fail on each of `bad`: path and text.
fn hold(rule: &str, check: fn(&[File]) -> Vec<String>, bad: &[(&str, &str)]) {
    for (path, text) in bad {
        let file = File { path: (*path).to_owned(), text: (*text).to_owned() };
        assert!(!check(&[file]).is_empty(), "this check cannot fail: {path}\n{text}");
    }
    let broken = check(&house());
    assert!(broken.is_empty(), "{rule}\n  {}", broken.join("\n  "));
}

fn directions(files: &[File]) -> Vec<String> {
    let ours = |name: &str| MAY_USE.iter().any(|(krate, _)| *krate == name);
    let mut broken = Vec::new();
    for file in files.iter().filter(|file| file.path.ends_with("/Cargo.toml")) {
        let Some(krate) = file.krate() else { continue };
        let Some((_, may)) = MAY_USE.iter().find(|(name, _)| *name == krate) else {
            broken.push(format!("{}: {krate} has no line in MAY_USE", file.path));
            continue;
        };
        for (line, name, _) in dependencies(&file.text) {
            if ours(name) && !may.contains(&name) {
                broken.push(format!("{}:{line}: {krate} uses {name}", file.path));
            }
        }
    }
    broken
}

#[test]
fn dependencies_point_one_way() {
    hold(
        "command -> experiment -> bench -> statistics; results pass through `record` only. A new \
         arrow is a design decision: see ARCHITECTURE.md",
        directions,
        &[
            ("crates/stats/Cargo.toml", "[dependencies]\nlive.workspace = true\n"),
            ("crates/report/Cargo.toml", "[dev-dependencies]\nlab = { workspace = true }\n"),
            ("crates/lab/Cargo.toml", "[dependencies]\nirqlab.workspace = true\n"),
            ("crates/cellar/Cargo.toml", "[dependencies]\n"),
        ],
    );
}

/// Lines of Rust that have one of `words`, in the files that `whose` picks.
fn mentions(files: &[File], whose: fn(&File) -> bool, words: &[&str]) -> Vec<String> {
    let mut broken = Vec::new();
    for file in files.iter().filter(|file| file.is_rust() && whose(file)) {
        for (line, code) in file.code() {
            if let Some(word) = words.iter().find(|word| has_word(&code, word)) {
                broken.push(format!("{}:{line}: {word}", file.path));
            }
        }
    }
    broken
}

fn impurities(files: &[File]) -> Vec<String> {
    let is_pure = |file: &File| {
        file.path.contains("/src/") && file.krate().is_some_and(|krate| PURE.contains(&krate))
    };
    let words = [
        "std::fs",
        "std::io",
        "std::net",
        "std::process",
        "std::env",
        "std::thread",
        "std::{", // one `use` a module, so that this test sees it
        "Instant",
        "SystemTime",
        "print!",
        "println!",
        "eprint!",
        "eprintln!",
        "static mut",
        "thread_local!",
        "OnceLock",
        "LazyLock",
    ];
    mentions(files, is_pure, &words)
}

#[test]
fn pure_crates_do_no_io_read_no_clock_and_hold_no_globals() {
    hold(
        "these crates compute: the same input gives the same result, on any bench and in any test",
        impurities,
        &[
            ("crates/stats/src/a.rs", "use std::fs::File;\n"),
            ("crates/lab/src/a.rs", "let now = std::time::Instant::now();\n"),
            ("crates/attribution/src/a.rs", "static mut DEPTH: u32 = 0;\n"),
        ],
    );
}

/// The crates that talk to a kernel, to QEMU or to bare hardware.
const MAY_BE_UNSAFE: [&str; 5] = ["bare", "guest", "live", "plugin", "sim"];

fn unsafe_elsewhere(files: &[File]) -> Vec<String> {
    let is_safe = |file: &File| file.krate().is_none_or(|krate| !MAY_BE_UNSAFE.contains(&krate));
    mentions(files, is_safe, &["unsafe"])
}

#[test]
fn only_the_benches_have_unsafe_code() {
    let bad = [("crates/record/src/a.rs", "fn f() { unsafe { g() } }\n")];
    hold("what talks to the kernel or to QEMU is read with care", unsafe_elsewhere, &bad);
}

fn parquet_elsewhere(files: &[File]) -> Vec<String> {
    let mut broken = mentions(files, |file| file.krate() != Some("record"), &["parquet::"]);
    let manifests = files.iter().filter(|file| file.path.ends_with("/Cargo.toml"));
    for file in manifests.filter(|file| file.krate() != Some("record")) {
        if dependencies(&file.text).iter().any(|(_, name, _)| *name == "parquet") {
            broken.push(format!("{}: parquet", file.path));
        }
    }
    broken
}

#[test]
fn only_record_knows_the_file_format() {
    hold(
        "the format of a run changes in one place, with its version and its golden files",
        parquet_elsewhere,
        &[
            ("crates/report/src/a.rs", "use parquet::file::reader::FileReader;\n"),
            ("crates/lab/Cargo.toml", "[dependencies]\nparquet.workspace = true\n"),
        ],
    );
}

fn long_files(files: &[File]) -> Vec<String> {
    let most = |file: &File| match file.path.ends_with("/main.rs") {
        true => MAIN_LINES_MAX,
        false => FILE_LINES_MAX,
    };
    let sources = files.iter().filter(|file| file.is_rust() || file.is_c());
    sources
        .map(|file| (file, file.text.lines().count()))
        .filter(|(file, lines)| *lines > most(file))
        .map(|(file, lines)| format!("{}: {lines} lines of at most {}", file.path, most(file)))
        .collect()
}

#[test]
fn files_are_short() {
    let (long, main) = ("// line\n".repeat(FILE_LINES_MAX + 1), "\n".repeat(MAIN_LINES_MAX + 1));
    hold(
        "a file is one thought; main.rs is a table of contents",
        long_files,
        &[
            ("crates/live/src/a.rs", &long),
            ("crates/live/bpf/a.bpf.c", &long),
            ("crates/irqlab/src/main.rs", &main),
        ],
    );
}

fn long_functions(files: &[File]) -> Vec<String> {
    let mut broken = Vec::new();
    for file in files.iter().filter(|file| file.is_rust() || file.is_c()) {
        let lines = file.code();
        for (at, (number, line)) in lines.iter().enumerate() {
            let begins = if file.is_rust() { begins_function(line) } else { line == "{" };
            let length = if begins { function_lines(&lines[at..]) } else { None };
            if let Some(length) = length.filter(|length| *length > FUNCTION_LINES_MAX) {
                broken.push(format!("{}:{number}: {length} lines", file.path));
            }
        }
    }
    broken
}

#[test]
fn functions_are_short() {
    let body = "    g();\n".repeat(FUNCTION_LINES_MAX - 1);
    let rust = format!("pub fn f(a: [u8; 4]) -> char {{\n{body}    '}}'\n}}\n");
    let c = format!("int f(void)\n{{\n{body}}}\n");
    hold(
        "a function fits on a screen",
        long_functions,
        &[("crates/live/src/a.rs", &rust), ("crates/live/bpf/a.h", &c)],
    );
}

fn unexplained(files: &[File]) -> Vec<String> {
    let mut broken = Vec::new();
    for file in files.iter().filter(|file| file.path.ends_with("Cargo.toml")) {
        for (line, name, text) in dependencies(&file.text) {
            let explained = text.contains("workspace = true")
                || text.contains("path = ")
                || text.split_once(" # ").is_some_and(|(_, reason)| reason.len() > 5);
            if !explained {
                broken.push(format!("{}:{line}: {name}", file.path));
            }
        }
    }
    broken
}

#[test]
fn every_dependency_has_its_reason() {
    let bad = [("Cargo.toml", "[workspace.dependencies]\nanyhow = \"1\"\n")];
    hold("a dependency is a cost; its line says what it is there for", unexplained, &bad);
}

fn places_on_a_machine(files: &[File]) -> Vec<String> {
    let directories = ["work", "root", "home"].map(|name| format!("/{name}/"));
    let mut broken = Vec::new();
    for file in files {
        for (at, line) in file.text.lines().enumerate() {
            if directories.iter().any(|directory| has_word(line, directory)) {
                broken.push(format!("{}:{}: {}", file.path, at + 1, line.trim()));
            }
        }
    }
    broken
}

#[test]
fn no_file_names_a_place_on_somebodys_machine() {
    let text = format!("cd /{}/irqlab\n", "home/me");
    let bad = [("docs/a.md", text.as_str()), ("crates/live/src/a.rs", text.as_str())];
    hold("such a path is true on one machine only", places_on_a_machine, &bad);
}

fn dead_links(files: &[File]) -> Vec<String> {
    let exists = |path: &str| {
        files.iter().any(|file| file.path == path || file.path.starts_with(&format!("{path}/")))
    };
    let mut broken = Vec::new();
    for file in files.iter().filter(|file| file.path.ends_with(".md")) {
        for (line, target) in links(&file.text) {
            let mut place: Vec<&str> = file.path.split('/').collect();
            place.pop();
            for step in target.trim_end_matches('/').split('/') {
                match step {
                    "." => {}
                    ".." => drop(place.pop()),
                    name => place.push(name),
                }
            }
            if !exists(&place.join("/")) {
                broken.push(format!("{}:{line}: {target}", file.path));
            }
        }
    }
    broken
}

#[test]
fn links_lead_somewhere() {
    let bad = [("docs/a.md", "see [the page](../docs/gone.md#part)\n")];
    hold("a reader follows links", dead_links, &bad);
}

fn unlisted_pages(files: &[File]) -> Vec<String> {
    let summary = files.iter().find(|file| file.path == "docs/SUMMARY.md");
    let listed = summary.map(|file| links(&file.text)).unwrap_or_default();
    let pages = files.iter().filter_map(|file| file.path.strip_prefix("docs/"));
    pages
        .filter(|page| page.ends_with(".md") && *page != "SUMMARY.md")
        .filter(|page| !listed.iter().any(|(_, target)| target.trim_start_matches("./") == *page))
        .map(str::to_owned)
        .collect()
}

#[test]
fn every_page_is_in_the_table_of_contents() {
    let bad = [("docs/lost.md", "# Lost\n")];
    hold("a page that SUMMARY.md does not list is in no book", unlisted_pages, &bad);
}
