//! TCP connections over a veth pair or two cards, whose near end receives on a chosen CPU. The stimulus `net` of
//! `footprint` uses them.

use std::io;
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::sync::mpsc;

use crate::network::{ADDRESS_FAR, CardIrqs, NEAR, Pair, PrivateSysfs};
use crate::spawn::spawn_thread;
use crate::stimulus::error::WorkerError;

/// Both ends of a TCP connection, with TCP_NODELAY: each write is sent at once.
#[derive(Debug)]
pub struct Ends {
    /// The kernel handles its packets on the chosen CPU.
    pub near: TcpStream,
    pub far: TcpStream,
}

/// Creates a veth pair and connects its ends. The kernel handles packets of the near end on `cpu`.
pub(in crate::stimulus) fn connected(cpu: u32) -> Result<Ends, WorkerError> {
    on_another_thread(move || connect(veth(cpu)?))
}

/// Like [`connected`], over the two cards of a simulated machine. CPU `other` handles the
/// packets of the far card.
pub(in crate::stimulus) fn connected_cards(cpu: u32, other: u32) -> Result<Ends, WorkerError> {
    on_another_thread(move || connect(cards(cpu, other)?))
}

/// Runs `connect` on another thread, because `connect` moves its thread into a network namespace.
fn on_another_thread(
    connect: impl FnOnce() -> Result<Ends, WorkerError> + Send + 'static,
) -> Result<Ends, WorkerError> {
    let thread =
        spawn_thread("irqlab-network", connect).map_err(|error| failed("a thread", error))?;
    thread.join().unwrap_or_else(|_| Err(WorkerError::failed("a thread for the network panicked")))
}

fn failed(what: &str, error: io::Error) -> WorkerError {
    WorkerError::failed(format!("{what}: {error}"))
}

fn connect(pair: Pair) -> Result<Ends, WorkerError> {
    let accept = |listener: TcpListener| Ok(listener.accept()?.0);
    let (near, far) = across(pair, accept, TcpStream::connect)?;
    let near = near.map_err(|error| failed("connect", error))?;
    let far = far.map_err(|error| failed("accept", error))?;
    for end in [&near, &far] {
        end.set_nodelay(true).map_err(|error| failed("TCP_NODELAY", error))?;
    }
    Ok(Ends { near, far })
}

/// Moves this thread into the near namespace of a veth pair, and steers packets to `cpu`.
pub(in crate::stimulus) fn veth(cpu: u32) -> Result<Pair, WorkerError> {
    let pair = Pair::create()?;
    PrivateSysfs::mount().and_then(|sysfs| sysfs.steer(NEAR, cpu)).map_err(|error| {
        WorkerError::unavailable(
            format!("packets can't be steered to CPU {cpu}: {error}"),
            "run as root, on a kernel with CONFIG_RPS",
        )
    })?;
    Ok(pair)
}

/// Moves this thread into the namespace of the first card. The first card's interrupts go to `cpu`,
/// and the second card's to `other`.
fn cards(cpu: u32, other: u32) -> Result<Pair, WorkerError> {
    let irqs = CardIrqs::find().map_err(WorkerError::failed)?;
    let pair = Pair::of_cards()?;
    irqs.direct(cpu, other)
        .map_err(|error| failed("the cards' interrupts can't be moved", error))?;
    Ok(pair)
}

/// Runs `far` on a thread in the far namespace, with a listener there. Runs `near` on this thread,
/// which is in the near namespace, with the listener's address.
pub(in crate::stimulus) fn across<F: Send + 'static, N>(
    pair: Pair,
    far: impl FnOnce(TcpListener) -> F + Send + 'static,
    near: impl FnOnce(SocketAddr) -> N,
) -> Result<(N, F), WorkerError> {
    let (ready, port) = mpsc::channel();
    let far = spawn_thread("irqlab-far", move || -> Result<F, WorkerError> {
        pair.enter_far()?;
        let listener =
            TcpListener::bind((ADDRESS_FAR, 0)).map_err(|error| failed("bind", error))?;
        let address = listener.local_addr().map_err(|error| failed("bind", error))?;
        let _ = ready.send(address); // Fails only if nobody waits any more.
        Ok(far(listener))
    });
    let far = far.map_err(|error| failed("a thread", error))?;
    let near = port.recv().map(near);
    let far = far.join().unwrap_or_else(|_| Err(WorkerError::failed("the far end panicked")))?;
    Ok((near.map_err(|_| WorkerError::failed("no far end"))?, far))
}
