//! Starts and joins the two threads of a server: table service and log.

use std::hash::{BuildHasher as _, RandomState};
use std::sync::mpsc::sync_channel;
use std::thread::JoinHandle as Thread;
use std::time::Duration;

use anyhow::{Context as _, anyhow};
use run_file::replay::Settings;
use service::Health;

use crate::log::committer::LogEvent;
use crate::log::{self, Disk, Log, Volume, committer};
use crate::storage::{self, Startup};
use crate::table_service::{Clock, Command, Handle, LOG_COMMANDS_MAX, Restored, TableService, TableState};

/// Time without progress after which a thread counts as stalled. Both wake several times per second; a sync of a slow
/// disk may take seconds.
const STALLED_AFTER: Duration = Duration::from_secs(30);

/// The two threads of a server.
#[derive(Debug)]
pub(crate) struct Threads {
    tables: Thread<()>,
    log: Thread<()>,
}

impl Threads {
    /// Joins the table service first, which closes the channel to the log.
    pub(crate) fn join(self) -> anyhow::Result<()> {
        let tables = self.tables.join().map_err(|_| anyhow!("the replay table's thread panicked"));
        let log = self.log.join().map_err(|_| anyhow!("the replay log's thread panicked"));
        tables.and(log)
    }
}

/// Restores the tables from the log and starts the threads.
pub(crate) fn start(settings: &Settings, health: &Health) -> anyhow::Result<(Handle, Threads)> {
    let folder = &settings.directory;
    let restored = storage::restore(Disk::new(folder), settings, Startup::now(entropy()));
    let (log, restored, repairs) = restored.with_context(|| format!("open the replay log in {}", folder.display()))?;
    for repair in repairs {
        let kept_in = repair.kept_in();
        let log::Repair { name, offset, length, what, cut } = repair;
        let done = if cut { "cut off" } else { "skipped" };
        tracing::warn!(file = name, offset, bytes = length, kept_in, "the replay log contains {what}: {done}");
    }
    restored.tables.iter().for_each(log_restored);
    spawn(log, restored, settings, health, STALLED_AFTER)
}

fn spawn<V: Volume + 'static>(
    log: Log<V>,
    restored: Restored,
    settings: &Settings,
    health: &Health,
    stalled_after: Duration,
) -> anyhow::Result<(Handle, Threads)>
where
    V::File: 'static,
{
    let (handle, commands) = Handle::new();
    let (to_log, log_commands) = sync_channel(LOG_COMMANDS_MAX);
    let commit = settings.commit;
    // This handle does not keep the table service running: the service stops once it has drained.
    let ends = LogEnds(handle.clone());
    let beats = health.heartbeat("replay-log", stalled_after);
    let log = std::thread::Builder::new().name("replay-log".to_owned()).spawn(move || {
        // Dropped in reverse order: the heartbeat stops before the event is received.
        let ends = ends;
        let beats = beats;
        committer::run(
            log,
            &log_commands,
            commit,
            || beats.beat(),
            |event| {
                // A send fails only after the table service has stopped, when it no longer needs the event.
                let _ = ends.0.send_blocking(Command::Log(event));
            },
        );
    })?;
    let beats = health.heartbeat("replay-table", stalled_after);
    let tables = TableService::new(restored, settings, to_log, Clock::start());
    let tables = std::thread::Builder::new()
        .name("replay-table".to_owned())
        .spawn(move || tables.run(commands, || beats.beat()))?;
    Ok((handle, Threads { tables, log }))
}

/// Reports a panic of the log thread to the table service, which would otherwise wait forever for replies.
struct LogEnds(Handle);

impl Drop for LogEnds {
    fn drop(&mut self) {
        if std::thread::panicking() {
            let _ = self.0.send_blocking(Command::Log(LogEvent::Panicked));
        }
    }
}

/// Returns random bytes from the system.
fn entropy() -> [u8; 32] {
    let state = RandomState::new();
    let words: [u64; 4] = std::array::from_fn(|word| state.hash_one(word));
    *blake3::hash(&words.map(u64::to_le_bytes).concat()).as_bytes()
}

fn log_restored(state: &TableState) {
    let (table, limiter) = (state.table(), state.limiter());
    tracing::info!(
        table = state.name(),
        trajectories = table.trajectories(),
        items = table.items(),
        samples = limiter.counts().sampled,
        "restored a replay table"
    );
    if table.items() > 0
        && let Err(wait) = limiter.can_sample(1)
    {
        tracing::warn!(table = state.name(), "sampling is blocked until more trajectories arrive: {wait}");
    }
}

#[cfg(test)]
mod tests {
    use std::io;
    use std::sync::atomic::{AtomicBool, Ordering};
    use std::sync::{Arc, Mutex};
    use std::time::Instant;

    use super::*;
    use crate::log::VolumeFile;
    use crate::log::tests::Memory;
    use crate::table_service::Inserted;
    use crate::table_service::tests::trajectory;

    /// A volume that calls a function on each write, once armed.
    struct Faulty {
        memory: Memory,
        faults: Faults,
    }

    #[derive(Clone)]
    struct Faults {
        is_armed: Arc<AtomicBool>,
        on_write: Arc<dyn Fn() + Send + Sync>,
    }

    impl Volume for Faulty {
        type File = Faults;

        fn list(&self) -> io::Result<Vec<String>> {
            self.memory.list()
        }
        fn read(&self, name: &str) -> io::Result<Vec<u8>> {
            self.memory.read(name)
        }
        fn create(&self, name: &str) -> io::Result<Faults> {
            self.memory.create(name).map(|_| self.faults.clone())
        }
        fn open(&self, name: &str) -> io::Result<Faults> {
            self.memory.open(name).map(|_| self.faults.clone())
        }
        fn rename(&self, from: &str, to: &str) -> io::Result<()> {
            self.memory.rename(from, to)
        }
        fn remove(&self, name: &str) -> io::Result<()> {
            self.memory.remove(name)
        }
        fn sync(&self) -> io::Result<()> {
            Ok(())
        }
    }

    impl VolumeFile for Faults {
        fn append(&mut self, _: &[u8]) -> io::Result<()> {
            if self.is_armed.load(Ordering::SeqCst) {
                (self.on_write)();
            }
            Ok(())
        }
        fn sync(&mut self) -> io::Result<()> {
            Ok(())
        }
        fn truncate(&mut self, _: u64) -> io::Result<()> {
            Ok(())
        }
    }

    /// Starts the threads on a volume with this fault, and sends an insert.
    fn inserting(
        on_write: impl Fn() + Send + Sync + 'static,
        health: &Health,
        stalled_after: Duration,
    ) -> (Handle, Threads, tokio::sync::mpsc::Receiver<Inserted>) {
        let settings = crate::Config::default().settings().unwrap();
        let faults = Faults { is_armed: Arc::default(), on_write: Arc::new(on_write) };
        let is_armed = Arc::clone(&faults.is_armed);
        let (log, restored, _) =
            storage::restore(Faulty { memory: Memory::default(), faults }, &settings, Startup::in_tests()).unwrap();
        is_armed.store(true, Ordering::SeqCst);
        let (handle, threads) = spawn(log, restored, &settings, health, stalled_after).unwrap();
        let (reply, answers) = tokio::sync::mpsc::channel(4);
        let (content, inserted) = (log::EncodedTrajectory::default(), log::UnixMillis(0));
        handle
            .send_blocking(Command::Insert { trajectory: trajectory(0), content, inserted, reply: reply.into() })
            .unwrap();
        (handle, threads, answers)
    }

    /// Sends ticks, like a server, until the health is as expected.
    fn wait_for(handle: &Handle, health: &Health, expected: impl Fn(Option<&str>) -> bool) {
        let start = Instant::now();
        loop {
            handle.send_blocking(Command::Tick).unwrap();
            let problem = health.problem(Instant::now());
            if expected(problem.as_deref()) {
                return;
            }
            assert!(start.elapsed() < Duration::from_secs(60), "{problem:?}");
            std::thread::yield_now();
        }
    }

    #[test]
    fn a_panic_of_the_logs_thread_ends_the_table_service_and_is_reported() {
        let health = Health::default();
        let (handle, threads, mut answers) = inserting(|| panic!("a bug in the log"), &health, STALLED_AFTER);
        // The drain would wait for the insert.
        let _ = handle.send_blocking(Command::Drain);
        let error = threads.join().unwrap_err().to_string();
        assert_eq!(error, "the replay log's thread panicked");
        assert!(answers.blocking_recv().is_none(), "it is not acknowledged");
        assert_eq!(health.problem(Instant::now()).as_deref(), Some("the thread replay-log panicked"));
    }

    #[test]
    fn a_write_that_does_not_return_is_a_stall_of_the_logs_thread_only_until_it_returns() {
        let health = Health::default();
        let gate = Arc::new(Mutex::new(()));
        let closed = gate.lock().unwrap();
        let disk = Arc::clone(&gate);
        let blocks = move || drop(disk.lock().unwrap());
        let (handle, threads, mut answers) = inserting(blocks, &health, Duration::from_millis(500));
        wait_for(&handle, &health, |problem| {
            problem.is_some_and(|it| it.starts_with("the thread replay-log has stalled") && !it.contains(';'))
        });
        drop(closed);
        wait_for(&handle, &health, |problem| problem.is_none());
        assert!(matches!(answers.blocking_recv(), Some(Inserted::New(_))));
        handle.send_blocking(Command::Drain).unwrap();
        threads.join().unwrap();
        assert_eq!(health.problem(Instant::now() + STALLED_AFTER), None);
    }
}
