//! Reads the symbols of a kernel module's file (ELF, 64 bits, relocatable): the section and the offset of each.
//!
//! [`super::loaded`] combines them with the addresses at which a guest has the sections. A file may be damaged: each
//! offset and number is checked, and a damaged file is `None`.

/// A section that a module has in memory.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Section {
    pub(super) name: String,
    pub(super) bytes: u64,
    pub(super) symbols: Vec<SectionSymbol>,
}

/// A function or a variable in a section.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct SectionSymbol {
    pub(super) name: String,
    pub(super) offset: u64,
    pub(super) is_code: bool,
}

const HEADER_BYTES: usize = 64;
const SYMBOL_BYTES: usize = 24;
const SECTIONS_MAX: usize = 4_096;
const SYMBOLS_MAX: usize = 1 << 20;
const NAME_BYTES_MAX: usize = 512;
const MAGIC: &[u8] = b"\x7fELF\x02\x01";
/// Type of a section with symbols (`SHT_SYMTAB`).
const TYPE_SYMBOLS: u32 = 2;
/// Flag of a section that is in memory (`SHF_ALLOC`).
const FLAG_ALLOCATED: u64 = 2;
/// Flag of a section whose content is executed (`SHF_EXECINSTR`).
const FLAG_EXECUTED: u64 = 4;
/// Types of symbols that are kept: none (`STT_NOTYPE`), a variable (`STT_OBJECT`), a function (`STT_FUNC`).
const NAMED_TYPES: [u8; 3] = [0, 1, 2];

/// The header of a section.
struct SectionHeader {
    name: u32,
    kind: u32,
    flags: u64,
    offset: u64,
    bytes: u64,
    /// For a section with symbols: the index of the section with their names.
    link: u32,
}

/// Returns the sections that a module has in memory, with their symbols; `None` if `file` is no such file or damaged.
pub(super) fn sections(file: &[u8]) -> Option<Vec<Section>> {
    if !file.starts_with(MAGIC) {
        return None;
    }
    let (table, count, name_section) =
        (u64_at(file, 0x28)?, u16_at(file, 0x3c)?, u16_at(file, 0x3e)?);
    if usize::from(count) > SECTIONS_MAX {
        return None;
    }
    let table = usize::try_from(table).ok()?;
    let headers: Vec<SectionHeader> = (0..usize::from(count))
        .map(|index| header(file, table.checked_add(index * HEADER_BYTES)?))
        .collect::<Option<_>>()?;
    let section_names = content(file, headers.get(usize::from(name_section))?)?;
    // Symbols name sections by index: a section that is not in memory stays, without bytes, until the end.
    let mut sections: Vec<Section> = headers
        .iter()
        .map(|header| {
            let is_allocated = header.flags & FLAG_ALLOCATED != 0;
            let bytes = if is_allocated { header.bytes } else { 0 };
            Section { name: text(section_names, header.name), bytes, symbols: Vec::new() }
        })
        .collect();
    for symbols in headers.iter().filter(|header| header.kind == TYPE_SYMBOLS) {
        let symbol_names = content(file, headers.get(symbols.link as usize)?)?;
        for entry in content(file, symbols)?.chunks_exact(SYMBOL_BYTES).take(SYMBOLS_MAX) {
            let (name, section) = (u32_at(entry, 0)?, usize::from(u16_at(entry, 6)?));
            let (kind, offset) = (entry[4] & 0xf, u64_at(entry, 8)?);
            let name = text(symbol_names, name);
            let (Some(target), Some(header)) = (sections.get_mut(section), headers.get(section))
            else {
                continue;
            };
            if section > 0
                && !name.is_empty()
                && NAMED_TYPES.contains(&kind)
                && offset < target.bytes
            {
                let is_code = header.flags & FLAG_EXECUTED != 0;
                target.symbols.push(SectionSymbol { name, offset, is_code });
            }
        }
    }
    sections.retain(|section| section.bytes > 0);
    Some(sections)
}

/// Reads the header of a section at an offset in the file.
fn header(file: &[u8], offset: usize) -> Option<SectionHeader> {
    let bytes = file.get(offset..offset.checked_add(HEADER_BYTES)?)?;
    Some(SectionHeader {
        name: u32_at(bytes, 0)?,
        kind: u32_at(bytes, 4)?,
        flags: u64_at(bytes, 8)?,
        offset: u64_at(bytes, 24)?,
        bytes: u64_at(bytes, 32)?,
        link: u32_at(bytes, 40)?,
    })
}

/// Returns the bytes of a section.
fn content<'a>(file: &'a [u8], section: &SectionHeader) -> Option<&'a [u8]> {
    let start = usize::try_from(section.offset).ok()?;
    file.get(start..start.checked_add(usize::try_from(section.bytes).ok()?)?)
}

/// Returns the text that starts at `start` in a table of names, up to its zero.
fn text(names: &[u8], start: u32) -> String {
    let bytes = names.get(start as usize..).unwrap_or_default();
    let end = bytes.iter().take(NAME_BYTES_MAX).position(|byte| *byte == 0).unwrap_or(0);
    String::from_utf8_lossy(&bytes[..end]).into_owned()
}

fn u16_at(bytes: &[u8], offset: usize) -> Option<u16> {
    Some(u16::from_le_bytes(bytes.get(offset..offset + 2)?.try_into().ok()?))
}

fn u32_at(bytes: &[u8], offset: usize) -> Option<u32> {
    Some(u32::from_le_bytes(bytes.get(offset..offset + 4)?.try_into().ok()?))
}

fn u64_at(bytes: &[u8], offset: usize) -> Option<u64> {
    Some(u64::from_le_bytes(bytes.get(offset..offset + 8)?.try_into().ok()?))
}

#[cfg(test)]
pub(super) mod tests {
    use super::*;

    /// A file with the sections `.text` (0x40 bytes), `.data` (8 bytes) and a note that is not in memory; and the
    /// symbols `probe` at 0x10 of the first, `level` at 0 of the second, and one that is defined elsewhere.
    pub(in crate::guest) fn file() -> Vec<u8> {
        let names = b"\0.text\0.data\0.symtab\0.strtab\0.comment\0";
        let strings = b"\0probe\0level\0printk\0";
        let symbol = |name: u32, kind: u8, section: u16, value: u64| {
            let mut bytes = name.to_le_bytes().to_vec();
            bytes.extend([kind, 0]);
            bytes.extend(section.to_le_bytes());
            bytes.extend(value.to_le_bytes());
            bytes.extend([0; 8]);
            bytes
        };
        let symbols =
            [symbol(0, 0, 0, 0), symbol(1, 2, 1, 0x10), symbol(7, 1, 2, 0), symbol(13, 0, 0, 0)];
        let symbols = symbols.concat();
        let mut file = vec![0; 64];
        file[..6].copy_from_slice(MAGIC);
        let append = |content: &[u8], file: &mut Vec<u8>| {
            let offset = file.len() as u64;
            file.extend(content);
            offset
        };
        let (at_names, at_strings) = (append(names, &mut file), append(strings, &mut file));
        let at_symbols = append(&symbols, &mut file);
        let table = file.len() as u64;
        let header = |name: u32, kind: u32, flags: u64, offset: u64, bytes: u64, link: u32| {
            let mut encoded = [name.to_le_bytes(), kind.to_le_bytes()].concat();
            for number in [flags, 0, offset, bytes] {
                encoded.extend(number.to_le_bytes());
            }
            encoded.extend(link.to_le_bytes());
            encoded.resize(HEADER_BYTES, 0);
            encoded
        };
        let length = |bytes: &[u8]| bytes.len() as u64;
        for section_header in [
            header(0, 0, 0, 0, 0, 0),
            header(1, 1, 6, 0, 0x40, 0),
            header(7, 1, 3, 0, 8, 0),
            header(13, TYPE_SYMBOLS, 0, at_symbols, length(&symbols), 4),
            header(21, 3, 0, at_strings, length(strings), 0),
            header(29, 3, 0, at_names, length(names), 0),
        ] {
            file.extend(section_header);
        }
        file[0x28..0x30].copy_from_slice(&table.to_le_bytes());
        file[0x3c..0x3e].copy_from_slice(&6_u16.to_le_bytes());
        file[0x3e..0x40].copy_from_slice(&5_u16.to_le_bytes());
        file
    }

    #[test]
    fn symbols_by_section() {
        let sections = sections(&file()).unwrap();
        let symbol =
            |name: &str, offset, is_code| SectionSymbol { name: name.to_owned(), offset, is_code };
        let section =
            |name: &str, bytes, symbols| Section { name: name.to_owned(), bytes, symbols };
        assert_eq!(
            sections,
            [
                section(".text", 0x40, vec![symbol("probe", 0x10, true)]),
                section(".data", 8, vec![symbol("level", 0, false)]),
            ]
        );
        assert_eq!(super::sections(b"no module"), None);
    }

    proptest::proptest! {
        #[test]
        fn damaged_files_never_panic(changes in proptest::collection::vec((0_usize..600, 0_u8..), 0..20)) {
            let mut file = file();
            for (offset, byte) in changes {
                if offset >= MAGIC.len() && let Some(old) = file.get_mut(offset) {
                    *old = byte;
                }
            }
            let _ = sections(&file);
            file.truncate(file.len() / 2);
            let _ = sections(&file);
        }
    }
}
