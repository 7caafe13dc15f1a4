//! Names of kernel functions, from /proc/kallsyms, which also lists the functions of modules. `handlers --callbacks`
//! names its rows by them.

use std::collections::{BTreeMap, BTreeSet};

use super::Root;

/// Largest size of /proc/kallsyms that is read.
const BYTES_MAX: usize = 64 << 20;
/// Longest name, with the module, bytes; longer names are cut.
const NAME_BYTES_MAX: usize = 128;
/// Largest size of a function, bytes. Code further behind a symbol belongs to no known function.
const FUNCTION_BYTES_MAX: u64 = 1 << 20;
/// The name of the functions that share a row, because a CPU's rows were in use.
pub const OTHER_FUNCTIONS: &str = "(other functions)";

/// The names of some functions, by address.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct KernelFunctions {
    names: BTreeMap<u64, String>,
    /// Addresses that /proc/kallsyms did not list.
    unlisted: BTreeSet<u64>,
}

impl KernelFunctions {
    /// Finds the names of the functions at `addresses`. Does not read /proc/kallsyms if there are none.
    #[must_use]
    pub fn find(root: &Root, addresses: &BTreeSet<u64>) -> KernelFunctions {
        let mut functions = KernelFunctions::default();
        functions.add(root, addresses);
        functions
    }

    /// Adds the names of the functions at `addresses`. Reads /proc/kallsyms only for addresses that were not searched
    /// before: `watch` names its rows at each reading.
    pub fn add(&mut self, root: &Root, addresses: &BTreeSet<u64>) {
        let is_new =
            |address: &&u64| !self.names.contains_key(address) && !self.unlisted.contains(address);
        let new: BTreeSet<u64> = addresses.iter().filter(is_new).copied().collect();
        if new.is_empty() {
            return;
        }
        let bytes = root.bytes("proc/kallsyms", BYTES_MAX).unwrap_or_default();
        for line in bytes.split(|byte| *byte == b'\n') {
            let line = String::from_utf8_lossy(line);
            let Some((address, name)) = parse(&line) else { continue };
            if new.contains(&address) {
                self.names.entry(address).or_insert(name);
            }
        }
        let names = &self.names;
        self.unlisted.extend(new.into_iter().filter(|address| !names.contains_key(address)));
    }

    /// Finds the names of the functions around `addresses`, which follow call instructions. Each address has the name of
    /// the symbol before it, if that is a function and no further away than `FUNCTION_BYTES_MAX`.
    #[must_use]
    pub fn find_around(root: &Root, addresses: &BTreeSet<u64>) -> KernelFunctions {
        let mut names = BTreeMap::new();
        if addresses.is_empty() {
            return KernelFunctions::default();
        }
        let bytes = root.bytes("proc/kallsyms", BYTES_MAX).unwrap_or_default();
        let mut symbols: Vec<(u64, &[u8])> = Vec::new();
        for line in bytes.split(|byte| *byte == b'\n') {
            let hex = line.split(|byte| *byte == b' ').next().unwrap_or_default();
            let address =
                std::str::from_utf8(hex).ok().and_then(|h| u64::from_str_radix(h, 16).ok());
            symbols.extend(address.map(|address| (address, line)));
        }
        // Stable: of symbols at the same address, the first one names the function, as in `find`.
        symbols.sort_by_key(|(address, _)| *address);
        for &address in addresses {
            // A call may be the last instruction of a function that does not return.
            let called_before = address - 1;
            let end = symbols.partition_point(|(start, _)| *start <= called_before);
            let Some((start, _)) = end.checked_sub(1).map(|last| symbols[last]) else { continue };
            let first = symbols.partition_point(|(earlier, _)| *earlier < start);
            let name = symbols[first..end]
                .iter()
                .find_map(|(_, line)| parse(&String::from_utf8_lossy(line)).map(|(_, name)| name));
            if called_before - start < FUNCTION_BYTES_MAX {
                names.extend(name.map(|name| (address, name)));
            }
        }
        KernelFunctions { names, ..KernelFunctions::default() }
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
        let around = BTreeSet::from([
            0xffff_ffff_8100_0004,
            0xffff_ffff_8100_0010,
            0xffff_ffff_8100_0018,
            0xffff_ffff_c000_0050,
            0xffff_ffff_d000_0050,
        ]);
        let functions = KernelFunctions::find_around(&root, &around);
        let names = around.iter().map(|address| functions.name(*address)).collect::<Vec<_>>();
        let expected = [
            "_text",
            "_text",
            "0xffffffff81000018",
            "tx_timeout.isra.0 [virtio_net]",
            "0xffffffffd0000050",
        ];
        assert_eq!((names, functions.unnamed(&around)), (expected.map(str::to_owned).to_vec(), 2));
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

    #[test]
    fn names_that_were_found_stay_when_the_module_is_gone() {
        let directory = tempfile::tempdir().unwrap();
        let root = Root::new(directory.path());
        let kernel = "ffffffff81000000 T startup_64\n";
        let module = "ffffffffc0000010 t tx_timeout\t[virtio_net]\n";
        let mut functions = KernelFunctions::default();
        let expected = ["tx_timeout [virtio_net]", "startup_64", "0xffffffff81000010"];
        for (text, further) in
            [(format!("{kernel}{module}"), None), (kernel.to_owned(), Some(0xffff_ffff_8100_0000))]
        {
            plant(directory.path(), "proc/kallsyms", text);
            let known = [0xffff_ffff_c000_0010, 0xffff_ffff_8100_0010];
            functions.add(&root, &known.into_iter().chain(further).collect());
        }
        let addresses = [0xffff_ffff_c000_0010, 0xffff_ffff_8100_0000, 0xffff_ffff_8100_0010];
        assert_eq!(addresses.map(|address| functions.name(address)), expected.map(str::to_owned));
    }
}
