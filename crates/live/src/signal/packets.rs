//! The rigs of the kernel's network stack: two network namespaces that a veth pair joins, or, in a
//! simulated machine, two cards.
//!
//! A card's interrupts go to the CPU at its end. An e1000 has a throttle: a time that it keeps between two
//! interrupts, which is a clock in hardware that runs while there are packets.
//!
//! A veth has no interrupt. What one end sends is polled by the other end's NAPI on *the sender's CPU*,
//! which here plays the network card: receive packet steering hands each packet on to the receiver's CPU
//! with a function-call interrupt (IPI), unless that CPU handles packets already. That is an interrupt
//! followed by draining, as from a card.
//!
//! Otherwise a clocked interrupt is NAPI's own timer: with `napi_defer_hard_irqs` the sender's packets start no
//! poll any more, and `gro_flush_timeout` after the end of each poll the next one starts
//! (napi_watchdog and napi_complete_done in net/core/dev.c). The timer stays on the CPU on which the
//! first poll ran; so a packet is sent from the receiver's CPU first.

use std::io::{self, Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream, UdpSocket};
use std::sync::{Mutex, PoisonError};
use std::thread::sleep;
use std::time::Duration;

use lab::experiment::BenchError;
use lab::signal::in_guest::CARD_IRQS;
use lab::signal::{
    RateWindow, Rig, RoundTripPoint, RoundTripWindow, TransferPoint, TransferWindow,
};
use rustix::io::Errno;
use rustix::net::sockopt;
use rustix::net::{RecvFlags, SendFlags, recv, send};
use serde_json::{Map, Value as Json, json};
use signalling::Scheme;
use stats::Distribution;

use super::arrivals::{Arrivals, now_ns};
use super::events::{self, Sender, Stream};
use super::socket::{
    EVENT_BYTES, LOOK_AGAIN, NO_EVENT, PacketReceiver, SO_INCOMING_NAPI_ID, Wait, can_suspend,
    prepare, socket_option,
};
use super::window::{Desk, Frame, Sent};
use crate::host::Root;
use crate::network::coalescing::{self, Coalescing};
use crate::network::{
    ADDRESS_FAR, ADDRESS_NEAR, CardIrqs, EchoSocket, Pair, PrivateSysfs, echo_request, index_of,
    napi,
};
use crate::spawn::{no_thread, spawn_scoped};
use crate::threads::{pin, pin_process};

/// Polls that may pass without a packet before interrupts are used again: as good as never.
const DEFER_POLLS: &str = "2147483647";
/// How long interrupts stay off at most while packets keep coming (Documentation/networking/napi.rst).
const SUSPEND_NS: u32 = 20_000_000;
/// A polling receiver's safety net: packets wait no longer, should it stop polling.
const POLLING_TIMEOUT_NS: u64 = 10_000_000;
/// How long a setting takes until no timer of the one before runs any more, and the first packet until
/// it has arrived.
const RESET_TIME: Duration = Duration::from_millis(20);
/// How long packets may take until they go from one end to the other: a card's driver takes seconds, and so
/// may a busy machine.
const CONNECTION_NS_MAX: u64 = 10_000_000_000;
/// How long the first packet of a veth may take on a busy machine: none is lost, and one is enough.
const FIRST_PACKET_TIME: Duration = Duration::from_secs(5);
/// Messages of a bulk transfer, as in the paper.
const MESSAGE_BYTES: usize = 32 * 1024;
/// Payload of the round trips, as in section 8.3 of the paper.
const REQUEST_BYTES: usize = 4096;
/// Socket buffers of the bulk transfer that runs during round trips, as in section 8.3 of the paper.
const BULK_BUFFER_BYTES: u64 = 256 * 1024;

/// Both namespaces. They belong to the thread that made them, which is in the near one.
pub struct Network {
    rig: Rig,
    pair: Pair,
    near: PrivateSysfs,
    sender_cpu: u32,
    receiver_cpu: u32,
    /// Interrupt lines of the receiving card, where there is one.
    card_irqs: Option<Vec<u32>>,
    how: How,
    /// The near end's NAPI instances, where their settings are changed.
    instances: Vec<napi::Instance>,
}

/// How the near end of a veth polls.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct How {
    /// By a thread of the kernel on the receiver's CPU; otherwise in softirqs.
    pub is_threaded: bool,
    /// A hybrid suspends interrupts (epoll and `irq-suspend-timeout`); otherwise it is SO_BUSY_POLL.
    pub suspends: bool,
}

fn failed(what: &str, error: &io::Error) -> BenchError {
    BenchError::Failed(format!("{what}: {error}"))
}

fn refused(what: &str, error: &io::Error) -> BenchError {
    BenchError::Unavailable {
        reason: format!("{what}: {error}"),
        remedy: Some("run as root, on a kernel with CONFIG_RPS".to_owned()),
    }
}

impl Network {
    /// Moves the calling thread into a namespace that is joined to another.
    ///
    /// # Errors
    /// Where namespaces, a veth pair, or steering are refused, or NAPI is bypassed.
    pub fn create(
        rig: Rig,
        sender_cpu: u32,
        receiver_cpu: u32,
        how: How,
    ) -> Result<Network, BenchError> {
        let irqs = rig.has_cards().then(CardIrqs::find).transpose().map_err(BenchError::Failed)?;
        let pair = if rig.has_cards() { Pair::of_cards() } else { Pair::create() }?;
        let near = PrivateSysfs::mount().map_err(|error| refused("sysfs", &error))?;
        let card_irqs = irqs.as_ref().map(|irqs| irqs.near().to_vec());
        let instances = Vec::new();
        let mut network =
            Network { rig, pair, near, sender_cpu, receiver_cpu, card_irqs, how, instances };
        match irqs {
            Some(irqs) => irqs
                .place(receiver_cpu, sender_cpu)
                .map_err(|error| refused("the cards' interrupts can't be moved", &error))?,
            None => network.steer_far()?,
        }
        let socket = network.event_socket()?;
        network.meet(&socket)?;
        match socket_option(&socket, SO_INCOMING_NAPI_ID) {
            Ok(0) => Err(BenchError::Unavailable {
                reason: "packets bypass NAPI on this kernel's veth".to_owned(),
                remedy: None,
            }),
            _ => {
                network.prepare_instances()?;
                Ok(network)
            }
        }
    }

    /// Sends packets until one has arrived at `socket`, and once more: the ends learn each other's addresses.
    /// A card takes some seconds until its driver finds that it is connected (e1000_watchdog), and what is
    /// sent before that is lost.
    fn meet(&self, socket: &UdpSocket) -> Result<(), BenchError> {
        let end_ns = now_ns() + CONNECTION_NS_MAX;
        if !self.rig.has_cards() {
            let set = socket.set_read_timeout(Some(FIRST_PACKET_TIME));
            set.map_err(|error| failed("a socket", &error))?;
        }
        loop {
            self.kick(socket, self.sender_cpu)?;
            match socket.recv(&mut [0; EVENT_BYTES]) {
                Ok(_) => return self.kick(socket, self.sender_cpu),
                Err(error) if is_later(&error) && now_ns() < end_ns => {}
                Err(error) => return Err(failed("the first packet", &error)),
            }
        }
    }

    /// Has what the receiver sends over a veth handled on the sender's CPU.
    fn steer_far(&self) -> Result<(), BenchError> {
        let [_, far_name] = self.pair.names();
        self.in_far(|| {
            PrivateSysfs::mount()
                .and_then(|far| far.steer(far_name, self.sender_cpu))
                .map_err(|error| refused("packets can't be steered", &error))
        })
    }

    /// Makes threads poll, where that is asked for, and finds what single instances need.
    fn prepare_instances(&mut self) -> Result<(), BenchError> {
        let How { is_threaded, suspends } = self.how;
        if !is_threaded && !suspends {
            return Ok(());
        }
        let unavailable = |what: &str, error: &io::Error| BenchError::Unavailable {
            reason: format!("{what}: {error}"),
            remedy: None,
        };
        let [near_name, _] = self.pair.names();
        if is_threaded {
            self.near
                .set(near_name, "threaded", "1")
                .map_err(|error| unavailable("threaded NAPI (Linux 5.12)", &error))?;
        }
        let unknown = |error| unavailable("NAPI instances (Linux 6.8)", &error);
        let index = index_of(near_name).map_err(unknown)?;
        self.instances = napi::instances(index).map_err(unknown)?;
        if is_threaded {
            let threads = self.napi_threads();
            if threads.is_empty() {
                let error = io::Error::other("the kernel names no thread");
                return Err(unavailable("threaded NAPI", &error));
            }
            for thread in threads {
                // The kernel names it by its number in the initial PID namespace: elsewhere another process has it.
                let name = Root::default().word(format!("proc/{thread}/comm")).unwrap_or_default();
                if !name.starts_with("napi/") {
                    let words = format!("process {thread} is none of NAPI here (a PID namespace?)");
                    return Err(unavailable("threaded NAPI", &io::Error::other(words)));
                }
                pin_process(thread, self.receiver_cpu)
                    .map_err(|error| unavailable("NAPI's thread cannot be moved", &error))?;
            }
        }
        let can = |one: &napi::Instance| one.settings.irq_suspend_timeout_ns.is_some();
        if suspends && !self.instances.iter().any(can) {
            let error = io::Error::other("the kernel has no irq-suspend-timeout (Linux 6.13)");
            return Err(unavailable("suspending interrupts", &error));
        }
        if suspends {
            can_suspend().map_err(|error| unavailable("epoll that polls (Linux 6.9)", &error))?;
            self.suspend(0).map_err(|error| unavailable("irq-suspend-timeout", &error))?;
        }
        Ok(())
    }

    /// Sets `irq-suspend-timeout` of the near end.
    fn suspend(&self, ns: u32) -> io::Result<()> {
        let irq_suspend_timeout_ns = Some(ns);
        let wanted = napi::Settings { irq_suspend_timeout_ns, ..napi::Settings::default() };
        self.instances.iter().try_for_each(|one| napi::write(one.id, &wanted))
    }

    /// Processes of the kernel's threads that poll the near end.
    pub fn napi_threads(&self) -> Vec<u32> {
        match self.how.is_threaded {
            true => self.instances.iter().filter_map(|one| one.thread).collect(),
            false => Vec::new(),
        }
    }

    /// Interfaces, addresses and offloads, and how the near end polls.
    pub fn facts(&self) -> Map<String, Json> {
        let mut facts = self.pair.facts();
        let How { is_threaded, suspends } = self.how;
        facts.insert("napi".into(), json!(if is_threaded { "threaded" } else { "softirq" }));
        let hybrid = if suspends { "irq-suspension" } else { "busy-poll" };
        facts.insert("hybrid".into(), json!(hybrid));
        facts.extend(self.card_irqs.iter().map(|irqs| (CARD_IRQS.to_owned(), json!(irqs))));
        facts
    }

    /// Runs `body` on a thread in the far namespace.
    fn in_far<T: Send>(
        &self,
        body: impl FnOnce() -> Result<T, BenchError> + Send,
    ) -> Result<T, BenchError> {
        let there = || {
            self.pair.enter_far()?;
            body()
        };
        let panicked = |_| Err(BenchError::Failed("a thread for the network panicked".into()));
        std::thread::scope(|scope| {
            let thread = spawn_scoped(scope, "irqlab-far", there).map_err(no_thread)?;
            thread.join().unwrap_or_else(panicked)
        })
    }

    /// A socket of the near end.
    fn event_socket(&self) -> Result<UdpSocket, BenchError> {
        let open = || {
            let socket = UdpSocket::bind((ADDRESS_NEAR, 0))?;
            prepare(&socket)?;
            Ok(socket)
        };
        open().map_err(|error| failed("a socket", &error))
    }

    /// Sends a packet that is no event to `socket` from `cpu`.
    fn kick(&self, socket: &UdpSocket, cpu: u32) -> Result<(), BenchError> {
        let target = socket.local_addr().map_err(|error| failed("a socket", &error))?;
        self.in_far(|| {
            let send = || {
                pin(cpu)?;
                let sender = UdpSocket::bind((ADDRESS_FAR, 0))?;
                sender.send_to(&event(NO_EVENT), target)
            };
            send().map(|_| ()).map_err(|error| failed("the first packet", &error))
        })?;
        sleep(RESET_TIME);
        Ok(())
    }

    /// Sets the near end to a scheme; `socket` receives a packet and so learns its NAPI instance.
    fn set(&self, scheme: Scheme, socket: &UdpSocket) -> Result<Wait, BenchError> {
        self.rig.check(scheme)?;
        let throttle_ns = self.rig.throttle_ns(scheme);
        let busy_us = |ns: u64| u32::try_from(ns.div_ceil(1000)).unwrap_or(u32::MAX);
        let (deferred_ns, is_steered, wait) = match scheme {
            Scheme::Clocked { .. } if throttle_ns.is_some() => (None, true, Wait::Sleep),
            Scheme::Clocked { period_ns } => (Some(period_ns), false, Wait::Sleep),
            Scheme::Deferred { delay_ns } => (Some(delay_ns), false, Wait::Sleep),
            Scheme::Spin => (Some(POLLING_TIMEOUT_NS), false, Wait::Poll),
            Scheme::SpinYield => (Some(POLLING_TIMEOUT_NS), false, Wait::PollAndYield),
            Scheme::Hybrid { suspend_ns, .. } if self.how.suspends => {
                (Some(suspend_ns), true, Wait::PollSuspended(busy_us(suspend_ns)))
            }
            Scheme::Hybrid { suspend_ns, .. } => {
                (None, true, Wait::PollThenSleep(busy_us(suspend_ns)))
            }
            // `Rig::check` has refused the others.
            _ => (None, true, Wait::Sleep),
        };
        let [near_name, _] = self.pair.names();
        let write = |deferred_ns: Option<u64>| {
            let polls = match (deferred_ns, wait) {
                (None, _) => "0",
                // One empty poll after the receiver has gone to sleep, and interrupts are used again.
                (Some(_), Wait::PollSuspended(_)) => "1",
                (Some(_), _) => DEFER_POLLS,
            };
            self.near.set(near_name, "napi_defer_hard_irqs", polls)?;
            self.near.set(near_name, "gro_flush_timeout", &deferred_ns.unwrap_or(0).to_string())
        };
        let refused = |error: io::Error| BenchError::Unavailable {
            reason: format!("napi_defer_hard_irqs and gro_flush_timeout: {error}"),
            remedy: Some("run as root, on Linux 5.12 or newer".to_owned()),
        };
        write(None).map_err(refused)?;
        sleep(RESET_TIME);
        write(deferred_ns).map_err(refused)?;
        if self.how.suspends {
            let is_suspended = matches!(wait, Wait::PollSuspended(_));
            self.suspend(if is_suspended { SUSPEND_NS } else { 0 }).map_err(refused)?;
        }
        // A thread polls on the receiver's CPU in any case.
        let steering = match (self.rig.has_cards(), is_steered && !self.how.is_threaded) {
            (true, _) => Ok(()),
            (false, true) => self.near.steer(near_name, self.receiver_cpu),
            (false, false) => self.near.set(near_name, "queues/rx-0/rps_cpus", "0"),
        };
        steering.map_err(refused)?;
        if let Some(throttle_ns) = throttle_ns {
            let us = u32::try_from(throttle_ns / 1000).unwrap_or(u32::MAX);
            let wanted = Coalescing { delay_us: Some(us), ..Coalescing::default() };
            let set = index_of(near_name).and_then(|index| coalescing::write(index, &wanted));
            set.map_err(|error| failed("rx-usecs of ethtool", &error))?;
        }
        // A veth is polled on the CPU that sends, a card on that of its interrupt.
        let kick_cpu = if self.rig.has_cards() { self.sender_cpu } else { self.receiver_cpu };
        self.kick(socket, kick_cpu)?;
        wait.set(socket).map_err(refused)?;
        Ok(wait)
    }

    /// Measures a window of events at a rate.
    ///
    /// # Errors
    /// Where the scheme or its settings are refused.
    pub fn rate_window(&self, stream: &Stream) -> Result<RateWindow, BenchError> {
        let socket = self.event_socket()?;
        let wait = self.set(stream.point.scheme, &socket)?;
        let target = socket.local_addr().map_err(|error| failed("a socket", &error))?;
        let sender = PacketSender { target, socket: None };
        let receiver = PacketReceiver { socket, wait, bytes: EVENT_BYTES };
        let enter = || self.pair.enter_far();
        events::measure(stream, enter, sender, receiver, || {})
    }

    /// Measures a window of bulk transfer.
    ///
    /// # Errors
    /// Where the scheme or its settings are refused.
    pub fn transfer_window(
        &self,
        frame: &Frame,
        point: &TransferPoint,
    ) -> Result<TransferWindow, BenchError> {
        let socket = self.event_socket()?;
        let wait = self.set(point.scheme, &socket)?;
        only_blocking(wait)?;
        let bulk = Bulk::listen(point.socket_buffer_bytes)?;
        let stream = Mutex::new(None);
        let enter = || {
            self.pair.enter_far()?;
            *lock(&stream) = Some(bulk.connect()?);
            Ok(())
        };
        let send = |_: &Desk, end_ns: u64| {
            let mut stream = lock(&stream).take().ok_or(io::ErrorKind::NotConnected)?;
            let message = [0x5a; MESSAGE_BYTES];
            let mut sent = 0;
            while now_ns() < end_ns {
                sent += stream.write(&message)? as u64;
            }
            stream.shutdown(std::net::Shutdown::Write)?;
            Ok(Sent { number: sent, result: stream })
        };
        let receive = |desk: &Desk| bulk.receive(desk, wait);
        let outcome = frame.run(enter, send, receive, || {})?;
        Ok(TransferWindow { point: *point, bytes: outcome.handled, activity: outcome.activity })
    }

    /// Measures a window of round trips: the kernel of the near end answers, in the context in which it
    /// handles packets.
    ///
    /// # Errors
    /// Where the scheme or its settings are refused.
    pub fn round_trip_window(
        &self,
        frame: &Frame,
        point: &RoundTripPoint,
        seed: u64,
    ) -> Result<RoundTripWindow, BenchError> {
        let socket = self.event_socket()?;
        let wait = self.set(point.scheme, &socket)?;
        only_blocking(wait)?;
        let bulk = point.bulk.then(|| Bulk::listen(BULK_BUFFER_BYTES)).transpose()?;
        let opened = Mutex::new(None);
        let enter = || {
            self.pair.enter_far()?;
            let stream = bulk.as_ref().map(Bulk::connect).transpose()?;
            *lock(&opened) = Some((EchoSocket::open(ADDRESS_NEAR)?, stream));
            Ok(())
        };
        let send = |_: &Desk, end_ns: u64| {
            let (echo, stream) = lock(&opened).take().ok_or(io::ErrorKind::NotConnected)?;
            if let Some(stream) = &stream {
                stream.set_nonblocking(true)?;
            }
            let mut client = Client { echo, stream, round_trip: Distribution::default() };
            let requests = client.run(end_ns, point.rate_hz, seed)?;
            let Client { stream, round_trip, .. } = client;
            let result = (requests, round_trip, stream);
            Ok(Sent { number: 0, result })
        };
        let receive = |desk: &Desk| match &bulk {
            Some(bulk) => bulk.receive(desk, wait),
            None => {
                while !desk.is_closed() {
                    wait.receive(&socket, &mut [0; EVENT_BYTES])?;
                }
                Ok(())
            }
        };
        let outcome = frame.run(enter, send, receive, || {})?;
        let (sent, round_trip, _) = outcome.sender;
        Ok(RoundTripWindow { point: *point, sent, round_trip, activity: outcome.activity })
    }
}

/// Refuses what only the receiver of events does.
fn only_blocking(wait: Wait) -> Result<(), BenchError> {
    match wait {
        Wait::PollSuspended(_) => Err(BenchError::Unavailable {
            reason: "interrupts are suspended for events at a rate only".to_owned(),
            remedy: Some("irqlab signal run --rig veth --hybrid busy-poll".to_owned()),
        }),
        _ => Ok(()),
    }
}

fn lock<T>(mutex: &Mutex<T>) -> std::sync::MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

fn event(time: u64) -> [u8; EVENT_BYTES] {
    let mut packet = [0; EVENT_BYTES];
    packet[..8].copy_from_slice(&time.to_ne_bytes());
    packet
}

struct PacketSender {
    target: SocketAddr,
    /// Opened by the first event, on the sender's thread.
    socket: Option<UdpSocket>,
}

impl Sender for PacketSender {
    fn send(&mut self, due_ns: u64, _: u64) -> io::Result<bool> {
        if self.socket.is_none() {
            let socket = UdpSocket::bind((ADDRESS_FAR, 0))?;
            socket.connect(self.target)?;
            self.socket = Some(socket);
        }
        let Some(socket) = &self.socket else { return Ok(false) };
        match send(socket, &event(due_ns), SendFlags::DONTWAIT) {
            Ok(_) => Ok(true),
            Err(Errno::AGAIN | Errno::NOBUFS | Errno::INTR) => Ok(false),
            Err(error) => Err(error.into()),
        }
    }
}

/// A bulk transfer to the near end.
struct Bulk {
    listener: TcpListener,
    buffer_bytes: usize,
}

impl Bulk {
    /// Listens in the caller's namespace.
    fn listen(buffer_bytes: u64) -> Result<Bulk, BenchError> {
        let buffer_bytes = usize::try_from(buffer_bytes).unwrap_or(usize::MAX);
        let listen = || {
            let listener = TcpListener::bind((ADDRESS_NEAR, 0))?;
            // Connections inherit the size, and so choose their window by it.
            sockopt::set_socket_recv_buffer_size(&listener, buffer_bytes)?;
            sockopt::set_socket_send_buffer_size(&listener, buffer_bytes)?;
            Ok(Bulk { listener, buffer_bytes })
        };
        listen().map_err(|error| failed("listening", &error))
    }

    /// Connects from the caller's namespace.
    fn connect(&self) -> Result<TcpStream, BenchError> {
        use rustix::net::{AddressFamily, SocketFlags, SocketType, connect, socket_with};
        let open = || {
            let SocketAddr::V4(target) = self.listener.local_addr()? else {
                return Err(io::ErrorKind::Unsupported.into());
            };
            let kind = SocketType::STREAM;
            let socket = socket_with(AddressFamily::INET, kind, SocketFlags::CLOEXEC, None)?;
            sockopt::set_socket_send_buffer_size(&socket, self.buffer_bytes)?;
            sockopt::set_socket_recv_buffer_size(&socket, self.buffer_bytes)?;
            connect(&socket, &target)?;
            Ok(TcpStream::from(socket))
        };
        open().map_err(|error| failed("connecting", &error))
    }

    /// Receives from the first connection, until it ends or the desk is closed.
    fn receive(&self, desk: &Desk, wait: Wait) -> io::Result<()> {
        let (mut stream, _) = self.listener.accept()?;
        stream.set_read_timeout(Some(LOOK_AGAIN))?;
        wait.set(&stream)?;
        stream.set_nonblocking(wait.polls())?;
        let mut buffer = vec![0; MESSAGE_BYTES];
        while !desk.is_closed() {
            match stream.read(&mut buffer) {
                Ok(0) => break,
                Ok(length) => desk.handled(length as u64),
                Err(error) if is_later(&error) => {
                    if wait == Wait::PollAndYield {
                        rustix::thread::sched_yield();
                    }
                }
                Err(error) => return Err(error),
            }
        }
        Ok(())
    }
}

fn is_later(error: &io::Error) -> bool {
    matches!(
        error.kind(),
        io::ErrorKind::WouldBlock | io::ErrorKind::TimedOut | io::ErrorKind::Interrupted
    )
}

/// Sends requests when they are due, and bulk data whenever there is room.
struct Client {
    echo: EchoSocket,
    stream: Option<TcpStream>,
    round_trip: Distribution,
}

impl Client {
    /// Runs until `end_ns`; gives the number of requests.
    fn run(&mut self, end_ns: u64, rate_hz: u64, seed: u64) -> io::Result<u64> {
        let mut arrivals = Arrivals::new(now_ns(), rate_hz, seed);
        let bulk = [0x5a; MESSAGE_BYTES];
        let mut due = arrivals.next_ns();
        let mut requests = 0;
        loop {
            let now = now_ns();
            if now >= end_ns {
                return Ok(requests);
            }
            if now >= due {
                self.request(due, requests as u16)?;
                requests += 1;
                due = arrivals.next_ns();
            }
            self.answers()?;
            if let Some(stream) = &mut self.stream {
                match stream.write(&bulk) {
                    Ok(_) => {}
                    Err(error) if is_later(&error) => {}
                    Err(error) => return Err(error),
                }
            }
        }
    }

    fn request(&self, due_ns: u64, sequence: u16) -> io::Result<()> {
        let mut payload = [0; REQUEST_BYTES];
        payload[..8].copy_from_slice(&due_ns.to_ne_bytes());
        let packet = echo_request([0, 1], sequence, &payload);
        match send(&self.echo.socket, &packet, SendFlags::DONTWAIT) {
            // Without room it is a request without an answer.
            Ok(_) | Err(Errno::AGAIN | Errno::NOBUFS) => Ok(()),
            Err(error) => Err(error.into()),
        }
    }

    fn answers(&mut self) -> io::Result<()> {
        let mut packet = [0; REQUEST_BYTES + 128];
        loop {
            let length = match recv(&self.echo.socket, &mut packet[..], RecvFlags::DONTWAIT) {
                Ok((_, length)) => length,
                Err(Errno::AGAIN | Errno::INTR) => return Ok(()),
                Err(error) => return Err(error.into()),
            };
            let reply = self.echo.reply(packet.get(..length).unwrap_or_default());
            if let Some((_, payload)) = reply
                && let Some(due) = payload.first_chunk().copied().map(u64::from_ne_bytes)
            {
                let now = now_ns();
                self.round_trip.record(now.saturating_sub(due), now);
            }
        }
    }
}
