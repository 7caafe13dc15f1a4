//! Decodes the records of `bpf/noise.bpf.c` (format: `bpf/noise.h`) into marks, and names the contexts and tasks in
//! them. The records come from the kernel's ring buffer; invalid ones are counted, never an error.

use std::cell::RefCell;
use std::collections::{BTreeMap, BTreeSet};

use attribution::context::{SOFTIRQS, VECTORS};
use attribution::key::ContextKey;
use attribution::{Context, ContextKind};
use lab::noise::sent::{COMBINATIONS_MAX, OtherSenders, SENDERS_MAX, reason};
use lab::noise::{ContextName, IDLE, InterruptSender, Mark, Processes, SentInterrupt, What};
use lab::services::syscall_name;
use lab::wakeup::Waker;
use zerocopy::FromBytes;

use crate::bpf::layout::{
    KEY_IRQ, KEY_NONE, MARK_ENTER, MARK_FAULT, MARK_LEAVE, MARK_NMI, MARK_SENDER, MARK_SENDERS_MAX,
    MARK_SENDERS_OTHER, MARK_SWITCH_BACK, MARK_SWITCH_TO, MARK_WAKE, MARK_WAKER, NoiseMark,
    NoiseSender as RawSender, SENDER_HARDIRQ, SENDER_SOFTIRQ, SENDER_UNKNOWN, SERVICE_SYSCALL_32,
    Waker as RawWaker,
};
use crate::host::{KernelFunctions, Root, irq_affinities};

/// Largest number of contexts and tasks that get separate numbers. All later ones share the number of [`OTHERS`].
const SOURCES_MAX: usize = 400;
/// Name of the contexts and tasks that share a number, as if they were one task.
const OTHERS: &str = "others";

/// The context (by its key) or the task (by its name) that has a number in marks.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Source {
    Context(u32),
    Task(String),
    /// An interrupt with this key from a known sender.
    Sent(u32, Sender),
    /// An interrupt with this key from a sender beyond `SENDERS_MAX`.
    SentByOthers(u32),
}

/// A sender of interrupts. All tasks of a name that do the same are one sender.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Sender {
    /// The key of the interrupt or softirq that sends; `KEY_NONE`: the task does.
    context: u32,
    /// Name of the task; empty in an interrupt.
    task: String,
    /// Address of the called function; 0: none.
    function: u64,
    /// Position of the task's system call.
    system_call: Option<u32>,
}

/// The processes and CPUs of a sender.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
struct SenderPlaces {
    processes: BTreeSet<u32>,
    cpus: BTreeSet<u32>,
}

// The limit that a warning states is that of the BPF program.
const _: () = assert!(MARK_SENDERS_MAX == COMBINATIONS_MAX);

/// Largest number of processes that are kept of a sender: two are several.
const PROCESSES_MAX: usize = 2;

/// Decodes records, and numbers the contexts and tasks in order of appearance.
#[derive(Default)]
pub struct Decoder {
    numbers: BTreeMap<Source, u32>,
    /// Number of records that are too short or of an unknown kind.
    pub malformed: u64,
    /// Number of switches to threads of process 1. While such a thread runs, the kernel may call no BPF program.
    pub switches_to_init: u64,
    /// The interrupts whose senders share a cause.
    pub other_senders: OtherSenders,
    /// The senders of interrupts by the number in records, each with the process and the CPU.
    senders: BTreeMap<u32, (Sender, u32, u32)>,
    /// Processes and CPUs of the senders in marks.
    places: BTreeMap<(u32, Sender), SenderPlaces>,
    /// The sender of the open interrupt with a key on a CPU, as a number in marks.
    open: BTreeMap<(u32, u32), u32>,
    /// The names of the functions that senders call, and which addresses were looked up.
    functions: RefCell<(BTreeSet<u64>, KernelFunctions)>,
    /// Chains of wakers that were read and not yet taken, in the order of the ring, each with the CPU of
    /// the thread that was woken.
    pub chains: Vec<(u32, Vec<Waker>)>,
}

impl Decoder {
    /// Decodes a record, and passes its CPU and its marks to `add_mark`. A record has one mark, or two
    /// for an NMI: its entry and its exit.
    pub fn read(&mut self, bytes: &[u8], mut add_mark: impl FnMut(u32, Mark)) {
        let Ok((raw, rest)) = NoiseMark::read_from_prefix(bytes) else {
            self.malformed += 1;
            return;
        };
        let cpu = u32::from(raw.cpu);
        let mark_at = |at_ns, what| Mark { at_ns, what };
        match raw.what {
            MARK_ENTER => {
                let number = match u32::try_from(raw.value) {
                    Ok(0) | Err(_) => self.context(raw.key),
                    Ok(sender) => self.sent(cpu, raw.key, sender),
                };
                add_mark(cpu, mark_at(raw.at_ns, What::Enter(number)));
            }
            MARK_LEAVE => {
                let sent = self.open.remove(&(cpu, raw.key));
                let number = sent.unwrap_or_else(|| self.context(raw.key));
                add_mark(cpu, mark_at(raw.at_ns, What::Leave(number)));
            }
            MARK_NMI => {
                let source = self.context(raw.key);
                // A negative duration, from a clock that went backwards, counts as 0.
                let spent_ns = i64::try_from(raw.value).unwrap_or(0) as u64;
                add_mark(cpu, mark_at(raw.at_ns.saturating_sub(spent_ns), What::Enter(source)));
                add_mark(cpu, mark_at(raw.at_ns, What::Leave(source)));
            }
            MARK_FAULT => add_mark(cpu, mark_at(raw.at_ns, What::Fault)),
            MARK_WAKE => {
                add_mark(cpu, mark_at(raw.at_ns, What::Wake(u32::try_from(raw.value).unwrap_or(0))))
            }
            MARK_SWITCH_BACK => add_mark(cpu, mark_at(raw.at_ns, What::SwitchBack)),
            MARK_SWITCH_TO => {
                self.switches_to_init += u64::from(raw.value == 1);
                let task = self.task(raw.key, rest);
                add_mark(cpu, mark_at(raw.at_ns, What::SwitchTo(task)));
            }
            MARK_WAKER => self.read_waker(&raw, rest),
            MARK_SENDER => self.read_sender(raw.key, rest),
            _ => self.malformed += 1,
        }
    }

    /// Adds a step to the chain of wakers of the thread on the CPU of `mark`. A chain ends before a step that was lost, or
    /// whose time does not fit.
    fn read_waker(&mut self, mark: &NoiseMark, bytes: &[u8]) {
        let Ok((raw, _)) = RawWaker::read_from_prefix(bytes) else {
            self.malformed += 1;
            return;
        };
        let waker = Waker {
            at_ns: raw.at_ns,
            cpu: raw.cpu,
            task: self.task(raw.pid, &raw.name),
            pid: raw.pid,
            context: (raw.key != KEY_NONE).then(|| self.context(raw.key)),
        };
        let cpu = u32::from(mark.cpu);
        if mark.value == 0 {
            self.chains.push((cpu, vec![waker]));
            return;
        }
        let last_of_cpu = self.chains.iter_mut().rev().find(|(chain_cpu, _)| *chain_cpu == cpu);
        let Some((_, chain)) = last_of_cpu else { return };
        let is_next = chain.len() as u64 == mark.value && chain[0].at_ns == mark.at_ns;
        if is_next && chain.last().is_some_and(|later| waker.at_ns <= later.at_ns) {
            chain.push(waker);
        }
    }

    /// Reads who has a sender's number.
    fn read_sender(&mut self, number: u32, bytes: &[u8]) {
        let Ok((raw, _)) = RawSender::read_from_prefix(bytes) else {
            self.malformed += 1;
            return;
        };
        let is_task = raw.key.context == KEY_NONE;
        let task = if is_task { task_name(raw.process, &raw.key.task) } else { String::new() };
        let sender = Sender {
            context: raw.key.context,
            task,
            function: raw.key.function,
            system_call: raw.system_call.checked_sub(1),
        };
        self.senders.insert(number, (sender, raw.process, raw.cpu));
    }

    /// The number of an interrupt that starts on a CPU, with this key and sender. A sender whose
    /// record was lost is not known.
    fn sent(&mut self, cpu: u32, key: u32, sender: u32) -> u32 {
        if sender == MARK_SENDERS_OTHER {
            self.other_senders.beyond_combinations += 1;
            return self.open_sent(cpu, key, Source::SentByOthers(key));
        }
        let Some((sender, process, sender_cpu)) = self.senders.get(&sender).cloned() else {
            return self.context(key);
        };
        let place = (key, sender);
        let has_room = self.places.len() < SENDERS_MAX && self.numbers.len() < SOURCES_MAX;
        if !has_room && !self.places.contains_key(&place) {
            self.other_senders.beyond_names += 1;
            return self.open_sent(cpu, key, Source::SentByOthers(key));
        }
        let places = self.places.entry(place.clone()).or_default();
        places.cpus.insert(sender_cpu);
        if place.1.context == KEY_NONE && process != 0 && places.processes.len() < PROCESSES_MAX {
            places.processes.insert(process);
        }
        self.open_sent(cpu, key, Source::Sent(key, place.1))
    }

    /// Notes which interrupt is open, because the mark of its end does not name the sender.
    fn open_sent(&mut self, cpu: u32, key: u32, source: Source) -> u32 {
        let number = self.number(source);
        self.open.insert((cpu, key), number);
        number
    }

    /// The number of a task's name: the bytes up to the first 0. `pid`: the kernel's number of the task.
    fn task(&mut self, pid: u32, name: &[u8]) -> u32 {
        self.number(Source::Task(task_name(pid, name)))
    }

    /// The number of the context with this key.
    fn context(&mut self, key: u32) -> u32 {
        self.number(Source::Context(key))
    }

    /// The number of the context of an interrupt line.
    pub fn context_of_irq(&mut self, irq: u32) -> u32 {
        self.context(KEY_IRQ.saturating_add(irq))
    }

    /// The number of a source; a new source gets the next number, or the shared one.
    fn number(&mut self, source: Source) -> u32 {
        let next = self.numbers.len();
        if let Some(number) = self.numbers.get(&source) {
            return *number;
        }
        let source = if next < SOURCES_MAX { source } else { Source::Task(OTHERS.to_owned()) };
        *self.numbers.entry(source).or_insert(next as u32)
    }

    /// The names of all contexts and tasks. The index is the number in marks.
    #[must_use]
    pub fn names(&self, root: &Root) -> Vec<ContextName> {
        let irqs = irq_affinities(root).unwrap_or_default();
        let action = |number: u32| {
            let irq = irqs.iter().find(|irq| irq.number == number);
            irq.map(|irq| irq.actions.join(",")).unwrap_or_default()
        };
        let functions = self.functions(root);
        let mut names = vec![ContextName::Task(OTHERS.to_owned()); self.numbers.len()];
        for (source, number) in &self.numbers {
            if let Some(name) = names.get_mut(*number as usize) {
                let unknown = |kind: ContextKind, name: &str| {
                    ContextName::Other(kind.label(), name.to_owned())
                };
                *name = match source {
                    Source::Context(SENDER_HARDIRQ) => {
                        unknown(ContextKind::HardIrq, "unknown interrupt")
                    }
                    Source::Context(SENDER_SOFTIRQ) => {
                        unknown(ContextKind::Softirq, "unknown softirq")
                    }
                    Source::Context(key) => ContextName::Context(context_of(*key, &action)),
                    Source::Task(task) => ContextName::Task(task.clone()),
                    Source::Sent(key, sender) => ContextName::Sent(SentInterrupt {
                        context: context_of(*key, &action),
                        sender: self.sender_name(*key, sender, &functions, &action),
                    }),
                    Source::SentByOthers(key) => ContextName::Sent(SentInterrupt {
                        context: context_of(*key, &action),
                        sender: InterruptSender::Others,
                    }),
                };
            }
        }
        names
    }

    /// The names of the functions that senders call. Reads /proc/kallsyms only if there are new ones.
    fn functions(&self, root: &Root) -> KernelFunctions {
        let mut known = self.functions.borrow_mut();
        let called = self.places.keys().map(|(_, sender)| sender.function);
        let called: BTreeSet<u64> = called.filter(|address| *address != 0).collect();
        if known.0 != called {
            *known = (called.clone(), KernelFunctions::find(root, &called));
        }
        known.1.clone()
    }

    fn sender_name(
        &self,
        key: u32,
        sender: &Sender,
        functions: &KernelFunctions,
        action: &dyn Fn(u32) -> String,
    ) -> InterruptSender {
        let name = match sender.context {
            KEY_NONE => sender.task.clone(),
            SENDER_HARDIRQ => "an interrupt".to_owned(),
            SENDER_SOFTIRQ => "a softirq".to_owned(),
            SENDER_UNKNOWN => "a task or an interrupt".to_owned(),
            context => {
                let context = ContextName::Context(context_of(context, action));
                let (kind, name) = context.kind_and_name();
                format!("{kind} {name}")
            }
        };
        let places = self.places.get(&(key, sender.clone())).cloned().unwrap_or_default();
        let processes = match places.processes.iter().collect::<Vec<_>>()[..] {
            [] => Processes::None,
            [process] => Processes::One(*process),
            [..] => Processes::Several,
        };
        let addresses = BTreeSet::from([sender.function]);
        let is_named = sender.function != 0 && functions.unnamed(&addresses) == 0;
        let function = is_named.then(|| functions.name(sender.function));
        let is_own_call = |position: &usize| *position < SERVICE_SYSCALL_32;
        let system_call = sender.system_call.map(|position| position as usize);
        let system_call = system_call.filter(is_own_call).map(syscall_name);
        let reason = reason(function.as_deref(), system_call.as_deref());
        InterruptSender::Known { name, processes, reason, cpus: places.cpus.into_iter().collect() }
    }
}

/// The name of a task: the bytes up to the first 0. No other task has the name of the idle task, whose `pid` is 0.
fn task_name(pid: u32, name: &[u8]) -> String {
    let name = name.split(|byte| *byte == 0).next().unwrap_or_default();
    match (pid, String::from_utf8_lossy(name).into_owned()) {
        (0, _) => IDLE.to_owned(),
        (_, name) if name == IDLE => format!("{name} (a program)"),
        (_, name) => name,
    }
}

/// The context with this key. `action` names the handlers of an IRQ line.
fn context_of(key: u32, action: &dyn Fn(u32) -> String) -> Context {
    let listed = |kind, number: u32, list: &[&str]| {
        let name =
            list.get(number as usize).map_or_else(|| number.to_string(), ToString::to_string);
        Context { kind, number, name }
    };
    match ContextKey::from_key(key) {
        Some(ContextKey::Irq(number)) => {
            Context { kind: ContextKind::HardIrq, number, name: action(number) }
        }
        Some(ContextKey::Nmi) => {
            Context { kind: ContextKind::Nmi, number: 0, name: "NMI".to_owned() }
        }
        Some(ContextKey::Softirq(number)) => listed(ContextKind::Softirq, number, &SOFTIRQS),
        Some(ContextKey::Vector(number)) => listed(ContextKind::Vector, number, &VECTORS),
        _ => listed(ContextKind::Vector, key, &[]),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::bpf::layout::{KEY_NMI, KEY_VECTOR};
    use proptest::prelude::*;
    use zerocopy::{FromZeros, IntoBytes};

    fn raw(what: u16, key: u32, value: u64) -> Vec<u8> {
        NoiseMark { at_ns: 1000, cpu: 1, what, key, value }.as_bytes().to_vec()
    }

    #[test]
    fn marks_have_names() {
        let mut decoder = Decoder::default();
        let mut seen = Vec::new();
        let mut switch = raw(MARK_SWITCH_TO, 77, 1);
        switch.extend(b"make\0\0\0\0\0\0\0\0\0\0\0\0");
        for bytes in
            [raw(MARK_ENTER, KEY_VECTOR, 0), raw(MARK_NMI, KEY_NMI, 300), switch, vec![1, 2, 3]]
        {
            decoder.read(&bytes, |cpu, mark| seen.push((cpu, mark)));
        }
        let whats: Vec<_> = seen.iter().map(|(_, mark)| (mark.at_ns, mark.what)).collect();
        assert_eq!(
            whats,
            [
                (1000, What::Enter(0)),
                (700, What::Enter(1)),
                (1000, What::Leave(1)),
                (1000, What::SwitchTo(2))
            ]
        );
        assert_eq!((decoder.malformed, decoder.switches_to_init), (1, 1));
        let names = decoder.names(&Root::default());
        let timer = Context { kind: ContextKind::Vector, number: 0, name: "local_timer".into() };
        assert_eq!(names[0], ContextName::Context(timer));
        assert_eq!(names[2], ContextName::Task("make".into()));
    }

    /// `woken_ns`: when the measured thread was woken. `at_ns`: when the waker of this step woke a task.
    fn raw_waker([step, woken_ns, at_ns]: [u64; 3], key: u32, (pid, name): (u32, &str)) -> Vec<u8> {
        let mark = NoiseMark { at_ns: woken_ns, cpu: 1, what: MARK_WAKER, key, value: step };
        let mut waker = RawWaker { at_ns, key, pid, cpu: 0, unused: 0, name: [0; 16] };
        waker.name[..name.len()].copy_from_slice(name.as_bytes());
        [mark.as_bytes(), waker.as_bytes()].concat()
    }

    /// Records of the second and the third chain are lost. In the fourth, a step is later than the step before it.
    #[test]
    fn steps_of_wakers_are_chains() {
        let mut decoder = Decoder::default();
        let (task, idle) = ((77, "irqlab-waker"), (0, "swapper/0"));
        for bytes in [
            raw_waker([0, 900, 900], KEY_NONE, task),
            raw_waker([1, 900, 700], KEY_VECTOR, idle),
            raw_waker([0, 1_900, 1_900], KEY_NONE, task),
            raw_waker([2, 1_900, 1_000], KEY_VECTOR, idle),
            raw_waker([1, 2_500, 1_000], KEY_VECTOR, idle),
            raw_waker([0, 2_900, 2_900], KEY_NONE, task),
            raw_waker([1, 2_900, 2_901], KEY_VECTOR, idle),
            raw_waker([0, 3_900, 3_900], SENDER_HARDIRQ, task),
        ] {
            decoder.read(&bytes, |_, _| panic!("a waker is no mark"));
        }
        let waker = Waker { at_ns: 900, cpu: 0, task: 0, pid: 77, context: None };
        let timer = Waker { at_ns: 700, cpu: 0, task: 1, pid: 0, context: Some(2) };
        assert_eq!(decoder.chains[0], (1, vec![waker, timer]));
        let lengths: Vec<usize> = decoder.chains.iter().map(|(_, chain)| chain.len()).collect();
        assert_eq!(lengths, [2, 1, 1, 1]);
        let names = decoder.names(&Root::default());
        let name = |number: Option<u32>| names[number.unwrap() as usize].kind_and_name();
        let chains = &decoder.chains;
        assert_eq!(name(chains[0].1[1].context), ("vector", "local_timer".to_owned()));
        assert_eq!(name(chains[3].1[0].context), ("irq", "unknown interrupt".to_owned()));
        decoder.read(&raw(MARK_WAKER, 0, 0), |_, _| panic!("a waker is no mark"));
        assert_eq!(decoder.malformed, 1, "a record without its waker");
    }

    fn raw_sender(number: u32, sender: (u32, u32, &str), function: u64, call: u32) -> Vec<u8> {
        let mark = NoiseMark { at_ns: 1, cpu: 0, what: MARK_SENDER, key: number, value: 0 };
        let mut raw = RawSender::new_zeroed();
        (raw.process, raw.cpu, raw.system_call, raw.key.function) =
            (sender.0, sender.1, call, function);
        raw.key.task[..sender.2.len()].copy_from_slice(sender.2.as_bytes());
        [mark.as_bytes(), raw.as_bytes()].concat()
    }

    /// Reads the entry of a vector from the sender with this number, and its exit. Returns the vector's number in marks.
    fn interrupt(decoder: &mut Decoder, sender: u32) -> u32 {
        let mut seen = Vec::new();
        for bytes in [
            raw(MARK_ENTER, KEY_VECTOR + 5, sender.into()),
            raw(MARK_ENTER, KEY_VECTOR, 0),
            raw(MARK_LEAVE, KEY_VECTOR, 0),
            raw(MARK_LEAVE, KEY_VECTOR + 5, 0),
        ] {
            decoder.read(&bytes, |_, mark| seen.push(mark.what));
        }
        let [What::Enter(number), What::Enter(inner), What::Leave(inner_end), What::Leave(end)] =
            seen[..]
        else {
            panic!("{seen:?}")
        };
        assert_eq!((number, inner), (end, inner_end), "an interrupt ends as it started");
        number
    }

    /// Two processes of one name, on two CPUs, are one cause. Another function is another cause.
    #[test]
    fn interrupts_have_the_names_of_their_senders() {
        let directory = tempfile::tempdir().unwrap();
        let text = "1000 t ipi_mb\n2000 t flush_tlb_func\n2100 t later\n";
        crate::host::plant(directory.path(), "proc/kallsyms", text);
        let mut decoder = Decoder::default();
        let membarrier = libc::SYS_membarrier as u32 + 1;
        for bytes in [
            raw_sender(1, (812, 0, "dotnet"), 0x1000, membarrier),
            raw_sender(2, (813, 2, "dotnet"), 0x1000, membarrier),
            raw_sender(3, (7, 1, "\u{1b}[2J\n"), 0x2000, 0),
            raw_sender(4, (0, 1, "swapper/1"), 0, 0),
            raw_sender(5, (9, 1, "make"), 0x9999, 0),
        ] {
            decoder.read(&bytes, |_, _| panic!("a sender is no mark"));
        }
        let numbers: Vec<u32> =
            [1, 2, 3, 4, 5, 6, MARK_SENDERS_OTHER, 0].map(|n| interrupt(&mut decoder, n)).to_vec();
        assert_eq!(numbers[0], numbers[1], "the same cause");
        let names = decoder.names(&Root::new(directory.path()));
        let name = |position: usize| names[numbers[position] as usize].kind_and_name();
        let vector = VECTORS[5];
        let expected = [
            " from dotnet[several] (membarrier) on CPUs 0,2",
            " from dotnet[several] (membarrier) on CPUs 0,2",
            " from \u{1b}[2J\n[7] (TLB flush) on CPU 1",
            " from idle on CPU 1",
            " from make[9] on CPU 1",
            "",
            " from other senders",
            "",
        ];
        for (position, expected) in expected.into_iter().enumerate() {
            assert_eq!(name(position), ("vector", format!("{vector}{expected}")), "{position}");
        }
        let stable = names[numbers[0] as usize].stable_kind_and_name();
        assert_eq!(stable, ("vector", format!("{vector} from dotnet (membarrier)")));
    }

    #[test]
    fn senders_beyond_the_largest_number_share_a_cause() {
        let mut decoder = Decoder::default();
        let mut numbers = BTreeSet::new();
        for number in 1..=10 * SENDERS_MAX as u32 {
            let task = format!("task{number}");
            decoder.read(&raw_sender(number, (number, 0, &task), 0, 0), |_, _| panic!("no mark"));
            numbers.insert(interrupt(&mut decoder, number));
        }
        assert_eq!(numbers.len(), SENDERS_MAX + 1);
        assert!(numbers.contains(&interrupt(&mut decoder, MARK_SENDERS_OTHER)));
        let beyond_names = 9 * SENDERS_MAX as u64;
        assert_eq!(decoder.other_senders, OtherSenders { beyond_names, beyond_combinations: 1 });
        let names = decoder.names(&Root::new("/nonexistent"));
        let others = names.iter().filter(|name| name.kind_and_name().1.ends_with("other senders"));
        assert_eq!(others.count(), 1);
    }

    #[test]
    fn the_number_of_names_is_bounded() {
        let mut decoder = Decoder::default();
        (0..100_000).for_each(|key| {
            decoder.context(key);
        });
        assert!(decoder.numbers.len() <= SOURCES_MAX + 1);
        assert_eq!(decoder.names(&Root::default()).len(), decoder.numbers.len());
    }

    proptest! {
        #[test]
        fn any_bytes_are_a_mark_or_malformed(bytes in prop::collection::vec(any::<u8>(), 0..60)) {
            let (mut decoder, mut seen) = (Decoder::default(), 0);
            decoder.read(&bytes, |_, _| seen += 1);
            seen += decoder.chains.len() + decoder.senders.len();
            let is_later_step = bytes.len() >= 12 && bytes[10] == MARK_WAKER as u8;
            prop_assert!((seen == 0) == (decoder.malformed == 1) || is_later_step);
            let _ = decoder.names(&Root::new("/nonexistent"));
        }
    }
}
