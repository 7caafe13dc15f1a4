//! Dependences, units and fused pairs that the decoder derives from real instructions, in cycles of a loop.

use machine::core::SingleThreadCore;

use crate::kernels::{CODE, DATA, Kernel, Loop, ZEN4, code, template, thousandths, within};

const EMERALD_RAPIDS: &str = include_str!("../../../../machines/emerald-rapids.toml");

const ADC: &[u8] = &[0x48, 0x11, 0xd8]; // adc %rbx, %rax
const INC_RSI: &[u8] = &[0x48, 0xff, 0xc6]; // inc %rsi

/// `inc` keeps the carry, so the additions with carry stay a chain.
#[test]
fn an_instruction_that_keeps_the_carry_does_not_cut_a_chain_of_carries() {
    // adc %rbx, %r8; ...; adc %rbx, %r11: only the carry joins them.
    let additions: [&[u8]; 4] =
        [&[0x49, 0x11, 0xd8], &[0x49, 0x11, 0xd9], &[0x49, 0x11, 0xda], &[0x49, 0x11, 0xdb]];
    let mut body = additions.to_vec();
    within(4_000, 10, "adc", thousandths(ZEN4, &code(&body)));
    body.push(INC_RSI);
    within(4_000, 10, "adc, inc", thousandths(ZEN4, &code(&body)));

    within(1_000, 15, "adc %rbx, %rax", thousandths(ZEN4, &code(&[ADC])));
}

/// Chains of `adcx` and of `adox` are independent: the first keeps all flags but the carry, the second keeps the carry.
#[test]
fn chains_of_carries_and_of_overflows_are_two_chains() {
    const ADCX: &[u8] = &[0x66, 0x4c, 0x0f, 0x38, 0xf6, 0xc3]; // adcx %rbx, %r8
    const ADOX: &[u8] = &[0xf3, 0x4c, 0x0f, 0x38, 0xf6, 0xcb]; // adox %rbx, %r9
    within(1_000, 15, "adcx", thousandths(ZEN4, &code(&[ADCX])));
    within(1_000, 15, "adcx, adox", thousandths(ZEN4, &code(&[ADCX, ADOX])));
}

/// `stc` and the like write the carry alone: the zero flag is that of the operation before.
#[test]
fn a_reader_of_the_zero_flag_waits_for_its_last_writer() {
    const TEST: &[u8] = &[0x48, 0x85, 0xc0]; // test %rax, %rax
    const CMOVE: &[u8] = &[0x48, 0x0f, 0x44, 0xc3]; // cmove %rbx, %rax
    within(2_000, 15, "test, cmove", thousandths(ZEN4, &code(&[TEST, CMOVE])));
    within(2_000, 15, "test, stc, cmove", thousandths(ZEN4, &code(&[TEST, &[0xf9], CMOVE])));
    let bt: &[u8] = &[0x48, 0x0f, 0xa3, 0xda]; // bt %rbx, %rdx
    within(2_000, 15, "test, bt, cmove", thousandths(ZEN4, &code(&[TEST, bt, CMOVE])));
}

/// Loads and constants on the x87 stack are operands of the next addition.
#[test]
fn pushes_on_the_x87_stack_are_waited_for() {
    const FADDP: &[u8] = &[0xde, 0xc1];
    let additions = thousandths(ZEN4, &code(&[&[0xd8, 0xc1]])); // fadd %st(1), %st
    let constants = thousandths(ZEN4, &code(&[&[0xd9, 0xe8], FADDP])); // fld1
    assert!(constants > additions, "{constants} {additions}");
    let load = Kernel { code: &[&[0xdd, 0x07], FADDP], touches: &[(0, false, DATA, 8)] };
    let loads = thousandths(ZEN4, &load);
    assert!(loads >= additions, "{loads} {additions}");
}

#[test]
fn only_branches_on_flags_are_fused_with_the_operation_before() {
    let fused = |branch: &[u8]| {
        let template = template(ZEN4, CODE, &[&[0x48, 0x39, 0xd8], branch]); // cmp %rbx, %rax
        let mut looped = Loop::new(ZEN4);
        looped.play(&template, &[], template.address());
        looped.core().counts().slotless_instructions
    };
    assert_eq!(fused(&[0x74, 0xfb]), 1); // je
    assert_eq!(fused(&[0xe0, 0xfb]), 0); // loopne
    assert_eq!(fused(&[0xe1, 0xfb]), 0); // loope
    assert_eq!(fused(&[0xe2, 0xfb]), 0); // loop
    assert_eq!(fused(&[0xe3, 0xfb]), 0); // jrcxz
}

/// The flags are those of the comparison, although a logic operation set them in the same cycle.
#[test]
fn flags_of_a_comparison_are_not_those_of_an_earlier_logic_operation() {
    // test %rax, %rax; cmp %rbx, %rax; cmovs %rbx, %rax
    let body = code(&[&[0x48, 0x85, 0xc0], &[0x48, 0x39, 0xd8], &[0x48, 0x0f, 0x48, 0xc3]]);
    within(2_140, 8, "test, cmp, cmovs", thousandths(EMERALD_RAPIDS, &body));
}
