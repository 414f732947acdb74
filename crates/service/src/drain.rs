//! Graceful shutdown: a signal after which a process finishes the work, uploads results and exits.

use std::io::{self, PipeReader, Read};
use std::mem::MaybeUninit;
use std::sync::Arc;
use std::time::Duration;

use tokio::signal::unix::{Signal, SignalKind, signal};
use tokio::task::JoinHandle;
use tokio_util::sync::CancellationToken;

/// A signal to all parts of a process to finish; cheap to clone.
///
/// It fires on SIGINT, SIGTERM and SIGHUP and, with `--exit-with-parent`, when standard input closes because the
/// supervisor has exited.
#[derive(Debug, Clone, Default)]
pub struct Drain {
    token: CancellationToken,
}

impl Drain {
    /// Creates a drain that fires only on [`start`](Self::start): for tests and for parts embedded in another process.
    pub fn new() -> Self {
        Self::default()
    }

    /// Fires the signal.
    pub fn start(&self) {
        self.token.cancel();
    }

    /// Returns true once the signal has fired.
    pub fn started(&self) -> bool {
        self.token.is_cancelled()
    }

    /// Resolves once the signal has fired.
    pub async fn wait(&self) {
        self.token.cancelled().await;
    }

    /// Waits for `event`; returns `None` if the signal fires first. Cancel-safe if `event` is.
    pub async fn unless_started<T>(&self, event: impl Future<Output = T>) -> Option<T> {
        self.token.run_until_cancelled(event).await
    }

    /// Starts a task that calls `work` now and after each `pause`, until `work` returns false or the signal fires. Must
    /// be called on a tokio runtime.
    pub fn repeat(&self, pause: Duration, mut work: impl FnMut() -> bool + Send + 'static) -> JoinHandle<()> {
        let drain = self.clone();
        tokio::spawn(async move { while work() && drain.unless_started(tokio::time::sleep(pause)).await.is_some() {} })
    }

    /// Returns the underlying token, for functions that take a token.
    pub fn token(&self) -> CancellationToken {
        self.token.clone()
    }

    /// Returns the signal as a descriptor. Must be called on a tokio runtime.
    ///
    /// # Errors
    /// The process has too many open files.
    pub fn pipe(&self) -> io::Result<DrainPipe> {
        let (reader, writer) = io::pipe()?;
        let token = self.token.clone();
        // The task stops with the runtime at the latest, which closes the pipe as well.
        tokio::spawn(async move {
            token.cancelled_owned().await;
            drop(writer);
        });
        Ok(Arc::new(reader))
    }

    /// Fires on SIGINT, SIGTERM and SIGHUP. SIGHUP is excluded if this process was started to ignore it, as by nohup.
    /// Must be called on a tokio runtime.
    pub fn on_signals(&self) -> std::io::Result<()> {
        let mut interrupt = signal(SignalKind::interrupt())?;
        let mut terminate = signal(SignalKind::terminate())?;
        let mut hangup = if is_ignored(libc::SIGHUP) { None } else { Some(signal(SignalKind::hangup())?) };
        let drain = self.clone();
        // The runtime owns the task, which must keep handling signals while the process drains.
        tokio::spawn(async move {
            loop {
                let name = tokio::select! {
                    _ = interrupt.recv() => "SIGINT",
                    _ = terminate.recv() => "SIGTERM",
                    () = received(hangup.as_mut()) => "SIGHUP",
                };
                tracing::info!(signal = name, "draining");
                drain.start();
            }
        });
        Ok(())
    }

    /// Fires at the end of `input`. It uses a plain thread, because a blocked read would delay the shutdown of the
    /// runtime.
    pub fn on_end_of(&self, mut input: impl Read + Send + 'static) -> std::io::Result<()> {
        let drain = self.clone();
        let watch = move || {
            let mut ignored = [0; 256];
            // An error counts as the end of the input.
            while matches!(input.read(&mut ignored), Ok(read) if read > 0) {}
            if !drain.started() {
                tracing::info!("the supervisor exited; draining");
            }
            drain.start();
        };
        std::thread::Builder::new().name("parent-watch".to_owned()).spawn(watch).map(drop)
    }
}

/// A pipe that a [`Drain`] closes, for threads that wait in `poll`. A poll reports an event once the signal has
/// fired; no byte is ever read.
pub type DrainPipe = Arc<PipeReader>;

/// Resolves once the signal is received; never without a signal.
async fn received(signal: Option<&mut Signal>) {
    match signal {
        Some(signal) => {
            signal.recv().await;
        }
        None => std::future::pending().await,
    }
}

/// Returns true if this process ignores a signal, as inherited from the process that started it.
fn is_ignored(signal: libc::c_int) -> bool {
    let mut action = MaybeUninit::<libc::sigaction>::uninit();
    // SAFETY: without a new action, the call only writes the current one, which is read only after a success.
    unsafe {
        let status = libc::sigaction(signal, std::ptr::null(), action.as_mut_ptr());
        status == 0 && action.assume_init().sa_sigaction == libc::SIG_IGN
    }
}

#[cfg(test)]
mod tests {
    use std::io::Write as _;

    use super::*;

    #[tokio::test]
    async fn every_clone_observes_the_drain() {
        let drain = Drain::new();
        let clone = drain.clone();
        assert!(!clone.started());
        drain.start();
        clone.wait().await;
        assert!(clone.started());
    }

    #[test]
    fn a_signal_is_ignored_only_where_the_process_was_started_so() {
        // The runtime of Rust ignores SIGPIPE; a test that is run by nohup ignores SIGHUP.
        assert!(is_ignored(libc::SIGPIPE) && !is_ignored(libc::SIGTERM) && !is_ignored(-1));
    }

    #[tokio::test]
    async fn a_pipe_ends_with_the_drain() {
        let drain = Drain::new();
        let pipe = drain.pipe().unwrap();
        let mut end = pipe.try_clone().unwrap();
        drain.start();
        let read = tokio::task::spawn_blocking(move || end.read(&mut [0])).await.unwrap();
        assert_eq!(read.unwrap(), 0);
    }

    #[tokio::test]
    async fn repeated_work_ends_by_itself_or_with_the_drain() {
        let drain = Drain::new();
        drain.repeat(Duration::ZERO, || false).await.unwrap();
        let endless = drain.repeat(Duration::from_secs(3600), || true);
        drain.start();
        endless.await.unwrap();
    }

    #[tokio::test]
    async fn the_end_of_standard_input_drains() {
        let drain = Drain::new();
        drain.on_end_of(&b"words that mean nothing"[..]).unwrap();
        drain.wait().await;
    }

    /// An input that reports every read.
    struct ReadObserver<R> {
        input: R,
        reads: std::sync::mpsc::Sender<()>,
    }

    impl<R: Read> Read for ReadObserver<R> {
        fn read(&mut self, buffer: &mut [u8]) -> std::io::Result<usize> {
            self.reads.send(()).unwrap();
            self.input.read(buffer)
        }
    }

    #[tokio::test]
    async fn an_open_input_does_not_drain() {
        let (input, mut writer) = std::io::pipe().unwrap();
        let (reads, observed) = std::sync::mpsc::channel();
        let drain = Drain::new();
        drain.on_end_of(ReadObserver { input, reads }).unwrap();
        writer.write_all(b"still here").unwrap();
        // A further read means that the previous bytes were processed.
        observed.recv().unwrap();
        observed.recv().unwrap();
        assert!(!drain.started());
        drop(writer);
        drain.wait().await;
    }
}
