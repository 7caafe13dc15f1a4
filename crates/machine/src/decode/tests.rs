use super::*;
use proptest::prelude::*;

const RAX: Register = Register::general(0);
const RCX: Register = Register::general(1);
const RDX: Register = Register::general(2);
const RBX: Register = Register::general(3);
const RSP: Register = Register::STACK_POINTER;
const RBP: Register = Register::general(5);
const RSI: Register = Register::general(6);
const RDI: Register = Register::general(7);
const FLAGS: Register = Register::FLAGS;

fn decode(bytes: &[u8]) -> Instruction {
    Instructions::default().decode(bytes, 0x1000).instruction
}

/// Registers as sets, whose order does not matter.
fn same(bytes: &[u8], expected: Instruction) {
    let sorted = |one: Instruction| format!("{:?}", one.with_bytes(0).sorted());
    let decoded = decode(bytes);
    assert_eq!(sorted(decoded), sorted(expected), "{bytes:02x?}");
}

#[test]
fn operations_read_and_write_their_operands_and_flags() {
    let integer = Instruction::of(Unit::Integer);
    // add %rbx, %rax
    same(&[0x48, 0x01, 0xd8], integer.reading(&[RAX, RBX]).writing(&[RAX, FLAGS]));
    // mov %rbx, %rax
    same(&[0x48, 0x89, 0xd8], integer.reading(&[RBX]).writing(&[RAX]));
    // xor %eax, %eax: the result does not depend on what was in it
    same(&[0x31, 0xc0], integer.writing(&[RAX, FLAGS]));
    // cmp %rbx, %rax
    same(&[0x48, 0x39, 0xd8], integer.reading(&[RAX, RBX]).writing(&[FLAGS]));
    // mov $1, %al: the rest of the register stays
    same(&[0xb0, 0x01], integer.reading(&[RAX]).writing(&[RAX]));
    // cmove %rbx, %rax: it may stay
    same(&[0x48, 0x0f, 0x44, 0xc3], integer.reading(&[RAX, RBX, FLAGS]).writing(&[RAX]));
    // lea 8(%rbx,%rcx), %rax
    same(&[0x48, 0x8d, 0x44, 0x0b, 0x08], integer.reading(&[RBX, RCX]).writing(&[RAX]));
    // imul %rbx, %rax; div %rcx
    let multiply = Instruction::of(Unit::Multiply);
    same(&[0x48, 0x0f, 0xaf, 0xc3], multiply.reading(&[RAX, RBX]).writing(&[RAX, FLAGS]));
    let divide = Instruction::of(Unit::Divide);
    same(&[0x48, 0xf7, 0xf1], divide.reading(&[RAX, RDX, RCX]).writing(&[RAX, RDX, FLAGS]));
}

#[test]
fn addresses_are_told_from_operands() {
    let nothing = Instruction::nothing(0);
    // mov (%rbx,%rcx), %rax
    same(&[0x48, 0x8b, 0x04, 0x0b], nothing.loading(&[RBX, RCX]).writing(&[RAX]));
    // mov (%rax), %rax
    same(&[0x48, 0x8b, 0x00], nothing.loading(&[RAX]).writing(&[RAX]));
    // mov %rax, (%rax)
    same(&[0x48, 0x89, 0x00], nothing.storing(&[RAX]).reading(&[RAX]));
    // add %rax, (%rbx): loads and stores
    let sum = Instruction::of(Unit::Integer).loading(&[RBX]).storing(&[RBX]);
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
fn the_stack_pointer_is_moved_by_the_way() {
    let nothing = Instruction::nothing(0);
    // push %rbx; pop %rbx
    let push = nothing.storing(&[RSP]).reading(&[RBX]).moving(&[RSP]).moving_stack();
    same(&[0x53], push);
    same(&[0x5b], nothing.loading(&[RSP]).writing(&[RBX]).moving(&[RSP]).moving_stack());
    // call, ret
    let branch = Instruction::of(Unit::Branch).moving(&[RSP]).moving_stack();
    same(&[0xe8, 0, 0, 0, 0], branch.storing(&[RSP]).branching(BranchKind::Call));
    same(&[0xc3], branch.loading(&[RSP]).branching(BranchKind::Return));
    // leave: the stack pointer comes from the frame's, which is loaded
    let leave = decode(&[0xc9]);
    let expected = Instruction::of(Unit::Integer).loading(&[RBP]).writing(&[RSP, RBP]);
    assert_eq!(leave.sorted().writes(), expected.sorted().writes());
    // lodsb, and rep movsb with its counter
    assert_eq!(decode(&[0xac]).moves(), [RSI]);
    let copy = decode(&[0xf3, 0xa4]);
    assert!(copy.loads() && copy.stores());
    assert_eq!(copy.sorted().moves(), [RSI, RDI]);
    assert!(copy.writes().contains(&RCX));
}

#[test]
fn branches_have_their_kinds_and_targets() {
    let branch = |bytes: &[u8]| {
        let decoded = Instructions::default().decode(bytes, 0x1000);
        (decoded.instruction.branch(), decoded.target)
    };
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
fn what_is_special_is_recognised() {
    let expected: [(&[u8], Special); 17] = [
        (&[0x0f, 0xa2], Special::Serialise),             // cpuid
        (&[0x0f, 0x22, 0xd8], Special::Serialise),       // mov %rax, %cr3
        (&[0x0f, 0x20, 0xd8], Special::None),            // mov %cr3, %rax
        (&[0x0f, 0x30], Special::Serialise),             // wrmsr
        (&[0x0f, 0x01, 0x3f], Special::Serialise),       // invlpg (%rdi)
        (&[0x48, 0xcf], Special::InterruptReturn),       // iretq
        (&[0x0f, 0x05], Special::SystemCall),            // syscall
        (&[0xcd, 0x80], Special::SystemCall),            // int $0x80
        (&[0x48, 0x0f, 0x07], Special::SystemReturn),    // sysretq
        (&[0x0f, 0xae, 0xe8], Special::Fence),           // lfence
        (&[0x0f, 0xae, 0xf0], Special::Barrier),         // mfence
        (&[0xf3, 0x90], Special::Pause),                 // pause
        (&[0x48, 0x87, 0x03], Special::Atomic),          // xchg %rax, (%rbx)
        (&[0x48, 0x87, 0xc3], Special::None),            // xchg %rax, %rbx
        (&[0x0f, 0x31], Special::Microcode),             // rdtsc
        (&[0x48, 0x0f, 0xae, 0x00], Special::Microcode), // fxsave64 (%rax)
        (&[0x06], Special::Fence),                       // none of 64-bit code
    ];
    for (bytes, special) in expected {
        assert_eq!(decode(bytes).special(), special, "{bytes:02x?}");
    }
}

#[test]
fn there_is_room_for_what_instructions_use() {
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
fn lengths_are_those_of_the_instructions() {
    assert_eq!(decode(&[0x48, 0x01, 0xd8, 0x90, 0x90]).bytes(), 3);
    assert_eq!(decode(&[0x06]).bytes(), 1);
    assert_eq!(decode(&[]).bytes(), 0);
}

proptest! {
    #[test]
    fn no_bytes_make_it_panic(bytes in prop::collection::vec(any::<u8>(), 0..40), address: u64) {
        let decoded = Instructions::default().decode(&bytes, address).instruction;
        prop_assert!(usize::from(decoded.bytes()) <= bytes.len());
    }
}
