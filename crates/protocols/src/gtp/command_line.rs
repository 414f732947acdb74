//! The words of a command line: [`split_words`].

/// Splits the command line of an engine into words, at spaces outside quotes. A backslash escapes the next character,
/// except between single quotes.
///
/// # Errors
/// [`CommandLineError`] for a line without words, and for an unfinished quote or escape.
pub fn split_words(line: &str) -> Result<Vec<String>, CommandLineError> {
    let (mut words, mut word, mut quote) = (Vec::new(), None::<String>, None);
    let mut characters = line.chars();
    while let Some(character) = characters.next() {
        match character {
            _ if quote == Some(character) => quote = None,
            '\'' | '"' if quote.is_none() => {
                quote = Some(character);
                word.get_or_insert_default();
            }
            '\\' if quote != Some('\'') => {
                let next = characters.next().ok_or_else(|| CommandLineError::Unfinished { line: line.into() })?;
                word.get_or_insert_default().push(next);
            }
            _ if character.is_whitespace() && quote.is_none() => words.extend(word.take()),
            _ => word.get_or_insert_default().push(character),
        }
    }
    if quote.is_some() {
        return Err(CommandLineError::Unfinished { line: line.into() });
    }
    words.extend(word);
    if words.is_empty() { Err(CommandLineError::Empty) } else { Ok(words) }
}

/// The error for a command line that names no program.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum CommandLineError {
    /// There is no word.
    #[error("the command line of the engine is empty")]
    Empty,
    /// A quote is not closed, or a backslash is the last character.
    #[error("`{line}` ends inside a quotation or after a backslash")]
    Unfinished {
        /// The command line.
        line: String,
    },
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn words_end_at_spaces_outside_of_quotes() {
        let words = |line| split_words(line).unwrap();
        assert_eq!(words("gnugo --mode gtp"), ["gnugo", "--mode", "gtp"]);
        assert_eq!(words(r#"  "a b"c  'd "e\' '' f\ g "#), ["a bc", r#"d "e\"#, "", "f g"]);
        for line in ["'a", "\"a", "a\\"] {
            assert_eq!(split_words(line), Err(CommandLineError::Unfinished { line: line.into() }));
        }
        assert_eq!(split_words(" \t"), Err(CommandLineError::Empty));
    }
}
