//! What was published: a data file, read with bounds.

use serde::Deserialize;
use signalling::{BUDGET_DEFAULT, Scheme};

use super::super::sample::Load;
use crate::published::{PublishedError, at_most, read, short};

/// The figures of the paper `signal-afterburner`.
const TEXT: &str = include_str!("../../../../../papers/signal-afterburner.toml");

/// Most tables, rows of a table, columns of a row, and round trips.
const ITEMS_MAX: usize = 64;

/// A paper's figures.
#[derive(Clone, Debug, PartialEq)]
pub struct Published {
    pub title: String,
    /// Its tables of throughput, in order.
    pub tables: Vec<PublishedTable>,
    pub round_trips: Vec<PublishedRoundTrip>,
}

/// A table of throughput.
#[derive(Clone, Debug, PartialEq)]
pub struct PublishedTable {
    pub number: u32,
    /// What was measured.
    pub title: String,
    /// What else ran on the receiving CPU.
    pub load: Load,
    /// The columns: the paper's words, and the scheme that they mean.
    pub schemes: Vec<(String, Scheme)>,
    /// Size of the socket buffers, bytes; Mbit/s by column.
    pub rows: Vec<(u64, Vec<f64>)>,
}

/// Round trips of one scheme.
#[derive(Clone, Debug, PartialEq)]
pub struct PublishedRoundTrip {
    pub scheme: Scheme,
    /// Whether a bulk transfer ran meanwhile.
    pub bulk: bool,
    /// Minimum, mean and maximum, ns.
    pub ns: [f64; 3],
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct RawPaper {
    #[allow(dead_code)] // for who reads the file
    name: String,
    title: String,
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

fn wrong(what: impl Into<String>) -> PublishedError {
    PublishedError::new(what)
}

/// The scheme that the paper's words mean. Its interrupt handler took all packets that were there.
fn scheme(words: &str) -> Result<Scheme, PublishedError> {
    match words {
        "interrupt" => Ok(Scheme::Drain { budget: BUDGET_DEFAULT }),
        "poll" => Ok(Scheme::Spin),
        _ => {
            let rate = words.strip_prefix("clock ").map(|rate| rate.replace(' ', ""));
            let parsed = rate.and_then(|rate| format!("clocked:{rate}").parse().ok());
            parsed.ok_or_else(|| wrong(format!("no scheme: {words:.40?}")))
        }
    }
}

impl Published {
    /// The paper's figures.
    ///
    /// # Errors
    /// As [`Published::parse`].
    pub fn signal_afterburner() -> Result<Published, PublishedError> {
        Published::parse(TEXT)
    }

    /// Reads figures.
    ///
    /// # Errors
    /// When it is not TOML, is too long, or names loads and schemes that do not exist.
    pub fn parse(text: &str) -> Result<Published, PublishedError> {
        let raw: RawPaper = read(text)?;
        at_most(raw.table.len().max(raw.round_trip.len()), ITEMS_MAX, "tables or round trips")?;
        let tables = raw.table.into_iter().map(table).collect::<Result<_, _>>()?;
        let round_trip = |raw: RawRoundTrip| {
            let ns = raw.ms.map(|ms| f64::from(ms) * 1e6);
            Ok(PublishedRoundTrip { scheme: scheme(&raw.scheme)?, bulk: raw.bulk, ns })
        };
        let round_trips = raw.round_trip.into_iter().map(round_trip).collect::<Result<_, _>>()?;
        Ok(Published { title: short(raw.title)?, tables, round_trips })
    }

    /// All schemes of its tables, once.
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

    /// All sizes of socket buffers of its tables, once, bytes.
    #[must_use]
    pub fn socket_buffers_bytes(&self) -> Vec<u64> {
        let rows = self.tables.iter().flat_map(|table| &table.rows);
        let mut sizes: Vec<u64> = rows.map(|(bytes, _)| *bytes).collect();
        sizes.sort_unstable();
        sizes.dedup();
        sizes
    }

    /// Throughput in a table, Mbit/s.
    #[must_use]
    pub fn mbit_per_s(&self, number: u32, scheme: Scheme, bytes: u64) -> Option<f64> {
        let table = self.tables.iter().find(|table| table.number == number)?;
        let column = table.schemes.iter().position(|(_, one)| *one == scheme)?;
        let (_, row) = table.rows.iter().find(|(size, _)| *size == bytes)?;
        row.get(column).copied()
    }

    /// Minimum, mean and maximum of the round trips of a scheme, ns.
    #[must_use]
    pub fn round_trip_ns(&self, scheme: Scheme, bulk: bool) -> Option<[f64; 3]> {
        let found = self.round_trips.iter().find(|one| one.scheme == scheme && one.bulk == bulk);
        found.map(|one| one.ns)
    }
}

fn table(raw: RawTable) -> Result<PublishedTable, PublishedError> {
    let place = format!("table {}", raw.number);
    at_most(raw.rows.len().max(raw.schemes.len()), ITEMS_MAX, "rows or schemes")
        .map_err(|error| error.at(&place))?;
    let load = Load::ALL.into_iter().find(|load| load.word() == raw.load);
    let load = load.ok_or_else(|| wrong(format!("no load: {:.40?}", raw.load)))?;
    let named = |words: String| Ok((words.clone(), scheme(&words)?));
    let schemes: Vec<_> = raw.schemes.into_iter().map(named).collect::<Result<_, _>>()?;
    let row = |row: RawRow| {
        let are_figures = row.mbit_per_s.iter().all(|rate| rate.is_finite() && *rate > 0.0);
        if row.mbit_per_s.len() != schemes.len() || !are_figures {
            return Err(wrong("a row that is none").at(&place));
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
        let paper = Published::signal_afterburner().unwrap();
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
            ("[6.75,", "[", "a row that is none"),
            ("[6.75,", "[-6.75,", "a row that is none"),
            ("socket_buffer_kb = 1,", "socket_buffer_kb = -1,", "published figures"),
        ] {
            assert!(TEXT.contains(from), "{from}");
            let error = Published::parse(&TEXT.replacen(from, to, 1)).unwrap_err().to_string();
            assert!(error.contains(says), "{to}: {error}");
        }
    }
}
