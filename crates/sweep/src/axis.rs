//! The axes of a sweep: a name and the values that it takes. `spec` parses them.

use toml::{Table, Value};

use crate::error::SweepError;

/// Maximum length of a value, bytes.
const VALUE_BYTES_MAX: usize = 4096;
/// Maximum length of an axis's name, bytes.
const NAME_BYTES_MAX: usize = 256;

/// The values of an axis, each as the text of an argument.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Values {
    List(Vec<String>),
    /// `count` numbers from `from` on, `step` apart. A long range takes no memory until it is used.
    Range {
        from: i64,
        step: i64,
        count: u64,
    },
}

/// A name with its values.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Axis {
    /// An option (`--seed`), an option with a field (`--set l2.size`), or the name of a placeholder (`workload`, for
    /// `{workload}` in the command).
    pub name: String,
    pub values: Values,
}

impl Values {
    #[must_use]
    pub fn count(&self) -> u64 {
        match self {
            Values::List(list) => list.len() as u64,
            Values::Range { count, .. } => *count,
        }
    }

    /// All values as texts. Call it only after the count has been checked.
    #[must_use]
    pub fn texts(&self) -> Vec<String> {
        match self {
            Values::List(list) => list.clone(),
            Values::Range { from, step, count } => {
                let number = |index: u64| i128::from(*from) + i128::from(*step) * i128::from(index);
                (0..*count).map(|index| number(index).to_string()).collect()
            }
        }
    }
}

impl Axis {
    /// Reads an axis of a specification: a list of values, or a table with `from`, `to` and perhaps `step`.
    pub(crate) fn parse(name: &str, value: &Value) -> Result<Axis, SweepError> {
        let wrong = |reason: String| SweepError::Invalid(format!("axis {name:?}: {reason}"));
        if name.is_empty() || name.len() > NAME_BYTES_MAX {
            return Err(wrong(format!("a name has 1 to {NAME_BYTES_MAX} bytes")));
        }
        let values = match value {
            Value::Array(list) => parse_list(list).map_err(wrong)?,
            Value::Table(range) => parse_range(range).map_err(wrong)?,
            _ => {
                let forms = "write a list, as in [1, 2], or a range, as in { from = 1, to = 10 }";
                return Err(wrong(forms.to_owned()));
            }
        };
        Ok(Axis { name: name.to_owned(), values })
    }
}

fn parse_list(list: &[Value]) -> Result<Values, String> {
    if list.is_empty() {
        return Err("it has no values".to_owned());
    }
    let texts = list.iter().map(value_text).collect::<Result<Vec<String>, String>>()?;
    let mut sorted: Vec<&String> = texts.iter().collect();
    sorted.sort_unstable();
    if let Some(pair) = sorted.windows(2).find(|pair| pair[0] == pair[1]) {
        return Err(format!("the value {:?} occurs twice", pair[0]));
    }
    Ok(Values::List(texts))
}

fn parse_range(range: &Table) -> Result<Values, String> {
    let unknown = range.keys().find(|key| !["from", "to", "step"].contains(&key.as_str()));
    if let Some(key) = unknown {
        return Err(format!("a range has from, to and step, not {key:?}"));
    }
    let number = |key: &str| match range.get(key) {
        None => Ok(None),
        Some(Value::Integer(number)) => Ok(Some(*number)),
        Some(_) => Err(format!("{key} must be a whole number (list other values one by one)")),
    };
    let (Some(from), Some(to)) = (number("from")?, number("to")?) else {
        return Err("a range needs from and to".to_owned());
    };
    let step = number("step")?.unwrap_or(1);
    if step <= 0 || from > to {
        return Err(
            "a range goes up: from must not exceed to, and step must be positive".to_owned()
        );
    }
    let count = (i128::from(to) - i128::from(from)) / i128::from(step) + 1;
    let count = u64::try_from(count).unwrap_or(u64::MAX);
    Ok(Values::Range { from, step, count })
}

/// A value of the specification as the text of an argument. A whole real number loses its point: `1.0` is `1`.
///
/// Fails for lists, tables, dates, numbers that are not finite, and texts that are too long or have a zero byte.
pub(crate) fn value_text(value: &Value) -> Result<String, String> {
    let text = match value {
        Value::String(text) => text.clone(),
        Value::Integer(number) => number.to_string(),
        Value::Float(number) if number.is_finite() => number.to_string(),
        Value::Boolean(flag) => flag.to_string(),
        _ => {
            let kind = value.type_str();
            return Err(format!("{kind} is neither a text, a finite number, nor true or false"));
        }
    };
    if text.len() > VALUE_BYTES_MAX || text.contains('\0') {
        return Err(format!("a value has at most {VALUE_BYTES_MAX} bytes, and no zero byte"));
    }
    Ok(text)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(text: &str) -> Result<Vec<String>, String> {
        let table: Table = toml::from_str(&format!("a = {text}")).unwrap();
        let axis = Axis::parse("a", &table["a"]).map_err(|error| error.to_string())?;
        assert_eq!(axis.values.count(), axis.values.texts().len() as u64);
        Ok(axis.values.texts())
    }

    #[test]
    fn lists_and_ranges_become_texts() {
        assert_eq!(parse("[1, 'x', 0.5, true]").unwrap(), ["1", "x", "0.5", "true"]);
        assert_eq!(parse("{ from = -1, to = 4, step = 2 }").unwrap(), ["-1", "1", "3"]);
        assert_eq!(parse("{ from = 3, to = 3 }").unwrap(), ["3"]);
    }

    #[test]
    fn values_that_make_no_sense_are_refused() {
        for (text, reason) in [
            ("[]", "no values"),
            ("[1, '1']", "occurs twice"),
            ("[[1]]", "neither a text"),
            ("3", "write a list"),
            ("{ from = 3, to = 1 }", "goes up"),
            ("{ from = 1, to = 3, step = 0 }", "goes up"),
            ("{ from = 1 }", "needs from and to"),
            ("{ from = 1, to = 2.5 }", "whole number"),
            ("{ from = 1, to = 2, by = 1 }", "not \"by\""),
        ] {
            let error = parse(text).unwrap_err();
            assert!(error.contains(reason), "{text}: {error}");
        }
    }

    #[test]
    fn the_longest_range_is_counted_without_its_values() {
        let range = format!("a = {{ from = {}, to = {} }}", i64::MIN, i64::MAX);
        let table: Table = toml::from_str(&range).unwrap();
        assert_eq!(Axis::parse("a", &table["a"]).unwrap().values.count(), u64::MAX);
    }
}
