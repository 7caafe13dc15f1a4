//! Responses: their version, their lines and their bounds. The irqlab in the guest calls [`encode`], and the simulated
//! bench calls [`decode`]. The bounds limit how much memory and time a guest can cost the host.

use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};

use crate::experiment::BenchError;

/// Version of the requests and responses that this irqlab sends and reads. Every change of
/// a request or an item needs a new version.
pub const VERSION: u32 = 5;
/// Maximum length of a line of a response, bytes. The guest's first process quotes the line in a message, where it
/// is at most twice as long.
pub const LINE_BYTES_MAX: usize = 120 << 10;
/// Maximum length of a response, bytes.
pub const RESPONSE_BYTES_MAX: usize = 16 << 20;
/// Maximum number of lines of a response.
pub const RESPONSE_LINES_MAX: usize = 1 << 16;

/// The remedy in an error message, if host and guest do not have the same irqlab.
pub(super) const REMEDY: &str =
    "save the checkpoint again with this irqlab: irqlab sim checkpoint NAME --with-irqlab";

/// The version of a request or a response. Parsing it ignores all other fields.
#[derive(Serialize, Deserialize)]
pub(super) struct Head {
    pub(super) version: u32,
}

impl Head {
    /// Fails with the reason and the remedy if the version is not [`VERSION`].
    pub(super) fn check(&self) -> Result<(), String> {
        let version = self.version;
        if version == VERSION {
            Ok(())
        } else {
            Err(format!("it has version {version}, not {VERSION} ({REMEDY})"))
        }
    }
}

/// A line of a response after the first one.
#[derive(Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
enum Line<T> {
    Item(T),
    Done,
    Error(BenchError),
}

/// The response of an experiment, assembled from items: [`decode`] starts with the default and adds each item.
pub trait Response: Default {
    /// A part of the response that fits into a line.
    type Item: Serialize + DeserializeOwned;

    /// Adds the next item.
    ///
    /// Fails if the item exceeds a bound, or does not follow the items before it.
    fn add(&mut self, item: Self::Item) -> Result<(), String>;

    /// Checks the whole response after its last item. The error is the end of a message: what is wrong with it.
    fn check(&self) -> Result<(), String>;
}

/// The lines of a response, each at most [`LINE_BYTES_MAX`] bytes long. An item that is
/// too long ends the response with an error.
#[must_use]
pub fn encode<T: Serialize>(response: Result<Vec<T>, BenchError>) -> Vec<String> {
    let mut lines = Vec::new();
    let written = write_items(response, &mut lines);
    let last = written.map_or_else(Line::Error, |()| Line::<()>::Done);
    // The text of an error may be too long for a line.
    lines.push(json(&last).unwrap_or_else(|_| {
        r#"{"error":{"failed":"the error of the guest is too long"}}"#.to_owned()
    }));
    lines
}

/// Writes the version and the items. Fails with the error of the response, or if an item is too long.
fn write_items<T: Serialize>(
    response: Result<Vec<T>, BenchError>,
    lines: &mut Vec<String>,
) -> Result<(), BenchError> {
    lines.push(json(&Head { version: VERSION })?);
    for item in response? {
        lines.push(json(&Line::Item(item))?);
    }
    Ok(())
}

/// `line` as JSON. Fails if it is longer than [`LINE_BYTES_MAX`].
fn json(line: &impl Serialize) -> Result<String, BenchError> {
    let failed = |why: String| BenchError::Failed(format!("cannot write the response: {why}"));
    let line = serde_json::to_string(line).map_err(|error| failed(error.to_string()))?;
    match line.len() {
        0..=LINE_BYTES_MAX => Ok(line),
        bytes => Err(failed(format!("a line has {bytes} bytes; the maximum is {LINE_BYTES_MAX}"))),
    }
}

/// Reads a response. Lines before its version are other output of the guest, and are skipped.
///
/// Fails with the error that the guest reports, or if the response is malformed or beyond a bound.
pub fn decode<'a, R: Response>(lines: impl IntoIterator<Item = &'a str>) -> Result<R, BenchError> {
    let wrong = |why: &str| BenchError::Failed(format!("cannot read the guest's response: {why}"));
    let mut lines = lines.into_iter();
    let head = lines.find_map(|line| serde_json::from_str::<Head>(line).ok());
    let head = head.ok_or_else(|| wrong("there is none"))?;
    head.check().map_err(|why| wrong(&why))?;
    let (mut response, mut bytes, mut count) = (R::default(), 0, 0);
    for line in lines.by_ref() {
        (bytes, count) = (bytes + line.len(), count + 1);
        if line.len() > LINE_BYTES_MAX || bytes > RESPONSE_BYTES_MAX || count > RESPONSE_LINES_MAX {
            return Err(wrong("it is too long (measure less, or for a shorter time)"));
        }
        match serde_json::from_str(line).map_err(|error| wrong(&error.to_string()))? {
            Line::Item(item) => response.add(item).map_err(|why| wrong(&why))?,
            Line::Done => {
                if lines.next().is_some() {
                    return Err(wrong("it continues after its end"));
                }
                response.check().map_err(|why| wrong(&why))?;
                return Ok(response);
            }
            Line::Error(error) => return Err(error),
        }
    }
    Err(wrong("it has no end (if it is too long: measure less, or for a shorter time)"))
}
