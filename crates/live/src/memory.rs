//! Memory that is touched: contiguous in physical memory as far as it can be had.

use std::io;
use std::ptr::NonNull;

use rustix::mm::{Advice, MapFlags, ProtFlags, madvise, mmap_anonymous, mprotect, munmap};

/// Bytes of a huge page.
pub const HUGE_BYTES: usize = 2 << 20;
/// Bytes of the largest.
const GIANT_BYTES: usize = 1 << 30;

/// In what pages memory is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Pages {
    /// 1 GiB, from the pool of such pages (`hugepagesz=1G hugepages=N` on the kernel's command line). Tried
    /// where one of 2 MiB does not hold it all.
    Giant,
    /// 2 MiB, from the pool of huge pages (`vm.nr_hugepages`).
    Pool,
    /// 2 MiB, by the kernel's own choice when asked (transparent).
    Transparent,
    /// 4 KiB: contiguous as virtual memory only.
    Small,
}

impl Pages {
    /// As the tables say it.
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

/// Memory of our own, aligned to a huge page, written once, and locked.
#[derive(Debug)]
pub struct Region {
    map: NonNull<u8>,
    map_bytes: usize,
    base: NonNull<u8>,
    bytes: usize,
    /// In what pages it is.
    pub pages: Pages,
}

// SAFETY: the region is plain memory that this value owns; nothing about it belongs to a thread.
unsafe impl Send for Region {}

impl Region {
    /// At least `bytes` of it.
    ///
    /// # Errors
    /// When there is no memory.
    pub fn new(bytes: usize) -> io::Result<Self> {
        let bytes = bytes.max(1).next_multiple_of(HUGE_BYTES);
        let giant = bytes.next_multiple_of(GIANT_BYTES);
        let pooled = |pages, map_bytes, flags| {
            let start = map(map_bytes, MapFlags::HUGETLB | flags)?;
            Ok::<Region, io::Error>(Region { map: start, map_bytes, base: start, bytes, pages })
        };
        let giant = || match bytes {
            ..=HUGE_BYTES => Err(io::ErrorKind::Unsupported.into()),
            _ => pooled(Pages::Giant, giant, MapFlags::HUGE_1GB),
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

    /// The same in small pages, for translation buffers: one entry would hold a huge page.
    ///
    /// # Errors
    /// When there is no memory.
    pub fn in_small_pages(bytes: usize) -> io::Result<Self> {
        let bytes = bytes.max(1).next_multiple_of(HUGE_BYTES);
        let mut region = Self::advised(bytes, Advice::LinuxNoHugepage)?;
        region.bytes_mut().fill(0);
        region.pages = if region.is_huge() { Pages::Transparent } else { Pages::Small };
        Ok(region)
    }

    fn advised(bytes: usize, advice: Advice) -> io::Result<Self> {
        let map_bytes = bytes + HUGE_BYTES;
        let start = map(map_bytes, MapFlags::empty())?;
        let before = start.as_ptr().align_offset(HUGE_BYTES);
        // SAFETY: the map is a huge page longer than what is used, and `before` is less than one.
        let base = unsafe { start.add(before) };
        // SAFETY: the range is within the map that we have just made. Where the advice is not
        // followed, `pages` says so.
        let _ = unsafe { madvise(base.as_ptr().cast(), bytes, advice) };
        Ok(Region { map: start, map_bytes, base, bytes, pages: Pages::Transparent })
    }

    /// Whether the kernel says that all of it is in huge pages (/proc/self/smaps).
    fn is_huge(&self) -> bool {
        let Ok(text) = std::fs::read_to_string("/proc/self/smaps") else { return false };
        let at = self.base.as_ptr() as usize;
        let mut inside = false;
        for line in text.lines() {
            let range = line.split(' ').next().and_then(|word| word.split_once('-'));
            let ends = range.and_then(|(from, to)| {
                Some((usize::from_str_radix(from, 16).ok()?, usize::from_str_radix(to, 16).ok()?))
            });
            if let Some((from, to)) = ends {
                inside = (from..to).contains(&at);
            } else if inside && let Some(rest) = line.strip_prefix("AnonHugePages:") {
                let kib = rest.trim().trim_end_matches("kB").trim().parse::<usize>();
                return kib.is_ok_and(|kib| kib << 10 >= self.bytes);
            }
        }
        false
    }

    /// Its first byte, at a multiple of 2 MiB.
    #[must_use]
    pub fn base(&self) -> *mut u8 {
        self.base.as_ptr()
    }

    /// All of it.
    pub fn bytes_mut(&mut self) -> &mut [u8] {
        // SAFETY: the range is mapped for writing and ours alone; `self` is borrowed meanwhile.
        unsafe { std::slice::from_raw_parts_mut(self.base.as_ptr(), self.bytes) }
    }

    /// Makes it executable, and no longer writable.
    ///
    /// # Errors
    /// When the system forbids it.
    pub fn make_executable(&mut self) -> io::Result<()> {
        let flags = rustix::mm::MprotectFlags::READ | rustix::mm::MprotectFlags::EXEC;
        // A page of 1 GiB has one right for all of it.
        let bytes = if self.pages == Pages::Giant { self.map_bytes } else { self.bytes };
        // SAFETY: the range is our own map, and `bytes_mut` is not called any more once this has
        // been: the one caller keeps the region to itself.
        unsafe { mprotect(self.base.as_ptr().cast(), bytes, flags) }.map_err(Into::into)
    }
}

fn map(bytes: usize, more: MapFlags) -> io::Result<NonNull<u8>> {
    let rights = ProtFlags::READ | ProtFlags::WRITE;
    let flags = MapFlags::PRIVATE | more;
    // SAFETY: a new map at an address of the kernel's choice; nothing that exists is touched.
    let start = unsafe { mmap_anonymous(std::ptr::null_mut(), bytes, rights, flags) }?;
    NonNull::new(start.cast()).ok_or_else(|| io::Error::other("memory at address 0"))
}

impl Drop for Region {
    fn drop(&mut self) {
        // SAFETY: the map is ours, and nothing borrows from it any more.
        let _ = unsafe { munmap(self.map.as_ptr().cast(), self.map_bytes) };
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_region_is_aligned_whole_and_says_its_pages() {
        let mut region = Region::new(3 << 20).unwrap();
        assert_eq!(region.base() as usize % HUGE_BYTES, 0);
        assert_eq!(region.bytes_mut().len(), 4 << 20);
        region.bytes_mut()[(4 << 20) - 1] = 7;
        assert!(region.pages.word().contains("iB"));
        let mut small = Region::in_small_pages(3 << 20).unwrap();
        assert_eq!((small.pages, small.bytes_mut().len()), (Pages::Small, 4 << 20));
    }
}
