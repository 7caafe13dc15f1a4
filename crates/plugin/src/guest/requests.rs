//! Follows block requests from the task that submits their bios to their completion. The tracker reports the events;
//! `spans.rs` writes the records.
//!
//! A bio is the kernel's description of a transfer that a task submits. A request consists of one bio or more. The kernel
//! frees a bio after its end, so an address identifies a bio from its submission to its end.

use std::collections::BTreeMap;

use attribution::KernelContext;
use plugin_interface::symbols::Offsets;
use simrecord::record::{Completion, Record};

use crate::guest::memory::GuestMemory;

/// The most bios that are followed at the same time. Further ones have no known submitter.
const BIOS_MAX: usize = 65_536;
/// The most bios of a request, and the most requests that complete together, that are read.
const CHAIN_MAX: usize = 4_096;

/// The submitter of a bio.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Submitter {
    /// The task, or the interrupt or softirq.
    pub(crate) context: KernelContext,
    /// The name of the task, padded with zeros.
    pub(crate) comm: [u8; 16],
    /// The kernel's id of the task's control group. 0 if it is not known, or not recorded.
    pub(crate) group: u64,
}

impl Submitter {
    const UNKNOWN: Submitter =
        Submitter { context: KernelContext::Unknown, comm: [0; 16], group: 0 };
}

/// The bios that are submitted and have not ended. Nothing is kept unless requests are recorded.
#[derive(Debug, Default)]
pub(crate) struct Requests {
    are_recorded: bool,
    /// The number of the open region. `None`: no region is open.
    region: Option<u32>,
    /// The submitter of each bio, by the bio's address.
    submitters: BTreeMap<u64, Submitter>,
    /// Records that are not written yet.
    records: Vec<Record>,
}

impl Requests {
    /// Follows requests, and records their completions in regions that open from now on.
    pub(crate) fn record(&mut self) {
        self.are_recorded = true;
    }

    pub(crate) fn are_recorded(&self) -> bool {
        self.are_recorded
    }

    pub(crate) fn open_region(&mut self, region: u32) {
        self.region = self.are_recorded.then_some(region);
    }

    pub(crate) fn close_region(&mut self) {
        self.region = None;
    }

    pub(crate) fn is_submitted(&self, bio: u64) -> bool {
        self.submitters.contains_key(&bio)
    }

    /// A bio is submitted. A bio that a driver submits once more keeps its first submitter.
    pub(crate) fn submit(&mut self, bio: u64, submitter: Submitter) {
        if self.submitters.len() < BIOS_MAX {
            self.submitters.entry(bio).or_insert(submitter);
        }
    }

    /// Notes that the end of `parent` waits for `bio`: `bio` is a part of `parent` if `parent` is submitted.
    pub(crate) fn chain(&mut self, bio: u64, parent: u64) {
        if let Some(submitter) = self.submitters.get(&parent).copied() {
            self.submit(bio, submitter);
        }
    }

    /// Forgets a bio, which ends.
    pub(crate) fn end(&mut self, bio: u64) {
        self.submitters.remove(&bio);
    }

    /// A request completes on a CPU at the time `at`.
    pub(crate) fn complete(
        &mut self,
        cpu: usize,
        request: u64,
        at: u64,
        offsets: &Offsets,
        memory: &mut impl GuestMemory,
    ) {
        let Some(region) = self.region else { return };
        let submitter = self.submitter_of(request, offsets, memory).unwrap_or(Submitter::UNKNOWN);
        let Submitter { context, comm, group } = submitter;
        let (cpu, code) = (cpu as u32, context.code());
        self.records.push(Record::Completion(Completion {
            cpu,
            region,
            request,
            at,
            code,
            comm,
            group,
        }));
    }

    /// The requests of the list that starts at `first` complete together.
    pub(crate) fn complete_list(
        &mut self,
        cpu: usize,
        first: u64,
        at: u64,
        offsets: &Offsets,
        memory: &mut impl GuestMemory,
    ) {
        for request in chain(first, offsets.next_request, memory) {
            self.complete(cpu, request, at, offsets, memory);
        }
    }

    /// The submitter of all bios of a request. `None` if it is not known, if the bios have several submitters, and for
    /// requests without a bio.
    fn submitter_of(
        &self,
        request: u64,
        offsets: &Offsets,
        memory: &mut impl GuestMemory,
    ) -> Option<Submitter> {
        let first = memory.word_at(request.wrapping_add(offsets.request_bio?))?;
        let bios = chain(first, offsets.next_bio, memory);
        let submitter = *self.submitters.get(bios.first()?)?;
        let is_by_submitter = |bio: &u64| self.submitters.get(bio) == Some(&submitter);
        bios.iter().all(is_by_submitter).then_some(submitter)
    }

    /// Removes and returns the records that are not written yet.
    pub(crate) fn take_records(&mut self) -> Vec<Record> {
        std::mem::take(&mut self.records)
    }
}

/// The elements of a list whose elements have the address of the next one at an offset.
fn chain(first: u64, next_offset: Option<u64>, memory: &mut impl GuestMemory) -> Vec<u64> {
    let mut elements = Vec::new();
    let mut element = first;
    while element != 0 && elements.len() < CHAIN_MAX {
        elements.push(element);
        let next = next_offset.map(|offset| element.wrapping_add(offset));
        element = next.and_then(|next| memory.word_at(next)).unwrap_or(0);
    }
    elements
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::guest::memory::tests::TestMemory;

    const REQUEST: u64 = 0x1000;

    /// Requests at [`REQUEST`], with two bios, and at twice this address, with none.
    fn memory() -> TestMemory {
        let mut memory = TestMemory::default();
        let first = [(REQUEST, 0x10), (REQUEST + 8, 2 * REQUEST), (2 * REQUEST, 0)];
        for (address, word) in
            [&first[..], &[(2 * REQUEST + 8, 0), (0x10, 0x20), (0x20, 0)]].concat()
        {
            memory.write(address, &u64::to_le_bytes(word));
        }
        memory
    }

    fn by_task(pid: u32) -> Submitter {
        Submitter { context: KernelContext::Task(pid), comm: [b'a'; 16], group: 7 }
    }

    /// The task of each completion; `None` if it is not known.
    fn tasks(requests: &mut Requests) -> Vec<Option<u32>> {
        let task = |record: Record| match record {
            Record::Completion(completion) => match KernelContext::from_code(completion.code) {
                Some(KernelContext::Task(pid)) => Some(pid),
                _ => None,
            },
            other => panic!("{other:?}"),
        };
        requests.take_records().into_iter().map(task).collect()
    }

    fn complete(requests: &mut Requests) -> Vec<Option<u32>> {
        let offsets = "request.bio 0\nrequest.rq_next 8\nbio.bi_next 0\n";
        let offsets = Offsets::parse(offsets).unwrap();
        requests.complete_list(0, REQUEST, 9, &offsets, &mut memory());
        tasks(requests)
    }

    fn requests() -> Requests {
        let mut requests = Requests::default();
        requests.record();
        requests.open_region(1);
        requests
    }

    #[test]
    fn a_request_belongs_to_the_task_that_has_submitted_all_its_bios() {
        let mut requests = requests();
        requests.submit(0x10, by_task(5));
        assert_eq!(complete(&mut requests), [None, None], "the second bio is not known");
        requests.chain(0x20, 0x10);
        // A thread of the kernel submits the bio once more.
        requests.submit(0x10, by_task(6));
        assert_eq!(complete(&mut requests), [Some(5), None], "the second request has no bio");
        requests.end(0x20);
        requests.submit(0x20, by_task(6));
        assert_eq!(complete(&mut requests), [None, None], "two tasks");
        requests.end(0x10);
        assert!(!requests.is_submitted(0x10) && requests.is_submitted(0x20));
        requests.close_region();
        assert_eq!(complete(&mut requests), []);
    }

    #[test]
    fn a_bio_that_waits_for_an_unknown_one_has_no_submitter_yet() {
        let mut requests = requests();
        requests.chain(0x20, 0x10);
        assert!(!requests.is_submitted(0x20));
    }
}
