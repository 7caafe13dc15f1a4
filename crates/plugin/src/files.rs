//! Reads and parses the files that the options name, when QEMU loads the plugin. `install` and `recording_models` call
//! it.

use std::fs::File;
use std::io::Read;
use std::path::Path;

use plugin_interface::symbols::FILE_BYTES_MAX;

/// The parsed content of a file, or the default value if the options name no file.
///
/// Fails if the file cannot be read or is longer than [`FILE_BYTES_MAX`], or if `parse_text` fails.
pub(crate) fn parse_given<T: Default>(
    path: Option<&Path>,
    parse_text: fn(&str) -> Result<T, String>,
) -> Result<T, String> {
    path.map_or_else(|| Ok(T::default()), |path| parse(path, parse_text))
}

/// The parsed content of a file.
///
/// Fails if the file cannot be read or is longer than [`FILE_BYTES_MAX`], or if `parse` fails. The error names the
/// file.
pub(crate) fn parse<T>(
    path: &Path,
    parse: impl Fn(&str) -> Result<T, String>,
) -> Result<T, String> {
    let in_file = |error: String| format!("{}: {error}", path.display());
    let mut text = String::new();
    let file = File::open(path).map_err(|error| in_file(error.to_string()))?;
    let read = file.take(FILE_BYTES_MAX + 1).read_to_string(&mut text);
    read.map_err(|error| in_file(error.to_string()))?;
    if text.len() as u64 > FILE_BYTES_MAX {
        return Err(in_file(format!("longer than {FILE_BYTES_MAX} bytes")));
    }
    parse(&text).map_err(in_file)
}
