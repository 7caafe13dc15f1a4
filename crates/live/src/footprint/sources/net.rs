//! A short TCP message that comes in: from the far end of a veth pair, whose messages the kernel
//! handles on the loop's CPU.

use std::io::{self, Read, Write};
use std::net::TcpStream;
use std::os::fd::AsRawFd;
use std::time::{Duration, Instant};

use super::{Counted, Raise, Unavailable};
use crate::noise::place::pin;
use crate::stimulus::{Ends, connected_ends};

/// Bytes of a message: the delay, and as many again.
const MESSAGE_BYTES: usize = 16;
/// No delay is longer.
const DELAY_MAX: Duration = Duration::from_secs(1);

/// The near end of a connection, whose far end answers each message after a delay.
#[derive(Debug)]
pub struct Net {
    near: TcpStream,
    is_under_way: bool,
    signal: bool,
    from: u32,
}

impl Net {
    /// `cpu`: the loop's. `from`: where the far end runs. `signal`: each message is told by SIGIO.
    ///
    /// # Errors
    /// Where there is no other CPU, no network namespace can be made, or packets can't be steered.
    pub fn new(cpu: u32, from: Option<u32>, signal: bool) -> Result<Self, Unavailable> {
        let from = from.ok_or_else(|| {
            Unavailable::because("a message from another CPU needs two CPUs, and there is one")
        })?;
        let Ends { near, far } = connected_ends(cpu)
            .map_err(|(reason, remedy)| Unavailable { reason, remedy: Some(remedy) })?;
        let cannot = |error: io::Error| Unavailable::because(format!("the connection: {error}"));
        std::thread::Builder::new()
            .name("irqlab-far".to_owned())
            .spawn(move || answer(far, from))
            .map_err(cannot)?;
        if signal {
            tell_by_signal(&near).map_err(cannot)?;
        }
        Ok(Net { near, is_under_way: false, signal, from })
    }

    /// Reads the message, if one is under way.
    fn reap(&mut self) -> io::Result<()> {
        if self.is_under_way {
            self.near.read_exact(&mut [0; MESSAGE_BYTES])?;
            self.is_under_way = false;
        }
        Ok(())
    }
}

/// The far end: answers until the near one is closed.
fn answer(mut far: TcpStream, cpu: u32) {
    let mut message = [0; MESSAGE_BYTES];
    if pin(cpu).is_err() {
        return; // the near end reads of an end
    }
    while far.read_exact(&mut message).is_ok() {
        let begun = Instant::now();
        let delay_ns = u64::from_ne_bytes(message[..8].try_into().unwrap_or_default());
        while begun.elapsed().as_nanos() < u128::from(delay_ns) {
            std::hint::spin_loop();
        }
        if far.write_all(&message).is_err() {
            return;
        }
    }
}

extern "C" fn do_nothing(_signal: libc::c_int) {}

/// Has the kernel send this thread a SIGIO for each message.
fn tell_by_signal(stream: &TcpStream) -> io::Result<()> {
    #[repr(C)]
    struct Owner {
        kind: libc::c_int,
        thread: libc::pid_t,
    }
    const THREAD: libc::c_int = 0; // F_OWNER_TID
    const SET_OWNER: libc::c_int = 15; // F_SETOWN_EX
    // SAFETY: the structure is all zero but for a handler that does nothing, and so is async-signal
    // safe; system calls begin again.
    let installed = unsafe {
        let mut action: libc::sigaction = std::mem::zeroed();
        action.sa_sigaction = do_nothing as *const () as usize;
        action.sa_flags = libc::SA_RESTART;
        libc::sigaction(libc::SIGIO, &action, std::ptr::null_mut())
    };
    if installed < 0 {
        return Err(io::Error::last_os_error());
    }
    // SAFETY: a system call without arguments.
    let owner = Owner { kind: THREAD, thread: unsafe { libc::gettid() } };
    let file = stream.as_raw_fd();
    // SAFETY: the descriptor is open; the kernel reads `owner`, which outlives the call, and the flags
    // of the file are its own.
    let told = unsafe {
        libc::fcntl(file, SET_OWNER, &raw const owner) >= 0 && {
            let flags = libc::fcntl(file, libc::F_GETFL);
            flags >= 0 && libc::fcntl(file, libc::F_SETFL, flags | libc::O_ASYNC) >= 0
        }
    };
    if told { Ok(()) } else { Err(io::Error::last_os_error()) }
}

impl Raise for Net {
    fn counted(&self) -> Counted {
        Counted::Line("CAL")
    }

    fn schedule(&mut self, delay: Duration) -> io::Result<()> {
        self.reap()?;
        let mut message = [0; MESSAGE_BYTES];
        let delay_ns = delay.min(DELAY_MAX).as_nanos() as u64;
        message[..8].copy_from_slice(&delay_ns.to_ne_bytes());
        self.near.write_all(&message)?;
        self.is_under_way = true;
        Ok(())
    }

    fn settle(&mut self) -> io::Result<()> {
        self.reap()
    }

    fn method(&self) -> String {
        let told = if self.signal { ", told by SIGIO" } else { "" };
        format!(
            "TCP, {MESSAGE_BYTES} bytes over a veth pair from CPU {}, steered here{told}",
            self.from
        )
    }
}
