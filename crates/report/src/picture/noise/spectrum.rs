//! The picture `spectrum` of `noise`: the amplitude of the work that is lost in quanta of fixed time (FTQ), by
//! frequency, on logarithmic axes. Outstanding lines have their frequency as a label.

use std::collections::BTreeMap;

use record::Run;

use super::causes::draw_cpus;
use crate::human::{self, Quantity};
use crate::picture::axis::Axis;
use crate::picture::chart::{Chart, Look, room_for};
use crate::picture::palette::{BLUE, INK, SOFT_INK};
use crate::picture::rows;
use crate::picture::sheet::{Area, Heading, Sheet, Undrawn};

/// The vertical axis reaches at most this factor below the strongest line.
const AXIS_FACTOR_MAX: f64 = 1e4;
/// Maximum number of lines with a label.
const LABELS_MAX: usize = 4;
/// Minimum distance between labels, as a part of the plot's width.
const LABEL_DISTANCE_MIN: f64 = 0.11;
/// A line gets a label if it is stronger than this multiple of the median of its surroundings.
const OUTSTANDING_FACTOR: f64 = 4.0;
/// Number of points that are considered for labels: the strongest.
const CANDIDATES_MAX: usize = 256;

/// The picture of table `spectrum`. `None` for a run without this table.
pub fn spectrum(run: &Run, width: f64) -> Result<Option<Sheet>, Undrawn> {
    let Some(table) = run.table("spectrum") else { return Ok(None) };
    let mut points: BTreeMap<String, Vec<(f64, f64)>> = BTreeMap::new();
    for row in rows(table) {
        let point = row.number("frequency_hz").zip(row.number("amplitude_ratio"));
        if let Some(point) = point.filter(|(hz, amplitude)| *hz > 0.0 && *amplitude >= 0.0) {
            points.entry(row.value_text("cpu")).or_default().push(point);
        }
    }
    let [x, y] = axes(points.values().flatten());
    let mut notes = vec![
        "Amplitude as a share of a quantum's work; where frequencies are closer than a pixel, the \
         strongest. Outstanding lines have their frequency."
            .to_owned(),
    ];
    let (floor, _) = y.ends();
    let is_below_axis = |points: &Vec<(f64, f64)>| {
        envelope(points, &x, width).iter().any(|(_, amplitude)| *amplitude < floor)
    };
    let has_amplitude =
        |points: &Vec<(f64, f64)>| points.iter().any(|(_, amplitude)| *amplitude > 0.0);
    if points.values().any(|points| has_amplitude(points) && is_below_axis(points)) {
        notes.push(format!(
            "Amplitudes below {} are drawn at the lower edge; see table spectrum.",
            human::percent(floor)
        ));
    }
    let heading = Heading {
        title: "Spectrum of the work that is lost in quanta of fixed time (FTQ)".to_owned(),
        notes,
        description: "The share of a quantum's work that is missing, by frequency. ".to_owned(),
        ..Heading::default()
    };
    draw_cpus(heading, table, width, |area, cpu| {
        panel(area, cpu, [&x, &y], points.get(cpu).map_or(&[], Vec::as_slice))
    })
}

/// The axes of all CPUs: frequencies, and amplitudes.
fn axes<'p>(points: impl Iterator<Item = &'p (f64, f64)>) -> [Axis; 2] {
    let (mut first, mut last) = (f64::INFINITY, 0.0_f64);
    let (mut weakest, mut strongest) = (f64::INFINITY, 0.0_f64);
    for &(hz, amplitude) in points {
        (first, last) = (first.min(hz), last.max(hz));
        (weakest, strongest) = (weakest.min(amplitude), strongest.max(amplitude));
    }
    let axis_top = if strongest > 0.0 { strongest } else { 1.0 };
    let weakest = weakest.clamp(axis_top / AXIS_FACTOR_MAX, axis_top);
    [
        Axis::logarithmic("frequency", Quantity::Frequency, first, last),
        Axis::logarithmic("amplitude", Quantity::Share, weakest, axis_top * 2.5),
    ]
}

/// Draws the panel of a CPU, with the axes of all CPUs. `points`: frequencies in Hz, and amplitudes.
fn panel(
    area: &Area<'_>,
    cpu: &str,
    [x, y]: [&Axis; 2],
    points: &[(f64, f64)],
) -> Result<(), Undrawn> {
    let strongest = points.iter().map(|(_, amplitude)| *amplitude).fold(0.0, f64::max);
    let right = room_for(std::iter::empty());
    let mut chart = Chart::new(area, &format!("CPU {cpu}"), [x, y], right)?;
    if strongest == 0.0 {
        let middle = (x.value_at(0.5), y.value_at(0.5));
        return chart.centered_text("no work is lost", middle, [0.0, 0.0], SOFT_INK);
    }
    let mut curve = envelope(points, x, chart.size().0);
    let (floor, _) = y.ends();
    curve.iter_mut().for_each(|(_, amplitude)| *amplitude = amplitude.max(floor));
    chart.line(&curve, Look { colour: BLUE, pattern: 0 }, 1.2)?;
    for (hz, amplitude) in outstanding(&envelope(points, x, chart.size().0), x) {
        // A line that is weaker than the axis shows has no place for its label.
        if amplitude < floor {
            continue;
        }
        let label = format!("{} Hz", human::number(hz));
        chart.centered_text(&label, (hz, amplitude), [0.0, -9.0], INK)?;
    }
    Ok(())
}

/// The strongest point in each pixel column of the plot.
fn envelope(points: &[(f64, f64)], x: &Axis, width: f64) -> Vec<(f64, f64)> {
    let columns = (width.ceil() as usize).max(1);
    let mut strongest: Vec<Option<(f64, f64)>> = vec![None; columns + 1];
    for &point in points {
        let column = &mut strongest[(x.share(point.0) * columns as f64) as usize];
        if column.is_none_or(|(_, amplitude)| amplitude < point.1) {
            *column = Some(point);
        }
    }
    strongest.into_iter().flatten().collect()
}

/// The strongest line, and further lines that are [`OUTSTANDING_FACTOR`] times stronger than the median of their
/// surroundings. Lines that would leave no room for the label of a stronger line are left out.
fn outstanding(points: &[(f64, f64)], x: &Axis) -> Vec<(f64, f64)> {
    let mut by_strength = points.to_vec();
    by_strength.sort_by(|a, b| b.1.total_cmp(&a.1).then(a.0.total_cmp(&b.0)));
    let is_near =
        |hz: f64, other_hz: f64| (x.share(hz) - x.share(other_hz)).abs() <= LABEL_DISTANCE_MIN;
    let mut chosen: Vec<(f64, f64)> = Vec::new();
    for (hz, amplitude) in by_strength.into_iter().take(CANDIDATES_MAX) {
        if chosen.len() >= LABELS_MAX || chosen.iter().any(|(chosen_hz, _)| is_near(hz, *chosen_hz))
        {
            continue;
        }
        let mut surroundings: Vec<f64> = points
            .iter()
            .filter(|(other_hz, _)| is_near(hz, *other_hz))
            .map(|(_, amplitude)| *amplitude)
            .collect();
        surroundings.sort_by(f64::total_cmp);
        let median = || surroundings[surroundings.len() / 2];
        if chosen.is_empty() || amplitude > OUTSTANDING_FACTOR * median() {
            chosen.push((hz, amplitude));
        }
    }
    chosen
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::picture::WIDTH;
    use crate::picture::tests::{checked, golden, run_of, table};
    use record::Kind;

    fn run(points: &[(f64, f64)]) -> Run {
        let columns =
            [("cpu", Kind::Uint), ("frequency_hz", Kind::Real), ("amplitude_ratio", Kind::Real)];
        let rows =
            points.iter().map(|&(hz, amplitude)| vec![3_u64.into(), hz.into(), amplitude.into()]);
        run_of(vec![table("spectrum", &columns, rows.collect())])
    }

    fn drawn(points: &[(f64, f64)]) -> String {
        spectrum(&run(points), WIDTH).unwrap().expect("a picture").file()
    }

    #[test]
    fn outstanding_lines_are_named() {
        let line = |hz: usize| match hz {
            250 => 0.02,
            1_000 => 0.008,
            // Near to the strongest line, and no stronger than its surroundings.
            270 => 0.003,
            _ => 0.000_1 * (1.0 + (hz % 7) as f64 / 7.0),
        };
        let points: Vec<(f64, f64)> = (10..5_000).map(|hz| (hz as f64, line(hz))).collect();
        golden("spectrum", spectrum(&run(&points), WIDTH));
    }

    #[test]
    fn cpus_have_one_scale() {
        let columns =
            [("cpu", Kind::Uint), ("frequency_hz", Kind::Real), ("amplitude_ratio", Kind::Real)];
        let row = |cpu: u64, hz: f64, amplitude: f64| vec![cpu.into(), hz.into(), amplitude.into()];
        let rows =
            vec![row(0, 10.0, 0.5), row(0, 900.0, 0.1), row(1, 30.0, 0.01), row(1, 90.0, 0.02)];
        let sheet = spectrum(&run_of(vec![table("spectrum", &columns, rows)]), WIDTH);
        let sheet = sheet.unwrap().unwrap();
        let [first, second] = sheet.plots() else { panic!("two CPUs") };
        assert_eq!(first.axis, second.axis);
        assert_eq!(sheet.file().matches(">\n50 %\n<").count(), 2, "at both vertical axes");
    }

    #[test]
    fn amplitudes_below_the_axis_are_said_to_be_at_its_edge() {
        let is_said = |weakest: f64| drawn(&[(10.0, 0.5), (900.0, weakest)]).contains("lower edge");
        assert!(is_said(1e-9));
        assert!(is_said(0.0));
        assert!(!is_said(0.01));
        // A CPU that lost no work has no curve.
        assert!(!drawn(&[(10.0, 0.0), (20.0, 0.0)]).contains("lower edge"));
    }

    #[test]
    fn quiet_and_short_spectra_are_pictures_and_none_is_not() {
        for points in [&[(10.0, 0.0), (20.0, 0.0)][..], &[(10.0, 0.5)]] {
            checked(&drawn(points));
        }
        assert_eq!(spectrum(&run(&[]), WIDTH).unwrap(), None);
    }

    #[test]
    fn a_picture_does_not_grow_with_the_number_of_frequencies() {
        let points = |count: u32| -> Vec<(f64, f64)> {
            let amplitude =
                |index: u32| f64::from(index.wrapping_mul(2_654_435_761) >> 8) / 2_f64.powi(24);
            (1..=count).map(|index| (f64::from(index), amplitude(index))).collect()
        };
        let svg = drawn(&points(1_000_000));
        assert!(svg.len() < 60_000, "{}", svg.len());
        assert!(svg == drawn(&points(1_000_000)), "the same, to the byte");
    }
}
