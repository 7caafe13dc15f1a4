//! [`LiveSignal`], the experiment's bench on this machine: opens the rig and the counters that the settings
//! request, and passes each window to the rig. `irqlab signal run` and `in_guest.rs` use it.

use std::sync::{Arc, mpsc};
use std::time::Duration;

use lab::experiment::{Absence, Bench, BenchError, BenchFacts};
use lab::keys;
use lab::signal::{
    RatePoint, RateWindow, Rig, RoundTripPoint, RoundTripWindow, SignalBench, TransferPoint,
    TransferWindow,
};
use serde_json::{Map, Value as Json, json};

use super::card::{Card, CardSettings};
use super::counts::PollCounter;
use super::disk::Disk;
use super::disk_reads;
use super::events::EventStream;
use super::packets::{Network, VethPolling};
use super::threads::{self, RING_SLOTS};
use super::window::{Observer, WindowSetup};
use crate::host::{Root, kernel_facts};
use crate::network::NEAR;
use crate::spawn::{no_thread, spawn_thread};
use crate::threads::CpuClock;
use crate::window::{Stop, ThrottlingWindow};

/// Configuration of [`LiveSignal`].
#[derive(Clone, Debug)]
pub struct SignalSettings {
    /// The rig that transports the events.
    pub rig: Rig,
    /// How the near end of a veth polls, for [`Rig::Veth`].
    pub polling: VethPolling,
    /// The card and its peer, for [`Rig::Nic`].
    pub card: Option<CardSettings>,
    pub sender_cpu: u32,
    /// CPU of the receiver, which must differ from the sender's.
    pub receiver_cpu: u32,
    pub length: Duration,
    /// Work for each event after receiving it: a number of dependent additions, which take about one core cycle
    /// each.
    pub work_additions: u64,
    /// The user's request to stop early.
    pub stop: Stop,
    /// The simulator's observer of the windows; `None` on a real machine.
    pub observer: Option<Observer>,
}

/// Upper limit of [`WindowSetup::delay_ns`]: the period of a tick at 250 Hz.
const DELAY_NS_MAX: u64 = 4_000_000;

/// A function that runs on the thread in the network namespaces.
type Request = Box<dyn FnOnce(&Network) + Send>;

/// A thread that is in the network namespaces. The namespaces vanish when it ends, which is when this is dropped.
struct NetworkThread {
    requests: mpsc::Sender<Request>,
    facts: Map<String, Json>,
    /// PIDs of the kernel threads that poll.
    napi_threads: Vec<u32>,
}

impl NetworkThread {
    /// Starts the thread, and waits until it has created the namespaces.
    fn start(
        rig: Rig,
        sender_cpu: u32,
        receiver_cpu: u32,
        polling: VethPolling,
    ) -> Result<NetworkThread, BenchError> {
        let (requests, received) = mpsc::channel::<Request>();
        let (created, created_receiver) = mpsc::channel();
        let body = move || {
            let network = match Network::create(rig, sender_cpu, receiver_cpu, polling) {
                Ok(network) => network,
                Err(error) => {
                    let _ = created.send(Err(error));
                    return;
                }
            };
            let _ = created.send(Ok((network.facts(), network.napi_threads())));
            received.into_iter().for_each(|request| request(&network));
        };
        spawn_thread("irqlab-network", body).map_err(no_thread)?;
        let (facts, napi_threads) = created_receiver.recv().map_err(|_| thread_ended_error())??;
        Ok(NetworkThread { requests, facts, napi_threads })
    }

    /// Runs a function on the thread, and waits for its result.
    fn call<T: Send + 'static>(
        &self,
        request: impl FnOnce(&Network) -> Result<T, BenchError> + Send + 'static,
    ) -> Result<T, BenchError> {
        let (answer, answered) = mpsc::channel();
        let request: Request = Box::new(move |network| {
            let _ = answer.send(request(network));
        });
        self.requests.send(request).map_err(|_| thread_ended_error())?;
        answered.recv().map_err(|_| thread_ended_error())?
    }
}

fn thread_ended_error() -> BenchError {
    BenchError::Failed("the thread of the network namespaces ended early".to_owned())
}

/// This machine as a [`SignalBench`].
pub struct LiveSignal {
    settings: SignalSettings,
    root: Root,
    polls: Option<Arc<PollCounter>>,
    softirq_threads: Vec<CpuClock>,
    network: Option<NetworkThread>,
    card: Option<Card>,
    disk: Option<Disk>,
    throttling: ThrottlingWindow,
    absent: Vec<Absence>,
}

impl LiveSignal {
    /// Prepares the rig and the counters.
    ///
    /// Fails if the rig is not available on this machine.
    pub fn new(settings: SignalSettings) -> Result<LiveSignal, BenchError> {
        let root = Root::default();
        let mut absent = Vec::new();
        let SignalSettings { rig, sender_cpu, receiver_cpu, polling, .. } = settings;
        let counted = match (rig, &settings.card) {
            // A simulator counts the polls itself, and the guest does not mount tracefs.
            _ if settings.observer.is_some() => None,
            (Rig::Veth, _) => Some(NEAR),
            (Rig::Nic, Some(card)) => Some(card.interface.name()),
            // Threads and disks use no NAPI. A simulator counts the polls of a simulated machine's cards.
            (Rig::Threads | Rig::Nic | Rig::VirtioNet | Rig::E1000 | Rig::Nvme, _) => None,
        };
        let polls = counted.and_then(|interface| {
            let opened = PollCounter::open(&root, receiver_cpu, interface).map(Arc::new);
            let refused = |error: std::io::Error| {
                let reason = format!("the tracepoint napi_poll cannot be counted: {error}");
                Absence::new("rates", "NAPI polls", reason).with_remedy(Some(
                    "mount -t tracefs nodev /sys/kernel/tracing, and run as root",
                ))
            };
            opened.map_err(|error| absent.push(refused(error))).ok()
        });
        let start = || NetworkThread::start(rig, sender_cpu, receiver_cpu, polling);
        let network = rig.has_namespaces().then(start).transpose()?;
        let card = if rig == Rig::Nic { settings.card.as_ref() } else { None };
        let card = card.map(|card| Card::open(card, receiver_cpu)).transpose()?;
        let is_simulated = settings.observer.is_some();
        let open_disk = || Disk::open(&root, is_simulated);
        let disk = (rig == Rig::Nvme).then(open_disk).transpose()?;
        let napi_threads = network.iter().flat_map(|network| network.napi_threads.iter().copied());
        let softirq_thread = softirq_thread(&root, receiver_cpu);
        if softirq_thread.is_none() && settings.observer.is_none() {
            let column = format!("CPU time of ksoftirqd/{receiver_cpu}");
            let reason =
                "/proc does not list the kernel's threads here (a PID namespace, or hidepid)";
            let remedy = "run irqlab in the initial PID namespace (docker --pid=host)";
            absent.push(Absence::new("rates", column, reason).with_remedy(Some(remedy)));
        }
        let softirq_threads = softirq_thread.into_iter().chain(napi_threads);
        let softirq_threads = softirq_threads.filter_map(CpuClock::of_process).collect();
        let throttling = ThrottlingWindow::open(&root);
        Ok(LiveSignal {
            settings,
            root,
            polls,
            softirq_threads,
            network,
            card,
            disk,
            throttling,
            absent,
        })
    }

    /// The configuration of a window. `seed` is the window's: it determines the delay before a simulated window.
    fn window_setup(&self, load: lab::signal::Load, seed: u64) -> WindowSetup {
        let delay_ns = stats::Random::new(seed).next() % DELAY_NS_MAX;
        WindowSetup {
            sender_cpu: self.settings.sender_cpu,
            receiver_cpu: self.settings.receiver_cpu,
            load,
            length: self.settings.length,
            softirq_threads: self.softirq_threads.clone(),
            polls: self.polls.clone(),
            disk_irqs: self.disk.as_ref().and_then(Disk::irqs),
            root: self.root.clone(),
            observer: self.settings.observer,
            delay_ns: if self.settings.observer.is_some() { delay_ns } else { 0 },
        }
    }

    /// Facts that are not among the settings: the interfaces of the rig. Their keys are public.
    pub fn interface_facts(&self) -> Map<String, Json> {
        let network = self.network.iter().flat_map(|network| network.facts.clone());
        let devices = self.card.iter().flat_map(Card::facts);
        network.chain(devices).chain(self.disk.iter().flat_map(Disk::facts)).collect()
    }
}

/// The PID of `ksoftirqd/CPU` (kernel/softirq.c). `None` if /proc does not list it.
fn softirq_thread(root: &Root, cpu: u32) -> Option<u32> {
    let thread_name = format!("ksoftirqd/{cpu}");
    let has_name =
        |pid: &u32| root.word(format!("proc/{pid}/comm")).as_deref() == Some(&thread_name);
    root.names("proc")?.iter().filter_map(|name| name.parse().ok()).find(has_name)
}

impl Bench for LiveSignal {
    fn facts(&self) -> BenchFacts {
        let settings = &self.settings;
        let facts = [
            (keys::RIG, json!(settings.rig.word())),
            ("sender_cpu", json!(settings.sender_cpu)),
            ("receiver_cpu", json!(settings.receiver_cpu)),
            ("window_ns", json!(settings.length.as_nanos() as u64)),
            ("ring_slots", json!((settings.rig == Rig::Threads).then_some(RING_SLOTS))),
            ("work_additions", json!(settings.work_additions)),
        ];
        let mut facts: Map<String, Json> =
            facts.map(|(key, value)| (key.to_owned(), value)).into_iter().collect();
        facts.extend(self.interface_facts());
        let mut warnings = self.card.as_ref().map(Card::warnings).unwrap_or_default();
        self.throttling.report(&self.root, &mut facts, &mut warnings);
        BenchFacts {
            bench: "live".to_owned(),
            settings: facts,
            observer: Map::new(),
            absent: self.absent.clone(),
            warnings,
        }
    }

    fn stop_requested(&self) -> bool {
        self.settings.stop.is_requested()
    }

    /// The window and its control, which takes a third of the window's length.
    fn expected_step(&self) -> Option<Duration> {
        Some(self.settings.length * 4 / 3)
    }
}

impl SignalBench for LiveSignal {
    fn thread_clocks_exclude_interrupts(&self) -> bool {
        kernel_facts(&self.root).irq_time_accounting == Some(true)
    }

    fn rate_window(&mut self, point: &RatePoint, seed: u64) -> Result<RateWindow, BenchError> {
        let work_additions = self.settings.work_additions;
        let stream = EventStream {
            setup: self.window_setup(point.load, seed),
            point: *point,
            seed,
            work_additions,
        };
        match (&self.network, &mut self.card, &self.disk) {
            (Some(network), _, _) => network.call(move |network| network.rate_window(&stream)),
            (None, Some(card), _) => card.rate_window(&stream),
            (None, None, Some(disk)) => disk_reads::rate_window(&stream, disk),
            (None, None, None) => threads::rate_window(&stream),
        }
    }

    fn transfer_window(
        &mut self,
        point: &TransferPoint,
        seed: u64,
    ) -> Result<TransferWindow, BenchError> {
        let (setup, point) = (self.window_setup(point.load, seed), *point);
        self.namespaces()?.call(move |network| network.transfer_window(&setup, &point))
    }

    fn round_trip_window(
        &mut self,
        point: &RoundTripPoint,
        seed: u64,
    ) -> Result<RoundTripWindow, BenchError> {
        let (setup, point) = (self.window_setup(point.load, seed), *point);
        if let Some(card) = &mut self.card {
            return card.round_trip_window(setup, &point, seed);
        }
        self.namespaces()?.call(move |network| network.round_trip_window(&setup, &point, seed))
    }
}

impl LiveSignal {
    /// The thread in the network namespaces. Fails for rigs without namespaces, which measure no bulk transfer;
    /// the rigs `threads` and `nvme` measure no round trips either.
    fn namespaces(&self) -> Result<&NetworkThread, BenchError> {
        let reason = match self.settings.rig {
            Rig::Nic => "the peer sends no bulk data",
            Rig::Nvme => "a disk has no sockets",
            _ => "two threads have no sockets",
        };
        self.network.as_ref().ok_or_else(|| BenchError::Unavailable {
            reason: reason.to_owned(),
            remedy: Some("irqlab signal run --rig veth".to_owned()),
        })
    }
}
