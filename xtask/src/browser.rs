//! `cargo xtask browser`: installs the browser in which the tests open the web console.

use std::process::Command;

use anyhow::{Result, ensure};

use crate::skip::may_skip;
use crate::workspace;

/// Debian's packages, and the program of each.
const PACKAGES: [(&str, &str); 2] = [("chromium", "chromium"), ("chromium-driver", "chromedriver")];

/// Installs missing packages by apt, if the user is root, and returns the reason if a program is still missing.
///
/// # Errors
/// A program is missing, and `CI` is set without the word `browser` in `ZEROFLEET_MAY_SKIP`.
pub fn run() -> Result<Option<String>> {
    let missing: Vec<&str> =
        PACKAGES.iter().filter(|(_, program)| !runs(program)).map(|(package, _)| *package).collect();
    if missing.is_empty() {
        return Ok(None);
    }
    let Err(error) = install(&missing) else { return Ok(None) };
    let reason = format!("web console in a browser: no {} ({error:#})", missing.join(" and no "));
    ensure!(may_skip("browser"), "cannot check the {reason}");
    println!("NOT CHECKED: {reason}");
    Ok(Some(reason))
}

fn runs(program: &str) -> bool {
    workspace::output(Command::new(program).arg("--version")).is_ok()
}

fn install(packages: &[&str]) -> Result<()> {
    let user = workspace::output(Command::new("id").arg("--user"))?;
    ensure!(user.trim() == "0", "root installs it by `apt-get install {}`", packages.join(" "));
    let apt = |arguments: &[&str]| {
        let mut command = Command::new("apt-get");
        command.args(["--quiet", "--yes"]).args(arguments).env("DEBIAN_FRONTEND", "noninteractive");
        workspace::output(&mut command)
    };
    apt(&["update"])?;
    apt(&[&["install", "--no-install-recommends"][..], packages].concat())?;
    ensure!(PACKAGES.iter().all(|(_, program)| runs(program)), "the installed programs do not run");
    Ok(())
}
