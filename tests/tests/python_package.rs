//! The Python package passes the tests in `python/tests`, and the checks of types and style, with the extension and the
//! programs of this build.

use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::OnceLock;

use tests::Python;

/// The package, copied next to the extension that the build of the workspace made.
struct Package {
    python: Python,
    /// Folder that holds `zerofleet`.
    folder: PathBuf,
}

fn repository() -> &'static Path {
    Path::new(concat!(env!("CARGO_MANIFEST_DIR"), "/.."))
}

/// Returns the package; `None` without a suitable Python.
fn package() -> Option<&'static Package> {
    static PACKAGE: OnceLock<Option<Package>> = OnceLock::new();
    PACKAGE.get_or_init(install).as_ref()
}

fn install() -> Option<Package> {
    let requirements = repository().join("tests/python/package-requirements.txt");
    let temporary = Path::new(env!("CARGO_TARGET_TMPDIR"));
    let Some(python) = Python::with(&requirements, &temporary.join("package-tests")).unwrap() else {
        tests::skip_python("3.10");
        return None;
    };
    // Each process of tests has a copy, which no other process replaces.
    let folder = temporary.join(format!("package-{}", std::process::id()));
    let package = folder.join("zerofleet");
    std::fs::create_dir_all(&package).unwrap();
    for entry in std::fs::read_dir(repository().join("python/zerofleet")).unwrap() {
        let entry = entry.unwrap();
        if entry.file_type().unwrap().is_file() {
            std::fs::copy(entry.path(), package.join(entry.file_name())).unwrap();
        }
    }
    let library = tests::program("zerofleet").unwrap().with_file_name("lib_zerofleet.so");
    std::fs::copy(&library, package.join("_zerofleet.abi3.so")).unwrap();
    Some(Package { python, folder })
}

impl Package {
    /// Runs a module of Python in `python/` until it exits.
    ///
    /// # Panics
    /// The module fails.
    fn run(&self, arguments: &[&str]) {
        let paths = [&self.folder, self.python.packages()];
        let programs = tests::program("zerofleet").unwrap();
        let mut command = Command::new(self.python.program());
        command.current_dir(repository().join("python")).env("PYTHONPATH", std::env::join_paths(paths).unwrap());
        // `-s` excludes the user's own packages, and `-B` writes no bytecode next to the sources.
        command.arg("-sBm").args(arguments).env("ZEROFLEET_PROGRAMS", programs.parent().unwrap());
        let output = command.output().unwrap();
        let text = [output.stdout, output.stderr].map(|bytes| String::from_utf8_lossy(&bytes).into_owned()).concat();
        assert!(output.status.success(), "{arguments:?} failed: {}\n{text}", output.status);
        println!("{text}");
    }
}

/// Declares a test that runs one file of `python/tests` with pytest.
macro_rules! tests_of {
    ($($name:ident: $file:literal),+ $(,)?) => {
        $(#[test]
        fn $name() {
            let Some(package) = package() else { return };
            package.run(&["pytest", "-q", "-p", "no:cacheprovider", concat!("tests/", $file)]);
        })+
    };
}

tests_of! {
    games_of_the_package_play_by_the_rules: "test_games.py",
    networks_and_searches_of_the_package_answer: "test_search.py",
    environments_of_the_package_pass_the_published_checks: "test_envs.py",
    runs_start_stop_and_resume_from_python: "test_run.py",
    models_of_onnx_answer_like_the_networks: "test_onnx.py",
}

#[test]
fn every_file_of_python_tests_is_run() {
    let own = include_str!("python_package.rs");
    for entry in std::fs::read_dir(repository().join("python/tests")).unwrap() {
        let name = entry.unwrap().file_name().into_string().unwrap();
        let is_run = own.contains(&format!("\"{name}\""));
        assert!(is_run || !name.starts_with("test_"), "no test above runs {name}");
    }
}

#[test]
fn the_package_is_typed_and_formatted() {
    let Some(package) = package() else { return };
    package.run(&["ruff", "check", "--no-cache", "."]);
    package.run(&["ruff", "format", "--no-cache", "--check", "."]);
    package.run(&["mypy", "--cache-dir", package.folder.join("mypy").to_str().unwrap(), "zerofleet"]);
    package.run(&["mypy.stubtest", "zerofleet._zerofleet", "--mypy-config-file", "pyproject.toml"]);
}
