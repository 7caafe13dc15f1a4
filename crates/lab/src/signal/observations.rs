//! Measured rows to fit costs to, from a CSV text or from a run.

use record::{Run, Table, Value};
use signalling::{OBSERVATIONS_MAX, Observation, Scheme};

use super::Load;

/// Most columns of a file.
const COLUMNS_MAX: usize = 1_000;

/// What a column of a file holds, and what makes its unit of the one used here.
type Meaning = (&'static str, Field, f64);

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Field {
    Scheme,
    Rate,
    Cpu,
    CpuError,
    Latency,
    LatencyError,
    Throughput,
    Interrupts,
}

/// The columns that are read, by their exact names.
const COLUMNS: [Meaning; 16] = [
    ("scheme", Field::Scheme, 1.0),
    ("mode", Field::Scheme, 1.0),
    ("rate_hz", Field::Rate, 1.0),
    ("load_hz", Field::Rate, 1.0),
    ("offered_hz", Field::Rate, 1.0),
    ("cpu_ratio", Field::Cpu, 1.0),
    ("cpu_percent", Field::Cpu, 0.01),
    ("cpu_median_ratio", Field::Cpu, 1.0),
    ("cpu_standard_error_ratio", Field::CpuError, 1.0),
    ("latency_mean_median_ns", Field::Latency, 1.0),
    ("latency_standard_error_ns", Field::LatencyError, 1.0),
    ("latency_mean_ns", Field::Latency, 1.0),
    ("latency_mean_us", Field::Latency, 1e3),
    ("latency_mean_ms", Field::Latency, 1e6),
    ("throughput_hz", Field::Throughput, 1.0),
    ("interrupts_hz", Field::Interrupts, 1.0),
];

/// Measured rows, and what was not read.
pub struct Observations {
    pub rows: Vec<Observation>,
    /// Columns that have no meaning here.
    pub ignored: Vec<String>,
}

/// The rows of a CSV text; lines that start with # do not count.
///
/// # Errors
/// What is wrong with the text, with the line.
pub fn of_csv(text: &str) -> Result<Observations, String> {
    let mut reader = csv::ReaderBuilder::new()
        .comment(Some(b'#'))
        .trim(csv::Trim::All)
        .from_reader(text.as_bytes());
    let names: Vec<String> =
        reader.headers().map_err(|error| error.to_string())?.iter().map(str::to_owned).collect();
    let (meanings, ignored) = meanings(&names)?;
    let mut rows = Vec::new();
    for record in reader.records() {
        let record = record.map_err(|error| error.to_string())?;
        let line = record.position().map_or(0, csv::Position::line);
        if rows.len() == OBSERVATIONS_MAX {
            return Err(format!("more than {OBSERVATIONS_MAX} rows (give fewer)"));
        }
        let cell = |at: usize| record.get(at).unwrap_or("").to_owned();
        rows.push(row(&meanings, &names, cell).map_err(|error| format!("line {line}: {error}"))?);
    }
    Ok(Observations { rows, ignored })
}

/// What the columns at these positions mean.
type Meanings = Vec<(usize, Meaning)>;

/// What each column means, and the names of those that mean nothing here.
fn meanings(names: &[String]) -> Result<(Meanings, Vec<String>), String> {
    if names.len() > COLUMNS_MAX {
        return Err(format!("more than {COLUMNS_MAX} columns"));
    }
    let mut found = Meanings::new();
    let mut ignored = Vec::new();
    for (at, name) in names.iter().enumerate() {
        match COLUMNS.iter().find(|(known, ..)| known == name) {
            None => ignored.push(name.clone()),
            Some(meaning) if found.iter().any(|(_, (_, field, _))| *field == meaning.1) => {
                return Err(format!("column {name:?}: another column holds the same (keep one)"));
            }
            Some(meaning) => found.push((at, *meaning)),
        }
    }
    let has = |field: Field| found.iter().any(|(_, (_, one, _))| *one == field);
    if !has(Field::Scheme) || !has(Field::Rate) || !(has(Field::Cpu) || has(Field::Latency)) {
        let known: Vec<&str> = COLUMNS.iter().map(|(name, ..)| *name).collect();
        return Err(format!(
            "columns scheme and rate_hz, and cpu_ratio or latency_mean_ns, are needed (known: {})",
            known.join(", ")
        ));
    }
    Ok((found, ignored))
}

fn row(
    meanings: &[(usize, Meaning)],
    names: &[String],
    cell: impl Fn(usize) -> String,
) -> Result<Observation, String> {
    let number = |field: Field| -> Result<Option<f64>, String> {
        let Some((at, (_, _, factor))) = meanings.iter().find(|(_, (_, one, _))| *one == field)
        else {
            return Ok(None);
        };
        let text = cell(*at);
        if text.is_empty() {
            return Ok(None);
        }
        let value = text.parse::<f64>().ok().filter(|value| value.is_finite() && *value >= 0.0);
        let wrong = || format!("column {:?}: {text:.40?} is no number from 0 on", names[*at]);
        Ok(Some(value.ok_or_else(wrong)? * factor))
    };
    let scheme = meanings.iter().find(|(_, (_, one, _))| *one == Field::Scheme);
    let scheme = scheme.map(|(at, _)| cell(*at)).unwrap_or_default();
    let scheme: Scheme = scheme.parse().map_err(|error| format!("{error}"))?;
    let rate_hz = number(Field::Rate)?.ok_or("the rate is absent")?;
    Ok(Observation {
        cpu_ratio: number(Field::Cpu)?,
        cpu_standard_error_ratio: number(Field::CpuError)?,
        latency_mean_ns: number(Field::Latency)?,
        latency_standard_error_ns: number(Field::LatencyError)?,
        throughput_hz: number(Field::Throughput)?,
        interrupts_hz: number(Field::Interrupts)?,
        ..Observation::new(scheme, rate_hz)
    })
}

/// The rows of the first table of a run that has schemes, rates, and CPU use or latency.
///
/// # Errors
/// When the run has no such table, or a row that is no measurement.
pub fn of_run(run: &Run) -> Result<Observations, String> {
    let names = |table: &Table| -> Vec<String> {
        let names: Vec<&str> = table.columns.iter().map(|column| column.name.as_str()).collect();
        // Where a table has means and medians of windows, or rates that were asked for and that were
        // offered, its own fit is made of the latter.
        let replaced = |name: &str| match name {
            "rate_hz" => names.contains(&"offered_hz"),
            "cpu_ratio" => names.contains(&"cpu_median_ratio"),
            "latency_mean_ns" => names.contains(&"latency_mean_median_ns"),
            _ => false,
        };
        names
            .iter()
            .map(|name| if replaced(name) { String::new() } else { (*name).to_owned() })
            .collect()
    };
    let found = run.tables.iter().find_map(|table| Some((table, meanings(&names(table)).ok()?.0)));
    let Some((table, meanings)) = found else {
        return Err("the run has no table with columns scheme, rate_hz and cpu_ratio".to_owned());
    };
    let names = names(table);
    let mut rows = Vec::new();
    for (at, cells) in table.rows().iter().enumerate().take(OBSERVATIONS_MAX) {
        if !is_usable(table, cells) {
            continue;
        }
        let cell = |at: usize| match &cells[at] {
            Value::Text(text) => text.clone(),
            Value::Uint(number) => number.to_string(),
            Value::Int(number) => number.to_string(),
            // Chance can make a small CPU use negative; that has no relative error.
            Value::Real(number) if *number < 0.0 => String::new(),
            Value::Real(number) => number.to_string(),
            Value::Absent | Value::Bool(_) => String::new(),
        };
        let row = row(&meanings, &names, cell);
        rows.push(row.map_err(|error| format!("table {}, row {at}: {error}", table.name))?);
    }
    // A run has many columns, with good reason.
    Ok(Observations { rows, ignored: Vec::new() })
}

/// Whether a row's latency belongs to its CPU use: `signal run` measures CPU use with a job of the lowest
/// priority on the receiver's CPU, which changes the latency, and latency without it, too.
fn is_usable(table: &Table, cells: &[Value]) -> bool {
    let background = Value::Text(Load::Background.word().to_owned());
    table.get(cells, "load").is_none_or(|load| *load == background)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_has_its_units_in_its_names() {
        let text = "# by hand\nmode,load_hz,cpu_percent,latency_mean_us,host\n\
                    interrupt,1000,0.5,5.5,a\n\"coalesced:32,50us\",2e3,,7,b\n";
        let read = of_csv(text).unwrap();
        assert_eq!(read.ignored, ["host"]);
        assert_eq!(read.rows.len(), 2);
        assert_eq!(read.rows[0].cpu_ratio, Some(0.005));
        assert_eq!(read.rows[0].latency_mean_ns, Some(5_500.0));
        assert_eq!((read.rows[1].rate_hz, read.rows[1].cpu_ratio), (2_000.0, None));
        assert_eq!(read.rows[1].scheme.to_string(), "coalesced:32,50us");
    }

    #[test]
    fn what_is_no_measurement_is_refused_by_its_line() {
        let error = |text: &str| of_csv(text).err().expect("refused");
        assert!(error("").contains("columns scheme and rate_hz"));
        assert!(error("scheme,rate_hz\nspin,1\n").contains("cpu_ratio or latency_mean_ns"));
        assert!(error("scheme,mode,rate_hz,cpu_ratio\n").contains("keep one"));
        let head = "scheme,rate_hz,cpu_ratio\n";
        assert!(
            error(&format!("{head}spin,1,1\npoll,1,1\n")).contains("line 3: cannot read scheme")
        );
        assert!(error(&format!("{head}spin,1,-1\n")).contains("no number from 0 on"));
        assert!(error(&format!("{head}spin,1,nan\n")).contains("no number from 0 on"));
        assert!(error(&format!("{head}spin,,1\n")).contains("the rate is absent"));
        assert!(error(&format!("{head}spin,1\n")).contains("line: 2"));
        let many = "spin,1,1\n".repeat(OBSERVATIONS_MAX + 1);
        assert!(error(&format!("{head}{many}")).contains("more than 10000 rows"));
    }
}
