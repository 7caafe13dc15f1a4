//! The disk stimuli: an asynchronous read that bypasses the page cache. Each is one request to the device and one
//! completion interrupt.

use lab::experiment::BenchError;
use std::fs::File;
use std::io;
use std::os::fd::{AsRawFd, OwnedFd};
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;
use std::time::Duration;

use rustix::event::{EventfdFlags, eventfd};
use stats::Random;

use super::super::interrupt_line::CountedAs;
use super::RaiseInterrupt;
use crate::stimulus::{default_scratch_dir, scratch_file};

/// Number of files, or of blocks of a device. Each read chooses one at random, so that no layer can predict it.
const FILES: usize = 16;
/// Bytes of each file, as in the paper.
const FILE_BYTES: u64 = 16;
/// Bytes of a read: `O_DIRECT` reads whole blocks only.
const BLOCK_BYTES: usize = 4096;

/// The kernel's `struct iocb` (linux/aio_abi.h), 64 bytes: the layout must not change.
#[repr(C)]
#[derive(Debug, Default)]
struct Iocb {
    data: u64,
    key: u32,
    rw_flags: u32,
    opcode: u16,
    priority: i16,
    file: u32,
    buffer: u64,
    bytes: u64,
    offset: i64,
    reserved: u64,
    flags: u32,
    event_file: u32,
}

/// The kernel's `struct io_event` (linux/aio_abi.h), 32 bytes: the layout must not change.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default)]
struct IoEvent {
    data: u64,
    object: u64,
    result: i64,
    result2: i64,
}

const OPCODE_READ: u16 = 0; // IOCB_CMD_PREAD
const FLAG_EVENT_FILE: u32 = 1; // IOCB_FLAG_RESFD

#[repr(C, align(4096))]
struct Block([u8; BLOCK_BYTES]);

/// Files on a disk, read by the kernel's asynchronous IO (`io_submit`). Its completion runs only in
/// the interrupt, while io_uring would add work on the return to the loop.
pub struct Disk {
    /// The kernel's handle for asynchronous IO.
    context: libc::c_ulong,
    /// [`FILES`] scratch files, or one device.
    files: Vec<File>,
    /// The eventfd that signals completions, if the stimulus has one.
    event: Option<OwnedFd>,
    /// The kernel writes to it until the read is reaped, so it must stay on the heap.
    block: Box<Block>,
    request: Box<Iocb>,
    in_flight: bool,
    random: Random,
}

fn files() -> Result<Vec<File>, BenchError> {
    let directory = default_scratch_dir();
    (0..FILES)
        .map(|_| scratch_file(&directory, FILE_BYTES))
        .collect::<Result<_, _>>()
        .map_err(|(reason, remedy)| BenchError::Unavailable { reason, remedy: Some(remedy) })
}

fn open_device(path: &Path) -> Result<File, BenchError> {
    let mut options = File::options();
    options.read(true).custom_flags(libc::O_DIRECT);
    let cannot = |error: io::Error| {
        BenchError::unavailable(format!(
            "{} cannot be opened with O_DIRECT: {error}",
            path.display()
        ))
    };
    options.open(path).map_err(cannot)
}

impl Disk {
    /// `notified`: an eventfd signals completions. `device`: reads blocks of this device instead of
    /// files, for a machine whose disk has no file system.
    ///
    /// Fails if no scratch file can be made on a disk, or the kernel has no asynchronous IO.
    pub fn new(notified: bool, device: Option<&Path>) -> Result<Self, BenchError> {
        let files = match device {
            Some(device) => vec![open_device(device)?],
            None => files()?,
        };
        let event = notified
            .then(|| eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK))
            .transpose()
            .map_err(|error| BenchError::unavailable(format!("eventfd failed: {error}")))?;
        let mut context: libc::c_ulong = 0;
        // SAFETY: the kernel writes a number to `context`, which outlives the call.
        let result = unsafe { libc::syscall(libc::SYS_io_setup, 1, &raw mut context) };
        if result < 0 {
            let error = io::Error::last_os_error();
            return Err(BenchError::unavailable(format!("io_setup failed: {error}")));
        }
        let block = Box::new(Block([0; BLOCK_BYTES]));
        let request = Box::default();
        let random = Random::new(1);
        Ok(Disk { context, files, event, block, request, in_flight: false, random })
    }

    /// Waits for the read in flight, if there is one. Fails if the read failed.
    fn reap(&mut self) -> io::Result<()> {
        let mut event = IoEvent::default();
        while self.in_flight {
            // SAFETY: the kernel writes at most one event to `event`; no time limit is given.
            let number = unsafe {
                let no_limit = std::ptr::null::<libc::timespec>();
                libc::syscall(libc::SYS_io_getevents, self.context, 1, 1, &raw mut event, no_limit)
            };
            match number {
                1 => self.in_flight = false,
                0 => {}
                _ => match io::Error::last_os_error() {
                    error if error.kind() == io::ErrorKind::Interrupted => {}
                    error => return Err(error),
                },
            }
        }
        if event.result < 0 {
            return Err(io::Error::from_raw_os_error(-event.result as i32));
        }
        Ok(())
    }
}

impl RaiseInterrupt for Disk {
    fn counted_as(&self) -> CountedAs {
        CountedAs::Device
    }

    /// Submits the read at once: the disk decides when it interrupts.
    fn schedule(&mut self, _delay: Duration) -> io::Result<()> {
        self.reap()?;
        let index = self.random.below(FILES as u64) as usize;
        // Each scratch file has one block. On a device, the index is the block's number.
        let (file, block) = match &self.files[..] {
            [device] => (device, index),
            files => (&files[index], 0),
        };
        *self.request = Iocb {
            opcode: OPCODE_READ,
            file: file.as_raw_fd() as u32,
            buffer: &raw mut *self.block as u64,
            bytes: BLOCK_BYTES as u64,
            offset: (block * BLOCK_BYTES) as i64,
            flags: if self.event.is_some() { FLAG_EVENT_FILE } else { 0 },
            event_file: self.event.as_ref().map_or(0, |event| event.as_raw_fd() as u32),
            ..Iocb::default()
        };
        let mut requests = [&raw mut *self.request];
        // SAFETY: request and block are on the heap and stay there until the read is reaped, at the latest by
        // `drop`. The kernel reads the request in this call, and writes to the block until the read is reaped.
        let submitted =
            unsafe { libc::syscall(libc::SYS_io_submit, self.context, 1, requests.as_mut_ptr()) };
        if submitted != 1 {
            return Err(io::Error::last_os_error());
        }
        self.in_flight = true;
        Ok(())
    }

    fn drain(&mut self) -> io::Result<()> {
        self.reap()
    }

    fn method(&self) -> String {
        let notified = if self.event.is_some() { ", notified by an eventfd" } else { "" };
        let target = match self.files.len() {
            1 => format!("{BLOCK_BYTES} bytes, 1 of {FILES} blocks"),
            files => format!("{FILE_BYTES} bytes, 1 of {files} files"),
        };
        format!("io_submit of an O_DIRECT read of {target}{notified}")
    }
}

impl Drop for Disk {
    fn drop(&mut self) {
        let _ = self.reap(); // The kernel must not write to the buffer after it is freed.
        // SAFETY: this value owns the context, and nothing is in flight.
        unsafe { libc::syscall(libc::SYS_io_destroy, self.context) };
    }
}
