//! The processor that the guest sees: what CPUID and model-specific registers tell it, and the words of its kernel's
//! command line that choose mitigations.
//!
//! QEMU shows family, model, features and microcode; the plugin answers what QEMU cannot show: the sizes of the model's
//! caches, and IA32_ARCH_CAPABILITIES.

use std::collections::BTreeMap;

use machine::identity::Vendor;
use machine::{IdentityModel, SystemModel};
use plugin_interface::options::{CpuidLeaf, MsrValue, Options};
use serde::{Deserialize, Serialize};

use super::cpuid_caches;
use crate::qemu::Qemu;
use crate::text::nearest;
use crate::{Result, SimError};

/// The name of the identity of machines without a model, and of models that describe no x86-64 processor with
/// mitigations.
pub const PLAIN: &str = "x86-64";
/// The processor of QEMU that [`PLAIN`] shows: Linux finds a PMU of AMD on it, which the plugin can emulate.
const PLAIN_PROCESSOR: &str = "EPYC";
/// The word that turns all mitigations off.
const NO_MITIGATIONS: &str = "mitigations=off";
/// IA32_ARCH_CAPABILITIES.
const ARCH_CAPABILITIES: u32 = 0x10a;

/// The mitigations of the guest's kernel.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum Mitigations {
    /// The kernel chooses by the processor that it sees. On [`PLAIN`], it chooses no mitigation.
    #[default]
    Auto,
    /// None.
    Off,
    /// Chosen by these words of the kernel's command line.
    Words(Vec<String>),
}

/// The processor that the guest sees.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Identity {
    /// The model that it belongs to, or [`PLAIN`].
    pub name: String,
    /// The vendor, which determines the registers of a PMU.
    vendor: Vendor,
    /// The processor of QEMU with the same instructions.
    like: String,
    /// Further properties of QEMU's processor, each `NAME=VALUE`.
    properties: Vec<String>,
    /// Features that the guest sees although QEMU does not execute them.
    shown: Vec<String>,
    /// Registers that the plugin answers.
    msrs: Vec<MsrValue>,
    /// Leaves of `cpuid` that the plugin answers.
    cpuid: Vec<CpuidLeaf>,
    /// Words of the kernel's command line.
    words: Vec<String>,
    /// Linux' mitigations on the real processor, by bug.
    on_processor: BTreeMap<String, String>,
}

impl Identity {
    /// An x86-64 processor without mitigations.
    #[must_use]
    pub fn plain() -> Identity {
        Identity {
            name: PLAIN.to_owned(),
            vendor: Vendor::Amd,
            like: PLAIN_PROCESSOR.to_owned(),
            properties: Vec::new(),
            shown: Vec::new(),
            msrs: Vec::new(),
            cpuid: Vec::new(),
            words: vec![NO_MITIGATIONS.to_owned()],
            on_processor: BTreeMap::new(),
        }
    }

    /// The processor that a model describes, in a machine of `cpus` CPUs. [`Identity::plain`] if the model describes
    /// none.
    #[must_use]
    pub fn of_model(model: &SystemModel, cpus: u32) -> Identity {
        let Some(identity) = &model.identity else { return Identity::plain() };
        let &IdentityModel { vendor, family, model: number, stepping, .. } = identity;
        let mut properties = vec![
            format!("vendor={}", vendor.signature()),
            format!("family={family}"),
            format!("model={number}"),
            format!("stepping={stepping}"),
        ];
        properties.extend(identity.title.iter().map(|title| format!("model-id={title}")));
        properties.extend(identity.microcode.map(|revision| {
            // Intel's register has the revision in its upper half (Intel SDM, volume 3, 9.11.7).
            let shift = if vendor == Vendor::Intel { 32 } else { 0 };
            format!("ucode-rev={:#x}", u64::from(revision) << shift)
        }));
        if model.nested.is_none() {
            // Linux uses other spinlocks, clocks and checks of microcode if it sees a hypervisor.
            properties.push("hypervisor=off".to_owned());
        }
        properties.extend(identity.hidden.iter().map(|name| format!("{name}=off")));
        let msr = |value| MsrValue { number: ARCH_CAPABILITIES, value };
        Identity {
            name: model.name.clone(),
            vendor,
            like: identity.like.clone(),
            properties,
            shown: identity.shown.clone(),
            msrs: identity.arch_capabilities.map(msr).into_iter().collect(),
            cpuid: cpuid_caches::leaves(model, vendor, cpus),
            words: Vec::new(),
            on_processor: identity.mitigations.clone(),
        }
    }

    /// This processor, with other mitigations.
    #[must_use]
    pub fn with(self, mitigations: &Mitigations) -> Identity {
        let words = match mitigations {
            Mitigations::Auto => return self,
            Mitigations::Off => vec![NO_MITIGATIONS.to_owned()],
            Mitigations::Words(words) => words.clone(),
        };
        Identity { words, ..self }
    }

    /// The processor's vendor.
    pub(crate) fn vendor(&self) -> Vendor {
        self.vendor
    }

    /// The words for the kernel's command line.
    pub(crate) fn kernel_words(&self) -> &[String] {
        &self.words
    }

    /// Returns whether the plugin must answer something, so that the machine cannot run without it.
    #[must_use]
    pub fn needs_plugin(&self) -> bool {
        !self.msrs.is_empty() || !self.cpuid.is_empty()
    }

    /// How Linux' statement about a bug starts on the real processor, by bug.
    pub(super) fn on_processor(&self) -> &BTreeMap<String, String> {
        &self.on_processor
    }

    /// Whether the guest sees the same processor: vendor, features, registers and sizes of caches. The mitigations
    /// that its kernel chose may differ.
    #[must_use]
    pub fn is_same_processor(&self, other: &Identity) -> bool {
        self.key_text() == other.key_text()
    }

    /// Adds the answers to the plugin's options.
    pub(crate) fn add_to(&self, options: &mut Options) {
        options.msrs.clone_from(&self.msrs);
        options.cpuid.clone_from(&self.cpuid);
    }

    /// Describes everything of the processor that the guest can see, for
    /// [`Machine::device_set`](super::Machine::device_set): a change of this text makes all checkpoints and cached
    /// machines unusable. Without the words of the kernel's command line.
    pub(super) fn key_text(&self) -> String {
        let Identity { like, properties, shown, msrs, cpuid, .. } = self;
        let msrs = msrs.iter().map(|msr| format!("msr={msr}"));
        let cpuid = cpuid.iter().map(|leaf| format!("cpuid={leaf}"));
        let shown = shown.iter().map(|name| format!("{name}=on"));
        let parts = std::iter::once(like.clone()).chain(properties.iter().cloned());
        parts.chain(shown).chain(msrs).chain(cpuid).collect::<Vec<_>>().join(",")
    }

    /// Returns the value of QEMU's option `-cpu`.
    ///
    /// Fails with [`SimError::Invalid`] if QEMU has no such processor, and as [`Qemu::processors`] does.
    pub(super) fn argument(&self, qemu: &Qemu) -> Result<String> {
        let mut parts = vec![self.like.clone()];
        parts.extend(self.properties.iter().cloned());
        let missing = if self.name == PLAIN { Vec::new() } else { self.missing_features(qemu)? };
        if !self.shown.is_empty() {
            // QEMU hides the features that it does not execute, unless it is told to show all: then the others must
            // be turned off by name.
            parts.push("x-force-features=on".to_owned());
            let hidden = missing.iter().filter(|name| !self.shown.contains(name));
            parts.extend(hidden.map(|name| format!("{name}=off")));
            parts.extend(self.shown.iter().map(|name| format!("{name}=on")));
        }
        Ok(parts.join(","))
    }

    /// The features of the processor that QEMU does not execute.
    fn missing_features(&self, qemu: &Qemu) -> Result<Vec<String>> {
        let processors = qemu.processors()?;
        if let Some(missing) = processors.get(&self.like) {
            return Ok(missing.clone());
        }
        let near = nearest(&self.like, processors.keys().map(String::as_str));
        Err(SimError::Invalid(format!(
            "identity.like of {}: QEMU has no processor {:?}; the nearest: {}",
            self.name,
            self.like,
            near.join(", ")
        )))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::models;
    use crate::qemu::tests::qemu_with;

    fn identity(name: &str) -> Identity {
        Identity::of_model(&models::with_changes(name, &[]).unwrap().1, 2)
    }

    #[test]
    fn features_that_qemu_lacks_are_off_unless_they_are_shown() {
        let qemu = qemu_with("EPYC-Genoa-v1", &["pcid", "auto-ibrs"]);
        let argument = identity("zen4").argument(&qemu).unwrap();
        let parts: Vec<&str> = argument.split(',').collect();
        assert_eq!(parts[0], "EPYC-Genoa-v1");
        for part in ["family=25", "hypervisor=off", "pcid=off", "auto-ibrs=on", "la57=off"] {
            assert!(parts.contains(&part), "{part}: {argument}");
        }
        assert!(!parts.contains(&"auto-ibrs=off"), "{argument}");
        assert_eq!(Identity::plain().argument(&qemu).unwrap(), "EPYC");
    }

    #[test]
    fn a_processor_that_qemu_does_not_have_is_named_with_the_nearest() {
        let qemu = qemu_with("EPYC-Genoa-v2", &[]);
        let error = identity("zen4").argument(&qemu).unwrap_err().to_string();
        assert!(error.contains("\"EPYC-Genoa-v1\"") && error.contains("EPYC-Genoa-v2"), "{error}");
    }

    #[test]
    fn models_without_an_identity_have_no_mitigations() {
        let plain = identity("r4400-1994");
        assert_eq!(plain, Identity::plain());
        assert_eq!(plain.kernel_words(), ["mitigations=off"]);
        assert!(!plain.needs_plugin());
        assert!(identity("zen3").kernel_words().is_empty());
        assert_eq!(identity("zen3").with(&Mitigations::Off).kernel_words(), ["mitigations=off"]);
    }

    #[test]
    fn what_a_changed_cache_says_is_part_of_the_key() {
        let larger = models::with_changes("zen3", &["l2.size=1MiB".to_owned()]).unwrap().1;
        assert_ne!(Identity::of_model(&larger, 2).key_text(), identity("zen3").key_text());
        let nested = models::with_changes("zen3", &["nested.page=4KiB".to_owned()]).unwrap().1;
        assert!(!Identity::of_model(&nested, 2).key_text().contains("hypervisor=off"));
    }
}
