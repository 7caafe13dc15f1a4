//! Writes lines of a word and numbers to the first serial port.

use crate::cpu::{read_port, write_port};

const DATA: u16 = 0x3f8;
const LINE_STATUS: u16 = 0x3fd;
/// The transmitter can take a byte.
const EMPTY: u8 = 0x20;

fn byte(byte: u8) {
    while read_port(LINE_STATUS) & EMPTY == 0 {}
    write_port(DATA, byte);
}

fn number(mut number: u64) {
    let (mut digits, mut first) = ([0; 20], 20);
    loop {
        first -= 1;
        digits[first] = b'0' + (number % 10) as u8;
        number /= 10;
        if number == 0 {
            break;
        }
    }
    digits[first..].iter().copied().for_each(byte);
}

pub fn line(word: &str, numbers: &[u64]) {
    word.bytes().for_each(byte);
    for &one in numbers {
        byte(b' ');
        number(one);
    }
    byte(b'\n');
}
