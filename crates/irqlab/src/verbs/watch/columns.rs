//! The columns of the rows of `irqlab watch`. A narrow terminal shows fewer columns; a number is never cut.

use lab::handlers::{ContextRates, SelfTimes};
use ratatui::layout::Alignment;
use report::{escape, human};

use super::state::{Sort, State};

/// Number of bars in a row's history on a terminal of up to 100 columns.
const HISTORY_BARS: u16 = 6;

/// A column: its title, and how wide and how important it is.
#[derive(Clone, Copy, Debug)]
pub struct Column {
    pub title: &'static str,
    /// The sort order that underlines the title. `None`: no order does.
    pub sort: Option<Sort>,
    pub alignment: Alignment,
    /// Minimum width. A wider text makes the column wider.
    width_min: u16,
    /// Columns with a high rank are dropped first.
    rank: u8,
    text: fn(&State, &ContextRates) -> String,
}

/// Index of the column `NAME` in [`COLUMNS`]. It gets the width that remains.
const NAME: usize = 2;
/// Index of the column in [`COLUMNS`] that is shown only if delays are measured.
const DELAY: usize = 8;
/// Index of the column with the history in [`COLUMNS`].
const HISTORY: usize = 9;
/// Rank of the column that sorts the rows, whatever its own rank is.
const SORTED_RANK: u8 = 2;

const COLUMNS: [Column; 10] = {
    const fn column(
        title: &'static str,
        sort: Option<Sort>,
        (alignment, width_min, rank): (Alignment, u16, u8),
        text: fn(&State, &ContextRates) -> String,
    ) -> Column {
        Column { title, sort, alignment, width_min, rank, text }
    }
    [
        column("CPU", None, (Alignment::Right, 3, 1), |_, row| {
            row.cpu.map_or_else(|| "all".to_owned(), |cpu| cpu.to_string())
        }),
        column("KIND", None, (Alignment::Left, 10, 7), |_, row| {
            row.context.kind.label().to_owned()
        }),
        column("NAME", Some(Sort::Name), (Alignment::Left, 16, 0), |_, row| name(row)),
        column("RATE/s", Some(Sort::Rate), (Alignment::Right, 7, 3), |_, row| {
            short_rate(row.rate_hz)
        }),
        column("CPU %", Some(Sort::Share), (Alignment::Right, 6, 4), |_, row| {
            row.times.map_or_else(absent_text, cpu_share)
        }),
        column("MEAN", Some(Sort::Mean), (Alignment::Right, 7, 6), |_, row| {
            row.times.map_or_else(absent_text, mean)
        }),
        column("MAX", Some(Sort::Max), (Alignment::Right, 7, 5), |_, row| {
            time(row.times.and_then(|times| times.max_ns))
        }),
        column("PEAK", Some(Sort::Peak), (Alignment::Right, 7, 8), |_, row| {
            time(row.times.and_then(|times| times.max_since_open_ns))
        }),
        column("DELAY", None, (Alignment::Right, 7, 5), delay),
        // The history is drawn when its width is known.
        column("RATE", None, (Alignment::Left, HISTORY_BARS, 9), |_, _| String::new()),
    ]
};

/// A column that has room on the terminal, with the text of each row.
#[derive(Clone, Debug)]
pub struct ShownColumn {
    pub column: Column,
    pub width: u16,
    pub texts: Vec<String>,
}

/// The columns that a terminal of `width` columns has room for, one space apart. No number in them is cut; a name that is
/// too long ends with `…`.
pub fn shown_columns(state: &State, rows: &[&ContextRates], width: u16) -> Vec<ShownColumn> {
    let first = usize::from(!state.is_per_cpu);
    let mut columns: Vec<(usize, ShownColumn)> = COLUMNS
        .into_iter()
        .enumerate()
        .skip(first)
        .filter(|(index, _)| *index != DELAY || state.rates.delays.is_some())
        .map(|(index, column)| (index, with_texts(column, index, state, rows)))
        .collect();
    let history = columns.iter_mut().filter(|(index, _)| *index == HISTORY);
    history.for_each(|(_, shown)| shown.width += width.saturating_sub(100).min(50));
    let is_sorted = |column: &Column| column.sort == Some(state.sort);
    columns.sort_by_key(|(_, shown)| {
        if is_sorted(&shown.column) {
            shown.column.rank.min(SORTED_RANK)
        } else {
            shown.column.rank
        }
    });
    let mut used = 0;
    let fitting = columns.iter().take_while(|(_, shown)| {
        used += shown.width + u16::from(used > 0);
        used <= width
    });
    // The name is shown in any case.
    let kept = fitting.count().max(1);
    columns.truncate(kept);
    columns.sort_by_key(|(index, _)| *index);
    let mut columns: Vec<ShownColumn> = columns.into_iter().map(|(_, shown)| shown).collect();
    let spaces = columns.len() as u16 - 1;
    let fixed: u16 = columns.iter().filter(|shown| !shown.is_name()).map(|shown| shown.width).sum();
    for shown in &mut columns {
        if shown.is_name() {
            shown.width = width.saturating_sub(fixed + spaces);
            let width = usize::from(shown.width);
            shown.texts.iter_mut().for_each(|text| cut(text, width));
        } else if shown.column.title == COLUMNS[HISTORY].title {
            let bars = usize::from(shown.width);
            shown.texts = rows.iter().map(|row| sparkline(state.history(row), bars)).collect();
        }
    }
    columns
}

impl ShownColumn {
    fn is_name(&self) -> bool {
        self.column.title == COLUMNS[NAME].title
    }
}

/// The column with the text of each row, as wide as its longest text. Names do not make their column wider.
fn with_texts(column: Column, index: usize, state: &State, rows: &[&ContextRates]) -> ShownColumn {
    let texts: Vec<String> = rows.iter().map(|row| (column.text)(state, row)).collect();
    let longest = texts.iter().map(|text| text.chars().count() as u16).max().unwrap_or(0);
    let width = if index == NAME { column.width_min } else { longest.max(column.width_min) };
    ShownColumn { column, width, texts }
}

/// The context's name; interrupts of devices have their line's number before it.
fn name(row: &ContextRates) -> String {
    let name = match row.context.kind.label() {
        "irq" | "irq_thread" => format!("{} {}", row.context.number, row.context.name),
        _ => row.context.name.clone(),
    };
    escape::plain(&name)
}

/// Shortens a text to `width` characters. Its last character is then `…`.
fn cut(text: &mut String, width: usize) {
    if text.chars().count() > width {
        *text = text.chars().take(width.saturating_sub(1)).chain(['…']).collect();
    }
}

/// The text of a cell without a value.
fn absent_text() -> String {
    "–".to_owned()
}

/// The mean, or with `<` the upper bound of a mean below the detection limit.
fn mean(times: SelfTimes) -> String {
    match (times.mean_bound_ns(), times.mean_ns) {
        (Some(bound), _) if bound > 0.0 => format!("<{}", human::ns(bound)),
        (Some(_), _) => "< limit".to_owned(),
        (None, mean) => mean.map_or_else(absent_text, human::ns),
    }
}

/// The mean delay of the row's softirq in the interval. Other contexts have none.
fn delay(state: &State, row: &ContextRates) -> String {
    let mut delays = state.rates.delays.iter().flatten();
    let found = delays.find(|delays| delays.cpu == row.cpu && delays.context == row.context);
    found.and_then(|delays| delays.mean_ns).map_or_else(absent_text, human::ns)
}

/// The share of CPU time in percent, or with `<` the upper bound of a share below the detection limit.
fn cpu_share(times: SelfTimes) -> String {
    match times.cpu_bound_ratio() {
        Some(bound) if bound > 0.0 => format!("<{}", percent(bound)),
        Some(_) => "< limit".to_owned(),
        None => percent(times.cpu_ratio),
    }
}

fn time(ns: Option<u64>) -> String {
    ns.map_or_else(absent_text, |ns| human::ns(ns as f64))
}

/// Formats a ratio in percent, as in `7.33`. The column's title has the sign.
fn percent(ratio: f64) -> String {
    human::percent(ratio).trim_end_matches(['%', ' ', '\u{a0}']).to_owned()
}

/// Formats a rate in a short form, as in `9160` or `45.7k`. The column's title has the unit.
pub fn short_rate(hz: f64) -> String {
    match hz {
        0.0 => "0".to_owned(),
        ..9.995 => format!("{hz:.2}"),
        ..99.95 => format!("{hz:.1}"),
        ..9_999.5 => format!("{hz:.0}"),
        ..99_950.0 => format!("{:.1}k", hz / 1e3),
        ..999_500.0 => format!("{:.0}k", hz / 1e3),
        _ => format!("{:.2}M", hz / 1e6),
    }
}

const BARS: [char; 8] = ['▁', '▂', '▃', '▄', '▅', '▆', '▇', '█'];

/// The last values as bars, the newest on the right. The largest value has a full bar.
pub fn sparkline(values: impl DoubleEndedIterator<Item = f64>, width: usize) -> String {
    let mut last: Vec<f64> = values.rev().take(width).collect();
    last.reverse();
    let max = last.iter().copied().fold(0.0, f64::max);
    let bar = |value: &f64| {
        if *value > 0.0 { BARS[((value / max * 8.0).ceil() as usize).clamp(1, 8) - 1] } else { ' ' }
    };
    let bars: String = last.iter().map(bar).collect();
    format!("{bars:>width$}")
}

/// Joins the first parts that fit into `width` characters. A part is never cut.
pub fn join_fitting<'a>(parts: impl IntoIterator<Item = &'a str>, width: usize) -> String {
    let mut line = String::new();
    for part in parts {
        if line.chars().count() + part.chars().count() > width {
            break;
        }
        line.push_str(part);
    }
    line
}

#[cfg(test)]
mod tests {
    use super::super::state::tests::{context, rates};
    use super::*;
    use attribution::ContextKind;
    use lab::handlers::delay_rates::DelayRates;
    use lab::handlers::{DelayMethod, Rates};

    /// The titles, and the cells of the first row, of a terminal with this width.
    fn columns(state: &State, width: u16) -> (Vec<&'static str>, Vec<String>) {
        let rows = state.rows();
        let shown = shown_columns(state, &rows, width);
        let used: u16 = shown.iter().map(|shown| shown.width + 1).sum();
        assert!(used <= width + 1, "{used} {width}");
        for column in &shown {
            let longest = column.texts.iter().map(|text| text.chars().count()).max().unwrap();
            assert!(longest <= usize::from(column.width), "{column:?}");
        }
        shown.into_iter().map(|shown| (shown.column.title, shown.texts[0].clone())).unzip()
    }

    fn state(keys: &str) -> State {
        let mut state = State::default();
        let mut rates = rates(1.0);
        let long = (ContextKind::HardIrq, "nvme0q12-of-a-long-name");
        rates.contexts.push(context(None, long, 123_456.0, Some((0.9, 12_900))));
        state.update(rates);
        keys.chars().for_each(|key| state.press(super::super::state::Key::Char(key)));
        state
    }

    #[test]
    fn narrow_terminals_have_fewer_columns() {
        let titles = |width| columns(&state(""), width).0.join(" ");
        assert_eq!(titles(80), "KIND NAME RATE/s CPU % MEAN MAX PEAK RATE");
        assert_eq!(titles(72), "KIND NAME RATE/s CPU % MEAN MAX PEAK");
        assert_eq!(titles(65), "KIND NAME RATE/s CPU % MEAN MAX");
        assert_eq!(titles(57), "NAME RATE/s CPU % MEAN MAX");
        assert_eq!(titles(46), "NAME RATE/s CPU % MAX");
        assert_eq!(titles(38), "NAME RATE/s CPU %");
        assert_eq!(titles(5), "NAME");
    }

    #[test]
    fn a_softirq_has_its_mean_delay_if_delays_are_measured() {
        let row = context(None, (ContextKind::Softirq, "BLOCK"), 9.0, Some((0.1, 900)));
        let delays = DelayRates {
            cpu: None,
            context: row.context.clone(),
            method: DelayMethod { begins: "raise", ends: "run", not_seen: "nothing" },
            count: 9,
            rate_hz: 9.0,
            mean_ns: Some(1_350.0),
            p99_ns: None,
            max_ns: Some(2_000),
            max_since_open_ns: Some(2_000),
            unjoined_end_count: 0,
            awake_count: None,
        };
        let mut state = State::default();
        let irq = context(None, (ContextKind::HardIrq, "eth0"), 9.0, Some((0.05, 900)));
        let all = Rates { contexts: vec![row, irq], ..Rates::default() };
        state.update(Rates { delays: Some(vec![delays]), ..all.clone() });
        let rows = state.rows();
        let shown = shown_columns(&state, &rows, 100);
        let column = shown.iter().find(|shown| shown.column.title == "DELAY").expect("a column");
        assert_eq!(column.texts, ["1.35 µs", "–"]);
        state.update(all);
        let rows = state.rows();
        let shown = shown_columns(&state, &rows, 100);
        assert!(shown.iter().all(|shown| shown.column.title != "DELAY"));
    }

    #[test]
    fn numbers_are_whole_at_every_width() {
        for width in 1..120 {
            let (titles, texts) = columns(&state(""), width);
            let expected = ["irq", "", "123k", "90.0", "3.23 µs", "12.9 µs", "25.8 µs"];
            let all = ["KIND", "NAME", "RATE/s", "CPU %", "MEAN", "MAX", "PEAK"];
            for (title, text) in titles.iter().zip(&texts) {
                let known = all.iter().position(|name| name == title && *name != "NAME");
                assert!(
                    known.is_none_or(|index| expected[index] == text.as_str()),
                    "{title} {text}"
                );
            }
        }
    }

    #[test]
    fn the_column_that_sorts_is_kept() {
        let sorted_by_peak = state("sssss");
        assert_eq!(sorted_by_peak.sort, Sort::Name);
        let sorted_by_peak = state("ssss");
        assert_eq!(sorted_by_peak.sort, Sort::Peak);
        assert_eq!(columns(&sorted_by_peak, 32).0, ["NAME", "RATE/s", "PEAK"]);
    }

    #[test]
    fn a_name_that_is_too_long_ends_with_an_ellipsis() {
        let (titles, texts) = columns(&state(""), 47);
        let name = titles.iter().position(|title| *title == "NAME").unwrap();
        assert!(texts[name].starts_with("36 nvme0q12") && texts[name].ends_with('…'), "{texts:?}");
    }

    #[test]
    fn a_mean_below_the_detection_limit_is_a_bound() {
        let times = |mean| SelfTimes {
            mean_ns: Some(mean),
            overhead_error_ns: Some(20.0),
            ..SelfTimes::default()
        };
        assert_eq!(
            [-12.0, 15.0, 200.0].map(|ns| mean(times(ns))),
            ["<8.00 ns", "<35.0 ns", "200 ns"]
        );
        let share = |mean_ns: f64| SelfTimes {
            cpu_ratio: mean_ns / 1e3,
            cpu_error_ratio: Some(0.02),
            ..times(mean_ns)
        };
        assert_eq!(
            [-12.0, 15.0, 200.0, -30.0].map(|ns| cpu_share(share(ns))),
            ["<0.800", "<3.50", "20.0", "< limit"]
        );
    }

    #[test]
    fn parts_of_a_line_are_whole_or_absent() {
        let line = |width| join_fitting([" 9.00 k/s", ", 12.9 %"], width);
        assert_eq!((line(17).as_str(), line(16).as_str()), (" 9.00 k/s, 12.9 %", " 9.00 k/s"));
        assert_eq!(line(3), "");
    }

    #[test]
    fn rates_and_bars() {
        let rates = [0.0, 0.5, 12.34, 9_160.4, 45_678.0, 123_456.0, 2e6].map(short_rate);
        assert_eq!(rates, ["0", "0.50", "12.3", "9160", "45.7k", "123k", "2.00M"]);
        assert_eq!(sparkline([0.0, 1.0, 4.0, 8.0].into_iter(), 6), "   ▁▄█");
        assert_eq!(sparkline([1.0, 2.0, 4.0].into_iter(), 2), "▄█");
    }
}
