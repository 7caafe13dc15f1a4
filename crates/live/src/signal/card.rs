//! The rig `nic`, a network card. Datagrams go to `irqlab echo` on another machine (the *peer*), and its answers
//! arrive at the card, which signals according to the scheme.
//!
//! Packets must be handled on the receiver's CPU. The card's interrupts are directed to that CPU,
//! and the packets of an interface without interrupts (a veth) are steered to it.
//!
//! Invariant: a setting is changed only through the [`Session`], which writes its value into the journal first.

use std::io;
use std::net::{Ipv4Addr, Ipv6Addr, SocketAddr, TcpStream, UdpSocket};
use std::thread::sleep;
use std::time::Duration;

use lab::experiment::BenchError;
use lab::signal::{RatePoint, RateWindow, Rig, RoundTripPoint, RoundTripWindow};
use rustix::io::Errno;
use rustix::net::{SendFlags, send};
use serde_json::{Map, Value as Json, json};
use signalling::Scheme;

use super::events::{self, EventStream, Sender};
use super::socket::{
    EVENT_BYTES, NO_EVENT, PacketReceiver, SO_INCOMING_CPU, SO_INCOMING_NAPI_ID, Wait,
    bind_to_interface, prepare, socket_option,
};
use super::window::WindowSetup;
use crate::echo::{self, MESSAGE_BYTES, is_answer, mark_request, message};
use crate::host::Root;
use crate::journal::JournalError;
use crate::network::{irqs_of, mask};
use crate::nic::scheme::Abilities;
use crate::nic::{InForce, Interface, Refusal, Session, Setting};

/// Longest time that the peer may take to connect and to answer. Its host may make a CPU wait.
const PEER_MAX: Duration = Duration::from_secs(5);
/// The longest window. The peer closes a connection that is silent for a minute, and the connection
/// is silent during a window.
pub const WINDOW_MAX: Duration = Duration::from_secs(30);
/// Time after which no timer of the previous setting runs any more.
const RESET_TIME: Duration = Duration::from_millis(20);
/// Most datagrams that [`Card::probe`] sends until one is answered.
const PROBES: u32 = 50;
/// Longest wait for the answer to a probe.
const PROBE_WAIT: Duration = Duration::from_millis(100);
/// Bytes of a request of a round trip.
const REQUEST_BYTES: usize = 4096;

/// The card, and the peer that answers.
#[derive(Clone, Debug)]
pub struct CardSettings {
    pub interface: Interface,
    /// Address at which `irqlab echo` listens.
    pub peer: SocketAddr,
}

/// The card and its peer. Dropping this restores the card's settings. After a kill, the
/// next start restores them.
pub struct Card {
    session: Session,
    abilities: Abilities,
    peer: Peer,
    receiver_cpu: u32,
    /// Settings in force before irqlab changed them.
    before: Map<String, Json>,
    /// How packets reach the receiver's CPU: a word of the fact `packets_placed_by`.
    placed_by: &'static str,
    warnings: Vec<String>,
}

/// `irqlab echo` on another machine. The TCP connection shows that it is alive.
struct Peer {
    address: SocketAddr,
    control: TcpStream,
    /// Whether a check has failed once.
    is_gone: bool,
}

impl Peer {
    fn connect(address: SocketAddr) -> Result<Peer, BenchError> {
        let connect = || {
            let control = TcpStream::connect_timeout(&address, PEER_MAX)?;
            control.set_nodelay(true)?;
            control.set_read_timeout(Some(PEER_MAX))?;
            control.set_write_timeout(Some(PEER_MAX))?;
            let mut peer = Peer { address, control, is_gone: false };
            peer.exchange()?;
            Ok(peer)
        };
        connect().map_err(|error: io::Error| BenchError::NothingMeasurable {
            reason: format!("no connection to the peer {address}: {error}"),
            remedy: Some(format!("on the peer: irqlab echo --listen {address}")),
        })
    }

    /// Sends a message over the control connection, and waits for its echo.
    fn exchange(&mut self) -> io::Result<()> {
        use std::io::{Read, Write};
        self.control.write_all(&message(Duration::ZERO))?;
        self.control.read_exact(&mut [0; MESSAGE_BYTES])
    }

    /// Checks that the peer still answers. After the first failure all later calls fail, too.
    fn check(&mut self) -> Result<(), BenchError> {
        self.is_gone = self.is_gone || self.exchange().is_err();
        if self.is_gone {
            let address = self.address;
            return Err(BenchError::Failed(format!("the peer {address} has gone away")));
        }
        Ok(())
    }
}

fn failed(what: &str, error: &io::Error) -> BenchError {
    BenchError::Failed(format!("{what}: {error}"))
}

/// The error if another irqlab process is changing the card's settings.
fn in_use(error: &dyn std::fmt::Display) -> BenchError {
    BenchError::NothingMeasurable { reason: error.to_string(), remedy: None }
}

fn unavailable(reason: String, remedy: Option<String>) -> BenchError {
    BenchError::Unavailable { reason, remedy }
}

impl Card {
    /// Connects to the peer, and directs the card's packets to the receiver's CPU.
    ///
    /// Fails if no peer answers through the card, or if the process may not change the card's settings.
    pub fn open(settings: &CardSettings, receiver_cpu: u32) -> Result<Card, BenchError> {
        let CardSettings { interface, peer } = settings;
        let peer = Peer::connect(*peer)?;
        let abilities = Abilities::query(interface);
        let no_rights = |error: &dyn std::fmt::Display| BenchError::NothingMeasurable {
            reason: format!("{} cannot be set: {error}", interface.name()),
            remedy: Some("run as root".to_owned()),
        };
        let session = Session::open(interface.clone()).map_err(|error| match error {
            JournalError::Busy { .. } => in_use(&error),
            _ => no_rights(&error),
        })?;
        let present = |setting: Setting| (setting.to_string(), json!(setting.read(interface).ok()));
        let before = [Setting::Coalescing, Setting::GroFlushTimeout, Setting::DeferHardIrqs];
        let before = before.map(present).into_iter().collect();
        let warnings = session.restoration_warnings().to_vec();
        let mut card =
            Card { session, abilities, peer, receiver_cpu, before, placed_by: "", warnings };
        card.direct_packets().map_err(|error| match error {
            Refusal::Journal(JournalError::Busy { .. }) => in_use(&error),
            _ => no_rights(&error),
        })?;
        let socket = card.socket()?;
        card.set_settings(Scheme::Drain { budget: signalling::BUDGET_DEFAULT })?;
        card.probe(&socket)?;
        card.switch_napi_on(&socket)?;
        Ok(card)
    }

    /// Facts for the run: interface, peer, and the settings before irqlab changed them. Their keys are public.
    pub fn facts(&self) -> Map<String, Json> {
        let interface = self.session.interface().name();
        let driver = std::fs::read_link(format!("/sys/class/net/{interface}/device/driver")).ok();
        let driver = driver.and_then(|path| Some(path.file_name()?.to_str()?.to_owned()));
        let facts = [
            ("nic", json!(interface)),
            ("nic_driver", json!(driver)),
            ("peer", json!(self.peer.address.to_string())),
            ("latency", json!("round trip by way of the peer")),
            ("packets_placed_by", json!(self.placed_by)),
            ("nic_before", Json::Object(self.before.clone())),
        ];
        facts.map(|(key, value)| (key.to_owned(), value)).into_iter().collect()
    }

    /// Warnings so far: settings that the card took with another value than the requested one, and drivers
    /// that ignore NAPI's timer.
    pub fn warnings(&self) -> Vec<String> {
        self.warnings.clone()
    }

    /// Makes the receiver's CPU handle the card's packets.
    fn direct_packets(&mut self) -> Result<(), Refusal> {
        let name = self.session.interface().name().to_owned();
        let irqs = irqs_of(&name);
        for irq in &irqs {
            // The kernel refuses to move managed interrupts. That is ignored here: `set` checks on which CPU
            // packets are handled. An error of the journal counts: the interrupt could not be restored, or
            // another irqlab process uses it.
            let moved = self.session.direct(*irq, self.receiver_cpu);
            if let Err(refusal @ Refusal::Journal(_)) = moved {
                return Err(refusal);
            }
        }
        self.placed_by = if irqs.is_empty() { "steering (RPS)" } else { "interrupt affinity" };
        if !irqs.is_empty() {
            return Ok(());
        }
        let queues = Root::default().names(format!("sys/class/net/{name}/queues"));
        let number = |queue: &String| queue.strip_prefix("rx-")?.parse().ok();
        for queue in queues.unwrap_or_default().iter().filter_map(number) {
            self.session.set(Setting::Steering { queue }, &mask(self.receiver_cpu))?;
        }
        Ok(())
    }

    /// Makes a veth use NAPI, by switching on the merging of packets (GRO). No effect on a device with interrupts,
    /// or if packets use NAPI already.
    fn switch_napi_on(&mut self, socket: &UdpSocket) -> Result<(), BenchError> {
        let has_device = !irqs_of(self.session.interface().name()).is_empty();
        if has_device || socket_option(socket, SO_INCOMING_NAPI_ID).is_ok_and(|id| id != 0) {
            return Ok(());
        }
        let set = self.session.set(Setting::Gro, "on");
        set.map_err(|error| unavailable(error.to_string(), None))?;
        // The veth has NAPI instances from now on.
        self.abilities = Abilities::query(self.session.interface());
        Ok(())
    }

    /// Opens a socket that sends through the card and is connected to the peer.
    fn socket(&self) -> Result<UdpSocket, BenchError> {
        let open = || {
            let peer = self.peer.address;
            let any_address = match peer {
                SocketAddr::V4(_) => SocketAddr::from((Ipv4Addr::UNSPECIFIED, 0)),
                SocketAddr::V6(_) => SocketAddr::from((Ipv6Addr::UNSPECIFIED, 0)),
            };
            let socket = UdpSocket::bind(any_address)?;
            bind_to_interface(&socket, self.session.interface().name())?;
            prepare(&socket)?;
            socket.connect(peer)?;
            Ok(socket)
        };
        let name = self.session.interface().name();
        open().map_err(|error: io::Error| {
            let reason = format!("the peer cannot be reached by {name}: {error}");
            unavailable(reason, Some("check the route, and that the interface is up".to_owned()))
        })
    }

    /// Sends requests until an answer arrives. Fails if none of [`PROBES`] requests is answered.
    fn probe(&mut self, socket: &UdpSocket) -> Result<(), BenchError> {
        let broken = |error: &io::Error| failed("a probe to the peer", error);
        socket.set_read_timeout(Some(PROBE_WAIT)).map_err(|error| broken(&error))?;
        let mut answer = [0; EVENT_BYTES + 1];
        let mut is_answered = false;
        for _ in 0..PROBES {
            // Errors are ignored: an ICMP refusal may belong to the previous probe.
            let _ = socket.send(&request(NO_EVENT, EVENT_BYTES));
            is_answered = socket.recv(&mut answer).is_ok_and(|length| is_answer(&answer[..length]));
            if is_answered {
                break;
            }
        }
        // Restores the read timeout of events.
        prepare(socket).map_err(|error| broken(&error))?;
        if is_answered {
            return Ok(());
        }
        // A peer that has gone away is the better reason.
        self.peer.check()?;
        let name = self.session.interface().name();
        Err(BenchError::NothingMeasurable {
            reason: format!("the peer returns no datagrams by way of {name}"),
            remedy: Some(
                "check that the route to the peer uses this interface, that UDP is not filtered, \
                 and that the peer's irqlab is as new as this one"
                    .to_owned(),
            ),
        })
    }

    /// Writes the card's settings for a scheme, and adds a warning for each one that the card took differently.
    fn set_settings(&mut self, scheme: Scheme) -> Result<(), BenchError> {
        let required = self.abilities.required_settings(scheme, None).map_err(|impossible| {
            let name = self.session.interface().name();
            unavailable(format!("{name}: {}", impossible.reason), impossible.remedy)
        })?;
        for change in required {
            let set = self.session.set(change.setting, &change.value);
            let in_force = set.map_err(|error| unavailable(error.to_string(), None))?;
            let InForce { setting, asked, now, .. } = &in_force;
            let warning = format!("{scheme}: the card took {setting} = {now}, not {asked}");
            if !in_force.is_exact() && !self.warnings.contains(&warning) {
                self.warnings.push(warning);
            }
        }
        Ok(())
    }

    /// Sets the card to a scheme, and returns how the receiver must wait. Fails if the packets of `socket` then
    /// bypass NAPI, or another CPU than the receiver's handles them.
    fn set(&mut self, scheme: Scheme, socket: &UdpSocket) -> Result<Wait, BenchError> {
        Rig::Nic.check(scheme)?;
        let wait = match scheme {
            Scheme::Spin => Wait::Poll,
            Scheme::SpinYield => Wait::PollAndYield,
            Scheme::Hybrid { suspend_ns, .. } => {
                Wait::PollThenSleep(u32::try_from(suspend_ns.div_ceil(1000)).unwrap_or(u32::MAX))
            }
            _ => Wait::Sleep,
        };
        // `drain` first: the timer of the previous scheme must have ended before the new one starts.
        self.set_settings(Scheme::Drain { budget: signalling::BUDGET_DEFAULT })?;
        sleep(RESET_TIME);
        self.set_settings(scheme)?;
        self.probe(socket)?;
        let name = self.session.interface().name();
        let broken = |error: io::Error| failed("the socket", &error);
        let id = socket_option(socket, SO_INCOMING_NAPI_ID).map_err(broken)?;
        let needs_napi = !matches!(scheme, Scheme::Drain { .. });
        if needs_napi && id == 0 {
            let remedy = "where it is a veth, on its other end: ethtool -K NAME tso off";
            let reason = format!("packets of {name} bypass NAPI");
            return Err(unavailable(reason, Some(remedy.to_owned())));
        }
        let handled_on = socket_option(socket, SO_INCOMING_CPU).map_err(broken)?;
        if u32::try_from(handled_on) != Ok(self.receiver_cpu) {
            let reason = format!(
                "packets of {name} are handled on CPU {handled_on}, not on the receiver's CPU {}",
                self.receiver_cpu
            );
            return Err(unavailable(reason, Some(format!("-c {handled_on}"))));
        }
        wait.set(socket).map_err(|error| unavailable(format!("busy polling: {error}"), None))?;
        Ok(wait)
    }

    /// Measures a window of events at a rate. Each event is a datagram of `bytes` bytes.
    fn window(&mut self, stream: &EventStream, bytes: usize) -> Result<RateWindow, BenchError> {
        self.peer.check()?;
        let socket = self.socket()?;
        let wait = self.set(stream.point.scheme, &socket)?;
        let broken = |error: io::Error| failed("the socket", &error);
        let sender = CardSender { socket: socket.try_clone().map_err(broken)?, bytes };
        let receiver = PacketReceiver { socket, wait, bytes };
        let window = events::measure(stream, || Ok(()), sender, receiver, || {});
        // The peer may have gone away: then the window is no measurement.
        if window.as_ref().map_or(true, |window| window.dropped > 0) {
            self.peer.check()?;
        }
        if let Ok(window) = &window {
            self.check_timer(window);
        }
        window
    }

    /// Adds a warning if the card's driver ignores NAPI's timer. A driver ignores the timer if it enables its
    /// interrupt again without asking NAPI.
    fn check_timer(&mut self, window: &RateWindow) {
        let scheme = window.point.scheme;
        let (Scheme::Clocked { period_ns } | Scheme::Deferred { delay_ns: period_ns }) = scheme
        else {
            return;
        };
        let ticks_max = window.activity.window_ns / period_ns.max(1) + 2;
        let warning = format!(
            "{scheme}: the card's driver does not use NAPI's timer; there were more polls than its ticks"
        );
        let ignores_timer = window.activity.signals.is_some_and(|signals| signals > 2 * ticks_max);
        if ignores_timer && !self.warnings.contains(&warning) {
            self.warnings.push(warning);
        }
    }

    /// Measures a window of events at a rate.
    ///
    /// Fails if kernel or card refuse the scheme, or the peer has gone away.
    pub fn rate_window(&mut self, stream: &EventStream) -> Result<RateWindow, BenchError> {
        self.window(stream, EVENT_BYTES)
    }

    /// Measures a window of round trips: a window of large events, whose latency is the round trip by way of the peer.
    ///
    /// Has the errors of [`Card::rate_window`]. Fails for a bulk transfer, which the peer does not send.
    pub fn round_trip_window(
        &mut self,
        setup: WindowSetup,
        point: &RoundTripPoint,
        seed: u64,
    ) -> Result<RoundTripWindow, BenchError> {
        if point.bulk {
            let remedy = Some("irqlab signal run --rig veth --parts round-trips".to_owned());
            return Err(unavailable("the peer sends no bulk data".to_owned(), remedy));
        }
        let rate_point =
            RatePoint { scheme: point.scheme, load: point.load, rate_hz: point.rate_hz };
        let stream = EventStream { setup, point: rate_point, seed, work_additions: 0 };
        Ok(round_trips(point, self.window(&stream, REQUEST_BYTES)?))
    }
}

/// The round trips of a window of events. Both counts leave out the warm-up, whose answers are not recorded.
fn round_trips(point: &RoundTripPoint, window: RateWindow) -> RoundTripWindow {
    let RateWindow { lateness, latency, activity, .. } = window;
    // `offered` includes the warm-up. Lateness has one value for each later request.
    let sent = lateness.count;
    RoundTripWindow { point: *point, sent, round_trip: latency, activity }
}

/// A datagram that the peer returns. It carries the time at which the event was due, or [`NO_EVENT`].
fn request(due_ns: u64, bytes: usize) -> Vec<u8> {
    let mut datagram = vec![0; bytes.max(*echo::DATAGRAM_BYTES.start())];
    datagram[..8].copy_from_slice(&due_ns.to_ne_bytes());
    mark_request(&mut datagram);
    datagram
}

struct CardSender {
    socket: UdpSocket,
    bytes: usize,
}

impl Sender for CardSender {
    fn send(&mut self, due_ns: u64, _: u64) -> io::Result<bool> {
        match send(&self.socket, &request(due_ns, self.bytes), SendFlags::DONTWAIT) {
            Ok(_) => Ok(true),
            Err(Errno::AGAIN | Errno::NOBUFS | Errno::INTR) => Ok(false),
            Err(error) => Err(error.into()),
        }
    }
}

#[cfg(test)]
mod tests {
    use std::net::TcpListener;
    use std::path::Path;

    use lab::signal::Load;

    use super::*;
    use crate::network::{ADDRESS_FAR, NEAR, Pair, PrivateSysfs};
    use crate::nic::Refusal;
    use crate::window::Stop;

    fn setup(receiver_cpu: u32) -> WindowSetup {
        WindowSetup {
            sender_cpu: 0,
            receiver_cpu,
            load: Load::Idle,
            length: Duration::from_millis(100),
            softirq_threads: Vec::new(),
            polls: None,
            disk_irqs: None,
            root: Root::default(),
            observer: None,
            delay_ns: 0,
        }
    }

    fn stream(scheme: &str) -> EventStream {
        let scheme = scheme.parse().unwrap();
        let point = RatePoint { scheme, load: Load::Idle, rate_hz: 1_000 };
        EventStream { setup: setup(1), point, seed: 3, work_additions: 0 }
    }

    /// The settings of the interface that a session changes.
    fn settings(interface: &Interface) -> Vec<Option<String>> {
        let all = [
            Setting::GroFlushTimeout,
            Setting::DeferHardIrqs,
            Setting::Threaded,
            Setting::Steering { queue: 0 },
            Setting::Gro,
        ];
        all.map(|setting| setting.read(interface).ok()).to_vec()
    }

    /// Runs the test in a thread, whose network namespace vanishes with the thread.
    fn in_pair(test: impl FnOnce(Interface, SocketAddr, Stop) + Send + 'static) {
        if !Path::new("/sys/devices/system/cpu/cpu1").exists() {
            return needs::not_run(needs::Need::Cpus, "sender and receiver need a CPU each");
        }
        let body = move || {
            // The far namespace lives until the pair is dropped.
            let pair = match Pair::create().map_err(|error| error.to_string()) {
                Ok(pair) => std::sync::Arc::new(pair),
                Err(error) => return needs::not_run(needs::Need::Namespaces, error),
            };
            if let Err(error) = PrivateSysfs::mount() {
                return needs::not_run(needs::Need::Namespaces, error);
            }
            let stop = Stop::new().unwrap();
            let until = stop.clone();
            let (ready, address) = std::sync::mpsc::channel();
            let joined = std::sync::Arc::clone(&pair);
            let peer = std::thread::spawn(move || {
                joined.enter_far().unwrap();
                drop(joined);
                let listener = TcpListener::bind((ADDRESS_FAR, 0)).unwrap();
                ready.send(listener.local_addr().unwrap()).unwrap();
                echo::serve(&listener, &until).unwrap();
            });
            test(Interface::find(NEAR).unwrap(), address.recv().unwrap(), stop.clone());
            stop.request();
            peer.join().unwrap();
            drop(pair);
        };
        std::thread::spawn(body).join().unwrap();
    }

    #[test]
    fn a_card_uses_each_scheme_and_is_as_before_afterwards() {
        in_pair(|interface, peer, _| {
            let before = settings(&interface);
            let which = CardSettings { interface: interface.clone(), peer };
            let mut card = Card::open(&which, 1).unwrap();
            for (scheme, timeout_ns) in [
                ("drain", "0"),
                ("deferred:5ms", "5000000"),
                ("deferred:1ms", "1000000"),
                ("spin", "10000000"),
                ("hybrid:1,50us", "0"),
            ] {
                let window = card.rate_window(&stream(scheme)).unwrap_or_else(|error| {
                    panic!("{scheme}: {error}");
                });
                assert!(window.delivered > 0, "{scheme}: {window:?}");
                assert_eq!(Setting::GroFlushTimeout.read(&interface).unwrap(), timeout_ns);
            }
            let scheme = "drain".parse().unwrap();
            let point = RoundTripPoint { scheme, load: Load::Idle, rate_hz: 1000, bulk: false };
            let window = card.round_trip_window(setup(1), &point, 3).unwrap();
            assert!(window.round_trip.count > 0, "{window:?}");
            // Requests look unanswered only if they were lost, on a busy machine.
            let window = card.window(&stream("drain"), REQUEST_BYTES).unwrap();
            let (offered, lost) = (window.offered, window.dropped);
            let trips = round_trips(&point, window);
            let (sent, answered) = (trips.sent, trips.round_trip.count);
            assert!(answered <= sent && sent < offered, "{answered} of {sent} of {offered}");
            assert!(sent - answered <= lost, "{answered} of {sent}, lost: {lost}");
            for (scheme, why) in [
                ("coalesced:8,50us", "its driver does not coalesce interrupts"),
                ("interrupt", "drains after each interrupt"),
                ("hybrid:4,50us", "its threshold is 1"),
                ("clocked:1ms", "restarts the timer after each handling"),
            ] {
                let error = card.rate_window(&stream(scheme)).unwrap_err().to_string();
                assert!(error.contains(why), "{error}");
            }
            let bulk = RoundTripPoint { bulk: true, ..point };
            let error = card.round_trip_window(setup(1), &bulk, 3).unwrap_err().to_string();
            assert!(error.contains("no bulk data"), "{error}");
            assert_ne!(settings(&interface), before);
            drop(card);
            assert_eq!(settings(&interface), before);
        });
    }

    #[test]
    fn a_peer_that_goes_away_is_named_and_packets_elsewhere_are_refused() {
        in_pair(|interface, peer, stop| {
            let before = settings(&interface);
            let which = CardSettings { interface: interface.clone(), peer };
            let mut card = Card::open(&which, 1).unwrap();
            card.rate_window(&stream("drain")).unwrap();
            // The measurement notices that something else steers packets to the other CPU.
            Setting::Steering { queue: 0 }.write(&interface, "1").unwrap();
            let error = card.rate_window(&stream("drain")).unwrap_err();
            assert!(error.to_string().contains("on CPU 0, not on the receiver's CPU 1"), "{error}");
            assert_eq!(error.remedy(), Some("-c 0"));
            stop.request();
            // A real peer's connections end with its process, and these end with their threads.
            let _ = card.peer.control.shutdown(std::net::Shutdown::Both);
            // The error is the same if the peer goes away after the last check, and only its
            // datagrams are missing.
            let socket = card.socket().unwrap();
            let start = std::time::Instant::now();
            let error = loop {
                match card.probe(&socket) {
                    Err(error) => break error.to_string(),
                    // On a busy machine, the peer's thread has not ended yet.
                    Ok(_) => std::thread::sleep(Duration::from_millis(10)),
                }
                assert!(start.elapsed() < Duration::from_secs(60), "the peer is still there");
            };
            assert_eq!(error, format!("the peer {peer} has gone away"));
            let error = card.rate_window(&stream("drain")).unwrap_err().to_string();
            assert_eq!(error, format!("the peer {peer} has gone away"));
            drop(card);
            assert_eq!(settings(&interface), before);
            // Nobody listens at port 1.
            let nobody = SocketAddr::new(peer.ip(), 1);
            let nobody = CardSettings { interface: interface.clone(), peer: nobody };
            let Err(error) = Card::open(&nobody, 1) else { panic!("nobody listens") };
            assert!(error.remedy().is_some_and(|remedy| remedy.contains("irqlab echo --listen")));
            // The error names a value that the kernel refuses, and the value does not stay.
            let mut session = Session::open(interface.clone()).unwrap();
            session.set(Setting::GroFlushTimeout, "7000").unwrap();
            let refused = session.set(Setting::DeferHardIrqs, "x");
            assert!(matches!(refused, Err(Refusal::Value { .. })), "{refused:?}");
            drop(session);
            assert_eq!(settings(&interface), before);
        });
    }
}
