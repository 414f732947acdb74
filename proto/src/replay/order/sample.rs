use experience::{Sample, WeightsVersion};

use super::{Fault, unlike};
use crate::convert;
use crate::limits::CREDIT_BATCHES_MAX;
use crate::replay::v1::sample_request::Message as Request;
use crate::replay::v1::sample_response::Message as Response;
use crate::replay::{SampleBatch, SampleQuery, v1};

/// The server's side of a sample stream: `open`, then credit.
#[derive(Debug)]
pub struct SampleOrder {
    game: String,
    query: Option<SampleQuery>,
    credit: u32,
}

/// The event that a message of a sample stream stands for.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Sampled {
    /// The stream is open.
    Open(SampleQuery),
    /// [`SampleOrder::credit`] has grown.
    Credit {
        /// The newest weights version that the client has published, if it publishes any.
        newest: Option<WeightsVersion>,
    },
}

impl SampleOrder {
    /// A stream for samples of `game`.
    #[must_use]
    pub fn new(game: impl Into<String>) -> Self {
        Self { game: game.into(), query: None, credit: 0 }
    }

    /// Takes the client's next message.
    ///
    /// # Errors
    /// The [`Fault`] that ends the stream.
    pub fn receive(&mut self, request: v1::SampleRequest) -> Result<Sampled, Fault> {
        let v1::SampleRequest { message } = request;
        match (message.ok_or(Fault::Empty)?, &self.query) {
            (Request::Open(open), None) => self.open(open),
            (Request::Open(_), Some(_)) => Err(Fault::Twice { message: "open" }),
            (Request::Credit(_), None) => Err(Fault::TooEarly { got: "credit", expected: "open" }),
            (Request::Credit(credit), Some(_)) => self.add(credit),
        }
    }

    /// Returns the number of batches that may be sent now.
    #[must_use]
    pub fn credit(&self) -> u32 {
        self.credit
    }

    /// A batch goes out.
    pub fn sent(&mut self) {
        debug_assert!(self.credit > 0, "a batch is sent for credit only");
        self.credit = self.credit.saturating_sub(1);
    }

    fn open(&mut self, open: v1::Open) -> Result<Sampled, Fault> {
        let query = SampleQuery::try_from(open)?;
        if query.game != self.game {
            return Err(unlike("game", &query.game, &self.game));
        }
        self.query = Some(query.clone());
        Ok(Sampled::Open(query))
    }

    fn add(&mut self, credit: v1::Credit) -> Result<Sampled, Fault> {
        let (batches, newest) = convert::sample::credit_from_wire(credit)?;
        if batches > CREDIT_BATCHES_MAX - self.credit {
            return Err(Fault::OverCredit { message: "credit", credit: CREDIT_BATCHES_MAX });
        }
        self.credit += batches;
        Ok(Sampled::Credit { newest })
    }
}

/// The client's side of a sample stream: batches of the requested size, in parts, within the credit.
#[derive(Debug)]
pub struct SampleReplies {
    batch_size: usize,
    unroll_steps: usize,
    credit: u32,
    /// The parts of the next batch that have arrived.
    samples: Vec<Sample>,
}

/// The event that a server's message on a sample stream stands for.
#[derive(Debug, Clone, PartialEq)]
pub enum SampleReply {
    /// A part of a batch, whose others are still to come.
    Part,
    /// One batch, for one credit: its last part has come.
    Batch(Box<SampleBatch>),
    /// The reason for which none arrives.
    Waiting(String),
}

impl SampleReplies {
    /// A stream that was opened for batches of `batch_size` segments of `unroll_steps` at most.
    #[must_use]
    pub fn new(batch_size: usize, unroll_steps: usize) -> Self {
        Self { batch_size, unroll_steps, credit: 0, samples: Vec::new() }
    }

    /// Credit goes out.
    pub fn gave(&mut self, batches: u32) {
        self.credit += batches;
    }

    /// Takes the server's next message.
    ///
    /// # Errors
    /// The [`Fault`] for which the stream must be given up.
    pub fn receive(&mut self, response: v1::SampleResponse) -> Result<SampleReply, Fault> {
        let v1::SampleResponse { message } = response;
        match message.ok_or(Fault::Empty)? {
            Response::Waiting(waiting) => Ok(SampleReply::Waiting(convert::sample::waiting_from_wire(waiting)?)),
            Response::Batch(_) if self.credit == 0 => Err(Fault::OverCredit { message: "batch", credit: 0 }),
            Response::Batch(part) => self.add(part),
        }
    }

    fn add(&mut self, part: v1::Batch) -> Result<SampleReply, Fault> {
        let (got, wanted) = (part.samples.len(), self.batch_size - self.samples.len());
        if got > wanted {
            let reason = format!("has {got} entries, expected 1 to {wanted}");
            return Err(Fault::Invalid(convert::invalid("samples", reason)));
        }
        let SampleBatch { samples, table } = part.try_into()?;
        self.check_segments(&samples)?;
        self.samples.extend(samples);
        if got < wanted {
            return Ok(SampleReply::Part);
        }
        self.credit -= 1;
        let samples = std::mem::take(&mut self.samples);
        Ok(SampleReply::Batch(Box::new(SampleBatch { samples, table })))
    }

    /// Segments may be shorter than requested, where an episode ends, but not longer.
    fn check_segments(&self, samples: &[Sample]) -> Result<(), Fault> {
        let most = self.unroll_steps + 1;
        let lengths = samples.iter().map(|sample| sample.segment.len());
        match lengths.enumerate().find(|&(_, steps)| steps > most) {
            Some((index, steps)) => {
                let reason = format!("has {steps} entries, expected 1 to {most}");
                Err(Fault::Invalid(convert::invalid(format!("samples[{index}].segment.steps"), reason)))
            }
            None => Ok(()),
        }
    }
}
