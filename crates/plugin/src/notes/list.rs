//! The list of annotations, as `sim` hands it to the plugin: lines of plain words.

use std::fmt;

use super::program::Program;

/// The most notes of a list.
pub const NOTES_MAX: usize = 1_024;
/// The most things that are done at one note.
pub const DEEDS_MAX: usize = 16;
/// The most values that are recorded together.
pub const VALUES_MAX: usize = 4;
/// The numbers of spans are below this: [`attribution::KernelContext::Function`].
pub const SPANS_MAX: u32 = 1_024;
/// The numbers of checkpoints are below this.
pub const CHECKPOINTS_MAX: u32 = 1_024;

/// What is to be done, where.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Note {
    /// Where.
    pub place: Place,
    /// What, in this order. Each note is counted.
    pub deeds: Vec<Deed>,
}

/// Where something is to be done.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Place {
    /// Before the instruction at this address.
    Address(u64),
    /// Before the first instruction of the handler of an interrupt, or of those of this vector.
    Interrupt(Option<u8>),
    /// The same of an exception.
    Exception(Option<u8>),
    /// At the guest's markers of this number.
    Marker(u32),
}

/// What is to be done.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Deed {
    /// Open the span of this number; it ends where the function returns whose first instruction this
    /// is.
    Span(u32),
    /// Open the span of this number, until [`Deed::Close`].
    Open(u32),
    /// Close the span of this number.
    Close(u32),
    /// Record these values.
    Record(Vec<Program>),
    /// Change the level: to what the options say, or to markers only.
    Detail {
        /// To what the options say.
        full: bool,
    },
    /// Hold the machine for the checkpoint of this number, the first time that one of it is come to.
    Checkpoint(u32),
    /// End the record.
    Stop,
}

/// A list of annotations.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Notes {
    /// The notes; their numbers are their positions.
    pub list: Vec<Note>,
    /// Memory of the machine, which annotations may read.
    pub memory_bytes: u64,
    /// Whether each hit that records values is recorded.
    pub log: bool,
}

impl Note {
    /// Whether it is done at the level `fast`, too.
    #[must_use]
    pub fn is_for_all_levels(&self) -> bool {
        self.deeds
            .iter()
            .any(|deed| matches!(deed, Deed::Detail { .. } | Deed::Checkpoint(_) | Deed::Stop))
    }
}

impl Notes {
    /// Reads what [`Notes`] is shown as.
    ///
    /// # Errors
    /// The first line that is not of that form, or is beyond a bound.
    pub fn parse(text: &str) -> Result<Notes, String> {
        let mut notes = Notes::default();
        for (number, line) in text.lines().enumerate() {
            notes.line(line).ok_or_else(|| format!("line {}: {line:.80}", number + 1))?;
        }
        Ok(notes)
    }

    fn line(&mut self, line: &str) -> Option<()> {
        let (word, rest) = line.split_once(' ').unwrap_or((line, ""));
        match word {
            "memory" => self.memory_bytes = rest.parse().ok()?,
            "log" => self.log = true,
            "note" if self.list.len() < NOTES_MAX => {
                self.list.push(Note { place: Place::parse(rest)?, deeds: Vec::new() });
            }
            _ => {
                let deeds = &mut self.list.last_mut()?.deeds;
                if deeds.len() == DEEDS_MAX {
                    return None;
                }
                deeds.push(Deed::parse(word, rest)?);
            }
        }
        Some(())
    }
}

impl fmt::Display for Notes {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(out, "memory {}", self.memory_bytes)?;
        if self.log {
            writeln!(out, "log")?;
        }
        for note in &self.list {
            writeln!(out, "note {}", note.place)?;
            for deed in &note.deeds {
                writeln!(out, "{deed}")?;
            }
        }
        Ok(())
    }
}

impl Place {
    fn parse(text: &str) -> Option<Place> {
        let (word, rest) = text.split_once(' ').unwrap_or((text, ""));
        let vector = || match rest {
            "" => Some(None),
            number => number.parse().ok().map(Some),
        };
        Some(match word {
            "address" => Place::Address(u64::from_str_radix(rest, 16).ok()?),
            "interrupt" => Place::Interrupt(vector()?),
            "exception" => Place::Exception(vector()?),
            "marker" => Place::Marker(rest.parse().ok()?),
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

impl Deed {
    fn parse(word: &str, rest: &str) -> Option<Deed> {
        let span = || rest.parse().ok().filter(|span| *span < SPANS_MAX);
        Some(match (word, rest) {
            ("span", _) => Deed::Span(span()?),
            ("open", _) => Deed::Open(span()?),
            ("close", _) => Deed::Close(span()?),
            ("record", _) => {
                let programs = rest.split(';').take(VALUES_MAX + 1).map(Program::parse);
                let programs = programs.collect::<Option<Vec<_>>>()?;
                Deed::Record(Some(programs).filter(|all| all.len() <= VALUES_MAX)?)
            }
            ("detail", "full") => Deed::Detail { full: true },
            ("detail", "fast") => Deed::Detail { full: false },
            ("checkpoint", number) => {
                Deed::Checkpoint(number.parse().ok().filter(|number| *number < CHECKPOINTS_MAX)?)
            }
            ("stop", "") => Deed::Stop,
            _ => return None,
        })
    }
}

impl fmt::Display for Deed {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Deed::Span(span) => write!(out, "span {span}"),
            Deed::Open(span) => write!(out, "open {span}"),
            Deed::Close(span) => write!(out, "close {span}"),
            Deed::Record(programs) => {
                let words: Vec<String> = programs.iter().map(Program::to_string).collect();
                write!(out, "record {}", words.join(" ; "))
            }
            Deed::Detail { full } => write!(out, "detail {}", if *full { "full" } else { "fast" }),
            Deed::Checkpoint(number) => write!(out, "checkpoint {number}"),
            Deed::Stop => write!(out, "stop"),
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const TEXT: &str = "memory 536870912\n\
                        log\n\
                        note address ffffffff81000000\n\
                        record reg:rdi load:8 ; percpu:1fb80 load:8 add:bd8 text:16\n\
                        span 3\n\
                        note interrupt\n\
                        note exception 14\n\
                        open 1\n\
                        close 1\n\
                        note marker 17\n\
                        detail fast\n\
                        checkpoint 2\n\
                        stop\n";

    #[test]
    fn lists_go_there_and_back() {
        let notes = Notes::parse(TEXT).unwrap();
        assert_eq!(notes.to_string(), TEXT);
        assert_eq!((notes.list.len(), notes.memory_bytes, notes.log), (4, 1 << 29, true));
        assert_eq!(notes.list[1], Note { place: Place::Interrupt(None), deeds: Vec::new() });
        let all_levels = notes.list.iter().map(Note::is_for_all_levels);
        assert_eq!(all_levels.collect::<Vec<_>>(), [false, false, false, true]);
    }

    #[test]
    fn what_is_beyond_the_bounds_is_refused_by_line() {
        for (text, line) in [
            ("span 1\n", 1),
            ("note address x\n", 1),
            ("note exception 256\n", 1),
            ("note marker 1\nspan 1024\n", 2),
            ("note marker 1\nrecord \n", 2),
            ("note marker 1\nrecord reg:rax;reg:rax;reg:rax;reg:rax;reg:rax\n", 2),
            ("note marker 1\ndetail some\n", 2),
            ("note marker 1\ncheckpoint 1024\n", 2),
            ("note marker 1\ncheckpoint\n", 2),
            ("memory -1\n", 1),
        ] {
            let error = Notes::parse(text).unwrap_err();
            assert!(error.starts_with(&format!("line {line}:")), "{text}: {error}");
        }
        let many = "note marker 1\n".repeat(NOTES_MAX + 1);
        assert!(Notes::parse(&many).unwrap_err().starts_with("line 1025:"));
        let much = "note marker 1\n".to_owned() + &"stop\n".repeat(DEEDS_MAX + 1);
        assert!(Notes::parse(&much).unwrap_err().starts_with("line 18:"));
    }

    proptest! {
        #[test]
        fn other_text_never_panics(text in "((note|record|span|memory|reg:rax|address|stop|1|;|:) ?\n?){0,20}") {
            if let Ok(notes) = Notes::parse(&text) {
                prop_assert_eq!(Notes::parse(&notes.to_string()), Ok(notes));
            }
        }
    }
}
