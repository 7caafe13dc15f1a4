//! Memory for measured loops, physically contiguous where the system provides huge pages. The touch loop and the
//! pointer chase of `live::selfbench` use it.

use std::io;
use std::ptr::NonNull;

use rustix::mm::{Advice, MapFlags, ProtFlags, madvise, mmap_anonymous, mprotect, munmap};

/// Bytes of a huge page.
pub const HUGE_BYTES: usize = 2 << 20;
/// Bytes of the largest page.
const GIANT_BYTES: usize = 1 << 30;

/// The kind of pages of a region.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Pages {
    /// 1 GiB, from the pool of such pages (`hugepagesz=1G hugepages=N` on the kernel's command line). Used
    /// for regions larger than 2 MiB.
    Giant,
    /// 2 MiB, from the pool of huge pages (`vm.nr_hugepages`).
    Pool,
    /// 2 MiB, transparent huge pages requested by madvise(2).
    Transparent,
    /// 4 KiB: only virtually contiguous.
    Small,
}

impl Pages {
    /// The name in tables and facts.
    #[must_use]
    pub fn word(self) -> &'static str {
        match self {
            Pages::Giant => "1 GiB (pool)",
            Pages::Pool => "2 MiB (pool)",
            Pages::Transparent => "2 MiB (transparent)",
            Pages::Small => "4 KiB",
        }
    }
}

/// Memory aligned to a huge page. Each page has been written once, so it is present.
#[derive(Debug)]
pub struct Region {
    /// The whole mapping, which contains the used part.
    map: NonNull<u8>,
    map_bytes: usize,
    /// The used part, aligned to [`HUGE_BYTES`].
    base: NonNull<u8>,
    bytes: usize,
    pub pages: Pages,
}

// SAFETY: the region is plain memory that this value owns; nothing in it belongs to a thread.
unsafe impl Send for Region {}

impl Region {
    /// Allocates at least `bytes`, in the largest pages that are available.
    ///
    /// Fails when there is no memory.
    pub fn new(bytes: usize) -> io::Result<Self> {
        let bytes = bytes.max(1).next_multiple_of(HUGE_BYTES);
        let giant_bytes = bytes.next_multiple_of(GIANT_BYTES);
        let pooled = |pages, map_bytes, flags| {
            let start = map(map_bytes, MapFlags::HUGETLB | flags)?;
            Ok::<Region, io::Error>(Region { map: start, map_bytes, base: start, bytes, pages })
        };
        let giant = || match bytes {
            ..=HUGE_BYTES => Err(io::ErrorKind::Unsupported.into()),
            _ => pooled(Pages::Giant, giant_bytes, MapFlags::HUGE_1GB),
        };
        let mut region = giant()
            .or_else(|_| pooled(Pages::Pool, bytes, MapFlags::HUGE_2MB))
            .or_else(|_| Self::advised(bytes, Advice::LinuxHugepage))?;
        region.bytes_mut().fill(0);
        if region.pages == Pages::Transparent && !region.is_huge() {
            region.pages = Pages::Small;
        }
        Ok(region)
    }

    /// Allocates at least `bytes` in small pages, for loops that fill a TLB: a huge page would need only one entry.
    ///
    /// Fails when there is no memory.
    pub fn in_small_pages(bytes: usize) -> io::Result<Self> {
        let bytes = bytes.max(1).next_multiple_of(HUGE_BYTES);
        let mut region = Self::advised(bytes, Advice::LinuxNoHugepage)?;
        region.bytes_mut().fill(0);
        region.pages = if region.is_huge() { Pages::Transparent } else { Pages::Small };
        Ok(region)
    }

    /// Maps memory with this advice about huge pages. The kernel may ignore the advice.
    fn advised(bytes: usize, advice: Advice) -> io::Result<Self> {
        let map_bytes = bytes + HUGE_BYTES;
        let start = map(map_bytes, MapFlags::empty())?;
        let before = start.as_ptr().align_offset(HUGE_BYTES);
        // SAFETY: the map is a huge page longer than the used part, and `before` is less than a huge page.
        let base = unsafe { start.add(before) };
        // SAFETY: the range is within the new map. `pages` records whether the kernel followed the
        // advice.
        let _ = unsafe { madvise(base.as_ptr().cast(), bytes, advice) };
        Ok(Region { map: start, map_bytes, base, bytes, pages: Pages::Transparent })
    }

    /// Whether huge pages back the whole memory, by /proc/self/smaps.
    fn is_huge(&self) -> bool {
        let Ok(text) = std::fs::read_to_string("/proc/self/smaps") else { return false };
        let start = self.base.as_ptr() as usize;
        let mut is_region = false;
        for line in text.lines() {
            let range = line.split(' ').next().and_then(|word| word.split_once('-'));
            let ends = range.and_then(|(from, to)| {
                Some((usize::from_str_radix(from, 16).ok()?, usize::from_str_radix(to, 16).ok()?))
            });
            if let Some((from, to)) = ends {
                is_region = (from..to).contains(&start);
            } else if is_region && let Some(amount) = line.strip_prefix("AnonHugePages:") {
                let kib = amount.trim().trim_end_matches("kB").trim().parse::<usize>();
                return kib.is_ok_and(|kib| kib << 10 >= self.bytes);
            }
        }
        false
    }

    /// The address of the first byte, a multiple of 2 MiB.
    #[must_use]
    pub fn base(&self) -> *mut u8 {
        self.base.as_ptr()
    }

    pub fn bytes_mut(&mut self) -> &mut [u8] {
        // SAFETY: the range is mapped for writing and owned by `self`, which is borrowed mutably.
        unsafe { std::slice::from_raw_parts_mut(self.base.as_ptr(), self.bytes) }
    }

    /// Makes the memory executable, and no longer writable. `bytes_mut` must not be called afterwards.
    ///
    /// Fails when the kernel forbids executable memory.
    pub fn make_executable(&mut self) -> io::Result<()> {
        let flags = rustix::mm::MprotectFlags::READ | rustix::mm::MprotectFlags::EXEC;
        // A page of 1 GiB has the same protection throughout.
        let bytes = if self.pages == Pages::Giant { self.map_bytes } else { self.bytes };
        // SAFETY: `self` owns the range, and the one caller, which owns the region, does not call
        // `bytes_mut` afterwards.
        unsafe { mprotect(self.base.as_ptr().cast(), bytes, flags) }.map_err(Into::into)
    }
}

/// Maps private, anonymous memory with additional flags.
fn map(bytes: usize, additional: MapFlags) -> io::Result<NonNull<u8>> {
    let rights = ProtFlags::READ | ProtFlags::WRITE;
    let flags = MapFlags::PRIVATE | additional;
    // SAFETY: a new map at an address of the kernel's choice; nothing that exists is touched.
    let start = unsafe { mmap_anonymous(std::ptr::null_mut(), bytes, rights, flags) }?;
    NonNull::new(start.cast()).ok_or_else(|| io::Error::other("memory at address 0"))
}

impl Drop for Region {
    fn drop(&mut self) {
        // SAFETY: this value owns the map, and nothing borrows from it any more.
        let _ = unsafe { munmap(self.map.as_ptr().cast(), self.map_bytes) };
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_region_is_aligned_and_complete() {
        let mut region = Region::new(3 << 20).unwrap();
        assert_eq!(region.base() as usize % HUGE_BYTES, 0);
        assert_eq!(region.bytes_mut().len(), 4 << 20);
        region.bytes_mut()[(4 << 20) - 1] = 7;
        assert!(region.pages.word().contains("iB"));
        let mut small = Region::in_small_pages(3 << 20).unwrap();
        assert_eq!((small.pages, small.bytes_mut().len()), (Pages::Small, 4 << 20));
    }
}
