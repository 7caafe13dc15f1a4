//! `irqlab machines`: lists the models of machines, draws one, or makes one of this machine.

mod fit;

use std::process::ExitCode;

use machine::SystemModel;
use machine::schema;
use serde_json::{Value as Json, json};
use sim::models;

use crate::console;
use crate::options::Usage;

/// List the models of machines, or draw one
#[derive(Debug, clap::Args)]
#[command(args_conflicts_with_subcommands = true)]
#[command(after_help = "Examples:
  irqlab machines                                    their names
  irqlab machines zen3                               caches, TLBs and latencies
  irqlab machines zen3 --set l3.size=64MiB --set memory_cycles=300
  irqlab machines ./mine.toml                        a file; what is wrong with it, by its line
  irqlab machines fit                                makes the model of this machine: --on sim:host")]
pub struct MachinesArgs {
    #[command(subcommand)]
    verb: Option<MachinesVerb>,
    /// Model to draw: its name, or a file (with a slash, or ending in .toml)
    model: Option<String>,
    /// Change a field, as in l2.size=4MiB; may be repeated
    #[arg(long, value_name = "FIELD=VALUE", requires = "model")]
    set: Vec<String>,
    /// Print its text, as a file to start from, instead of drawing it
    #[arg(long, requires = "model")]
    toml: bool,
    /// Print one JSON document: names and descriptions, or all fields of the model
    #[arg(long, conflicts_with = "toml")]
    json: bool,
}

#[derive(Debug, clap::Subcommand)]
enum MachinesVerb {
    Fit(Box<fit::FitArgs>),
}

/// Lists, draws, prints or fits.
pub fn run(args: &MachinesArgs) -> anyhow::Result<ExitCode> {
    if let Some(MachinesVerb::Fit(args)) = &args.verb {
        return fit::run(args);
    }
    let text = match &args.model {
        None if args.json => format!(
            "{:#}\n",
            Json::Array(list(|name, about| { json!({ "name": name, "about": about }) })?)
        ),
        None => {
            let width = models::names().into_iter().map(str::len).max().unwrap_or(0);
            list(|name, about| format!("{name:<width$} {about}\n"))?.concat()
        }
        Some(name) => {
            let changed = models::changed(name, &args.set);
            let (text, model) = changed.map_err(|error| Usage(error.to_string()))?;
            match (args.toml, args.json) {
                (true, _) => text,
                (_, true) => {
                    let fields: toml::Table = toml::from_str(&text)?;
                    format!("{:#}\n", json!(fields))
                }
                _ => schema::draw(&model),
            }
        }
    };
    console::print(&text)?;
    Ok(ExitCode::SUCCESS)
}

/// Each model by its name and what it is.
fn list<T>(item: impl Fn(&str, &str) -> T) -> anyhow::Result<Vec<T>> {
    let one = |name: &str| {
        let model = SystemModel::parse(&models::text(name)?);
        let model = model.map_err(|error| Usage(format!("{name}: {error}")))?;
        Ok(item(name, &model.about))
    };
    models::names().into_iter().map(one).collect()
}
