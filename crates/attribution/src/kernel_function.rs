//! The function in the kernel's source to which a symbol belongs. Compilers emit copies and parts of a function under
//! separate names: `handle_softirqs.constprop.0`, `sigsuspend.isra.0`, `schedule.cold`. The simulated bench looks
//! functions up by their names in the source, and must find these symbols.

/// The part of a function that the code at a symbol contains.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Body {
    /// The whole function, with its arguments.
    Whole,
    /// The whole function, specialised for constant arguments, which are not passed (`constprop`). In the kernel
    /// the first argument, the object of the function, is never constant.
    Specialised,
    /// The whole function, with other arguments (`isra`).
    OtherArguments,
    /// The function without its start, which the compiler put into the callers (`part`).
    Rest,
    /// A piece to which the function jumps (`cold`).
    Piece,
}

impl Body {
    /// Whether the function starts at the symbol, with its first `arguments` arguments in their registers. The caller
    /// uses a [`Body::Rest`] as the start only if the function has no other symbol.
    #[must_use]
    pub fn starts(self, arguments: u8) -> bool {
        match self {
            Body::Whole => true,
            Body::Specialised => arguments <= 1,
            Body::OtherArguments | Body::Rest => arguments == 0,
            Body::Piece => false,
        }
    }
}

/// Splits the name of a symbol into the name of its function, and the part of the function at the symbol. Names
/// with other suffixes, such as the names of static variables, stay whole.
#[must_use]
pub fn split(symbol: &str) -> (&str, Body) {
    split_suffixes(symbol).unwrap_or((symbol, Body::Whole))
}

/// Does the work of [`split`]. `None` if the name does not end in suffixes that compilers give to functions.
fn split_suffixes(symbol: &str) -> Option<(&str, Body)> {
    let (function, suffixes) = symbol.split_once('.')?;
    if function.is_empty() {
        return None;
    }
    let mut body = Body::Whole;
    let mut pieces = suffixes.split('.').peekable();
    while let Some(word) = pieces.next() {
        let (word_body, has_number) = match word {
            "cold" => (Body::Piece, false),
            "part" => (Body::Rest, true),
            "isra" | "clone" => (Body::OtherArguments, true),
            "constprop" => (Body::Specialised, true),
            "llvm" | "lto_priv" => (Body::Whole, true),
            _ => return None,
        };
        let number = pieces.next_if(|next| next.bytes().all(|digit| digit.is_ascii_digit()));
        if has_number && number.is_none() {
            return None;
        }
        // With several suffixes, the suffix that leaves the least of the function decides.
        body = body.max(word_body);
    }
    Some((function, body))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn suffixes_of_compilers_are_known_and_no_others() {
        for (symbol, function, body) in [
            ("handle_softirqs", "handle_softirqs", Body::Whole),
            ("handle_softirqs.constprop.0", "handle_softirqs", Body::Specialised),
            ("handle_softirqs.constprop.0.cold", "handle_softirqs", Body::Piece),
            ("sigsuspend.isra.0", "sigsuspend", Body::OtherArguments),
            ("f.isra.0.constprop.12", "f", Body::OtherArguments),
            ("synchronize_rcu.part.0", "synchronize_rcu", Body::Rest),
            ("f.part.0.isra.0", "f", Body::Rest),
            ("f.cold.7", "f", Body::Piece),
            ("f.llvm.1234567890", "f", Body::Whole),
            ("f.lto_priv.0", "f", Body::Whole),
            // Static variables, and what no compiler makes.
            ("work.15", "work.15", Body::Whole),
            ("__already_done.3", "__already_done.3", Body::Whole),
            ("f.isra", "f.isra", Body::Whole),
            ("f.isra.x", "f.isra.x", Body::Whole),
            (".cold", ".cold", Body::Whole),
            ("f.", "f.", Body::Whole),
            ("", "", Body::Whole),
        ] {
            assert_eq!(split(symbol), (function, body), "{symbol}");
        }
    }

    #[test]
    fn arguments_are_read_where_they_are_passed() {
        let starts = |symbol, arguments| split(symbol).1.starts(arguments);
        assert!(starts("f", 6) && starts("f.llvm.1", 6));
        assert!(starts("f.constprop.0", 1) && !starts("f.constprop.0", 2));
        assert!(starts("f.isra.0", 0) && !starts("f.isra.0", 1));
        assert!(!starts("f.cold", 0));
    }
}
