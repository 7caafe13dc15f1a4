//! Rules of a gate, such as `handlers.self_mean_ns>+2%`: parsed from `irqlab compare --fail-on`, and applied to the
//! differences by the parent module. The syntax is public.

use std::fmt;
use std::str::FromStr;

use super::cells::Pair;
use super::decision::change;

/// How far a figure may change. Its sign is that of the change: not negative for an
/// upper limit, not positive for a lower limit.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Limit {
    /// A part of the first run's figure.
    Ratio(f64),
    /// In the unit of the column.
    Absolute(f64),
}

/// A rule of a gate. A figure that changes by more than the limit breaks it.
#[derive(Clone, Debug, PartialEq)]
pub struct Rule {
    /// The rule as the user typed it.
    pub text: String,
    /// The table's name. `None`: every table that has the column.
    pub table: Option<String>,
    /// Key columns and the values that they must have.
    pub filter: Vec<(String, String)>,
    pub column: String,
    /// Whether a change above the limit breaks the rule (`>`). If not, a change below the limit does (`<`).
    pub is_upper: bool,
    pub limit: Limit,
}

/// A text is not a rule. The field says why.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{0} (a rule is TABLE.COLUMN>+2%, TABLE[KEY=VALUE,...].COLUMN<-5%, or TABLE.COLUMN>+100)")]
pub struct RuleError(String);

impl FromStr for Rule {
    type Err = RuleError;

    /// Parses `PATH>LIMIT` or `PATH<LIMIT`. The limit is a percentage of the first run's figure
    /// (`+2%`), or a number in the unit of the column.
    fn from_str(text: &str) -> Result<Rule, RuleError> {
        let error = |problem: String| Err(RuleError(problem));
        // A key's value may contain < or >: the comparison sign is searched after the ].
        let filter_end = text.find(']').unwrap_or(0);
        let sign = text[filter_end..].find(['<', '>']).map(|offset| filter_end + offset);
        let Some(sign) = sign else {
            return error(format!("{text:?} has neither > nor <"));
        };
        let (path, is_upper, limit) =
            (text[..sign].trim(), &text[sign..=sign] == ">", text[sign + 1..].trim());
        let number = |text: &str| text.parse::<f64>().ok().filter(|number| number.is_finite());
        let parsed = match limit.strip_suffix('%') {
            Some(percent) => number(percent).map(|percent| Limit::Ratio(percent / 100.0)),
            None => number(limit).map(Limit::Absolute),
        };
        let Some(limit) = parsed else {
            return error(format!("{limit:?} is neither a number nor a percentage"));
        };
        let (Limit::Ratio(change) | Limit::Absolute(change)) = limit;
        let has_wrong_sign = if is_upper { change < 0.0 } else { change > 0.0 };
        if has_wrong_sign {
            return error(format!(
                "{text:?}: a limit must be at least 0 for growth (>), or at most 0 for shrinkage (<)"
            ));
        }
        let RulePath { table, filter, column } = RulePath::parse(text, path)?;
        if column.is_empty() || table.as_deref() == Some("") {
            return error(format!("{text:?} names no column"));
        }
        let (text, column) = (text.to_owned(), column.to_owned());
        Ok(Rule { text, table, filter, column, is_upper, limit })
    }
}

/// The part of a rule before its limit: the cells that the rule covers. The fields have the
/// meaning of the fields of [`Rule`].
struct RulePath<'t> {
    table: Option<String>,
    filter: Vec<(String, String)>,
    column: &'t str,
}

impl<'t> RulePath<'t> {
    /// Parses `TABLE[KEY=VALUE,...].COLUMN`, `TABLE.COLUMN` or `COLUMN`. `text`: the whole rule, for errors.
    fn parse(text: &str, path: &'t str) -> Result<RulePath<'t>, RuleError> {
        let Some((table, after_table)) = path.split_once('[') else {
            let (table, column) = match path.split_once('.') {
                Some((table, column)) => (Some(table.to_owned()), column),
                None => (None, path),
            };
            return Ok(RulePath { table, filter: Vec::new(), column });
        };
        let Some((filter, column)) = after_table.split_once(']') else {
            return Err(RuleError(format!("{text:?} lacks a ]")));
        };
        let Some(column) = column.strip_prefix('.') else {
            return Err(RuleError(format!("{text:?}: .COLUMN is expected after the ]")));
        };
        let pairs = filter.split(',').map(|pair| pair.split_once('='));
        let pairs: Option<Vec<_>> = pairs
            .map(|pair| pair.map(|(key, value)| (key.trim().to_owned(), value.to_owned())))
            .collect();
        let Some(filter) = pairs else {
            return Err(RuleError(format!("{filter:?} is no list of KEY=VALUE")));
        };
        Ok(RulePath { table: Some(table.to_owned()), filter, column })
    }
}

impl fmt::Display for Rule {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.write_str(&self.text)
    }
}

impl Rule {
    /// Whether the rule is about the cell of `pair`: table, column and all keys of the filter match.
    #[must_use]
    pub fn covers(&self, pair: &Pair<'_>) -> bool {
        let row_has = |(key, value): &(String, String)| {
            pair.row.iter().any(|(name, text)| name == key && text == value)
        };
        self.is_about(&pair.table.name, &pair.column.name) && self.filter.iter().all(row_has)
    }

    /// Whether the rule is about cells of this column of this table, in any row.
    #[must_use]
    pub fn is_about(&self, table: &str, column: &str) -> bool {
        self.table.as_deref().is_none_or(|name| name == table) && self.column == column
    }

    /// The limit as a difference from the first run's figure `base`, in the unit of the column.
    #[must_use]
    pub fn limit_of(&self, base: f64) -> f64 {
        match self.limit {
            Limit::Ratio(ratio) => ratio * base.abs(),
            Limit::Absolute(change) => change,
        }
    }

    /// Whether `difference`, from the first run's figure `base`, is beyond the limit.
    #[must_use]
    pub fn is_beyond(&self, difference: f64, base: f64) -> bool {
        // A difference that is the limit but for rounding is not beyond it.
        let excess = change(self.limit_of(base), difference);
        if self.is_upper { excess > 0.0 } else { excess < 0.0 }
    }
}
