//! A fleet of real processes on a network of its own, on which anything may go wrong: the chaos test's language.
//!
//! [`Network`] is packets between hosts, [`Schedule`] what goes wrong and when, from a seed; [`Fleet`] does it to
//! processes and watches them; [`Witness`] and [`Ledger`] hold what was acknowledged against what is stored;
//! [`Recoveries`] is the table in the docs. Start with `tests/tests/chaos.rs`.

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
