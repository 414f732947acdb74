//! Formats findings as a page of at most eighty columns.

use super::findings::{Finding, Verdict};

/// Width of the page in terminal columns.
const WIDTH: usize = 80;
/// Column at which the text of a finding starts, after the section name.
const INDENT: usize = 11;

/// Formats the findings, with a remedy after each fault or note, and the number of faults in the last line.
pub(super) fn page(found: &[Finding]) -> String {
    let mut text = String::new();
    let mut section = "";
    for finding in found {
        let name = if finding.section == section { "" } else { finding.section };
        section = finding.section;
        let mark = match finding.verdict {
            Verdict::Fine => "",
            Verdict::Note => "NOTE ",
            Verdict::Fault => "FAULT ",
        };
        fold(&mut text, name, &format!("{mark}{}", finding.text));
        if let Some(remedy) = &finding.remedy {
            fold(&mut text, "", &format!("-> {remedy}"));
        }
    }
    let faults = found.iter().filter(|finding| finding.verdict == Verdict::Fault).count();
    let sentence = match faults {
        0 => "nothing here would stop a run".to_owned(),
        1 => "1 fault would stop a run".to_owned(),
        faults => format!("{faults} faults would stop a run"),
    };
    text + "\n" + &sentence + "\n"
}

/// Appends a name and words, wrapped to the page width. A word longer than a line is not split.
fn fold(text: &mut String, name: &str, words: &str) {
    let mut line = format!("{name:<INDENT$}");
    let mut is_empty = true;
    for word in words.split_whitespace() {
        if !is_empty && line.chars().count() + 1 + word.chars().count() > WIDTH {
            text.push_str(line.trim_end());
            text.push('\n');
            (line, is_empty) = (" ".repeat(INDENT), true);
        }
        if !is_empty {
            line.push(' ');
        }
        // Drops control characters, since messages from drivers or loaders must not control the terminal.
        line.extend(word.chars().filter(|c| !c.is_control()));
        is_empty = false;
    }
    text.push_str(line.trim_end());
    text.push('\n');
}
