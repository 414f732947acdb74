//! Server side of a sample stream. The message order is the real server's; the rest is a model of the handler.

use std::collections::VecDeque;

use experience::{Sample, WeightsVersion};
use proto::limits::CREDIT_BATCHES_MAX;
use proto::replay::order::{SampleOrder, Sampled as Message};
use proto::replay::{SampleBatch, SampleQuery, batch_to_wire, v1, waiting_to_wire};
use replay::Drawn;
use replay_server::table_service::Sampled;
use run_file::replay::TableIndex;
use tokio::sync::mpsc;

use crate::content::GAME;
use crate::settings::GREATEST;

/// Maximum number of unsent reasons for waiting.
const REASONS_MAX: usize = 16;

/// A stream of one sampler.
#[derive(Debug)]
pub(crate) struct SampleStream {
    order: SampleOrder,
    query: Option<(TableIndex, SampleQuery)>,
    reply: mpsc::Sender<Sampled>,
    replies: mpsc::Receiver<Sampled>,
    requested: u32,
}

/// Work that a message requests from the server.
#[derive(Debug, Default)]
pub(crate) struct Asked {
    /// A table and a batch size to check.
    pub(crate) check: Option<(TableIndex, u64)>,
    /// The latest weights version.
    pub(crate) newest: Option<WeightsVersion>,
    /// A table, the number of batches to draw, and items per batch.
    pub(crate) draw: Option<(TableIndex, u32, u64)>,
}

/// A response of the table service on the way to the client.
#[derive(Debug)]
pub(crate) enum Answered {
    Batch(Vec<Drawn>, VecDeque<v1::SampleResponse>),
    Waiting(Box<v1::SampleResponse>),
    End(String),
}

impl SampleStream {
    pub(crate) fn new() -> Self {
        let (reply, replies) = mpsc::channel(CREDIT_BATCHES_MAX as usize + REASONS_MAX);
        Self { order: SampleOrder::new(GAME), query: None, reply, replies, requested: 0 }
    }

    /// Takes a message; an error ends the stream.
    pub(crate) fn receive(&mut self, message: v1::SampleRequest) -> Result<Asked, String> {
        match self.order.receive(message).map_err(|fault| fault.to_string())? {
            Message::Open(query) => {
                let table = match query.table.as_str() {
                    "" | "main" => TableIndex::MAIN,
                    GREATEST => TableIndex(1),
                    name => return Err(format!("there is no table {name:?}")),
                };
                let items = query.batch_size as u64;
                self.query = Some((table, query));
                Ok(Asked { check: Some((table, items)), ..Asked::default() })
            }
            Message::Credit { newest } => {
                let Some((table, query)) = &self.query else { return Ok(Asked { newest, ..Asked::default() }) };
                let batches = self.order.credit() - self.requested;
                self.requested = self.order.credit();
                Ok(Asked { newest, draw: Some((*table, batches, query.batch_size as u64)), check: None })
            }
        }
    }

    pub(crate) fn reply(&self) -> mpsc::Sender<Sampled> {
        self.reply.clone()
    }

    /// Returns the next response of the table service.
    pub(crate) fn poll(&mut self) -> Option<Answered> {
        Some(match self.replies.try_recv().ok()? {
            Sampled::Waiting(reason) => Answered::Waiting(Box::new(waiting_to_wire(reason))),
            Sampled::TooLarge { .. } => Answered::End("the batch is too large".to_owned()),
            Sampled::Batch { drawn, table } => {
                self.requested -= 1;
                self.order.sent();
                let unroll_steps = self.query.as_ref().map_or(0, |(_, query)| query.unroll_steps);
                let samples = drawn.iter().map(|drawn| cut(drawn, unroll_steps)).collect();
                let parts = batch_to_wire(&SampleBatch { samples, table: *table });
                Answered::Batch(drawn, parts.into())
            }
        })
    }
}

fn cut(drawn: &Drawn, unroll_steps: usize) -> Sample {
    let segment = drawn.trajectory.segment(drawn.ply(), unroll_steps);
    Sample {
        segment: segment.expect("a drawn ply is one of the trajectory"),
        probability: drawn.probability,
        table_items: drawn.table_items,
    }
}
