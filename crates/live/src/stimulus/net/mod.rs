//! The net stimulus: pings at a low rate, bulk TCP at the high rate. Packets go over a veth pair or the cards of a
//! simulated machine, between two unnamed network namespaces, or over a real NIC to a peer.

mod icmp;
pub(super) mod steered;
mod tcp;

use std::net::{Ipv4Addr, SocketAddr, SocketAddrV4, ToSocketAddrs};

use super::error::WorkerError;
use super::facts::{Facts, facts};
use super::peer::split_peer;
use super::system::other_cpu;
use super::worker_pool::WorkerPool;
use super::{Rate, StimulusSettings};
use crate::network::{ADDRESS_FAR, Pair};

pub(super) fn start(
    settings: &StimulusSettings,
    pool: &mut WorkerPool,
) -> Result<Facts, WorkerError> {
    match &settings.peer {
        Some(peer) => start_peer(settings, pool, peer),
        None => start_pair(settings, pool),
    }
}

/// Pings from one end of a pair to the other, or sends a TCP stream.
///
/// A veth has no interrupt. The NET_RX softirq of *the sending CPU* receives the packets at the
/// other end. Therefore the sender runs on the measured CPU, and the receiver on another CPU.
fn start_pair(settings: &StimulusSettings, pool: &mut WorkerPool) -> Result<Facts, WorkerError> {
    let (pair, path) = if settings.cards {
        (Pair::of_cards()?, "two cards, joined back to back")
    } else {
        (Pair::create()?, "veth pair")
    };
    let mut facts = facts! { "stimulus": "net", "path": path };
    facts.extend(pair.facts());
    let measured = settings.cpus.first().copied();
    match settings.rate {
        Rate::Low => {
            let interval = settings.low_interval;
            // The worker owns the pair: the namespace of the answering end lives until its descriptor is closed.
            pool.spawn("ping", measured, move |worker| {
                let _pair = pair;
                icmp::ping_loop(worker, ADDRESS_FAR, interval)
            })?;
            facts.extend(ping_facts(settings, ADDRESS_FAR));
        }
        Rate::High => {
            let (port_sender, port) = std::sync::mpsc::channel();
            pool.spawn("tcp-receiver", other_cpu(settings).or(measured), move |worker| {
                pair.enter_far()?;
                tcp::receive_loop(worker, ADDRESS_FAR, &port_sender)
            })?;
            pool.spawn("tcp-sender", measured, move |worker| {
                let port = port.recv().map_err(|_| WorkerError::failed("no receiver"))?;
                tcp::send_loop(worker, SocketAddrV4::new(ADDRESS_FAR, port).into())
            })?;
            facts.extend(tcp_facts());
        }
    }
    Ok(facts)
}

fn start_peer(
    settings: &StimulusSettings,
    pool: &mut WorkerPool,
    peer: &str,
) -> Result<Facts, WorkerError> {
    let measured = settings.cpus.first().copied();
    let mut facts = facts! { "stimulus": "net", "path": "peer", "peer": peer };
    let (host, port) = split_peer(peer).map_err(WorkerError::failed)?;
    let address = resolve(host, port)?;
    facts.extend(facts! { "peer_address": address.to_string() });
    match settings.rate {
        Rate::Low => {
            let SocketAddr::V4(address) = address else {
                return Err(WorkerError::unavailable(
                    format!("{host} has no IPv4 address to ping"),
                    "name a peer with an IPv4 address",
                ));
            };
            let (target, interval) = (*address.ip(), settings.low_interval);
            pool.spawn("ping", measured, move |worker| icmp::ping_loop(worker, target, interval))?;
            facts.extend(ping_facts(settings, target));
        }
        Rate::High => {
            pool.spawn("tcp-sender", measured, move |worker| tcp::send_loop(worker, address))?;
            facts.extend(tcp_facts());
        }
    }
    Ok(facts)
}

fn ping_facts(settings: &StimulusSettings, target: Ipv4Addr) -> Facts {
    facts! {
        "method": "ICMP echo",
        "target": target.to_string(),
        "request_bytes": icmp::PAYLOAD_BYTES,
        "interval_ns": settings.low_interval.as_nanos() as u64,
    }
}

fn tcp_facts() -> Facts {
    facts! { "method": "TCP", "request_bytes": tcp::WRITE_BYTES }
}

/// Resolves the peer's address; prefers IPv4.
fn resolve(host: &str, port: u16) -> Result<SocketAddr, WorkerError> {
    let unknown = |reason: String| {
        let remedy = "check the name, or name the peer by its address";
        WorkerError::unavailable(format!("peer {host}: {reason}"), remedy)
    };
    let addresses = (host, port).to_socket_addrs().map_err(|error| unknown(error.to_string()))?;
    addresses.min_by_key(SocketAddr::is_ipv6).ok_or_else(|| unknown("it has no address".to_owned()))
}
