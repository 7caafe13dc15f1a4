//! Offsets of members in structures of the guest's kernel. `sim` reads them from the kernel's BTF and passes them to
//! the plugin as text; the plugin needs them to read tasks, pages and other structures from the guest's memory.
//!
//! The macro has a row for each member: the field's name here, and the member's name in the text.

macro_rules! offsets {
    ($($(#[$doc:meta])* $field:ident = $name:literal;)*) => {
        /// Offsets in structures of the kernel, in bytes, and some sizes and numbers. `None`: the kernel lacks it.
        #[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
        pub struct Offsets {
            $($(#[$doc])* pub $field: Option<u64>,)*
        }

        impl Offsets {
            fn set(&mut self, name: &str, offset: u64) {
                match name {
                    $($name => self.$field = Some(offset),)*
                    _ => {}
                }
            }
        }

        /// All names: `STRUCT.MEMBER` for an offset, `sizeof STRUCT` for a size, `enum ENUM.VALUE` for a number,
        /// [`RELEASE`] for the kernel's release.
        /// A kernel may lack some of them.
        pub fn wanted_members() -> impl Iterator<Item = &'static str> {
            [$($name),*].into_iter()
        }
    };
}

offsets! {
    /// Offset of the number of a task, which Linux's programs see as the number of a thread.
    pid = "task_struct.pid";
    /// Offset of the number of a task's process.
    tgid = "task_struct.tgid";
    /// Offset of the task's name.
    comm = "task_struct.comm";
    /// Offset of the pointer to the task's user memory.
    mm = "task_struct.mm";
    /// Offset of the task's state: 0 while the task runs or can run, bits otherwise.
    state = "task_struct.__state";
    /// Offset of the flag that says whether the task is queued to run.
    on_rq = "task_struct.on_rq";
    /// Offset of the flag that says whether the task waits although it is queued to run, 8 bits. From Linux 6.12 on.
    sched_delayed = "task_struct.se.sched_delayed";
    /// Offset of the task's flags, 32 bits.
    task_flags = "task_struct.flags";
    /// Offset of the pointer to the task's kernel stack.
    stack = "task_struct.stack";
    /// Offset of the pointer to the set of a task's control groups.
    task_groups = "task_struct.cgroups";
    /// Offset of the pointer from a set of control groups to the group of version 2.
    default_group = "css_set.dfl_cgrp";
    /// Offset of the pointer from a control group to its directory.
    group_directory = "cgroup.kn";
    /// Offset of a directory's id.
    directory_id = "kernfs_node.id";
    /// Offset of the pointer to a directory's name.
    directory_name = "kernfs_node.name";
    /// Offset of the pointer to the directory around.
    directory_parent = "kernfs_node.parent";
    /// Offset of the member that replaces `parent` from Linux 6.15 on.
    directory_parent_renamed = "kernfs_node.__parent";
    /// Offset of the pointer to a block request's first bio.
    request_bio = "request.bio";
    /// Offset of the pointer to a bio's next bio in its request.
    next_bio = "bio.bi_next";
    /// Offset of the pointer to the next request that completes together with a request.
    next_request = "request.rq_next";
    /// Offset of the pointer to the first of the requests that complete together.
    request_list = "io_comp_batch.req_list";
    /// Offset of the count of nested interrupts in `pcpu_hot`, 32 bits.
    preempt_count = "pcpu_hot.preempt_count";
    /// Offset of the flags of a queued function call, 32 bits.
    call_flags = "__call_single_node.u_flags";
    /// Offset of the function of a queued function call.
    call_function = "__call_single_data.func";
    /// Offset of the argument of the function of a queued function call.
    call_info = "__call_single_data.info";
    /// Offset of the pointer to the operations of an area of user memory. The pointer is null without a file.
    vm_ops = "vm_area_struct.vm_ops";
    /// Offset of the flags of an area of user memory.
    vm_flags = "vm_area_struct.vm_flags";
    /// Offset of the pointer to the area of user memory of a page fault.
    fault_area = "vm_fault.vma";
    /// Offset of the flags of a page fault.
    fault_flags = "vm_fault.flags";
    /// Offset of an IRQ line's number.
    irq = "irq_desc.irq_data.irq";
    /// Offset of the pointer to an IRQ line's first action.
    action = "irq_desc.action";
    /// Offset of the pointer to an IRQ line's counts. The pointer is an offset in each CPU's per-CPU area.
    irq_counts = "irq_desc.kstat_irqs";
    /// Offset of the pointer to an action's name.
    action_name = "irqaction.name";
    /// Offset of the pointer from an action to the `task_struct` of its thread.
    action_thread = "irqaction.thread";
    /// Offset of the flags of an action's thread.
    action_thread_flags = "irqaction.thread_flags";
    /// Offset of the function of a work item.
    work_function = "work_struct.func";
    /// Offset of the time from which a high-resolution timer may run, ns on the timer's clock.
    hrtimer_soft_expiry = "hrtimer._softexpires";
    /// Offset of the pointer from a high-resolution timer to the base of its clock.
    hrtimer_base = "hrtimer.base";
    /// Offset of the difference between a base's clock and the monotonic clock, ns.
    hrtimer_base_offset = "hrtimer_clock_base.offset";
    /// Offset of the time when a timer of the timer wheel is due, in jiffies.
    timer_expiry = "timer_list.expires";
    /// Offset of the number, 32 bits, whose bit 0 tells which copy of the fast clock's parameters readers use.
    fast_clock_sequence = "tk_fast.seq";
    /// Offset of the two copies of the fast clock's parameters.
    fast_clock_copies = "tk_fast.base";
    /// Size of a copy of a clock's parameters.
    clock_copy_bytes = "sizeof tk_read_base";
    /// Offset of the pointer to the clock's source.
    clock_source = "tk_read_base.clock";
    /// Offset of the source's cycles at the clock's last update.
    clock_last_cycles = "tk_read_base.cycle_last";
    /// Offset of the factor from cycles to shifted ns, 32 bits.
    clock_mult = "tk_read_base.mult";
    /// Offset of the shift of a clock's ns, 32 bits.
    clock_shift = "tk_read_base.shift";
    /// Offset of the fraction of the clock's ns at its last update, shifted.
    clock_fraction = "tk_read_base.xtime_nsec";
    /// Offset of the clock's ns at its last update.
    clock_base = "tk_read_base.base";
    /// Offset of the pointer to the name of a clock source.
    clock_source_name = "clocksource.name";
    /// Offset of a clock source's factor from cycles to shifted ns, 32 bits.
    source_mult = "clocksource.mult";
    /// Offset of the shift of that factor, 32 bits.
    source_shift = "clocksource.shift";
    /// Offset of the count of local timer interrupts.
    timer_count = "irq_cpustat_t.apic_timer_irqs";
    /// Offset of the count of reschedule IPIs.
    reschedule_count = "irq_cpustat_t.irq_resched_count";
    /// Offset of the count of function call IPIs of both kinds.
    call_count = "irq_cpustat_t.irq_call_count";
    /// Offset of the count of irq_work IPIs.
    irq_work_count = "irq_cpustat_t.apic_irq_work_irqs";
    /// Offset of the counts of softirqs, by number, 32 bits each.
    softirq_counts = "kernel_stat.softirqs";
    /// Size of the description of a page.
    page_bytes = "sizeof page";
    /// Offset of a page's flags.
    page_flags = "page.flags";
    /// Offset of the pointer from a page to the first page of its compound page. Bit 0 is set if there is one.
    compound_head = "page.compound_head";
    /// Offset of the pointer to the owner of a page of user memory.
    mapping = "page.mapping";
    /// Offset of the type of a page outside of user memory.
    page_type = "page.page_type";
    /// Number of the flag of pages of slabs.
    slab_bit = "enum pageflags.PG_slab";
    /// Number of the flag of pages that were reserved at boot.
    reserved_bit = "enum pageflags.PG_reserved";
    /// Offset of the pointer from a slab's page to its cache.
    slab_cache = "slab.slab_cache";
    /// Offset of the size of a cache's objects, 32 bits.
    cache_size = "kmem_cache.size";
    /// Offset of the number of caches that share a cache, 32 bits.
    cache_users = "kmem_cache.refcount";
    /// Offset of the pointer to a cache's name.
    cache_name = "kmem_cache.name";
    /// Offset of the pointer from the pages of a file to the file.
    mapping_host = "address_space.host";
    /// Offset of the pointer to a file's file system.
    inode_super = "inode.i_sb";
    /// Offset of the pointer to the type of a file system.
    super_type = "super_block.s_type";
    /// Offset of the pointer to the name of a file system's type.
    file_system_name = "file_system_type.name";
    /// Offset of a page's position in its file, in pages.
    page_index = "page.index";
    /// Number of the flag of pages that hold the content of their file.
    page_uptodate_bit = "enum pageflags.PG_uptodate";
    /// Offset of the root of the tree of a file's pages: a page, or a node.
    page_tree = "address_space.i_pages.xa_head";
    /// Offset of a tree node's shift, 8 bits: how many low bits of an index the nodes below it decode.
    node_shift = "xa_node.shift";
    /// Offset of a tree node's 64 entries.
    node_entries = "xa_node.slots";
    /// Offset of a file's number in its file system.
    inode_number = "inode.i_ino";
    /// Offset of the generation of a file's number, 32 bits: another file may get the same number later.
    inode_generation = "inode.i_generation";
    /// Offset of a file's size in bytes.
    inode_bytes = "inode.i_size";
    /// Offset of the time when a file was written last: seconds, then nanoseconds, 64 bits each.
    inode_written = "inode.i_mtime";
    /// Offset of the member that replaces `i_mtime` from Linux 6.7 on.
    inode_written_renamed = "inode.__i_mtime";
    /// Offset of the seconds of the time when a file was written last, from Linux 6.11 on.
    inode_written_seconds = "inode.i_mtime_sec";
    /// Offset of the nanoseconds of the time when a file was written last, from Linux 6.11 on, 32 bits.
    inode_written_nanoseconds = "inode.i_mtime_nsec";
    /// Offset of the pointer to the first of a file's names. It points into the name's description.
    inode_names = "inode.i_dentry.first";
    /// Offset, in the description of a name, of the member that [`Offsets::inode_names`] points to.
    name_link = "dentry.d_u.d_alias";
    /// Offset of the pointer to a name's text.
    name_text = "dentry.d_name.name";
    /// The kernel's release, as [`release_number`] gives it.
    release = "linux release";
}

/// The name of the kernel's release.
pub const RELEASE: &str = "linux release";

/// The number of a kernel's release: 6012 for `6.12.9-arch1-1`. `None` if the text starts with no release.
#[must_use]
pub fn release_number(release: &str) -> Option<u64> {
    let mut numbers = release.split(|character: char| !character.is_ascii_digit());
    let mut number = || numbers.next()?.parse::<u64>().ok().filter(|number| *number < 1_000);
    Some(number()? * 1_000 + number()?)
}

impl Offsets {
    /// The first value that is too large for an offset.
    const MAX: u64 = 1 << 20;

    /// Whether the control group of a task, and the group's path, can be read.
    #[must_use]
    pub fn has_groups(&self) -> bool {
        let Offsets { task_groups, default_group, group_directory, .. } = self;
        let Offsets { directory_id, directory_name, directory_parent, .. } = self;
        let parent = directory_parent.or(self.directory_parent_renamed);
        let needed =
            [task_groups, default_group, group_directory, directory_id, directory_name, &parent];
        needed.into_iter().all(Option::is_some)
    }

    /// Parses lines `NAME OFFSET`, with a name as in [`wanted_members`] and a decimal offset. Other names are ignored.
    ///
    /// The error is the first line of another form.
    pub fn parse(text: &str) -> Result<Offsets, String> {
        let mut offsets = Offsets::default();
        for (number, line) in text.lines().enumerate() {
            let offset = line.rsplit_once(' ').and_then(|(name, offset)| {
                Some((name, offset.trim().parse().ok().filter(|offset| *offset < Offsets::MAX)?))
            });
            let Some((name, offset)) = offset else {
                return Err(format!("line {}: not a member and its offset", number + 1));
            };
            offsets.set(name, offset);
        }
        Ok(offsets)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn offsets_are_read_and_bounded() {
        let offsets = Offsets::parse("task_struct.pid 2416\ntask_struct.mm 2272\nfile.f_op 40\n");
        let right = Offsets { pid: Some(2416), mm: Some(2272), ..Offsets::default() };
        assert_eq!(offsets, Ok(right));
        for text in ["task_struct.pid\n", "task_struct.pid x\n", "task_struct.pid 99999999999\n"] {
            assert!(Offsets::parse(text).unwrap_err().contains("line 1"));
        }
    }

    #[test]
    fn releases_are_numbers_in_their_order() {
        assert_eq!(release_number("6.12.9-arch1-1"), Some(6_012));
        assert_eq!(release_number("6.4"), Some(6_004));
        assert_eq!(release_number("5.10.0-28-amd64"), Some(5_010));
        assert_eq!(
            (release_number("linux"), release_number("6"), release_number("")),
            (None, None, None)
        );
        assert!(wanted_members().any(|name| name == RELEASE));
    }

    #[test]
    fn all_wanted_members_are_taken() {
        let text: String = wanted_members().map(|name| format!("{name} 8\n")).collect();
        let offsets = Offsets::parse(&text).unwrap();
        assert_eq!(offsets.softirq_counts.and(offsets.irq), Some(8));
        assert!(!format!("{offsets:?}").contains("None"));
    }
}
