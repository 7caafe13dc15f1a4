//! Kernels of group `programs`: small programs as users write them, which sort, hash, search, compress, parse and
//! simulate. Each is a mixture of many properties of a processor. Therefore `machines fit`, which derives models from
//! kernels, does not use them; they check a finished model.
//!
//! Rust's compiler makes their code, so their cycles depend on its version (`COMPILED`). A change to a program makes
//! its kept measurements worthless.

use std::collections::{BTreeMap, BinaryHeap, HashMap};
use std::fmt::Write;
use std::hash::{BuildHasherDefault, DefaultHasher};
use std::hint::black_box;

use stats::Random;

use crate::{Body, Executed, Group, Kernel, Rounds};

/// Seed of all inputs.
const SEED: u64 = 1;

/// The body of a kernel that executes `run` on the input. `black_box` keeps the compiler from removing the work.
struct Program<I, F> {
    input: I,
    run: F,
}

impl<I, R, F: FnMut(&I) -> R> Body for Program<I, F> {
    fn run(&mut self, rounds: u64) -> Executed {
        for _ in 0..rounds {
            black_box((self.run)(black_box(&self.input)));
        }
        Executed::whole(rounds)
    }

    fn rounds(&self) -> Rounds {
        Rounds::Fixed(1)
    }
}

/// A kernel that executes `run` once per window. `input` makes the input outside of windows.
fn program<I: 'static, R: 'static>(
    (name, about): (&'static str, &'static str),
    input: impl Fn() -> I + 'static,
    run: fn(&I) -> R,
) -> Kernel {
    let make = move || Ok(Box::new(Program { input: input(), run }) as Box<dyn Body>);
    Kernel::new(Group::Programs, (name, "run", about), make).learning()
}

/// The kernels of the group `programs`: whole small programs. Their inputs are the same in each run. A change to a
/// program is a change to what is measured.
pub(crate) fn kernels() -> Vec<Kernel> {
    vec![
        program(
            ("quicksort", "20,000 random numbers sorted in place."),
            || numbers(20_000),
            |input| {
                let mut list = input.clone();
                list.sort_unstable();
                list[list.len() / 2]
            },
        ),
        program(
            ("merge_sort", "4,000 random words sorted, equal ones in order."),
            || random_words(4_000),
            |input| {
                let mut list: Vec<&str> = input.iter().map(String::as_str).collect();
                list.sort();
                list[0].len()
            },
        ),
        program(
            ("hash_map", "20,000 numbers counted in a hash table."),
            || numbers(20_000),
            |input| {
                // A hash without a random key, so that each run does equal work.
                let mut counts: HashMap<u64, u32, BuildHasherDefault<DefaultHasher>> =
                    HashMap::default();
                input.iter().for_each(|number| *counts.entry(number % 5_000).or_default() += 1);
                counts.len()
            },
        ),
        program(
            ("tree_map", "5,000 words counted in a B-tree."),
            || random_words(5_000),
            |input| {
                let mut counts: BTreeMap<&str, u32> = BTreeMap::new();
                input.iter().for_each(|word| *counts.entry(word).or_default() += 1);
                counts.len()
            },
        ),
        program(
            ("crc32_table", "The CRC of 64 KiB, by a table of bytes."),
            || (crc_table(), bytes(64 << 10)),
            |input| {
                let (table, text) = input;
                let step = |crc: u32, byte: &u8| table[usize::from(crc as u8 ^ byte)] ^ (crc >> 8);
                text.iter().fold(!0, step)
            },
        ),
        program(
            ("fnv_hash", "A multiplicative hash of 64 KiB, byte by byte."),
            || bytes(64 << 10),
            |input| {
                let step =
                    |hash: u64, byte: &u8| (hash ^ u64::from(*byte)).wrapping_mul(0x0100_0000_01b3);
                input.iter().fold(0xcbf2_9ce4_8422_2325, step)
            },
        ),
        program(("base64", "48 KiB as base 64."), || bytes(48 << 10), |input| base64(input).len()),
        program(("sieve", "Primes below 200,000."), || 200_000, |limit| sieve(*limit)),
        program(
            ("matrix", "Two matrices of 64 by 64 doubles multiplied."),
            || floats(64 * 64 * 2),
            |input| {
                let (a, b) = input.split_at(64 * 64);
                matrix(a, b)
            },
        ),
        program(
            ("n_body", "2,000 steps of five bodies."),
            || floats(35),
            |input| n_body(input, 2_000),
        ),
        program(
            ("mandelbrot", "64 by 64 points, up to 50 iterations each."),
            || 64,
            |size| mandelbrot(*size),
        ),
        program(
            ("edit_distance", "The edit distance of two texts of 500 letters."),
            || (letters(500), letters(700)),
            |input| edit_distance(&input.0, &input.1[200..]),
        ),
        program(
            ("text_search", "A word that is not there, in 64 KiB of letters."),
            || letters(64 << 10),
            |input| {
                let text = std::str::from_utf8(input).unwrap_or_default();
                text.find("the laboratory").is_some()
            },
        ),
        program(
            ("word_count", "Words of 64 KiB of text."),
            || text(64 << 10),
            |input| input.split_whitespace().count(),
        ),
        program(
            ("parse_numbers", "5,000 numbers read from text and added."),
            || lines(5_000),
            |input| {
                input.lines().filter_map(|line| line.parse::<u64>().ok()).fold(0, u64::wrapping_add)
            },
        ),
        program(
            ("format_numbers", "3,000 numbers written as text."),
            || numbers(3_000),
            |input| {
                let mut text = String::new();
                for number in input {
                    let _ = writeln!(text, "{number}");
                }
                text.len()
            },
        ),
        program(
            ("compress", "32 KiB of text, repetitions replaced by references."),
            || text(32 << 10),
            |input| compress(input.as_bytes()),
        ),
        program(
            ("interpreter", "50,000 instructions of a small machine."),
            || (),
            |()| interpret(50_000),
        ),
        program(
            ("binary_trees", "A tree of 8,191 nodes made, counted and dropped."),
            || 12,
            |depth| Tree::new(*depth).count(),
        ),
        program(
            ("shortest_paths", "Shortest paths in a graph of 2,000 nodes."),
            || graph(2_000),
            |input| shortest_paths(input),
        ),
        program(
            ("life", "20 generations of a field of 64 by 64 cells."),
            || cells(64),
            |input| life(input, 64, 20),
        ),
        program(
            ("collatz", "The steps of the numbers below 3,000 to 1."),
            || 3_000_u64,
            |limit| (1..*limit).map(collatz).max(),
        ),
    ]
}

fn numbers(count: usize) -> Vec<u64> {
    let mut random = Random::new(SEED);
    (0..count).map(|_| random.below(1 << 40)).collect()
}

fn bytes(count: usize) -> Vec<u8> {
    let mut bytes = vec![0; count];
    Random::new(SEED).fill(&mut bytes);
    bytes
}

fn floats(count: usize) -> Vec<f64> {
    let mut random = Random::new(SEED);
    (0..count).map(|_| random.unit() + 0.5).collect()
}

fn letters(count: usize) -> Vec<u8> {
    let mut random = Random::new(SEED);
    (0..count).map(|_| b'a' + random.below(26) as u8).collect()
}

fn random_words(count: usize) -> Vec<String> {
    let mut random = Random::new(SEED);
    let mut word =
        || (0..3 + random.below(6)).map(|_| char::from(b'a' + random.below(8) as u8)).collect();
    (0..count).map(|_| word()).collect()
}

/// At least `bytes` of words with spaces. Some words are more frequent than others.
fn text(bytes: usize) -> String {
    let (words, mut random) = (random_words(300), Random::new(SEED));
    let mut text = String::new();
    while text.len() < bytes {
        text += &words[(random.below(300) * random.below(300) / 300) as usize];
        text.push(' ');
    }
    text
}

/// Lines of one number each.
fn lines(count: usize) -> String {
    numbers(count).iter().map(|number| format!("{number}\n")).collect()
}

fn crc_table() -> Vec<u32> {
    let bit = |crc: u32, _| (crc >> 1) ^ (0xedb8_8320 & (crc & 1).wrapping_neg());
    (0..256).map(|byte| (0..8).fold(byte, bit)).collect()
}

/// Digits for the whole groups of three bytes; further bytes are left out.
fn base64(input: &[u8]) -> Vec<u8> {
    const DIGITS: &[u8; 64] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
    let mut out = Vec::with_capacity(input.len() / 3 * 4);
    for chunk in input.chunks_exact(3) {
        let bits = u32::from(chunk[0]) << 16 | u32::from(chunk[1]) << 8 | u32::from(chunk[2]);
        out.extend([18, 12, 6, 0].map(|shift| DIGITS[(bits >> shift & 63) as usize]));
    }
    out
}

/// How many primes are below `limit`.
fn sieve(limit: usize) -> usize {
    let mut is_prime = vec![true; limit];
    for number in (2..).take_while(|number| number * number < limit) {
        if is_prime[number] {
            (number * number..limit)
                .step_by(number)
                .for_each(|multiple| is_prime[multiple] = false);
        }
    }
    is_prime[2..].iter().filter(|is_prime| **is_prime).count()
}

/// The sum of all elements of the product of two matrices of 64 by 64.
fn matrix(a: &[f64], b: &[f64]) -> f64 {
    let mut product = vec![0.0; 64 * 64];
    for row in 0..64 {
        for inner in 0..64 {
            let factor = a[row * 64 + inner];
            for column in 0..64 {
                product[row * 64 + column] += factor * b[inner * 64 + column];
            }
        }
    }
    product.iter().sum()
}

/// Simulates bodies that attract each other. Each body is a mass, three coordinates and three velocities. Returns a
/// measure of the kinetic energy at the end.
fn n_body(input: &[f64], steps: usize) -> f64 {
    let mut bodies: Vec<[f64; 7]> =
        input.chunks_exact(7).map(|values| std::array::from_fn(|index| values[index])).collect();
    for _ in 0..steps {
        for first in 0..bodies.len() {
            for second in first + 1..bodies.len() {
                let distance: [f64; 3] =
                    std::array::from_fn(|axis| bodies[first][1 + axis] - bodies[second][1 + axis]);
                let squared: f64 =
                    distance.iter().map(|component| component * component).sum::<f64>() + 0.01;
                let force = 0.001 / (squared * squared.sqrt());
                for axis in 0..3 {
                    let (first_mass, second_mass) = (bodies[first][0], bodies[second][0]);
                    bodies[first][4 + axis] -= distance[axis] * second_mass * force;
                    bodies[second][4 + axis] += distance[axis] * first_mass * force;
                }
            }
        }
        for body in &mut bodies {
            (0..3).for_each(|axis| body[1 + axis] += body[4 + axis] * 0.001);
        }
    }
    bodies.iter().map(|body| body[0] * (body[4] * body[4] + body[5] * body[5])).sum()
}

/// The sum of the iterations of all points of a square of `size` by `size`.
fn mandelbrot(size: u32) -> u32 {
    let steps = |row: u32, column: u32| {
        let (x0, y0) = (
            f64::from(column) / f64::from(size) * 3.0 - 2.0,
            f64::from(row) / f64::from(size) * 2.0 - 1.0,
        );
        let (mut x, mut y, mut step) = (0.0, 0.0, 0);
        while x * x + y * y < 4.0 && step < 50 {
            (x, y, step) = (x * x - y * y + x0, 2.0 * x * y + y0, step + 1);
        }
        step
    };
    (0..size)
        .flat_map(|row| (0..size).map(move |column| (row, column)))
        .map(|(row, column)| steps(row, column))
        .sum()
}

/// The least number of insertions, deletions and replacements that turn one text into the other.
fn edit_distance(first: &[u8], second: &[u8]) -> usize {
    let mut distances: Vec<usize> = (0..=second.len()).collect();
    for (row, first_letter) in first.iter().enumerate() {
        let (mut diagonal, mut left) = (row, row + 1);
        for (column, second_letter) in second.iter().enumerate() {
            let above = distances[column + 1];
            let distance = (diagonal + usize::from(first_letter != second_letter))
                .min(above + 1)
                .min(left + 1);
            distances[column] = left;
            (diagonal, left) = (above, distance);
        }
        distances[second.len()] = left;
    }
    distances[second.len()]
}

/// The compressed length of the text, without up to 4 bytes at its end, which the loop does not reach. A 3-byte reference
/// replaces a repetition of 4 to 255 bytes. A hash table with the last position of each 4-byte sequence finds the repetitions.
fn compress(text: &[u8]) -> usize {
    let mut last_positions = vec![usize::MAX; 4096];
    let (mut position, mut length) = (0, 0);
    while position + 4 < text.len() {
        let bytes = [text[position], text[position + 1], text[position + 2], text[position + 3]];
        // Multiplicative hashing (Knuth): the high 12 bits index the 4,096 entries.
        let key = u32::from_le_bytes(bytes).wrapping_mul(2_654_435_761) >> 20;
        let previous = std::mem::replace(&mut last_positions[key as usize], position);
        let equal_bytes = match text.get(previous..) {
            Some(earlier) => {
                earlier.iter().zip(&text[position..]).take(255).take_while(|(a, b)| a == b).count()
            }
            None => 0,
        };
        (position, length) = if equal_bytes >= 4 {
            (position + equal_bytes, length + 3)
        } else {
            (position + 1, length + 1)
        };
    }
    length
}

/// Executes this number of instructions of a small machine with four registers. Returns a mixture of the registers.
fn interpret(instructions: usize) -> u64 {
    #[derive(Clone, Copy)]
    enum Instruction {
        /// Destination and source register, as for `Xor`.
        Add(usize, usize),
        /// Register and factor.
        Multiply(usize, u64),
        Xor(usize, usize),
        /// Register and bits of a rotation.
        Rotate(usize, u32),
        /// Register, and the target if its two low bits are 0.
        Jump(usize, usize),
    }
    let program = black_box(vec![
        Instruction::Add(0, 1),
        Instruction::Multiply(1, 0x9e37_79b9),
        Instruction::Xor(2, 1),
        Instruction::Rotate(2, 7),
        Instruction::Jump(2, 6),
        Instruction::Add(3, 2),
        Instruction::Xor(0, 3),
        Instruction::Add(1, 0),
        Instruction::Jump(0, 1),
    ]);
    let (mut registers, mut position) = ([1_u64, 2, 3, 4], 0);
    for _ in 0..instructions {
        let next = position + 1;
        position = match program[position] {
            Instruction::Add(destination, source) => {
                registers[destination] = registers[destination].wrapping_add(registers[source]);
                next
            }
            Instruction::Multiply(register, factor) => {
                registers[register] = registers[register].wrapping_mul(factor);
                next
            }
            Instruction::Xor(destination, source) => {
                registers[destination] ^= registers[source];
                next
            }
            Instruction::Rotate(register, bits) => {
                registers[register] = registers[register].rotate_right(bits);
                next
            }
            Instruction::Jump(register, target) => {
                if registers[register] & 3 == 0 {
                    target
                } else {
                    next
                }
            }
        } % program.len();
    }
    registers.iter().fold(0, |mixture, register| mixture ^ register)
}

/// A node with two children, or a leaf.
struct Tree(Option<[Box<Tree>; 2]>);

impl Tree {
    fn new(depth: u32) -> Tree {
        Tree((depth > 0).then(|| [depth - 1, depth - 1].map(|depth| Box::new(Tree::new(depth)))))
    }

    /// How many nodes the tree has, leaves included.
    fn count(&self) -> u32 {
        1 + self.0.iter().flatten().map(|child| child.count()).sum::<u32>()
    }
}

/// Six edges per node: the other node and the distance.
fn graph(nodes: u64) -> Vec<[(u32, u32); 6]> {
    let mut random = Random::new(SEED);
    let mut edge = || (random.below(nodes) as u32, 1 + random.below(100) as u32);
    (0..nodes).map(|_| std::array::from_fn(|_| edge())).collect()
}

/// The distance from node 0 to the farthest node that can be reached.
fn shortest_paths(graph: &[[(u32, u32); 6]]) -> u32 {
    let mut distances = vec![u32::MAX; graph.len()];
    let mut open = BinaryHeap::from([(std::cmp::Reverse(0_u32), 0_u32)]);
    while let Some((std::cmp::Reverse(distance), node)) = open.pop() {
        if distance >= distances[node as usize] {
            continue;
        }
        distances[node as usize] = distance;
        for (other, length) in &graph[node as usize] {
            if distance + length < distances[*other as usize] {
                open.push((std::cmp::Reverse(distance + length), *other));
            }
        }
    }
    distances.iter().filter(|distance| **distance < u32::MAX).max().copied().unwrap_or(0)
}

fn cells(size: usize) -> Vec<u8> {
    let mut random = Random::new(SEED);
    (0..size * size).map(|_| random.below(2) as u8).collect()
}

/// How many cells live after some generations of Conway's Game of Life, on a field whose edges meet.
fn life(start: &[u8], size: usize, generations: usize) -> u32 {
    let mut field = start.to_vec();
    for _ in 0..generations {
        let mut next = vec![0; field.len()];
        for row in 0..size {
            for column in 0..size {
                let mut neighbours = 0;
                for (down, right) in [
                    (size - 1, size - 1),
                    (size - 1, 0),
                    (size - 1, 1),
                    (0, size - 1),
                    (0, 1),
                    (1, size - 1),
                    (1, 0),
                    (1, 1),
                ] {
                    neighbours += field[(row + down) % size * size + (column + right) % size];
                }
                let lives = neighbours == 3 || (neighbours == 2 && field[row * size + column] == 1);
                next[row * size + column] = u8::from(lives);
            }
        }
        field = next;
    }
    field.iter().map(|cell| u32::from(*cell)).sum()
}

/// After how many steps the number reaches 1 by Collatz's rule.
fn collatz(mut number: u64) -> u32 {
    let mut steps = 0;
    while number != 1 {
        number = if number.is_multiple_of(2) { number / 2 } else { 3 * number + 1 };
        steps += 1;
    }
    steps
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn programs_do_what_they_say() {
        assert_eq!(sieve(100), 25);
        assert_eq!(base64(b"irqlab"), b"aXJxbGFi");
        assert_eq!(edit_distance(b"kitten", b"sitting"), 3);
        assert_eq!(collatz(27), 111);
        assert_eq!(Tree::new(12).count(), 8191);
        let crc = b"123456789"
            .iter()
            .fold(!0_u32, |crc, byte| crc_table()[usize::from(crc as u8 ^ byte)] ^ (crc >> 8));
        assert_eq!(!crc, 0xcbf4_3926);
        // A block of four cells stays as it is.
        let mut block = vec![0; 64];
        for at in [9, 10, 17, 18] {
            block[at] = 1;
        }
        assert_eq!(life(&block, 8, 5), 4);
        let text = b"abcdabcdabcdabcd------".repeat(4);
        assert!(compress(&text) < text.len() / 2);
    }
}
