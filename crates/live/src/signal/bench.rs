//! The bench: settings, the rig, what is absent.

use std::sync::{Arc, mpsc};
use std::time::Duration;

use lab::experiment::{Absence, Bench, BenchError, BenchFacts};
use lab::signal::{
    RatePoint, RateWindow, Rig, RoundTripPoint, RoundTripWindow, SignalBench, TransferPoint,
    TransferWindow,
};
use serde_json::{Map, Value as Json, json};

use super::counts::PollCounter;
use super::events::Stream;
use super::threads::{self, RING_SLOTS};
use super::veth::Veth;
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
}

impl VethThread {
    fn start(sender_cpu: u32, receiver_cpu: u32) -> Result<VethThread, BenchError> {
        let (requests, received) = mpsc::channel::<Request>();
        let (created, is_created) = mpsc::channel();
        std::thread::spawn(move || {
            let veth = match Veth::create(sender_cpu, receiver_cpu) {
                Ok(veth) => veth,
                Err(error) => {
                    let _ = created.send(Err(error));
                    return;
                }
            };
            let _ = created.send(Ok(veth.facts()));
            received.into_iter().for_each(|request| request(&veth));
        });
        let facts = is_created.recv().map_err(|_| gone())??;
        Ok(VethThread { requests, facts })
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
    softirq_thread: Option<CpuClock>,
    veth: Option<VethThread>,
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
        let polls = match settings.rig {
            Rig::Threads => None, // NAPI has no part in it
            Rig::Veth => PollCounter::open(&root, settings.receiver_cpu, NEAR)
                .map(Arc::new)
                .map_err(|error| {
                    absent.push(Absence {
                        table: "rates".to_owned(),
                        what: "NAPI polls".to_owned(),
                        reason: format!("the tracepoint napi_poll cannot be counted: {error}"),
                        remedy: Some(
                            "mount -t tracefs nodev /sys/kernel/tracing, and run as root"
                                .to_owned(),
                        ),
                    });
                })
                .ok(),
        };
        let SignalSettings { rig, sender_cpu, receiver_cpu, .. } = settings;
        let veth = (rig == Rig::Veth).then(|| VethThread::start(sender_cpu, receiver_cpu));
        let softirq_thread = softirq_thread(&root, receiver_cpu).and_then(CpuClock::of_process);
        Ok(LiveSignal { settings, root, polls, softirq_thread, veth: veth.transpose()?, absent })
    }

    fn frame(&self, load: lab::signal::Load) -> Frame {
        Frame {
            sender_cpu: self.settings.sender_cpu,
            receiver_cpu: self.settings.receiver_cpu,
            load,
            length: self.settings.length,
            softirq_thread: self.softirq_thread,
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
        BenchFacts {
            bench: "live".to_owned(),
            settings: facts,
            observer: Map::new(),
            absent: self.absent.clone(),
            warnings: Vec::new(),
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
        match &self.veth {
            None => threads::rate_window(&stream),
            Some(veth) => veth.call(move |veth| veth.rate_window(&stream)),
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
        self.only_veth()?.call(move |veth| veth.round_trip_window(&frame, &point, seed))
    }
}

impl LiveSignal {
    /// The network namespaces: two threads have no sockets.
    fn only_veth(&self) -> Result<&VethThread, BenchError> {
        self.veth.as_ref().ok_or_else(|| BenchError::Unavailable {
            reason: "two threads have no sockets".to_owned(),
            remedy: Some("irqlab signal run --rig veth".to_owned()),
        })
    }
}
