//! Installs libtorch in `.libtorch`, from the Python package index, which has wheels for every platform that we build
//! on.
//!
//! A wheel is a zip file, of which a few files are extracted (see `wheels`). A stamp lists the extracted files, so that
//! a missing or damaged file is detected and fetched again. Start with [`ensure`].

mod stamp;
mod wheels;

use std::fs::{self, File};
use std::path::Path;
use std::time::Instant;

use anyhow::{Context, Result, bail};
use tempfile::TempDir;

use crate::python::Python;
use crate::workspace;
use stamp::Stamp;
pub use wheels::Platform;

/// The version `tch` is bound to; another one does not link.
pub const VERSION: &str = "2.11.0";

/// The thoroughness of the check of an existing installation.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Check {
    /// Checks sizes and dates, and the bytes of a file whose date has changed.
    Stamp,
    /// Checks every byte of the libraries.
    Bytes,
}

/// Ensures that libtorch is installed and intact: in `.libtorch`, or in the folder that `LIBTORCH` names. Prints
/// nothing if it is.
///
/// # Errors
/// A message that names the missing part (Python, pip, network, a wheel for this platform) and the remedy.
pub fn ensure(root: &Path, check: Check) -> Result<()> {
    if let Some(folder) = workspace::chosen_libtorch(root) {
        return accept(&folder);
    }
    let platform = Platform::here()?;
    let folder = root.join(".libtorch");
    let tools = root.join(".tools");
    fs::create_dir_all(&tools).with_context(|| format!("create {}", tools.display()))?;
    // Of two concurrent tasks only the first fetches libtorch; the second finds it installed.
    let lock = File::create(tools.join("libtorch.lock")).context("create .tools/libtorch.lock")?;
    lock.lock().context("lock .tools/libtorch.lock")?;

    match Stamp::check(&folder, platform, check) {
        Ok(()) => return Ok(()),
        Err(reason) => eprintln!("libtorch {VERSION}: {reason:#}; fetching it"),
    }
    fetch(platform, &folder, &tools).with_context(|| {
        format!(
            "fetch libtorch {VERSION} (an existing install serves as well: set LIBTORCH to the folder that holds its \
             `include` and `lib`)"
        )
    })
}

fn accept(folder: &Path) -> Result<()> {
    let library = format!("lib/{}torch_cpu{}", std::env::consts::DLL_PREFIX, std::env::consts::DLL_SUFFIX);
    for part in ["include/torch", &library] {
        if !folder.join(part).exists() {
            bail!(
                "LIBTORCH is {}, which has no `{part}`: point it to a libtorch {VERSION}, or unset it to have one fetched",
                folder.display()
            );
        }
    }
    Ok(())
}

/// Downloads and unpacks beside `folder`, then replaces `folder` by a rename.
fn fetch(platform: &Platform, folder: &Path, tools: &Path) -> Result<()> {
    let start = Instant::now();
    let python = Python::find()?;
    // The folder is removed with its contents on drop, also after an error.
    let work = TempDir::with_prefix_in("libtorch-", tools).context("create a folder in .tools")?;
    let fresh = work.path().join("libtorch");
    for wheel in platform.wheels {
        eprintln!("libtorch {VERSION}: downloading {} ({}, once)", wheel.requirement, wheel.size);
        let downloads = work.path().join(wheel.folder_name());
        python.download_wheel(wheel.requirement, &downloads)?;
        eprintln!("libtorch {VERSION}: unpacking {}", wheel.requirement);
        wheel.unpack(&python, &downloads, &fresh)?;
        fs::remove_dir_all(&downloads).with_context(|| format!("remove {}", downloads.display()))?;
    }
    platform.finish(&fresh)?;
    Stamp::write(&fresh, platform)?;

    let old = work.path().join("old");
    if folder.exists() {
        fs::rename(folder, &old).with_context(|| format!("move {} away", folder.display()))?;
    }
    fs::rename(&fresh, folder).with_context(|| format!("move the new libtorch to {}", folder.display()))?;
    eprintln!("libtorch {VERSION}: ready in {:.0} s", start.elapsed().as_secs_f64());
    Ok(())
}

#[cfg(test)]
mod tests {
    //! Tests of the stamp; fetching itself needs the package index and is exercised by every installation.

    use std::fs;
    use std::path::Path;

    use tempfile::TempDir;

    use super::stamp::Stamp;
    use super::wheels::{LINUX_X86, MAC_ARM};
    use super::{Check, accept};

    fn installed() -> TempDir {
        let folder = TempDir::new().unwrap();
        fs::create_dir_all(folder.path().join("include/torch")).unwrap();
        fs::create_dir_all(folder.path().join("lib")).unwrap();
        fs::write(folder.path().join("include/torch/torch.h"), "#pragma once").unwrap();
        for library in MAC_ARM.libraries {
            fs::write(folder.path().join("lib").join(library), "machine code").unwrap();
        }
        Stamp::write(folder.path(), &MAC_ARM).unwrap();
        folder
    }

    fn complaint(folder: &Path, check: Check) -> String {
        Stamp::check(folder, &MAC_ARM, check).map_or_else(|error| error.to_string(), |()| "none".to_owned())
    }

    fn set_date(path: &Path, seconds: u64) {
        let date = std::time::UNIX_EPOCH + std::time::Duration::from_secs(seconds);
        fs::File::options().write(true).open(path).unwrap().set_modified(date).unwrap();
    }

    #[test]
    fn an_unchanged_installation_passes_the_check_by_stamp_and_by_bytes() {
        let folder = installed();
        assert_eq!(complaint(folder.path(), Check::Stamp), "none");
        assert_eq!(complaint(folder.path(), Check::Bytes), "none");
    }

    #[test]
    fn a_missing_library_is_noticed() {
        let folder = installed();
        fs::remove_file(folder.path().join("lib/libc10.dylib")).unwrap();
        assert_eq!(complaint(folder.path(), Check::Stamp), "`lib/libc10.dylib` is missing");
    }

    #[test]
    fn a_library_cut_short_is_noticed() {
        let folder = installed();
        fs::write(folder.path().join("lib/libc10.dylib"), "machine").unwrap();
        assert_eq!(complaint(folder.path(), Check::Stamp), "`lib/libc10.dylib` has 7 bytes instead of 12");
    }

    #[test]
    fn a_flipped_byte_is_noticed_when_the_date_changed_or_bytes_are_read() {
        let folder = installed();
        let library = folder.path().join("lib/libc10.dylib");
        set_date(&library, 1_000);
        assert_eq!(complaint(folder.path(), Check::Stamp), "none", "a new date on the same bytes is learnt");
        fs::write(&library, "machine coda").unwrap();
        assert_eq!(complaint(folder.path(), Check::Stamp), "`lib/libc10.dylib` is damaged");
        set_date(&library, 1_000);
        assert_eq!(complaint(folder.path(), Check::Stamp), "none", "sizes and dates do not show it");
        assert_eq!(complaint(folder.path(), Check::Bytes), "`lib/libc10.dylib` is damaged");
    }

    #[test]
    fn a_lost_header_is_noticed() {
        let folder = installed();
        fs::remove_file(folder.path().join("include/torch/torch.h")).unwrap();
        assert_eq!(complaint(folder.path(), Check::Stamp), "headers are missing or damaged");
    }

    #[test]
    fn a_folder_without_a_stamp_or_for_another_platform_is_fetched_again() {
        let folder = installed();
        let other = Stamp::check(folder.path(), &LINUX_X86, Check::Stamp).unwrap_err().to_string();
        assert!(other.ends_with("holds version 2.11.0 for macos-arm64"), "{other}");
        fs::write(folder.path().join("stamp.json"), "{").unwrap();
        assert_eq!(complaint(folder.path(), Check::Stamp), "stamp.json cannot be read");
        fs::remove_file(folder.path().join("stamp.json")).unwrap();
        assert!(complaint(folder.path(), Check::Stamp).ends_with("has no stamp.json"));
    }

    #[test]
    fn a_wrong_libtorch_variable_is_reported_with_the_missing_folder() {
        let folder = TempDir::new().unwrap();
        let error = accept(folder.path()).unwrap_err().to_string();
        assert!(error.contains("LIBTORCH is") && error.contains("has no `include/torch`"), "{error}");
    }
}
