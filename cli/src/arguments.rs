//! Parses the command line and groups the commands in the help. A negative number is an option value, not an option.

use std::error::Error as _;
use std::ffi::OsString;
use std::fmt::Write as _;
use std::num::ParseIntError;

use clap::error::{ContextKind, ContextValue, ErrorKind};
use clap::{Command, CommandFactory as _, Error, FromArgMatches as _};

use crate::Cli;

/// Groups of commands by purpose, in the order of the help text.
const GROUPS: [(&str, &[&str]); 4] = [
    ("Train", &["train", "tune", "ablate", "env"]),
    ("Play", &["play", "gtp", "gomocup", "analysis"]),
    ("Measure", &["eval", "match", "bench", "picture"]),
    ("Operate", &["top", "console", "weights", "replay", "inference", "doctor"]),
];

/// Parses a command line that starts with the program name.
///
/// # Errors
/// The command line is invalid, or requests the help or the version.
pub(crate) fn parse(arguments: impl Iterator<Item = OsString>) -> Result<Cli, Error> {
    let mut command = with_groups(with_negative_numbers(Cli::command()));
    let matches = command.try_get_matches_from_mut(arguments).map_err(with_reason)?;
    Cli::from_arg_matches(&matches).map_err(|error| error.format(&mut command))
}

/// Lists the commands of the help text in [`GROUPS`], with a heading per group.
fn with_groups(command: Command) -> Command {
    let mut list = String::new();
    for (heading, names) in GROUPS {
        let _ = writeln!(list, "{heading}:");
        for name in names {
            let about = command.find_subcommand(name).and_then(Command::get_about).map(ToString::to_string);
            let _ = writeln!(list, "  {name:<11}{}", about.unwrap_or_default());
        }
        list.push('\n');
    }
    command.help_template(format!("{{about-with-newline}}\n{{usage-heading}} {{usage}}\n\n{list}Options:\n{{options}}"))
}

/// Makes all options of a command, and of all subcommands, accept negative numbers. An error then reports the allowed
/// range instead of an unknown option.
fn with_negative_numbers(command: Command) -> Command {
    let takes_values = |arg: &clap::Arg| arg.get_action().takes_values() && !arg.is_positional();
    command
        .mut_args(|arg| if takes_values(&arg) { arg.allow_negative_numbers(true) } else { arg })
        .mut_subcommands(with_negative_numbers)
}

/// Replaces the error `invalid digit` for a negative number by the error `must not be negative`.
fn with_reason(error: Error) -> Error {
    let text = |kind| match error.get(kind) {
        Some(ContextValue::String(text)) => text.clone(),
        _ => String::new(),
    };
    let (value, option) = (text(ContextKind::InvalidValue), text(ContextKind::InvalidArg));
    let is_negative = value.starts_with('-') && value.parse::<f64>().is_ok();
    if !is_negative || !error.source().is_some_and(|source| source.is::<ParseIntError>()) {
        return error;
    }
    Error::raw(ErrorKind::ValueValidation, format!("invalid value '{value}' for '{option}': must not be negative\n"))
}

#[cfg(test)]
mod tests {
    use clap::Parser as _;

    use run_file::RunFile;
    use service::ConfigError;
    use service::config::Sources;

    use super::*;

    mod documented {
        include!(concat!(env!("CARGO_MANIFEST_DIR"), "/../tests/src/documented_commands.rs"));
    }

    fn parsed(line: &str) -> Result<Cli, String> {
        parse(line.split(' ').map(OsString::from)).map_err(|error| error.to_string())
    }

    /// Checks the keys and values after `--set`, as the processes of a run do.
    fn check_settings(words: &[String]) -> Result<(), String> {
        let values = |option: &str| {
            let given = words.windows(2).filter(|pair| pair[0] == option);
            given.map(|pair| pair[1].clone()).collect::<Vec<_>>()
        };
        let loaded = |sets: Vec<String>| -> Result<RunFile, ConfigError> {
            Sources { file: None, env: std::iter::empty(), sets }.read(games::preset)?.load()
        };
        let game: Vec<String> = values("--game").iter().map(|game| format!("run.game={game}")).collect();
        let before = loaded(game.clone()).map_err(|error| error.to_string())?;
        let after = loaded([game, values("--set")].concat()).map_err(|error| error.to_string())?;
        // Other commands set keys of one process, and an environment in Python is described at the start of a run.
        if words.first().is_none_or(|command| command != "train") || before.check_settings().is_err() {
            return Ok(());
        }
        after.check_settings().map_err(|error| service::chain(&error))
    }

    #[test]
    fn every_documented_command_parses_and_sets_keys_that_exist_to_values_in_range() {
        let commands = documented::of("zerofleet");
        assert!(commands.len() > 80, "{} commands", commands.len());
        let mut faults = Vec::new();
        for (page, words) in commands {
            let line = ["zerofleet"].into_iter().chain(words.iter().map(String::as_str));
            // A request for the help is no fault.
            let parsed = parse(line.map(OsString::from))
                .map(drop)
                .or_else(|error| if error.use_stderr() { Err(error.to_string()) } else { Ok(()) });
            let fault = parsed.and_then(|()| check_settings(&words)).err();
            faults.extend(fault.map(|fault| format!("{page}: zerofleet {}: {fault}", words.join(" "))));
        }
        assert!(faults.is_empty(), "{}", faults.join("\n"));
    }

    #[test]
    fn a_study_file_or_a_measurement_follows_tune() {
        parsed("zerofleet tune study.toml --check").unwrap();
        parsed("zerofleet tune batch --set run.game=hex-9 --batches 128,512").unwrap();
        parsed("zerofleet tune batch --device cuda --start start.toml").unwrap();
        let error = parsed("zerofleet tune").unwrap().run().unwrap_err().to_string();
        assert!(error.contains("expected a study file or `batch`"), "{error}");
    }

    #[test]
    fn every_option_that_takes_a_value_takes_a_negative_number_whose_range_is_reported() {
        fn check(command: &Command) {
            let options = command.get_arguments().filter(|arg| arg.get_action().takes_values() && !arg.is_positional());
            options.for_each(|arg| assert!(arg.is_allow_negative_numbers_set(), "{} {arg}", command.get_name()));
            command.get_subcommands().for_each(check);
        }
        let command = with_negative_numbers(Cli::command());
        command.clone().debug_assert();
        check(&command);
        for line in ["zerofleet train --minutes -1", "zerofleet top --interval -0.5", "zerofleet train --minutes -1e3"]
        {
            parsed(line).unwrap();
        }
        for line in
            ["zerofleet train --actors -1", "zerofleet train --from -2 --run a", "zerofleet eval --run a --count -3"]
        {
            let error = parsed(line).unwrap_err();
            assert!(error.contains("must not be negative") && error.contains("--"), "{error}");
        }
        let error = parsed("zerofleet eval --run a --simulations -1").unwrap_err();
        assert!(error.contains("-1 is not in 0..="), "{error}");
        assert!(parsed("zerofleet train -1").unwrap_err().contains("unexpected argument '-1'"));
    }

    #[test]
    fn every_command_is_in_one_group_and_has_a_summary_of_one_line() {
        fn check(command: &Command) {
            let summary = command.get_about().map(ToString::to_string).unwrap_or_default();
            assert!((1..=70).contains(&summary.chars().count()), "{}: {summary}", command.get_name());
            command.get_subcommands().for_each(check);
        }
        let command = with_groups(Cli::command());
        check(&command);
        let mut listed: Vec<&str> = GROUPS.iter().flat_map(|(_, names)| *names).copied().collect();
        let mut all: Vec<&str> = command.get_subcommands().map(Command::get_name).collect();
        listed.sort_unstable();
        all.sort_unstable();
        assert_eq!(listed, all);
        let help = parsed("zerofleet --help").unwrap_err();
        assert!(help.contains("Operate:\n  top ") && help.contains("--version"), "{help}");
    }

    #[test]
    fn other_errors_are_those_of_the_parser() {
        let expected = Cli::try_parse_from(["zerofleet", "train", "--actors", "x"]).unwrap_err().to_string();
        assert_eq!(parsed("zerofleet train --actors x").unwrap_err(), expected);
    }
}
