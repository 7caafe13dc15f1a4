//! Names of the data that services miss on or lock, from the kernel's symbols and types, and of the code that misses.

use attribution::KernelContext;
use simrecord::record::{ELSEWHERE, StructureKind};

use super::names::Names;

/// Names of slab caches that differ from the type of their objects, and these types.
const TYPES: [(&str, &str); 40] = [
    ("TCP", "tcp_sock"),
    ("TCPv6", "tcp6_sock"),
    ("UDP", "udp_sock"),
    ("UNIX", "unix_sock"),
    ("UNIX-STREAM", "unix_sock"),
    ("bdev_cache", "bdev_inode"),
    ("bio", "bio"),
    ("blkdev_ioc", "io_context"),
    ("cred_jar", "cred"),
    ("eventpoll_epi", "epitem"),
    ("ext4_inode_cache", "ext4_inode_info"),
    ("ext4_io_end", "ext4_io_end"),
    ("fasync_cache", "fasync_struct"),
    ("file_lock_cache", "file_lock"),
    ("files_cache", "files_struct"),
    ("filp", "file"),
    ("fs_cache", "fs_struct"),
    ("hugetlbfs_inode_cache", "hugetlbfs_inode_info"),
    ("inode_cache", "inode"),
    ("jbd2_inode", "jbd2_inode"),
    ("jbd2_journal_handle", "jbd2_journal_handle"),
    ("jbd2_journal_head", "journal_head"),
    ("jbd2_transaction_s", "transaction_s"),
    ("kernfs_node_cache", "kernfs_node"),
    ("mnt_cache", "mount"),
    ("mqueue_inode_cache", "mqueue_inode_info"),
    ("names_cache", "filename"),
    ("net_namespace", "net"),
    ("ovl_inode", "ovl_inode"),
    ("perf_event", "perf_event"),
    ("pid", "pid"),
    ("pid_namespace", "pid_namespace"),
    ("proc_inode_cache", "proc_inode"),
    ("radix_tree_node", "xa_node"),
    ("request_queue", "request_queue"),
    ("shmem_inode_cache", "shmem_inode_info"),
    ("sighand_cache", "sighand_struct"),
    ("signal_cache", "signal_struct"),
    ("skbuff_head_cache", "sk_buff"),
    ("sock_inode_cache", "socket_alloc"),
];

/// Maximum distance from a symbol at which an address still gets the name of the symbol, bytes.
const VARIABLE_BYTES_MAX: u64 = 1 << 22;

impl Names<'_> {
    /// Returns the kind of a structure, and its name if it has one: with the member at `offset` if an offset is
    /// given. `place` identifies the structure within its kind: the address of 64 bytes of a variable, a number of a
    /// slab cache or file, or the process id of a stack's task.
    pub(super) fn structure(
        &self,
        kind: StructureKind,
        place: u64,
        offset: Option<u32>,
    ) -> (&'static str, Option<String>) {
        if place == ELSEWHERE {
            return ("elsewhere", None);
        }
        let recorded_name =
            |kind| self.used.structures.get(&(kind, place)).map(|structure| structure.0.clone());
        match kind {
            StructureKind::Unknown => ("unknown", None),
            StructureKind::Image => {
                let place_name = || Some(self.symbols?.area_name(place));
                ("variable", self.variable(place, offset).or_else(place_name))
            }
            StructureKind::PerCpu => {
                let name = self.per_cpu(place, offset);
                ("per-CPU variable", Some(name.unwrap_or_else(|| "allocated".to_owned())))
            }
            StructureKind::Slab => ("slab", self.slab(place, offset)),
            StructureKind::Stack => ("stack", Some(self.task(place))),
            StructureKind::Anonymous => {
                ("anonymous memory", (place != 0).then(|| self.task(place)))
            }
            StructureKind::File => ("file", recorded_name(kind)),
            StructureKind::PageTable => ("page table", None),
            StructureKind::PageArray => {
                // Its members are unions; their meaning depends on the page.
                let name = |offset: u32| format!("page+{offset:#x}");
                ("page array", offset.map(name).or(Some("page".to_owned())))
            }
            StructureKind::Vmalloc => ("vmalloc", None),
            StructureKind::Reserved => ("reserved at boot", None),
            StructureKind::KernelPage => ("kernel page", None),
            StructureKind::EntryArea => ("entry area", None),
            StructureKind::OtherUser => ("other user memory", None),
        }
    }

    /// Returns the name of a task, or its process id.
    fn task(&self, pid: u64) -> String {
        let pid = u32::try_from(pid).unwrap_or(u32::MAX);
        let name = self.accounting.tasks.get(&pid).filter(|name| !name.is_empty());
        name.cloned().unwrap_or_else(|| format!("task {pid}"))
    }

    /// Returns the name of a variable of the kernel's image or of a module; `None` far from any symbol.
    fn variable(&self, place: u64, offset: Option<u32>) -> Option<String> {
        let address = place + u64::from(offset.unwrap_or(0));
        let symbols = self.symbols?;
        // Without an offset, the place is 64 bytes long: a variable that starts in them comes first.
        let first = symbols.symbol_at(address)?;
        let next = symbols.next_symbol(address).filter(|next| next.address - place < 64);
        let (symbol, distance) = match (offset, next) {
            (None, Some(next)) if first.1 > 0 => (next, 0),
            _ => first,
        };
        if distance >= VARIABLE_BYTES_MAX {
            return None;
        }
        Some(match offset {
            Some(_) if distance > 0 => format!("{}+{distance:#x}", symbol.label()),
            _ => symbol.label(),
        })
    }

    /// Returns the name of a per-CPU variable; `None` for memory that the kernel allocated per CPU at run time.
    fn per_cpu(&self, place: u64, offset: Option<u32>) -> Option<String> {
        let end = self.symbols?.symbol_named("__per_cpu_end")?.address;
        (place < end).then(|| self.variable(place, offset)).flatten()
    }

    /// Returns the name of a slab cache with the member at `offset` of its objects. Several types may share a cache:
    /// then the result has the offset instead of a member.
    fn slab(&self, place: u64, offset: Option<u32>) -> Option<String> {
        let (name, shared_by) = self.used.structures.get(&(StructureKind::Slab, place))?;
        let Some(offset) = offset else { return Some(name.clone()) };
        let type_name =
            TYPES.iter().find(|(cache, _)| cache == name).map_or(name.as_str(), |known| known.1);
        let member =
            (*shared_by == 1).then(|| self.btf?.member_at(type_name, offset.into())).flatten();
        Some(match member {
            Some((member, 0)) => format!("{type_name}.{member}"),
            Some((member, distance)) => format!("{type_name}.{member}+{distance:#x}"),
            None => format!("{name}+{offset:#x}"),
        })
    }

    /// Returns the name of a function. `code`: an address of the kernel, or the number of a function of a user
    /// program.
    pub(super) fn function(&self, code: u64) -> String {
        if code >> 63 == 0 {
            return self.accounting.user_function(code).to_owned();
        }
        self.symbols.map_or_else(|| "kernel".to_owned(), |symbols| symbols.code_name(code))
    }

    /// Returns the name of a service that evicted a line. All tasks in user mode are `user`.
    pub(super) fn evictor(&self, code: u64) -> String {
        match KernelContext::from_code(code) {
            Some(KernelContext::User(_)) => "user".to_owned(),
            Some(KernelContext::Unknown) | None => "kernel".to_owned(),
            Some(service) => {
                let (class, name) = self.class_and_name(service);
                if class.label() == name { name } else { format!("{} {name}", class.label()) }
            }
        }
    }
}
