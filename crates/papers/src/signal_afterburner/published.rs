//! The published figures of `signal-afterburner`, from its data file. The fields of
//! the `Raw` types are the keys of that file.

use lab::signal::Load;
use serde::Deserialize;
use signalling::{BUDGET_DEFAULT, Scheme};

use crate::published::{PublishedError, at_most, read, short};

/// The data file of the paper `signal-afterburner`.
const TEXT: &str = include_str!("../../../../papers/signal-afterburner.toml");

/// Maximum number of tables, rows of a table, columns of a row, and round trips.
const ITEMS_MAX: usize = 64;

/// The published figures of a paper.
#[derive(Clone, Debug, PartialEq)]
pub struct Paper {
    pub title: String,
    /// The tables of throughput, in the paper's order.
    pub tables: Vec<PublishedTable>,
    pub round_trips: Vec<PublishedRoundTrip>,
    /// The step in which the paper prints the round trips, ns.
    pub round_trip_step_ns: f64,
}

/// A table of throughput by size of the socket buffers and scheme.
#[derive(Clone, Debug, PartialEq)]
pub struct PublishedTable {
    pub number: u32,
    /// The paper's title of the table.
    pub title: String,
    /// The competing load on the receiving CPU.
    pub load: Load,
    /// The columns: the paper's name of a scheme, and the scheme.
    pub schemes: Vec<(String, Scheme)>,
    /// Each row has the size of the socket buffers in bytes, and Mbit/s by column.
    pub rows: Vec<(u64, Vec<f64>)>,
}

/// Round trips of one scheme.
#[derive(Clone, Debug, PartialEq)]
pub struct PublishedRoundTrip {
    pub scheme: Scheme,
    /// Whether a bulk transfer ran during the round trips.
    pub bulk: bool,
    /// Minimum, mean and maximum, ns.
    pub ns: [f64; 3],
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct RawPaper {
    #[allow(dead_code)] // only for readers of the file
    name: String,
    title: String,
    round_trip_step_ms: u32,
    table: Vec<RawTable>,
    round_trip: Vec<RawRoundTrip>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct RawTable {
    number: u32,
    title: String,
    load: String,
    schemes: Vec<String>,
    rows: Vec<RawRow>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct RawRow {
    socket_buffer_kb: u32,
    mbit_per_s: Vec<f64>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct RawRoundTrip {
    scheme: String,
    bulk: bool,
    ms: [u32; 3],
}

fn wrong(reason: impl Into<String>) -> PublishedError {
    PublishedError::new(reason)
}

/// The scheme with the paper's `name`. The paper's interrupt handler takes all waiting packets.
fn scheme(name: &str) -> Result<Scheme, PublishedError> {
    match name {
        "interrupt" => Ok(Scheme::Drain { budget: BUDGET_DEFAULT }),
        "poll" => Ok(Scheme::Spin),
        _ => {
            let rate = name.strip_prefix("clock ").map(|rate| rate.replace(' ', ""));
            let parsed = rate.and_then(|rate| format!("clocked:{rate}").parse().ok());
            parsed.ok_or_else(|| wrong(format!("no scheme: {name:.40?}")))
        }
    }
}

impl Paper {
    /// Reads the figures that are built into the program.
    ///
    /// Fails if the text is not TOML, is too long, or names unknown loads or schemes.
    pub fn built_in() -> Result<Paper, PublishedError> {
        Paper::parse(TEXT)
    }

    fn parse(text: &str) -> Result<Paper, PublishedError> {
        let raw: RawPaper = read(text)?;
        at_most(raw.table.len().max(raw.round_trip.len()), ITEMS_MAX, "tables or round trips")?;
        let tables = raw.table.into_iter().map(table).collect::<Result<_, _>>()?;
        let round_trip = |raw: RawRoundTrip| {
            let ns = raw.ms.map(|ms| f64::from(ms) * 1e6);
            Ok(PublishedRoundTrip { scheme: scheme(&raw.scheme)?, bulk: raw.bulk, ns })
        };
        let round_trips = raw.round_trip.into_iter().map(round_trip).collect::<Result<_, _>>()?;
        let round_trip_step_ns = f64::from(raw.round_trip_step_ms) * 1e6;
        Ok(Paper { title: short(raw.title)?, tables, round_trips, round_trip_step_ns })
    }

    /// The schemes of all tables, without duplicates.
    #[must_use]
    pub fn schemes(&self) -> Vec<Scheme> {
        let mut schemes = Vec::new();
        for (_, scheme) in self.tables.iter().flat_map(|table| &table.schemes) {
            if !schemes.contains(scheme) {
                schemes.push(*scheme);
            }
        }
        schemes
    }

    /// The sizes of socket buffers in all tables, without duplicates, in bytes.
    #[must_use]
    pub fn socket_buffers_bytes(&self) -> Vec<u64> {
        let rows = self.tables.iter().flat_map(|table| &table.rows);
        let mut sizes: Vec<u64> = rows.map(|(bytes, _)| *bytes).collect();
        sizes.sort_unstable();
        sizes.dedup();
        sizes
    }

    /// Throughput in the table `number`, Mbit/s. `bytes` is the size of the socket buffers. `None` if the paper has no such
    /// table, column or row.
    #[must_use]
    pub fn mbit_per_s(&self, number: u32, scheme: Scheme, bytes: u64) -> Option<f64> {
        let table = self.tables.iter().find(|table| table.number == number)?;
        let column = table.schemes.iter().position(|(_, column)| *column == scheme)?;
        let (_, row) = table.rows.iter().find(|(size, _)| *size == bytes)?;
        row.get(column).copied()
    }

    /// Minimum, mean and maximum of the round trips of a scheme, ns. `None` if the paper did not measure the scheme.
    #[must_use]
    pub fn round_trip_ns(&self, scheme: Scheme, bulk: bool) -> Option<[f64; 3]> {
        let trips =
            self.round_trips.iter().find(|trips| trips.scheme == scheme && trips.bulk == bulk);
        trips.map(|trips| trips.ns)
    }
}

/// Checks a table of the data file: each row has a positive figure for each scheme.
fn table(raw: RawTable) -> Result<PublishedTable, PublishedError> {
    let table_name = format!("table {}", raw.number);
    at_most(raw.rows.len().max(raw.schemes.len()), ITEMS_MAX, "rows or schemes")
        .map_err(|error| error.in_part(&table_name))?;
    let load = Load::ALL.into_iter().find(|load| load.word() == raw.load);
    let load = load.ok_or_else(|| wrong(format!("no load: {:.40?}", raw.load)))?;
    let with_scheme = |name: String| Ok((name.clone(), scheme(&name)?));
    let schemes: Vec<_> = raw.schemes.into_iter().map(with_scheme).collect::<Result<_, _>>()?;
    let row = |row: RawRow| {
        let are_figures = row.mbit_per_s.iter().all(|rate| rate.is_finite() && *rate > 0.0);
        if row.mbit_per_s.len() != schemes.len() || !are_figures {
            return Err(wrong("a row without a valid figure for each scheme").in_part(&table_name));
        }
        Ok((u64::from(row.socket_buffer_kb) * 1024, row.mbit_per_s))
    };
    let rows = raw.rows.into_iter().map(row).collect::<Result<_, _>>()?;
    Ok(PublishedTable { number: raw.number, title: short(raw.title)?, load, schemes, rows })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_papers_figures_are_read() {
        let paper = Paper::built_in().unwrap();
        assert_eq!(paper.tables.len(), 3);
        assert!(paper.tables.iter().all(|table| table.rows.len() == 9));
        let clock = |hz: u64| Scheme::Clocked { period_ns: 1_000_000_000 / hz };
        assert_eq!(paper.mbit_per_s(1, Scheme::Spin, 8 * 1024), Some(37.27));
        assert_eq!(paper.mbit_per_s(2, clock(2500), 256 * 1024), Some(215.15));
        assert_eq!(paper.mbit_per_s(3, clock(500), 64 * 1024), Some(92.07));
        assert_eq!(paper.mbit_per_s(3, clock(2500), 64 * 1024), None);
        assert_eq!(paper.round_trip_ns(clock(500), true), Some([4e6, 11e6, 25e6]));
        assert_eq!((paper.schemes().len(), paper.socket_buffers_bytes().len()), (8, 9));
    }

    #[test]
    fn what_is_no_figure_is_refused() {
        for (from, to, says) in [
            ("load = \"idle\"", "load = \"full\"", "no load"),
            ("\"poll\"", "\"pole\"", "no scheme"),
            ("[6.75,", "[", "a row without a valid figure"),
            ("[6.75,", "[-6.75,", "a row without a valid figure"),
            ("socket_buffer_kb = 1,", "socket_buffer_kb = -1,", "published figures"),
        ] {
            assert!(TEXT.contains(from), "{from}");
            let error = Paper::parse(&TEXT.replacen(from, to, 1)).unwrap_err().to_string();
            assert!(error.contains(says), "{to}: {error}");
        }
    }
}
