//! The kernel's events as a stream of marks: entries and exits of interrupt contexts, task switches and page faults, on
//! the CPUs where a measuring loop runs. `noise` attributes each gap of its loop to the marks in it, and `footprint`
//! watches its loop with them.
//!
//! [`MarkProbes`] loads and attaches `bpf/noise.bpf.c`, and reads its ring buffer. The thread that created
//! it must take the marks often enough; otherwise the ring fills and marks are lost
//! ([`MarkProbes::lost`]). `decode` decodes the records.

mod decode;

use std::cell::RefCell;
use std::rc::Rc;
use std::sync::Arc;

use lab::noise::sent::OtherSenders;
use lab::noise::{ContextName, Mark};
use lab::wakeup::Waker;
use libbpf_rs::{Link, Map, MapCore, MapFlags, Object, RingBuffer, RingBufferBuilder};
use zerocopy::IntoBytes;

use self::decode::Decoder;
use crate::bpf::kernel_counters::offsets_in_percpu_area;
use crate::bpf::layout::{
    MARK_SENDERS_MAX, NoiseConfig, OFFSET_PREEMPT, OFFSET_RUNQUEUES, WOKEN_TASKS_MAX,
};
use crate::bpf::object::{
    attach_all, failure, load_failure, map_of, open_with_btf, running_release,
};
use crate::bpf::programs::{Chosen, choose, choose_senders};
use crate::bpf::{BpfError, CallerProgram, Flavour};
use crate::clock::KernelClock;
use crate::host::Root;

static OBJECT: &[u8] = include_bytes!(concat!(env!("OUT_DIR"), "/noise.o"));

/// Size of the ring buffer of marks, which all CPUs share. The kernel requires a power of two.
const RING_BYTES: u32 = 16 << 20;
/// Name of the program at task switches.
const SWITCH_PROGRAM: &str = "switched";
/// Name of the program at wake-ups of measured threads.
const WAKE_PROGRAM: &str = "waking";
/// Name of the program at first wake-ups of new tasks. Only chains of wakers need it.
const FIRST_WAKE_PROGRAM: &str = "waking_new";
/// Why there are no chains of wakers.
const NO_PREEMPTION_COUNT: &str = "the kernel's type information does not say where the kernel counts interrupts, so an \
                                   interrupt that wakes cannot be told from a task";

/// Why there are no chains of wakers in another scope.
const NOT_ASKED: &str = "--no-wakers leaves them out";

/// The events that have marks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Scope {
    /// Contexts, task switches and page faults.
    Interruptions,
    /// Also wake-ups of the measured threads.
    WakeUps,
    /// Also the chain of wakers of each wake-up.
    WakersOfWakeUps,
}

/// Whether marks name the senders of interrupts from other CPUs. The programs for it cost time on the CPUs that
/// send, and in the interrupts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Senders {
    Named,
    NotNamed,
}

/// The senders that no event shows, and the reason.
const UNSEEN_SENDER: (&str, &str) =
    ("the senders of irq_work", "the kernel has no event where queued irq_work runs");

/// Marks that were read from the ring and not yet taken.
#[derive(Default)]
struct Inbox {
    decoder: Decoder,
    /// CPU and mark, in the order of the ring.
    marks: Vec<(u32, Mark)>,
}

/// The loaded and attached programs, and the marks that they made.
pub struct MarkProbes {
    /// Tells a thread the number that it has in marks.
    caller: Arc<CallerProgram>,
    kernel_clock: KernelClock,
    ring: RingBuffer<'static>,
    inbox: Rc<RefCell<Inbox>>,
    _links: Vec<Link>,
    object: Object,
    /// Contexts that these probes cannot see, each with the reason.
    pub absent: Vec<(String, String)>,
    /// Senders of interrupts that are not named although they are asked for, each with the reason.
    pub absent_senders: Vec<(String, String)>,
    /// Why wake-ups have no chains of wakers. `None` if they have.
    pub why_no_chains: Option<&'static str>,
}

impl MarkProbes {
    /// Loads and attaches the programs. A CPU has no marks before its loop is announced ([`MarkProbes::announce`]).
    ///
    /// Fails with [`BpfError::NotPermitted`] without the rights; [`BpfError::Failed`] on a kernel
    /// without type information, or with libbpf's message.
    pub fn load() -> Result<Self, BpfError> {
        Self::load_for(Scope::Interruptions, Senders::NotNamed)
    }

    /// Like [`MarkProbes::load`], for a choice of events.
    pub fn load_for(scope: Scope, senders: Senders) -> Result<Self, BpfError> {
        let mut open = open_with_btf("irqlab_noise", OBJECT)?;
        let cpus = libbpf_rs::num_possible_cpus()
            .map_err(|error| failure("counting the possible CPUs", &error))?;
        let percpu_offsets = offsets_in_percpu_area();
        let has_count =
            [OFFSET_PREEMPT, OFFSET_RUNQUEUES].iter().all(|place| percpu_offsets[*place] >= 0);
        let follows_wakers = scope == Scope::WakersOfWakeUps && has_count;
        let sender_programs = match senders {
            Senders::Named => choose_senders(Flavour::Btf, &percpu_offsets, cpus),
            Senders::NotNamed => Chosen::default(),
        };
        let follows_senders = !sender_programs.programs.is_empty();
        let config = NoiseConfig {
            percpu_offsets,
            follows_wakers: follows_wakers.into(),
            follows_senders: follows_senders.into(),
        };
        for mut map in open.maps_mut() {
            let entries = match map.name().to_string_lossy().as_ref() {
                "marks" => RING_BYTES,
                "loops" | "sleepers" => cpus as u32,
                "wakings" if follows_wakers => WOKEN_TASKS_MAX,
                "sender_numbers" if follows_senders => MARK_SENDERS_MAX,
                // Their other sizes are in the headers, which handlers.bpf.c shares.
                "queued_calls" | "sent_reschedules" | "unseen_calls" if !follows_senders => 1,
                name if name.ends_with(".rodata.config") => {
                    let set = map.set_initial_value(config.as_bytes());
                    set.map_err(|error| failure("setting the programs' constants", &error))?;
                    continue;
                }
                _ => continue,
            };
            map.set_max_entries(entries).map_err(|error| failure("sizing a map", &error))?;
        }
        let chosen = choose(Flavour::Btf, true);
        // Task switches always have marks, also without threads of IRQ lines.
        let is_wanted = |name: &str| {
            name == SWITCH_PROGRAM
                || (name == WAKE_PROGRAM && scope != Scope::Interruptions)
                || (name == FIRST_WAKE_PROGRAM && follows_wakers)
                || chosen.programs.iter().any(|program| program == name)
                || sender_programs.programs.iter().any(|program| program == name)
        };
        for mut program in open.progs_mut() {
            let autoload = is_wanted(&program.name().to_string_lossy());
            program.set_autoload(autoload);
        }
        let object = open.load().map_err(|error| load_failure(&error, running_release()))?;
        let links = attach_all(&object)?;
        let inbox = Rc::new(RefCell::new(Inbox::default()));
        let ring = ring_reader(&object, Rc::clone(&inbox))?;
        // These programs make no marks of NAPI polls, so their absence is no loss.
        let absent = chosen.absent.into_iter().filter(|(context, _)| context != "napi").collect();
        let mut absent_senders = sender_programs.absent;
        if follows_senders {
            absent_senders.push((UNSEEN_SENDER.0.to_owned(), UNSEEN_SENDER.1.to_owned()));
        }
        let caller = Arc::new(CallerProgram::load()?);
        let kernel_clock = KernelClock::find(&Root::default(), &caller)?;
        Ok(MarkProbes {
            caller,
            kernel_clock,
            ring,
            inbox,
            _links: links,
            object,
            absent,
            absent_senders,
            why_no_chains: match scope {
                _ if follows_wakers => None,
                Scope::WakersOfWakeUps => Some(NO_PREEMPTION_COUNT),
                Scope::WakeUps | Scope::Interruptions => Some(NOT_ASKED),
            },
        })
    }

    fn map(&self, name: &str) -> Result<Map<'_>, BpfError> {
        map_of(&self.object, name)
    }

    /// The program that tells a loop's thread its number in marks ([`loop_thread`]).
    #[must_use]
    pub fn caller(&self) -> Arc<CallerProgram> {
        Arc::clone(&self.caller)
    }

    /// The clock of the time stamps in all marks.
    #[must_use]
    pub fn kernel_clock(&self) -> KernelClock {
        self.kernel_clock
    }

    /// Announces the loop of a CPU by the number of its thread ([`loop_thread`]). From now on this CPU's events have
    /// marks. Thread 0 ends that.
    ///
    /// Fails if the kernel refuses.
    pub fn announce(&self, cpu: u32, thread: u32) -> Result<(), BpfError> {
        // A reschedule interrupt of an earlier loop, whose entry had no mark, must not be joined to one of this loop.
        let _ = self.map("sent_reschedules")?.delete(cpu.as_bytes());
        self.map("loops")?
            .update(cpu.as_bytes(), thread.as_bytes(), MapFlags::ANY)
            .map_err(|error| failure("announcing a loop", &error))
    }

    /// Announces a thread that sleeps on a CPU: its wake-ups have marks, too. Not with [`Scope::Interruptions`].
    ///
    /// Fails if the kernel refuses.
    pub fn announce_sleeper(&self, cpu: u32, thread: u32) -> Result<(), BpfError> {
        self.map("sleepers")?
            .update(thread.as_bytes(), cpu.as_bytes(), MapFlags::ANY)
            .map_err(|error| failure("announcing a thread", &error))
    }

    /// Ends the marks of a thread that was announced with [`MarkProbes::announce_sleeper`].
    ///
    /// Fails if the kernel refuses.
    pub fn forget_sleeper(&self, thread: u32) -> Result<(), BpfError> {
        self.map("sleepers")?
            .delete(thread.as_bytes())
            .map_err(|error| failure("forgetting a thread", &error))
    }

    /// Takes the marks since the last call, each with its CPU. Marks of a CPU may be out of order: an interrupt's
    /// marks may come before a mark that the interrupt delayed.
    ///
    /// Fails if the kernel refuses.
    pub fn take(&self) -> Result<Vec<(u32, Mark)>, BpfError> {
        self.ring.consume().map_err(|error| failure("reading marks", &error))?;
        Ok(std::mem::take(&mut self.inbox.borrow_mut().marks))
    }

    /// Takes the chains of wakers of the marks that [`MarkProbes::take`] has taken, in the order of time, each with the CPU
    /// of the thread that was woken. Needs [`Scope::WakersOfWakeUps`].
    #[must_use]
    pub fn take_chains(&self) -> Vec<(u32, Vec<Waker>)> {
        std::mem::take(&mut self.inbox.borrow_mut().decoder.chains)
    }

    /// Number of marks dropped so far because the ring was full, and of records that could not be decoded.
    ///
    /// Fails if the kernel refuses.
    pub fn lost(&self) -> Result<u64, BpfError> {
        let values = self
            .map("lost")?
            .lookup_percpu(0_u32.as_bytes(), MapFlags::ANY)
            .map_err(|error| failure("reading lost", &error))?
            .unwrap_or_default();
        let number =
            |bytes: &Vec<u8>| bytes.first_chunk().map_or(0, |word| u64::from_ne_bytes(*word));
        Ok(values.iter().map(number).sum::<u64>() + self.inbox.borrow().decoder.malformed)
    }

    /// Returns the number that each of these interrupt lines has in marks. A line without a mark gets a number.
    #[must_use]
    pub fn contexts_of_irqs(&self, irqs: &[u32]) -> Vec<u32> {
        let decoder = &mut self.inbox.borrow_mut().decoder;
        irqs.iter().map(|irq| decoder.context_of_irq(*irq)).collect()
    }

    /// The names of all contexts and tasks in the marks so far. The index is the number in marks.
    #[must_use]
    pub fn names(&self, root: &Root) -> Vec<ContextName> {
        self.inbox.borrow().decoder.names(root)
    }

    /// Number of switches to threads of process 1 so far. While such a thread runs, the kernel may call no BPF
    /// program, so marks may be missing.
    #[must_use]
    pub fn switches_to_init(&self) -> u64 {
        self.inbox.borrow().decoder.switches_to_init
    }

    /// The interrupts so far whose senders share a cause.
    #[must_use]
    pub fn other_senders(&self) -> OtherSenders {
        self.inbox.borrow().decoder.other_senders
    }
}

/// The number of the calling thread in marks. Without `caller` there are no marks. Then returns the number in this
/// process's PID namespace, which only serves to name the thread.
///
/// Fails if the kernel refuses.
pub fn loop_thread(caller: Option<&CallerProgram>) -> Result<u32, BpfError> {
    match caller {
        Some(program) => Ok(program.see()?.thread),
        None => Ok(rustix::thread::gettid().as_raw_nonzero().get().cast_unsigned()),
    }
}

/// Opens the ring buffer. Its reader decodes each record into `inbox`.
fn ring_reader(
    object: &Object,
    inbox: Rc<RefCell<Inbox>>,
) -> Result<RingBuffer<'static>, BpfError> {
    let map = map_of(object, "marks")?;
    let mut builder = RingBufferBuilder::new();
    let read = move |bytes: &[u8]| {
        let Inbox { decoder, marks } = &mut *inbox.borrow_mut();
        decoder.read(bytes, |cpu, mark| marks.push((cpu, mark)));
        0
    };
    builder.add(&map, read).map_err(|error| failure("mapping the marks", &error))?;
    builder.build().map_err(|error| failure("mapping the marks", &error))
}
