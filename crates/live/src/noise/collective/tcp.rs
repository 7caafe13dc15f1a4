//! Ranks that are connected by TCP: each has one connection to rank 0, which forwards what a collective needs.
//!
//! A rank that connects sends a fixed number of bytes with the job's token. Rank 0 reads nothing else of a connection
//! whose token is wrong, and closes it. A message is its length and its bytes. A collective sends one number of 8 bytes
//! to rank 0, which answers with the sum. Instead of a length or a sum, `ABORT` ends the job: a text with the reason
//! follows.
//!
//! The connection is not encrypted.

use std::io::{self, Write};
use std::net::{SocketAddr, TcpListener, TcpStream, ToSocketAddrs};
use std::os::fd::AsFd;
use std::time::{Duration, Instant};

use lab::experiment::BenchError;
use lab::noise::collective::Operation;
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::net::{RecvFlags, recv};

use super::transport::{Transport, expected_sum, out_of_step};

/// Version of the messages between ranks.
pub const PROTOCOL: u32 = 1;
/// The first bytes of a connection.
const MAGIC: [u8; 8] = *b"irqlab-c";
/// Allowed lengths of the job's token, bytes.
pub const TOKEN_BYTES: std::ops::RangeInclusive<usize> = 16..=64;
/// Bytes of the request to join: magic, protocol, rank, number of ranks, length of the token, token.
const JOIN_BYTES: usize = 8 + 4 * 4 + 64;
/// Time that a connection has to send its request to join.
const JOIN_TIME: Duration = Duration::from_secs(5);
/// Most connections that have not yet sent their request.
const PENDING_MAX: usize = 64;
/// Time between two attempts to connect or to accept.
const RETRY: Duration = Duration::from_millis(5);
/// In the place of a length or a sum: the job has failed.
const ABORT: u64 = u64::MAX;
/// Longest reason of a failure, bytes.
const REASON_BYTES_MAX: usize = 4_096;
/// Time to tell a rank that the job has failed.
const ABORT_TIME: Duration = Duration::from_secs(2);
/// Number of busy attempts to receive between two looks at the clock.
const BUSY_ATTEMPTS: u32 = 256;

/// Settings of a rank that is connected by TCP.
#[derive(Clone, Debug)]
pub struct TcpJob {
    pub rank: u32,
    pub rank_count: u32,
    pub token: Vec<u8>,
    /// Every wait ends after this time.
    pub limit: Duration,
}

/// The connections of a rank.
pub struct Tcp {
    job: TcpJob,
    /// The position is the number of the rank at the other end. Only connections with rank 0 exist.
    links: Vec<Option<TcpStream>>,
    waits_busily: bool,
    /// Number of connections that rank 0 refused.
    refused: u64,
}

fn failed(what: impl Into<String>) -> BenchError {
    BenchError::Failed(what.into())
}

impl Tcp {
    /// Waits at `listener` until all other ranks have joined: this is rank 0. `watch` returns a reason to give up.
    ///
    /// Fails if ranks are missing after the job's time limit, or for the reason of `watch`.
    pub fn accept(
        job: TcpJob,
        listener: &TcpListener,
        mut watch: impl FnMut() -> Option<String>,
    ) -> Result<Tcp, BenchError> {
        let count = job.rank_count as usize;
        let deadline = Instant::now() + job.limit;
        let mut tcp =
            Tcp { links: (0..count).map(|_| None).collect(), job, waits_busily: false, refused: 0 };
        let cannot =
            |error: io::Error| failed(format!("waiting for the other ranks failed: {error}"));
        listener.set_nonblocking(true).map_err(cannot)?;
        let mut pending: Vec<Pending> = Vec::new();
        loop {
            while pending.len() < PENDING_MAX {
                match listener.accept() {
                    Ok((stream, _)) => pending.extend(Pending::new(stream)),
                    Err(_) => break,
                }
            }
            let mut waiting = Vec::new();
            for mut connection in pending {
                match connection.read() {
                    Joining::Waits => waiting.push(connection),
                    Joining::Gone => tcp.refused += 1,
                    Joining::Complete => tcp.take(connection)?,
                }
            }
            pending = waiting;
            let missing: Vec<String> = (1..count)
                .filter(|rank| tcp.links[*rank].is_none())
                .map(|rank| rank.to_string())
                .collect();
            if missing.is_empty() {
                return Ok(tcp);
            }
            let reason = watch().or_else(|| {
                let missing = missing.join(", ");
                (Instant::now() >= deadline).then(|| {
                    format!(
                        "ranks {missing} of {count} did not join within {} s{} (start them, with the same token, or raise --limit)",
                        tcp.job.limit.as_secs(),
                        tcp.refusals()
                    )
                })
            });
            if let Some(reason) = reason {
                tcp.abort(&reason);
                return Err(failed(reason));
            }
            std::thread::sleep(RETRY);
        }
    }

    fn refusals(&self) -> String {
        match self.refused {
            0 => String::new(),
            count => format!("; {count} connections had no or another token"),
        }
    }

    /// Takes a connection that sent its whole request. Closes it if the token is wrong.
    ///
    /// Fails if a rank of this job asks for something impossible.
    fn take(&mut self, connection: Pending) -> Result<(), BenchError> {
        let request = &connection.received;
        let number = |at: usize| {
            let bytes = request.get(at..at + 4).and_then(|bytes| bytes.try_into().ok());
            u32::from_le_bytes(bytes.unwrap_or_default())
        };
        let [protocol, rank, rank_count, length] = [8, 12, 16, 20].map(number);
        let token = request.get(24..24 + (length as usize).min(64)).unwrap_or_default();
        if request[..8] != MAGIC || !is_equal(token, &self.job.token) {
            self.refused += 1;
            return Ok(());
        }
        let expected = self.job.rank_count;
        let reason = if protocol != PROTOCOL {
            Some(format!(
                "rank {rank} is another version of irqlab: messages of version {protocol} instead of {PROTOCOL}"
            ))
        } else if rank_count != expected {
            Some(format!("rank {rank} has --ranks {rank_count}, and rank 0 has --ranks {expected}"))
        } else if rank == 0 || rank >= expected {
            Some(format!("a second rank {rank} joined, of {expected} ranks"))
        } else if self.links[rank as usize].is_some() {
            Some(format!("two processes joined as rank {rank}"))
        } else {
            None
        };
        let stream = connection.stream;
        let Some(reason) = reason else {
            self.links[rank as usize] = Some(stream);
            return Ok(());
        };
        send_abort(&stream, &reason);
        self.abort(&reason);
        Err(failed(reason))
    }

    /// Connects to rank 0, which may not have started yet.
    ///
    /// Fails if the address is wrong, or nobody accepts the connection within the job's time limit.
    pub fn connect(job: TcpJob, root: &str) -> Result<Tcp, BenchError> {
        let deadline = Instant::now() + job.limit;
        let addresses = addresses(root)?;
        let stream = loop {
            let time_left = deadline.saturating_duration_since(Instant::now());
            let wait = time_left.clamp(Duration::from_millis(1), Duration::from_secs(2));
            match connect_to_any(&addresses, wait) {
                Ok(stream) => break stream,
                Err(reason) if time_left.is_zero() => {
                    let rank = job.rank;
                    return Err(failed(format!(
                        "rank {rank} could not connect to rank 0 at {root}: {reason} (is rank 0 started, and --root right?)"
                    )));
                }
                Err(_) => std::thread::sleep(RETRY * 10),
            }
        };
        let mut request = Vec::with_capacity(JOIN_BYTES);
        request.extend(MAGIC);
        for number in [PROTOCOL, job.rank, job.rank_count, job.token.len() as u32] {
            request.extend(number.to_le_bytes());
        }
        request.extend(&job.token);
        request.resize(JOIN_BYTES, 0);
        prepare(&stream)
            .and_then(|()| (&stream).write_all(&request))
            .map_err(|error| failed(format!("joining rank 0 at {root} failed: {error}")))?;
        let links = std::iter::once(Some(stream)).chain((1..job.rank_count).map(|_| None));
        Ok(Tcp { links: links.collect(), job, waits_busily: false, refused: 0 })
    }

    fn link(&self, rank: u32) -> Result<&TcpStream, BenchError> {
        let link = self.links.get(rank as usize).and_then(Option::as_ref);
        link.ok_or_else(|| failed(format!("there is no connection to rank {rank}")))
    }

    /// Sends bytes to a rank.
    fn write(&self, to: u32, bytes: &[u8]) -> Result<(), BenchError> {
        let mut link = self.link(to)?;
        // The kernel's limit on one write; a rank that reads slowly gets a new limit for each.
        let sent =
            link.set_write_timeout(Some(self.job.limit)).and_then(|()| link.write_all(bytes));
        match sent {
            Ok(()) => Ok(()),
            // The other end may have sent the reason before it closed the connection.
            Err(error) => Err(self.reason_of(to).unwrap_or_else(|| {
                failed(format!("rank {to} is gone: sending to it failed: {error}"))
            })),
        }
    }

    /// The reason that a rank sent before it closed its connection.
    fn reason_of(&self, from: u32) -> Option<BenchError> {
        let (deadline, mut head) = (Instant::now() + ABORT_TIME, [0; 8]);
        self.read(from, &mut head, deadline).ok()?;
        (u64::from_le_bytes(head) == ABORT).then(|| self.aborted(from, deadline))
    }

    /// Fills the buffer.
    fn read(&self, from: u32, buffer: &mut [u8], deadline: Instant) -> Result<(), BenchError> {
        let link = self.link(from)?;
        let (mut filled, mut attempts) = (0, 0_u32);
        while filled < buffer.len() {
            match recv(link, &mut buffer[filled..], RecvFlags::DONTWAIT) {
                Ok((_, 0)) => {
                    return Err(failed(format!("rank {from} is gone: it closed its connection")));
                }
                Ok((_, count)) => filled += count,
                Err(rustix::io::Errno::AGAIN) => {
                    attempts = attempts.wrapping_add(1);
                    let looks_at_clock =
                        !self.waits_busily || attempts.is_multiple_of(BUSY_ATTEMPTS);
                    if looks_at_clock && Instant::now() >= deadline {
                        let limit_s = self.job.limit.as_secs();
                        return Err(failed(format!(
                            "rank {from} sent nothing for {limit_s} s: it hangs, or needs longer (--limit)"
                        )));
                    }
                    if !self.waits_busily {
                        sleep_until_readable(link, deadline);
                    }
                }
                Err(rustix::io::Errno::INTR) => {}
                Err(error) => {
                    let error = io::Error::from(error);
                    return Err(failed(format!("rank {from} is gone: {error}")));
                }
            }
        }
        Ok(())
    }

    /// Reads a number; a rank that has given up sends its reason instead.
    fn read_number(&self, from: u32, deadline: Instant) -> Result<u64, BenchError> {
        let mut bytes = [0; 8];
        self.read(from, &mut bytes, deadline)?;
        match u64::from_le_bytes(bytes) {
            ABORT => Err(self.aborted(from, deadline)),
            number => Ok(number),
        }
    }

    /// The reason of a rank that has given up.
    fn aborted(&self, from: u32, deadline: Instant) -> BenchError {
        let mut length = [0; 8];
        let reason = self.read(from, &mut length, deadline).and_then(|()| {
            let length = u64::from_le_bytes(length).min(REASON_BYTES_MAX as u64);
            let mut text = vec![0; length as usize];
            self.read(from, &mut text, deadline).map(|()| text)
        });
        match reason {
            Ok(text) => {
                let text = String::from_utf8_lossy(&text);
                failed(format!("rank {from} ended the job: {text}"))
            }
            Err(error) => error,
        }
    }

    fn deadline(&self) -> Instant {
        Instant::now() + self.job.limit
    }
}

impl Transport for Tcp {
    fn rank(&self) -> u32 {
        self.job.rank
    }

    fn rank_count(&self) -> u32 {
        self.job.rank_count
    }

    fn describe(&self) -> String {
        "tcp".to_owned()
    }

    fn set_busy_waits(&mut self, waits_busily: bool) {
        self.waits_busily = waits_busily;
    }

    fn send(&mut self, to: u32, message: &[u8]) -> Result<(), BenchError> {
        let bytes = [&(message.len() as u64).to_le_bytes(), message].concat();
        self.write(to, &bytes)
    }

    fn receive(&mut self, from: u32, bytes_max: usize) -> Result<Vec<u8>, BenchError> {
        let length = self.read_number(from, self.deadline())?;
        let length = usize::try_from(length).ok().filter(|length| *length <= bytes_max);
        let length = length.ok_or_else(|| {
            failed(format!(
                "rank {from} sent a message that is longer than the allowed {bytes_max} bytes"
            ))
        })?;
        // Memory is allocated as the bytes arrive.
        let (mut message, mut piece) = (Vec::new(), vec![0; length.min(1 << 16)]);
        while message.len() < length {
            let next = (length - message.len()).min(piece.len());
            self.read(from, &mut piece[..next], self.deadline())?;
            message.extend(&piece[..next]);
        }
        Ok(message)
    }

    fn collective(&mut self, operation: Operation, number: u64) -> Result<(), BenchError> {
        let deadline = self.deadline();
        let rank = u64::from(self.job.rank);
        let contribution = match operation {
            // Ranks at different barriers are noticed.
            Operation::Barrier => number,
            Operation::Allreduce => number.wrapping_add(rank),
        };
        let expected = match operation {
            Operation::Barrier => number.wrapping_mul(u64::from(self.job.rank_count)),
            Operation::Allreduce => expected_sum(number, self.job.rank_count),
        };
        let sum = if self.job.rank == 0 {
            let mut sum = contribution;
            for from in 1..self.job.rank_count {
                sum = sum.wrapping_add(self.read_number(from, deadline)?);
            }
            for to in 1..self.job.rank_count {
                self.write(to, &sum.to_le_bytes())?;
            }
            sum
        } else {
            self.write(0, &contribution.to_le_bytes())?;
            self.read_number(0, deadline)?
        };
        if sum == expected { Ok(()) } else { Err(out_of_step(number)) }
    }

    fn abort(&mut self, reason: &str) {
        self.links.iter().flatten().for_each(|link| send_abort(link, reason));
        self.links.iter_mut().for_each(|link| *link = None);
    }

    fn finish(&mut self) -> Result<(), BenchError> {
        self.links.iter_mut().for_each(|link| *link = None);
        Ok(())
    }
}

/// The addresses of a host and port.
fn addresses(root: &str) -> Result<Vec<SocketAddr>, BenchError> {
    let wrong = |reason: String| failed(format!("--root {root}: {reason}"));
    let found: Vec<SocketAddr> =
        root.to_socket_addrs().map_err(|error| wrong(error.to_string()))?.collect();
    if found.is_empty() { Err(wrong("this host has no address".to_owned())) } else { Ok(found) }
}

/// Connects to the first address that accepts, and waits at most `wait` for each. Fails with the reason of the last one.
fn connect_to_any(addresses: &[SocketAddr], wait: Duration) -> Result<TcpStream, String> {
    let mut reason = "nobody listens".to_owned();
    for address in addresses {
        match TcpStream::connect_timeout(address, wait) {
            // On loopback, a port at which nobody listens can be connected with itself.
            Ok(stream) if stream.local_addr().ok() == stream.peer_addr().ok() => {}
            Ok(stream) => return Ok(stream),
            Err(error) => reason = error.to_string(),
        }
    }
    Err(reason)
}

/// Sets the options of a connection: small messages leave at once, and both directions block.
fn prepare(stream: &TcpStream) -> io::Result<()> {
    stream.set_nodelay(true)?;
    stream.set_nonblocking(false)
}

/// Waits until bytes arrive, at most until `deadline`.
fn sleep_until_readable(link: &TcpStream, deadline: Instant) {
    let time_left = deadline.saturating_duration_since(Instant::now());
    let timeout = Timespec {
        tv_sec: time_left.as_secs() as i64,
        tv_nsec: i64::from(time_left.subsec_nanos()),
    };
    let mut polled = [PollFd::from_borrowed_fd(link.as_fd(), PollFlags::IN)];
    // After an error, the caller's next attempt to receive fails.
    let _ = poll(&mut polled, Some(&timeout));
}

/// Sends the reason of a failure. A rank that does not read it in time learns only that the connection is closed.
fn send_abort(mut link: &TcpStream, reason: &str) {
    let reason = &reason.as_bytes()[..reason.len().min(REASON_BYTES_MAX)];
    let head = [ABORT.to_le_bytes(), (reason.len() as u64).to_le_bytes()].concat();
    let message = [&head[..], reason].concat();
    let _ = link.set_write_timeout(Some(ABORT_TIME)).and_then(|()| link.write_all(&message));
}

/// Compares two tokens in a time that does not depend on where they differ.
fn is_equal(token: &[u8], other: &[u8]) -> bool {
    let differs = token.iter().zip(other).fold(0, |differs, (a, b)| differs | (a ^ b));
    token.len() == other.len() && differs == 0
}

/// A connection that has not yet sent its whole request to join.
struct Pending {
    stream: TcpStream,
    received: Vec<u8>,
    deadline: Instant,
}

/// The state of a pending connection.
enum Joining {
    Waits,
    /// It was closed, or sent too little in time.
    Gone,
    Complete,
}

impl Pending {
    /// `None` if the connection is closed already.
    fn new(stream: TcpStream) -> Option<Pending> {
        prepare(&stream).ok()?;
        Some(Pending { stream, received: Vec::new(), deadline: Instant::now() + JOIN_TIME })
    }

    fn read(&mut self) -> Joining {
        let mut buffer = [0; JOIN_BYTES];
        let missing = JOIN_BYTES - self.received.len();
        match recv(&self.stream, &mut buffer[..missing], RecvFlags::DONTWAIT) {
            Ok((_, 0)) => return Joining::Gone,
            Ok((_, count)) => self.received.extend(&buffer[..count]),
            Err(rustix::io::Errno::AGAIN | rustix::io::Errno::INTR) => {}
            Err(_) => return Joining::Gone,
        }
        if self.received.len() == JOIN_BYTES {
            Joining::Complete
        } else if Instant::now() >= self.deadline {
            Joining::Gone
        } else {
            Joining::Waits
        }
    }
}

#[cfg(test)]
mod tests;
