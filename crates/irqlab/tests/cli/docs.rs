//! irqlab understands every command of the manual. The tests run the commands that are short and need no rights.
//!
//! A command is a line of a fenced block (` ``` `, `sh`, `console`, `yaml`) that starts with `irqlab`, perhaps
//! after `$`, `sudo` or `- run:`. Two spaces end it: an explanation may follow. Commands that measure or simulate
//! ([`PARSED_ONLY`]) are only parsed. A block after a line `<!-- not run: REASON -->` is left out.

use std::fs;
use std::path::{Path, PathBuf};

use crate::support::Place;

/// Verbs that are only parsed, each with the reason.
const PARSED_ONLY: [(&str, &str); 14] = [
    ("handlers", "measures"),
    ("affinity", "measures, and may change the machine"),
    ("noise", "measures"),
    ("wakeup", "measures"),
    ("footprint", "measures"),
    ("signal run", "measures"),
    ("signal undo", "changes the machine"),
    ("bench", "measures"),
    ("echo", "runs until it is stopped"),
    ("machines fit", "measures, and writes into the user's settings"),
    ("reproduce", "measures or simulates"),
    ("services", "measures or simulates"),
    ("sim", "simulates"),
    ("watch", "runs until it is stopped"),
];

/// Runs that earlier commands of the manual measure. Commands that use these runs are only parsed.
const MEASURED_RUNS: [&str; 5] = ["base", "new", "node", "quiet", "paper"];

/// A command in the manual.
#[derive(Clone, Debug, PartialEq, Eq)]
struct ManualCommand {
    /// `PAGE:LINE`.
    location: String,
    /// The arguments of `irqlab`.
    arguments: Vec<String>,
    /// The reason of the block's mark `not run`, if the block has one.
    not_run: Option<String>,
}

/// The commands of a page.
fn commands(name: &str, text: &str) -> Vec<ManualCommand> {
    let mut found = Vec::new();
    let (mut open, mut not_run, mut before) = (false, None, "");
    let mut lines = text.lines().enumerate();
    while let Some((number, line)) = lines.next() {
        let line = line.trim_start();
        if let Some(info) = line.strip_prefix("```") {
            // A block of another language is skipped to its end.
            let is_shell = ["", "sh", "console", "yaml"].contains(&info.trim());
            if !open && !is_shell {
                lines.by_ref().find(|(_, line)| line.trim() == "```");
                continue;
            }
            open = !open;
            let mark = before.strip_prefix("<!-- not run: ");
            not_run = mark.and_then(|mark| mark.strip_suffix(" -->")).map(str::to_owned);
        } else if open {
            let mut command = line.to_owned();
            while let Some(part) = command.strip_suffix('\\') {
                let next = lines.next().map_or("", |(_, line)| line.trim());
                command = format!("{} {next}", part.trim_end());
            }
            if let Some(arguments) = parse_arguments(&command) {
                let location = format!("{name}:{}", number + 1);
                found.push(ManualCommand { location, arguments, not_run: not_run.clone() });
            }
        }
        if !line.is_empty() {
            before = line;
        }
    }
    found
}

/// The arguments after `irqlab` up to a pipe, a redirection or an explanation. `None` without `irqlab`.
fn parse_arguments(line: &str) -> Option<Vec<String>> {
    let mut line = line;
    for prefix in ["- run: ", "- ", "$ ", "sudo "] {
        line = line.strip_prefix(prefix).unwrap_or(line);
    }
    let line = line.strip_prefix("irqlab ")?;
    let (mut quote, mut end, mut last) = (None, line.len(), ' ');
    for (position, char) in line.char_indices() {
        match quote {
            Some(open) if char == open => quote = None,
            None if char == '\'' || char == '"' => quote = Some(char),
            None if char == ' ' && last == ' ' && position > 0 => {
                end = position;
                break;
            }
            _ => {}
        }
        last = char;
    }
    let arguments = shlex::split(&line[..end])?;
    let is_operator = |word: &String| {
        ["|", "||", "&&", ";", "&"].contains(&word.as_str()) || word.starts_with(['>', '<'])
    };
    Some(arguments.into_iter().take_while(|word| !is_operator(word)).collect())
}

impl ManualCommand {
    /// The reason why the tests do not run it, or `None` if they do.
    fn reason(&self) -> Option<&str> {
        let line = self.arguments.join(" ");
        let has_verb = |verb: &str| {
            let after_verb = line.strip_prefix(verb);
            after_verb.is_some_and(|options| options.is_empty() || options.starts_with(' '))
        };
        let listed = PARSED_ONLY.iter().find(|(verb, _)| has_verb(verb)).map(|(_, why)| *why);
        let changes = line.contains("--apply").then_some("changes the machine");
        // `noise scale` computes.
        let listed = if has_verb("noise scale") { None } else { listed };
        let measured = self.arguments.iter().any(|word| MEASURED_RUNS.contains(&word.as_str()));
        let measured = measured.then_some("needs a run that is measured");
        self.not_run.as_deref().or(listed).or(changes).or(measured)
    }
}

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).ancestors().nth(2).unwrap().to_owned()
}

fn manual() -> Vec<ManualCommand> {
    let mut pages = vec![root().join("README.md")];
    pages.extend(fs::read_dir(root().join("docs")).unwrap().flatten().map(|entry| entry.path()));
    pages.retain(|page| page.extension().is_some_and(|extension| extension == "md"));
    pages.sort();
    let found = pages.iter().flat_map(|page| {
        let name = page.file_name().unwrap().to_string_lossy();
        commands(&name, &fs::read_to_string(page).unwrap())
    });
    found.collect()
}

/// Whether an argument has a placeholder for the reader's own name: `RUN`, `FILE.svg`.
fn has_placeholder(arguments: &[String]) -> bool {
    let is_placeholder =
        |part: &str| part.len() > 1 && part.bytes().all(|byte| byte.is_ascii_uppercase());
    arguments.iter().any(|word| {
        word.split(|char: char| !char.is_ascii_alphanumeric()).any(is_placeholder) && word != "LIST"
    })
}

/// irqlab refuses an unknown option before it prints its help. So `--help` checks the options.
#[test]
fn every_command_of_the_manual_is_understood() {
    let workspace = Place::new();
    let manual = manual();
    assert!(manual.len() > 130, "{} commands found", manual.len());
    let mut refused = Vec::new();
    for found in manual.iter().filter(|found| found.not_run.is_none()) {
        let mut arguments: Vec<&str> = found.arguments.iter().map(String::as_str).collect();
        let end = arguments.iter().position(|word| *word == "--").unwrap_or(arguments.len());
        arguments.insert(end, "--help");
        let ended = workspace.run(&arguments);
        if ended.code != Some(0) {
            let line = ended.err.lines().next().unwrap_or_default();
            refused.push(format!(
                "{}: irqlab {}\n    {line}",
                found.location,
                found.arguments.join(" ")
            ));
        }
    }
    assert!(refused.is_empty(), "{} commands:\n{}", refused.len(), refused.join("\n"));
}

#[test]
fn every_short_command_of_the_manual_runs() {
    let workspace = Place::new();
    let golden = root().join("crates/record/tests/golden/run-2");
    for name in ["RUN", "BASE", "NEW"] {
        fs::create_dir_all(workspace.path().join(name).join("tables")).unwrap();
        for file in ["manifest.json", "tables/handlers.parquet", "tables/empty.parquet"] {
            fs::copy(golden.join(file), workspace.path().join(name).join(file)).unwrap();
        }
    }
    // These figures follow the model with an interrupt of 4 µs and an event of 1 µs.
    let mut measured = "scheme,rate_hz,cpu_ratio,latency_mean_ns\n".to_owned();
    for rate_hz in [1_000.0, 2_000.0, 5_000.0, 10_000.0, 20_000.0] {
        measured += &format!("interrupt,{rate_hz},{},5000\n", rate_hz * 5e-6);
        measured += &format!("clocked:1ms,{rate_hz},{},500000\n", 0.004 + rate_hz * 1e-6);
    }
    fs::write(workspace.path().join("measured.csv"), measured).unwrap();
    let model = workspace.run(&["machines", "zen3", "--toml"]);
    fs::write(workspace.path().join("mine.toml"), &model.assert_code(0).out).unwrap();
    let (mut ran, mut failed) = (0, Vec::new());
    for found in manual() {
        if found.reason().is_some() || has_placeholder(&found.arguments) {
            continue;
        }
        ran += 1;
        let arguments: Vec<&str> = found.arguments.iter().map(String::as_str).collect();
        let ended = workspace.run(&arguments);
        if ended.code != Some(0) {
            let line = ended.err.lines().next().unwrap_or_default();
            let code = ended.code;
            failed.push(format!(
                "{}: irqlab {}: {code:?}: {line}",
                found.location,
                arguments.join(" ")
            ));
        }
    }
    assert!(ran > 15, "{ran} commands ran");
    assert!(failed.is_empty(), "of {ran}, {} failed:\n{}", failed.len(), failed.join("\n"));
}

#[test]
fn commands_are_found_in_blocks() {
    let text = "irqlab no\n```\n$ sudo irqlab noise -c 1 \\\n      -d 1s | jq .  # x\nirqlab: no\nirqlab \
                doctor      for people\n```\n```json\nirqlab no\n```\n<!-- not run: it waits -->\n```sh\n\
                irqlab echo --listen 'a  b' > f\n```\n";
    let found = commands("x.md", text);
    let lines: Vec<String> = found.iter().map(|command| command.arguments.join(" ")).collect();
    assert_eq!(lines, ["noise -c 1 -d 1s", "doctor", "echo --listen a  b"]);
    assert_eq!(found[0].location, "x.md:3");
    assert_eq!(found[2].not_run.as_deref(), Some("it waits"));
    assert_eq!(
        found.iter().map(ManualCommand::reason).collect::<Vec<_>>(),
        [Some("measures"), None, Some("it waits"),]
    );
    assert!(has_placeholder(&["RUN".to_owned()]) && has_placeholder(&["FILE.svg".to_owned()]));
    assert!(!has_placeholder(&["--latency-bound".to_owned(), "1ms".to_owned()]));
}
