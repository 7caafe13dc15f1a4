//! Readers of text that people write: models of machines, changes of a model, tables of measurements, values of
//! options.

use std::hint::black_box;
use std::sync::LazyLock;

use lab::compare::Rule;
use lab::signal::observations;
use machine::SystemModel;
use machine::schema::{draw, set};
use signalling::{Scheme, Start, fit, parse_time_ns};
use sim::devices::Disk;

/// Maximum number of rows that costs are fitted to. The fit takes long, and is not the subject of the fuzzing.
const FITTED_ROWS_MAX: usize = 4;

/// Any text as the TOML file of a machine model.
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

/// Any lines as the words of `--set`, on a model of a real machine.
pub(crate) fn machine_set(bytes: &[u8]) {
    let Ok(text) = std::str::from_utf8(bytes) else { return };
    let assignments: Vec<&str> = text.lines().collect();
    if let Ok(changed) = set(&ZEN3, &assignments) {
        use_model(&changed);
    }
}

/// Any text as the CSV file of `signal fit`.
pub(crate) fn signal_csv(bytes: &[u8]) {
    let Ok(text) = std::str::from_utf8(bytes) else { return };
    let Ok(read) = observations::of_csv(text) else { return };
    if read.rows.len() <= FITTED_ROWS_MAX {
        black_box(fit(&read.rows, &Start::default()).ok());
    }
}

/// Any lines as the words of options that have a syntax of their own.
pub(crate) fn option_words(bytes: &[u8]) {
    let Ok(text) = std::str::from_utf8(bytes) else { return };
    for word in text.lines() {
        black_box(parse_time_ns(word).ok());
        if let Ok(scheme) = word.parse::<Scheme>() {
            // A printed scheme is read as the same scheme.
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
