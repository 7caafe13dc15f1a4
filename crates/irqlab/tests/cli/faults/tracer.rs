//! Runs a program under ptrace(2) and follows its threads and the processes that they start. Lists irqlab's call
//! sites of system calls, or lets one of their calls fail.
//!
//! A seccomp filter stops the program at fallible calls alone, so that loops of other calls keep their speed.
//! A call site is a system call and its innermost return addresses in functions of this workspace.

use std::collections::{BTreeMap, HashMap, HashSet};
use std::os::unix::process::CommandExt;
use std::path::PathBuf;
use std::process::{Command, Stdio};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{RecvTimeoutError, channel};
use std::sync::{Mutex, OnceLock, PoisonError};
use std::time::Duration;

use super::calls::{FALLIBLE, Fault};
use crate::support::IRQLAB;

/// Crates whose functions tell call sites apart.
const CRATES: [&str; 12] = [
    "irqlab",
    "kernels",
    "lab",
    "live",
    "machine",
    "outputs",
    "plugin_interface",
    "record",
    "report",
    "sim",
    "simrecord",
    "signalling",
];
/// Return addresses of a call site.
const CALLERS: usize = 2;
/// How much of a stack is searched for them, in bytes.
const STACK_BYTES_MAX: u64 = 128 << 10;
const PAGE_BYTES: u64 = 4096;
/// The longest call instruction.
const CALL_BYTES: usize = 7;

const FOLLOWED: libc::c_int = libc::PTRACE_O_TRACESECCOMP
    | libc::PTRACE_O_TRACEEXEC
    | libc::PTRACE_O_TRACEFORK
    | libc::PTRACE_O_TRACEVFORK
    | libc::PTRACE_O_TRACECLONE
    | libc::PTRACE_O_EXITKILL;

/// Where irqlab calls the system.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Site {
    /// The system call's number.
    pub call: i64,
    /// Return addresses within irqlab's file, innermost first; 0 where there are fewer.
    callers: [u64; CALLERS],
}

impl Site {
    #[cfg(test)]
    pub fn of_call(call: i64, caller: u64) -> Site {
        Site { call, callers: [caller, 0] }
    }

    pub fn call_name(self) -> &'static str {
        FALLIBLE.iter().find(|(_, number)| *number == self.call).map_or("?", |(name, _)| name)
    }
}

impl std::fmt::Display for Site {
    fn fmt(&self, to: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(to, "{}", self.call_name())?;
        for address in self.callers.into_iter().filter(|address| *address > 0) {
            write!(to, " in {}", Functions::of_irqlab().name(address).unwrap_or("?"))?;
        }
        Ok(())
    }
}

/// The call that gets a fault.
#[derive(Clone, Copy, Debug)]
pub struct FaultyCall {
    pub site: Site,
    /// Its number among the site's calls in all threads and processes, from 1.
    pub number: u32,
    pub fault: Fault,
}

/// A traced program after its end.
#[derive(Debug, Default)]
pub struct Traced {
    /// The first process's exit code, or 128 and the signal that ended it.
    pub code: i32,
    pub is_in_time: bool,
    /// How often each site called.
    pub calls: BTreeMap<Site, u32>,
    /// Whether the faulty call was reached.
    pub has_failed_a_call: bool,
}

/// Runs a command to the end of all of its processes, which are killed at the time limit.
pub fn run(command: Command, faulty: Option<FaultyCall>, limit: Duration) -> Traced {
    Functions::of_irqlab();
    // ptrace(2) and waitid(2) work for the thread that started the program, and see no other thread's children.
    std::thread::scope(|scope| scope.spawn(|| run_here(command, faulty, limit)).join())
        .expect("the tracer does not panic")
}

fn run_here(mut command: Command, faulty: Option<FaultyCall>, limit: Duration) -> Traced {
    let filter = filter();
    // SAFETY: between fork and exec only ptrace(2) and prctl(2) are called, which are async-signal-safe, with a
    // filter that was allocated before.
    unsafe { command.process_group(0).pre_exec(move || trace_me(&filter)) };
    // The tracer waits for all processes.
    #[allow(clippy::zombie_processes)]
    let child = command.spawn().expect("the program starts");
    let root = child.id() as libc::pid_t;
    let tasks = Mutex::new(HashSet::from([root]));
    let is_late = AtomicBool::new(false);
    let mut tracer = Tracer::new(root, faulty, (&tasks, &is_late));
    let (ended, has_ended) = channel::<()>();
    std::thread::scope(|scope| {
        let (tasks, is_late) = (&tasks, &is_late);
        scope.spawn(move || {
            if has_ended.recv_timeout(limit) == Err(RecvTimeoutError::Timeout) {
                is_late.store(true, Ordering::SeqCst);
                tasks.lock().unwrap_or_else(PoisonError::into_inner).iter().copied().for_each(kill);
            }
        });
        tracer.follow();
        drop(ended);
    });
    let traced = tracer.traced;
    Traced { is_in_time: !is_late.into_inner(), ..traced }
}

/// Kills the process of a task.
fn kill(task: libc::pid_t) {
    // SAFETY: sends a signal to a process of this test.
    unsafe { libc::kill(task, libc::SIGKILL) };
}

/// A program that stops at fallible calls: the number is loaded and compared.
fn filter() -> Vec<libc::sock_filter> {
    let statement = |code: u32, k: u32| libc::sock_filter { code: code as u16, jt: 0, jf: 0, k };
    let number_offset = std::mem::offset_of!(libc::seccomp_data, nr) as u32;
    let mut filter = vec![statement(libc::BPF_LD | libc::BPF_W | libc::BPF_ABS, number_offset)];
    for (_, number) in FALLIBLE {
        let code = (libc::BPF_JMP | libc::BPF_JEQ | libc::BPF_K) as u16;
        filter.push(libc::sock_filter { code, jt: 0, jf: 1, k: number as u32 });
        filter.push(statement(libc::BPF_RET | libc::BPF_K, libc::SECCOMP_RET_TRACE));
    }
    filter.push(statement(libc::BPF_RET | libc::BPF_K, libc::SECCOMP_RET_ALLOW));
    filter
}

/// In the new process: lets the parent trace it, and installs the filter.
fn trace_me(filter: &[libc::sock_filter]) -> std::io::Result<()> {
    let program = libc::sock_fprog { len: filter.len() as u16, filter: filter.as_ptr().cast_mut() };
    // SAFETY: both calls affect this process alone; the filter outlives the call, which copies it.
    let results = unsafe {
        [
            libc::ptrace(libc::PTRACE_TRACEME, 0, 0_usize, 0_usize),
            libc::prctl(libc::PR_SET_SECCOMP, libc::SECCOMP_MODE_FILTER, &raw const program).into(),
        ]
    };
    match results {
        [0, 0] => Ok(()),
        _ => Err(std::io::Error::last_os_error()),
    }
}

/// Where irqlab's file is mapped in a process.
#[derive(Clone, Copy)]
struct Image {
    base: u64,
    code_start: u64,
    code_end: u64,
}

impl Image {
    /// `None` where the task executes another program.
    fn of_task(task: libc::pid_t) -> Option<Image> {
        let program = std::fs::read_link(format!("/proc/{task}/exe")).ok()?;
        if program != *irqlab_path() {
            return None;
        }
        let maps = std::fs::read_to_string(format!("/proc/{task}/maps")).ok()?;
        let name = program.to_str()?;
        let parts = maps.lines().filter(|line| line.ends_with(name)).filter_map(|line| {
            let (range, rest) = line.split_once(' ')?;
            let (start, end) = range.split_once('-')?;
            let hex = |text| u64::from_str_radix(text, 16).ok();
            Some((hex(start)?, hex(end)?, rest.as_bytes().get(2) == Some(&b'x')))
        });
        let parts: Vec<(u64, u64, bool)> = parts.collect();
        let (code_start, code_end, _) = *parts.iter().find(|(_, _, is_code)| *is_code)?;
        Some(Image { base: parts.first()?.0, code_start, code_end })
    }
}

fn irqlab_path() -> &'static PathBuf {
    static PATH: OnceLock<PathBuf> = OnceLock::new();
    PATH.get_or_init(|| std::fs::canonicalize(IRQLAB).expect("irqlab is built"))
}

struct Tracer<'a> {
    faulty: Option<FaultyCall>,
    root: libc::pid_t,
    /// All tasks that live.
    tasks: &'a Mutex<HashSet<libc::pid_t>>,
    /// Whether the time limit is over.
    is_late: &'a AtomicBool,
    images: HashMap<libc::pid_t, Option<Image>>,
    /// Whether an address of irqlab's file follows a call in a function of this workspace.
    callers: HashMap<u64, bool>,
    traced: Traced,
}

impl<'a> Tracer<'a> {
    fn new(
        root: libc::pid_t,
        faulty: Option<FaultyCall>,
        (tasks, is_late): (&'a Mutex<HashSet<libc::pid_t>>, &'a AtomicBool),
    ) -> Tracer<'a> {
        Tracer {
            faulty,
            root,
            tasks,
            is_late,
            images: HashMap::new(),
            callers: HashMap::new(),
            traced: Traced::default(),
        }
    }

    /// Follows all tasks to their end.
    fn follow(&mut self) {
        let mut has_options = false;
        loop {
            let mut status = 0;
            // SAFETY: writes the status of a child of this thread.
            let task =
                unsafe { libc::waitpid(-1, &raw mut status, libc::__WALL | libc::__WNOTHREAD) };
            if task == -1 {
                match std::io::Error::last_os_error().raw_os_error() {
                    Some(libc::EINTR) => continue,
                    _ => return,
                }
            }
            if !libc::WIFSTOPPED(status) {
                self.tasks.lock().unwrap_or_else(PoisonError::into_inner).remove(&task);
                self.images.remove(&task);
                if task == self.root {
                    self.traced.code = if libc::WIFEXITED(status) {
                        libc::WEXITSTATUS(status)
                    } else {
                        128 + libc::WTERMSIG(status)
                    };
                }
                continue;
            }
            let signal = libc::WSTOPSIG(status);
            let is_new = self.tasks.lock().unwrap_or_else(PoisonError::into_inner).insert(task);
            if self.is_late.load(Ordering::SeqCst) {
                kill(task); // it may have been started since
            }
            let mut passed_on = 0;
            match status >> 16 {
                0 if !has_options && task == self.root => {
                    has_options = true;
                    ptrace(libc::PTRACE_SETOPTIONS, task, FOLLOWED as usize);
                }
                // A new task starts with this stop.
                0 if is_new && signal == libc::SIGSTOP => {}
                0 => passed_on = signal,
                libc::PTRACE_EVENT_SECCOMP => self.call(task),
                libc::PTRACE_EVENT_EXEC => drop(self.images.remove(&task)),
                _ => {}
            }
            ptrace(libc::PTRACE_CONT, task, passed_on as usize); // fails where the task was killed meanwhile
        }
    }

    /// A task is about to execute a fallible call.
    fn call(&mut self, task: libc::pid_t) {
        let Some(image) = *self.images.entry(task).or_insert_with(|| Image::of_task(task)) else {
            return;
        };
        // SAFETY: all bytes zero are valid registers.
        let mut registers: libc::user_regs_struct = unsafe { std::mem::zeroed() };
        if !ptrace(libc::PTRACE_GETREGS, task, (&raw mut registers).expose_provenance()) {
            return;
        }
        let callers = self.callers(task, image, registers.rsp);
        if callers[0] == 0 {
            return; // before main, or the loader
        }
        let site = Site { call: registers.orig_rax as i64, callers };
        let number = self.traced.calls.entry(site).or_default();
        *number += 1;
        let is_faulty = |faulty: &FaultyCall| faulty.site == site && faulty.number == *number;
        let Some(FaultyCall { fault, .. }) = self.faulty.filter(is_faulty) else { return };
        self.traced.has_failed_a_call = true;
        match fault {
            Fault::Error(_, number) => {
                // No call has the number -1: the kernel leaves the result as it is.
                registers.orig_rax = u64::MAX;
                registers.rax = i64::from(-number) as u64;
                let from = (&raw const registers).expose_provenance();
                ptrace(libc::PTRACE_SETREGS, task, from);
            }
            Fault::Kill => kill(task),
        }
    }

    /// The innermost return addresses in functions of this workspace that the stack has.
    fn callers(&mut self, task: libc::pid_t, image: Image, stack: u64) -> [u64; CALLERS] {
        let (mut callers, mut found) = ([0; CALLERS], 0);
        let mut page = [0_u8; PAGE_BYTES as usize];
        let mut address = stack & !7;
        while address < stack + STACK_BYTES_MAX {
            let length = PAGE_BYTES - address % PAGE_BYTES;
            let part = &mut page[..length as usize];
            if !read_memory(task, address, part) {
                break;
            }
            for word in part.chunks_exact(8) {
                let value = u64::from_le_bytes(word.try_into().unwrap_or_default());
                if (image.code_start..image.code_end).contains(&value)
                    && self.is_caller(task, image, value)
                {
                    callers[found] = value - image.base;
                    found += 1;
                    if found == CALLERS {
                        return callers;
                    }
                }
            }
            address += length;
        }
        callers
    }

    fn is_caller(&mut self, task: libc::pid_t, image: Image, address: u64) -> bool {
        let offset = address - image.base;
        if let Some(is_caller) = self.callers.get(&offset) {
            return *is_caller;
        }
        let mut code = [0; CALL_BYTES];
        let is_caller = Functions::of_irqlab().is_of_workspace(offset)
            && read_memory(task, address - CALL_BYTES as u64, &mut code)
            && ends_with_call(&code);
        self.callers.insert(offset, is_caller);
        is_caller
    }
}

/// A request about a stopped tracee of this thread. Returns whether the kernel accepted it.
fn ptrace(request: libc::c_uint, task: libc::pid_t, data: usize) -> bool {
    // SAFETY: callers pass a number, or the address of registers that live until the call returns.
    unsafe { libc::ptrace(request, task, 0_usize, data) == 0 }
}

/// Whether the last bytes are an instruction that calls: a relative call, or an indirect one of any length.
fn ends_with_call(code: &[u8; CALL_BYTES]) -> bool {
    let is_indirect = |at: usize| code[at] == 0xff && code[at + 1] & 0x38 == 0x10;
    code[2] == 0xe8 || [0, 1, 3, 4, 5].into_iter().any(is_indirect)
}

fn read_memory(task: libc::pid_t, address: u64, to: &mut [u8]) -> bool {
    let local = libc::iovec { iov_base: to.as_mut_ptr().cast(), iov_len: to.len() };
    let remote = libc::iovec { iov_base: address as *mut libc::c_void, iov_len: to.len() };
    // SAFETY: the kernel writes at most the length of `to` there.
    let read =
        unsafe { libc::process_vm_readv(task, &raw const local, 1, &raw const remote, 1, 0) };
    read == to.len() as isize
}

/// The functions of irqlab's file.
struct Functions {
    /// Address and name, by address.
    by_address: Vec<(u64, String)>,
}

impl Functions {
    fn of_irqlab() -> &'static Functions {
        static FUNCTIONS: OnceLock<Functions> = OnceLock::new();
        FUNCTIONS.get_or_init(|| {
            let listed = Command::new("nm").args(["--defined-only", "-C"]).arg(IRQLAB).output();
            let listed = listed.expect("nm(1) comes with the linker");
            let list = String::from_utf8_lossy(&listed.stdout).into_owned();
            let mut by_address: Vec<(u64, String)> = list.lines().filter_map(function).collect();
            by_address.sort();
            assert!(by_address.len() > 1000, "nm lists functions of {IRQLAB}");
            Functions { by_address }
        })
    }

    fn name(&self, address: u64) -> Option<&str> {
        let after = self.by_address.partition_point(|(start, _)| *start < address);
        Some(&self.by_address.get(after.checked_sub(1)?)?.1)
    }

    fn is_of_workspace(&self, address: u64) -> bool {
        self.name(address).is_some_and(is_name_of_workspace)
    }
}

/// The address and name in a line of nm, if it is code.
fn function(line: &str) -> Option<(u64, String)> {
    let (address, kind_and_name) = line.split_once(' ')?;
    let (kind, name) = kind_and_name.split_once(' ')?;
    if !["t", "T", "w", "W"].contains(&kind) {
        return None;
    }
    let address = u64::from_str_radix(address, 16).ok()?;
    Some((address, name.to_owned()))
}

fn is_name_of_workspace(name: &str) -> bool {
    CRATES.iter().any(|of_crate| {
        let path = format!("{of_crate}::");
        let is_start = |(at, _): (usize, &str)| {
            at == 0
                || !name[..at].ends_with(|sign: char| sign.is_alphanumeric() || "_:".contains(sign))
        };
        name.match_indices(&path).any(is_start)
    })
}

#[test]
fn functions_of_this_workspace_and_calls_are_recognised() {
    assert_eq!(
        function("00000000000a4f10 t live::host::x"),
        Some((0xa4f10, "live::host::x".to_owned()))
    );
    assert_eq!(function("00000000000a4f10 r NUMBERS"), None);
    for name in ["live::journal::lock::f", "<live::x::Y as core::ops::drop::Drop>::drop"] {
        assert!(is_name_of_workspace(name), "{name}");
    }
    for name in ["std::fs::File::open", "alive::f", "core::live::f"] {
        assert!(!is_name_of_workspace(name), "{name}");
    }
    assert!(ends_with_call(&[0x90, 0x90, 0xe8, 1, 2, 3, 4]), "call rel32");
    assert!(ends_with_call(&[0x90, 0x90, 0x90, 0x90, 0x41, 0xff, 0xd4]), "call r12");
    assert!(ends_with_call(&[0x90, 0xff, 0x15, 1, 2, 3, 4]), "call [rip + disp32]");
    assert!(!ends_with_call(&[0x90; 7]));
}

#[test]
fn a_call_of_a_started_irqlab_fails() {
    let limit = Duration::from_secs(60);
    let list = |faulty| {
        let mut shell = Command::new("sh");
        shell.args(["-c", "\"$0\" machines; exit $?", IRQLAB]);
        shell.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
        run(shell, faulty, limit)
    };
    let listed = list(None);
    assert_eq!((listed.code, listed.is_in_time), (0, true), "{listed:?}");
    let print = listed.calls.keys().find(|site| site.call == libc::SYS_write);
    let site = *print.expect("it prints a list");
    for (fault, code) in [(Fault::Error("EIO", libc::EIO), 1), (Fault::Kill, 137)] {
        let failed = list(Some(FaultyCall { site, number: 1, fault }));
        assert!(failed.has_failed_a_call && failed.code == code, "{failed:?}");
    }
}
