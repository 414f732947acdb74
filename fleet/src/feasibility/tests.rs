use learner::libtorch::Path as CpuPath;
use service::config::Sources;

use super::*;

/// Programs without libtorch on a CPU without bfloat16.
fn plain() -> Programs {
    Programs { with_libtorch: Vec::new(), cpu: Cpu { path: CpuPath::Avx2, has_bf16: false } }
}

fn found(sets: &[&str], inference: Inference, programs: &Programs) -> String {
    let sets = sets.iter().map(|&set| set.to_owned()).collect();
    let config: Fleet =
        Sources { file: None, env: std::iter::empty(), sets }.read(games::preset).unwrap().load().unwrap();
    let found = obstacles(&config, inference, programs).unwrap();
    found.iter().map(ToString::to_string).collect::<Vec<_>>().join("\n")
}

#[test]
fn every_preset_trains_on_a_plain_cpu() {
    for game in games::GAMES.iter().flat_map(|entry| entry.examples()) {
        let refused = found(&[&format!("run.game={game}")], Inference::Local, &plain());
        assert_eq!(refused, "", "{game}");
    }
    assert_eq!(found(&["network.model=muzero"], Inference::Local, &plain()), "");
    let boards = ["run.game=hex-5", "run.boards=[\"hex-7\"]", "network.heads=pooled"];
    assert_eq!(found(&boards, Inference::Local, &plain()), "");
}

#[test]
fn what_could_never_train_is_refused_by_its_key_with_what_works() {
    let remote = Inference::Remote;
    let local = Inference::Local;
    for (sets, inference, expected) in [
        (&["network.channels=24"][..], local, "network.channels: 24 is not computed by the program `actor`"),
        (&["network.channels=24"], local, "16 and 32 work"),
        (&["network.channels=8"], local, "16 works"),
        (&["network.channels=48", "network.block=bottleneck"], local, "32 and 64 work"),
        (&["actor.kernel=libtorch"], local, "actor.kernel: `libtorch` needs libtorch"),
        (&["actor.device=cuda"], local, "actor.device: `cuda` needs libtorch"),
        (&["learner.precision=bf16"], local, "learner.precision: the CPU has no products of bf16"),
        (
            &["replay.actions_max=6"],
            local,
            "replay.actions_max: is 6, and connect_four has 7 actions: 7 and above work",
        ),
        (&["replay.steps_max=41"], local, "replay.steps_max: is 41, and connect_four has 42 steps"),
        (
            &["learner.batch_size=193", "replay.error_items=98"],
            local,
            "learner.batch_size: is 193, more than the 192 samples",
        ),
        (&["network.model=muzero"], remote, "--inference: an inference server computes no MuZero networks"),
        (&["run.game=catch", "actor.inference=http://127.0.0.1:1"], local, "actor.inference: an inference server"),
        (
            &["run.game=hex-5", "run.boards=[\"hex-7\"]", "network.heads=pooled"],
            remote,
            "--inference: an inference server evaluates positions of one board",
        ),
    ] {
        let refused = found(sets, inference, &plain());
        assert!(refused.contains(expected), "{sets:?}: `{refused}` does not contain `{expected}`");
    }
}

#[test]
fn several_obstacles_are_listed_together_and_libtorch_removes_those_of_engines() {
    let sets = ["network.channels=24", "learner.precision=f16", "replay.actions_max=6"];
    assert_eq!(found(&sets, Inference::Local, &plain()).lines().count(), 3);
    let linked = Programs { with_libtorch: Role::ALL.to_vec(), ..plain() };
    assert_eq!(found(&sets, Inference::Local, &linked).lines().count(), 1);
}

#[test]
fn a_program_is_linked_with_libtorch_if_its_file_names_the_library() {
    let folder = tempfile::tempdir().unwrap();
    let program = folder.path().join("program");
    std::fs::write(&program, b"\x7fELF\0libc.so.6\0").unwrap();
    assert!(!links_libtorch(&program));
    std::fs::write(&program, b"\x7fELF\0libtorch_cpu.so\0").unwrap();
    assert!(links_libtorch(&program));
    assert!(!links_libtorch(&folder.path().join("missing")));
}
