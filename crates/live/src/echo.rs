//! Echoes messages, as the other end of measurements through a network card. It answers each TCP message after the
//! delay that the message requests, and each UDP datagram at once.
//!
//! `irqlab echo` runs [`serve`] on another machine, for `footprint --peer` and `signal run --peer`. `footprint` runs
//! `answer` in a thread of its stimulus. The format of messages and datagrams may not change: both ends may run
//! different versions of irqlab.
//!
//! The server answers only datagrams that are requests, so two servers never answer each other. It answers only an
//! address that has a TCP connection, whose handshake proves that the address is not forged.

use std::collections::HashMap;
use std::io::{self, Read, Write};
use std::net::{IpAddr, TcpListener, TcpStream, UdpSocket};
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use rustix::event::{PollFd, PollFlags, poll};

use crate::spawn::{spawn_scoped, spawn_thread};
use crate::window::{Stop, wait};

/// Bytes of a message: the requested delay in ns (8 bytes), and 8 unused bytes.
pub(crate) const MESSAGE_BYTES: usize = 16;
/// Longest delay of an answer; longer requested delays are cut to it.
pub(crate) const DELAY_MAX: Duration = Duration::from_secs(1);
/// A wait ends with a busy-wait of this length, because a sleep may end late.
const BUSY_WAIT: Duration = Duration::from_millis(2);
/// Largest number of connections at the same time. Others are closed at once.
const CONNECTIONS_MAX: usize = 16;
/// A connection on which no message was completed for this time is closed.
const SILENCE_MAX: Duration = Duration::from_secs(60);

/// Time between two attempts to accept a connection, while the process or the kernel has no room for one.
const ACCEPT_RETRY: Duration = Duration::from_millis(100);

/// The bytes of a datagram that mark it as request or answer. The sender may use all other bytes.
const MARK: std::ops::Range<usize> = 8..16;
/// Marks of a request and of its answer.
const REQUEST: [u8; 8] = *b"irqlab ?";
const ANSWER: [u8; 8] = *b"irqlab !";
/// Shortest and longest datagram that is answered, bytes.
pub(crate) const DATAGRAM_BYTES: std::ops::RangeInclusive<usize> = 16..=8192;
/// Longest wait for a datagram. Then the thread for datagrams checks whether it should end.
const END_CHECK_INTERVAL: Duration = Duration::from_millis(100);

/// Makes a datagram of at least 16 bytes a request. A shorter datagram stays as it is.
pub(crate) fn mark_request(datagram: &mut [u8]) {
    if let Some(mark) = datagram.get_mut(MARK) {
        mark.copy_from_slice(&REQUEST);
    }
}

pub(crate) fn is_answer(datagram: &[u8]) -> bool {
    datagram.get(MARK) == Some(&ANSWER[..])
}

/// A message that requests an answer after `delay`.
pub(crate) fn message(delay: Duration) -> [u8; MESSAGE_BYTES] {
    let mut message = [0; MESSAGE_BYTES];
    let delay_ns = delay.min(DELAY_MAX).as_nanos() as u64;
    message[..8].copy_from_slice(&delay_ns.to_ne_bytes());
    message
}

/// Sleeps until shortly before `due`, and then waits busily.
pub(crate) fn wait_until(due: Instant) {
    std::thread::sleep(due.saturating_duration_since(Instant::now()).saturating_sub(BUSY_WAIT));
    while Instant::now() < due {
        std::hint::spin_loop();
    }
}

/// Answers the messages of a connection. Returns when the other end closes it, or takes longer than `silence_max` for a
/// message. Delays are at most [`DELAY_MAX`].
pub(crate) fn answer(mut far: TcpStream, silence_max: Option<Duration>) {
    let mut message = [0; MESSAGE_BYTES];
    while read_message(&mut far, &mut message, silence_max).is_ok() {
        let start = Instant::now();
        let delay_ns = u64::from_ne_bytes(message[..8].try_into().unwrap_or_default());
        let delay = Duration::from_nanos(delay_ns).min(DELAY_MAX);
        wait_until(start + delay);
        if far.write_all(&message).is_err() {
            return;
        }
    }
}

/// Reads a message. `time_max` limits the time for the complete message, however its bytes arrive. `None`: no limit.
fn read_message(
    far: &mut TcpStream,
    message: &mut [u8; MESSAGE_BYTES],
    time_max: Option<Duration>,
) -> io::Result<()> {
    let Some(time_max) = time_max else { return far.read_exact(message) };
    let deadline = Instant::now() + time_max;
    let mut missing = &mut message[..];
    while !missing.is_empty() {
        let time_left = deadline.saturating_duration_since(Instant::now());
        if time_left.is_zero() {
            return Err(io::ErrorKind::TimedOut.into());
        }
        far.set_read_timeout(Some(time_left))?;
        match far.read(missing) {
            Ok(0) => return Err(io::ErrorKind::UnexpectedEof.into()),
            Ok(count) => missing = &mut missing[count..],
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) => return Err(error),
        }
    }
    Ok(())
}

/// Addresses that have connections, each with its number of connections.
#[derive(Clone, Default)]
struct Clients(Arc<Mutex<HashMap<IpAddr, usize>>>);

/// A connection from an address. Dropping it removes the connection from the count.
struct Client(Clients, IpAddr);

impl Clients {
    fn lock(&self) -> MutexGuard<'_, HashMap<IpAddr, usize>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn add(&self, address: IpAddr) -> Client {
        *self.lock().entry(address).or_default() += 1;
        Client(self.clone(), address)
    }

    fn connection_count(&self) -> usize {
        self.lock().values().sum()
    }
}

impl Drop for Client {
    fn drop(&mut self) {
        let mut counts = self.0.lock();
        if let Some(count) = counts.get_mut(&self.1) {
            *count -= 1;
            if *count == 0 {
                counts.remove(&self.1);
            }
        }
    }
}

/// Answers the datagrams of `clients` until `has_ended`.
fn answer_datagrams(socket: &UdpSocket, clients: &Clients, has_ended: &AtomicBool) {
    // One byte more than the longest request, which shows that a datagram is too long.
    let mut datagram = [0; *DATAGRAM_BYTES.end() + 1];
    while !has_ended.load(Relaxed) {
        // An error is a timeout, or an answer that could not be delivered.
        let Ok((length, from)) = socket.recv_from(&mut datagram) else { continue };
        let is_request = DATAGRAM_BYTES.contains(&length) && datagram[MARK] == REQUEST;
        if is_request && clients.lock().contains_key(&from.ip()) {
            datagram[MARK].copy_from_slice(&ANSWER);
            // If the socket has no room, the answer is lost, as in a network.
            let _ = socket.send_to(&datagram[..length], from);
        }
    }
}

/// Answers up to `CONNECTIONS_MAX` connections at a time, each in its own thread. Also answers datagrams to the same
/// port, from addresses that have a connection. Returns after `stop`.
///
/// A connection that cannot be accepted or served is closed, or waits until there is room for it. Fails if the UDP port is
/// taken, or the listener cannot be used.
pub fn serve(listener: &TcpListener, stop: &Stop) -> io::Result<()> {
    let address = listener.local_addr()?;
    let socket = UdpSocket::bind(address).map_err(|error| {
        io::Error::new(error.kind(), format!("datagrams at {address}: {error}"))
    })?;
    socket.set_read_timeout(Some(END_CHECK_INTERVAL))?;
    let (clients, has_ended) = (Clients::default(), AtomicBool::new(false));
    std::thread::scope(|scope| {
        spawn_scoped(scope, "irqlab-datagrams", || {
            answer_datagrams(&socket, &clients, &has_ended);
        })?;
        let result = serve_connections(listener, stop, &clients);
        has_ended.store(true, Relaxed);
        result
    })
}

/// Accepts connections until a request to stop, and gives each a thread that echoes. Drops a connection beyond
/// [`CONNECTIONS_MAX`] and one whose thread the kernel refuses. Waits and tries again if accepting fails for a reason
/// outside the listener, such as a lack of descriptors.
///
/// Fails if polling or the listener fails.
fn serve_connections(listener: &TcpListener, stop: &Stop, clients: &Clients) -> io::Result<()> {
    while !stop.is_requested() {
        let mut ready = [
            PollFd::new(listener, PollFlags::IN),
            PollFd::from_borrowed_fd(stop.descriptor(), PollFlags::IN),
        ];
        match poll(&mut ready, None) {
            Err(rustix::io::Errno::INTR) => continue,
            other => other?,
        };
        if ready[0].revents().is_empty() {
            continue;
        }
        let (far, from) = match listener.accept() {
            Ok(accepted) => accepted,
            Err(error) if is_of_listener(&error) => return Err(error),
            Err(_) => {
                wait(Some(Instant::now() + ACCEPT_RETRY), None, stop);
                continue;
            }
        };
        if clients.connection_count() >= CONNECTIONS_MAX {
            continue; // drops, and so closes, the connection
        }
        if far.set_nodelay(true).is_err() {
            continue; // the connection has broken
        }
        let client = clients.add(from.ip());
        // If the kernel refuses the thread, the connection is closed.
        let _ = spawn_thread("irqlab-echo", move || {
            answer(far, Some(SILENCE_MAX));
            drop(client);
        });
    }
    Ok(())
}

/// Whether an error of accept(2) is about the listener itself. Any other error is about the new connection, or about a
/// lack of descriptors or memory, which ends.
fn is_of_listener(error: &io::Error) -> bool {
    let number = error.raw_os_error().unwrap_or(0);
    matches!(number, libc::EBADF | libc::EFAULT | libc::EINVAL | libc::ENOTSOCK | libc::EOPNOTSUPP)
}

#[cfg(test)]
mod tests {
    use std::net::SocketAddr;
    use std::thread::JoinHandle;

    use super::*;

    type Serving = JoinHandle<io::Result<()>>;

    /// Its address, what stops it, and the thread that serves.
    fn served() -> (SocketAddr, Stop, Serving) {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap();
        let stop = Stop::new().unwrap();
        let until = stop.clone();
        (address, stop, std::thread::spawn(move || serve(&listener, &until)))
    }

    #[test]
    fn each_message_comes_back_after_its_delay() {
        let (address, stop, serving) = served();
        let mut near = TcpStream::connect(address).unwrap();
        for delay in [Duration::ZERO, Duration::from_millis(5)] {
            let start = Instant::now();
            near.write_all(&message(delay)).unwrap();
            let mut back = [1; MESSAGE_BYTES];
            near.read_exact(&mut back).unwrap();
            assert_eq!(back, message(delay));
            assert!(start.elapsed() >= delay);
        }
        assert_eq!(message(Duration::from_secs(9)), message(DELAY_MAX));
        stop.request();
        serving.join().unwrap().unwrap();
    }

    #[test]
    fn datagrams_are_answered_to_those_who_have_a_connection() {
        let (address, stop, serving) = served();
        let mut near = TcpStream::connect(address).unwrap();
        near.write_all(&message(Duration::ZERO)).unwrap();
        near.read_exact(&mut [0; MESSAGE_BYTES]).unwrap();
        let ask = |from: &str, datagram: &[u8]| {
            let socket = UdpSocket::bind((from, 0)).unwrap();
            socket.set_read_timeout(Some(Duration::from_secs(10))).unwrap();
            socket.connect(address).unwrap();
            socket.send(datagram).unwrap();
            socket
        };
        let mut request = [7; 64];
        mark_request(&mut request);
        // An answer to any of these requests would come first. They come from another address, are
        // no request, are too short or too long.
        let stranger = ask("127.0.0.2", &request);
        let mut short = request;
        short[15] = 0;
        let silent = [ask("127.0.0.1", &short), ask("127.0.0.1", &request[..15])];
        let long = ask("127.0.0.1", &[&request[..], &[0; 8192]].concat());
        let mut back = [0; 65];
        let length = ask("127.0.0.1", &request).recv(&mut back).unwrap();
        assert_eq!((length, &back[..8]), (64, &[7; 8][..]));
        assert!(is_answer(&back[..64]) && !is_answer(&request) && !is_answer(&back[..15]));
        for socket in silent.iter().chain([&stranger, &long]) {
            socket.set_nonblocking(true).unwrap();
            assert!(socket.recv(&mut back).is_err());
        }
        // An answer is no request.
        let answer = ask("127.0.0.1", &back[..64]);
        ask("127.0.0.1", &request).recv(&mut back).unwrap();
        answer.set_nonblocking(true).unwrap();
        assert!(answer.recv(&mut back).is_err());
        stop.request();
        serving.join().unwrap().unwrap();
    }

    #[test]
    fn single_bytes_do_not_extend_the_timeout_of_a_message() {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let mut near = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
        let (far, _) = listener.accept().unwrap();
        let answering = std::thread::spawn(move || answer(far, Some(Duration::from_millis(200))));
        // A byte each 140 ms: below the timeout, but the whole message takes 2.1 s.
        for _ in 0..MESSAGE_BYTES - 1 {
            if answering.is_finished() || near.write_all(&[0]).is_err() {
                break;
            }
            std::thread::sleep(Duration::from_millis(140));
        }
        assert!(answering.is_finished(), "it waits for the rest of the message");
        answering.join().unwrap();
    }

    /// Not a test of its own: the next test starts this as a process, because the limit applies to all threads.
    #[test]
    #[ignore = "a process of the next test"]
    fn child_that_lacks_descriptors() {
        use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
        use std::os::fd::AsRawFd;
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let mut near = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
        near.set_read_timeout(Some(Duration::from_secs(10))).unwrap();
        near.write_all(&message(Duration::ZERO)).unwrap();
        let stop = Stop::new().unwrap();
        let limits = getrlimit(Resource::Nofile);
        let first_free = std::fs::File::open("/dev/null").unwrap().as_raw_fd();
        let lowered = Rlimit { current: Some(first_free as u64), ..limits };
        setrlimit(Resource::Nofile, lowered).unwrap();
        let until = stop.clone();
        let serving =
            std::thread::spawn(move || serve_connections(&listener, &until, &Clients::default()));
        // Gives the server time to fail.
        std::thread::sleep(2 * ACCEPT_RETRY);
        assert!(!serving.is_finished(), "it ended: {:?}", serving.join());
        setrlimit(Resource::Nofile, limits).unwrap();
        near.read_exact(&mut [0; MESSAGE_BYTES]).unwrap();
        stop.request();
        serving.join().unwrap().unwrap();
    }

    #[test]
    fn a_connection_that_has_to_wait_for_a_descriptor_is_served_later() {
        let mut child = std::process::Command::new(std::env::current_exe().unwrap());
        child.args(["echo::tests::child_that_lacks_descriptors", "--exact", "--ignored"]);
        let output = child.output().unwrap();
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stdout));
    }

    #[test]
    fn no_more_connections_than_there_may_be() {
        let (address, stop, serving) = served();
        let mut near: Vec<TcpStream> =
            (0..=CONNECTIONS_MAX).map(|_| TcpStream::connect(address).unwrap()).collect();
        let answers = |connection: &mut TcpStream| {
            connection.write_all(&message(Duration::ZERO)).is_ok()
                && connection.read_exact(&mut [0; MESSAGE_BYTES]).is_ok()
        };
        let answered =
            near.iter_mut().filter_map(|connection| answers(connection).then_some(())).count();
        assert_eq!(answered, CONNECTIONS_MAX);
        stop.request();
        serving.join().unwrap().unwrap();
    }
}
