//! The guest kernel's symbols, by address and by name.
//!
//! They come from `/proc/kallsyms` of the guest once per kernel ([`crate::guest_facts`]). The plugin gets addresses of
//! functions, annotations name places, and tables name the code and data that missed in a cache.

use std::collections::HashMap;

use attribution::kernel_function::{self, Body};

use super::areas::{self, Area};
use crate::text;
use crate::{Result, SimError};

/// Maximum number of symbols; a full kernel with modules has some 200,000.
const SYMBOLS_MAX: usize = 4_000_000;
/// Maximum length of a name: KSYM_NAME_LEN is 512.
const NAME_BYTES_MAX: usize = 512;
/// Start of the per-CPU area: the addresses of per-CPU variables are offsets in it.
const PER_CPU_START: &str = "__per_cpu_start";
const PER_CPU_END: &str = "__per_cpu_end";

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Symbol {
    /// Address in the kernel; for a per-CPU variable its offset in the per-CPU area.
    pub address: u64,
    pub name: String,
    /// Kind, as in nm(1): `T` and `t` are functions.
    pub kind: char,
    /// Module that it belongs to.
    pub module: Option<String>,
}

/// A kernel's symbols.
#[derive(Clone, Debug, Default)]
pub struct Symbols {
    /// Sorted by address; symbols with the same address keep the kernel's order.
    table: Vec<Symbol>,
    /// The first symbol of each name.
    by_name: HashMap<String, usize>,
    /// Symbols that `by_name` does not find by their name in the source: copies and parts of functions that the
    /// compiler made, and all but the first of several symbols with the same name.
    by_source_name: HashMap<String, Vec<usize>>,
    /// Areas whose addresses symbols name, sorted by address.
    areas: Vec<Area>,
}

impl Symbol {
    /// Whether it names code.
    #[must_use]
    pub fn is_code(&self) -> bool {
        matches!(self.kind, 'T' | 't' | 'W' | 'w')
    }

    /// Its name and the name of its module, as in the kernel's own messages.
    #[must_use]
    pub fn label(&self) -> String {
        match &self.module {
            Some(module) => format!("{} [{module}]", self.name),
            None => self.name.clone(),
        }
    }
}

impl Symbols {
    /// Parses the text of `/proc/kallsyms`.
    ///
    /// Fails when a line has not the form `address kind name [module]`, or when there are too many lines. Fails when
    /// all addresses are hidden: a reader without privileges gets zeros.
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
        let areas = areas::of_kernel(&table);
        Ok(Symbols::from_parts(table, areas))
    }

    /// Sorts the symbols and areas, and indexes the names.
    fn from_parts(mut table: Vec<Symbol>, mut areas: Vec<Area>) -> Symbols {
        table.sort_by_key(|symbol| symbol.address);
        areas.sort_by_key(|area| area.start);
        let mut by_name: HashMap<String, usize> = HashMap::with_capacity(table.len());
        let mut by_source_name: HashMap<String, Vec<usize>> = HashMap::new();
        for (index, symbol) in table.iter().enumerate() {
            let (function, _) = kernel_function::split(&symbol.name);
            if function != symbol.name || by_name.contains_key(function) {
                by_source_name.entry(function.to_owned()).or_default().push(index);
            }
            // Several static functions may share a name: the first stays.
            by_name.entry(symbol.name.clone()).or_insert(index);
        }
        Symbols { table, by_name, by_source_name, areas }
    }

    /// Returns these symbols with other modules: `symbols` and `sections` replace the symbols and areas of modules.
    #[must_use]
    pub(crate) fn with_modules(&self, symbols: Vec<Symbol>, sections: Vec<Area>) -> Symbols {
        let is_kernel = |symbol: &&Symbol| symbol.module.is_none();
        let table = self.table.iter().filter(is_kernel).cloned().chain(symbols).collect();
        let areas = self.areas.iter().filter(|area| area.module.is_none()).cloned();
        Symbols::from_parts(table, areas.chain(sections).collect())
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

    /// Returns the symbol with exactly this name. If several symbols have it, returns the one with the lowest address.
    #[must_use]
    pub fn symbol_named(&self, name: &str) -> Option<&Symbol> {
        self.table.get(*self.by_name.get(name)?)
    }

    /// Returns all places where a function starts, by its name in the source: the function, functions of other
    /// files with the same name, and copies that the compiler made. There the registers hold the function's first
    /// `arguments` arguments. Parts of a function are returned only if it has no complete body.
    #[must_use]
    pub fn functions(&self, name: &str, arguments: u8) -> Vec<&Symbol> {
        let exact = self.by_name.get(name).into_iter();
        let all = exact.chain(self.by_source_name.get(name).into_iter().flatten());
        let all = all.filter_map(|index| self.table.get(*index)).filter(|symbol| symbol.is_code());
        // A name with the compiler's suffix means only the symbol itself.
        let body = |symbol: &Symbol| {
            if symbol.name == name { Body::Whole } else { kernel_function::split(&symbol.name).1 }
        };
        let candidates = all.filter(|symbol| body(symbol).starts(arguments));
        let (parts, bodies): (Vec<_>, Vec<_>) =
            candidates.partition(|symbol| body(symbol) == Body::Rest);
        let mut found = if bodies.is_empty() { parts } else { bodies };
        found.sort_by_key(|symbol| symbol.address);
        found.dedup_by_key(|symbol| symbol.address);
        found
    }

    /// Returns the address of the symbol `name`. For a per-CPU variable this is its offset in the per-CPU area.
    ///
    /// If several symbols have the name, returns the lowest address. If no symbol has it, returns the lowest address of
    /// the copies that the compiler made of the function `name`, or else of the function's parts.
    ///
    /// Fails if the kernel has neither; the message suggests similar names.
    pub fn address(&self, name: &str) -> Result<u64> {
        let symbol = self.symbol_named(name).or_else(|| self.functions(name, 0).first().copied());
        symbol.map(|symbol| symbol.address).ok_or_else(|| {
            let hint = text::hint(name, self.names());
            SimError::data(format!("symbol {name:?}"), format!("not in this kernel{hint}"))
        })
    }

    /// Returns the last symbol at or below an address, and the distance from it in bytes. If several symbols have one
    /// address, it returns the first. `None` before the first symbol of an area, and outside of the areas that
    /// symbols name: the kernel's image, the per-CPU variables, the sections of modules.
    #[must_use]
    pub fn symbol_at(&self, address: u64) -> Option<(&Symbol, u64)> {
        let area = self.area_of(address)?;
        let after = self.table.partition_point(|symbol| symbol.address <= address);
        let last = self.table.get(after.checked_sub(1)?)?;
        let first = self.table.partition_point(|symbol| symbol.address < last.address);
        let symbol = self.table.get(first).filter(|symbol| symbol.address >= area.start)?;
        Some((symbol, address - symbol.address))
    }

    /// Returns the area that has the address.
    fn area_of(&self, address: u64) -> Option<&Area> {
        let after = self.areas.partition_point(|area| area.start <= address);
        self.areas.get(after.checked_sub(1)?).filter(|area| address < area.end)
    }

    /// Returns the name of the code at an address: the function, or [`Symbols::area_name`] where no function is known.
    #[must_use]
    pub fn code_name(&self, address: u64) -> String {
        match self.symbol_at(address) {
            Some((symbol, _)) if symbol.is_code() => symbol.label(),
            _ => self.area_name(address),
        }
    }

    /// Returns the name of the variable at an address, or [`Symbols::area_name`] where no symbol is known.
    #[must_use]
    pub fn data_name(&self, address: u64) -> String {
        self.symbol_at(address)
            .map_or_else(|| self.area_name(address), |(symbol, _)| symbol.label())
    }

    /// Returns a name for an address without a symbol: `[NAME]` in the module NAME; `[module]` where the kernel puts
    /// modules and BPF programs, if it is unknown which one is there; else `[unknown]`.
    #[must_use]
    pub fn area_name(&self, address: u64) -> String {
        match self.area_of(address).and_then(|area| area.module.as_ref()) {
            Some(module) => format!("[{module}]"),
            None if areas::MODULES.contains(&address) => "[module]".to_owned(),
            None => "[unknown]".to_owned(),
        }
    }

    /// Returns the next symbol above an address. If several symbols have one address, it returns the first.
    #[must_use]
    pub fn next_symbol(&self, address: u64) -> Option<&Symbol> {
        self.table.get(self.table.partition_point(|symbol| symbol.address <= address))
    }

    /// Returns the offset of a per-CPU variable from the base of a CPU's area (`gs` in the kernel).
    ///
    /// Fails when the name does not exist, or is not a per-CPU variable.
    pub fn per_cpu_offset(&self, name: &str) -> Result<u64> {
        let address = self.address(name)?;
        let start = self.address(PER_CPU_START)?;
        let end = self.address(PER_CPU_END)?;
        if !(start..end).contains(&address) {
            return Err(SimError::data(format!("symbol {name:?}"), "is not a per-CPU variable"));
        }
        Ok(address - start)
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

/// Parses a line of `/proc/kallsyms`: `address kind name [module]`.
fn parse_line(line: &str) -> Option<Symbol> {
    let mut fields = line.split_ascii_whitespace();
    let address = fields.next().filter(|word| word.len() <= 16)?;
    let address = u64::from_str_radix(address, 16).ok()?;
    let mut kind = fields.next()?.chars();
    let name = fields.next().filter(|name| name.len() <= NAME_BYTES_MAX)?;
    let module = fields.next().map(|word| word.trim_matches(['[', ']']).to_owned());
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
        let found =
            |address| symbols.symbol_at(address).map(|(symbol, off)| (symbol.name.as_str(), off));
        assert_eq!(found(0xffff_ffff_8100_00ff), Some(("handle_softirqs", 0xbf)));
        assert_eq!(found(0xffff_ffff_8100_0001), Some(("_stext", 1)));
        assert_eq!(symbols.symbol_named("probe").unwrap().module.as_deref(), Some("virtio_net"));
        assert_eq!(symbols.per_cpu_offset("current_task").unwrap(), 0x1000);
        assert!(symbols.per_cpu_offset("_stext").is_err());
    }

    #[test]
    fn an_address_beyond_the_symbols_of_its_area_gets_no_symbol() {
        let kernel = "ffffffff81000000 T _text\n\
                      ffffffff81000000 T _stext\n\
                      ffffffff81000100 T last\n\
                      ffffffff81000200 T _etext\n\
                      ffffffff82000000 D data\n\
                      ffffffff82001000 B _end\n\
                      ffffffff82a00000 D __init_scratch_end\n";
        let symbols = Symbols::parse(kernel.as_bytes()).unwrap();
        let code = |address| symbols.code_name(address);
        assert_eq!(code(0xffff_ffff_8100_0150), "last");
        assert_eq!(code(0xffff_ffff_8200_0100), "[unknown]", "data is no code");
        assert_eq!(symbols.data_name(0xffff_ffff_8200_0100), "data");
        assert_eq!(code(0xffff_ffff_82b0_0000), "[unknown]");
        // Two addresses of drivers, and one outside of the kernel.
        assert_eq!(code(0xffff_ffff_c000_1234), "[module]");
        assert_eq!(code(0xffff_ffff_a000_1234), "[module]");
        assert_eq!(code(0xffff_8880_0000_1000), "[unknown]");
        let section = |start, end| Area { start, end, module: Some("e1000".to_owned()) };
        let poll = Symbol {
            address: 0xffff_ffff_c000_1010,
            name: "e1000_clean".to_owned(),
            kind: 't',
            module: Some("e1000".to_owned()),
        };
        let sections = vec![
            section(0xffff_ffff_c000_1000, 0xffff_ffff_c000_2000),
            section(0xffff_ffff_c000_5000, 0xffff_ffff_c000_6000),
        ];
        let symbols = symbols.with_modules(vec![poll], sections);
        let code = |address| symbols.code_name(address);
        assert_eq!(code(0xffff_ffff_c000_1234), "e1000_clean [e1000]");
        assert_eq!(code(0xffff_ffff_c000_1008), "[e1000]", "before the first symbol");
        assert_eq!(code(0xffff_ffff_c000_2000), "[module]");
        assert_eq!(code(0xffff_ffff_c000_5008), "[e1000]", "not a symbol of another section");
        assert_eq!(symbols.functions("e1000_clean", 2).len(), 1);
    }

    #[test]
    fn a_function_is_all_of_its_bodies() {
        let text = "ffffffff81000000 t f\n\
                    ffffffff81000100 t f.constprop.0\n\
                    ffffffff81000200 t f.isra.0\n\
                    ffffffff81000300 t f.part.0\n\
                    ffffffff81000400 t f.cold\n\
                    ffffffff81000500 t f\n\
                    ffffffff81000600 t g.part.0\n\
                    ffffffff81000700 d f\n\
                    ffffffff81000800 t f.constprop.0.cold\n";
        let symbols = Symbols::parse(text.as_bytes()).unwrap();
        let addresses = |name, arguments| -> Vec<u64> {
            let found = symbols.functions(name, arguments);
            found.iter().map(|symbol| symbol.address & 0xfff).collect()
        };
        assert_eq!(addresses("f", 0), [0, 0x100, 0x200, 0x500]);
        assert_eq!(addresses("f", 1), [0, 0x100, 0x500]);
        assert_eq!(addresses("f", 2), [0, 0x500]);
        assert_eq!(addresses("g", 0), [0x600]);
        assert!(addresses("g", 1).is_empty() && addresses("h", 0).is_empty());
        assert_eq!(addresses("f.isra.0", 6), [0x200], "the symbol itself");
        assert_eq!(symbols.address("g").unwrap() & 0xfff, 0x600);
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
                let _ = symbols.symbol_at(address);
            }
        }

        #[test]
        fn an_address_is_found_at_its_symbol(addresses in proptest::collection::vec(1u64.., 1..50)) {
            let lines: Vec<String> =
                addresses.iter().enumerate().map(|(i, a)| format!("{a:x} T f{i}\n")).collect();
            let symbols = Symbols::parse(lines.concat().as_bytes()).unwrap();
            for address in addresses {
                let (symbol, distance) = symbols.symbol_at(address).unwrap();
                proptest::prop_assert_eq!((symbol.address, distance), (address, 0));
            }
        }
    }
}
