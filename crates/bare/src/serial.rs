//! Writes lines to the first serial port: a word, then decimal numbers, separated by blanks. `sim::bare` parses them.

use crate::cpu::{read_port, write_port};

const DATA: u16 = 0x3f8;
const LINE_STATUS: u16 = 0x3fd;
/// The transmitter can take a byte.
const TRANSMITTER_EMPTY: u8 = 0x20;

fn write_byte(byte: u8) {
    while read_port(LINE_STATUS) & TRANSMITTER_EMPTY == 0 {}
    write_port(DATA, byte);
}

fn write_number(mut number: u64) {
    let (mut digits, mut first) = ([0; 20], 20);
    loop {
        first -= 1;
        digits[first] = b'0' + (number % 10) as u8;
        number /= 10;
        if number == 0 {
            break;
        }
    }
    digits[first..].iter().copied().for_each(write_byte);
}

/// Writes a line: `word`, then the numbers in decimal, each after a space.
pub fn line(word: &str, numbers: &[u64]) {
    word.bytes().for_each(write_byte);
    for &number in numbers {
        write_byte(b' ');
        write_number(number);
    }
    write_byte(b'\n');
}
