//! QEMU's event loop, block layer, coroutines and timers. `devices/` uses them to make devices repeatable and to give
//! disks a latency; `time/limit.rs` uses a timer.
//!
//! QEMU's *big lock* (BQL) protects its devices. Each function says whether its caller must hold it.

use std::ffi::{CStr, CString, c_char, c_int, c_void};
use std::ptr;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

use super::{CpuExit, GetCpu, NO_CPU};
use crate::qemu::ffi;

type Work = extern "C" fn(*mut c_void, usize);
type RunOnCpu = unsafe extern "C" fn(*mut c_void, Work, usize);
type GetContext = unsafe extern "C" fn() -> *mut c_void;
type Poll = unsafe extern "C" fn(*mut c_void) -> c_int;

/// QEMU's event loop, which does the work that devices defer.
#[derive(Clone, Copy, Debug)]
pub(crate) struct EventLoop {
    run_on_cpu: RunOnCpu,
    get_cpu: GetCpu,
    cpu_exit: CpuExit,
    get_context: GetContext,
    poll: Poll,
}

impl EventLoop {
    /// `None` if QEMU does not export the needed functions.
    pub(crate) fn find() -> Option<EventLoop> {
        Some(EventLoop {
            run_on_cpu: function!(c"async_run_on_cpu" as RunOnCpu)?,
            get_cpu: function!(c"qemu_get_cpu" as GetCpu)?,
            cpu_exit: function!(c"cpu_exit" as CpuExit)?,
            get_context: function!(c"qemu_get_aio_context" as GetContext)?,
            poll: function!(c"aio_bh_poll" as Poll)?,
        })
    }

    /// Makes the running vCPU stop at the end of its block. The vCPUs' thread then does `work`, with QEMU's big lock,
    /// before any vCPU runs.
    pub(crate) fn at_end_of_block(self, vcpu: u32, work: Work) {
        let number = c_int::try_from(vcpu).unwrap_or(NO_CPU);
        // SAFETY: called in the vCPUs' thread; vCPUs and functions exist until the machine ends.
        unsafe {
            let cpu = (self.get_cpu)(number);
            if cpu.is_null() {
                return;
            }
            (self.run_on_cpu)(cpu, work, 0);
            // Otherwise the other vCPUs would run before QEMU checks for work.
            for other in 0.. {
                let other_cpu = (self.get_cpu)(other);
                if other_cpu.is_null() {
                    break;
                }
                (self.cpu_exit)(other_cpu);
            }
        }
    }

    /// Does deferred work, and returns whether there was any. Call it only with QEMU's big lock, and outside of
    /// coroutines.
    ///
    /// This is `aio_bh_poll`. QEMU's `aio_poll` would also serve file descriptors, including the descriptors that wake
    /// the main loop. With io_uring, the main loop could then sleep for good.
    pub(crate) fn poll(self) -> bool {
        // SAFETY: the holder of the big lock may do deferred work.
        unsafe { (self.poll)((self.get_context)()) != 0 }
    }
}

/// `GSourceFuncs` of GLib.
#[derive(Clone, Copy)]
#[repr(C)]
struct SourceFunctions {
    prepare: *const c_void,
    check: *const c_void,
    dispatch: Option<Dispatch>,
    finalize: *const c_void,
    closure_callback: *const c_void,
    closure_marshal: *const c_void,
}

/// The public start of GLib's `GSource`.
#[repr(C)]
struct Source {
    callback_data: *mut c_void,
    callback_functions: *mut c_void,
    functions: *const SourceFunctions,
}

type Dispatch = extern "C" fn(*mut c_void, *mut c_void, *mut c_void) -> c_int;
type GetSource = unsafe extern "C" fn(*mut c_void) -> *mut Source;
type Unreference = unsafe extern "C" fn(*mut Source);

/// The arguments with which QEMU's main loop does deferred work.
pub(crate) struct Deferred {
    pub(crate) source: *mut c_void,
    pub(crate) callback: *mut c_void,
    pub(crate) data: *mut c_void,
}

/// How QEMU's main loop does the work that was deferred to it.
#[derive(Clone, Copy, Debug)]
pub(crate) struct MainLoop {
    dispatch: Dispatch,
}

impl MainLoop {
    /// The result of a dispatch that has done nothing: the main loop tries again (`G_SOURCE_CONTINUE`).
    pub(crate) const LATER: c_int = 1;

    /// Makes the main loop call `dispatch` instead of doing deferred work. `None` if QEMU does not export the needed
    /// functions. Until the caller has stored the result, `dispatch` may only return [`MainLoop::LATER`].
    pub(crate) fn hook(dispatch: Dispatch) -> Option<MainLoop> {
        let get_context = function!(c"qemu_get_aio_context" as GetContext)?;
        let get_source = function!(c"aio_get_g_source" as GetSource)?;
        let unreference = function!(c"g_source_unref" as Unreference)?;
        // SAFETY: the context of the main loop and its source exist until QEMU ends. The
        // structures are GLib's public ones. GLib reads the table's address as one aligned word each
        // time, and the new table is the old one with another function.
        unsafe {
            let source = get_source(get_context());
            unreference(source);
            let table = (*source).functions;
            if table.is_null() {
                return None;
            }
            let original = (*table).dispatch?;
            let hooked = SourceFunctions { dispatch: Some(dispatch), ..*table };
            (&raw mut (*source).functions).write_volatile(Box::leak(Box::new(hooked)));
            Some(MainLoop { dispatch: original })
        }
    }

    /// Does deferred work, as the main loop would without the hook. Call it only in the hook.
    pub(crate) fn dispatch(self, deferred: Deferred) -> c_int {
        (self.dispatch)(deferred.source, deferred.callback, deferred.data)
    }
}

type FindNode = unsafe extern "C" fn(*const c_char) -> *mut c_void;
type OnNode = unsafe extern "C" fn(*mut c_void);

/// A node of QEMU's block layer.
#[derive(Clone, Copy, Debug)]
pub(crate) struct BlockNode {
    node: *mut c_void,
    /// Where the node counts its requests that are under way.
    in_flight: *const u32,
}

// SAFETY: nodes of disks exist until the machine ends; they are used only with QEMU's big lock.
unsafe impl Send for BlockNode {}

impl BlockNode {
    /// Finds a node by its name. `None` if there is no such node, or its count of requests is not found. Call it only
    /// with QEMU's big lock.
    ///
    /// The count is the word of the node that changes when a request starts and ends.
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
        // SAFETY: a node is an allocation of its own, so this is the number of bytes that may be read.
        let word_count = unsafe { libc::malloc_usable_size(node) } / size_of::<u32>();
        let word = |index: usize| node.cast_const().cast::<u32>().wrapping_add(index);
        // SAFETY: the index is below the number of words.
        let read = |index: usize| unsafe { word(index).read_volatile() };
        let words_before: Vec<u32> = (0..word_count).map(read).collect();
        // SAFETY: a request that starts, and ends.
        let changed_word = unsafe {
            increase(node);
            let changed_word =
                (0..word_count).find(|index| read(*index) == words_before[*index].wrapping_add(1));
            decrease(node);
            changed_word
        }?;
        (read(changed_word) == words_before[changed_word])
            .then_some(BlockNode { node, in_flight: word(changed_word) })
    }

    /// QEMU's description of the node.
    pub(crate) fn handle(self) -> usize {
        self.node as usize
    }

    /// Where on the disk the request of a coroutine is, and how long it is: offset and length in bytes. `None` if the
    /// node has no such request, or this QEMU keeps its requests elsewhere. Call it only in that coroutine.
    ///
    /// A node has a list of its requests (`tracked_requests`), the newest first, and each begins with its node, its
    /// offset and its length (`BdrvTrackedRequest`). The running coroutine's request is the newest, because the driver
    /// `raw` does not yield between the start of the request and the event. The list is the word of the node that points to a request of this
    /// node and this coroutine.
    pub(crate) fn request_of(self, coroutine: usize) -> Option<(u64, u64)> {
        let node = self.node as usize;
        // SAFETY: a node is an allocation of its own, so this is the number of bytes that may be read.
        let word_count = unsafe { libc::malloc_usable_size(self.node) } / size_of::<usize>();
        let node_start = self.node.cast_const().cast::<usize>();
        // SAFETY: the index is below the number of words.
        let word = |index: usize| unsafe { node_start.add(index).read_volatile() };
        let request_at = |index: usize| {
            let request: [usize; REQUEST_WORDS] = memory_at(word(index))?;
            let is_of_coroutine = request[3..].contains(&coroutine);
            let [of_node, offset, bytes, ..] = request;
            (of_node == node && is_of_coroutine).then_some((offset as u64, bytes as u64))
        };
        // All nodes keep their lists at the same place.
        let known_index = LIST_WORD.load(Ordering::Relaxed);
        let at_known_index = if known_index < word_count { request_at(known_index) } else { None };
        // A scan takes a system call for each word, and another one would find no more.
        if at_known_index.is_some() || HAS_SCANNED.swap(true, Ordering::Relaxed) {
            return at_known_index;
        }
        let (index, request) =
            (0..word_count).find_map(|index| Some((index, request_at(index)?)))?;
        LIST_WORD.store(index, Ordering::Relaxed);
        Some(request)
    }

    /// The number of the node's requests that are under way.
    pub(crate) fn in_flight(self) -> u32 {
        // SAFETY: inside the node, as `find` saw it.
        unsafe { self.in_flight.read_volatile() }
    }
}

/// Number of words at the start of a request. Its coroutine is one of them.
const REQUEST_WORDS: usize = 12;
/// The word of a node that points to its newest request, once it is found.
static LIST_WORD: AtomicUsize = AtomicUsize::new(usize::MAX);
/// Whether [`LIST_WORD`] has been looked for.
static HAS_SCANNED: AtomicBool = AtomicBool::new(false);

/// Reads words of this process at any address. `None` if they cannot all be read.
fn memory_at<const WORDS: usize>(address: usize) -> Option<[usize; WORDS]> {
    let mut words = [0_usize; WORDS];
    let length = size_of_val(&words);
    let local = libc::iovec { iov_base: words.as_mut_ptr().cast(), iov_len: length };
    let remote = libc::iovec { iov_base: address as *mut c_void, iov_len: length };
    // SAFETY: the kernel writes into `words`, and refuses an address that is not mapped.
    let copied = unsafe { libc::process_vm_readv(libc::getpid(), &local, 1, &remote, 1, 0) };
    (copied == length.cast_signed()).then_some(words)
}

type FindFormat = unsafe extern "C" fn(*const c_char) -> *mut *mut c_void;
type OnEvent = unsafe extern "C" fn(*mut c_void, c_int);
type ParseEnum =
    unsafe extern "C" fn(*const c_void, *const c_char, c_int, *mut *mut c_void) -> c_int;

/// How many words of a block driver's description are searched.
const DRIVER_WORDS: usize = 256;
/// Whether QEMU has called [`probe`].
static PROBED: AtomicBool = AtomicBool::new(false);

extern "C" fn probe(_: *mut c_void, _: c_int) {
    PROBED.store(true, Ordering::Relaxed);
}

/// Makes all nodes of the driver `blkdebug` call `callback` for each event, instead of the driver's function. Returns
/// the numbers of the events with these names. `None` if this QEMU differs. Call it only with QEMU's big lock.
///
/// Finds the place of the function in the driver's description: replaces each word in turn, and causes an event at `node`. If
/// the event calls the probe, the word is the function; every other word is restored at once.
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
        // word is restored, and nothing else uses it in that time. Without rules the event does
        // nothing.
        let is_function = unsafe {
            let slot = driver.add(index);
            let original = slot.read_volatile();
            if original.is_null() {
                continue;
            }
            slot.write_volatile(probe as *mut c_void);
            debug_event(node.node, events[0]);
            let is_function = PROBED.load(Ordering::Relaxed);
            slot.write_volatile(if is_function { callback as *mut c_void } else { original });
            is_function
        };
        if is_function {
            return Some(events);
        }
    }
    None
}

type Yield = unsafe extern "C" fn();
type OnCoroutine = unsafe extern "C" fn(*mut c_void);

/// Functions of QEMU's coroutines. Each request of a disk runs in a coroutine.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Coroutines {
    current: GetContext,
    pause: Yield,
    wake: OnCoroutine,
}

impl Coroutines {
    /// `None` if QEMU does not export the needed functions.
    pub(crate) fn find() -> Option<Coroutines> {
        Some(Coroutines {
            current: function!(c"qemu_coroutine_self" as GetContext)?,
            pause: function!(c"qemu_coroutine_yield" as Yield)?,
            wake: function!(c"aio_co_wake" as OnCoroutine)?,
        })
    }

    /// The handle of the running coroutine. Call it only inside a coroutine.
    pub(crate) fn current(self) -> usize {
        // SAFETY: called inside a coroutine.
        unsafe { (self.current)() as usize }
    }

    /// Pauses the running coroutine until it is woken. The caller must hold no lock.
    pub(crate) fn pause(self) {
        // SAFETY: called inside a coroutine. The caller has stored its handle, to wake it.
        unsafe { (self.pause)() };
    }

    /// Continues a paused coroutine. Call it once for each pause, with QEMU's big lock and outside of coroutines.
    pub(crate) fn wake(self, coroutine: usize) {
        // SAFETY: the handle of a coroutine that has paused and was not woken yet.
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
/// The words that are allocated for a `QEMUTimer`, which has 6.
const TIMER_WORDS: usize = 16;

/// A timer in guest time.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Timer {
    timer: *mut c_void,
    set: TimerSet,
    now: GetClock,
}

// SAFETY: the timer is never freed, and is used only with QEMU's big lock.
unsafe impl Send for Timer {}

impl Timer {
    /// Makes a timer that calls `callback` with QEMU's big lock. `None` if QEMU does not export the needed functions.
    pub(crate) fn new(callback: TimerCallback) -> Option<Timer> {
        let init = function!(c"timer_init_full" as TimerInit)?;
        let set = function!(c"timer_mod_ns" as TimerSet)?;
        let now = function!(c"qemu_clock_get_ns" as GetClock)?;
        let timer: *mut c_void = Box::leak(Box::new([0_u64; TIMER_WORDS])).as_mut_ptr().cast();
        // SAFETY: the memory is not used otherwise, is longer than a timer and aligned as one. The scale is 1 ns, and
        // there are no attributes.
        unsafe { init(timer, ptr::null_mut(), GUEST_TIME, 1, 0, callback, ptr::null_mut()) };
        Some(Timer { timer, set, now })
    }

    /// Guest time in nanoseconds. Do not call it inside a block of translated code.
    pub(crate) fn now_ns(self) -> i64 {
        // SAFETY: reads a clock.
        unsafe { (self.now)(GUEST_TIME) }
    }

    /// Sets the timer to a guest time, which replaces an earlier setting.
    pub(crate) fn set_ns(self, at_ns: i64) {
        // SAFETY: a timer that was initialised.
        unsafe { (self.set)(self.timer, at_ns) };
    }
}

type StateCallback = extern "C" fn(*mut c_void, bool, c_int);
type AddStateCallback = unsafe extern "C" fn(StateCallback, *mut c_void) -> *mut c_void;

/// Makes QEMU call `callback` whenever the machine starts to run, or stops. Returns whether QEMU exports the function.
pub(crate) fn on_run_or_stop(callback: StateCallback) -> bool {
    let Some(add) = function!(c"qemu_add_vm_change_state_handler" as AddStateCallback) else {
        return false;
    };
    // SAFETY: the function is never unloaded; it takes no data.
    unsafe { !add(callback, ptr::null_mut()).is_null() }
}

type ShutDown = unsafe extern "C" fn(c_int);

/// `SHUTDOWN_CAUSE_HOST_ERROR`.
const HOST_ERROR: c_int = 1;

/// Makes QEMU end the machine soon. Returns whether QEMU exports the function.
pub(crate) fn shut_down() -> bool {
    let Some(request) = function!(c"qemu_system_shutdown_request" as ShutDown) else {
        return false;
    };
    // SAFETY: sets a flag that the main loop reads, and wakes the main loop.
    unsafe { request(HOST_ERROR) };
    true
}
