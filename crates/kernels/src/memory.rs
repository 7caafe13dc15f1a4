//! Memory for kernels, in pages of a known size. Transparent huge pages would otherwise change the number of TLB
//! misses and cache conflicts from run to run.

use std::ptr::NonNull;

/// Bytes of a large page.
const LARGE_BYTES: usize = 2 << 20;

/// The page size of memory, and whether its bytes can be executed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kind {
    /// 4 KiB.
    Small,
    /// 2 MiB.
    Large,
    /// 4 KiB, executable.
    Code,
}

/// Private memory of this process, unmapped on drop. Each page was written once, so that no load or store takes a page
/// fault.
#[derive(Debug)]
pub(crate) struct Pages {
    /// The whole mapping, one large page longer than the used part.
    map: NonNull<u8>,
    map_bytes: usize,
    /// The used part, aligned to a large page.
    base: NonNull<u8>,
    bytes: usize,
}

impl Pages {
    /// Memory of `bytes`, rounded up to 4 KiB, in pages of a kind.
    ///
    /// Fails when the system has no memory, or gives no large pages.
    pub(crate) fn new(bytes: usize, kind: Kind) -> Result<Pages, String> {
        let bytes = bytes.next_multiple_of(4096);
        let map_bytes = bytes + LARGE_BYTES;
        let execute = if kind == Kind::Code { libc::PROT_EXEC } else { 0 };
        let protection = libc::PROT_READ | libc::PROT_WRITE | execute;
        let flags = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_NORESERVE;
        // SAFETY: a new map at an address of the kernel's choice affects no other memory.
        let map = unsafe { libc::mmap(std::ptr::null_mut(), map_bytes, protection, flags, -1, 0) };
        let no_memory =
            || format!("no memory of {bytes} bytes: {}", std::io::Error::last_os_error());
        if map == libc::MAP_FAILED {
            return Err(no_memory());
        }
        let map = NonNull::new(map.cast::<u8>()).ok_or_else(no_memory)?;
        // SAFETY: the map is a large page longer than the used part, and the offset is less than a large page.
        let base = unsafe { map.add(map.as_ptr().align_offset(LARGE_BYTES)) };
        let mut pages = Pages { map, map_bytes, base, bytes };
        let advice = match kind {
            Kind::Large => libc::MADV_HUGEPAGE,
            _ => libc::MADV_NOHUGEPAGE,
        };
        // SAFETY: the range is within the map, and the advice changes no content.
        unsafe { libc::madvise(base.as_ptr().cast(), bytes, advice) };
        pages.touch();
        if kind == Kind::Large && bytes >= LARGE_BYTES && !pages.is_large() {
            return Err("the kernel gives no large pages (transparent huge pages are off)".into());
        }
        Ok(pages)
    }

    /// Memory in pages of 4 KiB.
    ///
    /// Fails when there is no memory.
    pub(crate) fn small(bytes: usize) -> Result<Pages, String> {
        Pages::new(bytes, Kind::Small)
    }

    /// The address of the first byte, which is aligned to 2 MiB.
    pub(crate) fn base(&self) -> NonNull<u8> {
        self.base
    }

    pub(crate) fn bytes_mut(&mut self) -> &mut [u8] {
        // SAFETY: `base` and `bytes` are within a map that this value owns and that is readable and
        // writable; the borrow is exclusive.
        unsafe { std::slice::from_raw_parts_mut(self.base.as_ptr(), self.bytes) }
    }

    /// Writes each page once.
    fn touch(&mut self) {
        self.bytes_mut().iter_mut().step_by(4096).for_each(|byte| *byte = 1);
    }

    /// Whether large pages back at least 7/8 of the memory, by /proc/self/smaps. False if the file cannot be read.
    fn is_large(&self) -> bool {
        let Ok(text) = std::fs::read_to_string("/proc/self/smaps") else { return false };
        let start = self.base.as_ptr() as usize;
        let mut is_inside = false;
        for line in text.lines() {
            let range = line.split(' ').next().and_then(|word| word.split_once('-'));
            let ends = range.and_then(|(from, to)| {
                Some((usize::from_str_radix(from, 16).ok()?, usize::from_str_radix(to, 16).ok()?))
            });
            if let Some((from, to)) = ends {
                is_inside = (from..to).contains(&start);
            } else if is_inside && let Some(rest) = line.strip_prefix("AnonHugePages:") {
                let kib = rest.trim().trim_end_matches("kB").trim().parse::<usize>();
                return kib.is_ok_and(|kib| kib << 10 >= self.bytes / 8 * 7);
            }
        }
        false
    }
}

impl Drop for Pages {
    fn drop(&mut self) {
        // SAFETY: this value owns the map, and nothing refers to the map after the drop.
        unsafe { libc::munmap(self.map.as_ptr().cast(), self.map_bytes) };
    }
}
