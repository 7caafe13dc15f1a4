//! Makes the run of `noise collective` from the ranks' samples.

use record::{Absence, Run, SCHEMA, keys};
use serde_json::{Map, Value as Json, json};

use super::causes::LostTime;
use super::sample::{Operation, Rank};
use super::steps::{Steps, find};
use super::{model, tables};

/// Description of the job.
#[derive(Clone, Debug)]
pub struct Job {
    pub operation: Operation,
    /// How the ranks exchange messages, in words, such as `tcp`.
    pub transport: String,
    /// How many of the longest steps are listed.
    pub longest: usize,
}

/// Makes the run: `host` and `settings` are the caller's. `warnings` come before the run's own.
///
/// Fails with the reason if the samples are no job of at least two ranks and two steps.
pub fn run(
    ranks: &[Rank],
    job: &Job,
    started_utc: String,
    host: Map<String, Json>,
    mut settings: Map<String, Json>,
    mut warnings: Vec<String>,
) -> Result<Run, String> {
    let steps = find(ranks).ok_or("a job needs at least two ranks and two steps")?;
    let comparisons = model::compare(ranks, &steps);
    let measured = model::measured(&steps);
    settings.insert("operation".into(), json!(job.operation.word()));
    settings.insert("transport".into(), json!(job.transport));
    settings.insert("rank_count".into(), json!(ranks.len()));
    settings.insert("step_count".into(), json!(steps.steps.len()));
    let mut absent = absences(ranks);
    if let Err(reason) = &comparisons {
        absent.push(Absence::new("collective_model", "the prediction of noise scale", reason));
    }
    let lost = LostTime::find(ranks, &steps);
    if let Some(reason) = lost.reason_without_shares() {
        absent.push(Absence::new("collective_causes", "lost_ratio", reason));
    }
    warnings.extend(own_warnings(ranks, &steps));
    let comparisons = comparisons.unwrap_or_default();
    let mut tables = vec![
        tables::collectives(ranks, &steps, job, measured),
        lost.table(),
        tables::longest(ranks, &steps, job.longest),
        tables::ranks(ranks, &steps),
        tables::model(&comparisons),
        tables::longest_parts(ranks, &steps, job.longest),
    ];
    tables.retain(|table| !table.rows().is_empty());
    let sum = |count: fn(&Rank) -> u64| ranks.iter().map(count).sum::<u64>();
    let lost_count =
        sum(|rank| rank.sample.lost_detours).saturating_add(sum(|rank| rank.sample.lost_events));
    let observer = Map::from_iter([(keys::EVENTS_LOST_COUNT.to_owned(), json!(lost_count))]);
    Ok(Run {
        schema: SCHEMA.to_owned(),
        experiment: "collective".to_owned(),
        bench: "live".to_owned(),
        started_utc,
        complete: true,
        host,
        settings,
        observer,
        warnings,
        absent,
        tables,
    })
}

/// The causes that ranks could not see, one entry for each reason: ranks without kernel events, and contexts whose events
/// a kernel does not report.
fn absences(ranks: &[Rank]) -> Vec<Absence> {
    let mut reasons: Vec<(&str, &str, Vec<usize>)> = Vec::new();
    for (number, rank) in ranks.iter().enumerate() {
        let untraced =
            rank.sample.untraced.as_deref().map(|reason| ("causes of the detours", reason));
        let unseen = rank.sample.unseen_contexts.iter();
        let unseen = unseen.map(|(context, reason)| (context.as_str(), reason.as_str()));
        for (subject, reason) in untraced.into_iter().chain(unseen) {
            match reasons.iter_mut().find(|(what, why, _)| (*what, *why) == (subject, reason)) {
                Some((_, _, numbers)) => numbers.push(number),
                None => reasons.push((subject, reason, vec![number])),
            }
        }
    }
    let absence = |(subject, reason, numbers): (&str, &str, Vec<usize>)| {
        let subject = format!("{subject} of {}", listed(&numbers));
        Absence::new("collective_causes", subject, reason)
    };
    reasons.into_iter().map(absence).collect()
}

/// Ranks in words, as in `ranks 0, 1`. At most eight are named.
fn listed(numbers: &[usize]) -> String {
    const NAMED_MAX: usize = 8;
    let named: Vec<String> = numbers.iter().take(NAMED_MAX).map(ToString::to_string).collect();
    let others = match numbers.len().saturating_sub(NAMED_MAX) {
        0 => String::new(),
        count => format!(" and {count} others"),
    };
    let noun = if numbers.len() == 1 { "rank" } else { "ranks" };
    format!("{noun} {}{others}", named.join(", "))
}

fn own_warnings(ranks: &[Rank], steps: &Steps) -> Vec<String> {
    let mut warnings = Vec::new();
    let on_one_cpu: Vec<usize> =
        (0..ranks.len()).filter(|number| shares_cpu(ranks, *number)).collect();
    if !on_one_cpu.is_empty() {
        warnings.push(format!(
            "{} share CPUs with other ranks: they wait for each other's time slices, so the times say nothing about noise \
             (start at most one rank for each CPU, and bind each rank to a core: mpirun --bind-to core, srun --cpu-bind=cores)",
            listed(&on_one_cpu)
        ));
    }
    if steps.impossible_count > 0 {
        warnings.push(format!(
            "in {} of {} collectives a rank seems to have left before the last rank arrived: a clock jumped or did not \
             drift evenly, so the ranks' lateness is wrong",
            steps.impossible_count,
            steps.steps.len() + 1
        ));
    }
    warnings.extend(undisturbed_warning(ranks, steps));
    for (number, rank) in ranks.iter().enumerate() {
        let sample = &rank.sample;
        for (count, noun) in
            [(sample.lost_detours, "detours"), (sample.lost_events, "kernel events")]
        {
            if count > 0 {
                warnings.push(format!("rank {number} lost {count} {noun}, which are in no figure"));
            }
        }
        let of_rank = |warning: &String| format!("rank {number} ({}): {warning}", sample.host);
        warnings.extend(sample.warnings.iter().map(of_rank));
    }
    warnings
}

/// The undisturbed time may exceed computation and bare collective by this part without a warning.
const UNDISTURBED_EXCESS_MAX: f64 = 0.1;

/// Warns of an undisturbed time that is longer than computation and bare collective together. No slowdown and no
/// cause contains the excess.
fn undisturbed_warning(ranks: &[Rank], steps: &Steps) -> Option<String> {
    let bare_step_ns = steps.granularity_ns() + ranks.first()?.sample.bare_latency_ns as f64;
    let excess = steps.undisturbed_ns / bare_step_ns - 1.0;
    (excess > UNDISTURBED_EXCESS_MAX).then(|| {
        format!(
            "the undisturbed time of a step is {:.1} us, {:.0} % more than a computation and the bare collective ({:.1} us): \
             something without a cause delays most steps, and neither the slowdowns nor the lost time contain it",
            steps.undisturbed_ns / 1e3,
            excess * 100.0,
            bare_step_ns / 1e3
        )
    })
}

/// Whether another rank runs on the same CPU of the same host.
fn shares_cpu(ranks: &[Rank], number: usize) -> bool {
    let host_and_cpu = |rank: &Rank| (rank.sample.host.clone(), rank.sample.cpu);
    let shared = host_and_cpu(&ranks[number]);
    ranks.iter().enumerate().any(|(other, rank)| other != number && host_and_cpu(rank) == shared)
}

#[cfg(test)]
mod tests {
    use super::super::sample::Interruption;
    use super::super::steps::tests::{cause, two_ranks};
    use super::*;

    fn job() -> Job {
        Job { operation: Operation::Barrier, transport: "tcp".to_owned(), longest: 2 }
    }

    fn run_of(ranks: &[Rank]) -> Run {
        run(ranks, &job(), String::new(), Map::new(), Map::new(), Vec::new()).unwrap()
    }

    #[test]
    fn the_causes_add_up_to_the_time_that_was_lost() {
        let run = run_of(&two_ranks());
        let table = run.table("collective_causes").unwrap();
        let total_ns =
            |row: &Vec<record::Value>| table.get(row, "total_ns").unwrap().number().unwrap();
        let sum_ns: f64 = table.rows().iter().map(total_ns).sum();
        // Three steps of 1,110, 1,410 and 1,150 ns, of 1,110 ns each without detours.
        assert_eq!(sum_ns, 340.0);
        let shares: f64 = table
            .rows()
            .iter()
            .map(|row| table.get(row, "lost_ratio").unwrap().number().unwrap())
            .sum();
        assert!((shares - 1.0).abs() < 1e-9);
    }

    #[test]
    fn the_longest_step_names_rank_host_cpu_and_cause() {
        let run = run_of(&two_ranks());
        let table = run.table("collective_longest").unwrap();
        let first = &table.rows()[0];
        let text = |column: &str| format!("{:?}", table.get(first, column).unwrap());
        assert!(text("host").contains("\"b\"") && text("largest_name").contains("make"));
        let number = |column: &str| table.get(first, column).unwrap().number().unwrap();
        assert_eq!((number("rank"), number("cpu"), number("step")), (1.0, 1.0, 2.0));
        assert_eq!((number("length_ns"), number("largest_ns")), (1_410.0, 250.0));
        // 300 ns more than the undisturbed step, and the kernel's events explain 250 ns.
        assert_eq!((number("attributed_ns"), number("remainder_ns")), (250.0, 50.0));
        assert_eq!(table.rows().len(), 2);
    }

    #[test]
    fn ranks_without_causes_are_listed_with_the_reason() {
        let mut ranks = two_ranks();
        ranks.iter_mut().for_each(|rank| rank.sample.untraced = Some("no rights".to_owned()));
        ranks[1].sample.lost_detours = 3;
        ranks[1].sample.unseen_contexts = vec![("vector x".to_owned(), "no tracepoint".to_owned())];
        let run = run_of(&ranks);
        assert!(run.absent.iter().any(|absence| {
            absence.what == "causes of the detours of ranks 0, 1" && absence.reason == "no rights"
        }));
        assert!(run.absent.iter().any(|absence| absence.what == "vector x of rank 1"));
        assert!(run.warnings.iter().any(|warning| warning.starts_with("rank 1 lost 3 detours")));
    }

    #[test]
    fn ranks_that_share_a_cpu_are_warned_about() {
        let mut ranks = two_ranks();
        assert!(!run_of(&ranks).warnings.iter().any(|warning| warning.contains("share CPUs")));
        ranks[1].sample.host = "a".to_owned();
        ranks[1].sample.cpu = 0;
        assert!(
            run_of(&ranks).warnings.iter().any(|warning| warning.contains("ranks 0, 1 share CPUs"))
        );
    }

    /// The tables that compare and export know rows by their keys.
    #[test]
    fn a_step_has_each_cause_once() {
        let mut ranks = two_ranks();
        let sample = &mut ranks[1].sample;
        sample.causes.push(cause(true, "task", "gcc"));
        let detour = |at_ns: u64, cause: u16, length_ns: u64| Interruption {
            start_ns: 10_000_000_000 + at_ns,
            in_collective: false,
            parts: vec![(cause, length_ns)],
        };
        // Task make has 40 ns in the collective, too.
        sample.interruptions.extend([detour(4_000, 0, 100), detour(4_200, 2, 120)]);
        let run = run_of(&ranks);
        let longest = run.table("collective_longest").unwrap();
        let row = &longest.rows()[1];
        let cell = |column: &str| longest.get(row, column).cloned().unwrap();
        assert_eq!((cell("step"), cell("largest_name")), (3_u64.into(), "make".into()));
        assert_eq!((cell("largest_ns"), cell("attributed_ns")), (140_u64.into(), 260_u64.into()));
        let parts = run.table("collective_longest_parts").unwrap();
        let key = |row: &Vec<record::Value>| {
            ["position", "kind", "name"].map(|name| format!("{:?}", parts.get(row, name).unwrap()))
        };
        let mut keys: Vec<[String; 3]> = parts.rows().iter().map(key).collect();
        let count = keys.len();
        keys.sort_unstable();
        keys.dedup();
        assert_eq!((keys.len(), count), (4, 4));
    }

    /// Without kernel events, nobody sees what a rank waits for in each collective.
    #[test]
    fn an_undisturbed_time_with_unseen_delays_is_warned_about() {
        let is_warned = |ranks: &[Rank]| {
            run_of(ranks).warnings.iter().any(|warning| warning.contains("delays most steps"))
        };
        let mut ranks = two_ranks();
        assert!(!is_warned(&ranks));
        for rank in &mut ranks {
            for (times, number) in rank.sample.times.iter_mut().zip(0..) {
                let delay_ns = 500 * number;
                times.start_ns += delay_ns;
                times.arrival_ns += delay_ns;
                times.leave_ns += delay_ns + 500;
            }
            rank.sample.interruptions.clear();
        }
        assert!(is_warned(&ranks));
    }
}
