//! The conversation between the irqlab that collects and the irqlab of a host, over the host's standard input and output.
//!
//! ```text
//! host:      irqlab-fleet/1 {"version": ..., "address": ...}
//! collector: clock                      several times; the host answers: clock NS
//! collector: run {"arguments": [...], "limit_ns": ...}
//! host:      end {"exit_code": ..., "log_end": ..., "archive_bytes": ...}
//! host:      the archive, if there is a run; then: sha256 HEX
//! ```
//!
//! The host stops its measurement when its standard input ends. So nothing goes on after the collector has gone.

use std::io::{self, ErrorKind, Read, Write};
use std::path::Path;

use outputs::NewDirectory;
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};

use crate::archive::{archive_bytes, files_of_run, receive_run, send_run};
use crate::clock::RoundTrip;
use crate::error::FleetError;

/// Start of the host's first line.
const GREETING: &str = "irqlab-fleet/1 ";
const CLOCK: &str = "clock";
const RUN: &str = "run ";
const END: &str = "end ";
const SHA256: &str = "sha256 ";
/// Maximum length of a line, bytes. A log's end of 4 KiB takes at most six times as much in JSON.
const LINE_BYTES_MAX: usize = 256 << 10;
/// Maximum number of bytes that a login script may print before the greeting.
const BANNER_BYTES_MAX: usize = 64 << 10;
/// Maximum length of a version, characters.
const VERSION_CHARS_MAX: usize = 100;

/// The first line that a host sends.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Greeting {
    pub version: String,
    /// The host's own address of the connection. `None` if it is not known.
    pub address: Option<std::net::IpAddr>,
}

/// The command that a host executes.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Request {
    /// Arguments of irqlab, without `--out`.
    pub arguments: Vec<String>,
    /// The host stops the measurement after this time.
    pub limit_ns: u64,
}

/// How the measurement on a host ended.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Ended {
    /// `None` if a signal ended irqlab, or it was not started.
    pub exit_code: Option<i32>,
    /// Why there is no exit code.
    pub reason: Option<String>,
    /// The end of irqlab's messages.
    pub log_end: String,
    /// Length of the archive that follows. `None` if there is no run.
    pub archive_bytes: Option<u64>,
}

/// The host's end of a conversation.
pub struct HostSide<R, W> {
    pub reader: R,
    pub writer: W,
}

impl<R: Read, W: Write> HostSide<R, W> {
    pub fn greet(&mut self, greeting: &Greeting) -> io::Result<()> {
        self.send(GREETING, greeting)
    }

    /// Answers questions for the clock until the request comes. `None` if the collector has gone. `now_ns`: this host's
    /// clock, ns since 1970.
    ///
    /// Fails if the collector says something else, or the connection is lost.
    pub fn request(&mut self, now_ns: impl Fn() -> i64) -> io::Result<Option<Request>> {
        loop {
            let Some(line) = read_line(&mut self.reader)? else { return Ok(None) };
            if line == CLOCK {
                self.writer.write_all(format!("{CLOCK} {}\n", now_ns()).as_bytes())?;
                self.writer.flush()?;
            } else {
                return parsed(&line, RUN).map(Some);
            }
        }
    }

    /// Sends how the measurement ended, and the run in `run` if there is one.
    ///
    /// Fails if the run cannot be read, or the connection is lost.
    pub fn finish(&mut self, mut ended: Ended, run: Option<&Path>) -> io::Result<()> {
        let Some(run) = run else { return self.send(END, &ended) };
        let files = files_of_run(run)?;
        ended.archive_bytes = Some(archive_bytes(&files));
        self.send(END, &ended)?;
        let sha256 = send_run(run, &files, &mut self.writer)?;
        self.writer.write_all(format!("{SHA256}{sha256}\n").as_bytes())?;
        self.writer.flush()
    }

    fn send(&mut self, word: &str, content: &impl Serialize) -> io::Result<()> {
        let line = format!("{word}{}\n", serde_json::to_string(content)?);
        self.writer.write_all(line.as_bytes())?;
        self.writer.flush()
    }
}

/// The collector's end of a conversation.
pub struct CollectorSide<R, W> {
    pub reader: R,
    pub writer: W,
}

impl<R: Read, W: Write> CollectorSide<R, W> {
    /// Reads the greeting. Skips what a login script prints before it. `None` if the host closes the connection without
    /// a greeting: it has no irqlab, or an older one.
    ///
    /// Fails if the connection is lost or too much precedes the greeting.
    pub fn greeting(&mut self) -> io::Result<Option<Greeting>> {
        let mut bytes = 0;
        while let Some(line) = read_line(&mut self.reader)? {
            if line.starts_with(GREETING) {
                let mut greeting: Greeting = parsed(&line, GREETING)?;
                greeting.version = greeting.version.chars().take(VERSION_CHARS_MAX).collect();
                return Ok(Some(greeting));
            }
            bytes += line.len() + 1;
            if bytes > BANNER_BYTES_MAX {
                return Err(io::Error::other("the host sends something else than irqlab does"));
            }
        }
        Ok(None)
    }

    /// Asks for the host's clock once. `clocks`: this machine's clock, ns since 1970, and a clock that nobody sets.
    pub fn round_trip(&mut self, clocks: impl Fn() -> (i64, u64)) -> io::Result<RoundTrip> {
        let (sent_ns, start_ns) = clocks();
        self.writer.write_all(format!("{CLOCK}\n").as_bytes())?;
        self.writer.flush()?;
        let line = read_line(&mut self.reader)?.ok_or_else(lost)?;
        let (_, end_ns) = clocks();
        let answer = line.strip_prefix(CLOCK).and_then(|number| number.trim().parse().ok());
        let host_ns = answer.ok_or_else(|| unexpected(&line))?;
        Ok(RoundTrip { sent_ns, elapsed_ns: end_ns.saturating_sub(start_ns), host_ns })
    }

    pub fn send_request(&mut self, request: &Request) -> io::Result<()> {
        let line = format!("{RUN}{}\n", serde_json::to_string(request)?);
        self.writer.write_all(line.as_bytes())?;
        self.writer.flush()
    }

    /// Waits for the end of the measurement.
    pub fn ended(&mut self) -> io::Result<Ended> {
        let line = read_line(&mut self.reader)?.ok_or_else(lost)?;
        parsed(&line, END)
    }

    /// Receives the run that `ended` announces into the directory `name` of a new directory.
    ///
    /// Fails if the run is longer than `bytes_max`, the archive is cut or has forbidden content, the checksum differs,
    /// or this machine cannot write the run.
    pub fn receive(
        &mut self,
        bytes: u64,
        bytes_max: u64,
        directory: &NewDirectory,
        name: &str,
    ) -> Result<(), FleetError> {
        if bytes > bytes_max {
            return Err(FleetError::Host(format!(
                "its run has {bytes} bytes, more than {bytes_max} (--size-max allows more)"
            )));
        }
        let sha256 = receive_run(&mut self.reader, bytes, directory, name)?;
        let line =
            read_line(&mut self.reader).map_err(|error| FleetError::Host(error.to_string()))?;
        match line.as_deref().and_then(|line| line.strip_prefix(SHA256)) {
            Some(sent) if sent == sha256 => Ok(()),
            Some(_) => Err(FleetError::Host(
                "the run was changed on its way: its checksum differs".to_owned(),
            )),
            None => Err(FleetError::Host("the run has no checksum".to_owned())),
        }
    }
}

fn lost() -> io::Error {
    io::Error::new(ErrorKind::UnexpectedEof, "the host closed the connection")
}

fn unexpected(line: &str) -> io::Error {
    let start: String = line.chars().take(60).collect();
    io::Error::new(
        ErrorKind::InvalidData,
        format!("the host sent {start:?}, which is not expected"),
    )
}

fn parsed<T: DeserializeOwned>(line: &str, word: &str) -> io::Result<T> {
    let content = line.strip_prefix(word).ok_or_else(|| unexpected(line))?;
    serde_json::from_str(content).map_err(|_| unexpected(line))
}

/// Reads a line without its end, byte by byte: what follows the line stays in the reader. `None` at the end of input.
///
/// Fails if the line is longer than [`LINE_BYTES_MAX`].
fn read_line(reader: &mut impl Read) -> io::Result<Option<String>> {
    let mut line = Vec::new();
    let mut byte = [0];
    loop {
        match reader.read(&mut byte) {
            Ok(0) if line.is_empty() => return Ok(None),
            Ok(0) => break,
            Ok(_) if byte[0] == b'\n' => break,
            Ok(_) => line.push(byte[0]),
            Err(error) if error.kind() == ErrorKind::Interrupted => {}
            Err(error) => return Err(error),
        }
        if line.len() > LINE_BYTES_MAX {
            return Err(io::Error::other(format!("a line of more than {LINE_BYTES_MAX} bytes")));
        }
    }
    Ok(Some(String::from_utf8_lossy(&line).into_owned()))
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::os::unix::net::UnixStream;

    use super::*;
    use crate::clock::ClockOffset;

    fn collector(sent: &str) -> CollectorSide<&[u8], Vec<u8>> {
        CollectorSide { reader: sent.as_bytes(), writer: Vec::new() }
    }

    #[test]
    fn a_conversation_brings_the_offset_and_the_run() {
        let (near, far) = UnixStream::pair().unwrap();
        let run = tempfile::tempdir().unwrap();
        fs::create_dir(run.path().join("tables")).unwrap();
        fs::write(run.path().join("manifest.json"), "{}").unwrap();
        let run_path = run.path().to_owned();
        let host = std::thread::spawn(move || {
            let mut host = HostSide { reader: far.try_clone().unwrap(), writer: far };
            let (version, address) = ("1.2".to_owned(), None);
            host.writer.write_all(b"Welcome!\n").unwrap();
            host.greet(&Greeting { version, address }).unwrap();
            let request = host.request(|| 10_000_000_000).unwrap().unwrap();
            let log_end = request.arguments.join(" ");
            let ended = Ended { exit_code: Some(0), reason: None, log_end, archive_bytes: None };
            host.finish(ended, Some(&run_path)).unwrap();
        });
        let mut side = CollectorSide { reader: near.try_clone().unwrap(), writer: near };
        assert_eq!(side.greeting().unwrap().unwrap().version, "1.2");
        let round_trip = side.round_trip(|| (0, 0)).unwrap();
        assert_eq!(ClockOffset::from_round_trips(&[round_trip]).unwrap().offset_ns, 10_000_000_000);
        let arguments = vec!["noise".to_owned(), "-d".to_owned(), "1s".to_owned()];
        side.send_request(&Request { arguments, limit_ns: 1 }).unwrap();
        let ended = side.ended().unwrap();
        assert_eq!((ended.exit_code, ended.log_end.as_str()), (Some(0), "noise -d 1s"));
        let bytes = ended.archive_bytes.unwrap();
        let parent = tempfile::tempdir().unwrap();
        let directory = NewDirectory::create(&parent.path().join("host")).unwrap();
        let error = side.receive(bytes, bytes - 1, &directory, "run").unwrap_err().to_string();
        assert!(error.contains("--size-max"), "{error}");
        side.receive(bytes, bytes, &directory, "run").unwrap();
        directory.finish().unwrap();
        assert!(parent.path().join("host/run/manifest.json").is_file());
        host.join().unwrap();
    }

    #[test]
    fn what_is_no_conversation_is_refused() {
        assert_eq!(collector("").greeting().unwrap(), None);
        assert_eq!(collector("motd\n").greeting().unwrap(), None);
        assert!(collector("irqlab-fleet/1 no json\n").greeting().is_err());
        let endless = "x".repeat(LINE_BYTES_MAX + 2);
        assert!(collector(&endless).greeting().is_err());
        assert!(collector(&"motd\n".repeat(20_000)).greeting().is_err());
        let long =
            format!("irqlab-fleet/1 {{\"version\": \"{}\", \"address\": null}}\n", "v".repeat(999));
        let greeting = collector(&long).greeting().unwrap().unwrap();
        assert_eq!(greeting.version.len(), VERSION_CHARS_MAX);
        assert!(collector("clock x\n").round_trip(|| (0, 0)).is_err());
        assert!(collector("").round_trip(|| (0, 0)).is_err());
        assert!(collector("end {}\n").ended().is_err());
        assert_eq!(collector("").ended().unwrap_err().kind(), ErrorKind::UnexpectedEof);
    }

    #[test]
    fn a_host_waits_for_a_request_and_ends_with_the_connection() {
        let request =
            |sent: &str| HostSide { reader: sent.as_bytes(), writer: Vec::new() }.request(|| 7);
        assert!(request("").unwrap().is_none());
        assert!(request("clock\nclock\n").unwrap().is_none());
        assert!(request("nonsense\n").is_err());
        let found = request("clock\nrun {\"arguments\": [\"noise\"], \"limit_ns\": 5}\n");
        assert_eq!(found.unwrap().unwrap().arguments, ["noise"]);
    }
}
