//! Every command in README.md and docs is checked in the cheapest way: by the parser of the program, by the files and
//! names that the command needs, or else the command is listed with the reason why not.

use std::fs;
use std::path::{Path, PathBuf};

use clap::Parser as _;
use run_file::RunFile;
use service::config::Sources;
use service::{CommonArgs, ConfigError};

mod documented {
    include!(concat!(env!("CARGO_MANIFEST_DIR"), "/src/documented_commands.rs"));
}

/// Programs of a fleet, which share one command line.
const PROCESSES: [&str; 5] = ["actor", "arena", "inference-server", "learner", "replay-server"];

/// First words of commands with a check: processes below, the others by the tests `every_documented_…` of `cli`,
/// `bench` and `xtask`, which alone see the parsers.
const CHECKED: [&str; 8] = [
    "zerofleet",
    "cargo xtask",
    "cargo build",
    "cargo run",
    "docker compose",
    "python",
    "docker run --rm --network",
    "kubectl apply",
];

/// Syntax of the shell, and tools that print or filter text.
const SHELL: [&str; 13] =
    ["for", "do", "done", "while", "export", "printf", "echo", "cat", "sort", "head", "grep", "jq", "sed"];

/// First words of commands that no test checks, with the reason: at most fifteen.
const UNCHECKED: [(&str, &str); 12] = [
    ("grpcurl", "tests/python/by_hand.py calls servers as in docs/inference.md; docs/protocol.md needs a whole fleet"),
    ("kubectl", "needs a cluster; `cargo xtask kubernetes` checks the manifests"),
    ("openssl", "a program of others; the tests of certificates make the same files"),
    ("curl", "a program of others; the tests of health read the same page"),
    ("git pull", "changes the checkout"),
    ("tar", "unpacks the archive of `cargo xtask device-check`, whose tests unpack it"),
    ("run.sh", "is in that archive; the tests of `device-check` run it"),
    ("pip", "installs packages from the network"),
    ("python3 -m venv", "a module of Python"),
    ("tensorboard", "a program of others; the tests of event files read the same files"),
    ("cargo mutants", "a program of others, which takes hours"),
    ("docker run --rm -p", "starts an image of others"),
];

fn repository() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("..")
}

/// Returns a command as one line, with the program without a directory.
fn line(words: &[String]) -> String {
    let program = words[0].rsplit('/').next().unwrap_or_default();
    [&[program.to_owned()][..], &words[1..]].concat().join(" ")
}

fn starts_with(line: &str, first: &str) -> bool {
    line.strip_prefix(first).is_some_and(|rest| rest.is_empty() || rest.starts_with(' '))
}

#[test]
fn every_documented_command_has_a_check_or_a_reason_why_not() {
    let lines: Vec<_> = documented::all().into_iter().map(|found| (line(&found.words), found.page)).collect();
    assert!(lines.len() > 200, "{} commands", lines.len());
    let known = || PROCESSES.iter().chain(&CHECKED).chain(&SHELL).chain(UNCHECKED.iter().map(|(first, _)| first));
    let unknown: Vec<_> = lines.iter().filter(|(line, _)| !known().any(|first| starts_with(line, first))).collect();
    assert!(unknown.is_empty(), "commands without a check or a reason: {unknown:#?}");
    for (first, reason) in UNCHECKED {
        assert!(lines.iter().any(|(line, _)| starts_with(line, first)), "no page shows `{first}` ({reason})");
    }
}

#[test]
fn every_documented_command_of_a_process_parses_and_sets_keys_that_exist() {
    let mut checked = 0;
    for program in PROCESSES {
        for (page, words) in documented::of(program) {
            let named = format!("{page}: {program} {}", words.join(" "));
            let parsed = CommonArgs::try_parse_from([program].into_iter().chain(words.iter().map(String::as_str)));
            let sets = parsed.unwrap_or_else(|error| panic!("{named}: {error}")).sets;
            let sources = Sources { file: None, env: std::iter::empty(), sets };
            let loaded: Result<RunFile, ConfigError> = sources.read(games::preset).and_then(|layers| layers.load());
            loaded.unwrap_or_else(|error| panic!("{named}: {error}"));
            checked += 1;
        }
    }
    assert!(checked > 3, "{checked} commands");
}

#[test]
fn every_documented_build_names_packages_examples_and_features_that_exist() {
    let commands = documented::of("cargo");
    let builds = commands.iter().filter(|(_, words)| ["build", "run"].contains(&words[0].as_str()));
    let mut checked = 0;
    for (page, words) in builds {
        let named = format!("{page}: cargo {}", words.join(" "));
        let of_cargo: Vec<&String> = words.iter().take_while(|word| *word != "--").collect();
        let values = |options: &[&str]| -> Vec<&str> {
            let pairs = of_cargo.windows(2).filter(|pair| options.contains(&pair[0].as_str()));
            pairs.map(|pair| pair[1].as_str()).collect()
        };
        for package in values(&["--package", "-p"]) {
            let folder = ["", "crates", "tests"].map(|parent| repository().join(parent).join(package));
            let folder = folder.into_iter().find(|folder| folder.join("Cargo.toml").exists());
            let folder = folder.unwrap_or_else(|| panic!("{named}: no package {package}"));
            for example in values(&["--example"]) {
                let sources = [format!("{example}.rs"), format!("{example}/main.rs")];
                let exists = sources.iter().any(|source| folder.join("examples").join(source).exists());
                assert!(exists, "{named}: no example {example}");
            }
            let manifest: toml::Table = fs::read_to_string(folder.join("Cargo.toml")).unwrap().parse().unwrap();
            let declared = manifest.get("features").and_then(toml::Value::as_table);
            for feature in values(&["--features"]) {
                assert!(
                    declared.is_some_and(|declared| declared.contains_key(feature)),
                    "{named}: no feature {feature}"
                );
            }
            checked += 1;
        }
    }
    assert!(checked > 3, "{checked} packages");
}

#[test]
fn every_documented_command_of_compose_and_kubectl_names_files_and_services_that_exist() {
    let compose = fs::read_to_string(repository().join("deploy/compose.yaml")).unwrap();
    let mut checked = 0;
    for documented::Documented { page, words } in documented::all() {
        let named = format!("{page}: {}", words.join(" "));
        let files: Vec<&String> = match words[0].as_str() {
            "docker" if words[1] == "compose" => {
                words.windows(2).filter(|pair| pair[0] == "-f").map(|pair| &pair[1]).collect()
            }
            "kubectl" => words.windows(2).filter(|pair| pair[0] == "-k").map(|pair| &pair[1]).collect(),
            _ => continue,
        };
        for file in files {
            assert!(repository().join(file).exists(), "{named}: {file} is missing");
            checked += 1;
        }
        let is_service = |name: &str| compose.contains(&format!("\n  {name}:\n"));
        let scaled = words.windows(2).filter(|pair| pair[0] == "--scale").filter_map(|pair| pair[1].split_once('='));
        let mut services: Vec<&str> = scaled.map(|(service, _)| service).collect();
        if let Some(at) = words.iter().position(|word| word == "logs") {
            services.extend(words[at + 1..].iter().map(String::as_str));
        }
        for service in services {
            assert!(is_service(service), "{named}: no service {service}");
        }
    }
    assert!(checked > 10, "{checked} files");
}

#[test]
fn every_documented_python_program_exists_and_has_the_options() {
    let options = fs::read_to_string(repository().join("clients/python/connection.py")).unwrap();
    let commands = documented::of("python");
    assert!(!commands.is_empty());
    for (page, words) in commands {
        let named = format!("{page}: python {}", words.join(" "));
        let program =
            fs::read_to_string(repository().join(&words[0])).unwrap_or_else(|error| panic!("{named}: {error}"));
        for option in words.iter().filter(|word| word.starts_with("--")) {
            let declared = format!("add_argument(\"{option}\"");
            assert!(program.contains(&declared) || options.contains(&declared), "{named}: no option {option}");
        }
    }
}

#[test]
fn commands_are_read_as_a_shell_reads_them() {
    let words = |text: &str| documented::split(text);
    let read = words("a -x 'b c' \"d $(e \"f\") g\" \\\n  --h # i\nj >> k 2>&1 | l && m=1 n\n");
    let expected: [&[&str]; 4] = [&["a", "-x", "b c", "d x g", "--h"], &["j"], &["l"], &["m=1", "n"]];
    assert_eq!(read, expected);
    assert_eq!(words("f '{\"a\":\n 1}' g\n"), [["f", "{\"a\":\n 1}", "g"]]);
}
