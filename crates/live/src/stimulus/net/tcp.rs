//! Bulk TCP of the net stimulus: one worker writes as fast as possible, the other reads and discards.

use std::io::{ErrorKind, Read, Write};
use std::net::{Ipv4Addr, SocketAddr, TcpListener, TcpStream};
use std::os::fd::{AsFd, AsRawFd, BorrowedFd};
use std::sync::mpsc::Sender;
use std::time::Duration;

use crate::stimulus::error::WorkerError;
use crate::stimulus::facts::{Facts, facts};
use crate::stimulus::worker_pool::Worker;

/// Bytes of one write. An operation is one write.
pub(super) const WRITE_BYTES: usize = 64 * 1024;
const READ_BYTES: usize = 256 * 1024;
/// Bytes that are received before the receiver queries its NAPI instance.
const WARM_UP_BYTES: u64 = 1024 * 1024;
const CONNECT_TIMEOUT: Duration = Duration::from_secs(5);
const SO_INCOMING_NAPI_ID: libc::c_int = 56;

/// Writes to `target` until stopped.
pub(super) fn send_loop(worker: &Worker, target: SocketAddr) -> Result<(), WorkerError> {
    let mut stream = TcpStream::connect_timeout(&target, CONNECT_TIMEOUT).map_err(|error| {
        let port = target.port();
        WorkerError::unavailable(
            format!("no TCP connection to {target}: {error}"),
            format!("on the peer, run: nc -lk {port} >/dev/null"),
        )
    })?;
    let data = vec![0x5a; WRITE_BYTES];
    write(worker, &mut stream, &data)?;
    let local = stream.local_addr().map_or(None, |address| Some(address.to_string()));
    worker.report_ready(facts! { "local_address": local });
    while !worker.is_stopped() {
        write(worker, &mut stream, &data)?;
    }
    Ok(())
}

fn write(worker: &Worker, stream: &mut TcpStream, data: &[u8]) -> Result<(), WorkerError> {
    if let Some(length) = sent(stream.write(data), worker.is_stopped())? {
        worker.count(1, length as u64);
    }
    Ok(())
}

/// Number of bytes that a write has sent; `None` after a write that failed without being an error. Once the stimulus
/// is stopped, no failure is an error: a receiver that closes with unread data resets the connection.
fn sent(written: std::io::Result<usize>, is_stopped: bool) -> Result<Option<usize>, WorkerError> {
    match written {
        Ok(length) => Ok(Some(length)),
        Err(error) if is_stopped || error.kind() == ErrorKind::Interrupted => Ok(None),
        Err(error) => Err(WorkerError::failed(format!("sending: {error}"))),
    }
}

/// Listens on `address`, sends the port to `port`, and reads from the first connection until stopped.
pub(super) fn receive_loop(
    worker: &Worker,
    address: Ipv4Addr,
    port: &Sender<u16>,
) -> Result<(), WorkerError> {
    let broken = |error: std::io::Error| WorkerError::failed(format!("receiving: {error}"));
    let listener = TcpListener::bind((address, 0)).map_err(broken)?;
    let chosen_port = listener.local_addr().map_err(broken)?.port();
    port.send(chosen_port).map_err(|_| WorkerError::failed("no sender"))?;
    let (mut stream, _) = listener.accept().map_err(broken)?;
    let mut buffer = vec![0; READ_BYTES];
    let mut received = 0;
    let mut is_ready = false;
    while !worker.is_stopped() {
        match stream.read(&mut buffer) {
            Ok(0) if worker.is_stopped() => break,
            Ok(0) => return Err(WorkerError::failed("the sender is gone")),
            Ok(length) => received += length as u64,
            Err(error) if error.kind() == ErrorKind::Interrupted => {}
            Err(error) => return Err(broken(error)),
        }
        if !is_ready && received >= WARM_UP_BYTES {
            worker.report_ready(napi_facts(stream.as_fd()));
            is_ready = true;
        }
    }
    Ok(())
}

/// Facts about the NAPI instance that received the data. 0: the packets bypass NAPI. Null: the kernel does not report
/// the instance (`CONFIG_NET_RX_BUSY_POLL`).
fn napi_facts(socket: BorrowedFd<'_>) -> Facts {
    let id = napi_id(socket);
    facts! { "receiver_napi_id": id, "napi": id.map(|id| id != 0) }
}

fn napi_id(socket: BorrowedFd<'_>) -> Option<u32> {
    let mut id: u32 = 0;
    let mut length = std::mem::size_of::<u32>() as libc::socklen_t;
    // SAFETY: `id` and `length` are valid for writes of their sizes until the call returns.
    let result = unsafe {
        libc::getsockopt(
            socket.as_raw_fd(),
            libc::SOL_SOCKET,
            SO_INCOMING_NAPI_ID,
            (&raw mut id).cast(),
            &raw mut length,
        )
    };
    (result == 0).then_some(id)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_receiver_that_closed_first_is_an_error_only_before_the_stop() {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
        let mut stream = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
        let (receiver, _) = listener.accept().unwrap();
        stream.write_all(&[0x5a; WRITE_BYTES]).unwrap();
        // The receiver ends without having read the data.
        drop(receiver);
        // The kernel may accept the first writes before the reset arrives.
        let error = (0..1_000).find_map(|_| stream.write(&[0x5a; WRITE_BYTES]).err());
        let error = error.expect("the connection is reset");
        let again = || Err(std::io::Error::from(error.kind()));
        assert!(sent(again(), false).is_err(), "{error}");
        assert!(matches!(sent(again(), true), Ok(None)), "{error}");
        assert!(matches!(sent(Ok(7), true), Ok(Some(7))));
    }
}
