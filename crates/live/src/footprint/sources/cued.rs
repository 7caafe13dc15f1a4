//! A far end that sends without being asked by a message: what would carry the question, or an
//! acknowledgement, goes through the near card, whose own interrupts for it would be in the window.

use std::io::{self, Write};
use std::net::TcpStream;
use std::sync::mpsc::{Receiver, Sender, channel};
use std::time::{Duration, Instant};

use rustix::net::sockopt::set_tcp_quickack;

use super::echo::{MESSAGE_BYTES, wait_until};
use crate::threads::pin;

/// For so long a card may interrupt because of what was sent last.
const QUIET: Duration = Duration::from_millis(1);

/// Tells the far end when to send.
pub(super) type Cue = Sender<Instant>;

/// Has a thread on `cpu` send a message at each moment that it is told.
pub(super) fn cued(mut far: TcpStream, cpu: u32) -> io::Result<Cue> {
    let (cue, cues): (Cue, Receiver<Instant>) = channel();
    let send = move || {
        if pin(cpu).is_err() {
            return; // the near end reads of an end
        }
        for due in cues {
            wait_until(due);
            if far.write_all(&[0; MESSAGE_BYTES]).is_err() {
                return;
            }
        }
    };
    std::thread::Builder::new().name("irqlab-far".to_owned()).spawn(send)?;
    Ok(cue)
}

/// From now on messages are not acknowledged at once (tcp(7), `TCP_QUICKACK`), but by [`acknowledge`].
pub(super) fn hold_acknowledgements(near: &TcpStream) -> io::Result<()> {
    Ok(set_tcp_quickack(near, false)?)
}

/// Acknowledges what was read, and waits, awake, until no card has anything to say of it.
pub(super) fn acknowledge(near: &TcpStream) -> io::Result<()> {
    set_tcp_quickack(near, true)?;
    wait_until(Instant::now() + QUIET);
    Ok(())
}
