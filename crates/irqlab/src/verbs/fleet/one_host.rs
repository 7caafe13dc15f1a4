//! Collects from one host: connects, compares the clocks, has the command measured there, and gathers its run.

use std::io::{self, ErrorKind};
use std::time::{Duration, Instant};

use ::fleet::conversation::{CollectorSide, Request};
use ::fleet::{ClockOffset, FleetDirectory, FleetError, HostRecord, HostState, NewHost};
use record::StoredRun;
use report::escape::plain;

use super::connection::{Connection, ConnectionEnd, NOT_FOUND, SSH_FAILED, Transport, Via};
use super::host::utc_ns;
use super::usage;
use crate::options::ns;
use crate::run::RECORDED_CODES;
use crate::{VERSION, console};

/// Number of questions for a host's clock.
const ROUND_TRIPS: u32 = 8;
/// Time limit of an answer that needs no measurement.
const ANSWER_LIMIT: Duration = Duration::from_secs(20);
/// Time that a host may take to end a measurement that has reached its limit, and to send the end of its log.
pub const END_LIMIT: Duration = Duration::from_secs(60);
/// Time limit of a run on its way. A second more is allowed for each MiB.
pub const TRANSFER_LIMIT: Duration = Duration::from_secs(600);
/// Maximum length of a reason, characters.
const REASON_CHARS_MAX: usize = 300;

/// Why a host is not done.
enum Trouble {
    /// The connection ended without a greeting.
    NoGreeting,
    /// The greeting names another version.
    OtherVersion,
    /// The host failed, with the reason.
    Host(String),
    /// The connection was lost or a time limit reached.
    Connection(io::Error),
    /// This machine cannot go on.
    Here(FleetError),
}

/// How the collection from a host ended.
pub enum Outcome {
    Recorded(Box<HostRecord>),
    /// Another process has gathered the run meanwhile.
    Elsewhere,
    /// The collection was stopped.
    Stopped,
}

/// One host of a collection.
pub struct OneHost<'a> {
    pub fleet: &'a FleetDirectory,
    pub transport: &'a Transport<'a>,
    /// Position of the host in the list.
    pub index: usize,
    pub host: &'a str,
    /// Maximum size of a run, bytes.
    pub size_max: u64,
}

impl OneHost<'_> {
    /// Collects from the host, and records its run or why there is none.
    ///
    /// Fails if this machine cannot go on, as with a full disk.
    pub fn collect(&self) -> anyhow::Result<Outcome> {
        let mut record = HostRecord::new(self.host, &record::now().to_string());
        let Some(new_host) = self.fleet.start_host(self.host).map_err(usage)? else {
            return Ok(Outcome::Elsewhere);
        };
        let transport = self.transport;
        let host_command = [transport.irqlab, "fleet", "host"];
        let mut connection = transport.connect(self.index, self.host, &host_command)?;
        let result = self.converse(&mut connection, &mut record, &new_host);
        let end = connection.close();
        if transport.stop.is_requested() {
            transport.close_master(self.index, self.host);
            return Ok(Outcome::Stopped);
        }
        let result = match result {
            Err(Trouble::Here(error)) => Err(usage(error)),
            Err(trouble) => self.explain(trouble, end, &mut record),
            Ok(()) => {
                record.state = HostState::Done;
                // The run has the warnings.
                record.log_end = String::new();
                Ok(())
            }
        };
        transport.close_master(self.index, self.host);
        result?;
        if record.state == HostState::Done {
            new_host.finish(self.fleet, &record).map_err(usage)?;
        } else {
            drop(new_host);
            self.fleet.record_failure(&record).map_err(usage)?;
        }
        Ok(Outcome::Recorded(Box::new(record)))
    }

    fn converse(
        &self,
        connection: &mut Connection<'_>,
        record: &mut HostRecord,
        new_host: &NewHost,
    ) -> Result<(), Trouble> {
        let Some(writer) = connection.input.as_mut() else { return Err(Trouble::NoGreeting) };
        let mut side = CollectorSide { reader: &mut connection.output, writer };
        let allow = |side: &mut CollectorSide<&mut super::connection::TimedOutput<'_>, _>,
                     limit| {
            side.reader.deadline = Instant::now() + limit;
        };
        let greeting = side.greeting().map_err(Trouble::Connection)?.ok_or(Trouble::NoGreeting)?;
        record.address = greeting.address;
        record.version = Some(greeting.version);
        if record.version.as_deref() != Some(VERSION) {
            return Err(Trouble::OtherVersion);
        }
        let (mut round_trips, start) = (Vec::new(), Instant::now());
        for _ in 0..ROUND_TRIPS {
            allow(&mut side, ANSWER_LIMIT);
            // First the clock that nobody sets: the round trip then contains the reading of the other clock.
            let clocks = || {
                let elapsed_ns = ns(start.elapsed());
                (utc_ns(), elapsed_ns)
            };
            round_trips.push(side.round_trip(clocks).map_err(Trouble::Connection)?);
        }
        record.set_clock(ClockOffset::from_round_trips(&round_trips));
        let limit = self.transport.limit;
        let arguments = self.fleet.plan().command.clone();
        let request = Request { arguments, limit_ns: ns(limit) };
        side.send_request(&request).map_err(Trouble::Connection)?;
        allow(&mut side, limit + END_LIMIT);
        let ended = side.ended().map_err(Trouble::Connection)?;
        record.exit_code = ended.exit_code;
        record.log_end = ended.log_end;
        let failed = |reason: String| Err(Trouble::Host(reason));
        let Some(code) = ended.exit_code else {
            return failed(
                ended.reason.unwrap_or_else(|| "irqlab was not started there".to_owned()),
            );
        };
        if !RECORDED_CODES.contains(&code) {
            let error = last_error(&record.log_end);
            return failed(format!("irqlab ended with exit code {code} there{error}"));
        }
        let Some(bytes) = ended.archive_bytes else {
            return failed("irqlab left no run there".to_owned());
        };
        let size_time = Duration::from_secs(bytes.min(self.size_max) >> 20);
        allow(&mut side, TRANSFER_LIMIT + size_time);
        let (directory, name) = new_host.directory();
        side.receive(bytes, self.size_max, directory, name).map_err(|error| match error {
            FleetError::Host(reason) => Trouble::Host(reason),
            error => Trouble::Here(error),
        })?;
        match StoredRun::open(&new_host.run_path()) {
            Ok(run) if run.outline().complete => Ok(()),
            Ok(_) => failed("its run is incomplete: a limit of time or a stop ended it".to_owned()),
            Err(error) => failed(format!("its run cannot be read ({error})")),
        }
    }

    /// Writes into the record why the host is not done.
    fn explain(
        &self,
        trouble: Trouble,
        end: ConnectionEnd,
        record: &mut HostRecord,
    ) -> anyhow::Result<()> {
        let ConnectionEnd { code, messages } = end;
        let last_message = messages.lines().rev().map(plain).find(|line| !line.trim().is_empty());
        if record.log_end.is_empty() {
            record.log_end = messages;
        }
        let is_ssh = self.transport.via == Via::Ssh;
        let (state, reason) = match trouble {
            Trouble::OtherVersion => (HostState::RefusedVersion, other_version(record)),
            Trouble::Host(reason) => (HostState::Failed, reason),
            Trouble::Connection(error) if error.kind() == ErrorKind::TimedOut => {
                match record.version {
                    None => (
                        HostState::Unreachable,
                        format!(
                            "no answer within {} (--connect-limit)",
                            console::rounded(self.transport.connect_limit)
                        ),
                    ),
                    Some(_) => (
                        HostState::Failed,
                        "no answer within the limit of time (--limit)".to_owned(),
                    ),
                }
            }
            Trouble::Connection(error) => {
                let reason = last_message.unwrap_or_else(|| error.to_string());
                (HostState::Failed, format!("the connection was lost: {reason}"))
            }
            Trouble::NoGreeting if is_ssh && code == SSH_FAILED => {
                let reason = last_message.unwrap_or_else(|| "ssh cannot connect".to_owned());
                (HostState::Unreachable, reason)
            }
            Trouble::NoGreeting if code == NOT_FOUND => (
                HostState::Failed,
                format!("{} is not found there (--irqlab PATH)", self.transport.irqlab),
            ),
            Trouble::NoGreeting => match self.transport.version(self.index, self.host)? {
                Some(version) if version != VERSION => {
                    record.version = Some(version);
                    (HostState::RefusedVersion, other_version(record))
                }
                version => {
                    let is_here = version.is_some();
                    record.version = version;
                    let reason = last_message.unwrap_or_else(|| format!("exit code {code}"));
                    let is_reached = is_here || is_ssh;
                    let state = if is_reached { HostState::Failed } else { HostState::Unreachable };
                    (state, format!("irqlab does not answer there: {reason}"))
                }
            },
            // `collect` has returned this error.
            Trouble::Here(error) => return Err(usage(error)),
        };
        record.state = state;
        record.reason = Some(plain(&reason).chars().take(REASON_CHARS_MAX).collect());
        Ok(())
    }
}

/// The last error of irqlab in a log, after a colon. Empty without one.
fn last_error(log: &str) -> String {
    let error = log.lines().rev().find_map(|line| line.strip_prefix("irqlab: "));
    error.map_or(String::new(), |error| format!(": {error}"))
}

fn other_version(record: &HostRecord) -> String {
    let version = record.version.as_deref().unwrap_or("of unknown version");
    format!("it has irqlab {}, and this is {VERSION} (install this version there)", plain(version))
}
