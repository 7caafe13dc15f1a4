//! `irqlab machines`: lists the models of machines, or draws one. `machines fit` makes a model of this machine.

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
  irqlab machines                                    names and descriptions of all models
  irqlab machines zen3                               caches, TLBs and latencies of a model
  irqlab machines zen3 --set l3.size=64MiB --set memory_cycles=300
  irqlab machines ./mine.toml                        a file; errors are reported with their line
  irqlab machines fit                                makes a model of this machine, for --on sim:host")]
pub struct MachinesArgs {
    #[command(subcommand)]
    verb: Option<MachinesVerb>,
    /// Model to draw: its name, or a file (with a slash, or ending in .toml)
    model: Option<String>,
    /// Change a field of the model, as in l2.size=4MiB; may be repeated
    #[arg(long, value_name = "FIELD=VALUE", requires = "model")]
    set: Vec<String>,
    /// Print the model's file, to start your own from, instead of drawing the model
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
            let changed = models::with_changes(name, &args.set);
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

/// Calls `item` with the name and the description of each model. Returns the results.
fn list<T>(item: impl Fn(&str, &str) -> T) -> anyhow::Result<Vec<T>> {
    let item_of_model = |name: &str| {
        let model = SystemModel::parse(&models::text(name)?);
        let model = model.map_err(|error| Usage(format!("{name}: {error}")))?;
        Ok(item(name, &model.about))
    };
    models::names().into_iter().map(item_of_model).collect()
}
