//! The system calls that may fail, their faults, and the calls of a run that get one.

use std::collections::BTreeMap;

use super::tracer::{FaultyCall, Site};

/// The fault that a system call gets instead of its result.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Fault {
    /// The error's name and number.
    Error(&'static str, i32),
    Kill,
}

/// Faults that a call may meet.
const FAULTS: [Fault; 5] = [
    Fault::Error("EIO", libc::EIO),
    Fault::Kill,
    Fault::Error("ENOMEM", libc::ENOMEM),
    Fault::Error("ENOSPC", libc::ENOSPC),
    Fault::Error("EINTR", libc::EINTR),
];

/// Names and numbers of system calls.
macro_rules! calls {
    ($($name:ident $number:ident,)*) => { [$((stringify!($name), libc::$number)),*] };
}

/// Calls that fail in practice. The others manage memory and signals, or cannot fail: a Rust program has no way on
/// from a failed allocation, and Linux does not let a small one fail.
pub const FALLIBLE: [(&str, i64); 55] = calls![
    accept4 SYS_accept4,
    bind SYS_bind,
    bpf SYS_bpf,
    chmod SYS_chmod,
    clone SYS_clone,
    clone3 SYS_clone3,
    connect SYS_connect,
    copy_file_range SYS_copy_file_range,
    creat SYS_creat,
    epoll_create1 SYS_epoll_create1,
    epoll_ctl SYS_epoll_ctl,
    eventfd2 SYS_eventfd2,
    faccessat2 SYS_faccessat2,
    fallocate SYS_fallocate,
    fchmod SYS_fchmod,
    fcntl SYS_fcntl,
    fdatasync SYS_fdatasync,
    flock SYS_flock,
    fsync SYS_fsync,
    ftruncate SYS_ftruncate,
    getdents64 SYS_getdents64,
    getsockopt SYS_getsockopt,
    ioctl SYS_ioctl,
    link SYS_link,
    linkat SYS_linkat,
    listen SYS_listen,
    lseek SYS_lseek,
    memfd_create SYS_memfd_create,
    mkdir SYS_mkdir,
    mkdirat SYS_mkdirat,
    newfstatat SYS_newfstatat,
    open SYS_open,
    openat SYS_openat,
    perf_event_open SYS_perf_event_open,
    pipe2 SYS_pipe2,
    poll SYS_poll,
    ppoll SYS_ppoll,
    pread64 SYS_pread64,
    pwrite64 SYS_pwrite64,
    read SYS_read,
    recvfrom SYS_recvfrom,
    recvmsg SYS_recvmsg,
    rename SYS_rename,
    renameat SYS_renameat,
    renameat2 SYS_renameat2,
    rmdir SYS_rmdir,
    sched_setaffinity SYS_sched_setaffinity,
    sendmsg SYS_sendmsg,
    sendto SYS_sendto,
    setsockopt SYS_setsockopt,
    socket SYS_socket,
    statx SYS_statx,
    unlink SYS_unlink,
    unlinkat SYS_unlinkat,
    write SYS_write,
];
/// Calls that wait, so that a signal interrupts them.
const INTERRUPTIBLE: [&str; 12] = [
    "accept4", "connect", "flock", "openat", "poll", "ppoll", "pwrite64", "read", "recvfrom",
    "recvmsg", "sendto", "write",
];

impl Fault {
    /// The faults that a call of this name may meet.
    pub fn of(call: &str) -> impl Iterator<Item = Fault> {
        let may_be_interrupted = INTERRUPTIBLE.contains(&call);
        FAULTS.into_iter().filter(move |fault| {
            !matches!(fault, Fault::Error(_, libc::EINTR)) || may_be_interrupted
        })
    }
}

/// How much of a verb's call sites is tried.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Coverage {
    /// Each fault at the first, the second and the last call of each site.
    All,
    /// Each fault at each site, and each of the three calls: fewer runs, for verbs that take seconds.
    EachFault,
    /// At most this number of faults of [`Coverage::EachFault`]; sites without a fault come first.
    Sample(usize),
}

/// The calls that get a fault, each in a run of its own. `calls`: how often each site calls.
pub fn faulty_calls(
    calls: &BTreeMap<Site, u32>,
    coverage: Coverage,
    random: &mut Seeded,
) -> Vec<FaultyCall> {
    // Sorted by the number of earlier faults at the same site.
    let mut rounds: Vec<Vec<FaultyCall>> = Vec::new();
    for (&site, &count) in calls {
        let mut numbers = vec![1, 2.min(count), count];
        numbers.dedup();
        let faults: Vec<Fault> = Fault::of(site.call_name()).collect();
        let all: Vec<(u32, Fault)> = match coverage {
            Coverage::All => {
                let each = numbers
                    .iter()
                    .flat_map(|number| faults.iter().map(move |fault| (*number, *fault)));
                each.collect()
            }
            // The first fault differs from site to site.
            _ => {
                let first = random.below(faults.len());
                let runs = 0..faults.len().max(numbers.len());
                runs.map(|run| (numbers[run % numbers.len()], faults[(first + run) % faults.len()]))
                    .collect()
            }
        };
        for (round, (number, fault)) in all.into_iter().enumerate() {
            if rounds.len() == round {
                rounds.push(Vec::new());
            }
            rounds[round].push(FaultyCall { site, number, fault });
        }
    }
    let Coverage::Sample(most) = coverage else { return rounds.concat() };
    for round in &mut rounds {
        for at in (1..round.len()).rev() {
            round.swap(at, random.below(at + 1));
        }
    }
    let mut sample = rounds.concat();
    sample.truncate(most);
    sample
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
fn each_site_meets_each_fault_and_a_sample_has_as_many_sites_as_possible() {
    let site = |number| Site::of_call(libc::SYS_write, number);
    let calls = BTreeMap::from([(site(1), 1), (site(2), 2), (site(3), 9)]);
    let chosen = |coverage| faulty_calls(&calls, coverage, &mut Seeded::new(7));
    assert_eq!(chosen(Coverage::All).len(), 5 * (1 + 2 + 3));
    let each = chosen(Coverage::EachFault);
    assert_eq!(each.len(), 3 * 5);
    let of_third: Vec<_> = each.iter().filter(|faulty| faulty.site == site(3)).collect();
    let faults: std::collections::BTreeSet<_> =
        of_third.iter().map(|faulty| faulty.fault).collect();
    let numbers: std::collections::BTreeSet<_> =
        of_third.iter().map(|faulty| faulty.number).collect();
    assert_eq!((faults.len(), numbers), (5, [1, 2, 9].into()));
    let sites: std::collections::BTreeSet<_> =
        chosen(Coverage::Sample(3)).iter().map(|faulty| faulty.site).collect();
    assert_eq!(sites.len(), 3);
    assert_eq!(Fault::of("fsync").count(), 4);
}
