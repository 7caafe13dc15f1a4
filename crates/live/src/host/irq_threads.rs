//! The threads of IRQ lines. Such a thread runs an interrupt handler, or its longer part, as a task. `handlers`
//! measures the threads only if the machine has any.

use super::root::Root;

/// A thread of an IRQ line.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct IrqThread {
    /// The number of the line.
    pub irq: u32,
    /// Name of the handler, or only its start, because the kernel cuts the names of threads.
    pub action: String,
}

/// Parses the line's number and the handler's name from the name of a thread, such as `irq/36-virtio1-req`. A secondary
/// thread has the name `irq/36-s-ACTION` (kernel/irq/manage.c, `setup_irq_thread`). The kernel cuts names to 15 bytes.
#[must_use]
pub fn irq_of_thread(name: &str) -> Option<(u32, &str)> {
    let (irq, action) = name.strip_prefix("irq/")?.split_once('-')?;
    Some((irq.parse().ok()?, action))
}

/// Whether /proc lists the kernel's threads. It does not list them in another PID namespace, or if /proc is mounted
/// with `hidepid`. The test is process 2, which is `kthreadd` on every machine.
#[must_use]
pub fn kernel_threads_are_visible(root: &Root) -> bool {
    root.word("proc/2/comm").as_deref() == Some("kthreadd")
}

/// The threads of IRQ lines that /proc lists now.
#[must_use]
pub fn irq_threads(root: &Root) -> Vec<IrqThread> {
    let names = root.names("proc").unwrap_or_default();
    let processes = names.iter().filter(|name| name.bytes().all(|byte| byte.is_ascii_digit()));
    processes
        .filter_map(|process| {
            let name = root.word(format!("proc/{process}/comm"))?;
            let (irq, action) = irq_of_thread(&name)?;
            // A process can choose such a name, too, but only a kernel thread has no command line.
            let is_kernel_thread = root.word(format!("proc/{process}/cmdline")).is_none();
            is_kernel_thread.then(|| IrqThread { irq, action: action.to_owned() })
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
