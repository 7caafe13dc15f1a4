//! [`hold`]: locks a resource before a change, and first restores the values that killed processes changed. Both
//! [`Journal::lock`](super::Journal::lock) and the undo of kept changes use it.

use std::time::{Duration, Instant};

use super::JournalError;
use super::replay::replay;
use super::resource::{Locks, Resource};

/// Time between two attempts to undo a killed process's changes to a resource.
const RETRY: Duration = Duration::from_millis(10);

/// Locks a resource until `locks` is dropped, and undoes the changes that killed processes left.
/// Afterwards its settings have the values to restore later. Returns a message for each undone change.
/// Does nothing if `locks` has the resource.
///
/// Fails with [`JournalError::Busy`] if another irqlab holds the resource for longer than [`Locks::wait`].
pub(super) fn hold(locks: &mut Locks, resource: Resource) -> Result<Vec<String>, JournalError> {
    if locks.has(&resource) {
        return Ok(Vec::new());
    }
    let deadline = Instant::now() + locks.wait();
    locks.lock(&resource)?;
    let mut messages = Vec::new();
    loop {
        let replayed = replay(locks.directory(), locks);
        messages.extend(replayed.messages);
        match replayed.waits_for {
            None => return Ok(messages),
            Some(_) if Instant::now() < deadline => std::thread::sleep(RETRY),
            Some(holder) => {
                locks.release(&resource);
                return Err(resource.busy(holder));
            }
        }
    }
}
