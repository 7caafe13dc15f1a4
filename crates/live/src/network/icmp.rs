//! ICMP echo requests and replies (RFC 792), which irqlab sends and receives itself, without ping(8). The stimulus
//! `icmp` and `signal::packets` use them.

use std::net::{Ipv4Addr, SocketAddrV4};
use std::os::fd::OwnedFd;

use lab::experiment::BenchError;
use rustix::net::{AddressFamily, SocketFlags, SocketType, connect, ipproto, socket_with};

/// Length of the header before the payload.
pub const ICMP_HEADER_BYTES: usize = 8;
const ECHO_REQUEST: u8 = 8;
const ECHO_REPLY: u8 = 0;

/// A socket for echo requests to one target.
pub struct EchoSocket {
    pub socket: OwnedFd,
    /// Whether the socket is raw. A raw socket receives packets with their IPv4 header, a ping socket without it.
    pub raw: bool,
}

impl EchoSocket {
    /// Opens a raw socket (CAP_NET_RAW) or, if that is refused, a ping socket (sysctl
    /// `net.ipv4.ping_group_range`).
    ///
    /// Fails if both are refused, or there is no route to the target.
    pub fn open(target: Ipv4Addr) -> Result<EchoSocket, BenchError> {
        let open_socket = |kind| {
            socket_with(AddressFamily::INET, kind, SocketFlags::CLOEXEC, Some(ipproto::ICMP))
        };
        let unavailable = |reason: String, remedy: &str| BenchError::Unavailable {
            reason,
            remedy: Some(remedy.to_owned()),
        };
        let (socket, raw) = match open_socket(SocketType::RAW) {
            Ok(socket) => (socket, true),
            Err(raw_error) => match open_socket(SocketType::DGRAM) {
                Ok(socket) => (socket, false),
                Err(_) => {
                    return Err(unavailable(
                        format!("an ICMP socket is refused: {raw_error}"),
                        "run as root or with CAP_NET_RAW, or: \
                         sysctl -w net.ipv4.ping_group_range='0 2147483647'",
                    ));
                }
            },
        };
        connect(&socket, &SocketAddrV4::new(target, 0)).map_err(|error| {
            unavailable(
                format!("{target} cannot be reached: {error}"),
                "check the peer's address and the route to it",
            )
        })?;
        Ok(EchoSocket { socket, raw })
    }

    /// Sequence number and payload of a received echo reply; `None` for every other packet. The identifier is not
    /// checked, because a ping socket rewrites it: the caller must recognise its replies by their payload.
    #[must_use]
    pub fn reply<'p>(&self, packet: &'p [u8]) -> Option<(u16, &'p [u8])> {
        // The low half of the first byte is the IPv4 header's length in words of 32 bits.
        let ip_header_bytes = match packet.first() {
            Some(first) if self.raw => usize::from(first & 0x0f) * 4,
            _ => 0,
        };
        reply(packet.get(ip_header_bytes..)?)
    }
}

/// Builds an echo request. The payload's length must be even.
#[must_use]
pub fn echo_request(identifier: [u8; 2], sequence: u16, payload: &[u8]) -> Vec<u8> {
    let mut packet = vec![0; ICMP_HEADER_BYTES];
    packet[0] = ECHO_REQUEST;
    packet[4..6].copy_from_slice(&identifier);
    packet[6..8].copy_from_slice(&sequence.to_be_bytes());
    packet.extend(payload);
    let sum = checksum(&packet).to_be_bytes();
    packet[2..4].copy_from_slice(&sum);
    packet
}

/// Sequence number and payload of an ICMP packet that is an echo reply. `None` for another packet, or one that is too
/// short.
fn reply(icmp: &[u8]) -> Option<(u16, &[u8])> {
    let (header, payload) = icmp.split_at_checked(ICMP_HEADER_BYTES)?;
    (header[0] == ECHO_REPLY).then(|| (u16::from_be_bytes([header[6], header[7]]), payload))
}

/// The internet checksum (RFC 1071) of an even number of bytes.
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
        assert_eq!(checksum(&echo_request([1, 2], 0x1234, &[3, 4, 5, 6])), 0);
    }

    #[test]
    fn only_an_answer_is_a_reply() {
        let mut packet = echo_request([1, 2], 7, &[3, 4]);
        assert_eq!(reply(&packet), None, "a request is no reply");
        packet[0] = ECHO_REPLY;
        assert_eq!(reply(&packet), Some((7, &[3, 4][..])));
        assert_eq!(reply(&packet[..7]), None);
        assert_eq!(reply(&[]), None);
    }
}
