//! The network stimuli: a short TCP message arrives, and the kernel handles it on the loop's CPU. The sender is the far
//! end of a veth pair, the second card of a simulated machine, or another machine.

use lab::experiment::BenchError;
use std::io::{self, Read, Write};
use std::net::{TcpStream, ToSocketAddrs};
use std::os::fd::AsRawFd;
use std::sync::mpsc::{Receiver, Sender, channel};
use std::time::{Duration, Instant};

use rustix::net::sockopt::set_tcp_quickack;

use super::super::interrupt_line::CountedAs;
use super::RaiseInterrupt;
use crate::echo::{MESSAGE_BYTES, answer, message, wait_until};
use crate::spawn::spawn_thread;
use crate::stimulus::{Ends, connected_cards, connected_ends};
use crate::threads::{is_pinned_to, pin};

/// How long another machine may take to connect, and to answer beyond the delay.
const PEER_MAX: Duration = Duration::from_secs(3);

/// The origin of the messages.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum FarEnd {
    /// The far end of a veth pair that this process creates.
    Veth,
    /// The second of the two cards of a simulated machine, which are connected back to back.
    Cards,
    /// Another machine: HOST:PORT of an `irqlab echo`.
    Peer(String),
}

/// The near end of a connection, whose far end sends a message after a delay.
#[derive(Debug)]
pub struct Net {
    near: TcpStream,
    /// Whether a message was requested and is not read yet.
    in_flight: bool,
    /// Whether each message sends a SIGIO to the loop's thread.
    sends_signal: bool,
    origin: Origin,
}

/// Where the far end is.
#[derive(Debug)]
enum Origin {
    /// In a network namespace of this process, on this CPU.
    Cpu(u32),
    /// At the other card, on this CPU. The channel takes the time at which to send.
    Card(u32, SendTimes),
    /// On another machine with this name.
    Peer(String),
}

fn unavailable((reason, remedy): (String, String)) -> BenchError {
    BenchError::Unavailable { reason, remedy: Some(remedy).filter(|remedy| !remedy.is_empty()) }
}

fn require_cpu(sender_cpu: Option<u32>) -> Result<u32, BenchError> {
    let reason = "a message from another CPU needs two CPUs, and this process may use one";
    sender_cpu.ok_or_else(|| BenchError::unavailable(reason))
}

fn no_connection(error: io::Error) -> BenchError {
    BenchError::unavailable(format!("the connection failed: {error}"))
}

/// Time after an acknowledgement until the card interrupts no more.
const QUIET: Duration = Duration::from_millis(1);

/// The channel that passes the times of messages to the far end.
type SendTimes = Sender<Instant>;

/// Starts a thread on `cpu` that sends a message at each time that it receives.
///
/// A request by message would cross the near card, and the near card's interrupts would be in the window.
/// Therefore the far end learns the time through a channel, and acknowledgements wait.
fn timed_sender(mut far: TcpStream, cpu: u32) -> io::Result<SendTimes> {
    let (sender, times): (SendTimes, Receiver<Instant>) = channel();
    let send = move || {
        if pin(cpu).is_err() {
            return; // The near end then reads an end of file.
        }
        for due in times {
            wait_until(due);
            if !is_pinned_to(cpu) || far.write_all(&[0; MESSAGE_BYTES]).is_err() {
                return;
            }
        }
    };
    spawn_thread("irqlab-far", send)?;
    Ok(sender)
}

/// Lets only [`acknowledge`] acknowledge messages from now on (tcp(7), `TCP_QUICKACK`).
fn hold_acknowledgements(near: &TcpStream) -> io::Result<()> {
    Ok(set_tcp_quickack(near, false)?)
}

/// Acknowledges the messages read so far, and busy-waits until the cards interrupt no more.
fn acknowledge(near: &TcpStream) -> io::Result<()> {
    set_tcp_quickack(near, true)?;
    wait_until(Instant::now() + QUIET);
    Ok(())
}

impl Net {
    /// Messages over a veth pair. `cpu`: the loop's CPU. `sender_cpu`: the CPU of the far end. `sends_signal`: each
    /// message sends a SIGIO.
    ///
    /// Fails if there is no other CPU, no network namespace can be made, or packets can't be
    /// steered.
    pub fn new(cpu: u32, sender_cpu: Option<u32>, sends_signal: bool) -> Result<Self, BenchError> {
        let sender_cpu = require_cpu(sender_cpu)?;
        let Ends { near, far } = connected_ends(cpu).map_err(unavailable)?;
        // On failure the near end reads an end of file.
        let far = move || pin(sender_cpu).map(|()| answer(far, None)).ok();
        spawn_thread("irqlab-far", far).map_err(no_connection)?;
        Self::over(near, sends_signal, Origin::Cpu(sender_cpu)).map_err(no_connection)
    }

    /// Like [`Net::new`], over the two cards of a simulated machine.
    ///
    /// Fails if there is no other CPU, or the cards can't be used.
    pub fn over_cards(
        cpu: u32,
        sender_cpu: Option<u32>,
        sends_signal: bool,
    ) -> Result<Self, BenchError> {
        let sender_cpu = require_cpu(sender_cpu)?;
        let Ends { near, far } = connected_cards(cpu, sender_cpu).map_err(unavailable)?;
        hold_acknowledgements(&near).map_err(no_connection)?;
        let times = timed_sender(far, sender_cpu).map_err(no_connection)?;
        Self::over(near, sends_signal, Origin::Card(sender_cpu, times)).map_err(no_connection)
    }

    /// Messages from another machine. `peer`: HOST:PORT of its `irqlab echo`.
    ///
    /// Fails if nobody answers there.
    pub fn to_peer(peer: &str, sends_signal: bool) -> Result<Self, BenchError> {
        let cannot = |error: io::Error| BenchError::Unavailable {
            reason: format!("--peer {peer}: {error}"),
            remedy: Some("on the other machine: irqlab echo --listen ADDRESS:PORT".to_owned()),
        };
        let address =
            peer.to_socket_addrs().map_err(cannot)?.min_by_key(|address| address.is_ipv6());
        let address = address.ok_or_else(|| cannot(io::ErrorKind::NotFound.into()))?;
        let near = TcpStream::connect_timeout(&address, PEER_MAX).map_err(cannot)?;
        near.set_nodelay(true).map_err(cannot)?;
        near.set_read_timeout(Some(PEER_MAX)).map_err(cannot)?;
        let mut net =
            Self::over(near, sends_signal, Origin::Peer(peer.to_owned())).map_err(cannot)?;
        net.schedule(Duration::ZERO).and_then(|()| net.reap()).map_err(cannot)?;
        Ok(net)
    }

    fn over(near: TcpStream, sends_signal: bool, origin: Origin) -> io::Result<Self> {
        if sends_signal {
            notify_by_signal(&near)?;
        }
        Ok(Net { near, in_flight: false, sends_signal, origin })
    }

    /// Waits for the message in flight, if there is one, and reads it; acknowledges it if it came from a card.
    fn reap(&mut self) -> io::Result<()> {
        if self.in_flight {
            self.near.read_exact(&mut [0; MESSAGE_BYTES])?;
            self.in_flight = false;
            if let Origin::Card(..) = self.origin {
                acknowledge(&self.near)?;
                hold_acknowledgements(&self.near)?;
            }
        }
        Ok(())
    }
}

extern "C" fn do_nothing(_signal: libc::c_int) {}

/// Makes the kernel send this thread a SIGIO for each message.
fn notify_by_signal(stream: &TcpStream) -> io::Result<()> {
    #[repr(C)]
    struct Owner {
        kind: libc::c_int,
        thread: libc::pid_t,
    }
    const THREAD: libc::c_int = 0; // F_OWNER_TID
    const SET_OWNER: libc::c_int = 15; // F_SETOWN_EX
    // SAFETY: the structure is zero except for a handler that does nothing, which is
    // async-signal-safe; system calls restart.
    let installed = unsafe {
        let mut action: libc::sigaction = std::mem::zeroed();
        action.sa_sigaction = do_nothing as *const () as usize;
        action.sa_flags = libc::SA_RESTART;
        libc::sigaction(libc::SIGIO, &action, std::ptr::null_mut())
    };
    if installed < 0 {
        return Err(io::Error::last_os_error());
    }
    // SAFETY: a system call without arguments.
    let owner = Owner { kind: THREAD, thread: unsafe { libc::gettid() } };
    let file = stream.as_raw_fd();
    // SAFETY: the descriptor is open; the kernel reads `owner`, which outlives the call, and the
    // flags of the file are its own.
    let is_set = unsafe {
        libc::fcntl(file, SET_OWNER, &raw const owner) >= 0 && {
            let flags = libc::fcntl(file, libc::F_GETFL);
            flags >= 0 && libc::fcntl(file, libc::F_SETFL, flags | libc::O_ASYNC) >= 0
        }
    };
    if is_set { Ok(()) } else { Err(io::Error::last_os_error()) }
}

impl RaiseInterrupt for Net {
    fn counted_as(&self) -> CountedAs {
        match self.origin {
            Origin::Cpu(_) => CountedAs::Line("CAL"),
            Origin::Card(..) => CountedAs::Device,
            Origin::Peer(_) => CountedAs::Arrival,
        }
    }

    /// First waits for the previous message, if it is not read yet; then the delay starts. The sender at a card learns
    /// the time through a channel (see [`timed_sender`]), any other far end by a message.
    fn schedule(&mut self, delay: Duration) -> io::Result<()> {
        self.reap()?;
        match &self.origin {
            Origin::Card(_, times) => {
                let closed = |_| io::Error::from(io::ErrorKind::BrokenPipe);
                times.send(Instant::now() + delay).map_err(closed)?;
            }
            Origin::Cpu(_) | Origin::Peer(_) => self.near.write_all(&message(delay))?,
        }
        self.in_flight = true;
        Ok(())
    }

    fn drain(&mut self) -> io::Result<()> {
        self.reap()
    }

    fn method(&self) -> String {
        let signal = if self.sends_signal { ", notified by SIGIO" } else { "" };
        let route = match &self.origin {
            Origin::Cpu(cpu) => {
                format!("over a veth pair from CPU {cpu}, steered to the loop's CPU")
            }
            Origin::Card(cpu, _) => format!("from the other card, sent by CPU {cpu}"),
            Origin::Peer(peer) => format!("echoed by {peer}"),
        };
        format!("TCP, {MESSAGE_BYTES} bytes {route}{signal}")
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::echo;
    use crate::footprint::raised_lines::OtherDevices;
    use crate::footprint::route::{Route, route};
    use crate::host::{Root, parse_cpu_list};
    use crate::stimulus::across_pair;
    use crate::window::Stop;

    /// The other machine of the network stimulus is here another network namespace, without a veth
    /// pair of the stimulus.
    #[test]
    fn a_peer_in_another_network_interrupts_the_loops_cpu() {
        let root = Root::default();
        let online = root.text("sys/devices/system/cpu/online").unwrap_or_default();
        let cpus = parse_cpu_list(online.trim()).unwrap_or_default();
        let [cpu, other, ..] = cpus[..] else {
            return needs::not_run(needs::Need::Cpus, "one CPU");
        };
        let stop = Stop::new().unwrap();
        let (until, ends) = (stop.clone(), stop);
        let tried = across_pair(
            cpu,
            move |listener| pin(other).and_then(|()| echo::serve(&listener, &until)),
            move |address| {
                pin(cpu).unwrap();
                let mut net = Net::to_peer(&address.to_string(), false).unwrap();
                assert!(net.method().contains("echoed by"), "{}", net.method());
                let how = (OtherDevices::MayInterrupt, false);
                let routed = route(&root, cpu, &mut net, &mut Route::default(), how);
                ends.request();
                routed
            },
        );
        match tried {
            Ok(routed) => assert!(routed.is_ok_and(|lines| lines.contain("CAL"))),
            Err((reason, _)) => needs::not_run(needs::Need::Namespaces, reason),
        }
    }

    #[test]
    fn a_peer_that_is_not_there_says_how_to_start_one() {
        for peer in ["127.0.0.1:1", "nobody", "127.0.0.1:notaport"] {
            let why = Net::to_peer(peer, false).unwrap_err();
            assert!(why.to_string().starts_with(&format!("--peer {peer}: ")), "{why}");
            assert!(why.remedy().unwrap().contains("irqlab echo"));
        }
    }
}
