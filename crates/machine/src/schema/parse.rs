//! Parses the text of a file into a [`SystemModel`]. Each error names the line, the field and its allowed values.
//!
//! serde and toml report errors as texts; [`refused`] recognises these texts, so their wording matters when either
//! crate is updated. Tests of `schema` show which messages users get.

use serde::Deserialize;
use toml::Spanned;
use toml::de::{DeTable, DeValue, Deserializer, Error};

use super::{TEXT_BYTES_MAX, check};
use crate::model::ModelError;
use crate::system_model::SystemModel;

/// Suffixes of field names whose values are numbers without a unit, each with its unit.
pub(super) const UNIT_SUFFIXES: [(&str, &str); 2] = [("_bytes", "B"), ("_hz", "Hz")];

/// Parses and checks a model.
pub(super) fn parse(text: &str) -> Result<SystemModel, ModelError> {
    if text.len() > TEXT_BYTES_MAX {
        return Err(ModelError::new("", format!("a model of over {TEXT_BYTES_MAX} bytes")));
    }
    let file = DeTable::parse(text).map_err(|error| ModelError {
        line: error.span().map(|span| line_of(text, span.start)),
        ..ModelError::new("", one_line(&error))
    })?;
    let fields = with_units(file.get_ref());
    let model = deserialize(text, fields.clone()).map_err(|error| refused(text, fields, &error))?;
    refuse_arrays(text, file.get_ref())?;
    check::check(&model).map_err(|error| locate(text, file.get_ref(), &error))?;
    Ok(model)
}

/// Turns numbers of bytes and hertz into texts with their unit: `size_bytes = 16384` into `size_bytes = "16384 B"`. So
/// all quantities have one form.
fn with_units<'t>(fields: &DeTable<'t>) -> DeTable<'t> {
    let with_unit = |name: &str, value: &DeValue<'t>| match value {
        DeValue::Integer(number) => {
            let (_, unit) = UNIT_SUFFIXES.iter().find(|(suffix, _)| name.ends_with(suffix))?;
            let number = u64::from_str_radix(number.as_str(), number.radix()).ok()?;
            Some(DeValue::String(format!("{number} {unit}").into()))
        }
        // The fields of a core have no units.
        DeValue::Table(table) if name != "core" => Some(DeValue::Table(with_units(table))),
        _ => None,
    };
    let mut fields = fields.clone();
    for (key, value) in &mut fields {
        if let Some(changed) = with_unit(key.get_ref(), value.get_ref()) {
            *value.get_mut() = changed;
        }
    }
    fields
}

/// Refuses an array in place of a table, because serde would take its members for the first fields of the table.
fn refuse_arrays(text: &str, file: &DeTable<'_>) -> Result<(), ModelError> {
    let mut arrays = file.iter().filter(|(_, value)| matches!(value.get_ref(), DeValue::Array(_)));
    let Some((key, _)) = arrays.find(|(key, _)| &**key.get_ref() != "cpuid") else {
        return Ok(());
    };
    let line = Some(line_of(text, key.span().start));
    let problem = "an array is given; allowed: a table".to_owned();
    Err(ModelError { line, field: key.get_ref().to_string(), problem })
}

/// Reads a model from its fields. An error of the whole file has its position after the end of the text.
fn deserialize(text: &str, fields: DeTable<'_>) -> Result<SystemModel, Error> {
    let end = text.len()..text.len();
    SystemModel::deserialize(Deserializer::from(Spanned::new(end, fields)))
}

/// Converts an error of [`deserialize`] to an error with line, field and allowed values.
fn refused(text: &str, mut fields: DeTable<'_>, error: &Error) -> ModelError {
    let start = error.span().map_or(text.len(), |span| span.start);
    let mut path = path_at(&fields, start).unwrap_or_default();
    let line = if path.is_empty() { 1 } else { line_of(text, start) };
    let message = one_line(error);
    let quoted = |before: &str| message.strip_prefix(before)?.split_once('`');
    // For a missing or a duplicate field, `path` is the table of the field.
    let problem = if let Some((name, _)) = quoted("missing field `") {
        path.push(name.to_owned());
        let allowed = allowed(text, &mut fields, &path, DeValue::Array(Default::default()));
        format!("is missing{}", allowed.unwrap_or_default())
    } else if let Some((name, _)) = quoted("duplicate field `") {
        path.push(name.to_owned());
        "is given twice, under two names; allowed: one of them".to_owned()
    } else if let Some((name, _)) = quoted("unknown field `") {
        // A header such as `[a.b]` is the position of both tables.
        path.truncate(
            path.iter().position(|part| *part == name).map_or(path.len(), |index| index + 1),
        );
        message
    } else if message == "wanted string or table" {
        let allowed = allowed(text, &mut fields, &path, DeValue::String(Default::default()));
        format!("a text is wanted{}", allowed.unwrap_or_default())
    } else if let Some((given, allowed)) = message.split_once(", expected allowed: ") {
        let value = given.strip_prefix("invalid type: ").unwrap_or(given);
        format!("{value} is given; allowed: {allowed}")
    } else if let Some(given) = message.strip_suffix(", expected a boolean") {
        let value = given.strip_prefix("invalid type: ").unwrap_or(given);
        format!("{value} is given; allowed: true, false")
    } else {
        message
    };
    ModelError { line: Some(line), field: path.join("."), problem }
}

/// The allowed values of the field at `path`, as the end of a message. Finds them by an experiment: puts a value of a
/// `wrong` type there, and takes the allowed values from serde's message. `None` if there is no such field, or serde's
/// message names no values.
fn allowed<'t>(
    text: &str,
    fields: &mut DeTable<'t>,
    path: &[String],
    wrong: DeValue<'t>,
) -> Option<String> {
    let (name, tables) = path.split_last()?;
    let mut table = &mut *fields;
    for name in tables {
        let DeValue::Table(inner) = table.get_mut(name.as_str())?.get_mut() else { return None };
        table = inner;
    }
    table.insert(Spanned::new(0..0, name.clone().into()), Spanned::new(0..0, wrong));
    let message = one_line(&deserialize(text, fields.clone()).err()?);
    let (_, allowed) = message.split_once(", expected ")?;
    let is_for_users = allowed.starts_with("allowed: ") || allowed.contains('`');
    is_for_users.then(|| format!("; allowed: {}", allowed.trim_start_matches("allowed: ")))
}

/// The message of an error on one line.
fn one_line(error: &Error) -> String {
    error.message().trim_end().replace('\n', "; ")
}

/// Adds the line to an error of a check, and names the field as the text does: with or without its unit.
fn locate(text: &str, file: &DeTable<'_>, error: &ModelError) -> ModelError {
    let (mut table, mut start, mut path) = (Some(file), 0, Vec::new());
    for name in error.field.split('.') {
        let found = table.and_then(|table| {
            table.iter().find(|(key, _)| without_unit(key.get_ref()) == without_unit(name))
        });
        path.push(found.map_or(without_unit(name), |(key, _)| key.get_ref()));
        table = found.and_then(|(_, value)| value.get_ref().as_table());
        start = found.map_or(start, |(key, _)| key.span().start);
    }
    let line = Some(line_of(text, start));
    ModelError { line, field: path.join("."), problem: error.problem.clone() }
}

/// The name of a field without the suffix of its unit.
pub(super) fn without_unit(name: &str) -> &str {
    UNIT_SUFFIXES.iter().find_map(|(suffix, _)| name.strip_suffix(suffix)).unwrap_or(name)
}

/// The names of the fields that contain a byte of the text, the outermost first. `None`: no field contains it.
fn path_at(fields: &DeTable<'_>, byte: usize) -> Option<Vec<String>> {
    fields.iter().find_map(|(key, value)| {
        let inner_path = value.get_ref().as_table().and_then(|table| path_at(table, byte));
        let is_here = key.span().contains(&byte) || value.span().contains(&byte);
        let mut path = inner_path.or_else(|| is_here.then(Vec::new))?;
        path.insert(0, key.get_ref().to_string());
        Some(path)
    })
}

/// The number of the line, from 1, that contains a byte of the text.
fn line_of(text: &str, byte: usize) -> usize {
    let before = text.as_bytes().get(..byte).unwrap_or_default();
    before.iter().filter(|byte| **byte == b'\n').count() + 1
}
