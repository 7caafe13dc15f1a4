//! Holding a resource: its lock, and the values that it had before killed processes changed them.

use std::time::{Duration, Instant};

use super::JournalError;
use super::replay::{Replayed, replay};
use super::resource::{Locks, Resource};

/// Time between two attempts to undo what a killed process left of a resource.
const RETRY: Duration = Duration::from_millis(10);

/// Locks a resource until `locks` is dropped, and undoes what killed processes left of it: only then do its
/// settings have the values to restore later. Returns a message for each thing that was undone.
///
/// # Errors
/// [`JournalError::Busy`] where another irqlab holds it for longer than `locks` waits.
pub(super) fn hold(locks: &mut Locks, resource: Resource) -> Result<Vec<String>, JournalError> {
    if locks.has(&resource) {
        return Ok(Vec::new());
    }
    let deadline = Instant::now() + locks.wait();
    locks.lock(&resource)?;
    let mut messages = Vec::new();
    loop {
        let Replayed { messages: more, waits_for } = replay(locks.directory(), locks);
        messages.extend(more);
        match waits_for {
            None => return Ok(messages),
            Some(_) if Instant::now() < deadline => std::thread::sleep(RETRY),
            Some(holder) => {
                locks.release(&resource);
                return Err(resource.busy(holder));
            }
        }
    }
}
