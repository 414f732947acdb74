//! Parts of the chaos test: a fleet of real processes on a virtual network, and faults injected into both.
//!
//! [`Network`] forwards packets between hosts, [`Schedule`] generates faults with times from a seed, and [`Machine`]
//! determines which faults can be injected on this machine. [`Fleet`] injects the faults and watches the processes.
//! [`Witnesses`] are clients that record all operations in a [`History`]. [`checker`] and [`Ledger`] compare the
//! history, and the acknowledged trajectories of the actors, with the stored trajectories. [`Recoveries`] formats the
//! table in the docs. Start with `tests/tests/chaos.rs`.

mod cgroup;
pub mod checker;
mod clock;
mod disk;
mod fault;
mod fleet;
mod growth;
mod history;
mod ledger;
mod machine;
mod member;
mod namespace;
mod network;
mod plan;
mod recovery;
mod schedule;
mod secrets;
mod switch;
mod system;
mod watch;
mod witness;

pub use fault::{Fault, Kind, Service};
pub use fleet::Fleet;
pub use history::{Call, Disturbance, History, Inserted, Operation};
pub use ledger::Ledger;
pub use machine::Machine;
pub use namespace::Namespace;
pub use network::Network;
pub use plan::Plan;
pub use recovery::{Recoveries, Recovery};
pub use schedule::{Lengths, Round, Schedule};
pub use switch::{Host, Link};
pub use watch::{Acknowledged, Watch};
pub use witness::Witnesses;
