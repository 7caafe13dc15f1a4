//! `irqlab machines`: the models of machines there are, and what one looks like.

use std::process::ExitCode;

use machine::SystemModel;
use machine::schema;
use sim::models;

use crate::args::Usage;
use crate::output;

/// The models of machines: list them, or draw one
#[derive(Debug, clap::Args)]
#[command(after_help = "Examples:
  irqlab machines                                    their names
  irqlab machines zen3                               caches, TLBs and latencies
  irqlab machines zen3 --set l3.size=64MiB --set memory_cycles=300
  irqlab machines ./mine.toml                        a file; what is wrong with it, by its line")]
pub struct MachinesArgs {
    /// Model to draw: its name, or a file (with a slash, or ending in .toml)
    model: Option<String>,
    /// Change a field, as in l2.size=4MiB; may be repeated
    #[arg(long, value_name = "FIELD=VALUE", requires = "model")]
    set: Vec<String>,
    /// Print its text, as a file to start from, instead of drawing it
    #[arg(long, requires = "model")]
    toml: bool,
}

/// Lists, draws or prints.
pub fn run(args: &MachinesArgs) -> anyhow::Result<ExitCode> {
    let text = match &args.model {
        None => list()?,
        Some(name) => {
            let changed = models::changed(name, &args.set);
            let (text, model) = changed.map_err(|error| Usage(error.to_string()))?;
            if args.toml { text } else { schema::draw(&model) }
        }
    };
    output::print(&text)?;
    Ok(ExitCode::SUCCESS)
}

fn parsed(name: &str, text: &str) -> anyhow::Result<SystemModel> {
    SystemModel::parse(text).map_err(|error| Usage(format!("{name}: {error}")).into())
}

fn list() -> anyhow::Result<String> {
    let mut text = String::new();
    for name in models::names() {
        let model = parsed(name, &models::text(name)?)?;
        text += &format!("{name:<13} {}\n", model.about);
    }
    Ok(text)
}
