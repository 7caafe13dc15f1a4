//! The hidden verb by which the first process of a simulated machine has a condition made, or loops run.

use std::process::ExitCode;

use anyhow::Context;
use lab::footprint::in_guest::FootprintOrder;
use lab::noise::in_guest::{NoiseOrder, Ordered};
use live::handlers::in_guest::carry_out;
use live::window::WindowEdge;

use crate::console;

/// The verb.
pub const VERB: &str = "__in-guest";

/// What the host orders, in JSON.
#[derive(Debug, clap::Args)]
pub struct InGuestArgs {
    /// The order
    order: String,
}

/// Makes one window, and says on stdout in JSON what came of it.
pub fn run(args: &InGuestArgs) -> anyhow::Result<ExitCode> {
    let order = serde_json::from_str(&args.order).context("not an order")?;
    // The way here may have been recorded in less detail: load and warm-up are for caches, too.
    sim::marker::mark(sim::marker::FULL, 0);
    match order {
        Ordered::Noise { noise } => run_loops(&noise)?,
        Ordered::Footprint { footprint } => fill_caches(&footprint)?,
        Ordered::Handlers(order) => {
            let answer = carry_out(&order, mark);
            console::print(&(serde_json::to_string(&answer)? + "\n"))?;
        }
    }
    Ok(ExitCode::SUCCESS)
}

/// Runs loops; what came of them goes out when all have run.
fn run_loops(order: &NoiseOrder) -> anyhow::Result<()> {
    let mut lines = Vec::new();
    live::noise::in_guest::carry_out(order, mark, &mut |line| lines.push(line));
    // What follows is not of interest, and goes faster so.
    sim::marker::mark(sim::marker::FAST, 0);
    for line in lines {
        console::print(&(serde_json::to_string(&line)? + "\n"))?;
    }
    Ok(())
}

/// Fills caches and has them interrupted.
fn fill_caches(order: &FootprintOrder) -> anyhow::Result<()> {
    let lines = live::footprint::in_guest::carry_out(order, mark);
    sim::marker::mark(sim::marker::FAST, 0);
    for line in lines {
        console::print(&(serde_json::to_string(&line)? + "\n"))?;
    }
    Ok(())
}

fn mark(edge: WindowEdge) {
    match edge {
        WindowEdge::Open => sim::marker::mark(sim::marker::OPEN, 0),
        WindowEdge::Close => sim::marker::mark(sim::marker::CLOSE, 0),
    }
}
