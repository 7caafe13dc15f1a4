//! Finds the places of annotations in a kernel: symbols, addresses, events, markers. `annotate::Annotations::read`
//! calls it for each annotation.

use attribution::kernel_function;
use plugin_interface::annotations::Place;

use super::compile::similar_words;
use super::expression::parse_number;
use crate::{GuestFacts, Result, SimError, Symbol, Symbols};

/// The function that switches from the task in `rdi` to the task in `rsi`: the event `switch`.
const SWITCH: &str = "__switch_to_asm";
const EVENTS: [&str; 3] = ["interrupt", "exception", "switch"];
/// Minimum number of digits of an address without `0x`, so that it is not taken for a symbol.
const ADDRESS_DIGITS_MIN: usize = 8;

/// A place in the kernel that an annotation names.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct ResolvedPlace {
    pub(crate) place: Place,
    /// The function, if the place is its first instruction.
    pub(crate) function: Option<String>,
    /// How many functions have the name of `function`, copies that the compiler made not included.
    pub(crate) functions_of_name: usize,
    /// The name of the place: a symbol, an event or a marker.
    pub(crate) label: String,
}

impl ResolvedPlace {
    /// A place that is not the first instruction of a known function.
    fn outside(place: Place, label: String) -> ResolvedPlace {
        ResolvedPlace { place, function: None, functions_of_name: 0, label }
    }
}

/// Returns the places that `place_name` names. There are several if static functions share the name, or if the compiler has
/// copied the function. A copy may have other arguments than the function in the source: an annotation can record its
/// registers, but not its parameters.
///
/// Fails when there is no such place; the message suggests similar names.
pub(crate) fn resolve(place_name: &str, facts: &GuestFacts) -> Result<Vec<ResolvedPlace>> {
    if let Some(event) = place_name.strip_prefix("event:") {
        return event_places(place_name, event, facts);
    }
    if let Some(number) = place_name.strip_prefix("marker:") {
        let marker = parse_number(number)
            .and_then(|marker| u32::try_from(marker).ok())
            .ok_or_else(|| invalid(format!("{place_name}: a marker has a number")))?;
        let label = format!("marker {marker}");
        return Ok(vec![ResolvedPlace::outside(Place::Marker(marker), label)]);
    }
    let (name, offset) = match place_name.split_once('+') {
        Some((name, offset)) => {
            let offset = parse_number(offset.trim());
            let wrong_offset =
                || invalid(format!("{place_name}: the part after + must be a number of bytes"));
            (name.trim(), offset.ok_or_else(wrong_offset)?)
        }
        None => (place_name, 0),
    };
    match address(name, facts) {
        Some(address) => Ok(vec![at_address(address.wrapping_add(offset), facts)]),
        None => symbol_places(name, offset, facts),
    }
}

/// The error for a place that does not exist.
fn invalid(reason: String) -> SimError {
    SimError::Invalid(reason)
}

/// Returns the places of an event: `interrupt`, `exception`, each with or without a vector, or `switch`. `place_name`: the
/// whole name, for messages.
fn event_places(place_name: &str, event: &str, facts: &GuestFacts) -> Result<Vec<ResolvedPlace>> {
    let (kind, vector) = match event.split_once(':') {
        Some((kind, vector)) => {
            let vector = parse_number(vector).and_then(|vector| u8::try_from(vector).ok());
            let wrong_vector = || invalid(format!("{place_name}: a vector is a number, 0 to 255"));
            (kind, Some(vector.ok_or_else(wrong_vector)?))
        }
        None => (event, None),
    };
    let event_place = match (kind, vector) {
        ("interrupt", vector) => Place::Interrupt(vector),
        ("exception", vector) => Place::Exception(vector),
        ("switch", None) => {
            let mut places = symbol_places(SWITCH, 0, facts)?;
            for place in &mut places {
                place.label = "switch".to_owned();
                place.function = None;
            }
            return Ok(places);
        }
        _ => {
            let events = EVENTS.join(", ");
            return Err(invalid(format!("{place_name}: no such event; there are {events}")));
        }
    };
    if vector.is_some() && facts.symbols.is_none() {
        return Err(invalid(format!(
            "{place_name}: this kernel has no symbols, which vectors need"
        )));
    }
    let label = vector.map_or_else(|| kind.to_owned(), |vector| format!("{kind} {vector:#x}"));
    Ok(vec![ResolvedPlace::outside(event_place, label)])
}

/// Parses an address, unless there is a symbol of this name.
fn address(text: &str, facts: &GuestFacts) -> Option<u64> {
    let is_symbol =
        facts.symbols.as_ref().is_some_and(|symbols| symbols.symbol_named(text).is_some());
    if is_symbol {
        return None;
    }
    match text.strip_prefix("0x") {
        Some(digits) => u64::from_str_radix(digits, 16).ok(),
        None if text.len() < ADDRESS_DIGITS_MIN => None,
        None => u64::from_str_radix(text, 16).ok(),
    }
}

/// Returns the place at an address. It is a function's only at the first instruction.
fn at_address(address: u64, facts: &GuestFacts) -> ResolvedPlace {
    let Some(symbols) = &facts.symbols else {
        return ResolvedPlace::outside(Place::Address(address), String::new());
    };
    match symbols.symbol_at(address) {
        Some((symbol, offset)) => in_function(symbols, symbol, offset, &symbol.label()),
        None => ResolvedPlace::outside(Place::Address(address), symbols.area_name(address)),
    }
}

/// Returns the place `offset` bytes from the first instruction of a function. `name`: the name of the function in the
/// place's label. If several functions have the name, the label has the function's number among them: it tells the rows
/// of the tables apart, also in a run with another kernel.
fn in_function(symbols: &Symbols, symbol: &Symbol, offset: u64, name: &str) -> ResolvedPlace {
    let bodies = symbols.functions(kernel_function::split(&symbol.name).0, 0);
    let same_name: Vec<&Symbol> =
        bodies.into_iter().filter(|body| body.name == symbol.name).collect();
    let mut label = if offset == 0 { name.to_owned() } else { format!("{name}+{offset:#x}") };
    let position = same_name.iter().position(|body| body.address == symbol.address);
    if let Some(position) = position
        && same_name.len() > 1
    {
        label += &format!(" ({} of {})", position + 1, same_name.len());
    }
    ResolvedPlace {
        place: Place::Address(symbol.address.wrapping_add(offset)),
        function: (offset == 0).then(|| symbol.name.clone()),
        functions_of_name: same_name.len(),
        label,
    }
}

/// Returns a place for each body of a function, `offset` bytes from its start. Fails for a name that is no function, and if a
/// body is shorter than `offset`.
fn symbol_places(name: &str, offset: u64, facts: &GuestFacts) -> Result<Vec<ResolvedPlace>> {
    let no_symbols = || invalid(format!("{name}: this kernel has no symbols (CONFIG_KALLSYMS)"));
    let symbols = facts.symbols.as_ref().ok_or_else(no_symbols)?;
    // Fails for an unknown name, with similar names as suggestions.
    symbols.address(name)?;
    let bodies = symbols.functions(name, 0);
    if bodies.is_empty() {
        return Err(invalid(format!("{name}: is not code")));
    }
    let has_exact_name = |symbol: &&Symbol| symbol.name == name;
    if offset > 0 && !bodies.iter().all(has_exact_name) {
        let copy_names: Vec<&str> = bodies.iter().map(|symbol| symbol.name.as_str()).collect();
        let copy_names = copy_names.join(", ");
        let reason = format!("the compiler has copied this function: name one of {copy_names}");
        return Err(invalid(format!("{name}+{offset:#x}: {reason}")));
    }
    let place_of = |symbol: &Symbol| {
        let (base, name) = (symbol.address, symbol.name.as_str());
        let address = base.wrapping_add(offset);
        let is_beyond =
            symbols.next_symbol(base).is_some_and(|next| offset > 0 && address >= next.address);
        if is_beyond {
            let reason = format!("{name}+{offset:#x}: the function is shorter");
            return Err(invalid(reason));
        }
        Ok(in_function(symbols, symbol, offset, name))
    };
    bodies.into_iter().map(place_of).collect()
}

/// Returns the error for an unknown action, with similar names.
pub(crate) fn unknown_word_error(word: &str, known: &[&str]) -> SimError {
    let known_names = known.join(", ");
    invalid(format!(
        "{word}: no such action{}; there are {known_names}",
        similar_words(word, known)
    ))
}
