//! Reads the functions of a program's file (ELF, 64 bits, little-endian), from `.symtab`, or from `.dynsym` if there is
//! no `.symtab`. [`Guest::read_program`](crate::guest::structures::Guest) calls it with a reader of the guest's memory.
//!
//! The file is untrusted, and parts of the file may not be in memory. A damaged file, or a file that is no program, has
//! no functions. All sizes are bounded.

use std::cmp::Reverse;

/// Reads the part of a file at an offset into a buffer of zeros. Returns whether the whole buffer was read.
pub(super) type ReadFile<'a> = dyn FnMut(u64, &mut [u8]) -> bool + 'a;

const MAGIC: &[u8] = b"\x7fELF\x02\x01";
const FILE_HEADER_BYTES: usize = 64;
const SEGMENT_BYTES: usize = 56;
const SECTION_BYTES: usize = 64;
const SYMBOL_BYTES: usize = 24;
const DYNAMIC_BYTES: usize = 16;
const SEGMENTS_MAX: u16 = 256;
const SECTIONS_MAX: u16 = 4_096;
/// The largest table that is read, bytes.
const TABLE_BYTES_MAX: u64 = 64 << 20;
const NAME_BYTES_MAX: usize = 1_024;
/// The most functions before an address that are tried, because functions can overlap.
const OVERLAPS_MAX: usize = 32;

const SEGMENT_LOADED: u32 = 1;
const SEGMENT_DYNAMIC: u32 = 2;
const EXECUTABLE_SEGMENT: u32 = 1;
const SECTION_SYMBOLS: u32 = 2;
const SECTION_DYNAMIC_SYMBOLS: u32 = 11;
const EXECUTABLE_SECTION: u64 = 4;
/// Types of symbols: a label, a function, and a function that is chosen when the program starts.
const CODE_TYPES: [u8; 3] = [0, FUNCTION, 10];
const FUNCTION: u8 = 2;
/// Entries of the dynamic section.
const DYNAMIC_HASH: u64 = 4;
const DYNAMIC_STRINGS: u64 = 5;
const DYNAMIC_SYMBOLS: u64 = 6;
const DYNAMIC_STRINGS_BYTES: u64 = 10;
const DYNAMIC_GNU_HASH: u64 = 0x6fff_fef5;

/// The functions of a program, by their places in its file.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Functions {
    segments: Vec<Segment>,
    /// Sorted by `start`.
    functions: Vec<Function>,
    /// The table of names: texts with a zero byte at the end.
    names: Vec<u8>,
}

/// A part of the file that is loaded into memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Segment {
    /// Where the segment starts in the file.
    offset: u64,
    bytes: u64,
    /// Where the segment starts in memory, by the file.
    address: u64,
}

/// A function, with its addresses by the file.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Function {
    start: u64,
    /// The address after its last byte.
    end: u64,
    /// The offset of its name in the table of names.
    name: u32,
}

/// An entry of the table of sections.
struct Section {
    kind: u32,
    is_code: bool,
    address: u64,
    offset: u64,
    bytes: u64,
    /// For a table of symbols, the position of the section with their names.
    strings: u32,
}

/// A table of the file. Parts that could not be read are zeros.
struct Table {
    bytes: Vec<u8>,
    is_complete: bool,
}

impl Functions {
    /// Reads the functions of a file. A file that is no program has none.
    pub(super) fn read(file: &mut ReadFile<'_>) -> Functions {
        read_functions(file).unwrap_or_default()
    }

    /// The function at `offset` bytes from the start of the file. `None` if no symbol covers the offset.
    pub(super) fn name_at(&self, offset: u64) -> Option<&str> {
        let has_offset = |segment: &&Segment| {
            offset.checked_sub(segment.offset).is_some_and(|distance| distance < segment.bytes)
        };
        let segment = self.segments.iter().find(has_offset)?;
        let address = segment.address.wrapping_add(offset - segment.offset);
        let after = self.functions.partition_point(|function| function.start <= address);
        let before = self.functions[..after].iter().rev().take(OVERLAPS_MAX);
        let function = before.into_iter().find(|function| address < function.end)?;
        std::str::from_utf8(text(&self.names, function.name)).ok()
    }
}

/// Reads the functions of a file. `None` if the file is no program.
fn read_functions(file: &mut ReadFile<'_>) -> Option<Functions> {
    let header = complete_table(file, 0, FILE_HEADER_BYTES as u64)?;
    if !header.starts_with(MAGIC) {
        return None;
    }
    let segment_count =
        u16_at(&header, 56).filter(|segment_count| *segment_count <= SEGMENTS_MAX)?;
    let header_bytes = u64::from(segment_count) * SEGMENT_BYTES as u64;
    let segment_headers = complete_table(file, u64_at(&header, 32)?, header_bytes)?;
    let loaded_with_flags = segments(&segment_headers, SEGMENT_LOADED);
    let executed_segments =
        loaded_with_flags.iter().filter(|(flags, _)| flags & EXECUTABLE_SEGMENT != 0);
    let mut functions = Functions {
        segments: executed_segments.map(|(_, segment)| *segment).collect(),
        ..Functions::default()
    };
    let sections = sections(file, &header).unwrap_or_default();
    let by_sections = [SECTION_SYMBOLS, SECTION_DYNAMIC_SYMBOLS].into_iter().find_map(|kind| {
        functions_from_sections(file, &sections, kind)
            .filter(|(functions, _)| !functions.is_empty())
    });
    let symbols = by_sections.or_else(|| {
        let loaded_segments: Vec<Segment> =
            loaded_with_flags.iter().map(|(_, segment)| *segment).collect();
        let (_, dynamic) = *segments(&segment_headers, SEGMENT_DYNAMIC).first()?;
        functions_from_dynamic(file, &loaded_segments, dynamic)
    });
    (functions.functions, functions.names) = symbols.unwrap_or_default();
    let Functions { functions: list, names, .. } = &mut functions;
    // If a function has several names, `name_at` finds the last one in this order.
    list.sort_by_cached_key(|function| {
        let name = text(names, function.name);
        let underscores = name.iter().take_while(|byte| **byte == b'_').count();
        (function.start, Reverse((underscores, name.len())), Reverse(name.to_vec()))
    });
    Some(functions)
}

/// The segments of a type, with their flags.
fn segments(headers: &[u8], kind: u32) -> Vec<(u32, Segment)> {
    let entries = headers.chunks_exact(SEGMENT_BYTES);
    let segment = |entry: &[u8]| {
        let segment = Segment {
            offset: u64_at(entry, 8)?,
            address: u64_at(entry, 16)?,
            bytes: u64_at(entry, 32)?,
        };
        (u32_at(entry, 0)? == kind).then_some((u32_at(entry, 4)?, segment))
    };
    entries.filter_map(segment).collect()
}

/// The table of sections. `None` if it cannot be read.
fn sections(file: &mut ReadFile<'_>, header: &[u8]) -> Option<Vec<Section>> {
    let count = u16_at(header, 60).filter(|count| *count <= SECTIONS_MAX)?;
    let bytes = u64::from(count) * SECTION_BYTES as u64;
    let headers = complete_table(file, u64_at(header, 40)?, bytes)?;
    let section = |entry: &[u8]| {
        Some(Section {
            kind: u32_at(entry, 4)?,
            is_code: u64_at(entry, 8)? & EXECUTABLE_SECTION != 0,
            address: u64_at(entry, 16)?,
            offset: u64_at(entry, 24)?,
            bytes: u64_at(entry, 32)?,
            strings: u32_at(entry, 40)?,
        })
    };
    headers.chunks_exact(SECTION_BYTES).map(section).collect()
}

/// The functions in the table of symbols of the type `kind`, and the table of their names. `None` if the file has no
/// such table, or it cannot be read.
fn functions_from_sections(
    file: &mut ReadFile<'_>,
    sections: &[Section],
    kind: u32,
) -> Option<(Vec<Function>, Vec<u8>)> {
    let symbol_section = sections.iter().find(|section| section.kind == kind)?;
    let strings = sections.get(symbol_section.strings as usize)?;
    let symbols = table(file, symbol_section.offset, symbol_section.bytes)?;
    let names = complete_table(file, strings.offset, strings.bytes)?;
    let section_of = |entry: &[u8]| {
        let section = sections.get(usize::from(u16_at(entry, 6)?));
        section.filter(|section| section.is_code)
    };
    let entries = || symbols.bytes.chunks_exact(SYMBOL_BYTES);
    let is_code = |entry: &&[u8]| CODE_TYPES.contains(&(entry[4] & 0xf));
    // A label without a size ends where the next symbol starts, or at the end of its section. This needs all symbols.
    let has_all_symbols = kind == SECTION_SYMBOLS && symbols.is_complete;
    let mut starts: Vec<u64> = if has_all_symbols {
        entries().filter(is_code).filter_map(|entry| u64_at(entry, 8)).collect()
    } else {
        Vec::new()
    };
    starts.sort_unstable();
    let function = |entry: &[u8]| {
        let (start, bytes) = (u64_at(entry, 8)?, u64_at(entry, 16)?);
        let section = section_of(entry)?;
        let section_end = section.address.checked_add(section.bytes)?;
        if !(section.address..section_end).contains(&start) {
            return None;
        }
        let end = match bytes {
            0 if has_all_symbols => {
                let next_start =
                    starts.get(starts.partition_point(|other_start| *other_start <= start));
                next_start.map_or(section_end, |next_start| section_end.min(*next_start))
            }
            0 => return None,
            _ => section_end.min(start.checked_add(bytes)?),
        };
        let name = u32_at(entry, 0)?;
        (!text(&names, name).is_empty()).then_some(Function { start, end, name })
    };
    let functions = entries().filter(is_code).filter_map(function).collect();
    Some((functions, names))
}

/// The functions of a file without a table of sections, from the dynamic linker's table of symbols, and the table of
/// their names. `loaded`: the segments that are loaded; `dynamic`: the segment with the dynamic section. `None` if the file
/// has no such table, or it cannot be read.
fn functions_from_dynamic(
    file: &mut ReadFile<'_>,
    loaded: &[Segment],
    dynamic: Segment,
) -> Option<(Vec<Function>, Vec<u8>)> {
    let dynamic = complete_table(file, dynamic.offset, dynamic.bytes)?;
    let value = |tag: u64| {
        let mut entries = dynamic.chunks_exact(DYNAMIC_BYTES);
        entries.find(|entry| u64_at(entry, 0) == Some(tag)).and_then(|entry| u64_at(entry, 8))
    };
    let file_offset = |address: u64| {
        loaded.iter().find_map(|segment| {
            let distance = address.checked_sub(segment.address)?;
            (distance < segment.bytes).then(|| segment.offset.wrapping_add(distance))
        })
    };
    let symbols_offset = file_offset(value(DYNAMIC_SYMBOLS)?)?;
    let names_offset = file_offset(value(DYNAMIC_STRINGS)?)?;
    let hash_offset = value(DYNAMIC_HASH).and_then(file_offset);
    let gnu_hash_offset = value(DYNAMIC_GNU_HASH).and_then(file_offset);
    let count = match (hash_offset, gnu_hash_offset) {
        (Some(hash_offset), _) => u32_at(&complete_table(file, hash_offset, 8)?, 4)?,
        (None, Some(gnu_hash_offset)) => gnu_hash_count(file, gnu_hash_offset)?,
        (None, None) => return None,
    };
    let symbols = table(file, symbols_offset, u64::from(count) * SYMBOL_BYTES as u64)?.bytes;
    let names = complete_table(file, names_offset, value(DYNAMIC_STRINGS_BYTES)?)?;
    let function = |entry: &[u8]| {
        let (name, kind, section) = (u32_at(entry, 0)?, entry[4] & 0xf, u16_at(entry, 6)?);
        let (start, bytes) = (u64_at(entry, 8)?, u64_at(entry, 16)?);
        let is_function = kind != 0 && CODE_TYPES.contains(&kind) && section != 0 && bytes > 0;
        let is_named = is_function && !text(&names, name).is_empty();
        is_named.then_some(Function { start, end: start.checked_add(bytes)?, name })
    };
    let functions = symbols.chunks_exact(SYMBOL_BYTES).filter_map(function).collect();
    Some((functions, names))
}

/// The number of symbols, from the GNU hash table at offset `hash`: the number of the last symbol in any of its lists,
/// plus 1. `None` if the table cannot be read or is damaged.
fn gnu_hash_count(file: &mut ReadFile<'_>, hash: u64) -> Option<u32> {
    let header = complete_table(file, hash, 16)?;
    let (bucket_count, first_symbol, filter_words) =
        (u32_at(&header, 0)?, u32_at(&header, 4)?, u32_at(&header, 8)?);
    let buckets_offset = hash.checked_add(16)?.checked_add(u64::from(filter_words) * 8)?;
    let bucket_bytes = u64::from(bucket_count) * 4;
    let list_starts = complete_table(file, buckets_offset, bucket_bytes)?;
    let last_symbol = list_starts.chunks_exact(4).filter_map(|list| u32_at(list, 0)).max()?;
    let mut symbol = last_symbol;
    if symbol < first_symbol {
        return Some(first_symbol);
    }
    let chains_offset = buckets_offset.checked_add(bucket_bytes)?;
    while u64::from(symbol) * (SYMBOL_BYTES as u64) < TABLE_BYTES_MAX {
        let offset = chains_offset.checked_add(u64::from(symbol - first_symbol) * 4)?;
        let chain = complete_table(file, offset, 4)?;
        symbol += 1;
        // The last symbol of a list has this bit.
        if u32_at(&chain, 0)? & 1 != 0 {
            return Some(symbol);
        }
    }
    None
}

/// Reads a table of the file. `None` if it is longer than [`TABLE_BYTES_MAX`].
fn table(file: &mut ReadFile<'_>, offset: u64, bytes: u64) -> Option<Table> {
    if bytes > TABLE_BYTES_MAX {
        return None;
    }
    let mut table = Table { bytes: vec![0; usize::try_from(bytes).ok()?], is_complete: false };
    table.is_complete = file(offset, &mut table.bytes);
    Some(table)
}

/// Reads a table of the file. `None` if the table is too long, or if not all of its bytes can be read.
fn complete_table(file: &mut ReadFile<'_>, offset: u64, bytes: u64) -> Option<Vec<u8>> {
    table(file, offset, bytes).filter(|table| table.is_complete).map(|table| table.bytes)
}

/// The text at an offset in a table of names, up to its zero byte. Empty if there is no zero byte.
fn text(names: &[u8], offset: u32) -> &[u8] {
    let bytes = names.get(offset as usize..).unwrap_or_default();
    let end = bytes.iter().take(NAME_BYTES_MAX).position(|byte| *byte == 0);
    &bytes[..end.unwrap_or(0)]
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
mod tests {
    use super::*;

    const SEGMENT_OFFSET: u64 = 0x1000;
    const SEGMENT_ADDRESS: u64 = 0x40_1000;
    const NAMES: &[u8] = b"\0main\0label\0helper\0data\0absent\0free\0cfree\0__free\0";

    /// Entries of a table of symbols: name, type, section, address, size.
    type Symbol = (u32, u8, u16, u64, u64);

    fn symbols(list: &[Symbol]) -> Vec<u8> {
        let entry = |&(name, kind, section, address, bytes): &Symbol| {
            let mut entry = name.to_le_bytes().to_vec();
            entry.extend([kind, 0]);
            entry.extend(section.to_le_bytes());
            entry.extend([address, bytes].map(u64::to_le_bytes).concat());
            entry
        };
        list.iter().flat_map(entry).collect()
    }

    fn numbers(list: &[u64]) -> Vec<u8> {
        list.iter().flat_map(|number| number.to_le_bytes()).collect()
    }

    /// A program with 0x200 bytes of code in section 1, and data in section 2. Its table of symbols, if it has one, is
    /// `.symtab` or `.dynsym`.
    fn program(kind: u32, list: &[Symbol]) -> Vec<u8> {
        let mut file = vec![0; 64];
        file[..MAGIC.len()].copy_from_slice(MAGIC);
        let mut segment = [1_u32, 5].map(u32::to_le_bytes).concat();
        segment.extend(numbers(&[SEGMENT_OFFSET, SEGMENT_ADDRESS, 0, 0x200, 0x200, 0x1000]));
        file.extend(segment);
        file.resize(SEGMENT_OFFSET as usize + 0x200, 0x90);
        let at_names = file.len() as u64;
        file.extend(NAMES);
        file.resize(file.len().next_multiple_of(8), 0);
        let at_symbols = file.len() as u64;
        let table = symbols(list);
        file.extend(&table);
        let at_sections = file.len() as u64;
        let section = |kind: u32, flags: u64, address: u64, offset: u64, bytes: u64, link: u32| {
            let mut section = [0, kind].map(u32::to_le_bytes).concat();
            section.extend(numbers(&[flags, address, offset, bytes]));
            section.extend(link.to_le_bytes());
            section.resize(SECTION_BYTES, 0);
            section
        };
        file.extend(section(0, 0, 0, 0, 0, 0));
        file.extend(section(1, 6, SEGMENT_ADDRESS, SEGMENT_OFFSET, 0x180, 0));
        file.extend(section(1, 3, 0x40_2000, 0x1000, 0x100, 0));
        file.extend(section(kind, 0, 0, at_symbols, table.len() as u64, 4));
        file.extend(section(3, 0, 0, at_names, NAMES.len() as u64, 0));
        file[32..40].copy_from_slice(&64_u64.to_le_bytes());
        file[40..48].copy_from_slice(&at_sections.to_le_bytes());
        file[56..58].copy_from_slice(&1_u16.to_le_bytes());
        file[60..62].copy_from_slice(&5_u16.to_le_bytes());
        file
    }

    const MAIN: Symbol = (1, FUNCTION, 1, SEGMENT_ADDRESS + 0x20, 0x40);
    const LABEL: Symbol = (6, 0, 1, SEGMENT_ADDRESS + 0x80, 0);
    const HELPER: Symbol = (12, FUNCTION, 1, SEGMENT_ADDRESS + 0x100, 0x10);
    const DATA: Symbol = (19, 1, 2, 0x40_2000, 0x100);
    const ABSENT: Symbol = (24, FUNCTION, 0, 0, 0);

    fn functions_of(file: &[u8]) -> Functions {
        Functions::read(&mut |offset, to| {
            let start = usize::try_from(offset).unwrap_or(usize::MAX).min(file.len());
            let there = &file[start..file.len().min(start.saturating_add(to.len()))];
            to[..there.len()].copy_from_slice(there);
            there.len() == to.len()
        })
    }

    fn name_in_segment(functions: &Functions, distance: u64) -> Option<&str> {
        functions.name_at(SEGMENT_OFFSET + distance)
    }

    #[test]
    fn an_address_has_the_name_of_the_symbol_that_covers_it() {
        let all = [MAIN, LABEL, HELPER, DATA, ABSENT];
        let functions = functions_of(&program(SECTION_SYMBOLS, &all));
        assert_eq!(name_in_segment(&functions, 0x1f), None, "before the first");
        assert_eq!(name_in_segment(&functions, 0x20), Some("main"));
        assert_eq!(name_in_segment(&functions, 0x5f), Some("main"));
        assert_eq!(name_in_segment(&functions, 0x60), None, "between two");
        assert_eq!(
            name_in_segment(&functions, 0xff),
            Some("label"),
            "a label without a size ends at the next"
        );
        assert_eq!(name_in_segment(&functions, 0x10f), Some("helper"));
        assert_eq!(name_in_segment(&functions, 0x110), None, "after the last");
        assert_eq!(functions.name_at(0), None, "not loaded");
        assert_eq!(name_in_segment(&functions, 0x200), None, "beyond the segment");
        let last = functions_of(&program(SECTION_SYMBOLS, &[MAIN, LABEL]));
        assert_eq!(
            (name_in_segment(&last, 0x17f), name_in_segment(&last, 0x180)),
            (Some("label"), None),
            "the section's end"
        );
    }

    #[test]
    fn of_several_names_the_plain_one_is_taken() {
        let named = |name| (name, FUNCTION, 1, SEGMENT_ADDRESS + 0x20, 0x40);
        for names in [[31, 36, 42], [42, 31, 36], [36, 42, 31]] {
            let functions = functions_of(&program(SECTION_SYMBOLS, &names.map(named)));
            assert_eq!(name_in_segment(&functions, 0x20), Some("free"));
        }
    }

    #[test]
    fn in_the_loaders_table_labels_have_no_end() {
        let functions = functions_of(&program(SECTION_DYNAMIC_SYMBOLS, &[MAIN, LABEL, HELPER]));
        assert_eq!(name_in_segment(&functions, 0x20), Some("main"));
        assert_eq!(name_in_segment(&functions, 0x80), None);
    }

    #[test]
    fn a_stripped_program_has_no_functions() {
        assert_eq!(name_in_segment(&functions_of(&program(8, &[MAIN])), 0x20), None);
        assert_eq!(functions_of(b"#!/bin/sh\n"), Functions::default());
    }

    #[test]
    fn a_table_that_is_not_all_there_names_only_what_has_a_size() {
        let file = program(SECTION_SYMBOLS, &[MAIN, LABEL, HELPER]);
        let functions = Functions::read(&mut |offset, to| {
            let start = offset as usize;
            to.copy_from_slice(&file[start..start + to.len()]);
            // The last symbol.
            let is_table = to.len() == 3 * SYMBOL_BYTES;
            if is_table {
                to[2 * SYMBOL_BYTES..].fill(0);
            }
            !is_table
        });
        assert_eq!(
            (name_in_segment(&functions, 0x20), name_in_segment(&functions, 0x80)),
            (Some("main"), None)
        );
    }

    #[test]
    fn a_file_without_sections_has_the_loaders_functions() {
        let append = |bytes: &[u8], file: &mut Vec<u8>| {
            let offset = file.len() as u64;
            file.extend(bytes);
            file.resize(file.len().next_multiple_of(8), 0);
            offset
        };
        // Segments map the file at its own offsets.
        let main = (1, FUNCTION, 1, 0x20, 0x40);
        let mut file = vec![0; 64 + 2 * SEGMENT_BYTES];
        let at_symbols = append(&symbols(&[(0, 0, 0, 0, 0), ABSENT, main]), &mut file);
        let at_names = append(NAMES, &mut file);
        // One bucket, whose list starts at symbol 2 and ends there.
        let hash = [1_u32, 2, 1, 0, 0, 0, 2, 1].map(u32::to_le_bytes).concat();
        let at_hash = append(&hash, &mut file);
        let dynamic = numbers(&[
            DYNAMIC_SYMBOLS,
            at_symbols,
            DYNAMIC_STRINGS,
            at_names,
            DYNAMIC_STRINGS_BYTES,
            NAMES.len() as u64,
            DYNAMIC_GNU_HASH,
            at_hash,
        ]);
        let at_dynamic = append(&dynamic, &mut file);
        let end = file.len() as u64;
        file[..MAGIC.len()].copy_from_slice(MAGIC);
        file[32..40].copy_from_slice(&64_u64.to_le_bytes());
        file[56..58].copy_from_slice(&2_u16.to_le_bytes());
        for (index, (kind, flags, offset, bytes)) in
            [(1_u32, 5_u32, 0, end), (2, 6, at_dynamic, dynamic.len() as u64)]
                .into_iter()
                .enumerate()
        {
            let mut segment = [kind, flags].map(u32::to_le_bytes).concat();
            segment.extend(numbers(&[offset, offset, 0, bytes, bytes, 8]));
            let start = 64 + index * SEGMENT_BYTES;
            file[start..start + SEGMENT_BYTES].copy_from_slice(&segment);
        }
        let functions = functions_of(&file);
        assert_eq!((functions.name_at(0x5f), functions.name_at(0x60)), (Some("main"), None));
    }

    proptest::proptest! {
        #[test]
        fn damaged_files_never_panic(
            changes in proptest::collection::vec((proptest::prelude::any::<usize>(), 0_u8..), 0..30),
            place: u64,
        ) {
            let mut file = program(SECTION_SYMBOLS, &[MAIN, LABEL, HELPER, DATA]);
            for (position, byte) in changes {
                // The code in the middle is not read.
                let (headers, tables) = (64 + SEGMENT_BYTES, SEGMENT_OFFSET as usize + 0x200);
                let position = position % (headers + file.len() - tables);
                let offset = if position < headers { position } else { position - headers + tables };
                file[offset] = byte;
            }
            let functions = functions_of(&file);
            let _ = functions.name_at(place);
            let _ = functions.name_at(SEGMENT_OFFSET + place % 0x200);
            file.truncate(file.len() / 2);
            let _ = functions_of(&file);
        }
    }
}
