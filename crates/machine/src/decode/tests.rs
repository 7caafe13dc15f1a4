//! The decoder on instructions that are given as bytes.

use proptest::prelude::*;

use super::*;
use crate::core::{Register, StringOperation, Unit};
use crate::predict::BranchKind;

const RAX: Register = Register::general(0);
const RCX: Register = Register::general(1);
const RDX: Register = Register::general(2);
const RBX: Register = Register::general(3);
const RSP: Register = Register::STACK_POINTER;
const RBP: Register = Register::general(5);
const RSI: Register = Register::general(6);
const RDI: Register = Register::general(7);
const FLAGS: Register = Register::FLAGS;

fn decoded(bytes: &[u8]) -> Decoded {
    Decoder::default().decode(bytes, VirtualAddress(0x1000))
}

fn decode(bytes: &[u8]) -> Instruction {
    Decoder::default().core_instruction(&decoded(bytes))
}

/// Registers as sets, whose order does not matter.
fn same(bytes: &[u8], expected: Instruction) {
    let sorted = |instruction: Instruction| {
        format!("{:?}", instruction.with_bytes(0).without_hints().with_sorted_operands())
    };
    let decoded = decode(bytes);
    assert_eq!(sorted(decoded), sorted(expected), "{bytes:02x?}");
}

#[test]
fn operations_read_and_write_their_operands_and_flags() {
    let integer = Instruction::of_unit(Unit::Integer);
    // add %rbx, %rax
    same(&[0x48, 0x01, 0xd8], integer.reading(&[RAX, RBX]).writing(&[RAX, FLAGS]));
    // mov %rbx, %rax
    same(&[0x48, 0x89, 0xd8], integer.reading(&[RBX]).writing(&[RAX]));
    // xor %eax, %eax: the result does not depend on the register's old value
    let logic = integer.as_operation(crate::core::Operation::Logic);
    same(&[0x31, 0xc0], logic.writing(&[RAX, FLAGS]));
    // cmp %rbx, %rax
    same(&[0x48, 0x39, 0xd8], integer.reading(&[RAX, RBX]).writing(&[FLAGS]));
    // mov $1, %al: the rest of the register stays
    same(&[0xb0, 0x01], integer.reading(&[RAX]).writing(&[RAX]));
    // cmove %rbx, %rax: it may stay
    let select = Instruction::of_unit(Unit::Select);
    let but_carry = Register::FLAGS_BUT_CARRY;
    same(&[0x48, 0x0f, 0x44, 0xc3], select.reading(&[RAX, RBX, but_carry]).writing(&[RAX]));
    // sete %al; shr $3, %rax; bt %rbx, %rax
    same(&[0x0f, 0x94, 0xc0], select.reading(&[RAX, but_carry]).writing(&[RAX]));
    let shift = Instruction::of_unit(Unit::Shift);
    same(&[0x48, 0xc1, 0xe8, 0x03], shift.reading(&[RAX]).writing(&[RAX, FLAGS]));
    same(&[0x48, 0x0f, 0xa3, 0xd8], shift.reading(&[RAX, RBX]).writing(&[Register::CARRY]));
    // lea 8(%rbx,%rcx), %rax
    let three = shift.as_operation(crate::core::Operation::LeaThree);
    same(&[0x48, 0x8d, 0x44, 0x0b, 0x08], three.reading(&[RBX, RCX]).writing(&[RAX]));
    // imul %rbx, %rax; div %rcx
    let multiply = Instruction::of_unit(Unit::Multiply);
    same(&[0x48, 0x0f, 0xaf, 0xc3], multiply.reading(&[RAX, RBX]).writing(&[RAX, FLAGS]));
    let divide = Instruction::of_unit(Unit::Divide);
    same(&[0x48, 0xf7, 0xf1], divide.reading(&[RAX, RDX, RCX]).writing(&[RAX, RDX, FLAGS]));
}

#[test]
fn addresses_are_distinguished_from_operands() {
    let nothing = Instruction::nothing(0);
    // mov (%rbx,%rcx), %rax
    same(&[0x48, 0x8b, 0x04, 0x0b], nothing.loading(&[RBX, RCX]).writing(&[RAX]));
    // mov (%rax), %rax
    same(&[0x48, 0x8b, 0x00], nothing.loading(&[RAX]).writing(&[RAX]));
    // mov %rax, (%rax)
    same(&[0x48, 0x89, 0x00], nothing.storing(&[RAX]).reading(&[RAX]));
    // add %rax, (%rbx): loads and stores
    let sum = Instruction::of_unit(Unit::Integer).loading(&[RBX]).storing(&[RBX]);
    same(&[0x48, 0x01, 0x03], sum.reading(&[RAX]).writing(&[FLAGS]));
    // lock add %rax, (%rbx)
    let atomic = sum.reading(&[RAX]).writing(&[FLAGS]).doing(Special::Atomic);
    same(&[0xf0, 0x48, 0x01, 0x03], atomic);
    // prefetcht0 (%rax), nopl (%rax): no access
    for bytes in [&[0x0f, 0x18, 0x08][..], &[0x0f, 0x1f, 0x00]] {
        assert!(!decode(bytes).loads() && !decode(bytes).stores());
    }
}

#[test]
fn the_stack_pointer_changes_as_a_side_effect() {
    let nothing = Instruction::nothing(0);
    // push %rbx; pop %rbx
    let push = nothing.storing(&[RSP]).reading(&[RBX]).moving(&[RSP]).moving_stack();
    same(&[0x53], push);
    same(&[0x5b], nothing.loading(&[RSP]).writing(&[RBX]).moving(&[RSP]).moving_stack());
    // call, ret
    let branch = Instruction::of_unit(Unit::Branch).moving(&[RSP]).moving_stack();
    same(&[0xe8, 0, 0, 0, 0], branch.storing(&[RSP]).branching(BranchKind::Call));
    same(&[0xc3], branch.loading(&[RSP]).branching(BranchKind::Return));
    // leave: the stack pointer comes from the frame's, which is loaded
    let leave = decode(&[0xc9]);
    let expected = Instruction::of_unit(Unit::Integer).loading(&[RBP]).writing(&[RSP, RBP]);
    assert_eq!(leave.with_sorted_operands().writes(), expected.with_sorted_operands().writes());
    // lodsb, and rep movsb with its counter
    assert_eq!(decode(&[0xac]).moves(), [RSI]);
    let copy = decode(&[0xf3, 0xa4]);
    assert!(copy.loads() && copy.stores());
    assert_eq!(copy.with_sorted_operands().moves(), [RSI, RDI]);
    assert!(copy.writes().contains(&RCX));
}

#[test]
fn branches_have_their_kinds_and_targets() {
    let branch =
        |bytes: &[u8]| (decode(bytes).branch(), decoded(bytes).target().map(|target| target.0));
    assert_eq!(branch(&[0x74, 0x10]), (Some(BranchKind::Conditional), Some(0x1012)));
    assert_eq!(branch(&[0xeb, 0xfe]), (Some(BranchKind::Jump), Some(0x1000)));
    assert_eq!(branch(&[0xe8, 0, 1, 0, 0]), (Some(BranchKind::Call), Some(0x1105)));
    assert_eq!(branch(&[0xff, 0xe0]), (Some(BranchKind::IndirectJump), None));
    assert_eq!(branch(&[0xff, 0xd0]), (Some(BranchKind::IndirectCall), None));
    assert_eq!(branch(&[0xff, 0x24, 0xc5, 0, 0, 0, 0]), (Some(BranchKind::IndirectJump), None));
    assert_eq!(branch(&[0xc3]), (Some(BranchKind::Return), None));
    assert_eq!(branch(&[0x48, 0xcf]), (None, None)); // iretq
    assert_eq!(branch(&[0x48, 0x01, 0xd8]), (None, None));
}

#[test]
fn special_behaviour_is_recognised() {
    let expected: [(&[u8], Special); 27] = [
        (&[0xd9, 0xfe], Special::Microcode),              // fsin
        (&[0xd9, 0xf1], Special::Microcode),              // fyl2x
        (&[0x0f, 0xa2], Special::Serialise),              // cpuid
        (&[0x0f, 0x22, 0xd8], Special::WriteControl),     // mov %rax, %cr3
        (&[0x0f, 0x20, 0xd8], Special::None),             // mov %cr3, %rax
        (&[0x0f, 0x30], Special::WriteMsr),               // wrmsr
        (&[0x0f, 0x32], Special::ReadMsr),                // rdmsr
        (&[0x0f, 0x01, 0x3f], Special::InvalidatePage),   // invlpg (%rdi)
        (&[0x0f, 0x01, 0xf8], Special::SwapGs),           // swapgs
        (&[0xfa], Special::WriteFlags),                   // cli
        (&[0x9d], Special::WriteFlags),                   // popfq
        (&[0xee], Special::Port),                         // out %al, (%dx)
        (&[0x0f, 0xae, 0xf8], Special::StoreFence),       // sfence
        (&[0x0f, 0xae, 0x3f], Special::FlushLine),        // clflush (%rdi)
        (&[0x0f, 0x01, 0xf9], Special::ReadClockOrdered), // rdtscp
        (&[0x48, 0xcf], Special::InterruptReturn),        // iretq
        (&[0x0f, 0x05], Special::SystemCall),             // syscall
        (&[0xcd, 0x80], Special::SystemCall),             // int $0x80
        (&[0x48, 0x0f, 0x07], Special::SystemReturn),     // sysretq
        (&[0x0f, 0xae, 0xe8], Special::Fence),            // lfence
        (&[0x0f, 0xae, 0xf0], Special::Barrier),          // mfence
        (&[0xf3, 0x90], Special::Pause),                  // pause
        (&[0x48, 0x87, 0x03], Special::Atomic),           // xchg %rax, (%rbx)
        (&[0x48, 0x87, 0xc3], Special::None),             // xchg %rax, %rbx
        (&[0x0f, 0x31], Special::ReadClock),              // rdtsc
        (&[0x48, 0x0f, 0xae, 0x00], Special::Microcode),  // fxsave64 (%rax)
        (&[0x06], Special::Fence),                        // none of 64-bit code
    ];
    for (bytes, special) in expected {
        assert_eq!(decode(bytes).special(), special, "{bytes:02x?}");
    }
}

#[test]
fn an_instruction_has_room_for_what_it_uses() {
    let used: [&[u8]; 8] = [
        &[0xff, 0x94, 0xc3, 0xb0, 0, 0, 0],    // call *0xb0(%rbx,%rax,8)
        &[0xff, 0x74, 0x03, 0x08],             // push 8(%rbx,%rax)
        &[0xf3, 0x48, 0xa5],                   // rep movsq
        &[0xf0, 0x48, 0x0f, 0xc7, 0x0f],       // lock cmpxchg16b (%rdi)
        &[0xf0, 0x48, 0x0f, 0xb1, 0x0c, 0x03], // lock cmpxchg %rcx, (%rbx,%rax)
        &[0x48, 0x0f, 0xad, 0xd0],             // shrd %cl, %rdx, %rax
        &[0xc5, 0xf8, 0x77],                   // vzeroupper
        &[0x62, 0xf2, 0xed, 0x49, 0xb8, 0xc1], // vfmadd231pd %zmm1, %zmm2, %zmm0{%k1}
    ];
    for bytes in used {
        assert_ne!(decode(bytes).special(), Special::Fence, "{bytes:02x?}");
    }
}

#[test]
fn vector_operations_have_their_units() {
    let expected: [(&[u8], Option<Unit>); 9] = [
        (&[0xf2, 0x0f, 0x58, 0xc1], Some(Unit::FloatAdd)), // addsd
        (&[0xf2, 0x0f, 0x59, 0xc1], Some(Unit::FloatMultiply)), // mulsd
        (&[0xf2, 0x0f, 0x5e, 0xc1], Some(Unit::FloatDivide)), // divsd
        (&[0xc4, 0xe2, 0xf1, 0xb8, 0xc2], Some(Unit::FloatMultiply)), // vfmadd231pd
        (&[0x66, 0x0f, 0xfe, 0xc1], Some(Unit::Vector)),   // paddd
        (&[0x0f, 0x28, 0xc1], Some(Unit::Vector)),         // movaps, registers
        (&[0x0f, 0x28, 0x00], None),                       // movaps (%rax), %xmm0
        (&[0xf2, 0x0f, 0x58, 0x00], Some(Unit::FloatAdd)), // addsd (%rax), %xmm0
        (&[0xd8, 0xc1], Some(Unit::FloatAdd)),             // fadd %st(1), %st
    ];
    for (bytes, unit) in expected {
        assert_eq!(decode(bytes).unit, unit, "{bytes:02x?}");
    }
    // pxor %xmm0, %xmm0 depends on nothing.
    assert!(decode(&[0x66, 0x0f, 0xef, 0xc0]).reads().is_empty());
}

#[test]
fn x87_instructions_use_the_stack_and_a_vector_unit() {
    let (read, written) = ([Register::X87], [Register::X87]);
    // fldl (%rdi); fildl (%rdi); fld1; fldz; fld %st(1)
    let pushes: [&[u8]; 5] =
        [&[0xdd, 0x07], &[0xdb, 0x07], &[0xd9, 0xe8], &[0xd9, 0xee], &[0xd9, 0xc1]];
    for bytes in pushes {
        let push = decode(bytes);
        assert_eq!((push.reads(), push.writes()), (read.to_vec(), written.to_vec()));
    }
    // fildl (%rdi); fistpl (%rdi); fisttpl (%rdi); fld1; fcoms (%rdi)
    let units: [(&[u8], Option<Unit>); 5] = [
        (&[0xdb, 0x07], Some(Unit::FloatAdd)),
        (&[0xdb, 0x1f], Some(Unit::FloatAdd)),
        (&[0xdb, 0x0f], Some(Unit::FloatAdd)),
        (&[0xd9, 0xe8], Some(Unit::Vector)),
        (&[0xd8, 0x17], Some(Unit::FloatAdd)),
    ];
    for (bytes, unit) in units {
        assert_eq!(decode(bytes).unit, unit, "{bytes:02x?}");
    }
    // fcoms (%rdi); fnstsw %ax: neither has to do with the flags of integer arithmetic.
    assert_eq!(decode(&[0xd8, 0x17]).writes(), [Register::X87_CONDITIONS]);
    assert!(decode(&[0xdf, 0xe0]).reads().contains(&Register::X87_CONDITIONS));
}

#[test]
fn flags_that_an_instruction_keeps_are_not_written() {
    let but_carry = Register::FLAGS_BUT_CARRY;
    assert_eq!(decode(&[0x48, 0xff, 0xc0]).writes(), [RAX, but_carry]); // inc %rax
    assert_eq!(decode(&[0x48, 0x11, 0xd8]).writes(), [RAX, FLAGS]); // adc %rbx, %rax
    assert!(decode(&[0x48, 0x11, 0xd8]).reads().contains(&FLAGS));
    assert_eq!(decode(&[0x72, 0x10]).reads(), [FLAGS]); // jb
    assert_eq!(decode(&[0x74, 0x10]).reads(), [but_carry]); // je
    assert_eq!(decode(&[0x77, 0x10]).reads(), [FLAGS, but_carry]); // ja
    assert!(decode(&[0xfa]).writes().is_empty()); // cli
    let carry_alone: [&[u8]; 6] = [
        &[0xf9],                               // stc
        &[0x48, 0x0f, 0xa3, 0xd8],             // bt %rbx, %rax
        &[0x48, 0xc1, 0xc0, 0x03],             // rol $3, %rax
        &[0x48, 0xd1, 0xc0],                   // rol $1, %rax
        &[0x48, 0xc1, 0xd0, 0x03],             // rcl $3, %rax
        &[0x66, 0x48, 0x0f, 0x38, 0xf6, 0xc3], // adcx %rbx, %rax
    ];
    for bytes in carry_alone {
        assert!(decode(bytes).writes().contains(&Register::CARRY), "{bytes:02x?}");
    }
    let adox = decode(&[0xf3, 0x48, 0x0f, 0x38, 0xf6, 0xc3]); // adox %rbx, %rax
    assert!(adox.writes().contains(&but_carry) && adox.reads().contains(&but_carry));
    assert_eq!(decode(&[0x48, 0xc1, 0xe0, 0x03]).writes(), [RAX, FLAGS]); // shl $3, %rax
    assert!(decode(&[0xf2, 0xae]).reads().contains(&FLAGS)); // repne scasb
    assert!(!decode(&[0xae]).reads().contains(&FLAGS)); // scasb
    assert!(!decode(&[0xf3, 0xa4]).reads().contains(&FLAGS)); // rep movsb
}

#[test]
fn a_comparison_with_itself_needs_no_operand() {
    // pcmpeqd %xmm0, %xmm0; vpcmpeqd %xmm1, %xmm1, %xmm0; psubd %xmm0, %xmm0; pcmpgtb %xmm0, %xmm0
    let idioms: [(&[u8], bool); 4] = [
        (&[0x66, 0x0f, 0x76, 0xc0], false),
        (&[0xc5, 0xf1, 0x76, 0xc1], false),
        (&[0x66, 0x0f, 0xfa, 0xc0], true),
        (&[0x66, 0x0f, 0x64, 0xc0], true),
    ];
    for (bytes, is_zero) in idioms {
        assert!(decode(bytes).reads().is_empty(), "{bytes:02x?}");
        assert_eq!(decode(bytes).moves_or_zeroes(), (false, is_zero), "{bytes:02x?}");
    }
    assert_eq!(decode(&[0x66, 0x0f, 0x76, 0xc1]).reads().len(), 2);
}

#[test]
fn moves_and_zeroing_idioms_are_recognised() {
    let expected: [(&[u8], (bool, bool)); 14] = [
        (&[0x0f, 0x20, 0xd8], (false, false)),       // mov %cr3, %rax
        (&[0x0f, 0x21, 0xf8], (false, false)),       // mov %db7, %rax
        (&[0x66, 0x31, 0xc0], (false, false)),       // xor %ax, %ax: a part stays
        (&[0x30, 0xc0], (false, false)),             // xor %al, %al
        (&[0x48, 0x89, 0xd8], (true, false)),        // mov %rbx, %rax
        (&[0x89, 0xd8], (true, false)),              // mov %ebx, %eax
        (&[0x66, 0x89, 0xd8], (false, false)),       // mov %bx, %ax: a part stays
        (&[0x48, 0x8b, 0x03], (false, false)),       // mov (%rbx), %rax
        (&[0x0f, 0x28, 0xc1], (true, false)),        // movaps %xmm1, %xmm0
        (&[0xf3, 0x0f, 0x10, 0xc1], (false, false)), // movss %xmm1, %xmm0: a part stays
        (&[0x66, 0x48, 0x0f, 0x6e, 0xc0], (false, false)), // movq %rax, %xmm0
        (&[0x31, 0xc0], (false, true)),              // xor %eax, %eax
        (&[0x31, 0xd8], (false, false)),             // xor %ebx, %eax
        (&[0x66, 0x0f, 0xef, 0xc0], (false, true)),  // pxor %xmm0, %xmm0
    ];
    for (bytes, which) in expected {
        assert_eq!(decode(bytes).moves_or_zeroes(), which, "{bytes:02x?}");
    }
}

#[test]
fn string_operations_are_recognised() {
    use StringOperation::{Compare, Copy, Fill, Load, Scan};
    let expected: [(&[u8], Option<StringOperation>); 8] = [
        (&[0xf3, 0xa4], Some(Copy)),       // rep movsb
        (&[0xf3, 0x48, 0xa5], Some(Copy)), // rep movsq
        (&[0xf3, 0x48, 0xab], Some(Fill)), // rep stosq
        (&[0xf3, 0xac], Some(Load)),       // rep lodsb
        (&[0xf2, 0xae], Some(Scan)),       // repne scasb
        (&[0xf3, 0xa6], Some(Compare)),    // repe cmpsb
        (&[0xa4], None),                   // movsb
        (&[0xf2, 0x0f, 0x10, 0xc1], None), // movsd %xmm1, %xmm0
    ];
    for (bytes, which) in expected {
        assert_eq!(decode(bytes).string_operation(), which, "{bytes:02x?}");
    }
}

#[test]
fn operations_with_latencies_of_their_own_are_recognised() {
    use crate::core::Operation as Own;
    let expected: [(&[u8], Own); 27] = [
        (&[0x66, 0x0f, 0x3a, 0x44, 0xc1, 0], Own::Aes), // pclmulqdq $0, %xmm1, %xmm0
        (&[0xf3, 0x48, 0x0f, 0xb8, 0xc0], Own::PopulationCount),
        (&[0x4a, 0x8d, 0x44, 0x90, 0x08], Own::LeaThree), // lea 8(%rax,%r10,4), %rax
        (&[0x4a, 0x8d, 0x04, 0x90], Own::LeaScaled),      // lea (%rax,%r10,4), %rax
        (&[0x66, 0x0f, 0x2f, 0xc1], Own::FloatFlags),     // comisd %xmm1, %xmm0
        (&[0xf3, 0x48, 0x0f, 0xbc, 0xc0], Own::BitCount), // tzcnt
        (&[0x48, 0x0f, 0xbc, 0xc0], Own::BitScan),
        (&[0xc4, 0xc2, 0xfb, 0xf5, 0xc2], Own::BitDeposit), // pdep
        (&[0xf2, 0x49, 0x0f, 0x38, 0xf1, 0xc2], Own::Crc32),
        (&[0xf7, 0xf1], Own::Divide32), // div %ecx
        (&[0xf2, 0x0f, 0x59, 0xc1], Own::FloatMultiplyOnly), // mulsd
        (&[0xf2, 0x0f, 0x51, 0xc0], Own::FloatRoot), // sqrtsd
        (&[0xf2, 0x48, 0x0f, 0x2a, 0xc0], Own::Convert), // cvtsi2sd %rax, %xmm0
        (&[0x66, 0x48, 0x0f, 0x7e, 0xc0], Own::Cross), // movq %xmm0, %rax
        (&[0x66, 0x0f, 0x38, 0xdc, 0xc1], Own::Aes),
        (&[0x0f, 0x38, 0xcb, 0xca], Own::Sha),
        (&[0x0f, 0x5a, 0xc1], Own::VectorConvert), // cvtps2pd %xmm1, %xmm0
        (&[0x66, 0x0f, 0x3a, 0x63, 0xc1, 0], Own::StringCompare), // pcmpistri $0, %xmm1, %xmm0
        (&[0xc4, 0xe2, 0x75, 0x36, 0xc2], Own::LanePermute), // vpermd %ymm2, %ymm1, %ymm0
        (&[0xc4, 0xe3, 0x7d, 0x39, 0xc1, 1], Own::LaneMove), // vextracti128 $1, %ymm0, %xmm1
        (&[0xf2, 0x48, 0x0f, 0x2c, 0x07], Own::Convert), // cvttsd2si (%rdi), %rax
        (&[0x66, 0x0f, 0x70, 0xc1, 1], Own::SimpleShuffle), // pshufd $1, %xmm1, %xmm0
        (&[0x66, 0x0f, 0x60, 0xc1], Own::SimpleShuffle), // punpcklbw %xmm1, %xmm0
        (&[0xc4, 0xe3, 0x79, 0x04, 0xc1, 1], Own::SimpleShuffle), // vpermilps $1, %xmm1, %xmm0
        (&[0xc4, 0xe3, 0x7d, 0x4c, 0xc1, 0x20], Own::VariableBlend), // vpblendvb, four operands
        (&[0xc4, 0xe3, 0x7d, 0x38, 0xc1, 1], Own::LaneWiden), // vinserti128 $1, %xmm1, %ymm0, %ymm0
        (&[0xc4, 0xe2, 0x7d, 0x30, 0x07], Own::LaneWiden), // vpmovzxbw (%rdi), %ymm0
    ];
    for (bytes, own) in expected {
        assert!(decode(bytes).takes_latency_of(own), "{bytes:02x?}");
    }
    // div %rcx, lea 8(%rax), vfmadd231pd, pshufb %xmm1, %xmm0, vpermilps %xmm2, %xmm1, %xmm0,
    // pblendvb %xmm0, %xmm1, %xmm0, vinserti128 $1, (%rdi), %ymm0, %ymm0
    let others: [&[u8]; 7] = [
        &[0x48, 0xf7, 0xf1],
        &[0x48, 0x8d, 0x40, 0x08],
        &[0xc4, 0xe2, 0xed, 0xb8, 0xc1],
        &[0x66, 0x0f, 0x38, 0x00, 0xc1],
        &[0xc4, 0xe2, 0x71, 0x0c, 0xc2],
        &[0x66, 0x0f, 0x38, 0x10, 0xc1],
        &[0xc4, 0xe3, 0x7d, 0x38, 0x07, 1],
    ];
    // vbroadcastss (%rdi), %ymm0 only loads.
    assert_eq!(decode(&[0xc4, 0xe2, 0x7d, 0x18, 0x07]).unit, None);
    for bytes in others {
        assert!(!expected.iter().any(|(_, own)| decode(bytes).takes_latency_of(*own)));
    }
}

#[test]
fn addresses_of_a_form_are_recognised() {
    let form = |bytes: &[u8]| decode(bytes).address_form();
    let (load, store) = ([0x48, 0x8b, 0x47, 0x10], [0x48, 0x89, 0x47, 0x10]); // 16(%rdi), %rax
    assert_eq!(form(&load), form(&store));
    assert_ne!(form(&load), 0);
    assert_ne!(form(&load), form(&[0x48, 0x8b, 0x46, 0x10])); // 16(%rsi)
    assert_ne!(form(&load), form(&[0x48, 0x8b, 0x47, 0x18])); // 24(%rdi)
    // A push and a load from the stack.
    assert_eq!(form(&[0x50]), form(&[0x48, 0x8b, 0x44, 0x24, 0x08]));
    // mov %rax, 16(%rdi,%rbx)
    let index = decode(&[0x48, 0x89, 0x44, 0x1f, 0x10]);
    assert!(index.address_has_index() && index.address_form() != 0);
    assert!(!decode(&load).address_has_index());
    // A byte, a vector, and no access: none is renamed.
    let none: [&[u8]; 3] = [&[0x8a, 0x07], &[0x0f, 0x28, 0x00], &[0x48, 0x01, 0xd8]];
    none.into_iter().for_each(|bytes| assert_eq!(form(bytes), 0, "{bytes:02x?}"));
}

#[test]
fn small_constants_that_are_added_to_whole_registers_are_recognised() {
    let small: [&[u8]; 7] = [
        &[0x48, 0xff, 0xc0],                   // inc %rax
        &[0x48, 0xff, 0xc8],                   // dec %rax
        &[0x48, 0x83, 0xc0, 0x08],             // add $8, %rax
        &[0x48, 0x83, 0xe8, 0x08],             // sub $8, %rax
        &[0x48, 0x05, 0xff, 0x03, 0, 0],       // add $1023, %rax
        &[0x48, 0x05, 0x00, 0xfc, 0xff, 0xff], // add $-1024, %rax
        &[0x48, 0x8d, 0x50, 0x08],             // lea 8(%rax), %rdx
    ];
    let others: [&[u8]; 8] = [
        &[0xff, 0xc0],                         // inc %eax
        &[0x48, 0x05, 0x00, 0x04, 0, 0],       // add $1024, %rax
        &[0x48, 0x05, 0xff, 0xfb, 0xff, 0xff], // add $-1025, %rax
        &[0x48, 0x01, 0xd8],                   // add %rbx, %rax
        &[0x48, 0x03, 0x07],                   // add (%rdi), %rax
        &[0x48, 0x83, 0x07, 0x08],             // add $8, (%rdi)
        &[0x48, 0x83, 0xf8, 0x08],             // cmp $8, %rax
        &[0x48, 0x8d, 0x54, 0x18, 0x08],       // lea 8(%rax,%rbx), %rdx
    ];
    assert!(small.iter().all(|bytes| decode(bytes).adds_constant()));
    assert!(!others.iter().any(|bytes| decode(bytes).adds_constant()));
    assert_eq!(decode(small[0]).moves_or_zeroes(), (false, false));
}

#[test]
fn lengths_are_those_of_the_instructions() {
    assert_eq!(decode(&[0x48, 0x01, 0xd8, 0x90, 0x90]).bytes(), 3);
    assert_eq!(decode(&[0x06]).bytes(), 1);
    assert_eq!(decode(&[]).bytes(), 0);
}

#[test]
fn operations_are_recognised() {
    use Operation::*;
    let expected: [(&[u8], Operation); 32] = [
        (&[0x48, 0xcf], InterruptReturn),
        (&[0xcf], Other), // iretd
        (&[0x48, 0x0f, 0x07], SyscallReturn),
        (&[0x0f, 0x07], SyscallReturn),
        (&[0x0f, 0x35], SyscallReturn), // sysexit
        (&[0x0f, 0x05], Other),         // syscall
        (&[0x0f, 0x31], ReadTsc),
        (&[0x0f, 0x01, 0xf9], ReadTsc), // rdtscp
        (&[0x0f, 0x01, 0xf8], Other),   // swapgs
        (&[0xf4], Halt),
        (&[0xcc], SoftwareInterrupt),
        (&[0xcd, 0x80], SoftwareInterrupt),
        (&[0x0f, 0x30], WriteMsr),
        (&[0x0f, 0x32], ReadMsr),
        (&[0x0f, 0x33], ReadPmc),
        (&[0x0f, 0xa2], Cpuid),
        (&[0x89, 0xb7, 0x00, 0xc0, 0x5f, 0xff], WriteLocalApic), // mov %esi, -0xa04000(%rdi)
        (&[0x87, 0xb7, 0x00, 0xc0, 0x5f, 0xff], WriteLocalApic), // xchg %esi, -0xa04000(%rdi)
        (&[0xc7, 0x04, 0x25, 0xb0, 0xc0, 0x5f, 0xff, 0, 0, 0, 0], WriteLocalApic), // movl $0, 0xff..5fc0b0
        (&[0x8b, 0xb7, 0x00, 0xc0, 0x5f, 0xff], Other), // mov -0xa04000(%rdi), %esi
        (&[0x89, 0xb7, 0x00, 0xc0, 0x5f, 0x7f], Other), // mov %esi, 0x7f5fc000(%rdi)
        (&[0x0f, 0x22, 0xd8], FlushTranslations),       // mov %rax, %cr3
        (&[0x41, 0x0f, 0x22, 0xdc], FlushTranslations), // mov %r12, %cr3
        (&[0x0f, 0x01, 0x3f], FlushTranslations),       // invlpg (%rdi)
        (&[0x41, 0x0f, 0x01, 0x3c, 0x24], FlushTranslations), // invlpg (%r12)
        (&[0x66, 0x0f, 0x38, 0x82, 0x0c, 0x24], FlushTranslations), // invpcid (%rsp), %rcx
        (&[0x0f, 0x22, 0xd0], Other),                   // mov %rax, %cr2
        (&[0x44, 0x0f, 0x22, 0xc0], Other),             // mov %rax, %cr8
        (&[0x0f, 0x01, 0x18], Other),                   // lidt (%rax)
        (&[0x0f, 0x1f, 0x84, 0, 0x69, 0x72, 0x71, 0x6b], LongNop(0x6b71_7269)),
        (&[0x0f, 0x1f, 0x84, 0, 0, 0, 0, 0], LongNop(0)),
        (&[0x0f, 0x1f, 0x44, 0x18, 1], Other), // nopl 1(%rax,%rbx,1)
    ];
    for (bytes, operation) in expected {
        assert_eq!(decoded(bytes).operation(), operation, "{bytes:02x?}");
    }
}

#[test]
fn branches_are_recognised_after_prefixes_and_in_other_modes() {
    let branches: [&[u8]; 13] = [
        &[0xeb, 0x02],
        &[0x75, 0x10],
        &[0x0f, 0x84, 0, 0, 0, 0],
        &[0xe2, 0xfe],
        &[0xe3, 0x10],
        &[0xc3],
        &[0xf3, 0xc3],
        &[0xff, 0xd0],
        &[0x41, 0xff, 0xe3],
        &[0x2e, 0xe8, 0, 0, 0, 0],
        &[0xff, 0x25, 0, 0, 0, 0],
        &[0xe8, 0, 1],       // call, 16-bit code
        &[0x0f, 0x84, 0, 1], // je, 16-bit code
    ];
    for bytes in branches {
        assert!(decoded(bytes).is_branch(), "{bytes:02x?}");
    }
    let others: [&[u8]; 9] = [
        &[0xff, 0xc0],
        &[0xff, 0x35, 0, 0, 0, 0],
        &[0x90],
        &[0x0f, 0x44, 0xc1],
        &[0x0f, 0xa2],
        &[0x48, 0xcb], // lretq
        &[0x48, 0xcf],
        &[0x0f, 0x05],
        &[0x48], // dec %eax, 32-bit code
    ];
    for bytes in others {
        assert!(!decoded(bytes).is_branch(), "{bytes:02x?}");
    }
}

#[test]
fn what_acts_outside_of_the_processor_is_recognised() {
    let acts: [&[u8]; 10] = [
        &[0xee],             // out
        &[0xe6, 0x20],       // out, immediate
        &[0xec],             // in
        &[0x6c],             // insb
        &[0x0f, 0x30],       // wrmsr
        &[0xf4],             // hlt
        &[0xf3, 0x90],       // pause
        &[0x0f, 0x01, 0xc9], // mwait
        &[0xf3, 0xa4],       // rep movsb
        &[0xf3, 0x6e],       // rep outsb
    ];
    assert!(acts.iter().all(|bytes| decoded(bytes).may_act_outside()));
    let others: [&[u8]; 5] = [&[0x90], &[0x89, 0x30], &[0xa4], &[0x0f, 0x32], &[0xfb]];
    assert!(!others.iter().any(|bytes| decoded(bytes).may_act_outside()));
}

#[test]
fn repeated_string_instructions_are_recognised() {
    let repeated: [&[u8]; 4] = [&[0xf3, 0xa4], &[0xf3, 0x48, 0xab], &[0xf2, 0xae], &[0xf3, 0x6e]];
    assert!(repeated.iter().all(|bytes| decoded(bytes).is_repeated_string()));
    let others: [&[u8]; 5] =
        [&[0xa4], &[0xf3, 0x0f, 0x10, 0x00], &[0xf3, 0x90], &[0xf3], &[0xf3, 0xc3]];
    assert!(!others.iter().any(|bytes| decoded(bytes).is_repeated_string()));
}

#[test]
fn stores_and_writes_to_ports_can_reach_a_device() {
    let expected: [(&[u8], DeviceWrite); 17] = [
        (&[0x89, 0x30], DeviceWrite::Store), // mov %esi, (%rax)
        (&[0x66, 0x89, 0x30], DeviceWrite::Store),
        (&[0xff, 0x00], DeviceWrite::Store), // incl (%rax)
        (&[0xa4], DeviceWrite::Store),       // movsb
        (&[], DeviceWrite::Store),
        (&[0xee], DeviceWrite::Port(None)),
        (&[0x66, 0xef], DeviceWrite::Port(None)),
        (&[0xf3, 0x6e], DeviceWrite::Port(None)), // rep outsb
        (&[0xe6, 0x92], DeviceWrite::Port(Some(0x92))),
        (&[0xe7, 0x20], DeviceWrite::Port(Some(0x20))),
        (&[0xe8, 0, 0, 0, 0], DeviceWrite::Never), // call
        (&[0xff, 0xd0], DeviceWrite::Never),       // call *%rax
        (&[0xff, 0x30], DeviceWrite::Never),       // push (%rax)
        (&[0x41, 0x57], DeviceWrite::Never),       // push %r15
        (&[0x9c], DeviceWrite::Never),             // pushfq
        (&[0x6a, 0x01], DeviceWrite::Never),       // push $1
        (&[0xf3, 0x48, 0xab], DeviceWrite::Never), // rep stosq
    ];
    for (bytes, device_write) in expected {
        assert_eq!(decoded(bytes).device_write(), device_write, "{bytes:02x?}");
    }
}

#[test]
fn only_what_always_writes_memory_is_a_store() {
    let expected: [(&[u8], bool); 12] = [
        (&[0x89, 0x30], true),                // mov %esi, (%rax)
        (&[0xff, 0x00], true),                // incl (%rax)
        (&[0xf0, 0x0f, 0xba, 0x28, 3], true), // lock btsl $3, (%rax)
        (&[0xa4], true),                      // movsb
        (&[0xf3, 0x48, 0xab], false),         // rep stosq, perhaps not once
        (&[0x74, 0x10], false),               // je
        (&[0xc3], false),                     // ret
        (&[0x8b, 0x30], false),               // mov (%rax), %esi
        (&[0x39, 0x30], false),               // cmp %esi, (%rax)
        (&[0x48, 0x8d, 0x00], false),         // lea (%rax), %rax
        (&[0x0f, 0x1f, 0x00], false),         // nopl (%rax)
        (&[], false),
    ];
    let mut decoder = Decoder::default();
    for (bytes, stores) in expected {
        assert_eq!(decoder.stores(&decoded(bytes)), stores, "{bytes:02x?}");
    }
}

#[test]
fn calls_have_a_register_or_a_function() {
    let call_of = |bytes: &[u8]| {
        let function = decoded(bytes).called_function();
        (decoded(bytes).calls_register(), function.map(|function| function.0))
    };
    assert_eq!(call_of(&[0xff, 0xd0]), (true, None));
    assert_eq!(call_of(&[0x41, 0xff, 0xd3]), (true, None));
    assert_eq!(call_of(&[0xe8, 0, 1, 0, 0]), (false, Some(0x1105)));
    assert_eq!(call_of(&[0xff, 0x10]), (false, None)); // call *(%rax)
    assert_eq!(call_of(&[0xff, 0xe0]), (false, None)); // jmp *%rax
}

proptest! {
    #[test]
    fn no_bytes_make_it_panic(bytes in prop::collection::vec(any::<u8>(), 0..40), address: u64) {
        let mut decoder = Decoder::default();
        let decoded = decoder.decode(&bytes, VirtualAddress(address));
        let _ = (decoded.operation(), decoded.device_write(), decoded.is_branch());
        let _ = (decoded.target(), decoded.called_function(), decoded.calls_register());
        prop_assert!(usize::from(decoder.core_instruction(&decoded).bytes()) <= bytes.len());
    }
}
