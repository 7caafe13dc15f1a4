//! What stands around the tables: host, method, observer and absences, in words.

use record::{Absence, Run, Table, Value};
use serde_json::Value as Json;
use unicode_width::UnicodeWidthStr;

use crate::escape::{lines, plain};
use crate::human;
use crate::noise;

/// `handlers on live, 2026-11-21T07:50:41Z`
pub(crate) fn title(run: &Run) -> String {
    let second = run.started_utc.split_once('.').map(|(second, _)| format!("{second}Z"));
    let started = second.unwrap_or_else(|| run.started_utc.clone());
    plain(&format!("{} on {}, {started}", run.experiment, run.bench))
}

/// The machine, as far as it is known: `AMD EPYC (family 26, model 2), guest of KVM, ...`
pub(crate) fn host(run: &Run) -> String {
    let text = |key: &str| run.host.get(key).and_then(Json::as_str).filter(|text| !text.is_empty());
    let count = |key: &str| run.host.get(key).and_then(Json::as_u64);
    let numbers = count("cpu_family").zip(count("cpu_model_number"));
    let model = numbers.map(|(family, model)| format!(" (family {family}, model {model})"));
    let kernel = text("kernel").map(|kernel| format!("Linux {kernel}"));
    let guest = match run.host.get("virtualized").and_then(Json::as_bool) {
        Some(true) => Some(format!("guest of {}", text("hypervisor").unwrap_or("a hypervisor"))),
        Some(false) => Some("not virtual".to_owned()),
        None => None,
    };
    let pmu = match run.host.get("pmu").and_then(Json::as_bool) {
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
    let parts = parts.into_iter().flatten().map(|part| plain(part.trim_end()));
    parts.collect::<Vec<_>>().join("; ")
}

/// How the numbers of the table were had; empty for a table that has no method of its own.
pub(crate) fn method(run: &Run, table: &Table) -> String {
    if table.name == "noise" {
        return noise::method(run);
    }
    if table.name == "footprint" {
        return footprint(run);
    }
    if table.name != "handlers" {
        return String::new();
    }
    let setting = |key: &str| run.settings.get(key).and_then(Json::as_str).map(plain);
    let inside = run.observer.get("inside_ns_per_span").and_then(Json::as_f64);
    let error = run.settings.get("histogram_error_max_ratio").and_then(Json::as_f64);
    let parts = [
        setting("attachment").map(|how| format!("{how} probes at entry and exit")),
        setting("cpus").map(|cpus| format!("CPUs {cpus}")),
        setting("clock"),
        intervals(table),
        // A bench without probes has nothing to subtract.
        inside.filter(|_| setting("attachment").is_some()).map(|time| {
            let time = unbroken(&human::ns(time));
            format!("{time}, or what it is in place, subtracted from each span for the probes")
        }),
        error.map(|error| {
            format!("quantiles within {}, max and total exact", unbroken(&human::percent(error)))
        }),
    ];
    let parts: Vec<String> = parts.into_iter().flatten().collect();
    if parts.is_empty() {
        return String::new();
    }
    format!("method: {} bench; {}", plain(&run.bench), parts.join("; "))
}

/// Of displaced lines: the clock, the window, and what is told without counters.
fn footprint(run: &Run) -> String {
    let number = |key: &str| run.settings.get(key).and_then(Json::as_f64);
    let ns = |key: &str| number(key).map(|time| unbroken(&human::ns(time)));
    let parts = [
        number("cpu").map(|cpu| format!("loop on CPU {}", human::number(cpu))),
        ns("clock_step_ns").map(|step| format!("clock in steps of {step}")),
        ns("window_ns").map(|window| format!("windows of at least {window} behind a tick")),
        Some("lines by a curve measured in this run (table curves)".to_owned()),
        Some(match run.settings.get("rounds").and_then(Json::as_u64) {
            Some(rounds) if rounds > 3 => format!(
                "intervals: by the means of {rounds} rounds, each with all of it made anew, with the \
                 interrupt beyond idle"
            ),
            _ => {
                "intervals: Welch's, repetitions as if independent, with the interrupt beyond idle"
                    .to_owned()
            }
        }),
    ];
    let parts: Vec<String> = parts.into_iter().flatten().collect();
    format!("method: {} bench; {}", plain(&run.bench), parts.join("; "))
}

/// By which methods the intervals of the means were had.
fn intervals(table: &Table) -> Option<String> {
    let column = table.column("interval_method")?;
    let has = |method: &str| {
        let mut cells = table.rows().iter().map(|row| &row[column]);
        cells.any(|cell| matches!(cell, Value::Text(text) if text == method))
    };
    let how = match (has("batch-means"), has("independent")) {
        (true, true) => "by batch means, and as if independent where spans are few",
        (true, false) => "by batch means",
        (false, true) => "as if spans were independent",
        (false, false) => return None,
    };
    Some(format!("± half of the mean's 95\u{a0}% interval over N = count spans, {how}"))
}

/// The text as one word of a command line.
pub(crate) fn shell_word(text: &str) -> String {
    let text = plain(text);
    let is_safe = |c: char| c.is_alphanumeric() || "/._-+,:@%".contains(c);
    if !text.is_empty() && text.chars().all(is_safe) {
        return text;
    }
    format!("'{}'", text.replace('\'', "'\\''"))
}

/// The warnings, first of all whether the run was cut short.
pub(crate) fn warnings(run: &Run) -> Vec<String> {
    let cut = "the run was cut short: the tables hold what was measured until then";
    let cut = (!run.complete).then(|| cut.to_owned());
    cut.into_iter().chain(run.warnings.iter().map(|warning| plain(warning))).collect()
}

/// Stands where [`wrap`] must not break: between a number and its unit, within a command.
pub(crate) fn unbroken(text: &str) -> String {
    text.replace(' ', "\u{a0}")
}

/// What the measurement cost and lost; empty when nothing of it is known.
pub(crate) fn observer(run: &Run) -> String {
    let ns = |time| unbroken(&human::ns(time));
    let percent = |share| unbroken(&human::percent(share));
    let number = |key: &str| run.observer.get(key).and_then(Json::as_f64);
    let count = |key: &str| run.observer.get(key).and_then(Json::as_u64);
    let parts = [
        number("added_ns_per_span").map(|time| format!("{} added per span", ns(time))),
        number("inside_ns_per_span")
            .map(|time| format!("{} per span inside the measured time", ns(time))),
        count("events").map(|events| format!("{} events", human::count(events))),
        number("events_per_second").map(|rate| unbroken(&human::rate(rate))),
        number("cpu_share_ratio").map(|share| format!("{} of CPU time", percent(share))),
        number("user_cpu_share_ratio")
            .map(|share| format!("{} of CPU time in user space", percent(share))),
        count("events_lost").map(|lost| match lost {
            0 => "no events lost".to_owned(),
            1 => "1 event LOST".to_owned(),
            _ => format!("{} events LOST", human::count(lost)),
        }),
    ];
    let parts = parts.into_iter().flatten().chain(noise::observer(run));
    parts.collect::<Vec<_>>().join("; ")
}

/// Absences with the same reason and remedy.
pub(crate) struct Missing {
    /// `handlers: instructions, cycles; noise: causes`
    pub what: String,
    /// May have several lines.
    pub reason: String,
    pub remedy: Option<String>,
}

/// The absences, grouped by reason and remedy, in the order of their first.
pub(crate) fn missing(run: &Run) -> Vec<Missing> {
    let mut groups: Vec<Vec<&Absence>> = Vec::new();
    for absence in &run.absent {
        let same =
            |first: &&Absence| first.reason == absence.reason && first.remedy == absence.remedy;
        match groups.iter_mut().find(|group| group.first().is_some_and(same)) {
            Some(group) => group.push(absence),
            None => groups.push(vec![absence]),
        }
    }
    let words = |group: &Vec<&Absence>| {
        let first = group.first()?;
        let remedy = first.remedy.as_deref().map(plain);
        Some(Missing { what: what(group), reason: lines(&first.reason), remedy })
    };
    groups.iter().filter_map(words).collect()
}

fn what(group: &[&Absence]) -> String {
    let mut tables: Vec<(&str, Vec<String>)> = Vec::new();
    for absence in group {
        let what = plain(&absence.what);
        match tables.iter_mut().find(|(table, _)| *table == absence.table) {
            Some((_, list)) => list.push(what),
            None => tables.push((&absence.table, vec![what])),
        }
    }
    let words = tables.iter().map(|(table, list)| format!("{}: {}", plain(table), list.join(", ")));
    words.collect::<Vec<_>>().join("; ")
}

/// The text in lines of at most `width`, broken at spaces that are not [`unbroken`], each after
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
