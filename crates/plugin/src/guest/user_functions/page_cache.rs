//! Reads the guest's files from the page cache of its kernel: finds the file that a page belongs to, and reads the part
//! of a file's content that is in memory.
//!
//! All reads go through the kernel's direct map of memory, which each process shares. Functions return `None` if
//! offsets of the kernel's structures are unknown, or memory cannot be read.

use machine::PhysicalAddress;

use crate::guest::memory::GuestMemory;
use crate::guest::structures::{DIRECT_MAP, Guest, PAGE_ARRAY, PAGE_SHIFT, word};

const PAGE_BYTES: u64 = 1 << PAGE_SHIFT;
/// Bits of `page.mapping` that are zero in a page of a file.
const MAPPING_BITS: u64 = 3;
/// The low bits of an entry in a tree of pages (include/linux/xarray.h), which tell its kind. In the address of a page
/// they are 0.
const ENTRY_BITS: u64 = 3;
/// The low bits of an internal entry: a node, or a number below 64 that refers to another entry of the same node.
const ENTRY_INTERNAL: u64 = 2;
/// Internal entries from this value on are nodes.
const NODES_FIRST: u64 = 4_096;
const NODE_INDEX: u64 = 63;
/// The most levels of a tree of pages that are followed.
const LEVELS_MAX: usize = 12;
/// The longest component of a path (`NAME_MAX` of Linux).
const COMPONENT_BYTES_MAX: usize = 255;
/// The most bytes that are read from the guest at once.
const READ_BYTES: usize = 64;

/// A page of a file, in memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct FilePage {
    /// The address of the file's `address_space`.
    pub(super) pages: u64,
    pub(super) file: FileVersion,
    /// Where the page starts in the file, bytes.
    pub(super) offset: u64,
}

/// A point in time of the guest's clock.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct FileTime {
    seconds: u64,
    /// Nanoseconds of the second.
    nanoseconds: u64,
}

/// A file with a certain content. A file that is written or replaced becomes another version.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct FileVersion {
    /// The address of the kernel's description of the file.
    pub(super) inode: u64,
    /// The file's number in its file system.
    number: u64,
    generation: u32,
    /// The size of the file.
    pub(super) bytes: u64,
    /// When the file was written last.
    written: FileTime,
}

/// The component of a path whose text is at `address`. `None` if it is empty or cannot be read.
fn component_at(memory: &mut impl GuestMemory, address: u64) -> Option<String> {
    let text = memory.text_at::<COMPONENT_BYTES_MAX>(address)?;
    let text = text.split(|byte| *byte == 0).next().unwrap_or_default();
    Some(String::from_utf8_lossy(text).into_owned()).filter(|text| !text.is_empty())
}

impl Guest<'_> {
    fn word(&mut self, address: u64) -> Option<u64> {
        word(self.qemu, address)
    }

    fn half_word(&mut self, address: u64) -> Option<u32> {
        self.qemu.memory(address).map(u32::from_le_bytes)
    }

    /// The page of a file at a physical address. `None` for other memory.
    pub(super) fn file_page(&mut self, physical: PhysicalAddress) -> Option<FilePage> {
        let description_bytes = self.offsets.page_bytes.filter(|bytes| *bytes > 0)?;
        let page = physical.page().wrapping_mul(description_bytes);
        let page = PAGE_ARRAY.start.wrapping_add(page);
        let first = self.first_of_compound_page(page)?;
        let pages = self.word(first.wrapping_add(self.offsets.mapping?))?;
        if pages == 0 || pages & MAPPING_BITS != 0 {
            return None;
        }
        let index = self.word(first.wrapping_add(self.offsets.page_index?))?;
        let index = index.checked_add(page.checked_sub(first)? / description_bytes)?;
        let file = self.file_version(pages)?;
        let offset = index.checked_mul(PAGE_BYTES).filter(|offset| *offset < file.bytes)?;
        Some(FilePage { pages, file, offset })
    }

    /// The file whose `address_space` is at `pages`. `None` if the kernel's offsets are not known, or the inode cannot
    /// be read.
    fn file_version(&mut self, pages: u64) -> Option<FileVersion> {
        let offsets = self.offsets;
        let inode = self.word(pages.wrapping_add(offsets.mapping_host?))?;
        let address = |offset: u64| inode.wrapping_add(offset);
        let written = match offsets.inode_written.or(offsets.inode_written_renamed) {
            Some(offset) => FileTime {
                seconds: self.word(address(offset))?,
                nanoseconds: self.word(address(offset + 8))?,
            },
            None => FileTime {
                seconds: self.word(address(offsets.inode_written_seconds?))?,
                nanoseconds: self.half_word(address(offsets.inode_written_nanoseconds?))?.into(),
            },
        };
        Some(FileVersion {
            inode,
            number: self.word(address(offsets.inode_number?))?,
            generation: self.half_word(address(offsets.inode_generation?))?,
            bytes: self.word(address(offsets.inode_bytes?))?,
            written,
        })
    }

    /// The last component of a file's path. If the file has several names, one of them. `None` for a file without a
    /// name, or if it cannot be read.
    pub(super) fn file_name(&mut self, file: &FileVersion) -> Option<String> {
        let offsets = self.offsets;
        let link = self.word(file.inode.wrapping_add(offsets.inode_names?))?;
        if link == 0 {
            return None;
        }
        let name = link.wrapping_sub(offsets.name_link?);
        let text = self.word(name.wrapping_add(offsets.name_text?))?;
        component_at(self.qemu, text)
    }

    /// Reads the part of a file from `offset` on into `buffer`. `page`: any page of the file. Returns whether the whole
    /// part is in memory. Missing bytes of `buffer` keep their value.
    pub(super) fn read_file(&mut self, page: &FilePage, offset: u64, buffer: &mut [u8]) -> bool {
        let mut is_complete = true;
        let mut done_bytes = 0;
        while done_bytes < buffer.len() {
            let Some(file_offset) = offset.checked_add(done_bytes as u64) else { return false };
            let in_page = file_offset % PAGE_BYTES;
            let length = (buffer.len() - done_bytes).min((PAGE_BYTES - in_page) as usize);
            let part = &mut buffer[done_bytes..done_bytes + length];
            match self.content_of_page(page.pages, file_offset / PAGE_BYTES) {
                Some(content) => {
                    for (piece_offset, piece) in
                        (0..).step_by(READ_BYTES).zip(part.chunks_mut(READ_BYTES))
                    {
                        is_complete &=
                            self.qemu.read(content.wrapping_add(in_page + piece_offset), piece);
                    }
                }
                None => is_complete = false,
            }
            done_bytes += length;
        }
        is_complete
    }

    /// The address in the direct map of page number `index` of a file. `None` if the page or its content is not in
    /// memory.
    fn content_of_page(&mut self, pages: u64, index: u64) -> Option<u64> {
        let offsets = self.offsets;
        let mut entry = self.word(pages.wrapping_add(offsets.page_tree?))?;
        for level in 0..LEVELS_MAX {
            let is_node = entry & ENTRY_BITS == ENTRY_INTERNAL && entry >= NODES_FIRST;
            // A tree without nodes has the first page only.
            if !is_node && level == 0 && index > 0 {
                return None;
            }
            if !is_node {
                break;
            }
            let node = entry - ENTRY_INTERNAL;
            let [shift] = self.qemu.memory::<1>(node.wrapping_add(offsets.node_shift?))?;
            let position = index.checked_shr(shift.into())?;
            if level == 0 && position > NODE_INDEX {
                return None;
            }
            let entries = node.wrapping_add(offsets.node_entries?);
            entry = self.word(entries.wrapping_add((position & NODE_INDEX) * 8))?;
            if entry & ENTRY_BITS == ENTRY_INTERNAL && entry >> 2 <= NODE_INDEX {
                entry = self.word(entries.wrapping_add((entry >> 2) * 8))?;
            }
        }
        // The entry is now a page, or empty, or a mark for a page that is not in memory.
        if entry == 0 || entry & ENTRY_BITS != 0 {
            return None;
        }
        let description_bytes = offsets.page_bytes.filter(|bytes| *bytes > 0)?;
        let flags = self.word(entry.wrapping_add(offsets.page_flags?))?;
        let bit = offsets.page_uptodate_bit.filter(|bit| *bit < 64)?;
        let first_index = self.word(entry.wrapping_add(offsets.page_index?))?;
        let owner = self.word(entry.wrapping_add(offsets.mapping?))?;
        if flags >> bit & 1 == 0 || owner != pages {
            return None;
        }
        let number = entry.checked_sub(PAGE_ARRAY.start)? / description_bytes;
        let number = number.checked_add(index.checked_sub(first_index)?)?;
        Some(DIRECT_MAP.start.wrapping_add(number << PAGE_SHIFT))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::guest::memory::tests::TestMemory;

    #[test]
    fn names_of_files_are_read_to_their_end() {
        let mut memory = TestMemory::default();
        let names = ["one", "two"].map(|end| "a".repeat(40) + end);
        for (name, address) in names.iter().zip([0x1000, 0x2000]) {
            memory.write(address, name.as_bytes());
            memory.write(address + name.len() as u64, &[0]);
        }
        let read = [0x1000, 0x2000].map(|address| component_at(&mut memory, address).unwrap());
        assert_eq!(read, names);
        memory.write(0x3000, &[b'b'; COMPONENT_BYTES_MAX]);
        assert_eq!(component_at(&mut memory, 0x3000).unwrap().len(), COMPONENT_BYTES_MAX);
        assert_eq!(component_at(&mut memory, 0x4000), None);
    }
}
