//! `irqlab echo`: returns the messages that `footprint --peer` or `signal run --peer` sends from another machine.

use std::net::{SocketAddr, TcpListener};
use std::process::ExitCode;

use anyhow::Context;

use crate::console;
use crate::run::stop_on_signals;

/// Echo the messages of another machine's `footprint --peer` or `signal run --peer`, until Ctrl-C
#[derive(Debug, clap::Args)]
#[command(
    after_help = "Anybody who can reach the address can have messages of 16 bytes echoed, on up to 16 TCP connections at a \
time. While a connection is open, datagrams to the same UDP port are echoed, too. The default address is reachable only \
from this machine.

Examples:
  irqlab echo --listen 192.0.2.7:7007                          on the other machine
  irqlab footprint --stimulus net --peer 192.0.2.7:7007 -c 1     on the measured machine
  irqlab signal run --nic eth0 --peer 192.0.2.7:7007             on the measured machine"
)]
pub struct EchoArgs {
    /// Address to listen at; with port 0, the system chooses a free port
    #[arg(long, value_name = "ADDRESS:PORT", default_value = "127.0.0.1:7007")]
    listen: SocketAddr,
}

pub fn run(args: &EchoArgs) -> anyhow::Result<ExitCode> {
    let cannot = || format!("cannot listen at {}", args.listen);
    let listener = TcpListener::bind(args.listen).with_context(cannot)?;
    let address = listener.local_addr().with_context(cannot)?;
    let stop = stop_on_signals()?;
    console::print(&format!("listening at {address}\n"))?;
    live::echo::serve(&listener, &stop)?;
    Ok(ExitCode::SUCCESS)
}
