//! The part of QEMU's plugin API, version 7, that the plugin uses: types, and tables of functions. `guest_access.rs`
//! wraps the functions safely.
//!
//! The functions are not linked, but found by name when QEMU loads the plugin. So a missing function gives a message,
//! and test programs can link this crate without QEMU.

use std::ffi::{CStr, c_char, c_int, c_uint, c_void};

/// The API version that this plugin is written for.
pub(crate) const API_VERSION: c_int = 7;

/// `qemu_plugin_id_t`: the number by which QEMU knows this plugin.
pub(crate) type Id = u64;

/// `qemu_info_t`, for a system emulator.
#[repr(C)]
pub(crate) struct Info {
    pub(crate) target: *const c_char,
    pub(crate) api_min: c_int,
    pub(crate) api: c_int,
    pub(crate) system: bool,
    pub(crate) cpus: c_int,
    pub(crate) cpus_max: c_int,
}

/// The public part of GLib's growing array of bytes.
#[repr(C)]
pub(crate) struct GByteArray {
    pub(crate) data: *mut u8,
    pub(crate) len: c_uint,
}

/// The public part of GLib's growing array.
#[repr(C)]
pub(crate) struct GArray {
    pub(crate) data: *mut c_void,
    pub(crate) len: c_uint,
}

/// `qemu_plugin_reg_descriptor`.
#[repr(C)]
pub(crate) struct RegisterDescriptor {
    pub(crate) handle: *mut c_void,
    pub(crate) name: *const c_char,
    pub(crate) feature: *const c_char,
    pub(crate) read_only: bool,
}

/// `QEMU_PLUGIN_CB_NO_REGS`.
pub(crate) const NO_REGISTERS: c_int = 0;
/// `QEMU_PLUGIN_CB_R_REGS`.
pub(crate) const READS_REGISTERS: c_int = 1;
/// `QEMU_PLUGIN_MEM_R`.
pub(crate) const READS: c_int = 1;
/// `QEMU_PLUGIN_MEM_W`.
pub(crate) const WRITES: c_int = 2;
/// `QEMU_PLUGIN_CB_RW_REGS`.
pub(crate) const WRITES_REGISTERS: c_int = 2;
/// `QEMU_PLUGIN_CB_RW_REGS_PC`.
pub(crate) const WRITES_PC: c_int = 3;
/// `QEMU_PLUGIN_MEM_RW`.
pub(crate) const READS_AND_WRITES: c_int = 3;
/// `QEMU_PLUGIN_DISCON_INTERRUPT`.
pub(crate) const DISCONTINUITY_INTERRUPT: c_int = 1;
/// `QEMU_PLUGIN_DISCON_EXCEPTION`.
pub(crate) const DISCONTINUITY_EXCEPTION: c_int = 2;

pub(crate) type ResetCallback = extern "C" fn(Id);
pub(crate) type DataCallback = extern "C" fn(*mut c_void);
pub(crate) type VcpuCallback = extern "C" fn(c_uint, *mut c_void);
pub(crate) type MemoryCallback = extern "C" fn(c_uint, u32, u64, *mut c_void);

/// The callbacks of an instruction's accesses.
pub(crate) struct AccessCallbacks {
    pub(crate) on_load: MemoryCallback,
    pub(crate) on_store: MemoryCallback,
}
pub(crate) type TranslationCallback = extern "C" fn(*mut c_void, *mut c_void);
/// `qemu_plugin_set_pc`: continues at another instruction. Returns only if the callback was registered without
/// [`WRITES_PC`].
pub(crate) type SetPc = unsafe extern "C" fn(u64);
pub(crate) type DiscontinuityCallback = extern "C" fn(c_uint, c_int, u64, u64, *mut c_void);

/// The address of a function or variable of this process, by its name. Null if there is none.
pub(crate) fn find(name: &CStr) -> *mut c_void {
    // SAFETY: the name is a C string; RTLD_DEFAULT searches the loaded libraries.
    unsafe { libc::dlsym(libc::RTLD_DEFAULT, name.as_ptr()) }
}

macro_rules! api {
    ($(#[$doc:meta])* struct $table:ident;
     $(fn $name:ident($($argument:ty),*) $(-> $result:ty)?;)*) => {
        $(#[$doc])*
        pub(crate) struct $table {
            $(pub(crate) $name: unsafe extern "C" fn($($argument),*) $(-> $result)?,)*
        }

        impl $table {
            /// Finds all functions. The error is the name of a missing function.
            pub(crate) fn load() -> Result<$table, &'static str> {
                Ok($table {
                    $($name: {
                        let name = concat!(stringify!($name), "\0");
                        let name = CStr::from_bytes_with_nul(name.as_bytes());
                        let found = name.map_or(std::ptr::null_mut(), find);
                        if found.is_null() {
                            return Err(stringify!($name));
                        }
                        // SAFETY: the function of this name has this signature in API 7, which
                        // `qemu_plugin_install` has checked (GLib's are stable).
                        unsafe {
                            std::mem::transmute::<
                                *mut c_void,
                                unsafe extern "C" fn($($argument),*) $(-> $result)?,
                            >(found)
                        }
                    },)*
                })
            }
        }
    };
}

api! {
    /// QEMU functions for memory callbacks.
    struct Access;
    fn qemu_plugin_get_hwaddr(u32, u64) -> *const c_void;
    fn qemu_plugin_hwaddr_is_io(*const c_void) -> bool;
    fn qemu_plugin_hwaddr_phys_addr(*const c_void) -> u64;
    fn qemu_plugin_translate_vaddr(u64, *mut u64) -> bool;
    fn qemu_plugin_mem_size_shift(u32) -> c_uint;
}

api! {
    /// The functions of QEMU and GLib that the plugin uses.
    struct Api;
    fn qemu_plugin_register_vcpu_init_cb(Id, VcpuCallback, *mut c_void);
    fn qemu_plugin_register_vcpu_tb_trans_cb(Id, TranslationCallback, *mut c_void);
    fn qemu_plugin_register_vcpu_discon_cb(Id, c_int, DiscontinuityCallback, *mut c_void);
    fn qemu_plugin_reset(Id, ResetCallback);
    fn qemu_plugin_register_flush_cb(Id, DataCallback, *mut c_void);
    fn qemu_plugin_register_atexit_cb(Id, DataCallback, *mut c_void);
    fn qemu_plugin_register_vcpu_tb_exec_cb(*mut c_void, VcpuCallback, c_int, *mut c_void);
    fn qemu_plugin_register_vcpu_insn_exec_cb(*mut c_void, VcpuCallback, c_int, *mut c_void);
    fn qemu_plugin_register_vcpu_mem_cb(*mut c_void, MemoryCallback, c_int, c_int, *mut c_void);
    fn qemu_plugin_tb_n_insns(*const c_void) -> usize;
    fn qemu_plugin_tb_get_insn(*const c_void, usize) -> *mut c_void;
    fn qemu_plugin_insn_vaddr(*const c_void) -> u64;
    fn qemu_plugin_insn_data(*const c_void, *mut c_void, usize) -> usize;
    fn qemu_plugin_get_registers() -> *mut GArray;
    fn qemu_plugin_read_register(*mut c_void, *mut GByteArray) -> bool;
    fn qemu_plugin_write_register(*mut c_void, *mut GByteArray) -> bool;
    fn qemu_plugin_set_pc(u64);
    fn qemu_plugin_read_memory_vaddr(u64, *mut GByteArray, usize) -> bool;
    fn g_byte_array_new() -> *mut GByteArray;
    fn g_byte_array_set_size(*mut GByteArray, c_uint) -> *mut GByteArray;
    fn g_array_get_element_size(*mut GArray) -> c_uint;
    fn g_array_unref(*mut GArray);
}
