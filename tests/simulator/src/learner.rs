//! The learner: it samples from the main table and publishes weights.

use std::collections::BTreeSet;

use experience::TrajectoryId;
use prost::Message as _;
use proto::replay::order::{SampleReplies, SampleReply};
use proto::replay::v1::sample_request::Message;
use proto::replay::{SampleQuery, v1};
use rand::RngExt;
use weights::WeightsVersion;

use crate::bus::{Client, Packet, Service, StreamId};
use crate::content::GAME;
use crate::oracle::{Checked, Promise, broken};
use crate::world::World;

/// Samples per batch.
const BATCH_SIZE: usize = 4;
/// Unrolled steps per sample.
const UNROLL_STEPS: usize = 2;
/// Batches that the learner requests in advance.
const CREDIT: u32 = 4;

/// State of the simulated learner.
#[derive(Debug, Default)]
pub(crate) struct Learner {
    stream: Option<(StreamId, SampleReplies)>,
    /// Batches requested but not received.
    credit: u32,
    /// Trajectories of all received samples.
    pub(crate) sampled: BTreeSet<TrajectoryId>,
}

impl World {
    /// Lets the learner open a stream and give credit.
    pub(crate) fn learn(&mut self) {
        if self.server.as_ref().is_none_or(|server| server.draining) {
            return;
        }
        if self.rng.random_bool(0.1) {
            self.newest = WeightsVersion(self.newest.0 + 1);
        }
        let Self { learner, bus, newest, .. } = self;
        let (stream, replies) = learner.stream.get_or_insert_with(|| {
            let stream = bus.open(Client::Learner, Service::Sample);
            let query = SampleQuery {
                game: GAME.to_owned(),
                batch_size: BATCH_SIZE,
                unroll_steps: UNROLL_STEPS,
                table: "main".to_owned(),
                timeout: None,
            };
            bus.send_to_server(stream, request(Message::Open(query.into())));
            (stream, SampleReplies::new(BATCH_SIZE, UNROLL_STEPS))
        });
        let batches = CREDIT - learner.credit;
        if batches > 0 {
            replies.gave(batches);
            learner.credit = CREDIT;
            bus.send_to_server(
                *stream,
                request(Message::Credit(v1::Credit { batches, newest_weights_version: newest.0 })),
            );
        }
    }

    /// Handles a packet of a sample stream at the learner.
    pub(crate) fn learner_message(&mut self, id: StreamId, packet: Packet) -> Checked {
        let learner = &mut self.learner;
        let Some((_, replies)) = learner.stream.as_mut().filter(|(stream, _)| *stream == id) else { return Ok(()) };
        let Packet::Message(bytes) = packet else {
            (learner.stream, learner.credit) = (None, 0);
            self.bus.client_left(id);
            self.trace.fired("learner reconnects");
            return Ok(());
        };
        let reply = v1::SampleResponse::decode(bytes.as_slice()).map_err(|error| error.to_string());
        match reply.and_then(|reply| replies.receive(reply).map_err(|fault| fault.to_string())) {
            Err(fault) => broken(Promise::Ratio, format!("the learner received {fault}")),
            Ok(SampleReply::Batch(batch)) => {
                learner.credit -= 1;
                learner.sampled.extend(batch.samples.iter().map(|sample| sample.segment.trajectory()));
                self.note("samples arrive", format!("{} samples arrive at the learner", batch.samples.len()));
                Ok(())
            }
            Ok(SampleReply::Part | SampleReply::Waiting(_)) => Ok(()),
        }
    }
}

fn request(message: Message) -> Packet {
    Packet::Message(v1::SampleRequest { message: Some(message) }.encode_to_vec())
}
