//! Parses the option that names the peer of the net stimulus. `settings` checks the option with it, and `net` connects
//! to the peer.

/// TCP port if the peer names none: "discard".
const DISCARD_PORT: u16 = 9;

/// The longest name of a host (RFC 1035: 253 bytes), with brackets and a port.
const PEER_BYTES_MAX: usize = 264;

/// Splits `HOST`, `HOST:PORT`, `IPV6`, `[IPV6]` or `[IPV6]:PORT` into host and port. The error is a message.
pub(super) fn split_peer(peer: &str) -> Result<(&str, u16), String> {
    if peer.len() > PEER_BYTES_MAX {
        return Err(format!("the peer is not HOST or HOST:PORT: it has {} bytes", peer.len()));
    }
    let bad = || format!("peer '{peer}' is not HOST or HOST:PORT");
    let (host, port) = if let Some(remainder) = peer.strip_prefix('[') {
        let (host, remainder) = remainder.split_once(']').ok_or_else(bad)?;
        (
            host,
            remainder.strip_prefix(':').or(if remainder.is_empty() { None } else { Some("bad") }),
        )
    } else {
        match peer.split_once(':') {
            // Two colons: an IPv6 address without brackets, which cannot have a port.
            Some((_, remainder)) if remainder.contains(':') => (peer, None),
            Some((host, port)) => (host, Some(port)),
            None => (peer, None),
        }
    };
    if host.is_empty() {
        return Err(bad());
    }
    match port {
        None => Ok((host, DISCARD_PORT)),
        Some(text) => match text.parse() {
            Ok(0) | Err(_) => Err(bad()),
            Ok(port) => Ok((host, port)),
        },
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn peers_are_split_into_host_and_port() {
        let check = |peer: &str, expect: Option<(&str, u16)>| {
            assert_eq!(split_peer(peer).ok(), expect, "{peer}");
        };
        check("host", Some(("host", 9)));
        check("host:5001", Some(("host", 5001)));
        check("10.0.0.1:5001", Some(("10.0.0.1", 5001)));
        check("fe80::1", Some(("fe80::1", 9)));
        check("[fe80::1]", Some(("fe80::1", 9)));
        check("[fe80::1]:5001", Some(("fe80::1", 5001)));
        for bad in ["", ":9", "host:", "host:99999", "[::1", "[::1]x"] {
            check(bad, None);
        }
    }
}
