//! Pictures of a run as SVG, drawn only from its tables. A run gives identical bytes each time, and the size of a
//! picture does not grow with the number of rows. `irqlab --pictures` attaches them to the run; the HTML page
//! contains them.
//!
//! `sheet`, `axis`, `chart` and `bars` are the drawing tools; the other files have the pictures of one experiment. A
//! new picture needs an entry in [`KINDS`].

mod axis;
mod bars;
mod causes;
mod changes;
mod chart;
mod findings;
mod footprint;
mod handlers;
mod kernels;
mod noise;
mod palette;
mod services;
mod sheet;
mod signal;
mod sweep;
mod wakeup;

use record::{Part, Run, Table};

use crate::row::Row;
pub(crate) use handlers::{largest_function_of, wait_of};
pub use palette::colours_css;
pub use sheet::{NARROW, Sheet, Undrawn, WIDTH};
pub(crate) use sweep::{Drawn, heat_map, over_axis};
pub use sweep::{SweepAxis, SweepFigures, SweepPoint};

fn rows(table: &Table) -> impl Iterator<Item = Row<'_>> {
    table.rows().iter().map(move |values| Row::new(table, values))
}

/// A picture of a run.
#[derive(Clone, Debug, PartialEq)]
pub struct Picture {
    /// The kind of picture. It is the name of the file, and a part of the id on a page.
    pub name: &'static str,
    /// The tables whose numbers this kind of picture shows. A run may have only some of them.
    pub tables: &'static [&'static str],
    pub sheet: Sheet,
}

/// Draws a picture with a width in pixels. `None` if the run lacks the tables.
type Draw = fn(&Run, f64) -> Result<Option<Sheet>, Undrawn>;

/// All kinds of pictures in the order of a page: name, tables, and the function that draws the picture.
const KINDS: [(&str, &[&str], Draw); 30] = [
    ("changes", &["differences"], changes::changes),
    ("findings", &["findings"], findings::findings),
    ("costs", &["handlers", "events"], handlers::costs),
    ("distribution", &["histograms", "handlers"], handlers::distribution),
    ("efficiency", &["ratios"], handlers::efficiency),
    ("callbacks", &["handlers"], handlers::callbacks),
    ("delays", &["delays"], handlers::delays),
    ("victims", &["victims"], handlers::victims),
    ("timeline", &["detours", "longest", "lost_time"], noise::timeline),
    ("repetitions", &["fwq_quanta"], noise::repetitions),
    ("sizes", &["detour_histogram", "detour_histogram_by_cause", "detours"], noise::sizes),
    ("spectrum", &["spectrum"], noise::spectrum),
    ("scale", &["scale"], noise::scale),
    ("lateness", &["late_histogram", "wakeup"], wakeup::lateness),
    ("worst", &["worst", "worst_parts"], wakeup::worst),
    ("displaced", &["footprint"], footprint::displaced),
    ("evictors", &["by_context"], footprint::evictors),
    ("cpu", &["rates", "model", "curves"], signal::cpu),
    ("latency", &["rates", "model"], signal::latency),
    ("throughput", &["throughput"], signal::throughput),
    ("paper", &["paper"], signal::paper),
    ("regions", &["regions"], signal::regions),
    ("kernels", &["kernels", "groups"], kernels::kernels),
    ("services", &["services"], services::services),
    ("requests", &["services"], services::requests),
    ("profile", &["profile"], services::profile),
    ("execution", &["execution"], services::execution),
    ("mcpi", &["mcpi"], services::mcpi),
    ("hidden", &["hidden_stalls"], services::hidden),
    ("cache-misses", &["cache_misses"], services::cache_misses),
];

/// Tables that may be long, with the columns that their pictures need. The pictures must use no other columns of them.
const LONG_TABLES: [(&str, &[&str]); 4] = [
    ("detours", &["cpu", "start_ns", "length_ns", "largest_name"]),
    ("fwq_quanta", &["cpu", "start_ns", "duration_ns", "attributed_ns", "largest_name"]),
    ("worst_parts", &["cpu", "rank", "length_ns", "class"]),
    (
        "profile",
        &[
            "workload",
            "model",
            "start_ns",
            "length_ns",
            "mode",
            "time_ratio",
            "execution_ratio",
            "pipeline_stall_ratio",
        ],
    ),
];

/// The part of a table that a page needs. A page needs all of a table for people, and only the drawn columns of a
/// table for programs. `table` may come without its rows.
pub fn needed(table: &Table) -> Part {
    let is_for_programs = table.display.rows_max == Some(0);
    let is_drawn = KINDS.iter().any(|(_, tables, _)| tables.contains(&table.name.as_str()));
    let columns = LONG_TABLES.iter().find(|(name, _)| *name == table.name);
    match (is_for_programs, is_drawn, columns) {
        (true, false, _) => Part::Outline,
        (true, true, Some((_, columns))) => {
            Part::Columns(columns.iter().map(|name| (*name).to_owned()).collect())
        }
        _ => Part::All,
    }
}

/// All pictures for which the run has tables.
pub fn pictures(run: &Run) -> Result<Vec<Picture>, Undrawn> {
    pictures_at(run, WIDTH)
}

/// All pictures for which the run has tables, each `width` pixels wide.
pub fn pictures_at(run: &Run, width: f64) -> Result<Vec<Picture>, Undrawn> {
    let mut drawn = Vec::new();
    for (name, tables, draw) in KINDS {
        drawn.extend(draw(run, width)?.map(|sheet| Picture { name, tables, sheet }));
    }
    Ok(drawn)
}

/// The picture `repetitions` of a run as SVG. `None` for a run without single quanta.
pub fn repetitions_svg(run: &Run) -> Result<Option<String>, Undrawn> {
    Ok(noise::repetitions(run, WIDTH)?.map(|sheet| sheet.file()))
}

#[cfg(test)]
pub(crate) mod tests {
    use super::sheet::{TEXT_SIZE, text_width, units};
    use super::*;
    use record::{Column, Kind, Value};
    use serde_json::Map;

    pub(crate) fn run_of(tables: Vec<Table>) -> Run {
        Run {
            schema: record::SCHEMA.to_owned(),
            experiment: "test".to_owned(),
            bench: "live".to_owned(),
            started_utc: String::new(),
            complete: true,
            host: Map::new(),
            settings: Map::new(),
            observer: Map::new(),
            warnings: vec![],
            absent: vec![],
            tables,
        }
    }

    /// A table with columns of the given names and kinds.
    pub(crate) fn table(name: &str, columns: &[(&str, Kind)], rows: Vec<Vec<Value>>) -> Table {
        let column = |(name, kind): &(&str, Kind)| Column::new(name, *kind, "For a test.");
        let mut table = Table::new(name, "For a test.", columns.iter().map(column).collect());
        rows.into_iter().for_each(|row| table.push(row));
        table
    }

    /// Compares a picture with the file `NAME.snap.svg` of tests/golden, which a browser shows, and checks it.
    ///
    /// After an intended change, `INSTA_UPDATE=always cargo test -p report` writes the files.
    pub(super) fn golden<E: std::fmt::Debug>(name: &str, drawn: Result<Option<Sheet>, E>) {
        let svg = drawn.unwrap().expect("a picture").file();
        checked(&svg);
        let mut settings = insta::Settings::clone_current();
        settings.set_snapshot_path("../../tests/golden");
        settings.set_prepend_module_to_snapshot(false);
        settings.set_omit_expression(true);
        settings.bind(|| insta::assert_binary_snapshot!(&format!("{name}.svg"), svg.into_bytes()));
    }

    /// A page reads one run without the tables that no picture needs.
    #[test]
    fn every_table_of_a_picture_of_noise_is_read() {
        let tables =
            ["detours", "longest", "lost_time", "detour_histogram", "detour_histogram_by_cause"];
        for name in tables {
            let mut read = table(name, &[("cpu", Kind::Uint)], vec![]);
            read.display.rows_max = Some(0);
            assert_ne!(needed(&read), Part::Outline, "{name}");
        }
        let mut other = table("longest_parts", &[("cpu", Kind::Uint)], vec![]);
        other.display.rows_max = Some(0);
        assert_eq!(needed(&other), Part::Outline);
    }

    #[test]
    fn tables_of_pictures_of_wakeup_are_read() {
        let part = |name: &str| {
            let mut read = table(name, &[("cpu", Kind::Uint)], vec![]);
            read.display.rows_max = Some(0);
            needed(&read)
        };
        assert_eq!(part("late_histogram"), Part::All);
        let columns = ["cpu", "rank", "length_ns", "class"].map(str::to_owned).to_vec();
        assert_eq!(part("worst_parts"), Part::Columns(columns));
    }

    /// An element of SVG.
    #[derive(Clone, Debug, PartialEq, Eq)]
    struct Element {
        tag: String,
        attributes: Vec<(String, String)>,
        /// The text in the element, without white space at its ends.
        text: String,
    }

    impl Element {
        fn attribute(&self, name: &str) -> Option<&str> {
            self.attributes.iter().find(|(key, _)| key == name).map(|(_, value)| value.as_str())
        }
    }

    /// The elements of a picture, in order. Panics where it is not well-formed XML of the kind that
    /// pictures are: elements that are closed in order, attributes in quotes, text that is escaped.
    fn elements(svg: &str) -> Vec<Element> {
        let mut found: Vec<Element> = Vec::new();
        let mut open: Vec<usize> = Vec::new();
        let mut remaining = svg;
        while let Some(start) = remaining.find('<') {
            let text = &remaining[..start];
            assert!(!text.contains('>'), "{text}");
            for entity in text.split('&').skip(1) {
                let known = ["amp;", "lt;", "gt;", "quot;", "apos;"];
                assert!(known.iter().any(|name| entity.starts_with(name)), "&{entity}");
            }
            match open.last() {
                Some(&inner) => found[inner].text += text.trim(),
                None => assert_eq!(text.trim(), "", "text outside of the picture"),
            }
            let end = remaining[start..].find('>').expect("a tag that ends") + start;
            let tag = &remaining[start + 1..end];
            remaining = &remaining[end + 1..];
            if let Some(name) = tag.strip_prefix('/') {
                let last = open.pop().expect("an element that is open");
                assert_eq!(found[last].tag, name);
                continue;
            }
            let is_empty = tag.ends_with('/');
            let tag = tag.trim_end_matches('/');
            let (name, mut list) = tag.split_once(' ').unwrap_or((tag, ""));
            let mut attributes: Vec<(String, String)> = Vec::new();
            while !list.trim().is_empty() {
                let (key, value) = list.trim_start().split_once("=\"").expect("a value in quotes");
                let (value, after) = value.split_once('"').expect("a quotation that ends");
                assert!(attributes.iter().all(|(known, _)| known != key), "{key} twice: {tag}");
                for wrong in ["NaN", "inf", "<"] {
                    assert!(!value.contains(wrong), "{tag}");
                }
                attributes.push((key.to_owned(), value.to_owned()));
                list = after;
            }
            found.push(Element { tag: name.to_owned(), attributes, text: String::new() });
            if !is_empty {
                open.push(found.len() - 1);
            }
        }
        assert!(open.is_empty() && remaining.trim().is_empty(), "{open:?} {remaining}");
        let is_text = |sign: char| {
            sign == '\n' || !(sign.is_control() || matches!(sign, '\u{fffe}' | '\u{ffff}'))
        };
        assert!(svg.chars().all(is_text), "characters that XML does not have");
        found
    }

    /// Checks what all pictures have: a title and a description, a background, and nothing outside of the sheet.
    pub(super) fn checked(svg: &str) {
        let all = elements(svg);
        let tags: Vec<&str> = all.iter().take(4).map(|element| element.tag.as_str()).collect();
        assert_eq!(tags, ["svg", "title", "desc", "rect"]);
        assert_eq!(all[0].attribute("role"), Some("img"));
        assert!(!all[1].text.is_empty() && all[2].text.contains("table"), "{:?}", &all[1..3]);
        assert_eq!(all[3].attribute("fill"), Some("#FFFFFF"), "a background");
        let [width, height] = ["width", "height"].map(|name| {
            let side = |element: &Element| element.attribute(name).unwrap().parse::<f64>().unwrap();
            assert_eq!(side(&all[3]), 4.0 * side(&all[0]), "all side it");
            4.0 * side(&all[0])
        });
        check_distances_of_numbers(&all);
        // Nothing is drawn outside.
        for element in &all[4..] {
            for (key, end) in
                [("x", width), ("x1", width), ("cx", width), ("y", height), ("cy", height)]
            {
                let position =
                    element.attribute(key).map(|position| position.parse::<f64>().unwrap());
                assert!(
                    position.is_none_or(|position| (0.0..=end).contains(&position)),
                    "{element:?}"
                );
            }
        }
    }

    /// Checks that the numbers below the plots keep the distance of a space.
    fn check_distances_of_numbers(all: &[Element]) {
        let position = |element: &Element, name: &str| {
            element
                .attribute(name)
                .map(|value| value.parse::<f64>().unwrap() / f64::from(units(1.0)))
        };
        // plotters hangs only these numbers from their position.
        let is_number = |element: &&Element| {
            element.tag == "text"
                && element.attribute("dy") == Some("0.76em")
                && element.attribute("transform").is_none()
        };
        let mut numbers: Vec<(f64, f64, &str)> = all
            .iter()
            .filter(is_number)
            .filter_map(|element| {
                Some((position(element, "y")?, position(element, "x")?, element.text.as_str()))
            })
            .collect();
        numbers.sort_by(|a, b| (a.0, a.1).partial_cmp(&(b.0, b.1)).unwrap());
        for pair in numbers.windows(2).filter(|pair| pair[0].0 == pair[1].0) {
            let widths = pair.iter().map(|(.., text)| text_width(text, TEXT_SIZE)).sum::<f64>();
            let distance = pair[1].1 - pair[0].1 - widths / 2.0;
            // Positions are rounded to a quarter of a pixel.
            assert!(distance >= 5.5, "{pair:?}: {distance}");
        }
    }

    #[test]
    fn numbers_at_an_axis_keep_a_distance_next_to_long_names() {
        let columns = [
            ("kind", Kind::Text),
            ("condition", Kind::Text),
            ("name", Kind::Text),
            ("l1i_miss_ratio", Kind::Real),
            ("branch_miss_ratio", Kind::Real),
        ];
        let row: Vec<Value> = vec![
            "vector".into(),
            "idle".into(),
            "call_function_single".into(),
            0.58.into(),
            0.13.into(),
        ];
        let run = run_of(vec![table("ratios", &columns, vec![row])]);
        for width in [WIDTH, NARROW, 400.0] {
            checked(&handlers::efficiency(&run, width).unwrap().unwrap().file());
        }
    }

    #[test]
    fn a_run_has_the_pictures_that_it_has_tables_for() {
        let columns = ["cpu", "bucket_min_ns", "bucket_max_ns", "detour_count"];
        let columns = columns.map(|name| (name, Kind::Uint));
        let row = [1_u64, 1000, 1063, 9].map(Value::from).to_vec();
        let run = run_of(vec![table("detour_histogram", &columns, vec![row])]);
        let drawn = pictures(&run).unwrap();
        let names: Vec<&str> = drawn.iter().map(|picture| picture.name).collect();
        assert_eq!(names, ["sizes"]);
        assert_eq!(pictures(&run).unwrap(), drawn, "the same, to the byte");
        assert_eq!(pictures(&run_of(vec![])).unwrap(), []);
    }
}
