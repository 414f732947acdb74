use std::collections::VecDeque;
use std::sync::Arc;
use std::time::Duration;

use experience::{Mass, Sample};
use tokio::sync::watch;
use tokio::time::{Instant, MissedTickBehavior, interval};
use tokio_util::sync::{CancellationToken, DropGuard};

use super::UnionSettings;
use crate::replay::sampler::State;
use crate::replay::{Inspector, NewestWeights, SampleBatch, Sampler, SamplerSettings, TableStats};
use crate::servers::Server;

/// The interval between requests for a server's total weight: buffered batches only carry the weight at the time of
/// their draw.
const MASS_INTERVAL: Duration = Duration::from_secs(1);

/// One server: its stream of batches, what is left of the last one, and what its table weighs.
#[derive(Debug)]
pub(super) struct Source {
    server: Server,
    sampler: Sampler,
    queue: VecDeque<Sample>,
    /// The total weight in the last batch.
    table: Option<TableStats>,
    asked: Option<Asked>,
    /// It keeps the others waiting: no sample is expected of it before its next batch.
    left_out: bool,
    started: Instant,
}

/// The server's answer to the periodic request, used while other servers are drawn from.
#[derive(Debug)]
struct Asked {
    table: watch::Receiver<Option<Arc<TableStats>>>,
    _task: DropGuard,
}

impl Source {
    pub(super) fn start(server: Server, newest: NewestWeights, settings: &UnionSettings) -> Self {
        let UnionSettings { game, table, batch_size, unroll_steps, prefetch_batches, .. } = settings;
        let settings = SamplerSettings {
            endpoint: server.endpoint.as_ref().to_owned(),
            game: game.clone(),
            table: table.clone(),
            batch_size: *batch_size,
            unroll_steps: *unroll_steps,
            prefetch_batches: *prefetch_batches,
        };
        let sampler = Sampler::telling(newest, settings);
        let (queue, started) = (VecDeque::new(), Instant::now());
        Self { server, sampler, queue, table: None, asked: None, left_out: false, started }
    }

    /// True while batches are drawn from this server, at its current endpoint.
    pub(super) fn is_of(&self, server: &Server) -> bool {
        self.server.id == server.id && self.server.endpoint == server.endpoint
    }

    pub(super) fn server(&self) -> &Server {
        &self.server
    }

    /// Asks the server every now and then what it weighs.
    pub(super) fn watch_mass(&mut self, table: &str) {
        if self.asked.is_none() {
            let (tell, answers) = watch::channel(None);
            let stop = CancellationToken::new();
            let asking = ask(Arc::clone(&self.server.endpoint), table.to_owned(), tell);
            tokio::spawn(stop.clone().run_until_cancelled_owned(asking));
            self.asked = Some(Asked { table: answers, _task: stop.drop_guard() });
        }
    }

    /// Asks no more: the only server has all of the mass.
    pub(super) fn forget_mass(&mut self) {
        self.asked = None;
    }

    /// Looks whether a batch has come, where there is nothing left of the last one.
    pub(super) fn take_in(&mut self) {
        if self.queue.is_empty()
            && let Some(batch) = self.sampler.try_next()
        {
            self.put(batch);
        }
    }

    /// The next sample, if it is here.
    pub(super) fn take(&mut self) -> Option<Sample> {
        self.take_in();
        self.queue.pop_front()
    }

    fn put(&mut self, SampleBatch { samples, table }: SampleBatch) {
        self.queue.extend(samples);
        self.table = Some(table);
        if std::mem::take(&mut self.left_out) {
            tracing::info!(server = &*self.server.endpoint, "samples come from this server again");
        }
    }

    /// Returns the server's total weight; `None` while no batch can be expected of it.
    pub(super) fn mass(&self) -> Option<Mass> {
        if self.left_out {
            return None;
        }
        let known = self.known(TableStats::mass).filter(|mass| mass.weight > 0.0);
        // A buffered batch was drawn, whatever became of the table since; some peers do not report their total weight.
        known.or_else(|| self.queue.front().map(|sample| Mass::of_items(sample.table_items)))
    }

    /// Items that it draws from.
    pub(super) fn items(&self) -> u64 {
        self.known(|table| table.window_items).unwrap_or(0)
    }

    /// Something of the newest that is known of its table.
    fn known<T>(&self, what: impl Fn(&TableStats) -> T) -> Option<T> {
        let asked = self.asked.as_ref().and_then(|asked| asked.table.borrow().as_deref().map(&what));
        asked.or_else(|| self.table.as_ref().map(what))
    }

    pub(super) fn is_away(&self) -> bool {
        matches!(self.sampler.state(), State::Away(_))
    }

    /// Returns true if the source has just started and has no weight yet: a draw now would pass it over.
    pub(super) fn is_unheard(&self, patience: Duration) -> bool {
        self.unheard_until(patience).is_some_and(|until| Instant::now() < until)
    }

    /// Returns the deadline for the first weight; `None` once it has arrived.
    pub(super) fn unheard_until(&self, patience: Duration) -> Option<Instant> {
        let is_silent = matches!(self.sampler.state(), State::Opening | State::Serving);
        (is_silent && self.known(|_| ()).is_none()).then(|| self.started + patience)
    }

    /// Expects nothing of it before its next batch.
    pub(super) fn leave_out(&mut self) {
        self.left_out = true;
        let (server, reason) = (&*self.server.endpoint, self.sampler.waiting_reason().unwrap_or_default());
        if self.is_away() {
            tracing::warn!(server, reason, "a replay server is away; samples come from the others");
        } else {
            tracing::info!(server, reason, "a replay server keeps batches waiting; samples come from the others");
        }
    }

    /// Waits for a batch, if there is nothing left of the last one, or for news of the server. Cancel-safe.
    pub(super) async fn event(&mut self) {
        let news = async {
            let answered = match &mut self.asked {
                Some(asked) => asked.table.changed().await.is_ok(),
                None => false,
            };
            if !answered {
                std::future::pending().await
            }
        };
        let batch = if self.queue.is_empty() {
            tokio::select! {
                batch = self.sampler.next_or_change() => batch,
                () = news => None,
            }
        } else {
            tokio::select! {
                () = self.sampler.change() => None,
                () = news => None,
            }
        };
        if let Some(batch) = batch {
            self.put(batch);
        }
    }

    pub(super) async fn close(self) {
        self.sampler.close().await;
    }
}

/// Asks what the table weighs, for ever. What cannot be answered now leaves the last answer in force: whether the
/// server is away shows on its stream.
async fn ask(endpoint: Arc<str>, table: String, tell: watch::Sender<Option<Arc<TableStats>>>) {
    let Ok(inspector) = Inspector::new(&endpoint) else { return };
    let mut ticks = interval(MASS_INTERVAL);
    ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
    loop {
        ticks.tick().await;
        if let Ok(stats) = inspector.stats_of(&table).await {
            tell.send_replace(Some(Arc::new(stats.table)));
        }
    }
}
