//! Tests the printed page and the exit code of `zerofleet doctor` with injected facts.

use std::collections::BTreeMap;
use std::io;
use std::net::SocketAddr;
use std::os::unix::fs::PermissionsExt as _;
use std::path::PathBuf;
use std::time::Duration;

use fleet::Role;
use fleet::run_directory::Inference;
use inference::{DevicePreference, TrainingKernel};
use network_cpu::KernelVariant;
use run_file::learner::libtorch::{Cpu, Path};
use service::device_trial::{Choice, DeviceTrial, Libtorch};
use service::directory::Room;
use service::gpus::{ComputeCapability, Gpu};

use super::findings::{Finding, Verdict};
use super::machine::{Container, Disk, Memory, Ports, Run};
use super::*;

const NO_DRIVER: &str = "no NVIDIA driver is installed";
const NO_CUDA_HALF: &str = "libtorch_cuda.so: cannot open shared object file";

/// Returns the facts of a machine without a GPU on which a run works.
fn without_gpu() -> Facts {
    let choice = Choice { device: "cpu".to_owned(), reason: format!("no accelerator: {NO_CUDA_HALF}") };
    Facts {
        system: "linux x86_64".to_owned(),
        cpu: "A CPU".to_owned(),
        variants: vec![KernelVariant::Avx2F32, KernelVariant::Avx512F32],
        training: Cpu { path: Path::Avx512, has_bf16: true },
        cores: 8,
        memory: Some(Memory { bytes: 16_000_000_000, available_bytes: 12_000_000_000 }),
        container: Container::default(),
        gpus: Err(NO_DRIVER.to_owned()),
        visible: None,
        trial: Ok(DeviceTrial {
            libtorch: Libtorch {
                version: Some("2.11.0".to_owned()),
                cpu_half: Some(PathBuf::from("/lib/libtorch_cpu.so")),
                cuda_half: None,
            },
            working: vec!["cpu".to_owned()],
            missing: vec![format!("cuda: {NO_CUDA_HALF}"), "mps: this libtorch does not support MPS".to_owned()],
            cannot_train: Vec::new(),
            training: choice.clone(),
            inference: choice,
        }),
        with_libtorch: vec![Role::Learner],
        programs: Ok(PathBuf::from("/bin")),
        plan: Ok(Run { actors: 1, ..Run::default() }),
        ports: Ports { needed: 8, ..Ports::default() },
        disk: Disk {
            folder: PathBuf::from("/runs"),
            room: Ok(Room { free_bytes: 50_000_000_000, bytes: 100_000_000_000 }),
            refused: None,
        },
        descriptors: Some(65_536),
    }
}

fn gpu(index: usize) -> Gpu {
    Gpu {
        index,
        name: "NVIDIA H100".to_owned(),
        uuid: format!("GPU-{index}"),
        driver: "580.82.07".to_owned(),
        compute_capability: Some(ComputeCapability { major: 9, minor: 0 }),
        memory_total_bytes: Some(85_000_000_000),
        memory_used_bytes: Some(1_000_000_000),
        ..Gpu::default()
    }
}

/// Returns the facts of a machine with a GPU that libtorch uses.
fn with_gpu() -> Facts {
    let choice = Choice { device: "cuda".to_owned(), reason: "the first CUDA device works".to_owned() };
    let facts = without_gpu();
    let trial = facts.trial.clone().unwrap();
    let libtorch = Libtorch { cuda_half: Some(PathBuf::from("/lib/libtorch_cuda.so")), ..trial.libtorch };
    Facts {
        gpus: Ok(vec![gpu(0)]),
        trial: Ok(DeviceTrial {
            libtorch,
            working: vec!["cpu".to_owned(), "cuda".to_owned()],
            missing: vec!["mps: this libtorch does not support MPS".to_owned()],
            cannot_train: Vec::new(),
            training: choice.clone(),
            inference: choice,
        }),
        with_libtorch: vec![Role::Learner, Role::Actor, Role::Arena, Role::Inference],
        ..facts
    }
}

/// Returns the facts with `learner.device` set to `device`.
fn on(device: DevicePreference, mut facts: Facts) -> Facts {
    facts.plan.as_mut().unwrap().config.learner.device = device;
    facts
}

/// Returns the faults and notes of one section of the page.
fn complaints(facts: &Facts, section: &str) -> Vec<Finding> {
    let mut found = findings(facts);
    found.retain(|finding| finding.section == section && finding.verdict != Verdict::Fine);
    found
}

fn of<'a>(found: &'a [Finding], section: &str) -> &'a Finding {
    found.iter().find(|finding| finding.section == section).unwrap()
}

/// Asserts that the section has one fault that contains `words` and `remedy`, and that the exit code is a failure.
fn assert_fault(facts: &Facts, section: &str, words: &str, remedy: &str) {
    let found = complaints(facts, section);
    let [finding] = &found[..] else { panic!("{section}: {found:#?}") };
    assert_eq!(finding.verdict, Verdict::Fault);
    assert!(finding.text.contains(words), "{finding:?}");
    assert!(finding.remedy.as_ref().unwrap().contains(remedy), "{finding:?}");
    assert_eq!(exit_code(&findings(facts)), ExitCode::FAILURE);
}

#[test]
fn a_run_that_could_never_train_is_at_fault_with_what_works() {
    let mut facts = without_gpu();
    facts.plan.as_mut().unwrap().config.network.channels = 24;
    let found = complaints(&facts, "run");
    assert!(!found.is_empty() && found.iter().all(|finding| finding.verdict == Verdict::Fault), "{found:#?}");
    assert!(found[0].text.contains("network.channels: 24") && found[0].text.contains("16 and 32 work"), "{found:#?}");
    assert_eq!(exit_code(&findings(&facts)), ExitCode::FAILURE);
}

#[test]
fn a_machine_without_a_gpu_trains_on_its_cpu_and_nothing_is_at_fault() {
    let found = findings(&without_gpu());
    assert!(found.iter().all(|finding| finding.verdict == Verdict::Fine), "{found:#?}");
    assert_eq!(exit_code(&found), ExitCode::SUCCESS);
    let page = page::page(&found);
    for words in [
        "system     linux x86_64, 8 cores, 16.0 GB memory, 12.0 GB available\n",
        "cpu        A CPU; usable: AVX2, AVX-512; not usable: AVX-512 VNNI, AVX-512 bf16,\n           AMX\n",
        "gpu        none: no NVIDIA driver is installed\n",
        "libtorch   2.11.0, CPU half: /lib/libtorch_cpu.so\n           CUDA half not loaded: libtorch_cuda.so: ",
        "learner    cpu (auto: no accelerator works, for the reasons above)\n",
        "arena      cpu (arena.device is cpu)\n",
        "ports      8 free ports on 127.0.0.1 for a run with 1 actor(s)\n",
        "disk       50.0 GB of 100.0 GB free in /runs\n",
        "files      a process may open 65536 files\n\nnothing here would stop a run\n",
    ] {
        assert!(page.contains(words), "{words}\n{page}");
    }
}

#[test]
fn a_page_is_at_most_eighty_columns_wide_and_shows_no_control_characters() {
    let long =
        "one\u{1b}[2J \u{7}two three four five six seven eight nine ten eleven twelve thirteen fourteen ".repeat(4);
    let page = page::page(&findings(&Facts { gpus: Err(long), ..without_gpu() }));
    assert!(page.lines().all(|line| line.chars().count() <= 80), "{page}");
    assert!(page.chars().all(|c| c == '\n' || !c.is_control()), "{page}");
}

#[test]
fn a_gpu_that_works_is_the_device_of_the_learner_and_a_choice_of_the_others() {
    let found = findings(&with_gpu());
    assert!(found.iter().all(|finding| finding.verdict == Verdict::Fine), "{found:#?}");
    let expected = "0: NVIDIA H100, compute capability 9.0, driver 580.82.07, 1.0 GB of 85.0 GB in use";
    assert_eq!(of(&found, "gpu").text, expected);
    assert_eq!(of(&found, "learner").text, "cuda (auto: the first CUDA device works)");
    assert!(of(&found, "actor").text.starts_with("cuda or the CPU, whichever is faster"), "{found:#?}");
}

#[test]
fn a_named_device_that_works_is_fine_and_one_that_does_not_is_a_fault_with_its_reason() {
    assert_eq!(complaints(&on(DevicePreference::Cuda(0), with_gpu()), "learner"), []);
    let facts = on(DevicePreference::Cuda(0), without_gpu());
    assert_fault(&facts, "learner", &format!("learner.device is cuda, which cannot be used: {NO_CUDA_HALF}"), "=auto");
    let page = page::page(&findings(&facts));
    assert!(page.contains("learner    FAULT learner.device is cuda"), "{page}");
    assert!(page.contains("           -> see docs/doctor.md; --set learner.device=auto trains without it\n"), "{page}");
    assert!(page.ends_with("\n1 fault would stop a run\n"), "{page}");
}

#[test]
fn a_device_that_evaluates_and_cannot_train_is_a_fault_of_the_learner_only() {
    let mut facts = on(DevicePreference::Cuda(0), with_gpu());
    facts.trial.as_mut().unwrap().cannot_train = vec!["cuda: the training step differs by 3.1e-2".to_owned()];
    facts.plan.as_mut().unwrap().config.actor.device = DevicePreference::Cuda(0);
    assert_fault(&facts, "learner", "the training step differs by 3.1e-2", "auto");
    assert_eq!(complaints(&facts, "actor"), []);
}

#[test]
fn a_program_without_libtorch_cannot_use_a_named_accelerator_and_is_noted_where_auto_could_use_one() {
    let mut facts = Facts { with_libtorch: vec![Role::Learner], ..with_gpu() };
    let [note] = &complaints(&facts, "actor")[..] else { panic!("one note") };
    assert_eq!(note.verdict, Verdict::Note);
    assert!(note.remedy.as_ref().unwrap().contains("--package actor --features torch"), "{note:?}");
    facts.plan.as_mut().unwrap().config.arena.device = DevicePreference::Cuda(0);
    assert_fault(&facts, "arena", "`arena` was built without libtorch", "--package arena --features torch");
}

#[test]
fn a_learner_without_libtorch_is_fine_where_the_kernels_train_and_a_fault_or_a_note_where_they_do_not() {
    let without = |facts: Facts| Facts { with_libtorch: Vec::new(), ..facts };
    let mut facts = without(without_gpu());
    let found = findings(&facts);
    assert!(found.iter().all(|finding| finding.verdict == Verdict::Fine), "{found:#?}");
    assert!(of(&found, "libtorch").text.starts_with("none: "), "{found:#?}");

    facts.training.has_bf16 = false;
    assert!(complaints(&facts, "learner").is_empty());
    facts.training = Cpu { path: Path::Portable, has_bf16: false };
    let [note] = &complaints(&facts, "learner")[..] else { panic!("one note") };
    assert!(note.verdict == Verdict::Note && note.text.contains("neither AVX2"), "{note:?}");
    facts.plan.as_mut().unwrap().config.learner.kernel = TrainingKernel::Libtorch;
    assert_fault(&facts, "learner", "learner.kernel: ", "build the learner with libtorch: cargo xtask train");

    let [note] = &complaints(&without(with_gpu()), "libtorch")[..] else { panic!("one note") };
    assert!(note.verdict == Verdict::Note && note.remedy.as_ref().unwrap().contains("GPU"), "{note:?}");
}

#[test]
fn the_inference_server_has_a_device_in_a_run_that_uses_one() {
    let mut facts = without_gpu();
    assert!(findings(&facts).iter().all(|finding| finding.section != "inference"));
    facts.plan.as_mut().unwrap().inference = Inference::Remote;
    assert!(of(&findings(&facts), "inference").text.starts_with("cpu (auto: "));
}

#[test]
fn a_driver_or_gpu_that_is_too_old_is_noted_with_what_is_needed_unless_it_works() {
    let old = |change: fn(&mut Gpu), facts: Facts| {
        let mut gpu = gpu(0);
        change(&mut gpu);
        complaints(&Facts { gpus: Ok(vec![gpu]), ..facts }, "gpu")
    };
    let old_driver = |gpu: &mut Gpu| gpu.driver = "570.10".to_owned();
    let driver = old(old_driver, without_gpu());
    assert_eq!(driver[0].verdict, Verdict::Note);
    let remedy = driver[0].remedy.as_ref().unwrap();
    assert!(remedy.contains("version 580 or above: update the NVIDIA driver, or set LIBTORCH"), "{driver:?}");
    let capability = old(|gpu| gpu.compute_capability = Some(ComputeCapability { major: 7, minor: 0 }), without_gpu());
    assert!(capability[0].remedy.as_ref().unwrap().contains("7.5 or above: use another GPU, or set"), "{capability:?}");
    assert_eq!(old(|gpu| gpu.compute_capability = None, without_gpu()), [], "unknown is not too old");
    assert_eq!(old(old_driver, with_gpu()), [], "a libtorch for an older CUDA works with it");
}

#[test]
fn gpus_that_the_environment_hides_are_noted_with_the_variable() {
    let hidden = |visible: &str| complaints(&Facts { visible: Some(visible.to_owned()), ..with_gpu() }, "gpu");
    assert!(hidden("")[0].text.contains("CUDA_VISIBLE_DEVICES= hides every GPU"), "{:?}", hidden(""));
    assert_eq!(hidden("-1").len(), 1);
    assert_eq!(hidden("0"), []);
    assert_eq!(hidden("MIG-0123"), [], "a partition is no whole GPU");
}

#[test]
fn a_gpu_without_the_cuda_half_is_noted_with_the_command_that_fetches_it() {
    let facts = Facts { gpus: Ok(vec![gpu(0)]), ..without_gpu() };
    let [note] = &complaints(&facts, "libtorch")[..] else { panic!("one note") };
    assert!(note.remedy.as_ref().unwrap().contains("cargo xtask libtorch --cuda"), "{note:?}");
    assert_eq!(exit_code(&findings(&facts)), ExitCode::SUCCESS, "a run trains on the CPU");
}

#[test]
fn a_trial_that_fails_is_a_fault() {
    let facts = Facts { trial: Err("a driver may hang".to_owned()), ..with_gpu() };
    assert_fault(&facts, "libtorch", "a driver may hang", "cargo xtask libtorch");
    assert_fault(&on(DevicePreference::Cuda(0), facts), "learner", "a driver may hang", "auto");
}

#[test]
fn a_port_in_use_and_too_few_free_ports_are_faults() {
    let address: SocketAddr = "127.0.0.1:7001".parse().unwrap();
    let named = BTreeMap::from([(address, Err("the port is in use".to_owned()))]);
    let facts = Facts { ports: Ports { needed: 8, named, refused: None }, ..without_gpu() };
    assert_fault(&facts, "ports", "cannot listen on 127.0.0.1:7001: the port is in use", "choose another port");
    let refused = Some("address in use".to_owned());
    let facts = Facts { ports: Ports { needed: 8, refused, ..Ports::default() }, ..without_gpu() };
    assert_fault(&facts, "ports", "8 free ports", "ss -tan");
}

#[test]
fn a_full_disk_or_a_folder_that_cannot_be_written_is_a_fault_and_little_space_is_noted() {
    let disk = |free_bytes: u64, refused: Option<&str>| {
        let room = Ok(Room { free_bytes, bytes: 100_000_000_000 });
        let disk = Disk { folder: PathBuf::from("/runs"), room, refused: refused.map(str::to_owned) };
        Facts { disk, ..without_gpu() }
    };
    assert_fault(&disk(400_000_000, None), "disk", "0.4 GB of 100.0 GB free in /runs", "free space");
    assert_fault(&disk(50_000_000_000, Some("/runs is not writable")), "disk", "not writable", "--runs");
    assert_eq!(complaints(&disk(1_000_000_000, None), "disk")[0].verdict, Verdict::Note);
    let room = Err(io::Error::other("no answer"));
    let unknown = Disk { folder: PathBuf::from("/runs"), room, refused: None };
    assert_eq!(complaints(&Facts { disk: unknown, ..without_gpu() }, "disk")[0].verdict, Verdict::Note);
}

#[test]
fn too_few_open_files_are_a_fault() {
    assert_fault(&Facts { descriptors: Some(64), ..without_gpu() }, "files", "may open 64 files", "LimitNOFILE");
    assert_eq!(complaints(&Facts { descriptors: None, ..without_gpu() }, "files"), []);
}

#[test]
fn a_missing_program_an_invalid_run_and_a_run_in_use_are_faults() {
    let facts = Facts { programs: Err("/bin/actor is missing".to_owned()), ..without_gpu() };
    assert_fault(&facts, "programs", "/bin/actor is missing", "cargo xtask train");
    let facts = Facts { plan: Err("learner.speed: unknown".to_owned()), ..without_gpu() };
    assert_fault(&facts, "run", "learner.speed: unknown", "run file");
    let in_use = Some("run first is being trained by process 7".to_owned());
    let facts = Facts { plan: Ok(Run { in_use, ..Run::default() }), ..without_gpu() };
    assert_fault(&facts, "run", "being trained by process 7", "--run");
}

#[test]
fn limits_of_a_container_are_named() {
    let container = Container { cores: Some(1.5), memory_bytes: Some(4_000_000_000) };
    let text = of(&findings(&Facts { container, ..without_gpu() }), "system").text.clone();
    assert!(text.contains("limited to 1.5 by the control group"), "{text}");
    assert!(text.contains("limited to 4.0 GB by the control group"), "{text}");
}

/// Tries the devices with a shell script in place of the program `learner`.
fn trial_of(script: &str, time_limit: Duration) -> Result<DeviceTrial, String> {
    let folder = tempfile::tempdir().unwrap();
    let program = folder.path().join("learner");
    std::fs::write(&program, format!("#!/bin/sh\n{script}\n")).unwrap();
    std::fs::set_permissions(&program, std::fs::Permissions::from_mode(0o755)).unwrap();
    // Executing a new script fails while a fork in another test still holds the script open for writing.
    loop {
        match fleet::trial::try_devices(&program, &[], time_limit) {
            Err(error) if error.contains("Text file busy") => std::thread::yield_now(),
            tried => return tried,
        }
    }
}

const PATIENT: Duration = Duration::from_secs(60);

#[test]
fn a_trial_is_read_from_the_output_of_the_learner() {
    let trial = trial_of("test \"$1\" = --devices && echo '{\"working\": [\"cpu\"], \"missing\": []}'", PATIENT);
    assert_eq!(trial.unwrap().working, ["cpu"]);
}

#[test]
fn a_learner_that_crashes_hangs_or_lacks_libtorch_is_a_reason() {
    let crashed = trial_of("echo CUDA initialisation >&2; kill -SEGV $$", PATIENT).unwrap_err();
    assert!(crashed.contains("signal: 11") && crashed.ends_with("last line: CUDA initialisation"), "{crashed}");
    let hung = trial_of("exec sleep 60", Duration::ZERO).unwrap_err();
    assert!(hung.contains("did not finish within 0 s"), "{hung}");
    let missing = "learner: error while loading shared libraries: libtorch_cpu.so: cannot open shared object file";
    let lacking = trial_of(&format!("echo '{missing}' >&2; exit 127"), PATIENT).unwrap_err();
    assert!(lacking.contains("run cargo xtask libtorch"), "{lacking}");
    assert!(trial_of("echo nonsense", PATIENT).unwrap_err().contains("another version"));
}

#[test]
fn the_options_of_every_command_are_consistent() {
    use clap::CommandFactory as _;
    crate::Cli::command().debug_assert();
}

#[test]
fn json_lists_every_finding_with_its_verdict_and_what_to_do() {
    let value = serde_json::to_value(findings(&on(DevicePreference::Cuda(0), without_gpu()))).unwrap();
    let faults: Vec<_> = value.as_array().unwrap().iter().filter(|finding| finding["verdict"] == "fault").collect();
    assert_eq!(faults.len(), 1);
    assert_eq!(faults[0]["section"], "learner");
    assert!(faults[0]["remedy"].as_str().unwrap().contains("learner.device=auto"));
}

/// A command line with only the arguments of `zerofleet doctor`.
#[derive(clap::Parser)]
struct CommandLine {
    #[command(flatten)]
    args: Args,
}

#[test]
fn settings_alone_are_judged_for_programs_and_devices_elsewhere() {
    let judged = |set: &str| {
        let command = ["doctor", "--settings-only", "--set", set];
        let mut out = Vec::new();
        let outcome = <CommandLine as clap::Parser>::parse_from(command).args.run(&mut out);
        outcome.map(|_| String::from_utf8(out).unwrap())
    };
    assert_eq!(judged("learner.device=cuda").unwrap(), "all settings are valid for training\n");
    let refused = judged("replay.actions_max=6").unwrap_err();
    assert!(refused.is::<fleet::feasibility::Infeasible>(), "the exit status is 2");
    assert!(refused.to_string().contains("replay.actions_max: is 6"), "{refused}");
}
