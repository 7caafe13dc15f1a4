//! Findings about the machine: kernel, processors, caches, clocks, hypervisor, steal time, tick, frequency, idle states
//! and affinities of interrupts. Each private function makes the finding about one subject from the facts.

use super::{Finding, or_unknown, with_proc, with_sys};
use crate::host::{HostFacts, KERNEL_MIN, KERNEL_REMEDY, format_cpu_list};

/// Clock sources that are unsuitable for short times: reading them takes about a microsecond,
/// or they change only at each tick.
const SLOW_CLOCKS: [&str; 5] = ["hpet", "acpi_pm", "pit", "jiffies", "refined-jiffies"];

/// A larger share of stolen time is a limitation.
const STEAL_RATIO_MAX: f64 = 0.001;

/// The findings about the machine, in the order of printing.
pub(super) fn findings(facts: &HostFacts) -> Vec<Finding> {
    let mut findings = Vec::new();
    if !facts.proc_mounted {
        let consequence = "nothing can be learnt of this machine, and no count can be compared";
        let finding = Finding::missing("/proc", "not mounted", consequence);
        findings.push(finding.unlocked_by("sudo mount -t proc proc /proc"));
    }
    if !facts.sys_mounted {
        let consequence = "CPUs, caches, clock source and BTF are unknown";
        let finding = Finding::missing("/sys", "not mounted", consequence);
        findings.push(finding.unlocked_by("sudo mount -t sysfs sysfs /sys"));
    }
    findings.push(kernel(facts));
    findings.push(cpus(facts));
    findings.push(caches(facts));
    findings.push(clock_source(facts));
    findings.extend(tsc(facts));
    findings.push(virtual_machine(facts));
    findings.extend(steal(facts));
    findings.push(tick(facts));
    findings.push(frequency(facts));
    findings.extend(idle(facts));
    findings.push(affinities(facts));
    findings
}

fn kernel(facts: &HostFacts) -> Finding {
    let kernel = &facts.kernel;
    let preemption = match (&kernel.preemption.built, &kernel.preemption.running) {
        (Some(built), Some(running)) => format!(", {built} ({running})"),
        (Some(built), None) => format!(", {built}"),
        _ => String::new(),
    };
    let release = or_unknown(kernel.release.as_deref());
    let says = format!("Linux {release} {}{preemption}", or_unknown(kernel.arch.as_deref()));
    match kernel.is_too_old() {
        Some(true) => {
            let (major, minor) = KERNEL_MIN;
            let consequence = format!("the BPF programs of `handlers` need Linux {major}.{minor}");
            Finding::missing("kernel", says, consequence).unlocked_by(KERNEL_REMEDY)
        }
        Some(false) => Finding::ok("kernel", says),
        None => Finding::limited(
            "kernel",
            says,
            "whether the BPF programs load is known only after trying",
        ),
    }
}

/// The finding about the processor and the online CPUs. Limited if there is only one CPU, or the list is not known.
fn cpus(facts: &HostFacts) -> Finding {
    let cpu = &facts.cpu;
    let Some(online) = &cpu.online else {
        let consequence = "rows per CPU and pinning depend on the list of CPUs in /sys";
        return with_sys(Finding::limited("CPUs", "unknown", consequence), facts);
    };
    let counted = |count: Option<usize>, noun: &str| {
        count.map(|count| format!(", {count} {noun}{}", if count == 1 { "" } else { "s" }))
    };
    let parts: String = [
        counted(cpu.packages(), "package"),
        counted(cpu.cores(), "core"),
        counted(cpu.nodes(), "NUMA node"),
    ]
    .into_iter()
    .flatten()
    .collect();
    let name = or_unknown(cpu.model.name.as_deref());
    let says = format!("{name}; online {} ({}){parts}", format_cpu_list(online), online.len());
    if online.len() > 1 {
        return Finding::ok("CPUs", says);
    }
    Finding::limited(
        "CPUs",
        says,
        "one CPU only: no interprocessor interrupts (no `--stimulus ipi`), and the source of the \
         interrupts shares the CPU with what is measured",
    )
    .unlocked_by("a second CPU: in a VM, -smp 2")
}

fn caches(facts: &HostFacts) -> Finding {
    if facts.last_level_cache_bytes().is_none() {
        let finding = Finding::limited(
            "caches",
            "sizes unknown",
            "the busy load takes a region of a fixed size, which may fit into the last-level cache",
        );
        let no_remedy = "nothing here: the machine does not report them to its kernel";
        return with_sys(finding.unlocked_by(no_remedy), facts);
    }
    let descriptions = facts.caches.iter().map(|cache| {
        let letter = match cache.kind.as_str() {
            "Data" => "d",
            "Instruction" => "i",
            _ => "",
        };
        let size = cache.size_bytes.map_or("?".to_owned(), |bytes| format!("{} KiB", bytes / 1024));
        let instances = match cache.instances {
            Some(count) if count > 1 => format!(" x{count}"),
            _ => String::new(),
        };
        format!("L{}{letter} {size}{instances}", cache.level)
    });
    Finding::ok("caches", descriptions.collect::<Vec<_>>().join(", "))
}

fn clock_source(facts: &HostFacts) -> Finding {
    let Some(source) = facts.clock.source.as_deref() else {
        let consequence = "the cost of reading the clock is measured, not predicted";
        return with_sys(Finding::limited("clock source", "unknown", consequence), facts);
    };
    let has_tsc = facts.clock.available.iter().flatten().any(|name| name == "tsc");
    if !SLOW_CLOCKS.contains(&source) {
        return Finding::ok("clock source", source);
    }
    let unlock = if has_tsc {
        "echo tsc | sudo tee /sys/devices/system/clocksource/clocksource0/current_clocksource"
    } else {
        "clocksource=tsc tsc=reliable on the kernel command line; with caution: the kernel has \
         rejected the TSC, and if it was right, time itself goes wrong (`sudo dmesg | grep -i tsc`)"
    };
    Finding::limited(
        "clock source",
        format!("{source}, which is slow to read"),
        "every span costs two clock reads of about 1 us, and short handlers drown in it",
    )
    .unlocked_by(unlock)
}

/// `None` on a processor that states nothing about its TSC.
fn tsc(facts: &HostFacts) -> Option<Finding> {
    let model = &facts.cpu.model;
    model.constant_tsc.and(model.nonstop_tsc)?;
    let frequency = match (facts.clock.tsc_khz, &facts.clock.tsc_khz_source) {
        (Some(khz), Some(source)) => {
            format!("{}.{:03} MHz (by {source})", khz / 1000, khz % 1000)
        }
        _ => "frequency not stated".to_owned(),
    };
    let Some(flaw) = model.tsc_flaw() else {
        return Some(Finding::ok("TSC", format!("{frequency}, constant, never stops")));
    };
    Some(
        Finding::limited(
            "TSC",
            format!("{frequency}, {flaw}"),
            "no columns in cycles; times in ns stay",
        )
        .unlocked_by("nothing: it is a property of the processor, or of what the hypervisor shows"),
    )
}

fn virtual_machine(facts: &HostFacts) -> Finding {
    let hypervisor = &facts.hypervisor;
    let machine = hypervisor.machine.as_deref();
    match hypervisor.present {
        Some(true) => {
            let product = machine.map(|machine| format!(" on {machine}")).unwrap_or_default();
            let name = hypervisor.name.as_deref().unwrap_or("a hypervisor that hides its name");
            Finding::limited(
                "virtual machine",
                format!("under {name}{product}"),
                "the costs are those of this VM, exits to its host included; the host may stop a \
                 CPU in the middle of a handler, which shows in max and p99.9",
            )
            .unlocked_by("nothing inside of a VM: measure on bare metal")
        }
        Some(false) => {
            let product = machine.map(|machine| format!(": {machine}")).unwrap_or_default();
            Finding::ok("virtual machine", format!("none{product}"))
        }
        None => Finding::ok("virtual machine", "not known; none is visible"),
    }
}

/// `None` if /proc/stat has no CPUs.
fn steal(facts: &HostFacts) -> Option<Finding> {
    if let Some(reason) = &facts.steal.unreported {
        let consequence = "time that other VMs take from this one cannot be told apart from the \
                           costs of this one";
        return Some(Finding::limited("steal", format!("unknown: {reason}"), consequence));
    }
    let ticks = facts.steal.steal_ticks()?;
    let ratio = facts.steal.steal_ratio()?;
    let says = format!("{:.3} % of the time since boot ({ticks} ticks)", ratio * 100.0);
    if ratio <= STEAL_RATIO_MAX {
        return Some(Finding::ok("steal", says));
    }
    let consequence = "other VMs take time from this one: handlers they interrupt look long \
                       (max, p99.9), and rates drop";
    let finding = Finding::limited("steal", says, consequence);
    Some(finding.unlocked_by("nothing inside of a VM: its host must give it CPUs of its own"))
}

/// The finding about the tick rate and the isolation of CPUs from the tick.
fn tick(facts: &HostFacts) -> Finding {
    let list = |cpus: &Option<Vec<u32>>| match cpus.as_deref() {
        None => "unknown".to_owned(),
        Some([]) => "none".to_owned(),
        Some(cpus) => format_cpu_list(cpus),
    };
    let isolation = format!(
        "nohz_full {}, isolcpus {}, rcu_nocbs {}",
        list(&facts.kernel.nohz_full),
        list(&facts.kernel.isolated),
        match facts.kernel.rcu_nocbs.as_deref() {
            None => "unknown",
            Some("") => "none",
            Some(cpus) => cpus,
        },
    );
    match facts.kernel.hz {
        Some(hz) => Finding::ok("tick", format!("HZ {hz}, {isolation}")),
        None => {
            let finding = Finding::limited(
                "tick",
                format!("HZ unknown, {isolation}"),
                "the expected tick rate is not known, so the measured one has no reference",
            );
            let module =
                "sudo modprobe configs (where the kernel has its configuration as a module)";
            with_proc(finding.unlocked_by(module), facts)
        }
    }
}

fn frequency(facts: &HostFacts) -> Finding {
    let governors = facts.cpu.governors();
    let driver = facts.cpu.frequency_driver.as_deref().unwrap_or("cpufreq");
    match governors[..] {
        [] if facts.cpu.online.is_none() => {
            let consequence = "times in ns may depend on the frequency of the moment";
            with_sys(Finding::limited("frequency", "unknown", consequence), facts)
        }
        [] => Finding::ok("frequency", "not scaled by this kernel"),
        ["performance"] => Finding::ok("frequency", format!("{driver}, governor performance")),
        _ => Finding::limited(
            "frequency",
            format!("{driver}, governor {}", governors.join(", ")),
            "times in ns depend on the frequency of the moment: rows of `--rate low` and \
             `--load idle` look more expensive than they are at full speed",
        )
        .unlocked_by("sudo cpupower frequency-set -g performance"),
    }
}

fn idle(facts: &HostFacts) -> Option<Finding> {
    let driver = facts.cpu.idle_driver.as_deref()?;
    let governor = facts.cpu.idle_governor.as_deref();
    let governor = governor.map(|name| format!(", governor {name}")).unwrap_or_default();
    Some(Finding::ok("idle states", format!("driver {driver}{governor}")))
}

fn affinities(facts: &HostFacts) -> Finding {
    let Some(irqs) = &facts.irqs else {
        let consequence = "the CPU of an interrupt is unknown in advance";
        return with_proc(Finding::limited("IRQ affinities", "unknown", consequence), facts);
    };
    let in_use: Vec<_> = irqs.iter().filter(|irq| !irq.actions.is_empty()).collect();
    let Some(online) = &facts.cpu.online else {
        let says = format!("{} IRQs in use", in_use.len());
        let consequence =
            "which CPUs are online is not known, so nor is whether an IRQ is allowed on all";
        return with_sys(Finding::limited("IRQ affinities", says, consequence), facts);
    };
    let allows_all_online = |allowed: &Vec<u32>| online.iter().all(|cpu| allowed.contains(cpu));
    let anywhere =
        in_use.iter().filter(|irq| irq.allowed.as_ref().is_some_and(allows_all_online)).count();
    let says = format!("{} IRQs in use, {anywhere} of them allowed on every CPU", in_use.len());
    Finding::ok("IRQ affinities", says)
}
