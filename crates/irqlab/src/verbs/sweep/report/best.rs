//! `--best`: the combination with the smallest or largest figure among those that meet limits.

use std::fmt::Write as _;

use lab::compare::Reading;
use record::{Column, Format, Value};
use report::{Extreme, Figure, candidates, human};

use crate::options::any_duration;

/// Number of combinations that are named as possibly equally good.
const NAMED_MAX: usize = 5;

/// A limit on a column.
#[derive(Clone, Debug, PartialEq)]
pub struct Limit {
    pub column: String,
    is_upper: bool,
    /// Whether the limit itself is allowed.
    includes_end: bool,
    /// In the unit of the column.
    end: f64,
    /// The limit as the user wrote it.
    text: String,
}

/// The goal of a search: `min COLUMN subject to COLUMN<=NUMBER, ...`.
#[derive(Clone, Debug, PartialEq)]
pub struct Goal {
    /// The goal as the user wrote it.
    pub text: String,
    pub extreme: Extreme,
    pub column: String,
    pub limits: Vec<Limit>,
}

impl std::str::FromStr for Goal {
    type Err = String;

    fn from_str(text: &str) -> Result<Goal, String> {
        let form = "(write 'min COLUMN subject to COLUMN<=NUMBER, ...' or 'max COLUMN')";
        let wrong = |what: &str| format!("{what} {form}");
        let (goal, limits) = match text.split_once("subject to") {
            Some((goal, limits)) => (goal, Some(limits)),
            None => (text, None),
        };
        let words: Vec<&str> = goal.split_whitespace().collect();
        let [extreme, column] = words[..] else {
            return Err(wrong("the part before \"subject to\" is min or max, and a column"));
        };
        let extreme = match extreme {
            "min" => Extreme::Smallest,
            "max" => Extreme::Largest,
            other => return Err(wrong(&format!("{other:?} is neither min nor max"))),
        };
        let limits = match limits {
            None => Vec::new(),
            Some(text) => text
                .split(',')
                .flat_map(|part| part.split(" and "))
                .map(|part| part.parse().map_err(|error: String| wrong(&error)))
                .collect::<Result<_, _>>()?,
        };
        Ok(Goal { text: text.to_owned(), extreme, column: column.to_owned(), limits })
    }
}

impl std::str::FromStr for Limit {
    type Err = String;

    fn from_str(text: &str) -> Result<Limit, String> {
        let text = text.trim();
        let sign = text.find(['<', '>']).ok_or(format!("{text:?} has neither < nor >"))?;
        let (column, rest) = text.split_at(sign);
        let (is_upper, rest) = (rest.starts_with('<'), &rest[1..]);
        let includes_end = rest.starts_with('=');
        let number = rest.trim_start_matches('=').trim();
        let column = column.trim().to_owned();
        let end = number_in_unit_of(&column, number)
            .ok_or(format!("{number:?} is no number in the unit of {column}"))?;
        if column.is_empty() {
            return Err(format!("{text:?} names no column"));
        }
        Ok(Limit { column, is_upper, includes_end, end, text: text.to_owned() })
    }
}

/// A number in the unit of the column, perhaps with a unit: `5us` and `5000` for a column of nanoseconds, `2%` for a
/// ratio. `None` if the unit is not that of the column.
fn number_in_unit_of(column: &str, text: &str) -> Option<f64> {
    let number = |text: &str| text.trim().parse::<f64>().ok().filter(|number| number.is_finite());
    if let Some(percent) = text.strip_suffix('%') {
        let is_ratio = column.ends_with("_ratio");
        return number(percent).filter(|_| is_ratio).map(|percent| percent / 100.0);
    }
    let time = || any_duration(text).ok().map(|time| time.as_nanos() as f64);
    number(text).or_else(|| column.ends_with("_ns").then(time).flatten())
}

impl Limit {
    fn admits(&self, value: f64) -> bool {
        match (self.is_upper, self.includes_end) {
            (true, true) => value <= self.end,
            (true, false) => value < self.end,
            (false, true) => value >= self.end,
            (false, false) => value > self.end,
        }
    }

    /// Whether the limit excludes a figure, but not the whole interval of the figure. False for a
    /// figure of unknown uncertainty.
    fn excludes_in_doubt(&self, reading: &Reading) -> bool {
        let admits_part = |(low, high)| self.admits(low) || self.admits(high);
        !self.admits(reading.value()) && reading.interval().is_some_and(admits_part)
    }

    /// Whether the whole interval of a figure meets the limit. A figure of unknown uncertainty is in doubt.
    fn surely_admits(&self, reading: &Reading) -> bool {
        reading.interval().is_some_and(|(low, high)| self.admits(low) && self.admits(high))
    }
}

/// A combination that takes part: its name, the reading of the goal's column, and one reading for each limit.
pub struct Candidate<'a> {
    pub name: String,
    pub goal: Option<&'a Reading>,
    pub limits: Vec<Option<&'a Reading>>,
}

/// The best combinations, as sentences. `column`: the goal's column.
pub fn best_sentences(goal: &Goal, column: &Column, all: &[Candidate<'_>]) -> Vec<String> {
    let has_all = |candidate: &&Candidate<'_>| {
        candidate.goal.is_some() && candidate.limits.iter().all(Option::is_some)
    };
    let (complete, incomplete): (Vec<_>, Vec<_>) = all.iter().partition(has_all);
    let meets = |candidate: &&&Candidate<'_>| {
        let mut pairs = goal.limits.iter().zip(candidate.limits.iter().flatten());
        pairs.all(|(limit, reading)| limit.admits(reading.value()))
    };
    let fitting: Vec<&Candidate<'_>> = complete.iter().filter(meets).copied().collect();
    let mut counts = format!("{} of {} combinations", fitting.len(), complete.len());
    counts += if goal.limits.is_empty() { " have the figure" } else { " meet the limits" };
    if !incomplete.is_empty() {
        let _ = write!(counts, "; {} more lack a figure, and take no part", incomplete.len());
    }
    let looked_for = goal_text(goal);
    if fitting.is_empty() {
        let none = format!("best ({looked_for}): none. {counts}.");
        return [none]
            .into_iter()
            .chain(excluded_in_doubt(goal, column, &complete, None))
            .collect();
    }
    let readings = fitting.iter().filter_map(|candidate| candidate.goal);
    let figures: Vec<Figure> = readings.map(figure).collect();
    let winners = candidates(&figures, goal.extreme);
    let Some((&first, rivals)) = winners.split_first() else { return Vec::new() };
    let winner = fitting[first];
    let named_figure = |candidate: &Candidate<'_>| {
        let text = candidate.goal.map_or(String::new(), |reading| reading_text(column, reading));
        (candidate.name.clone(), text)
    };
    let is_bound = winner.goal.is_some_and(|reading| reading.bound().is_some());
    if is_bound && !rivals.is_empty() {
        let possible = winners.iter().map(|index| {
            let (name, text) = named_figure(fitting[*index]);
            format!("{name}, with {text}")
        });
        let named: Vec<String> = possible.take(NAMED_MAX).collect();
        return vec![format!(
            "best ({looked_for}): not known, because bounds do not tell. {counts}. It may be one of these: {}{}.",
            named.join("; "),
            more_text(winners.len())
        )];
    }
    let (name, text) = named_figure(winner);
    let mut sentences =
        vec![format!("best ({looked_for}): {name}, with {} {text}. {counts}.", goal.column)];
    if !rivals.is_empty() {
        let named: Vec<&str> =
            rivals.iter().take(NAMED_MAX).map(|rival| fitting[*rival].name.as_str()).collect();
        let reason = if figures[first].has_interval() {
            "Their intervals overlap its interval or are not known, so these may be as good"
        } else {
            "The figure has no interval that holds from run to run, so nothing tells these from the best"
        };
        sentences.push(format!("{reason}: {}{}.", named.join("; "), more_text(rivals.len())));
    }
    let doubtful = goal.limits.iter().zip(winner.limits.iter().flatten());
    let doubtful: Vec<&str> = doubtful
        .filter(|(limit, reading)| !limit.surely_admits(reading))
        .map(|(limit, _)| limit.text.as_str())
        .collect();
    if !doubtful.is_empty() {
        sentences.push(format!(
            "In doubt, because its interval reaches beyond the limit or is not known: {}.",
            doubtful.join(", ")
        ));
    }
    sentences.extend(excluded_in_doubt(goal, column, &complete, Some(figures[first].value)));
    sentences
}

/// A sentence with the combinations that would be better than `best_value`, if their figures did not miss limits that
/// are within the intervals of these figures. `best_value`: the goal's column of the best combination, or `None` if no
/// combination meets the limits. Returns `None` if there are no such combinations.
fn excluded_in_doubt(
    goal: &Goal,
    column: &Column,
    complete: &[&Candidate<'_>],
    best_value: Option<f64>,
) -> Option<String> {
    let is_better = |value: f64, other: f64| match goal.extreme {
        Extreme::Smallest => value < other,
        Extreme::Largest => value > other,
    };
    let mut excluded: Vec<(f64, String)> = Vec::new();
    for candidate in complete {
        let Some(reading) = candidate.goal else { continue };
        let value = reading.value();
        let pairs = goal.limits.iter().zip(candidate.limits.iter().flatten());
        let missed: Vec<_> =
            pairs.filter(|(limit, reading)| !limit.admits(reading.value())).collect();
        let are_in_doubt = missed.iter().all(|(limit, reading)| limit.excludes_in_doubt(reading));
        if missed.is_empty()
            || !are_in_doubt
            || best_value.is_some_and(|best_value| !is_better(value, best_value))
        {
            continue;
        }
        let limits: Vec<&str> = missed.iter().map(|(limit, _)| limit.text.as_str()).collect();
        let text = reading_text(column, reading);
        excluded.push((value, format!("{}, with {text} ({})", candidate.name, limits.join(", "))));
    }
    if excluded.is_empty() {
        return None;
    }
    excluded.sort_by(|(value, _), (other, _)| match goal.extreme {
        Extreme::Smallest => value.total_cmp(other),
        Extreme::Largest => other.total_cmp(value),
    });
    let more = more_text(excluded.len());
    let named: Vec<String> = excluded.into_iter().take(NAMED_MAX).map(|(_, text)| text).collect();
    let comparison = if best_value.is_some() { "better, and " } else { "" };
    Some(format!(
        "In doubt, because these are {comparison}left out by a limit within their intervals: {}{more}.",
        named.join("; ")
    ))
}

/// The number of combinations after the first [`NAMED_MAX`], as the end of a list. Empty if there are none.
fn more_text(count: usize) -> String {
    let more = count.saturating_sub(NAMED_MAX);
    if more > 0 { format!("; and {more} more") } else { String::new() }
}

fn figure(reading: &Reading) -> Figure {
    match reading.interval().filter(|_| !reading.needs_runs()) {
        Some((low, high)) => Figure { value: reading.value(), low, high },
        None => Figure::with_unknown_error(reading.value()),
    }
}

fn goal_text(goal: &Goal) -> String {
    let extreme = if goal.extreme == Extreme::Smallest { "min" } else { "max" };
    let limits: Vec<&str> = goal.limits.iter().map(|limit| limit.text.as_str()).collect();
    let limits = if limits.is_empty() {
        String::new()
    } else {
        format!(" subject to {}", limits.join(", "))
    };
    format!("{extreme} {}{limits}", goal.column)
}

/// A figure with its unit, and with its sign if it is only a bound.
fn reading_text(column: &Column, reading: &Reading) -> String {
    let text = value_text(column, reading.value());
    match reading.bound() {
        Some(bound) => format!("{} {text}", bound.sign()),
        None => text,
    }
}

/// A figure with its unit.
pub fn value_text(column: &Column, value: f64) -> String {
    let format =
        if column.display.format == Format::Factor { Format::Factor } else { Format::Auto };
    human::value_text(&column.name, format, &Value::real(value))
}

#[cfg(test)]
mod tests {
    use record::{IntervalColumns, Kind, Run, Table};
    use serde_json::Map;

    use super::*;

    #[test]
    fn a_goal_has_limits_in_the_unit_of_their_columns() {
        let goal: Goal = "min self_mean_ns subject to cpu_ratio<=5%, max_ns<2us and rate_hz>=100"
            .parse()
            .unwrap();
        assert_eq!((goal.extreme, goal.column.as_str()), (Extreme::Smallest, "self_mean_ns"));
        let ends: Vec<f64> = goal.limits.iter().map(|limit| limit.end).collect();
        assert_eq!(ends, [0.05, 2_000.0, 100.0]);
        assert!(goal.limits[0].admits(0.05) && !goal.limits[1].admits(2_000.0));
        assert!(goal.limits[2].admits(100.0) && !goal.limits[2].admits(99.0));
        assert!("max a".parse::<Goal>().unwrap().limits.is_empty());
        for wrong in [
            "",
            "a",
            "low a",
            "min a b",
            "min a subject to b",
            "min a subject to b<x",
            // A share of something is no time, and no count.
            "min a subject to self_max_ns<=5%",
            "min a subject to span_count<5%",
        ] {
            assert!(wrong.parse::<Goal>().unwrap_err().contains("write 'min COLUMN"), "{wrong}");
        }
    }

    /// The reading of `mean` with this half width, in a column of times.
    fn reading(mean: f64, half_width: f64) -> Reading {
        let run = run_of(mean, half_width);
        let table = &run.tables[0];
        Reading::new(&run, table, &table.rows()[0], &table.columns[1]).unwrap()
    }

    /// A run with `mean` and this half width. Its column `is_below` is true.
    fn run_of(mean: f64, half_width: f64) -> Run {
        let columns = vec![
            Column::new("name", Kind::Text, "").key(),
            Column::new("late_mean_ns", Kind::Real, "")
                .cost()
                .interval(IntervalColumns::half_width("ci95_ns").degrees_of_freedom("freedom")),
            Column::new("ci95_ns", Kind::Real, ""),
            Column::new("freedom", Kind::Uint, ""),
            Column::new("is_below", Kind::Bool, ""),
        ];
        let mut table = Table::new("wakeup", "", columns);
        table.push(vec!["all".into(), mean.into(), half_width.into(), 7_u64.into(), true.into()]);
        Run {
            schema: String::new(),
            experiment: "wakeup".to_owned(),
            bench: "live".to_owned(),
            started_utc: String::new(),
            complete: true,
            host: Map::new(),
            settings: Map::new(),
            observer: Map::new(),
            warnings: Vec::new(),
            absent: Vec::new(),
            tables: vec![table],
        }
    }

    #[test]
    fn upper_bounds_that_overlap_name_no_best() {
        let below = |mean: f64| {
            let mut reading = run_of(mean, 2_300.0);
            let column = &mut reading.tables[0].columns[1];
            *column = column.clone().below_limit("is_below");
            let table = &reading.tables[0];
            Reading::new(&reading, table, &table.rows()[0], &table.columns[1]).unwrap()
        };
        let readings = [("a", below(-982.0)), ("b", below(-1_000.0)), ("c", reading(9_000.0, 1.0))];
        let sentences = |text: &str, readings: &[(&str, Reading)]| {
            let goal: Goal = text.parse().unwrap();
            let column = Column::new("late_mean_ns", Kind::Real, "").cost();
            let candidate =
                |(name, reading): &(&str, Reading)| ((*name).to_owned(), reading.clone());
            let named: Vec<(String, Reading)> = readings.iter().map(candidate).collect();
            let candidates: Vec<Candidate<'_>> = named
                .iter()
                .map(|(name, reading)| Candidate {
                    name: name.clone(),
                    goal: Some(reading),
                    limits: goal.limits.iter().map(|_| Some(reading)).collect(),
                })
                .collect();
            best_sentences(&goal, &column, &candidates)
        };
        assert_eq!(
            sentences("min late_mean_ns", &readings),
            [
                "best (min late_mean_ns): not known, because bounds do not tell. 3 of 3 combinations have the figure. It may \
              be one of these: b, with ≤ 1.30 µs; a, with ≤ 1.32 µs."
            ]
        );
        // The largest value of the bound is below the measured figure.
        let sure = sentences("min late_mean_ns", &readings[1..]);
        assert!(sure[0].contains(": b, with late_mean_ns ≤ 1.30 µs. 2 of 2"), "{sure:?}");
        assert_eq!(sure.len(), 1, "{sure:?}");
        // Whether the limit of 1 us is met is not known of any.
        let limited = sentences("min late_mean_ns subject to late_mean_ns<=1us", &readings);
        assert!(limited[0].contains("none. 0 of 3"), "{limited:?}");
        assert!(
            limited[1].contains("left out by a limit within their intervals: b, with ≤ 1.30"),
            "{limited:?}"
        );
    }

    /// The sentences of a search for the smallest figure with a second figure of at most 5,000 ns. `readings`: name,
    /// figure, and the second figure with its half width, of each combination.
    fn sentences(readings: &[(&str, f64, [f64; 2])]) -> Vec<String> {
        let goal: Goal = "min late_mean_ns subject to late_p99_ns<=5us".parse().unwrap();
        let column = Column::new("late_mean_ns", Kind::Real, "").cost();
        let figures: Vec<[Reading; 2]> = readings
            .iter()
            .map(|(_, value, [limited, half_width])| {
                [reading(*value, 1.0), reading(*limited, *half_width)]
            })
            .collect();
        let candidates: Vec<Candidate<'_>> = readings
            .iter()
            .zip(&figures)
            .map(|((name, ..), [figure, limited])| Candidate {
                name: (*name).to_owned(),
                goal: Some(figure),
                limits: vec![Some(limited)],
            })
            .collect();
        best_sentences(&goal, &column, &candidates)
    }

    #[test]
    fn a_better_combination_that_a_limit_excludes_in_doubt_is_named() {
        let doubt = |sentences: &[String]| {
            sentences.iter().find(|sentence| sentence.contains("left out")).cloned()
        };
        // The limit is within the interval of the faster combination, 4,900 to 5,300.
        let found =
            sentences(&[("slow", 2_000.0, [3_000.0, 10.0]), ("fast", 1_000.0, [5_100.0, 200.0])]);
        assert!(found[0].contains(": slow, with late_mean_ns 2.00 µs"), "{}", found[0]);
        let expected = "In doubt, because these are better, and left out by a limit within their intervals: fast, with \
                        1.00 µs (late_p99_ns<=5us).";
        assert_eq!(doubt(&found).as_deref(), Some(expected));
        // It is surely above the limit; or it is worse.
        for other in [("fast", 1_000.0, [5_300.0, 200.0]), ("slower", 3_000.0, [5_100.0, 200.0])] {
            assert_eq!(doubt(&sentences(&[("slow", 2_000.0, [3_000.0, 10.0]), other])), None);
        }
        // No combination meets the limit.
        let found = sentences(&[("fast", 1_000.0, [5_100.0, 200.0])]);
        assert!(found[0].contains("none."), "{}", found[0]);
        let expected = "In doubt, because these are left out by a limit within their intervals: fast, with 1.00 µs \
                        (late_p99_ns<=5us).";
        assert_eq!(doubt(&found).as_deref(), Some(expected));
    }
}
