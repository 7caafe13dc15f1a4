//! Decodes x86-64 instructions into descriptions for the simulator. The plugin decodes each instruction once, when QEMU
//! translates its block; a replay of a block trace does the same.
//!
//! [`Decoder::decode`] tells the kind of an instruction: whether it is a branch, whether it can write to a device,
//! whether the simulator must act on it. [`Decoder::core_instruction`] describes it for a core: registers, memory
//! accesses, execution unit, special effect. iced-x86 knows the registers and the memory that an instruction uses; this
//! module adds the execution unit and the special effect. For flushes of cache lines and changes of address translations,
//! [`MemoryOperand`] says how the plugin computes the address from the guest's registers.
//!
//! The bytes come from a guest, so they may be anything: no bytes may cause a panic.

mod decoded;
mod description;
mod idioms;
mod registers;
mod special;
mod unit;
mod vector;

use iced_x86::{
    Decoder as BytesDecoder, DecoderOptions, InstructionInfoFactory, OpAccess, UsedMemory,
};

use crate::address::VirtualAddress;
use crate::core::{Instruction, Special};
pub use decoded::{
    Decoded, DeviceWrite, FlushedLine, MemoryOperand, Operation, OrOperand, TranslationChange,
};
use description::describe;

/// Maximum length of an instruction, in bytes.
const BYTES_MAX: usize = 15;

/// Decodes instructions. Keep it between instructions: it holds buffers of iced-x86.
pub struct Decoder {
    info: InstructionInfoFactory,
}

impl Default for Decoder {
    fn default() -> Decoder {
        Decoder { info: InstructionInfoFactory::new() }
    }
}

impl std::fmt::Debug for Decoder {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        formatter.write_str("Decoder")
    }
}

impl Decoder {
    /// Decodes the instruction at the start of `bytes`, whose address is `address`.
    ///
    /// Decodes 64-bit code first. An instruction that is invalid there is decoded as 32-bit or 16-bit code,
    /// except for [`Decoder::core_instruction`].
    #[must_use]
    pub fn decode(&self, bytes: &[u8], address: VirtualAddress) -> Decoded {
        let bytes = &bytes[..bytes.len().min(BYTES_MAX)];
        let decode_as =
            |bits| BytesDecoder::with_ip(bits, bytes, address.0, DecoderOptions::NONE).decode();
        let x86 = decode_as(64);
        let valid = if x86.is_invalid() {
            let other_modes = [32, 16].into_iter().map(decode_as);
            other_modes.into_iter().find(|candidate| !candidate.is_invalid()).unwrap_or(x86)
        } else {
            x86
        };
        Decoded { x86, valid, available_bytes: bytes.len() as u8 }
    }

    /// The description of the instruction for a core, as 64-bit code. An invalid instruction has no effect, but waits
    /// for all earlier instructions; its length is the number of available bytes.
    pub fn core_instruction(&mut self, decoded: &Decoded) -> Instruction {
        let x86 = &decoded.x86;
        if x86.is_invalid() {
            return Instruction::nothing(decoded.available_bytes).doing(Special::Fence);
        }
        describe(x86, self.info.info(x86)).with_bytes(x86.len() as u8)
    }

    /// Whether the instruction certainly writes to memory when it completes. Masked and conditional stores do not
    /// count, nor do addresses that are only computed (`lea`).
    #[must_use]
    pub fn stores(&mut self, decoded: &Decoded) -> bool {
        let is_written =
            |memory: &UsedMemory| matches!(memory.access(), OpAccess::Write | OpAccess::ReadWrite);
        !decoded.valid.is_invalid()
            && !decoded.is_repeated_string()
            && self.info.info(&decoded.valid).used_memory().iter().any(is_written)
    }
}

#[cfg(test)]
mod tests;
