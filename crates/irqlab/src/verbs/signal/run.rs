//! `irqlab signal run`: measures CPU use and latency of the schemes.
//!
//! Makes the plan of `lab::signal` from the options, and measures it on the live bench or in simulated machines. The
//! live bench uses threads, a veth pair or a card. `reproduce signal-afterburner` uses [`SimulatedSignal`] and
//! [`two_cpus`].

use std::net::{SocketAddr, ToSocketAddrs};
use std::process::ExitCode;
use std::time::Duration;

use anyhow::bail;
use lab::experiment::BenchError;
use lab::signal::{Load, Part, Plan, Rig};
use live::host::{Root, format_cpu_list, host_facts, process_cpus, run_host_block};
use live::signal::{CARD_WINDOW_MAX, CardSettings, LiveSignal, SignalSettings, VethPolling};
use record::Run;
use serde_json::{Map, Value as Json, json};
use signalling::Scheme;
use sim::Cache;
use sim::devices::{Disk, DiskModel, NicModel};
use sim::signal::{SimSignal, SimSignalSettings};

use super::nic;
use super::rates::{Rates, rates};
use crate::console::Redraw;
use crate::dry_run::print_plan;
use crate::options::{
    On, ResultArgs, SIMULATED, Usage, duration_between, guest_cpus, help_with_exit_codes, one_cpu,
    unique, usable_cpus,
};
use crate::pictures::PictureArgs;
use crate::run::{OpenRun, STATUS_LIMIT, stop_on_signals};
use crate::simulated::{
    FINISHED_WINDOWS_GUEST_LIMIT, FINISHED_WINDOWS_LIMIT, FlavourName, MachineFacts, Simulated,
    SimulatedArgs, add_word,
};

/// Measure CPU use and latency of interrupts, polling and clocked interrupts
#[derive(Debug, clap::Args)]
#[command(mut_arg("limit", |arg| arg.help(FINISHED_WINDOWS_LIMIT)))]
#[command(mut_arg("guest_limit", |arg| arg.help(FINISHED_WINDOWS_GUEST_LIMIT)))]
#[command(after_help = help_with_exit_codes(&[STATUS_LIMIT], "Examples:
  irqlab signal run                                    two threads with a ring and an eventfd
  irqlab signal run --rates 1k,20k,100k --schemes interrupt,clocked:1ms,spin
  sudo irqlab signal run --rig veth                    the kernel's network stack
  sudo irqlab signal run --rig veth --parts throughput --loads idle,busy --pictures
  sudo irqlab signal run --rig veth --napi threaded
  sudo irqlab signal run --nic eth0 --peer 192.0.2.7:7007 --schemes drain,coalesced:32,50us,spin
                                                       a network card; the peer runs irqlab echo
  irqlab signal run --on sim:r4400-1994 --rates 200 --schemes drain,deferred:5ms
  irqlab signal run --on sim:zen3 --rig nvme --schemes interrupt,poll
  irqlab signal run --on sim:p3-600 --rig e1000 --rates 5k --schemes drain,clocked:1ms"))]
pub struct RunArgs {
    /// Where to measure: live or sim:MODEL
    #[arg(long, default_value = "live", value_name = "BENCH")]
    on: On,
    /// What carries the events: threads (a ring in memory), veth (the kernel's network stack), nvme (reads of an
    /// NVMe disk); on a simulated machine also virtio-net or e1000 (the network stack with two cards)
    /// [default: threads; on sim, virtio-net]
    #[arg(long, value_parser = parse_rig, value_name = "RIG")]
    rig: Option<Rig>,
    /// Measure this network card: the events are packets that irqlab echo on --peer returns. The settings of
    /// the card are changed for the measurement, then restored
    #[arg(long, conflicts_with = "rig", requires = "peer", value_name = "NAME")]
    nic: Option<String>,
    /// Address of the other machine, where irqlab echo listens
    #[arg(long, requires = "nic", value_name = "HOST:PORT")]
    peer: Option<String>,
    /// Who polls the packets of the veth: softirq, or threaded (a kernel thread on the receiving CPU)
    #[arg(long, default_value = "softirq", value_name = "HOW",
          value_parser = ["softirq", "threaded"])]
    napi: String,
    /// How the veth does a hybrid scheme: busy-poll (SO_BUSY_POLL), or irq-suspension (epoll and
    /// irq-suspend-timeout, Linux 6.13)
    #[arg(long, default_value = "busy-poll", value_name = "HOW",
          value_parser = ["busy-poll", "irq-suspension"])]
    hybrid: String,
    /// Schemes to measure: interrupt, drain, spin, yield, poll (spin while a read is under way), clocked:PERIOD,
    /// deferred:DELAY, coalesced:COUNT,DELAY, hybrid:COUNT,TIME [default: interrupt, drain, clocked:1ms,
    /// clocked:100us, spin; with packets or a disk, schemes that the rig supports]
    #[arg(long, value_parser = parse_schemes, value_name = "LIST")]
    schemes: Option<Schemes>,
    /// What to measure: rates (CPU use and latency by event rate), throughput (TCP by socket buffer),
    /// round-trips (latency of small requests) [default: rates; on veth and simulated cards all; with --nic,
    /// rates and round-trips]
    #[arg(long, value_delimiter = ',', value_parser = parse_part, value_name = "LIST")]
    parts: Vec<Part>,
    /// Other load on the receiving CPU: idle (none), background (a job of the lowest priority, whose progress
    /// shows how much CPU time is left), busy (a job of the same priority)
    #[arg(long, value_delimiter = ',', default_value = "background,idle", value_parser = parse_load,
          value_name = "LIST")]
    loads: Vec<Load>,
    /// Events per second: a list; A..B stands for A, the numbers 1, 2 and 5 of each decade, and B
    #[arg(long, default_value = "1k,5k,20k,50k,100k", value_parser = rates, value_name = "LIST")]
    rates: Rates,
    /// Requests per second in the part round-trips
    #[arg(long, default_value_t = REQUEST_RATE_HZ, value_name = "N",
          value_parser = clap::value_parser!(u64).range(1..=1_000_000))]
    request_rate: u64,
    /// Sizes of the socket buffers in the part throughput, KiB
    #[arg(long, value_delimiter = ',', default_value = "1,2,4,8,16,32,64,128,256",
          value_parser = clap::value_parser!(u64).range(1..=65_536), value_name = "LIST")]
    socket_buffers: Vec<u64>,
    /// The receiving CPU: exactly one [default: the last CPU]
    #[arg(short = 'c', long, alias = "cpu", value_name = "LIST")]
    cpus: Option<String>,
    /// The sending CPU [default: the first other CPU]
    #[arg(long, value_name = "CPU")]
    sender_cpu: Option<u32>,
    /// Length of each window
    #[arg(short = 'd', long, allow_hyphen_values = true, value_parser = duration_between("10ms", "1h"),
          default_value = "500ms", value_name = "TIME")]
    duration: Duration,
    /// How often to measure each point; the order is random
    #[arg(long, value_parser = clap::value_parser!(u32).range(1..=1000), default_value_t = 3,
          value_name = "N")]
    repetitions: u32,
    /// Work for each event in addition to receiving it: dependent additions, about one core cycle each
    #[arg(long, value_parser = clap::value_parser!(u64).range(0..=1_000_000), default_value_t = 0,
          value_name = "N")]
    work: u64,
    /// Seed of the times of events and of the order of the points
    #[arg(long, default_value_t = 1, value_name = "N")]
    seed: u64,
    #[command(flatten)]
    results: ResultArgs,
    #[command(flatten)]
    pictures: PictureArgs,
    #[command(flatten, next_help_heading = SIMULATED)]
    simulated: SimulatedArgs,
}

/// Default number of requests per second in the part round-trips.
pub const REQUEST_RATE_HZ: u64 = 1000;

/// The schemes of a list. Schemes contain commas themselves, so clap cannot split the list.
#[derive(Clone, Debug)]
struct Schemes(Vec<Scheme>);

fn parse_schemes(text: &str) -> Result<Schemes, String> {
    Scheme::list(text).map(Schemes).map_err(|error| error.to_string())
}

/// Parses `text` as one of `values`; `word` gives the text of a value. The error lists the allowed words.
fn parse_word<T: Copy>(values: &[T], word: fn(T) -> &'static str, text: &str) -> Result<T, String> {
    let allowed: Vec<&str> = values.iter().map(|value| word(*value)).collect();
    let found = values.iter().copied().find(|value| word(*value) == text);
    found.ok_or_else(|| format!("allowed: {}", allowed.join(", ")))
}

fn parse_rig(text: &str) -> Result<Rig, String> {
    parse_word(&Rig::ALONE, Rig::word, text)
}

fn parse_part(text: &str) -> Result<Part, String> {
    parse_word(&Part::ALL, Part::word, text)
}

fn parse_load(text: &str) -> Result<Load, String> {
    parse_word(&Load::ALL, Load::word, text)
}

/// Default schemes of a rig.
fn default_schemes(rig: Rig) -> &'static str {
    match rig {
        Rig::Threads => "interrupt,drain,clocked:1ms,clocked:100us,spin",
        // No `interrupt`: the kernel drains after each interrupt.
        Rig::Veth | Rig::VirtioNet => "drain,clocked:1ms,clocked:100us,spin",
        // The card's throttle has no time below 100 us.
        Rig::E1000 => "drain,clocked:1ms,deferred:100us,spin",
        Rig::Nvme => "interrupt,poll,spin",
        Rig::Nic => "drain,deferred:100us,coalesced:32,50us,coalesced:64,200us,spin",
    }
}

/// Longest name of a host (RFC 1035: 253), with brackets and a port.
const PEER_BYTES_MAX: usize = 264;

/// Resolves the peer's address. Prefers IPv4 to IPv6.
fn resolve(peer: &str) -> anyhow::Result<SocketAddr> {
    let printable_peer = report::escape::plain(peer);
    let wrong = |reason: String| Usage(format!("--peer {printable_peer}: {reason}"));
    if peer.len() > PEER_BYTES_MAX {
        bail!(Usage(format!("--peer is longer than {PEER_BYTES_MAX} bytes")));
    }
    if !peer.rsplit(':').next().is_some_and(|port| port.parse::<u16>().is_ok_and(|port| port > 0)) {
        bail!(wrong("allowed: HOST:PORT, where irqlab echo listens".to_owned()));
    }
    let addresses = peer.to_socket_addrs().map_err(|error| BenchError::NothingMeasurable {
        reason: format!("cannot find the peer {printable_peer}: {error}"),
        remedy: Some("check the name, or give the peer's address".to_owned()),
    })?;
    Ok(addresses
        .min_by_key(SocketAddr::is_ipv6)
        .ok_or_else(|| wrong("the host has no address".to_owned()))?)
}

impl RunArgs {
    fn rig(&self) -> Rig {
        match (&self.nic, &self.on) {
            (Some(_), _) => Rig::Nic,
            (None, On::Live) => self.rig.unwrap_or(Rig::Threads),
            (None, On::Sim(_)) => self.rig.unwrap_or(Rig::VirtioNet),
        }
    }

    /// The network card and its peer, or `None` without `--nic`.
    fn card(&self) -> anyhow::Result<Option<CardSettings>> {
        let (Some(name), Some(peer)) = (&self.nic, &self.peer) else { return Ok(None) };
        if self.duration > CARD_WINDOW_MAX {
            bail!(Usage(format!("-d can be at most {}s with --nic", CARD_WINDOW_MAX.as_secs())));
        }
        Ok(Some(CardSettings { interface: nic::interface(name)?, peer: resolve(peer)? }))
    }

    /// How the receiver of the veth pair polls.
    ///
    /// Fails when `--napi` or `--hybrid` is given for another rig.
    fn polling(&self) -> anyhow::Result<VethPolling> {
        let polling = self.requested_polling();
        if polling != VethPolling::default() && self.rig() != Rig::Veth {
            bail!(Usage("--napi and --hybrid work only with --rig veth".to_owned()));
        }
        Ok(polling)
    }

    fn requested_polling(&self) -> VethPolling {
        VethPolling {
            is_threaded: self.napi == "threaded",
            suspends: self.hybrid == "irq-suspension",
        }
    }

    /// Refuses options that do not work on a simulated machine.
    fn check_simulated(&self) -> anyhow::Result<()> {
        if self.nic.is_some() {
            bail!(Usage(
                "--nic names a card of this machine and works only with --on live; for simulated cards, \
                 use --rig e1000"
                    .to_owned()
            ));
        }
        if self.requested_polling() != VethPolling::default() {
            bail!(Usage("--napi and --hybrid work only with --on live and --rig veth".to_owned()));
        }
        Ok(())
    }

    /// The plan that the options select. Without `--schemes` and `--parts`, the rig decides.
    fn plan(&self) -> anyhow::Result<Plan> {
        let schemes = match &self.schemes {
            Some(Schemes(schemes)) => unique(schemes),
            None => Scheme::list(default_schemes(self.rig()))?,
        };
        let parts = match (self.parts.is_empty(), self.rig()) {
            (false, _) => unique(&self.parts),
            (true, Rig::Threads | Rig::Nvme) => vec![Part::Rates],
            (true, Rig::Veth | Rig::VirtioNet | Rig::E1000) => Part::ALL.to_vec(),
            (true, Rig::Nic) => vec![Part::Rates, Part::RoundTrips],
        };
        Ok(Plan {
            rig: self.rig(),
            parts,
            schemes,
            loads: unique(&self.loads),
            rates_hz: self.rates.0.clone(),
            request_rate_hz: self.request_rate,
            socket_buffers_bytes: unique(&self.socket_buffers)
                .iter()
                .map(|kib| kib * 1024)
                .collect(),
            repetitions: self.repetitions,
            seed: self.seed,
        })
    }
}

/// The CPUs of sender and receiver on this machine, in this order. `receivers` is the list of `--cpus`.
pub fn two_cpus(receivers: Option<&str>, sender: Option<u32>) -> anyhow::Result<(u32, u32)> {
    let usable = usable_cpus(None)?;
    let receiver = one_cpu(receivers, &usable_cpus(receivers)?)?;
    // A named sender may be outside of the affinity that irqlab was started with; a chosen sender is inside.
    match sender {
        Some(_) => sender_and_receiver(&process_cpus().permitted, receiver, sender),
        None => sender_and_receiver(&usable, receiver, None),
    }
}

/// Checks that the sender's CPU is one of `allowed`, or chooses one of them. Returns the CPUs of sender and receiver.
fn sender_and_receiver(
    allowed: &[u32],
    receiver: u32,
    sender: Option<u32>,
) -> anyhow::Result<(u32, u32)> {
    let sender = sender.or_else(|| allowed.iter().copied().find(|cpu| *cpu != receiver));
    match sender {
        None => bail!(BenchError::NothingMeasurable {
            reason: "sender and receiver need a CPU each, and this process may use only one"
                .to_owned(),
            remedy: Some("irqlab signal model".to_owned()),
        }),
        Some(sender) if sender == receiver => {
            bail!(Usage("--sender-cpu must be another CPU than the receiver's".to_owned()))
        }
        Some(sender) if !allowed.contains(&sender) => {
            let allowed = format_cpu_list(allowed);
            bail!(Usage(format!(
                "--sender-cpu: CPU {sender} is offline or outside this process's cpuset; usable CPUs: {allowed}"
            )))
        }
        Some(sender) => Ok((sender, receiver)),
    }
}

pub fn run(args: &RunArgs) -> anyhow::Result<ExitCode> {
    match &args.on {
        On::Live => run_live(args),
        On::Sim(model) => run_simulated(args, model.as_deref()),
    }
}

fn settings() -> Map<String, Json> {
    Map::from_iter([("version".to_owned(), json!(crate::VERSION))])
}

/// Measures on this machine, with threads, a veth pair or a card.
fn run_live(args: &RunArgs) -> anyhow::Result<ExitCode> {
    let rig = args.rig();
    if rig.has_cards() {
        bail!(Usage(format!(
            "--rig {} needs the cards of a simulated machine: add --on sim:MODEL",
            rig.word()
        )));
    }
    let (sender_cpu, receiver_cpu) = two_cpus(args.cpus.as_deref(), args.sender_cpu)?;
    let plan = args.plan()?;
    check_schemes(rig, &plan.schemes)?;
    let (polling, card) = (args.polling()?, args.card()?);
    let host = host_facts(&Root::default());
    let open = OpenRun::new("signal", &args.results)?;
    let context = open.context(run_host_block(&host), settings());
    let mut bench = LiveSignal::new(SignalSettings {
        rig,
        polling,
        card,
        sender_cpu,
        receiver_cpu,
        length: args.duration,
        work_additions: args.work,
        stop: stop_on_signals()?,
        observer: None,
    })?;
    let pictures = |run: &Run, _: &_| args.pictures.draw(run);
    Ok(open.measure(&plan, context, &mut bench, Redraw::EachStep, pictures)?.0)
}

/// Measures in a simulated machine, or prints the plan with `--dry-run`.
fn run_simulated(args: &RunArgs, model: Option<&str>) -> anyhow::Result<ExitCode> {
    args.check_simulated()?;
    let plan = args.plan()?;
    check_schemes(args.rig(), &plan.schemes)?;
    check_disk_time(args.rig(), &plan.schemes, &args.simulated.guest.disk)?;
    let machine = SimulatedSignal {
        model,
        rig: args.rig(),
        cpus: args.cpus.as_deref(),
        sender_cpu: args.sender_cpu,
        length: args.duration,
        work_additions: args.work,
        windows: plan.window_count(),
    };
    machine.check(&args.simulated)?;
    let open = OpenRun::new("signal", &args.results)?;
    let (mut bench, facts) = machine.bench(&args.simulated, &open)?;
    if args.simulated.dry_run {
        let windows = plan.windows().repeat(plan.repetitions as usize);
        return print_plan(open.format(), bench.at_once(), &bench.planned(&windows)?);
    }
    let context = facts.context(&open, settings());
    let pictures = |run: &Run, _: &_| args.pictures.draw(run);
    Ok(open.measure(&plan, context, &mut bench, Redraw::EverySecond, pictures)?.0)
}

/// Fails with the first refusal if the rig refuses all schemes.
fn check_schemes(rig: Rig, schemes: &[Scheme]) -> anyhow::Result<()> {
    let refusals: Result<Vec<BenchError>, ()> =
        schemes.iter().map(|scheme| rig.check(*scheme).err().ok_or(())).collect();
    if let Ok(refusals) = refusals
        && let Some(BenchError::Unavailable { reason, remedy }) = refusals.into_iter().next()
    {
        bail!(BenchError::NothingMeasurable { reason, remedy });
    }
    Ok(())
}

/// Fails if a scheme needs a disk that holds back completions, and a disk has the time of a drive.
fn check_disk_time(rig: Rig, schemes: &[Scheme], disks: &[Disk]) -> Result<(), Usage> {
    let held_back = schemes.iter().find(|scheme| rig.coalescing(**scheme).is_some());
    match held_back {
        Some(scheme) if disks.iter().any(|disk| disk.drive.is_some()) => Err(Usage(format!(
            "--disk drive= cannot be used with --schemes {scheme}: such a disk does not hold back \
             completions; use latency="
        ))),
        _ => Ok(()),
    }
}

/// A measurement in a simulated machine.
pub struct SimulatedSignal<'a> {
    /// Name of the model of `--on sim:MODEL`.
    pub model: Option<&'a str>,
    pub rig: Rig,
    /// List with the receiving CPU. Default: the last CPU.
    pub cpus: Option<&'a str>,
    /// The sending CPU. Default: the first CPU that does not receive.
    pub sender_cpu: Option<u32>,
    /// Length of a window.
    pub length: Duration,
    /// Dependent additions for each event.
    pub work_additions: u64,
    /// Number of windows of a repetition.
    pub windows: usize,
}

/// The disk of the rig `nvme` without `--disk`. Its latency is that of a fast SSD with flash.
const DISK: &str = "nvme,latency=80us";
/// Option of the guest's kernel that gives the disk a queue without interrupts.
const POLL_QUEUE: &str = "nvme.poll_queues=1";

/// Smallest and default number of CPUs of the machine: one that sends, one that receives.
const VCPUS: u32 = 2;

impl SimulatedSignal<'_> {
    /// Prepares the machine. Returns the bench, and what a run says about the machine.
    ///
    /// Fails when an option does not fit, or a program or file is missing.
    pub fn bench(
        &self,
        args: &SimulatedArgs,
        open: &OpenRun,
    ) -> anyhow::Result<(SimSignal, MachineFacts)> {
        self.check(args)?;
        let vcpus = args.vcpus.unwrap_or(VCPUS);
        let (sender_cpu, receiver_cpu) = self.two_cpus(vcpus)?;
        let cache = Cache::from_environment()?;
        let model = args.model(&cache, self.model)?;
        let stop = stop_on_signals()?;
        let watch = args.watch(model);
        let mut guest = args.guest.clone();
        guest.net = self.cards();
        if self.rig == Rig::Nvme {
            guest.disk = vec![self.disk(&guest.disk)?];
            add_word(&mut guest.append, POLL_QUEUE);
        }
        if self.rig == Rig::E1000 && guest.kernel.kernel.is_none() {
            // Debian's kernel for virtual machines has no e1000 driver.
            guest.kernel.flavour.get_or_insert(FlavourName::Full);
        }
        let prepared = Simulated::prepare(cache, &guest, vcpus, watch, stop, |_| Ok(()))?;
        let facts = prepared.machine_facts()?;
        let jobs = args.jobs.choose(self.windows, prepared.guest.machine.memory_mib);
        let bench = SimSignal::new(SimSignalSettings {
            guest: prepared.guest,
            rig: self.rig,
            sender_cpu,
            receiver_cpu,
            length: self.length,
            work_additions: self.work_additions,
            jobs,
            on_host: Map::from_iter([("out".to_owned(), json!(open.directory()))]),
        });
        Ok((bench, facts))
    }

    /// Refuses options that do not fit together, before the machine is prepared. The error names the first of them.
    pub fn check(&self, args: &SimulatedArgs) -> anyhow::Result<()> {
        self.two_cpus(args.vcpus.unwrap_or(VCPUS))?;
        if self.model.is_none() {
            let reason = "without a model, virtual CPUs share one clock; name a model";
            bail!(Usage(format!("--on sim: {reason} (--on sim:r4400-1994)")));
        }
        args.guest.refuse_free_running()?;
        if args.guest.net.is_some() && args.guest.net != self.cards() {
            bail!(Usage(format!(
                "--net cannot be used here: --rig {} determines the cards",
                self.rig.word()
            )));
        }
        if self.rig == Rig::Nvme {
            self.disk(&args.guest.disk)?;
        }
        args.model(&Cache::from_environment()?, self.model).map(drop)
    }

    /// The disk of the rig `nvme`: the only one of the machine, so that the guest's program reads no other disk.
    fn disk(&self, given: &[Disk]) -> Result<Disk, Usage> {
        match given {
            [] => DISK.parse().map_err(Usage),
            [disk] if disk.model == DiskModel::Nvme => Ok(disk.clone()),
            _ => Err(Usage("--rig nvme reads one disk: give --disk nvme,latency=20us".to_owned())),
        }
    }

    /// The network cards that the rig needs, or `None` if it needs none.
    fn cards(&self) -> Option<NicModel> {
        match self.rig {
            Rig::Threads | Rig::Veth | Rig::Nvme | Rig::Nic => None,
            Rig::VirtioNet => Some(NicModel::VirtioNet),
            Rig::E1000 => Some(NicModel::E1000Throttled),
        }
    }

    /// The CPUs of sender and receiver in the guest, in this order.
    fn two_cpus(&self, vcpus: u32) -> anyhow::Result<(u32, u32)> {
        if vcpus < VCPUS {
            bail!(Usage(format!(
                "--vcpus must be {VCPUS} to 16: sender and receiver need a CPU each"
            )));
        }
        let all_cpus: Vec<u32> = (0..vcpus).collect();
        let listed = self.cpus.map(|list| guest_cpus(list, vcpus)).transpose()?;
        let receiver = one_cpu(self.cpus, listed.as_deref().unwrap_or(&all_cpus))?;
        sender_and_receiver(&all_cpus, receiver, self.sender_cpu)
    }
}
