//! Records of the BPF programs (`bpf/noise.h`), and the names behind their numbers.

use std::collections::BTreeMap;

use attribution::context::{SOFTIRQS, VECTORS};
use attribution::{Context, ContextKind};
use lab::noise::{Mark, SourceName, What};
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout};

use crate::host::{Root, irq_affinities};

const KEY_VECTOR: u32 = 1;
const KEY_SOFTIRQ: u32 = 32;
const KEY_NMI: u32 = 48;
const KEY_IRQ: u32 = 64;

const ENTER: u16 = 1;
const LEAVE: u16 = 2;
const NMI: u16 = 3;
const FAULT: u16 = 4;
const SWITCH_TO: u16 = 5;
const SWITCH_BACK: u16 = 6;

/// `struct noise_mark`.
#[derive(Clone, Copy, Debug, FromBytes, IntoBytes, Immutable, KnownLayout)]
#[repr(C)]
struct RawMark {
    at_ns: u64,
    cpu: u16,
    what: u16,
    key: u32,
    value: u64,
}

/// Sources that get a number of their own. What comes after them shares one.
const SOURCES_MAX: usize = 400;
/// The name of what shares.
const OTHERS: &str = "others";

/// Who is behind a source's number, before it has a name.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Who {
    Context(u32),
    Task(String),
}

/// Reads records, and numbers the sources in them as they come.
#[derive(Default)]
pub struct Marks {
    numbers: BTreeMap<Who, u32>,
    /// Records that were none.
    pub malformed: u64,
    /// Switches to threads of process 1, while which this kernel may call no BPF program.
    pub to_first_process: u64,
}

impl Marks {
    /// The marks of a record, each with its CPU: one, or two for an NMI.
    pub fn read(&mut self, bytes: &[u8], mut each: impl FnMut(u32, Mark)) {
        let Ok((raw, rest)) = RawMark::read_from_prefix(bytes) else {
            self.malformed += 1;
            return;
        };
        let cpu = u32::from(raw.cpu);
        let at = |at_ns, what| Mark { at_ns, what };
        match raw.what {
            ENTER => each(cpu, at(raw.at_ns, What::Enter(self.context(raw.key)))),
            LEAVE => each(cpu, at(raw.at_ns, What::Leave(self.context(raw.key)))),
            NMI => {
                let source = self.context(raw.key);
                // A time that went backwards is none.
                let spent_ns = i64::try_from(raw.value).unwrap_or(0) as u64;
                each(cpu, at(raw.at_ns.saturating_sub(spent_ns), What::Enter(source)));
                each(cpu, at(raw.at_ns, What::Leave(source)));
            }
            FAULT => each(cpu, at(raw.at_ns, What::Fault)),
            SWITCH_BACK => each(cpu, at(raw.at_ns, What::SwitchBack)),
            SWITCH_TO => {
                self.to_first_process += u64::from(raw.value == 1);
                let name = rest.split(|byte| *byte == 0).next().unwrap_or_default();
                let name = if raw.key == 0 { "idle".into() } else { String::from_utf8_lossy(name) };
                let task = self.number(Who::Task(name.into_owned()));
                each(cpu, at(raw.at_ns, What::SwitchTo(task)));
            }
            _ => self.malformed += 1,
        }
    }

    fn context(&mut self, key: u32) -> u32 {
        self.number(Who::Context(key))
    }

    fn number(&mut self, who: Who) -> u32 {
        let next = self.numbers.len();
        if let Some(number) = self.numbers.get(&who) {
            return *number;
        }
        let who = if next < SOURCES_MAX { who } else { Who::Task(OTHERS.to_owned()) };
        *self.numbers.entry(who).or_insert(next as u32)
    }

    /// The names of all sources, by number.
    #[must_use]
    pub fn names(&self, root: &Root) -> Vec<SourceName> {
        let irqs = irq_affinities(root).unwrap_or_default();
        let action = |number: u32| {
            let irq = irqs.iter().find(|irq| irq.number == number);
            irq.map(|irq| irq.actions.join(",")).unwrap_or_default()
        };
        let mut names = vec![SourceName::Task(OTHERS.to_owned()); self.numbers.len()];
        for (who, number) in &self.numbers {
            if let Some(place) = names.get_mut(*number as usize) {
                *place = match who {
                    Who::Context(key) => SourceName::Context(context_of(*key, &action)),
                    Who::Task(name) => SourceName::Task(name.clone()),
                };
            }
        }
        names
    }
}

fn context_of(key: u32, action: &dyn Fn(u32) -> String) -> Context {
    let listed = |kind, number: u32, list: &[&str]| {
        let name =
            list.get(number as usize).map_or_else(|| number.to_string(), ToString::to_string);
        Context { kind, number, name }
    };
    match key {
        KEY_IRQ.. => {
            let number = key - KEY_IRQ;
            Context { kind: ContextKind::HardIrq, number, name: action(number) }
        }
        KEY_NMI.. => Context { kind: ContextKind::Nmi, number: 0, name: "NMI".to_owned() },
        KEY_SOFTIRQ.. => listed(ContextKind::Softirq, key - KEY_SOFTIRQ, &SOFTIRQS),
        _ => listed(ContextKind::Vector, key.saturating_sub(KEY_VECTOR), &VECTORS),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn raw(what: u16, key: u32, value: u64) -> Vec<u8> {
        RawMark { at_ns: 1000, cpu: 1, what, key, value }.as_bytes().to_vec()
    }

    #[test]
    fn marks_have_names() {
        let mut marks = Marks::default();
        let mut seen = Vec::new();
        let mut switch = raw(SWITCH_TO, 77, 1);
        switch.extend(b"make\0\0\0\0\0\0\0\0\0\0\0\0");
        for bytes in [raw(ENTER, KEY_VECTOR, 0), raw(NMI, KEY_NMI, 300), switch, vec![1, 2, 3]] {
            marks.read(&bytes, |cpu, mark| seen.push((cpu, mark)));
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
        assert_eq!((marks.malformed, marks.to_first_process), (1, 1));
        let names = marks.names(&Root::default());
        let timer = Context { kind: ContextKind::Vector, number: 0, name: "local_timer".into() };
        assert_eq!(names[0], SourceName::Context(timer));
        assert_eq!(names[2], SourceName::Task("make".into()));
    }

    #[test]
    fn the_number_of_names_is_bounded() {
        let mut marks = Marks::default();
        (0..100_000).for_each(|key| {
            marks.context(key);
        });
        assert!(marks.numbers.len() <= SOURCES_MAX + 1);
        assert_eq!(marks.names(&Root::default()).len(), marks.numbers.len());
    }

    proptest! {
        #[test]
        fn any_bytes_are_a_mark_or_malformed(bytes in prop::collection::vec(any::<u8>(), 0..60)) {
            let (mut marks, mut seen) = (Marks::default(), 0);
            marks.read(&bytes, |_, _| seen += 1);
            prop_assert!((seen == 0) == (marks.malformed == 1));
            let _ = marks.names(&Root::new("/nonexistent"));
        }
    }
}
