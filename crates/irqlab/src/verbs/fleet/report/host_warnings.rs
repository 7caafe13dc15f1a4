//! Caveats in the runs of the hosts: warnings, lost events, and an early end. The report has one
//! line for each kind of warning, with its hosts.

use ::fleet::HostState;
use record::{Absence, Run, keys};
use report::human;

use super::Host;
use super::metric::Metric;
use super::tables::listed;

/// Number of kinds of warnings that the report prints. Table `hosts` has the number of warnings of each host.
const KINDS_MAX: usize = 20;

/// The reasons that a run itself gives to doubt its figures.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Caveats {
    pub warnings: Vec<String>,
    /// `None` if the run does not say.
    pub events_lost_count: Option<u64>,
    /// Whether the run ended before its time, or a CPU went offline.
    pub ended_early: bool,
    /// Absent parts of the metrics' tables.
    absent: Vec<Absence>,
}

impl Caveats {
    pub fn of_run(run: &Run, metrics: &[Metric]) -> Caveats {
        let concerns = |absence: &&Absence| metrics.iter().any(|metric| metric.lacks(run, absence));
        Caveats {
            warnings: run.warnings.clone(),
            events_lost_count: run
                .observer
                .get(keys::EVENTS_LOST_COUNT)
                .and_then(serde_json::Value::as_u64),
            ended_early: !run.complete,
            absent: run.absent.iter().filter(concerns).cloned().collect(),
        }
    }

    pub fn count(&self) -> usize {
        let has_lost_events = self.events_lost_count.is_some_and(|count| count > 0);
        self.warnings.len() + usize::from(has_lost_events) + usize::from(self.ended_early)
    }
}

/// The lines of the report about the runs of its hosts.
pub fn lines(hosts: &[Host]) -> Vec<String> {
    let mut lines = Vec::new();
    let early = names(hosts, |caveats| caveats.ended_early);
    if !early.is_empty() {
        lines.push(format!(
            "{}: incomplete: the run ended early, or a CPU went offline; the figures describe the time before that",
            listed(&early)
        ));
    }
    let with_lost_events: Vec<String> = hosts
        .iter()
        .filter_map(|host| {
            let count = host.caveats.events_lost_count.filter(|count| *count > 0)?;
            Some(format!("{} ({})", host.record.host, human::count(count)))
        })
        .collect();
    if !with_lost_events.is_empty() {
        lines.push(format!(
            "events were lost on {}: counts, times and shares of CPU time there are too low",
            listed(&with_lost_events)
        ));
    }
    let mut kinds: Vec<(String, &str, Vec<&str>)> = Vec::new();
    for host in hosts {
        for text in &host.caveats.warnings {
            let (shape, name) = (shape(text), host.record.host.as_str());
            match kinds.iter_mut().find(|(known, ..)| *known == shape) {
                Some((_, _, names)) if names.last() != Some(&name) => names.push(name),
                Some(_) => {}
                None => kinds.push((shape, text, vec![name])),
            }
        }
    }
    lines.extend(kinds.iter().take(KINDS_MAX).map(|(_, text, names)| match names[..] {
        [only] => format!("{only}: {text}"),
        _ => format!("{} hosts ({}), on the first: {text}", names.len(), listed(names)),
    }));
    if let more @ 1.. = kinds.len().saturating_sub(KINDS_MAX) {
        lines.push(format!(
            "{more} more kinds of warnings: table hosts has the number of warnings of each host, and irqlab show DIR/HOST/run the text"
        ));
    }
    lines
}

/// The absent parts of the metrics' tables, each with its hosts.
pub fn absences(hosts: &[Host]) -> Vec<Absence> {
    let mut absences: Vec<(&Absence, Vec<&str>)> = Vec::new();
    for host in hosts.iter().filter(|host| host.record.state == HostState::Done) {
        for absence in &host.caveats.absent {
            let name = host.record.host.as_str();
            match absences.iter_mut().find(|(known, _)| *known == absence) {
                // A run may have the same absence for several conditions.
                Some((_, names)) if names.last() == Some(&name) => {}
                Some((_, names)) => names.push(name),
                None => absences.push((absence, vec![name])),
            }
        }
    }
    let done_count = hosts.iter().filter(|host| host.record.state == HostState::Done).count();
    let with_hosts = absences.iter().take(KINDS_MAX).map(|(absence, names)| {
        // An absence on all hosts needs no names.
        let what = if names.len() == done_count {
            absence.what.clone()
        } else {
            format!("{} on {}", absence.what, listed(names))
        };
        Absence::new(absence.table.clone(), what, absence.reason.clone())
    });
    with_hosts.collect()
}

fn names(hosts: &[Host], has_caveat: impl Fn(&Caveats) -> bool) -> Vec<&str> {
    let found = hosts.iter().filter(|host| has_caveat(&host.caveats));
    found.map(|host| host.record.host.as_str()).collect()
}

/// Replaces each number by `#`. Warnings that differ only in their numbers are one kind.
fn shape(text: &str) -> String {
    let mut shape = String::new();
    for character in text.chars() {
        match character {
            '0'..='9' | '.' | ',' if shape.ends_with('#') => {}
            '0'..='9' => shape.push('#'),
            character => shape.push(character),
        }
    }
    shape
}

#[cfg(test)]
mod tests {
    use super::super::tests::{host, run_of_table};
    use super::*;

    fn host_with(name: &str, warnings: &[&str]) -> Host {
        let mut host = host(name);
        host.caveats.warnings = warnings.iter().map(|text| (*text).to_owned()).collect();
        host
    }

    #[test]
    fn a_lossy_and_a_loaded_host_are_named() {
        let lower_bounds = "all figures are lower bounds";
        let mut hosts = vec![
            host_with("h0", &[]),
            host_with("h1", &["CPU 2: busy for 12.5 % of the window"]),
            host_with("h2", &["CPU 3: busy for 9 % of the window", lower_bounds]),
            host_with("h3", &[lower_bounds]),
        ];
        hosts[3].caveats.events_lost_count = Some(5_000_000);
        hosts[0].caveats.ended_early = true;
        hosts[0].caveats.events_lost_count = Some(0);
        let found = lines(&hosts);
        assert!(found[0].starts_with("h0: incomplete"), "{found:?}");
        assert!(found[1].starts_with("events were lost on h3 (5,000,000): "), "{found:?}");
        assert_eq!(
            found[2..],
            [
                "2 hosts (h1, h2), on the first: CPU 2: busy for 12.5 % of the window",
                "2 hosts (h2, h3), on the first: all figures are lower bounds"
            ]
        );
        let counts = hosts.iter().map(|host| host.caveats.count());
        assert_eq!(counts.collect::<Vec<_>>(), [1, 1, 2, 2]);
        assert!(lines(&[host("h0")]).is_empty());
    }

    #[test]
    fn many_kinds_of_warnings_are_counted() {
        let texts: Vec<String> = ('a'..='z').map(|letter| format!("warning {letter}")).collect();
        let texts: Vec<&str> = texts.iter().map(String::as_str).collect();
        let found = lines(&[host_with("h0", &texts)]);
        assert_eq!(found.len(), KINDS_MAX + 1);
        assert!(found[KINDS_MAX].starts_with("6 more kinds of warnings"), "{found:?}");
    }

    #[test]
    fn the_caveats_of_a_run_are_those_of_its_metrics() {
        let mut run = run_of_table();
        run.warnings.push("busy".to_owned());
        run.observer.insert(keys::EVENTS_LOST_COUNT.to_owned(), 7.into());
        for (table, what) in [("handlers", "disk"), ("handlers", "name"), ("other", "disk")] {
            run.absent.push(Absence::new(table, what, "no room"));
        }
        let metric: Metric = "sum:handlers.self_cpu_ratio".parse().unwrap();
        let mut h0 = host("h0");
        h0.caveats = Caveats::of_run(&run, &[metric]);
        assert_eq!((h0.caveats.count(), h0.caveats.events_lost_count), (2, Some(7)));
        let found = absences(&[h0, host("h1")]);
        assert_eq!(found, [Absence::new("handlers", "disk on h0", "no room")]);
    }
}
