//! Reads a TOML table field by field: each error names the line, the field and its allowed values.

use std::cell::RefCell;
use std::fmt::Display;
use std::ops::{Range, RangeInclusive};

use serde::de::DeserializeOwned;
use toml::Spanned;
use toml::de::{DeTable, DeValue, Deserializer};

use super::units::{self, Units};
use crate::model::ModelError;

/// The longest text of a field, bytes.
const WORDS_BYTES_MAX: usize = 200;

/// A table of a file, and which of its fields were read so far.
pub(crate) struct Reader<'t> {
    text: &'t str,
    /// The table's name and a dot; empty for the file itself.
    path: String,
    span: Range<usize>,
    fields: &'t DeTable<'t>,
    asked: RefCell<Vec<String>>,
}

impl<'t> Reader<'t> {
    /// Returns the reader of a whole file.
    pub(crate) fn new(text: &'t str, file: &'t Spanned<DeTable<'t>>) -> Self {
        Self::from_table(text, String::new(), 0..0, file.get_ref())
    }

    fn from_table(
        text: &'t str,
        path: String,
        span: Range<usize>,
        fields: &'t DeTable<'t>,
    ) -> Self {
        Reader { text, path, span, fields, asked: RefCell::default() }
    }

    /// Returns an error at `field`, or at the table if the field is missing.
    pub(crate) fn fail(&self, field: &str, problem: impl Display) -> ModelError {
        let find = |fits: &dyn Fn(&str) -> bool| self.fields.keys().find(|key| fits(key.get_ref()));
        let with_unit = |key: &str| {
            key.strip_prefix(field).is_some_and(|unit| ["_bytes", "_hz"].contains(&unit))
        };
        let key = find(&|key| key == field).or_else(|| find(&with_unit));
        let start = key.map_or(self.span.start, |key| key.span().start);
        let field = key.map_or(field, |key| key.get_ref());
        ModelError {
            line: Some(line_of(self.text, start)),
            field: format!("{}{field}", self.path),
            problem: problem.to_string(),
        }
    }

    /// Adds the line to an error of a part that does not know the file.
    pub(crate) fn locate(&self, error: ModelError) -> ModelError {
        let field = error.field.rsplit('.').next().unwrap_or_default();
        let field = field.strip_suffix("_bytes").unwrap_or(field);
        self.fail(field, error.problem)
    }

    /// Whether the table has the field.
    pub(crate) fn has(&self, field: &str) -> bool {
        self.value(field).is_some()
    }

    fn value(&self, field: &str) -> Option<&'t DeValue<'t>> {
        let mut asked = self.asked.borrow_mut();
        if !asked.iter().any(|known_field| known_field == field) {
            asked.push(field.to_owned());
        }
        self.fields.get(field).map(Spanned::get_ref)
    }

    fn wrong(&self, field: &str, value: &DeValue<'_>, wanted: impl Display) -> ModelError {
        self.fail(field, format!("{} is given; allowed: {wanted}", value.type_str()))
    }

    /// A whole number in `range`, if the field is there.
    pub(crate) fn integer(
        &self,
        field: &str,
        range: RangeInclusive<u64>,
    ) -> Result<Option<u64>, ModelError> {
        let Some(value) = self.value(field) else { return Ok(None) };
        let allowed = format!("{}..={}", range.start(), range.end());
        let Some(digits) = value.as_integer() else {
            return Err(self.wrong(field, value, format!("whole numbers in {allowed}")));
        };
        match u64::from_str_radix(digits.as_str(), digits.radix()) {
            Ok(number) if range.contains(&number) => Ok(Some(number)),
            _ => Err(self.fail(field, format!("{digits} is not in {allowed}"))),
        }
    }

    /// Like [`Reader::integer`], for a field that must be there.
    pub(crate) fn needed(
        &self,
        field: &str,
        range: RangeInclusive<u64>,
    ) -> Result<u64, ModelError> {
        let allowed = format!("{}..={}", range.start(), range.end());
        self.integer(field, range)?
            .ok_or_else(|| self.fail(field, format!("is missing; allowed: {allowed}")))
    }

    /// `NAME = "16 KiB"` or `NAME_UNIT = 16384`, whose unit is the smallest of `units`.
    pub(crate) fn quantity(
        &self,
        field: &str,
        suffix: &str,
        units: Units,
        range: RangeInclusive<u64>,
    ) -> Result<Option<u64>, ModelError> {
        let plain = format!("{field}_{suffix}");
        let Some(value) = self.value(field) else { return self.integer(&plain, range) };
        if self.has(&plain) {
            return Err(
                self.fail(field, format!("is given together with {plain}; allowed: one of them"))
            );
        }
        let example = format!("a text with its unit, as \"{} {}\"", 16, units[1].0);
        let Some(text) = value.as_str() else {
            return Err(self.wrong(field, value, format!("{example}, or {plain}")));
        };
        let number = units::parse(text, units).map_err(|problem| self.fail(field, problem))?;
        if !range.contains(&number) {
            let allowed = format!("{}..={} {}", range.start(), range.end(), units[0].0);
            return Err(self.fail(field, format!("{text:?} is not in {allowed}")));
        }
        Ok(Some(number))
    }

    /// A list of sizes, such as `["4 KiB", "2 MiB"]`.
    pub(crate) fn sizes(&self, field: &str) -> Result<Option<Vec<u64>>, ModelError> {
        let Some(value) = self.value(field) else { return Ok(None) };
        let wanted = "a list of sizes, as [\"4 KiB\", \"2 MiB\"]";
        let Some(list) = value.as_array() else { return Err(self.wrong(field, value, wanted)) };
        let mut sizes = Vec::new();
        for item in list.iter().take(8) {
            let Some(text) = item.get_ref().as_str() else {
                return Err(self.wrong(field, item.get_ref(), wanted));
            };
            let size = units::parse(text, units::BYTES);
            sizes.push(size.map_err(|problem| self.fail(field, problem))?);
        }
        Ok(Some(sizes))
    }

    /// A list of at most `most` texts.
    pub(crate) fn texts(
        &self,
        field: &str,
        entries_max: usize,
    ) -> Result<Option<Vec<String>>, ModelError> {
        let Some(value) = self.value(field) else { return Ok(None) };
        let wanted = format!("a list of up to {entries_max} texts");
        let list = value.as_array().filter(|list| list.len() <= entries_max);
        let Some(list) = list else { return Err(self.wrong(field, value, wanted)) };
        let text = |item: &Spanned<DeValue<'_>>| {
            let text = item.get_ref().as_str().filter(|text| text.len() <= WORDS_BYTES_MAX);
            text.map(str::to_owned).ok_or_else(|| self.wrong(field, item.get_ref(), &wanted))
        };
        list.iter().map(text).collect::<Result<_, _>>().map(Some)
    }

    /// A text.
    pub(crate) fn short_text(&self, field: &str) -> Result<Option<String>, ModelError> {
        let Some(value) = self.value(field) else { return Ok(None) };
        let wanted = format!("a text of up to {WORDS_BYTES_MAX} bytes");
        match value.as_str() {
            Some(text) if text.len() <= WORDS_BYTES_MAX && !text.contains(char::is_control) => {
                Ok(Some(text.to_owned()))
            }
            Some(_) => Err(self.fail(field, format!("allowed: {wanted}"))),
            None => Err(self.wrong(field, value, wanted)),
        }
    }

    /// True or false.
    pub(crate) fn flag(&self, field: &str) -> Result<Option<bool>, ModelError> {
        let Some(value) = self.value(field) else { return Ok(None) };
        value.as_bool().map(Some).ok_or_else(|| self.wrong(field, value, "true, false"))
    }

    /// One of several words.
    pub(crate) fn choice<T: Copy>(
        &self,
        field: &str,
        choices: &[(&str, T)],
    ) -> Result<Option<T>, ModelError> {
        let Some(value) = self.value(field) else { return Ok(None) };
        let allowed = || {
            let names: Vec<_> = choices.iter().map(|(name, _)| format!("{name:?}")).collect();
            names.join(", ")
        };
        let Some(text) = value.as_str() else { return Err(self.wrong(field, value, allowed())) };
        match choices.iter().find(|(name, _)| *name == text) {
            Some((_, choice)) => Ok(Some(*choice)),
            None => Err(self.fail(field, format!("{text:?} is unknown; allowed: {}", allowed()))),
        }
    }

    /// A table inside this one.
    pub(crate) fn table(&self, field: &str) -> Result<Option<Reader<'t>>, ModelError> {
        let Some(value) = self.value(field) else { return Ok(None) };
        let Some(fields) = value.as_table() else {
            return Err(self.wrong(field, value, format!("a table, [{}{field}]", self.path)));
        };
        let span = self.fields.get(field).map_or(0..0, Spanned::span);
        Ok(Some(Self::from_table(self.text, format!("{}{field}.", self.path), span, fields)))
    }

    /// A table whose fields another part of the program defines.
    pub(crate) fn foreign<T: DeserializeOwned>(
        &self,
        field: &str,
    ) -> Result<Option<T>, ModelError> {
        let Some(value) = self.value(field) else { return Ok(None) };
        let Some(fields) = value.as_table() else {
            return Err(self.wrong(field, value, format!("a table, [{}{field}]", self.path)));
        };
        let span = self.fields.get(field).map_or(0..0, Spanned::span);
        let table = Deserializer::from(Spanned::new(span.clone(), fields.clone()));
        T::deserialize(table).map(Some).map_err(|error| {
            let offset = error.span().map_or(span.start, |span| span.start);
            let mut path = format!("{}{field}", self.path);
            path_at(fields, offset, &mut path);
            let problem = error.message().trim_end().replace('\n', "; ");
            ModelError { line: Some(line_of(self.text, offset)), field: path, problem }
        })
    }

    /// Adds the line to an error of a part that names its field from the top of this table.
    pub(crate) fn locate_path(&self, error: ModelError) -> ModelError {
        let (mut fields, mut start) = (self.fields, self.span.start);
        for name in error.field.split('.') {
            let Some((key, value)) = fields.iter().find(|(key, _)| key.get_ref() == name) else {
                break;
            };
            start = key.span().start;
            match value.get_ref().as_table() {
                Some(table) => fields = table,
                None => break,
            }
        }
        ModelError { line: Some(line_of(self.text, start)), ..error }
    }

    /// Refuses fields that were not read: they are unknown.
    pub(crate) fn done(&self) -> Result<(), ModelError> {
        let asked = self.asked.borrow();
        for (key, _) in self.fields {
            let name = key.get_ref();
            if !asked.iter().any(|known_field| known_field == name) {
                let problem = format!("is unknown; allowed: {}", asked.join(", "));
                return Err(ModelError {
                    line: Some(line_of(self.text, key.span().start)),
                    field: format!("{}{name}", self.path),
                    problem,
                });
            }
        }
        Ok(())
    }
}

/// Appends the names of the fields that contain a byte, the outermost first.
fn path_at(fields: &DeTable<'_>, byte: usize, path: &mut String) -> bool {
    for (key, value) in fields {
        let before = path.len();
        path.push('.');
        path.push_str(key.get_ref());
        let below = value.get_ref().as_table().is_some_and(|table| path_at(table, byte, path));
        if below || key.span().contains(&byte) || value.span().contains(&byte) {
            return true;
        }
        path.truncate(before);
    }
    false
}

/// The number of the line, from 1, that a byte is in.
pub(crate) fn line_of(text: &str, byte: usize) -> usize {
    let before = text.as_bytes().get(..byte).unwrap_or_default();
    before.iter().filter(|byte| **byte == b'\n').count() + 1
}
