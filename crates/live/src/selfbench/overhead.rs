//! The cost that a pair of probes, at entry and exit, adds to a system call: irqlab and other tools in one run
//! (`irqlab bench overhead`).
//!
//! One pinned thread calls getppid(2) in a loop. In each round each tool in turn is attached to the
//! system call tracepoints, the loop is timed, and the tool is detached. The order of the
//! tools changes from round to round. A tool's result of a round is the median of many short
//! loops, minus the median of the bare loop in this round. Therefore a slow second or a
//! busy neighbour changes the result little.
//!
//! irqlab's programs are made for interrupts. Here they are attached to sys_enter and sys_exit,
//! with the gate open, and do the work that they do on an interrupt.

use crate::bpf::Attached as AttachedProgram;
use lab::experiment::BenchError;

use super::failed;
use super::peers::{PROBING_CALLS_SEEN, Peer, Tool, spans_in_histogram};
use super::tracefs::{Instance, Tracefs};
use crate::bpf::layout::{Config, KEY_BENCH};
use crate::bpf::{Flavour, LoadSpec, Maps, Probes, RowLayout, has_cookies};
use crate::syscall_loop::{median, ns_per_call};
use crate::window::Stop;

/// Configuration of the comparison.
#[derive(Clone, Debug)]
pub struct OverheadSettings {
    /// CPU on which the loop runs.
    pub cpu: u32,
    /// Number of measurements of each tool.
    pub rounds: u32,
    /// Number of loops per tool and round.
    pub loops: u32,
    /// Number of system calls per loop.
    pub calls: u32,
}

impl OverheadSettings {
    /// The default settings on `cpu`.
    #[must_use]
    pub fn new(cpu: u32) -> Self {
        OverheadSettings { cpu, rounds: 9, loops: 25, calls: 4_000 }
    }
}

/// A tool that is attached to the system call.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Attached {
    Nothing,
    /// A pair of BPF programs that return at once.
    Empty(Flavour),
    /// A pair of BPF programs that read the clock, and nothing else.
    Clocks(Flavour),
    /// The pair of irqlab's programs.
    Irqlab(Flavour),
    /// The kernel's trace events, into a ring buffer.
    Ftrace,
    Bpftrace,
    Perf,
}

impl Attached {
    /// All tools, in the order of the table's rows.
    const ALL: [Attached; 9] = [
        Attached::Nothing,
        Attached::Empty(Flavour::Btf),
        Attached::Clocks(Flavour::Btf),
        Attached::Irqlab(Flavour::Btf),
        Attached::Empty(Flavour::Raw),
        Attached::Irqlab(Flavour::Raw),
        Attached::Ftrace,
        Attached::Bpftrace,
        Attached::Perf,
    ];

    #[must_use]
    pub fn label(self) -> String {
        match self {
            Attached::Nothing => "nothing".to_owned(),
            Attached::Empty(flavour) => format!("empty {}", flavour.label()),
            Attached::Clocks(flavour) => format!("two clocks {}", flavour.label()),
            Attached::Irqlab(flavour) => format!("irqlab {}", flavour.label()),
            Attached::Ftrace => "ftrace".to_owned(),
            Attached::Bpftrace => "bpftrace".to_owned(),
            Attached::Perf => "perf record".to_owned(),
        }
    }

    #[must_use]
    pub fn method(self, cpu: u32) -> String {
        match self {
            Attached::Nothing => "the bare loop".to_owned(),
            Attached::Empty(_) => "programs that return at once".to_owned(),
            Attached::Clocks(_) => "programs that read the clock and return".to_owned(),
            Attached::Irqlab(_) => {
                "open a span at sys_enter, close and count it at sys_exit".into()
            }
            Attached::Ftrace => {
                "events raw_syscalls/sys_enter and sys_exit into an instance's buffer".to_owned()
            }
            Attached::Bpftrace => Tool::Bpftrace.command_line(cpu),
            Attached::Perf => format!(
                "{}: a lower bound, because samples that it loses cost less, and their number is not known",
                Tool::Perf.command_line(cpu)
            ),
        }
    }
}

/// The figures of one tool.
#[derive(Clone, Debug)]
pub struct Cost {
    pub attached: Attached,
    /// Time of a system call in each round, ns.
    pub call_ns: Vec<f64>,
    /// In each round: time of a system call minus its time in the bare loop, ns.
    pub added_ns: Vec<f64>,
    /// In each round: added time divided by the added time of the empty tp_btf pair.
    pub ratio: Vec<f64>,
    /// Number of spans that the tool counted on the loop's CPU, and number of system calls that irqlab's loops made there
    /// meanwhile. For bpftrace both include the check that found it active. `None` if the tool does not count.
    pub counted: Option<(u64, u64)>,
}

/// The costs of all tools.
#[derive(Clone, Debug, Default)]
pub struct Overhead {
    /// The costs of each tool that could be measured.
    pub costs: Vec<Cost>,
    /// Tools that could not be measured: name, reason, remedy.
    pub absent: Vec<(String, String, Option<String>)>,
    /// Events that the kernel dropped because a program of irqlab was running.
    pub missed: u64,
    /// Whether the user stopped the comparison early.
    pub interrupted: bool,
}

impl Overhead {
    /// The figures of one tool.
    #[must_use]
    pub fn cost(&self, attached: Attached) -> Option<&Cost> {
        self.costs.iter().find(|cost| cost.attached == attached)
    }
}

/// The state of the comparison.
struct Bench<'a> {
    settings: &'a OverheadSettings,
    /// irqlab's programs, loaded for each way to attach them.
    probes: Vec<(Flavour, Probes)>,
    /// `None` if trace events are unavailable.
    tracefs: Option<Tracefs>,
    /// Time of a system call without tools at the start of the round, ns.
    bare_call_ns: f64,
}

/// Measures all tools. Calls `progress` before each round.
///
/// Fails with [`BenchError::NothingMeasurable`] if BPF programs cannot be loaded here.
pub fn measure(
    settings: &OverheadSettings,
    stop: &Stop,
    progress: &mut dyn FnMut(u32),
) -> Result<Overhead, BenchError> {
    let mut result = Overhead::default();
    let mut bench = Bench { settings, probes: Vec::new(), tracefs: None, bare_call_ns: 0.0 };
    bench.load(&mut result)?;
    let mut present: Vec<Attached> = Attached::ALL
        .into_iter()
        .filter(|attached| match attached {
            Attached::Empty(flavour) | Attached::Clocks(flavour) | Attached::Irqlab(flavour) => {
                bench.probes_of(*flavour).is_ok()
            }
            Attached::Ftrace => bench.tracefs.is_some(),
            _ => true,
        })
        .collect();
    for &attached in &present {
        let (call_ns, added_ns, ratio) = (Vec::new(), Vec::new(), Vec::new());
        result.costs.push(Cost { attached, call_ns, added_ns, ratio, counted: None });
    }
    bench.run_loops()?; // Warms up caches and frequency.
    for round in 0..settings.rounds {
        if stop.is_requested() {
            result.interrupted = true;
            break;
        }
        progress(round);
        bench.round(round, &mut present, &mut result)?;
    }
    for (_, probes) in &bench.probes {
        result.missed += probes.misses()?;
    }
    Ok(result)
}

impl Bench<'_> {
    /// Loads irqlab's programs and finds tracefs. Adds unavailable ones to `result`. Fails without raw tracepoints.
    fn load(&mut self, result: &mut Overhead) -> Result<(), BenchError> {
        let rows = RowLayout::same(&[self.settings.cpu], 2);
        let spec = |flavour| LoadSpec {
            flavour,
            config: Config { times_exits: 1, cookies: has_cookies().into(), ..Config::default() },
            maps: Maps::New(&rows),
            programs: &[
                "empty_at_entry",
                "empty_at_exit",
                "clock_at_entry",
                "clock_at_exit",
                "syscall_in",
                "syscall_out",
            ],
        };
        self.probes.push((Flavour::Raw, Probes::load(&spec(Flavour::Raw))?));
        match Probes::load(&spec(Flavour::Btf)) {
            Ok(probes) => self.probes.push((Flavour::Btf, probes)),
            Err(error) => result.absent.push(("tp_btf".to_owned(), error.to_string(), None)),
        }
        match Tracefs::find() {
            Ok(tracefs) => self.tracefs = Some(tracefs),
            Err(error) => add_absent_tool(result, Attached::Ftrace, error)?,
        }
        Ok(())
    }

    fn probes_of(&self, flavour: Flavour) -> Result<&Probes, BenchError> {
        let loaded = self.probes.iter().find(|(loaded_flavour, _)| *loaded_flavour == flavour);
        let not_loaded = || failed(flavour.label(), "these programs are not loaded");
        loaded.map(|(_, probes)| probes).ok_or_else(not_loaded)
    }

    /// Measures all tools once. Removes tools that do not work here from `present` and from the result.
    fn round(
        &mut self,
        round: u32,
        present: &mut Vec<Attached>,
        result: &mut Overhead,
    ) -> Result<(), BenchError> {
        let mut order = present.clone();
        order.rotate_left(round as usize % present.len());
        let mut times: Vec<(Attached, f64)> = Vec::new();
        self.bare_call_ns = self.run_loops()?;
        for attached in order {
            match self.measure_tool(attached, result) {
                Ok(time) => times.push((attached, time)),
                Err(error) => {
                    add_absent_tool(result, attached, error)?;
                    present.retain(|tool| *tool != attached);
                    result.costs.retain(|cost| cost.attached != attached);
                }
            }
        }
        let time_of = |attached| {
            times.iter().find(|(timed_tool, _)| *timed_tool == attached).map(|(_, time)| *time)
        };
        let bare = time_of(Attached::Nothing).unwrap_or(self.bare_call_ns);
        let empty = time_of(Attached::Empty(Flavour::Btf));
        for cost in &mut result.costs {
            let Some(time) = time_of(cost.attached) else { continue };
            cost.call_ns.push(time);
            cost.added_ns.push(time - bare);
            cost.ratio.extend(empty.map(|empty| (time - bare) / (empty - bare)));
        }
        Ok(())
    }

    /// Attaches a tool, times the loops, and detaches the tool. Returns ns per call, and adds the tool's own count to
    /// the result.
    fn measure_tool(&self, attached: Attached, result: &mut Overhead) -> Result<f64, BenchError> {
        let cpu = self.settings.cpu;
        let calls = u64::from(self.settings.calls) * u64::from(self.settings.loops);
        let mut count = |spans: u64, calls: u64| {
            if let Some(cost) = result.costs.iter_mut().find(|cost| cost.attached == attached) {
                let (spans_before, calls_before) = cost.counted.unwrap_or_default();
                cost.counted = Some((spans_before + spans, calls_before + calls));
            }
        };
        match attached {
            Attached::Nothing => self.run_loops(),
            Attached::Empty(flavour) => {
                let _links = self.link(flavour, ["empty_at_exit", "empty_at_entry"])?;
                self.run_loops()
            }
            Attached::Clocks(flavour) => {
                let _links = self.link(flavour, ["clock_at_exit", "clock_at_entry"])?;
                self.run_loops()
            }
            Attached::Irqlab(flavour) => {
                let probes = self.probes_of(flavour)?;
                let links = self.link(flavour, ["syscall_out", "syscall_in"])?;
                probes.clear()?;
                probes.open_gate(cpu)?;
                let time = self.run_loops();
                probes.close_gate(cpu)?;
                drop(links);
                count(spans_of(probes, cpu)?, calls);
                time
            }
            Attached::Ftrace => {
                let tracefs =
                    self.tracefs.as_ref().ok_or_else(|| failed("ftrace", "no tracefs"))?;
                let instance = Instance::create(tracefs, 1024)?;
                instance.only_cpu(cpu)?;
                instance.set_event("raw_syscalls/sys_exit", true)?;
                instance.set_event("raw_syscalls/sys_enter", true)?;
                self.run_loops()
            }
            Attached::Bpftrace => {
                let peer = Peer::start(Tool::Bpftrace, cpu, self.bare_call_ns)?;
                let time = self.run_loops();
                count(spans_in_histogram(&peer.stop()?), calls + PROBING_CALLS_SEEN);
                time
            }
            Attached::Perf => {
                let peer = Peer::start(Tool::Perf, cpu, self.bare_call_ns)?;
                let time = self.run_loops();
                peer.stop()?;
                time
            }
        }
    }

    /// Attaches two programs, in this order.
    fn link(
        &self,
        flavour: Flavour,
        programs: [&str; 2],
    ) -> Result<[AttachedProgram; 2], BenchError> {
        let probes = self.probes_of(flavour)?;
        Ok([probes.attach_guarded(programs[0])?, probes.attach_guarded(programs[1])?])
    }

    /// The median time of the loops, ns per call.
    fn run_loops(&self) -> Result<f64, BenchError> {
        let OverheadSettings { cpu, loops, calls, .. } = *self.settings;
        let times: std::io::Result<Vec<f64>> =
            (0..loops).map(|_| ns_per_call(cpu, calls)).collect();
        let times = times.map_err(|error| failed(&format!("the loop on CPU {cpu}"), error))?;
        median(times).ok_or_else(|| failed("the system call loop", "no loops were asked for"))
    }
}

/// Number of spans that irqlab's programs counted on `cpu`.
fn spans_of(probes: &Probes, cpu: u32) -> Result<u64, BenchError> {
    let rows = probes.rows()?;
    let row = rows.iter().find(|row| row.cpu == cpu && row.key == KEY_BENCH);
    Ok(row.map_or(0, |row| row.count))
}

/// Adds an unavailable tool to the result. Any other error is returned.
fn add_absent_tool(
    result: &mut Overhead,
    attached: Attached,
    error: BenchError,
) -> Result<(), BenchError> {
    match error {
        BenchError::Unavailable { reason, remedy } => {
            result.absent.push((attached.label(), reason, remedy));
            Ok(())
        }
        other => Err(other),
    }
}
