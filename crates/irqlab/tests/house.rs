//! Rules on the repository's texts that no linter knows. Each rule says why it is there. A test also tries
//! each rule on files that break it: a rule that cannot fail is an error.
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

/// Names of files and directories that the walk skips: products, and files that are not part of the project.
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
        if SKIPPED.iter().any(|skipped| name == *skipped) {
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

/// The path from the root of a link's target on a page.
fn target_path(page: &str, target: &str) -> String {
    let mut steps: Vec<&str> = page.split('/').collect();
    steps.pop();
    for step in target.trim_end_matches('/').split('/') {
        match step {
            "." => {}
            ".." => drop(steps.pop()),
            name => steps.push(name),
        }
    }
    steps.join("/")
}

fn pages(files: &[File]) -> impl Iterator<Item = &File> {
    files.iter().filter(|file| file.path.ends_with(".md"))
}

fn dead_links(files: &[File]) -> Vec<String> {
    let exists = |path: &str| {
        files.iter().any(|file| file.path == path || file.path.starts_with(&format!("{path}/")))
    };
    let mut broken = Vec::new();
    for page in pages(files) {
        for (line, target) in links(&page.text) {
            if !exists(&target_path(&page.path, target)) {
                broken.push(format!("{}:{line}: {target}", page.path));
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

/// Links to headings that a page does not have.
fn dead_fragments(files: &[File]) -> Vec<String> {
    let mut broken = Vec::new();
    for page in pages(files) {
        for (line, target, fragment) in fragments(&page.text) {
            let path = match target {
                "" => page.path.clone(),
                target => target_path(&page.path, target),
            };
            // `dead_links` reports a page that does not exist.
            let Some(linked) = pages(files).find(|page| page.path == path) else { continue };
            if !anchors(&linked.text).contains(&fragment.to_owned()) {
                broken.push(format!("{}:{line}: {target}#{fragment}", page.path));
            }
        }
    }
    broken
}

#[test]
fn links_lead_to_headings() {
    let bad = [("docs/a.md", "# A page\n\nsee [below](#a-part)\n")];
    hold("a reader lands at the top of a page whose heading is gone", dead_fragments, &bad);
}

/// Names of headings as links have them: lower case, `-` for spaces, other punctuation left out. A heading
/// that comes again has a number.
fn anchors(text: &str) -> Vec<String> {
    let mut found: Vec<(String, usize)> = Vec::new();
    let mut anchors = Vec::new();
    for (_, line) in lines_outside_of_code(text) {
        let Some(title) = line.trim_start_matches('#').strip_prefix(' ') else { continue };
        if !line.starts_with('#') {
            continue;
        }
        let is_kept = |sign: &char| sign.is_alphanumeric() || ['-', '_', ' '].contains(sign);
        let anchor: String = title.trim().to_lowercase().chars().filter(is_kept).collect();
        let anchor = anchor.replace(' ', "-");
        match found.iter_mut().find(|(known, _)| *known == anchor) {
            Some((_, times)) => {
                anchors.push(format!("{anchor}-{times}"));
                *times += 1;
            }
            None => {
                anchors.push(anchor.clone());
                found.push((anchor, 1));
            }
        }
    }
    anchors
}

/// Lines of a page that are no code, with their numbers.
fn lines_outside_of_code(text: &str) -> impl Iterator<Item = (usize, &str)> {
    let mut is_code = false;
    text.lines().zip(1..).filter_map(move |(line, number)| {
        let is_fence = line.trim_start().starts_with("```");
        is_code ^= is_fence;
        (!is_code && !is_fence).then_some((number, line))
    })
}

/// Past campaigns: texts as they were recorded, outside of the book.
const CAMPAIGNS: &str = "docs/campaigns/";

fn unlisted_pages(files: &[File]) -> Vec<String> {
    let summary = files.iter().find(|file| file.path == "docs/SUMMARY.md");
    let listed = summary.map(|file| links(&file.text)).unwrap_or_default();
    pages(files)
        .filter(|page| !page.path.starts_with(CAMPAIGNS))
        .filter_map(|page| page.path.strip_prefix("docs/"))
        .filter(|page| *page != "SUMMARY.md")
        .filter(|page| !listed.iter().any(|(_, target)| target.trim_start_matches("./") == *page))
        .map(str::to_owned)
        .collect()
}

#[test]
fn every_page_is_in_the_table_of_contents() {
    let bad = [("docs/lost.md", "# Lost\n")];
    hold("a page that SUMMARY.md does not list is in no book", unlisted_pages, &bad);
}

fn campaigns_without_a_date(files: &[File]) -> Vec<String> {
    let is_dated = |name: &str| {
        let start: String = name.chars().take(11).collect();
        start.replace(|sign: char| sign.is_ascii_digit(), "0") == "0000-00-00-"
    };
    let names = files.iter().filter_map(|file| file.path.strip_prefix(CAMPAIGNS));
    names.filter(|name| !is_dated(name)).map(str::to_owned).collect()
}

#[test]
fn campaigns_have_their_date_in_the_name() {
    let bad = [("docs/campaigns/speed.md", ""), ("docs/campaigns/2026-1-speed.md", "")];
    hold("docs/campaigns has files DATE-NAME.md", campaigns_without_a_date, &bad);
}

/// A row of a table with the columns `claim` and `figure`.
struct Claim<'a> {
    line: usize,
    /// The text of the column `claim`, without its links.
    claim: String,
    figure: &'a str,
    /// The last cell of the row.
    last_cell: &'a str,
}

fn claims(text: &str) -> Vec<Claim<'_>> {
    let mut found = Vec::new();
    let mut columns: Option<Vec<&str>> = None;
    for (line, row) in lines_outside_of_code(text) {
        let Some(row) = row.strip_prefix('|').and_then(|row| row.strip_suffix('|')) else {
            columns = None;
            continue;
        };
        let cells: Vec<&str> = row.split('|').map(str::trim).collect();
        let Some(columns) = &columns else {
            columns = Some(cells);
            continue;
        };
        let cell =
            |title: &str| cells.get(columns.iter().position(|column| *column == title)?).copied();
        let (Some(claim), Some(figure)) = (cell("claim"), cell("figure")) else { continue };
        if !figure.starts_with("---") {
            let claim = without_links(claim).to_lowercase();
            let last_cell = cells.last().copied().unwrap_or_default();
            found.push(Claim { line, claim, figure, last_cell });
        }
    }
    found
}

/// A text with the words of its Markdown links, without their targets.
fn without_links(text: &str) -> String {
    let mut parts = text.split("](");
    let mut plain = parts.next().unwrap_or_default().to_owned();
    for part in parts {
        plain.push_str(part.split_once(')').map_or("", |(_, after)| after));
    }
    plain.replace('[', "")
}

fn claims_with_two_values(files: &[File]) -> Vec<String> {
    let mut known: Vec<(String, String, String)> = Vec::new();
    let mut broken = Vec::new();
    for page in pages(files).filter(|page| !page.path.starts_with(CAMPAIGNS)) {
        for row in claims(&page.text) {
            let here = format!("{}:{}", page.path, row.line);
            match known.iter().find(|(claim, ..)| *claim == row.claim) {
                Some((_, figure, there)) if figure != row.figure => {
                    broken.push(format!("{here} and {there}: {}", row.claim));
                }
                Some(_) => {}
                None => known.push((row.claim, row.figure.to_owned(), here)),
            }
        }
    }
    broken
}

#[test]
fn a_claim_has_one_value() {
    let table = "| claim | figure |\n|---|---|\n| speed | 1 s |\n| [speed](a.md) | 2 s |\n";
    let bad = [("docs/a.md", table)];
    hold("the same claim has the same figure on each page", claims_with_two_values, &bad);
    let claims_of = |name: &str| {
        let page = house().into_iter().find(|file| file.path == name).unwrap();
        claims(&page.text).into_iter().map(|row| row.claim).collect::<Vec<_>>()
    };
    let [accuracy, validation] = ["docs/accuracy.md", "docs/validation.md"].map(claims_of);
    let shared = accuracy.iter().filter(|claim| validation.contains(claim)).count();
    assert!(shared >= 30, "only {shared} claims of accuracy.md are in validation.md");
}

fn claims_without_a_commit(files: &[File]) -> Vec<String> {
    let mut broken = Vec::new();
    for page in files.iter().filter(|file| file.path == "docs/validation.md") {
        for row in claims(&page.text) {
            let has_date = row.last_cell.starts_with("20");
            let mut codes = row.last_cell.split('`').skip(1).step_by(2);
            let is_commit =
                |code: &str| code.len() >= 7 && code.bytes().all(|sign| sign.is_ascii_hexdigit());
            if !has_date || !codes.any(is_commit) {
                broken.push(format!("{}:{}: {}", page.path, row.line, row.last_cell));
            }
        }
        let lines = page.text.lines().count();
        if lines >= 400 {
            broken.push(format!("{} has {lines} lines: campaigns are in {CAMPAIGNS}", page.path));
        }
    }
    broken
}

#[test]
fn each_claim_of_validation_has_its_date_and_commit() {
    let row =
        "| claim | figure | command | date, commit |\n|---|---|---|---|\n| a | 1 s | b | today |\n";
    let long = "text\n".repeat(400);
    let bad = [("docs/validation.md", row), ("docs/validation.md", &long)];
    hold("a claim can be repeated by its command and commit", claims_without_a_commit, &bad);
}

/// Pages whose section "How accurate it is" has figures, and why.
const FIGURES_OF_THEIR_OWN: [(&str, &str); 3] = [
    ("docs/accuracy.md", "the page of all accuracy figures"),
    ("docs/compare.md", "limits that its rules and tests use"),
    ("README.md", "the summary for those who have not opened the manual"),
];

/// Figures in the sections of other pages than accuracy.md that say how accurate a number is.
fn accuracy_figures_elsewhere(files: &[File]) -> Vec<String> {
    let mut broken = Vec::new();
    for page in pages(files) {
        let has_its_own = FIGURES_OF_THEIR_OWN.iter().any(|(path, _)| *path == page.path);
        if has_its_own || page.path.starts_with(CAMPAIGNS) {
            continue;
        }
        let mut is_accuracy = false;
        for (line, text) in lines_outside_of_code(&page.text) {
            if text.starts_with('#') || text.starts_with("**") {
                is_accuracy = text.to_lowercase().contains("how accurate");
            }
            let has_figure = [" %", "±"].iter().any(|sign| text.contains(sign));
            if is_accuracy && has_figure {
                broken.push(format!("{}:{line}: {text}", page.path));
            }
        }
    }
    broken
}

#[test]
fn accuracy_figures_are_on_one_page() {
    let bad = [
        ("docs/a.md", "## How accurate it is\n\n| means | within 2 % |\n"),
        ("docs/faq.md", "**How accurate are the numbers?**\n−5.1 to 2.4 %\n"),
    ];
    let rule = "an accuracy figure stands on accuracy.md; other pages link to it";
    hold(rule, accuracy_figures_elsewhere, &bad);
}

/// Names of modules, items and types on pages that the code does not have.
fn unknown_names(files: &[File]) -> Vec<String> {
    let mut broken = Vec::new();
    for page in pages(files).filter(|page| !page.path.starts_with(CAMPAIGNS)) {
        for (line, text) in lines_outside_of_code(&page.text) {
            let codes = text.split('`').skip(1).step_by(2);
            for name in codes.filter(|code| !is_known(files, &page.path, code)) {
                broken.push(format!("{}:{line}: {name}", page.path));
            }
        }
    }
    broken
}

/// Whether code on a page names something that exists, or is no name of an item. docs/cores.md names types
/// of the crate `machine` without their path.
fn is_known(files: &[File], page: &str, code: &str) -> bool {
    let is_name = code.chars().all(|sign| sign.is_alphanumeric() || ['_', ':'].contains(&sign));
    // `NAME` stands for the reader's own.
    if !is_name || code.contains("NAME") {
        return true;
    }
    match &code.split("::").collect::<Vec<_>>()[..] {
        [name] if page == "docs/cores.md" && is_type(name) => has_item(files, "machine", &[name]),
        [crate_name, path @ ..] if is_crate(files, crate_name) => has_item(files, crate_name, path),
        _ => true,
    }
}

/// Paths of sources on pages, from the root or from `crates/`, that do not exist.
fn unknown_paths(files: &[File]) -> Vec<String> {
    let is_path = |code: &str| {
        ["/src/", "/tests/", "/bpf/", "/examples/"].iter().any(|part| code.contains(part))
            && code.chars().all(|sign| sign.is_alphanumeric() || "_-/.".contains(sign))
            && !code.contains("NAME")
    };
    let exists = |path: &str| {
        let inside = format!("{path}/");
        files.iter().any(|file| file.path == path || file.path.starts_with(&inside))
    };
    let mut broken = Vec::new();
    for page in pages(files).filter(|page| !page.path.starts_with(CAMPAIGNS)) {
        for (line, text) in lines_outside_of_code(&page.text) {
            for code in text.split('`').skip(1).step_by(2).filter(|code| is_path(code)) {
                let path = code.trim_end_matches('/');
                if !exists(path) && !exists(&format!("crates/{path}")) {
                    broken.push(format!("{}:{line}: {code}", page.path));
                }
            }
        }
    }
    broken
}

#[test]
fn pages_name_sources_that_exist() {
    let bad = [("ARCHITECTURE.md", "| `live/src/gone.rs` | what it was |\n")];
    hold("a reader opens these files", unknown_paths, &bad);
}

/// Whether a name is written as Rust's types are: `InOrderCore`.
fn is_type(name: &str) -> bool {
    let has_small = name.contains(|sign: char| sign.is_ascii_lowercase());
    has_small && name.starts_with(|sign: char| sign.is_ascii_uppercase())
}

fn is_crate(files: &[File], name: &str) -> bool {
    files.iter().any(|file| file.path == format!("crates/{name}/src/lib.rs"))
}

/// Whether a crate has a module of this path, or a module with the item that ends the path.
fn has_item(files: &[File], crate_name: &str, path: &[&str]) -> bool {
    let mut module = format!("crates/{crate_name}/src");
    let sources_of = |module: &str| -> Vec<&File> {
        let (file_name, directory) = (format!("{module}.rs"), format!("{module}/"));
        let is_part = |path: &str| path == file_name || path.starts_with(&directory);
        files.iter().filter(|file| is_part(&file.path)).collect()
    };
    for step in path {
        let inner = format!("{module}/{step}");
        if sources_of(&inner).is_empty() {
            let kinds = ["fn", "struct", "enum", "trait", "type", "const", "static", "mod"];
            let definitions = kinds.map(|kind| format!("{kind} {step}"));
            return sources_of(&module)
                .iter()
                .any(|file| definitions.iter().any(|line| has_word(&file.text, line)));
        }
        module = inner;
    }
    true
}

#[test]
fn pages_name_modules_and_types_that_exist() {
    let bad = [("docs/cores.md", "the caller passes `GoneCore`\n")];
    hold("a reader searches the code for these names", unknown_names, &bad);
    let file = |path: &str, text: &str| File { path: path.to_owned(), text: text.to_owned() };
    let library = || file("crates/machine/src/lib.rs", "pub mod core;\n");
    let unknown = |text: &str| unknown_names(&[library(), file("docs/cores.md", text)]);
    assert_eq!(unknown("`machine::gone` gives each instruction its times").len(), 1);
    assert_eq!(unknown("`machine::core` gives each instruction its times").len(), 0);
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
            .filter(|used| crates.iter().any(|(name, _)| name == used))
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
            "live/src/irq_lines/session.rs",
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
            "plugin/src/models/block_trace.rs",
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
        if WRITERS.iter().flat_map(|(_, paths)| *paths).any(|allowed| path.starts_with(allowed)) {
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
        ["not run", "not tested", "skipped"].map(|start| format!("print{}(\"{start}", "ln!"));
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
    /// Its line, from 1.
    at: usize,
    is_test: bool,
    /// Whether it returns an `Option` or a `bool`.
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

/// Tests that end early, without a call just before that gives the reason by `needs::not_run`.
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
    // Finds callers of the functions that were found last, until there are no more.
    let mut last = speakers.clone();
    while !last.is_empty() {
        let helpers = all.iter().filter(|function| !function.is_test && function.can_refuse);
        let new =
            helpers.filter(|helper| !speakers.contains(&helper.name) && calls(&helper.body, &last));
        let new: Vec<&str> = new.map(|helper| helper.name).collect();
        speakers.extend(&new);
        last = new;
    }
    let is_end = |line: &str| {
        ["return;", "{ return }", "return Ok(())"].iter().any(|end| line.contains(end))
    };
    let mut broken = Vec::new();
    for test in all.iter().filter(|function| function.is_test) {
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

/// A file that may start a thread which panics where the kernel refuses it: the time of the call itself is
/// measured.
const MAY_PANIC_FOR_A_THREAD: &str = "crates/kernels/src/system.rs";

/// Lines outside of tests with a call that starts a thread and panics where it is refused: `thread::spawn`,
/// `Scope::spawn` under any name of the scope, and indicatif's redrawing; and calls that read a program's output
/// and panic where that fails.
fn threads_that_panic(files: &[File]) -> Vec<String> {
    let sources = files.iter().filter(|file| {
        file.path.starts_with("crates/")
            && file.path.contains("/src/")
            && file.path.ends_with(".rs")
    });
    let mut broken = Vec::new();
    let sources = sources.filter(|file| !file.path.contains("/tests"));
    for file in sources.filter(|file| file.path != MAY_PANIC_FOR_A_THREAD) {
        let code = file.text.split("#[cfg(test)]").next().unwrap_or_default();
        let scopes: Vec<String> = code
            .split("thread::scope(|")
            .skip(1)
            .filter_map(|after_bar| after_bar.split('|').next())
            .map(|scope| format!("{}.spawn(", scope.trim()))
            .collect();
        for (at, line) in code.lines().enumerate() {
            let panics = [
                "thread::spawn(",
                "scope.spawn(",
                "enable_steady_tick(",
                "command.output(",
                "wait_with_output(",
            ];
            let has_word = |call: &str| has_word(line, call);
            if panics.into_iter().chain(scopes.iter().map(String::as_str)).any(has_word) {
                broken.push(format!("{}:{}: {}", file.path, at + 1, line.trim()));
            }
        }
    }
    broken
}

#[test]
fn a_thread_that_the_kernel_refuses_is_an_error() {
    let bad = [
        "std::thread::spawn(body);",
        "    scope.spawn(|| body());",
        "std::thread::scope(|threads| { threads.spawn(|| body()); });",
        "bar.enable_steady_tick(SECOND);",
        "let output = command.output();",
        "child.wait_with_output()?;",
    ];
    let rule = "these calls panic at a limit of processes or an error of a pipe; live::spawn, thread::Builder and outputs::output_of_program return the error";
    hold(rule, threads_that_panic, &bad.map(|text| ("crates/live/src/a.rs", text)));
}

/// Whether `word` stands in `code`, and not as a part of a longer name.
fn has_word(code: &str, word: &str) -> bool {
    let of_name = |sign: char| sign.is_alphanumeric() || sign == '_';
    code.match_indices(word).any(|(start, _)| {
        let goes_on = word.ends_with(of_name) && code[start + word.len()..].starts_with(of_name);
        !code[..start].ends_with(of_name) && !goes_on
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

/// Targets of the Markdown links of a text that name a heading: line number, path (empty for the same page),
/// name of the heading.
fn fragments(text: &str) -> Vec<(usize, &str, &str)> {
    let mut found = Vec::new();
    for (line, text) in lines_outside_of_code(text) {
        for part in text.split("](").skip(1) {
            let target = part.split([')', ' ']).next().unwrap_or_default();
            if let Some((path, fragment)) = target.split_once('#')
                && !target.contains("://")
            {
                found.push((line, path, fragment));
            }
        }
    }
    found
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
