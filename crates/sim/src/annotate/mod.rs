//! Annotations: the user names places in the guest, and actions there (`--annotate`, docs/annotations.md). This
//! module translates them for the plugin: `source` parses the text, `place` finds addresses, `expression` and
//! `compile` translate the values to record.
//!
//! Symbols and types are looked up here, once, before the machine starts. The plugin gets addresses and short
//! programs.

mod compile;
mod expression;
mod place;
mod source;

use plugin_interface::annotations::{
    self, ACTIONS_MAX, ANNOTATIONS_MAX, Action, AnnotationList, CHECKPOINTS_MAX, MachineMemory,
    Place, SPANS_MAX, VALUES_MAX,
};

pub use compile::PrintFormat;
use compile::{Scope, compile};
use place::{ResolvedPlace, resolve, unknown_word_error};
use simrecord::marker;
pub use simrecord::record::Value;
use source::Written;

use crate::cache::check_checkpoint_name;
use crate::text::printable;
use crate::{GuestFacts, Result, SimError};

/// The actions of annotations.
const ACTIONS: [&str; 8] =
    ["count", "record", "span", "open", "close", "detail", "checkpoint", "stop"];

/// Name of the annotation that saves a machine that is ready.
const READY: &str = "ready";

/// The annotations of a machine.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Annotations {
    /// One entry for each place of each annotation, in the order of the plugin's numbers.
    pub list: Vec<Annotation>,
    /// Names of spans, by number.
    pub spans: Vec<String>,
    /// Names of checkpoints, by number.
    pub checkpoints: Vec<String>,
    /// Whether each hit that records values is kept.
    pub log: bool,
    /// The plugin's form of each entry of `list`: its place and its actions.
    translated: Vec<annotations::Annotation>,
}

/// An annotation at a place.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Annotation {
    pub name: String,
    /// The name of the place: a symbol or an event.
    pub place: String,
    /// The address, if the place has one.
    pub address: Option<u64>,
    /// The values that each action of the plugin records, in the same order.
    pub records: Vec<Vec<Recorded>>,
    /// Numbers of the spans that start here.
    pub spans: Vec<u32>,
}

/// A value that is recorded.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Recorded {
    /// The expression as the user wrote it.
    pub expression: String,
    pub show: PrintFormat,
}

impl Annotations {
    /// Parses the arguments of `--annotate`, each a file or one annotation, and looks up their symbols and
    /// types in the kernel.
    ///
    /// Fails with [`SimError::Invalid`], which names the wrong part and similar names.
    pub fn read(arguments: &[String], log: bool, facts: &GuestFacts) -> Result<Annotations> {
        let mut annotations = Annotations { log, ..Annotations::default() };
        for argument in arguments {
            for written in source::read(argument)? {
                annotations.add(&written, facts).map_err(|error| {
                    SimError::Invalid(format!("annotation {:?}: {error}", written.at))
                })?;
            }
        }
        annotations.check()?;
        Ok(annotations)
    }

    /// Returns the one annotation that saves a machine where its first process waits for a request.
    pub(crate) fn when_ready() -> Annotations {
        Annotations::at_marker(marker::READY)
    }

    /// Returns the one annotation that saves a machine after it has prepared a workload.
    pub(crate) fn when_prepared() -> Annotations {
        Annotations::at_marker(marker::PREPARED)
    }

    /// Returns an annotation that saves a checkpoint at a marker.
    fn at_marker(marker: u32) -> Annotations {
        let mut ready = Annotations::default();
        let actions = vec![Action::Checkpoint(0)];
        ready.translated.push(annotations::Annotation { place: Place::Marker(marker), actions });
        ready.list.push(Annotation {
            name: READY.to_owned(),
            place: format!("marker {marker}"),
            address: None,
            records: vec![Vec::new()],
            spans: Vec::new(),
        });
        ready.checkpoints.push(READY.to_owned());
        ready
    }

    /// Returns whether there are no annotations.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.list.is_empty()
    }

    /// Returns the text that the plugin reads, for a machine with this memory.
    pub(crate) fn text(&self, memory: MachineMemory) -> String {
        AnnotationList { list: self.translated.clone(), memory, log: self.log }.to_string()
    }

    /// Adds an annotation at each place that it names.
    fn add(&mut self, written: &Written, facts: &GuestFacts) -> Result<()> {
        let places = resolve(&written.at, facts)?;
        let name = self.distinct_name(written.name.as_ref().unwrap_or(&written.at), &places);
        for placed in places {
            if self.list.len() == ANNOTATIONS_MAX {
                return Err(SimError::Invalid(format!("more than {ANNOTATIONS_MAX} places")));
            }
            let address = match placed.place {
                Place::Address(address) => Some(address),
                _ => None,
            };
            let mut annotation = Annotation {
                name: name.clone(),
                place: placed.label.clone(),
                address,
                records: Vec::new(),
                spans: Vec::new(),
            };
            let mut actions = Vec::new();
            for text in &written.actions {
                actions.extend(self.translate_action(text, &placed, &mut annotation, facts)?);
            }
            if actions.len() > ACTIONS_MAX {
                return Err(SimError::Invalid(format!("more than {ACTIONS_MAX} actions")));
            }
            self.translated.push(annotations::Annotation { place: placed.place, actions });
            self.list.push(annotation);
        }
        Ok(())
    }

    /// Returns the name. Adds a number if another annotation at one of these places has the name: the rows of the tables
    /// need different names or places.
    fn distinct_name(&self, name: &str, places: &[ResolvedPlace]) -> String {
        let is_taken = |name: &str| {
            self.list.iter().zip(&self.translated).any(|(annotation, translated)| {
                annotation.name == name
                    && places.iter().any(|placed| placed.place == translated.place)
            })
        };
        let numbered = (2..).map(|number| format!("{name} ({number})"));
        let mut names = std::iter::once(name.to_owned()).chain(numbered);
        names.find(|name| !is_taken(name)).unwrap_or_default()
    }

    /// Translates an action for the plugin. Adds the values that it records to `annotation.records`, so that `records[i]` belongs
    /// to the i-th action of the plugin. Adds names of spans and checkpoints to `self`. Returns `None`, and adds nothing, for
    /// `count`: the plugin counts every hit.
    fn translate_action(
        &mut self,
        text: &str,
        placed: &ResolvedPlace,
        annotation: &mut Annotation,
        facts: &GuestFacts,
    ) -> Result<Option<Action>> {
        let invalid = |reason: &str| Err(SimError::Invalid(format!("{text}: {reason}")));
        let (action_name, argument) = text.split_once(char::is_whitespace).unwrap_or((text, ""));
        let argument = argument.trim();
        let mut recorded = Vec::new();
        let action = match (action_name, argument) {
            // Every hit is counted anyway.
            ("count", "") => return Ok(None),
            ("record", _) => {
                let function = placed.function.as_deref();
                let functions_of_name = placed.functions_of_name;
                let scope = Scope { facts, function, functions_of_name };
                let programs;
                (programs, recorded) = values(argument, scope)?;
                Action::Record(programs)
            }
            ("span", "") if placed.function.is_none() => {
                return invalid("works only at a function; elsewhere use open and close");
            }
            ("span", "") => Action::Span(self.span(&annotation.name.clone(), annotation)?),
            ("open", name) if !name.is_empty() => Action::Open(self.span(name, annotation)?),
            ("close", name) if !name.is_empty() => Action::Close(self.span_number(name)?),
            ("open" | "close", _) => return invalid("needs a name"),
            ("detail", "full" | "fast") if is_event(placed) => {
                return invalid(
                    "works only at addresses and markers: at the level fast, events are not detected",
                );
            }
            ("detail", "full" | "fast") => Action::Detail { full: argument == "full" },
            ("detail", _) => return invalid("must be full or fast"),
            ("stop", "") => Action::Stop,
            ("checkpoint", name) if !name.is_empty() => Action::Checkpoint(self.checkpoint(name)?),
            ("checkpoint", _) => return invalid("needs a name"),
            ("count" | "span" | "stop", _) => return invalid("takes no argument"),
            _ => return Err(unknown_word_error(action_name, &ACTIONS)),
        };
        annotation.records.push(recorded);
        Ok(Some(action))
    }

    /// Returns the number of a span that starts at `annotation`, and notes it there.
    fn span(&mut self, name: &str, annotation: &mut Annotation) -> Result<u32> {
        let number = self.span_number(name)?;
        annotation.spans.push(number);
        Ok(number)
    }

    /// Returns the number of the span with this name.
    fn span_number(&mut self, name: &str) -> Result<u32> {
        number_in(&mut self.spans, name, SPANS_MAX, "spans")
    }

    /// Returns the number of the checkpoint with this name.
    fn checkpoint(&mut self, name: &str) -> Result<u32> {
        check_checkpoint_name(name)?;
        number_in(&mut self.checkpoints, name, CHECKPOINTS_MAX, "checkpoints")
    }

    /// Checks that each span that is opened is also closed, and vice versa.
    fn check(&self) -> Result<()> {
        let has = |wanted: Action| {
            self.translated.iter().any(|annotation| annotation.actions.contains(&wanted))
        };
        for (name, number) in self.spans.iter().zip(0..) {
            let problem = match (has(Action::Open(number)), has(Action::Close(number))) {
                (true, false) => "opened, but closed nowhere",
                (false, true) => "closed, but opened nowhere",
                _ => continue,
            };
            return Err(SimError::Invalid(format!("span {name:?} is {problem}")));
        }
        Ok(())
    }
}

impl Recorded {
    /// Returns the value as text.
    #[must_use]
    pub fn shown(&self, value: Value) -> String {
        match (value, self.show) {
            (Value::Absent, _) => "absent".to_owned(),
            (Value::Number(number), PrintFormat::Signed) => number.cast_signed().to_string(),
            (Value::Number(number), PrintFormat::Unsigned) => number.to_string(),
            (Value::Number(number), PrintFormat::Hex | PrintFormat::Text) => format!("{number:#x}"),
            (Value::Text(text), _) => {
                let end = text.iter().position(|byte| *byte == 0).unwrap_or(text.len());
                printable(&String::from_utf8_lossy(&text[..end]))
            }
        }
    }
}

/// Returns the position of `name` in `names`. Adds the name if `names` does not have it.
///
/// Fails if there would be more than `count_max` names. `things`: what they name, for the error message.
fn number_in(names: &mut Vec<String>, name: &str, count_max: u32, things: &str) -> Result<u32> {
    let known = names.iter().position(|known| known == name);
    let number = known.unwrap_or(names.len());
    if number == count_max as usize {
        return Err(SimError::Invalid(format!("more than {count_max} {things}")));
    }
    if known.is_none() {
        names.push(name.to_owned());
    }
    Ok(number as u32)
}

/// Returns whether a place is an event, which the plugin does not detect at the level `fast`.
fn is_event(placed: &ResolvedPlace) -> bool {
    matches!(placed.place, Place::Interrupt(_) | Place::Exception(_))
}

/// Compiles the expressions of an action; returns their programs and descriptions.
fn values(
    text: &str,
    scope: Scope<'_>,
) -> Result<(Vec<plugin_interface::annotations::Program>, Vec<Recorded>)> {
    let expressions = expression::parse_all(text).map_err(SimError::Invalid)?;
    if expressions.is_empty() || expressions.len() > VALUES_MAX {
        let reason = format!("record: 1 to {VALUES_MAX} expressions; for more, write it twice");
        return Err(SimError::Invalid(reason));
    }
    let mut compiled = (Vec::new(), Vec::new());
    for (expression, parsed) in expressions {
        let (program, show) = compile(&parsed, scope)?;
        compiled.0.push(program);
        compiled.1.push(Recorded { expression, show });
    }
    Ok(compiled)
}

#[cfg(test)]
mod tests;
