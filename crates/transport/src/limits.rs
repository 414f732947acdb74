//! Limits of all messages and servers, each with the reason. A receiver checks them before allocating.

/// Largest message that servers and clients accept, in bytes. A Connect Four trajectory takes about 2 kB, a batch of
/// 1024 samples of Hex 19×19 about 3 MB.
pub const MESSAGE_BYTES_MAX: usize = 16 << 20;

/// Largest health request, in bytes: the name of a service.
pub const PROBE_BYTES_MAX: usize = 4 << 10;

/// Largest priority update, in bytes: the maximum number of priorities, each of at most 64 bytes.
pub const PRIORITIES_BYTES_MAX: usize = 4 << 20;

/// Maximum number of servers that share one job. A client keeps a connection and a queue for each.
pub const SERVERS_MAX: usize = 64;
