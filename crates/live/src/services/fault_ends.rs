//! Runs a BPF program at the end of each page fault. The end has no tracepoint, but a software event of the kernel
//! counts a fault when its page is present.

use std::io;
use std::os::fd::{AsRawFd, FromRawFd, IntoRawFd, OwnedFd};

use libbpf_rs::{Link, ProgramMut};
use perf_event_open_sys as perf;
use perf_event_open_sys::bindings as b;

use crate::bpf::BpfError;
use crate::bpf::object::failure;

/// Minor faults, which waited for no device, and major faults, which did.
const EVENTS: [b::perf_sw_ids; 2] =
    [b::PERF_COUNT_SW_PAGE_FAULTS_MIN, b::PERF_COUNT_SW_PAGE_FAULTS_MAJ];

/// Runs a program at the end of each page fault, until this value is dropped.
pub(super) struct FaultEnds {
    _links: Vec<Link>,
}

impl FaultEnds {
    /// Attaches `program` on each CPU.
    ///
    /// Fails if the kernel refuses an event or the program.
    pub(super) fn attach(program: &ProgramMut<'_>, cpus: &[u32]) -> Result<FaultEnds, BpfError> {
        let mut links = Vec::new();
        for &cpu in cpus {
            for event in EVENTS {
                let event = open(event, cpu).map_err(|error| {
                    BpfError::Failed(format!(
                        "perf_event_open of page faults on CPU {cpu}: {error}"
                    ))
                })?;
                let link = program.attach_perf_event(event.as_raw_fd());
                links.push(link.map_err(|error| failure("attaching fault_handled", &error))?);
                let _ = event.into_raw_fd(); // libbpf closes the descriptor with the link.
            }
        }
        Ok(FaultEnds { _links: links })
    }
}

/// Opens an event of all tasks on a CPU. Each occurrence is a sample.
fn open(event: b::perf_sw_ids, cpu: u32) -> io::Result<OwnedFd> {
    let mut attributes = b::perf_event_attr {
        type_: b::PERF_TYPE_SOFTWARE,
        size: size_of::<b::perf_event_attr>() as u32,
        config: u64::from(event),
        ..b::perf_event_attr::default()
    };
    attributes.__bindgen_anon_1.sample_period = 1;
    let flags = u64::from(b::PERF_FLAG_FD_CLOEXEC);
    // SAFETY: `attributes` is a whole perf_event_attr with its size set, and outlives the call.
    let fd = unsafe { perf::perf_event_open(&mut attributes, -1, cpu as i32, -1, flags) };
    if fd < 0 {
        return Err(io::Error::last_os_error());
    }
    // SAFETY: the kernel has just returned this descriptor, which nobody else owns.
    Ok(unsafe { OwnedFd::from_raw_fd(fd) })
}
