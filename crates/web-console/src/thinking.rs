//! Queues the searches for visitors: one search at a time, and the rest wait in order of arrival. Start with
//! [`Thinking::join`].

use std::collections::BTreeMap;
use std::ops::ControlFlow::{self, Break};
use std::sync::Arc;
use std::time::Duration;

use anyhow::Context as _;
use parking_lot::Mutex;
use selfplay::Analysis;
use tokio::sync::{oneshot, watch};
use tokio::task::spawn_blocking;
use tokio::time::{Instant, sleep};
use tokio_util::sync::CancellationToken;

use crate::thinker::{Opinion, Question, Thinker};

/// Maximum number of searches that wait: more than a team asks for, few enough for a wait of minutes.
const WAITING_MAX: usize = 32;
/// Maximum number of places for a token, so that one visitor does not take all.
const PLACES_MAX: usize = 4;
/// Maximum number of kept opinions that no visitor has seen.
const UNREAD_MAX: usize = 4;
/// Time for which a place is kept until the browser asks again.
const RETURN_TIME: Duration = Duration::from_secs(5);

/// The searches of visitors: one at a time; the rest wait in a bounded queue.
#[derive(Debug)]
pub(crate) struct Thinking {
    pub(crate) thinker: Arc<dyn Thinker>,
    /// The names of the tokens by ticket, ascending by arrival. The first ticket searches.
    tickets: watch::Sender<BTreeMap<u64, Option<Arc<str>>>>,
    /// Opinions whose visitors had left, for those who ask again: a search that cannot be stopped may take longer than
    /// a request.
    unread: Mutex<Vec<(Question, Opinion)>>,
}

/// A place in the queue.
#[derive(Debug)]
pub(crate) struct Ticket {
    thinking: Arc<Thinking>,
    tickets: watch::Receiver<BTreeMap<u64, Option<Arc<str>>>>,
    number: u64,
}

/// Places of visitors between two requests of a browser without scripts. Each ticket holds the queue, which thus must
/// not hold the places.
#[derive(Debug, Clone, Default)]
pub(crate) struct Returning(Arc<Mutex<Vec<Kept>>>);

/// A place since the end of a request, with token and question of the visitor.
type Kept = (Instant, Option<Arc<str>>, Question, Ticket);

impl Returning {
    /// Keeps a place for a short time, in a runtime of tokio.
    pub(crate) fn keep(&self, token: Option<&Arc<str>>, question: Question, ticket: Ticket) {
        let Self(kept) = self.clone();
        kept.lock().push((Instant::now(), token.cloned(), question, ticket));
        tokio::spawn(async move {
            sleep(RETURN_TIME).await;
            kept.lock().retain(|(since, ..)| since.elapsed() < RETURN_TIME);
        });
    }

    /// Takes the place kept for this token and question, if any.
    pub(crate) fn take(&self, token: Option<&Arc<str>>, question: &Question) -> Option<Ticket> {
        let mut kept = self.0.lock();
        let index = kept.iter().position(|(_, of, asked, _)| of.as_ref() == token && asked == question)?;
        Some(kept.remove(index).3)
    }
}

impl Thinking {
    pub(crate) fn new(thinker: Arc<dyn Thinker>) -> Self {
        Self { thinker, tickets: watch::Sender::default(), unread: Mutex::default() }
    }

    /// Takes the last place of the queue for a visitor with this token, if any; `None` if all places are taken.
    pub(crate) fn join(self: &Arc<Self>, token: Option<&Arc<str>>) -> Option<Ticket> {
        let mut number = None;
        self.tickets.send_if_modified(|tickets| {
            let next = tickets.last_key_value().map_or(0, |(last, _)| last + 1);
            let own = tickets.values().flatten().filter(|name| Some(*name) == token).count();
            number = (tickets.len() <= WAITING_MAX && own < PLACES_MAX).then_some(next);
            tickets.extend(number.map(|next| (next, token.cloned())));
            number.is_some()
        });
        Some(Ticket { thinking: Arc::clone(self), tickets: self.tickets.subscribe(), number: number? })
    }

    /// Keeps an opinion, in place of the oldest one of too many.
    fn keep(&self, question: Question, opinion: Opinion) {
        let mut unread = self.unread.lock();
        if unread.len() == UNREAD_MAX {
            unread.remove(0);
        }
        unread.push((question, opinion));
    }

    /// Takes the kept opinion on a question.
    fn unread(&self, question: &Question) -> Option<Opinion> {
        let mut unread = self.unread.lock();
        let index = unread.iter().position(|(kept, _)| kept == question)?;
        Some(unread.remove(index).1)
    }
}

impl Ticket {
    /// Returns the number of searches that come first; 0 when it is this ticket's turn.
    fn ahead(&self) -> usize {
        self.tickets.borrow().range(..self.number).count()
    }

    /// Waits for the turn. `waits` receives the number of searches that come first, now and after each change.
    pub(crate) async fn turn(&mut self, mut waits: impl FnMut(usize)) {
        while self.ahead() > 0 {
            waits(self.ahead());
            // There is no error, because the ticket holds the sender.
            let _ = self.tickets.changed().await;
        }
    }

    /// Waits for the turn and searches on a blocking thread. Dropping the future leaves the queue, or ends the search
    /// at the next progress; the next search starts after the end.
    ///
    /// # Errors
    /// The errors of the thinker, or a panic of the search.
    pub(crate) async fn think(
        mut self,
        question: Question,
        mut progress: impl FnMut(&Analysis) -> ControlFlow<()> + Send + 'static,
    ) -> anyhow::Result<Opinion> {
        self.turn(|_| ()).await;
        if let Some(opinion) = self.thinking.unread(&question) {
            return Ok(opinion);
        }
        let stop = CancellationToken::new();
        let _stops = stop.clone().drop_guard();
        let (sender, found) = oneshot::channel();
        spawn_blocking(move || {
            // The place is free after the search, however early the visitor leaves.
            let (ticket, mut is_whole) = (self, true);
            let mut progress = |so_far: &Analysis| {
                let next = if stop.is_cancelled() { Break(()) } else { progress(so_far) };
                is_whole &= next.is_continue();
                next
            };
            let found = ticket.thinking.thinker.think(&question, &mut progress);
            match found {
                Ok(opinion) if is_whole && sender.is_closed() => ticket.thinking.keep(question, opinion),
                found => {
                    drop(ticket);
                    // A visitor who leaves now does without.
                    let _ = sender.send(found);
                }
            }
        });
        found.await.context("the search panicked")?
    }
}

impl Drop for Ticket {
    fn drop(&mut self) {
        self.thinking.tickets.send_if_modified(|tickets| tickets.remove(&self.number).is_some());
    }
}

#[cfg(test)]
mod tests {
    use std::iter;
    use std::thread;

    use game::Action;
    use games::GameKind;
    use selfplay::Proven;
    use tokio::sync::mpsc::{UnboundedReceiver, UnboundedSender, unbounded_channel};
    use tokio::time::timeout;
    use weights::WeightsVersion;

    use super::*;

    /// A thinker that reports starts and ends, and searches without end if the question has no simulations.
    #[derive(Debug)]
    struct Reporting(UnboundedSender<String>);

    impl Thinker for Reporting {
        fn think(
            &self,
            question: &Question,
            progress: &mut dyn FnMut(&Analysis) -> ControlFlow<()>,
        ) -> anyhow::Result<Opinion> {
            let simulations = question.simulations;
            self.0.send(format!("start {simulations}"))?;
            let opinion = Opinion { analysis: analysis(), version: WeightsVersion(1) };
            while progress(&opinion.analysis).is_continue() && simulations == 0 {
                thread::yield_now();
            }
            self.0.send(format!("end {simulations}"))?;
            anyhow::ensure!(simulations != 13, "the evaluation failed");
            assert!(simulations != 99, "a bug of the search");
            Ok(opinion)
        }
    }

    fn analysis() -> Analysis {
        Analysis {
            actions: Vec::new(),
            visit_counts: Vec::new(),
            priors: Vec::new(),
            policy: Vec::new(),
            action_values: Vec::new(),
            value: 0.0,
            network_value: 0.0,
            principal_variation: Vec::new(),
            best: Action(0),
            proven: Proven::Unknown,
        }
    }

    fn question(simulations: u32) -> Question {
        Question { game: GameKind::TicTacToe, seed: 0, actions: Vec::new(), version: None, simulations }
    }

    fn thinking() -> (Arc<Thinking>, UnboundedReceiver<String>) {
        let (sender, reports) = unbounded_channel();
        (Arc::new(Thinking::new(Arc::new(Reporting(sender)))), reports)
    }

    fn go_on(_: &Analysis) -> ControlFlow<()> {
        ControlFlow::Continue(())
    }

    /// A thinker that cannot be stopped, and searches as often as it is released.
    #[derive(Debug)]
    struct Unstoppable(Mutex<std::sync::mpsc::Receiver<()>>);

    impl Thinker for Unstoppable {
        fn think(&self, _: &Question, _: &mut dyn FnMut(&Analysis) -> ControlFlow<()>) -> anyhow::Result<Opinion> {
            self.0.lock().recv()?;
            Ok(Opinion { analysis: analysis(), version: WeightsVersion(1) })
        }
    }

    #[tokio::test]
    async fn an_opinion_whose_visitor_has_left_is_kept_for_the_next_request() {
        let (release, released) = std::sync::mpsc::channel();
        let thinking = Arc::new(Thinking::new(Arc::new(Unstoppable(Mutex::new(released)))));
        let left = timeout(Duration::ZERO, thinking.join(None).unwrap().think(question(1), go_on)).await;
        assert!(left.is_err());
        release.send(()).unwrap();
        drop(release);
        thinking.join(None).unwrap().think(question(1), go_on).await.unwrap();
        let error = thinking.join(None).unwrap().think(question(1), go_on).await;
        assert!(error.is_err(), "an opinion is kept for one request");
    }

    #[tokio::test]
    async fn searches_run_one_after_the_other_in_the_order_of_the_tickets() {
        let (thinking, mut reports) = thinking();
        let [first, second, third] = [(); 3].map(|()| thinking.join(None).unwrap());
        assert_eq!([&first, &second, &third].map(Ticket::ahead), [0, 1, 2]);
        let (third, second, first) = tokio::join!(
            third.think(question(3), go_on),
            second.think(question(13), go_on),
            first.think(question(1), go_on)
        );
        assert!(first.is_ok() && second.is_err() && third.is_ok());
        for report in ["start 1", "end 1", "start 13", "end 13", "start 3", "end 3"] {
            assert_eq!(reports.recv().await.as_deref(), Some(report));
        }
        assert_eq!(thinking.join(None).unwrap().ahead(), 0, "all places are free again");
    }

    #[tokio::test]
    async fn a_full_queue_has_no_place_until_a_visitor_leaves_and_those_who_wait_move_up() {
        let (thinking, _reports) = thinking();
        let mut tickets: Vec<Ticket> = iter::from_fn(|| thinking.join(None)).take(2 * WAITING_MAX).collect();
        assert!(tickets.len() == WAITING_MAX + 1 && thinking.join(None).is_none());
        tickets.clear();
        let [alice, bob] = ["alice", "bob"].map(Arc::from);
        let own: Vec<Ticket> = iter::from_fn(|| thinking.join(Some(&alice))).take(2 * WAITING_MAX).collect();
        assert!(own.len() == PLACES_MAX && thinking.join(Some(&bob)).is_some());
        drop(own);
        tickets.extend(iter::from_fn(|| thinking.join(None)).take(2 * WAITING_MAX));
        let mut last = tickets.pop().unwrap();
        assert_eq!(last.ahead(), WAITING_MAX);
        drop(tickets.remove(4));
        assert_eq!(last.ahead(), WAITING_MAX - 1);
        assert_eq!(tickets[3].ahead(), 3, "earlier places stay");
        let next = thinking.join(None).unwrap();
        assert_eq!(next.ahead(), WAITING_MAX);
        let mut seen = Vec::new();
        tokio::join!(last.turn(|ahead| seen.push(ahead)), async { tickets.clear() });
        assert_eq!(seen.first(), Some(&(WAITING_MAX - 1)));
        assert_eq!((last.ahead(), next.ahead()), (0, 1));
    }

    #[tokio::test(start_paused = true)]
    async fn a_place_is_kept_for_the_same_token_and_question_until_the_time_is_over() {
        let (thinking, _reports) = thinking();
        let (returning, [alice, bob]) = (Returning::default(), ["alice", "bob"].map(Arc::<str>::from));
        let [_first, second, third] = [(); 3].map(|()| thinking.join(None).unwrap());
        returning.keep(Some(&alice), question(1), second);
        sleep(RETURN_TIME / 2).await;
        assert!(returning.take(Some(&bob), &question(1)).is_none());
        assert!(returning.take(Some(&alice), &question(2)).is_none());
        let second = returning.take(Some(&alice), &question(1)).unwrap();
        assert_eq!((second.ahead(), third.ahead()), (1, 2));
        returning.keep(Some(&alice), question(1), second);
        // The time starts again with each request.
        sleep(RETURN_TIME * 3 / 4).await;
        assert_eq!(third.ahead(), 2);
        sleep(RETURN_TIME).await;
        assert_eq!(third.ahead(), 1, "the visitor has left");
        assert!(returning.take(Some(&alice), &question(1)).is_none());
    }

    #[tokio::test]
    async fn a_visitor_who_leaves_ends_the_search_and_the_place_in_the_queue() {
        let (thinking, mut reports) = thinking();
        let [searches, waits, next] = [(); 3].map(|()| thinking.join(None).unwrap());
        let searches = tokio::spawn(searches.think(question(0), go_on));
        let waits = tokio::spawn(waits.think(question(2), go_on));
        assert_eq!(reports.recv().await.as_deref(), Some("start 0"));
        waits.abort();
        assert!(waits.await.unwrap_err().is_cancelled());
        assert_eq!(next.ahead(), 1, "the search still has the place");
        searches.abort();
        next.think(question(4), go_on).await.unwrap();
        for report in ["end 0", "start 4", "end 4"] {
            assert_eq!(reports.recv().await.as_deref(), Some(report));
        }
    }

    #[tokio::test]
    async fn a_search_that_panics_is_an_error_and_frees_the_place() {
        let (thinking, _reports) = thinking();
        assert!(thinking.join(None).unwrap().think(question(99), go_on).await.is_err());
        let stop = |_: &Analysis| Break(());
        thinking.join(None).unwrap().think(question(0), stop).await.unwrap();
    }
}
