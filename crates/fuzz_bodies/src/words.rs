//! Fuzz targets for readers of text that people write: models of machines, changes of a model, tables of
//! measurements, and values of options.

use std::hint::black_box;
use std::sync::LazyLock;

use lab::compare::Rule;
use lab::signal::observations;
use machine::SystemModel;
use machine::schema::{draw, set};
use signalling::{Scheme, Start, fit, parse_time_ns};
use sim::devices::Disk;

/// Inputs with more rows are read but not fitted. The fit takes long, and fuzzing is to test the reader.
const FITTED_ROWS_MAX: usize = 4;

/// Reads any text as the TOML file of a machine model.
pub(crate) fn machine_model(bytes: &[u8]) {
    let Ok(text) = std::str::from_utf8(bytes) else { return };
    use_model(text);
}

fn use_model(text: &str) {
    let Ok(model) = SystemModel::parse(text) else { return };
    black_box(draw(&model));
    black_box(model.blocking().ok());
    black_box(model.cores());
}

static ZEN3: LazyLock<String> = LazyLock::new(|| sim::models::text("zen3").expect("zen3"));

/// Reads any lines as values of `--set`, and changes a model of a real machine by them.
pub(crate) fn machine_set(bytes: &[u8]) {
    let Ok(text) = std::str::from_utf8(bytes) else { return };
    let assignments: Vec<&str> = text.lines().collect();
    if let Ok(changed) = set(&ZEN3, &assignments) {
        use_model(&changed);
    }
}

/// Reads any text as the CSV file of `signal fit`.
pub(crate) fn signal_csv(bytes: &[u8]) {
    let Ok(text) = std::str::from_utf8(bytes) else { return };
    let Ok(read) = observations::of_csv(text) else { return };
    if read.rows.len() <= FITTED_ROWS_MAX {
        black_box(fit(&read.rows, &Start::default()).ok());
    }
}

/// Reads each line as the value of each option that has its own syntax.
pub(crate) fn option_words(bytes: &[u8]) {
    let Ok(text) = std::str::from_utf8(bytes) else { return };
    for word in text.lines() {
        black_box(parse_time_ns(word).ok());
        if let Ok(scheme) = word.parse::<Scheme>() {
            // A scheme that is printed and read again is unchanged.
            assert_eq!(scheme.to_string().parse::<Scheme>().ok(), Some(scheme), "{word:?}");
        }
        black_box(word.parse::<Rule>().ok());
        black_box(word.parse::<Disk>().ok());
        black_box(live::footprint::geometry::parse(word).ok());
        if let Ok(cpus) = live::host::parse_cpu_list(word) {
            let text = live::host::format_cpu_list(&cpus);
            assert_eq!(live::host::parse_cpu_list(&text).ok(), Some(cpus), "{word:?}");
        }
    }
}
