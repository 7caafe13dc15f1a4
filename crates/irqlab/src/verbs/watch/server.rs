//! A small HTTP server for one page of text: `irqlab watch --listen`. It serves a scraper on the same machine. Number
//! of connections, request length and times are limited, so that other clients cannot harm irqlab.

use std::collections::VecDeque;
use std::io::{self, Read, Write};
use std::net::{Shutdown, SocketAddr, TcpListener, TcpStream};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use live::spawn::spawn_thread;
use live::window::Stop;
use report::Exposition;
use rustix::event::{PollFd, PollFlags, poll};
use rustix::io::Errno;

use super::RETRY;

/// Maximum number of open connections. A further connection closes the oldest, so slow clients cannot keep out a
/// scrape. A scrape is not closed in practice, because it takes less than a millisecond.
const CONNECTIONS_MAX: usize = 32;
/// Maximum length of a request's first line and headers together, bytes.
const HEAD_BYTES_MAX: usize = 8 << 10;
/// Time limit for the arrival of a request, and for each write of the response.
const REQUEST_TIME_MAX: Duration = Duration::from_secs(5);

/// The page that is served at `/metrics`.
pub trait Page: Send + Sync + 'static {
    /// The present text of the page.
    fn text(&self, format: Exposition) -> String;
}

/// The running server. Dropping it ends the server.
pub struct Server {
    address: SocketAddr,
    stop: Stop,
    thread: Option<JoinHandle<()>>,
}

impl Server {
    /// Serves the page at the listener's address.
    ///
    /// Fails when the process has no descriptors or threads left.
    pub fn start(listener: TcpListener, page: Arc<dyn Page>) -> io::Result<Server> {
        let address = listener.local_addr()?;
        listener.set_nonblocking(true)?;
        let stop = Stop::new()?;
        let thread_stop = stop.clone();
        let serve = move || accept(&listener, &page, &thread_stop);
        let thread = spawn_thread("metrics", serve)?;
        Ok(Server { address, stop, thread: Some(thread) })
    }

    /// The address at which the server listens.
    pub fn address(&self) -> SocketAddr {
        self.address
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        self.stop.request();
        if let Some(thread) = self.thread.take() {
            let _ = thread.join(); // an error is a panic, whose message has been printed
        }
    }
}

/// Accepts connections until the stop. Each connection has a thread, so that slow clients do not delay others.
fn accept(listener: &TcpListener, page: &Arc<dyn Page>, stop: &Stop) {
    let connections = Arc::new(Connections::default());
    loop {
        let mut polled = [
            PollFd::from_borrowed_fd(stop.descriptor(), PollFlags::IN),
            PollFd::new(listener, PollFlags::IN),
        ];
        match poll(&mut polled, None) {
            Ok(_) if !polled[0].revents().is_empty() => return,
            Ok(_) | Err(Errno::INTR) => {}
            // The kernel has no memory, or fewer descriptors are allowed than there are.
            Err(_) => std::thread::sleep(RETRY),
        }
        match listener.accept() {
            Ok((stream, _)) => {
                let (page, connection) = (Arc::clone(page), Connection::open(&connections, stream));
                // If the kernel refuses the thread, the closure is dropped, which closes the connection.
                let _ = std::thread::Builder::new().name("scrape".to_owned()).spawn(move || {
                    // An error means that the client went away or was too slow.
                    let _ = answer(&connection.stream, page.as_ref());
                });
            }
            // The process has no free descriptor. It gets some back when connections end.
            Err(error) if error.kind() != io::ErrorKind::WouldBlock => {
                std::thread::sleep(RETRY);
            }
            Err(_) => {}
        }
    }
}

/// The open connections, the oldest first.
#[derive(Default)]
struct Connections(Mutex<VecDeque<Arc<TcpStream>>>);

impl Connections {
    fn streams(&self) -> MutexGuard<'_, VecDeque<Arc<TcpStream>>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// An open connection. Dropping it closes the connection. A further connection may close it earlier.
struct Connection {
    stream: Arc<TcpStream>,
    connections: Arc<Connections>,
}

impl Connection {
    /// Adds the connection to the open ones, and closes the oldest if there are too many.
    fn open(connections: &Arc<Connections>, stream: TcpStream) -> Connection {
        let (stream, connections) = (Arc::new(stream), Arc::clone(connections));
        let mut streams = connections.streams();
        streams.push_back(Arc::clone(&stream));
        while streams.len() > CONNECTIONS_MAX {
            if let Some(oldest) = streams.pop_front() {
                let _ = oldest.shutdown(Shutdown::Both); // it may have ended already
            }
        }
        drop(streams);
        Connection { stream, connections }
    }
}

impl Drop for Connection {
    fn drop(&mut self) {
        self.connections.streams().retain(|stream| !Arc::ptr_eq(stream, &self.stream));
    }
}

/// Reads one request and answers it.
fn answer(mut stream: &TcpStream, page: &dyn Page) -> io::Result<()> {
    stream.set_nonblocking(false)?;
    stream.set_write_timeout(Some(REQUEST_TIME_MAX))?;
    let response = match read_head(stream)? {
        Some(head) => respond(&head, page),
        None => Response::text("431 Request Header Fields Too Large", "the request is too long\n"),
    };
    stream.write_all(&response.bytes())?;
    stream.flush()
}

/// Reads the first line and the headers of a request. Returns `None` if they are too long.
///
/// Fails when they are not complete within [`REQUEST_TIME_MAX`].
fn read_head(mut stream: &TcpStream) -> io::Result<Option<String>> {
    let deadline = Instant::now() + REQUEST_TIME_MAX;
    let mut head = Vec::new();
    let mut buffer = [0; 1024];
    loop {
        let remaining = deadline.saturating_duration_since(Instant::now());
        if remaining.is_zero() {
            return Err(io::ErrorKind::TimedOut.into());
        }
        stream.set_read_timeout(Some(remaining))?;
        let count = stream.read(&mut buffer)?;
        if count == 0 {
            return Err(io::ErrorKind::UnexpectedEof.into());
        }
        head.extend_from_slice(&buffer[..count]);
        if let Some(end) = head.windows(4).position(|bytes| bytes == b"\r\n\r\n") {
            head.truncate(end);
            return Ok(Some(String::from_utf8_lossy(&head).into_owned()));
        }
        if head.len() > HEAD_BYTES_MAX {
            return Ok(None);
        }
    }
}

#[derive(Debug, PartialEq)]
struct Response {
    status: &'static str,
    content_type: &'static str,
    body: String,
    /// Whether the request is HEAD: the response states the body's length and leaves the body out.
    is_head: bool,
}

impl Response {
    fn text(status: &'static str, body: &str) -> Response {
        let content_type = "text/plain; charset=utf-8";
        Response { status, content_type, body: body.to_owned(), is_head: false }
    }

    fn bytes(&self) -> Vec<u8> {
        let Response { status, content_type, body, is_head } = self;
        let length = body.len();
        let headers = format!(
            "HTTP/1.1 {status}\r\nContent-Type: {content_type}\r\nContent-Length: {length}\r\n\
             X-Content-Type-Options: nosniff\r\nConnection: close\r\n\r\n"
        );
        let body = if *is_head { "" } else { body };
        [headers.as_bytes(), body.as_bytes()].concat()
    }
}

/// The response to a request with these lines.
fn respond(head: &str, page: &dyn Page) -> Response {
    let mut lines = head.split("\r\n");
    let request: Vec<&str> = lines.next().unwrap_or_default().split(' ').collect();
    let [method, target, version] = request[..] else {
        return Response::text("400 Bad Request", "this is not an HTTP/1.1 request\n");
    };
    if !version.starts_with("HTTP/1.") {
        return Response::text("505 HTTP Version Not Supported", "only HTTP/1.x is supported\n");
    }
    if !["GET", "HEAD"].contains(&method) {
        return Response::text("405 Method Not Allowed", "only GET and HEAD are allowed\n");
    }
    let path = target.split('?').next().unwrap_or_default();
    let response = match path {
        "/metrics" => {
            let format = format_of(lines);
            let (status, content_type) = ("200 OK", format.content_type());
            Response { status, content_type, body: page.text(format), is_head: false }
        }
        "/" => Response::text("200 OK", "irqlab watch: the metrics are at /metrics\n"),
        _ => Response::text("404 Not Found", "the metrics are at /metrics\n"),
    };
    Response { is_head: method == "HEAD", ..response }
}

/// The format of the metrics: OpenMetrics if the client accepts it, else Prometheus text.
fn format_of<'a>(mut headers: impl Iterator<Item = &'a str>) -> Exposition {
    let accepts = headers.any(|line| {
        let (name, value) = line.split_once(':').unwrap_or_default();
        name.eq_ignore_ascii_case("accept") && value.contains("application/openmetrics-text")
    });
    if accepts { Exposition::OpenMetrics } else { Exposition::Prometheus }
}

#[cfg(test)]
mod tests {
    use super::*;

    struct Fixed;

    impl Page for Fixed {
        fn text(&self, format: Exposition) -> String {
            format!("{format:?}\n")
        }
    }

    fn served(request: &[u8]) -> String {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let server = Server::start(listener, Arc::new(Fixed)).unwrap();
        let mut stream = TcpStream::connect(server.address()).unwrap();
        // The server may close the connection before a request that is too long is written.
        let _ = stream.write_all(request);
        let mut answer = String::new();
        let _ = stream.read_to_string(&mut answer);
        answer
    }

    #[test]
    fn requests_and_their_answers() {
        let open =
            "GET /metrics HTTP/1.1\r\nHost: x\r\nACCEPT: application/openmetrics-text;q=1\r\n\r\n";
        for (request, status, end) in [
            (open, "200", "\r\n\r\nOpenMetrics\n"),
            ("GET /metrics?a=b HTTP/1.0\r\n\r\n", "200", "\r\n\r\nPrometheus\n"),
            ("HEAD /metrics HTTP/1.1\r\n\r\n", "200", "Connection: close\r\n\r\n"),
            ("GET / HTTP/1.1\r\n\r\n", "200", "/metrics\n"),
            ("GET /../etc/passwd HTTP/1.1\r\n\r\n", "404", "/metrics\n"),
            ("POST /metrics HTTP/1.1\r\n\r\n", "405", "allowed\n"),
            ("GET /metrics\r\n\r\n", "400", "\n"),
            ("GET /metrics HTTP/2.0\r\n\r\n", "505", "\n"),
            ("\0\u{fffd}\r\n\r\n", "400", "\n"),
        ] {
            let answer = served(request.as_bytes());
            assert!(answer.starts_with(&format!("HTTP/1.1 {status} ")), "{request:?}: {answer}");
            assert!(answer.ends_with(end), "{request:?}: {answer}");
        }
    }

    #[test]
    fn a_request_without_end_is_refused() {
        let head = Response::text("431 Request Header Fields Too Large", "").bytes();
        let long = vec![b'a'; HEAD_BYTES_MAX + 1024];
        // When the server closes, a reset may arrive before the answer.
        let answer = served(&long);
        assert!(answer.is_empty() || answer.as_bytes().starts_with(&head[..12]), "{answer}");
    }

    /// The answer to a scrape while `slow` clients have each sent half of a request.
    fn scrape_with_slow_clients(slow: usize) -> String {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let server = Server::start(listener, Arc::new(Fixed)).unwrap();
        let connect = || TcpStream::connect(server.address()).unwrap();
        let clients: Vec<TcpStream> = (0..slow).map(|_| connect()).collect();
        for mut client in &clients {
            let _ = client.write_all(b"GET /metr"); // the oldest may be closed already
        }
        let mut scraper = connect();
        scraper.write_all(b"GET /metrics HTTP/1.1\r\n\r\n").unwrap();
        let mut answer = String::new();
        scraper.read_to_string(&mut answer).unwrap();
        answer
    }

    #[test]
    fn slow_clients_do_not_keep_a_scrape_out() {
        for slow in [7, 16, CONNECTIONS_MAX, 3 * CONNECTIONS_MAX] {
            let answer = scrape_with_slow_clients(slow);
            assert!(answer.contains("200 OK"), "{slow}: {answer}");
        }
    }

    #[test]
    fn the_oldest_connection_is_closed_for_one_too_many() {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let server = Server::start(listener, Arc::new(Fixed)).unwrap();
        let connect = || TcpStream::connect(server.address()).unwrap();
        let mut oldest = connect();
        let others: Vec<TcpStream> = (0..CONNECTIONS_MAX).map(|_| connect()).collect();
        // The server closes the connection without an answer, because it got no request.
        let mut answer = Vec::new();
        let _ = oldest.read_to_end(&mut answer);
        assert!(answer.is_empty());
        drop(others);
    }
}
