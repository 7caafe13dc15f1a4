//! The bench: settings, the rig, what is absent.

use std::sync::{Arc, mpsc};
use std::time::Duration;

use lab::experiment::{Absence, Bench, BenchError, BenchFacts};
use lab::signal::{
    RatePoint, RateWindow, Rig, RoundTripPoint, RoundTripWindow, SignalBench, TransferPoint,
    TransferWindow,
};
use serde_json::{Map, Value as Json, json};

use super::card::{Card, CardSettings};
use super::counts::PollCounter;
use super::events::Stream;
use super::threads::{self, RING_SLOTS};
use super::veth::{How, Veth};
use super::window::Frame;
use crate::host::Root;
use crate::network::NEAR;
use crate::threads::CpuClock;
use crate::window::Stop;

/// Configuration of [`LiveSignal`].
#[derive(Clone, Debug)]
pub struct SignalSettings {
    /// What carries the events.
    pub rig: Rig,
    /// How the veth polls, for [`Rig::Veth`].
    pub polling: How,
    /// The card and its peer, for [`Rig::Nic`].
    pub card: Option<CardSettings>,
    /// CPU of the sender.
    pub sender_cpu: u32,
    /// CPU of the receiver: another one.
    pub receiver_cpu: u32,
    /// Length of a window.
    pub length: Duration,
    /// Work for each event, in addition to receiving it: so many dependent additions, about one core
    /// cycle each.
    pub work_additions: u64,
    /// The request to stop early.
    pub stop: Stop,
}

/// What is done on the thread that has the network namespaces.
type Request = Box<dyn FnOnce(&Veth) + Send>;

/// The thread that has the network namespaces, which vanish with it.
struct VethThread {
    requests: mpsc::Sender<Request>,
    facts: Map<String, Json>,
    /// Processes of the kernel's threads that poll.
    napi_threads: Vec<u32>,
}

impl VethThread {
    fn start(sender_cpu: u32, receiver_cpu: u32, how: How) -> Result<VethThread, BenchError> {
        let (requests, received) = mpsc::channel::<Request>();
        let (created, is_created) = mpsc::channel();
        std::thread::spawn(move || {
            let veth = match Veth::create(sender_cpu, receiver_cpu, how) {
                Ok(veth) => veth,
                Err(error) => {
                    let _ = created.send(Err(error));
                    return;
                }
            };
            let _ = created.send(Ok((veth.facts(), veth.napi_threads())));
            received.into_iter().for_each(|request| request(&veth));
        });
        let (facts, napi_threads) = is_created.recv().map_err(|_| gone())??;
        Ok(VethThread { requests, facts, napi_threads })
    }

    fn call<T: Send + 'static>(
        &self,
        request: impl FnOnce(&Veth) -> Result<T, BenchError> + Send + 'static,
    ) -> Result<T, BenchError> {
        let (answer, answered) = mpsc::channel();
        let request: Request = Box::new(move |veth| {
            let _ = answer.send(request(veth));
        });
        self.requests.send(request).map_err(|_| gone())?;
        answered.recv().map_err(|_| gone())?
    }
}

fn gone() -> BenchError {
    BenchError::Failed("the thread of the network namespaces ended early".to_owned())
}

/// This machine as a [`SignalBench`].
pub struct LiveSignal {
    settings: SignalSettings,
    root: Root,
    polls: Option<Arc<PollCounter>>,
    softirq_threads: Vec<CpuClock>,
    veth: Option<VethThread>,
    card: Option<Card>,
    absent: Vec<Absence>,
}

impl LiveSignal {
    /// Prepares the rig and the counters.
    ///
    /// # Errors
    /// Where the rig is not available here.
    pub fn new(settings: SignalSettings) -> Result<LiveSignal, BenchError> {
        let root = Root::default();
        let mut absent = Vec::new();
        let SignalSettings { rig, sender_cpu, receiver_cpu, polling, .. } = settings;
        let counted = match (rig, &settings.card) {
            (Rig::Veth, _) => Some(NEAR),
            (Rig::Nic, Some(card)) => Some(card.interface.name()),
            (Rig::Threads | Rig::Nic, _) => None, // NAPI has no part in it
        };
        let polls = counted.and_then(|interface| {
            let opened = PollCounter::open(&root, receiver_cpu, interface).map(Arc::new);
            let refused = |error: std::io::Error| Absence {
                table: "rates".to_owned(),
                what: "NAPI polls".to_owned(),
                reason: format!("the tracepoint napi_poll cannot be counted: {error}"),
                remedy: Some(
                    "mount -t tracefs nodev /sys/kernel/tracing, and run as root".to_owned(),
                ),
            };
            opened.map_err(|error| absent.push(refused(error))).ok()
        });
        let veth = (rig == Rig::Veth).then(|| VethThread::start(sender_cpu, receiver_cpu, polling));
        let veth = veth.transpose()?;
        let card = settings.card.as_ref().filter(|_| rig == Rig::Nic);
        let card = card.map(|card| Card::open(card, receiver_cpu)).transpose()?;
        let napi_threads = veth.iter().flat_map(|veth| veth.napi_threads.iter().copied());
        let softirq_threads = softirq_thread(&root, receiver_cpu).into_iter().chain(napi_threads);
        let softirq_threads = softirq_threads.filter_map(CpuClock::of_process).collect();
        Ok(LiveSignal { settings, root, polls, softirq_threads, veth, card, absent })
    }

    fn frame(&self, load: lab::signal::Load) -> Frame {
        Frame {
            sender_cpu: self.settings.sender_cpu,
            receiver_cpu: self.settings.receiver_cpu,
            load,
            length: self.settings.length,
            softirq_threads: self.softirq_threads.clone(),
            polls: self.polls.clone(),
            root: self.root.clone(),
        }
    }
}

/// The process id of `ksoftirqd/CPU` (kernel/softirq.c).
fn softirq_thread(root: &Root, cpu: u32) -> Option<u32> {
    let wanted = format!("ksoftirqd/{cpu}");
    let is = |pid: &u32| root.word(format!("proc/{pid}/comm")).as_deref() == Some(&wanted);
    root.names("proc")?.iter().filter_map(|name| name.parse().ok()).find(is)
}

impl Bench for LiveSignal {
    fn facts(&self) -> BenchFacts {
        let settings = &self.settings;
        let facts = [
            ("rig", json!(settings.rig.word())),
            ("sender_cpu", json!(settings.sender_cpu)),
            ("receiver_cpu", json!(settings.receiver_cpu)),
            ("window_ns", json!(settings.length.as_nanos() as u64)),
            ("ring_slots", json!((settings.rig == Rig::Threads).then_some(RING_SLOTS))),
            ("work_additions", json!(settings.work_additions)),
        ];
        let mut facts: Map<String, Json> =
            facts.map(|(key, value)| (key.to_owned(), value)).into_iter().collect();
        facts.extend(self.veth.iter().flat_map(|veth| veth.facts.clone()));
        facts.extend(self.card.iter().flat_map(Card::facts));
        BenchFacts {
            bench: "live".to_owned(),
            settings: facts,
            observer: Map::new(),
            absent: self.absent.clone(),
            warnings: self.card.as_ref().map(Card::warnings).unwrap_or_default(),
        }
    }

    fn stop_requested(&self) -> bool {
        self.settings.stop.is_requested()
    }

    fn expected_step(&self) -> Option<Duration> {
        Some(self.settings.length * 4 / 3)
    }
}

impl SignalBench for LiveSignal {
    fn rate_window(&mut self, point: &RatePoint, seed: u64) -> Result<RateWindow, BenchError> {
        let work_additions = self.settings.work_additions;
        let stream = Stream { frame: self.frame(point.load), point: *point, seed, work_additions };
        match (&self.veth, &mut self.card) {
            (Some(veth), _) => veth.call(move |veth| veth.rate_window(&stream)),
            (None, Some(card)) => card.rate_window(&stream),
            (None, None) => threads::rate_window(&stream),
        }
    }

    fn transfer_window(&mut self, point: &TransferPoint) -> Result<TransferWindow, BenchError> {
        let (frame, point) = (self.frame(point.load), *point);
        self.only_veth()?.call(move |veth| veth.transfer_window(&frame, &point))
    }

    fn round_trip_window(
        &mut self,
        point: &RoundTripPoint,
        seed: u64,
    ) -> Result<RoundTripWindow, BenchError> {
        let (frame, point) = (self.frame(point.load), *point);
        if let Some(card) = &mut self.card {
            return card.round_trip_window(frame, &point, seed);
        }
        self.only_veth()?.call(move |veth| veth.round_trip_window(&frame, &point, seed))
    }
}

impl LiveSignal {
    /// The network namespaces: two threads have no sockets, and a peer sends no bulk data.
    fn only_veth(&self) -> Result<&VethThread, BenchError> {
        let reason = match self.settings.rig {
            Rig::Nic => "the peer sends no bulk data",
            Rig::Threads | Rig::Veth => "two threads have no sockets",
        };
        self.veth.as_ref().ok_or_else(|| BenchError::Unavailable {
            reason: reason.to_owned(),
            remedy: Some("irqlab signal run --rig veth".to_owned()),
        })
    }
}
