//! The picture of a paper's findings (`irqlab reproduce`): for each finding a line with a mark for each of its claims, at
//! the measured ratio of the claim's sides. An open mark shows the paper's own ratio.

use std::collections::BTreeMap;

use record::{Run, Table};

use super::axis::Axis;
use super::chart::{Chart, Look, room_for_names};
use super::palette::{BLUE, GREY, INK, PALE, VERMILION};
use super::rows;
use super::sheet::{Entry, Heading, NARROW_BELOW, Sheet, Undrawn, draw, shortened_to, units};
use crate::human::Quantity;
use crate::row::Row;

/// Maximum number of findings that are drawn.
const FINDINGS_MAX: usize = 60;
/// Height of a line with one finding, pixels.
const LINE_HEIGHT: f64 = 26.0;
/// Ratios beyond this one, and below its inverse, are drawn at the edge.
const RATIO_MAX: f64 = 10.0;
/// Distance of the published mark below the measured one, as a part of a line.
const PUBLISHED_BELOW: f64 = 0.24;

/// Values of the column `agreement`: text, colour, and pattern of the mark.
const AGREEMENTS: [(&str, Look); 3] = [
    ("agrees", Look { colour: BLUE, pattern: 0 }),
    ("disagrees", Look { colour: VERMILION, pattern: 3 }),
    ("can't tell", Look { colour: GREY, pattern: 1 }),
];
/// A claim about a machine that the paper does not have.
const NOT_IN_PAPER: Look = Look { colour: PALE, pattern: 2 };
const PUBLISHED: Look = Look { colour: INK, pattern: 0 };

/// A claim with the ratios of its sides.
struct Claim {
    agreement: String,
    measured: Option<f64>,
    published: Option<f64>,
}

impl Claim {
    fn new(row: &Row<'_>) -> Claim {
        let ratio = |names: &[&str]| {
            let ratio = names.iter().find_map(|name| row.number(name))?;
            (ratio.is_finite() && ratio > 0.0).then_some(ratio)
        };
        Claim {
            agreement: row.value_text("agreement"),
            measured: ratio(&["simulated_ratio", "measured_ratio"]),
            published: ratio(&["published_ratio"]),
        }
    }

    fn look(&self) -> Look {
        let known = AGREEMENTS.iter().find(|(agreement, _)| *agreement == self.agreement);
        known.map_or(NOT_IN_PAPER, |(_, look)| *look)
    }
}

/// A finding with all of its claims.
struct Finding {
    name: String,
    claims: Vec<Claim>,
}

/// The findings in the order of the table.
fn findings_of(table: &Table) -> Vec<Finding> {
    let mut findings: Vec<Finding> = Vec::new();
    let mut position_by_name: BTreeMap<String, usize> = BTreeMap::new();
    for row in rows(table) {
        let (name, claim) = (row.value_text("finding"), Claim::new(&row));
        let position = *position_by_name.entry(name.clone()).or_insert(findings.len());
        match findings.get_mut(position) {
            Some(finding) => finding.claims.push(claim),
            None => findings.push(Finding { name, claims: vec![claim] }),
        }
    }
    findings
}

/// The picture of table `findings`. `None` for a run without findings.
pub fn findings(run: &Run, width: f64) -> Result<Option<Sheet>, Undrawn> {
    let Some(table) = run.table("findings").filter(|table| table.column("agreement").is_some())
    else {
        return Ok(None);
    };
    let all_findings = findings_of(table);
    if all_findings.is_empty() {
        return Ok(None);
    }
    let claims = || all_findings.iter().flat_map(|finding| &finding.claims);
    let count = |agreement: &str| claims().filter(|claim| claim.agreement == agreement).count();
    let shown_findings = &all_findings[..all_findings.len().min(FINDINGS_MAX)];
    let mut notes = vec![format!(
        "Filled marks: the ratio of the sides of a claim, measured; open marks: by the paper's figures. The line is \
         where both sides are equal. Ratios beyond 1/{RATIO_MAX} and {RATIO_MAX} are drawn at the edge; claims without \
         a ratio have no mark."
    )];
    if all_findings.len() > shown_findings.len() {
        notes.push(format!(
            "Drawn are the first {} of {} findings.",
            shown_findings.len(),
            all_findings.len()
        ));
    }
    let counts_of_agreements =
        AGREEMENTS.map(|(agreement, look)| (agreement, look, count(agreement)));
    let judged_count: usize = counts_of_agreements.iter().map(|(.., count)| count).sum();
    let [(.., agreeing_count), ..] = counts_of_agreements;
    let heading = Heading {
        title: format!("{} of {judged_count} claims agree with the paper", agreeing_count),
        notes,
        legend: counts_of_agreements
            .into_iter()
            .chain([("not in the paper", NOT_IN_PAPER, claims().count() - judged_count)])
            .filter(|(.., count)| *count > 0)
            .map(|(agreement, look, count)| Entry {
                name: format!("{count} {}", plural(agreement, count)),
                colour: look.colour,
            })
            .collect(),
        description: "A line for each finding of the paper, with a mark for each claim. The numbers are in table \
                      findings."
            .to_owned(),
    };
    let length_max = if width < NARROW_BELOW { 28 } else { 64 };
    let names: Vec<String> =
        shown_findings.iter().map(|finding| shortened_to(length_max, &finding.name)).collect();
    let height = 80.0 + LINE_HEIGHT * shown_findings.len() as f64;
    let sheet = draw(&heading, width, height, |area| {
        let name_room = room_for_names(names.iter().map(String::as_str));
        let ratios = || {
            let measured_and_published =
                claims().flat_map(|claim| [claim.measured, claim.published]);
            measured_and_published.flatten().map(|ratio| ratio.clamp(1.0 / RATIO_MAX, RATIO_MAX))
        };
        let (low, high) = (ratios().fold(0.5, f64::min), ratios().fold(2.0, f64::max));
        let x = Axis::logarithmic("ratio of the sides", Quantity::Count, low, high);
        let y = Axis::names(&names);
        let chart_area = area.part((0, 0), (units(width) as u32, units(height) as u32));
        let mut chart = Chart::with_room(&chart_area, "", [&x, &y], [name_room, 34.0])?;
        chart.line(&[(1.0, 0.0), (1.0, names.len() as f64)], PUBLISHED, 1.2)?;
        let (axis_low, axis_high) = x.ends();
        for (index, finding) in shown_findings.iter().enumerate() {
            let middle = names.len() as f64 - index as f64 - 0.5;
            for ratio in finding.claims.iter().filter_map(|claim| claim.published) {
                let point = (ratio.clamp(axis_low, axis_high), middle - PUBLISHED_BELOW);
                chart.mark(point, PUBLISHED, true)?;
            }
            for claim in &finding.claims {
                let Some(ratio) = claim.measured else { continue };
                chart.mark((ratio.clamp(axis_low, axis_high), middle), claim.look(), false)?;
            }
        }
        Ok(())
    })?;
    Ok(Some(sheet))
}

/// An agreement as the verb of `count` claims.
fn plural(agreement: &str, count: usize) -> &str {
    match agreement {
        "agrees" if count != 1 => "agree",
        "disagrees" if count != 1 => "disagree",
        agreement => agreement,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::picture::sheet::{NARROW, WIDTH};
    use crate::picture::tests::{golden, run_of, table};
    use record::{Kind, Value};

    #[test]
    fn a_finding_has_a_mark_for_each_claim() {
        let columns = [
            ("finding", Kind::Text),
            ("simulated_ratio", Kind::Real),
            ("published_ratio", Kind::Real),
            ("agreement", Kind::Text),
        ];
        let row =
            |finding: &str, measured: Option<f64>, published: Option<f64>, agreement: &str| {
                vec![finding.into(), measured.into(), published.into(), Value::from(agreement)]
            };
        let run = run_of(vec![table(
            "findings",
            &columns,
            vec![
                row("network > disk", Some(1.8), Some(2.5), "agrees"),
                row("network > disk", Some(0.7), Some(3.0), "disagrees"),
                row("a loop on another core has no peaks", Some(90.0), None, "agrees"),
                row("a claim that nothing measured", None, None, "can't tell"),
                row("network > disk", Some(1.2), None, "–"),
            ],
        )]);
        golden("findings", findings(&run, WIDTH));
        golden("findings_narrow", findings(&run, NARROW));
        assert_eq!(findings(&run_of(vec![]), WIDTH).unwrap(), None);
    }
}
