//! The modules that a guest has loaded, and the addresses of their symbols.
//!
//! The file of a module has its symbols by section. The guest's first process reports the address of each section
//! (`/sys/module/NAME/sections`). Both together name addresses in modules, in the tables of each bench.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use super::areas::Area;
use super::elf;
use super::kernel::Kernel;
use super::modules::{self, RootModules};
use super::symbols::{Symbol, Symbols};
use crate::Result;

/// A module in a guest.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct LoadedModule {
    pub name: String,
    /// The addresses of its sections, by their names, in hexadecimal.
    pub sections: BTreeMap<String, String>,
}

/// Adds the symbols of a guest's loaded modules to its kernel's symbols. Only modules that irqlab packs into an image
/// ([`modules::in_order`]) get names. Other modules get none, also if their file is in the kernel's directory, and neither do
/// files that are not ELF objects.
///
/// Fails when the file of a module that irqlab packs cannot be read.
pub fn with_modules(
    symbols: &Symbols,
    kernel: &Kernel,
    loaded: &[LoadedModule],
) -> Result<Symbols> {
    if loaded.is_empty() {
        return Ok(symbols.clone());
    }
    let Some(directory) = kernel.modules.as_deref() else { return Ok(symbols.clone()) };
    let files = modules::in_order(directory, RootModules::Included)?;
    let (mut table, mut areas) = (Vec::new(), Vec::new());
    for module in loaded {
        let file = files.iter().find(|file| file.name == module.name);
        let sections = file.and_then(|file| elf::sections(&file.bytes)).unwrap_or_default();
        add_sections(module, &sections, &mut table, &mut areas);
    }
    Ok(symbols.with_modules(table, areas))
}

/// Adds the sections of a module and their symbols, at the addresses that the guest reports.
fn add_sections(
    module: &LoadedModule,
    sections: &[elf::Section],
    table: &mut Vec<Symbol>,
    areas: &mut Vec<Area>,
) {
    let module_name = Some(module.name.clone());
    for section in sections {
        let address = module.sections.get(&section.name);
        let address = address.and_then(|text| u64::from_str_radix(text, 16).ok());
        let Some(start) = address.filter(|address| *address > 0) else { continue };
        let Some(end) = start.checked_add(section.bytes) else { continue };
        areas.push(Area { start, end, module: module_name.clone() });
        table.extend(section.symbols.iter().map(|symbol| Symbol {
            address: start + symbol.offset,
            name: symbol.name.clone(),
            kind: if symbol.is_code { 't' } else { 'd' },
            module: module_name.clone(),
        }));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn symbols_lie_where_the_guest_has_their_sections() {
        let kernel = b"ffffffff81000000 T _text\nffffffff82000000 B _end\n";
        let symbols = Symbols::parse(kernel).unwrap();
        let text = (".text".to_owned(), "ffffffffc0000000".to_owned());
        let module = LoadedModule { name: "nic".to_owned(), sections: [text].into() };
        let sections = elf::sections(&elf::tests::file()).unwrap();
        let (mut table, mut areas) = (Vec::new(), Vec::new());
        add_sections(&module, &sections, &mut table, &mut areas);
        let symbols = symbols.with_modules(table, areas);
        assert_eq!(symbols.code_name(0xffff_ffff_c000_0014), "probe [nic]");
        assert_eq!(symbols.code_name(0xffff_ffff_c000_0040), "[module]");
        assert!(
            symbols.symbol_named("level").is_none(),
            "the guest does not say where its section is"
        );
    }
}
