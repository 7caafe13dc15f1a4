//! ICMP echo by a socket of irqlab.

use std::net::{Ipv4Addr, SocketAddrV4};
use std::os::fd::OwnedFd;
use std::time::{Duration, Instant};

use rustix::io::Errno;
use rustix::net::sockopt::{Timeout, set_socket_timeout};
use rustix::net::{
    AddressFamily, RecvFlags, SendFlags, SocketFlags, SocketType, connect, ipproto, recv, send,
    socket_with,
};

use crate::stimulus::system::{Ticker, random_from_clock};
use crate::stimulus::wire::{Facts, WorkerError, facts};
use crate::stimulus::worker_pool::Worker;

/// Payload of a request in bytes, as `ping` has it by default.
pub(super) const PAYLOAD_BYTES: usize = 56;
const HEADER_BYTES: usize = 8;
const PACKET_BYTES: usize = HEADER_BYTES + PAYLOAD_BYTES;
const COOKIE_BYTES: usize = 8;
const ECHO_REQUEST: u8 = 8;
const ECHO_REPLY: u8 = 0;
/// Longest and shortest wait for a reply. The host of a virtual machine may keep a CPU waiting for tens
/// of milliseconds: a reply that is late because of that is no error.
const WAIT_MAX: Duration = Duration::from_secs(1);
const WAIT_MIN: Duration = Duration::from_millis(200);
/// Pings without any answer at the start before the target counts as unreachable.
const FIRST_PINGS: u32 = 5;

/// Sends an echo request every `interval` and waits for its reply; an operation is a reply.
pub(super) fn ping_loop(
    worker: &Worker,
    target: Ipv4Addr,
    interval: Duration,
) -> Result<(), WorkerError> {
    let mut pinger = Pinger::open(target)?;
    let answered = (0..FIRST_PINGS).any(|_| pinger.ping(WAIT_MAX).is_ok_and(|reply| reply));
    if !answered {
        return Err(WorkerError::unavailable(
            format!("{target} answers no ping"),
            "check the peer's address, its route and its firewall (ICMP echo)",
        ));
    }
    worker.ready(facts_of(&pinger));
    let wait = interval.clamp(WAIT_MIN, WAIT_MAX);
    let mut ticker = Ticker::new(interval);
    while !worker.stopped() {
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
    facts! { "socket": if pinger.raw { "raw" } else { "ping" } }
}

struct Pinger {
    socket: OwnedFd,
    raw: bool,
    cookie: [u8; COOKIE_BYTES],
    sequence: u16,
}

impl Pinger {
    /// A raw socket (CAP_NET_RAW), else a ping socket (sysctl `net.ipv4.ping_group_range`).
    fn open(target: Ipv4Addr) -> Result<Self, WorkerError> {
        let new = |kind| {
            socket_with(AddressFamily::INET, kind, SocketFlags::CLOEXEC, Some(ipproto::ICMP))
        };
        let (socket, raw) = match new(SocketType::RAW) {
            Ok(socket) => (socket, true),
            Err(raw_error) => match new(SocketType::DGRAM) {
                Ok(socket) => (socket, false),
                Err(_) => {
                    return Err(WorkerError::unavailable(
                        format!("an ICMP socket is refused: {raw_error}"),
                        "run as root or with CAP_NET_RAW, or: \
                         sysctl -w net.ipv4.ping_group_range='0 2147483647'",
                    ));
                }
            },
        };
        connect(&socket, &SocketAddrV4::new(target, 0)).map_err(|error| {
            let remedy = "check the peer's address and the route to it";
            WorkerError::unavailable(format!("{target} cannot be reached: {error}"), remedy)
        })?;
        let cookie = random_from_clock().next().to_ne_bytes();
        Ok(Pinger { socket, raw, cookie, sequence: 0 })
    }

    /// Whether the request was answered within `wait`.
    fn ping(&mut self, wait: Duration) -> Result<bool, Errno> {
        self.sequence = self.sequence.wrapping_add(1);
        let request = echo_request(self.cookie, self.sequence);
        let deadline = Instant::now() + wait;
        send(&self.socket, &request, SendFlags::empty())?;
        set_socket_timeout(&self.socket, Timeout::Recv, Some(wait))?;
        let mut buffer = [0; 512];
        // Other ICMP traffic of the same peer may come first.
        while Instant::now() < deadline {
            match recv(&self.socket, &mut buffer[..], RecvFlags::empty()) {
                Ok((_, length)) => {
                    if is_reply(&buffer[..length], self.raw, self.cookie, self.sequence) {
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

fn echo_request(cookie: [u8; COOKIE_BYTES], sequence: u16) -> [u8; PACKET_BYTES] {
    let mut packet = [0; PACKET_BYTES];
    packet[0] = ECHO_REQUEST;
    packet[4..6].copy_from_slice(&cookie[..2]);
    packet[6..8].copy_from_slice(&sequence.to_be_bytes());
    packet[HEADER_BYTES..HEADER_BYTES + COOKIE_BYTES].copy_from_slice(&cookie);
    let sum = checksum(&packet).to_be_bytes();
    packet[2..4].copy_from_slice(&sum);
    packet
}

/// Whether `packet` (with its IPv4 header if it comes from a raw socket) answers that request. A
/// ping socket rewrites the identifier, so the cookie in the payload identifies it.
fn is_reply(packet: &[u8], raw: bool, cookie: [u8; COOKIE_BYTES], sequence: u16) -> bool {
    let header = match packet.first() {
        Some(first) if raw => usize::from(first & 0x0f) * 4,
        _ => 0,
    };
    let Some(icmp) = packet.get(header..) else { return false };
    icmp.first() == Some(&ECHO_REPLY)
        && icmp.get(6..8) == Some(&sequence.to_be_bytes())
        && icmp.get(HEADER_BYTES..HEADER_BYTES + COOKIE_BYTES) == Some(&cookie)
}

/// The internet checksum of RFC 1071 of an even number of bytes.
fn checksum(bytes: &[u8]) -> u16 {
    let mut sum: u32 =
        bytes.chunks_exact(2).map(|pair| u32::from(u16::from_be_bytes([pair[0], pair[1]]))).sum();
    while sum > 0xffff {
        sum = (sum & 0xffff) + (sum >> 16);
    }
    !(sum as u16)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_packet_with_its_checksum_sums_to_zero() {
        let packet = echo_request([1, 2, 3, 4, 5, 6, 7, 8], 0x1234);
        assert_eq!(checksum(&packet), 0);
    }

    #[test]
    fn only_the_answer_to_this_request_is_a_reply() {
        let cookie = [1, 2, 3, 4, 5, 6, 7, 8];
        let mut reply = echo_request(cookie, 7).to_vec();
        assert!(!is_reply(&reply, false, cookie, 7), "a request is no reply");
        reply[0] = ECHO_REPLY;
        assert!(is_reply(&reply, false, cookie, 7));
        assert!(!is_reply(&reply, false, cookie, 8));
        assert!(!is_reply(&reply, false, [0; 8], 7));
        assert!(!is_reply(&reply[..10], false, cookie, 7));
        assert!(!is_reply(&[], true, cookie, 7));
        let mut with_ip = vec![0x45; 20];
        with_ip.extend(&reply);
        assert!(is_reply(&with_ip, true, cookie, 7));
        assert!(!is_reply(&[0x4f], true, cookie, 7));
    }
}
