//! Makes the run of `noise collective` from the ranks' samples.

use record::{Absence, Run, SCHEMA, keys};
use serde_json::{Map, Value as Json, json};

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
    warnings.extend(own_warnings(ranks, &steps));
    let comparisons = comparisons.unwrap_or_default();
    let mut tables = vec![
        tables::collectives(ranks, &steps, job, measured),
        tables::causes(ranks, &steps),
        tables::longest(ranks, &steps, job.longest),
        tables::ranks(ranks, &steps),
        tables::model(&comparisons),
        tables::longest_parts(ranks, &steps, job.longest),
    ];
    tables.retain(|table| !table.rows().is_empty());
    let lost = |count: fn(&Rank) -> u64| ranks.iter().map(count).sum::<u64>();
    let lost_count =
        lost(|rank| rank.sample.lost_detours).saturating_add(lost(|rank| rank.sample.lost_events));
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

/// Whether another rank runs on the same CPU of the same host.
fn shares_cpu(ranks: &[Rank], number: usize) -> bool {
    let host_and_cpu = |rank: &Rank| (rank.sample.host.clone(), rank.sample.cpu);
    let shared = host_and_cpu(&ranks[number]);
    ranks.iter().enumerate().any(|(other, rank)| other != number && host_and_cpu(rank) == shared)
}

#[cfg(test)]
mod tests {
    use super::super::steps::tests::two_ranks;
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
}
