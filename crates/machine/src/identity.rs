//! A processor's identity, as its software sees it: the table `[identity]` of a model. The guest's kernel and C library
//! choose mitigations, string routines and spinlocks by this identity.

use std::collections::BTreeMap;

use serde::{Deserialize, Deserializer, Serialize, de::Error};

use crate::schema::fields::{optional, short_text, whole_number_within};

/// The largest family of a CPUID signature: 15, and an extended family of 255.
const FAMILY_MAX: u64 = 0x10e;
/// The largest model of a CPUID signature, with the extended model.
const MODEL_MAX: u64 = 0xff;
const STEPPING_MAX: u64 = 0xf;
/// The longest name that CPUID has room for, in bytes.
pub const TITLE_BYTES_MAX: usize = 47;
const MICROCODE_MAX: u64 = u32::MAX as u64;
/// The most features that a model can hide.
const HIDDEN_MAX: usize = 64;
/// The most bugs that a model can name.
const BUGS_MAX: usize = 64;

/// Features that QEMU's translator does not have, and that a guest may still be shown: they steer what the kernel does,
/// or their instructions do nothing that a guest without speculation could notice. The names are QEMU's.
///
/// Other features that the translator lacks must stay hidden. With PCID, a write to CR3 with bit 63 ends the machine;
/// with the TSC deadline, the timer never fires; unknown vector instructions are undefined opcodes.
pub const SHOWABLE: [&str; 26] = [
    "amd-psfd",
    "amd-ssbd",
    "amd-stibp",
    "arch-capabilities",
    "auto-ibrs",
    "bhi-ctrl",
    "erms",
    "fs-gs-base-ns",
    "fsrc",
    "fsrm",
    "fsrs",
    "fzrm",
    "ibpb",
    "ibpb-brtype",
    "ibrs",
    "lfence-always-serializing",
    "md-clear",
    "rrsba-ctrl",
    "sbpb",
    "spec-ctrl",
    "srso-user-kernel-no",
    "ssbd",
    "stibp",
    "stibp-always-on",
    "topoext",
    "verw-clear",
];

/// The bits of IA32_ARCH_CAPABILITIES by name (Intel SDM, volume 4, table 2-2; names as in QEMU and in Linux'
/// `msr-index.h`).
const ARCH_CAPABILITIES: [(&str, u32); 21] = [
    ("rdctl-no", 0),
    ("ibrs-all", 1),
    ("rsba", 2),
    ("skip-l1dfl-vmentry", 3),
    ("ssb-no", 4),
    ("mds-no", 5),
    ("pschange-mc-no", 6),
    ("tsx-ctrl", 7),
    ("taa-no", 8),
    ("misc-package-ctls", 10),
    ("sbdr-ssdp-no", 13),
    ("fbsdp-no", 14),
    ("psdp-no", 15),
    ("fb-clear", 17),
    ("rrsba", 19),
    ("bhi-no", 20),
    ("pbrsb-no", 24),
    ("gds-no", 26),
    ("rfds-no", 27),
    ("rfds-clear", 28),
    ("its-no", 62),
];

/// The vendor of a processor that QEMU can show.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Vendor {
    #[serde(rename = "AuthenticAMD")]
    Amd,
    #[serde(rename = "GenuineIntel")]
    Intel,
}

impl Vendor {
    /// The vendor's signature in CPUID.
    #[must_use]
    pub fn signature(self) -> &'static str {
        match self {
            Vendor::Amd => "AuthenticAMD",
            Vendor::Intel => "GenuineIntel",
        }
    }
}

/// The table `[identity]`.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields, expecting = "allowed: a table")]
pub struct IdentityModel {
    /// The vendor's signature, such as `AuthenticAMD`.
    pub vendor: Vendor,
    /// QEMU's processor with the same instructions. Instructions that QEMU does not execute may differ.
    #[serde(deserialize_with = "word")]
    pub like: String,
    /// Family of the CPUID signature, with the extended family.
    #[serde(deserialize_with = "whole_number_within::<_, _, 0, FAMILY_MAX>")]
    pub family: u32,
    /// Model of the CPUID signature, with the extended model.
    #[serde(deserialize_with = "whole_number_within::<_, _, 0, MODEL_MAX>")]
    pub model: u32,
    #[serde(deserialize_with = "whole_number_within::<_, _, 0, STEPPING_MAX>")]
    pub stepping: u32,
    /// The processor's name. `None`: the name of QEMU's processor.
    #[serde(default, deserialize_with = "title")]
    pub title: Option<String>,
    /// Revision of the microcode, which decides whether Linux takes a bug for mitigated. `None`: QEMU's.
    #[serde(default, deserialize_with = "optional::<_, _, 0, MICROCODE_MAX>")]
    pub microcode: Option<u32>,
    /// Features of the processor that QEMU does not execute, and that the guest is shown: see [`SHOWABLE`].
    #[serde(default, deserialize_with = "showable")]
    pub shown: Vec<String>,
    /// Features that QEMU executes and the guest must not see: the processor or the model lacks them.
    #[serde(default, deserialize_with = "words")]
    pub hidden: Vec<String>,
    /// The value of IA32_ARCH_CAPABILITIES, by the names of its bits. `None`: the processor has no such register.
    #[serde(default, deserialize_with = "arch_capabilities")]
    pub arch_capabilities: Option<u64>,
    /// Linux' mitigation of each bug on the processor: the start of `/sys/devices/system/cpu/vulnerabilities/BUG`.
    #[serde(default, deserialize_with = "bugs")]
    pub mitigations: BTreeMap<String, String>,
}

/// Reads a name of QEMU: letters, digits, hyphens and dots.
fn word<'de, D: Deserializer<'de>>(from: D) -> Result<String, D::Error> {
    let text = short_text(from)?;
    if is_word(&text) {
        Ok(text)
    } else {
        Err(D::Error::custom("allowed: a name of qemu -cpu help"))
    }
}

/// Reads a list of names of QEMU.
fn words<'de, D: Deserializer<'de>>(from: D) -> Result<Vec<String>, D::Error> {
    let names = Vec::<String>::deserialize(from)?;
    if names.len() <= HIDDEN_MAX && names.iter().all(|name| is_word(name)) {
        return Ok(names);
    }
    Err(D::Error::custom("allowed: up to 64 names of features, as qemu -cpu help lists them"))
}

fn is_word(text: &str) -> bool {
    (1..=40).contains(&text.len())
        && text.chars().all(|c| c.is_ascii_alphanumeric() || "-._".contains(c))
}

/// Reads a processor's name, which has no comma: a comma would end the name in QEMU's options.
fn title<'de, D: Deserializer<'de>>(from: D) -> Result<Option<String>, D::Error> {
    let text = short_text(from)?;
    let is_allowed =
        text.len() <= TITLE_BYTES_MAX && text.chars().all(|c| matches!(c, ' '..='~') && c != ',');
    let allowed = "allowed: printable ASCII of at most 47 bytes, without commas";
    if is_allowed { Ok(Some(text)) } else { Err(D::Error::custom(allowed)) }
}

/// Reads a list of names of [`SHOWABLE`].
fn showable<'de, D: Deserializer<'de>>(from: D) -> Result<Vec<String>, D::Error> {
    let names = Vec::<String>::deserialize(from)?;
    match names.iter().find(|name| !SHOWABLE.contains(&name.as_str())) {
        None => Ok(names),
        Some(name) => Err(D::Error::custom(format!(
            "{name:?} cannot be shown, because QEMU does not execute it; allowed: {}",
            SHOWABLE.join(", ")
        ))),
    }
}

/// Reads the names of the bits that are set in IA32_ARCH_CAPABILITIES.
fn arch_capabilities<'de, D: Deserializer<'de>>(from: D) -> Result<Option<u64>, D::Error> {
    let names = Vec::<String>::deserialize(from)?;
    let mut value = 0;
    for name in names {
        let bit = ARCH_CAPABILITIES.iter().find(|(known, _)| *known == name);
        let (_, bit) = bit.ok_or_else(|| {
            let known = ARCH_CAPABILITIES.map(|(known, _)| known).join(", ");
            D::Error::custom(format!("{name:?} is no bit of the register; allowed: {known}"))
        })?;
        value |= 1 << bit;
    }
    Ok(Some(value))
}

/// Reads texts by the name of a bug.
fn bugs<'de, D: Deserializer<'de>>(from: D) -> Result<BTreeMap<String, String>, D::Error> {
    let bugs = BTreeMap::<String, String>::deserialize(from)?;
    let is_name = |name: &str| {
        name.len() <= 40
            && name.chars().all(|c| c.is_ascii_lowercase() || c.is_ascii_digit() || c == '_')
    };
    let is_text = |text: &str| text.len() <= 200 && !text.contains(char::is_control);
    if bugs.len() <= BUGS_MAX && bugs.iter().all(|(name, text)| is_name(name) && is_text(text)) {
        return Ok(bugs);
    }
    Err(D::Error::custom(
        "allowed: up to 64 names of files in /sys/devices/system/cpu/vulnerabilities, each with a text of up to 200 bytes",
    ))
}

#[cfg(test)]
mod tests {
    use crate::SystemModel;

    const ZEN4: &str = include_str!("../../../machines/zen4.toml");
    const EMERALD_RAPIDS: &str = include_str!("../../../machines/emerald-rapids.toml");

    #[test]
    fn a_register_has_the_bits_that_are_named() {
        let identity = SystemModel::parse(EMERALD_RAPIDS).unwrap().identity.unwrap();
        let value = identity.arch_capabilities.unwrap();
        for (bit, is_set) in [(0, true), (1, true), (5, true), (20, false), (27, true), (62, false)]
        {
            assert_eq!(value >> bit & 1 == 1, is_set, "bit {bit}");
        }
        assert_eq!(SystemModel::parse(ZEN4).unwrap().identity.unwrap().arch_capabilities, None);
    }

    #[test]
    fn what_cannot_be_shown_is_refused_by_name() {
        let refused = |from: &str, to: &str| {
            SystemModel::parse(&ZEN4.replacen(from, to, 1)).unwrap_err().to_string()
        };
        let pcid = refused("\"amd-psfd\"", "\"pcid\"");
        assert!(
            pcid.contains("identity.shown") && pcid.contains("\"pcid\" cannot be shown"),
            "{pcid}"
        );
        assert!(pcid.contains("auto-ibrs"), "{pcid}");
        let vendor = refused("vendor = \"AuthenticAMD\"", "vendor = \"MIPS\"");
        assert!(vendor.contains("identity.vendor") && vendor.contains("GenuineIntel"), "{vendor}");
        // A comma would begin another option of QEMU.
        assert!(refused("EPYC-Genoa-v1", "EPYC-Genoa,hypervisor=on").contains("identity.like"));
        assert!(refused("title = \"AMD", "title = \"AMD,").contains("identity.title"));
        assert!(refused("\"la57\"", "\"la57,avx\"").contains("identity.hidden"));
        assert!(refused("family = 25", "family = 300").contains("identity.family"));
        assert!(refused("tsa = ", "\"../tsa\" = ").contains("identity.mitigations"));
        let bit = EMERALD_RAPIDS.replacen("\"rrsba\"", "\"rrsbb\"", 1);
        let bit = SystemModel::parse(&bit).unwrap_err().to_string();
        assert!(bit.contains("\"rrsbb\" is no bit"), "{bit}");
    }
}
