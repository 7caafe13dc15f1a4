//! Facts about the kernel: version, tick rate, isolated CPUs and preemption model. Also the options of its command line
//! that change the cost or the routing of interrupts.

use std::collections::BTreeMap;
use std::io::Read;

use lab::kernel_options;
use serde::Serialize;

use super::cpu_list::{format_cpu_list, parse_cpu_list};
use super::root::Root;

/// Largest configuration that is read. A configuration has about 300 KiB of text.
const CONFIG_BYTES_MAX: usize = 4 << 20;

/// Options of the kernel command line that change the cost or the routing of interrupts. The other
/// options are not kept, because they may be private.
const BOOT_OPTIONS: [&str; 26] = [
    "clocksource",
    "cpuidle_haltpoll.force",
    "idle",
    "intel_idle.max_cstate",
    "intel_pstate",
    "irqaffinity",
    "isolcpus",
    "kthread_cpus",
    "lockdown",
    "mitigations",
    "nmi_watchdog",
    "nohz",
    "nohz_full",
    "nopv",
    "nosmt",
    "nowatchdog",
    "preempt",
    "processor.max_cstate",
    "rcu_nocb_poll",
    "rcu_nocbs",
    "skew_tick",
    "threadirqs",
    "tsc",
    "workqueue.unbound_cpus",
    "amd_pstate",
    "hpet",
];

/// Facts about the kernel.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct KernelFacts {
    /// Output of `uname -r`, such as `6.1.0-18-amd64`.
    pub release: Option<String>,
    /// Output of `uname -v`: build number, PREEMPT marks, date.
    pub version: Option<String>,
    /// Output of `uname -m`, such as `x86_64`.
    pub arch: Option<String>,
    /// The file, below the root, from which the configuration was read.
    pub config_source: Option<String>,
    /// Ticks per second (CONFIG_HZ). `None` if the configuration cannot be read.
    pub hz: Option<u32>,
    pub preemption: Preemption,
    /// CPUs whose tick stops while one task runs (`nohz_full=`); empty if there are none.
    pub nohz_full: Option<Vec<u32>>,
    /// CPUs kept from the scheduler's load balancing (`isolcpus=`); empty if there are none.
    pub isolated: Option<Vec<u32>>,
    /// CPUs whose RCU callbacks run in threads: those of `rcu_nocbs=` and of `nohz_full=`, or `all`. Empty if there are
    /// none. `None` if the command line or the kernel's default is not known.
    pub rcu_nocbs: Option<String>,
    /// Whether a thread's CPU clocks exclude the interrupts during it (CONFIG_IRQ_TIME_ACCOUNTING without
    /// `tsc=noirqtime`). Even then the kernel includes them if its clock is unstable. `None` if the configuration cannot
    /// be read.
    pub irq_time_accounting: Option<bool>,
    /// The build options that change what kernel paths cost. `None` if the configuration cannot be read.
    pub costly_options: Option<Vec<String>>,
    /// The options of the command line in `BOOT_OPTIONS`; the value is empty for mere switches. An option that occurs
    /// several times has all its values, in their order, with a space between two.
    pub boot_options: Option<BTreeMap<String, String>>,
}

/// The kernel's preemption model: as built, and in force.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Preemption {
    /// The model in the kernel's configuration: `PREEMPT_RT`, `PREEMPT_DYNAMIC`, `PREEMPT`, `PREEMPT_LAZY`,
    /// `PREEMPT_VOLUNTARY` or `PREEMPT_NONE`. `PREEMPT or PREEMPT_LAZY` if the configuration, which alone tells the two
    /// apart, cannot be read.
    pub built: Option<String>,
    /// The mode in force on a kernel that offers a choice at boot: `none`, `voluntary`, `full`, `lazy`. Read from
    /// debugfs (root only), otherwise from `preempt=`, otherwise the configured default. `None` on other kernels.
    pub running: Option<String>,
    /// Whether this is a real-time kernel.
    pub realtime: Option<bool>,
}

/// The values of the options that are set in a kernel configuration, by name without `CONFIG_`.
pub(crate) type KernelConfig = BTreeMap<String, String>;

/// Reads the facts about the kernel.
#[must_use]
pub fn kernel_facts(root: &Root) -> KernelFacts {
    let uname = root.is_live().then(rustix::system::uname);
    let file_or_uname = |path: &str, from_uname: Option<&std::ffi::CStr>| {
        root.word(path).or_else(|| from_uname.map(|text| text.to_string_lossy().into_owned()))
    };
    let release =
        file_or_uname("proc/sys/kernel/osrelease", uname.as_ref().map(|name| name.release()));
    let version =
        file_or_uname("proc/sys/kernel/version", uname.as_ref().map(|name| name.version()));
    let arch = file_or_uname("proc/sys/kernel/arch", uname.as_ref().map(|name| name.machine()));
    let (config_source, config) = match read_config(root, release.as_deref()) {
        Some((source, config)) => (Some(source), Some(config)),
        None => (None, None),
    };
    let boot_options = root.text("proc/cmdline").map(|line| parse_boot_options(&line));
    let cpus = |path: &str, option: &str| {
        let listed = root.text(path).and_then(|list| match list.trim() {
            // The kernel has no such set of CPUs, whatever its command line says.
            "(null)" => Some(Vec::new()),
            list => parse_cpu_list(list).ok(),
        });
        listed.or_else(|| match last_value(boot_options.as_ref()?, option) {
            // A kernel without the file was built without the option, and ignores it.
            Some(_) if root.exists("sys/devices/system/cpu/online") && !root.exists(path) => {
                Some(Vec::new())
            }
            Some(value) => parse_cpu_list(value).ok(),
            None => Some(Vec::new()), // the option is absent: no CPUs
        })
    };
    let nohz_full = cpus("sys/devices/system/cpu/nohz_full", "nohz_full");
    let option = boot_options.as_ref().map(|options| last_value(options, "rcu_nocbs"));
    KernelFacts {
        hz: config.as_ref().and_then(|config| config.get("HZ")?.parse().ok()),
        preemption: preemption(
            root,
            [release.as_deref(), version.as_deref()],
            config.as_ref(),
            boot_options.as_ref(),
        ),
        rcu_nocbs: option
            .and_then(|option| offloaded_cpus(option, nohz_full.as_deref()?, config.as_ref())),
        irq_time_accounting: irq_time_accounting(config.as_ref(), boot_options.as_ref()),
        nohz_full,
        isolated: cpus("sys/devices/system/cpu/isolated", "isolcpus"),
        release,
        version,
        arch,
        config_source,
        costly_options: config.as_ref().map(kernel_options::costly),
        boot_options,
    }
}

/// Oldest kernel that accepts the BPF programs of `irqlab handlers`, as major and minor number. The programs use the
/// result of an atomic addition (BPF_FETCH in include/uapi/linux/bpf.h), and pass pointers to global functions. The
/// verifier accepts both since Linux 5.12.
pub const KERNEL_MIN: (u32, u32) = (5, 12);

/// Remedy for a kernel older than [`KERNEL_MIN`]: which kernels to use.
pub const KERNEL_REMEDY: &str = "a kernel of 5.12 or later (Debian 12, Ubuntu 22.04, RHEL 9)";

impl KernelFacts {
    /// Whether the release is older than [`KERNEL_MIN`]; `None` if the release has no number.
    #[must_use]
    pub fn is_too_old(&self) -> Option<bool> {
        self.version_pair().map(|version| version < KERNEL_MIN)
    }

    /// Major and minor number of the release: (6, 1) for `6.1.0-18-amd64`. `None` if the release is not known, or does
    /// not begin with two numbers.
    #[must_use]
    pub fn version_pair(&self) -> Option<(u32, u32)> {
        version_pair(self.release.as_deref()?)
    }
}

/// Major and minor number of a release.
fn version_pair(release: &str) -> Option<(u32, u32)> {
    let mut numbers = release.split(|character: char| !character.is_ascii_digit());
    Some((numbers.next()?.parse().ok()?, numbers.next()?.parse().ok()?))
}

/// Reads the kernel's configuration; returns the file's path and the options. The file in /boot or /lib/modules must
/// be that of the running release.
fn read_config(root: &Root, release: Option<&str>) -> Option<(String, KernelConfig)> {
    if let Some(packed) = root.bytes("proc/config.gz", CONFIG_BYTES_MAX) {
        let mut text = Vec::new();
        let mut unpacked = flate2::read::GzDecoder::new(&packed[..]).take(CONFIG_BYTES_MAX as u64);
        if unpacked.read_to_end(&mut text).is_ok() {
            let config = kernel_options::parse(&String::from_utf8_lossy(&text));
            return Some(("/proc/config.gz".to_owned(), config));
        }
    }
    // The release becomes a part of a path.
    let release = release.filter(|release| !release.contains('/'))?;
    [format!("/boot/config-{release}"), format!("/lib/modules/{release}/config")]
        .into_iter()
        .find_map(|path| {
            let config = kernel_options::parse(&root.text_up_to(&path, CONFIG_BYTES_MAX)?);
            Some((path, config))
        })
}

/// The options of a kernel command line that are in [`BOOT_OPTIONS`], with all their values. Ignores the arguments of init,
/// after `--`. Like the kernel (`parameq` in kernel/params.c), takes `-` and `_` in a name for the same.
fn parse_boot_options(line: &str) -> BTreeMap<String, String> {
    let mut options = BTreeMap::new();
    for argument in line.split_whitespace().take_while(|word| *word != "--") {
        let (name, value) = argument.split_once('=').unwrap_or((argument, ""));
        let name = name.replace('-', "_");
        let Some(known) = BOOT_OPTIONS.iter().find(|known| **known == name) else { continue };
        let values = options.entry((*known).to_owned()).or_insert_with(Vec::new);
        values.push(value);
    }
    options.into_iter().map(|(name, values)| (name, values.join(" "))).collect()
}

/// The last value of an option, which counts where a later value replaces an earlier one.
fn last_value<'a>(options: &'a BTreeMap<String, String>, name: &str) -> Option<&'a str> {
    options.get(name)?.rsplit(' ').next()
}

/// Whether the kernel uses the services of KVM for its guests: it is built with them, and `nopv` does not turn them off.
/// False if the configuration cannot be read.
pub(super) fn is_kvm_guest(root: &Root) -> bool {
    let line = root.text("proc/cmdline").unwrap_or_default();
    let release = root.word("proc/sys/kernel/osrelease");
    !parse_boot_options(&line).contains_key("nopv")
        && read_config(root, release.as_deref())
            .is_some_and(|(_, config)| config.contains_key("KVM_GUEST"))
}

/// Whether the scheduler's clock of a task excludes interrupts: if the kernel is built so, and `tsc=noirqtime` does not turn
/// it off. Each `tsc=` sets a flag, so a later one does not undo an earlier one, and the kernel compares only the first
/// characters of the value (`tsc_setup` in arch/x86/kernel/tsc.c).
fn irq_time_accounting(
    config: Option<&KernelConfig>,
    boot: Option<&BTreeMap<String, String>>,
) -> Option<bool> {
    let is_built = config?.contains_key("IRQ_TIME_ACCOUNTING");
    let values = boot.and_then(|options| options.get("tsc")).map_or("", String::as_str);
    Some(is_built && !values.split(' ').any(|value| value.starts_with("noirqtime")))
}

/// CPUs whose RCU callbacks run in threads, as rcu_init_nohz() of the kernel computes them. `option`: the value of
/// `rcu_nocbs=`; `None` if the option is absent. Returns `None` if the kernel's default decides and is not known.
fn offloaded_cpus(
    option: Option<&str>,
    nohz_full: &[u32],
    config: Option<&KernelConfig>,
) -> Option<String> {
    let is_built = |name: &str| config.map(|config| config.contains_key(name));
    if is_built("RCU_NOCB_CPU") == Some(false) {
        return Some(String::new()); // this kernel ignores the option
    }
    match (option, nohz_full) {
        (None, []) => {
            let are_all = is_built("RCU_NOCB_CPU_DEFAULT_ALL")?;
            Some(if are_all { "all" } else { "" }.to_owned())
        }
        (None | Some(""), cpus) => Some(format_cpu_list(cpus)),
        (Some(value), cpus) => match parse_cpu_list(value) {
            Ok(mut listed) => {
                listed.extend(cpus);
                listed.sort_unstable();
                listed.dedup();
                Some(format_cpu_list(&listed))
            }
            // The kernel also understands `all` and other forms.
            Err(_) if cpus.is_empty() || value == "all" => Some(value.to_owned()),
            Err(_) => Some(format!("{value},{}", format_cpu_list(cpus))),
        },
    }
}

/// Modes that `preempt=` accepts. The kernel ignores other values.
const PREEMPTION_MODES: [&str; 4] = ["none", "voluntary", "full", "lazy"];

/// The preemption model, from release and version of the kernel (with marks), the configuration and the boot options.
fn preemption(
    root: &Root,
    [release, version]: [Option<&str>; 2],
    config: Option<&KernelConfig>,
    boot: Option<&BTreeMap<String, String>>,
) -> Preemption {
    let may_be_lazy = release.and_then(version_pair).is_some_and(|release| release >= LAZY_SINCE);
    let built = built_model(version.unwrap_or_default(), may_be_lazy, config);
    // Kernels of other models ignore `preempt=`.
    let mode_at_boot = || {
        if built != Some("PREEMPT_DYNAMIC") {
            return None;
        }
        let values = boot.and_then(|options| options.get("preempt")).map_or("", String::as_str);
        let known = values.split(' ').rfind(|mode| PREEMPTION_MODES.contains(mode));
        known.map(str::to_owned).or_else(|| configured_mode(config?))
    };
    let running = root
        .word("sys/kernel/debug/sched/preempt")
        .and_then(|modes| bracketed(&modes))
        .or_else(mode_at_boot);
    let realtime = match (root.word("sys/kernel/realtime"), version) {
        (Some(flag), _) => Some(flag == "1"),
        (None, Some(_)) => Some(built == Some("PREEMPT_RT")),
        (None, None) => None,
    };
    Preemption { built: built.map(str::to_owned), running, realtime }
}

/// The first kernel with the model `PREEMPT_LAZY`, as major and minor number.
const LAZY_SINCE: (u32, u32) = (6, 13);

/// The preemption model that the kernel was built with, from a mark in its version, or from its configuration for the
/// models without a mark. `may_be_lazy`: kernels of this release may have the model `PREEMPT_LAZY`, whose mark is `PREEMPT`
/// (init/Makefile; PREEMPT_LAZY selects PREEMPT_BUILD in kernel/Kconfig.preempt).
fn built_model(
    version: &str,
    may_be_lazy: bool,
    config: Option<&KernelConfig>,
) -> Option<&'static str> {
    let words: Vec<&str> = version.split_whitespace().collect();
    let marked =
        ["PREEMPT_RT", "PREEMPT_DYNAMIC", "PREEMPT"].into_iter().find(|mark| words.contains(mark));
    match (marked, config) {
        (Some("PREEMPT"), Some(config)) if config.contains_key("PREEMPT_LAZY") => {
            Some("PREEMPT_LAZY")
        }
        (Some("PREEMPT"), None) if may_be_lazy => Some("PREEMPT or PREEMPT_LAZY"),
        (Some(mark), _) => Some(mark),
        (None, config) => {
            let unmarked = ["PREEMPT_VOLUNTARY", "PREEMPT_NONE"];
            unmarked
                .into_iter()
                .find(|name| config.is_some_and(|config| config.contains_key(*name)))
        }
    }
}

/// The default mode of a kernel with the model `PREEMPT_DYNAMIC`.
fn configured_mode(config: &KernelConfig) -> Option<String> {
    let modes = [
        ("PREEMPT_NONE", "none"),
        ("PREEMPT_VOLUNTARY", "voluntary"),
        ("PREEMPT_LAZY", "lazy"),
        ("PREEMPT", "full"),
    ];
    let (_, mode) = modes.into_iter().find(|(option, _)| config.contains_key(*option))?;
    Some(mode.to_owned())
}

/// The chosen word of a list such as `none [voluntary] full`, or `none (full)` in debugfs, without its brackets. `None`
/// if no word has brackets.
pub(crate) fn bracketed(text: &str) -> Option<String> {
    let is_chosen = |word: &&str| {
        (word.starts_with('[') && word.ends_with(']'))
            || (word.starts_with('(') && word.ends_with(')'))
    };
    let word = text.split_whitespace().find(is_chosen)?;
    Some(word.trim_matches(['[', ']', '(', ')']).to_owned())
}

#[cfg(test)]
mod tests {
    use super::super::root::plant;
    use super::*;
    use proptest::prelude::*;
    use std::io::Write;

    #[test]
    fn debian_kernel_from_a_fake_root() {
        let directory = tempfile::tempdir().unwrap();
        let write_file = |path: &str, text: &str| plant(directory.path(), path, text);
        write_file("proc/sys/kernel/osrelease", "6.1.0-18-amd64\n");
        write_file("proc/sys/kernel/version", "#1 SMP PREEMPT_DYNAMIC Debian 6.1.76-1\n");
        write_file(
            "boot/config-6.1.0-18-amd64",
            "# CONFIG_X is not set\nCONFIG_HZ=250\nCONFIG_PREEMPT=y\nCONFIG_RCU_NOCB_CPU=y\n\
             CONFIG_IRQ_TIME_ACCOUNTING=y\n",
        );
        write_file(
            "proc/cmdline",
            "quiet secret=1 nohz_full=2-3 rcu_nocbs=2-3 preempt=voluntary -- tsc=no",
        );
        write_file("sys/devices/system/cpu/isolated", "\n");
        let facts = kernel_facts(&Root::new(directory.path()));
        assert_eq!(facts.version_pair(), Some((6, 1)));
        assert_eq!(facts.hz, Some(250));
        assert_eq!(facts.nohz_full, Some(vec![2, 3]));
        assert_eq!(facts.isolated, Some(vec![]));
        assert_eq!(facts.rcu_nocbs.as_deref(), Some("2-3"));
        assert_eq!(facts.preemption.running.as_deref(), Some("voluntary"));
        assert_eq!(facts.preemption.built.as_deref(), Some("PREEMPT_DYNAMIC"));
        assert_eq!(facts.preemption.realtime, Some(false));
        assert_eq!(facts.irq_time_accounting, Some(true));
        let options = facts.boot_options.unwrap();
        assert!(!options.contains_key("secret") && !options.contains_key("tsc"));
        write_file("sys/kernel/debug/sched/preempt", "none voluntary (full) lazy\n");
        let facts = kernel_facts(&Root::new(directory.path()));
        assert_eq!(facts.preemption.running.as_deref(), Some("full"));
    }

    /// The facts of a kernel with this version, configuration and command line.
    fn facts_of(version: &str, config: &str, command_line: &str) -> KernelFacts {
        let directory = tempfile::tempdir().unwrap();
        plant(directory.path(), "proc/sys/kernel/osrelease", "6.1.0\n");
        plant(directory.path(), "proc/sys/kernel/version", version);
        plant(directory.path(), "proc/cmdline", command_line);
        plant(directory.path(), "boot/config-6.1.0", config);
        kernel_facts(&Root::new(directory.path()))
    }

    #[test]
    fn an_ignored_mode_of_preemption_is_not_in_force() {
        let mode = |version: &str, value: &str| {
            let line = format!("preempt={value}");
            facts_of(version, "CONFIG_PREEMPT_VOLUNTARY=y\n", &line).preemption.running
        };
        assert_eq!(mode("#1 SMP PREEMPT_DYNAMIC", "full").as_deref(), Some("full"));
        assert_eq!(mode("#1 SMP PREEMPT_DYNAMIC", "ful").as_deref(), Some("voluntary"));
        assert_eq!(mode("#1 SMP", "full"), None);
        assert_eq!(mode("#1 SMP PREEMPT_RT", "none"), None);
    }

    /// The version of a lazy kernel has the mark of a fully preemptible one.
    #[test]
    fn a_lazy_kernel_is_not_a_fully_preemptible_one() {
        let built = |config: &str| facts_of("#1 SMP PREEMPT", config, "").preemption.built.unwrap();
        assert_eq!(built("CONFIG_PREEMPT_LAZY=y\n"), "PREEMPT_LAZY");
        assert_eq!(built("CONFIG_PREEMPT=y\n# CONFIG_PREEMPT_LAZY is not set\n"), "PREEMPT");
        let without_config = |release: &str| {
            let directory = tempfile::tempdir().unwrap();
            plant(directory.path(), "proc/sys/kernel/osrelease", release);
            plant(directory.path(), "proc/sys/kernel/version", "#1 SMP PREEMPT Mon");
            kernel_facts(&Root::new(directory.path())).preemption.built.unwrap()
        };
        assert_eq!(without_config("6.12.9\n"), "PREEMPT");
        assert_eq!(without_config("6.13.0\n"), "PREEMPT or PREEMPT_LAZY");
        let realtime = facts_of("#1 SMP PREEMPT_RT", "CONFIG_PREEMPT_LAZY=y\n", "").preemption;
        assert_eq!(realtime.built.as_deref(), Some("PREEMPT_RT"));
    }

    /// The kernel reads each of several equal options, and takes `-` and `_` in a name for the same.
    #[test]
    fn all_values_of_an_option_are_kept() {
        let facts =
            facts_of("#1", "CONFIG_RCU_NOCB_CPU=y\n", "rcu-nocbs=1 tsc=reliable rcu_nocbs=2-3");
        assert_eq!(facts.rcu_nocbs.as_deref(), Some("2-3"), "the last one replaces the first");
        assert_eq!(facts.boot_options.unwrap()["rcu_nocbs"], "1 2-3");
        let mode = |line: &str| {
            let facts = facts_of("#1 SMP PREEMPT_DYNAMIC", "CONFIG_PREEMPT=y\n", line);
            facts.preemption.running.unwrap()
        };
        assert_eq!(mode("preempt=none preempt=voluntary"), "voluntary");
        assert_eq!(
            mode("preempt=none preempt=other"),
            "none",
            "the kernel ignores an unknown value"
        );
        assert!(facts_of("#1", "", "nopv").boot_options.unwrap().contains_key("nopv"));
    }

    #[test]
    fn an_option_turns_off_that_thread_clocks_exclude_interrupts() {
        let accounting =
            |config: &str, line: &str| facts_of("#1", config, line).irq_time_accounting;
        let built = "CONFIG_IRQ_TIME_ACCOUNTING=y\n";
        assert_eq!(accounting(built, "quiet"), Some(true));
        assert_eq!(accounting(built, "tsc=noirqtime"), Some(false));
        // Each option sets a flag of its own.
        assert_eq!(accounting(built, "tsc=noirqtime tsc=reliable"), Some(false));
        assert_eq!(accounting(built, "tsc=reliable tsc=noirqtime2"), Some(false));
        assert_eq!(accounting("CONFIG_HZ=250\n", "quiet"), Some(false));
        assert_eq!(KernelFacts::default().irq_time_accounting, None);
    }

    #[test]
    fn cpus_without_a_tick_have_their_callbacks_offloaded_too() {
        let offloaded = |config: &str, line: &str| facts_of("#1 SMP", config, line).rcu_nocbs;
        let text = |list: &str| Some(list.to_owned());
        let built = "CONFIG_RCU_NOCB_CPU=y\n";
        let all = "CONFIG_RCU_NOCB_CPU=y\nCONFIG_RCU_NOCB_CPU_DEFAULT_ALL=y\n";
        assert_eq!(offloaded(built, "quiet"), text(""));
        assert_eq!(offloaded(built, "nohz_full=2-3"), text("2-3"));
        assert_eq!(offloaded(built, "nohz_full=2-3 rcu_nocbs=1,3"), text("1-3"));
        assert_eq!(offloaded(built, "nohz_full=2-3 rcu_nocbs=all"), text("all"));
        assert_eq!(offloaded(built, "nohz_full=2-3 rcu_nocbs=4-N"), text("4-N,2-3"));
        assert_eq!(offloaded(all, "quiet"), text("all"));
        assert_eq!(offloaded(all, "rcu_nocbs=1"), text("1"));
        assert_eq!(offloaded(all, "rcu_nocbs"), text(""));
        assert_eq!(offloaded("CONFIG_HZ=250\n", "rcu_nocbs=1"), text(""), "ignored");
        assert_eq!(offloaded_cpus(None, &[], None), None, "the default is not known");
    }

    #[test]
    fn a_kernel_built_without_the_option_ignores_nohz_full() {
        let directory = tempfile::tempdir().unwrap();
        plant(directory.path(), "proc/cmdline", "nohz_full=2-3 isolcpus=1");
        let nohz_full = || kernel_facts(&Root::new(directory.path())).nohz_full;
        assert_eq!(nohz_full(), Some(vec![2, 3]), "without sysfs the option decides");
        plant(directory.path(), "sys/devices/system/cpu/online", "0-3\n");
        assert_eq!(nohz_full(), Some(vec![]));
        plant(directory.path(), "sys/devices/system/cpu/nohz_full", "(null)\n");
        assert_eq!(nohz_full(), Some(vec![]));
    }

    #[test]
    fn packed_configuration_and_an_empty_root() {
        let directory = tempfile::tempdir().unwrap();
        assert_eq!(kernel_facts(&Root::new(directory.path())), KernelFacts::default());
        let mut gz = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::fast());
        gz.write_all(b"CONFIG_HZ=1000\n").unwrap();
        plant(directory.path(), "proc/config.gz", gz.finish().unwrap());
        assert_eq!(kernel_facts(&Root::new(directory.path())).hz, Some(1000));
        plant(directory.path(), "proc/config.gz", "not gzip");
        assert_eq!(kernel_facts(&Root::new(directory.path())).hz, None);
    }

    proptest! {
        #[test]
        fn any_bytes_parse_without_panic(bytes in prop::collection::vec(any::<u8>(), 0..200)) {
            let text = String::from_utf8_lossy(&bytes).into_owned();
            let _ = (kernel_options::parse(&text), parse_boot_options(&text), bracketed(&text));
            let facts = KernelFacts { release: Some(text), ..KernelFacts::default() };
            let _ = facts.version_pair();
        }
    }
}
