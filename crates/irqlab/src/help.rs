//! Arranges the help of all verbs: examples and exit codes fit a terminal of 80 columns, paragraphs follow its width.

use clap::{Arg, ArgAction, Command};

use crate::console::GLOBAL;

/// Width of a terminal that no line of an example exceeds.
const COLUMNS: usize = 80;
/// Indentation of an example's explanation, and of its continued lines.
const CONTINUED: &str = "      ";
/// Exit codes of a verb with a command after `--`.
const COMMAND_CODES: &str =
    " With `-- CMD`: if CMD fails, its exit code; if signal N ends CMD, 128 + N.";

/// The program with its help arranged, and with the options `--help` and `--version` among the global ones.
pub fn arrange(program: Command) -> Command {
    let option = |name, short, action, help| {
        let option = Arg::new(name).long(name).short(short).action(action).help(help);
        option.global(true).help_heading(GLOBAL)
    };
    let help = option("help", 'h', ArgAction::Help, "Print help; -h prints a short form");
    let version = option("version", 'V', ArgAction::Version, "Print the version");
    arrange_verb(program).disable_help_flag(true).disable_version_flag(true).args([help, version])
}

/// Arranges the help of a verb, and of the verbs below it.
fn arrange_verb(mut command: Command) -> Command {
    if let Some(text) = command.get_after_help() {
        // It has no styles. A search for them would double the time that a debug build takes to start.
        let mut text = arranged(&text.ansi().to_string());
        if measures_command(&command) && text.contains("Exit codes:") {
            text += COMMAND_CODES;
        }
        command = command.after_help(text);
    }
    command.mut_subcommands(arrange_verb)
}

/// Whether the verb's exit code is that of a command after `--`.
fn measures_command(verb: &Command) -> bool {
    let mut positionals = verb.get_positionals().filter(|argument| argument.is_last_set());
    positionals.any(|argument| {
        argument.get_value_names().is_some_and(|names| names.iter().any(|name| name == "CMD"))
    })
}

/// A text with one line for each paragraph. No indented line is longer than the terminal.
fn arranged(text: &str) -> String {
    let mut lines: Vec<String> = Vec::new();
    for line in text.lines() {
        let is_paragraph =
            |line: &str| !line.is_empty() && !line.starts_with(' ') && !line.ends_with(':');
        match lines.last_mut() {
            Some(last) if is_paragraph(last) && is_paragraph(line) => {
                last.push(' ');
                last.push_str(line);
            }
            _ if line.starts_with(' ') => lines.extend(indented(line)),
            _ => lines.push(line.to_owned()),
        }
    }
    lines.join("\n")
}

/// An indented line, as several lines if it is too long: an explanation moves below the command, and a long command
/// is continued after a backslash.
fn indented(line: &str) -> Vec<String> {
    if line.chars().count() <= COLUMNS {
        return vec![line.to_owned()];
    }
    if line.starts_with(CONTINUED) {
        return vec![format!("{CONTINUED}{}", line.trim_start())];
    }
    let (command, explanation) = match line.trim_start().split_once("  ") {
        Some((command, explanation)) => (command, explanation.trim_start()),
        None => (line.trim_start(), ""),
    };
    let mut lines = Vec::new();
    let mut part = "  ".to_owned();
    for word in command.split(' ') {
        if part.chars().count() + word.chars().count() > COLUMNS - 2 {
            lines.push(format!("{part}\\"));
            part = CONTINUED.to_owned();
        }
        part = part + word + " ";
    }
    lines.push(part.trim_end().to_owned());
    if !explanation.is_empty() {
        lines.push(format!("{CONTINUED}{explanation}"));
    }
    lines
}

#[cfg(test)]
mod tests {
    use clap::CommandFactory;

    use super::*;

    /// All verbs that a user sees, with their names, groups of verbs and the program itself among them.
    fn verbs() -> Vec<(String, Command)> {
        let mut program = arrange(crate::Cli::command());
        program.build();
        let mut all = vec![("irqlab".to_owned(), program)];
        let mut next = 0;
        while let Some((name, verb)) = all.get(next) {
            let inner = verb.get_subcommands().filter(|verb| !verb.is_hide_set());
            let inner = inner.filter(|verb| verb.get_name() != "help");
            let inner: Vec<_> =
                inner.map(|verb| (format!("{name} {}", verb.get_name()), verb.clone())).collect();
            all.extend(inner);
            next += 1;
        }
        all
    }

    fn help(verb: &Command, columns: usize) -> String {
        verb.clone().term_width(columns).render_long_help().to_string()
    }

    #[test]
    fn own_options_precede_global_options() {
        for (name, verb) in verbs() {
            let help = help(&verb, COLUMNS);
            let headings =
                verb.get_arguments().map(|option| option.get_help_heading().unwrap_or("Options"));
            for heading in headings.filter(|heading| *heading != GLOBAL) {
                let [first, global] =
                    [heading, GLOBAL].map(|heading| help.find(&format!("\n{heading}:\n")));
                assert!(
                    first.is_none_or(|first| Some(first) < global),
                    "{name}: {heading}\n{help}"
                );
            }
            let (_, global) = help.split_once(GLOBAL).unwrap();
            for option in ["--quiet", "--verbose", "--color", "--help", "--version"] {
                assert!(global.contains(option), "{name}: {option} is no global option\n{help}");
            }
        }
    }

    #[test]
    fn every_verb_has_examples_that_are_understood() {
        let program = arrange(crate::Cli::command());
        let mut refused = Vec::new();
        for (name, verb) in verbs() {
            let text = verb.get_after_help().map(ToString::to_string).unwrap_or_default();
            let examples = examples(&text);
            if examples.is_empty() {
                refused.push(format!("{name} has no examples"));
            }
            for example in examples {
                if let Err(error) = program.clone().try_get_matches_from(&example) {
                    refused.push(format!("{name}: {}\n{error}", example.join(" ")));
                }
            }
        }
        assert!(refused.is_empty(), "{}", refused.join("\n"));
    }

    /// The commands of irqlab below `Examples:`, each as its words up to a pipe or a redirection.
    fn examples(help: &str) -> Vec<Vec<String>> {
        let Some((_, text)) = help.split_once("Examples:\n") else { return Vec::new() };
        let text = text.split("\n\n").next().unwrap_or_default().replace("\\\n      ", "");
        let command = |line: &str| {
            let line = line.trim_start();
            let line = line.strip_prefix("sudo ").unwrap_or(line);
            let line = line.starts_with("irqlab ").then_some(line)?;
            let line = line.split("  ").next().unwrap_or_default();
            let typed = shlex::split(line)?;
            Some(typed.into_iter().take_while(|word| word != "|" && word != ">").collect())
        };
        text.lines().filter_map(command).collect()
    }

    #[test]
    fn no_line_is_wrapped_twice() {
        for (name, verb) in verbs() {
            for columns in [80, 120] {
                for line in help(&verb, columns).lines() {
                    // A long value has no place to break it.
                    let fits = line.chars().count() <= columns || !line.trim().contains(' ');
                    assert!(fits, "{name}: {line}");
                }
            }
            let text = verb.get_after_help().map(ToString::to_string).unwrap_or_default();
            let lines: Vec<&str> = text.lines().collect();
            for pair in lines.windows(2) {
                let is_text = |line: &str| !line.is_empty() && !line.starts_with(' ');
                let is_broken = is_text(pair[0]) && is_text(pair[1]) && !pair[0].ends_with(':');
                assert!(!is_broken, "{name}: {pair:?}");
            }
        }
    }

    #[test]
    fn exit_codes_stand_where_they_apply() {
        for (name, verb) in verbs() {
            let text = verb.get_after_help().map(ToString::to_string).unwrap_or_default();
            let Some((_, codes)) = text.split_once("Exit codes:") else { continue };
            let has_limit =
                verb.get_arguments().any(|option| option.get_long() == Some("guest-limit"));
            let is_counted = ["irqlab bench sim-repeat"].contains(&name.as_str());
            assert!(codes.contains("124 ") == has_limit || is_counted, "{name}: {codes}");
            assert_eq!(codes.contains("CMD"), measures_command(&verb), "{name}: {codes}");
        }
    }

    /// After an intended change, `INSTA_UPDATE=always cargo test -p irqlab --bins help` writes the files.
    #[test]
    fn help_equals_its_snapshot() {
        let mut settings = insta::Settings::clone_current();
        settings.set_snapshot_path("../tests/help");
        settings.set_prepend_module_to_snapshot(false);
        settings.set_omit_expression(true);
        settings.bind(|| {
            for (name, verb) in verbs() {
                insta::assert_snapshot!(name.replace(' ', "_"), help(&verb, COLUMNS));
            }
        });
    }

    #[test]
    fn long_examples_are_broken_between_words() {
        let command = format!("  irqlab handlers {}", "--load idle ".repeat(6));
        let lines = arranged(&format!("Examples:\n{command}  while it runs"));
        let lines: Vec<&str> = lines.lines().collect();
        assert_eq!(lines.len(), 4);
        assert!(lines[1].ends_with(" \\") && lines[1].len() <= COLUMNS, "{lines:?}");
        assert_eq!(lines[3], "      while it runs");
        assert_eq!(
            arranged("One line\nof a text.\n\nNext:\n  a"),
            "One line of a text.\n\nNext:\n  a"
        );
    }
}
