//! The threads of IRQ lines. Each runs a handler, or the longer part of a handler, as a task.

use super::root::Root;

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct IrqThread {
    /// The number of the line.
    pub irq: u32,
    /// Name of the action; the thread's name may contain only its start.
    pub action: String,
}

/// Parses the line and the action from a thread's name, `irq/36-virtio1-req`; a secondary
/// thread has the name `irq/36-s-ACTION` (kernel/irq/manage.c, `setup_irq_thread`). The kernel
/// cuts names to 15 bytes.
#[must_use]
pub fn irq_of_thread(name: &str) -> Option<(u32, &str)> {
    let (irq, action) = name.strip_prefix("irq/")?.split_once('-')?;
    Some((irq.parse().ok()?, action))
}

/// Whether /proc lists the kernel's threads. It does not in a PID namespace of its own, nor for
/// every user if /proc is mounted with `hidepid`. `kthreadd` is the second process of every kernel.
#[must_use]
pub fn kernel_threads_are_visible(root: &Root) -> bool {
    root.word("proc/2/comm").as_deref() == Some("kthreadd")
}

/// The threads of IRQ lines that live now and that /proc lists.
#[must_use]
pub fn irq_threads(root: &Root) -> Vec<IrqThread> {
    let names = root.names("proc").unwrap_or_default();
    let processes = names.iter().filter(|name| name.bytes().all(|byte| byte.is_ascii_digit()));
    processes
        .filter_map(|process| {
            let name = root.word(format!("proc/{process}/comm"))?;
            let (irq, action) = irq_of_thread(&name)?;
            // A process may take any name; a kernel thread has no command line.
            let is_kernels = root.word(format!("proc/{process}/cmdline")).is_none();
            is_kernels.then(|| IrqThread { irq, action: action.to_owned() })
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::super::root::plant;
    use super::*;

    #[test]
    fn kernel_threads_of_irq_lines_are_found_by_their_names() {
        let directory = tempfile::tempdir().unwrap();
        let write_file =
            |path: &str, text: &str| plant(directory.path(), &format!("proc/{path}"), text);
        for (process, name, command) in [
            ("50", "irq/24-ACPI:Ged", ""),
            ("51", "irq/36-s-nvme0q", ""),
            ("52", "irq/9-forged", "/bin/x\0"),
            ("53", "irq/none", ""),
            ("54", "ksoftirqd/0", ""),
        ] {
            write_file(&format!("{process}/comm"), &format!("{name}\n"));
            write_file(&format!("{process}/cmdline"), command);
        }
        assert!(!kernel_threads_are_visible(&Root::new(directory.path())));
        write_file("2/comm", "kthreadd\n");
        assert!(kernel_threads_are_visible(&Root::new(directory.path())));
        let thread = |irq, action: &str| IrqThread { irq, action: action.to_owned() };
        let found = irq_threads(&Root::new(directory.path()));
        assert_eq!(found, [thread(24, "ACPI:Ged"), thread(36, "s-nvme0q")]);
    }
}
