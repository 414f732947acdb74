//! Formats commands for users to copy into a shell.

use std::ffi::OsStr;

use fleet::RunDirectory;

/// The default value of `--runs`.
const USUAL_RUNS: &str = "runs";

/// Quotes an argument for a shell: in single quotes if a character is special to the shell, otherwise unchanged.
pub(crate) fn quoted(argument: impl AsRef<OsStr>) -> String {
    let argument = argument.as_ref().to_string_lossy();
    let is_plain = |c: char| c.is_ascii_alphanumeric() || "-_./:=,@%+".contains(c);
    if !argument.is_empty() && argument.chars().all(is_plain) {
        return argument.into_owned();
    }
    // Within single quotes nothing can be escaped, so a single quote is written outside.
    format!("'{}'", argument.replace('\'', r"'\''"))
}

/// Returns the command that resumes a run.
pub(crate) fn train(run: &RunDirectory) -> String {
    format!("zerofleet train{}", options_of(run))
}

/// Returns the options that select a run, each with a leading space.
pub(crate) fn options_of(run: &RunDirectory) -> String {
    let mut options = format!(" --run {}", quoted(run.name()));
    let runs = run.path().parent();
    if let Some(runs) = runs.filter(|&runs| Some(runs) != std::path::absolute(USUAL_RUNS).ok().as_deref()) {
        options.push_str(&format!(" --runs {}", quoted(runs)));
    }
    options
}

#[cfg(test)]
mod tests {
    use std::path::Path;
    use std::process::Command;

    use super::*;

    #[test]
    fn a_shell_reads_a_quoted_argument_as_it_was() {
        let arguments = [
            "",
            "plain",
            "/a/b-c_d.e",
            "my runs",
            "it's",
            "$HOME",
            "a\"b",
            "`x`",
            "~",
            "a;b",
            "*",
            "(a)",
            "größe",
            "\\",
            "#a",
        ];
        for argument in arguments {
            let script = format!("printf '%s' {}", quoted(argument));
            let output = Command::new("sh").args(["-c", &script]).output().unwrap();
            assert_eq!(String::from_utf8(output.stdout).unwrap(), argument, "{script}");
        }
        assert_eq!((quoted("/a/b-c_d.e"), quoted("my runs")), ("/a/b-c_d.e".to_owned(), "'my runs'".to_owned()));
    }

    #[test]
    fn a_command_names_the_folder_of_runs_unless_it_is_the_usual_one() {
        let command = |runs: &Path| train(&RunDirectory::new(runs, "first").unwrap());
        assert_eq!(command(Path::new("runs")), "zerofleet train --run first");
        assert_eq!(command(Path::new("/my runs")), "zerofleet train --run first --runs '/my runs'");
    }
}
