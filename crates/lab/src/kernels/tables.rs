//! Tables of kernels: one table for a processor alone, and two that compare a processor with its model.

use record::display::{Format, TableDisplay};
use record::{Column, Kind, Table, Value};

use super::comparison::{Comparison, Pair, error_factor};
use super::sample::KernelSample;

/// The table of the kernels of one processor.
#[must_use]
pub fn measured_table(samples: &[KernelSample]) -> Table {
    let columns = vec![
        group(),
        kernel(),
        Column::new("cycles", Kind::Real, "Cycles of the core per unit: median of the windows.")
            .cost()
            .title("cycles")
            .digits(4),
        Column::new("low_cycles", Kind::Real, "Tenth percentile of the windows.")
            .title("p10")
            .digits(4),
        Column::new("ci95_low_cycles", Kind::Real, "Lower end of the 95 % interval of the median.")
            .title("95 %")
            .digits(4)
            .up_to("ci95_high_cycles"),
        Column::new(
            "ci95_high_cycles",
            Kind::Real,
            "Upper end of the 95 % interval of the median.",
        )
        .priority(0),
        Column::new("unit", Kind::Text, "The unit that the cycles are counted per."),
        Column::new("windows", Kind::Uint, "Undisturbed windows; only they count."),
        Column::new(
            "disturbed_windows",
            Kind::Uint,
            "Windows that do not count: the core's rate changed, its sibling was busy, or other \
             work ran.",
        )
        .title("disturbed"),
        about(),
    ];
    let doc = "Kernels of the validation suite on this processor.";
    let display = TableDisplay { group_by: vec!["group".to_owned()], ..TableDisplay::default() };
    let mut table = Table::new("kernels", doc, columns).displayed(display);
    for sample in samples {
        let Ok(figures) = &sample.figures else { continue };
        let (low, high) = figures.cycles_95.unzip();
        table.push(vec![
            sample.group.as_str().into(),
            sample.name.as_str().into(),
            figures.cycles.into(),
            figures.low_cycles.into(),
            low.into(),
            high.into(),
            sample.unit.as_str().into(),
            figures.windows.into(),
            (figures.rate_changed + figures.sibling_busy).into(),
            sample.about.as_str().into(),
        ]);
    }
    table
}

fn group() -> Column {
    Column::new("group", Kind::Text, "The group of the kernel, by its subject.").key()
}

fn kernel() -> Column {
    Column::new("kernel", Kind::Text, "Name of the kernel.").key().priority(100)
}

fn about() -> Column {
    Column::new("about", Kind::Text, "What the kernel measures.").priority(0)
}

/// The tables of the comparison by group and by kernel.
#[must_use]
pub fn comparison_tables(host: &[KernelSample], model: &[KernelSample]) -> Vec<Table> {
    let pairs: Vec<Pair<'_>> = host
        .iter()
        .filter_map(|host| {
            let model = model.iter().find(|model| model.name == host.name)?;
            Some(Pair { host, model })
        })
        .collect();
    vec![groups(&pairs), kernels(&pairs)]
}

fn kernels(pairs: &[Pair<'_>]) -> Table {
    let columns = vec![
        group(),
        kernel(),
        Column::new(
            "host_cycles",
            Kind::Real,
            "Cycles of the real processor: the figure in column statistic.",
        )
        .title("host")
        .digits(4)
        .priority(90),
        Column::new(
            "host_ci95_low_cycles",
            Kind::Real,
            "Lower end of the 95 % interval of the host's median.",
        )
        .title("95 %")
        .digits(4)
        .up_to("host_ci95_high_cycles"),
        Column::new(
            "host_ci95_high_cycles",
            Kind::Real,
            "Upper end of the 95 % interval of the median.",
        )
        .priority(0),
        Column::new(
            "model_cycles",
            Kind::Real,
            "Cycles of the model: the figure in column statistic.",
        )
        .title("model")
        .digits(4)
        .priority(90),
        Column::new("ratio", Kind::Real, "The model's cycles over the host's cycles.")
            .title("ratio")
            .format(Format::Factor)
            .priority(95),
        Column::new("error_factor", Kind::Real, "The larger of the ratio and its inverse.")
            .cost()
            .priority(0),
        Column::new("unit", Kind::Text, "The unit that the cycles are counted per."),
        Column::new(
            "statistic",
            Kind::Text,
            "Figure of the windows: median, or p10 (tenth percentile) if other guests share the \
             hardware that the kernel depends on.",
        )
        .title("figure"),
        Column::new(
            "host_windows",
            Kind::Uint,
            "Undisturbed windows of the host; only they count.",
        )
        .priority(0),
        Column::new("host_disturbed_windows", Kind::Uint, "Windows of the host that do not count.")
            .priority(0),
        Column::new("held_out", Kind::Bool, "Whether fits do not use the kernel.").priority(0),
        about(),
    ];
    let doc = "Kernels of the validation suite: cycles of the real processor and of its model.";
    let display = TableDisplay { group_by: vec!["group".to_owned()], ..TableDisplay::default() };
    let mut table = Table::new("kernels", doc, columns).displayed(display);
    for pair in pairs {
        let Some(ratio) = pair.ratio() else { continue };
        let figures = pair.host.figures.as_ref().ok();
        let (low, high) = figures.and_then(|figures| figures.cycles_95).unzip();
        table.push(vec![
            pair.host.group.as_str().into(),
            pair.host.name.as_str().into(),
            pair.host.compared_cycles().into(),
            low.into(),
            high.into(),
            pair.model.compared_cycles().into(),
            ratio.into(),
            error_factor(ratio).into(),
            pair.host.unit.as_str().into(),
            pair.host.statistic().into(),
            figures.map(|figures| figures.windows).into(),
            figures.map(|figures| figures.rate_changed + figures.sibling_busy).into(),
            Value::Bool(super::is_held_out(&pair.host.name)),
            pair.host.about.as_str().into(),
        ]);
    }
    table
}

fn groups(pairs: &[Pair<'_>]) -> Table {
    let factor = |name, doc| Column::new(name, Kind::Real, doc).format(Format::Factor);
    let columns = vec![
        Column::new(
            "group",
            Kind::Text,
            "Group of kernels; all; all but system; or the kernels that fits do not use.",
        )
        .key()
        .priority(100),
        Column::new("kernels", Kind::Uint, "Kernels with cycles of both host and model."),
        factor(
            "mean_error_factor",
            "Mean of the error factors: the larger of model over host and its inverse.",
        )
        .title("mean factor")
        .cost(),
        factor("geometric_mean_error_factor", "Geometric mean of the error factors.")
            .title("geometric"),
        factor("median_error_factor", "Median of the error factors.").title("median"),
        factor("bias_factor", "Geometric mean of model over host; below 1, the model is too fast.")
            .title("bias"),
        Column::new("off_by_20_percent", Kind::Uint, "Kernels that are off by more than 20 %.")
            .title("off by 20 %"),
        Column::new("worst_kernel", Kind::Text, "The kernel with the largest error factor.")
            .title("worst"),
        factor("worst_ratio", "Ratio of model over host of the worst kernel.").title("its ratio"),
    ];
    let doc = "How far the model is from the real processor, by group of kernels.";
    let mut table = Table::new("groups", doc, columns);
    let mut names: Vec<&str> = Vec::new();
    for pair in pairs {
        if !names.contains(&pair.host.group.as_str()) {
            names.push(&pair.host.group);
        }
    }
    for name in names {
        add(&mut table, name, pairs.iter().filter(|pair| pair.host.group == name));
    }
    add(&mut table, "all", pairs.iter());
    let is_user = |pair: &&Pair<'_>| pair.host.group != "system";
    add(&mut table, "all but system", pairs.iter().filter(is_user));
    let is_held_out = |pair: &&Pair<'_>| super::is_held_out(&pair.host.name);
    add(&mut table, "held out of fits", pairs.iter().filter(is_held_out));
    table
}

fn add<'s>(table: &mut Table, name: &str, pairs: impl Iterator<Item = &'s Pair<'s>>) {
    let Some(errors) = Comparison::of(pairs.copied()) else { return };
    table.push(vec![
        name.into(),
        errors.kernels.into(),
        errors.mean.into(),
        errors.geometric_mean.into(),
        errors.median.into(),
        errors.bias.into(),
        errors.far.into(),
        errors.worst.0.as_str().into(),
        errors.worst.1.into(),
    ]);
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::kernels::Figures;

    #[test]
    fn tables_can_be_shown_and_have_a_row_for_each_kernel() {
        let figures = Figures {
            cycles: 2.0,
            low_cycles: 1.5,
            cycles_95: Some((1.0, 3.0)),
            windows: 7,
            rate_changed: 1,
            sibling_busy: 2,
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
        // A kernel without cycles of both has no row.
        let rows: Vec<usize> = tables.iter().map(|table| table.rows().len()).collect();
        assert_eq!(rows[1..], [1, 1]);
        assert!(rows[0] >= 3, "the group, all, and all but system");
    }
}
