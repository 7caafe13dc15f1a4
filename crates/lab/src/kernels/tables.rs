//! Tables of kernels for `irqlab bench model` and `irqlab machines fit`: the kernels of one processor, the comparison
//! of a processor with its model, and the fitted fields. Names and order of the columns are public.

use record::display::{Format, TableDisplay};
use record::{Columns, IntervalColumns, Table, column};

use super::comparison::{Comparison, Pair, error_factor};
use super::fit::Fitted;
use super::sample::{Figures, KernelSample};

/// Table `kernels` of one processor. Samples without cycles have no row.
#[must_use]
pub fn measured_table(samples: &[KernelSample]) -> Table {
    type Row<'s> = (&'s KernelSample, &'s Figures);
    let [low, high] = ["ci95_low_cycles", "ci95_high_cycles"];
    let columns = name_columns().of_ref(|(sample, _): &Row<'_>| *sample).and([
        column("cycles", "Cycles of the core per unit: median of the windows.")
            .interval(IntervalColumns::bounds(low, high))
            .cost()
            .title("cycles")
            .digits(4)
            .real(|(_, figures): &Row<'_>| figures.cycles),
        column(
            "low_cycles",
            "Tenth percentile of the windows; of fewer than ten windows, the minimum.",
        )
        .title("p10")
        .digits(4)
        .real(|(_, figures): &Row<'_>| figures.low_cycles),
        column(low, "Lower end of the 95 % interval of the median.")
            .title("95 %")
            .digits(4)
            .up_to(high)
            .real(|(_, figures): &Row<'_>| figures.cycles_95.map(|(low, _)| low)),
        column(high, "Upper end of the 95 % interval of the median.")
            .detail()
            .real(|(_, figures): &Row<'_>| figures.cycles_95.map(|(_, high)| high)),
        column("unit", "The unit that the cycles are counted per.")
            .text(|(sample, _): &Row<'_>| sample.unit.clone()),
        column("windows", "Undisturbed windows; only they count.")
            .uint(|(_, figures): &Row<'_>| figures.windows),
        column(
            "processes",
            "Processes that have cycles of the kernel; the windows are those of these processes.",
        )
        .detail()
        .uint(|(_, figures): &Row<'_>| figures.processes),
        column(
            "disturbed_windows",
            "Windows that do not count: the core's rate changed, its sibling was busy, or other \
             work ran.",
        )
        .title("disturbed")
        .uint(|(_, figures): &Row<'_>| figures.disturbed_windows()),
        about_column().of_ref(|(sample, _): &Row<'_>| *sample),
    ]);
    let rows = samples.iter().filter_map(|sample| Some((sample, sample.figures.as_ref().ok()?)));
    let doc = "Kernels of the validation suite on this processor.";
    columns.table("kernels", doc, rows).displayed(by_group())
}

/// Display hints: rows are grouped by the group of kernels.
fn by_group() -> TableDisplay {
    TableDisplay { group_by: vec!["group".to_owned()], ..TableDisplay::default() }
}

/// Columns of the group and the name of a kernel.
fn name_columns<'a>() -> Columns<'a, KernelSample> {
    Columns::all([
        column("group", "The group of the kernel, by its subject.")
            .key()
            .text(|sample: &KernelSample| sample.group.clone()),
        column("kernel", "Name of the kernel.")
            .key()
            .priority(100)
            .text(|sample: &KernelSample| sample.name.clone()),
    ])
}

fn about_column<'a>() -> Columns<'a, KernelSample> {
    column("about", "What the kernel measures.")
        .detail()
        .text(|sample: &KernelSample| sample.about.clone())
}

/// The tables `groups` and `kernels` that compare a processor with its model. Kernels that the model's samples lack are
/// left out.
#[must_use]
pub fn comparison_tables(host: &[KernelSample], model: &[KernelSample]) -> Vec<Table> {
    let pairs: Vec<Pair<'_>> = host
        .iter()
        .filter_map(|host| {
            let model = model.iter().find(|model| model.name == host.name)?;
            Some(Pair { host, model })
        })
        .collect();
    vec![group_table(&pairs), kernel_table(&pairs)]
}

/// Table `kernels` of a comparison. Pairs without cycles of both processor and model have no row.
fn kernel_table(pairs: &[Pair<'_>]) -> Table {
    /// A pair, and its ratio of cycles.
    type Row<'s> = (&'s Pair<'s>, f64);
    fn figures<'s>(pair: &Pair<'s>) -> Option<&'s Figures> {
        pair.host.figures.as_ref().ok()
    }
    let interval = |pair: &Pair<'_>| pair.host.compared_cycles_95();
    let [low, high] = ["host_ci95_low_cycles", "host_ci95_high_cycles"];
    let columns = name_columns().of_ref(|(pair, _): &Row<'_>| pair.host).and([
        column("host_cycles", "Cycles of the real processor: the figure in column statistic.")
            .interval(IntervalColumns::bounds(low, high))
            .title("host")
            .digits(4)
            .priority(90)
            .real(|(pair, _): &Row<'_>| pair.host.compared_cycles()),
        column(low, "Lower end of the 95 % interval of host_cycles; absent unless that is a median.")
            .title("95 %")
            .digits(4)
            .up_to(high)
            .real(move |(pair, _): &Row<'_>| interval(pair).map(|(low, _)| low)),
        column(high, "Upper end of the 95 % interval of host_cycles; absent unless that is a median.")
            .detail()
            .real(move |(pair, _): &Row<'_>| interval(pair).map(|(_, high)| high)),
        column(
            "model_cycles",
            "Cycles of the model: the median; if other guests share the hardware that the kernel depends on, p10 or, of \
             fewer than ten windows, the minimum.",
        )
            .title("model")
            .digits(4)
            .priority(90)
            .real(|(pair, _): &Row<'_>| pair.model.compared_cycles()),
        column("ratio", "The model's cycles over the host's cycles.")
            .title("ratio")
            .format(Format::Factor)
            .priority(95)
            .real(|(_, ratio): &Row<'_>| *ratio),
        column("error_factor", "The larger of the ratio and its inverse.")
            .cost()
            .detail()
            .real(|(_, ratio): &Row<'_>| error_factor(*ratio)),
        column("unit", "The unit that the cycles are counted per.")
            .text(|(pair, _): &Row<'_>| pair.host.unit.clone()),
        column(
            "statistic",
            "Figure of the host's windows: median; if other guests share the hardware that the kernel depends on, p10 (tenth \
             percentile) or, of fewer than ten windows, minimum. Some kept data has minima alone.",
        )
        .title("figure")
        .text(|(pair, _): &Row<'_>| pair.host.statistic()),
        column("host_windows", "Undisturbed windows of the host; only they count.")
            .detail()
            .uint(|(pair, _): &Row<'_>| figures(pair).and_then(|figures| figures.windows)),
        column(
            "host_processes",
            "Processes of the host that have cycles of the kernel; the windows are those of these processes.",
        )
        .detail()
        .uint(|(pair, _): &Row<'_>| figures(pair).and_then(|figures| figures.processes)),
        column("host_disturbed_windows", "Windows of the host that do not count.").detail().uint(
            |(pair, _): &Row<'_>| figures(pair).and_then(|figures| figures.disturbed_windows()),
        ),
        column("held_out", "Whether fits do not use the kernel.")
            .detail()
            .bool(|(pair, _): &Row<'_>| super::is_held_out(&pair.host.name)),
        about_column().of_ref(|(pair, _): &Row<'_>| pair.host),
    ]);
    let rows = pairs.iter().filter_map(|pair| Some((pair, pair.ratio()?)));
    let doc = "Kernels of the validation suite: cycles of the real processor and of its model.";
    columns.table("kernels", doc, rows).displayed(by_group())
}

/// Table `groups`: the errors of each group of kernels, and of several groups together.
fn group_table(pairs: &[Pair<'_>]) -> Table {
    /// The name of a group, and the errors of its kernels.
    type Row<'s> = (&'s str, Comparison);
    let factor = |name, doc| column(name, doc).format(Format::Factor);
    let columns = Columns::all([
        column(
            "group",
            "Group of kernels; all; all but system; all but system and cpuid, which a hypervisor executes; or the kernels that \
             fits do not use.",
        )
        .key()
        .priority(100)
        .text(|(name, _): &Row<'_>| (*name).to_owned()),
        column("kernels", "Kernels with cycles of both host and model.")
            .uint(|(_, errors): &Row<'_>| errors.kernels),
        factor(
            "mean_error_factor",
            "Mean of the error factors: the larger of model over host and its inverse.",
        )
        .title("mean factor")
        .cost()
        .real(|(_, errors): &Row<'_>| errors.mean),
        factor("geometric_mean_error_factor", "Geometric mean of the error factors.")
            .title("geometric")
            .real(|(_, errors): &Row<'_>| errors.geometric_mean),
        factor("median_error_factor", "Median of the error factors.")
            .title("median")
            .real(|(_, errors): &Row<'_>| errors.median),
        factor("bias_factor", "Geometric mean of model over host; below 1, the model is too fast.")
            .title("bias")
            .real(|(_, errors): &Row<'_>| errors.bias),
        column("off_by_20_percent", "Kernels that are off by more than 20 %.")
            .title("off by 20 %")
            .uint(|(_, errors): &Row<'_>| errors.far),
        column("worst_kernel", "The kernel with the largest error factor.")
            .title("worst")
            .text(|(_, errors): &Row<'_>| errors.worst.0.clone()),
        factor("worst_ratio", "Ratio of model over host of the worst kernel.")
            .title("worst ratio")
            .real(|(_, errors): &Row<'_>| errors.worst.1),
    ]);
    let mut names: Vec<&str> = Vec::new();
    for pair in pairs {
        if !names.contains(&pair.host.group.as_str()) {
            names.push(&pair.host.group);
        }
    }
    type IsInGroup<'s> = &'s dyn Fn(&Pair<'_>) -> bool;
    let errors = |name, is_in_group: IsInGroup<'_>| {
        Some((name, Comparison::of(pairs.iter().filter(|pair| is_in_group(pair)).copied())?))
    };
    let mut rows: Vec<Row<'_>> = names
        .into_iter()
        .filter_map(|name| errors(name, &|pair| pair.host.group == name))
        .collect();
    rows.extend(errors("all", &|_| true));
    rows.extend(errors("all but system", &|pair| pair.host.group != "system"));
    rows.extend(errors("all but system and cpuid", &|pair| {
        pair.host.group != "system" && pair.host.name != "cpuid"
    }));
    rows.extend(errors("held out of fits", &|pair| super::is_held_out(&pair.host.name)));
    let doc = "How far the model is from the real processor, by group of kernels.";
    columns.table("groups", doc, rows)
}

fn field_columns<'a>() -> Columns<'a, Fitted> {
    Columns::all([
        column("field", "Field of the model, as in --set.")
            .key()
            .priority(100)
            .text(|row: &Fitted| row.field.clone()),
        column("value", "New value of the field; absent if the preset's value stays.")
            .priority(90)
            .text(|row: &Fitted| row.value.clone()),
        column("cycles", "Cycles of the kernel that determines the field.")
            .digits(4)
            .interval(IntervalColumns::bounds("ci95_low_cycles", "ci95_high_cycles"))
            .real(|row: &Fitted| row.measured.map(|(cycles, _)| cycles)),
        column("ci95_low_cycles", "Lower end of the 95 % interval of `cycles`.")
            .title("95 %")
            .digits(4)
            .up_to("ci95_high_cycles")
            .real(|row: &Fitted| row.interval().map(|(low, _)| low)),
        column("ci95_high_cycles", "Upper end of that interval.")
            .detail()
            .real(|row: &Fitted| row.interval().map(|(_, high)| high)),
        column("method", "How the value was determined, or why the preset's value stays.")
            .text(|row: &Fitted| row.method.clone()),
    ])
}

/// Table `fields`: the fields of a model that were fitted, or kept the preset's values.
#[must_use]
pub fn field_table(fitted: &[Fitted]) -> Table {
    field_columns().table("fields", "Fields of the fitted model.", fitted)
}

/// Table `preset_groups`: how far the preset of a fitted model is from the processor.
#[must_use]
pub fn preset_table(host: &[KernelSample], preset: &[KernelSample]) -> Table {
    let mut groups = comparison_tables(host, preset).swap_remove(0);
    groups.name = "preset_groups".to_owned();
    groups.doc = "How far the preset is from the real processor, by group of kernels.".to_owned();
    groups
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::kernels::{Figures, Statistics};
    use record::Value;

    #[test]
    fn tables_can_be_shown_and_have_a_row_for_each_kernel() {
        let figures = Figures {
            cycles: 2.0,
            low_cycles: 1.5,
            cycles_95: Some((1.0, 3.0)),
            statistics: Statistics::of_windows(7),
            processes: Some(1),
            windows: Some(7),
            rate_changed: Some(1),
            sibling_busy: Some(2),
        };
        let sample = |name: &str, figures| KernelSample {
            name: name.to_owned(),
            group: "arithmetic".to_owned(),
            unit: "instruction".to_owned(),
            about: "Additions.".to_owned(),
            shared: false,
            figures,
        };
        let absent = || sample("b", Err("no".to_owned()));
        let all = [sample("a", Ok(figures)), absent()];
        let tables = [comparison_tables(&all, &all), vec![measured_table(&all)]].concat();
        for table in &tables {
            table.check_display().unwrap();
        }
        // The tenth percentile, which is compared on shared hardware, has no interval.
        let interval_of = |shared| {
            let all = [KernelSample { shared, ..all[0].clone() }];
            let kernels = comparison_tables(&all, &all).remove(1);
            kernels.get(&kernels.rows()[0], "host_ci95_low_cycles").cloned()
        };
        assert_eq!(interval_of(false), Some(Value::Real(1.0)));
        assert_eq!(interval_of(true), Some(Value::Absent));
        // A kernel without cycles of both has no row.
        let rows: Vec<usize> = tables.iter().map(|table| table.rows().len()).collect();
        assert_eq!(rows[1..], [1, 1]);
        assert!(rows[0] >= 3, "the group, all, and all but system");
    }
}
