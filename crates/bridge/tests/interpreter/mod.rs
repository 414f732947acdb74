//! Python with the packages for tests, and settings of bridges that use it.

#![allow(dead_code, reason = "each test uses its part")]

#[allow(unreachable_pub, reason = "it is public in its own crate")]
#[path = "../../../../tests/src/python.rs"]
mod python;
#[allow(unreachable_pub, reason = "it is public in its own crate")]
#[path = "../../../../tests/src/skip.rs"]
mod skip;

use std::path::{Path, PathBuf};
use std::time::Duration;

use bridge::Settings;
use python::Python;

/// Returns the directory of Python modules for tests.
pub(crate) fn modules() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/python")
}

/// Returns Python with the packages for tests; `None` if there is no Python, which fails the test in CI.
pub(crate) fn python() -> Option<Python> {
    let folder = Path::new(env!("CARGO_TARGET_TMPDIR")).join("bridge");
    let python = Python::with(&modules().join("requirements.txt"), &folder).unwrap();
    if python.is_none() {
        skip::skip_python("3.10");
    }
    python
}

/// Returns the settings of this environment in this Python.
pub(crate) fn settings(python: &Python, environment: &str, environments: usize, processes: usize) -> Settings {
    Settings {
        environments,
        processes,
        python: python.program().to_owned(),
        modules: vec![modules(), python.packages().to_owned()],
        // Long enough on a busy machine.
        step_timeout: Duration::from_secs(60),
        ..Settings::new(environment, Path::new(env!("CARGO_TARGET_TMPDIR")).join("bridge"))
    }
}
