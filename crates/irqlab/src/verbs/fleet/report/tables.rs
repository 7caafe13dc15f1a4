//! The report of a fleet as a run with tables, and its answers as sentences.

use ::fleet::{
    ClockOffset, FleetDirectory, GROUP_MIN, GroupVerdict, HostState, OUTLIER_SCORE, PValueMethod,
};
use record::{Absence, Column, Columns, Run, SCHEMA, Table, TableDisplay, Value, column};
use report::human;
use serde_json::Map;

use super::super::collect::clock_text;
use super::Host;
use super::analysis::{Analysis, Extremes, Group};
use super::host_warnings;

/// Number of rows of a table on the terminal, unless all are asked for.
const ROWS_MAX: u64 = 20;
/// Number of hosts that an answer names.
const NAMED_MAX: usize = 10;
/// Number of groups that answers name for each metric.
const GROUPS_NAMED_MAX: usize = 5;
/// Number of hosts without a figure that the report lists.
const ABSENCES_MAX: usize = 50;

/// Makes the tables of the report, as a run.
pub fn report(
    fleet: &FleetDirectory,
    experiment: &str,
    started_utc: String,
    hosts: &[Host],
    analyses: &[Analysis],
) -> Run {
    let mut tables = Vec::new();
    for analysis in analyses {
        let name = free_name(&tables, analysis);
        tables.push(figures_table(&name, hosts, analysis));
        if !analysis.groups.is_empty() {
            tables.push(groups_table(&part_name(&name, "groups"), analysis));
        }
        if let Some(extremes) = &analysis.extremes
            && !extremes.differing.is_empty()
        {
            tables.push(extremes_table(&part_name(&name, "extremes"), hosts, analysis, extremes));
        }
    }
    tables.push(hosts_table(hosts));
    Run {
        schema: SCHEMA.to_owned(),
        experiment: format!("fleet of {experiment}"),
        bench: "live".to_owned(),
        started_utc,
        complete: true,
        host: Map::new(),
        settings: Map::new(),
        observer: Map::new(),
        warnings: warnings(fleet, hosts),
        absent: absences(hosts, analyses),
        tables,
    }
}

/// The name of a metric's table: the table and column of the runs, and a number if another metric has this name.
fn free_name(tables: &[Table], analysis: &Analysis) -> String {
    let name = format!("{}_{}", analysis.metric.table, analysis.metric.column);
    let name = name[..name.len().min(40)].to_owned();
    let is_free = |name: &String| tables.iter().all(|table| table.name != *name);
    let numbered = (2..).map(|number| format!("{name}_{number}"));
    std::iter::once(name.clone()).chain(numbered).find(is_free).unwrap_or(name)
}

fn part_name(name: &str, part: &str) -> String {
    format!("{name}_{part}")
}

/// A column of figures that is formatted as the metric's column.
fn like(analysis: &Analysis, name: &str, title: &str, doc: &str, priority: u8) -> Column {
    let mut like = column(name, doc).shown_as(title, priority);
    (like.display.format, like.display.digits) =
        (analysis.column.display.format, analysis.column.display.digits);
    like
}

/// The name of a column with the unit of the metric's column.
fn with_unit(name: &str, analysis: &Analysis) -> String {
    let unit = analysis.metric.column.rsplit_once('_').map_or("", |(_, unit)| unit);
    let units = ["ns", "cycles", "bytes", "ratio", "hz", "count"];
    if units.contains(&unit) { format!("{name}_{unit}") } else { name.to_owned() }
}

fn text_of(analysis: &Analysis, figure: f64) -> String {
    let column = &analysis.column;
    human::value_text(&column.name, column.display.format, &Value::real(figure))
}

/// A row for each host with the figure, the most extreme first.
fn figures_table(name: &str, hosts: &[Host], analysis: &Analysis) -> Table {
    let scores = analysis.scores.as_ref().ok();
    let mut order: Vec<usize> = (0..analysis.hosts.len()).collect();
    let key = |position: &usize| match scores {
        Some(scores) => scores.scores[*position].abs(),
        None => analysis.figures[*position],
    };
    order.sort_by(|first, second| key(second).total_cmp(&key(first)));
    let host = |position: &usize| &hosts[analysis.hosts[*position]];
    let fact = |position: &usize, name: &str| host(position).facts.get(name).cloned();
    let mut figure = analysis.column.clone().priority(95);
    figure.interval = None;
    (figure.display.combine, figure.display.below_limit) = (None, None);
    let columns = Columns::all([
        column("host", "Name of the host in the list.")
            .key()
            .priority(100)
            .text(|position: &usize| host(position).record.host.clone()),
        figure.real(|position: &usize| analysis.figures[*position]),
        column("left_out_count", "Rows that are not in the figure, because they are bounds or below their detection limit.")
            .detail()
            .uint(|position: &usize| analysis.left_out_counts[*position]),
        column("robust_z", "Distance from the median of all hosts, divided by 1.4826 times the median absolute deviation.")
            .shown_as("robust z", 90)
            .real(|position: &usize| scores.map(|scores| scores.scores[*position])),
        column("is_outlier", "Whether the distance is above 3.5. Absent if that cannot be known.")
            .shown_as("outlier", 92)
            .bool(|position: &usize| analysis.is_outlier(*position)),
        column("kernel", "Release of the kernel.").priority(60).text(|position: &usize| fact(position, "kernel")),
        column("microcode", "Version of the microcode.")
            .priority(55)
            .text(|position: &usize| fact(position, "microcode")),
    ]);
    let note = match &analysis.scores {
        Ok(scores) => format!(
            "median {}; outlier: more than {OUTLIER_SCORE} × {} from it (1.4826 times the median absolute deviation); equal hosts \
             have an outlier by chance in one of five fleets of 5 hosts and one of ten of 24, more often if figures are skewed",
            text_of(analysis, scores.median),
            text_of(analysis, scores.deviation)
        ),
        Err(reason) => format!("outliers cannot be known: {reason}"),
    };
    let display = TableDisplay {
        title: format!("{} of each host, the most extreme first", analysis.metric),
        notes: std::iter::once(escaped(&note)).chain(left_out_note(analysis)).collect(),
        rows_max: Some(ROWS_MAX),
        ..TableDisplay::default()
    };
    columns.table(name, "One figure of each host, and its robust score.", order).displayed(display)
}

/// Says how many rows are not in the figures. `None` if all rows are.
fn left_out_note(analysis: &Analysis) -> Option<String> {
    let host_count = analysis.left_out_counts.iter().filter(|count| **count > 0).count();
    let row_max = analysis.left_out_counts.iter().max()?;
    (host_count > 0).then(|| {
        format!(
            "rows that are bounds or below their detection limit are left out: up to {row_max} rows on each of {host_count} hosts \
             (column left_out_count)"
        )
    })
}

/// Notes are templates: braces in them are doubled.
fn escaped(text: &str) -> String {
    text.replace('{', "(").replace('}', ")")
}

fn verdict_word(verdict: GroupVerdict) -> &'static str {
    match verdict {
        GroupVerdict::Differ { .. } => "differ",
        GroupVerdict::NotKnown { .. } => "not known to differ",
        GroupVerdict::TooFew => "too few hosts",
    }
}

fn p_value_of(verdict: GroupVerdict) -> Option<f64> {
    match verdict {
        GroupVerdict::Differ { p_value } | GroupVerdict::NotKnown { p_value } => Some(p_value),
        GroupVerdict::TooFew => None,
    }
}

/// A row for each division of the hosts by a kernel, a microcode or a setting.
fn groups_table(name: &str, analysis: &Analysis) -> Table {
    let figure = |name: &str, title: &str, doc: &str, priority| {
        like(analysis, &with_unit(name, analysis), title, doc, priority)
    };
    let columns = Columns::all([
        column("facts", "What these hosts have in common, and no other host has.")
            .key()
            .uncut()
            .priority(100)
            .text(|group: &Group| group.facts.clone()),
        column("host_count", "Hosts with these facts.")
            .shown_as("hosts", 80)
            .uint(|group: &Group| group.comparison.count),
        figure("median", "median", "Median of their figures.", 95)
            .real(|group: &Group| group.comparison.median),
        column("others_count", "All other hosts with a figure.")
            .shown_as("others", 75)
            .uint(|group: &Group| group.comparison.others_count),
        figure("others_median", "their median", "Median of the other hosts' figures.", 94)
            .real(|group: &Group| group.comparison.others_median),
        column("p_value", "Probability that equal groups look so different, two-sided, corrected for all groups of this table.")
            .shown_as("p", 85)
            .real(|group: &Group| p_value_of(group.comparison.verdict)),
        column("verdict", "Whether the figures of the two sides differ.")
            .priority(90)
            .text(|group: &Group| verdict_word(group.comparison.verdict)),
        column("method", "How p was computed: exact (from all arrangements of the hosts), random arrangements, or normal approximation.")
            .priority(50)
            .text(|group: &Group| group.comparison.method.map(PValueMethod::label)),
    ]);
    let note = format!(
        "test of Mann and Whitney, two-sided, with the correction of Bonferroni for {} comparisons; a side needs {GROUP_MIN} \
         hosts; a difference is no cause: other facts of these hosts may differ, too",
        analysis.comparisons
    );
    let display = TableDisplay {
        title: format!("{} by kernel, microcode and settings", analysis.metric),
        notes: vec![note],
        rows_max: Some(ROWS_MAX),
        ..TableDisplay::default()
    };
    columns
        .table(name, "Hosts with a fact against all other hosts.", &analysis.groups)
        .displayed(display)
}

/// A row for each fact that differs between the best and the worst host.
fn extremes_table(name: &str, hosts: &[Host], analysis: &Analysis, extremes: &Extremes) -> Table {
    let host = |position: usize| {
        let name = &hosts[analysis.hosts[position]].record.host;
        format!("{name} ({})", text_of(analysis, analysis.figures[position]))
    };
    let (first, second) = extreme_words(extremes);
    let columns = Columns::all([
        column("fact", "What differs.")
            .key()
            .uncut()
            .priority(100)
            .text(|fact: &::fleet::DifferingFact| fact.name.clone()),
        column(first, "Its value on the first host; – if the run does not state it.")
            .wrapped()
            .priority(95)
            .text(|fact: &::fleet::DifferingFact| fact.first.clone()),
        column(second, "Its value on the second host.")
            .wrapped()
            .priority(95)
            .text(|fact: &::fleet::DifferingFact| fact.second.clone()),
    ]);
    let display = TableDisplay {
        title: format!(
            "what differs between the {first} host, {}, and the {second} one, {}",
            host(extremes.best),
            host(extremes.worst)
        ),
        notes: vec!["from host and settings of their runs, without measurements".to_owned()],
        ..TableDisplay::default()
    };
    columns
        .table(name, "Facts that differ between two hosts.", &extremes.differing)
        .displayed(display)
}

fn extreme_words(extremes: &Extremes) -> (&'static str, &'static str) {
    if extremes.has_direction { ("best", "worst") } else { ("lowest", "highest") }
}

/// A row for each host, hosts that are not done first.
fn hosts_table(hosts: &[Host]) -> Table {
    let mut order: Vec<&Host> = hosts.iter().collect();
    let is_apart = |host: &Host| host.record.clock.is_some_and(|clock| clock.differs());
    order.sort_by_key(|host| (host.record.state == HostState::Done, !is_apart(host)));
    let clock = |host: &&Host| host.record.clock;
    let columns = Columns::all([
        column("host", "Name of the host in the list.")
            .key()
            .priority(100)
            .text(|host: &&Host| host.record.host.clone()),
        column("state", "Whether its run was gathered.")
            .priority(95)
            .text(|host: &&Host| host.record.state.word()),
        column("reason", "Why not.")
            .wrapped()
            .priority(90)
            .text(|host: &&Host| host.record.reason.clone()),
        column("warning_count", "Warnings of its run, also an early end and lost events.")
            .detail()
            .uint(|host: &&Host| {
                (host.record.state == HostState::Done).then(|| host.caveats.count())
            }),
        column("events_lost_count", "Events that its run lost. Absent if the run does not say.")
            .detail()
            .uint(|host: &&Host| host.caveats.events_lost_count),
        column("exit_code", "Exit code of irqlab on the host.")
            .detail()
            .int(|host: &&Host| host.record.exit_code.map(i64::from)),
        column("irqlab_version", "Version of irqlab on the host.")
            .detail()
            .text(|host: &&Host| host.record.version.clone()),
        column("address", "The host's own address of the connection, as the host says.")
            .priority(40)
            .text(|host: &&Host| host.record.address.map(|address| address.to_string())),
        column(
            "clock_offset_ns",
            "The host's clock minus the clock of the machine that collected.",
        )
        .plus_minus("clock_offset_error_max_ns")
        .shown_as("clock", 70)
        .int(|host: &&Host| clock(host).map(|clock: ClockOffset| clock.offset_ns)),
        column(
            "clock_offset_error_max_ns",
            "Largest error of the offset: half of the shortest round trip.",
        )
        .detail()
        .uint(|host: &&Host| clock(host).map(|clock: ClockOffset| clock.offset_error_max_ns)),
        column("clock_differs", "Whether the clocks differ by more than the largest error.")
            .detail()
            .bool(|host: &&Host| clock(host).map(|clock: ClockOffset| clock.differs())),
        column(
            "started_utc",
            "When its collection started, by the clock of the machine that collected.",
        )
        .detail()
        .text(|host: &&Host| host.record.started_utc.clone()),
    ]);
    let display = TableDisplay {
        title: "all hosts; hosts that are not done come first".to_owned(),
        rows_max: Some(ROWS_MAX),
        ..TableDisplay::default()
    };
    columns.table("hosts", "A row for each host.", order).displayed(display)
}

fn warnings(fleet: &FleetDirectory, hosts: &[Host]) -> Vec<String> {
    let not_done = hosts.iter().filter(|host| host.record.state != HostState::Done).count();
    let mut warnings = Vec::new();
    if not_done > 0 {
        warnings.push(format!(
            "{not_done} of {} hosts are not done: their figures are absent, not zero (irqlab fleet collect takes them again)",
            hosts.len()
        ));
    }
    if hosts.iter().any(|host| {
        host.record.version.as_deref() != Some(&fleet.plan().version)
            && host.record.state == HostState::Done
    }) {
        warnings.push("the runs come from several versions of irqlab".to_owned());
    }
    warnings.extend(host_warnings::lines(hosts));
    warnings
}

/// The hosts without a figure, and the absent parts of the metrics' tables, with the reasons.
fn absences(hosts: &[Host], analyses: &[Analysis]) -> Vec<Absence> {
    let mut absences: Vec<Absence> = Vec::new();
    for (index, analysis) in analyses.iter().enumerate() {
        let table = format!("{}", analysis.metric);
        // The table of hosts has the reasons of hosts without a run.
        let done = hosts.iter().filter(|host| host.record.state == HostState::Done);
        let without: Vec<(&String, &String)> = done
            .filter_map(|host| Some((&host.record.host, host.figures[index].as_ref().err()?)))
            .collect();
        for (host, reason) in without.iter().take(ABSENCES_MAX) {
            absences.push(Absence::new(table.clone(), host.to_string(), reason.to_string()));
        }
        if without.len() > ABSENCES_MAX {
            let what = format!("{} more hosts", without.len() - ABSENCES_MAX);
            absences.push(Absence::new(table, what, "see --json"));
        }
    }
    absences.extend(host_warnings::absences(hosts));
    absences
}

/// The main results as sentences.
pub fn answers(hosts: &[Host], analyses: &[Analysis]) -> Vec<String> {
    let mut answers = vec![states_sentence(hosts)];
    for analysis in analyses {
        answers.push(outliers_sentence(hosts, analysis));
        answers.extend(group_sentences(analysis));
        answers.extend(extremes_sentence(hosts, analysis));
    }
    answers.extend(clock_sentence(hosts));
    answers
}

fn states_sentence(hosts: &[Host]) -> String {
    let of_state = |state: HostState| -> Vec<&str> {
        let hosts = hosts.iter().filter(|host| host.record.state == state);
        hosts.map(|host| host.record.host.as_str()).collect()
    };
    let done = of_state(HostState::Done).len();
    let mut text = format!("{done} of {} hosts are done", hosts.len());
    for state in [HostState::Unreachable, HostState::RefusedVersion, HostState::Failed] {
        let names = of_state(state);
        if !names.is_empty() {
            text += &format!("; {} {}: {}", names.len(), state.word(), listed(&names));
        }
    }
    text + "."
}

/// Names with commas between them, at most [`NAMED_MAX`].
pub fn listed(names: &[impl AsRef<str>]) -> String {
    let shown: Vec<&str> = names.iter().take(NAMED_MAX).map(AsRef::as_ref).collect();
    match names.len().saturating_sub(NAMED_MAX) {
        0 => shown.join(", "),
        more => format!("{}, and {more} more", shown.join(", ")),
    }
}

fn outliers_sentence(hosts: &[Host], analysis: &Analysis) -> String {
    let metric = &analysis.metric;
    let scores = match &analysis.scores {
        Ok(scores) => scores,
        Err(reason) => return format!("{metric}: outliers cannot be known: {reason}."),
    };
    let outliers = analysis.outliers();
    let median = text_of(analysis, scores.median);
    if outliers.is_empty() {
        return format!("{metric}: no host is an outlier; the median is {median}.");
    }
    let names: Vec<String> = outliers
        .iter()
        .map(|position| {
            let host = &hosts[analysis.hosts[*position]].record.host;
            let figure = text_of(analysis, analysis.figures[*position]);
            format!("{host} ({figure}, z {:.1})", scores.scores[*position])
        })
        .collect();
    format!(
        "{metric}: {} of {} hosts are outliers: {}; the median is {median}.",
        outliers.len(),
        analysis.hosts.len(),
        listed(&names)
    )
}

/// The groups that differ.
fn group_sentences(analysis: &Analysis) -> Vec<String> {
    let differ = analysis.groups.iter().filter_map(|group| match group.comparison.verdict {
        GroupVerdict::Differ { p_value } => Some((group, p_value)),
        _ => None,
    });
    let sentences = differ.take(GROUPS_NAMED_MAX).map(|(group, p_value)| {
        let comparison = &group.comparison;
        format!(
            "{}: hosts with {} have a median of {} ({} hosts), the others {} ({}); p = {p_value:.2e}, corrected.",
            analysis.metric,
            group.facts,
            text_of(analysis, comparison.median),
            comparison.count,
            text_of(analysis, comparison.others_median),
            comparison.others_count,
        )
    });
    sentences.collect()
}

fn extremes_sentence(hosts: &[Host], analysis: &Analysis) -> Option<String> {
    let extremes = analysis.extremes.as_ref()?;
    let host = |position: usize| {
        let name = &hosts[analysis.hosts[position]].record.host;
        format!("{name} ({})", text_of(analysis, analysis.figures[position]))
    };
    let (first, second) = extreme_words(extremes);
    let differing = match extremes.differing.len() {
        0 => "no recorded setting differs between them".to_owned(),
        count => format!("recorded settings that differ between them: {count}"),
    };
    Some(format!(
        "{}: {first} {}, {second} {}; {differing}.",
        analysis.metric,
        host(extremes.best),
        host(extremes.worst)
    ))
}

/// The hosts whose clocks differ.
fn clock_sentence(hosts: &[Host]) -> Option<String> {
    let apart: Vec<String> = hosts
        .iter()
        .filter_map(|host| {
            let clock = host.record.clock.filter(ClockOffset::differs)?;
            Some(format!("{}: {}", host.record.host, clock_text(clock)))
        })
        .collect();
    let count = apart.len();
    (count > 0).then(|| {
        format!(
            "The clocks of {count} hosts differ from that of the collecting machine: {}.",
            listed(&apart)
        )
    })
}
