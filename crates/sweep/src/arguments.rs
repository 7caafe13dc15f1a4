//! Makes the arguments of a task from a command and one value on each axis. `plan` calls it; a task's id is a hash of
//! these arguments, so a change of their form changes all ids.

use serde::{Deserialize, Serialize};

/// Ends the options of a command line. Words after it belong to the measured command.
const END_OF_OPTIONS: &str = "--";

/// How the value of an axis becomes a part of the command line.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "form", rename_all = "snake_case")]
pub enum AxisForm {
    /// An option with a value. `option`: `--seed`, or `-s` if the option has no long name.
    Option { option: String },
    /// An option without a value, which is left out if the axis has the value `false`.
    Flag { option: String },
    /// An option that is given once for each field: `--set l2.size=VALUE`.
    Field { option: String, field: String },
    /// Every `{placeholder}` in the command is replaced by the value.
    Placeholder { placeholder: String },
}

impl AxisForm {
    /// The arguments that set the axis to `value`. A placeholder has none.
    fn options(&self, value: &str) -> Vec<String> {
        let with_value = |option: &str, value: String| {
            if option.starts_with(END_OF_OPTIONS) {
                vec![format!("{option}={value}")]
            } else {
                vec![option.to_owned(), value]
            }
        };
        match self {
            AxisForm::Option { option } => with_value(option, value.to_owned()),
            AxisForm::Field { option, field } => with_value(option, format!("{field}={value}")),
            AxisForm::Flag { option } if value == "true" => vec![option.clone()],
            AxisForm::Flag { .. } | AxisForm::Placeholder { .. } => Vec::new(),
        }
    }
}

/// The text in the command that a placeholder replaces.
pub(crate) fn placeholder(name: &str) -> String {
    format!("{{{name}}}")
}

/// The arguments of a task. Values replace the command's placeholders, and the axes' options follow its own options.
pub(crate) fn arguments<'a>(
    command: &[String],
    axes: impl Iterator<Item = (&'a AxisForm, &'a str)>,
) -> Vec<String> {
    let mut arguments = command.to_vec();
    let mut options = Vec::new();
    for (form, value) in axes {
        if let AxisForm::Placeholder { placeholder: name } = form {
            let text = placeholder(name);
            arguments.iter_mut().for_each(|word| *word = word.replace(&text, value));
        }
        options.extend(form.options(value));
    }
    let end = command.iter().position(|word| word == END_OF_OPTIONS).unwrap_or(arguments.len());
    arguments.splice(end..end, options);
    arguments
}

/// The command without an option that an axis sets. `names`: the option's names with their dashes. `field`: removes
/// only values of this field.
#[must_use]
pub fn replace_in_command(
    command: &[String],
    names: &[String],
    takes_value: bool,
    field: Option<&str>,
) -> Vec<String> {
    let is_field = |value: Option<&str>| match field {
        None => true,
        Some(field) => value.is_some_and(|value| {
            value.strip_prefix(field).is_some_and(|assignment| assignment.starts_with('='))
        }),
    };
    let mut kept = Vec::new();
    let mut unread = command.iter().peekable();
    while let Some(word) = unread.next() {
        if word == END_OF_OPTIONS {
            kept.push(word.clone());
            kept.extend(unread.cloned());
            break;
        }
        let next = unread.peek().map(|next| next.as_str());
        if takes_value && names.contains(word) && is_field(next) {
            unread.next();
            continue;
        }
        let attached = names.iter().find_map(|name| attached_value(word, name));
        let is_flag = !takes_value && names.contains(word);
        if is_flag || (takes_value && attached.is_some_and(|value| is_field(Some(value)))) {
            continue;
        }
        kept.push(word.clone());
    }
    kept
}

/// The value in `--seed=1` or `-s1`. `None` if the word is not this option with a value.
fn attached_value<'a>(word: &'a str, name: &str) -> Option<&'a str> {
    let suffix = word.strip_prefix(name)?;
    if name.starts_with(END_OF_OPTIONS) {
        return suffix.strip_prefix('=');
    }
    (!suffix.is_empty()).then(|| suffix.strip_prefix('=').unwrap_or(suffix))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn split(line: &str) -> Vec<String> {
        line.split_whitespace().map(str::to_owned).collect()
    }

    #[test]
    fn axes_become_options_before_the_measured_command() {
        let option = |option: &str| AxisForm::Option { option: option.to_owned() };
        let field = AxisForm::Field { option: "--set".to_owned(), field: "l2.size".to_owned() };
        let flag = AxisForm::Flag { option: "--short".to_owned() };
        let name = AxisForm::Placeholder { placeholder: "work".to_owned() };
        let axes = [(option("--seed"), "-1"), (option("-x"), "2"), (field, "1M"), (name, "make")];
        let mut axes: Vec<(&AxisForm, &str)> =
            axes.iter().map(|(form, value)| (form, *value)).collect();
        axes.extend([(&flag, "true"), (&flag, "false")]);
        let line = arguments(&split("services -d 1s -- {work} -j {work}"), axes.into_iter());
        let expected = "services -d 1s --seed=-1 -x 2 --set=l2.size=1M --short -- make -j make";
        assert_eq!(line.join(" "), expected);
    }

    #[test]
    fn an_axis_replaces_its_option_in_the_command() {
        let without = |line: &str, names: &str, takes_value: bool, field: Option<&str>| {
            replace_in_command(&split(line), &split(names), takes_value, field).join(" ")
        };
        let line = "handlers -d 1s --duration=2s -d3s --on sim -- x -d 1s";
        assert_eq!(without(line, "--duration -d", true, None), "handlers --on sim -- x -d 1s");
        let line = "boot --set l2.size=1M --set=l2.size=2M --set l2.ways=4 --settle";
        let expected = "boot --set l2.ways=4 --settle";
        assert_eq!(without(line, "--set", true, Some("l2.size")), expected);
        assert_eq!(without("boot --short --shorter", "--short", false, None), "boot --shorter");
    }
}
