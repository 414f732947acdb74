//! Hostile clients, which have valid tokens.

use experience::{Trajectory, TrajectoryId};
use prost::Message as _;
use proto::replay::v1::insert_request::Message as Insert;
use proto::replay::v1::sample_request::Message as Sample;
use proto::replay::{Origin, SampleQuery, v1};
use rand::{Rng, RngExt};
use replay::ItemKey;
use replay_server::log::frame::Prologue;
use replay_server::log::{Counters, Record, SegmentNumber};
use weights::WeightsVersion;

use crate::bus::{Client, Packet, Service, StreamId};
use crate::content::{self, GAME, Items};
use crate::oracle::{Checked, HOSTILE};
use crate::world::World;

/// Trajectories of a flood.
const FLOOD: usize = 120;

impl World {
    /// Lets a hostile client make a random attack.
    pub(crate) fn attack(&mut self) -> Checked {
        if self.server.is_none() {
            return Ok(());
        }
        match self.rng.random_range(0..9) {
            0 | 1 => self.flood(Items::None, "without items"),
            2 => self.far_sequences(Items::None),
            3 => self.far_sequences(Items::Some),
            4 => self.other_content(),
            5 => self.giant_epoch(),
            6 => return self.unknown_priorities(),
            7 => self.garbage(),
            _ => self.long_trajectories(),
        }
        Ok(())
    }

    fn hostile_stream(&mut self, actor: u64, epoch: u64) -> StreamId {
        let id = self.bus.open(Client::Hostile, Service::Insert);
        let origin = Origin { actor, epoch, game: GAME.to_owned() };
        self.hostile_send(id, Insert::Hello(origin.into()));
        id
    }

    fn hostile_send(&mut self, id: StreamId, message: Insert) {
        let message = v1::InsertRequest { message: Some(message), trace: String::new() };
        self.bus.send_to_server(id, Packet::Message(message.encode_to_vec()));
    }

    fn hostile_game(&mut self, id: TrajectoryId, items: Items) -> Trajectory {
        self.serial += 1;
        content::game(id, self.serial, WeightsVersion(1), items, &mut self.rng)
    }

    fn flood(&mut self, items: Items, what: &str) {
        let actor = self.rng.random_range(0..self.hostile_next.len());
        self.note("flood", format!("a hostile actor sends {FLOOD} trajectories {what}"));
        let id = HOSTILE + actor as u64;
        let stream = self.hostile_stream(id, 1);
        for _ in 0..FLOOD {
            let sequence = self.hostile_next[actor];
            self.hostile_next[actor] += 1;
            let game = self.hostile_game(TrajectoryId { actor: id, epoch: 1, sequence }, items);
            self.hostile_send(stream, Insert::Trajectory(game.into()));
        }
    }

    fn far_sequences(&mut self, items: Items) {
        self.note("far sequences", format!("a hostile actor sends {FLOOD} random sequences, with items: {items:?}"));
        let (actor, epoch) = (HOSTILE + self.rng.random_range(0..4), self.rng.random_range(1..8));
        let stream = self.hostile_stream(actor, epoch);
        for _ in 0..FLOOD {
            let sequence = self.rng.next_u64();
            let game = self.hostile_game(TrajectoryId { actor, epoch, sequence }, items);
            self.hostile_send(stream, Insert::Trajectory(game.into()));
        }
    }

    /// Sends ids of stored trajectories again, with other content.
    fn other_content(&mut self) {
        let own: Vec<TrajectoryId> =
            self.oracle.stored.keys().filter(|id| (HOSTILE..HOSTILE + 100).contains(&id.actor)).copied().collect();
        if own.is_empty() {
            return self.flood(Items::Some, "with items");
        }
        let first = own[self.rng.random_range(0..own.len())];
        self.note("other content", format!("the hostile actor {} sends other content again", first.actor));
        let stream = self.hostile_stream(first.actor, first.epoch);
        for id in own.into_iter().filter(|id| (id.actor, id.epoch) == (first.actor, first.epoch)).take(20) {
            let game = self.hostile_game(id, Items::Some);
            self.hostile_send(stream, Insert::Trajectory(game.into()));
        }
    }

    fn giant_epoch(&mut self) {
        let epoch = u64::MAX - self.rng.random_range(0..2);
        let actor = HOSTILE + 200 + self.rng.random_range(0..3);
        self.note("giant epoch", format!("the hostile actor {actor} has epoch {epoch}"));
        let stream = self.hostile_stream(actor, epoch);
        for sequence in [0, u64::MAX, u64::MAX - 1, 1] {
            let game = self.hostile_game(TrajectoryId { actor, epoch, sequence }, Items::Some);
            self.hostile_send(stream, Insert::Trajectory(game.into()));
        }
    }

    fn unknown_priorities(&mut self) -> Checked {
        let known = self.oracle.held().into_iter().take(2).filter(|id| {
            let top = self.oracle.top.map(|top| top.key.trajectory);
            top != Some(*id)
        });
        let mut keys: Vec<(ItemKey, f64)> = known.map(|trajectory| (ItemKey { trajectory, ply: 0 }, 2.0)).collect();
        for _ in 0..200 {
            let trajectory = TrajectoryId { actor: self.rng.next_u64(), epoch: 1, sequence: self.rng.next_u64() };
            keys.push((ItemKey { trajectory, ply: self.rng.random_range(0..9) }, 1.0));
        }
        self.note("unknown priorities", format!("{} priorities are sent, most of unknown items", keys.len()));
        self.update_priorities(keys)?;
        self.check_apply()
    }

    /// Sends the longest accepted trajectories, with a log frame in the rewards of each.
    fn long_trajectories(&mut self) {
        let actor = self.rng.random_range(0..self.hostile_next.len());
        self.note("long trajectories", "a hostile actor sends long trajectories");
        let id = HOSTILE + actor as u64;
        let stream = self.hostile_stream(id, 1);
        for _ in 0..8 {
            let sequence = self.hostile_next[actor];
            self.hostile_next[actor] += 1;
            let mut bytes = [0; 4 * content::LIMITS.steps_max];
            self.rng.fill_bytes(&mut bytes);
            let forged = forged_frame(&mut self.rng);
            bytes[..forged.len()].copy_from_slice(&forged);
            let game = content::with_rewards(TrajectoryId { actor: id, epoch: 1, sequence }, &bytes);
            self.hostile_send(stream, Insert::Trajectory(game.into()));
        }
    }

    /// Sends messages that are invalid in different ways.
    fn garbage(&mut self) {
        self.note("garbage", "a hostile client sends invalid messages");
        let mut bytes = vec![0; self.rng.random_range(0..60)];
        self.rng.fill_bytes(&mut bytes);
        let id = TrajectoryId { actor: HOSTILE, epoch: 1, sequence: 0 };
        let game = self.hostile_game(id, Items::Some);
        let columns = |columns: Vec<u8>| v1::Trajectory { id: Some(id.into()), columns: columns.into() };
        let hello = |game: &str| Insert::Hello(Origin { actor: HOSTILE, epoch: 1, game: game.to_owned() }.into());
        match self.rng.random_range(0..8) {
            0 => {
                let stream = self.bus.open(Client::Hostile, Service::Insert);
                self.bus.send_to_server(stream, Packet::Message(bytes));
            }
            1 => {
                let stream = self.bus.open(Client::Hostile, Service::Insert);
                self.hostile_send(stream, Insert::Trajectory(game.into()));
            }
            2 => {
                let stream = self.bus.open(Client::Hostile, Service::Insert);
                self.hostile_send(stream, hello("chess"));
            }
            3 => {
                let stream = self.hostile_stream(HOSTILE, 1);
                self.hostile_send(stream, hello(GAME));
            }
            4 => {
                let stream = self.hostile_stream(HOSTILE, 1);
                let mut damaged = game.columns().to_vec();
                let at = self.rng.random_range(0..damaged.len());
                damaged[at] ^= 1 << self.rng.random_range(0..8);
                self.hostile_send(stream, Insert::Trajectory(columns(bytes)));
                self.hostile_send(stream, Insert::Trajectory(columns(damaged)));
            }
            5 => {
                let stream = self.hostile_stream(HOSTILE, 2);
                for _ in 0..300 {
                    self.hostile_send(
                        stream,
                        Insert::Trajectory(v1::Trajectory { id: None, columns: Vec::new().into() }),
                    );
                }
            }
            6 => {
                let stream = self.bus.open(Client::Hostile, Service::Sample);
                self.bus.send_to_server(stream, Packet::Message(bytes));
            }
            _ => self.sample_badly(),
        }
    }

    fn sample_badly(&mut self) {
        let stream = self.bus.open(Client::Hostile, Service::Sample);
        let batch_size = [1, 2, 70, 4096][self.rng.random_range(0..4_usize)];
        let table = ["main", "greatest", "none"][self.rng.random_range(0..3_usize)].to_owned();
        let query = SampleQuery { game: GAME.to_owned(), batch_size, unroll_steps: 1024, table, timeout: None };
        let credit = Sample::Credit(v1::Credit { batches: 64, newest_weights_version: 0 });
        for message in [Sample::Open(query.into()), credit.clone(), credit] {
            let message = v1::SampleRequest { message: Some(message) };
            self.bus.send_to_server(stream, Packet::Message(message.encode_to_vec()));
        }
    }
}

/// Returns the frame of a record with enormous counters; all words are finite numbers.
fn forged_frame(rng: &mut impl Rng) -> Vec<u8> {
    loop {
        let counters = Counters { trajectories: rng.random(), items: rng.random(), samples: rng.random() };
        let mut frame = Vec::new();
        let forged =
            Prologue::new(SegmentNumber(1), rng.random()).append(&mut frame, 0, &Record::encode_counters(counters));
        forged.expect("the record is small");
        frame.resize(frame.len().next_multiple_of(4), rng.random());
        if frame.as_chunks::<4>().0.iter().all(|word| f32::from_le_bytes(*word).is_finite()) {
            return frame;
        }
    }
}
