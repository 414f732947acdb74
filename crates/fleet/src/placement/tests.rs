use std::path::PathBuf;

use service::config::Sources;

use super::*;

/// Keys with the device of each process.
const DEVICES: [&str; 4] = ["learner.device", "actor.device", "arena.device", "inference.device"];

/// Returns a machine with this number of GPUs.
fn machine(gpus: usize, cores: usize) -> Machine {
    let candidate = |index: usize| Candidate {
        gpu: Gpu { index, name: "NVIDIA H100".to_owned(), uuid: format!("GPU-{index}"), ..Gpu::default() },
        refused: None,
    };
    let accelerators = match gpus {
        0 => Accelerators::None("no NVIDIA driver is installed".to_owned()),
        gpus => Accelerators::Cuda((0..gpus).map(candidate).collect()),
    };
    Machine { cores, memory_bytes: 1 << 38, accelerators }
}

fn mac() -> Machine {
    let accelerators = Accelerators::One { name: "mps".to_owned(), refused: None };
    Machine { cores: 12, memory_bytes: 1 << 36, accelerators }
}

/// Refuses one GPU of a machine.
fn without(mut machine: Machine, number: usize, reason: &str) -> Machine {
    let Accelerators::Cuda(candidates) = &mut machine.accelerators else { panic!("no GPUs") };
    candidates[number].refused = Some(reason.to_owned());
    machine
}

fn placed_with(machine: &Machine, actors: Option<usize>, inference: Inference, change: fn(&mut RunFile)) -> Placement {
    let mut config = RunFile::default();
    change(&mut config);
    place(machine, &config, 1, actors, inference, 0).unwrap()
}

fn placed(machine: &Machine) -> Placement {
    placed_with(machine, None, Inference::Local, |_| ())
}

fn named(config: &mut RunFile, learner: &str, actor: &str, arena: &str) {
    let device = |text: &str| text.parse().unwrap();
    (config.learner.device, config.actor.device) = (device(learner), device(actor));
    config.arena.device = device(arena);
}

#[test]
fn learner_and_actors_are_spread_over_any_number_of_gpus() {
    use Place::{Configured, Gpu};
    // GPUs, cores, place of the learner, places of the actors, threads per actor, games per thread.
    let expected: [(usize, usize, Place, Vec<Place>, usize, usize); 9] = [
        (0, 2, Configured, vec![Configured], 1, 0),
        (0, 16, Configured, vec![Configured; 2], 7, 0),
        (0, 64, Configured, vec![Configured; 8], 7, 0),
        (1, 2, Gpu(0), vec![Gpu(0)], 2, 3072),
        (1, 16, Gpu(0), vec![Gpu(0)], 12, 512),
        (2, 16, Gpu(0), vec![Gpu(1)], 12, 512),
        (3, 64, Gpu(0), vec![Gpu(1), Gpu(2)], 30, 205),
        (8, 16, Gpu(0), (1..8).map(Gpu).collect(), 2, 3072),
        (8, 192, Gpu(0), (1..8).map(Gpu).collect(), 26, 237),
    ];
    for (gpus, cores, learner, actors, threads, games) in expected {
        let placement = placed(&machine(gpus, cores));
        let got = (placement.learners[0], placement.actors, placement.actor_threads, placement.accelerator_games);
        assert_eq!(got, (learner, actors, threads, games), "{gpus} GPUs, {cores} cores");
    }
}

#[test]
fn there_may_be_as_many_actors_as_the_memory_has_room_for_the_same_games_of_each() {
    let of = |actors| {
        let machine = Machine { memory_bytes: 1 << 36, ..machine(1, 16) };
        placed_with(&machine, Some(actors), Inference::Local, |config| config.actor.threads = 4)
    };
    let Placement { accelerator_games, actors_max, .. } = of(1);
    assert!((2..ACTORS_MAX).contains(&actors_max), "{actors_max}");
    assert_eq!((of(actors_max).accelerator_games, of(actors_max).actors_max), (accelerator_games, actors_max));
    assert!(of(actors_max + 1).accelerator_games < accelerator_games);
    assert_eq!(placed(&machine(0, 16)).actors_max, ACTORS_MAX);
}

#[test]
fn each_of_several_learners_has_a_gpu_of_its_own_and_actors_have_the_rest_while_there_are_enough() {
    let placed =
        |gpus, learners| place(&machine(gpus, 64), &RunFile::default(), learners, None, Inference::Local, 0).unwrap();
    for gpus in 0..=8 {
        for learners in 1..=9 {
            let Placement { learners: of_learners, actors, lines, .. } = placed(gpus, learners);
            let what = format!("{gpus} GPUs, {learners} learners: {of_learners:?}, {actors:?}, {lines:?}");
            assert_eq!(of_learners.len(), learners, "{what}");
            let shared = lines.iter().filter(|line| line.contains("reduce with Gloo")).count();
            if gpus == 0 {
                assert!(of_learners.iter().chain(&actors).all(|&place| place == Place::Configured), "{what}");
                assert_eq!(shared, 0, "{what}");
                continue;
            }
            let expected: Vec<Place> = (0..learners).map(|learner| Place::Gpu(learner % gpus)).collect();
            assert_eq!(of_learners, expected, "{what}");
            let first = if learners < gpus { learners } else { 0 };
            assert_eq!(actors, (first..gpus).map(Place::Gpu).collect::<Vec<_>>(), "{what}");
            assert_eq!(shared, learners.saturating_sub(gpus).min(gpus), "{what}");
            let names = (1..=learners)
                .map(|number| if number == 1 { "learner: ".to_owned() } else { format!("learner-{number}: ") });
            assert!(names.into_iter().all(|name| lines.iter().any(|line| line.starts_with(&name))), "{what}");
        }
    }
}

#[test]
fn a_mac_has_one_actor_beside_its_learner_and_both_choose_by_themselves() {
    let placement = placed(&mac());
    assert_eq!((placement.learners[0], &placement.actors[..]), (Place::Configured, &[Place::Configured][..]));
    assert_eq!((placement.actor_threads, placement.accelerator_games), (9, 683));
    let lines = placement.lines.join("\n");
    assert!(lines.contains("learner: mps, or the CPU if faster"), "{lines}");
}

#[test]
fn games_are_limited_by_the_memory_that_the_actors_share() {
    let games = |gpus, memory_bytes| {
        let machine = Machine { memory_bytes, ..machine(gpus, 16) };
        placed_with(&machine, None, Inference::Local, |config| config.run.game = "hex-19".to_owned()).accelerator_games
    };
    let (one, five) = (games(1, 1 << 35), games(6, 1 << 35));
    assert_eq!(games(1, 1 << 40), 512);
    assert!(64 < one && one < 512, "{one}");
    assert_eq!(five, (one * 12 / 10).max(64), "five actors of two threads share the memory of one of twelve");
}

#[test]
fn a_gpu_that_cannot_be_used_is_left_out_with_a_line() {
    let machine = without(machine(3, 16), 0, "compute capability is 6.0, but libtorch needs 7.5");
    let placement = placed(&machine);
    assert_eq!((placement.learners[0], &placement.actors[..]), (Place::Gpu(1), &[Place::Gpu(2)][..]));
    let line = "GPU 0 (NVIDIA H100) is not used: compute capability is 6.0, but libtorch needs 7.5";
    assert_eq!(placement.lines[0], line);
    assert_eq!(placement.environment(Place::Gpu(1)).last().unwrap().1, "GPU-1");
}

#[test]
fn processes_are_kept_off_accelerators_that_cannot_be_used() {
    let mps = Accelerators::One { name: "mps".to_owned(), refused: Some("wrong numbers".to_owned()) };
    for machine in [without(machine(1, 16), 0, "wrong numbers"), Machine { accelerators: mps, ..mac() }] {
        let placement = placed(&machine);
        assert_eq!(placement.learners[0], Place::Cpu);
        assert_eq!(placement.actors, [Place::Cpu; 2]);
        assert_eq!(placement.accelerator_games, 0);
        assert_eq!(placement.sets(Role::Actor, Place::Cpu).as_deref(), Some("actor.device=cpu"));
        assert!(placement.lines[0].ends_with("is not used: wrong numbers"), "{:?}", placement.lines);
    }
}

#[test]
fn a_process_on_one_of_several_gpus_sees_no_other_and_the_only_gpu_is_not_restricted() {
    let order = ("CUDA_DEVICE_ORDER".to_owned(), "PCI_BUS_ID".to_owned());
    let segments = ("PYTORCH_ALLOC_CONF".to_owned(), "expandable_segments:True".to_owned());
    let two = placed(&machine(2, 16));
    let only = ("CUDA_VISIBLE_DEVICES".to_owned(), "GPU-1".to_owned());
    assert_eq!(two.environment(Place::Gpu(1)), [order.clone(), segments.clone(), only]);
    assert_eq!(two.environment(Place::Configured), [order.clone(), segments.clone()]);
    assert_eq!(placed(&machine(1, 16)).environment(Place::Gpu(0)), [order, segments]);
    assert_eq!(placed(&machine(0, 16)).environment(Place::Configured), []);
}

#[test]
fn named_devices_are_kept_and_the_others_are_spread_over_what_is_left() {
    let on_last = placed_with(&machine(3, 16), None, Inference::Local, |config| named(config, "cuda:2", "auto", "cpu"));
    assert_eq!((on_last.learners[0], &on_last.actors[..]), (Place::Configured, &[Place::Gpu(0), Place::Gpu(1)][..]));

    let on_cpu = placed_with(&machine(2, 16), None, Inference::Local, |config| named(config, "cpu", "auto", "auto"));
    assert_eq!(on_cpu.learners[0], Place::Configured);
    assert_eq!(on_cpu.actors, [Place::Gpu(0), Place::Gpu(1)]);
    assert_eq!(on_cpu.arena, Place::Gpu(1));

    // Self-play on the CPU is planned as without GPUs.
    let self_play = placed_with(&machine(2, 16), None, Inference::Local, |config| named(config, "auto", "cpu", "cpu"));
    assert_eq!((self_play.learners[0], &self_play.actors[..]), (Place::Gpu(0), &[Place::Configured; 2][..]));
    assert_eq!((self_play.actor_threads, self_play.accelerator_games), (7, 0));
    assert!(self_play.lines.iter().any(|line| line == "GPU 1 (NVIDIA H100) is not used: no process needs it"));

    // A device names one GPU, on which several processes would take turns.
    let on_one = placed_with(&machine(4, 16), None, Inference::Local, |config| named(config, "auto", "cuda:3", "cpu"));
    assert_eq!((&on_one.actors[..], on_one.actor_threads), (&[Place::Configured][..], 12));
}

#[test]
fn a_kernel_of_the_cpu_keeps_actors_off_the_gpus() {
    let placement = placed_with(&machine(2, 16), None, Inference::Local, |config| {
        config.actor.kernel = "portable-f32".parse().unwrap();
    });
    assert_eq!((placement.actors.len(), placement.actor_threads, placement.accelerator_games), (2, 7, 0));
    assert_eq!(placement.actors, [Place::Cpu; 2]);
}

#[test]
fn numbers_that_are_configured_are_kept() {
    let placement = placed_with(&machine(3, 16), Some(4), Inference::Local, |config| {
        (config.actor.threads, config.actor.accelerator_games) = (5, 100);
    });
    let expected = [1, 2, 1, 2].map(Place::Gpu);
    assert_eq!(placement.actors, expected);
    assert_eq!((placement.actor_threads, placement.accelerator_games), (5, 100));
    let shared = "GPU 2 (NVIDIA H100) is shared by 2 actors, which take turns on it";
    assert!(placement.lines.iter().any(|line| line == shared), "{:?}", placement.lines);
}

#[test]
fn an_inference_server_has_the_first_gpu_for_evaluation_and_its_actors_have_none() {
    let placement = placed_with(&machine(3, 16), None, Inference::Remote, |_| ());
    assert_eq!((placement.learners[0], placement.inference), (Place::Gpu(0), Some(Place::Gpu(1))));
    assert_eq!(placement.actors, [Place::Cpu; 2]);
    // The server chooses a number of threads, and the actors search on two threads a core while they wait.
    assert_eq!((placement.inference_threads, placement.actor_threads, placement.accelerator_games), (0, 14, 0));
    assert!(placement.lines.iter().any(|line| line == "GPU 2 (NVIDIA H100) is not used: no process needs it"));
    assert_eq!(placed_with(&mac(), None, Inference::Remote, |_| ()).actors, [Place::Cpu; 2]);
}

#[test]
fn actors_without_accelerator_share_all_cores_but_one_and_search_on_two_threads_a_core_while_they_wait_for_a_server() {
    let threads = |cores, actors, inference| {
        let placement = placed_with(&machine(0, cores), Some(actors), inference, |_| ());
        (placement.actor_threads, placement.inference_threads)
    };
    assert_eq!(threads(16, 1, Inference::Local), (15, 0));
    assert_eq!(threads(16, 4, Inference::Local), (3, 0));
    assert_eq!(threads(1, 4, Inference::Local), (1, 0));
    assert_eq!(threads(16, 4, Inference::Remote), (6, 15));
}

#[test]
fn the_lines_describe_each_process() {
    let lines = placed(&machine(2, 16)).lines;
    assert_eq!(
        lines,
        [
            "learner: GPU 0 (NVIDIA H100), or the CPU if faster",
            "actor-0: GPU 1 (NVIDIA H100), or the CPU if faster; 12 thread(s) of 512 games if the \
             accelerator evaluates",
            "arena: cpu",
        ]
    );
    let lines = placed(&machine(0, 2)).lines;
    assert_eq!(
        lines,
        ["no accelerator: no NVIDIA driver is installed", "learner: cpu", "actor-0: cpu; 1 thread(s)", "arena: cpu"]
    );
}

/// Returns the devices of all processes, or the error.
fn devices(
    file: Option<PathBuf>,
    env: &[(String, String)],
    sets: Vec<String>,
) -> Result<[DevicePreference; 4], String> {
    let env = env.iter().map(|(name, value)| (name.into(), value.into()));
    let fleet: Result<RunFile, ConfigError> = Sources { file, env, sets }.layers().and_then(|layers| layers.load());
    let RunFile { learner, actor, arena, inference, .. } = fleet.map_err(|error| error.to_string())?;
    Ok([learner.device, actor.device, arena.device, inference.device])
}

#[test]
fn every_process_reads_its_device_alike_from_run_file_environment_and_set() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("run.toml");
    for text in ["auto", "cpu", "cuda", "cuda:3", "mps", "gpu", "cuda:x"] {
        let written = DEVICES.map(|key| format!("{key} = \"{text}\"\n")).concat();
        std::fs::write(&file, written).unwrap();
        let variable = |key: &str| format!("ZEROFLEET__{}", key.replace('.', "__").to_uppercase());
        let env = DEVICES.map(|key| (variable(key), text.to_owned()));
        let sources = [
            devices(Some(file.clone()), &[], Vec::new()),
            devices(None, &env, Vec::new()),
            devices(None, &[], DEVICES.map(|key| format!("{key}={text}")).to_vec()),
        ];
        for read in sources {
            match text.parse::<DevicePreference>() {
                Ok(device) => assert_eq!(read, Ok([device; 4])),
                Err(expected) => {
                    let error = read.unwrap_err();
                    assert!(error.contains(".device ") && error.contains(&expected), "{error}");
                }
            }
        }
    }
}

#[test]
fn the_cores_of_a_cpu_are_divided_between_one_learner_and_its_actors_unless_threads_are_fixed() {
    let placed = |machine: &Machine, learners, divided, change: fn(&mut RunFile)| {
        let mut config = RunFile::default();
        config.learner.threads = 0;
        change(&mut config);
        let placement = place(machine, &config, learners, None, Inference::Local, divided).unwrap();
        (placement.learner_threads, placement.actor_threads, placement.divided_cores)
    };
    let cpu = |cores| machine(0, cores);
    assert_eq!(placed(&cpu(16), 1, 0, |_| ()), (1, 7, Some(16)));
    // The threads follow the division of an earlier session, also on a machine with fewer cores than before.
    assert_eq!(placed(&cpu(16), 1, 6, |_| ()), (6, 5, Some(16)));
    assert_eq!(placed(&cpu(4), 1, 6, |_| ()), (3, 1, Some(4)));
    // With two cores, learner and actor have one core each.
    assert_eq!(placed(&cpu(2), 1, 0, |_| ()), (1, 1, None));
    assert_eq!(placed(&cpu(16), 1, 6, |config| config.learner.threads = 4), (4, 6, None));
    assert_eq!(placed(&cpu(16), 1, 6, |config| config.actor.threads = 3), (1, 3, None));
    assert_eq!(placed(&cpu(16), 2, 6, |_| ()), (1, 7, None));
    // Two learners with four threads leave nine of 17 cores. The plan has already excluded one core.
    assert_eq!(placed(&cpu(16), 2, 6, |config| config.learner.threads = 4), (4, 4, None));
    assert_eq!(placed(&machine(1, 16), 1, 6, |_| ()), (1, 12, None));
}

#[test]
fn values_for_a_gpu_are_for_the_processes_that_may_use_cuda() {
    let on_gpu = |machine: &Machine, change: fn(&mut RunFile)| {
        let mut config = RunFile::default();
        change(&mut config);
        let placement = place(machine, &config, 1, Some(1), Inference::Local, 0).unwrap();
        machine.on_gpu(&config, &placement)
    };
    let partition = |refused| {
        let accelerators = Accelerators::One { name: "MIG-5".to_owned(), refused };
        Machine { accelerators, ..mac() }
    };
    let both = [Process::Learner, Process::Actor];
    assert_eq!(on_gpu(&machine(1, 16), |_| ()), both);
    assert_eq!(on_gpu(&partition(None), |_| ()), both);
    assert_eq!(on_gpu(&machine(2, 16), |config| config.learner.device = DevicePreference::Cpu), [Process::Actor]);
    assert_eq!(on_gpu(&machine(1, 16), |config| named(config, "cuda", "cpu", "cpu")), [Process::Learner]);
    let refused = [partition(Some("too old".to_owned())), without(machine(1, 16), 0, "too old")];
    for none in [machine(0, 16), mac()].iter().chain(&refused) {
        assert_eq!(on_gpu(none, |_| ()), [], "{none:?}");
    }
}
