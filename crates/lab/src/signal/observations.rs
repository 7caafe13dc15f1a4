//! Measured rows that costs are fitted to, from a CSV text or from a run. The verb `signal fit` reads them. The text
//! may come from anyone, so amounts have limits. The names of the columns are public.

use record::{Run, Table, Value, keys};
use signalling::{OBSERVATIONS_MAX, Observation, Scheme};

use super::Load;

/// Maximum number of columns of a file.
const COLUMNS_MAX: usize = 1_000;

/// A known column: its name, the field that it holds, and the factor that converts its unit to the field's unit.
type KnownColumn = (&'static str, Field, f64);

/// The quantities of an [`Observation`].
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

/// The columns of a file or a run that the fit can use.
const COLUMNS: [KnownColumn; 16] = [
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

/// Measured rows, and the ignored columns.
pub struct Observations {
    pub rows: Vec<Observation>,
    /// Names of unknown columns. Empty for a run.
    pub ignored: Vec<String>,
    /// Number of rows of a run that were left out because they have only contaminated windows.
    pub contaminated_count: usize,
    /// Number of rows of a run whose CPU use is negative by chance. The fit has only their latency.
    pub negative_cpu_count: usize,
}

/// A warning if the CPU use of `count` of `all` rows is not positive, so that the fit cannot use it. `None` if `count` is 0.
pub(super) fn negative_cpu_warning(count: usize, all: usize) -> Option<String> {
    (count > 0).then(|| {
        format!(
            "{count} of {all} rows {}, by chance: the fit uses only their latency, so costs near 0 are fitted too high \
             (measure longer, or at higher rates)",
            keys::NEGATIVE_CPU_USE
        )
    })
}

impl Observations {
    /// Warnings if rows were left out because they have only contaminated windows, or if the CPU use of rows was left out.
    #[must_use]
    pub fn warnings(&self) -> Vec<String> {
        let Observations { rows, contaminated_count, negative_cpu_count, .. } = self;
        let contaminated = (*contaminated_count > 0).then(|| {
            format!(
                "{contaminated_count} of {} rows {}: the fit leaves them out",
                contaminated_count + rows.len(),
                keys::ONLY_CONTAMINATED_WINDOWS
            )
        });
        let negative = negative_cpu_warning(*negative_cpu_count, rows.len());
        contaminated.into_iter().chain(negative).collect()
    }
}

/// Reads the rows of a CSV text with a heading. Skips lines that start with `#`.
///
/// Fails with the first error of the text, and its line.
pub fn of_csv(text: &str) -> Result<Observations, String> {
    let mut reader = csv::ReaderBuilder::new()
        .comment(Some(b'#'))
        .trim(csv::Trim::All)
        .from_reader(text.as_bytes());
    let names: Vec<String> =
        reader.headers().map_err(|error| error.to_string())?.iter().map(str::to_owned).collect();
    let (known_columns, ignored) = known_columns(&names)?;
    let mut rows = Vec::new();
    for record in reader.records() {
        let record = record.map_err(|error| error.to_string())?;
        let line = record.position().map_or(0, csv::Position::line);
        if rows.len() == OBSERVATIONS_MAX {
            return Err(format!("more than {OBSERVATIONS_MAX} rows (give fewer)"));
        }
        let cell = |position: usize| record.get(position).unwrap_or("").to_owned();
        let row = row(&known_columns, &names, cell);
        rows.push(row.map_err(|error| format!("line {line}: {error}"))?);
    }
    Ok(Observations { rows, ignored, contaminated_count: 0, negative_cpu_count: 0 })
}

/// Known columns, with their positions in the table.
type KnownColumns = Vec<(usize, KnownColumn)>;

/// Finds the known columns, and the names of the other columns.
///
/// Fails if two columns hold the same field, or a needed column is absent.
fn known_columns(names: &[String]) -> Result<(KnownColumns, Vec<String>), String> {
    if names.len() > COLUMNS_MAX {
        return Err(format!("more than {COLUMNS_MAX} columns"));
    }
    let mut found = KnownColumns::new();
    let mut ignored = Vec::new();
    for (position, name) in names.iter().enumerate() {
        match COLUMNS.iter().find(|(known, ..)| known == name) {
            None => ignored.push(name.clone()),
            Some((_, known_field, _))
                if found.iter().any(|(_, (_, field, _))| field == known_field) =>
            {
                return Err(format!(
                    "column {name:?}: another column holds this quantity (keep one)"
                ));
            }
            Some(column) => found.push((position, *column)),
        }
    }
    let has_field = |wanted: Field| found.iter().any(|(_, (_, field, _))| *field == wanted);
    let has_figure = has_field(Field::Cpu) || has_field(Field::Latency);
    if !has_field(Field::Scheme) || !has_field(Field::Rate) || !has_figure {
        let known: Vec<&str> = COLUMNS.iter().map(|(name, ..)| *name).collect();
        return Err(format!(
            "columns scheme and rate_hz, and cpu_ratio or latency_mean_ns, are needed (known: {})",
            known.join(", ")
        ));
    }
    Ok((found, ignored))
}

/// The observation in a row. `cell` returns the text of a cell by the position of its column. An empty text is an
/// absent value.
fn row(
    known_columns: &[(usize, KnownColumn)],
    names: &[String],
    cell: impl Fn(usize) -> String,
) -> Result<Observation, String> {
    let number = |wanted: Field| -> Result<Option<f64>, String> {
        let found = known_columns.iter().find(|(_, (_, field, _))| *field == wanted);
        let Some((position, (_, _, factor))) = found else {
            return Ok(None);
        };
        let text = cell(*position);
        if text.is_empty() {
            return Ok(None);
        }
        let value = text.parse::<f64>().ok().filter(|value| value.is_finite() && *value >= 0.0);
        let error = || format!("column {:?}: {text:.40?} is not a number >= 0", names[*position]);
        Ok(Some(value.ok_or_else(error)? * factor))
    };
    let scheme = known_columns.iter().find(|(_, (_, field, _))| *field == Field::Scheme);
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
/// Fails if the run has no such table, if the table has too many rows, if a row has an invalid value, or if all rows that
/// the fit could use have only contaminated windows.
pub fn of_run(run: &Run) -> Result<Observations, String> {
    let names = |table: &Table| -> Vec<String> {
        let names: Vec<&str> = table.columns.iter().map(|column| column.name.as_str()).collect();
        // Medians of windows replace means, and offered rates replace requested rates, as in the fit of `signal run`
        // itself. An empty name makes the replaced column unknown.
        let is_replaced = |name: &str| match name {
            "rate_hz" => names.contains(&"offered_hz"),
            "cpu_ratio" => names.contains(&"cpu_median_ratio"),
            "latency_mean_ns" => names.contains(&"latency_mean_median_ns"),
            // The run has judged overload with the delays of the schemes, which the fit does not know.
            "throughput_hz" => names.contains(&"is_over_capacity"),
            _ => false,
        };
        names
            .iter()
            .map(|name| if is_replaced(name) { String::new() } else { (*name).to_owned() })
            .collect()
    };
    let found =
        run.tables.iter().find_map(|table| Some((table, known_columns(&names(table)).ok()?.0)));
    let Some((table, known_columns)) = found else {
        return Err("the run has no table with columns scheme, rate_hz and cpu_ratio".to_owned());
    };
    let names = names(table);
    let (mut rows, mut contaminated_count, mut negative_cpu_count) = (Vec::new(), 0, 0);
    let cpu_position = known_columns.iter().find(|(_, (_, field, _))| *field == Field::Cpu);
    for (row_number, cells) in (1..).zip(table.rows()) {
        if !is_usable(table, cells) {
            continue;
        }
        if is_contaminated(table, cells) {
            contaminated_count += 1;
            continue;
        }
        if rows.len() == OBSERVATIONS_MAX {
            let name = &table.name;
            return Err(format!(
                "table {name} has more than {OBSERVATIONS_MAX} usable rows (give fewer)"
            ));
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
        let cpu = cpu_position.and_then(|(position, _)| cells[*position].number());
        negative_cpu_count += usize::from(cpu.is_some_and(|cpu| cpu < 0.0));
        let row = row(&known_columns, &names, cell);
        rows.push(row.map_err(|error| format!("table {}, row {row_number}: {error}", table.name))?);
    }
    if rows.is_empty() && contaminated_count > 0 {
        return Err(format!(
            "all {contaminated_count} rows of table {} that the fit could use {} (keep other work off both CPUs, and \
             measure again)",
            table.name,
            keys::ONLY_CONTAMINATED_WINDOWS
        ));
    }
    // A run has many columns for other purposes, so ignored columns are not reported.
    Ok(Observations { rows, ignored: Vec::new(), contaminated_count, negative_cpu_count })
}

/// Whether a row of a run has only contaminated windows. Tables of early versions lack column `is_contaminated`. Equal
/// counts of contaminated and used windows then count as contamination.
fn is_contaminated(table: &Table, cells: &[Value]) -> bool {
    let count = |column| match table.get(cells, column) {
        Some(Value::Uint(count)) => Some(*count),
        _ => None,
    };
    match table.get(cells, "is_contaminated") {
        Some(Value::Bool(is_contaminated)) => *is_contaminated,
        _ => count("contaminated_count").is_some_and(|contaminated| {
            contaminated > 0 && Some(contaminated) >= count("repetitions")
        }),
    }
}

/// Whether the fit can use a row: latency and CPU use must come from the same windows. `signal run` measures CPU use
/// only with the load `background`. Overloaded rows (`is_over_capacity`) are unusable. Without a column `load` or
/// `is_over_capacity`, all rows are usable in this respect.
fn is_usable(table: &Table, cells: &[Value]) -> bool {
    let background = Value::Text(Load::Background.word().to_owned());
    table.get(cells, "load").is_none_or(|load| *load == background)
        && table.get(cells, "is_over_capacity") != Some(&Value::Bool(true))
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
            error(&format!("{head}spin,1,1\niopoll,1,1\n")).contains("line 3: cannot read scheme")
        );
        assert!(error(&format!("{head}spin,1,-1\n")).contains("is not a number >= 0"));
        assert!(error(&format!("{head}spin,1,nan\n")).contains("is not a number >= 0"));
        assert!(error(&format!("{head}spin,,1\n")).contains("the rate is absent"));
        assert!(error(&format!("{head}spin,1\n")).contains("line: 2"));
        let many = "spin,1,1\n".repeat(OBSERVATIONS_MAX + 1);
        assert!(error(&format!("{head}{many}")).contains("more than 10000 rows"));
    }

    fn run_of(columns: Vec<record::Column>, rows: Vec<Vec<Value>>) -> Run {
        let mut table = Table::new("rates", "", columns);
        rows.into_iter().for_each(|row| table.push(row));
        Run {
            schema: record::SCHEMA.to_owned(),
            experiment: "signal".to_owned(),
            bench: "live".to_owned(),
            started_utc: String::new(),
            complete: true,
            host: serde_json::Map::new(),
            settings: serde_json::Map::new(),
            observer: serde_json::Map::new(),
            warnings: Vec::new(),
            absent: Vec::new(),
            tables: vec![table],
        }
    }

    #[test]
    fn a_run_says_itself_which_rows_are_overloaded() {
        use record::{Column, Kind};
        let columns = vec![
            Column::new("scheme", Kind::Text, "").key(),
            Column::new("rate_hz", Kind::Real, ""),
            Column::new("cpu_ratio", Kind::Real, ""),
            Column::new("throughput_hz", Kind::Real, ""),
            Column::new("is_over_capacity", Kind::Bool, ""),
        ];
        // 2.5 % of the events wait for the next tick when the window ends.
        let row = |throughput_hz: f64, is_over: bool| -> Vec<Value> {
            vec![
                "clocked:20ms".into(),
                1000.0.into(),
                0.1.into(),
                throughput_hz.into(),
                Value::Bool(is_over),
            ]
        };
        let read = of_run(&run_of(columns, vec![row(975.0, false), row(500.0, true)])).unwrap();
        let [usable] = &read.rows[..] else { panic!("{:?}", read.rows) };
        assert_eq!((usable.rate_hz, usable.throughput_hz), (1000.0, None));
    }

    #[test]
    fn contaminated_rows_of_a_run_are_left_out_with_a_warning() {
        use record::{Column, Kind};
        let columns = |flag: Option<Column>| {
            let columns = [
                Column::new("scheme", Kind::Text, "").key(),
                Column::new("rate_hz", Kind::Real, ""),
                Column::new("cpu_ratio", Kind::Real, ""),
                Column::new("repetitions", Kind::Uint, ""),
                Column::new("contaminated_count", Kind::Uint, ""),
            ];
            columns.into_iter().chain(flag).collect::<Vec<_>>()
        };
        let row = |rate_hz: f64, counts: [u64; 2], flag: Option<bool>| -> Vec<Value> {
            let [repetitions, contaminated] = counts.map(Value::from);
            let cells =
                [Value::from("drain"), rate_hz.into(), 0.1.into(), repetitions, contaminated];
            cells.into_iter().chain(flag.map(Value::Bool)).collect()
        };
        let flag = || Some(Column::new("is_contaminated", Kind::Bool, ""));
        // Two of four windows are contaminated and left out.
        let rows = vec![row(1e3, [2, 2], Some(false)), row(2e3, [4, 4], Some(true))];
        let read = of_run(&run_of(columns(flag()), rows)).unwrap();
        let rates: Vec<f64> = read.rows.iter().map(|row| row.rate_hz).collect();
        assert_eq!((rates, read.contaminated_count), (vec![1e3], 1));
        let [warning] = &read.warnings()[..] else { panic!("one warning") };
        assert!(warning.starts_with("1 of 2 rows have only contaminated windows"), "{warning}");
        // A table of an early version.
        let rows = vec![row(1e3, [3, 1], None), row(2e3, [4, 4], None)];
        let read = of_run(&run_of(columns(None), rows)).unwrap();
        assert_eq!((read.rows.len(), read.contaminated_count), (1, 1));
        let rows = vec![row(2e3, [4, 4], Some(true))];
        let error = of_run(&run_of(columns(flag()), rows)).err().expect("refused");
        assert!(error.starts_with("all 1 rows of table rates"), "{error}");
    }

    #[test]
    fn rows_with_a_negative_cpu_use_are_counted() {
        use record::{Column, Kind};
        let columns = vec![
            Column::new("scheme", Kind::Text, "").key(),
            Column::new("rate_hz", Kind::Real, ""),
            Column::new("cpu_ratio", Kind::Real, ""),
            Column::new("latency_mean_ns", Kind::Real, ""),
        ];
        let row = |rate_hz: f64, cpu: f64| -> Vec<Value> {
            vec!["drain".into(), rate_hz.into(), cpu.into(), 5_000.0.into()]
        };
        let rows = vec![row(1e3, -0.001), row(1e4, 0.001), row(1e5, 0.1)];
        let read = of_run(&run_of(columns, rows)).unwrap();
        assert_eq!((read.rows.len(), read.rows[0].cpu_ratio), (3, None));
        let [warning] = &read.warnings()[..] else { panic!("one warning") };
        assert!(warning.starts_with("1 of 3 rows have a CPU use of 0 or less"), "{warning}");
    }

    #[test]
    fn rows_of_a_run_are_limited_and_numbered_from_1() {
        use record::{Column, Kind};
        let run = |rows: Vec<Vec<Value>>| {
            let columns = vec![
                Column::new("scheme", Kind::Text, "").key(),
                Column::new("load", Kind::Text, "").key(),
                Column::new("rate_hz", Kind::Real, ""),
                Column::new("cpu_ratio", Kind::Real, ""),
            ];
            run_of(columns, rows)
        };
        let row = |scheme: &str, load: &str| -> Vec<Value> {
            vec![scheme.into(), load.into(), 1000.0.into(), 0.1.into()]
        };
        let error = |rows| of_run(&run(rows)).err().expect("refused");
        let wrong = error(vec![row("spin", "background"), row("iopoll", "background")]);
        assert!(wrong.starts_with("table rates, row 2: cannot read scheme"), "{wrong}");
        // Rows that the fit cannot use do not count.
        let mut rows = vec![row("spin", "background"); OBSERVATIONS_MAX];
        rows.splice(0..0, [row("spin", "idle"), row("spin", "idle")]);
        assert_eq!(of_run(&run(rows.clone())).unwrap().rows.len(), OBSERVATIONS_MAX);
        rows.push(row("spin", "background"));
        assert_eq!(error(rows), "table rates has more than 10000 usable rows (give fewer)");
    }
}
