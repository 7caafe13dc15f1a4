//! The main result of a run for the head of its page, in two sentences. The first names the largest cost and its
//! cause, the second a change that would reduce it. Each experiment has a function here, because only it knows which
//! column answers its question.

use record::{Run, Table, Value, keys};

use crate::displaced::{AT_MOST, displaced, displaced_bound, most_displaced};
use crate::escape::plain;
use crate::grid::Grid;
use crate::human::{self, Quantity};
use crate::late_cause::{Class, LargestPart, time_ns};
use crate::picture::{largest_function_of, wait_of};
use crate::row::{Row, possible_extremes};
use crate::schemes::{self, comparable_rows, figure, is_contaminated};
use crate::winner::{Extreme, Figure};

/// The main result of a run.
pub struct Answer {
    /// A sentence with the largest cost and its cause.
    pub fact: String,
    /// A sentence about a change that would reduce this cost, computed from the run's numbers. `None` if none is known.
    pub lever: Option<String>,
    /// Name of the table with the numbers.
    pub table: Option<String>,
}

/// The main result of a run. For an unknown experiment, or without the needed columns, it is the first headline.
pub fn summarize(run: &Run) -> Answer {
    let answer = findings(run).or_else(|| match run.experiment.as_str() {
        "handlers" => handlers(run),
        "noise" => noise(run),
        "footprint" => footprint(run),
        "services" => services(run),
        "wakeup" => wakeup(run),
        "signal" | "signal-model" => signal(run),
        "scale" => scale(run),
        _ => None,
    });
    answer.unwrap_or_else(|| by_headline(run))
}

/// How many claims of a paper agree with it, and the first that disagrees. `None` for a run that reproduces no paper.
fn findings(run: &Run) -> Option<Answer> {
    let table = run.table("findings").filter(|table| table.column("agreement").is_some())?;
    let rows_with = |agreement: &'static str| {
        rows(table).filter(move |row| row.has_text("agreement", agreement))
    };
    let [agree, disagree, unknown] =
        ["agrees", "disagrees", "can't tell"].map(|agreement| rows_with(agreement).count());
    let claim_count = agree + disagree + unknown;
    if claim_count == 0 {
        return None;
    }
    let example = rows_with("disagrees").next().map(|row| {
        let evidence = row.value_text("evidence");
        format!(
            " (the first: {}, {}: {evidence})",
            row.value_text("finding"),
            row.value_text("claim")
        )
    });
    let verb = if disagree == 1 { "disagrees" } else { "disagree" };
    let fact = format!(
        "{agree} of {claim_count} claims agree with the paper, {disagree} {verb}{}, {unknown} cannot be decided.",
        example.unwrap_or_default()
    );
    let has_reason = |row: &Row<'_>| matches!(row.get("reason"), Value::Text(_));
    let reason = rows_with("can't tell").find(has_reason).map(|row| row.value_text("reason"));
    let lever = reason.map(|reason| {
        format!("The first reason why a claim cannot be decided: {}.", reason.trim_end_matches('.'))
    });
    Some(Answer { fact, lever, table: Some("findings".to_owned()) })
}

/// The headline of the first table that has one.
fn by_headline(run: &Run) -> Answer {
    let first_headline = run.tables.iter().find_map(|table| {
        let grid = Grid::new(table, false);
        let headline = grid.groups.into_iter().find_map(|group| group.headline)?;
        Some((headline, table.name.clone()))
    });
    match first_headline {
        Some((headline, table)) => {
            Answer { fact: sentence(&headline), lever: None, table: Some(plain(&table)) }
        }
        None => Answer {
            fact: "No single figure answers for this run; its tables are below.".to_owned(),
            lever: None,
            table: None,
        },
    }
}

/// The text with a capital and a full stop.
fn sentence(text: &str) -> String {
    let mut characters = text.chars();
    let capital =
        characters.next().map(|letter| letter.to_uppercase().to_string()).unwrap_or_default();
    format!("{capital}{}.", characters.as_str())
}

fn rows(table: &Table) -> impl Iterator<Item = Row<'_>> {
    table.rows().iter().map(move |values| Row::new(table, values))
}

/// The row with the largest number in a column, or `None` if no row has a number there.
fn largest<'r>(rows: impl Iterator<Item = Row<'r>>, column: &str) -> Option<Row<'r>> {
    let rows_with_number = rows.filter_map(|row| Some((row.number(column)?, row)));
    rows_with_number
        .max_by(|(number, _), (other_number, _)| number.total_cmp(other_number))
        .map(|(_, row)| row)
}

/// The context that takes most CPU time, and the gain from a shorter mean or a lower rate. `None` if no context
/// has a share of CPU time.
fn handlers(run: &Run) -> Option<Answer> {
    let table = run.table("handlers")?;
    let sums = rows(table).filter(|row| row.has_text("cpu", "all"));
    let row = largest(sums, "self_cpu_ratio")?;
    let share = row.number("self_cpu_ratio")?;
    let (mean_ns, rate_hz) = (row.number("self_mean_ns")?, row.number("rate_hz")?);
    let name = context(&row);
    let rows_of_condition = rows(table).filter(|candidate| {
        candidate.has_text("cpu", "all") && candidate.get("condition") == row.get("condition")
    });
    // A share without an interval is no more than ten times as large: even a single span says that much.
    let lowest = share - row.number("self_cpu_ci95_ratio").unwrap_or(share);
    let may_be_larger = |candidate: &Row<'_>| {
        candidate.number("self_cpu_ci95_ratio").is_some()
            || candidate.number("self_cpu_ratio").is_some_and(|share| share * 10.0 >= lowest)
    };
    let candidates = rows_of_condition.filter(may_be_larger);
    let possible_maxima = possible_extremes(candidates, Extreme::Largest, share_of_cpu);
    let rivals_sentence = rivals(&possible_maxima, share_of_cpu, context);
    let predicate = if rivals_sentence.is_some() { "has the largest share" } else { "costs most" };
    let rivals_sentence = rivals_sentence.unwrap_or_default();
    let function =
        largest_function_of(table, &row).map_or(String::new(), |text| format!(" {text}."));
    let wait = run.table("delays").and_then(|delays| wait_of(delays, &row));
    let wait = wait.map_or(String::new(), |text| {
        format!(" Half of all runs of {} wait {text}.", row.text_with_prefix("name"))
    });
    let fact = format!(
        "{name} {predicate}: {} of CPU time, because it runs {} times a second for {} each (condition {}).\
         {rivals_sentence}{function}{wait}",
        human::percent(share),
        human::number(rate_hz),
        row.value_text("self_mean_ns"),
        row.value_text("condition"),
    );
    let is_above_limit = mean_ns > 0.0 && row.bound_below_limit("self_mean_ns").is_none();
    let lever = is_above_limit.then(|| {
        // Nobody can take a µs off a mean that is hardly longer.
        let (step, step_ratio) =
            if mean_ns >= 2e3 { ("µs", 1e3 / mean_ns) } else { ("tenth", 0.1) };
        format!(
            "At this rate, each {step} off its mean would give back {} of the CPUs; half the rate, {}.",
            human::percent(share * step_ratio),
            human::percent(share / 2.0)
        )
    });
    Some(Answer { fact, lever, table: Some("handlers".to_owned()) })
}

/// Kind and name of a context.
fn context(row: &Row<'_>) -> String {
    format!("{} {}", row.value_text("kind"), row.text_with_prefix("name"))
}

/// A context's share of CPU time. Runs of older versions have no interval of the share, and a context with few spans has
/// none. `None` for a context without spans.
fn share_of_cpu(row: &Row<'_>) -> Option<Figure> {
    row.number("self_mean_ns")?;
    Some(Figure::with_interval(row.number("self_cpu_ratio")?, row.number("self_cpu_ci95_ratio")))
}

/// A sentence with a leading space about the rows that may have a larger figure than the first row. `None` if there are
/// none. `possible_maxima`: the row with the largest figure, then the others.
fn rivals<'r>(
    possible_maxima: &[Row<'r>],
    figure: impl Fn(&Row<'r>) -> Option<Figure>,
    name: impl Fn(&Row<'r>) -> String,
) -> Option<String> {
    let [largest, rivals @ ..] = possible_maxima else { return None };
    let has_interval = |row: &Row<'r>| figure(row).is_some_and(Figure::has_upper_end);
    if rivals.is_empty() {
        return None;
    }
    if !has_interval(largest) {
        return Some(" The largest figure has no interval, so another may be larger.".to_owned());
    }
    let (measured, unknown): (Vec<Row<'r>>, Vec<Row<'r>>) =
        rivals.iter().partition(|row| has_interval(row));
    let mut sentences = String::new();
    if !measured.is_empty() {
        let names: Vec<String> = measured.iter().map(&name).collect();
        sentences += &format!(" Also within its interval: {}.", names.join(", "));
    }
    match &unknown[..] {
        [] => {}
        [row] => sentences += &format!(" Without an interval: {}.", name(row)),
        several => sentences += &format!(" Without an interval: {} others.", several.len()),
    }
    Some(sentences)
}

/// The CPU whose loop lost most time, the largest cause there, and the loss without this cause.
/// `None` if no loop has a loss.
fn noise(run: &Run) -> Option<Answer> {
    let table = run.table("noise")?;
    let row = largest(rows(table), "lost_ratio")?;
    let (cpu, lost_ratio) = (row.value_text("cpu"), row.number("lost_ratio")?);
    let longest_detour = row.number("detour_max_ns").map(human::ns);
    let longest_detour =
        longest_detour.map_or(String::new(), |time| format!("; the longest detour was {time}"));
    let causes_on_cpu = run
        .table("causes")
        .map(|causes| rows(causes).filter(|row| row.value_text("cpu") == cpu).collect::<Vec<_>>());
    let cause = largest(causes_on_cpu.into_iter().flatten(), "total_ns");
    let named_cause = cause.as_ref().and_then(|cause| {
        // With senders, column `cause` also has their processes and CPUs.
        let column = if matches!(cause.get("cause"), Value::Text(_)) { "cause" } else { "name" };
        let name = format!("{} {}", cause.value_text("kind"), cause.value_text(column));
        Some((name, cause.number("lost_ratio")?, cause.number("rate_hz")?))
    });
    let because = named_cause.as_ref().map_or(String::new(), |(name, cause_ratio, rate)| {
        format!(
            ", {} of that to {name} ({} times a second)",
            human::percent(*cause_ratio),
            human::number(*rate)
        )
    });
    let lever = named_cause.map(|(name, cause_ratio, _)| {
        let kind = cause.map(|row| row.value_text("kind")).unwrap_or_default();
        format!(
            "Without {name}, {} would be left.{}",
            human::percent(lost_ratio * (1.0 - cause_ratio).max(0.0)),
            remedy(&kind, &name)
        )
    });
    Some(Answer {
        fact: format!(
            "CPU {cpu} lost {} of its time{because}{longest_detour}.",
            human::percent(lost_ratio)
        ),
        lever,
        table: Some("noise".to_owned()),
    })
}

/// The kernel setting that keeps a cause of this kind from the CPU, as a sentence with a leading
/// space. Empty if none is known.
fn remedy(kind: &str, name: &str) -> &'static str {
    match kind {
        "vector" if name.contains("timer") && !name.contains(" from ") => {
            " The boot option nohz_full stops the tick of a CPU with one task."
        }
        "irq" => " /proc/irq/NUMBER/smp_affinity moves a device's interrupts to another CPU.",
        "softirq" if has_no_device(name) => "",
        "softirq" => " A softirq runs where its interrupt came: move that interrupt's affinity.",
        "task" => " A cpuset or isolcpus keeps other tasks from the CPU.",
        "hypervisor" | "steal" => " Only the host can change that.",
        _ => "",
    }
}

/// Whether the kernel raises a softirq on the CPU itself, without an interrupt that could move.
fn has_no_device(softirq: &str) -> bool {
    ["TIMER", "HRTIMER", "SCHED", "RCU"].iter().any(|name| softirq.ends_with(name))
}

/// The worst wake-up with its largest part, the p99 of its CPU, and what would shorten the
/// part. `None` without a latest wake-up.
fn wakeup(run: &Run) -> Option<Answer> {
    let candidates = [("worst", "late_ns"), ("wakeup", "late_max_ns")];
    let (table, row, late_ns) = candidates.into_iter().find_map(|(table, column)| {
        let row = largest(rows(run.table(table)?), column)?;
        Some((table, row, time_ns(&row, column)?))
    })?;
    let part = LargestPart::from_row(&row);
    let because = part.as_ref().map_or(String::new(), |part| {
        format!(": {} of it {}", human::ns(part.length_ns), part.circumstance())
    });
    let cpu = row.value_text("cpu");
    let mut cpu_rows = run.table("wakeup").into_iter().flat_map(rows);
    let cpu_row = cpu_rows.find(|cpu_row| cpu_row.get("cpu") == row.get("cpu"));
    let p99_ns = cpu_row.and_then(|row| time_ns(&row, "late_p99_ns"));
    let p99_sentence = p99_ns.map_or(String::new(), |p99_ns| {
        format!(" 99 % of the wake-ups on this CPU were at most {} late.", human::ns(p99_ns))
    });
    // Nothing is known to help against an unknown cause.
    let lever = part.filter(|part| part.kind != "unknown").map(|part| {
        format!(
            "Without this part, the wake-up would have been {} late.{}",
            human::ns((late_ns - part.length_ns).max(0.0)),
            wakeup_remedy(run, &part)
        )
    });
    Some(Answer {
        fact: format!(
            "The worst wake-up was {} late, on CPU {cpu}{because}.{p99_sentence}",
            human::ns(late_ns)
        ),
        lever,
        table: Some(table.to_owned()),
    })
}

/// What shortens a part of a wake-up, as sentences with a leading space. Empty if nothing is known to.
fn wakeup_remedy(run: &Run, part: &LargestPart) -> String {
    let setting = |name: &str| run.settings.get(name);
    let host_fact = |name: &str| run.host.get(name).and_then(serde_json::Value::as_str);
    let is_virtual =
        run.host.get(keys::VIRTUALIZED).and_then(serde_json::Value::as_bool) == Some(true);
    let may_sleep = setting("idle_exit_max_ns").and_then(serde_json::Value::as_u64) != Some(0);
    let mut sentences = String::new();
    match part.class {
        Class::LateTimer | Class::Switch => {
            if part.is_idle() && may_sleep {
                sentences +=
                    " The CPU leaves a shallow idle state sooner: try --idle-exit-max 0us.";
            }
            if part.class == Class::LateTimer && is_virtual {
                sentences += " If the host had the CPU then, only the host can change that.";
            }
        }
        Class::Tasks => {
            let scheduler = setting(keys::SCHEDULER).and_then(serde_json::Value::as_str);
            let is_preemption_limited = host_fact("preemption_built") == Some("PREEMPT_DYNAMIC")
                && matches!(host_fact("preemption"), Some("none" | "voluntary"));
            if scheduler == Some("SCHED_OTHER") {
                sentences +=
                    " A thread of a real-time class (--policy fifo:95) runs before such tasks.";
            } else if is_preemption_limited {
                sentences += " With the boot option preempt=full, a thread need not wait until a task leaves the \
                              kernel.";
            }
            sentences += remedy("task", &part.name);
        }
        // The timer's own interrupt is the usual vector here, and nothing takes it away.
        Class::Interrupts if part.kind != "vector" => sentences += remedy(&part.kind, &part.name),
        Class::Waking if part.kind == "task" => sentences += remedy("task", &part.name),
        Class::Waking | Class::Interrupts | Class::Return | Class::Other => {}
    }
    // In a simulated machine, such a pause does not exist.
    if is_virtual && run.bench == "live" && part.class == Class::Interrupts {
        sentences += " This machine is a guest: if its host pauses it, the pause counts as part of what it interrupts.";
    }
    sentences
}

/// The stimulus that displaces most lines, and the cost of the displaced lines. `None` if no stimulus displaces any.
fn footprint(run: &Run) -> Option<Answer> {
    let table = run.table("footprint")?;
    let possible_maxima = most_displaced(table);
    let row = *possible_maxima.first()?;
    let lines = displaced(&row)?.value;
    let level = row.value_text("level").to_uppercase();
    let share = row.number("displaced_ratio").filter(|ratio| *ratio > 0.0);
    let share = share.map_or(String::new(), |ratio| format!(" ({} of it)", human::percent(ratio)));
    let bound = displaced_bound(&row);
    let stimulus = row.value_text("stimulus");
    let rivals_sentence = rivals(&possible_maxima, displaced, |row| row.value_text("stimulus"));
    let is_most = rivals_sentence.is_none() && bound != AT_MOST;
    let predicate = if is_most { "displaces most:" } else { "displaces" };
    let rivals_sentence = rivals_sentence.unwrap_or_default();
    let lever = row.number("indirect_mean_ns").filter(|time| *time > 0.0).map(|indirect_ns| {
        let stall = row.number("stalled_p50_ns");
        let stall = stall.map_or(String::new(), |stall_ns| {
            format!(", in addition to a stall of {}", human::ns(stall_ns))
        });
        format!(
            "Fetching them again costs the program {} per interrupt{stall}.",
            human::ns(indirect_ns)
        )
    });
    Some(Answer {
        fact: format!(
            "A {stimulus} interrupt {predicate} {bound}{} lines of {level}{share}.{rivals_sentence}",
            human::number(lines.max(0.0))
        ),
        lever,
        table: Some("footprint".to_owned()),
    })
}

/// The service that takes most time, and its time without the larger part of its memory waits. `None`
/// if no service has a time.
fn services(run: &Run) -> Option<Answer> {
    let table = run.table("services")?;
    let is_service = |row: &Row<'_>| {
        !["user", "probes", "idle"].iter().any(|class| row.has_text("class", class))
    };
    let row = largest(rows(table).filter(is_service), "self_total_ns")?;
    let name = format!("{} {}", row.value_text("class"), row.value_text("service"));
    let share = row.number("time_ratio")?;
    let kernel_share = row
        .number("kernel_ratio")
        .map_or(String::new(), |ratio| format!(", {} of the kernel's", human::percent(ratio)));
    // The mean is over the completed requests.
    let requests = row.number("completed_count").zip(row.number("computation_mean_ns"));
    let requests = requests.map_or(String::new(), |(count, mean)| {
        format!(": {} completed requests of {} each", human::count(count as u64), human::ns(mean))
    });
    let cpi = row.number("cpi_ratio").filter(|cpi| *cpi > 0.0);
    let stalls = row.number("fetch_mcpi_ratio").zip(row.number("data_mcpi_ratio"));
    let lever = cpi.zip(stalls).map(|(cpi, (fetch, data))| {
        let (awaited, longer_stall) =
            if fetch > data { ("instructions", fetch) } else { ("data", data) };
        // Without the waits the same work takes less time, so the share refers to a shorter total.
        let shorter = share * (1.0 - longer_stall / cpi).max(0.0);
        let shorter_total = 1.0 - share + shorter;
        let share_of_rest = if shorter_total > 0.0 { shorter / shorter_total } else { 0.0 };
        format!(
            "Without its waits for {awaited} it would take {} of the time.",
            human::percent(share_of_rest)
        )
    });
    let fact = format!(
        "{name} takes most: {} of the time{kernel_share}{requests}.",
        human::percent(share)
    );
    Some(Answer { fact, lever, table: Some("services".to_owned()) })
}

/// The slowdown of the largest job with the shortest work between barriers, and the slowdown without a context, or the
/// work that suffers least. `None` if the table has no slowdown of independent detours.
fn scale(run: &Run) -> Option<Answer> {
    let table = run.table("scale")?;
    let all_independent = || rows(table).filter(|row| row.has_text("detour_times", "independent"));
    let independent = || all_independent().filter(|row| *row.get("without") == Value::Absent);
    let node_count = independent().filter_map(|row| row.number("node_count")).fold(0.0, f64::max);
    let largest_jobs: Vec<Row<'_>> =
        independent().filter(|row| row.number("node_count") == Some(node_count)).collect();
    let granularity = |row: &&Row<'_>| row.number("granularity_ns").unwrap_or(0.0);
    let by_granularity = |a: &&Row<'_>, b: &&Row<'_>| granularity(a).total_cmp(&granularity(b));
    let [shortest, longest] =
        [largest_jobs.iter().min_by(by_granularity)?, largest_jobs.iter().max_by(by_granularity)?];
    let slowdown = |row: &Row<'_>| {
        let ratio = row.number("slowdown_ratio")?;
        let bound = if *row.get("is_lower_bound") == Value::Bool(true) { "at least " } else { "" };
        Some(format!("{bound}{}", human::percent(ratio)))
    };
    let length_texts = [shortest, longest].map(|row| granularity(&row));
    let length_texts = Quantity::Time.distinct_texts(&length_texts);
    let fact = format!(
        "With {} {} and a barrier after each {} of work, these detours slow a job down by {}.",
        human::count(node_count as u64),
        if node_count == 1.0 { "node" } else { "nodes" },
        length_texts[0],
        slowdown(shortest)?
    );
    let sentences_without_context: Vec<String> = all_independent()
        .filter(|row| {
            *row.get("without") != Value::Absent
                && row.get("node_count") == shortest.get("node_count")
        })
        .filter(|row| row.get("granularity_ns") == shortest.get("granularity_ns"))
        .filter_map(|row| {
            Some(format!(
                "Without detours that begin with {}: {}.",
                row.value_text("without"),
                slowdown(&row)?
            ))
        })
        .collect();
    let lever = if sentences_without_context.is_empty() {
        let longest_slowdown =
            slowdown(longest).filter(|_| granularity(&longest) > granularity(&shortest));
        longest_slowdown.map(|slowdown| {
            format!("With {} of work between barriers: {slowdown}.", length_texts[1])
        })
    } else {
        Some(sentences_without_context.join(" "))
    };
    Some(Answer { fact, lever, table: Some("scale".to_owned()) })
}

/// The schemes with the least CPU time and the least delay, at the highest rate at which at least two schemes keep up.
/// If intervals overlap, names all schemes that may have the least. Names the schemes that were not measured there.
/// `None` if no scheme has a cost.
fn signal(run: &Run) -> Option<Answer> {
    let table_name = if run.table("rates").is_some() { "rates" } else { "model" };
    let source = run.table(table_name)?;
    let cost_column = ["cpu_ratio", "receiver_ratio"]
        .into_iter()
        .find(|column| rows(source).any(|row| row.number(column).is_some()))?;
    let comparable = comparable_rows(source, "rate_hz", cost_column);
    let first_row = comparable.first()?;
    let rate = first_row.number("rate_hz")?;
    let cost_name = if cost_column == "cpu_ratio" { "CPU time" } else { "the receiver's CPU time" };
    let load = match schemes::load(first_row) {
        load if load.is_empty() => load,
        load => format!(" under load {load}"),
    };
    let condition = format!("At {} events a second{load}", Quantity::Count.round_text(rate));
    let table = Some(table_name.to_owned());
    let contaminated: Vec<String> = comparable
        .iter()
        .filter(|row| is_contaminated(row))
        .map(|row| row.value_text("scheme"))
        .collect();
    if !contaminated.is_empty() {
        let fact = format!(
            "{condition}, no scheme can be said to cost least: something else had a CPU in the windows of {}.",
            contaminated.join(", ")
        );
        let remedy = match run.bench.as_str() {
            "sim" => "Measure longer or more windows (-d, --repetitions).",
            _ => "Keep other work off both CPUs, or measure more windows (--repetitions).",
        };
        let lever = Some(remedy.to_owned());
        return Some(Answer { fact, lever, table });
    }
    let comparison = |column: &'static str| Comparison {
        candidates: possible_extremes(comparable.iter().copied(), Extreme::Smallest, |row| {
            figure(row, column)
        }),
        measured: comparable.iter().copied().filter(|row| row.number(column).is_some()).collect(),
        unmeasured: schemes::unmeasured(source, "rate_hz", column, &comparable),
    };
    let cost = comparison(cost_column);
    let share = |row: &Row<'_>| row.number(cost_column).map(human::percent).unwrap_or_default();
    let others_fail = rows(source).any(|row| {
        ["load", "rate_hz"].iter().all(|column| row.get(column) == first_row.get(column))
            && !schemes::keeps_up_with_rate(&row)
    });
    let only_reason = if others_fail { "keeps up" } else { "was measured" };
    let cost_sentence = match &cost.candidates[..] {
        [only] if !schemes::has_two_schemes(&cost.measured) => format!(
            "{condition}, only {} {only_reason}: {} of {cost_name}.",
            only.value_text("scheme"),
            share(only)
        ),
        [winner] if cost.unmeasured.is_empty() => format!(
            "{condition}, {} costs least: {} of {cost_name}.",
            winner.value_text("scheme"),
            share(winner)
        ),
        [cheapest_measured] => format!(
            "{condition}, {} costs less than the other measured schemes: {} of {cost_name}.",
            cheapest_measured.value_text("scheme"),
            share(cheapest_measured)
        ),
        candidates => {
            let name_and_share =
                |row: &Row<'_>| format!("{} ({})", row.value_text("scheme"), share(row));
            let names: Vec<String> = candidates.iter().map(name_and_share).collect();
            let reason = reason_without_winner(candidates, |row| figure(row, cost_column));
            format!(
                "{condition}, which scheme costs least of {cost_name} is not known, {reason}: {}.",
                names.join(", ")
            )
        }
    };
    let fact = cost_sentence + &cost.note("Not measured");
    let latency = comparison("latency_mean_ns");
    let lever = latency_sentences(&latency, &cost, share);
    Some(Answer { fact, lever, table })
}

/// The rows of `signal` that are compared by a figure.
struct Comparison<'r> {
    /// The rows that may have the smallest figure, within the errors. The first has the smallest.
    candidates: Vec<Row<'r>>,
    /// The rows with a figure.
    measured: Vec<Row<'r>>,
    /// The schemes that were not measured here.
    unmeasured: Vec<String>,
}

impl<'r> Comparison<'r> {
    /// The row with the smallest figure of all schemes. `None` if another may have it, or if there is no other.
    fn winner(&self) -> Option<&Row<'r>> {
        let [winner] = &self.candidates[..] else { return None };
        let is_winner = self.unmeasured.is_empty() && schemes::has_two_schemes(&self.measured);
        is_winner.then_some(winner)
    }

    /// A sentence with a leading space that names the schemes without a figure. Empty if there are none.
    fn note(&self, heading: &str) -> String {
        if self.unmeasured.is_empty() {
            return String::new();
        }
        format!(" {heading}: {}.", self.unmeasured.join(", "))
    }
}

/// Sentences about the scheme that delays least. `None` if no latency was measured. `share`: the text of a row's cost.
fn latency_sentences(
    latency: &Comparison<'_>,
    cost: &Comparison<'_>,
    share: impl Fn(&Row<'_>) -> String,
) -> Option<String> {
    let delay = |row: &Row<'_>| row.number("latency_mean_ns").map(human::ns).unwrap_or_default();
    let fastest = latency.candidates.first()?;
    let (scheme, mean) = (fastest.value_text("scheme"), delay(fastest));
    let text = match (&latency.candidates[..], latency.winner(), cost.winner()) {
        (_, Some(_), Some(cheapest)) if scheme == cheapest.value_text("scheme") => {
            format!("It also delays least ({mean} on average).")
        }
        (_, Some(_), Some(cheapest)) => format!(
            "{scheme} delays least ({mean} on average, not {}), for {}.",
            delay(cheapest),
            share(fastest)
        ),
        (_, Some(_), None) => format!("{scheme} delays least ({mean} on average)."),
        ([_], None, _) if !schemes::has_two_schemes(&latency.measured) => {
            format!("The mean latency of {scheme} is {mean}.")
        }
        ([_], None, _) => {
            format!("{scheme} delays less than the other measured schemes ({mean} on average).")
        }
        (several, None, _) => {
            let name = |row: &Row<'_>| format!("{} ({})", row.value_text("scheme"), delay(row));
            let names: Vec<String> = several.iter().map(name).collect();
            let reason = reason_without_winner(several, |row| figure(row, "latency_mean_ns"));
            format!("Which one delays least is not known, {reason}: {}.", names.join(", "))
        }
    };
    Some(text + &latency.note("Latency not measured"))
}

/// The reason why no row is known to be the extreme one.
fn reason_without_winner<'r>(
    candidates: &[Row<'r>],
    figure: impl Fn(&Row<'r>) -> Option<Figure>,
) -> &'static str {
    if candidates.iter().filter_map(figure).all(Figure::has_interval) {
        "because the intervals overlap"
    } else {
        "because there are figures without an interval"
    }
}

/// The result of a comparison in a sentence: the number of figures with each verdict, some with an example.
pub fn summarize_comparison(run: &Run) -> String {
    let Some(table) = run.table("differences") else { return by_headline(run).fact };
    let totals_sentence = run.table("totals").and_then(|totals| {
        let first = rows(totals).next()?;
        Some(format!("{}. ", first.value_text("finding")))
    });
    let totals_sentence = totals_sentence.unwrap_or_default();
    let has_verdict = |row: &Row<'_>, verdict: &str| row.has_text("verdict", verdict);
    let count = |verdict: &str| rows(table).filter(|row| has_verdict(row, verdict)).count();
    // The table of a long comparison has no rows for equal figures, but the settings count them.
    let setting = |name: &str| run.settings.get(name).and_then(serde_json::Value::as_u64);
    let figure_count = setting("figure_count").unwrap_or(table.row_count());
    let undecided = setting("undecided_count").unwrap_or(count("can't tell") as u64);
    let (worse, better) = (count("worse"), count("better"));
    let example = |verdict: &str| {
        let row = rows(table)
            .find(|row| has_verdict(row, verdict) && row.number("change_ratio").is_some())?;
        let change = row.number("change_ratio")?;
        let (row_name, column) = (row.value_text("row"), row.value_text("column"));
        Some(format!(" ({row_name} {column}: {})", human::signed_percent(change)))
    };
    let verdicts = [
        (worse, "worse", example("worse")),
        (better, "better", example("better")),
        (count("changed"), "changed", example("changed")),
        (count("missing"), "missing", None),
        (count("added"), "added", None),
    ];
    let verdict_texts: Vec<String> = verdicts
        .into_iter()
        .filter(|(count, ..)| *count > 0)
        .map(|(count, verdict, example)| {
            format!("{count} {verdict}{}", example.unwrap_or_default())
        })
        .collect();
    if !verdict_texts.is_empty() {
        format!(
            "{totals_sentence}Of {figure_count} figures: {}; {undecided} cannot be decided.",
            verdict_texts.join(", ")
        )
    } else if undecided == 0 {
        format!("Nothing changed: all {figure_count} figures are equal.")
    } else {
        format!(
            "No figure is known to have changed: of {figure_count}, {undecided} cannot be decided."
        )
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::picture::tests::{run_of, table};
    use record::Kind;

    /// A table of schemes at one rate, from name, CPU use, half width of its interval, and number of
    /// contaminated windows (of three).
    fn rates(schemes: &[(&str, f64, Option<f64>, u64)]) -> Table {
        let columns = [
            ("load", Kind::Text),
            ("scheme", Kind::Text),
            ("rate_hz", Kind::Uint),
            ("repetitions", Kind::Uint),
            ("contaminated_count", Kind::Uint),
            ("cpu_ratio", Kind::Real),
            ("cpu_ci95_ratio", Kind::Real),
            ("latency_mean_ns", Kind::Real),
            ("latency_mean_ci95_ns", Kind::Real),
        ];
        let row = |load: &str, (scheme, cpu, half, contaminated): (&str, f64, Option<f64>, u64)| {
            let latency = 1e4 / cpu;
            let values = [load.into(), scheme.into(), 1_000.into(), 3.into(), contaminated.into()];
            let half_ns = half.map(|half| latency * half / cpu);
            let more = [cpu.into(), half.into(), latency.into(), half_ns.into()];
            values.into_iter().chain(more).collect::<Vec<Value>>()
        };
        let mut rows: Vec<Vec<Value>> =
            schemes.iter().map(|scheme| row("background", *scheme)).collect();
        // Figures under another load are not compared with these.
        rows.push(row("busy", ("spin", 0.001, Some(0.0001), 0)));
        table("rates", &columns, rows)
    }

    fn answer(schemes: &[(&str, f64, Option<f64>, u64)]) -> (String, String) {
        let answer =
            summarize(&Run { experiment: "signal".to_owned(), ..run_of(vec![rates(schemes)]) });
        (answer.fact, answer.lever.unwrap())
    }

    /// A `read` of 60 % of the time waits for instructions for two of three cycles. Without the waits, 200
    /// of 600 cycles are its own.
    #[test]
    fn a_share_without_waits_is_that_of_the_shorter_time() {
        let columns = [
            ("class", Kind::Text),
            ("service", Kind::Text),
            ("self_total_ns", Kind::Uint),
            ("time_ratio", Kind::Real),
            ("cpi_ratio", Kind::Real),
            ("fetch_mcpi_ratio", Kind::Real),
            ("data_mcpi_ratio", Kind::Real),
        ];
        let row = |class: &str, name: &str, ns: u64| {
            let share = (ns as f64 / 1_000.0).into();
            vec![class.into(), name.into(), ns.into(), share, 3.0.into(), 2.0.into(), 0.5.into()]
        };
        let rows = vec![row("user", "self", 400), row("syscall", "read", 600)];
        let run = Run {
            experiment: "services".to_owned(),
            ..run_of(vec![table("services", &columns, rows)])
        };
        let lever = summarize(&run).lever.unwrap();
        assert_eq!(lever, "Without its waits for instructions it would take 33.3 % of the time.");
    }

    #[test]
    fn a_job_of_many_nodes_leads_with_its_slowdown() {
        let columns = [
            ("granularity_ns", Kind::Uint),
            ("detour_times", Kind::Text),
            ("node_count", Kind::Uint),
            ("slowdown_ratio", Kind::Real),
            ("is_lower_bound", Kind::Bool),
        ];
        let row = |granularity_ns: u64, nodes: u64, slowdown: f64, bound: bool| {
            let times = "independent";
            vec![granularity_ns.into(), times.into(), nodes.into(), slowdown.into(), bound.into()]
        };
        let rows = vec![
            row(100_000, 1, 0.01, false),
            row(100_000, 4_096, 1.5, true),
            row(10_000_000, 4_096, 0.02, false),
        ];
        let answer_of = |rows| {
            let run = run_of(vec![table("scale", &columns, rows)]);
            summarize(&Run { experiment: "scale".to_owned(), ..run })
        };
        let close = vec![row(100_000, 4_096, 1.5, false), row(100_001, 4_096, 1.4, false)];
        let says = "With 100.001 µs of work between barriers: 140 %.";
        assert_eq!(answer_of(close).lever.as_deref(), Some(says));
        let answer = answer_of(rows);
        let plain_spaces = |text: &str| text.replace('\u{a0}', " ");
        let says = "With 4,096 nodes and a barrier after each 100 µs of work, these detours slow a job down by at \
                    least 150 %.";
        assert_eq!(plain_spaces(&answer.fact), says);
        let says = "With 10.0 ms of work between barriers: 2.00 %.";
        assert_eq!(answer.lever.as_deref().map(plain_spaces).as_deref(), Some(says));
        let columns: Vec<_> = columns.into_iter().chain([("without", Kind::Text)]).collect();
        let row_without = |slowdown, without: Value| {
            let mut row = row(100_000, 4_096, slowdown, false);
            row.push(without);
            row
        };
        let rows = vec![row_without(1.5, Value::Absent), row_without(0.3, "local_timer".into())];
        let run = run_of(vec![table("scale", &columns, rows)]);
        let answer = summarize(&Run { experiment: "scale".to_owned(), ..run });
        assert!(answer.fact.ends_with("down by 150 %."), "{}", answer.fact);
        let says = "Without detours that begin with local_timer: 30.0 %.";
        assert_eq!(answer.lever.as_deref(), Some(says));
    }

    #[test]
    fn a_reproduction_counts_the_claims_that_agree() {
        let names = ["finding", "claim", "evidence", "agreement", "reason"];
        let columns = names.map(|name| (name, Kind::Text));
        let row = |agreement: &str, reason: Option<&str>| {
            let [finding, claim, evidence] = ["network > disk", "net > disk", "3 and 5 misses"];
            vec![finding.into(), claim.into(), evidence.into(), agreement.into(), reason.into()]
        };
        let rows = vec![
            row("agrees", None),
            row("agrees", None),
            row("disagrees", None),
            row("can't tell", None),
            row("can't tell", Some("not measured: irqlab reproduce X measures all")),
        ];
        let answer = summarize(&run_of(vec![table("findings", &columns, rows)]));
        let says = "2 of 5 claims agree with the paper, 1 disagrees (the first: network > disk, net > disk: 3 and 5 \
                    misses), 2 cannot be decided.";
        assert_eq!(answer.fact, says);
        let says = "The first reason why a claim cannot be decided: not measured: irqlab reproduce X measures all.";
        assert_eq!(answer.lever.as_deref(), Some(says));
    }

    #[test]
    fn a_scheme_costs_least_where_no_interval_overlaps() {
        let (fact, lever) = answer(&[
            ("drain", 0.2, Some(0.01), 0),
            ("deferred:1ms", 0.1, Some(0.01), 1),
            ("spin", 1.0, Some(0.01), 0),
        ]);
        let says = "At 1,000 events a second under load background, deferred:1ms costs least: 10.0 % of CPU time.";
        assert_eq!(fact.replace('\u{a0}', " "), says);
        assert!(lever.starts_with("spin delays least ("), "{lever}");
    }

    #[test]
    fn none_is_named_where_intervals_overlap_or_are_missing() {
        let (fact, lever) = answer(&[
            ("drain", 0.2, Some(0.06), 0),
            ("deferred:1ms", 0.1, Some(0.05), 0),
            ("spin", 1.0, Some(0.01), 0),
        ]);
        assert!(
            fact.contains("is not known, because the intervals overlap: deferred:1ms"),
            "{fact}"
        );
        assert!(fact.contains("drain") && !fact.contains("spin"), "{fact}");
        assert!(lever.starts_with("spin delays least ("), "{lever}");
        let (fact, lever) = answer(&[("drain", 0.2, None, 0), ("spin", 1.0, None, 0)]);
        for text in [&fact, &lever] {
            assert!(text.contains("there are figures without an interval"), "{text}");
        }
    }

    /// The answer of a table of schemes, from name, rate, CPU use and latency. All have narrow intervals.
    fn answer_at_rates(schemes: &[(&str, u64, Option<f64>, Option<f64>)]) -> (String, String) {
        let columns = [
            ("scheme", Kind::Text),
            ("rate_hz", Kind::Uint),
            ("cpu_ratio", Kind::Real),
            ("cpu_ci95_ratio", Kind::Real),
            ("latency_mean_ns", Kind::Real),
            ("latency_mean_ci95_ns", Kind::Real),
        ];
        let row = |(scheme, rate_hz, cpu, latency): &(&str, u64, Option<f64>, Option<f64>)| {
            let cpu = [(*cpu).into(), cpu.map(|_| 1e-4).into()];
            let latency = [(*latency).into(), latency.map(|_| 1.0).into()];
            [vec![(*scheme).into(), (*rate_hz).into()], cpu.to_vec(), latency.to_vec()].concat()
        };
        let table = table("rates", &columns, schemes.iter().map(row).collect());
        let answer = summarize(&Run { experiment: "signal".to_owned(), ..run_of(vec![table]) });
        (answer.fact, answer.lever.unwrap())
    }

    #[test]
    fn a_scheme_without_a_figure_is_named() {
        let (fact, lever) = answer_at_rates(&[
            ("interrupt", 10, Some(0.1), Some(5e3)),
            ("spin", 10, Some(0.9), Some(6e3)),
            ("yield", 10, None, Some(2e3)),
        ]);
        let says = "At 10 events a second, interrupt costs less than the other measured schemes: 10.0 % of CPU time. \
                    Not measured: yield.";
        assert_eq!(fact, says);
        assert_eq!(lever, "yield delays least (2.00 µs on average).");
        let (fact, lever) = answer_at_rates(&[
            ("interrupt", 10, Some(0.1), None),
            ("spin", 10, Some(0.9), Some(6e3)),
        ]);
        assert!(fact.contains("interrupt costs least: 10.0 %"), "{fact}");
        let says = "The mean latency of spin is 6.00 µs. Latency not measured: interrupt.";
        assert_eq!(lever, says);
    }

    #[test]
    fn a_scheme_alone_wins_against_nobody() {
        let all = [
            ("interrupt", 1_000, Some(0.1), Some(5e3)),
            ("spin", 1_000, Some(0.9), Some(1e3)),
            ("spin", 10_000, Some(0.9), Some(1e3)),
        ];
        let (fact, _) = answer_at_rates(&all);
        assert!(fact.starts_with("At 1,000 events a second, interrupt costs least: "), "{fact}");
        let (fact, lever) = answer_at_rates(&all[2..]);
        let says = "At 10,000 events a second, only spin was measured: 90.0 % of CPU time.";
        assert_eq!(fact, says);
        assert_eq!(lever, "The mean latency of spin is 1.00 µs.");
    }

    #[test]
    fn a_scheme_that_alone_keeps_up_wins_against_nobody() {
        let columns = [
            ("scheme", Kind::Text),
            ("rate_hz", Kind::Uint),
            ("cpu_ratio", Kind::Real),
            ("is_over_capacity", Kind::Bool),
        ];
        let row = |scheme: &str, is_over: bool| -> Vec<Value> {
            vec![scheme.into(), 1_000.into(), 0.5.into(), is_over.into()]
        };
        let rates = table("rates", &columns, vec![row("spin", false), row("interrupt", true)]);
        let answer = summarize(&Run { experiment: "signal".to_owned(), ..run_of(vec![rates]) });
        let says = "At 1,000 events a second, only spin keeps up: 50.0 % of CPU time.";
        assert_eq!((answer.fact.as_str(), answer.lever), (says, None));
    }

    #[test]
    fn none_is_named_where_windows_are_contaminated() {
        let schemes = [("drain", 0.2, Some(0.001), 3), ("spin", 1.0, Some(0.001), 0)];
        let (fact, _) = answer(&schemes);
        let says =
            "no scheme can be said to cost least: something else had a CPU in the windows of drain";
        assert!(fact.contains(says), "{fact}");
    }

    #[test]
    fn a_context_costs_most_where_no_interval_overlaps() {
        let columns = [
            ("condition", Kind::Text),
            ("cpu", Kind::Text),
            ("kind", Kind::Text),
            ("name", Kind::Text),
            ("rate_hz", Kind::Real),
            ("self_mean_ns", Kind::Real),
            ("self_mean_ci95_ns", Kind::Real),
            ("self_cpu_ratio", Kind::Real),
            ("self_cpu_ci95_ratio", Kind::Real),
        ];
        // `half_ratio`: half width of the intervals of BLOCK and TIMER. `rare_half_ratio`: that of RCU.
        let fact_of = |half_ratio: Option<f64>, rare_mean: f64, rare_half_ratio: Option<f64>| {
            let row = |name: &str, mean: f64, half_ratio: Option<f64>| -> Vec<Value> {
                let text = ["idle", "all", "softirq", name].map(Value::from);
                let numbers = [100.0, mean, 1.0, mean * 1e-7].map(Value::from);
                text.into_iter().chain(numbers).chain([half_ratio.into()]).collect()
            };
            let rows = vec![
                row("BLOCK", 9_000.0, half_ratio),
                row("TIMER", 8_000.0, half_ratio),
                row("RCU", rare_mean, rare_half_ratio),
            ];
            let run = run_of(vec![table("handlers", &columns, rows)]);
            summarize(&Run { experiment: "handlers".to_owned(), ..run }).fact
        };
        let fact = |half_ratio, rare_half_ratio| fact_of(half_ratio, 1_500.0, rare_half_ratio);
        let clear = fact(Some(1e-5), Some(1e-5));
        assert!(clear.starts_with("softirq BLOCK costs most: "), "{clear}");
        // The mean's interval is narrow, but the number of spans has an error too.
        let unknown = fact(None, None);
        assert!(unknown.starts_with("softirq BLOCK has the largest share: "), "{unknown}");
        assert!(
            unknown.ends_with(" The largest figure has no interval, so another may be larger."),
            "{unknown}"
        );
        let rare = fact(Some(1e-5), None);
        assert!(rare.ends_with(" Without an interval: softirq RCU."), "{rare}");
        let tiny = fact_of(Some(1e-5), 10.0, None);
        assert!(tiny.starts_with("softirq BLOCK costs most: "), "{tiny}");
        let close = fact(Some(9e-5), Some(1e-5));
        assert!(close.starts_with("softirq BLOCK has the largest share: "), "{close}");
        assert!(close.ends_with("Also within its interval: softirq TIMER."), "{close}");
    }

    #[test]
    fn the_costliest_context_comes_with_its_largest_function_and_its_delays() {
        let names = ["condition", "cpu", "kind", "name"].map(|name| (name, Kind::Text));
        let keys = |kind: &str, name: &str| ["ambient", "all", kind, name].map(Value::from);
        let figures = ["count", "rate_hz", "self_mean_ns", "self_total_ns", "self_cpu_ratio"];
        let columns: Vec<(&str, Kind)> =
            names.into_iter().chain(figures.map(|name| (name, Kind::Real))).collect();
        let context = |kind: &str, name: &str, mean_ns: f64| -> Vec<Value> {
            let figures = [100.0, 100.0, mean_ns, 100.0 * mean_ns, mean_ns / 1e7];
            keys(kind, name).into_iter().chain(figures.map(Value::from)).collect()
        };
        let fact = |rows: Vec<Vec<Value>>| {
            let figures = ["count", "delay_p50_ns", "delay_p99_ns"].map(|name| (name, Kind::Uint));
            let delay_columns: Vec<(&str, Kind)> = names.into_iter().chain(figures).collect();
            let delays = keys("softirq", "TIMER").into_iter();
            let delays = delays.chain([100_u64, 1_000, 9_000].map(Value::from)).collect();
            let tables = vec![
                table("handlers", &columns, rows),
                table("delays", &delay_columns, vec![delays]),
            ];
            summarize(&Run { experiment: "handlers".to_owned(), ..run_of(tables) }).fact
        };
        let timers = fact(vec![
            context("softirq", "TIMER", 6e3),
            context("timer", "a_timer", 3e3),
            context("timer", "b_timer", 1e3),
        ]);
        let says = "a_timer takes 30.0 % of the time of TIMER and its functions. Half of all runs of TIMER wait \
                    1.00 µs or less, one in 100 more than 9.00 µs.";
        assert!(timers.ends_with(says), "{timers}");
        let disk = fact(vec![context("softirq", "BLOCK", 6e3), context("timer", "a_timer", 3e3)]);
        assert!(!disk.contains("a_timer") && !disk.contains("wait"), "{disk}");
    }

    #[test]
    fn a_mean_below_the_detection_limit_is_a_bound() {
        let hinted = |name: &str, kind| match name {
            "self_mean_ns" => record::Column::new(name, kind, "")
                .plus_minus("self_mean_ci95_ns")
                .below_limit("self_mean_below_limit"),
            _ => record::Column::new(name, kind, ""),
        };
        let columns = [
            ("condition", Kind::Text),
            ("cpu", Kind::Text),
            ("kind", Kind::Text),
            ("name", Kind::Text),
            ("rate_hz", Kind::Real),
            ("self_mean_ns", Kind::Real),
            ("self_mean_ci95_ns", Kind::Real),
            ("self_mean_below_limit", Kind::Bool),
            ("self_cpu_ratio", Kind::Real),
        ];
        let columns = columns.map(|(name, kind)| hinted(name, kind)).to_vec();
        let mut handlers = Table::new("handlers", "", columns);
        let text = ["idle", "all", "vector", "reschedule"].map(Value::from);
        let numbers = [100.0, 12.0, 30.0].map(Value::from);
        let below = [Value::Bool(true), Value::from(1e-6)];
        handlers.push(text.into_iter().chain(numbers).chain(below).collect());
        let run = Run { experiment: "handlers".to_owned(), ..run_of(vec![handlers]) };
        let answer = summarize(&run);
        assert!(answer.fact.contains("for < 42.0 ns each"), "{}", answer.fact);
        assert_eq!(answer.lever, None);
    }

    /// A run of `wakeup` on a virtual machine whose worst wake-up, by 312 µs on CPU 1, has this largest part.
    fn wakeup_run(class: &str, kind: &str, name: &str) -> Run {
        let columns = [
            ("cpu", Kind::Uint),
            ("late_ns", Kind::Uint),
            ("largest_ns", Kind::Uint),
            ("largest_class", Kind::Text),
            ("largest_kind", Kind::Text),
            ("largest_name", Kind::Text),
        ];
        let row = |cpu: u64, late: u64, part: u64, text: [&str; 3]| -> Vec<Value> {
            let numbers = [cpu, late, part].map(Value::from);
            numbers.into_iter().chain(text.map(Value::from)).collect()
        };
        let worst = vec![
            row(0, 90_000, 80_000, ["tasks", "task", "not the worst"]),
            row(1, 312_000, 290_000, [class, kind, name]),
        ];
        let per_cpu_columns =
            [("cpu", Kind::Uint), ("late_p99_ns", Kind::Uint), ("late_max_ns", Kind::Uint)];
        let per_cpu = [[0_u64, 11_000, 90_000], [1, 42_000, 312_000]];
        let per_cpu = per_cpu.map(|row| row.map(Value::from).to_vec()).to_vec();
        let tables =
            vec![table("wakeup", &per_cpu_columns, per_cpu), table("worst", &columns, worst)];
        let mut run = Run { experiment: "wakeup".to_owned(), ..run_of(tables) };
        run.host.insert("virtualized".to_owned(), true.into());
        run.host.insert("preemption_built".to_owned(), "PREEMPT_DYNAMIC".into());
        run.host.insert("preemption".to_owned(), "none".into());
        run.settings.insert("scheduler".to_owned(), "SCHED_FIFO 95".into());
        run
    }

    #[test]
    fn the_worst_wakeup_has_its_largest_part_and_the_p99_of_its_cpu() {
        let answer = summarize(&wakeup_run("interrupts", "softirq", "NET_RX"));
        assert_eq!(
            answer.fact,
            "The worst wake-up was 312 µs late, on CPU 1: 290 µs of it in softirq NET_RX. 99 % of the wake-ups on \
             this CPU were at most 42.0 µs late."
        );
        assert_eq!(
            answer.lever.unwrap(),
            "Without this part, the wake-up would have been 22.0 µs late. A softirq runs where its interrupt came: move \
             that interrupt's affinity. This machine is a guest: if its host pauses it, the pause counts as part of \
             what it interrupts."
        );
        assert_eq!(answer.table.as_deref(), Some("worst"));
        // A run without probes has no causes, and a run without single wake-ups only its largest lateness.
        let mut run = wakeup_run("interrupts", "softirq", "NET_RX");
        run.tables.truncate(1);
        let answer = summarize(&run);
        assert!(
            answer.fact.starts_with("The worst wake-up was 312 µs late, on CPU 1. 99 %"),
            "{}",
            answer.fact
        );
        assert_eq!((answer.lever, answer.table.as_deref()), (None, Some("wakeup")));
        run.tables.clear();
        assert!(summarize(&run).fact.starts_with("No single figure"));
    }

    #[test]
    fn what_shortens_a_late_wakeup_depends_on_what_ran() {
        let remedy = |run: &Run| {
            let lever = summarize(run).lever.unwrap();
            let (_, remedy) = lever.split_once(" late.").unwrap();
            remedy.trim().to_owned()
        };
        let idle = "The CPU leaves a shallow idle state sooner: try --idle-exit-max 0us.";
        let host = "If the host had the CPU then, only the host can change that.";
        let pause = "This machine is a guest: if its host pauses it, the pause counts as part of what it interrupts.";
        let isolate = "A cpuset or isolcpus keeps other tasks from the CPU.";
        let preempt = "With the boot option preempt=full, a thread need not wait until a task leaves the kernel.";
        let class = "A thread of a real-time class (--policy fifo:95) runs before such tasks.";
        for (cause, kind, name, expected) in [
            ("late timer", "task", "idle", format!("{idle} {host}")),
            ("late timer", "task", "make", host.to_owned()),
            ("switch", "task", "idle", idle.to_owned()),
            ("tasks", "task", "make", format!("{preempt} {isolate}")),
            ("interrupts", "vector", "local_timer", pause.to_owned()),
            ("interrupts", "softirq", "RCU", pause.to_owned()),
            ("return", "thread", "the measured thread", String::new()),
            ("other", "thread", "the measured thread", String::new()),
        ] {
            assert_eq!(remedy(&wakeup_run(cause, kind, name)), expected, "{cause} {kind} {name}");
        }
        assert_eq!(summarize(&wakeup_run("other", "unknown", "no kernel event")).lever, None);
        let irq = remedy(&wakeup_run("interrupts", "irq", "36 virtio1-req.0"));
        assert!(irq.starts_with("/proc/irq/NUMBER/smp_affinity"), "{irq}");
        let mut run = wakeup_run("tasks", "task", "make");
        run.settings.insert("scheduler".to_owned(), "SCHED_OTHER".into());
        assert_eq!(remedy(&run), format!("{class} {isolate}"));
        let mut run = wakeup_run("late timer", "task", "idle");
        run.settings.insert("idle_exit_max_ns".to_owned(), 0.into());
        run.host.insert("virtualized".to_owned(), false.into());
        assert_eq!(remedy(&run), "");
    }

    #[test]
    fn the_mean_of_requests_is_that_of_completed_ones() {
        let columns = [
            ("class", Kind::Text),
            ("service", Kind::Text),
            ("self_total_ns", Kind::Uint),
            ("time_ratio", Kind::Real),
            ("request_count", Kind::Uint),
            ("completed_count", Kind::Uint),
            ("computation_mean_ns", Kind::Real),
        ];
        let row = vec![
            "syscall".into(),
            "mlock".into(),
            500_000_000_u64.into(),
            0.5.into(),
            5_u64.into(),
            4_u64.into(),
            123_000_000.0.into(),
        ];
        let run = run_of(vec![table("services", &columns, vec![row])]);
        let fact = summarize(&Run { experiment: "services".to_owned(), ..run }).fact;
        assert!(fact.ends_with(": 4 completed requests of 123 ms each."), "{fact}");
    }

    #[test]
    fn a_stimulus_displaces_most_where_no_interval_overlaps() {
        let columns = [
            ("level", Kind::Text),
            ("stimulus", Kind::Text),
            ("displaced_lines", Kind::Real),
            ("displaced_ci95_low_lines", Kind::Real),
            ("displaced_ci95_high_lines", Kind::Real),
            ("is_upper_bound", Kind::Bool),
        ];
        let fact = |half: f64, is_upper_bound: bool| {
            let row = |level: &str, stimulus: &str, lines: f64, bound: bool| -> Vec<Value> {
                let numbers = [lines, lines - half, lines + half].map(Value::real);
                let text = [level.into(), stimulus.into()];
                text.into_iter().chain(numbers).chain([bound.into()]).collect()
            };
            let rows = vec![
                row("l2", "disk", 200.0, false),
                row("l2", "timer", 150.0, is_upper_bound),
                row("l1", "net", 199.0, false),
            ];
            let run = run_of(vec![table("footprint", &columns, rows)]);
            summarize(&Run { experiment: "footprint".to_owned(), ..run }).fact
        };
        assert!(
            fact(10.0, false).starts_with("A disk interrupt displaces most: "),
            "{}",
            fact(10.0, false)
        );
        let close = fact(30.0, false);
        assert!(close.ends_with("Also within its interval: timer."), "{close}");
        let unknown = fact(f64::NAN, false);
        assert!(
            unknown.ends_with("The largest figure has no interval, so another may be larger."),
            "{unknown}"
        );
        assert!(
            fact(10.0, true).starts_with("A disk interrupt displaces most: "),
            "a bound below it"
        );
    }

    #[test]
    fn a_stimulus_that_displaces_a_whole_level_displaces_most() {
        let columns = [
            ("level", Kind::Text),
            ("stimulus", Kind::Text),
            ("displaced_lines", Kind::Real),
            ("displaced_ci95_low_lines", Kind::Real),
            ("displaced_ci95_high_lines", Kind::Real),
            ("displaced_ratio", Kind::Real),
            ("user_misses", Kind::Real),
        ];
        let row = |stimulus: &str, numbers: [Option<f64>; 5]| -> Vec<Value> {
            let names = [Value::from("l1d"), stimulus.into()];
            names.into_iter().chain(numbers.map(Value::from)).collect()
        };
        let fact = |rows| {
            let run = run_of(vec![table("footprint", &columns, rows)]);
            summarize(&Run { experiment: "footprint".to_owned(), ..run }).fact
        };
        let timer = row("timer", [Some(40.0), Some(35.0), Some(45.0), Some(0.052), None]);
        let disk = row("disk", [None, Some(768.0), Some(768.0), None, Some(800.0)]);
        let all = "A disk interrupt displaces most: at least 768 lines of L1D.";
        assert_eq!(fact(vec![timer.clone(), disk.clone()]), all);
        assert_eq!(fact(vec![disk]), all, "no other row has a number");
        // Without counters, a long pass confirms no line.
        let uncounted = row("disk", [None, Some(768.0), Some(768.0), None, None]);
        let says = "A timer interrupt displaces 40.0 lines of L1D (5.20 % of it). Also within its interval: disk.";
        assert_eq!(fact(vec![timer.clone(), uncounted]), says);
        let net = row("net", [None; 5]);
        let unknown = fact(vec![timer.clone(), net.clone()]);
        let says = "A timer interrupt displaces 40.0 lines of L1D (5.20 % of it). Without an interval: net.";
        assert_eq!(unknown, says);
        let by_another_method = row("timer", [None; 5]);
        let known = fact(vec![timer, by_another_method]);
        assert!(known.starts_with("A timer interrupt displaces most: 40.0"), "{known}");
    }

    #[test]
    fn a_stimulus_below_its_detection_limit_may_displace_most() {
        let columns = [
            ("level", Kind::Text),
            ("stimulus", Kind::Text),
            ("displaced_lines", Kind::Real),
            ("displaced_ci95_low_lines", Kind::Real),
            ("displaced_ci95_high_lines", Kind::Real),
            ("is_upper_bound", Kind::Bool),
        ];
        let row = |stimulus: &str, lines: Value, high: f64| -> Vec<Value> {
            let interval = [0.0, high].map(Value::real);
            let name = [Value::from("l1d"), stimulus.into(), lines];
            name.into_iter().chain(interval).chain([true.into()]).collect()
        };
        let fact = |rows| {
            let run = run_of(vec![table("footprint", &columns, rows)]);
            summarize(&Run { experiment: "footprint".to_owned(), ..run }).fact
        };
        let (bound, unmeasured) =
            (row("ipi", Value::real(95.7), 95.7), row("disk", Value::Absent, 768.0));
        let only = "A ipi interrupt displaces at most 95.7 lines of L1D.";
        assert_eq!(fact(vec![bound.clone()]), only, "a bound is never the most");
        let both = fact(vec![bound, unmeasured]);
        assert_eq!(both, format!("{only} Also within its interval: disk."));
    }

    /// A timer's interrupt that sends is not the tick of the measured CPU.
    #[test]
    fn the_sender_of_an_interrupt_that_takes_most_time_is_in_the_answer() {
        let loops = [("cpu", Kind::Uint), ("lost_ratio", Kind::Real)];
        let loops = table("noise", &loops, vec![vec![1.into(), 0.2.into()]]);
        let causes = [
            ("cpu", Kind::Uint),
            ("kind", Kind::Text),
            ("name", Kind::Text),
            ("cause", Kind::Text),
            ("total_ns", Kind::Uint),
            ("lost_ratio", Kind::Real),
            ("rate_hz", Kind::Real),
        ];
        let name = "reschedule from vector local_timer";
        let cause = "reschedule from vector local_timer on CPU 0";
        let row = [1.into(), "vector".into(), name.into(), cause.into(), 100.into()];
        let row: Vec<Value> = row.into_iter().chain([0.5.into(), 10.0.into()]).collect();
        let causes = table("causes", &causes, vec![row]);
        let run = Run { experiment: "noise".to_owned(), ..run_of(vec![loops, causes]) };
        let answer = summarize(&run);
        assert!(answer.fact.contains(&format!("to vector {cause} (10")), "{}", answer.fact);
        assert!(!answer.lever.unwrap().contains("nohz_full"));
    }
}
