//! Several learners train one network, and any of them is killed or joins.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};
use std::time::Duration;

use service::net::reserve_ports;
use tests::{Cluster, Process, Role, SMALL_TIC_TAC_TOE, wait_until};
use weights::{Digest, Manifest};

const DEADLINE: Duration = Duration::from_secs(120);
const STEPS: &str = "zerofleet_learner_steps_total";
const MEMBERS: &str = "zerofleet_learner_group_members";

/// Waits until these learners train in a group of exactly this size, beyond all earlier steps.
fn train_together(what: &str, learners: &[&Process]) {
    let steps = || learners.iter().map(|learner| learner.metric(STEPS).unwrap_or(0.0));
    let are_members = || {
        learners.iter().all(|learner| learner.metric(MEMBERS).is_some_and(|members| members == learners.len() as f64))
    };
    wait_until(&format!("{what}: {} learners are a group", learners.len()), DEADLINE, || Ok(are_members())).unwrap();
    let before = steps().fold(0.0, f64::max);
    wait_until(&format!("{what}: they train beyond step {before}"), DEADLINE, || {
        Ok(are_members() && steps().all(|now| now > before))
    })
    .unwrap();
}

/// Returns the digest and the training step of each version in a run directory.
fn versions(directory: &Path) -> BTreeMap<u64, (Digest, u64)> {
    let files = std::fs::read_dir(directory.join("weights")).unwrap().map(|entry| entry.unwrap().path());
    let manifests = files.filter(|path| path.extension().is_some_and(|extension| extension == "json"));
    let read = |path| serde_json::from_slice::<Manifest>(&std::fs::read(path).unwrap()).unwrap();
    manifests.map(read).map(|manifest| (manifest.version.0, (manifest.digest, manifest.training_step))).collect()
}

/// Returns the local addresses at which a process listens, as the kernel writes them: `0100007F` is 127.0.0.1.
fn listening(process: &Process) -> Vec<String> {
    let process = format!("/proc/{}", process.id().unwrap());
    let inode = |path: std::io::Result<PathBuf>| {
        Some(path.ok()?.to_str()?.strip_prefix("socket:[")?.strip_suffix(']')?.to_owned())
    };
    let descriptors = std::fs::read_dir(format!("{process}/fd")).unwrap();
    let sockets: BTreeSet<String> =
        descriptors.filter_map(|entry| inode(std::fs::read_link(entry.ok()?.path()))).collect();
    let tables = ["tcp", "tcp6"].map(|table| std::fs::read_to_string(format!("{process}/net/{table}")).unwrap());
    let local = |line: &str| {
        let fields: Vec<&str> = line.split_whitespace().collect();
        let is_listening = fields.get(3) == Some(&"0A") && sockets.contains(*fields.get(9)?);
        is_listening.then(|| fields[1].split(':').next().unwrap_or_default().to_owned())
    };
    tables.iter().flat_map(|table| table.lines()).filter_map(local).collect()
}

/// Returns a replay server, an actor and a learner, and a second learner that trains with it.
fn two_learners() -> (Cluster, Process) {
    let mut cluster = Cluster::new("tic_tac_toe", SMALL_TIC_TAC_TOE).unwrap();
    let [second] = reserve_ports().unwrap();
    let group = format!("learner.group={},http://127.0.0.1:{}", cluster.learner_endpoint(), second.address().port());
    cluster.process(Role::Learner).argue(&["--set", &group]);
    let mut second = cluster.another_learner("learner-2", second, vec![group, "learner.index=1".to_owned()]).unwrap();
    cluster.start(&[Role::Replay, Role::Learner, Role::Actor]).unwrap();
    second.start().unwrap();
    (cluster, second)
}

#[test]
fn learners_of_one_machine_listen_on_loopback_only_while_they_train_together() {
    let (mut cluster, second) = two_learners();
    train_together("at the start", &[cluster.process(Role::Learner), &second]);
    let learners: [&Process; 2] = [cluster.process(Role::Learner), &second];
    for learner in learners {
        let addresses = listening(learner);
        let is_loopback = |address: &String| address == "0100007F" || address == "00000000000000000000000001000000";
        // The server, the admin port, and the socket to which the other learner has connected.
        assert!(addresses.len() >= 3 && addresses.iter().all(is_loopback), "{addresses:?}");
    }
}

#[test]
fn a_second_learner_of_a_run_directory_ends_with_its_name() {
    let mut cluster = Cluster::new("tic_tac_toe", SMALL_TIC_TAC_TOE).unwrap();
    cluster.start(&[Role::Replay, Role::Learner]).unwrap();
    let [listen] = reserve_ports().unwrap();
    let own = format!("run.directory={}", cluster.directory().display());
    let mut second = cluster.another_learner("learner-2", listen, vec![own]).unwrap();
    second.start().unwrap();
    let output = second.ended(DEADLINE).unwrap();
    let directory = cluster.directory().join("checkpoints").display().to_string();
    assert!(!output.status.success(), "{}", output.text);
    assert!(output.text.contains("another process uses") && output.text.contains(&directory), "{}", output.text);
}

#[test]
fn two_learners_survive_the_kill_of_either_a_third_joins_and_all_have_the_same_weights() {
    let sections = SMALL_TIC_TAC_TOE.replace("[learner]\n", "[learner]\nversions_kept = 1000\n");
    let mut cluster = Cluster::new("tic_tac_toe", &sections).unwrap();
    let [second, third] = reserve_ports().unwrap();
    let ports = [second.address().port(), third.address().port()];
    let group = format!("{},http://127.0.0.1:{},http://127.0.0.1:{}", cluster.learner_endpoint(), ports[0], ports[1]);
    let sets = |index: usize| {
        // A busy machine may not schedule a learner for seconds; a killed learner is noticed by its connections.
        [
            "learner.group_timeout_seconds=30".to_owned(),
            format!("learner.group={group}"),
            format!("learner.index={index}"),
        ]
    };
    for set in sets(0) {
        cluster.process(Role::Learner).argue(&["--set", &set]);
    }
    let mut second = cluster.another_learner("learner-2", second, sets(1).into()).unwrap();
    let mut third = cluster.another_learner("learner-3", third, sets(2).into()).unwrap();
    cluster.start(&[Role::Replay, Role::Learner, Role::Actor]).unwrap();
    second.start().unwrap();
    train_together("at the start", &[cluster.process(Role::Learner), &second]);

    second.kill().unwrap();
    train_together("after the kill of the second", &[cluster.process(Role::Learner)]);
    second.start().unwrap();
    train_together("after its return", &[cluster.process(Role::Learner), &second]);

    cluster.process(Role::Learner).kill().unwrap();
    train_together("after the kill of the first", &[&second]);
    cluster.process(Role::Learner).start().unwrap();
    train_together("after its return", &[cluster.process(Role::Learner), &second]);

    third.start().unwrap();
    train_together("with a third", &[cluster.process(Role::Learner), &second, &third]);
    let directories =
        [cluster.directory().to_owned(), cluster.directory().join("learner-2"), cluster.directory().join("learner-3")];
    // All versions of the third learner are versions of the whole group, except possibly the first. Numbers have gaps.
    wait_until("three versions of the three", DEADLINE, || Ok(versions(&directories[2]).len() >= 4)).unwrap();
    for learner in [cluster.process(Role::Learner), &mut second, &mut third] {
        learner.terminate();
    }
    for learner in [cluster.process(Role::Learner), &mut second, &mut third] {
        assert!(learner.ended(Duration::from_secs(20)).unwrap().status.success(), "{}", learner.log_text());
    }
    let all = directories.each_ref().map(|directory| versions(directory));
    let of_all: Vec<u64> =
        all[0].keys().copied().filter(|version| all[1..].iter().all(|other| other.contains_key(version))).collect();
    assert!(of_all.len() >= 2, "{all:?}");
    for (version, published) in all.iter().flatten() {
        for other in &all {
            assert!(other.get(version).is_none_or(|other| other == published), "version {version}: {all:?}");
        }
    }
}
