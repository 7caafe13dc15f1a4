//! Tables of kernels: of one processor, and of a processor and its model.

use record::display::{Format, TableDisplay};
use record::{Column, Kind, Table, Value};

use super::comparison::{Comparison, Pair, error_factor};
use super::sample::KernelSample;

/// The kernels of one processor.
#[must_use]
pub fn measured_table(samples: &[KernelSample]) -> Table {
    let columns = vec![
        group(),
        kernel(),
        Column::new("cycles", Kind::Real, "Cycles of the core for a unit: median of the windows.")
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
        Column::new("ci95_high_cycles", Kind::Real, "Upper end of that interval.").priority(0),
        Column::new("unit", Kind::Text, "What the cycles are of."),
        Column::new("windows", Kind::Uint, "Windows that counted."),
        Column::new(
            "disturbed_windows",
            Kind::Uint,
            "Windows that did not: the core's rate changed, its sibling was busy, or something else ran.",
        )
        .title("disturbed"),
        about(),
    ];
    let doc = "Kernels of the validation suite on this processor.";
    let display = TableDisplay { group_by: vec!["group".to_owned()], ..TableDisplay::default() };
    let mut table = Table::new("kernels", doc, columns).displayed(display);
    for one in samples {
        let Ok(figures) = &one.figures else { continue };
        let (low, high) = figures.cycles_95.unzip();
        table.push(vec![
            one.group.as_str().into(),
            one.name.as_str().into(),
            figures.cycles.into(),
            figures.low_cycles.into(),
            low.into(),
            high.into(),
            one.unit.as_str().into(),
            figures.windows.into(),
            (figures.rate_changed + figures.sibling_busy).into(),
            one.about.as_str().into(),
        ]);
    }
    table
}

fn group() -> Column {
    Column::new("group", Kind::Text, "What the kernel is about.").key()
}

fn kernel() -> Column {
    Column::new("kernel", Kind::Text, "Its name.").key().priority(100)
}

fn about() -> Column {
    Column::new("about", Kind::Text, "What the kernel measures.").priority(0)
}

/// The comparison: by group, and by kernel.
#[must_use]
pub fn comparison_tables(host: &[KernelSample], model: &[KernelSample]) -> Vec<Table> {
    let pair = |host| {
        let same = |model: &&KernelSample| model.name == KernelSample::name_of(host);
        Some(Pair { host, model: model.iter().find(same)? })
    };
    let pairs: Vec<Pair<'_>> = host.iter().filter_map(pair).collect();
    vec![groups(&pairs), kernels(&pairs)]
}

impl KernelSample {
    fn name_of(sample: &KernelSample) -> &str {
        &sample.name
    }
}

fn kernels(pairs: &[Pair<'_>]) -> Table {
    let columns = vec![
        group(),
        kernel(),
        Column::new("host_cycles", Kind::Real, "Cycles of the real processor, of the statistic.")
            .title("host")
            .digits(4)
            .priority(90),
        Column::new("host_ci95_low_cycles", Kind::Real, "Lower end of the 95 % interval of its median.")
            .title("95 %")
            .digits(4)
            .up_to("host_ci95_high_cycles"),
        Column::new("host_ci95_high_cycles", Kind::Real, "Upper end of that interval.").priority(0),
        Column::new("model_cycles", Kind::Real, "Cycles of the model, of the statistic.")
            .title("model")
            .digits(4)
            .priority(90),
        Column::new("ratio", Kind::Real, "The model's cycles over the host's.")
            .title("ratio")
            .format(Format::Factor)
            .priority(95),
        Column::new("error_factor", Kind::Real, "The larger of the ratio and its inverse.")
            .cost()
            .priority(0),
        Column::new("unit", Kind::Text, "What the cycles are of."),
        Column::new(
            "statistic",
            Kind::Text,
            "Which figure of the windows: median, or p10 (tenth percentile) where other guests share \
             what the kernel depends on.",
        )
        .title("figure"),
        Column::new("host_windows", Kind::Uint, "Windows of the host that counted.").priority(0),
        Column::new("host_disturbed_windows", Kind::Uint, "Windows of the host that did not.")
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
        Column::new("group", Kind::Text, "Kernels of the group; all, or those held out of fits.")
            .key()
            .priority(100),
        Column::new("kernels", Kind::Uint, "Kernels that both have."),
        factor(
            "mean_error_factor",
            "Mean of the error factors: the larger of model over host and its inverse.",
        )
        .title("mean factor")
        .cost(),
        factor("geometric_mean_error_factor", "Their geometric mean.").title("geometric"),
        factor("median_error_factor", "Their median.").title("median"),
        factor("bias_factor", "Geometric mean of model over host; below 1, the model is too fast.")
            .title("bias"),
        Column::new("off_by_20_percent", Kind::Uint, "Kernels that are off by more than 20 %.")
            .title("off by 20 %"),
        Column::new("worst_kernel", Kind::Text, "The kernel with the largest error factor.")
            .title("worst"),
        factor("worst_ratio", "Its model over host.").title("its ratio"),
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
    let held = |pair: &&Pair<'_>| super::is_held_out(&pair.host.name);
    add(&mut table, "held out of fits", pairs.iter().filter(held));
    table
}

fn add<'s>(table: &mut Table, name: &str, pairs: impl Iterator<Item = &'s Pair<'s>>) {
    let Some(of) = Comparison::of(pairs.copied()) else { return };
    table.push(vec![
        name.into(),
        of.kernels.into(),
        of.mean.into(),
        of.geometric_mean.into(),
        of.median.into(),
        of.bias.into(),
        of.far.into(),
        of.worst.0.as_str().into(),
        of.worst.1.into(),
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
        // What one of them lacks has no row; its absence has the reason.
        let rows: Vec<usize> = tables.iter().map(|table| table.rows().len()).collect();
        assert_eq!(rows[1..], [1, 1]);
        assert!(rows[0] >= 3, "the group, all, and all but system");
    }
}
