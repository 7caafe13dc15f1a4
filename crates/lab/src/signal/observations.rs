//! Measured rows that the costs are fitted to, from a CSV text or from a run.

use record::{Run, Table, Value};
use signalling::{OBSERVATIONS_MAX, Observation, Scheme};

use super::Load;

/// Maximum number of columns of a file.
const COLUMNS_MAX: usize = 1_000;

/// A known column: its name, its field, and the factor that converts its unit to the field's unit.
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

/// The columns that a file or a run can have for the fit.
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

/// Measured rows, and the columns that were ignored.
pub struct Observations {
    pub rows: Vec<Observation>,
    /// Names of unknown columns.
    pub ignored: Vec<String>,
}

/// Reads the rows of a CSV text. Skips lines that start with `#`.
///
/// Returns the error in the text, with its line.
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
        let cell = |position: usize| record.get(position).unwrap_or("").to_owned();
        rows.push(row(&meanings, &names, cell).map_err(|error| format!("line {line}: {error}"))?);
    }
    Ok(Observations { rows, ignored })
}

/// Known columns, with their positions in the table.
type Meanings = Vec<(usize, Meaning)>;

/// Finds the known columns, and the names of the others.
fn meanings(names: &[String]) -> Result<(Meanings, Vec<String>), String> {
    if names.len() > COLUMNS_MAX {
        return Err(format!("more than {COLUMNS_MAX} columns"));
    }
    let mut found = Meanings::new();
    let mut ignored = Vec::new();
    for (position, name) in names.iter().enumerate() {
        match COLUMNS.iter().find(|(known, ..)| known == name) {
            None => ignored.push(name.clone()),
            Some(meaning) if found.iter().any(|(_, (_, field, _))| *field == meaning.1) => {
                return Err(format!("column {name:?}: another column holds the same (keep one)"));
            }
            Some(meaning) => found.push((position, *meaning)),
        }
    }
    let has = |wanted: Field| found.iter().any(|(_, (_, field, _))| *field == wanted);
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
    let number = |wanted: Field| -> Result<Option<f64>, String> {
        let found = meanings.iter().find(|(_, (_, field, _))| *field == wanted);
        let Some((position, (_, _, factor))) = found else {
            return Ok(None);
        };
        let text = cell(*position);
        if text.is_empty() {
            return Ok(None);
        }
        let value = text.parse::<f64>().ok().filter(|value| value.is_finite() && *value >= 0.0);
        let wrong = || format!("column {:?}: {text:.40?} is not a number >= 0", names[*position]);
        Ok(Some(value.ok_or_else(wrong)? * factor))
    };
    let scheme = meanings.iter().find(|(_, (_, field, _))| *field == Field::Scheme);
    let scheme = scheme.map(|(position, _)| cell(*position)).unwrap_or_default();
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

/// Reads the rows of the first table of a run that has schemes, rates, and CPU use or latency.
///
/// Fails if the run has no such table, or if a row is not a measurement.
pub fn of_run(run: &Run) -> Result<Observations, String> {
    let names = |table: &Table| -> Vec<String> {
        let names: Vec<&str> = table.columns.iter().map(|column| column.name.as_str()).collect();
        // Medians of windows replace means, and offered rates replace requested rates: the run's own fit
        // uses them, too.
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
    for (row_number, cells) in table.rows().iter().enumerate().take(OBSERVATIONS_MAX) {
        if !is_usable(table, cells) {
            continue;
        }
        let cell = |position: usize| match &cells[position] {
            Value::Text(text) => text.clone(),
            Value::Uint(number) => number.to_string(),
            Value::Int(number) => number.to_string(),
            // A small CPU use can be negative by chance. The fit cannot use it: it has no relative error.
            Value::Real(number) if *number < 0.0 => String::new(),
            Value::Real(number) => number.to_string(),
            Value::Absent | Value::Bool(_) => String::new(),
        };
        let row = row(&meanings, &names, cell);
        rows.push(row.map_err(|error| format!("table {}, row {row_number}: {error}", table.name))?);
    }
    // Do not report ignored columns: a run has many columns for other purposes.
    Ok(Observations { rows, ignored: Vec::new() })
}

/// Whether a row's latency and CPU use are from the same windows. `signal run` measures CPU use only with the load
/// `background`. Rows of other loads have latencies without it.
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
        assert!(error(&format!("{head}spin,1,-1\n")).contains("is not a number >= 0"));
        assert!(error(&format!("{head}spin,1,nan\n")).contains("is not a number >= 0"));
        assert!(error(&format!("{head}spin,,1\n")).contains("the rate is absent"));
        assert!(error(&format!("{head}spin,1\n")).contains("line: 2"));
        let many = "spin,1,1\n".repeat(OBSERVATIONS_MAX + 1);
        assert!(error(&format!("{head}{many}")).contains("more than 10000 rows"));
    }
}
