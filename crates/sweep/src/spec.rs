//! The specification of a sweep: the command, its axes, excluded combinations, and the baseline. `irqlab sweep plan`
//! parses it, and `plan` makes the tasks.

use serde::Deserialize;
use toml::{Table, Value};

use crate::axis::{Axis, value_text};
use crate::build::Build;
use crate::error::SweepError;
use crate::names::nearest;

/// Maximum number of combinations of a sweep.
pub const COMBINATIONS_MAX: u64 = 1_000_000;
/// Maximum size of a specification, bytes.
pub const SPEC_BYTES_MAX: u64 = 1 << 20;
/// Maximum number of axes.
const AXES_MAX: usize = 16;
/// Maximum number of `[[exclude]]` tables.
const EXCLUDED_MAX: usize = 1_000;
/// Maximum number of words in the command.
const WORDS_MAX: usize = 1_000;

/// A sweep as its user states it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Spec {
    /// Arguments of irqlab that all tasks share. The axes add their arguments to these.
    pub command: Vec<String>,
    /// The axes, sorted by name.
    pub axes: Vec<Axis>,
    /// Combinations without a task.
    pub excluded: Vec<Selection>,
    /// The combinations with which others are compared.
    pub baseline: Option<Selection>,
    /// The command that builds a file for each value of an axis.
    pub build: Option<Build>,
}

/// Some values of some axes. It selects each combination that has one of the values on every axis named.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Selection {
    /// Positions of axes, each with the positions of values.
    pub values: Vec<(usize, Vec<usize>)>,
}

/// The file, before its parts are checked.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct SpecFile {
    command: Vec<String>,
    axes: Table,
    #[serde(default)]
    exclude: Vec<Table>,
    baseline: Option<Table>,
    build: Option<Table>,
}

impl Spec {
    /// Parses a specification.
    ///
    /// Fails if the text is no specification, or if the axes have more than [`COMBINATIONS_MAX`] combinations. Excluded
    /// combinations count, too.
    pub fn parse(text: &str) -> Result<Spec, SweepError> {
        if text.len() as u64 > SPEC_BYTES_MAX {
            return Err(invalid(format!("a specification has at most {SPEC_BYTES_MAX} bytes")));
        }
        let file: SpecFile =
            toml::from_str(text).map_err(|error| invalid(error.to_string().trim().to_owned()))?;
        if file.command.is_empty() || file.command.len() > WORDS_MAX {
            return Err(invalid(format!("command: 1 to {WORDS_MAX} words are allowed")));
        }
        let axes = parse_axes(&file.axes)?;
        if file.exclude.len() > EXCLUDED_MAX {
            return Err(invalid(format!("at most {EXCLUDED_MAX} [[exclude]] tables are allowed")));
        }
        let select = |table: &Table, part: &str| Selection::parse(table, &axes, part);
        let excluded = file.exclude.iter().map(|table| select(table, "[[exclude]]"));
        let excluded = excluded.collect::<Result<Vec<_>, _>>()?;
        let baseline = file.baseline.map(|table| select(&table, "[baseline]")).transpose()?;
        let build = file.build.map(|table| parse_build(&table, &axes)).transpose()?;
        Ok(Spec { command: file.command, axes, excluded, baseline, build })
    }

    /// Number of combinations, including the excluded ones.
    #[must_use]
    pub fn combination_count(&self) -> u64 {
        self.axes.iter().map(|axis| axis.values.count()).product()
    }
}

fn parse_axes(table: &Table) -> Result<Vec<Axis>, SweepError> {
    if table.len() > AXES_MAX {
        return Err(invalid(format!("{} axes, more than {AXES_MAX}", table.len())));
    }
    let axes = table.iter().map(|(name, value)| Axis::parse(name, value));
    let mut axes = axes.collect::<Result<Vec<_>, _>>()?;
    axes.sort_by(|first, second| first.name.cmp(&second.name));
    let counts = axes.iter().map(|axis| u128::from(axis.values.count()));
    let count = counts.fold(1, u128::saturating_mul);
    if count > u128::from(COMBINATIONS_MAX) {
        return Err(invalid(format!(
            "the axes have {count} combinations, more than {COMBINATIONS_MAX} (leave out values, or plan several \
             sweeps)"
        )));
    }
    Ok(axes)
}

/// Parses `[build]`: the name of one axis, and the words of a command.
fn parse_build(table: &Table, axes: &[Axis]) -> Result<Build, SweepError> {
    let wrong = |what: String| invalid(format!("[build]: {what}"));
    let mut entries = table.iter();
    let (Some((name, words)), None) = (entries.next(), entries.next()) else {
        return Err(wrong("name one axis, and the command for its values".to_owned()));
    };
    let axis = axis_position(name, axes, "[build]")?;
    let words: Option<Vec<String>> = words
        .as_array()
        .and_then(|words| words.iter().map(|word| Some(word.as_str()?.to_owned())).collect());
    let Some(command) = words else {
        return Err(wrong(format!("{name}: the command is a list of texts")));
    };
    let build = Build { axis, command };
    build.check(axes.len()).map_err(|what| wrong(format!("{name}: {what}")))?;
    Ok(build)
}

/// Position of the axis with this name. The error names the most similar axes.
fn axis_position(name: &str, axes: &[Axis], part: &str) -> Result<usize, SweepError> {
    axes.iter().position(|axis| axis.name == name).ok_or_else(|| {
        let similar = nearest(name, axes.iter().map(|axis| axis.name.as_str()));
        let hint = if similar.is_empty() {
            String::new()
        } else {
            format!("; near: {}", similar.join(", "))
        };
        invalid(format!("{part}: there is no axis {name:?}{hint}"))
    })
}

impl Selection {
    /// Whether a combination, given as the position of its value on each axis, is selected: on each axis that the selection
    /// names, it has one of the named values.
    #[must_use]
    pub fn selects(&self, combination: &[u32]) -> bool {
        self.values.iter().all(|(axis, values)| {
            combination.get(*axis).is_some_and(|value| values.contains(&(*value as usize)))
        })
    }

    fn parse(table: &Table, axes: &[Axis], part: &str) -> Result<Selection, SweepError> {
        if table.is_empty() {
            return Err(invalid(format!("{part} is empty: it would select every combination")));
        }
        let mut values = Vec::new();
        for (name, wanted) in table {
            let position = axis_position(name, axes, part)?;
            values.push((position, positions_of(wanted, &axes[position], part)?));
        }
        Ok(Selection { values })
    }
}

/// Positions of the wanted values on an axis. `wanted`: one value, or a list of values.
fn positions_of(wanted: &Value, axis: &Axis, part: &str) -> Result<Vec<usize>, SweepError> {
    let texts = axis.values.texts();
    let wanted = match wanted {
        Value::Array(list) => list.as_slice(),
        single => std::slice::from_ref(single),
    };
    let position = |value: &Value| {
        let text = value_text(value).map_err(|error| invalid(format!("{part}: {error}")))?;
        texts
            .iter()
            .position(|candidate| *candidate == text)
            .ok_or_else(|| invalid(format!("{part}: axis {:?} has no value {text:?}", axis.name)))
    };
    wanted.iter().map(position).collect()
}

fn invalid(what: String) -> SweepError {
    SweepError::Invalid(what)
}

#[cfg(test)]
mod tests {
    use super::*;

    const COMMAND: &str = "command = ['handlers']\n";

    fn error(text: &str) -> String {
        Spec::parse(&format!("{COMMAND}{text}")).unwrap_err().to_string()
    }

    #[test]
    fn axes_are_sorted_and_combinations_are_counted() {
        let text = "[axes]\n'--seed' = { from = 1, to = 10 }\n'--on' = ['sim:a', 'sim:b']\n";
        let spec = Spec::parse(&format!("{COMMAND}{text}")).unwrap();
        assert_eq!(
            spec.axes.iter().map(|axis| axis.name.as_str()).collect::<Vec<_>>(),
            ["--on", "--seed"]
        );
        assert_eq!(spec.combination_count(), 20);
    }

    #[test]
    fn too_many_combinations_are_refused_with_their_number() {
        let text = "[axes]\na = { from = 1, to = 10000 }\nb = { from = 1, to = 1000 }\n";
        assert!(
            error(text).contains("10000000 combinations, more than 1000000"),
            "{}",
            error(text)
        );
        let text = "[axes]\na = { from = 1, to = 10000000 }\n";
        assert!(error(text).contains("10000000 combinations"), "{}", error(text));
        let all = format!("{{ from = {}, to = {} }}", i64::MIN, i64::MAX);
        let axes: String = (0..9).map(|axis| format!("a{axis} = {all}\n")).collect();
        assert!(error(&format!("[axes]\n{axes}")).contains("combinations, more than"));
    }

    #[test]
    fn selections_name_axes_and_values_that_exist() {
        let axes = "[axes]\n'--seed' = [1, 2, 3]\n";
        assert!(error(&format!("{axes}[[exclude]]\n'--sed' = 1\n")).contains("near: --seed"));
        assert!(error(&format!("{axes}[baseline]\n'--seed' = 4\n")).contains("no value \"4\""));
        assert!(error(&format!("{axes}[[exclude]]\n")).contains("every combination"));
        let text = format!("{COMMAND}{axes}[[exclude]]\n'--seed' = [1, 3]\n");
        let spec = Spec::parse(&text).unwrap();
        let is_excluded = |value: u32| spec.excluded[0].selects(&[value]);
        assert_eq!([0, 1, 2].map(is_excluded), [true, false, true]);
    }

    #[test]
    fn a_build_names_one_axis_and_a_command() {
        let axes = "[axes]\n'--kernel' = ['a1', 'b2']\n'--seed' = [1]\n";
        let parsed = |build: &str| Spec::parse(&format!("{COMMAND}{axes}[build]\n{build}"));
        let build = parsed("'--kernel' = ['make', '{value}', '{file}']\n").unwrap().build.unwrap();
        assert_eq!((build.axis, build.command.len()), (0, 3));
        let error = |build: &str| parsed(build).unwrap_err().to_string();
        assert!(error("'--kernle' = ['make', '{value}', '{file}']\n").contains("near: --kernel"));
        assert!(error("'--kernel' = ['make', '{value}']\n").contains("{file}"));
        assert!(error("'--kernel' = 'make'\n").contains("a list of texts"));
        let two =
            "'--kernel' = ['make', '{value}', '{file}']\n'--seed' = ['x', '{value}', '{file}']\n";
        assert!(error(two).contains("name one axis") && error("").contains("name one axis"));
    }

    #[test]
    fn unknown_parts_are_refused() {
        assert!(error("[axes]\na = [1]\n[exlude]\n").contains("exlude"));
        assert!(Spec::parse("command = []\n[axes]\n").is_err());
        assert!(Spec::parse("moon").is_err());
        assert!(Spec::parse(&"#".repeat(2 << 20)).is_err());
    }
}
