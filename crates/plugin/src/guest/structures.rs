//! Finds the structure at an address of the guest: an object of a slab cache, a task's stack, a page of a file, or a
//! per-CPU variable. It reads the kernel's own descriptions of its memory (`struct page` and others). Cache misses and
//! locks are named by it.
//!
//! All reads may fail: offsets may be unknown and memory unmapped. Then the structure is [`StructureKind::Unknown`].

use std::collections::BTreeMap;

use machine::PhysicalAddress;
use simrecord::record::{Record, StructureKind, StructureName, TEXT_BYTES_MAX};

use crate::guest::memory::GuestMemory;
use crate::guest::user_functions::UserFunctions;
use crate::qemu::Qemu;
use plugin_interface::symbols::Offsets;

/// The kernel's direct map of all memory. This and the following ranges are the kernel's addresses with four levels of
/// page tables, without randomisation (Documentation/arch/x86/x86_64/mm.rst).
pub(crate) const DIRECT_MAP: std::ops::Range<u64> = 0xffff_8880_0000_0000..0xffff_c880_0000_0000;
const VMALLOC: std::ops::Range<u64> = 0xffff_c900_0000_0000..0xffff_e900_0000_0000;
pub(crate) const PAGE_ARRAY: std::ops::Range<u64> = 0xffff_ea00_0000_0000..0xffff_eb00_0000_0000;
const ENTRY_AREA: std::ops::Range<u64> = 0xffff_fe00_0000_0000..0xffff_fe80_0000_0000;
const IMAGE: u64 = 0xffff_ffff_8000_0000;
pub(crate) const PAGE_SHIFT: u32 = 12;
/// Logarithm of a task stack's size and alignment in bytes (THREAD_SIZE).
const STACK_SHIFT: u32 = 14;
/// The most stacks that are remembered, and the most names.
const KNOWN_MAX: usize = 1 << 16;
/// The most bytes of a CPU's per-CPU area.
const AREA_BYTES_MAX: u64 = 1 << 20;
/// Bits of `page_type` that every page with a type has (include/linux/page-flags.h, up to 6.10). Such a page lacks only
/// the bit of its own type.
const PAGE_TYPE_BASE: u32 = 0xf000_0000;
/// The bit of `page_type` that a page table lacks.
const PAGE_TYPE_TABLE: u32 = 0x0000_0200;
/// Bit of `page.mapping`: memory without a file.
const MAPPING_ANONYMOUS: u64 = 1;
/// The bits of `page.mapping` that are no part of the address.
const MAPPING_BITS: u64 = 3;

/// A structure of the guest. All objects of a slab cache are the same structure.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) struct Structure {
    pub(crate) kind: StructureKind,
    /// The number that, with the kind, identifies the structure: see [`StructureKind`].
    pub(crate) place: u64,
}

/// The structure at an address, and the offset in it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Located {
    pub(crate) structure: Structure,
    /// Distance from the start of the object, bytes.
    pub(crate) offset: u32,
}

impl Located {
    fn new(kind: StructureKind, place: u64, offset: u64) -> Located {
        let offset = u32::try_from(offset).unwrap_or(u32::MAX);
        Located { structure: Structure { kind, place }, offset }
    }

    /// A location in a variable, which is identified by its address. Only `sim` can name it.
    fn variable(kind: StructureKind, address: u64) -> Located {
        Located::new(kind, address & !63, address & 63)
    }
}

/// The known structures of the guest.
#[derive(Debug, Default)]
pub(crate) struct Structures {
    /// Process ids by the stacks of the tasks: address `>>` [`STACK_SHIFT`].
    stacks: BTreeMap<u64, u32>,
    /// The name of each structure that has one, with [`StructureName::shared_by`].
    names: BTreeMap<Structure, ([u8; TEXT_BYTES_MAX], u32)>,
    /// The address of each CPU's per-CPU area. Empty until they are read.
    areas: Vec<u64>,
    /// The functions of user programs.
    pub(crate) user_functions: UserFunctions,
}

/// Reads 64 bits of the guest's memory. `None` if the page is not mapped.
pub(crate) fn word(qemu: &mut Qemu, address: u64) -> Option<u64> {
    qemu.memory(address).map(u64::from_le_bytes)
}

impl Structures {
    /// Remembers that the kernel stack of task `pid` starts at `base`.
    pub(crate) fn note_stack(&mut self, base: u64, pid: u32) {
        if self.stacks.len() < KNOWN_MAX || self.stacks.contains_key(&(base >> STACK_SHIFT)) {
            self.stacks.insert(base >> STACK_SHIFT, pid);
        }
    }

    /// Reads the addresses of the per-CPU areas from the kernel's array `__per_cpu_offset`, once.
    fn read_areas(&mut self, array: Option<u64>, cpus: usize, qemu: &mut Qemu) {
        if self.areas.is_empty()
            && let Some(array) = array
        {
            let area = |cpu: u64| word(qemu, array.wrapping_add(8 * cpu));
            self.areas = (0..cpus as u64).map_while(area).collect();
        }
    }

    /// The records of all known names.
    pub(crate) fn names(&self) -> impl Iterator<Item = Record> + '_ {
        self.names.iter().map(|(structure, (name, shared_by))| {
            let Structure { kind, place } = *structure;
            let (name, shared_by) = (*name, *shared_by);
            Record::StructureName(StructureName { kind, place, shared_by, name })
        })
    }
}

/// Access to the guest's memory, with everything that is known about its structures.
pub(crate) struct Guest<'a> {
    pub(crate) qemu: &'a mut Qemu,
    pub(crate) offsets: &'a Offsets,
    pub(crate) structures: &'a mut Structures,
    /// The address of the kernel's array `__per_cpu_offset`.
    pub(crate) area_array: Option<u64>,
    pub(crate) cpus: usize,
}

impl Guest<'_> {
    /// The structure at a virtual address. `physical`: its physical address, which user addresses need. `task`: the
    /// process id of the task that accesses it, or 0.
    pub(crate) fn locate(
        &mut self,
        address: u64,
        physical: Option<PhysicalAddress>,
        task: u32,
    ) -> Located {
        match address {
            _ if address >> 63 == 0 => match physical {
                Some(physical) => self.locate_in_page(physical, None, task),
                None => Located::new(StructureKind::Unknown, 0, 0),
            },
            IMAGE.. => Located::variable(StructureKind::Image, address),
            _ if DIRECT_MAP.contains(&address) => self.locate_in_direct_map(address),
            _ if PAGE_ARRAY.contains(&address) => {
                let bytes = self.offsets.page_bytes.filter(|bytes| *bytes > 0);
                let offset = bytes.map_or(0, |bytes| (address - PAGE_ARRAY.start) % bytes);
                Located::new(StructureKind::PageArray, 0, offset)
            }
            _ if ENTRY_AREA.contains(&address) => Located::new(StructureKind::EntryArea, 0, 0),
            _ if VMALLOC.contains(&address) => {
                let base = address >> STACK_SHIFT;
                match self.structures.stacks.get(&base) {
                    Some(pid) => {
                        let offset = address - (base << STACK_SHIFT);
                        Located::new(StructureKind::Stack, (*pid).into(), offset)
                    }
                    None => Located::new(StructureKind::Vmalloc, 0, 0),
                }
            }
            _ => Located::new(StructureKind::Unknown, 0, 0),
        }
    }

    /// The structure at an address in the direct map.
    fn locate_in_direct_map(&mut self, address: u64) -> Located {
        self.structures.read_areas(self.area_array, self.cpus, self.qemu);
        let areas = &self.structures.areas;
        let offsets = areas.iter().map(|area| address.wrapping_sub(*area));
        if let Some(offset) = offsets.filter(|offset| *offset < AREA_BYTES_MAX).min() {
            return Located::variable(StructureKind::PerCpu, offset);
        }
        self.locate_in_page(PhysicalAddress(address - DIRECT_MAP.start), Some(address), 0)
    }

    /// The structure at a physical address, by the kernel's description of its page. `address`: the address in the
    /// direct map, or `None` for user memory.
    fn locate_in_page(
        &mut self,
        physical: PhysicalAddress,
        address: Option<u64>,
        task: u32,
    ) -> Located {
        let located = self.read_page(physical, address, task);
        located.unwrap_or(Located::new(StructureKind::Unknown, 0, 0))
    }

    /// Reads the structure at a physical address from the kernel's description of its page. `None` if the description cannot
    /// be read. `address`: the address in the direct map, or `None` for user memory.
    fn read_page(
        &mut self,
        physical: PhysicalAddress,
        address: Option<u64>,
        task: u32,
    ) -> Option<Located> {
        let offsets = self.offsets;
        let bytes = offsets.page_bytes?;
        let first = PAGE_ARRAY.start + physical.page() * bytes;
        let page = self.first_of_compound_page(first)?;
        let flags = word(self.qemu, page.wrapping_add(offsets.page_flags?))?;
        let has = |bit: Option<u64>| bit.is_some_and(|bit| bit < 64 && flags >> bit & 1 == 1);
        if has(offsets.slab_bit) {
            let start = (page.checked_sub(PAGE_ARRAY.start)? / bytes) << PAGE_SHIFT;
            return self.locate_in_slab(page, physical.bytes_after(PhysicalAddress(start)));
        }
        let mapping = word(self.qemu, page.wrapping_add(offsets.mapping?))?;
        if mapping & MAPPING_ANONYMOUS != 0 {
            return Some(Located::new(StructureKind::Anonymous, task.into(), 0));
        }
        if mapping != 0 && mapping & MAPPING_BITS == 0 {
            return Some(self.locate_in_file(mapping).unwrap_or(Located::new(
                StructureKind::File,
                0,
                0,
            )));
        }
        if has(offsets.reserved_bit) {
            return Some(Located::new(StructureKind::Reserved, 0, 0));
        }
        let page_type = self.qemu.memory(page.wrapping_add(offsets.page_type?));
        let page_type = u32::from_le_bytes(page_type?);
        let is_table = page_type & (PAGE_TYPE_BASE | PAGE_TYPE_TABLE) == PAGE_TYPE_BASE;
        let kind = match address {
            _ if is_table => StructureKind::PageTable,
            Some(_) => StructureKind::KernelPage,
            // User memory that is neither anonymous nor of a file: it belongs to a device or a driver.
            None => StructureKind::OtherUser,
        };
        Some(Located::new(kind, 0, 0))
    }

    /// The address of the description of a compound page's first page. `page`: the description of any of its pages. A
    /// page outside of compound pages is its own first page. `None` if the kernel's offsets are not known, or the
    /// description cannot be read.
    pub(crate) fn first_of_compound_page(&mut self, page: u64) -> Option<u64> {
        let head = word(self.qemu, page.wrapping_add(self.offsets.compound_head?))?;
        Some(if head & 1 == 1 { head & !1 } else { page })
    }

    /// The object that lies `distance` bytes after the start of a slab. `page`: the description of the slab's first
    /// page. `None` if the kernel's offsets are not known, or a structure cannot be read.
    fn locate_in_slab(&mut self, page: u64, distance: u64) -> Option<Located> {
        let offsets = self.offsets;
        let cache = word(self.qemu, page.wrapping_add(offsets.slab_cache?))?;
        let size = self.qemu.memory(cache.wrapping_add(offsets.cache_size?));
        let size = u64::from(u32::from_le_bytes(size?)).max(1);
        let structure = Structure { kind: StructureKind::Slab, place: cache };
        self.remember_name(structure, |guest| {
            let name = word(guest.qemu, cache.wrapping_add(offsets.cache_name?))?;
            let users = offsets.cache_users.map(|users| cache.wrapping_add(users));
            let users = users.and_then(|users| guest.qemu.memory(users)).map(i32::from_le_bytes);
            // Caches that may not be shared have a negative count.
            Some((guest.qemu.text_at(name)?, users.map_or(0, |users| users.max(1) as u32)))
        });
        Some(Located::new(StructureKind::Slab, cache, distance % size))
    }

    /// The structure of a page of a file, which is the type of its file system. `mapping`: the address of the file's
    /// `address_space`. `None` if the kernel's offsets are not known, or a structure cannot be read.
    fn locate_in_file(&mut self, mapping: u64) -> Option<Located> {
        let offsets = self.offsets;
        let inode = word(self.qemu, mapping.wrapping_add(offsets.mapping_host?))?;
        let block = word(self.qemu, inode.wrapping_add(offsets.inode_super?))?;
        let system = word(self.qemu, block.wrapping_add(offsets.super_type?))?;
        let structure = Structure { kind: StructureKind::File, place: system };
        self.remember_name(structure, |guest| {
            let name = word(guest.qemu, system.wrapping_add(offsets.file_system_name?))?;
            Some((guest.qemu.text_at(name)?, 1))
        });
        Some(Located::new(StructureKind::File, system, 0))
    }

    /// Remembers the name that `read_name` reads, unless the structure has one.
    fn remember_name(
        &mut self,
        structure: Structure,
        read_name: impl FnOnce(&mut Self) -> Option<([u8; TEXT_BYTES_MAX], u32)>,
    ) {
        let names = &self.structures.names;
        if names.len() < KNOWN_MAX
            && !names.contains_key(&structure)
            && let Some(name) = read_name(self)
        {
            self.structures.names.insert(structure, name);
        }
    }
}
