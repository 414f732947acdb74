//! The cluster of deploy/compose.yaml in containers, from the images to a restart.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use service::SecuritySection;
use tests::compose::{Container, IMAGES, Program, found, program_in};
use tests::{Compose, wait_until};

const START: Duration = Duration::from_secs(120);
const LEARN: Duration = Duration::from_secs(120);
/// Minimum number of training steps, far more than weights need to improve by chance.
const STEPS_MIN: f64 = 200.0;
/// CPU limit of each actor in cores, low enough for four actors to have enough cores.
const ACTOR_CPUS: &str = "0.1";
/// A smaller network than the preset's, measured more often, so that the test ends within minutes; deep searches and
/// few samples, so that the learner keeps up with four actors.
const SMALL_WITH_ACTORS_AS_THE_BOTTLENECK: &str = "
    [network]
    channels = 16
    blocks = 1
    [selfplay]
    games = 16
    full_simulations = 60
    # A game without a full search has no items: it is acknowledged and not stored.
    full_search_probability = 1.0
    [replay]
    min_items = 200
    samples_per_insert = 2
    error_items = 2000
    [learner]
    batch_size = 64
    learning_rate = 0.005
    warm_up_steps = 20
    publish_interval_seconds = 1
    checkpoint_interval_seconds = 5
    [arena]
    simulations = 32
    version_interval_seconds = 1
";
/// Number of inserts for measuring the rate, which takes some seconds.
const COUNTED: f64 = 200.0;

const STEPS: &str = "zerofleet_learner_steps_total";
const VERSION: &str = "zerofleet_learner_weights_version";
const HELD: &str = "zerofleet_replay_trajectories";
const INSERTS: &str = "zerofleet_replay_inserts_total";
const MEMBERS: &str = "zerofleet_learner_group_members";
/// Addresses of the learners, as in docs/cluster.md.
const LEARNERS: &str = "https://learner@learner-0:7002,https://learner@learner-1:7002";
const RAW_LOST: &str = r#"zerofleet_arena_exhaustive_lost{search="raw"}"#;

fn metric(cluster: &Compose, service: &str, name: &str) -> f64 {
    cluster.metric(service, name).unwrap_or(0.0)
}

fn what_could_never_train_does_not_start(cluster: &mut Compose) {
    let config = cluster.secrets().with_file_name("zerofleet.toml");
    let text = std::fs::read_to_string(&config).unwrap().replace("[replay]\n", "[replay]\nactions_max = 8\n");
    let refused = config.with_file_name("refused.toml");
    std::fs::write(&refused, text).unwrap();
    cluster.set("ZEROFLEET_CONFIG", refused.to_str().unwrap());
    cluster.run(&["up", "--detach"]).unwrap_err();
    let logs = cluster.logs();
    assert!(logs.contains("replay.actions_max: is 8, but tic_tac_toe has 9 actions"), "{logs}");
    assert!(cluster.containers("replay").unwrap().is_empty());
    cluster.set("ZEROFLEET_CONFIG", config.to_str().unwrap());
}

/// Returns the inserts per second, measured over the next [`COUNTED`] inserts.
fn inserts_rate(cluster: &Compose) -> f64 {
    let (start, from) = (Instant::now(), metric(cluster, "replay", INSERTS));
    let mut now = from;
    wait_until("trajectories come in", LEARN, || {
        now = metric(cluster, "replay", INSERTS).max(now);
        Ok(now >= from + COUNTED)
    })
    .unwrap();
    (now - from) / start.elapsed().as_secs_f64()
}

fn all_healthy(cluster: &Compose, actors: usize) {
    let single = ["replay", "learner", "inference", "arena", "console"].map(|service| (service, 1));
    for (service, count) in single.into_iter().chain([("actor", actors)]) {
        cluster.healthy(service, count, START).unwrap();
    }
}

/// Returns the numbers of inserted and spooled trajectories that a drained actor logged.
fn handed_in(log: &Path) -> Option<(u64, u64)> {
    let text = std::fs::read_to_string(log).ok()?;
    let line = text.lines().rev().find(|line| line.contains("upload finished"))?;
    let line: serde_json::Value = serde_json::from_str(line).ok()?;
    let field = |name| line.pointer(&format!("/fields/{name}")).or_else(|| line.get(name))?.as_u64();
    Some((field("trajectories")?, field("spooled")?))
}

fn actors(cluster: &Compose) -> Vec<Container> {
    cluster.containers("actor").unwrap()
}

/// Checks that a container does not run as root, has no capabilities, and can write only to its volumes.
fn runs_unprivileged(container: &Container) {
    let user = container.inspect("{{.Config.User}}").unwrap();
    assert!(!["", "0", "root"].contains(&user.split(':').next().unwrap()), "{user}");
    assert_eq!(container.inspect("{{.HostConfig.ReadonlyRootfs}} {{.HostConfig.CapDrop}}").unwrap(), "true [ALL]");
    let options = container.inspect("{{.HostConfig.SecurityOpt}} {{.HostConfig.LogConfig.Config}}").unwrap();
    assert!(options.contains("no-new-privileges") && options.contains("max-size"), "{options}");
}

/// Returns the texts that no image and no log may contain: tokens, and a line of each key.
fn secrets(folder: &Path) -> Vec<String> {
    let mut found = Vec::new();
    let folders = std::fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path());
    for path in folders.flat_map(|folder| std::fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path())) {
        let name = path.file_name().unwrap().to_string_lossy().into_owned();
        if name.ends_with(".key") || name == "token" || name == "password" {
            let text = std::fs::read_to_string(&path).unwrap();
            found.push(text.lines().find(|line| !line.starts_with("-----")).unwrap().to_owned());
        }
    }
    assert!(found.len() > 10, "{}", found.len());
    found
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_cluster_in_containers_learns_scales_without_a_lost_game_and_goes_on_where_it_stopped() {
    let Some(mut cluster) = Compose::new("tic_tac_toe", SMALL_WITH_ACTORS_AS_THE_BOTTLENECK).unwrap() else { return };
    cluster.set("ACTOR_CPUS", ACTOR_CPUS);
    what_could_never_train_does_not_start(&mut cluster);
    cluster.run(&["up", "--detach"]).unwrap();
    all_healthy(&cluster, 1);
    for service in ["replay", "learner", "inference", "actor", "arena", "console"] {
        for container in cluster.containers(service).unwrap() {
            runs_unprivileged(&container);
        }
    }

    // More actors insert more.
    wait_until("the first actor inserts", START, || Ok(metric(&cluster, "replay", INSERTS) > 0.0)).unwrap();
    let alone = inserts_rate(&cluster);
    cluster.run(&["up", "--detach", "--no-recreate", "--scale", "actor=4"]).unwrap();
    cluster.healthy("actor", 4, START).unwrap();
    wait_until("four actors insert half as much again as one", LEARN, || Ok(inserts_rate(&cluster) > 1.5 * alone))
        .unwrap();

    // The cluster learns: without search, the network loses fewer lines of play than at the first measurement.
    let mut at_first = None;
    wait_until("the weights get better", LEARN, || {
        let Some(lost) = cluster.metric("arena", RAW_LOST) else { return Ok(false) };
        let first = *at_first.get_or_insert(lost);
        Ok(metric(&cluster, "learner", STEPS) > STEPS_MIN && (lost == 0.0 || lost < first))
    })
    .unwrap();

    // Three of the four actors drain and upload all trajectories.
    let mut logs: BTreeMap<String, PathBuf> = BTreeMap::new();
    for actor in actors(&cluster) {
        let log = cluster.follow(&actor).unwrap();
        logs.insert(actor.id, log);
    }
    cluster.run(&["up", "--detach", "--no-recreate", "--scale", "actor=1"]).unwrap();
    cluster.healthy("actor", 1, START).unwrap();
    cluster.run(&["stop", "actor"]).unwrap();
    let mut sum = 0;
    for log in logs.values() {
        wait_until("an actor has logged the number of its inserts", START, || Ok(handed_in(log).is_some())).unwrap();
        let (trajectories, spooled) = handed_in(log).unwrap();
        assert_eq!(spooled, 0, "nothing is left behind");
        sum += trajectories;
    }
    let operator = cluster.secrets().join("operator");
    let security = SecuritySection {
        ca: operator.join("ca.pem"),
        client_certificate: operator.join("client.pem"),
        client_key: operator.join("client.key"),
        token_file: operator.join("token"),
        ..SecuritySection::default()
    };
    transport::security::use_credentials(&security).unwrap();
    let replay = cluster.containers("replay").unwrap().remove(0);
    let held = tests::trajectories::list(&format!("https://replay@{}:7001", replay.address().unwrap())).await.unwrap();
    let mut epochs: BTreeMap<(u64, u64), Vec<u64>> = BTreeMap::new();
    for id in &held {
        epochs.entry((id.actor, id.epoch)).or_default().push(id.sequence);
    }
    assert_eq!(epochs.keys().map(|(actor, _)| actor).collect::<BTreeSet<_>>().len(), 4);
    for (epoch, sequences) in &mut epochs {
        sequences.sort_unstable();
        assert!(sequences.iter().copied().eq(0..sequences.len() as u64), "{epoch:?} has no gap and nothing twice");
    }
    assert_eq!(held.len() as u64, sum, "what actors handed in is held");

    // After a restart, the cluster continues the run.
    let [version, steps] = [VERSION, STEPS].map(|name| metric(&cluster, "learner", name));
    let logs = cluster.logs();
    cluster.run(&["down"]).unwrap();
    cluster.run(&["up", "--detach"]).unwrap();
    all_healthy(&cluster, 1);
    let again = [VERSION, STEPS].map(|name| metric(&cluster, "learner", name));
    assert!(again[0] >= version && again[1] >= steps, "{again:?} after {version} and {steps}");
    assert!(metric(&cluster, "replay", HELD) >= held.len() as f64, "the replay server holds what it held");
    wait_until("training goes on", LEARN, || Ok(metric(&cluster, "learner", STEPS) > again[1])).unwrap();
    a_second_learner_joins_and_goes_on_alone(&mut cluster);

    let logs = logs + &cluster.logs();
    let secrets = secrets(&cluster.secrets());
    assert_eq!(found(logs.as_bytes(), &secrets).unwrap(), BTreeSet::new(), "secrets that are in a log");
    // Each program and libtorch must be found, which shows that the files of every image were read.
    let files = IMAGES.map(|image| format!("usr/local/bin/{}", program_in(image)));
    let there: Vec<String> = files.into_iter().chain(["usr/local/lib/libtorch_cpu.so".to_owned()]).collect();
    let looked_for = [&there[..], &secrets].concat();
    let in_images = cluster.in_images(&IMAGES, &looked_for).unwrap();
    assert_eq!(in_images, there.iter().map(String::as_str).collect(), "secrets, or less than all that is in images");
}

/// Adds the profile `learners` to a running cluster, and then stops the first learner.
fn a_second_learner_joins_and_goes_on_alone(cluster: &mut Compose) {
    let steps = metric(cluster, "learner", STEPS);
    cluster.set("COMPOSE_PROFILES", "cpu,console,learners");
    cluster.set("ZEROFLEET__LEARNER__GROUP", LEARNERS);
    cluster.run(&["up", "--detach"]).unwrap();
    cluster.healthy("learner-1", 1, START).unwrap();
    wait_until("both learners train in one group", START, || {
        Ok(["learner", "learner-1"].iter().all(|learner| metric(cluster, learner, MEMBERS) == 2.0))
    })
    .unwrap();
    let together = metric(cluster, "learner-1", STEPS);
    assert!(together >= steps, "the second learner has the {steps} steps of the first: {together}");
    wait_until("they take steps", LEARN, || Ok(metric(cluster, "learner-1", STEPS) > together)).unwrap();
    cluster.run(&["stop", "learner"]).unwrap();
    let alone = metric(cluster, "learner-1", STEPS);
    wait_until("the second learner goes on alone", LEARN, || {
        Ok(metric(cluster, "learner-1", MEMBERS) == 1.0 && metric(cluster, "learner-1", STEPS) > alone)
    })
    .unwrap();
}

/// Returns the directory of the compose files.
fn deploy() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../deploy")
}

fn read(path: &str) -> String {
    std::fs::read_to_string(deploy().join(path)).unwrap()
}

const FILES: [&str; 3] = ["compose.yaml", "compose.native-learner.yaml", "compose.gate.yaml"];

/// Returns the profiles of all services in all files.
fn profiles() -> BTreeSet<String> {
    let text = FILES.map(read).concat();
    let lists = text.lines().filter_map(|line| line.trim().strip_prefix("profiles: [")?.strip_suffix(']'));
    lists.flat_map(|list| list.split(", ").map(str::to_owned)).collect()
}

#[test]
#[allow(clippy::print_stderr, reason = "the test prints the name of compose")]
fn every_profile_and_override_is_taken_by_each_compose_without_a_warning() {
    let each = profiles();
    let together = each.iter().map(String::as_str).collect::<Vec<_>>().join(",");
    let alone = each.iter().map(|profile| (profile.as_str(), &FILES[..1]));
    let cases: Vec<_> = alone.chain([("native-learner", &FILES[..]), (&together, &FILES[..])]).collect();
    for program in Program::on_this_machine().unwrap() {
        eprintln!("tested: compose {}", program.version().unwrap());
        for (profile, files) in &cases {
            let mut command = program.command();
            let files = files.iter().flat_map(|&file| ["--file", file]);
            command.current_dir(deploy()).args(files).args(["--env-file", ".env.example", "config", "--quiet"]);
            let output = command.env("COMPOSE_PROFILES", profile).output().unwrap();
            let errors = String::from_utf8_lossy(&output.stderr);
            assert!(output.status.success() && errors.is_empty(), "{command:?}: {}\n{errors}", output.status);
        }
    }
}

#[test]
fn docs_list_every_profile_and_the_example_every_variable() {
    let page = read("../docs/cluster.md");
    let table = page.lines().skip_while(|line| !line.starts_with("| profile |")).skip(2);
    let rows = table.take_while(|line| line.starts_with('|'));
    let documented: BTreeSet<String> = rows.map(|row| row.split('`').nth(1).unwrap().to_owned()).collect();
    assert_eq!(documented, profiles());

    let is_of_name = |character: char| character.is_ascii_uppercase() || character == '_';
    let text = FILES.map(read).concat();
    let used = text.split("${").skip(1).map(|rest| rest.split(|character| !is_of_name(character)).next().unwrap());
    // A key without a value passes the variable on unchanged.
    let handed_on =
        text.lines().filter_map(|line| line.trim().strip_suffix(':')).filter(|key| key.chars().all(is_of_name));
    let example = read(".env.example");
    let lines = example.lines().filter_map(|line| line.trim_start_matches('#').split_once('='));
    let named =
        lines.map(|(name, _)| name).filter(|name| name.chars().all(is_of_name) && !name.starts_with("COMPOSE_"));
    assert_eq!(named.collect::<BTreeSet<_>>(), used.chain(handed_on).collect::<BTreeSet<_>>());
}

#[test]
fn each_service_is_published_at_an_address_of_its_own_which_is_loopback_by_default() {
    let text = FILES.map(read).concat();
    let published = text.lines().filter_map(|line| line.trim().strip_prefix("ports: [\""));
    let mut variables = BTreeSet::new();
    for port in published.clone().filter(|port| !port.starts_with("127.0.0.1:")) {
        let variable = port.strip_prefix("${").and_then(|rest| rest.split_once(":-127.0.0.1}:"));
        let (variable, _) = variable.unwrap_or_else(|| panic!("{port} is not on loopback by default"));
        assert!(variable.ends_with("_BIND"), "{port}");
        assert!(variables.insert(variable), "{variable} publishes two services");
    }
    let expected = ["CONSOLE_BIND", "GRAFANA_BIND", "JAEGER_BIND", "PROMETHEUS_BIND", "ZEROFLEET_BIND"];
    assert_eq!(variables, BTreeSet::from(expected));
    assert_eq!(published.count(), 7);
}
