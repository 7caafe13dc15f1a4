//! The stacks of tasks that are not running. All CPUs share them, because tasks move between CPUs. The plugin's tracker
//! calls this at each task switch and wake-up of the guest.

use std::collections::BTreeMap;

use crate::kernel_context::KernelContext;
use crate::kernel_stack::{Frames, KernelStack};
use crate::ledger::Counts;
use crate::services::RequestPart;

/// Maximum number of tasks whose stacks are kept.
pub const TASKS_MAX: usize = 65_536;

/// The saved stacks, by the address of the task (any number that is unique among living tasks).
#[derive(Clone, Debug)]
pub struct TaskStacks<const N: usize = 1> {
    saved: BTreeMap<u64, Frames<N>>,
    dropped: u64,
}

impl<const N: usize> Default for TaskStacks<N> {
    fn default() -> Self {
        TaskStacks { saved: BTreeMap::new(), dropped: 0 }
    }
}

impl<const N: usize> TaskStacks<N> {
    /// The CPU of `stack` switches from task `previous` to task `next`. A task without a kept stack starts with the
    /// context `context`. If `previous` has `died`, its stack is not kept.
    pub fn switch(
        &mut self,
        stack: &mut KernelStack<N>,
        (previous, died): (u64, bool),
        (next, context): (u64, KernelContext),
        counts: Counts<N>,
    ) {
        let frames = self.saved.remove(&next).unwrap_or_else(|| Frames::new(context));
        let frames = stack.switch_to(frames, counts);
        if died {
            return;
        }
        if self.saved.len() < TASKS_MAX {
            self.saved.insert(previous, frames);
        } else {
            self.dropped += 1;
        }
    }

    /// A task was woken at `now`. Does nothing for a task that runs or has no kept stack: such a task is not blocked.
    pub fn wake(&mut self, task: u64, now: u64) {
        if let Some(frames) = self.saved.get_mut(&task) {
            frames.wake(now);
        }
    }

    /// A region opens: counts from before it are dropped.
    pub fn reset_counts(&mut self) {
        self.saved.values_mut().for_each(Frames::reset_counts);
    }

    /// The counts of the open frames of all stacks in the region with this number.
    pub fn open_parts(&self, region: u32) -> impl Iterator<Item = RequestPart<N>> + '_ {
        self.saved.values().flat_map(move |frames| frames.open_parts(region))
    }

    /// Number of stacks that were not kept because [`TASKS_MAX`] stacks were kept already.
    #[must_use]
    pub fn dropped(&self) -> u64 {
        self.dropped
    }

    /// How many stacks are kept.
    #[must_use]
    pub fn len(&self) -> usize {
        self.saved.len()
    }

    /// Whether no stack is kept.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.saved.is_empty()
    }
}
