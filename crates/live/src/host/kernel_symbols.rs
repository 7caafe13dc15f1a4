//! All symbols of the kernel and its modules, from /proc/kallsyms: names of code and variables by address, and the
//! functions that take locks. `services --locks` names locks and call sites by them.

use super::Root;

/// Largest size of /proc/kallsyms that is read.
const BYTES_MAX: usize = 64 << 20;
/// Longest distance of code from the symbol of its function, bytes.
const FUNCTION_BYTES_MAX: u64 = 1 << 20;
/// Longest distance of a lock from the symbol of the variable that contains it, bytes.
const VARIABLE_BYTES_MAX: u64 = 1 << 16;
/// A variable that every kernel has. Kernels that list variables list it.
const KNOWN_VARIABLE: &str = "tasklist_lock";

/// Beginnings of the names of functions that take locks, or wait for them.
const LOCK_PREFIXES: [&str; 24] = [
    "_raw_spin_lock",
    "_raw_read_lock",
    "_raw_write_lock",
    "native_queued_spin_lock_slowpath",
    "__pv_queued_spin_lock_slowpath",
    "queued_spin_lock_slowpath",
    "queued_read_lock_slowpath",
    "queued_write_lock_slowpath",
    "resilient_queued_spin_lock_slowpath",
    "mutex_lock",
    "__mutex_lock",
    "ww_mutex_lock",
    "__ww_mutex_lock",
    "rwsem_down_",
    "percpu_down_",
    "__percpu_down_",
    "percpu_rwsem_wait",
    "rt_mutex_lock",
    "rt_mutex_slowlock",
    "__rt_mutex_",
    "rtlock_",
    "rt_spin_lock",
    "rwbase_",
    "rt_read_lock",
];
/// The names of further functions that take locks.
const LOCK_FUNCTIONS: [&str; 19] = [
    "rt_write_lock",
    "raw_spin_rq_lock_nested",
    "down",
    "down_interruptible",
    "down_killable",
    "down_timeout",
    "__down",
    "__down_interruptible",
    "__down_killable",
    "__down_timeout",
    "__down_common",
    "___down_common",
    "down_read",
    "down_read_interruptible",
    "down_read_killable",
    "down_read_nested",
    "down_write",
    "down_write_killable",
    "down_write_nested",
];

#[derive(Clone, Debug)]
struct Symbol {
    address: u64,
    is_code: bool,
    /// With the module in brackets.
    name: String,
}

/// The symbols, by address.
#[derive(Clone, Debug, Default)]
pub(crate) struct KernelSymbols {
    symbols: Vec<Symbol>,
    lists_variables: bool,
}

impl KernelSymbols {
    /// Reads the symbols. There are none if the kernel hides the addresses.
    pub(crate) fn read(root: &Root) -> KernelSymbols {
        let bytes = root.bytes("proc/kallsyms", BYTES_MAX).unwrap_or_default();
        let lines = bytes.split(|byte| *byte == b'\n');
        let mut symbols: Vec<Symbol> =
            lines.filter_map(|line| parse(&String::from_utf8_lossy(line))).collect();
        // Stable: the first of several symbols at an address names it.
        symbols.sort_by_key(|symbol| symbol.address);
        let lists_variables =
            symbols.iter().any(|symbol| !symbol.is_code && symbol.name == KNOWN_VARIABLE);
        KernelSymbols { symbols, lists_variables }
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.symbols.is_empty()
    }

    /// Whether variables have names. They have none on kernels without CONFIG_KALLSYMS_ALL.
    pub(crate) fn lists_variables(&self) -> bool {
        self.lists_variables
    }

    /// The function of a return address, and the offset: `vfs_write+0x1c`. The address itself without a known
    /// function.
    pub(crate) fn call_site(&self, return_address: u64) -> String {
        // A call may be the last instruction of a function that does not return.
        let called_before = return_address.saturating_sub(1);
        match self.symbol_before(called_before) {
            Some(symbol)
                if symbol.is_code && called_before - symbol.address < FUNCTION_BYTES_MAX =>
            {
                format!("{}+{:#x}", symbol.name, return_address - symbol.address)
            }
            _ => format!("{return_address:#x}"),
        }
    }

    /// The variable at `address`, and the offset in it unless it is 0. `None` without a known variable.
    pub(crate) fn variable(&self, address: u64) -> Option<String> {
        let symbol = self.symbol_before(address)?;
        let offset = address - symbol.address;
        if !self.lists_variables || symbol.is_code || offset >= VARIABLE_BYTES_MAX {
            return None;
        }
        Some(match offset {
            0 => symbol.name.clone(),
            _ => format!("{}+{offset:#x}", symbol.name),
        })
    }

    /// The first symbol at the highest address that is not above `address`.
    fn symbol_before(&self, address: u64) -> Option<&Symbol> {
        let end = self.symbols.partition_point(|symbol| symbol.address <= address);
        let start = self.symbols[..end].last()?.address;
        let first = self.symbols.partition_point(|symbol| symbol.address < start);
        self.symbols.get(first)
    }

    /// The start and end of each range of functions that take locks. Adjacent functions share a range.
    pub(crate) fn lock_functions(&self) -> Vec<[u64; 2]> {
        let mut ranges: Vec<[u64; 2]> = Vec::new();
        let code = || self.symbols.iter().filter(|symbol| symbol.is_code);
        for (symbol, next) in code().zip(code().skip(1)) {
            if !takes_lock(&symbol.name) {
                continue;
            }
            match ranges.last_mut() {
                Some([_, end]) if *end >= symbol.address => *end = next.address,
                _ => ranges.push([symbol.address, next.address]),
            }
        }
        ranges.retain(|[start, end]| end > start);
        ranges
    }
}

/// Whether a function takes a lock. The compiler adds suffixes to the names of copies, and the linker marks the padding
/// before functions as `__pfx_`.
fn takes_lock(name: &str) -> bool {
    let name = name.strip_prefix("__pfx_").unwrap_or(name);
    let name = name.split('.').next().unwrap_or_default();
    LOCK_FUNCTIONS.contains(&name) || LOCK_PREFIXES.iter().any(|prefix| name.starts_with(prefix))
}

/// Parses a line of /proc/kallsyms: `ADDRESS KIND NAME`, and `[MODULE]` after a tab. `None` where the kernel hides the
/// address as 0, and for symbols that are neither code nor variables.
fn parse(line: &str) -> Option<Symbol> {
    let mut words = line.split_ascii_whitespace();
    let address = u64::from_str_radix(words.next()?, 16).ok().filter(|address| *address != 0)?;
    let is_code = match words.next()? {
        "t" | "T" | "w" | "W" => true,
        "d" | "D" | "b" | "B" | "r" | "R" | "v" | "V" => false,
        _ => return None,
    };
    let name = words.next()?.to_owned();
    let name = match words.next() {
        Some(module) => format!("{name} {module}"),
        None => name,
    };
    Some(Symbol { address, is_code, name })
}

#[cfg(test)]
mod tests {
    use super::super::root::plant;
    use super::*;

    const TEXT: &str = "ffffffff81000000 T _text\n\
                        ffffffff81000000 T startup_64\n\
                        ffffffff81000100 t do_work\n\
                        ffffffff81000200 t __pfx_mutex_lock\n\
                        ffffffff81000210 T mutex_lock\n\
                        ffffffff81000300 t rwsem_down_write_slowpath.constprop.0\n\
                        ffffffff81000400 T mutex_unlock\n\
                        ffffffff81000500 T _raw_spin_lock\n\
                        ffffffff81000540 T _raw_spin_unlock\n\
                        ffffffff82000000 d runqueue_lock\n\
                        ffffffff82000040 D tasklist_lock\n\
                        0000000000000000 t hidden\n\
                        ffffffffc0000010 t tx\t[virtio_net]\n\
                        ffffffffc0001000 b tx_lock\t[virtio_net]\n";

    fn symbols(text: &str) -> KernelSymbols {
        let directory = tempfile::tempdir().unwrap();
        plant(directory.path(), "proc/kallsyms", text);
        KernelSymbols::read(&Root::new(directory.path()))
    }

    #[test]
    fn call_sites_and_variables_have_names_and_offsets() {
        let symbols = symbols(TEXT);
        assert_eq!(symbols.call_site(0xffff_ffff_8100_0180), "do_work+0x80");
        assert_eq!(symbols.call_site(0xffff_ffff_8100_0200), "do_work+0x100", "its last call");
        assert_eq!(symbols.call_site(0xffff_ffff_c000_0050), "tx [virtio_net]+0x40");
        assert_eq!(symbols.call_site(0xffff_ffff_8200_0050), "0xffffffff82000050", "no code");
        let variable = |address| symbols.variable(address);
        assert_eq!(variable(0xffff_ffff_8200_0000).as_deref(), Some("runqueue_lock"));
        assert_eq!(variable(0xffff_ffff_8200_0048).as_deref(), Some("tasklist_lock+0x8"));
        assert_eq!(variable(0xffff_ffff_c000_1000).as_deref(), Some("tx_lock [virtio_net]"));
        assert_eq!(variable(0xffff_ffff_8100_0180), None, "code");
        assert_eq!(variable(0xffff_8880_1234_5678), None);
    }

    #[test]
    fn variables_are_not_named_if_the_kernel_does_not_list_them() {
        let symbols = symbols(&TEXT.replace("tasklist_lock", "__start_rodata"));
        assert!(!symbols.lists_variables() && !symbols.is_empty());
        assert_eq!(symbols.variable(0xffff_ffff_8200_0000), None);
    }

    #[test]
    fn functions_that_take_locks_are_found_and_those_that_release_are_not() {
        let expected = [
            [0xffff_ffff_8100_0200, 0xffff_ffff_8100_0400],
            [0xffff_ffff_8100_0500, 0xffff_ffff_8100_0540],
        ];
        assert_eq!(symbols(TEXT).lock_functions(), expected);
        assert!(symbols("0000000000000000 T mutex_lock\n").is_empty());
    }
}
