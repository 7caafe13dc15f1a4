//! Pings of the net stimulus: ICMP echo requests over irqlab's own socket, without the command `ping`.

use std::net::Ipv4Addr;
use std::time::{Duration, Instant};

use rustix::io::Errno;
use rustix::net::sockopt::{Timeout, set_socket_timeout};
use rustix::net::{RecvFlags, SendFlags, recv, send};

use crate::network::{EchoSocket, ICMP_HEADER_BYTES, echo_request};
use crate::stimulus::error::WorkerError;
use crate::stimulus::facts::{Facts, facts};
use crate::stimulus::system::{Ticker, random_from_clock};
use crate::stimulus::worker_pool::Worker;

/// Payload of a request in bytes: the default of `ping`.
pub(super) const PAYLOAD_BYTES: usize = 56;
const PACKET_BYTES: usize = ICMP_HEADER_BYTES + PAYLOAD_BYTES;
/// Longest and shortest wait for a reply. The host of a virtual machine may make a CPU wait for
/// tens of milliseconds, and a reply that is late for that reason is not an error.
const WAIT_MAX: Duration = Duration::from_secs(1);
const WAIT_MIN: Duration = Duration::from_millis(200);
/// Number of pings at the start. If none is answered, the target counts as unreachable.
const FIRST_PINGS: u32 = 5;

/// Sends an echo request every `interval` and waits for its reply. An operation is a reply.
pub(super) fn ping_loop(
    worker: &Worker,
    target: Ipv4Addr,
    interval: Duration,
) -> Result<(), WorkerError> {
    let mut pinger = Pinger::open(target)?;
    let is_answered = (0..FIRST_PINGS).any(|_| pinger.ping(WAIT_MAX).is_ok_and(|reply| reply));
    if !is_answered {
        return Err(WorkerError::unavailable(
            format!("{target} answers no ping"),
            "check the peer's address, its route and its firewall (ICMP echo)",
        ));
    }
    worker.report_ready(facts_of(&pinger));
    let wait = interval.clamp(WAIT_MIN, WAIT_MAX);
    let mut ticker = Ticker::new(interval);
    while !worker.is_stopped() {
        worker.sleep_to_next(&mut ticker);
        match pinger.ping(wait) {
            Ok(true) => worker.count(1, PACKET_BYTES as u64),
            Err(Errno::INTR) => {}
            Ok(false) | Err(_) => worker.count_error(),
        }
    }
    Ok(())
}

fn facts_of(pinger: &Pinger) -> Facts {
    facts! { "socket": if pinger.echo.raw { "raw" } else { "ping" } }
}

struct Pinger {
    echo: EchoSocket,
    /// Starts with a random number, which identifies the replies.
    payload: [u8; PAYLOAD_BYTES],
    sequence: u16,
}

impl Pinger {
    fn open(target: Ipv4Addr) -> Result<Self, WorkerError> {
        let echo = EchoSocket::open(target)?;
        let mut payload = [0; PAYLOAD_BYTES];
        payload[..8].copy_from_slice(&random_from_clock().next().to_ne_bytes());
        Ok(Pinger { echo, payload, sequence: 0 })
    }

    /// Sends a request. Returns whether it was answered within `wait`.
    fn ping(&mut self, wait: Duration) -> Result<bool, Errno> {
        self.sequence = self.sequence.wrapping_add(1);
        let identifier = [self.payload[0], self.payload[1]];
        let request = echo_request(identifier, self.sequence, &self.payload);
        let deadline = Instant::now() + wait;
        send(&self.echo.socket, &request, SendFlags::empty())?;
        set_socket_timeout(&self.echo.socket, Timeout::Recv, Some(wait))?;
        let mut buffer = [0; 512];
        // Other ICMP packets of this peer may arrive first.
        while Instant::now() < deadline {
            match recv(&self.echo.socket, &mut buffer[..], RecvFlags::empty()) {
                Ok((_, length)) => {
                    let reply = self.echo.reply(&buffer[..length]);
                    if reply == Some((self.sequence, &self.payload[..])) {
                        return Ok(true);
                    }
                }
                Err(Errno::AGAIN) => return Ok(false),
                Err(error) => return Err(error),
            }
        }
        Ok(false)
    }
}
