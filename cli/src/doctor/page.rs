//! Formats findings as a page of at most eighty columns.

use super::findings::{Finding, Verdict, faults};
use crate::screen::folded;

/// Width of the page in terminal columns.
const WIDTH: usize = 80;

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
        text += &folded(name, &format!("{mark}{}", finding.text), WIDTH);
        if let Some(remedy) = &finding.remedy {
            text += &folded("", &format!("-> {remedy}"), WIDTH);
        }
    }
    let sentence = match faults(found) {
        0 => "nothing here would stop a run".to_owned(),
        1 => "1 fault would stop a run".to_owned(),
        faults => format!("{faults} faults would stop a run"),
    };
    text + "\n" + &sentence + "\n"
}
