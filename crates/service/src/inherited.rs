//! Variables of this process that third-party programs inherit: environments in Python and engines.
//!
//! Variables also carry credentials, such as the keys of an archive, which no third-party program needs. The list
//! names what is passed, since secrets cannot be listed. It prevents accidental leaks but is no sandbox: such a
//! program has access to the files and processes of the user.

use std::ffi::OsStr;
use std::process::Command;

/// Names that are passed.
const NAMES: &[&str] = &[
    "CONDA_DEFAULT_ENV",
    "CONDA_PREFIX",
    "DISPLAY",
    "HOME",
    "JAVA_HOME",
    "LANG",
    "LANGUAGE",
    "LOGNAME",
    "MPLBACKEND",
    "MPLCONFIGDIR",
    "MUJOCO_GL",
    "PATH",
    "PYOPENGL_PLATFORM",
    "REQUESTS_CA_BUNDLE",
    "SHELL",
    "SSL_CERT_DIR",
    "SSL_CERT_FILE",
    "TEMP",
    "TERM",
    "TMP",
    "TMPDIR",
    "TZ",
    "USER",
    "VIRTUAL_ENV",
    "WAYLAND_DISPLAY",
    "XAUTHORITY",
];

/// Prefixes of further names that are passed: interpreter, loader, locale, desktop, devices and threads.
const PREFIXES: &[&str] = &[
    "CUDA_",
    "DYLD_",
    "EGL_",
    "GOMP_",
    "HIP_",
    "KMP_",
    "LC_",
    "LD_",
    "LIBGL_",
    "MESA_",
    "MKL_",
    "NIX_",
    "NUMBA_",
    "NUMEXPR_",
    "NVIDIA_",
    "OMP_",
    "OPENBLAS_",
    "PYTHON",
    "ROCR_",
    "SDL_",
    "VECLIB_",
    "XDG_",
];

/// Lets a command inherit only harmless variables, and the variables named in `more`. Variables that are set on the
/// command afterwards are added.
pub fn restrict<'a>(command: &'a mut Command, more: &[String]) -> &'a mut Command {
    command.env_clear();
    command.envs(std::env::vars_os().filter(|(name, _)| is_passed(name, more)))
}

fn is_passed(name: &OsStr, more: &[String]) -> bool {
    // No list contains a name that is not UTF-8.
    let Some(name) = name.to_str() else { return false };
    NAMES.contains(&name)
        || PREFIXES.iter().any(|prefix| name.starts_with(prefix))
        || more.iter().any(|one| one == name)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn secrets_are_not_passed_and_what_a_program_needs_is() {
        let passed = |name: &str| is_passed(OsStr::new(name), &["LICENCE_FILE".to_owned()]);
        for name in ["PATH", "HOME", "LC_ALL", "PYTHONHASHSEED", "LD_LIBRARY_PATH", "CUDA_VISIBLE_DEVICES"] {
            assert!(passed(name), "{name}");
        }
        for name in ["AWS_SECRET_ACCESS_KEY", "ZEROFLEET__SECURITY__KEY", "HTTPS_PROXY", "PATHS", "LICENCE"] {
            assert!(!passed(name), "{name}");
        }
        assert!(passed("LICENCE_FILE"), "it is named");
    }

    #[test]
    fn a_restricted_command_has_the_path_of_this_process_and_nothing_of_the_build() {
        // Cargo sets several variables for every test.
        assert!(std::env::vars_os().any(|(name, _)| name == "CARGO_MANIFEST_DIR"));
        let mut command = Command::new("env");
        let output = restrict(&mut command, &[]).env("ADDED", "yes").output().unwrap();
        let text = String::from_utf8(output.stdout).unwrap();
        assert!(text.lines().any(|line| line == "ADDED=yes") && text.contains("PATH="), "{text}");
        assert!(!text.contains("CARGO_MANIFEST_DIR"), "{text}");
    }
}
