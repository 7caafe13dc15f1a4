//! Rules of a gate: `handlers.self_mean_ns>+2%`.

use std::fmt;
use std::str::FromStr;

use super::cells::Pair;

/// How far a figure may change.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Limit {
    /// A part of the first run's figure.
    Ratio(f64),
    /// In the unit of the column.
    Absolute(f64),
}

/// A rule: it is broken by a figure that changes by more than its limit.
#[derive(Clone, Debug, PartialEq)]
pub struct Rule {
    /// As it was typed.
    pub text: String,
    /// Table; every table that has the column, if none was named.
    pub table: Option<String>,
    /// Key columns and the values that they must have.
    pub filter: Vec<(String, String)>,
    pub column: String,
    /// Whether more than the limit breaks the rule, or less.
    pub is_upper: bool,
    pub limit: Limit,
}

/// A text that is no rule.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{0} (a rule is TABLE.COLUMN>+2%, TABLE[KEY=VALUE,...].COLUMN<-5%, or TABLE.COLUMN>+100)")]
pub struct RuleError(String);

impl FromStr for Rule {
    type Err = RuleError;

    fn from_str(text: &str) -> Result<Rule, RuleError> {
        let error = |what: String| Err(RuleError(what));
        let path_end = text.find(']').unwrap_or(0);
        let Some(at) = text[path_end..].find(['<', '>']).map(|at| path_end + at) else {
            return error(format!("{text:?} has neither > nor <"));
        };
        let (path, is_upper, limit) =
            (text[..at].trim(), &text[at..=at] == ">", text[at + 1..].trim());
        let number = |text: &str| text.parse::<f64>().ok().filter(|number| number.is_finite());
        let parsed = match limit.strip_suffix('%') {
            Some(percent) => number(percent).map(|percent| Limit::Ratio(percent / 100.0)),
            None => number(limit).map(Limit::Absolute),
        };
        let Some(limit) = parsed else {
            return error(format!("{limit:?} is neither a number nor a percentage"));
        };
        let (Limit::Ratio(by) | Limit::Absolute(by)) = limit;
        if if is_upper { by < 0.0 } else { by > 0.0 } {
            return error(format!(
                "{text:?}: what may grow has a limit from 0 on, what may shrink to 0"
            ));
        }
        let (table, filter, column) = match path.split_once('[') {
            Some((table, rest)) => {
                let Some((filter, column)) = rest.split_once(']') else {
                    return error(format!("{text:?} lacks a ]"));
                };
                let Some(column) = column.strip_prefix('.') else {
                    return error(format!("{text:?}: .COLUMN is expected after the ]"));
                };
                let pairs = filter.split(',').map(|pair| pair.split_once('='));
                let pairs: Option<Vec<_>> = pairs
                    .map(|pair| pair.map(|(key, value)| (key.trim().to_owned(), value.to_owned())))
                    .collect();
                let Some(pairs) = pairs else {
                    return error(format!("{filter:?} is no list of KEY=VALUE"));
                };
                (Some(table.to_owned()), pairs, column)
            }
            None => match path.split_once('.') {
                Some((table, column)) => (Some(table.to_owned()), Vec::new(), column),
                None => (None, Vec::new(), path),
            },
        };
        if column.is_empty() || table.as_deref() == Some("") {
            return error(format!("{text:?} names no column"));
        }
        let (text, column) = (text.to_owned(), column.to_owned());
        Ok(Rule { text, table, filter, column, is_upper, limit })
    }
}

impl fmt::Display for Rule {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.write_str(&self.text)
    }
}

impl Rule {
    /// Whether the rule is about that cell.
    #[must_use]
    pub fn covers(&self, pair: &Pair<'_>) -> bool {
        let has = |(key, value): &(String, String)| {
            pair.row.iter().any(|(name, text)| name == key && text == value)
        };
        self.is_about(&pair.table.name, &pair.column.name) && self.filter.iter().all(has)
    }

    /// Whether the rule is about cells of that column.
    #[must_use]
    pub fn is_about(&self, table: &str, column: &str) -> bool {
        self.table.as_deref().is_none_or(|name| name == table) && self.column == column
    }

    /// The limit as a difference to `base`, in the unit of the column.
    #[must_use]
    pub fn limit_of(&self, base: f64) -> f64 {
        match self.limit {
            Limit::Ratio(ratio) => ratio * base.abs(),
            Limit::Absolute(by) => by,
        }
    }

    /// Whether a difference is beyond the limit.
    #[must_use]
    pub fn is_beyond(&self, difference: f64, base: f64) -> bool {
        let limit = self.limit_of(base);
        if self.is_upper { difference > limit } else { difference < limit }
    }
}
