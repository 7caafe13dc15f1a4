//! Decodes the records of `bpf/noise.bpf.c` (format: `bpf/noise.h`) into marks, and names the contexts and tasks in
//! them. The records come from the kernel's ring buffer; invalid ones are counted, never an error.

use std::collections::BTreeMap;

use attribution::context::{SOFTIRQS, VECTORS};
use attribution::key::ContextKey;
use attribution::{Context, ContextKind};
use lab::noise::{ContextName, IDLE, Mark, What};
use lab::wakeup::Waker;
use zerocopy::FromBytes;

use crate::bpf::layout::{
    KEY_IRQ, KEY_NONE, MARK_ENTER, MARK_FAULT, MARK_LEAVE, MARK_NMI, MARK_SWITCH_BACK,
    MARK_SWITCH_TO, MARK_WAKE, MARK_WAKER, NoiseMark, SENDER_HARDIRQ, SENDER_SOFTIRQ,
    Waker as RawWaker,
};
use crate::host::{Root, irq_affinities};

/// Largest number of contexts and tasks that get separate numbers. All later ones share the number of [`OTHERS`].
const SOURCES_MAX: usize = 400;
/// Name of the contexts and tasks that share a number, as if they were one task.
const OTHERS: &str = "others";

/// The context (by its key) or the task (by its name) that has a number in marks.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Source {
    Context(u32),
    Task(String),
}

/// Decodes records, and numbers the contexts and tasks in order of appearance.
#[derive(Default)]
pub struct Decoder {
    numbers: BTreeMap<Source, u32>,
    /// Number of records that are too short or of an unknown kind.
    pub malformed: u64,
    /// Number of switches to threads of process 1. While such a thread runs, the kernel may call no BPF program.
    pub switches_to_init: u64,
    /// Chains of wakers that were read and not yet taken, in the order of the ring, each with the CPU of the thread that
    /// was woken.
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
            MARK_ENTER => add_mark(cpu, mark_at(raw.at_ns, What::Enter(self.context(raw.key)))),
            MARK_LEAVE => add_mark(cpu, mark_at(raw.at_ns, What::Leave(self.context(raw.key)))),
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

    /// The number of a task's name: the bytes up to the first 0. `pid`: the kernel's number of the task.
    fn task(&mut self, pid: u32, name: &[u8]) -> u32 {
        let name = name.split(|byte| *byte == 0).next().unwrap_or_default();
        let name = match (pid, String::from_utf8_lossy(name).into_owned()) {
            (0, _) => IDLE.to_owned(),
            (_, name) if name == IDLE => format!("{name} (a program)"),
            (_, name) => name,
        };
        self.number(Source::Task(name))
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
                };
            }
        }
        names
    }
}

/// The context with this key. `action` names the handlers of an IRQ line.
fn context_of(key: u32, action: &dyn Fn(u32) -> String) -> Context {
    let listed = |kind, number: u32, list: &[&str]| {
        let name =
            list.get(number as usize).map_or_else(|| number.to_string(), ToString::to_string);
        Context { kind, number, name }
    };
    match ContextKey::of(key) {
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
    use zerocopy::IntoBytes;

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
            seen += decoder.chains.len();
            let is_later_step = bytes.len() >= 12 && bytes[10] == MARK_WAKER as u8;
            prop_assert!((seen == 0) == (decoder.malformed == 1) || is_later_step);
            let _ = decoder.names(&Root::new("/nonexistent"));
        }
    }
}
