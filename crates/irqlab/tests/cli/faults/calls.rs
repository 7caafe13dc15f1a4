//! Where a process calls the system: from strace's trace to the places at which a fault is worth a run.

use std::collections::BTreeMap;

/// A system call of a process's first thread.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Call {
    pub name: String,
    /// Its number among the calls of this name, from 1, as strace's `when` counts.
    pub number: u32,
    /// Who calls, and for what: calls with the same text are of one call site.
    pub site: String,
}

/// What a system call gets instead of its result.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Fault {
    Error(&'static str),
    Kill,
}

/// Faults that a call may meet.
const FAULTS: [Fault; 5] = [
    Fault::Error("EIO"),
    Fault::Error("ENOSPC"),
    Fault::Error("ENOMEM"),
    Fault::Error("EINTR"),
    Fault::Kill,
];

/// Calls that fail in practice. The others manage memory and signals, or cannot fail: a Rust program has no way on
/// from a failed allocation, and Linux does not let a small one fail.
const FALLIBLE: [&str; 52] = [
    "accept4",
    "bind",
    "bpf",
    "chmod",
    "clone",
    "clone3",
    "connect",
    "copy_file_range",
    "creat",
    "epoll_create1",
    "epoll_ctl",
    "eventfd2",
    "fallocate",
    "fchmod",
    "fcntl",
    "fdatasync",
    "flock",
    "fsync",
    "ftruncate",
    "getdents64",
    "getsockopt",
    "ioctl",
    "link",
    "linkat",
    "listen",
    "lseek",
    "memfd_create",
    "mkdir",
    "mkdirat",
    "newfstatat",
    "open",
    "openat",
    "perf_event_open",
    "pipe2",
    "poll",
    "ppoll",
    "pread64",
    "pwrite64",
    "read",
    "recvfrom",
    "recvmsg",
    "rename",
    "renameat",
    "renameat2",
    "rmdir",
    "sendmsg",
    "sendto",
    "setsockopt",
    "socket",
    "statx",
    "unlink",
    "unlinkat",
];
const ALSO_FALLIBLE: [&str; 3] = ["faccessat2", "sched_setaffinity", "write"];
/// Calls that wait, so that a signal interrupts them.
const INTERRUPTIBLE: [&str; 12] = [
    "accept4", "connect", "flock", "openat", "poll", "ppoll", "pwrite64", "read", "recvfrom",
    "recvmsg", "sendto", "write",
];

impl Fault {
    /// The faults that a call of this name may meet.
    pub fn of(call: &str) -> impl Iterator<Item = Fault> {
        let may_be_interrupted = INTERRUPTIBLE.contains(&call);
        FAULTS
            .into_iter()
            .filter(move |fault| *fault != Fault::Error("EINTR") || may_be_interrupted)
    }

    /// strace's words for it.
    pub fn inject(self) -> String {
        match self {
            Fault::Error(name) => format!("error={name}"),
            Fault::Kill => "signal=SIGKILL".to_owned(),
        }
    }
}

/// Reads the trace of `strace -i -y`, with or without `-k`. Calls before `main` are left out: Rust's runtime polls
/// the standard streams right before it.
pub fn parse(trace: &str) -> Vec<Call> {
    let mut numbers: BTreeMap<&str, u32> = BTreeMap::new();
    let (mut calls, mut is_in_main) = (Vec::<Call>::new(), false);
    let mut takes_frames = false;
    for line in trace.lines() {
        if let Some(frame) = line.strip_prefix(" > ") {
            if let Some(call) = calls.last_mut().filter(|_| takes_frames) {
                call.site.push_str(frame.rsplit(' ').next().unwrap_or_default());
            }
            continue;
        }
        takes_frames = false;
        let (address, rest) = line.split_once("] ").unwrap_or(("", line));
        let Some((name, arguments)) = rest.split_once('(') else { continue };
        if !name.bytes().all(|byte| byte.is_ascii_alphanumeric() || byte == b'_') {
            continue;
        }
        let number = numbers.entry(name).or_default();
        *number += 1;
        if is_in_main && (FALLIBLE.contains(&name) || ALSO_FALLIBLE.contains(&name)) {
            let site =
                format!("{name} {} {}", address.trim_start_matches('['), object(name, arguments));
            calls.push(Call { name: name.to_owned(), number: *number, site });
            takes_frames = true;
        }
        is_in_main |= name == "poll" && arguments.starts_with("[{fd=0");
    }
    calls
}

/// What the call is about: paths and files in its arguments, with numbers left out.
fn object(name: &str, arguments: &str) -> String {
    // Their text is data.
    let has_paths = !["read", "write", "pread64", "pwrite64"].contains(&name)
        && !["send", "recv"].iter().any(|start| name.starts_with(start));
    let arguments = arguments.split(" = ").next().unwrap_or_default();
    let mut text = String::new();
    let mut end = None;
    for sign in arguments.chars().take(400) {
        match (sign, end) {
            (sign, Some(last)) if sign == last => end = None,
            ('"', None) => end = Some('"'),
            ('<', None) => end = Some('>'),
            (sign, Some(last)) if !sign.is_ascii_digit() && (has_paths || last == '>') => {
                text.push(sign);
            }
            _ => {}
        }
        if text.len() > 120 {
            break;
        }
    }
    text
}

/// The first, second and last call of each site.
pub fn points(calls: &[Call]) -> Vec<&Call> {
    let mut sites: BTreeMap<&str, Vec<&Call>> = BTreeMap::new();
    for call in calls {
        sites.entry(&call.site).or_default().push(call);
    }
    let mut points: Vec<&Call> = sites
        .values()
        .flat_map(|site| {
            let last = site.len() - 1;
            let mut chosen = vec![0, 1.min(last), last];
            chosen.dedup();
            chosen.into_iter().map(|at| site[at])
        })
        .collect();
    points.sort_by_key(|call| (&call.name, call.number));
    points
}

/// Numbers that look random, the same for the same seed (xorshift64*).
pub struct Seeded(u64);

impl Seeded {
    pub fn new(seed: u64) -> Seeded {
        Seeded(seed.wrapping_mul(0x9E37_79B9_7F4A_7C15) | 1)
    }

    pub fn below(&mut self, limit: usize) -> usize {
        self.0 ^= self.0 >> 12;
        self.0 ^= self.0 << 25;
        self.0 ^= self.0 >> 27;
        (self.0.wrapping_mul(0x2545_F491_4F6C_DD1D) >> 33) as usize % limit.max(1)
    }
}

#[test]
fn calls_of_main_are_counted_from_the_start_and_told_apart_by_caller_and_object() {
    let trace = r#"[00007f01] openat(AT_FDCWD</t>, "/etc/ld.so.cache", O_RDONLY) = 3</etc/ld.so.cache>
[00007f02] poll([{fd=0</dev/null>, events=0}], 3, 0) = 0
[00007f03] openat(AT_FDCWD</t>, "/proc/12/stat", O_RDONLY) = 3</proc/12/stat>
[00007f03] openat(AT_FDCWD</t>, "/proc/7/stat", O_RDONLY) = 3</proc/7/stat>
[00007f03] openat(AT_FDCWD</t>, "/proc/9/stat", O_RDONLY) = 3</proc/9/stat>
[00007f04] brk(NULL) = 0x55
[00007f05] write(1</t/out>, "text", 4) = 4
 > /bin/x(main+0x1) [0x11]
+++ exited with 0 +++
"#;
    let calls = parse(trace);
    let found: Vec<(&str, u32)> = calls.iter().map(|call| (&*call.name, call.number)).collect();
    assert_eq!(found, [("openat", 2), ("openat", 3), ("openat", 4), ("write", 1)]);
    assert_eq!(calls[0].site, "openat 00007f03 /t/proc//stat");
    assert_eq!(calls[3].site, "write 00007f05 /t/out[0x11]");
    let chosen: Vec<u32> = points(&calls).iter().map(|call| call.number).collect();
    assert_eq!(chosen, [2, 3, 4, 1]);
    assert_eq!(Fault::of("fsync").count(), 4);
    assert_eq!(Fault::of("write").count(), 5);
}
