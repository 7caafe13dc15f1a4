//! A block as a core sees it: its instructions decoded, once, when QEMU translates it.

use machine::CodeSpan;
use machine::core::{Instruction, Layout, Template};
use machine::decode::Instructions;

/// An instruction as QEMU has it: its bytes and its address.
pub(crate) type Coded<'a> = (&'a [u8], u64);

/// The template of a block that lies in the spans. Code is taken for that of 64 bits: of firmware in
/// other modes, lengths and addresses are right, and what instructions do may not be.
pub(crate) fn template<'a>(
    decoder: &mut Instructions,
    layout: Layout,
    spans: (CodeSpan, Option<CodeSpan>),
    code: impl Iterator<Item = Coded<'a>>,
) -> Template {
    let mut target = None;
    let decode = |(bytes, address): Coded| {
        let decoded = decoder.decode(bytes, address);
        target = decoded.target;
        decoded.instruction.with_bytes(bytes.len() as u8)
    };
    let instructions: Vec<Instruction> = code.map(decode).collect();
    Template::new(layout, spans, &instructions, target)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_block_has_its_instructions_and_whether_it_ends_in_a_branch() {
        let mut decoder = Instructions::default();
        let layout = Layout { line_shift: 6, follows_stack: false };
        let span = CodeSpan { virtual_address: 0x1000, physical: 0x5000, bytes: 5 };
        let add: &[u8] = &[0x48, 0x01, 0xd8];
        let jump: &[u8] = &[0x75, 0xf9];
        let mut of =
            |code: [Coded; 2]| template(&mut decoder, layout, (span, None), code.into_iter());
        let with = of([(add, 0x1000), (jump, 0x1003)]);
        assert_eq!((with.len(), with.ends_in_branch(), with.address()), (2, true, 0x1000));
        assert!(!of([(jump, 0x1000), (add, 0x1002)]).ends_in_branch());
    }
}
