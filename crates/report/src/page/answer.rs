//! The answer of a run in a sentence: the largest cost, its cause, and what would change it.

use record::{Run, Table, Value};

use crate::escape::plain;
use crate::grid::Grid;
use crate::human;
use crate::row::Row;

/// What a run says first.
pub struct Answer {
    /// What costs most, and why.
    pub fact: String,
    /// What would change it, by the run's own numbers.
    pub lever: Option<String>,
    /// The table that the numbers are in.
    pub table: Option<String>,
}

/// The answer of a run.
pub fn of(run: &Run) -> Answer {
    let known = match run.experiment.as_str() {
        "handlers" => handlers(run),
        "noise" => noise(run),
        "footprint" => footprint(run),
        "services" => services(run),
        "signal" | "signal-model" => signal(run),
        _ => None,
    };
    known.unwrap_or_else(|| by_headline(run))
}

/// The headline of the first table that has one.
fn by_headline(run: &Run) -> Answer {
    let found = run.tables.iter().find_map(|table| {
        let grid = Grid::new(table, false);
        let headline = grid.groups.into_iter().find_map(|group| group.headline)?;
        Some((headline, table.name.clone()))
    });
    match found {
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

fn sentence(text: &str) -> String {
    let mut characters = text.chars();
    let first = characters.next().map(|one| one.to_uppercase().to_string()).unwrap_or_default();
    format!("{first}{}.", characters.as_str())
}

fn rows(table: &Table) -> impl Iterator<Item = Row<'_>> {
    table.rows().iter().map(move |values| Row::new(table, values))
}

/// The row with the largest number in a column.
fn largest<'r>(rows: impl Iterator<Item = Row<'r>>, column: &str) -> Option<Row<'r>> {
    let with = rows.filter_map(|row| Some((row.number(column)?, row)));
    with.max_by(|a, b| a.0.total_cmp(&b.0)).map(|(_, row)| row)
}

fn is_text(row: &Row<'_>, column: &str, text: &str) -> bool {
    matches!(row.get(column), Value::Text(value) if value == text)
}

fn handlers(run: &Run) -> Option<Answer> {
    let table = run.table("handlers")?;
    let sums = rows(table).filter(|row| is_text(row, "cpu", "all"));
    let row = largest(sums, "self_cpu_ratio")?;
    let share = row.number("self_cpu_ratio")?;
    let (mean, rate) = (row.number("self_mean_ns")?, row.number("rate_hz")?);
    let name = format!("{} {}", row.alone("kind"), row.alone("name"));
    let fact = format!(
        "{name} costs most: {} of CPU time, because it runs {} times a second for {} each (condition {}).",
        human::percent(share),
        human::number(rate),
        human::ns(mean),
        row.alone("condition"),
    );
    let lever = (mean > 0.0).then(|| {
        format!(
            "At this rate, each µs off its mean would give back {} of the CPUs; half the rate, {}.",
            human::percent(share * 1e3 / mean),
            human::percent(share / 2.0)
        )
    });
    Some(Answer { fact, lever, table: Some("handlers".to_owned()) })
}

/// The loop's CPU that lost most, the largest cause there, and what is left without it.
fn noise(run: &Run) -> Option<Answer> {
    let table = run.table("noise")?;
    let row = largest(rows(table), "lost_ratio")?;
    let (cpu, lost) = (row.alone("cpu"), row.number("lost_ratio")?);
    let longest = row.number("detour_max_ns").map(human::ns);
    let longest = longest.map_or(String::new(), |time| format!("; the longest detour was {time}"));
    let of_cpu = run
        .table("causes")
        .map(|causes| rows(causes).filter(|row| row.alone("cpu") == cpu).collect::<Vec<_>>());
    let cause = largest(of_cpu.into_iter().flatten(), "total_ns");
    let named = cause.as_ref().and_then(|cause| {
        let name = format!("{} {}", cause.alone("kind"), cause.alone("name"));
        Some((name, cause.number("lost_ratio")?, cause.number("rate_hz")?))
    });
    let because = named.as_ref().map_or(String::new(), |(name, part, rate)| {
        format!(
            ", {} of that to {name} ({} times a second)",
            human::percent(*part),
            human::number(*rate)
        )
    });
    let lever = named.map(|(name, part, _)| {
        let cause = cause.map(|row| row.alone("kind")).unwrap_or_default();
        format!(
            "Without {name}, {} would be left.{}",
            human::percent(lost * (1.0 - part).max(0.0)),
            remedy(&cause, &name)
        )
    });
    Some(Answer {
        fact: format!("CPU {cpu} lost {} of its time{because}{longest}.", human::percent(lost)),
        lever,
        table: Some("noise".to_owned()),
    })
}

/// What moves a kind of cause to another CPU, in the kernel's own terms.
fn remedy(kind: &str, name: &str) -> &'static str {
    match kind {
        "vector" if name.contains("timer") => {
            " The boot option nohz_full stops the tick of a CPU with one task."
        }
        "irq" => " /proc/irq/NUMBER/smp_affinity moves a device's interrupts to another CPU.",
        "softirq" => " A softirq runs where its interrupt came: move that interrupt's affinity.",
        "task" => " A cpuset or isolcpus keeps other tasks from the CPU.",
        "hypervisor" | "steal" => " Only the host can change that.",
        _ => "",
    }
}

/// The stimulus that displaces most lines, and what that costs.
fn footprint(run: &Run) -> Option<Answer> {
    let table = run.table("footprint")?;
    let row = largest(rows(table), "displaced_lines")?;
    let lines = row.number("displaced_lines")?;
    let level = row.alone("level").to_uppercase();
    let of_level = row.number("displaced_ratio").filter(|ratio| *ratio > 0.0);
    let of_level =
        of_level.map_or(String::new(), |ratio| format!(" ({} of it)", human::percent(ratio)));
    let at_most = if *row.get("is_upper_bound") == Value::Bool(true) { "at most " } else { "" };
    let stimulus = row.alone("stimulus");
    let lever = row.number("indirect_mean_ns").filter(|time| *time > 0.0).map(|indirect| {
        let direct = row.number("stalled_p50_ns");
        let direct = direct.map_or(String::new(), |time| {
            format!(", in addition to the {} in which the program stands", human::ns(time))
        });
        format!(
            "Fetching them again costs the program {} per interrupt{direct}.",
            human::ns(indirect)
        )
    });
    Some(Answer {
        fact: format!(
            "A {stimulus} interrupt displaces most: {at_most}{} lines of {level}{of_level}.",
            human::number(lines.max(0.0))
        ),
        lever,
        table: Some("footprint".to_owned()),
    })
}

/// The service that takes most time, and whether its code, its data or its waits are the reason.
fn services(run: &Run) -> Option<Answer> {
    let table = run.table("services")?;
    let is_service =
        |row: &Row<'_>| !is_text(row, "class", "user") && !is_text(row, "class", "idle");
    let row = largest(rows(table).filter(is_service), "self_total_ns")?;
    let name = format!("{} {}", row.alone("class"), row.alone("service"));
    let share = row.number("time_ratio")?;
    let of_kernel = row
        .number("kernel_ratio")
        .map_or(String::new(), |ratio| format!(", {} of the kernel's", human::percent(ratio)));
    let requests = row.number("request_count").zip(row.number("computation_mean_ns"));
    let requests = requests.map_or(String::new(), |(count, mean)| {
        format!(": {} requests of {} each", human::number(count), human::ns(mean))
    });
    let cpi = row.number("cpi_ratio").filter(|cpi| *cpi > 0.0);
    let stalls = row.number("fetch_mcpi_ratio").zip(row.number("data_mcpi_ratio"));
    let lever = cpi.zip(stalls).map(|(cpi, (fetch, data))| {
        let (what, most) = if fetch > data { ("instructions", fetch) } else { ("data", data) };
        format!(
            "Without its waits for {what} it would take {} of the time.",
            human::percent(share * (1.0 - most / cpi).max(0.0))
        )
    });
    let fact =
        format!("{name} takes most: {} of the time{of_kernel}{requests}.", human::percent(share));
    Some(Answer { fact, lever, table: Some("services".to_owned()) })
}

/// At the highest rate, the scheme that costs least CPU time and the one that delays least.
fn signal(run: &Run) -> Option<Answer> {
    let name = if run.table("rates").is_some() { "rates" } else { "model" };
    let table = run.table(name)?;
    let cost = ["cpu_ratio", "receiver_ratio"]
        .into_iter()
        .find(|column| rows(table).any(|row| row.number(column).is_some()))?;
    let kept = |row: &Row<'_>| *row.get("is_over_capacity") != Value::Bool(true);
    let with = || rows(table).filter(kept).filter(move |row| row.number(cost).is_some());
    let rate = with().filter_map(|row| row.number("rate_hz")).fold(0.0, f64::max);
    let at_rate = || with().filter(move |row| row.number("rate_hz") == Some(rate));
    let smallest = |column: &str| {
        let with = at_rate().filter_map(|row| Some((row.number(column)?, row)));
        with.min_by(|a, b| a.0.total_cmp(&b.0))
    };
    let (share, cheapest) = smallest(cost)?;
    let what = if cost == "cpu_ratio" { "CPU time" } else { "the receiver's CPU time" };
    let fact = format!(
        "At {} events a second, {} costs least: {} of {what}.",
        human::number(rate),
        cheapest.alone("scheme"),
        human::percent(share)
    );
    let lever = smallest("latency_mean_ns").map(|(delay, fastest)| {
        let here = cheapest.number("latency_mean_ns").map(human::ns).unwrap_or_default();
        match fastest.alone("scheme") == cheapest.alone("scheme") {
            true => format!("It also delays least ({} on average).", human::ns(delay)),
            false => format!(
                "{} delays least ({} on average, not {here}), for {}.",
                fastest.alone("scheme"),
                human::ns(delay),
                fastest.number(cost).map(human::percent).unwrap_or_default()
            ),
        }
    });
    Some(Answer { fact, lever, table: Some(name.to_owned()) })
}

/// The answer of a comparison: how many figures changed, and the one that got worst.
pub fn of_comparison(run: &Run) -> String {
    let Some(table) = run.table("differences") else { return by_headline(run).fact };
    let is = |row: &Row<'_>, verdict: &str| is_text(row, "verdict", verdict);
    let count = |verdict: &str| rows(table).filter(|row| is(row, verdict)).count();
    // A long comparison lists what differs alone.
    let counted = |name: &str| run.settings.get(name).and_then(serde_json::Value::as_u64);
    let all = counted("figure_count").unwrap_or(table.row_count());
    let unclear = counted("undecided_count").unwrap_or(count("can't tell") as u64);
    let (worse, better) = (count("worse"), count("better"));
    let named = |verdict: &str| {
        let row =
            rows(table).find(|row| is(row, verdict) && row.number("change_ratio").is_some())?;
        let change = row.number("change_ratio")?;
        let sign = if change < 0.0 { "−" } else { "+" };
        let (what, column) = (row.alone("row"), row.alone("column"));
        Some(format!(" ({what} {column}: {sign}{})", human::percent(change.abs())))
    };
    let parts = [
        (worse, "worse", named("worse")),
        (better, "better", named("better")),
        (count("changed"), "changed", named("changed")),
        (count("missing"), "missing", None),
    ];
    let parts: Vec<String> = parts
        .into_iter()
        .filter(|(number, ..)| *number > 0)
        .map(|(number, word, name)| format!("{number} {word}{}", name.unwrap_or_default()))
        .collect();
    match parts.is_empty() {
        true if unclear == 0 => format!("Nothing changed: all {all} figures are equal."),
        true => {
            format!("No figure is known to have changed: of {all}, {unclear} cannot be decided.")
        }
        false => format!("Of {all} figures: {}; {unclear} cannot be decided.", parts.join(", ")),
    }
}
