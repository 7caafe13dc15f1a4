//! Names the functions of user programs, by the symbols of their files. Cache misses of user code are counted by these
//! functions, whose numbers and names the record holds.
//!
//! A virtual address does not identify a function, because each process has its own program there. Processes can also
//! share code at different addresses; QEMU translates it once, with the address in the first process. But a physical
//! address identifies a page of a file. The file's symbols are read from the guest's memory when a page of the file is
//! first seen. Code that no symbol covers has the file's name, and code outside of files has no name.

mod elf;
mod page_cache;

use std::collections::BTreeMap;

use elf::Functions;
use machine::PhysicalAddress;
use page_cache::{FilePage, FileVersion};
use rustc_hash::FxHashMap;
use simrecord::record::{Record, UNKNOWN_FUNCTION, UserFunction};

use crate::guest::structures::Guest;

/// The most files, and the most functions, that are remembered.
const FILES_MAX: usize = 1 << 12;
const FUNCTIONS_MAX: usize = 1 << 16;
const HANDLER_ENTRY: &str = "[handler entry]";

/// The known programs, and the named functions with their numbers in the record.
#[derive(Debug, Default)]
pub(crate) struct UserFunctions {
    /// The position in `programs` of each file.
    files: BTreeMap<FileVersion, usize>,
    programs: Vec<Program>,
    /// Numbers in the record by name: `FUNCTION [FILE]` or `[FILE]`.
    numbers: BTreeMap<String, u64>,
}

/// The file of a program or of a shared library.
#[derive(Debug)]
struct Program {
    name: String,
    functions: Functions,
}

/// A page of code of a program.
#[derive(Clone, Copy, Debug)]
struct CodePage {
    /// The program's position in [`UserFunctions::programs`].
    program: usize,
    /// Where the page starts in the program's file.
    offset: u64,
}

/// A cache of pages of code by their physical page numbers; `None` for a page of no file. Valid until a process enters
/// the kernel, which may change the content of a page.
#[derive(Debug, Default)]
pub(crate) struct CodePages(FxHashMap<u64, Option<CodePage>>);

impl UserFunctions {
    /// The number of the function at an offset in a program's file. Code outside of functions has the program's number.
    fn number(&mut self, program: usize, offset: u64) -> u64 {
        let Some(program) = self.programs.get(program) else { return UNKNOWN_FUNCTION };
        let name = match program.functions.name_at(offset) {
            Some(function) => format!("{function} [{}]", program.name),
            None => format!("[{}]", program.name),
        };
        self.number_of_name(name)
    }

    /// The number for the accesses that a processor itself makes at the entry of a handler.
    pub(crate) fn handler_entry(&mut self) -> u64 {
        self.number_of_name(HANDLER_ENTRY.to_owned())
    }

    /// The number of a name, or [`UNKNOWN_FUNCTION`] if there are too many names.
    fn number_of_name(&mut self, name: String) -> u64 {
        if self.numbers.len() >= FUNCTIONS_MAX && !self.numbers.contains_key(&name) {
            return UNKNOWN_FUNCTION;
        }
        let next = self.numbers.len() as u64 + UNKNOWN_FUNCTION + 1;
        *self.numbers.entry(name).or_insert(next)
    }

    /// The records of the names of all functions that have a number.
    pub(crate) fn names(&self) -> impl Iterator<Item = Record> + '_ {
        let numbers = self.numbers.iter();
        let parts = numbers.flat_map(|(name, number)| UserFunction::of_name(*number, name));
        parts.map(Record::UserFunction)
    }
}

impl Guest<'_> {
    /// The number of the function at a physical address. [`UNKNOWN_FUNCTION`] if the memory belongs to no file, or
    /// cannot be read.
    pub(crate) fn user_function(
        &mut self,
        physical: PhysicalAddress,
        known_pages: &mut CodePages,
    ) -> u64 {
        let number = physical.page();
        let page = match known_pages.0.get(&number) {
            Some(page) => *page,
            None => {
                let page = self.code_page(physical);
                known_pages.0.insert(number, page);
                page
            }
        };
        let Some(CodePage { program, offset }) = page else { return UNKNOWN_FUNCTION };
        self.structures.user_functions.number(program, offset + physical.offset_in_page())
    }

    /// Finds the program at a physical address, and reads it if its file is new. `None` if the memory belongs to no
    /// file that can be read, or if [`FILES_MAX`] files are known.
    fn code_page(&mut self, physical: PhysicalAddress) -> Option<CodePage> {
        let page = self.file_page(physical)?;
        let offset = page.offset;
        if let Some(program) = self.structures.user_functions.files.get(&page.file) {
            return Some(CodePage { program: *program, offset });
        }
        if self.structures.user_functions.files.len() >= FILES_MAX {
            return None;
        }
        let program = self.read_program(&page)?;
        let user_functions = &mut self.structures.user_functions;
        user_functions.programs.push(program);
        user_functions.files.insert(page.file, user_functions.programs.len() - 1);
        Some(CodePage { program: user_functions.programs.len() - 1, offset })
    }

    /// Reads the name and the symbols of a file from the guest's memory. `page`: a page of the file. `None` if the name
    /// cannot be read. Nothing is read beyond the end of the file.
    fn read_program(&mut self, page: &FilePage) -> Option<Program> {
        let name = self.file_name(&page.file)?;
        let bytes = page.file.bytes;
        let functions = Functions::read(&mut |offset, buffer| {
            let is_in_file =
                offset.checked_add(buffer.len() as u64).is_some_and(|end| end <= bytes);
            is_in_file && self.read_file(page, offset, buffer)
        });
        Some(Program { name, functions })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_function_keeps_its_number_and_no_other_has_it() {
        let program =
            |name: &str| Program { name: name.to_owned(), functions: Functions::default() };
        let mut known = UserFunctions {
            programs: vec![program("first"), program("second")],
            ..UserFunctions::default()
        };
        let (first, second) = (known.number(0, 0x1000), known.number(1, 0x1000));
        assert!(first != second && first != UNKNOWN_FUNCTION && second != UNKNOWN_FUNCTION);
        assert_eq!(known.number(0, 0x5000), first, "both are [first]");
        assert_eq!(known.number(2, 0), UNKNOWN_FUNCTION);
        assert_eq!(known.names().count(), 2);
    }
}
