use super::*;

/// Writes BTF: types as words, names into the string section.
pub(crate) struct Maker {
    types: Vec<u8>,
    strings: Vec<u8>,
}

pub(crate) const INT: u32 = 1;
pub(crate) const POINTER: u32 = 2;
pub(crate) const ARRAY: u32 = 3;
pub(crate) const STRUCT: u32 = 4;
const UNION: u32 = 5;
const TYPEDEF: u32 = 8;
const CONST: u32 = 10;
const FUNCTION: u32 = 12;
const PROTOTYPE: u32 = 13;

impl Maker {
    pub(crate) fn new() -> Maker {
        Maker { types: Vec::new(), strings: vec![0] }
    }

    /// Parameters of a function without a result, and the function: name, type.
    pub(crate) fn function(&mut self, name: &str, prototype: u32, parameters: &[(&str, u32)]) {
        let mut words = vec![0, PROTOTYPE << 24 | parameters.len() as u32, 0];
        for (parameter, of) in parameters {
            words.extend([self.name(parameter), *of]);
        }
        words.extend([self.name(name), FUNCTION << 24, prototype]);
        for word in words {
            self.types.extend(word.to_le_bytes());
        }
    }

    fn name(&mut self, name: &str) -> u32 {
        if name.is_empty() {
            return 0;
        }
        let at = self.strings.len() as u32;
        self.strings.extend(name.bytes());
        self.strings.push(0);
        at
    }

    pub(crate) fn add(&mut self, kind: u32, name: &str, size_or_type: u32, rest: &[u32]) {
        let name = self.name(name);
        for word in [&[name, kind << 24, size_or_type], rest].concat() {
            self.types.extend(word.to_le_bytes());
        }
    }

    /// Members: name, type, bit offset (and bit size in the top byte).
    pub(crate) fn aggregate(
        &mut self,
        kind: u32,
        name: &str,
        size: u32,
        members: &[(&str, u32, u32)],
    ) {
        let flag = u32::from(members.iter().any(|(_, _, place)| place >> 24 != 0)) << 31;
        let name = self.name(name);
        let mut words = vec![name, flag | kind << 24 | members.len() as u32, size];
        for (member, of, place) in members {
            words.extend([self.name(member), *of, *place]);
        }
        for word in words {
            self.types.extend(word.to_le_bytes());
        }
    }

    pub(crate) fn finish(self) -> Vec<u8> {
        let mut bytes = vec![0x9f, 0xeb, 1, 0];
        let (types, strings) = (self.types.len() as u32, self.strings.len() as u32);
        for word in [24, 0, types, types, strings] {
            bytes.extend(u32::to_le_bytes(word));
        }
        [bytes, self.types, self.strings].concat()
    }
}

fn example() -> Vec<u8> {
    let mut maker = Maker::new();
    maker.add(INT, "int", 4, &[32]); // 1
    maker.add(POINTER, "", 1, &[]); // 2
    maker.add(ARRAY, "", 0, &[1, 1, 16]); // 3: int[16]
    maker.aggregate(UNION, "", 8, &[("left", 1, 0), ("right", 2, 0)]); // 4
    maker.aggregate(STRUCT, "inner", 24, &[("a", 1, 0), ("", 4, 64), ("list", 3, 128)]); // 5
    maker.add(TYPEDEF, "inner_t", 5, &[]); // 6
    maker.add(CONST, "", 6, &[]); // 7
    maker.aggregate(STRUCT, "outer", 64, &[("p", 2, 0), ("in", 7, 64)]); // 8
    maker.aggregate(STRUCT, "flags", 4, &[("x", 1, 0), ("y", 1, 3 << 24 | 37)]); // 9
    maker.finish()
}

#[test]
fn members_through_paths_typedefs_and_unnamed_unions() {
    let btf = Btf::parse(example()).unwrap();
    assert_eq!(btf.len(), 9);
    let offset = |name, path| btf.offset_of(name, path).unwrap();
    assert_eq!(offset("outer", "in"), 8);
    assert_eq!(offset("outer", "in.right"), 16);
    assert_eq!(offset("inner_t", "left"), 8);
    assert_eq!(btf.member("outer", "in.list").unwrap().size_bytes, 64);
    assert_eq!(btf.member("inner", "right").unwrap().size_bytes, 8);
    assert_eq!(btf.size_of("outer").unwrap(), 64);
}

#[test]
fn bit_fields() {
    let btf = Btf::parse(example()).unwrap();
    let member = btf.member("flags", "y").unwrap();
    assert_eq!(member, Member { offset_bytes: 4, size_bytes: 1, bit_field: Some((5, 3)) });
    assert!(btf.offset_of("flags", "y").is_err());
    assert_eq!(btf.offset_of("flags", "x").unwrap(), 0);
}

#[test]
fn what_is_not_there_is_named() {
    let btf = Btf::parse(example()).unwrap();
    for (name, path) in [("outer", "nix"), ("outer", "p.a"), ("nix", "a"), ("outer", "")] {
        let error = btf.offset_of(name, path).unwrap_err().to_string();
        assert!(error.contains(name), "{error}");
    }
}

#[test]
fn circles_end() {
    let mut maker = Maker::new();
    maker.add(TYPEDEF, "a", 2, &[]);
    maker.add(TYPEDEF, "b", 1, &[]);
    maker.aggregate(STRUCT, "self", 8, &[("", 3, 0), ("", 3, 0)]);
    maker.add(ARRAY, "", 0, &[4, 1, 2]);
    maker.aggregate(STRUCT, "list", 8, &[("me", 4, 0)]);
    let btf = Btf::parse(maker.finish()).unwrap();
    assert!(btf.offset_of("a", "x").is_err());
    assert!(btf.offset_of("self", "x").is_err());
    assert!(btf.member("list", "me").is_err());
}

#[test]
fn every_cut_is_an_error_or_consistent() {
    let whole = example();
    for length in 0..whole.len() {
        assert!(Btf::parse(whole[..length].to_vec()).is_err(), "{length}");
    }
    assert!(Btf::parse(vec![0xeb, 0x9f, 1, 0]).is_err());
}

proptest::proptest! {
    #[test]
    fn random_bytes_never_panic(bytes: Vec<u8>) {
        let _ = Btf::parse(bytes);
    }

    #[test]
    fn damaged_bytes_never_panic(changes in proptest::collection::vec((24usize..300, 0u8..), 1..8)) {
        let mut bytes = example();
        for (at, value) in changes {
            if let Some(byte) = bytes.get_mut(at) {
                *byte = value;
            }
        }
        if let Ok(btf) = Btf::parse(bytes) {
            for (name, path) in [("outer", "in.right"), ("inner", "list"), ("flags", "y")] {
                let _ = btf.member(name, path);
            }
        }
    }
}
