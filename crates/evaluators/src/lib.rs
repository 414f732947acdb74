//! Builds evaluators of published weights on the fastest engine of this machine: [`choose`] turns [`Settings`] into a
//! [`Backend`], which builds a [`Network`] for each thread; [`suited`] checks that weights suit a game. [`check`] and
//! [`check_network`] answer for a program before it is started.
//!
//! The engines are the CPU kernel and, with the feature `torch`, libtorch. A named device or kernel is the only engine,
//! or else an [`Invalid`] setting; where several are allowed, each batch size uses the engine that measures fastest.
//! The clock and the [`Store`] of speeds that earlier starts measured are parts of the [`Host`], so nothing here reads
//! a clock or a file. Remote and simulated evaluation belong to the processes, as further implementations of
//! [`Backend`].

mod backend;
mod choose;
mod device;
mod measured;
mod network;

pub use backend::{Backend, Error};
pub use choose::{BatchMax, Calibration, Chosen, Host, Invalid, Settings, Threads, check, check_network, choose};
pub use device::device_of;
pub use measured::Store;
pub use network::{Network, Unsuitable, suited};
