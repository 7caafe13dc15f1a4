//! Ranks that are connected by the system's MPI library, which is loaded at run time: irqlab is not linked with it.
//!
//! Only the ABI of Open MPI 4 is known here. Its predefined handles are addresses of data symbols such as
//! `ompi_mpi_comm_world`; the handles of MPICH and its relatives are integers. The library names itself by
//! `MPI_Get_library_version`, which may be called before `MPI_Init`, so another library is refused before anything else
//! is called.

use std::ffi::{CStr, CString, c_char, c_int, c_void};
use std::time::{Duration, Instant};

use lab::experiment::BenchError;
use lab::noise::collective::Operation;

use super::transport::{Transport, expected_sum, out_of_step};

/// Names of the library, in the order of attempts. The last three find an MPI that is refused by its name.
const LIBRARIES: [&str; 4] = ["libmpi.so.40", "libmpi.so", "libmpich.so.12", "libmpi.so.12"];
/// How the version text of a supported library begins.
const SUPPORTED: &str = "Open MPI v4.";
/// Room for the version text: MPICH's needs the most, 8,192 bytes.
const VERSION_BYTES: usize = 16_384;
/// `MPI_THREAD_FUNNELED` of Open MPI: only the thread that initialises the library calls it.
const THREAD_FUNNELED: c_int = 1;
/// The tag that marks the messages of irqlab.
const TAG: c_int = 52;
/// Number of busy attempts between two looks at the clock.
const BUSY_ATTEMPTS: u32 = 256;

/// `MPI_Status` of Open MPI 4: `MPI_SOURCE`, `MPI_TAG`, `MPI_ERROR`, and two private fields.
#[repr(C)]
#[derive(Clone, Copy, Default)]
struct Status {
    source: c_int,
    tag: c_int,
    error: c_int,
    cancelled: c_int,
    bytes: usize,
}

type Handle = *mut c_void;

/// The functions and predefined handles of the library.
struct Library {
    init_thread: unsafe extern "C" fn(Handle, Handle, c_int, *mut c_int) -> c_int,
    finalize: unsafe extern "C" fn() -> c_int,
    comm_rank: unsafe extern "C" fn(Handle, *mut c_int) -> c_int,
    comm_size: unsafe extern "C" fn(Handle, *mut c_int) -> c_int,
    set_errhandler: unsafe extern "C" fn(Handle, Handle) -> c_int,
    barrier: unsafe extern "C" fn(Handle) -> c_int,
    allreduce: unsafe extern "C" fn(*const u64, *mut u64, c_int, Handle, Handle, Handle) -> c_int,
    send: unsafe extern "C" fn(*const u8, c_int, Handle, c_int, c_int, Handle) -> c_int,
    receive:
        unsafe extern "C" fn(*mut u8, c_int, Handle, c_int, c_int, Handle, *mut Status) -> c_int,
    probe: unsafe extern "C" fn(c_int, c_int, Handle, *mut c_int, *mut Status) -> c_int,
    count: unsafe extern "C" fn(*const Status, Handle, *mut c_int) -> c_int,
    world: Handle,
    byte: Handle,
    unsigned: Handle,
    sum: Handle,
    errors_return: Handle,
}

/// A rank that is connected by MPI.
pub struct Mpi {
    library: Library,
    rank: u32,
    rank_count: u32,
    version: String,
    limit: Duration,
    waits_busily: bool,
}

fn unavailable(reason: String, remedy: Option<&str>) -> BenchError {
    BenchError::NothingMeasurable { reason, remedy: remedy.map(str::to_owned) }
}

impl Mpi {
    /// Loads the library, `file` or the system's, and initialises it.
    ///
    /// Fails without a library, with a library other than Open MPI 4, or if it cannot be initialised. Also fails if this
    /// process has rights that its user does not have.
    pub fn start(file: Option<&str>, limit: Duration) -> Result<Mpi, BenchError> {
        // SAFETY: getauxval reads a number that the kernel gave this process when it started.
        if unsafe { libc::getauxval(libc::AT_SECURE) } != 0 {
            return Err(unavailable(
                "irqlab's file has capabilities (setcap), and code of an MPI library would have them, too".to_owned(),
                Some(
                    "use --transport tcp, or an irqlab whose file has no capabilities (root needs none)",
                ),
            ));
        }
        let (name, handle) = open(file)?;
        let version = library_version(&name, handle)?;
        if !version.starts_with(SUPPORTED) {
            return Err(unavailable(
                format!(
                    "{name} is {version:?}; irqlab knows only the binary interface of Open MPI 4, and others differ from it"
                ),
                Some(
                    "start the ranks with Open MPI 4 (Debian's openmpi-bin), or use --transport tcp",
                ),
            ));
        }
        let library = Library::find(&name, handle)?;
        let mut provided = 0;
        // SAFETY: both arguments of main may be null, and the number outlives the call. This is the only call.
        let code = unsafe {
            let null = std::ptr::null_mut();
            (library.init_thread)(null, null, THREAD_FUNNELED, &raw mut provided)
        };
        check("MPI_Init_thread", code)?;
        let mut mpi = Mpi { library, rank: 0, rank_count: 0, version, limit, waits_busily: true };
        let (mut rank, mut count) = (0, 0);
        let world = mpi.library.world;
        // SAFETY: the library is initialised, its handles are its own, and the numbers outlive the calls.
        unsafe {
            check(
                "MPI_Comm_set_errhandler",
                (mpi.library.set_errhandler)(world, mpi.library.errors_return),
            )?;
            check("MPI_Comm_rank", (mpi.library.comm_rank)(world, &raw mut rank))?;
            check("MPI_Comm_size", (mpi.library.comm_size)(world, &raw mut count))?;
        }
        mpi.rank = u32::try_from(rank).unwrap_or(0);
        mpi.rank_count = u32::try_from(count).unwrap_or(0);
        Ok(mpi)
    }
}

/// An error of a function of the library.
fn check(function: &str, code: c_int) -> Result<(), BenchError> {
    if code == 0 {
        Ok(())
    } else {
        Err(BenchError::Failed(format!("{function} failed with code {code}")))
    }
}

/// Loads a library. Its symbols are global, because Open MPI's components need them.
fn open(file: Option<&str>) -> Result<(String, Handle), BenchError> {
    let names: Vec<&str> = file.map_or_else(|| LIBRARIES.to_vec(), |file| vec![file]);
    let mut reasons = Vec::new();
    for name in names {
        let Ok(path) = CString::new(name) else { continue };
        // SAFETY: loading runs the library's initialisers. The user asked for MPI, and the name is the system's or the user's.
        let handle = unsafe { libc::dlopen(path.as_ptr(), libc::RTLD_NOW | libc::RTLD_GLOBAL) };
        if !handle.is_null() {
            return Ok((name.to_owned(), handle));
        }
        // SAFETY: dlerror returns a text of this thread that is valid until its next call, or null.
        let reason = unsafe {
            let text = libc::dlerror();
            if text.is_null() {
                String::new()
            } else {
                CStr::from_ptr(text).to_string_lossy().into_owned()
            }
        };
        reasons.push(reason);
    }
    let reason = reasons.first().map_or("no name", String::as_str);
    Err(unavailable(
        format!("no MPI library can be loaded: {reason}"),
        Some(
            "apt-get install openmpi-bin, or name the library with --mpi-library, or use --transport tcp",
        ),
    ))
}

/// The address of a symbol.
fn symbol(name: &str, handle: Handle, symbol: &CStr) -> Result<Handle, BenchError> {
    // SAFETY: the handle is that of a loaded library, which is never unloaded.
    let address = unsafe { libc::dlsym(handle, symbol.as_ptr()) };
    if address.is_null() {
        let symbol = symbol.to_string_lossy();
        return Err(unavailable(
            format!("{name} has no {symbol}, so it is no complete MPI library"),
            None,
        ));
    }
    Ok(address)
}

/// The function with this name.
///
/// # Safety
/// `F` must be the type of a pointer to this function.
unsafe fn function<F: Copy>(name: &str, handle: Handle, function: &CStr) -> Result<F, BenchError> {
    let address = symbol(name, handle, function)?;
    // SAFETY: by the caller's promise, `F` is a pointer to this function. dlsym(3) returns such pointers as addresses.
    Ok(unsafe { std::mem::transmute_copy::<Handle, F>(&address) })
}

/// The first line of the library's version text.
fn library_version(name: &str, handle: Handle) -> Result<String, BenchError> {
    // SAFETY: every MPI library since MPI 3 has this function with these arguments.
    let version: unsafe extern "C" fn(*mut c_char, *mut c_int) -> c_int =
        unsafe { function(name, handle, c"MPI_Get_library_version")? };
    let (mut text, mut length) = (vec![0_u8; VERSION_BYTES], 0);
    // SAFETY: the room is larger than any library's MPI_MAX_LIBRARY_VERSION_STRING.
    let code = unsafe { version(text.as_mut_ptr().cast(), &raw mut length) };
    check("MPI_Get_library_version", code)?;
    let end = text.iter().position(|byte| *byte == 0).unwrap_or(text.len());
    let text = String::from_utf8_lossy(&text[..end]);
    let line = text.lines().next().unwrap_or_default();
    let line = line.split(", package").next().unwrap_or_default();
    Ok(line.chars().filter(|character| !character.is_control()).take(80).collect())
}

impl Library {
    fn find(name: &str, handle: Handle) -> Result<Library, BenchError> {
        // SAFETY: the fields have the types of the functions in Open MPI 4's mpi.h, with pointers as handles.
        unsafe {
            Ok(Library {
                init_thread: function(name, handle, c"MPI_Init_thread")?,
                finalize: function(name, handle, c"MPI_Finalize")?,
                comm_rank: function(name, handle, c"MPI_Comm_rank")?,
                comm_size: function(name, handle, c"MPI_Comm_size")?,
                set_errhandler: function(name, handle, c"MPI_Comm_set_errhandler")?,
                barrier: function(name, handle, c"MPI_Barrier")?,
                allreduce: function(name, handle, c"MPI_Allreduce")?,
                send: function(name, handle, c"MPI_Send")?,
                receive: function(name, handle, c"MPI_Recv")?,
                probe: function(name, handle, c"MPI_Iprobe")?,
                count: function(name, handle, c"MPI_Get_count")?,
                world: symbol(name, handle, c"ompi_mpi_comm_world")?,
                byte: symbol(name, handle, c"ompi_mpi_byte")?,
                unsigned: symbol(name, handle, c"ompi_mpi_uint64_t")?,
                sum: symbol(name, handle, c"ompi_mpi_op_sum")?,
                errors_return: symbol(name, handle, c"ompi_mpi_errors_return")?,
            })
        }
    }
}

impl Transport for Mpi {
    fn rank(&self) -> u32 {
        self.rank
    }

    fn rank_count(&self) -> u32 {
        self.rank_count
    }

    fn describe(&self) -> String {
        self.version.clone()
    }

    fn set_busy_waits(&mut self, waits_busily: bool) {
        self.waits_busily = waits_busily;
    }

    fn send(&mut self, to: u32, message: &[u8]) -> Result<(), BenchError> {
        let count = c_int::try_from(message.len())
            .map_err(|_| BenchError::Failed("a message is too long for MPI".to_owned()))?;
        let library = &self.library;
        // SAFETY: the message has `count` bytes and outlives the call, and the handles are the library's.
        let code = unsafe {
            (library.send)(message.as_ptr(), count, library.byte, to as c_int, TAG, library.world)
        };
        check("MPI_Send", code)
    }

    fn receive(&mut self, from: u32, bytes_max: usize) -> Result<Vec<u8>, BenchError> {
        let library = &self.library;
        let deadline = Instant::now() + self.limit;
        let (mut status, mut found, mut attempts) = (Status::default(), 0, 0_u32);
        loop {
            // SAFETY: flag and status outlive the call, and the status has Open MPI 4's layout.
            let code = unsafe {
                (library.probe)(from as c_int, TAG, library.world, &raw mut found, &raw mut status)
            };
            check("MPI_Iprobe", code)?;
            if found != 0 {
                break;
            }
            attempts = attempts.wrapping_add(1);
            let looks_at_clock = !self.waits_busily || attempts.is_multiple_of(BUSY_ATTEMPTS);
            if looks_at_clock && Instant::now() >= deadline {
                let limit_s = self.limit.as_secs();
                return Err(BenchError::Failed(format!(
                    "rank {from} sent nothing for {limit_s} s: it hangs, or needs longer (--limit)"
                )));
            }
            if !self.waits_busily {
                std::thread::sleep(Duration::from_micros(50));
            }
        }
        let mut count = 0;
        // SAFETY: the status is that of the probe.
        let code = unsafe { (library.count)(&raw const status, library.byte, &raw mut count) };
        check("MPI_Get_count", code)?;
        let length = usize::try_from(count).ok().filter(|length| *length <= bytes_max);
        let length = length.ok_or_else(|| {
            BenchError::Failed(format!(
                "rank {from} sent a message that is longer than the allowed {bytes_max} bytes"
            ))
        })?;
        let mut message = vec![0_u8; length];
        // SAFETY: the room has `count` bytes, as the probe said, and the handles are the library's.
        let code = unsafe {
            (library.receive)(
                message.as_mut_ptr(),
                count,
                library.byte,
                from as c_int,
                TAG,
                library.world,
                &raw mut status,
            )
        };
        check("MPI_Recv", code)?;
        Ok(message)
    }

    fn collective(&mut self, operation: Operation, number: u64) -> Result<(), BenchError> {
        let library = &self.library;
        match operation {
            Operation::Barrier => {
                // SAFETY: the communicator is the library's.
                check("MPI_Barrier", unsafe { (library.barrier)(library.world) })
            }
            Operation::Allreduce => {
                let (own, mut sum) = (number.wrapping_add(u64::from(self.rank)), 0_u64);
                // SAFETY: both numbers outlive the call, and the handles are the library's.
                let code = unsafe {
                    let (unsigned, op) = (library.unsigned, library.sum);
                    (library.allreduce)(
                        &raw const own,
                        &raw mut sum,
                        1,
                        unsigned,
                        op,
                        library.world,
                    )
                };
                check("MPI_Allreduce", code)?;
                if sum == expected_sum(number, self.rank_count) {
                    Ok(())
                } else {
                    Err(out_of_step(number))
                }
            }
        }
    }

    /// Does nothing: the launcher ends all ranks when this process ends with an error.
    fn abort(&mut self, _reason: &str) {}

    fn finish(&mut self) -> Result<(), BenchError> {
        // SAFETY: this thread initialised the library, and calls none of its functions afterwards.
        check("MPI_Finalize", unsafe { (self.library.finalize)() })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_library_that_is_missing_is_named_with_the_remedy() {
        let error = Mpi::start(Some("/nonexistent/libmpi.so.40"), Duration::from_secs(1));
        let Err(BenchError::NothingMeasurable { reason, remedy }) = error else {
            panic!("started")
        };
        assert!(reason.contains("/nonexistent/libmpi.so.40"), "{reason}");
        assert!(remedy.unwrap().contains("--transport tcp"));
    }

    #[test]
    fn a_library_that_is_no_mpi_is_refused() {
        let error = Mpi::start(Some("libc.so.6"), Duration::from_secs(1));
        let Err(BenchError::NothingMeasurable { reason, .. }) = error else { panic!("started") };
        assert!(reason.contains("MPI_Get_library_version"), "{reason}");
    }

    #[test]
    fn the_status_has_open_mpis_layout() {
        assert_eq!((size_of::<Status>(), std::mem::offset_of!(Status, bytes)), (24, 16));
    }
}
