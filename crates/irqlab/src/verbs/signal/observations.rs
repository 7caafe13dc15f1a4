//! Reads measured rows (scheme, rate, CPU use, latency) from a CSV file or from a run, for `signal fit` and `signal
//! advise --fit`.

use std::fs::File;
use std::io::Read;
use std::path::Path;

use anyhow::{Context, bail};
use lab::signal::observations::{Observations, of_csv, of_run};
use record::read_run;

use crate::options::Usage;

/// Largest CSV file that is read, bytes.
const FILE_BYTES_MAX: u64 = 16 << 20;

/// Reads measured rows from a CSV file, or from the first table of a run that has schemes and rates.
///
/// Fails when the file cannot be read or is too large, or a row is wrong.
pub fn read(path: &Path) -> anyhow::Result<Observations> {
    if path.is_dir() {
        let run = read_run(path)?;
        return of_run(&run).map_err(|error| Usage(format!("{}: {error}", path.display())).into());
    }
    let cannot = || format!("cannot read {}", path.display());
    let mut text = String::new();
    let file = File::open(path).with_context(cannot)?;
    file.take(FILE_BYTES_MAX + 1).read_to_string(&mut text).with_context(cannot)?;
    if text.len() as u64 > FILE_BYTES_MAX {
        bail!(Usage(format!("{}: more than {FILE_BYTES_MAX} bytes (give fewer rows)", cannot())));
    }
    of_csv(&text).map_err(|error| Usage(format!("{}: {error}", cannot())).into())
}
