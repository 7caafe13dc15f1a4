//! The options of irqlab's own command line, as a sweep uses them: which option an axis sets, and whether the parser
//! accepts the arguments of a task.

use clap::parser::ValueSource;
use clap::{Arg, ArgMatches, Command};
use sweep::{Axis, AxisForm, column_name, nearest, replace_in_command};

use crate::options::{On, Usage, check_bench};

/// Id of the option that names a run's directory. A verb with it can be a task.
const OUT: &str = "out";
/// Id of the option that limits the machines of one irqlab.
const JOBS: &str = "jobs";
/// Options that a sweep sets itself, or that make no sense in a task.
const NOT_IN_TASKS: [&str; 3] = [OUT, "help", "version"];
/// Verbs that measure this machine and have no `--on`.
const LIVE_VERBS: [&str; 2] = ["bench", "watch"];
/// Verbs of `bench` that compare a model with this machine, which they measure, too.
const COMPARING_VERBS: [&str; 2] = ["kernel", "model"];
/// Id of the option with which such a verb takes kept data instead of this machine.
const KEPT_DATA: &str = "measured";
/// Options that decide whether a task of a verb measures this machine.
const MACHINE_OPTIONS: [&str; 2] = ["--on", "--measured"];

/// irqlab's command line.
pub struct CommandLine {
    program: Command,
}

/// The axes of a sweep as options of irqlab.
pub struct ResolvedAxes {
    /// The command without options that an axis sets.
    pub command: Vec<String>,
    /// Form and column of each axis.
    pub axes: Vec<(AxisForm, String)>,
}

/// Ids of options that do not change the machine of a simulated task. Only its request or its observation depends on them.
const NOT_OF_THE_MACHINE: [&str; 5] = ["duration", "repetitions", "seed", "seeds", "warm_up"];
/// Id of the option with which a verb prints its plan and measures nothing.
const DRY_RUN: &str = "dry_run";

/// Facts about a task, from its parsed arguments.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ParsedTask {
    /// Whether the task measures the machine that it runs on.
    pub measures_this_machine: bool,
    /// Whether the task takes `--jobs`, and its arguments leave it out.
    pub lacks_jobs: bool,
    /// Whether the task simulates machines, and makes and describes them by `--dry-run`.
    pub plans_machines: bool,
    /// Whether the task only simulates machines, and can forecast how long they take.
    pub has_forecast: bool,
}

impl CommandLine {
    pub fn new(mut program: Command) -> CommandLine {
        program.build();
        CommandLine { program }
    }

    /// Resolves each axis to an option of the command's verb.
    ///
    /// Fails if the command names no verb that records a run, or an axis is no option of the verb.
    pub fn resolve(&self, command: &[String], axes: &[Axis]) -> Result<ResolvedAxes, Usage> {
        let (verb, name) = self.verb(command)?;
        let mut resolved = ResolvedAxes { command: command.to_vec(), axes: Vec::new() };
        for axis in axes {
            let wrong = |reason: String| Usage(format!("axis {:?}: {reason}", axis.name));
            let (form, short_name) = if axis.name.starts_with('-') {
                let (option, field) = split_field(&axis.name);
                let found = find_option(verb, option)
                    .ok_or_else(|| wrong(unknown_option_message(verb, &name, option)))?;
                let names = names_of(found);
                let takes_value = found.get_action().takes_values();
                let form = form_of(found, field, axis).map_err(wrong)?;
                resolved.command =
                    replace_in_command(&resolved.command, &names, takes_value, field);
                let plain = names.first().map_or("", |name| name.trim_start_matches('-'));
                (form, field.unwrap_or(plain).to_owned())
            } else {
                (AxisForm::Placeholder { placeholder: axis.name.clone() }, axis.name.clone())
            };
            let column = column_name(&short_name)
                .ok_or_else(|| wrong("its name gives no name for a column".to_owned()))?;
            resolved.axes.push((form, column));
        }
        Ok(resolved)
    }

    /// Parses the arguments of a task as its execution will, without executing it.
    ///
    /// Fails if the parser refuses them.
    pub fn parse(&mut self, arguments: &[String]) -> Result<ParsedTask, Usage> {
        let with_out = with_options(arguments, ["--out=run".to_owned()]);
        let command = std::iter::once("irqlab".to_owned()).chain(with_out);
        let matches = self.program.try_get_matches_from_mut(command).map_err(|error| {
            let text = error.to_string();
            let text =
                text.lines().take_while(|line| !line.is_empty()).collect::<Vec<_>>().join(" ");
            let text = text.strip_prefix("error: ").unwrap_or(&text);
            Usage(format!("irqlab {}: {text}", arguments.join(" ")))
        })?;
        check_bench(&self.program, &matches)
            .map_err(|Usage(what)| Usage(format!("irqlab {}: {what}", arguments.join(" "))))?;
        let is_live = is_live(&matches);
        let measures_this_machine = is_live || compares_with_this_machine(&matches);
        let has_dry_run = innermost(&matches).0.try_contains_id(DRY_RUN).is_ok();
        Ok(ParsedTask {
            measures_this_machine,
            plans_machines: has_dry_run && !is_live,
            has_forecast: has_dry_run && !measures_this_machine,
            lacks_jobs: self.lacks_jobs(arguments, &matches),
        })
    }

    /// Whether tasks with different values of an axis may have different machines. `command`: the arguments of a task.
    pub fn may_change_machine(&self, command: &[String], form: &AxisForm) -> bool {
        let AxisForm::Option { option } = form else { return true };
        let verb = self.verb(command).ok();
        let found = verb.and_then(|(verb, _)| find_option(verb, option));
        found.is_none_or(|option| !NOT_OF_THE_MACHINE.contains(&option.get_id().as_str()))
    }

    /// Whether tasks with different values of an axis may differ in what they measure: this machine or a simulated one.
    pub fn may_change_bench(form: &AxisForm) -> bool {
        match form {
            AxisForm::Placeholder { .. } => true,
            AxisForm::Option { option } => MACHINE_OPTIONS.contains(&option.as_str()),
            AxisForm::Field { .. } | AxisForm::Flag { .. } => false,
        }
    }

    fn lacks_jobs(&self, arguments: &[String], matches: &ArgMatches) -> bool {
        let Ok((verb, _)) = self.verb(arguments) else { return false };
        let has_option = verb.get_arguments().any(|option| option.get_id() == JOBS);
        has_option && innermost(matches).value_source(JOBS) != Some(ValueSource::CommandLine)
    }

    /// The verb at the start of a command, and its name.
    fn verb(&self, command: &[String]) -> Result<(&Command, String), Usage> {
        let (mut verb, mut name) = (&self.program, String::new());
        for word in command {
            let Some(inner) = verb.find_subcommand(word) else { break };
            verb = inner;
            name = format!("{name} {word}").trim().to_owned();
        }
        let first = command.first().map_or("", String::as_str);
        if name.is_empty() {
            let verbs = self.program.get_subcommands().filter(|verb| !verb.is_hide_set());
            let similar = nearest(first, verbs.map(Command::get_name));
            return Err(Usage(format!(
                "command: {first:?} is no verb of irqlab (without \"irqlab\", the verb is the first word){}",
                suggestion(&similar)
            )));
        }
        let is_refused = verb.is_hide_set() || first == "sweep";
        if is_refused || !verb.get_arguments().any(|option| option.get_id() == OUT) {
            return Err(Usage(format!(
                "command: irqlab {name} cannot be a task, because it records no run (it has no --out)"
            )));
        }
        Ok((verb, name))
    }
}

/// The arguments with more options, before the words of a measured command.
pub fn with_options(
    arguments: &[String],
    options: impl IntoIterator<Item = String>,
) -> Vec<String> {
    let end = arguments.iter().position(|word| word == "--").unwrap_or(arguments.len());
    let (head, tail) = arguments.split_at(end);
    head.iter().cloned().chain(options).chain(tail.iter().cloned()).collect()
}

/// An axis such as `--set l2.size` is an option and a field.
fn split_field(name: &str) -> (&str, Option<&str>) {
    match name.split_once(' ') {
        Some((option, field)) => (option, Some(field.trim())),
        None => (name, None),
    }
}

/// All names of an option with their dashes, the long ones first.
fn names_of(option: &Arg) -> Vec<String> {
    let long = option.get_long_and_visible_aliases().unwrap_or_default();
    let hidden = option.get_all_aliases().unwrap_or_default();
    let short = option.get_short_and_visible_aliases().unwrap_or_default();
    let mut names: Vec<String> = Vec::new();
    for name in long.into_iter().chain(hidden).map(|name| format!("--{name}")) {
        if !names.contains(&name) {
            names.push(name);
        }
    }
    names.extend(short.into_iter().map(|letter| format!("-{letter}")));
    names
}

fn find_option<'c>(verb: &'c Command, name: &str) -> Option<&'c Arg> {
    verb.get_arguments().find(|option| {
        !NOT_IN_TASKS.contains(&option.get_id().as_str())
            && names_of(option).iter().any(|option_name| option_name == name)
    })
}

/// How the values of an axis become this option.
fn form_of(option: &Arg, field: Option<&str>, axis: &Axis) -> Result<AxisForm, String> {
    let name = names_of(option).into_iter().next().unwrap_or_default();
    let takes_value = option.get_action().takes_values();
    match (takes_value, field) {
        (true, None) => Ok(AxisForm::Option { option: name }),
        (true, Some(field)) => Ok(AxisForm::Field { option: name, field: field.to_owned() }),
        (false, None) => {
            let is_flag = |value: &String| ["true", "false"].contains(&value.as_str());
            if axis.values.count() <= 2 && axis.values.texts().iter().all(is_flag) {
                return Ok(AxisForm::Flag { option: name });
            }
            Err(format!("{name} takes no value: allowed are true and false"))
        }
        (false, Some(_)) => Err(format!("{name} takes no value, so it has no fields")),
    }
}

/// Says that a verb has no such option, with the most similar ones.
fn unknown_option_message(verb: &Command, verb_name: &str, option: &str) -> String {
    if NOT_IN_TASKS.iter().any(|name| option == format!("--{name}")) {
        return format!("a sweep sets {option} itself, or a task cannot have it");
    }
    let is_allowed =
        |option: &&Arg| !option.is_hide_set() && !NOT_IN_TASKS.contains(&option.get_id().as_str());
    let names: Vec<String> = verb.get_arguments().filter(is_allowed).flat_map(names_of).collect();
    let similar = nearest(option, names.iter().map(String::as_str));
    format!("irqlab {verb_name} has no option {option}{}", suggestion(&similar))
}

fn suggestion(similar: &[&str]) -> String {
    if similar.is_empty() { String::new() } else { format!("; near: {}", similar.join(", ")) }
}

/// The matches of the innermost verb.
fn innermost(matches: &ArgMatches) -> ArgMatchesView<'_> {
    let mut inner = matches;
    while let Some((_, next)) = inner.subcommand() {
        inner = next;
    }
    ArgMatchesView(inner)
}

/// Matches that can be asked for options that a verb may lack.
struct ArgMatchesView<'a>(&'a ArgMatches);

impl ArgMatchesView<'_> {
    /// Where the value of an option is from. `None` if the verb has no such option.
    fn value_source(&self, id: &str) -> Option<ValueSource> {
        let is_known = self.0.try_contains_id(id).is_ok();
        if is_known { self.0.value_source(id) } else { None }
    }
}

/// Whether a task measures this machine alone.
fn is_live(matches: &ArgMatches) -> bool {
    match innermost(matches).0.try_get_one::<On>("on") {
        Ok(Some(on)) => *on == On::Live,
        _ => matches.subcommand_name().is_some_and(|verb| LIVE_VERBS.contains(&verb)),
    }
}

/// Whether a task compares a simulated machine with this machine.
fn compares_with_this_machine(matches: &ArgMatches) -> bool {
    let Some(("bench", bench)) = matches.subcommand() else { return false };
    let is_comparing = bench.subcommand_name().is_some_and(|verb| COMPARING_VERBS.contains(&verb));
    is_comparing && innermost(matches).value_source(KEPT_DATA) != Some(ValueSource::CommandLine)
}

#[cfg(test)]
mod tests {
    use clap::CommandFactory;
    use sweep::Spec;

    use super::*;

    fn command_line() -> CommandLine {
        CommandLine::new(crate::help::arrange(crate::Cli::command()))
    }

    fn resolve(text: &str) -> Result<ResolvedAxes, String> {
        let spec = Spec::parse(text).map_err(|error| error.to_string())?;
        command_line().resolve(&spec.command, &spec.axes).map_err(|Usage(what)| what)
    }

    #[test]
    fn axes_are_resolved_to_the_options_of_the_verb() {
        let text = "command = ['handlers', '--on', 'sim:zen3', '-d', '100ms', '--set', 'l2.ways=4']\n[axes]\n\
            '-d' = ['1s']\n'--on' = ['sim:zen4']\n'--set l2.size' = ['1MiB']\n'--histograms' = [true, false]\n";
        let resolved = resolve(text).unwrap();
        assert_eq!(resolved.command, ["handlers", "--set", "l2.ways=4"]);
        let columns: Vec<&str> = resolved.axes.iter().map(|(_, column)| column.as_str()).collect();
        assert_eq!(columns, ["axis_histograms", "axis_on", "axis_l2_size", "axis_duration"]);
    }

    #[test]
    fn axes_that_are_no_options_are_refused_with_the_nearest_name() {
        let error = |text: &str| resolve(text).err().unwrap();
        let near = error("command = ['handlers']\n[axes]\n'--duratoin' = ['1s']\n");
        assert!(
            near.contains("irqlab handlers has no option --duratoin; near: --duration"),
            "{near}"
        );
        let out = error("command = ['handlers']\n[axes]\n'--out' = ['a']\n");
        assert!(out.contains("a sweep sets --out itself"), "{out}");
        let flag = error("command = ['handlers']\n[axes]\n'--histograms' = [1, 2]\n");
        assert!(flag.contains("allowed are true and false"), "{flag}");
    }

    #[test]
    fn only_verbs_that_record_a_run_are_tasks() {
        let error =
            |command: &str| resolve(&format!("command = [{command}]\n[axes]\n")).err().unwrap();
        assert!(error("'doctor'").contains("records no run"));
        assert!(error("'sweep', 'run'").contains("cannot be a task"));
        assert!(error("'handler'").contains("near: handlers"));
        assert!(
            resolve("command = ['noise', 'scale', '--run', 'x']\n[axes]\n'--seed' = [1]\n").is_ok()
        );
    }

    #[test]
    fn the_parser_judges_the_arguments_of_tasks() {
        let mut parser = command_line();
        let mut parse = |line: &str| {
            let arguments: Vec<String> = line.split(' ').map(str::to_owned).collect();
            parser.parse(&arguments).map_err(|Usage(message)| message)
        };
        let live = parse("handlers -d 1s -- make -j 4").unwrap();
        assert!(live.measures_this_machine && live.lacks_jobs);
        let simulated = parse("handlers --on sim -j 2").unwrap();
        assert!(!simulated.measures_this_machine && !simulated.lacks_jobs);
        assert!(simulated.has_forecast && simulated.plans_machines);
        assert!(!live.has_forecast && !live.plans_machines);
        let model = parse("signal model").unwrap();
        assert!(!model.measures_this_machine && !model.has_forecast);
        assert!(parse("bench overhead").unwrap().measures_this_machine);
        let compared = parse("bench model --on sim:zen3").unwrap();
        assert!(
            compared.measures_this_machine && compared.plans_machines && !compared.has_forecast
        );
        let kept = parse("bench model --on sim:zen3 --measured zen3").unwrap();
        assert!(!kept.measures_this_machine && kept.has_forecast);
        assert!(parse("bench kernel --on sim:zen3").unwrap().measures_this_machine);
        let error = parse("handlers --vcpus=0").unwrap_err();
        assert!(error.contains("--vcpus=0: ") && error.contains("0"), "{error}");
        assert!(parse("handlers --vcpus 2").unwrap_err().contains("add --on sim"));
        assert!(parse("handlers --out a").unwrap_err().contains("--out"));
        assert!(parse("handlers --help").is_err());
    }
}
