//! Finds out whether a vCPU is halted, takes interrupts and is in user mode, from the text that QEMU's monitor
//! prints for `info registers`.
//!
//! QEMU's `cpu_thread_is_idle` does not answer this. It is about threads: a halted vCPU with queued work, for example
//! the flush of its TLB, is not idle.

use std::ffi::{c_char, c_int, c_void};
use std::ptr;

use crate::qemu::INTERRUPT_FLAG;
use crate::qemu::ffi;

type DumpState = unsafe extern "C" fn(*mut c_void, *mut libc::FILE, c_int);

/// The privilege level of user mode.
const USER_LEVEL: u8 = b'3';

/// The activity of a vCPU between two blocks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Activity {
    UserMode,
    /// The vCPU is halted until an interrupt comes.
    Halted,
    /// The vCPU executes the kernel or firmware, or it is halted and takes no interrupts: it waits for its start.
    Other,
}

/// QEMU's `cpu_dump_state`.
#[derive(Clone, Copy, Debug)]
pub(crate) struct VcpuState(DumpState);

impl VcpuState {
    /// `None` if QEMU does not export the function.
    pub(crate) fn find() -> Option<VcpuState> {
        function!(c"cpu_dump_state" as DumpState).map(VcpuState)
    }

    /// Whether `cpu` is halted. `None` if the text does not tell.
    pub(crate) fn is_halted(self, cpu: *mut c_void) -> Option<bool> {
        halted_in(&self.text(cpu)?)
    }

    /// Whether `cpu` takes interrupts. `None` if the text does not tell.
    pub(crate) fn takes_interrupts(self, cpu: *mut c_void) -> Option<bool> {
        Some(flags_in(&self.text(cpu)?)? & INTERRUPT_FLAG != 0)
    }

    /// The activity of `cpu`. `None` if the text does not tell.
    pub(crate) fn activity(self, cpu: *mut c_void) -> Option<Activity> {
        activity_in(&self.text(cpu)?)
    }

    /// The text with the registers and flags of a vCPU. `None` if memory is short, or the text is not UTF-8.
    fn text(self, cpu: *mut c_void) -> Option<String> {
        let (mut text, mut bytes): (*mut c_char, usize) = (ptr::null_mut(), 0);
        // SAFETY: the stream writes into its own buffer. It sets both variables when it is closed, and they exist until
        // then. QEMU only reads the vCPU, which exists until the machine ends.
        unsafe {
            let stream = libc::open_memstream(&raw mut text, &raw mut bytes);
            if stream.is_null() {
                return None;
            }
            (self.0)(cpu, stream, 0);
            libc::fclose(stream);
        }
        if text.is_null() {
            return None;
        }
        // SAFETY: the buffer has `bytes` bytes, and this function frees it.
        let copied = unsafe { std::slice::from_raw_parts(text.cast::<u8>(), bytes) }.to_vec();
        // SAFETY: `malloc` made the buffer, and nothing else frees it.
        unsafe { libc::free(text.cast()) };
        String::from_utf8(copied).ok()
    }
}

/// Whether QEMU's dump of a vCPU says that the vCPU is halted: the value of `HLT=` (QEMU's target/i386/cpu-dump.c). `None`
/// without such a value.
fn halted_in(text: &str) -> Option<bool> {
    match text.split_once("HLT=")?.1.as_bytes().first()? {
        b'0' => Some(false),
        b'1' => Some(true),
        _ => None,
    }
}

/// The flags register in QEMU's dump of a vCPU: the value of `RFL=`. `None` without such a value.
fn flags_in(text: &str) -> Option<u32> {
    let digits = text.split_once("RFL=")?.1.split_ascii_whitespace().next()?;
    u32::from_str_radix(digits, 16).ok()
}

/// The activity of a vCPU, by the values of `HLT=`, `RFL=` and `CPL=`. `None` if any of them is missing.
fn activity_in(text: &str) -> Option<Activity> {
    let level = *text.split_once("CPL=")?.1.as_bytes().first()?;
    Some(match (halted_in(text)?, flags_in(text)? & INTERRUPT_FLAG != 0) {
        (true, true) => Activity::Halted,
        (false, _) if level == USER_LEVEL => Activity::UserMode,
        _ => Activity::Other,
    })
}

#[cfg(test)]
mod tests {
    use super::{Activity, activity_in, flags_in, halted_in};

    #[test]
    fn halted_is_read_where_qemu_prints_it() {
        let line = |halted| {
            format!("RIP=0000 RFL=00000246 [---Z-P-] CPL=0 II=0 A20=1 SMM=0 HLT={halted}\nES")
        };
        assert_eq!(halted_in(&line(1)), Some(true));
        assert_eq!(halted_in(&line(0)), Some(false));
        assert_eq!(flags_in(&line(0)), Some(0x246));
        assert_eq!(flags_in("RFL="), None);
        assert_eq!(halted_in("R00=00000000"), None);
        assert_eq!(halted_in("SMM=0 HLT="), None);
    }

    #[test]
    fn a_vcpu_without_interrupts_waits_for_its_start() {
        let activity = |halted, flags, level| {
            activity_in(&format!("RFL={flags} [-------] CPL={level} II=0 SMM=0 HLT={halted}\n"))
        };
        assert_eq!(activity(1, "00000246", 0), Some(Activity::Halted));
        assert_eq!(activity(1, "00000002", 0), Some(Activity::Other));
        assert_eq!(activity(0, "00000246", 3), Some(Activity::UserMode));
        assert_eq!(activity(0, "00000246", 0), Some(Activity::Other));
        assert_eq!(activity_in("RFL=00000246 SMM=0 HLT=0"), None);
    }
}
