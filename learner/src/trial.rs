//! Implements `learner --devices`, which tries a training step on every device.

use std::fs;
use std::path::{Path, PathBuf};

use network_torch::{
    Device, DevicePreference, Error, Purpose, choose_device, cpu_half, cuda_half, device_name, devices,
};
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
        libtorch: loaded([cpu_half(), cuda_half()]),
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

/// Describes libtorch, given the paths of the loaded halves, which may lead through links.
fn loaded([cpu_half, cuda_half]: [Option<PathBuf>; 2]) -> Libtorch {
    let [cpu_half, cuda_half] = [cpu_half, cuda_half].map(|path| fs::canonicalize(path?).ok());
    Libtorch { version: cpu_half.as_deref().and_then(version_beside), cpu_half, cuda_half }
}

/// Reads the libtorch version from files next to the library directory, as written by `cargo xtask libtorch`, in the
/// Python package, and in the archive for C++.
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
    let archive = || Some(fs::read_to_string(folder.join("build-version")).ok()?.trim().to_owned());
    stamp().or_else(package).or_else(archive)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn loaded_libraries_are_named_without_links_and_with_the_version_beside_them() {
        let folder = tempfile::tempdir().unwrap();
        let root = folder.path().canonicalize().unwrap();
        fs::create_dir_all(root.join("torch/lib")).unwrap();
        std::os::unix::fs::symlink(root.join("torch"), root.join("link")).unwrap();
        let [cpu, cuda] = ["libtorch_cpu.so", "libtorch_cuda.so"].map(|name| {
            fs::write(root.join("torch/lib").join(name), "").unwrap();
            [root.join("link/lib").join(name), root.join("torch/lib").join(name)]
        });
        assert_eq!(loaded([None, None]), Libtorch::default());
        let halves = Libtorch { version: None, cpu_half: Some(cpu[1].clone()), cuda_half: Some(cuda[1].clone()) };
        let found = || loaded([Some(cpu[0].clone()), Some(cuda[0].clone())]);
        assert_eq!(found(), halves);
        for (file, text, version) in [
            ("build-version", "2.11.0+cu126\n", "2.11.0+cu126"),
            ("version.py", "debug = False\n__version__ = '2.11.0+cu130'\n", "2.11.0+cu130"),
            ("stamp.json", "{\"version\": \"2.11.0\"}", "2.11.0"),
        ] {
            fs::write(root.join("torch").join(file), text).unwrap();
            assert_eq!(found().version.as_deref(), Some(version));
        }
        assert_eq!(loaded([Some(cpu[0].clone()), None]).cuda_half, None);
    }

    #[test]
    fn the_cpu_works_and_a_device_is_chosen_for_training_and_for_evaluation() {
        let trial = trial();
        assert_eq!(trial.working[0], "cpu");
        for choice in [&trial.training, &trial.inference] {
            assert!(trial.refusal(&choice.device).is_none() && !choice.reason.is_empty(), "{trial:?}");
        }
        let library = trial.libtorch.cpu_half.clone().unwrap();
        assert!(library.is_file() && library.display().to_string().contains("libtorch_cpu."), "{trial:?}");
    }
}
