//! The rights of this process, and the kernel's settings that limit them. `diagnosis` derives
//! findings and remedies from these facts.

use std::io;

use serde::Serialize;

use super::kernel::bracketed;
use super::root::{MOUNTS_BYTES_MAX, Root};

/// Names of the capabilities by bit (include/uapi/linux/capability.h), without `cap_`.
const CAPABILITIES: [&str; 41] = [
    "chown",
    "dac_override",
    "dac_read_search",
    "fowner",
    "fsetid",
    "kill",
    "setgid",
    "setuid",
    "setpcap",
    "linux_immutable",
    "net_bind_service",
    "net_broadcast",
    "net_admin",
    "net_raw",
    "ipc_lock",
    "ipc_owner",
    "sys_module",
    "sys_rawio",
    "sys_chroot",
    "sys_ptrace",
    "sys_pacct",
    "sys_admin",
    "sys_boot",
    "sys_nice",
    "sys_resource",
    "sys_time",
    "sys_tty_config",
    "mknod",
    "lease",
    "audit_write",
    "audit_control",
    "setfcap",
    "mac_override",
    "mac_admin",
    "syslog",
    "wake_alarm",
    "block_suspend",
    "audit_read",
    "perfmon",
    "bpf",
    "checkpoint_restore",
];

/// The rights of this process, and the kernel's settings that limit what processes may do.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct RightsFacts {
    /// Effective user; `None` unless the facts describe the running machine.
    pub uid: Option<u32>,
    /// Effective capabilities, such as `cap_bpf`. A capability without a name in this version
    /// appears as its number: `cap_63`.
    pub capabilities: Option<Vec<String>>,
    /// Capabilities outside of the bounding set: no program that this process
    /// starts can ever hold them.
    pub bounded_away: Option<Vec<String>>,
    /// Whether this process is in a user namespace that maps user numbers. Then capabilities apply only inside of the
    /// namespace, and neither BPF nor performance events of whole CPUs are available.
    pub user_namespace: Option<bool>,
    /// Mode of seccomp. 0: none. 1: strict. 2: a filter, as in containers, which may
    /// refuse `bpf` and `perf_event_open`.
    pub seccomp_mode: Option<u32>,
    /// Whether no program that this process starts can get more rights. Then `setcap` and `sudo` have no effect.
    pub no_new_privs: Option<bool>,
    /// Whether the sysctls let an ordinary user create a user namespace, and a
    /// network namespace in it.
    pub user_namespaces_allowed: Option<bool>,
    /// Value of `kernel.perf_event_paranoid`, which limits processes without CAP_PERFMON. -1:
    /// everything is allowed. 0: no raw tracepoints. 1: no whole CPUs. 2: no kernel. 3 and more
    /// (Debian, Ubuntu): nothing.
    pub perf_event_paranoid: Option<i32>,
    /// Whether the NMI watchdog runs. It uses a hardware counter.
    pub nmi_watchdog: Option<bool>,
    /// Value of `kernel.unprivileged_bpf_disabled`. irqlab needs CAP_BPF at any value.
    pub unprivileged_bpf_disabled: Option<u32>,
    /// Value of `kernel.kptr_restrict`. irqlab reads no kernel addresses.
    pub kptr_restrict: Option<u32>,
    /// Mode of lockdown: `none`, `integrity` or `confidentiality`; `None` if the kernel has no lockdown.
    pub lockdown: Option<String>,
    /// How BPF programs run. 0: interpreted. 1: compiled. 2: compiled and logged.
    pub bpf_jit_enable: Option<u32>,
    /// Limit of locked memory, bytes; `None` if unlimited or unknown (see `memlock_unlimited`).
    pub memlock_bytes_max: Option<u64>,
    /// Whether the memory that may be locked is unlimited.
    pub memlock_unlimited: Option<bool>,
    /// Whether this process sees a mounted tracefs.
    pub tracefs_mounted: Option<bool>,
    /// Whether the kernel accepts a BPF tracing program from this process (`try_bpf`). `None` unless the
    /// facts describe the running machine.
    pub bpf_loads: Option<bool>,
    /// Error number of the refusal; `None` without a refusal.
    pub bpf_errno: Option<i32>,
    /// The text of `bpf_errno`.
    pub bpf_error: Option<String>,
    /// The file of this program, for `setcap`.
    pub executable: Option<String>,
}

impl RightsFacts {
    /// Whether this process holds a capability, such as `cap_bpf`; `None` if its capabilities are unknown.
    /// CAP_SYS_ADMIN implies CAP_BPF and CAP_PERFMON, which Linux separated from it in version 5.8.
    #[must_use]
    pub fn holds(&self, capability: &str) -> Option<bool> {
        let held = self.capabilities.as_ref()?;
        let is_implied = ["cap_bpf", "cap_perfmon"].contains(&capability);
        Some(held.iter().any(|name| name == capability || (is_implied && name == "cap_sys_admin")))
    }
}

/// Reads the rights of this process. On the running machine, also loads and closes a BPF program.
#[must_use]
pub fn rights_facts(root: &Root) -> RightsFacts {
    let status = root.text("proc/self/status").unwrap_or_default();
    let field = |name: &str| {
        let mut pairs = status.lines().filter_map(|line| line.split_once(':'));
        pairs.find(|(key, _)| *key == name).map(|(_, value)| value.trim())
    };
    let sysctl = |name: &str| format!("proc/sys/{name}");
    let memlock = root
        .is_live()
        .then(|| rustix::process::getrlimit(rustix::process::Resource::Memlock).current);
    let bpf = root.is_live().then(try_bpf);
    RightsFacts {
        uid: root.is_live().then(|| rustix::process::geteuid().as_raw()),
        capabilities: field("CapEff").and_then(parse_capabilities),
        bounded_away: field("CapBnd").and_then(parse_capabilities).map(|bounding_set| {
            let all = CAPABILITIES.iter().map(|name| format!("cap_{name}"));
            all.filter(|name| !bounding_set.contains(name)).collect()
        }),
        user_namespace: root.text("proc/self/uid_map").map(|map| !is_identity(&map)),
        no_new_privs: field("NoNewPrivs").map(|flag| flag != "0"),
        user_namespaces_allowed: user_namespaces_allowed(root),
        seccomp_mode: field("Seccomp").and_then(|mode| mode.parse().ok()),
        perf_event_paranoid: root.number(sysctl("kernel/perf_event_paranoid")),
        nmi_watchdog: root.number::<u32>(sysctl("kernel/nmi_watchdog")).map(|flag| flag != 0),
        unprivileged_bpf_disabled: root.number(sysctl("kernel/unprivileged_bpf_disabled")),
        kptr_restrict: root.number(sysctl("kernel/kptr_restrict")),
        lockdown: root.word("sys/kernel/security/lockdown").and_then(|modes| bracketed(&modes)),
        bpf_jit_enable: root.number(sysctl("net/core/bpf_jit_enable")),
        memlock_bytes_max: memlock.flatten(),
        memlock_unlimited: memlock.map(|limit| limit.is_none()),
        tracefs_mounted: root
            .text_up_to("proc/self/mounts", MOUNTS_BYTES_MAX)
            .map(|mounts| has_tracefs(&mounts)),
        bpf_loads: bpf.as_ref().map(Result::is_ok),
        bpf_errno: bpf.as_ref().and_then(|bpf| bpf.as_ref().err()?.raw_os_error()),
        bpf_error: bpf.and_then(Result::err).map(|error| error.to_string()),
        executable: root.is_live().then(own_executable).flatten(),
    }
}

/// The path of this program's file.
fn own_executable() -> Option<String> {
    std::env::current_exe().ok()?.into_os_string().into_string().ok()
}

/// Whether an ordinary user may create a user namespace. Checks the kernel's limit, and the switches that only Debian
/// and Ubuntu (AppArmor) have. `None` if the kernel states no limit.
fn user_namespaces_allowed(root: &Root) -> Option<bool> {
    let number = |name: &str| root.number::<u64>(format!("proc/sys/{name}"));
    let namespaces_max = number("user/max_user_namespaces")?;
    let is_off_in_debian = number("kernel/unprivileged_userns_clone") == Some(0);
    let is_off_in_ubuntu = number("kernel/apparmor_restrict_unprivileged_userns") == Some(1);
    Some(namespaces_max > 0 && !is_off_in_debian && !is_off_in_ubuntu)
}

/// The names of the capabilities in a hexadecimal mask such as `000001ffffffffff`, in
/// the order of the bits.
fn parse_capabilities(mask: &str) -> Option<Vec<String>> {
    let mask = u64::from_str_radix(mask, 16).ok()?;
    let bits = (0..64usize).filter(|bit| mask & (1 << bit) != 0);
    let name = |bit: usize| match CAPABILITIES.get(bit) {
        Some(name) => format!("cap_{name}"),
        None => format!("cap_{bit}"),
    };
    Some(bits.map(name).collect())
}

/// Whether a uid_map is the map of the first user namespace, which maps all numbers to themselves.
fn is_identity(map: &str) -> bool {
    let fields: Vec<&str> = map.split_ascii_whitespace().collect();
    fields == ["0", "0", "4294967295"]
}

/// Whether the text of /proc/mounts lists a tracefs.
fn has_tracefs(mounts: &str) -> bool {
    mounts.lines().any(|line| line.split(' ').nth(2) == Some("tracefs"))
}

/// The part of `union bpf_attr` that BPF_PROG_LOAD reads (include/uapi/linux/bpf.h).
#[repr(C)]
struct ProgramLoad {
    prog_type: u32,
    insn_cnt: u32,
    insns: u64,
    license: u64,
    log_level: u32,
    log_size: u32,
    log_buf: u64,
    kern_version: u32,
    prog_flags: u32,
}

/// Loads the program `return 0` for raw tracepoints, and closes it. This needs the same rights as irqlab's programs
/// (CAP_BPF and CAP_PERFMON).
///
/// Fails with the kernel's error.
fn try_bpf() -> io::Result<()> {
    const BPF_PROG_LOAD: libc::c_long = 5;
    const BPF_PROG_TYPE_RAW_TRACEPOINT: u32 = 17;
    // r0 = 0; exit. `struct bpf_insn` starts with the opcode, so these bytes are right in either byte order.
    let code: [[u8; 8]; 2] = [[0xb7, 0, 0, 0, 0, 0, 0, 0], [0x95, 0, 0, 0, 0, 0, 0, 0]];
    let license = c"Dual MIT/GPL";
    let attributes = ProgramLoad {
        prog_type: BPF_PROG_TYPE_RAW_TRACEPOINT,
        insn_cnt: 2,
        insns: code.as_ptr() as u64,
        license: license.as_ptr() as u64,
        log_level: 0,
        log_size: 0,
        log_buf: 0,
        kern_version: 0,
        prog_flags: 0,
    };
    // SAFETY: the kernel reads `size_of::<ProgramLoad>()` bytes of `attributes`. Its pointers are
    // to `code` (`insn_cnt` instructions of 8 bytes) and to a NUL-terminated string. All outlive
    // the call, and the kernel writes to none.
    let result = unsafe {
        libc::syscall(libc::SYS_bpf, BPF_PROG_LOAD, &raw const attributes, size_of::<ProgramLoad>())
    };
    let Ok(descriptor) = i32::try_from(result) else { return Err(io::Error::last_os_error()) };
    if descriptor < 0 {
        return Err(io::Error::last_os_error());
    }
    // SAFETY: the kernel just gave us this descriptor, and nobody else knows it.
    drop(unsafe { <std::os::fd::OwnedFd as std::os::fd::FromRawFd>::from_raw_fd(descriptor) });
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::super::root::plant;
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn capabilities_by_name() {
        assert_eq!(parse_capabilities("0").unwrap(), [""; 0]);
        assert_eq!(
            parse_capabilities("000000c000201000").unwrap(),
            ["cap_net_admin", "cap_sys_admin", "cap_perfmon", "cap_bpf"]
        );
        assert_eq!(parse_capabilities("8000000000000000").unwrap(), ["cap_63"]);
        assert_eq!(parse_capabilities("xyz"), None);
        let admin =
            RightsFacts { capabilities: parse_capabilities("200000"), ..RightsFacts::default() };
        assert_eq!(admin.holds("cap_bpf"), Some(true), "implied");
        assert_eq!(admin.holds("cap_net_admin"), Some(false));
        assert_eq!(RightsFacts::default().holds("cap_bpf"), None);
    }

    #[test]
    fn rights_from_a_fake_root() {
        let directory = tempfile::tempdir().unwrap();
        let root = Root::new(directory.path());
        assert_eq!(rights_facts(&root), RightsFacts::default());
        let write_file = |path: &str, text: &str| plant(directory.path(), path, text);
        write_file("proc/self/status", "Name:\tx\nCapEff:\t0000000000000000\nSeccomp:\t2\n");
        write_file("proc/self/uid_map", "         0       1000          1\n");
        write_file("proc/sys/kernel/perf_event_paranoid", "-1\n");
        write_file("sys/kernel/security/lockdown", "none [integrity] confidentiality\n");
        write_file("proc/self/mounts", "proc /proc proc rw 0 0\n");
        let facts = rights_facts(&root);
        assert_eq!(facts.holds("cap_bpf"), Some(false));
        assert_eq!((facts.user_namespace, facts.seccomp_mode), (Some(true), Some(2)));
        assert_eq!(facts.perf_event_paranoid, Some(-1));
        assert_eq!(facts.lockdown.as_deref(), Some("integrity"));
        assert_eq!(facts.tracefs_mounted, Some(false));
        assert_eq!(facts.bpf_loads, None);
    }

    proptest! {
        #[test]
        fn any_bytes_parse_without_panic(bytes in prop::collection::vec(any::<u8>(), 0..80)) {
            let text = String::from_utf8_lossy(&bytes);
            let _ = (parse_capabilities(&text), is_identity(&text), has_tracefs(&text));
        }
    }
}
