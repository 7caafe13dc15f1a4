//! The list of annotations, as `sim` passes it to the plugin: a text whose lines have a word and its arguments. `sim`
//! makes the list from the user's `--annotate`; the plugin parses it, and acts at the places.
//!
//! `parse` and `Display` of each type must stay inverse to each other.

use std::fmt;

use super::program::Program;

/// The most annotations of a list.
pub const ANNOTATIONS_MAX: usize = 1_024;
/// The most actions of an annotation.
pub const ACTIONS_MAX: usize = 16;
/// The most values that one action records.
pub const VALUES_MAX: usize = 4;
/// The numbers of spans are below this: [`attribution::KernelContext::Function`].
pub const SPANS_MAX: u32 = 1_024;
/// The numbers of checkpoints are below this.
pub const CHECKPOINTS_MAX: u32 = 1_024;

/// A place of the guest, and the actions there.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Annotation {
    pub place: Place,
    /// The actions, in the order of their execution. May be empty: the plugin counts how often the place is reached.
    pub actions: Vec<Action>,
}

/// A place of the guest.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Place {
    /// Before the instruction at this address.
    Address(u64),
    /// Before the first instruction of an interrupt's handler. `None`: any vector.
    Interrupt(Option<u8>),
    /// Before the first instruction of an exception's handler. `None`: any vector.
    Exception(Option<u8>),
    /// At the guest's markers of this number.
    Marker(u32),
}

/// An action of an annotation.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Action {
    /// Open the span of this number at the first instruction of a function. The span ends when the function returns.
    Span(u32),
    /// Open the span of this number, until [`Action::Close`].
    Open(u32),
    /// Close the span of this number.
    Close(u32),
    /// Record the values that these programs compute.
    Record(Vec<Program>),
    /// Change the level of detail to the level of the options, or to markers only.
    Detail {
        /// Whether the new level is the level of the options.
        full: bool,
    },
    /// Hold the machine for the checkpoint of this number, the first time that it is reached.
    Checkpoint(u32),
    /// End the record, and the machine.
    Stop,
}

/// Physical addresses of devices below 1 MiB.
const DEVICE_HOLE: std::ops::Range<u64> = 0xa_0000..0x10_0000;
/// The physical address at which memory continues that does not fit below the devices.
const HIGH_MEMORY: u64 = 1 << 32;

/// The memory of a machine. Annotations may read it; a read of a device could change the guest.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct MachineMemory {
    /// Memory from the physical address 0 on.
    pub low_bytes: u64,
    /// Memory from 4 GiB on.
    pub high_bytes: u64,
}

#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct AnnotationList {
    /// The annotations; their numbers are their positions.
    pub list: Vec<Annotation>,
    pub memory: MachineMemory,
    /// Whether each hit that records values is recorded individually, in addition to counts.
    pub log: bool,
}

impl MachineMemory {
    /// Whether a physical address is memory.
    #[must_use]
    pub fn contains(&self, physical: u64) -> bool {
        let is_low = physical < self.low_bytes && !DEVICE_HOLE.contains(&physical);
        is_low || physical.checked_sub(HIGH_MEMORY).is_some_and(|offset| offset < self.high_bytes)
    }

    /// Parses the text form: the bytes of each part.
    fn parse(text: &str) -> Option<MachineMemory> {
        let (low, high) = text.split_once(' ')?;
        Some(MachineMemory { low_bytes: low.parse().ok()?, high_bytes: high.parse().ok()? })
    }
}

impl fmt::Display for MachineMemory {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(out, "{} {}", self.low_bytes, self.high_bytes)
    }
}

impl Annotation {
    /// Whether the annotation also acts at the level `fast`, where nothing is counted.
    #[must_use]
    pub fn is_for_all_levels(&self) -> bool {
        self.actions.iter().any(|action| {
            matches!(action, Action::Detail { .. } | Action::Checkpoint(_) | Action::Stop)
        })
    }
}

impl AnnotationList {
    /// Parses the text form of a list, which `Display` writes.
    ///
    /// The error is the first line of another form, or beyond a bound.
    pub fn parse(text: &str) -> Result<AnnotationList, String> {
        let mut annotations = AnnotationList::default();
        for (number, line) in text.lines().enumerate() {
            annotations.add_line(line).ok_or_else(|| format!("line {}: {line:.80}", number + 1))?;
        }
        Ok(annotations)
    }

    /// Adds the content of a line. An action belongs to the last annotation.
    fn add_line(&mut self, line: &str) -> Option<()> {
        let (word, argument) = line.split_once(' ').unwrap_or((line, ""));
        match word {
            "memory" => self.memory = MachineMemory::parse(argument)?,
            "log" => self.log = true,
            "annotation" if self.list.len() < ANNOTATIONS_MAX => {
                self.list.push(Annotation { place: Place::parse(argument)?, actions: Vec::new() });
            }
            _ => {
                let actions = &mut self.list.last_mut()?.actions;
                if actions.len() == ACTIONS_MAX {
                    return None;
                }
                actions.push(Action::parse(word, argument)?);
            }
        }
        Some(())
    }
}

impl fmt::Display for AnnotationList {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(out, "memory {}", self.memory)?;
        if self.log {
            writeln!(out, "log")?;
        }
        for annotation in &self.list {
            writeln!(out, "annotation {}", annotation.place)?;
            for action in &annotation.actions {
                writeln!(out, "{action}")?;
            }
        }
        Ok(())
    }
}

impl Place {
    /// Parses the text form of a place, which `Display` writes.
    fn parse(text: &str) -> Option<Place> {
        let (word, argument) = text.split_once(' ').unwrap_or((text, ""));
        let vector = || match argument {
            "" => Some(None),
            number => number.parse().ok().map(Some),
        };
        Some(match word {
            "address" => Place::Address(u64::from_str_radix(argument, 16).ok()?),
            "interrupt" => Place::Interrupt(vector()?),
            "exception" => Place::Exception(vector()?),
            "marker" => Place::Marker(argument.parse().ok()?),
            _ => return None,
        })
    }
}

impl fmt::Display for Place {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Place::Address(address) => write!(out, "address {address:x}"),
            Place::Interrupt(None) => write!(out, "interrupt"),
            Place::Interrupt(Some(vector)) => write!(out, "interrupt {vector}"),
            Place::Exception(None) => write!(out, "exception"),
            Place::Exception(Some(vector)) => write!(out, "exception {vector}"),
            Place::Marker(number) => write!(out, "marker {number}"),
        }
    }
}

impl Action {
    /// Parses the text form of an action, which `Display` writes: a word and its argument.
    fn parse(word: &str, argument: &str) -> Option<Action> {
        let span = || argument.parse().ok().filter(|span| *span < SPANS_MAX);
        Some(match (word, argument) {
            ("span", _) => Action::Span(span()?),
            ("open", _) => Action::Open(span()?),
            ("close", _) => Action::Close(span()?),
            ("record", _) => {
                let programs = argument.split(';').take(VALUES_MAX + 1).map(Program::parse);
                let programs = programs.collect::<Option<Vec<_>>>()?;
                if programs.len() > VALUES_MAX {
                    return None;
                }
                Action::Record(programs)
            }
            ("detail", "full") => Action::Detail { full: true },
            ("detail", "fast") => Action::Detail { full: false },
            ("checkpoint", number) => {
                Action::Checkpoint(number.parse().ok().filter(|number| *number < CHECKPOINTS_MAX)?)
            }
            ("stop", "") => Action::Stop,
            _ => return None,
        })
    }
}

impl fmt::Display for Action {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Action::Span(span) => write!(out, "span {span}"),
            Action::Open(span) => write!(out, "open {span}"),
            Action::Close(span) => write!(out, "close {span}"),
            Action::Record(programs) => {
                let programs: Vec<String> = programs.iter().map(Program::to_string).collect();
                write!(out, "record {}", programs.join(" ; "))
            }
            Action::Detail { full } => {
                write!(out, "detail {}", if *full { "full" } else { "fast" })
            }
            Action::Checkpoint(number) => write!(out, "checkpoint {number}"),
            Action::Stop => write!(out, "stop"),
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const TEXT: &str = "memory 3221225472 1073741824\n\
                        log\n\
                        annotation address ffffffff81000000\n\
                        record reg:rdi load:8 ; percpu:1fb80 load:8 add:bd8 text:16\n\
                        span 3\n\
                        annotation interrupt\n\
                        annotation exception 14\n\
                        open 1\n\
                        close 1\n\
                        annotation marker 17\n\
                        detail fast\n\
                        checkpoint 2\n\
                        stop\n";

    #[test]
    fn lists_go_there_and_back() {
        let annotations = AnnotationList::parse(TEXT).unwrap();
        assert_eq!(annotations.to_string(), TEXT);
        let memory = MachineMemory { low_bytes: 3 << 30, high_bytes: 1 << 30 };
        let read = (annotations.list.len(), annotations.memory, annotations.log);
        assert_eq!(read, (4, memory, true));
        assert_eq!(
            annotations.list[1],
            Annotation { place: Place::Interrupt(None), actions: Vec::new() }
        );
        let all_levels = annotations.list.iter().map(Annotation::is_for_all_levels);
        assert_eq!(all_levels.collect::<Vec<_>>(), [false, false, false, true]);
    }

    #[test]
    fn devices_are_between_the_parts_of_memory() {
        let memory = MachineMemory { low_bytes: 3 << 30, high_bytes: 1 << 30 };
        for (address, is_memory) in [
            (0x9_f000, true),
            (0xa_0000, false),
            (0x10_0000, true),
            (0xbfff_f000, true),
            (0xc000_0000, false),
            (0xffff_f000, false),
            (0x1_0000_0000, true),
            (0x1_3fff_f000, true),
            (0x1_4000_0000, false),
        ] {
            assert_eq!(memory.contains(address), is_memory, "{address:#x}");
        }
        assert!(!MachineMemory { high_bytes: 0, ..memory }.contains(1 << 32));
    }

    #[test]
    fn what_is_beyond_the_bounds_is_refused_by_line() {
        for (text, line) in [
            ("span 1\n", 1),
            ("annotation address x\n", 1),
            ("annotation exception 256\n", 1),
            ("annotation marker 1\nspan 1024\n", 2),
            ("annotation marker 1\nrecord \n", 2),
            ("annotation marker 1\nrecord reg:rax;reg:rax;reg:rax;reg:rax;reg:rax\n", 2),
            ("annotation marker 1\ndetail some\n", 2),
            ("annotation marker 1\ncheckpoint 1024\n", 2),
            ("annotation marker 1\ncheckpoint\n", 2),
            ("memory -1 0\n", 1),
            ("memory 536870912\n", 1),
        ] {
            let error = AnnotationList::parse(text).unwrap_err();
            assert!(error.starts_with(&format!("line {line}:")), "{text}: {error}");
        }
        let many = "annotation marker 1\n".repeat(ANNOTATIONS_MAX + 1);
        assert!(AnnotationList::parse(&many).unwrap_err().starts_with("line 1025:"));
        let much = "annotation marker 1\n".to_owned() + &"stop\n".repeat(ACTIONS_MAX + 1);
        assert!(AnnotationList::parse(&much).unwrap_err().starts_with("line 18:"));
    }

    proptest! {
        #[test]
        fn other_text_never_panics(text in "((annotation|record|span|memory|reg:rax|address|stop|1|;|:) ?\n?){0,20}") {
            if let Ok(annotations) = AnnotationList::parse(&text) {
                prop_assert_eq!(AnnotationList::parse(&annotations.to_string()), Ok(annotations));
            }
        }
    }
}
