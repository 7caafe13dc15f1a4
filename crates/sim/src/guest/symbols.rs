//! The guest kernel's symbols, by address and by name.

use std::collections::HashMap;

use crate::text;
use crate::{Result, SimError};

/// Maximum number of symbols; a full kernel with modules has some 200,000.
const SYMBOLS_MAX: usize = 4_000_000;
/// Maximum length of a name: KSYM_NAME_LEN is 512.
const NAME_BYTES_MAX: usize = 512;
/// Start of the per-CPU area: the addresses of per-CPU variables are offsets in it.
const PER_CPU_START: &str = "__per_cpu_start";
const PER_CPU_END: &str = "__per_cpu_end";

/// A symbol.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Symbol {
    /// Address in the kernel; for a per-CPU variable its offset in the per-CPU area.
    pub address: u64,
    /// Name.
    pub name: String,
    /// Kind, as in nm(1): `T` and `t` are functions.
    pub kind: char,
    /// Module that it belongs to.
    pub module: Option<String>,
}

/// A kernel's symbols.
#[derive(Clone, Debug, Default)]
pub struct Symbols {
    /// By address; several at one address are in the kernel's order.
    table: Vec<Symbol>,
    by_name: HashMap<String, usize>,
}

impl Symbols {
    /// Parses the text of `/proc/kallsyms`.
    ///
    /// # Errors
    /// When a line is not one of `address kind name [module]`, when there are too many, or when
    /// all addresses are hidden (a reader without rights gets zeros).
    pub fn parse(text: &[u8]) -> Result<Symbols> {
        let bad = |reason: String| SimError::data("kallsyms", reason);
        let text = std::str::from_utf8(text).map_err(|_| bad("is not text".to_owned()))?;
        let mut table = Vec::new();
        for (number, line) in text.lines().enumerate() {
            if table.len() >= SYMBOLS_MAX {
                return Err(bad(format!("more than {SYMBOLS_MAX} symbols")));
            }
            let symbol = parse_line(line);
            table.push(symbol.ok_or_else(|| bad(format!("line {} is malformed", number + 1)))?);
        }
        if table.iter().all(|symbol| symbol.address == 0) {
            return Err(bad("no addresses".to_owned()));
        }
        table.sort_by_key(|symbol| symbol.address);
        let mut by_name = HashMap::with_capacity(table.len());
        for (at, symbol) in table.iter().enumerate() {
            // The first of several static functions of one name.
            by_name.entry(symbol.name.clone()).or_insert(at);
        }
        Ok(Symbols { table, by_name })
    }

    /// Returns the number of symbols.
    #[must_use]
    pub fn len(&self) -> usize {
        self.table.len()
    }

    /// Returns whether there are no symbols.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.table.is_empty()
    }

    /// Returns the symbol of a name.
    #[must_use]
    pub fn get(&self, name: &str) -> Option<&Symbol> {
        self.table.get(*self.by_name.get(name)?)
    }

    /// Returns the address of a name.
    ///
    /// # Errors
    /// When there is none; the message suggests similar names.
    pub fn address(&self, name: &str) -> Result<u64> {
        self.get(name).map(|symbol| symbol.address).ok_or_else(|| {
            let hint = text::hint(name, self.names());
            SimError::data(format!("symbol {name:?}"), format!("not in this kernel{hint}"))
        })
    }

    /// Returns the last symbol at or below an address, and the distance from it in bytes. If several symbols
    /// have one address, it returns the first.
    #[must_use]
    pub fn at(&self, address: u64) -> Option<(&Symbol, u64)> {
        let after = self.table.partition_point(|symbol| symbol.address <= address);
        let last = self.table.get(after.checked_sub(1)?)?;
        let first = self.table.partition_point(|symbol| symbol.address < last.address);
        let symbol = self.table.get(first)?;
        Some((symbol, address - symbol.address))
    }

    /// Returns the next symbol above an address. If several symbols have one address, it returns the first.
    #[must_use]
    pub fn after(&self, address: u64) -> Option<&Symbol> {
        self.table.get(self.table.partition_point(|symbol| symbol.address <= address))
    }

    /// Returns the offset of a per-CPU variable from the base of a CPU's area (`gs` in the kernel).
    ///
    /// # Errors
    /// When the name does not exist, or is not a per-CPU variable.
    pub fn per_cpu_offset(&self, name: &str) -> Result<u64> {
        let address = self.address(name)?;
        let start = self.address(PER_CPU_START)?;
        let end = self.address(PER_CPU_END)?;
        if !(start..end).contains(&address) {
            return Err(SimError::data(format!("symbol {name:?}"), "is not a per-CPU variable"));
        }
        Ok(address - start)
    }

    /// Returns all symbols of a name: static functions may share one.
    pub fn all_of<'a>(&'a self, name: &'a str) -> impl Iterator<Item = &'a Symbol> {
        self.table.iter().filter(move |symbol| symbol.name == name)
    }

    /// Returns the most similar names, at most five, the most similar first.
    #[must_use]
    pub fn nearest(&self, name: &str) -> Vec<&str> {
        text::nearest(name, self.names())
    }

    fn names(&self) -> impl Iterator<Item = &str> {
        self.table.iter().map(|symbol| symbol.name.as_str())
    }
}

fn parse_line(line: &str) -> Option<Symbol> {
    let mut words = line.split_ascii_whitespace();
    let address = words.next().filter(|word| word.len() <= 16)?;
    let address = u64::from_str_radix(address, 16).ok()?;
    let mut kind = words.next()?.chars();
    let name = words.next().filter(|name| name.len() <= NAME_BYTES_MAX)?;
    let module = words.next().map(|word| word.trim_matches(['[', ']']).to_owned());
    Some(Symbol { address, name: name.to_owned(), kind: kind.next()?, module })
}

#[cfg(test)]
mod tests {
    use super::*;

    const TEXT: &str = "0000000000000000 A __per_cpu_start\n\
                        0000000000001000 A current_task\n\
                        0000000000030000 A __per_cpu_end\n\
                        ffffffff81000000 T _stext\n\
                        ffffffff81000000 T _text\n\
                        ffffffff81000040 t handle_softirqs\n\
                        ffffffff81000100 t __do_softirq\n\
                        ffffffffc0000000 t probe\t[virtio_net]\n";

    #[test]
    fn both_ways() {
        let symbols = Symbols::parse(TEXT.as_bytes()).unwrap();
        assert_eq!(symbols.address("__do_softirq").unwrap(), 0xffff_ffff_8100_0100);
        let at = |address| symbols.at(address).map(|(symbol, off)| (symbol.name.as_str(), off));
        assert_eq!(at(0xffff_ffff_8100_00ff), Some(("handle_softirqs", 0xbf)));
        assert_eq!(at(0xffff_ffff_8100_0001), Some(("_stext", 1)));
        assert_eq!(symbols.get("probe").unwrap().module.as_deref(), Some("virtio_net"));
        assert_eq!(symbols.per_cpu_offset("current_task").unwrap(), 0x1000);
        assert!(symbols.per_cpu_offset("_stext").is_err());
    }

    #[test]
    fn a_typo_gets_the_nearest_names() {
        let symbols = Symbols::parse(TEXT.as_bytes()).unwrap();
        let error = symbols.address("do_softirq").unwrap_err().to_string();
        assert!(error.contains("near: __do_softirq"), "{error}");
        assert_eq!(symbols.nearest("handle_sofirqs"), ["handle_softirqs"]);
        assert!(symbols.nearest("completely_different_name").is_empty());
    }

    #[test]
    fn nonsense_is_an_error() {
        for text in ["x", "0 T", "zz T name", "0000000000000000 T hidden\n", "", "\n"] {
            assert!(Symbols::parse(text.as_bytes()).is_err(), "{text:?}");
        }
        assert!(Symbols::parse(&[0xff, 0xfe]).is_err());
    }

    proptest::proptest! {
        #[test]
        fn random_bytes_never_panic(bytes: Vec<u8>, address: u64) {
            if let Ok(symbols) = Symbols::parse(&bytes) {
                let _ = symbols.at(address);
            }
        }

        #[test]
        fn an_address_is_found_at_its_symbol(addresses in proptest::collection::vec(1u64.., 1..50)) {
            let lines: Vec<String> =
                addresses.iter().enumerate().map(|(i, a)| format!("{a:x} T f{i}\n")).collect();
            let symbols = Symbols::parse(lines.concat().as_bytes()).unwrap();
            for address in addresses {
                let (symbol, distance) = symbols.at(address).unwrap();
                proptest::prop_assert_eq!((symbol.address, distance), (address, 0));
            }
        }
    }
}
