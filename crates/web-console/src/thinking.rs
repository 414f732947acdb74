//! Queues the searches for visitors: one search at a time, and the rest wait in order of arrival. Start with
//! [`Thinking::join`].

use std::collections::BTreeSet;
use std::ops::ControlFlow::{self, Break};
use std::sync::Arc;

use selfplay::Analysis;
use tokio::sync::watch;
use tokio::task::spawn_blocking;
use tokio_util::sync::CancellationToken;

use crate::thinker::{Opinion, Question, Thinker};

/// Maximum number of searches that wait: more than a team asks for, few enough for a wait of minutes.
const WAITING_MAX: usize = 32;

/// The searches of visitors: one at a time; the rest wait in a bounded queue.
#[derive(Debug)]
pub(crate) struct Thinking {
    thinker: Arc<dyn Thinker>,
    /// The numbers of the tickets, ascending by arrival. The first one searches.
    tickets: watch::Sender<BTreeSet<u64>>,
}

/// A place in the queue.
#[derive(Debug)]
pub(crate) struct Ticket {
    thinking: Arc<Thinking>,
    tickets: watch::Receiver<BTreeSet<u64>>,
    number: u64,
}

impl Thinking {
    pub(crate) fn new(thinker: Arc<dyn Thinker>) -> Self {
        Self { thinker, tickets: watch::Sender::default() }
    }

    /// Takes the last place of the queue; `None` if all places are taken.
    pub(crate) fn join(self: &Arc<Self>) -> Option<Ticket> {
        let mut number = None;
        self.tickets.send_if_modified(|tickets| {
            let next = tickets.last().map_or(0, |last| last + 1);
            number = (tickets.len() <= WAITING_MAX).then_some(next);
            number.is_some() && tickets.insert(next)
        });
        Some(Ticket { thinking: Arc::clone(self), tickets: self.tickets.subscribe(), number: number? })
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
        let stop = CancellationToken::new();
        let _stops = stop.clone().drop_guard();
        let searched = spawn_blocking(move || {
            // The place is free after the search, however early the visitor leaves.
            let ticket = self;
            let mut progress = |so_far: &Analysis| if stop.is_cancelled() { Break(()) } else { progress(so_far) };
            ticket.thinking.thinker.think(&question, &mut progress)
        });
        searched.await?
    }
}

impl Drop for Ticket {
    fn drop(&mut self) {
        self.thinking.tickets.send_if_modified(|tickets| tickets.remove(&self.number));
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

    #[tokio::test]
    async fn searches_run_one_after_the_other_in_the_order_of_the_tickets() {
        let (thinking, mut reports) = thinking();
        let [first, second, third] = [(); 3].map(|()| thinking.join().unwrap());
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
        assert_eq!(thinking.join().unwrap().ahead(), 0, "all places are free again");
    }

    #[tokio::test]
    async fn a_full_queue_has_no_place_until_a_visitor_leaves_and_those_who_wait_move_up() {
        let (thinking, _reports) = thinking();
        let mut tickets: Vec<Ticket> = iter::from_fn(|| thinking.join()).take(2 * WAITING_MAX).collect();
        assert!(tickets.len() == WAITING_MAX + 1 && thinking.join().is_none());
        let mut last = tickets.pop().unwrap();
        assert_eq!(last.ahead(), WAITING_MAX);
        drop(tickets.remove(4));
        assert_eq!(last.ahead(), WAITING_MAX - 1);
        assert_eq!(tickets[3].ahead(), 3, "earlier places stay");
        let next = thinking.join().unwrap();
        assert_eq!(next.ahead(), WAITING_MAX);
        let mut seen = Vec::new();
        tokio::join!(last.turn(|ahead| seen.push(ahead)), async { tickets.clear() });
        assert_eq!(seen.first(), Some(&(WAITING_MAX - 1)));
        assert_eq!((last.ahead(), next.ahead()), (0, 1));
    }

    #[tokio::test]
    async fn a_visitor_who_leaves_ends_the_search_and_the_place_in_the_queue() {
        let (thinking, mut reports) = thinking();
        let [searches, waits, next] = [(); 3].map(|()| thinking.join().unwrap());
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
        assert!(thinking.join().unwrap().think(question(99), go_on).await.is_err());
        let stop = |_: &Analysis| Break(());
        thinking.join().unwrap().think(question(0), stop).await.unwrap();
    }
}
