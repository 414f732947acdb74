//! Implements `learner --devices`, which tries a training step on every device.

use std::fs;
use std::path::{Path, PathBuf};

use network_torch::{Device, DevicePreference, Error, Purpose, choose_device, device_name, devices};
use service::device_trial::{Choice, DeviceTrial, Libtorch};

/// Tries a training step on every device of this machine.
pub(crate) fn trial() -> DeviceTrial {
    let found = devices();
    let chosen = |purpose| match choose_device(DevicePreference::Auto, purpose) {
        Ok(chosen) => Choice { device: chosen.name(), reason: chosen.reason },
        Err(error) => Choice { device: String::new(), reason: error.to_string() },
    };
    DeviceTrial {
        working: found.working.iter().map(|&device| device_name(device)).collect(),
        cannot_train: found.working.iter().filter_map(|&device| cannot_train(device)).collect(),
        missing: found.missing,
        training: chosen(Purpose::Training),
        inference: chosen(Purpose::Inference),
        // Must come last, because the trials load the CUDA part of libtorch.
        libtorch: loaded(&fs::read_to_string("/proc/self/maps").unwrap_or_default()),
    }
}

/// Tries a training step on a device that can evaluate. Returns the device name with the error if the step fails.
fn cannot_train(device: Device) -> Option<String> {
    let name = device_name(device);
    let refused = choose_device(name.parse().ok()?, Purpose::Training).err()?;
    let reason = match refused {
        Error::Device { reason, .. } => reason,
        other => other.to_string(),
    };
    Some(format!("{name}: {reason}"))
}

/// Finds the libtorch files among the files mapped into this process, as listed by Linux in `/proc/self/maps`.
fn loaded(maps: &str) -> Libtorch {
    let file = |name: &str| {
        let paths = maps.lines().filter_map(|line| line.find('/').map(|start| Path::new(&line[start..])));
        paths.into_iter().find(|path| path.file_name().is_some_and(|file| file == name)).map(Path::to_owned)
    };
    let cpu_half = file("libtorch_cpu.so");
    let version = cpu_half.as_deref().and_then(version_beside);
    Libtorch { version, cpu_half, cuda_half: file("libtorch_cuda.so") }
}

/// Reads the libtorch version from files next to the library directory, as written by `cargo xtask libtorch` and by the
/// Python package.
fn version_beside(library: &Path) -> Option<String> {
    let folder: PathBuf = library.parent()?.parent()?.to_owned();
    let stamp = || {
        let stamp: serde_json::Value = serde_json::from_slice(&fs::read(folder.join("stamp.json")).ok()?).ok()?;
        Some(stamp.get("version")?.as_str()?.to_owned())
    };
    let package = || {
        let text = fs::read_to_string(folder.join("version.py")).ok()?;
        let line = text.lines().find_map(|line| line.strip_prefix("__version__ = "))?;
        Some(line.trim_matches(['\'', '"']).to_owned())
    };
    stamp().or_else(package)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_libraries_that_are_mapped_are_found_with_the_version_beside_them() {
        let folder = tempfile::tempdir().unwrap();
        let lib = folder.path().join("lib");
        fs::create_dir(&lib).unwrap();
        let [cpu, cuda] = ["libtorch_cpu.so", "libtorch_cuda.so"].map(|name| lib.join(name));
        let line = |path: &Path| format!("7f00-7f01 r-xp 00000000 08:01 1234    {}\n", path.display());
        let maps = format!("7ffc-7ffd rw-p 00000000 00:00 0    [stack]\n{}{}", line(&cpu), line(&cuda));
        let found = |maps: &str| loaded(maps);
        assert_eq!(found(""), Libtorch::default());
        let halves = Libtorch { version: None, cpu_half: Some(cpu.clone()), cuda_half: Some(cuda) };
        assert_eq!(found(&maps), halves);
        fs::write(folder.path().join("version.py"), "debug = False\n__version__ = '2.11.0+cu130'\n").unwrap();
        assert_eq!(found(&maps).version.as_deref(), Some("2.11.0+cu130"));
        fs::write(folder.path().join("stamp.json"), "{\"version\": \"2.11.0\"}").unwrap();
        assert_eq!(found(&line(&cpu)), Libtorch { version: Some("2.11.0".to_owned()), cuda_half: None, ..halves });
    }

    #[test]
    fn the_cpu_works_and_a_device_is_chosen_for_training_and_for_evaluation() {
        let trial = trial();
        assert_eq!(trial.working[0], "cpu");
        for choice in [&trial.training, &trial.inference] {
            assert!(trial.refusal(&choice.device).is_none() && !choice.reason.is_empty(), "{trial:?}");
        }
    }
}
