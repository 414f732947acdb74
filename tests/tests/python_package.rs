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
    copy(&repository().join("python/zerofleet"), &package);
    let library = tests::program("zerofleet").unwrap().with_file_name("lib_zerofleet.so");
    std::fs::copy(&library, package.join("_zerofleet.abi3.so")).unwrap();
    Some(Package { python, folder })
}

/// Copies the modules of a package, and of packages in it.
fn copy(from: &Path, to: &Path) {
    std::fs::create_dir_all(to).unwrap();
    for entry in std::fs::read_dir(from).unwrap() {
        let (path, to) = (entry.as_ref().unwrap().path(), to.join(entry.unwrap().file_name()));
        if path.join("__init__.py").is_file() {
            copy(&path, &to);
        } else if path.is_file() {
            std::fs::copy(path, to).unwrap();
        }
    }
}

impl Package {
    /// Runs a module of Python until it exits, with further folders of modules and variables.
    ///
    /// # Panics
    /// The module fails.
    fn run(&self, arguments: &[&str], modules: &[&Path], environment: &[(&str, &str)]) {
        let paths = [&self.folder, self.python.packages()].into_iter().chain(modules.iter().copied());
        let programs = tests::program("zerofleet").unwrap();
        let mut command = Command::new(self.python.program());
        // In the checkout, Python would find the package without the extension first.
        command.current_dir(&self.folder).env("PYTHONPATH", std::env::join_paths(paths).unwrap());
        command.env("ZEROFLEET_PROGRAMS", programs.parent().unwrap()).envs(environment.iter().copied());
        // `-s` excludes the user's own packages, and `-B` writes no bytecode next to the sources.
        let output = command.arg("-sBm").args(arguments).output().unwrap();
        let text = [output.stdout, output.stderr].map(|bytes| String::from_utf8_lossy(&bytes).into_owned()).concat();
        assert!(output.status.success(), "{arguments:?} failed: {}\n{text}", output.status);
    }

    /// Runs files of `python/tests`, separated by spaces.
    fn test(&self, files: &str, modules: &[&Path], environment: &[(&str, &str)]) {
        let files = files.split(' ').map(|file| repository().join("python/tests").join(file).display().to_string());
        let files: Vec<String> = files.collect();
        let options = ["pytest", "-q", "-p", "no:cacheprovider"].into_iter();
        let arguments: Vec<&str> = options.chain(files.iter().map(String::as_str)).collect();
        self.run(&arguments, modules, environment);
    }
}

/// Declares a test for files of `python/tests`.
macro_rules! tests_of {
    ($($name:ident: $files:literal),+ $(,)?) => {
        $(#[test]
        fn $name() {
            let Some(package) = package() else { return };
            package.test($files, &[], &[]);
        })+
    };
}

tests_of! {
    games_and_searches_of_the_package_answer: "test_games.py test_search.py",
    environments_of_the_package_pass_the_published_checks: "test_envs.py test_pettingzoo.py test_environment_check.py",
    runs_start_stop_and_resume_from_python: "test_run.py test_fleet.py test_programs.py test_weights.py",
    metrics_and_batches_are_read: "test_loggers.py test_remote.py test_replay.py test_safetensors.py",
    models_of_onnx_give_the_outputs_of_the_kernel: "test_onnx.py",
    every_cell_of_the_tutorial_runs: "test_tutorial.py",
}

/// PyTorch without the libraries of CUDA, which no test needs: a tenth of the wheel, and stubs for the rest.
#[test]
#[cfg(target_arch = "x86_64")]
fn modules_of_pytorch_are_equal_to_the_kernel() {
    let Some(package) = package() else { return };
    let torch = Path::new(env!("CARGO_TARGET_TMPDIR")).join("torch");
    let libtorch = repository().join(".libtorch/lib");
    if !torch.join("site/torch").is_dir() {
        let wheel = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).unwrap();
        let folder = wheel.path().to_str().unwrap();
        package.run(&["pip", "download", "-q", "--no-deps", "--dest", folder, "torch==2.11.0"], &[], &[]);
        let made = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).unwrap();
        let arguments = ["minimal_torch", folder, libtorch.to_str().unwrap(), made.path().to_str().unwrap()];
        package.run(&arguments, &[&repository().join("tests/python")], &[]);
        std::fs::rename(made.keep(), &torch).unwrap();
    }
    let libraries = format!("{}:{}", torch.join("lib").display(), libtorch.display());
    // The variable lets PyTorch load functions at the first use, so that functions of CUDA may be missing.
    let environment = [("TORCH_USE_RTLD_GLOBAL", "1"), ("OMP_NUM_THREADS", "1"), ("LD_LIBRARY_PATH", &libraries)];
    package.test("test_torch.py test_onnx.py", &[&torch.join("site")], &environment);
}

#[test]
fn every_file_of_python_tests_is_run() {
    let own = include_str!("python_package.rs");
    for entry in std::fs::read_dir(repository().join("python/tests")).unwrap() {
        let name = entry.unwrap().file_name().into_string().unwrap();
        assert!(own.contains(&name) || !name.starts_with("test_"), "no test above runs {name}");
    }
}

#[test]
fn the_package_is_typed_and_formatted() {
    let Some(package) = package() else { return };
    let (sources, cache) = (repository().join("python"), package.folder.join("cache"));
    let [sources, cache] = [&sources, &cache].map(|path| path.to_str().unwrap());
    let settings = format!("{sources}/pyproject.toml");
    package.run(&["ruff", "check", "--no-cache", sources], &[], &[]);
    package.run(&["ruff", "format", "--no-cache", "--check", sources], &[], &[]);
    package.run(&["mypy", "--config-file", &settings, "--cache-dir", cache, "-p", "zerofleet"], &[], &[]);
    package.run(&["mypy.stubtest", "--mypy-config-file", &settings, "zerofleet._zerofleet"], &[], &[]);
}
