//! The far end of the network stimuli: answers each message after the requested delay.

use std::io::{self, Read, Write};
use std::net::{TcpListener, TcpStream};
use std::sync::Arc;
use std::time::{Duration, Instant};

use rustix::event::{PollFd, PollFlags, poll};

use crate::window::Stop;

/// Bytes of a message: the delay in ns, and 8 unused bytes.
pub(super) const MESSAGE_BYTES: usize = 16;
/// Longest delay.
pub(super) const DELAY_MAX: Duration = Duration::from_secs(1);
/// The last part of a wait is a busy-wait of this length.
const AWAKE: Duration = Duration::from_millis(2);
/// Connections at a time.
const CONNECTIONS_MAX: usize = 16;
/// A connection on which no message was completed for this time is closed.
const SILENCE_MAX: Duration = Duration::from_secs(60);

/// A message that requests an answer after `delay`.
pub(super) fn message(delay: Duration) -> [u8; MESSAGE_BYTES] {
    let mut message = [0; MESSAGE_BYTES];
    let delay_ns = delay.min(DELAY_MAX).as_nanos() as u64;
    message[..8].copy_from_slice(&delay_ns.to_ne_bytes());
    message
}

/// Waits until `due`: asleep first, then busy.
pub(super) fn wait_until(due: Instant) {
    std::thread::sleep(due.saturating_duration_since(Instant::now()).saturating_sub(AWAKE));
    while Instant::now() < due {
        std::hint::spin_loop();
    }
}

/// Answers until the other end closes, or takes longer than `silence_max` for a message. Longer delays than
/// the maximum are cut to it.
pub(super) fn answer(mut far: TcpStream, silence_max: Option<Duration>) {
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

/// Reads a message, with a timeout for the whole message: single bytes do not extend it. `None`: no timeout.
fn read_message(
    far: &mut TcpStream,
    message: &mut [u8; MESSAGE_BYTES],
    time_max: Option<Duration>,
) -> io::Result<()> {
    let Some(time_max) = time_max else { return far.read_exact(message) };
    let deadline = Instant::now() + time_max;
    let mut rest = &mut message[..];
    while !rest.is_empty() {
        let left = deadline.saturating_duration_since(Instant::now());
        if left.is_zero() {
            return Err(io::ErrorKind::TimedOut.into());
        }
        far.set_read_timeout(Some(left))?;
        match far.read(rest) {
            Ok(0) => return Err(io::ErrorKind::UnexpectedEof.into()),
            Ok(count) => rest = &mut rest[count..],
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) => return Err(error),
        }
    }
    Ok(())
}

/// Answers all connections, a limited number at a time, until `stop`.
///
/// # Errors
/// When no more connections can be taken.
pub fn echo(listener: &TcpListener, stop: &Stop) -> io::Result<()> {
    let open = Arc::new(());
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
        let (far, _) = listener.accept()?;
        if Arc::strong_count(&open) > CONNECTIONS_MAX {
            continue; // closed at once
        }
        far.set_nodelay(true)?;
        let open = Arc::clone(&open);
        std::thread::Builder::new().name("irqlab-echo".to_owned()).spawn(move || {
            answer(far, Some(SILENCE_MAX));
            drop(open);
        })?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_message_comes_back_after_its_delay() {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap();
        let stop = Stop::new().unwrap();
        let until = stop.clone();
        let serving = std::thread::spawn(move || echo(&listener, &until));
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

    #[test]
    fn no_more_connections_than_there_may_be() {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap();
        let stop = Stop::new().unwrap();
        let until = stop.clone();
        let serving = std::thread::spawn(move || echo(&listener, &until));
        let mut near: Vec<TcpStream> =
            (0..=CONNECTIONS_MAX).map(|_| TcpStream::connect(address).unwrap()).collect();
        let answers = |one: &mut TcpStream| {
            one.write_all(&message(Duration::ZERO)).is_ok()
                && one.read_exact(&mut [0; MESSAGE_BYTES]).is_ok()
        };
        let answered = near.iter_mut().filter_map(|one| answers(one).then_some(())).count();
        assert_eq!(answered, CONNECTIONS_MAX);
        stop.request();
        serving.join().unwrap().unwrap();
    }
}
