//! Names of kernel functions, from /proc/kallsyms, which also lists the functions of modules. `handlers --callbacks`
//! names its rows by them.

use std::collections::{BTreeMap, BTreeSet};

use super::Root;

/// Largest size of /proc/kallsyms that is read.
const BYTES_MAX: usize = 64 << 20;
/// Longest name, with the module, bytes; longer names are cut.
const NAME_BYTES_MAX: usize = 128;
/// The name of the functions that share a row, because a CPU's rows were in use.
pub const OTHER_FUNCTIONS: &str = "(other functions)";

/// The names of some functions, by address.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct KernelFunctions {
    names: BTreeMap<u64, String>,
}

impl KernelFunctions {
    /// Finds the names of the functions at `addresses`. Does not read /proc/kallsyms if there are none.
    #[must_use]
    pub fn find(root: &Root, addresses: &BTreeSet<u64>) -> KernelFunctions {
        let mut names = BTreeMap::new();
        if addresses.is_empty() {
            return KernelFunctions { names };
        }
        let bytes = root.bytes("proc/kallsyms", BYTES_MAX).unwrap_or_default();
        for line in bytes.split(|byte| *byte == b'\n') {
            let line = String::from_utf8_lossy(line);
            let Some((address, name)) = parse(&line) else { continue };
            if addresses.contains(&address) {
                names.entry(address).or_insert(name);
            }
        }
        KernelFunctions { names }
    }

    /// The function's name as in /proc/kallsyms, followed by its module in brackets. Without a known name, the address;
    /// for address 0, [`OTHER_FUNCTIONS`].
    #[must_use]
    pub fn name(&self, address: u64) -> String {
        match self.names.get(&address) {
            Some(name) => name.clone(),
            None if address == 0 => OTHER_FUNCTIONS.to_owned(),
            None => format!("{address:#x}"),
        }
    }

    /// How many of `addresses` have no known name.
    #[must_use]
    pub fn unnamed(&self, addresses: &BTreeSet<u64>) -> usize {
        addresses.iter().filter(|address| !self.names.contains_key(address)).count()
    }
}

/// Parses a line of /proc/kallsyms: `ADDRESS KIND NAME`, and `[MODULE]` after a tab. `None` for variables, and where the
/// kernel hides the address as 0.
fn parse(line: &str) -> Option<(u64, String)> {
    let mut words = line.split_ascii_whitespace();
    let address = u64::from_str_radix(words.next()?, 16).ok().filter(|address| *address != 0)?;
    if !matches!(words.next()?, "t" | "T" | "w" | "W") {
        return None;
    }
    let mut name: String = words.next()?.to_owned();
    if let Some(module) = words.next() {
        name = format!("{name} {module}");
    }
    let end = name.char_indices().map(|(index, _)| index).find(|index| *index > NAME_BYTES_MAX);
    name.truncate(end.unwrap_or(name.len()));
    Some((address, name))
}

#[cfg(test)]
mod tests {
    use super::super::root::plant;
    use super::*;

    #[test]
    fn functions_of_the_kernel_and_of_modules_have_names() {
        let text = "ffffffff81000000 T _text\n\
                    ffffffff81000000 T startup_64\n\
                    ffffffff81000010 d variable\n\
                    0000000000000000 t hidden\n\
                    ffffffffc0000010 t tx_timeout.isra.0\t[virtio_net]\n";
        let directory = tempfile::tempdir().unwrap();
        plant(directory.path(), "proc/kallsyms", text);
        let root = Root::new(directory.path());
        let addresses: BTreeSet<u64> =
            BTreeSet::from([0xffff_ffff_8100_0000, 0xffff_ffff_8100_0010, 0xffff_ffff_c000_0010]);
        let functions = KernelFunctions::find(&root, &addresses);
        assert_eq!(functions.name(0xffff_ffff_8100_0000), "_text");
        assert_eq!(functions.name(0xffff_ffff_c000_0010), "tx_timeout.isra.0 [virtio_net]");
        assert_eq!(functions.name(0xffff_ffff_8100_0010), "0xffffffff81000010");
        assert_eq!(
            (functions.name(0).as_str(), functions.unnamed(&addresses)),
            (OTHER_FUNCTIONS, 1)
        );
    }
}
