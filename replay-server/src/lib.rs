//! Stores each trajectory durably and exactly once, and serves samples at the ratio that the rate limiter enforces.
//!
//! [`run`] is the body of the process, which validates a [`Config`] into [`Settings`]; [`start`] starts a server and
//! returns a [`Running`] server. Three parts have one owner each. [`grpc::ReplayService`] serves calls on tokio;
//! [`insert_stream::InsertStream`] has the rules for inserts. [`table_service::TableService`] owns the tables and
//! rate limiters on a separate thread and processes one command at a time. The [`log`] owns the files on another
//! thread and commits many inserts with one fsync. Bounded channels connect the three; an insert is acknowledged
//! after the commit, and inserts wait while a limiter blocks them, so that back-pressure reaches the actors.
//! [`leases::Actors`] tracks live actors, [`archive::Archive`] copies the files to an object store if one is
//! configured, and [`verify`] checks a log. Start with [`start`].

pub mod archive;
mod clients;
pub mod defect;
mod disk;
pub mod grpc;
pub mod insert_stream;
pub mod leases;
pub mod log;
mod metrics;
pub mod quota;
mod repetition;
pub mod storage;
pub mod table_service;
mod threads;
pub mod verify;

use std::net::SocketAddr;
use std::time::Duration;

use anyhow::{Context as _, anyhow};
use archive::{Archive, ArchiveError};
use futures::future::BoxFuture;
use grpc::ReplayService;
use insert_stream::INSERT_CREDIT;
use leases::Actors;
use proto::replay::v1::replay_server::ReplayServer;
use run_file::replay::{ArchiveSettings, Config, Settings};
use service::directory::DirectoryError;
use service::file_faults::is_full;
use service::{Drain, Health};
use table_service::{Command, Handle};
use tokio::net::TcpListener;
use tokio::task::JoinHandle as Task;
use tonic::service::Routes;
use transport::security::Security;

/// Interval at which metrics are published and waiting samplers receive the reason for the wait.
const TICK: Duration = Duration::from_millis(250);

/// Time limit for closing streams once the server drains. Streams only have to notice the drain.
const DRAIN_TIMEOUT: Duration = Duration::from_secs(5);

/// Runs the process body, for [`service::run`].
///
/// # Errors
/// The failure that prevented the start or stopped the process early, as one chain.
pub fn run(config: Config, context: service::Context) -> service::Body {
    Box::pin(async move {
        let mut settings = config.settings()?;
        // The rest is for the log's buffers, the runtime and other processes.
        let of_machine = || service::machine::memory_bytes().map(|bytes| bytes / 4 * 3);
        settings.memory_bytes_max = settings.memory_bytes_max.or_else(of_machine);
        let security = Security::open(&config.security, context.listen)?;
        let listener = service::net::bind(context.listen).await?;
        let running = start_with(settings, security, listener, context.health, context.drain).await?;
        tracing::info!(address = %running.address, "serving replay");
        context.readiness.ready();
        running.finished().await
    })
}

/// A running server.
#[derive(Debug)]
pub struct Running {
    /// The address on which the server listens.
    pub address: SocketAddr,
    serving: Task<anyhow::Result<()>>,
}

impl Running {
    /// Waits until the server has drained: every acknowledged insert is on disk, and the threads are joined.
    ///
    /// # Errors
    /// The failure that stopped the server early.
    pub async fn finished(self) -> anyhow::Result<()> {
        self.serving.await.context("join the server")?
    }
}

/// Starts a server without authentication, which only the caller uses over loopback. It serves until `drain` fires.
///
/// The future is boxed, so that the server is compiled in this crate and not again in each crate that starts one.
///
/// # Errors
/// The directory is not writable or in use, or the log cannot be read.
pub fn start(settings: Settings, listener: TcpListener, drain: Drain) -> BoxFuture<'static, anyhow::Result<Running>> {
    Box::pin(start_with(settings, Security::default(), listener, Health::default(), drain))
}

/// Restores the tables from the log and serves them on `listener`, to clients that `security` accepts, until `drain`
/// fires. `health` watches the threads.
///
/// # Errors
/// The same errors as [`start`].
async fn start_with(
    settings: Settings,
    security: Security,
    listener: TcpListener,
    health: Health,
    drain: Drain,
) -> anyhow::Result<Running> {
    let address = listener.local_addr().context("read the address of the listener")?;
    match service::directory::writable(&settings.directory) {
        // Samples need no space.
        Err(DirectoryError::NotWritable { path, source }) if is_full(&source) => {
            tracing::warn!(?path, "the disk of the replay log is full; serving samples, and rejecting inserts for now");
        }
        checked => checked?,
    }
    // Only one process at a time may write to a log.
    let lock = service::directory::lock(&settings.directory)?;
    let archive = restored_archive(&settings).await?;
    let (handle, threads) = {
        let settings = settings.clone();
        tokio::task::spawn_blocking(move || threads::start(&settings, &health))
            .await
            .context("restore the replay table")??
    };
    let serving = tokio::spawn(async move {
        let archiving =
            archive.map(|(archive, interval)| tokio::spawn(archive::keep_up(archive, interval, drain.clone())));
        let watching = disk::watch(settings.directory.clone());
        let watching = tokio::spawn(drain.token().run_until_cancelled_owned(watching));
        let served = serve(settings, security, listener, handle, drain.clone()).await;
        // The threads and tasks must stop even if serving failed.
        drain.start();
        let joined = tokio::task::spawn_blocking(move || threads.join()).await.context("join the replay threads")?;
        if let Some(archiving) = archiving {
            let archive = archiving.await.context("join the archive task")?;
            archive::finish(archive).await;
        }
        watching.await.context("join the disk monitoring task")?;
        drop(lock);
        // A panic of a thread is the cause of the server's error.
        joined.and(served)
    });
    Ok(Running { address, serving })
}

/// Opens the archive, if one is configured, and fills an empty directory from it.
async fn restored_archive(settings: &Settings) -> anyhow::Result<Option<(Archive, Duration)>> {
    let Some(ArchiveSettings { url, interval }) = &settings.archive else {
        archive::check_restored(&settings.directory)?;
        return Ok(None);
    };
    let mut archive = Archive::of_process(url, &settings.directory)?;
    match archive.restore().await {
        Ok(0) => {}
        Ok(segments) => {
            tracing::info!(segments, archive = url, "restored the replay log from the archive");
        }
        Err(error @ ArchiveError::Store { .. }) if archive.has_log().await? => {
            let error = service::chain(&error.into());
            tracing::warn!(
                error,
                archive = url,
                "cannot read the archive; serving the replay log without an archive for now"
            );
        }
        Err(error) => return Err(error.into()),
    }
    Ok(Some((archive, *interval)))
}

/// Serves until the server has drained; by then the table service has received the drain too.
async fn serve(
    settings: Settings,
    security: Security,
    listener: TcpListener,
    handle: Handle,
    drain: Drain,
) -> anyhow::Result<()> {
    let names = [<ReplayServer<ReplayService> as tonic::server::NamedService>::NAME];
    let (health_reporter, health, reflection) = proto::health_and_reflection(&names);
    let connections_max = settings.connections_max;
    let actors = Actors::new(settings.heartbeat, INSERT_CREDIT);
    // Leases are checked more often than heartbeats arrive: a sweep after a longer pause counts as a stall of the
    // server.
    let tick = TICK.min(settings.heartbeat / 2);
    let service = ReplayService::new(settings, handle.clone(), actors.clone(), drain.token());
    let service = proto::replay::service(service);
    let services = Routes::new(health).add_service(reflection).add_service(service);
    let stopped = Box::pin(drain.token().cancelled_owned());
    let server = transport::server(&security);
    let serving = transport::serve(server, services, listener, connections_max, security, stopped);
    let ticking = async {
        let mut ticks = tokio::time::interval(tick);
        ticks.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
        loop {
            ticks.tick().await;
            actors.sweep(tokio::time::Instant::now().into_std());
            if handle.send(Command::Tick).await.is_err() {
                break;
            }
        }
        if drain.started() {
            // The table service has drained before the streams, which are still delivering the last replies.
            std::future::pending().await
        }
    };
    let draining = async {
        drain.wait().await;
        health_reporter.set_not_serving(names[0]);
        let _ = handle.send(Command::Drain).await;
        tokio::time::sleep(DRAIN_TIMEOUT).await;
    };
    let served = tokio::select! {
        served = serving => served.context("serve replay"),
        () = draining => Ok(()),
        () = ticking => Err(anyhow!("the replay table stopped early")),
    };
    // The table service must stop too, even if serving failed.
    let _ = handle.send(Command::Drain).await;
    served
}
