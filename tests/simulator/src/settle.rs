//! The final part of a run: all faults stop, and every honest actor must make progress.

use std::collections::BTreeSet;
use std::time::Duration;

use experience::TrajectoryId;
use proto::replay::Suspect;
use rand::SeedableRng;
use rand_chacha::ChaCha8Rng;
use replay_server::log::power_disk::Faults;

use crate::content::Items;
use crate::oracle::{Checked, Promise, broken};
use crate::world::World;

/// Virtual time between two rounds.
const ROUND: Duration = Duration::from_millis(20);

/// Virtual time limit for a new game of every honest actor to become a sample, in rounds: a minute.
const ROUNDS_MAX: usize = 3_000;

impl World {
    /// Stops all faults, waits for progress, and checks the state after one more power loss.
    pub(crate) fn settle(&mut self, seed: u64) -> Checked {
        self.rng = ChaCha8Rng::seed_from_u64(!seed);
        self.note("faults stop", "all faults stop");
        (self.faults, self.is_slow) = (Faults::default(), false);
        self.disk.set_faults(self.faults);
        for id in self.bus.hostile() {
            self.bus.client_left(id);
            self.bus.server_left(id);
            if let Some(server) = &mut self.server {
                server.inserts.remove(&id);
                server.samples.remove(&id);
            }
        }
        self.lose_power_now()?;
        self.progress()?;
        self.outage()?;
        self.progress()?;
        self.probe()?;
        self.lose_power_now()?;
        self.check_second()?;
        self.restore_at_the_end()?;
        self.trace_end();
        Ok(())
    }

    /// Loses power and starts again at once.
    fn lose_power_now(&mut self) -> Checked {
        self.down("the machine of the server loses power for the last time");
        self.disk.lose_power();
        self.start()?;
        if self.server.is_some() { Ok(()) } else { broken(Promise::Start, "the server stays down".to_owned()) }
    }

    fn progress(&mut self) -> Checked {
        for actor in 1..=self.actors.len() as u64 {
            self.request_quarantine(Suspect::Actor(actor), false)?;
        }
        let settings = [
            ("samples_per_insert", "2"),
            ("min_items", "4"),
            ("error_items", "40"),
            ("capacity_items", "60"),
            ("age_max_hours", "0"),
        ];
        self.configure(&settings)?;
        let mut waiting: BTreeSet<usize> = (0..self.actors.len()).collect();
        let mut new: BTreeSet<TrajectoryId> = BTreeSet::new();
        for round in 0..ROUNDS_MAX {
            self.pass(ROUND);
            for index in waiting.clone() {
                if self.actors[index].unacknowledged() < 4 {
                    new.extend(self.play(index, Items::Some));
                }
            }
            self.look()?;
            self.deliver_all()?;
            self.commit(usize::MAX)?;
            if round % 12 == 0 {
                self.tick()?;
            }
            self.deliver_all()?;
            let (actors, sampled) = (&self.actors, &self.learner.sampled);
            waiting.retain(|index| !sampled.iter().any(|id| id.actor == actors[*index].id && new.contains(id)));
            if waiting.is_empty() {
                self.note("progress", format!("every actor has made progress after {round} rounds"));
                return Ok(());
            }
        }
        let stats = self.stats().map(|stats| stats.table.waiting_reason);
        let what = format!("no new game of the actors {waiting:?} became a sample within a minute: {stats:?}");
        broken(Promise::Liveness, what)
    }

    /// Adds the final state to the digest.
    fn trace_end(&mut self) {
        for (name, bytes) in self.disk.files() {
            self.trace.bytes(name.as_bytes());
            self.trace.bytes(&bytes);
        }
    }
}
