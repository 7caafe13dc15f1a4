//! Commands for a guest's shell.

/// The line that has a shell run `words`: one word is a line already, of several each is passed on as
/// it is.
pub fn line(words: &[String]) -> String {
    match words {
        [line] => line.clone(),
        words => words.iter().map(|word| quoted(word)).collect::<Vec<_>>().join(" "),
    }
}

fn quoted(word: &str) -> String {
    let plain = |byte: u8| byte.is_ascii_alphanumeric() || b"-_./:,+@%".contains(&byte);
    if !word.is_empty() && word.bytes().all(plain) {
        return word.to_owned();
    }
    format!("'{}'", word.replace('\'', r"'\''"))
}

#[cfg(test)]
mod tests {
    use std::process::Command;

    use super::*;

    #[test]
    fn a_shell_gets_back_each_word() {
        let hard = [
            "",
            "plain",
            "a b",
            "it's",
            "'",
            "''\"",
            "$HOME `id` \\",
            "*",
            "a\nb",
            "x=1",
            "-n",
            "~",
        ];
        let words: Vec<String> =
            ["printf", "%s\\0"].iter().chain(&hard).map(|word| (*word).to_owned()).collect();
        let ran = Command::new("sh").arg("-c").arg(line(&words)).output().unwrap();
        let expected: String = hard.iter().map(|word| format!("{word}\0")).collect();
        assert_eq!(String::from_utf8(ran.stdout).unwrap(), expected);
    }

    #[test]
    fn one_word_is_a_line() {
        assert_eq!(line(&["uname -a; ls".to_owned()]), "uname -a; ls");
    }
}
