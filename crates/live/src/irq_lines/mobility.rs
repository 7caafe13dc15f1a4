//! Whether the kernel lets a line move.
//!
//! No file that every kernel has says so. Kernels with CONFIG_GENERIC_IRQ_DEBUGFS list the flags of a line. On others,
//! irqlab writes a text that is no list of CPUs: the kernel refuses a line that cannot move with EIO (EPERM since Linux
//! 6.14) before it reads the text, and refuses the text with EINVAL (`write_irq_affinity` in kernel/irq/proc.c). Both
//! leave the line as it is.

use std::fs::OpenOptions;
use std::io::Write;
use std::os::unix::fs::OpenOptionsExt;

use crate::host::Root;

/// A text that the kernel never takes for a list of CPUs.
const NO_LIST: &[u8] = b"x";

/// Whether a line can be moved.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Mobility {
    Movable,
    /// The kernel manages the line's CPUs, as it does for the queues of many disks (IRQD_AFFINITY_MANAGED).
    Managed,
    /// The line belongs to one CPU (IRQD_PER_CPU), or its driver excludes it from balancing (IRQD_NO_BALANCING).
    PerCpu,
    /// The kernel refuses to move the line, and no file says why: it is managed, of one CPU, or its controller cannot.
    Refused,
    /// This user may not ask.
    Unknown,
}

impl Mobility {
    /// Why the line cannot be moved; `None` if it can be, or if it is not known.
    #[must_use]
    pub fn obstacle(self) -> Option<&'static str> {
        match self {
            Mobility::Movable | Mobility::Unknown => None,
            Mobility::Managed => Some("cannot move: the kernel manages its CPUs"),
            Mobility::PerCpu => Some("cannot move: it belongs to one CPU"),
            Mobility::Refused => Some("cannot move: the kernel refuses"),
        }
    }
}

/// Whether a line can be moved, from the flags in debugfs or by the refusal of a text that changes nothing.
pub(super) fn of_line(root: &Root, irq: u32) -> Mobility {
    if let Some(flags) = root.text(format!("sys/kernel/debug/irq/irqs/{irq}")) {
        return of_flags(&flags);
    }
    if root.is_live() { by_refusal(irq) } else { Mobility::Unknown }
}

fn of_flags(flags: &str) -> Mobility {
    let has = |flag: &str| flags.split_whitespace().any(|word| word == flag);
    if has("IRQD_AFFINITY_MANAGED") {
        Mobility::Managed
    } else if has("IRQD_PER_CPU") || has("IRQD_NO_BALANCING") {
        Mobility::PerCpu
    } else {
        Mobility::Movable
    }
}

fn by_refusal(irq: u32) -> Mobility {
    let mut options = OpenOptions::new();
    options.write(true).custom_flags(libc::O_NONBLOCK | libc::O_CLOEXEC);
    let Ok(mut file) = options.open(format!("/proc/irq/{irq}/smp_affinity_list")) else {
        return Mobility::Unknown;
    };
    match file.write(NO_LIST).map_err(|error| error.raw_os_error()) {
        Err(Some(libc::EINVAL)) => Mobility::Movable,
        Err(Some(libc::EIO | libc::EPERM)) => Mobility::Refused,
        _ => Mobility::Unknown,
    }
}

/// Whether this process may write the CPUs of lines. `irqs`: numbers of lines.
///
/// Fails with the kernel's error if no file can be opened.
pub fn has_rights(irqs: impl IntoIterator<Item = u32>) -> std::io::Result<()> {
    let mut result = Ok(());
    for irq in irqs {
        let path = format!("/proc/irq/{irq}/smp_affinity_list");
        match OpenOptions::new().write(true).open(path) {
            Ok(_) => return Ok(()),
            Err(error) => result = Err(error),
        }
    }
    result
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::host::plant;

    #[test]
    fn flags_in_debugfs_say_whether_a_line_can_move() {
        let directory = tempfile::tempdir().unwrap();
        let root = Root::new(directory.path());
        let mobility = |flags: &str| {
            let text = format!("handler:  handle_edge_irq\ndstate:   0x1\n            {flags}\n");
            plant(directory.path(), "sys/kernel/debug/irq/irqs/7", text);
            of_line(&root, 7)
        };
        assert_eq!(mobility("IRQD_ACTIVATED"), Mobility::Movable);
        assert_eq!(
            mobility("IRQD_ACTIVATED\n            IRQD_AFFINITY_MANAGED"),
            Mobility::Managed
        );
        assert_eq!(mobility("IRQD_PER_CPU"), Mobility::PerCpu);
        assert_eq!(mobility("IRQD_NO_BALANCING"), Mobility::PerCpu);
        assert_eq!(of_line(&root, 8), Mobility::Unknown, "not this machine");
    }
}
