//! Changes a field of a model's text, as `--set l2.size=4MiB` does.
//!
//! It changes the text, not the structure: comments stay, and the model that a run records is still a
//! model file.

use std::ops::Range;

use toml::Spanned;
use toml::de::{DeTable, DeValue};

use super::parse::without_unit;
use crate::model::ModelError;
use crate::system_model::SystemModel;

/// Maximum number of names in a field's path, such as `core.units.load.count`.
const TABLES_MAX: usize = 4;

/// Returns the text of a model with fields changed or added. [`with_assignments`] describes an assignment.
///
/// Fails with [`ModelError`] if an assignment is malformed, or the result is refused.
pub fn set(text: &str, assignments: &[&str]) -> Result<String, ModelError> {
    Ok(with_assignments(text, assignments)?.0)
}

/// Returns the text of a model with fields changed or added, one after the other, and the model. An assignment is
/// `FIELD=VALUE`, such as `l2.size=4MiB` or `memory_cycles=200`. Only the result of all assignments must be a model:
/// `l1d.size=48KiB` may be invalid alone, with 8 ways, and valid with `l1d.ways=12`.
///
/// Fails with [`ModelError`] if an assignment is malformed, or the result is refused. It blames the
/// assignments, so `text` should be a model.
pub fn with_assignments(
    text: &str,
    assignments: &[&str],
) -> Result<(String, SystemModel), ModelError> {
    let mut changed = text.to_owned();
    for assignment in assignments {
        changed = edit(&changed, assignment)?;
    }
    match SystemModel::parse(&changed) {
        Ok(model) => Ok((changed, model)),
        Err(error) => {
            let problem = ModelError { line: None, ..error }.to_string();
            Err(ModelError::new(format!("--set {}", assignments.join(" --set ")), problem))
        }
    }
}

/// Returns the text with one field changed or added. The result need not be a valid model.
fn edit(text: &str, assignment: &str) -> Result<String, ModelError> {
    let refuse = |problem: &str| ModelError::new(format!("--set {assignment}"), problem);
    let (field, value) =
        assignment.split_once('=').ok_or_else(|| refuse("is not FIELD=VALUE, as l2.size=4MiB"))?;
    let (field, value) = (field.trim(), value.trim());
    let is_name = |part: &str| {
        !part.is_empty() && part.chars().all(|c| c.is_ascii_alphanumeric() || c == '_' || c == '-')
    };
    let mut path: Vec<&str> = field.split('.').collect();
    if !path.iter().all(|part| is_name(part)) || path.len() > TABLES_MAX {
        return Err(refuse(
            "has no valid field name before the = (examples: memory_cycles, l2.size)",
        ));
    }
    let name = path.pop().unwrap_or_default();
    let file = DeTable::parse(text).map_err(|error| refuse(error.message()))?;
    let changed = match descend(file.get_ref(), &path) {
        Some(None) => in_table(text, file.get_ref(), Some((0, "\n")), name, &literal(value)),
        Some(Some(found)) => {
            let fields = found.get_ref().as_table().ok_or_else(|| refuse("is no table"))?;
            in_table(text, fields, start_of_table(text, found), name, &literal(value))
        }
        None => Some(format!("{text}\n[{}]\n{name} = {}\n", path.join("."), literal(value))),
    };
    changed.ok_or_else(|| refuse("cannot be added: its table is not written as [table] or { }"))
}

/// The value as TOML: a number, list, boolean or quoted text stays, everything else becomes a quoted text.
fn literal(value: &str) -> String {
    let is_plain = DeValue::parse(value).is_ok_and(|value| {
        let value = value.get_ref();
        value.is_integer() || value.is_bool() || value.is_array() || value.is_str()
    });
    if is_plain && !value.contains('\n') { value.to_owned() } else { format!("{value:?}") }
}

/// The table that a path names: `Some(None)` for the file itself, which has an empty path. `None`: there is no such
/// table.
fn descend<'t>(file: &'t DeTable<'t>, path: &[&str]) -> Option<Option<&'t Spanned<DeValue<'t>>>> {
    let mut found = None;
    let mut fields = Some(file);
    for name in path {
        let value =
            fields?.iter().find(|(key, _)| key.get_ref() == name).map(|(_, value)| value)?;
        fields = value.get_ref().as_table();
        found = Some(value);
    }
    Some(found)
}

/// Returns the text with the field `name` of a table changed, or added at `insertion`: a position in the text, and the
/// separator that must follow the field there. `None`: the field must be added, and there is no such position.
fn in_table(
    text: &str,
    fields: &DeTable<'_>,
    insertion: Option<(usize, &str)>,
    name: &str,
    literal: &str,
) -> Option<String> {
    let old = fields.iter().find(|(key, _)| without_unit(key.get_ref()) == without_unit(name));
    let (replaced, new) = match old {
        Some((key, value)) => (key.span().start..value.span().end, format!("{name} = {literal}")),
        None => {
            let (position, separator) = insertion?;
            (position..position, format!("{name} = {literal}{separator}"))
        }
    };
    Some(replace(text, replaced, &new))
}

fn replace(text: &str, range: Range<usize>, new: &str) -> String {
    let (before, after) = (text.get(..range.start), text.get(range.end..));
    format!("{}{new}{}", before.unwrap_or_default(), after.unwrap_or_default())
}

/// Where a table's first field can be added, and the separator that follows it: on the line after the table's header,
/// or after its brace. `None` if the text at the table is neither a header nor a brace.
fn start_of_table(text: &str, table: &Spanned<DeValue<'_>>) -> Option<(usize, &'static str)> {
    let start = table.span().start;
    match text.as_bytes().get(start)? {
        b'[' => {
            let end = text[start..].find('\n');
            Some((end.map_or(text.len(), |end| start + end + 1), "\n"))
        }
        b'{' => Some((start + 1, ", ")),
        _ => None,
    }
}
