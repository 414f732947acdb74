//! Builds evaluators of published weights on the fastest engine of this machine: [`choose`] turns [`Settings`] into a
//! [`Backend`], which builds a [`Network`] for each thread; [`suited`] checks that weights suit a game. [`check`] and
//! [`check_network`] check the settings of a program before the start.
//!
//! The engines are the CPU kernel and, with the feature `torch`, libtorch. A named device or kernel is used alone, or
//! else is an [`Invalid`] setting; if several engines are allowed, each batch size uses the engine measured as fastest.
//! The [`Host`] provides the clock and the [`Store`] of speeds measured in earlier starts, so that this crate reads no
//! clock and no file. Processes add remote and simulated evaluation as further implementations of [`Backend`].

mod backend;
mod choose;
mod device;
mod measured;
mod network;
#[cfg(feature = "doubles")]
#[path = "tests.rs"]
mod stand_in;

pub use backend::{Backend, Error};
pub use choose::{
    BatchMax, Calibration, Chosen, Host, Invalid, PerDevice, Settings, Threads, check, check_network, choose,
};
pub use device::device_of;
pub use measured::Store;
pub use network::{Network, Unsuitable, suited};
