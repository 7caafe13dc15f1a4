//! Measures the windows with and without trace. The order in which probes and trace events are attached is the method
//! itself, and must not change. `mod.rs` describes the method, names the trace instances G, H and I, and alternates the
//! two kinds of windows.

use std::collections::{BTreeMap, HashSet};
use std::thread;
use std::time::Duration;

use lab::experiment::BenchError;

use super::buffer::{EventTypes, take_events};
use super::matching::matched;
use super::{LineSums, TraceSums};
use crate::bpf::layout::{Config, CpuOverheads, CpuState, KEY_IRQ, Row};
use crate::bpf::{Attached, CountedRow, Flavour, LoadSpec, Maps, Probes, RowLayout, has_cookies};
use crate::host::{Root, namespaces};
use crate::probe_overhead::WarmOverhead;
use crate::selfbench::tracefs::{Instance, Tracefs};
use crate::window::{WindowEdge, set_all_windows};

/// Buffer of an instance for each CPU. It has room for about 70,000 interrupts.
const BUFFER_KIB: u32 = 4 << 10;
/// Rows of a CPU, for device interrupts only.
const ROWS: u32 = 64;
/// irqlab's probes, in the order of attachment. The exit comes first: no entry is then counted without its exit.
const PROBES: [&str; 2] = ["irq_handler_out", "irq_handler_in"];
const ENTRY: &str = "irq/irq_handler_entry";
const EXIT: &str = "irq/irq_handler_exit";

/// The loaded probes and the trace instances.
pub(super) struct Windows<'a> {
    cpus: &'a [u32],
    length: Duration,
    probes: Probes,
    /// The instances G, H and I.
    instances: [Instance; 3],
    types: EventTypes,
    /// The overhead from which the probes start to learn.
    overheads: CpuOverheads,
}

/// irqlab's counts after a window.
struct Counted {
    states: Vec<CpuState>,
    rows: Vec<CountedRow>,
}

impl<'a> Windows<'a> {
    pub fn new(
        cpus: &'a [u32],
        length: Duration,
        flavour: Flavour,
        calibration: &WarmOverhead,
    ) -> Result<Self, BenchError> {
        let config = Config { times_exits: 1, cookies: has_cookies().into(), ..Config::default() };
        let rows = RowLayout::same(cpus, ROWS);
        let maps = Maps::New(&rows);
        let probes = Probes::load(&LoadSpec { flavour, config, maps, programs: &PROBES })?;
        let tracefs = Tracefs::find()?;
        let instance = || Instance::create(&tracefs, BUFFER_KIB);
        let instances = [instance()?, instance()?, instance()?];
        let types = EventTypes::read(&instances[0])?;
        Ok(Windows { cpus, length, probes, instances, types, overheads: calibration.overheads() })
    }

    /// Measures a window with irqlab's probes and all three instances. Returns the sums by IRQ line.
    pub fn with_trace(&self) -> Result<BTreeMap<u32, LineSums>, BenchError> {
        let [outer, first, second] = &self.instances;
        for &cpu in self.cpus {
            take_events(outer, self.types, cpu)?; // Discards the events of earlier windows.
        }
        outer.set_event(ENTRY, true)?;
        first.set_event(EXIT, true)?;
        second.set_event(EXIT, true)?;
        let links = self.link(PROBES)?;
        outer.set_event(EXIT, true)?;
        first.set_event(ENTRY, true)?;
        second.set_event(ENTRY, true)?;
        let counted = self.window();
        for instance in &self.instances {
            instance.set_event(ENTRY, false)?;
            instance.set_event(EXIT, false)?;
        }
        drop(links);
        let counted = counted?;
        let mut lines = BTreeMap::new();
        for row in &counted.rows {
            add_row(row, &mut lines);
        }
        self.add_trace(&counted.states, &mut lines)?;
        Ok(lines)
    }

    /// Measures a window without any trace, and adds it to `lines`.
    pub fn without_trace(&self, lines: &mut BTreeMap<u32, LineSums>) -> Result<(), BenchError> {
        let _links = self.link(PROBES)?;
        for row in self.window()?.rows {
            let Some(irq) = row.key.checked_sub(KEY_IRQ) else { continue };
            let line = lines.entry(irq).or_default();
            line.alone_counted += row.count;
            line.alone_span += row.sum;
        }
        Ok(())
    }

    /// Number of events that irqlab lost in all windows so far.
    pub fn lost(&self) -> Result<u64, BenchError> {
        Ok(self.probes.misses()?)
    }

    /// Attaches two programs in this order, after the programs that are attached already.
    fn link(&self, programs: [&str; 2]) -> Result<[Attached; 2], BenchError> {
        let link = |program| self.probes.attach_guarded(program);
        Ok([link(programs[0])?, link(programs[1])?])
    }

    /// Runs a window with the attached programs.
    fn window(&self) -> Result<Counted, BenchError> {
        self.probes.clear_for(self.overheads)?;
        set_all_windows(&self.probes, self.cpus, WindowEdge::Open)?;
        thread::sleep(self.length);
        set_all_windows(&self.probes, self.cpus, WindowEdge::Close)?;
        let states = self.probes.states()?;
        Ok(Counted { states, rows: self.probes.rows()? })
    }

    /// Adds the trace of the window. Handler runs in threads of PID 1 are not added to a line if irqlab did not count
    /// them: if the counts are equal without these runs.
    fn add_trace(
        &self,
        states: &[CpuState],
        lines: &mut BTreeMap<u32, LineSums>,
    ) -> Result<(), BenchError> {
        let threads_of_init = threads_of_init();
        let mut traced: BTreeMap<u32, [TraceSums; 2]> = BTreeMap::new();
        for &cpu in self.cpus {
            let take = |instance| take_events(instance, self.types, cpu);
            let [outer, first, second] = &self.instances;
            let (outer, first, second) = (take(outer)?, take(first)?, take(second)?);
            let Some(state) = states.get(cpu as usize) else { continue };
            for run in matched([&outer, &first, &second]) {
                if run.is_within(state.armed_ns, state.disarmed_ns) {
                    let is_in_init = threads_of_init.contains(&run.thread);
                    run.add_to(&mut traced.entry(run.irq).or_default()[usize::from(is_in_init)]);
                }
            }
        }
        for (irq, [in_others, in_init]) in traced {
            let line = lines.entry(irq).or_default();
            line.trace = in_others;
            if line.counted == in_others.count {
                line.undelivered = in_init.count;
            } else {
                line.trace.add(&in_init);
            }
        }
        Ok(())
    }
}

/// Adds a row of irqlab's maps, which has the interrupts of one CPU, to the sums of its IRQ line. Leaves out rows of
/// other contexts.
fn add_row(row: &Row, lines: &mut BTreeMap<u32, LineSums>) {
    let Some(irq) = row.key.checked_sub(KEY_IRQ) else { return };
    let line = lines.entry(irq).or_default();
    if line.name.is_empty() {
        let end = row.name.iter().position(|&byte| byte == 0).unwrap_or(row.name.len());
        line.name = String::from_utf8_lossy(&row.name[..end]).into_owned();
    }
    line.counted += row.count;
    line.span += row.sum;
    line.probe_overhead += row.overhead_ns;
    line.clamped += row.clamped;
}

/// The present threads of PID 1, by their numbers in traces. Empty in a PID namespace, whose process 1 is another one.
fn threads_of_init() -> HashSet<u32> {
    if namespaces(&Root::default()).pid_is_initial != Some(true) {
        return HashSet::new();
    }
    let entries = std::fs::read_dir("/proc/1/task").into_iter().flatten().flatten();
    entries.filter_map(|entry| entry.file_name().to_str()?.parse().ok()).collect()
}
