//! The limits of messages and of their fields, each with its reason. A receiver checks them before it allocates.

use experience::{Limits, POLICIES_BYTES_MAX};
use game::{ObservationShape, Outcome};

/// The largest message that servers and clients of this crate accept, in bytes. A Connect Four trajectory has about
/// 2 kB, a batch of 1024 samples of Hex 19×19 about 3 MB.
pub const MESSAGE_BYTES_MAX: usize = 16 << 20;

/// The largest trajectory, in bytes: the limit of a message minus its overhead on top of a trajectory, or of a sample
/// cut from one.
pub const TRAJECTORY_BYTES_MAX: usize = MESSAGE_BYTES_MAX - MESSAGE_REST_BYTES;

const _: () = assert!(2 * POLICIES_BYTES_MAX <= MESSAGE_BYTES_MAX, "search policies leave half of a message");

/// The overhead of a message on top of its payload.
pub const MESSAGE_REST_BYTES: usize = 4 << 10;

/// The size at which a batch continues in another message, in bytes: the HTTP/2 window of a stream.
pub const PART_BYTES_MAX: usize = 4 << 20;

/// The maximum number of unacknowledged trajectories of a writer, which keeps them in memory.
pub const UNACKNOWLEDGED_MAX: usize = 1 << 16;

/// The largest chunk of weights, in bytes: one message, small enough to share a connection with others.
pub const CHUNK_BYTES_MAX: usize = 1 << 20;

/// The most steps of a trajectory: a hundred times the longest board game in use.
pub const STEPS_MAX: usize = 1 << 16;

/// The limits of trajectories of any game.
pub const ANY_TRAJECTORY: Limits = Limits { steps_max: STEPS_MAX, actions: ACTIONS_MAX };

/// The largest A, the number of actions of a game: actions are u16 on the wire.
pub const ACTIONS_MAX: usize = 1 << 16;

/// The maximum number of samples in a batch: they are drawn together and buffered in memory.
pub const SAMPLES_PER_BATCH_MAX: usize = 4096;

/// The largest number of steps that a segment unrolls: the learner requests the K steps of MuZero's unroll, 5 to 10 in
/// the papers, and the steps of the return behind the last of them, 5 to 50. The limit is twice the longest episode of
/// CartPole, so that returns may reach to the end of such an episode (Monte Carlo). Longer episodes need n-step
/// returns.
pub const UNROLL_STEPS_MAX: usize = 1024;

/// The maximum credit of a sampler, in batches: they are buffered in memory.
pub const CREDIT_BATCHES_MAX: u32 = 64;

/// The maximum number of priorities in one request: those of several of the largest batches.
pub const PRIORITIES_MAX: usize = 1 << 16;

/// The maximum number of settings of a table in one request: several times the number of settings.
pub const TABLE_KEYS_MAX: usize = 64;

/// The most servers that share one job: a client keeps a connection and a queue for each.
pub const SERVERS_MAX: usize = 64;

/// The most actors that a server tracks and lists: ten times the largest fleet, and their list fits a message.
pub const ACTORS_MAX: usize = 16_384;

/// The longest name (of a game, of a subscriber), in bytes.
pub const NAME_BYTES_MAX: usize = 256;

/// The longest human-readable text, in bytes; senders truncate longer ones.
pub const REASON_BYTES_MAX: usize = 1024;

/// The largest size in an architecture: far above any network that fits a machine.
pub const DIMENSION_MAX: u32 = 1 << 20;

/// The most positions of an evaluation request.
const REQUEST_POSITIONS_MAX: usize = 4096;

/// The most numbers in the observations of a request: sent as bits, they take 32 times the memory when they are
/// unpacked.
const REQUEST_NUMBERS_MAX: usize = 16 << 20;

/// Returns the maximum number of positions in a request, for observations of `shape` and games of `actions` actions:
/// the request and its answer then fit a message, whatever the numbers.
#[must_use]
pub fn request_positions_max(shape: ObservationShape, actions: usize) -> usize {
    // Requests hold a float32 per number and a bit per action, answers half-precision floats.
    let there = shape.len() * size_of::<f32>() + actions.div_ceil(8);
    let back = (actions + Outcome::RESULTS) * size_of::<u16>();
    let fit = (MESSAGE_BYTES_MAX - MESSAGE_REST_BYTES) / there.max(back).max(1);
    (REQUEST_NUMBERS_MAX / shape.len().max(1)).min(fit).clamp(1, REQUEST_POSITIONS_MAX)
}
