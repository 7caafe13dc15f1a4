//! The text around the tables of a run: title, host, method, warnings, observer, and what was not measured. Terminal,
//! Markdown and HTML page have these words in common. All text is escaped here.

use record::{Absence, Run, Table, keys};
use serde_json::Value as Json;
use unicode_width::UnicodeWidthStr;

use crate::escape::{lines, plain};
use crate::human::{self, unbroken};
use crate::row::fill_from_run;

/// The title of a run: `handlers on live, 2026-11-21T07:50:41Z`.
pub(crate) fn title(run: &Run) -> String {
    let whole_seconds = run.started_utc.split_once('.').map(|(seconds, _)| format!("{seconds}Z"));
    let start_text = whole_seconds.unwrap_or_else(|| run.started_utc.clone());
    plain(&format!("{} on {}, {start_text}", run.experiment, run.bench))
}

/// The known facts about the machine: `AMD EPYC (family 26, model 2); guest of KVM; ...`. Empty if none is known.
pub(crate) fn host(run: &Run) -> String {
    let text = |key: &str| run.host.get(key).and_then(Json::as_str).filter(|text| !text.is_empty());
    let count = |key: &str| run.host.get(key).and_then(Json::as_u64);
    let numbers = count("cpu_family").zip(count("cpu_model_number"));
    let model = numbers.map(|(family, model)| format!(" (family {family}, model {model})"));
    let kernel = text("kernel").map(|kernel| format!("Linux {kernel}"));
    let guest = match run.host.get(keys::VIRTUALIZED).and_then(Json::as_bool) {
        Some(true) => Some(format!("guest of {}", text("hypervisor").unwrap_or("a hypervisor"))),
        Some(false) => Some("not virtual".to_owned()),
        None => None,
    };
    let pmu = match run.host.get(keys::PMU).and_then(Json::as_bool) {
        Some(true) => count("pmu_counters").map(|counters| format!("{counters} PMU counters")),
        Some(false) => Some("no PMU".to_owned()),
        None => None,
    };
    let parts = [
        text("cpu_model").map(|name| format!("{name}{}", model.unwrap_or_default())),
        text("cpus_online").map(|cpus| format!("CPUs {cpus} online")),
        guest,
        kernel.map(|kernel| format!("{kernel} {}", text("arch").unwrap_or_default())),
        count("hz").map(|hz| format!("{hz} Hz tick")),
        pmu,
    ];
    let known_parts = parts.into_iter().flatten().map(|part| plain(part.trim_end()));
    known_parts.collect::<Vec<_>>().join("; ")
}

/// A sentence about the table: its display title or, without one, its documentation.
pub(crate) fn table_title(table: &Table) -> &str {
    if table.display.title.is_empty() { &table.doc } else { &table.display.title }
}

/// A line about how the table's numbers were measured. Empty for a table without notes.
pub(crate) fn method(run: &Run, table: &Table) -> String {
    let notes = table.display.notes.iter();
    let notes: Vec<String> = notes.filter_map(|note| fill_from_run(note, run)).collect();
    if notes.is_empty() {
        return String::new();
    }
    format!("method: {} bench; {}", plain(&run.bench), notes.join("; "))
}

/// The text as one word of a shell command, quoted if necessary.
#[must_use]
pub fn shell_word(text: &str) -> String {
    let text = plain(text);
    let is_safe = |character: char| character.is_alphanumeric() || "/._-+,:@%".contains(character);
    if !text.is_empty() && text.chars().all(is_safe) {
        return text;
    }
    format!("'{}'", text.replace('\'', "'\\''"))
}

/// The warnings of a run. If the run was cut short, the first warning says so.
pub(crate) fn warnings(run: &Run) -> Vec<String> {
    let text = "the run was cut short: the tables hold what was measured until then";
    let cut_short_warning = (!run.complete).then(|| text.to_owned());
    cut_short_warning.into_iter().chain(run.warnings.iter().map(|warning| plain(warning))).collect()
}

/// The overhead of the measurement, and the events that it lost. Empty if nothing is known.
pub(crate) fn observer(run: &Run) -> String {
    let ns = |time| unbroken(&human::ns(time));
    let percent = |share| unbroken(&human::percent(share));
    let number = |key: &str| run.observer.get(key).and_then(Json::as_f64);
    let count = |key: &str| run.observer.get(key).and_then(Json::as_u64);
    let range_ns = number("probe_overhead_min_ns").zip(number("probe_overhead_max_ns"));
    let range = range_ns.map_or(String::new(), |(min_ns, max_ns)| {
        format!(" ({} to {} in its rounds)", ns(min_ns), ns(max_ns))
    });
    let parts = [
        number("probe_overhead_ns").map(|time| match number("probe_overhead_in_span_ns") {
            Some(time_in_span) => format!(
                "probe overhead {} per span{range}, {} of it within the span",
                ns(time),
                ns(time_in_span)
            ),
            None => format!("probe overhead {} per span{range}", ns(time)),
        }),
        count("events").map(|events| format!("{} events", human::count(events))),
        number("events_per_second").map(|rate| unbroken(&human::rate(rate))),
        number("cpu_share_ratio").map(|share| format!("{} of CPU time", percent(share))),
        number("user_cpu_share_ratio")
            .map(|share| format!("{} of CPU time in user space", percent(share))),
        number("kernel_memory_bytes")
            .map(|bytes| format!("{} of kernel memory", unbroken(&human::bytes(bytes)))),
        count(keys::EVENTS_LOST_COUNT).map(|lost| match lost {
            0 => "no events lost".to_owned(),
            1 => "1 event LOST".to_owned(),
            _ => format!("{} events LOST", human::count(lost)),
        }),
        count(keys::WAKEUPS_LOST_COUNT).filter(|lost| *lost > 0).map(|lost| match lost {
            1 => "1 wake-up LOST".to_owned(),
            _ => format!("{} wake-ups LOST", human::count(lost)),
        }),
        number("peak_memory_bytes")
            .map(|bytes| format!("at most {} of memory in use", unbroken(&human::bytes(bytes)))),
        number("guest_overhead_ns").map(|time| format!("{} added to the guest", ns(time))),
    ];
    parts.into_iter().flatten().collect::<Vec<_>>().join("; ")
}

/// Absences that share their reason and remedy.
pub(crate) struct Missing {
    /// The names of what is absent, by table: `handlers: instructions, cycles; noise: causes`.
    pub what: String,
    /// The reason, which may have several lines.
    pub reason: String,
    pub remedy: Option<String>,
}

/// The absences, grouped by reason and remedy, in order of first appearance.
pub(crate) fn grouped_absences(run: &Run) -> Vec<Missing> {
    let mut groups: Vec<Vec<&Absence>> = Vec::new();
    for absence in &run.absent {
        let is_alike =
            |first: &&Absence| first.reason == absence.reason && first.remedy == absence.remedy;
        match groups.iter_mut().find(|group| group.first().is_some_and(is_alike)) {
            Some(group) => group.push(absence),
            None => groups.push(vec![absence]),
        }
    }
    let to_missing = |group: &Vec<&Absence>| {
        let Absence { reason, remedy, .. } = group.first()?;
        let remedy = remedy.as_deref().map(plain);
        Some(Missing { what: describe(group), reason: lines(reason), remedy })
    };
    groups.iter().filter_map(to_missing).collect()
}

/// The subjects of absences, by table.
fn describe(group: &[&Absence]) -> String {
    let mut tables: Vec<(&str, Vec<String>)> = Vec::new();
    for absence in group {
        let subject = plain(&absence.what);
        match tables.iter_mut().find(|(table, _)| *table == absence.table) {
            Some((_, list)) => list.push(subject),
            None => tables.push((&absence.table, vec![subject])),
        }
    }
    let descriptions =
        tables.iter().map(|(table, list)| format!("{}: {}", plain(table), list.join(", ")));
    descriptions.collect::<Vec<_>>().join("; ")
}

/// Breaks the text into lines of at most `width` columns, at spaces that are not [`unbroken`]. Each line starts with
/// `indent`.
pub(crate) fn wrap(text: &str, indent: &str, width: Option<u16>) -> String {
    let width = width.map_or(usize::MAX, usize::from);
    let mut out = String::new();
    let mut line = indent.to_owned();
    for word in text.split(' ') {
        let is_first = line.len() == indent.len();
        if !is_first && line.width() + 1 + word.width() > width {
            out.push_str(&line);
            out.push('\n');
            line = format!("{indent}{word}");
        } else {
            line.push_str(if is_first { "" } else { " " });
            line.push_str(word);
        }
    }
    (out + &line).replace('\u{a0}', " ")
}
