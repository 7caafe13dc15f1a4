//! The rigs of the kernel's network stack: two network namespaces, connected by a veth pair or, in a simulated
//! machine, by two cards. [`super::LiveSignal`] runs it on one thread, because the namespaces belong to a thread.
//!
//! The *near* end receives and is measured; the *far* end sends.
//!
//! A card's interrupts go to the CPU at its end. An e1000 has a throttle, which keeps a minimum
//! time between two interrupts. While there are packets, it acts as a clock in hardware.
//!
//! A veth has no interrupt. The NAPI of one end polls the packets of the other end on *the sender's
//! CPU*, which plays the network card here. Receive packet steering passes each packet to the
//! receiver's CPU with a function-call interrupt (IPI), unless that CPU handles packets already.
//! The result is an interrupt followed by draining, as from a card.
//!
//! A clocked interrupt is NAPI's own timer, except on an e1000. With `napi_defer_hard_irqs` the
//! sender's packets start no poll, and the next poll starts `gro_flush_timeout` after the end of
//! each poll (napi_watchdog and napi_complete_done in net/core/dev.c). The timer stays on the CPU
//! on which the first poll ran. Therefore the first packet is sent from the receiver's CPU.

use std::io::{self, Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream, UdpSocket};
use std::sync::{Mutex, PoisonError};
use std::thread::sleep;
use std::time::Duration;

use lab::experiment::BenchError;
use lab::signal::in_guest::DEVICE_IRQS;
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
use super::events::{self, EventStream, Sender};
use super::socket::{
    EVENT_BYTES, LOOK_AGAIN, NO_EVENT, PacketReceiver, SO_INCOMING_NAPI_ID, Wait, can_suspend,
    prepare, socket_option,
};
use super::window::{Sent, SharedCounts, WindowSetup};
use crate::host::Root;
use crate::network::coalescing::{self, Coalescing};
use crate::network::{
    ADDRESS_FAR, ADDRESS_NEAR, CardIrqs, EchoSocket, Pair, PrivateSysfs, echo_request, index_of,
    napi,
};
use crate::spawn::{no_thread, spawn_scoped};
use crate::threads::{pin, pin_process};

/// Polls without a packet before interrupts are used again: practically unlimited.
const DEFER_POLLS: &str = "2147483647";
/// Longest time during which interrupts stay off while packets keep coming
/// (Documentation/networking/napi.rst).
const SUSPEND_NS: u32 = 20_000_000;
/// Longest time that packets wait if a polling receiver stops polling.
const POLLING_TIMEOUT_NS: u64 = 10_000_000;
/// Time after which no timer of the previous setting runs any more, and the
/// first packet has arrived.
const RESET_TIME: Duration = Duration::from_millis(20);
/// Longest time until the first packet arrives at the other end. The driver of a card takes seconds to find
/// that the card is connected.
const CONNECTION_NS_MAX: u64 = 10_000_000_000;
/// Longest time that the first packet of a veth takes on a busy machine. A veth loses no packet, so the wait for
/// the first one may be long.
const FIRST_PACKET_TIME: Duration = Duration::from_secs(5);
/// Size of a message of a bulk transfer, as in the paper.
const MESSAGE_BYTES: usize = 32 * 1024;
/// Size of the payload of round trips, as in section 8.3 of the paper.
const REQUEST_BYTES: usize = 4096;
/// Socket buffers of the bulk transfer that runs during round trips, as in section 8.3 of the
/// paper.
const BULK_BUFFER_BYTES: u64 = 256 * 1024;

/// Both namespaces. They belong to the thread that created them. This thread is in the near namespace.
pub struct Network {
    rig: Rig,
    pair: Pair,
    /// Settings of the near end's interface.
    near: PrivateSysfs,
    sender_cpu: u32,
    receiver_cpu: u32,
    /// Interrupt lines of the receiving card; `None` without a card.
    card_irqs: Option<Vec<u32>>,
    polling: VethPolling,
    /// The near end's NAPI instances. Empty unless NAPI is threaded or suspends interrupts.
    instances: Vec<napi::Instance>,
}

/// How the near end of a veth polls. All rigs without a veth have the default.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct VethPolling {
    /// Whether a kernel thread polls on the receiver's CPU. Otherwise softirqs poll.
    pub is_threaded: bool,
    /// Whether the scheme `hybrid` suspends interrupts (epoll and `irq-suspend-timeout`). Otherwise
    /// `hybrid` uses SO_BUSY_POLL.
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
    /// Moves the calling thread into a new namespace, and connects this namespace to a second one.
    ///
    /// Fails if the kernel refuses namespaces, a veth pair, or steering, or if packets bypass NAPI.
    pub fn create(
        rig: Rig,
        sender_cpu: u32,
        receiver_cpu: u32,
        polling: VethPolling,
    ) -> Result<Network, BenchError> {
        let irqs = rig.has_cards().then(CardIrqs::find).transpose().map_err(BenchError::Failed)?;
        let pair = if rig.has_cards() { Pair::of_cards() } else { Pair::create() }?;
        let near = PrivateSysfs::mount().map_err(|error| refused("sysfs", &error))?;
        let card_irqs = irqs.as_ref().map(|irqs| irqs.near_irqs().to_vec());
        let instances = Vec::new();
        let mut network =
            Network { rig, pair, near, sender_cpu, receiver_cpu, card_irqs, polling, instances };
        match irqs {
            Some(irqs) => irqs
                .direct(receiver_cpu, sender_cpu)
                .map_err(|error| refused("the cards' interrupts can't be moved", &error))?,
            None => network.steer_far()?,
        }
        let socket = network.event_socket()?;
        network.connect_ends(&socket)?;
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

    /// Makes the ends learn each other's addresses: sends packets until one has arrived at `socket`, and then
    /// one more. A card's driver takes some seconds to find that the card is connected (e1000_watchdog), and
    /// earlier packets are lost.
    fn connect_ends(&self, socket: &UdpSocket) -> Result<(), BenchError> {
        let end_ns = now_ns() + CONNECTION_NS_MAX;
        if !self.rig.has_cards() {
            let set = socket.set_read_timeout(Some(FIRST_PACKET_TIME));
            set.map_err(|error| failed("a socket", &error))?;
        }
        loop {
            self.kick(socket, self.sender_cpu)?;
            match socket.recv(&mut [0; EVENT_BYTES]) {
                Ok(_) => return self.kick(socket, self.sender_cpu),
                Err(error) if is_temporary(&error) && now_ns() < end_ns => {}
                Err(error) => return Err(failed("the first packet", &error)),
            }
        }
    }

    /// Makes the sender's CPU handle the packets that the receiver sends over a veth.
    fn steer_far(&self) -> Result<(), BenchError> {
        let [_, far_name] = self.pair.names();
        self.in_far(|| {
            PrivateSysfs::mount()
                .and_then(|far| far.steer(far_name, self.sender_cpu))
                .map_err(|error| refused("packets can't be steered", &error))
        })
    }

    /// Sets up NAPI as [`VethPolling`] requests: moves NAPI's threads to the receiver's CPU, and checks that
    /// interrupts can be suspended. No effect on the default.
    fn prepare_instances(&mut self) -> Result<(), BenchError> {
        let VethPolling { is_threaded, suspends } = self.polling;
        if !is_threaded && !suspends {
            return Ok(());
        }
        let unavailable = |action: &str, error: &io::Error| BenchError::Unavailable {
            reason: format!("{action}: {error}"),
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
                // The number is that of the initial PID namespace. In another PID namespace, a
                // different process may have this number, and must not be moved.
                let name = Root::default().word(format!("proc/{thread}/comm")).unwrap_or_default();
                if !name.starts_with("napi/") {
                    let message =
                        format!("process {thread} is not a thread of NAPI here (a PID namespace?)");
                    return Err(unavailable("threaded NAPI", &io::Error::other(message)));
                }
                pin_process(thread, self.receiver_cpu)
                    .map_err(|error| unavailable("NAPI's thread cannot be moved", &error))?;
            }
        }
        let suspends_irqs =
            |instance: &napi::Instance| instance.settings.irq_suspend_timeout_ns.is_some();
        if suspends && !self.instances.iter().any(suspends_irqs) {
            let error = io::Error::other("the kernel has no irq-suspend-timeout (Linux 6.13)");
            return Err(unavailable("suspending interrupts", &error));
        }
        if suspends {
            can_suspend().map_err(|error| unavailable("epoll that polls (Linux 6.9)", &error))?;
            self.set_suspend_timeout(0)
                .map_err(|error| unavailable("irq-suspend-timeout", &error))?;
        }
        Ok(())
    }

    /// Sets `irq-suspend-timeout` of the near end. 0: interrupts are never suspended.
    fn set_suspend_timeout(&self, ns: u32) -> io::Result<()> {
        let irq_suspend_timeout_ns = Some(ns);
        let settings = napi::Settings { irq_suspend_timeout_ns, ..napi::Settings::default() };
        self.instances.iter().try_for_each(|instance| napi::write(instance.id, &settings))
    }

    /// PIDs of the kernel threads that poll the near end; empty unless NAPI is threaded.
    pub fn napi_threads(&self) -> Vec<u32> {
        if !self.polling.is_threaded {
            return Vec::new();
        }
        self.instances.iter().filter_map(|instance| instance.thread).collect()
    }

    /// Facts for the run: interfaces, addresses, offloads, and how the near end polls. Their keys are public.
    pub fn facts(&self) -> Map<String, Json> {
        let mut facts = self.pair.facts();
        let VethPolling { is_threaded, suspends } = self.polling;
        facts.insert("napi".into(), json!(if is_threaded { "threaded" } else { "softirq" }));
        let hybrid = if suspends { "irq-suspension" } else { "busy-poll" };
        facts.insert("hybrid".into(), json!(hybrid));
        facts.extend(self.card_irqs.iter().map(|irqs| (DEVICE_IRQS.to_owned(), json!(irqs))));
        facts
    }

    /// Runs `body` on a thread in the far namespace.
    fn in_far<T: Send>(
        &self,
        body: impl FnOnce() -> Result<T, BenchError> + Send,
    ) -> Result<T, BenchError> {
        let enter_and_run = || {
            self.pair.enter_far()?;
            body()
        };
        let panicked = |_| Err(BenchError::Failed("a thread for the network panicked".into()));
        std::thread::scope(|scope| {
            let thread = spawn_scoped(scope, "irqlab-far", enter_and_run).map_err(no_thread)?;
            thread.join().unwrap_or_else(panicked)
        })
    }

    /// Opens a UDP socket at the near end, which receives events.
    fn event_socket(&self) -> Result<UdpSocket, BenchError> {
        let open = || {
            let socket = UdpSocket::bind((ADDRESS_NEAR, 0))?;
            prepare(&socket)?;
            Ok(socket)
        };
        open().map_err(|error| failed("a socket", &error))
    }

    /// Sends a packet that is not an event from the far end to `socket`. The sending thread runs on `cpu`.
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

    /// Sets the near end to a scheme, and returns how the receiver must wait. Afterwards sends a packet to
    /// `socket`, from which the kernel learns the socket's NAPI instance.
    ///
    /// The order matters: the timer of the previous scheme must have ended before the new settings are
    /// written, and the packet must be handled under the new settings.
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
            Scheme::Hybrid { suspend_ns, .. } if self.polling.suspends => {
                (Some(suspend_ns), true, Wait::PollSuspended(busy_us(suspend_ns)))
            }
            Scheme::Hybrid { suspend_ns, .. } => {
                (None, true, Wait::PollThenSleep(busy_us(suspend_ns)))
            }
            // `drain`: `Rig::check` has refused all other schemes.
            _ => (None, true, Wait::Sleep),
        };
        let [near_name, _] = self.pair.names();
        let write = |deferred_ns: Option<u64>| {
            let polls = match (deferred_ns, wait) {
                (None, _) => "0",
                // When the receiver sleeps, interrupts are on again after one empty poll.
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
        if self.polling.suspends {
            let is_suspended = matches!(wait, Wait::PollSuspended(_));
            self.set_suspend_timeout(if is_suspended { SUSPEND_NS } else { 0 }).map_err(refused)?;
        }
        // Threaded NAPI polls on the receiver's CPU already, so its packets are not steered.
        let steering = match (self.rig.has_cards(), is_steered && !self.polling.is_threaded) {
            (true, _) => Ok(()),
            (false, true) => self.near.steer(near_name, self.receiver_cpu),
            (false, false) => self.near.set(near_name, "queues/rx-0/rps_cpus", "0"),
        };
        steering.map_err(refused)?;
        if let Some(throttle_ns) = throttle_ns {
            let us = u32::try_from(throttle_ns / 1000).unwrap_or(u32::MAX);
            let throttle = Coalescing { delay_us: Some(us), ..Coalescing::default() };
            let set = index_of(near_name).and_then(|index| coalescing::write(index, &throttle));
            set.map_err(|error| failed("rx-usecs of ethtool", &error))?;
        }
        // The kernel polls a veth on the CPU that sends, and a card on the CPU of its interrupt. A veth's packet is
        // sent from the receiver's CPU, so that NAPI's timer stays there.
        let kick_cpu = if self.rig.has_cards() { self.sender_cpu } else { self.receiver_cpu };
        self.kick(socket, kick_cpu)?;
        wait.set(socket).map_err(refused)?;
        Ok(wait)
    }

    /// Measures a window of events at a rate.
    ///
    /// Fails if the scheme or its settings are refused, or sending or receiving fails.
    pub fn rate_window(&self, stream: &EventStream) -> Result<RateWindow, BenchError> {
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
    /// Fails if the scheme or its settings are refused.
    pub fn transfer_window(
        &self,
        setup: &WindowSetup,
        point: &TransferPoint,
    ) -> Result<TransferWindow, BenchError> {
        let socket = self.event_socket()?;
        let wait = self.set(point.scheme, &socket)?;
        refuse_suspended(wait)?;
        let bulk = BulkTransfer::listen(point.socket_buffer_bytes)?;
        let stream = Mutex::new(None);
        let enter = || {
            self.pair.enter_far()?;
            *lock(&stream) = Some(bulk.connect()?);
            Ok(())
        };
        let send = |_: &SharedCounts, end_ns: u64| {
            let mut stream = lock(&stream).take().ok_or(io::ErrorKind::NotConnected)?;
            let message = [0x5a; MESSAGE_BYTES];
            let mut sent = 0;
            while now_ns() < end_ns {
                sent += stream.write(&message)? as u64;
            }
            stream.shutdown(std::net::Shutdown::Write)?;
            Ok(Sent { number: sent, result: stream })
        };
        let receive = |shared: &SharedCounts| bulk.receive(shared, wait);
        let outcome = setup.run(enter, send, receive, || {})?;
        Ok(TransferWindow { point: *point, bytes: outcome.handled, activity: outcome.activity })
    }

    /// Measures a window of round trips: ICMP echo requests of the far end. The kernel of the near end answers,
    /// in the context that handles packets.
    ///
    /// Fails if the scheme or its settings are refused.
    pub fn round_trip_window(
        &self,
        setup: &WindowSetup,
        point: &RoundTripPoint,
        seed: u64,
    ) -> Result<RoundTripWindow, BenchError> {
        let socket = self.event_socket()?;
        let wait = self.set(point.scheme, &socket)?;
        refuse_suspended(wait)?;
        let bulk = point.bulk.then(|| BulkTransfer::listen(BULK_BUFFER_BYTES)).transpose()?;
        let opened = Mutex::new(None);
        let enter = || {
            self.pair.enter_far()?;
            let stream = bulk.as_ref().map(BulkTransfer::connect).transpose()?;
            *lock(&opened) = Some((EchoSocket::open(ADDRESS_NEAR)?, stream));
            Ok(())
        };
        let send = |_: &SharedCounts, end_ns: u64| {
            let (echo, stream) = lock(&opened).take().ok_or(io::ErrorKind::NotConnected)?;
            if let Some(stream) = &stream {
                stream.set_nonblocking(true)?;
            }
            let mut client = RoundTripClient { echo, stream, round_trip: Distribution::default() };
            let requests = client.run(end_ns, point.rate_hz, seed)?;
            let RoundTripClient { stream, round_trip, .. } = client;
            let result = (requests, round_trip, stream);
            Ok(Sent { number: 0, result })
        };
        let receive = |shared: &SharedCounts| match &bulk {
            Some(bulk) => bulk.receive(shared, wait),
            None => {
                while !shared.is_closed() {
                    wait.receive(&socket, &mut [0; EVENT_BYTES])?;
                }
                Ok(())
            }
        };
        let outcome = setup.run(enter, send, receive, || {})?;
        let (sent, round_trip, _) = outcome.sender;
        Ok(RoundTripWindow { point: *point, sent, round_trip, activity: outcome.activity })
    }
}

/// Refuses [`Wait::PollSuspended`], which only windows of events at a rate support.
fn refuse_suspended(wait: Wait) -> Result<(), BenchError> {
    match wait {
        Wait::PollSuspended(_) => Err(BenchError::Unavailable {
            reason: "interrupt suspension needs windows of events at a rate".to_owned(),
            remedy: Some("irqlab signal run --rig veth --hybrid busy-poll".to_owned()),
        }),
        _ => Ok(()),
    }
}

fn lock<T>(mutex: &Mutex<T>) -> std::sync::MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// The packet of an event that is due at `due_ns`, or of [`NO_EVENT`].
fn event(due_ns: u64) -> [u8; EVENT_BYTES] {
    let mut packet = [0; EVENT_BYTES];
    packet[..8].copy_from_slice(&due_ns.to_ne_bytes());
    packet
}

struct PacketSender {
    target: SocketAddr,
    /// `None` until the first event: the socket must be opened on the sender's thread, in the far namespace.
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

/// A bulk transfer over TCP to the near end.
struct BulkTransfer {
    listener: TcpListener,
    buffer_bytes: usize,
}

impl BulkTransfer {
    /// Listens in the caller's network namespace.
    fn listen(buffer_bytes: u64) -> Result<BulkTransfer, BenchError> {
        let buffer_bytes = usize::try_from(buffer_bytes).unwrap_or(usize::MAX);
        let listen = || {
            let listener = TcpListener::bind((ADDRESS_NEAR, 0))?;
            // Connections inherit the buffer size, which determines their TCP window.
            sockopt::set_socket_recv_buffer_size(&listener, buffer_bytes)?;
            sockopt::set_socket_send_buffer_size(&listener, buffer_bytes)?;
            Ok(BulkTransfer { listener, buffer_bytes })
        };
        listen().map_err(|error| failed("listening", &error))
    }

    /// Connects from the caller's network namespace.
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

    /// Receives from the first connection, until the connection ends or the sender has ended.
    fn receive(&self, shared: &SharedCounts, wait: Wait) -> io::Result<()> {
        let (mut stream, _) = self.listener.accept()?;
        stream.set_read_timeout(Some(LOOK_AGAIN))?;
        wait.set(&stream)?;
        stream.set_nonblocking(wait.polls())?;
        let mut buffer = vec![0; MESSAGE_BYTES];
        while !shared.is_closed() {
            match stream.read(&mut buffer) {
                Ok(0) => break,
                Ok(length) => shared.handled(length as u64),
                Err(error) if is_temporary(&error) => {
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

/// Whether a later attempt may succeed: nothing has arrived yet, or there is no room yet.
fn is_temporary(error: &io::Error) -> bool {
    matches!(
        error.kind(),
        io::ErrorKind::WouldBlock | io::ErrorKind::TimedOut | io::ErrorKind::Interrupted
    )
}

/// The far end of round trips. It sends requests when they are due, and bulk data whenever there is room.
struct RoundTripClient {
    echo: EchoSocket,
    stream: Option<TcpStream>,
    round_trip: Distribution,
}

impl RoundTripClient {
    /// Runs until `end_ns`. Returns the number of requests, including requests that were not sent for lack of room.
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
                self.send_request(due, requests as u16)?;
                requests += 1;
                due = arrivals.next_ns();
            }
            self.record_answers()?;
            if let Some(stream) = &mut self.stream {
                match stream.write(&bulk) {
                    Ok(_) => {}
                    Err(error) if is_temporary(&error) => {}
                    Err(error) => return Err(error),
                }
            }
        }
    }

    /// Sends a request that carries the time at which it was due.
    fn send_request(&self, due_ns: u64, sequence: u16) -> io::Result<()> {
        let mut payload = [0; REQUEST_BYTES];
        payload[..8].copy_from_slice(&due_ns.to_ne_bytes());
        let packet = echo_request([0, 1], sequence, &payload);
        match send(&self.echo.socket, &packet, SendFlags::DONTWAIT) {
            // If there is no room, the request counts as unanswered.
            Ok(_) | Err(Errno::AGAIN | Errno::NOBUFS) => Ok(()),
            Err(error) => Err(error.into()),
        }
    }

    /// Records the round trips of all answers that have arrived.
    fn record_answers(&mut self) -> io::Result<()> {
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
