//! Decodes the records of `bpf/noise.bpf.c` (format: `bpf/noise.h`) into marks, and names the contexts and tasks in
//! them. The records come from the kernel's ring buffer; invalid ones are counted, never an error.

use std::collections::BTreeMap;

use attribution::context::{SOFTIRQS, VECTORS};
use attribution::key::ContextKey;
use attribution::{Context, ContextKind};
use lab::noise::{ContextName, IDLE, Mark, What};
use zerocopy::FromBytes;

use crate::bpf::layout::{
    MARK_ENTER, MARK_FAULT, MARK_LEAVE, MARK_NMI, MARK_SWITCH_BACK, MARK_SWITCH_TO, MARK_WAKE,
    NoiseMark,
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
                let name = rest.split(|byte| *byte == 0).next().unwrap_or_default();
                let name = match (raw.key, String::from_utf8_lossy(name).into_owned()) {
                    (0, _) => IDLE.to_owned(),
                    (_, name) if name == IDLE => format!("{name} (a program)"),
                    (_, name) => name,
                };
                let task = self.number(Source::Task(name));
                add_mark(cpu, mark_at(raw.at_ns, What::SwitchTo(task)));
            }
            _ => self.malformed += 1,
        }
    }

    /// The number of the context with this key.
    fn context(&mut self, key: u32) -> u32 {
        self.number(Source::Context(key))
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
                *name = match source {
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
            prop_assert!((seen == 0) == (decoder.malformed == 1));
            let _ = decoder.names(&Root::new("/nonexistent"));
        }
    }
}
