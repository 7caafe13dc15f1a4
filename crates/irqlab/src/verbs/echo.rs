//! `irqlab echo`: the other side of `footprint --peer` and `signal run --peer`.

use std::net::{SocketAddr, TcpListener};
use std::process::ExitCode;

use anyhow::Context;

use crate::console;
use crate::run::stop_on_signals;

/// Echo the messages of another machine's `footprint --peer` or `signal run --peer`, until Ctrl-C
#[derive(Debug, clap::Args)]
#[command(
    after_help = "Whoever reaches the address can have messages of 16 bytes echoed, up to 16 at a time, and meanwhile \
datagrams (UDP, the same port); so it is one of this machine alone unless another is named.

  irqlab echo --listen 192.0.2.7:7007                          on the other machine
  irqlab footprint --stimulus net --peer 192.0.2.7:7007 -c 1     on the one that is measured
  irqlab signal run --nic eth0 --peer 192.0.2.7:7007             the same"
)]
pub struct EchoArgs {
    /// Where to listen; port 0: one that is free
    #[arg(long, value_name = "ADDRESS:PORT", default_value = "127.0.0.1:7007")]
    listen: SocketAddr,
}

/// Echoes until it is stopped.
pub fn run(args: &EchoArgs) -> anyhow::Result<ExitCode> {
    let place = || format!("cannot listen at {}", args.listen);
    let listener = TcpListener::bind(args.listen).with_context(place)?;
    let address = listener.local_addr().with_context(place)?;
    let stop = stop_on_signals()?;
    console::print(&format!("listening at {address}\n"))?;
    live::echo::serve(&listener, &stop)?;
    Ok(ExitCode::SUCCESS)
}
