//! Makes the template of a block, which a core of the level `ooo` executes. `translate.rs` calls it once, when QEMU
//! translates the block.

use machine::CodeSpan;
use machine::core::{Instruction, Layout, Template};
use machine::decode::{Decoded, Decoder};

/// The template of a block whose code lies at `spans`. `code`: its instructions, with their lengths in bytes.
///
/// All code is decoded as 64-bit code. For firmware in other modes, lengths and addresses are right, but the effects of
/// instructions may be wrong.
pub(crate) fn template<'a>(
    decoder: &mut Decoder,
    layout: Layout,
    spans: (CodeSpan, Option<CodeSpan>),
    code: impl Iterator<Item = (&'a Decoded, u8)>,
) -> Template {
    let mut target = None;
    let core_instruction = |(decoded, bytes): (&Decoded, u8)| {
        // Only the target of the last instruction remains, which may be a branch.
        target = decoded.target();
        decoder.core_instruction(decoded).with_bytes(bytes)
    };
    let instructions: Vec<Instruction> = code.map(core_instruction).collect();
    Template::new(layout, spans, &instructions, target)
}

#[cfg(test)]
mod tests {
    use machine::{PhysicalAddress, VirtualAddress};

    use super::*;

    #[test]
    fn a_block_has_its_instructions_and_whether_it_ends_in_a_branch() {
        let mut decoder = Decoder::default();
        let layout = Layout { line_shift: 6, ..Layout::default() };
        let virtual_address = VirtualAddress(0x1000);
        let physical = PhysicalAddress(0x5000);
        let span = CodeSpan { virtual_address, physical, bytes: 5 };
        let add: &[u8] = &[0x48, 0x01, 0xd8];
        let jump: &[u8] = &[0x75, 0xf9];
        let mut template_of = |code: [(&[u8], u64); 2]| {
            let decoded =
                code.map(|(bytes, address)| decoder.decode(bytes, VirtualAddress(address)));
            let lengths = code.map(|(bytes, _)| bytes.len() as u8);
            let code = decoded.iter().zip(lengths);
            template(&mut decoder, layout, (span, None), code)
        };
        let with_branch = template_of([(add, 0x1000), (jump, 0x1003)]);
        assert_eq!(
            (with_branch.len(), with_branch.ends_in_branch(), with_branch.address()),
            (2, true, virtual_address)
        );
        assert!(!template_of([(jump, 0x1000), (add, 0x1002)]).ends_in_branch());
    }
}
