//! The options that choose the processor that the guest's software sees, and the table of its mitigations.
//!
//! The `///` comments of options and of their values are help texts: snapshots and the manual quote them.

use std::collections::BTreeMap;
use std::path::Path;

use anyhow::bail;
use clap::ValueEnum;
use machine::SystemModel;
use record::Table;
use sim::identity::{Identity, Mitigations, PLAIN};
use sim::models::{self, Model};
use sim::{Cache, Machine, checkpoint, mitigations};

use crate::console;
use crate::options::Usage;

/// Which mitigations the guest's kernel chooses: the value of `--mitigations`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, ValueEnum)]
pub enum MitigationsName {
    /// Those that the kernel chooses; none on x86-64
    #[default]
    Auto,
    /// No mitigations
    Off,
    /// As this host's kernel has chosen
    Host,
}

impl MitigationsName {
    /// The mitigations. The mitigations of this host are words for the guest's kernel.
    ///
    /// Fails with a [`Usage`] error if this host's kernel does not state its mitigations.
    fn choose(self) -> anyhow::Result<Mitigations> {
        match self {
            MitigationsName::Auto => Ok(Mitigations::Auto),
            MitigationsName::Off => Ok(Mitigations::Off),
            MitigationsName::Host => {
                let stated = mitigations::words_of(Path::new(mitigations::DIRECTORY));
                let missing = || Usage("--mitigations host: this host's kernel states none".into());
                Ok(Mitigations::Words(stated.ok_or_else(missing)?))
            }
        }
    }
}

/// The value of `--identity` for the model of `--on`.
const MODEL: &str = "model";

/// Why `--identity model` is refused.
const NO_MODEL: &str =
    "--identity model: this machine has no model; name one, as in --identity zen3";

/// The processor that the guest's software sees.
#[derive(Clone, Debug, Default, clap::Args)]
pub struct IdentityArgs {
    /// Processor that the guest's software sees: `model` for that of --on, with --set; that of another model (a name, a
    /// file, or host); or x86-64, without mitigations [default: model; x86-64 without a model, and for models that state
    /// no identity; of a checkpoint, its own]
    #[arg(long, value_name = "MODEL")]
    pub identity: Option<String>,
    /// Mitigations of the guest's kernel
    #[arg(long, value_enum, value_name = "WHICH", default_value_t)]
    pub mitigations: MitigationsName,
}

impl IdentityArgs {
    /// One processor for all models: x86-64 without mitigations.
    pub fn plain() -> IdentityArgs {
        IdentityArgs { identity: Some(PLAIN.to_owned()), ..IdentityArgs::default() }
    }

    /// The processor that the guest of a machine with `cpus` CPUs sees. `model`: the model of the machine's own
    /// processor. `from`: the checkpoint that the machine starts from.
    ///
    /// Fails with a [`Usage`] error if `--identity` names no model.
    pub fn choose(
        &self,
        cache: &Cache,
        cpus: u32,
        model: Option<&Model>,
        from: Option<&str>,
    ) -> anyhow::Result<Identity> {
        if from.is_some() && self.mitigations != MitigationsName::Auto {
            bail!(Usage(
                "--mitigations comes too late with --from: the checkpoint's kernel has booted (use it with irqlab \
                 sim checkpoint)"
                    .to_owned()
            ));
        }
        let identity = match (&self.identity, from) {
            (Some(name), _) if name == PLAIN => Identity::plain(),
            (Some(name), _) if name == MODEL => {
                let model = model.ok_or_else(|| Usage(NO_MODEL.to_owned()))?;
                Identity::of_model(&model.model, cpus)
            }
            (Some(name), _) => {
                let named = models::with_changes(name, &[]);
                let (_, named) = named.map_err(|error| Usage(format!("--identity {error}")))?;
                Identity::of_model(&named, cpus)
            }
            (None, Some(checkpoint)) => {
                let identity = checkpoint::open(cache, checkpoint)?.machine.identity;
                warn_of_another(&identity, model, cpus);
                return Ok(identity);
            }
            (None, None) => {
                model.map_or_else(Identity::plain, |model| Identity::of_model(&model.model, cpus))
            }
        };
        Ok(identity.with(&self.mitigations.choose()?))
    }
}

/// Warns if a checkpoint's guest does not see the model's processor.
fn warn_of_another(identity: &Identity, model: Option<&Model>, cpus: u32) {
    let warning = model.and_then(|model| difference(identity, &model.model, cpus));
    warning.iter().for_each(|text| console::warn(text));
}

/// Describes how the processor that a checkpoint's guest sees differs from that of the model. `None` if it is the same.
fn difference(identity: &Identity, model: &SystemModel, cpus: u32) -> Option<String> {
    let of_model = Identity::of_model(model, cpus);
    if of_model.is_same_processor(identity) {
        return None;
    }
    let (seen, name) = (&identity.name, &of_model.name);
    Some(if seen == name {
        format!(
            "the guest of the checkpoint sees another {name} than this model, for example other sizes of caches (make a \
             checkpoint of it: irqlab machines {name} [--set FIELD=VALUE] --toml > MODEL.toml, then irqlab sim checkpoint \
             NAME --identity ./MODEL.toml)"
        )
    } else {
        format!(
            "the guest of the checkpoint sees the processor {seen}, not that of the model (irqlab sim checkpoint NAME \
             --identity {name})"
        )
    })
}

/// The table `mitigations`. `stated`: what the guest's kernel states about each bug; without it there is no table.
pub fn mitigations_table(stated: &BTreeMap<String, String>, machine: &Machine) -> Option<Table> {
    let compared = mitigations::compared(stated, &machine.identity);
    (!stated.is_empty()).then(|| sim_tables::mitigations::table(&compared)).flatten()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn model(name: &str, changes: &[&str]) -> SystemModel {
        let changes: Vec<String> = changes.iter().map(|change| (*change).to_owned()).collect();
        models::with_changes(name, &changes).unwrap().1
    }

    #[test]
    fn a_checkpoint_with_another_processor_is_named() {
        let saved = Identity::of_model(&model("zen3", &[]), 2);
        assert_eq!(difference(&saved, &model("zen3", &[]), 2), None);
        // Fields that the guest does not see.
        assert_eq!(difference(&saved, &model("zen3", &["memory_cycles=500"]), 2), None);
        let unmitigated = saved.clone().with(&Mitigations::Off);
        assert_eq!(difference(&unmitigated, &model("zen3", &[]), 2), None);
        let other_model = difference(&saved, &model("zen4", &[]), 2).unwrap();
        assert!(other_model.contains("--identity zen4"), "{other_model}");
        let other_cache = difference(&saved, &model("zen3", &["l2.size=4MiB"]), 2).unwrap();
        assert!(other_cache.contains("--identity ./MODEL.toml"), "{other_cache}");
        let plain = difference(&Identity::plain(), &model("zen3", &[]), 2).unwrap();
        assert!(plain.contains("sees the processor x86-64"), "{plain}");
        assert_eq!(difference(&Identity::plain(), &model("t1", &[]), 2), None);
    }
}
