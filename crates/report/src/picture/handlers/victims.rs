//! The picture `victims` of `handlers`: a heat map of who pays for interrupts, by who causes them.

use std::collections::BTreeMap;

use record::{Run, Table};

use super::{all_conditions, text};
use crate::human;
use crate::picture::rows;
use crate::picture::sheet::{Sheet, Undrawn};
use crate::picture::sweep::{Drawn, MapTexts, SweepAxis, SweepFigures, SweepPoint, heat_map_with};

const TIME: &str = "self_total_ns";

/// The times of the victims and causes of a condition, ns.
fn times_of(table: &Table, condition: &str) -> BTreeMap<[String; 2], f64> {
    let mut times = BTreeMap::new();
    for row in rows(table).filter(|row| text(row, "condition") == condition) {
        let cell = times.entry(["victim", "cause"].map(|column| text(&row, column)));
        *cell.or_insert(0.0) += row.number(TIME).unwrap_or(0.0);
    }
    times
}

/// An axis with the names at this position of the keys, those with the largest time first.
fn axis(name: &str, position: usize, times: &BTreeMap<[String; 2], f64>) -> SweepAxis {
    let mut sums: BTreeMap<&String, f64> = BTreeMap::new();
    for (key, time) in times {
        *sums.entry(&key[position]).or_default() += time;
    }
    let mut names: Vec<(&String, f64)> = sums.into_iter().collect();
    names.sort_by(|first, second| second.1.total_cmp(&first.1));
    let values = names.into_iter().map(|(name, _)| name.clone()).collect();
    SweepAxis { name: name.to_owned(), values, held: 0 }
}

/// The heat map of the condition with the most time in interrupts. `None` with fewer than two victims or causes.
pub fn victims(run: &Run, width: f64) -> Result<Option<Sheet>, Undrawn> {
    let Some(table) = run.table("victims") else { return Ok(None) };
    let Some(column) = table.columns.iter().find(|column| column.name == TIME) else {
        return Ok(None);
    };
    let total_ns = |condition: &String| times_of(table, condition).values().sum::<f64>();
    let conditions = all_conditions(table);
    let largest =
        conditions.iter().max_by(|first, second| total_ns(first).total_cmp(&total_ns(second)));
    let Some(condition) = largest else { return Ok(None) };
    let times = times_of(table, condition);
    let axes = vec![axis("victim", 0, &times), axis("cause", 1, &times)];
    let position = |axis: &SweepAxis, name: &String| {
        axis.values.iter().position(|value| value == name).unwrap_or(0) as u32
    };
    let points = times.iter().map(|(key, time)| SweepPoint {
        values: axes.iter().zip(key).map(|(axis, name)| position(axis, name)).collect(),
        figure: Some(*time),
        interval: None,
        change: None,
        remark: String::new(),
    });
    let figures = SweepFigures {
        column,
        name: "time that interrupts take".to_owned(),
        points: points.collect(),
        axes,
        compared_with: String::new(),
    };
    let known_causes = times.iter().filter(|([_, cause], _)| cause != "(unknown)");
    let finding = match known_causes.max_by(|(_, first), (_, second)| first.total_cmp(second)) {
        Some(([victim, cause], time)) => {
            let time = human::value_text(TIME, column.display.format, &record::Value::real(*time));
            format!("{cause} costs {victim} {time}")
        }
        None => "Who pays for interrupts".to_owned(),
    };
    let title = format!("{finding} (condition {condition})");
    let texts = MapTexts { title, empty: "pairs without an interrupt", table: "victims" };
    heat_map_with(&Drawn::new(&figures), width, texts)
}

#[cfg(test)]
mod tests {
    use record::{Columns, Format, column};

    use super::*;
    use crate::picture::sheet::WIDTH;
    use crate::picture::tests::{golden, run_of};

    fn run(cells: &[(&str, &str, u64)]) -> Run {
        type Cell<'a> = (&'a str, &'a str, u64);
        let columns: Columns<'_, Cell<'_>> = Columns::all([
            column("condition", "").key().text(|_: &Cell<'_>| "ambient"),
            column("victim", "").key().text(|cell: &Cell<'_>| cell.0.to_owned()),
            column("cause", "").key().text(|cell: &Cell<'_>| cell.1.to_owned()),
            column(TIME, "").format(Format::Milliseconds).uint(|cell: &Cell<'_>| cell.2),
        ]);
        run_of(vec![columns.table("victims", "", cells.iter().copied())])
    }

    #[test]
    fn the_title_names_the_known_cause_with_the_largest_cost() {
        let cells = [
            ("/computes", "/barrier", 4_000_000),
            ("/computes", "/barrier", 630_000),
            ("/computes", "(unknown)", 2_500_000),
            ("(idle)", "(unknown)", 9_000_000),
            ("/a\u{1b}b", "/barrier", 20_000),
        ];
        golden("victims", victims(&run(&cells), WIDTH));
        let sheet = victims(&run(&cells), WIDTH).unwrap().unwrap();
        assert!(
            sheet.heading.title.starts_with("/barrier costs /computes 4.63 ms"),
            "{}",
            sheet.heading.title
        );
        assert_eq!(victims(&run(&cells[3..4]), WIDTH).unwrap(), None, "one pair is no matrix");
    }
}
