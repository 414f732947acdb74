//! Passes the commit of the build to the program as `ZEROFLEET_COMMIT`: the variable of this name, or git's HEAD.

#![allow(clippy::print_stdout, reason = "cargo reads standard output")]

use std::process::Command;

fn main() {
    println!("cargo:rerun-if-env-changed=ZEROFLEET_COMMIT");
    // Rebuilds only this package after a commit: the log of HEAD grows with each.
    let log = git(&["rev-parse", "--git-path", "logs/HEAD"]);
    log.iter().for_each(|log| println!("cargo:rerun-if-changed={log}"));
    // The sources may lie in the checkout of another project.
    let is_ours = git(&["rev-parse", "--show-prefix"]).is_some_and(|prefix| prefix == "cli/");
    let of_checkout = || is_ours.then(|| git(&["rev-parse", "--short=12", "HEAD"])).flatten();
    let commit = std::env::var("ZEROFLEET_COMMIT").ok().filter(|commit| !commit.is_empty()).or_else(of_checkout);
    println!("cargo:rustc-env=ZEROFLEET_COMMIT={}", commit.as_deref().unwrap_or("unknown"));
}

/// Returns the output of git in the directory of this package; `None` without git, a checkout or any output.
fn git(arguments: &[&str]) -> Option<String> {
    let output = Command::new("git").args(arguments).output().ok()?;
    let text = String::from_utf8(output.stdout).ok()?.trim().to_owned();
    (output.status.success() && !text.is_empty()).then_some(text)
}
