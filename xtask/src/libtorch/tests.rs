//! Tests of the stamp and the choice of downloads. Fetching itself needs the package index, and every installation
//! exercises it.

use std::fs;
use std::path::Path;

use tempfile::TempDir;

use super::stamp::Stamp;
use super::wheels::{HASHES, opened};
use super::{Check, Choice, Halves, Install, LICENSES, Platform, Sizes, choose, decide};
use crate::gpu::{Gpu, parse};

fn linux_x86() -> &'static Platform {
    Platform::named("linux-x86_64")
}

fn linux_arm() -> &'static Platform {
    Platform::named("linux-aarch64")
}

fn mac_arm() -> &'static Platform {
    Platform::named("macos-arm64")
}

/// An installation with a CPU half and some libraries of the CUDA half.
struct Fetched {
    install: Install,
    _folder: TempDir,
}

impl Fetched {
    /// Installs on Linux.
    fn with(cuda: &[&str]) -> Self {
        let fetched = Self::on(linux_x86());
        fetched.adopt_cpu();
        fetched.adopt(cuda);
        fetched
    }

    fn on(platform: &'static Platform) -> Self {
        let folder = TempDir::new().unwrap();
        let [libtorch, tools] = ["libtorch", "tools"].map(|name| folder.path().join(name));
        fs::create_dir_all(&tools).unwrap();
        Self { install: Install { platform, folder: libtorch, tools }, _folder: folder }
    }

    /// Adopts libraries as if they were unpacked from a wheel.
    fn adopt(&self, libraries: &[&str]) {
        let part = self.install.tools.join("part");
        fs::create_dir_all(part.join("lib")).unwrap();
        for library in libraries {
            fs::write(part.join("lib").join(library), "machine code").unwrap();
        }
        self.install.adopt(&part).unwrap();
    }

    /// Adopts the CPU half, with headers.
    fn adopt_cpu(&self) {
        let headers = self.install.tools.join("part/include/torch");
        fs::create_dir_all(&headers).unwrap();
        fs::write(headers.join("torch.h"), "#pragma once").unwrap();
        self.adopt(&self.install.platform.libraries);
        fs::remove_dir_all(self.install.tools.join("part")).unwrap();
    }

    fn lib(&self, name: &str) -> std::path::PathBuf {
        self.install.folder.join("lib").join(name)
    }

    /// Returns the packages that would be downloaded.
    fn packages(&self, halves: Halves, check: Check) -> Vec<&'static str> {
        let wanted = self.install.wanted(halves, check).unwrap();
        wanted.wheels(linux_x86()).iter().map(|wheel| wheel.package()).collect()
    }

    /// Returns the reason to fetch the CPU half for `platform`.
    fn complaint(&self, platform: &'static Platform, check: Check) -> String {
        let defects = Stamp::defects(&self.install.folder, platform, check).unwrap();
        defects.first().map_or("none", |(_, reason)| reason.as_str()).to_owned()
    }
}

fn installed() -> Fetched {
    let fetched = Fetched::on(mac_arm());
    fetched.adopt_cpu();
    fetched
}

fn all_cuda() -> Vec<&'static str> {
    linux_x86().cuda_libraries().collect()
}

fn set_date(path: &Path, seconds: u64) {
    let date = std::time::UNIX_EPOCH + std::time::Duration::from_secs(seconds);
    fs::File::options().write(true).open(path).unwrap().set_modified(date).unwrap();
}

#[test]
fn an_unchanged_installation_passes_the_check_by_stamp_and_by_bytes() {
    let fetched = installed();
    assert_eq!(fetched.complaint(mac_arm(), Check::Stamp), "none");
    assert_eq!(fetched.complaint(mac_arm(), Check::Bytes), "none");
}

#[test]
fn a_missing_library_is_noticed() {
    let fetched = installed();
    fs::remove_file(fetched.lib("libc10.dylib")).unwrap();
    assert_eq!(fetched.complaint(mac_arm(), Check::Stamp), "`lib/libc10.dylib` is missing");
}

#[test]
fn a_library_cut_short_is_noticed() {
    let fetched = installed();
    fs::write(fetched.lib("libc10.dylib"), "machine").unwrap();
    assert_eq!(fetched.complaint(mac_arm(), Check::Stamp), "`lib/libc10.dylib` has 7 bytes instead of 12");
}

#[test]
fn a_flipped_byte_is_noticed_when_the_date_changed_or_bytes_are_read() {
    let fetched = installed();
    let library = fetched.lib("libc10.dylib");
    let complaint = |check| fetched.complaint(mac_arm(), check);
    set_date(&library, 1_000);
    assert_eq!(complaint(Check::Stamp), "none", "a new date on the same bytes is learnt");
    fs::write(&library, "machine coda").unwrap();
    assert_eq!(complaint(Check::Stamp), "`lib/libc10.dylib` is damaged");
    set_date(&library, 1_000);
    assert_eq!(complaint(Check::Stamp), "none", "sizes and dates do not show it");
    assert_eq!(complaint(Check::Bytes), "`lib/libc10.dylib` is damaged");
}

#[test]
fn a_lost_header_is_noticed() {
    let fetched = installed();
    fs::remove_file(fetched.install.folder.join("include/torch/torch.h")).unwrap();
    assert_eq!(fetched.complaint(mac_arm(), Check::Stamp), "headers are missing or damaged");
}

#[test]
fn a_folder_without_a_stamp_or_for_another_platform_is_fetched_again() {
    let fetched = installed();
    let other = fetched.complaint(linux_x86(), Check::Stamp);
    assert!(other.ends_with("holds version 2.11.0 for macos-arm64"), "{other}");
    let stamp = fetched.install.folder.join("stamp.json");
    fs::write(&stamp, "{").unwrap();
    assert_eq!(fetched.complaint(mac_arm(), Check::Stamp), "stamp.json cannot be read");
    fs::remove_file(&stamp).unwrap();
    assert!(fetched.complaint(mac_arm(), Check::Stamp).ends_with("has no stamp.json"));
}

#[test]
fn the_cuda_half_is_fetched_later_without_the_cpu_half() {
    let fetched = Fetched::with(&[]);
    assert!(fetched.packages(Halves::Cpu, Check::Stamp).is_empty());
    let wanted = fetched.install.wanted(Halves::CpuAndCuda, Check::Stamp).unwrap();
    assert!(!wanted.cpu);
    assert_eq!(wanted.cuda.len(), all_cuda().len());
    let packages = fetched.packages(Halves::CpuAndCuda, Check::Stamp);
    assert_eq!(packages.len(), 13, "{packages:?}");
    assert!(packages.contains(&"torch") && !packages.contains(&"nvidia-cuda-runtime"), "{packages:?}");
}

#[test]
fn an_interrupted_download_of_the_cuda_half_continues_with_the_missing_wheels() {
    let missing = ["libnccl.so.2", "libcufft.so.12"];
    let there: Vec<&str> = all_cuda().into_iter().filter(|name| !missing.contains(name)).collect();
    let fetched = Fetched::with(&there);
    assert_eq!(fetched.packages(Halves::CpuAndCuda, Check::Stamp), ["nvidia-cufft", "nvidia-nccl-cu13"]);
    fs::write(fetched.lib("libcudnn_ops.so.9"), "short").unwrap();
    let again = ["nvidia-cudnn-cu13", "nvidia-cufft", "nvidia-nccl-cu13"];
    assert_eq!(fetched.packages(Halves::CpuAndCuda, Check::Stamp), again);
    assert!(fetched.packages(Halves::Cpu, Check::Stamp).is_empty(), "it is left as it is where it is not needed");
    assert_eq!(fetched.packages(Halves::Cpu, Check::Bytes), again, "a thorough check repairs what is installed");
}

#[test]
fn a_complete_cuda_half_is_not_fetched_again_and_survives_a_new_cpu_half() {
    let fetched = Fetched::with(&all_cuda());
    assert!(fetched.packages(Halves::CpuAndCuda, Check::Bytes).is_empty());
    fs::create_dir_all(fetched.install.folder.join(LICENSES).join("nvidia-cublas")).unwrap();
    fs::remove_file(fetched.lib("libc10.so")).unwrap();
    let wanted = fetched.install.wanted(Halves::Cpu, Check::Stamp).unwrap();
    assert!(wanted.cpu && wanted.cuda.is_empty());
    fetched.adopt_cpu();
    assert!(fetched.packages(Halves::CpuAndCuda, Check::Bytes).is_empty(), "both halves are complete");
    assert!(fetched.install.folder.join(LICENSES).join("nvidia-cublas").exists());
}

#[test]
fn a_stamp_with_the_libraries_of_each_half_apart_is_read() {
    let fetched = Fetched::with(&all_cuda());
    let path = fetched.install.folder.join("stamp.json");
    let mut stamp: serde_json::Value = serde_json::from_str(&fs::read_to_string(&path).unwrap()).unwrap();
    let libraries: Vec<serde_json::Value> = stamp["libraries"].as_array().unwrap().clone();
    let (cpu, cuda) = libraries.split_at(linux_x86().libraries.len());
    stamp["libraries"] = cpu.into();
    stamp["cuda"] = cuda.into();
    fs::write(&path, stamp.to_string()).unwrap();
    assert!(fetched.packages(Halves::CpuAndCuda, Check::Bytes).is_empty());
}

#[test]
fn a_cuda_half_of_another_version_is_not_kept() {
    let fetched = Fetched::with(&all_cuda());
    let stamp = fetched.install.folder.join("stamp.json");
    let other = fs::read_to_string(&stamp).unwrap().replace("2.11.0", "2.10.0");
    fs::write(&stamp, other).unwrap();
    assert!(fetched.install.wanted(Halves::Cpu, Check::Stamp).unwrap().cpu);
    fetched.adopt_cpu();
    assert!(fetched.packages(Halves::Cpu, Check::Bytes).is_empty());
    assert!(!fetched.lib("libtorch_cuda.so").exists());
}

#[test]
fn what_an_interrupted_download_left_behind_is_removed_and_nothing_else() {
    let fetched = Fetched::with(&[]);
    let tools = &fetched.install.tools;
    fs::create_dir_all(tools.join("libtorch-a1B2c3/download")).unwrap();
    fs::create_dir_all(tools.join("kubernetes-validate")).unwrap();
    fs::write(tools.join("libtorch.lock"), "").unwrap();
    fetched.install.remove_remains().unwrap();
    assert!(!tools.join("libtorch-a1B2c3").exists());
    assert!(tools.join("kubernetes-validate").exists() && tools.join("libtorch.lock").exists());
}

#[test]
fn sizes_are_those_of_the_missing_wheels() {
    let fetched = Fetched::with(&[]);
    let wanted = fetched.install.wanted(Halves::CpuAndCuda, Check::Stamp).unwrap();
    let sizes = Sizes::of(linux_x86(), &wanted);
    assert_eq!((sizes.wheels, sizes.download_mb, sizes.installed_mb), (13, 2499, 3123));
    let cufft = Fetched::with(&all_cuda());
    fs::remove_file(cufft.lib("libcufft.so.12")).unwrap();
    let wanted = cufft.install.wanted(Halves::CpuAndCuda, Check::Stamp).unwrap();
    let sizes = Sizes::of(linux_x86(), &wanted);
    assert_eq!((sizes.wheels, sizes.download_mb, sizes.peak_mb), (1, 214, 267 + 2 * 214));
}

/// Returns the GPUs of this output of `nvidia-smi`.
fn gpus(text: &str) -> Result<Vec<Gpu>, String> {
    Ok(parse(text))
}

#[test]
fn an_old_driver_and_an_old_gpu_are_refused_with_what_was_found_and_what_is_needed() {
    let reason = |text| decide(gpus(text), 7.5, Choice::Cuda).unwrap_err().to_string();
    let found = reason("8.0, 0, 535.183.01, 40960, NVIDIA A100-SXM4-40GB\n");
    assert!(found.contains("driver 535.183.01") && found.contains("580 or newer: update"), "{found}");
    assert!(found.contains("or set LIBTORCH to a libtorch 2.11 for an older CUDA (docs/install.md#"), "{found}");
    let found = reason("6.1, 0, 580.65.06, 11264, NVIDIA GeForce GTX 1080 Ti\n");
    assert!(found.contains("capability 6.1") && found.contains("7.5 or higher"), "{found}");
    let found = reason("7.0, 0, 470.57.02, 16160, Tesla V100-PCIE-16GB\n");
    assert!(!found.contains("update"), "a new driver would not help: {found}");
    let found = reason("unknown, 0, 470.57.02, 15109, Tesla T4\n");
    assert!(found.contains("capability unknown") && found.contains("update"), "{found}");
}

#[test]
fn an_old_gpu_is_an_error_only_if_cuda_was_named() {
    let old = "6.1, 0, 580.95.05, 3072, NVIDIA GeForce GTX 1060, 3GB\n";
    assert_eq!(decide(gpus(old), 7.5, Choice::Auto).unwrap(), Halves::Cpu);
    let error = decide(gpus(old), 7.5, Choice::Cuda).unwrap_err().to_string();
    assert!(error.contains("GPU 0: NVIDIA GeForce GTX 1060, 3GB, driver") && error.contains("--cpu"), "{error}");
    let absent = || Err("no nvidia-smi".to_owned());
    assert_eq!(decide(absent(), 7.5, Choice::Auto).unwrap(), Halves::Cpu);
    assert_eq!(decide(absent(), 7.5, Choice::Cuda).unwrap(), Halves::CpuAndCuda, "for images and other machines");
    let one_usable = format!("{old}12.1, 1, 580.95.05, [N/A], NVIDIA GB10\n");
    for choice in [Choice::Auto, Choice::Cuda] {
        assert_eq!(decide(gpus(&one_usable), 7.5, choice).unwrap(), Halves::CpuAndCuda);
    }
}

#[test]
fn a_mac_has_no_cuda_half_and_says_so() {
    assert_eq!(choose(mac_arm(), Choice::Auto).unwrap(), Halves::Cpu);
    let error = choose(mac_arm(), Choice::Cuda).unwrap_err().to_string();
    assert!(error.contains("macos-arm64") && error.contains("MPS"), "{error}");
}

#[test]
fn both_linux_platforms_have_the_same_cuda_libraries_and_all_that_is_opened_by_name() {
    let [x86, arm] = [linux_x86(), linux_arm()].map(|platform| platform.cuda_libraries().collect::<Vec<_>>());
    assert_eq!(x86, arm);
    for (opener, names) in opened() {
        assert!(names.iter().all(|name| x86.contains(name)), "{names:?}");
        assert!(x86.contains(opener) || linux_x86().libraries.contains(opener), "{opener}");
    }
    assert!(x86.iter().all(|name| !linux_x86().libraries.contains(name)), "no file is in both halves");
}

#[test]
fn every_wheel_has_the_hash_of_each_platform_and_of_no_other() {
    for platform in [linux_x86(), linux_arm(), mac_arm()] {
        for wheel in platform.wheels() {
            let line = wheel.hashed().unwrap();
            let hashes: Vec<&str> = line.split("--hash=sha256:").skip(1).map(|rest| rest[..64].trim()).collect();
            // NVIDIA's wheels are for Linux only.
            let platforms = if wheel.package() == "torch" { 3 } else { 2 };
            assert_eq!(hashes.len(), platforms, "{line}");
            assert!(hashes.iter().all(|hash| hash.len() == 64 && hash.bytes().all(|digit| digit.is_ascii_hexdigit())));
        }
    }
    let named: std::collections::BTreeSet<&str> = crate::python::names(HASHES).collect();
    let needed: std::collections::BTreeSet<&str> = linux_x86().wheels().map(|wheel| wheel.requirement).collect();
    assert_eq!(named, needed);
}
