//! Rules on the repository's texts that no linter knows. Each rule says why it is there; each is also
//! tried on files that break it, so that a rule which cannot fail is found.
//!
//! Other rules are the compiler's (`forbid(unsafe_code)`), clippy's (tools/lints/clippy.toml: pure
//! crates do no IO, read no clock and hold no globals) and cargo-deny's (deny.toml: which crate may use
//! which).

use std::fs;
use std::path::Path;

/// A file of the house: its path from the root, with its text.
struct File {
    path: String,
    text: String,
}

/// What the walk does not enter: products, and what is not part of the project.
const SKIPPED: [&str; 8] = [
    ".git",
    "target",
    "irqlab-runs",
    "book",
    "found",
    "__pycache__",
    ".mypy_cache",
    ".pytest_cache",
];

fn collect(root: &Path, under: &Path, files: &mut Vec<File>) {
    for entry in fs::read_dir(under).unwrap().flatten() {
        let path = entry.path();
        let name = entry.file_name();
        // A work tree of git has a file `.git`, with a place on this machine.
        if SKIPPED.iter().any(|other| name == *other) {
            continue;
        }
        if entry.file_type().unwrap().is_dir() {
            collect(root, &path, files);
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

/// Rows of the code map whose uses differ from Cargo's graph, crates without a row, and rows without a crate.
fn crates_unlike_the_map(files: &[File]) -> Vec<String> {
    let map = files.iter().find(|file| file.path == "ARCHITECTURE.md");
    let rows: Vec<(&str, Vec<&str>)> =
        map.into_iter().flat_map(|file| file.text.lines()).filter_map(row_of_a_crate).collect();
    let crates: Vec<(&str, &str)> = files.iter().filter_map(manifest_of_a_crate).collect();
    let mut broken = Vec::new();
    for (name, toml) in &crates {
        let uses: Vec<&str> = used_crates(toml)
            .into_iter()
            .filter(|used| crates.iter().any(|(other, _)| other == used))
            .collect();
        match rows.iter().find(|(row, _)| row == name) {
            Some((_, stated)) if *stated == uses => {}
            Some(_) => broken.push(format!("{name} uses: {}", uses.join(", "))),
            None => broken.push(format!("{name} has no row")),
        }
    }
    let unknown = rows.iter().filter(|(row, _)| crates.iter().all(|(name, _)| name != row));
    broken.extend(unknown.map(|(row, _)| format!("there is no crate {row}")));
    broken
}

/// A row of ARCHITECTURE.md's table of crates: the name, and the crates that it uses.
fn row_of_a_crate(line: &str) -> Option<(&str, Vec<&str>)> {
    let cells: Vec<&str> = line.strip_prefix('|')?.strip_suffix('|')?.split('|').collect();
    let [name, _, uses] = cells[..] else { return None };
    let name = name.trim().strip_prefix('`')?.strip_suffix('`')?;
    let is_crate = name.chars().all(|sign| sign.is_ascii_lowercase() || sign == '_');
    let uses = uses.split(',').map(str::trim).filter(|used| !used.is_empty());
    is_crate.then(|| (name, uses.collect()))
}

/// The name of a crate of the workspace, and its Cargo.toml.
fn manifest_of_a_crate(file: &File) -> Option<(&str, &str)> {
    let name = file.path.strip_prefix("crates/")?.strip_suffix("/Cargo.toml")?;
    (!name.contains('/')).then_some((name, file.text.as_str()))
}

/// The crates in the sections of dependencies of the program itself, not of its tests or build.
fn used_crates(toml: &str) -> Vec<&str> {
    let lines = toml.lines().skip_while(|line| *line != "[dependencies]").skip(1);
    let lines = lines.take_while(|line| !line.starts_with('['));
    let names = lines.filter(|line| !line.starts_with('#'));
    let mut names: Vec<&str> =
        names.filter_map(|line| line.split(['.', ' ', '=']).next()).collect();
    names.sort_unstable();
    names
}

#[test]
fn the_map_of_crates_is_cargos_graph() {
    let bad = [
        ("crates/live/Cargo.toml", "[dependencies]\nlab.workspace = true\n"),
        ("ARCHITECTURE.md", "| `gone` | what it was | lab |\n"),
    ];
    let rule = "ARCHITECTURE.md names each crate and the crates that it uses, in order";
    hold(rule, crates_unlike_the_map, &bad);
}

/// Where files are created or replaced without `outputs`, and why.
const WRITERS: [(&str, &[&str]); 5] = [
    ("tests and the simulated machine's own files", &["fuzz_bodies/", "guest/", "needs/"]),
    (
        "settings of the kernel",
        &[
            "live/src/footprint/route.rs",
            "live/src/network/",
            "live/src/nic/",
            "live/src/selfbench/tracefs.rs",
        ],
    ),
    ("the journal: a directory that this user alone can write", &["live/src/journal/"]),
    ("for tests", &["live/src/host/pmu/machines.rs"]),
    (
        "files without a name, locks of the cache, and its new directories, which are renamed as a whole; for \
         developers, a trace that must be new",
        &[
            "plugin/src/block_trace.rs",
            "plugin/src/pmu/machine.rs",
            "plugin/src/writer.rs",
            "sim/src/cache/",
            "sim/src/checkpoint/",
            "sim/src/facts.rs",
            "sim/src/machine/devices.rs",
            "sim/src/rootfs/",
            "sim/src/setup/",
            "sim/src/watch/mod.rs",
        ],
    ),
];

fn writers_past_outputs(files: &[File]) -> Vec<String> {
    let signs = [
        " File::create",
        "fs::write(",
        "fs::rename(",
        "fs::copy(",
        ".create(true)",
        ".create_new(true)",
    ];
    let is_source = |file: &&File| {
        file.path.ends_with(".rs")
            && file.path.starts_with("crates/")
            && file.path.contains("/src/")
    };
    let mut broken = Vec::new();
    for file in files.iter().filter(is_source) {
        let path = file.path.trim_start_matches("crates/");
        if WRITERS.iter().flat_map(|(_, places)| *places).any(|place| path.starts_with(place)) {
            continue;
        }
        let code = file.text.split("#[cfg(test)]").next().unwrap_or_default();
        for (at, line) in code.lines().enumerate() {
            if signs.iter().any(|sign| line.contains(sign)) {
                broken.push(format!("{}:{}: {}", file.path, at + 1, line.trim()));
            }
        }
    }
    broken
}

#[test]
fn files_that_users_name_are_written_by_one_function() {
    let text = format!("fn f() {{ std::{}path, text); }}\n", "fs::write(");
    let bad = [("crates/irqlab/src/verbs/a.rs", text.as_str()), ("crates/record/src/a.rs", &text)];
    hold("outputs writes them: whole, over nothing but regular files", writers_past_outputs, &bad);
}

fn tests_that_skip_in_silence(files: &[File]) -> Vec<String> {
    let signs =
        ["not run", "not tested", "skipped"].map(|words| format!("print{}(\"{words}", "ln!"));
    let of_tests = files
        .iter()
        .filter(|file| file.path.ends_with(".rs") && !file.path.starts_with("crates/needs/"));
    let mut broken = Vec::new();
    for file in of_tests {
        for (at, line) in file.text.lines().enumerate() {
            if signs.iter().any(|sign| line.contains(sign)) {
                broken.push(format!("{}:{}: {}", file.path, at + 1, line.trim()));
            }
        }
    }
    broken
}

#[test]
fn a_test_that_does_not_run_says_what_it_needs() {
    let text = format!("        return print{}(\"not run: no QEMU\");\n", "ln!");
    let bad = [("crates/sim/tests/a.rs", text.as_str())];
    let rule = "needs::not_run fails where the need is required";
    hold(rule, tests_that_skip_in_silence, &bad);
}

/// A function of a file.
struct Function<'a> {
    file: &'a File,
    /// Its line.
    at: usize,
    is_test: bool,
    /// Whether it can say that there is nothing: it returns an `Option` or a `bool`.
    can_refuse: bool,
    name: &'a str,
    body: Vec<&'a str>,
}

fn functions(file: &File) -> Vec<Function<'_>> {
    let lines: Vec<&str> = file.text.lines().collect();
    let mut found = Vec::new();
    for (at, line) in lines.iter().enumerate() {
        let code = line.trim_start();
        let Some(name) = code.strip_prefix("pub ").unwrap_or(code).strip_prefix("fn ") else {
            continue;
        };
        let name = name.split(['(', '<']).next().unwrap_or_default();
        let is_test = at > 0 && lines[at - 1].trim() == "#[test]";
        // rustfmt puts the end of a function where its start is.
        let end = format!("{}}}", &line[..line.len() - code.len()]);
        let body: Vec<&str> =
            lines[at + 1..].iter().take_while(|line| **line != end).copied().collect();
        // The return type may stand on a line of its own.
        let head = [*line, body.iter().find(|line| line.contains(") -> ")).unwrap_or(&"")];
        let can_refuse =
            head.iter().any(|line| line.contains("-> Option<") || line.contains("-> bool"));
        found.push(Function { file, at: at + 1, is_test, can_refuse, name, body });
    }
    found
}

/// Early ends of tests without a call, next to them, of a function that says why by `needs::not_run`.
fn tests_that_end_in_silence(files: &[File]) -> Vec<String> {
    let is_of_tests = |file: &&File| {
        let is_support = ["/tests/", "crates/needs/"].iter().any(|part| file.path.contains(part));
        is_support || file.text.contains("#[test]")
    };
    let of_rust = files.iter().filter(|file| file.path.ends_with(".rs")).filter(is_of_tests);
    let all: Vec<Function> = of_rust.flat_map(functions).collect();
    let mut speakers = vec!["not_run", "directory_of_the_killed"];
    let calls = |lines: &[&str], names: &[&str]| {
        let calls =
            |line: &str, name: &str| line.contains(name) && has_word(line, &format!("{name}("));
        lines.iter().any(|line| names.iter().any(|name| calls(line, name)))
    };
    // Callers of those found last, until there are no more.
    let mut last = speakers.clone();
    while !last.is_empty() {
        let helpers = all.iter().filter(|one| !one.is_test && one.can_refuse);
        let new = helpers.filter(|one| !speakers.contains(&one.name) && calls(&one.body, &last));
        let new: Vec<&str> = new.map(|one| one.name).collect();
        speakers.extend(&new);
        last = new;
    }
    let is_end = |line: &str| {
        ["return;", "{ return }", "return Ok(())"].iter().any(|end| line.contains(end))
    };
    let mut broken = Vec::new();
    for test in all.iter().filter(|one| one.is_test) {
        for (line, text) in test.body.iter().enumerate().filter(|(_, text)| is_end(text)) {
            if !calls(&test.body[line.saturating_sub(4)..=line], &speakers) {
                broken.push(format!("{}:{}: {}", test.file.path, test.at + line + 1, text.trim()));
            }
        }
    }
    broken
}

#[test]
fn a_test_does_not_end_early_in_silence() {
    let end = ["{ ", "return };"].concat();
    let bad = &format!("#[test]\nfn a() {{\n    let Ok(one) = open() else {end}\n}}\n");
    let rule = "a test that did not run must not look like one that passed (needs::not_run)";
    hold(rule, tests_that_end_in_silence, &[("crates/live/tests/a.rs", bad)]);
}

/// Files that may start a thread which panics where the kernel refuses it: the time of the call itself is
/// measured; a host without its disturbances is no hostile host.
const MAY_PANIC_FOR_A_THREAD: [&str; 2] =
    ["crates/kernels/src/system.rs", "crates/sim/src/hostile.rs"];

fn threads_that_panic(files: &[File]) -> Vec<String> {
    let sources = files.iter().filter(|file| {
        file.path.starts_with("crates/")
            && file.path.contains("/src/")
            && file.path.ends_with(".rs")
    });
    let mut broken = Vec::new();
    for file in sources.filter(|file| !MAY_PANIC_FOR_A_THREAD.contains(&file.path.as_str())) {
        let code = file.text.split("#[cfg(test)]").next().unwrap_or_default();
        for (at, line) in code.lines().enumerate() {
            if ["thread::spawn(", "scope.spawn("].iter().any(|call| line.contains(call)) {
                broken.push(format!("{}:{}: {}", file.path, at + 1, line.trim()));
            }
        }
    }
    broken
}

#[test]
fn a_thread_that_the_kernel_refuses_is_an_error() {
    let bad = ["std::thread::spawn(body);", "    scope.spawn(|| body());"];
    let rule = "these calls panic at a limit of processes; live::spawn and thread::Builder return the error";
    hold(rule, threads_that_panic, &bad.map(|text| ("crates/live/src/a.rs", text)));
}

/// Whether `word` stands in `code`, and not as a part of a longer name.
fn has_word(code: &str, word: &str) -> bool {
    let of_name = |sign: char| sign.is_alphanumeric() || sign == '_';
    code.match_indices(word).any(|(at, _)| {
        let goes_on = word.ends_with(of_name) && code[at + word.len()..].starts_with(of_name);
        !code[..at].ends_with(of_name) && !goes_on
    })
}

/// Entries of the dependency sections of a Cargo.toml: line number, crate, whole line.
fn dependencies(toml: &str) -> Vec<(usize, &str, &str)> {
    let mut inside = false;
    let mut entries = Vec::new();
    for (at, line) in toml.lines().enumerate() {
        if line.starts_with('[') {
            inside = line.trim_end_matches(']').ends_with("dependencies");
        } else if inside && !line.trim().is_empty() && !line.starts_with('#') {
            let name = line.split(['.', ' ', '=']).next().unwrap_or_default();
            entries.push((at + 1, name, line));
        }
    }
    entries
}

/// Targets of the Markdown links of a text that are files: line number, path.
fn links(text: &str) -> Vec<(usize, &str)> {
    let mut found = Vec::new();
    for (at, line) in text.lines().enumerate() {
        for part in line.split("](").skip(1) {
            let target = part.split([')', '#', ' ']).next().unwrap_or_default();
            if !target.is_empty() && !target.contains("://") {
                found.push((at + 1, target));
            }
        }
    }
    found
}
