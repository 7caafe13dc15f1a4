//! The one place that uses what QEMU exports without promising it. All is found by name when the
//! plugin is loaded, and tried before it is used; what is missing or behaves otherwise is switched
//! off with a notice in the record.

use std::ffi::{CStr, CString, c_char, c_int, c_uint, c_void};
use std::ptr;
use std::sync::atomic::{AtomicBool, AtomicPtr, Ordering};

use crate::ffi;

type CpuExit = unsafe extern "C" fn(*mut c_void);
type GetCpu = unsafe extern "C" fn(c_int) -> *mut c_void;
type GetIcount = unsafe extern "C" fn() -> i64;

/// A vCPU number that no machine has.
const NO_CPU: c_int = 1 << 20;

macro_rules! function {
    ($name:literal as $kind:ty) => {{
        let found = ffi::find($name);
        if found.is_null() {
            None
        } else {
            // SAFETY: the function of this name has this signature in all versions of QEMU that
            // have API 7.
            Some(unsafe { std::mem::transmute::<*mut c_void, $kind>(found) })
        }
    }};
}

/// Which vCPU runs in the thread of all vCPUs: QEMU's thread-local `current_cpu`.
#[derive(Clone, Copy, Debug)]
pub(crate) struct CurrentCpu(*const *mut c_void);

static NO_CURRENT_CPU: AtomicPtr<c_void> = AtomicPtr::new(ptr::null_mut());

impl CurrentCpu {
    /// Of a machine with one vCPU, where it doesn't matter.
    pub(crate) const UNKNOWN: CurrentCpu = CurrentCpu((&raw const NO_CURRENT_CPU).cast());

    /// Whether QEMU exports it.
    pub(crate) fn is_exported() -> bool {
        !ffi::find(c"current_cpu").is_null()
    }

    /// That of this thread; `None` if QEMU doesn't export it, or it is not one of `handles`.
    pub(crate) fn of_this_thread(handles: &[*mut c_void]) -> Option<CurrentCpu> {
        let found = ffi::find(c"current_cpu").cast_const().cast::<*mut c_void>();
        if found.is_null() {
            return None;
        }
        let current = CurrentCpu(found);
        (current.get().is_null() || handles.contains(&current.get())).then_some(current)
    }

    /// The description of the vCPU that runs.
    #[inline(always)]
    pub(crate) fn get(self) -> *mut c_void {
        // SAFETY: a variable of the vCPUs' thread, which lives as long as QEMU; read in that thread.
        unsafe { self.0.read_volatile() }
    }
}

/// Ends a vCPU's slice, so that the next one runs.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Slices {
    cpu: *mut c_void,
    cpu_exit: CpuExit,
}

impl Slices {
    /// Whether QEMU exports what it takes.
    pub(crate) fn are_exported() -> bool {
        !ffi::find(c"cpu_exit").is_null() && !ffi::find(c"qemu_get_cpu").is_null()
    }

    /// Slices of vCPU `vcpu`; `None` if QEMU doesn't export what it takes.
    pub(crate) fn of(vcpu: c_uint) -> Option<Slices> {
        let cpu_exit = function!(c"cpu_exit" as CpuExit)?;
        let get_cpu = function!(c"qemu_get_cpu" as GetCpu)?;
        let number = c_int::try_from(vcpu).ok()?;
        // SAFETY: looks a vCPU up by its number; called in a vCPU's thread.
        let (cpu, none) = unsafe { (get_cpu(number), get_cpu(NO_CPU)) };
        // What answers for a vCPU that doesn't exist is not the function that we know.
        if cpu.is_null() || !none.is_null() {
            return None;
        }
        Some(Slices { cpu, cpu_exit })
    }

    /// QEMU's description of the vCPU.
    pub(crate) fn handle(self) -> *mut c_void {
        self.cpu
    }

    /// Asks the vCPU to stop at the end of its block.
    pub(crate) fn end(self) {
        // SAFETY: the vCPU lives as long as the machine; it is the one that runs.
        unsafe { (self.cpu_exit)(self.cpu) };
    }
}

/// QEMU's clock of guest time.
#[derive(Clone, Copy, Debug)]
pub(crate) struct GuestClock(GetIcount);

impl GuestClock {
    /// `None` if QEMU doesn't export it.
    pub(crate) fn find() -> Option<GuestClock> {
        function!(c"icount_get" as GetIcount).map(GuestClock)
    }

    /// What it shows. Only to be called between blocks: QEMU exits if it is asked inside one.
    pub(crate) fn get_ns(self) -> u64 {
        // SAFETY: called from a discontinuity callback, which is between two blocks, or before the
        // machine runs.
        unsafe { (self.0)() }.cast_unsigned()
    }
}

/// What QEMU adds to its count of instructions, to make a clock of it: a number of ns in its
/// `timers_state`.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Bias(*mut i64);

impl Bias {
    /// Where it is looked for in `timers_state`, bytes: behind the lock, which must not be touched
    /// for long, and before what is not about instructions.
    const PLACES: std::ops::Range<usize> = 0x20..0x60;
    /// What is added for a try. Even, as an odd sequence number means that a writer is at work.
    const TRIED_NS: i64 = 1 << 40;

    /// Looks for it by adding to each number in turn, and taking the first that moves the clock as
    /// far. To be called before the machine runs: no other thread reads then.
    pub(crate) fn find() -> Option<Bias> {
        let state = ffi::find(c"timers_state").cast::<u8>();
        let clock = GuestClock::find()?;
        if state.is_null() {
            return None;
        }
        Self::PLACES.step_by(size_of::<i64>()).find_map(|place| {
            // SAFETY: in a variable of QEMU that is longer than this in all versions with API 7,
            // and aligned as its type.
            let number = unsafe { state.add(place) }.cast::<i64>();
            let before = clock.get_ns();
            // SAFETY: as above; it is put back at once.
            let after = unsafe {
                let value = number.read_volatile();
                number.write_volatile(value.wrapping_add(Self::TRIED_NS));
                let after = clock.get_ns();
                number.write_volatile(value);
                after
            };
            let moved = after.wrapping_sub(before).cast_signed() == Self::TRIED_NS;
            (moved && clock.get_ns() == before).then_some(Bias(number))
        })
    }

    /// Adds to the clock. Only to be called where a vCPU's slice ends: what QEMU has planned up to
    /// the end of the slice must not change.
    pub(crate) fn add(self, ns: i64) {
        // SAFETY: found by `find`. It is written by the thread of the vCPUs alone while they run;
        // others read it as one aligned word.
        unsafe { self.0.write_volatile(self.0.read_volatile().wrapping_add(ns)) };
    }
}

/// QEMU's own count of instructions, over all vCPUs.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Icount(GetIcount);

impl Icount {
    /// `None` if QEMU doesn't export it.
    pub(crate) fn find() -> Option<Icount> {
        function!(c"icount_get_raw" as GetIcount).map(Icount)
    }

    /// The count. Only to be called between blocks: QEMU exits if it is asked inside one.
    pub(crate) fn get(self) -> u64 {
        // SAFETY: called from a discontinuity callback, which is between two blocks.
        unsafe { (self.0)() }.cast_unsigned()
    }
}

type Work = extern "C" fn(*mut c_void, usize);
type RunOnCpu = unsafe extern "C" fn(*mut c_void, Work, usize);
type GetContext = unsafe extern "C" fn() -> *mut c_void;
type Poll = unsafe extern "C" fn(*mut c_void) -> c_int;

/// QEMU's event loop, in which devices do what they don't do in the CPU's own call.
#[derive(Clone, Copy, Debug)]
pub(crate) struct EventLoop {
    run_on_cpu: RunOnCpu,
    get_cpu: GetCpu,
    cpu_exit: CpuExit,
    get_context: GetContext,
    poll: Poll,
}

impl EventLoop {
    /// `None` if QEMU doesn't export what it takes.
    pub(crate) fn find() -> Option<EventLoop> {
        Some(EventLoop {
            run_on_cpu: function!(c"async_run_on_cpu" as RunOnCpu)?,
            get_cpu: function!(c"qemu_get_cpu" as GetCpu)?,
            cpu_exit: function!(c"cpu_exit" as CpuExit)?,
            get_context: function!(c"qemu_get_aio_context" as GetContext)?,
            poll: function!(c"aio_bh_poll" as Poll)?,
        })
    }

    /// Has the vCPU that runs stop at the end of its block, and do `work` before any vCPU runs. The
    /// work has QEMU's big lock.
    pub(crate) fn at_end_of_block(self, vcpu: u32, work: Work) {
        let number = c_int::try_from(vcpu).unwrap_or(NO_CPU);
        // SAFETY: called in the vCPUs' thread; vCPUs live as long as the machine, and so does the
        // function.
        unsafe {
            let cpu = (self.get_cpu)(number);
            if cpu.is_null() {
                return;
            }
            (self.run_on_cpu)(cpu, work, 0);
            // The others have their turn before QEMU looks for work, unless they are to leave, too.
            for other in 0.. {
                let other = (self.get_cpu)(other);
                if other.is_null() {
                    break;
                }
                (self.cpu_exit)(other);
            }
        }
    }

    /// Does what was put off; whether that was anything. Only with QEMU's big lock, and outside of
    /// coroutines.
    ///
    /// QEMU's `aio_poll` would also take what comes by file descriptors, calls to wake the main loop
    /// among them; with io_uring that can leave the main loop asleep for good.
    pub(crate) fn poll(self) -> bool {
        // SAFETY: who has the big lock may do what was put off to the main loop.
        unsafe { (self.poll)((self.get_context)()) != 0 }
    }
}

/// QEMU's `Notifier`.
#[repr(C)]
struct Notifier {
    notify: extern "C" fn(*mut Notifier, *mut c_void),
    next: *mut Notifier,
    previous: *mut c_void,
}

type OnNotifier = unsafe extern "C" fn(*mut Notifier);

extern "C" fn ignore(_: *mut Notifier, _: *mut c_void) {}

/// Keeps QEMU's memory reclamation from ending the slice of a vCPU at a moment that depends on the
/// host. The vCPUs' thread is between two slices often enough for it. Whether that was to be had;
/// called in the vCPUs' thread.
pub(crate) fn ignore_reclamation() -> bool {
    let Some(add) = function!(c"rcu_add_force_rcu_notifier" as OnNotifier) else { return false };
    let Some(remove) = function!(c"rcu_remove_force_rcu_notifier" as OnNotifier) else {
        return false;
    };
    let mut ours = Notifier { notify: ignore, next: ptr::null_mut(), previous: ptr::null_mut() };
    let ours = &raw mut ours;
    // A thread's notifiers are a list, and a new one stands first.
    // SAFETY: ours is in the list only while this function has it; what is behind it was added in
    // the same way, by the function in which this thread spends its life.
    unsafe {
        add(ours);
        let theirs = (*ours).next;
        remove(ours);
        if !theirs.is_null() {
            remove(theirs);
        }
        !theirs.is_null()
    }
}

type FindNode = unsafe extern "C" fn(*const c_char) -> *mut c_void;
type OnNode = unsafe extern "C" fn(*mut c_void);

/// A node of QEMU's block layer, and where it counts requests that are under way.
#[derive(Clone, Copy, Debug)]
pub(crate) struct BlockNode {
    node: *mut c_void,
    in_flight: *const u32,
}

// SAFETY: nodes of disks live as long as the machine; used by who has QEMU's big lock.
unsafe impl Send for BlockNode {}

impl BlockNode {
    /// The node of a name; `None` if there is none, or it doesn't count as we know. Only with QEMU's
    /// big lock.
    pub(crate) fn find(name: &str) -> Option<BlockNode> {
        let find_node = function!(c"bdrv_find_node" as FindNode)?;
        let increase = function!(c"bdrv_inc_in_flight" as OnNode)?;
        let decrease = function!(c"bdrv_dec_in_flight" as OnNode)?;
        let name = CString::new(name).ok()?;
        // SAFETY: looks a node up by a C string.
        let node = unsafe { find_node(name.as_ptr()) };
        if node.is_null() {
            return None;
        }
        // SAFETY: nodes are allocated by themselves, so this is the size of what may be read.
        let words = unsafe { libc::malloc_usable_size(node) } / size_of::<u32>();
        let word = |index: usize| node.cast_const().cast::<u32>().wrapping_add(index);
        // SAFETY: the index is below the number of words.
        let read = |index: usize| unsafe { word(index).read_volatile() };
        let before: Vec<u32> = (0..words).map(read).collect();
        // SAFETY: a request that begins, and ends.
        let moved = unsafe {
            increase(node);
            let moved = (0..words).find(|index| read(*index) == before[*index].wrapping_add(1));
            decrease(node);
            moved
        }?;
        (read(moved) == before[moved]).then_some(BlockNode { node, in_flight: word(moved) })
    }

    /// QEMU's description of it.
    pub(crate) fn handle(self) -> usize {
        self.node as usize
    }

    /// Requests of it that are under way.
    pub(crate) fn in_flight(self) -> u32 {
        // SAFETY: inside the node, as `find` saw it.
        unsafe { self.in_flight.read_volatile() }
    }
}

type FindFormat = unsafe extern "C" fn(*const c_char) -> *mut *mut c_void;
type OnEvent = unsafe extern "C" fn(*mut c_void, c_int);
type ParseEnum =
    unsafe extern "C" fn(*const c_void, *const c_char, c_int, *mut *mut c_void) -> c_int;

/// Words of the description of a block driver that are looked at.
const DRIVER_WORDS: usize = 256;
static PROBED: AtomicBool = AtomicBool::new(false);

extern "C" fn probe(_: *mut c_void, _: c_int) {
    PROBED.store(true, Ordering::Relaxed);
}

/// Has `callback` called for each event of all nodes of driver `blkdebug`, instead of the driver.
/// Returns the numbers of the events of these names; `None` if this QEMU is another. Only with QEMU's
/// big lock.
pub(crate) fn hook_block_events<const EVENTS: usize>(
    node: BlockNode,
    callback: extern "C" fn(*mut c_void, c_int),
    names: [&CStr; EVENTS],
) -> Option<[c_int; EVENTS]> {
    let find_format = function!(c"bdrv_find_format" as FindFormat)?;
    let debug_event = function!(c"bdrv_co_debug_event" as OnEvent)?;
    let parse = function!(c"qapi_enum_parse" as ParseEnum)?;
    let lookup = ffi::find(c"BlkdebugEvent_lookup");
    // SAFETY: looks a driver up by a C string.
    let driver = unsafe { find_format(c"blkdebug".as_ptr()) };
    if driver.is_null() || lookup.is_null() {
        return None;
    }
    // SAFETY: looks a name up in QEMU's own table; no error is asked for.
    let number = |name: &CStr| unsafe { parse(lookup, name.as_ptr(), -1, ptr::null_mut()) };
    let events = names.map(number);
    if events.contains(&-1) {
        return None;
    }
    for index in 0..DRIVER_WORDS {
        // SAFETY: the description is a variable in QEMU's data, longer than the part up to the
        // function that is looked for. QEMU links drivers into a list, so it can be written; each
        // word is put back, and nobody else uses it meanwhile. Without rules the event does nothing.
        let found = unsafe {
            let slot = driver.add(index);
            let kept = slot.read_volatile();
            if kept.is_null() {
                continue;
            }
            slot.write_volatile(probe as *mut c_void);
            debug_event(node.node, events[0]);
            let found = PROBED.load(Ordering::Relaxed);
            slot.write_volatile(if found { callback as *mut c_void } else { kept });
            found
        };
        if found {
            return Some(events);
        }
    }
    None
}

type Yield = unsafe extern "C" fn();
type OnCoroutine = unsafe extern "C" fn(*mut c_void);

/// QEMU's coroutines: each request of a disk runs in one.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Coroutines {
    itself: GetContext,
    leave: Yield,
    wake: OnCoroutine,
}

impl Coroutines {
    /// `None` if QEMU doesn't export what it takes.
    pub(crate) fn find() -> Option<Coroutines> {
        Some(Coroutines {
            itself: function!(c"qemu_coroutine_self" as GetContext)?,
            leave: function!(c"qemu_coroutine_yield" as Yield)?,
            wake: function!(c"aio_co_wake" as OnCoroutine)?,
        })
    }

    /// The one that runs. Only inside one.
    pub(crate) fn current(self) -> usize {
        // SAFETY: called inside a coroutine.
        unsafe { (self.itself)() as usize }
    }

    /// Leaves the one that runs until it is woken. No lock may be held.
    pub(crate) fn pause(self) {
        // SAFETY: called inside a coroutine; somebody has its handle, and wakes it.
        unsafe { (self.leave)() };
    }

    /// Goes on with one that paused, once. With QEMU's big lock, and outside of coroutines.
    pub(crate) fn wake(self, coroutine: usize) {
        // SAFETY: the handle of a coroutine that paused, and was not woken since.
        unsafe { (self.wake)(coroutine as *mut c_void) };
    }
}

type TimerCallback = extern "C" fn(*mut c_void);
type TimerInit =
    unsafe extern "C" fn(*mut c_void, *mut c_void, c_int, c_int, c_int, TimerCallback, *mut c_void);
type TimerSet = unsafe extern "C" fn(*mut c_void, i64);
type GetClock = unsafe extern "C" fn(c_int) -> i64;

/// `QEMU_CLOCK_VIRTUAL`.
const GUEST_TIME: c_int = 1;
/// More than a `QEMUTimer` has (6).
const TIMER_WORDS: usize = 16;

/// A timer in guest time.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Timer {
    timer: *mut c_void,
    set: TimerSet,
    now: GetClock,
}

// SAFETY: the timer lives as long as QEMU, and is used by who has QEMU's big lock.
unsafe impl Send for Timer {}

impl Timer {
    /// Makes one that calls back with QEMU's big lock; `None` if QEMU doesn't export what it takes.
    pub(crate) fn new(callback: TimerCallback) -> Option<Timer> {
        let init = function!(c"timer_init_full" as TimerInit)?;
        let set = function!(c"timer_mod_ns" as TimerSet)?;
        let now = function!(c"qemu_clock_get_ns" as GetClock)?;
        let timer: *mut c_void = Box::leak(Box::new([0_u64; TIMER_WORDS])).as_mut_ptr().cast();
        // SAFETY: memory of its own, longer than a timer, aligned as one; scale 1 ns, no attributes.
        unsafe { init(timer, ptr::null_mut(), GUEST_TIME, 1, 0, callback, ptr::null_mut()) };
        Some(Timer { timer, set, now })
    }

    /// Guest time in nanoseconds. Not inside a block of translated code.
    pub(crate) fn now_ns(self) -> i64 {
        // SAFETY: reads a clock.
        unsafe { (self.now)(GUEST_TIME) }
    }

    /// Goes off at that time; what was set before is forgotten.
    pub(crate) fn set_ns(self, at_ns: i64) {
        // SAFETY: a timer that was initialised.
        unsafe { (self.set)(self.timer, at_ns) };
    }
}

type StateCallback = extern "C" fn(*mut c_void, bool, c_int);
type AddStateCallback = unsafe extern "C" fn(StateCallback, *mut c_void) -> *mut c_void;

/// Has `callback` called whenever the machine starts to run, or stops; whether QEMU exports that.
pub(crate) fn on_run_or_stop(callback: StateCallback) -> bool {
    let Some(add) = function!(c"qemu_add_vm_change_state_handler" as AddStateCallback) else {
        return false;
    };
    // SAFETY: the function lives as long as QEMU; it takes no data.
    unsafe { !add(callback, ptr::null_mut()).is_null() }
}
