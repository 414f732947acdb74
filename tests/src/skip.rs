//! Tests and checks that a machine cannot run.

use std::fmt::Display;
use std::io::Write as _;

/// Returns true if a test or check may be skipped for want of `need`: if `CI` is not set, or the list
/// `ZEROFLEET_MAY_SKIP` names it. A machine of CI that has lost a tool would otherwise stay green.
pub(crate) fn may_skip(need: &str) -> bool {
    std::env::var_os("CI").is_none() || std::env::var("ZEROFLEET_MAY_SKIP").is_ok_and(|listed| is_listed(need, &listed))
}

/// Records that a test does not run for want of `need`: prints the line that `cargo xtask test` counts.
///
/// # Panics
/// In CI, unless `ZEROFLEET_MAY_SKIP` names the need.
pub fn skip(need: &str, why: impl Display) {
    assert!(
        may_skip(need),
        "this test cannot run in CI for want of {need}: {why}; ZEROFLEET_MAY_SKIP={need} leaves it out"
    );
    // The harness hides the output of `eprintln!` in a test that passes. The line starts after the name of the test,
    // which the harness may have written without a line end.
    drop(writeln!(std::io::stderr(), "\nSKIPPED for want of {need}: {why}"));
}

/// Skips a test for want of Python.
pub fn skip_python(version: &str) {
    skip("python", format_args!("no Python {version} or newer with pip was found as $PYTHON, `python3` or `python`"));
}

fn is_listed(need: &str, listed: &str) -> bool {
    listed.split(',').any(|name| name.trim() == need)
}

#[cfg(test)]
mod tests {
    use super::is_listed;

    #[test]
    fn a_test_may_be_skipped_in_ci_only_for_want_of_what_the_list_names() {
        assert!(is_listed("docker", "docker") && is_listed("mount", "docker, mount"));
        assert!(!is_listed("docker", "") && !is_listed("docker", "dockers,mount"));
    }
}
