//! Tests of the stamp and the choice of downloads. Fetching itself needs the package index, and every installation
//! exercises it.

use std::fs;
use std::path::Path;

use tempfile::TempDir;

use super::gpu::Survey;
use super::stamp::Stamp;
use super::wheels::{HASHES, LINUX_ARM, LINUX_X86, MAC_ARM, OPENED};
use super::{Check, Choice, Halves, Install, LICENSES, Platform, Sizes, accept, accept_halves, choose, decide};

fn installed() -> TempDir {
    let folder = TempDir::new().unwrap();
    install(folder.path(), &MAC_ARM);
    folder
}

/// Creates the files of a CPU half, with the stamp.
fn install(folder: &Path, platform: &Platform) {
    fs::create_dir_all(folder.join("include/torch")).unwrap();
    fs::create_dir_all(folder.join("lib")).unwrap();
    fs::write(folder.join("include/torch/torch.h"), "#pragma once").unwrap();
    for library in platform.libraries {
        fs::write(folder.join("lib").join(library), "machine code").unwrap();
    }
    Stamp::write(folder, platform).unwrap();
}

/// An installation for Linux with a CPU half and some libraries of the CUDA half.
struct Fetched {
    install: Install,
    _folder: TempDir,
}

impl Fetched {
    fn with(cuda: &[&str]) -> Self {
        let folder = TempDir::new().unwrap();
        let [libtorch, tools] = ["libtorch", "tools"].map(|name| folder.path().join(name));
        fs::create_dir_all(&tools).unwrap();
        install(&libtorch, &LINUX_X86);
        for name in cuda {
            fs::write(libtorch.join("lib").join(name), "kernels").unwrap();
            Stamp::add(&libtorch, &LINUX_X86, &[name]).unwrap();
        }
        Self { install: Install { platform: &LINUX_X86, folder: libtorch, tools }, _folder: folder }
    }

    fn lib(&self, name: &str) -> std::path::PathBuf {
        self.install.folder.join("lib").join(name)
    }

    /// Returns the packages that would be downloaded.
    fn packages(&self, halves: Halves, check: Check) -> Vec<&'static str> {
        let wanted = self.install.wanted(halves, check).unwrap();
        wanted.wheels(&LINUX_X86).iter().map(|wheel| wheel.package()).collect()
    }
}

fn all_cuda() -> Vec<&'static str> {
    LINUX_X86.cuda_libraries().collect()
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
    let [fresh, old] = ["fresh", "old"].map(|name| fetched.install.tools.join(name));
    install(&fresh, &LINUX_X86);
    fetched.install.replace(&fresh, &old).unwrap();
    assert!(fetched.packages(Halves::CpuAndCuda, Check::Bytes).is_empty(), "both halves are complete");
    assert!(fetched.install.folder.join(LICENSES).join("nvidia-cublas").exists());
}

#[test]
fn a_cuda_half_of_another_version_is_not_kept() {
    let fetched = Fetched::with(&all_cuda());
    let stamp = fetched.install.folder.join("stamp.json");
    let other = fs::read_to_string(&stamp).unwrap().replace("2.11.0", "2.10.0");
    fs::write(&stamp, other).unwrap();
    assert!(fetched.install.wanted(Halves::Cpu, Check::Stamp).unwrap().cpu);
    let [fresh, old] = ["fresh", "old"].map(|name| fetched.install.tools.join(name));
    install(&fresh, &LINUX_X86);
    fetched.install.replace(&fresh, &old).unwrap();
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
fn sizes_and_times_are_those_of_the_missing_wheels() {
    let fetched = Fetched::with(&[]);
    let wanted = fetched.install.wanted(Halves::CpuAndCuda, Check::Stamp).unwrap();
    let text = Sizes::of(&LINUX_X86, &wanted).to_string();
    let expected = "downloading 2499 MB in 13 wheels, once: 1 min at 500 Mbit/s, 7 min at 50 Mbit/s; at most 3123 MB on \
                    the disk";
    assert_eq!(text, expected);
    let cufft = Fetched::with(&all_cuda());
    fs::remove_file(cufft.lib("libcufft.so.12")).unwrap();
    let wanted = cufft.install.wanted(Halves::CpuAndCuda, Check::Stamp).unwrap();
    let sizes = Sizes::of(&LINUX_X86, &wanted);
    assert_eq!((sizes.wheels, sizes.download_mb, sizes.peak_mb), (1, 214, 267 + 2 * 214));
}

#[test]
fn an_old_gpu_is_an_error_only_if_cuda_was_named() {
    let too_old = || Survey::TooOld(vec!["GPU 0: old".to_owned()]);
    assert_eq!(decide(too_old(), Choice::Auto).unwrap(), Halves::Cpu);
    let error = decide(too_old(), Choice::Cuda).unwrap_err().to_string();
    assert!(error.contains("GPU 0: old") && error.contains("--cpu"), "{error}");
    let absent = || Survey::Absent("no nvidia-smi".to_owned());
    assert_eq!(decide(absent(), Choice::Auto).unwrap(), Halves::Cpu);
    assert_eq!(decide(absent(), Choice::Cuda).unwrap(), Halves::CpuAndCuda, "for images and other machines");
    let usable = Survey::Usable { gpus: Vec::new(), notes: Vec::new() };
    assert_eq!(decide(usable, Choice::Auto).unwrap(), Halves::CpuAndCuda);
}

#[test]
fn a_mac_has_no_cuda_half_and_says_so() {
    assert_eq!(choose(&MAC_ARM, Choice::Auto).unwrap(), Halves::Cpu);
    let error = choose(&MAC_ARM, Choice::Cuda).unwrap_err().to_string();
    assert!(error.contains("macos-arm64") && error.contains("MPS"), "{error}");
}

#[test]
fn a_libtorch_of_ones_own_without_cuda_is_an_error_only_if_cuda_was_named() {
    let folder = TempDir::new().unwrap();
    let halves = |choice| accept_halves(folder.path(), Halves::CpuAndCuda, choice);
    assert_eq!(halves(Choice::Auto).unwrap(), Halves::Cpu);
    let error = halves(Choice::Cuda).unwrap_err().to_string();
    assert!(error.contains("has no `lib/libtorch_cuda.so`"), "{error}");
    fs::create_dir_all(folder.path().join("lib")).unwrap();
    fs::write(folder.path().join("lib/libtorch_cuda.so"), "").unwrap();
    assert_eq!(halves(Choice::Cuda).unwrap(), Halves::CpuAndCuda);
}

#[test]
fn both_linux_platforms_have_the_same_cuda_libraries_and_all_that_is_opened_by_name() {
    let [x86, arm] = [&LINUX_X86, &LINUX_ARM].map(|platform| platform.cuda_libraries().collect::<Vec<_>>());
    assert_eq!(x86, arm);
    for (opener, name) in OPENED {
        assert!(x86.contains(name), "{name}");
        assert!(x86.contains(opener) || LINUX_X86.libraries.contains(opener), "{opener}");
    }
    assert!(x86.iter().all(|name| !LINUX_X86.libraries.contains(name)), "no file is in both halves");
}

#[test]
fn every_wheel_has_the_hash_of_each_platform_and_of_no_other() {
    for platform in [&LINUX_X86, &LINUX_ARM, &MAC_ARM] {
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
    let needed: std::collections::BTreeSet<&str> = LINUX_X86.wheels().map(|wheel| wheel.requirement).collect();
    assert_eq!(named, needed);
}
