//! Limits of fields and requests, each with the reason. A receiver checks them before allocating. The limits of whole
//! messages are in [`transport::limits`].

use experience::{Limits, POLICIES_BYTES_MAX};
use game::{ObservationShape, Outcome};
use transport::limits::{MESSAGE_BYTES_MAX, PRIORITIES_BYTES_MAX};

/// Largest trajectory, in bytes: the message limit minus the overhead of a message with a trajectory or a sample.
pub const TRAJECTORY_BYTES_MAX: usize = MESSAGE_BYTES_MAX - MESSAGE_REST_BYTES;

const _: () = assert!(2 * POLICIES_BYTES_MAX <= MESSAGE_BYTES_MAX, "search policies leave half of a message");

/// Maximum size of a message beyond the payload, in bytes.
pub const MESSAGE_REST_BYTES: usize = 4 << 10;

/// Size at which a batch continues in another message, in bytes: the HTTP/2 window of a stream.
pub const PART_BYTES_MAX: usize = 4 << 20;

/// Maximum number of unacknowledged trajectories of a writer, which keeps them in memory.
pub const UNACKNOWLEDGED_MAX: usize = 1 << 16;

/// Largest chunk of weights, in bytes: one message, small enough to share a connection with other streams.
pub const CHUNK_BYTES_MAX: usize = 1 << 20;

/// Maximum number of steps in a trajectory: a hundred times the longest board game in use.
pub const STEPS_MAX: usize = 1 << 16;

/// Limits for trajectories of any game.
pub const ANY_TRAJECTORY: Limits = Limits { steps_max: STEPS_MAX, actions: ACTIONS_MAX };

/// Maximum number of actions A of a game: actions are u16 on the wire.
pub const ACTIONS_MAX: usize = 1 << 16;

/// Maximum number of samples in a batch, which are all drawn together and buffered in memory.
pub const SAMPLES_PER_BATCH_MAX: usize = 4096;

/// Maximum number of steps after the first in a segment. The learner requests the K steps of MuZero's unroll, 5 to 10
/// in the papers, plus n steps for the bootstrapped return, 5 to 50. The limit is twice the longest episode of
/// CartPole, so that a return may reach the last step of such an episode (Monte Carlo). Longer episodes need n-step
/// returns.
pub const UNROLL_STEPS_MAX: usize = 1024;

/// Maximum number of batches that a sampler may request in advance. The batches are buffered in memory.
pub const CREDIT_BATCHES_MAX: u32 = 64;

/// Maximum number of priorities in one request: several of the largest batches.
pub const PRIORITIES_MAX: usize = 1 << 16;

const _: () = assert!(64 * PRIORITIES_MAX <= PRIORITIES_BYTES_MAX, "64 bytes hold an item key and a priority");

/// Maximum number of trajectories on a page of a search. A page takes less than a megabyte.
pub const SEARCH_PAGE_MAX: usize = 4096;

/// Maximum number of table settings in one request: several times the number of existing settings.
pub const TABLE_KEYS_MAX: usize = 64;

/// Maximum number of actors that a server tracks and lists: ten times the largest fleet, and few enough for the list to
/// fit a message.
pub const ACTORS_MAX: usize = 16_384;

/// Maximum length of a name (game, subscriber), in bytes.
pub const NAME_BYTES_MAX: usize = 256;

/// Maximum length of a human-readable text, in bytes; senders truncate longer texts.
pub const REASON_BYTES_MAX: usize = 1024;

/// Largest dimension in an architecture: far above any network that fits a machine.
pub const DIMENSION_MAX: u32 = 1 << 20;

/// Maximum number of positions in an evaluation request.
const REQUEST_POSITIONS_MAX: usize = 4096;

/// Maximum number of observation values in a request. The limit is needed because values sent as bits take 32 times the
/// memory after unpacking.
const REQUEST_NUMBERS_MAX: usize = 16 << 20;

/// Returns the maximum number of positions in a request, for observations of `shape` and games with `actions`
/// actions. Request and response then fit a message for any observation values.
#[must_use]
pub fn request_positions_max(shape: ObservationShape, actions: usize) -> usize {
    // Requests hold a float32 per observation value and a bit per action; responses hold half-precision floats.
    let there = shape.len() * size_of::<f32>() + actions.div_ceil(8);
    let back = (actions + Outcome::RESULTS) * size_of::<u16>();
    let fit = (MESSAGE_BYTES_MAX - MESSAGE_REST_BYTES) / there.max(back).max(1);
    (REQUEST_NUMBERS_MAX / shape.len().max(1)).min(fit).clamp(1, REQUEST_POSITIONS_MAX)
}
