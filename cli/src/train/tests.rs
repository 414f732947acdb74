use super::*;

/// Runs in a folder of their own.
struct Runs {
    folder: tempfile::TempDir,
}

impl Runs {
    fn new() -> Self {
        Self { folder: tempfile::tempdir().unwrap() }
    }

    /// A run file that says this.
    fn file(&self, text: &str) -> PathBuf {
        let path = self.folder.path().join("given.toml");
        fs::write(&path, text).unwrap();
        path
    }

    /// What is planned for the run `first`.
    fn plan(&self, game: Option<&str>, config: Option<PathBuf>) -> anyhow::Result<Plan> {
        let game = game.map(str::to_owned);
        Plan::new(&Args { game, config, ..self.args() }, std::iter::empty())
    }

    fn args(&self) -> Args {
        Args {
            minutes: None,
            game: None,
            actors: Some(1),
            replay_servers: None,
            inference: None,
            run: Some("first".to_owned()),
            runs: self.folder.path().to_owned(),
            config: None,
            sets: Vec::new(),
        }
    }

    /// The threads of an actor when the run `first` goes on with so many of them, and what its run file then says.
    fn threads(&self, actors: usize, sets: &[&str]) -> (usize, usize) {
        let sets = sets.iter().map(|&set| set.to_owned()).collect();
        let plan = Plan::new(&Args { actors: Some(actors), sets, ..self.args() }, std::iter::empty()).unwrap();
        plan.run.create().unwrap();
        plan.write_config().unwrap();
        (plan.config.actor.threads, config::load_run::<Config>(&plan.run).unwrap().actor.threads)
    }

    /// Begins the run `first`.
    fn begin(&self, game: Option<&str>, config: Option<PathBuf>) {
        let plan = self.plan(game, config).unwrap();
        plan.run.create().unwrap();
        plan.write_config().unwrap();
    }
}

#[test]
fn a_run_file_that_an_existing_run_does_not_read_is_told() {
    let runs = Runs::new();
    runs.begin(Some("tic_tac_toe"), None);
    let file = runs.file("[learner]\nlearning_rate = 0.1");
    let plan = runs.plan(None, Some(file.clone())).unwrap();
    assert_eq!(plan.unread, Some(file));
    assert_eq!(plan.config.learner.learning_rate, preset("tic_tac_toe").unwrap().learner.learning_rate);
}

#[test]
fn the_run_file_that_a_run_was_begun_with_says_nothing_else() {
    let runs = Runs::new();
    let file = runs.file("[learner]\nlearning_rate = 0.1");
    runs.begin(Some("tic_tac_toe"), Some(file.clone()));
    let plan = runs.plan(None, Some(file)).unwrap();
    assert_eq!(plan.unread, None);
    assert_eq!(plan.config.learner.learning_rate, 0.1);
}

#[test]
fn a_run_goes_on_with_the_game_and_the_network_it_was_begun_with() {
    let runs = Runs::new();
    runs.begin(Some("tic_tac_toe"), None);
    let error = runs.plan(Some("connect_four"), None).unwrap_err().to_string();
    assert!(error.starts_with("run.game: run first was begun with tic_tac_toe, not connect_four"), "{error}");
    let error = runs.plan(None, Some(runs.file("[network]\nblocks = 9"))).unwrap_err().to_string();
    assert!(error.starts_with("network: run first was begun with channels = 32"), "{error}");
}

#[test]
fn an_arena_or_inference_server_that_is_given_up_does_not_end_the_training() {
    assert_eq!(without(Role::Arena, "arena is gone").unwrap(), "arena is gone; training goes on unmeasured");
    assert_eq!(without(Role::Inference, "it is gone").unwrap(), "it is gone; training goes on without it");
    for role in [Role::Actor, Role::Replay, Role::Learner] {
        assert_eq!(without(role, "it is gone").unwrap_err().to_string(), "it is gone");
    }
}

#[test]
fn a_run_keeps_its_replay_servers_and_where_they_listen_and_refuses_to_leave_one_out() {
    let runs = Runs::new();
    runs.begin(Some("tic_tac_toe"), None);
    let run = RunDirectory::new(runs.folder.path(), "first").unwrap();
    let addresses: Vec<SocketAddr> = vec!["127.0.0.1:7001".parse().unwrap(), "127.0.0.1:7002".parse().unwrap()];
    assert_eq!(runs.plan(None, None).unwrap().replay, [None]);
    let replay = |asked| replay_servers(asked, &run, &addresses);
    let kept: Vec<_> = addresses.iter().copied().map(Some).collect();
    assert_eq!(replay(None).unwrap(), kept);
    assert_eq!(replay(Some(3)).unwrap(), [&kept[..], &[None]].concat());
    let error = replay(Some(1)).unwrap_err().to_string();
    assert!(error.contains("run first has 2 replay servers, and 1 would leave out what the others hold"), "{error}");
    assert!(replay(Some(0)).unwrap_err().to_string().contains("at least 1"));

    let progress = Progress { replay: addresses.clone(), ..Progress::default() };
    run.keep_progress(&progress).unwrap();
    assert_eq!(runs.plan(None, None).unwrap().replay, kept);
}

#[test]
fn threads_that_the_machine_decided_are_decided_anew_and_those_that_were_set_stay() {
    let cores = std::thread::available_parallelism().map_or(1, usize::from);
    let runs = Runs::new();
    for actors in [1, 2, cores, 1] {
        assert_eq!(runs.threads(actors, &[]), (threads_per_actor(cores, actors), 0));
    }
    assert_eq!(runs.threads(2, &["actor.threads=5"]), (5, 5));
    assert_eq!(runs.threads(1, &[]), (5, 5));
    assert_eq!(runs.threads(1, &["actor.threads=0"]), (threads_per_actor(cores, 1), 0));
}

#[test]
fn actors_share_all_cores_but_one_and_search_on_two_threads_a_core_while_they_wait_for_a_server() {
    let threads = |cores, actors, inference| {
        let mut config = Config::default();
        share_cores(&mut config, inference, cores, actors);
        (config.actor.threads, config.inference.threads)
    };
    assert_eq!(threads(16, 1, Inference::Local), (15, 0));
    assert_eq!(threads(16, 4, Inference::Local), (3, 0));
    assert_eq!(threads(1, 4, Inference::Local), (1, 0));
    assert_eq!(threads(16, 4, Inference::Remote), (6, 15));
}
