//! Carries out orders.

use crate::agent::Agent;
use crate::marker::{self, mark};
use crate::order::{KNOWN, Order};
use crate::{firmware, irqlab, share, shell, work};

/// Carries out one order; its exit status.
pub fn obey(order: Order, agent: &mut Agent) -> u8 {
    match order {
        Order::PowerOff => 0,
        Order::Probe => share::share_all(agent),
        Order::Shell => shell::interactive(),
        Order::Idle { seconds } => work::idle(seconds),
        Order::Run(command) => {
            mark(marker::OPEN);
            let status = work::run(&command);
            mark(marker::CLOSE);
            mark(marker::END);
            status
        }
        Order::Irqlab(order) => {
            let status = irqlab::carry_out(&order, agent);
            mark(marker::END);
            status
        }
        Order::Ready => {
            agent.send(r#"{"event":"ready"}"#);
            obey_firmware(agent)
        }
        Order::Unknown(text) => {
            eprintln!("guest: unknown order {text:?}; known: {}", KNOWN);
            2
        }
    }
}

/// Waits for the order that the host puts in place when it restores a checkpoint.
fn obey_firmware(agent: &mut Agent) -> u8 {
    match firmware::wait_for_order() {
        // An order to be ready again would be obeyed forever.
        Ok(order) if order != Order::Ready => obey(order, agent),
        Ok(_) => 2,
        Err(reason) => {
            eprintln!("guest: no orders from the firmware: {reason}");
            2
        }
    }
}
