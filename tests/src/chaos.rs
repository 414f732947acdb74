//! The parts of the chaos test: a fleet of real processes on a virtual network, and faults injected into both.
//!
//! [`Network`] forwards packets between hosts, and [`Schedule`] generates the faults and their times from a seed.
//! [`Fleet`] injects the faults and watches the processes. [`Witness`] and [`Ledger`] compare the acknowledged
//! trajectories with the stored ones, and [`Recoveries`] formats the table in the docs. Start with
//! `tests/tests/chaos.rs`.

mod fault;
mod fleet;
mod ledger;
mod namespace;
mod network;
mod plan;
mod recovery;
mod schedule;
mod switch;
mod system;
mod watch;
mod witness;

pub use fault::{Fault, Kind, Service};
pub use fleet::Fleet;
pub use ledger::Ledger;
pub use namespace::Namespace;
pub use network::Network;
pub use plan::Plan;
pub use recovery::{Recoveries, Recovery};
pub use schedule::{Lengths, Round, Schedule};
pub use switch::{Host, Link};
pub use watch::Watch;
pub use witness::Witness;
