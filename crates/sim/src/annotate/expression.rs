//! Parses the expressions of recorded values, in a syntax like C's: `((struct irq_desc*)rdi)->irq_data.irq`.
//!
//! ```text
//! expression = primary { "->" NAME | "." NAME | "[" NUMBER "]" }
//! primary    = NAME | NUMBER | "&" NAME | "str" "(" expression ")" | "(" expression ")"
//!            | "(" [ "struct" | "union" ] NAME "*" ")" expression
//! ```

/// Maximum length of an expression, bytes.
const BYTES_MAX: usize = 256;
/// Maximum depth of nested parentheses and casts.
const DEPTH_MAX: usize = 16;

/// A parsed expression; [`super::compile`] translates it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Expression {
    /// A register, `current`, or a parameter of the function.
    Name(String),
    Number(u64),
    /// The address of a variable.
    AddressOf(String),
    /// A member of the struct that a pointer points to: `a->b`.
    Arrow(Box<Expression>, String),
    /// A member of a struct: `a.b`.
    Dot(Box<Expression>, String),
    /// An element of an array, or of the array that a pointer points to: `a[1]`.
    Index(Box<Expression>, u64),
    /// A cast to a pointer to the named type.
    Cast(String, Box<Expression>),
    /// The text that a pointer points to: `str(a)`.
    Text(Box<Expression>),
}

/// Parses expressions that are separated by spaces; returns each with its own text.
///
/// The error says where parsing stopped, and which token was expected.
pub(crate) fn parse_all(text: &str) -> Result<Vec<(String, Expression)>, String> {
    if text.len() > BYTES_MAX {
        return Err(format!("longer than {BYTES_MAX} bytes"));
    }
    let mut reader = Reader { text, position: 0 };
    let mut found = Vec::new();
    loop {
        reader.skip_spaces();
        let start = reader.position;
        if reader.remaining().is_empty() {
            return Ok(found);
        }
        let expression = reader.expression(0)?;
        found.push((text[start..reader.position].to_owned(), expression));
    }
}

/// A recursive-descent parser of the grammar above.
struct Reader<'a> {
    text: &'a str,
    /// Bytes that are consumed.
    position: usize,
}

impl<'a> Reader<'a> {
    fn remaining(&self) -> &'a str {
        &self.text[self.position..]
    }

    fn skip_spaces(&mut self) {
        self.position = self.text.len() - self.remaining().trim_start().len();
    }

    /// Consumes `token` if it comes next; returns whether it did.
    fn take_token(&mut self, token: &str) -> bool {
        let before = self.position;
        self.skip_spaces();
        if self.remaining().starts_with(token) {
            self.position += token.len();
            return true;
        }
        self.position = before;
        false
    }

    fn expect(&mut self, token: &str) -> Result<(), String> {
        if self.take_token(token) { Ok(()) } else { Err(self.wrong(&format!("{token:?}"))) }
    }

    /// Returns an error that names the wanted token and the text at the position.
    fn wrong(&self, wanted: &str) -> String {
        let remaining: String = self.remaining().trim_start().chars().take(20).collect();
        let location = if remaining.is_empty() {
            "at the end".to_owned()
        } else {
            format!("at {remaining:?}")
        };
        format!("{:?}: {wanted} is missing {location}", self.text)
    }

    /// Consumes a word of letters, digits and underscores.
    fn word(&mut self) -> Option<&'a str> {
        let before = self.position;
        self.skip_spaces();
        let ends = |sign: char| !sign.is_ascii_alphanumeric() && sign != '_';
        let remaining = self.remaining();
        let length = remaining.find(ends).unwrap_or(remaining.len());
        if length == 0 {
            self.position = before;
            return None;
        }
        self.position += length;
        Some(&remaining[..length])
    }

    /// Consumes a name: a word that does not start with a digit.
    fn name(&mut self) -> Result<String, String> {
        let before = self.position;
        match self.word() {
            Some(word) if !word.starts_with(|sign: char| sign.is_ascii_digit()) => Ok(word.into()),
            _ => {
                self.position = before;
                Err(self.wrong("a name"))
            }
        }
    }

    /// Consumes a number, decimal or with `0x`.
    fn number(&mut self) -> Result<u64, String> {
        let before = self.position;
        self.word().and_then(parse_number).ok_or_else(|| {
            self.position = before;
            self.wrong("a number")
        })
    }

    /// Parses a primary expression and the postfix operators after it. `depth`: the nesting so far.
    fn expression(&mut self, depth: usize) -> Result<Expression, String> {
        if depth > DEPTH_MAX {
            return Err(format!("{:?}: nested too deep", self.text));
        }
        let mut found = self.primary(depth)?;
        // Each operator consumes at least a byte of a bounded text.
        for _ in 0..BYTES_MAX {
            // Postfix operators follow without a space.
            let remaining = self.remaining();
            if remaining.starts_with("->") {
                self.position += 2;
                found = Expression::Arrow(Box::new(found), self.name()?);
            } else if remaining.starts_with('.') {
                self.position += 1;
                found = Expression::Dot(Box::new(found), self.name()?);
            } else if remaining.starts_with('[') {
                self.position += 1;
                found = Expression::Index(Box::new(found), self.number()?);
                self.expect("]")?;
            } else {
                break;
            }
        }
        Ok(found)
    }

    /// Parses a name, a number, an address, a cast, `str(...)`, or an expression in parentheses.
    fn primary(&mut self, depth: usize) -> Result<Expression, String> {
        if self.take_token("&") {
            return Ok(Expression::AddressOf(self.name()?));
        }
        if self.take_token("(") {
            let before = self.position;
            if let Some(name) = self.pointer_type() {
                let operand = self.expression(depth + 1)?;
                return Ok(Expression::Cast(name, Box::new(operand)));
            }
            self.position = before;
            let inner = self.expression(depth + 1)?;
            self.expect(")")?;
            return Ok(inner);
        }
        let before = self.position;
        let word = self.word().unwrap_or("");
        if word.starts_with(|sign: char| sign.is_ascii_digit()) {
            self.position = before;
            return self.number().map(Expression::Number);
        }
        if word == "str" && self.remaining().starts_with('(') {
            self.position += 1;
            let inner = self.expression(depth + 1)?;
            self.expect(")")?;
            return Ok(Expression::Text(Box::new(inner)));
        }
        self.position = before;
        self.name().map(Expression::Name)
    }

    /// Consumes `struct NAME *)` after a parenthesis.
    fn pointer_type(&mut self) -> Option<String> {
        let first_word = self.name().ok()?;
        let name = if first_word == "struct" || first_word == "union" {
            self.name().ok()?
        } else {
            first_word
        };
        (self.take_token("*") && self.take_token(")")).then_some(name)
    }
}

/// Parses a number, decimal or with `0x`.
pub(crate) fn parse_number(word: &str) -> Option<u64> {
    match word.strip_prefix("0x") {
        Some(digits) => u64::from_str_radix(digits, 16).ok(),
        None => word.parse().ok(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn name(name: &str) -> Box<Expression> {
        Box::new(Expression::Name(name.to_owned()))
    }

    #[test]
    fn expressions_are_read_as_in_c() {
        let all = parse_all("((struct irq_desc *)rdi)->irq_data.irq current->comm  rsi").unwrap();
        let texts: Vec<&str> = all.iter().map(|(text, _)| text.as_str()).collect();
        assert_eq!(texts, ["((struct irq_desc *)rdi)->irq_data.irq", "current->comm", "rsi"]);
        let cast = Expression::Cast("irq_desc".to_owned(), name("rdi"));
        let arrow = Expression::Arrow(Box::new(cast), "irq_data".to_owned());
        assert_eq!(all[0].1, Expression::Dot(Box::new(arrow), "irq".to_owned()));
        assert_eq!(all[1].1, Expression::Arrow(name("current"), "comm".to_owned()));
        assert_eq!(all[2].1, *name("rsi"));
    }

    #[test]
    fn a_cast_applies_to_all_that_follows() {
        let [(_, cast)] = &parse_all("(u64*)rdi->x[0x10]").unwrap()[..] else { panic!() };
        let arrow = Expression::Arrow(name("rdi"), "x".to_owned());
        let index = Expression::Index(Box::new(arrow), 16);
        assert_eq!(*cast, Expression::Cast("u64".to_owned(), Box::new(index)));
        let [(_, text)] = &parse_all("str(rsi)").unwrap()[..] else { panic!() };
        assert_eq!(*text, Expression::Text(name("rsi")));
        let [(_, address)] = &parse_all("&jiffies").unwrap()[..] else { panic!() };
        assert_eq!(*address, Expression::AddressOf("jiffies".to_owned()));
    }

    #[test]
    fn what_is_missing_is_named() {
        for (text, names) in [
            ("current->", "a name is missing at the end"),
            ("(rdi", "\")\" is missing at the end"),
            ("rdi[x]", "a number is missing at \"x]\""),
            ("rdi[1", "\"]\" is missing"),
            ("rdi + 8", "a name is missing at \"+ 8\""),
            ("&1", "a name is missing"),
            ("99999999999999999999", "a number is missing"),
        ] {
            let error = parse_all(text).unwrap_err();
            assert!(error.contains(names), "{text}: {error}");
        }
        assert!(parse_all(&"(".repeat(100)).unwrap_err().contains("too deep"));
        assert!(parse_all(&"x".repeat(300)).unwrap_err().contains("256 bytes"));
    }

    proptest::proptest! {
        #[test]
        fn no_text_panics(text in "((struct |str|rdi|->|[.*&()\\[\\]]| |1|0x|é)){0,40}") {
            let _ = parse_all(&text);
        }
    }
}
