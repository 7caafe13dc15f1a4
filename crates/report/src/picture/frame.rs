//! What the pictures share: panels, axes, colours of causes, and text that is only text.

use record::{Table, Value};

use crate::escape::plain;
use crate::row::Row;

const WIDTH: f64 = 960.0;
/// Height of a panel.
pub const PANEL: f64 = 270.0;
/// Where the plot starts, from the left.
pub const LEFT: f64 = 90.0;
/// Width of the plot.
pub const PLOT: f64 = WIDTH - LEFT - 20.0;
const TOP: f64 = 30.0;
/// Height of the plot in a panel.
const HEIGHT: f64 = PANEL - TOP - 50.0;
/// Where the plot ends, from the top of its panel.
pub const BOTTOM_Y: f64 = TOP + HEIGHT;
/// Maximum number of panels: there is no picture of more.
const PANELS_MAX: usize = 64;
/// Colours that colour-blind people can distinguish, too (Okabe and Ito, 2008), for the causes that
/// took most; the others share the last.
pub const COLOURS: [&str; 7] =
    ["#d55e00", "#0072b2", "#009e73", "#cc79a7", "#e69f00", "#56b4e9", "#666666"];
/// The colour of what is not noise, or not split by cause.
pub const QUIET: &str = "#bbbbbb";
/// The colour of what has no named cause.
pub const UNNAMED: &str = "#000000";

/// The rows of a table.
pub fn rows(table: &Table) -> impl Iterator<Item = Row<'_>> {
    table.rows().iter().map(move |values| Row::new(table, values))
}

/// The CPUs of a table, as they come, for a panel each.
pub fn cpus(table: &Table) -> Vec<String> {
    let mut cpus: Vec<String> = Vec::new();
    for row in rows(table) {
        let cpu = row.alone("cpu");
        if cpus.last() != Some(&cpu) && !cpus.contains(&cpu) {
            cpus.push(cpu);
        }
    }
    cpus.truncate(PANELS_MAX);
    cpus
}

/// The text in that column, if there is one.
pub fn name_of(row: &Row<'_>, column: &str) -> Option<String> {
    match row.get(column) {
        Value::Text(name) => Some(plain(name)),
        _ => None,
    }
}

/// The causes with a colour of their own.
pub struct Causes(pub Vec<String>);

impl Causes {
    /// Those that took most time, largest first, from names and times.
    pub fn largest(shares: impl Iterator<Item = (String, f64)>) -> Causes {
        let mut sums: Vec<(String, f64)> = Vec::new();
        for (cause, time) in shares {
            match sums.iter_mut().find(|(name, _)| *name == cause) {
                Some((_, sum)) => *sum += time,
                None => sums.push((cause, time)),
            }
        }
        sums.sort_by(|a, b| b.1.total_cmp(&a.1));
        sums.truncate(COLOURS.len() - 1);
        Causes(sums.into_iter().map(|(name, _)| name).collect())
    }

    /// The place of a cause among the colours; the last for those without one of their own.
    pub fn place(&self, cause: &str) -> usize {
        self.0.iter().position(|one| one == cause).unwrap_or(COLOURS.len() - 1)
    }

    /// Its colour.
    pub fn colour(&self, cause: Option<&str>) -> &'static str {
        cause.map_or(UNNAMED, |cause| COLOURS[self.place(cause)])
    }

    /// The entries whose colours the drawing uses: name and colour.
    fn used<'a>(&'a self, quiet: &'a str, drawing: &str) -> Vec<(&'a str, &'static str)> {
        let named = self.0.iter().zip(COLOURS).map(|(name, colour)| (name.as_str(), colour));
        let rest = [("other causes", COLOURS[COLOURS.len() - 1]), ("no named cause", UNNAMED)];
        let all = [(quiet, QUIET)].into_iter().chain(named).chain(rest);
        all.filter(|(_, colour)| drawing.contains(colour)).collect()
    }
}

fn legend(entries: &[(&str, &str)], top: f64) -> String {
    let line = |(at, (name, colour)): (usize, &(&str, &str))| {
        let y = top + 20.0 * at as f64;
        format!("<rect x=\"{LEFT}\" y=\"{y:.1}\" width=\"12\" height=\"12\" fill=\"{colour}\"/>\n")
            + &text(LEFT + 18.0, y + 11.0, "start", name)
    };
    entries.iter().enumerate().map(line).collect()
}

/// The whole picture: a panel for each CPU, made by `panel` from its name and its top, and a legend
/// of the colours that it uses; `quiet` says what is grey. None without a CPU.
pub fn picture(
    cpus: &[String],
    causes: Option<(&Causes, &str)>,
    panel: impl Fn(&str, f64) -> String,
) -> Option<String> {
    if cpus.is_empty() {
        return None;
    }
    let panels: String =
        cpus.iter().enumerate().map(|(at, cpu)| panel(cpu, PANEL * at as f64)).collect();
    let under = PANEL * cpus.len() as f64;
    let entries = causes.map_or(Vec::new(), |(causes, quiet)| causes.used(quiet, &panels));
    let height = under + 20.0 * entries.len() as f64 + 10.0;
    let legend = legend(&entries, under + 5.0);
    Some(format!(
        "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {WIDTH} {height}\" \
         font-family=\"sans-serif\" font-size=\"12\">\n\
         <rect width=\"{WIDTH}\" height=\"{height}\" fill=\"white\"/>\n\
         {panels}{legend}</svg>\n"
    ))
}

/// Title and axes, each with its own title, of the panel that starts at `top`.
pub fn axes(top: f64, title: &str, [x_title, y_title]: [&str; 2]) -> String {
    let floor = top + BOTTOM_Y;
    let middle = top + TOP + HEIGHT / 2.0;
    text(LEFT, top + 18.0, "start", title)
        + &format!(
            "<path d=\"M{LEFT} {:.1}V{floor:.1}H{:.1}\" fill=\"none\" stroke=\"black\"/>\n",
            top + TOP,
            LEFT + PLOT
        )
        + &text(LEFT + PLOT / 2.0, floor + 34.0, "middle", x_title)
        + &format!(
            "<text transform=\"translate(16 {middle:.1}) rotate(-90)\" \
             text-anchor=\"middle\">{}</text>\n",
            xml(y_title)
        )
}

/// Text at a place; `anchor`: start, middle or end.
pub fn text(x: f64, y: f64, anchor: &str, words: &str) -> String {
    format!("<text x=\"{x:.1}\" y=\"{y:.1}\" text-anchor=\"{anchor}\">{}</text>\n", xml(words))
}

/// Text between tags.
fn xml(text: &str) -> String {
    text.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;")
}

/// A logarithmic scale.
pub struct Scale {
    low: f64,
    span: f64,
}

impl Scale {
    /// From a least to a greatest value; what is below 1e-9 is taken as that.
    pub fn logarithmic(least: f64, greatest: f64) -> Scale {
        let low = least.max(1e-9).ln();
        Scale { low, span: (greatest.max(1e-9).ln() - low).max(1e-9) }
    }

    /// Where a value is on the scale, 0 to 1.
    pub fn share(&self, value: f64) -> f64 {
        ((value.max(1e-9).ln() - self.low) / self.span).clamp(0.0, 1.0)
    }

    /// Its height over a floor.
    pub fn up(&self, floor: f64, value: f64) -> f64 {
        floor - HEIGHT * self.share(value)
    }

    /// Its place along the plot.
    pub fn along(&self, value: f64) -> f64 {
        LEFT + PLOT * self.share(value)
    }

    /// Powers of ten in it, both ends included.
    pub fn decades(&self) -> impl Iterator<Item = f64> + '_ {
        let first = (self.low / std::f64::consts::LN_10 - 1e-9).ceil() as i32;
        let last = ((self.low + self.span) / std::f64::consts::LN_10 + 1e-9).floor() as i32;
        (first..=last.min(first + 40)).map(|power| 10_f64.powi(power))
    }
}
