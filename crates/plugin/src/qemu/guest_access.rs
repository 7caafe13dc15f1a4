//! Safe functions over QEMU's plugin API (`ffi.rs`): they read and write the guest's registers, read the guest's
//! memory, and register callbacks. The session has one [`Qemu`].
//!
//! Functions that access the guest work on the running vCPU, and only in callbacks in its thread.

use std::ffi::{CStr, CString, c_int, c_uint, c_void};
use std::ptr;

use machine::VirtualAddress;

use crate::qemu::ffi::{
    Api, DataCallback, DiscontinuityCallback, GByteArray, Id, MemoryCallback, NO_REGISTERS,
    READS_REGISTERS, RegisterDescriptor, ResetCallback, SetPc, TranslationCallback, VcpuCallback,
};

use plugin_interface::annotations::REGISTERS;

/// The most bytes that are read from the guest at once.
const READ_BYTES_MAX: usize = 64;

/// QEMU's handle of a register of the guest.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Register(*mut c_void);

/// The flag `IF` in `eflags`: the processor takes interrupts.
pub(crate) const INTERRUPT_FLAG: u32 = 1 << 9;

/// The registers that the plugin reads or writes. `None`: this QEMU does not show the register.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Registers {
    pub(crate) rax: Register,
    pub(crate) rbx: Register,
    pub(crate) rcx: Register,
    pub(crate) rdx: Register,
    pub(crate) rsi: Register,
    pub(crate) rdi: Register,
    pub(crate) rsp: Register,
    pub(crate) rip: Register,
    pub(crate) gs_base: Register,
    pub(crate) k_gs_base: Option<Register>,
    pub(crate) cr4: Option<Register>,
    pub(crate) eflags: Option<Register>,
    /// The registers of [`REGISTERS`], in its order.
    pub(crate) named: [Option<Register>; REGISTERS.len()],
}

/// The callbacks of a machine that is recorded.
pub(crate) struct Callbacks {
    pub(crate) vcpu: VcpuCallback,
    /// A block is translated.
    pub(crate) translation: TranslationCallback,
    /// The code cache is empty.
    pub(crate) flush: DataCallback,
    /// QEMU ends, and the vCPUs have stopped.
    pub(crate) exit: DataCallback,
    /// A vCPU raises an exception, or enters a handler. `None`: the level of detail does not need this.
    pub(crate) discontinuity: Option<DiscontinuityCallback>,
}

/// The plugin API with a buffer to read into.
pub(crate) struct Qemu {
    api: Api,
    id: Id,
    /// The callback of [`Qemu::reset`].
    on_reset: ResetCallback,
    buffer: *mut GByteArray,
}

// SAFETY: the buffer belongs to this value alone, and is used through `&mut self` only.
unsafe impl Send for Qemu {}

/// A block while it is translated.
#[derive(Clone, Copy)]
pub(crate) struct TranslatedBlock(*mut c_void);

/// An instruction while its block is translated.
#[derive(Clone, Copy)]
pub(crate) struct TranslatedInstruction(*mut c_void);

impl TranslatedBlock {
    /// Wraps the argument of a translation callback. Valid until the callback returns.
    pub(crate) fn new(handle: *mut c_void) -> TranslatedBlock {
        TranslatedBlock(handle)
    }
}

impl Qemu {
    /// Finds the API in this process. The error is the name of a missing function.
    pub(crate) fn new(id: Id, on_reset: ResetCallback) -> Result<Qemu, &'static str> {
        let api = Api::load()?;
        // SAFETY: makes an array that this value keeps for good.
        let buffer = unsafe { (api.g_byte_array_new)() };
        Ok(Qemu { api, id, on_reset, buffer })
    }

    /// Makes QEMU drop all translated code and all callbacks when the vCPU leaves its block. QEMU then calls the
    /// callback of a reset, which registers callbacks again.
    pub(crate) fn reset(&self) {
        // SAFETY: called in a vCPU's thread; the function is never unloaded.
        unsafe { (self.api.qemu_plugin_reset)(self.id, self.on_reset) };
    }

    /// Registers the callbacks of a machine.
    pub(crate) fn register(&self, callbacks: &Callbacks) {
        let (api, id, none) = (&self.api, self.id, ptr::null_mut());
        // SAFETY: called from `qemu_plugin_install` or from the callback of a reset; the functions are never unloaded.
        unsafe {
            (api.qemu_plugin_register_vcpu_init_cb)(id, callbacks.vcpu, none);
            (api.qemu_plugin_register_vcpu_tb_trans_cb)(id, callbacks.translation, none);
            (api.qemu_plugin_register_flush_cb)(id, callbacks.flush, none);
            (api.qemu_plugin_register_atexit_cb)(id, callbacks.exit, none);
            if let Some(discontinuity) = callbacks.discontinuity {
                let kinds: c_int = crate::qemu::ffi::DISCONTINUITY_INTERRUPT
                    | crate::qemu::ffi::DISCONTINUITY_EXCEPTION;
                (api.qemu_plugin_register_vcpu_discon_cb)(id, kinds, discontinuity, none);
            }
        }
    }

    /// Registers the only callback of a machine that is not recorded, but has a limit of guest time.
    pub(crate) fn register_limit(&self, on_vcpu: VcpuCallback) {
        // SAFETY: called from `qemu_plugin_install`; the function is never unloaded.
        unsafe {
            (self.api.qemu_plugin_register_vcpu_init_cb)(self.id, on_vcpu, ptr::null_mut());
        }
    }

    /// The instructions of a block, with their addresses.
    pub(crate) fn instructions(
        &self,
        block: TranslatedBlock,
    ) -> impl Iterator<Item = (TranslatedInstruction, VirtualAddress)> + '_ {
        // SAFETY: the block is valid during the translation callback.
        let count = unsafe { (self.api.qemu_plugin_tb_n_insns)(block.0) };
        (0..count).map(move |index| {
            // SAFETY: the block is valid, the index is below its count.
            unsafe {
                let handle = (self.api.qemu_plugin_tb_get_insn)(block.0, index);
                let address = VirtualAddress((self.api.qemu_plugin_insn_vaddr)(handle));
                (TranslatedInstruction(handle), address)
            }
        })
    }

    /// The bytes of an instruction, and how many of them are valid: at most 15.
    pub(crate) fn bytes(&self, instruction: TranslatedInstruction) -> ([u8; 16], usize) {
        let mut bytes = [0; 16];
        // SAFETY: the instruction is valid during the translation callback; at most 16 bytes are
        // written.
        let length = unsafe {
            (self.api.qemu_plugin_insn_data)(instruction.0, bytes.as_mut_ptr().cast(), bytes.len())
        };
        (bytes, length.min(bytes.len()))
    }

    /// Makes QEMU call `callback` with `data` whenever the block starts. `register_access` says how the callback may
    /// access registers, for example [`READS_REGISTERS`].
    pub(crate) fn on_block(
        &self,
        block: TranslatedBlock,
        callback: VcpuCallback,
        register_access: c_int,
        data: *mut c_void,
    ) {
        // SAFETY: the block is valid; `data` lives until the code cache is flushed.
        unsafe {
            (self.api.qemu_plugin_register_vcpu_tb_exec_cb)(
                block.0,
                callback,
                register_access,
                data,
            );
        }
    }

    /// Makes QEMU call `callback` with `data` before each execution of the instruction. The callback may read
    /// registers.
    pub(crate) fn on_instruction(
        &self,
        instruction: TranslatedInstruction,
        callback: VcpuCallback,
        data: *mut c_void,
    ) {
        self.on_instruction_with(instruction, callback, READS_REGISTERS, data);
    }

    /// Makes QEMU call `callback` with `data` before each execution of the instruction. `register_access` says how the
    /// callback may access registers: [`NO_REGISTERS`], [`READS_REGISTERS`], or `WRITES_REGISTERS` or `WRITES_PC` of `ffi`.
    pub(crate) fn on_instruction_with(
        &self,
        instruction: TranslatedInstruction,
        callback: VcpuCallback,
        register_access: c_int,
        data: *mut c_void,
    ) {
        let register_callback = self.api.qemu_plugin_register_vcpu_insn_exec_cb;
        // SAFETY: the instruction is valid; `data` lives until the code cache is flushed.
        unsafe { register_callback(instruction.0, callback, register_access, data) };
    }

    /// Makes QEMU call `callback` with `data` after each access of the instruction. `kinds` selects reads, writes or
    /// both, for example [`crate::qemu::ffi::READS`].
    pub(crate) fn on_memory(
        &self,
        instruction: TranslatedInstruction,
        kinds: c_int,
        callback: MemoryCallback,
        data: *mut c_void,
    ) {
        // SAFETY: the instruction is valid; `data` lives until the code cache is flushed.
        unsafe {
            (self.api.qemu_plugin_register_vcpu_mem_cb)(
                instruction.0,
                callback,
                NO_REGISTERS,
                kinds,
                data,
            );
        }
    }

    /// Finds the registers by their names. Call it when QEMU creates a vCPU.
    ///
    /// Fails if QEMU gives no list of registers, describes registers otherwise, or lacks a required register.
    pub(crate) fn find_registers(&mut self) -> Result<Registers, String> {
        // SAFETY: called from a vCPU's init callback, where the list can be had.
        let list = unsafe { (self.api.qemu_plugin_get_registers)() };
        if list.is_null() {
            return Err("QEMU gives no list of registers".to_owned());
        }
        // SAFETY: the list is a GArray that is ours.
        let element = unsafe { (self.api.g_array_get_element_size)(list) } as usize;
        if element != size_of::<RegisterDescriptor>() {
            return Err(format!("QEMU describes registers in {element} bytes"));
        }
        let find = |wanted_name: &CStr| {
            // SAFETY: `len` elements of the size just checked.
            let (data, length) = unsafe { ((*list).data, (*list).len as usize) };
            (0..length)
                // SAFETY: the index is below the length.
                .map(|index| unsafe { &*data.cast::<RegisterDescriptor>().add(index) })
                .find(|row| {
                    // SAFETY: a name that is not null is a C string that QEMU never frees.
                    !row.name.is_null() && unsafe { CStr::from_ptr(row.name) } == wanted_name
                })
                .map(|row| Register(row.handle))
        };
        let required = |name: &CStr| find(name).ok_or(format!("QEMU knows no register {name:?}"));
        let registers = Ok(Registers {
            rax: required(c"rax")?,
            rbx: required(c"rbx")?,
            rcx: required(c"rcx")?,
            rdx: required(c"rdx")?,
            rsi: required(c"rsi")?,
            rdi: required(c"rdi")?,
            rsp: required(c"rsp")?,
            rip: required(c"rip")?,
            gs_base: required(c"gs_base")?,
            k_gs_base: find(c"k_gs_base"),
            cr4: find(c"cr4"),
            eflags: find(c"eflags"),
            named: REGISTERS.map(|name| find(&CString::new(name).ok()?)),
        });
        // SAFETY: the list is ours and not used again; names and handles are QEMU's.
        unsafe { (self.api.g_array_unref)(list) };
        registers
    }

    /// The value of a register of the running vCPU. 0 if QEMU cannot read it.
    pub(crate) fn register_value(&mut self, register: Register) -> u64 {
        self.clear();
        // SAFETY: called from callbacks that may read registers; the buffer is ours.
        let read = unsafe { (self.api.qemu_plugin_read_register)(register.0, self.buffer) };
        let mut value = [0; 8];
        if read && self.copy_out(&mut value) { u64::from_le_bytes(value) } else { 0 }
    }

    /// Whether the running vCPU takes interrupts. False if QEMU cannot tell.
    pub(crate) fn takes_interrupts(&mut self, registers: Registers) -> bool {
        let Some(eflags) = registers.eflags else { return false };
        self.clear();
        // SAFETY: called from callbacks that may read registers; the buffer is ours.
        let read = unsafe { (self.api.qemu_plugin_read_register)(eflags.0, self.buffer) };
        // QEMU gives four bytes of this register.
        let mut flags = [0; 4];
        read && self.copy_out(&mut flags) && u32::from_le_bytes(flags) & INTERRUPT_FLAG != 0
    }

    /// Writes a register of the running vCPU. Returns whether QEMU has written it.
    pub(crate) fn set_register(&mut self, register: Register, value: u64) -> bool {
        let bytes = value.to_le_bytes();
        // SAFETY: called from callbacks that may write registers. The buffer is ours, and as long
        // as the bytes that are copied into it.
        unsafe {
            (self.api.g_byte_array_set_size)(self.buffer, bytes.len() as c_uint);
            ptr::copy_nonoverlapping(bytes.as_ptr(), (*self.buffer).data, bytes.len());
            (self.api.qemu_plugin_write_register)(register.0, self.buffer)
        }
    }

    /// Puts a value into `edx` and `eax`, as `rdmsr`, `rdpmc` and `rdtsc` do. `None` if QEMU did not write a register.
    pub(crate) fn put_edx_eax(&mut self, registers: Registers, value: u64) -> Option<()> {
        let low = self.set_register(registers.rax, value & 0xffff_ffff);
        let high = self.set_register(registers.rdx, value >> 32);
        (low && high).then_some(())
    }

    /// The value in `edx` and `eax`.
    pub(crate) fn edx_eax(&mut self, registers: Registers) -> u64 {
        let low = self.register_value(registers.rax) & 0xffff_ffff;
        self.register_value(registers.rdx) << 32 | low
    }

    /// The address of the running instruction, relative to its segment's base, as [`Qemu::set_pc`] takes it. Valid once
    /// QEMU's state was restored in the middle of a block. The address at which the block was translated may be another
    /// one: QEMU uses a block again where its page is mapped elsewhere.
    pub(crate) fn instruction_pointer(&mut self, registers: Registers) -> VirtualAddress {
        VirtualAddress(self.register_value(registers.rip))
    }

    /// The function that continues at another instruction. It does not return, so the caller must hold no lock.
    pub(crate) fn set_pc(&self) -> SetPc {
        self.api.qemu_plugin_set_pc
    }

    /// Reads the guest's memory at a virtual address of the running vCPU. `None` if it is not mapped.
    pub(crate) fn memory<const BYTES: usize>(&mut self, address: u64) -> Option<[u8; BYTES]> {
        const { assert!(BYTES > 0 && BYTES <= READ_BYTES_MAX) };
        let mut bytes = [0; BYTES];
        self.read(address, &mut bytes).then_some(bytes)
    }

    /// Copies the guest's memory at a virtual address of the running vCPU to `bytes`. Returns whether the whole range
    /// is mapped. False if `bytes` is longer than [`READ_BYTES_MAX`].
    pub(crate) fn read(&mut self, address: u64, bytes: &mut [u8]) -> bool {
        let length = bytes.len().min(READ_BYTES_MAX);
        self.clear();
        // SAFETY: called in a vCPU's thread; the buffer is ours and grows as needed.
        let read =
            unsafe { (self.api.qemu_plugin_read_memory_vaddr)(address, self.buffer, length) };
        read && self.copy_out(bytes)
    }

    fn clear(&mut self) {
        // SAFETY: the buffer is ours.
        unsafe { (self.api.g_byte_array_set_size)(self.buffer, 0 as c_uint) };
    }

    /// Copies the start of the buffer to `bytes`. Returns false if the buffer is shorter.
    fn copy_out(&self, bytes: &mut [u8]) -> bool {
        // SAFETY: the buffer is ours; its first `len` bytes are valid, and no others are copied.
        unsafe {
            if ((*self.buffer).len as usize) < bytes.len() {
                return false;
            }
            ptr::copy_nonoverlapping((*self.buffer).data, bytes.as_mut_ptr(), bytes.len());
        }
        true
    }
}
