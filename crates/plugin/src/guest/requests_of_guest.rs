//! Reads from the guest who submits block requests, and which requests complete.

use attribution::KernelContext;
use plugin_interface::symbols::Action;
use simrecord::counters::TIME;

use crate::guest::requests::Submitter;
use crate::guest::tracker::{Moment, Tracker};

impl Tracker {
    /// Handles an event of a bio or a request, which is the first argument of the function that starts.
    pub(super) fn handle_request(&mut self, cpu: usize, action: Action, mut moment: Moment<'_>) {
        let argument = moment.qemu.register_value(moment.registers.rdi);
        let now_cycles = moment.now[TIME];
        match action {
            Action::SubmitBio if !self.requests.is_submitted(argument) => {
                let submitter = self.submitter(cpu, &mut moment);
                self.requests.submit(argument, submitter);
            }
            Action::ChainBio => {
                let parent = moment.qemu.register_value(moment.registers.rsi);
                self.requests.chain(argument, parent);
            }
            Action::EndBio => self.requests.end(argument),
            Action::CompleteRequest => {
                self.requests.complete(cpu, argument, now_cycles, &self.offsets, moment.qemu);
            }
            Action::CompleteRequests => {
                let list = self.offsets.request_list.map(|offset| argument.wrapping_add(offset));
                if let Some(first) = list.and_then(|list| moment.word(list)) {
                    self.requests.complete_list(cpu, first, now_cycles, &self.offsets, moment.qemu);
                }
            }
            _ => {}
        }
    }

    /// The task, interrupt or softirq that a CPU executes now.
    fn submitter(&mut self, cpu: usize, moment: &mut Moment<'_>) -> Submitter {
        if let Some(context) = self.interrupt_that_sends(cpu, moment) {
            return Submitter { context, comm: [0; 16], group: 0 };
        }
        let context = KernelContext::Task(self.current_pid(cpu, moment));
        self.note_group(cpu, moment);
        let task = Some(self.cpus[cpu].task).filter(|task| *task != 0);
        let comm = task.zip(self.offsets.comm);
        let comm = comm.and_then(|(task, comm)| moment.qemu.memory(task.wrapping_add(comm)));
        Submitter { context, comm: comm.unwrap_or([0; 16]), group: self.groups.group_on(cpu) }
    }
}
