use run_file::AlgorithmName;
use run_file::learner::ModelKind;
use service::gpus::Gpu;

use super::*;
use crate::placement::{Accelerators, Candidate};

/// Returns a machine without accelerator.
fn machine() -> Machine {
    Machine { cores: 16, memory_bytes: 1 << 36, accelerators: Accelerators::None("no driver".to_owned()) }
}

/// Plans the run `first` of tic-tac-toe in `runs`, with these settings.
pub(crate) fn planned(runs: &Path, sets: &[&str]) -> Plan {
    let sets = sets.iter().map(|&set| set.to_owned()).collect();
    let args = Args { game: Some("tic_tac_toe".to_owned()), sets, ..args(runs) };
    Plan::on(&args, std::iter::empty(), machine).unwrap()
}

/// Returns the options of the run `first` in `runs`.
fn args(runs: &Path) -> Args {
    Args {
        minutes: None,
        game: None,
        boards: Vec::new(),
        algorithm: None,
        actors: Some(1),
        replay_servers: None,
        learners: 1,
        learner: None,
        inference: None,
        run: Some("first".to_owned()),
        runs: runs.to_owned(),
        config: None,
        sets: Vec::new(),
    }
}

/// A temporary directory of runs.
struct Runs {
    folder: tempfile::TempDir,
}

impl Runs {
    fn new() -> Self {
        Self { folder: tempfile::tempdir().unwrap() }
    }

    /// Writes a run file with this text.
    fn file(&self, text: &str) -> PathBuf {
        let path = self.folder.path().join("given.toml");
        std::fs::write(&path, text).unwrap();
        path
    }

    /// Returns the plan for the run `first`.
    fn plan(&self, game: Option<&str>, config: Option<PathBuf>) -> anyhow::Result<Plan> {
        let game = game.map(str::to_owned);
        Plan::on(&Args { game, config, ..self.args() }, std::iter::empty(), machine)
    }

    fn args(&self) -> Args {
        args(self.folder.path())
    }

    /// Returns the threads of an actor when the run `first` resumes with this number of actors, and the value in the
    /// run file.
    fn threads(&self, actors: usize, sets: &[&str]) -> (usize, usize) {
        let sets = sets.iter().map(|&set| set.to_owned()).collect();
        let args = Args { actors: Some(actors), sets, ..self.args() };
        let plan = Plan::on(&args, std::iter::empty(), machine).unwrap();
        plan.run.create().unwrap();
        plan.write_config().unwrap();
        (plan.config.actor.threads, load_run::<RunFile>(&plan.run).unwrap().actor.threads)
    }

    /// Starts the run `first`.
    fn begin(&self, game: Option<&str>, config: Option<PathBuf>) {
        let plan = self.plan(game, config).unwrap();
        plan.run.create().unwrap();
        plan.write_config().unwrap();
    }
}

#[test]
fn a_run_file_that_an_existing_run_ignores_is_reported() {
    let runs = Runs::new();
    runs.begin(Some("tic_tac_toe"), None);
    let file = runs.file("[learner]\nlearning_rate = 0.1");
    let plan = runs.plan(None, Some(file.clone())).unwrap();
    assert_eq!(plan.unread, Some(file));
    assert_eq!(plan.config.learner.learning_rate, 0.003);
}

#[test]
fn the_run_file_that_a_run_was_started_with_is_not_reported() {
    let runs = Runs::new();
    let file = runs.file("[learner]\nlearning_rate = 0.1");
    runs.begin(Some("tic_tac_toe"), Some(file.clone()));
    let plan = runs.plan(None, Some(file)).unwrap();
    assert_eq!(plan.unread, None);
    assert_eq!(plan.config.learner.learning_rate, 0.1);
}

#[test]
fn a_learner_of_the_user_is_kept_by_a_resume_and_trains_alone_on_one_board() {
    let runs = Runs::new();
    let plan = |learner, learners, boards: &[&str]| {
        let boards: Vec<String> = boards.iter().map(|&board| board.to_owned()).collect();
        let heads = (!boards.is_empty()).then(|| "network.heads=pooled".to_owned());
        let args = Args { learner, learners, boards, sets: heads.into_iter().collect(), ..runs.args() };
        Plan::on(&Args { game: Some("hex-5".to_owned()), ..args }, std::iter::empty(), machine)
    };
    let refused = |learners, boards: &[&str]| plan(Some(Learner::Own), learners, boards).unwrap_err().to_string();
    assert_eq!(refused(2, &[]), "--learners: conflicts with --learner own");
    assert!(refused(1, &["hex-7"]).starts_with("run.boards: --learner own"));
    let grouped =
        Args { learner: Some(Learner::Own), sets: vec!["learner.group=http://127.0.0.1:1".into()], ..runs.args() };
    let error = Plan::on(&grouped, std::iter::empty(), machine).unwrap_err().to_string();
    assert_eq!(error, "learner.group: conflicts with --learner own; leave it empty");
    let first = plan(Some(Learner::Own), 1, &[]).unwrap();
    first.run.create().unwrap();
    first.write_config().unwrap();
    first.run.keep_progress(&first.progress).unwrap();
    assert_eq!(plan(None, 1, &[]).unwrap().progress.learner, Learner::Own);
    assert_eq!(plan(Some(Learner::Zerofleet), 1, &[]).unwrap().progress.learner, Learner::Zerofleet);
    assert!(plan(None, 2, &[]).is_err());
}

#[test]
fn a_new_run_is_checked_without_a_folder_or_a_machine() {
    let runs = Runs::new();
    let check = |sets: &[&str]| {
        let sets = sets.iter().map(|&set| set.to_owned()).collect();
        let args = Args { game: Some("tic_tac_toe".to_owned()), minutes: Some(3.0), sets, ..runs.args() };
        check_new(&args, std::iter::empty())
    };
    let config = check(&["learner.batch_size=32"]).unwrap();
    assert_eq!((config.learner.batch_size, config.learner.schedule_minutes), (32, 3.0));
    let error = check(&["learner.learning_rate=-1"]).unwrap_err().to_string();
    assert!(error.starts_with("learner.learning_rate"), "{error}");
    let error = check(&["replay.actions_max=8"]).unwrap_err().to_string();
    assert!(error.starts_with("replay.actions_max: is 8, but tic_tac_toe has 9 actions; set at least 9"), "{error}");
    assert_eq!(std::fs::read_dir(runs.folder.path()).unwrap().count(), 0);
}

#[test]
fn a_run_resumes_with_the_game_and_the_network_it_was_started_with() {
    let runs = Runs::new();
    runs.begin(Some("tic_tac_toe"), None);
    let error = runs.plan(Some("connect_four"), None).unwrap_err().to_string();
    assert!(error.starts_with("run.game: run first was started with tic_tac_toe, not connect_four"), "{error}");
    let error = runs.plan(None, Some(runs.file("[network]\nblocks = 9"))).unwrap_err().to_string();
    let expected = "network.blocks: 2 in run first, 9 given; keep the network, or start another run with --run";
    assert_eq!(error, expected);
    let two = Args { sets: vec!["network.blocks=9".into(), "network.heads=pooled".into()], ..runs.args() };
    let error = Plan::on(&two, std::iter::empty(), machine).unwrap_err().to_string();
    assert!(error.contains("network.heads: \"flattened\", \"pooled\" given") && !error.contains("channels"), "{error}");
}

#[test]
fn a_run_that_grows_resumes_with_another_network_and_its_game() {
    let runs = Runs::new();
    runs.begin(Some("tic_tac_toe"), None);
    let larger = Args { sets: vec!["network.blocks=9".into(), "learner.grow=true".into()], ..runs.args() };
    let plan = Plan::on(&larger, std::iter::empty(), machine).unwrap();
    assert_eq!(plan.config.network.blocks, 9);
    let other = Args { game: Some("connect_four".to_owned()), ..larger };
    let error = Plan::on(&other, std::iter::empty(), machine).unwrap_err().to_string();
    assert!(error.starts_with("run.game"), "{error}");
}

#[test]
fn an_algorithm_sets_the_search_and_the_model_and_a_run_keeps_its_model() {
    let runs = Runs::new();
    let algorithm = |run: &str, algorithm| {
        let (run, game) = (Some(run.to_owned()), Some("tic_tac_toe".to_owned()));
        let args = Args { algorithm: Some(algorithm), run, game, ..runs.args() };
        Plan::on(&args, std::iter::empty(), machine)
    };
    for (number, (name, search, model)) in [
        (Algorithm::Alphazero, AlgorithmName::Puct, ModelKind::Alphazero),
        (Algorithm::GumbelAlphazero, AlgorithmName::Gumbel, ModelKind::Alphazero),
        (Algorithm::Muzero, AlgorithmName::Puct, ModelKind::Muzero),
        (Algorithm::GumbelMuzero, AlgorithmName::Gumbel, ModelKind::Muzero),
        (Algorithm::StochasticMuzero, AlgorithmName::Puct, ModelKind::StochasticMuzero),
    ]
    .into_iter()
    .enumerate()
    {
        let plan = algorithm(&format!("run-{number}"), name).unwrap();
        assert_eq!((plan.config.search.algorithm, plan.config.network.model), (search, model), "{name}");
    }
    let plan = algorithm("kept", Algorithm::GumbelMuzero).unwrap();
    plan.run.create().unwrap();
    plan.write_config().unwrap();
    let error = algorithm("kept", Algorithm::GumbelAlphazero).unwrap_err().to_string();
    assert!(error.starts_with("network.model: \"muzero\" in run kept, \"alphazero\" given"), "{error}");
}

#[test]
fn a_run_keeps_its_replay_servers_and_their_addresses_and_rejects_a_lower_count() {
    let runs = Runs::new();
    runs.begin(Some("tic_tac_toe"), None);
    let run = RunDirectory::new(runs.folder.path(), "first").unwrap();
    let addresses: Vec<SocketAddr> = vec!["127.0.0.1:7001".parse().unwrap(), "127.0.0.1:7002".parse().unwrap()];
    assert_eq!(runs.plan(None, None).unwrap().replay, [None]);
    let replay = |wanted| replay_servers(wanted, &run, &addresses);
    let kept: Vec<_> = addresses.iter().copied().map(Some).collect();
    assert_eq!(replay(None).unwrap(), kept);
    assert_eq!(replay(Some(3)).unwrap(), [&kept[..], &[None]].concat());
    let error = replay(Some(1)).unwrap_err().to_string();
    assert!(error.contains("run first has 2 replay servers; 1 would leave out trajectories"), "{error}");
    assert!(replay(Some(0)).unwrap_err().to_string().contains("at least 1"));

    let progress = Progress { replay: addresses.clone(), ..Progress::default() };
    run.keep_progress(&progress).unwrap();
    assert_eq!(runs.plan(None, None).unwrap().replay, kept);
}

#[test]
fn several_learners_leave_fewer_cores_to_actors_and_a_wrong_number_or_another_group_is_refused() {
    let runs = Runs::new();
    let of = |learners, sets: &[&str]| {
        let sets = sets.iter().map(|&set| set.to_owned()).collect();
        Plan::on(&Args { learners, sets, ..runs.args() }, std::iter::empty(), machine)
    };
    let threads = |learners| of(learners, &[]).unwrap().config.actor.threads;
    assert_eq!([threads(1), threads(4), threads(64)], [15, 12, 1]);
    let group = "learner.group=http://127.0.0.1:1,http://127.0.0.1:2";
    assert_eq!(of(1, &[group]).unwrap().learners, 1);
    for (refused, key) in [(of(0, &[]), "--learners"), (of(65, &[]), "--learners"), (of(2, &[group]), "learner.group")]
    {
        let error = refused.unwrap_err().to_string();
        assert!(error.starts_with(key), "{error}");
    }
}

#[test]
fn threads_derived_from_the_cores_are_derived_again_and_configured_ones_stay() {
    let runs = Runs::new();
    for (actors, threads) in [(1, 15), (2, 7), (16, 1), (1, 15)] {
        assert_eq!(runs.threads(actors, &[]), (threads, 0));
    }
    assert_eq!(runs.threads(2, &["actor.threads=5"]), (5, 5));
    assert_eq!(runs.threads(1, &[]), (5, 5));
    assert_eq!(runs.threads(1, &["actor.threads=0"]), (15, 0));
}

/// Plans the run `first` of `hex-5` with pooled heads, further boards, and these options.
fn boards(runs: &Runs, boards: &[&str], set: impl FnOnce(&mut Args)) -> Result<Plan, String> {
    let boards = boards.iter().map(|&board| board.to_owned()).collect();
    let sets = vec!["network.heads=pooled".to_owned()];
    let mut args = Args { game: Some("hex-5".to_owned()), boards, sets, actors: None, ..runs.args() };
    set(&mut args);
    Plan::on(&args, std::iter::empty(), machine).map_err(|error| format!("{error:#}"))
}

#[test]
fn the_actors_of_a_run_on_several_boards_are_divided_and_each_board_has_the_replay_servers() {
    let runs = Runs::new();
    let plan = boards(&runs, &["hex-4", "hex-7"], |args| args.replay_servers = Some(2)).unwrap();
    assert_eq!((plan.actors, plan.replay.len(), plan.replay_servers()), (3, 2, 6), "an actor for each board");
    let planned = |game: &str, actors| PlannedBoard { game: game.to_owned(), actors, replay: vec![None, None] };
    assert_eq!(plan.boards, [planned("hex-4", 1), planned("hex-7", 1)]);
    let plan = boards(&runs, &["hex-4", "hex-7"], |args| (args.actors, args.replay_servers) = (Some(5), Some(2)));
    assert_eq!(plan.unwrap().boards, [planned("hex-4", 2), planned("hex-7", 1)]);
    assert_eq!(boards(&runs, &[], |_| {}).unwrap().boards, []);
}

#[test]
fn boards_without_an_actor_or_with_flattened_heads_are_refused_by_their_key() {
    let runs = Runs::new();
    let refused = |names: &[&str], set: fn(&mut Args)| boards(&runs, names, set).map(drop).unwrap_err();
    for (error, key, reason) in [
        (refused(&["hex-4"], |args| args.actors = Some(1)), "--actors", "2 boards"),
        (refused(&["hex-4"], |args| args.sets.clear()), "network.heads", "pooled"),
        (refused(&["hex-5"], |_| {}), "run.boards", "twice"),
        (refused(&["go-5"], |_| {}), "run.boards", "another game"),
    ] {
        assert!(error.starts_with(key) && error.contains(reason), "{error}");
    }
}

#[test]
fn a_run_keeps_its_boards_and_their_replay_servers_and_may_get_others() {
    let runs = Runs::new();
    let plan = boards(&runs, &["hex-4"], |_| {}).unwrap();
    plan.run.create().unwrap();
    plan.write_config().unwrap();
    let address: SocketAddr = "127.0.0.1:7004".parse().unwrap();
    let kept = [("hex-4".to_owned(), vec![address])].into();
    plan.run.keep_progress(&Progress { boards: kept, ..Progress::default() }).unwrap();
    let resumed = Plan::on(&Args { actors: Some(2), ..runs.args() }, std::iter::empty(), machine).unwrap();
    assert_eq!(resumed.boards, [PlannedBoard { game: "hex-4".to_owned(), actors: 1, replay: vec![Some(address)] }]);
    let more = boards(&runs, &["hex-4", "hex-7"], |_| {}).unwrap();
    assert_eq!((more.boards[0].replay[0], more.boards[1].replay[0]), (Some(address), None));
    let error = boards(&runs, &["hex-7"], |_| {}).unwrap_err();
    assert!(error.starts_with("run.boards: run first also learns hex-4"), "{error}");
}

#[test]
fn a_negative_number_is_refused_with_the_range_of_its_key() {
    let runs = Runs::new();
    let refused = |set: &str| {
        let args = Args { sets: vec![set.to_owned()], ..runs.args() };
        Plan::on(&args, std::iter::empty(), machine).unwrap_err().to_string()
    };
    assert_eq!(refused("learner.batch_size=-1"), "learner.batch_size: is -1, must be from 1 to 4096");
    assert_eq!(refused("learner.micro_batch=-3"), "learner.micro_batch: is -3, must be from 0 to 4096");
    assert!(refused("run.seed=-1").contains("is -1, must be at least 0"));
    let args = Args { minutes: Some(-1.0), ..runs.args() };
    let error = Plan::on(&args, std::iter::empty(), machine).unwrap_err().to_string();
    assert_eq!(error, "--minutes: must be above 0");
}

#[test]
fn a_key_that_an_option_determines_is_refused_with_the_option() {
    let runs = Runs::new();
    for (set, option) in [("learner.schedule_minutes = 60", "--minutes"), ("run.directory=x", "--runs and --run")] {
        let args = Args { sets: vec![set.to_owned()], ..runs.args() };
        let error = Plan::on(&args, std::iter::empty(), machine).unwrap_err().to_string();
        assert!(error.contains(&format!("is set by {option}")), "{error}");
    }
}

/// Returns a machine with a GPU.
fn gpu_machine() -> Machine {
    let gpu = Gpu { name: "NVIDIA H200".to_owned(), ..Gpu::default() };
    Machine { accelerators: Accelerators::Cuda(vec![Candidate { gpu, refused: None }]), ..machine() }
}

/// Plans a session of the run `first` of Connect Four on this machine, and writes the run file.
fn session(runs: &Runs, machine: fn() -> Machine, sets: &[&str]) -> Plan {
    let sets = sets.iter().map(|&set| set.to_owned()).collect();
    let plan = Plan::on(&Args { sets, ..runs.args() }, std::iter::empty(), machine).unwrap();
    plan.run.create().unwrap();
    plan.write_config().unwrap();
    plan
}

#[test]
fn a_learner_on_a_gpu_gets_the_values_for_it_and_screen_and_run_file_name_them() {
    let runs = Runs::new();
    let plan = session(&runs, gpu_machine, &[]);
    let written: RunFile = load_run(&plan.run).unwrap();
    for config in [&plan.config, &written] {
        let learner = &config.learner;
        assert_eq!((learner.batch_size, learner.learning_rate, learner.ema_decay), (1024, 0.004, 0.9995));
        assert_eq!((config.selfplay.full_simulations, config.actor.cache_positions), (32, 2_000_000));
    }
    let line = plan.placement.lines.last().unwrap();
    let expected =
        "values for a GPU: learner.batch_size = 1024 (preset: 256; measured), learner.learning_rate = 0.004 ";
    assert!(line.starts_with(expected), "{line}");
    let text = std::fs::read_to_string(plan.run.config()).unwrap();
    assert!(text.starts_with("#: value for a GPU: learner.batch_size = 1024 (preset: 256; measured)\n"), "{text}");
    assert_eq!(text.matches("#: value for a GPU: ").count(), 4, "{text}");
}

#[test]
fn the_run_file_for_containers_on_the_page_of_devices_has_the_values_for_a_gpu() {
    let (_, section) = include_str!("../../../../docs/devices.md").split_once("\n## Values for a GPU\n").unwrap();
    let (_, block) = section.split_once("```toml\n").unwrap();
    let (block, _) = block.split_once("```").unwrap();
    let runs = Runs::new();
    let given = runs.plan(None, Some(runs.file(block))).unwrap().written;
    let set = Plan::on(&runs.args(), std::iter::empty(), gpu_machine).unwrap().written;
    assert_eq!(service::config::print(&given).unwrap(), service::config::print(&set).unwrap());
}

#[test]
fn a_key_that_is_set_wins_over_the_value_for_a_gpu_in_every_source() {
    let runs = Runs::new();
    let set = [
        ("learner.batch_size", "512"),
        ("learner.learning_rate", "0.001"),
        ("learner.ema_decay", "0.9"),
        ("selfplay.full_simulations", "40"),
        ("actor.accelerator_games", "77"),
        ("actor.cache_positions", "9"),
    ];
    assert_eq!(gpu_values::VALUES.map(|(key, _)| key), set.map(|(key, _)| key));
    for (key, expected) in set {
        let (section, name) = key.split_once('.').unwrap();
        let file = runs.file(&format!("[{section}]\n{name} = {expected}"));
        let variable = format!("ZEROFLEET__{}", key.replace('.', "__").to_uppercase());
        let variable: (OsString, OsString) = (variable.into(), expected.into());
        for (config, env, sets) in [
            (Some(file), Vec::new(), Vec::new()),
            (None, vec![variable], Vec::new()),
            (None, Vec::new(), vec![format!("{key}={expected}")]),
        ] {
            let source = format!("{config:?}, {env:?}, {sets:?}");
            let args = Args { config, sets, ..runs.args() };
            let plan = Plan::on(&args, env.into_iter(), gpu_machine).unwrap();
            let text = service::config::print(&plan.config).unwrap();
            let table: toml::Table = text.parse().unwrap();
            assert_eq!(table[section][name].to_string(), expected, "{source}");
            assert!(!plan.gpu_notes.iter().any(|note| note.starts_with(key)), "{source}: {:?}", plan.gpu_notes);
        }
    }
    let args = Args { sets: vec!["learner.batch_size=512".to_owned()], ..runs.args() };
    let learner = Plan::on(&args, std::iter::empty(), gpu_machine).unwrap().config.learner;
    assert_eq!((learner.learning_rate, learner.ema_decay), (0.002, 0.9995), "the learning rate follows the batch");
}

#[test]
fn the_run_file_of_a_run_on_a_cpu_or_a_mac_has_the_bytes_of_its_settings_alone() {
    let mac = || Machine { accelerators: Accelerators::One { name: "mps".to_owned(), refused: None }, ..machine() };
    let of_cpu: &[&str] = &["learner.device=cpu", "actor.device=cpu"];
    let machines: [fn() -> Machine; 3] = [machine, mac, gpu_machine];
    for (machine, sets) in machines.into_iter().zip([&[], &[], of_cpu]) {
        let runs = Runs::new();
        let plan = session(&runs, machine, sets);
        let sets = sets.iter().map(|&set| set.to_owned()).collect();
        let mut expected = check_new(&Args { sets, ..runs.args() }, std::iter::empty()).unwrap();
        expected.run.directory = plan.run.path().to_owned();
        let text = std::fs::read_to_string(plan.run.config()).unwrap();
        assert_eq!(text, service::config::print(&expected).unwrap());
        assert!(!plan.placement.lines.iter().any(|line| line.contains("values for a GPU")), "{:?}", plan.placement);
    }
}

#[test]
fn a_run_keeps_the_values_of_the_first_session_on_every_device_until_a_key_is_set() {
    let runs = Runs::new();
    session(&runs, gpu_machine, &[]);
    let plan = session(&runs, machine, &[]);
    assert_eq!((plan.config.learner.batch_size, plan.config.actor.cache_positions), (1024, 2_000_000));
    let line = plan.placement.lines.last().unwrap();
    assert!(line.starts_with("values for a GPU, from the first session: learner.batch_size = 1024 "), "{line}");
    let plan = session(&runs, gpu_machine, &["learner.batch_size=300"]);
    assert_eq!((plan.config.learner.batch_size, plan.config.learner.learning_rate), (300, 0.004));
    let text = std::fs::read_to_string(plan.run.config()).unwrap();
    assert!(text.starts_with("#: value for a GPU: learner.learning_rate = 0.004 "), "{text}");

    let runs = Runs::new();
    session(&runs, machine, &[]);
    let plan = session(&runs, gpu_machine, &[]);
    assert_eq!((plan.config.learner.batch_size, plan.gpu_notes), (256, Vec::new()));
}

#[test]
fn a_run_that_uses_only_the_cpu_gets_no_value_for_a_gpu_whatever_its_devices() {
    let runs = Runs::new();
    let sets = ["learner.device=cuda", "actor.device=cuda"].map(str::to_owned).to_vec();
    let plan = Plan::on_cpu(&Args { sets, ..runs.args() }, std::iter::empty()).unwrap();
    assert_eq!((plan.config.learner.batch_size, plan.gpu_notes), (256, Vec::new()));
}
