//! A disk that becomes full during `zerofleet train` and later has free space again.
#![cfg(target_os = "linux")]

use std::fs::{self, File};
use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use experience::TrajectoryId;
use tests::trajectories::{answered, list, won, writer};
use tests::{Cluster, Role, SMALL_TIC_TAC_TOE, TrainingRun};
use version_store::checkpoint::Checkpoints;

const DEADLINE: Duration = Duration::from_secs(90);

/// A small disk; unmounted on drop.
struct Disk(PathBuf);

impl Disk {
    /// Mounts the disk at `at`; `None` if this user may not mount.
    fn mount(at: PathBuf) -> Option<Self> {
        fs::create_dir(&at).unwrap();
        let mounted = Command::new("mount").args(["-t", "tmpfs", "-o", "size=48m", "tmpfs"]).arg(&at).output();
        mounted.is_ok_and(|output| output.status.success()).then(|| Self(at))
    }

    /// Fills the free space of the disk.
    fn fill(&self) {
        let mut filler = File::create(self.0.join("filler")).unwrap();
        for size in [1 << 16, 1] {
            while filler.write_all(&vec![0; size]).is_ok() {}
        }
    }

    fn make_room(&self) {
        fs::remove_file(self.0.join("filler")).unwrap();
    }
}

impl Drop for Disk {
    fn drop(&mut self) {
        // The unmount is lazy, because a process that a failed test has just killed may still hold a file open.
        let _ = Command::new("umount").arg("--lazy").arg(&self.0).status();
    }
}

/// Returns the training step of the latest checkpoint, and panics if any checkpoint is damaged.
fn newest_checkpoint(run: &Path) -> Option<u64> {
    let found = Checkpoints::new(run.join("checkpoints"), usize::MAX).newest().unwrap()?;
    assert!(found.damaged.is_empty(), "{:?}", found.damaged);
    Some(found.checkpoint.progress.training_step)
}

#[test]
fn a_full_disk_is_reported_without_a_restart_or_damage_and_checkpoints_continue_once_there_is_room() {
    let folder = tempfile::tempdir().unwrap();
    let Some(disk) = Disk::mount(folder.path().join("disk")) else {
        return tests::skip("mount", "only root can mount a small disk");
    };
    let mut run = TrainingRun::new(&disk.0, folder.path()).unwrap();
    run.start().unwrap();
    run.until("there is a checkpoint", DEADLINE, |run| newest_checkpoint(run.directory()).is_some()).unwrap();
    disk.fill();
    run.until("the full disk is reported", DEADLINE, |run| {
        run.output().contains("cannot write the metrics of the run")
    })
    .unwrap();
    let before = newest_checkpoint(run.directory()).unwrap();
    assert!(!run.output().contains("restarting in"), "{}", run.output());

    disk.make_room();
    run.until("it can be written again", DEADLINE, |run| run.output().contains("could be written again")).unwrap();
    run.until("there is a newer checkpoint", DEADLINE, |run| newest_checkpoint(run.directory()) > Some(before))
        .unwrap();
    run.stop().unwrap();
    assert!(!run.output().contains("restarting in"), "{}", run.output());
    let numbers = fs::read_to_string(run.directory().join("metrics.jsonl")).unwrap();
    for line in numbers.lines() {
        serde_json::from_str::<serde_json::Value>(line).unwrap();
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_replay_server_killed_on_a_full_disk_serves_again_and_other_processes_stop_with_the_full_disk_named() {
    let folder = tempfile::tempdir().unwrap();
    let Some(disk) = Disk::mount(folder.path().join("disk")) else {
        return tests::skip("mount", "only root can mount a small disk");
    };
    let mut cluster = Cluster::new("tic_tac_toe", SMALL_TIC_TAC_TOE).unwrap();
    let directory = format!("run.directory={}", disk.0.join("run").display());
    Cluster::ROLES.into_iter().for_each(|role| cluster.process(role).argue(&["--set", &directory]));
    cluster.start(&[Role::Replay]).unwrap();
    let endpoint = cluster.replay_endpoint();
    let id = |sequence| TrajectoryId { actor: 7, epoch: 1, sequence };
    let witness = writer(&endpoint, 7, 1);
    for sequence in 0..20 {
        witness.insert(won(id(sequence))).await.unwrap();
    }
    answered(&witness, DEADLINE).await.unwrap();
    cluster.process(Role::Replay).kill().unwrap();

    disk.fill();
    cluster.start(&[Role::Replay]).unwrap();
    assert_eq!(list(&endpoint).await.unwrap().len(), 20);
    let text = cluster.process(Role::Replay).log_text();
    assert!(text.contains("the disk of the replay log is full"), "{text}");
    for role in [Role::Learner, Role::Actor, Role::Arena] {
        cluster.process(role).start().unwrap();
        let output = cluster.process(role).ended(DEADLINE).unwrap();
        let errors = output.errors().join("\n");
        assert!(errors.contains("no space left for user "), "{role:?}: {}", output.text);
    }

    disk.make_room();
    witness.insert(won(id(20))).await.unwrap();
    answered(&witness, DEADLINE).await.unwrap();
    assert_eq!(list(&endpoint).await.unwrap().len(), 21);
}
